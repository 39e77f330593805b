#include "engine/reads/expert_layout.h"

#include "expert_cache/heat.h"

#include <stdlib.h>
#include <string.h>

/* The class of experts of these sizes; a new one if there is none. */
static enum sl_status find_class(struct sl_expert_layout *l,
                                 const uint32_t size_bytes[SL_EXPERT_EXTENTS], uint32_t n,
                                 uint32_t *out_class, struct sl_err *err) {
    struct sl_slot_layout slot = {0};
    /* An expert may begin at any byte: its size need not be a multiple of the file's alignment. */
    enum sl_status status = sl_slot_layout_init(&slot, size_bytes, n, 1, err);
    if (status != SL_OK)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "experts of %u + %u + %u bytes fit no slot",
                       size_bytes[0], size_bytes[1], size_bytes[2]);
    for (uint32_t c = 0; c < l->n_class; c++)
        if (memcmp(&slot, &l->classes[c].slot, sizeof slot) == 0) {
            *out_class = c;
            return SL_OK;
        }
    if (l->n_class == SL_SLAB_CLASSES)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "the model mixes more than %u sizes of experts: it cannot be streamed",
                       SL_SLAB_CLASSES);
    l->classes[l->n_class].slot = slot;
    *out_class = l->n_class++;
    return SL_OK;
}

static enum sl_status add_layer(struct sl_expert_layout *l, const struct sl_model *model,
                                uint32_t model_layer, struct sl_err *err) {
    struct sl_routed_layer *r = &l->layers[l->n_layer];
    uint32_t size_bytes[SL_EXPERT_EXTENTS] = {0};
    r->model_layer = model->hp.first_layer + model_layer;
    r->n_expert = model->layers[model_layer].spec.experts.n_expert;
    r->k = model->layers[model_layer].spec.experts.n_used;
    r->no_gate = !sl_experts_gated(&model->layers[model_layer].spec.experts);
    uint32_t n = sl_routed_extents(r);
    for (uint32_t i = 0; i < n; i++) {
        struct sl_expert_matrix m =
            sl_layer_expert_matrix(&model->layers[model_layer], i + r->no_gate);
        uint64_t bytes = m.part_bytes;
        if (bytes > UINT32_MAX)
            return sl_fail(err, SL_ERR_UNSUPPORTED,
                           "layer %u: experts of more than 4 GiB cannot be streamed",
                           r->model_layer);
        r->extent[i].offset_bytes = m.t->offset_bytes + m.first_bytes;
        r->extent[i].stride_bytes = m.stride_bytes;
        r->extent[i].size_bytes = size_bytes[i] = (uint32_t)bytes;
        r->extent[i].file = m.t->file;
        r->expert_bytes += bytes;
    }
    SL_TRY(find_class(l, size_bytes, n, &r->size_class, err));
    struct sl_expert_class *class = &l->classes[r->size_class];
    class->n_layer++;
    class->n_expert += r->n_expert;
    class->k = r->k > class->k ? r->k : class->k;
    l->layer_class[l->n_layer] = (uint8_t)r->size_class;
    l->counts[l->n_layer] = (struct sl_heat_layer){(uint16_t)r->n_expert, (uint16_t)r->k};
    l->routed_of[model_layer] = l->n_layer++;
    l->n_all += r->n_expert;
    l->total_bytes += r->expert_bytes * r->n_expert;
    l->token_bytes += r->expert_bytes * r->k;
    return SL_OK;
}

enum sl_status sl_expert_layout_make(const struct sl_model *model,
                                     struct sl_expert_layout *out_layout, struct sl_err *err) {
    const struct sl_hparams *hp = &model->hp;
    struct sl_expert_layout l = {.n_expert = hp->n_expert, .k = hp->n_expert_used};
    l.layers = calloc(hp->n_layer, sizeof *l.layers);
    l.layer_class = calloc(hp->n_layer, sizeof *l.layer_class);
    l.counts = calloc(hp->n_layer, sizeof *l.counts);
    l.routed_of = calloc(hp->n_layer, sizeof *l.routed_of);
    enum sl_status status = SL_OK;
    if (!l.layers || !l.layer_class || !l.counts || !l.routed_of)
        status = sl_fail(err, SL_ERR_NOMEM, "no memory for the table of experts");
    for (uint32_t i = 0; i < hp->n_layer && status == SL_OK; i++) {
        l.routed_of[i] = SL_NO_ROUTED_LAYER;
        if (sl_model_layer_is_moe(model, i))
            status = add_layer(&l, model, i, err);
    }
    if (status != SL_OK) {
        sl_expert_layout_release(&l);
        return status;
    }
    *out_layout = l;
    return SL_OK;
}

void sl_expert_layout_release(struct sl_expert_layout *layout) {
    free(layout->layers);
    free(layout->layer_class);
    free(layout->counts);
    free(layout->routed_of);
    memset(layout, 0, sizeof *layout);
}

void sl_expert_layout_heat(const struct sl_expert_layout *l, uint64_t fingerprint,
                           struct sl_heat_config *out_config) {
    *out_config = (struct sl_heat_config){.n_layer = l->n_layer,
                                          .n_expert = l->n_expert,
                                          .k = l->k,
                                          .layers = l->counts,
                                          .fingerprint = fingerprint};
}

void sl_expert_layout_read(const struct sl_expert_layout *l, uint32_t routed_layer, uint32_t expert,
                           struct sl_read *read) {
    const struct sl_routed_layer *r = &l->layers[routed_layer];
    const struct sl_slot_layout *slot = &l->classes[r->size_class].slot;
    read->n_extents = sl_routed_extents(r);
    for (uint32_t i = 0; i < read->n_extents; i++)
        read->extent[i] = (struct sl_extent){.offset_bytes = r->extent[i].offset_bytes +
                                                             expert * r->extent[i].stride_bytes,
                                             .size_bytes = r->extent[i].size_bytes,
                                             .place_bytes = slot->place_bytes[i],
                                             .file = r->extent[i].file};
}

size_t sl_expert_layout_place(const struct sl_expert_layout *l, uint32_t routed_layer,
                              uint32_t expert, uint32_t matrix) {
    const struct sl_routed_layer *r = &l->layers[routed_layer];
    uint32_t extent = matrix && r->no_gate ? matrix - 1 : matrix;
    return sl_slot_payload_bytes(&l->classes[r->size_class].slot, extent,
                                 r->extent[extent].offset_bytes +
                                     expert * r->extent[extent].stride_bytes);
}
