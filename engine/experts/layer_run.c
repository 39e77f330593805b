#include "engine/experts/layer_run.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

size_t sl_layer_run_bytes(uint32_t n_expert, uint32_t max_k, uint32_t max_rows) {
    struct sl_layer_run *r;
    return n_expert *
               (sizeof *r->pair_count + sizeof *r->wanted + sizeof *r->held + sizeof *r->in_call) +
           (size_t)max_rows * max_k * sizeof *r->pairs;
}

enum sl_status sl_layer_run_init(struct sl_layer_run *r, uint32_t n_expert, uint32_t max_k,
                                 uint32_t max_rows) {
    *r = (struct sl_layer_run){.n_expert = n_expert, .max_k = max_k};
    r->pair_count = calloc(n_expert, sizeof *r->pair_count);
    r->wanted = calloc(n_expert, sizeof *r->wanted);
    r->held = calloc(n_expert, sizeof *r->held);
    r->in_call = calloc(n_expert, sizeof *r->in_call);
    r->pairs = calloc((size_t)max_rows * max_k, sizeof *r->pairs);
    bool all = r->pair_count && r->wanted && r->held && r->in_call && r->pairs;
    return all ? SL_OK : SL_ERR_NOMEM;
}

void sl_layer_run_release(struct sl_layer_run *r) {
    free(r->pair_count);
    free(r->wanted);
    free(r->held);
    free(r->in_call);
    free(r->pairs);
    *r = (struct sl_layer_run){0};
}

void sl_layer_run_begin(struct sl_layer_run *r, uint32_t layer, uint32_t k,
                        const struct sl_fetch_rows *rows) {
    assert(!r->n_held && !r->n_wanted && k <= r->max_k);
    uint32_t n_lost = 0;
    r->layer = layer;
    r->k = k;
    r->rows = *rows;
    memset(r->pair_count, 0, r->n_expert * sizeof *r->pair_count);
    for (uint32_t t = 0; t < rows->n; t++) {
        n_lost += rows->failed[t] != 0;
        for (uint32_t j = 0; j < r->k && !rows->failed[t]; j++)
            r->pair_count[rows->ids[(size_t)t * r->k + j]]++;
    }
    r->n_loading = 0;
    for (uint32_t e = 0; e < r->n_expert; e++)
        if (r->pair_count[e])
            r->wanted[r->n_wanted++] = (struct sl_expert_id){(uint16_t)layer, (uint16_t)e};
    r->dense_call = n_lost == 0;
}

void sl_layer_run_leased(struct sl_layer_run *r, const struct sl_lease *leases,
                         uint32_t n_loading) {
    uint32_t keep = 0;
    for (uint32_t i = 0; i < r->n_wanted; i++) {
        if (leases[i].slot == SL_SLOT_NONE)
            r->wanted[keep++] = r->wanted[i];
        else
            r->held[r->n_held++] = (struct sl_held){r->wanted[i], leases[i]};
    }
    r->n_wanted = keep;
    r->n_loading += n_loading;
}

bool sl_layer_run_is_wave(const struct sl_layer_run *r) {
    return r->n_wanted && r->n_loading < r->max_loading;
}

void sl_layer_run_drop(struct sl_layer_run *r, uint32_t at) {
    assert(at < r->n_held);
    r->held[at] = r->held[--r->n_held];
}

void sl_layer_run_want_again(struct sl_layer_run *r, uint32_t at) {
    r->wanted[r->n_wanted++] = r->held[at].id;
    sl_layer_run_drop(r, at);
}

void sl_layer_run_swap(struct sl_layer_run *r, uint32_t a, uint32_t b) {
    struct sl_held h = r->held[a];
    r->held[a] = r->held[b];
    r->held[b] = h;
}

uint32_t sl_layer_run_fail(struct sl_layer_run *r, uint32_t expert) {
    uint32_t n = 0;
    for (uint32_t t = 0; t < r->rows.n; t++)
        for (uint32_t j = 0; j < r->k && !r->rows.failed[t]; j++)
            if (r->rows.ids[(size_t)t * r->k + j] == expert) {
                r->rows.failed[t] = 1;
                n++;
            }
    r->dense_call = false;
    return n;
}

uint32_t sl_layer_run_list_marked(struct sl_layer_run *r) {
    const struct sl_fetch_rows *rows = &r->rows;
    uint32_t k = r->k, n_pairs = 0;
    for (uint32_t t = 0; t < rows->n; t++)
        for (uint32_t j = 0; j < k && !rows->failed[t]; j++)
            if (r->in_call[rows->ids[(size_t)t * k + j]])
                r->pairs[n_pairs++] = t * k + j;
    return n_pairs;
}

uint32_t sl_layer_run_list(struct sl_layer_run *r, uint32_t n) {
    assert(n <= r->n_held);
    for (uint32_t i = 0; i < n; i++)
        r->in_call[r->held[i].id.expert] = 1;
    uint32_t n_pairs = sl_layer_run_list_marked(r);
    for (uint32_t i = 0; i < n; i++)
        r->in_call[r->held[i].id.expert] = 0;
    return n_pairs;
}

void sl_layer_run_ran(struct sl_layer_run *r, uint32_t n) {
    assert(n <= r->n_held);
    memmove(r->held, r->held + n, (r->n_held - n) * sizeof *r->held);
    r->n_held -= n;
    r->dense_call = false;
}

void sl_layer_run_give_up(struct sl_layer_run *r) {
    assert(!r->n_held);
    r->n_wanted = r->n_loading = 0;
}
