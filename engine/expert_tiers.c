#include "engine/expert_tiers.h"

#include "common/log.h"
#include "common/metrics.h"
#include "engine/expert_fetch_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Experts that one call of a prompt's rows copies up: enough for the call to be worth its launches,
 * few enough that the link and the kernels work side by side. */
#define GROUP_BYTES (32u << 20)
/* Warm experts that one call copies up. */
#define WARM_BATCH 8u
/* Experts that pass through the window in one layer, in layers' top-k. */
#define WINDOW_TOP_K 2u
/* Slots begin at whole blocks on the device too. */
#define ALIGN_BYTES 4096u
#define NO_SLOT     UINT32_MAX

/* A fill of a device slot that has been decided and not yet begun, for held expert `held`. */
struct move {
    struct sl_fill fill;
    uint32_t held;
};

/* A lease that the device may still be using. */
struct kept {
    struct sl_lease lease;
    bool host;
    enum sl_queue queue;
    sl_point point; /* 0: none was marked; past when the next router has been read back */
};

struct sl_tiers {
    struct sl_device *dev;
    const struct sl_expert_layout *layout;
    const struct sl_slab *slab;
    struct sl_heat *heat;
    struct sl_cache *host;
    struct sl_cache *cache; /* NULL: integrated */
    struct sl_slots slots;  /* device addresses */
    void *memory;
    size_t memory_bytes;
    char *mapped; /* the slab, as kernels see it */
    uint32_t *at; /* [n_layer, n_expert] device slot, or NO_SLOT */
    uint32_t n_on, n_all, version;
    uint32_t warm_cursor;

    struct kept *kept; /* a ring */
    uint32_t kept_head, n_kept, kept_cap;
    struct sl_lease *going_down; /* [n_expert] fills of host slots by copies down */
    uint32_t n_going_down;
    bool up_open; /* copies up of this layer whose slots are not leased */
    sl_point up_point;

    struct sl_held *hits; /* [n_expert] leased on the device, not yet computed */
    uint32_t n_hits;
    char *window; /* [n_window] room for any expert, for one use; NULL: none */
    uint32_t n_window, n_window_used;
    size_t window_slot_bytes;
    struct move *moves;    /* [n_expert] of the call that runs */
    uint16_t *once;        /* [n_window] experts that it copied into the window */
    struct sl_held *group; /* [n_expert] copied up by the call that runs */
    uint32_t n_group;
    /* What calls of the op read: refs [n_expert], then lists of pairs [max_rows * k]; here, and in
     * the device's memory. */
    void *args, *dev_args;
    size_t args_bytes;
    struct sl_tiers_stats stats;
};

#define TRY(call)                                                                                  \
    do {                                                                                           \
        enum sl_status try_st = (call);                                                            \
        if (try_st != SL_OK)                                                                       \
            return try_st;                                                                         \
    } while (0)

static uint32_t kept_cap(const struct sl_expert_layout *l) {
    return 4 * l->n_expert + 4 * WARM_BATCH;
}

static size_t args_bytes(const struct sl_expert_layout *l, uint32_t max_rows) {
    return l->n_expert * sizeof(struct sl_expert_ref) + (size_t)max_rows * l->k * sizeof(uint32_t);
}

/* Where the lists of pairs begin. */
static uint32_t *arg_pairs(const struct sl_tiers *t, void *args) {
    return (uint32_t *)((char *)args + t->layout->n_expert * sizeof(struct sl_expert_ref));
}

size_t sl_tiers_host_bytes(const struct sl_expert_layout *l, uint32_t n_slots, uint32_t max_rows) {
    struct sl_heat_config shape = {.n_layer = l->n_layer, .n_expert = l->n_expert, .k = l->k};
    struct sl_tiers *t;
    return sizeof *t + (size_t)l->n_layer * l->n_expert * sizeof *t->at +
           l->n_expert *
               (sizeof *t->hits + sizeof *t->group + sizeof *t->moves + sizeof *t->going_down) +
           WINDOW_TOP_K * l->k * sizeof *t->once + kept_cap(l) * sizeof *t->kept +
           sl_cache_bytes(&shape, n_slots) + args_bytes(l, max_rows) +
           n_slots * sizeof(struct sl_expert_id); /* of the warm-up's list */
}

static size_t largest_slot(const struct sl_expert_layout *l) {
    uint32_t most = 0;
    for (uint32_t c = 0; c < l->n_class; c++)
        if (l->classes[c].slot.slot_bytes > most)
            most = l->classes[c].slot.slot_bytes;
    return most;
}

uint64_t sl_tiers_device_bytes(const struct sl_expert_layout *l, uint32_t max_rows) {
    return ALIGN_BYTES + (uint64_t)WINDOW_TOP_K * l->k * largest_slot(l) + args_bytes(l, max_rows);
}

/* ---- create, destroy ---- */

static enum sl_status create_cache(struct sl_tiers *t, const uint32_t *class_slots,
                                   struct sl_err *err) {
    const struct sl_expert_layout *l = t->layout;
    uint32_t slot_bytes[SL_SLAB_CLASSES];
    for (uint32_t c = 0; c < l->n_class; c++)
        slot_bytes[c] = l->classes[c].slot.slot_bytes;
    size_t bytes = sl_slots_size_bytes(slot_bytes, class_slots, l->n_class);
    t->n_window = WINDOW_TOP_K * l->k;
    t->window_slot_bytes = largest_slot(l);
    t->memory_bytes = bytes + ALIGN_BYTES + t->n_window * t->window_slot_bytes;
    enum sl_status st = sl_device_alloc(t->dev, t->memory_bytes, &t->memory);
    if (st != SL_OK) {
        t->memory = NULL;
        return sl_fail(err, st, "no memory for %.1f MiB of expert slots on %s",
                       (double)bytes / 0x1p20, t->dev->caps.name);
    }
    uintptr_t base = ((uintptr_t)t->memory + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    t->window = (char *)base + bytes;
    const struct sl_slab place = {.base = (uint8_t *)base, .size_bytes = bytes};
    st = sl_slots_init(&t->slots, &place, 0, slot_bytes, class_slots, l->n_class, err);
    return st == SL_OK ? sl_cache_create(&(struct sl_cache_config){.heat = t->heat,
                                                                   .layer_class = l->layer_class,
                                                                   .n_class = l->n_class,
                                                                   .class_slots = class_slots,
                                                                   .source = SL_TIER_HOST},
                                         &t->cache, err)
                       : st;
}

enum sl_status sl_tiers_create(struct sl_fetch *f, const struct sl_tiers_config *config,
                               struct sl_err *err) {
    const struct sl_expert_layout *l = f->layout;
    struct sl_tiers *t = calloc(1, sizeof *t);
    if (!t)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the table of device slots");
    t->dev = config->dev;
    t->layout = l;
    t->heat = f->heat;
    t->host = f->cache;
    t->n_all = l->n_layer * l->n_expert;
    t->kept_cap = kept_cap(l);
    t->at = malloc(t->n_all * sizeof *t->at);
    t->kept = calloc(t->kept_cap, sizeof *t->kept);
    t->hits = calloc(l->n_expert, sizeof *t->hits);
    t->group = calloc(l->n_expert, sizeof *t->group);
    t->going_down = calloc(l->n_expert, sizeof *t->going_down);
    t->moves = calloc(l->n_expert, sizeof *t->moves);
    t->once = calloc(WINDOW_TOP_K * l->k, sizeof *t->once);
    enum sl_status st = SL_OK;
    if (!t->at || !t->kept || !t->hits || !t->group || !t->going_down || !t->moves || !t->once)
        st = sl_fail(err, SL_ERR_NOMEM, "no memory for the table of device slots");
    else
        memset(t->at, 0xff, t->n_all * sizeof *t->at);
    void *mapped;
    if (st == SL_OK) {
        st = sl_device_map_host(t->dev, config->slab->base, config->slab->size_bytes, &mapped);
        if (st != SL_OK)
            st = sl_fail(err, st, "%s cannot use %.1f MiB of the host's memory in place: %s",
                         t->dev->caps.name, (double)config->slab->size_bytes / 0x1p20,
                         sl_status_text(st));
    }
    if (st == SL_OK) {
        t->slab = config->slab;
        t->mapped = mapped;
    }
    t->args_bytes = args_bytes(l, config->max_rows);
    t->args = malloc(t->args_bytes);
    if (st == SL_OK && !t->args)
        st = sl_fail(err, SL_ERR_NOMEM, "no memory for a list of pairs");
    if (st == SL_OK) {
        st = sl_device_alloc(t->dev, t->args_bytes, &t->dev_args);
        if (st != SL_OK) {
            t->dev_args = NULL;
            st = sl_fail(err, st, "no memory for a list of pairs on %s", t->dev->caps.name);
        }
    }
    if (st == SL_OK && config->class_slots)
        st = create_cache(t, config->class_slots, err);
    if (st != SL_OK) {
        sl_tiers_destroy(&t);
        return st;
    }
    f->tiers = t;
    return SL_OK;
}

void sl_tiers_destroy(struct sl_tiers **pt) {
    struct sl_tiers *t = *pt;
    if (!t)
        return;
    (void)!sl_device_sync(t->dev); /* a lost device has nothing under way */
    if (t->slab)
        sl_device_unmap_host(t->dev, t->slab->base, t->slab->size_bytes);
    if (t->dev_args)
        sl_device_free(t->dev, t->dev_args, t->args_bytes);
    free(t->args);
    if (t->memory)
        sl_device_free(t->dev, t->memory, t->memory_bytes);
    if (t->cache)
        sl_cache_destroy(&t->cache);
    free(t->at);
    free(t->kept);
    free(t->hits);
    free(t->group);
    free(t->going_down);
    free(t->moves);
    free(t->once);
    free(t);
    *pt = NULL;
}

/* ---- where experts are ---- */

static uint32_t *at(const struct sl_tiers *t, struct sl_expert_id id) {
    return &t->at[(size_t)id.layer * t->layout->n_expert + id.expert];
}

bool sl_tiers_has(const struct sl_tiers *t, struct sl_expert_id id) {
    return *at(t, id) != NO_SLOT;
}

static struct sl_expert_ref ref_in(const struct sl_tiers *t, struct sl_expert_id id,
                                   const char *slot) {
    return (struct sl_expert_ref){
        .gate = slot + sl_expert_layout_place(t->layout, id.layer, id.expert, 0),
        .up = slot + sl_expert_layout_place(t->layout, id.layer, id.expert, 1),
        .down = slot + sl_expert_layout_place(t->layout, id.layer, id.expert, 2),
    };
}

static char *device_slot(const struct sl_tiers *t, uint32_t slot) {
    return (char *)sl_slots_at(&t->slots, slot);
}

void sl_tiers_refs(const struct sl_tiers *t, uint32_t layer, struct sl_expert_ref *out_refs) {
    for (uint32_t e = 0; e < t->layout->n_expert; e++) {
        struct sl_expert_id id = {(uint16_t)layer, (uint16_t)e};
        assert(sl_tiers_has(t, id));
        out_refs[e] = ref_in(t, id, device_slot(t, *at(t, id)));
    }
}

bool sl_tiers_complete(const struct sl_tiers *t) {
    return t->n_on == t->n_all;
}

uint32_t sl_tiers_version(const struct sl_tiers *t) {
    return t->version;
}

const struct sl_tiers_stats *sl_tiers_stats(const struct sl_tiers *t) {
    return &t->stats;
}

const struct sl_cache *sl_tiers_cache(const struct sl_tiers *t) {
    return t->cache;
}

/* ---- leases that the device may still be using ---- */

static void let_go(struct sl_tiers *t, const struct kept *k) {
    sl_cache_release(k->host ? t->host : t->cache, &k->lease, 1);
}

/* All that was enqueued has run. */
static void settle(struct sl_tiers *t, uint64_t now_ns) {
    for (; t->n_kept; t->n_kept--, t->kept_head = (t->kept_head + 1) % t->kept_cap)
        let_go(t, &t->kept[t->kept_head]);
    for (; t->n_going_down; t->n_going_down--)
        sl_cache_filled(t->host, t->going_down[t->n_going_down - 1], SL_OK, now_ns);
    t->up_open = false;
}

/* Of the oldest, as far as their points have passed. */
static enum sl_status settle_passed(struct sl_tiers *t) {
    while (t->n_kept && t->kept[t->kept_head].point) {
        const struct kept *k = &t->kept[t->kept_head];
        enum sl_status st = sl_device_passed(t->dev, k->queue, k->point);
        if (st != SL_OK)
            return st == SL_AGAIN ? SL_OK : st;
        let_go(t, k);
        t->n_kept--;
        t->kept_head = (t->kept_head + 1) % t->kept_cap;
    }
    return SL_OK;
}

enum sl_status sl_tiers_drain(struct sl_tiers *t, bool *out_any) {
    *out_any = t->n_kept || t->n_going_down;
    if (!*out_any)
        return SL_OK;
    const struct kept *k = &t->kept[t->kept_head];
    if (t->n_kept && k->point) {
        TRY(sl_device_await(t->dev, k->queue, k->point));
        return settle_passed(t);
    }
    TRY(sl_device_sync(t->dev));
    settle(t, 0);
    return SL_OK;
}

static enum sl_status keep(struct sl_tiers *t, struct sl_lease lease, bool host,
                           enum sl_queue queue, sl_point point) {
    while (t->n_kept == t->kept_cap) {
        bool any;
        TRY(sl_tiers_drain(t, &any));
    }
    t->kept[(t->kept_head + t->n_kept++) % t->kept_cap] = (struct kept){lease, host, queue, point};
    return SL_OK;
}

/* ---- copies ---- */

/* The stretch of a slot from its first payload byte to the last. */
static void payload(const struct sl_tiers *t, struct sl_expert_id id, size_t *out_from,
                    size_t *out_bytes) {
    const struct sl_routed_layer *l = &t->layout->layers[id.layer];
    *out_from = sl_expert_layout_place(t->layout, id.layer, id.expert, 0);
    *out_bytes = sl_expert_layout_place(t->layout, id.layer, id.expert, SL_EXPERT_EXTENTS - 1) +
                 l->extent[SL_EXPERT_EXTENTS - 1].size_bytes - *out_from;
}

/* The expert that loses its slot goes down to the host, if it is worth a slot there. */
static enum sl_status demote(struct sl_fetch *f, struct sl_expert_id id, const char *slot) {
    struct sl_tiers *t = f->tiers;
    struct sl_fill fill;
    *at(t, id) = NO_SLOT;
    t->n_on--;
    sl_cache_elsewhere(t->host, id, false);
    if (sl_cache_has(t->host, id) || t->n_going_down == t->layout->n_expert ||
        !sl_cache_prefetch(t->host, SL_PREFETCH_MOVE, &id, 1, sl_fetch_now(f), &fill))
        return SL_OK;
    t->going_down[t->n_going_down++] = fill.lease;
    size_t from, bytes;
    sl_point point;
    payload(t, id, &from, &bytes);
    if (t->up_open)
        TRY(sl_device_after(t->dev, SL_QUEUE_DOWN, SL_QUEUE_UP, t->up_point));
    TRY(sl_device_copy(t->dev, SL_QUEUE_DOWN, sl_slots_at(f->slots, fill.lease.slot) + from,
                       slot + from, bytes));
    TRY(sl_device_mark(t->dev, SL_QUEUE_DOWN, &point));
    TRY(sl_device_after(t->dev, SL_QUEUE_UP, SL_QUEUE_DOWN, point));
    t->stats.demotions++;
    t->stats.down_bytes += bytes;
    sl_count(expert_demotions_total, 1);
    sl_count(link_down_bytes_total, bytes);
    return SL_OK;
}

/* Copies an expert from its host slot to the device slot of a fill that has been started. The slot
 * counts as filled: all ops enqueued after sl_tiers_up_done see it. */
static enum sl_status copy_up(struct sl_fetch *f, const struct sl_fill *fill, uint32_t host_slot) {
    struct sl_tiers *t = f->tiers;
    char *slot = device_slot(t, fill->lease.slot);
    size_t from, bytes;
    enum sl_status st = fill->evicted ? demote(f, fill->victim, slot) : SL_OK;
    payload(t, fill->id, &from, &bytes);
    if (st == SL_OK)
        st = sl_device_copy(t->dev, SL_QUEUE_UP, slot + from,
                            sl_slots_at(f->slots, host_slot) + from, bytes);
    sl_cache_filled(t->cache, fill->lease, st, sl_fetch_now(f));
    if (st != SL_OK)
        return st;
    *at(t, fill->id) = fill->lease.slot;
    if (++t->n_on == t->n_all)
        t->version++;
    sl_cache_elsewhere(t->host, fill->id, true);
    t->stats.promotions++;
    t->stats.up_bytes += bytes;
    sl_count(expert_promotions_total, 1);
    sl_count(link_up_bytes_total, bytes);
    return SL_OK;
}

/* Ops enqueued from now on run after the copies up so far. */
static enum sl_status up_done(struct sl_tiers *t, sl_point *out_point) {
    TRY(sl_device_mark(t->dev, SL_QUEUE_UP, out_point));
    return sl_device_after(t->dev, SL_QUEUE_OPS, SL_QUEUE_UP, *out_point);
}

/* ---- a layer ---- */

/* The slot is there and ready: pins it. */
static struct sl_lease pin(struct sl_cache *c, struct sl_expert_id id, uint64_t now_ns) {
    struct sl_lease lease;
    struct sl_fill none;
    uint32_t n_fill, n_taken;
    enum sl_status st =
        sl_cache_acquire_some(c, &id, 1, 0, now_ns, &lease, &none, &n_fill, &n_taken);
    assert(st == SL_OK && n_taken == 1 && n_fill == 0);
    (void)st;
    return lease;
}

void sl_tiers_begin(struct sl_fetch *f) {
    struct sl_tiers *t = f->tiers;
    uint64_t now = sl_fetch_now(f);
    assert(!t->n_hits);
    settle(t, now);
    t->n_window_used = 0;
    uint32_t keep_n = 0;
    for (uint32_t i = 0; i < f->n_wanted; i++) {
        struct sl_expert_id id = f->wanted[i];
        if (sl_tiers_has(t, id))
            t->hits[t->n_hits++] = (struct sl_held){id, pin(t->cache, id, now)};
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
        TRY(sl_tiers_drain(t, &any));
    }
    return SL_OK;
}

/* Takes held expert i, which is ready in the host, up if that pays: at once when several rows need
 * it, else when the group's other copies have been enqueued, since its slot may have to be emptied
 * first. *out_up: it does; then its device lease is, or will be, in the group. */
static enum sl_status consider(struct sl_fetch *f, uint32_t i, uint32_t *n_moves, bool *out_up) {
    struct sl_tiers *t = f->tiers;
    const struct sl_held *h = &f->held[i];
    struct sl_fill fill;
    *out_up = false;
    if (!t->cache)
        return SL_OK;
    if (f->pair_count[h->id.expert] > 1) {
        TRY(claim(f, h->id, f->rows.n > f->rows.n_decode && !t->n_group, &fill, out_up));
        if (!*out_up)
            return SL_OK;
        TRY(copy_up(f, &fill, h->lease.slot));
        t->group[t->n_group++] = (struct sl_held){h->id, fill.lease};
        return SL_OK;
    }
    *out_up = sl_cache_prefetch(t->cache, SL_PREFETCH_MOVE, &h->id, 1, sl_fetch_now(f), &fill);
    if (*out_up)
        t->moves[(*n_moves)++] = (struct move){fill, i};
    return SL_OK;
}

static enum sl_status make_moves(struct sl_fetch *f, uint32_t n_moves) {
    struct sl_tiers *t = f->tiers;
    for (uint32_t i = 0; i < n_moves; i++) {
        const struct sl_held *h = &f->held[t->moves[i].held];
        TRY(copy_up(f, &t->moves[i].fill, h->lease.slot));
        t->group[t->n_group++] = (struct sl_held){h->id, pin(t->cache, h->id, sl_fetch_now(f))};
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
    payload(t, h->id, &from, &bytes);
    TRY(sl_device_copy(t->dev, SL_QUEUE_UP, place + from,
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
    memcpy(arg_pairs(f->tiers, f->tiers->args) + n_before, f->pairs, n * sizeof *f->pairs);
    return n;
}

/* Calls the op for n listed pairs that begin at `first`, or for all. */
static enum sl_status call(struct sl_fetch *f, bool all, uint32_t first, uint32_t n,
                           uint32_t n_experts, struct sl_op_moe *op) {
    struct sl_tiers *t = f->tiers;
    uint64_t start = sl_fetch_now(f);
    op->refs = NULL;
    op->device_refs = t->dev_args;
    op->pairs = all ? NULL : arg_pairs(t, t->dev_args) + first;
    op->n_pairs = all ? f->rows.n * f->layout->k : n;
    if (!op->n_pairs)
        return SL_OK; /* the rows that needed them are lost */
    TRY(sl_op_moe(t->dev, op));
    f->stats.calls++;
    if (f->timeline)
        sl_fetch_trace_call(f, start, n_experts, op->n_pairs);
    return SL_OK;
}

static void add(struct sl_fetch *f, struct sl_expert_id id, const char *slot) {
    f->refs[id.expert] = ref_in(f->tiers, id, slot);
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
    uint32_t n_moves = 0;
    *out_n_now = t->n_hits;
    *out_n_once = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct sl_held *h = &f->held[i];
        uint32_t pairs = f->pair_count[h->id.expert];
        bool up;
        TRY(consider(f, i, &n_moves, &up));
        if (up)
            continue;
        if (pairs == 1 && t->n_window_used < t->n_window) {
            const char *place;
            TRY(copy_for_once(f, h, &place));
            f->refs[h->id.expert] = ref_in(t, h->id, place);
            t->once[(*out_n_once)++] = (uint16_t)h->id.expert;
            continue;
        }
        uint64_t bytes = pairs * t->layout->layers[h->id.layer].expert_bytes;
        add(f, h->id, t->mapped + (sl_slots_at(f->slots, h->lease.slot) - t->slab->base));
        ++*out_n_now;
        t->stats.in_place_bytes += bytes;
        sl_count(link_read_bytes_total, bytes);
    }
    return make_moves(f, n_moves);
}

/* Keeps the leases of all that the calls of this group use. */
static enum sl_status keep_group(struct sl_fetch *f, uint32_t n) {
    struct sl_tiers *t = f->tiers;
    sl_point done;
    TRY(point_after(f, &done));
    for (; t->n_hits; t->n_hits--)
        TRY(keep(t, t->hits[t->n_hits - 1].lease, false, SL_QUEUE_OPS, done));
    for (; t->n_group; t->n_group--)
        TRY(keep(t, t->group[t->n_group - 1].lease, false, SL_QUEUE_OPS, done));
    for (uint32_t i = 0; i < n; i++)
        TRY(keep(t, f->held[i].lease, true, SL_QUEUE_OPS, done));
    memmove(f->held, f->held + n, (f->n_held - n) * sizeof *f->held);
    f->n_held -= n;
    return SL_OK;
}

/* Computes the hits and the first n of held: what is there or read in place at once, then what is
 * copied up. */
static enum sl_status run_group(struct sl_fetch *f, uint32_t n, bool last, struct sl_op_moe *op) {
    struct sl_tiers *t = f->tiers;
    uint32_t n_now, n_once, n_first = 0, n_second = 0;
    TRY(begin_copies(f, n, &n_now, &n_once));
    uint32_t n_up = t->n_group + n_once;
    bool all = f->dense_call && last && !f->n_wanted && n == f->n_held && (!n_now || !n_up);
    for (uint32_t i = 0; i < t->n_hits; i++)
        add(f, t->hits[i].id, device_slot(t, t->hits[i].lease.slot));
    if (n_now && !all)
        n_first = list_pairs(f, 0);
    for (uint32_t i = 0; i < n_once; i++)
        f->in_call[t->once[i]] = 1;
    for (uint32_t i = 0; i < t->n_group; i++)
        add(f, t->group[i].id, device_slot(t, t->group[i].lease.slot));
    if (n_up && !all)
        n_second = list_pairs(f, n_first);
    memset(f->in_call, 0, f->layout->n_expert);
    /* One upload for both calls, so that the second need not wait for more than its copies. */
    size_t refs_bytes = f->layout->n_expert * sizeof *f->refs;
    memcpy(t->args, f->refs, refs_bytes);
    TRY(sl_device_upload(t->dev, t->dev_args, t->args,
                         refs_bytes + (n_first + n_second) * sizeof *f->pairs));
    if (n_now)
        TRY(call(f, all, 0, n_first, n_now, op));
    if (n_up) {
        sl_point up;
        TRY(up_done(t, &up));
        TRY(call(f, all, n_first, n_second, n_up, op));
    }
    f->dense_call = false;
    return keep_group(f, n);
}

enum sl_status sl_tiers_call(struct sl_fetch *f, uint32_t n, struct sl_op_moe *op) {
    TRY(settle_passed(f->tiers));
    uint32_t most = n;
    if (f->rows.n > f->rows.n_decode) {
        uint64_t e_bytes = f->layout->layers[f->layer].expert_bytes;
        most = (uint32_t)(GROUP_BYTES / e_bytes) + 1;
    }
    do {
        uint32_t m = n < most ? n : most;
        TRY(run_group(f, m, m == n, op));
        n -= m;
    } while (n);
    return SL_OK;
}

/* ---- when nothing runs ---- */

bool sl_tiers_warming(const struct sl_fetch *f) {
    const struct sl_tiers *t = f->tiers;
    return t->cache && t->warm_cursor < f->n_warm && t->warm_cursor < f->warm_cursor;
}

void sl_tiers_warm(struct sl_fetch *f) {
    struct sl_tiers *t = f->tiers;
    struct sl_fill fill;
    sl_point point;
    uint32_t n = 0;
    enum sl_status st = t->n_kept || t->n_going_down ? sl_device_sync(t->dev) : SL_OK;
    if (st == SL_OK)
        settle(t, sl_fetch_now(f)); /* nothing runs, so it is soon */
    while (st == SL_OK && n < WARM_BATCH && sl_tiers_warming(f)) {
        struct sl_expert_id id = f->warm[t->warm_cursor];
        if (sl_cache_has(t->host, id) && !sl_cache_is_ready(t->host, id) && !sl_tiers_has(t, id))
            break; /* on its way */
        t->warm_cursor++;
        if (sl_tiers_has(t, id) || !sl_cache_is_ready(t->host, id) ||
            !sl_cache_prefetch(t->cache, SL_PREFETCH_WARMUP, &id, 1, sl_fetch_now(f), &fill))
            continue;
        struct sl_lease lease = pin(t->host, id, sl_fetch_now(f));
        st = copy_up(f, &fill, lease.slot);
        if (st == SL_OK)
            st = sl_device_mark(t->dev, SL_QUEUE_UP, &point);
        if (st == SL_OK)
            st = keep(t, lease, true, SL_QUEUE_UP, point);
        n++;
    }
    if (n && st == SL_OK)
        st = up_done(t, &t->up_point);
    t->up_open |= n > 0;
    if (st != SL_OK) { /* the next step will fail alike, and tell */
        sl_debug("warming up the device: %s", sl_status_text(st));
        t->warm_cursor = f->n_warm;
    }
}

void sl_tiers_forget(struct sl_fetch *f) {
    struct sl_tiers *t = f->tiers;
    (void)!sl_device_sync(t->dev); /* what cannot be waited for any more is told by the next op */
    sl_tiers_give_back(t);
    settle(t, sl_fetch_now(f));
    if (t->cache)
        sl_cache_forget(t->cache);
    for (uint32_t l = 0; l < t->layout->n_layer; l++)
        for (uint32_t e = 0; e < t->layout->n_expert; e++)
            sl_cache_elsewhere(t->host, (struct sl_expert_id){(uint16_t)l, (uint16_t)e}, false);
    memset(t->at, 0xff, t->n_all * sizeof *t->at);
    t->n_on = 0;
    t->warm_cursor = f->n_warm;
}
