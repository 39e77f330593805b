/* The engine: all that the server and the command line see of execution.
 *
 * One scheduler thread joins the generated rows of all running requests and a slice of prefill into
 * one step. Sessions hold paged KV. A request's tokens depend on its prompt, its sampling settings
 * and the model alone: not on what else runs. */
#ifndef SL_ENGINE_ENGINE_H
#define SL_ENGINE_ENGINE_H

#include "engine/types/config.h"
#include "engine/types/request.h"
#include "engine/types/slot_info.h"
#include "model/arch/model.h"

struct sl_engine;

/* Loads the weights and starts the scheduler. Blocks. model is borrowed until destroy. */
enum sl_status sl_engine_create(const struct sl_model *model, const struct sl_engine_config *config,
                                struct sl_progress *progress, struct sl_engine **out_engine,
                                struct sl_err *err) SL_MUST_CHECK;
/* Cancels what runs (each finish is called), stops, frees. */
void sl_engine_destroy(struct sl_engine **e);

struct sl_engine_info {
    uint32_t ctx_tokens, parallel, queue_max, batch_tokens, n_vocab, n_embd;
    char device[64];
    uint64_t weight_bytes, kv_bytes, activation_bytes;
    bool discrete;               /* the device has memory of its own */
    bool streaming;              /* routed experts pass through slots */
    bool lane;                   /* the CPU computes experts alongside the device */
    uint32_t n_slots, n_experts; /* in all layers; no slots where all are resident */
    uint32_t n_device_slots;     /* in the memory of a discrete device */
    /* The devices that the layers are divided over, in their order. */
    uint32_t n_stages;
    struct sl_engine_stage {
        char device[64], id[16];
        bool discrete; /* the device has memory of its own */
        uint32_t first_layer, n_layer;
        uint32_t n_slots, n_device_slots; /* as above, of its layers */
        uint64_t vram_total_bytes,
            vram_budget_bytes; /* planned, allowed; 0 unless it is discrete */
    } stages[SL_MAX_STAGES];
};
void sl_engine_info(const struct sl_engine *e, struct sl_engine_info *out);

struct sl_stage_metrics;
/* What a stage has and has done, as of now; the engine's, for its life. Any thread. */
const struct sl_stage_metrics *sl_engine_stage_metrics(struct sl_engine *e, uint32_t stage);

/* As of the last step: the first n of `parallel` slots, whose number is returned. Any thread. */
uint32_t sl_engine_slots(struct sl_engine *e, struct sl_slot_info *out, uint32_t n);

/* What the engine was planned with: rows are the engine's, for its life. */
struct sl_engine_memory {
    const struct sl_plan_row *rows; /* [n_rows]; see struct sl_memory_plan for their sums */
    uint32_t n_rows;
    uint64_t total_bytes, budget_bytes;           /* of the host */
    uint64_t vram_total_bytes, vram_budget_bytes; /* of a discrete device, else 0 */
};
void sl_engine_memory(const struct sl_engine *e, struct sl_engine_memory *out);

/* The machines besides this one that have stages, [SL_MAX_STAGES]; gives how many. Any thread. */
uint32_t sl_engine_workers(const struct sl_engine *e, struct sl_remote_look *out);

/* Whether the engine cannot run anything: the device is lost, or the model's files were changed
 * while they were read, for good; or a machine with some of the layers is lost, until it is back.
 * Every request fails with the same text, but for those that wait for the machine. Any thread. */
bool sl_engine_failed(struct sl_engine *e, struct sl_err *out_why);

/* Moves r until finish. Any thread. SL_AGAIN: the queue is full, nothing was taken.
 * SL_ERR_CONTEXT_FULL: the prompt does not fit. SL_ERR_INVALID: a bad token id or setting, named
 * in err. */
enum sl_status sl_engine_submit(struct sl_engine *e, struct sl_gen_request *r,
                                struct sl_err *err) SL_MUST_CHECK;
/* Any thread, any time between submit and finish; finish follows within one step. */
void sl_engine_cancel(struct sl_engine *e, struct sl_gen_request *r);
/* The sink of a parked request has room again. Any thread. */
void sl_engine_resume(struct sl_engine *e, struct sl_gen_request *r);

struct sl_expert_map_shape;
/* Where the experts are (engine/observe/expert_map.h). Any thread. */
const struct sl_expert_map_shape *sl_engine_expert_shape(const struct sl_engine *e);
/* As sl_expert_map_read; wakes an engine that has nothing to run, so that it looks. */
uint64_t sl_engine_expert_cells(struct sl_engine *e, uint8_t *out_cells);

/* Runs ids through the model alone and hands over the logits [n_vocab] of every position in order;
 * blocks. Not while requests run. on_logits returning false ends it with SL_ERR_CANCELED. */
enum sl_status sl_engine_score(struct sl_engine *e, const uint32_t *ids, uint32_t n_ids,
                               bool (*on_logits)(void *ctx, uint32_t pos, const float *logits),
                               void *ctx, struct sl_err *err) SL_MUST_CHECK;

/* How fast the disk gives experts to the slots that they are computed from, bytes of payload a
 * second: for about seconds (above 0, up to 60) experts that are in slots are read again to where
 * they are, by the reader that steps use, with its queue full. Blocks; requests that come meanwhile
 * wait. Takes no memory, moves no expert and changes no answer; the metrics count what is read as
 * read between steps. An expert that could be read before and now cannot is read again when it is
 * needed.
 * SL_AGAIN: requests run. SL_ERR_UNSUPPORTED: all experts are resident, or so few are in slots, yet
 * or with such a budget, that the queue would not be full. SL_ERR_IO: one could not be read. */
enum sl_status sl_engine_disk_speed(struct sl_engine *e, double seconds, double *out_bytes_per_s,
                                    struct sl_err *err) SL_MUST_CHECK;

#endif
