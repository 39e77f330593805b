/* sl_op_moe: pairs (row, expert) are sorted by expert, so that every touched expert's weights are
 * read once. Phases with a barrier between them, each cut into chunks that threads take as they
 * come:
 *
 *   rows   quantise the input rows                       (by the caller when they are few)
 *   tiles  lay them out by expert                        (only if an expert has enough rows)
 *   up     gate and up products, biases, SwiGLU          (expert, chunk of n_ff; up alone if there
 *                                                         is no gate)
 *   mid    quantise the result
 *   down   down product to pair_y, bias                  (expert, chunk of n_embd)
 */
#include "backends/cpu/cpu_internal.h"
#include "backends/cpu/matmul.h"
#include "backends/ops/moe.h"

/* Input rows of one expert: sorted positions [begin, begin + n). */
struct group {
    uint32_t expert, begin, n;
};

struct tile_ref {
    uint32_t begin, n; /* sorted positions */
};

/* A quantised (or float) input of n_cols, at sorted positions: tiles for groups of
 * more rows than vec_rows() takes, rows for the others. */
struct input {
    uint32_t n_cols;
    uint8_t *q[2];          /* by kind; NULL: not needed. Position i at i * sl_qx_row_bytes */
    const float **rows_f32; /* by position */
};

struct run {
    const struct sl_op_moe *a;
    const struct sl_mm_kernels *k;
    struct sl_cpu *cpu;
    uint32_t *order; /* [n_pairs] pairs by expert */
    struct group *groups;
    struct tile_ref *tiles;
    uint32_t n_groups, n_tiles, n_pairs;
    uint8_t *token_q[2]; /* quantised rows by token */
    struct input in, mid;
    float *h; /* [n_pairs, n_ff] by position */
    uint8_t *threads;
    size_t thread_bytes;
    uint32_t n_threads;                                  /* that take chunks */
    uint32_t up_rows, up_chunks, down_rows, down_chunks; /* per group */
    bool rows_done;
    bool pairs; /* two rows of an expert go through pair() */
    bool gated;
};

struct thread_scratch {
    float gate[SL_MM_OUT], up[SL_MM_OUT];
    float vec_gate[2][SL_MM_CHUNK_MAX], vec_up[2][SL_MM_CHUNK_MAX];
};

static size_t thread_bytes(uint32_t n_ff) {
    return sl_mm_round_64(sizeof(struct thread_scratch)) + SL_MM_PANEL_BYTES +
           SL_MM_TILE * sl_qx_row_bytes(n_ff);
}

/* Hands out 64-byte aligned parts of the scratch; with base NULL it only counts. */
struct carve {
    uint8_t *base;
    size_t used;
};

static void *carve(struct carve *c, size_t bytes) {
    uint8_t *p = c->base ? c->base + c->used : NULL;
    c->used += sl_mm_round_64(bytes);
    return p;
}

struct layout {
    uint32_t *order, *count;
    struct group *groups;
    struct tile_ref *tiles;
    const float **in_f32, **mid_f32;
    uint8_t *token_q[2], *in_q[2], *mid_q;
    float *h;
    uint8_t *threads;
    size_t bytes;
};

static struct layout lay_out(void *base, uint32_t n_tok, uint32_t n_pairs, uint32_t n_expert,
                             uint32_t n_embd, uint32_t n_ff, uint32_t n_threads) {
    struct carve c = {base, 0};
    struct layout l;
    l.order = carve(&c, (size_t)n_pairs * 4);
    l.count = carve(&c, ((size_t)n_expert + 1) * 4);
    l.groups = carve(&c, n_expert * sizeof(struct group));
    l.tiles = carve(&c, n_pairs * sizeof(struct tile_ref));
    l.in_f32 = carve(&c, n_pairs * sizeof(float *));
    l.mid_f32 = carve(&c, n_pairs * sizeof(float *));
    for (int kind = 0; kind < 2; kind++) {
        l.token_q[kind] = carve(&c, n_tok * sl_qx_row_bytes(n_embd));
        l.in_q[kind] = carve(&c, n_pairs * sl_qx_row_bytes(n_embd));
    }
    l.mid_q = carve(&c, n_pairs * sl_qx_row_bytes(n_ff));
    l.h = carve(&c, (size_t)n_pairs * n_ff * 4);
    l.threads = carve(&c, n_threads * thread_bytes(n_ff));
    l.bytes = c.used;
    return l;
}

uint64_t sl_cpu_moe_scratch_bytes(const struct sl_device_limits *limits, uint32_t n_threads) {
    if (!limits->max_pairs)
        return 0;
    return lay_out(NULL, limits->max_tok, limits->max_pairs, limits->max_expert, limits->max_n_embd,
                   limits->max_n_ff, n_threads)
        .bytes;
}

static bool tiled(const struct run *r, const struct group *g) {
    return g->n > (r->pairs ? 2u : 1u);
}

/* Counting sort of the listed pairs by expert; pairs of one expert stay ascending. */
static void sort_pairs(struct run *r, uint32_t *count) {
    const struct sl_op_moe *a = r->a;
    memset(count, 0, ((size_t)a->n_expert + 1) * 4);
    for (uint32_t i = 0; i < r->n_pairs; i++)
        count[a->ids[a->pairs ? a->pairs[i] : i] + 1]++;
    for (uint32_t e = 0; e < a->n_expert; e++) {
        uint32_t n = count[e + 1];
        if (n)
            r->groups[r->n_groups++] = (struct group){e, count[e], n};
        count[e + 1] += count[e];
    }
    for (uint32_t i = 0; i < r->n_pairs; i++) {
        uint32_t p = a->pairs ? a->pairs[i] : i;
        uint32_t at = count[a->ids[p]]++;
        r->order[at] = p;
        r->in.rows_f32[at] = a->x + (size_t)(p / a->k) * a->n_embd;
        r->mid.rows_f32[at] = r->h + (size_t)at * a->n_ff;
    }
    for (uint32_t g = 0; g < r->n_groups; g++) {
        const struct group *group = &r->groups[g];
        if (!tiled(r, group))
            continue;
        for (uint32_t i = 0; i < sl_mm_n_tiles(group->n); i++) {
            uint32_t begin = sl_mm_tile_start(group->n, i);
            r->tiles[r->n_tiles++] =
                (struct tile_ref){group->begin + begin, sl_mm_tile_start(group->n, i + 1) - begin};
        }
    }
}

static struct sl_qx *qrow(uint8_t *base, uint32_t i, uint32_t n_cols) {
    return (struct sl_qx *)(void *)(base + i * sl_qx_row_bytes(n_cols));
}

static void rows_chunk(const struct run *r, uint32_t chunk) {
    uint32_t t = chunk % r->a->n_tok;
    enum sl_x_kind kind = chunk >= r->a->n_tok || !r->token_q[SL_X_Q32] ? SL_X_Q256 : SL_X_Q32;
    r->k->quantize[kind](r->a->x + (size_t)t * r->a->n_embd, r->a->n_embd,
                         qrow(r->token_q[kind], t, r->a->n_embd));
}

static uint32_t n_rows_chunks(const struct run *r) {
    return r->a->n_tok * ((r->token_q[0] != NULL) + (r->token_q[1] != NULL));
}

static void tiles_chunk(const struct run *r, uint32_t chunk) {
    const struct tile_ref *tile = &r->tiles[chunk];
    const struct sl_qx *list[SL_MM_TILE];
    for (int kind = 0; kind < 2; kind++) {
        if (!r->token_q[kind])
            continue;
        for (uint32_t i = 0; i < tile->n; i++)
            list[i] = qrow(r->token_q[kind], r->order[tile->begin + i] / r->a->k, r->a->n_embd);
        r->k->pack[kind](list, tile->n, r->a->n_embd,
                         qrow(r->in.q[kind], tile->begin, r->a->n_embd));
    }
}

/* Quantises h: tile by tile for tiled groups, then row by row for the others (chunks above n_tiles
 * are groups). */
static void mid_chunk(const struct run *r, uint32_t chunk, uint8_t *own) {
    uint32_t n_ff = r->a->n_ff;
    enum sl_x_kind kind = sl_x_kind(r->a->down_dtype);
    if (chunk < r->n_tiles) {
        const struct tile_ref *tile = &r->tiles[chunk];
        struct sl_qx *rows =
            (struct sl_qx *)(void *)(own + r->thread_bytes - SL_MM_TILE * sl_qx_row_bytes(n_ff));
        const struct sl_qx *list[SL_MM_TILE];
        for (uint32_t i = 0; i < tile->n; i++) {
            struct sl_qx *row = rows + i * sl_qx_blocks(n_ff);
            r->k->quantize[kind](r->mid.rows_f32[tile->begin + i], n_ff, row);
            list[i] = row;
        }
        r->k->pack[kind](list, tile->n, n_ff, qrow(r->mid.q[kind], tile->begin, n_ff));
        return;
    }
    const struct group *g = &r->groups[chunk - r->n_tiles];
    if (tiled(r, g))
        return;
    for (uint32_t i = g->begin; i < g->begin + g->n; i++)
        r->k->quantize[kind](r->mid.rows_f32[i], n_ff, qrow(r->mid.q[kind], i, n_ff));
}

static const void *input_at(const struct run *r, const struct input *in, enum sl_x_kind kind,
                            uint32_t position, bool as_tile) {
    if (kind != SL_X_F32) {
        if (!as_tile && in == &r->in)
            return qrow(r->token_q[kind], r->order[position] / r->a->k, in->n_cols);
        return qrow(in->q[kind], position, in->n_cols);
    }
    return as_tile ? (const void *)(in->rows_f32 + position) : (const void *)in->rows_f32[position];
}

static struct sl_mm_rows weight_rows(const void *data, enum sl_dtype dtype, uint32_t n_in,
                                     uint32_t begin, uint32_t n_rows) {
    struct sl_mm_rows w = {.row_bytes = sl_dtype_row_bytes(dtype, n_in),
                           .n_rows = n_rows,
                           .n_in = n_in,
                           .dtype = dtype};
    w.data = (const uint8_t *)data + begin * w.row_bytes;
    return w;
}

/* The one row of a group that is not tiled, or its two. */
static void vec_rows(const struct run *r, const struct sl_mm_rows *w, const struct input *in,
                     const struct group *g, float *const out[2]) {
    enum sl_x_kind kind = sl_x_kind(w->dtype);
    const void *x[2] = {input_at(r, in, kind, g->begin, false),
                        input_at(r, in, kind, g->begin + g->n - 1, false)};
    if (g->n == 2)
        r->k->pair[w->dtype](w, x, out);
    else
        r->k->vec[w->dtype](w, x[0], out[0]);
}

/* n values from value `begin` on of what an expert makes of one row; gate and up are overwritten.
 */
static void activate(const struct run *r, uint32_t expert, uint32_t begin, float *gate, float *up,
                     float *h, uint32_t n) {
    const struct sl_op_moe *a = r->a;
    size_t at = (size_t)expert * a->n_ff + begin;
    if (a->gate_bias && r->gated)
        r->cpu->k.add(a->gate_bias + at, gate, n);
    if (a->up_bias)
        r->cpu->k.add(a->up_bias + at, up, n);
    sl_cpu_glu(&r->cpu->k, a->activation, gate, up, h, n, a->limit, a->limit_up);
}

/* Where a chunk's weights begin; NULL: there is no such chunk. */
static const uint8_t *up_chunk_begin(const struct run *r, uint32_t chunk) {
    const struct sl_op_moe *a = r->a;
    if (chunk >= r->n_groups * r->up_chunks)
        return NULL;
    const struct sl_expert_ref *ref = &a->refs[r->groups[chunk / r->up_chunks].expert];
    uint32_t begin = chunk % r->up_chunks * r->up_rows;
    return r->gated ? weight_rows(ref->gate, a->gate_dtype, a->n_embd, begin, 0).data
                    : weight_rows(ref->up, a->up_dtype, a->n_embd, begin, 0).data;
}

static const uint8_t *down_chunk_begin(const struct run *r, uint32_t chunk) {
    const struct sl_op_moe *a = r->a;
    if (chunk >= r->n_groups * r->down_chunks)
        return NULL;
    const struct sl_expert_ref *ref = &a->refs[r->groups[chunk / r->down_chunks].expert];
    uint32_t begin = chunk % r->down_chunks * r->down_rows;
    return weight_rows(ref->down, a->down_dtype, a->n_ff, begin, 0).data;
}

static void up_vec(const struct run *r, const struct group *g, uint32_t begin, uint32_t n,
                   const uint8_t *next, struct thread_scratch *s) {
    const struct sl_op_moe *a = r->a;
    const struct sl_expert_ref *ref = &a->refs[g->expert];
    struct sl_mm_rows up = weight_rows(ref->up, a->up_dtype, a->n_embd, begin, n);
    up.next = next;
    if (r->gated) {
        struct sl_mm_rows gate = weight_rows(ref->gate, a->gate_dtype, a->n_embd, begin, n);
        gate.next = up.data;
        vec_rows(r, &gate, &r->in, g, (float *const[2]){s->vec_gate[0], s->vec_gate[1]});
    }
    vec_rows(r, &up, &r->in, g, (float *const[2]){s->vec_up[0], s->vec_up[1]});
    for (uint32_t i = 0; i < g->n; i++)
        activate(r, g->expert, begin, s->vec_gate[i], s->vec_up[i],
                 r->h + (size_t)(g->begin + i) * a->n_ff + begin, n);
}

static void up_chunk(const struct run *r, uint32_t chunk, uint8_t *own) {
    const struct sl_op_moe *a = r->a;
    const struct group *g = &r->groups[chunk / r->up_chunks];
    uint32_t begin = chunk % r->up_chunks * r->up_rows;
    uint32_t end = a->n_ff - begin < r->up_rows ? a->n_ff : begin + r->up_rows;
    struct thread_scratch *s = (struct thread_scratch *)(void *)own;
    if (!tiled(r, g)) {
        up_vec(r, g, begin, end - begin, up_chunk_begin(r, chunk + r->n_threads), s);
        return;
    }
    const struct sl_expert_ref *ref = &a->refs[g->expert];
    uint8_t *panel = own + sl_mm_round_64(sizeof *s);
    const uint32_t n_tiles = sl_mm_n_tiles(g->n);
    const void *x_gate =
        r->gated ? input_at(r, &r->in, sl_x_kind(a->gate_dtype), g->begin, true) : NULL;
    const void *x_up = input_at(r, &r->in, sl_x_kind(a->up_dtype), g->begin, true);
    for (uint32_t o = begin; o < end; o += SL_MM_PANEL) {
        uint32_t n = end - o < SL_MM_PANEL ? end - o : SL_MM_PANEL;
        struct sl_mm_rows gate = {0}, up = weight_rows(ref->up, a->up_dtype, a->n_embd, o, n);
        if (r->gated)
            gate = weight_rows(ref->gate, a->gate_dtype, a->n_embd, o, n);
        for (uint32_t i = 0; i < n_tiles; i += SL_MM_TILES) {
            uint32_t last = n_tiles - i < SL_MM_TILES ? n_tiles : i + SL_MM_TILES;
            uint32_t t0 = sl_mm_tile_start(g->n, i), t1 = sl_mm_tile_start(g->n, last);
            if (r->gated)
                r->k->many[gate.dtype](&gate, x_gate, g->n, i, last, panel, s->gate);
            r->k->many[up.dtype](&up, x_up, g->n, i, last, panel, s->up);
            for (uint32_t t = t0; t < t1; t++) {
                size_t at = (size_t)(t - t0) * SL_MM_PANEL;
                activate(r, g->expert, o, s->gate + at, s->up + at,
                         r->h + (size_t)(g->begin + t) * a->n_ff + o, n);
            }
        }
    }
}

static void down_chunk(const struct run *r, uint32_t chunk, uint8_t *own) {
    const struct sl_op_moe *a = r->a;
    const struct group *g = &r->groups[chunk / r->down_chunks];
    uint32_t begin = chunk % r->down_chunks * r->down_rows;
    uint32_t end = a->n_embd - begin < r->down_rows ? a->n_embd : begin + r->down_rows;
    struct thread_scratch *s = (struct thread_scratch *)(void *)own;
    const void *data = a->refs[g->expert].down;
    const float *bias = a->down_bias ? a->down_bias + (size_t)g->expert * a->n_embd : NULL;
    enum sl_x_kind kind = sl_x_kind(a->down_dtype);
    if (!tiled(r, g)) {
        struct sl_mm_rows w = weight_rows(data, a->down_dtype, a->n_ff, begin, end - begin);
        w.next = down_chunk_begin(r, chunk + r->n_threads);
        float *y[2];
        for (uint32_t i = 0; i < 2; i++)
            y[i] = a->pair_y + (size_t)r->order[g->begin + i % g->n] * a->n_embd + begin;
        vec_rows(r, &w, &r->mid, g, y);
        for (uint32_t i = 0; bias && i < g->n; i++)
            r->cpu->k.add(bias + begin, y[i], end - begin);
        return;
    }
    uint8_t *panel = own + sl_mm_round_64(sizeof *s);
    const uint32_t n_tiles = sl_mm_n_tiles(g->n);
    const void *x = input_at(r, &r->mid, kind, g->begin, true);
    for (uint32_t o = begin; o < end; o += SL_MM_PANEL) {
        uint32_t n = end - o < SL_MM_PANEL ? end - o : SL_MM_PANEL;
        struct sl_mm_rows w = weight_rows(data, a->down_dtype, a->n_ff, o, n);
        for (uint32_t i = 0; i < n_tiles; i += SL_MM_TILES) {
            uint32_t last = n_tiles - i < SL_MM_TILES ? n_tiles : i + SL_MM_TILES;
            uint32_t t0 = sl_mm_tile_start(g->n, i), t1 = sl_mm_tile_start(g->n, last);
            r->k->many[w.dtype](&w, x, g->n, i, last, panel, s->gate);
            for (uint32_t t = t0; t < t1; t++) {
                float *y = a->pair_y + (size_t)r->order[g->begin + t] * a->n_embd + o;
                memcpy(y, s->gate + (t - t0) * SL_MM_PANEL, (size_t)n * 4);
                if (bias)
                    r->cpu->k.add(bias + o, y, n);
            }
        }
    }
}

static void run_thread(void *ctx, uint32_t thread, uint32_t n_threads) {
    (void)n_threads;
    const struct run *r = ctx;
    struct sl_pool *pool = r->cpu->pool;
    uint8_t *own = r->threads + thread * r->thread_bytes;
    uint32_t c;
    if (!r->rows_done) {
        while ((c = sl_pool_next(pool, n_rows_chunks(r))) != UINT32_MAX)
            rows_chunk(r, c);
        sl_pool_barrier(pool);
    }
    if (r->n_tiles && n_rows_chunks(r)) {
        while ((c = sl_pool_next(pool, r->n_tiles)) != UINT32_MAX)
            tiles_chunk(r, c);
        sl_pool_barrier(pool);
    }
    while ((c = sl_pool_next(pool, r->n_groups * r->up_chunks)) != UINT32_MAX)
        up_chunk(r, c, own);
    sl_pool_barrier(pool);
    if (sl_x_kind(r->a->down_dtype) != SL_X_F32) {
        while ((c = sl_pool_next(pool, r->n_tiles + r->n_groups)) != UINT32_MAX)
            mid_chunk(r, c, own);
        sl_pool_barrier(pool);
    }
    while ((c = sl_pool_next(pool, r->n_groups * r->down_chunks)) != UINT32_MAX)
        down_chunk(r, c, own);
}

enum sl_status sl_cpu_moe(struct sl_device *d, const struct sl_op_moe *a) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    uint32_t n_pairs = a->pairs ? a->n_pairs : a->n_tok * a->k;
    if (n_pairs == 0)
        return SL_OK;
    uint32_t n_threads = sl_pool_n_threads(cpu->pool);
    struct layout l =
        lay_out(cpu->scratch, a->n_tok, n_pairs, a->n_expert, a->n_embd, a->n_ff, n_threads);
    struct run r = {.a = a,
                    .k = sl_mm_kernels(cpu->isa),
                    .cpu = cpu,
                    .order = l.order,
                    .groups = l.groups,
                    .tiles = l.tiles,
                    .n_pairs = n_pairs,
                    .in = {.n_cols = a->n_embd, .rows_f32 = l.in_f32},
                    .mid = {.n_cols = a->n_ff, .rows_f32 = l.mid_f32},
                    .h = l.h,
                    .threads = l.threads,
                    .thread_bytes = thread_bytes(a->n_ff)};
    r.gated = a->activation != SL_RELU_SQUARED;
    const enum sl_dtype in_types[2] = {r.gated ? a->gate_dtype : a->up_dtype, a->up_dtype};
    for (int i = 0; i < 2; i++) {
        enum sl_x_kind kind = sl_x_kind(in_types[i]);
        if (kind != SL_X_F32) {
            r.token_q[kind] = l.token_q[kind];
            r.in.q[kind] = l.in_q[kind];
        }
    }
    if (sl_x_kind(a->down_dtype) != SL_X_F32)
        r.mid.q[sl_x_kind(a->down_dtype)] = l.mid_q;
    r.pairs = r.k->pair[in_types[0]] && r.k->pair[a->up_dtype] && r.k->pair[a->down_dtype];
    sort_pairs(&r, l.count);
    r.up_rows = sl_mm_chunk_rows(r.n_groups * a->n_ff, n_threads);
    r.up_chunks = (a->n_ff + r.up_rows - 1) / r.up_rows;
    r.down_rows = sl_mm_chunk_rows(r.n_groups * a->n_embd, n_threads);
    r.down_chunks = (a->n_embd + r.down_rows - 1) / r.down_rows;
    if ((uint64_t)a->n_tok * a->n_embd <= SL_MM_INLINE_ELEMS || n_rows_chunks(&r) == 0) {
        for (uint32_t c = 0; c < n_rows_chunks(&r); c++)
            rows_chunk(&r, c);
        r.rows_done = true;
    }
    bool overlap = a->overlap && d->caps.overlap;
    r.n_threads = overlap && n_threads > 1 ? n_threads - 1 : n_threads;
    if (overlap)
        sl_pool_run_overlap(cpu->pool, run_thread, &r, a->overlap, a->overlap_ctx, a->out_end_ns);
    else
        sl_pool_run(cpu->pool, run_thread, &r);
    return SL_OK;
}
