/* What the commands that compute share: opening a model and an engine with progress on the
 * terminal.
 */
#ifndef SL_CLI_OPEN_ENGINE_H
#define SL_CLI_OPEN_ENGINE_H

#include "engine/engine.h"

struct sl_opened {
    struct sl_model *model;
    struct sl_engine *engine;
};

/* "f16" or "q8_0"; false after printing an error. NULL = f16. */
bool sl_parse_kv_type(const char *command, const char *text, enum sl_dtype *out_dtype);
/* Opens both; false after printing an error. Progress goes to stderr when that is a terminal. */
bool sl_open_engine(const char *command, const char *path, const struct sl_engine_config *config,
                    struct sl_opened *out);
/* The same in two parts, for a configuration that depends on the model. */
bool sl_open_model(const char *command, const char *path, struct sl_opened *out);
bool sl_start_engine(const char *command, const struct sl_engine_config *config,
                     struct sl_opened *o);
void sl_close_engine(struct sl_opened *o);

/* "\rtext" on stderr when that is a terminal; an empty text clears the line. */
void sl_show_progress(const char *fmt, ...) SL_PRINTF(1, 2);

#endif
