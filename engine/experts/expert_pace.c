/* When the reads of generated rows go to the drive, and how long to wait for them, so that a layer
 * costs one system call without losing time.
 *
 * Its reads start in the call that waits for them, and its hits are computed by the device's other
 * threads meanwhile. The wait ends before the last requests do: by as much as computing what has
 * come takes, so that this hides behind them. What is left then is short, and is seen by looking at
 * the reader without calling the kernel. Where the device has no other threads, the hits are
 * computed behind the last requests, too. Where that would lose time, the reads start at once, the
 * hits are computed, and the wait comes last. */
#include "engine/experts/expert_fetch_internal.h"

/* How many other requests may end before the last one of the read that is polled for. */
#define LOOK_REQUESTS 2u
/* Bytes that the disk should have before it: docs/STREAMING.md. Generated rows need less: their
 * operations are short, so the queue is refilled often, and what is taken at once is taken from
 * other layers. */
#define QUEUE_BYTES        (64u << 20)
#define DECODE_QUEUE_BYTES (16u << 20)

/* Requests of the reads that this layer waits for. */
static uint32_t requests_left(const struct sl_fetch *f) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->run.n_held; i++)
        if (sl_cache_ready(f->cache, f->run.held[i].lease) == SL_AGAIN)
            n += sl_slot_reads_left(&f->reads, f->run.held[i].lease.slot);
    return n;
}

void sl_fetch_pace_computed(struct sl_fetch *f, uint64_t ns, uint32_t n) {
    if (sl_fetch_may_predict(f))
        sl_read_pace_computed(&f->pace, ns, n);
}

/* ---- holding ---- */

bool sl_fetch_may_hold(const struct sl_fetch *f) {
    return !f->tiers && sl_fetch_may_predict(f) && sl_read_pace_known(&f->pace) &&
           sl_reader_can_look(f->reader);
}

/* The reads that nobody has begun are alike: their requests' size. */
static void learn_size(struct sl_fetch *f) {
    for (uint32_t i = 0; i < f->run.n_held; i++) {
        uint32_t slot = f->run.held[i].lease.slot;
        if (f->reads.background[slot] || sl_cache_ready(f->cache, f->run.held[i].lease) != SL_AGAIN)
            continue;
        uint32_t n = sl_slot_reads_left(&f->reads, slot);
        if (n)
            sl_read_pace_size(&f->pace, f->layout->layers[f->run.layer].expert_bytes, n);
        return;
    }
}

void sl_fetch_pace_begin(struct sl_fetch *f, bool held) {
    learn_size(f);
    uint32_t left = requests_left(f), n_hits = f->run.n_held - f->run.n_loading;
    f->reads.hold =
        held && !f->run.n_wanted && sl_read_pace_holds(&f->pace, left, n_hits, f->run.n_loading);
    if (held && !f->reads.hold)
        sl_slot_reads_submit(&f->reads);
    sl_read_pace_begun(&f->pace, left, sl_fetch_now(f));
}

void sl_fetch_pace_run(struct sl_fetch *f, const struct sl_device *dev) {
    bool counts = sl_fetch_may_predict(f);
    sl_read_pace_run(&f->pace, dev->caps.overlap, counts, counts ? sl_fetch_now(f) : 0);
}

/* ---- waiting ---- */

/* A wait has just ended. */
static void learn_speed(struct sl_fetch *f) {
    sl_read_pace_left(&f->pace, requests_left(f), sl_fetch_now(f));
}

static bool look(struct sl_fetch *f, double expected_ns) {
    uint64_t ns = sl_read_pace_look_ns(&f->pace, expected_ns);
    if (!ns)
        return false;
    bool seen = sl_reader_look(f->reader, ns) > 0;
    sl_read_pace_looked(&f->pace, seen);
    return seen;
}

/* Waits in the kernel until no more than that many of this layer's requests are left. */
static void enter(struct sl_fetch *f, uint32_t left, uint32_t to_leave) {
    uint32_t others = sl_reader_flying(f->reader);
    others = others > left ? others - left : 0; /* read ahead, behind these */
    if (f->reads.hold)
        sl_read_pace_submitted(&f->pace, sl_fetch_now(f));
    f->reads.hold = false;
    sl_reader_wait_until(f->reader, to_leave + others, SL_FETCH_LOOK_NS);
    learn_speed(f);
}

/* What is left is hardly worth a call: whole reads, and no more calls than computing pays for. */
static void wait_for_whole(struct sl_fetch *f) {
    uint32_t n = f->run.n_loading;
    bool split = n > 1 && (n - 1) * f->pace.mean_expert_ns > SL_FETCH_SPLIT_NS;
    sl_reader_wait(f->reader, split ? n - 1 : n, SL_FETCH_LOOK_NS);
    learn_speed(f);
}

void sl_fetch_pace_overlap(struct sl_fetch *f) {
    enter(f, requests_left(f), sl_read_pace_to_leave(&f->pace, f->run.n_loading));
}

/* With a tier above: waits for one read, which is copied up while the others go on. Its last
 * request is polled for, since waking up takes a good part of the time of the copy. */
static void wait_for_one(struct sl_fetch *f) {
    uint32_t least = UINT32_MAX, flying = sl_reader_flying(f->reader), ended = 0;
    for (uint32_t i = 0; i < f->run.n_held; i++) {
        if (sl_cache_ready(f->cache, f->run.held[i].lease) != SL_AGAIN)
            continue;
        uint32_t n = sl_slot_reads_left(&f->reads, f->run.held[i].lease.slot);
        least = n < least ? n : least;
    }
    bool may_look = sl_reader_can_look(f->reader) && sl_read_pace_requests_ns(&f->pace, 1) > 0;
    if (may_look && least > 1 && least <= flying)
        ended = sl_reader_wait_until(f->reader, flying - least + 1, SL_FETCH_LOOK_NS);
    if (!ended && may_look)
        ended = look(f, sl_read_pace_requests_ns(&f->pace, LOOK_REQUESTS));
    if (!ended)
        sl_reader_wait(f->reader, 1, SL_FETCH_LOOK_NS);
    learn_speed(f);
}

bool sl_fetch_pace_wait(struct sl_fetch *f) {
    if (f->tiers && sl_fetch_may_predict(f) && !f->run.n_wanted && f->run.n_loading) {
        wait_for_one(f);
        return true;
    }
    if (f->tiers || !sl_fetch_may_predict(f) || f->run.n_wanted || !f->run.n_loading ||
        !sl_reader_can_look(f->reader))
        return false;
    if (!f->reads.hold && sl_reader_look(f->reader, 0) > 0)
        return true;
    uint32_t left = requests_left(f), to_leave = sl_read_pace_to_leave(&f->pace, f->run.n_held);
    uint32_t until = left > to_leave ? left - to_leave : left / 2 + 1;
    if (!f->reads.hold && look(f, sl_read_pace_requests_ns(&f->pace, until)))
        return true;
    if (f->reads.hold || left > to_leave)
        enter(f, left, to_leave < left ? to_leave : 0);
    else
        wait_for_whole(f);
    return true;
}

/* ---- how much to read ---- */

uint32_t sl_fetch_queue_experts(const struct sl_fetch *f, uint32_t routed_layer) {
    uint32_t bytes = f->run.rows.n == f->run.rows.n_decode ? DECODE_QUEUE_BYTES : QUEUE_BYTES;
    uint64_t n = bytes / f->layout->layers[routed_layer].expert_bytes + 1;
    return n > f->layout->layers[routed_layer].k ? (uint32_t)n : f->layout->layers[routed_layer].k;
}

void sl_fetch_pace_layer(struct sl_fetch *f) {
    sl_read_pace_layer(&f->pace, sl_fetch_now(f), f->stats.stall_ns, f->run.layer == 0,
                       sl_fetch_may_predict(f));
}

uint32_t sl_fetch_pace_ahead(const struct sl_fetch *f, uint32_t routed_layer) {
    return sl_read_pace_ahead(&f->pace, f->layout->layers[routed_layer].expert_bytes,
                              f->layout->layers[routed_layer].k);
}
