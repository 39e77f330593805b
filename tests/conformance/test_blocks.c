/* sl_op_block_choose and sl_op_block_attention. */
#include "tests/conformance/paged_rows.h"
#include "tests/support/device_memory.h"
#include "backends/ops/attention.h"
#include "backends/ops/index.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- blocks ---- */

struct blocks {
    struct store keys;
    uint32_t n_heads, block, n_top, n_local, n_rows, n_decode;
    const struct row *rows;
    const float *q;
};

static uint32_t n_blocks(const struct row *row, uint32_t block) {
    return (row->len + block - 1) / block;
}

static void choose_blocks(struct sl_device *d, const struct blocks *c,
                          const struct sl_latent_view *kv, uint32_t first, uint32_t n,
                          uint32_t *out) {
    uint32_t seq[400], len[400], n_decode = c->n_decode > first ? c->n_decode - first : 0;
    size_t n_q = (size_t)c->n_heads * c->keys.n_latent, n_out = (size_t)n * c->n_heads * c->n_top;
    for (uint32_t i = 0; i < n; i++)
        seq[i] = c->rows[first + i].seq, len[i] = c->rows[first + i].len;
    uint32_t *chosen = conf_put(d, NULL, n_out * sizeof *chosen);
    conf_ok(sl_op_block_choose(
        d, &(struct sl_op_block_choose){
               .keys = *kv,
               .q = conf_put(d, c->q + first * n_q, n * n_q * sizeof(float)),
               .chosen = chosen,
               .page_table = conf_put(d, c->keys.page_table, N_SEQ * MAX_PAGES * sizeof(uint32_t)),
               .row_seq = conf_put(d, seq, n * sizeof *seq),
               .row_len = conf_put(d, len, n * sizeof *len),
               .n_tok = n,
               .n_decode = n_decode < n ? n_decode : n,
               .n_heads = c->n_heads,
               .max_pages = MAX_PAGES,
               .n_top = c->n_top,
               .n_local = c->n_local,
               .block = c->block}));
    conf_get(d, out, chosen, n_out * sizeof *chosen);
}

static void run_blocks(struct sl_device *d, const void *ctx, void *out) {
    const struct blocks *c = ctx;
    struct sl_latent_view kv = write_rows(d, &c->keys);
    choose_blocks(d, c, &kv, 0, c->n_rows, out);
}

/* One row's choice for one head, in double precision. */
static void check_block_row(const char *what, const struct blocks *c, uint32_t r, uint32_t h,
                            const uint32_t *chosen) {
    uint32_t dim = c->keys.n_latent, len = c->rows[r].len, all = n_blocks(&c->rows[r], c->block);
    uint32_t n = all < c->n_top ? all : c->n_top;
    const float *q = c->q + ((size_t)r * c->n_heads + h) * dim;
    const float *keys = c->keys.x[c->rows[r].seq];
    double least = INFINITY, most = -INFINITY;
    uint32_t taken = 0;
    for (uint32_t b = 0; b < all; b++) {
        double best = -INFINITY, slack = 0;
        bool in = taken < n && chosen[taken] == b;
        taken += in;
        if (n == all || b + c->n_local >= all) {
            if (!in)
                fail_msg("%s: row %u, head %u leaves out block %u of %u", what, r, h, b, all);
            continue;
        }
        for (uint32_t j = b * c->block; j < (b + 1) * c->block && j < len; j++) {
            double dot = 0, size = 0;
            for (uint32_t i = 0; i < dim; i++) {
                double m = (double)q[i] * stored(keys[(size_t)j * dim + i]);
                dot += m, size += fabs(m);
            }
            best = fmax(best, dot);
            slack = fmax(slack, size * (dim / 16.0 + 6) * 0x1p-24);
        }
        if (in)
            least = fmin(least, best + slack);
        else
            most = fmax(most, best - slack);
    }
    if (taken != n)
        fail_msg("%s: row %u, head %u: %u of %u chosen blocks ascend", what, r, h, taken, n);
    if (most > least)
        fail_msg("%s: row %u, head %u leaves out a block of %g and takes one of %g", what, r, h,
                 most, least);
}

static void block_case(enum sl_dtype dtype, uint32_t n_heads, uint32_t dim, uint32_t block,
                       uint32_t n_top, uint32_t n_local, const struct row *rows, uint32_t n_rows) {
    struct blocks c = {.keys = {.dtype = dtype, .n_latent = dim},
                       .n_heads = n_heads,
                       .block = block,
                       .n_top = n_top,
                       .n_local = n_local,
                       .rows = rows,
                       .n_rows = n_rows,
                       .n_decode = n_rows == CONF_COUNT(rows_few) ? n_rows : 2};
    struct sl_rng rng = {n_heads * 1000u + dim + n_rows + (uint64_t)block * 77777u};
    size_t n_q = (size_t)n_rows * n_heads * dim, row_n = (size_t)n_heads * n_top;
    float *q = conf_host(n_q * sizeof *q);
    uint32_t *y = conf_host(n_rows * row_n * sizeof *y), *part = malloc(n_rows * row_n * sizeof *y);
    fill_store(&c.keys, rows, n_rows, CONF_PLAIN, &rng);
    conf_fill(&rng, CONF_PLAIN, q, n_q);
    c.q = q;
    char what[120];
    snprintf(what, sizeof what, "%s, %u rows, %u heads of %u, %u blocks of %u",
             sl_dtype_name(dtype), n_rows, n_heads, dim, n_top, block);
    conf_case(what, run_blocks, &c, CONF_U32, n_rows * row_n, y);
    for (uint32_t r = 0; conf_checking() && dtype == SL_DTYPE_F16 && r < n_rows;
         r += 1 + n_rows / 9)
        for (uint32_t h = 0; h < n_heads; h++)
            check_block_row(what, &c, r, h, y + r * row_n + (size_t)h * n_top);
    struct sl_device *d = conf_device();
    struct sl_latent_view kv = write_rows(d, &c.keys);
    for (uint32_t at = 0, n; at < n_rows;
         at = next_slice(at, n, n_rows)) { /* a row alone, and in slices */
        n = 1 + at % 7 < n_rows - at ? 1 + at % 7 : n_rows - at;
        choose_blocks(d, &c, &kv, at, n, part);
        for (uint32_t i = 0; i < n * n_heads; i++) {
            uint32_t all = n_blocks(&rows[at + i / n_heads], block);
            if (memcmp(part + (size_t)i * n_top, y + at * row_n + (size_t)i * n_top,
                       (all < n_top ? all : n_top) * sizeof *y) != 0)
                fail_msg("%s: row %u chooses others when it goes alone", what, at + i / n_heads);
        }
    }
    free(part);
}

static const struct {
    uint32_t block, n_top, n_local;
} block_shapes[] = {{1, 5, 2}, {3, 20, 1}, {24, 4, 3}, {64, 3, 1}, {128, 16, 1}, {700, 2, 1}};

static void block_choices(void) {
    struct row mixed[128];
    uint32_t n_mixed = make_rows(mixed);
    conf_needs_op(SL_OP_block_choose);
    for (size_t i = 0; i < CONF_COUNT(block_shapes); i++) {
        uint32_t block = block_shapes[i].block, n_top = block_shapes[i].n_top;
        uint32_t n_local = block_shapes[i].n_local;
        block_case(SL_DTYPE_F16, 4, 128, block, n_top, n_local, rows_few, CONF_COUNT(rows_few));
        block_case(SL_DTYPE_F16, 11, 17, block, n_top, n_local, rows_few, CONF_COUNT(rows_few));
        block_case(SL_DTYPE_F16, 3, 40, block, n_top, n_local, mixed, n_mixed);
    }
    block_case(SL_DTYPE_Q8_0, 2, 96, 24, 5, 1, rows_few, CONF_COUNT(rows_few));
    block_case(SL_DTYPE_F16, 5, 200, 48, 3, 1, rows_few, CONF_COUNT(rows_few));
    block_case(SL_DTYPE_F16, 4, 128, 64, 3, 1, mixed, n_mixed);
    block_case(SL_DTYPE_F16, 11, 17, 1, 5, 2, mixed, n_mixed); /* more scores than are kept */
}

/* Of a device that has room for the scores of some of the heads. */
static void run_blocks_narrow(struct sl_device *d, const void *ctx, void *out) {
    const struct blocks *c = ctx;
    struct sl_latent_view kv = write_rows(d, &c->keys);
    struct sl_device_limits narrow = {
        .max_tok = 1, .max_heads = c->n_heads, .max_head_dim = 17, .max_scores = MAX_LEN};
    struct sl_err err;
    conf_ok(sl_device_configure(d, &narrow, &err));
    for (uint32_t r = 0; r < c->n_rows; r++)
        choose_blocks(d, c, &kv, r, 1, (uint32_t *)out + (size_t)r * c->n_heads * c->n_top);
    configure(d, MAX_PAGES);
}

static void heads_in_turn(void) {
    enum { HEADS = 11, DIM = 17, TOP = 5 };
    struct blocks c = {.keys = {.dtype = SL_DTYPE_F16, .n_latent = DIM},
                       .n_heads = HEADS,
                       .block = 1,
                       .n_top = TOP,
                       .n_local = 2,
                       .rows = rows_few,
                       .n_rows = CONF_COUNT(rows_few),
                       .n_decode = CONF_COUNT(rows_few)};
    struct sl_rng rng = {HEADS};
    size_t n_q = (size_t)c.n_rows * HEADS * DIM, n_y = (size_t)c.n_rows * HEADS * TOP;
    float *q = conf_host(n_q * sizeof *q);
    uint32_t *y = conf_host(n_y * sizeof *y);
    conf_needs_op(SL_OP_block_choose);
    fill_store(&c.keys, c.rows, c.n_rows, CONF_PLAIN, &rng);
    conf_fill(&rng, CONF_PLAIN, q, n_q);
    c.q = q;
    conf_case("some heads' scores at once", run_blocks_narrow, &c, CONF_U32, n_y, y);
    for (uint32_t r = 0; r < c.n_rows && conf_checking(); r++)
        for (uint32_t h = 0; h < HEADS; h++)
            check_block_row("some heads' scores at once", &c, r, h, y + (r * HEADS + h) * TOP);
}

/* Of equal scores the lower block goes first, but the last ones are in whatever their scores; what
 * is not a number counts nothing. */
static void equal_blocks(void) {
    static const struct row rows[] = {{0, 200}};
    enum { DIM = 2, TOP = 6, LOCAL = 2 };
    static const uint32_t lowest[TOP] = {0, 1, 2, 3, 18, 19}, numbers[TOP] = {0, 1, 2, 7, 18, 19};
    struct blocks c = {.keys = {.dtype = SL_DTYPE_F16, .n_latent = DIM},
                       .n_heads = 1,
                       .block = 10,
                       .n_top = TOP,
                       .n_local = LOCAL,
                       .rows = rows,
                       .n_rows = 1,
                       .n_decode = 1};
    float *x = conf_host(200 * DIM * sizeof *x), *q = conf_host(DIM * sizeof *q);
    uint32_t *y = conf_host(TOP * sizeof *y);
    conf_needs_op(SL_OP_block_choose);
    c.keys.page_table = scattered_pages();
    c.keys.len[0] = 200;
    for (uint32_t j = 0; j < 200; j++)
        x[j * DIM] = 1, x[j * DIM + 1] = 0;
    q[0] = -1, q[1] = 0;
    for (uint32_t seq = 0; seq < N_SEQ; seq++)
        c.keys.x[seq] = x;
    c.q = q;
    conf_case("equal blocks", run_blocks, &c, CONF_U32, TOP, y);
    for (uint32_t i = 0; i < TOP && conf_checking(); i++)
        assert_int_equal(y[i], lowest[i]);
    for (uint32_t j = 0; j < 200; j++) /* in block 7 one key gives a number */
        x[j * DIM] = j == 73 ? -1 : NAN;
    conf_case("blocks that give no numbers", run_blocks, &c, CONF_U32, TOP, y);
    for (uint32_t i = 0; i < TOP && conf_checking(); i++)
        assert_int_equal(y[i], numbers[i]);
}

/* ---- attention to blocks ---- */

struct battn {
    enum sl_dtype dtype;
    uint32_t n_heads, n_kv, dim_k, dim_v, block, n_top, n_rows, n_decode;
    const struct row *rows;
    const float *k[N_SEQ], *v[N_SEQ]; /* [len, n_kv, dim] */
    uint32_t len[N_SEQ];
    const uint32_t *page_table;
    const float *q;
    const uint32_t *chosen; /* [n_rows, n_kv, n_top] */
};

static struct sl_kv_view write_kv(struct sl_device *d, const struct battn *c) {
    struct sl_kv_view kv = {
        .dtype = c->dtype, .n_kv_heads = c->n_kv, .head_dim_k = c->dim_k, .head_dim_v = c->dim_v};
    kv.k_page_bytes = (size_t)c->n_kv * PAGE * sl_dtype_row_bytes(c->dtype, c->dim_k);
    kv.v_page_bytes = (size_t)c->n_kv * PAGE * sl_dtype_row_bytes(c->dtype, c->dim_v);
    kv.k = conf_put(d, NULL, N_SEQ * MAX_PAGES * kv.k_page_bytes);
    kv.v = conf_put(d, NULL, N_SEQ * MAX_PAGES * kv.v_page_bytes);
    for (uint32_t seq = 0; seq < N_SEQ; seq++) {
        uint32_t len = c->len[seq], n_k = c->n_kv * c->dim_k, n_v = c->n_kv * c->dim_v;
        if (!len)
            continue;
        uint32_t *slot = malloc(len * sizeof *slot);
        for (uint32_t i = 0; i < len; i++)
            slot[i] = c->page_table[seq * MAX_PAGES + i / PAGE] * PAGE + i % PAGE;
        const float *k = conf_put(d, c->k[seq], (size_t)len * n_k * sizeof(float));
        const float *v = conf_put(d, c->v[seq], (size_t)len * n_v * sizeof(float));
        const uint32_t *slots = conf_put(d, slot, len * sizeof *slot);
        free(slot);
        for (uint32_t at = 0; at < len; at += limits.max_tok)
            conf_ok(sl_op_kv_write(d, &(struct sl_op_kv_write){.kv = kv,
                                                               .k = k + (size_t)at * n_k,
                                                               .v = v + (size_t)at * n_v,
                                                               .slot = slots + at,
                                                               .n_tok = len - at < limits.max_tok
                                                                            ? len - at
                                                                            : limits.max_tok,
                                                               .stride_k = n_k,
                                                               .stride_v = n_v}));
    }
    return kv;
}

static float block_scale(const struct battn *c) {
    return 2 / sqrtf((float)c->dim_k);
}

static void attend_blocks(struct sl_device *d, const struct battn *c, const struct sl_kv_view *kv,
                          uint32_t first, uint32_t n, float *out) {
    uint32_t seq[400], len[400], n_decode = c->n_decode > first ? c->n_decode - first : 0;
    size_t n_q = (size_t)c->n_heads * c->dim_k, n_y = (size_t)n * c->n_heads * c->dim_v;
    size_t n_at = (size_t)c->n_kv * c->n_top;
    for (uint32_t i = 0; i < n; i++)
        seq[i] = c->rows[first + i].seq, len[i] = c->rows[first + i].len;
    float *y = conf_put(d, NULL, n_y * sizeof *y);
    conf_ok(sl_op_block_attention(
        d, &(struct sl_op_block_attention){
               .kv = *kv,
               .q = conf_put(d, c->q + first * n_q, n * n_q * sizeof(float)),
               .y = y,
               .chosen = conf_put(d, c->chosen + first * n_at, n * n_at * sizeof(uint32_t)),
               .page_table = conf_put(d, c->page_table, N_SEQ * MAX_PAGES * sizeof(uint32_t)),
               .row_seq = conf_put(d, seq, n * sizeof *seq),
               .row_len = conf_put(d, len, n * sizeof *len),
               .n_tok = n,
               .n_decode = n_decode < n ? n_decode : n,
               .n_heads = c->n_heads,
               .stride_q = (uint32_t)n_q,
               .max_pages = MAX_PAGES,
               .n_top = c->n_top,
               .block = c->block,
               .scale = block_scale(c)}));
    conf_get(d, out, y, n_y * sizeof *y);
}

static void run_block_attention(struct sl_device *d, const void *ctx, void *out) {
    const struct battn *c = ctx;
    struct sl_kv_view kv = write_kv(d, c);
    attend_blocks(d, c, &kv, 0, c->n_rows, out);
}

/* Of one KV head: the bits of sl_op_attention over a sequence of the chosen positions alone. */
static void check_block_sequence(const char *what, const struct battn *c, uint32_t r, uint32_t g,
                                 const float *y) {
    struct sl_device *d = conf_device();
    uint32_t len = c->rows[r].len, all = n_blocks(&c->rows[r], c->block), n = 0, zero = 0;
    uint32_t n_k = c->n_kv * c->dim_k, n_v = c->n_kv * c->dim_v, group = c->n_heads / c->n_kv;
    const uint32_t *at = c->chosen + ((size_t)r * c->n_kv + g) * c->n_top;
    struct battn own = *c;
    float *k = malloc((size_t)len * n_k * sizeof *k), *v = malloc((size_t)len * n_v * sizeof *v);
    float *out = malloc((size_t)c->n_heads * c->dim_v * sizeof *out);
    for (uint32_t j = 0, i = 0; j < len; j++) {
        while (all > c->n_top && i < c->n_top && at[i] < j / c->block)
            i++;
        if (all > c->n_top && (i == c->n_top || at[i] != j / c->block))
            continue;
        memcpy(k + (size_t)n * n_k, c->k[c->rows[r].seq] + (size_t)j * n_k, n_k * sizeof *k);
        memcpy(v + (size_t)n * n_v, c->v[c->rows[r].seq] + (size_t)j * n_v, n_v * sizeof *v);
        n++;
    }
    for (uint32_t seq = 0; seq < N_SEQ; seq++)
        own.k[seq] = k, own.v[seq] = v, own.len[seq] = seq ? 0 : n;
    struct sl_kv_view kv = write_kv(d, &own);
    size_t n_q = (size_t)c->n_heads * c->dim_k, n_y = (size_t)c->n_heads * c->dim_v;
    float *dev_y = conf_put(d, NULL, n_y * sizeof *dev_y);
    conf_ok(sl_op_attention(
        d, &(struct sl_op_attention){
               .kv = kv,
               .q = conf_put(d, c->q + r * n_q, n_q * sizeof(float)),
               .y = dev_y,
               .page_table = conf_put(d, c->page_table, N_SEQ * MAX_PAGES * sizeof(uint32_t)),
               .row_seq = conf_put(d, &zero, sizeof zero),
               .row_len = conf_put(d, &n, sizeof n),
               .n_tok = 1,
               .n_decode = r < c->n_decode,
               .n_heads = c->n_heads,
               .stride_q = (uint32_t)n_q,
               .max_pages = MAX_PAGES,
               .scale = block_scale(c)}));
    conf_get(d, out, dev_y, n_y * sizeof *out);
    size_t from = (size_t)g * group * c->dim_v;
    if (memcmp(out + from, y + r * n_y + from, group * c->dim_v * sizeof *out) != 0)
        fail_msg("%s: row %u, KV head %u differs from attention over a sequence of what it has "
                 "chosen",
                 what, r, g);
    free(k), free(v), free(out);
}

static void block_attention_case(enum sl_dtype dtype, uint32_t n_heads, uint32_t n_kv,
                                 uint32_t dim_k, uint32_t dim_v, uint32_t block, uint32_t n_top,
                                 const struct row *rows, uint32_t n_rows) {
    struct battn c = {.dtype = dtype,
                      .n_heads = n_heads,
                      .n_kv = n_kv,
                      .dim_k = dim_k,
                      .dim_v = dim_v,
                      .block = block,
                      .n_top = n_top,
                      .rows = rows,
                      .n_rows = n_rows,
                      .n_decode = n_rows == CONF_COUNT(rows_few) ? n_rows : 2,
                      .page_table = scattered_pages()};
    struct sl_rng rng = {n_heads * 1000u + dim_k + n_rows + block};
    size_t n_q = (size_t)n_rows * n_heads * dim_k, row_n = (size_t)n_heads * dim_v;
    float *q = conf_host(n_q * sizeof *q), *y = conf_host(n_rows * row_n * sizeof *y);
    uint32_t *chosen = conf_host((size_t)n_rows * n_kv * n_top * sizeof *chosen);
    for (uint32_t r = 0; r < n_rows; r++)
        c.len[rows[r].seq] = rows[r].len > c.len[rows[r].seq] ? rows[r].len : c.len[rows[r].seq];
    for (uint32_t seq = 0; seq < N_SEQ; seq++) {
        size_t n_k = (size_t)c.len[seq] * n_kv * dim_k, n_v = (size_t)c.len[seq] * n_kv * dim_v;
        float *k = conf_host((n_k + 1) * sizeof *k), *v = conf_host((n_v + 1) * sizeof *v);
        conf_fill(&rng, CONF_PLAIN, k, n_k);
        conf_fill(&rng, CONF_PLAIN, v, n_v);
        c.k[seq] = k, c.v[seq] = v;
    }
    conf_fill(&rng, CONF_PLAIN, q, n_q);
    for (uint32_t i = 0; i < n_rows * n_kv; i++) { /* the row's own block, and others before it */
        uint32_t own = n_blocks(&rows[i / n_kv], block) - 1, *at = chosen + (size_t)i * n_top;
        for (uint32_t j = 0, n = 0; own >= n_top && n < n_top - 1; j++)
            if (sl_rng_below(&rng, own - j) < n_top - 1 - n)
                at[n++] = j;
        at[n_top - 1] = own;
    }
    c.q = q, c.chosen = chosen;
    char what[120];
    snprintf(what, sizeof what, "%s, %u rows, %u heads of %u and %u over %u, %u blocks of %u",
             sl_dtype_name(dtype), n_rows, n_heads, dim_k, dim_v, n_kv, n_top, block);
    conf_tolerance(1e-5f);
    conf_case(what, run_block_attention, &c, CONF_F32, n_rows * row_n, y);
    for (uint32_t r = 0; r < n_rows; r += 1 + n_rows / 12)
        for (uint32_t g = 0; g < n_kv; g++)
            check_block_sequence(what, &c, r, g, y);
    struct sl_device *d = conf_device();
    struct sl_kv_view kv = write_kv(d, &c);
    float *part = malloc(n_rows * row_n * sizeof *part);
    for (uint32_t at = 0, n; at < n_rows; at = next_slice(at, n, n_rows)) {
        n = 1 + at % 7 < n_rows - at ? 1 + at % 7 : n_rows - at;
        attend_blocks(d, &c, &kv, at, n, part);
        if (memcmp(part, y + at * row_n, n * row_n * sizeof *part) != 0)
            fail_msg("%s: rows %u to %u differ when they go alone", what, at, at + n);
    }
    free(part);
}

/* Prompt rows that have many blocks to choose among, of two sequences. */
static uint32_t make_far_rows(struct row *out) {
    uint32_t n = 0;
    out[n++] = (struct row){3, 77};
    out[n++] = (struct row){2, 600};
    for (uint32_t i = 0; i < 21; i++)
        out[n++] = (struct row){0, 1270 + i};
    for (uint32_t i = 0; i < 13; i++)
        out[n++] = (struct row){1, 700 + i};
    return n;
}

static void block_attention(void) {
    struct row mixed[128], far[64];
    uint32_t n_mixed = make_rows(mixed), n_far = make_far_rows(far);
    conf_needs_op(SL_OP_block_attention);
    for (size_t i = 0; i < CONF_COUNT(block_shapes); i++) {
        uint32_t block = block_shapes[i].block, n_top = block_shapes[i].n_top;
        block_attention_case(SL_DTYPE_F16, 6, 2, 48, 40, block, n_top, rows_few,
                             CONF_COUNT(rows_few));
        block_attention_case(SL_DTYPE_F16, 20, 2, 64, 64, block, n_top, mixed, n_mixed);
    }
    block_attention_case(SL_DTYPE_F16, 3, 3, 17, 5, 10, 7, rows_few, CONF_COUNT(rows_few));
    block_attention_case(SL_DTYPE_Q8_0, 8, 4, 64, 32, 20, 5, mixed, n_mixed);
    block_attention_case(SL_DTYPE_Q8_0, 8, 2, 128, 128, 64, 4, rows_few, CONF_COUNT(rows_few));
    /* Blocks of whole pages, of which rows of a tile choose others: as many heads as MiniMax-M3's
     * for each KV head, and longer ones. */
    block_attention_case(SL_DTYPE_F16, 32, 2, 128, 128, 128, 3, rows_few, CONF_COUNT(rows_few));
    block_attention_case(SL_DTYPE_F16, 3, 1, 128, 96, 64, 1, mixed, n_mixed);
    block_attention_case(SL_DTYPE_F16, 2, 1, 256, 200, 64, 3, rows_few, CONF_COUNT(rows_few));
    block_attention_case(SL_DTYPE_F16, 2, 2, 256, 256, 40, 2, mixed, n_mixed);
    block_attention_case(SL_DTYPE_F16, 16, 1, 128, 128, 64, 5, far, n_far);
    block_attention_case(SL_DTYPE_F16, 2, 2, 64, 64, 128, 4, far, n_far);
}

/* ---- replays ---- */

#define REPLAY_ROWS 4u
static const uint32_t replay_lens[2][REPLAY_ROWS] = {{1300, 129, 64, 700}, {193, 130, 65, 701}};

struct replay_case {
    struct blocks of;
    struct battn to;
};
struct step {
    const struct replay_case *c;
    struct sl_latent_view keys;
    struct sl_kv_view kv;
    const float *index_q, *q;
    float *y;
    uint32_t *chosen, *row_len;
    const uint32_t *page_table, *row_seq;
};

static void submit_step(struct sl_device *d, const struct step *s) {
    const struct blocks *of = &s->c->of;
    const struct battn *to = &s->c->to;
    conf_ok(sl_op_block_choose(d, &(struct sl_op_block_choose){.keys = s->keys,
                                                               .q = s->index_q,
                                                               .chosen = s->chosen,
                                                               .page_table = s->page_table,
                                                               .row_seq = s->row_seq,
                                                               .row_len = s->row_len,
                                                               .n_tok = REPLAY_ROWS,
                                                               .n_decode = REPLAY_ROWS,
                                                               .n_heads = of->n_heads,
                                                               .max_pages = MAX_PAGES,
                                                               .n_top = of->n_top,
                                                               .n_local = of->n_local,
                                                               .block = of->block}));
    conf_ok(sl_op_block_attention(
        d, &(struct sl_op_block_attention){.kv = s->kv,
                                           .q = s->q,
                                           .y = s->y,
                                           .chosen = s->chosen,
                                           .page_table = s->page_table,
                                           .row_seq = s->row_seq,
                                           .row_len = s->row_len,
                                           .n_tok = REPLAY_ROWS,
                                           .n_decode = REPLAY_ROWS,
                                           .n_heads = to->n_heads,
                                           .stride_q = to->n_heads * to->dim_k,
                                           .max_pages = MAX_PAGES,
                                           .n_top = to->n_top,
                                           .block = to->block,
                                           .scale = block_scale(to)}));
}

/* Recorded with the first lengths and replayed with both; the bits of a step with the second. */
static void run_replay(struct sl_device *d, const void *ctx, void *out) {
    const struct replay_case *c = ctx;
    uint32_t seq[REPLAY_ROWS] = {0, 1, 2, 3};
    size_t n_index = (size_t)REPLAY_ROWS * c->of.n_heads * c->of.keys.n_latent;
    size_t n_q = (size_t)REPLAY_ROWS * c->to.n_heads * c->to.dim_k;
    size_t y_bytes = (size_t)REPLAY_ROWS * c->to.n_heads * c->to.dim_v * sizeof(float);
    size_t chosen_bytes = (size_t)REPLAY_ROWS * c->of.n_heads * c->of.n_top * sizeof(uint32_t);
    struct step s = {.c = c,
                     .keys = write_rows(d, &c->of.keys),
                     .kv = write_kv(d, &c->to),
                     .index_q = conf_put(d, c->of.q, n_index * sizeof(float)),
                     .q = conf_put(d, c->to.q, n_q * sizeof(float)),
                     .y = conf_put(d, NULL, y_bytes),
                     .chosen = conf_put(d, NULL, chosen_bytes),
                     .row_len = conf_put(d, replay_lens[0], sizeof replay_lens[0]),
                     .page_table =
                         conf_put(d, c->to.page_table, N_SEQ * MAX_PAGES * sizeof(uint32_t)),
                     .row_seq = conf_put(d, seq, sizeof seq)};
    struct sl_graph *graph = NULL;
    void *replayed = conf_host(y_bytes);
    if (d->caps.graphs) {
        conf_ok(sl_device_record(d));
        submit_step(d, &s);
        conf_ok(sl_device_recorded(d, &graph));
        conf_ok(sl_device_replay(d, graph));
        conf_ok(mem_upload(d, s.row_len, replay_lens[1], sizeof replay_lens[1]));
        conf_ok(sl_device_replay(d, graph));
        sl_graph_free(d, &graph);
        conf_get(d, replayed, s.y, y_bytes);
    }
    conf_ok(mem_upload(d, s.row_len, replay_lens[1], sizeof replay_lens[1]));
    submit_step(d, &s);
    conf_get(d, out, s.y, y_bytes);
    if (d->caps.graphs && memcmp(replayed, out, y_bytes) != 0)
        fail_msg("a replay has other bits than its ops");
}

static void replay(void) {
    enum { HEADS = 16, KV = 2, DIM = 64, BLOCK = 64, TOP = 3 };
    static const struct row rows[REPLAY_ROWS] = {{0, 1300}, {1, 130}, {2, 65}, {3, 701}};
    struct sl_rng rng = {31};
    struct replay_case c = {.of = {.keys = {.dtype = SL_DTYPE_F16, .n_latent = DIM},
                                   .n_heads = KV,
                                   .block = BLOCK,
                                   .n_top = TOP,
                                   .n_local = 1},
                            .to = {.dtype = SL_DTYPE_F16,
                                   .n_heads = HEADS,
                                   .n_kv = KV,
                                   .dim_k = DIM,
                                   .dim_v = DIM,
                                   .block = BLOCK,
                                   .n_top = TOP}};
    conf_needs_op(SL_OP_block_choose);
    conf_needs_op(SL_OP_block_attention);
    fill_store(&c.of.keys, rows, REPLAY_ROWS, CONF_PLAIN, &rng);
    c.to.page_table = c.of.keys.page_table;
    for (uint32_t seq = 0; seq < N_SEQ; seq++) {
        size_t n = (size_t)rows[seq].len * KV * DIM;
        float *k = conf_host(n * sizeof *k), *v = conf_host(n * sizeof *v);
        conf_fill(&rng, CONF_PLAIN, k, n);
        conf_fill(&rng, CONF_PLAIN, v, n);
        c.to.k[seq] = k, c.to.v[seq] = v, c.to.len[seq] = rows[seq].len;
    }
    float *index_q = conf_host(REPLAY_ROWS * KV * DIM * sizeof *index_q);
    float *q = conf_host(REPLAY_ROWS * HEADS * DIM * sizeof *q);
    float *y = conf_host(REPLAY_ROWS * HEADS * DIM * sizeof *y);
    conf_fill(&rng, CONF_PLAIN, index_q, REPLAY_ROWS * KV * DIM);
    conf_fill(&rng, CONF_PLAIN, q, REPLAY_ROWS * HEADS * DIM);
    c.of.q = index_q, c.to.q = q;
    conf_tolerance(1e-5f);
    conf_case("blocks in a replay", run_replay, &c, CONF_F32, REPLAY_ROWS * HEADS * DIM, y);
}

/* An infinity in a block that some rows of a tile have chosen must not reach the others: 0 times it
 * would be NaN. Those that see it must not lose it. */
static void unseen_blocks(void) {
    enum { DIM = 64, HEADS = 4, BLOCK = 64, TOP = 2, N = 14, LEN = 3 * BLOCK };
    static struct row rows[N];
    struct battn c = {.dtype = SL_DTYPE_F16,
                      .n_heads = HEADS,
                      .n_kv = 1,
                      .dim_k = DIM,
                      .dim_v = DIM,
                      .block = BLOCK,
                      .n_top = TOP,
                      .n_rows = N,
                      .rows = rows,
                      .page_table = scattered_pages()};
    struct sl_rng rng = {77};
    float *q = conf_host(N * HEADS * DIM * sizeof *q), *y = conf_host(N * HEADS * DIM * sizeof *y);
    uint32_t *chosen = conf_host(N * TOP * sizeof *chosen);
    conf_needs_op(SL_OP_block_attention);
    for (uint32_t seq = 0; seq < 2; seq++) {
        float *k = conf_host(LEN * DIM * sizeof *k), *v = conf_host(LEN * DIM * sizeof *v);
        conf_fill(&rng, CONF_PLAIN, k, LEN * DIM);
        conf_fill(&rng, CONF_PLAIN, v, LEN * DIM);
        for (uint32_t i = 0; i < DIM && seq == 0; i++)
            v[(BLOCK + 5) * DIM + i] = INFINITY;
        c.k[seq] = k, c.v[seq] = v, c.len[seq] = LEN;
    }
    conf_fill(&rng, CONF_PLAIN, q, N * HEADS * DIM);
    for (uint32_t r = 0; r < N; r++) {
        rows[r] = (struct row){r < 9 ? 0 : 1, LEN - r % 3};
        chosen[r * TOP] = r % 2, chosen[r * TOP + 1] = 2;
    }
    c.q = q, c.chosen = chosen;
    conf_tolerance(1e-5f);
    conf_case("an infinity in a block", run_block_attention, &c, CONF_F32, N * HEADS * DIM, y);
    for (uint32_t i = 0; i < N * HEADS * DIM; i++) {
        uint32_t r = i / (HEADS * DIM);
        if (isfinite(y[i]) == (r < 9 && r % 2))
            fail_msg("row %u: %g", r, (double)y[i]);
    }
}

int main(int argc, char **argv) {
    static const struct conf_test tests[] = {
        {"choices of blocks", block_choices}, {"heads in turn", heads_in_turn},
        {"equal blocks", equal_blocks},       {"attention to blocks", block_attention},
        {"unseen blocks", unseen_blocks},     {"replay", replay}};
    return conf_main(argc, argv, "blocks", &limits, tests, CONF_COUNT(tests));
}
