/* Reads the turns of a conversation from standard input: a line each, edited where that is a
 * terminal, or several lines between triple quotation marks or in one paste. One thread. */
#ifndef SL_CLI_TURN_READER_H
#define SL_CLI_TURN_READER_H

#include "common/buf.h"

#include <signal.h>
#include <stdbool.h>

#define SL_MAX_TURN_BYTES ((size_t)64 << 20)

enum sl_turn_event {
    SL_TURN_TEXT,        /* something was said */
    SL_TURN_INTERRUPTED, /* Ctrl-C at the prompt; what was typed is dropped */
    SL_TURN_FAILED,      /* what was said cannot be used: text says why */
    SL_TURN_END,         /* of the input */
};

struct sl_turn {
    enum sl_turn_event event;
    bool command;     /* it begins with '/', outside quotation marks */
    const char *text; /* valid until the next turn; NUL-terminated, well-formed UTF-8 */
    size_t len;
};

struct sl_turn_reader;

/* history: a file that keeps what was typed, made if it is not there, with its folder; NULL: none.
 * interrupted: as SIGINT's handler sets it; must outlive the reader. On a terminal this sets the
 * locale of characters, so call it before other threads start. NULL: out of memory. */
struct sl_turn_reader *sl_turn_reader_open(const char *history,
                                           const volatile sig_atomic_t *interrupted);
void sl_turn_reader_close(struct sl_turn_reader **r);
/* Whether somebody types: standard input is a terminal, and standard error or output is one. */
bool sl_turn_reader_edits(const struct sl_turn_reader *r);
/* Blocks. */
struct sl_turn sl_turn_reader_next(struct sl_turn_reader *r);

#endif
