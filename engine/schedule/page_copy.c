/* Copies a KV page of all layers to or from the host; each stage holds the part of its own layers.
 */
#include "engine/schedule/schedule.h"

/* A copy on its way through the stages, each with its layers' part. */
struct page_copy {
    struct sl_pipeline_item item; /* first */
    struct sl_stage_call calls[SL_MAX_STAGES];
    struct sl_kv_copy what;
    uint8_t *host;    /* of the next stage's part */
    uint32_t n_asked; /* stages, until one failed */
};

static bool ask_page(struct sl_pipeline_item *p, uint32_t stage, struct sl_stage_call *c) {
    struct page_copy *copy = (struct page_copy *)(void *)p;
    const struct sl_kv_copy *what = &copy->what;
    const struct sl_stage_hello *hello = sl_pipeline_hello(p->pipeline, stage);
    if (stage && copy->calls[copy->n_asked - 1].answer.status != SL_OK)
        return false;
    c->ask.what = what->to_device ? SL_STAGE_WRITE_PAGE : SL_STAGE_READ_PAGE;
    c->ask.page = (struct sl_ask_page){what->page, what->tail, what->holds_tail};
    c->with.bytes = copy->host;
    c->with.n_bytes = hello->page_bytes + (what->holds_tail ? hello->tail_bytes : 0);
    copy->host += c->with.n_bytes;
    copy->n_asked = stage + 1;
    return true;
}

enum sl_status sl_page_copy(struct sl_engine *e, const struct sl_kv_copy *copy, uint8_t *host) {
    struct page_copy c = {.item = {.ask = ask_page}, .what = *copy, .host = host};
    c.item.calls = c.calls;
    sl_pipeline_send(e->pipeline, &c.item);
    sl_pipeline_wait(e->pipeline, &c.item);
    const struct sl_stage_answer *a = &c.calls[c.n_asked - 1].answer;
    if (sl_is_fatal(a->status))
        e->pages_lost = a->err;
    return a->status;
}

enum sl_status sl_pages_fail(const struct sl_engine *e, struct sl_err *err, enum sl_status status,
                             const char *what) {
    const char *lost = e->pages_lost.text;
    return sl_fail(err, status, "%s: %.400s", what, *lost ? lost : sl_status_text(status));
}
