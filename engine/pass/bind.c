/* Binds a tensor to its address on the device, and checks that the device can take its type. */
#include "engine/pass/pass_internal.h"

static int name_len(const struct sl_gguf_tensor *t) {
    return (int)(t->name.len < 100 ? t->name.len : 100);
}

const void *sl_bind_address(struct sl_binder *b, const struct sl_gguf_tensor *t) {
    const void *p = sl_weights_addr(b->weights, t);
    /* Blocks hold 16-bit scales and vectors are read as floats: an odd general.alignment in the
     * file would put them astray. */
    if ((uintptr_t)p % 4 && b->status == SL_OK)
        b->status = sl_fail(b->err, SL_ERR_UNSUPPORTED,
                            "tensor '%.*s' lies at an odd offset: general.alignment must be a "
                            "multiple of 4",
                            name_len(t), t->name.ptr);
    return p;
}

const float *sl_bind_vector(struct sl_binder *b, const struct sl_gguf_tensor *t) {
    if (!t || b->status != SL_OK)
        return NULL;
    if (t->dtype != SL_DTYPE_F32) {
        b->status =
            sl_fail(b->err, SL_ERR_UNSUPPORTED, "tensor '%.*s' is %s: norms and biases must be F32",
                    name_len(t), t->name.ptr, sl_dtype_name(t->dtype));
        return NULL;
    }
    return sl_bind_address(b, t);
}

bool sl_bind_type(struct sl_binder *b, const struct sl_gguf_tensor *t) {
    if (b->status != SL_OK)
        return false;
    if (b->dev->caps.weight_dtype[t->dtype])
        return true;
    b->status =
        sl_fail(b->err, SL_ERR_UNSUPPORTED, "tensor '%.*s' is %s, which %s does not support",
                name_len(t), t->name.ptr, sl_dtype_name(t->dtype), b->dev->caps.name);
    return false;
}

struct sl_weight sl_bind_matrix(struct sl_binder *b, const struct sl_gguf_tensor *t) {
    struct sl_weight w = {0};
    if (!t || !sl_bind_type(b, t))
        return w;
    w.dtype = t->dtype;
    w.n_in = (uint32_t)t->ne[0];
    w.n_out = (uint32_t)t->ne[1];
    w.data = sl_bind_address(b, t);
    return w;
}

struct sl_weight sl_bind_rows(struct sl_binder *b, const struct sl_gguf_tensor *t, uint32_t first,
                              uint32_t n) {
    struct sl_weight w = sl_bind_matrix(b, t);
    if (w.data)
        w.data = (const char *)w.data + (size_t)first * (t->size_bytes / t->ne[1]);
    w.n_out = n;
    return w;
}
