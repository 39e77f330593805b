/* Attention row by row: each row goes alone, with the heads that share a KV head together, so that
 * K and V are read once. The unit of work is (row, partition, up to HEAD_BLOCK heads of a KV head),
 * so that a single row with a long context, or with many heads, keeps all threads busy; partitions
 * wait in scratch slots and are joined in ascending order once all of a wave are there. */
#include "backends/cpu/attention.h"
#include "backends/cpu/math.h"

#include <string.h>

#define PART       SL_CPU_ATTN_PART
#define HEAD_BLOCK 8u /* heads that go through K and V together */

typedef void qk_fn(const float *q, uint32_t n_heads, const struct sl_cpu_kv_page *k, float scale,
                   float *s);
typedef void pv_fn(const float *s, uint32_t n_heads, const struct sl_cpu_kv_page *v, float *o);

struct wave {
    const struct sl_op_attention *a;
    const struct sl_cpu *cpu;
    qk_fn *qk;
    pv_fn *pv;
    struct sl_cpu_attn_scratch mem;
    uint32_t n_items;
    uint32_t n_rows; /* distinct rows of the wave that have more than one partition */
};

static void row_range(const struct sl_op_attention *a, const struct sl_cpu_attn_choice *choice,
                      uint32_t row, uint32_t *lo, uint32_t *hi) {
    if (sl_cpu_attn_chooses(a, choice, row))
        *lo = 0, *hi = sl_cpu_attn_chosen(a, choice, row);
    else
        sl_cpu_attn_range(a, row, lo, hi);
}

static void row_parts(const struct sl_op_attention *a, const struct sl_cpu_attn_choice *choice,
                      uint32_t row, uint32_t *first, uint32_t *end) {
    uint32_t lo, hi;
    row_range(a, choice, row, &lo, &hi);
    *first = lo / PART;
    *end = (hi + PART - 1) / PART;
}

size_t sl_cpu_attention_gather_bytes(uint32_t max_head_dim) {
    return SL_KV_PAGE_TOKENS * sl_dtype_row_bytes(SL_DTYPE_F16, max_head_dim);
}

/* Rows of keys, or of values, of one KV head. */
struct kv_rows {
    const char *base; /* of that head in page 0 */
    size_t page_bytes, row_bytes;
};

/* The same of rows of blocks, then of a window. */
static const void *gather_mixed(const struct wave *w, uint32_t row, const struct kv_rows *of,
                                uint32_t first, uint32_t n, char *out) {
    const struct sl_op_compressed_attention *a = w->mem.choice.mixed;
    size_t seq = (size_t)a->row_seq[row] * a->max_pages;
    uint32_t n_blocks = sl_cpu_attn_blocks(a, row),
             page_rows = a->ratio ? sl_block_rows(a->ratio) : 1;
    uint32_t lo = a->row_len[row] - sl_cpu_attn_window(a, row);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = first + i;
        const char *from;
        if (at < n_blocks) {
            uint32_t b = a->chosen ? a->chosen[(size_t)row * a->n_top + at] : at;
            size_t page = a->block_table[seq + sl_block_page(b, a->ratio)];
            from = (const char *)a->blocks.rows + page * a->blocks.page_bytes +
                   b % page_rows * of->row_bytes;
        } else {
            uint32_t j = lo + at - n_blocks;
            size_t page = a->page_table[seq + j / SL_KV_PAGE_TOKENS];
            from = of->base + page * of->page_bytes + j % SL_KV_PAGE_TOKENS * of->row_bytes;
        }
        memcpy(out + i * of->row_bytes, from, of->row_bytes);
    }
    return out;
}

/* n rows that the row has chosen, from its first-th on, one after another: at out, or where they
 * are if that is so. first is a multiple of a page's positions. */
static const void *gather(const struct wave *w, uint32_t row, uint32_t kv_head,
                          const struct kv_rows *of, uint32_t first, uint32_t n, char *out) {
    const struct sl_op_attention *a = w->a;
    const struct sl_cpu_attn_choice *c = &w->mem.choice;
    if (c->mixed)
        return gather_mixed(w, row, of, first, n, out);
    size_t whose = c->tail ? row : (size_t)row * a->kv.n_kv_heads + kv_head;
    const uint32_t *at = c->at + whose * c->n_top;
    const uint32_t *pages = a->page_table + (size_t)a->row_seq[row] * a->max_pages;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t b = (first + i) / c->block;
        uint32_t j = (b < c->n_top ? at[b] : a->row_len[row] / c->block) * c->block;
        j += (first + i) % c->block;
        const char *from = of->base + pages[j / SL_KV_PAGE_TOKENS] * of->page_bytes +
                           j % SL_KV_PAGE_TOKENS * of->row_bytes;
        if (c->block % SL_KV_PAGE_TOKENS == 0)
            return from;
        memcpy(out + i * of->row_bytes, from, of->row_bytes);
    }
    return out;
}

/* The same as attend() below where the row's positions are chosen: they are gathered page by page,
 * twice, as a page stays in the nearest cache and a partition does not. */
static void attend_chosen(const struct wave *w, uint32_t thread, uint32_t row, uint32_t part,
                          uint32_t kv_head, uint32_t head, uint32_t n_heads, float *m, float *l,
                          float *o) {
    const struct sl_op_attention *a = w->a;
    const struct sl_cpu_kernels *k = &w->cpu->k;
    _Alignas(64) float s[HEAD_BLOCK * PART];
    const float *q = a->q + (size_t)row * a->stride_q + (size_t)head * a->kv.head_dim_k;
    char *rows = w->mem.thread + thread * w->mem.thread_bytes;
    uint32_t base = part * PART, left = sl_cpu_attn_chosen(a, &w->mem.choice, row) - base;
    uint32_t n = left < PART ? left : PART;
    size_t head_rows = (size_t)kv_head * SL_KV_PAGE_TOKENS;
    struct kv_rows keys = {(const char *)a->kv.k + head_rows * w->mem.k_row_bytes,
                           a->kv.k_page_bytes, w->mem.k_row_bytes};
    struct kv_rows values = {(const char *)a->kv.v + head_rows * w->mem.v_row_bytes,
                             a->kv.v_page_bytes, w->mem.v_row_bytes};
    struct sl_cpu_kv_page page = {.row_bytes = (uint32_t)w->mem.k_row_bytes};
    page.head_dim = a->kv.head_dim_k;
    for (uint32_t at = 0; at < n; at += SL_KV_PAGE_TOKENS) {
        page.end = n - at < SL_KV_PAGE_TOKENS ? n - at : SL_KV_PAGE_TOKENS;
        page.rows = gather(w, row, kv_head, &keys, base + at, page.end, rows);
        w->qk(q, n_heads, &page, a->scale, s + at);
    }
    for (uint32_t h = 0; h < n_heads; h++)
        l[h] = k->softmax(s + h * PART, s + h * PART, n, &m[h]);
    memset(o, 0, (size_t)n_heads * a->kv.head_dim_v * sizeof *o);
    page.head_dim = a->kv.head_dim_v;
    page.row_bytes = (uint32_t)w->mem.v_row_bytes;
    for (uint32_t at = 0; at < n; at += SL_KV_PAGE_TOKENS) {
        page.end = n - at < SL_KV_PAGE_TOKENS ? n - at : SL_KV_PAGE_TOKENS;
        page.rows = gather(w, row, kv_head, &values, base + at, page.end, rows);
        w->pv(s + at, n_heads, &page, o);
    }
}

/* One partition of one row, for up to HEAD_BLOCK heads from head: m, l, o [n_heads]. */
static void attend(const struct wave *w, uint32_t row, uint32_t part, uint32_t kv_head,
                   uint32_t head, uint32_t n_heads, float *m, float *l, float *o) {
    const struct sl_op_attention *a = w->a;
    const struct sl_cpu_kernels *k = &w->cpu->k;
    _Alignas(64) float s[HEAD_BLOCK * PART];
    const float *q = a->q + (size_t)row * a->stride_q + (size_t)head * a->kv.head_dim_k;
    uint32_t lo, hi;
    sl_cpu_attn_range(a, row, &lo, &hi);
    uint32_t base = part * PART;
    uint32_t begin = lo > base ? lo - base : 0, end = hi - base < PART ? hi - base : PART;
    const uint32_t *pages =
        a->page_table + (size_t)a->row_seq[row] * a->max_pages + base / SL_KV_PAGE_TOKENS;
    uint32_t first_page = begin / SL_KV_PAGE_TOKENS;
    uint32_t end_page = (end + SL_KV_PAGE_TOKENS - 1) / SL_KV_PAGE_TOKENS;

    size_t k_head = (size_t)kv_head * SL_KV_PAGE_TOKENS * w->mem.k_row_bytes;
    size_t v_head = (size_t)kv_head * SL_KV_PAGE_TOKENS * w->mem.v_row_bytes;
    const char *k_base = (const char *)a->kv.k + k_head, *v_base = (const char *)a->kv.v + v_head;
    for (uint32_t p = first_page; p < end_page; p++) {
        uint32_t at = p * SL_KV_PAGE_TOKENS;
        struct sl_cpu_kv_page page = {
            .rows = k_base + pages[p] * a->kv.k_page_bytes,
            .begin = begin > at ? begin - at : 0,
            .end = end - at < SL_KV_PAGE_TOKENS ? end - at : SL_KV_PAGE_TOKENS,
            .head_dim = a->kv.head_dim_k,
            .row_bytes = (uint32_t)w->mem.k_row_bytes,
            .ahead = {p + 1 < end_page ? k_base + pages[p + 1] * a->kv.k_page_bytes : NULL,
                      v_base + pages[p] * a->kv.v_page_bytes},
            .ahead_row_bytes = {(uint32_t)w->mem.k_row_bytes, (uint32_t)w->mem.v_row_bytes},
        };
        w->qk(q, n_heads, &page, a->scale, s + at);
    }
    /* The softmax starts on a full lane group, so that position j is in partial j % 16. */
    uint32_t from = begin / 16 * 16;
    for (uint32_t h = 0; h < n_heads; h++) {
        float *sh = s + h * PART;
        if (a->softcap > 0)
            k->softcap(sh + begin, a->softcap, end - begin);
        for (uint32_t j = from; j < begin; j++)
            sh[j] = -INFINITY;
        l[h] = k->softmax(sh + from, sh + from, end - from, &m[h]);
    }
    memset(o, 0, (size_t)n_heads * a->kv.head_dim_v * sizeof *o);
    for (uint32_t p = first_page; p < end_page; p++) {
        uint32_t at = p * SL_KV_PAGE_TOKENS;
        struct sl_cpu_kv_page page = {
            .rows = v_base + pages[p] * a->kv.v_page_bytes,
            .begin = begin > at ? begin - at : 0,
            .end = end - at < SL_KV_PAGE_TOKENS ? end - at : SL_KV_PAGE_TOKENS,
            .head_dim = a->kv.head_dim_v,
            .row_bytes = (uint32_t)w->mem.v_row_bytes,
        };
        w->pv(s + at, n_heads, &page, o);
    }
}

/* Joins one partition to the state (M, L) = ml[0..1] and O = y. */
static void join(const struct wave *w, float *ml, float *y, float m, float l, const float *o) {
    float n = ml[0] > m ? ml[0] : m;
    float a = sl_expf(ml[0] - n), b = sl_expf(m - n);
    ml[0] = n;
    ml[1] = fmaf(ml[1], a, l * b);
    w->cpu->k.merge(y, a, o, b, w->a->kv.head_dim_v);
}

static void start(const struct wave *w, float *ml, float *y) {
    ml[0] = -INFINITY;
    ml[1] = 0;
    memset(y, 0, w->a->kv.head_dim_v * sizeof *y);
}

static void finish(const struct wave *w, uint32_t head, const float *ml, float *y) {
    float l = ml[1], a = 1.0f;
    if (w->a->sinks) {
        float sink = w->a->sinks[head];
        float n = ml[0] > sink ? ml[0] : sink;
        a = sl_expf(ml[0] - n);
        l = fmaf(l, a, sl_expf(sink - n));
    }
    float f = a * (1.0f / l);
    for (uint32_t i = 0; i < w->a->kv.head_dim_v; i++)
        y[i] *= f;
}

static float *row_y(const struct wave *w, uint32_t row, uint32_t head) {
    return w->a->y + ((size_t)row * w->a->n_heads + head) * w->a->kv.head_dim_v;
}

/* block: of the heads that share the KV head, which HEAD_BLOCK. */
static void compute(const struct wave *w, uint32_t thread, uint32_t slot, uint32_t kv_head,
                    uint32_t block) {
    const struct sl_op_attention *a = w->a;
    struct sl_cpu_attn_item it = w->mem.items[slot];
    uint32_t group = a->n_heads / a->kv.n_kv_heads, g = block * HEAD_BLOCK, first, end;
    row_parts(a, &w->mem.choice, it.row, &first, &end);
    uint32_t n = group - g < HEAD_BLOCK ? group - g : HEAD_BLOCK;
    uint32_t head = kv_head * group + g;
    size_t at = (size_t)slot * a->n_heads + head;
    float *o = w->mem.part_o + at * a->kv.head_dim_v;
    float *m = w->mem.part_m + at, *l = w->mem.part_l + at;
    if (sl_cpu_attn_chooses(a, &w->mem.choice, it.row))
        attend_chosen(w, thread, it.row, it.part, kv_head, head, n, m, l, o);
    else
        attend(w, it.row, it.part, kv_head, head, n, m, l, o);
    if (end - first > 1)
        return;
    for (uint32_t h = 0; h < n; h++) { /* alone: nothing to wait for */
        float ml[2], *y = row_y(w, it.row, head + h);
        start(w, ml, y);
        join(w, ml, y, m[h], l[h], o + (size_t)h * a->kv.head_dim_v);
        finish(w, head + h, ml, y);
    }
}

/* All of the wave's partitions of one row, for one head. index counts the rows with several. */
static void join_row(const struct wave *w, uint32_t index, uint32_t head) {
    const struct sl_op_attention *a = w->a;
    uint32_t slot = w->mem.row_slot[index];
    uint32_t row = w->mem.items[slot].row, first, end;
    row_parts(a, &w->mem.choice, row, &first, &end);
    float *y = row_y(w, row, head);
    float *ml = w->mem.state + ((size_t)row * a->n_heads + head) * 2;
    for (; slot < w->n_items && w->mem.items[slot].row == row; slot++) {
        size_t at = (size_t)slot * a->n_heads + head;
        uint32_t part = w->mem.items[slot].part;
        if (part == first)
            start(w, ml, y);
        join(w, ml, y, w->mem.part_m[at], w->mem.part_l[at], w->mem.part_o + at * a->kv.head_dim_v);
        if (part + 1 == end)
            finish(w, head, ml, y);
    }
}

static void wave_thread(void *ctx, uint32_t thread, uint32_t n_threads) {
    (void)n_threads;
    const struct wave *w = ctx;
    struct sl_pool *pool = w->cpu->pool;
    uint32_t n_kv = w->a->kv.n_kv_heads, n_heads = w->a->n_heads;
    uint32_t blocks = (n_heads / n_kv + HEAD_BLOCK - 1) / HEAD_BLOCK, each = n_kv * blocks;
    for (uint32_t c; (c = sl_pool_next(pool, w->n_items * each)) != UINT32_MAX;)
        compute(w, thread, c / each, c % each / blocks, c % blocks);
    if (!w->n_rows)
        return;
    sl_pool_barrier(pool);
    for (uint32_t c; (c = sl_pool_next(pool, w->n_rows * n_heads)) != UINT32_MAX;)
        join_row(w, c / n_heads, c % n_heads);
}

static void run_wave(struct wave *w) {
    if (!w->n_items)
        return;
    sl_pool_run(w->cpu->pool, wave_thread, w);
    w->n_items = w->n_rows = 0;
}

void sl_cpu_attention_rows(struct sl_cpu *cpu, const struct sl_op_attention *a,
                           const uint32_t *rows, uint32_t n_rows,
                           const struct sl_cpu_attn_scratch *mem) {
    bool f16 = a->kv.dtype == SL_DTYPE_F16;
    struct wave w = {.a = a,
                     .cpu = cpu,
                     .qk = f16 ? cpu->k.qk_f16 : cpu->k.qk_q8_0,
                     .pv = f16 ? cpu->k.pv_f16 : cpu->k.pv_q8_0,
                     .mem = *mem};
    for (uint32_t i = 0; i < n_rows; i++) {
        uint32_t first, end;
        row_parts(a, &mem->choice, rows[i], &first, &end);
        bool listed = false;
        for (uint32_t part = first; part < end; part++) {
            if (end - first > 1 && !listed)
                mem->row_slot[w.n_rows++] = w.n_items;
            listed = true;
            mem->items[w.n_items++] = (struct sl_cpu_attn_item){rows[i], part};
            if (w.n_items == SL_CPU_ATTN_SLOTS) {
                run_wave(&w);
                listed = false;
            }
        }
    }
    run_wave(&w);
}
