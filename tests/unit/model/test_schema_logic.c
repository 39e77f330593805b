/* Schemas that speak of other schemas: what depends on a property, what an array contains, several
 * lists of alternatives. And multiples of what is no whole number. */
#include "model/grammar/automaton.h"
#include "model/grammar/json_schema.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static bool takes(struct sl_automaton *a, const char *text) {
    struct sl_cursor c;
    assert_int_equal(sl_cursor_init(&c, a, NULL), SL_OK);
    bool ok = sl_cursor_push_bytes(&c, text, strlen(text), NULL) == SL_OK && sl_cursor_complete(&c);
    sl_cursor_release(&c);
    return ok;
}

struct example {
    const char *schema, *yes[8], *no[8];
    bool open;
};

static enum sl_status compile(const struct example *e, struct sl_grammar **out,
                              struct sl_err *err) {
    json_t *s = json_loads(e->schema, JSON_DECODE_ANY, NULL);
    struct sl_buf b = {0};
    struct sl_schema_rules rules;
    char start[24];
    uint32_t rule = 0;
    *out = NULL;
    if (!s)
        fail_msg("%s does not parse", e->schema);
    sl_json_schema_rules_begin(&rules, &b);
    rules.strict = true;
    rules.open = e->open;
    enum sl_status status = sl_json_schema_rules_add(&rules, s, s, &rule, err);
    snprintf(start, sizeof start, "r%u", rule);
    if (status == SL_OK)
        status = sl_grammar_parse_from(b.ptr, b.len, start, out, err);
    sl_buf_release(&b);
    json_decref(s);
    return status;
}

static void check(const struct example *cases, size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct sl_err err = {""};
        struct sl_grammar *g;
        struct sl_automaton *a;
        if (compile(&cases[i], &g, &err) != SL_OK)
            fail_msg("%s: %s", cases[i].schema, err.text);
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
#define CHECK(cases) check(cases, sizeof(cases) / sizeof *(cases))

static void test_dependent(void **state) {
    (void)state;
    static const struct example cases[] = {
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"dependentRequired\":{"
         "\"b\":[\"a\"]}}",
         {"{}", "{\"a\":1}", "{\"c\":1}", "{\"a\":1,\"b\":2}"},
         {"{\"b\":2}", "{\"b\":2,\"c\":3}"},
         false},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"dependentSchemas\":{\"b\":{"
         "\"properties\":{\"a\":{\"type\":\"null\"}}}}}",
         {"{\"a\":1}", "{\"a\":null,\"b\":2}", "{\"b\":1}"},
         {"{\"a\":1,\"b\":2}"},
         false},
        {"{\"dependencies\":{\"b\":[\"a\"],\"c\":{\"minProperties\":1}}}",
         {"{}", "3", "{\"b\":1,\"a\":1}", "{\"x\":1}"},
         {"{\"b\":1}"},
         true},
    };
    CHECK(cases);
}

static void test_contains(void **state) {
    (void)state;
    static const struct example cases[] = {
        {"{\"type\":\"array\",\"contains\":{\"type\":\"null\"}}",
         {"[null]", "[1,null]", "[null,\"a\"]", "[null,null]"},
         {"[]", "[1]", "[1,\"null\"]"},
         false},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"contains\":{\"minimum\":5},"
         "\"minContains\":2}",
         {"[5,6]", "[1,5,2,7,3]"},
         {"[5]", "[1,5,2]", "[5,6,\"a\"]"},
         false},
        {"{\"type\":\"array\",\"contains\":{\"type\":\"null\"},\"minContains\":0}",
         {"[]", "[1]"},
         {"["},
         false},
    };
    CHECK(cases);
}

static void test_choices(void **state) {
    (void)state;
    static const struct example cases[] = {
        {"{\"allOf\":[{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]},{\"anyOf\":[{"
         "\"minimum\":5},{\"maxLength\":1}]}],\"anyOf\":[{\"maximum\":6},{\"type\":\"string\"}]}",
         {"5", "6", "\"a\""},
         {"7", "null"},
         false},
        {"{\"allOf\":[{\"pattern\":\"^a\"},{\"patternProperties\":{\"x\":{\"minimum\":1}}},{"
         "\"patternProperties\":{\"x\":{\"maximum\":2}}}],\"type\":\"object\"}",
         {"{}", "{\"x\":1}", "{\"ax\":2}"},
         {"{\"x\":3}", "{\"x\":0}"},
         false},
    };
    CHECK(cases);
}

static void test_opposites(void **state) {
    (void)state;
    static const struct example cases[] = {
        {"{\"not\":{\"type\":[\"string\",\"array\"]}}", {"1", "null", "{}"}, {"\"a\"", "[]"}, true},
        {"{\"type\":[\"string\",\"integer\",\"boolean\"],\"not\":{\"enum\":[\"a\",3,7,true]}}",
         {"\"b\"", "\"\"", "2", "5", "8", "false"},
         {"\"a\"", "3", "7", "true"},
         true},
        {"{\"type\":\"string\",\"not\":{\"pattern\":\"^a\"},\"maxLength\":2}",
         {"\"\"", "\"b\"", "\"ba\""},
         {"\"a\"", "\"ab\"", "\"bab\""},
         false},
        {"{\"not\":{\"not\":{\"type\":\"null\"}}}", {"null"}, {"1"}, false},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"not\":{\"required\":[\"a\","
         "\"b\"]}}",
         {"{}", "{\"a\":1}", "{\"b\":1}"},
         {"{\"a\":1,\"b\":1}"},
         false},
        {"{\"type\":\"array\",\"not\":{\"contains\":{\"type\":\"null\"}}}",
         {"[]", "[1]"},
         {"[null]", "[1,null]"},
         true},
        {"{\"type\":\"integer\",\"if\":{\"minimum\":5},\"then\":{\"maximum\":7},\"else\":{"
         "\"minimum\":2}}",
         {"2", "4", "5", "7"},
         {"1", "8"},
         false},
        {"{\"type\":\"integer\",\"if\":{\"minimum\":5}}", {"1", "8"}, {"null"}, false},
        {"{\"oneOf\":[{\"type\":\"integer\",\"minimum\":2},{\"type\":\"integer\",\"maximum\":4},"
         "{\"type\":\"null\"}]}",
         {"1", "5", "null"},
         {"2", "4"},
         false},
        /* An alternative of which nothing is left, an optional property that cannot be. */
        {"{\"anyOf\":[{\"type\":\"integer\",\"minimum\":5,\"maximum\":4},{\"type\":\"null\"}]}",
         {"null"},
         {"5", "4"},
         false},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"not\":{}},\"b\":{}}}",
         {"{}", "{\"b\":1}"},
         {"{\"a\":1}"},
         false},
        {"{\"const\":1,\"enum\":[1,2]}", {"1"}, {"2"}, false},
    };
    CHECK(cases);
}

static void test_multiples(void **state) {
    (void)state;
    static const struct example cases[] = {
        {"{\"type\":\"number\",\"multipleOf\":0.01}",
         {"0", "12.34", "-7.5", "1000000.01"},
         {"0.001", "1.234"},
         false},
        {"{\"type\":\"number\",\"multipleOf\":1.5,\"minimum\":0,\"exclusiveMaximum\":6}",
         {"0", "1.5", "3", "4.5"},
         {"-1.5", "1", "6", "2.5"},
         false},
        {"{\"type\":\"integer\",\"multipleOf\":1e-8}", {"12391239123"}, {"1.5"}, false},
        {"{\"type\":\"integer\",\"multipleOf\":2.5,\"maximum\":10,\"minimum\":0}",
         {"0", "5", "10"},
         {"2", "2.5", "7"},
         false},
    };
    CHECK(cases);
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        struct example e;
        const char *word;
    } cases[] = {
        {{.schema = "{\"const\":1,\"enum\":[2]}"}, "enum"},
        {{.schema = "{\"not\":{}}"}, "nothing"},
        {{.schema =
              "{\"$defs\":{\"a\":{\"not\":{\"$ref\":\"#/$defs/a\"}}},\"$ref\":\"#/$defs/a\"}"},
         ""},
        {{.schema = "{\"not\":{\"required\":[\"a\"]},\"unevaluatedProperties\":false}"},
         "unevaluatedProperties"},
        {{.schema = "{\"dependentRequired\":[]}"}, "dependentRequired"},
        {{.schema = "{\"dependentSchemas\":{\"a\":[]}}"}, "dependentSchemas"},
        {{.schema = "{\"dependentRequired\":{\"a\":{}}}"}, "dependentRequired"},
        {{.schema = "{\"type\":\"array\",\"contains\":{},\"maxContains\":2}"}, "maxContains"},
        {{.schema = "{\"type\":\"array\",\"contains\":{},\"minItems\":2}"}, "contains"},
        {{.schema = "{\"type\":\"array\",\"contains\":{},\"minContains\":-1}"}, "minContains"},
        {{.schema = "{\"type\":\"number\",\"multipleOf\":-0.5}"}, "multipleOf"},
        {{.schema = "{\"type\":\"number\",\"multipleOf\":0.3,\"minimum\":0.4,\"maximum\":0.5}"},
         "multipleOf"},
        {{.schema =
              "{\"patternProperties\":{\"a\":{}},\"allOf\":[{\"additionalProperties\":false}]}"},
         "patternProperties"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sl_err err = {""};
        struct sl_grammar *g;
        if (compile(&cases[i].e, &g, &err) != SL_ERR_INVALID || !strstr(err.text, cases[i].word))
            fail_msg("%s: '%s'", cases[i].e.schema, err.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dependent), cmocka_unit_test(test_contains),
        cmocka_unit_test(test_choices),   cmocka_unit_test(test_opposites),
        cmocka_unit_test(test_multiples), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
