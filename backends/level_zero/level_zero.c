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
                                                 .supports = sl_lz_supports,
                                                 .graph_create = sl_lz_graph_create,
                                                 .replay = sl_lz_replay,
                                                 .graph_free = sl_lz_graph_free,
#define ENTRY(name) .name = sl_lz_op_##name,
                                                 SL_LZ_OPS(ENTRY)
#undef ENTRY
};
