/* Products under a sanitizer. Instrumented, their kernels check each vector that they load, which
 * was most of what a test does. So those in matmul/ are compiled without it, and what they read and
 * write is checked here, once a call. (Conformance under ASan has them instrumented:
 * mk/conformance.mk.)
 */
#include "backends/cpu/matmul.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)

#if defined(__SANITIZE_THREAD__)
/* As gcc knows them. */
void __tsan_read_range(void *at, long n_bytes);
void __tsan_write_range(void *at, long n_bytes);
static void check_read(const void *at, size_t n_bytes) {
    __tsan_read_range((void *)(uintptr_t)at, (long)n_bytes);
}
static void check_write(void *at, size_t n_bytes) {
    __tsan_write_range(at, (long)n_bytes);
}
#else
#include <sanitizer/asan_interface.h>
static void check_read(const void *at, size_t n_bytes) {
    const volatile char *poisoned = __asan_region_is_poisoned((void *)(uintptr_t)at, n_bytes);
    if (poisoned)
        (void)*poisoned; /* ASan reports it, and ends */
}
#define check_write check_read
#endif

static struct sl_mm_kernels kernels[SL_CPU_VNNI + 1];

static void read_weights(const struct sl_mm_rows *w) {
    check_read(w->data, w->n_rows * w->row_bytes);
}

static void read_input(const struct sl_mm_rows *w, const void *x) {
    bool is_float = sl_x_kind(w->dtype) == SL_X_F32;
    check_read(x, is_float ? w->n_in * sizeof(float) : sl_qx_row_bytes(w->n_in));
}

static void quantize(const struct sl_mm_kernels *k, enum sl_x_kind kind, const float *x, uint32_t n,
                     struct sl_qx *out) {
    check_read(x, n * sizeof *x);
    check_write(out, sl_qx_row_bytes(n));
    k->quantize[kind](x, n, out);
}

static void pack(const struct sl_mm_kernels *k, enum sl_x_kind kind,
                 const struct sl_qx *const *rows, uint32_t n_tok, uint32_t n, void *tile) {
    for (uint32_t t = 0; t < n_tok; t++)
        check_read(rows[t], sl_qx_row_bytes(n));
    check_write(tile, n_tok * sl_qx_row_bytes(n));
    k->pack[kind](rows, n_tok, n, tile);
}

static void vec(const struct sl_mm_kernels *k, const struct sl_mm_rows *w, const void *x,
                float *out) {
    read_weights(w);
    read_input(w, x);
    check_write(out, w->n_rows * sizeof *out);
    k->vec[w->dtype](w, x, out);
}

static void pair(const struct sl_mm_kernels *k, const struct sl_mm_rows *w, const void *const *x,
                 float *const *out) {
    read_weights(w);
    for (uint32_t t = 0; t < 2; t++) {
        read_input(w, x[t]);
        check_write(out[t], w->n_rows * sizeof **out);
    }
    k->pair[w->dtype](w, x, out);
}

static void many(const struct sl_mm_kernels *k, const struct sl_mm_rows *w, const void *x,
                 uint32_t n_tok, uint32_t begin, uint32_t end, void *panel, float *out) {
    uint32_t t0 = sl_mm_tile_start(n_tok, begin), t1 = sl_mm_tile_start(n_tok, end);
    read_weights(w);
    for (uint32_t t = t0; t < t1; t++)
        read_input(w, sl_x_kind(w->dtype) == SL_X_F32
                          ? (const void *)((const float *const *)x)[t]
                          : (const uint8_t *)x + t * sl_qx_row_bytes(w->n_in));
    check_write(panel, SL_MM_PANEL_BYTES);
    check_write(out, (t1 - t0) * SL_MM_PANEL * sizeof *out);
    k->many[w->dtype](w, x, n_tok, begin, end, panel, out);
}

/* A kernel's arguments do not say which table it is from. */
#define WATCHED(isa)                                                                               \
    static void quantize_q32_##isa(const float *x, uint32_t n, struct sl_qx *out) {                \
        quantize(&kernels[isa], SL_X_Q32, x, n, out);                                              \
    }                                                                                              \
    static void quantize_q256_##isa(const float *x, uint32_t n, struct sl_qx *out) {               \
        quantize(&kernels[isa], SL_X_Q256, x, n, out);                                             \
    }                                                                                              \
    static void pack_q32_##isa(const struct sl_qx *const *rows, uint32_t n_tok, uint32_t n,        \
                               void *tile) {                                                       \
        pack(&kernels[isa], SL_X_Q32, rows, n_tok, n, tile);                                       \
    }                                                                                              \
    static void pack_q256_##isa(const struct sl_qx *const *rows, uint32_t n_tok, uint32_t n,       \
                                void *tile) {                                                      \
        pack(&kernels[isa], SL_X_Q256, rows, n_tok, n, tile);                                      \
    }                                                                                              \
    static void vec_##isa(const struct sl_mm_rows *w, const void *x, float *out) {                 \
        vec(&kernels[isa], w, x, out);                                                             \
    }                                                                                              \
    static void pair_##isa(const struct sl_mm_rows *w, const void *const *x, float *const *out) {  \
        pair(&kernels[isa], w, x, out);                                                            \
    }                                                                                              \
    static void many_##isa(const struct sl_mm_rows *w, const void *x, uint32_t n_tok,              \
                           uint32_t begin, uint32_t end, void *panel, float *out) {                \
        many(&kernels[isa], w, x, n_tok, begin, end, panel, out);                                  \
    }                                                                                              \
    static void watch_##isa(struct sl_mm_kernels *k) {                                             \
        kernels[isa] = *k;                                                                         \
        k->quantize[SL_X_Q32] = quantize_q32_##isa, k->quantize[SL_X_Q256] = quantize_q256_##isa;  \
        k->pack[SL_X_Q32] = pack_q32_##isa, k->pack[SL_X_Q256] = pack_q256_##isa;                  \
        for (int t = 0; t < SL_DTYPE_COUNT; t++) {                                                 \
            k->vec[t] = k->vec[t] ? vec_##isa : NULL;                                              \
            k->pair[t] = k->pair[t] ? pair_##isa : NULL;                                           \
            k->many[t] = k->many[t] ? many_##isa : NULL;                                           \
        }                                                                                          \
    }
WATCHED(SL_CPU_C)
WATCHED(SL_CPU_AVX2)
WATCHED(SL_CPU_AVX512)
WATCHED(SL_CPU_VNNI)

void sl_mm_watch(struct sl_mm_kernels *k, enum sl_cpu_isa isa) {
    void (*const watch[])(struct sl_mm_kernels * k) = {[SL_CPU_C] = watch_SL_CPU_C,
                                                       [SL_CPU_AVX2] = watch_SL_CPU_AVX2,
                                                       [SL_CPU_AVX512] = watch_SL_CPU_AVX512,
                                                       [SL_CPU_VNNI] = watch_SL_CPU_VNNI};
    watch[isa](k);
}

#else

void sl_mm_watch(struct sl_mm_kernels *k, enum sl_cpu_isa isa) {
    (void)k, (void)isa;
}

#endif
