/* A device: what the engine asks of it. Memory, queues and events, the ops, graphs, and what
 * several devices do with one another. What each op computes, and its arguments, are in
 * backends/ops/, a header for each kind of op; backend_table.h is what a backend implements.
 *
 * A device executes ops in submission order on one queue, SL_QUEUE_OPS; copies may run alongside
 * them on two more. Calls enqueue; results are valid after sl_device_sync(), or once a point marked
 * afterwards has passed (the CPU executes at once). All calls on one device come from one thread at
 * a time, its owner.
 *
 * Submission: a backend may hold back what was enqueued on a queue until sl_device_mark() is called
 * on it, a signal is raised, or somebody waits (sync, download, await, free); then it must submit
 * it. passed() submits nothing. So before polling a point, or making another device follow, it is
 * enough to place the mark.
 *
 * Memory is allocated in buffers. Copies, uploads and downloads name it by spans; the direction of
 * a copy follows from the kinds of its buffers. Pointers in op arguments are device addresses,
 * which sl_span_addr() gives. The host may follow them only if caps.host_visible is set; they may
 * or may not equal the host's addresses of the same bytes. What they point to is borrowed until the
 * op has executed; the argument struct itself, and host arrays in it, until the call returns.
 *
 * Determinism: a row's result depends only on that row's own inputs and the weights, not on how
 * many rows the call has, nor on the number of threads. Rows [0, n_decode) are generated rows, the
 * others prompt rows: a backend whose decode and prefill kernels round differently chooses by this,
 * never by n_tok. On the CPU both give the same bits.
 *
 * The front end (sl_op_*) checks arguments once (shapes, alignment to blocks, types the device
 * lacks, limits given to sl_device_configure), and returns SL_ERR_INVALID or SL_ERR_UNSUPPORTED;
 * backends trust what they get. */
#ifndef SL_BACKENDS_BACKEND_H
#define SL_BACKENDS_BACKEND_H

#include "backends/buffer.h"
#include "backends/ops/activation.h"
#include "common/dtype.h"
#include "common/limits.h"
#include "common/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_device;

/* The arguments of ops (backends/ops/). */
#define SL_OP(name) struct sl_op_##name;
#include "backends/ops.def"

/* The ops, and what each is called: "rms_norm". */
enum sl_op {
#define SL_OP(name) SL_OP_##name,
#include "backends/ops.def"
    SL_OP_COUNT
};
const char *sl_op_name(enum sl_op op);

/* Fused forms (recorded.h), and the bits of caps.fused_ops. */
enum sl_fused {
#define SL_FUSED(name) SL_FUSED_##name,
#include "backends/fused.def"
    SL_FUSED_COUNT
};

/* What arguments an op will come with, as far as a device may lack it for them. */
struct sl_op_need {
    enum sl_op op;
    enum sl_dtype dtype;             /* embed, matmul, head_matmul, moe: of weights; kv_write,
                                        attention, latent_*, index_choose, chosen_attention, block_*,
                                        compress*: of KV;
                                        else             SL_DTYPE_COUNT */
    uint32_t head_dim_k, head_dim_v; /* kv_write, attention, block_attention, delta_rule,
                                        channel_delta; latent_*, index_choose, block_choose,
                                        chosen_attention, compress*: n_latent + n_rot and n_latent;
                                        state_scan: n_state and head_dim; else 0 */
    bool biases;                     /* moe: of gate, up and down */
    enum sl_activation activation;   /* moe */
    bool groups;                     /* router */
    bool sigmoid_topk;               /* router: caps.sigmoid_topk */
    bool share;                      /* router: caps.router_share */
    bool window;                     /* latent_attention: caps.latent_window */
    const char *extra;               /* with arguments for which caps.extra_args is needed: what
                                        they are, as in " with a soft cap"; NULL: without */
};

/* The largest calls that will be made, so that scratch is allocated once. */
struct sl_device_limits {
    uint32_t max_tok;      /* rows per call */
    uint32_t max_n_in;     /* widest matmul input, elements */
    uint32_t max_pairs;    /* n_tok*k of sl_op_moe */
    uint32_t max_n_embd;   /* of sl_op_moe */
    uint32_t max_n_ff;     /* of sl_op_moe */
    uint32_t max_expert;   /* n_expert of sl_op_moe and sl_op_router */
    uint32_t max_heads;    /* of sl_op_attention, and of sl_op_latent_attention, */
    uint32_t max_head_dim; /* with n_latent + n_rot */
    uint32_t max_head_n;   /* n_in and n_out of sl_op_head_matmul */
    uint32_t max_scores;   /* positions of a row of sl_op_index_choose, sl_op_block_choose and
                              sl_op_compressed_choose; 0: they are not called */
};

enum sl_device_kind {
    SL_DEVICE_DISCRETE = 1, /* memory of its own, which the host reaches over a link */
    SL_DEVICE_INTEGRATED,   /* a device of its own that shares the host's memory */
    SL_DEVICE_HOST,         /* the host's CPU */
};

#define SL_DEVICE_ID_BYTES   16u
#define SL_DEVICE_NAME_BYTES 64u

/* What a device is and can do; 0, false or an empty text where it has none of it or does not say.
 */
struct sl_device_caps {
    enum sl_device_kind kind;
    char id[SL_DEVICE_ID_BYTES];      /* "cuda:0": opens it (registry.h) */
    char model[SL_DEVICE_NAME_BYTES]; /* "NVIDIA H200, sm_90": what it is, not which one */
    char name[SL_DEVICE_NAME_BYTES];  /* "cuda:0: NVIDIA H200, sm_90": both, for people */
    bool host_visible;                /* the host may follow device addresses */
    bool overlap;                     /* sl_op_moe computes while overlap() runs */
    bool mapped_host;                 /* kernels can read host memory: sl_device_map_host() */
    bool graphs;                      /* sl_device_record() */
    bool moe_placed;                  /* sl_op_moe takes placed */
    bool moe_bias;                    /* ... and biases */
    bool moe_as_host;                 /* ... and, where all three types are quantised, gives the
                                      bits of the host's CPU */
    bool swiglu_clamped;              /* ... and computes SL_SWIGLU_CLAMPED too */
    bool router_groups;               /* sl_op_router chooses by groups */
    bool geglu;                       /* ... and SL_GEGLU */
    bool swiglu_limited;              /* ... and SL_SWIGLU_LIMITED */
    bool reglu;                       /* ... and SL_REGLU */
    bool swiglu_cut;                  /* ... and SL_SWIGLU_CUT */
    bool relu_squared;                /* ... and SL_RELU_SQUARED */
    bool situ;                        /* ... and SL_SITU */
    bool sigmoid_topk;                /* sl_op_router takes softmax_topk with sigmoids */
    bool router_share;                /* ... and share */
    bool latent_window;               /* sl_op_latent_attention takes windows */
    bool extra_args;                  /* takes the arguments of ops that say they need it */
    bool mailbox;                     /* what copies on OPS of at most SL_MAILBOX_MAX_BYTES, whole
                                      words, write to mapped memory the host sees word by word,
                                      while the queue runs on */
    bool rows_alike;                  /* generated and prompt rows give the same bits */
    /* What decides the bits: two devices whose id and version are the same give the same ones. The
     * version is raised whenever any op's result changes in a bit, so that what an older program
     * kept on disk is not used; 0 = not followed: only the very same program's may be. */
    char arithmetic_id[SL_DEVICE_NAME_BYTES];
    uint32_t arithmetic;
    uint32_t subgroup_width;  /* threads that run in step */
    uint32_t shared_bytes;    /* on-chip memory of a workgroup at most */
    uint32_t fused_ops;       /* a bit for each enum sl_fused that it has */
    uint64_t lacks_ops;       /* a bit for each enum sl_op whose entry is there in vain */
    uint64_t max_alloc_bytes; /* largest buffer; 0: no limit but the memory */
    uint64_t memory_bytes;
    uint64_t held_bytes;               /* of memory_bytes, taken by opening it: staging */
    uint64_t memory_bytes_per_s;       /* by its data sheet */
    bool weight_dtype[SL_DTYPE_COUNT]; /* what matmul, moe and embed take */
    bool kv_dtype[SL_DTYPE_COUNT];
};

/* Queues of a device. Ops, uploads and downloads are on OPS; copies may run alongside them. Within
 * one queue all goes in order; between queues only sl_device_after() orders. */
enum sl_queue { SL_QUEUE_OPS, SL_QUEUE_UP, SL_QUEUE_DOWN, SL_QUEUES };
/* A place on a queue: all that was enqueued on it before. 0 has passed on every queue. */
typedef uint64_t sl_point;
/* Recorded ops, the backend's own. */
struct sl_graph;
/* What one device tells others: the backend's own. */
struct sl_signal;
struct sl_device {
    const struct sl_backend_ops *ops;
    struct sl_device_caps caps;
    struct sl_device_limits limits; /* zero until configured */
    bool recording;                 /* the front's: between record and recorded */
    struct sl_recording *recorded;  /* the front's; NULL: nothing was recorded yet */
    uint64_t n_kernels;             /* the backend's: launched so far, into graphs too; 0: it does
                                       not count them */
    _Atomic uint64_t own_bytes;     /* the backend's: allocated in the device's own memory; for any
                                       thread to read */
};

/* Does it have its own memory, which the host reaches over a link? */
static inline bool sl_device_is_discrete(const struct sl_device *d) {
    return d->caps.kind == SL_DEVICE_DISCRETE;
}

/* Closes and nulls *d; NULL is allowed. */
void sl_device_close(struct sl_device **d);
enum sl_status sl_device_configure(struct sl_device *d, const struct sl_device_limits *limits,
                                   struct sl_err *err) SL_MUST_CHECK;
uint64_t sl_device_scratch_bytes(const struct sl_device *d, const struct sl_device_limits *limits);
/* 64-byte aligned; large blocks are backed by huge pages if the backend can. Contents undefined.
 * SL_ERR_UNSUPPORTED: more than caps.max_alloc_bytes; buffer_pool.h has pools of several buffers.
 */
enum sl_status sl_device_alloc(struct sl_device *d, size_t bytes,
                               struct sl_buffer **out_buffer) SL_MUST_CHECK;
/* Waits for what uses it; frees and nulls *buffer; NULL is allowed. */
void sl_device_free(struct sl_device *d, struct sl_buffer **buffer);
/* To and from host memory that is not mapped; src_host may be reused when upload returns. This and
 * every other call that takes spans return SL_ERR_INVALID if a span is not within its buffer, or
 * the buffer is another device's. An empty span is done at once. */
enum sl_status sl_device_upload(struct sl_device *d, struct sl_span dst,
                                const void *src_host) SL_MUST_CHECK;
enum sl_status sl_device_download(struct sl_device *d, void *dst_host,
                                  struct sl_span src) SL_MUST_CHECK;
/* Waits for all queues. */
enum sl_status sl_device_sync(struct sl_device *d) SL_MUST_CHECK;
/* An op comes soon: what sleeps is woken. Returns at once. */
void sl_device_wake(struct sl_device *d);
/* The device's memory now, counting what other programs use; 0 = unknown. */
enum sl_status sl_device_memory(struct sl_device *d, uint64_t *out_free_bytes,
                                uint64_t *out_total_bytes) SL_MUST_CHECK;

/* Pins [host, host + bytes), both multiples of the page size, for sl_device_copy() and for kernels:
 * a buffer of kind MAPPED. The memory stays the caller's. SL_ERR_UNSUPPORTED: the device cannot
 * (caps.mapped_host), or it is more than caps.max_alloc_bytes; SL_ERR_NOMEM: the system refuses to
 * lock so much memory. */
enum sl_status sl_device_map_host(struct sl_device *d, void *host, size_t bytes,
                                  struct sl_buffer **out_buffer) SL_MUST_CHECK;
/* Waits for what is enqueued; nulls *buffer; NULL is allowed. */
void sl_device_unmap_host(struct sl_device *d, struct sl_buffer **buffer);
/* Enqueues a copy; both spans have the same length. From a MAPPED buffer up, down to one, or within
 * the device, but not from host memory to host memory. Both sides are borrowed until the copy has
 * run. */
enum sl_status sl_device_copy(struct sl_device *d, enum sl_queue q, struct sl_span dst,
                              struct sl_span src) SL_MUST_CHECK;

#define SL_MAILBOX_MAX_BYTES 2048u

#define SL_COPY_ROWS_MAX 128u
/* Enqueues on OPS copies of n rows, at most SL_COPY_ROWS_MAX, of row_bytes each, from a MAPPED
 * buffer: row rows[i] of src becomes row rows[i] of dst. rows: read at once. */
enum sl_status sl_device_copy_rows(struct sl_device *d, struct sl_span dst, struct sl_span src,
                                   size_t row_bytes, const uint32_t *rows,
                                   uint32_t n) SL_MUST_CHECK;

/* Points are kept in a ring: with SL_QUEUE_POINTS open, marking waits for the oldest one. */
#define SL_QUEUE_POINTS 256u
enum sl_status sl_device_mark(struct sl_device *d, enum sl_queue q,
                              sl_point *out_point) SL_MUST_CHECK;
/* SL_AGAIN: not yet. Never blocks. */
enum sl_status sl_device_passed(struct sl_device *d, enum sl_queue q, sl_point point) SL_MUST_CHECK;
enum sl_status sl_device_await(struct sl_device *d, enum sl_queue q, sl_point point) SL_MUST_CHECK;
/* Whatever is enqueued on q from now on runs after that point of the other queue. */
enum sl_status sl_device_after(struct sl_device *d, enum sl_queue q, enum sl_queue other,
                               sl_point point) SL_MUST_CHECK;

/* Graphs (caps.graphs): ops, and copies on OPS, that are submitted between record and recorded are
 * kept and not run; replay enqueues them on OPS again. Several ops in a row may be done by fewer
 * calls (caps.fused_ops). Argument structs are kept as they were; what their pointers point to is
 * read anew by every replay, so sl_op_moe needs device_refs. In between, nothing else may be called
 * on OPS, and nothing allocated. out_graph NULL drops what was recorded. A configure() invalidates
 * graphs. The bits are those of the same ops submitted one by one. */
enum sl_status sl_device_record(struct sl_device *d) SL_MUST_CHECK;
enum sl_status sl_device_recorded(struct sl_device *d, struct sl_graph **out_graph) SL_MUST_CHECK;
enum sl_status sl_device_replay(struct sl_device *d, struct sl_graph *graph) SL_MUST_CHECK;
/* Waits for its replays; frees and nulls *graph; NULL is allowed. */
void sl_graph_free(struct sl_device *d, struct sl_graph **graph);

/* Counts what recorded ops became, by kind of section, such as a kind of layer: for -v, which shows
 * when a fused form is no longer found. What is recorded after the call belongs to that kind, until
 * the next call. begins: a new section of that kind, not the rest of one. Does nothing while
 * nothing is recorded. */
#define SL_TALLY_KIND_BYTES 64u
struct sl_tally {
    char kind[SL_TALLY_KIND_BYTES];
    uint32_t n; /* sections */
    uint32_t n_ops, n_calls;
    uint64_t n_kernels; /* 0: the backend does not count them */
};
#define SL_MAX_TALLIES 8u
void sl_device_section(struct sl_device *d, const char *kind, bool begins);
/* The counts since the last log, by kind; valid until the next call on the device. */
const struct sl_tally *sl_device_tallies(const struct sl_device *d, uint32_t *out_n);
/* Logs the counts at debug level, one line per kind, after `what`, and resets them. */
void sl_device_log_recorded(struct sl_device *d, const char *what);

/* ---- several devices ----
 *
 * Each device has its own owner, a thread; these calls let one device take what another has
 * computed without either thread waiting for the other's queue. Each call first takes the device
 * whose owner makes it, and touches nothing of the other device that its owner's calls change, so
 * both may be working. Devices must be of one backend: otherwise SL_ERR_UNSUPPORTED, without
 * effect. Not while ops are recorded. */

/* Before the first copy: lets d read other's memory, directly if the hardware can, otherwise
 * through the driver's own buffers. Neither device is in use meanwhile. SL_ERR_UNSUPPORTED: there
 * is no way, as between devices of different backends; go through host memory. */
enum sl_status sl_device_peer_open(struct sl_device *d, struct sl_device *other) SL_MUST_CHECK;
/* Enqueues on d's OPS a copy out of a buffer of other's, of kind DEVICE, into one of d's own. It
 * does not wait by itself: d must have followed what computes src. Both sides are borrowed until it
 * has run. */
enum sl_status sl_device_copy_from(struct sl_device *d, struct sl_span dst, struct sl_device *other,
                                   struct sl_span src) SL_MUST_CHECK;
/* After peer_open: whether d's ops write to other's memory themselves, so that sl_op_send on d and
 * sl_op_receive on other work. Never if both are one GPU: what waits there could block what it
 * waits for. */
bool sl_device_reaches(const struct sl_device *d, const struct sl_device *other);
/* Are both one piece of hardware, opened twice? Any thread. */
bool sl_device_is_same(const struct sl_device *d, const struct sl_device *other);

/* A signal is raised by the device that created it, once everything on its OPS by then has run; it
 * may be raised any number of times. What other devices enqueue on OPS after they follow it runs
 * after the latest raise that happened before the call (a signal never raised delays nobody).
 * Whoever raises must synchronise with whoever follows, by a lock or an atomic, and must not raise
 * again before the other has followed. Only create allocates. SL_ERR_UNSUPPORTED: the driver
 * cannot; SL_ERR_NOMEM: also if a device has 64 of them. */
enum sl_status sl_signal_create(struct sl_device *d, struct sl_signal **out_signal) SL_MUST_CHECK;
/* Frees and nulls *signal; NULL is allowed. d: the device that created it. Nobody may wait for it
 * any more: what was enqueued behind it has run, or its device is lost. */
void sl_signal_free(struct sl_device *d, struct sl_signal **signal);
enum sl_status sl_signal_raise(struct sl_device *d, struct sl_signal *signal) SL_MUST_CHECK;
/* maker: the device that created it. */
enum sl_status sl_signal_follow(struct sl_device *d, struct sl_device *maker,
                                struct sl_signal *signal) SL_MUST_CHECK;
/* The latest raise will not come, since its device failed: those who follow go on, with whatever
 * data is there. Called by the owner that raised it; touches no device. maker: the device that
 * created it. */
void sl_signal_release(const struct sl_device *maker, struct sl_signal *signal);
/* What d, which created the signal, enqueues on OPS from now on waits until sl_signal_release(),
 * from any thread that synchronises with this one: for data that the host has not got yet. Nobody
 * raises or follows such a signal, and it is held again only after it was released. Until then
 * nothing that waits for d's queue may be called, unless another thread is sure to release it.
 * SL_ERR_UNSUPPORTED: its queues cannot; then nothing waits. */
enum sl_status sl_signal_hold(struct sl_device *d, struct sl_signal *signal) SL_MUST_CHECK;

/* A relay: large copies of SL_QUEUE_UP from mapped memory may reach d partly over the host's link
 * to `other`, and from there over a faster one between the two, while *busy, other's own work, is
 * false: borrowed until close, read at each copy. Takes SL_RELAY_BYTES of other's memory. Neither
 * device is in use meanwhile; one relay per device. SL_ERR_UNSUPPORTED: there is no faster link, or
 * there are no signals.
 *
 * A failure of `other` blocks nobody: whoever waits for d goes on with what has arrived, and gets
 * SL_ERR_DEVICE_LOST. From then on d accepts no work, as if lost; it still waits and frees. */
#define SL_RELAY_BYTES ((size_t)2 << 20)
enum sl_status sl_device_relay_open(struct sl_device *d, struct sl_device *other,
                                    const atomic_bool *busy) SL_MUST_CHECK;
/* Ends the relay: nothing is in flight when it returns, whichever device has failed. Allowed
 * without a relay. */
void sl_device_relay_end(struct sl_device *d);
/* Frees what the relay took, before either device is closed; allowed without one. If there are
 * several relays, end all of them first: freeing waits for whatever is enqueued on a device,
 * including the work of another relay, which may be waiting for a device that failed. */
void sl_device_relay_close(struct sl_device *d);
/* Is a SL_ERR_DEVICE_LOST of d the other device's? Any thread. */
bool sl_device_relay_lost(const struct sl_device *d);

/* Does it have the op at all? */
bool sl_device_has_op(const struct sl_device *d, enum sl_op op);
/* Before anything is loaded: whether it has the op for such arguments. SL_ERR_UNSUPPORTED, with a
 * text that says which device lacks which op for what. */
enum sl_status sl_device_need(const struct sl_device *d, const struct sl_op_need *need,
                              struct sl_err *err) SL_MUST_CHECK;

/* sl_op_embed() and so on. SL_ERR_UNSUPPORTED: the device lacks it, or lacks it for such
 * arguments. */
#define SL_OP(name)                                                                                \
    enum sl_status sl_op_##name(struct sl_device *d, const struct sl_op_##name *a) SL_MUST_CHECK;
#include "backends/ops.def"

#endif
