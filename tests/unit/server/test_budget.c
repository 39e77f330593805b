/* The limit on reasoning: answers of a model that would think on for ever. */
#include "fake_engine.c"

#include "server/request/budget.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#define N_VOCAB (FAKE_WORDS + FAKE_MAX_WORDS)

static struct sl_tokenizer tok;
static uint32_t ids_of(const char *text, uint32_t *out) {
    struct sl_ids ids = {0};
    assert_int_equal(sl_tokenizer_encode(&tok, text, strlen(text), SL_ENCODE_PARSE_SPECIAL, &ids),
                     SL_OK);
    uint32_t n = (uint32_t)ids.n;
    memcpy(out, ids.ids, n * sizeof *out);
    sl_ids_release(&ids);
    return n;
}

/* The text that comes when the model wants these tokens, one after the other: what is forced in
 * between puts them off. */
static void answer(struct sl_constraint *c, const char *wants, uint32_t most, char *out) {
    uint32_t want[64], n = ids_of(wants, want), made = 0;
    float logits[N_VOCAB];
    *out = '\0';
    for (uint32_t at = 0; at < n && made < most; made++) {
        for (uint32_t i = 0; i < N_VOCAB; i++)
            logits[i] = i == want[at] ? 5 : -1;
        assert_int_equal(c->mask(c, logits, N_VOCAB), SL_OK);
        uint32_t best = 0;
        for (uint32_t i = 1; i < N_VOCAB; i++)
            best = logits[i] > logits[best] ? i : best;
        assert_true(isfinite(logits[best]));
        assert_int_equal(c->accept(c, best), SL_OK);
        at += best == want[at];
        struct sl_str piece = sl_tokenizer_piece(&tok, best, true);
        strncat(out, piece.ptr, piece.len);
    }
}

static void expect(bool open, const char *ends, uint32_t tokens, struct sl_constraint *inner,
                   const char *wants, const char *text) {
    struct sl_reasoning_budget b = {
        .given = true, .tokens = tokens, .open = open, .opens = "<think>", .ends = ends};
    struct sl_budgeted c;
    char out[512];
    b.tok = &tok;
    assert_int_equal(
        sl_tokenizer_encode(&tok, ends, strlen(ends), SL_ENCODE_PARSE_SPECIAL, &b.close), SL_OK);
    sl_budgeted_init(&c, &b, inner);
    answer(&c.base, wants, 60, out);
    assert_string_equal(out, text);
    sl_ids_release(&b.close);
}

static void test_limits(void **state) {
    (void)state;
    static const char tag[] = "</think>", spelled[] = "[/T]"; /* one token; four of them */
    /* Within the limit nothing changes, also where the model closes with its last token. */
    expect(true, tag, 10, NULL, "abc</think>answer", "abc</think>answer");
    expect(true, tag, 4, NULL, "abc</think>answer", "abc</think>answer");
    expect(true, spelled, 7, NULL, "abc[/T]answer", "abc[/T]answer");
    /* Spent: closed, and what is behind it is free, a marker too. */
    expect(true, tag, 3, NULL, "abcdefgh", "abc</think>defgh");
    expect(true, spelled, 3, NULL, "abcdefgh", "abc[/T]defgh");
    expect(true, tag, 0, NULL, "abc", "</think>abc");
    expect(true, tag, 2, NULL, "abc<think>defgh", "ab</think>c<think>defgh");
    /* Reasoning that the answer opens itself, and an answer without any. */
    expect(false, tag, 2, NULL, "<think>abcd", "<think>ab</think>cd");
    expect(false, tag, 0, NULL, "\n<think>ab", "\n<think></think>ab");
    expect(false, tag, 2, NULL, "abcdefghijkl<think>mnop", "abcdefghijkl<think>mnop");
    /* The limit in the middle of a text that looks like the marker; the model wants the "/" too. */
    expect(true, spelled, 2, NULL, "a[/x", "a[[/T]x");
}

/* A form that forbids the marker for its first four tokens. */
struct form {
    struct sl_constraint base;
    uint32_t n;
    uint32_t marker;
};
static enum sl_status form_mask(struct sl_constraint *base, float *logits, uint32_t n_vocab) {
    struct form *f = (struct form *)base;
    (void)n_vocab;
    if (f->n < 4)
        logits[f->marker] = -INFINITY;
    if (f->n == 40)
        return sl_fail(&base->err, SL_ERR_INVALID, "the form is over");
    return SL_OK;
}
static enum sl_status form_accept(struct sl_constraint *base, uint32_t token) {
    struct form *f = (struct form *)base;
    f->n++;
    return token == 'z' ? sl_fail(&base->err, SL_ERR_INVALID, "no z") : SL_OK;
}

static void test_with_a_form(void **state) {
    (void)state;
    struct form f = {.base = {.mask = form_mask, .accept = form_accept}};
    ids_of("</think>", &f.marker);
    expect(true, "</think>", 2, &f.base, "abcdefgh", "abcd</think>efgh");
    assert_int_equal(f.n, 9);
    /* Its errors are passed on. */
    struct sl_reasoning_budget b = {.given = true, .tokens = 9, .open = true, .tok = &tok};
    struct sl_budgeted c;
    float logits[N_VOCAB] = {0};
    b.ends = "</think>";
    sl_budgeted_init(&c, &b, &f.base);
    assert_int_equal(c.base.accept(&c.base, 'z'), SL_ERR_INVALID);
    assert_string_equal(c.base.err.text, "no z");
    f.n = 40;
    assert_int_equal(c.base.mask(&c.base, logits, N_VOCAB), SL_ERR_INVALID);
    assert_string_equal(c.base.err.text, "the form is over");
}

int main(void) {
    fake_tokenizer_init(&tok);
    fake_control_word(&tok, "<think>");
    fake_control_word(&tok, "</think>");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_with_a_form),
    };
    return cmocka_run_group_tests_name("budget", tests, NULL, NULL);
}
