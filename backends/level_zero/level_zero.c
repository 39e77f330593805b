/* The op table of the Level Zero backend. */
#include "backends/level_zero/ops.h"

static enum sl_status configure(struct sl_device *d, const struct sl_device_limits *limits) {
    struct sl_level_zero *z = (struct sl_level_zero *)d;
    void *scratch = NULL;
    uint64_t bytes = sl_lz_scratch_bytes(d, limits);
    if (bytes)
        SL_TRY(sl_lz_memory_alloc(z, bytes, &scratch));
    (void)!sl_lz_sync(d);
    sl_lz_memory_free(z, z->scratch, z->scratch_bytes);
    z->scratch = scratch;
    z->scratch_bytes = bytes;
    return SL_OK;
}

/* Devices of Level Zero do not read one another's memory yet: rows go through the host's. */
static enum sl_status peer_open(struct sl_device *d, struct sl_device *other) {
    (void)d, (void)other;
    return SL_ERR_UNSUPPORTED;
}

static enum sl_status copy_from(struct sl_device *d, struct sl_span dst, struct sl_device *other,
                                struct sl_span src) {
    (void)d, (void)dst, (void)other, (void)src;
    return SL_ERR_UNSUPPORTED;
}

static enum sl_status signal_create(struct sl_device *d, struct sl_signal **out_signal) {
    (void)d, (void)out_signal;
    return SL_ERR_UNSUPPORTED;
}

/* Without create there is no signal that these could get. */
static void signal_free(struct sl_device *d, struct sl_signal *signal) {
    (void)d, (void)signal;
}

static enum sl_status signal_use(struct sl_device *d, struct sl_signal *signal) {
    (void)d, (void)signal;
    return SL_ERR_UNSUPPORTED;
}

static void signal_release(struct sl_signal *signal) {
    (void)signal;
}

/* Without caps.graphs nothing is recorded. */
const struct sl_backend_ops sl_level_zero_ops = {.name = "level_zero",
                                                 .close = sl_lz_close,
                                                 .configure = configure,
                                                 .scratch_bytes = sl_lz_scratch_bytes,
                                                 .alloc = sl_lz_buffer_alloc,
                                                 .free = sl_lz_buffer_free,
                                                 .upload = sl_lz_upload,
                                                 .download = sl_lz_download,
                                                 .sync = sl_lz_sync,
                                                 .memory = sl_lz_memory_left,
                                                 .map_host = sl_lz_map_host,
                                                 .unmap_host = sl_lz_unmap_host,
                                                 .copy = sl_lz_copy,
                                                 .mark = sl_lz_mark,
                                                 .passed = sl_lz_passed,
                                                 .await = sl_lz_await,
                                                 .after = sl_lz_after,
                                                 .peer_open = peer_open,
                                                 .copy_from = copy_from,
                                                 .signal_create = signal_create,
                                                 .signal_free = signal_free,
                                                 .signal_raise = signal_use,
                                                 .signal_follow = signal_use,
                                                 .signal_release = signal_release,
                                                 .supports = sl_lz_supports,
#define ENTRY(name) .name = sl_lz_op_##name,
                                                 SL_LZ_OPS(ENTRY)
#undef ENTRY
};
