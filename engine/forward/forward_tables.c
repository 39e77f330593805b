/* Streamed tables in the layer loop: a step has a small table of its own, of the rows that its
 * tokens need, in the order of its rows. The ops read that as they would the whole one. */
#include "engine/forward/forward_internal.h"
#include "engine/layers/ngrams.h"

#include <stdlib.h>

static struct sl_weight *weight_of(struct sl_forward *f, enum sl_table_id id) {
    return id == SL_TABLE_LAYERS   ? &f->layer_embd
           : id == SL_TABLE_NGRAMS ? &f->ngrams
           : f->embd.n_in          ? &f->embd
                                   : &f->layer_tokens;
}

static bool is_streamed(const struct sl_forward *f, uint32_t table) {
    return f->plan->streamed_tables >> table & 1;
}

uint64_t sl_forward_table_bytes(const struct sl_model *model, const struct sl_memory_plan *plan,
                                enum sl_table_id id) {
    return plan->streamed_tables >> id & 1
               ? (uint64_t)plan->config.batch_tokens * sl_table_token_rows(model, id) *
                     sl_table_row_bytes(model, id)
               : 0;
}

/* Where the host cannot follow device addresses, rows arrive in its own memory. */
static enum sl_status place_arrivals(struct sl_forward *f, const struct sl_model *model) {
    size_t own = 0;
    for (uint32_t i = 0; i < SL_TABLES && f->plan->reads_back; i++)
        own += sl_forward_table_bytes(model, f->plan, (enum sl_table_id)i);
    if (own && !(f->arriving_own = calloc(own, 1)))
        return SL_ERR_NOMEM;
    uint8_t *at = f->arriving_own;
    for (uint32_t i = 0; i < SL_TABLES; i++) {
        if (!is_streamed(f, i))
            continue;
        size_t bytes = sl_forward_table_bytes(model, f->plan, (enum sl_table_id)i);
        f->arriving[i] = at ? at : sl_span_host(sl_span_at(f->arena, f->a.table_rows[i], bytes));
        at += at ? bytes : 0;
    }
    return SL_OK;
}

static enum sl_status upload_ids(struct sl_forward *f, const struct sl_model *model) {
    uint32_t n =
        f->plan->config.batch_tokens * sl_tables_token_rows(model, f->plan->streamed_tables);
    uint32_t *ids = malloc(n * sizeof *ids);
    if (!ids)
        return SL_ERR_NOMEM;
    for (uint32_t i = 0; i < n; i++)
        ids[i] = i;
    enum sl_status status = sl_forward_upload(f, f->a.table_ids, ids, n * sizeof *ids);
    if (status == SL_OK)
        status = sl_device_sync(f->dev);
    free(ids);
    return status;
}

enum sl_status sl_forward_tables_init(struct sl_forward *f, const struct sl_model *model,
                                      struct sl_err *err) {
    uint32_t n = f->plan->config.batch_tokens;
    if (f->hp->ngram.n_head && !(f->ngram_rows = calloc((size_t)n * f->hp->ngram.n_head, 4)))
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the rows of n-grams");
    if (!f->table_store)
        return SL_OK;
    for (uint32_t i = 0; i < SL_TABLES; i++) {
        if (!is_streamed(f, i))
            continue;
        struct sl_weight *w = weight_of(f, (enum sl_table_id)i);
        w->data = f->a.table_rows[i];
        w->n_out = n * sl_table_token_rows(model, (enum sl_table_id)i);
    }
    enum sl_status status = place_arrivals(f, model);
    if (status == SL_OK)
        status = upload_ids(f, model);
    return status == SL_OK
               ? SL_OK
               : sl_fail(err, status, "preparing streamed tables: %s", sl_status_text(status));
}

enum sl_status sl_forward_ask_tables(struct sl_forward *f, const struct sl_place *where) {
    const struct sl_step *s = &f->step;
    const struct sl_ngram_spec *ngram = &f->hp->ngram;
    for (uint32_t t = 0; ngram->n_head && t < s->n_rows; t++)
        sl_ngram_rows(ngram, s->ids[t], s->before + (size_t)t * SL_STEP_BEFORE,
                      f->ngram_rows + (size_t)t * ngram->n_head);
    if (ngram->n_head && !is_streamed(f, SL_TABLE_NGRAMS))
        SL_FORWARD_TRY("rows of n-grams", sl_forward_upload(f, f->a.ngram_rows, f->ngram_rows,
                                                            (size_t)s->n_rows * ngram->n_head * 4));
    if (!f->table_store)
        return SL_OK;
    const uint32_t *const rows[SL_TABLES] = {
        [SL_TABLE_TOKENS] = s->ids, [SL_TABLE_LAYERS] = s->ids, [SL_TABLE_NGRAMS] = f->ngram_rows};
    return sl_table_store_ask(f->table_store, rows, s->n_rows, f->arriving, where->err);
}

static bool asked_to_stop(void *ctx) {
    const struct sl_abort *give_up = ctx;
    return give_up->asked(give_up);
}

enum sl_status sl_forward_take_tables(struct sl_forward *f, const struct sl_place *where) {
    struct sl_step *s = &f->step;
    struct sl_row_abort stop = {asked_to_stop, (void *)where->give_up};
    struct sl_err why;
    uint32_t n_failed;
    if (!f->table_store)
        return SL_OK;
    enum sl_status status = sl_table_store_wait(f->table_store, where->give_up ? &stop : NULL,
                                                f->row_failed, &n_failed, &why);
    if (status != SL_OK)
        return sl_fail(where->err, status, "%s", why.text);
    if (n_failed && !s->n_failed)
        sl_fail(where->err, SL_ERR_IO, "%s", why.text);
    s->n_failed += n_failed;
    for (uint32_t i = 0; i < SL_TABLES && f->arriving_own; i++) {
        if (!is_streamed(f, i))
            continue;
        const struct sl_weight *w = weight_of(f, (enum sl_table_id)i);
        uint32_t each = i == SL_TABLE_NGRAMS ? f->hp->ngram.n_head : 1;
        size_t bytes = (size_t)s->n_rows * each * sl_dtype_row_bytes(w->dtype, w->n_in);
        SL_FORWARD_TRY("rows of tables",
                       sl_forward_upload(f, f->a.table_rows[i], f->arriving[i], bytes));
    }
    return SL_OK;
}
