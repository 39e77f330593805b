/* The names that clients use: of endpoints, and of the model. */
#include "harness.h"

#include "server/http.h"

static void expect_path(const char *path, const char *want) {
    char *got = sl_route_path(path);
    assert_string_equal(got, want);
    free(got);
}

static void test_paths(void **state) {
    (void)state;
    expect_path("/", "/");
    expect_path("//", "/");
    expect_path("", "");
    expect_path("*", "*"); /* OPTIONS */
    expect_path("/v1/chat/completions", "/v1/chat/completions");
    expect_path("//v1///chat/completions//", "/v1/chat/completions");
    expect_path("/chat/completions", "/v1/chat/completions");
    expect_path("//chat/completions/", "/v1/chat/completions");
    expect_path("/completions", "/v1/completions");
    expect_path("/responses", "/v1/responses");
    expect_path("/messages", "/v1/messages");
    expect_path("/messages/count_tokens", "/v1/messages/count_tokens");
    expect_path("/models/", "/v1/models");
    expect_path("/v1/models/a/b", "/v1/models/a/b");
    expect_path("/chat/completion", "/chat/completion");
    expect_path("//dashboard//app.js", "/dashboard/app.js");
    expect_path("/dashboard/app.js/", "/dashboard/app.js/");
}

static void ok(struct reply r) {
    if (r.status != 200)
        fail_msg("status %d: %.300s", r.status, r.body ? r.body : "");
    reply_free(&r);
}

static void test_endpoints(void **state) {
    (void)state;
    static const char *const chats[] = {"/chat/completions", "//v1/chat/completions",
                                        "/v1/chat/completions/"};
    set_script(hello, 9, 0, 0);
    for (size_t i = 0; i < sizeof chats / sizeof *chats; i++)
        ok(client_post(chats[i], "{" MESSAGES "}"));
    ok(client_post("/completions", "{\"prompt\":\"x\"}"));
    ok(client_post("/responses", "{\"input\":\"x\"}"));
    ok(client_post("/messages", "{\"model\":\"test-model\",\"max_tokens\":9," MESSAGES "}"));
    ok(client_get("/health/"));
    ok(client_get("//health"));
    ok(client_get("/models"));
    /* The API of the path is that of its full name, in errors too. */
    struct reply r = client_post("/messages", "{}");
    assert_int_equal(r.status, 400);
    assert_non_null(strstr(r.body, "\"type\":\"error\""));
    reply_free(&r);
    expect_error(client_post("/v1", "{}"), 404, "not_found_error", NULL, "/v1");
    /* Counted under one name. */
    r = client_get("/metrics");
    assert_non_null(strstr(r.body, "{endpoint=\"/v1/chat/completions\",status=\"200\"} 3\n"));
    reply_free(&r);
}

/* Keys are asked for by what is done, however it is called. */
static void test_keys(void **state) {
    (void)state;
    static const char *const keys[] = {"secret"};
    sl_server_destroy(&server);
    config.api_keys = keys;
    config.n_api_keys = 1;
    start_empty();
    attach();
    static const char *const paths[] = {"/models", "//v1/models", "/v1/models/", "//metrics"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        expect_error(client_get(paths[i]), 401, "authentication_error", NULL, "API key");
    ok(client_get("//health/"));
}

static void attach_names(uint32_t n_aliases, bool any_name) {
    static const char *const aliases[] = {"gpt-x", "org/m"};
    struct sl_err err;
    struct sl_server_model m = {.engine = engine,
                                .tokenizer = &tok,
                                .id = "first",
                                .aliases = aliases,
                                .n_aliases = n_aliases,
                                .any_name = any_name,
                                .arch = "fake",
                                .chat_template = chatml_template,
                                .chat_template_bytes = strlen(chatml_template)};
    start_empty();
    if (sl_server_attach(server, &m, &err) != SL_OK)
        fail_msg("%s", err.text);
    set_script(hello, 9, 0, 0);
}

static void expect_model(const char *path, const char *body, const char *member, const char *want) {
    struct reply r = client_post(path, body);
    if (r.status != 200)
        fail_msg("%s", r.body);
    json_t *v = parse(&r);
    assert_string_equal(str_at(v, member), want);
    json_decref(v);
    reply_free(&r);
}

static void test_aliases(void **state) {
    (void)state;
    attach_names(2, false);
    struct reply r = client_get("/v1/models");
    json_t *v = parse(&r);
    assert_int_equal(json_array_size(at(v, "data")), 3);
    assert_string_equal(str_at(v, "data.0.id"), "first");
    assert_string_equal(str_at(v, "data.1.id"), "gpt-x");
    assert_string_equal(str_at(v, "data.2.id"), "org/m");
    json_decref(v);
    reply_free(&r);
    r = client_request("GET", "/v1/models", "anthropic-version: 2023-06-01\r\n", NULL);
    v = parse(&r);
    assert_int_equal(json_array_size(at(v, "data")), 3);
    assert_string_equal(str_at(v, "first_id"), "first");
    assert_string_equal(str_at(v, "last_id"), "org/m");
    json_decref(v);
    reply_free(&r);
    r = client_get("/v1/models/org/m");
    v = parse(&r);
    assert_string_equal(str_at(v, "id"), "org/m");
    json_decref(v);
    reply_free(&r);
    expect_error(client_get("/v1/models/other"), 404, "not_found_error", "model", "'first'");

    /* Answers repeat the name that was asked for. */
    expect_model(CHAT, "{\"model\":\"gpt-x\"," MESSAGES "}", "model", "gpt-x");
    expect_model(CHAT, "{\"model\":\"first\"," MESSAGES "}", "model", "first");
    expect_model(CHAT, "{" MESSAGES "}", "model", "first");
    expect_model(COMP, "{\"model\":\"org/m\",\"prompt\":\"x\"}", "model", "org/m");
    expect_model("/v1/responses", "{\"model\":\"gpt-x\",\"input\":\"x\"}", "model", "gpt-x");
    expect_model("/v1/messages", "{\"model\":\"gpt-x\",\"max_tokens\":9," MESSAGES "}", "model",
                 "gpt-x");
    r = client_post(CHAT, "{\"model\":\"gpt-x\",\"stream\":true," MESSAGES "}");
    assert_non_null(strstr(r.body, "\"model\":\"gpt-x\""));
    assert_null(strstr(r.body, "\"model\":\"first\""));
    reply_free(&r);
    expect_error(client_post(CHAT, "{\"model\":\"gpt-y\"," MESSAGES "}"), 404, "not_found_error",
                 "model", "this server has 'first'");
}

static void test_any_name(void **state) {
    (void)state;
    attach_names(0, true);
    expect_model(CHAT, "{\"model\":\"gpt-\\u00e9\"," MESSAGES "}", "model", "gpt-\xc3\xa9");
    expect_model(CHAT, "{" MESSAGES "}", "model", "first");
    struct reply r = client_get("/v1/models/whatever");
    json_t *v = parse(&r);
    assert_string_equal(str_at(v, "id"), "whatever");
    json_decref(v);
    reply_free(&r);
    expect_error(client_post(CHAT, "{\"model\":7," MESSAGES "}"), 400, BAD, "model", "a string");
    char body[2000] = "{\"model\":\"";
    memset(body + 10, 'a', 1025);
    strcpy(body + 1035, "\"," MESSAGES "}");
    expect_error(client_post(CHAT, body), 400, BAD, "model", "1025 bytes");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths),
        READY(test_endpoints),
        READY(test_keys),
        cmocka_unit_test_setup_teardown(test_aliases, setup, teardown),
        cmocka_unit_test_setup_teardown(test_any_name, setup, teardown),
    };
    return cmocka_run_group_tests_name("names", tests, NULL, NULL);
}
