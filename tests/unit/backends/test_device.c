/* The CPU as a device: opening, memory, and what the front refuses. */
#include "backends/cpu/cpu.h"
#include "backends/ops/attention.h"
#include "backends/ops/matmul.h"
#include "backends/ops/moe.h"
#include "backends/ops/norm.h"
#include "backends/ops/rope.h"
#include "backends/ops/router.h"
#include "backends/ops/rows.h"
#include "backends/ops/transfer.h"
#include "tests/support/device_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

static struct sl_device *d;
static const struct sl_device_limits limits = {.max_tok = 8,
                                               .max_n_in = 256,
                                               .max_pairs = 32,
                                               .max_n_embd = 256,
                                               .max_n_ff = 256,
                                               .max_expert = 16,
                                               .max_heads = 8,
                                               .max_head_dim = 64};

static int set_up(void **state) {
    (void)state;
    struct sl_err err;
    if (sl_cpu_open(&(struct sl_cpu_config){2, SL_CPU_BEST, 0}, &d, &err))
        return -1;
    return sl_device_configure(d, &limits, &err) ? -1 : 0;
}

static int tear_down(void **state) {
    (void)state;
    sl_device_close(&d);
    return d ? -1 : 0;
}

static void opening(void **state) {
    (void)state;
    struct sl_err err = {{0}};
    struct sl_device *x = NULL;
    enum sl_cpu_isa best = sl_cpu_best_isa();
    for (int isa = SL_CPU_C; isa <= SL_CPU_VNNI; isa++) {
        enum sl_status status =
            sl_cpu_open(&(struct sl_cpu_config){1, (enum sl_cpu_isa)isa, 0}, &x, &err);
        if (isa <= (int)best) {
            assert_int_equal(status, SL_OK);
            assert_true(strncmp(x->caps.name, "cpu: ", 5) == 0);
            assert_non_null(strstr(x->caps.name, ", 1 thread"));
            assert_true(x->caps.host_visible && x->caps.memory_bytes > 0);
            sl_device_close(&x);
            assert_null(x);
        } else {
            assert_int_equal(status, SL_ERR_UNSUPPORTED);
            assert_non_null(strstr(err.text, sl_cpu_isa_name((enum sl_cpu_isa)isa)));
        }
    }
    assert_int_equal(sl_cpu_open(&(struct sl_cpu_config){100000, SL_CPU_C, 0}, &x, &err),
                     SL_ERR_INVALID);
    assert_non_null(strstr(err.text, "100000"));
    assert_int_equal(sl_cpu_open(&(struct sl_cpu_config){1, (enum sl_cpu_isa)77, 0}, &x, &err),
                     SL_ERR_INVALID);
    sl_device_close(&x); /* NULL is fine */
}

static void capabilities(void **state) {
    (void)state;
    int n = 0;
    for (uint32_t t = 0; t < SL_DTYPE_COUNT; t++) {
        assert_int_equal(d->caps.weight_dtype[t], sl_dtype_info(t) != NULL);
        n += d->caps.weight_dtype[t];
        assert_int_equal(d->caps.kv_dtype[t], t == SL_DTYPE_F16 || t == SL_DTYPE_Q8_0);
    }
    assert_int_equal(n, 30);
}

static void memory(void **state) {
    (void)state;
    static const size_t sizes[] = {
        0, 1, 63, 64, 4096, 1000000, (2u << 20) - 1, 2u << 20, (2u << 20) + 1, 9000001};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *p = NULL;
        assert_int_equal(mem_alloc(d, sizes[i], &p), SL_OK);
        assert_int_equal((uintptr_t)p % 64, 0);
        if (sizes[i] >= 2u << 20)
            assert_int_equal((uintptr_t)p % (2u << 20), 0);
        memset(p, 0xa5, sizes[i]);
        unsigned char back[16], in[16] = "fifteen letters";
        if (sizes[i] >= 64) {
            assert_int_equal(mem_upload(d, (char *)p + sizes[i] - 16, in, 16), SL_OK);
            assert_int_equal(mem_download(d, back, (char *)p + sizes[i] - 16, 16), SL_OK);
            assert_memory_equal(back, in, 16);
        }
        mem_free(d, p);
    }
    struct sl_buffer other, *b = &other;
    assert_int_equal(sl_device_alloc(d, SIZE_MAX - 5, &b), SL_ERR_NOMEM);
    assert_int_equal(sl_device_alloc(d, (size_t)1 << 60, &b), SL_ERR_NOMEM);
    assert_ptr_equal(b, &other); /* outputs are set only on success */
    mem_free(d, NULL);
}

static void configuring(void **state) {
    (void)state;
    struct sl_err err = {{0}};
    struct sl_device *x;
    assert_int_equal(sl_cpu_open(&(struct sl_cpu_config){1, SL_CPU_C, 0}, &x, &err), SL_OK);
    float v[4] = {0};
    uint32_t row = 0;
    struct sl_op_gather_rows g = {v, &row, v, 1, 4};
    assert_int_equal(sl_op_gather_rows(x, &g), SL_ERR_INVALID); /* not configured */
    struct sl_device_limits bad = limits;
    bad.max_tok = 0;
    assert_int_equal(sl_device_configure(x, &bad, &err), SL_ERR_INVALID);
    bad = limits;
    bad.max_expert = 5000;
    assert_int_equal(sl_device_configure(x, &bad, &err), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "5000"));
    bad = limits;
    bad.max_head_dim = 100000;
    assert_int_equal(sl_device_configure(x, &bad, &err), SL_ERR_UNSUPPORTED);
    assert_int_equal(sl_device_configure(x, &limits, &err), SL_OK);
    struct sl_device_limits more = limits;
    more.max_tok = 2048;
    assert_true(sl_device_scratch_bytes(x, &more) > sl_device_scratch_bytes(x, &limits));
    assert_int_equal(sl_device_configure(x, &more, &err), SL_OK); /* again, larger */
    assert_int_equal(sl_op_gather_rows(x, &g), SL_OK);
    sl_device_close(&x);
}

/* Each refusal: one field of a good call made wrong. */
#define REFUSES(op, good, field, value, status)                                                    \
    do {                                                                                           \
        struct sl_op_##op refused = good;                                                          \
        refused.field = value;                                                                     \
        assert_int_equal(sl_op_##op(d, &refused), status);                                         \
    } while (0)

static float f[4096], y[4096];
static uint32_t ids[64];
static unsigned char pages[4 * 64 * 64 * 2 * 2];

static void refusals(void **state) {
    (void)state;
    struct sl_op_rms_norm norm = {f, NULL, y, 2, 64, 64, 64, 1e-6f};
    assert_int_equal(sl_op_rms_norm(d, &norm), SL_OK);
    REFUSES(rms_norm, norm, x, NULL, SL_ERR_INVALID);
    REFUSES(rms_norm, norm, n, 0, SL_ERR_INVALID);
    REFUSES(rms_norm, norm, stride_y, 63, SL_ERR_INVALID);
    REFUSES(rms_norm, norm, eps, -1.0f, SL_ERR_INVALID);
    REFUSES(rms_norm, norm, eps, NAN, SL_ERR_INVALID);
    REFUSES(rms_norm, norm, n_rows, 0, SL_OK);

    struct sl_op_rope rope = {f, y, 2, 4, 64, 256, 32, SL_ROPE_NEOX};
    assert_int_equal(sl_op_rope(d, &rope), SL_OK);
    REFUSES(rope, rope, n_freq, 33, SL_ERR_INVALID);
    REFUSES(rope, rope, stride, 255, SL_ERR_INVALID);
    REFUSES(rope, rope, n_tok, 9, SL_ERR_INVALID);
    REFUSES(rope, rope, style, (enum sl_rope_style)7, SL_ERR_UNSUPPORTED);

    struct sl_op_block_max max = {f, y, NULL, NULL, NULL, 2, 65};
    assert_int_equal(sl_op_block_max(d, &max), SL_OK);
    REFUSES(block_max, max, x, NULL, SL_ERR_INVALID);
    REFUSES(block_max, max, max, NULL, SL_ERR_INVALID);
    REFUSES(block_max, max, sum, y, SL_ERR_INVALID); /* without inv_t */
    REFUSES(block_max, max, n_tok, 9, SL_ERR_INVALID);
    REFUSES(block_max, max, n, 0, SL_OK);

    /* The CPU sends rows to no other device. */
    float to[64];
    uint32_t words[3] = {0};
    struct sl_op_send send = {f, to, words, words + 1, words + 2, 64, 64};
    assert_int_equal(sl_op_send(d, &send), SL_ERR_UNSUPPORTED);
    REFUSES(send, send, raised, NULL, SL_ERR_INVALID);
    REFUSES(send, send, n, 65, SL_ERR_INVALID);
    struct sl_op_receive receive = {f, to, words, words, words + 1, words + 2, 64, 64, false};
    assert_int_equal(sl_op_receive(d, &receive), SL_ERR_UNSUPPORTED);
    REFUSES(receive, receive, released, NULL, SL_ERR_INVALID);
    REFUSES(receive, receive, stride, 63, SL_ERR_INVALID);

    struct sl_op_router router = {.logits = f,
                                  .ids = ids,
                                  .weights = y,
                                  .n_tok = 2,
                                  .n_expert = 16,
                                  .k = 4,
                                  .normalize = true,
                                  .scale = 1};
    assert_int_equal(sl_op_router(d, &router), SL_OK);
    REFUSES(router, router, k, 0, SL_ERR_INVALID);
    REFUSES(router, router, k, 17, SL_ERR_INVALID);
    REFUSES(router, router, n_expert, 17, SL_ERR_INVALID);
    REFUSES(router, router, score, (enum sl_router_score)5, SL_ERR_UNSUPPORTED);

    struct sl_kv_view kv = {pages, pages + sizeof pages / 2, SL_DTYPE_F16, 1, 64, 64, 8192, 8192};
    struct sl_op_kv_write write = {kv, f, f, ids, 2, 64, 64};
    assert_int_equal(sl_op_kv_write(d, &write), SL_OK);
    REFUSES(kv_write, write, kv.dtype, SL_DTYPE_Q4_0, SL_ERR_UNSUPPORTED);
    REFUSES(kv_write, write, kv.dtype, (enum sl_dtype)1000, SL_ERR_UNSUPPORTED);
    REFUSES(kv_write, write, kv.k_page_bytes, 8191, SL_ERR_INVALID);
    REFUSES(kv_write, write, kv.head_dim_v, 65, SL_ERR_INVALID);
    REFUSES(kv_write, write, stride_k, 63, SL_ERR_INVALID);
    REFUSES(kv_write, write, slot, NULL, SL_ERR_INVALID);
    write.kv.dtype = SL_DTYPE_Q8_0;
    REFUSES(kv_write, write, kv.head_dim_k, 48, SL_ERR_INVALID);

    static const uint32_t table[2] = {0, 1}, seq[2] = {0, 0}, len[2] = {1, 2};
    struct sl_op_attention at = {.kv = kv,
                                 .q = f,
                                 .y = y,
                                 .page_table = table,
                                 .row_seq = seq,
                                 .row_len = len,
                                 .n_tok = 2,
                                 .n_decode = 1,
                                 .n_heads = 4,
                                 .stride_q = 256,
                                 .max_pages = 2,
                                 .scale = 0.125f};
    memset(pages, 0, sizeof pages);
    assert_int_equal(sl_op_attention(d, &at), SL_OK);
    static const uint32_t none[2] = {1, 0}, far[2] = {1, 129};
    REFUSES(attention, at, row_len, none, SL_ERR_INVALID);
    REFUSES(attention, at, row_len, far, SL_ERR_INVALID);
    REFUSES(attention, at, n_decode, 3, SL_ERR_INVALID);
    REFUSES(attention, at, n_heads, 0, SL_ERR_INVALID);
    REFUSES(attention, at, n_heads, 9, SL_ERR_INVALID);
    REFUSES(attention, at, stride_q, 255, SL_ERR_INVALID);
    REFUSES(attention, at, scale, INFINITY, SL_ERR_INVALID);
    REFUSES(attention, at, max_pages, 0, SL_ERR_INVALID);
    REFUSES(attention, at, kv.n_kv_heads, 3, SL_ERR_INVALID);

    struct sl_op_matmul mm = {.x = f, .n_tok = 1, .n_w = 1};
    mm.out[0] = (struct sl_matmul_out){.w = {SL_DTYPE_F32, 32, 4, f}, .y = y};
    assert_int_equal(sl_op_matmul(d, &mm), SL_OK);
    REFUSES(matmul, mm, n_w, 0, SL_ERR_INVALID);
    REFUSES(matmul, mm, n_w, 5, SL_ERR_INVALID);
    REFUSES(matmul, mm, n_tok, 9, SL_ERR_INVALID);
    REFUSES(matmul, mm, out[0].w.n_in, 257, SL_ERR_INVALID);
    REFUSES(matmul, mm, out[0].w.dtype, (enum sl_dtype)5, SL_ERR_UNSUPPORTED);
    REFUSES(matmul, mm, out[0].w.data, NULL, SL_ERR_INVALID);
    mm.out[0].w.dtype = SL_DTYPE_Q4_K; /* blocks of 256 */
    REFUSES(matmul, mm, out[0].w.n_in, 32, SL_ERR_INVALID);

    struct sl_op_embed embed = {{SL_DTYPE_F32, 32, 4, f}, ids, y, 2, 1};
    ids[0] = 3, ids[1] = 0;
    assert_int_equal(sl_op_embed(d, &embed), SL_OK);
    ids[1] = 4;
    assert_int_equal(sl_op_embed(d, &embed), SL_ERR_INVALID);

    static const struct sl_expert_ref refs[4] = {{f, f, f}, {f, f, f}, {f, f, f}, {f, f, f}};
    struct sl_op_moe moe = {.x = f,
                            .ids = ids,
                            .pair_y = y,
                            .refs = refs,
                            .gate_dtype = SL_DTYPE_F32,
                            .up_dtype = SL_DTYPE_F32,
                            .down_dtype = SL_DTYPE_F32,
                            .n_tok = 1,
                            .k = 2,
                            .n_pairs = 2,
                            .n_expert = 4,
                            .n_embd = 32,
                            .n_ff = 32};
    ids[0] = 3, ids[1] = 0;
    assert_int_equal(sl_op_moe(d, &moe), SL_OK);
    static const uint32_t twice[2] = {1, 1}, beyond[2] = {0, 2};
    REFUSES(moe, moe, pairs, twice, SL_ERR_INVALID);
    REFUSES(moe, moe, pairs, beyond, SL_ERR_INVALID);
    REFUSES(moe, moe, n_pairs, 1, SL_ERR_INVALID);
    REFUSES(moe, moe, n_embd, 512, SL_ERR_INVALID);
    REFUSES(moe, moe, n_expert, 3, SL_ERR_INVALID);
    REFUSES(moe, moe, k, 0, SL_ERR_INVALID);
    REFUSES(moe, moe, activation, SL_SWIGLU_LIMITED, SL_ERR_INVALID); /* whose limit is 0 */
    REFUSES(moe, moe, activation, SL_SWIGLU_CUT, SL_ERR_INVALID);
    REFUSES(moe, moe, activation, SL_SITU, SL_ERR_INVALID);
    REFUSES(moe, moe, activation, (enum sl_activation)(SL_SITU + 1), SL_ERR_UNSUPPORTED);
    router.n_group = 4, router.n_group_used = 2;
    assert_int_equal(sl_op_router(d, &router), SL_OK);
    REFUSES(router, router, n_group, 3, SL_ERR_INVALID);
    REFUSES(router, router, n_group, 16, SL_ERR_INVALID);
    REFUSES(router, router, n_group_used, 0, SL_ERR_INVALID);
    REFUSES(router, router, n_group_used, 5, SL_ERR_INVALID);
    REFUSES(router, router, k, 9, SL_ERR_INVALID);
    router.share = 2;
    assert_int_equal(sl_op_router(d, &router), SL_OK);
    REFUSES(router, router, share, 3, SL_ERR_INVALID);
    REFUSES(router, router, softmax_topk, true, SL_ERR_INVALID);
    REFUSES(router, router, expert_scale, f, SL_ERR_INVALID);
    d->caps.router_share = false;
    REFUSES(router, router, k, 4, SL_ERR_UNSUPPORTED);
    router.share = 0;
    d->caps.router_groups = false;
    REFUSES(router, router, k, 4, SL_ERR_UNSUPPORTED);
    d->caps.moe_bias = d->caps.swiglu_clamped = false; /* as a device without such kernels */
    REFUSES(moe, moe, up_bias, f, SL_ERR_UNSUPPORTED);
    REFUSES(moe, moe, activation, SL_SWIGLU_CLAMPED, SL_ERR_UNSUPPORTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening),     cmocka_unit_test(capabilities), cmocka_unit_test(memory),
        cmocka_unit_test(configuring), cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
