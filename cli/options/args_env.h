/* Options from the environment: SLUICE_MAX_TOKENS is --max-tokens, of every command that has it. */
#ifndef SL_CLI_ARGS_ENV_H
#define SL_CLI_ARGS_ENV_H

#include "cli/options/args.h"

#define SL_VARIABLE_BYTES 64u

/* The variable's name into buf; false: the option has none, because it is a heading or a secret. */
bool sl_args_variable(const struct sl_arg *arg, char buf[SL_VARIABLE_BYTES]);
/* What it is set to; NULL: nothing, or it is empty. A SLUICE_PORT of the form tcp://HOST:PORT is
 * none of ours: Kubernetes sets it for a service that is named sluice. */
const char *sl_args_variable_value(const char *name);
/* "1", "on", "true", "yes", and their opposites; false: neither. */
bool sl_parse_switch(const char *text, bool *out_on);

#endif
