/* What the parts of the Level Zero backend share: the device, its memory and queues, and how an op
 * launches a kernel.
 *
 * find.c looks for devices; device.c opens and closes one; memory.c allocates and stages; queue.c
 * has the queues, graph.c what is recorded; module.c makes kernels and launches them; level_zero.c
 * holds the op table; ops_*.c are the ops. A kernel has one argument, a struct with addresses in it
 * (kernels.h). */
#ifndef SL_BACKENDS_LEVEL_ZERO_LEVEL_ZERO_INTERNAL_H
#define SL_BACKENDS_LEVEL_ZERO_LEVEL_ZERO_INTERNAL_H

#include "backends/backend_table.h"
#include "backends/kernel_args.h"
#include "backends/level_zero/find.h"
#include "backends/level_zero/kernels.h"
#include "backends/recorded.h"

#define SL_LZ_STAGING_SEGMENTS 4u
#define SL_LZ_EVENTS           SL_QUEUE_POINTS /* of a queue */

enum sl_lz_kernel {
#define ENTRY(name, threads, typed) SL_LZ_##name,
    SL_LZ_KERNELS(ENTRY)
#undef ENTRY
        SL_LZ_KERNEL_COUNT
};

/* Pinned memory of the host's that uploads, downloads and small arrays go through. Segments are
 * filled in turn; a full one is used again when the work that reads it has passed. */
struct sl_lz_staging {
    char *host; /* devices see it at the same address */
    uint32_t segment_bytes;
    uint32_t segment, used_bytes;            /* the one being filled */
    uint64_t passes[SL_LZ_STAGING_SEGMENTS]; /* point of SL_QUEUE_OPS that frees it */
};

/* An immediate list: what is appended starts at once. Its commands may overlap and overtake one
 * another but for barriers (only later drivers have lists that go in order by themselves). A point
 * is an event that a barrier raises; events are used in turn. */
struct sl_lz_queue {
    ze_command_list_handle_t list;
    bool after_barrier; /* the last command is a barrier */
    bool unmarked;      /* there is work behind the last point */
    uint64_t marked, passed;
    ze_event_handle_t event[SL_LZ_EVENTS];
    /* Of each event: points of the other queues by which their waiting for it has ended. */
    uint64_t waits[SL_LZ_EVENTS][SL_QUEUES];
};

/* Graphs are command lists of their own, which only a command queue runs. Two events hold its place
 * in SL_QUEUE_OPS: a graph waits for `begin`, which the immediate list raises, and raises `end`,
 * for which that list waits. Each is reset by the list that waited for it, so that all replays
 * share them. */
struct sl_lz_replays {
    ze_command_queue_handle_t queue; /* made with the first graph */
    ze_event_handle_t begin, end;
    ze_command_list_handle_t recording; /* where launches go while a graph is made; NULL: to the
                                           immediate list */
    bool after_barrier;                 /* the last command in it is a barrier */
};

struct sl_level_zero {
    struct sl_device base;
    const struct sl_lz_loader *ze;
    struct sl_lz_info info;
    uint32_t number;
    bool lost; /* an error was seen that only a new process gets over: every call is refused */
    ze_context_handle_t context;

    ze_event_pool_handle_t events;
    struct sl_lz_queue queue[SL_QUEUES];
    struct sl_lz_replays replays;
    bool overlap; /* the next launch need not wait for the one before it */
    struct sl_lz_staging staging;

    /* Shared by all ops: what one op leaves there the next may overwrite. */
    void *scratch;
    uint64_t scratch_bytes;

    ze_module_handle_t module[SL_LZ_KERNEL_COUNT][SL_DTYPE_COUNT]; /* made when first launched */
    ze_kernel_handle_t kernel[SL_LZ_KERNEL_COUNT][SL_DTYPE_COUNT];
};

/* Turns a result into a status; logs the first one of a failure with `what`. */
enum sl_status sl_lz_check(struct sl_level_zero *z, ze_result_t result,
                           const char *what) SL_MUST_CHECK;

/* memory.c */
/* SL_ERR_DEVICE_OOM: the device's memory is used up; another is never taken instead. */
enum sl_status sl_lz_memory_alloc(struct sl_level_zero *z, uint64_t bytes,
                                  void **out_at) SL_MUST_CHECK;
void sl_lz_memory_free(struct sl_level_zero *z, void *at, uint64_t bytes);
enum sl_status sl_lz_staging_init(struct sl_level_zero *z, uint32_t bytes) SL_MUST_CHECK;
void sl_lz_staging_release(struct sl_level_zero *z);
/* Puts a small array where kernels launched after this, and before the staging buffer has wrapped
 * around, may read it: at most a segment. */
enum sl_status sl_lz_push(struct sl_level_zero *z, const void *src, size_t bytes,
                          uint64_t *out_addr) SL_MUST_CHECK;
enum sl_status sl_lz_buffer_alloc(struct sl_device *d, struct sl_buffer *buffer);
void sl_lz_buffer_free(struct sl_device *d, struct sl_buffer *buffer);
enum sl_status sl_lz_map_host(struct sl_device *d, struct sl_buffer *buffer);
void sl_lz_unmap_host(struct sl_device *d, struct sl_buffer *buffer);
enum sl_status sl_lz_upload(struct sl_device *d, struct sl_span dst, const void *src);
enum sl_status sl_lz_download(struct sl_device *d, void *dst_host, struct sl_span src);
enum sl_status sl_lz_memory_left(struct sl_device *d, uint64_t *out_free, uint64_t *out_total);

/* queue.c */
enum sl_status sl_lz_queues_init(struct sl_level_zero *z) SL_MUST_CHECK;
void sl_lz_queues_release(struct sl_level_zero *z);
/* The list to append a command to; behind a barrier, but for what sl_lz_overlap() announced. */
enum sl_status sl_lz_list_for(struct sl_level_zero *z, enum sl_queue q,
                              ze_command_list_handle_t *out_list) SL_MUST_CHECK;
enum sl_status sl_lz_append_copy(struct sl_level_zero *z, enum sl_queue q, void *dst,
                                 const void *src, size_t bytes) SL_MUST_CHECK;
enum sl_status sl_lz_sync(struct sl_device *d);
enum sl_status sl_lz_copy(struct sl_device *d, enum sl_queue q, struct sl_span dst,
                          struct sl_span src);
enum sl_status sl_lz_mark(struct sl_device *d, enum sl_queue q, sl_point *out_point);
enum sl_status sl_lz_passed(struct sl_device *d, enum sl_queue q, sl_point point);
enum sl_status sl_lz_await(struct sl_device *d, enum sl_queue q, sl_point point);
enum sl_status sl_lz_after(struct sl_device *d, enum sl_queue q, enum sl_queue other,
                           sl_point point);

/* graph.c: entries of that name. */
enum sl_status sl_lz_graph_create(struct sl_device *d, const struct sl_recorded_op *ops,
                                  uint32_t n_ops, struct sl_graph **out_graph);
enum sl_status sl_lz_replay(struct sl_device *d, struct sl_graph *graph);
void sl_lz_graph_free(struct sl_device *d, struct sl_graph *graph);
void sl_lz_replays_release(struct sl_level_zero *z);

/* module.c */
/* Is the kernel embedded for this type? */
bool sl_lz_has_kernel(enum sl_lz_kernel kernel, enum sl_dtype t);
void sl_lz_kernels_release(struct sl_level_zero *z);
/* Enqueues n groups of a kernel, numbered from 0, for a type (of one that is not typed: 0); args is
 * its argument struct (kernels.h), copied before the call returns. */
enum sl_status sl_lz_launch(struct sl_level_zero *z, enum sl_lz_kernel kernel, uint32_t type,
                            uint64_t n_groups, const void *args, size_t args_bytes) SL_MUST_CHECK;
/* The launch that follows writes nothing that the one before it reads or writes, and reads nothing
 * that it writes: both may run at once. */
static inline void sl_lz_overlap(struct sl_level_zero *z) {
    z->overlap = true;
}
#define SL_LZ_LAUNCH(z, kernel, type, n_groups, args)                                              \
    sl_lz_launch(z, SL_LZ_##kernel, type, n_groups, &(args), sizeof(args))

/* device.c */
void sl_lz_close(struct sl_device *d);

/* planned.c: the entry of that name. */
enum sl_status sl_lz_planned(const struct sl_device_offer *offer, uint32_t number,
                             struct sl_device **out_device, struct sl_err *err);

extern const struct sl_backend_ops sl_level_zero_ops;

#endif
