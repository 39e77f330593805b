/* What the bits of a KV page depend on, beside its text, as one hash. */
#ifndef SL_ENGINE_MODEL_IDENTITY_H
#define SL_ENGINE_MODEL_IDENTITY_H

#include "backends/backend.h"
#include "common/siphash.h"
#include "engine/forward/seq_state.h"
#include "model/arch/model.h"

/* Of the model: metadata, the files' sizes and times, samples of their bytes; of what layers keep:
 * the type of KV, each store's name, bytes, reach and whether it has tail pages; of the arithmetic:
 * its id and version (caps.arithmetic), the C library's version, and where the arithmetic has none
 * this very program. SL_ERR_IO: a file of the model cannot be read. */
enum sl_status sl_model_identity(const struct sl_model *model, const struct sl_seq_config *stores,
                                 const struct sl_device *dev, struct sl_hash128 *out_identity,
                                 struct sl_err *err) SL_MUST_CHECK;
/* Whether both give the same bits for the same ops. */
bool sl_devices_alike(const struct sl_device *a, const struct sl_device *b);
/* Adds that n_layer layers from first_layer on are computed by another device than that of the
 * identity, first: nothing where both give the same bits, so that such may divide layers anyhow. */
void sl_model_identity_add(const struct sl_device *first, const struct sl_device *other,
                           uint32_t first_layer, uint32_t n_layer,
                           struct sl_hash128 *inout_identity);

#endif
