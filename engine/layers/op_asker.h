/* Collects the ops of a model, one question to the device each. The first that the device lacks is
 * kept: later questions are not asked. */
#ifndef SL_ENGINE_OP_ASKER_H
#define SL_ENGINE_OP_ASKER_H

#include "backends/backend.h"
#include "model/gguf/gguf.h"

struct sl_op_asker {
    const struct sl_device *dev;
    enum sl_dtype kv;
    enum sl_status status; /* of the first that is missing */
    struct sl_err missing;
};

void sl_ask_op(struct sl_op_asker *a, struct sl_op_need need);
/* An op whose arguments no device refuses. */
void sl_ask_plain(struct sl_op_asker *a, enum sl_op op);
/* matmul or embed with that tensor; NULL: the layer has none, and nothing is asked. */
void sl_ask_weight(struct sl_op_asker *a, enum sl_op op, const struct sl_gguf_tensor *t);
enum sl_dtype sl_asker_kv(const struct sl_op_asker *a);

#endif
