/* sl_op_compress, sl_op_compressed_choose and sl_op_compressed_attention. */
#include "tests/conformance/conformance.h"
#include "backends/ops/compress.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_SEQ     3u
#define MAX_PAGES 24u
#define PAGE      SL_KV_PAGE_TOKENS
#define MAX_LEN   (MAX_PAGES * PAGE)
#define MAX_ROWS  400u

static const struct sl_device_limits limits = {
    .max_tok = MAX_ROWS, .max_heads = 70, .max_head_dim = 512, .max_scores = MAX_LEN};

static const uint32_t *scattered_pages(uint32_t step) {
    uint32_t *table = conf_host(N_SEQ * MAX_PAGES * sizeof *table);
    for (uint32_t i = 0; i < N_SEQ * MAX_PAGES; i++) /* steps are prime to 72 */
        table[i] = (i * step + 5u) % (N_SEQ * MAX_PAGES);
    return table;
}

/* ---- compression ---- */

struct compression {
    uint32_t n, ratio, n_freq, spread, slice;
    bool overlap;
    enum sl_dtype dtype;
    uint32_t len[N_SEQ];
    const float *kv[N_SEQ], *gate[N_SEQ], *ape, *norm, *inv_freq;
    const uint32_t *kept_table, *out_table;
};

static uint32_t width_of(const struct compression *c) {
    return c->overlap ? 2 * c->n : c->n;
}

static size_t out_row_bytes(const struct compression *c) {
    return sl_dtype_row_bytes(c->dtype, c->n);
}

static size_t all_rows_bytes(const struct compression *c) {
    size_t n = 0;
    for (uint32_t s = 0; s < N_SEQ; s++)
        n += c->len[s] / c->ratio * out_row_bytes(c);
    return n;
}

/* Sequences one behind the other, each in slices: the bytes of their blocks' rows, in order. */
static void run_compression(struct sl_device *d, const void *ctx, void *out) {
    const struct compression *c = ctx;
    uint32_t width = width_of(c), per_page = sl_block_rows(c->ratio);
    size_t kept_bytes = PAGE * 2 * (size_t)width * sizeof(float), row = out_row_bytes(c);
    size_t page_bytes = per_page * row, n_table = N_SEQ * MAX_PAGES * sizeof(uint32_t);
    struct sl_op_compress op = {
        .ape = conf_put(d, c->ape, c->ratio * (size_t)width * sizeof(float)),
        .norm = conf_put(d, c->norm, c->n * sizeof(float)),
        .inv_freq = conf_put(d, c->inv_freq, c->n_freq * sizeof(float)),
        .kept = conf_put(d, NULL, N_SEQ * MAX_PAGES * kept_bytes),
        .kept_bytes = kept_bytes,
        .out = {.dtype = c->dtype, .n_latent = c->n, .page_bytes = page_bytes},
        .kept_table = conf_put(d, c->kept_table, n_table),
        .out_table = conf_put(d, c->out_table, n_table),
        .n = c->n,
        .ratio = c->ratio,
        .max_pages = MAX_PAGES,
        .n_freq = c->n_freq,
        .spread = c->spread,
        .overlap = c->overlap,
        .eps = 1e-6f,
        .mscale = 1};
    op.out.rows = conf_put(d, NULL, N_SEQ * MAX_PAGES * page_bytes);
    for (uint32_t s = 0; s < N_SEQ; s++)
        for (uint32_t at = 0, n; at < c->len[s]; at += n) {
            uint32_t slot[MAX_ROWS], seq[MAX_ROWS], len[MAX_ROWS];
            n = c->len[s] - at < c->slice ? c->len[s] - at : c->slice;
            for (uint32_t i = 0; i < n; i++) {
                uint32_t p = at + i;
                slot[i] = c->kept_table[s * MAX_PAGES + p / PAGE] * PAGE + p % PAGE;
                seq[i] = s, len[i] = p + 1;
            }
            op.kv = conf_put(d, c->kv[s] + (size_t)at * width, (size_t)n * width * sizeof(float));
            op.gate =
                conf_put(d, c->gate[s] + (size_t)at * width, (size_t)n * width * sizeof(float));
            op.slot = conf_put(d, slot, n * sizeof *slot);
            op.row_seq = conf_put(d, seq, n * sizeof *seq);
            op.row_len = conf_put(d, len, n * sizeof *len);
            op.n_tok = n;
            conf_ok(sl_op_compress(d, &op));
        }
    char *to = out;
    for (uint32_t s = 0; s < N_SEQ; s++)
        for (uint32_t b = 0; b < c->len[s] / c->ratio; b++, to += row)
            conf_get(d, to,
                     (const char *)op.out.rows +
                         c->out_table[s * MAX_PAGES + sl_block_page(b, c->ratio)] * page_bytes +
                         b % per_page * row,
                     row);
}

static double value_at(enum sl_dtype dtype, const char *row, uint32_t i) {
    uint16_t h;
    if (dtype == SL_DTYPE_F16) {
        memcpy(&h, row + 2 * (size_t)i, sizeof h);
        return (double)sl_f16_to_f32(h);
    }
    const char *block = row + i / 32 * 34;
    memcpy(&h, block, sizeof h);
    return (double)sl_f16_to_f32(h) * (double)(int8_t)block[2 + i % 32];
}

/* In double precision: what block b of a sequence becomes. */
static void exact_block(const struct compression *c, uint32_t s, uint32_t b, double *y) {
    uint32_t n = c->n, width = width_of(c), end = (b + 1) * c->ratio;
    uint32_t back = c->overlap ? 2 * c->ratio : c->ratio, begin = end > back ? end - back : 0;
    double square = 0;
    for (uint32_t i = 0; i < n; i++) {
        double sum = 0, max = -INFINITY;
        y[i] = 0;
        for (int pass = 0; pass < 2; pass++)
            for (uint32_t p = begin; p < end; p++) {
                uint32_t at = i + (c->overlap && p >= end - c->ratio ? n : 0);
                double g = (double)c->gate[s][(size_t)p * width + at] +
                           (double)c->ape[p % c->ratio * width + at];
                if (!pass) {
                    max = fmax(max, g);
                    continue;
                }
                sum += exp(g - max);
                y[i] += exp(g - max) * (double)c->kv[s][(size_t)p * width + at];
            }
        y[i] /= sum;
        square += y[i] * y[i];
    }
    double by = 1 / sqrt(square / n + 1e-6);
    for (uint32_t i = 0; i < n; i++)
        y[i] *= by * (double)c->norm[i];
    for (uint32_t i = 0; i < c->n_freq; i++) {
        double *x = y + n - 2 * c->n_freq + 2 * i, u = x[0], v = x[1];
        double angle = (double)(end - c->ratio) * (double)c->inv_freq[i];
        x[0] = u * cos(angle) - v * sin(angle);
        x[1] = u * sin(angle) + v * cos(angle);
    }
    double old[512];
    memcpy(old, y, n * sizeof *y);
    for (uint32_t i = 0; c->spread && i < n; i++) {
        uint32_t first = i / c->spread * c->spread;
        y[i] = 0;
        for (uint32_t j = 0; j < c->spread; j++)
            y[i] += (__builtin_popcount((i - first) & j) % 2 ? -1 : 1) * old[first + j];
        y[i] /= sqrt(c->spread);
    }
}

static void check_compression(const char *what, const struct compression *c, const char *rows) {
    double y[512];
    for (uint32_t s = 0; s < N_SEQ; s++)
        for (uint32_t b = 0; b < c->len[s] / c->ratio; b++, rows += out_row_bytes(c)) {
            exact_block(c, s, b, y);
            double most = 0;
            for (uint32_t i = 0; i < c->n; i++)
                most = fmax(most, fabs(y[i]));
            double tol = most * (c->dtype == SL_DTYPE_F16 ? 0x1p-10 : 0.51 / 127) + 1e-5;
            for (uint32_t i = 0; i < c->n; i++)
                if (!(fabs(value_at(c->dtype, rows, i) - y[i]) <= tol))
                    fail_msg("%s: sequence %u, block %u, element %u is %g, exactly %g", what, s, b,
                             i, value_at(c->dtype, rows, i), y[i]);
        }
}

static void compressions(void) {
    static const struct {
        uint32_t n, ratio, n_freq, spread;
        bool overlap;
        enum sl_dtype dtype;
    } shapes[] = {{64, 4, 16, 0, true, SL_DTYPE_F16},       {40, 4, 7, 8, true, SL_DTYPE_F16},
                  {96, 128, 16, 0, false, SL_DTYPE_F16},    {512, 4, 32, 0, true, SL_DTYPE_Q8_0},
                  {160, 128, 80, 32, false, SL_DTYPE_Q8_0}, {33, 1, 4, 1, true, SL_DTYPE_F16},
                  {17, 64, 0, 0, false, SL_DTYPE_F16},      {32, 192, 3, 32, true, SL_DTYPE_F16}};
    conf_needs_op(SL_OP_compress);
    for (size_t k = 0; k < CONF_COUNT(shapes); k++) {
        struct compression c = {.n = shapes[k].n,
                                .ratio = shapes[k].ratio,
                                .n_freq = shapes[k].n_freq,
                                .spread = shapes[k].spread,
                                .overlap = shapes[k].overlap,
                                .dtype = shapes[k].dtype,
                                .len = {389, 3, 256},
                                .kept_table = scattered_pages(5),
                                .out_table = scattered_pages(7)};
        struct sl_rng rng = {k + 1};
        size_t width = width_of(&c);
        float *ape = conf_host(c.ratio * width * sizeof *ape);
        float *norm = conf_host(c.n * sizeof *norm),
              *freq = conf_host((c.n_freq + 1) * sizeof *freq);
        conf_fill(&rng, CONF_PLAIN, ape, c.ratio * width);
        conf_fill(&rng, CONF_PLAIN, norm, c.n);
        for (uint32_t i = 0; i < c.n_freq; i++)
            freq[i] = powf(100, -(float)i / (float)c.n_freq);
        for (uint32_t s = 0; s < N_SEQ; s++) {
            float *kv = conf_host(c.len[s] * width * sizeof *kv);
            float *gate = conf_host(c.len[s] * width * sizeof *gate);
            conf_fill(&rng, CONF_PLAIN, kv, c.len[s] * width);
            conf_fill(&rng, s ? CONF_PLAIN : CONF_SPIKES, gate, c.len[s] * width);
            c.kv[s] = kv, c.gate[s] = gate;
        }
        c.ape = ape, c.norm = norm, c.inv_freq = freq;
        size_t bytes = all_rows_bytes(&c);
        char *whole = conf_host(bytes + 1), *part = conf_host(bytes + 1), what[100];
        static const uint32_t slices[] = {MAX_ROWS, 7, 1, 130};
        for (size_t i = 0; i < CONF_COUNT(slices); i++) {
            c.slice = slices[i];
            snprintf(what, sizeof what, "%s, %u elements, blocks of %u%s, slices of %u",
                     sl_dtype_name(c.dtype), c.n, c.ratio, c.overlap ? " and before" : "", c.slice);
            conf_case(what, run_compression, &c, CONF_U8, bytes, i ? part : whole);
            if (i && memcmp(part, whole, bytes) != 0)
                fail_msg("%s: not the bits of one slice", what);
        }
        if (conf_checking())
            check_compression(what, &c, whole);
    }
}

/* ---- choice and attention ---- */

struct row {
    uint32_t seq, len;
};
static const struct row some_rows[] = {{0, 1},   {1, 4},   {2, 64},  {0, 65},   {1, 127},
                                       {1, 128}, {1, 129}, {2, 700}, {0, 1023}, {2, 1536}};

struct attention {
    enum sl_dtype dtype;
    uint32_t dim, n_heads, n_index_heads, index_dim, ratio, window, n_top, n_rows;
    const char *rows, *blocks, *keys; /* all pages */
    const float *q, *index_q, *index_w, *sinks;
    const uint32_t *table, *block_table;
    struct row row[32];
    bool generated; /* rows; else of a prompt */
};

static size_t row_bytes(const struct attention *c) {
    return sl_dtype_row_bytes(c->dtype, c->dim);
}

static const char *block_row(const struct attention *c, const char *pages, size_t bytes,
                             uint32_t seq, uint32_t b) {
    size_t page = c->block_table[seq * MAX_PAGES + sl_block_page(b, c->ratio)];
    uint32_t n = sl_block_rows(c->ratio);
    return pages + (page * n + b % n) * bytes;
}

/* Random values, without what is no number. */
static const char *random_pages(struct sl_rng *rng, enum sl_dtype dtype, uint32_t dim, size_t n) {
    size_t bytes = sl_dtype_row_bytes(dtype, dim);
    char *rows = conf_host(n * bytes);
    for (size_t r = 0; r < n; r++)
        for (uint32_t i = 0; i < dim; i++) {
            uint16_t h = sl_f32_to_f16((float)(sl_rng_unit(rng) * 2 - 1));
            if (dtype == SL_DTYPE_F16) {
                memcpy(rows + r * bytes + 2 * (size_t)i, &h, 2);
                continue;
            }
            uint16_t scale = sl_f32_to_f16(0.01f);
            memcpy(rows + r * bytes + i / 32 * 34, &scale, 2);
            rows[r * bytes + i / 32 * 34 + 2 + i % 32] = (char)sl_rng_below(rng, 255);
        }
    return rows;
}

/* Rows [first, first + n): choices, then attention to them, [n, n_heads, dim]. */
static void attend(struct sl_device *d, const struct attention *c, uint32_t first, uint32_t n,
                   uint32_t *out_chosen, float *out) {
    uint32_t seq[32], len[32], per_page = c->ratio ? sl_block_rows(c->ratio) : 1;
    size_t n_pages = N_SEQ * MAX_PAGES, key_bytes = 2 * (size_t)c->index_dim;
    size_t nq = (size_t)c->n_heads * c->dim, ni = (size_t)c->n_index_heads * c->index_dim;
    for (uint32_t i = 0; i < n; i++)
        seq[i] = c->row[first + i].seq, len[i] = c->row[first + i].len;
    const uint32_t *row_seq = conf_put(d, seq, n * sizeof *seq);
    const uint32_t *row_len = conf_put(d, len, n * sizeof *len);
    const uint32_t *blocks_at = conf_put(d, c->block_table, n_pages * sizeof(uint32_t));
    uint32_t *chosen = c->n_top ? conf_put(d, NULL, (size_t)n * c->n_top * sizeof *chosen) : NULL;
    if (c->n_top) {
        conf_ok(sl_op_compressed_choose(
            d, &(struct sl_op_compressed_choose){
                   .choice = {.keys = {.rows = conf_put(d, c->keys, n_pages * per_page * key_bytes),
                                       .dtype = SL_DTYPE_F16,
                                       .n_latent = c->index_dim,
                                       .page_bytes = per_page * key_bytes},
                              .q = conf_put(d, c->index_q + first * ni, n * ni * sizeof(float)),
                              .w = conf_put(d, c->index_w + (size_t)first * c->n_index_heads,
                                            n * c->n_index_heads * sizeof(float)),
                              .chosen = chosen,
                              .page_table = blocks_at,
                              .row_seq = row_seq,
                              .row_len = row_len,
                              .n_tok = n,
                              .n_decode = c->generated ? n : 0,
                              .n_heads = c->n_index_heads,
                              .max_pages = MAX_PAGES,
                              .n_top = c->n_top},
                   .ratio = c->ratio}));
        uint32_t *all = malloc((size_t)n * c->n_top * sizeof *all);
        conf_get(d, all, chosen, (size_t)n * c->n_top * sizeof *all);
        for (uint32_t i = 0; i < n * c->n_top; i++) /* behind a choice nothing is written */
            out_chosen[i] = i % c->n_top < len[i / c->n_top] / c->ratio ? all[i] : UINT32_MAX;
        free(all);
    }
    float *y = conf_put(d, NULL, n * nq * sizeof *y);
    struct sl_op_compressed_attention op = {
        .kv = {.rows = conf_put(d, c->rows, n_pages * PAGE * row_bytes(c)),
               .dtype = c->dtype,
               .n_latent = c->dim,
               .page_bytes = PAGE * row_bytes(c)},
        .blocks = {.dtype = c->dtype, .n_latent = c->dim, .page_bytes = per_page * row_bytes(c)},
        .q = conf_put(d, c->q + first * nq, n * nq * sizeof(float)),
        .sinks = c->sinks ? conf_put(d, c->sinks, c->n_heads * sizeof(float)) : NULL,
        .y = y,
        .chosen = chosen,
        .page_table = conf_put(d, c->table, n_pages * sizeof(uint32_t)),
        .block_table = blocks_at,
        .row_seq = row_seq,
        .row_len = row_len,
        .n_tok = n,
        .n_decode = c->generated ? n : 0,
        .n_heads = c->n_heads,
        .max_pages = MAX_PAGES,
        .window = c->window,
        .ratio = c->ratio,
        .n_top = c->n_top,
        .scale = 0.3f};
    if (c->ratio)
        op.blocks.rows = conf_put(d, c->blocks, n_pages * per_page * row_bytes(c));
    conf_ok(sl_op_compressed_attention(d, &op));
    conf_get(d, out, y, n * nq * sizeof *y);
}

static void run_attention(struct sl_device *d, const void *ctx, void *out) {
    const struct attention *c = ctx;
    uint32_t *chosen = malloc((size_t)c->n_rows * (c->n_top + 1) * sizeof *chosen);
    attend(d, c, 0, c->n_rows, chosen, out);
    free(chosen);
}

static void run_choice(struct sl_device *d, const void *ctx, void *out) {
    const struct attention *c = ctx;
    float *y = malloc((size_t)c->n_rows * c->n_heads * c->dim * sizeof *y);
    attend(d, c, 0, c->n_rows, out, y);
    free(y);
}

/* No block that is left out is better than one that is in, but for rounding. */
static void check_choice(const char *what, const struct attention *c, const uint32_t *y) {
    for (uint32_t r = 0; r < c->n_rows; r++) {
        uint32_t all = c->row[r].len / c->ratio, n = all < c->n_top ? all : c->n_top, next = 0;
        double least = INFINITY, most = -INFINITY;
        for (uint32_t b = 0; b < all; b++) {
            const char *key = block_row(c, c->keys, 2 * (size_t)c->index_dim, c->row[r].seq, b);
            double score = 0;
            for (uint32_t h = 0; h < c->n_index_heads; h++) {
                double dot = 0;
                for (uint32_t i = 0; i < c->index_dim; i++)
                    dot +=
                        (double)c->index_q[((size_t)r * c->n_index_heads + h) * c->index_dim + i] *
                        value_at(SL_DTYPE_F16, key, i);
                score += fmax(dot, 0) * (double)c->index_w[(size_t)r * c->n_index_heads + h];
            }
            bool in = next < n && y[(size_t)r * c->n_top + next] == b;
            next += in;
            *(in ? &least : &most) = in ? fmin(least, score) : fmax(most, score);
        }
        if (next != n || most > least + 1e-4 * (1 + fabs(least)))
            fail_msg("%s: row %u chooses %u blocks of %u, and leaves out %g for %g", what, r, next,
                     n, most, least);
    }
}

static void check_attention(const char *what, const struct attention *c, const uint32_t *chosen,
                            const float *y) {
    const char **at = malloc(2 * MAX_LEN * sizeof *at);
    double *p = malloc(2 * MAX_LEN * sizeof *p), *ref = malloc(c->dim * sizeof *ref);
    double *tol = malloc(c->dim * sizeof *tol);
    for (uint32_t r = 0; r < c->n_rows; r++) {
        uint32_t n = 0, all = c->ratio ? c->row[r].len / c->ratio : 0;
        uint32_t n_blocks = c->n_top && all > c->n_top ? c->n_top : all;
        for (uint32_t b = 0; b < n_blocks; b++)
            at[n++] = block_row(c, c->blocks, row_bytes(c), c->row[r].seq,
                                c->n_top ? chosen[(size_t)r * c->n_top + b] : b);
        uint32_t len = c->row[r].len, lo = len > c->window ? len - c->window : 0;
        for (uint32_t j = lo; j < len; j++)
            at[n++] = c->rows +
                      ((size_t)c->table[c->row[r].seq * MAX_PAGES + j / PAGE] * PAGE + j % PAGE) *
                          row_bytes(c);
        for (uint32_t h = 0; h < c->n_heads; h++) {
            const float *q = c->q + ((size_t)r * c->n_heads + h) * c->dim;
            double max = c->sinks ? (double)c->sinks[h] : -INFINITY, sum = 0;
            for (uint32_t j = 0; j < n; j++) {
                p[j] = 0;
                for (uint32_t i = 0; i < c->dim; i++)
                    p[j] += (double)q[i] * value_at(c->dtype, at[j], i);
                p[j] *= (double)0.3f;
                max = fmax(max, p[j]);
            }
            sum = c->sinks ? exp((double)c->sinks[h] - max) : 0;
            for (uint32_t j = 0; j < n; j++)
                sum += p[j] = exp(p[j] - max);
            for (uint32_t i = 0; i < c->dim; i++) {
                ref[i] = 0, tol[i] = 2e-5;
                for (uint32_t j = 0; j < n; j++)
                    ref[i] += p[j] / sum * value_at(c->dtype, at[j], i);
            }
            conf_near(what, y + ((size_t)r * c->n_heads + h) * c->dim, ref, tol, c->dim);
        }
    }
    free(at), free(p), free(ref), free(tol);
}

/* chosen [n_rows, n_top]; y, one [n_rows, n_heads, dim]: room. */
static void try_attention(const struct attention *c, uint32_t *chosen, float *y, float *one) {
    size_t row = (size_t)c->n_heads * c->dim;
    char what[120];
    snprintf(what, sizeof what, "%s, %u heads of %u, blocks of %u, the best %u, window %u%s",
             sl_dtype_name(c->dtype), c->n_heads, c->dim, c->ratio, c->n_top, c->window,
             c->generated ? ", generated" : "");
    if (c->n_top)
        conf_case(what, run_choice, c, CONF_U32, (size_t)c->n_rows * c->n_top, chosen);
    conf_tolerance(1e-5f);
    conf_case(what, run_attention, c, CONF_F32, c->n_rows * row, y);
    if (conf_checking()) {
        if (c->n_top)
            check_choice(what, c, chosen);
        check_attention(what, c, chosen, y);
    }
    for (uint32_t r = 0; conf_device() && r < c->n_rows; r++) { /* a row alone */
        uint32_t alone[512];
        attend(conf_device(), c, r, 1, alone, one);
        if (memcmp(one, y + r * row, row * sizeof *one) != 0)
            fail_msg("%s: row %u alone has other bits", what, r);
    }
}

static void attentions(void) {
    static const struct {
        enum sl_dtype dtype;
        uint32_t dim, n_heads, index_heads, index_dim, ratio, window, n_top;
        bool sinks;
    } shapes[] = {{SL_DTYPE_F16, 64, 4, 5, 32, 4, 128, 20, true},
                  {SL_DTYPE_F16, 40, 9, 0, 0, 128, 50, 0, true},
                  {SL_DTYPE_Q8_0, 96, 17, 3, 40, 4, 65, 300, false},
                  {SL_DTYPE_F16, 24, 3, 0, 0, 0, 77, 0, true},
                  {SL_DTYPE_F16, 512, 8, 16, 128, 4, 128, 37, true},
                  {SL_DTYPE_F16, 512, 70, 0, 0, 128, 100, 0, true},
                  {SL_DTYPE_F16, 512, 19, 0, 0, 0, 3, 0, false},
                  {SL_DTYPE_F16, 16, 1, 2, 8, 64, 1, 3, false},
                  {SL_DTYPE_Q8_0, 32, 2, 0, 0, 1, 600, 0, true}};
    conf_needs_op(SL_OP_compressed_attention);
    for (size_t k = 0; k < CONF_COUNT(shapes); k++) {
        struct attention c = {.dtype = shapes[k].dtype,
                              .dim = shapes[k].dim,
                              .n_heads = shapes[k].n_heads,
                              .n_index_heads = shapes[k].index_heads,
                              .index_dim = shapes[k].index_dim,
                              .ratio = shapes[k].ratio,
                              .window = shapes[k].window,
                              .n_top = shapes[k].n_top,
                              .n_rows = CONF_COUNT(some_rows),
                              .table = scattered_pages(5),
                              .block_table = scattered_pages(7)};
        struct sl_rng rng = {k + 77};
        size_t n_pages = N_SEQ * MAX_PAGES, per_page = c.ratio ? sl_block_rows(c.ratio) : 1;
        size_t nq = (size_t)c.n_rows * c.n_heads * c.dim;
        size_t ni = (size_t)c.n_rows * c.n_index_heads * c.index_dim;
        size_t nw = (size_t)c.n_rows * c.n_index_heads;
        float *q = conf_host(nq * sizeof *q), *iq = conf_host((ni + 1) * sizeof *iq);
        float *iw = conf_host((nw + 1) * sizeof *iw), *sinks = conf_host(c.n_heads * sizeof *sinks);
        float *y = conf_host(nq * sizeof *y), *one = conf_host(nq * sizeof *one);
        uint32_t *chosen = conf_host((size_t)c.n_rows * (c.n_top + 1) * sizeof *chosen);
        memcpy(c.row, some_rows, sizeof some_rows);
        conf_fill(&rng, CONF_PLAIN, q, nq);
        conf_fill(&rng, CONF_PLAIN, iq, ni);
        conf_fill(&rng, CONF_PLAIN, iw, nw);
        conf_fill(&rng, CONF_PLAIN, sinks, c.n_heads);
        c.rows = random_pages(&rng, c.dtype, c.dim, n_pages * PAGE);
        c.blocks = random_pages(&rng, c.dtype, c.dim, n_pages * per_page);
        c.keys = random_pages(&rng, SL_DTYPE_F16, c.index_dim, n_pages * per_page);
        c.q = q, c.index_q = iq, c.index_w = iw, c.sinks = shapes[k].sinks ? sinks : NULL;
        for (uint32_t generated = 0; generated < 2; generated++) {
            c.generated = generated;
            try_attention(&c, chosen, y, one);
        }
    }
}

int main(int argc, char **argv) {
    static const struct conf_test tests[] = {{"compress", compressions},
                                             {"compressed choice, attention", attentions}};
    return conf_main(argc, argv, "compressed", &limits, tests, CONF_COUNT(tests));
}
