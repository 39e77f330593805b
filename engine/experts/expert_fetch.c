#include "engine/experts/expert_fetch_internal.h"

#include "common/metrics.h"

#include <assert.h>
#include <string.h>

/* Pairs and bytes of one call while reads are under way: between two calls the queue is refilled,
 * and it holds work for some twenty milliseconds, for two where only look-ahead fills it. */
#define BUSY_PAIRS 1024u
#define BUSY_BYTES (64u << 20)
/* Half of the reader's queue is work for the disk for longer than that. */
#define LONG_NS 5000000

/* ---- begin ---- */

static void learn(struct sl_fetch *f) {
    const struct sl_fetch_rows *r = &f->run.rows;
    uint32_t k = f->run.k;
    for (size_t i = 0; i < (size_t)r->n * k; i++)
        f->route_ids[i] = (uint16_t)r->ids[i];
    if (r->n_decode)
        sl_heat_route(f->heat, f->run.layer, f->route_ids, r->n_decode, k, SL_PHASE_DECODE);
    if (r->n > r->n_decode)
        sl_heat_route(f->heat, f->run.layer, f->route_ids + (size_t)r->n_decode * k,
                      r->n - r->n_decode, k, SL_PHASE_PREFILL);
}

/* Found in host slots: what the CPU computes with, and what a discrete device does not. */
static void count_hits(struct sl_fetch *f, uint32_t n) {
    f->stats.hits += n;
    f->stats.host_hits += f->tiers ? n : 0;
    if (f->tiers)
        sl_count(expert_host_hits_total, n);
    else
        sl_count(expert_hits_total, n);
}

/* Leases what is there of the wanted, and starts reading as many of the others as are useful. */
static void take(struct sl_fetch *f) {
    if (!f->run.n_wanted || f->run.n_loading >= f->run.max_loading)
        return;
    uint32_t n_fill, n_taken, room = f->run.max_loading - f->run.n_loading, n = f->run.n_wanted,
                              n_start = 0;
    enum sl_status status = sl_cache_acquire_some(f->cache, f->run.wanted, n, room, sl_fetch_now(f),
                                                  f->leases, f->new_fills, &n_fill, &n_taken);
    if (status != SL_OK)
        return; /* every slot is leased or being filled: they come back as they run */
    uint64_t bytes = f->layout->layers[f->run.layer].expert_bytes;
    bool raised = false;
    for (uint32_t i = 0; i < n_fill; i++) {
        struct sl_fill *fill = &f->new_fills[i];
        if (fill->action == SL_FILL_RAISE) {
            sl_slot_reads_raise(&f->reads, fill->lease.slot);
            raised = true;
        }
        n_start += fill->action == SL_FILL_START;
    }
    sl_slot_reads_start(&f->reads, f->new_fills, n_fill, SL_READ_DEMAND, false);
    if (raised && !n_start && !f->reads.hold)
        sl_slot_reads_submit(&f->reads);
    count_hits(f, n_taken - n_fill);
    f->stats.misses += n_start;
    f->stats.late += n_fill - n_start;
    f->stats.needed_bytes += n_fill * bytes;
    f->stats.waves += n_taken < n && n_start < room;
    if (n_start)
        sl_fetch_not_quiet(f);
    sl_count(expert_misses_total, n_start);
    sl_count(expert_late_total, n_fill - n_start);
    sl_layer_run_leased(&f->run, f->leases, n_fill);
}

void sl_fetch_begin(struct sl_fetch *f, uint32_t routed_layer, const struct sl_fetch_rows *rows) {
    assert(routed_layer < f->layout->n_layer);
    sl_layer_run_begin(&f->run, routed_layer, f->layout->layers[routed_layer].k, rows);
    f->reads.hold = false;
    f->run.max_loading = sl_fetch_queue_experts(f, routed_layer);
    if (f->reads.n)
        sl_reader_poll(f->reader); /* what was read ahead may have arrived: a hit */
    learn(f);
    if (f->tiers)
        sl_tiers_begin(f);
    sl_fetch_ahead_begin(f);
    bool held = f->reads.hold = sl_fetch_may_hold(f);
    take(f);
    sl_fetch_pace_begin(f, held);
    sl_fetch_pump(f);
    if (f->timeline)
        sl_fetch_trace_layer(f);
}

/* ---- run ---- */

static void drop_held(struct sl_fetch *f, uint32_t at) {
    sl_cache_release(f->cache, &f->run.held[at].lease, 1);
    sl_layer_run_drop(&f->run, at);
}

/* Says which expert could not be read and why: reads that fail together share one text. */
static void fail_layer(const struct sl_fetch *f, const struct sl_held *h, enum sl_status status,
                       struct sl_err *err) {
    bool own = f->reads.failed_slot == h->lease.slot;
    sl_fail(err, status, "layer %u, expert %u: %s%s", f->layout->layers[f->run.layer].model_layer,
            h->id.expert, own ? "" : "as another one of the step: ", f->reads.failed_err.text);
}

/* Moves what is ready to the front of held; returns the number of those that one call takes: in a
 * wave a quarter of the slots, so that the disk fills them again while the others are computed.
 * Reads that failed lose their rows; reads that an earlier step gave up are wanted again. */
static uint32_t gather_ready(struct sl_fetch *f, uint32_t *n_failed, struct sl_err *err) {
    uint32_t n_ready = 0, n_pairs = 0, loading = 0;
    uint64_t expert_bytes = f->layout->layers[f->run.layer].expert_bytes;
    uint32_t most = sl_layer_run_is_wave(&f->run) ? (f->run.n_held + 3) / 4 : f->run.n_held;
    for (uint32_t i = 0; i < f->run.n_held;) {
        struct sl_held h = f->run.held[i];
        enum sl_status status = sl_cache_ready(f->cache, h.lease);
        if (status == SL_ERR_CANCELED) {
            sl_cache_release(f->cache, &h.lease, 1);
            sl_layer_run_want_again(&f->run, i);
            continue;
        }
        if (status < 0) {
            if (*n_failed == 0)
                fail_layer(f, &h, status, err);
            *n_failed += sl_layer_run_fail(&f->run, h.id.expert);
            f->stats.failed++;
            drop_held(f, i);
            continue;
        }
        bool busy = n_pairs >= BUSY_PAIRS || n_ready * expert_bytes >= BUSY_BYTES;
        bool fits = n_ready == 0 || (n_ready < most && !(busy && f->reads.n));
        if (status == SL_OK && fits) {
            n_pairs += f->run.pair_count[h.id.expert];
            sl_layer_run_swap(&f->run, i, n_ready++);
        }
        loading += status == SL_AGAIN;
        i++;
    }
    f->run.n_loading = loading;
    return n_ready;
}

/* Between two operations only new requests are submitted; completions can wait until there is
 * nothing else to do, since seeing them takes a system call and the next wait makes one anyway. */
static void refill(struct sl_fetch *f) {
    if (f->reads.hold)
        return;
    bool more = f->run.n_wanted || f->ahead.cursor < f->ahead.n || f->warm_cursor < f->n_warm;
    if (more || sl_reader_has_unstarted(f->reader))
        sl_reader_poll(f->reader);
}

static void start_overlap(void *ctx) {
    sl_fetch_pace_overlap(ctx);
}

static enum sl_status run_ready(struct sl_fetch *f, uint32_t n, struct sl_device *dev,
                                struct sl_op_moe *op) {
    if (f->tiers)
        return sl_tiers_call(f, n, op);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t e = f->run.held[i].id.expert;
        const uint8_t *slot = sl_slots_at(f->slots, f->run.held[i].lease.slot);
        f->refs[e] = (struct sl_expert_ref){
            .gate = slot + sl_expert_layout_place(f->layout, f->run.layer, e, 0),
            .up = slot + sl_expert_layout_place(f->layout, f->run.layer, e, 1),
            .down = slot + sl_expert_layout_place(f->layout, f->run.layer, e, 2),
        };
    }
    /* A long computation: what the last wait held back should not be delayed until its end. */
    if (f->last_expert_ns * n > LONG_NS)
        refill(f);
    bool all = f->run.dense_call && n == f->run.n_held && !f->run.n_wanted;
    op->refs = f->refs;
    op->pairs = all ? NULL : f->run.pairs;
    op->n_pairs = all ? f->run.rows.n * f->run.k : sl_layer_run_list(&f->run, n);
    uint64_t start = sl_fetch_now(f);
    op->overlap = f->reads.hold ? start_overlap : NULL;
    op->overlap_ctx = f;
    enum sl_status status = sl_op_moe(dev, op);
    uint64_t ns = sl_fetch_now(f) - start;
    if (op->overlap) {
        sl_fetch_stalled(f, SL_STALL_DEMAND, start);
    } else {
        f->last_expert_ns = ns / n;
        sl_fetch_pace_computed(f, ns, n);
    }
    if (f->timeline)
        sl_fetch_trace_call(f, start, n, op->n_pairs);
    f->stats.calls++;
    for (uint32_t i = 0; i < n; i++)
        sl_cache_release(f->cache, &f->run.held[i].lease, 1);
    sl_layer_run_ran(&f->run, n);
    return status;
}

/* Nothing to compute: how many reads to wait for. Several at once save system calls; but while they
 * are computed the disk must have something to do, and what is computed after the last byte has
 * come is time that nothing hides. */
static uint32_t reads_to_await(const struct sl_fetch *f) {
    uint32_t n = f->run.n_loading;
    if (sl_layer_run_is_wave(&f->run))
        return (n + 3) / 4;
    if (f->tiers && f->run.rows.n == f->run.rows.n_decode)
        return 1; /* it goes up while the others are read */
    if (f->run.n_wanted || n > 2 * f->run.k)
        return n / 2;
    return n > 1 && (n - 1) * f->last_expert_ns > SL_FETCH_SPLIT_NS ? n - 1 : n;
}

static void wait_for_reads(struct sl_fetch *f) {
    uint64_t start = sl_fetch_now(f);
    enum sl_stall_cause cause = sl_fetch_stall_cause(f);
    if (!sl_fetch_pace_wait(f)) {
        uint32_t n = reads_to_await(f);
        sl_reader_wait(f->reader, n ? n : 1, SL_FETCH_LOOK_NS);
    }
    f->reads.hold = false;
    sl_read_depth_restart(&f->depth);
    sl_fetch_stalled(f, cause, start);
}

/* The step is canceled: reads that have not begun are dropped. */
static void give_back(struct sl_fetch *f) {
    for (uint32_t i = 0; i < f->run.n_held; i++)
        if (sl_cache_ready(f->cache, f->run.held[i].lease) == SL_AGAIN)
            sl_slot_reads_cancel(&f->reads, f->run.held[i].lease.slot);
    while (f->run.n_held)
        drop_held(f, f->run.n_held - 1);
    sl_layer_run_give_up(&f->run);
    f->reads.hold = false; /* what is held back goes with the next call, whoever makes it */
    if (f->tiers)
        sl_tiers_give_back(f->tiers);
}

enum sl_status sl_fetch_run(struct sl_fetch *f, struct sl_device *dev, struct sl_op_moe *op,
                            const struct sl_fetch_abort *give_up, uint32_t *out_n_failed,
                            struct sl_err *err) {
    *out_n_failed = 0;
    sl_fetch_pace_run(f, dev);
    for (;;) {
        /* What is held back is submitted by a wait, before the hits are computed or while they are.
         */
        bool wait = f->reads.hold && !(dev->caps.overlap && f->run.n_held > f->run.n_loading);
        uint32_t n = wait ? 0 : gather_ready(f, out_n_failed, err);
        bool due = n || (f->tiers && sl_tiers_pending(f->tiers));
        enum sl_status status = due ? run_ready(f, n, dev, op) : SL_OK;
        bool any = true;
        if (status == SL_OK && f->tiers && !due && !f->run.n_loading && !f->reads.n)
            status =
                sl_tiers_drain(f->tiers, &any); /* slots come back when the device has used them */
        if (status != SL_OK) {
            give_back(f);
            return status;
        }
        if (!f->run.n_held && !f->run.n_wanted) {
            if (f->tiers)
                sl_fetch_ahead_copy(f);
            return SL_OK;
        }
        if (give_up && give_up->asked(give_up->ctx)) {
            give_back(f);
            return sl_fail(err, SL_ERR_CANCELED, "canceled");
        }
        if (n)
            refill(f);
        else if (f->run.n_loading || f->reads.n)
            wait_for_reads(f);
        take(f);
        sl_fetch_pump(f);
    }
}

void sl_fetch_feed_lane(struct sl_fetch *f, const struct sl_lane_io *io) {
    if (f->tiers)
        sl_tiers_feed_lane(f->tiers, io);
}

bool sl_fetch_lane_begin(struct sl_fetch *f, uint32_t n_rows) {
    return f->tiers && sl_tiers_lane_begin(f->tiers, n_rows);
}

void sl_fetch_lane_stepped(struct sl_fetch *f, uint32_t n_rows, uint64_t ns) {
    if (f->tiers)
        sl_tiers_lane_stepped(f->tiers, n_rows, ns);
}

void sl_fetch_poll(struct sl_fetch *f) {
    refill(f);
    take(f);
    sl_fetch_pump(f);
}
