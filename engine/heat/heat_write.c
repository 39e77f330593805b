#include "engine/heat/heat_write.h"

#include "expert_cache/heat.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEMP   ".sluice-"
#define RANDOM "XXXXXX"

/* Does the regular file begin like a heat file, or is it empty? */
static bool holds_heat(int fd) {
    struct stat about;
    uint8_t start[SL_HEAT_MARK_BYTES];
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode))
        return false;
    ssize_t n = pread(fd, start, sizeof start, 0);
    return n >= 0 && sl_heat_is_image(start, (size_t)n);
}

static int look_at(int folder, const char *name) {
    return openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

static int write_all(int fd, const uint8_t *bytes, size_t n_bytes) {
    for (size_t at = 0; at < n_bytes;) {
        ssize_t n = write(fd, bytes + at, n_bytes - at);
        if (n > 0)
            at += (size_t)n;
        else if (n == 0 || errno != EINTR)
            return n == 0 ? EIO : errno;
    }
    return fsync(fd) == 0 ? 0 : errno;
}

/* Whether the file may be replaced; *out_free: there is none. */
static const char *check_place(const char *path, bool *out_free, char why[256]) {
    int fd = look_at(AT_FDCWD, path);
    *out_free = fd < 0 && errno == ENOENT;
    if (*out_free)
        return NULL;
    if (fd < 0) {
        int error = errno;
        snprintf(why, 256, "what is there cannot be looked at: %s", strerror(error));
        return error == ELOOP ? "a symbolic link took its place" : why;
    }
    bool ours = holds_heat(fd);
    close(fd);
    return ours ? NULL : "what is there is no heat file and stays";
}

static const char *take_place(const char *temp, const char *path, char why[256]) {
    bool is_free;
    const char *refused = check_place(path, &is_free, why);
    if (refused)
        return refused;
    if (is_free) {
        if (renameat2(AT_FDCWD, temp, AT_FDCWD, path, RENAME_NOREPLACE) == 0)
            return NULL;
        if (errno != EINVAL && errno != ENOSYS) /* as file systems say that cannot tell */
            return strerror_r(errno, why, 256);
    } else if (renameat2(AT_FDCWD, temp, AT_FDCWD, path, RENAME_EXCHANGE) == 0) {
        /* What appeared at the path since the check above now has the other name; it is moved back
         * if it is not ours. */
        refused = check_place(temp, &is_free, why);
        if (refused)
            (void)!renameat2(AT_FDCWD, temp, AT_FDCWD, path, RENAME_EXCHANGE);
        else
            unlink(temp);
        return refused;
    }
    return rename(temp, path) == 0 ? NULL : strerror_r(errno, why, 256);
}

const char *sl_heat_write(const char *path, const uint8_t *image, size_t n_bytes, char why[256]) {
    char temp[4096 + sizeof TEMP RANDOM];
    snprintf(temp, sizeof temp, "%s" TEMP RANDOM, path);
    int fd = mkostemp(temp, O_CLOEXEC); /* O_EXCL, mode 0600 */
    if (fd < 0)
        return strerror_r(errno, why, 256);
    (void)flock(fd, LOCK_EX | LOCK_NB); /* a file that is being written is not swept away */
    int error = write_all(fd, image, n_bytes);
    const char *failed = error ? strerror_r(error, why, 256) : take_place(temp, path, why);
    if (close(fd) != 0 && !failed)
        failed = strerror_r(errno, why, 256);
    bool is_free;
    char other[256];
    if (failed && !check_place(temp, &is_free, other)) /* ours, as it should be */
        unlink(temp);
    return failed;
}

/* "NAME.sluice-" and six letters or digits. */
static bool is_temp(const char *entry, const char *name) {
    size_t n = strlen(name), m = sizeof TEMP - 1;
    return strncmp(entry, name, n) == 0 && strncmp(entry + n, TEMP, m) == 0 &&
           strlen(entry + n + m) == sizeof RANDOM - 1;
}

static void sweep(int folder, const char *name) {
    struct stat about;
    int fd = look_at(folder, name);
    if (fd < 0)
        return;
    if (fstat(fd, &about) == 0 && about.st_uid == geteuid() && holds_heat(fd) &&
        about.st_size > 0 && /* an empty one may be anybody's */
        flock(fd, LOCK_EX | LOCK_NB) == 0)
        unlinkat(folder, name, 0);
    close(fd);
}

void sl_heat_sweep(const char *path) {
    char folder[4096];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    snprintf(folder, sizeof folder, "%.*s", (int)(name - path), path);
    DIR *d = opendir(slash ? folder : ".");
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d));)
        if (is_temp(e->d_name, name))
            sweep(dirfd(d), e->d_name);
    closedir(d);
}
