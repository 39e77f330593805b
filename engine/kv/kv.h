/* Pages that hold SL_KV_PAGE_TOKENS positions of one session each, over all layers: of keys and
 * values, and whatever else layers keep (seq_state.h). A session's pages need not be neighbours;
 * its page table says where they are. Layers that keep the tail of a sequence alone have pages of a
 * second pool, with a page table of its own.
 *
 * Which pages are taken is one list for the whole model, the scheduler's. What is in them is with
 * the layers: every stage has that of its own, under the same numbers. No locks. */
#ifndef SL_ENGINE_KV_H
#define SL_ENGINE_KV_H

#include "engine/seq/kv_data.h"
#include "engine/types/plan.h"
#include "model/arch/model.h"

#define SL_KV_NO_PAGE UINT32_MAX

struct sl_kv_pages {
    uint32_t n_pages;
    uint32_t n_free;
    uint32_t n_idle;      /* taken, and kept for their text alone */
    uint32_t *free_pages; /* a stack: [n_free] */
};

enum sl_status sl_kv_pages_init(struct sl_kv_pages *pages, uint32_t n_pages,
                                struct sl_err *err) SL_MUST_CHECK;
void sl_kv_pages_release(struct sl_kv_pages *pages);
/* SL_KV_NO_PAGE when all are taken. */
uint32_t sl_kv_page_take(struct sl_kv_pages *pages);
void sl_kv_page_give(struct sl_kv_pages *pages, uint32_t page);
/* Of the pages that are taken so many are used by no session: for the gauges. */
void sl_kv_set_idle(struct sl_kv_pages *pages, uint32_t n_idle);

/* How many pages there are, and sequences. */
struct sl_kv_size {
    struct sl_seq_config stores; /* with tails: n_tails is not 0 */
    uint32_t n_pages, n_tails, n_seq;
};

struct sl_kv_size sl_kv_size_of(const struct sl_memory_plan *plan);

/* Bytes of all pages of a model or slice, and what sl_kv_data_init takes of the host for lists. */
uint64_t sl_kv_bytes(const struct sl_model *model, const struct sl_kv_size *size);
uint64_t sl_kv_list_bytes(uint32_t n_layer);

/* Allocates all pages of the model's layers on dev. They are in as many buffers as the device's
 * largest makes necessary; each part is in one. SL_ERR_UNSUPPORTED: that has no room for one; a
 * source of stores with memory that it could not follow. Where they are the host's memory, a thread
 * begins to touch them, so that no page fault or out-of-memory comes later. */
enum sl_status sl_kv_data_init(struct sl_kv_data *kv, struct sl_device *dev,
                               const struct sl_model *model, const struct sl_kv_size *size,
                               struct sl_err *err) SL_MUST_CHECK;
/* Waits until all are touched. SL_ERR_NOMEM: there are not as many. */
enum sl_status sl_kv_data_touched(struct sl_kv_data *kv, struct sl_err *err) SL_MUST_CHECK;
void sl_kv_data_release(struct sl_kv_data *kv);

/* A page's copy in the host's memory: every layer's part of it, then, where it is held, of the tail
 * page of the same positions. */
struct sl_kv_copy {
    uint32_t page, tail; /* SL_KV_NO_PAGE: not copied */
    bool holds_tail;     /* the copy has room for a tail page, copied or not */
    bool to_device;
};
/* Bytes of this stage's part of it. */
static inline size_t sl_kv_copy_bytes(const struct sl_kv_data *kv, bool holds_tail) {
    return kv->page_bytes + (holds_tail ? kv->tail_bytes : 0);
}
/* Copies to or from the host, and waits for it. */
enum sl_status sl_kv_page_copy(const struct sl_kv_data *kv, const struct sl_kv_copy *copy,
                               uint8_t *host) SL_MUST_CHECK;

struct sl_step;
/* Before the step: keeps what stores that are not repeatable have in pages that its rows go on
 * writing, so that the step can be started again after sl_kv_restore(). Enqueued; does nothing
 * where all are repeatable. */
enum sl_status sl_kv_save(const struct sl_kv_data *kv, const struct sl_step *step) SL_MUST_CHECK;
enum sl_status sl_kv_restore(const struct sl_kv_data *kv, const struct sl_step *step) SL_MUST_CHECK;

#endif
