#include "backends/null/null.h"

#include "backends/immediate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void null_close(struct sl_device *d) {
    free(d);
}

static enum sl_status null_configure(struct sl_device *d, const struct sl_device_limits *limits) {
    (void)d, (void)limits;
    return SL_OK;
}

static uint64_t null_scratch_bytes(const struct sl_device *d,
                                   const struct sl_device_limits *limits) {
    (void)d, (void)limits;
    return 0;
}

static enum sl_status null_alloc(struct sl_device *d, struct sl_buffer *buffer) {
    (void)d;
    if (buffer->bytes > SIZE_MAX - 64)
        return SL_ERR_NOMEM;
    size_t whole = (buffer->bytes + 64) / 64 * 64;
    void *p = aligned_alloc(64, whole);
    if (!p)
        return SL_ERR_NOMEM;
    memset(p, 0, whole);
    buffer->addr = buffer->host = p;
    return SL_OK;
}

static void null_free(struct sl_device *d, struct sl_buffer *buffer) {
    (void)d;
    free(buffer->addr);
}

static enum sl_status null_upload(struct sl_device *d, struct sl_span dst, const void *src) {
    (void)d;
    memcpy(sl_span_host(dst), src, dst.bytes);
    return SL_OK;
}

static enum sl_status null_download(struct sl_device *d, void *dst, struct sl_span src) {
    (void)d;
    memcpy(dst, sl_span_host(src), src.bytes);
    return SL_OK;
}

static enum sl_status null_sync(struct sl_device *d) {
    (void)d;
    return SL_OK;
}

static enum sl_status null_memory(struct sl_device *d, uint64_t *out_free, uint64_t *out_total) {
    (void)d;
    *out_free = *out_total = 0;
    return SL_OK;
}

/* What is followed up must be sound: which experts a router chose. */
static void choose_first(uint32_t *ids, float *weights, uint32_t n_tok, uint32_t k) {
    for (uint32_t t = 0; t < n_tok; t++)
        for (uint32_t r = 0; r < k; r++) {
            ids[(size_t)t * k + r] = r;
            weights[(size_t)t * k + r] = 1.0f / (float)k;
        }
}

static void answer(enum sl_op op, const void *args) {
    if (op == SL_OP_router) {
        const struct sl_op_router *a = args;
        choose_first(a->ids, a->weights, a->n_tok, a->k);
    } else if (op == SL_OP_softplus_router) {
        const struct sl_op_softplus_router *a = args;
        choose_first(a->ids, a->weights, a->n_tok, a->k);
    }
}

#define SL_OP(name)                                                                                \
    static enum sl_status null_##name(struct sl_device *d, const struct sl_op_##name *a) {         \
        (void)d;                                                                                   \
        answer(SL_OP_##name, a);                                                                   \
        return SL_OK;                                                                              \
    }
#define SL_OP_BETWEEN(name)
#include "backends/ops.def"

static const struct sl_backend_ops null_ops = {
    .name = "null",
    .close = null_close,
    .configure = null_configure,
    .scratch_bytes = null_scratch_bytes,
    .alloc = null_alloc,
    .free = null_free,
    .upload = null_upload,
    .download = null_download,
    .sync = null_sync,
    .memory = null_memory,
    SL_IMMEDIATE_QUEUES,
#define SL_OP(name) .name = null_##name,
#define SL_OP_BETWEEN(name)
#include "backends/ops.def"
};

enum sl_status sl_null_open(struct sl_device **out_device, struct sl_err *err) {
    struct sl_device *d = calloc(1, sizeof *d);
    if (!d)
        return sl_fail(err, SL_ERR_NOMEM, "null: out of memory");
    d->ops = &null_ops;
    snprintf(d->caps.model, sizeof d->caps.model, "does nothing");
    snprintf(d->caps.arithmetic_id, sizeof d->caps.arithmetic_id, "%s", null_ops.name);
    sl_device_caps_set_id(&d->caps, null_ops.name, 0, true);
    d->caps.kind = SL_DEVICE_INTEGRATED;
    d->caps.host_visible = d->caps.mapped_host = true;
    d->caps.rows_alike = true;
    d->caps.moe_bias = d->caps.swiglu_clamped = d->caps.geglu = d->caps.extra_args = true;
    d->caps.latent_window = true;
    d->caps.sigmoid_topk = d->caps.swiglu_limited = d->caps.swiglu_cut = d->caps.reglu = true;
    d->caps.relu_squared = d->caps.situ = d->caps.router_share = true;
    for (uint32_t t = 0; t < SL_DTYPE_COUNT; t++)
        d->caps.weight_dtype[t] = sl_dtype_info(t) != NULL;
    d->caps.kv_dtype[SL_DTYPE_F16] = d->caps.kv_dtype[SL_DTYPE_Q8_0] = true;
    *out_device = d;
    return SL_OK;
}

static enum sl_status null_enumerate(struct sl_device_found *out, uint32_t max, uint32_t *out_n,
                                     struct sl_err *err) {
    (void)err;
    if (max)
        *out = (struct sl_device_found){
            .id = "null", .model = "does nothing", .kind = SL_DEVICE_INTEGRATED};
    *out_n = 1;
    return SL_OK;
}

static enum sl_status null_open(const struct sl_device_options *options, uint32_t number,
                                struct sl_device **out_device, struct sl_err *err) {
    (void)options;
    if (number)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "null:%u: there is one, null", number);
    return sl_null_open(out_device, err);
}

const struct sl_backend sl_null_backend = {.name = "null",
                                           .devices = "a device that does nothing",
                                           .hidden = true,
                                           .enumerate = null_enumerate,
                                           .open = null_open};
