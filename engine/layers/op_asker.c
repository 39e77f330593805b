#include "engine/layers/op_asker.h"

void sl_ask_op(struct sl_op_asker *a, struct sl_op_need need) {
    if (!a->status)
        a->status = sl_device_need(a->dev, &need, &a->missing);
}

void sl_ask_plain(struct sl_op_asker *a, enum sl_op op) {
    sl_ask_op(a, (struct sl_op_need){.op = op, .dtype = SL_DTYPE_COUNT});
}

void sl_ask_weight(struct sl_op_asker *a, enum sl_op op, const struct sl_gguf_tensor *t) {
    if (t)
        sl_ask_op(a, (struct sl_op_need){.op = op, .dtype = t->dtype});
}

enum sl_dtype sl_asker_kv(const struct sl_op_asker *a) {
    return a->kv;
}
