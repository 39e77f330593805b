/* The host layer of GPUs whose drivers are alike, CUDA's and HIP's: the device, memory, and how an
 * op launches a kernel. backends/cuda/ and backends/hip/ each give it a kind (struct sl_gpu_kind).
 *
 * device.c opens and closes; memory.c allocates and stages; queue.c copies alongside the ops, marks
 * and orders; peer.c takes from other GPUs; graph.c makes graphs of recorded ops; launch.c finds
 * and launches kernels; ops_*.c are the ops. Ops, uploads and downloads go to one stream, so that
 * what is enqueued later sees what was enqueued before. */
#ifndef SL_BACKENDS_GPU_GPU_INTERNAL_H
#define SL_BACKENDS_GPU_GPU_INTERNAL_H

#include "backends/backend.h"
#include "backends/backend_entry.h"
#include "backends/gpu/driver.h"
#include "backends/gpu/images.h"
#include "backends/kernels/families.h"
#include "backends/recorded.h"

#define SL_GPU_STAGING_SEGMENTS 4u
#define SL_GPU_MAX_IMAGES       32u
#define SL_GPU_COUNTERS         4096u

/* Signals are words of the staging buffer's memory, a cache line each: of the driver the first
 * small piece of pinned memory in a context would take 2 MiB that no plan knows, and freeing it
 * waits for all that is enqueued on any GPU. */
#define SL_GPU_WORDS       64u /* bits of words_taken */
#define SL_GPU_WORD_BYTES  64u
#define SL_GPU_WORDS_BYTES (SL_GPU_WORDS * SL_GPU_WORD_BYTES)

/* Pinned host memory that small uploads go through. Segments are filled in turn; a full one is
 * closed with an event and is used again when the event has passed. */
struct sl_gpu_staging {
    char *host; /* SL_GPU_STAGING_SEGMENTS * segment_bytes, and SL_GPU_WORDS_BYTES, pinned */
    uint64_t words_taken; /* a bit for each */
    uint64_t seen;        /* as kernels see it */
    uint64_t mirror;      /* device memory of the same size: where sl_gpu_push() puts what it got */
    uint32_t segment_bytes;
    uint32_t segment, used_bytes; /* the one being filled */
    struct CUevent_st *passed[SL_GPU_STAGING_SEGMENTS];
    bool in_flight[SL_GPU_STAGING_SEGMENTS];
};

/* A stream, and the events of its latest points: point p's is event[p % SL_QUEUE_POINTS], made when
 * it is first wanted, and recorded anew only when the point that it stood for has passed. */
struct sl_gpu_queue {
    struct CUstream_st *stream;
    struct CUevent_st *event[SL_QUEUE_POINTS];
    sl_point marked, passed; /* the last one given out, the last one known to have passed */
};

/* Host memory is registered in pieces, and one copy of the driver's may not cross from one piece to
 * the next. */
#define SL_GPU_MAP_PIECE_BYTES ((size_t)1 << 30)

/* relay.c: another GPU whose link copies to this one use too. */
struct sl_gpu_relay {
    struct sl_gpu *by;          /* NULL: none */
    const atomic_bool *busy;    /* the other has copies of its own */
    bool failed;                /* nothing goes that way any more */
    atomic_bool lost;           /* nor has come what was under way; for any thread to read */
    uint64_t look_ns;           /* when the other is to be looked at again */
    void *buffer;               /* [SL_RELAY_BYTES] of the other's memory */
    struct CUstream_st *stream; /* of the other's context, but used by this one's owner */
    struct sl_signal *begun;    /* raised on SL_QUEUE_UP: the queue has come to the copy */
    struct sl_signal *ended;    /* on stream, made by the other */
};

/* What is known of a GPU before its context. */
struct sl_gpu;
struct sl_gpu_info {
    char name[64], arch[32]; /* "NVIDIA H200", "sm_90" */
    uint64_t memory_bytes;
    uint32_t cc; /* CUDA's compute capability: 90 for 9.0; else 0 */
    uint32_t n_sm, warp_size;
    bool integrated; /* shares the host's memory */
};

/* What sets GPUs of one maker's driver apart. Texts that take no device begin with `name`. */
struct sl_gpu_kind {
    const char *name; /* "cuda": ids and messages begin with it */
    const struct sl_backend *backend;
    const struct sl_backend_ops *ops;
    const struct sl_gpu_image *images;
    const uint64_t *n_images;
    const char *visible; /* the environment variable that hides GPUs from the driver */
    /* path: NULL = the system's. SL_ERR_UNSUPPORTED: why there is none of use. */
    enum sl_status (*driver_open)(const char *path, struct sl_gpu_driver *out_driver,
                                  struct sl_err *err);
    /* This build has no images. */
    enum sl_status (*no_kernels)(struct sl_err *err);
    /* Sets out->arch, and out->cc; a driver's result. */
    int (*describe)(const struct sl_gpu_driver *d, int device, struct sl_gpu_info *out);
    /* SL_ERR_UNSUPPORTED: this build, or the backend, has nothing for such a GPU. */
    enum sl_status (*check)(const struct sl_gpu_driver *d, uint32_t ordinal,
                            const struct sl_gpu_info *info, struct sl_err *err);
    /* Makes images for a GPU that those of the build are not for, which stay until free_images;
     * none, if they are. Both NULL: the kind's are for all. */
    enum sl_status (*make_images)(const struct sl_gpu *c, struct sl_gpu_image **out_images,
                                  uint32_t *out_n, struct sl_err *err);
    void (*free_images)(struct sl_gpu_image *images, uint32_t n);
    /* Sets what else the kernels know of the GPU; may say how they fit. */
    void (*suit)(struct sl_gpu *c, const struct sl_gpu_info *info);
    /* An image that the driver refuses as not for this GPU, and why. */
    enum sl_status (*misfit)(const struct sl_gpu *c, const char *image, const char *why,
                             struct sl_err *err);
    void (*write_version)(const struct sl_gpu_driver *d, char *buf, size_t buf_bytes);
};

struct sl_gpu {
    struct sl_device base;
    const struct sl_gpu_kind *kind;
    const char *name; /* the kind's */
    struct sl_gpu_driver driver;
    int device, ordinal;
    struct CUctx_st *ctx;
    struct CUstream_st *stream; /* queue[SL_QUEUE_OPS].stream */
    struct sl_gpu_queue queue[SL_QUEUES];
    char arch[32];           /* "sm_90" */
    uint32_t n_sm;           /* multiprocessors */
    uint32_t max_smem_bytes; /* a block may have, opted in */
    bool early_start;        /* kernels start while those before them end: device.cuh */
    bool uploaded;           /* by a kernel, and no other kernel has followed */
    uint32_t reads;          /* a bit for each GPU whose memory kernels reach, by its number */
    bool working;            /* an op has been launched: a model has been loaded */
    bool lost; /* an error was seen that only a new process gets over: every call is refused */
    /* What goes up alongside the ops is copied so often, 1 at the least, as if the link were so
     * much slower: $SLUICE_TEST_LINK_SLOWDOWN, for measurements of usual machines. */
    double link_slowdown;

    struct sl_gpu_staging staging;
    /* Device memory that configure() took: sl_gpu_ops_scratch_bytes() of it, 256-byte aligned.
     * Shared by all ops: what one op leaves there the next may overwrite. */
    void *scratch;
    uint64_t scratch_bytes;

    uint32_t
        *counters; /* device memory, SL_GPU_COUNTERS zeros; a kernel that counts leaves zeros */

    struct sl_gpu_relay relay;

    struct sl_gpu_image *made_images; /* the kind's make_images; NULL: the build's are used */
    uint32_t n_made;
    struct CUmod_st *module[SL_GPU_MAX_IMAGES];
    uint32_t n_modules;
    struct CUfunc_st *kernel[SL_KERNEL_COUNT];    /* NULL: missing */
    bool lacks_type[SL_OP_COUNT][SL_DTYPE_COUNT]; /* tensor types that an op lacks kernels for */
    uint32_t lacks_fused;                         /* a bit for each enum sl_fused */
    uint32_t kernel_smem_bytes[SL_KERNEL_COUNT];  /* dynamic, it may have by now; 0: new */
};

struct sl_dim3 {
    uint32_t x, y, z;
};

/* Enqueues one kernel; args is its argument struct (kernels.h), copied before the call returns.
 * Dynamic shared memory above 48 KiB is opted into here. An empty grid is our own mistake.
 * SL_ERR_UNSUPPORTED: more shared memory than this GPU gives a block; SL_ERR_DEVICE_LOST. */
enum sl_status sl_gpu_launch(struct sl_gpu *c, enum sl_kernel kernel, struct sl_dim3 grid,
                             struct sl_dim3 block, uint32_t smem_bytes, const void *args,
                             size_t args_bytes) SL_MUST_CHECK;

/* Copies a small array (at most one segment of the staging buffer, at least 256 KiB) from host
 * memory to a device address that kernels launched after this, and before the next push of any size
 * has wrapped around the staging buffer, may read. In stream order, so that kernels of one op may
 * simply use it. 256-byte aligned. */
enum sl_status sl_gpu_push(struct sl_gpu *c, const void *src_host, size_t bytes,
                           const void **out_addr) SL_MUST_CHECK;

/* Turns a CUresult into a status; logs the first one of a failure with `what`. Errors after which
 * the context is of no more use mark the device lost. */
enum sl_status sl_gpu_check(struct sl_gpu *c, int result, const char *what) SL_MUST_CHECK;
/* Makes the device's context the calling thread's, to enqueue something; refuses a lost device, and
 * one that has lost what was to come by another (sl_gpu_came_whole). */
enum sl_status sl_gpu_enter(struct sl_gpu *c) SL_MUST_CHECK;
/* The same to wait or to free: refuses a lost device alone. */
enum sl_status sl_gpu_enter_to_end(struct sl_gpu *c) SL_MUST_CHECK;

/* device.c */
/* What the kernels of this build can do: of caps what does not depend on the GPU's memory. */
void sl_gpu_caps(const struct sl_gpu *c, struct sl_device_caps *caps);
/* A GPU's attribute, 0 where the driver gives none; *result keeps the first error. */
uint32_t sl_gpu_attribute(const struct sl_gpu_driver *d, int device, int which, int *result);
void sl_gpu_close(struct sl_device *d);
enum sl_status sl_gpu_configure(struct sl_device *d, const struct sl_device_limits *limits);
uint64_t sl_gpu_scratch_bytes(const struct sl_device *d, const struct sl_device_limits *limits);
/* As the registry's enumerate and open, over the driver at driver_path (NULL: the system's).
 * staging_bytes: pinned memory for uploads; 0 = 16 MiB. */
enum sl_status sl_gpu_enumerate(const struct sl_gpu_kind *kind, const char *driver_path,
                                struct sl_device_found *out_found, uint32_t max_found,
                                uint32_t *out_n, struct sl_err *err) SL_MUST_CHECK;
enum sl_status sl_gpu_open(const struct sl_gpu_kind *kind, const char *driver_path,
                           uint32_t ordinal, uint32_t staging_bytes, struct sl_device **out_device,
                           struct sl_err *err) SL_MUST_CHECK;

/* memory.c */
enum sl_status sl_gpu_staging_init(struct sl_gpu *c, size_t bytes);
void sl_gpu_staging_release(struct sl_gpu *c);
/* The backend's own memory: scratch, counters, staging. */
enum sl_status sl_gpu_alloc(struct sl_device *d, size_t bytes, void **out_addr);
void sl_gpu_free(struct sl_device *d, void *addr, size_t bytes);
enum sl_status sl_gpu_buffer_alloc(struct sl_device *d, struct sl_buffer *buffer);
void sl_gpu_buffer_free(struct sl_device *d, struct sl_buffer *buffer);
enum sl_status sl_gpu_upload(struct sl_device *d, struct sl_span dst, const void *src);
enum sl_status sl_gpu_download(struct sl_device *d, void *dst_host, struct sl_span src);
enum sl_status sl_gpu_sync(struct sl_device *d);
static inline uint64_t sl_gpu_address(struct sl_span s) {
    return (uint64_t)(uintptr_t)sl_span_addr(s);
}

enum sl_status sl_gpu_memory(struct sl_device *d, uint64_t *out_free, uint64_t *out_total);
enum sl_status sl_gpu_map_host(struct sl_device *d, struct sl_buffer *buffer);
void sl_gpu_unmap_host(struct sl_device *d, struct sl_buffer *buffer);

/* queue.c */
enum sl_status sl_gpu_queues_init(struct sl_gpu *c);
void sl_gpu_queues_release(struct sl_gpu *c);
enum sl_status sl_gpu_copy(struct sl_device *d, enum sl_queue q, struct sl_span dst,
                           struct sl_span src);
enum sl_status sl_gpu_copy_rows(struct sl_device *d, struct sl_span dst, struct sl_span src,
                                size_t row_bytes, const uint32_t *rows, uint32_t n);
/* Copies whole words by a kernel on the queue of the ops; both addresses are the device's. */
enum sl_status sl_gpu_words(struct sl_gpu *c, uint64_t dst, uint64_t src,
                            size_t bytes) SL_MUST_CHECK;
static inline bool sl_gpu_are_words(uint64_t dst, uint64_t src, size_t bytes) {
    return bytes && (dst | src | bytes) % sizeof(uint32_t) == 0;
}
enum sl_status sl_gpu_mark(struct sl_device *d, enum sl_queue q, sl_point *out_point);
enum sl_status sl_gpu_passed(struct sl_device *d, enum sl_queue q, sl_point point);
enum sl_status sl_gpu_await(struct sl_device *d, enum sl_queue q, sl_point point);
enum sl_status sl_gpu_after(struct sl_device *d, enum sl_queue q, enum sl_queue other,
                            sl_point point);

/* graph.c */
enum sl_status sl_gpu_graph_create(struct sl_device *d, const struct sl_recorded_op *ops,
                                   uint32_t n_ops, struct sl_graph **out_graph);
enum sl_status sl_gpu_replay(struct sl_device *d, struct sl_graph *graph);
void sl_gpu_graph_free(struct sl_device *d, struct sl_graph *graph);

/* peer.c */
enum sl_status sl_gpu_peer_open(struct sl_device *d, struct sl_device *other);
enum sl_status sl_gpu_copy_from(struct sl_device *d, struct sl_span dst, struct sl_device *other,
                                struct sl_span src);
enum sl_status sl_gpu_signal_create(struct sl_device *d, struct sl_signal **out_signal);
void sl_gpu_signal_free(struct sl_device *d, struct sl_signal *signal);
enum sl_status sl_gpu_signal_raise(struct sl_device *d, struct sl_signal *signal);
enum sl_status sl_gpu_signal_follow(struct sl_device *d, struct sl_signal *signal);
void sl_gpu_signal_release(struct sl_signal *signal);
enum sl_status sl_gpu_signal_hold(struct sl_device *d, struct sl_signal *signal);
/* The same on any stream of the context that is current; CUresults. */
int sl_gpu_raise_on(const struct sl_gpu *c, struct CUstream_st *stream, struct sl_signal *signal);
int sl_gpu_follow_on(const struct sl_gpu *c, struct CUstream_st *stream,
                     const struct sl_signal *signal);
/* Has a raise not run yet? */
bool sl_gpu_signal_is_out(const struct sl_signal *signal);
bool sl_gpu_same(const struct sl_device *d, const struct sl_device *other);
bool sl_gpu_reaches(const struct sl_device *d, const struct sl_device *other);

/* relay.c */
enum sl_status sl_gpu_relay_open(struct sl_device *d, struct sl_device *other,
                                 const atomic_bool *busy);
void sl_gpu_relay_end(struct sl_device *d);
void sl_gpu_relay_close(struct sl_device *d);
/* The device is lost: what the other one has been given for it waits no longer, since it might be
 * in the way of that one's own. */
void sl_gpu_relay_let_go(struct sl_gpu *c);
/* Is such a copy up one for sl_gpu_relay_copy, which is then in order on the queue as any other?
 */
bool sl_gpu_relays(const struct sl_gpu *c, enum sl_queue q, size_t bytes);
enum sl_status sl_gpu_relay_copy(struct sl_gpu *c, uint64_t dst, const char *src, size_t bytes);
/* As the driver's event_sync and stream_sync, CUresults: but if the other GPU fails meanwhile, what
 * is waited for goes on without what was to come by way of it. */
int sl_gpu_await_event(struct sl_gpu *c, struct CUevent_st *event);
int sl_gpu_await_stream(struct sl_gpu *c, struct CUstream_st *stream);
/* Something is not ready: looks, now and then, whether that is because the other GPU failed. */
void sl_gpu_relay_watch(struct sl_gpu *c);
/* Of what has ended: SL_ERR_DEVICE_LOST if it went on without. */
static inline enum sl_status sl_gpu_came_whole(const struct sl_gpu *c) {
    return c->relay.lost ? SL_ERR_DEVICE_LOST : SL_OK;
}
bool sl_gpu_relay_lost(const struct sl_device *d);

/* launch.c. A kernel that is missing takes its ops out of caps, or a type of them;
 * SL_ERR_UNSUPPORTED where the device is of no use without it. */
enum sl_status sl_gpu_modules_load(struct sl_gpu *c, struct sl_err *err);
void sl_gpu_modules_unload(struct sl_gpu *c);
/* Is the family's kernel for this variant there? */
static inline bool sl_gpu_has(const struct sl_gpu *c, enum sl_kernel_family family,
                              uint32_t variant) {
    enum sl_kernel kernel = sl_kernel_of(family, variant);
    return kernel != SL_KERNEL_COUNT && c->kernel[kernel];
}
bool sl_gpu_supports(const struct sl_device *d, const struct sl_op_need *need);

/* ops_*.c: the ops, and the scratch that they need together. Types that they take are set in
 * caps.weight_dtype and caps.kv_dtype by sl_gpu_ops_caps(). */
uint64_t sl_gpu_ops_scratch_bytes(const struct sl_gpu *c, const struct sl_device_limits *limits);
void sl_gpu_ops_caps(const struct sl_gpu *c, struct sl_device_caps *caps);
#define SL_OP(name) enum sl_status sl_gpu_##name(struct sl_device *d, const struct sl_op_##name *a);
#define SL_OP_HOST(name)
#include "backends/ops.def"
/* Fused forms: what of them this GPU takes, and how they are launched. */
#define SL_FUSED(name)                                                                             \
    bool sl_gpu_takes_##name(const struct sl_device *d, const struct sl_fused_##name *a);          \
    enum sl_status sl_gpu_fused_##name(struct sl_device *d, const struct sl_fused_##name *a);
#include "backends/fused.def"

#endif
