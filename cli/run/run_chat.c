#include "cli/run/run_chat.h"

#include "common/terminal.h"
#include "common/buf.h"
#include "common/clock.h"
#include "common/cond.h"
#include "common/log.h"
#include "server/answer/splitter.h"
#include "server/request/messages.h"
#include "server/request/tools.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How often Ctrl-C is checked for. */
#define INTERRUPT_NS 50000000u

volatile sig_atomic_t sl_run_interrupted;

static void on_interrupt(int sig) {
    (void)sig;
    sl_run_interrupted = 1;
}

void sl_run_catch_interrupts(void) {
    /* No SA_RESTART: an interrupt must end the read of a line. */
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
}

/* One answer: what the scheduler thread writes, and how the main thread waits for its end. */
struct answer {
    struct sl_token_sink sink; /* first: the engine's pointer is ours */
    struct sl_run_chat *chat;
    struct sl_detok detok;
    struct sl_stop_state stop;
    struct sl_splitter_config split;
    struct sl_splitter *splitter; /* NULL: all of it is content */
    char *header;
    struct sl_buf text, thoughts;
    bool thinking; /* reasoning was printed last */
    bool stopped;  /* a stop string ended it */
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool done;
    struct sl_gen_result result;
};

/* ---- printing: the scheduler's thread, and the main one when that is through ---- */

static void think_aloud(struct answer *a, bool thinking) {
    if (a->thinking == thinking || a->chat->quiet)
        return;
    a->thinking = thinking;
    if (thinking)
        fprintf(stderr, "%s[thinking]\n", sl_style_begin(stderr, SL_STYLE_DIM));
    else
        fprintf(stderr, "\n[end of thinking]%s\n", sl_style_end(stderr));
    fflush(stderr);
}

static void on_part(void *ctx, const struct sl_part *part) {
    struct answer *a = ctx;
    bool content = part->kind == SL_PART_CONTENT;
    if (!part->text.len)
        return;
    sl_buf_put(content ? &a->text : &a->thoughts, part->text.ptr, part->text.len);
    think_aloud(a, !content);
    FILE *f = content ? stdout : stderr;
    if (content || !a->chat->quiet) {
        sl_terminal_put(f, part->text.ptr, part->text.len);
        fflush(f);
    }
}

static enum sl_status put_text(struct answer *a, struct sl_str text) {
    if (a->splitter)
        return sl_splitter_push(a->splitter, text.ptr, text.len);
    on_part(a, &(struct sl_part){.kind = SL_PART_CONTENT, .text = text});
    return SL_OK;
}

static bool is_marker(const struct sl_run_chat *c, uint32_t id) {
    for (size_t i = 0; i < c->markers.n; i++)
        if (c->markers.ids[i] == id)
            return true;
    return false;
}

static enum sl_status push(struct sl_token_sink *s, const struct sl_token *token) {
    struct answer *a = (struct answer *)s;
    struct sl_run_chat *c = a->chat;
    struct sl_str out, shown;
    if (token->eog)
        return SL_OK;
    bool marker = a->splitter && is_marker(c, token->id);
    SL_TRY(sl_detok_push(&a->detok, c->tok, token->id, marker, &out));
    a->stopped = sl_stop_push(&a->stop, &c->stop, out.ptr, out.len, &shown);
    SL_TRY(put_text(a, shown));
    return a->stopped ? SL_ERR_CANCELED : SL_OK;
}

/* What was held back. */
static enum sl_status end_text(struct answer *a) {
    struct sl_str rest, shown;
    if (!a->stopped) {
        SL_TRY(sl_detok_finish(&a->detok, &rest));
        sl_stop_finish(&a->stop, &a->chat->stop, rest.ptr, rest.len, &shown);
        SL_TRY(put_text(a, shown));
    }
    enum sl_status status = SL_OK;
    if (a->splitter)
        status = sl_splitter_finish(a->splitter, a->result.reason != SL_FINISH_STOP);
    think_aloud(a, false);
    return status;
}

static void finish(struct sl_token_sink *s, const struct sl_gen_result *result) {
    struct answer *a = (struct answer *)s;
    pthread_mutex_lock(&a->lock);
    a->result = *result;
    a->done = true;
    pthread_cond_signal(&a->cond);
    pthread_mutex_unlock(&a->lock);
}

/* Waits for the end, passing an interrupt on as a cancel. */
static void wait_done(struct sl_engine *e, struct sl_gen_request *r, struct answer *a) {
    bool canceled = false;
    pthread_mutex_lock(&a->lock);
    while (!a->done) {
        sl_cond_wait_until(&a->cond, &a->lock, sl_now_ns() + INTERRUPT_NS);
        if (sl_run_interrupted && !canceled && !a->done) {
            canceled = true;
            /* The engine may call finish at once, which takes the lock. */
            pthread_mutex_unlock(&a->lock);
            sl_engine_cancel(e, r);
            pthread_mutex_lock(&a->lock);
        }
    }
    pthread_mutex_unlock(&a->lock);
}

/* ---- the prompt ---- */

static enum sl_status poll_interrupt(void *ctx, struct sl_err *err) {
    (void)ctx;
    return sl_run_interrupted ? sl_fail(err, SL_ERR_CANCELED, "interrupted") : SL_OK;
}

static bool is_switch(const char *think) {
    return strcmp(think, "on") == 0 || strcmp(think, "off") == 0;
}

bool sl_run_is_think(const char *word) {
    static const char *const words[] = {"on", "off", "minimal", "low", "medium", "high", "max"};
    for (uint32_t i = 0; i < SL_COUNTOF(words); i++)
        if (strcmp(word, words[i]) == 0)
            return true;
    return false;
}

/* What templates look at to tell their model how much to think: as the server sets it. NULL: out of
 * memory. */
static json_t *think_vars(const struct sl_run_chat *c) {
    json_t *more = json_object();
    bool ok = more != NULL;
    if (ok && c->think && is_switch(c->think)) {
        bool on = strcmp(c->think, "on") == 0;
        ok = json_object_set_new(more, "enable_thinking", json_boolean(on)) == 0 &&
             json_object_set_new(more, "thinking", json_boolean(on)) == 0;
    } else if (ok && c->think) {
        ok = json_object_set_new(more, "reasoning_effort", json_string(c->think)) == 0;
    }
    if (ok)
        return more;
    json_decref(more);
    return NULL;
}

static enum sl_status render_once(void *ctx, const json_t *messages,
                                  const struct sl_template_limits *limits, struct sl_rendered *out,
                                  struct sl_err *err) {
    const struct sl_run_chat *c = ctx;
    struct sl_chat_vars vars = {0};
    json_t *more = think_vars(c);
    enum sl_status status = SL_ERR_NOMEM;
    if (more && sl_chat_vars_init(&c->model, messages, NULL, more, true, &vars)) {
        json_t *copy = json_object_get(vars.all, "messages");
        bool renamed = c->format->syntax == SL_CALL_HARMONY || c->format->reasoning_key;
        if (sl_chat_apply_form(&c->model.form, copy) &&
            (!renamed || sl_tools_thinking(copy, c->format->reasoning_key)))
            status =
                sl_template_render_own(c->model.template, vars.all, vars.own, limits, out, err);
    }
    sl_chat_vars_release(&vars);
    json_decref(more);
    return status;
}

/* The prompt's ids, and how its answer is read. */
static enum sl_status render(struct sl_run_chat *c, struct answer *a, struct sl_ids *ids,
                             struct sl_err *err) {
    if (c->raw) {
        const json_t *last = json_array_get(c->messages, json_array_size(c->messages) - 1);
        const json_t *text = json_object_get(last, "content");
        return sl_tokenizer_encode(c->tok, json_string_value(text), json_string_length(text),
                                   SL_ENCODE_ADD_SPECIAL | SL_ENCODE_PARSE_SPECIAL, ids);
    }
    struct sl_template_limits limits = sl_template_default_limits;
    struct sl_rendered r = {0};
    limits.watch.poll = poll_interrupt;
    enum sl_status status = sl_messages_render(
        &c->model, c->messages, &limits, &(struct sl_messages_renderer){render_once, c}, &r, err);
    if (status == SL_OK)
        status = sl_chat_encode(&c->model, &r, NULL, ids);
    if (status == SL_OK) {
        enum sl_answer_place place = sl_answer_place(c->format, r.text, r.len);
        struct sl_str header = sl_answer_open_header(c->format, r.text, r.len);
        a->header = strndup(header.ptr, header.len);
        a->split = (struct sl_splitter_config){.format = c->format,
                                               .thinks = true,
                                               .in_reasoning = place == SL_ANSWER_IN_REASONING,
                                               .header = {a->header, header.len}};
        if (!a->header)
            status = SL_ERR_NOMEM;
        else if (c->thinks || place == SL_ANSWER_IN_REASONING)
            status = sl_splitter_create(&a->split, on_part, a, &a->splitter);
    }
    sl_rendered_release(&r);
    return status;
}

/* ---- what is said of an answer ---- */

static void print_context(const struct sl_run_chat *c, uint32_t used) {
    uint32_t percent = (uint32_t)(100 * (uint64_t)used / c->ctx_tokens);
    fprintf(stderr, "[context: %u of %u tokens, %u %%%s]\n", used, c->ctx_tokens, percent,
            percent >= 90 ? "; /clear makes room, -c sets its size" : "");
}

static void print_speed(const struct sl_run_chat *c, const struct sl_gen_result *r, uint64_t seed) {
    double prefill = (double)r->prefill_ns * 1e-9, decode = (double)r->decode_ns * 1e-9;
    /* Tokens found in the prefix cache took no time. */
    uint32_t n_computed = r->n_prompt - r->n_cached;
    fputs(sl_style_begin(stderr, SL_STYLE_DIM), stderr);
    fprintf(stderr, "[%u prompt tokens, %u cached, %.1f t/s; %u answered, %.1f t/s]\n", r->n_prompt,
            r->n_cached, prefill > 0 ? n_computed / prefill : 0, r->n_predicted,
            decode > 0 && r->n_predicted > 1 ? (r->n_predicted - 1) / decode : 0);
    const struct sl_expert_use *u = &r->experts;
    uint64_t asked = u->hits + u->late + u->misses;
    if (u->read_bytes || u->late || u->misses) /* streamed */
        fprintf(stderr,
                "[experts: %.1f %% of %llu were there, %llu late, %llu missed; %.1f MB from disk, "
                "%.2f s waiting for it]\n",
                100.0 * (double)u->hits / (double)(asked ? asked : 1), (unsigned long long)asked,
                (unsigned long long)u->late, (unsigned long long)u->misses,
                (double)u->read_bytes * 1e-6, (double)u->stall_ns * 1e-9);
    print_context(c, r->n_prompt + r->n_predicted);
    if (c->verbose)
        fprintf(stderr, "[seed %llu]\n", (unsigned long long)seed);
    fputs(sl_style_end(stderr), stderr);
}

/* ---- a turn ---- */

static void complain(const char *why) {
    fprintf(stderr, "sluice run: %s\n", why);
}

/* Appends a message; false: out of memory. */
static bool add_message(json_t *messages, const char *role, const char *text, size_t len) {
    json_t *m = json_object();
    bool ok = m && json_object_set_new(m, "role", json_string(role)) == 0 &&
              json_object_set_new(m, "content", json_stringn(text, len)) == 0;
    if (ok)
        return json_array_append_new(messages, m) == 0;
    json_decref(m);
    return false;
}

static bool keep_answer(struct sl_run_chat *c, const struct answer *a) {
    if (a->text.failed || a->thoughts.failed ||
        !add_message(c->messages, "assistant", a->text.ptr ? a->text.ptr : "", a->text.len))
        return false;
    json_t *m = json_array_get(c->messages, json_array_size(c->messages) - 1);
    return !a->thoughts.len ||
           json_object_set_new(m, "reasoning_content",
                               json_stringn(a->thoughts.ptr, a->thoughts.len)) == 0;
}

static void drop_last(struct sl_run_chat *c) {
    json_array_remove(c->messages, json_array_size(c->messages) - 1);
}

/* Waits for the answer to a request that was submitted, and keeps it. */
static enum sl_run_outcome take_answer(struct sl_run_chat *c, struct sl_gen_request *r,
                                       struct answer *a) {
    wait_done(c->o.engine, r, a);
    enum sl_status status = end_text(a);
    putchar('\n');
    fflush(stdout); /* before what goes to stderr, also when stdout is no terminal */
    if (a->result.reason == SL_FINISH_ERROR || status != SL_OK) {
        complain(status != SL_OK ? sl_status_text(status) : a->result.err.text);
        return SL_RUN_FAILED;
    }
    bool interrupted = a->result.reason == SL_FINISH_CANCELED && !a->stopped;
    if (interrupted)
        fprintf(stderr, "[interrupted]\n");
    else if (a->result.reason == SL_FINISH_LENGTH && !c->max_tokens)
        fprintf(stderr, "[the context is full: /clear makes room, -c sets its size]\n");
    if (!c->quiet)
        print_speed(c, &a->result, r->sampling.seed);
    if (!keep_answer(c, a)) {
        complain("out of memory");
        return SL_RUN_FAILED;
    }
    return interrupted ? SL_RUN_STOPPED : SL_RUN_ANSWERED;
}

/* Answers the messages as they are, and appends the answer. */
static enum sl_run_outcome answer(struct sl_run_chat *c) {
    enum sl_run_outcome outcome = SL_RUN_FAILED;
    struct sl_ids ids = {0};
    struct sl_err err = {""};
    struct answer a = {.sink = {push, NULL, finish}, .chat = c};
    pthread_mutex_init(&a.lock, NULL);
    sl_cond_init(&a.cond);
    sl_run_interrupted = 0;
    enum sl_status status = render(c, &a, &ids, &err);
    struct sl_gen_request r = {.prompt = ids.ids,
                               .n_prompt = (uint32_t)ids.n,
                               .max_tokens = c->max_tokens,
                               .sampling = c->sampling,
                               .eog = c->model.eog,
                               .n_eog = c->model.n_eog,
                               .sink = &a.sink};
    r.sampling.seed += c->n_again;
    if (status == SL_OK) {
        status = sl_engine_submit(c->o.engine, &r, &err);
        if (status == SL_AGAIN)
            (void)sl_fail(&err, status, "the engine is busy");
    }
    if (status == SL_OK)
        outcome = take_answer(c, &r, &a);
    else if (status == SL_ERR_CANCELED)
        outcome = SL_RUN_STOPPED;
    else
        complain(err.text[0] ? err.text : sl_status_text(status));
    if (status == SL_ERR_CANCELED)
        fprintf(stderr, "[interrupted]\n");
    sl_splitter_destroy(&a.splitter);
    free(a.header);
    sl_ids_release(&ids);
    sl_detok_release(&a.detok);
    sl_stop_state_release(&a.stop);
    sl_buf_release(&a.text);
    sl_buf_release(&a.thoughts);
    pthread_cond_destroy(&a.cond);
    pthread_mutex_destroy(&a.lock);
    return outcome;
}

enum sl_run_outcome sl_run_ask(struct sl_run_chat *c, const char *text, size_t len) {
    size_t before = json_array_size(c->messages);
    c->n_again = 0;
    if (!add_message(c->messages, "user", text, len)) {
        complain("out of memory");
        return SL_RUN_FAILED;
    }
    enum sl_run_outcome outcome = answer(c);
    /* Drops a turn that has no answer, so that the conversation can go on. */
    while (json_array_size(c->messages) > before && json_array_size(c->messages) < before + 2)
        drop_last(c);
    return outcome;
}

static bool is_last(const struct sl_run_chat *c, const char *role) {
    const json_t *last = json_array_get(c->messages, json_array_size(c->messages) - 1);
    const char *is = json_string_value(json_object_get(last, "role"));
    return is && strcmp(is, role) == 0;
}

enum sl_run_outcome sl_run_again(struct sl_run_chat *c) {
    size_t n = json_array_size(c->messages);
    json_t *was = is_last(c, "assistant") ? json_incref(json_array_get(c->messages, n - 1)) : NULL;
    if (!was || n < 2) {
        complain("there is no answer to regenerate");
        json_decref(was);
        return SL_RUN_FAILED;
    }
    drop_last(c);
    c->n_again++;
    enum sl_run_outcome outcome = answer(c);
    if (json_array_size(c->messages) < n)
        json_array_append(c->messages, was);
    json_decref(was);
    return outcome;
}

/* ---- the conversation ---- */

const char *sl_run_system(const struct sl_run_chat *c) {
    const json_t *first = json_array_get(c->messages, 0);
    const char *role = json_string_value(json_object_get(first, "role"));
    return role && strcmp(role, "system") == 0
               ? json_string_value(json_object_get(first, "content"))
               : NULL;
}

bool sl_run_set_system(struct sl_run_chat *c, const char *text) {
    json_t *one = json_array();
    bool ok = one && (!text || !*text || add_message(one, "system", text, strlen(text)));
    if (ok && sl_run_system(c))
        json_array_remove(c->messages, 0);
    if (ok && json_array_size(one))
        ok = json_array_insert(c->messages, 0, json_array_get(one, 0)) == 0;
    json_decref(one);
    return ok;
}

void sl_run_clear(struct sl_run_chat *c) {
    size_t keep = sl_run_system(c) ? 1 : 0;
    while (json_array_size(c->messages) > keep)
        drop_last(c);
    c->n_again = 0;
}

static enum sl_status read_model(struct sl_run_chat *c, struct sl_err *err) {
    const struct sl_gguf *g = c->o.model->gguf;
    struct sl_str source = {0};
    SL_TRY(sl_tokenizer_create(g, &c->tok, err));
    enum sl_status status = sl_gguf_get_str(g, "tokenizer.chat_template", &source, err);
    if (status != SL_OK && status != SL_AGAIN)
        return status;
    SL_TRY(sl_chat_init(&c->model, c->tok, source.ptr, source.len, NULL, err));
    if (!c->raw && !c->model.template)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "the model's chat template cannot be used (--raw does without): %.300s",
                       c->model.template_err.text);
    const char *text = source.len ? source.ptr : "";
    c->format = sl_answer_format_find(c->tok, text, source.len, c->model.shown);
    c->thinks = sl_answer_format_thinks(c->format, c->tok, text, source.len, c->model.shown);
    SL_TRY(sl_answer_format_markers(c->format, c->tok, &c->markers));
    if (c->raw || !c->model.fallback)
        return SL_OK;
    sl_warn("the model file has no chat template: using ChatML, which may not be what the model "
            "was trained on");
    return sl_stop_add(&c->stop, sl_chat_fallback_stop, strlen(sl_chat_fallback_stop), err);
}

bool sl_run_chat_open(struct sl_run_chat *c, const char *system) {
    struct sl_err err = {""};
    c->messages = json_array();
    enum sl_status status = c->messages ? read_model(c, &err) : SL_ERR_NOMEM;
    if (status == SL_OK && !sl_run_set_system(c, system))
        status = sl_fail(&err, SL_ERR_NOMEM, "out of memory");
    if (status != SL_OK)
        complain(err.text[0] ? err.text : sl_status_text(status));
    return status == SL_OK;
}

void sl_run_chat_close(struct sl_run_chat *c) {
    json_decref(c->messages);
    sl_stop_set_release(&c->stop);
    sl_ids_release(&c->markers);
    sl_chat_release(&c->model);
    sl_close_engine(&c->o);
    sl_tokenizer_destroy(&c->tok);
}
