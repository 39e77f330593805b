/* A stage as the rest of the engine sees it: requests go in, answers come back.
 *
 * A stage is a run of the model's layers and the device that computes them. Requests and answers
 * are plain structs without pointers, each with arrays of bounded size that follow from it. A stage
 * of this process (stage_local.h) reads and writes the arrays where they are; one that is elsewhere
 * has them as bytes (stage_message.h). Nothing else is shared with a stage.
 *
 * Two stages of one process may share more. The later one finds out once, when they are opened
 * (SL_STAGE_JOIN, SL_STAGE_LINK), whether it can take rows directly from the other's device. If
 * not, rows travel with the answers and requests.
 *
 * Threads: one thread at a time sends a stage's calls; any thread may cancel. The stage answers
 * each call exactly once, on a thread of its choice, and answers calls in the order in which they
 * were sent. */
#ifndef SL_ENGINE_STAGE_H
#define SL_ENGINE_STAGE_H

#include "common/metrics.h"
#include "common/siphash.h"
#include "engine/forward/forward.h"
#include "engine/observe/activity.h"

#include <stdatomic.h>

enum sl_stage_request {
    SL_STAGE_HELLO,      /* what it is */
    SL_STAGE_JOIN,       /* before it is loaded: which stage comes before it */
    SL_STAGE_LINK,       /* after: has it take rows as directly as the two devices can */
    SL_STAGE_STEP,       /* the step's rows through its layers */
    SL_STAGE_LOGITS,     /* logits of some rows of the last step, which kept all */
    SL_STAGE_READ_PAGE,  /* a page of its layers, and perhaps a tail page */
    SL_STAGE_WRITE_PAGE, /* the same, into the stage */
    SL_STAGE_EXPERTS,    /* where its experts are, a cell each (expert_map.h) */
    SL_STAGE_HEAT,       /* the heat of its layers (sl_heat_export_layers) */
    SL_STAGE_SAVE_HEAT,  /* writes its own heat file, if there is something new */
    SL_STAGE_DISK_SPEED, /* measures how fast the disk gives it experts */
    SL_STAGE_IDLE,       /* no work is waiting: it may read experts in the background */
    SL_STAGE_QUIT,       /* no step follows: ends all reading, writes its own heat file */
    SL_STAGE_HIDDEN,     /* as SL_STAGE_LOGITS: hidden states of the rows after the output norm */
    SL_STAGE_REQUESTS
};
/* Asks for rows of the last step, which kept all. */
static inline bool sl_stage_asks_rows(enum sl_stage_request what) {
    return what == SL_STAGE_LOGITS || what == SL_STAGE_HIDDEN;
}
/* "step", "expert map"; for logs and errors. */
const char *sl_stage_request_name(enum sl_stage_request what);

/* How a step's rows come from the stage before. */
enum sl_sent {
    SL_SENT_NONE, /* they do not: the stage is the first, or the step is not run */
    SL_SENT_ROWS, /* they come with the request, and went with the answer */
    /* They follow the request, which was sent ahead of them (sl_stage_ops.rows). Only for steps of
     * few generated rows of which none has failed, and stages whose hello says begins_ahead. */
    SL_SENT_LATER,
    /* Between linked stages: */
    SL_SENT_COPY,   /* they are in the other's buffers */
    SL_SENT_SIGNAL, /* they will be when the other's signal passes */
    SL_SENT_BY_OPS, /* the devices' ops send and receive them */
    SL_SENT_WAYS
};

/* ---- requests ---- */

/* Names a stage to another one of the same process. */
struct sl_stage_name {
    uint64_t process; /* random, of the process; 0: of none that anybody shares */
    uint64_t number;  /* of the stage in it */
};

struct sl_ask_join {
    struct sl_stage_name before;
};
struct sl_ask_link {
    bool alone; /* its device has no other stage */
};
/* With: tables, failed, pages, tails; rows [n_rows, n_row] with SL_SENT_ROWS. With SL_SENT_LATER
 * failed is not read. */
struct sl_ask_step {
    uint32_t micro_batch;
    uint32_t n_rows, n_decode, n_out; /* as in struct sl_step */
    uint32_t n_failed;                /* rows that have failed at stages before */
    bool keep_all, only_largest;
    bool dead;      /* the step has failed: the stage only takes over its changes of pages */
    uint8_t sent;   /* enum sl_sent */
    uint32_t seqno; /* SL_SENT_BY_OPS: which of the other's to wait for */
};
/* Also of SL_STAGE_HIDDEN. */
struct sl_ask_logits {
    uint32_t micro_batch, first, n; /* rows of the step that the micro-batch had last */
};
/* With: bytes, as many as the stage's page has, and its tail page if the copy holds one. As in
 * struct sl_kv_copy. */
struct sl_ask_page {
    uint32_t page, tail; /* SL_KV_NO_PAGE: not copied */
    bool holds_tail;
};
/* The longest measurement of a disk. */
#define SL_STAGE_MAX_SECONDS 60
struct sl_ask_disk_speed {
    double seconds;
};
struct sl_ask_idle {
    uint64_t most_ns;
};

struct sl_stage_ask {
    enum sl_stage_request what;
    union {
        struct sl_ask_join join;
        struct sl_ask_link link;
        struct sl_ask_step step;
        struct sl_ask_logits logits;
        struct sl_ask_page page;
        struct sl_ask_disk_speed disk_speed;
        struct sl_ask_idle idle;
    };
};

/* ---- answers ---- */

struct sl_stage_hello {
    struct sl_stage_name name;
    char device[SL_DEVICE_ID_BYTES];
    bool rows_alike;                 /* its device: caps.rows_alike */
    bool loses_none;                 /* no row can fail there: all its experts are resident */
    bool begins_ahead;               /* it takes steps with SL_SENT_LATER */
    struct sl_hash128 arithmetic;    /* its device's, where it runs (engine/forward/arithmetic.h) */
    uint32_t first_layer, n_layer;   /* of the model: those that it computes */
    uint32_t n_row, n_embd, n_vocab; /* widths of the rows, hidden states and logits it sends */
    uint32_t n_logit_rows;           /* the most rows of logits; 0: it has none */
    uint32_t n_routed, n_expert;     /* layers with routed experts, experts of each */
    uint64_t page_bytes;             /* a page of its layers */
    uint64_t tail_bytes;             /* a tail page; 0: no layer has one */
    uint64_t heat_bytes;             /* of SL_STAGE_HEAT; 0: it keeps none */
};
struct sl_answer_join {
    bool reads; /* it can take rows from the other's memory, without the host's */
};
struct sl_answer_link {
    bool by_ops; /* steps of few generated rows come by the devices' ops */
};
/* With: failed; what the rows have come to: rows [n_rows, n_row] (SL_SENT_ROWS), or logits. */
struct sl_answer_step {
    /* Set when the step goes on, which may be before it has ended here. */
    uint32_t n_failed; /* rows, with those of the request */
    uint8_t sent;      /* enum sl_sent: how the next stage gets them */
    uint32_t seqno;
    /* Set with the answer, by the stage's own clock; 0: nothing was run. */
    uint64_t began_ns, ended_ns;
    /* Of the logits: which arrays there are. */
    uint32_t n_logits;
    bool has_rows, has_max, has_at, has_sum;
};
struct sl_answer_disk_speed {
    double bytes_per_s;
};

/* What a stage counts, as in stage_metrics.def. */
struct sl_stage_counts {
#define SL_STAGE_METRIC(kind, field, name, help) int64_t field;
#include "common/stage_metrics.def"
#undef SL_STAGE_METRIC
};

struct sl_stage_answer {
    enum sl_status status;
    struct sl_err err;   /* of a step that succeeded: of the first row that failed */
    bool has_background; /* there is something for SL_STAGE_IDLE to read */
    bool heat_unsaved;   /* its own heat file is out of date */
    struct sl_stage_counts counts;
    struct sl_activity_sums found; /* since the answer before */
    union {
        struct sl_stage_hello hello;
        struct sl_answer_join join;
        struct sl_answer_link link;
        struct sl_answer_step step;
        struct sl_answer_disk_speed disk_speed;
    };
};

/* ---- calls ---- */

struct sl_stage;
struct sl_stage_call;

/* Who has sent a call. */
struct sl_stage_owner {
    /* The step goes on here and now, at the stage that follows, while this one ends its part.
     * Only between linked stages, at most once, before answered. */
    void (*passed)(struct sl_stage_owner *o, struct sl_stage_call *c);
    /* Last: from here on the stage leaves the call alone. */
    void (*answered)(struct sl_stage_owner *o, struct sl_stage_call *c);
    /* Called now and then by whoever works on the call, between layers and while it waits for the
     * disk. May cancel it. NULL: not called. */
    void (*meanwhile)(struct sl_stage_owner *o, struct sl_stage_call *c);
};

/* The arrays that go with a call: the caller's, lent until it is answered, unless stated otherwise.
 */
struct sl_stage_arrays {
    /* A step's, as sl_step_lay() lays them with room for max_rows and max_out. A local stage uses
     * them until the micro-batch's next step. */
    uint32_t *step_arrays;
    uint32_t max_rows, max_out;
    uint8_t *failed; /* [n_rows]; the stage adds to it */
    const struct sl_page_table *pages;
    const struct sl_page_table *tails; /* empty where there are none */
    const float *rows;                 /* NULL: none */
    /* What the rows have come to: the stage's, until the micro-batch's next step or request for
     * rows; logits may be written to. SL_STAGE_HIDDEN: out_rows [n, n_embd]. */
    const float *out_rows;
    struct sl_logits out_logits;
    /* A page, cells or heat: [n_bytes]. */
    uint8_t *bytes;
    size_t n_bytes;
};

/* Of rows with SL_SENT_LATER. */
enum sl_stage_later {
    SL_LATER_AWAITED, /* 0 */
    SL_LATER_HELD,    /* the stage's device waits for them */
    SL_LATER_CAME,
    SL_LATER_NEVER, /* they will not, or the step was given up */
};

struct sl_stage_call {
    struct sl_stage_ask ask;
    struct sl_stage_arrays with;
    struct sl_stage_answer answer;
    struct sl_stage_owner *owner;
    const atomic_bool *canceled; /* NULL: it cannot be; read by a stage of this process */
    void *user;                  /* the owner's */
    uint64_t sent_ns;            /* likewise */
    bool passed_on;              /* likewise */
    atomic_int later;            /* enum sl_stage_later: a stage's of this process */
    _Atomic uint64_t came_ns;    /* likewise: when the rows did */
};

struct sl_stage_ops {
    /* Begins the call; may answer it before this returns. */
    void (*send)(struct sl_stage *s, struct sl_stage_call *c);
    /* *c->canceled has become true: has the stage give the call up with SL_ERR_CANCELED, if it is
     * still working on it. NULL: the stage checks by itself. */
    void (*cancel)(struct sl_stage *s, struct sl_stage_call *c);
    /* When nothing is under way any more. */
    void (*close)(struct sl_stage *s);
    /* What the stage's clock shows minus what this process's does, ns. False: not known yet. NULL:
     * it is the same clock. Any thread. */
    bool (*clock_offset)(struct sl_stage *s, int64_t *out_ns);
    /* No row of its steps can fail, as all its experts are resident. NULL: one may. */
    bool (*loses_none)(const struct sl_stage *s);
    /* Sending it a step hands the step over, and neither computes nor waits: whoever has the step
     * may do that in passing. */
    bool posts;
    /* One thread's calls may follow another's: nothing of the stage belongs to a thread, and it
     * reads nothing in the background. NULL: false. Any thread. */
    bool (*on_any_thread)(const struct sl_stage *s);
    /* Has the caller's thread take what comes of the stage's answers, in place of one that would
     * have to be woken for it, until something has come, it is nudged, or until_ns (UINT64_MAX:
     * without end). Calls are answered meanwhile. False: it cannot be. Not while a lock is
     * held that an answer may need. NULL: never. */
    bool (*attend)(struct sl_stage *s, uint64_t until_ns);
    void (*nudge)(struct sl_stage *s); /* any thread */
    /* Calls with SL_SENT_LATER may be sent, and send returns before they are answered. NULL: false
     * for callers that bring the rows after send has returned. Any thread. */
    bool (*begins_ahead)(const struct sl_stage *s);
    /* Brings the rows [n_rows, n_row] of a call with SL_SENT_LATER, once, before the call has been
     * answered; they are copied before this returns. rows NULL: they will not come, and the step
     * fails. Any thread. NULL: the stage takes no such calls. */
    void (*rows)(struct sl_stage *s, struct sl_stage_call *c, const float *rows);
    /* Where the stage reads the rows of that micro-batch's next step without another copy:
     * [max_rows, n_row], the stage's, valid until it is closed. NULL, or the entry NULL: nowhere.
     */
    float *(*place)(struct sl_stage *s, uint32_t micro_batch);
};

struct sl_stage {
    const struct sl_stage_ops *ops;
};

/* Whether a step may be sent before its rows: it has few rows, all generated and all with logits,
 * so that the stage knows what to do without them. */
#define SL_STAGE_AHEAD_ROWS 16u
static inline bool sl_stage_may_go_ahead(const struct sl_ask_step *a) {
    return !a->dead && !a->keep_all && !a->n_failed && a->n_rows <= SL_STAGE_AHEAD_ROWS &&
           a->n_decode == a->n_rows && a->n_out == a->n_rows;
}
/* Empties an answer but for its text, of which it clears the start. */
void sl_stage_answer_begin(struct sl_stage_answer *a);
/* Whether the stage has broken down, not just this call failed: every later one would fail too. */
static inline bool sl_stage_is_broken(enum sl_status status) {
    return status == SL_ERR_DEVICE_LOST || status == SL_ERR_CORRUPT;
}
/* For whoever works on a call: lets the owner do its own work, and says whether to stop. */
static inline bool sl_stage_call_is_canceled(const struct sl_stage_call *c) {
    if (c->owner->meanwhile)
        c->owner->meanwhile(c->owner, (struct sl_stage_call *)(uintptr_t)c);
    return c->canceled && atomic_load_explicit(c->canceled, memory_order_relaxed);
}

/* Sends the call, waits for its answer and returns the answer's status and error. Sets the owner.
 * Only while no thread sends the stage's calls. */
enum sl_status sl_stage_ask(struct sl_stage *s, struct sl_stage_call *c,
                            struct sl_err *err) SL_MUST_CHECK;

#endif
