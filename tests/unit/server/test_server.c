/* The whole server over sockets: how it starts and ends, errors, HTTP, what is bounded. */
#include "harness.h"

/* --------------------------------------------------------------------------------------- life */

static void test_life(void **state) {
    (void)state;
    start_empty();
    sl_server_progress(server, 25, 100);
    struct reply r = client_get("/health");
    assert_int_equal(r.status, 503);
    json_t *v = parse(&r);
    assert_string_equal(str_at(v, "status"), "loading model");
    assert_true(json_number_value(at(v, "progress")) == 0.25);
    json_decref(v);
    reply_free(&r);
    expect_error(client_post(CHAT, "{}"), 503, "unavailable_error", NULL, "still loading");
    r = client_get("/metrics");
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.body, "# TYPE sluice_http_requests_total counter"));
    reply_free(&r);

    struct sl_server *second = NULL;
    struct sl_err err = {""};
    struct sl_server_config busy = config;
    busy.port = client_port;
    assert_int_equal(sl_server_create(&busy, &second, &err), SL_ERR_CONFIG);
    assert_non_null(strstr(err.text, "in use"));

    attach();
    r = client_get("/v1/health");
    assert_int_equal(r.status, 200);
    reply_free(&r);

    r = client_get("/metrics");
    assert_non_null(strstr(r.body, "\nsluice_failed 0\n"));
    reply_free(&r);
    atomic_store(&engine->failed, true);
    r = client_get("/metrics");
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.body, "\nsluice_failed 1\n"));
    reply_free(&r);
    r = client_get("/health");
    assert_int_equal(r.status, 503);
    v = parse(&r);
    assert_string_equal(str_at(v, "status"), "error");
    assert_non_null(strstr(str_at(v, "error"), "was changed while in use"));
    json_decref(v);
    reply_free(&r);
}

static void test_load_failure(void **state) {
    (void)state;
    start_empty();
    struct sl_err err;
    sl_fail(&err, SL_ERR_CORRUPT, "tensor \"x\" is cut");
    sl_server_fail(server, &err);
    struct reply r = client_get("/health");
    assert_int_equal(r.status, 503);
    json_t *v = parse(&r);
    assert_string_equal(str_at(v, "error"), "tensor \"x\" is cut");
    json_decref(v);
    reply_free(&r);
    expect_error(client_post(COMP, "{}"), 503, "unavailable_error", NULL, "tensor \"x\" is cut");
}

/* ------------------------------------------------------------------------------------- errors */

static void test_bad_requests(void **state) {
    (void)state;
    set_script(hello, 9, 0, 0);
    expect_error(client_get("/nothing"), 404, "not_found_error", NULL, "/nothing");
    struct reply r = client_get(CHAT);
    assert_non_null(strstr(r.head, "Allow: POST, OPTIONS"));
    expect_error(r, 405, BAD, NULL, "use POST");
    expect_error(client_post("/health", "{}"), 405, BAD, NULL, "use GET");
    expect_error(client_post(CHAT, ""), 400, BAD, NULL, "no body");
    expect_error(client_post(CHAT, "{\"messages\":"), 400, BAD, NULL, "not valid JSON");
    expect_error(client_post(CHAT, "[]"), 400, BAD, NULL, "JSON object");
    expect_error(client_post(CHAT, "{}"), 400, BAD, "messages", "'messages' must be an array");
    expect_error(client_post(CHAT, "{\"messages\":[]}"), 400, BAD, "messages", "at least one");
    expect_error(client_post(CHAT, "{\"messages\":[5]}"), 400, BAD, "messages[0]", "an object");
    expect_error(client_post(CHAT, "{\"messages\":[{\"role\":\"boss\",\"content\":\"x\"}]}"), 400,
                 BAD, "messages[0].role", "one of system");
    expect_error(client_post(CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":5}]}"), 400, BAD,
                 "messages[0].content", "a string or an array");
    expect_error(client_post(CHAT, "{\"messages\":[{\"role\":\"user\"}]}"), 400, BAD,
                 "messages[0].content", "absent");
    expect_error(client_post(CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":"
                                   "\"image_url\",\"image_url\":{\"url\":\"x\"}}]}]}"),
                 400, BAD, "messages[0].content[0]", "text only");
    expect_error(client_post(CHAT, "{\"model\":\"gpt-5\"," MESSAGES "}"), 404, "not_found_error",
                 "model", "this server has 'test-model'");
    expect_error(client_post(CHAT, "{\"temperature\":\"hot\"," MESSAGES "}"), 400, BAD,
                 "temperature", "not a string");
    expect_error(client_post(CHAT, "{\"response_format\":{\"type\":\"xml\"}," MESSAGES "}"), 400,
                 BAD, "response_format", "json_schema");
    expect_error(client_post(CHAT, "{\"grammar\":\"root ::= x\"," MESSAGES "}"), 400, BAD,
                 "grammar", "'x' is used and not defined");
    expect_error(client_post(CHAT, "{\"tools\":[{}]," MESSAGES "}"), 400, BAD, "tools[0]",
                 "function");
    expect_error(client_post(CHAT, "{\"tool_choice\":\"required\"," MESSAGES "}"), 400, BAD,
                 "tool_choice", "there are no 'tools'");
    expect_error(client_post(COMP, "{}"), 400, BAD, "prompt", "missing");
    expect_error(client_post(COMP, "{\"prompt\":[]}"), 400, BAD, "prompt", "empty");
    expect_error(client_post(COMP, "{\"prompt\":\"\"}"), 400, BAD, "prompt", "no token");
    expect_error(client_post(COMP, "{\"prompt\":[1,\"a\"]}"), 400, BAD, "prompt", "token id");
    expect_error(client_post(COMP, "{\"prompt\":\"a\",\"suffix\":\"b\"}"), 400, BAD, "suffix",
                 "not supported");
    expect_error(client_post(COMP, "{\"prompt\":[\"a\",\"b\"],\"n\":65}"), 400, BAD, "n",
                 "more than 128");

    char *big = malloc(6000000);
    memset(big, 'a', 6000000);
    memcpy(big, "{\"prompt\":\"", 11);
    strcpy(big + 5000, "\"}");
    expect_error(client_post(COMP, big), 400, BAD, "prompt", "the context 4096");
    big[5000] = big[5001] = 'a';
    big[5002] = 'a';
    strcpy(big + 900000, "\"}");
    expect_error(client_post(COMP, big), 400, BAD, "prompt", "cannot hold more than");
    big[900000] = big[900001] = big[900002] = 'a';
    strcpy(big + 3000000, "\"}"); /* over the limit, read to its end */
    expect_error(client_post(COMP, big), 413, BAD, NULL, "--max-body-mib");
    free(big);
    assert_int_equal(engine->n_submitted, 0);
}

static void test_engine_errors(void **state) {
    (void)state;
    set_script(hello, 8, 0, 0);
    pthread_mutex_lock(&engine->lock);
    engine->fail_at = 3;
    pthread_mutex_unlock(&engine->lock);
    expect_error(client_post(COMP, "{\"prompt\":\"x\"}"), 500, "server_error", NULL,
                 "told to fail");
    struct reply r = client_post(COMP, "{\"prompt\":\"x\",\"stream\":true}");
    assert_int_equal(r.status, 200);
    int n;
    bool done;
    char *text = join_stream(&r, &n, &done);
    assert_string_equal(text, "Hel");
    assert_false(done);
    assert_non_null(strstr(r.body, "data: {\"error\":{\"message\":\"the fake engine"));
    free(text);
    reply_free(&r);

    set_script(hello, 8, 100000, 1000);
    pthread_mutex_lock(&engine->lock);
    engine->queue_max = 2;
    pthread_mutex_unlock(&engine->lock);
    r = client_post(COMP, "{\"prompt\":\"x\",\"n\":3}");
    assert_non_null(strstr(r.head, "Retry-After: 1"));
    expect_error(r, 429, "rate_limit_error", NULL, "queue");
    assert_true(wait_for(&engine->n_canceled, 2, 30000)); /* the two that were taken */
}

static void test_api_key(void **state) {
    (void)state;
    static const char *const keys[] = {"first", "second-key"};
    sl_server_destroy(&server);
    config.api_keys = keys;
    config.n_api_keys = 2;
    start_empty();
    attach();
    struct reply r = client_get("/health");
    assert_int_equal(r.status, 200);
    reply_free(&r);
    expect_error(client_get("/v1/models"), 401, "authentication_error", NULL, "API key");
    static const char *const wrong[] = {"first ", "firs", "", "second", "second-kez"};
    for (size_t i = 0; i < 5; i++) {
        char h[64];
        sprintf(h, "Authorization: Bearer %s\r\n", wrong[i]);
        /* Spaces around a header's value are not part of it. */
        int want = i == 0 ? 200 : 401;
        r = client_request("GET", "/v1/models", h, NULL);
        assert_int_equal(r.status, want);
        reply_free(&r);
    }
    r = client_request("GET", "/v1/models", "Authorization: bearer second-key\r\n", NULL);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    r = client_request("GET", "/v1/models", "X-Api-Key: first\r\n", NULL);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    expect_error(client_request("POST", CHAT, "", "{}"), 401, "authentication_error", NULL, "key");
    /* Keys are compared without the white space around them, wherever a client puts it. */
    r = client_request("GET", "/v1/models", "Authorization: Bearer  \tfirst\t \r\n", NULL);
    assert_int_equal(r.status, 200);
    reply_free(&r);
}

/* Whatever a request has encoded ends with its client or its time. */
static void test_encodings_are_watched(void **state) {
    (void)state;
    static const char *const asks[][2] = {
        {"/v1/chat/completions", "{\"model\":\"test-model\",\"messages\":[{\"role\":\"user\","
                                 "\"content\":\"a\"}],\"max_tokens\":1}"},
        {"/v1/messages", "{\"model\":\"test-model\",\"messages\":[{\"role\":\"user\",\"content\":"
                         "\"a\"}],\"max_tokens\":1}"},
        {"/v1/responses", "{\"input\":\"a\",\"max_output_tokens\":16}"},
        {"/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":1}"},
        {"/tokenize", "{\"content\":\"a\"}"}};
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
        uint32_t before = atomic_load(&fake_n_watched);
        struct reply r = client_post(asks[i][0], asks[i][1]);
        if (r.status != 200 || atomic_load(&fake_n_watched) == before)
            fail_msg("%s: %d %s", asks[i][0], r.status, r.body);
        reply_free(&r);
    }
}

/* Why it failed names files and devices: for those who have a key. */
static void test_failure_is_no_public_text(void **state) {
    (void)state;
    static const char *const keys[] = {"secret"};
    static const char *const paths[] = {"/health", "/v1/health"};
    config.api_keys = keys;
    config.n_api_keys = 1;
    start_empty();
    struct sl_err err;
    sl_fail(&err, SL_ERR_CORRUPT, "/srv/models/own.gguf: tensor \"x\" is cut");
    sl_server_fail(server, &err);
    for (int i = 0; i < 2; i++) {
        struct reply r = client_get(paths[i]);
        assert_int_equal(r.status, 503);
        assert_non_null(strstr(r.body, "\"status\":\"error\""));
        assert_null(strstr(r.body, "own.gguf"));
        assert_null(strstr(r.body, "tensor"));
        assert_null(strstr(r.head, "own.gguf"));
        reply_free(&r);
        r = client_request("GET", paths[i], "Authorization: Bearer wrong\r\n", NULL);
        assert_null(strstr(r.body, "own.gguf"));
        reply_free(&r);
        r = client_request("GET", paths[i], "Authorization: Bearer secret\r\n", NULL);
        assert_int_equal(r.status, 503);
        assert_non_null(strstr(r.body, "own.gguf"));
        reply_free(&r);
    }
    /* Nor does anything else that is asked without a key say it. */
    static const char *const others[] = {"/", "/metrics", "/props", "/v1/models", "/nowhere"};
    for (int i = 0; i < 5; i++) {
        struct reply r = client_get(others[i]);
        assert_null(strstr(r.body, "own.gguf"));
        reply_free(&r);
    }
    struct reply r = client_post(COMP, "{}");
    assert_int_equal(r.status, 401);
    assert_null(strstr(r.body, "own.gguf"));
    reply_free(&r);
}

/* --------------------------------------------------------------------------------------- HTTP */

static void test_http(void **state) {
    (void)state;
    set_script(hello, 9, 0, 0);
    struct reply r = client_request("HEAD", "/health", "", NULL);
    assert_int_equal(r.status, 200);
    assert_int_equal(r.body_len, 0);
    reply_free(&r);
    r = client_request("OPTIONS", CHAT, "", NULL);
    assert_int_equal(r.status, 204);
    assert_non_null(strstr(r.head, "Allow: POST, OPTIONS"));
    reply_free(&r);

    static const char chunked[] =
        "POST " COMP " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
        "5\r\n{\"pro\r\nb\r\nmpt\":\"abc\"}\r\n0\r\n\r\n";
    r = client_raw(chunked, sizeof chunked - 1);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.body, "\"text\":\"Hello "));
    reply_free(&r);

    static const char old[] = "POST " COMP " HTTP/1.0\r\nContent-Length: 30\r\n\r\n"
                              "{\"prompt\":\"abc\",\"stream\":true}";
    r = client_raw(old, sizeof old - 1);
    assert_int_equal(r.status, 200);
    assert_null(strstr(r.head, "chunked")); /* HTTP/1.0 does not know it */
    assert_non_null(strstr(r.body, "data: [DONE]\n\n"));
    reply_free(&r);

    /* Three at once on one connection: answered in order. */
    static const char piped[] =
        "POST " COMP
        " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16\r\n\r\n{\"prompt\":\"abc\"}"
        "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        "POST " COMP
        " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 16\r\n\r\n"
        "{\"prompt\":\"abc\"}";
    int fd = client_connect(0);
    client_send(fd, piped, sizeof piped - 1);
    size_t n;
    char *all = client_read_all(fd, &n);
    close(fd);
    char *first = strstr(all, "text_completion"), *second = strstr(all, "\"status\":\"ok\"");
    assert_true(first && second && first < second && strstr(second, "text_completion"));
    free(all);

    /* A flood of headers is refused, and nobody else notices. */
    char *flood = malloc(300000);
    size_t len = (size_t)sprintf(flood, "GET /health HTTP/1.1\r\nHost: localhost\r\n");
    while (len < 290000)
        len += (size_t)sprintf(flood + len, "X-Header-%zu: aaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n", len);
    r = client_raw(flood, len);
    assert_true(r.status == 431 || r.status == 413 || r.status == 0);
    reply_free(&r);
    free(flood);
    r = client_raw("\x16\x03\x01\x02 garbage\r\n\r\n", 16);
    assert_true(r.status == 400 || r.status == 0);
    reply_free(&r);
    r = client_get("/health");
    assert_int_equal(r.status, 200);
    reply_free(&r);
}

static void test_slow_upload(void **state) {
    (void)state;
    sl_server_destroy(&server);
    config.timeout_s = 1;
    start_empty();
    attach();
    int fd = client_connect(0);
    static const char head[] =
        "POST " COMP " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{";
    client_send(fd, head, sizeof head - 1);
    int n = 0; /* a byte now and then keeps an idle time-out away, not the slow one */
    for (; n < 300 && send(fd, " ", 1, MSG_NOSIGNAL) == 1; n++)
        usleep(200000);
    assert_in_range(n, 1, 299);
    close(fd);
}

/* Uploads that were fast at first and then trickle do not keep others out for long. */
static void test_trickling_uploads(void **state) {
    (void)state;
    sl_server_destroy(&server);
    config.timeout_s = 1;
    config.max_body_bytes = 1 << 16;
    start_empty();
    attach();
    set_script(hello, 9, 0, 0);
    enum { N = 5, FIRST = (1 << 16) - 4096 };
    char *spaces = malloc(FIRST);
    memset(spaces, ' ', FIRST);
    int fd[N];
    for (int i = 0; i < N; i++) {
        static const char head[] =
            "POST " COMP " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 65000\r\n\r\n";
        fd[i] = client_connect(0);
        client_send(fd[i], head, sizeof head - 1);
        client_send(fd[i], spaces, i < 4 ? FIRST : 16384 - 100);
    }
    /* 4 * 61440 + 16284 of 262144 bytes are taken, and a request of 200 does not fit. */
    char body[256];
    memset(body, ' ', sizeof body);
    memcpy(body, "{\"prompt\":\"abc\"", 15);
    memcpy(body + 200, "}", 2); /* and the end of the string */
    bool refused = false, served = false;
    while (atomic_load(&server->bodies_bytes) < 4 * FIRST + 16284)
        usleep(10000); /* a request must not overtake them */
    /* Few bytes each, so that the fifth does not run into the limit itself. */
    for (int k = 0; !served && k < 300; k++) {
        struct reply r = client_post(COMP, body);
        refused = refused || r.status == 503;
        served = refused && r.status == 200;
        reply_free(&r);
        usleep(200000);
        for (int i = 0; i < N && k % 3 == 0; i++)
            (void)!send(fd[i], " ", 1, MSG_NOSIGNAL);
    }
    assert_true(refused);
    assert_true(served);
    for (int i = 0; i < N; i++)
        close(fd[i]);
    free(spaces);
}

/* An answer is larger than its request: those that nobody reads are bounded together. */
static void test_unread_answers(void **state) {
    (void)state;
    sl_server_destroy(&server);
    config.max_body_bytes = 16 << 20;
    config.max_replies_bytes = 5 << 20;
    start_empty();
    attach();
    size_t n = (8u << 20) + 1, head = 12;
    char *body = malloc(n + 64);
    memcpy(body, "{\"content\":\"", head + 1);
    memset(body + head, 'a', n);
    memcpy(body + head + n, "\"}", 3);
    expect_error(client_post("/tokenize", body), 413, "invalid_request_error", "content", "parts");

    n = 80000;
    memset(body + head, 'a', n);
    memcpy(body + head + n, "\",\"with_pieces\":true}", 22);
    int fd[3];
    for (int i = 0; i < 3; i++) { /* about 2 MB each: more than sockets hold */
        fd[i] = client_connect(4096);
        client_begin_on(fd[i], "POST", "/tokenize", "", body);
    }
    int status[3], n_refused = 0;
    for (int i = 0; i < 3; i++) {
        char line[16] = "";
        assert_int_equal(recv(fd[i], line, 12, MSG_WAITALL), 12);
        status[i] = atoi(line + 9);
        assert_true(status[i] == 200 || status[i] == 503);
        n_refused += status[i] == 503;
    }
    assert_int_equal(n_refused, 1);
    struct reply r = client_post("/tokenize", "{\"content\":\"abc\"}");
    assert_int_equal(r.status, 200);
    reply_free(&r);
    for (int i = 0; i < 3; i++)
        close(fd[i]);
    free(body);
}

/* Grammars are held with their automata from the request's arrival on: so are they counted. */
static void test_counts_grammars(void **state) {
    (void)state;
    static const char body[] =
        "{\"prompt\":\"x\",\"max_tokens\":10,\"grammar\":\"root ::= [a-z]*\"}";
    sl_server_destroy(&server);
    config.max_replies_bytes = 14 << 20; /* for two of some 5 MiB */
    start_empty();
    attach();
    set_script(hello, 8, 10000, 5000);
    uint32_t submitted = engine->n_submitted;
    int fd[2];
    for (uint32_t i = 0; i < 2; i++) {
        fd[i] = client_begin(COMP, body);
        assert_true(wait_for(&engine->n_submitted, submitted + 1 + i, 30000));
    }
    expect_error(client_post(COMP, body), 503, "unavailable_error", NULL, "grammar");
    for (uint32_t i = 0; i < 2; i++)
        close(fd[i]);
}

static void test_drain(void **state) {
    (void)state;
    set_script(hello, 9, 30, 10000);
    int stream = client_begin(CHAT, "{\"stream\":true," MESSAGES "}");
    int whole = client_begin(CHAT, "{" MESSAGES "}");
    int kept = client_connect(0); /* open before, asks after */
    static const char health[] = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    char byte[400];
    client_send(kept, health, sizeof health - 1);
    assert_true(recv(kept, byte, sizeof byte, 0) > 0);
    assert_true(wait_for(&engine->n_submitted, 2, 30000));
    sl_server_drain(server);
    assert_int_equal(client_connect(0), -1); /* the port is closed */
    client_begin_on(kept, "POST", CHAT, "", "{" MESSAGES "}");
    expect_error(client_end(kept), 503, "unavailable_error", NULL, "shutting down");
    struct reply r = client_end(stream);
    assert_non_null(strstr(r.body, "data: [DONE]"));
    reply_free(&r);
    r = client_end(whole);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    assert_int_equal(engine->n_canceled, 0);
}

static void test_destroy_cancels(void **state) {
    (void)state;
    set_script(hello, 8, 100000, 5000);
    int stream = client_begin(CHAT, "{\"stream\":true," MESSAGES "}");
    int whole = client_begin(CHAT, "{" MESSAGES "}");
    assert_true(wait_for(&engine->n_submitted, 2, 30000));
    sl_server_destroy(&server);
    struct reply r = client_end(stream);
    assert_non_null(strstr(r.body, "data: {\"error\""));
    reply_free(&r);
    expect_error(client_end(whole), 503, "unavailable_error", NULL, "shutting down");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_life, setup, teardown),
        cmocka_unit_test_setup_teardown(test_load_failure, setup, teardown),
        READY(test_bad_requests),
        READY(test_engine_errors),
        READY(test_api_key),
        cmocka_unit_test_setup_teardown(test_failure_is_no_public_text, setup, teardown),
        READY(test_encodings_are_watched),
        READY(test_http),
        READY(test_slow_upload),
        READY(test_trickling_uploads),
        READY(test_unread_answers),
        READY(test_counts_grammars),
        READY(test_drain),
        READY(test_destroy_cancels),
    };
    return cmocka_run_group_tests_name("server", tests, NULL, NULL);
}
