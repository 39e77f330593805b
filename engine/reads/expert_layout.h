/* Where the routed experts are: in the files, and in the slots of the expert cache.
 *
 * Layers with routed experts are counted apart from the model's layers (a model may begin with
 * dense ones): a *routed layer* is an index among them, in the order of use. Layers whose experts
 * have the same sizes share a size class, and so its pool of slots.
 *
 * A pure function of the model; read-only afterwards, any thread. */
#ifndef SL_ENGINE_EXPERT_LAYOUT_H
#define SL_ENGINE_EXPERT_LAYOUT_H

#include "model/arch/model.h"
#include "streaming/reader.h"
#include "streaming/slab.h"

#define SL_EXPERT_EXTENTS  SL_EXPERT_MATRICES /* gate, up, down */
#define SL_NO_ROUTED_LAYER UINT32_MAX

struct sl_heat_config;
struct sl_heat_layer;

struct sl_routed_layer {
    uint32_t model_layer; /* of the whole model */
    uint32_t size_class;
    uint32_t n_expert;
    uint32_t k;            /* of these, how many a row uses */
    uint64_t expert_bytes; /* payload of one expert */
    bool no_gate;          /* extents are up and down alone */
    struct {
        uint64_t offset_bytes; /* of expert 0 in the file */
        uint64_t stride_bytes; /* from expert to expert */
        uint32_t size_bytes;   /* of one expert */
        uint32_t file;
    } extent[SL_EXPERT_EXTENTS];
};

struct sl_expert_class {
    struct sl_slot_layout slot;
    uint32_t n_layer;  /* routed layers of the class */
    uint32_t n_expert; /* in all of these */
    uint32_t k;        /* experts that a row uses, the most of these layers */
};

struct sl_expert_layout {
    uint32_t n_layer;  /* routed layers; 0 in a dense model */
    uint32_t n_expert; /* the most of any layer of the model; tables of a layer are as long */
    uint32_t k;        /* experts that a row uses, the most likewise */
    uint32_t n_all;    /* experts in all routed layers */
    uint32_t n_class;
    struct sl_routed_layer *layers; /* [n_layer] */
    uint8_t *layer_class;           /* [n_layer] */
    struct sl_heat_layer *counts;   /* [n_layer] n_expert and k once more, for heat */
    uint32_t *routed_of; /* [n_layer of the model or slice] routed layer or SL_NO_ROUTED_LAYER */
    struct sl_expert_class classes[SL_SLAB_CLASSES];
    uint64_t total_bytes; /* payload of all experts of all layers */
    uint64_t token_bytes; /* payload that one token's routing touches: k experts of each layer */
};

/* SL_ERR_UNSUPPORTED: more size classes than SL_SLAB_CLASSES, or an expert that no slot can hold.
 * SL_ERR_NOMEM. Release with sl_expert_layout_release, also a zeroed one. */
enum sl_status sl_expert_layout_make(const struct sl_model *model,
                                     struct sl_expert_layout *out_layout,
                                     struct sl_err *err) SL_MUST_CHECK;
void sl_expert_layout_release(struct sl_expert_layout *layout);

/* What a heat of these layers is created with; borrows the layout's counts. */
void sl_expert_layout_heat(const struct sl_expert_layout *layout, uint64_t fingerprint,
                           struct sl_heat_config *out_config);

/* Fills extents and n_extents of a read of one expert; the rest is the caller's. */
void sl_expert_layout_read(const struct sl_expert_layout *layout, uint32_t routed_layer,
                           uint32_t expert, struct sl_read *read);
/* Where a matrix (0 gate, 1 up, 2 down) is in the expert's slot. Up stands for a missing gate. */
size_t sl_expert_layout_place(const struct sl_expert_layout *layout, uint32_t routed_layer,
                              uint32_t expert, uint32_t matrix);
static inline uint32_t sl_routed_extents(const struct sl_routed_layer *r) {
    return SL_EXPERT_EXTENTS - r->no_gate;
}

#endif
