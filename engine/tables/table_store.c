#include "engine/tables/table_store.h"

#include "common/log.h"
#include "engine/reads/model_files.h"

#include <stdio.h>
#include <stdlib.h>

struct sl_table_store {
    const struct sl_model *model;
    const struct sl_memory_plan *plan;
    struct sl_timeline *timeline;
    uint32_t n_tables;
    enum sl_table_id id[SL_TABLES]; /* [n_tables] by the reader's numbers */
    struct sl_row_reader *rows;
    struct sl_row_want *wants; /* [n_tables, n, rows of a token] of a step */
    uint32_t n;                /* tokens of the ask */
    uint64_t asked_ns, reads_before;
    struct sl_file_watch watch;
};

static struct sl_row_reader_config rows_config(const struct sl_model *model, uint32_t tables,
                                               uint64_t cache_bytes,
                                               const struct sl_engine_config *c,
                                               enum sl_table_id *out_id) {
    struct sl_row_reader_config rc = {.cache_bytes = cache_bytes};
    for (uint32_t i = 0; i < SL_TABLES; i++) {
        if (!(tables >> i & 1))
            continue;
        const struct sl_gguf_tensor *t = sl_table_tensor(model, (enum sl_table_id)i);
        if (out_id)
            out_id[rc.n_tables] = (enum sl_table_id)i;
        uint32_t row_bytes = sl_table_row_bytes(model, (enum sl_table_id)i);
        struct sl_tensor_cut cut = {t->offset_bytes, t->ne[1], row_bytes, row_bytes};
        (void)sl_table_cut(model, t, &cut);
        rc.table[rc.n_tables++] = (struct sl_row_table){.offset_bytes = cut.offset_bytes,
                                                        .n_rows = cut.n_rows,
                                                        .row_bytes = cut.row_bytes,
                                                        .stride_bytes = cut.stride_bytes,
                                                        .file = t->file};
        rc.max_wants += sl_table_token_rows(model, (enum sl_table_id)i) * c->batch_tokens;
    }
    return rc;
}

uint64_t sl_table_store_bytes(const struct sl_model *model, uint32_t tables, uint64_t cache_bytes,
                              const struct sl_engine_config *c) {
    struct sl_row_reader_config rc = rows_config(model, tables, cache_bytes, c, NULL);
    struct sl_reader_config queue = sl_model_reader_config(c);
    return sizeof(struct sl_table_store) + rc.max_wants * sizeof(struct sl_row_want) +
           sl_row_reader_size_bytes(&rc, &queue);
}

uint32_t sl_table_store_cached(const struct sl_model *model, uint32_t tables, uint64_t cache_bytes,
                               const struct sl_engine_config *c) {
    struct sl_row_reader_config rc = rows_config(model, tables, cache_bytes, c, NULL);
    return sl_row_reader_cached(&rc);
}

static enum sl_status open_reader(struct sl_table_store *s, const struct sl_row_reader_config *rc,
                                  struct sl_err *err) {
    const struct sl_engine_config *c = &s->plan->config;
    struct sl_reader_config queue = sl_model_reader_config(c);
    struct sl_reader *reader = NULL;
    sl_row_reader_queue(rc, &queue);
    queue.slab = sl_row_reader_slab(s->rows);
    SL_TRY(sl_model_files_open(s->model->gguf, c, &queue, &reader, err));
    enum sl_status status = sl_row_reader_start(s->rows, reader, err);
    if (status != SL_OK)
        sl_reader_close(&reader);
    return status;
}

enum sl_status sl_table_store_create(const struct sl_model *model,
                                     const struct sl_memory_plan *plan,
                                     struct sl_timeline *timeline,
                                     struct sl_table_store **out_store, struct sl_err *err) {
    struct sl_table_store *s = calloc(1, sizeof *s);
    if (!s)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the streamed tables");
    s->model = model;
    s->plan = plan;
    s->timeline = timeline;
    struct sl_row_reader_config rc =
        rows_config(model, plan->streamed_tables, plan->table_cache_bytes, &plan->config, s->id);
    s->n_tables = rc.n_tables;
    s->wants = calloc(rc.max_wants, sizeof *s->wants);
    enum sl_status status = s->wants
                                ? sl_row_reader_create(&rc, &s->rows, err)
                                : sl_fail(err, SL_ERR_NOMEM, "no memory for the streamed tables");
    if (status == SL_OK)
        status = open_reader(s, &rc, err);
    if (status != SL_OK) {
        sl_table_store_destroy(&s);
        return status;
    }
    char how[256];
    sl_reader_describe(sl_row_reader_reader(s->rows), how, sizeof how);
    sl_info("rows of %u table%s are read by %s", s->n_tables, s->n_tables == 1 ? "" : "s", how);
    *out_store = s;
    return SL_OK;
}

void sl_table_store_destroy(struct sl_table_store **ps) {
    struct sl_table_store *s = *ps;
    if (!s)
        return;
    sl_row_reader_destroy(&s->rows);
    free(s->wants);
    free(s);
    *ps = NULL;
}

enum sl_status sl_table_store_ask(struct sl_table_store *s, const uint32_t *const rows[SL_TABLES],
                                  uint32_t n, uint8_t *const to[SL_TABLES], struct sl_err *err) {
    struct sl_row_want *w = s->wants;
    for (uint32_t t = 0; t < s->n_tables; t++) {
        enum sl_table_id id = s->id[t];
        size_t row_bytes = sl_table_row_bytes(s->model, id);
        for (uint32_t i = 0; i < n * sl_table_token_rows(s->model, id); i++)
            *w++ =
                (struct sl_row_want){.to = to[id] + i * row_bytes, .row = rows[id][i], .table = t};
    }
    struct sl_row_reader_stats stats;
    sl_row_reader_get_stats(s->rows, &stats);
    s->reads_before = stats.reads;
    s->asked_ns = sl_timeline_now(s->timeline);
    s->n = n;
    return sl_row_reader_ask(s->rows, s->wants, (uint32_t)(w - s->wants), err);
}

/* Which table, and that it is a row of it: the reader knows bytes of files. */
static void name_row(const struct sl_table_store *s, const struct sl_row_want *w,
                     struct sl_err *err) {
    const struct sl_gguf_tensor *t = sl_table_tensor(s->model, s->id[w->table]);
    struct sl_err why = *err;
    sl_fail(err, SL_ERR_IO, "row %u of tensor '%.*s': %.400s", (unsigned)w->row,
            (int)(t->name.len < 64 ? t->name.len : 64), t->name.ptr, why.text);
}

enum sl_status sl_table_store_wait(struct sl_table_store *s, const struct sl_row_abort *give_up,
                                   uint8_t *failed, uint32_t *out_n_failed, struct sl_err *err) {
    uint32_t n_wants;
    struct sl_err why = {{0}};
    *out_n_failed = 0;
    enum sl_status status = sl_row_reader_wait(s->rows, give_up, &n_wants, &why);
    if (status != SL_OK)
        return sl_fail(err, status, "%s", why.text);
    struct sl_row_reader_stats stats;
    sl_row_reader_get_stats(s->rows, &stats);
    if (stats.reads > s->reads_before)
        sl_timeline_since(s->timeline, "rows of tables", s->asked_ns, {"rows", s->n},
                          {"read", (uint32_t)(stats.reads - s->reads_before)});
    const struct sl_row_want *w = s->wants;
    for (uint32_t t = 0; n_wants && t < s->n_tables; t++) {
        uint32_t each = sl_table_token_rows(s->model, s->id[t]);
        for (uint32_t i = 0; i < s->n * each; i++, w++) {
            if (w->status == SL_OK)
                continue;
            if (!*out_n_failed && err) {
                *err = why;
                name_row(s, w, err);
            }
            *out_n_failed += !failed[i / each];
            failed[i / each] = 1;
        }
    }
    return SL_OK;
}

enum sl_status sl_table_store_verify(struct sl_table_store *s, struct sl_err *err) {
    enum sl_status status = sl_file_watch_look(&s->watch, sl_row_reader_reader(s->rows), err);
    if (status == SL_AGAIN)
        sl_row_reader_forget(s->rows);
    return status;
}

enum sl_status sl_table_store_check_files(struct sl_table_store *s, struct sl_err *err) {
    return sl_reader_check_files(sl_row_reader_reader(s->rows), err) == SL_OK ? SL_OK
                                                                              : SL_ERR_CORRUPT;
}

void sl_table_store_quit(struct sl_table_store *s) {
    sl_row_reader_quit(s->rows);
}
