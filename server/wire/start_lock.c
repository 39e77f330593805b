#include "server/wire/start_lock.h"

#include "common/clock.h"
#include "common/interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define WAIT_NS ((uint64_t)5000000000)
#define SUFFIX  ".lock"

/* "process 123 (name)" into buf: who has the lock that was asked for. */
static const char *lock_holder(int fd, char *buf, size_t size) {
    struct flock held = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char path[48], name[32] = "";
    if (fcntl(fd, F_GETLK, &held) != 0 || held.l_type == F_UNLCK || held.l_pid <= 0)
        return "a process that cannot be seen from here";
    snprintf(path, sizeof path, "/proc/%d/comm", (int)held.l_pid);
    FILE *f = fopen(path, "re");
    if (f) {
        if (fgets(name, sizeof name, f))
            name[strcspn(name, "\n")] = '\0';
        fclose(f);
    }
    snprintf(buf, size, "process %d%s%s%s", (int)held.l_pid, name[0] ? " (" : "", name,
             name[0] ? ")" : "");
    return buf;
}

enum lock_state { LOCK_HELD, LOCK_BUSY, LOCK_REFUSED };

/* Another file of that name must not be taken for the lock, which is removed afterwards. */
static bool is_lock_file(const struct stat *sb) {
    return S_ISREG(sb->st_mode) && sb->st_size == 0 && sb->st_uid == geteuid();
}

static bool has_name(const struct sl_start_lock *lock, const struct stat *open_file) {
    struct stat sb;
    return lstat(lock->path, &sb) == 0 && sb.st_dev == open_file->st_dev &&
           sb.st_ino == open_file->st_ino;
}

static void drop(struct sl_start_lock *lock) {
    if (lock->fd >= 0)
        close(lock->fd);
    lock->fd = -1;
}

static enum lock_state refuse(const struct sl_start_lock *lock, const char *why,
                              struct sl_err *err) {
    sl_fail(err, SL_ERR_CONFIG, "--unix-socket %.*s: its lock %s cannot be taken: %s",
            (int)(strlen(lock->path) - strlen(SUFFIX)), lock->path, lock->path, why);
    return LOCK_REFUSED;
}

/* On LOCK_BUSY the file stays open: it is what the holder is asked for. */
static enum lock_state try_lock(struct sl_start_lock *lock, struct sl_err *err) {
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct stat sb;
    if (lock->fd < 0)
        lock->fd = open(lock->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (lock->fd < 0 || fstat(lock->fd, &sb) != 0)
        return refuse(lock, strerror(errno), err);
    if (!is_lock_file(&sb))
        return refuse(lock, "there is another file of that name", err);
    if (fcntl(lock->fd, F_SETLK, &all) != 0)
        return errno == EAGAIN || errno == EACCES ? LOCK_BUSY : refuse(lock, strerror(errno), err);
    if (has_name(lock, &sb))
        return LOCK_HELD;
    close(lock->fd); /* whoever had it has removed it */
    lock->fd = -1;
    return LOCK_BUSY;
}

enum sl_status sl_start_lock_take(struct sl_start_lock *lock, const char *socket_path,
                                  struct sl_err *err) {
    const struct timespec pause = {0, SL_INTERRUPT_POLL_MS * 1000000};
    uint64_t until_ns = sl_now_ns() + WAIT_NS;
    enum lock_state state;
    char who[64];
    lock->fd = -1;
    snprintf(lock->path, sizeof lock->path, "%s" SUFFIX, socket_path);
    while ((state = try_lock(lock, err)) == LOCK_BUSY) {
        enum sl_status status = SL_OK;
        if (sl_interrupt_pending())
            status = sl_fail(err, SL_ERR_CANCELED, "stopped while waiting for %s", lock->path);
        else if (sl_now_ns() >= until_ns)
            status = sl_fail(
                err, SL_ERR_CONFIG,
                "--unix-socket %s: %s has held its lock %s for %u seconds; end it, or choose "
                "another path",
                socket_path,
                lock->fd >= 0 ? lock_holder(lock->fd, who, sizeof who) : "another start",
                lock->path, (unsigned)(WAIT_NS / 1000000000u));
        if (status != SL_OK) {
            drop(lock);
            return status;
        }
        nanosleep(&pause, NULL);
    }
    if (state == LOCK_HELD)
        return SL_OK;
    drop(lock);
    return SL_ERR_CONFIG;
}

void sl_start_lock_release(struct sl_start_lock *lock) {
    struct stat sb;
    /* Removed while it is held: who waits for it sees that the name is gone. */
    if (lock->fd >= 0 && fstat(lock->fd, &sb) == 0 && has_name(lock, &sb))
        unlink(lock->path);
    drop(lock);
}
