/* The chat template interpreter on its own: what needs no Python to check. The comparison with
 * Jinja2 itself is in tests/templates/. */
#include "tests/unit/model/template_render.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void test_chatml(void **state) {
    (void)state;
    is("{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
       "{%- if m.content %}{{ m['content'] }}{% endif %}"
       "{%- for c in m.tool_calls %}<call>{{ c.function | tojson }}</call>{% endfor %}"
       "{{ '<|im_end|>\\n' }}{% endfor %}"
       "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
       "<s><|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nGrüße 🎉<|im_end|>\n"
       "<|im_start|>assistant\n<call>{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": [true, "
       "null, "
       "0.5]}}</call><|im_end|>\n<|im_start|>assistant\n");
}

static void test_white_space(void **state) {
    (void)state;
    is("a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "a\n  b\nc");
    is("a\n  {%- if true -%}\n  b\n  {%- endif %}\nc", "abc");
    is("a {%+ if true +%}\nb{% endif %}", "a \nb");
    is("x {# note #}\ny\r\nz", "x y\nz");
    is("{% raw %}{{ x }}{% endraw %}", "{{ x }}");
}

static void test_values(void **state) {
    (void)state;
    is("{{ [1, 'a', none, 1.0, 1e16, {'k': (1,)}] }}", "[1, 'a', None, 1.0, 1e+16, {'k': (1,)}]");
    is("{{ 7 // -2 }} {{ -7 % 3 }} {{ 2 ** -1 }} {{ 7 / 2 }}", "-4 2 0.5 3.5");
    is("{{ missing }}{{ missing is defined }}", "False");
    is("{{ 'naïve'|upper }} {{ 'ß'|upper }} {{ 'ΑΣ'|lower }} {{ 'naïve'[2:4] }}", "NAÏVE SS ας ïv");
    is("{{ '%s-%05d' % ('a', 42) }} {{ '{:>4}|{x!r}'.format(1, x='y') }}", "a-00042    1|'y'");
    is("{{ l|sort|join(',') }} {{ l|map('string')|list }} {{ l[::-1] }}",
       "1,2,3 ['3', '1', '2'] [2, 1, 3]");
}

static void test_scopes(void **state) {
    (void)state;
    is("{% set x = 1 %}{% for i in l %}{% set x = i %}{% endfor %}{{ x }}", "1");
    is("{% set ns = namespace(x=0) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x "
       "}}",
       "6");
    is("{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(b=0, a=9) }}", "1290");
    is("{% macro m() %}[{{ caller(3) }}]{% endmacro %}{% call(x) m() %}{{ x }}{% endcall %}",
       "[3]");
    is("{% for i in [1, [2]] recursive %}{{ loop(i) if i is iterable else i }}{% endfor %}", "12");
    is("{% for i in l if i > 1 %}{{ loop.index }}{{ loop.last }}{% else %}no{% endfor %}",
       "1False2True");
}

static void test_strings_share_safely(void **state) {
    (void)state;
    /* Two texts that go on from the same beginning must not write over each other. */
    is("{% set a = 'x' + 'y' %}{% set b = a + '1' %}{% set c = a + '2' %}{{ a }} {{ b }} {{ c }}",
       "xy xy1 xy2");
}

static void test_own_values_change(void **state) {
    (void)state;
    is("{% set a = [1] %}{% set b = a %}{% set _ = b.append(2) %}{{ a }}{{ a.pop(0) }}{{ b }}",
       "[1, 2]1[2]");
    is("{% set d = {'x': 1} %}{% set _ = d.update(y=2) %}{{ d }}{{ d.pop('x') }}{{ d }}",
       "{'x': 1, 'y': 2}1{'y': 2}");
    is("{% for i in l %}{% set a = [] %}{% set _ = a.append(i) %}{{ a }}{% endfor %}", "[3][1][2]");
    is("{% set a = [] %}{% set _ = a.append(a) %}{{ a }}", "[[...]]");
    /* What is given stays, whatever holds it; a copy is the template's own. */
    fails("{{ l.append(1) }}", "line 1, column 6: this list was given to the template");
    fails("{{ [l][0].append(1) }}", "this list was given to the template");
    fails("{{ messages[0].pop('role') }}", "this dictionary was given to the template");
    is("{% set a = l | list %}{% set _ = a.append(9) %}{{ a }}{{ l }}", "[3, 1, 2, 9][3, 1, 2]");
    fails("{% set d = {'a': 1} %}{% for k in d %}{% set _ = d.update(b=1) %}{% endfor %}",
          "the dictionary's keys changed");
    fails("{% set a = [] %}{% set _ = a.append(a) %}{{ a|tojson }}", "contains itself");
}

/* A literal is evaluated anew in each rendering: nothing of one reaches another. */
static void test_renderings_share_no_list(void **state) {
    (void)state;
    static const char source[] =
        "{% macro m(x=[0], y={'k': []}) %}{% set _ = x.append(1) %}{% set _ = y.k.append(2) %}"
        "{{ x }}{{ y }}{% endmacro %}{% set a = [[1], 2] %}{% set _ = a[0].append(3) %}{{ a }}"
        "{{ m() }}";
    static const char want[] = "[[1, 3], 2][0, 1]{'k': [2]}";
    struct sl_template *t = NULL;
    assert_int_equal(sl_template_compile(source, strlen(source), &t, &err), SL_OK);
    json_t *vars = json_object();
    for (int i = 0; i < 3; i++) {
        char *out = NULL;
        size_t len = 0;
        assert_int_equal(sl_template_render(t, vars, NULL, &out, &len, &err), SL_OK);
        assert_string_equal(out, want);
        free(out);
    }
    json_decref(vars);
    sl_template_destroy(&t);
}

static void test_errors_have_places(void **state) {
    (void)state;
    fails("a\nb {{ 1 + }}", "line 2, column 10: expected an expression, got }}");
    fails("{% if true %}", "line 1, column 4: this block is never closed");
    fails("x\n{{ messages[0].nope.deeper }}",
          "line 2, column 21: 'dict object' has no attribute 'nope'");
    fails("{{ 'é' ~ (1 / 0) }}", "line 1, column 15: division by zero");
    fails("{% for m in messages %}{{ raise_exception('roles must ' ~ 'alternate') }}{% endfor %}",
          "roles must alternate");
    fails("{{ x|nope }}", "no filter is named 'nope'");
    fails("{% include 'secret' %}", "not available");
    fails("{{ ''.__class__.__mro__ }}", "has no attribute '__class__'");
    fails("{{ 9223372036854775807 + 1 }}", "64-bit");
    fails("bad \xff byte", "not valid UTF-8 (byte 4)");
}

static void limited(const char *source, struct sl_template_limits limits, const char *text) {
    char *out = render(source, &limits);
    if (out)
        fail_msg("%s passed its limit", source);
    assert_int_equal(status, SL_ERR_LIMIT);
    assert_non_null(strstr(err.text, text));
}

static void test_limits(void **state) {
    (void)state;
    struct sl_template_limits l = sl_template_default_limits;
    l.max_steps = 10000;
    limited("{% for i in range(100000) %}{% endfor %}", l, "10000 steps");
    l = sl_template_default_limits;
    l.max_depth = 50;
    limited("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", l, "limit of 50");
    l = sl_template_default_limits;
    l.max_output_bytes = 10;
    limited("{% for i in range(11) %}x{% endfor %}", l, "limit of 10 bytes");
    char *out = render("{% for i in range(10) %}x{% endfor %}", &l);
    assert_string_equal(out, "xxxxxxxxxx");
    free(out);
    l = sl_template_default_limits;
    l.max_memory_bytes = 1 << 20;
    limited("{{ ('x' * 2000000)|length }}", l, "1048576 bytes");
    limited("{% set ns = namespace(x='a') %}{% for i in range(64) %}{% set ns.x = ns.x + ns.x %}"
            "{% endfor %}",
            l, "1048576 bytes");
    limited("{{ [0] * 4611686018427387904 }}", l, "1048576 bytes");
    limited("{% set a = [] %}{% for i in range(99999) %}{% set _ = a.append(i) %}{% endfor %}", l,
            "1048576 bytes");
    limited("{% set a = [1] %}{% set _ = a.extend(a | map('string')) %}", l, "1048576 bytes");
    limited("{% set d = {} %}{% for i in range(99999) %}{% set _ = d.update({i: i}) %}{% endfor %}",
            l, "1048576 bytes");
    /* The same with the defaults: still an error, soon and without the memory. */
    fails("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested deeper");
    fails("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
          "steps");
    fails("{{ 'x' * 9223372036854775807 }}", "memory");
}

/* What refuses and what passes a limit are told apart. */
static void test_kinds_of_errors(void **state) {
    (void)state;
    fails("{{ raise_exception('no') }}", "no");
    assert_int_equal(status, SL_ERR_INVALID);
    fails("{{ 1 / 0 }}", "division by zero");
    assert_int_equal(status, SL_ERR_INVALID);
    fails("{% for i in range(100000) %}{% for j in l * 100 %}{% endfor %}{% endfor %}", "steps");
    assert_int_equal(status, SL_ERR_LIMIT);
}

/* Renderings that share a count of steps keep to the limit together. */
static void test_shared_steps(void **state) {
    (void)state;
    static const char source[] = "{% for i in range(1000) %}{% endfor %}";
    uint64_t steps = 0;
    struct sl_template_limits l = sl_template_default_limits;
    l.steps = &steps;
    free(render(source, &l));
    uint64_t one = steps;
    assert_true(one >= 1000);
    free(render(source, &l));
    /* A look-up's steps depend on the rendering's own hash seed. */
    assert_in_range(steps, 2 * one - one / 50, 2 * one + one / 50);
    l.max_steps = 2 * one + one / 2;
    limited(source, l, "steps");
    assert_true(steps > l.max_steps);
    limited("x", l, "steps");
}

static void nested(const char *open, const char *mid, const char *close, int n, const char *text) {
    size_t len = (size_t)n * (strlen(open) + strlen(close)) + strlen(mid) + 32;
    char *s = malloc(len), *p = s;
    assert_non_null(s);
    p += sprintf(p, "{{ ");
    for (int i = 0; i < n; i++)
        p += sprintf(p, "%s", open);
    p += sprintf(p, "%s", mid);
    for (int i = 0; i < n; i++)
        p += sprintf(p, "%s", close);
    sprintf(p, " }}");
    fails(s, text);
    free(s);
}

static void test_deep_sources(void **state) {
    (void)state;
    nested("(", "1", ")", 5000, "nested more than");
    nested("[", "1", "]", 400, "nested more than");
    nested("-", "1", "", 100000, "nested more than");
    nested("not ", "1", "", 100000, "nested more than");
    nested("", "x", ".a", 100000, "nested more than");
    nested("", "x", "|trim", 100000, "nested more than");
    nested("1 if 1 else ", "1", "", 10000, "nested more than");
    nested("", "1", " + 1", 100000, "operands in a row");
}

static void test_clock(void **state) {
    (void)state;
    struct sl_template_limits l = sl_template_default_limits;
    l.now_s = 1721998861;
    char *out = render("{{ strftime_now('%d %b %Y %H:%M') }}", &l);
    assert_string_equal(out, "26 Jul 2024 13:01");
    free(out);
}

struct job {
    const struct sl_template *t;
    const json_t *vars;
    int bad;
};

static void *render_often(void *arg) {
    struct job *j = arg;
    for (int i = 0; i < 200; i++) {
        char *out;
        size_t len;
        if (sl_template_render(j->t, j->vars, NULL, &out, &len, NULL) != SL_OK) {
            j->bad++;
            continue;
        }
        j->bad += strcmp(out, "5 3é 1é 2é GRÜßE[['x', 5]]") != 0;
        free(out);
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    static const char source[] = "{{ n }}{% for x in l %} {{ x }}{{ 'é' }}{% endfor %}"
                                 "{{ ' GRÜßE'[0:6] }}{% set a = [['x']] %}"
                                 "{% set _ = a[0].append(n) %}{{ a }}";
    struct sl_template *t;
    json_t *vars = json_loads(VARS, 0, NULL);
    assert_int_equal(sl_template_compile(source, strlen(source), &t, &err), SL_OK);
    pthread_t id[4];
    struct job job[4];
    for (int i = 0; i < 4; i++) {
        job[i] = (struct job){.t = t, .vars = vars};
        assert_int_equal(pthread_create(&id[i], NULL, render_often, &job[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(id[i], NULL);
        assert_int_equal(job[i].bad, 0);
    }
    json_decref(vars);
    sl_template_destroy(&t);
}

/* The rendered text with what is the template's own in brackets. Of the variables `r` is. */
static void own_is(const char *source, const char *want) {
    struct sl_template *t = NULL;
    err.text[0] = 0;
    struct sl_rendered r = {0};
    json_t *vars =
        json_pack("{s:s,s:s,s:i,s:{s:s}}", "x", "ab", "r", "user", "n", 7, "d", "k<", "v");
    json_t *own = json_pack("[O]", json_object_get(vars, "r"));
    char got[512];
    size_t n = 0, k = 0;
    if (sl_template_compile(source, strlen(source), &t, &err) != SL_OK ||
        sl_template_render_own(t, vars, own, NULL, &r, &err) != SL_OK)
        fail_msg("%s: %s", source, err.text);
    for (size_t i = 0; i <= r.len && n < sizeof got - 4; i++) {
        if (k < r.n_own && r.own[k].to == i) {
            got[n++] = ']';
            k++;
        }
        if (k < r.n_own && r.own[k].from == i)
            got[n++] = '[';
        if (i < r.len)
            got[n++] = r.text[i];
    }
    got[n] = '\0';
    if (strcmp(got, want) != 0)
        fail_msg("%s\ngives %s\nnot   %s", source, got, want);
    sl_rendered_release(&r);
    json_decref(vars);
    json_decref(own);
    sl_template_destroy(&t);
}

static void whose_text_it_is(void **state) {
    (void)state;
    own_is("<s>{{ x }}</s>", "[<s>]ab[</s>]");
    own_is("{{ x }}", "ab");
    own_is("<|{{ r }}|>{{ n }}{{ none }}", "[<|user|>]7None");
    own_is("{{ '<' + x + '>' }}{{ '<' ~ r ~ '>' ~ n }}", "[<]ab[><user>]7");
    own_is("{% set t = '<' ~ x ~ '>' %}{{ t[1:] }}{{ t[::-1] }}{{ t[0] }}{{ t * 2 }}",
           "ab[>>]ba[<<<]ab[><]ab[>]");
    own_is("{% set t = 'y' ~ x ~ 'z' %}{{ t | upper }}{{ t | title }}{{ t | capitalize }}",
           "[Y]AB[ZY]ab[zY]ab[z]");
    own_is("{{ ('<' ~ x ~ '>') | escape }}{{ x | replace('a', '-') }}", "[&lt;]ab[&gt;-]b");
    own_is("{{ [x, '<s>', x] | join('|') }}{{ '|'.join([x, 'c']) }}", "ab[|<s>|]abab[|c]");
    own_is("{{ ('<s> ' ~ x).split() | join }}{{ ('-' ~ x ~ '-').strip('-') }}", "[<s>]abab");
    own_is("{{ '<%s>' % x }}{{ '<{}>'.format(x) }}{{ x.format('c') }}", "[<]ab[><]ab[>]ab");
    own_is("{{ ('c' ~ x) | tojson }}{{ d | tojson }}", "\"[c]ab\"{\"k<\": \"v\"}");
    own_is("{% for k in d %}{{ k }}{% endfor %}{% for c in 'c' ~ x %}{{ c }}{% endfor %}",
           "k<[c]ab");
    own_is("{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(x) }}{% set b %}-{{ x }}{% endset %}{{ b }}"
           "{% filter upper %}c{{ x }}{% endfilter %}",
           "[<]ab[>-]ab[C]AB");
    own_is("{{ ('c' ~ x) | center(6) }}{{ ('c\n' ~ x) | indent(1) }}{{ ('c' ~ x).zfill(4) }}",
           " [c]ab  [c]\n ab0[c]ab");
    own_is("{% set ns = namespace(s='') %}{% for i in range(3) %}{% set ns.s = ns.s ~ '<' ~ x %}"
           "{% endfor %}{{ ns.s }}",
           "[<]ab[<]ab[<]ab");
    /* A string that grows in place leaves those that share its beginning as they were. */
    own_is("{% set a = x ~ 'c' %}{% set b = a ~ 'd' %}{% set e = a ~ x %}{{ a }}{{ b }}{{ e }}",
           "ab[c]ab[cd]ab[c]ab");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whose_text_it_is),
        cmocka_unit_test(test_chatml),
        cmocka_unit_test(test_white_space),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_scopes),
        cmocka_unit_test(test_strings_share_safely),
        cmocka_unit_test(test_errors_have_places),
        cmocka_unit_test(test_own_values_change),
        cmocka_unit_test(test_renderings_share_no_list),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_kinds_of_errors),
        cmocka_unit_test(test_shared_steps),
        cmocka_unit_test(test_deep_sources),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
