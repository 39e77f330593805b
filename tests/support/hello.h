/* Changes what a stage has said of itself, before anything runs. */
#ifndef SL_TESTS_SUPPORT_HELLO_H
#define SL_TESTS_SUPPORT_HELLO_H

#include "engine/engine.h"
#include "engine/schedule/schedule.h"

static inline void set_rows_alike(struct sl_engine *e, uint32_t stage, bool alike) {
    const struct sl_stage_hello *h = sl_pipeline_hello(e->pipeline, stage);
    ((struct sl_stage_hello *)(uintptr_t)h)->rows_alike = alike;
}

#endif
