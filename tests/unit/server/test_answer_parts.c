/* Fragments joined to segments. */
#include "server/answer/answer_parts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static void add(struct sl_segments *s, enum sl_part_kind kind, uint32_t call, const char *text) {
    sl_segments_add(s, &(struct sl_part){kind, call, {text, strlen(text)}});
}

static void expect(const struct sl_segments *s, uint32_t i, enum sl_part_kind kind,
                   const char *name, const char *text) {
    assert_true(i < s->n);
    const struct sl_segment *g = &s->list[i];
    assert_int_equal(g->kind, kind);
    assert_int_equal(g->name.len, strlen(name));
    assert_memory_equal(g->name.ptr ? g->name.ptr : "", name, strlen(name));
    assert_int_equal(g->text.len, strlen(text));
    assert_memory_equal(g->text.ptr ? g->text.ptr : "", text, strlen(text));
}

static void test_segments(void **state) {
    (void)state;
    struct sl_segments s = {0};
    add(&s, SL_PART_CONTENT, 0, "");
    assert_int_equal(s.n, 0);
    add(&s, SL_PART_REASONING, 0, "hm");
    add(&s, SL_PART_REASONING, 0, "m");
    add(&s, SL_PART_CONTENT, 0, "a");
    add(&s, SL_PART_CONTENT, 0, "");
    add(&s, SL_PART_CONTENT, 0, "b");
    add(&s, SL_PART_CALL, 0, "f");
    add(&s, SL_PART_CALL, 1, "g");
    add(&s, SL_PART_ARGUMENTS, 0, "{");
    add(&s, SL_PART_ARGUMENTS, 1, "{\"x\":");
    add(&s, SL_PART_ARGUMENTS, 0, "}");
    add(&s, SL_PART_ARGUMENTS, 1, "1}");
    add(&s, SL_PART_ARGUMENTS, 7, "of no call");
    add(&s, SL_PART_CONTENT, 0, "c");
    assert_int_equal(s.n, 5);
    expect(&s, 0, SL_PART_REASONING, "", "hmm");
    expect(&s, 1, SL_PART_CONTENT, "", "ab");
    expect(&s, 2, SL_PART_CALL, "f", "{}");
    expect(&s, 3, SL_PART_CALL, "g", "{\"x\":1}");
    expect(&s, 4, SL_PART_CONTENT, "", "c");
    struct sl_buf text = {0};
    assert_true(sl_segments_join(&s, SL_PART_CONTENT, &text));
    assert_int_equal(text.len, 3);
    assert_memory_equal(text.ptr, "abc", 3);
    assert_false(s.failed);
    sl_buf_release(&text);
    sl_segments_release(&s);
    assert_false(sl_segments_join(&s, SL_PART_CONTENT, &text));
    sl_buf_release(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_segments)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
