/* What --help prints: options and their texts in lines of 80 columns. */
#ifndef SL_CLI_HELP_H
#define SL_CLI_HELP_H

#include "cli/options/args.h"

#include <stdio.h>

#define SL_HELP_COLUMNS 80

/* Prints words of a text from column `at` on, which is where the line is, in lines that begin there
 * and, if their words allow it, end by SL_HELP_COLUMNS. Line feeds are spaces. Ends the line. */
void sl_help_wrap(FILE *f, const char *text, int at);
/* Prints paragraphs so. Lines that begin with a space stay as they are. */
void sl_help_paragraphs(FILE *f, const char *text);
void sl_help_print(const struct sl_command *command);

#endif
