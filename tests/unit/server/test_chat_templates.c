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

/* Without tools the name is there and none, but where a template would iterate over that. */
static void no_tools_are_none(void **state) {
    (void)state;
    static const char is[] = "{{ 'absent' if tools is undefined else 'none' if tools is none else "
                             "tools | length }}:{{ messages[-1].content }}";
    prompt_is(is, USER, "none:Rome?", 1);
    prompt_is("{% for t in tools %}{{ t.function.name }}{% endfor %}{{ messages[-1].content }}",
              USER, "Rome?", 1);
    /* Passed over by filters, as in Jinja2. */
    prompt_is("{{ tools | selectattr('type', 'equalto', 'x') | list | length }}", USER, "0", 1);
}

#define CONTINUED   "\"continue_final_message\":true"
#define BEGUN(text) USER ",{\"role\":\"assistant\",\"content\":\"" text "\"}"

/* The prompt ends with so much of the message that is to be continued; NULL: a 400 says why not. */
static void continued(const char *template, const char *messages, const char *more,
                      const char *want, const char *refusal) {
    char json[1024];
    int64_t renders;
    start(template);
    struct reply r = ask(messages, more, &renders);
    if (want) {
        snprintf(json, sizeof json, "{\"prompt\":\"%s\"}", want);
        if (r.status != 200 || strcmp(r.body, json) != 0)
            fail_msg("%s\ngives %s\nnot   %s", template, r.body, json);
    } else {
        assert_int_equal(r.status, 400);
        if (!strstr(r.body, refusal) || !strstr(r.body, "\"param\":\"continue_final_message\""))
            fail_msg("%s", r.body);
    }
    reply_free(&r);
    stop();
}

static void final_messages_are_continued(void **state) {
    (void)state;
    static const char chatml[] =
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
#define CHATML_USER "<|im_start|>user\\nRome?<|im_end|>\\n<|im_start|>assistant\\n"
    continued(chatml, BEGUN("It is"), CONTINUED, CHATML_USER "It is", NULL);
    continued(chatml, BEGUN("It is "), CONTINUED, CHATML_USER "It is ", NULL);
    /* What the client wrote is never taken for the template's end. */
    continued(chatml, BEGUN("a<|im_end|>\\n"), CONTINUED, CHATML_USER "a<|im_end|>\\n", NULL);
    continued(chatml,
              USER ",{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"It\"}]}",
              CONTINUED, CHATML_USER "It", NULL);
    continued("{% for m in messages %}{{ m.content | trim }};{% endfor %}", BEGUN(" It is \\n"),
              CONTINUED, NULL, "does not write that message as it is");
    continued("{% for m in messages %}{{ m.content.rstrip() }};{% endfor %}", BEGUN("It is \\n"),
              CONTINUED, "Rome?;It is", NULL);
    continued("{% for m in messages %}{{ m.content | upper }};{% endfor %}", BEGUN("It is"),
              CONTINUED, NULL, "does not write that message as it is");
    /* Something of the client's stands behind it. */
    continued("{% for m in messages %}{{ m.content }};{% endfor %}{{ messages[0].content }}",
              BEGUN("It is"), CONTINUED, NULL, "does not write that message as it is");
    continued(chatml, USER, CONTINUED, NULL, "needs an assistant's message");
    continued(chatml, USER "," CALL, CONTINUED, NULL, "needs an assistant's message");
    continued(chatml, BEGUN("It is"), CONTINUED ",\"add_generation_prompt\":true", NULL,
              "'add_generation_prompt'");
    continued(chatml, BEGUN("It is"), "\"continue_final_message\":1", NULL, "true or false");
    /* Off, it is a turn that has ended. */
    continued(chatml, BEGUN("It is"), "\"continue_final_message\":false",
              CHATML_USER "It is<|im_end|>\\n<|im_start|>assistant\\n", NULL);
}

/* The answer goes on, and has only what is new. */
static void answers_to_continued_messages(void **state) {
    (void)state;
    static const struct {
        const char *more, *refused;
    } cases[] = {
        {CONTINUED, NULL},
        {CONTINUED "," TOOLS, NULL},
        {CONTINUED "," TOOLS ",\"tool_choice\":\"required\"", "tool_choice"},
        {CONTINUED ",\"response_format\":{\"type\":\"json_object\"}", "response_format"},
    };
    start("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[2048];
        snprintf(body, sizeof body, "{\"messages\":[%s],\"max_tokens\":2,%s}", BEGUN("It is"),
                 cases[i].more);
        struct reply r = client_post(CHAT, body);
        if (cases[i].refused) {
            assert_int_equal(r.status, 400);
            assert_non_null(strstr(r.body, cases[i].refused));
        } else {
            assert_int_equal(r.status, 200);
            assert_int_equal(engine->last_prompt[engine->last.n_prompt - 1], 's');
        }
        reply_free(&r);
    }
    struct reply r = client_post(COMP, "{\"prompt\":\"a\",\"continue_final_message\":true}");
    assert_int_equal(r.status, 400);
    assert_non_null(strstr(r.body, "\"param\":\"continue_final_message\""));
    reply_free(&r);
    stop();
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

/* ---- renderings that only end because somebody ends them ---- */

#define ENDLESS                                                                                    \
    "{% for m in messages %}{% if m.content == 'Rome?' %}{% for i in range(100000) %}"             \
    "{% for j in range(100000) %}{% endfor %}{% endfor %}{% endif %}{% endfor %}"

static void start_endless(uint32_t timeout_s) {
    set_up_engine();
    config.template_steps = (uint64_t)1 << 40; /* a day of them */
    config.template_timeout_s = timeout_s;
    start_empty();
    attach_template(ENDLESS);
}

static int send_endless(void) {
    return client_begin(CHAT, "{\"messages\":[" USER "]}");
}

/* Until n requests are with workers, and none waits for one. */
static void wait_working(uint32_t n) {
    uint64_t until = sl_now_ns() + 60000000000u;
    for (uint32_t working = 0; working < n && sl_now_ns() < until; usleep(2000)) {
        working = 0;
        pthread_mutex_lock(&server->list_lock);
        for (struct sl_exchange *ex = server->exchanges; ex; ex = ex->next) {
            pthread_mutex_lock(&ex->lock);
            working += sl_exchange_has_job(ex->state);
            pthread_mutex_unlock(&ex->lock);
        }
        pthread_mutex_unlock(&server->list_lock);
        pthread_mutex_lock(&server->jobs_lock);
        working = server->jobs[SL_JOB_SMALL].head ? 0 : working;
        pthread_mutex_unlock(&server->jobs_lock);
        if (working >= n)
            return;
    }
    fail_msg("%u requests did not get to workers", n);
}

static void a_client_that_leaves_frees_its_worker(void **state) {
    (void)state;
    start_endless(3600);
    int fd[2] = {send_endless(), send_endless()}; /* as many as there are workers */
    wait_working(2);
    close(fd[0]);
    close(fd[1]);
    struct reply r = client_post("/tokenize", "{\"content\":\"x\"}");
    assert_int_equal(r.status, 200);
    reply_free(&r);
    stop();
}

/* As after SIGTERM, when the time to finish is over. */
static void stopping_ends_renderings(void **state) {
    (void)state;
    start_endless(3600);
    int fd[3] = {send_endless(), send_endless(), -1};
    wait_working(2);
    fd[2] = send_endless(); /* and one that waits for a worker */
    assert_true(wait_for(&server->n_active, 3, 60000));
    sl_server_drain(server);
    sl_server_cancel(server);
    for (int i = 0; i < 3; i++) {
        size_t len;
        char *text = client_read_all(fd[i], &len);
        if (!strstr(text, " 503 ") || !strstr(text, "the server is shutting down"))
            fail_msg("%s", text);
        free(text);
        close(fd[i]);
    }
    stop();
}

static void time_ends_renderings(void **state) {
    (void)state;
    int64_t renders;
    start_endless(3600);
    struct reply r = ask(USER, "\"timeout_s\":0.3", &renders);
    assert_int_equal(r.status, 504);
    assert_non_null(strstr(r.body, "\"code\":\"deadline_exceeded\""));
    assert_non_null(strstr(r.body, "give it a longer 'timeout_s'"));
    reply_free(&r);
    stop();
    start_endless(1);
    refuses(USER, "\"code\":\"template_limit\"", "longer than the limit of 1 s", 1);
    stop();
}

/* The load of a model tries its template, and is not waited for by a server that stops. */
static void stopping_ends_an_attach(void **state) {
    (void)state;
    struct sl_err err;
    struct sl_server_model m = {.engine = engine,
                                .tokenizer = &tok,
                                .id = "m",
                                .chat_template = ENDLESS,
                                .chat_template_bytes = strlen(ENDLESS)};
    set_up_engine();
    m.engine = engine;
    start_empty();
    sl_server_drain(server);
    assert_int_equal(sl_server_attach(server, &m, &err), SL_ERR_CANCELED);
    assert_non_null(strstr(err.text, "the server is stopping"));
    assert_null(server->served);
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
        cmocka_unit_test(no_tools_are_none),
        cmocka_unit_test(final_messages_are_continued),
        cmocka_unit_test(answers_to_continued_messages),
        cmocka_unit_test(refusals_are_told),
        cmocka_unit_test(limits_are_told),
        cmocka_unit_test(a_client_that_leaves_frees_its_worker),
        cmocka_unit_test(stopping_ends_renderings),
        cmocka_unit_test(time_ends_renderings),
        cmocka_unit_test(stopping_ends_an_attach),
    };
    return cmocka_run_group_tests_name("chat templates", tests, vocabulary, NULL);
}
