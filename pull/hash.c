/* Sums of files, and the small files that keep them, in the form of sha256sum(1). */
#include "pull/part_file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_BYTES (1u << 20)

static enum sl_status hash_all(int fd, const char *path, uint64_t size_bytes, char *buf,
                               gnutls_hash_hd_t hash, sl_pull_hashed hashed, void *ctx,
                               struct sl_err *err) {
    for (uint64_t at = 0; at < size_bytes;) {
        size_t want = size_bytes - at < READ_BYTES ? (size_t)(size_bytes - at) : READ_BYTES;
        ssize_t got = pread(fd, buf, want, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return sl_fail(err, SL_ERR_IO, "%.300s: %s", path,
                           got < 0 ? strerror(errno) : "is shorter than it was");
        if (gnutls_hash(hash, buf, (size_t)got) != 0)
            return sl_fail(err, SL_ERR_NOMEM, "SHA-256 cannot be computed here");
        at += (uint64_t)got;
        if (hashed && !hashed(ctx, at))
            return sl_fail(err, SL_ERR_CANCELED, "interrupted");
    }
    return SL_OK;
}

enum sl_status sl_pull_hash(int fd, const char *path, uint64_t size_bytes, sl_pull_hashed hashed,
                            void *ctx, char out[SL_PULL_HASH_BYTES], struct sl_err *err) {
    unsigned char sum[32];
    gnutls_hash_hd_t hash;
    char *buf = malloc(READ_BYTES);
    if (!buf || gnutls_hash_init(&hash, GNUTLS_DIG_SHA256) != 0) {
        free(buf);
        return sl_fail(err, SL_ERR_NOMEM, "SHA-256 cannot be computed here");
    }
    enum sl_status status = hash_all(fd, path, size_bytes, buf, hash, hashed, ctx, err);
    gnutls_hash_deinit(hash, sum);
    free(buf);
    if (status == SL_OK)
        for (size_t i = 0; i < sizeof sum; i++)
            snprintf(out + 2 * i, 3, "%02x", sum[i]);
    return status;
}

bool sl_pull_read_sum(const char *path, char out[SL_PULL_HASH_BYTES]) {
    char name[4096 + 8], line[SL_PULL_HASH_BYTES + 2 + SL_PULL_NAME_BYTES + 1] = "";
    snprintf(name, sizeof name, "%s.sha256", path);
    int fd = open(name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, line, sizeof line - 1);
    close(fd);
    line[n > 0 ? n : 0] = '\0';
    const char *base = sl_pull_base_name(path);
    size_t n_base = strlen(base);
    if (n < 66 || strncmp(line + 64, "  ", 2) != 0 || strncmp(line + 66, base, n_base) != 0 ||
        strcmp(line + 66 + n_base, "\n") != 0)
        return false;
    line[64] = '\0';
    if (!sl_pull_is_hex(line, 64))
        return false;
    memcpy(out, line, SL_PULL_HASH_BYTES);
    return true;
}

enum sl_status sl_pull_write_sum(const char *path, const char *sha256, struct sl_err *err) {
    char name[4096 + 8], before[SL_PULL_HASH_BYTES];
    snprintf(name, sizeof name, "%s.sha256", path);
    if (sl_pull_read_sum(path, before))
        unlink(name);
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno == EEXIST)
        return SL_OK; /* somebody else's: the sum will be made again when it is needed */
    bool written = fd >= 0 && dprintf(fd, "%s  %s\n", sha256, sl_pull_base_name(path)) > 0;
    int wrong = errno;
    if (fd >= 0 && close(fd) != 0 && written) {
        wrong = errno;
        written = false;
    }
    if (written)
        return SL_OK;
    if (fd >= 0)
        unlink(name);
    return sl_fail(err, SL_ERR_IO, "%.300s: %s", name, strerror(wrong));
}
