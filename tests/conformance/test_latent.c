/* sl_op_latent_write, sl_op_latent_attention and sl_op_head_matmul. */
#include "backends/cpu/matmul/formats.h"
#include "backends/ops/attention.h"
#include "backends/ops/matmul.h"
#include "tests/conformance/conformance.h"
#include "tests/conformance/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct sl_device_limits limits = {
    .max_tok = 400, .max_heads = 40, .max_head_dim = 1088, .max_head_n = 1024};

#define N_SEQ     4u
#define MAX_PAGES 20u
#define PAGE      SL_KV_PAGE_TOKENS

/* ---- attention ---- */

struct shape {
    enum sl_dtype dtype;
    uint32_t n_heads, n_latent, n_rot, window;
};

struct row {
    uint32_t seq, len;
};

struct attn_case {
    struct shape s;
    const float *q;
    const float *c[N_SEQ]; /* [len, n_latent + n_rot] */
    uint32_t len[N_SEQ];
    const uint32_t *page_table;
    const struct row *rows;
    uint32_t n_rows, n_decode;
};

/* What no sequence wrote is NaN. */
static struct sl_latent_view write_latents(struct sl_device *d, const struct attn_case *c) {
    uint32_t dim = c->s.n_latent + c->s.n_rot;
    struct sl_latent_view kv = {.dtype = c->s.dtype,
                                .n_latent = c->s.n_latent,
                                .n_rot = c->s.n_rot,
                                .page_bytes = PAGE * sl_dtype_row_bytes(c->s.dtype, dim)};
    kv.rows = conf_put(d, NULL, N_SEQ * MAX_PAGES * kv.page_bytes);
    for (uint32_t seq = 0; seq < N_SEQ; seq++) {
        uint32_t len = c->len[seq];
        if (!len)
            continue;
        uint32_t *slot = malloc(len * sizeof *slot);
        for (uint32_t i = 0; i < len; i++)
            slot[i] = c->page_table[seq * MAX_PAGES + i / PAGE] * PAGE + i % PAGE;
        const float *x = conf_put(d, c->c[seq], (size_t)len * dim * sizeof(float));
        const uint32_t *slots = conf_put(d, slot, len * sizeof *slot);
        free(slot);
        for (uint32_t at = 0; at < len; at += limits.max_tok)
            conf_ok(sl_op_latent_write(
                d, &(struct sl_op_latent_write){.kv = kv,
                                                .x = x + (size_t)at * dim,
                                                .slot = slots + at,
                                                .n_tok = len - at < limits.max_tok ? len - at
                                                                                   : limits.max_tok,
                                                .stride = dim}));
    }
    return kv;
}

static void attend(struct sl_device *d, const struct attn_case *c, const struct sl_latent_view *kv,
                   uint32_t first, uint32_t n, float *out) {
    size_t n_q = (size_t)c->s.n_heads * (c->s.n_latent + c->s.n_rot);
    size_t n_y = (size_t)n * c->s.n_heads * c->s.n_latent;
    uint32_t seq[256], len[256], n_decode = c->n_decode > first ? c->n_decode - first : 0;
    for (uint32_t i = 0; i < n; i++)
        seq[i] = c->rows[first + i].seq, len[i] = c->rows[first + i].len;
    float *y = conf_put(d, NULL, n_y * sizeof *y);
    conf_ok(sl_op_latent_attention(
        d, &(struct sl_op_latent_attention){
               .kv = *kv,
               .q = conf_put(d, c->q + first * n_q, n * n_q * sizeof(float)),
               .y = y,
               .page_table = conf_put(d, c->page_table, N_SEQ * MAX_PAGES * sizeof(uint32_t)),
               .row_seq = conf_put(d, seq, n * sizeof *seq),
               .row_len = conf_put(d, len, n * sizeof *len),
               .n_tok = n,
               .n_decode = n_decode < n ? n_decode : n,
               .n_heads = c->s.n_heads,
               .max_pages = MAX_PAGES,
               .scale = 0.3f / sqrtf((float)c->s.n_latent),
               .window = c->s.window}));
    conf_get(d, out, y, n_y * sizeof *y);
}

static void run_attention(struct sl_device *d, const void *ctx, void *out) {
    const struct attn_case *c = ctx;
    struct sl_latent_view kv = write_latents(d, c);
    attend(d, c, &kv, 0, c->n_rows, out);
}

/* A row as a reader of its page sees it. */
static void stored(enum sl_dtype dtype, const float *x, uint32_t n, double *out) {
    for (uint32_t i = 0; i < n; i++) {
        if (dtype == SL_DTYPE_F16) {
            out[i] = (double)sl_f16_to_f32(sl_f32_to_f16(x[i]));
            continue;
        }
        float most = 0;
        for (uint32_t j = i / 32 * 32; j < i / 32 * 32 + 32; j++)
            most = fmaxf(most, fabsf(x[j]));
        double d = (double)sl_f16_to_f32(sl_f32_to_f16(most / 127));
        double q = d > 0 ? nearbyint((double)(x[i] * (float)(1 / (float)d))) : 0;
        out[i] = d * fmax(-127, fmin(127, q));
    }
}

/* Against softmax in double. */
static void check_attention(const char *what, const struct attn_case *c, const float *y) {
    const struct shape *s = &c->s;
    uint32_t dim = s->n_latent + s->n_rot;
    double *latent = malloc(MAX_PAGES * PAGE * dim * sizeof *latent);
    double *p = malloc(MAX_PAGES * PAGE * sizeof *p);
    double *ref = malloc(s->n_latent * sizeof *ref), *tol = malloc(s->n_latent * sizeof *tol);
    double scale = (double)(0.3f / sqrtf((float)s->n_latent));
    for (uint32_t r = 0; r<c->n_rows; r += c->n_rows> 16 ? 13 : 1) {
        uint32_t seq = c->rows[r].seq, len = c->rows[r].len;
        uint32_t lo = s->window && len > s->window ? len - s->window : 0;
        for (uint32_t j = lo; j < len; j++)
            stored(s->dtype, c->c[seq] + (size_t)j * dim, dim, latent + (size_t)j * dim);
        for (uint32_t h = 0; h < s->n_heads; h += 1 + s->n_heads / 4) {
            const float *q = c->q + ((size_t)r * s->n_heads + h) * dim;
            double max = -INFINITY, err = 0, sum = 0;
            for (uint32_t j = lo; j < len; j++) {
                double dot = 0, mag = 0;
                for (uint32_t i = 0; i < dim; i++) {
                    double m = (double)q[i] * latent[(size_t)j * dim + i];
                    dot += m;
                    mag += fabs(m);
                }
                p[j] = dot * scale;
                max = fmax(max, p[j]);
                err = fmax(err, mag * scale);
            }
            for (uint32_t i = 0; i < s->n_latent; i++)
                ref[i] = tol[i] = 0;
            for (uint32_t j = lo; j < len; j++) {
                double e = exp(p[j] - max);
                sum += e;
                for (uint32_t i = 0; i < s->n_latent; i++) {
                    ref[i] += e * latent[(size_t)j * dim + i];
                    tol[i] += e * fabs(latent[(size_t)j * dim + i]);
                }
            }
            double rel =
                2 * (err * (dim / 16.0 + 6) + fabs(max) + 1) * 0x1p-24 + (len + 16.0) * 0x1p-24;
            for (uint32_t i = 0; i < s->n_latent; i++) {
                ref[i] /= sum;
                tol[i] = rel * tol[i] / sum + 1e-30;
            }
            conf_near(what, y + ((size_t)r * s->n_heads + h) * s->n_latent, ref, tol, s->n_latent);
        }
    }
    free(latent), free(p), free(ref), free(tol);
}

/* Not every GPU has windows, nor as much shared memory as long latents take. */
static bool has(const struct shape *s) {
    const struct sl_op_need need = {.op = SL_OP_latent_attention,
                                    .dtype = s->dtype,
                                    .head_dim_k = s->n_latent + s->n_rot,
                                    .head_dim_v = s->n_latent,
                                    .window = s->window != 0};
    struct sl_err err;
    return sl_device_need(conf_device(), &need, &err) == SL_OK;
}

/* A row alone, and in a slice of another size, gives the bits that it has among all. */
static void check_slices(const char *what, const struct attn_case *c, const float *all) {
    struct sl_device *d = conf_device();
    size_t row_n = (size_t)c->s.n_heads * c->s.n_latent;
    float *part = malloc(c->n_rows * row_n * sizeof *part);
    struct sl_latent_view kv = write_latents(d, c);
    /* Of many rows one in three is in a slice. */
    for (uint32_t at = 0, n; at < c->n_rows; at += n * (c->n_rows > 40 ? 3 : 1)) {
        n = 1 + at % 7;
        n = n < c->n_rows - at ? n : c->n_rows - at;
        attend(d, c, &kv, at, n, part);
        if (memcmp(part, all + at * row_n, n * row_n * sizeof *all) != 0)
            fail_msg("%s: rows %u to %u differ when they go alone", what, at, at + n);
    }
    free(part);
}

static void attention_case(const struct shape *s, const struct row *rows, uint32_t n_rows,
                           uint32_t n_decode) {
    uint32_t dim = s->n_latent + s->n_rot;
    struct sl_rng rng = {s->n_heads * 1000u + dim + n_rows};
    struct attn_case c = {.s = *s, .rows = rows, .n_rows = n_rows, .n_decode = n_decode};
    uint32_t *table = conf_host(N_SEQ * MAX_PAGES * sizeof *table);
    for (uint32_t i = 0; i < N_SEQ * MAX_PAGES; i++) /* 37 is prime to 80 */
        table[i] = (i * 37u + 5u) % (N_SEQ * MAX_PAGES);
    c.page_table = table;
    for (uint32_t r = 0; r < n_rows; r++)
        c.len[rows[r].seq] = rows[r].len > c.len[rows[r].seq] ? rows[r].len : c.len[rows[r].seq];
    for (uint32_t seq = 0; seq < N_SEQ; seq++) {
        size_t n = (size_t)c.len[seq] * dim;
        float *x = conf_host((n + 1) * sizeof *x);
        conf_fill(&rng, CONF_PLAIN, x, n);
        c.c[seq] = x;
    }
    size_t n_q = (size_t)n_rows * s->n_heads * dim, n_y = (size_t)n_rows * s->n_heads * s->n_latent;
    float *q = conf_host(n_q * sizeof *q), *y = conf_host(n_y * sizeof *y);
    conf_fill(&rng, CONF_PLAIN, q, n_q);
    for (size_t i = 0; i < n_q; i++)
        q[i] *= 4;
    c.q = q;
    char what[120];
    snprintf(what, sizeof what, "%s, %u rows (%u generated), %u heads of %u + %u, window %u",
             sl_dtype_name(s->dtype), n_rows, n_decode, s->n_heads, s->n_latent, s->n_rot,
             s->window);
    conf_tolerance(1e-5f);
    conf_needs_form(has(s));
    conf_case(what, run_attention, &c, CONF_F32, n_y, y);
    if (!has(s))
        return;
    if (!conf_same_bits())
        check_attention(what, &c, y);
    check_slices(what, &c, y);
}

static void attention(void) {
    conf_needs_op(SL_OP_latent_attention);
    static const struct shape shapes[] = {
        {SL_DTYPE_F16, 1, 17, 2, 0},     {SL_DTYPE_F16, 5, 96, 16, 0},
        {SL_DTYPE_F16, 16, 40, 24, 0},   {SL_DTYPE_F16, 37, 48, 0, 0},
        {SL_DTYPE_Q8_0, 5, 96, 32, 0},   {SL_DTYPE_Q8_0, 20, 64, 64, 0},
        {SL_DTYPE_F16, 5, 40, 16, 1},    {SL_DTYPE_F16, 30, 48, 16, 33},
        {SL_DTYPE_Q8_0, 5, 96, 32, 128}, {SL_DTYPE_F16, 3, 96, 16, 600},
        {SL_DTYPE_F16, 3, 512, 64, 0},   {SL_DTYPE_F16, 35, 512, 64, 0},
        {SL_DTYPE_F16, 3, 512, 64, 70},  {SL_DTYPE_F16, 19, 1024, 64, 513},
        {SL_DTYPE_F16, 2, 1024, 64, 0},  {SL_DTYPE_Q8_0, 9, 1024, 64, 100},
        {SL_DTYPE_F16, 5, 1024, 64, 40},
    };
    /* Lengths around pages and partitions; then generated rows before two slices of prompts. */
    static const struct row generated[] = {{0, 1},   {1, 64},  {2, 65},  {3, 511},
                                           {0, 512}, {1, 513}, {2, 700}, {3, 1030}};
    struct row mixed[2 + 11 + 30] = {{3, 77}, {2, 600}};
    for (uint32_t i = 0; i < 11; i++)
        mixed[2 + i] = (struct row){0, 1 + i};
    for (uint32_t i = 0; i < 30; i++)
        mixed[13 + i] = (struct row){1, 495 + i};
    /* More pairs of row and head than a tile has, over chunks and pages, of two sequences. */
    static const struct row few[] = {{3, 77}, {0, 1},  {0, 2},   {0, 3},   {1, 31}, {1, 32},
                                     {1, 33}, {1, 34}, {2, 127}, {2, 128}, {2, 129}};
    for (size_t i = 0; i < CONF_COUNT(shapes); i++) {
        if (shapes[i].n_latent >= 512)
            attention_case(&shapes[i], few, CONF_COUNT(few), 1);
        if (shapes[i].n_heads == 35)
            continue;
        attention_case(&shapes[i], generated, CONF_COUNT(generated), CONF_COUNT(generated));
        if (shapes[i].n_latent < 512 && shapes[i].n_heads < 37)
            attention_case(&shapes[i], mixed, CONF_COUNT(mixed), 2);
    }
}

/* ---- products per head ---- */

struct product {
    enum sl_dtype dtype;
    uint32_t n_tok, n_heads, n_in, n_out, n_keep, gap_x, gap_y, gap_rows;
    bool transposed;
};
struct product_case {
    struct product p;
    const float *x;
    const uint8_t *w;
    size_t head_bytes, w_bytes;
};

static size_t y_elems(const struct product *p) {
    return (size_t)p->n_tok * p->n_heads * (p->n_out + p->n_keep + p->gap_y);
}

/* Of rows [first, first + n). Elements between heads of y stay as they were. */
static void multiply(struct sl_device *d, const struct product_case *c, uint32_t first, uint32_t n,
                     float *out) {
    const struct product *p = &c->p;
    uint32_t stride_x = p->n_in + p->n_keep + p->gap_x, stride_y = p->n_out + p->n_keep + p->gap_y;
    size_t n_x = (size_t)n * p->n_heads * stride_x, n_y = (size_t)n * p->n_heads * stride_y;
    float *zero = calloc(n_y, sizeof *zero);
    float *y = conf_put(d, zero, n_y * sizeof *y);
    free(zero);
    conf_ok(sl_op_head_matmul(
        d, &(struct sl_op_head_matmul){
               .x = conf_put(d, c->x + (size_t)first * p->n_heads * stride_x, n_x * sizeof(float)),
               .y = y,
               .w = conf_put(d, c->w, c->w_bytes),
               .dtype = p->dtype,
               .head_bytes = c->head_bytes,
               .n_tok = n,
               .n_decode = n < 3 ? n : 0,
               .n_heads = p->n_heads,
               .n_in = p->n_in,
               .n_out = p->n_out,
               .n_keep = p->n_keep,
               .stride_x = stride_x,
               .stride_y = stride_y,
               .transposed = p->transposed}));
    conf_get(d, out, y, n_y * sizeof *y);
}

static void run_product(struct sl_device *d, const void *ctx, void *out) {
    const struct product_case *c = ctx;
    multiply(d, c, 0, c->p.n_tok, out);
}

/* Against a product in double; quantised types round their inputs too, to 8 bits of the largest of
 * a block. */
static void check_product(const char *what, const struct product_case *c, const float *y) {
    const struct product *p = &c->p;
    uint32_t stride_x = p->n_in + p->n_keep + p->gap_x, stride_y = p->n_out + p->n_keep + p->gap_y;
    uint32_t n_row = p->transposed ? p->n_out : p->n_in,
             n_rows = p->transposed ? p->n_in : p->n_out;
    bool exact = p->transposed || sl_dtype_is_float(p->dtype);
    float *w = malloc((size_t)n_rows * n_row * sizeof *w);
    double *ref = malloc(stride_y * sizeof *ref), *tol = malloc(stride_y * sizeof *tol);
    for (uint32_t h = 0; h < p->n_heads; h++) {
        for (uint32_t i = 0; i < n_rows; i++)
            sl_dequantize_row(p->dtype,
                              c->w + h * c->head_bytes + i * sl_dtype_row_bytes(p->dtype, n_row),
                              n_row, w + (size_t)i * n_row);
        for (uint32_t t = 0; t < p->n_tok; t += 1 + p->n_tok / 5) {
            const float *x = c->x + ((size_t)t * p->n_heads + h) * stride_x;
            double most = 0;
            for (uint32_t i = 0; i < p->n_in; i++)
                most = fmax(most, fabs((double)x[i]));
            for (uint32_t o = 0; o < stride_y; o++) {
                double sum = 0, mag = 0, size = 0;
                for (uint32_t i = 0; i < p->n_in && o < p->n_out; i++) {
                    double v = (double)(p->transposed ? w[(size_t)i * n_row + o]
                                                      : w[(size_t)o * n_row + i]);
                    sum += v * (double)x[i];
                    mag += fabs(v * (double)x[i]);
                    size += fabs(v);
                }
                bool kept = o >= p->n_out && o < p->n_out + p->n_keep;
                ref[o] = o < p->n_out ? sum : kept ? (double)x[p->n_in + o - p->n_out] : 0;
                tol[o] = mag * (p->n_in + 8.0) * 0x1p-24 + (exact ? 0 : size * most / 127) + 1e-30;
            }
            conf_near(what, y + ((size_t)t * p->n_heads + h) * stride_y, ref, tol, stride_y);
        }
    }
    free(w), free(ref), free(tol);
}

static void check_product_slices(const char *what, const struct product_case *c, const float *all) {
    struct sl_device *d = conf_device();
    size_t n_y = y_elems(&c->p), row_n = n_y / c->p.n_tok;
    float *part = malloc(n_y * sizeof *part);
    for (uint32_t at = 0, n; at < c->p.n_tok; at += n) {
        n = 1 + at % 17;
        n = n < c->p.n_tok - at ? n : c->p.n_tok - at;
        multiply(d, c, at, n, part);
        if (memcmp(part, all + at * row_n, n * row_n * sizeof *all) != 0)
            fail_msg("%s: rows %u to %u differ when they go alone", what, at, at + n);
    }
    free(part);
}

static void product_case(const struct product *p) {
    struct sl_rng rng = {p->n_tok * 100u + p->n_in + p->dtype};
    uint32_t n_row = p->transposed ? p->n_out : p->n_in,
             n_rows = p->transposed ? p->n_in : p->n_out;
    size_t row_bytes = sl_dtype_row_bytes(p->dtype, n_row);
    struct product_case c = {.p = *p, .head_bytes = (n_rows + p->gap_rows) * row_bytes};
    c.w_bytes = (p->n_heads - 1) * c.head_bytes + n_rows * row_bytes;
    uint32_t all_rows = (uint32_t)(c.w_bytes / row_bytes);
    uint8_t *w = conf_host(c.w_bytes);
    weights_fill(&rng, p->dtype, WEIGHTS_PLAIN, w, (uint64_t)all_rows * n_row);
    c.w = w;
    size_t n_x = (size_t)p->n_tok * p->n_heads * (p->n_in + p->n_keep + p->gap_x);
    float *x = conf_host(n_x * sizeof *x), *y = conf_host(y_elems(p) * sizeof *y);
    conf_fill(&rng, CONF_PLAIN, x, n_x);
    c.x = x;
    char what[120];
    snprintf(what, sizeof what, "%s%s, %u rows, %u heads, %u to %u and %u kept",
             sl_dtype_name(p->dtype), p->transposed ? " transposed" : "", p->n_tok, p->n_heads,
             p->n_in, p->n_out, p->n_keep);
    conf_tolerance(1e-5f);
    conf_needs(p->dtype);
    conf_case(what, run_product, &c, CONF_F32, y_elems(p), y);
    if (conf_lacks(p->dtype))
        return;
    if (!conf_same_bits())
        check_product(what, &c, y);
    check_product_slices(what, &c, y);
}

static void products(void) {
    conf_needs_op(SL_OP_head_matmul);
    static const struct product cases[] = {
        {SL_DTYPE_F32, 1, 3, 24, 96, 16, 0, 0, 0, false},
        {SL_DTYPE_F32, 30, 5, 7, 1, 0, 3, 2, 1, false},
        {SL_DTYPE_F32, 300, 2, 40, 33, 6, 0, 1, 0, false}, /* more than one group of rows */
        {SL_DTYPE_F32, 9, 3, 24, 50, 4, 0, 0, 20, true},
        {SL_DTYPE_F16, 4, 2, 128, 300, 8, 0, 0, 0, false},
        {SL_DTYPE_F16, 17, 3, 20, 64, 0, 1, 0, 5, true},
        {SL_DTYPE_BF16, 20, 2, 48, 40, 0, 0, 0, 0, false},
        {SL_DTYPE_Q8_0, 1, 4, 128, 512, 32, 0, 0, 0, false},
        {SL_DTYPE_Q8_0, 2, 4, 96, 40, 0, 0, 0, 7, false},
        {SL_DTYPE_Q8_0, 50, 3, 512, 64, 0, 0, 0, 0, false},
        {SL_DTYPE_Q8_0, 13, 3, 24, 96, 16, 0, 0, 40, true},
        {SL_DTYPE_Q4_0, 260, 2, 64, 48, 2, 0, 0, 0, false},
        {SL_DTYPE_Q4_K, 1, 2, 512, 130, 0, 0, 0, 0, false},
        {SL_DTYPE_Q4_K, 14, 3, 256, 70, 0, 0, 0, 3, false},
        {SL_DTYPE_Q4_K, 10, 2, 30, 256, 4, 0, 0, 12, true},
        {SL_DTYPE_Q6_K, 25, 2, 256, 36, 0, 0, 0, 0, false},
        {SL_DTYPE_MXFP4, 6, 2, 96, 32, 0, 0, 0, 0, false},
    };
    for (size_t i = 0; i < CONF_COUNT(cases); i++)
        product_case(&cases[i]);
}

/* A GPU has a kernel for each, and for some types another one for many rows. */
static void products_of_types(void) {
    conf_needs_op(SL_OP_head_matmul);
    for (uint32_t t = 0; t < SL_DTYPE_COUNT; t++) {
        enum sl_dtype dtype = (enum sl_dtype)t;
        if (!sl_dtype_info(dtype))
            continue;
        const struct product few = {dtype, 3, 2, 256, 20, 4, 0, 0, 2, false},
                             many = {dtype, 40, 2, 256, 20, 0, 0, 0, 0, false},
                             turned = {dtype, 3, 2, 20, 256, 0, 0, 0, 3, true};
        product_case(&few);
        product_case(&many);
        product_case(&turned);
    }
}

int main(int argc, char **argv) {
    static const struct conf_test tests[] = {
        {"attention", attention}, {"products", products}, {"products of types", products_of_types}};
    return conf_main(argc, argv, "latent attention", &limits, tests, CONF_COUNT(tests));
}
