/* sl_op_hadamard, sl_op_index_choose and sl_op_chosen_attention. */
#include "tests/conformance/paged_rows.h"
#include "backends/ops/attention.h"
#include "backends/ops/elementwise.h"
#include "backends/ops/index.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Of a table for much longer sequences: make_rows()'s rows have more scores than a device has room
 * for at once (64 MiB). */
#define WIDE_PAGES 2700u

/* ---- rotation ---- */

struct rotation {
    uint32_t n_rows, n;
    const float *x;
};

static void run_rotation(struct sl_device *d, const void *ctx, void *out) {
    const struct rotation *r = ctx;
    size_t bytes = (size_t)r->n_rows * r->n * sizeof(float);
    float *x = conf_put(d, r->x, bytes);
    conf_ok(sl_op_hadamard(d, &(struct sl_op_hadamard){.x = x, .n_rows = r->n_rows, .n = r->n}));
    conf_get(d, out, x, bytes);
}

/* H[i][j] is -1 to the number of bits that i and j share. */
static void check_rotation(const char *what, const struct rotation *r, const float *y) {
    double *ref = malloc(r->n * sizeof *ref), *tol = malloc(r->n * sizeof *tol);
    for (uint32_t t = 0; t < r->n_rows; t++) {
        double size = 0;
        for (uint32_t j = 0; j < r->n; j++)
            size += fabs((double)r->x[t * r->n + j]);
        for (uint32_t i = 0; i < r->n; i++) {
            ref[i] = 0;
            for (uint32_t j = 0; j < r->n; j++)
                ref[i] += (__builtin_popcount(i & j) % 2 ? -1 : 1) * (double)r->x[t * r->n + j];
            ref[i] /= sqrt(r->n);
            tol[i] = size / sqrt(r->n) * 16 * 0x1p-24 + 1e-40;
        }
        conf_near(what, y + (size_t)t * r->n, ref, tol, r->n);
    }
    free(ref), free(tol);
}

static void rotations(void) {
    static const uint32_t sizes[] = {1, 2, 4, 16, 64, 128, 512};
    conf_needs_op(SL_OP_hadamard);
    for (uint32_t kind = 0; kind < CONF_N_FILL; kind++)
        for (size_t i = 0; i < CONF_COUNT(sizes); i++) {
            struct rotation r = {.n_rows = 1 + 7 * (uint32_t)i, .n = sizes[i]};
            struct sl_rng rng = {kind * 100 + i};
            size_t n = (size_t)r.n_rows * r.n;
            float *x = conf_host(n * sizeof *x), *y = conf_host(n * sizeof *y);
            char what[80];
            conf_fill(&rng, (enum conf_fill)kind, x, n);
            r.x = x;
            snprintf(what, sizeof what, "hadamard, %u rows of %u, inputs %u", r.n_rows, r.n, kind);
            conf_tolerance(1e-5f);
            conf_case(what, run_rotation, &r, CONF_F32, n, y);
            if (conf_checking())
                check_rotation(what, &r, y);
        }
}

static uint32_t n_chosen(const struct row *row, uint32_t n_top) {
    return row->len < n_top ? row->len : n_top;
}

/* ---- choice ---- */

struct choice {
    struct store keys;
    uint32_t n_heads, n_top, n_rows, n_decode, max_pages;
    const struct row *rows;
    const float *q, *w;
};

/* The keys' pages in a table of the choice's width; what is behind them names no page. */
static const uint32_t *put_table(struct sl_device *d, const struct choice *c) {
    size_t bytes = (size_t)N_SEQ * c->max_pages * sizeof(uint32_t);
    uint32_t *table = malloc(bytes);
    memset(table, 0xff, bytes);
    for (uint32_t seq = 0; seq < N_SEQ; seq++)
        memcpy(table + (size_t)seq * c->max_pages, c->keys.page_table + seq * MAX_PAGES,
               MAX_PAGES * sizeof *table);
    const uint32_t *put = conf_put(d, table, bytes);
    free(table);
    return put;
}

/* Of rows [first, first + n); what is behind a row's choice is UINT32_MAX in out. */
static void choose(struct sl_device *d, const struct choice *c, const struct sl_latent_view *kv,
                   uint32_t first, uint32_t n, uint32_t *out) {
    uint32_t seq[400], len[400], n_decode = c->n_decode > first ? c->n_decode - first : 0;
    size_t n_q = (size_t)c->n_heads * c->keys.n_latent;
    for (uint32_t i = 0; i < n; i++)
        seq[i] = c->rows[first + i].seq, len[i] = c->rows[first + i].len;
    uint32_t *chosen = conf_put(d, NULL, (size_t)n * c->n_top * sizeof *chosen);
    conf_ok(sl_op_index_choose(
        d, &(struct sl_op_index_choose){
               .keys = *kv,
               .q = conf_put(d, c->q + first * n_q, n * n_q * sizeof(float)),
               .w = conf_put(d, c->w + (size_t)first * c->n_heads, n * c->n_heads * sizeof(float)),
               .chosen = chosen,
               .page_table = put_table(d, c),
               .row_seq = conf_put(d, seq, n * sizeof *seq),
               .row_len = conf_put(d, len, n * sizeof *len),
               .n_tok = n,
               .n_decode = n_decode < n ? n_decode : n,
               .n_heads = c->n_heads,
               .max_pages = c->max_pages,
               .n_top = c->n_top}));
    conf_get(d, out, chosen, (size_t)n * c->n_top * sizeof *chosen);
}

static void run_choice(struct sl_device *d, const void *ctx, void *out) {
    const struct choice *c = ctx;
    struct sl_latent_view kv = write_rows(d, &c->keys);
    choose(d, c, &kv, 0, c->n_rows, out);
}

/* In double precision: no position that is left out may be better than one that is in, but for
 * rounding; of two with the same key the lower goes first. */
static void check_choice(const char *what, const struct choice *c, const uint32_t *y) {
    double *score = malloc(MAX_LEN * sizeof *score), *slack = malloc(MAX_LEN * sizeof *slack);
    bool *in = malloc(MAX_LEN * sizeof *in);
    uint32_t dim = c->keys.n_latent;
    for (uint32_t r = 0; r < c->n_rows; r += 1 + c->n_rows / 9) {
        uint32_t len = c->rows[r].len, n = n_chosen(&c->rows[r], c->n_top);
        const float *keys = c->keys.x[c->rows[r].seq];
        const uint32_t *chosen = y + (size_t)r * c->n_top;
        memset(in, 0, MAX_LEN * sizeof *in);
        for (uint32_t i = 0; i < n; i++) {
            if (chosen[i] >= len || (i && chosen[i] <= chosen[i - 1]))
                fail_msg("%s: row %u of %u positions chooses %u behind %u", what, r, len, chosen[i],
                         i ? chosen[i - 1] : 0);
            in[chosen[i]] = true;
        }
        if (c->keys.dtype != SL_DTYPE_F16)
            continue;
        for (uint32_t j = 0; j < len; j++) {
            score[j] = slack[j] = 0;
            for (uint32_t h = 0; h < c->n_heads; h++) {
                const float *q = c->q + ((size_t)r * c->n_heads + h) * dim;
                double w = (double)c->w[(size_t)r * c->n_heads + h], dot = 0, size = 0;
                for (uint32_t i = 0; i < dim; i++) {
                    double m = (double)q[i] * stored(keys[(size_t)j * dim + i]);
                    dot += m, size += fabs(m);
                }
                score[j] += w * fmax(dot, 0);
                slack[j] += fabs(w) * size * (dim / 16.0 + 6 + c->n_heads) * 0x1p-24;
            }
        }
        double least = INFINITY, most = -INFINITY;
        for (uint32_t j = 0; j < len; j++) {
            if (in[j])
                least = fmin(least, score[j] + slack[j]);
            else
                most = fmax(most, score[j] - slack[j]);
        }
        if (most > least)
            fail_msg("%s: row %u leaves out a score of %g and takes one of %g", what, r, most,
                     least);
        for (uint32_t j = 0; j < len && n < len; j++)
            for (uint32_t i = 0; i < j && in[j]; i++)
                if (!in[i] &&
                    memcmp(keys + (size_t)i * dim, keys + (size_t)j * dim, dim * sizeof *keys) == 0)
                    fail_msg("%s: row %u takes position %u and not %u, whose key is the same", what,
                             r, j, i);
    }
    free(score), free(slack), free(in);
}

/* A row alone, and in a slice of another size, makes the choice that it makes among all. */
static void check_choice_slices(const char *what, const struct choice *c, const uint32_t *all) {
    struct sl_device *d = conf_device();
    size_t n = (size_t)c->n_rows * c->n_top;
    uint32_t *part = malloc(n * sizeof *part);
    struct sl_latent_view kv = write_rows(d, &c->keys);
    for (uint32_t at = 0, rows; at < c->n_rows; at = next_slice(at, rows, c->n_rows)) {
        rows = 1 + at % 7 < c->n_rows - at ? 1 + at % 7 : c->n_rows - at;
        choose(d, c, &kv, at, rows, part);
        for (uint32_t i = 0; i < rows; i++)
            if (memcmp(part + (size_t)i * c->n_top, all + (size_t)(at + i) * c->n_top,
                       n_chosen(&c->rows[at + i], c->n_top) * sizeof *all) != 0)
                fail_msg("%s: row %u chooses others when it goes alone", what, at + i);
    }
    free(part);
}

static void choice_case(enum sl_dtype dtype, uint32_t n_heads, uint32_t dim, uint32_t n_top,
                        const struct row *rows, uint32_t n_rows, enum conf_fill fill) {
    struct choice c = {.keys = {.dtype = dtype, .n_latent = dim},
                       .n_heads = n_heads,
                       .n_top = n_top,
                       .max_pages = MAX_PAGES,
                       .rows = rows,
                       .n_rows = n_rows,
                       .n_decode = n_rows == CONF_COUNT(rows_few) ? n_rows : 2};
    struct sl_rng rng = {n_heads * 1000u + dim + n_rows + (uint64_t)fill * 77777u};
    size_t n_q = (size_t)n_rows * n_heads * dim, n_w = (size_t)n_rows * n_heads;
    float *q = conf_host(n_q * sizeof *q), *w = conf_host(n_w * sizeof *w);
    uint32_t *y = conf_host((size_t)n_rows * n_top * sizeof *y);
    fill_store(&c.keys, rows, n_rows, fill, &rng);
    conf_fill(&rng, fill == CONF_WIDE ? CONF_PLAIN : fill, q, n_q);
    conf_fill(&rng, fill == CONF_WIDE ? CONF_PLAIN : fill, w, n_w);
    if (fill == CONF_EQUAL) /* whole keys that are the same */
        for (uint32_t seq = 0; seq < N_SEQ; seq++)
            for (uint32_t j = 3; j < c.keys.len[seq]; j++)
                memcpy((float *)(uintptr_t)c.keys.x[seq] + (size_t)j * dim,
                       c.keys.x[seq] + (size_t)(j % 3) * dim, dim * sizeof(float));
    c.q = q, c.w = w;
    char what[120];
    snprintf(what, sizeof what, "%s, %u rows, %u heads of %u, the best %u, inputs %u",
             sl_dtype_name(dtype), n_rows, n_heads, dim, n_top, (unsigned)fill);
    conf_case(what, run_choice, &c, CONF_U32, (size_t)n_rows * n_top, y);
    if (conf_checking())
        check_choice(what, &c, y);
    check_choice_slices(what, &c, y);
}

static void choices(void) {
    static const struct {
        enum sl_dtype dtype;
        uint32_t n_heads, dim, n_top;
    } shapes[] = {
        {SL_DTYPE_F16, 1, 17, 1},    {SL_DTYPE_F16, 4, 64, 64},      {SL_DTYPE_F16, 9, 40, 63},
        {SL_DTYPE_F16, 64, 128, 96}, {SL_DTYPE_Q8_0, 5, 96, 100},    {SL_DTYPE_F16, 3, 128, 600},
        {SL_DTYPE_F16, 41, 200, 90}, {SL_DTYPE_F16, 2, 24, MAX_LEN},
    };
    struct row mixed[128];
    uint32_t n_mixed = make_rows(mixed);
    conf_needs_op(SL_OP_index_choose);
    for (size_t i = 0; i < CONF_COUNT(shapes); i++) {
        choice_case(shapes[i].dtype, shapes[i].n_heads, shapes[i].dim, shapes[i].n_top, rows_few,
                    CONF_COUNT(rows_few), CONF_PLAIN);
        choice_case(shapes[i].dtype, shapes[i].n_heads, shapes[i].dim, shapes[i].n_top, mixed,
                    n_mixed, CONF_PLAIN);
    }
    choice_case(SL_DTYPE_F16, 4, 64, 50, rows_few, CONF_COUNT(rows_few), CONF_EQUAL);
    choice_case(SL_DTYPE_F16, 4, 64, 50, mixed, n_mixed, CONF_EQUAL);
    choice_case(SL_DTYPE_F16, 4, 64, 50, rows_few, CONF_COUNT(rows_few), CONF_DENORMAL);
    choice_case(SL_DTYPE_F16, 4, 64, 50, rows_few, CONF_COUNT(rows_few), CONF_SPIKES);
}

static void run_wide_choice(struct sl_device *d, const void *ctx, void *out) {
    configure(d, WIDE_PAGES);
    run_choice(d, ctx, out);
    configure(d, MAX_PAGES);
}

/* The last rows' scores go where those of the first were. */
static void waves_of_scores(void) {
    enum { DIM = 32, HEADS = 2, TOP = 60 };
    struct row mixed[128];
    struct choice c = {.keys = {.dtype = SL_DTYPE_F16, .n_latent = DIM},
                       .n_heads = HEADS,
                       .n_top = TOP,
                       .n_rows = make_rows(mixed),
                       .n_decode = 2,
                       .max_pages = WIDE_PAGES,
                       .rows = mixed};
    struct sl_rng rng = {WIDE_PAGES};
    float *q = conf_host((size_t)c.n_rows * HEADS * DIM * sizeof *q);
    float *w = conf_host((size_t)c.n_rows * HEADS * sizeof *w);
    uint32_t *y = conf_host((size_t)c.n_rows * TOP * sizeof *y);
    conf_needs_op(SL_OP_index_choose);
    assert_true((uint64_t)c.n_rows * WIDE_PAGES * PAGE * sizeof(float) > 64 << 20);
    fill_store(&c.keys, mixed, c.n_rows, CONF_PLAIN, &rng);
    conf_fill(&rng, CONF_PLAIN, q, (size_t)c.n_rows * HEADS * DIM);
    conf_fill(&rng, CONF_PLAIN, w, (size_t)c.n_rows * HEADS);
    c.q = q, c.w = w;
    conf_case("more scores than are kept at once", run_wide_choice, &c, CONF_U32,
              (size_t)c.n_rows * TOP, y);
    if (conf_checking())
        check_choice("more scores than are kept at once", &c, y);
}

/* What is not a number is below all numbers, minus infinity too; zeros of both signs are one. */
static void special_scores(void) {
    static const struct row rows[] = {{0, 200}};
    enum { DIM = 2, TOP = 100 };
    struct choice c = {.keys = {.dtype = SL_DTYPE_F16, .n_latent = DIM},
                       .n_heads = 1,
                       .n_top = TOP,
                       .max_pages = MAX_PAGES,
                       .rows = rows,
                       .n_rows = 1,
                       .n_decode = 1};
    float *x = conf_host(200 * DIM * sizeof *x), *q = conf_host(DIM * sizeof *q);
    float *w = conf_host(sizeof *w);
    uint32_t *y = conf_host(TOP * sizeof *y);
    conf_needs_op(SL_OP_index_choose);
    c.keys.page_table = scattered_pages();
    c.keys.len[0] = 200;
    for (uint32_t j = 0; j < 200; j++) { /* scores are -0, nothing but zeros, or -1 */
        x[j * DIM] = j % 2 ? 1.0f : -1.0f;
        x[j * DIM + 1] = 0;
    }
    q[0] = 1, q[1] = 0, *w = -1;
    for (uint32_t seq = 0; seq < N_SEQ; seq++)
        c.keys.x[seq] = x;
    c.q = q, c.w = w;
    conf_case("scores of -0 and -1", run_choice, &c, CONF_U32, TOP, y);
    for (uint32_t i = 0; i < TOP && conf_checking(); i++)
        assert_int_equal(y[i], 2 * i);
    *w = NAN;
    conf_case("scores that are no numbers", run_choice, &c, CONF_U32, TOP, y);
    for (uint32_t i = 0; i < TOP && conf_checking(); i++)
        assert_int_equal(y[i], i);
}

/* ---- attention ---- */

struct attn {
    struct store kv;
    uint32_t n_heads, n_top, n_rows, n_decode;
    const struct row *rows;
    const float *q;
    const uint32_t *chosen; /* [n_rows, n_top] */
};

static float scale_of(const struct attn *c) {
    return 0.3f / sqrtf((float)c->kv.n_latent);
}

static void attend(struct sl_device *d, const struct attn *c, const struct sl_latent_view *kv,
                   uint32_t first, uint32_t n, float *out) {
    uint32_t seq[400], len[400], n_decode = c->n_decode > first ? c->n_decode - first : 0;
    size_t n_q = (size_t)c->n_heads * (c->kv.n_latent + c->kv.n_rot);
    size_t n_y = (size_t)n * c->n_heads * c->kv.n_latent;
    for (uint32_t i = 0; i < n; i++)
        seq[i] = c->rows[first + i].seq, len[i] = c->rows[first + i].len;
    float *y = conf_put(d, NULL, n_y * sizeof *y);
    conf_ok(sl_op_chosen_attention(
        d, &(struct sl_op_chosen_attention){
               .kv = *kv,
               .q = conf_put(d, c->q + first * n_q, n * n_q * sizeof(float)),
               .y = y,
               .chosen = conf_put(d, c->chosen + (size_t)first * c->n_top,
                                  (size_t)n * c->n_top * sizeof(uint32_t)),
               .page_table = conf_put(d, c->kv.page_table, N_SEQ * MAX_PAGES * sizeof(uint32_t)),
               .row_seq = conf_put(d, seq, n * sizeof *seq),
               .row_len = conf_put(d, len, n * sizeof *len),
               .n_tok = n,
               .n_decode = n_decode < n ? n_decode : n,
               .n_heads = c->n_heads,
               .max_pages = MAX_PAGES,
               .n_top = c->n_top,
               .scale = scale_of(c)}));
    conf_get(d, out, y, n_y * sizeof *y);
}

static void run_attention(struct sl_device *d, const void *ctx, void *out) {
    const struct attn *c = ctx;
    struct sl_latent_view kv = write_rows(d, &c->kv);
    attend(d, c, &kv, 0, c->n_rows, out);
}

/* The bits of sl_op_latent_attention over a sequence that has the chosen positions and no others.
 */
static void check_as_sequence(const char *what, const struct attn *c, uint32_t r, const float *y) {
    struct sl_device *d = conf_device();
    uint32_t dim = c->kv.n_latent + c->kv.n_rot, n = n_chosen(&c->rows[r], c->n_top), zero = 0;
    struct store own = {.dtype = c->kv.dtype,
                        .n_latent = c->kv.n_latent,
                        .n_rot = c->kv.n_rot,
                        .len = {n},
                        .page_table = c->kv.page_table};
    size_t n_q = (size_t)c->n_heads * dim, n_y = (size_t)c->n_heads * c->kv.n_latent;
    float *x = malloc((size_t)n * dim * sizeof *x), *out = malloc(n_y * sizeof *out);
    for (uint32_t i = 0; i < n; i++)
        memcpy(x + (size_t)i * dim,
               c->kv.x[c->rows[r].seq] + (size_t)c->chosen[(size_t)r * c->n_top + i] * dim,
               dim * sizeof *x);
    for (uint32_t seq = 0; seq < N_SEQ; seq++)
        own.x[seq] = x;
    struct sl_latent_view kv = write_rows(d, &own);
    float *dev_y = conf_put(d, NULL, n_y * sizeof *dev_y);
    conf_ok(sl_op_latent_attention(
        d, &(struct sl_op_latent_attention){
               .kv = kv,
               .q = conf_put(d, c->q + r * n_q, n_q * sizeof(float)),
               .y = dev_y,
               .page_table = conf_put(d, c->kv.page_table, N_SEQ * MAX_PAGES * sizeof(uint32_t)),
               .row_seq = conf_put(d, &zero, sizeof zero),
               .row_len = conf_put(d, &n, sizeof n),
               .n_tok = 1,
               .n_decode = r < c->n_decode,
               .n_heads = c->n_heads,
               .max_pages = MAX_PAGES,
               .scale = scale_of(c)}));
    conf_get(d, out, dev_y, n_y * sizeof *out);
    if (memcmp(out, y + r * n_y, n_y * sizeof *out) != 0)
        fail_msg("%s: row %u differs from attention over a sequence of what it has chosen", what,
                 r);
    free(x), free(out);
}

static void attention_case(enum sl_dtype dtype, uint32_t n_heads, uint32_t n_latent, uint32_t n_rot,
                           uint32_t n_top, const struct row *rows, uint32_t n_rows) {
    struct attn c = {.kv = {.dtype = dtype, .n_latent = n_latent, .n_rot = n_rot},
                     .n_heads = n_heads,
                     .n_top = n_top,
                     .rows = rows,
                     .n_rows = n_rows,
                     .n_decode = n_rows == CONF_COUNT(rows_few) ? n_rows : 2};
    struct sl_rng rng = {n_heads * 1000u + n_latent + n_rows};
    size_t n_q = (size_t)n_rows * n_heads * (n_latent + n_rot);
    size_t row_n = (size_t)n_heads * n_latent, n_y = n_rows * row_n;
    float *q = conf_host(n_q * sizeof *q), *y = conf_host(n_y * sizeof *y);
    uint32_t *chosen = conf_host((size_t)n_rows * n_top * sizeof *chosen);
    fill_store(&c.kv, rows, n_rows, CONF_PLAIN, &rng);
    conf_fill(&rng, CONF_PLAIN, q, n_q);
    for (size_t i = 0; i < n_q; i++)
        q[i] *= 4;
    for (uint32_t r = 0; r < n_rows; r++) /* of the positions left as many as are wanted */
        for (uint32_t j = 0, at = 0, n = n_chosen(&rows[r], n_top); at < n; j++)
            if (sl_rng_below(&rng, rows[r].len - j) < n - at)
                chosen[(size_t)r * n_top + at++] = j;
    c.q = q, c.chosen = chosen;
    char what[120];
    snprintf(what, sizeof what, "%s, %u rows, %u heads of %u + %u, %u chosen", sl_dtype_name(dtype),
             n_rows, n_heads, n_latent, n_rot, n_top);
    conf_tolerance(1e-5f);
    conf_case(what, run_attention, &c, CONF_F32, n_y, y);
    for (uint32_t r = 0; r < n_rows; r += 1 + n_rows / 12)
        check_as_sequence(what, &c, r, y);
    struct sl_device *d = conf_device();
    struct sl_latent_view kv = write_rows(d, &c.kv);
    float *part = malloc(n_y * sizeof *part);
    for (uint32_t at = 0, n; at < n_rows; at = next_slice(at, n, n_rows)) {
        n = 1 + at % 7 < n_rows - at ? 1 + at % 7 : n_rows - at;
        attend(d, &c, &kv, at, n, part);
        if (memcmp(part, y + at * row_n, n * row_n * sizeof *part) != 0)
            fail_msg("%s: rows %u to %u differ when they go alone", what, at, at + n);
    }
    free(part);
}

static void attention(void) {
    static const struct {
        enum sl_dtype dtype;
        uint32_t n_heads, n_latent, n_rot, n_top;
    } shapes[] = {
        {SL_DTYPE_F16, 1, 17, 2, 1},     {SL_DTYPE_F16, 5, 96, 16, 64},
        {SL_DTYPE_F16, 16, 40, 24, 70},  {SL_DTYPE_Q8_0, 5, 96, 32, 50},
        {SL_DTYPE_F16, 20, 64, 64, 530}, {SL_DTYPE_F16, 9, 512, 64, 100},
    };
    struct row mixed[128];
    uint32_t n_mixed = make_rows(mixed);
    conf_needs_op(SL_OP_chosen_attention);
    for (size_t i = 0; i < CONF_COUNT(shapes); i++) {
        /* The last ones, with more shared memory than every GPU has. */
        struct sl_err err;
        const struct sl_op_need need = {.op = SL_OP_chosen_attention,
                                        .dtype = shapes[i].dtype,
                                        .head_dim_k = shapes[i].n_latent + shapes[i].n_rot,
                                        .head_dim_v = shapes[i].n_latent};
        if (shapes[i].n_latent == 512 && sl_device_need(conf_device(), &need, &err) != SL_OK)
            return;
        attention_case(shapes[i].dtype, shapes[i].n_heads, shapes[i].n_latent, shapes[i].n_rot,
                       shapes[i].n_top, rows_few, CONF_COUNT(rows_few));
        attention_case(shapes[i].dtype, shapes[i].n_heads, shapes[i].n_latent, shapes[i].n_rot,
                       shapes[i].n_top, mixed, n_mixed);
    }
}

int main(int argc, char **argv) {
    static const struct conf_test tests[] = {{"rotations", rotations},
                                             {"choices", choices},
                                             {"waves of scores", waves_of_scores},
                                             {"special scores", special_scores},
                                             {"attention", attention}};
    return conf_main(argc, argv, "index", &limits, tests, CONF_COUNT(tests));
}
