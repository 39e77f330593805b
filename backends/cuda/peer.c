/* What one GPU takes from another: copies out of its memory, and signals.
 *
 * Each device is its owner's, a thread; what is read here of another device (its context) is set
 * when it is opened and stays.
 *
 * A signal is a word of pinned host memory (sl_cuda_stage), which queues of any context write and
 * wait for: an event of a GPU that has failed might never pass; a word the host can write. */
#include "backends/cuda/cuda_internal.h"
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

enum sl_status sl_cuda_peer_open(struct sl_device *d, struct sl_device *other) {
    struct sl_cuda *c = (struct sl_cuda *)d;
    const struct sl_cuda *o = (const struct sl_cuda *)other;
    int can = 0;
    enum sl_status status = sl_cuda_enter(c);
    if (status || c->ctx == o->ctx)
        return status;
    status = sl_cuda_check(c, c->driver.can_access_peer(&can, c->device, o->device),
                           "asking for access to another GPU");
    if (status)
        return status;
    int result = can ? c->driver.peer_enable(o->ctx, 0) : SL_CU_PEER_ACCESS_UNSUPPORTED;
    switch (result) {
    case SL_CU_OK:
    case SL_CU_PEER_ACCESS_ALREADY_ENABLED:
        sl_debug("cuda:%d: reads cuda:%d directly", c->ordinal, o->ordinal);
        c->reads |= o->ordinal < 32 ? 1u << o->ordinal : 0;
        return SL_OK;
    case SL_CU_PEER_ACCESS_UNSUPPORTED:
    case SL_CU_TOO_MANY_PEERS:
        /* The same call copies then too, by way of the host. */
        sl_info("cuda:%d cannot read cuda:%d directly: what it takes goes through the host",
                c->ordinal, o->ordinal);
        return SL_OK;
    default:
        return sl_cuda_check(c, result, "reading another GPU");
    }
}

static bool is_direct(const struct sl_cuda *c, const struct sl_cuda *o) {
    return o->ordinal < 32 && c->reads >> o->ordinal & 1;
}

/* A GPU has one context, its primary one, however often it is opened. */
bool sl_cuda_same(const struct sl_device *d, const struct sl_device *other) {
    return ((const struct sl_cuda *)d)->ctx == ((const struct sl_cuda *)other)->ctx;
}

bool sl_cuda_reaches(const struct sl_device *d, const struct sl_device *other) {
    const struct sl_cuda *c = (const struct sl_cuda *)d, *o = (const struct sl_cuda *)other;
    return c->ctx != o->ctx && is_direct(c, o);
}

enum sl_status sl_cuda_copy_from(struct sl_device *d, struct sl_span dst, struct sl_device *other,
                                 struct sl_span src) {
    struct sl_cuda *c = (struct sl_cuda *)d;
    const struct sl_cuda *o = (const struct sl_cuda *)other;
    uint64_t to = sl_cuda_address(dst), from = sl_cuda_address(src);
    size_t bytes = dst.bytes;
    enum sl_status status = sl_cuda_enter(c);
    if (status)
        return status;
    if ((c->ctx == o->ctx || is_direct(c, o)) && bytes <= FEW_BYTES &&
        sl_cuda_are_words(to, from, bytes))
        return sl_cuda_words(c, to, from, bytes);
    int result = c->ctx == o->ctx ? c->driver.copy(to, from, bytes, c->stream)
                                  : c->driver.copy_peer(to, c->ctx, from, o->ctx, bytes, c->stream);
    return sl_cuda_check(c, result, "copying from another GPU");
}

/* A driver may have the calls and refuse them: that of a virtual machine's, for one. */
static enum sl_status try_word(struct sl_cuda *c, void *word) {
    int result = c->driver.word_write(c->stream, (uint64_t)(uintptr_t)word, 0, 0);
    if (!result)
        result = c->driver.stream_sync(c->stream);
    return result == SL_CU_NOT_SUPPORTED ? SL_ERR_UNSUPPORTED
                                         : sl_cuda_check(c, result, "writing a signal's word");
}

static char *words(const struct sl_cuda *c) {
    return c->stage.host + (size_t)c->stage.segment_bytes * SL_CUDA_STAGE_SEGMENTS;
}

/* SL_CUDA_WORDS: there is none. */
static uint32_t free_word(const struct sl_cuda *c) {
    uint32_t i = 0;
    while (i < SL_CUDA_WORDS && c->stage.words_taken >> i & 1)
        i++;
    if (i == SL_CUDA_WORDS)
        sl_error("cuda:%d: more than %u signals", c->ordinal, SL_CUDA_WORDS);
    return i;
}

enum sl_status sl_cuda_signal_create(struct sl_device *d, struct sl_signal **out_signal) {
    struct sl_cuda *c = (struct sl_cuda *)d;
    enum sl_status status = sl_cuda_enter(c);
    if (status)
        return status;
    if (!c->driver.word_write || !c->driver.word_wait)
        return SL_ERR_UNSUPPORTED;
    uint32_t i = free_word(c);
    struct sl_signal *s = i < SL_CUDA_WORDS ? calloc(1, sizeof *s) : NULL;
    if (!s)
        return SL_ERR_NOMEM;
    s->index = i;
    s->word = (_Atomic uint32_t *)(void *)(words(c) + (size_t)i * SL_CUDA_WORD_BYTES);
    atomic_init(s->word, 0);
    status = try_word(c, (void *)s->word);
    if (status) {
        free(s);
        return status;
    }
    c->stage.words_taken |= (uint64_t)1 << i;
    *out_signal = s;
    return SL_OK;
}

void sl_cuda_signal_free(struct sl_device *d, struct sl_signal *signal) {
    struct sl_cuda *c = (struct sl_cuda *)d;
    c->stage.words_taken &= ~((uint64_t)1 << signal->index);
    free(signal);
}

/* One address space: the word has one address, whoever asks. */
static uint64_t address_of(const struct sl_signal *signal) {
    return (uint64_t)(uintptr_t)signal->word;
}

int sl_cuda_raise_on(const struct sl_cuda *c, struct CUstream_st *stream,
                     struct sl_signal *signal) {
    int result = c->driver.word_write(stream, address_of(signal), signal->raised + 1, 0);
    if (!result)
        signal->raised++;
    return result;
}

int sl_cuda_follow_on(const struct sl_cuda *c, struct CUstream_st *stream,
                      const struct sl_signal *signal) {
    return c->driver.word_wait(stream, address_of(signal), signal->raised, SL_CU_WAIT_FOR_AT_LEAST);
}

enum sl_status sl_cuda_signal_raise(struct sl_device *d, struct sl_signal *signal) {
    struct sl_cuda *c = (struct sl_cuda *)d;
    enum sl_status status = sl_cuda_enter(c);
    return status ? status
                  : sl_cuda_check(c, sl_cuda_raise_on(c, c->stream, signal), "raising a signal");
}

enum sl_status sl_cuda_signal_follow(struct sl_device *d, struct sl_signal *signal) {
    struct sl_cuda *c = (struct sl_cuda *)d;
    enum sl_status status = sl_cuda_enter(c);
    return status
               ? status
               : sl_cuda_check(c, sl_cuda_follow_on(c, c->stream, signal), "following another GPU");
}

bool sl_cuda_signal_is_out(const struct sl_signal *signal) {
    return (int32_t)(signal->raised - atomic_load(signal->word)) > 0;
}

void sl_cuda_signal_release(struct sl_signal *signal) {
    atomic_store(signal->word, signal->raised);
}
