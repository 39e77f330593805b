#include "engine/reads/slot_reads.h"

#include <assert.h>
#include <stdlib.h>

size_t sl_slot_reads_bytes(uint32_t n_slots) {
    struct sl_slot_reads *r;
    return n_slots *
           (sizeof *r->reads + sizeof *r->fills + sizeof *r->background + sizeof *r->traced);
}

enum sl_status sl_slot_reads_init(struct sl_slot_reads *r,
                                  const struct sl_slot_reads_config *config) {
    uint32_t n = config->slots->first_slot[config->slots->n_class];
    *r = (struct sl_slot_reads){.config = *config, .n_slots = n};
    r->reads = calloc(n, sizeof *r->reads);
    r->fills = calloc(n, sizeof *r->fills);
    r->background = calloc(n, sizeof *r->background);
    if (config->timeline)
        r->traced = calloc(n, sizeof *r->traced);
    bool all = r->reads && r->fills && r->background && (r->traced || !config->timeline);
    return all ? SL_OK : SL_ERR_NOMEM;
}

void sl_slot_reads_release(struct sl_slot_reads *r) {
    assert(r->n == 0);
    free(r->reads);
    free(r->fills);
    free(r->background);
    free(r->traced);
    *r = (struct sl_slot_reads){0};
}

static uint64_t now_of(const struct sl_slot_reads *r) {
    return r->config.now_ns(r->config.clock);
}

static void trace(const struct sl_slot_reads *r, uint32_t slot, enum sl_status status) {
    const struct sl_read *d = &r->reads[slot];
    const struct sl_traced *to = &r->traced[slot];
    uint64_t now = now_of(r), start = d->submitted_ns ? d->submitted_ns : now, bytes = 0;
    for (uint32_t i = 0; i < d->n_extents; i++)
        bytes += d->extent[i].size_bytes;
    const char *name = !r->background[slot]            ? "read"
                       : d->priority == SL_READ_WARMUP ? "read to warm up"
                                                       : "read ahead";
    sl_timeline_read(
        r->config.timeline, to->read_track, name, start, now,
        (const struct sl_timeline_arg[SL_TIMELINE_ARGS]){
            {"layer", r->config.layout->layers[to->layer].model_layer},
            {"expert", to->expert},
            {"bytes", (int64_t)bytes},
            {"queued_ns", d->started_ns > start ? (int64_t)(d->started_ns - start) : 0},
            {"status", status},
        });
}

static void read_done(struct sl_read *read, enum sl_status status) {
    struct sl_slot_reads *r = read->user;
    uint32_t slot = (uint32_t)(read - r->reads);
    r->n--;
    r->n_background -= r->background[slot];
    if (status < 0 && status != SL_ERR_CANCELED) {
        r->failed_err = r->read_err;
        r->failed_slot = slot;
    }
    if (r->config.timeline)
        trace(r, slot, status);
    sl_cache_filled(r->config.cache, r->fills[slot], status, now_of(r));
}

struct sl_read *sl_slot_reads_prepare(struct sl_slot_reads *r, struct sl_expert_id id,
                                      struct sl_lease fill, enum sl_read_priority priority) {
    struct sl_read *read = &r->reads[fill.slot];
    *read = (struct sl_read){.priority = priority, .slot = sl_slots_at(r->config.slots, fill.slot)};
    sl_expert_layout_read(r->config.layout, id.layer, id.expert, read);
    r->fills[fill.slot] = fill;
    return read;
}

void sl_slot_reads_start(struct sl_slot_reads *r, const struct sl_fill *fills, uint32_t n,
                         enum sl_read_priority priority, bool background) {
    struct sl_read *first = NULL, **tail = &first;
    for (uint32_t i = 0; i < n; i++) {
        if (fills[i].action != SL_FILL_START)
            continue;
        uint32_t slot = fills[i].lease.slot;
        struct sl_read *read = sl_slot_reads_prepare(r, fills[i].id, fills[i].lease, priority);
        read->done = read_done;
        read->user = r;
        read->err = &r->read_err;
        r->background[slot] = background;
        if (r->config.timeline)
            r->traced[slot] = (struct sl_traced){fills[i].id.layer, fills[i].id.expert,
                                                 sl_timeline_read_track(r->config.timeline)};
        *tail = read;
        tail = &read->next;
        r->n++;
        r->n_background += background;
    }
    if (!first)
        return;
    enum sl_status status = r->hold ? sl_reader_queue(r->config.reader, first, &r->read_err)
                                    : sl_reader_submit(r->config.reader, first, &r->read_err);
    if (status == SL_OK)
        return;
    for (struct sl_read *read = first, *next; read; read = next) {
        next = read->next;
        read_done(read, status);
    }
}

void sl_slot_reads_raise(struct sl_slot_reads *r, uint32_t slot) {
    sl_reader_raise(r->config.reader, &r->reads[slot], SL_READ_DEMAND);
}

void sl_slot_reads_submit(struct sl_slot_reads *r) {
    (void)!sl_reader_submit(r->config.reader, NULL, &r->read_err); /* nothing new: cannot fail */
}

uint32_t sl_slot_reads_left(const struct sl_slot_reads *r, uint32_t slot) {
    return sl_reader_requests_left(r->config.reader, &r->reads[slot]);
}

void sl_slot_reads_cancel(struct sl_slot_reads *r, uint32_t slot) {
    sl_reader_cancel(r->config.reader, &r->reads[slot]);
}

bool sl_slot_reads_give_up(struct sl_slot_reads *r, struct sl_expert_id id, struct sl_lease fill) {
    const struct sl_cache *cache = r->config.cache;
    bool coming = sl_cache_has(cache, id) && !sl_cache_is_ready(cache, id);
    if (!coming || r->fills[fill.slot].generation != fill.generation ||
        sl_slot_reads_left(r, fill.slot) <= r->reads[fill.slot].n_flying)
        return false;
    sl_slot_reads_cancel(r, fill.slot);
    return true;
}

void sl_slot_reads_end(struct sl_slot_reads *r) {
    for (uint32_t i = 0; i < r->n_slots && r->n; i++)
        sl_slot_reads_cancel(r, i);
    while (r->n)
        sl_reader_wait(r->config.reader, r->n, -1);
}
