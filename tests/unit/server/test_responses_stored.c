/* Responses that are kept: conversations that go on, retrieval, deletion, whose they are. */
#include "harness.h"

#define PATH "/v1/responses"

static const char json_template[] = "{{- {'messages': messages} | tojson -}}";

static int setup_json(void **state) {
    setup(state);
    config.response_store_bytes = 64 << 10;
    start_empty();
    attach_template(json_template);
    set_script(hello, 9, 0, 0);
    return 0;
}
#define STORED(f) cmocka_unit_test_setup_teardown(f, setup_json, teardown)

/* The messages of the last prompt. */
static json_t *messages(void) {
    char text[4097] = "";
    pthread_mutex_lock(&engine->lock);
    for (uint32_t i = 0; i < engine->last.n_prompt && i < 4096; i++)
        text[i] = (char)engine->last_prompt[i];
    pthread_mutex_unlock(&engine->lock);
    json_t *v = json_loads(text, 0, NULL);
    if (!v)
        fail_msg("no JSON: %s", text);
    json_t *m = json_incref(at(v, "messages"));
    json_decref(v);
    return m;
}

static void expect_messages(const char *want) {
    json_t *got = messages(), *all = json_loads(want, 0, NULL);
    assert_non_null(all);
    char *text = json_dumps(got, JSON_COMPACT);
    if (!json_equal(got, all))
        fail_msg("the template sees %s, not %s", text, want);
    free(text);
    json_decref(got);
    json_decref(all);
}

/* Creates a response and returns it; the caller's. */
static json_t *ask_with(const char *headers, const char *fmt, ...) {
    char body[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(body, sizeof body, fmt, ap);
    va_end(ap);
    struct reply r = client_request("POST", PATH, headers, body);
    if (r.status != 200)
        fail_msg("%s", r.body);
    json_t *v = parse(&r);
    reply_free(&r);
    return v;
}
#define ask(...) ask_with("", __VA_ARGS__)

static struct reply path_with(const char *method, const char *id, const char *more,
                              const char *headers) {
    char path[256];
    snprintf(path, sizeof path, PATH "/%s%s", id, more);
    return client_request(method, path, headers, NULL);
}

static const char q1[] = "{\"input\":\"one\",\"instructions\":\"be brief\"}";
#define SAID "\"Hello \xc3\xa9\""

static void test_goes_on(void **state) {
    (void)state;
    json_t *first = ask("%s", q1);
    assert_true(json_is_true(at(first, "store")));
    json_t *second =
        ask("{\"input\":[{\"role\":\"user\",\"content\":\"two\"}],\"previous_response_id\":\"%s\"}",
            str_at(first, "id"));
    assert_string_equal(str_at(second, "previous_response_id"), str_at(first, "id"));
    /* The conversation, but not the instructions. */
    expect_messages(
        "[{\"role\":\"user\",\"content\":\"one\"},{\"role\":\"assistant\",\"content\":" SAID
        "},{\"role\":\"user\",\"content\":\"two\"}]");
    /* As a stream. */
    char body[256];
    snprintf(body, sizeof body,
             "{\"input\":\"three\",\"instructions\":\"new\",\"stream\":true,"
             "\"previous_response_id\":\"%s\"}",
             str_at(second, "id"));
    struct reply r = client_post(PATH, body);
    expect_messages(
        "[{\"role\":\"system\",\"content\":\"new\"},"
        "{\"role\":\"user\",\"content\":\"one\"},{\"role\":\"assistant\",\"content\":" SAID
        "},{\"role\":\"user\",\"content\":\"two\"},{\"role\":\"assistant\","
        "\"content\":" SAID "},{\"role\":\"user\",\"content\":\"three\"}]");
    /* What a stream ends with is kept as well. */
    const char *p = strstr(r.body, "\"type\":\"response.completed\"");
    assert_non_null(p);
    p = strstr(p, "\"response\":") + strlen("\"response\":");
    json_t *third = json_loadb(p, strlen(p), JSON_DISABLE_EOF_CHECK, NULL);
    assert_non_null(third);
    assert_true(json_is_true(at(third, "store")));
    reply_free(&r);
    r = path_with("GET", str_at(third, "id"), "", "");
    json_t *again = parse(&r);
    assert_true(json_equal(third, again));
    reply_free(&r);
    json_decref(again);

    r = client_get("/metrics");
    assert_non_null(strstr(r.body, "\nsluice_stored_responses 3\n"));
    reply_free(&r);
    /* Errors name the request's own items. */
    snprintf(body, sizeof body,
             "{\"input\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"robot\"}],"
             "\"previous_response_id\":\"%s\"}",
             str_at(second, "id"));
    expect_error(client_post(PATH, body), 400, BAD, "input[1].role", "'input[1].role' must be");
    /* Two branches from one response. */
    json_decref(ask("{\"input\":\"other\",\"previous_response_id\":\"%s\"}", str_at(first, "id")));
    expect_messages(
        "[{\"role\":\"user\",\"content\":\"one\"},{\"role\":\"assistant\",\"content\":" SAID
        "},{\"role\":\"user\",\"content\":\"other\"}]");
    json_decref(first);
    json_decref(second);
    json_decref(third);
}

static void test_retrieval(void **state) {
    (void)state;
    json_t *first = ask("%s", q1);
    json_t *second =
        ask("{\"input\":\"two\",\"previous_response_id\":\"%s\"}", str_at(first, "id"));
    struct reply r = path_with("GET", str_at(first, "id"), "", "");
    json_t *v = parse(&r);
    assert_int_equal(r.status, 200);
    assert_true(json_equal(v, first));
    json_decref(v);
    reply_free(&r);
    r = path_with("GET", str_at(second, "id"), "/input_items?order=asc", "");
    v = parse(&r);
    assert_int_equal(json_array_size(at(v, "data")), 3);
    assert_string_equal(str_at(v, "data.0.content.0.text"), "one");
    assert_string_equal(str_at(v, "data.1.role"), "assistant");
    assert_string_equal(str_at(v, "data.2.content.0.text"), "two");
    assert_string_equal(str_at(v, "first_id"), str_at(v, "data.0.id"));
    assert_string_equal(str_at(v, "last_id"), str_at(v, "data.2.id"));
    json_decref(v);
    reply_free(&r);
    r = path_with("GET", str_at(second, "id"), "/input_items", "");
    v = parse(&r);
    assert_string_equal(str_at(v, "data.0.content.0.text"), "two");
    assert_true(json_is_false(at(v, "has_more")));
    json_decref(v);
    reply_free(&r);

    r = path_with("DELETE", str_at(first, "id"), "", "");
    v = parse(&r);
    assert_true(json_is_true(at(v, "deleted")));
    json_decref(v);
    reply_free(&r);
    expect_error(path_with("GET", str_at(first, "id"), "", ""), 404, "not_found_error", NULL,
                 "no response");
    expect_error(path_with("DELETE", str_at(first, "id"), "", ""), 404, "not_found_error", NULL,
                 "no response");
    /* What went on from it has lost its beginning, and says so. */
    char body[256];
    snprintf(body, sizeof body, "{\"input\":\"x\",\"previous_response_id\":\"%s\"}",
             str_at(second, "id"));
    r = client_post(PATH, body);
    assert_non_null(strstr(r.body, "\"code\":\"previous_response_not_found\""));
    expect_error(r, 400, BAD, "previous_response_id", str_at(first, "id"));
    expect_error(path_with("GET", "x", "/y", ""), 404, "not_found_error", NULL, "no endpoint");
    r = path_with("POST", str_at(second, "id"), "", "");
    assert_non_null(strstr(r.head, "Allow: GET, HEAD, DELETE, OPTIONS"));
    expect_error(r, 405, BAD, NULL, "not allowed");
    json_decref(first);
    json_decref(second);
}

static void test_not_kept(void **state) {
    (void)state;
    json_t *v = ask("{\"input\":\"one\",\"store\":false}");
    assert_true(json_is_false(at(v, "store")));
    expect_error(path_with("GET", str_at(v, "id"), "", ""), 404, "not_found_error", NULL,
                 "not stored");
    json_decref(v);
    /* An input that leaves no room for its answer. */
    char *body = calloc(1, 40000);
    strcpy(body, "{\"max_output_tokens\":1,\"input\":[");
    for (int i = 0; i < 500; i++) /* skipped, but kept with the others */
        strcat(body, "{\"type\":\"web_search_call\",\"id\":\"0123456789012345678901234567890\"},");
    strcat(body, "{\"role\":\"user\",\"content\":\"x\"}]}");
    struct reply r = client_post(PATH, body);
    v = parse(&r);
    assert_int_equal(r.status, 200);
    assert_true(json_is_false(at(v, "store")));
    json_decref(v);
    reply_free(&r);
    free(body);
}

static void test_without_store(void **state) {
    (void)state;
    sl_server_destroy(&server);
    config.response_store_bytes = SL_NO_RESPONSE_STORE;
    start_empty();
    attach_template(json_template);
    json_t *v = ask("{\"input\":\"one\",\"store\":true}");
    assert_true(json_is_false(at(v, "store")));
    expect_error(path_with("GET", str_at(v, "id"), "", ""), 404, "not_found_error", NULL,
                 "--response-store");
    json_decref(v);
    expect_error(client_post(PATH, "{\"input\":\"x\",\"previous_response_id\":\"resp_1\"}"), 400,
                 BAD, "previous_response_id", "--response-store");
    expect_error(client_post(PATH, "{\"input\":\"x\",\"previous_response_id\":7}"), 400, BAD,
                 "previous_response_id", "a string");
}

static void test_references(void **state) {
    (void)state;
    json_t *v = ask("%s", q1);
    const char *item = str_at(v, "output.0.id");
    json_decref(ask("{\"input\":[{\"role\":\"user\",\"content\":\"a\"},{\"type\":"
                    "\"item_reference\",\"id\":\"%s\"},{\"role\":\"user\",\"content\":\"b\"}]}",
                    item));
    expect_messages(
        "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":" SAID
        "},{\"role\":\"user\",\"content\":\"b\"}]");
    static const char *const wrong[] = {"x", "msg_", "msg_000000000000000000000000",
                                        "msg_00000000000000000000000000", ""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char body[256];
        snprintf(body, sizeof body, "{\"input\":[{\"type\":\"item_reference\",\"id\":\"%s\"}]}",
                 wrong[i]);
        expect_error(client_post(PATH, body), 400, BAD, "input[0]", "not stored");
    }
    /* The right place of the right response, under another kind's name. */
    char body[256];
    snprintf(body, sizeof body, "{\"input\":[{\"type\":\"item_reference\",\"id\":\"fc%s\"}]}",
             strchr(item, '_'));
    expect_error(client_post(PATH, body), 400, BAD, "input[0]", "not stored");
    json_decref(v);
}

static void test_owners(void **state) {
    (void)state;
    static const char *const keys[] = {"one", "two"};
    static const char h1[] = "Authorization: Bearer one\r\n", h2[] = "x-api-key: two\r\n";
    sl_server_destroy(&server);
    config.api_keys = keys;
    config.n_api_keys = 2;
    start_empty();
    attach_template(json_template);
    json_t *v = ask_with(h1, "%s", q1);
    const char *id = str_at(v, "id");
    expect_error(path_with("GET", id, "", ""), 401, "authentication_error", NULL, "API key");
    expect_error(path_with("GET", id, "", h2), 404, "not_found_error", NULL, "no response");
    expect_error(path_with("DELETE", id, "", h2), 404, "not_found_error", NULL, "no response");
    char body[256];
    snprintf(body, sizeof body, "{\"input\":\"x\",\"previous_response_id\":\"%s\"}", id);
    expect_error(client_request("POST", PATH, h2, body), 400, BAD, "previous_response_id",
                 "no response");
    snprintf(body, sizeof body, "{\"input\":[{\"type\":\"item_reference\",\"id\":\"%s\"}]}",
             str_at(v, "output.0.id"));
    expect_error(client_request("POST", PATH, h2, body), 400, BAD, "input[0]", "not stored");
    struct reply r = path_with("GET", id, "", "x-api-key: one\r\n");
    assert_int_equal(r.status, 200);
    reply_free(&r);
    json_decref(v);
}

/* Of a message's text, as a whole and in the events of a stream. */
static void test_logprobs(void **state) {
    (void)state;
    json_t *v = ask("{\"input\":\"x\",\"top_logprobs\":2}");
    json_t *all = json_incref(at(v, "output.0.content.0.logprobs"));
    assert_int_equal(json_array_size(all), 8); /* bytes; not the end */
    assert_string_equal(str_at(v, "output.0.content.0.logprobs.0.token"), "H");
    assert_int_equal(json_array_size(at(v, "output.0.content.0.logprobs.7.top_logprobs")), 2);
    json_decref(v);
    v = ask("{\"input\":\"x\",\"include\":[\"message.output_text.logprobs\"]}");
    assert_int_equal(json_array_size(at(v, "output.0.content.0.logprobs")), 8);
    assert_int_equal(json_array_size(at(v, "output.0.content.0.logprobs.0.top_logprobs")), 0);
    json_decref(v);
    v = ask("{\"input\":\"x\"}");
    assert_int_equal(json_array_size(at(v, "output.0.content.0.logprobs")), 0);
    json_decref(v);

    struct reply r = client_post(PATH, "{\"input\":\"x\",\"top_logprobs\":2,\"stream\":true}");
    json_t *deltas = json_array();
    uint32_t n_whole = 0;
    for (const char *p = r.body; (p = strstr(p, "data: ")) != NULL; p++) {
        v = json_loadb(p + 6, strlen(p + 6), JSON_DISABLE_EOF_CHECK, NULL);
        assert_non_null(v);
        const char *type = str_at(v, "type");
        if (strcmp(type, "response.output_text.delta") == 0) {
            assert_int_equal(json_array_extend(deltas, at(v, "logprobs")), 0);
        } else {
            static const char *const places[][2] = {
                {"response.output_text.done", "logprobs"},
                {"response.content_part.done", "part.logprobs"},
                {"response.output_item.done", "item.content.0.logprobs"},
                {"response.completed", "response.output.0.content.0.logprobs"},
            };
            for (size_t i = 0; i < 4; i++)
                if (strcmp(type, places[i][0]) == 0)
                    n_whole += (uint32_t)json_equal(at(v, places[i][1]), all);
        }
        json_decref(v);
    }
    assert_true(json_equal(deltas, all));
    assert_int_equal(n_whole, 4);
    json_decref(deltas);
    json_decref(all);
    reply_free(&r);
}

/* Those of tokens that became reasoning are not the message's. */
static void test_logprobs_of_content(void **state) {
    (void)state;
    static const char said[] = "<think>ab</think>cd";
    static uint32_t script[sizeof said];
    for (size_t i = 0; said[i]; i++)
        script[i] = (unsigned char)said[i];
    script[sizeof said - 1] = FAKE_EOS;
    sl_server_destroy(&server);
    start_empty();
    attach_template("{# <tool_call> </think> #}{{ messages[0].content }}");
    set_script(script, sizeof said, 0, 0);
    json_t *v = ask("{\"input\":\"x\",\"top_logprobs\":1}");
    assert_string_equal(str_at(v, "output.0.type"), "reasoning");
    json_t *all = at(v, "output.1.content.0.logprobs");
    char text[64] = "";
    for (size_t i = 0; i < json_array_size(all); i++)
        strcat(text, str_at(json_array_get(all, i), "token"));
    size_t n = strlen(text);
    assert_true(n >= 2 && strcmp(text + n - 2, "cd") == 0);
    assert_null(strstr(text, "ab"));
    json_decref(v);
}

static void test_counts(void **state) {
    (void)state;
    struct reply r = client_post(PATH "/input_tokens", "{\"input\":\"one\"}");
    json_t *v = parse(&r);
    assert_string_equal(str_at(v, "object"), "response.input_tokens");
    json_int_t alone = int_at(v, "input_tokens");
    json_decref(v);
    reply_free(&r);
    json_t *first = ask("{\"input\":\"one\"}");
    assert_int_equal(int_at(first, "usage.input_tokens"), alone);
    char body[256];
    snprintf(body, sizeof body, "{\"input\":\"two\",\"previous_response_id\":\"%s\"}",
             str_at(first, "id"));
    r = client_post("/responses/input_tokens", body);
    v = parse(&r);
    json_t *second = ask("%s", body);
    assert_int_equal(int_at(second, "usage.input_tokens"), int_at(v, "input_tokens"));
    assert_true(int_at(v, "input_tokens") > alone);
    json_decref(first);
    json_decref(second);
    json_decref(v);
    reply_free(&r);
    r = client_post(CHAT "/input_tokens", "{" MESSAGES "}");
    v = parse(&r);
    assert_true(int_at(v, "input_tokens") > 0);
    json_decref(v);
    reply_free(&r);
    expect_error(client_post(PATH "/input_tokens", "{}"), 400, BAD, "input", "absent");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        STORED(test_goes_on),       STORED(test_retrieval),           STORED(test_not_kept),
        STORED(test_without_store), STORED(test_references),          STORED(test_owners),
        STORED(test_logprobs),      STORED(test_logprobs_of_content), STORED(test_counts),
    };
    return cmocka_run_group_tests_name("responses_stored", tests, NULL, NULL);
}
