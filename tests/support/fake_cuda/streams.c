#include "tests/support/fake_cuda/internal.h"

#include <stdlib.h>

int cuStreamCreate(struct CUstream_st **stream, unsigned flags);
int cuStreamCreate(struct CUstream_st **stream, unsigned flags) {
    (void)flags;
    ENTER_CONTEXT("cuStreamCreate");
    if (!(*stream = calloc(1, sizeof **stream)))
        abort();
    (*stream)->ctx = fake_current;
    (*stream)->line = fake.n_queues ? fake_current->n_streams++ % fake.n_queues : -1;
    (*stream)->queue.end = &(*stream)->queue.first;
    (*stream)->next = fake_streams;
    fake_streams = *stream;
    fake.live_objects++;
    return 0;
}

/* Who still waits for what it has not done waits for good. */
static void forget(const struct CUstream_st *gone) {
    for (struct CUstream_st *s = fake_streams; s; s = s->next)
        for (struct operation *o = s->queue.first; o; o = o->next)
            if (o->kind == WAIT && o->stream == gone) {
                o->kind = gone->n_done >= o->after ? NOTHING : WAIT;
                o->stream = NULL;
            }
}

int cuStreamDestroy_v2(struct CUstream_st *stream);
int cuStreamDestroy_v2(struct CUstream_st *stream) {
    LOCKED;
    fake.n_calls++;
    for (struct CUstream_st **at = &fake_streams; *at; at = &(*at)->next)
        if (*at == stream) {
            if (!stream->ctx->stuck && fake_run(stream, UINT64_MAX) == BLOCKED)
                fake.misused = true; /* it is gone when that has run: never */
            *at = stream->next;
            forget(stream);
            fake_drop(&stream->queue);
            free(stream);
            fake.live_objects--;
            return 0;
        }
    return fake_wrong();
}

int cuStreamWaitEvent(struct CUstream_st *stream, struct CUevent_st *event, unsigned flags);
int cuStreamWaitEvent(struct CUstream_st *stream, struct CUevent_st *event, unsigned flags) {
    ENTER_STREAM("cuStreamWaitEvent", stream);
    if (!stream || !event || !event->stream || flags || stream->capture)
        return fake_wrong();
    return fake_enqueue(
        stream, (struct operation){.kind = WAIT, .stream = event->stream, .after = event->after});
}

int cuStreamSynchronize(struct CUstream_st *stream);
int cuStreamSynchronize(struct CUstream_st *stream) {
    ENTER_STREAM("cuStreamSynchronize", stream);
    if (!stream || stream->capture)
        return fake_wrong();
    fake.n_waits++;
    return fake_wait_for(stream, UINT64_MAX);
}

int cuStreamQuery(struct CUstream_st *stream);
int cuStreamQuery(struct CUstream_st *stream) {
    ENTER_STREAM("cuStreamQuery", stream);
    if (stream->n_done < stream->n_queued && ++stream->asked < ASKED_MOST)
        return SL_CU_NOT_READY;
    int result = fake_run(stream, UINT64_MAX); /* who asks so often is waiting */
    if (result == BLOCKED)
        return SL_CU_NOT_READY;
    stream->asked = 0;
    return result;
}

int cuEventCreate(struct CUevent_st **event, unsigned flags);
int cuEventCreate(struct CUevent_st **event, unsigned flags) {
    (void)flags;
    ENTER_CONTEXT("cuEventCreate");
    if (!(*event = calloc(1, sizeof **event)))
        abort();
    (*event)->ctx = fake_current;
    fake.live_objects++;
    return 0;
}

int cuEventDestroy_v2(struct CUevent_st *event);
int cuEventDestroy_v2(struct CUevent_st *event) {
    LOCKED;
    fake.n_calls++;
    free(event);
    fake.live_objects--;
    return 0;
}

int cuEventRecord(struct CUevent_st *event, struct CUstream_st *stream);
int cuEventRecord(struct CUevent_st *event, struct CUstream_st *stream) {
    ENTER_STREAM("cuEventRecord", stream);
    if (!event || event->ctx != fake_current || stream->capture)
        return fake_wrong();
    event->stream = stream;
    event->after = stream->n_queued;
    event->asked = 0;
    return 0;
}

int cuEventSynchronize(struct CUevent_st *event);
int cuEventSynchronize(struct CUevent_st *event) {
    ENTER_CONTEXT("cuEventSynchronize");
    fake.n_waits++;
    return event->stream ? fake_wait_for(event->stream, event->after) : 0;
}

int cuEventQuery(struct CUevent_st *event);
int cuEventQuery(struct CUevent_st *event) {
    ENTER_CONTEXT("cuEventQuery");
    if (!event->stream || event->stream->n_done >= event->after)
        return 0;
    if (++event->asked < ASKED_MOST)
        return SL_CU_NOT_READY;
    int result = fake_run(event->stream, event->after); /* who asks so often is waiting */
    return result == BLOCKED ? SL_CU_NOT_READY : result;
}

int cuStreamWriteValue32_v2(struct CUstream_st *stream, uint64_t addr, uint32_t value,
                            unsigned flags);
int cuStreamWriteValue32_v2(struct CUstream_st *stream, uint64_t addr, uint32_t value,
                            unsigned flags) {
    ENTER_STREAM("cuStreamWriteValue32_v2", stream);
    char *word = fake_any_range(addr, sizeof value);
    if (flags || !word)
        return fake_wrong();
    return fake_enqueue(stream, (struct operation){.kind = SET, .dst = word, .value = value});
}

int cuStreamWaitValue32_v2(struct CUstream_st *stream, uint64_t addr, uint32_t value,
                           unsigned flags);
int cuStreamWaitValue32_v2(struct CUstream_st *stream, uint64_t addr, uint32_t value,
                           unsigned flags) {
    ENTER_STREAM("cuStreamWaitValue32_v2", stream);
    char *word = fake_any_range(addr, sizeof value);
    if (flags != SL_CU_WAIT_FOR_AT_LEAST || !word)
        return fake_wrong();
    return fake_enqueue(stream, (struct operation){.kind = UNTIL, .src = word, .value = value});
}
