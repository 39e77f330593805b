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
                                             .supports = sl_vk_supports,
#define SL_FUSED(name) .fused_##name = sl_vk_fused_##name, .takes_##name = sl_vk_takes_##name,
#include "backends/fused.def"
#define ENTRY(name) .name = sl_vk_op_##name,
                                             SL_VK_OPS(ENTRY)
#undef ENTRY
};
