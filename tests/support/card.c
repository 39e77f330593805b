#include "tests/support/card.h"

#include "backends/cpu/cpu.h"
#include "backends/recorded.h"
#include "tests/support/quiet_fill.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_REGIONS 4096u

struct region {
    char *base; /* as the engine knows it; NULL: free */
    char *real;
    size_t bytes;
    bool host;                /* mapped, not allocated */
    struct sl_buffer *memory; /* allocated: the CPU's */
};

enum kind { OP, COPY, UPLOAD, AFTER, REPLAY, PEER_COPY, FOLLOW, HELD, NOTHING };

struct card;

struct entry {
    enum kind kind;
    enum sl_status (*run)(struct card *c, const struct entry *e);
    union {
#define SL_OP(name) struct sl_op_##name name;
#include "backends/ops.def"
        struct {
            struct sl_span dst, src;
            const void *src_host; /* UPLOAD: instead of src */
            struct card *from;    /* PEER_COPY: whose memory src is in */
        } copy;
        struct {
            struct card *of;
            const struct sl_signal *signal;
            uint64_t point; /* of its OPS */
        } follow;
        struct {
            enum sl_queue other;
            sl_point point;
        } after;
        struct sl_graph *graph;
    };
    void *owned; /* freed when it has run */
};

struct fifo {
    struct entry *entries;
    size_t head, n, cap;
    uint64_t enqueued, done;
};

struct sl_graph {
    uint32_t n_ops;
    struct sl_recorded_op ops[];
};

/* Raised when its card has done so many ops: written by who raises, read by who follows. */
struct sl_signal {
    struct card *of;
    uint64_t point;
    uint32_t held;          /* so often */
    atomic_uint n_released; /* of these */
};

struct card {
    struct sl_device base;
    struct sl_device *cpu;
    struct card_source *source;
    struct card *next; /* of the source's that are open */
    uint32_t index;
    struct region regions[MAX_REGIONS];
    struct fifo queue[SL_QUEUES];
    struct sl_expert_ref *refs;
    struct card *receives_from; /* whose sl_op_send its sl_op_receive wait for; NULL: nobody's */
    uint64_t memory_bytes, used_bytes;
    uint64_t n_allocs, n_copies, n_waits, n_refusable, n_peer_copies, n_sent;
    bool lost;
    struct sl_device *relay_by; /* NULL: none */
    struct sl_buffer *relay;
    bool relaying; /* not ended */
};

/* The engine, or this card, made a mistake that no test may pass with. */
static void die(const char *what, const void *p) {
    fprintf(stderr, "card: %s: %p\n", what, p);
    abort();
}

/* Cards of one source have one lock: what one waits for another one's thread may have to run. */
static struct card *enter(struct sl_device *d) {
    struct card *c = (struct card *)d;
    pthread_mutex_lock(&c->source->lock);
    return c;
}
static void leave(struct card *const *c) {
    pthread_mutex_unlock(&(*c)->source->lock);
}
#define ENTER(d) struct card *c __attribute__((cleanup(leave))) = enter(d)

/* Is n the number of the call that fails, on this card? */
static bool fails(const struct card *c, uint64_t n, uint64_t fail) {
    uint32_t only = c->source->config.fail_card;
    return n == fail && (!only || only == c->index + 1);
}

/* ---- addresses ---- */

static struct region *region_at(struct card *c, const void *p) {
    for (uint32_t i = 0; i < MAX_REGIONS; i++) {
        struct region *r = &c->regions[i];
        if (r->base && (const char *)p >= r->base && (const char *)p < r->base + r->bytes)
            return r;
    }
    return NULL;
}

static void *real(struct card *c, const void *p) {
    if (!p)
        return NULL;
    struct region *r = region_at(c, p);
    if (!r)
        die("an op was given an address that is not the device's", p);
    return r->real + ((const char *)p - r->base);
}

/* One side of a copy: what its buffer stands for, whatever the addresses are. */
static void *at(struct sl_span s) {
    const struct region *r = s.buffer->own;
    if (!r || !r->base || r->bytes < s.buffer->bytes)
        die("a copy was given a buffer that is not there", s.buffer);
    return r->real + s.offset;
}

/* A new region; its base is address space that nobody can touch, or the memory itself. */
static struct region *add_region(struct card *c, void *memory, size_t bytes, bool host) {
    for (uint32_t i = 0; i < MAX_REGIONS; i++) {
        struct region *r = &c->regions[i];
        if (r->base)
            continue;
        void *base = memory;
        if (!c->source->config.same_addresses)
            base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED)
            die("no address space", NULL);
        *r = (struct region){.base = base, .real = memory, .bytes = bytes, .host = host};
        return r;
    }
    die("too many allocations", NULL);
    return NULL;
}

static void drop_region(struct region *r) {
    if (r->base != r->real)
        munmap(r->base, r->bytes);
    r->base = NULL;
}

/* ---- queues ---- */

static struct entry *push(struct fifo *f) {
    if (f->head && f->head == f->n)
        f->head = f->n = 0;
    if (f->n == f->cap) {
        f->cap = f->cap ? 2 * f->cap : 64;
        f->entries = realloc(f->entries, f->cap * sizeof *f->entries);
        if (!f->entries)
            die("no memory", NULL);
    }
    f->enqueued++;
    struct entry *e = &f->entries[f->n++];
    memset(e, 0, sizeof *e);
    return e;
}

static enum sl_status run_until(struct card *c, enum sl_queue q, uint64_t point);

static enum sl_status run_graph(struct card *c, const struct sl_graph *graph);

/* The other cards go on meanwhile. */
static void wait_for_host(struct card *c, const struct entry *e) {
    while ((int32_t)(atomic_load(&e->follow.signal->n_released) - (uint32_t)e->follow.point) < 0) {
        pthread_mutex_unlock(&c->source->lock);
        sched_yield();
        pthread_mutex_lock(&c->source->lock);
    }
}

static enum sl_status run_entry(struct card *c, const struct entry *e) {
    switch (e->kind) {
    case OP:
        return e->run(c, e);
    case COPY:
        memcpy(at(e->copy.dst), at(e->copy.src), e->copy.dst.bytes);
        return SL_OK;
    case UPLOAD:
        memcpy(at(e->copy.dst), e->copy.src_host, e->copy.dst.bytes);
        return SL_OK;
    case AFTER:
        return run_until(c, e->after.other, e->after.point);
    case FOLLOW: {
        struct card *of = e->follow.of;
        if (of->lost && of->queue[SL_QUEUE_OPS].done < e->follow.point)
            return SL_ERR_DEVICE_LOST;
        return run_until(of, SL_QUEUE_OPS, e->follow.point);
    }
    case HELD:
        wait_for_host(c, e);
        return SL_OK;
    case PEER_COPY:
        memcpy(at(e->copy.dst), at(e->copy.src), e->copy.dst.bytes);
        return SL_OK;
    case NOTHING:
        return SL_OK;
    case REPLAY:
        return run_graph(c, e->graph);
    }
    return SL_ERR_INVALID;
}

static enum sl_status run_until(struct card *c, enum sl_queue q, uint64_t point) {
    struct fifo *f = &c->queue[q];
    while (f->done < point && f->head < f->n) {
        struct entry e = f->entries[f->head++];
        f->done++;
        enum sl_status status = run_entry(c, &e);
        free(e.owned);
        if (status != SL_OK) {
            c->lost = true;
            return status;
        }
    }
    return SL_OK;
}

static enum sl_status run_all(struct card *c, enum sl_queue q) {
    return run_until(c, q, UINT64_MAX);
}

/* A wait of the host. */
static enum sl_status wait_for(struct card *c, enum sl_queue q, uint64_t point) {
    c->source->stats.n_waits++;
    if (fails(c, ++c->n_waits, c->source->config.fail_wait))
        c->lost = true;
    return c->lost ? SL_ERR_DEVICE_LOST : run_until(c, q, point);
}

/* ---- memory ---- */

static enum sl_status card_alloc(struct sl_device *d, struct sl_buffer *buffer) {
    ENTER(d);
    size_t bytes = buffer->bytes;
    struct card_stats *s = &c->source->stats;
    if (c->lost)
        return SL_ERR_DEVICE_LOST;
    s->n_allocs++;
    if (fails(c, ++c->n_allocs, c->source->config.fail_alloc) ||
        bytes > c->memory_bytes - c->used_bytes)
        return SL_ERR_DEVICE_OOM;
    struct sl_buffer *memory;
    bytes += !bytes;
    enum sl_status status = sl_device_alloc(c->cpu, bytes, &memory);
    if (status != SL_OK)
        return SL_ERR_DEVICE_OOM;
    quiet_fill(memory->host, 0xdb, bytes); /* what was never written must not matter */
    c->used_bytes += bytes;
    c->base.own_bytes += bytes;
    s->used_bytes += bytes;
    s->most_bytes = s->used_bytes > s->most_bytes ? s->used_bytes : s->most_bytes;
    uint64_t *most_of = &s->most_of[c->index];
    *most_of = c->used_bytes > *most_of ? c->used_bytes : *most_of;
    struct region *r = add_region(c, memory->host, bytes, false);
    r->memory = memory;
    buffer->addr = r->base;
    buffer->own = r;
    return SL_OK;
}

static void card_free(struct sl_device *d, struct sl_buffer *buffer) {
    ENTER(d);
    struct region *r = buffer->own;
    size_t bytes = buffer->bytes + !buffer->bytes;
    if (!r || r->host || r->base != buffer->addr || r->bytes != bytes)
        die("freed what was not allocated so", buffer->addr);
    for (uint32_t q = 0; q < SL_QUEUES && !c->lost; q++)
        (void)!run_all(c, q);
    sl_device_free(c->cpu, &r->memory);
    c->used_bytes -= bytes;
    c->base.own_bytes -= bytes;
    c->source->stats.used_bytes -= bytes;
    drop_region(r);
}

static enum sl_status card_memory(struct sl_device *d, uint64_t *out_free, uint64_t *out_total) {
    ENTER(d);
    *out_free = c->memory_bytes - c->used_bytes;
    *out_total = c->memory_bytes;
    return SL_OK;
}

static enum sl_status card_map_host(struct sl_device *d, struct sl_buffer *buffer) {
    ENTER(d);
    if (c->lost)
        return SL_ERR_DEVICE_LOST;
    c->source->stats.n_maps++;
    struct region *r = add_region(c, buffer->host, buffer->bytes, true);
    buffer->addr = r->base;
    buffer->own = r;
    return SL_OK;
}

static void card_unmap_host(struct sl_device *d, struct sl_buffer *buffer) {
    ENTER(d);
    for (uint32_t q = 0; q < SL_QUEUES && !c->lost; q++)
        (void)!run_all(c, q);
    struct region *r = buffer->own;
    if (!r || !r->base || !r->host || r->real != buffer->host || r->bytes != buffer->bytes)
        die("unmapped what was not mapped", buffer->host);
    drop_region(r);
}

/* ---- copies ---- */

static enum sl_status card_upload(struct sl_device *d, struct sl_span dst, const void *src) {
    ENTER(d);
    if (c->lost)
        return SL_ERR_DEVICE_LOST;
    if (dst.bytes == c->source->config.refuse_up_bytes)
        return SL_ERR_DEVICE_OOM;
    struct entry *e = push(&c->queue[SL_QUEUE_OPS]);
    e->kind = UPLOAD;
    e->owned = malloc(dst.bytes);
    if (!e->owned)
        die("no memory", NULL);
    memcpy(e->owned, src, dst.bytes);
    e->copy.dst = dst;
    e->copy.src_host = e->owned;
    return SL_OK;
}

static enum sl_status card_download(struct sl_device *d, void *dst, struct sl_span src) {
    ENTER(d);
    enum sl_status status = wait_for(c, SL_QUEUE_OPS, UINT64_MAX);
    if (status == SL_OK && src.bytes == c->source->config.refuse_down_bytes)
        return SL_ERR_DEVICE_OOM;
    if (status == SL_OK)
        memcpy(dst, at(src), src.bytes);
    return status;
}

static enum sl_status card_sync(struct sl_device *d) {
    ENTER(d);
    enum sl_status status = SL_OK;
    for (uint32_t q = 0; q < SL_QUEUES && status == SL_OK; q++)
        status = wait_for(c, q, UINT64_MAX);
    return status;
}

/* Whether it takes a copy that is enqueued, or recorded. */
static enum sl_status take_copy(struct card *c, enum sl_queue q, const struct sl_op_copy *a) {
    struct card_stats *s = &c->source->stats;
    s->n_copies++;
    if (fails(c, ++c->n_copies, c->source->config.fail_copy))
        c->lost = true;
    if (c->lost)
        return SL_ERR_DEVICE_LOST;
    if (fails(c, ++c->n_refusable, c->source->config.refuse))
        return SL_ERR_DEVICE_OOM;
    at(a->dst); /* a wrong buffer shows here, where the caller is */
    at(a->src);
    s->up_bytes += q == SL_QUEUE_UP ? a->dst.bytes : 0;
    s->down_bytes += q == SL_QUEUE_DOWN ? a->dst.bytes : 0;
    bool back = q == SL_QUEUE_OPS && a->dst.buffer->kind == SL_BUFFER_MAPPED;
    s->back_bytes += back ? a->dst.bytes : 0;
    return SL_OK;
}

static enum sl_status card_copy(struct sl_device *d, enum sl_queue q, struct sl_span dst,
                                struct sl_span src) {
    ENTER(d);
    SL_TRY(take_copy(c, q, &(struct sl_op_copy){dst, src}));
    struct entry *e = push(&c->queue[q]);
    e->kind = COPY;
    e->copy.dst = dst;
    e->copy.src = src;
    return c->source->config.eager_copies && q != SL_QUEUE_OPS ? run_all(c, q) : SL_OK;
}

static enum sl_status card_mark(struct sl_device *d, enum sl_queue q, sl_point *out_point) {
    ENTER(d);
    *out_point = c->queue[q].enqueued;
    return c->lost ? SL_ERR_DEVICE_LOST : SL_OK;
}

static enum sl_status card_passed(struct sl_device *d, enum sl_queue q, sl_point point) {
    ENTER(d);
    struct fifo *f = &c->queue[q];
    if (c->lost)
        return SL_ERR_DEVICE_LOST;
    if (f->done >= point)
        return SL_OK;
    /* Time goes by: somebody who only asks gets there too. */
    enum sl_status status = run_until(c, q, f->done + 1);
    return status == SL_OK && f->done < point ? SL_AGAIN : status;
}

static enum sl_status card_await(struct sl_device *d, enum sl_queue q, sl_point point) {
    const struct card *late = (const struct card *)d;
    if (late->index + 1 == late->source->config.late_card)
        late->source->config.come_late();
    ENTER(d);
    return wait_for(c, q, point);
}

static enum sl_status card_after(struct sl_device *d, enum sl_queue q, enum sl_queue other,
                                 sl_point point) {
    ENTER(d);
    if (c->lost)
        return SL_ERR_DEVICE_LOST;
    struct entry *e = push(&c->queue[q]);
    e->kind = AFTER;
    e->after.other = other;
    e->after.point = point;
    return SL_OK;
}

/* ---- other cards ---- */

static enum sl_status card_peer_open(struct sl_device *d, struct sl_device *other) {
    ENTER(d);
    (void)other;
    return c->lost ? SL_ERR_DEVICE_LOST : c->source->config.no_peers ? SL_ERR_UNSUPPORTED : SL_OK;
}

static enum sl_status card_copy_from(struct sl_device *d, struct sl_span dst,
                                     struct sl_device *other, struct sl_span src) {
    ENTER(d);
    if (c->source->config.no_peers)
        die("copied from another card, which was refused", src.buffer);
    c->source->stats.n_peer_copies++;
    if (fails(c, ++c->n_peer_copies, c->source->config.fail_peer))
        c->lost = true;
    if (c->lost)
        return SL_ERR_DEVICE_LOST;
    if (fails(c, c->n_peer_copies, c->source->config.refuse_peer))
        return SL_ERR_DEVICE_OOM;
    at(dst); /* a wrong buffer shows here, where the caller is */
    at(src);
    struct entry *e = push(&c->queue[SL_QUEUE_OPS]);
    e->kind = PEER_COPY;
    e->copy.dst = dst;
    e->copy.src = src;
    e->copy.from = (struct card *)other;
    return SL_OK;
}

static enum sl_status card_signal_create(struct sl_device *d, struct sl_signal **out_signal) {
    ENTER(d);
    if (c->lost)
        return SL_ERR_DEVICE_LOST;
    *out_signal = calloc(1, sizeof **out_signal);
    if (!*out_signal)
        die("no memory", NULL);
    (*out_signal)->of = c;
    c->source->stats.n_signals++;
    return SL_OK;
}

static void card_signal_free(struct sl_device *d, struct sl_signal *signal) {
    ENTER(d);
    if (signal->of != c)
        die("a signal was freed by another card", signal);
    for (const struct card *o = c->source->cards; o; o = o->next)
        for (size_t i = o->queue[SL_QUEUE_OPS].head; !o->lost && i < o->queue[SL_QUEUE_OPS].n; i++)
            if ((o->queue[SL_QUEUE_OPS].entries[i].kind == FOLLOW ||
                 o->queue[SL_QUEUE_OPS].entries[i].kind == HELD) &&
                o->queue[SL_QUEUE_OPS].entries[i].follow.signal == signal)
                die("a signal was freed that a card waits for", signal);
    c->source->stats.n_signals--;
    free(signal);
}

/* The signal itself is not under the lock: whether raising happened before following is for the
 * caller to see to, and for the thread sanitizer to prove. */
static enum sl_status card_signal_raise(struct sl_device *d, struct sl_signal *signal) {
    uint64_t point;
    {
        ENTER(d);
        if (signal->of != c)
            die("a signal was raised by another card", signal);
        if (c->lost)
            return SL_ERR_DEVICE_LOST;
        point = c->queue[SL_QUEUE_OPS].enqueued;
    }
    signal->point = point;
    return SL_OK;
}

static enum sl_status card_signal_follow(struct sl_device *d, struct sl_signal *signal) {
    uint64_t point = signal->point;
    ENTER(d);
    if (c->lost)
        return SL_ERR_DEVICE_LOST;
    struct entry *e = push(&c->queue[SL_QUEUE_OPS]);
    e->kind = FOLLOW;
    e->follow.of = signal->of;
    e->follow.signal = signal;
    e->follow.point = point;
    return SL_OK;
}

/* Who follows a lost card is told so in any case. */
static void card_signal_release(struct sl_signal *signal) {
    atomic_store(&signal->n_released, signal->held);
}

static enum sl_status card_signal_hold(struct sl_device *d, struct sl_signal *signal) {
    ENTER(d);
    if (signal->of != c)
        die("a signal was held by another card", signal);
    if (c->lost)
        return SL_ERR_DEVICE_LOST;
    struct entry *e = push(&c->queue[SL_QUEUE_OPS]);
    e->kind = HELD;
    e->follow.of = c;
    e->follow.signal = signal;
    e->follow.point = ++signal->held;
    c->source->stats.n_holds++;
    return SL_OK;
}

/* Takes what a relay takes; copies go their usual way. */
static enum sl_status card_relay_open(struct sl_device *d, struct sl_device *other,
                                      const atomic_bool *busy) {
    (void)busy;
    struct card *c = (struct card *)d;
    enum sl_status status = sl_device_alloc(other, SL_RELAY_BYTES, &c->relay);
    c->relay_by = status == SL_OK ? other : NULL;
    c->relaying = status == SL_OK;
    c->source->n_relaying += c->relaying;
    c->source->stats.n_relays += c->relaying;
    return status;
}

static void card_relay_end(struct sl_device *d) {
    struct card *c = (struct card *)d;
    c->source->n_relaying -= c->relaying;
    c->relaying = false;
}

static void card_relay_close(struct sl_device *d) {
    struct card *c = (struct card *)d;
    card_relay_end(d);
    if (c->relay_by && c->source->n_relaying)
        die("memory is freed on a card where another's copies may be under way", c->relay_by);
    if (c->relay_by)
        sl_device_free(c->relay_by, &c->relay);
    c->relay_by = NULL;
}

static bool card_reaches(const struct sl_device *d, const struct sl_device *other) {
    struct card *c = (struct card *)(uintptr_t)d, *to = (struct card *)(uintptr_t)other;
    bool can = !c->source->config.no_peers && !c->source->config.no_sends;
    to->receives_from = can ? c : NULL; /* who asks is going to send */
    return can;
}

static bool card_same(const struct sl_device *d, const struct sl_device *other) {
    const struct card *c = (const struct card *)d, *o = (const struct card *)other;
    uint32_t n = c->source->config.n_chips;
    return c->source == o->source && (n ? c->index % n == o->index % n : c->index == o->index);
}

/* A card that is closed: what others were to wait for has been done or is lost. */
static void forget(struct card *c) {
    struct card **at = &c->source->cards;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    for (struct card *o = c->source->cards; o; o = o->next)
        o->receives_from = o->receives_from == c ? NULL : o->receives_from;
    for (struct card *o = c->source->cards; o; o = o->next)
        for (size_t i = o->queue[SL_QUEUE_OPS].head; i < o->queue[SL_QUEUE_OPS].n; i++) {
            struct entry *e = &o->queue[SL_QUEUE_OPS].entries[i];
            if ((e->kind == FOLLOW && e->follow.of == c) ||
                (e->kind == PEER_COPY && e->copy.from == c))
                e->kind = NOTHING;
        }
}

/* ---- replays ---- */

static enum sl_status card_replay(struct sl_device *d, struct sl_graph *graph) {
    ENTER(d);
    if (c->lost)
        return SL_ERR_DEVICE_LOST;
    c->source->stats.n_replays++;
    struct entry *e = push(&c->queue[SL_QUEUE_OPS]);
    e->kind = REPLAY;
    e->graph = graph;
    return c->source->config.mailbox ? run_all(c, SL_QUEUE_OPS) : SL_OK;
}

static void card_graph_free(struct sl_device *d, struct sl_graph *graph) {
    ENTER(d);
    if (!c->lost)
        (void)!run_all(c, SL_QUEUE_OPS);
    free(graph);
}

/* ---- ops ---- */

#define R(field) a.field = real(c, a.field)

/* What an op does when its turn comes: its addresses are translated, and the CPU runs it. */
#define RUN(op, ...)                                                                               \
    static enum sl_status run_##op(struct card *c, const struct entry *e) {                        \
        struct sl_op_##op a = e->op;                                                               \
        __VA_ARGS__;                                                                               \
        return sl_op_##op(c->cpu, &a);                                                             \
    }
RUN(embed, R(w.data), R(ids), R(y))
RUN(rms_norm, R(x), R(w), R(y))
RUN(rope_table, R(pos), R(inv_freq), R(table))
RUN(rope, R(x), R(table))
RUN(kv_write, R(kv.k), R(kv.v), R(k), R(v), R(slot))
RUN(attention, R(kv.k), R(kv.v), R(q), R(sinks), R(y), R(page_table), R(row_seq), R(row_len))
RUN(router, R(logits), R(bias), R(ids), R(weights), R(expert_scale))
RUN(moe_combine, R(pair_y), R(weights), R(y))
RUN(silu_mul, R(gate), R(up), R(y))
RUN(add_gated, R(x), R(gate), R(y))
RUN(mul_sigmoid, R(gate), R(y))
RUN(l2_norm, R(x))
#define R_STATE                                                                                    \
    R(state.pages), R(state.page_table), R(state.slot), R(state.row_seq), R(state.row_len)
RUN(conv_silu, R(x), R(w), R(bias), R(y), R_STATE)
RUN(channel_scan, R(x), R(b), R(c), R(dt), R(a), R(skip), R(y), R_STATE)
RUN(channel_delta, R(q), R(k), R(v), R(alpha), R(beta), R(a), R(dt), R(y), R_STATE)
RUN(state_scan, R(x), R(b), R(c), R(dt), R(a), R(dt_bias), R(skip), R(y), R_STATE)
RUN(short_conv, R(x), R(w), R(y), R_STATE)
RUN(delta_rule, R(q), R(k), R(v), R(alpha), R(beta), R(a), R(dt), R(y), R_STATE)
RUN(head_matmul, R(x), R(w), R(y))
RUN(latent_write, R(kv.rows), R(x), R(slot))
RUN(latent_attention, R(kv.rows), R(q), R(y), R(page_table), R(row_seq), R(row_len))
RUN(hadamard, R(x))
RUN(index_choose, R(keys.rows), R(q), R(w), R(chosen), R(page_table), R(row_seq), R(row_len))
RUN(chosen_attention, R(kv.rows), R(q), R(y), R(chosen), R(page_table), R(row_seq), R(row_len))
RUN(clamped_glu, R(gate), R(up), R(y))
RUN(cut_glu, R(gate), R(up), R(y))
RUN(situ_glu, R(gate), R(up), R(y))
RUN(softplus_router, R(logits), R(bias), R(table), R(tokens), R(rows), R(ids), R(weights))
RUN(stream_spread, R(x), R(y))
RUN(stream_weights, R(x), R(scale), R(base))
RUN(stream_read, R(x), R(w), R(y))
RUN(stream_write, R(x), R(y), R(w))
RUN(stream_attend, R(x), R(w), R(y))
RUN(stream_keep, R(x), R(y))
RUN(compress, R(kv), R(gate), R(ape), R(norm), R(inv_freq), R(kept), R(out.rows), R(slot),
    R(kept_table), R(out_table), R(row_seq), R(row_len))
RUN(compressed_choose, R(choice.keys.rows), R(choice.q), R(choice.w), R(choice.chosen),
    R(choice.page_table), R(choice.row_seq), R(choice.row_len))
RUN(compressed_attention, R(kv.rows), R(blocks.rows), R(q), R(sinks), R(y), R(chosen),
    R(page_table), R(block_table), R(row_seq), R(row_len))
RUN(silu, R(x))
RUN(stream_mean, R(x), R(gate), R(y))
RUN(stream_inject, R(x), R(y), R(w))
RUN(ngram_gate, R(key), R(query), R(value), R(y))
RUN(ngram_conv, R(x), R(h), R(w), R(y), R_STATE)
RUN(pool_keys, R(k), R(norm), R(inv_freq), R(out.rows), R(out_table), R_STATE)
RUN(pooled_choose, R(keys.rows), R(q), R(chosen), R(page_table), R(row_seq), R(row_len))
RUN(pooled_attention, R(blocks.kv.k), R(blocks.kv.v), R(blocks.q), R(blocks.y), R(blocks.chosen),
    R(blocks.page_table), R(blocks.row_seq), R(blocks.row_len))
RUN(block_choose, R(keys.rows), R(q), R(chosen), R(page_table), R(row_seq), R(row_len))
RUN(block_attention, R(kv.k), R(kv.v), R(q), R(y), R(chosen), R(page_table), R(row_seq), R(row_len))
RUN(gelu_mul, R(gate), R(up), R(y))
RUN(scale, R(x), R(by), R(rows), R(y))
RUN(gate_heads, R(gate), R(y))
RUN(temper, R(x), R(pos))
RUN(center, R(x), R(y))
RUN(clamp, R(x))
RUN(relu_squared, R(x))
RUN(limited_glu, R(gate), R(up), R(y))
RUN(bias, R(x), R(b))
RUN(gelu_rows, R(gate), R(up), R(rows), R(y))
RUN(gather_rows, R(x), R(rows), R(y))
RUN(block_max, R(x), R(max), R(at), R(sum), R(inv_t), c->source->stats.n_maxima += a.n_tok)

/* Addresses of another card. */
static void *real_of_other(struct card *c, const void *p) {
    for (struct card *o = c->source->cards; o; o = o->next)
        if (o != c && region_at(o, p))
            return real(o, p);
    die("rows were handed to what is no other card's", p);
    return NULL;
}

static enum sl_status run_send(struct card *c, const struct entry *e) {
    struct sl_op_send a = e->send;
    if (fails(c, ++c->n_sent, c->source->config.fail_send))
        return SL_ERR_DEVICE_LOST;
    R(x), R(channel), R(seqno);
    memcpy((float *)real_of_other(c, a.to) + (size_t)*a.channel * a.stride, a.x, a.n * sizeof *a.x);
    ((uint32_t *)real_of_other(c, a.raised))[*a.channel] = *a.seqno;
    return SL_OK;
}

static bool has_come(const struct sl_op_receive *a) {
    uint32_t released = __atomic_load_n(&a->released[*a->channel], __ATOMIC_ACQUIRE);
    return (int32_t)(a->raised[*a->channel] - *a->seqno) >= 0 ||
           (int32_t)(released - *a->seqno) >= 0;
}

/* The one that hands runs as far as it must. */
static enum sl_status run_receive(struct card *c, const struct entry *e) {
    struct sl_op_receive a = e->receive;
    struct card *by = c->receives_from;
    R(from), R(x), R(raised), R(released), R(channel), R(seqno);
    while (by && !by->lost && !has_come(&a)) {
        struct fifo *f = &by->queue[SL_QUEUE_OPS];
        if (f->head == f->n)
            die("waits for rows that nobody sends", e->receive.from);
        (void)!run_until(by, SL_QUEUE_OPS, f->done + 1);
    }
    if (fails(c, ++c->n_sent, c->source->config.fail_send) || !has_come(&a))
        return SL_ERR_DEVICE_LOST;
    c->source->stats.n_receives++;
    memcpy(a.x, a.from + (size_t)*a.channel * a.stride, a.n * sizeof *a.x);
    return SL_OK;
}

static void translate_matmul(struct card *c, struct sl_op_matmul *m) {
    m->x = real(c, m->x);
    for (uint32_t i = 0; i < m->n_w; i++) {
        struct sl_matmul_out *o = &m->out[i];
        o->w.data = real(c, o->w.data);
        o->bias = real(c, o->bias);
        o->y = real(c, o->y);
    }
}
RUN(matmul, translate_matmul(c, &a))

/* Only the experts that are used need be anywhere. */
static enum sl_status run_moe(struct card *c, const struct entry *e) {
    struct sl_op_moe a = e->moe;
    const struct sl_expert_ref *refs = e->owned ? e->owned : real(c, a.device_refs);
    const struct sl_placed_pair *placed = a.placed ? e->owned : NULL;
    uint32_t pairs[SL_MOE_MAX_PLACED];
    R(x), R(ids), R(pairs), R(pair_y), R(gate_bias), R(up_bias), R(down_bias);
    memset(c->refs, 0, SL_MAX_EXPERTS * sizeof *c->refs);
    for (uint32_t i = 0; i < a.n_pairs; i++) {
        uint32_t pair = placed ? placed[i].pair : a.pairs ? a.pairs[i] : i, id = a.ids[pair];
        const struct sl_expert_ref *ref = placed ? &placed[i].ref : &refs[id];
        if (placed)
            pairs[i] = pair;
        c->refs[id] =
            (struct sl_expert_ref){real(c, ref->gate), real(c, ref->up), real(c, ref->down)};
    }
    if (placed)
        a.pairs = pairs;
    a.refs = c->refs;
    a.device_refs = NULL;
    a.placed = NULL;
    return sl_op_moe(c->cpu, &a);
}

/* The host's arrays are free again when the call returns. */
static void keep_moe(struct entry *e) {
    const struct sl_op_moe *a = &e->moe;
    const void *mine = a->placed ? (const void *)a->placed : a->refs;
    size_t bytes = a->placed ? a->n_pairs * sizeof *a->placed : a->n_expert * sizeof *a->refs;
    if (!mine)
        return;
    e->owned = malloc(bytes);
    if (!e->owned)
        die("no memory", NULL);
    memcpy(e->owned, mine, bytes);
}

/* Whether it takes an op that is enqueued, or recorded. */
static enum sl_status take_op(struct card *c, enum sl_op op) {
    if (c->lost)
        return SL_ERR_DEVICE_LOST;
    if (op == SL_OP_moe && fails(c, ++c->n_refusable, c->source->config.refuse))
        return SL_ERR_DEVICE_OOM;
    c->source->stats.n_ops += op != SL_OP_send && op != SL_OP_receive;
    return SL_OK;
}

#define SL_OP(name)                                                                                \
    static enum sl_status card_##name(struct sl_device *d, const struct sl_op_##name *a) {         \
        ENTER(d);                                                                                  \
        SL_TRY(take_op(c, SL_OP_##name));                                                          \
        struct entry *e = push(&c->queue[SL_QUEUE_OPS]);                                           \
        e->kind = OP;                                                                              \
        e->run = run_##name;                                                                       \
        e->name = *a;                                                                              \
        if (SL_OP_##name == SL_OP_moe)                                                             \
            keep_moe(e);                                                                           \
        return SL_OK;                                                                              \
    }
#include "backends/ops.def"

/* ---- graphs ---- */

static enum sl_status card_graph_create(struct sl_device *d, const struct sl_recorded_op *ops,
                                        uint32_t n_ops, struct sl_graph **out_graph) {
    ENTER(d);
    if (c->lost)
        return SL_ERR_DEVICE_LOST;
    for (uint32_t i = 0; i < n_ops; i++)
        SL_TRY(ops[i].kind == SL_RECORDED_COPY ? take_copy(c, SL_QUEUE_OPS, &ops[i].u.copy)
                                               : take_op(c, (enum sl_op)ops[i].kind));
    struct sl_graph *g = malloc(sizeof *g + n_ops * sizeof *ops);
    if (!g)
        return SL_ERR_NOMEM;
    g->n_ops = n_ops;
    memcpy(g->ops, ops, n_ops * sizeof *ops);
    c->source->stats.n_graphs++;
    *out_graph = g;
    return SL_OK;
}

static enum sl_status run_recorded(struct card *c, const struct sl_recorded_op *op) {
    struct entry e = {.kind = OP};
    switch (op->kind) {
#define SL_OP(op_name)                                                                             \
    case SL_OP_##op_name:                                                                          \
        e.run = run_##op_name;                                                                     \
        e.op_name = op->u.op_name;                                                                 \
        break;
#include "backends/ops.def"
    default:
        e.kind = COPY;
        e.copy.dst = op->u.copy.dst;
        e.copy.src = op->u.copy.src;
    }
    return run_entry(c, &e);
}

static enum sl_status run_graph(struct card *c, const struct sl_graph *graph) {
    for (uint32_t i = 0; i < graph->n_ops; i += graph->ops[i].n) {
        const struct sl_recorded_op *op = &graph->ops[i];
        c->source->stats.n_fused += op->fused != SL_FUSED_COUNT;
        SL_TRY(op->fused != SL_FUSED_COUNT ? sl_fuse_submit(&c->base, op) : run_recorded(c, op));
    }
    return SL_OK;
}

/* Fused forms, called as a graph runs: from their own arguments alone. */
static enum sl_status run_now(struct sl_device *d, enum sl_op op, const void *args, size_t bytes) {
    struct sl_recorded_op r = {.kind = (uint16_t)op, .fused = SL_FUSED_COUNT, .n = 1};
    memcpy(&r.u, args, bytes);
    return run_recorded((struct card *)d, &r);
}
#define RUN_NOW(op, args) run_now(d, SL_OP_##op, args, sizeof *(args))

static enum sl_status card_norm_router(struct sl_device *d, const struct sl_fused_norm_router *a) {
    SL_TRY(RUN_NOW(rms_norm, a->norm));
    SL_TRY(RUN_NOW(matmul, a->logits));
    return RUN_NOW(router, a->router);
}

static enum sl_status card_norm_matmul(struct sl_device *d, const struct sl_fused_norm_matmul *a) {
    SL_TRY(RUN_NOW(rms_norm, a->norm));
    return RUN_NOW(matmul, a->matmul);
}

static enum sl_status card_qkv(struct sl_device *d, const struct sl_fused_qkv *a) {
    if (a->q_norm)
        SL_TRY(RUN_NOW(rms_norm, a->q_norm));
    if (a->k_norm)
        SL_TRY(RUN_NOW(rms_norm, a->k_norm));
    SL_TRY(RUN_NOW(rope, a->q_rope));
    SL_TRY(RUN_NOW(rope, a->k_rope));
    return RUN_NOW(kv_write, a->write);
}

static enum sl_status card_moe_sum(struct sl_device *d, const struct sl_fused_moe_sum *a) {
    SL_TRY(RUN_NOW(moe, a->moe));
    return RUN_NOW(moe_combine, a->sum);
}

/* ---- the device ---- */

static void card_close(struct sl_device *d) {
    struct card *c = (struct card *)d;
    pthread_mutex_t *lock = &c->source->lock;
    pthread_mutex_lock(lock);
    forget(c);
    for (uint32_t q = 0; q < SL_QUEUES; q++) {
        struct fifo *f = &c->queue[q];
        for (size_t i = f->head; i < f->n; i++)
            free(f->entries[i].owned);
        free(f->entries);
    }
    for (uint32_t i = 0; i < MAX_REGIONS; i++)
        if (c->regions[i].base)
            die("closed with memory that was not given back", c->regions[i].base);
    sl_device_close(&c->cpu);
    c->source->n_open--;
    free(c->refs);
    free(c);
    pthread_mutex_unlock(lock);
}

static enum sl_status card_configure(struct sl_device *d, const struct sl_device_limits *limits) {
    ENTER(d);
    struct sl_err why;
    return sl_device_configure(c->cpu, limits, &why);
}

static uint64_t card_scratch_bytes(const struct sl_device *d,
                                   const struct sl_device_limits *limits) {
    return sl_device_scratch_bytes(((const struct card *)d)->cpu, limits);
}

static const struct sl_backend_ops card_ops = {
    .name = "card",
    .close = card_close,
    .configure = card_configure,
    .scratch_bytes = card_scratch_bytes,
    .alloc = card_alloc,
    .free = card_free,
    .upload = card_upload,
    .download = card_download,
    .sync = card_sync,
    .memory = card_memory,
    .map_host = card_map_host,
    .unmap_host = card_unmap_host,
    .copy = card_copy,
    .mark = card_mark,
    .passed = card_passed,
    .await = card_await,
    .after = card_after,
    .graph_create = card_graph_create,
    .replay = card_replay,
    .graph_free = card_graph_free,
    .peer_open = card_peer_open,
    .copy_from = card_copy_from,
    .signal_create = card_signal_create,
    .signal_free = card_signal_free,
    .signal_raise = card_signal_raise,
    .signal_follow = card_signal_follow,
    .signal_release = card_signal_release,
    .signal_hold = card_signal_hold,
    .relay_open = card_relay_open,
    .relay_end = card_relay_end,
    .relay_close = card_relay_close,
    .reaches = card_reaches,
    .same = card_same,
    .fused_norm_router = card_norm_router,
    .fused_norm_matmul = card_norm_matmul,
    .fused_qkv = card_qkv,
    .fused_moe_sum = card_moe_sum,
#define SL_OP(name) .name = card_##name,
#include "backends/ops.def"
};

static enum sl_status card_open(const struct sl_device_source *source, uint32_t index,
                                struct sl_device **out_dev, struct sl_err *err) {
    struct card_source *s = (struct card_source *)(uintptr_t)source;
    struct sl_cpu_config cpu = {.n_threads = s->config.n_threads ? s->config.n_threads : 1,
                                .isa = SL_CPU_BEST};
    if (s->config.plain >> index & 1)
        return sl_cpu_open(&cpu, out_dev, err);
    struct card *c = calloc(1, sizeof *c);
    if (!c || !(c->refs = calloc(SL_MAX_EXPERTS, sizeof *c->refs))) {
        free(c);
        return sl_fail(err, SL_ERR_NOMEM, "no memory for a card");
    }
    enum sl_status status = sl_cpu_open(&cpu, &c->cpu, err);
    if (status != SL_OK) {
        free(c->refs);
        free(c);
        return status;
    }
    c->source = s;
    c->memory_bytes = s->config.memory_bytes ? s->config.memory_bytes : (uint64_t)1 << 40;
    c->base.ops = &card_ops;
    c->base.caps = c->cpu->caps;
    c->index = index;
    snprintf(c->base.caps.model, sizeof c->base.caps.model, "the CPU in disguise");
    sl_device_caps_set_id(&c->base.caps, "card", index, s->config.n_cards <= 1);
    c->base.caps.host_visible = false;
    c->base.caps.kind = s->config.integrated ? SL_DEVICE_INTEGRATED : SL_DEVICE_DISCRETE;
    c->base.caps.mapped_host = true;
    c->base.caps.moe_placed = !s->config.no_placed;
    c->base.caps.mailbox = s->config.mailbox;
    c->base.caps.moe_as_host = s->config.lane;
    c->base.caps.graphs = !s->config.no_graphs;
    c->base.caps.fused_ops = s->config.no_fused ? 0 : (1u << SL_FUSED_COUNT) - 1;
    c->base.caps.lacks_ops = s->config.lacks_ops;
    c->base.caps.memory_bytes = c->memory_bytes;
    c->base.caps.max_alloc_bytes =
        s->config.max_alloc_bytes ? s->config.max_alloc_bytes : CARD_MAX_ALLOC_BYTES;
    c->base.caps.held_bytes = s->config.held_bytes;
    pthread_mutex_lock(&s->lock);
    s->n_open++;
    c->next = s->cards;
    s->cards = c;
    pthread_mutex_unlock(&s->lock);
    *out_dev = &c->base;
    return SL_OK;
}

void card_source_init(struct card_source *s, const struct card_config *config) {
    pthread_mutexattr_t recursive;
    *s = (struct card_source){.source = {.open = card_open, .n_devices = config->n_cards},
                              .config = *config};
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&s->lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
}
