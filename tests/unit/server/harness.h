/* A server over sockets on the scripted engine, for the tests of one program each. */
#ifndef TESTS_UNIT_SERVER_HARNESS_H
#define TESTS_UNIT_SERVER_HARNESS_H

#include "fake_engine.c"

#include "common/clock.h"
#include "common/log.h"
#include "server/exchange/exchange.h"
#include "server/server.h"

#include "client.h"
#include "json_at.h"

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

static const char chatml_template[] =
    "{%- for m in messages -%}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' -}}"
    "{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}";

static inline void start_empty(void) {
    struct sl_err err;
    if (sl_server_create(&config, &server, &err) != SL_OK)
        fail_msg("%s", err.text);
    client_port = sl_server_port(server);
}

static inline void attach_template(const char *chat_template) {
    struct sl_err err;
    struct sl_server_model m = {.engine = engine,
                                .tokenizer = &tok,
                                .id = "test-model",
                                .path = "/models/test.gguf",
                                .arch = "fake",
                                .chat_template = chat_template,
                                .chat_template_bytes = strlen(chat_template),
                                .n_ctx_train = 4096,
                                .fingerprint = 0x123456789abcu};
    if (sl_server_attach(server, &m, &err) != SL_OK)
        fail_msg("%s", err.text);
}
static inline void attach(void) {
    attach_template(chatml_template);
}

static inline void set_script(const uint32_t *script, uint32_t n, uint32_t prefill_steps,
                              long step_us) {
    pthread_mutex_lock(&engine->lock);
    engine->script = script;
    engine->n_script = n;
    engine->prefill_steps = prefill_steps;
    engine->step_us = step_us;
    engine->fail_at = 0;
    engine->queue_max = 1000;
    pthread_mutex_unlock(&engine->lock);
}

static inline void set_up_engine(void) {
    sl_log_set_level(getenv("VERBOSE") ? SL_LOG_DEBUG : SL_LOG_ERROR);
    config =
        (struct sl_server_config){.keepalive_s = 1, .buffer_tokens = 64, .max_body_bytes = 1 << 20};
    engine = fake_engine_create();
}
static inline int setup(void **state) {
    (void)state;
    fake_tokenizer_init(&tok);
    set_up_engine();
    return 0;
}
static inline int setup_ready(void **state) {
    setup(state);
    start_empty();
    attach();
    return 0;
}
static inline int teardown(void **state) {
    (void)state;
    sl_server_destroy(&server);
    assert_int_equal(engine->n_sessions, 0); /* nothing left behind */
    assert_int_equal(engine->n_submitted, engine->n_finished);
    fake_engine_destroy(engine);
    return 0;
}

/* A server with a chat template and room for long prompts. The vocabulary is the caller's. */
static inline void start(const char *chat_template) {
    set_up_engine();
    engine->ctx_tokens = 32768;
    engine->queue_max = 100;
    start_empty();
    attach_template(chat_template);
}
static inline void stop(void) {
    teardown(NULL);
}

static inline json_int_t int_at(json_t *v, const char *path) {
    if (!json_is_integer(at(v, path)))
        fail_msg("no integer at %s", path);
    return json_integer_value(at(v, path));
}
static inline json_t *parse(const struct reply *r) {
    json_error_t e;
    json_t *v = json_loadb(r->body ? r->body : "", r->body_len, 0, &e);
    if (!v)
        fail_msg("not JSON: %s\n%.300s", e.text, r->body ? r->body : "(nothing)");
    return v;
}

static inline void expect_error(struct reply r, int status, const char *type, const char *param,
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
static inline char *join_stream(const struct reply *r, int *n_events, bool *done) {
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

static inline bool wait_for(_Atomic uint32_t *counter, uint32_t at_least, uint64_t ms) {
    uint64_t until = sl_now_ns() + ms * 1000000u;
    while (atomic_load(counter) < at_least && sl_now_ns() < until)
        usleep(2000);
    return atomic_load(counter) >= at_least;
}

static const uint32_t hello[] = {'H', 'e', 'l', 'l', 'o', ' ', 0xc3, 0xa9, FAKE_EOS};

#define MESSAGES "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]"

#define READY(f) cmocka_unit_test_setup_teardown(f, setup_ready, teardown)

#endif
