/* What was typed, from run to run: a file of JSON strings, one a line, readable by its owner
 * alone. Several programs may add to it at once. */
#ifndef SL_CLI_TURN_HISTORY_H
#define SL_CLI_TURN_HISTORY_H

#include <stdbool.h>
#include <stddef.h>

#define SL_HISTORY_ENTRIES 1000u

/* sluice/history in $XDG_STATE_HOME or ~/.local/state, into buf; NULL: there is no such place. */
const char *sl_history_default(char *buf, size_t size);

/* Calls take for each of the last SL_HISTORY_ENTRIES entries, the oldest first; lines that are no
 * entry are passed over. A file that has grown large is cut down to those. */
void sl_history_load(const char *path, void (*take)(void *ctx, const char *text), void *ctx);
/* Whether it may be written: it is not there, empty, or a history. */
bool sl_history_is_ours(const char *path);
/* Adds an entry; makes the folder. False, with errno set: it could not be kept. */
bool sl_history_add(const char *path, const char *text);

#endif
