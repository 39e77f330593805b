/* What a chat template can make the interpreter do: all of it is charged for, none of it recurses
 * without end, and the caller's watch and the clock reach everywhere. How the charges compare with
 * time is tests/fuzz/fuzz_template_cost.c's. */
#include "tests/unit/model/template_render.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NESTED(n, item)                                                                            \
    "{% set ns = namespace(t=(1,)) %}{% for i in range(" n ") %}{% set ns.t = " item               \
    " %}{% endfor %}"
/* Loops that outlive their statements, each over the one before. */
#define LOOPS                                                                                      \
    "{% set ns = namespace(l=range(100000)) %}{% for i in range(20000) %}{% for x in ns.l %}"      \
    "{% set ns.m = loop %}{% break %}{% endfor %}{% set ns.l = ns.m %}{% endfor %}"

/* Recursion at its limit must fit a thread with a small stack. */
static void *render_in_thread(void *arg) {
    const char **p = arg;
    char *out = render(p[0], NULL);
    if (out)
        p[1] = "rendered";
    free(out);
    return NULL;
}

static void test_small_stack(void **state) {
    (void)state;
    static const char *const deep[] = {
        "{% macro m(n) %}{% if true %}{% for i in [1] %}{{ [(m(n + 1))] }}{% endfor %}{% endif %}"
        "{% endmacro %}{{ m(0) }}",
        NESTED("50000", "(ns.t,)") "{{ {ns.t: 1} }}",
        NESTED("50000", "(ns.t,)") "{{ {}[ns.t] }}",
        NESTED("50000", "(ns.t,)") "{{ [1, 2]|unique|list }}{{ [ns.t]|unique|list }}",
        NESTED("50000", "(ns.t,)") "{{ ns.t }}",
        NESTED("50000", "[ns.t]") "{{ ns.t|tojson }}",
        NESTED("50000", "{1: ns.t}") "{{ ns.t|tojson }}",
        "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(50000) %}"
        "{% set ns.a = [ns.a] %}{% set ns.b = [ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
        "{% set ns = namespace(a=[1], b=[2]) %}{% for i in range(50000) %}"
        "{% set ns.a = [ns.a] %}{% set ns.b = [ns.b] %}{% endfor %}{{ ns.a < ns.b }}",
        "{% set ns = namespace(a={}, b={}) %}{% for i in range(50000) %}"
        "{% set ns.a = {1: ns.a} %}{% set ns.b = {1: ns.b} %}{% endfor %}{{ ns.a == ns.b }}",
        NESTED("50000", "ns.t|map('string')") "{{ ns.t|list }}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        LOOPS "{{ ns.l|list }}",
        LOOPS "{{ ns.l.length }}",
        LOOPS "{{ ns.l|length }}",
    };
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 2 << 20);
    for (size_t i = 0; i < sizeof deep / sizeof *deep; i++) {
        const char *arg[2] = {deep[i], NULL};
        pthread_t id;
        assert_int_equal(pthread_create(&id, &attr, render_in_thread, arg), 0);
        pthread_join(id, NULL);
        if (arg[1] || !strstr(err.text, "nested deeper"))
            fail_msg("%s: %s", deep[i], arg[1] ? arg[1] : err.text);
        assert_int_equal(status, SL_ERR_LIMIT);
    }
    pthread_attr_destroy(&attr);
}

/* Values that share parts are small, and without end when they are gone through. */
static void test_shared_values(void **state) {
    (void)state;
    static const char *const work[] = {
        NESTED("60", "(ns.t, ns.t)") "{{ {ns.t: 1} }}",
        NESTED("60", "(ns.t, ns.t)") "{{ {1: 2}[ns.t] }}",
        NESTED("60", "(ns.t, ns.t)") "{{ ns.t }}",
        NESTED("60", "[ns.t, ns.t]") "{{ ns.t|tojson }}",
        "{% set ns = namespace(a=(1,), b=(1,)) %}{% for i in range(60) %}"
        "{% set ns.a = (ns.a, ns.a) %}{% set ns.b = (ns.b, ns.b) %}{% endfor %}{{ ns.a == ns.b }}",
    };
    struct sl_template_limits l = sl_template_default_limits;
    l.max_steps = 1000000;
    for (size_t i = 0; i < sizeof work / sizeof *work; i++) {
        char *out = render(work[i], &l);
        if (out || !strstr(err.text, "1000000 steps: shorten the conversation"))
            fail_msg("%s: %s", work[i], out ? out : err.text);
        assert_int_equal(status, SL_ERR_LIMIT);
    }
}

static uint64_t steps_of(const char *source) {
    uint64_t steps = 0;
    struct sl_template_limits l = sl_template_default_limits;
    l.steps = &steps;
    free(render(source, &l)); /* or an error: what was done until then counts */
    return steps;
}

/* Each of these goes through a text of 400,000 characters, or a good part of it, and is charged at
 * least for copying or comparing it: one step for 256 bytes. */
static void test_long_texts_are_charged(void **state) {
    (void)state;
    static const char *const work[] = {
        "a.rfind(b ~ 'x')",
        "a.rsplit(b ~ 'x')",
        "a.rpartition('x')",
        "a.rfind('')",
        "a.find(b)",
        "a.find('x' ~ b)",
        "a.index(b)",
        "a.rindex(b)",
        "a.removeprefix(b)",
        "a.removesuffix(b)",
        "'b'.strip(a)",
        "'b'|trim(a)",
        "a.strip('a')",
        "a.lstrip('a')",
        "a.rstrip('a')",
        "a in a",
        "b in a",
        "b is in a",
        "a not in a",
        "a.count(b)",
        "a.count('')",
        "a.replace(b, '')",
        "a.replace('x', '')",
        "a.replace('', 'y', 0 + 99999)",
        "a.split(b)",
        "a.split('x')",
        "a.split()",
        "a.rsplit()",
        "a.splitlines()",
        "a.partition(b)",
        "a.startswith(b)",
        "a.endswith(b)",
        "a.endswith(('x', b))",
        "a.title()",
        "a|title",
        "a.upper()",
        "a|lower",
        "a.swapcase()",
        "a|capitalize",
        "a.casefold()",
        "a|length",
        "a[:-1]",
        "a[1:]",
        "a[::-1]",
        "a[::100000]",
        "a[5]",
        "a == b ~ b",
        "a < b ~ b",
        "[a] == [b ~ b]",
        "z|int",
        "z|int(base=0)",
        "(z ~ '1')|int(base=0)",
        "z[:4000]|float * 1 if z|length else 0",
        "(' ' * 400000)|int",
        "'{:.1}'.format(a)",
        "'{:>9}'.format(a)",
        "'%.1s' % a",
        "'%s' % a",
        "'%r' % a",
        "'{!a}'.format(a)",
        "a.format(1)",
        "(a ~ '%d') % 1",
        "('%' ~ z ~ 'd') % 1",
        "('{:' ~ z ~ '}').format(1)",
        "a|striptags",
        "a|escape",
        "a|forceescape",
        "a|urlencode",
        "a|wordcount",
        "a|truncate(9)",
        "a|indent",
        "a.center(400001)",
        "a.ljust(400001)",
        "a.zfill(400001)",
        "a.expandtabs()",
        "a.isalpha()",
        "a.isascii()",
        "a.isspace() or a.islower()",
        "a.upper().isupper()",
        "('A' ~ a).istitle()",
        "a.isidentifier()",
        "a is lower",
        "a|tojson",
        "a|string|list",
        "[a]|string",
        "{a: 1}",
        "{}[a]",
        "{1: 2}.get(a)",
        "{(a,): 1}",
        "a ~ 'x'",
        "b * 2",
        "a|safe ~ '<'",
        "a|reverse",
        "'x'.join([a, a])",
        "[a, a]|join",
        "[a, b]|sort",
        "[a, b]|min",
        "[a, b]|unique|list",
        "strftime_now(a)",
        "[1]|map(attribute='a.' ~ a, default=1)|list",
        "[a].index(b ~ b)",
        "[a].count(b ~ b)",
        "a|batch(9)|list",
        "a|list",
        "a|last",
        "{'x': a}|xmlattr",
        "{'x': a}|urlencode",
        "{a: 1}|xmlattr",
        "{a: 1}|dictsort",
        "a|replace('x', 'y')",
    };
#define SET_TEXTS "{% set a = 'a' * 400000 %}{% set b = 'a' * 200000 %}{% set z = '0' * 400000 %}"
    uint64_t base = steps_of(SET_TEXTS);
    for (size_t i = 0; i < sizeof work / sizeof *work; i++) {
        char source[256];
        snprintf(source, sizeof source, "%s{%% set r = %s %%}", SET_TEXTS, work[i]);
        uint64_t steps = steps_of(source) - base;
        if (steps < 200000 / 256)
            fail_msg("%s is charged %llu steps", work[i], (unsigned long long)steps);
    }
}

/* The same for containers of 5,000 entries: at least a sixteenth of a step for each. */
static void test_large_containers_are_charged(void **state) {
    (void)state;
    static const char *const work[] = {
        "l + l",
        "l * 2",
        "l[:]",
        "l[::-1]",
        "l|list",
        "l.copy()",
        "l == m",
        "l < m",
        "l|sort",
        "l.sort()",
        "l.reverse()",
        "l.insert(0, 1)",
        "l.pop(1)",
        "l.remove(4999)",
        "l.extend(m)",
        "l.index(4999)",
        "l.count(1)",
        "4999 in l",
        "l|sum",
        "l|min",
        "l|max",
        "l|join",
        "l|reverse|list",
        "l|unique|list",
        "l|batch(9)|list",
        "l|slice(9)|list",
        "l|select('odd')|list",
        "l|map('string')|list",
        "l|groupby('real')",
        "l|string",
        "l|tojson",
        "d|list",
        "d == e",
        "d.copy()",
        "dict(d)",
        "namespace(d)",
        "d|dictsort",
        "d|items|list",
        "d.pop(1)",
        "d|string",
        "d|tojson",
        "d|length is odd or d.update(e)",
        "d|tojson(sort_keys=true)",
        "{(l|map('string')|join,): 1}",
        "[d] == [e]",
        "d.items()|list",
        "{}.fromkeys(l)",
        "d|urlencode",
        "'x'.join(l|map('string'))",
        "range(5000)|list",
        "namespace(*[d])",
        "dict(**s)",
        "'{x}'.format(**s)",
        "m|last if m.sort() else 1",
    };
#define SET_LISTS                                                                                  \
    "{% set l = range(5000)|list %}{% set m = range(5000)|list %}{% set d = {} %}"                 \
    "{% set e = {} %}{% set s = {} %}{% for i in l %}{% set _ = d.update({i: 1}) %}"               \
    "{% set _ = e.update({i: 1}) %}{% set _ = s.update({i|string: 1}) %}{% endfor %}"
    uint64_t base = steps_of(SET_LISTS);
    for (size_t i = 0; i < sizeof work / sizeof *work; i++) {
        char source[512];
        snprintf(source, sizeof source, "%s{%% set r = %s %%}", SET_LISTS, work[i]);
        uint64_t steps = steps_of(source) - base;
        if (steps < 5000 / 16)
            fail_msg("%s is charged %llu steps", work[i], (unsigned long long)steps);
    }
}

/* Numbers at their ends. Under UBSan a wrong one also ends the test. */
static void test_ends_of_integers(void **state) {
    (void)state;
    is("{{ 1.5|round(-9223372036854775807-1) }} {{ -1.5|round(-400) }}", "0.0 -0.0");
    is("{{ 15|round(-9223372036854775807-1) }} {{ 1.5|round(9223372036854775807) }}", "0 1.5");
#define WIDE "range(-9223372036854775807-1, 9223372036854775807, 9223372036854775807)"
    is("{{ " WIDE "|list }}", "[-9223372036854775808, -1, 9223372036854775806]");
    is("{{ " WIDE "[2] }} {{ " WIDE "[:2]|list }}",
       "9223372036854775806 [-9223372036854775808, -1]");
    fails("{{ " WIDE "[3:] }}", "does not fit into a 64-bit integer");
}

struct watcher {
    int polls, last; /* it ends at the last one */
};

static enum sl_status poll_watcher(void *ctx, struct sl_err *e) {
    struct watcher *w = ctx;
    if (++w->polls < w->last)
        return SL_OK;
    return sl_fail(e, SL_ERR_CANCELED, "enough");
}

/* Steps without end: only the watch and the clock can end these. */
static void test_watch(void **state) {
    (void)state;
    static const char *const endless[] = {
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        NESTED("60", "(ns.t, ns.t)") "{{ {ns.t: 1} }}",
        NESTED("60", "(ns.t, ns.t)") "{{ ns.t == (ns.t, 1)[0] }}{{ ns.t|tojson|length }}",
        "{% set a = 'a' * 4000000 %}{{ a.rfind('a' * 2000000 ~ 'ba') }}{{ a.rfind('b' ~ 'a' * "
        "2000000) }}",
    };
    struct sl_template_limits l = sl_template_default_limits;
    l.max_steps = UINT64_MAX;
    l.max_memory_bytes = 64u << 20;
    for (size_t i = 0; i < sizeof endless / sizeof *endless; i++) {
        struct watcher w = {.last = 20};
        struct sl_template *t;
        char *out;
        size_t len;
        json_t *vars = json_object();
        l.max_time_ns = 0;
        l.watch = (struct sl_template_watch){poll_watcher, &w};
        assert_int_equal(sl_template_compile(endless[i], strlen(endless[i]), &t, &err), SL_OK);
        assert_int_equal(sl_template_render(t, vars, &l, &out, &len, &err), SL_ERR_CANCELED);
        assert_string_equal(err.text, "enough");
        assert_int_equal(w.polls, 20);
        l.watch = (struct sl_template_watch){NULL, NULL};
        l.max_time_ns = 1000000;
        assert_int_equal(sl_template_render(t, vars, &l, &out, &len, &err), SL_ERR_LIMIT);
        assert_non_null(strstr(err.text, "longer than the limit of 0.001 s"));
        json_decref(vars);
        sl_template_destroy(&t);
    }
}

/* Asked before anything is done, and often enough: at least every 10,000 steps. */
static void test_watch_is_asked_often(void **state) {
    (void)state;
    struct watcher w = {.last = 1};
    struct sl_template_limits l = sl_template_default_limits;
    struct sl_template *t;
    char *out;
    size_t len;
    uint64_t steps = 0;
    json_t *vars = json_object();
    l.watch = (struct sl_template_watch){poll_watcher, &w};
    l.steps = &steps;
    static const char source[] = "{% for i in range(100000) %}{{ i }}{% endfor %}";
    assert_int_equal(sl_template_compile(source, strlen(source), &t, &err), SL_OK);
    assert_int_equal(sl_template_render(t, vars, &l, &out, &len, &err), SL_ERR_CANCELED);
    assert_true(steps < 1000);
    w = (struct watcher){.last = 1000000};
    steps = 0;
    assert_int_equal(sl_template_render(t, vars, &l, &out, &len, &err), SL_OK);
    assert_true((uint64_t)w.polls >= steps / 10000);
    free(out);
    json_decref(vars);
    sl_template_destroy(&t);
}

/* n pieces with their numbers, each '#' of a piece replaced, between two texts. */
static char *listed(const char *before, const char *piece, int n, const char *after) {
    size_t cap = strlen(before) + (size_t)n * (strlen(piece) + 24) + strlen(after) + 1;
    char *s = malloc(cap), *p = s;
    assert_non_null(s);
    p += sprintf(p, "%s", before);
    for (int i = 0; i < n; i++)
        for (const char *c = piece; *c; c++)
            p += *c == '#' ? sprintf(p, "%d", i) : sprintf(p, "%c", *c);
    sprintf(p, "%s", after);
    return s;
}

/* Compiling goes through names and bodies again and again; that is bounded too. */
static void test_compiling_is_bounded(void **state) {
    (void)state;
    char *s[] = {
        listed("{{ f(", "n#=1,", 200000, ") }}"),
        listed("{% macro m(x", ",n#", 200000, ") %}{% endmacro %}"),
        listed("", "{% set v# = w# %}", 100000, ""),
        listed("", "{% for x in l %}", 70, "{{ 1, 2 }}"),
        listed("", "{{ v + # }}", 20000, ""), /* long, and plain */
    };
    for (size_t i = 0; i < sizeof s / sizeof *s; i++) {
        struct sl_template *t = NULL;
        enum sl_status compiled = sl_template_compile(s[i], strlen(s[i]), &t, &err);
        if (compiled == SL_OK)
            sl_template_destroy(&t);
        else
            assert_true(strstr(err.text, "too long to compile") ||
                        strstr(err.text, "variables in one scope") ||
                        strstr(err.text, "memory to compile") || strstr(err.text, "never closed"));
        assert_int_equal(compiled == SL_OK, i == 4);
        free(s[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_stack),
        cmocka_unit_test(test_shared_values),
        cmocka_unit_test(test_long_texts_are_charged),
        cmocka_unit_test(test_large_containers_are_charged),
        cmocka_unit_test(test_ends_of_integers),
        cmocka_unit_test(test_watch),
        cmocka_unit_test(test_watch_is_asked_often),
        cmocka_unit_test(test_compiling_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
