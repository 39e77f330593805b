#include "tests/support/fake_cuda/internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WORDS_BYTES 2048

struct CUstream_st *fake_streams;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void fake_drop(struct operations *list) {
    while (list->first) {
        struct operation *o = list->first;
        list->first = o->next;
        fake_let_go(o->run);
        free(o);
    }
    list->end = &list->first;
}

void fake_append(struct operations *list, struct operation o) {
    struct operation *q = malloc(sizeof *q);
    if (!q)
        abort();
    *q = o;
    fake_hold(q->run);
    q->next = NULL;
    *list->end = q;
    list->end = &q->next;
}

void fake_forget_streams(void) {
    while (fake_streams) {
        struct CUstream_st *stream = fake_streams;
        fake_streams = stream->next;
        fake_drop(&stream->queue);
        free(stream);
    }
}

int fake_enqueue(struct CUstream_st *stream, struct operation o) {
    if (stream->capture) {
        fake_append(&stream->capture->kept, o);
        return 0;
    }
    o.number = fake.n_queued++;
    fake_append(&stream->queue, o);
    stream->n_queued++;
    return 0;
}

/* What the next of a context that may fault ends with; BLOCKED: it is still running. */
static int ends(struct CUctx_st *ctx, int fault) {
    bool here = fake.fault_device < 0 || ctx == &fake_contexts[fake.fault_device];
    if (fake.kernel_fault && here && !fault) {
        fault = fake.kernel_fault;
        fake.kernel_fault = 0;
    }
    if (fault && !ctx->fault) {
        ctx->fault = fault;
        ctx->until_ns = now_ns() + (uint64_t)fake.fault_after_ms * 1000000u;
    }
    if (ctx->fault && now_ns() < ctx->until_ns)
        return BLOCKED;
    return ctx->stuck = ctx->fault;
}

static int kernel_ends(struct CUctx_st *ctx, int fault) {
    return fault || !fake.copies_fault ? ends(ctx, fault) : 0;
}

/* An event of a context that has failed never passes: who waits for it there waits for good,
 * unless the failure spreads. */
static int follow(struct CUstream_st *stream, const struct operation *o) {
    int result = o->stream ? fake_run(o->stream, o->after) : BLOCKED;
    if (result == 0 || result == BLOCKED || o->stream->ctx == stream->ctx)
        return result;
    if (!fake.faults_spread)
        return BLOCKED;
    return stream->ctx->stuck = result;
}

static bool is_at_least(const uint32_t *word, uint32_t value) {
    return (int32_t)(__atomic_load_n(word, __ATOMIC_ACQUIRE) - value) >= 0;
}

static bool reached(const struct operation *o) {
    if (o->kind == UNTIL)
        return is_at_least(o->src, o->value);
    return is_at_least(&o->raised[*o->channel], *o->seqno) ||
           is_at_least(&o->released[*o->channel], *o->seqno);
}

/* A word may be written by any stream, and by the host. */
static int until(struct CUstream_st *stream, const struct operation *o) {
    int failed = 0;
    for (struct CUstream_st *s = fake_streams; s && !reached(o); s = s->next) {
        int result = fake_run(s, UINT64_MAX);
        failed = result && result != BLOCKED ? result : failed;
    }
    if (reached(o))
        return 0;
    return failed && fake.faults_spread ? stream->ctx->stuck = failed : BLOCKED;
}

static int run_next(struct CUstream_st *stream, const struct operation *o) {
    switch (o->kind) {
    case FILL:
    case OTHER:
        return kernel_ends(stream->ctx, o->fault);
    case COPY:
        return fake.copies_fault && o->to_other ? ends(stream->ctx, 0) : 0;
    case WAIT:
        return follow(stream, o);
    case UNTIL:
        return until(stream, o);
    case SEND:
        return kernel_ends(stream->ctx, 0);
    case RECEIVE: {
        int result = until(stream, o);
        return result ? result : kernel_ends(stream->ctx, 0);
    }
    default:
        return 0;
    }
}

static void hand_over(const struct operation *o) {
    size_t at = (size_t)*o->channel * o->stride * sizeof(float);
    size_t from = o->kind == RECEIVE ? at : 0, to = o->kind == SEND ? at : 0;
    memcpy((char *)o->dst + to, (const char *)o->src + from, o->bytes);
    if (o->kind == SEND)
        __atomic_store_n(&o->raised[*o->channel], *o->seqno, __ATOMIC_RELEASE);
}

/* Words of the host's are seen one by one, by whoever looks at them meanwhile. */
static void copy_bytes(char *dst, const char *src, size_t bytes) {
    bool words = ((uintptr_t)dst | (uintptr_t)src | bytes) % sizeof(uint32_t) == 0;
    if (!words || bytes > WORDS_BYTES) {
        memmove(dst, src, bytes);
        return;
    }
    for (size_t i = 0; i < bytes; i += sizeof(uint32_t)) {
        uint32_t value;
        memcpy(&value, src + i, sizeof value);
        __atomic_store_n((uint32_t *)(void *)(dst + i), value, __ATOMIC_RELEASE);
    }
}

/* What other streams have put before it into the line that they share. */
static int run_line(const struct CUstream_st *stream, uint64_t number) {
    int result = 0;
    for (struct CUstream_st *s = fake_streams; s && stream->line >= 0; s = s->next)
        while (s != stream && s->ctx == stream->ctx && s->line == stream->line && !result &&
               s->queue.first && s->queue.first->number < number)
            result = fake_run(s, s->n_done + 1);
    return result;
}

int fake_run(struct CUstream_st *stream, uint64_t upto) {
    int result = 0;
    while (stream->queue.first && stream->n_done < upto) {
        struct operation *o = stream->queue.first;
        if (fake_stuck || stream->ctx->stuck)
            return fake_stuck ? fake_stuck : stream->ctx->stuck;
        if (stream->running)
            return BLOCKED;
        stream->running = true;
        result = run_line(stream, o->number);
        if (!result)
            result = run_next(stream, o);
        stream->running = false;
        if (result)
            return result;
        if (o->run)
            fake_run_kernel(o->run);
        else if (o->kind == FILL)
            for (size_t i = 0; i < o->bytes / 4; i++)
                memcpy((char *)o->dst + 4 * i, &o->value, 4);
        else if (o->kind == COPY)
            copy_bytes(o->dst, o->src, o->bytes);
        else if (o->kind == SET)
            __atomic_store_n((uint32_t *)o->dst, o->value, __ATOMIC_RELEASE);
        else if (o->kind == SEND || o->kind == RECEIVE)
            hand_over(o);
        stream->queue.first = o->next;
        if (!stream->queue.first)
            stream->queue.end = &stream->queue.first;
        fake_let_go(o->run);
        free(o);
        stream->n_done++;
    }
    return 0;
}

int fake_wait_for(struct CUstream_st *stream, uint64_t upto) {
    int result;
    while ((result = fake_run(stream, upto)) == BLOCKED)
        fake_pause_unlocked();
    return result;
}

int fake_wait_for_all(void) {
    int result = 0;
    for (struct CUstream_st *s = fake_streams; s && !result; s = s->next)
        result = s->ctx == fake_current ? fake_wait_for(s, UINT64_MAX) : 0;
    return result;
}
