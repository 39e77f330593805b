/* The feed-forward part that is a router, the experts it chooses, and their sum. */
#include "backends/ops/elementwise.h"
#include "backends/ops/matmul.h"
#include "backends/ops/router.h"
#include "engine/lane/cpu_lane.h"
#include "engine/layers/experts.h"
#include "engine/layers/layer_kind.h"
#include "engine/layers/op_asker.h"
#include "engine/layers/section.h"
#include "engine/layers/streams.h"
#include "engine/pass/pass_internal.h"

static struct sl_op_router router_op(const struct sl_forward *f, uint32_t layer, uint32_t n_rows) {
    const struct sl_layer_weights *w = &f->layers[layer];
    const struct sl_experts_spec *spec = &w->spec->experts;
    return (struct sl_op_router){.logits = f->a.router,
                                 .bias = w->router_bias,
                                 .ids = sl_forward_ids(f, layer),
                                 .weights = f->a.weights,
                                 .n_tok = n_rows,
                                 .n_expert = spec->n_expert,
                                 .k = spec->n_used,
                                 .score = spec->router_kind == SL_ROUTER_KIND_SIGMOID
                                              ? SL_ROUTER_SIGMOID
                                              : SL_ROUTER_SOFTMAX,
                                 .softmax_topk = spec->router_softmax_topk,
                                 .normalize = spec->router_normalize,
                                 .scale = spec->router_scale,
                                 .n_group = spec->n_group,
                                 .n_group_used = spec->n_group_used,
                                 .expert_scale = w->expert_scale};
}

/* Whichever of the routers the layer has, as that op says, for r's rows. */
static enum sl_status choose(struct sl_forward *f, uint32_t layer, const struct sl_rows *r,
                             const struct sl_op_router *op) {
    const struct sl_layer_weights *w = &f->layers[layer];
    if (w->spec->experts.router_kind != SL_ROUTER_KIND_SQRT_SOFTPLUS)
        return sl_op_router(f->dev, op);
    return sl_op_softplus_router(
        f->dev, &(struct sl_op_softplus_router){.logits = op->logits,
                                                .bias = op->bias,
                                                .table = w->router_table,
                                                .tokens = f->on_device.ids,
                                                .rows = r->of_step ? f->on_device.out_rows : NULL,
                                                .ids = op->ids,
                                                .weights = op->weights,
                                                .n_tok = op->n_tok,
                                                .n_expert = op->n_expert,
                                                .k = op->k,
                                                .normalize = op->normalize,
                                                .scale = op->scale});
}

/* Of the same logits, which adjugate experts a row's chosen experts share, and their weights. */
static enum sl_status choose_adjugate(struct sl_forward *f, const struct sl_rows *r,
                                      const struct sl_place *where) {
    const struct sl_experts_spec *x = &f->layers[where->layer].spec->experts;
    struct sl_op_router op = router_op(f, where->layer, r->n);
    op.ids = f->a.adjugate_ids;
    op.weights = f->a.adjugate_weights;
    op.k = sl_experts_adjugate_used(x);
    op.share = x->n_per_adjugate;
    op.scale = x->adjugate_scale;
    SL_FORWARD_TRY("adjugate experts", sl_op_router(f->dev, &op));
    return SL_OK;
}

static enum sl_status scale_logits(struct sl_forward *f, const struct sl_rows *r,
                                   const struct sl_layer_weights *w, float *logits,
                                   const struct sl_place *where) {
    float scale = w->spec->experts.router_logit_scale;
    uint32_t n = w->spec->experts.n_expert;
    if (scale > 0)
        SL_FORWARD_TRY(
            "router", sl_op_scale(f->dev, &(struct sl_op_scale){
                                              .x = logits, .n_tok = r->n, .n = n, .scale = scale}));
    return SL_OK;
}

enum sl_status sl_forward_shared(struct sl_forward *f, const struct sl_rows *r,
                                 const struct sl_place *where) {
    const struct sl_layer_weights *w = &f->layers[where->layer];
    struct sl_activations *a = &f->a;
    if (!w->shared_up.data)
        return SL_OK;
    uint64_t start = sl_timeline_now(f->timeline);
    SL_FORWARD_TRY("shared expert", sl_forward_glu(f, w->spec, (size_t)r->n * w->shared_up.n_out));
    SL_FORWARD_TRY("shared expert",
                   sl_op_matmul(f->dev, &(struct sl_op_matmul){
                                            .x = a->gate,
                                            .n_tok = r->n,
                                            .n_decode = r->n_decode,
                                            .n_w = 1,
                                            .out = {{w->shared_down, NULL, a->shared_y, false}}}));
    sl_timeline_since(f->timeline, "shared expert", start, {"rows", r->n});
    return SL_OK;
}

/* The router's logits of r's rows, whose input is in h [r->n, n_embd]; scaled. */
static enum sl_status router_logits(struct sl_forward *f, const struct sl_rows *r,
                                    const struct sl_layer_weights *w, const float *h, float *logits,
                                    const struct sl_place *where) {
    struct sl_op_matmul in = {.x = h,
                              .n_tok = r->n,
                              .n_decode = r->n_decode,
                              .n_w = 1,
                              .out = {{w->router, w->router_logit_bias, logits, false}}};
    SL_FORWARD_TRY("router", sl_op_matmul(f->dev, &in));
    return scale_logits(f, r, w, logits, where);
}

enum sl_status sl_forward_route_first(struct sl_forward *f, const struct sl_rows *r,
                                      const struct sl_place *where) {
    const struct sl_layer_weights *w = &f->layers[where->layer];
    return w->spec->experts.router_first ? router_logits(f, r, w, r->x, f->a.router, where) : SL_OK;
}

enum sl_status sl_forward_predict(struct sl_forward *f, const struct sl_rows *r, uint32_t which,
                                  const struct sl_place *where) {
    struct sl_activations *a = &f->a;
    uint32_t layer = where->layer + sl_fetch_prediction_ahead[which];
    const struct sl_layer_weights *next = &f->layers[layer];
    uint64_t start = sl_timeline_now(f->timeline);
    const float *norm = next->router_norm           ? next->router_norm
                        : next->spec->experts.early ? next->experts_norm
                                                    : next->ffn_norm;
    /* Of streams, as what this layer reads of them: a prediction need not be exact. */
    const float *x = f->hp->n_stream ? a->stream_x : r->x, *h = x;
    if (f->hp->stream_rank) {
        h = a->h;
    } else if (!next->spec->experts.router_first) {
        SL_FORWARD_TRY("early router",
                       sl_forward_row_norm(f, x, norm,
                                           norm == next->ffn_norm ? next->ffn_norm_bias : NULL,
                                           a->next_h, r->n));
        h = a->next_h;
    }
    SL_TRY(router_logits(f, r, next, h, a->next_router, where));
    struct sl_op_router op = router_op(f, layer, r->n);
    op.logits = a->next_router;
    op.ids = a->next_ids + (size_t)r->n * sl_forward_predicted_ids(f, where->layer, which);
    op.weights = a->next_weights;
    SL_FORWARD_TRY("early router", choose(f, layer, r, &op));
    sl_timeline_since(f->timeline, "early router", start, {"rows", r->n});
    return SL_OK;
}

/* Where the host sees at once what the early router chooses. */
static enum sl_status look_ahead(struct sl_forward *f, const struct sl_rows *r,
                                 const struct sl_place *where) {
    if (f->plan->reads_back || !sl_forward_can_predict(f, where->layer, 1) ||
        !sl_fetch_wants_ahead(f->fetch))
        return SL_OK;
    enum sl_status status = sl_forward_predict(f, r, 0, where);
    if (status == SL_OK)
        sl_fetch_ahead(f->fetch, f->layers[where->layer + 1].routed_layer, f->a.next_ids,
                       r->n * f->layers[where->layer + 1].spec->experts.n_used);
    return status;
}

static bool asked_to_stop(void *ctx) {
    const struct sl_abort *give_up = ctx;
    return give_up->asked(give_up);
}

/* The routed experts, as they arrive. Ends what sl_fetch_begin began, whatever happened since. */
static enum sl_status fetch_experts(struct sl_forward *f, const struct sl_rows *r,
                                    struct sl_op_moe *op, const struct sl_place *where) {
    struct sl_fetch_abort stop = {asked_to_stop, (void *)where->give_up};
    struct sl_err why = {{0}};
    uint32_t n_failed;
    enum sl_status status =
        sl_fetch_run(f->fetch, f->dev, op, where->give_up ? &stop : NULL, &n_failed, &why);
    if (status == SL_ERR_CANCELED)
        return sl_fail(where->err, status, "%s", why.text);
    SL_FORWARD_TRY("experts", status);
    if (!n_failed)
        return SL_OK;
    if (!f->step.n_failed)
        sl_fail(where->err, SL_ERR_IO, "%s", why.text);
    f->step.n_failed += n_failed;
    for (uint32_t i = 0; r->of_step && i < r->n; i++)
        f->row_failed[r->of_step[i]] = r->failed[i];
    return SL_OK;
}

/* Prompt rows that will go through the next layer's FFN: of the last layer's only those that go on
 * to the logits. */
static uint32_t next_prompt_rows(const struct sl_forward *f, const struct sl_rows *r,
                                 const struct sl_place *where) {
    const struct sl_step *s = &f->step;
    if (!sl_forward_cuts(f, where->layer + 1))
        return r->n - r->n_decode;
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_out; i++)
        n += s->out_rows[i] >= s->n_decode;
    return n;
}

enum sl_status sl_forward_route(struct sl_forward *f, const struct sl_rows *r,
                                const struct sl_place *where) {
    const struct sl_layer_weights *w = &f->layers[where->layer];
    struct sl_activations *a = &f->a;
    /* The shared expert's first products read the same input as the router, unless that has a norm
     * of its own. */
    struct sl_op_matmul in = {.x = a->h, .n_tok = r->n, .n_decode = r->n_decode};
    bool early = w->spec->experts.early;
    if (!w->router_norm && !early && !w->spec->experts.router_first)
        in.out[in.n_w++] =
            (struct sl_matmul_out){w->router, w->router_logit_bias, a->router, false};
    if (w->shared_up.data) {
        bool gated = w->shared_gate.data;
        if (gated)
            in.out[in.n_w++] = (struct sl_matmul_out){w->shared_gate, NULL, a->gate, false};
        in.out[in.n_w++] =
            (struct sl_matmul_out){w->shared_up, NULL, gated ? a->up : a->gate, false};
        if (w->shared_router.data)
            in.out[in.n_w++] =
                (struct sl_matmul_out){w->shared_router, NULL, a->shared_weight, false};
    }
    uint64_t start = sl_timeline_now(f->timeline);
    if (in.n_w)
        SL_FORWARD_TRY("router", sl_op_matmul(f->dev, &in));
    enum sl_status status = SL_OK;
    if (w->router_norm) {
        SL_FORWARD_TRY("router norm",
                       sl_forward_norm(f, r->x, w->router_norm, a->h, r->n, f->hp->n_embd));
        status = router_logits(f, r, w, a->h, a->router, where);
    } else if (early) {
        status = router_logits(f, r, w, a->early_h, a->router, where);
    } else {
        status = scale_logits(f, r, w, a->router, where);
    }
    if (status != SL_OK)
        return status;
    /* Right behind its logits, so that a device may do norm, logits and choice in one. */
    struct sl_op_router op = router_op(f, where->layer, r->n);
    SL_FORWARD_TRY("router", choose(f, where->layer, r, &op));
    if (w->adjugate)
        SL_TRY(choose_adjugate(f, r, where));
    if (!early && (w->router_norm || w->experts_norm))
        SL_FORWARD_TRY("experts' norm",
                       sl_forward_norm(f, r->x, w->experts_norm ? w->experts_norm : w->ffn_norm,
                                       a->h, r->n, f->hp->n_embd));
    if (w->latent_down.data)
        SL_FORWARD_TRY("experts' rows",
                       sl_op_matmul(f->dev, &(struct sl_op_matmul){.x = a->h,
                                                                   .n_tok = r->n,
                                                                   .n_decode = r->n_decode,
                                                                   .n_w = 1,
                                                                   .out = {{w->latent_down, NULL,
                                                                            a->latent, false}}}));
    if (w->spec->experts.weights_in) /* the shared expert has read h */
        SL_FORWARD_TRY("weighted input",
                       sl_op_scale(f->dev, &(struct sl_op_scale){.x = a->h,
                                                                 .rows = a->weights,
                                                                 .n_tok = r->n,
                                                                 .n = f->hp->n_embd,
                                                                 .scale = 1}));
    sl_timeline_since(f->timeline, "router", start, {"rows", r->n});
    return SL_OK;
}

/* The sum of each row's experts, perhaps normed, turned back into a row of the layer. */
static enum sl_status sum_latents(struct sl_forward *f, const struct sl_layer_weights *w,
                                  const struct sl_rows *to, bool set) {
    SL_TRY(sl_op_moe_combine(f->dev, &(struct sl_op_moe_combine){.pair_y = f->a.pair_y,
                                                                 .weights = f->a.weights,
                                                                 .y = f->a.latent,
                                                                 .n_tok = to->n,
                                                                 .k = w->spec->experts.n_used,
                                                                 .n = w->spec->experts.n_latent,
                                                                 .set = true}));
    if (w->experts_post_norm)
        SL_TRY(sl_forward_norm(f, f->a.latent, w->experts_post_norm, f->a.latent, to->n,
                               w->spec->experts.n_latent));
    return sl_op_matmul(f->dev, &(struct sl_op_matmul){.x = f->a.latent,
                                                       .n_tok = to->n,
                                                       .n_decode = to->n_decode,
                                                       .n_w = 1,
                                                       .out = {{w->latent_up, NULL, to->x, !set}}});
}

/* The sum of each row's experts, into to->x; set: not added to what is there. */
static enum sl_status sum_experts(struct sl_forward *f, const struct sl_layer_weights *w,
                                  const struct sl_rows *to, bool set) {
    uint32_t n = f->hp->n_embd, k = w->spec->experts.n_used;
    if (w->latent_up.data)
        return sum_latents(f, w, to, set);
    if (w->spec->experts.weights_in) /* one a row, weighted already */
        return sl_op_add_gated(f->dev, &(struct sl_op_add_gated){
                                           .x = f->a.pair_y, .y = to->x, .n_tok = to->n, .n = n});
    return sl_op_moe_combine(f->dev, &(struct sl_op_moe_combine){.pair_y = f->a.pair_y,
                                                                 .weights = f->a.weights,
                                                                 .y = to->x,
                                                                 .n_tok = to->n,
                                                                 .k = k,
                                                                 .n = n,
                                                                 .set = set});
}

static enum sl_activation activation_of(const struct sl_layer_spec *spec) {
    switch (spec->experts.activation) {
    case SL_EXPERT_SWIGLU_CLAMPED:
        return SL_SWIGLU_CLAMPED;
    case SL_EXPERT_GEGLU:
        return SL_GEGLU;
    case SL_EXPERT_SWIGLU_LIMITED:
        return SL_SWIGLU_LIMITED;
    case SL_EXPERT_REGLU:
        return SL_REGLU;
    case SL_EXPERT_SWIGLU_CUT:
        return SL_SWIGLU_CUT;
    case SL_EXPERT_RELU_SQUARED:
        return SL_RELU_SQUARED;
    case SL_EXPERT_SITU:
        return SL_SITU;
    case SL_EXPERT_SWIGLU:
        break;
    }
    return SL_SWIGLU;
}

/* All of the op but where the experts are. */
static struct sl_op_moe moe_op(const struct sl_forward *f, uint32_t layer,
                               const struct sl_rows *r) {
    const struct sl_hparams *hp = f->hp;
    const struct sl_layer_weights *w = &f->layers[layer];
    return (struct sl_op_moe){.x = sl_forward_expert_rows(f, layer),
                              .ids = sl_forward_ids(f, layer),
                              .pair_y = f->a.pair_y,
                              .gate_dtype = w->expert_gate,
                              .up_dtype = w->expert_up,
                              .down_dtype = w->expert_down,
                              .n_tok = r->n,
                              .n_decode = r->n_decode,
                              .k = w->spec->experts.n_used,
                              .n_pairs = r->n * w->spec->experts.n_used,
                              .n_expert = w->spec->experts.n_expert,
                              .n_embd = w->spec->experts.n_latent ? w->spec->experts.n_latent
                                                                  : hp->n_embd,
                              .n_ff = w->spec->experts.n_ff,
                              .gate_bias = w->gate_bias,
                              .up_bias = w->up_bias,
                              .down_bias = w->down_bias,
                              .activation = activation_of(w->spec),
                              .limit = w->spec->experts.limit,
                              .limit_up = w->spec->experts.limit_up};
}

enum sl_status sl_forward_fetch(struct sl_forward *f, const struct sl_rows *r,
                                const uint32_t *chosen, bool shared, const struct sl_place *where) {
    struct sl_op_moe op = moe_op(f, where->layer, r);
    sl_fetch_begin(f->fetch, f->layers[where->layer].routed_layer,
                   &(struct sl_fetch_rows){chosen, r->n, r->n_decode, r->failed,
                                           next_prompt_rows(f, r, where)});
    sl_forward_feed_lane(f, where->layer, r);
    enum sl_status status = look_ahead(f, r, where);
    if (!shared && f->prediction &&
        sl_fetch_is_reading(f->fetch)) /* the disk should know at once */
        sl_forward_follow_prediction(f, where->layer, r->n);
    if (status == SL_OK && shared)
        status = sl_forward_shared(f, r, where);
    enum sl_status run = fetch_experts(f, r, &op, where);
    return status != SL_OK ? status : run;
}

/* From the device's own memory, where all of them are. */
static enum sl_status resident_experts(struct sl_forward *f, const struct sl_rows *r,
                                       const struct sl_place *where) {
    struct sl_op_moe op = moe_op(f, where->layer, r);
    if (f->plan->reads_back)
        op.device_refs = f->a.refs + (size_t)where->layer * f->hp->n_expert;
    else
        op.refs = f->layers[where->layer].experts;
    uint64_t start = sl_timeline_now(f->timeline);
    SL_FORWARD_TRY("experts", sl_op_moe(f->dev, &op));
    sl_timeline_since(f->timeline, "experts", start, {"pairs", op.n_pairs});
    return sl_forward_shared(f, r, where);
}

/* What adjugate experts make of the routed ones' sum, y [to->n, n_embd], is added to it. The routed
 * experts' products have been summed, so theirs take the same room. */
static enum sl_status add_adjugate(struct sl_forward *f, const struct sl_rows *r, float *y,
                                   const struct sl_place *where) {
    const struct sl_layer_weights *w = &f->layers[where->layer];
    uint32_t k = sl_experts_adjugate_used(&w->spec->experts);
    struct sl_op_moe op = {.x = y,
                           .ids = f->a.adjugate_ids,
                           .pair_y = f->a.pair_y,
                           .gate_dtype = w->adjugate_gate,
                           .up_dtype = w->adjugate_up,
                           .down_dtype = w->adjugate_down,
                           .n_tok = r->n,
                           .n_decode = r->n_decode,
                           .k = k,
                           .n_pairs = r->n * k,
                           .n_expert = sl_experts_adjugate(&w->spec->experts),
                           .n_embd = f->hp->n_embd,
                           .n_ff = w->spec->experts.n_ff_adjugate,
                           .activation = activation_of(w->spec)};
    struct sl_op_moe_combine sum = {.pair_y = f->a.pair_y,
                                    .weights = f->a.adjugate_weights,
                                    .y = y,
                                    .n_tok = r->n,
                                    .k = k,
                                    .n = f->hp->n_embd};
    if (f->plan->reads_back)
        op.device_refs = f->a.adjugate_refs + (w->adjugate - f->adjugate_refs);
    else
        op.refs = w->adjugate;
    uint64_t start = sl_timeline_now(f->timeline);
    SL_FORWARD_TRY("adjugate experts", sl_op_moe(f->dev, &op));
    SL_FORWARD_TRY("adjugate experts", sl_op_moe_combine(f->dev, &sum));
    sl_timeline_since(f->timeline, "adjugate experts", start, {"pairs", op.n_pairs});
    return SL_OK;
}

enum sl_status sl_forward_join(struct sl_forward *f, const struct sl_rows *r,
                               const struct sl_place *where) {
    const struct sl_hparams *hp = f->hp;
    const struct sl_layer_weights *w = &f->layers[where->layer];
    struct sl_activations *a = &f->a;
    sl_forward_section(f, where->layer, false);
    /* What goes through a norm is summed in h, which the experts have read. */
    bool separate = sl_forward_is_separate(w);
    struct sl_rows to = *r;
    to.x = separate ? a->h : r->x;
    SL_FORWARD_TRY("expert sum", sum_experts(f, w, &to, separate));
    SL_TRY(w->adjugate ? add_adjugate(f, r, to.x, where) : SL_OK);
    if (w->experts_post_norm && !w->latent_up.data)
        SL_FORWARD_TRY("experts' norm",
                       sl_forward_norm(f, to.x, w->experts_post_norm, to.x, r->n, hp->n_embd));
    if (w->shared_post_norm)
        SL_FORWARD_TRY("shared expert's norm", sl_forward_norm(f, a->shared_y, w->shared_post_norm,
                                                               a->shared_y, r->n, hp->n_embd));
    if (w->shared_up.data)
        SL_FORWARD_TRY(
            "shared expert",
            sl_op_add_gated(f->dev, &(struct sl_op_add_gated){
                                        .x = a->shared_y,
                                        .gate = w->shared_router.data ? a->shared_weight : NULL,
                                        .y = to.x,
                                        .n_tok = r->n,
                                        .n = hp->n_embd}));
    if (w->spec->experts.sum_scale > 0)
        SL_FORWARD_TRY(
            "experts' scale",
            sl_op_scale(f->dev, &(struct sl_op_scale){.x = to.x,
                                                      .n_tok = r->n,
                                                      .n = hp->n_embd,
                                                      .scale = w->spec->experts.sum_scale}));
    enum sl_status status =
        separate ? sl_streams_write(f, r, &w->streams[1], a->h, w->ffn_post_norm, where) : SL_OK;
    return status == SL_OK ? sl_forward_end_layer(f, r, where) : status;
}

static enum sl_status run(struct sl_forward *f, const struct sl_rows *r,
                          const struct sl_place *where) {
    const uint32_t *chosen = sl_forward_ids(f, where->layer);
    SL_TRY(sl_forward_route(f, r, where));
    if (f->resident) {
        SL_TRY(resident_experts(f, r, where));
    } else {
        SL_FORWARD_TRY("copying the experts' rows", sl_forward_send_rows(f, where->layer, r));
        if (f->plan->reads_back)
            SL_FORWARD_TRY("reading the router's choice",
                           sl_forward_read_ids(f, where->layer, r->n, &chosen));
        SL_TRY(sl_forward_fetch(f, r, chosen, true, where));
    }
    SL_TRY(sl_forward_join(f, r, where));
    /* What is resident on a device is read back for all layers at once. */
    if (!(f->resident && f->plan->reads_back))
        sl_forward_count_routes(f, where->layer, r->n, r->of_step, chosen);
    return SL_OK;
}

static void ops(struct sl_op_asker *a, const struct sl_hparams *hp, const struct sl_layer *layer) {
    (void)hp;
    sl_ask_weight(a, SL_OP_matmul, layer->t[SL_L_ROUTER]);
    if (layer->spec.experts.router_kind == SL_ROUTER_KIND_SQRT_SOFTPLUS)
        sl_ask_plain(a, SL_OP_softplus_router);
    else
        sl_ask_op(
            a, (struct sl_op_need){
                   .op = SL_OP_router,
                   .dtype = SL_DTYPE_COUNT,
                   .groups = layer->spec.experts.n_group > 1,
                   .sigmoid_topk = layer->spec.experts.router_softmax_topk &&
                                   layer->spec.experts.router_kind == SL_ROUTER_KIND_SIGMOID,
                   .share = layer->spec.experts.n_ff_adjugate,
                   .extra = layer->t[SL_L_EXPERTS_SCALE] ? " with a scale for each expert" : NULL});
    if (layer->spec.experts.router_logit_scale > 0 || layer->t[SL_L_LAYER_SCALE] ||
        layer->spec.experts.weights_in || layer->spec.experts.sum_scale > 0)
        sl_ask_plain(a, SL_OP_scale);
    if (layer->spec.experts.weights_in)
        sl_ask_plain(a, SL_OP_add_gated);
    for (uint32_t i = 0; i < SL_EXPERT_MATRICES; i++)
        sl_ask_op(a, (struct sl_op_need){.op = SL_OP_moe,
                                         .dtype = sl_layer_expert_matrix(layer, i).t->dtype,
                                         .biases = layer->spec.experts.biases,
                                         .activation = activation_of(&layer->spec)});
    for (enum sl_layer_role role = SL_L_ADJUGATE_GATE; role <= SL_L_ADJUGATE_DOWN; role++)
        if (layer->t[role])
            sl_ask_op(a, (struct sl_op_need){.op = SL_OP_moe,
                                             .dtype = layer->t[role]->dtype,
                                             .activation = activation_of(&layer->spec)});
    bool separate = layer->t[SL_L_FFN_POST_NORM] || layer->t[SL_L_SHARED_POST_NORM] ||
                    layer->t[SL_L_EXPERTS_POST_NORM] || layer->t[SL_L_ADJUGATE_DOWN] ||
                    layer->spec.experts.sum_scale > 0 || layer->t[SL_L_STREAMS_FFN_BASE] ||
                    layer->t[SL_L_LOW_FFN_NORM];
    sl_ask_weight(a, SL_OP_matmul, layer->t[SL_L_EXPERTS_LATENT_DOWN]);
    sl_ask_weight(a, SL_OP_matmul, layer->t[SL_L_EXPERTS_LATENT_UP]);
    bool own_rows = separate || layer->spec.experts.n_latent;
    sl_ask_op(a, (struct sl_op_need){.op = SL_OP_moe_combine,
                                     .dtype = SL_DTYPE_COUNT,
                                     .extra = own_rows ? " into rows of its own" : NULL});
    bool with_dense = layer->spec.experts.with_dense;
    bool shared = with_dense || layer->t[SL_L_SHARED_UP];
    if (separate || shared)
        sl_ask_plain(a, SL_OP_add_gated);
    if (!shared)
        return;
    enum sl_layer_role first = with_dense ? SL_L_FFN_GATE : SL_L_SHARED_GATE;
    enum sl_layer_role last = with_dense ? SL_L_FFN_DOWN : SL_L_SHARED_ROUTER;
    for (enum sl_layer_role role = first; role <= last; role++)
        sl_ask_weight(a, SL_OP_matmul, layer->t[role]);
    sl_ask_plain(a, sl_glu_op(&layer->spec));
}

static void need(const struct sl_hparams *hp, const struct sl_layer_spec *spec,
                 struct sl_layer_needs *needs) {
    const struct sl_experts_spec *x = &spec->experts;
    sl_raise(&needs->n_in, x->n_ff);
    sl_raise(&needs->n_ff_expert, x->n_ff);
    sl_raise(&needs->n_in, x->n_ff_shared);
    sl_raise(&needs->n_in, x->n_ff_adjugate);
    sl_raise(&needs->n_ff_expert, x->n_ff_adjugate);
    sl_raise(&needs->adjugate, sl_experts_adjugate(x));
    sl_raise(&needs->ff, x->n_ff_shared);
    sl_raise(&needs->shared, x->n_ff_shared ? hp->n_embd : 0);
    sl_raise(&needs->early, x->early ? hp->n_embd : 0);
    sl_raise(&needs->latent, x->n_latent);
}

static void bind_experts(struct sl_binder *b, const struct sl_layer *in,
                         struct sl_layer_weights *out) {
    struct sl_expert_matrix m[SL_EXPERT_MATRICES];
    const char *data[SL_EXPERT_MATRICES] = {NULL};
    out->expert_bytes = 0;
    for (uint32_t i = 0; i < SL_EXPERT_MATRICES; i++) {
        m[i] = sl_layer_expert_matrix(in, i);
        if (!sl_bind_type(b, m[i].t))
            return;
        if (i || sl_experts_gated(&in->spec.experts))
            out->expert_bytes += m[i].part_bytes;
    }
    out->expert_gate = m[0].t->dtype;
    out->expert_up = m[1].t->dtype;
    out->expert_down = m[2].t->dtype;
    out->lane = !sl_lane_refuses(in);
    if (!b->refs)
        return; /* they are streamed */
    for (uint32_t i = 0; i < SL_EXPERT_MATRICES; i++)
        data[i] = (const char *)sl_bind_address(b, m[i].t) + m[i].first_bytes;
    for (uint32_t e = 0; e < m[0].t->ne[2]; e++)
        b->refs[e] =
            (struct sl_expert_ref){data[0] + e * m[0].stride_bytes, data[1] + e * m[1].stride_bytes,
                                   data[2] + e * m[2].stride_bytes};
    out->experts = b->refs;
}

/* Resident wherever the routed experts are. */
static void bind_adjugate(struct sl_binder *b, const struct sl_layer *in,
                          struct sl_layer_weights *out) {
    struct sl_weight m[SL_EXPERT_MATRICES];
    for (uint32_t i = 0; i < SL_EXPERT_MATRICES; i++)
        m[i] = sl_bind_matrix(b, in->t[SL_L_ADJUGATE_GATE + i]);
    uint32_t n = sl_experts_adjugate(&in->spec.experts);
    if (b->status != SL_OK || !n)
        return;
    const void *at[SL_EXPERT_MATRICES];
    for (uint32_t e = 0; e < n; e++) {
        for (uint32_t i = 0; i < SL_EXPERT_MATRICES; i++)
            at[i] = (const char *)m[i].data + e * (in->t[SL_L_ADJUGATE_GATE + i]->size_bytes / n);
        b->adjugate[e] = (struct sl_expert_ref){at[0], at[1], at[2]};
    }
    out->adjugate_gate = m[0].dtype;
    out->adjugate_up = m[1].dtype;
    out->adjugate_down = m[2].dtype;
    out->adjugate = b->adjugate;
}

static void bind(struct sl_binder *b, const struct sl_layer *in, struct sl_layer_weights *out) {
    out->router = sl_bind_matrix(b, in->t[SL_L_ROUTER]);
    out->router_bias = sl_bind_vector(b, in->t[SL_L_ROUTER_BIAS]);
    out->router_logit_bias = sl_bind_vector(b, in->t[SL_L_ROUTER_LOGIT_BIAS]);
    if (in->t[SL_L_ROUTER_TABLE] && b->status == SL_OK)
        out->router_table = sl_bind_address(b, in->t[SL_L_ROUTER_TABLE]);
    out->gate_bias = sl_bind_vector(b, in->t[SL_L_EXPERTS_GATE_BIAS]);
    out->up_bias = sl_bind_vector(b, in->t[SL_L_EXPERTS_UP_BIAS]);
    out->down_bias = sl_bind_vector(b, in->t[SL_L_EXPERTS_DOWN_BIAS]);
    bool with_dense = in->spec.experts.with_dense;
    out->shared_gate = sl_bind_matrix(b, in->t[with_dense ? SL_L_FFN_GATE : SL_L_SHARED_GATE]);
    out->shared_up = sl_bind_matrix(b, in->t[with_dense ? SL_L_FFN_UP : SL_L_SHARED_UP]);
    out->shared_down = sl_bind_matrix(b, in->t[with_dense ? SL_L_FFN_DOWN : SL_L_SHARED_DOWN]);
    out->ffn_post_norm = sl_bind_vector(b, in->t[SL_L_FFN_POST_NORM]);
    out->shared_post_norm = sl_bind_vector(b, in->t[SL_L_SHARED_POST_NORM]);
    out->experts_post_norm = sl_bind_vector(b, in->t[SL_L_EXPERTS_POST_NORM]);
    out->experts_norm = sl_bind_vector(b, in->t[SL_L_EXPERTS_NORM]);
    out->router_norm = sl_bind_vector(b, in->t[SL_L_ROUTER_NORM]);
    out->expert_scale = sl_bind_vector(b, in->t[SL_L_EXPERTS_SCALE]);
    out->scale = sl_bind_vector(b, in->t[SL_L_LAYER_SCALE]);
    out->shared_router = sl_bind_matrix(b, in->t[SL_L_SHARED_ROUTER]);
    out->latent_down = sl_bind_matrix(b, in->t[SL_L_EXPERTS_LATENT_DOWN]);
    out->latent_up = sl_bind_matrix(b, in->t[SL_L_EXPERTS_LATENT_UP]);
    bind_experts(b, in, out);
    bind_adjugate(b, in, out);
}

const struct sl_ffn sl_ffn_experts = {
    .name = "routed experts", .routed = true, .ops = ops, .need = need, .bind = bind, .run = run};
