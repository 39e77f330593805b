/* sl_op_pool_keys, sl_op_pooled_choose and sl_op_pooled_attention. */
#include "tests/conformance/conformance.h"
#include "backends/ops/attention.h"
#include "backends/ops/pool.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_SEQ     2u
#define MAX_PAGES 9u
#define PAGE      SL_KV_PAGE_TOKENS
#define MAX_LEN   (MAX_PAGES * PAGE)

static const struct sl_device_limits limits = {
    .max_tok = 200, .max_heads = 40, .max_head_dim = 256, .max_scores = MAX_LEN};

static const uint32_t *scattered_pages(void) {
    uint32_t *table = conf_host(N_SEQ * MAX_PAGES * sizeof *table);
    for (uint32_t i = 0; i < N_SEQ * MAX_PAGES; i++)
        table[i] = (i * 5 + 3) % (N_SEQ * MAX_PAGES);
    return table;
}

/* ---- keys ---- */

struct keys {
    uint32_t n, ratio, n_freq, slice, len;
    const float *k, *norm, *inv_freq;
    const uint32_t *table, *state_table;
};

/* One sequence in slices: the bytes of its blocks' keys. */
static void run_keys(struct sl_device *d, const void *ctx, void *out) {
    const struct keys *c = ctx;
    size_t row = c->n * sizeof(uint16_t), page = PAGE / c->ratio * row;
    struct sl_op_pool_keys op = {
        .norm = conf_put(d, c->norm, c->n * sizeof(float)),
        .inv_freq = conf_put(d, c->inv_freq, c->n_freq * sizeof(float)),
        .state = {.pages = conf_put(d, NULL, N_SEQ * MAX_PAGES * c->n * sizeof(float)),
                  .page_bytes = c->n * sizeof(float),
                  .page_table = conf_put(d, c->state_table, N_SEQ * MAX_PAGES * 4),
                  .max_pages = MAX_PAGES},
        .out = {.rows = conf_put(d, NULL, N_SEQ * MAX_PAGES * page),
                .dtype = SL_DTYPE_F16,
                .n_latent = c->n,
                .page_bytes = page},
        .out_table = conf_put(d, c->table, N_SEQ * MAX_PAGES * 4),
        .n = c->n,
        .ratio = c->ratio,
        .n_freq = c->n_freq,
        .eps = 1e-6f,
        .mscale = 1};
    for (uint32_t at = 0, n; at < c->len; at += n) {
        uint32_t slot[200], seq[200], len[200];
        n = c->len - at < c->slice ? c->len - at : c->slice;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t p = at + i;
            slot[i] = c->state_table[MAX_PAGES + p / PAGE] * PAGE + p % PAGE;
            seq[i] = 1, len[i] = p + 1;
        }
        op.k = conf_put(d, c->k + (size_t)at * c->n, (size_t)n * c->n * sizeof(float));
        op.state.slot = conf_put(d, slot, n * sizeof *slot);
        op.state.row_seq = conf_put(d, seq, n * sizeof *seq);
        op.state.row_len = conf_put(d, len, n * sizeof *len);
        op.n_tok = n;
        conf_ok(sl_op_pool_keys(d, &op));
    }
    uint32_t rows = PAGE / c->ratio;
    for (uint32_t b = 0; b < c->len / c->ratio; b++)
        conf_get(d, (char *)out + b * row,
                 (const char *)op.out.rows + c->table[MAX_PAGES + b / rows] * page + b % rows * row,
                 row);
}

static void check_keys(const struct keys *c, const uint16_t *got) {
    for (uint32_t b = 0; b < c->len / c->ratio; b++) {
        double y[256], square = 0;
        for (uint32_t i = 0; i < c->n; i++) {
            y[i] = 0;
            for (uint32_t j = 0; j < c->ratio; j++)
                y[i] += (double)c->k[((size_t)b * c->ratio + j) * c->n + i] / c->ratio;
            square += y[i] * y[i];
        }
        for (uint32_t i = 0; i < c->n; i++)
            y[i] *= (double)c->norm[i] / sqrt(square / c->n + 1e-6);
        for (uint32_t i = 0; i < c->n_freq; i++) {
            double u = y[i], v = y[i + c->n_freq];
            double angle = (double)(b * c->ratio) * (double)c->inv_freq[i];
            y[i] = u * cos(angle) - v * sin(angle);
            y[i + c->n_freq] = u * sin(angle) + v * cos(angle);
        }
        for (uint32_t i = 0; i < c->n; i++) {
            float have = sl_f16_to_f32(got[(size_t)b * c->n + i]);
            double tol = fabs(y[i]) * 0x1p-10 + 1e-5;
            conf_near("a block's key", &have, &y[i], &tol, 1);
        }
    }
}

static void block_keys(void) {
    static const uint32_t forms[][3] = {{128, 4, 32}, {40, 8, 10}, {17, 1, 0}, {64, 64, 32}};
    static const uint32_t slices[] = {200, 1, 7, 64};
    conf_needs_op(SL_OP_pool_keys);
    for (size_t k = 0; k < CONF_COUNT(forms); k++) {
        struct keys c = {.n = forms[k][0],
                         .ratio = forms[k][1],
                         .n_freq = forms[k][2],
                         .len = 333,
                         .table = scattered_pages()};
        struct sl_rng rng = {k + 5};
        uint32_t *states = conf_host(N_SEQ * MAX_PAGES * sizeof *states);
        for (uint32_t i = 0; i < N_SEQ * MAX_PAGES; i++) /* pages of states may be shared */
            states[i] = i / 2 * 2;
        float *x = conf_host((size_t)c.len * c.n * sizeof *x), *norm = conf_host(c.n * 4);
        float *freq = conf_host((c.n_freq + 1) * sizeof *freq);
        size_t bytes = c.len / c.ratio * (size_t)c.n * 2;
        uint8_t *y = conf_host(bytes), *whole = conf_host(bytes);
        conf_fill(&rng, CONF_PLAIN, x, (size_t)c.len * c.n);
        conf_fill(&rng, CONF_PLAIN, norm, c.n);
        conf_fill(&rng, CONF_PLAIN, freq, c.n_freq);
        c.k = x, c.norm = norm, c.inv_freq = freq, c.state_table = states;
        for (uint32_t i = 0; i < CONF_COUNT(slices); i++) {
            char what[96];
            c.slice = slices[i];
            snprintf(what, sizeof what, "keys of %u, blocks of %u, slices of %u", c.n, c.ratio,
                     c.slice);
            conf_case(what, run_keys, &c, CONF_U8, bytes, i ? y : whole);
            if (i && memcmp(y, whole, bytes) != 0)
                fail_msg("%s: the slices show", what);
        }
        if (conf_checking())
            check_keys(&c, (const uint16_t *)(const void *)whole);
    }
}

/* ---- choice ---- */

struct choice {
    uint32_t n, ratio, n_heads, n_top, n_rows, first;
    const uint16_t *keys; /* [MAX_LEN / ratio, n] of sequence 1 */
    const float *q;
    const uint32_t *table;
};

static uint32_t len_of(const struct choice *c, uint32_t r) {
    return c->first + r;
}

static void run_choice(struct sl_device *d, const void *ctx, void *out) {
    const struct choice *c = ctx;
    size_t row = c->n * sizeof(uint16_t), page = PAGE / c->ratio * row;
    char *keys = calloc(N_SEQ * MAX_PAGES, page);
    uint32_t rows = PAGE / c->ratio, seq[200], len[200], *got = out;
    for (uint32_t b = 0; b < MAX_LEN / c->ratio; b++)
        memcpy(keys + c->table[MAX_PAGES + b / rows] * page + b % rows * row,
               c->keys + (size_t)b * c->n, row);
    for (uint32_t r = 0; r < c->n_rows; r++)
        seq[r] = 1, len[r] = len_of(c, r);
    uint32_t *chosen = conf_put(d, NULL, (size_t)c->n_rows * c->n_top * sizeof *chosen);
    conf_ok(sl_op_pooled_choose(
        d, &(struct sl_op_pooled_choose){
               .keys = {.rows = conf_put(d, keys, N_SEQ * MAX_PAGES * page),
                        .dtype = SL_DTYPE_F16,
                        .n_latent = c->n,
                        .page_bytes = page},
               .q = conf_put(d, c->q, (size_t)c->n_rows * c->n_heads * c->n * sizeof(float)),
               .chosen = chosen,
               .page_table = conf_put(d, c->table, N_SEQ * MAX_PAGES * 4),
               .row_seq = conf_put(d, seq, c->n_rows * sizeof *seq),
               .row_len = conf_put(d, len, c->n_rows * sizeof *len),
               .n_tok = c->n_rows,
               .n_heads = c->n_heads,
               .max_pages = MAX_PAGES,
               .n_top = c->n_top,
               .ratio = c->ratio}));
    conf_get(d, got, chosen, (size_t)c->n_rows * c->n_top * sizeof *got);
    for (uint32_t r = 0; r < c->n_rows; r++) /* what is behind them is not written */
        for (uint32_t i = len[r] / c->ratio; i < c->n_top; i++)
            got[(size_t)r * c->n_top + i] = UINT32_MAX;
    free(keys);
}

/* Small whole numbers: no sum is rounded, and many are equal. */
static void check_choice(const struct choice *c, const uint32_t *got) {
    for (uint32_t r = 0; r < c->n_rows; r++) {
        uint32_t all = len_of(c, r) / c->ratio, n = all < c->n_top ? all : c->n_top;
        double score[MAX_LEN];
        for (uint32_t b = 0; b < all; b++) {
            score[b] = 0;
            for (uint32_t h = 0; h < c->n_heads; h++) {
                double dot = 0;
                for (uint32_t i = 0; i < c->n; i++)
                    dot += (double)c->q[((size_t)r * c->n_heads + h) * c->n + i] *
                           (double)sl_f16_to_f32(c->keys[(size_t)b * c->n + i]);
                score[b] += dot > 0 ? dot : 0;
            }
        }
        for (uint32_t b = 0, at = 0; b < all; b++) {
            uint32_t before = 0;
            for (uint32_t o = 0; o < all; o++)
                before += score[o] > score[b] || (score[o] == score[b] && o < b);
            if (before >= n)
                continue;
            if (got[(size_t)r * c->n_top + at++] != b)
                fail_msg("row %u of %u positions lacks block %u", r, len_of(c, r), b);
        }
    }
}

static void choices(void) {
    static const uint32_t forms[][5] = {/* n, ratio, heads, top, rows */
                                        {128, 4, 4, 20, 100},
                                        {40, 8, 11, 5, 1},
                                        {64, 1, 3, 64, 7},
                                        {32, 64, 1, 2, 150}};
    conf_needs_op(SL_OP_pooled_choose);
    for (size_t k = 0; k < CONF_COUNT(forms); k++) {
        const uint32_t *f = forms[k];
        struct choice c = {.n = f[0],
                           .ratio = f[1],
                           .n_heads = f[2],
                           .n_top = f[3],
                           .n_rows = f[4],
                           .table = scattered_pages()};
        struct sl_rng rng = {k + 50};
        size_t n_keys = MAX_LEN / c.ratio * (size_t)c.n, n_q = (size_t)c.n_rows * c.n_heads * c.n;
        uint16_t *keys = conf_host(n_keys * sizeof *keys);
        float *q = conf_host(n_q * sizeof *q);
        uint32_t *y = conf_host((size_t)c.n_rows * c.n_top * sizeof *y);
        for (size_t i = 0; i < n_keys; i++)
            keys[i] = sl_f32_to_f16((float)sl_rng_below(&rng, 5) - 2);
        for (size_t i = 0; i < n_q; i++)
            q[i] = (float)sl_rng_below(&rng, 5) - 2;
        c.keys = keys, c.q = q;
        for (uint32_t i = 0; i < 3; i++) {
            char what[96];
            c.first = i == 0 ? 1 : i == 1 ? c.n_top * c.ratio / 2 + 1 : MAX_LEN - c.n_rows;
            snprintf(what, sizeof what, "%u rows from %u on, %u of blocks of %u", c.n_rows, c.first,
                     c.n_top, c.ratio);
            conf_case(what, run_choice, &c, CONF_U32, (size_t)c.n_rows * c.n_top, y);
            if (conf_checking())
                check_choice(&c, y);
        }
    }
}

/* ---- attention ---- */

struct attn {
    enum sl_dtype dtype;
    uint32_t n_heads, n_kv, dim, ratio, n_top, n_rows, first;
    const float *q, *k, *v; /* k, v [len, n_kv, dim] of sequence 1 */
    const uint32_t *chosen, *table;
};

static struct sl_kv_view put_kv(struct sl_device *d, const struct attn *c, const float *k,
                                const float *v, uint32_t len) {
    size_t row = (size_t)c->n_kv * c->dim;
    struct sl_kv_view kv = {.dtype = c->dtype,
                            .n_kv_heads = c->n_kv,
                            .head_dim_k = c->dim,
                            .head_dim_v = c->dim,
                            .k_page_bytes = PAGE * c->n_kv * sl_dtype_row_bytes(c->dtype, c->dim),
                            .v_page_bytes = PAGE * c->n_kv * sl_dtype_row_bytes(c->dtype, c->dim)};
    kv.k = conf_put(d, NULL, N_SEQ * MAX_PAGES * kv.k_page_bytes);
    kv.v = conf_put(d, NULL, N_SEQ * MAX_PAGES * kv.v_page_bytes);
    for (uint32_t at = 0, n; at < len; at += n) {
        uint32_t slot[200];
        n = len - at < 200 ? len - at : 200;
        for (uint32_t i = 0; i < n; i++)
            slot[i] = c->table[MAX_PAGES + (at + i) / PAGE] * PAGE + (at + i) % PAGE;
        conf_ok(sl_op_kv_write(
            d, &(struct sl_op_kv_write){.kv = kv,
                                        .k = conf_put(d, k + at * row, n * row * sizeof(float)),
                                        .v = conf_put(d, v + at * row, n * row * sizeof(float)),
                                        .slot = conf_put(d, slot, n * sizeof *slot),
                                        .n_tok = n,
                                        .stride_k = (uint32_t)row,
                                        .stride_v = (uint32_t)row}));
    }
    return kv;
}

static void run_attention(struct sl_device *d, const void *ctx, void *out) {
    const struct attn *c = ctx;
    uint32_t seq[200], len[200];
    size_t row = (size_t)c->n_heads * c->dim;
    for (uint32_t r = 0; r < c->n_rows; r++)
        seq[r] = 1, len[r] = c->first + r;
    float *y = conf_put(d, NULL, c->n_rows * row * sizeof *y);
    conf_ok(sl_op_pooled_attention(
        d, &(struct sl_op_pooled_attention){
               {.kv = put_kv(d, c, c->k, c->v, c->first + c->n_rows - 1),
                .q = conf_put(d, c->q, c->n_rows * row * sizeof(float)),
                .y = y,
                .chosen = conf_put(d, c->chosen, (size_t)c->n_rows * c->n_top * 4),
                .page_table = conf_put(d, c->table, N_SEQ * MAX_PAGES * 4),
                .row_seq = conf_put(d, seq, c->n_rows * sizeof *seq),
                .row_len = conf_put(d, len, c->n_rows * sizeof *len),
                .n_tok = c->n_rows,
                .n_heads = c->n_heads,
                .stride_q = (uint32_t)row,
                .max_pages = MAX_PAGES,
                .n_top = c->n_top,
                .block = c->ratio,
                .scale = 0.3f}}));
    conf_get(d, out, y, c->n_rows * row * sizeof *y);
}

/* The bits of sl_op_attention over a sequence of what the row attends to alone. */
static void check_row(const char *what, const struct attn *c, uint32_t r, const float *y) {
    struct sl_device *d = conf_device();
    uint32_t len = c->first + r, all = len / c->ratio, n = 0, one = 1;
    size_t kv_row = (size_t)c->n_kv * c->dim, row = (size_t)c->n_heads * c->dim;
    float *k = malloc(len * kv_row * sizeof *k), *v = malloc(len * kv_row * sizeof *v);
    float *ref = malloc(row * sizeof *ref);
    for (uint32_t p = 0; p < len; p++) {
        bool in = all <= c->n_top || p >= all * c->ratio;
        for (uint32_t i = 0; !in && i < c->n_top; i++)
            in = c->chosen[(size_t)r * c->n_top + i] == p / c->ratio;
        if (!in)
            continue;
        memcpy(k + n * kv_row, c->k + p * kv_row, kv_row * sizeof *k);
        memcpy(v + n++ * kv_row, c->v + p * kv_row, kv_row * sizeof *v);
    }
    float *out = conf_put(d, NULL, row * sizeof *out);
    conf_ok(sl_op_attention(
        d, &(struct sl_op_attention){.kv = put_kv(d, c, k, v, n),
                                     .q = conf_put(d, c->q + r * row, row * sizeof(float)),
                                     .y = out,
                                     .page_table = conf_put(d, c->table, N_SEQ * MAX_PAGES * 4),
                                     .row_seq = conf_put(d, &one, sizeof one),
                                     .row_len = conf_put(d, &n, sizeof n),
                                     .n_tok = 1,
                                     .n_heads = c->n_heads,
                                     .stride_q = (uint32_t)row,
                                     .max_pages = MAX_PAGES,
                                     .scale = 0.3f}));
    conf_get(d, ref, out, row * sizeof *ref);
    if (memcmp(ref, y + r * row, row * sizeof *ref) != 0)
        fail_msg("%s: row %u differs from attention over what it has chosen", what, r);
    free(k), free(v), free(ref);
}

static void attention_case(struct attn c) {
    struct sl_rng rng = {c.n_heads + c.ratio * 100u + c.first};
    size_t row = (size_t)c.n_heads * c.dim, n_q = c.n_rows * row;
    size_t n_k = (size_t)(c.first + c.n_rows) * c.n_kv * c.dim;
    float *q = conf_host(n_q * sizeof *q), *k = conf_host(n_k * sizeof *k);
    float *v = conf_host(n_k * sizeof *v), *y = conf_host(n_q * sizeof *y);
    uint32_t *chosen = conf_host((size_t)c.n_rows * c.n_top * sizeof *chosen);
    conf_fill(&rng, CONF_PLAIN, q, n_q);
    conf_fill(&rng, CONF_PLAIN, k, n_k);
    conf_fill(&rng, CONF_PLAIN, v, n_k);
    for (uint32_t r = 0; r < c.n_rows; r++) {
        uint32_t all = (c.first + r) / c.ratio, *at = chosen + (size_t)r * c.n_top;
        for (uint32_t b = 0, n = 0; all > c.n_top && n < c.n_top; b++)
            if (sl_rng_below(&rng, all - b) < c.n_top - n)
                at[n++] = b;
    }
    c.q = q, c.k = k, c.v = v, c.chosen = chosen, c.table = scattered_pages();
    char what[120];
    snprintf(what, sizeof what, "%s, %u rows from %u on, %u heads over %u, %u of blocks of %u",
             sl_dtype_name(c.dtype), c.n_rows, c.first, c.n_heads, c.n_kv, c.n_top, c.ratio);
    conf_case(what, run_attention, &c, CONF_F32, n_q, y);
    for (uint32_t r = 0; r < c.n_rows; r += 1 + c.n_rows / 9)
        check_row(what, &c, r, y);
}

static void attention(void) {
    conf_needs_op(SL_OP_pooled_attention);
    for (uint32_t i = 0; i < 2; i++) {
        enum sl_dtype dtype = i ? SL_DTYPE_Q8_0 : SL_DTYPE_F16;
        attention_case((struct attn){.dtype = dtype,
                                     .n_heads = 24,
                                     .n_kv = 2,
                                     .dim = 64,
                                     .ratio = 4,
                                     .n_top = 30,
                                     .n_rows = 60,
                                     .first = 100});
        attention_case((struct attn){.dtype = dtype,
                                     .n_heads = 6,
                                     .n_kv = 3,
                                     .dim = 96,
                                     .ratio = 8,
                                     .n_top = 40,
                                     .n_rows = 9,
                                     .first = MAX_LEN - 9});
        attention_case((struct attn){.dtype = dtype,
                                     .n_heads = 1,
                                     .n_kv = 1,
                                     .dim = 32,
                                     .ratio = 1,
                                     .n_top = 7,
                                     .n_rows = 1,
                                     .first = 500});
        attention_case((struct attn){.dtype = dtype,
                                     .n_heads = 4,
                                     .n_kv = 4,
                                     .dim = 32,
                                     .ratio = 64,
                                     .n_top = 2,
                                     .n_rows = 150,
                                     .first = 1});
    }
}

int main(int argc, char **argv) {
    static const struct conf_test tests[] = {
        {"keys of blocks", block_keys}, {"choice", choices}, {"attention", attention}};
    return conf_main(argc, argv, "pool", &limits, tests, CONF_COUNT(tests));
}
