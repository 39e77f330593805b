/* Which ops a model needs of a device, and for what: asked before anything is loaded, so that what
 * is missing is said by its name and not found at the tenth token. */
#include "engine/forward/forward.h"

#include "model/arch/model.h"

struct asker {
    const struct sl_device *dev;
    enum sl_dtype kv;
    struct sl_err *err;
    enum sl_status status; /* of the first that is missing */
};

static void ask(struct asker *a, struct sl_op_need need) {
    if (!a->status)
        a->status = sl_device_need(a->dev, &need, a->err);
}

static void ask_plain(struct asker *a, enum sl_op op) {
    ask(a, (struct sl_op_need){.op = op, .dtype = SL_DTYPE_COUNT});
}

static void ask_weight(struct asker *a, enum sl_op op, const struct sl_gguf_tensor *t) {
    if (t)
        ask(a, (struct sl_op_need){.op = op, .dtype = t->dtype});
}

/* Matrices that are multiplied with; the rest of the roles are norms, biases and experts. */
static const enum sl_layer_role matrices[] = {SL_L_ATTN_Q,    SL_L_ATTN_K,      SL_L_ATTN_V,
                                              SL_L_ATTN_OUT,  SL_L_FFN_GATE,    SL_L_FFN_UP,
                                              SL_L_FFN_DOWN,  SL_L_ROUTER,      SL_L_SHARED_GATE,
                                              SL_L_SHARED_UP, SL_L_SHARED_DOWN, SL_L_SHARED_ROUTER};
static const enum sl_layer_role experts[] = {SL_L_EXPERTS_GATE, SL_L_EXPERTS_UP, SL_L_EXPERTS_DOWN};

static void ask_attention(struct asker *a, const struct sl_hparams *hp,
                          const struct sl_attention_spec *s) {
    ask(a, (struct sl_op_need){SL_OP_kv_write, a->kv, s->head_dim_k, s->head_dim_v});
    ask(a, (struct sl_op_need){SL_OP_attention, a->kv, s->head_dim_k, s->head_dim_v});
    if (hp->n_rope && hp->rope[s->rope].n_rot) {
        ask_plain(a, SL_OP_rope_table);
        ask_plain(a, SL_OP_rope);
    }
}

static void ask_layer(struct asker *a, const struct sl_hparams *hp, const struct sl_layer *layer) {
    if (layer->spec.mixer == SL_MIXER_ATTENTION)
        ask_attention(a, hp, &layer->spec.attention);
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++)
        ask_weight(a, SL_OP_matmul, layer->t[matrices[i]]);
    for (size_t i = 0; i < sizeof experts / sizeof *experts; i++)
        ask_weight(a, SL_OP_moe, layer->t[experts[i]]);
    if (layer->t[SL_L_ROUTER]) {
        ask_plain(a, SL_OP_router);
        ask_plain(a, SL_OP_moe_combine);
    }
    if (layer->t[SL_L_FFN_GATE] || layer->t[SL_L_SHARED_GATE])
        ask_plain(a, SL_OP_silu_mul);
    if (layer->t[SL_L_SHARED_GATE])
        ask_plain(a, SL_OP_add_gated);
}

enum sl_status sl_forward_check_ops(const struct sl_model *model, enum sl_dtype kv,
                                    const struct sl_device *dev, struct sl_err *err) {
    const struct sl_hparams *hp = &model->hp;
    struct asker a = {.dev = dev, .kv = kv, .err = err};
    ask_plain(&a, SL_OP_rms_norm);
    ask_weight(&a, SL_OP_embed, hp->first_layer ? NULL : model->global[SL_G_TOKEN_EMBD]);
    for (uint32_t i = 0; i < hp->n_layer; i++)
        ask_layer(&a, hp, &model->layers[i]);
    if (model->global[SL_G_OUTPUT]) {
        ask_weight(&a, SL_OP_matmul, model->global[SL_G_OUTPUT]);
        ask_plain(&a, SL_OP_gather_rows);
        if (!dev->caps.host_visible)
            ask_plain(&a, SL_OP_block_max);
    }
    return a.status;
}
