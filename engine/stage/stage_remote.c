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
    bool unsent;   /* nobody can have an answer to it yet */
    bool sending;  /* its sender is at it still, */
    bool lost;     /* and answers it, as the other end was lost meanwhile, and may be back */
    bool canceled; /* or cancels it, once it is sent */
    bool ahead;    /* its rows have not been sent yet: nothing is waited for */
};

struct sl_stage_remote {
    struct sl_stage base; /* first */
    struct sl_stage_carrier *carrier;
    struct sl_message_limits limits;
    struct sl_stage_hello hello;
    atomic_bool loses_none, begins_ahead; /* of the other end that there is now */
    uint8_t *message;                     /* [room] the sender's */
    size_t room;
    pthread_mutex_t rows_lock;
    uint8_t *rows_message; /* [rows_room] under it */
    size_t rows_room;
    struct sl_message_arrays micro_batches[SL_MAX_STAGES], others; /* where answers come out */
    pthread_mutex_t lock;
    pthread_cond_t fewer; /* a call that is no step has been answered */
    /* Under the lock. */
    struct asked asked[MAX_CALLS];        /* [n_asked] the first sent first */
    uint32_t n_asked, n_others, n_waited; /* waited: not ahead */
    uint64_t n_numbered;
    uint64_t waits_since_ns, waited_ns; /* since there is one that waits; in all before that */
    enum sl_status lost;                /* not SL_OK: the other end is gone, for this reason */
    struct sl_err why;
    bool regained; /* lost, but there is another end, which may be asked after a resume */
};

static struct sl_stage_remote *remote_of(struct sl_stage *s) {
    return (struct sl_stage_remote *)(void *)s;
}

static bool is_step(const struct sl_stage_call *c) {
    return c->ask.what == SL_STAGE_STEP;
}

static bool is_ahead(const struct sl_stage_call *c) {
    return is_step(c) && c->ask.step.sent == SL_SENT_LATER;
}

static void answer(struct sl_stage_call *c, enum sl_status status, const struct sl_err *why) {
    sl_stage_answer_begin(&c->answer);
    c->answer.status = status;
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

/* Under the lock, as the next. */
static void begin_to_wait(struct sl_stage_remote *r, uint64_t now) {
    if (!r->n_waited++)
        r->waits_since_ns = now;
}

static void end_waiting(struct sl_stage_remote *r) {
    if (!--r->n_waited)
        r->waited_ns += sl_now_ns() - r->waits_since_ns;
}

/* Waits until it may be sent. Not SL_OK: the other end is gone, for this reason. */
static enum sl_status enlist(struct sl_stage_remote *r, struct sl_stage_call *c,
                             uint64_t *out_number, struct sl_err *out_why) {
    bool step = is_step(c);
    pthread_mutex_lock(&r->lock);
    while (r->lost == SL_OK && (r->n_asked == MAX_CALLS || (!step && r->n_others)))
        pthread_cond_wait(&r->fewer, &r->lock);
    enum sl_status status = r->lost;
    if (status == SL_OK) {
        uint64_t now = sl_now_ns();
        *out_number = ++r->n_numbered;
        bool ahead = is_ahead(c);
        if (!ahead)
            begin_to_wait(r, now);
        r->asked[r->n_asked++] = (struct asked){.call = c,
                                                .number = *out_number,
                                                .sent_ns = now,
                                                .unsent = true,
                                                .sending = true,
                                                .ahead = ahead};
        r->n_others += !step;
    } else {
        *out_why = r->why; /* another thread may change it once the lock is open */
    }
    pthread_mutex_unlock(&r->lock);
    return status;
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
    if (!r->asked[i].ahead)
        end_waiting(r);
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

/* The message is written, and goes to the other end next. */
static void may_be_answered(struct sl_stage_remote *r, uint64_t number) {
    pthread_mutex_lock(&r->lock);
    uint32_t i = place_of(r, number);
    if (i < r->n_asked)
        r->asked[i].unsent = false;
    pthread_mutex_unlock(&r->lock);
}

/* The sender has done with it and leaves it alone from here on. True: the other end was lost
 * meanwhile, and it is the sender's to answer with what is left in out_status and out_why. */
static bool end_sending(struct sl_stage_remote *r, uint64_t number, enum sl_status *out_status,
                        struct sl_err *out_why) {
    pthread_mutex_lock(&r->lock);
    uint32_t i = place_of(r, number);
    bool canceled = i < r->n_asked && r->asked[i].canceled;
    bool lost = i < r->n_asked && r->asked[i].lost;
    if (lost) {
        (void)strike_at(r, i);
        *out_status = r->lost != SL_OK ? r->lost : SL_ERR_PEER_LOST;
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
    enum sl_status status = enlist(r, c, &number, &err);
    if (status != SL_OK) {
        answer(c, status, &err);
        return;
    }
    status = sl_message_put_ask(c, number, &r->limits, r->message, r->room, &n, &err);
    if (status == SL_OK) {
        may_be_answered(r, number);
        status = r->carrier->send(r->carrier, SL_MESSAGE_ASK, r->message, n);
        if (status == SL_OK ||
            status == SL_ERR_PEER_LOST) { /* sl_stage_remote_lost() says which and why */
            if (end_sending(r, number, &status, &err))
                answer(c, status, &err);
            return;
        }
        sl_fail(&err, status, "a request to %s could not be sent: %s", r->hello.device,
                sl_status_text(status));
    }
    if (strike(r, number))
        answer(c, status, &err);
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

/* The rows of a call that went ahead, unless it has been answered meanwhile. */
static void send_rows(struct sl_stage *stage, struct sl_stage_call *c, const float *rows) {
    struct sl_stage_remote *r = remote_of(stage);
    uint64_t number = 0;
    size_t n = 0;
    struct sl_err err;
    pthread_mutex_lock(&r->lock);
    for (uint32_t i = 0; i < r->n_asked; i++)
        if (r->asked[i].call == c && r->asked[i].ahead) {
            number = r->asked[i].number;
            r->asked[i].ahead = false;
            r->asked[i].sent_ns = sl_now_ns();
            begin_to_wait(r, r->asked[i].sent_ns);
        }
    pthread_mutex_unlock(&r->lock);
    if (!number)
        return;
    pthread_mutex_lock(&r->rows_lock);
    enum sl_status status =
        sl_message_put_rows(c, number, &r->limits, rows, r->rows_message, r->rows_room, &n, &err);
    if (status == SL_OK)
        status = r->carrier->send(r->carrier, SL_MESSAGE_ROWS, r->rows_message, n);
    pthread_mutex_unlock(&r->rows_lock);
    /* There is room for them in every queue; whoever is lost, sl_stage_remote_lost() says so. */
    if (status != SL_OK && status != SL_ERR_PEER_LOST)
        send_cancel(r, number);
}

/* ---- answers ---- */

static struct sl_message_arrays *arrays_of(struct sl_stage_remote *r,
                                           const struct sl_stage_ask *ask) {
    return ask->what == SL_STAGE_STEP      ? &r->micro_batches[ask->step.micro_batch]
           : sl_stage_asks_rows(ask->what) ? &r->micro_batches[ask->logits.micro_batch]
                                           : &r->others;
}

/* Does a successful step bring what is read next: the logits that were asked for, or the rows?
 * Logits that the stage keeps are asked for later. */
static bool is_complete(const struct sl_stage_remote *r, const struct sl_stage_call *c) {
    const struct sl_ask_step *a = &c->ask.step;
    const struct sl_answer_step *got = &c->answer.step;
    if (!is_step(c) || c->answer.status != SL_OK || a->dead || got->n_failed == a->n_rows)
        return true;
    return r->hello.n_logit_rows ? got->n_logits == a->n_out || a->keep_all
                                 : got->sent == SL_SENT_ROWS;
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
    /* What is not sent yet is read by its sender: an end that guesses its number must not end it.
     */
    if (head.kind != SL_MESSAGE_ANSWER || !first.call || first.unsent ||
        head.number != first.number)
        return sl_fail(err, SL_ERR_PROTOCOL,
                       "a message of kind %u with number %llu, where the answer to number %llu "
                       "should be",
                       head.kind, (unsigned long long)head.number,
                       (unsigned long long)first.number);
    struct sl_stage_call *c = first.call;
    SL_TRY(sl_message_get_answer(bytes, n, &r->limits, arrays_of(r, &c->ask), c, err));
    /* What has broken down for good there has not here. */
    if (sl_stage_is_broken(c->answer.status))
        return sl_fail(err, SL_ERR_PEER_LOST, "%s", c->answer.err.text);
    if (first.ahead && c->answer.status == SL_OK)
        return sl_fail(err, SL_ERR_PROTOCOL,
                       "an answer of success to number %llu, a step whose rows have not been sent",
                       (unsigned long long)first.number);
    if (!is_complete(r, c))
        return sl_fail(err, SL_ERR_PROTOCOL,
                       "an answer of success to number %llu, a step, without its logits or rows",
                       (unsigned long long)first.number);
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
           a->n_expert == b->n_expert && a->n_row == b->n_row && a->n_embd == b->n_embd &&
           a->n_vocab == b->n_vocab && a->n_pages == b->n_pages && a->n_tails == b->n_tails &&
           a->n_before == b->n_before && a->max_rows == b->max_rows;
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
    atomic_store(&r->loses_none, hello->loses_none);
    atomic_store(&r->begins_ahead, hello->begins_ahead);
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
    uint64_t since = 0;
    for (uint32_t i = 0; i < r->n_asked && !since; i++)
        since = r->asked[i].ahead ? 0 : r->asked[i].sent_ns;
    pthread_mutex_unlock(&r->lock);
    return since;
}

void sl_stage_remote_waits(struct sl_stage_remote *r, uint64_t *out_n_calls,
                           uint64_t *out_waited_ns) {
    pthread_mutex_lock(&r->lock);
    *out_n_calls = r->n_numbered;
    *out_waited_ns = r->waited_ns + (r->n_waited ? sl_now_ns() - r->waits_since_ns : 0);
    pthread_mutex_unlock(&r->lock);
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
    pthread_mutex_destroy(&r->rows_lock);
    pthread_mutex_destroy(&r->lock);
    free(r->rows_message);
    free(r->message);
    free(r);
}

static bool clock_offset(struct sl_stage *stage, int64_t *out_ns) {
    struct sl_stage_remote *r = remote_of(stage);
    return r->carrier->clock_offset && r->carrier->clock_offset(r->carrier, out_ns);
}

static bool loses_none(const struct sl_stage *stage) {
    return atomic_load(&((const struct sl_stage_remote *)(const void *)stage)->loses_none);
}

static bool begins_ahead(const struct sl_stage *stage) {
    return atomic_load(&((const struct sl_stage_remote *)(const void *)stage)->begins_ahead);
}

static bool attend(struct sl_stage *stage, uint64_t until_ns) {
    struct sl_stage_carrier *c = remote_of(stage)->carrier;
    return c->attend && c->attend(c, NULL, NULL, until_ns);
}

static void nudge(struct sl_stage *stage) {
    struct sl_stage_carrier *c = remote_of(stage)->carrier;
    if (c->nudge)
        c->nudge(c);
}

static const struct sl_stage_ops ops = {.send = send_ask,
                                        .cancel = cancel_ask,
                                        .close = close_remote,
                                        .clock_offset = clock_offset,
                                        .loses_none = loses_none,
                                        .begins_ahead = begins_ahead,
                                        .posts = true,
                                        .attend = attend,
                                        .nudge = nudge,
                                        .rows = send_rows};

static size_t rows_room(const struct sl_message_limits *l) {
    return SL_MESSAGE_ROWS_BYTES(SL_STAGE_AHEAD_ROWS, l->n_row);
}

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
    atomic_init(&r->loses_none, hello->loses_none);
    atomic_init(&r->begins_ahead, hello->begins_ahead);
    r->room = sl_message_max_bytes(limits);
    r->message = malloc(r->room);
    r->rows_room = rows_room(limits);
    r->rows_message = malloc(r->rows_room);
    pthread_mutex_init(&r->rows_lock, NULL);
    pthread_mutex_init(&r->lock, NULL);
    sl_cond_init(&r->fewer);
    enum sl_status status = sl_message_arrays_init(&r->others, limits);
    for (uint32_t i = 0; i < limits->n_micro_batches && status == SL_OK; i++)
        status = sl_message_arrays_init(&r->micro_batches[i], limits);
    if (status != SL_OK || !r->message || !r->rows_message) {
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
    return sizeof(struct sl_stage_remote) + sl_message_max_bytes(limits) + rows_room(limits) +
           (limits->n_micro_batches + 1) * sl_message_arrays_bytes(limits);
}
