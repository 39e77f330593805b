/* The end of a remote stage that does the work. */
#include "engine/stage/stage_remote.h"

#include "common/clock.h"
#include "common/cond.h"
#include "common/cpus.h"
#include "common/log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A step that comes meanwhile waits at most so long while experts are read in the background. */
#define BACKGROUND_NS 5000000u
/* New heat goes to its file when nothing has been asked for so long, but at most so often. */
#define HEAT_IDLE_NS 1000000000u
#define HEAT_GAP_NS  10000000000u

/* A call in each of the micro-batches, and one of another kind. */
#define MAX_CALLS (SL_MAX_STAGES + 1u)
#define OTHERS    SL_MAX_STAGES /* its place */

struct slot {
    struct sl_stage_call call;
    struct sl_message_arrays arrays;
    uint64_t number;
    atomic_bool canceled;
    bool busy;  /* under the lock */
    bool ahead; /* the carrier's thread's, or whoever forgets: its rows are still to come */
};

struct sl_stage_server {
    struct sl_stage_owner owner; /* of the stage's calls; first */
    struct sl_stage *stage;
    struct sl_stage_carrier *carrier;
    struct sl_message_limits limits;
    struct slot slots[MAX_CALLS];
    uint8_t *message; /* [room] the thread's */
    size_t room;
    pthread_t thread;
    bool started, looks_out, begins_ahead;
    atomic_uint n_received; /* calls that were put into the queue */
    unsigned n_seen;        /* the thread's: of these, when it looked last */
    atomic_bool broken;
    /* The thread's. */
    bool has_background, heat_unsaved;
    uint64_t idle_since_ns, heat_saved_ns;
    struct sl_stage_call own; /* for what it asks by itself */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    /* Under the lock. */
    struct slot *queue[MAX_CALLS]; /* [n_queued] the first sent first */
    uint32_t n_queued;
    bool works; /* at a call that was in the queue */
    bool quit;
};

/* ---- the thread ---- */

static void note_status(struct sl_stage_server *s, enum sl_status status) {
    if (sl_stage_is_broken(status))
        atomic_store(&s->broken, true);
}

static void was_answered(struct sl_stage_owner *o, struct sl_stage_call *c) {
    struct sl_stage_server *s = (struct sl_stage_server *)(void *)o;
    s->has_background = c->answer.has_background;
    s->heat_unsaved = c->answer.heat_unsaved;
}

/* A stage that is not linked passes nothing on. */
static void was_passed(struct sl_stage_owner *o, struct sl_stage_call *c) {
    (void)o;
    (void)c;
}

static enum sl_status ask_own(struct sl_stage_server *s, const struct sl_stage_ask *ask) {
    struct sl_err err;
    s->own = (struct sl_stage_call){.ask = *ask};
    enum sl_status status = sl_stage_ask(s->stage, &s->own, &err);
    note_status(s, status);
    s->has_background = s->own.answer.has_background;
    s->heat_unsaved = s->own.answer.heat_unsaved;
    return status;
}

/* In place of an answer that cannot be written. */
static size_t put_failure(struct sl_stage_server *s, struct slot *slot, enum sl_status status,
                          const struct sl_err *why) {
    struct sl_stage_call *c = &slot->call;
    size_t n = 0;
    uint32_t n_failed = c->answer.step.n_failed;
    sl_stage_answer_begin(&c->answer);
    c->answer.status = status;
    c->answer.err = *why;
    if (c->ask.what == SL_STAGE_STEP)
        c->answer.step.n_failed = n_failed;
    (void)!sl_message_put_answer(c, slot->number, &s->limits, s->message, s->room, &n, NULL);
    return n;
}

static void perform(struct sl_stage_server *s, struct slot *slot) {
    struct sl_stage_call *c = &slot->call;
    struct sl_err err;
    size_t n = 0;
    s->stage->ops->send(s->stage, c);
    note_status(s, c->answer.status);
    enum sl_status status =
        sl_message_put_answer(c, slot->number, &s->limits, s->message, s->room, &n, &err);
    if (status != SL_OK) {
        sl_error("the answer about '%s' cannot be sent: %s", sl_stage_request_name(c->ask.what),
                 err.text);
        n = put_failure(s, slot, status, &err);
    }
    pthread_mutex_lock(&s->lock);
    slot->busy = false; /* before the other end hears of it, and asks again */
    pthread_mutex_unlock(&s->lock);
    (void)!s->carrier->send(s->carrier, SL_MESSAGE_ANSWER, s->message, n);
}

/* Something to do while nothing is asked; false: nothing. Under the lock, which is open
 * meanwhile. */
static bool use_idle_time(struct sl_stage_server *s) {
    struct sl_stage_ask ask;
    uint64_t now = sl_now_ns();
    if (s->has_background)
        ask = (struct sl_stage_ask){.what = SL_STAGE_IDLE, .idle = {BACKGROUND_NS}};
    else if (s->heat_unsaved && now - s->idle_since_ns > HEAT_IDLE_NS &&
             now - s->heat_saved_ns > HEAT_GAP_NS)
        ask = (struct sl_stage_ask){.what = SL_STAGE_SAVE_HEAT};
    else
        return false;
    pthread_mutex_unlock(&s->lock);
    (void)!ask_own(s, &ask);
    if (ask.what == SL_STAGE_SAVE_HEAT)
        s->heat_saved_ns = sl_now_ns();
    pthread_mutex_lock(&s->lock);
    return true;
}

static bool has_more(const void *server) {
    const struct sl_stage_server *s = server;
    return atomic_load_explicit(&s->n_received, memory_order_acquire) != s->n_seen;
}

static bool has_work(void *server) {
    struct sl_stage_server *s = server;
    pthread_mutex_lock(&s->lock);
    bool has = s->n_queued;
    pthread_mutex_unlock(&s->lock);
    return has;
}

/* Takes what comes here and now. Under the lock, which is open meanwhile. False: it cannot. */
static bool attend(struct sl_stage_server *s, uint64_t until_ns) {
    if (!s->carrier->attend)
        return false;
    pthread_mutex_unlock(&s->lock);
    bool could = s->carrier->attend(s->carrier, has_work, s, until_ns);
    pthread_mutex_lock(&s->lock);
    return could || s->n_queued || s->quit;
}

/* NULL at the end. */
static struct slot *next_call(struct sl_stage_server *s) {
    pthread_mutex_lock(&s->lock);
    s->works = false;
    pthread_cond_broadcast(&s->wake);
    if (s->looks_out && !s->n_queued && !s->quit && !s->has_background) {
        pthread_mutex_unlock(&s->lock);
        sl_look_out(has_more, s);
        pthread_mutex_lock(&s->lock);
    }
    s->idle_since_ns = sl_now_ns();
    while (!s->n_queued && !s->quit) {
        uint64_t until_ns = s->heat_unsaved ? sl_now_ns() + HEAT_IDLE_NS : UINT64_MAX;
        if (use_idle_time(s) || attend(s, until_ns))
            continue;
        if (s->heat_unsaved)
            sl_cond_wait_until(&s->wake, &s->lock, until_ns);
        else
            pthread_cond_wait(&s->wake, &s->lock);
    }
    s->n_seen = atomic_load_explicit(&s->n_received, memory_order_relaxed);
    struct slot *slot = s->quit ? NULL : s->queue[0];
    s->works = slot != NULL;
    if (slot)
        memmove(s->queue, s->queue + 1, --s->n_queued * sizeof *s->queue);
    pthread_mutex_unlock(&s->lock);
    return slot;
}

static void *server_main(void *arg) {
    struct sl_stage_server *s = arg;
    for (struct slot *slot; (slot = next_call(s));)
        perform(s, slot);
    (void)!ask_own(s, &(struct sl_stage_ask){.what = SL_STAGE_QUIT});
    return NULL;
}

/* ---- messages ---- */

/* NULL: it has been answered, or there was none. */
static struct slot *busy_slot(struct sl_stage_server *s, uint64_t number) {
    struct slot *found = NULL;
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < MAX_CALLS; i++)
        if (s->slots[i].busy && s->slots[i].number == number)
            found = &s->slots[i];
    pthread_mutex_unlock(&s->lock);
    return found;
}

/* The rows of a call that came ahead of them, once. NULL: they do not come. */
static void give_rows(struct sl_stage_server *s, struct slot *slot, const float *rows) {
    if (slot->ahead)
        s->stage->ops->rows(s->stage, &slot->call, rows);
    slot->ahead = false;
}

static enum sl_status cancel(struct sl_stage_server *s, uint64_t number) {
    struct slot *slot = busy_slot(s, number);
    if (!slot) /* it has been answered meanwhile */
        return SL_OK;
    atomic_store(&slot->canceled, true);
    give_rows(s, slot, NULL);
    return SL_OK;
}

/* They come out where the stage reads them. */
static enum sl_status take_rows(struct sl_stage_server *s, const uint8_t *bytes, size_t n,
                                uint64_t number, struct sl_err *err) {
    struct slot *slot = busy_slot(s, number);
    bool come = false;
    if (!slot || !slot->ahead) /* answered or canceled meanwhile */
        return SL_OK;
    SL_TRY(sl_message_get_rows(bytes, n, &s->limits, &slot->call, slot->arrays.rows, &come, err));
    give_rows(s, slot, come ? slot->arrays.rows : NULL);
    return SL_OK;
}

/* What another process has no say in. */
static bool is_asked_from_afar(enum sl_stage_request what) {
    return what == SL_STAGE_STEP || sl_stage_asks_rows(what) || what == SL_STAGE_READ_PAGE ||
           what == SL_STAGE_WRITE_PAGE || what == SL_STAGE_EXPERTS || what == SL_STAGE_HEAT ||
           what == SL_STAGE_DISK_SPEED;
}

enum sl_status sl_stage_server_received(struct sl_stage_server *s, const uint8_t *bytes, size_t n,
                                        struct sl_err *err) {
    struct sl_message_head head;
    uint32_t at = OTHERS;
    SL_TRY(sl_message_head(bytes, n, &head, err));
    if (head.kind == SL_MESSAGE_CANCEL)
        return cancel(s, head.number);
    if (head.kind == SL_MESSAGE_ROWS)
        return take_rows(s, bytes, n, head.number, err);
    if (head.kind != SL_MESSAGE_ASK || !is_asked_from_afar(head.what))
        return sl_fail(err, SL_ERR_PROTOCOL, "a message of kind %u about '%s' from a coordinator",
                       head.kind, sl_stage_request_name(head.what));
    if (head.what == SL_STAGE_STEP || sl_stage_asks_rows(head.what))
        SL_TRY(sl_message_micro_batch(bytes, n, &s->limits, &at, err));
    struct slot *slot = &s->slots[at];
    pthread_mutex_lock(&s->lock);
    bool busy = slot->busy;
    pthread_mutex_unlock(&s->lock);
    if (busy)
        return sl_fail(err, SL_ERR_PROTOCOL,
                       "'%s' was asked before the call before it was "
                       "answered",
                       sl_stage_request_name(head.what));
    slot->call = (struct sl_stage_call){0};
    slot->ahead = false;
    SL_TRY(sl_message_get_ask(bytes, n, &s->limits, &slot->arrays, &slot->call, err));
    bool ahead = head.what == SL_STAGE_STEP && slot->call.ask.step.sent == SL_SENT_LATER;
    if (ahead && !s->begins_ahead)
        return sl_fail(err, SL_ERR_PROTOCOL, "a step before its rows, to a stage that takes none");
    slot->ahead = ahead;
    slot->call.owner = &s->owner;
    slot->call.canceled = &slot->canceled;
    slot->number = head.number;
    atomic_store(&slot->canceled, false);
    pthread_mutex_lock(&s->lock);
    slot->busy = true;
    s->queue[s->n_queued++] = slot; /* each slot is in it once */
    atomic_fetch_add_explicit(&s->n_received, 1, memory_order_release);
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
    return SL_OK;
}

/* ---- made, destroyed ---- */

/* Before the thread has the stage. */
static bool begins_ahead(struct sl_stage *stage) {
    struct sl_stage_call hello = {.ask = {.what = SL_STAGE_HELLO}};
    struct sl_err err;
    return stage->ops->rows && sl_stage_ask(stage, &hello, &err) == SL_OK &&
           hello.answer.hello.begins_ahead;
}

enum sl_status sl_stage_server_create(const struct sl_message_limits *limits,
                                      struct sl_stage *stage, struct sl_stage_carrier *carrier,
                                      bool looks_out, struct sl_stage_server **out_server,
                                      struct sl_err *err) {
    struct sl_stage_server *s = calloc(1, sizeof *s);
    if (!s)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for serving a stage");
    s->owner = (struct sl_stage_owner){.passed = was_passed, .answered = was_answered};
    s->stage = stage;
    s->carrier = carrier;
    s->looks_out = looks_out;
    s->limits = *limits;
    s->room = sl_message_max_bytes(limits);
    s->message = malloc(s->room);
    pthread_mutex_init(&s->lock, NULL);
    sl_cond_init(&s->wake);
    enum sl_status status = sl_message_arrays_init(&s->slots[OTHERS].arrays, limits);
    for (uint32_t i = 0; i < limits->n_micro_batches && status == SL_OK; i++)
        status = sl_message_arrays_init(&s->slots[i].arrays, limits);
    for (uint32_t i = 0; i < limits->n_micro_batches && status == SL_OK && stage->ops->place; i++)
        if (stage->ops->place(stage, i))
            sl_message_arrays_borrow(&s->slots[i].arrays, stage->ops->place(stage, i));
    s->begins_ahead = begins_ahead(stage);
    if (status == SL_OK && s->message)
        s->started = pthread_create(&s->thread, NULL, server_main, s) == 0;
    if (!s->started) {
        status = sl_fail(err, SL_ERR_NOMEM,
                         "no memory for serving a stage with messages of %zu bytes", s->room);
        sl_stage_server_destroy(&s);
        return status;
    }
    pthread_setname_np(s->thread, "sl-stage");
    *out_server = s;
    return SL_OK;
}

void sl_stage_server_forget(struct sl_stage_server *s) {
    for (uint32_t i = 0; i < MAX_CALLS; i++) {
        atomic_store(&s->slots[i].canceled, true);
        give_rows(s, &s->slots[i], NULL);
    }
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < s->n_queued; i++)
        s->queue[i]->busy = false;
    s->n_queued = 0;
    while (s->works)
        pthread_cond_wait(&s->wake, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

bool sl_stage_server_is_broken(const struct sl_stage_server *s) {
    return atomic_load(&s->broken);
}

void sl_stage_server_destroy(struct sl_stage_server **ps) {
    struct sl_stage_server *s = *ps;
    if (!s)
        return;
    if (s->started)
        sl_stage_server_forget(s);
    pthread_mutex_lock(&s->lock);
    s->quit = true;
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
    if (s->started)
        pthread_join(s->thread, NULL);
    for (uint32_t i = 0; i < MAX_CALLS; i++)
        sl_message_arrays_release(&s->slots[i].arrays);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    free(s->message);
    free(s);
    *ps = NULL;
}

uint64_t sl_stage_server_bytes(const struct sl_message_limits *limits) {
    return sizeof(struct sl_stage_server) + sl_message_max_bytes(limits) +
           (limits->n_micro_batches + 1) * sl_message_arrays_bytes(limits);
}
