/* Tokens of a user at a repository's host: from a file or the environment, never the command
 * line. */
#ifndef SL_PULL_TOKEN_H
#define SL_PULL_TOKEN_H

#include "common/status.h"

#include <stddef.h>

#define SL_PULL_TOKEN_BYTES 513u

/* Fills out ("" = there is none). file: its first line; NULL: SLUICE_HF_TOKEN, else HF_TOKEN.
 * The caller wipes out after use. */
enum sl_status sl_pull_token(const char *file, char out[SL_PULL_TOKEN_BYTES],
                             struct sl_err *err) SL_MUST_CHECK;

#endif
