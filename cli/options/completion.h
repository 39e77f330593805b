/* What shells complete (deploy/completion), from the tables of commands and options. */
#ifndef SL_CLI_COMPLETION_H
#define SL_CLI_COMPLETION_H

#include "cli/options/args.h"

#include <stddef.h>

/* The first word of a command's line that asks for its options instead of running it. */
#define SL_LIST_OPTIONS  "--list-options"
#define SL_LIST_COMMANDS "--list-commands" /* the same of the program */

/* A line for each option on stdout, of five fields with tabs between, "-" for an empty one: the
 * option, its letter, what follows (none, model, file, folder, word: one of the next field's, or
 * text), words that may follow, what it is about. */
void sl_completion_print(const struct sl_command *command);

/* The words that an option accepts, separated by spaces, into buf; "": they cannot be listed. */
const char *sl_completion_words(const char *option, char *buf, size_t size);

#endif
