/* What a peer with the key may send once stages are loaded: requests to a worker, and answers to a
 * coordinator. What is taken of a request leads nowhere outside the planned arrays; what is taken
 * of either is written again as the same bytes.
 *
 * The first byte says which: even, a request; odd, an answer to the request that the next byte
 * names. If its third bit is set, rows that follow a step. Unless its second bit is set, the length
 * in the head is made right. */
#include "common/bytes.h"
#include "engine/stage/stage_message.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct sl_message_limits limits = {.n_micro_batches = 2,
                                                .max_rows = 6,
                                                .max_out = 3,
                                                .n_seq = 2,
                                                .seq_pages = 4,
                                                .n_pages = 9,
                                                .n_tails = 5,
                                                .n_row = 8,
                                                .n_embd = 4,
                                                .n_vocab = 70,
                                                .n_routed = 2,
                                                .n_expert = 5,
                                                .page_bytes = 48,
                                                .tail_bytes = 16,
                                                .heat_bytes = 28};

static struct sl_message_arrays arrays;
static uint8_t *again;
static size_t room;

static void must(bool holds) {
    if (!holds)
        abort();
}

static void prepare(void) {
    if (again)
        return;
    room = sl_message_max_bytes(&limits);
    again = malloc(room);
    must(again && sl_message_arrays_init(&arrays, &limits) == SL_OK);
}

static void check_table(const struct sl_page_table *t, uint32_t seq, uint32_t n_pages) {
    struct sl_page_range r = t->changed[seq];
    must(r.first <= r.end && r.end <= limits.seq_pages);
    for (uint32_t k = r.first; k < r.end; k++)
        must(sl_page_table_get(t, seq, k) < n_pages);
}

/* Every number that leads into an array. */
static void check_step(const struct sl_stage_call *c) {
    const struct sl_ask_step *a = &c->ask.step;
    struct sl_step s = sl_step_lay(c->with.step_arrays, c->with.max_rows, c->with.max_out);
    must(a->micro_batch < limits.n_micro_batches && a->n_rows && a->n_rows <= limits.max_rows);
    must(a->n_decode <= a->n_rows && a->n_out <= limits.max_out && a->n_failed <= a->n_rows);
    for (uint32_t i = 0; i < a->n_rows; i++) {
        must(s.ids[i] < limits.n_vocab && s.row_seq[i] < limits.n_seq);
        must(s.slot[i] < limits.n_pages * SL_KV_PAGE_TOKENS);
        must(s.tail_slot[i] < limits.n_tails * SL_KV_PAGE_TOKENS);
        must(s.row_len[i] && s.row_len[i] <= limits.seq_pages * SL_KV_PAGE_TOKENS);
    }
    for (uint32_t i = 0; i < a->n_out; i++)
        must(s.out_rows[i] < a->n_rows);
    for (uint32_t i = 0; i < limits.n_seq; i++) {
        check_table(c->with.pages, i, limits.n_pages);
        check_table(c->with.tails, i, limits.n_tails);
    }
}

static void take_ask(const uint8_t *data, size_t size) {
    struct sl_stage_call c = {.ask = {.what = SL_STAGE_HELLO}};
    struct sl_message_head head;
    struct sl_err err;
    size_t n = 0;
    uint32_t micro_batch = 0;
    if (sl_message_head(data, size, &head, &err) != SL_OK)
        return;
    if (sl_message_micro_batch(data, size, &limits, &micro_batch, &err) == SL_OK)
        must(micro_batch < limits.n_micro_batches);
    for (uint32_t i = 0; i < limits.n_seq; i++)
        arrays.pages.changed[i] = arrays.tails.changed[i] = (struct sl_page_range){0, 0};
    if (sl_message_get_ask(data, size, &limits, &arrays, &c, &err) != SL_OK)
        return;
    if (c.ask.what == SL_STAGE_STEP)
        check_step(&c);
    must(sl_message_put_ask(&c, head.number, &limits, again, room, &n, &err) == SL_OK);
    must(n == size && memcmp(again, data, n) == 0);
}

/* Calls that a coordinator makes. */
static struct sl_stage_call call_of(uint8_t which, uint8_t *failed, uint8_t *bytes) {
    static const enum sl_stage_request what[] = {
        SL_STAGE_STEP,      SL_STAGE_LOGITS,     SL_STAGE_HIDDEN,
        SL_STAGE_READ_PAGE, SL_STAGE_WRITE_PAGE, SL_STAGE_EXPERTS,
        SL_STAGE_HEAT,      SL_STAGE_DISK_SPEED, SL_STAGE_HELLO};
    struct sl_stage_call c = {.ask = {.what = what[which % (sizeof what / sizeof *what)]}};
    c.with = (struct sl_stage_arrays){.failed = failed, .bytes = bytes};
    if (c.ask.what == SL_STAGE_STEP)
        c.ask.step = (struct sl_ask_step){.n_rows = 4,
                                          .n_decode = 2,
                                          .n_out = 2,
                                          .n_failed = 1,
                                          .only_largest = true,
                                          .sent = SL_SENT_ROWS};
    else if (sl_stage_asks_rows(c.ask.what))
        c.ask.logits = (struct sl_ask_logits){0, 1, 2};
    else if (c.ask.what == SL_STAGE_READ_PAGE || c.ask.what == SL_STAGE_WRITE_PAGE)
        c.ask.page = (struct sl_ask_page){8, 4, true};
    c.with.n_bytes = c.ask.what == SL_STAGE_EXPERTS ? limits.n_routed * limits.n_expert
                     : c.ask.what == SL_STAGE_HEAT  ? limits.heat_bytes
                                                    : limits.page_bytes + limits.tail_bytes;
    return c;
}

static void take_answer(uint8_t which, const uint8_t *data, size_t size) {
    uint8_t failed[6] = {0, 0, 1}, bytes[64] = {0};
    struct sl_stage_call c = call_of(which, failed, bytes);
    struct sl_message_head head;
    struct sl_err err;
    size_t n = 0;
    if (sl_message_head(data, size, &head, &err) != SL_OK ||
        sl_message_get_answer(data, size, &limits, &arrays, &c, &err) != SL_OK)
        return;
    must(memchr(c.answer.err.text, 0, sizeof c.answer.err.text) != NULL);
    if (c.ask.what == SL_STAGE_STEP)
        must(failed[2] == 1 && c.answer.step.n_failed <= c.ask.step.n_rows &&
             c.answer.step.n_logits <= limits.max_out);
    if (c.ask.what == SL_STAGE_HELLO)
        must(memchr(c.answer.hello.device, 0, sizeof c.answer.hello.device) != NULL);
    if (c.answer.status != SL_OK)
        return;
    must(sl_message_put_answer(&c, head.number, &limits, again, room, &n, &err) == SL_OK);
    must(n <= size);
}

/* Of a step that went ahead of them. */
static void take_rows(const uint8_t *data, size_t size) {
    struct sl_stage_call c = {.ask = {.what = SL_STAGE_STEP}};
    struct sl_message_head head;
    struct sl_err err;
    size_t n = 0;
    bool come = false;
    c.ask.step = (struct sl_ask_step){.n_rows = 4, .n_decode = 4, .n_out = 4};
    if (sl_message_head(data, size, &head, &err) != SL_OK || head.kind != SL_MESSAGE_ROWS ||
        sl_message_get_rows(data, size, &limits, &c, arrays.rows, &come, &err) != SL_OK)
        return;
    must(size == SL_MESSAGE_ROWS_BYTES(come ? 4 : 0, limits.n_row));
    must(sl_message_put_rows(&c, head.number, &limits, come ? arrays.rows : NULL, again, room, &n,
                             &err) == SL_OK);
    must(n == size && memcmp(again, data, n) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    prepare();
    if (size < 2)
        return 0;
    size_t n = size - 2;
    uint8_t *message = malloc(n ? n : 1); /* of just that size: reading past it is seen */
    must(message != NULL);
    memcpy(message, data + 2, n);
    if (!(data[0] & 2) && n >= SL_MESSAGE_HEAD_BYTES)
        sl_put_u32(message + 4, (uint32_t)n);
    if (data[0] % 2)
        take_answer(data[1], message, n);
    else if (data[0] & 4)
        take_rows(message, n);
    else
        take_ask(message, n);
    free(message);
    return 0;
}
