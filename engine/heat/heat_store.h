/* The heat file: which experts were hot, kept between runs so that a restart warms up with them.
 *
 * Losing it costs speed for a while and nothing else: whatever is wrong with the file or its folder
 * is one warning. A file that is not a heat file is never overwritten: if the option names one,
 * that is an error; if one is in the way in a folder, heat is not kept. */
#ifndef SL_ENGINE_HEAT_STORE_H
#define SL_ENGINE_HEAT_STORE_H

#include "expert_cache/heat.h"

#include <stdbool.h>

struct sl_heat_store;

/* path: the file, or a folder to keep one file per model in; made if it is not there. Reads it into
 * heat (borrowed until close) if it is there and fits. A disk that does not answer is waited for
 * five seconds; then heat is not kept, after a warning. SL_ERR_CONFIG: path is something else than
 * a heat file. SL_ERR_NOMEM. */
enum sl_status sl_heat_store_open(const char *path, struct sl_heat *heat,
                                  struct sl_heat_store **out_store,
                                  struct sl_err *err) SL_MUST_CHECK;
/* Reads it into heat likewise, for once: makes and keeps nothing. */
void sl_heat_store_peek(const char *path, struct sl_heat *heat);
/* The same for whoever asks before a store is opened: SL_OK: heat has what the file holds.
 * SL_AGAIN: the disk does not answer, which was a warning; do not ask again. Any other: there is
 * none that can be used, heat is as it was, and whoever opens the store will say why. */
enum sl_status sl_heat_store_ask(const char *path, struct sl_heat *heat) SL_MUST_CHECK;
/* Was anything learned since the last save? */
bool sl_heat_store_unsaved(const struct sl_heat_store *s);
/* Replaces the file by one with what is known now: written beside it, then renamed
 * (heat_write.h), so that a full disk or a crash leaves the old one. A thread of its own writes,
 * since a disk may take its time. Does nothing when nothing was learned since, or while an earlier
 * save is still being written. On the thread that owns heat. */
void sl_heat_store_save(struct sl_heat_store *s);
/* The last save: the same, and returns when it is written. A disk that does not answer is waited
 * for five seconds, here and in close together; then the store is given up: its thread and memory
 * go when the disk answers, or with the process. */
void sl_heat_store_save_now(struct sl_heat_store *s);
void sl_heat_store_close(struct sl_heat_store **s);

#endif
