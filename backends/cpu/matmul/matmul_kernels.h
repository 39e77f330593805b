/* The kernels under sl_cpu_matmul and sl_cpu_moe. All instruction sets give the same bits: see
 * cpu.h for the order of summation and formats.h for the integers. */
#ifndef SL_BACKENDS_CPU_MATMUL_MATMUL_KERNELS_H
#define SL_BACKENDS_CPU_MATMUL_MATMUL_KERNELS_H

#include "backends/backend.h"
#include "backends/cpu/matmul/formats.h"
#include "backends/cpu/matmul/quantize.h"

/* A panel is this many weight rows, a tile at most this many input rows. */
#define SL_MM_PANEL 16u
#define SL_MM_TILE  12u

/* Rows per chunk of work, at most. */
#define SL_MM_CHUNK_MAX 256u

/* Input elements that one thread quantises faster than several agree on sharing them. */
#define SL_MM_INLINE_ELEMS 8192u

/* Bytes of 256 inputs of an unpacked panel, at most: 4096 of weights and the scales. */
#define SL_MM_PANEL_BYTES 6144u

/* Tiles whose results many() keeps at once: 16 KB, alongside the panel in the first-level cache. */
#define SL_MM_TILES 21u
#define SL_MM_OUT   (SL_MM_TILES * SL_MM_TILE * SL_MM_PANEL)

/* n_rows weight rows, row_bytes apart. */
struct sl_mm_rows {
    const uint8_t *data;
    const uint8_t *next; /* what the thread will probably read after these rows, for vec() and
                          * pair() to prefetch; NULL: what follows them in memory */
    size_t row_bytes;
    uint32_t n_rows, n_in;
    enum sl_dtype dtype;
};

/* Where prefetching for rows `row` to row + n - 1 begins: at the rows behind these. */
static inline const uint8_t *sl_mm_next_rows(const struct sl_mm_rows *w, uint32_t row, uint32_t n) {
    return w->next && row + n >= w->n_rows ? w->next : w->data + (row + n) * w->row_bytes;
}

struct sl_mm_kernels {
    /* By kind SL_X_Q32, SL_X_Q256. */
    void (*quantize[2])(const float *x, uint32_t n, struct sl_qx *out);
    /* Lays n_tok <= SL_MM_TILE quantised rows out as many() wants them; n_tok * sl_qx_row_bytes(n)
     * bytes. rows[t] may lie anywhere. */
    void (*pack[2])(const struct sl_qx *const *rows, uint32_t n_tok, uint32_t n, void *tile);
    /* One input row (struct sl_qx or float by the type's kind): out[r], r < w->n_rows, any number.
     */
    void (*vec[SL_DTYPE_COUNT])(const struct sl_mm_rows *w, const void *x, float *out);
    /* Two input rows at once, for the price of about one and a half; NULL: there is none. */
    void (*pair[SL_DTYPE_COUNT])(const struct sl_mm_rows *w, const void *const *x,
                                 float *const *out);
    /* Tiles begin..end-1 of sl_mm_n_tiles(n_tok), at most SL_MM_TILES, against w->n_rows <=
     * SL_MM_PANEL rows: out[t * SL_MM_PANEL + r], t counted from the first of these tiles; entries
     * r >= w->n_rows hold anything. x: all packed tiles; for SL_X_F32 const float *const [n_tok].
     * panel: SL_MM_PANEL_BYTES, 64-byte aligned. */
    void (*many[SL_DTYPE_COUNT])(const struct sl_mm_rows *w, const void *x, uint32_t n_tok,
                                 uint32_t begin, uint32_t end, void *panel, float *out);
    /* From this many input rows on panels pay; fewer go through vec() one by one. */
    uint32_t tile_min;
};

static inline size_t sl_mm_round_64(size_t n) {
    return (n + 63) & ~(size_t)63;
}

/* Fills a table with the definitions; matmul_*.c overwrite. */
void sl_mm_init_c(struct sl_mm_kernels *k);
void sl_mm_init_avx2(struct sl_mm_kernels *k);
void sl_mm_init_avx512(struct sl_mm_kernels *k);
void sl_mm_init_vnni(struct sl_mm_kernels *k);

/* Splits n input rows into sl_mm_n_tiles(n) tiles of nearly equal size; tile i starts at row
 * sl_mm_tile_start(n, i). */
static inline uint32_t sl_mm_n_tiles(uint32_t n) {
    return (n + SL_MM_TILE - 1) / SL_MM_TILE;
}
static inline uint32_t sl_mm_tile_start(uint32_t n, uint32_t i) {
    return (uint32_t)((uint64_t)n * i / sl_mm_n_tiles(n));
}

#endif
