/* Which kernels the CUDA backend launches for ops, and how, over a fake driver. */
#include "tests/unit/backends/cuda_fixture.h"

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

/* The kernels that a recorded layer becomes: names with spaces between. */
static const char *launched(struct sl_device *d, const struct layer_ops *l) {
    static char names[2048];
    struct sl_graph *graph = NULL;
    uint64_t before = fake->n_launches;
    assert_int_equal(sl_device_record(d), SL_OK);
    assert_int_equal(sl_op_rms_norm(d, &l->norm), SL_OK);
    assert_int_equal(sl_op_matmul(d, &l->qkv), SL_OK);
    assert_int_equal(sl_op_rms_norm(d, &l->q_norm), SL_OK);
    assert_int_equal(sl_op_rms_norm(d, &l->k_norm), SL_OK);
    assert_int_equal(sl_op_rope(d, &l->q_rope), SL_OK);
    assert_int_equal(sl_op_rope(d, &l->k_rope), SL_OK);
    assert_int_equal(sl_op_kv_write(d, &l->write), SL_OK);
    assert_int_equal(sl_op_matmul(d, &l->out), SL_OK);
    assert_int_equal(sl_op_rms_norm(d, &l->ffn_norm), SL_OK);
    assert_int_equal(sl_op_matmul(d, &l->logits), SL_OK);
    assert_int_equal(sl_op_router(d, &l->router), SL_OK);
    assert_int_equal(sl_op_moe(d, &l->moe), SL_OK);
    assert_int_equal(sl_op_moe_combine(d, &l->sum), SL_OK);
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
    assert_non_null(strstr(launched(d, &l), "fused_qkv matvec_Q8_0 fused_route"));
    l.out.out[0].w.n_out = 1u << 20;
    assert_non_null(strstr(launched(d, &l), "fused_qkv quantize matvec_mma_Q8_0 fused_route"));
    l.out.out[0].w.n_out = 15;
    assert_non_null(strstr(launched(d, &l), "fused_qkv matvec_Q8_0 fused_route"));
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
                        "gemm_small_F32 router moe_pair_up_Q4_K moe_vec_Q6_K moe_combine");
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

/* A warp for each block of a row, of all rows, and no block of warps without one. */
static void block_maxima(void **state) {
    (void)state;
    need_kernels();
    static const uint32_t sizes[] = {1, 64, 65, 512, 513, 151936};
    struct sl_device *d = opened(0);
    void *x;
    size_t bytes = 4 * 151936 * sizeof(float);
    assert_int_equal(sl_device_configure(d, &(struct sl_device_limits){.max_tok = 3}, &err), SL_OK);
    assert_int_equal(sl_device_alloc(d, bytes, &x), SL_OK);
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
    sl_device_free(d, x, bytes);
    sl_device_close(&d);
}

/* One tensor type, one kernel of each typed family. */
static void typed_kernels(void **state) {
    (void)state;
    bool seen[32] = {false};
    int n = 0;
    for (uint32_t t = 0; t < SL_DTYPE_COUNT; t++) {
        int i = sl_kernel_type_index(t);
        assert_int_equal(i >= 0, sl_dtype_info(t) != NULL);
        if (i < 0)
            continue;
        static const char *const names[] = {
#define NAME(name, args) #name,
            SL_KERNEL_TYPES(NAME, k, 0)
#undef NAME
        };
        assert_true(i < (int)(sizeof names / sizeof names[0]) && !seen[i]);
        assert_string_equal(names[i] + 2, sl_dtype_name(t));
        seen[i] = true;
        n++;
    }
    assert_int_equal(n, 23);
    assert_int_equal(sl_kernel_type_index(SL_DTYPE_COUNT), -1);
}

int main(int argc, char **argv) {
    (void)argc;
    if (!find_driver(argv[0]))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(fused, reset),     cmocka_unit_test_setup(fused_q8_0, reset),
        cmocka_unit_test_setup(not_fused, reset), cmocka_unit_test_setup(block_maxima, reset),
        cmocka_unit_test(typed_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
