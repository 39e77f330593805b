/* The table of messages to stages, which docs/WIRE.md shows, says what the program writes: each
 * message is walked field by field, and must end where the table does. */
#include "tests/unit/engine/fixture.h"

#include "common/bytes.h"
#include "engine/stage/stage_message.h"

#define MAX_NOTES 64u

static const struct sl_message_limits with_tails = {.n_micro_batches = 2,
                                                    .max_rows = 6,
                                                    .max_out = 3,
                                                    .n_seq = 2,
                                                    .seq_pages = 4,
                                                    .n_pages = 9,
                                                    .n_tails = 5,
                                                    .n_before = SL_STEP_BEFORE,
                                                    .n_row = 8,
                                                    .n_embd = 4,
                                                    .n_vocab = 70,
                                                    .n_routed = 2,
                                                    .n_expert = 5,
                                                    .page_bytes = 48,
                                                    .tail_bytes = 16,
                                                    .heat_bytes = 28};

/* A message that is walked, and what was found in it. */
struct walk {
    const struct sl_message_limits *l;
    const struct sl_stage_ask *ask; /* of an answer */
    const uint8_t *bytes;
    size_t at, n;
    struct {
        const char *name;
        const uint8_t *bytes;
        size_t n;
        uint64_t value;
    } notes[MAX_NOTES];
    uint32_t n_notes;
};

static uint64_t number_at(const uint8_t *p, size_t n) {
    uint64_t v = 0;
    for (size_t i = n; i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

static uint64_t take(struct walk *w, const char *name, size_t n) {
    assert_true(n <= w->n - w->at);
    assert_true(w->n_notes < MAX_NOTES);
    uint64_t value = n <= 8 ? number_at(w->bytes + w->at, n) : 0;
    w->notes[w->n_notes].name = name;
    w->notes[w->n_notes].bytes = w->bytes + w->at;
    w->notes[w->n_notes].n = n;
    w->notes[w->n_notes++].value = value;
    w->at += n;
    return value;
}

static uint32_t found(const struct walk *w, const char *name) {
    uint32_t i = 0;
    while (i < w->n_notes && strcmp(w->notes[i].name, name) != 0)
        i++;
    assert_true(i < w->n_notes);
    return i;
}

static uint64_t value_of(const struct walk *w, const char *name) {
    return w->notes[found(w, name)].value;
}

static void is(const struct walk *w, const char *name, uint64_t value) {
    assert_int_equal(value_of(w, name), value);
}

static void are(const struct walk *w, const char *name, const void *bytes, size_t n) {
    uint32_t i = found(w, name);
    assert_int_equal(w->notes[i].n, n);
    assert_memory_equal(w->notes[i].bytes, bytes, n);
}

static void take_flag(struct walk *w, const char *name, uint64_t *out) {
    *out = take(w, name, 1);
    assert_true(*out <= 1);
}

static void take_text(struct walk *w, const char *name, size_t size) {
    uint64_t n = take(w, "", 4);
    assert_true(n < size);
    take(w, name, n);
}

static void take_pages(struct walk *w, const char *name, uint64_t n_seq) {
    size_t from = w->at;
    for (uint64_t i = 0; i < n_seq; i++) {
        uint64_t first = take(w, "", 4), end = take(w, "", 4);
        assert_true(first <= end && end <= w->l->seq_pages);
        take(w, "", 4 * (end - first));
    }
    size_t n = w->at - from;
    w->at = from;
    take(w, name, n);
}

/* What both sides have agreed on. */
#define AGREED                                                                                     \
    const uint64_t has_tails = w->l->n_tails > 0, n_before = w->l->n_before, n_seq = w->l->n_seq,  \
                   n_row = w->l->n_row, n_embd = w->l->n_embd, n_vocab = w->l->n_vocab,            \
                   n_routed = w->l->n_routed, n_expert = w->l->n_expert,                           \
                   page_bytes = w->l->page_bytes, tail_bytes = w->l->tail_bytes,                   \
                   heat_bytes = w->l->heat_bytes, n_blocks = (n_vocab + 63) / 64;                  \
    (void)has_tails, (void)n_before, (void)n_seq, (void)n_row, (void)n_embd, (void)n_vocab,        \
        (void)n_routed, (void)n_expert, (void)page_bytes, (void)tail_bytes, (void)heat_bytes,      \
        (void)n_blocks;
/* What an answer has of its request, which comes to other fields of that for other requests. */
#define ASKED                                                                                      \
    const uint64_t well = value_of(w, "status") == 0,                                              \
                   n_rows = w->ask->what == SL_STAGE_STEP ? w->ask->step.n_rows : 0,               \
                   n = sl_stage_asks_rows(w->ask->what) ? w->ask->logits.n : 0,                    \
                   holds_tail = w->ask->what == SL_STAGE_READ_PAGE ? w->ask->page.holds_tail : 0;  \
    (void)well, (void)n_rows, (void)n, (void)holds_tail;

#define ASK(WHAT, number, name, text)                                                              \
    static void ask_##WHAT(struct walk *w) {                                                       \
        _Static_assert(SL_STAGE_##WHAT == (number), "its number");                                 \
        assert_string_equal(sl_stage_request_name(SL_STAGE_##WHAT), name);                         \
        AGREED
#define ANSWER(WHAT, number, name, text)                                                           \
    static void answer_##WHAT(struct walk *w) {                                                    \
        _Static_assert(SL_STAGE_##WHAT == (number), "its number");                                 \
        assert_string_equal(sl_stage_request_name(SL_STAGE_##WHAT), name);                         \
        AGREED ASKED
#define BEGIN(text) static void begin(struct walk *w) {
#define U32(field, text)                                                                           \
    const uint64_t field = take(w, #field, 4);                                                     \
    (void)field;
#define U64(field, text) take(w, #field, 8);
#define F64(field, text) take(w, #field, 8);
#define FLAG(field, text)                                                                          \
    uint64_t field;                                                                                \
    take_flag(w, #field, &field);                                                                  \
    (void)field;
#define TEXT(field, size, text)  take_text(w, #field, size);
#define BYTES(field, n_of, text) take(w, #field, n_of);
#define U32S(field, n_of, text)  take(w, #field, 4 * (n_of));
#define F32S(field, n_of, text)  take(w, #field, 4 * (n_of));
#define U64S(field, n_of, text)  take(w, #field, 8 * (n_of));
#define PAGES(field, n_of, text) take_pages(w, #field, n_of);
#define END                      }
#include "engine/stage/stage_message.def"

static void walk(struct walk *w, bool answer, enum sl_stage_request what) {
    void (*asks[SL_STAGE_REQUESTS])(struct walk *) = {
        [SL_STAGE_STEP] = ask_STEP,           [SL_STAGE_LOGITS] = ask_LOGITS,
        [SL_STAGE_READ_PAGE] = ask_READ_PAGE, [SL_STAGE_WRITE_PAGE] = ask_WRITE_PAGE,
        [SL_STAGE_EXPERTS] = ask_EXPERTS,     [SL_STAGE_HEAT] = ask_HEAT,
        [SL_STAGE_HIDDEN] = ask_HIDDEN,       [SL_STAGE_DISK_SPEED] = ask_DISK_SPEED,
    };
    void (*answers[SL_STAGE_REQUESTS])(struct walk *) = {
        [SL_STAGE_STEP] = answer_STEP,           [SL_STAGE_LOGITS] = answer_LOGITS,
        [SL_STAGE_READ_PAGE] = answer_READ_PAGE, [SL_STAGE_WRITE_PAGE] = answer_WRITE_PAGE,
        [SL_STAGE_EXPERTS] = answer_EXPERTS,     [SL_STAGE_HEAT] = answer_HEAT,
        [SL_STAGE_HIDDEN] = answer_HIDDEN,       [SL_STAGE_DISK_SPEED] = answer_DISK_SPEED,
    };
    w->at = SL_MESSAGE_HEAD_BYTES;
    if (answer)
        begin(w);
    (answer ? answers : asks)[what](w);
    assert_int_equal(w->at, w->n);
}

/* ---- messages ---- */

struct message {
    struct sl_message_arrays arrays;
    struct sl_stage_call call;
    uint8_t *bytes;
    struct walk walk;
};

static void begin_message(struct message *m, const struct sl_message_limits *l,
                          enum sl_stage_request what) {
    *m = (struct message){.call = {.ask = {.what = what}}};
    assert_ok(sl_message_arrays_init(&m->arrays, l));
    m->bytes = malloc(sl_message_max_bytes(l));
    assert_non_null(m->bytes);
    m->walk.l = l;
    m->walk.ask = &m->call.ask;
    m->call.with = (struct sl_stage_arrays){.step_arrays = m->arrays.step_arrays,
                                            .max_rows = l->max_rows,
                                            .max_out = l->max_out,
                                            .failed = m->arrays.failed,
                                            .pages = &m->arrays.pages,
                                            .tails = &m->arrays.tails,
                                            .rows = m->arrays.rows,
                                            .out_rows = m->arrays.rows,
                                            .bytes = m->arrays.bytes};
    m->call.with.out_logits =
        (struct sl_logits){m->arrays.logits, {m->arrays.max, m->arrays.at, m->arrays.sum, 0}};
    for (size_t i = 0; i < (size_t)l->max_rows * l->n_row; i++)
        m->arrays.rows[i] = (float)i / 3;
    for (size_t i = 0; i < (size_t)l->max_out * l->n_vocab; i++)
        m->arrays.logits[i] = (float)i / 5;
    for (size_t i = 0; i < l->page_bytes + l->tail_bytes; i++)
        m->arrays.bytes[i] = (uint8_t)(i + 1);
}

static void end_message(struct message *m) {
    sl_message_arrays_release(&m->arrays);
    free(m->bytes);
}

static void put_and_walk(struct message *m, bool answer) {
    size_t room = sl_message_max_bytes(m->walk.l);
    m->walk.n_notes = 0;
    if (answer)
        assert_ok(
            sl_message_put_answer(&m->call, 77, m->walk.l, m->bytes, room, &m->walk.n, &test_err));
    else
        assert_ok(
            sl_message_put_ask(&m->call, 77, m->walk.l, m->bytes, room, &m->walk.n, &test_err));
    m->walk.bytes = m->bytes;
    walk(&m->walk, answer, m->call.ask.what);
}

static void a_step(struct message *m, const struct sl_message_limits *l, uint8_t sent) {
    begin_message(m, l, SL_STAGE_STEP);
    m->call.ask.step = (struct sl_ask_step){.micro_batch = 1,
                                            .n_rows = 4,
                                            .n_decode = 3,
                                            .n_out = 2,
                                            .n_failed = 1,
                                            .only_largest = true,
                                            .sent = sent};
    struct sl_step s = sl_step_lay(m->arrays.step_arrays, l->max_rows, l->max_out);
    s.failed = m->arrays.failed;
    for (uint32_t i = 0; i < 4; i++) {
        sl_step_add(&s, i % 2, 30 + i, 8 - i, 4 - i, 60 + i);
        sl_step_add_before(&s, (const uint32_t[]){10, 11, 12, 13}, i);
        if (i < 2)
            sl_step_add_out(&s, 0.5f + (float)i);
    }
    m->arrays.failed[2] = 1;
    for (uint32_t k = 1; k < 3; k++)
        sl_page_table_set(&m->arrays.pages, 1, k, 3 + k);
    if (l->n_tails)
        sl_page_table_set(&m->arrays.tails, 0, 2, 4);
}

static void steps(void **state) {
    (void)state;
    struct sl_message_limits without = with_tails;
    without.n_tails = without.n_before = 0;
    for (uint32_t i = 0; i < 4; i++) {
        const struct sl_message_limits *l = i < 2 ? &with_tails : &without;
        uint8_t sent = i % 2 ? SL_SENT_ROWS : SL_SENT_NONE;
        struct message m;
        a_step(&m, l, sent);
        put_and_walk(&m, false);
        const struct walk *w = &m.walk;
        is(w, "micro_batch", 1);
        is(w, "n_rows", 4);
        is(w, "n_decode", 3);
        is(w, "n_out", 2);
        is(w, "n_failed", 1);
        is(w, "keep_all", 0);
        is(w, "only_largest", 1);
        is(w, "dead", 0);
        is(w, "sent", sent);
        is(w, "later", 0);
        struct sl_step s = sl_step_lay(m.arrays.step_arrays, l->max_rows, l->max_out);
        are(w, "ids", s.ids, 16);
        are(w, "pos", s.pos, 16);
        are(w, "slot", s.slot, 16);
        are(w, "tail_slot", s.tail_slot, l->n_tails ? 16 : 0);
        are(w, "row_seq", s.row_seq, 16);
        are(w, "row_len", s.row_len, 16);
        are(w, "out_rows", s.out_rows, 8);
        are(w, "sums_at", s.sums_at, 8);
        are(w, "before", s.before, l->n_before ? 32 : 0);
        are(w, "failed", m.arrays.failed, 4);
        are(w, "rows", m.arrays.rows, sent ? 4 * 4 * l->n_row : 0);
        end_message(&m);
    }
    assert_int_equal(SL_KV_PAGE_TOKENS, 64); /* as the table says of `slot` */
    assert_int_equal(SL_KV_NO_PAGE, UINT32_MAX);
}

static void answers_to_steps(void **state) {
    (void)state;
    for (uint32_t has = 0; has < 32; has++) {
        struct message m;
        a_step(&m, &with_tails, SL_SENT_ROWS);
        struct sl_stage_answer *a = &m.call.answer;
        a->status = has & 1 ? SL_OK : SL_ERR_IO;
        snprintf(a->err.text, sizeof a->err.text, "a disk");
        a->heat_unsaved = true;
        a->counts.layers = 3;
        a->found.prefetch_wasted = 5; /* the last */
        a->step = (struct sl_answer_step){.n_failed = 2,
                                          .sent = has == 31 ? SL_SENT_ROWS : SL_SENT_NONE,
                                          .began_ns = 5,
                                          .ended_ns = 9,
                                          .n_logits = 2,
                                          .has_rows = has & 2,
                                          .has_max = has & 4,
                                          .has_at = has & 8,
                                          .has_sum = has & 16};
        put_and_walk(&m, true);
        const struct walk *w = &m.walk;
        is(w, "status", (uint32_t)a->status);
        are(w, "err", "a disk", 6);
        is(w, "heat_unsaved", 1);
        are(w, "counts", &a->counts, sizeof a->counts);
        are(w, "found", &a->found, sizeof a->found);
        is(w, "n_failed", 2);
        is(w, "began_ns", 5);
        is(w, "ended_ns", 9);
        is(w, "n_logits", 2);
        are(w, "logits", m.arrays.logits, has & 2 ? 2 * 4 * with_tails.n_vocab : 0);
        bool largest = (has & 30) == 12; /* maxima and where they are, and nothing else */
        is(w, "largest", largest);
        are(w, "best", (const uint32_t[6]){0}, largest ? 24 : 0);
        are(w, "max", m.arrays.max, has & 4 && !largest ? 16 : 0);
        are(w, "at", m.arrays.at, has & 8 && !largest ? 16 : 0);
        are(w, "sum", m.arrays.sum, has & 16 ? 16 : 0);
        are(w, "out_rows", m.arrays.rows, has == 31 ? 4 * 4 * with_tails.n_row : 0);
        end_message(&m);
    }
}

/* Bytes of an answer that went well; 0: none. */
static size_t bytes_of(const struct message *m) {
    const struct sl_message_limits *l = m->walk.l;
    switch (m->call.ask.what) {
    case SL_STAGE_READ_PAGE:
        return l->page_bytes + (m->call.ask.page.holds_tail ? l->tail_bytes : 0);
    case SL_STAGE_EXPERTS:
        return (size_t)l->n_routed * l->n_expert;
    case SL_STAGE_HEAT:
        return l->heat_bytes;
    default:
        return 0;
    }
}

static void other_requests(void **state) {
    (void)state;
    const struct sl_stage_ask asks[] = {
        {.what = SL_STAGE_LOGITS, .logits = {1, 3, 2}},
        {.what = SL_STAGE_HIDDEN, .logits = {1, 2, 3}},
        {.what = SL_STAGE_READ_PAGE, .page = {8, 4, true}},
        {.what = SL_STAGE_READ_PAGE, .page = {8, SL_KV_NO_PAGE, false}},
        {.what = SL_STAGE_WRITE_PAGE, .page = {8, 4, true}},
        {.what = SL_STAGE_WRITE_PAGE, .page = {8, SL_KV_NO_PAGE, false}},
        {.what = SL_STAGE_EXPERTS},
        {.what = SL_STAGE_HEAT},
        {.what = SL_STAGE_DISK_SPEED, .disk_speed = {1.5}},
    };
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
        struct message m;
        begin_message(&m, &with_tails, asks[i].what);
        m.call.ask = asks[i];
        put_and_walk(&m, false);
        if (sl_stage_asks_rows(asks[i].what)) {
            is(&m.walk, "first", asks[i].logits.first);
            is(&m.walk, "n", asks[i].logits.n);
        }
        if (asks[i].what == SL_STAGE_WRITE_PAGE) {
            is(&m.walk, "page", 8);
            are(&m.walk, "bytes", m.arrays.bytes, 48);
            are(&m.walk, "tail_page", m.arrays.bytes + 48, asks[i].page.holds_tail ? 16 : 0);
        }
        for (uint32_t fails = 0; fails < 2; fails++) {
            m.call.answer.status = fails ? SL_ERR_IO : SL_OK;
            m.call.answer.disk_speed.bytes_per_s = 0;
            m.call.with.n_bytes = bytes_of(&m);
            put_and_walk(&m, true);
        }
        end_message(&m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps),
        cmocka_unit_test(answers_to_steps),
        cmocka_unit_test(other_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
