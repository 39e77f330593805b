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
    .alloc = sl_cuda_alloc,
    .free = sl_cuda_free,
    .upload = sl_cuda_upload,
    .download = sl_cuda_download,
    .sync = sl_cuda_sync,
    .memory = sl_cuda_memory,
    .map_host = sl_cuda_map_host,
    .unmap_host = sl_cuda_unmap_host,
    .copy = sl_cuda_copy,
    .mark = sl_cuda_mark,
    .passed = sl_cuda_passed,
    .await = sl_cuda_await,
    .after = sl_cuda_after,
    .record = sl_cuda_record,
    .recorded = sl_cuda_recorded,
    .replay = sl_cuda_replay,
    .graph_free = sl_cuda_graph_free,
    .embed = sl_cuda_embed,
    .rms_norm = sl_cuda_rms_norm,
    .matmul = sl_cuda_matmul,
    .rope_table = sl_cuda_rope_table,
    .rope = sl_cuda_rope,
    .kv_write = sl_cuda_kv_write,
    .attention = sl_cuda_attention,
    .router = sl_cuda_router,
    .moe = sl_cuda_moe,
    .moe_combine = sl_cuda_moe_combine,
    .silu_mul = sl_cuda_silu_mul,
    .add_gated = sl_cuda_add_gated,
    .gather_rows = sl_cuda_gather_rows,
};
