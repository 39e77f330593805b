/* Messages to and from stages: what goes in comes out, and whatever else comes is refused or leads
 * nowhere outside the arrays that were planned for. */
#include "tests/unit/engine/fixture.h"

#include <math.h>

#include "engine/stage/stage_message.h"

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

static struct sl_message_arrays here, there, back;
static uint8_t *wire;
static size_t room;

static int setup(void **state) {
    (void)state;
    room = sl_message_max_bytes(&limits);
    wire = malloc(room);
    return !wire || sl_message_arrays_init(&here, &limits) != SL_OK ||
           sl_message_arrays_init(&there, &limits) != SL_OK ||
           sl_message_arrays_init(&back, &limits) != SL_OK;
}

static int teardown(void **state) {
    (void)state;
    sl_message_arrays_release(&here);
    sl_message_arrays_release(&there);
    sl_message_arrays_release(&back);
    free(wire);
    return 0;
}

/* A step of 4 rows, 2 with logits, whose third has failed before. */
static struct sl_stage_call a_step(void) {
    struct sl_stage_call c = {.ask = {.what = SL_STAGE_STEP}};
    c.ask.step = (struct sl_ask_step){.micro_batch = 1,
                                      .n_rows = 4,
                                      .n_decode = 2,
                                      .n_out = 2,
                                      .n_failed = 1,
                                      .only_largest = true,
                                      .sent = SL_SENT_ROWS};
    struct sl_step s = sl_step_lay(here.step_arrays, limits.max_rows, limits.max_out);
    s.failed = here.failed;
    for (uint32_t i = 0; i < 4; i++) {
        sl_step_add(&s, i % 2, 30 + i, 8 - i, 4 - i, 60 + i);
        if (i < 2)
            sl_step_add_out(&s, 0.5f + (float)i);
    }
    here.failed[2] = 1;
    for (uint32_t i = 0; i < 4 * limits.n_row; i++)
        here.rows[i] = (float)i / 3;
    for (uint32_t i = 0; i < 2; i++) {
        here.pages.changed[i] = (struct sl_page_range){0, 0};
        for (uint32_t k = 1; k < 3 + i; k++)
            sl_page_table_set(&here.pages, i, k, 2 * i + k);
        here.tails.changed[i] = (struct sl_page_range){0, 0};
        sl_page_table_set(&here.tails, i, 2, 3 + i);
    }
    c.with = (struct sl_stage_arrays){.step_arrays = here.step_arrays,
                                      .max_rows = limits.max_rows,
                                      .max_out = limits.max_out,
                                      .failed = here.failed,
                                      .pages = &here.pages,
                                      .tails = &here.tails,
                                      .rows = here.rows};
    return c;
}

static size_t put(const struct sl_stage_call *c, bool answer) {
    size_t n = 0;
    if (answer)
        assert_ok(sl_message_put_answer(c, 77, &limits, wire, room, &n, &test_err));
    else
        assert_ok(sl_message_put_ask(c, 77, &limits, wire, room, &n, &test_err));
    assert_true(n <= room);
    return n;
}

/* Out of a block of just that size, so that who reads past it is seen under ASan. */
static enum sl_status get(const uint8_t *bytes, size_t n, struct sl_stage_call *c, bool answer) {
    uint8_t *exact = malloc(n ? n : 1);
    assert_non_null(exact);
    memcpy(exact, bytes, n);
    enum sl_status status = answer ? sl_message_get_answer(exact, n, &limits, &back, c, &test_err)
                                   : sl_message_get_ask(exact, n, &limits, &there, c, &test_err);
    free(exact);
    return status;
}

static void steps_come_out_as_they_went_in(void **state) {
    (void)state;
    struct sl_stage_call c = a_step(), got = {0};
    size_t n = put(&c, false);
    struct sl_message_head h;
    assert_ok(sl_message_head(wire, n, &h, &test_err));
    assert_int_equal(h.kind, SL_MESSAGE_ASK);
    assert_int_equal(h.what, SL_STAGE_STEP);
    assert_int_equal(h.number, 77);
    assert_ok(get(wire, n, &got, false));
    assert_memory_equal(&got.ask.step, &c.ask.step, sizeof c.ask.step);
    struct sl_step a = sl_step_lay(here.step_arrays, limits.max_rows, limits.max_out),
                   b = sl_step_lay(got.with.step_arrays, got.with.max_rows, got.with.max_out);
    assert_memory_equal(a.ids, b.ids, 4 * sizeof *a.ids);
    assert_memory_equal(a.pos, b.pos, 4 * sizeof *a.pos);
    assert_memory_equal(a.slot, b.slot, 4 * sizeof *a.slot);
    assert_memory_equal(a.tail_slot, b.tail_slot, 4 * sizeof *a.tail_slot);
    assert_memory_equal(a.row_seq, b.row_seq, 4 * sizeof *a.row_seq);
    assert_memory_equal(a.row_len, b.row_len, 4 * sizeof *a.row_len);
    assert_memory_equal(a.out_rows, b.out_rows, 2 * sizeof *a.out_rows);
    assert_memory_equal(a.sums_at, b.sums_at, 2 * sizeof *a.sums_at);
    assert_memory_equal(here.failed, got.with.failed, 4);
    assert_memory_equal(here.rows, got.with.rows, 4 * limits.n_row * sizeof(float));
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(got.with.pages->changed[i].first, 1);
        assert_int_equal(got.with.pages->changed[i].end, 3 + i);
        for (uint32_t k = 1; k < 3 + i; k++)
            assert_int_equal(sl_page_table_get(got.with.pages, i, k), 2 * i + k);
        assert_int_equal(got.with.tails->changed[i].first, 2);
        assert_int_equal(got.with.tails->changed[i].end, 3);
        assert_int_equal(sl_page_table_get(got.with.tails, i, 2), 3 + i);
    }
}

static struct sl_stage_call an_answer(void) {
    struct sl_stage_call c = a_step();
    struct sl_stage_answer *a = &c.answer;
    a->status = SL_ERR_DEVICE_OOM;
    snprintf(a->err.text, sizeof a->err.text, "card:1: no memory");
    a->has_background = true;
    a->counts.expert_hits_total = 12345678901;
    a->found.use.misses = 3;
    a->step = (struct sl_answer_step){.n_failed = 2,
                                      .began_ns = 5,
                                      .ended_ns = 9,
                                      .n_logits = 2,
                                      .has_rows = true,
                                      .has_max = true,
                                      .has_at = true};
    here.failed[3] = 1;
    for (uint32_t i = 0; i < 2 * limits.n_vocab; i++)
        here.logits[i] = (float)i - 9.5f;
    for (uint32_t i = 0; i < 2 * SL_VOCAB_BLOCKS(limits.n_vocab); i++) {
        here.max[i] = (float)i;
        here.at[i] = i;
    }
    c.with.out_logits = (struct sl_logits){here.logits, {here.max, here.at, NULL, 0}};
    return c;
}

static void answers_come_out_as_they_went_in(void **state) {
    (void)state;
    struct sl_stage_call c = an_answer(), got = c;
    uint8_t failed[6] = {0, 0, 1, 0};
    size_t n = put(&c, true);
    got.with.failed = failed;
    memset(&got.answer, 0xff, sizeof got.answer);
    assert_ok(get(wire, n, &got, true));
    assert_int_equal(got.answer.status, SL_ERR_DEVICE_OOM);
    assert_string_equal(got.answer.err.text, "card:1: no memory");
    uint8_t *text = memmem(wire, n, "card:1", 6);
    memcpy(text, "\n\xb1\xc3\xa9\x7f\xff", 6); /* what is no text is not passed on */
    assert_ok(get(wire, n, &got, true));
    assert_string_equal(got.answer.err.text, "??\xc3\xa9??: no memory");
    assert_true(got.answer.has_background && !got.answer.heat_unsaved);
    assert_memory_equal(&got.answer.counts, &c.answer.counts, sizeof c.answer.counts);
    assert_memory_equal(&got.answer.found, &c.answer.found, sizeof c.answer.found);
    assert_int_equal(got.answer.step.n_failed, 2);
    assert_memory_equal(failed, here.failed, 4);
    assert_memory_equal(got.with.out_logits.rows, here.logits, 2 * limits.n_vocab * sizeof(float));
    assert_memory_equal(got.with.out_logits.blocks.at, here.at, 4 * sizeof *here.at);
    assert_null(got.with.out_logits.blocks.sum);
    /* What had failed stays so. */
    failed[0] = 1;
    assert_int_equal(get(wire, n, &got, true), SL_ERR_PROTOCOL);
}

/* Of maxima alone the first of the largest goes; where one is no number, all of them go. */
static void the_largest_alone(void **state) {
    (void)state;
    struct sl_stage_call c = an_answer(), got;
    uint32_t blocks = SL_VOCAB_BLOCKS(limits.n_vocab);
    uint8_t failed[6] = {0};
    assert_int_equal(blocks, 2);
    c.answer.step.has_rows = false;
    c.answer.step.n_failed = 2;
    c.with.out_logits.rows = NULL;
    for (uint32_t k = 0; k < 3; k++) {
        const float max[] = {k == 1 ? 3 : -5, 3, -INFINITY, k == 2 ? NAN : -1};
        memcpy(here.max, max, sizeof max);
        for (uint32_t i = 0; i < 4; i++)
            here.at[i] = i + 1;
        size_t n = put(&c, true);
        got = c;
        got.with.failed = failed;
        memset(back.max, 0xff, 4 * sizeof *back.max);
        assert_ok(get(wire, n, &got, true));
        const struct sl_vocab_blocks *b = &got.with.out_logits.blocks;
        assert_true(got.answer.step.has_max && got.answer.step.has_at);
        assert_null(got.with.out_logits.rows);
        assert_null(b->sum);
        if (k == 2) {
            assert_memory_equal(b->max, max, sizeof max);
            assert_memory_equal(b->at, here.at, 4 * sizeof *here.at);
            continue;
        }
        assert_true(b->max[!k] == 3 && isinf(b->max[k]) && b->max[k] < 0);
        assert_int_equal(b->at[!k], !k + 1);
        assert_true(isinf(b->max[2]) && b->max[3] == -1);
        assert_int_equal(b->at[3], 4);
        /* A block that there is not, a place that is not in it, no number. */
        for (uint32_t lie = 0; lie < 3; lie++) {
            uint8_t *at = wire + n - 12 + 4 * (lie == 1 ? 2 : lie == 2 ? 1 : 0), kept[4];
            memcpy(kept, at, 4);
            memset(at, 0xff, 4);
            assert_int_equal(get(wire, n, &got, true), SL_ERR_PROTOCOL);
            memcpy(at, kept, 4);
        }
    }
}

/* Two rows of hidden states, of a step that kept more. */
static struct sl_stage_call hidden_states(void) {
    struct sl_stage_call c = {.ask = {.what = SL_STAGE_HIDDEN, .logits = {1, 1, 2}}};
    for (uint32_t i = 0; i < 2 * limits.n_embd; i++)
        here.rows[i] = (float)i / 7;
    c.with.out_rows = here.rows;
    return c;
}

static void hidden_states_come_out_as_they_went_in(void **state) {
    (void)state;
    struct sl_stage_call c = hidden_states(), got = {0};
    size_t n = put(&c, false);
    uint32_t micro_batch = 0;
    assert_ok(get(wire, n, &got, false));
    assert_memory_equal(&got.ask.logits, &c.ask.logits, sizeof c.ask.logits);
    assert_ok(sl_message_micro_batch(wire, n, &limits, &micro_batch, &test_err));
    assert_int_equal(micro_batch, 1);
    c.ask.logits.n = limits.max_out + 1; /* more than were planned for */
    n = put(&c, false);
    assert_int_equal(get(wire, n, &got, false), SL_ERR_PROTOCOL);
    c.ask.logits.n = 2;
    n = put(&c, true);
    memset(back.rows, 0, 2 * limits.n_embd * sizeof(float));
    got = c;
    got.with.out_rows = NULL;
    assert_ok(get(wire, n, &got, true));
    assert_memory_equal(got.with.out_rows, here.rows, 2 * limits.n_embd * sizeof(float));
    c.answer.status = SL_ERR_IO; /* then there are none */
    n = put(&c, true);
    assert_ok(get(wire, n, &got, true));
    assert_null(got.with.out_rows);
}

static void what_a_stage_is_comes_out_as_it_went_in(void **state) {
    (void)state;
    struct sl_stage_call c = {.ask = {.what = SL_STAGE_HELLO}}, got = c;
    struct sl_stage_hello *h = &c.answer.hello;
    *h = (struct sl_stage_hello){.name = {UINT64_MAX - 1, 2},
                                 .device = "card:1",
                                 .rows_alike = true,
                                 .begins_ahead = true,
                                 .arithmetic = {UINT64_MAX - 3, 4},
                                 .first_layer = 5,
                                 .n_layer = 6,
                                 .n_row = 70,
                                 .n_embd = 7,
                                 .n_vocab = 8,
                                 .n_logit_rows = 9,
                                 .n_routed = 10,
                                 .n_expert = 11,
                                 .page_bytes = UINT64_MAX - 12,
                                 .tail_bytes = 13,
                                 .heat_bytes = 14};
    size_t n = put(&c, true);
    assert_ok(get(wire, n, &got, true));
    assert_memory_equal(&got.answer.hello, h, sizeof *h);
}

/* Every number that leads into an array. */
static void leads_nowhere_else(const struct sl_stage_call *c) {
    const struct sl_ask_step *a = &c->ask.step;
    if (c->ask.what != SL_STAGE_STEP)
        return;
    struct sl_step s = sl_step_lay(c->with.step_arrays, c->with.max_rows, c->with.max_out);
    assert_true(a->micro_batch < limits.n_micro_batches && a->n_rows &&
                a->n_rows <= limits.max_rows);
    assert_true(a->n_decode <= a->n_rows && a->n_out <= limits.max_out);
    for (uint32_t i = 0; i < a->n_rows; i++) {
        assert_true(s.ids[i] < limits.n_vocab && s.row_seq[i] < limits.n_seq);
        assert_true(s.slot[i] < limits.n_pages * SL_KV_PAGE_TOKENS);
        assert_true(s.tail_slot[i] < limits.n_tails * SL_KV_PAGE_TOKENS);
        assert_true(s.row_len[i] && s.row_len[i] <= limits.seq_pages * SL_KV_PAGE_TOKENS);
    }
    for (uint32_t i = 0; i < a->n_out; i++)
        assert_true(s.out_rows[i] < a->n_rows);
    for (uint32_t i = 0; i < limits.n_seq; i++) {
        struct sl_page_range r = c->with.pages->changed[i];
        assert_true(r.first <= r.end && r.end <= limits.seq_pages);
        for (uint32_t k = r.first; k < r.end; k++)
            assert_true(sl_page_table_get(c->with.pages, i, k) < limits.n_pages);
        r = c->with.tails->changed[i];
        assert_true(r.first <= r.end && r.end <= limits.seq_pages);
        for (uint32_t k = r.first; k < r.end; k++)
            assert_true(sl_page_table_get(c->with.tails, i, k) < limits.n_tails);
    }
}

static void set_length(uint8_t *bytes, size_t n) {
    for (uint32_t i = 0; i < 4; i++)
        bytes[4 + i] = (uint8_t)(n >> 8 * i);
}

/* Cut anywhere, one byte longer, and with any byte changed. */
static void damage(const struct sl_stage_call *c, bool answer) {
    size_t n = put(c, answer);
    uint8_t *bytes = malloc(n + 1), failed[6];
    uint32_t n_refused = 0;
    assert_non_null(bytes);
    for (size_t len = 0; len <= n + 1; len++) {
        struct sl_stage_call got = *c;
        memcpy(failed, (const uint8_t[6]){0, 0, 1}, sizeof failed);
        got.with.failed = failed;
        memcpy(bytes, wire, n);
        bytes[n] = 0;
        if (len >= 8)
            set_length(bytes, len);
        assert_int_equal(get(bytes, len, &got, answer), len == n ? SL_OK : SL_ERR_PROTOCOL);
        if (len != n)
            assert_true(*test_err.text);
    }
    for (size_t i = 0; i < n; i++)
        for (uint32_t bit = 0; bit < 9; bit++) {
            struct sl_stage_call got = *c;
            memcpy(failed, (const uint8_t[6]){0, 0, 1}, sizeof failed);
            got.with.failed = failed;
            memcpy(bytes, wire, n);
            bytes[i] = (uint8_t)(bit == 8 ? 0xff : bytes[i] ^ 1u << bit);
            enum sl_status status = get(bytes, n, &got, answer);
            assert_true(status == SL_OK || status == SL_ERR_PROTOCOL);
            n_refused += status != SL_OK;
            if (status == SL_OK && !answer)
                leads_nowhere_else(&got);
        }
    assert_true(n_refused > 8 * SL_MESSAGE_HEAD_BYTES / 2);
    free(bytes);
}

static void damaged_messages_are_refused(void **state) {
    (void)state;
    struct sl_stage_call step = a_step();
    damage(&step, false);
    struct sl_stage_call answer = an_answer();
    damage(&answer, true);
    struct sl_stage_call hidden = hidden_states();
    damage(&hidden, false);
    damage(&hidden, true);
    struct sl_stage_call page = {.ask = {.what = SL_STAGE_WRITE_PAGE, .page = {8, 4, true}},
                                 .with = {.bytes = here.bytes, .n_bytes = 64}};
    damage(&page, false);
    /* Not in the pool, and a tail page that the copy has no room for. */
    const struct sl_ask_page wrong[] = {{9, 4, true}, {8, 5, true}, {8, 4, false}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct sl_stage_call c = page;
        c.ask.page = wrong[i];
        size_t n = put(&c, false);
        assert_int_equal(get(wire, n, &c, false), SL_ERR_PROTOCOL);
        assert_non_null(strstr(test_err.text, "not in the pool"));
    }
}

/* What holds between two stages of one process is not written. */
static void direct_ways_are_not_written(void **state) {
    (void)state;
    size_t n = 0;
    for (uint32_t way = SL_SENT_COPY; way < SL_SENT_WAYS; way++) {
        struct sl_stage_call c = a_step();
        c.ask.step.sent = (uint8_t)way;
        assert_int_equal(sl_message_put_ask(&c, 1, &limits, wire, room, &n, &test_err),
                         SL_ERR_PROTOCOL);
        c.answer.step.sent = (uint8_t)way;
        assert_int_equal(sl_message_put_answer(&c, 1, &limits, wire, room, &n, &test_err),
                         SL_ERR_PROTOCOL);
    }
    struct sl_stage_call c = a_step(); /* and none past its buffer */
    size_t all = put(&c, false);
    for (size_t less = 0; less < all; less++)
        assert_int_equal(sl_message_put_ask(&c, 1, &limits, wire, less, &n, &test_err),
                         SL_ERR_PROTOCOL);
}

/* A step of generated rows alone, and its rows behind it. */
static void rows_that_come_later(void **state) {
    (void)state;
    struct sl_stage_call c = a_step(), got = {0};
    uint8_t bytes[SL_MESSAGE_ROWS_BYTES(2, 64)];
    struct sl_message_head h;
    size_t n = 0;
    bool come = false;
    assert_true(limits.n_row <= 64);
    c.ask.step.n_rows = 2;
    c.ask.step.n_failed = 0;
    c.ask.step.sent = SL_SENT_LATER;
    here.failed[0] = 7; /* not read: the stage before may be writing it */
    n = put(&c, false);
    assert_ok(get(wire, n, &got, false));
    assert_memory_equal(&got.ask, &c.ask, sizeof c.ask);
    assert_null(got.with.rows);
    assert_int_equal(there.failed[0] | there.failed[1], 0);
    here.failed[0] = 0;

    memset(there.rows, 0, 2 * limits.n_row * sizeof(float));
    assert_ok(sl_message_put_rows(&c, 77, &limits, here.rows, bytes, sizeof bytes, &n, &test_err));
    assert_int_equal(n, SL_MESSAGE_ROWS_BYTES(2, limits.n_row));
    assert_ok(sl_message_head(bytes, n, &h, &test_err));
    assert_true(h.kind == SL_MESSAGE_ROWS && h.what == SL_STAGE_STEP && h.number == 77);
    assert_ok(sl_message_get_rows(bytes, n, &limits, &got, there.rows, &come, &test_err));
    assert_true(come);
    assert_memory_equal(there.rows, here.rows, 2 * limits.n_row * sizeof(float));
    got.ask.step.n_rows = 1; /* those of another step */
    assert_int_equal(sl_message_get_rows(bytes, n, &limits, &got, there.rows, &come, &test_err),
                     SL_ERR_PROTOCOL);
    bytes[16] = SL_STAGE_LOGITS;
    assert_int_equal(sl_message_head(bytes, n, &h, &test_err), SL_ERR_PROTOCOL);
    assert_ok(sl_message_put_rows(&c, 77, &limits, NULL, bytes, sizeof bytes, &n, &test_err));
    assert_int_equal(n, SL_MESSAGE_ROWS_BYTES(0, limits.n_row));
    assert_ok(sl_message_get_rows(bytes, n, &limits, &got, there.rows, &come, &test_err));
    assert_false(come);

    /* Prompts, failed rows, rows that are kept, and rows that are there do not come later. */
    const struct sl_ask_step sound = c.ask.step;
    for (uint32_t lie = 0; lie < 5; lie++) {
        struct sl_ask_step *a = &c.ask.step;
        *a = sound;
        a->n_decode -= lie == 0;
        a->n_out -= lie == 1;
        a->keep_all = lie == 2;
        a->dead = lie == 3;
        n = put(&c, false);
        if (lie == 4) /* `sent`, before `later` */
            wire[SL_MESSAGE_HEAD_BYTES + 5 * 4 + 3] = 1;
        assert_int_equal(get(wire, n, &got, false), SL_ERR_PROTOCOL);
    }
}

static void cancellation(void **state) {
    (void)state;
    uint8_t bytes[SL_MESSAGE_HEAD_BYTES];
    struct sl_message_head h;
    assert_int_equal(sl_message_put_cancel(0x123456789abcdef0, bytes), sizeof bytes);
    assert_ok(sl_message_head(bytes, sizeof bytes, &h, &test_err));
    assert_int_equal(h.kind, SL_MESSAGE_CANCEL);
    assert_true(h.number == 0x123456789abcdef0);
    bytes[16] = 1;
    assert_int_equal(sl_message_head(bytes, sizeof bytes, &h, &test_err), SL_ERR_PROTOCOL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_come_out_as_they_went_in),
        cmocka_unit_test(answers_come_out_as_they_went_in),
        cmocka_unit_test(the_largest_alone),
        cmocka_unit_test(hidden_states_come_out_as_they_went_in),
        cmocka_unit_test(what_a_stage_is_comes_out_as_it_went_in),
        cmocka_unit_test(damaged_messages_are_refused),
        cmocka_unit_test(direct_ways_are_not_written),
        cmocka_unit_test(rows_that_come_later),
        cmocka_unit_test(cancellation),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
