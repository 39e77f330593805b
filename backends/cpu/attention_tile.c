/* Attention for many rows of one sequence. Up to SL_CPU_ATTN_LANES (row, head) pairs that share a
 * KV head are the lanes of up to SL_CPU_ATTN_LANES / SL_CPU_ATTN_TILE tiles; each page of K and V
 * is converted to f32 once for all of them. (rows, KV head) is the unit of work; partitions go in
 * ascending order within it. */
#include "backends/cpu/attention.h"

#include <math.h>
#include <string.h>

#define PART    SL_CPU_ATTN_PART
#define PAGE    SL_KV_PAGE_TOKENS
#define TILE    SL_CPU_ATTN_TILE
#define N_TILES (SL_CPU_ATTN_LANES / TILE)

/* What one thread works in. */
struct work {
    struct sl_cpu_attn_tile tile[N_TILES];
    uint32_t n_tiles, n_lanes;
    float *page; /* [PAGE, head_dim] of K or V */
};

static char *take(char **at, size_t bytes) {
    char *p = *at;
    *at += (bytes + 63) / 64 * 64;
    return p;
}

/* Lays the arrays out from base; the size from NULL. */
static size_t lay_out(struct work *w, char *base, uint32_t head_dim_k, uint32_t head_dim_v) {
    char *at = base;
    uint32_t head_dim = head_dim_k > head_dim_v ? head_dim_k : head_dim_v;
    size_t lane_bytes = TILE * sizeof(float);
    w->page = (float *)take(&at, PAGE * sizeof(float) * head_dim);
    for (uint32_t i = 0; i < N_TILES; i++) {
        struct sl_cpu_attn_tile *t = &w->tile[i];
        t->head_dim_k = head_dim_k;
        t->head_dim_v = head_dim_v;
        t->lo = (int32_t *)take(&at, lane_bytes);
        t->hi = (int32_t *)take(&at, lane_bytes);
        t->m = (float *)take(&at, lane_bytes);
        t->l = (float *)take(&at, lane_bytes);
        t->part_m = (float *)take(&at, lane_bytes);
        t->part_l = (float *)take(&at, lane_bytes);
        t->qt = (float *)take(&at, lane_bytes * head_dim_k);
        t->ot = (float *)take(&at, lane_bytes * head_dim_v);
        t->part_ot = (float *)take(&at, lane_bytes * head_dim_v);
        t->s = (float *)take(&at, lane_bytes * PART);
    }
    return (size_t)(at - base);
}

size_t sl_cpu_attention_tile_bytes(uint32_t max_head_dim) {
    /* Measured from an address of its own, as there is no arithmetic on NULL. */
    static char origin;
    struct work w;
    return lay_out(&w, &origin, max_head_dim, max_head_dim);
}

struct job {
    const struct sl_op_attention *a;
    const struct sl_cpu *cpu;
    void (*to_f32)(const void *x, float *y, uint32_t n);
    const struct sl_cpu_attn_scratch *mem;
    uint32_t n_units;
};

/* Lane i is head i % group of row i / group. */
static void load_queries(const struct job *j, struct work *w, uint32_t row0, uint32_t head0,
                         uint32_t group) {
    const struct sl_op_attention *a = j->a;
    w->n_tiles = (w->n_lanes + TILE - 1) / TILE;
    for (uint32_t i = 0; i < w->n_tiles; i++) {
        const float *rows[TILE];
        for (uint32_t lane = 0; lane < TILE; lane++) {
            uint32_t index = i * TILE + lane;
            rows[lane] = index < w->n_lanes ? a->q + (size_t)(row0 + index / group) * a->stride_q +
                                                  (size_t)(head0 + index % group) * a->kv.head_dim_k
                                            : NULL;
        }
        j->cpu->k.tile_load(&w->tile[i], rows);
    }
}

static void store_outputs(const struct job *j, const struct work *w, uint32_t row0, uint32_t head0,
                          uint32_t group) {
    const struct sl_op_attention *a = j->a;
    for (uint32_t i = 0; i < w->n_tiles; i++) {
        float *rows[TILE];
        for (uint32_t lane = 0; lane < TILE; lane++) {
            uint32_t index = i * TILE + lane;
            size_t row = row0 + index / group, head = head0 + index % group;
            rows[lane] =
                index < w->n_lanes ? a->y + (row * a->n_heads + head) * a->kv.head_dim_v : NULL;
        }
        j->cpu->k.tile_store(&w->tile[i], rows);
    }
}

/* Every lane's positions in the partition that starts at base. */
static void set_ranges(const struct job *j, struct work *w, uint32_t row0, uint32_t group,
                       uint32_t base) {
    for (uint32_t i = 0; i < w->n_tiles; i++) {
        struct sl_cpu_attn_tile *t = &w->tile[i];
        t->begin = PART, t->end = 0, t->full_begin = 0, t->full_end = PART;
        for (uint32_t lane = 0; lane < TILE; lane++) {
            uint32_t index = i * TILE + lane, lo = 0, hi = 0;
            if (index < w->n_lanes) {
                sl_cpu_attn_range(j->a, row0 + index / group, &lo, &hi);
                lo = lo > base ? lo - base : 0;
                hi = hi > base ? hi - base : 0;
                hi = hi < PART ? hi : PART;
                lo = lo < hi ? lo : hi;
                if (lo < hi) {
                    t->begin = lo < t->begin ? lo : t->begin;
                    t->end = hi > t->end ? hi : t->end;
                }
                t->full_begin = lo > t->full_begin ? lo : t->full_begin;
                t->full_end = hi < t->full_end ? hi : t->full_end;
            }
            t->lo[lane] = (int32_t)lo;
            t->hi[lane] = (int32_t)hi;
        }
        if (t->begin > t->end)
            t->begin = t->end = 0;
        memset(t->part_ot, 0, (size_t)t->head_dim_v * TILE * sizeof(float));
    }
}

/* n positions of K or V, which may lie apart: page [n, head_dim]. */
static void load(const struct job *j, const char *rows, size_t row_bytes, uint32_t n,
                 uint32_t head_dim, float *page) {
    if (row_bytes == sl_dtype_row_bytes(j->a->kv.dtype, head_dim)) {
        j->to_f32(rows, page, n * head_dim);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        j->to_f32(rows + i * row_bytes, page + (size_t)i * head_dim, head_dim);
}

static void partition(const struct job *j, struct work *w, uint32_t seq, uint32_t kv_head,
                      uint32_t base) {
    const struct sl_op_attention *a = j->a;
    const struct sl_cpu_kernels *k = &j->cpu->k;
    const uint32_t *pages = a->page_table + (size_t)seq * a->max_pages + base / PAGE;
    uint32_t begin = PART, end = 0;
    for (uint32_t i = 0; i < w->n_tiles; i++) {
        const struct sl_cpu_attn_tile *t = &w->tile[i];
        if (t->begin < t->end) {
            begin = t->begin < begin ? t->begin : begin;
            end = t->end > end ? t->end : end;
        }
    }
    for (uint32_t at = begin / PAGE * PAGE; at < end; at += PAGE) {
        const char *rows = (const char *)a->kv.k + pages[at / PAGE] * a->kv.k_page_bytes +
                           (size_t)kv_head * PAGE * j->mem->k_row_bytes;
        uint32_t n = end - at < PAGE ? end - at : PAGE;
        load(j, rows, j->mem->k_row_bytes, n, a->kv.head_dim_k, w->page);
        for (uint32_t i = 0; i < w->n_tiles; i++) {
            const struct sl_cpu_attn_tile *t = &w->tile[i];
            uint32_t from = t->begin > at ? t->begin : at, to = t->end < at + n ? t->end : at + n;
            if (from < to)
                k->tile_qk(t, w->page + (size_t)(from - at) * a->kv.head_dim_k, from, to, a->scale);
        }
    }
    for (uint32_t i = 0; i < w->n_tiles; i++) {
        const struct sl_cpu_attn_tile *t = &w->tile[i];
        if (a->softcap > 0)
            k->softcap(t->s + (size_t)t->begin * TILE, a->softcap,
                       (size_t)(t->end - t->begin) * TILE);
        k->tile_softmax(t);
    }
    for (uint32_t at = begin / PAGE * PAGE; at < end; at += PAGE) {
        const char *rows = (const char *)a->kv.v + pages[at / PAGE] * a->kv.v_page_bytes +
                           (size_t)kv_head * PAGE * j->mem->v_row_bytes;
        uint32_t n = end - at < PAGE ? end - at : PAGE;
        load(j, rows, j->mem->v_row_bytes, n, a->kv.head_dim_v, w->page);
        for (uint32_t i = 0; i < w->n_tiles; i++) {
            const struct sl_cpu_attn_tile *t = &w->tile[i];
            uint32_t from = t->begin > at ? t->begin : at, to = t->end < at + n ? t->end : at + n;
            if (from < to)
                k->tile_pv(t, w->page + (size_t)(from - at) * a->kv.head_dim_v, from, to);
        }
    }
    for (uint32_t i = 0; i < w->n_tiles; i++)
        k->tile_join(&w->tile[i]);
}

/* n_rows rows from row0 with n_heads heads from head0, all of one KV head. */
static void attend(const struct job *j, struct work *w, uint32_t row0, uint32_t n_rows,
                   uint32_t kv_head, uint32_t head0, uint32_t n_heads) {
    const struct sl_op_attention *a = j->a;
    uint32_t first = UINT32_MAX, end = 0;
    for (uint32_t r = row0; r < row0 + n_rows; r++) {
        uint32_t lo, hi;
        sl_cpu_attn_range(a, r, &lo, &hi);
        first = lo < first ? lo : first;
        end = hi > end ? hi : end;
    }
    w->n_lanes = n_rows * n_heads;
    load_queries(j, w, row0, head0, n_heads);
    for (uint32_t base = first / PART * PART; base < end; base += PART) {
        set_ranges(j, w, row0, n_heads, base);
        partition(j, w, a->row_seq[row0], kv_head, base);
    }
    for (uint32_t i = 0; i < w->n_tiles; i++) {
        _Alignas(64) float sink[TILE] = {0};
        for (uint32_t lane = 0; a->sinks && lane < TILE; lane++)
            sink[lane] = a->sinks[head0 + (i * TILE + lane) % n_heads];
        j->cpu->k.tile_finish(&w->tile[i], a->sinks ? sink : NULL);
    }
    store_outputs(j, w, row0, head0, n_heads);
}

static void tile_thread(void *ctx, uint32_t thread, uint32_t n_threads) {
    (void)n_threads;
    const struct job *j = ctx;
    const struct sl_op_attention *a = j->a;
    uint32_t n_kv = a->kv.n_kv_heads, group = a->n_heads / n_kv;
    struct work w;
    lay_out(&w, j->mem->thread + thread * j->mem->thread_bytes, a->kv.head_dim_k, a->kv.head_dim_v);
    for (uint32_t c; (c = sl_pool_next(j->cpu->pool, j->n_units)) != UINT32_MAX;) {
        /* The last rows have the longest way back: they go first. */
        uint32_t unit = j->n_units - 1 - c, kv_head = unit % n_kv;
        struct sl_cpu_attn_rows rows = j->mem->tiles[unit / n_kv];
        /* More heads than lanes go in pieces. */
        for (uint32_t g = 0; g < group; g += SL_CPU_ATTN_LANES) {
            uint32_t n = group - g < SL_CPU_ATTN_LANES ? group - g : SL_CPU_ATTN_LANES;
            attend(j, &w, rows.row, rows.n_rows, kv_head, kv_head * group + g, n);
        }
    }
}

void sl_cpu_attention_tiles(struct sl_cpu *cpu, const struct sl_op_attention *a, uint32_t n_tiles,
                            const struct sl_cpu_attn_scratch *mem) {
    struct job j = {.a = a,
                    .cpu = cpu,
                    .to_f32 = a->kv.dtype == SL_DTYPE_F16 ? cpu->k.f16_to_f32 : cpu->k.q8_0_to_f32,
                    .mem = mem,
                    .n_units = n_tiles * a->kv.n_kv_heads};
    if (j.n_units)
        sl_pool_run(cpu->pool, tile_thread, &j);
}
