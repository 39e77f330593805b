#include "engine/stage/stage.h"

#include <pthread.h>
#include <string.h>

const char *sl_stage_request_name(enum sl_stage_request what) {
    static const char *const names[SL_STAGE_REQUESTS] = {
        [SL_STAGE_HELLO] = "hello",
        [SL_STAGE_JOIN] = "join",
        [SL_STAGE_LINK] = "link",
        [SL_STAGE_STEP] = "step",
        [SL_STAGE_LOGITS] = "logits",
        [SL_STAGE_READ_PAGE] = "read page",
        [SL_STAGE_WRITE_PAGE] = "write page",
        [SL_STAGE_EXPERTS] = "expert map",
        [SL_STAGE_HEAT] = "heat",
        [SL_STAGE_SAVE_HEAT] = "save heat",
        [SL_STAGE_DISK_SPEED] = "disk speed",
        [SL_STAGE_IDLE] = "idle",
        [SL_STAGE_QUIT] = "quit",
        [SL_STAGE_HIDDEN] = "hidden states",
    };
    return (uint32_t)what < SL_STAGE_REQUESTS ? names[what] : "unknown request";
}

void sl_stage_answer_begin(struct sl_stage_answer *a) {
    a->status = SL_OK;
    a->err.text[0] = 0;
    memset((char *)a + offsetof(struct sl_stage_answer, has_background), 0,
           sizeof *a - offsetof(struct sl_stage_answer, has_background));
}

/* Waits for one call. */
struct waiter {
    struct sl_stage_owner owner; /* first */
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool answered;
};

static void was_answered(struct sl_stage_owner *o, struct sl_stage_call *c) {
    struct waiter *w = (struct waiter *)(void *)o;
    (void)c;
    pthread_mutex_lock(&w->lock);
    w->answered = true;
    pthread_cond_signal(&w->ended);
    pthread_mutex_unlock(&w->lock);
}

enum sl_status sl_stage_ask(struct sl_stage *s, struct sl_stage_call *c, struct sl_err *err) {
    struct waiter w = {.owner = {.answered = was_answered},
                       .lock = PTHREAD_MUTEX_INITIALIZER,
                       .ended = PTHREAD_COND_INITIALIZER};
    c->owner = &w.owner;
    s->ops->send(s, c);
    pthread_mutex_lock(&w.lock);
    while (!w.answered)
        pthread_cond_wait(&w.ended, &w.lock);
    pthread_mutex_unlock(&w.lock);
    pthread_cond_destroy(&w.ended);
    pthread_mutex_destroy(&w.lock);
    if (c->answer.status != SL_OK && err)
        *err = c->answer.err;
    return c->answer.status;
}
