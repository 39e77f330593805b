/* Which kernels the CUDA backend launches for ops, and how, over a fake driver. */
#include "tests/unit/backends/cuda_fixture.h"
#include "tests/support/device_memory.h"

/* Ops that no GPU has yet. */
static const bool host_only[SL_OP_COUNT] = {
#define SL_OP(name)
#define SL_OP_HOST(name) [SL_OP_##name] = true,
#include "backends/ops.def"
};

/* A layer's ops for one row, with room for what tests vary. */
struct layer_ops {
    struct sl_op_rms_norm norm, q_norm, k_norm, ffn_norm;
    struct sl_op_matmul qkv, out, logits;
    struct sl_op_rope q_rope, k_rope;
    struct sl_op_kv_write write;
    struct sl_op_router router;
    struct sl_op_moe moe;
    struct sl_op_moe_combine sum;
};

/* Addresses that are told apart and never followed: the fake runs no kernel but one. */
static float *at(uintptr_t i) {
    return (float *)(0x100000 * i);
}

static struct layer_ops layer_ops(uint32_t rows) {
    enum { N = 512, HEADS = 8, KV = 2, DIM = 64, EXPERTS = 16, K = 4, FF = 256 };
    struct sl_kv_view kv = {at(20), at(21), SL_DTYPE_F16,      KV,
                            DIM,    DIM,    64 * KV * DIM * 2, 64 * KV * DIM * 2};
    struct layer_ops l = {
        .norm = {at(1), at(2), at(3), rows, N, N, N, 1e-5f},
        .qkv = {at(3),
                rows,
                rows,
                3,
                {{{SL_DTYPE_Q4_K, N, HEADS * DIM, at(4)}, NULL, at(5), false},
                 {{SL_DTYPE_Q4_K, N, KV * DIM, at(6)}, NULL, at(7), false},
                 {{SL_DTYPE_Q6_K, N, KV * DIM, at(8)}, NULL, at(9), false}}},
        .q_norm = {at(5), at(10), at(5), rows * HEADS, DIM, DIM, DIM, 1e-5f},
        .k_norm = {at(7), at(11), at(7), rows * KV, DIM, DIM, DIM, 1e-5f},
        .q_rope = {at(5), at(12), rows, HEADS, DIM, HEADS * DIM, DIM / 2, SL_ROPE_NEOX},
        .k_rope = {at(7), at(12), rows, KV, DIM, KV * DIM, DIM / 2, SL_ROPE_NEOX},
        .write = {kv, at(7), at(9), (uint32_t *)at(13), rows, KV * DIM, KV * DIM},
        .out = {at(14), rows, rows, 1, {{{SL_DTYPE_Q4_K, N, N, at(15)}, NULL, at(1), true}}},
        .ffn_norm = {at(1), at(16), at(3), rows, N, N, N, 1e-5f},
        .logits =
            {at(3), rows, rows, 1, {{{SL_DTYPE_F32, N, EXPERTS, at(17)}, NULL, at(18), false}}},
        .router = {.logits = at(18),
                   .ids = (uint32_t *)at(19),
                   .weights = at(22),
                   .n_tok = rows,
                   .n_expert = EXPERTS,
                   .k = K,
                   .normalize = true,
                   .scale = 1},
        .moe = {.x = at(3),
                .ids = (uint32_t *)at(19),
                .pair_y = at(23),
                .device_refs = (const struct sl_expert_ref *)at(24),
                .gate_dtype = SL_DTYPE_Q4_K,
                .up_dtype = SL_DTYPE_Q4_K,
                .down_dtype = SL_DTYPE_Q6_K,
                .n_tok = rows,
                .n_decode = rows,
                .k = K,
                .n_pairs = rows * K,
                .n_expert = EXPERTS,
                .n_embd = N,
                .n_ff = FF},
        .sum = {at(23), at(22), at(1), rows, K, N}};
    return l;
}

static void submit_attention(struct sl_device *d, const struct layer_ops *l) {
    assert_int_equal(sl_op_rms_norm(d, &l->norm), SL_OK);
    assert_int_equal(sl_op_matmul(d, &l->qkv), SL_OK);
    if (l->q_norm.n)
        assert_int_equal(sl_op_rms_norm(d, &l->q_norm), SL_OK);
    if (l->k_norm.n)
        assert_int_equal(sl_op_rms_norm(d, &l->k_norm), SL_OK);
    assert_int_equal(sl_op_rope(d, &l->q_rope), SL_OK);
    assert_int_equal(sl_op_rope(d, &l->k_rope), SL_OK);
    assert_int_equal(sl_op_kv_write(d, &l->write), SL_OK);
    assert_int_equal(sl_op_matmul(d, &l->out), SL_OK);
}

static void submit_layer(struct sl_device *d, const struct layer_ops *l) {
    submit_attention(d, l);
    assert_int_equal(sl_op_rms_norm(d, &l->ffn_norm), SL_OK);
    assert_int_equal(sl_op_matmul(d, &l->logits), SL_OK);
    assert_int_equal(sl_op_router(d, &l->router), SL_OK);
    assert_int_equal(sl_op_moe(d, &l->moe), SL_OK);
    assert_int_equal(sl_op_moe_combine(d, &l->sum), SL_OK);
}

/* The kernels that a recorded layer becomes: names with spaces between. */
static const char *launched(struct sl_device *d, const struct layer_ops *l) {
    static char names[2048];
    struct sl_graph *graph = NULL;
    uint64_t before = fake->n_launches;
    assert_int_equal(sl_device_record(d), SL_OK);
    submit_layer(d, l);
    assert_int_equal(fake->n_launches, before); /* kept */
    assert_int_equal(sl_device_recorded(d, &graph), SL_OK);
    sl_graph_free(d, &graph);
    names[0] = 0;
    for (uint64_t i = before; i < fake->n_launches; i++) {
        strcat(names, *names ? " " : "");
        strcat(names, fake->launch[i % FAKE_CUDA_MAX_LAUNCHES].kernel + strlen("sl_k_"));
    }
    return names;
}

static struct sl_device *opened_for_layers(void) {
    struct sl_device *d = opened(0);
    const struct sl_device_limits limits = {.max_tok = 64,
                                            .max_n_in = 512,
                                            .max_pairs = 256,
                                            .max_n_embd = 512,
                                            .max_n_ff = 256,
                                            .max_expert = 16,
                                            .max_heads = 8,
                                            .max_head_dim = 64};
    if (sl_device_configure(d, &limits, &err))
        fail_msg("%s", err.text);
    return d;
}

static void close_sound(struct sl_device *d) {
    sl_device_close(&d);
    assert_false(fake->misused);
}

/* What one kernel does for several ops. */
static void fused(void **state) {
    (void)state;
    need_kernels();
    struct sl_device *d = opened_for_layers();
    struct layer_ops l = layer_ops(1);
    assert_string_equal(launched(d, &l),
                        "matvec_few_1 matvec_Q6_K fused_qkv matvec_few_1 fused_route "
                        "moe_pair_up_Q4_K moe_pair_sum_Q6_K");
    l = layer_ops(2);
    assert_non_null(
        strstr(launched(d, &l), "matvec_few_2 matvec_Q6_K fused_qkv matvec_few_2 fused"));
    /* Weights that begin anywhere; more of them than multiprocessors can hold. */
    l = layer_ops(1);
    l.out.out[0].w.data = (const char *)l.out.out[0].w.data + 2;
    assert_non_null(strstr(launched(d, &l), "fused_qkv matvec_Q4_K fused_route"));
    l = layer_ops(2);
    l.out.out[0].w.n_out = 1u << 20;
    assert_non_null(strstr(launched(d, &l), "fused_qkv quantize matvec_mma_Q4_K fused_route"));
    l.out.n_tok = l.out.n_decode = 1;
    assert_non_null(strstr(launched(d, &l), "fused_qkv matvec_Q4_K fused_route"));
    /* More rows: norms are kernels of their own, the router's is not; tensor cores. */
    l = layer_ops(5);
    assert_string_equal(launched(d, &l),
                        "fused_norm_quantize matvec_mma_Q4_K matvec_mma_Q6_K fused_qkv quantize "
                        "matvec_mma_Q4_K fused_route moe_pair_up_Q4_K moe_mma_Q6_K moe_combine");
    l = layer_ops(4);
    assert_non_null(strstr(launched(d, &l), "fused_route moe_pair_up_Q4_K moe_pair_sum_Q6_K"));
    /* Types that have no such kernels. */
    for (int i = 0; i < 3; i++)
        l.qkv.out[i].w.dtype = SL_DTYPE_Q4_0;
    l.out.out[0].w.dtype = l.moe.down_dtype = SL_DTYPE_IQ4_XS;
    assert_string_equal(launched(d, &l), "rms_norm matvec_Q4_0 fused_qkv matvec_IQ4_XS fused_route "
                                         "moe_pair_up_Q4_K moe_down_IQ4_XS");
    l.moe.gate_dtype = l.moe.up_dtype = SL_DTYPE_IQ4_XS;
    assert_non_null(strstr(launched(d, &l), "fused_route moe_vec_IQ4_XS moe_down_IQ4_XS"));
    /* Rows that do not make whole tiles. */
    l = layer_ops(4);
    l.out.out[0].w.n_out--;
    assert_non_null(strstr(launched(d, &l), "fused_qkv matvec_Q4_K fused_route"));
    close_sound(d);
}

/* Its input is quantised by another rule than that of the other types that tensor cores multiply;
 * it needs no whole tiles. */
static void fused_q8_0(void **state) {
    (void)state;
    need_kernels();
    struct sl_device *d = opened_for_layers();
    struct layer_ops l = layer_ops(3);
    l.qkv.out[0].w.dtype = l.qkv.out[1].w.dtype = l.out.out[0].w.dtype = SL_DTYPE_Q8_0;
    l.out.out[0].w.n_out--;
    assert_non_null(strstr(launched(d, &l), "fused_norm_quantize matvec_mma_Q8_0 quantize "
                                            "matvec_mma_Q6_K fused_qkv quantize matvec_mma_Q8_0 "
                                            "fused_route"));
    l.qkv.out[0].w.dtype = SL_DTYPE_Q4_K;
    l.out.out[0].w.data = (const char *)l.out.out[0].w.data + 2;
    assert_non_null(strstr(launched(d, &l),
                           "fused_norm_quantize matvec_mma_Q4_K quantize matvec_mma_Q8_0 quantize "
                           "matvec_mma_Q6_K fused_qkv matvec_Q8_0 fused_route"));
    l = layer_ops(2);
    l.out.out[0].w.dtype = SL_DTYPE_Q8_0;
    assert_non_null(strstr(launched(d, &l), "fused_qkv matvec_block_Q8_0 fused_route"));
    l.out.out[0].w.n_out = 1u << 20;
    assert_non_null(strstr(launched(d, &l), "fused_qkv quantize matvec_mma_Q8_0 fused_route"));
    l.out.out[0].w.n_out = 15;
    assert_non_null(strstr(launched(d, &l), "fused_qkv matvec_block_Q8_0 fused_route"));
    close_sound(d);
}

/* A layer of gpt-oss-20b: 2880 wide, no head norms, biases everywhere, experts in MXFP4. */
static struct layer_ops gpt_oss_ops(uint32_t rows) {
    enum { N = 2880, HEADS = 64, KV = 8, DIM = 64, EXPERTS = 32 };
    struct layer_ops l = layer_ops(rows);
    struct sl_op_rms_norm none = {0};
    l.norm.n = l.norm.stride_x = l.norm.stride_y = N;
    l.ffn_norm.n = l.ffn_norm.stride_x = l.ffn_norm.stride_y = N;
    l.q_norm = l.k_norm = none;
    for (uint32_t i = 0; i < 3; i++) {
        l.qkv.out[i].w.dtype = SL_DTYPE_Q8_0;
        l.qkv.out[i].w.n_in = N;
        l.qkv.out[i].w.n_out = (i ? KV : HEADS) * DIM;
        l.qkv.out[i].bias = at(40 + i);
    }
    l.q_rope.n_heads = HEADS;
    l.q_rope.stride = HEADS * DIM;
    l.k_rope.n_heads = l.write.kv.n_kv_heads = KV;
    l.write.kv.k_page_bytes = l.write.kv.v_page_bytes = 64 * KV * DIM * 2;
    l.k_rope.stride = l.write.stride_k = l.write.stride_v = KV * DIM;
    l.out.out[0].w = (struct sl_weight){SL_DTYPE_Q8_0, HEADS * DIM, N, at(15)};
    l.out.out[0].bias = at(43);
    l.logits.out[0].w.n_in = N;
    l.logits.out[0].w.n_out = l.router.n_expert = l.moe.n_expert = EXPERTS;
    l.logits.out[0].bias = at(44);
    l.router.softmax_topk = true;
    l.router.normalize = false;
    l.moe.gate_dtype = l.moe.up_dtype = l.moe.down_dtype = SL_DTYPE_MXFP4;
    l.moe.n_embd = l.moe.n_ff = l.sum.n = N;
    l.moe.gate_bias = at(45);
    l.moe.up_bias = at(46);
    l.moe.down_bias = at(47);
    l.moe.activation = SL_SWIGLU_CLAMPED;
    return l;
}

/* Rows that are no multiple of 256 go through the same kernels for few pairs, and biases and the
 * activation stand in the way of no form. */
static void gpt_oss(void **state) {
    (void)state;
    need_kernels();
    struct sl_device *d = opened(0);
    const struct sl_device_limits limits = {.max_tok = 8,
                                            .max_n_in = 4096,
                                            .max_pairs = 32,
                                            .max_n_embd = 2880,
                                            .max_n_ff = 2880,
                                            .max_expert = 32,
                                            .max_heads = 64,
                                            .max_head_dim = 64};
    assert_int_equal(sl_device_configure(d, &limits, &err), SL_OK);
    assert_true(d->caps.moe_bias && d->caps.swiglu_clamped);
    struct layer_ops l = gpt_oss_ops(1);
    assert_string_equal(launched(d, &l),
                        "matvec_block_Q8_0 fused_qkv matvec_block_Q8_0 fused_route_wide "
                        "moe_pair_up_any_MXFP4 moe_pair_sum_any_MXFP4");
    l = gpt_oss_ops(8);
    assert_non_null(
        strstr(launched(d, &l), "fused_route_wide moe_pair_up_any_MXFP4 moe_pair_sum_any_MXFP4"));
    /* Rows of which a block's do not end where 16 bytes do. */
    l = gpt_oss_ops(1);
    l.moe.n_ff = 2880 - 32;
    assert_non_null(
        strstr(launched(d, &l), "fused_route_wide moe_pair_up_any_MXFP4 moe_down_MXFP4"));
    /* Each choice by itself: plain experts have kernels without biases, narrow rows a router
     * without. */
    l = gpt_oss_ops(1);
    l.moe.gate_bias = l.moe.up_bias = l.moe.down_bias = NULL;
    assert_non_null(strstr(launched(d, &l), "moe_pair_up_any_MXFP4 moe_pair_sum_MXFP4"));
    l.moe.activation = SL_SWIGLU;
    l.logits.out[0].bias = NULL;
    assert_non_null(
        strstr(launched(d, &l), "fused_route_wide moe_pair_up_MXFP4 moe_pair_sum_MXFP4"));
    l = layer_ops(1);
    l.logits.out[0].bias = at(44);
    assert_non_null(strstr(launched(d, &l), "fused_route_wide moe_pair_up_Q4_K"));
    close_sound(d);
}

/* Groups of experts have kernels of their own, fused and not; a build without them has no groups,
 * and routers of other models all the same. */
static void groups(void **state) {
    (void)state;
    need_kernels();
    const struct sl_op_need need = {.op = SL_OP_router, .dtype = SL_DTYPE_COUNT, .groups = true};
    struct sl_device *d = opened_for_layers();
    assert_true(d->caps.router_groups);
    assert_int_equal(sl_device_need(d, &need, &err), SL_OK);
    struct layer_ops l = layer_ops(1);
    l.router.n_group = 4, l.router.n_group_used = 2;
    assert_non_null(strstr(launched(d, &l), "fused_route_groups moe_pair_up_Q4_K"));
    l.logits.out[0].bias = at(40);
    assert_non_null(strstr(launched(d, &l), "fused_route_groups moe_pair_up_Q4_K"));
    l.logits.out[0].w.dtype = SL_DTYPE_F16;
    assert_non_null(strstr(launched(d, &l), "matvec_F16 router_groups moe_pair_up_Q4_K"));
    l = layer_ops(1);
    l.router.n_group = l.router.n_group_used = 1; /* which is none */
    assert_non_null(strstr(launched(d, &l), "fused_route moe_pair_up_Q4_K"));
    close_sound(d);

    fake->missing_kernel = "sl_k_fused_route_groups";
    d = opened_for_layers();
    l.router.n_group = 4, l.router.n_group_used = 2;
    assert_non_null(strstr(launched(d, &l), "matvec_F32 router_groups moe_pair_up_Q4_K"));
    l = layer_ops(1);
    assert_non_null(strstr(launched(d, &l), "fused_route moe_pair_up_Q4_K"));
    close_sound(d);

    fake->missing_kernel = "sl_k_router_groups";
    d = opened_for_layers();
    assert_true(sl_device_has_op(d, SL_OP_router));
    assert_non_null(strstr(launched(d, &l), "fused_route moe_pair_up_Q4_K"));
    assert_int_equal(sl_device_need(d, &need, &err), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "has no op 'router' with groups of experts"));
    l.router.n_group = 4, l.router.n_group_used = 2;
    assert_int_equal(sl_op_router(d, &l.router), SL_ERR_UNSUPPORTED);
    close_sound(d);
    fake->missing_kernel = NULL;
}

/* So have ids that experts share, of groups too; such a router is in no fused form. */
static void shared_ids(void **state) {
    (void)state;
    need_kernels();
    const struct sl_op_need need = {.op = SL_OP_router, .dtype = SL_DTYPE_COUNT, .share = true};
    struct sl_device *d = opened_for_layers();
    assert_int_equal(sl_device_need(d, &need, &err), SL_OK);
    struct layer_ops l = layer_ops(1);
    l.router.share = 2;
    assert_non_null(strstr(launched(d, &l), "matvec_F32 router_share moe_pair_up_Q4_K"));
    l.router.n_group = 4, l.router.n_group_used = 2;
    assert_non_null(strstr(launched(d, &l), "matvec_F32 router_share moe_pair_up_Q4_K"));
    l = layer_ops(1);
    l.router.share = 1; /* which is none */
    assert_non_null(strstr(launched(d, &l), "fused_route moe_pair_up_Q4_K"));
    close_sound(d);

    fake->missing_kernel = "sl_k_router_share";
    d = opened_for_layers();
    assert_true(sl_device_has_op(d, SL_OP_router));
    assert_non_null(strstr(launched(d, &l), "fused_route moe_pair_up_Q4_K"));
    assert_int_equal(sl_device_need(d, &need, &err), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "has no op 'router' with ids that experts share"));
    l.router.share = 2;
    assert_int_equal(sl_op_router(d, &l.router), SL_ERR_UNSUPPORTED);
    close_sound(d);
    fake->missing_kernel = NULL;
}

/* What a layer of gemma4 asks of them: experts with GEGLU, a scale for each, and a sum in rows of
 * its own. Each goes through kernels that have it, wherever the plain ones would not. */
static void gemma4(void **state) {
    (void)state;
    need_kernels();
    struct sl_device *d = opened_for_layers();
    assert_true(d->caps.geglu && d->caps.extra_args);
    assert_true(sl_device_has_op(d, SL_OP_gelu_mul) && sl_device_has_op(d, SL_OP_scale));
    struct layer_ops l = layer_ops(1);
    l.router.expert_scale = at(48);
    assert_non_null(strstr(launched(d, &l),
                           "fused_route elem_scale_chosen moe_pair_up_Q4_K moe_pair_sum_Q6_K"));
    l.logits.out[0].w.dtype = SL_DTYPE_F16;
    assert_non_null(strstr(launched(d, &l), "router elem_scale_chosen moe_pair_up_Q4_K"));
    l.logits.out[0].w.dtype = SL_DTYPE_F32;
    l.router.n_group = 4, l.router.n_group_used = 2;
    assert_non_null(
        strstr(launched(d, &l), "fused_route_groups elem_scale_chosen moe_pair_up_Q4_K"));
    l = layer_ops(1);
    l.moe.activation = SL_GEGLU;
    assert_non_null(strstr(launched(d, &l), "moe_pair_up_any_Q4_K moe_pair_sum_Q6_K"));
    l.sum.set = true;
    assert_non_null(strstr(launched(d, &l), "moe_pair_up_any_Q4_K moe_pair_sum_any_Q6_K"));
    l.moe.down_dtype = SL_DTYPE_Q8_0; /* moe_down only adds */
    assert_non_null(strstr(launched(d, &l), "moe_pair_up_any_Q4_K moe_vec_Q8_0 elem_combine"));
    l = layer_ops(5);
    l.sum.set = true;
    assert_non_null(strstr(launched(d, &l), "moe_mma_Q6_K elem_combine"));
    l = layer_ops(1);
    l.sum.set = true;
    l.moe.n_decode = 0; /* a prompt's row */
    assert_non_null(strstr(launched(d, &l), "moe_vec_Q6_K elem_combine"));

    /* A soft cap or chunks are no business of the tensor-core kernels; for none of them a plain row
     * pays. */
    static const char *const kernels[] = {"attention_split_64", "attention_row_any",
                                          "attention_row_any"};
    for (uint32_t i = 0; i < 3; i++) {
        struct sl_op_attention op = {.kv = l.write.kv,
                                     .q = at(5),
                                     .y = at(14),
                                     .page_table = (uint32_t *)at(50),
                                     .row_seq = (uint32_t *)at(51),
                                     .row_len = (uint32_t *)at(52),
                                     .n_tok = 1,
                                     .n_decode = 1,
                                     .n_heads = 8,
                                     .stride_q = 512,
                                     .max_pages = 4,
                                     .scale = 1,
                                     .softcap = i == 1 ? 30.0f : 0.0f,
                                     .chunk = i == 2 ? 64 : 0};
        for (uint32_t rows = 1; rows <= 2; rows++) { /* a generated one, then a prompt's too */
            uint64_t before = fake->n_launches;
            op.n_tok = rows;
            assert_int_equal(sl_op_attention(d, &op), SL_OK);
            assert_true(fake->n_launches > before);
            const char *name = fake->launch[before % FAKE_CUDA_MAX_LAUNCHES].kernel;
            assert_string_equal(name + strlen("sl_k_"), kernels[i]);
            const char *last = fake->launch[(fake->n_launches - 1) % FAKE_CUDA_MAX_LAUNCHES].kernel;
            assert_int_equal(strcmp(last, "sl_k_attention_join_any") == 0, i > 0);
        }
    }
    const struct sl_op_need cap = {.op = SL_OP_attention,
                                   .dtype = SL_DTYPE_F16,
                                   .head_dim_k = 128,
                                   .head_dim_v = 128,
                                   .extra = " with a soft cap"};
    assert_int_equal(sl_device_need(d, &cap, &err), SL_OK);
    close_sound(d);
}

/* Which kernels heads of 512 get: a generated row's and a prompt's. */
static void heads_of_512(void **state) {
    (void)state;
    need_kernels();
    struct sl_device *d = opened(0);
    const struct sl_device_limits limits = {
        .max_tok = 2, .max_n_in = 4096, .max_heads = 16, .max_head_dim = 512};
    assert_int_equal(sl_device_configure(d, &limits, &err), SL_OK);
    static const struct {
        uint32_t window;
        uint64_t sinks;
        enum sl_dtype dtype;
        const char *kernels;
    } cases[] = {
        {0, 0, SL_DTYPE_F16, " attention_wide_parts latent_join attention_wide_rows_4"},
        {100, 0, SL_DTYPE_F16, " attention_row attention_join"},
        {0, 60, SL_DTYPE_F16, " attention_row attention_join"},
        {0, 0, SL_DTYPE_Q8_0, " attention_row attention_join"},
    };
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sl_op_attention op = {.kv = {.k = at(10),
                                            .v = at(11),
                                            .k_page_bytes = 2 * 64 * 512 * 2,
                                            .v_page_bytes = 2 * 64 * 512 * 2,
                                            .n_kv_heads = 2,
                                            .head_dim_k = 512,
                                            .head_dim_v = 512,
                                            .dtype = cases[i].dtype},
                                     .q = at(5),
                                     .y = at(14),
                                     .sinks = cases[i].sinks ? at(60) : NULL,
                                     .page_table = (uint32_t *)at(50),
                                     .row_seq = (uint32_t *)at(51),
                                     .row_len = (uint32_t *)at(52),
                                     .n_tok = 2,
                                     .n_decode = 1,
                                     .n_heads = 16,
                                     .stride_q = 16 * 512,
                                     .max_pages = 4,
                                     .window = cases[i].window,
                                     .scale = 1};
        uint64_t before = fake->n_launches;
        assert_int_equal(sl_op_attention(d, &op), SL_OK);
        char names[256] = "";
        for (; before < fake->n_launches; before++)
            snprintf(names + strlen(names), sizeof names - strlen(names), " %s",
                     fake->launch[before % FAKE_CUDA_MAX_LAUNCHES].kernel + strlen("sl_k_"));
        assert_ptr_equal(strstr(names, cases[i].kernels), names);
    }
    close_sound(d);
}

/* What must stay apart. */
static void not_fused(void **state) {
    (void)state;
    need_kernels();
    struct sl_device *d = opened_for_layers();
    /* Prompt rows. */
    struct layer_ops l = layer_ops(1);
    l.qkv.n_decode = l.out.n_decode = l.logits.n_decode = l.moe.n_decode = 0;
    assert_string_equal(launched(d, &l),
                        "rms_norm matvec_few_1 matvec_Q6_K fused_qkv matvec_few_1 rms_norm "
                        "gemm_narrow_F32 router moe_pair_up_Q4_K moe_vec_Q6_K moe_combine");
    /* An input that is not the norm's output; an output over the norm's input. */
    l = layer_ops(1);
    l.qkv.x = at(30);
    assert_non_null(strstr(launched(d, &l), "rms_norm matvec_few_1 matvec_Q6_K fused_qkv"));
    l = layer_ops(1);
    l.qkv.out[2].y = at(1);
    l.write.v = at(1);
    assert_non_null(strstr(launched(d, &l), "rms_norm matvec_few_1 matvec_Q6_K fused_qkv"));
    /* Norms over whole rows of heads; two tables; k from elsewhere. */
    l = layer_ops(1);
    l.q_norm.n_rows = 1;
    l.q_norm.n = l.q_norm.stride_x = l.q_norm.stride_y = 512;
    assert_non_null(strstr(launched(d, &l), "matvec_Q6_K rms_norm rms_norm fused_qkv"));
    l = layer_ops(1);
    l.k_rope.table = at(31);
    assert_non_null(strstr(launched(d, &l), "matvec_Q6_K rms_norm rms_norm rope rope kv_write"));
    l = layer_ops(1);
    l.write.k = at(32);
    assert_non_null(strstr(launched(d, &l), "matvec_Q6_K rms_norm rms_norm rope rope kv_write"));
    /* A router that reads other logits, or weights of another type; listed pairs; another sum. */
    l = layer_ops(1);
    l.router.logits = at(33);
    assert_non_null(strstr(launched(d, &l), "matvec_few_1 matvec_F32 router moe_pair_up_Q4_K"));
    l = layer_ops(1);
    l.logits.out[0].w.dtype = SL_DTYPE_F16;
    assert_non_null(strstr(launched(d, &l), "matvec_few_1 matvec_F16 router moe_pair_up_Q4_K"));
    l = layer_ops(1);
    l.moe.pairs = (uint32_t *)at(34);
    assert_non_null(strstr(launched(d, &l), "moe_pair_up_Q4_K moe_vec_Q6_K moe_combine"));
    l = layer_ops(1);
    l.sum.pair_y = at(35);
    assert_non_null(strstr(launched(d, &l), "moe_pair_up_Q4_K moe_vec_Q6_K moe_combine"));
    close_sound(d);
}

/* Rows of any number fit, also where they and what the kernel declares itself are just too much for
 * a block that the driver was not asked for. */
static void shared_memory_is_asked_for(void **state) {
    (void)state;
    need_kernels();
    enum { N = 2048, EXPERTS = 128 };
    struct sl_device *d = opened(0);
    const struct sl_device_limits limits = {.max_tok = 8, .max_n_in = N};
    assert_int_equal(sl_device_configure(d, &limits, &err), SL_OK);
    for (uint32_t rows = 1; rows <= 8; rows++) {
        struct sl_op_matmul logits = {
            at(3), rows, rows, 1, {{{SL_DTYPE_F32, N, EXPERTS, at(17)}, NULL, at(18), false}}};
        assert_int_equal(sl_op_matmul(d, &logits), SL_OK);
    }
    close_sound(d);
}

/* A warp for each block of a row, of all rows, and no block of warps without one. */
static void block_maxima(void **state) {
    (void)state;
    need_kernels();
    static const uint32_t sizes[] = {1, 64, 65, 512, 513, 151936};
    struct sl_device *d = opened(0);
    void *x = NULL;
    size_t bytes = 4 * 151936 * sizeof(float);
    assert_int_equal(sl_device_configure(d, &(struct sl_device_limits){.max_tok = 3}, &err), SL_OK);
    assert_int_equal(mem_alloc(d, bytes, &x), SL_OK);
    float *max = (float *)x + 3 * 151936;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint32_t n = sizes[i], n_blocks = (n + SL_BLOCK_MAX_ELEMS - 1) / SL_BLOCK_MAX_ELEMS;
        float *sum = max + 6 * n_blocks;
        struct sl_op_block_max op = {
            x, max, (uint32_t *)max + 3 * n_blocks, sum, sum + 3 * n_blocks, 3, n};
        uint64_t first = fake->n_launches;
        assert_int_equal(sl_op_block_max(d, &op), SL_OK);
        assert_int_equal(fake->n_launches - first, 1);
        const struct fake_cuda_launch *l = &fake->launch[first % FAKE_CUDA_MAX_LAUNCHES];
        assert_string_equal(l->kernel, "sl_k_block_max");
        assert_int_equal(l->block[0], 32 * SL_BLOCK_MAX_WARPS);
        assert_int_equal(l->grid[0], 3);
        assert_int_equal(l->grid[1], (n_blocks + SL_BLOCK_MAX_WARPS - 1) / SL_BLOCK_MAX_WARPS);
        struct sl_karg_block_max a;
        memcpy(&a, l->args, sizeof a);
        assert_true(a.x == op.x && a.max == op.max && a.at == op.at && a.n == n);
        assert_true(a.sum == op.sum && a.inv_t == op.inv_t);
    }
    mem_free(d, x);
    sl_device_close(&d);
}

/* Families have a kernel for what their kernels' names say, and for nothing else. */
static void families(void **state) {
    (void)state;
    static const char *const names[] = {
#define NAME(family, name, variant, args) #name,
        SL_KERNELS(NAME)
#undef NAME
    };
    uint32_t n = 0;
    for (uint32_t t = 0; t < SL_DTYPE_COUNT; t++) {
        enum sl_kernel k = sl_kernel_of(SL_FAMILY_matvec, t);
        assert_int_equal(k < SL_KERNEL_COUNT, sl_dtype_info(t) != NULL);
        if (k == SL_KERNEL_COUNT)
            continue;
        assert_string_equal(names[k] + strlen("matvec_"), sl_dtype_name(t));
        assert_string_equal(names[sl_kernel_of(SL_FAMILY_moe_down, t)] + strlen("moe_down_"),
                            sl_dtype_name(t));
        n++;
    }
    assert_int_equal(n, 30);
    assert_int_equal(sl_kernel_of(SL_FAMILY_matvec, SL_DTYPE_COUNT), SL_KERNEL_COUNT);
    assert_int_equal(sl_kernel_of(SL_FAMILY_moe_mma, SL_DTYPE_Q5_K), SL_KERNEL_moe_mma_Q5_K);
    assert_int_equal(sl_kernel_of(SL_FAMILY_moe_mma, SL_DTYPE_Q8_0), SL_KERNEL_COUNT);
    assert_int_equal(sl_kernel_of(SL_FAMILY_matvec_mma, SL_DTYPE_Q8_0), SL_KERNEL_matvec_mma_Q8_0);
    assert_int_equal(sl_kernel_of(SL_FAMILY_matvec_few, 0), SL_KERNEL_COUNT);
    assert_int_equal(sl_kernel_of(SL_FAMILY_matvec_few, 2), SL_KERNEL_matvec_few_2);
    assert_int_equal(sl_kernel_of(SL_FAMILY_attention_tile, 1), SL_KERNEL_attention_tile_128);
    assert_int_equal(sl_kernel_of(SL_FAMILY_rope, 0), SL_KERNEL_rope);
    assert_int_equal(sl_kernel_of(SL_FAMILY_rope, 1), SL_KERNEL_COUNT);
}

/* Whether a device has an op for a type; the text if not. */
static enum sl_status needs(const struct sl_device *d, enum sl_op op, enum sl_dtype t) {
    bool heads = op == SL_OP_attention || op == SL_OP_kv_write;
    return sl_device_need(
        d,
        &(struct sl_op_need){
            .op = op, .dtype = t, .head_dim_k = heads ? 64 : 0, .head_dim_v = heads ? 64 : 0},
        &err);
}

/* A kernel that is missing from the build takes its op with it, for its type alone if it has one,
 * and the device opens; what was only faster by it is done by others. */
static void missing(void **state) {
    (void)state;
    need_kernels();
    struct layer_ops l = layer_ops(1);
    fake->missing_kernel = "sl_k_rope";
    struct sl_device *d = opened_for_layers();
    assert_false(sl_device_has_op(d, SL_OP_rope));
    assert_int_equal(needs(d, SL_OP_rope, SL_DTYPE_COUNT), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "device cuda:0"));
    assert_non_null(strstr(err.text, "has no op 'rope'"));
    assert_int_equal(sl_op_rope(d, &l.q_rope), SL_ERR_UNSUPPORTED);
    assert_int_equal(needs(d, SL_OP_rms_norm, SL_DTYPE_COUNT), SL_OK);
    close_sound(d);

    fake->missing_kernel = "sl_k_recurrent_delta_128";
    d = opened_for_layers();
    assert_int_equal(needs(d, SL_OP_delta_rule, SL_DTYPE_COUNT), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "has no op 'delta_rule'"));
    assert_int_equal(needs(d, SL_OP_conv_silu, SL_DTYPE_COUNT), SL_OK);
    close_sound(d);

    fake->missing_kernel = "sl_k_matvec_Q4_K";
    d = opened_for_layers();
    assert_true(sl_device_has_op(d, SL_OP_matmul));
    assert_int_equal(needs(d, SL_OP_matmul, SL_DTYPE_Q4_K), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "has no op 'matmul' for weights of type Q4_K"));
    assert_int_equal(needs(d, SL_OP_matmul, SL_DTYPE_Q5_K), SL_OK);
    assert_int_equal(needs(d, SL_OP_moe, SL_DTYPE_Q4_K), SL_OK);
    close_sound(d);

    static const struct {
        const char *kernel;
        uint32_t rows;
        const char *launched;
    } faster[] = {
        {"sl_k_fused_qkv", 1,
         "matvec_Q6_K rms_norm rms_norm rope rope kv_write matvec_few_1 fused"},
        {"sl_k_fused_route", 1,
         "matvec_few_1 matvec_F32 router moe_pair_up_Q4_K moe_pair_sum_Q6_K"},
        {"sl_k_fused_norm_quantize", 5, "rms_norm quantize matvec_mma_Q4_K matvec_mma_Q6_K fused"},
        {"sl_k_matvec_few_1", 1, "fused_qkv matvec_Q4_K fused_route"},
        {"sl_k_matvec_mma_Q6_K", 5, "matvec_mma_Q4_K matvec_Q6_K fused_qkv"},
        {"sl_k_moe_pair_up_Q4_K", 1, "fused_route moe_vec_Q4_K moe_pair_sum_Q6_K"},
        {"sl_k_moe_pair_sum_Q6_K", 1, "moe_pair_up_Q4_K moe_down_Q6_K"},
        {"sl_k_moe_down_Q6_K", 1, "moe_pair_up_Q4_K moe_vec_Q6_K moe_combine"},
        {"sl_k_moe_mma_Q6_K", 5, "moe_pair_up_Q4_K moe_down_Q6_K"},
    };
    for (size_t i = 0; i < sizeof faster / sizeof *faster; i++) {
        fake->missing_kernel = faster[i].kernel;
        d = opened_for_layers();
        l = layer_ops(faster[i].rows);
        const char *names = launched(d, &l);
        if (!strstr(names, faster[i].launched))
            fail_msg("without %s: %s", faster[i].kernel, names);
        assert_null(strstr(names, faster[i].kernel + strlen("sl_k_")));
        for (uint32_t op = 0; op < SL_OP_COUNT; op++)
            assert_int_equal(sl_device_has_op(d, (enum sl_op)op), !host_only[op]);
        close_sound(d);
    }
    fake->missing_kernel = NULL;
}

/* Heads that no kernel takes are told before anything is loaded. */
static void heads(void **state) {
    (void)state;
    need_kernels();
    static const struct {
        enum sl_dtype kv;
        uint32_t dim_k, dim_v;
        bool has;
    } cases[] = {
        {SL_DTYPE_F16, 64, 64, true},    {SL_DTYPE_F16, 256, 256, true},
        {SL_DTYPE_Q8_0, 128, 128, true}, {SL_DTYPE_F16, 576, 512, true},
        {SL_DTYPE_F16, 576, 576, false}, {SL_DTYPE_F32, 64, 64, false},
        {SL_DTYPE_F16, 4096, 64, false},
    };
    struct sl_device *d = opened_for_layers();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sl_op_need need = {.op = SL_OP_attention,
                                  .dtype = cases[i].kv,
                                  .head_dim_k = cases[i].dim_k,
                                  .head_dim_v = cases[i].dim_v};
        assert_int_equal(sl_device_need(d, &need, &err), cases[i].has ? SL_OK : SL_ERR_UNSUPPORTED);
    }
    assert_int_equal(sl_device_need(d,
                                    &(struct sl_op_need){.op = SL_OP_attention,
                                                         .dtype = SL_DTYPE_F16,
                                                         .head_dim_k = 576,
                                                         .head_dim_v = 576},
                                    &err),
                     SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "has no op 'attention' for head size 576 and KV of type F16"));
    struct sl_op_need keys = {
        .op = SL_OP_delta_rule, .dtype = SL_DTYPE_COUNT, .head_dim_k = 256, .head_dim_v = 256};
    assert_int_equal(sl_device_need(d, &keys, &err), SL_OK);
    keys.head_dim_k = keys.head_dim_v = 257;
    assert_int_equal(sl_device_need(d, &keys, &err), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "has no op 'delta_rule' for head size 257"));
    close_sound(d);
}

/* How many ops a layer of each kind records, how many calls the front makes of them, and how many
 * kernels they become: what -v says. A lost fusion shows here. */
static void counts(void **state) {
    (void)state;
    need_kernels();
    static const struct {
        const char *kind;
        uint32_t rows, n_ops, n_calls, n_kernels;
    } expected[] = {
        {"experts", 1, 13, 5, 7},    {"experts", 2, 13, 5, 7},    {"experts", 4, 13, 5, 9},
        {"experts", 8, 13, 5, 10},   {"attention", 1, 8, 3, 4},   {"attention", 2, 8, 3, 4},
        {"attention", 4, 8, 3, 6},   {"attention", 8, 8, 3, 6},   {"prompt", 8, 13, 9, 13},
        {"no forms", 1, 13, 13, 15}, {"no forms", 8, 13, 13, 17},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const char *kind = expected[i].kind;
        struct sl_device *d = opened_for_layers();
        struct layer_ops l = layer_ops(expected[i].rows);
        if (strcmp(kind, "prompt") == 0)
            l.qkv.n_decode = l.out.n_decode = l.logits.n_decode = l.moe.n_decode = 0;
        if (strcmp(kind, "no forms") == 0)
            d->caps.fused_ops = 0;
        struct sl_graph *graph = NULL;
        assert_int_equal(sl_device_record(d), SL_OK);
        for (int layer = 0; layer < 3; layer++) {
            sl_device_section(d, kind, true);
            if (strcmp(kind, "attention") == 0)
                submit_attention(d, &l);
            else
                submit_layer(d, &l);
        }
        assert_int_equal(sl_device_recorded(d, &graph), SL_OK);
        sl_graph_free(d, &graph);
        uint32_t n;
        const struct sl_tally *t = sl_device_tallies(d, &n);
        while (n && strcmp(t->kind, kind) != 0)
            n--, t++;
        assert_true(n > 0);
        if (t->n != 3 || t->n_ops != 3 * expected[i].n_ops ||
            t->n_calls != 3 * expected[i].n_calls || t->n_kernels != 3 * expected[i].n_kernels)
            fail_msg("3 layers of %s, %u rows: %u x: %u ops, %u calls, %u kernels", kind,
                     expected[i].rows, t->n, t->n_ops, t->n_calls, (unsigned)t->n_kernels);
        sl_device_log_recorded(d, "a test");
        sl_device_tallies(d, &n);
        assert_int_equal(n, 0);
        close_sound(d);
    }
}

int main(int argc, char **argv) {
    (void)argc;
    if (!find_driver(argv[0]))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(fused, reset),
        cmocka_unit_test_setup(fused_q8_0, reset),
        cmocka_unit_test_setup(gpt_oss, reset),
        cmocka_unit_test_setup(groups, reset),
        cmocka_unit_test_setup(shared_ids, reset),
        cmocka_unit_test_setup(gemma4, reset),
        cmocka_unit_test_setup(heads_of_512, reset),
        cmocka_unit_test_setup(not_fused, reset),
        cmocka_unit_test_setup(shared_memory_is_asked_for, reset),
        cmocka_unit_test_setup(block_maxima, reset),
        cmocka_unit_test(families),
        cmocka_unit_test_setup(missing, reset),
        cmocka_unit_test_setup(heads, reset),
        cmocka_unit_test_setup(counts, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
