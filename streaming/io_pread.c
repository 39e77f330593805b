/* The pread pool: where io_uring is refused. Depth by threads, each in one pread at a time. */
#include "streaming/reader_internal.h"

#include "common/clock.h"
#include "common/cond.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STACK_BYTES (64u << 10)

struct pool {
    struct sl_io base;
    pthread_mutex_t lock;
    pthread_cond_t work, ended;
    struct sl_io_request *todo_first, *todo_last;   /* under lock */
    struct sl_io_request *ended_first, *ended_last; /* under lock */
    uint32_t n_ended, wanted; /* under lock: the owner sleeps until n >= wanted */
    uint64_t reads;           /* under lock */
    bool stop;                /* under lock */
    struct sl_io_request *batch_first, *batch_last; /* the owner's, until flush */
    uint32_t n_threads;
    pthread_t *threads;
};

static void append(struct sl_io_request **first, struct sl_io_request **last,
                   struct sl_io_request *q) {
    q->next = NULL;
    if (*last)
        (*last)->next = q;
    else
        *first = q;
    *last = q;
}

static void *worker(void *arg) {
    struct pool *p = arg;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->todo_first && !p->stop)
            pthread_cond_wait(&p->work, &p->lock);
        struct sl_io_request *q = p->todo_first;
        if (!q)
            break; /* stop, and nothing is left */
        p->todo_first = q->next;
        if (!p->todo_first)
            p->todo_last = NULL;
        pthread_mutex_unlock(&p->lock);

        ssize_t n = pread(q->fd, q->buf, q->len_bytes, (off_t)q->offset_bytes);
        q->result = n < 0 ? -errno : (int32_t)n;

        pthread_mutex_lock(&p->lock);
        p->reads++;
        append(&p->ended_first, &p->ended_last, q);
        if (++p->n_ended == p->wanted)
            pthread_cond_signal(&p->ended);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static void pool_start(struct sl_io *io, struct sl_io_request *q) {
    struct pool *p = (struct pool *)io;
    append(&p->batch_first, &p->batch_last, q);
    p->base.n_held++;
}

/* With the lock held. */
static void hand_over(struct pool *p) {
    if (!p->batch_first)
        return;
    if (p->todo_last)
        p->todo_last->next = p->batch_first;
    else
        p->todo_first = p->batch_first;
    p->todo_last = p->batch_last;
    if (p->base.n_held == 1)
        pthread_cond_signal(&p->work);
    else
        pthread_cond_broadcast(&p->work);
    p->batch_first = p->batch_last = NULL;
    p->base.n_held = 0;
}

static void pool_flush(struct sl_io *io) {
    struct pool *p = (struct pool *)io;
    if (!p->batch_first)
        return;
    pthread_mutex_lock(&p->lock);
    hand_over(p);
    pthread_mutex_unlock(&p->lock);
}

static uint32_t pool_reap(struct sl_io *io, struct sl_io_request **out, uint32_t max,
                          uint32_t wait_n, int64_t timeout_ns) {
    struct pool *p = (struct pool *)io;
    uint64_t until_ns = wait_n > 0 && timeout_ns >= 0 ? sl_now_ns() + (uint64_t)timeout_ns : 0;
    pthread_mutex_lock(&p->lock);
    hand_over(p);
    p->wanted = wait_n;
    int rc = 0;
    while (p->n_ended < wait_n && rc != ETIMEDOUT)
        rc = timeout_ns < 0 ? pthread_cond_wait(&p->ended, &p->lock)
                            : sl_cond_wait_until(&p->ended, &p->lock, until_ns);
    p->wanted = 0;
    uint32_t n = 0;
    while (n < max && p->ended_first) {
        out[n++] = p->ended_first;
        p->ended_first = p->ended_first->next;
    }
    if (!p->ended_first)
        p->ended_last = NULL;
    p->n_ended -= n;
    io->syscalls += p->reads;
    p->reads = 0;
    pthread_mutex_unlock(&p->lock);
    return n;
}

static uint64_t pool_now_ns(struct sl_io *io) {
    (void)io;
    return sl_now_ns();
}

static void pool_describe(const struct sl_io *io, char *out_text, size_t size) {
    snprintf(out_text, size, "pread by %u threads", ((const struct pool *)io)->n_threads);
}

static void pool_destroy(struct sl_io *io) {
    struct pool *p = (struct pool *)io;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < p->n_threads; i++)
        pthread_join(p->threads[i], NULL);
    pthread_cond_destroy(&p->work);
    pthread_cond_destroy(&p->ended);
    pthread_mutex_destroy(&p->lock);
    free(p->threads);
    free(p);
}

static const struct sl_io_ops pool_ops = {
    .name = "pread",
    .start = pool_start,
    .flush = pool_flush,
    .reap = pool_reap,
    .now_ns = pool_now_ns,
    .describe = pool_describe,
    .destroy = pool_destroy,
};

enum sl_status sl_io_pread_create(const struct sl_reader_config *config, struct sl_io **out_io,
                                  struct sl_err *err) {
    struct pool *p = calloc(1, sizeof *p);
    pthread_t *threads = calloc(config->n_threads, sizeof *threads);
    if (!p || !threads) {
        free(p);
        free(threads);
        return sl_fail(err, SL_ERR_NOMEM, "no memory for %u reading threads", config->n_threads);
    }
    p->base.ops = &pool_ops;
    p->threads = threads;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    sl_cond_init(&p->ended);

    pthread_attr_t attr;
    pthread_attr_init(&attr);
    size_t stack = STACK_BYTES;
    if (stack < (size_t)PTHREAD_STACK_MIN)
        stack = (size_t)PTHREAD_STACK_MIN;
    pthread_attr_setstacksize(&attr, stack);
    int rc = 0;
    while (p->n_threads < config->n_threads &&
           (rc = pthread_create(&threads[p->n_threads], &attr, worker, p)) == 0)
        p->n_threads++;
    pthread_attr_destroy(&attr);
    if (p->n_threads == 0) {
        pool_destroy(&p->base);
        return sl_fail(err, SL_ERR_NOMEM, "cannot start a reading thread: %s", strerror(rc));
    }
    *out_io = &p->base;
    return SL_OK;
}
