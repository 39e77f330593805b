/* Choosing the experts of each row, and their weights. Who owns the arguments, and until when:
 * backend.h. */
#ifndef SL_BACKENDS_OPS_ROUTER_H
#define SL_BACKENDS_OPS_ROUTER_H

#include <stdbool.h>
#include <stdint.h>

enum sl_router_score { SL_ROUTER_SOFTMAX, SL_ROUTER_SIGMOID };
/* Chooses k experts per row. logits [n_tok, n_expert] f32.
 *   score = softmax over all experts, or sigmoid; with softmax_topk the softmax runs over the k
 *           chosen logits instead (Mixtral, gpt-oss: the same weights as renormalised softmax);
 *           with softmax_topk and sigmoid the largest logits are chosen and then passed through the
 *           sigmoid, so that experts whose sigmoid rounds to 1 keep their order (Llama 4;
 *           caps.sigmoid_topk; no bias)
 *
 *   order:  the k largest score (+ bias when not NULL), largest first, ties to the lower index
 *
 *   groups: with n_group > 1 the experts are n_group runs of equal length, and only those of the
 *           n_group_used best groups may be chosen; a group is as good as the sum of its two
 * largest scores (+ bias), added largest first, ties to the lower group (DeepSeek-V3, 2024,
 *           section 2.1.2). 0 or 1: no groups
 *
 *   weight: the score without bias, divided by the k scores' sum if normalize, times scale, times
 *           expert_scale[id] when not NULL (caps.extra_args)
 *
 *   share:  above 1, each run of so many experts shares one id: an id is that of the chosen expert
 *           divided by share, so that one may come several times, and its score is that at this
 *           smaller number, whose expert need not be among the chosen (GroveMoE's adjugate experts,
 *           as llama.cpp computes them; caps.router_share; no softmax_topk, no expert_scale)
 * ids [n_tok, k], weights [n_tok, k], expert_scale [n_expert] f32. */
struct sl_op_router {
    const float *logits, *bias;
    uint32_t *ids;
    float *weights;
    uint32_t n_tok, n_expert, k;
    enum sl_router_score score;
    bool softmax_topk, normalize;
    float scale;
    uint32_t n_group, n_group_used; /* caps.router_groups */
    const float *expert_scale;
    uint32_t share; /* 0 and 1: none */
};

/* A router whose scores are sqrt(softplus(logit)), softplus as in sl_op_delta_rule. Chooses the k
 * experts of the largest score (+ bias when not NULL) as sl_op_router does; or, with a table, those
 * that the row's token has there, in that order: ids[t,:] = table[tokens[rows ? rows[t] : t],:].
 * weight: the score without bias, with normalize divided by the k scores' sum, or by 2^-14 where
 * that is less; times scale.
 * logits [n_tok, n_expert], ids, weights [n_tok, k], table [tokens' number, k] of ids below
 * n_expert, tokens, rows: of the step. Source: DeepSeek-AI 2026, "DeepSeek-V4", its first layers'
 * hash routing. */
struct sl_op_softplus_router {
    const float *logits, *bias;
    const int32_t *table;
    const uint32_t *tokens, *rows;
    uint32_t *ids;
    float *weights;
    uint32_t n_tok, n_expert, k;
    bool normalize;
    float scale;
};

#endif
