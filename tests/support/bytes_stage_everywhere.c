/* Linked with --wrap=sl_engine_create: every engine that the program makes speaks to its stages in
 * bytes. */
#include "tests/support/bytes_stage.h"

#include "engine/engine.h"

extern enum sl_status __real_sl_engine_create(const struct sl_model *model,
                                              const struct sl_engine_config *config,
                                              struct sl_progress *progress,
                                              struct sl_engine **out_engine, struct sl_err *err);
extern enum sl_status __wrap_sl_engine_create(const struct sl_model *model,
                                              const struct sl_engine_config *config,
                                              struct sl_progress *progress,
                                              struct sl_engine **out_engine, struct sl_err *err);

enum sl_status __wrap_sl_engine_create(const struct sl_model *model,
                                       const struct sl_engine_config *config,
                                       struct sl_progress *progress, struct sl_engine **out_engine,
                                       struct sl_err *err) {
    struct sl_engine_config c = *config;
    c.stage_source = &bytes_stage_source;
    return __real_sl_engine_create(model, &c, progress, out_engine, err);
}
