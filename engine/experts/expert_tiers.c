#include "engine/experts/expert_tiers_internal.h"

#include "common/log.h"
#include "common/metrics.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Warm experts that one call copies up at most. */
#define WARM_BATCH 8u
/* Pass-through slots: at least PASS_TOP_K times a layer's top-k, which is enough for generated
 * rows, and PASS_LEAST, of which a quarter is kept free of early copies;
 * for prompts, whose next layer's experts should keep the link at work while this layer's end and
 * the next one's attention are computed, up to half of a layer's experts, PASS_BYTES, and one in
 * PASS_PART of all experts: what it takes, slots that keep their expert lack. */
#define PASS_TOP_K 2u
#define PASS_LEAST 4u
#define PASS_PART  96u
#define PASS_BYTES (192u << 20)

static uint32_t kept_cap(const struct sl_expert_layout *l) {
    return 4 * l->n_expert + 4 * WARM_BATCH;
}

static size_t args_bytes(const struct sl_expert_layout *l, uint32_t max_rows) {
    return l->n_expert * sizeof(struct sl_expert_ref) + (size_t)max_rows * l->k * sizeof(uint32_t);
}

static size_t largest_slot(const struct sl_expert_layout *l) {
    uint32_t most = 0;
    for (uint32_t c = 0; c < l->n_class; c++)
        if (l->classes[c].slot.slot_bytes > most)
            most = l->classes[c].slot.slot_bytes;
    return most;
}

static uint32_t n_pass_slots(const struct sl_expert_layout *l) {
    size_t n = PASS_BYTES / largest_slot(l), least = PASS_TOP_K * l->k, most = l->n_expert / 2;
    size_t part = l->n_all / PASS_PART;
    least = least > PASS_LEAST ? least : PASS_LEAST;
    n = n < most ? n : most;
    n = n < part ? n : part;
    return (uint32_t)(n > least ? n : least);
}

size_t sl_tiers_host_bytes(const struct sl_expert_layout *l, uint32_t n_slots, uint32_t max_rows) {
    struct sl_heat_config shape;
    sl_expert_layout_heat(l, 0, &shape);
    struct sl_tiers *t;
    return sizeof *t + (size_t)l->n_layer * l->n_expert * sizeof *t->at +
           l->n_expert *
               (sizeof *t->hits + sizeof *t->group + sizeof *t->moves + sizeof *t->going_down) +
           n_pass_slots(l) * (sizeof *t->once + sizeof *t->pass.slots) +
           kept_cap(l) * sizeof *t->kept + sl_cache_bytes(&shape, n_slots) +
           args_bytes(l, max_rows) +
           n_slots * sizeof(struct sl_expert_id); /* of the warm-up's list */
}

uint64_t sl_tiers_device_bytes(const struct sl_expert_layout *l, uint32_t max_rows) {
    return (uint64_t)n_pass_slots(l) * largest_slot(l) + args_bytes(l, max_rows);
}

/* ---- create, destroy ---- */

/* The host's slots, as the device knows them. */
static enum sl_status map_slots(struct sl_tiers *t, const struct sl_slots *slots,
                                struct sl_err *err) {
    uint32_t n_slots[SL_SLAB_CLASSES];
    for (uint32_t c = 0; c < slots->n_class; c++)
        n_slots[c] = slots->first_slot[c + 1] - slots->first_slot[c];
    SL_TRY(sl_slot_spans_init(&t->hosts, t->dev, slots->slot_bytes, n_slots, slots->n_class, err));
    enum sl_status status = sl_buffer_pool_map(&t->hosts.pool, t->dev, slots->base);
    return status == SL_OK
               ? status
               : sl_fail(err, status,
                         "%s cannot reach %.1f MiB of the host's memory, to be pinned for it: %s",
                         t->dev->caps.name, (double)slots->first_bytes[slots->n_class] / 0x1p20,
                         sl_status_text(status));
}

static enum sl_status create_cache(struct sl_tiers *t, const uint32_t *class_slots,
                                   struct sl_err *err) {
    const struct sl_expert_layout *l = t->layout;
    uint32_t slot_bytes[SL_SLAB_CLASSES];
    for (uint32_t c = 0; c < l->n_class; c++)
        slot_bytes[c] = l->classes[c].slot.slot_bytes;
    SL_TRY(sl_slot_spans_init(&t->slots, t->dev, slot_bytes, class_slots, l->n_class, err));
    struct sl_buffer_pool *pool = &t->slots.pool;
    uint64_t bytes = sl_buffer_pool_bytes(pool);
    t->pass.n = n_pass_slots(l);
    t->pass.pool = pool;
    enum sl_status status = sl_buffer_pool_add(pool, t->pass.n, largest_slot(l), &t->pass.items);
    if (status == SL_OK)
        status = sl_buffer_pool_alloc(pool, t->dev);
    if (status != SL_OK)
        return sl_fail(err, status, "no memory for %.1f MiB of expert slots on %s",
                       (double)bytes / 0x1p20, t->dev->caps.name);
    return sl_cache_create(&(struct sl_cache_config){.heat = t->heat,
                                                     .layer_class = l->layer_class,
                                                     .n_class = l->n_class,
                                                     .class_slots = class_slots,
                                                     .source = SL_TIER_HOST},
                           &t->cache, err);
}

enum sl_status sl_tiers_create(struct sl_fetch *f, const struct sl_tiers_config *config,
                               struct sl_err *err) {
    const struct sl_expert_layout *l = f->layout;
    struct sl_tiers *t = calloc(1, sizeof *t);
    if (!t) {
        struct sl_lane *lane = config->lane;
        sl_lane_destroy(&lane);
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the table of device slots");
    }
    t->dev = config->dev;
    t->lane = config->lane;
    t->layout = l;
    t->heat = f->heat;
    t->host = f->cache;
    t->n_all = l->n_all;
    t->kept_cap = kept_cap(l);
    size_t at_bytes = (size_t)l->n_layer * l->n_expert * sizeof *t->at;
    t->at = malloc(at_bytes);
    t->kept = calloc(t->kept_cap, sizeof *t->kept);
    t->hits = calloc(l->n_expert, sizeof *t->hits);
    t->group = calloc(l->n_expert, sizeof *t->group);
    t->going_down = calloc(l->n_expert, sizeof *t->going_down);
    t->moves = calloc(l->n_expert, sizeof *t->moves);
    t->once = calloc(n_pass_slots(l), sizeof *t->once);
    t->pass.slots = calloc(n_pass_slots(l), sizeof *t->pass.slots);
    enum sl_status status = SL_OK;
    if (!t->at || !t->kept || !t->hits || !t->group || !t->going_down || !t->moves || !t->once ||
        !t->pass.slots)
        status = sl_fail(err, SL_ERR_NOMEM, "no memory for the table of device slots");
    else
        memset(t->at, 0xff, at_bytes);
    if (status == SL_OK)
        status = map_slots(t, f->slots, err);
    size_t bytes = args_bytes(l, config->max_rows);
    t->args = malloc(bytes);
    if (status == SL_OK && !t->args)
        status = sl_fail(err, SL_ERR_NOMEM, "no memory for a list of pairs");
    if (status == SL_OK) {
        status = sl_device_alloc(t->dev, bytes, &t->dev_args);
        if (status != SL_OK)
            status = sl_fail(err, status, "no memory for a list of pairs on %s", t->dev->caps.name);
    }
    if (status == SL_OK && config->class_slots)
        status = create_cache(t, config->class_slots, err);
    if (status != SL_OK) {
        sl_tiers_destroy(&t);
        return status;
    }
    f->tiers = t;
    return SL_OK;
}

void sl_tiers_destroy(struct sl_tiers **pt) {
    struct sl_tiers *t = *pt;
    if (!t)
        return;
    (void)!sl_device_sync(t->dev); /* a lost device has nothing under way */
    sl_buffer_pool_release(&t->hosts.pool);
    sl_device_free(t->dev, &t->dev_args);
    free(t->args);
    sl_lane_destroy(&t->lane);
    sl_buffer_pool_release(&t->slots.pool);
    if (t->cache)
        sl_cache_destroy(&t->cache);
    free(t->at);
    free(t->kept);
    free(t->hits);
    free(t->group);
    free(t->going_down);
    free(t->moves);
    free(t->once);
    free(t->pass.slots);
    free(t);
    *pt = NULL;
}

const struct sl_lane *sl_tiers_lane(const struct sl_tiers *t) {
    return t->lane;
}

/* ---- where experts are ---- */

bool sl_tiers_has(const struct sl_tiers *t, struct sl_expert_id id) {
    return *sl_tiers_at(t, id) != SL_TIERS_NO_SLOT;
}

void sl_tiers_refs(const struct sl_tiers *t, uint32_t layer, struct sl_expert_ref *out_refs) {
    for (uint32_t e = 0; e < t->layout->layers[layer].n_expert; e++) {
        struct sl_expert_id id = {(uint16_t)layer, (uint16_t)e};
        assert(sl_tiers_has(t, id));
        out_refs[e] = sl_tiers_ref(t, id, sl_tiers_slot(t, *sl_tiers_at(t, id)));
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

static void let_go(struct sl_tiers *t, const struct sl_tiers_kept *k) {
    sl_cache_release(k->host ? t->host : t->cache, &k->lease, 1);
}

/* All that ops read has run. Copies that no op has waited for may still be under way. */
void sl_tiers_settle(struct sl_tiers *t, uint64_t now_ns) {
    for (uint32_t n = t->n_kept; n; n--) {
        struct sl_tiers_kept k = t->kept[t->kept_head];
        t->kept_head = (t->kept_head + 1) % t->kept_cap;
        t->n_kept--;
        if (k.queue == SL_QUEUE_UP && k.point &&
            sl_device_passed(t->dev, k.queue, k.point) == SL_AGAIN)
            t->kept[(t->kept_head + t->n_kept++) % t->kept_cap] = k;
        else
            let_go(t, &k);
    }
    sl_pass_settle(&t->pass);
    for (; t->n_going_down; t->n_going_down--)
        sl_cache_filled(t->host, t->going_down[t->n_going_down - 1], SL_OK, now_ns);
    t->up_open = false;
}

/* Of the oldest, as far as their points have passed. */
enum sl_status sl_tiers_settle_passed(struct sl_tiers *t) {
    while (t->n_kept && t->kept[t->kept_head].point) {
        const struct sl_tiers_kept *k = &t->kept[t->kept_head];
        enum sl_status status = sl_device_passed(t->dev, k->queue, k->point);
        if (status != SL_OK)
            return status == SL_AGAIN ? SL_OK : status;
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
    const struct sl_tiers_kept *k = &t->kept[t->kept_head];
    if (t->n_kept && k->point) {
        SL_TRY(sl_device_await(t->dev, k->queue, k->point));
        return sl_tiers_settle_passed(t);
    }
    SL_TRY(sl_device_sync(t->dev));
    sl_tiers_settle(t, 0);
    return SL_OK;
}

enum sl_status sl_tiers_keep(struct sl_tiers *t, struct sl_lease lease, bool host,
                             enum sl_queue queue, sl_point point) {
    while (t->n_kept == t->kept_cap) {
        bool any;
        SL_TRY(sl_tiers_drain(t, &any));
    }
    t->kept[(t->kept_head + t->n_kept++) % t->kept_cap] =
        (struct sl_tiers_kept){lease, host, queue, point};
    return SL_OK;
}

/* ---- copies ---- */

/* The stretch of a slot from its first payload byte to the last. */
static void payload(const struct sl_tiers *t, struct sl_expert_id id, size_t *out_from,
                    size_t *out_bytes) {
    const struct sl_routed_layer *l = &t->layout->layers[id.layer];
    *out_from = sl_expert_layout_place(t->layout, id.layer, id.expert, 0);
    *out_bytes = sl_expert_layout_place(t->layout, id.layer, id.expert, SL_EXPERT_MATRICES - 1) +
                 l->extent[sl_routed_extents(l) - 1].size_bytes - *out_from;
}

void sl_tiers_leave(struct sl_tiers *t, struct sl_expert_id id) {
    *sl_tiers_at(t, id) = SL_TIERS_NO_SLOT;
    t->n_on--;
    sl_cache_elsewhere(t->host, id, false);
}

static enum sl_status send_down(struct sl_tiers *t, struct sl_span to, struct sl_span from) {
    sl_point point;
    if (t->up_open)
        SL_TRY(sl_device_after(t->dev, SL_QUEUE_DOWN, SL_QUEUE_UP, t->up_point));
    SL_TRY(sl_device_copy(t->dev, SL_QUEUE_DOWN, to, from));
    SL_TRY(sl_device_mark(t->dev, SL_QUEUE_DOWN, &point));
    return sl_device_after(t->dev, SL_QUEUE_UP, SL_QUEUE_DOWN, point);
}

/* The expert that loses its slot is copied down to the host if it is worth a slot there. */
static enum sl_status demote(struct sl_fetch *f, struct sl_expert_id id, struct sl_span slot) {
    struct sl_tiers *t = f->tiers;
    struct sl_fill fill;
    sl_tiers_leave(t, id);
    if (sl_cache_has(t->host, id) || t->n_going_down == t->layout->n_expert ||
        !sl_cache_prefetch(t->host, SL_PREFETCH_MOVE, &id, 1, sl_fetch_now(f), &fill))
        return SL_OK;
    size_t from, bytes;
    payload(t, id, &from, &bytes);
    struct sl_span to = sl_tiers_host_slot(t, fill.lease.slot);
    enum sl_status status =
        send_down(t, sl_span_part(to, from, bytes), sl_span_part(slot, from, bytes));
    if (status != SL_OK) {
        sl_cache_filled(t->host, fill.lease, status, sl_fetch_now(f));
        return status;
    }
    t->going_down[t->n_going_down++] = fill.lease;
    t->stats.demotions++;
    t->stats.down_bytes += bytes;
    sl_count(expert_demotions_total, 1);
    sl_count(link_down_bytes_total, bytes);
    return SL_OK;
}

/* The slot counts as filled: ops see it that run after a later point of SL_QUEUE_UP. */
enum sl_status sl_tiers_copy_up(struct sl_fetch *f, const struct sl_tiers_move *move) {
    struct sl_tiers *t = f->tiers;
    const struct sl_fill *fill = &move->fill;
    struct sl_span slot = sl_tiers_slot(t, fill->lease.slot);
    size_t from, bytes;
    enum sl_status status = fill->evicted ? demote(f, fill->victim, slot) : SL_OK;
    payload(t, fill->id, &from, &bytes);
    if (status == SL_OK)
        status = sl_device_copy(t->dev, SL_QUEUE_UP, sl_span_part(slot, from, bytes),
                                sl_span_part(move->src, from, bytes));
    sl_cache_filled(t->cache, fill->lease, status, sl_fetch_now(f));
    if (status != SL_OK)
        return status;
    *sl_tiers_at(t, fill->id) = fill->lease.slot;
    if (++t->n_on == t->n_all)
        t->version++;
    sl_cache_elsewhere(t->host, fill->id, true);
    t->stats.promotions++;
    t->stats.up_bytes += bytes;
    sl_count(expert_promotions_total, 1);
    t->stats.link_up_bytes += move->link ? bytes : 0;
    sl_count(link_up_bytes_total, move->link ? bytes : 0);
    return SL_OK;
}

enum sl_status sl_tiers_copy_once(struct sl_fetch *f, struct sl_expert_id id, uint32_t host_slot,
                                  struct sl_pass_slot *to) {
    struct sl_tiers *t = f->tiers;
    size_t from, bytes;
    payload(t, id, &from, &bytes);
    if (to->used)
        SL_TRY(sl_device_after(t->dev, SL_QUEUE_UP, SL_QUEUE_OPS, to->used));
    to->used = 0;
    SL_TRY(sl_device_copy(t->dev, SL_QUEUE_UP, sl_span_part(sl_pass_at(&t->pass, to), from, bytes),
                          sl_span_part(sl_tiers_host_slot(t, host_slot), from, bytes)));
    t->stats.up_bytes += bytes;
    t->stats.link_up_bytes += bytes;
    sl_count(link_up_bytes_total, bytes);
    return SL_OK;
}

/* Ops enqueued from now on run after the copies up so far. */
static enum sl_status up_done(struct sl_tiers *t, sl_point *out_point) {
    SL_TRY(sl_device_mark(t->dev, SL_QUEUE_UP, out_point));
    return sl_device_after(t->dev, SL_QUEUE_OPS, SL_QUEUE_UP, *out_point);
}

/* The slot is there and ready: pins it. */
struct sl_lease sl_tiers_pin(struct sl_cache *c, struct sl_expert_id id, uint64_t now_ns) {
    struct sl_lease lease;
    struct sl_fill none;
    uint32_t n_fill, n_taken;
    enum sl_status status =
        sl_cache_acquire_some(c, &id, 1, 0, now_ns, &lease, &none, &n_fill, &n_taken);
    assert(status == SL_OK && n_taken == 1 && n_fill == 0);
    (void)status;
    return lease;
}

/* ---- when nothing runs ---- */

bool sl_tiers_warming(const struct sl_fetch *f) {
    const struct sl_tiers *t = f->tiers;
    return t->cache && t->warm_cursor < f->n_warm && t->warm_cursor < f->warm_cursor;
}

bool sl_tiers_copying(const struct sl_fetch *f) {
    return f->tiers->n_kept > 0;
}

enum sl_status sl_tiers_rest(struct sl_fetch *f) {
    struct sl_tiers *t = f->tiers;
    enum sl_status status = t->n_kept || t->n_going_down ? sl_device_sync(t->dev) : SL_OK;
    if (status == SL_OK)
        sl_tiers_settle(t, sl_fetch_now(f));
    return status;
}

void sl_tiers_warm(struct sl_fetch *f) {
    struct sl_tiers *t = f->tiers;
    struct sl_fill fill;
    sl_point point;
    uint32_t n = 0;
    enum sl_status status = sl_tiers_rest(f);
    while (status == SL_OK && n < WARM_BATCH && sl_tiers_warming(f)) {
        struct sl_expert_id id = f->warm[t->warm_cursor];
        if (sl_cache_has(t->host, id) && !sl_cache_is_ready(t->host, id) && !sl_tiers_has(t, id))
            break; /* on its way */
        t->warm_cursor++;
        if (sl_tiers_has(t, id) || !sl_cache_is_ready(t->host, id) ||
            !sl_cache_prefetch(t->cache, SL_PREFETCH_WARMUP, &id, 1, sl_fetch_now(f), &fill))
            continue;
        struct sl_lease lease = sl_tiers_pin(t->host, id, sl_fetch_now(f));
        const struct sl_tiers_move move = {fill, sl_tiers_host_slot(t, lease.slot), true};
        status = sl_tiers_copy_up(f, &move);
        if (status == SL_OK)
            status = sl_device_mark(t->dev, SL_QUEUE_UP, &point);
        if (status == SL_OK)
            status = sl_tiers_keep(t, lease, true, SL_QUEUE_UP, point);
        if (status != SL_OK) { /* a copy may have begun all the same */
            (void)!sl_device_sync(t->dev);
            sl_cache_release(t->host, &lease, 1);
        }
        n++;
    }
    if (n && status == SL_OK)
        status = up_done(t, &t->up_point);
    t->up_open |= n > 0;
    if (status != SL_OK) { /* the next step will fail in the same way, and report it */
        sl_debug("warming up the device: %s", sl_status_text(status));
        t->warm_cursor = f->n_warm;
    }
}
