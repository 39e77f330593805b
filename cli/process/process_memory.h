/* The memory of a command outside the engine, for the memory plan: what it already holds, measured,
 * and what it may take later. */
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

/* How much of a budget a measurement may use while there is no engine; UINT64_MAX: no budget. */
uint64_t sl_process_memory_room(uint64_t ram_bytes);

/* Sets malloc up to return freed memory and keep gaps small. Call it before any thread starts. */
void sl_process_memory_tune(void);

#endif
