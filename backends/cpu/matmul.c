/* sl_op_matmul: input rows are quantised once for all weights that share them, then the output is
 * cut into chunks of weight rows that threads take as they come. */
#include "backends/cpu/cpu_internal.h"
#include "backends/cpu/matmul.h"
#include "backends/ops/matmul.h"

#include <pthread.h>

enum sl_x_kind sl_x_kind(enum sl_dtype dtype) {
    if (sl_dtype_is_float(dtype))
        return SL_X_F32;
    return sl_dtype_info(dtype)->block_elems == 32 ? SL_X_Q32 : SL_X_Q256;
}

static struct sl_mm_kernels tables[SL_CPU_VNNI + 1];

/* Files for an instruction set hold nothing that a CPU without it may run, not even what fills a
 * table. */
static void fill_tables(void) {
    enum sl_cpu_isa best = sl_cpu_best_isa();
    for (int isa = SL_CPU_C; isa <= SL_CPU_VNNI; isa++) {
        struct sl_mm_kernels *k = &tables[isa];
        sl_mm_init_c(k);
#if defined(__x86_64__)
        if (isa >= SL_CPU_AVX2 && best >= SL_CPU_AVX2)
            sl_mm_init_avx2(k);
        if (isa >= SL_CPU_AVX512 && best >= SL_CPU_AVX512)
            sl_mm_init_avx512(k);
        if (isa >= SL_CPU_VNNI && best >= SL_CPU_VNNI)
            sl_mm_init_vnni(k);
#endif
        sl_mm_watch(k, (enum sl_cpu_isa)isa);
    }
}

const struct sl_mm_kernels *sl_mm_kernels(enum sl_cpu_isa isa) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_tables);
    return &tables[isa <= SL_CPU_VNNI ? isa : SL_CPU_VNNI];
}

/* A thread's own: results, a panel, the rows of a tile before packing. */
struct thread_scratch {
    float out[SL_MM_OUT];
    float vec[SL_MM_CHUNK_MAX];
};

static size_t thread_bytes(uint32_t n_in) {
    return sl_mm_round_64(sizeof(struct thread_scratch)) + SL_MM_PANEL_BYTES +
           SL_MM_TILE * sl_qx_row_bytes(n_in);
}

uint64_t sl_cpu_matmul_scratch_bytes(const struct sl_device_limits *limits, uint32_t n_threads) {
    uint64_t rows = (uint64_t)limits->max_tok * sl_qx_row_bytes(limits->max_n_in);
    return 2 * rows + sl_mm_round_64(limits->max_tok * sizeof(float *)) +
           (uint64_t)n_threads * thread_bytes(limits->max_n_in);
}

struct run {
    const struct sl_op_matmul *a;
    const struct sl_mm_kernels *k;
    struct sl_pool *pool;
    uint8_t *threads;
    size_t thread_bytes;
    const float **rows_f32; /* [n_tok] */
    uint8_t *x[2];          /* by kind; NULL: not needed. Rows, or tiles when tiled */
    uint32_t n_in, n_tok;
    bool tiled;
    bool quantized; /* before the run, by the caller */
    uint32_t chunk_rows, first_chunk[SL_MATMUL_MAX_W + 1];
};

static uint32_t quantize_chunks(const struct run *r) {
    uint32_t per_kind = r->tiled ? sl_mm_n_tiles(r->n_tok) : r->n_tok;
    return per_kind * ((r->x[0] != NULL) + (r->x[1] != NULL));
}

static void quantize_chunk(const struct run *r, uint32_t chunk, uint8_t *own) {
    uint32_t per_kind = r->tiled ? sl_mm_n_tiles(r->n_tok) : r->n_tok;
    enum sl_x_kind kind = chunk >= per_kind || !r->x[SL_X_Q32] ? SL_X_Q256 : SL_X_Q32;
    uint32_t i = chunk % per_kind;
    size_t row_bytes = sl_qx_row_bytes(r->n_in);
    if (!r->tiled) {
        r->k->quantize[kind](r->rows_f32[i], r->n_in,
                             (struct sl_qx *)(void *)(r->x[kind] + i * row_bytes));
        return;
    }
    uint32_t t0 = sl_mm_tile_start(r->n_tok, i), n = sl_mm_tile_start(r->n_tok, i + 1) - t0;
    struct sl_qx *rows = (struct sl_qx *)(void *)(own + r->thread_bytes - SL_MM_TILE * row_bytes);
    const struct sl_qx *list[SL_MM_TILE];
    for (uint32_t t = 0; t < n; t++) {
        struct sl_qx *row = rows + t * sl_qx_blocks(r->n_in);
        r->k->quantize[kind](r->rows_f32[t0 + t], r->n_in, row);
        list[t] = row;
    }
    r->k->pack[kind](list, n, r->n_in, r->x[kind] + t0 * row_bytes);
}

static void store(const struct sl_matmul_out *o, uint32_t t, uint32_t o0, uint32_t n,
                  const float *v) {
    float *y = o->y + (size_t)t * o->w.n_out + o0;
    const float *bias = o->bias ? o->bias + o0 : NULL;
    for (uint32_t i = 0; i < n; i++) {
        float s = bias ? v[i] + bias[i] : v[i];
        y[i] = o->add ? y[i] + s : s;
    }
}

static uint32_t matrix_of(const struct run *r, uint32_t chunk) {
    uint32_t m = 0;
    while (chunk >= r->first_chunk[m + 1])
        m++;
    return m;
}

/* Where a chunk's weights begin; NULL: there is no such chunk. */
static const uint8_t *chunk_begin(const struct run *r, uint32_t chunk) {
    if (chunk >= r->first_chunk[r->a->n_w])
        return NULL;
    uint32_t m = matrix_of(r, chunk);
    const struct sl_weight *w = &r->a->out[m].w;
    size_t row = (size_t)(chunk - r->first_chunk[m]) * r->chunk_rows;
    return (const uint8_t *)w->data + row * sl_dtype_row_bytes(w->dtype, r->n_in);
}

static void product_chunk(const struct run *r, uint32_t chunk, uint8_t *own) {
    uint32_t m = matrix_of(r, chunk);
    const struct sl_matmul_out *o = &r->a->out[m];
    enum sl_dtype dtype = o->w.dtype;
    enum sl_x_kind kind = sl_x_kind(dtype);
    struct thread_scratch *s = (struct thread_scratch *)(void *)own;
    uint8_t *panel = own + sl_mm_round_64(sizeof *s);
    size_t xrow_bytes = sl_qx_row_bytes(r->n_in);
    struct sl_mm_rows w = {
        .row_bytes = sl_dtype_row_bytes(dtype, r->n_in), .n_in = r->n_in, .dtype = dtype};
    uint32_t begin = (chunk - r->first_chunk[m]) * r->chunk_rows;
    uint32_t end = o->w.n_out - begin < r->chunk_rows ? o->w.n_out : begin + r->chunk_rows;
    if (!r->tiled) {
        w.data = (const uint8_t *)o->w.data + begin * w.row_bytes;
        w.n_rows = end - begin;
        w.next = chunk_begin(r, chunk + sl_pool_n_threads(r->pool));
        for (uint32_t t = 0; t < r->n_tok; t++) {
            const void *x = kind == SL_X_F32 ? (const void *)r->rows_f32[t]
                                             : (const void *)(r->x[kind] + t * xrow_bytes);
            r->k->vec[dtype](&w, x, s->vec);
            store(o, t, begin, w.n_rows, s->vec);
        }
        return;
    }
    const uint32_t n_tiles = sl_mm_n_tiles(r->n_tok);
    for (uint32_t o0 = begin; o0 < end; o0 += SL_MM_PANEL) {
        w.data = (const uint8_t *)o->w.data + o0 * w.row_bytes;
        w.n_rows = end - o0 < SL_MM_PANEL ? end - o0 : SL_MM_PANEL;
        const void *x = kind == SL_X_F32 ? (const void *)r->rows_f32 : (const void *)r->x[kind];
        for (uint32_t i = 0; i < n_tiles; i += SL_MM_TILES) {
            uint32_t last = n_tiles - i < SL_MM_TILES ? n_tiles : i + SL_MM_TILES;
            uint32_t t0 = sl_mm_tile_start(r->n_tok, i), t1 = sl_mm_tile_start(r->n_tok, last);
            r->k->many[dtype](&w, x, r->n_tok, i, last, panel, s->out);
            for (uint32_t t = t0; t < t1; t++)
                store(o, t, o0, w.n_rows, s->out + (t - t0) * SL_MM_PANEL);
        }
    }
}

static void run_thread(void *ctx, uint32_t thread, uint32_t n_threads) {
    (void)n_threads;
    const struct run *r = ctx;
    uint8_t *own = r->threads + thread * r->thread_bytes;
    uint32_t c;
    if (!r->quantized) {
        while ((c = sl_pool_next(r->pool, quantize_chunks(r))) != UINT32_MAX)
            quantize_chunk(r, c, own);
        sl_pool_barrier(r->pool);
    }
    while ((c = sl_pool_next(r->pool, r->first_chunk[r->a->n_w])) != UINT32_MAX)
        product_chunk(r, c, own);
}

uint32_t sl_mm_chunk_rows(uint32_t n_rows, uint32_t n_threads) {
    uint32_t rows = n_rows / (n_threads * 8) / SL_MM_PANEL * SL_MM_PANEL;
    return rows < SL_MM_PANEL ? SL_MM_PANEL : rows > SL_MM_CHUNK_MAX ? SL_MM_CHUNK_MAX : rows;
}

enum sl_status sl_cpu_matmul(struct sl_device *d, const struct sl_op_matmul *a) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    if (a->n_tok == 0)
        return SL_OK;
    struct run r = {.a = a,
                    .pool = cpu->pool,
                    .k = sl_mm_kernels(cpu->isa),
                    .n_in = a->out[0].w.n_in,
                    .n_tok = a->n_tok,
                    .rows_f32 = cpu->scratch};
    r.tiled = a->n_tok >= r.k->tile_min;
    uint32_t n_threads = sl_pool_n_threads(cpu->pool), n_rows = 0;
    uint8_t *p = (uint8_t *)cpu->scratch + sl_mm_round_64(a->n_tok * sizeof(float *));
    for (uint32_t t = 0; t < a->n_tok; t++)
        r.rows_f32[t] = a->x + (size_t)t * r.n_in;
    for (uint32_t m = 0; m < a->n_w; m++) {
        enum sl_x_kind kind = sl_x_kind(a->out[m].w.dtype);
        if (kind != SL_X_F32 && !r.x[kind]) {
            r.x[kind] = p;
            p += a->n_tok * sl_qx_row_bytes(r.n_in);
        }
        n_rows += a->out[m].w.n_out;
    }
    r.threads = p;
    r.thread_bytes = thread_bytes(r.n_in);
    r.chunk_rows = sl_mm_chunk_rows(n_rows, n_threads);
    for (uint32_t m = 0; m < a->n_w; m++)
        r.first_chunk[m + 1] =
            r.first_chunk[m] + (a->out[m].w.n_out + r.chunk_rows - 1) / r.chunk_rows;
    if ((uint64_t)a->n_tok * r.n_in <= SL_MM_INLINE_ELEMS || quantize_chunks(&r) == 0) {
        for (uint32_t c = 0; c < quantize_chunks(&r); c++)
            quantize_chunk(&r, c, r.threads);
        r.quantized = true;
    }
    sl_pool_run(cpu->pool, run_thread, &r);
    return SL_OK;
}
