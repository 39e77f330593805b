/* Schemas as grammars: what they take and refuse, down to the edges of bounds, and which keyword an
 * error names. (That whole answers are valid is checked by ajv, in tests/http.) */
#include "model/grammar/automaton.h"
#include "model/grammar/json_schema.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct sl_grammar *compile(const char *schema) {
    json_t *s = json_loads(schema, JSON_DECODE_ANY, NULL);
    struct sl_buf b = {0};
    struct sl_err err = {""};
    struct sl_grammar *g = NULL;
    assert_non_null(s);
    if (sl_json_schema_grammar(s, &b, &err) != SL_OK ||
        sl_grammar_parse(b.ptr, b.len, &g, &err) != SL_OK)
        fail_msg("%s: %s\n%.*s", schema, err.text, b.len > 3000 ? 3000 : (int)b.len, b.ptr);
    sl_buf_release(&b);
    json_decref(s);
    return g;
}

static bool takes(struct sl_automaton *a, const char *text) {
    struct sl_cursor c;
    assert_int_equal(sl_cursor_init(&c, a, NULL), SL_OK);
    bool ok = sl_cursor_push_bytes(&c, text, strlen(text), NULL) == SL_OK && sl_cursor_complete(&c);
    sl_cursor_release(&c);
    return ok;
}

static void test_takes(void **state) {
    (void)state;
    static const struct {
        const char *schema, *yes[8], *no[8];
    } cases[] = {
        {"{}", {"1", "\"a\"", "[1, {\"b\":null}]", "{}"}, {"", "{", "tru", "01"}},
        {"true", {"false"}, {"x"}},
        {"{\"type\":\"string\"}",
         {"\"\"", "\"a\\n\\u00e9\\\"\"", "\"\xf0\x9f\x98\x80\""},
         {"\"\\u0000\"", "\"\\ud800\"", "\"\n\"", "\"\\x\"", "a"}},
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
         {"\"ab\"", "\"\xc3\xa9\\u0041c\""},
         {"\"a\"", "\"abcd\""}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"}}"
         ",\"required\":[\"b\"]}",
         {"{\"b\":null}", "{\"a\":null,\"b\":null}", "{ \"a\": null, \"b\": null }",
          "{\n  \"b\": null\n}"},
         {"{}", "{\"a\":null}", "{\"b\":null,\"a\":null}", "{\"b\":null,}",
          "{\"b\":null,\"c\":null}", "{,\"b\":null}"}},
        {"{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"null\"}},"
         "\"additionalProperties\":{\"type\":\"boolean\"}}",
         {"{}", "{\"ab\":null}", "{\"a\":true}", "{\"abc\":true}",
          "{\"ab\":null,\"b\":true,\"\":false}"},
         {"{\"ab\":true}", "{\"\\u0061b\":true}", "{\"a\":null}"}},
        /* Beyond 2^53. */
        {"{\"type\":\"integer\",\"minimum\":9007199254740993,\"maximum\":9007199254740995}",
         {"9007199254740993", "9007199254740995"},
         {"9007199254740992", "9007199254740996"}},
        {"{\"allOf\":[{\"type\":\"integer\",\"minimum\":9007199254740992},{\"minimum\":"
         "9007199254740993}],\"exclusiveMaximum\":9007199254740995}",
         {"9007199254740993", "9007199254740994"},
         {"9007199254740992", "9007199254740995"}},
        /* Draft 4. */
        {"{\"enum\":[4,5,6,7,8],\"minimum\":5,\"exclusiveMinimum\":true,\"maximum\":7,"
         "\"exclusiveMaximum\":false}",
         {"6", "7"},
         {"4", "5", "8"}},
        /* items without prefixItems beside it holds for those of another. */
        {"{\"allOf\":[{\"type\":\"array\",\"prefixItems\":[{},{\"minimum\":3}]},"
         "{\"items\":{\"type\":\"integer\"}}]}",
         {"[]", "[1]", "[1,3]", "[1,3,2]"},
         {"[\"a\"]", "[1,2]", "[1,\"a\"]", "[1,3,\"a\"]"}},
        {"{\"items\":{\"type\":\"integer\"},\"allOf\":[{\"type\":\"array\",\"prefixItems\":[{}],"
         "\"items\":{\"minimum\":3}}]}",
         {"[1]", "[1,3]"},
         {"[\"a\"]", "[1,2]", "[1,\"a\"]"}},
        {"{\"type\":\"object\",\"maxProperties\":1}", {"{}", "{\"a\":1}"}, {"{\"a\":1,\"b\":2}"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"minItems\":2,\"maxItems\":3}",
         {"[null,null]", "[ null, null, null ]"},
         {"[]", "[null]", "[null,null,null,null]", "[1,2]"}},
        {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":{\"const\":3}"
         ",\"minItems\":1}",
         {"[1]", "[1,2]", "[1,2,3,3]"},
         {"[]", "[2]", "[1,3]", "[1,2,2]"}},
        {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":false,"
         "\"maxItems\":1}",
         {"[]", "[1]"},
         {"[1,2]"}},
        {"{\"$ref\":\"#/$defs/t\",\"$defs\":{\"t\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/"
         "$defs/t\"}}}}",
         {"[]", "[[],[[]]]"},
         {"[1]", "[[]"}},
        {"{\"const\":{\"a\":[1,0.1]}}", {"{\"a\":[1,0.1]}"}, {"{\"a\":[1]}"}},
        {"{\"type\":\"string\",\"pattern\":\"b+\"}",
         {"\"b\"", "\"abba\"", "\"\\\"b\""},
         {"\"a\"", "\"\""}},
        {"{\"type\":\"string\",\"pattern\":\"^[^a]$\"}",
         {"\"b\"", "\"\\\"\"", "\"\\\\\"", "\"\\n\""},
         {"\"a\"", "\"\\u0062\"", "\"\"", "\"bb\""}},
        {"{\"type\":\"string\",\"pattern\":\"^(a|b)*?\\\\.$\"}",
         {"\".\"", "\"abba.\""},
         {"\"abba\"", "\"x\""}},
        {"{\"type\":\"string\",\"pattern\":\"^\\\\d+$|x\"}", {"\"12\"", "\"axb\""}, {"\"1a\""}},
        {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}],\"minimum\":5,\"maxLength\":1}",
         {"5", "17", "\"a\""},
         {"4", "\"ab\"", "null"}},
        {"{\"allOf\":[{\"type\":\"integer\",\"minimum\":3},{\"maximum\":5},{\"type\":\"number\"}]}",
         {"3", "5"},
         {"2", "6", "3.5"}},
        {"{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},"
         "\"required\":[\"a\"]},"
         "{\"properties\":{\"a\":{\"maximum\":1,\"minimum\":0},\"b\":{\"type\":\"null\"}}}]}",
         {"{\"a\":1}", "{\"a\":0,\"b\":null}"},
         {"{\"a\":2}", "{\"b\":null}"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sl_grammar *g = compile(cases[i].schema);
        struct sl_automaton *a;
        assert_int_equal(sl_automaton_create(g, NULL, NULL, 0, &a), SL_OK);
        for (size_t k = 0; k < 8 && cases[i].yes[k]; k++)
            if (!takes(a, cases[i].yes[k]))
                fail_msg("%s should take %s", cases[i].schema, cases[i].yes[k]);
        for (size_t k = 0; k < 8 && cases[i].no[k]; k++)
            if (takes(a, cases[i].no[k]))
                fail_msg("%s should refuse %s", cases[i].schema, cases[i].no[k]);
        sl_automaton_destroy(&a);
        sl_grammar_destroy(&g);
    }
}

/* Every integer around the bounds, every decimal of three digits. */
static void test_bounds(void **state) {
    (void)state;
    static const int bounds[][2] = {{0, 0},     {0, 9},     {-1, 1},   {7, 13},     {-130, -99},
                                    {95, 1005}, {-20, 305}, {10, 100}, {-999, -10}, {123, 987}};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        for (int kind = 0; kind < 4; kind++) {
            int lo = bounds[i][0], hi = bounds[i][1];
            bool real = kind & 1, open = kind & 2;
            char schema[160], text[32];
            if (!real && open && lo + 1 > hi)
                continue; /* no integer is there */
            snprintf(schema, sizeof schema, "{\"type\":\"%s\",\"%s\":%d,\"%s\":%.1f}",
                     real ? "number" : "integer", open ? "exclusiveMinimum" : "minimum", lo,
                     open ? "exclusiveMaximum" : "maximum", hi + 0.5);
            struct sl_grammar *g = compile(schema);
            struct sl_automaton *a;
            assert_int_equal(sl_automaton_create(g, NULL, NULL, 0, &a), SL_OK);
            for (int x = 4 * (lo - 30); x <= 4 * (hi + 30); x++) {
                double v = x / 4.0;
                if (x % 4 && !real)
                    continue;
                snprintf(text, sizeof text, "%.*f", x % 4 == 0 ? 0 : x % 2 ? 2 : 1, v);
                bool want = open ? v > lo && v < hi + 0.5 : v >= lo && v <= hi + 0.5;
                if (takes(a, text) != want)
                    fail_msg("%s %s %s", schema, want ? "should take" : "should refuse", text);
            }
            sl_automaton_destroy(&a);
            sl_grammar_destroy(&g);
        }
}

static void test_refuses(void **state) {
    (void)state;
    static const struct {
        const char *schema, *word;
    } cases[] = {
        {"false", "false"},
        {"{\"not\":{}}", "not"},
        {"{\"properties\":{\"a\":{\"patternProperties\":[]}}}", "patternProperties"},
        {"{\"type\":\"string\",\"pattern\":\"(?<!a)\"}", "pattern"},
        {"{\"type\":\"string\",\"pattern\":\"^(?!a)a\"}", "pattern"},
        {"{\"type\":\"string\",\"pattern\":\"a^b\"}", "pattern"},
        {"{\"type\":\"string\",\"pattern\":\"(a\"}", "pattern"},
        {"{\"type\":\"string\",\"pattern\":\"a**\"}", "pattern"},
        {"{\"type\":\"string\",\"pattern\":\"\\\\p{L}\"}", "pattern"},
        {"{\"type\":\"string\",\"pattern\":\"[b-a]\"}", "pattern"},
        {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", "oneOf"},
        {"{\"anyOf\":[]}", "anyOf"},
        {"{\"anyOf\":[{\"pattern\":\"^a\"}],\"pattern\":\"^b\",\"type\":\"string\"}", "anyOf"},
        {"{\"anyOf\":[{\"allOf\":[{\"anyOf\":[{\"properties\":{\"a\":{}}}],"
         "\"unevaluatedProperties\":false}]}]}",
         "unevaluatedProperties"},
        {"{\"$ref\":\"#/x\"}", "$ref"},
        {"{\"allOf\":[{\"$ref\":\"#\"}]}", "$ref"},
        {"{\"type\":\"integer\",\"minimum\":2.2,\"maximum\":2.8}", "minimum"},
        {"{\"type\":\"number\",\"minimum\":1e-20}", "minimum"},
        {"{\"enum\":[]}", "enum"},
        {"{\"type\":7}", "type"},
        {"{\"properties\":7}", "properties"},
        {"{\"type\":\"string\",\"minLength\":-1}", "minLength"},
        {"{\"enum\":[1],\"minimum\":\"0\"}", "minimum"},
        {"{\"enum\":[1],\"maximum\":true}", "maximum"},
        {"{\"const\":1,\"exclusiveMaximum\":[]}", "exclusiveMaximum"},
        {"{\"const\":5,\"minimum\":5,\"exclusiveMinimum\":true}", "enum"},
        {"{\"const\":9007199254740993,\"maximum\":9007199254740992}", "enum"},
        {"{\"allOf\":[{\"items\":[{\"type\":\"null\"}]},{\"items\":{\"type\":\"null\"}}]}",
         "items"},
        {"{\"allOf\":[{\"items\":[{\"type\":\"null\"}]},{\"additionalItems\":false}]}", "items"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *s = json_loads(cases[i].schema, JSON_DECODE_ANY, NULL);
        struct sl_buf b = {0};
        struct sl_err err = {""};
        assert_non_null(s);
        enum sl_status status = sl_json_schema_grammar(s, &b, &err);
        if (status != SL_ERR_INVALID || !strstr(err.text, cases[i].word))
            fail_msg("%s: %d '%s'", cases[i].schema, status, err.text);
        sl_buf_release(&b);
        json_decref(s);
    }
}

static void expect_refused(const char *schema, const char *word) {
    json_t *s = json_loads(schema, JSON_DECODE_ANY, NULL);
    struct sl_buf b = {0};
    struct sl_err err = {""};
    assert_non_null(s);
    enum sl_status status = sl_json_schema_grammar(s, &b, &err);
    if (status != SL_ERR_INVALID || !strstr(err.text, word))
        fail_msg("%.200s: %d '%s'", schema, status, err.text);
    sl_buf_release(&b);
    json_decref(s);
}

/* Small schemas that say a great deal of work: without a count of it, each of these takes from
 * minutes to for ever. That it was the count which ended it is in the error's text. */
static void test_bounds_work(void **state) {
    (void)state;
    struct sl_buf b = {0};
    /* Twice the one before, 30 times. */
    sl_buf_puts(&b, "{\"$defs\":{\"a0\":{\"type\":\"object\"}");
    for (int i = 1; i <= 30; i++)
        sl_buf_printf(&b,
                      ",\"a%d\":{\"allOf\":[{\"$ref\":\"#/$defs/a%d\"},{\"$ref\":\"#/$defs/"
                      "a%d\"}]}",
                      i, i - 1, i - 1);
    sl_buf_puts(&b, "},\"$ref\":\"#/$defs/a30\"}");
    sl_buf_put(&b, "", 1);
    expect_refused(b.ptr, "complex");

    /* The same, through alternatives that are compared, each of which allows nothing. */
    sl_buf_clear(&b);
    sl_buf_puts(&b, "{\"$defs\":{\"a\":{\"type\":[],\"properties\":{");
    for (int i = 0; i < 10000; i++)
        sl_buf_printf(&b, "%s\"p%d\":{}", i ? "," : "", i);
    sl_buf_puts(&b, "}}},\"properties\":{\"x\":{}},\"anyOf\":[");
    for (int i = 0; i < 256; i++)
        sl_buf_printf(&b, "%s{\"$ref\":\"#/$defs/a\"}", i ? "," : "");
    sl_buf_puts(&b, "]}");
    sl_buf_put(&b, "", 1);
    expect_refused(b.ptr, "complex");

    /* Self-recursive objects, compared. Names said twice count once. */
    static const char two[] =
        "{\"$defs\":{\"a\":{\"type\":\"object\",\"properties\":{%s\"a\":{\"$ref\":\"#/$defs/a\"}},"
        "\"required\":[%s\"a\"]},\"b\":{\"type\":\"object\",\"properties\":{%s\"a\":{\"$ref\":\"#/"
        "$defs/b\"}},\"required\":[%s\"a\"]}},\"oneOf\":[{\"$ref\":\"#/$defs/a\"},{\"$ref\":\"#/"
        "$defs/b\"}]}";
    struct sl_buf pa = {0}, pb = {0}, names = {0}, doubles = {0};
    for (int i = 0; i < 20; i++) {
        sl_buf_printf(&pa, "\"n%d\":{\"$ref\":\"#/$defs/a\"},", i);
        sl_buf_printf(&pb, "\"n%d\":{\"$ref\":\"#/$defs/b\"},", i);
        sl_buf_printf(&names, "\"n%d\",", i);
        sl_buf_puts(&doubles, "\"a\",");
    }
    sl_buf_put(&pa, "", 1);
    sl_buf_put(&pb, "", 1);
    sl_buf_put(&names, "", 1);
    sl_buf_put(&doubles, "", 1);
    sl_buf_clear(&b);
    sl_buf_printf(&b, two, pa.ptr, names.ptr, pb.ptr, names.ptr);
    expect_refused(b.ptr, "complex");
    sl_buf_clear(&b);
    sl_buf_printf(&b, two, "", doubles.ptr, "", doubles.ptr);
    expect_refused(b.ptr, "oneOf");

    /* Long lists: refused before they are compared. */
    for (int k = 0; k < 2; k++) {
        sl_buf_clear(&b);
        sl_buf_puts(&b,
                    k ? "{\"allOf\":[{\"enum\":[0" : "{\"type\":\"object\",\"required\":[\"x\"");
        for (int i = 1; i < 100000; i++)
            sl_buf_printf(&b, k ? ",%d" : ",\"%d\"", i);
        if (k)
            sl_buf_puts(&b, "]},{\"enum\":[-1]}]}");
        else
            sl_buf_puts(&b, "]}");
        sl_buf_put(&b, "", 1);
        expect_refused(b.ptr, k ? "enum" : "required");
    }

    /* A part that many members share, written out for each of them. */
    sl_buf_clear(&b);
    sl_buf_puts(&b, "{\"anyOf\":[{\"allOf\":[{\"additionalProperties\":{\"title\":\"");
    for (int i = 0; i < 10000; i++)
        sl_buf_puts(&b, "0123456789");
    sl_buf_puts(&b, "\"}},{\"properties\":{");
    for (int i = 0; i < 10000; i++)
        sl_buf_printf(&b, "%s\"p%d\":{}", i ? "," : "", i);
    sl_buf_puts(&b, "}}]}]}");
    sl_buf_put(&b, "", 1);
    expect_refused(b.ptr, "too large");

    sl_buf_release(&pa);
    sl_buf_release(&pb);
    sl_buf_release(&names);
    sl_buf_release(&doubles);
    sl_buf_release(&b);
}

static void test_bounds_patterns(void **state) {
    (void)state;
    struct sl_buf b = {0};
    sl_buf_puts(&b, "{\"type\":\"string\",\"pattern\":\"");
    for (int i = 0; i < 65537; i++)
        sl_buf_puts(&b, "a");
    sl_buf_puts(&b, "\"}");
    sl_buf_put(&b, "", 1);
    expect_refused(b.ptr, "65537 bytes");
    /* Short enough, but each of it is a long class. */
    sl_buf_clear(&b);
    sl_buf_puts(&b, "{\"type\":\"string\",\"pattern\":\"");
    for (int i = 0; i < 30000; i++)
        sl_buf_puts(&b, "\\\\S");
    sl_buf_puts(&b, "\"}");
    sl_buf_put(&b, "", 1);
    expect_refused(b.ptr, "4 MiB");
    sl_buf_release(&b);
}

/* As many alternatives as there may be, and many parts of one property, are no such work. */
static void test_allows_work(void **state) {
    (void)state;
    struct sl_buf b = {0};
    sl_buf_puts(&b, "{\"oneOf\":[");
    for (int i = 0; i < 256; i++)
        sl_buf_printf(&b,
                      "%s{\"type\":\"object\",\"properties\":{\"kind\":{\"const\":\"k%d\"},"
                      "\"a\":{\"type\":\"null\"}},\"required\":[\"kind\",\"a\"]}",
                      i ? "," : "", i);
    sl_buf_puts(&b, "]}");
    sl_buf_put(&b, "", 1);
    struct sl_grammar *g = compile(b.ptr);
    sl_grammar_destroy(&g);

    sl_buf_clear(&b);
    sl_buf_puts(&b, "{\"allOf\":[{\"required\":[\"p\"]}");
    for (int i = 1; i <= 500; i++)
        sl_buf_printf(&b, ",{\"properties\":{\"p\":{\"type\":\"integer\",\"minimum\":%d}}}", i);
    sl_buf_puts(&b, "]}");
    sl_buf_put(&b, "", 1);
    g = compile(b.ptr);
    struct sl_automaton *a;
    assert_int_equal(sl_automaton_create(g, NULL, NULL, 0, &a), SL_OK);
    assert_true(takes(a, "{\"p\":500}"));
    assert_false(takes(a, "{\"p\":499}"));
    assert_false(takes(a, "{}"));
    sl_automaton_destroy(&a);
    sl_grammar_destroy(&g);
    sl_buf_release(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_takes),           cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_refuses),         cmocka_unit_test(test_bounds_work),
        cmocka_unit_test(test_bounds_patterns), cmocka_unit_test(test_allows_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
