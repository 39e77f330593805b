/* Keeping ops while they are recorded, handing them to the backend, and counting what became of
 * them. */
#include "backends/recorded.h"
#include "common/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM 64u

struct sl_recording {
    struct sl_recorded_op *op;
    uint32_t n, room;
    struct sl_tally tally[SL_MAX_TALLIES];
    uint32_t n_tallies, at; /* the tally that ops are counted in now */
    bool counts;            /* the graph is being made */
};

#define OTHER "other"

static struct sl_recording *recording(struct sl_device *d) {
    if (!d->recorded)
        d->recorded = calloc(1, sizeof *d->recorded);
    return d->recorded;
}

void sl_record_release(struct sl_device *d) {
    if (d->recorded)
        free(d->recorded->op);
    free(d->recorded);
    d->recorded = NULL;
}

/* The tally of a kind; the last one is for all that there is no room for. */
static uint32_t tally_of(struct sl_recording *r, const char *kind) {
    for (uint32_t i = 0; i < r->n_tallies; i++)
        if (strcmp(r->tally[i].kind, kind) == 0)
            return i;
    if (r->n_tallies == SL_MAX_TALLIES)
        return SL_MAX_TALLIES - 1;
    if (r->n_tallies == SL_MAX_TALLIES - 1)
        kind = OTHER;
    struct sl_tally *t = &r->tally[r->n_tallies];
    *t = (struct sl_tally){0};
    snprintf(t->kind, sizeof t->kind, "%s", kind);
    return r->n_tallies++;
}

enum sl_status sl_record_keep(struct sl_device *d, uint16_t kind, const void *args,
                              size_t args_bytes) {
    struct sl_recording *r = d->recorded;
    if (r->n == r->room) {
        uint32_t room = r->room ? 2 * r->room : FIRST_ROOM;
        struct sl_recorded_op *op = realloc(r->op, room * sizeof *op);
        if (!op)
            return SL_ERR_NOMEM;
        r->op = op;
        r->room = room;
    }
    struct sl_recorded_op *op = &r->op[r->n++];
    op->kind = kind;
    op->fused = SL_FUSED_COUNT;
    op->n = 1;
    op->tally = (uint16_t)r->at;
    memcpy(&op->u, args, args_bytes);
    return SL_OK;
}

enum sl_status sl_device_record(struct sl_device *d) {
    if (d->recording) {
        sl_error("record: not while ops are recorded");
        return SL_ERR_INVALID;
    }
    if (!d->caps.graphs) {
        sl_error("record: %s keeps no graphs", d->ops->name);
        return SL_ERR_UNSUPPORTED;
    }
    struct sl_recording *r = recording(d);
    if (!r)
        return SL_ERR_NOMEM;
    r->n = 0;
    r->at = tally_of(r, OTHER);
    d->recording = true;
    return SL_OK;
}

enum sl_status sl_device_recorded(struct sl_device *d, struct sl_graph **out_graph) {
    if (!d->recording) {
        sl_error("recorded: nothing was being recorded");
        return SL_ERR_INVALID;
    }
    struct sl_recording *r = d->recorded;
    d->recording = false;
    if (!out_graph)
        return SL_OK;
    sl_fuse(d, r->op, r->n);
    for (uint32_t i = 0; i < r->n; i++) {
        r->tally[r->op[i].tally].n_ops++;
        r->tally[r->op[i].tally].n_calls += r->op[i].n > 0;
    }
    r->counts = true;
    enum sl_status status = d->ops->graph_create(d, r->op, r->n, out_graph);
    r->counts = false;
    return status;
}

static enum sl_status submit(struct sl_device *d, const struct sl_recorded_op *op) {
    if (op->fused != SL_FUSED_COUNT)
        return sl_fuse_submit(d, op);
    switch (op->kind) {
#define SL_OP(name)                                                                                \
    case SL_OP_##name:                                                                             \
        return d->ops->name(d, &op->u.name);
#include "backends/ops.def"
    case SL_RECORDED_COPY:
        return d->ops->copy(d, SL_QUEUE_OPS, op->u.copy.dst, op->u.copy.src);
    }
    return SL_ERR_INVALID;
}

enum sl_status sl_recorded_submit(struct sl_device *d, const struct sl_recorded_op *ops,
                                  uint32_t n) {
    for (uint32_t i = 0; i < n; i += ops[i].n) {
        uint64_t before = d->n_kernels;
        SL_TRY(submit(d, ops + i));
        if (d->recorded && d->recorded->counts)
            d->recorded->tally[ops[i].tally].n_kernels += d->n_kernels - before;
    }
    return SL_OK;
}

/* ---- what became of them ---- */

void sl_device_section(struct sl_device *d, const char *kind, bool begins) {
    if (!d->recording)
        return;
    struct sl_recording *r = d->recorded;
    r->at = tally_of(r, kind);
    r->tally[r->at].n += begins;
}

const struct sl_tally *sl_device_tallies(const struct sl_device *d, uint32_t *out_n) {
    *out_n = d->recorded ? d->recorded->n_tallies : 0;
    return d->recorded ? d->recorded->tally : NULL;
}

void sl_device_log_recorded(struct sl_device *d, const char *what) {
    struct sl_recording *r = d->recorded;
    for (uint32_t i = 0; r && i < r->n_tallies; i++) {
        const struct sl_tally *t = &r->tally[i];
        double n = t->n ? t->n : 1;
        char kernels[48] = "";
        if (!t->n_ops)
            continue;
        if (d->n_kernels)
            snprintf(kernels, sizeof kernels, ", %.4g kernels", (double)t->n_kernels / n);
        sl_debug("%s: %s: %u x %s: %.4g ops recorded, %.4g calls%s each", d->caps.id, what,
                 t->n ? t->n : 1, t->kind, t->n_ops / n, t->n_calls / n, kernels);
    }
    if (r)
        r->n_tallies = 0;
}
