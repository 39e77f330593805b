/* Recorded ops, between the front end, which keeps and fuses them, and backends, which make graphs.
 *
 * record.c keeps what is submitted between sl_device_record() and sl_device_recorded(), op by op.
 * fuse.c then looks for ops that follow one another as the layer loop submits them for a few
 * generated rows, and marks each sequence for which the device has a fused form. A backend's
 * graph_create() gets the list and calls sl_recorded_submit(), which calls the backend's own
 * entries in order: fused_NAME where a form was found, else the op's. */
#ifndef SL_BACKENDS_RECORDED_H
#define SL_BACKENDS_RECORDED_H

#include "backends/backend_table.h"
#include "backends/ops/all.h"

/* A copy on SL_QUEUE_OPS. */
struct sl_op_copy {
    struct sl_span dst, src;
};

struct sl_recorded_op {
    uint16_t kind;  /* enum sl_op, or SL_RECORDED_COPY */
    uint16_t fused; /* enum sl_fused that begins here; SL_FUSED_COUNT: none */
    uint16_t n;     /* ops of that form; 1 if there is none, 0 within one */
    uint16_t tally; /* the tally that counts it */
    union {
#define SL_OP(name) struct sl_op_##name name;
#include "backends/ops.def"
        struct sl_op_copy copy;
    } u;
};
#define SL_RECORDED_COPY ((uint16_t)SL_OP_COUNT)

/* Fused forms (fused.def). In all of them the rows are generated ones, and what the ops have in
 * common (buffers, rows, widths) agrees; a backend's takes_NAME says what it can do beyond that.
 * The arguments are borrowed until the call returns.
 *
 * norm_router: rms_norm of contiguous rows to another buffer; one matrix times that, without add;
 * router of these logits. */
struct sl_fused_norm_router {
    const struct sl_op_rms_norm *norm;
    const struct sl_op_matmul *logits;
    const struct sl_op_router *router;
};
/* rms_norm as above, and the products of its result. */
struct sl_fused_norm_matmul {
    const struct sl_op_rms_norm *norm;
    const struct sl_op_matmul *matmul;
};
/* Norms of all heads of q and of k in place, or neither (NULL); rope of q and of k, contiguous,
 * with one table; kv_write of that k. */
struct sl_fused_qkv {
    const struct sl_op_rms_norm *q_norm, *k_norm;
    const struct sl_op_rope *q_rope, *k_rope;
    const struct sl_op_kv_write *write;
};
/* moe of all pairs, and their sum. */
struct sl_fused_moe_sum {
    const struct sl_op_moe *moe;
    const struct sl_op_moe_combine *sum;
};

/* Passes ops [n] to the device's entries, in order, with fused forms where they were marked. */
enum sl_status sl_recorded_submit(struct sl_device *d, const struct sl_recorded_op *ops,
                                  uint32_t n) SL_MUST_CHECK;

/* record.c, for the front end: keeps an op. */
enum sl_status sl_record_keep(struct sl_device *d, uint16_t kind, const void *args,
                              size_t args_bytes) SL_MUST_CHECK;
/* Frees d->recorded. */
void sl_record_release(struct sl_device *d);

/* fuse.c: marks the forms among ops [n] that the device has and takes. */
void sl_fuse(const struct sl_device *d, struct sl_recorded_op *ops, uint32_t n);
/* Calls the form that begins at op. */
enum sl_status sl_fuse_submit(struct sl_device *d, const struct sl_recorded_op *op) SL_MUST_CHECK;

#endif
