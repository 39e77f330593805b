#include "engine/plan/stage_costs.h"

#include "engine/experts/expert_tiers.h"
#include "engine/reads/expert_layout.h"
#include "engine/heat/heat_store.h"
#include "engine/plan/plan_hosts.h"
#include "engine/plan/plan_speed.h"
#include "engine/tables/table_layout.h"

#include "model/arch/model_slice.h"

#include <stdlib.h>

/* What a CPU reads of the host's memory, where the other devices' speeds are known and nobody says
 * its own: two channels of DDR5. */
#define HOST_BYTES_PER_S ((uint64_t)60 << 30)

struct measure {
    const struct sl_model *model;
    struct sl_engine_config config;
    const struct sl_device *dev;
    struct sl_plan_place place;
    struct sl_memory_plan plan; /* of the slice that was looked at last */
    uint64_t tokens_bytes;      /* of a stage that is not the first, besides its layers' */
};

static enum sl_status look(struct measure *m, uint32_t first, uint32_t n,
                           enum sl_experts_where where, struct sl_err *err) {
    struct sl_model slice;
    SL_TRY(sl_model_slice_alone(m->model, first, n, &slice, err));
    m->config.experts = where;
    return sl_memory_plan_make_stage(&slice, &m->place, &m->config, m->dev, &m->plan, err);
}

/* What a stage has besides its layers: activations grow with layers. */
static enum sl_status look_at_stage(struct measure *m, uint64_t *out_activations,
                                    struct sl_err *err) {
    enum sl_status status = look(m, 0, 1, SL_EXPERTS_RESIDENT, err);
    uint64_t one = m->plan.activation_bytes;
    if (status == SL_OK)
        status = look(m, 0, 2, SL_EXPERTS_RESIDENT, err);
    uint64_t both = m->plan.activation_bytes, layer = both > one ? both - one : 0;
    if (m->model->hp.n_layer == 2)
        layer = 0; /* the second has the logits too; counting them as a layer's is wrong */
    *out_activations = one > layer ? one - layer : 0;
    return status;
}

/* What layers' embeddings are made of is with each layer that is looked at, and in a stage once:
 * where it is neither the first layers' input nor the output matrix. */
static uint64_t tokens_bytes(const struct sl_model *slice, const struct sl_memory_plan *p) {
    const struct sl_gguf_tensor *t = sl_model_layer_tokens(slice);
    return t && !sl_tables_have(slice, p->streamed_tables, t) ? t->size_bytes : 0;
}

static enum sl_status look_at_layer(struct measure *m, uint32_t i, uint64_t stage_activations,
                                    struct sl_split_layer *out, uint64_t *in_out_ahead,
                                    struct sl_err *err) {
    SL_TRY(look(m, i, 1, SL_EXPERTS_RESIDENT, err));
    struct sl_memory_plan *p = &m->plan;
    struct sl_model slice;
    SL_TRY(sl_model_slice_alone(m->model, i, 1, &slice, err));
    uint64_t tokens = tokens_bytes(&slice, p);
    uint64_t weights = p->weight_bytes - p->expert_bytes - tokens;
    uint64_t activations = p->activation_bytes;
    out->expert_bytes = p->expert_bytes;
    out->fixed_bytes = p->kv_bytes + activations -
                       (stage_activations < activations ? stage_activations : activations);
    if (p->expert_bytes) {
        SL_TRY(look(m, i, 1, SL_EXPERTS_STREAMED, err));
        tokens = tokens_bytes(&slice, p);
        weights = p->weight_bytes - tokens > weights ? p->weight_bytes - tokens : weights;
        uint64_t ahead = p->activation_bytes > activations ? p->activation_bytes - activations : 0;
        *in_out_ahead = ahead > *in_out_ahead ? ahead : *in_out_ahead;
    }
    out->fixed_bytes += weights;
    m->tokens_bytes = tokens > m->tokens_bytes ? tokens : m->tokens_bytes;
    struct sl_err why;
    out->joined = sl_model_cut(m->model, i, &why) != SL_OK;
    out->dense_token_bytes = (double)sl_dense_token_bytes(&slice);
    const struct sl_experts_spec *x = &slice.layers[0].spec.experts;
    out->routed_token_bytes =
        (double)out->expert_bytes * x->n_used / (x->n_expert ? x->n_expert : 1);
    return SL_OK;
}

/* Slots for the top-k of a layer of every class, and what comes with them. */
static enum sl_status least_slots(const struct sl_model *model, uint32_t batch_tokens,
                                  uint64_t relay_bytes, uint64_t *out_bytes, struct sl_err *err) {
    struct sl_expert_layout l;
    SL_TRY(sl_expert_layout_make(model, &l, err));
    *out_bytes = l.n_layer ? sl_tiers_device_bytes(&l, batch_tokens) + relay_bytes : 0;
    for (uint32_t c = 0; c < l.n_class; c++)
        *out_bytes += (uint64_t)l.classes[c].slot.slot_bytes * l.classes[c].k;
    sl_expert_layout_release(&l);
    return SL_OK;
}

/* On any of the cards. */
static uint64_t relay_bytes(const struct sl_stage_plans *plans) {
    bool any = false;
    for (uint32_t i = 0; i < plans->n; i++)
        any = any || sl_stage_may_relay(plans, i);
    return any ? SL_RELAY_BYTES : 0;
}

/* Of all of them the one that takes most: activations are more where the host cannot read them. */
static uint32_t measured_device(const struct sl_stage_plans *plans) {
    uint32_t i = 0;
    while (i + 1 < plans->n && plans->at[i].dev->caps.host_visible)
        i++;
    return plans->at[i].dev->caps.host_visible ? 0 : i;
}

/* One that computes in the host's memory is bounded by all that there is of it, which the budget
 * may be less than: what is free differs from start to start, and where devices of different kinds
 * divide a model the split shows in the answers. */
static uint64_t budget_of(const struct sl_engine_config *config, const struct sl_stage_plans *plans,
                          uint32_t i) {
    const struct sl_device *dev = plans->at[i].dev;
    uint64_t memory = dev->caps.memory_bytes ? dev->caps.memory_bytes : UINT64_MAX;
    if (sl_device_is_discrete(dev))
        return config->vram_each[i] ? config->vram_each[i] : memory;
    /* What was given for a machine does not differ, and is all there is for its devices. */
    uint64_t given = plans->hosts[plans->at[i].host].ram_budget_bytes;
    return config->n_hosts && given < memory ? given : memory;
}

/* How fast a device reads its memory; 0 = not known. */
static uint64_t speed_of(const struct sl_stage_plans *plans, uint32_t i) {
    const struct sl_device_caps *caps = &plans->at[i].dev->caps;
    double ram = plans->hosts[plans->at[i].host].ram_bytes_per_s;
    if (caps->kind != SL_DEVICE_DISCRETE && ram >= 1 && ram < 0x1p63)
        return (uint64_t)ram;
    return caps->kind == SL_DEVICE_HOST && !caps->memory_bytes_per_s ? HOST_BYTES_PER_S
                                                                     : caps->memory_bytes_per_s;
}

static void take_cards(const struct sl_engine_config *config, const struct sl_model *model,
                       const struct measure *m, const struct sl_stage_plans *plans,
                       uint64_t stage_bytes, struct sl_stage_costs *c) {
    bool tied = model->global[SL_G_OUTPUT] == model->global[SL_G_TOKEN_EMBD];
    struct sl_split given;
    struct sl_err why;
    /* They are counted with the first layer, as its input, wherever that is. */
    bool none = sl_split_parse(config->split, 0, &given, &why) == SL_OK && given.none_at_first;
    for (uint32_t i = 0; i < plans->n; i++) {
        bool has = i <= (uint32_t)none || (i + 1 == plans->n && tied);
        const struct sl_device *dev = plans->at[i].dev;
        const struct sl_device_caps *caps = &dev->caps;
        c->cards[i].budget_bytes = budget_of(config, plans, i);
        c->cards[i].bytes_per_s = speed_of(plans, i);
        c->cards[i].stage_bytes = stage_bytes + (has ? 0 : m->tokens_bytes) +
                                  sl_device_scratch_bytes(dev, &m->plan.limits) + caps->held_bytes;
    }
}

enum sl_status sl_stage_costs_make(const struct sl_model *model,
                                   const struct sl_engine_config *config,
                                   const struct sl_stage_plans *plans,
                                   struct sl_stage_costs *out_costs, struct sl_err *err) {
    uint32_t n_layer = model->hp.n_layer;
    struct sl_stage_costs c = {.model = {.n_layer = n_layer, .experts = config->experts}};
    struct measure *m = calloc(1, sizeof *m);
    c.layers = calloc(n_layer, sizeof *c.layers);
    uint64_t activations = 0, ahead = 0;
    enum sl_status status = m && c.layers ? SL_OK
                                          : sl_fail(err, SL_ERR_NOMEM,
                                                    "no memory for a table of the "
                                                    "model's layers");
    if (status == SL_OK) {
        uint32_t most = measured_device(plans);
        *m = (struct measure){.model = model, .config = *config, .dev = plans->at[most].dev};
        /* As the last of several: what the process has once is not the device's. */
        m->place = sl_stage_place(plans, model, 1);
        m->place.n_stages = 2;
        m->place.first_on_host = false;
        m->place.relays = true;
        m->config.ram_bytes = m->config.vram_bytes = UINT64_MAX;
        m->config.no_overflow = false;
        status = look_at_stage(m, &activations, err);
    }
    for (uint32_t i = 0; i < n_layer && status == SL_OK; i++)
        status = look_at_layer(m, i, activations, &c.layers[i], &ahead, err);
    if (status == SL_ERR_UNSUPPORTED && plans->n_hosts > 1) {
        struct sl_err why = *err;
        sl_fail(err, status, "host '%s': %.380s",
                plans->hosts[plans->at[measured_device(plans)].host].name, why.text);
    }
    if (status == SL_OK)
        status = least_slots(model, m->plan.config.batch_tokens, relay_bytes(plans),
                             &c.model.least_slot_bytes, err);
    if (status != SL_OK) {
        free(m);
        sl_stage_costs_release(&c);
        return status;
    }
    c.model.layers = c.layers;
    c.model.least_slot_bytes += ahead;
    uint64_t stage_bytes = activations;
    if (config->no_overflow) { /* slots for all of them, where it has to be slots */
        stage_bytes += config->experts == SL_EXPERTS_STREAMED ? c.model.least_slot_bytes : 0;
        c.model.experts = SL_EXPERTS_RESIDENT;
    }
    take_cards(config, model, m, plans, stage_bytes, &c);
    free(m);
    *out_costs = c;
    return SL_OK;
}

/* ---- routing that is known ---- */

/* heat's layers are those with routed experts, as the layout's. */
static void rank(struct sl_stage_costs *c, const struct sl_expert_layout *l,
                 const struct sl_heat *heat) {
    const float *uses[SL_MAX_LAYERS] = {NULL};
    uint32_t n_expert[SL_MAX_LAYERS] = {0};
    uint8_t size_class[SL_MAX_LAYERS] = {0};
    double bytes[SL_MAX_LAYERS];
    for (uint32_t i = 0; i < c->model.n_layer; i++) {
        uint32_t at = l->routed_of[i];
        bytes[i] = c->layers[i].routed_token_bytes;
        if (at == SL_NO_ROUTED_LAYER)
            continue;
        uses[i] = sl_heat_rates(heat, at);
        n_expert[i] = l->layers[at].n_expert;
        size_class[i] = l->layer_class[at];
    }
    const struct sl_split_routing routing = {
        .n_layer = c->model.n_layer,
        .n_expert = n_expert,
        .uses = uses,
        .size_class = size_class,
        .routed_token_bytes = bytes,
    };
    if (sl_split_heat_create(&routing, &c->heat) == SL_OK)
        c->model.heat = c->heat;
}

bool sl_stage_costs_add_heat(struct sl_stage_costs *costs, const struct sl_model *model,
                             const char *heat_file) {
    struct sl_expert_layout l;
    struct sl_heat *heat = NULL;
    struct sl_err why;
    enum sl_status status = sl_expert_layout_make(model, &l, &why);
    if (status != SL_OK)
        return true;
    struct sl_heat_config shape;
    sl_expert_layout_heat(&l, sl_model_fingerprint(model), &shape);
    if (l.n_layer && sl_heat_create(&shape, &heat, &why) == SL_OK) {
        status = sl_heat_store_ask(heat_file, heat);
        if (status == SL_OK)
            rank(costs, &l, heat);
        sl_heat_destroy(&heat);
    }
    sl_expert_layout_release(&l);
    return status != SL_AGAIN;
}

bool sl_stage_costs_raise(struct sl_stage_costs *costs, const struct sl_stage_plans *plans) {
    bool any = false;
    for (uint32_t i = 0; i < plans->n; i++) {
        uint64_t least = plans->at[i].plan.vram_least_bytes, budget = costs->cards[i].budget_bytes;
        if (least <= budget)
            continue;
        costs->cards[i].stage_bytes += least - budget;
        any = true;
    }
    for (uint32_t i = 0; plans->n_hosts > 1 && i < plans->n; i++) {
        uint32_t h = plans->at[i].host;
        uint64_t least = sl_plan_host_least(plans, h);
        if (sl_device_is_discrete(plans->at[i].dev) || least <= plans->hosts[h].ram_budget_bytes)
            continue;
        costs->cards[i].stage_bytes += least - plans->hosts[h].ram_budget_bytes;
        any = true;
    }
    return any;
}

bool sl_stage_costs_free_host(struct sl_stage_costs *costs, const struct sl_stage_plans *plans) {
    bool any = false;
    for (uint32_t i = 0; i < plans->n; i++) {
        uint64_t *budget = &costs->cards[i].budget_bytes;
        if (sl_device_is_discrete(plans->at[i].dev) || *budget == UINT64_MAX)
            continue;
        *budget = UINT64_MAX;
        any = true;
    }
    return any;
}

void sl_stage_costs_release(struct sl_stage_costs *costs) {
    sl_split_heat_destroy(&costs->heat);
    free(costs->layers);
    costs->layers = NULL;
}
