/* The op table of the Vulkan backend. */
#include "backends/vulkan/ops.h"

static enum sl_status configure(struct sl_device *d, const struct sl_device_limits *limits) {
    struct sl_vulkan *v = (struct sl_vulkan *)d;
    struct sl_vk_memory scratch = {0};
    uint64_t bytes = sl_vk_scratch_bytes(d, limits);
    if (bytes)
        SL_TRY(sl_vk_memory_alloc(v, bytes, false, &scratch));
    (void)!sl_vk_sync(d);
    sl_vk_memory_free(v, &v->scratch);
    v->scratch = scratch;
    return SL_OK;
}

/* Devices of Vulkan do not read one another's memory yet: rows go through the host's. */
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

const struct sl_backend_ops sl_vulkan_ops = {.name = "vulkan",
                                             .close = sl_vk_close,
                                             .configure = configure,
                                             .scratch_bytes = sl_vk_scratch_bytes,
                                             .alloc = sl_vk_buffer_alloc,
                                             .free = sl_vk_buffer_free,
                                             .upload = sl_vk_upload,
                                             .download = sl_vk_download,
                                             .sync = sl_vk_sync,
                                             .memory = sl_vk_memory_left,
                                             .map_host = sl_vk_map_host,
                                             .unmap_host = sl_vk_unmap_host,
                                             .copy = sl_vk_copy,
                                             .mark = sl_vk_mark,
                                             .passed = sl_vk_passed,
                                             .await = sl_vk_await,
                                             .after = sl_vk_after,
                                             .graph_create = sl_vk_graph_create,
                                             .replay = sl_vk_replay,
                                             .graph_free = sl_vk_graph_free,
                                             .peer_open = peer_open,
                                             .copy_from = copy_from,
                                             .signal_create = signal_create,
                                             .signal_free = signal_free,
                                             .signal_raise = signal_use,
                                             .signal_follow = signal_use,
                                             .signal_release = signal_release,
                                             .supports = sl_vk_supports,
#define SL_FUSED(name) .fused_##name = sl_vk_fused_##name, .takes_##name = sl_vk_takes_##name,
#include "backends/fused.def"
#define ENTRY(name) .name = sl_vk_op_##name,
                                             SL_VK_OPS(ENTRY)
#undef ENTRY
};
