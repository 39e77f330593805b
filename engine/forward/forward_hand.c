/* What goes from slice to slice: the rows' hidden states, by a copy that the next one makes, or few
 * generated rows by ops that are part of both slices' graphs. */
#include "engine/forward/forward_internal.h"

#include <string.h>

static size_t rows_bytes(const struct sl_forward *f, uint32_t n_rows) {
    return (size_t)n_rows * f->hp->n_embd * sizeof(float);
}

static size_t lane_elems(const struct sl_forward *f) {
    return (size_t)f->plan->config.batch_tokens * f->hp->n_embd;
}

struct sl_span sl_forward_x(const struct sl_forward *f, uint32_t n_rows) {
    return sl_span_at(f->arena, f->a.x, rows_bytes(f, n_rows));
}

const float *sl_forward_handed_host(const struct sl_forward *f, uint32_t lane) {
    if (f->host_handed)
        return f->host_handed + lane * lane_elems(f);
    return f->plan->reads_back ? NULL : f->a.handed + lane * lane_elems(f);
}

struct sl_span sl_forward_handed(const struct sl_forward *f, uint32_t lane, uint32_t n_rows) {
    return sl_span_at(f->arena, f->a.handed + lane * lane_elems(f), rows_bytes(f, n_rows));
}

enum sl_status sl_forward_hand_over(struct sl_forward *f) {
    uint32_t lane = f->step.lane, n = f->step.n_rows;
    if (f->host_handed)
        return sl_forward_copy_back(f, f->host_handed + lane * lane_elems(f), f->a.x,
                                    rows_bytes(f, n));
    if (f->plan->reads_back)
        return sl_device_copy(f->dev, SL_QUEUE_OPS, sl_forward_handed(f, lane, n),
                              sl_forward_x(f, n));
    /* It computes where the host reads, at once. */
    memcpy(f->a.handed + lane * lane_elems(f), f->a.x, rows_bytes(f, n));
    return SL_OK;
}

bool sl_forward_is_brief(const struct sl_forward *f) {
    return sl_forward_wants_graph(f) && !f->routes; /* they are recorded in order */
}

/* ---- by ops ---- */

enum sl_status sl_forward_init_turns(struct sl_forward *f, struct sl_err *err) {
    uint32_t none[SL_MAX_STAGES] = {0};
    if (!f->host_released)
        return SL_OK;
    enum sl_status st =
        sl_forward_upload(f, f->a.raised, none, sl_plan_lanes(f->plan) * sizeof *f->a.raised);
    if (st == SL_OK)
        st = sl_device_sync(f->dev);
    return st == SL_OK ? SL_OK
                       : sl_fail(err, st, "preparing to take rows over: %s", sl_status_text(st));
}

void sl_forward_link(struct sl_forward *f, struct sl_forward *next) {
    f->next = next;
}

/* The next slice is told with the step (sl_step.taken). Recorded routes are written in order. */
static bool goes_by_op(const struct sl_forward *f, const struct sl_step *s) {
    return !f->routes && sl_forward_is_few(s);
}

bool sl_forward_hands(const struct sl_forward *f) {
    return f->next && goes_by_op(f, &f->step);
}

uint32_t sl_forward_turn(const struct sl_forward *f, uint32_t lane) {
    return f->turn[lane];
}

void sl_forward_release(struct sl_forward *f, uint32_t lane) {
    atomic_store(&f->next->host_released[lane], f->turn[lane]);
}

/* A step that is started again has a turn of its own: what came of the one before is not it. */
void sl_forward_begin_turn(struct sl_forward *f) {
    uint32_t lane = f->step.lane, *turn = f->step.turn;
    turn[SL_STEP_LANE] = lane;
    if (sl_forward_hands(f))
        turn[SL_STEP_HANDS] = ++f->turn[lane];
}

/* Where experts are copied, the one that hands may wait for copies by way of this device. */
enum sl_status sl_forward_take(struct sl_forward *f, const struct sl_place *where) {
    const struct sl_activations *a = &f->a;
    const uint32_t *turn = f->on_device.turn;
    SL_FORWARD_TRY("taking over",
                   sl_op_take(f->dev, &(struct sl_op_take){.from = a->taken,
                                                           .x = a->x,
                                                           .raised = a->raised,
                                                           .released = f->released,
                                                           .lane = turn + SL_STEP_LANE,
                                                           .turn = turn + SL_STEP_TAKES,
                                                           .n = f->step.n_rows * f->hp->n_embd,
                                                           .stride = sl_forward_taken_elems(f->hp),
                                                           .alone = !f->fetch}));
    return SL_OK;
}

enum sl_status sl_forward_hand(struct sl_forward *f, const struct sl_place *where) {
    const struct sl_activations *to = &f->next->a;
    const uint32_t *turn = f->on_device.turn;
    SL_FORWARD_TRY(
        "handing over",
        sl_op_hand(f->dev, &(struct sl_op_hand){.x = f->a.x,
                                                .to = to->taken,
                                                .raised = to->raised,
                                                .lane = turn + SL_STEP_LANE,
                                                .turn = turn + SL_STEP_HANDS,
                                                .n = f->step.n_rows * f->hp->n_embd,
                                                .stride = sl_forward_taken_elems(f->hp)}));
    return SL_OK;
}
