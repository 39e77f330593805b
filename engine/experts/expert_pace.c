/* When reads of generated rows go to the drive, and how long to wait for them: so that a layer
 * costs one system call and loses no time by that.
 *
 * Its reads start in the call that waits for them, and its hits are computed by the device's other
 * threads meanwhile. The wait ends before the last requests do: by as much as computing what has
 * come takes, so that this hides behind them. What is left then is short, and is seen by looking at
 * the reader without calling the kernel. Where the device has no other threads, the hits are
 * computed behind the last requests, too. What would lose time that way goes the other way: the
 * reads start at once, the hits are computed, and then comes the wait. */
#include "engine/experts/expert_fetch_internal.h"

/* The longest spin; and what is added to twice the time expected. */
#define LOOK_MOST_NS  1000000u
#define LOOK_LEAST_NS 50000u
/* After a spin in vain so many waits go without; after each further one twice as many, up to: */
#define LOOK_REST_MOST 64u
/* Requests that may end before the last one of the read that is looked for. */
#define LOOK_REQUESTS 2
/* Work between begin and run may delay the reads by this part of their time. */
#define HOLD_PART 0.01
/* Computing may take this part of the reading, or the reads start at once. */
#define HOLD_COMPUTING 0.75
/* Computing is taken to be this much slower than measured: to start it early costs a longer look,
 * to start it late costs time. With a thread less it may take twice as long. */
#define CARE         1.1
#define OVERLAP_CARE 2.0
/* What is worth reading ahead at least: a drive's latency, and then some. */
#define AHEAD_BYTES 2097152.0
/* Share of a new measurement in the mean, in which it counts as so much more than the mean at most:
 * a drive's hiccup. */
#define NEW_TIME 0.125
#define HICCUP   2.0

static void mean(double *m, double x) {
    if (*m > 0 && x > HICCUP * *m)
        x = HICCUP * *m;
    *m += (x - *m) * (*m > 0 ? NEW_TIME : 1);
}

static double request_ns(const struct sl_fetch *f) {
    return f->pace.byte_ns * f->pace.request_bytes;
}

/* Requests of the reads that this layer waits for. */
static uint32_t requests_left(const struct sl_fetch *f) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n_held; i++)
        if (sl_cache_ready(f->cache, f->held[i].lease) == SL_AGAIN)
            n += sl_reader_requests_left(f->reader, &f->reads[f->held[i].lease.slot]);
    return n;
}

/* Requests that the drive works off while all of n experts but the last are computed. */
static uint32_t requests_to_leave(const struct sl_fetch *f, uint32_t n) {
    if (n < 2 || !(request_ns(f) > 0))
        return 0;
    double leave = CARE * f->pace.mean_expert_ns * (n - 1) / request_ns(f);
    return leave < 1e6 ? (uint32_t)(leave + 0.25) + 1 : 1000000;
}

void sl_fetch_pace_computed(struct sl_fetch *f, uint64_t ns, uint32_t n) {
    if (sl_fetch_may_predict(f))
        mean(&f->pace.mean_expert_ns, (double)ns / n);
}

/* ---- holding ---- */

bool sl_fetch_may_hold(const struct sl_fetch *f) {
    return !f->tiers && sl_fetch_may_predict(f) && f->pace.byte_ns > 0 &&
           f->pace.mean_expert_ns > 0 && sl_reader_can_look(f->reader);
}

static bool pays(const struct sl_fetch *f, uint32_t left) {
    const struct sl_pace *p = &f->pace;
    if (!left || f->n_wanted)
        return false;
    uint32_t n_hits = f->n_held - f->n_loading;
    double reading = request_ns(f) * left;
    double tail = CARE * p->mean_expert_ns * ((p->overlap ? f->n_loading : f->n_held) - 1);
    double overlap = p->overlap ? OVERLAP_CARE * p->mean_expert_ns * n_hits : 0;
    return tail < HOLD_COMPUTING * reading && overlap < HOLD_COMPUTING * reading &&
           p->between_ns < HOLD_PART * reading;
}

/* The reads that nobody has begun are alike: their requests' size. */
static void learn_size(struct sl_fetch *f) {
    for (uint32_t i = 0; i < f->n_held; i++) {
        uint32_t slot = f->held[i].lease.slot;
        if (f->background[slot] || sl_cache_ready(f->cache, f->held[i].lease) != SL_AGAIN)
            continue;
        uint32_t n = sl_reader_requests_left(f->reader, &f->reads[slot]);
        if (n)
            f->pace.request_bytes = (double)f->layout->layers[f->layer].expert_bytes / n;
        return;
    }
}

void sl_fetch_pace_begin(struct sl_fetch *f, bool held) {
    struct sl_pace *p = &f->pace;
    learn_size(f);
    p->n_requests = requests_left(f);
    f->hold = held && pays(f, p->n_requests);
    if (held && !f->hold)
        (void)!sl_reader_submit(f->reader, NULL, &f->read_err); /* nothing new: cannot fail */
    p->begun_ns = p->reading_ns = sl_fetch_now(f);
}

void sl_fetch_pace_run(struct sl_fetch *f, const struct sl_device *dev) {
    if (sl_fetch_may_predict(f))
        mean(&f->pace.between_ns, (double)(sl_fetch_now(f) - f->pace.begun_ns));
    f->pace.overlap = dev->caps.overlap;
}

/* ---- waiting ---- */

/* A wait has just seen that so much is left: since they were started the drive did the others. */
static void learn_speed(struct sl_fetch *f, uint32_t left) {
    struct sl_pace *p = &f->pace;
    if (!p->reading_ns || left >= p->n_requests)
        return;
    double bytes = (p->n_requests - left) * p->request_bytes;
    mean(&p->byte_ns, (double)(sl_fetch_now(f) - p->reading_ns) / bytes);
    p->reading_ns = 0;
}

static bool look(struct sl_fetch *f, double expected_ns) {
    struct sl_pace *p = &f->pace;
    if (!(expected_ns > 0) || expected_ns > LOOK_MOST_NS)
        return false;
    if (p->rest_waits) {
        p->rest_waits--;
        return false;
    }
    double most = 2 * expected_ns + LOOK_LEAST_NS;
    if (sl_reader_look(f->reader, (uint64_t)(most < LOOK_MOST_NS ? most : LOOK_MOST_NS)) > 0) {
        p->rest = 0;
        return true;
    }
    p->rest = p->rest ? 2 * p->rest : 1;
    if (p->rest > LOOK_REST_MOST)
        p->rest = LOOK_REST_MOST;
    p->rest_waits = p->rest;
    return false;
}

/* Calls the kernel: until no more is left of this layer's requests than that. */
static void enter(struct sl_fetch *f, uint32_t left, uint32_t to_leave) {
    uint32_t others = sl_reader_flying(f->reader);
    others = others > left ? others - left : 0; /* read ahead, behind these */
    if (f->hold)
        f->pace.reading_ns = sl_fetch_now(f);
    f->hold = false;
    sl_reader_wait_until(f->reader, to_leave + others, SL_FETCH_LOOK_NS);
    learn_speed(f, requests_left(f));
}

/* What is left is hardly worth a call: whole reads, and no more calls than computing pays for. */
static void wait_for_whole(struct sl_fetch *f) {
    uint32_t n = f->n_loading;
    bool split = n > 1 && (n - 1) * f->pace.mean_expert_ns > SL_FETCH_SPLIT_NS;
    sl_reader_wait(f->reader, split ? n - 1 : n, SL_FETCH_LOOK_NS);
    learn_speed(f, requests_left(f));
}

void sl_fetch_pace_overlap(struct sl_fetch *f) {
    enter(f, requests_left(f), requests_to_leave(f, f->n_loading));
}

/* With a tier above: for one read, which goes up while the others go on. Its last request is looked
 * for: waking up takes a good part of the time that it takes to go up. */
static void wait_for_one(struct sl_fetch *f) {
    uint32_t least = UINT32_MAX, flying = sl_reader_flying(f->reader), ended = 0;
    for (uint32_t i = 0; i < f->n_held; i++) {
        if (sl_cache_ready(f->cache, f->held[i].lease) != SL_AGAIN)
            continue;
        uint32_t n = sl_reader_requests_left(f->reader, &f->reads[f->held[i].lease.slot]);
        least = n < least ? n : least;
    }
    bool may_look = sl_reader_can_look(f->reader) && request_ns(f) > 0;
    if (may_look && least > 1 && least <= flying)
        ended = sl_reader_wait_until(f->reader, flying - least + 1, SL_FETCH_LOOK_NS);
    if (!ended && may_look)
        ended = look(f, LOOK_REQUESTS * request_ns(f));
    if (!ended)
        sl_reader_wait(f->reader, 1, SL_FETCH_LOOK_NS);
    learn_speed(f, requests_left(f));
}

bool sl_fetch_pace_wait(struct sl_fetch *f) {
    if (f->tiers && sl_fetch_may_predict(f) && !f->n_wanted && f->n_loading) {
        wait_for_one(f);
        return true;
    }
    if (f->tiers || !sl_fetch_may_predict(f) || f->n_wanted || !f->n_loading ||
        !sl_reader_can_look(f->reader))
        return false;
    if (!f->hold && sl_reader_look(f->reader, 0) > 0)
        return true;
    uint32_t left = requests_left(f), to_leave = requests_to_leave(f, f->n_held);
    uint32_t until = left > to_leave ? left - to_leave : left / 2 + 1;
    if (!f->hold && look(f, until * request_ns(f)))
        return true;
    if (f->hold || left > to_leave)
        enter(f, left, to_leave < left ? to_leave : 0);
    else
        wait_for_whole(f);
    return true;
}

/* ---- how much to read ahead ---- */

void sl_fetch_pace_layer(struct sl_fetch *f) {
    struct sl_pace *p = &f->pace;
    uint64_t now = sl_fetch_now(f), stall = f->stats.stall_ns - p->layer_stall_ns;
    uint64_t took = now - p->layer_began_ns;
    if (p->layer_began_ns && sl_fetch_may_predict(f) && f->layer > 0 && took > stall)
        mean(&p->layer_ns, (double)(took - stall)); /* of the first: also the output, sampling */
    p->layer_began_ns = now;
    p->layer_stall_ns = f->stats.stall_ns;
}

uint32_t sl_fetch_pace_ahead(const struct sl_fetch *f, uint32_t routed_layer) {
    const struct sl_pace *p = &f->pace;
    double bytes = (double)f->layout->layers[routed_layer].expert_bytes;
    double expert_ns = p->byte_ns * bytes, least = AHEAD_BYTES / bytes;
    uint32_t k = f->layout->k;
    double n = expert_ns > 0 ? p->layer_ns / expert_ns + (least > 2 ? least : 2) : k;
    return n < k ? (uint32_t)n + 1 : k;
}
