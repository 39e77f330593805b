/* What a terminal is shown: colours, where they are wanted, and no control characters from a model.
 */
#ifndef SL_COMMON_TERMINAL_H
#define SL_COMMON_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum sl_style { SL_STYLE_DIM, SL_STYLE_BOLD, SL_STYLE_RED, SL_STYLE_YELLOW, SL_STYLE_GREEN };

/* Whether to use colours in this file: it is a terminal that has them, and NO_COLOR is unset or
 * empty. Source: no-color.org. */
bool sl_terminal_colours(FILE *f);
/* The sequence that begins a style in this file, and the one that ends any; "" without colours. */
const char *sl_style_begin(FILE *f, enum sl_style style);
const char *sl_style_end(FILE *f);

/* Writes well-formed UTF-8 that somebody else made, as a model's answer. On a terminal control
 * characters but line feed and tab become U+FFFD: they could move the cursor, change its title or
 * answer for its user. Elsewhere the bytes are as they are. */
void sl_terminal_put(FILE *f, const char *text, size_t len);

#endif
