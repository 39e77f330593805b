/* What the parts of the Vulkan backend share: the device, its memory and queues, and how an op
 * launches a kernel.
 *
 * find.c looks for devices; device.c opens and closes one; memory.c allocates and stages; queue.c
 * collects commands and submits them; pipeline.c makes pipelines and launches; grids.c has
 * the tables of tensor types; graph.c keeps recorded commands; times.c times kernels; spirv.c
 * states how they compute with floats; vulkan.c holds the op table; ops_*.c are the ops. Kernels
 * take addresses (buffer device addresses) in push constants: there are no descriptors. */
#ifndef SL_BACKENDS_VULKAN_VULKAN_INTERNAL_H
#define SL_BACKENDS_VULKAN_VULKAN_INTERNAL_H

#include "backends/backend_entry.h"
#include "backends/kernel_args.h"
#include "backends/recorded.h"
#include "backends/vulkan/find.h"
#include "backends/vulkan/kernels.h"

#define SL_VK_STAGING_SEGMENTS 4u
#define SL_VK_COMMANDS         64u /* command buffers of a queue */
#define SL_VK_BATCH            64u /* command buffers of a submission */

/* Memory with one buffer over all of it. */
struct sl_vk_memory {
    VkDeviceMemory memory;
    VkBuffer buffer;
    uint64_t addr; /* as kernels use it */
    char *host;    /* NULL: the host does not see it */
    uint64_t bytes;
};

/* Host-visible memory that uploads, downloads and small arrays go through. Segments are filled in
 * turn; a full one is used again when the work that reads it has passed. */
struct sl_vk_staging {
    struct sl_vk_memory m;
    uint32_t segment_bytes;
    uint32_t segment, used_bytes;            /* the one being filled */
    uint64_t passes[SL_VK_STAGING_SEGMENTS]; /* point of SL_QUEUE_OPS that frees it */
};

/* Commands are collected and go to the driver in one submission, which raises the timeline by one:
 * its value is the point. */
struct sl_vk_queue {
    VkQueue handle; /* the same for several where the device has few */
    bool copies;    /* of a family that does nothing else */
    VkSemaphore timeline;
    uint64_t submitted, passed; /* values of the timeline */
    VkCommandPool pool;
    VkCommandBuffer commands[SL_VK_COMMANDS];
    uint64_t busy_until[SL_VK_COMMANDS];
    uint32_t next;                      /* of commands */
    VkCommandBuffer open;               /* being filled; NULL: none */
    bool after_kernel;                  /* the last command in it is a kernel */
    VkCommandBuffer batch[SL_VK_BATCH]; /* filled, to be submitted with the open one */
    uint32_t n_batch;
    uint64_t
        waits[SL_QUEUES]; /* points of other queues that the next submission follows; 0: none */
};

struct sl_vk_times;

struct sl_vulkan {
    struct sl_device base;
    struct sl_vk_instance instance;
    struct sl_vk_functions vk;
    struct sl_vk_info info;
    VkDevice device;
    uint32_t number;
    bool lost; /* an error was seen that only a new process gets over: every call is refused */

    struct sl_vk_queue queue[SL_QUEUES];
    struct sl_vk_staging staging;
    VkCommandBuffer recording;   /* where launches go while a graph is made; NULL: to the queue */
    bool recording_after_kernel; /* the last command in it is a kernel */
    bool overlap;                /* the next launch need not wait for the one before it */

    /* Shared by all ops: what one op leaves there the next may overwrite. */
    struct sl_vk_memory scratch;
    struct sl_vk_memory grids; /* grids.c */
    /* Rows that a kernel left in scratch quantised, for what follows it: a norm for the experts,
     * attention for its product. They are there while nothing else is launched or copied. */
    struct {
        uint64_t x; /* whose quantised rows; 0: nothing */
        uint32_t n_rows, n;
        uint64_t at[2];     /* by sl_is_block32(); 0: not of such types */
        uint64_t n_kernels; /* as base.n_kernels was then */
    } left;

    VkPipelineLayout layout;
    VkPipelineCache cache;
    struct sl_code_file cache_file; /* an empty path: it is not kept */
    uint32_t n_compiled;            /* pipelines */
    VkShaderModule module[SL_VK_KERNEL_COUNT];
    VkPipeline pipeline[SL_VK_KERNEL_COUNT][SL_DTYPE_COUNT]; /* made when first launched */
    struct sl_vk_times *times;                               /* NULL: launches are not timed */
    bool fused_fma;        /* the device's fma rounds once; else kernels compute it in doubles */
    bool emulate_matrices; /* for tests, where it does not */
};

/* Turns a result into a status; logs the first one of a failure with `what`. */
enum sl_status sl_vk_check(struct sl_vulkan *v, VkResult result, const char *what) SL_MUST_CHECK;

/* memory.c */
/* SL_ERR_DEVICE_OOM: that kind of memory is used up; another is never taken instead. */
enum sl_status sl_vk_memory_alloc(struct sl_vulkan *v, uint64_t bytes, bool staging,
                                  struct sl_vk_memory *out_memory) SL_MUST_CHECK;
void sl_vk_memory_free(struct sl_vulkan *v, struct sl_vk_memory *memory);
enum sl_status sl_vk_staging_init(struct sl_vulkan *v, uint32_t bytes) SL_MUST_CHECK;
/* Puts a small array where kernels launched after this, and before the staging buffer has wrapped
 * around, may read it: at most a segment. */
enum sl_status sl_vk_push(struct sl_vulkan *v, const void *src, size_t bytes,
                          uint64_t *out_addr) SL_MUST_CHECK;
enum sl_status sl_vk_buffer_alloc(struct sl_device *d, struct sl_buffer *buffer);
void sl_vk_buffer_free(struct sl_device *d, struct sl_buffer *buffer);
enum sl_status sl_vk_map_host(struct sl_device *d, struct sl_buffer *buffer);
void sl_vk_unmap_host(struct sl_device *d, struct sl_buffer *buffer);
enum sl_status sl_vk_upload(struct sl_device *d, struct sl_span dst, const void *src);
enum sl_status sl_vk_download(struct sl_device *d, void *dst_host, struct sl_span src);
enum sl_status sl_vk_memory_left(struct sl_device *d, uint64_t *out_free, uint64_t *out_total);

/* queue.c */
enum sl_status sl_vk_queues_init(struct sl_vulkan *v) SL_MUST_CHECK;
void sl_vk_queues_release(struct sl_vulkan *v);
/* The command buffer to add a kernel or a copy to; behind a barrier, but for what sl_vk_overlap()
 * announced. */
enum sl_status sl_vk_commands(struct sl_vulkan *v, enum sl_queue q, bool kernel,
                              VkCommandBuffer *out_commands) SL_MUST_CHECK;
/* Whatever ends a command buffer: the host may look at what it wrote once it has run. */
void sl_vk_barrier_to_host(struct sl_vulkan *v, VkCommandBuffer commands, bool copies);
/* Adds commands that were recorded apart. */
enum sl_status sl_vk_append(struct sl_vulkan *v, enum sl_queue q,
                            VkCommandBuffer commands) SL_MUST_CHECK;
enum sl_status sl_vk_submit(struct sl_vulkan *v, enum sl_queue q) SL_MUST_CHECK;
enum sl_status sl_vk_sync(struct sl_device *d);
enum sl_status sl_vk_copy(struct sl_device *d, enum sl_queue q, struct sl_span dst,
                          struct sl_span src);
enum sl_status sl_vk_mark(struct sl_device *d, enum sl_queue q, sl_point *out_point);
enum sl_status sl_vk_passed(struct sl_device *d, enum sl_queue q, sl_point point);
enum sl_status sl_vk_await(struct sl_device *d, enum sl_queue q, sl_point point);
enum sl_status sl_vk_after(struct sl_device *d, enum sl_queue q, enum sl_queue other,
                           sl_point point);

/* pipeline.c */
const char *sl_vk_kernel_name(enum sl_vk_kernel kernel);
enum sl_status sl_vk_pipelines_init(struct sl_vulkan *v) SL_MUST_CHECK;
void sl_vk_pipelines_release(struct sl_vulkan *v);
/* Notes rows [n_rows, n] that the last launch quantised; and where they are, if x are those. */
void sl_vk_leave(struct sl_vulkan *v, uint64_t x, uint32_t n_rows, uint32_t n,
                 const uint64_t at[2]);
uint64_t sl_vk_left_at(const struct sl_vulkan *v, bool block32, uint64_t x, uint32_t n_rows,
                       uint32_t n);
/* Enqueues n workgroups of a kernel, numbered from 0, for a variant (a tensor type, else 0); args
 * is its argument struct (kernels.h), copied before the call returns. */
enum sl_status sl_vk_launch(struct sl_vulkan *v, enum sl_vk_kernel kernel, uint32_t variant,
                            uint64_t n_groups, const void *args, size_t args_bytes) SL_MUST_CHECK;
/* The launch that follows writes nothing that the one before it reads or writes, and reads nothing
 * that it writes: both may run at once. */
static inline void sl_vk_overlap(struct sl_vulkan *v) {
    v->overlap = true;
}
#define SL_VK_LAUNCH(v, kernel, variant, n_groups, args)                                           \
    sl_vk_launch(v, SL_VK_##kernel, variant, n_groups, &(args), sizeof(args))

/* grids.c */
enum sl_status sl_vk_grids_init(struct sl_vulkan *v) SL_MUST_CHECK;
/* Where a type's grid is; 0: it has none. */
uint64_t sl_vk_grid(const struct sl_vulkan *v, enum sl_dtype t);

/* graph.c */
enum sl_status sl_vk_graph_create(struct sl_device *d, const struct sl_recorded_op *ops,
                                  uint32_t n_ops, struct sl_graph **out_graph);
enum sl_status sl_vk_replay(struct sl_device *d, struct sl_graph *graph);
void sl_vk_graph_free(struct sl_device *d, struct sl_graph *graph);

/* device.c */
void sl_vk_close(struct sl_device *d);

/* planned.c: the entry of that name. */
enum sl_status sl_vk_planned(const struct sl_device_offer *offer, uint32_t number,
                             struct sl_device **out_device, struct sl_err *err);

extern const struct sl_backend_ops sl_vulkan_ops;

#endif
