/* What streaming experts takes: the memory of the slots, the reader with the model's files and
 * their mirrors open, the fetch that joins them, and the heat file that outlives the process. */
#ifndef SL_ENGINE_EXPERT_STORE_H
#define SL_ENGINE_EXPERT_STORE_H

#include "engine/experts/expert_fetch.h"
#include "engine/types/plan.h"

struct sl_store;

/* What is known of the whole model's experts, where the store has those of a part: its routed
 * layers from the first on. Such a store keeps no heat file, but for a worker's. */
struct sl_store_heat {
    const struct sl_heat *heat;
    uint32_t first;
};

/* Opens the files, maps and touches the slots, reads the heat file if there is one. Reads no
 * expert. known: NULL, or where its heat begins. model, plan, dev and timeline (NULL = none) are
 * borrowed until destroy. A mirror that
 * differs or cannot be read is left out with a warning, and so is a heat file. */
enum sl_status sl_store_create(const struct sl_model *model, const struct sl_memory_plan *plan,
                               struct sl_device *dev, const struct sl_store_heat *known,
                               struct sl_timeline *timeline, struct sl_store **out_store,
                               struct sl_err *err) SL_MUST_CHECK;
struct sl_fetch *sl_store_fetch(struct sl_store *s);
const struct sl_reader *sl_store_reader(const struct sl_store *s);
/* Whether what was read since the last call came from the files that were opened: called between
 * steps, before anything that a step has computed is used. One system call for each file if
 * anything was read, else none. On the thread that calls sl_fetch_*.
 * SL_AGAIN: a copy was changed and has been dropped, another one serves alone; every slot has been
 *   emptied, and the step must be run again.
 * SL_ERR_CORRUPT: a file was changed that has no other copy. What was computed since the last call
 *   cannot be trusted, nor anything that is read from now on.
 * A file that was replaced (unlinked, renamed over) is still open as it was, and serves on. */
enum sl_status sl_store_verify(struct sl_store *s, struct sl_err *err) SL_MUST_CHECK;
/* The same without regard to what was read: at the end of loading. A changed copy is dropped. */
enum sl_status sl_store_check_files(struct sl_store *s, struct sl_err *err) SL_MUST_CHECK;
/* Is there heat that has not been written to its file? */
bool sl_store_heat_unsaved(const struct sl_store *s);
/* Has the heat file written while the caller goes on; a failure is a warning, the first time. */
void sl_store_save_heat(struct sl_store *s);
/* Ends all reading and saves the heat: on the thread that has been calling sl_fetch_*. */
void sl_store_quit(struct sl_store *s);
void sl_store_destroy(struct sl_store **s);

#endif
