/* What test_index.c and test_blocks.c share: rows of sequences whose keys lie in pages of a table
 * that is out of order. */
#ifndef SL_TESTS_CONFORMANCE_PAGED_ROWS_H
#define SL_TESTS_CONFORMANCE_PAGED_ROWS_H

#include "tests/conformance/conformance.h"
#include "backends/ops/kv.h"

#include <stdlib.h>

#define N_SEQ     4u
#define MAX_PAGES 40u
#define PAGE      SL_KV_PAGE_TOKENS
#define MAX_LEN   (MAX_PAGES * PAGE)

static const struct sl_device_limits limits = {
    .max_tok = 400, .max_heads = 64, .max_head_dim = 576, .max_scores = MAX_LEN};

static inline void configure(struct sl_device *d, uint32_t max_pages) {
    struct sl_device_limits with = limits;
    struct sl_err err;
    with.max_scores = max_pages * PAGE;
    conf_ok(sl_device_configure(d, &with, &err));
}

struct row {
    uint32_t seq, len;
};
struct store {
    enum sl_dtype dtype;
    uint32_t n_latent, n_rot;
    const float *x[N_SEQ]; /* [len, n_latent + n_rot] */
    uint32_t len[N_SEQ];
    const uint32_t *page_table;
};

/* What no sequence wrote is NaN. */
static inline struct sl_latent_view write_rows(struct sl_device *d, const struct store *c) {
    uint32_t dim = c->n_latent + c->n_rot;
    struct sl_latent_view kv = {.dtype = c->dtype,
                                .n_latent = c->n_latent,
                                .n_rot = c->n_rot,
                                .page_bytes = PAGE * sl_dtype_row_bytes(c->dtype, dim)};
    kv.rows = conf_put(d, NULL, N_SEQ * MAX_PAGES * kv.page_bytes);
    for (uint32_t seq = 0; seq < N_SEQ; seq++) {
        uint32_t len = c->len[seq];
        if (!len)
            continue;
        uint32_t *slot = malloc(len * sizeof *slot);
        for (uint32_t i = 0; i < len; i++)
            slot[i] = c->page_table[seq * MAX_PAGES + i / PAGE] * PAGE + i % PAGE;
        const float *x = conf_put(d, c->x[seq], (size_t)len * dim * sizeof(float));
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

static inline const uint32_t *scattered_pages(void) {
    uint32_t *table = conf_host(N_SEQ * MAX_PAGES * sizeof *table);
    for (uint32_t i = 0; i < N_SEQ * MAX_PAGES; i++) /* 37 is prime to 160 */
        table[i] = (i * 37u + 5u) % (N_SEQ * MAX_PAGES);
    return table;
}

static inline void fill_store(struct store *c, const struct row *rows, uint32_t n_rows,
                              enum conf_fill fill, struct sl_rng *rng) {
    c->page_table = scattered_pages();
    for (uint32_t r = 0; r < n_rows; r++)
        c->len[rows[r].seq] = rows[r].len > c->len[rows[r].seq] ? rows[r].len : c->len[rows[r].seq];
    for (uint32_t seq = 0; seq < N_SEQ; seq++) {
        size_t n = (size_t)c->len[seq] * (c->n_latent + c->n_rot);
        float *x = conf_host((n + 1) * sizeof *x);
        conf_fill(rng, fill, x, n);
        c->x[seq] = x;
    }
}

/* As F16 keeps it. */
static inline double stored(float x) {
    return (double)sl_f16_to_f32(sl_f32_to_f16(x));
}

/* After a slice of n rows from `at` on the next begins here: of many rows one in three is in a
 * slice. */
static inline uint32_t next_slice(uint32_t at, uint32_t n, uint32_t n_rows) {
    return at + n * (n_rows > 40 ? 3 : 1);
}

/* Generated rows around pages, blocks and the choice's size, then two slices of prompts. */
static const struct row rows_few[] = {{0, 1},   {1, 64},  {2, 65},   {3, 511}, {0, 512},
                                      {1, 513}, {2, 700}, {3, 2500}, {1, 97},  {2, 2049}};
static inline uint32_t make_rows(struct row *out) {
    uint32_t n = 0;
    out[n++] = (struct row){3, 77};
    out[n++] = (struct row){2, 600};
    for (uint32_t i = 0; i < 11; i++)
        out[n++] = (struct row){0, 1 + i};
    for (uint32_t i = 0; i < 90; i++)
        out[n++] = (struct row){1, 40 + i};
    return n;
}

#endif
