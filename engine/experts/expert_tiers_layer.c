/* One layer of one step over the tiers: what is where, what goes up, and the calls of the op. */
#include "engine/experts/expert_tiers_internal.h"

#include "common/metrics.h"

#include <assert.h>
#include <string.h>

/* The most bytes of experts in one call for prompt rows, so that the link and the kernels overlap.
 */
#define GROUP_BYTES (32u << 20)
/* What a call for prompt rows takes of the pass-through slots: the other parts are on their way
 * meanwhile. */
#define GROUP_PARTS 4u

void sl_tiers_begin(struct sl_fetch *f) {
    struct sl_tiers *t = f->tiers;
    uint64_t now = sl_fetch_now(f);
    assert(!t->n_hits);
    sl_tiers_settle(t, now);
    sl_tiers_ahead_begin(f);
    t->n_layer_copies = 0;
    uint32_t keep_n = 0;
    for (uint32_t i = 0; i < f->run.n_wanted; i++) {
        struct sl_expert_id id = f->run.wanted[i];
        if (sl_tiers_has(t, id))
            t->hits[t->n_hits++] = (struct sl_held){id, sl_tiers_pin(t->cache, id, now)};
        else
            f->run.wanted[keep_n++] = id;
    }
    f->run.n_wanted = keep_n;
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
    for (; t->n_once; t->n_once--)
        if (t->once[t->n_once - 1].early)
            sl_cache_release(t->host, &t->once[t->n_once - 1].slot->host, 1);
}

void sl_tiers_forget(struct sl_fetch *f) {
    struct sl_tiers *t = f->tiers;
    (void)!sl_device_sync(t->dev); /* the next op reports what cannot be waited for any more */
    sl_tiers_give_back(t);
    sl_tiers_ahead_forget(t);
    sl_tiers_settle(t, sl_fetch_now(f));
    if (t->cache)
        sl_cache_forget(t->cache);
    for (uint32_t l = 0; l < t->layout->n_layer; l++)
        for (uint32_t e = 0; e < t->layout->layers[l].n_expert; e++)
            sl_cache_elsewhere(t->host, (struct sl_expert_id){(uint16_t)l, (uint16_t)e}, false);
    memset(t->at, 0xff, (size_t)t->layout->n_layer * t->layout->n_expert * sizeof *t->at);
    t->n_on = 0;
    t->warm_cursor = f->n_warm;
}

/* ---- what goes where ---- */

static void add(struct sl_fetch *f, struct sl_expert_id id, struct sl_span slot) {
    f->refs[id.expert] = sl_tiers_ref(f->tiers, id, slot);
    f->run.in_call[id.expert] = 1;
}

static bool has_prompt(const struct sl_fetch *f) {
    return f->run.rows.n > f->run.rows.n_decode;
}

/* The device shares the host's memory: kernels read the host's slot. */
static void read_in_place(struct sl_fetch *f, const struct sl_held *h) {
    struct sl_tiers *t = f->tiers;
    uint64_t bytes = f->run.pair_count[h->id.expert] * t->layout->layers[h->id.layer].expert_bytes;
    f->refs[h->id.expert] = sl_tiers_ref(t, h->id, sl_tiers_host_slot(t, h->lease.slot));
    t->stats.in_place_bytes += bytes;
    sl_count(link_read_bytes_total, bytes);
}

static void take_early(struct sl_tiers *t, struct sl_pass_slot *slot) {
    t->once[t->n_once++] = (struct sl_tiers_once){.slot = slot, .id = slot->id, .early = true};
    slot->state = SL_PASS_TAKEN;
    t->pass.n_early--;
    t->stats.early_used++;
    if (slot->prediction)
        sl_count(expert_predicted_used_total, 1);
    else
        sl_count(expert_early_used_total, 1);
}

/* Finds a place on the device for an expert that is ready in the host: the one that it was copied
 * to early; a slot of its own, where it is clearly hotter than the expert that has it; else one of
 * a pass-through slot. False: none is free. */
static bool place(struct sl_fetch *f, const struct sl_held *h) {
    struct sl_tiers *t = f->tiers;
    struct sl_pass_slot *early = sl_pass_find(&t->pass, h->id), *slot;
    struct sl_fill fill;
    if (early)
        take_early(t, early);
    if (sl_cache_prefetch(t->cache, SL_PREFETCH_MOVE, &h->id, 1, sl_fetch_now(f), &fill)) {
        t->moves[t->n_moves++] = (struct sl_tiers_move){
            .fill = fill,
            .src = early ? sl_pass_at(&t->pass, early) : sl_tiers_host_slot(t, h->lease.slot),
            .link = !early};
        return true;
    }
    if (early)
        return true;
    if (!(slot = sl_pass_room(&t->pass)))
        return false;
    slot->state = SL_PASS_TAKEN;
    t->once[t->n_once++] =
        (struct sl_tiers_once){.slot = slot, .id = h->id, .copy = true, .host_slot = h->lease.slot};
    return true;
}

/* Places the first of n held experts, as many as one group takes: *out_n. */
static enum sl_status place_group(struct sl_fetch *f, uint32_t n, uint32_t *out_n) {
    struct sl_tiers *t = f->tiers;
    uint64_t e_bytes = t->layout->layers[f->run.layer].expert_bytes;
    uint32_t most = n, i;
    t->n_moves = t->n_moved = 0;
    if (has_prompt(f)) {
        most = t->cache ? t->pass.n / GROUP_PARTS : n;
        most = most * e_bytes < GROUP_BYTES ? most : (uint32_t)(GROUP_BYTES / e_bytes) + 1;
    }
    for (i = 0; i < n && i < most; i++) {
        if (!t->cache) {
            read_in_place(f, &f->run.held[i]);
            continue;
        }
        if (place(f, &f->run.held[i]))
            continue;
        if (i)
            break;
        /* All pass-through slots were taken by groups whose end has not been marked. */
        sl_point done;
        SL_TRY(sl_device_mark(t->dev, SL_QUEUE_OPS, &done));
        sl_pass_used(&t->pass, done);
        if (!place(f, &f->run.held[i]))
            return SL_ERR_INVALID; /* never: what is early leaves room */
    }
    *out_n = i;
    return SL_OK;
}

/* ---- copies ---- */

static enum sl_status begin_move(struct sl_fetch *f) {
    struct sl_tiers *t = f->tiers;
    const struct sl_tiers_move *m = &t->moves[t->n_moved++];
    SL_TRY(sl_tiers_copy_up(f, m));
    t->group[t->n_group++] =
        (struct sl_held){m->fill.id, sl_tiers_pin(t->cache, m->fill.id, sl_fetch_now(f))};
    return SL_OK;
}

/* Moves come last, since their slots may have to be emptied first. The last copy has a point of its
 * own, so that what came before it is computed while it is on its way. */
static enum sl_status begin_copies(struct sl_fetch *f) {
    struct sl_tiers *t = f->tiers;
    uint32_t left = t->n_moves;
    sl_point early = 0;
    for (uint32_t i = 0; i < t->n_once; i++) {
        const struct sl_pass_slot *s = t->once[i].slot;
        left += t->once[i].copy;
        if (t->once[i].early && s->up > early)
            early = s->up;
    }
    t->n_layer_copies += left;
    bool split = !has_prompt(f) && left && left + (early != 0) > 1;
    t->piece[SL_TIERS_COPIED].up = early;
    for (uint32_t i = 0, m = 0; left; left--) {
        if (split && left == 1 && (i || m))
            SL_TRY(sl_device_mark(t->dev, SL_QUEUE_UP, &t->piece[SL_TIERS_COPIED].up));
        while (i < t->n_once && !t->once[i].copy)
            i++;
        if (i == t->n_once) {
            m++;
            SL_TRY(begin_move(f));
            continue;
        }
        const struct sl_tiers_once *o = &t->once[i++];
        SL_TRY(sl_tiers_copy_once(f, o->id, o->host_slot, o->slot));
    }
    return SL_OK;
}

/* ---- calls ---- */

/* Adds the pairs of the experts that are marked in f->run.in_call to the arguments. */
static void end_piece(struct sl_fetch *f, uint32_t which, uint32_t n_experts, uint32_t *n_pairs) {
    struct sl_tiers *t = f->tiers;
    struct sl_tiers_piece *p = &t->piece[which];
    p->first = *n_pairs;
    p->n_pairs = n_experts ? sl_layer_run_list_marked(&f->run) : 0;
    p->n_experts = n_experts;
    memset(f->run.in_call, 0, f->layout->n_expert);
    memcpy(sl_tiers_arg_pairs(t, t->args) + p->first, f->run.pairs,
           p->n_pairs * sizeof *f->run.pairs);
    *n_pairs += p->n_pairs;
}

/* Which of what comes from a pass-through slot or has moved is the last copy. */
static uint32_t last_copy(const struct sl_tiers *t) {
    if (!t->piece[SL_TIERS_LAST].up)
        return UINT32_MAX;
    if (t->n_moves)
        return t->moves[t->n_moves - 1].fill.id.expert;
    uint32_t i = t->n_once;
    while (!t->once[--i].copy)
        ;
    return t->once[i].id.expert;
}

/* The pieces of a group: what is there or read in place; what is copied, but for the last; the last
 * copy. */
static uint32_t make_pieces(struct sl_fetch *f, uint32_t n_placed, bool hits) {
    struct sl_tiers *t = f->tiers;
    uint32_t n_pairs = 0, last = last_copy(t), n_here = hits ? t->n_hits : 0, n_copied = 0;
    for (uint32_t i = 0; i < n_here; i++)
        add(f, t->hits[i].id, sl_tiers_slot(t, t->hits[i].lease.slot));
    for (uint32_t i = 0; !t->cache && i < n_placed; i++, n_here++)
        f->run.in_call[f->run.held[i].id.expert] = 1;
    end_piece(f, SL_TIERS_THERE, n_here, &n_pairs);
    for (uint32_t i = 0; i < t->n_once; i++)
        add(f, t->once[i].id, sl_pass_at(&t->pass, t->once[i].slot));
    for (uint32_t i = 0; i < t->n_group; i++)
        add(f, t->group[i].id, sl_tiers_slot(t, t->group[i].lease.slot));
    if (last != UINT32_MAX)
        f->run.in_call[last] = 0;
    for (uint32_t e = 0; e < f->layout->n_expert; e++)
        n_copied += f->run.in_call[e];
    end_piece(f, SL_TIERS_COPIED, n_copied, &n_pairs);
    if (last != UINT32_MAX)
        f->run.in_call[last] = 1;
    end_piece(f, SL_TIERS_LAST, last != UINT32_MAX, &n_pairs);
    return n_pairs;
}

/* The pairs of a piece with their experts' places, if they are few enough to go with the launch. */
static void put_placed(const struct sl_fetch *f, const struct sl_tiers_piece *p,
                       struct sl_placed_pair *out_placed) {
    const uint32_t *pairs = sl_tiers_arg_pairs(f->tiers, f->tiers->args) + p->first;
    for (uint32_t i = 0; i < p->n_pairs; i++)
        out_placed[i] = (struct sl_placed_pair){f->refs[f->run.rows.ids[pairs[i]]], pairs[i]};
}

/* Calls the op for one piece. */
static enum sl_status call(struct sl_fetch *f, const struct sl_tiers_piece *p, bool placed,
                           struct sl_op_moe *op) {
    struct sl_tiers *t = f->tiers;
    struct sl_placed_pair few[SL_MOE_MAX_PLACED];
    uint64_t start = sl_fetch_now(f);
    if (p->up) /* of lost rows too: what has been copied counts as there when later ops have run */
        SL_TRY(sl_device_after(t->dev, SL_QUEUE_OPS, SL_QUEUE_UP, p->up));
    if (!p->n_pairs)
        return SL_OK; /* the rows that needed them are lost */
    bool all = !placed && p->n_pairs == f->run.rows.n * f->run.k;
    op->refs = NULL;
    op->device_refs = placed ? NULL : t->dev_args->addr;
    op->pairs = placed || all ? NULL : sl_tiers_arg_pairs(t, t->dev_args->addr) + p->first;
    op->n_pairs = p->n_pairs;
    op->placed = placed ? few : NULL;
    if (placed)
        put_placed(f, p, few);
    SL_TRY(sl_op_moe(t->dev, op));
    f->stats.calls++;
    if (f->timeline)
        sl_fetch_trace_call(f, start, p->n_experts, p->n_pairs);
    return SL_OK;
}

/* Many pairs need their lists and the table of places in the device's memory: one upload for all
 * calls, so that the later ones need not wait for more than their copies. */
static enum sl_status call_pieces(struct sl_fetch *f, uint32_t n_pairs, struct sl_op_moe *op) {
    struct sl_tiers *t = f->tiers;
    bool placed = t->dev->caps.moe_placed && !has_prompt(f);
    for (uint32_t i = 0; i < SL_TIERS_PIECES; i++)
        placed &= t->piece[i].n_pairs <= SL_MOE_MAX_PLACED;
    if (!placed) {
        size_t refs_bytes = f->layout->n_expert * sizeof *f->refs;
        memcpy(t->args, f->refs, refs_bytes);
        SL_TRY(sl_device_upload(
            t->dev, sl_span(t->dev_args, 0, refs_bytes + n_pairs * sizeof *f->run.pairs), t->args));
    }
    for (uint32_t i = 0; i < SL_TIERS_PIECES; i++)
        SL_TRY(call(f, &t->piece[i], placed, op));
    return SL_OK;
}

/* ---- groups ---- */

/* Prompt rows, waves and all groups but the last need their slots again within the layer. */
static enum sl_status point_after(struct sl_fetch *f, bool last, sl_point *out_point) {
    *out_point = 0;
    return has_prompt(f) || f->run.n_wanted || !last
               ? sl_device_mark(f->tiers->dev, SL_QUEUE_OPS, out_point)
               : SL_OK;
}

/* Keeps the leases of all that the calls of this group use. */
static enum sl_status keep_group(struct sl_fetch *f, uint32_t n, bool hits, bool last) {
    struct sl_tiers *t = f->tiers;
    sl_point done;
    SL_TRY(point_after(f, last, &done));
    sl_pass_used(&t->pass, done);
    for (; hits && t->n_hits; t->n_hits--)
        SL_TRY(sl_tiers_keep(t, t->hits[t->n_hits - 1].lease, false, SL_QUEUE_OPS, done));
    for (; t->n_group; t->n_group--)
        SL_TRY(sl_tiers_keep(t, t->group[t->n_group - 1].lease, false, SL_QUEUE_OPS, done));
    for (; t->n_once; t->n_once--) {
        const struct sl_tiers_once *o = &t->once[t->n_once - 1];
        if (o->early)
            SL_TRY(sl_tiers_keep(t, o->slot->host, true, SL_QUEUE_OPS, done));
    }
    enum sl_status status = SL_OK;
    uint32_t n_kept = 0;
    while (n_kept < n && status == SL_OK) {
        status = sl_tiers_keep(t, f->run.held[n_kept].lease, true, SL_QUEUE_OPS, done);
        n_kept += status == SL_OK;
    }
    sl_layer_run_ran(&f->run, n_kept);
    return status;
}

/* Computes the hits and the first of n held experts, *n of which are left then. */
static enum sl_status run_group(struct sl_fetch *f, uint32_t *n, struct sl_op_moe *op) {
    struct sl_tiers *t = f->tiers;
    uint32_t n_placed = 0;
    memset(t->piece, 0, sizeof t->piece);
    SL_TRY(place_group(f, *n, &n_placed));
    SL_TRY(begin_copies(f));
    uint32_t n_new = t->n_moves;
    for (uint32_t i = 0; i < t->n_once; i++)
        n_new += t->once[i].copy;
    if (n_new) {
        bool all_at_once = has_prompt(f) || (n_new == 1 && !t->piece[SL_TIERS_COPIED].up);
        uint32_t which = all_at_once ? SL_TIERS_COPIED : SL_TIERS_LAST;
        SL_TRY(sl_device_mark(t->dev, SL_QUEUE_UP, &t->piece[which].up));
    }
    *n -= n_placed;
    /* Of prompt rows what was copied early comes first: its slots are wanted again. The hits come
     * when there are copies to wait for. */
    bool hits = !*n || n_new || !has_prompt(f);
    SL_TRY(call_pieces(f, make_pieces(f, n_placed, hits), op));
    return keep_group(f, n_placed, hits, !*n);
}

static enum sl_status run_groups(struct sl_fetch *f, uint32_t n, struct sl_op_moe *op) {
    SL_TRY(sl_tiers_settle_passed(f->tiers));
    do {
        SL_TRY(run_group(f, &n, op));
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
    memset(f->run.in_call, 0, f->layout->n_expert);
}

/* ---- the CPU lane ---- */

void sl_tiers_feed_lane(struct sl_tiers *t, const struct sl_lane_io *io) {
    if (!t->lane)
        return;
    t->lane->fed = io != NULL;
    t->n_lane_held = 0;
    if (io)
        t->lane->io = *io;
}

bool sl_tiers_lane_begin(struct sl_tiers *t, uint32_t n_rows) {
    return t->lane && t->cache && sl_lane_begin(t->lane, n_rows);
}

void sl_tiers_lane_stepped(struct sl_tiers *t, uint32_t n_rows, uint64_t ns) {
    if (t->lane)
        sl_lane_stepped(t->lane, n_rows, ns);
}

/* An early copy that has ended. */
static bool is_up(struct sl_tiers *t, struct sl_expert_id id) {
    const struct sl_pass_slot *s = sl_pass_find(&t->pass, id);
    return s && sl_device_passed(t->dev, SL_QUEUE_UP, s->up) == SL_OK;
}

/* Hot enough to move to the device for good. */
static bool should_rise(struct sl_fetch *f, const struct sl_held *h) {
    return sl_cache_would_prefetch(f->tiers->cache, SL_PREFETCH_MOVE, h->id);
}

/* Where the host would compute all experts, nothing would ever move up to the device: now and then
 * one is left to it. */
#define RISE_LAYERS 16u

static bool rise_is_due(struct sl_fetch *f, uint32_t first, uint32_t n) {
    struct sl_tiers *t = f->tiers;
    if (t->lane->split.forced || ++t->rises_due < RISE_LAYERS)
        return false;
    for (uint32_t i = first; i < n; i++)
        if (should_rise(f, &f->run.held[i])) {
            t->rises_due = 0;
            return true;
        }
    return false;
}

/* Moves those of the first n held experts that the lane takes to the end of them, the coldest of
 * those that have not been copied early; returns their number. *behind: early copies are still
 * going up. */
static uint32_t choose_lane(struct sl_fetch *f, uint32_t n, bool *behind) {
    struct sl_tiers *t = f->tiers;
    uint32_t first = 0, n_up = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!sl_pass_find(&t->pass, f->run.held[i].id))
            continue;
        n_up += is_up(t, f->run.held[i].id);
        sl_layer_run_swap(&f->run, i, first++);
    }
    uint64_t bytes = f->layout->layers[f->run.layer].expert_bytes;
    t->n_lane_held = n;
    *behind = n_up < first;
    uint32_t n_lane =
        sl_lane_split_choose(&t->lane->split, n - first, bytes, (first - n_up) * bytes);
    if (sl_lane_split_tries_soon(&t->lane->split))
        sl_device_wake(t->lane->cpu);
    if (n_lane && n_lane == n - first && rise_is_due(f, first, n))
        n_lane--;
    const float *heat = sl_heat_layer(t->heat, f->run.layer);
    for (uint32_t left = n; left > n - n_lane; left--) {
        uint32_t coldest = first;
        for (uint32_t i = first + 1; i < left; i++)
            if (heat[f->run.held[i].id.expert] < heat[f->run.held[coldest].id.expert])
                coldest = i;
        sl_layer_run_swap(&f->run, coldest, left - 1);
    }
    return n_lane;
}

/* The device's part of a layer that the lane shares. */
struct device_part {
    struct sl_fetch *f;
    struct sl_op_moe *op;
    uint32_t n;      /* held experts, the first ones */
    uint64_t copied; /* bytes that went up the link for them, */
    sl_point up;     /* until this point of SL_QUEUE_UP; 0: none */
};

static enum sl_status run_device_part(void *ctx) {
    struct device_part *p = ctx;
    struct sl_tiers *t = p->f->tiers;
    uint64_t before = t->stats.link_up_bytes;
    if (p->n || t->n_hits)
        SL_TRY(run_groups(p->f, p->n, p->op));
    p->copied = t->stats.link_up_bytes - before;
    return p->copied ? sl_device_mark(t->dev, SL_QUEUE_UP, &p->up) : SL_OK;
}

/* The pairs of the n held experts from `first` on, whose places are the lane's to read. */
static uint32_t list_lane(struct sl_fetch *f, uint32_t first, uint32_t n) {
    struct sl_lane *lane = f->tiers->lane;
    const struct sl_expert_layout *l = f->layout;
    for (uint32_t i = first; i < first + n; i++) {
        struct sl_expert_id id = f->run.held[i].id;
        const uint8_t *slot = sl_slots_at(f->slots, f->run.held[i].lease.slot);
        lane->refs[id.expert] = (struct sl_expert_ref){
            .gate = slot + sl_expert_layout_place(l, id.layer, id.expert, 0),
            .up = slot + sl_expert_layout_place(l, id.layer, id.expert, 1),
            .down = slot + sl_expert_layout_place(l, id.layer, id.expert, 2),
        };
        f->run.in_call[id.expert] = 1;
    }
    uint32_t n_pairs = sl_layer_run_list_marked(&f->run);
    memset(f->run.in_call, 0, l->n_expert);
    memcpy(lane->pairs, f->run.pairs, n_pairs * sizeof *lane->pairs);
    return n_pairs;
}

/* Computes the last n_lane of n held experts on the host, while the device's part is begun. */
static enum sl_status run_lane(struct sl_fetch *f, uint32_t n_lane, struct device_part *device) {
    struct sl_tiers *t = f->tiers;
    struct sl_op_moe own = *device->op;
    uint64_t start = sl_fetch_now(f);
    own.ids = f->run.rows.ids;
    own.refs = t->lane->refs;
    own.device_refs = NULL;
    own.placed = NULL;
    own.overlap = NULL;
    own.n_pairs = list_lane(f, device->n, n_lane);
    own.pairs = t->lane->pairs;
    if (own.n_pairs)
        SL_TRY(sl_lane_run(t->lane, t->dev, &own, n_lane,
                           n_lane * f->layout->layers[f->run.layer].expert_bytes,
                           &(struct sl_lane_overlap){run_device_part, device}));
    else /* the rows that needed them are lost */
        SL_TRY(run_device_part(device));
    if (f->timeline)
        sl_fetch_trace_lane(f, start, n_lane, own.n_pairs);
    for (uint32_t i = 0; i < n_lane; i++)
        sl_cache_release(f->cache, &f->run.held[i].lease, 1);
    sl_layer_run_ran(&f->run, n_lane);
    return SL_OK;
}

/* How long did the layer's copies take? Waited for only now and then: nothing else could begin
 * before they have ended, but it could be enqueued. behind: they began behind earlier ones, so that
 * they took that long at most. */
static enum sl_status time_copies(struct sl_fetch *f, sl_point up, uint64_t bytes,
                                  uint64_t start_ns, bool behind) {
    struct sl_tiers *t = f->tiers;
    struct sl_lane_split *split = &t->lane->split;
    enum sl_status status = sl_device_passed(t->dev, SL_QUEUE_UP, up);
    if (status == SL_OK) {
        sl_lane_split_had_linked(split, bytes, sl_fetch_now(f) - start_ns);
    } else if (status == SL_AGAIN && sl_lane_split_wants_time(split) && !behind) {
        SL_TRY(sl_device_await(t->dev, SL_QUEUE_UP, up));
        sl_lane_split_linked(split, bytes, sl_fetch_now(f) - start_ns);
    } else if (status != SL_AGAIN) {
        return status;
    }
    return SL_OK;
}

/* The host computes its share while the device computes and copies the other. */
static enum sl_status run_both(struct sl_fetch *f, uint32_t n, struct sl_op_moe *op) {
    struct sl_tiers *t = f->tiers;
    bool behind;
    uint32_t n_lane = choose_lane(f, n, &behind);
    struct device_part device = {.f = f, .op = op, .n = n - n_lane};
    uint64_t start = sl_fetch_now(f);
    if (n_lane)
        SL_TRY(run_lane(f, n_lane, &device));
    else
        SL_TRY(run_device_part(&device));
    bool looks = n_lane || sl_lane_split_wants_time(&t->lane->split);
    return device.copied && looks ? time_copies(f, device.up, device.copied, start, behind) : SL_OK;
}

enum sl_status sl_tiers_call(struct sl_fetch *f, uint32_t n, struct sl_op_moe *op) {
    bool lane = f->tiers->lane && f->tiers->lane->fed && f->tiers->cache && !has_prompt(f);
    enum sl_status status = lane ? run_both(f, n, op) : run_groups(f, n, op);
    if (status != SL_OK)
        abandon(f, status);
    return status;
}
