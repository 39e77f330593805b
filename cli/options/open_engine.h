/* Shared by the commands that compute: opening a model and an engine, with progress on the
 * terminal. */
#ifndef SL_CLI_OPEN_ENGINE_H
#define SL_CLI_OPEN_ENGINE_H

#include "cli/options/cluster_options.h"
#include "cli/options/terminal.h"
#include "cli/process/process_memory.h"
#include "engine/engine.h"

struct sl_opened {
    struct sl_model *model;
    struct sl_engine *engine;
    struct sl_cluster_use cluster;
};

/* Opens the model's file; false after printing an error. */
bool sl_open_model(const char *command, const char *path, struct sl_opened *out);
/* Plans, loads and starts the engine. Call it when everything else that the command needs is open:
 * its memory is measured and counts (process_* of config are filled; more has further rows of the
 * caller, NULL = none). options: of them those about other machines. Progress goes to stderr if
 * that is a terminal. False after an error message. */
bool sl_start_engine(const char *command, const struct sl_engine_options *options,
                     const struct sl_engine_config *config, struct sl_process_memory *more,
                     struct sl_opened *o);
void sl_close_engine(struct sl_opened *o);

#endif
