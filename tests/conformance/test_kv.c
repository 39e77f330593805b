/* sl_op_kv_write: the bytes in the pages */
#include "tests/conformance/conformance.h"
#include "backends/ops/kv.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct sl_device_limits limits = {.max_tok = 600};

#define N_PAGES 12u

struct kv_case {
    struct sl_kv_view kv; /* without memory */
    const float *k, *v;
    const uint32_t *slot;
    uint32_t n_tok, stride_k, stride_v;
};

static void run(struct sl_device *d, const void *ctx, void *out) {
    const struct kv_case *c = ctx;
    struct sl_kv_view kv = c->kv;
    size_t kb = N_PAGES * kv.k_page_bytes, vb = N_PAGES * kv.v_page_bytes;
    kv.k = conf_put(d, NULL, kb);
    kv.v = conf_put(d, NULL, vb);
    conf_ok(sl_op_kv_write(
        d, &(struct sl_op_kv_write){
               .kv = kv,
               .k = conf_put(d, c->k, (size_t)c->n_tok * c->stride_k * sizeof(float)),
               .v = conf_put(d, c->v, (size_t)c->n_tok * c->stride_v * sizeof(float)),
               .slot = conf_put(d, c->slot, c->n_tok * sizeof(uint32_t)),
               .n_tok = c->n_tok,
               .stride_k = c->stride_k,
               .stride_v = c->stride_v}));
    conf_get(d, out, kv.k, kb);
    conf_get(d, (char *)out + kb, kv.v, vb);
}

/* What a reader of the written row sees, against what was written. */
static void check_row(const char *what, enum sl_dtype dtype, const uint8_t *row, const float *x,
                      uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (dtype == SL_DTYPE_F16) {
            uint16_t h;
            memcpy(&h, row + 2 * i, 2);
            double y = (double)sl_f16_to_f32(h), e = fabs((double)x[i]);
            if (e >= 65520) {
                assert_true(isinf(y));
            } else if (!(fabs(y - (double)x[i]) <= fmax(e * 0x1p-11, 0x1p-25))) {
                fail_msg("%s: %a was stored as %a", what, (double)x[i], y);
            }
            continue;
        }
        const float *xb = x + i / 32 * 32;
        double most = 0;
        for (int b = 0; b < 32; b++)
            most = fmax(most, fabs((double)xb[b]));
        uint16_t h;
        memcpy(&h, row + i / 32 * 34, 2);
        double d = (double)sl_f16_to_f32(h), y = d * (int8_t)row[i / 32 * 34 + 2 + i % 32];
        if (most > 65504.0 * 127)
            continue;
        /* Half a step; at the top the rounding of d may take 2^-11 of the range, and a d below
         * binary16's range is 0. */
        double tol = d / 2 * 1.0001 + most * 0x1p-11 + 127 * 0x1p-25;
        if (!(fabs(y - (double)x[i]) <= tol))
            fail_msg("%s: %a was stored as %a, block scale %a", what, (double)x[i], y, d);
        if (fabs((double)x[i]) == most && most > 1e-3)
            assert_true(row[i / 32 * 34 + 2 + i % 32] == 127 ||
                        row[i / 32 * 34 + 2 + i % 32] == (uint8_t)-127 ||
                        row[i / 32 * 34 + 2 + i % 32] == 126 ||
                        row[i / 32 * 34 + 2 + i % 32] == (uint8_t)-126);
    }
}

static void one(enum sl_dtype dtype, uint32_t n_tok, uint32_t n_heads, uint32_t dim_k,
                uint32_t dim_v, enum conf_fill fill, float factor) {
    struct sl_rng rng = {n_tok * 31u + dim_k + (uint32_t)fill * 1000u};
    size_t k_page = n_heads * SL_KV_PAGE_TOKENS * sl_dtype_row_bytes(dtype, dim_k);
    size_t v_page = n_heads * SL_KV_PAGE_TOKENS * sl_dtype_row_bytes(dtype, dim_v) + 64;
    struct kv_case c = {.kv = {NULL, NULL, dtype, n_heads, dim_k, dim_v, k_page, v_page},
                        .n_tok = n_tok,
                        .stride_k = n_heads * dim_k + 3,
                        .stride_v = n_heads * dim_v};
    float *k = conf_host((size_t)n_tok * c.stride_k * sizeof *k);
    float *v = conf_host((size_t)n_tok * c.stride_v * sizeof *v);
    uint32_t *slot = conf_host(n_tok * sizeof *slot);
    conf_fill(&rng, fill, k, (size_t)n_tok * c.stride_k);
    conf_fill(&rng, fill, v, (size_t)n_tok * c.stride_v);
    for (size_t i = 0; i < (size_t)n_tok * c.stride_k; i++)
        k[i] *= factor;
    /* Distinct slots in no order: a stride that is prime to the number of them. */
    for (uint32_t t = 0; t < n_tok; t++)
        slot[t] = (t * 101u + 13u) % (N_PAGES * SL_KV_PAGE_TOKENS);
    c.k = k, c.v = v, c.slot = slot;
    size_t n = N_PAGES * (k_page + v_page);
    uint8_t *out = conf_host(n);
    char what[128];
    snprintf(what, sizeof what, "%s, %u rows of %u heads of %u and %u, fill %d x %g",
             sl_dtype_name(dtype), n_tok, n_heads, dim_k, dim_v, (int)fill, (double)factor);
    conf_case(what, run, &c, CONF_U8, n, out);

    size_t row_k = sl_dtype_row_bytes(dtype, dim_k), row_v = sl_dtype_row_bytes(dtype, dim_v);
    for (uint32_t t = 0; t < n_tok; t++)
        for (uint32_t h = 0; h < n_heads; h++) {
            size_t page = slot[t] / SL_KV_PAGE_TOKENS, pos = slot[t] % SL_KV_PAGE_TOKENS;
            size_t index = (size_t)h * SL_KV_PAGE_TOKENS + pos;
            check_row(what, dtype, out + page * k_page + index * row_k,
                      k + (size_t)t * c.stride_k + (size_t)h * dim_k, dim_k);
            check_row(what, dtype, out + N_PAGES * k_page + page * v_page + index * row_v,
                      v + (size_t)t * c.stride_v + (size_t)h * dim_v, dim_v);
        }
}

static void pages(enum sl_dtype dtype) {
    static const uint32_t dim[] = {32, 40, 64, 80, 96, 128, 256};
    for (size_t i = 0; i < CONF_COUNT(dim); i++) {
        if (dtype == SL_DTYPE_Q8_0 && dim[i] % 32)
            continue;
        for (int fill = 0; fill < CONF_N_FILL; fill++)
            one(dtype, 5, 1 + (uint32_t)i % 3, dim[i], dim[(i + 2) % 7 == 1 ? 0 : 2],
                (enum conf_fill)fill, 1);
    }
    one(dtype, 513, 4, 128, 128, CONF_PLAIN, 1);
    one(dtype, 1, 4, 128, 128, CONF_SPIKES, 1);
    /* To both ends of binary16. */
    one(dtype, 20, 2, 64, 64, CONF_WIDE, 1e3f);
    one(dtype, 20, 2, 64, 64, CONF_WIDE, 1e-4f);
    one(dtype, 20, 2, 64, 64, CONF_PLAIN, 1e-7f);
    one(dtype, 20, 2, 64, 64, CONF_PLAIN, 0);
    one(dtype, 20, 2, 64, 64, CONF_PLAIN, 2e5f);
    one(dtype, 20, 2, 64, 64, CONF_PLAIN, 1e30f);
}

static void f16(void) {
    pages(SL_DTYPE_F16);
    one(SL_DTYPE_F16, 7, 3, 17, 33, CONF_PLAIN, 1);
    one(SL_DTYPE_F16, 7, 3, 7, 1, CONF_DENORMAL, 1);
}

static void q8_0(void) {
    pages(SL_DTYPE_Q8_0);
}

int main(int argc, char **argv) {
    static const struct conf_test tests[] = {{"f16", f16}, {"q8_0", q8_0}};
    return conf_main(argc, argv, "kv_write", &limits, tests, CONF_COUNT(tests));
}
