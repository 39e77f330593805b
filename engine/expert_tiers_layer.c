/* One layer of one step over the tiers: what is where, what goes up, and the calls of the op. */
#include "engine/expert_tiers_internal.h"

#include "common/metrics.h"

#include <assert.h>
#include <string.h>

/* Experts that one call of a prompt's rows copies up: enough for the call to be worth its launches,
 * few enough that the link and the kernels work side by side. */
#define GROUP_BYTES (32u << 20)

void sl_tiers_begin(struct sl_fetch *f) {
    struct sl_tiers *t = f->tiers;
    uint64_t now = sl_fetch_now(f);
    assert(!t->n_hits);
    sl_tiers_settle(t, now);
    t->n_window_used = 0;
    uint32_t keep_n = 0;
    for (uint32_t i = 0; i < f->n_wanted; i++) {
        struct sl_expert_id id = f->wanted[i];
        if (sl_tiers_has(t, id))
            t->hits[t->n_hits++] = (struct sl_held){id, sl_tiers_pin(t->cache, id, now)};
        else
            f->wanted[keep_n++] = id;
    }
    f->n_wanted = keep_n;
    f->stats.hits += t->n_hits;
    t->stats.device_hits += t->n_hits;
    sl_count(expert_hits_total, t->n_hits);
}

bool sl_tiers_pending(const struct sl_tiers *t) {
    return t->n_hits > 0;
}

void sl_tiers_give_back(struct sl_tiers *t) {
    for (; t->n_hits; t->n_hits--)
        sl_cache_release(t->cache, &t->hits[t->n_hits - 1].lease, 1);
    for (; t->n_group; t->n_group--)
        sl_cache_release(t->cache, &t->group[t->n_group - 1].lease, 1);
}

/* A device slot for an expert that several rows need; true if there is one. Prompt rows would read
 * it so often that waiting for a slot is cheaper than reading it in place. */
static enum sl_status claim(struct sl_fetch *f, struct sl_expert_id id, bool wait,
                            struct sl_fill *out_fill, bool *out_got) {
    struct sl_tiers *t = f->tiers;
    struct sl_lease lease;
    uint32_t n_fill, n_taken;
    for (bool any = true; any;) {
        *out_got = sl_cache_acquire_some(t->cache, &id, 1, 1, sl_fetch_now(f), &lease, out_fill,
                                         &n_fill, &n_taken) == SL_OK;
        if (*out_got || !wait)
            return SL_OK;
        SL_TIERS_TRY(sl_tiers_drain(t, &any));
    }
    return SL_OK;
}

/* Takes held expert i, which is ready in the host, up if that pays: at once when several rows need
 * it, else when the group's other copies have been enqueued, since its slot may have to be emptied
 * first. *out_up: it does; then its device lease is, or will be, in the group. */
static enum sl_status consider(struct sl_fetch *f, uint32_t i, bool *out_up) {
    struct sl_tiers *t = f->tiers;
    const struct sl_held *h = &f->held[i];
    struct sl_fill fill;
    *out_up = false;
    if (!t->cache)
        return SL_OK;
    if (f->pair_count[h->id.expert] > 1) {
        SL_TIERS_TRY(claim(f, h->id, f->rows.n > f->rows.n_decode && !t->n_group, &fill, out_up));
        if (!*out_up)
            return SL_OK;
        SL_TIERS_TRY(sl_tiers_copy_up(f, &fill, h->lease.slot));
        t->group[t->n_group++] = (struct sl_held){h->id, fill.lease};
        return SL_OK;
    }
    *out_up = sl_cache_prefetch(t->cache, SL_PREFETCH_MOVE, &h->id, 1, sl_fetch_now(f), &fill);
    if (*out_up)
        t->moves[t->n_moves++] = (struct sl_tiers_move){fill, i};
    return SL_OK;
}

static enum sl_status make_moves(struct sl_fetch *f) {
    struct sl_tiers *t = f->tiers;
    while (t->n_moved < t->n_moves) {
        const struct sl_tiers_move *m = &t->moves[t->n_moved++];
        const struct sl_held *h = &f->held[m->held];
        SL_TIERS_TRY(sl_tiers_copy_up(f, &m->fill, h->lease.slot));
        t->group[t->n_group++] =
            (struct sl_held){h->id, sl_tiers_pin(t->cache, h->id, sl_fetch_now(f))};
    }
    return SL_OK;
}

/* Copies an expert for this one use. On an H200 the copy engine carries 55 GB/s over the link, and
 * kernels that read a few experts in place some 38. Nobody else writes to the place before the next
 * layer's ids have been read back. */
static enum sl_status copy_for_once(struct sl_fetch *f, const struct sl_held *h,
                                    const char **out_place) {
    struct sl_tiers *t = f->tiers;
    char *place = t->window + t->n_window_used++ * t->window_slot_bytes;
    size_t from, bytes;
    sl_tiers_payload(t, h->id, &from, &bytes);
    SL_TIERS_TRY(sl_device_copy(t->dev, SL_QUEUE_UP, place + from,
                                sl_slots_at(f->slots, h->lease.slot) + from, bytes));
    t->stats.up_bytes += bytes;
    sl_count(link_up_bytes_total, bytes);
    *out_place = place;
    return SL_OK;
}

/* Adds the pairs of the experts that are marked in f->in_call to the arguments; their number. */
static uint32_t list_pairs(struct sl_fetch *f, uint32_t n_before) {
    uint32_t n = sl_fetch_list_pairs(f);
    memset(f->in_call, 0, f->layout->n_expert);
    memcpy(sl_tiers_arg_pairs(f->tiers, f->tiers->args) + n_before, f->pairs, n * sizeof *f->pairs);
    return n;
}

/* Calls the op for n listed pairs that begin at `first`, or for all. */
static enum sl_status call(struct sl_fetch *f, bool all, uint32_t first, uint32_t n,
                           uint32_t n_experts, struct sl_op_moe *op) {
    struct sl_tiers *t = f->tiers;
    uint64_t start = sl_fetch_now(f);
    op->refs = NULL;
    op->device_refs = t->dev_args;
    op->pairs = all ? NULL : sl_tiers_arg_pairs(t, t->dev_args) + first;
    op->n_pairs = all ? f->rows.n * f->layout->k : n;
    if (!op->n_pairs)
        return SL_OK; /* the rows that needed them are lost */
    SL_TIERS_TRY(sl_op_moe(t->dev, op));
    f->stats.calls++;
    if (f->timeline)
        sl_fetch_trace_call(f, start, n_experts, op->n_pairs);
    return SL_OK;
}

static void add(struct sl_fetch *f, struct sl_expert_id id, const char *slot) {
    f->refs[id.expert] = sl_tiers_ref(f->tiers, id, slot);
    f->in_call[id.expert] = 1;
}

/* Prompt rows and waves need their slots again within the layer. */
static enum sl_status point_after(struct sl_fetch *f, sl_point *out_point) {
    *out_point = 0;
    return f->rows.n > f->rows.n_decode || f->n_wanted
               ? sl_device_mark(f->tiers->dev, SL_QUEUE_OPS, out_point)
               : SL_OK;
}

/* What is copied for one use is computed after the copies: its refs are there, its mark is not. */
static enum sl_status begin_copies(struct sl_fetch *f, uint32_t n, uint32_t *out_n_now,
                                   uint32_t *out_n_once) {
    struct sl_tiers *t = f->tiers;
    t->n_moves = t->n_moved = 0;
    *out_n_now = t->n_hits;
    *out_n_once = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct sl_held *h = &f->held[i];
        uint32_t pairs = f->pair_count[h->id.expert];
        bool up;
        SL_TIERS_TRY(consider(f, i, &up));
        if (up)
            continue;
        if (pairs == 1 && t->n_window_used < t->n_window) {
            const char *place;
            SL_TIERS_TRY(copy_for_once(f, h, &place));
            f->refs[h->id.expert] = sl_tiers_ref(t, h->id, place);
            t->once[(*out_n_once)++] = (uint16_t)h->id.expert;
            continue;
        }
        uint64_t bytes = pairs * t->layout->layers[h->id.layer].expert_bytes;
        add(f, h->id, t->mapped + (sl_slots_at(f->slots, h->lease.slot) - t->slab->base));
        ++*out_n_now;
        t->stats.in_place_bytes += bytes;
        sl_count(link_read_bytes_total, bytes);
    }
    return make_moves(f);
}

/* Keeps the leases of all that the calls of this group use. */
static enum sl_status keep_group(struct sl_fetch *f, uint32_t n) {
    struct sl_tiers *t = f->tiers;
    sl_point done;
    SL_TIERS_TRY(point_after(f, &done));
    for (; t->n_hits; t->n_hits--)
        SL_TIERS_TRY(sl_tiers_keep(t, t->hits[t->n_hits - 1].lease, false, SL_QUEUE_OPS, done));
    for (; t->n_group; t->n_group--)
        SL_TIERS_TRY(sl_tiers_keep(t, t->group[t->n_group - 1].lease, false, SL_QUEUE_OPS, done));
    enum sl_status st = SL_OK;
    uint32_t n_kept = 0;
    while (n_kept < n && st == SL_OK) {
        st = sl_tiers_keep(t, f->held[n_kept].lease, true, SL_QUEUE_OPS, done);
        n_kept += st == SL_OK;
    }
    memmove(f->held, f->held + n_kept, (f->n_held - n_kept) * sizeof *f->held);
    f->n_held -= n_kept;
    return st;
}

/* Computes the hits and the first n of held: what is there or read in place at once, then what is
 * copied up. */
static enum sl_status run_group(struct sl_fetch *f, uint32_t n, bool last, struct sl_op_moe *op) {
    struct sl_tiers *t = f->tiers;
    uint32_t n_now, n_once, n_first = 0, n_second = 0;
    SL_TIERS_TRY(begin_copies(f, n, &n_now, &n_once));
    uint32_t n_up = t->n_group + n_once;
    bool all = f->dense_call && last && !f->n_wanted && n == f->n_held && (!n_now || !n_up);
    for (uint32_t i = 0; i < t->n_hits; i++)
        add(f, t->hits[i].id, sl_tiers_slot(t, t->hits[i].lease.slot));
    if (n_now && !all)
        n_first = list_pairs(f, 0);
    for (uint32_t i = 0; i < n_once; i++)
        f->in_call[t->once[i]] = 1;
    for (uint32_t i = 0; i < t->n_group; i++)
        add(f, t->group[i].id, sl_tiers_slot(t, t->group[i].lease.slot));
    if (n_up && !all)
        n_second = list_pairs(f, n_first);
    memset(f->in_call, 0, f->layout->n_expert);
    /* One upload for both calls, so that the second need not wait for more than its copies. */
    size_t refs_bytes = f->layout->n_expert * sizeof *f->refs;
    memcpy(t->args, f->refs, refs_bytes);
    SL_TIERS_TRY(sl_device_upload(t->dev, t->dev_args, t->args,
                                  refs_bytes + (n_first + n_second) * sizeof *f->pairs));
    if (n_now)
        SL_TIERS_TRY(call(f, all, 0, n_first, n_now, op));
    if (n_up) {
        sl_point up;
        SL_TIERS_TRY(sl_tiers_up_done(t, &up));
        SL_TIERS_TRY(call(f, all, n_first, n_second, n_up, op));
    }
    f->dense_call = false;
    return keep_group(f, n);
}

static enum sl_status run_groups(struct sl_fetch *f, uint32_t n, struct sl_op_moe *op) {
    SL_TIERS_TRY(sl_tiers_settle_passed(f->tiers));
    uint32_t most = n;
    if (f->rows.n > f->rows.n_decode) {
        uint64_t e_bytes = f->layout->layers[f->layer].expert_bytes;
        most = (uint32_t)(GROUP_BYTES / e_bytes) + 1;
    }
    do {
        uint32_t m = n < most ? n : most;
        SL_TIERS_TRY(run_group(f, m, m == n, op));
        n -= m;
    } while (n);
    return SL_OK;
}

/* A call has failed, and the device may go on: nothing of the call stays behind. Its leases are
 * given back next, so no copy and no op may still be using them. */
static void abandon(struct sl_fetch *f, enum sl_status why) {
    struct sl_tiers *t = f->tiers;
    (void)!sl_device_sync(t->dev); /* a lost device has nothing under way */
    for (; t->n_moved < t->n_moves; t->n_moved++) {
        const struct sl_fill *fill = &t->moves[t->n_moved].fill;
        if (fill->evicted)
            sl_tiers_leave(t, fill->victim);
        sl_cache_filled(t->cache, fill->lease, why, sl_fetch_now(f));
    }
    memset(f->in_call, 0, f->layout->n_expert);
}

enum sl_status sl_tiers_call(struct sl_fetch *f, uint32_t n, struct sl_op_moe *op) {
    enum sl_status st = run_groups(f, n, op);
    if (st != SL_OK)
        abandon(f, st);
    return st;
}
