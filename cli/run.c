/* sluice run: chats in the terminal, or answers one prompt. */
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/open_engine.h"
#include "common/buf.h"
#include "common/clock.h"
#include "common/cond.h"
#include "common/log.h"
#include "model/chat/chat.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How often it is looked whether ctrl-C was pressed. */
#define INTERRUPT_NS 50000000u

struct chat {
    struct sl_opened o;
    struct sl_tokenizer *tok;
    struct sl_chat model;
    bool raw; /* no template */
    json_t *messages;
    struct sl_sampling sampling;
    uint32_t max_tokens;
    bool quiet;
};

/* One answer: what the scheduler thread writes, and how the main thread waits for its end. */
struct answer {
    struct sl_token_sink sink; /* first: the engine's pointer is ours */
    const struct sl_tokenizer *tok;
    struct sl_detok detok;
    struct sl_buf text;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool done;
    struct sl_gen_result result;
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig) {
    (void)sig;
    interrupted = 1;
}

static void emit(struct answer *a, struct sl_str s) {
    fwrite(s.ptr, 1, s.len, stdout);
    fflush(stdout);
    sl_buf_put(&a->text, s.ptr, s.len);
}

static enum sl_status push(struct sl_token_sink *s, const struct sl_token *token) {
    struct answer *a = (struct answer *)s;
    struct sl_str out;
    if (token->eog)
        return SL_OK;
    enum sl_status status = sl_detok_push(&a->detok, a->tok, token->id, false, &out);
    if (status == SL_OK)
        emit(a, out);
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
        if (interrupted && !canceled && !a->done) {
            canceled = true;
            /* The engine may call finish at once, which takes the lock. */
            pthread_mutex_unlock(&a->lock);
            sl_engine_cancel(e, r);
            pthread_mutex_lock(&a->lock);
        }
    }
    pthread_mutex_unlock(&a->lock);
}

static enum sl_status poll_interrupt(void *ctx, struct sl_err *err) {
    (void)ctx;
    return interrupted ? sl_fail(err, SL_ERR_CANCELED, "interrupted") : SL_OK;
}

static bool render(struct chat *c, const char *line, struct sl_ids *ids) {
    struct sl_err err = {""};
    if (c->raw)
        return sl_tokenizer_encode(c->tok, line, strlen(line),
                                   SL_ENCODE_ADD_SPECIAL | SL_ENCODE_PARSE_SPECIAL, ids) == SL_OK;
    struct sl_template_limits limits = sl_template_default_limits;
    limits.watch.poll = poll_interrupt;
    interrupted = 0;
    struct sl_chat_vars vars = {0};
    struct sl_rendered r = {0};
    enum sl_status status =
        sl_chat_vars_init(&c->model, c->messages, NULL, NULL, true, &vars)
            ? sl_template_render_own(c->model.template, vars.all, vars.own, &limits, &r, &err)
            : SL_ERR_NOMEM;
    sl_chat_vars_release(&vars);
    if (status == SL_OK)
        status = sl_chat_encode(&c->model, &r, NULL, ids);
    sl_rendered_release(&r);
    if (status != SL_OK)
        fprintf(stderr, "sluice run: %s\n", err.text[0] ? err.text : sl_status_text(status));
    return status == SL_OK;
}

static void print_speed(const struct sl_gen_result *r) {
    double prefill = (double)r->prefill_ns * 1e-9, decode = (double)r->decode_ns * 1e-9;
    /* Tokens found in the prefix cache took no time. */
    uint32_t n_computed = r->n_prompt - r->n_cached;
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
}

/* Asks one question; false when the program should end with an error. */
static bool ask(struct chat *c, const char *line) {
    bool ok = false;
    struct sl_ids ids = {0};
    struct answer a = {.sink = {push, NULL, finish}, .tok = c->tok};
    pthread_mutex_init(&a.lock, NULL);
    sl_cond_init(&a.cond);
    json_array_append_new(c->messages, json_pack("{s:s,s:s}", "role", "user", "content", line));
    if (!render(c, line, &ids))
        goto out;
    struct sl_gen_request r = {.prompt = ids.ids,
                               .n_prompt = (uint32_t)ids.n,
                               .max_tokens = c->max_tokens,
                               .sampling = c->sampling,
                               .eog = c->model.eog,
                               .n_eog = c->model.n_eog,
                               .sink = &a.sink};
    struct sl_err err;
    interrupted = 0;
    enum sl_status status = sl_engine_submit(c->o.engine, &r, &err);
    if (status != SL_OK) {
        fprintf(stderr, "sluice run: %s\n", status == SL_AGAIN ? "the engine is busy" : err.text);
        goto out;
    }
    wait_done(c->o.engine, &r, &a);
    struct sl_str rest;
    if (sl_detok_finish(&a.detok, &rest) == SL_OK)
        emit(&a, rest);
    putchar('\n');
    fflush(stdout); /* before what goes to stderr, also when stdout is no terminal */
    if (a.result.reason == SL_FINISH_ERROR) {
        fprintf(stderr, "sluice run: %s\n", a.result.err.text);
        goto out;
    }
    if (a.result.reason == SL_FINISH_CANCELED)
        fprintf(stderr, "[interrupted]\n");
    if (!c->quiet)
        print_speed(&a.result);
    json_array_append_new(c->messages, json_pack("{s:s,s:s%}", "role", "assistant", "content",
                                                 a.text.ptr ? a.text.ptr : "", a.text.len));
    ok = true;
out:
    if (!ok) /* so that the conversation can go on without it */
        json_array_remove(c->messages, json_array_size(c->messages) - 1);
    sl_ids_release(&ids);
    sl_detok_release(&a.detok);
    sl_buf_release(&a.text);
    pthread_cond_destroy(&a.cond);
    pthread_mutex_destroy(&a.lock);
    return ok;
}

static void converse(struct chat *c, const char *system) {
    char *line = NULL;
    size_t cap = 0;
    bool tty = isatty(STDIN_FILENO);
    if (tty)
        fprintf(stderr, "Ctrl-C stops an answer, Ctrl-D ends; /clear starts afresh.\n");
    for (;;) {
        if (tty)
            fprintf(stderr, "\n> ");
        ssize_t n = getline(&line, &cap, stdin);
        if (n < 0) {
            if (errno == EINTR && interrupted) {
                interrupted = 0;
                clearerr(stdin);
                fprintf(stderr, "\n[Ctrl-D ends]");
                continue;
            }
            break;
        }
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r'))
            line[--n] = '\0';
        if (n == 0)
            continue;
        if (strcmp(line, "/clear") == 0) {
            json_array_clear(c->messages);
            if (system)
                json_array_append_new(c->messages,
                                      json_pack("{s:s,s:s}", "role", "system", "content", system));
            continue;
        }
        ask(c, line);
    }
    if (tty)
        fputc('\n', stderr);
    free(line);
}

static bool open_chat(struct chat *c) {
    struct sl_err err = {""};
    const struct sl_gguf *g = c->o.model->gguf;
    struct sl_str source = {0};
    enum sl_status status = sl_tokenizer_create(g, &c->tok, &err);
    if (status == SL_OK)
        status = sl_gguf_get_str(g, "tokenizer.chat_template", &source, &err);
    if (status == SL_OK || status == SL_AGAIN)
        status = sl_chat_init(&c->model, c->tok, source.ptr, source.len, NULL, &err);
    if (status == SL_OK && !c->raw && !c->model.template)
        status = sl_fail(&err, SL_ERR_UNSUPPORTED,
                         "the model's chat template cannot be used (--raw does without): %.300s",
                         c->model.template_err.text);
    if (status == SL_OK && !c->raw && c->model.fallback)
        sl_warn(
            "the model file has no chat template: using ChatML, which may not be what the model "
            "was trained on");
    if (status != SL_OK)
        fprintf(stderr, "sluice run: %s\n", err.text[0] ? err.text : sl_status_text(status));
    return status == SL_OK;
}

int sl_cmd_run(int argc, char **argv) {
    const char *model = NULL, *prompt = NULL, *system = NULL;
    struct sl_engine_config config = {.parallel = 1, .queue_max = 1};
    struct sl_engine_options memory = SL_ENGINE_OPTIONS_DEFAULT;
    struct chat c = {.sampling = sl_sampling_default};
    c.sampling.temperature = 0.7f;
    c.sampling.top_p = 0.95f;
    const struct sl_arg args[] = {
        {SL_ARG_STRING, 'm', "--model", "FILE", &model, "the GGUF file (also as the only argument)",
         false},
        {SL_ARG_TEXT, 'p', "--prompt", "TEXT", &prompt, "ask this, print the answer, end", false},
        {SL_ARG_TEXT, 's', "--system", "TEXT", &system, "system message", false},
        {SL_ARG_FLAG, 0, "--raw", NULL, &c.raw, "continue the text as it is: no chat template",
         false},
        {SL_ARG_U32, 'n', "--max-tokens", "N", &c.max_tokens,
         "tokens per answer; 0 = until the context is full (default 0)", false},
        {SL_ARG_FLAG, 'q', "--quiet", NULL, &c.quiet, "only the answers", false},
        {SL_ARG_HEADING, 0, "Sampling", NULL, NULL, NULL, false},
        {SL_ARG_F32, 0, "--temp", "X", &c.sampling.temperature,
         "temperature; 0 = greedy (default 0.7)", false},
        {SL_ARG_F32, 0, "--top-p", "X", &c.sampling.top_p, "nucleus; 1 = off (default 0.95)",
         false},
        {SL_ARG_U32, 0, "--top-k", "N", &c.sampling.top_k, "0 = off (default 0)", false},
        {SL_ARG_F32, 0, "--min-p", "X", &c.sampling.min_p, "0 = off (default 0)", false},
        {SL_ARG_F32, 0, "--repeat-penalty", "X", &c.sampling.repeat_penalty, "1 = off (default 1)",
         false},
        {SL_ARG_U64, 0, "--seed", "N", &c.sampling.seed,
         "the same seed, the same answer (default 0)", false},
        {SL_ARG_HEADING, 0, "Engine", NULL, NULL, NULL, false},
        {SL_ARG_U32, 't', "--threads", "N", &config.n_threads, "0 = all CPUs (default 0)", false},
        {SL_ARG_U32, 'c', "--ctx", "N", &config.ctx_tokens,
         "context, tokens; 0 = the model's, at most 8192 (default 0)", false},
        {SL_ARG_OUTPUT, 0, "--trace", "FILE", &config.trace_file,
         "write a timeline of up to 256 MiB for Perfetto\n"
         "(ui.perfetto.dev) or chrome://tracing; replaces an earlier trace, no other file",
         false},
        {SL_ARG_OUTPUT, 0, "--record-routes", "FILE", &config.record_routes,
         "write which experts each token chose, for `make replay TRACE=FILE`", false},
        SL_ENGINE_OPTIONS(&memory),
    };
    static const struct sl_arg_limit limits[] = {
        SL_ENGINE_LIMITS,
        {"--temp", 0, INFINITY, NULL},
        {"--top-p", 0, 1, NULL},
        {"--min-p", 0, 1, NULL},
        {"--repeat-penalty", SL_ARG_ABOVE_0, INFINITY, NULL},
    };
    const struct sl_command command = {
        .name = "run",
        .about = "Chats with a model in the terminal; answers are streamed.",
        .usage = "sluice run -m MODEL [-p PROMPT] [options]",
        .notes = "Without -p, each line of standard input is a turn of one conversation.\n",
        .args = args,
        .n_args = SL_COUNTOF(args),
        .help_of = sl_engine_options_help,
        .limits = limits,
        .n_limits = SL_COUNTOF(limits),
        .model = &model,
    };
    int rc = sl_args_parse(&command, argc, argv);
    if (rc >= 0)
        return rc;
    if (!sl_engine_options_apply("run", &memory, &config))
        return 2;
    sl_log_set_level(SL_LOG_WARN); /* the terminal belongs to the conversation */
    if (!sl_open_model("run", model, &c.o))
        return 1;
    rc = 1;
    c.messages = json_array();
    /* The engine last: its memory plan counts what the process holds by then. */
    if (c.messages && open_chat(&c) && sl_start_engine("run", &memory, &config, NULL, &c.o)) {
        if (system)
            json_array_append_new(c.messages,
                                  json_pack("{s:s,s:s}", "role", "system", "content", system));
        /* No SA_RESTART: an interrupt at the prompt must end the read. */
        struct sigaction action = {.sa_handler = on_interrupt};
        sigaction(SIGINT, &action, NULL);
        rc = 0;
        if (prompt)
            rc = !ask(&c, prompt) ? 1 : interrupted ? 130 : 0;
        else
            converse(&c, system);
    }
    json_decref(c.messages);
    sl_chat_release(&c.model);
    sl_close_engine(&c.o);
    sl_tokenizer_destroy(&c.tok);
    return rc;
}
