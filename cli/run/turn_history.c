#include "cli/run/turn_history.h"

#include "common/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES      4096u
#define MAX_ENTRY_BYTES (64u << 10) /* longer ones are not kept */
#define MAX_FILE_BYTES  (4u << 20)  /* as much is read, and more is cut off at the next start */

static const char *below(const char *base, const char *rest, char *buf, size_t size) {
    if (!base || base[0] != '/')
        return NULL;
    int n = snprintf(buf, size, "%s%s/sluice/history", base, rest);
    return n > 0 && (size_t)n < size ? buf : NULL;
}

const char *sl_history_default(char *buf, size_t size) {
    const char *found = below(getenv("XDG_STATE_HOME"), "", buf, size);
    return found ? found : below(getenv("HOME"), "/.local/state", buf, size);
}

/* The end of the file, from the beginning of a line. NULL: nothing is there. */
static char *read_tail(const char *path, size_t *out_len, bool *out_cut) {
    struct stat about;
    char *text = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not stop the start */
    *out_len = 0;
    *out_cut = false;
    if (fd < 0)
        return NULL;
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0) {
        *out_cut = about.st_size > (off_t)MAX_FILE_BYTES;
        off_t from = *out_cut ? about.st_size - (off_t)MAX_FILE_BYTES : 0;
        text = malloc(MAX_FILE_BYTES + 1);
        ssize_t n = text ? pread(fd, text, MAX_FILE_BYTES, from) : -1;
        *out_len = n > 0 ? (size_t)n : 0;
    }
    close(fd);
    if (!text)
        return NULL;
    text[*out_len] = '\0';
    char *line = *out_cut ? memchr(text, '\n', *out_len) : NULL;
    if (line) {
        *out_len -= (size_t)(line + 1 - text);
        memmove(text, line + 1, *out_len + 1);
    }
    return text;
}

/* Replaces the file; on a failure it stays as it is. */
static void replace(const char *path, const char *text, size_t len) {
    char temporary[PATH_BYTES];
    int n = snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    int fd = n > 0 && (size_t)n < sizeof temporary ? mkostemp(temporary, O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    bool ok = write(fd, text, len) == (ssize_t)len;
    ok = close(fd) == 0 && ok;
    if (!ok || rename(temporary, path) != 0)
        unlink(temporary);
}

void sl_history_load(const char *path, void (*take)(void *ctx, const char *text), void *ctx) {
    size_t len, n_lines = 0;
    bool cut;
    char *text = read_tail(path, &len, &cut), *from = text;
    if (!text)
        return;
    for (char *p = text + len; p > text; p--) /* back to the oldest that is kept */
        if (p[-1] == '\n' && ++n_lines > SL_HISTORY_ENTRIES) {
            from = p;
            break;
        }
    if (cut || (n_lines > SL_HISTORY_ENTRIES && len > MAX_FILE_BYTES / 2))
        replace(path, from, (size_t)(text + len - from));
    for (char *end; (end = strchr(from, '\n')); from = end + 1) {
        json_t *entry = json_loadb(from, (size_t)(end - from), JSON_DECODE_ANY, NULL);
        if (json_is_string(entry))
            take(ctx, json_string_value(entry));
        json_decref(entry);
    }
    free(text);
}

bool sl_history_is_ours(const char *path) {
    struct stat about;
    char first = '"'; /* of a JSON string */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT;
    bool ours = fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && pread(fd, &first, 1, 0) >= 0 &&
                first == '"';
    close(fd);
    return ours;
}

/* Every folder of the path that is not there, for its owner alone. */
static bool make_folders(const char *path) {
    char folder[PATH_BYTES];
    if (strlen(path) >= sizeof folder) {
        errno = ENAMETOOLONG;
        return false;
    }
    strcpy(folder, path);
    for (char *slash = folder; (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        if (mkdir(folder, 0700) != 0 && errno != EEXIST)
            return false;
        *slash = '/';
    }
    return true;
}

bool sl_history_add(const char *path, const char *text) {
    struct sl_buf line = {0};
    if (strlen(text) > MAX_ENTRY_BYTES)
        return true;
    sl_buf_json_text(&line, text);
    sl_buf_puts(&line, "\n");
    int fd = -1;
    if (!line.failed && make_folders(path))
        fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
    bool ok = fd >= 0 && write(fd, line.ptr, line.len) == (ssize_t)line.len; /* one write: whole */
    if (fd >= 0)
        close(fd);
    sl_buf_release(&line);
    return ok;
}
