/* What all commands say on the terminal in the same way: errors of usage, progress, and sizes as
 * people write them. */
#ifndef SL_CLI_TERMINAL_H
#define SL_CLI_TERMINAL_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Prints what is wrong with a command's options on stderr, and where to read about them. Returns 2,
 * exit code. command: NULL = the program itself. */
int sl_usage_error(const char *command, const char *fmt, ...) SL_PRINTF(2, 3);

/* "\rtext" on stderr if that is a terminal; an empty text clears the line. */
void sl_show_progress(const char *fmt, ...) SL_PRINTF(1, 2);

/* "1.5GiB" to bytes; false if it is not a size. */
bool sl_parse_bytes(const char *text, uint64_t *out_bytes);
/* "4.76 GiB" into buf (at least 16 bytes); returns buf. */
const char *sl_format_bytes(uint64_t bytes, char *buf);

#endif
