/* The end of a remote stage that asks. */
#include "engine/stage/stage_remote.h"

#include "common/clock.h"
#include "common/cond.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A step of each micro-batch, and one call of another kind. */
#define MAX_CALLS (SL_MAX_STAGES + 1u)

struct asked {
    struct sl_stage_call *call;
    uint64_t number, sent_ns;
    bool sending;  /* its sender is at it still, */
    bool lost;     /* and answers it, as the other end was lost meanwhile, and may be back */
    bool canceled; /* or cancels it, once it is sent */
};

struct sl_stage_remote {
    struct sl_stage base; /* first */
    struct sl_stage_carrier *carrier;
    struct sl_message_limits limits;
    struct sl_stage_hello hello;
    uint8_t *message; /* [room] the sender's */
    size_t room;
    struct sl_message_arrays micro_batches[SL_MAX_STAGES], others; /* where answers come out */
    pthread_mutex_t lock;
    pthread_cond_t fewer; /* a call that is no step has been answered */
    /* Under the lock. */
    struct asked asked[MAX_CALLS]; /* [n_asked] the first sent first */
    uint32_t n_asked, n_others;
    uint64_t n_numbered;
    enum sl_status lost; /* not SL_OK: the other end is gone, for this reason */
    struct sl_err why;
    bool regained; /* lost, but there is another end, which may be asked after a resume */
};

static struct sl_stage_remote *remote_of(struct sl_stage *s) {
    return (struct sl_stage_remote *)(void *)s;
}

static bool is_step(const struct sl_stage_call *c) {
    return c->ask.what == SL_STAGE_STEP;
}

static void answer(struct sl_stage_call *c, enum sl_status st, const struct sl_err *why) {
    sl_stage_answer_begin(&c->answer);
    c->answer.status = st;
    if (why)
        c->answer.err = *why;
    c->owner->answered(c->owner, c);
}

/* ---- asking ---- */

/* What needs no message. */
static bool is_answered_here(struct sl_stage_remote *r, struct sl_stage_call *c) {
    switch (c->ask.what) {
    case SL_STAGE_HELLO:
        sl_stage_answer_begin(&c->answer);
        c->answer.hello = r->hello;
        c->owner->answered(c->owner, c);
        return true;
    case SL_STAGE_JOIN: /* rows come with the requests */
    case SL_STAGE_LINK:
    case SL_STAGE_SAVE_HEAT:
    case SL_STAGE_IDLE:
    case SL_STAGE_QUIT:
        answer(c, SL_OK, NULL);
        return true;
    default:
        return false;
    }
}

/* Waits until it may be sent. Not SL_OK: the other end is gone, for this reason. */
static enum sl_status enlist(struct sl_stage_remote *r, struct sl_stage_call *c,
                             uint64_t *out_number, struct sl_err *out_why) {
    bool step = is_step(c);
    pthread_mutex_lock(&r->lock);
    while (r->lost == SL_OK && (r->n_asked == MAX_CALLS || (!step && r->n_others)))
        pthread_cond_wait(&r->fewer, &r->lock);
    enum sl_status st = r->lost;
    if (st == SL_OK) {
        *out_number = ++r->n_numbered;
        r->asked[r->n_asked++] = (struct asked){
            .call = c, .number = *out_number, .sent_ns = sl_now_ns(), .sending = true};
        r->n_others += !step;
    } else {
        *out_why = r->why; /* another thread may change it once the lock is open */
    }
    pthread_mutex_unlock(&r->lock);
    return st;
}

/* Under the lock. n_asked: it is not among them. */
static uint32_t place_of(const struct sl_stage_remote *r, uint64_t number) {
    uint32_t i = 0;
    while (i < r->n_asked && r->asked[i].number != number)
        i++;
    return i;
}

/* Takes it from those that wait for an answer. Under the lock. */
static struct sl_stage_call *strike_at(struct sl_stage_remote *r, uint32_t i) {
    struct sl_stage_call *c = r->asked[i].call;
    memmove(r->asked + i, r->asked + i + 1, (--r->n_asked - i) * sizeof *r->asked);
    r->n_others -= !is_step(c);
    pthread_cond_broadcast(&r->fewer);
    return c;
}

/* False: somebody else has answered it. */
static bool strike(struct sl_stage_remote *r, uint64_t number) {
    pthread_mutex_lock(&r->lock);
    uint32_t i = place_of(r, number);
    bool found = i < r->n_asked;
    if (found)
        (void)strike_at(r, i);
    pthread_mutex_unlock(&r->lock);
    return found;
}

static void send_cancel(struct sl_stage_remote *r, uint64_t number) {
    uint8_t bytes[SL_MESSAGE_HEAD_BYTES];
    (void)!r->carrier->send(r->carrier, SL_MESSAGE_CANCEL, bytes,
                            sl_message_put_cancel(number, bytes));
}

/* The sender has done with it and leaves it alone from here on. True: the other end was lost
 * meanwhile, and it is the sender's to answer with what is left in out_st and out_why. */
static bool end_sending(struct sl_stage_remote *r, uint64_t number, enum sl_status *out_st,
                        struct sl_err *out_why) {
    pthread_mutex_lock(&r->lock);
    uint32_t i = place_of(r, number);
    bool canceled = i < r->n_asked && r->asked[i].canceled;
    bool lost = i < r->n_asked && r->asked[i].lost;
    if (lost) {
        (void)strike_at(r, i);
        *out_st = r->lost != SL_OK ? r->lost : SL_ERR_PEER_LOST;
        *out_why = r->why;
    } else if (i < r->n_asked) {
        r->asked[i].sending = false;
    }
    pthread_mutex_unlock(&r->lock);
    if (canceled && !lost)
        send_cancel(r, number);
    return lost;
}

static void send_ask(struct sl_stage *stage, struct sl_stage_call *c) {
    struct sl_stage_remote *r = remote_of(stage);
    uint64_t number = 0;
    size_t n = 0;
    struct sl_err err = {{0}};
    if (is_answered_here(r, c))
        return;
    enum sl_status st = enlist(r, c, &number, &err);
    if (st != SL_OK) {
        answer(c, st, &err);
        return;
    }
    st = sl_message_put_ask(c, number, &r->limits, r->message, r->room, &n, &err);
    if (st == SL_OK) {
        st = r->carrier->send(r->carrier, SL_MESSAGE_ASK, r->message, n);
        if (st == SL_OK || st == SL_ERR_PEER_LOST) { /* sl_stage_remote_lost() says which and why */
            if (end_sending(r, number, &st, &err))
                answer(c, st, &err);
            return;
        }
        sl_fail(&err, st, "a request to %s could not be sent: %s", r->hello.device,
                sl_status_text(st));
    }
    if (strike(r, number))
        answer(c, st, &err);
}

static void cancel_ask(struct sl_stage *stage, struct sl_stage_call *c) {
    struct sl_stage_remote *r = remote_of(stage);
    uint64_t number = 0;
    pthread_mutex_lock(&r->lock);
    for (uint32_t i = 0; i < r->n_asked; i++)
        if (r->asked[i].call == c && r->asked[i].sending) /* it must not overtake the request */
            r->asked[i].canceled = true;
        else if (r->asked[i].call == c)
            number = r->asked[i].number;
    pthread_mutex_unlock(&r->lock);
    if (number)
        send_cancel(r, number);
}

/* ---- answers ---- */

static struct sl_message_arrays *arrays_of(struct sl_stage_remote *r,
                                           const struct sl_stage_ask *ask) {
    return ask->what == SL_STAGE_STEP      ? &r->micro_batches[ask->step.micro_batch]
           : sl_stage_asks_rows(ask->what) ? &r->micro_batches[ask->logits.micro_batch]
                                           : &r->others;
}

enum sl_status sl_stage_remote_received(struct sl_stage_remote *r, const uint8_t *bytes, size_t n,
                                        struct sl_err *err) {
    struct sl_message_head head;
    struct asked first = {0};
    SL_TRY(sl_message_head(bytes, n, &head, err));
    pthread_mutex_lock(&r->lock);
    if (r->n_asked)
        first = r->asked[0];
    pthread_mutex_unlock(&r->lock);
    if (head.kind != SL_MESSAGE_ANSWER || !first.call || head.number != first.number)
        return sl_fail(err, SL_ERR_PROTOCOL,
                       "a message of kind %u with number %llu, where the answer to number %llu "
                       "should be",
                       head.kind, (unsigned long long)head.number,
                       (unsigned long long)first.number);
    struct sl_stage_call *c = first.call;
    SL_TRY(sl_message_get_answer(bytes, n, &r->limits, arrays_of(r, &c->ask), c, err));
    c->answer.has_background = c->answer.heat_unsaved = false; /* the other end sees to it */
    if (strike(r, first.number))
        c->owner->answered(c->owner, c);
    return SL_OK;
}

void sl_stage_remote_lost(struct sl_stage_remote *r, enum sl_status status,
                          const struct sl_err *why) {
    pthread_mutex_lock(&r->lock);
    if (r->lost == SL_OK || r->regained) {
        r->lost = status;
        r->why = *why;
        r->regained = false;
    }
    pthread_cond_broadcast(&r->fewer);
    for (uint32_t i = 0; i < r->n_asked;) {
        if (r->asked[i].sending) { /* its sender reads it yet */
            r->asked[i++].lost = true;
            continue;
        }
        struct sl_stage_call *c = strike_at(r, i);
        pthread_mutex_unlock(&r->lock);
        answer(c, status, why);
        pthread_mutex_lock(&r->lock);
        i = 0;
    }
    pthread_mutex_unlock(&r->lock);
}

static bool is_same(const struct sl_stage_hello *a, const struct sl_stage_hello *b) {
    return a->rows_alike == b->rows_alike && a->arithmetic.lo == b->arithmetic.lo &&
           a->arithmetic.hi == b->arithmetic.hi && a->first_layer == b->first_layer &&
           a->n_layer == b->n_layer && a->n_logit_rows == b->n_logit_rows;
}

static bool same_limits(const struct sl_message_limits *a, const struct sl_message_limits *b) {
    return a->page_bytes == b->page_bytes && a->tail_bytes == b->tail_bytes &&
           a->heat_bytes == b->heat_bytes && a->n_routed == b->n_routed &&
           a->n_expert == b->n_expert && a->n_embd == b->n_embd && a->n_vocab == b->n_vocab &&
           a->n_pages == b->n_pages && a->n_tails == b->n_tails && a->max_rows == b->max_rows;
}

enum sl_status sl_stage_remote_regain(struct sl_stage_remote *r,
                                      const struct sl_message_limits *limits,
                                      const struct sl_stage_hello *hello, struct sl_err *err) {
    if (!is_same(&r->hello, hello) || !same_limits(&r->limits, limits))
        return sl_fail(err, SL_ERR_CONFIG,
                       "%s computes layers %u to %u otherwise than before: another device, or "
                       "another build",
                       hello->device, hello->first_layer, hello->first_layer + hello->n_layer - 1);
    pthread_mutex_lock(&r->lock);
    r->regained = r->lost != SL_OK;
    pthread_mutex_unlock(&r->lock);
    return SL_OK;
}

void sl_stage_remote_resume(struct sl_stage_remote *r) {
    pthread_mutex_lock(&r->lock);
    if (r->regained)
        r->lost = SL_OK;
    r->regained = false;
    pthread_mutex_unlock(&r->lock);
}

uint64_t sl_stage_remote_waits_since_ns(struct sl_stage_remote *r) {
    pthread_mutex_lock(&r->lock);
    uint64_t since = r->n_asked ? r->asked[0].sent_ns : 0;
    pthread_mutex_unlock(&r->lock);
    return since;
}

/* ---- made, closed ---- */

static void close_remote(struct sl_stage *stage) {
    struct sl_stage_remote *r = remote_of(stage);
    if (r->carrier->closed)
        r->carrier->closed(r->carrier);
    for (uint32_t i = 0; i < SL_MAX_STAGES; i++)
        sl_message_arrays_release(&r->micro_batches[i]);
    sl_message_arrays_release(&r->others);
    pthread_cond_destroy(&r->fewer);
    pthread_mutex_destroy(&r->lock);
    free(r->message);
    free(r);
}

static bool clock_offset(struct sl_stage *stage, int64_t *out_ns) {
    struct sl_stage_remote *r = remote_of(stage);
    return r->carrier->clock_offset && r->carrier->clock_offset(r->carrier, out_ns);
}

static const struct sl_stage_ops ops = {send_ask, cancel_ask, close_remote, clock_offset};

enum sl_status sl_stage_remote_create(const struct sl_message_limits *limits,
                                      const struct sl_stage_hello *hello,
                                      struct sl_stage_carrier *carrier,
                                      struct sl_stage_remote **out_remote, struct sl_err *err) {
    struct sl_stage_remote *r = calloc(1, sizeof *r);
    if (!r)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for a stage elsewhere");
    r->base.ops = &ops;
    r->carrier = carrier;
    r->limits = *limits;
    r->hello = *hello;
    r->hello.name = (struct sl_stage_name){0};
    r->room = sl_message_max_bytes(limits);
    r->message = malloc(r->room);
    pthread_mutex_init(&r->lock, NULL);
    sl_cond_init(&r->fewer);
    enum sl_status st = sl_message_arrays_init(&r->others, limits);
    for (uint32_t i = 0; i < limits->n_micro_batches && st == SL_OK; i++)
        st = sl_message_arrays_init(&r->micro_batches[i], limits);
    if (st != SL_OK || !r->message) {
        close_remote(&r->base);
        return sl_fail(err, SL_ERR_NOMEM, "no memory for messages of %zu bytes", r->room);
    }
    *out_remote = r;
    return SL_OK;
}

struct sl_stage *sl_stage_remote_stage(struct sl_stage_remote *r) {
    return &r->base;
}

uint64_t sl_stage_remote_bytes(const struct sl_message_limits *limits) {
    return sizeof(struct sl_stage_remote) + sl_message_max_bytes(limits) +
           (limits->n_micro_batches + 1) * sl_message_arrays_bytes(limits);
}
