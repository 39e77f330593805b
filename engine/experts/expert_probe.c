/* How fast the disk gives experts to the slots: those that are in them are read again. */
#include "engine/experts/expert_fetch_internal.h"

#include "common/rng.h"

/* With fewer, each is read again as soon as it has arrived and the queue is not kept full, unless
 * they are so large that a few fill it. */
#define LEAST_EXPERTS 16u
/* The least time that the rate is taken over, however long the first reads took. */
#define LEAST_NS 50000000u
/* How many slots are drawn at random before all are tried in turn. */
#define DRAWS 64u

struct probe {
    struct sl_fetch *fetch;
    const struct sl_fetch_abort *give_up;
    struct sl_rng rng;
    uint32_t n_flying, n_done;
    bool refill;
    enum sl_status status;
    struct sl_err read_err; /* where the reader writes */
    struct sl_err *err;     /* of the read that failed first */
};

/* Any slot whose expert can be read again, which is then loading. False: there is none. */
static bool take_slot(struct probe *p, struct sl_expert_id *out_id, struct sl_lease *out_lease) {
    struct sl_fetch *f = p->fetch;
    uint32_t at = 0;
    for (uint32_t i = 0; i < DRAWS + f->reads.n_slots; i++) {
        at = i < DRAWS ? sl_rng_below(&p->rng, f->reads.n_slots) : (at + 1) % f->reads.n_slots;
        if (sl_cache_refill(f->cache, at, out_id, out_lease))
            return true;
    }
    return false;
}

static void ended(struct probe *p, uint32_t slot, enum sl_status status) {
    struct sl_fetch *f = p->fetch;
    sl_cache_filled(f->cache, f->reads.fills[slot], status, sl_fetch_now(f));
    if (status == SL_OK || p->status != SL_OK)
        return;
    p->status = status;
    *p->err = p->read_err;
}

static bool submit(struct probe *p);

static void read_done(struct sl_read *read, enum sl_status status) {
    struct probe *p = read->user;
    p->n_flying--;
    p->n_done++;
    ended(p, (uint32_t)(read - p->fetch->reads.reads), status);
    if (p->refill && p->status == SL_OK)
        submit(p);
}

/* False: no slot is left, or it failed. */
static bool submit(struct probe *p) {
    struct sl_fetch *f = p->fetch;
    struct sl_expert_id id;
    struct sl_lease lease;
    if (!take_slot(p, &id, &lease))
        return false;
    struct sl_read *read = sl_slot_reads_prepare(&f->reads, id, lease, SL_READ_DEMAND);
    read->done = read_done;
    read->user = p;
    read->err = &p->read_err;
    enum sl_status status = sl_reader_submit(f->reader, read, &p->read_err);
    if (status == SL_OK)
        p->n_flying++;
    else
        ended(p, lease.slot, status);
    return status == SL_OK;
}

/* Nothing else may be in flight: waits for what is. */
static enum sl_status wait_idle(struct probe *p) {
    struct sl_fetch *f = p->fetch;
    while (f->reads.n) {
        if (p->give_up->asked(p->give_up->ctx))
            return sl_fail(p->err, SL_ERR_CANCELED, "canceled");
        sl_reader_wait(f->reader, f->reads.n, SL_FETCH_LOOK_NS);
    }
    enum sl_status status = f->tiers ? sl_tiers_rest(f) : SL_OK;
    return status == SL_OK ? status
                           : sl_fail(p->err, status, "waiting for copies of experts: %s",
                                     sl_status_text(status));
}

/* Submits more than the queue takes: half as much again, since of a read whose last request is in
 * flight the others have left the queue. */
static enum sl_status fill_queue(struct probe *p) {
    const struct sl_reader *r = p->fetch->reader;
    uint32_t n = 0, n_full = 0;
    while ((!n_full || n < n_full + (n_full + 1) / 2) && submit(p)) {
        n++;
        if (!n_full && sl_reader_has_unstarted(r))
            n_full = n;
    }
    if (p->status != SL_OK || n_full || n >= LEAST_EXPERTS)
        return p->status;
    return sl_fail(p->err, SL_ERR_UNSUPPORTED,
                   "%u experts are in slots; with fewer than %u that can be read again the disk's "
                   "queue is not full",
                   n, LEAST_EXPERTS);
}

/* The reader may take more when it knows how fast each copy of the files is. */
static void wait_for(struct probe *p, uint32_t n) {
    struct sl_reader *r = p->fetch->reader;
    sl_reader_wait(r, n, SL_FETCH_LOOK_NS);
    if (p->status == SL_OK && p->give_up->asked(p->give_up->ctx))
        p->status = sl_fail(p->err, SL_ERR_CANCELED, "canceled");
    if (p->status == SL_OK && !sl_reader_has_unstarted(r))
        submit(p);
}

static enum sl_status measure(struct probe *p, double seconds, double *out_rate) {
    const struct sl_fetch *f = p->fetch;
    struct sl_reader_stats a, b;
    uint64_t all_ns = (uint64_t)(seconds * 1e9), start = sl_fetch_now(f);
    p->refill = true;
    enum sl_status status = fill_queue(p);
    uint32_t n = p->n_flying, some = n / 4 ? n / 4 : 1;
    if (status != SL_OK)
        return status;
    /* Not the first ones: they find an idle disk. */
    while (p->status == SL_OK && p->n_done < n && sl_fetch_now(f) - start < all_ns / 2)
        wait_for(p, some);
    sl_reader_get_stats(f->reader, &a);
    b = a;
    uint64_t t = sl_fetch_now(f), now = t;
    while (p->status == SL_OK &&
           (now - start < all_ns || now - t < LEAST_NS || b.needed_bytes == a.needed_bytes)) {
        wait_for(p, some);
        sl_reader_get_stats(f->reader, &b);
        now = sl_fetch_now(f);
    }
    if (p->status == SL_OK)
        *out_rate = (double)(b.needed_bytes - a.needed_bytes) * 1e9 / (double)(now - t);
    return p->status;
}

enum sl_status sl_fetch_disk_speed(struct sl_fetch *f, double seconds,
                                   const struct sl_fetch_abort *give_up, double *out_bytes_per_s,
                                   struct sl_err *err) {
    struct probe p = {.fetch = f, .give_up = give_up, .err = err};
    p.rng.state = sl_fetch_now(f); /* never the same order: a disk has caches too */
    double rate = 0;
    enum sl_status status = wait_idle(&p);
    if (status == SL_OK)
        status = measure(&p, seconds, &rate);
    p.refill = false;
    while (p.n_flying > 0)
        sl_reader_wait(f->reader, p.n_flying, -1);
    if (status == SL_OK)
        status = p.status; /* of those that came last */
    if (status == SL_OK)
        *out_bytes_per_s = rate;
    return status;
}
