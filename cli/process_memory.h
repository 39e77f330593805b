/* What a command holds beside the engine, for the memory plan: what is there already, measured, and
 * what may come. */
#ifndef SL_CLI_PROCESS_MEMORY_H
#define SL_CLI_PROCESS_MEMORY_H

#include "engine/engine.h"

#define SL_PROCESS_ROWS 8u

struct sl_process_memory {
    struct sl_plan_row rows[SL_PROCESS_ROWS];
    uint32_t n;
    uint64_t bytes; /* of all rows */
};

void sl_process_memory_add(struct sl_process_memory *m, const char *what, uint64_t bytes,
                           const char *fmt, ...) SL_PRINTF(4, 5);
/* Measures what the process holds now (call it when everything but the engine is open), adds it as
 * the first row, and gives the rows to the configuration; m is borrowed until create returns. */
void sl_process_memory_apply(struct sl_process_memory *m, struct sl_engine_config *config);

/* What a measurement while no engine is there may take of a budget; UINT64_MAX: none was given. */
uint64_t sl_process_memory_room(uint64_t ram_bytes);

/* malloc's settings, so that what is freed goes back and gaps stay small: before any thread. */
void sl_process_memory_tune(void);

#endif
