#include "tests/support/bytes_stage.h"

#include "common/log.h"
#include "engine/stage/stage_local.h"
#include "engine/stage/stage_message.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

atomic_uint bytes_stage_n_asked[SL_STAGE_REQUESTS];
atomic_uint bytes_stage_n_canceled;

/* One end's buffers. Each is written where the message comes out. */
struct end {
    struct sl_message_arrays micro_batches[SL_MAX_STAGES], others;
};

struct bytes_stage {
    struct sl_stage base;        /* first */
    struct sl_stage_owner owner; /* of the calls to the one behind */
    struct sl_stage *behind;
    struct sl_message_limits limits;
    struct end far, near; /* where requests come out, where answers do */
    uint8_t *wire;        /* [room] */
    size_t room;
    uint64_t number; /* of the call that is under way: a stage of this process has one at a time */
    struct sl_stage_call call;
    struct sl_stage_call *asked; /* the scheduler's, under the lock */
    atomic_bool canceled;
    pthread_mutex_t lock;
};

static void must(enum sl_status status, const struct sl_err *err) {
    if (status == SL_OK)
        return;
    sl_error("a message between sound ends: %s", err->text);
    abort();
}

/* What goes over the wire lies in a block of just its size, so that reading past it is seen. */
static uint8_t *carry(struct bytes_stage *s, size_t n) {
    uint8_t *bytes = malloc(n);
    if (!bytes)
        abort();
    memcpy(bytes, s->wire, n);
    memset(s->wire, 0xa5, n);
    return bytes;
}

static struct sl_message_arrays *arrays_of(struct end *e, const struct sl_stage_ask *ask) {
    return ask->what == SL_STAGE_STEP      ? &e->micro_batches[ask->step.micro_batch]
           : sl_stage_asks_rows(ask->what) ? &e->micro_batches[ask->logits.micro_batch]
                                           : &e->others;
}

static void send_bytes(struct sl_stage *stage, struct sl_stage_call *c) {
    struct bytes_stage *s = (struct bytes_stage *)(void *)stage;
    struct sl_err err;
    size_t n = 0;
    must(sl_message_put_ask(c, ++s->number, &s->limits, s->wire, s->room, &n, &err), &err);
    uint8_t *bytes = carry(s, n);
    memset(&s->call, 0, sizeof s->call);
    must(sl_message_get_ask(bytes, n, &s->limits, arrays_of(&s->far, &c->ask), &s->call, &err),
         &err);
    free(bytes);
    atomic_fetch_add(&bytes_stage_n_asked[s->call.ask.what], 1);
    s->call.owner = &s->owner;
    s->call.canceled = &s->canceled;
    pthread_mutex_lock(&s->lock);
    s->asked = c;
    atomic_store(&s->canceled, c->canceled && atomic_load(c->canceled));
    pthread_mutex_unlock(&s->lock);
    s->behind->ops->send(s->behind, &s->call);
}

static void was_answered(struct sl_stage_owner *o, struct sl_stage_call *inner) {
    struct bytes_stage *s =
        (struct bytes_stage *)(void *)((char *)o - offsetof(struct bytes_stage, owner));
    struct sl_stage_call *c = s->asked;
    struct sl_err err;
    size_t n = 0;
    must(sl_message_put_answer(inner, s->number, &s->limits, s->wire, s->room, &n, &err), &err);
    uint8_t *bytes = carry(s, n);
    must(sl_message_get_answer(bytes, n, &s->limits, arrays_of(&s->near, &c->ask), c, &err), &err);
    free(bytes);
    if (c->ask.what == SL_STAGE_HELLO)
        c->answer.hello.name.process ^= 1; /* as from another process */
    pthread_mutex_lock(&s->lock);
    s->asked = NULL;
    pthread_mutex_unlock(&s->lock);
    c->owner->answered(c->owner, c);
}

static void was_passed(struct sl_stage_owner *o, struct sl_stage_call *inner) {
    (void)o;
    (void)inner;
    sl_error("a step went on before its rows could");
    abort();
}

static void meanwhile(struct sl_stage_owner *o, struct sl_stage_call *inner) {
    struct bytes_stage *s =
        (struct bytes_stage *)(void *)((char *)o - offsetof(struct bytes_stage, owner));
    struct sl_stage_call *c = s->asked;
    (void)inner;
    if (c->owner->meanwhile)
        c->owner->meanwhile(c->owner, c);
}

static void cancel_bytes(struct sl_stage *stage, struct sl_stage_call *c) {
    struct bytes_stage *s = (struct bytes_stage *)(void *)stage;
    uint8_t bytes[SL_MESSAGE_HEAD_BYTES];
    struct sl_message_head head;
    struct sl_err err;
    pthread_mutex_lock(&s->lock);
    if (s->asked == c) {
        must(sl_message_head(bytes, sl_message_put_cancel(s->number, bytes), &head, &err), &err);
        if (head.kind == SL_MESSAGE_CANCEL && head.number == s->number)
            atomic_store(&s->canceled, true);
        atomic_fetch_add(&bytes_stage_n_canceled, 1);
    }
    pthread_mutex_unlock(&s->lock);
}

static void close_bytes(struct sl_stage *stage) {
    struct bytes_stage *s = (struct bytes_stage *)(void *)stage;
    for (uint32_t i = 0; i < SL_MAX_STAGES; i++) {
        sl_message_arrays_release(&s->far.micro_batches[i]);
        sl_message_arrays_release(&s->near.micro_batches[i]);
    }
    sl_message_arrays_release(&s->far.others);
    sl_message_arrays_release(&s->near.others);
    pthread_mutex_destroy(&s->lock);
    free(s->wire);
    free(s);
}

static const struct sl_stage_ops ops = {
    .send = send_bytes, .cancel = cancel_bytes, .close = close_bytes};

static enum sl_status init_end(struct end *e, const struct sl_message_limits *l) {
    enum sl_status status = sl_message_arrays_init(&e->others, l);
    for (uint32_t i = 0; i < l->n_micro_batches && status == SL_OK; i++)
        status = sl_message_arrays_init(&e->micro_batches[i], l);
    return status;
}

static enum sl_status wrap(const struct sl_stage_source *source, uint32_t index,
                           struct sl_stage *behind, struct sl_stage **out_stage,
                           struct sl_err *err) {
    const struct sl_stage_local *local = (const struct sl_stage_local *)(const void *)behind;
    struct sl_stage_call hello = {.ask = {.what = SL_STAGE_HELLO}};
    struct bytes_stage *s = calloc(1, sizeof *s);
    (void)source;
    (void)index;
    if (!s)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for a stage behind bytes");
    s->base.ops = &ops;
    s->owner = (struct sl_stage_owner){was_passed, was_answered, meanwhile};
    s->behind = behind;
    pthread_mutex_init(&s->lock, NULL);
    enum sl_status status = sl_stage_ask(behind, &hello, err);
    s->limits = sl_message_limits(local->plan, &hello.answer.hello);
    s->room = sl_message_max_bytes(&s->limits);
    s->wire = malloc(s->room);
    if (status == SL_OK && (!s->wire || init_end(&s->far, &s->limits) != SL_OK ||
                            init_end(&s->near, &s->limits) != SL_OK))
        status = sl_fail(err, SL_ERR_NOMEM, "no memory for a stage behind bytes");
    if (status != SL_OK) {
        close_bytes(&s->base);
        return status;
    }
    *out_stage = &s->base;
    return SL_OK;
}

const struct sl_stage_source bytes_stage_source = {wrap};
