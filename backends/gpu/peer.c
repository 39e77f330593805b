/* What one GPU takes from another: copies out of its memory, and signals.
 *
 * Each device is its owner's, a thread; what is read here of another device (its context) is set
 * when it is opened and stays.
 *
 * A signal is a word of pinned host memory (sl_gpu_staging), which queues of any context write and
 * wait for: an event of a GPU that has failed might never pass; a word the host can write. */
#include "backends/gpu/gpu_internal.h"
#include "common/log.h"

#include <stdatomic.h>
#include <stdlib.h>

struct sl_signal {
    _Atomic uint32_t *word; /* counts the raises that have run */
    uint32_t index;         /* among its device's words */
    uint32_t raised;        /* enqueued: written by who raises, who tells those that follow */
};

/* Copies of so much go by a kernel, which begins sooner than a copy engine. */
#define FEW_BYTES (64u << 10)

enum sl_status sl_gpu_peer_open(struct sl_device *d, struct sl_device *other) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    const struct sl_gpu *o = (const struct sl_gpu *)other;
    int can = 0;
    enum sl_status status = sl_gpu_enter(c);
    if (status || c->ctx == o->ctx)
        return status;
    SL_TRY(sl_gpu_check(c, c->driver.can_access_peer(&can, c->device, o->device),
                        "asking for access to another GPU"));
    int result = can ? c->driver.peer_enable(o->ctx, 0) : SL_CU_PEER_ACCESS_UNSUPPORTED;
    switch (result) {
    case SL_CU_OK:
    case SL_CU_PEER_ACCESS_ALREADY_ENABLED:
        sl_debug("%s:%d: reads %s:%d directly", c->name, c->ordinal, o->name, o->ordinal);
        c->reads |= o->ordinal < 32 ? 1u << o->ordinal : 0;
        return SL_OK;
    case SL_CU_PEER_ACCESS_UNSUPPORTED:
    case SL_CU_TOO_MANY_PEERS:
        /* The same call copies then too, by way of the host. */
        sl_info("%s:%d cannot read %s:%d directly: what it takes goes through the host", c->name,
                c->ordinal, o->name, o->ordinal);
        return SL_OK;
    default:
        return sl_gpu_check(c, result, "reading another GPU");
    }
}

static bool is_direct(const struct sl_gpu *c, const struct sl_gpu *o) {
    return o->ordinal < 32 && c->reads >> o->ordinal & 1;
}

/* A GPU has one context, its primary one, however often it is opened. */
bool sl_gpu_same(const struct sl_device *d, const struct sl_device *other) {
    return ((const struct sl_gpu *)d)->ctx == ((const struct sl_gpu *)other)->ctx;
}

bool sl_gpu_reaches(const struct sl_device *d, const struct sl_device *other) {
    const struct sl_gpu *c = (const struct sl_gpu *)d, *o = (const struct sl_gpu *)other;
    return c->ctx != o->ctx && is_direct(c, o);
}

enum sl_status sl_gpu_copy_from(struct sl_device *d, struct sl_span dst, struct sl_device *other,
                                struct sl_span src) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    const struct sl_gpu *o = (const struct sl_gpu *)other;
    uint64_t to = sl_gpu_address(dst), from = sl_gpu_address(src);
    size_t bytes = dst.bytes;
    SL_TRY(sl_gpu_enter(c));
    if ((c->ctx == o->ctx || is_direct(c, o)) && bytes <= FEW_BYTES &&
        sl_gpu_are_words(to, from, bytes))
        return sl_gpu_words(c, to, from, bytes);
    int result = c->ctx == o->ctx ? c->driver.copy(to, from, bytes, c->stream)
                                  : c->driver.copy_peer(to, c->ctx, from, o->ctx, bytes, c->stream);
    return sl_gpu_check(c, result, "copying from another GPU");
}

/* A driver may have the calls and refuse them: that of a virtual machine's, for one. */
static enum sl_status try_word(struct sl_gpu *c, void *word) {
    int result = c->driver.word_write(c->stream, (uint64_t)(uintptr_t)word, 0, 0);
    if (!result)
        result = c->driver.stream_sync(c->stream);
    return result == SL_CU_NOT_SUPPORTED ? SL_ERR_UNSUPPORTED
                                         : sl_gpu_check(c, result, "writing a signal's word");
}

static char *words(const struct sl_gpu *c) {
    return c->staging.host + (size_t)c->staging.segment_bytes * SL_GPU_STAGING_SEGMENTS;
}

/* SL_GPU_WORDS: there is none. */
static uint32_t free_word(const struct sl_gpu *c) {
    uint32_t i = 0;
    while (i < SL_GPU_WORDS && c->staging.words_taken >> i & 1)
        i++;
    if (i == SL_GPU_WORDS)
        sl_error("%s:%d: more than %u signals", c->name, c->ordinal, SL_GPU_WORDS);
    return i;
}

enum sl_status sl_gpu_signal_create(struct sl_device *d, struct sl_signal **out_signal) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    SL_TRY(sl_gpu_enter(c));
    if (!c->driver.word_write || !c->driver.word_wait)
        return SL_ERR_UNSUPPORTED;
    uint32_t i = free_word(c);
    struct sl_signal *s = i < SL_GPU_WORDS ? calloc(1, sizeof *s) : NULL;
    if (!s)
        return SL_ERR_NOMEM;
    s->index = i;
    s->word = (_Atomic uint32_t *)(void *)(words(c) + (size_t)i * SL_GPU_WORD_BYTES);
    atomic_init(s->word, 0);
    enum sl_status status = try_word(c, (void *)s->word);
    if (status) {
        free(s);
        return status;
    }
    c->staging.words_taken |= (uint64_t)1 << i;
    *out_signal = s;
    return SL_OK;
}

void sl_gpu_signal_free(struct sl_device *d, struct sl_signal *signal) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    c->staging.words_taken &= ~((uint64_t)1 << signal->index);
    free(signal);
}

/* One address space: the word has one address, whoever asks. */
static uint64_t address_of(const struct sl_signal *signal) {
    return (uint64_t)(uintptr_t)signal->word;
}

int sl_gpu_raise_on(const struct sl_gpu *c, struct CUstream_st *stream, struct sl_signal *signal) {
    int result = c->driver.word_write(stream, address_of(signal), signal->raised + 1, 0);
    if (!result)
        signal->raised++;
    return result;
}

int sl_gpu_follow_on(const struct sl_gpu *c, struct CUstream_st *stream,
                     const struct sl_signal *signal) {
    return c->driver.word_wait(stream, address_of(signal), signal->raised, SL_CU_WAIT_FOR_AT_LEAST);
}

enum sl_status sl_gpu_signal_raise(struct sl_device *d, struct sl_signal *signal) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    enum sl_status status = sl_gpu_enter(c);
    return status ? status
                  : sl_gpu_check(c, sl_gpu_raise_on(c, c->stream, signal), "raising a signal");
}

enum sl_status sl_gpu_signal_follow(struct sl_device *d, struct sl_signal *signal) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    enum sl_status status = sl_gpu_enter(c);
    return status
               ? status
               : sl_gpu_check(c, sl_gpu_follow_on(c, c->stream, signal), "following another GPU");
}

/* As if it had been raised by work that never runs. */
enum sl_status sl_gpu_signal_hold(struct sl_device *d, struct sl_signal *signal) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    SL_TRY(sl_gpu_enter(c));
    signal->raised++;
    int result = sl_gpu_follow_on(c, c->stream, signal);
    if (result)
        signal->raised--;
    return sl_gpu_check(c, result, "waiting for the host");
}

bool sl_gpu_signal_is_out(const struct sl_signal *signal) {
    return (int32_t)(signal->raised - atomic_load(signal->word)) > 0;
}

void sl_gpu_signal_release(struct sl_signal *signal) {
    atomic_store(signal->word, signal->raised);
}
