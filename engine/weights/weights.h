/* Model weights in device memory.
 *
 * The tensors that the model uses are grouped into runs: stretches of a file without large gaps,
 * none larger than a buffer of the device. Each run is one image of its stretch in memory, at the
 * same offset modulo 4096 as in the file, so that unbuffered reads land in place. A tensor of which
 * the model keeps a part of each row (sl_table_cut) is a run of its own, packed. Runs lie one
 * after another, in one buffer where the device has no limit for its size. */
#ifndef SL_ENGINE_WEIGHTS_H
#define SL_ENGINE_WEIGHTS_H

#include "backends/buffer_pool.h"
#include "engine/tables/table_layout.h"
#include "engine/types/config.h"
#include "model/arch/model.h"

#include <sys/types.h>

/* Alignment of unbuffered reads, in memory, in the file and in length. */
#define SL_IO_ALIGN_BYTES 4096u

/* Buffers that the bytes pass through to a device whose memory the host cannot reach. */
#define SL_WEIGHTS_LOAD_BYTES ((uint64_t)32 << 20)
/* ... and rows of which a part is kept, elsewhere. */
#define SL_WEIGHTS_CUT_BYTES ((uint64_t)4 << 20)

struct sl_weight_run {
    uint32_t file;
    uint64_t offset_bytes;        /* in the file, a multiple of SL_IO_ALIGN_BYTES */
    uint64_t size_bytes;          /* up to the last tensor's end; in memory */
    struct sl_buffer_items place; /* of it all, in the layout's pool */
    /* The tensor of which it is a part, from anywhere in the file on, and which; NULL: no such. */
    const struct sl_gguf_tensor *of;
    struct sl_tensor_cut cut;
};

struct sl_weights_layout {
    const struct sl_gguf_tensor **tensors; /* used tensors by (file, offset), each once */
    struct sl_weight_run *runs;            /* by (file, offset), those of parts last */
    uint32_t n_tensors, n_runs;
    struct sl_buffer_pool pool;
    uint64_t total_bytes; /* to allocate: runs, and what aligning them may take */
};

/* Which of a model's weights: the dense ones, and the routed experts if so; but for streamed tables
 * (bits of enum sl_table_id). */
struct sl_weights_part {
    bool experts;
    uint32_t no_tables;
};

/* Reads no file, allocates nothing on dev (NULL: on none in particular). SL_ERR_UNSUPPORTED: a
 * tensor is larger than a buffer of the device. Release with sl_weights_layout_release, also a
 * zeroed one. */
enum sl_status sl_weights_layout_make(const struct sl_model *model, struct sl_weights_part part,
                                      const struct sl_device *dev,
                                      struct sl_weights_layout *out_layout,
                                      struct sl_err *err) SL_MUST_CHECK;
void sl_weights_layout_release(struct sl_weights_layout *layout);

/* Where the bytes come from: pread(2) unless a test says otherwise. Any thread. */
struct sl_weights_io {
    ssize_t (*pread)(const struct sl_weights_io *io, int fd, void *buf, size_t n, off_t offset);
    /* Is most of this stretch in the page cache? */
    bool (*cached)(const struct sl_weights_io *io, int fd, off_t offset, size_t n);
};
extern const struct sl_weights_io sl_weights_system_io;

struct sl_weights;

/* Allocates memory on dev and fills it with a few reading threads; where the host cannot reach it
 * through SL_WEIGHTS_LOAD_BYTES of buffers. progress may be NULL.
 * Truncated file, read error: SL_ERR_IO naming file, offset and tensor. progress said stop:
 * SL_ERR_CANCELED. model is borrowed until destroy. */
enum sl_status sl_weights_load(const struct sl_model *model, struct sl_weights_part part,
                               struct sl_device *dev, const struct sl_weights_io *io,
                               struct sl_progress *progress, struct sl_weights **out_weights,
                               struct sl_err *err) SL_MUST_CHECK;
void sl_weights_destroy(struct sl_weights **w);

/* Where a tensor, or what is kept of it, is: its device address, and its bytes; NULL, without a
 * buffer, for NULL or a tensor that is not the model's. */
const void *sl_weights_addr(const struct sl_weights *w, const struct sl_gguf_tensor *tensor);
struct sl_span sl_weights_span(const struct sl_weights *w, const struct sl_gguf_tensor *tensor);

#endif
