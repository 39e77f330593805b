/* Requests to stages, their answers, and cancellation, as bytes: what travels where a stage is not
 * of this process.
 *
 * All numbers are little-endian and of fixed width. A message is
 *   0  2  version, 3       2  2  kind: 0 request, 1 answer, 2 cancel, 3 rows
 *   4  4  length of all    8  8  number of the call, the sender's
 *  16  2  what is asked (enum sl_stage_request), 0 of a cancel
 *  18  ..  fields, then arrays, in the order in which the encoder writes them
 * How messages are cut from a stream, and whether they came whole, is their carrier's.
 *
 * Nothing that is decoded is trusted. Lengths are compared with what both sides have planned for
 * before anything is written, numbers that lead into arrays (rows, pages, slots, sessions, tokens,
 * micro-batches) with the arrays' sizes, and a message must end where its fields do. What is wrong
 * is SL_ERR_PROTOCOL, with a text. Nothing is allocated but by the init functions. */
#ifndef SL_ENGINE_STAGE_MESSAGE_H
#define SL_ENGINE_STAGE_MESSAGE_H

#include "engine/stage/stage.h"
#include "engine/types/plan.h"

#define SL_MESSAGE_VERSION    3u
#define SL_MESSAGE_HEAD_BYTES 18u

enum sl_message_kind {
    SL_MESSAGE_ASK,
    SL_MESSAGE_ANSWER,
    SL_MESSAGE_CANCEL,
    SL_MESSAGE_ROWS, /* of a step that was asked for before */
    SL_MESSAGE_KINDS
};

/* What both sides know of a stage before they exchange arrays. */
struct sl_message_limits {
    uint32_t n_micro_batches, max_rows, max_out;
    uint32_t n_seq, seq_pages; /* of each page table */
    uint32_t n_pages, n_tails; /* of the two pools; n_tails 0: no layer has tail pages */
    uint32_t n_before;         /* tokens before each row's that steps bring: SL_STEP_BEFORE or 0 */
    uint32_t n_row, n_embd, n_vocab, n_routed, n_expert;
    uint64_t page_bytes, tail_bytes, heat_bytes;
};
struct sl_message_limits sl_message_limits(const struct sl_memory_plan *plan,
                                           const struct sl_stage_hello *hello);
/* No message within the limits is longer. */
size_t sl_message_max_bytes(const struct sl_message_limits *limits);
/* The most messages that can wait to be sent to one end: a step of each micro-batch, which all come
 * together where a link or a stage is slow, and a call of another kind. */
static inline uint32_t sl_message_max_queued(const struct sl_message_limits *limits) {
    return limits->n_micro_batches + 1;
}

/* Where the arrays of one call go that is decoded. */
struct sl_message_arrays {
    uint32_t *step_arrays;      /* of a step: sl_step_elems(max_rows, max_out) */
    uint8_t *failed;            /* [max_rows] */
    struct sl_page_table pages; /* changes */
    struct sl_page_table tails; /* likewise; empty where there are none */
    float *rows;                /* [max_rows, n_row] */
    bool borrows_rows;          /* they are somebody else's */
    float *logits, *max, *sum;  /* [max_out, n_vocab], [max_out, blocks of n_vocab] */
    uint32_t *at;               /* as max */
    uint8_t *bytes;             /* of a page, cells or heat */
};
enum sl_status sl_message_arrays_init(struct sl_message_arrays *a,
                                      const struct sl_message_limits *limits) SL_MUST_CHECK;
/* Has rows come out at another place, [max_rows, n_row], which is borrowed. */
void sl_message_arrays_borrow(struct sl_message_arrays *a, float *rows);
void sl_message_arrays_release(struct sl_message_arrays *a);
/* What init allocates. */
uint64_t sl_message_arrays_bytes(const struct sl_message_limits *limits);

struct sl_message_head {
    enum sl_message_kind kind;
    enum sl_stage_request what;
    uint64_t number;
};
/* Of n bytes: also whether that is their length. */
enum sl_status sl_message_head(const uint8_t *bytes, size_t n, struct sl_message_head *out_head,
                               struct sl_err *err) SL_MUST_CHECK;

/* Writes a message to out [room]. SL_ERR_PROTOCOL: the call is beyond the limits, or says something
 * that holds between stages of one process alone. */
enum sl_status sl_message_put_ask(const struct sl_stage_call *c, uint64_t number,
                                  const struct sl_message_limits *limits, uint8_t *out, size_t room,
                                  size_t *out_n, struct sl_err *err) SL_MUST_CHECK;
enum sl_status sl_message_put_answer(const struct sl_stage_call *c, uint64_t number,
                                     const struct sl_message_limits *limits, uint8_t *out,
                                     size_t room, size_t *out_n, struct sl_err *err) SL_MUST_CHECK;
/* Rows of a step with SL_SENT_LATER; NULL: they will not come. */
enum sl_status sl_message_put_rows(const struct sl_stage_call *c, uint64_t number,
                                   const struct sl_message_limits *limits, const float *rows,
                                   uint8_t *out, size_t room, size_t *out_n,
                                   struct sl_err *err) SL_MUST_CHECK;
/* Of such a message without rows, and with those of a step of so many. */
#define SL_MESSAGE_ROWS_BYTES(n_rows, n_row)                                                       \
    (SL_MESSAGE_HEAD_BYTES + 1 + (size_t)(n_rows) * (n_row) * sizeof(float))
size_t sl_message_put_cancel(uint64_t number, uint8_t out[SL_MESSAGE_HEAD_BYTES]);

/* Of a request that is a step, or about one's logits: which micro-batch's. */
enum sl_status sl_message_micro_batch(const uint8_t *bytes, size_t n,
                                      const struct sl_message_limits *limits,
                                      uint32_t *out_micro_batch, struct sl_err *err) SL_MUST_CHECK;
/* A request: fills ask and the arrays of *out_call, which are then those of `into`. Owner and
 * cancellation are the caller's to set. */
enum sl_status sl_message_get_ask(const uint8_t *bytes, size_t n,
                                  const struct sl_message_limits *limits,
                                  struct sl_message_arrays *into, struct sl_stage_call *out_call,
                                  struct sl_err *err) SL_MUST_CHECK;
/* The rows of the step c: to `into`, [n_rows, n_row]. out_come: whether they do. */
enum sl_status sl_message_get_rows(const uint8_t *bytes, size_t n,
                                   const struct sl_message_limits *limits,
                                   const struct sl_stage_call *c, float *into, bool *out_come,
                                   struct sl_err *err) SL_MUST_CHECK;
/* The answer to a call that was sent: fills its answer; failed rows and bytes go to the caller's
 * arrays, rows and logits to those of `into`. What was failed before stays so. */
enum sl_status sl_message_get_answer(const uint8_t *bytes, size_t n,
                                     const struct sl_message_limits *limits,
                                     struct sl_message_arrays *into, struct sl_stage_call *c,
                                     struct sl_err *err) SL_MUST_CHECK;

#endif
