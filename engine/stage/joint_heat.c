#include "engine/stage/joint_heat.h"

#include "engine/heat/heat_store.h"

#include <stdlib.h>

struct sl_joint_heat {
    struct sl_heat *heat;
    struct sl_heat_store *file;
    uint8_t *layers; /* of all stages, as they say it */
    size_t n_bytes;
};

/* Of the layers with routed experts; returns how many these are. */
static uint32_t count_experts(const struct sl_model *m,
                              struct sl_heat_layer out_counts[SL_MAX_LAYERS]) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        const struct sl_experts_spec *x = &m->layers[i].spec.experts;
        if (sl_model_layer_is_moe(m, i))
            out_counts[n++] = (struct sl_heat_layer){(uint16_t)x->n_expert, (uint16_t)x->n_used};
    }
    return n;
}

size_t sl_joint_heat_bytes(const struct sl_hparams *hp) {
    struct sl_heat_config c = {
        .n_layer = hp->n_layer, .n_expert = hp->n_expert, .k = hp->n_expert_used};
    return hp->n_expert ? sizeof(struct sl_joint_heat) + sl_heat_bytes(&c) +
                              2 * sl_heat_image_bytes(&c) + 8192
                        : 0;
}

enum sl_status sl_joint_heat_open(const char *path, const struct sl_model *model,
                                  struct sl_joint_heat **out_heat, struct sl_err *err) {
    struct sl_heat_layer counts[SL_MAX_LAYERS];
    struct sl_heat_config c = {.n_layer = count_experts(model, counts),
                               .layers = counts,
                               .n_expert = model->hp.n_expert,
                               .k = model->hp.n_expert_used,
                               .fingerprint = sl_model_fingerprint(model)};
    *out_heat = NULL;
    if (!c.n_layer)
        return SL_OK;
    struct sl_joint_heat *j = calloc(1, sizeof *j);
    if (!j)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the experts' heat");
    enum sl_status status = sl_heat_create(&c, &j->heat, err);
    if (status == SL_OK) {
        j->n_bytes = c.n_layer * sl_heat_layer_bytes(j->heat);
        j->layers = calloc(1, j->n_bytes);
        if (!j->layers)
            status = sl_fail(err, SL_ERR_NOMEM, "no memory for the experts' heat");
    }
    if (status == SL_OK)
        status = sl_heat_store_open(path, j->heat, &j->file, err);
    if (status != SL_OK) {
        sl_joint_heat_close(&j);
        return status;
    }
    *out_heat = j;
    return SL_OK;
}

void sl_joint_heat_close(struct sl_joint_heat **pj) {
    struct sl_joint_heat *j = *pj;
    if (!j)
        return;
    sl_heat_store_close(&j->file);
    sl_heat_destroy(&j->heat);
    free(j->layers);
    free(j);
    *pj = NULL;
}

const struct sl_heat *sl_joint_heat(const struct sl_joint_heat *j) {
    return j->heat;
}

struct gathering {
    struct sl_pipeline_item item; /* first */
    struct sl_stage_call calls[SL_MAX_STAGES];
    struct sl_joint_heat *joint;
    size_t at;      /* bytes of the stages before */
    uint32_t first; /* ... and their layers */
};

static bool ask_heat(struct sl_pipeline_item *p, uint32_t stage, struct sl_stage_call *c) {
    struct gathering *g = (struct gathering *)(void *)p;
    const struct sl_stage_hello *h = sl_pipeline_hello(p->pipeline, stage);
    if (!h->heat_bytes || h->heat_bytes > g->joint->n_bytes - g->at)
        return false;
    c->ask.what = SL_STAGE_HEAT;
    c->with.bytes = g->joint->layers + g->at;
    c->with.n_bytes = h->heat_bytes;
    return true;
}

static void take_heat(struct sl_pipeline_item *p, uint32_t stage, struct sl_stage_metrics *shown) {
    struct gathering *g = (struct gathering *)(void *)p;
    const struct sl_stage_call *c = &g->calls[stage];
    const struct sl_stage_hello *h = sl_pipeline_hello(p->pipeline, stage);
    (void)shown;
    if (c->answer.status == SL_OK)
        sl_heat_import_layers(g->joint->heat, g->first, h->n_routed, c->with.bytes);
}

/* All of the model's layers are somebody's, so each stage's begin where those before it end. */
static bool ask_in_turn(struct sl_pipeline_item *p, uint32_t stage, struct sl_stage_call *c) {
    struct gathering *g = (struct gathering *)(void *)p;
    if (stage) {
        const struct sl_stage_hello *before = sl_pipeline_hello(p->pipeline, stage - 1);
        g->first += before->n_routed;
        g->at += before->n_routed * sl_heat_layer_bytes(g->joint->heat);
    }
    return ask_heat(p, stage, c);
}

void sl_joint_heat_save(struct sl_joint_heat *j, struct sl_pipeline *p, bool now) {
    struct gathering g = {.item = {.ask = ask_in_turn, .answered = take_heat}, .joint = j};
    g.item.calls = g.calls;
    sl_pipeline_send(p, &g.item);
    sl_pipeline_wait(p, &g.item);
    if (now)
        sl_heat_store_save_now(j->file);
    else
        sl_heat_store_save(j->file);
}
