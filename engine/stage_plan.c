#include "engine/stage_plan.h"

#include "engine/open_device.h"

#include <stdlib.h>
#include <string.h>

/* Numbers between commas, so many at most; 0: it is no such list. */
static uint32_t parse_split(const char *text, uint32_t out[SL_MAX_STAGES]) {
    for (uint32_t n = 0; n < SL_MAX_STAGES; n++) {
        char *end;
        unsigned long v = *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : 0;
        if (!v || v > SL_MAX_LAYERS || (*end && *end != ','))
            return 0;
        out[n] = (uint32_t)v;
        if (!*end)
            return n + 1;
        text = end + 1;
    }
    return 0;
}

static enum sl_status split_layers(const struct sl_model *model,
                                   const struct sl_engine_config *config, uint32_t n_stages,
                                   uint32_t out_layers[SL_MAX_STAGES], struct sl_err *err) {
    uint32_t all = model->hp.n_layer, sum = 0;
    if (!config->split || strcmp(config->split, "auto") == 0) {
        for (uint32_t i = 0; i < n_stages; i++)
            out_layers[i] = all * (i + 1) / n_stages - all * i / n_stages;
        return SL_OK;
    }
    uint32_t n = parse_split(config->split, out_layers);
    for (uint32_t i = 0; i < n; i++)
        sum += out_layers[i];
    if (n != n_stages || sum != all)
        return sl_fail(err, SL_ERR_CONFIG,
                       "split '%s': must be %u numbers of layers, one for each device, that sum to "
                       "the model's %u",
                       config->split, n_stages, all);
    return SL_OK;
}

static enum sl_status open_stage(const struct sl_model *model,
                                 const struct sl_engine_config *config, uint32_t index,
                                 uint32_t first, uint32_t n, struct sl_stage_plan *s,
                                 struct sl_err *err) {
    struct sl_engine_config c = *config;
    if (config->n_vram)
        c.vram_bytes = config->vram_each[index];
    enum sl_status st = sl_model_slice(model, first, n, &s->model, err);
    if (st == SL_OK && config->device_source)
        st = config->device_source->open(config->device_source, index, &s->dev, err);
    return st == SL_OK ? sl_memory_plan_make(&s->model, &c, s->dev, &s->plan, err) : st;
}

enum sl_status sl_stage_plans_open(const struct sl_model *model,
                                   const struct sl_engine_config *config,
                                   struct sl_stage_plans *out_plans, struct sl_err *err) {
    struct sl_stage_plans p = {.n = 1};
    uint32_t layers[SL_MAX_STAGES], first = 0;
    out_plans->whole.least_bytes = out_plans->whole.vram_least_bytes = 0;
    if (config->device_source && config->device_source->n_devices)
        p.n = config->device_source->n_devices;
    p.at = calloc(p.n, sizeof *p.at);
    if (!p.at)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the plans of %u devices", p.n);
    enum sl_status st = split_layers(model, config, p.n, layers, err);
    if (st == SL_OK && p.n == 1) {
        p.at->model = *model;
        st = sl_engine_open_device(model, config, &p.at->dev, &p.at->plan, err);
    }
    for (uint32_t i = 0; i < p.n && p.n > 1 && st == SL_OK; i++) {
        st = open_stage(model, config, i, first, layers[i], &p.at[i], err);
        first += layers[i];
    }
    if (st != SL_OK) {
        out_plans->whole.least_bytes = p.at->plan.least_bytes;
        out_plans->whole.vram_least_bytes = p.at->plan.vram_least_bytes;
        sl_stage_plans_release(&p);
        return st;
    }
    p.whole = p.at->plan;
    *out_plans = p;
    return SL_OK;
}

void sl_stage_plans_release(struct sl_stage_plans *plans) {
    for (uint32_t i = 0; plans->at && i < plans->n; i++) {
        if (plans->at[i].dev)
            sl_device_close(&plans->at[i].dev);
        sl_model_slice_release(&plans->at[i].model);
    }
    free(plans->at);
    plans->at = NULL;
    plans->n = 0;
}
