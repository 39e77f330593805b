/* What streaming experts takes: the memory of the slots, the reader with the model's files and
 * their mirrors open, the fetch that joins them, and the heat file that outlives the process. */
#ifndef SL_ENGINE_EXPERT_STORE_H
#define SL_ENGINE_EXPERT_STORE_H

#include "engine/engine.h"
#include "engine/expert_fetch.h"
#include "engine/memory_plan.h"

struct sl_store;

/* Opens the files, maps and touches the slots, reads the heat file if there is one. Reads no
 * expert. model, plan and timeline (NULL = none) are borrowed until destroy. A mirror that differs
 * or cannot be read is left out with a warning, and so is a heat file. */
enum sl_status sl_store_create(const struct sl_model *model, const struct sl_memory_plan *plan,
                               struct sl_timeline *timeline, struct sl_store **out_store,
                               struct sl_err *err) SL_MUST_CHECK;
struct sl_fetch *sl_store_fetch(struct sl_store *s);
const struct sl_reader *sl_store_reader(const struct sl_store *s);
/* Whether the model's files are still what was opened; a few system calls. SL_ERR_CORRUPT. */
enum sl_status sl_store_check_files(struct sl_store *s, struct sl_err *err) SL_MUST_CHECK;
/* Writes the heat file if anything was learned since it was written last; a failure is a warning,
 * the first time. */
void sl_store_save_heat(struct sl_store *s);
/* Ends all reading and saves the heat: on the thread that has been calling sl_fetch_*. */
void sl_store_quit(struct sl_store *s);
void sl_store_destroy(struct sl_store **s);

#endif
