#include "engine/stage/joint_heat.h"

#include "engine/experts/heat_store.h"
#include "engine/stage/stage.h"

#include <stdlib.h>

struct sl_joint_heat {
    struct sl_heat *heat;
    struct sl_heat_store *file;
};

static uint32_t n_routed(const struct sl_model *m) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        n += sl_model_layer_is_moe(m, i);
    return n;
}

size_t sl_joint_heat_bytes(const struct sl_hparams *hp) {
    struct sl_heat_config c = {
        .n_layer = hp->n_layer, .n_expert = hp->n_expert, .k = hp->n_expert_used};
    return hp->n_expert
               ? sizeof(struct sl_joint_heat) + sl_heat_bytes(&c) + sl_heat_image_bytes(&c) + 8192
               : 0;
}

enum sl_status sl_joint_heat_open(const char *path, const struct sl_model *model,
                                  struct sl_joint_heat **out_heat, struct sl_err *err) {
    struct sl_heat_config c = {.n_layer = n_routed(model),
                               .n_expert = model->hp.n_expert,
                               .k = model->hp.n_expert_used,
                               .fingerprint = sl_model_fingerprint(model)};
    *out_heat = NULL;
    if (!c.n_layer)
        return SL_OK;
    struct sl_joint_heat *j = calloc(1, sizeof *j);
    if (!j)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the experts' heat");
    enum sl_status st = sl_heat_create(&c, &j->heat, err);
    if (st == SL_OK)
        st = sl_heat_store_open(path, j->heat, &j->file, err);
    if (st != SL_OK) {
        sl_joint_heat_close(&j);
        return st;
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
    free(j);
    *pj = NULL;
}

const struct sl_heat *sl_joint_heat(const struct sl_joint_heat *j) {
    return j->heat;
}

struct gathering {
    struct sl_passage passage; /* first */
    struct sl_heat *heat;
};

static void gather_at_stage(struct sl_passage *p, struct sl_stage *s) {
    struct gathering *g = (struct gathering *)(void *)p;
    if (s->store && s->part.n)
        sl_heat_take_layers(g->heat, s->part.first, sl_fetch_heat(sl_stage_fetch(s)), 0, s->part.n);
}

void sl_joint_heat_save(struct sl_joint_heat *j, struct sl_pipeline *p, bool now) {
    struct gathering g = {{.at_stage = gather_at_stage}, j->heat};
    sl_pipeline_send(p, &g.passage);
    sl_pipeline_wait(p, &g.passage);
    if (now)
        sl_heat_store_save_now(j->file);
    else
        sl_heat_store_save(j->file);
}
