/* /v1/embeddings and Ollama's two over sockets: pooling, forms, batches, what is refused. The fake
 * engine's hidden state of token t is {t, 1, -2, 0, 0.5}. */
#include "harness.h"

#include <math.h>

#define EMBED "/v1/embeddings"

static void expect_vector(json_t *v, double first, double scale) {
    const double row[FAKE_EMBD] = {first, scale, -2 * scale, 0, 0.5 * scale};
    double squares = 0;
    assert_int_equal(json_array_size(v), FAKE_EMBD);
    for (uint32_t i = 0; i < FAKE_EMBD; i++)
        squares += row[i] * row[i];
    for (uint32_t i = 0; i < FAKE_EMBD; i++) {
        double got = json_number_value(json_array_get(v, i)), want = row[i] / sqrt(squares);
        if (fabs(got - want) > 1e-6)
            fail_msg("number %u is %g, not %g", i, got, want);
    }
}

static void one_text(void **state) {
    (void)state;
    struct reply r =
        client_post(EMBED, "{\"model\":\"test-model\",\"input\":\"ab\",\"user\":\"u\"}");
    json_t *v = parse(&r);
    assert_int_equal(r.status, 200);
    assert_string_equal(str_at(v, "object"), "list");
    assert_string_equal(str_at(v, "model"), "test-model");
    assert_string_equal(str_at(v, "data.0.object"), "embedding");
    assert_int_equal(int_at(v, "data.0.index"), 0);
    assert_int_equal(int_at(v, "usage.prompt_tokens"), 2);
    assert_int_equal(int_at(v, "usage.total_tokens"), 2);
    expect_vector(at(v, "data.0.embedding"), 'a' + 'b', 2);
    assert_true(engine->last.prompt_only && engine->last.hidden);
    json_decref(v);
    reply_free(&r);
    r = client_post("/embeddings", "{\"input\":\"ab\",\"pooling\":\"last\",\"dimensions\":5}");
    v = parse(&r);
    expect_vector(at(v, "data.0.embedding"), 'b', 1);
    json_decref(v);
    reply_free(&r);
}

/* The file's own pooling holds where a request does not say another. */
static void the_models_pooling(void **state) {
    (void)state;
    server->served->pools_last = true;
    struct reply r = client_post(EMBED, "{\"input\":[97,98]}");
    json_t *v = parse(&r);
    expect_vector(at(v, "data.0.embedding"), 'b', 1);
    json_decref(v);
    reply_free(&r);
    r = client_post(EMBED, "{\"input\":[97,98],\"pooling\":\"mean\"}");
    v = parse(&r);
    expect_vector(at(v, "data.0.embedding"), 'a' + 'b', 2);
    json_decref(v);
    reply_free(&r);
}

/* What is written like a control token is text. */
static void special_text_is_text(void **state) {
    (void)state;
    struct reply r = client_post(EMBED, "{\"input\":\"<s>\"}");
    json_t *v = parse(&r);
    assert_int_equal(int_at(v, "usage.prompt_tokens"), 3);
    json_decref(v);
    reply_free(&r);
}

/* More than run at once, in order, and never more than the engine's queue takes beside others. */
static void a_batch(void **state) {
    (void)state;
    enum { N = 300 };
    struct sl_buf body = {0};
    pthread_mutex_lock(&engine->lock);
    engine->queue_max = 8;
    pthread_mutex_unlock(&engine->lock);
    sl_buf_puts(&body, "{\"input\":[");
    for (uint32_t i = 0; i < N; i++)
        sl_buf_printf(&body, "%s[%u]", i ? "," : "", i % 250 + 1);
    sl_buf_puts(&body, "]}");
    sl_buf_put(&body, "", 1);
    struct reply r = client_post(EMBED, body.ptr);
    json_t *v = parse(&r);
    assert_int_equal(r.status, 200);
    assert_int_equal(json_array_size(at(v, "data")), N);
    assert_int_equal(int_at(v, "usage.prompt_tokens"), N);
    for (uint32_t i = 0; i < N; i++) {
        char path[32];
        snprintf(path, sizeof path, "data.%u.index", i);
        assert_int_equal(int_at(v, path), i);
        snprintf(path, sizeof path, "data.%u.embedding", i);
        expect_vector(at(v, path), i % 250 + 1, 1);
    }
    json_decref(v);
    reply_free(&r);
    sl_buf_release(&body);
}

static uint32_t digit(char c) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = strchr(digits, c);
    assert_true(c && at);
    return (uint32_t)(at - digits);
}

static void as_bytes(void **state) {
    (void)state;
    struct reply plain = client_post(EMBED, "{\"input\":\"ab\"}"),
                 r = client_post(EMBED, "{\"input\":\"ab\",\"encoding_format\":\"base64\"}");
    json_t *v = parse(&r), *numbers = parse(&plain);
    const char *text = str_at(v, "data.0.embedding");
    unsigned char bytes[32];
    size_t n = 0;
    assert_int_equal(strlen(text), 28); /* 20 bytes: the last group has two */
    assert_string_equal(text + 27, "=");
    for (size_t i = 0; i < 28; i += 4) {
        uint32_t bits = 0;
        for (size_t k = 0; k < 4; k++)
            bits = bits << 6 | (text[i + k] == '=' ? 0 : digit(text[i + k]));
        for (size_t k = 0; k < 3; k++)
            bytes[n++] = (unsigned char)(bits >> (16 - 8 * k));
    }
    for (size_t i = 0; i < FAKE_EMBD; i++) {
        char path[32];
        float x;
        memcpy(&x, bytes + 4 * i, 4);
        snprintf(path, sizeof path, "data.0.embedding.%zu", i);
        assert_true((float)json_number_value(at(numbers, path)) == x);
    }
    json_decref(v);
    json_decref(numbers);
    reply_free(&r);
    reply_free(&plain);
}

static void ollamas(void **state) {
    (void)state;
    engine->ctx_tokens = 16;
    sl_server_destroy(&server);
    start_empty();
    attach();
    struct reply r = client_post("/api/embed", "{\"model\":\"test-model:latest\",\"input\":[\"ab\","
                                               "\"c\"],\"keep_alive\":\"5m\"}");
    json_t *v = parse(&r);
    assert_string_equal(str_at(v, "model"), "test-model:latest");
    expect_vector(at(v, "embeddings.0"), 'a' + 'b', 2);
    expect_vector(at(v, "embeddings.1"), 'c', 1);
    assert_int_equal(int_at(v, "prompt_eval_count"), 3);
    assert_true(int_at(v, "total_duration") > 0);
    json_decref(v);
    reply_free(&r);
    r = client_post("/api/embeddings", "{\"model\":\"test-model\",\"prompt\":\"ab\"}");
    v = parse(&r);
    expect_vector(at(v, "embedding"), 'a' + 'b', 2);
    json_decref(v);
    reply_free(&r);
    /* Cut, unless that is not wanted. */
    r = client_post("/api/embed",
                    "{\"model\":\"test-model\",\"input\":\"aaaaaaaaaaaaaaaaaaaaaaaa\"}");
    v = parse(&r);
    assert_int_equal(int_at(v, "prompt_eval_count"), 15);
    json_decref(v);
    reply_free(&r);
    r = client_post("/api/embed",
                    "{\"model\":\"test-model\",\"input\":\"aaaaaaaaaaaaaaaaaaaaaaaa\","
                    "\"truncate\":false}");
    assert_int_equal(r.status, 400);
    assert_non_null(strstr(r.body, "{\"error\":\"the prompt has 24 tokens"));
    reply_free(&r);
    r = client_post("/api/embed", "{\"model\":\"other\",\"input\":\"a\"}");
    assert_int_equal(r.status, 404);
    reply_free(&r);
}

static void refusals(void **state) {
    (void)state;
    static const struct {
        const char *body, *param, *part;
    } cases[] = {
        {"{}", "input", "'input' is missing"},
        {"{\"input\":\"\"}", "input", "is empty"},
        {"{\"input\":[]}", "input", "empty array"},
        {"{\"input\":{}}", "input", "not an object"},
        {"{\"input\":[\"a\",\"\"]}", "input[1]", "is empty"},
        {"{\"input\":[\"a\",5]}", "input[1]", "not a number"},
        {"{\"input\":[1,\"a\"]}", "input", "must be a token id"},
        {"{\"input\":[100000]}", "input", "token ids of this model"},
        {"{\"input\":\"a\",\"encoding_format\":\"int8\"}", "encoding_format",
         "'float' or 'base64'"},
        {"{\"input\":\"a\",\"pooling\":\"cls\"}", "pooling", "'mean' or 'last'"},
        {"{\"input\":\"a\",\"dimensions\":4}", "dimensions", "must be 5"},
        {"{\"input\":\"a\",\"user\":5}", "user", "'user'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_error(client_post(EMBED, cases[i].body), 400, BAD, cases[i].param, cases[i].part);
    struct sl_buf body = {0};
    sl_buf_puts(&body, "{\"input\":[");
    for (uint32_t i = 0; i < 2049; i++)
        sl_buf_puts(&body, i ? ",\"a\"" : "\"a\"");
    sl_buf_puts(&body, "]}");
    sl_buf_put(&body, "", 1);
    expect_error(client_post(EMBED, body.ptr), 400, BAD, "input", "the most is 2048");
    sl_buf_release(&body);
    assert_int_equal(engine->n_submitted, 0);
    engine->not_finite = true;
    expect_error(client_post(EMBED, "{\"input\":\"a\"}"), 500, "server_error", NULL, "not finite");
}

/* A client that leaves in the middle of a batch: what is left of it is never submitted. */
static void leaving(void **state) {
    (void)state;
    struct sl_buf body = {0};
    set_script(NULL, 0, 1000000, 100);
    sl_buf_puts(&body, "{\"input\":[");
    for (uint32_t i = 0; i < 100; i++)
        sl_buf_puts(&body, i ? ",\"a\"" : "\"a\"");
    sl_buf_puts(&body, "]}");
    sl_buf_put(&body, "", 1);
    int fd = client_begin(EMBED, body.ptr);
    while (engine->n_submitted < 8)
        usleep(1000);
    close(fd);
    while (engine->n_canceled < 8)
        usleep(1000);
    assert_int_equal(engine->n_submitted, 8);
    sl_buf_release(&body);
}

int main(void) {
#define READY(f) cmocka_unit_test_setup_teardown(f, setup_ready, teardown)
    const struct CMUnitTest tests[] = {
        READY(one_text),
        READY(the_models_pooling),
        READY(special_text_is_text),
        READY(a_batch),
        READY(as_bytes),
        READY(ollamas),
        READY(refusals),
        READY(leaving),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
