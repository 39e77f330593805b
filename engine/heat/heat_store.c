#include "engine/heat/heat_store.h"

#include "common/clock.h"
#include "common/cond.h"
#include "common/log.h"
#include "engine/heat/heat_read.h"
#include "engine/heat/heat_write.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long the last save and closing together wait for the disk. A disk that hangs is then
 * abandoned. */
#define END_NS 5000000000u

struct sl_heat_store {
    struct sl_heat *heat;
    char path[4096]; /* "" = heat is not kept */
    size_t image_bytes;
    uint64_t saved_version; /* sum of the layers' when it was saved */
    pthread_t writer;       /* started at the first save */
    bool has_writer;
    uint64_t end_ns; /* when the end stops waiting; 0 = it has not begun */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_bool busy; /* the image is the writer's; written under lock */
    bool quit;        /* under lock */
    bool given_up;    /* likewise: nobody else has it any more, its writer releases it */
    uint8_t *image;   /* whoever saves */
    bool failed;      /* likewise: warned already */
    bool swept;       /* likewise: what others left beside it is gone */
};

static void release(struct sl_heat_store *s) {
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s->image);
    free(s);
}

static uint64_t version_of(const struct sl_heat *heat) {
    uint64_t sum = 0;
    for (uint32_t l = 0; l < sl_heat_config(heat)->n_layer; l++)
        sum += sl_heat_version(heat, l);
    return sum;
}

/* Loads the image into heat if it fits; if not, a warning says why. */
static void take_over(const struct sl_heat_image *i, struct sl_heat *heat) {
    struct sl_err why;
    if (i->error == ENOENT)
        return;
    if (i->foreign)
        sl_warn("%s: %s; it stays as it is", i->path, i->foreign);
    else if (i->error)
        sl_warn("%s: the heat file cannot be read, starting cold: %s", i->path, strerror(i->error));
    else if (sl_heat_import(heat, i->bytes, i->have_bytes, &why) != SL_OK)
        sl_warn("%s: not used, starting cold: %s", i->path, why.text);
    else
        sl_debug("%s: heat of an earlier run taken over", i->path);
}

static void warn_silent(const char *path) {
    sl_warn("the disk under %s does not answer: starting cold, and heat is not kept until the next "
            "start",
            path);
}

/* SL_ERR_NOMEM, or SL_OK: with image->bytes, or NULL after a warning if heat cannot be kept there.
 */
static enum sl_status read_image(const char *path, const struct sl_heat *heat, bool make_folders,
                                 struct sl_heat_image *image) {
    *image = (struct sl_heat_image){.bytes = NULL};
    enum sl_status status = sl_heat_read(path, sl_heat_config(heat), make_folders, image);
    if (status == SL_AGAIN)
        warn_silent(path);
    else if (status == SL_ERR_INVALID)
        sl_warn("the heat file's path is too long: heat is not kept");
    return status == SL_ERR_NOMEM ? status : SL_OK;
}

enum sl_status sl_heat_store_open(const char *path, struct sl_heat *heat,
                                  struct sl_heat_store **out_store, struct sl_err *err) {
    struct sl_heat_store *s = calloc(1, sizeof *s);
    struct sl_heat_image image;
    if (!s || read_image(path, heat, true, &image) != SL_OK) {
        free(s);
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the heat file");
    }
    if (image.foreign && image.named) {
        free(image.bytes);
        free(s);
        return sl_fail(err, SL_ERR_CONFIG,
                       "--heat-file %s: %s; it was left as it is: name another file, a folder, or "
                       "off",
                       image.path, image.foreign);
    }
    s->heat = heat;
    s->image = image.bytes;
    s->image_bytes = image.size_bytes;
    pthread_mutex_init(&s->lock, NULL);
    sl_cond_init(&s->changed);
    atomic_init(&s->busy, false);
    if (s->image)
        take_over(&image, heat);
    if (s->image && !image.foreign)
        memcpy(s->path, image.path, sizeof s->path);
    s->saved_version = version_of(heat);
    *out_store = s;
    return SL_OK;
}

void sl_heat_store_peek(const char *path, struct sl_heat *heat) {
    struct sl_heat_image image;
    if (read_image(path, heat, false, &image) == SL_OK && image.bytes)
        take_over(&image, heat);
    free(image.bytes);
}

enum sl_status sl_heat_store_ask(const char *path, struct sl_heat *heat) {
    struct sl_heat_image image = {.bytes = NULL};
    struct sl_err why;
    enum sl_status status = sl_heat_read(path, sl_heat_config(heat), false, &image);
    if (status == SL_AGAIN)
        warn_silent(path);
    if (status == SL_OK)
        status = image.error || image.foreign
                     ? SL_ERR_IO
                     : sl_heat_import(heat, image.bytes, image.have_bytes, &why);
    free(image.bytes);
    return status;
}

static void write_file(struct sl_heat_store *s) {
    char text[256];
    if (!s->swept)
        sl_heat_sweep(s->path);
    s->swept = true;
    const char *why = sl_heat_write(s->path, s->image, s->image_bytes, text);
    if (why && !s->failed)
        sl_warn("%s: the heat file cannot be written, the next start will be cold: %s", s->path,
                why);
    s->failed = why != NULL;
}

static void *writer_main(void *arg) {
    struct sl_heat_store *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!atomic_load(&s->busy) && !s->quit)
            pthread_cond_wait(&s->changed, &s->lock);
        if (!atomic_load(&s->busy))
            break;
        pthread_mutex_unlock(&s->lock);
        write_file(s);
        pthread_mutex_lock(&s->lock);
        atomic_store(&s->busy, false);
        pthread_cond_broadcast(&s->changed);
    }
    bool given_up = s->given_up;
    pthread_mutex_unlock(&s->lock);
    if (given_up)
        release(s);
    return NULL;
}

/* Under the lock: waits until nothing is being written, but no longer than the end may take. */
static bool wait_written(struct sl_heat_store *s) {
    if (!s->end_ns)
        s->end_ns = sl_now_ns() + END_NS;
    while (atomic_load(&s->busy) && sl_now_ns() < s->end_ns)
        sl_cond_wait_until(&s->changed, &s->lock, s->end_ns);
    return !atomic_load(&s->busy);
}

bool sl_heat_store_unsaved(const struct sl_heat_store *s) {
    return s->path[0] && version_of(s->heat) != s->saved_version;
}

void sl_heat_store_save(struct sl_heat_store *s) {
    if (!sl_heat_store_unsaved(s) || atomic_load(&s->busy))
        return;
    if (!s->has_writer) {
        s->has_writer = pthread_create(&s->writer, NULL, writer_main, s) == 0;
        if (!s->has_writer)
            return; /* the last save does without */
        pthread_setname_np(s->writer, "sl-heat");
    }
    s->saved_version = version_of(s->heat);
    sl_heat_export(s->heat, s->image);
    pthread_mutex_lock(&s->lock);
    atomic_store(&s->busy, true);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void sl_heat_store_save_now(struct sl_heat_store *s) {
    pthread_mutex_lock(&s->lock);
    bool written = wait_written(s);
    pthread_mutex_unlock(&s->lock);
    if (!written)
        return;
    sl_heat_store_save(s);
    if (sl_heat_store_unsaved(s)) { /* no thread was to be had */
        s->saved_version = version_of(s->heat);
        sl_heat_export(s->heat, s->image);
        write_file(s);
        return;
    }
    pthread_mutex_lock(&s->lock);
    wait_written(s);
    pthread_mutex_unlock(&s->lock);
}

/* Whether the writer has finished. If not, the disk hangs: the writer now owns the store, and
 * releases it if the disk ever answers. */
static bool end_writer(struct sl_heat_store *s) {
    pthread_mutex_lock(&s->lock);
    s->quit = true;
    pthread_cond_broadcast(&s->changed);
    bool ends = wait_written(s);
    s->given_up = !ends;
    if (!ends) {
        pthread_detach(s->writer);
        sl_warn("the disk under %s does not answer: it is waited for no longer, and the next start "
                "has the heat of the last save that it took",
                s->path);
    }
    pthread_mutex_unlock(&s->lock);
    if (ends)
        pthread_join(s->writer, NULL);
    return ends;
}

void sl_heat_store_close(struct sl_heat_store **ps) {
    struct sl_heat_store *s = *ps;
    *ps = NULL;
    if (!s || (s->has_writer && !end_writer(s)))
        return;
    release(s);
}
