/* The server's handlers without sockets: requests go in, prompts and generations can be looked at.
 * The engine refuses what gets so far. */
#ifndef TESTS_UNIT_SERVER_OFFLINE_H
#define TESTS_UNIT_SERVER_OFFLINE_H

#include "fake_engine.c"

#include "common/clock.h"
#include "server/exchange/gen.h"
#include "server/exchange/memory.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

/* Everything that a template can see, as JSON. */
static const char template[] =
    "{# a family that knows tools, or calls would be text: <tool_call> #}"
    "{{- {'messages': messages, 'tools': tools or [], 'thinking': enable_thinking | default('-'),"
    " 'effort': reasoning_effort | default('-')} | tojson -}}";

static struct sl_tokenizer tok;
static struct sl_engine *engine;
static struct sl_server server;

/* Serves with a chat template. */
static bool serve(const char *source) {
    struct sl_err err;
    struct sl_server_model m = {.engine = engine,
                                .tokenizer = &tok,
                                .id = "m",
                                .chat_template = source,
                                .chat_template_bytes = strlen(source)};
    sl_served_destroy(&server.served);
    return sl_served_create(&m, NULL, &server.served, &err) == SL_OK;
}

static int setup(void **state) {
    (void)state;
    fake_tokenizer_init(&tok);
    engine = fake_engine_create();
    engine->ctx_tokens = 4096;
    engine->queue_max = 0; /* refused there */
    server.config = (struct sl_server_config){0};
    sl_server_defaults(&server.config);
    return serve(template) ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    sl_served_destroy(&server.served);
    fake_engine_destroy(engine);
    return 0;
}

/* Single quotes stand for double ones in all JSON here. */
static char *quoted(const char *text) {
    char *p = strdup(text);
    for (char *c = p; *c; c++)
        if (*c == '\'')
            *c = '"';
    return p;
}

static void run(struct sl_exchange *ex, void (*handle)(struct sl_exchange *), const char *body) {
    char *json = quoted(body);
    *ex = (struct sl_exchange){.server = &server, .refs = 1, .started_ns = sl_now_ns()};
    pthread_mutex_init(&ex->lock, NULL);
    sl_buf_puts(&ex->body, json);
    free(json);
    handle(ex);
}

static void done(struct sl_exchange *ex) {
    sl_gen_destroy(ex->gen);
    sl_exchange_hold_reply(ex, 0);
    sl_buf_release(&ex->body);
    sl_buf_release(&ex->reply);
    free(ex->model_name);
    pthread_mutex_destroy(&ex->lock);
}

#endif
