/* A model that is named by where it can be pulled from: -m hf:OWNER/NAME[:FILE]. */
#ifndef SL_CLI_PULLED_MODEL_H
#define SL_CLI_PULLED_MODEL_H

#include "pull/pull.h"

/* The defaults of pulling. */
#define SL_PULL_OPTIONS_DEFAULT                                                                    \
    { .connections = 4, .retries = 8, .timeout_s = 60 }

/* Where *model begins with "hf:", pulls it unless it is there, and points *model to its file
 * (static storage). -1, or the exit code after an error message. Main thread. */
int sl_pulled_model(const char *command, const char **model);

/* Draws progress on stderr if that is a terminal; sl_pull_options.progress. */
void sl_pull_draw(void *ctx, const struct sl_pull_progress *p);
/* Says why it failed; the exit code: 130 when a signal came, else 1, or 2 for a source or option
 * that is wrong. */
int sl_pull_report(const char *command, enum sl_status status, const struct sl_err *err);

#endif
