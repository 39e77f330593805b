/* The engine: all that the server and the command line see of execution.
 *
 * One scheduler thread joins the generated rows of all running requests and a slice of prefill into
 * one step. Sessions hold paged KV. A request's tokens depend on its prompt, its sampling settings
 * and the model alone: not on what else runs. */
#ifndef SL_ENGINE_ENGINE_H
#define SL_ENGINE_ENGINE_H

#include "common/dtype.h"
#include "common/status.h"
#include "model/arch/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_engine;

enum sl_experts_io {
    SL_EXPERTS_IO_AUTO, /* io_uring, or with one warning a pool of threads with pread */
    SL_EXPERTS_IO_URING,
    SL_EXPERTS_IO_PREAD,
};

#define SL_CACHE_DISK_DEFAULT ((uint64_t)8 << 30)
#define SL_CACHE_RAM_AUTO     UINT64_MAX

struct sl_reader;
struct sl_reader_config;

/* Opens the reader (streaming/reader.h) of the model's experts in place of the real one: for tests
 * and simulations. File i of the reader must be file i of the model. */
struct sl_reader_source {
    enum sl_status (*open)(const struct sl_reader_source *source,
                           const struct sl_reader_config *config, struct sl_reader **out_reader,
                           struct sl_err *err);
};

struct sl_device;

/* Devices that one model's layers are divided over, at most. */
#define SL_MAX_STAGES 8u

/* The most of what a configuration says: every product of these stays in range, every mistake is
 * seen. */
#define SL_MAX_CTX_TOKENS   (1u << 24)
#define SL_MAX_PARALLEL     1024u
#define SL_MAX_BATCH_TOKENS 16384u
#define SL_MAX_QUEUE        65536u

/* Opens the devices that compute in place of those that `device` names, one after the other by
 * index: for tests. */
struct sl_device_source {
    enum sl_status (*open)(const struct sl_device_source *source, uint32_t index,
                           struct sl_device **out_device, struct sl_err *err);
    uint32_t n_devices; /* 0 = 1 */
};

enum sl_experts_where {
    SL_EXPERTS_AUTO,     /* resident when they fit, else streamed */
    SL_EXPERTS_RESIDENT, /* loaded at the start, or refused */
    SL_EXPERTS_STREAMED, /* through the expert cache, also when they would fit */
};

/* What kind of memory a line of the plan is: all but the device's own counts against the host's
 * budget. */
enum sl_memory_kind {
    SL_MEMORY_HOST,
    SL_MEMORY_PINNED, /* of the host, locked and mapped for a device */
    SL_MEMORY_DEVICE, /* a discrete card's own */
};
const char *sl_memory_kind_name(enum sl_memory_kind kind);

/* One line of the memory plan. */
struct sl_plan_row {
    const char *what;
    char detail[96];
    uint64_t bytes;
    enum sl_memory_kind kind;
    uint32_t stage; /* of several devices, the one that it is for, from 1; 0 = not one's alone */
};

struct sl_engine_config {
    uint32_t n_threads;       /* 0 = all CPUs */
    uint32_t ctx_tokens;      /* most tokens of one session, prompt and answer; 0 = the model's, at
                                 most 8192 */
    uint32_t parallel;        /* sessions that run at once; 0 = 4 */
    uint32_t batch_tokens;    /* rows of one step at most; 0 = 512 */
    uint32_t queue_max;       /* requests waiting at most; 0 = 256 */
    uint32_t max_stall_ms;    /* a step that generates takes so much of prompts that it ends within
                                 this time, as far as 8 rows of them allow; 0 = 300 */
    uint64_t cache_ram_bytes; /* KV pages beyond those that running sessions may need, for text that
                                 may come again (those that are idle serve anyway);
                                 SL_CACHE_RAM_AUTO = what the budget can spare */
    enum sl_dtype kv_dtype;   /* SL_DTYPE_F16 or SL_DTYPE_Q8_0 */
    const char *cache_dir;    /* folder where such text is kept too and found again after a restart;
                                 NULL = none; borrowed until destroy */
    uint64_t cache_disk_bytes; /* what its files may take; 0 = 8 GiB */
    bool cache_read_always;    /* also where computing looks faster: for tests and comparisons */
    const char *record_routes; /* file for the experts that each row chooses, NULL = none */
    const char *trace_file; /* what happened when, for a trace viewer (timeline.h), NULL = none */
    const char *cpu_isa;    /* NULL = the best; "c", "avx2", "avx512", "vnni" for tests */
    /* What computes: "cpu" (also NULL), "cuda" or "cuda:N", several with the layers divided over
     * them as "cuda:0,1" or "cuda:all", or "auto": the first GPU if there is one that the model's
     * dense weights fit, else the CPU. */
    const char *device;
    const struct sl_device_source *device_source; /* NULL = those that `device` names */
    /* Several devices: how many layers each has, in their order, "20,28"; NULL or "auto" = by the
     * memory of each. */
    const char *split;

    /* Memory: the most that the process may ever have resident; 0 = what is free now, less a
     * reserve (engine/plan/memory_budget.h). process_bytes of it are the caller's own (what it
     * holds already, server, ...), worked out or measured by the caller; process_rows
     * [n_process_rows] say for what, as far as they go, borrowed until create returns. */
    uint64_t ram_bytes, process_bytes;
    const struct sl_plan_row *process_rows;
    uint32_t n_process_rows;
    enum sl_experts_where experts;
    /* A card's own memory: the most to take of it; 0 = what is free now, less the reserve (0 = the
     * default). Nothing for a device that computes in the host's memory. */
    uint64_t vram_bytes, vram_reserve_bytes;
    uint64_t vram_each[SL_MAX_STAGES]; /* [n_vram] for each of several devices, in place of
                                          vram_bytes; n_vram 0 = vram_bytes for each */
    uint32_t n_vram;
    bool devices_told; /* an earlier plan of this has logged what computes and what is free there:
                          this one does not again */
    uint64_t driver_bytes; /* of process_bytes: what opening the device took; set by create */
    bool no_overflow; /* on a card: refuse what does not fit it, rather than keep experts in pinned
                         memory of the host */

    /* Streaming. */
    enum sl_experts_io io;
    bool io_buffered;           /* through the page cache, for comparisons */
    const char *const *mirrors; /* [n_mirrors] copies of the model: a file, or a folder
                                   with files of the same names; borrowed until destroy */
    uint32_t n_mirrors;
    const char *heat_file; /* a file, or a folder for one file per model; NULL =
                              heat is not kept */
    bool no_lookahead, no_warm_up;
    const struct sl_reader_source *reader_source; /* NULL = the model's files */
};

/* Loading: done of total bytes. Returning false cancels the load. May be called from any thread. */
struct sl_progress {
    bool (*report)(struct sl_progress *p, uint64_t done_bytes, uint64_t total_bytes);
};

/* Loads the weights and starts the scheduler. Blocks. model is borrowed until destroy. */
enum sl_status sl_engine_create(const struct sl_model *model, const struct sl_engine_config *config,
                                struct sl_progress *progress, struct sl_engine **out_engine,
                                struct sl_err *err) SL_MUST_CHECK;
/* Cancels what runs (each finish is called), stops, frees. */
void sl_engine_destroy(struct sl_engine **e);

struct sl_engine_info {
    uint32_t ctx_tokens, parallel, queue_max, batch_tokens, n_vocab;
    char device[64];
    uint64_t weight_bytes, kv_bytes, activation_bytes;
    bool apart;                  /* the device has memory of its own */
    bool streaming;              /* routed experts pass through slots */
    uint32_t n_slots, n_experts; /* in all layers; no slots where all are resident */
    uint32_t n_device_slots;     /* in the memory of a device that is apart */
    /* The devices that the layers are divided over, in their order. */
    uint32_t n_stages;
    struct sl_engine_stage {
        char device[64];
        uint32_t first_layer, n_layer;
        uint32_t n_slots, n_device_slots;             /* as above, of its layers */
        uint64_t vram_total_bytes, vram_budget_bytes; /* planned, allowed; 0 unless it is apart */
    } stages[SL_MAX_STAGES];
};
void sl_engine_info(const struct sl_engine *e, struct sl_engine_info *out);

struct sl_stage_metrics;
/* What a stage has and has done, as of now; the engine's, for its life. Any thread. */
const struct sl_stage_metrics *sl_engine_stage_metrics(struct sl_engine *e, uint32_t stage);

/* What one of the sessions that run at once is doing. */
enum sl_slot_state {
    SL_SLOT_FREE,
    SL_SLOT_PREFILL,
    SL_SLOT_DECODE,
    SL_SLOT_PARKED, /* its client does not read */
};
struct sl_slot_info {
    enum sl_slot_state state;
    uint64_t task; /* requests are counted from 1; 0 while free, as all that follows */
    uint32_t n_prompt, n_prompt_done, n_predicted;
    uint32_t n_max;                           /* prompt and answer at most */
    uint64_t queue_ns, prefill_ns, decode_ns; /* so far */
};
/* As of the last step: the first n of `parallel` slots, whose number is returned. Any thread. */
uint32_t sl_engine_slots(struct sl_engine *e, struct sl_slot_info *out, uint32_t n);

/* What the engine was planned with: rows are the engine's, for its life. */
struct sl_engine_memory {
    const struct sl_plan_row *rows; /* [n_rows]; see struct sl_memory_plan for their sums */
    uint32_t n_rows;
    uint64_t total_bytes, budget_bytes;           /* of the host */
    uint64_t vram_total_bytes, vram_budget_bytes; /* of a device that is apart, else 0 */
};
void sl_engine_memory(const struct sl_engine *e, struct sl_engine_memory *out);

/* Whether the engine can no longer run anything: the device is lost, or the model's files were
 * changed while they were read. Every request fails with the same text. Any thread. */
bool sl_engine_failed(struct sl_engine *e, struct sl_err *out_why);

/* Bounds what an answer may be, token by token. Called on the scheduler thread, between a
 * request's submit and its finish: must not block. */
struct sl_constraint {
    /* Sets every logit [n_vocab] whose token may not come next to -INFINITY. */
    enum sl_status (*mask)(struct sl_constraint *c, float *logits, uint32_t n_vocab);
    /* The token that came, one that was allowed. */
    enum sl_status (*accept)(struct sl_constraint *c, uint32_t token);
    struct sl_err err; /* why one of them failed; the request fails with it */
};

struct sl_sampling {
    float temperature;             /* 0 = greedy */
    float top_p, min_p, typical_p; /* 1, 0, 1 = off */
    uint32_t top_k;                /* 0 = off */
    float repeat_penalty; /* 1 = off; divides positive, multiplies negative logits of tokens seen */
    uint32_t repeat_last_n; /* window of the three penalties, prompt included; UINT32_MAX = all */
    float presence_penalty, frequency_penalty; /* 0 = off */
    uint64_t seed;                             /* the same seed reproduces the answer */
    struct sl_constraint *constraint;          /* NULL = none; borrowed until finish */
    uint32_t n_logit_bias;
    const struct sl_logit_bias {
        uint32_t token;
        float bias; /* added to the logit; -INFINITY forbids */
    } * logit_bias; /* borrowed until finish */
};
/* temperature 1, everything else off. */
extern const struct sl_sampling sl_sampling_default;

#define SL_MAX_TOP_LOGPROBS 20u

/* What a request's routed experts took. What a step of several sessions took is shared out by their
 * rows. */
struct sl_expert_use {
    uint64_t hits;       /* asked for and there, each once a layer and step */
    uint64_t late;       /* ... on their way, read ahead */
    uint64_t misses;     /* ... on disk */
    uint64_t read_bytes; /* from disk while its steps ran */
    uint64_t stall_ns;   /* that its steps waited for experts */
};

struct sl_token {
    uint32_t id;
    bool eog;      /* the model ended its turn with this token; nothing follows */
    float logprob; /* natural logarithm, of the distribution before temperature and filters;
                      valid when the request asked for log-probabilities */
    uint32_t n_top;
    struct {
        uint32_t id;
        float logprob;
    } top[SL_MAX_TOP_LOGPROBS];
    const struct sl_expert_use *use; /* of the request so far; only while push runs */
    uint32_t n_cached;               /* tokens of the prompt that did not have to be computed */
};

enum sl_finish_reason {
    SL_FINISH_STOP,   /* end-of-generation token */
    SL_FINISH_LENGTH, /* max_tokens or the context is reached */
    SL_FINISH_CANCELED,
    SL_FINISH_ERROR,
};

struct sl_gen_result {
    enum sl_finish_reason reason;
    enum sl_status status; /* SL_OK unless canceled or error */
    struct sl_err err;
    uint32_t n_prompt, n_predicted;
    uint32_t n_cached; /* of n_prompt: those that were there from other requests */
    uint64_t queue_ns, prefill_ns, decode_ns; /* wall clock of this request */
    struct sl_expert_use experts;
};

/* Where a request's tokens go. Called on the scheduler thread: must not block. */
struct sl_token_sink {
    /* SL_AGAIN parks the request: the same token is offered again after sl_engine_resume. */
    enum sl_status (*push)(struct sl_token_sink *s, const struct sl_token *token);
    /* Prompt progress, may be NULL. */
    void (*progress)(struct sl_token_sink *s, uint32_t n_done, uint32_t n_prompt);
    /* Exactly once, last; the request is the caller's again, and neither the gauges nor
     * sl_engine_slots show it any more. */
    void (*finish)(struct sl_token_sink *s, const struct sl_gen_result *result);
};

struct sl_gen_request {
    const uint32_t *prompt; /* borrowed until finish */
    uint32_t n_prompt;      /* at least 1 */
    uint32_t max_tokens;    /* 0 = until the context is full */
    bool ignore_eog;        /* benchmarks: generate on */
    bool no_cache;          /* take nothing from other requests' text, and leave nothing to them */
    uint64_t deadline_ns;   /* of the monotonic clock (common/clock.h): not finished by then, it
                               fails with SL_ERR_TIMEOUT; 0 = none */
    /* NULL, or max_tokens ids that the answer shall be, whatever the model says (benchmarks,
     * comparisons): computed and pushed as if they had been sampled, which takes its time too.
     * Borrowed until finish. */
    const uint32_t *forced;
    struct sl_sampling sampling;
    bool logprobs;
    uint32_t n_top_logprobs; /* at most SL_MAX_TOP_LOGPROBS */
    const uint32_t *eog;     /* ids that end the answer; borrowed until finish */
    uint32_t n_eog;
    struct sl_token_sink *sink;
    void *engine_private; /* the engine's; zero at submit */
};

/* Moves r until finish. Any thread. SL_AGAIN: the queue is full, nothing was taken.
 * SL_ERR_CONTEXT_FULL: the prompt does not fit. SL_ERR_INVALID: a bad token id or setting, named
 * in err. */
enum sl_status sl_engine_submit(struct sl_engine *e, struct sl_gen_request *r,
                                struct sl_err *err) SL_MUST_CHECK;
/* Any thread, any time between submit and finish; finish follows within one step. */
void sl_engine_cancel(struct sl_engine *e, struct sl_gen_request *r);
/* The sink of a parked request has room again. Any thread. */
void sl_engine_resume(struct sl_engine *e, struct sl_gen_request *r);

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
