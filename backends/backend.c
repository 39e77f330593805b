/* The front: what a device has, its memory, copies, queues, and what is recorded. Arguments are
 * checked here and in backend_ops.c, once, so that backends need not. A refusal is our own caller's
 * mistake or a model that the device cannot run; it is logged with its reason. */
#include "backends/backend.h"

#include "backends/backend_internal.h"
#include "backends/recorded.h"
#include "common/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The ops stand at the end of the table, in the order of ops.def, and all are told apart by bits of
 * caps.lacks_ops. */
typedef enum sl_status any_op(struct sl_device *d, const void *a);
_Static_assert(SL_OP_COUNT <= 64 && SL_FUSED_COUNT <= 32, "bits of caps");
#define SL_OP(name)                                                                                \
    _Static_assert(offsetof(struct sl_backend_ops, name) ==                                        \
                       sizeof(struct sl_backend_ops) -                                             \
                           (SL_OP_COUNT - SL_OP_##name) * sizeof(any_op *),                        \
                   #name " is not where ops.def has it");
#include "backends/ops.def"

const char *sl_op_name(enum sl_op op) {
    static const char *const names[] = {
#define SL_OP(name) #name,
#include "backends/ops.def"
    };
    return (unsigned)op < SL_OP_COUNT ? names[op] : "?";
}

bool sl_device_has_op(const struct sl_device *d, enum sl_op op) {
    static const size_t at[] = {
#define SL_OP(name) offsetof(struct sl_backend_ops, name),
#include "backends/ops.def"
    };
    any_op *entry = NULL;
    if ((unsigned)op < SL_OP_COUNT)
        memcpy(&entry, (const char *)d->ops + at[op], sizeof entry);
    return entry && !(d->caps.lacks_ops >> op & 1);
}

static bool takes_kv(enum sl_op op) {
    return op == SL_OP_kv_write || op == SL_OP_attention || op == SL_OP_latent_write ||
           op == SL_OP_latent_attention || op == SL_OP_index_choose ||
           op == SL_OP_chosen_attention || op == SL_OP_block_choose ||
           op == SL_OP_block_attention || op == SL_OP_compress || op == SL_OP_compressed_choose ||
           op == SL_OP_compressed_attention || op == SL_OP_pool_keys || op == SL_OP_pooled_choose ||
           op == SL_OP_pooled_attention;
}

/* " for weights of type Q4_K": what of a need the device may lack. */
static void need_text(const struct sl_op_need *need, char *out, size_t size_bytes) {
    bool kv = takes_kv(need->op);
    int n = 0;
    out[0] = 0;
    if (need->head_dim_k != need->head_dim_v)
        n = snprintf(out, size_bytes, " for head sizes %u and %u", need->head_dim_k,
                     need->head_dim_v);
    else if (need->head_dim_k)
        n = snprintf(out, size_bytes, " for head size %u", need->head_dim_k);
    if ((uint32_t)need->dtype < SL_DTYPE_COUNT && n >= 0 && (size_t)n < size_bytes)
        snprintf(out + n, size_bytes - (size_t)n, "%s %s of type %s", n ? " and" : " for",
                 kv ? "KV" : "weights", sl_dtype_name((uint32_t)need->dtype));
}

/* What a device that has the op may lack of it, in words; NULL: nothing. */
static const char *lacking_form(const struct sl_device *d, const struct sl_op_need *need) {
    if (need->op == SL_OP_moe && need->biases && !d->caps.moe_bias)
        return " with biases";
    if (need->op == SL_OP_moe && need->activation == SL_SWIGLU_CLAMPED && !d->caps.swiglu_clamped)
        return " with clamped SwiGLU";
    if (need->op == SL_OP_router && need->groups && !d->caps.router_groups)
        return " with groups of experts";
    if (need->op == SL_OP_moe && need->activation == SL_SWIGLU_LIMITED && !d->caps.swiglu_limited)
        return " with limited SwiGLU";
    if (need->op == SL_OP_router && need->sigmoid_topk && !d->caps.sigmoid_topk)
        return " with sigmoids of the chosen alone";
    if (need->op == SL_OP_router && need->share && !d->caps.router_share)
        return " with ids that experts share";
    if (need->op == SL_OP_moe && need->activation == SL_GEGLU && !d->caps.geglu)
        return " with GEGLU";
    if (need->op == SL_OP_moe && need->activation == SL_REGLU && !d->caps.reglu)
        return " with ReGLU";
    if (need->op == SL_OP_moe && need->activation == SL_SWIGLU_CUT && !d->caps.swiglu_cut)
        return " with cut SwiGLU";
    if (need->op == SL_OP_moe && need->activation == SL_RELU_SQUARED && !d->caps.relu_squared)
        return " with squared ReLU";
    if (need->op == SL_OP_moe && need->activation == SL_SITU && !d->caps.situ)
        return " with SiTU";
    if (need->op == SL_OP_latent_attention && need->window && !d->caps.latent_window)
        return " with a window";
    if (need->extra && !d->caps.extra_args)
        return need->extra;
    return NULL;
}

enum sl_status sl_device_need(const struct sl_device *d, const struct sl_op_need *need,
                              struct sl_err *err) {
    char what[96] = "";
    const bool *types = NULL;
    if (takes_kv(need->op))
        types = d->caps.kv_dtype;
    else if (need->op == SL_OP_embed || need->op == SL_OP_matmul || need->op == SL_OP_head_matmul ||
             need->op == SL_OP_moe)
        types = d->caps.weight_dtype;
    const char *form = lacking_form(d, need);
    if (sl_device_has_op(d, need->op) && form)
        snprintf(what, sizeof what, "%s", form);
    else if (sl_device_has_op(d, need->op)) {
        bool typed = types && (uint32_t)need->dtype < SL_DTYPE_COUNT;
        if ((!typed || types[need->dtype]) && (!d->ops->supports || d->ops->supports(d, need)))
            return SL_OK;
        need_text(need, what, sizeof what);
    }
    return sl_fail(err, SL_ERR_UNSUPPORTED, "device %s has no op '%s'%s", d->caps.id,
                   sl_op_name(need->op), what);
}

void sl_device_close(struct sl_device **d) {
    if (!*d)
        return;
    sl_record_release(*d);
    (*d)->ops->close(*d);
    *d = NULL;
}

enum sl_status sl_device_configure(struct sl_device *d, const struct sl_device_limits *limits,
                                   struct sl_err *err) {
    const char *name = d->ops->name;
    if (!limits->max_tok)
        return sl_fail(err, SL_ERR_INVALID, "%s: max_tok is 0", name);
    if (limits->max_expert > SL_MAX_EXPERTS)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "%s: %u experts a layer; the most is %u", name,
                       limits->max_expert, SL_MAX_EXPERTS);
    enum sl_status status = d->ops->configure(d, limits);
    if (status)
        return sl_fail(err, status,
                       "%s: cannot allocate %llu MiB of scratch for %u rows a step: %s", name,
                       (unsigned long long)((sl_device_scratch_bytes(d, limits) + 0xfffff) >> 20),
                       limits->max_tok, sl_status_text(status));
    d->limits = *limits;
    return SL_OK;
}

uint64_t sl_device_scratch_bytes(const struct sl_device *d, const struct sl_device_limits *limits) {
    return d->ops->scratch_bytes(d, limits);
}

/* Between record and recorded ops are kept, so nothing may wait for them or lie between them. */
static enum sl_status check_not_recording(const struct sl_device *d, const char *what) {
    if (d->recording)
        return INVALID("%s: not while ops are recorded", what);
    return SL_OK;
}

/* The struct is the front's; what it stands for the backend fills in. */
static enum sl_status make_buffer(struct sl_device *d, enum sl_buffer_kind kind, void *host,
                                  size_t bytes, struct sl_buffer **out_buffer) {
    enum sl_status (*make)(struct sl_device *, struct sl_buffer *) =
        kind == SL_BUFFER_MAPPED ? d->ops->map_host : d->ops->alloc;
    uint64_t most = d->caps.max_alloc_bytes;
    if (most && bytes > most)
        return UNSUPPORTED("%s: a buffer of %zu bytes; the largest has %llu", d->caps.id, bytes,
                           (unsigned long long)most);
    struct sl_buffer *b = malloc(sizeof *b);
    if (!b)
        return SL_ERR_NOMEM;
    *b = (struct sl_buffer){.device = d, .kind = kind, .bytes = bytes, .host = host};
    enum sl_status status = make(d, b);
    if (status)
        free(b);
    else
        *out_buffer = b;
    return status;
}

static bool lies_within(struct sl_span s) {
    const struct sl_buffer *b = s.buffer;
    return b && s.offset <= b->bytes && s.bytes <= b->bytes - s.offset;
}

static enum sl_status check_span(const struct sl_device *d, const char *what, struct sl_span s) {
    if (!lies_within(s))
        return INVALID("%s: %zu bytes from %zu on of a buffer of %zu", what, s.bytes, s.offset,
                       s.buffer ? s.buffer->bytes : 0);
    if (s.buffer->device != d)
        return INVALID("%s: a buffer of %s on %s", what, s.buffer->device->caps.name, d->caps.name);
    return SL_OK;
}

enum sl_status sl_device_alloc(struct sl_device *d, size_t bytes, struct sl_buffer **out_buffer) {
    SL_TRY(check_not_recording(d, "alloc"));
    return make_buffer(d, SL_BUFFER_DEVICE, NULL, bytes, out_buffer);
}

void sl_device_free(struct sl_device *d, struct sl_buffer **buffer) {
    if (*buffer)
        d->ops->free(d, *buffer);
    free(*buffer);
    *buffer = NULL;
}

enum sl_status sl_device_upload(struct sl_device *d, struct sl_span dst, const void *src_host) {
    SL_TRY(check_not_recording(d, "upload"));
    SL_TRY(check_span(d, "upload", dst));
    return dst.bytes ? d->ops->upload(d, dst, src_host) : SL_OK;
}

enum sl_status sl_device_download(struct sl_device *d, void *dst_host, struct sl_span src) {
    SL_TRY(check_not_recording(d, "download"));
    SL_TRY(check_span(d, "download", src));
    return src.bytes ? d->ops->download(d, dst_host, src) : SL_OK;
}

enum sl_status sl_device_sync(struct sl_device *d) {
    SL_TRY(check_not_recording(d, "sync"));
    return d->ops->sync(d);
}

void sl_device_wake(struct sl_device *d) {
    if (d->ops->wake)
        d->ops->wake(d);
}

enum sl_status sl_device_memory(struct sl_device *d, uint64_t *out_free_bytes,
                                uint64_t *out_total_bytes) {
    return d->ops->memory(d, out_free_bytes, out_total_bytes);
}

enum sl_status sl_device_map_host(struct sl_device *d, void *host, size_t bytes,
                                  struct sl_buffer **out_buffer) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    SL_TRY(check_not_recording(d, "map_host"));
    if (!host || !bytes || (uintptr_t)host % page || bytes % page)
        return INVALID("map_host: %zu bytes at %p are not whole pages", bytes, host);
    if (!d->caps.mapped_host)
        return UNSUPPORTED("map_host: %s cannot read the host's memory", d->ops->name);
    return make_buffer(d, SL_BUFFER_MAPPED, host, bytes, out_buffer);
}

void sl_device_unmap_host(struct sl_device *d, struct sl_buffer **buffer) {
    if (*buffer)
        d->ops->unmap_host(d, *buffer);
    free(*buffer);
    *buffer = NULL;
}

static enum sl_status check_queue(const struct sl_device *d, const char *what, enum sl_queue q) {
    if ((unsigned)q >= SL_QUEUES)
        return INVALID("%s: queue %u", what, (unsigned)q);
    return q == SL_QUEUE_OPS ? check_not_recording(d, what) : SL_OK;
}

enum sl_status sl_device_copy(struct sl_device *d, enum sl_queue q, struct sl_span dst,
                              struct sl_span src) {
    if ((unsigned)q >= SL_QUEUES)
        return INVALID("copy: queue %u", (unsigned)q);
    SL_TRY(check_span(d, "copy to", dst));
    SL_TRY(check_span(d, "copy from", src));
    if (dst.bytes != src.bytes)
        return INVALID("copy: %zu bytes to %zu", src.bytes, dst.bytes);
    if (dst.buffer->kind == SL_BUFFER_MAPPED && src.buffer->kind == SL_BUFFER_MAPPED)
        return INVALID("copy: %zu bytes from the host's memory to the host's", src.bytes);
    if (!dst.bytes)
        return SL_OK;
    if (q != SL_QUEUE_OPS || !d->recording)
        return d->ops->copy(d, q, dst, src);
    const struct sl_op_copy kept = {dst, src};
    return sl_record_keep(d, SL_RECORDED_COPY, &kept, sizeof kept);
}

enum sl_status sl_device_copy_rows(struct sl_device *d, struct sl_span dst, struct sl_span src,
                                   size_t row_bytes, const uint32_t *rows, uint32_t n) {
    SL_TRY(check_not_recording(d, "copy_rows"));
    SL_TRY(check_span(d, "copy_rows to", dst));
    SL_TRY(check_span(d, "copy_rows from", src));
    if (dst.bytes != src.bytes || n > SL_COPY_ROWS_MAX || src.buffer->kind != SL_BUFFER_MAPPED ||
        dst.buffer->kind == SL_BUFFER_MAPPED)
        return INVALID("copy_rows: %u rows of %zu bytes to %zu", n, src.bytes, dst.bytes);
    for (uint32_t i = 0; i < n; i++)
        if ((rows[i] + 1) * row_bytes > src.bytes)
            return INVALID("copy_rows: row %u of %zu bytes", rows[i], src.bytes);
    enum sl_status status = n && d->ops->copy_rows
                                ? d->ops->copy_rows(d, dst, src, row_bytes, rows, n)
                                : SL_ERR_UNSUPPORTED;
    if (status != SL_ERR_UNSUPPORTED)
        return status;
    for (uint32_t i = 0, run; i < n; i += run) {
        size_t at = rows[i] * row_bytes;
        for (run = 1; i + run < n && rows[i + run] == rows[i] + run;)
            run++;
        SL_TRY(sl_device_copy(d, SL_QUEUE_OPS, sl_span_part(dst, at, run * row_bytes),
                              sl_span_part(src, at, run * row_bytes)));
    }
    return SL_OK;
}

enum sl_status sl_device_mark(struct sl_device *d, enum sl_queue q, sl_point *out_point) {
    SL_TRY(check_queue(d, "mark", q));
    return d->ops->mark(d, q, out_point);
}

enum sl_status sl_device_passed(struct sl_device *d, enum sl_queue q, sl_point point) {
    if ((unsigned)q >= SL_QUEUES)
        return INVALID("passed: queue %u", (unsigned)q);
    return d->ops->passed(d, q, point);
}

enum sl_status sl_device_await(struct sl_device *d, enum sl_queue q, sl_point point) {
    if ((unsigned)q >= SL_QUEUES)
        return INVALID("await: queue %u", (unsigned)q);
    return d->ops->await(d, q, point);
}

enum sl_status sl_device_after(struct sl_device *d, enum sl_queue q, enum sl_queue other,
                               sl_point point) {
    SL_TRY(check_queue(d, "after", q));
    if ((unsigned)other >= SL_QUEUES)
        return INVALID("after: queue %u", (unsigned)other);
    return q == other ? SL_OK : d->ops->after(d, q, other, point);
}

static enum sl_status check_peer(const struct sl_device *d, const struct sl_device *other,
                                 const char *what) {
    SL_TRY(check_not_recording(d, what));
    if (d->ops != other->ops)
        return UNSUPPORTED("%s: %s and %s are devices of different kinds", what, d->caps.name,
                           other->caps.name);
    if (!d->ops->peer_open)
        return UNSUPPORTED("%s: %s does not read another device's memory", what, d->caps.name);
    return SL_OK;
}

enum sl_status sl_device_peer_open(struct sl_device *d, struct sl_device *other) {
    SL_TRY(check_not_recording(d, "peer_open"));
    return d->ops == other->ops && d->ops->peer_open ? d->ops->peer_open(d, other)
                                                     : SL_ERR_UNSUPPORTED;
}

enum sl_status sl_device_copy_from(struct sl_device *d, struct sl_span dst, struct sl_device *other,
                                   struct sl_span src) {
    SL_TRY(check_peer(d, other, "copy_from"));
    SL_TRY(check_span(d, "copy_from to", dst));
    SL_TRY(check_span(other, "copy_from", src));
    if (dst.bytes != src.bytes || dst.buffer->kind != SL_BUFFER_DEVICE ||
        src.buffer->kind != SL_BUFFER_DEVICE)
        return INVALID("copy_from: %zu bytes to %zu, or not between devices", src.bytes, dst.bytes);
    return dst.bytes ? d->ops->copy_from(d, dst, other, src) : SL_OK;
}

enum sl_status sl_device_relay_open(struct sl_device *d, struct sl_device *other,
                                    const atomic_bool *busy) {
    SL_TRY(check_not_recording(d, "relay_open"));
    bool can = d->ops == other->ops && d->ops->relay_open;
    return can ? d->ops->relay_open(d, other, busy) : SL_ERR_UNSUPPORTED;
}

void sl_device_relay_end(struct sl_device *d) {
    if (d->ops->relay_end)
        d->ops->relay_end(d);
}

void sl_device_relay_close(struct sl_device *d) {
    if (d->ops->relay_close)
        d->ops->relay_close(d);
}

bool sl_device_relay_lost(const struct sl_device *d) {
    return d->ops->relay_lost && d->ops->relay_lost(d);
}

bool sl_device_reaches(const struct sl_device *d, const struct sl_device *other) {
    return d != other && d->ops == other->ops && d->ops->reaches &&
           sl_device_has_op(d, SL_OP_send) && sl_device_has_op(other, SL_OP_receive) &&
           d->ops->reaches(d, other);
}

bool sl_device_is_same(const struct sl_device *d, const struct sl_device *other) {
    return d == other || (d->ops == other->ops && d->ops->same && d->ops->same(d, other));
}

enum sl_status sl_signal_create(struct sl_device *d, struct sl_signal **out_signal) {
    SL_TRY(check_not_recording(d, "signal_create"));
    return d->ops->signal_create ? d->ops->signal_create(d, out_signal) : SL_ERR_UNSUPPORTED;
}

void sl_signal_free(struct sl_device *d, struct sl_signal **signal) {
    if (*signal)
        d->ops->signal_free(d, *signal);
    *signal = NULL;
}

enum sl_status sl_signal_raise(struct sl_device *d, struct sl_signal *signal) {
    SL_TRY(check_not_recording(d, "signal_raise"));
    return d->ops->signal_raise(d, signal);
}

enum sl_status sl_signal_follow(struct sl_device *d, struct sl_device *maker,
                                struct sl_signal *signal) {
    SL_TRY(check_peer(d, maker, "signal_follow"));
    return d == maker ? SL_OK : d->ops->signal_follow(d, signal);
}

enum sl_status sl_signal_hold(struct sl_device *d, struct sl_signal *signal) {
    SL_TRY(check_not_recording(d, "signal_hold"));
    return d->ops->signal_hold ? d->ops->signal_hold(d, signal) : SL_ERR_UNSUPPORTED;
}

void sl_signal_release(const struct sl_device *maker, struct sl_signal *signal) {
    maker->ops->signal_release(signal);
}

enum sl_status sl_device_replay(struct sl_device *d, struct sl_graph *graph) {
    SL_TRY(check_not_recording(d, "replay"));
    if (!graph)
        return INVALID("replay: no graph");
    return d->ops->replay(d, graph);
}

void sl_graph_free(struct sl_device *d, struct sl_graph **graph) {
    if (*graph)
        d->ops->graph_free(d, *graph);
    *graph = NULL;
}
