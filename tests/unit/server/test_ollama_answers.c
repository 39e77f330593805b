/* Ollama's API over sockets: lines, calls, errors, what is served, clients that leave. */
#include "harness.h"

static void set_text(const char *text) {
    static uint32_t script[512];
    uint32_t n = 0;
    for (; text[n]; n++)
        script[n] = (unsigned char)text[n];
    script[n++] = FAKE_EOS;
    set_script(script, n, 0, 0);
}

/* Each line a value, the last of them done; [n] values are the caller's. */
static uint32_t lines_of(const struct reply *r, json_t **out, uint32_t most) {
    uint32_t n = 0;
    assert_non_null(strstr(r->head, "application/x-ndjson"));
    for (const char *p = r->body, *end; *p; p = end + 1) {
        end = strchr(p, '\n');
        assert_non_null(end);
        assert_true(n < most);
        out[n] = json_loadb(p, (size_t)(end - p), 0, NULL);
        if (!out[n])
            fail_msg("not JSON: %.*s", (int)(end - p), p);
        n++;
    }
    for (uint32_t i = 0; i < n; i++)
        assert_true(json_is_boolean(at(out[i], "done")) &&
                    json_is_true(at(out[i], "done")) == (i + 1 == n));
    return n;
}

static void join(json_t **lines, uint32_t n, const char *member, const char *want) {
    char text[1024] = "";
    for (uint32_t i = 0; i < n; i++) {
        const char *s = json_string_value(at(lines[i], member));
        strcat(text, s ? s : "");
    }
    assert_string_equal(text, want);
}

static void release(json_t **lines, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        json_decref(lines[i]);
}

static void expect_end(json_t *v, const char *reason, int n_eval) {
    assert_string_equal(str_at(v, "done_reason"), reason);
    assert_int_equal(int_at(v, "eval_count"), n_eval);
    assert_true(int_at(v, "prompt_eval_count") > 0);
    assert_int_equal(int_at(v, "prompt_eval_duration"), 1000000);
    assert_int_equal(int_at(v, "eval_duration"), 2000000);
    assert_true(int_at(v, "total_duration") > 0);
}

#define M "\"model\":\"test-model\","

static void test_answers(void **state) {
    (void)state;
    json_t *lines[64];
    set_script(hello, 9, 0, 0);
    struct reply r = client_post("/api/chat", "{" M MESSAGES "}");
    assert_int_equal(r.status, 200);
    uint32_t n = lines_of(&r, lines, 64);
    join(lines, n, "message.content", "Hello \xc3\xa9");
    assert_string_equal(str_at(lines[0], "message.role"), "assistant");
    assert_string_equal(str_at(lines[0], "model"), "test-model");
    expect_end(lines[n - 1], "stop", 9);
    release(lines, n);
    reply_free(&r);

    r = client_post("/api/chat", "{" M "\"stream\":false," MESSAGES "}");
    json_t *v = parse(&r);
    assert_string_equal(str_at(v, "message.content"), "Hello \xc3\xa9");
    expect_end(v, "stop", 9);
    json_decref(v);
    reply_free(&r);

    r = client_post("/api/generate", "{" M "\"prompt\":\"x\",\"options\":{\"num_predict\":3}}");
    n = lines_of(&r, lines, 64);
    join(lines, n, "response", "Hel");
    expect_end(lines[n - 1], "length", 3);
    release(lines, n);
    reply_free(&r);

    r = client_post("/api/generate",
                    "{" M "\"prompt\":\"x\",\"raw\":true,\"stream\":false,\"options\":{\"stop\":["
                    "\"lo\"]}}");
    v = parse(&r);
    assert_string_equal(str_at(v, "response"), "Hel");
    assert_string_equal(str_at(v, "done_reason"), "stop");
    json_decref(v);
    reply_free(&r);
    assert_int_equal(engine->last.n_prompt, 1);
}

static void expect_loaded(const char *path, const char *body, const char *reason) {
    struct reply r = client_post(path, body);
    json_t *v = parse(&r);
    assert_int_equal(r.status, 200);
    assert_string_equal(str_at(v, "done_reason"), reason);
    assert_true(json_is_true(at(v, "done")));
    json_decref(v);
    reply_free(&r);
}

static void test_loading(void **state) {
    (void)state;
    expect_loaded("/api/chat", "{" M "\"messages\":[]}", "load");
    expect_loaded("/api/chat", "{" M "\"keep_alive\":0}", "unload");
    expect_loaded("/api/generate", "{\"model\":\"test-model:latest\"}", "load");
    assert_int_equal(engine->n_submitted, 0);
}

#define HERMES "{# a family: <tool_call> #}{{ messages[0].content }}"
#define TOOLS  "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],"

static void expect_call(json_t *call, const char *a) {
    assert_string_equal(str_at(call, "function.name"), "f");
    assert_string_equal(str_at(call, "function.arguments.a"), a);
    assert_true(strlen(str_at(call, "id")) > 5);
}

static void test_calls(void **state) {
    (void)state;
    json_t *lines[64];
    fake_tokenizer_init(&tok);
    start(HERMES);
    /* Line breaks in and between the values of arguments must not break the line. */
    set_text("Well.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\n\"a\":\r\n \"1\n2\"}}\n"
             "</tool_call>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"3\"}}\n"
             "</tool_call>");
    struct reply r = client_post("/api/chat", "{" M TOOLS MESSAGES "}");
    uint32_t n = lines_of(&r, lines, 64);
    uint32_t n_calls = 0;
    for (uint32_t i = 0; i < n; i++)
        if (at(lines[i], "message.tool_calls"))
            expect_call(at(lines[i], "message.tool_calls.0"), n_calls++ ? "3" : "1\n2");
    assert_int_equal(n_calls, 2);
    assert_string_equal(str_at(lines[n - 1], "done_reason"), "stop");
    release(lines, n);
    reply_free(&r);

    r = client_post("/api/chat", "{" M "\"stream\":false," TOOLS MESSAGES "}");
    json_t *v = parse(&r);
    assert_int_equal(json_array_size(at(v, "message.tool_calls")), 2);
    expect_call(at(v, "message.tool_calls.0"), "1\n2");
    expect_call(at(v, "message.tool_calls.1"), "3");
    json_decref(v);
    reply_free(&r);

    /* What was cut off is no object. */
    set_text("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"12345678901234567890");
    r = client_post("/api/chat", "{" M TOOLS "\"options\":{\"num_predict\":60}," MESSAGES "}");
    n = lines_of(&r, lines, 64);
    release(lines, n);
    reply_free(&r);
    stop();
}

static void test_errors(void **state) {
    (void)state;
    set_script(hello, 9, 0, 0);
    struct reply r = client_post("/api/chat", "{\"model\":\"other\"," MESSAGES "}");
    json_t *v = parse(&r);
    assert_int_equal(r.status, 404);
    assert_int_equal(json_object_size(v), 1);
    assert_non_null(strstr(str_at(v, "error"), "'other' does not exist"));
    json_decref(v);
    reply_free(&r);
    r = client_get("/api/nothing");
    v = parse(&r);
    assert_int_equal(r.status, 404);
    assert_non_null(strstr(str_at(v, "error"), "no endpoint"));
    json_decref(v);
    reply_free(&r);
    r = client_post("/api/chat", "{");
    assert_int_equal(r.status, 400);
    reply_free(&r);

    pthread_mutex_lock(&engine->lock);
    engine->fail_at = 3;
    pthread_mutex_unlock(&engine->lock);
    r = client_post("/api/chat", "{" M MESSAGES "}");
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.body, "\n{\"error\":\"the fake engine was told to fail\"}\n"));
    reply_free(&r);
    r = client_post("/api/chat", "{" M "\"stream\":false," MESSAGES "}");
    v = parse(&r);
    assert_int_equal(r.status, 500);
    assert_non_null(strstr(str_at(v, "error"), "told to fail"));
    json_decref(v);
    reply_free(&r);
}

static void test_about(void **state) {
    (void)state;
    struct reply r = client_get("/api/version");
    json_t *v = parse(&r);
    assert_int_equal(strspn(str_at(v, "version"), "0123456789."), strlen(str_at(v, "version")));
    json_decref(v);
    reply_free(&r);
    r = client_get("/api/tags");
    v = parse(&r);
    assert_int_equal(json_array_size(at(v, "models")), 1);
    assert_string_equal(str_at(v, "models.0.name"), "test-model");
    assert_int_equal(strlen(str_at(v, "models.0.digest")), 64);
    json_decref(v);
    reply_free(&r);
    r = client_get("/api/ps");
    v = parse(&r);
    assert_string_equal(str_at(v, "models.0.model"), "test-model");
    assert_int_equal(int_at(v, "models.0.context_length"), 4096);
    json_decref(v);
    reply_free(&r);
    r = client_post("/api/show", "{\"name\":\"test-model:latest\"}");
    v = parse(&r);
    assert_int_equal(
        json_integer_value(json_object_get(at(v, "model_info"), "fake.context_length")), 4096);
    assert_string_equal(str_at(v, "capabilities.0"), "completion");
    assert_string_equal(str_at(v, "template"), chatml_template);
    json_decref(v);
    reply_free(&r);
    r = client_post("/api/show", "{\"model\":\"other\"}");
    assert_int_equal(r.status, 404);
    reply_free(&r);
}

static void test_key(void **state) {
    (void)state;
    static const char *const keys[] = {"secret"};
    sl_server_destroy(&server);
    config.api_keys = keys;
    config.n_api_keys = 1;
    start_empty();
    attach();
    static const char *const gets[] = {"/api/version", "/api/tags", "/api/ps"};
    for (size_t i = 0; i < 3; i++) {
        struct reply r = client_get(gets[i]);
        assert_int_equal(r.status, 401);
        reply_free(&r);
    }
    struct reply r = client_post("/api/chat", "{" M MESSAGES "}");
    assert_int_equal(r.status, 401);
    json_t *v = parse(&r);
    assert_true(json_is_string(at(v, "error")));
    json_decref(v);
    reply_free(&r);
}

/* A line that says nothing keeps the stream alive, and a client that leaves ends the work. */
static void test_waiting(void **state) {
    (void)state;
    set_script(hello, 8, 1000000, 1000);
    int fd = client_begin("/api/chat", "{" M MESSAGES "}");
    char text[4096] = "";
    size_t n = 0;
    while (n < sizeof text - 1 && !strstr(text, "\"done\":false}\n")) {
        ssize_t got = recv(fd, text + n, sizeof text - 1 - n, 0);
        assert_true(got > 0);
        n += (size_t)got;
        text[n] = '\0';
    }
    assert_non_null(strstr(text, "\"message\":{\"role\":\"assistant\",\"content\":\"\"}"));
    assert_null(strstr(text, ": prompt"));
    assert_null(strstr(text, ": keep-alive"));
    close(fd);
    assert_true(wait_for(&engine->n_canceled, 1, 20000));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        READY(test_answers), READY(test_loading), cmocka_unit_test(test_calls), READY(test_errors),
        READY(test_about),   READY(test_key),     READY(test_waiting),
    };
    return cmocka_run_group_tests_name("ollama_answers", tests, NULL, NULL);
}
