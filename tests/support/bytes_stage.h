/* A stage that is reached by bytes alone: stands between the scheduler and a stage of this process,
 * makes a message of every request, answer and cancellation, and reads it again from that. Nothing
 * passes by pointer, and the stage's name holds for no neighbour, so rows travel with messages.
 *
 * Programs that link bytes_stage_everywhere.c have every engine's stages behind it. */
#ifndef SL_TESTS_SUPPORT_BYTES_STAGE_H
#define SL_TESTS_SUPPORT_BYTES_STAGE_H

#include "engine/types/config.h"

#include <stdatomic.h>

/* The source that wraps all stages. */
extern const struct sl_stage_source bytes_stage_source;
/* Messages of each request that have passed, of all such stages; indexed by enum sl_stage_request.
 */
extern atomic_uint bytes_stage_n_asked[];
extern atomic_uint bytes_stage_n_canceled;

#endif
