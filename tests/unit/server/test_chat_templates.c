/* Conversations through a model's chat template: the form that the template expects, how often it
 * is tried, and what becomes of one that passes a limit. */
#include "harness.h"

#include "common/metrics.h"

#include <stdio.h>

#define USER "{\"role\":\"user\",\"content\":\"Rome?\"}"
#define CALL                                                                                       \
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"call_1\",\"type\":"        \
    "\"function\",\"function\":{\"name\":\"weather\",\"arguments\":\"{\\\"city\\\": "              \
    "\\\"Rome\\\"}\"}}]}"
#define RESULT "{\"role\":\"tool\",\"tool_call_id\":\"call_1\",\"content\":\"sunny\"}"
#define SYSTEM "{\"role\":\"system\",\"content\":\"Be brief.\"}"
#define TOOLS                                                                                      \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{"        \
    "\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}}}}}]"

/* The reply to some messages, and how often they were rendered. */
static struct reply ask(const char *messages, const char *more, int64_t *out_renders) {
    char body[8192];
    snprintf(body, sizeof body, "{\"messages\":[%s]%s%s}", messages, *more ? "," : "", more);
    int64_t before = sl_metric(template_renders_total);
    struct reply r = client_post("/apply-template", body);
    *out_renders = sl_metric(template_renders_total) - before;
    return r;
}

/* The template makes this prompt of the messages, at the n-th try. One that names the marker of a
 * family of calls is given tools: else the server would tell the model of them in its own words. */
static void prompt_is(const char *template, const char *messages, const char *want, int64_t n) {
    char json[1024];
    int64_t renders;
    start(template);
    struct reply r = ask(messages, strstr(template, "<tool_call>") ? TOOLS : "", &renders);
    snprintf(json, sizeof json, "{\"prompt\":\"%s\"}", want);
    if (r.status != 200 || strcmp(r.body, json) != 0)
        fail_msg("%s\ngives %s\nnot   %s", template, r.body, json);
    assert_int_equal(renders, n);
    reply_free(&r);
    stop();
}

#define CALLS_IN(arguments)                                                                        \
    "{% for m in messages %}{{ m.content }};{% for c in m.tool_calls %}" arguments                 \
    ";{% endfor %}{% endfor %}{# <tool_call> #}"
#define ONLY_AFTER_SYSTEM                                                                          \
    "{% if messages[0].role != 'system' %}{{ raise_exception('no system') }}{% endif %}"
#define WITH_CALL USER "," CALL "," RESULT

static void a_template_finds_its_form(void **state) {
    (void)state;
    /* Arguments as an object, absent text as an empty one: as Python would, `None` is written. */
    prompt_is(CALLS_IN("{{ c.function.arguments | tojson }}"), WITH_CALL,
              "Rome?;;{\\\"city\\\": \\\"Rome\\\"};sunny;", 1);
    /* As text, where an object would come out as Python writes it, or cannot be joined. */
    prompt_is(CALLS_IN("{{ c.function.arguments }}"), WITH_CALL,
              "Rome?;;{\\\"city\\\": \\\"Rome\\\"};sunny;", 1);
    prompt_is(CALLS_IN("{{ 'a' + c.function.arguments }}"), WITH_CALL,
              "Rome?;;a{\\\"city\\\": \\\"Rome\\\"};sunny;", 1);
    prompt_is(CALLS_IN("{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}"),
              WITH_CALL, "Rome?;;city=Rome;sunny;", 1);
    /* None stays where the template asks for it. */
    prompt_is("{% for m in messages %}{% if m.content is none %}absent{% else %}{{ m.content }}"
              "{% endif %};{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}"
              "{% endfor %}{% endfor %}{# <tool_call> #}",
              WITH_CALL, "Rome?;absent;{\\\"city\\\": \\\"Rome\\\"}sunny;", 1);
    /* But not for an assistant that neither says nor calls anything. */
    prompt_is("{% for m in messages %}{{ m.content }};{% endfor %}",
              USER ",{\"role\":\"assistant\",\"content\":null}," USER, "Rome?;;Rome?;", 1);
    /* A template that takes no result, or calls only behind the system's message. */
    prompt_is("{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no results') }}"
              "{% endif %}{{ m.content + '' }};{% for c in m.tool_calls %}"
              "{{ c.function.arguments }}{% endfor %}{% endfor %}{# <tool_call> #}",
              USER "," CALL "," USER, "Rome?;;{\\\"city\\\": \\\"Rome\\\"}Rome?;", 1);
    prompt_is(ONLY_AFTER_SYSTEM CALLS_IN("{{ c.function.arguments }}"), SYSTEM "," WITH_CALL,
              "Be brief.;Rome?;;{\\\"city\\\": \\\"Rome\\\"};sunny;", 1);
}

static void known_refusals_are_not_tried(void **state) {
    (void)state;
    static const char no_system[] =
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}"
        "{% endif %}{{ m.role }}:{{ m.content }};{% endfor %}";
    prompt_is(no_system, SYSTEM "," USER, "user:Be brief.\\n\\nRome?;", 1);
    prompt_is(no_system, USER, "user:Rome?;", 1);
    /* Where the order matters it is tried as it came, then with the user's messages joined. */
    prompt_is("{% for m in messages %}{% if m.role == 'user' and loop.previtem is defined and "
              "loop.previtem.role == 'user' %}{{ raise_exception('not in turn') }}{% endif %}"
              "{{ m.role }}:{{ m.content }};{% endfor %}",
              SYSTEM "," USER "," USER, "system:Be brief.;user:Rome?\\n\\nRome?;", 2);
}

/* The reply names what went wrong, after so many tries. */
static void refuses(const char *messages, const char *code, const char *text, int64_t n) {
    int64_t renders;
    struct reply r = ask(messages, "", &renders);
    assert_int_equal(r.status, 400);
    if (!strstr(r.body, text) || !strstr(r.body, code) || !strstr(r.body, "\"param\":\"messages\""))
        fail_msg("%s", r.body);
    assert_int_equal(renders, n);
    reply_free(&r);
}

static void refusals_are_told(void **state) {
    (void)state;
    start("{% for m in messages %}{% if 'Rome?' in m.content %}{{ raise_exception('only Paris, '"
          " ~ m.role) }}{% endif %}{% endfor %}");
    int64_t refused = sl_metric(template_refusals_total);
    refuses(USER, "\"code\":null", "refuses these messages: chat template line 1, column 56: only",
            1);
    refuses(SYSTEM "," USER, "\"code\":null", "only Paris, user", 2);
    refuses(SYSTEM "," USER "," USER "," SYSTEM, "\"code\":null", "only Paris, user", 3);
    refuses(CALL "," USER, "\"code\":null", "only Paris, user", 1);
    assert_int_equal(sl_metric(template_refusals_total) - refused, 4);
    stop();
}

/* Slicing a range counts its items and does nothing for them, so this is quick. */
#define STEPS_IN_THOUSANDS(n) "{% for i in range(" n ") %}{% set r = range(1000)[:] %}{% endfor %}"

/* A limit ends it: no other shape is tried, and all that were keep to it together. */
static void limits_are_told(void **state) {
    (void)state;
    start("{% for m in messages %}{% if m.content == 'Rome?' %}" STEPS_IN_THOUSANDS(
        "100000") "{% endif %}{% endfor %}");
    int64_t limits = sl_metric(template_limits_total);
    refuses(SYSTEM "," USER "," USER "," SYSTEM, "\"code\":\"template_limit\"",
            "takes more than the limit of 20000000 steps", 1);
    assert_int_equal(sl_metric(template_limits_total) - limits, 1);
    stop();
    start("{% for m in messages %}{% if m.content == 'Rome?' %}{{ 'x' * 4000000000 }}{% endif %}"
          "{% endfor %}");
    refuses(USER "," USER, "\"code\":\"template_limit\"", "more memory than its limit of", 1);
    stop();
    /* 12 million steps, then a refusal: the second try passes the limit. */
    start("{% for m in messages %}{% if 'Rome?' in m.content %}" STEPS_IN_THOUSANDS(
        "12000") "{{ raise_exception('no') }}"
                 "{% endif %}{% endfor %}");
    refuses(SYSTEM "," USER "," USER "," SYSTEM, "\"code\":\"template_limit\"", "20000000 steps",
            2);
    stop();
}

static int vocabulary(void **state) {
    (void)state;
    fake_tokenizer_init(&tok);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_template_finds_its_form),
        cmocka_unit_test(known_refusals_are_not_tried),
        cmocka_unit_test(refusals_are_told),
        cmocka_unit_test(limits_are_told),
    };
    return cmocka_run_group_tests_name("chat templates", tests, vocabulary, NULL);
}
