/* The whole server over sockets, on the scripted engine. */
#include "fake_engine.c"

#include "common/clock.h"
#include "common/log.h"
#include "server/internal.h"

#include "client.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define CHAT "/v1/chat/completions"
#define COMP "/v1/completions"

static struct sl_engine *engine;
static struct sl_tokenizer tok;
static struct sl_server *server;
static struct sl_server_config config;

static const char template[] =
    "{%- for m in messages -%}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' -}}"
    "{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}";

static void start_empty(void) {
    struct sl_err err;
    if (sl_server_create(&config, &server, &err) != SL_OK)
        fail_msg("%s", err.text);
    client_port = sl_server_port(server);
}

static void attach(void) {
    struct sl_err err;
    struct sl_server_model m = {.engine = engine,
                                .tokenizer = &tok,
                                .id = "test-model",
                                .path = "/models/test.gguf",
                                .arch = "fake",
                                .chat_template = template,
                                .chat_template_bytes = sizeof template - 1,
                                .n_ctx_train = 4096,
                                .fingerprint = 0x123456789abcu};
    if (sl_server_attach(server, &m, &err) != SL_OK)
        fail_msg("%s", err.text);
}

static void set_script(const uint32_t *script, uint32_t n, uint32_t prefill_steps, long step_us) {
    pthread_mutex_lock(&engine->lock);
    engine->script = script;
    engine->n_script = n;
    engine->prefill_steps = prefill_steps;
    engine->step_us = step_us;
    engine->fail_at = 0;
    engine->queue_max = 1000;
    pthread_mutex_unlock(&engine->lock);
}

static int setup(void **state) {
    (void)state;
    sl_log_set_level(getenv("VERBOSE") ? SL_LOG_DEBUG : SL_LOG_ERROR);
    config =
        (struct sl_server_config){.keepalive_s = 1, .buffer_tokens = 64, .max_body_bytes = 1 << 20};
    fake_tokenizer_init(&tok);
    engine = fake_engine_create();
    return 0;
}
static int setup_ready(void **state) {
    setup(state);
    start_empty();
    attach();
    return 0;
}
static int teardown(void **state) {
    (void)state;
    sl_server_destroy(&server);
    assert_int_equal(engine->n_sessions, 0); /* nothing left behind */
    assert_int_equal(engine->n_submitted, engine->n_finished);
    fake_engine_destroy(engine);
    return 0;
}

/* A member by path, "choices.0.message.content". */
static json_t *at(json_t *v, const char *path) {
    char part[64];
    while (*path) {
        size_t n = strcspn(path, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, path);
        v = json_is_array(v) ? json_array_get(v, (size_t)atoi(part)) : json_object_get(v, part);
        path += n + (path[n] == '.');
    }
    return v;
}
static const char *str_at(json_t *v, const char *path) {
    const char *s = json_string_value(at(v, path));
    if (!s)
        fail_msg("no string at %s", path);
    return s;
}
static json_int_t int_at(json_t *v, const char *path) {
    if (!json_is_integer(at(v, path)))
        fail_msg("no integer at %s", path);
    return json_integer_value(at(v, path));
}
static json_t *parse(const struct reply *r) {
    json_error_t e;
    json_t *v = json_loadb(r->body ? r->body : "", r->body_len, 0, &e);
    if (!v)
        fail_msg("not JSON: %s\n%.300s", e.text, r->body ? r->body : "(nothing)");
    return v;
}

static void expect_error(struct reply r, int status, const char *type, const char *param,
                         const char *part) {
    if (r.status != status)
        fail_msg("status %d, not %d: %.300s", r.status, status, r.body ? r.body : "");
    json_t *v = parse(&r);
    assert_string_equal(str_at(v, "error.type"), type);
    if (param)
        assert_string_equal(str_at(v, "error.param"), param);
    else
        assert_true(json_is_null(at(v, "error.param")));
    if (!strstr(str_at(v, "error.message"), part))
        fail_msg("'%s' does not say '%s'", str_at(v, "error.message"), part);
    json_decref(v);
    reply_free(&r);
}
#define BAD "invalid_request_error"

/* A stream's content joined; the number of data events; whether it ended in [DONE]. */
static char *join_stream(const struct reply *r, int *n_events, bool *done) {
    char *text = calloc(1, r->body_len + 1);
    *n_events = 0;
    *done = false;
    for (const char *p = r->body; p && (p = strstr(p, "data: ")) != NULL;) {
        p += 6;
        const char *end = strstr(p, "\n\n");
        assert_non_null(end);
        ++*n_events;
        if (strncmp(p, "[DONE]", 6) == 0) {
            *done = true;
        } else {
            json_t *v = json_loadb(p, (size_t)(end - p), 0, NULL);
            assert_non_null(v);
            const char *s = json_string_value(at(v, "choices.0.delta.content"));
            if (!s)
                s = json_string_value(at(v, "choices.0.text"));
            strcat(text, s ? s : "");
            json_decref(v);
        }
        p = end;
    }
    return text;
}

static bool wait_for(_Atomic uint32_t *counter, uint32_t at_least, uint64_t ms) {
    uint64_t until = sl_now_ns() + ms * 1000000u;
    while (atomic_load(counter) < at_least && sl_now_ns() < until)
        usleep(2000);
    return atomic_load(counter) >= at_least;
}

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

    atomic_store(&engine->failed, true);
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

/* ------------------------------------------------------------------------------------ answers */

static const uint32_t hello[] = {'H', 'e', 'l', 'l', 'o', ' ', 0xc3, 0xa9, FAKE_EOS};

static void test_chat(void **state) {
    (void)state;
    set_script(hello, 9, 0, 0);
    struct reply r = client_post(
        CHAT, "{\"model\":\"test-model\",\"seed\":7,\"temperature\":0.5,\"messages\":[{\"role\":"
              "\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\","
              "\"text\":\"b\"}]}]}");
    assert_int_equal(r.status, 200);
    json_t *v = parse(&r);
    assert_string_equal(str_at(v, "object"), "chat.completion");
    assert_string_equal(str_at(v, "model"), "test-model");
    assert_memory_equal(str_at(v, "id"), "chatcmpl-", 9);
    assert_string_equal(str_at(v, "system_fingerprint"), "fp_3456789abc");
    assert_string_equal(str_at(v, "choices.0.message.role"), "assistant");
    assert_string_equal(str_at(v, "choices.0.message.content"), "Hello \xc3\xa9");
    assert_string_equal(str_at(v, "choices.0.finish_reason"), "stop");
    assert_true(json_is_null(at(v, "choices.0.logprobs")));
    /* <|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\n */
    assert_int_equal(int_at(v, "usage.prompt_tokens"), 1 + 5 + 3 + 1 + 1 + 1 + 10);
    assert_int_equal(int_at(v, "usage.completion_tokens"), 9);
    assert_int_equal(int_at(v, "usage.total_tokens"), 22 + 9);
    assert_int_equal(int_at(v, "usage.prompt_tokens_details.cached_tokens"), 0);
    assert_int_equal(int_at(v, "timings.predicted_n"), 9);
    assert_int_equal(int_at(v, "timings.expert_hits"), 54);
    assert_int_equal(int_at(v, "timings.expert_late"), 9);
    assert_int_equal(int_at(v, "timings.expert_misses"), 27);
    assert_true(json_real_value(at(v, "timings.expert_hit_share")) == 0.6);
    assert_int_equal(int_at(v, "timings.disk_read_bytes"), 9000);
    assert_true(json_real_value(at(v, "timings.expert_stall_ms")) == 4.5);
    assert_int_equal(engine->last_prompt[0], FAKE_IM_START);
    assert_int_equal(engine->last_prompt[9], FAKE_IM_END);
    assert_true(engine->last.sampling.seed == 7);
    assert_true(engine->last.sampling.temperature == 0.5f);
    json_decref(v);
    reply_free(&r);
}

static void test_stream(void **state) {
    (void)state;
    set_script(hello, 9, 2, 0);
    struct reply r = client_post(
        CHAT, "{\"stream\":true,\"stream_options\":{\"include_usage\":true},\"messages\":[{"
              "\"role\":\"user\",\"content\":\"x\"}]}");
    assert_int_equal(r.status, 200);
    assert_non_null(strcasestr(r.head, "Content-Type: text/event-stream"));
    int n;
    bool done;
    char *text = join_stream(&r, &n, &done);
    assert_string_equal(text, "Hello \xc3\xa9");
    assert_true(done);
    /* role, 6 characters and one of two bytes, finish, usage, [DONE] */
    assert_int_equal(n, 1 + 7 + 1 + 1 + 1);
    assert_non_null(strstr(r.body, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"}"));
    assert_non_null(strstr(r.body, "\"finish_reason\":\"stop\"}],\"timings\""));
    assert_non_null(strstr(r.body, "\"usage\":null"));
    assert_non_null(strstr(r.body, "\"choices\":[],\"usage\":{\"prompt_tokens\":"));
    free(text);
    reply_free(&r);
}

static void test_completions(void **state) {
    (void)state;
    tok.add_bos = true;
    sl_server_destroy(&server);
    start_empty();
    attach(); /* with BOS */
    set_script(NULL, 0, 0, 0);
    struct reply r = client_post(COMP, "{\"prompt\":\"abc\",\"echo\":true}");
    json_t *v = parse(&r);
    assert_string_equal(str_at(v, "object"), "text_completion");
    assert_string_equal(str_at(v, "choices.0.text"), "abcabc");
    assert_int_equal(int_at(v, "usage.prompt_tokens"), 4);
    assert_int_equal(engine->last_prompt[0], FAKE_BOS);
    assert_int_equal(engine->last.max_tokens, 16);
    json_decref(v);
    reply_free(&r);
    r = client_post(COMP, "{\"prompt\":[[97,98],[99]],\"max_tokens\":1,\"n\":2}");
    v = parse(&r);
    assert_int_equal(json_array_size(at(v, "choices")), 4);
    assert_string_equal(str_at(v, "choices.1.text"), "a");
    assert_string_equal(str_at(v, "choices.2.text"), "c");
    assert_int_equal(int_at(v, "choices.3.index"), 3);
    assert_string_equal(str_at(v, "choices.3.finish_reason"), "length");
    assert_int_equal(int_at(v, "usage.prompt_tokens"), 3);
    assert_int_equal(int_at(v, "usage.completion_tokens"), 4);
    json_decref(v);
    reply_free(&r);
    r = client_post(COMP, "{\"prompt\":\"abc\",\"stream\":true,\"echo\":true}");
    int n;
    bool done;
    char *text = join_stream(&r, &n, &done);
    assert_string_equal(text, "abcabc");
    assert_true(done);
    free(text);
    reply_free(&r);
}

static void test_stop_strings(void **state) {
    (void)state;
    static uint32_t script[4];
    pthread_mutex_lock(&engine->lock);
    script[0] = fake_word(&tok, "one S");
    script[1] = fake_word(&tok, "TO");
    script[2] = fake_word(&tok, "P and more");
    script[3] = 'x';
    pthread_mutex_unlock(&engine->lock);
    set_script(script, 4, 0, 0);
    for (int stream = 0; stream < 2; stream++) {
        char body[200];
        sprintf(body,
                "{\"prompt\":\"p\",\"max_tokens\":1000,\"stop\":[\"never\",\"STOP\"],"
                "\"stream\":%s%s}",
                stream ? "true" : "false",
                stream ? ",\"stream_options\":{\"include_usage\":true}" : "");
        struct reply r = client_post(COMP, body);
        assert_int_equal(r.status, 200);
        if (stream) {
            int n;
            bool done;
            char *text = join_stream(&r, &n, &done);
            assert_string_equal(text, "one ");
            assert_true(done);
            free(text);
            assert_non_null(strstr(r.body, "\"finish_reason\":\"stop\""));
            assert_non_null(strstr(r.body, "\"completion_tokens\":3,"));
        } else {
            json_t *v = parse(&r);
            assert_string_equal(str_at(v, "choices.0.text"), "one ");
            assert_string_equal(str_at(v, "choices.0.finish_reason"), "stop");
            assert_int_equal(int_at(v, "usage.completion_tokens"), 3);
            assert_true(int_at(v, "timings.expert_hits") >= 3 * 6);
            json_decref(v);
        }
        reply_free(&r);
    }
    assert_true(wait_for(&engine->n_canceled, 2, 1000)); /* 1000 tokens were asked for */
}

static void test_logprobs_and_n(void **state) {
    (void)state;
    set_script(hello, 9, 0, 0);
    struct reply r = client_post(CHAT, "{\"n\":3,\"seed\":10,\"logprobs\":true,\"top_logprobs\":2,"
                                       "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}");
    json_t *v = parse(&r);
    assert_int_equal(json_array_size(at(v, "choices")), 3);
    for (int i = 0; i < 3; i++) {
        json_t *c = json_array_get(at(v, "choices"), (size_t)i);
        assert_int_equal(int_at(c, "index"), i);
        assert_int_equal(json_array_size(at(c, "logprobs.content")), 8); /* EOS is not shown */
        assert_string_equal(str_at(c, "logprobs.content.0.token"), "H");
        assert_true(json_number_value(at(c, "logprobs.content.0.logprob")) == -0.5);
        assert_int_equal(int_at(c, "logprobs.content.0.bytes.0"), 'H');
        assert_int_equal(json_array_size(at(c, "logprobs.content.0.top_logprobs")), 2);
        assert_string_equal(str_at(c, "logprobs.content.0.top_logprobs.1.token"), "b");
        assert_int_equal(int_at(c, "logprobs.content.6.bytes.0"), 0xc3); /* half a character */
        assert_string_equal(str_at(c, "logprobs.content.6.token"), "\xef\xbf\xbd");
    }
    assert_int_equal(int_at(v, "usage.completion_tokens"), 27);
    json_decref(v);
    reply_free(&r);
    assert_true(engine->last.sampling.seed == 12);

    /* Streamed, the entries of all chunks are the same ones. */
    r = client_post(CHAT, "{\"stream\":true,\"logprobs\":true,"
                          "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}");
    int n = 0;
    for (const char *p = r.body; (p = strstr(p, "\"top_logprobs\":[]")) != NULL; p++)
        n++;
    assert_int_equal(n, 8);
    reply_free(&r);

    /* Text completions have their own shape; a stop string cuts them too. */
    r = client_post(COMP, "{\"prompt\":\"p\",\"logprobs\":1,\"stop\":\"lo\"}");
    v = parse(&r);
    assert_string_equal(str_at(v, "choices.0.text"), "Hel");
    assert_int_equal(json_array_size(at(v, "choices.0.logprobs.tokens")), 3);
    assert_int_equal(json_array_size(at(v, "choices.0.logprobs.token_logprobs")), 3);
    assert_int_equal(int_at(v, "choices.0.logprobs.text_offset.2"), 2);
    assert_true(json_number_value(at(v, "choices.0.logprobs.top_logprobs.0.H")) == -0.5);
    json_decref(v);
    reply_free(&r);
}

static void test_special_text_stays_text(void **state) {
    (void)state;
    set_script(hello, 9, 0, 0);
    struct reply r = client_post(CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":"
                                       "\"x<|im_end|>y<|im_start|>\"}]}");
    assert_int_equal(r.status, 200);
    uint32_t n_start = 0, n_end = 0;
    for (uint32_t i = 0; i < engine->last.n_prompt; i++) {
        n_start += engine->last_prompt[i] == FAKE_IM_START;
        n_end += engine->last_prompt[i] == FAKE_IM_END;
    }
    assert_int_equal(n_start, 2); /* the template's own */
    assert_int_equal(n_end, 1);
    assert_int_equal(engine->last.n_prompt, 1 + 5 + 1 + 10 + 1 + 12 + 1 + 1 + 1 + 10);
    reply_free(&r);
    r = client_post("/apply-template", "{\"messages\":[{\"role\":\"user\",\"content\":"
                                       "\"x<|im_end|>y\"}]}");
    json_t *v = parse(&r);
    assert_string_equal(str_at(v, "prompt"), "<|im_start|>user\nx<|im_end|>y<|im_end|>\n"
                                             "<|im_start|>assistant\n");
    json_decref(v);
    reply_free(&r);
}

static void test_small_endpoints(void **state) {
    (void)state;
    struct reply r = client_get("/v1/models");
    json_t *v = parse(&r);
    assert_string_equal(str_at(v, "data.0.id"), "test-model");
    assert_string_equal(str_at(v, "data.0.object"), "model");
    assert_int_equal(int_at(v, "data.0.max_model_len"), 4096);
    json_decref(v);
    reply_free(&r);
    r = client_get("/v1/models/test-model");
    assert_int_equal(r.status, 200);
    reply_free(&r);
    expect_error(client_get("/v1/models/other"), 404, "not_found_error", "model", "other");
    r = client_get("/props");
    v = parse(&r);
    assert_string_equal(str_at(v, "chat_template"), template);
    assert_int_equal(int_at(v, "total_slots"), 4);
    assert_int_equal(int_at(v, "default_generation_settings.n_ctx"), 4096);
    assert_true(json_number_value(at(v, "default_generation_settings.params.temperature")) == 1);
    json_decref(v);
    reply_free(&r);
    r = client_get("/slots");
    v = parse(&r);
    assert_int_equal(json_array_size(v), 4);
    assert_string_equal(str_at(v, "0.state"), "idle");
    assert_null(at(v, "0.id_task"));
    assert_string_equal(str_at(v, "1.state"), "decode");
    assert_int_equal(int_at(v, "1.id_task"), 7);
    assert_int_equal(int_at(v, "1.n_remain"), 60);
    assert_true(json_number_value(at(v, "1.prompt_per_second")) == 100);
    assert_true(json_number_value(at(v, "1.predicted_per_second")) == 15);
    json_decref(v);
    reply_free(&r);
    r = client_get("/metrics");
    assert_non_null(
        strstr(r.body, "\nsluice_http_requests_total{endpoint=\"/slots\",status=\"200\"} "));
    assert_non_null(
        strstr(r.body, "\nsluice_http_requests_total{endpoint=\"/v1/models/*\",status=\"404\"} "));
    assert_non_null(strstr(r.body, "\nprocess_resident_memory_bytes "));
    assert_non_null(strstr(r.body, "\nprocess_open_fds "));
    reply_free(&r);
    r = client_request("HEAD", "/slots", "", NULL);
    assert_int_equal(r.status, 200);
    assert_int_equal(r.body_len, 0);
    reply_free(&r);
    r = client_post("/tokenize", "{\"content\":\"a<|im_end|>\",\"with_pieces\":true}");
    v = parse(&r);
    assert_int_equal(int_at(v, "tokens.1.id"), FAKE_IM_END);
    assert_string_equal(str_at(v, "tokens.0.piece"), "a");
    json_decref(v);
    reply_free(&r);
    r = client_post("/tokenize", "{\"content\":\"a<|im_end|>\",\"parse_special\":false}");
    v = parse(&r);
    assert_int_equal(json_array_size(at(v, "tokens")), 11);
    json_decref(v);
    reply_free(&r);
    r = client_post("/detokenize", "{\"tokens\":[97,98,259]}");
    v = parse(&r);
    assert_string_equal(str_at(v, "content"), "ab<|im_end|>");
    json_decref(v);
    reply_free(&r);
    expect_error(client_post("/detokenize", "{\"tokens\":[97,100000]}"), 400, BAD, "tokens",
                 "token ids");
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
#define MESSAGES "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]"
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

    set_script(hello, 8, 1000, 1000);
    pthread_mutex_lock(&engine->lock);
    engine->queue_max = 2;
    pthread_mutex_unlock(&engine->lock);
    r = client_post(COMP, "{\"prompt\":\"x\",\"n\":3}");
    assert_non_null(strstr(r.head, "Retry-After: 1"));
    expect_error(r, 429, "rate_limit_error", NULL, "queue");
    assert_true(wait_for(&engine->n_canceled, 2, 1000)); /* the two that were taken */
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

    static const char chunked[] = "POST " COMP " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
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
        "POST " COMP " HTTP/1.1\r\nHost: x\r\nContent-Length: 16\r\n\r\n{\"prompt\":\"abc\"}"
        "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
        "POST " COMP " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 16\r\n\r\n"
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
    size_t len = (size_t)sprintf(flood, "GET /health HTTP/1.1\r\nHost: x\r\n");
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
    static const char head[] = "POST " COMP " HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{";
    client_send(fd, head, sizeof head - 1);
    uint64_t start = sl_now_ns();
    for (int i = 0; i < 50 && sl_now_ns() - start < 8000000000u; i++) {
        usleep(200000); /* a byte now and then keeps an idle time-out away, not the slow one */
        if (send(fd, " ", 1, MSG_NOSIGNAL) < 0)
            break;
    }
    assert_true(sl_now_ns() - start < 6000000000u);
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
            "POST " COMP " HTTP/1.1\r\nHost: x\r\nContent-Length: 65000\r\n\r\n";
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
    uint64_t start = sl_now_ns();
    while (atomic_load(&server->bodies_bytes) < 4 * FIRST + 16284)
        usleep(10000); /* a request must not overtake them */
    /* Few bytes each, so that the fifth does not run into the limit itself. */
    for (int k = 0; !served && sl_now_ns() - start < 6000000000u; k++) {
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
        assert_true(wait_for(&engine->n_submitted, submitted + 1 + i, 2000));
    }
    expect_error(client_post(COMP, body), 503, "unavailable_error", NULL, "grammar");
    for (uint32_t i = 0; i < 2; i++)
        close(fd[i]);
}

/* -------------------------------------------------------------------------- clients that leave */

static void leave(const char *body, uint32_t prefill_steps) {
    set_script(hello, 8, prefill_steps, 5000);
    uint32_t before = engine->n_canceled, submitted = engine->n_submitted;
    int fd = client_begin(COMP, body);
    assert_true(wait_for(&engine->n_submitted, submitted + 1, 2000));
    usleep(50000);
    uint64_t start = sl_now_ns();
    close(fd);
    if (!wait_for(&engine->n_canceled, before + 1, 1000))
        fail_msg("not canceled within a second: %s", body);
    assert_true(sl_now_ns() - start < 1000000000u);
}

static void test_client_leaves(void **state) {
    (void)state;
    static const char whole[] = "{\"prompt\":\"x\",\"max_tokens\":100000}";
    static const char stream[] = "{\"prompt\":\"x\",\"max_tokens\":100000,\"stream\":true}";
    leave(whole, 10000); /* in prefill */
    leave(stream, 10000);
    leave(whole, 0); /* while it generates */
    leave(stream, 0);
}

/* A client that reads nothing: its session parks, others go on; when it reads, all comes in order.
 */
static void test_slow_reader(void **state) {
    (void)state;
    static uint32_t digits[1000];
    for (uint32_t i = 0; i < 1000; i++)
        digits[i] = i % 10 == 9 ? '\n' : '0' + i % 10;
    set_script(digits, 1000, 0, 20);
    int fd = client_connect(4096);
    client_begin_on(fd, "POST", COMP, "", "{\"prompt\":\"x\",\"max_tokens\":4000,\"stream\":true}");
    assert_true(wait_for(&engine->n_parked, 1, 10000));
    uint32_t pushed = engine->n_pushed;
    assert_true(pushed < 3000);

    struct reply r = client_post(COMP, "{\"prompt\":\"y\",\"max_tokens\":50}");
    assert_int_equal(r.status, 200);
    reply_free(&r);
    char byte;
    for (int i = 0; i < 20; i++) { /* a byte at a time frees nothing worth a wake-up */
        assert_int_equal(recv(fd, &byte, 1, 0), 1);
        usleep(10000);
    }
    assert_true(engine->n_pushed <= pushed + 50 + 40);

    size_t n;
    char *all = client_read_all(fd, &n);
    close(fd);
    const char *p = all;
    for (uint32_t i = 0; i < 4000; i++) {
        char want[32];
        sprintf(want, digits[i % 1000] == '\n' ? "\"text\":\"\\n\"" : "\"text\":\"%c\"",
                (char)digits[i % 1000]);
        p = strstr(p, "\"text\":\"");
        if (!p || strncmp(p, want, strlen(want)) != 0)
            fail_msg("token %u is lost", i);
        p += 8;
    }
    assert_non_null(strstr(p, "\"finish_reason\":\"length\""));
    assert_non_null(strstr(p, "data: [DONE]"));
    free(all);
}

static void test_parked_client_leaves(void **state) {
    (void)state;
    set_script(hello, 8, 0, 20);
    int fd = client_connect(4096);
    client_begin_on(fd, "POST", COMP, "", "{\"prompt\":\"x\",\"max_tokens\":4000,\"stream\":true}");
    assert_true(wait_for(&engine->n_parked, 1, 10000));
    close(fd);
    assert_true(wait_for(&engine->n_canceled, 1, 1000));
}

static void test_keepalive(void **state) {
    (void)state;
    set_script(hello, 9, 260, 10000); /* 2.6 s of prefill */
    struct reply r = client_post(COMP, "{\"prompt\":\"x\",\"stream\":true}");
    int n;
    bool done;
    char *text = join_stream(&r, &n, &done);
    assert_string_equal(text, "Hello \xc3\xa9");
    assert_memory_equal(r.body, ": prompt ", 9);
    n = 0;
    for (const char *p = r.body; (p = strstr(p, ": prompt ")) != NULL; p++)
        n++;
    assert_true(n >= 2);
    free(text);
    reply_free(&r);

    /* An API with an event for it sends that too. */
    set_script(hello, 9, 140, 10000);
    r = client_post("/v1/messages", "{\"model\":\"test-model\",\"max_tokens\":9,\"stream\":true,"
                                    "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}");
    assert_memory_equal(r.body, ": prompt ", 9);
    const char *ping = strstr(r.body, "event: ping");
    assert_non_null(ping);
    assert_non_null(strstr(ping + 1, "event: ping"));
    assert_non_null(strstr(r.body, "event: message_stop"));
    reply_free(&r);
}

/* ---------------------------------------------------------------------------------------- many */

static void test_200_clients(void **state) {
    (void)state;
    set_script(hello, 9, 3, 1000);
    int fds[200];
    for (int i = 0; i < 200; i++)
        fds[i] = client_begin(CHAT, i % 2 ? "{\"stream\":true," MESSAGES "}" : "{" MESSAGES "}");
    for (int i = 0; i < 200; i++) {
        struct reply r = client_end(fds[i]);
        assert_int_equal(r.status, 200);
        if (i % 2) {
            int n;
            bool done;
            char *text = join_stream(&r, &n, &done);
            assert_string_equal(text, "Hello \xc3\xa9");
            assert_true(done);
            free(text);
        } else {
            json_t *v = parse(&r);
            assert_string_equal(str_at(v, "choices.0.message.content"), "Hello \xc3\xa9");
            json_decref(v);
        }
        reply_free(&r);
    }
    assert_int_equal(engine->n_finished, 200);
}

static void test_drain(void **state) {
    (void)state;
    set_script(hello, 9, 30, 10000);
    int stream = client_begin(CHAT, "{\"stream\":true," MESSAGES "}");
    int whole = client_begin(CHAT, "{" MESSAGES "}");
    int kept = client_connect(0); /* open before, asks after */
    static const char health[] = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";
    char byte[400];
    client_send(kept, health, sizeof health - 1);
    assert_true(recv(kept, byte, sizeof byte, 0) > 0);
    assert_true(wait_for(&engine->n_submitted, 2, 2000));
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
    assert_true(wait_for(&engine->n_submitted, 2, 2000));
    sl_server_destroy(&server);
    struct reply r = client_end(stream);
    assert_non_null(strstr(r.body, "data: {\"error\""));
    reply_free(&r);
    expect_error(client_end(whole), 503, "unavailable_error", NULL, "shutting down");
}

int main(void) {
#define READY(f) cmocka_unit_test_setup_teardown(f, setup_ready, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_life, setup, teardown),
        cmocka_unit_test_setup_teardown(test_load_failure, setup, teardown),
        READY(test_chat),
        READY(test_stream),
        READY(test_completions),
        READY(test_stop_strings),
        READY(test_logprobs_and_n),
        READY(test_special_text_stays_text),
        READY(test_small_endpoints),
        READY(test_bad_requests),
        READY(test_engine_errors),
        READY(test_api_key),
        READY(test_http),
        READY(test_slow_upload),
        READY(test_trickling_uploads),
        READY(test_unread_answers),
        READY(test_counts_grammars),
        READY(test_client_leaves),
        READY(test_slow_reader),
        READY(test_parked_client_leaves),
        READY(test_keepalive),
        READY(test_200_clients),
        READY(test_drain),
        READY(test_destroy_cancels),
    };
    return cmocka_run_group_tests_name("server", tests, NULL, NULL);
}
