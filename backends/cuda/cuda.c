/* The op table of the CUDA backend. */
#include "backends/cuda/cuda_internal.h"

static uint64_t cuda_scratch_bytes(const struct sl_device *d,
                                   const struct sl_device_limits *limits) {
    return sl_cuda_ops_scratch_bytes((const struct sl_cuda *)d, limits);
}

static enum sl_status cuda_configure(struct sl_device *d, const struct sl_device_limits *limits) {
    struct sl_cuda *c = (struct sl_cuda *)d;
    uint64_t bytes = cuda_scratch_bytes(d, limits);
    void *scratch = NULL;
    if (bytes) {
        enum sl_status status = sl_cuda_alloc(d, bytes, &scratch);
        if (status)
            return status;
    }
    if (c->scratch)
        sl_cuda_free(d, c->scratch, c->scratch_bytes);
    c->scratch = scratch;
    c->scratch_bytes = bytes;
    return SL_OK;
}

const struct sl_backend_ops sl_cuda_ops = {
    .name = "cuda",
    .close = sl_cuda_close,
    .configure = cuda_configure,
    .scratch_bytes = cuda_scratch_bytes,
    .alloc = sl_cuda_buffer_alloc,
    .free = sl_cuda_buffer_free,
    .upload = sl_cuda_upload,
    .download = sl_cuda_download,
    .sync = sl_cuda_sync,
    .memory = sl_cuda_memory,
    .map_host = sl_cuda_map_host,
    .unmap_host = sl_cuda_unmap_host,
    .copy = sl_cuda_copy,
    .copy_rows = sl_cuda_copy_rows,
    .mark = sl_cuda_mark,
    .passed = sl_cuda_passed,
    .await = sl_cuda_await,
    .after = sl_cuda_after,
    .graph_create = sl_cuda_graph_create,
    .replay = sl_cuda_replay,
    .graph_free = sl_cuda_graph_free,
    .peer_open = sl_cuda_peer_open,
    .copy_from = sl_cuda_copy_from,
    .signal_create = sl_cuda_signal_create,
    .signal_free = sl_cuda_signal_free,
    .signal_raise = sl_cuda_signal_raise,
    .signal_follow = sl_cuda_signal_follow,
    .signal_release = sl_cuda_signal_release,
    .relay_open = sl_cuda_relay_open,
    .relay_end = sl_cuda_relay_end,
    .relay_close = sl_cuda_relay_close,
    .relay_lost = sl_cuda_relay_lost,
    .reaches = sl_cuda_reaches,
    .same = sl_cuda_same,
    .supports = sl_cuda_supports,
#define SL_FUSED(name) .fused_##name = sl_cuda_fused_##name, .takes_##name = sl_cuda_takes_##name,
#include "backends/fused.def"
#define SL_OP(name) .name = sl_cuda_##name,
#define SL_OP_HOST(name)
#include "backends/ops.def"
};
