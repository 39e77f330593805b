#include "net/key.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "sluice-key-1:"
/* More than a key has: so that a wrong file is seen to be one. */
#define FILE_BYTES 256u

enum sl_status sl_net_key_generate(char out[SL_NET_KEY_TEXT_BYTES], struct sl_err *err) {
    uint8_t bytes[SL_NET_KEY_BYTES];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return sl_fail(err, SL_ERR_IO, "the system gives no random numbers: %s", strerror(errno));
    int n = snprintf(out, SL_NET_KEY_TEXT_BYTES, PREFIX);
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(out + n + 2 * i, 3, "%02x", bytes[i]);
    explicit_bzero(bytes, sizeof bytes);
    return SL_OK;
}

static int digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

enum sl_status sl_net_key_parse(const char *text, const char *source, struct sl_net_key **out_key,
                                struct sl_err *err) {
    while (isspace((unsigned char)*text))
        text++;
    size_t n = strlen(text), prefix = strlen(PREFIX);
    while (n && isspace((unsigned char)text[n - 1]))
        n--;
    bool sound = n == prefix + 2u * SL_NET_KEY_BYTES && memcmp(text, PREFIX, prefix) == 0;
    for (size_t i = prefix; sound && i < n; i++)
        sound = digit(text[i]) >= 0;
    if (!sound)
        return sl_fail(err, SL_ERR_CONFIG,
                       "%s holds no key: 'sluice keygen' makes one, a line that begins with %s",
                       source, PREFIX);
    struct sl_net_key *key = malloc(sizeof *key);
    if (!key)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for a key");
    for (size_t i = 0; i < SL_NET_KEY_BYTES; i++)
        key->bytes[i] =
            (uint8_t)(digit(text[prefix + 2 * i]) << 4 | digit(text[prefix + 2 * i + 1]));
    *out_key = key;
    return SL_OK;
}

/* What is wrong with who may read it; NULL: nothing. */
static const char *exposed(const struct stat *about) {
    if (!S_ISREG(about->st_mode))
        return "is no regular file";
    /* systemd hands a file of root's over, with its reader in an access list: that shows as the
     * group's. */
    bool handed_over = !about->st_uid && !about->st_gid && (about->st_mode & S_IRWXG) == S_IRGRP;
    if (about->st_mode & S_IRWXO || (about->st_mode & S_IRWXG && !handed_over))
        return "can be read by others: chmod 600 it";
    if (about->st_uid != geteuid() && about->st_uid != 0)
        return "belongs to another user";
    return NULL;
}

enum sl_status sl_net_key_read(const char *path, struct sl_net_key **out_key, struct sl_err *err) {
    char text[FILE_BYTES], source[128];
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return sl_fail(err, SL_ERR_CONFIG, "the key file '%s' cannot be opened: %s", path,
                       strerror(errno));
    const char *why = fstat(fd, &about) == 0 ? exposed(&about) : strerror(errno);
    ssize_t n = why ? 0 : read(fd, text, sizeof text - 1);
    int failed = errno;
    close(fd);
    if (why)
        return sl_fail(err, SL_ERR_CONFIG, "the key file '%s' %s", path, why);
    if (n < 0)
        return sl_fail(err, SL_ERR_CONFIG, "the key file '%s' cannot be read: %s", path,
                       strerror(failed));
    text[n] = 0;
    snprintf(source, sizeof source, "the key file '%.100s'", path);
    enum sl_status status = sl_net_key_parse(text, source, out_key, err);
    explicit_bzero(text, sizeof text);
    return status;
}

void sl_net_key_free(struct sl_net_key **key) {
    if (*key)
        explicit_bzero(*key, sizeof **key);
    free(*key);
    *key = NULL;
}
