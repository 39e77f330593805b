/* sluice run: chats in the terminal, or answers one prompt. */
#include "cli/options/args.h"
#include "cli/options/commands.h"
#include "cli/options/engine_options.h"
#include "cli/run/run_chat.h"
#include "cli/run/turn_history.h"
#include "cli/run/turn_reader.h"
#include "common/buf.h"
#include "common/log.h"
#include "common/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct options {
    const char *prompt, *file, *system, *history;
    char default_history[4096];
};

static bool wrong_file(const char *path, const char *why) {
    fprintf(stderr, "sluice run: --file %s: %s\n", path, why);
    return false;
}

/* Appends a file's text, "-": that of standard input. */
static bool read_file(const char *path, struct sl_buf *out) {
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *f = is_stdin ? stdin : fopen(path, "re");
    char some[8192];
    size_t n, from = out->len;
    if (!f)
        return wrong_file(path, strerror(errno));
    while ((n = fread(some, 1, sizeof some, f)) > 0 && out->len - from <= SL_MAX_TURN_BYTES)
        sl_buf_put(out, some, n);
    int error = ferror(f) ? errno : 0;
    if (!is_stdin)
        fclose(f);
    if (error)
        return wrong_file(path, strerror(error));
    if (out->len - from > SL_MAX_TURN_BYTES)
        return wrong_file(path, "larger than 64 MiB, which no context can hold");
    return true;
}

/* -p and -f as one text. False after an error message. */
static bool read_prompt(const struct options *o, struct sl_buf *out) {
    if (o->prompt)
        sl_buf_puts(out, o->prompt);
    if (o->prompt && o->file)
        sl_buf_puts(out, "\n\n");
    if (o->file && !read_file(o->file, out))
        return false;
    while (o->file && out->len && out->ptr[out->len - 1] == '\n')
        out->len--;
    const char *why = NULL;
    if (out->failed)
        why = "out of memory";
    else if (out->len && memchr(out->ptr, '\0', out->len))
        why = "there is a NUL byte in the prompt";
    else if (out->len && sl_utf8_valid_prefix(out->ptr, out->len) < out->len)
        why = "the prompt is not UTF-8";
    if (why)
        fprintf(stderr, "sluice run: %s\n", why);
    return !why;
}

static int answer_one(struct sl_run_chat *c, const struct sl_buf *prompt) {
    enum sl_run_outcome outcome = sl_run_ask(c, prompt->ptr ? prompt->ptr : "", prompt->len);
    return outcome == SL_RUN_FAILED ? 1 : outcome == SL_RUN_STOPPED ? 130 : 0;
}

/* One turn. False: the conversation ends. *rc becomes 1 where it failed, 130 where it was stopped
 * and nobody is there to go on. */
static bool take_turn(struct sl_run_chat *c, const struct sl_turn *t, bool typed, int *rc) {
    enum sl_run_outcome outcome = SL_RUN_ANSWERED;
    bool failed = t->event == SL_TURN_FAILED, more = true;
    if (failed)
        fprintf(stderr, "sluice run: %s\n", t->text);
    else if (t->command && sl_run_is_command(t->text))
        more = sl_run_command(c, t->text, &failed);
    else if (t->len)
        outcome = sl_run_ask(c, t->text, t->len);
    if (typed)
        return more;
    if (failed || outcome == SL_RUN_FAILED)
        *rc = 1;
    if (outcome == SL_RUN_STOPPED || sl_run_interrupted) {
        *rc = 130;
        more = false;
    }
    return more;
}

/* The exit code: of a conversation that is typed 0. */
static int converse(struct sl_run_chat *c, struct sl_turn_reader *reader) {
    bool typed = sl_turn_reader_edits(reader);
    int rc = 0;
    if (typed && !c->quiet)
        fprintf(stderr, "/help lists the commands; Ctrl-C stops an answer, Ctrl-D ends.\n");
    for (bool more = true; more;) {
        sl_run_interrupted = 0;
        if (typed)
            fputc('\n', stderr);
        struct sl_turn turn = sl_turn_reader_next(reader);
        if (turn.event == SL_TURN_END)
            break;
        if (turn.event != SL_TURN_INTERRUPTED) {
            more = take_turn(c, &turn, typed, &rc);
        } else if (typed) {
            fprintf(stderr, "[Ctrl-D or /bye ends]\n");
        } else {
            rc = 130;
            more = false;
        }
    }
    if (typed)
        fputc('\n', stderr);
    return rc;
}

/* Where what is typed is kept; NULL: nowhere. */
static const char *history_file(struct options *o) {
    if (!o->history)
        return sl_history_default(o->default_history, sizeof o->default_history);
    return strcmp(o->history, "off") == 0 ? NULL : o->history;
}

static uint64_t random_seed(void) {
    uint32_t seed = 0; /* of few digits, to be typed again */
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed)
        sl_warn("the system has no random numbers: the seed is 0");
    return seed;
}

int sl_cmd_run(int argc, char **argv) {
    const char *model = NULL;
    static struct options o;
    o = (struct options){.prompt = NULL};
    struct sl_engine_config config = {.parallel = 1, .queue_max = 1};
    struct sl_engine_options memory = SL_ENGINE_OPTIONS_DEFAULT;
    struct sl_run_chat c = {.sampling = sl_sampling_default};
    c.sampling.temperature = 0.7f;
    c.sampling.top_p = 0.95f;
    c.sampling.seed = random_seed();
    const struct sl_arg args[] = {
        {SL_ARG_STRING, 'm', "--model", "FILE", &model,
         "the GGUF file, or hf:OWNER/NAME[:FILE] to download it (also as the only argument)",
         false},
        {SL_ARG_TEXT, 'p', "--prompt", "TEXT", &o.prompt, "ask this, print the answer and exit",
         false},
        {SL_ARG_INPUT, 'f', "--file", "FILE", &o.file,
         "ask with the text of a file, after that of -p if both are given; - is standard input",
         false},
        {SL_ARG_TEXT, 's', "--system", "TEXT", &o.system, "system message", false},
        {SL_ARG_STRING, 0, "--think", "HOW", &c.think,
         "how much the model thinks: on, off, minimal, low, medium, high or max (default: left to "
         "the template)",
         false},
        {SL_ARG_FLAG, 0, "--raw", NULL, &c.raw,
         "continue the text as it is, without the chat template", false},
        {SL_ARG_U32, 'n', "--max-tokens", "N", &c.max_tokens,
         "tokens per answer; 0 = until the context is full (default 0)", false},
        {SL_ARG_FLAG, 'q', "--quiet", NULL, &c.quiet, "print only the answers", false},
        {SL_ARG_FLAG, 'v', "--verbose", NULL, &c.verbose, "print the seed of each answer", false},
        {SL_ARG_KEPT, 0, "--history", "FILE", &o.history,
         "where to keep what is typed, from run to run: a file, or off (default: sluice/history in "
         "$XDG_STATE_HOME or ~/.local/state)",
         false},
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
         "the same seed gives the same answer (default: a random one; -v prints it)", false},
        {SL_ARG_HEADING, 0, "Engine", NULL, NULL, NULL, false},
        {SL_ARG_U32, 't', "--threads", "N", &config.n_threads, "0 = all CPUs (default 0)", false},
        {SL_ARG_U32, 'c', "--ctx", "N", &config.ctx_tokens,
         "context, tokens; 0 = the model's, at most 8192 (default 0)", false},
        {SL_ARG_OUTPUT, 0, "--trace", "FILE", &config.trace_file,
         "write a timeline of up to 256 MiB for Perfetto\n"
         "(ui.perfetto.dev) or chrome://tracing; replaces an earlier trace, no other file",
         false},
        {SL_ARG_OUTPUT, 0, "--record-routes", "FILE", &config.record_routes,
         "record which experts each token chose, for `make replay TRACE=FILE`", false},
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
        .notes =
            "Without -p and -f, each line of standard input is a turn of one conversation. A text\n"
            "of several lines begins and ends with \"\"\"; what is pasted into a terminal is one "
            "turn. /help lists the commands: /bye, /clear, /regenerate, /system, /set, /think, "
            "/save, /load. A line with a space in front of '/' goes to the model. Ctrl-C stops an "
            "answer, not the conversation. If standard input is not a terminal, the exit code is 1 "
            "if a turn failed, 130 if one was stopped.\n",
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
    if (c.think && !sl_run_is_think(c.think))
        return sl_usage_error(
            "run", "--think is '%s': must be on, off, minimal, low, medium, high or max", c.think);
    if (!sl_engine_options_apply("run", &memory, &config))
        return 2;
    sl_log_set_level(SL_LOG_WARN); /* the terminal belongs to the conversation */
    bool once = o.prompt || o.file;
    struct sl_buf text = {0};
    struct sl_turn_reader *reader = NULL;
    c.command = &command;
    rc = 1;
    if (once ? !read_prompt(&o, &text) : false)
        goto out;
    if (!sl_open_model("run", model, &c.o) || !sl_run_chat_open(&c, o.system))
        goto out;
    if (!once && !(reader = sl_turn_reader_open(history_file(&o), &sl_run_interrupted))) {
        fprintf(stderr, "sluice run: out of memory\n");
        goto out;
    }
    /* The engine last: its memory plan counts what the process holds by then. */
    if (!sl_start_engine("run", &memory, &config, NULL, &c.o))
        goto out;
    struct sl_engine_info info;
    sl_engine_info(c.o.engine, &info);
    c.ctx_tokens = info.ctx_tokens;
    sl_run_catch_interrupts();
    rc = once ? answer_one(&c, &text) : converse(&c, reader);
out:
    sl_turn_reader_close(&reader);
    sl_buf_release(&text);
    sl_run_chat_close(&c);
    return rc;
}
