#include "engine/step/step.h"

#include "backends/backend.h"
#include "backends/ops/kv.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct sl_step sl_step_lay(uint32_t *arrays, uint32_t max_rows, uint32_t max_out) {
    uint32_t *out_rows = arrays + 6 * max_rows + SL_STEP_SEQNOS;
    return (struct sl_step){.arrays = arrays,
                            .ids = arrays,
                            .pos = (int32_t *)(arrays + max_rows),
                            .slot = arrays + 2 * max_rows,
                            .row_seq = arrays + 3 * max_rows,
                            .row_len = arrays + 4 * max_rows,
                            .tail_slot = arrays + 5 * max_rows,
                            .seqno = arrays + 6 * max_rows,
                            .out_rows = out_rows,
                            .sums_at = (float *)(out_rows + max_out),
                            .before = out_rows + 2 * max_out};
}

uint32_t sl_step_pack(const struct sl_step *s, uint32_t max_rows, uint32_t n_out,
                      uint32_t *out_arrays) {
    struct sl_step to = sl_step_lay(out_arrays, max_rows, n_out);
    size_t bytes = s->n_rows * sizeof *s->ids;
    assert(s->n_rows <= max_rows);
    memcpy(to.ids, s->ids, bytes);
    memcpy(to.pos, s->pos, bytes);
    memcpy(to.slot, s->slot, bytes);
    memcpy(to.row_seq, s->row_seq, bytes);
    memcpy(to.row_len, s->row_len, bytes);
    memcpy(to.tail_slot, s->tail_slot, bytes);
    memcpy(to.seqno, s->seqno, SL_STEP_SEQNOS * sizeof *s->seqno);
    memcpy(to.out_rows, s->out_rows, n_out * sizeof *s->out_rows);
    memcpy(to.sums_at, s->sums_at, n_out * sizeof *s->sums_at);
    return (uint32_t)(to.before - out_arrays);
}

void sl_step_begin(struct sl_step *s) {
    s->n_rows = s->n_decode = s->n_out = s->n_failed = 0;
    s->keep_all = s->only_largest = s->received = false;
}

void sl_step_add(struct sl_step *s, uint32_t seq, uint32_t pos, uint32_t page, uint32_t tail,
                 uint32_t id) {
    uint32_t i = s->n_rows++;
    s->ids[i] = id;
    s->pos[i] = (int32_t)pos;
    s->slot[i] = page * SL_KV_PAGE_TOKENS + pos % SL_KV_PAGE_TOKENS;
    s->tail_slot[i] = tail * SL_KV_PAGE_TOKENS + pos % SL_KV_PAGE_TOKENS;
    s->row_seq[i] = seq;
    s->row_len[i] = pos + 1;
    s->failed[i] = 0;
    for (uint32_t j = 0; j < SL_STEP_BEFORE; j++)
        s->before[i * SL_STEP_BEFORE + j] = SL_NO_TOKEN;
}

void sl_step_add_before(struct sl_step *s, const uint32_t *text, uint32_t pos) {
    uint32_t *to = s->before + (size_t)(s->n_rows - 1) * SL_STEP_BEFORE;
    for (uint32_t j = 0; j < SL_STEP_BEFORE && j < pos; j++)
        to[j] = text[pos - 1 - j];
}

void sl_step_add_out(struct sl_step *s, float sums_at) {
    s->out_rows[s->n_out] = s->n_rows - 1;
    s->sums_at[s->n_out++] = sums_at;
}

enum sl_status sl_page_table_init(struct sl_page_table *t, uint32_t n_seq, uint32_t n_pages) {
    *t = (struct sl_page_table){.n_seq = n_seq, .n_pages = n_pages};
    t->pages = calloc((size_t)n_seq * n_pages, sizeof *t->pages);
    t->changed = calloc(n_seq, sizeof *t->changed);
    if (t->pages && t->changed)
        return SL_OK;
    sl_page_table_release(t);
    return SL_ERR_NOMEM;
}

void sl_page_table_release(struct sl_page_table *t) {
    free(t->pages);
    free(t->changed);
    memset(t, 0, sizeof *t);
}

size_t sl_page_table_bytes(uint32_t n_seq, uint32_t n_pages) {
    return n_seq * (n_pages * sizeof(uint32_t) + sizeof(struct sl_page_range));
}

void sl_page_table_set(struct sl_page_table *t, uint32_t seq, uint32_t index, uint32_t page) {
    assert(seq < t->n_seq && index < t->n_pages);
    struct sl_page_range *r = &t->changed[seq];
    t->pages[(size_t)seq * t->n_pages + index] = page;
    if (r->first == r->end)
        *r = (struct sl_page_range){index, index + 1};
    else if (index < r->first)
        r->first = index;
    else if (index >= r->end)
        r->end = index + 1;
}

uint32_t sl_page_table_get(const struct sl_page_table *t, uint32_t seq, uint32_t index) {
    assert(seq < t->n_seq && index < t->n_pages);
    return t->pages[(size_t)seq * t->n_pages + index];
}

void sl_page_table_take(struct sl_page_table *t, struct sl_page_table *to) {
    assert(t->n_seq == to->n_seq && t->n_pages == to->n_pages);
    for (uint32_t i = 0; i < t->n_seq; i++) {
        struct sl_page_range r = t->changed[i];
        size_t at = (size_t)i * t->n_pages + r.first;
        memcpy(to->pages + at, t->pages + at, (r.end - r.first) * sizeof *t->pages);
        to->changed[i] = r;
        t->changed[i] = (struct sl_page_range){0, 0};
    }
}

void sl_page_table_add(struct sl_page_table *t, const struct sl_page_table *changes) {
    for (uint32_t i = 0; i < t->n_seq; i++)
        for (uint32_t j = changes->changed[i].first; j < changes->changed[i].end; j++)
            sl_page_table_set(t, i, j, sl_page_table_get(changes, i, j));
}
