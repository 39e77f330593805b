#include "engine/trace/route_recorder.h"

#include "common/log.h"
#include "common/output.h"
#include "engine/step/step.h"
#include "expert_cache/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct sl_route_recorder {
    FILE *file; /* NULL: a write has failed */
    int fd;     /* of the same file, to cut it; -1: a pipe or device */
    struct sl_trace_shape shape;
};

/* Half a record at the end would make all of them unreadable. */
static void keep_whole_records(const struct sl_route_recorder *r) {
    struct stat about;
    if (r->fd < 0 || fstat(r->fd, &about) != 0 || about.st_size < SL_TRACE_HEADER_BYTES)
        return;
    off_t each = (off_t)sl_trace_record_bytes(&r->shape);
    off_t part = (about.st_size - (off_t)SL_TRACE_HEADER_BYTES) % each;
    if (part && ftruncate(r->fd, about.st_size - part) != 0)
        sl_warn("the recorded routes end within a record: %s", strerror(errno));
}

static void give_up(struct sl_route_recorder *r) {
    sl_warn("recording of routes ends: the file cannot be written: %s", strerror(errno));
    fclose(r->file);
    r->file = NULL;
    keep_whole_records(r);
}

static bool is_recording(int fd, uint64_t size_bytes, const void *ctx) {
    (void)size_bytes;
    (void)ctx;
    return sl_file_has(fd, 0, SL_TRACE_MARK, sizeof SL_TRACE_MARK - 1);
}

static enum sl_status open_file(struct sl_route_recorder *r, const char *path, struct sl_err *err) {
    struct sl_output out;
    struct sl_err why;
    if (sl_output_open(path, 0666, is_recording, NULL, &out, &why) != SL_OK)
        return sl_fail(err, SL_ERR_IO, "--record-routes %s", why.text);
    r->fd = out.regular ? fcntl(out.fd, F_DUPFD_CLOEXEC, 0) : -1;
    r->file = fdopen(out.fd, "wb");
    if (r->file)
        return SL_OK;
    close(out.fd);
    return sl_fail(err, SL_ERR_NOMEM, "no memory for the recording of routes");
}

enum sl_status sl_route_recorder_open(const char *path, const struct sl_model *model,
                                      struct sl_route_recorder **out, struct sl_err *err) {
    const struct sl_hparams *hp = &model->hp;
    if (!hp->n_expert)
        return sl_fail(err, SL_ERR_CONFIG, "routes cannot be recorded: the model has no experts");
    for (uint32_t l = 0; l < hp->n_layer; l++)
        if (model->layers[l].spec.ffn == SL_FFN_EXPERTS &&
            model->layers[l].spec.experts.n_used != hp->n_expert_used)
            return sl_fail(err, SL_ERR_UNSUPPORTED,
                           "routes cannot be recorded: a row uses %u experts in layer %u and %u in "
                           "others, and a recording has one number for all",
                           model->layers[l].spec.experts.n_used, hp->first_layer + l,
                           hp->n_expert_used);
    struct sl_route_recorder *r = calloc(1, sizeof *r);
    if (!r)
        return sl_fail(err, SL_ERR_NOMEM, "out of memory");
    r->fd = -1;
    r->shape = (struct sl_trace_shape){.fingerprint = sl_model_fingerprint(model),
                                       .n_layer = hp->n_layer,
                                       .n_expert = hp->n_expert,
                                       .k = hp->n_expert_used};
    uint8_t header[SL_TRACE_HEADER_BYTES];
    enum sl_status status = sl_trace_write_header(&r->shape, header, err);
    if (status == SL_OK)
        status = open_file(r, path, err);
    /* At once, so that a process that dies leaves a file that the next one knows for its own. */
    if (status == SL_OK && (fwrite(header, sizeof header, 1, r->file) != 1 || fflush(r->file) != 0))
        status = sl_fail(err, SL_ERR_IO, "--record-routes %s: cannot be written: %s", path,
                         strerror(errno));
    if (status != SL_OK) {
        if (r->file)
            fclose(r->file);
        if (r->fd >= 0)
            close(r->fd);
        free(r);
        return status;
    }
    *out = r;
    return SL_OK;
}

void sl_route_recorder_close(struct sl_route_recorder **pr) {
    struct sl_route_recorder *r = *pr;
    if (!r)
        return;
    if (r->file && fclose(r->file)) {
        sl_warn("the recorded routes are not complete: %s", strerror(errno));
        keep_whole_records(r);
    }
    if (r->fd >= 0)
        close(r->fd);
    free(r);
    *pr = NULL;
}

void sl_route_recorder_layer(struct sl_route_recorder *r, const struct sl_step *step,
                             uint32_t layer, uint32_t n_rows, const uint32_t *rows,
                             const uint32_t *ids) {
    uint8_t bytes[SL_TRACE_RECORD_BYTES];
    uint32_t k = r->shape.k;
    for (uint32_t i = 0; r->file && i < n_rows; i++) {
        uint32_t row = rows ? rows[i] : i;
        struct sl_trace_record rec = {.sequence = step->row_seq[row],
                                      .position_tokens = (uint32_t)step->pos[row],
                                      .layer = (uint16_t)layer,
                                      .first_of_step = i == 0,
                                      .phase = row < step->n_decode ? SL_PHASE_DECODE
                                                                    : SL_PHASE_PREFILL};
        for (uint32_t j = 0; j < k; j++)
            rec.ids[j] = (uint16_t)ids[(size_t)i * k + j];
        size_t n = sl_trace_write(&r->shape, &rec, bytes);
        if (fwrite(bytes, n, 1, r->file) != 1)
            give_up(r);
    }
}
