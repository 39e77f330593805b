/* A layer's ops recorded and replayed: every buffer that an op writes has the bits that the same
 * ops leave when they are submitted one by one, however few kernels a backend makes of them.
 * It is recorded twice, with the device's fused forms switched off and on. Devices without graphs
 * say so; the definition has them switched on all the same, since a device that executes at once
 * can replay a list (immediate.h): so what the front records and fuses is tested without a GPU. */
#include "backends/ops/attention.h"
#include "backends/ops/matmul.h"
#include "backends/ops/moe.h"
#include "backends/ops/norm.h"
#include "backends/ops/rope.h"
#include "backends/ops/router.h"
#include "backends/ops/rows.h"
#include "tests/conformance/conformance.h"
#include "tests/conformance/weights.h"
#include "tests/support/device_memory.h"
#include "tests/support/slow_build.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_ROWS 8u
#define PAGES    3u /* a sequence */

static const struct sl_device_limits limits = {.max_tok = MAX_ROWS,
                                               .max_n_in = 2880,
                                               .max_pairs = 128,
                                               .max_n_embd = 2880,
                                               .max_n_ff = 1280,
                                               .max_expert = 300,
                                               .max_heads = 16,
                                               .max_head_dim = 128};

struct shape {
    uint32_t n_embd, n_heads, n_kv, dim, n_freq, n_expert, k, n_ff;
    enum sl_dtype attn, v, up, down, kv;
    bool neox, head_norms;
    bool gpt_oss; /* biases everywhere, sinks, a window, the clamped activation */
};
static const struct shape shapes[] = {
    {512, 8, 2, 64, 32, 16, 4, 256, SL_DTYPE_Q4_K, SL_DTYPE_Q6_K, SL_DTYPE_Q4_K, SL_DTYPE_Q6_K,
     SL_DTYPE_F16, true, true, false},
    {2304, 12, 3, 128, 40, 300, 8, 1280, SL_DTYPE_Q5_K, SL_DTYPE_Q5_K, SL_DTYPE_Q4_K, SL_DTYPE_Q4_K,
     SL_DTYPE_Q8_0, false, true, false},
    {768, 6, 6, 32, 16, 33, 10, 96, SL_DTYPE_Q8_0, SL_DTYPE_Q8_0, SL_DTYPE_MXFP4, SL_DTYPE_Q8_0,
     SL_DTYPE_F16, true, false, false},
    {2560, 8, 2, 128, 64, 16, 4, 256, SL_DTYPE_Q4_K, SL_DTYPE_Q4_K, SL_DTYPE_Q4_K, SL_DTYPE_Q6_K,
     SL_DTYPE_F16, true, true, false},
    {256, 4, 1, 96, 20, 7, 3, 256, SL_DTYPE_F16, SL_DTYPE_Q6_K, SL_DTYPE_F16, SL_DTYPE_BF16,
     SL_DTYPE_F16, true, true, false},
    {512, 8, 2, 64, 32, 16, 4, 256, SL_DTYPE_Q8_0, SL_DTYPE_Q6_K, SL_DTYPE_Q4_K, SL_DTYPE_Q6_K,
     SL_DTYPE_F16, true, true, false},
    {1024, 12, 3, 64, 32, 16, 4, 256, SL_DTYPE_Q4_K, SL_DTYPE_Q8_0, SL_DTYPE_Q4_K, SL_DTYPE_Q6_K,
     SL_DTYPE_F16, true, true, false},
    {512, 8, 2, 64, 32, 24, 12, 512, SL_DTYPE_Q4_K, SL_DTYPE_Q4_K, SL_DTYPE_Q5_K, SL_DTYPE_Q5_K,
     SL_DTYPE_F16, true, true, false},
    {2880, 16, 2, 64, 32, 32, 4, 288, SL_DTYPE_Q8_0, SL_DTYPE_Q8_0, SL_DTYPE_MXFP4, SL_DTYPE_MXFP4,
     SL_DTYPE_F16, true, false, true},
    {512, 8, 1, 64, 32, 16, 4, 256, SL_DTYPE_Q4_K, SL_DTYPE_Q6_K, SL_DTYPE_Q4_K, SL_DTYPE_Q6_K,
     SL_DTYPE_F16, true, false, true},
    {288, 8, 1, 64, 32, 9, 4, 544, SL_DTYPE_BF16, SL_DTYPE_F16, SL_DTYPE_BF16, SL_DTYPE_Q8_0,
     SL_DTYPE_Q8_0, true, false, true},
};

struct graph_case {
    struct shape s;
    uint32_t rows, lens[MAX_ROWS];
    uint32_t n_group, n_group_used; /* of experts; 0: none */
};

/* What ops write. */
enum { X, H, Q, K, V, ATTN, LOGITS, IDS, WEIGHTS, PAIR_Y, MAX, SUM, KV_K, KV_V, N_BUFFERS };
static const char *const names[N_BUFFERS] = {"x",    "h",      "q",    "k",       "v",
                                             "attn", "logits", "ids",  "weights", "pair_y",
                                             "max",  "sum",    "KV k", "KV v"};

struct layer {
    void *buffer[N_BUFFERS], *start[N_BUFFERS]; /* start: in host memory */
    size_t bytes[N_BUFFERS];
    struct sl_op_rms_norm norm, q_norm, k_norm, ffn_norm;
    struct sl_op_matmul qkv, out, logits;
    struct sl_op_rope q_rope, k_rope;
    struct sl_op_kv_write write;
    struct sl_op_attention attention;
    struct sl_op_router router;
    struct sl_op_moe moe;
    struct sl_op_moe_combine sum;
    struct sl_op_block_max max;
    bool head_norms;
};

static void *random_floats(struct sl_device *d, struct sl_rng *rng, size_t n) {
    float *host = conf_host(n * sizeof *host);
    conf_fill(rng, CONF_PLAIN, host, n);
    return conf_put(d, host, n * sizeof *host);
}

static struct sl_weight random_weight(struct sl_device *d, struct sl_rng *rng, enum sl_dtype t,
                                      uint32_t n_in, uint32_t n_out) {
    size_t bytes = sl_dtype_row_bytes(t, n_in) * n_out;
    void *host = conf_host(bytes);
    weights_fill(rng, t, WEIGHTS_PLAIN, host, (uint64_t)n_in * n_out);
    return (struct sl_weight){t, n_in, n_out, conf_put(d, host, bytes)};
}

static void make_buffers(struct sl_device *d, struct sl_rng *rng, const struct graph_case *c,
                         struct layer *l) {
    const struct shape *s = &c->s;
    size_t n[N_BUFFERS] = {s->n_embd,
                           s->n_embd,
                           s->n_heads * s->dim,
                           s->n_kv * s->dim,
                           s->n_kv * s->dim,
                           s->n_heads * s->dim,
                           s->n_expert,
                           s->k,
                           s->k,
                           (size_t)s->k * s->n_embd,
                           (s->n_expert + SL_BLOCK_MAX_ELEMS - 1) / SL_BLOCK_MAX_ELEMS,
                           (s->n_expert + SL_BLOCK_MAX_ELEMS - 1) / SL_BLOCK_MAX_ELEMS};
    for (int b = 0; b < N_BUFFERS; b++) {
        l->bytes[b] = b < KV_K ? n[b] * c->rows * 4
                               : sl_dtype_row_bytes(s->kv, s->dim) * s->n_kv * SL_KV_PAGE_TOKENS *
                                     PAGES * c->rows;
        l->start[b] = conf_host(l->bytes[b]);
        if (b < KV_K)
            conf_fill(rng, CONF_PLAIN, l->start[b], l->bytes[b] / 4);
        else
            memset(l->start[b], 0, l->bytes[b]);
        l->buffer[b] = conf_put(d, l->start[b], l->bytes[b]);
    }
}

static const struct sl_expert_ref *make_experts(struct sl_device *d, struct sl_rng *rng,
                                                const struct shape *s) {
    /* All share three sets of matrices: who is chosen shows all the same. */
    struct sl_expert_ref *refs = conf_host(s->n_expert * sizeof *refs), set[3];
    for (int i = 0; i < 3; i++)
        set[i] = (struct sl_expert_ref){random_weight(d, rng, s->up, s->n_embd, s->n_ff).data,
                                        random_weight(d, rng, s->up, s->n_embd, s->n_ff).data,
                                        random_weight(d, rng, s->down, s->n_ff, s->n_embd).data};
    for (uint32_t e = 0; e < s->n_expert; e++)
        refs[e] = set[e % 3];
    return conf_put(d, refs, s->n_expert * sizeof *refs);
}

static void make_ops(struct sl_device *d, struct sl_rng *rng, const struct graph_case *c,
                     struct layer *l) {
    const struct shape *s = &c->s;
    uint32_t rows = c->rows, n = s->n_embd, nq = s->n_heads * s->dim, nk = s->n_kv * s->dim;
    uint32_t slot[MAX_ROWS], seq[MAX_ROWS], pages[MAX_ROWS * PAGES];
    float *x = l->buffer[X], *h = l->buffer[H], *q = l->buffer[Q], *k = l->buffer[K];
    for (uint32_t r = 0; r < rows; r++) {
        seq[r] = r;
        for (uint32_t p = 0; p < PAGES; p++)
            pages[r * PAGES + p] = p * rows + r;
        slot[r] = pages[r * PAGES + (c->lens[r] - 1) / SL_KV_PAGE_TOKENS] * SL_KV_PAGE_TOKENS +
                  (c->lens[r] - 1) % SL_KV_PAGE_TOKENS;
    }
    size_t page = sl_dtype_row_bytes(s->kv, s->dim) * s->n_kv * SL_KV_PAGE_TOKENS;
    struct sl_kv_view kv = {l->buffer[KV_K], l->buffer[KV_V], s->kv, s->n_kv,
                            s->dim,          s->dim,          page,  page};
    const float *table = random_floats(d, rng, (size_t)rows * s->n_freq * 2);
    uint32_t *ids = l->buffer[IDS];
    l->head_norms = s->head_norms;
    l->norm = (struct sl_op_rms_norm){x, random_floats(d, rng, n), h, rows, n, n, n, 1e-5f};
    l->qkv = (struct sl_op_matmul){
        h,
        rows,
        rows,
        3,
        {{random_weight(d, rng, s->attn, n, nq), random_floats(d, rng, nq), q, false},
         {random_weight(d, rng, s->attn, n, nk), NULL, k, false},
         {random_weight(d, rng, s->v, n, nk), NULL, l->buffer[V], false}}};
    l->q_norm = (struct sl_op_rms_norm){
        q, random_floats(d, rng, s->dim), q, rows * s->n_heads, s->dim, s->dim, s->dim, 1e-5f};
    l->k_norm = (struct sl_op_rms_norm){
        k, random_floats(d, rng, s->dim), k, rows * s->n_kv, s->dim, s->dim, s->dim, 1e-6f};
    enum sl_rope_style style = s->neox ? SL_ROPE_NEOX : SL_ROPE_NORM;
    l->q_rope = (struct sl_op_rope){q, table, rows, s->n_heads, s->dim, nq, s->n_freq, style};
    l->k_rope = (struct sl_op_rope){k, table, rows, s->n_kv, s->dim, nk, s->n_freq, style};
    l->write =
        (struct sl_op_kv_write){kv, k, l->buffer[V], conf_put(d, slot, rows * 4), rows, nk, nk};
    l->attention = (struct sl_op_attention){.kv = kv,
                                            .q = q,
                                            .y = l->buffer[ATTN],
                                            .page_table = conf_put(d, pages, rows * PAGES * 4),
                                            .row_seq = conf_put(d, seq, rows * 4),
                                            .row_len = conf_put(d, c->lens, rows * 4),
                                            .n_tok = rows,
                                            .n_decode = rows,
                                            .n_heads = s->n_heads,
                                            .stride_q = nq,
                                            .max_pages = PAGES,
                                            .scale = 0.1f};
    l->out = (struct sl_op_matmul){l->buffer[ATTN], rows, rows, 1, {{{0}, NULL, x, true}}};
    l->out.out[0].w = random_weight(d, rng, s->attn, nq, n);
    l->ffn_norm = (struct sl_op_rms_norm){x, random_floats(d, rng, n), h, rows, n, n, n, 1e-5f};
    l->logits = (struct sl_op_matmul){h, rows, rows, 1, {{{0}, NULL, l->buffer[LOGITS], false}}};
    l->logits.out[0].w = (struct sl_weight){SL_DTYPE_F32, n, s->n_expert,
                                            random_floats(d, rng, (size_t)n * s->n_expert)};
    l->router = (struct sl_op_router){.logits = l->buffer[LOGITS],
                                      .ids = ids,
                                      .weights = l->buffer[WEIGHTS],
                                      .n_tok = rows,
                                      .n_expert = s->n_expert,
                                      .k = s->k,
                                      .softmax_topk = !s->neox,
                                      .normalize = s->neox,
                                      .scale = 1.5f};
    l->moe = (struct sl_op_moe){.x = h,
                                .ids = ids,
                                .pair_y = l->buffer[PAIR_Y],
                                .device_refs = make_experts(d, rng, s),
                                .gate_dtype = s->up,
                                .up_dtype = s->up,
                                .down_dtype = s->down,
                                .n_tok = rows,
                                .n_decode = rows,
                                .k = s->k,
                                .n_pairs = rows * s->k,
                                .n_expert = s->n_expert,
                                .n_embd = n,
                                .n_ff = s->n_ff};
    l->sum =
        (struct sl_op_moe_combine){l->buffer[PAIR_Y], l->buffer[WEIGHTS], x, rows, s->k, n, false};
    static const float inv_t[] = {1, 0.7f, 0, 3, 1.25f, 1, 2, 0.5f};
    assert_true(rows <= CONF_COUNT(inv_t));
    l->max = (struct sl_op_block_max){.x = l->buffer[LOGITS],
                                      .max = l->buffer[MAX],
                                      .sum = l->buffer[SUM],
                                      .inv_t = conf_put(d, inv_t, rows * sizeof *inv_t),
                                      .n_tok = rows,
                                      .n = s->n_expert};
}

/* What a layer of gpt-oss has besides. */
static void add_gpt_oss(struct sl_device *d, struct sl_rng *rng, const struct shape *s,
                        struct layer *l) {
    for (uint32_t i = 0; i < l->qkv.n_w; i++)
        l->qkv.out[i].bias = random_floats(d, rng, l->qkv.out[i].w.n_out);
    l->out.out[0].bias = random_floats(d, rng, s->n_embd);
    l->logits.out[0].bias = random_floats(d, rng, s->n_expert);
    l->router.softmax_topk = true;
    l->router.normalize = false;
    l->attention.sinks = random_floats(d, rng, s->n_heads);
    l->attention.window = 70;
    l->moe.gate_bias = random_floats(d, rng, (size_t)s->n_expert * s->n_ff);
    l->moe.up_bias = random_floats(d, rng, (size_t)s->n_expert * s->n_ff);
    l->moe.down_bias = random_floats(d, rng, (size_t)s->n_expert * s->n_embd);
    l->moe.activation = SL_SWIGLU_CLAMPED;
}

static void add_groups(struct sl_device *d, struct sl_rng *rng, const struct graph_case *c,
                       struct layer *l) {
    l->router.n_group = c->n_group;
    l->router.n_group_used = c->n_group_used;
    l->router.score = SL_ROUTER_SIGMOID;
    l->router.softmax_topk = false;
    l->router.bias = random_floats(d, rng, c->s.n_expert);
}

static void submit(struct sl_device *d, const struct layer *l) {
    conf_ok(sl_op_rms_norm(d, &l->norm));
    conf_ok(sl_op_matmul(d, &l->qkv));
    if (l->head_norms) {
        conf_ok(sl_op_rms_norm(d, &l->q_norm));
        conf_ok(sl_op_rms_norm(d, &l->k_norm));
    }
    conf_ok(sl_op_rope(d, &l->q_rope));
    conf_ok(sl_op_rope(d, &l->k_rope));
    conf_ok(sl_op_kv_write(d, &l->write));
    conf_ok(sl_op_attention(d, &l->attention));
    conf_ok(sl_op_matmul(d, &l->out));
    conf_ok(sl_op_rms_norm(d, &l->ffn_norm));
    conf_ok(sl_op_matmul(d, &l->logits));
    conf_ok(sl_op_router(d, &l->router));
    conf_ok(sl_op_moe(d, &l->moe));
    conf_ok(sl_op_moe_combine(d, &l->sum));
    conf_ok(sl_op_block_max(d, &l->max));
}

/* The ops from the start again, by a graph. out[b]: whether buffer b has the single ops' bits. */
static void replay(struct sl_device *d, const struct graph_case *c, const struct layer *l,
                   void *const *single, uint32_t *out) {
    struct sl_graph *graph = NULL;
    for (int b = 0; b < N_BUFFERS; b++)
        conf_ok(mem_upload(d, l->buffer[b], l->start[b], l->bytes[b]));
    conf_ok(sl_device_record(d));
    submit(d, l);
    conf_ok(sl_device_recorded(d, &graph));
    conf_ok(sl_device_replay(d, graph));
    sl_graph_free(d, &graph);
    for (int b = 0; b < N_BUFFERS; b++) {
        void *again = conf_host(l->bytes[b]);
        conf_get(d, again, l->buffer[b], l->bytes[b]);
        bool same = memcmp(again, single[b], l->bytes[b]) == 0;
        if (!same)
            print_error("%u rows, %u wide, forms %x: %s differs\n", c->rows, c->s.n_embd,
                        d->caps.fused_ops, names[b]);
        out[b] &= same;
    }
}

/* Ops less calls of what was recorded. */
static uint32_t saved(struct sl_device *d) {
    uint32_t n, sum = 0;
    const struct sl_tally *t = sl_device_tallies(d, &n);
    for (uint32_t i = 0; i < n; i++)
        sum += t[i].n_ops - t[i].n_calls;
    sl_device_log_recorded(d, "a test");
    return sum;
}

static void run(struct sl_device *d, const void *ctx, void *out) {
    const struct graph_case *c = ctx;
    const uint32_t had_forms = d->caps.fused_ops;
    const bool had_graphs = d->caps.graphs;
    for (int b = 0; b < N_BUFFERS; b++)
        ((uint32_t *)out)[b] = 1;
    if (!had_graphs)
        assert_int_equal(sl_device_record(d), SL_ERR_UNSUPPORTED);
    if (!had_graphs && !conf_checking())
        return;
    struct sl_rng rng = {c->rows * 1000 + c->s.n_embd};
    struct layer l = {0};
    make_buffers(d, &rng, c, &l);
    make_ops(d, &rng, c, &l);
    if (c->s.gpt_oss)
        add_gpt_oss(d, &rng, &c->s, &l);
    if (c->n_group)
        add_groups(d, &rng, c, &l);
    void *single[N_BUFFERS];
    submit(d, &l);
    for (int b = 0; b < N_BUFFERS; b++) {
        single[b] = conf_host(l.bytes[b]);
        conf_get(d, single[b], l.buffer[b], l.bytes[b]);
    }
    d->caps.graphs = true;
    d->caps.fused_ops = 0;
    replay(d, c, &l, single, out);
    assert_int_equal(saved(d), 0);
    d->caps.fused_ops = had_graphs ? had_forms : (1u << SL_FUSED_COUNT) - 1;
    replay(d, c, &l, single, out);
    uint32_t n = saved(d);
    if (!had_graphs) /* it takes every form: of the norms, of q, k and v, and of the experts */
        assert_int_equal(n, 1 + (c->s.head_norms ? 4 : 2) + 2 + 1);
    d->caps.graphs = had_graphs;
    d->caps.fused_ops = had_forms;
}

static void one(const struct graph_case *c) {
    uint32_t equal[N_BUFFERS];
    char what[64];
    snprintf(what, sizeof what, "%u rows of %u, %u groups", c->rows, c->s.n_embd, c->n_group);
    conf_case(what, run, c, CONF_U32, N_BUFFERS, equal);
    for (int b = 0; b < N_BUFFERS; b++)
        assert_int_equal(equal[b], 1);
}

static void layers(void) {
    static const uint32_t rows[] = {1, 2, 3, MAX_ROWS};
    for (size_t i = 0; i < CONF_COUNT(shapes); i++)
        for (size_t r = 0; r < CONF_COUNT(rows); r += BY_BUILD(1, 2, 2)) {
            struct graph_case c = {shapes[i], rows[r], {1, 64, 65, 129, 192, 7, 128, 100}, 0, 0};
            one(&c);
        }
}

/* Which shape, n_group, n_group_used: one warp's choice, a block's, logits with a bias. */
static void groups(void) {
    static const uint32_t of[][3] = {{0, 4, 2}, {1, 10, 3}, {8, 2, 1}};
    const struct sl_device *d = conf_device();
    if (!d->caps.router_groups) {
        print_message("%s chooses no groups of experts\n", d->caps.id);
        skip();
    }
    for (size_t i = 0; i < CONF_COUNT(of); i++)
        for (uint32_t rows = 1; rows <= MAX_ROWS; rows += MAX_ROWS - 1) {
            struct graph_case c = {
                shapes[of[i][0]], rows, {1, 64, 65, 129, 192, 7, 128, 100}, of[i][1], of[i][2]};
            one(&c);
        }
}

int main(int argc, char **argv) {
    static const struct conf_test tests[] = {{"layers", layers}, {"groups", groups}};
    return conf_main(argc, argv, "graph", &limits, tests, CONF_COUNT(tests));
}
