#include "engine/experts/expert_store.h"

#include "common/log.h"
#include "common/siphash.h"
#include "engine/experts/expert_speed.h"
#include "engine/experts/expert_tiers.h"
#include "engine/heat/heat_store.h"
#include "engine/lane/cpu_lane.h"
#include "engine/reads/model_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sl_store {
    const struct sl_memory_plan *plan;
    struct sl_expert_layout layout;
    struct sl_slab slab;
    struct sl_slots slots;
    struct sl_reader *reader;
    struct sl_fetch *fetch;
    struct sl_heat_store *heat_file; /* NULL: not kept */
    struct sl_file_watch watch;
};

static enum sl_status open_reader(struct sl_store *s, const struct sl_gguf *gguf,
                                  struct sl_err *err) {
    struct sl_reader_config rc = sl_model_reader_config(&s->plan->config);
    rc.slab = &s->slab;
    return sl_model_files_open(gguf, &s->plan->config, &rc, &s->reader, err);
}

/* ---- the disk's speed ---- */

struct probed {
    const struct sl_engine_config *config;
    const struct sl_gguf *gguf;
};

static enum sl_status add_probed(void *ctx, struct sl_reader *reader, struct sl_err *err) {
    const struct probed *p = ctx;
    return sl_model_files_add(reader, p->config, p->gguf, err);
}

/* Of an expert; 0: the model has none. */
static enum sl_status largest_matrix(const struct sl_model *model, uint32_t *out_bytes,
                                     struct sl_err *err) {
    struct sl_expert_layout layout = {0};
    enum sl_status status = sl_expert_layout_make(model, &layout, err);
    *out_bytes = 0;
    for (uint32_t l = 0; status == SL_OK && l < layout.n_layer; l++)
        for (uint32_t x = 0; x < SL_EXPERT_EXTENTS; x++)
            if (layout.layers[l].extent[x].size_bytes > *out_bytes)
                *out_bytes = layout.layers[l].extent[x].size_bytes;
    sl_expert_layout_release(&layout);
    return status;
}

enum sl_status sl_store_disk_speed(const struct sl_model *model,
                                   const struct sl_engine_config *config, double seconds,
                                   struct sl_disk_speed *out_speed, struct sl_err *err) {
    uint32_t bytes;
    SL_TRY(largest_matrix(model, &bytes, err));
    if (!bytes)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "the model has no routed experts");
    struct probed p = {config, model->gguf};
    const struct sl_disk_files files = {
        .reader = sl_model_reader_config(config), .add = add_probed, .ctx = &p};
    return sl_disk_bandwidth(&files, bytes, seconds, out_speed, err);
}

/* ---- create ---- */

static enum sl_status map_slots(struct sl_store *s, struct sl_err *err) {
    uint32_t slot_bytes[SL_SLAB_CLASSES];
    for (uint32_t c = 0; c < s->layout.n_class; c++)
        slot_bytes[c] = s->layout.classes[c].slot.slot_bytes;
    size_t bytes = sl_slots_size_bytes(slot_bytes, s->plan->class_slots, s->layout.n_class);
    SL_TRY(sl_slab_init(&s->slab, bytes, true, err));
    return sl_slots_init(&s->slots, &s->slab, 0, slot_bytes, s->plan->class_slots,
                         s->layout.n_class, err);
}

/* The stages of the scheduler's process have one file together (engine/stage/joint_heat.h). */
static bool keeps_file(const struct sl_memory_plan *plan) {
    return plan->n_stages <= 1 || plan->remote;
}

/* Names the heat file. A worker has one for each run of layers, since its stages know no others. */
static uint64_t heat_fingerprint(const struct sl_model *model, const struct sl_memory_plan *plan) {
    const uint64_t what[] = {sl_model_fingerprint(model), model->hp.first_layer, model->hp.n_layer};
    return plan->remote ? sl_siphash128((struct sl_hash128){UINT64_C(0x736c756963652d68), 1}, what,
                                        sizeof what)
                              .lo
                        : what[0];
}

static enum sl_status create_lane(const struct sl_memory_plan *plan,
                                  const struct sl_expert_layout *layout, struct sl_lane **out_lane,
                                  struct sl_err *err) {
    const struct sl_engine_config *c = &plan->config;
    return sl_lane_create(
        &(struct sl_lane_config){.n_threads = plan->lane_threads,
                                 .isa = c->cpu_isa,
                                 .limits = sl_lane_limits(&plan->limits, layout->k),
                                 .always = c->lane == SL_LANE_ON,
                                 .forced = c->lane_forced,
                                 .percent = c->lane_percent},
        out_lane, err);
}

enum sl_status sl_store_create(const struct sl_model *model, const struct sl_memory_plan *plan,
                               struct sl_device *dev, const struct sl_store_heat *known,
                               struct sl_timeline *timeline, struct sl_store **out_store,
                               struct sl_err *err) {
    const struct sl_engine_config *c = &plan->config;
    struct sl_store *s = calloc(1, sizeof *s);
    if (!s)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the expert store");
    s->plan = plan;
    enum sl_status status = sl_expert_layout_make(model, &s->layout, err);
    if (status == SL_OK)
        status = map_slots(s, err);
    if (status == SL_OK)
        status = open_reader(s, model->gguf, err);
    uint64_t fingerprint = heat_fingerprint(model, plan);
    if (status == SL_OK)
        status = sl_fetch_create(&(struct sl_fetch_config){.layout = &s->layout,
                                                           .slots = &s->slots,
                                                           .reader = s->reader,
                                                           .fingerprint = fingerprint,
                                                           .max_rows = c->batch_tokens,
                                                           .n_device_slots = plan->n_device_slots,
                                                           .no_lookahead = c->no_lookahead,
                                                           .timeline = timeline},
                                 &s->fetch, err);
    struct sl_lane *lane = NULL;
    if (status == SL_OK && plan->lane_rows)
        status = create_lane(plan, &s->layout, &lane, err);
    if (status == SL_OK && plan->reads_back)
        status =
            sl_tiers_create(s->fetch,
                            &(struct sl_tiers_config){
                                .dev = dev,
                                .max_rows = c->batch_tokens,
                                .lane = lane,
                                .class_slots = plan->discrete ? plan->device_class_slots : NULL},
                            err);
    if (status == SL_OK && c->heat_file && keeps_file(plan))
        status = sl_heat_store_open(c->heat_file, sl_fetch_heat(s->fetch), &s->heat_file, err);
    if (status != SL_OK) {
        sl_store_destroy(&s);
        return status;
    }
    char how[256];
    sl_reader_describe(s->reader, how, sizeof how);
    sl_info("experts are read by %s", how);
    if (known && s->layout.n_layer)
        sl_heat_take_layers(sl_fetch_heat(s->fetch), 0, known->heat, known->first,
                            s->layout.n_layer);
    if (!c->no_warm_up)
        sl_fetch_warm_up(s->fetch);
    *out_store = s;
    return SL_OK;
}

struct sl_fetch *sl_store_fetch(struct sl_store *s) {
    return s->fetch;
}

const struct sl_reader *sl_store_reader(const struct sl_store *s) {
    return s->reader;
}

/* Slots are filled by reads that ended well, and by no others. */
enum sl_status sl_store_verify(struct sl_store *s, struct sl_err *err) {
    enum sl_status status = sl_file_watch_look(&s->watch, s->reader, err);
    if (status == SL_AGAIN)
        sl_fetch_forget(s->fetch);
    return status;
}

enum sl_status sl_store_check_files(struct sl_store *s, struct sl_err *err) {
    return sl_reader_check_files(s->reader, err) == SL_OK ? SL_OK : SL_ERR_CORRUPT;
}

bool sl_store_heat_unsaved(const struct sl_store *s) {
    return s->heat_file && sl_heat_store_unsaved(s->heat_file);
}

void sl_store_save_heat(struct sl_store *s) {
    if (s->heat_file)
        sl_heat_store_save(s->heat_file);
}

void sl_store_quit(struct sl_store *s) {
    sl_fetch_quit(s->fetch);
    sl_reader_unregister(s->reader);
    if (s->heat_file)
        sl_heat_store_save_now(s->heat_file);
}

void sl_store_destroy(struct sl_store **ps) {
    struct sl_store *s = *ps;
    if (!s)
        return;
    sl_heat_store_close(&s->heat_file);
    sl_fetch_destroy(&s->fetch);
    sl_reader_close(&s->reader);
    sl_slab_release(&s->slab);
    sl_expert_layout_release(&s->layout);
    free(s);
    *ps = NULL;
}
