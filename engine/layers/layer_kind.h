/* Kinds of layer: what each takes of memory, which ops it asks of the device, and how it runs. A
 * mixer and a feed-forward kind each have one file, and an entry in layer_kind.c; their tensors are
 * listed in model/arch/arch_tensors.c. */
#ifndef SL_ENGINE_LAYER_KIND_H
#define SL_ENGINE_LAYER_KIND_H

#include "backends/backend.h"
#include "engine/seq/seq_state.h"
#include "model/arch/model.h"

struct sl_forward;
struct sl_rows;
struct sl_place;
struct sl_binder;
struct sl_layer_weights;

/* Elements of a row in the buffers that all layers share, and the largest arguments of ops: of each
 * the most that any layer needs. */
struct sl_layer_needs {
    uint32_t joint, q, k, v, mixed, ff, shared, early, latent;
    uint32_t n_in;        /* of a matmul */
    uint32_t n_ff_expert; /* of sl_op_moe */
    uint32_t heads, head_dim;
    uint32_t head_n;   /* of sl_op_head_matmul */
    uint32_t adjugate; /* experts of a layer */
    uint32_t chosen;   /* positions, or blocks, that a row attends to, where these are chosen */
    uint32_t streams;  /* weights of a row's streams; 0: it has one */
};

static inline void sl_raise(uint32_t *need, uint32_t to) {
    if (*need < to)
        *need = to;
}

struct sl_op_asker;

struct sl_mixer {
    const char *name;
    void (*ops)(struct sl_op_asker *a, const struct sl_hparams *hp, const struct sl_layer *layer);
    /* What such a layer keeps of a sequence. */
    struct sl_seq_store (*keeps)(const struct sl_layer_spec *spec, enum sl_dtype kv_dtype);
    /* NULL: nothing else. Else whether it keeps more than `i` others, and which is the next. */
    bool (*keeps_more)(const struct sl_layer_spec *spec, enum sl_dtype kv_dtype, uint32_t i,
                       struct sl_seq_store *out);
    void (*need)(const struct sl_hparams *hp, const struct sl_layer_spec *spec,
                 struct sl_layer_needs *needs);
    void (*bind)(struct sl_binder *b, const struct sl_layer *in, struct sl_layer_weights *out);
    /* From x to x: the norm before it, and its output added. The cut of the last layer is its to
     * make: sl_forward_cut. */
    enum sl_status (*run)(struct sl_forward *f, struct sl_rows *r, const struct sl_place *where);
};
struct sl_ffn {
    const char *name;
    bool routed; /* a router chooses what it computes: sl_forward_route and what follows */
    void (*ops)(struct sl_op_asker *a, const struct sl_hparams *hp, const struct sl_layer *layer);
    void (*need)(const struct sl_hparams *hp, const struct sl_layer_spec *spec,
                 struct sl_layer_needs *needs);
    void (*bind)(struct sl_binder *b, const struct sl_layer *in, struct sl_layer_weights *out);
    /* From the normed rows in h, added to r->x. */
    enum sl_status (*run)(struct sl_forward *f, const struct sl_rows *r,
                          const struct sl_place *where);
};

extern const struct sl_mixer sl_mixer_attention, sl_mixer_delta, sl_mixer_latent, sl_mixer_conv,
    sl_mixer_mamba, sl_mixer_mamba1, sl_mixer_none, sl_mixer_kda, sl_mixer_compressed;
extern const struct sl_ffn sl_ffn_dense, sl_ffn_experts, sl_ffn_none;

const struct sl_mixer *sl_mixer_of(const struct sl_layer_spec *spec);
const struct sl_ffn *sl_ffn_of(const struct sl_layer_spec *spec);
/* Of all layers of a model or slice. */
struct sl_layer_needs sl_layer_needs(const struct sl_model *model);
/* layer_ops.c: has the device every op of the model or slice, for its types and sizes of heads and
 * this type of KV? Before anything is loaded. SL_ERR_UNSUPPORTED: the error names the layer, its
 * kind and the op. */
enum sl_status sl_layers_check(const struct sl_model *model, enum sl_dtype kv,
                               const struct sl_device *dev, struct sl_err *err) SL_MUST_CHECK;

#endif
