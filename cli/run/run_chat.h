/* The conversation of `sluice run`: its messages, how the model is asked, what an answer looks like
 * on the terminal. Main thread, but for what an answer's sink does. */
#ifndef SL_CLI_RUN_CHAT_H
#define SL_CLI_RUN_CHAT_H

#include "cli/options/args.h"
#include "cli/options/open_engine.h"
#include "model/chat/answer_format.h"
#include "model/chat/chat.h"
#include "server/answer/stop.h"

#include <jansson.h>
#include <signal.h>

struct sl_run_chat {
    const struct sl_command *command; /* whose options /set changes */
    struct sl_opened o;
    struct sl_tokenizer *tok;
    struct sl_chat model;
    const struct sl_answer_format *format;
    struct sl_ids markers;   /* control tokens that the splitter reads */
    struct sl_stop_set stop; /* of a model without a template */
    json_t *messages;        /* as in a request to the server */
    struct sl_sampling sampling;
    uint32_t max_tokens, ctx_tokens;
    const char *think; /* --think */
    uint32_t n_again;  /* answers made again in this place, each with the next seed */
    bool thinks;       /* the model writes reasoning */
    bool raw;          /* no template */
    bool quiet, verbose;
};

/* Set by Ctrl-C, once sl_run_catch_interrupts was called. */
extern volatile sig_atomic_t sl_run_interrupted;
void sl_run_catch_interrupts(void);

/* The tokenizer, the template and how answers are read, of an open model; messages, with a system
 * message first unless `system` is NULL or empty. False after an error message. */
bool sl_run_chat_open(struct sl_run_chat *c, const char *system);
/* Also for a chat that is not open, or only in part. */
void sl_run_chat_close(struct sl_run_chat *c);

/* Whether `word` is something that a model can be told about thinking: on, off, or how much. */
bool sl_run_is_think(const char *word);

/* The system message, or NULL. */
const char *sl_run_system(const struct sl_run_chat *c);
/* NULL or empty: none. False: out of memory. */
bool sl_run_set_system(struct sl_run_chat *c, const char *text);
/* Forgets all but the system message. */
void sl_run_clear(struct sl_run_chat *c);

enum sl_run_outcome { SL_RUN_ANSWERED, SL_RUN_STOPPED, SL_RUN_FAILED };
/* Says `text` and prints the answer; both become messages, unless it failed. Stopped: by Ctrl-C;
 * what was said up to there stays. */
enum sl_run_outcome sl_run_ask(struct sl_run_chat *c, const char *text, size_t len);
/* Answers the latest message again, in place of the last answer. */
enum sl_run_outcome sl_run_again(struct sl_run_chat *c);

/* Whether a line is a command: '/' and a word, no path. */
bool sl_run_is_command(const char *line);
/* Does what a command says. False: the conversation ends. *out_failed: it could not be
 * done, and why was printed. */
bool sl_run_command(struct sl_run_chat *c, const char *line, bool *out_failed);

/* The conversation as the body of a request: for /save. The file is new, empty or holds one
 * already, and is replaced as a whole. False: err says why. */
bool sl_run_save(const struct sl_run_chat *c, const char *path, struct sl_err *err);
/* Reads one in place of the conversation, which stays if it cannot be read. */
bool sl_run_load(struct sl_run_chat *c, const char *path, struct sl_err *err);

#endif
