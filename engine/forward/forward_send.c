/* Sends the rows' hidden states to the next slice: many rows by a copy that the next slice makes, a
 * few generated rows by ops that are part of both slices' graphs. */
#include "engine/forward/forward_internal.h"
#include "backends/ops/transfer.h"

#include <string.h>

static size_t rows_bytes(const struct sl_forward *f, uint32_t n_rows) {
    return (size_t)n_rows * sl_row_elems(f->hp) * sizeof(float);
}

static size_t micro_batch_elems(const struct sl_forward *f) {
    return (size_t)f->plan->config.batch_tokens * sl_row_elems(f->hp);
}

struct sl_span sl_forward_x(const struct sl_forward *f, uint32_t n_rows) {
    return sl_span_at(f->arena, f->a.x, rows_bytes(f, n_rows));
}

const float *sl_forward_sent_host(const struct sl_forward *f, uint32_t micro_batch) {
    if (f->host_sent)
        return f->host_sent + micro_batch * micro_batch_elems(f);
    return f->plan->reads_back ? NULL : f->a.sent + micro_batch * micro_batch_elems(f);
}

struct sl_span sl_forward_sent(const struct sl_forward *f, uint32_t micro_batch, uint32_t n_rows) {
    return sl_span_at(f->arena, f->a.sent + micro_batch * micro_batch_elems(f),
                      rows_bytes(f, n_rows));
}

float *sl_forward_come_host(const struct sl_forward *f, uint32_t micro_batch) {
    return f->host_come ? f->host_come + micro_batch * micro_batch_elems(f) : NULL;
}

enum sl_status sl_forward_copy_in(struct sl_forward *f, uint32_t micro_batch, uint32_t n_rows) {
    struct sl_span to = sl_forward_x(f, n_rows);
    return sl_device_copy(
        f->dev, SL_QUEUE_OPS, to,
        sl_span_at_host(f->mapped, sl_forward_come_host(f, micro_batch), to.bytes));
}

enum sl_status sl_forward_copy_out(struct sl_forward *f) {
    uint32_t micro_batch = f->step.micro_batch, n = f->step.n_rows;
    if (f->host_sent)
        return sl_forward_copy_back(f, f->host_sent + micro_batch * micro_batch_elems(f), f->a.x,
                                    rows_bytes(f, n));
    if (f->plan->reads_back)
        return sl_device_copy(f->dev, SL_QUEUE_OPS, sl_forward_sent(f, micro_batch, n),
                              sl_forward_x(f, n));
    /* It computes where the host reads, at once. */
    memcpy(f->a.sent + micro_batch * micro_batch_elems(f), f->a.x, rows_bytes(f, n));
    return SL_OK;
}

bool sl_forward_is_brief(const struct sl_forward *f) {
    return sl_forward_wants_graph(f) && !f->routes; /* they are recorded in order */
}

/* ---- by ops ---- */

enum sl_status sl_forward_init_seqno(struct sl_forward *f, struct sl_err *err) {
    uint32_t none[SL_MAX_STAGES] = {0};
    if (!f->host_released)
        return SL_OK;
    enum sl_status status =
        sl_forward_upload(f, f->a.raised, none, f->plan->n_micro_batches * sizeof *f->a.raised);
    if (status == SL_OK)
        status = sl_device_sync(f->dev);
    return status == SL_OK
               ? SL_OK
               : sl_fail(err, status, "preparing to receive rows: %s", sl_status_text(status));
}

void sl_forward_link(struct sl_forward *f, struct sl_forward *next) {
    f->next = next;
}

/* The next slice is told with the step (sl_step.received). Recorded routes are written in order. */
static bool goes_by_op(const struct sl_forward *f, const struct sl_step *s) {
    return !f->routes && sl_forward_is_few(s, SL_FORWARD_MAX_SENT);
}

bool sl_forward_sends(const struct sl_forward *f) {
    return f->next && goes_by_op(f, &f->step);
}

uint32_t sl_forward_seqno(const struct sl_forward *f, uint32_t micro_batch) {
    return f->seqno[micro_batch];
}

void sl_forward_release(struct sl_forward *f, uint32_t micro_batch) {
    atomic_store(&f->next->host_released[micro_batch], f->seqno[micro_batch]);
}

/* A step that is started again gets a new sequence number, so that rows of its first run are not
 * taken for its own. */
void sl_forward_begin_seqno(struct sl_forward *f) {
    uint32_t micro_batch = f->step.micro_batch, *seqno = f->step.seqno;
    seqno[SL_STEP_CHANNEL] = micro_batch;
    if (sl_forward_sends(f))
        seqno[SL_STEP_SENDS] = ++f->seqno[micro_batch];
}

/* Where experts are copied, the sender may wait for copies that are relayed by this device. */
enum sl_status sl_forward_receive(struct sl_forward *f, const struct sl_place *where) {
    const struct sl_activations *a = &f->a;
    const uint32_t *seqno = f->on_device.seqno;
    SL_FORWARD_TRY(
        "receiving rows",
        sl_op_receive(f->dev, &(struct sl_op_receive){.from = a->received,
                                                      .x = a->x,
                                                      .raised = a->raised,
                                                      .released = f->released,
                                                      .channel = seqno + SL_STEP_CHANNEL,
                                                      .seqno = seqno + SL_STEP_RECEIVES,
                                                      .n = f->step.n_rows * sl_row_elems(f->hp),
                                                      .stride = sl_forward_received_elems(f->hp),
                                                      .alone = !f->fetch}));
    return SL_OK;
}

enum sl_status sl_forward_send(struct sl_forward *f, const struct sl_place *where) {
    const struct sl_activations *to = &f->next->a;
    const uint32_t *seqno = f->on_device.seqno;
    SL_FORWARD_TRY(
        "sending rows",
        sl_op_send(f->dev, &(struct sl_op_send){.x = f->a.x,
                                                .to = to->received,
                                                .raised = to->raised,
                                                .channel = seqno + SL_STEP_CHANNEL,
                                                .seqno = seqno + SL_STEP_SENDS,
                                                .n = f->step.n_rows * sl_row_elems(f->hp),
                                                .stride = sl_forward_received_elems(f->hp)}));
    return SL_OK;
}
