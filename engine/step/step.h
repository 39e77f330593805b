/* The rows of one step, and the page table that tells where their sessions' KV is: host memory,
 * filled by the scheduler and read by the stages that the step passes through.
 *
 * A step that is under way has tables of its own, so that the scheduler can fill the next one. Page
 * tables travel the same way: what has changed since the last step goes with the next, so that
 * every stage sees each step with the pages that it was made for. */
#ifndef SL_ENGINE_STEP_H
#define SL_ENGINE_STEP_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Rows [0, n_decode) are generated rows, the others prompt rows; rows of one session ascend in
 * position. The arrays from ids to before lie one behind the other in arrays. */
struct sl_step {
    uint32_t micro_batch; /* which of those that may be under way at once */
    uint32_t n_rows, n_decode;
    uint32_t n_out;    /* rows whose logits are wanted, at most plan.n_logit_rows */
    bool keep_all;     /* keep all rows' hidden states for sl_forward_logits; n_out is ignored */
    bool only_largest; /* of the logits nobody needs more than the largest of each row */
    bool received;     /* its rows are sent by ops of the stage before, under the number in seqno */
    uint32_t *arrays;  /* where the arrays begin */
    uint32_t *ids;     /* [n_rows] token */
    int32_t *pos;      /* [n_rows] position in its session */
    uint32_t *slot;    /* [n_rows] KV position: page * SL_KV_PAGE_TOKENS + index */
    uint32_t *tail_slot; /* [n_rows] the same in tail pages (seq_state.h) */
    uint32_t *row_seq;   /* [n_rows] session's row of the page table */
    uint32_t *row_len;   /* [n_rows] positions that the row attends to, itself included */
    uint32_t *seqno;     /* [SL_STEP_SEQNOS] of the stages: what it receives and sends */
    uint32_t *out_rows;  /* [n_out] ascending */
    float *sums_at;      /* [n_out] the inverse temperature of their blocks' sums; 0: not wanted */
    uint32_t *before;    /* [n_rows, SL_STEP_BEFORE] tokens before its own, the nearest first;
                            SL_NO_TOKEN: none. For the host: no op reads them */
    /* Set by the run: */
    uint8_t *failed;   /* [n_rows] an expert that the row needs could not be read: its logits and
                          KV positions are undefined */
    uint32_t n_failed; /* and why, of the first: in the run's err */
};

/* What seqno holds: the step's micro-batch, which is its channel; the sequence number under which
 * the stage before sends its rows (sl_step.received); the one under which this stage sends them on
 * (sl_op_receive, sl_op_send). Each stage
 * writes its own. */
enum { SL_STEP_CHANNEL, SL_STEP_RECEIVES, SL_STEP_SENDS, SL_STEP_SEQNOS };

#define SL_STEP_BEFORE 2u
#define SL_NO_TOKEN    UINT32_MAX

/* Elements of the arrays with room for so many rows and rows of logits. */
static inline uint32_t sl_step_elems(uint32_t max_rows, uint32_t max_out) {
    return (6 + SL_STEP_BEFORE) * max_rows + SL_STEP_SEQNOS + 2 * max_out;
}
/* The arrays over a block of sl_step_elems elements, which stays the caller's; everything else is
 * zero, and failed, of max_rows, is still to be set. */
struct sl_step sl_step_lay(uint32_t *arrays, uint32_t max_rows, uint32_t max_out);
/* Copies the rows that there are, and the first n_out of those with logits, to arrays of their own
 * with room for max_rows and n_out, as sl_step_lay() lays them, all but before; what lies between
 * is left alone. Returns how many elements, from the first, that takes: a step of few rows has
 * short arrays. */
uint32_t sl_step_pack(const struct sl_step *step, uint32_t max_rows, uint32_t n_out,
                      uint32_t *out_arrays);
/* Empties it. */
void sl_step_begin(struct sl_step *step);
/* The row of a token at position pos of the session in that row of the page tables, whose KV goes
 * to that page and that tail page. */
void sl_step_add(struct sl_step *step, uint32_t seq, uint32_t pos, uint32_t page, uint32_t tail,
                 uint32_t id);
/* The row that was added last is at position pos of that text. */
void sl_step_add_before(struct sl_step *step, const uint32_t *text, uint32_t pos);
/* The row that was added last is one with logits. */
void sl_step_add_out(struct sl_step *step, float sums_at);

/* Which page has which positions of a session: [n_seq, n_pages]. */
struct sl_page_table {
    uint32_t n_seq, n_pages;
    uint32_t *pages;
    struct sl_page_range {
        uint32_t first, end; /* first == end: nothing */
    } * changed;             /* [n_seq] what was set since it was last taken */
};

enum sl_status sl_page_table_init(struct sl_page_table *t, uint32_t n_seq,
                                  uint32_t n_pages) SL_MUST_CHECK;
/* A zeroed table is an empty one: it has no sessions, and takes and adds nothing. */
void sl_page_table_release(struct sl_page_table *t);
size_t sl_page_table_bytes(uint32_t n_seq, uint32_t n_pages);
void sl_page_table_set(struct sl_page_table *t, uint32_t seq, uint32_t index, uint32_t page);
uint32_t sl_page_table_get(const struct sl_page_table *t, uint32_t seq, uint32_t index);
/* Moves what has changed to `to`, of the same shape, which has then these changes and no others. */
void sl_page_table_take(struct sl_page_table *t, struct sl_page_table *to);
/* Sets in t what has changed in changes. */
void sl_page_table_add(struct sl_page_table *t, const struct sl_page_table *changes);

#endif
