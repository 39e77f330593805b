/* What schemas say of strings and names: formats, patterns with look-ahead, several of them at
 * once, propertyNames, patternProperties; and arrays of different items. */
#include "model/grammar/automaton.h"
#include "model/grammar/json_schema.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { STRICT = 1, OPEN = 2 };

static struct sl_grammar *compile(const char *schema, unsigned flags, struct sl_err *err) {
    json_t *s = json_loads(schema, JSON_DECODE_ANY, NULL);
    struct sl_buf b = {0};
    struct sl_schema_rules rules;
    struct sl_grammar *g = NULL;
    char start[24];
    uint32_t rule = 0;
    if (!s)
        fail_msg("%s does not parse", schema);
    sl_json_schema_rules_begin(&rules, &b);
    rules.strict = flags & STRICT;
    rules.open = flags & OPEN;
    enum sl_status status = sl_json_schema_rules_add(&rules, s, s, &rule, err);
    snprintf(start, sizeof start, "r%u", rule);
    if (status == SL_OK)
        status = sl_grammar_parse_from(b.ptr, b.len, start, &g, err);
    assert_true((status == SL_OK) == (g != NULL));
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

/* The texts of a schema, quoted where `quote` is set. */
static void check(const char *schema, unsigned flags, bool quote, const char *const *yes,
                  const char *const *no) {
    struct sl_err err = {""};
    struct sl_grammar *g = compile(schema, flags, &err);
    struct sl_automaton *a;
    if (!g)
        fail_msg("%s: %s", schema, err.text);
    assert_int_equal(sl_automaton_create(g, NULL, NULL, 0, &a), SL_OK);
    for (int want = 1; want >= 0; want--)
        for (const char *const *t = want ? yes : no; *t; t++) {
            char text[400];
            snprintf(text, sizeof text, quote ? "\"%s\"" : "%s", *t);
            if (takes(a, text) != (bool)want)
                fail_msg("%s should %s %s", schema, want ? "take" : "refuse", text);
        }
    sl_automaton_destroy(&a);
    sl_grammar_destroy(&g);
}

#define TEXTS(...)                                                                                 \
    (const char *const[]) {                                                                        \
        __VA_ARGS__, NULL                                                                          \
    }
#define LABEL_63 "a23456789012345678901234567890123456789012345678901234567890123"

static void test_formats(void **state) {
    (void)state;
    static const struct {
        const char *format, *yes[16], *no[20];
    } cases[] = {
        {"date",
         {"2024-02-29", "2000-02-29", "2023-12-31", "0000-01-01"},
         {"2023-02-29", "1900-02-29", "2024-04-31", "2024-13-01", "2024-1-1", "24-01-01"}},
        {"time",
         {"12:34:56Z", "00:00:00z", "23:59:59.123456789+14:00", "23:59:60Z", "08:30:06-08:00",
          "01:29:60+01:30", "15:59:60.5-08:00", "00:29:60-23:30", "05:44:60+05:45"},
         {"12:34:56", "24:00:00Z", "12:60:00Z", "12:34:60Z", "12:34:56+24:00", "01:29:60-01:30",
          "15:59:60+08:00", "23:59:60+00:30"}},
        {"date-time",
         {"2024-02-29T23:59:59Z", "1963-06-19t08:30:06.28z", "2024-01-01T00:00:00+05:30"},
         {"2023-02-29T00:00:00Z", "2024-01-01 00:00:00Z", "2024-01-01T00:00:00"}},
        {"duration", {"P1Y2M3DT4H5M6S", "PT1M", "P4W"}, {"P", "PT", "P1D2H", "4DT", "P1Y2W"}},
        {"uuid",
         {"2EB8AA08-AA98-11EA-B4AA-73B441D16380", "98d80576-482e-427f-8434-7f86890ab222",
          "99c17cbb-656f-764a-940f-1a4568f03487", "00000000-0000-0000-0000-000000000000"},
         {"2eb8aa08-aa98-11ea-b4aa-73b441d1638", "2eb8aa08aa9811eab4aa73b441d16380"}},
        {"ipv4", {"0.0.0.0", "255.255.255.255", "127.0.0.1"}, {"256.0.0.1", "1.2.3", "01.2.3.4"}},
        {"ipv6",
         {"::", "::1", "1::", "12:34:56:78:9A:bC:d:e", "fe80::a:b", "::ffff:192.168.0.1",
          "1:2:3:4:5:6:7::", "1:2:3:4:5:6:1.2.3.4"},
         {":", "1:2:3:4:5:6:7", "1::2::3", "12345::", "1:2:3:4:5:6:7:8:9", "::1%eth0",
          "::256.1.1.1"}},
        {"email",
         {"Joe.Bloggs@Example.COM", "te~st+tag@sub.example.org", "a@b.co"},
         {"joe", "joe@", "@example.com", ".joe@example.com", "a..b@example.com", "joe@-a.com",
          "\\\"joe bloggs\\\"@example.com", "joe@[127.0.0.1]"}},
        {"idn-email",
         {"joe@example.com", "\xce\xb4\xce\xbf@example.com", "user@cafe\xcc\x81.com",
          "\xf0\x9d\x95\x8f@example.com"},
         {"joe", "\xce\xb4@", "a b@example.com"}},
        {"hostname",
         {"localhost", "WWW.Example.com", LABEL_63, "a-b.c1", "1.2.3"},
         {"-a", "a-", "a..b", ".a", LABEL_63 "4", "a_b", "xn--x"}},
        /* Punycode, contexts of RFC 5892's appendix A, and text from right to left. */
        {"idn-hostname",
         {"\u30b3\u30fc\u30d2\u30fc.jp", "\u0939\u093f\u0928\u094d\u0926\u0940",
          "\u0142\u00f3d\u017a.pl", "\u067e\u0627\u06cc-\u06af\u0627", "\u05d0\u05d11.com",
          "host-name", LABEL_63,
          "\xe4\xbe\x8b\xe3\x80\x82"
          "jp",
          "l\xc2\xb7l", "\xce\xb1\xcd\xb5\xce\xb2", "\xd7\x90\xd7\xb3\xd7\x91",
          "\xe3\x83\xbb\xe3\x81\x81", "\xd8\xa8\xd9\xa0\xd8\xa8",
          "\xe0\xa4\x95\xe0\xa5\x8d\xe2\x80\x8d\xe0\xa4\xb7"},
         {"A\u00df", "\u30fb\u3006", "\u30fb\u30fc", "e\u0301", "\u093e\u0915", "\u05d01\u0660",
          "a\xc2\xb7l", "l\xc2\xb7", "\xcd\xb5", "\xd7\xb3\xd7\x91", "\xe3\x83\xbb",
          "\xd8\xa8\xd9\xa0\xdb\xb0", "\xe0\xa4\x95\xe2\x80\x8d", "-a", "\xd7\x90.1a"}},
        {"uri",
         {"http://example.com:8080/a%20b?q=1#f", "mailto:Joe@example.com", "urn:isbn:1",
          "ftp://[::1]:21/x", "file:///etc/hosts", "tel:+1-816-555-1212", "https://u:p@h/"},
         {"//example.com", "a b:c", "http://a b", "http://a/%2", "1a:b", "http://[::g]"}},
        {"uri-reference", {"/a/b?c", "#x", "a", "", "http://a"}, {"\\\\a", "a b", "1:2:"}},
        {"json-pointer", {"", "/a~0b/~1"}, {"a", "/~2", "/~"}},
        {"relative-json-pointer", {"0", "1/a", "2#"}, {"-1", "01", "/a"}},
        {"iri",
         {"http://\xc3\xa9.example/\xe2\x82\xac", "http://a/?\xf3\xb0\x80\x80"},
         {"//\xc3\xa9", "http://a/\xf3\xb0\x80\x80"}},
        {"uri-template", {"http://a/{b}{?c,d*}", "a'b\xf0\x9f\x98\x80"}, {"{a", "a}", "{}"}},
        {"regex",
         {"^a+(b|[a-z])?$", "\\\\d{3}"},
         {"(a", "[", "*", "[]", "(?<name>x)y", "(?<=a+)b", "(?!a)b", "\\\\cA"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char schema[160];
        snprintf(schema, sizeof schema, "{\"type\":\"string\",\"format\":\"%s\"}", cases[i].format);
        check(schema, STRICT, true, cases[i].yes, cases[i].no);
    }
}

/* What the standard allows and many validators do not: read as the standard does alone. */
static void test_formats_open(void **state) {
    (void)state;
    check("{\"type\":\"string\",\"format\":\"email\"}", OPEN, true,
          TEXTS("joe@example.com", "\\\"joe bloggs\\\"@example.com", "\\\"a..@b\\\"@example.com",
                "joe@[127.0.0.1]", "joe@[IPv6:::1]"),
          TEXTS("\\\"joe@example.com", "joe@[127.0.0.300]", "\\\"a\\\"b@example.com"));
    check("{\"type\":\"string\",\"format\":\"regex\"}", OPEN, true,
          TEXTS("^a+(b|[a-z])?$", "(?<name>x)y", "(?<=a+)b", "(?!a)b", "[]", "[^]", "\\\\cA"),
          TEXTS("(a", "[", "*", "(?<a>b)(?<a>c)", "(?<1>a)", "\\\\c1", "(?a)", "(?=a)*"));
}

/* Beyond 2^53 a reader that takes a point for a double's has another number. */
static void test_whole_numbers(void **state) {
    (void)state;
    check("{\"enum\":[9007199254740993,9007199254740992,-9007199254740993]}", OPEN, false,
          TEXTS("9007199254740993", "9007199254740992.0", "-9007199254740993"),
          TEXTS("9007199254740993.0", "-9007199254740993.0"));
    check("{\"enum\":[-9223372036854775808,9223372036854775807]}", OPEN, false,
          TEXTS("-9223372036854775808", "9223372036854775807"),
          TEXTS("-9223372036854775808.0", "9223372036854775808"));
    check("{\"type\":\"integer\",\"minimum\":9007199254740993}", OPEN, false,
          TEXTS("9007199254740993"), TEXTS("9007199254740993.0", "9007199254740992"));
    check("{\"type\":\"integer\",\"maximum\":-9007199254740993}", OPEN, false,
          TEXTS("-9007199254740993"), TEXTS("-9007199254740993.0"));
    check("{\"type\":\"integer\",\"multipleOf\":3,\"minimum\":6}", OPEN, false, TEXTS("6.0", "9"),
          TEXTS("3.0", "7.0"));
    check("{\"type\":\"number\",\"multipleOf\":3,\"minimum\":6}", OPEN, false, TEXTS("6.0", "9"),
          TEXTS("3.0", "7.0"));
}

static void test_patterns(void **state) {
    (void)state;
    static const struct {
        const char *keywords, *yes[8], *no[8];
    } cases[] = {
        /* Pydantic's of a decimal number. */
        {"\"pattern\":\"^(?!^[-+.]*$)[+-]?0*\\\\d*\\\\.?\\\\d*$\"",
         {"1", "-1.5", "+.5", "007", "12."},
         {"", "-", "+.", ".", "1e5", "--1"}},
        {"\"pattern\":\"^(?!^[-+.]*$)[+-]?0*(?:\\\\d{0,2}|(?=[\\\\d.]{1,4}0*$)\\\\d{0,2}\\\\.\\\\d{"
         "0,"
         "2}0*$)\"",
         {"12", "1.25", "-0012", "1.2500"},
         {"-", "."}},
        /* Zod's of e-mail and of a duration. */
        {"\"format\":\"email\",\"pattern\":\"^(?!\\\\.)(?!.*\\\\.\\\\.)([A-Za-z0-9_'+\\\\-\\\\.]*)["
         "A-"
         "Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\\\-]*\\\\.)+[A-Za-z]{2,}$\"",
         {"joe.b+x@example.com"},
         {"a..b@example.com", "joe@example.c", "j!@example.com"}},
        {"\"pattern\":\"^P(?:(\\\\d+W)|(?!.*W)(?=\\\\d|T\\\\d)(\\\\d+Y)?(\\\\d+M)?(\\\\d+D)?(T(?="
         "\\\\d)"
         "(\\\\d+H)?(\\\\d+M)?(\\\\d+([.,]\\\\d+)?S)?)?)$\"",
         {"P3W", "P1Y", "PT5M", "P1DT2H3.5S"},
         {"P", "PT", "P1DT", "P1Y2W"}},
        {"\"format\":\"date\",\"pattern\":\"^2024-\"",
         {"2024-02-29"},
         {"2023-01-01", "2024-02-30"}},
        {"\"pattern\":\"^[a-z]*$\",\"minLength\":2,\"maxLength\":3",
         {"ab", "abc"},
         {"a", "abcd", "A"}},
        {"\"pattern\":\"b\",\"maxLength\":2", {"b", "ab", "ba"}, {"", "aab", "a"}},
        {"\"pattern\":\"^a|b$\"", {"a", "ax", "xb"}, {"xax", "bx"}},
        {"\"pattern\":\"^(a$|b)c?$\"", {"a", "b", "bc"}, {"ac", "ab"}},
        {"\"pattern\":\"(^a|b)c\"", {"ac", "acx", "xbc"}, {"xac", "c"}},
        {"\"pattern\":\"^(?=.*\\\\d)(?=.*[a-z]).{2,4}$\"", {"a1", "1a2b"}, {"ab", "12", "a1b2c"}},
        {"\"pattern\":\"a^b\"", {NULL}, {NULL}},
        {"\"allOf\":[{\"pattern\":\"^a\"},{\"pattern\":\"z$\"},{\"format\":\"hostname\"}]",
         {"az", "abz"},
         {"a", "z", "a_z"}},
        {"\"enum\":[\"ab\",\"b\",\"abc\"],\"pattern\":\"^a\",\"maxLength\":2",
         {"ab"},
         {"b", "abc"}},
        {"\"format\":\"colour\"", {"anything"}, {NULL}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char schema[600];
        snprintf(schema, sizeof schema, "{\"type\":\"string\",%s}", cases[i].keywords);
        if (cases[i].yes[0]) {
            check(schema, 0, true, cases[i].yes, cases[i].no);
            continue;
        }
        struct sl_err err = {""};
        assert_null(compile(schema, 0, &err));
        assert_non_null(strstr(err.text, "pattern"));
    }
}

static void test_names(void **state) {
    (void)state;
    check("{\"type\":\"object\",\"patternProperties\":{\"^a\":{\"type\":\"integer\"},\"b$\":{"
          "\"minimum\":5}},\"additionalProperties\":false}",
          0, false, TEXTS("{}", "{\"a\":1}", "{\"b\":7}", "{\"ab\":5}", "{\"xb\":5.5}"),
          TEXTS("{\"a\":1.5}", "{\"b\":4}", "{\"ab\":4}", "{\"c\":1}", "{\"\\u0061\":null}"));
    check("{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"integer\"},\"c\":{}},"
          "\"patternProperties\":{\"^a\":{\"minimum\":3}},\"required\":[\"ab\"]}",
          0, false, TEXTS("{\"ab\":3}", "{\"ab\":3,\"c\":1,\"ax\":3.5}"),
          TEXTS("{\"ab\":2}", "{\"ab\":3,\"ac\":2}", "{\"ab\":3,\"x\":1}", "{\"c\":1}"));
    check("{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[a-z]+$\",\"maxLength\":3},"
          "\"additionalProperties\":{\"type\":\"null\"}}",
          0, false, TEXTS("{}", "{\"abc\":null,\"d\":null}"),
          TEXTS("{\"abcd\":null}", "{\"A\":null}", "{\"\":null}", "{\"a\":1}"));
    check(
        "{\"type\":\"object\",\"properties\":{\"ok\":{},\"NO\":{}},\"propertyNames\":{\"pattern\":"
        "\"^[a-z]+$\"}}",
        0, false, TEXTS("{\"ok\":1}", "{}"), TEXTS("{\"NO\":1}", "{\"other\":1}"));
    /* No value is both: no name may match both. */
    check("{\"patternProperties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"boolean\"}}}", OPEN,
          false, TEXTS("{}", "{\"a\":null}", "{\"b\":true}", "{\"c\":1}"),
          TEXTS("{\"ab\":null}", "{\"ab\":true}", "{\"a\":1}"));
    check("{\"propertyNames\":{\"enum\":[\"x\",\"y\"]},\"type\":\"object\"}", 0, false,
          TEXTS("{\"x\":1}", "{\"y\":[]}"), TEXTS("{\"z\":1}", "{\"xy\":1}"));
    struct sl_err err = {""};
    assert_null(compile("{\"type\":\"object\",\"required\":[\"NO\"],\"propertyNames\":{\"pattern\":"
                        "\"^[a-z]+$\"}}",
                        0, &err));
}

/* As the standard reads: members in any order, whole numbers with a point. */
static void test_open(void **state) {
    (void)state;
    static const char three[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{"
        "\"type\":\"boolean\"},\"c\":{\"const\":1}},\"required\":[\"a\",\"b\"]}";
    check(three, OPEN, false,
          TEXTS("{\"a\":null,\"b\":true}", "{\"b\":true,\"a\":null}",
                "{\"x\":0,\"c\":1.0,\"b\":true,\"y\":[],\"a\":null}"),
          TEXTS("{}", "{\"a\":null}", "{\"a\":null,\"a\":null,\"b\":true}",
                "{\"b\":true,\"a\":null,\"c\":2}", "{\"b\":true,\"a\":null,}"));
    check(three, 0, false, TEXTS("{\"a\":null,\"b\":true,\"c\":1}"),
          TEXTS("{\"b\":true,\"a\":null}", "{\"a\":null,\"b\":true,\"c\":1.0}"));
    check("{\"enum\":[[0],-2.0,0.5,\"1\",9007199254740992]}", OPEN, false,
          TEXTS("[0]", "[0.00]", "-2", "-2.0", "0.5", "\"1\"", "9007199254740992.0"),
          TEXTS("[0.1]", "-2.5", "0.50", "\"1.0\"", "9007199254740992.5"));
    check("{\"type\":\"integer\",\"maximum\":12}", OPEN, false, TEXTS("12", "12.0", "-3"),
          TEXTS("12.5", "13.0", "1."));
    check("{\"type\":\"array\",\"prefixItems\":[true,false]}", OPEN, false, TEXTS("[]", "[1]"),
          TEXTS("[1,2]"));
    check("{\"type\":\"object\",\"properties\":{\"a\\fb\\b\":{}}}", 0, false,
          TEXTS("{\"a\\fb\\b\":1}"), TEXTS("{\"ab\":1}"));
}

static void test_unevaluated(void **state) {
    (void)state;
    check("{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{}}}],\"properties\":{\"b\":{}},"
          "\"unevaluatedProperties\":false}",
          OPEN, false, TEXTS("{}", "{\"a\":1}", "{\"b\":1}"), TEXTS("{\"c\":1}"));
    /* It does not see what stands beside its own schema. */
    check("{\"type\":\"object\",\"properties\":{\"b\":{}},\"allOf\":[{\"properties\":{\"a\":{}},"
          "\"unevaluatedProperties\":false}]}",
          OPEN, false, TEXTS("{}", "{\"a\":1}"), TEXTS("{\"b\":1}", "{\"c\":1}"));
    check("{\"type\":\"object\",\"properties\":{\"b\":{}},\"anyOf\":[{\"properties\":{\"a\":{}},"
          "\"required\":[\"a\"]},{}],\"unevaluatedProperties\":false}",
          OPEN, false, TEXTS("{}", "{\"b\":1,\"a\":1}", "{\"b\":1}"),
          TEXTS("{\"c\":1}", "{\"b\":1,\"c\":1}"));
    check("{\"type\":\"object\",\"unevaluatedProperties\":false}", 0, false, TEXTS("{}"),
          TEXTS("{\"a\":1}"));
    check(
        "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"}],\"unevaluatedItems\":false}",
        0, false, TEXTS("[]", "[1]"), TEXTS("[1,2]", "[\"a\"]"));
    check("{\"type\":\"array\",\"unevaluatedItems\":{\"type\":\"null\"}}", 0, false,
          TEXTS("[]", "[null,null]"), TEXTS("[1]"));
}

static void test_unique(void **state) {
    (void)state;
    static const char any[] = "{\"type\":\"array\",\"uniqueItems\":true}";
    struct sl_err err = {""};
    check("{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\",1,1.0]},\"uniqueItems\":true,"
          "\"minItems\":1}",
          STRICT, false, TEXTS("[\"a\"]", "[\"b\",\"a\"]", "[1,\"b\",\"a\"]"),
          TEXTS("[]", "[\"a\",\"a\"]", "[1,1]", "[\"a\",\"b\",\"a\"]", "[1,1.0]"));
    check("{\"type\":\"array\",\"items\":{\"type\":[\"boolean\",\"null\"]},\"uniqueItems\":true,"
          "\"maxItems\":2}",
          STRICT, false, TEXTS("[]", "[true]", "[true,false]", "[null,true]"),
          TEXTS("[true,true]", "[true,false,null]"));
    /* More of them: in the order of the schema. */
    check("{\"type\":\"array\",\"items\":{\"enum\":[1,2,3,4,5,6,7,8,9,10]},\"uniqueItems\":true,"
          "\"minItems\":2,\"maxItems\":3}",
          STRICT, false, TEXTS("[1,2]", "[1,9,10]", "[9,10]"),
          TEXTS("[1]", "[10]", "[2,1]", "[1,1]", "[1,2,3,4]"));
    assert_null(compile(any, STRICT, &err));
    assert_non_null(strstr(err.text, "uniqueItems"));
    check(any, 0, false, TEXTS("[1,2]"), TEXTS("["));
}

static void test_strict(void **state) {
    (void)state;
    struct sl_err err = {""};
    assert_null(compile("{\"type\":\"string\",\"format\":\"colour\"}", STRICT, &err));
    assert_non_null(strstr(err.text, "format: 'colour'"));
    /* A pattern says what the format means. */
    check("{\"type\":\"string\",\"format\":\"colour\",\"pattern\":\"^#\\\\d$\"}", STRICT, true,
          TEXTS("#1"), TEXTS("1"));
}

/* What is intricate is refused, and soon. */
static void test_bounds(void **state) {
    (void)state;
    static const char *const schemas[] = {
        "{\"type\":\"string\",\"pattern\":\"^(?=.*a.{20}$)(?=.*b.{19}$)(?=.*c.{18}$).*$\"}",
        "{\"type\":\"string\",\"pattern\":\"^(?!(a?){16000}b).*$\"}",
        "{\"type\":\"string\",\"pattern\":\"a{9000}\",\"maxLength\":16000}",
        "{\"type\":\"string\",\"pattern\":\"^((a{0,99}){0,99}){0,99}$\",\"minLength\":9000}",
        "{\"type\":\"object\",\"patternProperties\":{\"a.{14}b\":{},\"b.{14}c\":{}}}",
    };
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        struct sl_err err = {""};
        struct sl_grammar *g = compile(schemas[i], 0, &err);
        if (g || !strstr(err.text, "pattern"))
            fail_msg("%s: %s", schemas[i], g ? "compiled" : err.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats),       cmocka_unit_test(test_formats_open),
        cmocka_unit_test(test_whole_numbers), cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_names),         cmocka_unit_test(test_open),
        cmocka_unit_test(test_unevaluated),   cmocka_unit_test(test_unique),
        cmocka_unit_test(test_strict),        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
