/* The heat file: which experts were hot, kept between runs so that a restart warms up with them.
 *
 * Losing it costs speed for a while and nothing else: whatever is wrong with the file or its folder
 * is one warning. */
#ifndef SL_ENGINE_HEAT_STORE_H
#define SL_ENGINE_HEAT_STORE_H

#include "expert_cache/heat.h"

struct sl_heat_store;

/* path: the file, or a folder to keep one file per model in; made if it is not there. Reads it into
 * heat (borrowed until close) if it is there and fits. SL_ERR_NOMEM only. */
enum sl_status sl_heat_store_open(const char *path, struct sl_heat *heat,
                                  struct sl_heat_store **out_store,
                                  struct sl_err *err) SL_MUST_CHECK;
/* Replaces the file by one with what is known now: written beside it, then renamed, so that a full
 * disk or a crash leaves the old one. Writes nothing when nothing was learned since. */
void sl_heat_store_save(struct sl_heat_store *s);
void sl_heat_store_close(struct sl_heat_store **s);

#endif
