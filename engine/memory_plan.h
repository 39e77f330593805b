/* The memory plan: what an engine will hold, worked out before anything is loaded.
 *
 * A pure function of the model, the configuration and the device's own scratch formula. What the
 * plan says is what create allocates; afterwards only submitted requests take more, each for its
 * own history. */
#ifndef SL_ENGINE_MEMORY_PLAN_H
#define SL_ENGINE_MEMORY_PLAN_H

#include "backends/backend.h"
#include "engine/engine.h"
#include "engine/expert_layout.h"

#define SL_PLAN_MAX_ROWS 16u

struct sl_plan_row {
    const char *what;
    char detail[96];
    uint64_t bytes;
};

struct sl_memory_plan {
    /* The configuration with every 0 replaced by what it stands for. */
    struct sl_engine_config config;
    struct sl_device_limits limits;
    uint32_t n_logit_rows;             /* rows of one step that may ask for logits */
    uint32_t session_pages;            /* KV pages of one session at ctx_tokens */
    uint32_t n_pages;                  /* in the pool: parallel * session_pages */
    size_t k_page_bytes, v_page_bytes; /* of one layer */

    bool streaming;                        /* routed experts pass through slots */
    uint32_t n_class;                      /* size classes of experts; 0 in a dense model */
    uint32_t class_slots[SL_SLAB_CLASSES]; /* slots of each; 0 where all are resident */
    uint32_t n_slots, n_experts;           /* in all classes, all layers */

    uint64_t weight_bytes;  /* resident from the start: dense, and routed when not streaming; with
                               the gaps between them in the file */
    uint64_t expert_bytes;  /* all routed experts, wherever they are */
    uint64_t slot_bytes;    /* all slots */
    uint64_t stream_bytes;  /* tables of slots, the reader's queue */
    uint64_t process_bytes; /* the caller's */
    uint64_t budget_bytes;  /* that all of it must fit */
    uint64_t least_bytes;   /* the smallest budget that would do */
    uint64_t kv_bytes;      /* all pages of all layers */
    uint64_t activation_bytes; /* the layer loop's buffers, logits included */
    uint64_t scratch_bytes;    /* the backend's own */
    uint64_t host_bytes;       /* step tables, sampler */
    uint64_t total_bytes;

    uint32_t n_rows;
    struct sl_plan_row rows[SL_PLAN_MAX_ROWS]; /* they sum to total_bytes */
};

/* The queue that the plan counts and the store opens. */
struct sl_reader_config sl_memory_plan_reader(const struct sl_engine_config *config);

/* dev may be NULL: the scratch is then counted as 0. Bad settings: SL_ERR_CONFIG naming the
 * setting; a KV type that the head size does not allow: SL_ERR_CONFIG. */
enum sl_status sl_memory_plan_make(const struct sl_model *model,
                                   const struct sl_engine_config *config,
                                   const struct sl_device *dev, struct sl_memory_plan *out_plan,
                                   struct sl_err *err) SL_MUST_CHECK;

#endif
