/* What the bits of a KV page depend on, besides its text, as one hash. */
#ifndef SL_ENGINE_MODEL_IDENTITY_H
#define SL_ENGINE_MODEL_IDENTITY_H

#include "common/siphash.h"
#include "engine/seq/seq_state.h"
#include "model/arch/model.h"

/* What two copies of a model on two machines have in common, and no two models: metadata, the
 * files' sizes, samples of their bytes. SL_ERR_IO: a file of the model cannot be read. */
enum sl_status sl_model_content(const struct sl_model *model, uint64_t *out_content,
                                struct sl_err *err) SL_MUST_CHECK;
/* Of the model: metadata, the files' sizes and times, samples of their bytes; of what layers keep:
 * the type of KV, each store's name, bytes, reach and whether it has tail pages; of the arithmetic:
 * its hash (sl_stage_hello.arithmetic) at the first stage. SL_ERR_IO: a file of the model cannot be
 * read. */
enum sl_status sl_model_identity(const struct sl_model *model, const struct sl_seq_config *stores,
                                 struct sl_hash128 arithmetic, struct sl_hash128 *out_identity,
                                 struct sl_err *err) SL_MUST_CHECK;
/* Adds that n_layer layers from first_layer on are computed with another arithmetic than the first
 * stage's: nothing where the two are the same, so that such stages may divide layers anyhow. */
void sl_model_identity_add(struct sl_hash128 first, struct sl_hash128 other, uint32_t first_layer,
                           uint32_t n_layer, struct sl_hash128 *inout_identity);

#endif
