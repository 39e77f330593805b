/* sl_op_router and sl_op_softplus_router */
#include "tests/conformance/conformance.h"
#include "backends/ops/router.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct sl_device_limits limits = {.max_tok = 600, .max_expert = SL_MAX_EXPERTS};

struct router_case {
    struct sl_op_router op; /* pointers are the host's */
    uint32_t *both;         /* ids, then the weights' bits, of the last run */
};

/* ids, then the weights' bits */
static void run(struct sl_device *d, const void *ctx, void *out) {
    struct sl_op_router op = ((const struct router_case *)ctx)->op;
    size_t n = (size_t)op.n_tok * op.k;
    op.logits = conf_put(d, op.logits, (size_t)op.n_tok * op.n_expert * sizeof(float));
    op.bias = op.bias ? conf_put(d, op.bias, op.n_expert * sizeof(float)) : NULL;
    if (op.expert_scale)
        op.expert_scale = conf_put(d, op.expert_scale, op.n_expert * sizeof(float));
    op.ids = conf_put(d, NULL, n * sizeof(uint32_t));
    op.weights = conf_put(d, NULL, n * sizeof(float));
    conf_ok(sl_op_router(d, &op));
    conf_get(d, out, op.ids, n * sizeof(uint32_t));
    conf_get(d, (uint32_t *)out + n, op.weights, n * sizeof(float));
}

static void run_ids(struct sl_device *d, const void *ctx, void *out) {
    const struct router_case *c = ctx;
    run(d, ctx, c->both);
    memcpy(out, c->both, (size_t)c->op.n_tok * c->op.k * 4);
}

/* Of the same run as the ids. */
static void weights_of_run(struct sl_device *d, const void *ctx, void *out) {
    (void)d;
    const struct router_case *c = ctx;
    size_t n = (size_t)c->op.n_tok * c->op.k;
    memcpy(out, c->both + n, n * 4);
}

static struct router_case with_room(const struct sl_op_router *op) {
    return (struct router_case){*op, conf_host((size_t)op->n_tok * op->k * 8)};
}

static double group_score(const struct sl_op_router *op, const double *key, uint32_t g) {
    uint32_t length = op->n_expert / op->n_group;
    double first = -INFINITY, second = -INFINITY;
    for (uint32_t i = g * length; i < (g + 1) * length; i++)
        if (key[i] > first)
            second = first, first = key[i];
        else if (key[i] > second)
            second = key[i];
    return first + second;
}

/* No group outside the n_group_used best has a chosen expert, wherever double can tell; makes the
 * keys of groups without a chosen expert -infinity. */
static void leave_out_groups(const char *what, const struct sl_op_router *op, uint32_t row,
                             const uint32_t *id, double *key) {
    uint32_t length = op->n_expert / op->n_group;
    double score[SL_MAX_EXPERTS];
    bool used[SL_MAX_EXPERTS] = {false}, in[SL_MAX_EXPERTS] = {false};
    for (uint32_t g = 0; g < op->n_group; g++)
        score[g] = group_score(op, key, g);
    for (uint32_t r = 0; r < op->k; r++)
        used[id[r] / length] = true;
    for (uint32_t g = 0; g < op->n_group; g++) {
        uint32_t better = 0, no_worse = 0;
        for (uint32_t h = 0; h < op->n_group; h++) {
            double slack = 1e-5 * (fabs(score[g]) + 1e-7);
            better += score[h] > score[g] + slack;
            no_worse += h != g && score[h] >= score[g] - slack;
        }
        if (used[g] && better >= op->n_group_used)
            fail_msg("%s: row %u chose from group %u, %u are better", what, row, g, better);
        /* A group that is certainly among the best, or was chosen from. */
        in[g] = used[g] || no_worse < op->n_group_used;
    }
    for (uint32_t i = 0; i < op->n_expert; i++)
        if (!in[i / length])
            key[i] = -INFINITY;
}

/* The scores in double; weights must follow from the ids that were chosen, and the choice must be
 * right wherever double can tell. */
static void check(const char *what, const struct sl_op_router *op, const uint32_t *ids,
                  const float *weights) {
    double score[SL_MAX_EXPERTS], key[SL_MAX_EXPERTS];
    for (uint32_t t = 0; t < op->n_tok; t++) {
        const float *x = op->logits + (size_t)t * op->n_expert;
        const uint32_t *id = ids + (size_t)t * op->k;
        const float *w = weights + (size_t)t * op->k;
        double max = -INFINITY, sum = 0;
        for (uint32_t e = 0; e < op->n_expert; e++)
            max = fmax(max, (double)x[e]);
        for (uint32_t e = 0; e < op->n_expert; e++)
            sum += exp(x[e] - max);
        for (uint32_t e = 0; e < op->n_expert; e++) {
            score[e] = op->softmax_topk                 ? (double)x[e]
                       : op->score == SL_ROUTER_SIGMOID ? 1 / (1 + exp(-(double)x[e]))
                                                        : exp(x[e] - max) / sum;
            key[e] = score[e] + (op->bias ? (double)op->bias[e] : 0);
        }
        if (op->n_group > 1)
            leave_out_groups(what, op, t, id, key);
        bool chosen[SL_MAX_EXPERTS] = {false};
        bool sigmoid_topk = op->softmax_topk && op->score == SL_ROUTER_SIGMOID;
        for (uint32_t r = 0; r < op->k; r++) {
            if (id[r] >= op->n_expert || chosen[id[r]])
                fail_msg("%s: row %u chose %u at rank %u", what, t, id[r], r);
            chosen[id[r]] = true;
            double slack = 1e-5 * (fabs(key[id[r]]) + 1e-7);
            if (r && key[id[r]] > key[id[r - 1]] + slack)
                fail_msg("%s: row %u rank %u is larger than the one before", what, t, r);
            /* Ties, exact in the logits, go to the lower index. */
            if (r && x[id[r]] == x[id[r - 1]] && !op->bias && id[r] < id[r - 1])
                fail_msg("%s: row %u rank %u: a tie went to the higher index", what, t, r);
        }
        double last = key[id[op->k - 1]];
        for (uint32_t e = 0; e < op->n_expert; e++) {
            if (!chosen[e] && key[e] > last + 1e-5 * (fabs(last) + 1e-7))
                fail_msg("%s: row %u left out expert %u", what, t, e);
            if (!chosen[e] && isfinite(key[e]) && x[e] == x[id[op->k - 1]] && !op->bias &&
                e < id[op->k - 1])
                fail_msg("%s: row %u left out %u for its equal %u", what, t, e, id[op->k - 1]);
        }
        double ref[SL_MAX_EXPERTS_USED], tol[SL_MAX_EXPERTS_USED], total = 0, top = -INFINITY;
        for (uint32_t r = 0; r < op->k; r++)
            top = fmax(top, (double)x[id[r]]);
        for (uint32_t r = 0; r < op->k; r++) {
            ref[r] = sigmoid_topk       ? 1 / (1 + exp(-(double)x[id[r]]))
                     : op->softmax_topk ? exp(x[id[r]] - top)
                                        : score[id[r]];
            total += ref[r];
        }
        for (uint32_t r = 0; r < op->k; r++) {
            if ((op->softmax_topk && !sigmoid_topk) || op->normalize)
                ref[r] = total != 0 ? ref[r] / total : 0;
            ref[r] *= (double)op->scale * (op->expert_scale ? (double)op->expert_scale[id[r]] : 1);
            /* x - max rounds to 2^-24 of its size, and exp makes that a relative error. */
            tol[r] = fabs(ref[r]) * (2e-5) + 1e-9;
        }
        conf_near(what, w, ref, tol, op->k);
    }
}

static void one(struct sl_op_router op, enum conf_fill fill, float factor, bool with_bias) {
    struct sl_rng rng = {op.n_tok * 7u + op.n_expert * 13u + op.k};
    size_t n = (size_t)op.n_tok * op.k;
    float *x = conf_host((size_t)op.n_tok * op.n_expert * sizeof *x);
    float *bias = conf_host(op.n_expert * sizeof *bias);
    uint32_t *ids = conf_host(n * sizeof *ids);
    float *weights = conf_host(n * sizeof *weights);
    conf_fill(&rng, fill, x, (size_t)op.n_tok * op.n_expert);
    for (size_t i = 0; i < (size_t)op.n_tok * op.n_expert; i++)
        x[i] *= factor;
    conf_fill(&rng, CONF_PLAIN, bias, op.n_expert);
    op.logits = x;
    op.bias = with_bias ? bias : NULL;
    struct router_case c = with_room(&op);
    char what[160];
    snprintf(what, sizeof what,
             "%u rows, %u of %u in %u of %u groups, score %d%s%s%s, scale %g, fill %d x %g",
             op.n_tok, op.k, op.n_expert, op.n_group_used, op.n_group, (int)op.score,
             op.softmax_topk ? ", over the chosen" : "", op.normalize ? ", normalized" : "",
             with_bias ? ", biased" : "", (double)op.scale, (int)fill, (double)factor);
    conf_case(what, run_ids, &c, CONF_U32, n, ids);
    conf_tolerance(1e-6f);
    conf_case(what, weights_of_run, &c, CONF_F32, n, weights);
    check(what, &op, ids, weights);
}

static void shapes(void) {
    static const uint32_t n_expert[] = {1, 2, 7, 8, 16, 17, 33, 60, 64, 100, 128, 256, 1000, 1024};
    for (size_t i = 0; i < CONF_COUNT(n_expert); i++) {
        uint32_t n = n_expert[i], all = n < SL_MAX_EXPERTS_USED ? n : SL_MAX_EXPERTS_USED;
        const uint32_t k[] = {1, all, (all + 1) / 2, all < 8 ? all : 8};
        for (size_t j = 0; j < CONF_COUNT(k); j++) {
            struct sl_op_router op = {.n_tok = 5, .n_expert = n, .k = k[j], .scale = 1};
            one(op, CONF_PLAIN, 8, false);
            op.normalize = true, op.scale = 2.5f;
            one(op, CONF_PLAIN, 3, false);
            one(op, CONF_EQUAL, 1, false);
            op.score = SL_ROUTER_SIGMOID;
            one(op, CONF_PLAIN, 8, true);
            one(op, CONF_EQUAL, 1, false);
            op.score = SL_ROUTER_SOFTMAX, op.softmax_topk = true, op.normalize = false,
            op.scale = 1;
            one(op, CONF_PLAIN, 8, false);
            one(op, CONF_EQUAL, 1, false);
        }
    }
}

static void values(void) {
    for (int fill = 0; fill < CONF_N_FILL; fill++)
        for (uint32_t mode = 0; mode < 3; mode++) {
            struct sl_op_router op = {.n_tok = 3,
                                      .n_expert = 60,
                                      .k = 4,
                                      .scale = 1,
                                      .score = mode == 1 ? SL_ROUTER_SIGMOID : SL_ROUTER_SOFTMAX,
                                      .softmax_topk = mode == 2,
                                      .normalize = mode == 0};
            one(op, (enum conf_fill)fill, 1, false);
            if (mode != 1) /* sigmoids of huge logits are all 1: ties that the logits hide */
                one(op, (enum conf_fill)fill, fill == CONF_EQUAL ? 1e5f : 20, false);
        }
}

static void many_rows(void) {
    struct sl_op_router op = {.n_tok = 513, .n_expert = 128, .k = 8, .scale = 1, .normalize = true};
    one(op, CONF_PLAIN, 6, false);
    op.n_tok = 1;
    one(op, CONF_PLAIN, 6, false);
}

/* Logits so large that all sigmoids are 1. */
static void sigmoid_topk(void) {
    if (!conf_device()->caps.sigmoid_topk) {
        print_message("%s takes no sigmoids of the chosen alone\n", conf_device()->caps.id);
        skip();
    }
    static const uint32_t n_expert[] = {1, 2, 7, 16, 33, 128, 1000};
    for (size_t i = 0; i < CONF_COUNT(n_expert); i++) {
        struct sl_op_router op = {.n_tok = 5,
                                  .n_expert = n_expert[i],
                                  .k = 1 + (uint32_t)i % 2,
                                  .scale = i % 3 ? 1 : 2.5f,
                                  .score = SL_ROUTER_SIGMOID,
                                  .softmax_topk = true};
        op.k = op.k > op.n_expert ? op.n_expert : op.k;
        one(op, CONF_PLAIN, 3, false);
        one(op, CONF_PLAIN, 100, false);
        one(op, CONF_EQUAL, 1, false);
    }
}

/* n_expert, n_group, n_group_used, k */
static void groups(void) {
    const struct sl_device *d = conf_device();
    if (!d->caps.router_groups) {
        print_message("%s chooses no groups of experts\n", d->caps.id);
        skip();
    }
    static const uint32_t shape[][4] = {{4, 2, 1, 2},    {6, 3, 2, 3},       {16, 8, 3, 5},
                                        {60, 4, 2, 4},   {64, 8, 8, 6},      {72, 24, 5, 15},
                                        {160, 8, 3, 6},  {256, 8, 4, 8},     {128, 64, 64, 64},
                                        {1024, 8, 1, 8}, {252, 2, 1, 9},     {119, 17, 16, 16},
                                        {68, 34, 8, 16}, {256, 128, 10, 16}, {1024, 512, 12, 20}};
    for (size_t i = 0; i < CONF_COUNT(shape); i++) {
        struct sl_op_router op = {.n_tok = 7,
                                  .n_expert = shape[i][0],
                                  .n_group = shape[i][1],
                                  .n_group_used = shape[i][2],
                                  .k = shape[i][3],
                                  .scale = 2.5f};
        one(op, CONF_PLAIN, 6, false);
        one(op, CONF_EQUAL, 1, false);
        op.score = SL_ROUTER_SIGMOID, op.normalize = true;
        one(op, CONF_PLAIN, 4, true);
        one(op, CONF_PLAIN, 4, false);
        op.score = SL_ROUTER_SOFTMAX, op.softmax_topk = true, op.normalize = false;
        one(op, CONF_PLAIN, 4, false);
    }
}

/* Experts that a bias of -infinity takes out may leave fewer than k, which are then filled up from
 * the lowest index, of whatever group; groups of infinities and of what is no number. The choice is
 * the definition's to the last one. */
static void groups_of_few(void) {
    if (!conf_device()->caps.router_groups) {
        print_message("%s chooses no groups of experts\n", conf_device()->caps.id);
        skip();
    }
    static const uint32_t shape[][4] = {{16, 8, 3, 6}, {256, 8, 4, 16}, {320, 10, 3, 20}};
    for (size_t i = 0; i < CONF_COUNT(shape); i++) {
        enum { ROWS = 4 };
        uint32_t n = shape[i][0], k = shape[i][3], ids[ROWS * 20];
        float *x = conf_host((size_t)ROWS * n * sizeof *x), *bias = conf_host(n * sizeof *bias);
        for (uint32_t e = 0; e < n; e++) {
            bias[e] = e % 3 ? -INFINITY : 0.25f * (float)(e % 5);
            x[e] = (float)(e % 7);
            x[n + e] = e % 4 == 0 ? NAN : e % 4 == 1 ? INFINITY : (float)(e % 11);
            x[2 * n + e] = e % 2 ? -INFINITY : NAN;
            x[3 * n + e] = e % 2 ? -0.0f : 0.0f;
        }
        for (int mode = 0; mode < 4; mode++) {
            struct sl_op_router op = {.logits = x,
                                      .bias = mode % 2 ? bias : NULL,
                                      .n_tok = ROWS,
                                      .n_expert = n,
                                      .n_group = shape[i][1],
                                      .n_group_used = shape[i][2],
                                      .k = k,
                                      .score = mode < 2 ? SL_ROUTER_SIGMOID : SL_ROUTER_SOFTMAX,
                                      .softmax_topk = mode >= 2,
                                      .scale = 1};
            struct router_case c = with_room(&op);
            conf_case("few are left", run_ids, &c, CONF_U32, (size_t)ROWS * k, ids);
            for (uint32_t r = 0; r < ROWS * k; r++) {
                assert_true(ids[r] < n);
                for (uint32_t s = r / k * k; s < r; s++)
                    assert_true(ids[r] != ids[s]);
            }
        }
    }
}

static void expert_scales(void) {
    static const uint32_t n_expert[] = {1, 7, 60, 128};
    if (!conf_device()->caps.extra_args)
        return;
    for (size_t i = 0; i < CONF_COUNT(n_expert); i++) {
        struct sl_rng rng = {n_expert[i]};
        float *scale = conf_host(n_expert[i] * sizeof *scale);
        conf_fill(&rng, CONF_PLAIN, scale, n_expert[i]);
        struct sl_op_router op = {.n_tok = 37,
                                  .n_expert = n_expert[i],
                                  .k = n_expert[i] < 8 ? n_expert[i] : 8,
                                  .scale = 1.5f,
                                  .normalize = true,
                                  .expert_scale = scale};
        one(op, CONF_PLAIN, 3, false);
        op.score = SL_ROUTER_SIGMOID, op.normalize = false;
        one(op, CONF_PLAIN, 3, true);
    }
}

/* Ids that runs of experts share: of the chosen ones, divided, and weighted by the scores there. */
static void shared_ids(void) {
    if (!conf_device()->caps.router_share) {
        print_message("%s has no ids that experts share\n", conf_device()->caps.id);
        skip();
    }
    /* n_expert, share, k, n_group, n_group_used: one warp's choice of few and of more, a block's */
    static const uint32_t shape[][5] = {
        {2, 2, 1},         {6, 3, 2},          {12, 3, 4},        {128, 2, 8},  {35, 7, 5},
        {1024, 4, 20},     {250, 5, 16},       {128, 2, 17},      {514, 2, 3},  {64, 2, 6, 4, 2},
        {240, 3, 8, 8, 3}, {300, 4, 7, 10, 4}, {96, 4, 20, 6, 5}, {256, 256, 8}};
    for (size_t i = 0; i < CONF_COUNT(shape); i++) {
        uint32_t n = shape[i][0], k = shape[i][2];
        if (shape[i][3] && !conf_device()->caps.router_groups)
            continue;
        struct sl_op_router op = {.n_tok = 7,
                                  .n_expert = n,
                                  .k = k,
                                  .scale = 0.05f,
                                  .n_group = shape[i][3],
                                  .n_group_used = shape[i][4]};
        struct sl_rng rng = {n + k};
        float *x = conf_host((size_t)op.n_tok * n * sizeof *x);
        uint32_t *chosen = conf_host((size_t)op.n_tok * k * 4),
                 *ids = conf_host((size_t)op.n_tok * k * 4);
        float *weights = conf_host((size_t)op.n_tok * k * sizeof *weights);
        conf_fill(&rng, CONF_PLAIN, x, (size_t)op.n_tok * n);
        op.logits = x;
        op.score = i % 2 ? SL_ROUTER_SIGMOID : SL_ROUTER_SOFTMAX;
        op.normalize = i % 3 != 2;
        if (i % 5 == 3) { /* which changes the choice, and no weight */
            float *bias = conf_host(n * sizeof *bias);
            conf_fill(&rng, CONF_PLAIN, bias, n);
            op.bias = bias;
        }
        struct router_case plain = with_room(&op);
        op.share = shape[i][1];
        struct router_case shared = with_room(&op);
        conf_case("chosen", run_ids, &plain, CONF_U32, (size_t)op.n_tok * k, chosen);
        conf_case("shared ids", run_ids, &shared, CONF_U32, (size_t)op.n_tok * k, ids);
        conf_tolerance(1e-6f);
        conf_case("their weights", weights_of_run, &shared, CONF_F32, (size_t)op.n_tok * k,
                  weights);
        for (uint32_t t = 0; t < op.n_tok; t++) {
            double all = 0, sum = 0, want[SL_MAX_EXPERTS_USED], tol[SL_MAX_EXPERTS_USED];
            for (uint32_t e = 0; e < n; e++)
                all += exp(x[(size_t)t * n + e]);
            for (uint32_t r = 0; r < k; r++) {
                uint32_t id = chosen[t * k + r] / op.share;
                double at = x[(size_t)t * n + id];
                assert_int_equal(ids[t * k + r], id);
                want[r] = op.score == SL_ROUTER_SIGMOID ? 1 / (1 + exp(-at)) : exp(at) / all;
                sum += want[r];
            }
            for (uint32_t r = 0; r < k; r++) {
                want[r] *= (double)op.scale / (op.normalize ? sum : 1);
                tol[r] = want[r] * 2e-5 + 1e-9;
            }
            conf_near("their weights", weights + (size_t)t * k, want, tol, k);
        }
    }
}

/* A model gone wrong must not take the process with it: ids stay in range and distinct. */
static void not_numbers(void) {
    for (uint32_t mode = 0; mode < 4; mode++) {
        float x[3 * 40];
        for (int i = 0; i < 40; i++) {
            x[i] = NAN;
            x[40 + i] = i % 3 ? NAN : (float)i;
            x[80 + i] = i % 4 == 0 ? INFINITY : i % 4 == 1 ? -INFINITY : 0;
        }
        struct sl_op_router op = {.logits = x,
                                  .n_tok = 3,
                                  .n_expert = 40,
                                  .k = 20,
                                  .scale = 1,
                                  .score = mode == 1 ? SL_ROUTER_SIGMOID : SL_ROUTER_SOFTMAX,
                                  .softmax_topk = mode == 2,
                                  .normalize = mode == 3};
        struct router_case c = with_room(&op);
        uint32_t ids[60];
        conf_case("not numbers", run_ids, &c, CONF_U32, 60, ids);
        for (int t = 0; t < 3; t++)
            for (int r = 0; r < 20; r++) {
                assert_true(ids[t * 20 + r] < 40);
                for (int s = 0; s < r; s++)
                    assert_true(ids[t * 20 + r] != ids[t * 20 + s]);
            }
    }
}

/* ---- scores that are square roots of softpluses ---- */

#define TOKENS 50u

static void run_softplus(struct sl_device *d, const void *ctx, void *out) {
    struct sl_op_softplus_router op = *(const struct sl_op_softplus_router *)ctx;
    size_t n = (size_t)op.n_tok * op.k;
    op.logits = conf_put(d, op.logits, (size_t)op.n_tok * op.n_expert * sizeof(float));
    op.bias = op.bias ? conf_put(d, op.bias, op.n_expert * sizeof(float)) : NULL;
    op.table = op.table ? conf_put(d, op.table, TOKENS * op.k * sizeof(int32_t)) : NULL;
    op.tokens = op.tokens ? conf_put(d, op.tokens, 600 * sizeof(uint32_t)) : NULL;
    op.rows = op.rows ? conf_put(d, op.rows, op.n_tok * sizeof(uint32_t)) : NULL;
    op.ids = conf_put(d, NULL, n * sizeof(uint32_t));
    op.weights = conf_put(d, NULL, n * sizeof(float));
    conf_ok(sl_op_softplus_router(d, &op));
    conf_get(d, out, op.ids, n * sizeof(uint32_t));
    conf_get(d, (uint32_t *)out + n, op.weights, n * sizeof(float));
}

static void check_softplus(const char *what, const struct sl_op_softplus_router *op,
                           const uint32_t *ids, const float *weights) {
    for (uint32_t t = 0; t < op->n_tok; t++) {
        double score[SL_MAX_EXPERTS], key[SL_MAX_EXPERTS], sum = 0, least = INFINITY;
        for (uint32_t i = 0; i < op->n_expert; i++) {
            score[i] = sqrt(log1p(exp((double)op->logits[(size_t)t * op->n_expert + i])));
            key[i] = score[i] + (op->bias ? (double)op->bias[i] : 0);
        }
        uint32_t token = op->table ? op->tokens[op->rows ? op->rows[t] : t] : 0;
        for (uint32_t r = 0; r < op->k; r++) {
            uint32_t id = ids[t * op->k + r];
            assert_true(id < op->n_expert);
            if (op->table)
                assert_int_equal(id, op->table[token * op->k + r]);
            sum += score[id];
            least = fmin(least, key[id]);
            key[id] = -INFINITY;
        }
        for (uint32_t i = 0; i < op->n_expert && !op->table; i++)
            if (key[i] > least + 1e-5)
                fail_msg("%s: row %u leaves out expert %u with %g for one with %g", what, t, i,
                         key[i], least);
        for (uint32_t r = 0; r < op->k; r++) {
            double own = score[ids[t * op->k + r]];
            double by = (double)op->scale / (op->normalize ? fmax(sum, 0x1p-14) : 1);
            /* 1 + exp(x) is rounded in double precision, before its logarithm and root */
            double ref = own * by, tol = (1e-5 * own + fmin(2e-8, 0x1p-52 / own)) * by;
            conf_near(what, &weights[t * op->k + r], &ref, &tol, 1);
        }
    }
}

static void softplus(void) {
    static const uint32_t shapes[][3] = {{8, 2, 9}, {256, 6, 40}, {7, 7, 3}, {100, 1, 500}};
    if (conf_device() && !sl_device_has_op(conf_device(), SL_OP_softplus_router))
        return;
    for (uint32_t k = 0; k < 4 * CONF_COUNT(shapes); k++) {
        const uint32_t *s = shapes[k / 4];
        struct sl_rng rng = {k + 1};
        size_t n = (size_t)s[2] * s[1];
        float *logits = conf_host((size_t)s[2] * s[0] * sizeof *logits);
        float *bias = conf_host(s[0] * sizeof *bias);
        int32_t *table = conf_host(TOKENS * s[1] * sizeof *table);
        uint32_t *tokens = conf_host(600 * sizeof *tokens), *rows = conf_host(s[2] * sizeof *rows);
        uint32_t *both = conf_host(2 * n * sizeof *both);
        conf_fill(&rng, CONF_PLAIN, logits, (size_t)s[2] * s[0]);
        for (size_t i = 0; i < (size_t)s[2] * s[0]; i++)
            logits[i] *= k % 3 ? 4 : 40; /* up to where softplus is x itself */
        conf_fill(&rng, CONF_PLAIN, bias, s[0]);
        for (uint32_t i = 0; i < TOKENS * s[1]; i++)
            table[i] = (int32_t)sl_rng_below(&rng, s[0]);
        for (uint32_t i = 0; i < 600; i++)
            tokens[i] = sl_rng_below(&rng, TOKENS);
        for (uint32_t i = 0; i < s[2]; i++)
            rows[i] = sl_rng_below(&rng, 600);
        struct sl_op_softplus_router op = {.logits = logits,
                                           .bias = k % 4 == 1 ? bias : NULL,
                                           .table = k % 4 > 1 ? table : NULL,
                                           .tokens = k % 4 > 1 ? tokens : NULL,
                                           .rows = k % 4 == 3 ? rows : NULL,
                                           .n_tok = s[2],
                                           .n_expert = s[0],
                                           .k = s[1],
                                           .normalize = k % 2,
                                           .scale = 1.5f};
        char what[80];
        snprintf(what, sizeof what, "softplus, %u rows, %u of %u%s%s", op.n_tok, op.k, op.n_expert,
                 op.bias ? ", biased" : "", op.table ? ", by a table" : "");
        conf_case(what, run_softplus, &op, CONF_U32, 2 * n, both);
        if (conf_checking()) {
            float *weights = conf_host(n * sizeof *weights);
            memcpy(weights, both + n, n * sizeof *weights);
            check_softplus(what, &op, both, weights);
        }
    }
}

int main(int argc, char **argv) {
    static const struct conf_test tests[] = {{"shapes", shapes},
                                             {"values", values},
                                             {"many rows", many_rows},
                                             {"groups", groups},
                                             {"sigmoid_topk", sigmoid_topk},
                                             {"groups of few", groups_of_few},
                                             {"a scale for each expert", expert_scales},
                                             {"ids that experts share", shared_ids},
                                             {"softplus, tables", softplus},
                                             {"not numbers", not_numbers}};
    return conf_main(argc, argv, "router", &limits, tests, CONF_COUNT(tests));
}
