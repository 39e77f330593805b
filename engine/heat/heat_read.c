#include "engine/heat/heat_read.h"

#include "common/clock.h"
#include "common/cond.h"
#include "common/interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_NS 5000000000u

struct heat_read {
    struct sl_heat_image image;
    char given[4096];
    uint64_t fingerprint;
    bool make_folders;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done;     /* under lock */
    bool given_up; /* likewise: nobody waits, the thread releases it */
};

static void release(struct heat_read *r) {
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    free(r->image.bytes);
    free(r);
}

/* Makes the folders that lead to path. */
static void make_folders(const char *path) {
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", path);
    for (char *at = strchr(folder + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = 0;
        mkdir(folder, 0700); /* one that is there is fine; one that cannot be made shows in open */
        *at = '/';
    }
}

/* Asks the disk whether it is a folder. */
static bool find_path(struct heat_read *r) {
    struct stat about;
    size_t n = strlen(r->given), size = sizeof r->image.path;
    bool folder =
        (n && r->given[n - 1] == '/') || (stat(r->given, &about) == 0 && S_ISDIR(about.st_mode));
    r->image.named = !folder;
    int len =
        folder ? snprintf(r->image.path, size, "%s/%016" PRIx64 ".heat", r->given, r->fingerprint)
               : snprintf(r->image.path, size, "%s", r->given);
    return len >= 0 && (size_t)len < size;
}

/* What a symbolic link names is the file, so that a save replaces that and not the link. */
static void follow_link(struct sl_heat_image *i) {
    struct stat about;
    char target[PATH_MAX];
    if (lstat(i->path, &about) != 0 || !S_ISLNK(about.st_mode))
        return;
    if (realpath(i->path, target) && strlen(target) < sizeof i->path)
        memcpy(i->path, target, strlen(target) + 1);
    else
        i->foreign = "a symbolic link to a file that is not there";
}

static void read_file(struct sl_heat_image *i) {
    struct stat about;
    follow_link(i);
    if (i->foreign)
        return;
    int fd = open(i->path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) {
        i->error = errno;
        return;
    }
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) {
        i->foreign = "not a regular file";
        close(fd);
        return;
    }
    ssize_t got = 1;
    while (got > 0 && i->have_bytes < i->size_bytes) {
        got = read(fd, i->bytes + i->have_bytes, i->size_bytes - i->have_bytes);
        if (got < 0 && errno == EINTR)
            got = 1;
        else if (got > 0)
            i->have_bytes += (size_t)got;
    }
    if (got < 0) {
        i->error = errno;
        i->have_bytes = 0;
    } else if (!sl_heat_is_image(i->bytes, i->have_bytes)) {
        i->foreign = "not a heat file: it does not start with SLHEAT";
    }
    close(fd);
}

static void read_all(struct heat_read *r) {
    if (!find_path(r)) {
        r->image.error = ENAMETOOLONG;
        return;
    }
    if (r->make_folders)
        make_folders(r->image.path);
    read_file(&r->image);
}

static void *reader_main(void *arg) {
    struct heat_read *r = arg;
    read_all(r);
    pthread_mutex_lock(&r->lock);
    r->done = true;
    bool given_up = r->given_up;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock);
    if (given_up)
        release(r);
    return NULL;
}

/* Whether the thread came to its end in time, and before the start was interrupted. Where it did
 * not, what is read is its own. */
static bool wait_read(struct heat_read *r, pthread_t thread) {
    const uint64_t poll_ns = SL_INTERRUPT_POLL_MS * (uint64_t)1000000;
    uint64_t end_ns = sl_now_ns() + READ_NS, now_ns;
    pthread_mutex_lock(&r->lock);
    while (!r->done && (now_ns = sl_now_ns()) < end_ns && !sl_interrupt_pending())
        sl_cond_wait_until(&r->changed, &r->lock,
                           now_ns + poll_ns < end_ns ? now_ns + poll_ns : end_ns);
    bool done = r->done;
    r->given_up = !done;
    if (!done)
        pthread_detach(thread);
    pthread_mutex_unlock(&r->lock);
    if (done)
        pthread_join(thread, NULL);
    return done;
}

static struct heat_read *new_read(const char *given, const struct sl_heat_config *shape,
                                  bool folders) {
    struct heat_read *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->image.size_bytes = sl_heat_image_bytes(shape);
    r->image.bytes = malloc(r->image.size_bytes);
    if (!r->image.bytes) {
        free(r);
        return NULL;
    }
    snprintf(r->given, sizeof r->given, "%s", given);
    r->fingerprint = shape->fingerprint;
    r->make_folders = folders;
    pthread_mutex_init(&r->lock, NULL);
    sl_cond_init(&r->changed);
    return r;
}

enum sl_status sl_heat_read(const char *given, const struct sl_heat_config *shape, bool folders,
                            struct sl_heat_image *out_image) {
    if (strlen(given) >= sizeof((struct heat_read *)0)->given)
        return SL_ERR_INVALID;
    struct heat_read *r = new_read(given, shape, folders);
    pthread_t thread;
    if (!r)
        return SL_ERR_NOMEM;
    if (pthread_create(&thread, NULL, reader_main, r) != 0)
        read_all(r); /* no thread was to be had */
    else if (!wait_read(r, thread))
        return sl_interrupt_pending() ? SL_ERR_CANCELED : SL_AGAIN;
    enum sl_status status = r->image.error == ENAMETOOLONG ? SL_ERR_INVALID : SL_OK;
    if (status == SL_OK) {
        *out_image = r->image;
        r->image.bytes = NULL;
    }
    release(r);
    return status;
}
