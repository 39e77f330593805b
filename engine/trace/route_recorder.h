/* Records which experts each row chose, layer by layer as they ran, in the format of
 * expert_cache/trace.h. Used by one thread at a time: where the layers are divided over devices,
 * one step is under way at a time while routes are recorded.
 *
 * The sequence of a record is the session's slot: a position that does not continue the slot's last
 * one starts another session. Prompt rows are marked as prefill. */
#ifndef SL_ENGINE_ROUTE_RECORDER_H
#define SL_ENGINE_ROUTE_RECORDER_H

#include "model/arch/model.h"

struct sl_route_recorder;
struct sl_step;

/* Creates the file, or replaces an empty one or an earlier recording and no other. SL_ERR_IO naming
 * it; SL_ERR_CONFIG for a model without experts. */
enum sl_status sl_route_recorder_open(const char *path, const struct sl_model *model,
                                      struct sl_route_recorder **out_recorder,
                                      struct sl_err *err) SL_MUST_CHECK;
/* Writes what is left and closes; a failed write is logged. Nulls *r. */
void sl_route_recorder_close(struct sl_route_recorder **r);

/* ids [n_rows, k] in host memory: row i is row rows[i] of the step, or row i when rows is NULL.
 * A failed write is logged once, and recording ends. */
void sl_route_recorder_layer(struct sl_route_recorder *r, const struct sl_step *step,
                             uint32_t layer, uint32_t n_rows, const uint32_t *rows,
                             const uint32_t *ids);

#endif
