#include "engine/reads/model_files.h"

#include "common/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct sl_reader_config sl_model_reader_config(const struct sl_engine_config *config) {
    static const enum sl_io_kind kinds[] = {[SL_EXPERTS_IO_AUTO] = SL_IO_AUTO,
                                            [SL_EXPERTS_IO_URING] = SL_IO_URING,
                                            [SL_EXPERTS_IO_PREAD] = SL_IO_PREAD};
    return (struct sl_reader_config){.kind = kinds[config->io], .buffered = config->io_buffered};
}

/* The path of a model's file in a mirror: the mirror itself, or the file of that name in its
 * folder. */
static bool mirror_path(const char *mirror, const char *path, uint32_t n_files, char *out,
                        size_t size) {
    size_t n = strlen(mirror);
    const char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
    bool one_file = n >= 5 && strcmp(mirror + n - 5, ".gguf") == 0;
    if (one_file && n_files == 1)
        return snprintf(out, size, "%s", mirror) < (int)size;
    if (one_file) { /* any part names its folder */
        const char *end = strrchr(mirror, '/');
        n = end ? (size_t)(end - mirror) : 0;
        if (!end)
            return snprintf(out, size, "%s", name) < (int)size;
    }
    return snprintf(out, size, "%.*s/%s", (int)n, mirror, name) < (int)size;
}

static void add_mirrors(struct sl_reader *reader, const struct sl_engine_config *c,
                        const struct sl_gguf *gguf) {
    char path[4096];
    for (uint32_t m = 0; m < c->n_mirrors; m++)
        for (uint32_t i = 0; i < sl_gguf_n_files(gguf); i++) {
            struct sl_err why;
            if (!mirror_path(c->mirrors[m], sl_gguf_file_path(gguf, i), sl_gguf_n_files(gguf), path,
                             sizeof path))
                sl_fail(&why, SL_ERR_CONFIG, "%s: too long a path", c->mirrors[m]);
            else if (sl_reader_add_mirror(reader, i, path, &why) == SL_OK)
                continue;
            sl_warn("the mirror is not used: %s", why.text);
        }
}

enum sl_status sl_model_files_check_mirrors(const struct sl_gguf *gguf,
                                            const struct sl_engine_config *c, struct sl_err *err) {
    char path[4096];
    for (uint32_t m = 0; m < c->n_mirrors; m++)
        for (uint32_t i = 0; i < sl_gguf_n_files(gguf); i++) {
            struct stat about;
            const char *mirror = c->mirrors[m];
            if (!mirror_path(mirror, sl_gguf_file_path(gguf, i), sl_gguf_n_files(gguf), path,
                             sizeof path))
                return sl_fail(err, SL_ERR_CONFIG, "--mirror %s: too long a path", mirror);
            if (stat(path, &about) != 0)
                return sl_fail(err, SL_ERR_IO, "--mirror %s: %s: %s", mirror, path,
                               strerror(errno));
            if ((uint64_t)about.st_size != sl_gguf_file_bytes(gguf, i) && !S_ISBLK(about.st_mode))
                return sl_fail(err, SL_ERR_CORRUPT,
                               "--mirror %s: %s has %" PRIu64 " bytes, the model's file %" PRIu64
                               ": it is no copy",
                               mirror, path, (uint64_t)about.st_size, sl_gguf_file_bytes(gguf, i));
        }
    return SL_OK;
}

enum sl_status sl_model_files_add(struct sl_reader *reader, const struct sl_engine_config *c,
                                  const struct sl_gguf *gguf, struct sl_err *err) {
    enum sl_status status = SL_OK;
    for (uint32_t i = 0; i < sl_gguf_n_files(gguf) && status == SL_OK; i++) {
        uint32_t file;
        const char *path = sl_gguf_file_path(gguf, i);
        status = sl_reader_add_file(reader, path, &file, err);
        if (status == SL_OK && sl_reader_file_bytes(reader, file) != sl_gguf_file_bytes(gguf, i))
            status =
                sl_fail(err, SL_ERR_CORRUPT,
                        "%s: has %" PRIu64 " bytes and had %" PRIu64 " a moment ago: is it still "
                        "being written?",
                        path, sl_reader_file_bytes(reader, file), sl_gguf_file_bytes(gguf, i));
    }
    if (status == SL_OK)
        add_mirrors(reader, c, gguf);
    return status;
}

enum sl_status sl_model_files_open(const struct sl_gguf *gguf, const struct sl_engine_config *c,
                                   const struct sl_reader_config *queue,
                                   struct sl_reader **out_reader, struct sl_err *err) {
    if (c->reader_source)
        return c->reader_source->open(c->reader_source, queue, out_reader, err);
    struct sl_reader *reader;
    SL_TRY(sl_reader_open(queue, &reader, err));
    enum sl_status status = sl_model_files_add(reader, c, gguf, err);
    if (status == SL_OK)
        *out_reader = reader;
    else
        sl_reader_close(&reader);
    return status;
}

/* A writer changes a file's time before its bytes, so a file that is as it was after a read was so
 * during it. */
enum sl_status sl_file_watch_look(struct sl_file_watch *w, struct sl_reader *reader,
                                  struct sl_err *err) {
    struct sl_reader_stats stats;
    sl_reader_get_stats(reader, &stats);
    uint64_t ended = stats.reads + stats.failed;
    if (ended == w->seen_ended && stats.changed_copies == w->seen_changed)
        return SL_OK;
    if (sl_reader_check_files(reader, err) != SL_OK)
        return SL_ERR_CORRUPT;
    sl_reader_get_stats(reader, &stats);
    w->seen_ended = ended;
    if (stats.changed_copies == w->seen_changed)
        return SL_OK;
    w->seen_changed = stats.changed_copies;
    return SL_AGAIN;
}
