#include "engine/stage/stage_message.h"

#include "common/bytes.h"

#include <stdlib.h>
#include <string.h>

/* More than all fields of a message that are no arrays. */
#define FIELDS_BYTES 4096u

/* Sums are sent as they lie: every field is a u64. */
#define N_SUMS (sizeof(struct sl_activity_sums) / sizeof(uint64_t))
_Static_assert(sizeof(struct sl_activity_sums) % sizeof(uint64_t) == 0,
               "sums are numbers of 64 bits");
#define N_COUNTS (sizeof(struct sl_stage_counts) / sizeof(int64_t))
_Static_assert(FIELDS_BYTES > sizeof(struct sl_stage_answer) + sizeof(struct sl_stage_ask) + 256,
               "room for all fields");

/* ---- limits ---- */

struct sl_message_limits sl_message_limits(const struct sl_memory_plan *p,
                                           const struct sl_stage_hello *h) {
    const struct sl_engine_config *c = &p->config;
    return (struct sl_message_limits){
        .n_micro_batches = p->n_micro_batches,
        .max_rows = c->batch_tokens,
        .max_out = c->parallel > SL_SCORE_ROWS ? c->parallel : SL_SCORE_ROWS,
        .n_seq = c->parallel,
        .seq_pages = p->session_pages,
        .n_pages = p->n_pages,
        .n_tails = p->n_tails,
        .n_before = p->n_before,
        .n_row = h->n_row,
        .n_embd = h->n_embd,
        .n_vocab = h->n_vocab,
        .n_routed = h->n_routed,
        .n_expert = h->n_expert,
        .page_bytes = h->page_bytes,
        .tail_bytes = h->tail_bytes,
        .heat_bytes = h->heat_bytes,
    };
}

static size_t n_cells(const struct sl_message_limits *l) {
    return (size_t)l->n_routed * l->n_expert;
}

static size_t most_bytes(const struct sl_message_limits *l) {
    size_t page = l->page_bytes + l->tail_bytes;
    size_t most = page > l->heat_bytes ? page : l->heat_bytes;
    return n_cells(l) > most ? n_cells(l) : most;
}

static size_t n_blocks(const struct sl_message_limits *l, uint32_t n) {
    return (size_t)n * SL_VOCAB_BLOCKS(l->n_vocab);
}

size_t sl_message_max_bytes(const struct sl_message_limits *l) {
    size_t rows = (size_t)l->max_rows * (1 + l->n_row * sizeof(float));
    size_t step = 4 * (size_t)sl_step_elems(l->max_rows, l->max_out) + rows +
                  2 * (size_t)l->n_seq * (8 + 4 * (size_t)l->seq_pages);
    size_t logits = (size_t)l->max_out * l->n_vocab * 4 + 12 * n_blocks(l, l->max_out);
    size_t most = step > rows + logits ? step : rows + logits;
    return FIELDS_BYTES + (most > most_bytes(l) ? most : most_bytes(l));
}

enum sl_status sl_message_arrays_init(struct sl_message_arrays *a,
                                      const struct sl_message_limits *l) {
    size_t blocks = n_blocks(l, l->max_out) + 1;
    memset(a, 0, sizeof *a);
    a->step_arrays = calloc(sl_step_elems(l->max_rows, l->max_out), sizeof *a->step_arrays);
    a->failed = calloc(l->max_rows, 1);
    a->rows = calloc((size_t)l->max_rows * l->n_row, sizeof *a->rows);
    a->logits = calloc((size_t)l->max_out * l->n_vocab, sizeof *a->logits);
    a->max = calloc(blocks, sizeof *a->max);
    a->sum = calloc(blocks, sizeof *a->sum);
    a->at = calloc(blocks, sizeof *a->at);
    a->bytes = calloc(most_bytes(l) + 1, 1);
    enum sl_status status = sl_page_table_init(&a->pages, l->n_seq, l->seq_pages);
    if (status == SL_OK && l->n_tails)
        status = sl_page_table_init(&a->tails, l->n_seq, l->seq_pages);
    if (status == SL_OK && a->step_arrays && a->failed && a->rows && a->logits && a->max &&
        a->sum && a->at && a->bytes)
        return SL_OK;
    sl_message_arrays_release(a);
    return SL_ERR_NOMEM;
}

uint64_t sl_message_arrays_bytes(const struct sl_message_limits *l) {
    uint64_t blocks = n_blocks(l, l->max_out) + 1;
    return 4 * (uint64_t)sl_step_elems(l->max_rows, l->max_out) + l->max_rows +
           4 * (uint64_t)l->max_rows * l->n_row + 4 * (uint64_t)l->max_out * l->n_vocab +
           12 * blocks + most_bytes(l) + 1 +
           sl_page_table_bytes(l->n_seq, l->seq_pages) * (l->n_tails ? 2 : 1);
}

void sl_message_arrays_borrow(struct sl_message_arrays *a, float *rows) {
    if (!a->borrows_rows)
        free(a->rows);
    a->rows = rows;
    a->borrows_rows = true;
}

void sl_message_arrays_release(struct sl_message_arrays *a) {
    free(a->step_arrays);
    free(a->failed);
    if (!a->borrows_rows)
        free(a->rows);
    free(a->logits);
    free(a->max);
    free(a->sum);
    free(a->at);
    free(a->bytes);
    sl_page_table_release(&a->pages);
    sl_page_table_release(&a->tails);
    memset(a, 0, sizeof *a);
}

/* ---- writing ---- */

struct writer {
    uint8_t *at, *end;
    bool full;
};

static uint8_t *room_for(struct writer *w, size_t n) {
    if (w->full || (size_t)(w->end - w->at) < n) {
        w->full = true;
        return NULL;
    }
    w->at += n;
    return w->at - n;
}

static void put_u8(struct writer *w, uint32_t v) {
    uint8_t *p = room_for(w, 1);
    if (p)
        *p = (uint8_t)v;
}

static void put_u32(struct writer *w, uint32_t v) {
    uint8_t *p = room_for(w, 4);
    if (p)
        sl_put_u32(p, v);
}

static void put_u64(struct writer *w, uint64_t v) {
    uint8_t *p = room_for(w, 8);
    if (p)
        sl_put_u64(p, v);
}

static void put_f64(struct writer *w, double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_u64(w, bits);
}

static void put_bytes(struct writer *w, const void *bytes, size_t n) {
    uint8_t *p = room_for(w, n);
    if (p && n)
        memcpy(p, bytes, n);
}

static void put_zeros(struct writer *w, size_t n) {
    uint8_t *p = room_for(w, n);
    if (p)
        memset(p, 0, n);
}

/* Elements of 32 bits, numbers or floats. */
static void put_words(struct writer *w, const void *words, size_t n) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    put_bytes(w, words, 4 * n); /* as they lie */
#else
    uint8_t *p = room_for(w, 4 * n);
    for (size_t i = 0; p && i < n; i++) {
        uint32_t v;
        memcpy(&v, (const char *)words + 4 * i, 4);
        sl_put_u32(p + 4 * i, v);
    }
#endif
}

static void put_head(struct writer *w, enum sl_message_kind kind, uint64_t number, uint32_t what) {
    uint8_t *p = room_for(w, SL_MESSAGE_HEAD_BYTES);
    if (!p)
        return;
    sl_put_u16(p, SL_MESSAGE_VERSION);
    sl_put_u16(p + 2, (uint16_t)kind);
    sl_put_u32(p + 4, 0);
    sl_put_u64(p + 8, number);
    sl_put_u16(p + 16, (uint16_t)what);
}

static enum sl_status end_message(struct writer *w, uint8_t *out, size_t *out_n,
                                  struct sl_err *err) {
    size_t n = (size_t)(w->at - out);
    if (w->full || n > UINT32_MAX)
        return sl_fail(err, SL_ERR_PROTOCOL, "a message that is longer than was planned for");
    sl_put_u32(out + 4, (uint32_t)n);
    *out_n = n;
    return SL_OK;
}

static void put_text(struct writer *w, const char *text, size_t size) {
    size_t n = strnlen(text, size - 1);
    put_u32(w, (uint32_t)n);
    put_bytes(w, text, n);
}

size_t sl_message_put_cancel(uint64_t number, uint8_t out[SL_MESSAGE_HEAD_BYTES]) {
    struct writer w = {out, out + SL_MESSAGE_HEAD_BYTES, false};
    put_head(&w, SL_MESSAGE_CANCEL, number, 0);
    sl_put_u32(out + 4, SL_MESSAGE_HEAD_BYTES);
    return SL_MESSAGE_HEAD_BYTES;
}

enum sl_status sl_message_put_rows(const struct sl_stage_call *c, uint64_t number,
                                   const struct sl_message_limits *l, const float *rows,
                                   uint8_t *out, size_t room, size_t *out_n, struct sl_err *err) {
    struct writer writer = {out, out + room, false}, *w = &writer;
    put_head(w, SL_MESSAGE_ROWS, number, SL_STAGE_STEP);
    put_u8(w, rows != NULL);
    if (rows)
        put_words(w, rows, (size_t)c->ask.step.n_rows * l->n_row);
    return end_message(w, out, out_n, err);
}

static void put_pages(struct writer *w, const struct sl_page_table *t) {
    for (uint32_t i = 0; i < t->n_seq; i++) {
        struct sl_page_range r = t->changed[i];
        put_u32(w, r.first);
        put_u32(w, r.end);
        put_words(w, t->pages + (size_t)i * t->n_pages + r.first, r.end - r.first);
    }
}

static bool is_planned(const struct sl_page_table *t, const struct sl_message_limits *l) {
    return t->n_seq == l->n_seq && t->n_pages == l->seq_pages;
}

static enum sl_status put_step(struct writer *w, const struct sl_stage_call *c,
                               const struct sl_message_limits *l, struct sl_err *err) {
    const struct sl_ask_step *a = &c->ask.step;
    bool later = a->sent == SL_SENT_LATER;
    if (a->sent != SL_SENT_NONE && a->sent != SL_SENT_ROWS && !later)
        return sl_fail(err, SL_ERR_PROTOCOL, "a step whose rows come in way %u: not by message",
                       a->sent);
    if (a->n_rows > l->max_rows || a->n_out > l->max_out || !is_planned(c->with.pages, l) ||
        (l->n_tails ? !is_planned(c->with.tails, l) : c->with.tails->n_seq != 0))
        return sl_fail(err, SL_ERR_PROTOCOL, "a step of %u rows, more than was planned for",
                       a->n_rows);
    struct sl_step s = sl_step_lay(c->with.step_arrays, c->with.max_rows, c->with.max_out);
    uint32_t n = a->n_rows;
    put_u32(w, a->micro_batch);
    put_u32(w, n);
    put_u32(w, a->n_decode);
    put_u32(w, a->n_out);
    put_u32(w, a->n_failed);
    put_u8(w, a->keep_all);
    put_u8(w, a->only_largest);
    put_u8(w, a->dead);
    put_u8(w, a->sent == SL_SENT_ROWS);
    put_u8(w, later);
    put_words(w, s.ids, n);
    put_words(w, s.pos, n);
    put_words(w, s.slot, n);
    if (l->n_tails)
        put_words(w, s.tail_slot, n);
    put_words(w, s.row_seq, n);
    put_words(w, s.row_len, n);
    put_words(w, s.out_rows, a->n_out);
    put_words(w, s.sums_at, a->n_out);
    put_words(w, s.before, (size_t)n * l->n_before);
    if (later) /* the stage before is at it still */
        put_zeros(w, n);
    else
        put_bytes(w, c->with.failed, n);
    put_pages(w, c->with.pages);
    put_pages(w, c->with.tails);
    if (a->sent == SL_SENT_ROWS)
        put_words(w, c->with.rows, (size_t)n * l->n_row);
    return SL_OK;
}

static size_t page_bytes(const struct sl_message_limits *l, const struct sl_ask_page *a) {
    return l->page_bytes + (a->holds_tail ? l->tail_bytes : 0);
}

enum sl_status sl_message_put_ask(const struct sl_stage_call *c, uint64_t number,
                                  const struct sl_message_limits *l, uint8_t *out, size_t room,
                                  size_t *out_n, struct sl_err *err) {
    struct writer writer = {out, out + room, false}, *w = &writer;
    const struct sl_stage_ask *a = &c->ask;
    put_head(w, SL_MESSAGE_ASK, number, a->what);
    switch (a->what) {
    case SL_STAGE_JOIN:
        put_u64(w, a->join.before.process);
        put_u64(w, a->join.before.number);
        break;
    case SL_STAGE_LINK:
        put_u8(w, a->link.alone);
        break;
    case SL_STAGE_STEP:
        SL_TRY(put_step(w, c, l, err));
        break;
    case SL_STAGE_LOGITS:
    case SL_STAGE_HIDDEN:
        put_u32(w, a->logits.micro_batch);
        put_u32(w, a->logits.first);
        put_u32(w, a->logits.n);
        break;
    case SL_STAGE_READ_PAGE:
    case SL_STAGE_WRITE_PAGE:
        put_u32(w, a->page.page);
        put_u32(w, a->page.tail);
        put_u8(w, a->page.holds_tail);
        if (a->what == SL_STAGE_WRITE_PAGE)
            put_bytes(w, c->with.bytes, page_bytes(l, &a->page));
        break;
    case SL_STAGE_DISK_SPEED:
        put_f64(w, a->disk_speed.seconds);
        break;
    case SL_STAGE_IDLE:
        put_u64(w, a->idle.most_ns);
        break;
    case SL_STAGE_HELLO:
    case SL_STAGE_EXPERTS:
    case SL_STAGE_HEAT:
    case SL_STAGE_SAVE_HEAT:
    case SL_STAGE_QUIT:
        break;
    case SL_STAGE_REQUESTS:
        return sl_fail(err, SL_ERR_PROTOCOL, "there is no such request");
    }
    return end_message(w, out, out_n, err);
}

/* The first block with the largest of n maxima; false: one of them is no number. */
static bool find_largest(const float *max, size_t n, uint32_t *out_block) {
    bool numbers = true;
    size_t best = 0;
    for (size_t i = 0; i < n; i++) {
        numbers &= max[i] == max[i];
        best = max[i] > max[best] ? i : best;
    }
    *out_block = (uint32_t)best;
    return numbers;
}

/* Nobody needs more than the largest of each row: less than a record of the link's, where all
 * blocks take two. False, and nothing is written: one of the rows has none. */
static bool put_largest(struct writer *w, const struct sl_answer_step *a, const struct sl_logits *x,
                        const struct sl_message_limits *l) {
    const struct writer before = *w;
    size_t n = n_blocks(l, 1);
    if (!a->has_max || !a->has_at || a->has_rows || a->has_sum)
        return false;
    put_zeros(w, 4);
    put_u8(w, 1);
    for (uint32_t i = 0; i < a->n_logits; i++) {
        uint32_t block;
        if (!find_largest(x->blocks.max + i * n, n, &block)) {
            *w = before;
            return false;
        }
        put_u32(w, block);
        put_words(w, x->blocks.max + i * n + block, 1);
        put_words(w, x->blocks.at + i * n + block, 1);
    }
    return true;
}

static void put_logits(struct writer *w, const struct sl_answer_step *a, const struct sl_logits *x,
                       const struct sl_message_limits *l) {
    size_t blocks = n_blocks(l, a->n_logits);
    put_u32(w, a->n_logits);
    if (put_largest(w, a, x, l))
        return;
    put_u8(w, a->has_rows);
    put_u8(w, a->has_max);
    put_u8(w, a->has_at);
    put_u8(w, a->has_sum);
    put_u8(w, 0);
    if (a->has_rows)
        put_words(w, x->rows, (size_t)a->n_logits * l->n_vocab);
    if (a->has_max)
        put_words(w, x->blocks.max, blocks);
    if (a->has_at)
        put_words(w, x->blocks.at, blocks);
    if (a->has_sum)
        put_words(w, x->blocks.sum, blocks);
}

static enum sl_status put_step_answer(struct writer *w, const struct sl_stage_call *c,
                                      const struct sl_message_limits *l, struct sl_err *err) {
    const struct sl_answer_step *a = &c->answer.step;
    if (a->sent != SL_SENT_NONE && a->sent != SL_SENT_ROWS)
        return sl_fail(err, SL_ERR_PROTOCOL, "a step whose rows go in way %u: not by message",
                       a->sent);
    put_u32(w, a->n_failed);
    put_u8(w, a->sent);
    put_u64(w, a->began_ns);
    put_u64(w, a->ended_ns);
    put_bytes(w, c->with.failed, c->ask.step.n_rows);
    put_logits(w, a, &c->with.out_logits, l);
    if (a->sent == SL_SENT_ROWS)
        put_words(w, c->with.out_rows, (size_t)c->ask.step.n_rows * l->n_row);
    return SL_OK;
}

static void put_hello(struct writer *w, const struct sl_stage_hello *h) {
    put_u64(w, h->name.process);
    put_u64(w, h->name.number);
    put_text(w, h->device, sizeof h->device);
    put_u8(w, h->rows_alike);
    put_u8(w, h->loses_none);
    put_u8(w, h->begins_ahead);
    put_u64(w, h->arithmetic.lo);
    put_u64(w, h->arithmetic.hi);
    put_u32(w, h->first_layer);
    put_u32(w, h->n_layer);
    put_u32(w, h->n_row);
    put_u32(w, h->n_embd);
    put_u32(w, h->n_vocab);
    put_u32(w, h->n_logit_rows);
    put_u32(w, h->n_routed);
    put_u32(w, h->n_expert);
    put_u64(w, h->page_bytes);
    put_u64(w, h->tail_bytes);
    put_u64(w, h->heat_bytes);
}

/* What an answer's bytes are, of requests that have some. */
static size_t answer_bytes(const struct sl_stage_ask *ask, const struct sl_message_limits *l) {
    enum sl_stage_request what = ask->what;
    return what == SL_STAGE_READ_PAGE ? page_bytes(l, &ask->page)
           : what == SL_STAGE_EXPERTS ? n_cells(l)
           : what == SL_STAGE_HEAT    ? l->heat_bytes
                                      : 0;
}

static enum sl_status put_result(struct writer *w, const struct sl_stage_call *c,
                                 const struct sl_message_limits *l, struct sl_err *err) {
    const struct sl_stage_answer *a = &c->answer;
    size_t n = a->status == SL_OK ? answer_bytes(&c->ask, l) : 0;
    if (n && c->with.n_bytes != n)
        return sl_fail(err, SL_ERR_PROTOCOL, "%zu bytes in an answer that has %zu", c->with.n_bytes,
                       n);
    switch (c->ask.what) {
    case SL_STAGE_HELLO:
        put_hello(w, &a->hello);
        break;
    case SL_STAGE_JOIN:
        put_u8(w, a->join.reads);
        break;
    case SL_STAGE_LINK:
        put_u8(w, a->link.by_ops);
        break;
    case SL_STAGE_STEP:
        return put_step_answer(w, c, l, err);
    case SL_STAGE_LOGITS:
        if (a->status == SL_OK)
            put_words(w, c->with.out_logits.rows, (size_t)c->ask.logits.n * l->n_vocab);
        break;
    case SL_STAGE_HIDDEN:
        if (a->status == SL_OK)
            put_words(w, c->with.out_rows, (size_t)c->ask.logits.n * l->n_embd);
        break;
    case SL_STAGE_DISK_SPEED:
        put_f64(w, a->disk_speed.bytes_per_s);
        break;
    default:
        put_bytes(w, c->with.bytes, n);
        break;
    }
    return SL_OK;
}

enum sl_status sl_message_put_answer(const struct sl_stage_call *c, uint64_t number,
                                     const struct sl_message_limits *l, uint8_t *out, size_t room,
                                     size_t *out_n, struct sl_err *err) {
    struct writer writer = {out, out + room, false}, *w = &writer;
    const struct sl_stage_answer *a = &c->answer;
    uint64_t sums[N_SUMS];
    int64_t counts[N_COUNTS];
    put_head(w, SL_MESSAGE_ANSWER, number, c->ask.what);
    put_u32(w, (uint32_t)a->status);
    put_text(w, a->err.text, sizeof a->err.text);
    put_u8(w, a->has_background);
    put_u8(w, a->heat_unsaved);
    memcpy(counts, &a->counts, sizeof counts);
    memcpy(sums, &a->found, sizeof sums);
    for (size_t i = 0; i < N_COUNTS; i++)
        put_u64(w, (uint64_t)counts[i]);
    for (size_t i = 0; i < N_SUMS; i++)
        put_u64(w, sums[i]);
    SL_TRY(put_result(w, c, l, err));
    return end_message(w, out, out_n, err);
}
