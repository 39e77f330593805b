/* The queues: copies alongside the ops, points, and what waits for which. */
#include "backends/gpu/ops_internal.h"
#include "common/log.h"

#define WORDS_THREADS 256u
/* As many words as a kernel carries between the device and mapped memory: what a copy engine does
 * faster once it has begun, but it begins behind whatever other queues gave it, and within a graph
 * it costs several kernels' time. */
#define WORDS_MAPPED_BYTES (128u << 10)

enum sl_status sl_gpu_queues_init(struct sl_gpu *c) {
    for (int q = 0; q < SL_QUEUES; q++) {
        int result = c->driver.stream_create(&c->queue[q].stream, SL_CU_STREAM_NON_BLOCKING);
        if (result) {
            c->queue[q].stream = NULL;
            return sl_gpu_check(c, result, "creating a stream");
        }
    }
    c->stream = c->queue[SL_QUEUE_OPS].stream;
    return SL_OK;
}

void sl_gpu_queues_release(struct sl_gpu *c) {
    for (int q = 0; q < SL_QUEUES; q++) {
        for (uint32_t i = 0; i < SL_QUEUE_POINTS; i++)
            if (c->queue[q].event[i])
                c->driver.event_destroy(c->queue[q].event[i]);
        if (c->queue[q].stream)
            c->driver.stream_destroy(c->queue[q].stream);
    }
}

/* Of a span from `done` on, as much as one copy of the driver's may take. */
static size_t in_one_piece(struct sl_span s, size_t done) {
    size_t left = s.bytes - done;
    size_t piece = SL_GPU_MAP_PIECE_BYTES - (s.offset + done) % SL_GPU_MAP_PIECE_BYTES;
    return s.buffer->kind == SL_BUFFER_MAPPED && piece < left ? piece : left;
}

/* A kernel carries a few words sooner than a copy engine, which may be busy with what other queues
 * gave it. */
enum sl_status sl_gpu_words(struct sl_gpu *c, uint64_t dst, uint64_t src, size_t bytes) {
    struct sl_karg_words k = {(const uint32_t *)(uintptr_t)src, (uint32_t *)(uintptr_t)dst,
                              (uint32_t)(bytes / sizeof(uint32_t))};
    /* One word a thread: words of the host's memory take a microsecond each. */
    return sl_gpu_launch(c, SL_KERNEL_words,
                         (struct sl_dim3){sl_ceil_div(k.n, WORDS_THREADS), 1, 1},
                         (struct sl_dim3){WORDS_THREADS, 1, 1}, 0, &k, sizeof k);
}

enum sl_status sl_gpu_copy_rows(struct sl_device *d, struct sl_span dst, struct sl_span src,
                                size_t row_bytes, const uint32_t *rows, uint32_t n) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    uint64_t to = sl_gpu_address(dst), from = sl_gpu_address(src);
    struct sl_karg_words_rows k = {(const uint32_t *)(uintptr_t)from,
                                   (uint32_t *)(uintptr_t)to,
                                   (uint32_t)(row_bytes / sizeof(uint32_t)),
                                   {0}};
    _Static_assert(SL_COPY_ROWS_MAX <= SL_WORDS_ROWS, "all rows go with the launch");
    if (!c->kernel[SL_KERNEL_words_rows] || !sl_gpu_are_words(to, from, row_bytes) ||
        n * row_bytes > WORDS_MAPPED_BYTES)
        return SL_ERR_UNSUPPORTED;
    for (uint32_t i = 0; i < n; i++) {
        if (rows[i] > UINT16_MAX)
            return SL_ERR_UNSUPPORTED;
        k.rows[i] = (uint16_t)rows[i];
    }
    return sl_gpu_launch(c, SL_KERNEL_words_rows,
                         (struct sl_dim3){sl_ceil_div(k.n, WORDS_THREADS), n, 1},
                         (struct sl_dim3){WORDS_THREADS, 1, 1}, 0, &k, sizeof k);
}

/* n bytes from `at` on, by the copy that the kinds of the buffers ask for; a CUresult. */
static int copy_piece(struct sl_gpu *c, struct CUstream_st *stream, struct sl_span dst,
                      struct sl_span src, size_t at, size_t n) {
    uint64_t to = sl_gpu_address(dst) + at, from = sl_gpu_address(src) + at;
    if (src.buffer->kind == SL_BUFFER_MAPPED)
        return c->driver.copy_to_device(to, (const char *)sl_span_host(src) + at, n, stream);
    if (dst.buffer->kind == SL_BUFFER_MAPPED)
        return c->driver.copy_to_host((char *)sl_span_host(dst) + at, from, n, stream);
    return c->driver.copy(to, from, n, stream);
}

/* The same bytes again, until they have taken as long as a slower link would. */
static enum sl_status copy_again(struct sl_gpu *c, enum sl_queue q, struct sl_span dst,
                                 struct sl_span src) {
    size_t left = (size_t)((c->link_slowdown - 1) * (double)dst.bytes);
    while (left) {
        size_t there = in_one_piece(dst, 0), here = in_one_piece(src, 0);
        size_t n = there < here ? there : here;
        n = n < left ? n : left;
        SL_TRY(sl_gpu_check(c, copy_piece(c, c->queue[q].stream, dst, src, 0, n), "copying"));
        left -= n;
    }
    return SL_OK;
}

enum sl_status sl_gpu_copy(struct sl_device *d, enum sl_queue q, struct sl_span dst,
                           struct sl_span src) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    bool up = src.buffer->kind == SL_BUFFER_MAPPED, down = dst.buffer->kind == SL_BUFFER_MAPPED;
    uint64_t to = sl_gpu_address(dst), from = sl_gpu_address(src);
    SL_TRY(sl_gpu_enter(c));
    if ((up || down) && q == SL_QUEUE_OPS && dst.bytes <= WORDS_MAPPED_BYTES &&
        sl_gpu_are_words(to, from, dst.bytes))
        return sl_gpu_words(c, to, from, dst.bytes);
    for (size_t done = 0, n; done < dst.bytes; done += n) {
        size_t there = in_one_piece(dst, done), here = in_one_piece(src, done);
        n = there < here ? there : here;
        if (up && sl_gpu_relays(c, q, n))
            SL_TRY(sl_gpu_relay_copy(c, to + done, (const char *)sl_span_host(src) + done, n));
        else
            SL_TRY(
                sl_gpu_check(c, copy_piece(c, c->queue[q].stream, dst, src, done, n), "copying"));
    }
    return up && q == SL_QUEUE_UP && c->link_slowdown > 1 ? copy_again(c, q, dst, src) : SL_OK;
}

static struct CUevent_st *event_of(const struct sl_gpu_queue *queue, sl_point point) {
    return queue->event[point % SL_QUEUE_POINTS];
}

/* Points that were never given out are our own mistake. */
static enum sl_status check_point(const struct sl_gpu *c, enum sl_queue q, sl_point point) {
    if (point <= c->queue[q].marked)
        return SL_OK;
    sl_error("%s:%d: point %llu of queue %d; the last one marked is %llu", c->name, c->ordinal,
             (unsigned long long)point, (int)q, (unsigned long long)c->queue[q].marked);
    return SL_ERR_INVALID;
}

enum sl_status sl_gpu_mark(struct sl_device *d, enum sl_queue q, sl_point *out_point) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    struct sl_gpu_queue *queue = &c->queue[q];
    sl_point point = queue->marked + 1;
    enum sl_status status = sl_gpu_enter(c);
    if (!status && point > SL_QUEUE_POINTS)
        status = sl_gpu_await(d, q, point - SL_QUEUE_POINTS);
    struct CUevent_st **event = &queue->event[point % SL_QUEUE_POINTS];
    if (!status && !*event)
        status = sl_gpu_check(c, c->driver.event_create(event, SL_CU_EVENT_NO_TIMING),
                              "creating an event");
    if (!status)
        status = sl_gpu_check(c, c->driver.event_record(*event, queue->stream), "marking a queue");
    if (!status)
        *out_point = queue->marked = point;
    return status;
}

/* Asks the driver for a point, unless it is known to have passed. */
static enum sl_status see_point(struct sl_gpu *c, enum sl_queue q, sl_point point,
                                int (*ask)(struct sl_gpu *c, struct CUevent_st *event),
                                const char *what) {
    struct sl_gpu_queue *queue = &c->queue[q];
    SL_TRY(check_point(c, q, point));
    SL_TRY(sl_gpu_enter_to_end(c));
    if (point <= queue->passed) /* perhaps while it was lost, and somebody else was told */
        return sl_gpu_came_whole(c);
    int result = ask(c, event_of(queue, point));
    if (result == SL_CU_NOT_READY)
        return SL_AGAIN;
    SL_TRY(sl_gpu_check(c, result, what));
    queue->passed = point;
    return sl_gpu_came_whole(c);
}

static int query(struct sl_gpu *c, struct CUevent_st *event) {
    int result = c->driver.event_query(event);
    if (result == SL_CU_NOT_READY)
        sl_gpu_relay_watch(c);
    return result;
}

enum sl_status sl_gpu_passed(struct sl_device *d, enum sl_queue q, sl_point point) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    return see_point(c, q, point, query, "asking for a point");
}

enum sl_status sl_gpu_await(struct sl_device *d, enum sl_queue q, sl_point point) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    return see_point(c, q, point, sl_gpu_await_event, "waiting for a point");
}

enum sl_status sl_gpu_after(struct sl_device *d, enum sl_queue q, enum sl_queue other,
                            sl_point point) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    enum sl_status status = check_point(c, other, point);
    if (!status)
        status = sl_gpu_enter(c);
    if (status || point <= c->queue[other].passed)
        return status;
    return sl_gpu_check(
        c, c->driver.stream_wait(c->queue[q].stream, event_of(&c->queue[other], point), 0),
        "ordering two queues");
}
