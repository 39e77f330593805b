/* Which kernels the CUDA backend launches for layers that keep a state, for experts without a gate
 * and for an indexer, and how, over a fake driver. */
#include "tests/unit/backends/cuda_fixture.h"

/* Addresses that are told apart and never followed: the fake runs no kernel but one. */
static float *at(uintptr_t i) {
    return (float *)(0x100000 * i);
}

static struct sl_device *configured(const struct sl_device_limits *limits) {
    struct sl_device *d = opened(0);
    if (sl_device_configure(d, limits, &err))
        fail_msg("%s", err.text);
    return d;
}

static void close_sound(struct sl_device *d) {
    sl_device_close(&d);
    assert_false(fake->misused);
}

static const struct fake_cuda_launch *launch(uint64_t i) {
    return &fake->launch[i % FAKE_CUDA_MAX_LAUNCHES];
}

/* What was launched from `first` on: names with a space before each. */
static const char *names_from(uint64_t first) {
    static char names[1024];
    names[0] = 0;
    for (; first < fake->n_launches; first++)
        snprintf(names + strlen(names), sizeof names - strlen(names), " %s",
                 launch(first)->kernel + strlen("sl_k_"));
    return names;
}

static const struct sl_device_limits plain_limits = {.max_tok = 64, .max_n_in = 512};

static struct sl_state_view state_of(void) {
    return (struct sl_state_view){.pages = at(20),
                                  .page_bytes = (size_t)1 << 24,
                                  .page_table = (uint32_t *)at(21),
                                  .slot = (uint32_t *)at(22),
                                  .row_seq = (uint32_t *)at(23),
                                  .row_len = (uint32_t *)at(24),
                                  .max_pages = 4};
}

static void assert_grid(const struct fake_cuda_launch *l, const char *kernel, uint32_t x,
                        uint32_t y, uint32_t z) {
    assert_string_equal(l->kernel + strlen("sl_k_"), kernel);
    if (l->grid[0] != x || l->grid[1] != y || l->grid[2] != z)
        fail_msg("%s: grid %u, %u, %u, not %u, %u, %u", kernel, l->grid[0], l->grid[1], l->grid[2],
                 x, y, z);
}

/* Few rows have blocks each; the blocks of more share out their sequences. Widths choose kernels.
 */
static void recurrences(void **state) {
    (void)state;
    need_kernels();
    struct sl_device *d = configured(&plain_limits);
    for (uint32_t rows = 32; rows <= 33; rows++) {
        uint32_t z = rows == 32 ? 32 : SL_DELTA_Z;
        uint64_t before = fake->n_launches;
        struct sl_op_state_scan scan = {.x = at(1),
                                        .b = at(2),
                                        .c = at(3),
                                        .dt = at(4),
                                        .a = at(5),
                                        .dt_bias = at(6),
                                        .skip = at(7),
                                        .y = at(8),
                                        .state = state_of(),
                                        .n_tok = rows,
                                        .n_heads = 6,
                                        .n_groups = 2,
                                        .head_dim = 65,
                                        .n_state = 128,
                                        .stride = 1000};
        assert_int_equal(sl_op_state_scan(d, &scan), SL_OK);
        struct sl_karg_delta k;
        memcpy(&k, launch(before)->args, sizeof k);
        assert_true(k.q == scan.c && k.k == scan.b && k.v == scan.x && k.alpha == scan.dt);
        assert_true(k.dt == scan.dt_bias && k.skip == scan.skip && k.grouped);
        assert_true(k.n_heads_k == 2 && k.head_dim_k == 128 && k.head_dim_v == 65);
        assert_grid(launch(before), "recurrent_scan_128", 3, 6, z);

        struct sl_op_channel_delta delta = {.q = at(1),
                                            .k = at(2),
                                            .v = at(3),
                                            .alpha = at(4),
                                            .beta = at(5),
                                            .a = at(6),
                                            .dt = at(7),
                                            .y = at(8),
                                            .state = state_of(),
                                            .n_tok = rows,
                                            .n_heads = 4,
                                            .head_dim_k = 64,
                                            .head_dim_v = 32,
                                            .scale = 0.5f,
                                            .bound = rows == 32 ? 0 : -5};
        assert_int_equal(sl_op_channel_delta(d, &delta), SL_OK);
        memcpy(&k, launch(before + 1)->args, sizeof k);
        assert_true(k.stride == 4 * 64 && k.stride_v == 4 * 32 && k.n_heads_k == 4 && !k.grouped);
        assert_true(k.scale == delta.scale && k.bound == delta.bound);
        assert_grid(launch(before + 1), "recurrent_delta_channel_64", 1, 4, z);

        struct sl_op_channel_scan channels = {.x = at(1),
                                              .b = at(2),
                                              .c = at(3),
                                              .dt = at(4),
                                              .a = at(5),
                                              .skip = at(6),
                                              .y = at(8),
                                              .state = state_of(),
                                              .n_tok = rows,
                                              .n = 100,
                                              .n_state = rows == 32 ? 16 : 17};
        assert_int_equal(sl_op_channel_scan(d, &channels), SL_OK);
        assert_grid(launch(before + 2),
                    rows == 32 ? "recurrent_scan_channel_16" : "recurrent_scan_channel_64", 4, z,
                    1);

        struct sl_op_short_conv conv = {.x = at(1),
                                        .w = at(2),
                                        .y = at(8),
                                        .state = state_of(),
                                        .n_tok = rows,
                                        .n = 257,
                                        .n_taps = 3};
        assert_int_equal(sl_op_short_conv(d, &conv), SL_OK);
        assert_grid(launch(before + 3), "recurrent_short_conv", 2, rows == 32 ? 32 : 3, 1);
        assert_int_equal(fake->n_launches, before + 4);
    }
    /* States and keys that are too long are told before anything is loaded, and refused. */
    static const enum sl_op ops[] = {SL_OP_state_scan, SL_OP_channel_delta, SL_OP_index_choose};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        struct sl_op_need need = {.op = ops[i],
                                  .dtype = i < 2 ? SL_DTYPE_COUNT : SL_DTYPE_F16,
                                  .head_dim_k = 256,
                                  .head_dim_v = 64};
        assert_int_equal(sl_device_need(d, &need, &err), SL_OK);
        need.head_dim_k = 257;
        assert_int_equal(sl_device_need(d, &need, &err), SL_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.text, " for head sizes 257 and 64"));
    }
    struct sl_op_state_scan wide = {.x = at(1),
                                    .b = at(2),
                                    .c = at(3),
                                    .dt = at(4),
                                    .a = at(5),
                                    .dt_bias = at(6),
                                    .skip = at(7),
                                    .y = at(8),
                                    .state = state_of(),
                                    .n_tok = 1,
                                    .n_heads = 1,
                                    .n_groups = 1,
                                    .head_dim = 1,
                                    .n_state = 257,
                                    .stride = 257};
    uint64_t before = fake->n_launches;
    assert_int_equal(sl_op_state_scan(d, &wide), SL_ERR_UNSUPPORTED);
    assert_int_equal(fake->n_launches, before);
    close_sound(d);
}

/* Experts without a gate: one product goes up, whatever type their absent gate is said to have. */
static void squared_relu(void **state) {
    (void)state;
    need_kernels();
    static const struct sl_device_limits limits = {.max_tok = 64,
                                                   .max_n_in = 512,
                                                   .max_pairs = 256,
                                                   .max_n_embd = 512,
                                                   .max_n_ff = 256,
                                                   .max_expert = 16};
    static const struct {
        uint32_t rows;
        enum sl_dtype up, down;
        const char *kernels;
    } cases[] = {
        {1, SL_DTYPE_Q4_K, SL_DTYPE_Q6_K, " moe_vec_Q4_K moe_vec_Q6_K"},
        {8, SL_DTYPE_Q4_K, SL_DTYPE_Q6_K, " moe_mma_Q4_K moe_mma_Q6_K"},
        {16, SL_DTYPE_Q4_K, SL_DTYPE_Q6_K, " moe_mma_Q4_K moe_mma_Q6_K"},
        {17, SL_DTYPE_Q4_K, SL_DTYPE_Q6_K,
         " moe_sort quantize gemm_small_Q4_K quantize gemm_small_Q6_K"},
        {17, SL_DTYPE_Q8_0, SL_DTYPE_Q8_0,
         " moe_sort quantize gemm_small_Q8_0 quantize gemm_small_Q8_0"},
        {1, SL_DTYPE_F16, SL_DTYPE_F16, " moe_vec_F16 moe_vec_F16"},
    };
    struct sl_device *d = configured(&limits);
    assert_true(d->caps.relu_squared);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t before = fake->n_launches;
        struct sl_op_moe op = {.x = at(3),
                               .ids = (uint32_t *)at(19),
                               .pair_y = at(23),
                               .device_refs = (const struct sl_expert_ref *)at(24),
                               .gate_dtype = i % 2 ? SL_DTYPE_F32 : cases[i].up,
                               .up_dtype = cases[i].up,
                               .down_dtype = cases[i].down,
                               .n_tok = cases[i].rows,
                               .n_decode = cases[i].rows,
                               .k = 4,
                               .n_pairs = cases[i].rows * 4,
                               .n_expert = 16,
                               .n_embd = 512,
                               .n_ff = 256,
                               .activation = SL_RELU_SQUARED};
        assert_int_equal(sl_op_moe(d, &op), SL_OK);
        const char *names = names_from(before);
        if (strcmp(names, cases[i].kernels) != 0)
            fail_msg("%u rows, case %zu: %s", cases[i].rows, i, names);
    }
    close_sound(d);
}

/* Rows go in waves, as many as there is room for the scores of. */
static void indexer(void **state) {
    (void)state;
    need_kernels();
    static const struct sl_device_limits limits = {
        .max_tok = 40, .max_heads = 64, .max_head_dim = 128, .max_scores = 1u << 20};
    struct sl_device *d = configured(&limits);
    struct sl_op_index_choose op = {
        .keys = {.rows = at(1), .dtype = SL_DTYPE_F16, .n_latent = 128, .page_bytes = 64 * 128 * 2},
        .q = at(2),
        .w = at(3),
        .chosen = (uint32_t *)at(4),
        .page_table = (uint32_t *)at(5),
        .row_seq = (uint32_t *)at(6),
        .row_len = (uint32_t *)at(7),
        .n_tok = 40,
        .n_heads = 64,
        .max_pages = 1u << 14,
        .n_top = 2048};
    uint64_t before = fake->n_launches;
    assert_int_equal(sl_op_index_choose(d, &op), SL_OK);
    assert_int_equal(fake->n_launches - before, 6);
    for (uint32_t i = 0; i < 3; i++) {
        struct sl_karg_index k;
        uint32_t rows = i < 2 ? 16 : 8;
        assert_grid(launch(before + 2 * i), "index_score_128", 1u << 12, rows, 1);
        assert_grid(launch(before + 2 * i + 1), "index_choose", rows, 1, 1);
        memcpy(&k, launch(before + 2 * i)->args, sizeof k);
        assert_true(k.row0 == 16 * i && k.stride == 1u << 20 && k.n_top == 2048 && !k.q8);
    }
    /* A sequence that ends within the choice needs no scores. */
    op.n_tok = 1;
    op.max_pages = 32;
    before = fake->n_launches;
    assert_int_equal(sl_op_index_choose(d, &op), SL_OK);
    assert_string_equal(names_from(before), " index_choose");
    op.n_top--;
    before = fake->n_launches;
    assert_int_equal(sl_op_index_choose(d, &op), SL_OK);
    assert_string_equal(names_from(before), " index_score_128 index_choose");
    assert_int_equal(launch(before)->grid[0], 32);

    before = fake->n_launches;
    assert_int_equal(
        sl_op_hadamard(d, &(struct sl_op_hadamard){.x = at(2), .n_rows = 77, .n = 128}), SL_OK);
    assert_grid(launch(before), "index_hadamard", 77, 1, 1);
    assert_int_equal(launch(before)->block[0], 64);
    close_sound(d);
}

/* Chosen latents go as all latents do, by kernels that look each position up; without these the op
 * goes another way, or is missing. */
static void chosen(void **state) {
    (void)state;
    need_kernels();
    static const struct sl_device_limits limits = {
        .max_tok = 4, .max_heads = 128, .max_head_dim = 576, .max_head_n = 512};
    static const struct {
        const char *missing;
        uint32_t n_latent, n_rot;
        enum sl_dtype dtype;
        const char *kernels;
    } cases[] = {
        {NULL, 512, 64, SL_DTYPE_F16,
         " latent_chosen_parts_2 latent_chosen_join latent_chosen_rows_4"},
        {"sl_k_latent_chosen_rows_4", 512, 64, SL_DTYPE_F16,
         " latent_chosen_parts_2 latent_chosen_join latent_chosen_rows_2"},
        {"sl_k_latent_chosen_join", 512, 64, SL_DTYPE_F16,
         " attention_chosen attention_chosen_join"},
        {NULL, 512, 64, SL_DTYPE_Q8_0, " attention_chosen attention_chosen_join"},
        {NULL, 96, 32, SL_DTYPE_F16, " attention_chosen attention_chosen_join"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fake->missing_kernel = cases[i].missing;
        struct sl_device *d = configured(&limits);
        uint32_t dim = cases[i].n_latent + cases[i].n_rot;
        struct sl_op_chosen_attention op = {
            .kv = {.rows = at(1),
                   .dtype = cases[i].dtype,
                   .n_latent = cases[i].n_latent,
                   .n_rot = cases[i].n_rot,
                   .page_bytes = 64 * sl_dtype_row_bytes(cases[i].dtype, dim)},
            .q = at(2),
            .y = at(3),
            .chosen = (uint32_t *)at(4),
            .page_table = (uint32_t *)at(5),
            .row_seq = (uint32_t *)at(6),
            .row_len = (uint32_t *)at(7),
            .n_tok = 4,
            .n_decode = 1,
            .n_heads = 80,
            .max_pages = 1000,
            .n_top = 130,
            .scale = 1};
        uint64_t before = fake->n_launches;
        assert_int_equal(sl_op_chosen_attention(d, &op), SL_OK);
        const char *names = names_from(before);
        if (strncmp(names, cases[i].kernels, strlen(cases[i].kernels)) != 0)
            fail_msg("case %zu: %s", i, names);
        struct sl_karg_attention k;
        memcpy(&k, launch(before)->args, sizeof k);
        assert_true(k.chosen == op.chosen && k.n_top == 130 && k.max_pages == 1000);
        /* Parts of what is chosen: three pages, or six chunks. Prompt rows have blocks each. */
        bool tiles = strstr(names, "latent") != NULL;
        assert_int_equal(launch(before)->grid[0], tiles ? 6 : 3);
        if (tiles)
            assert_int_equal(launch(before + 2)->grid[0], 3 * (i ? 3 : 2));
        close_sound(d);
    }
    fake->missing_kernel = "sl_k_attention_chosen";
    struct sl_device *d = configured(&limits);
    assert_false(sl_device_has_op(d, SL_OP_chosen_attention));
    assert_true(sl_device_has_op(d, SL_OP_latent_attention));
    close_sound(d);
    fake->missing_kernel = NULL;
}

int main(int argc, char **argv) {
    (void)argc;
    if (!find_driver(argv[0]))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(recurrences, reset),
        cmocka_unit_test_setup(squared_relu, reset),
        cmocka_unit_test_setup(indexer, reset),
        cmocka_unit_test_setup(chosen, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
