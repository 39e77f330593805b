/* Several GPUs over a fake driver: rows handed from one to another, and what each does when another
 * one, or a call of its own, fails. */
#include "tests/unit/backends/cuda_fixture.h"
#include "tests/support/device_memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define SENDS 500u

/* What two threads share: rows go from GPU 0 to GPU 1 through one buffer. */
struct hand_over {
    struct sl_device *from, *to;
    struct sl_signal *sent, *taken;
    void *buffer;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t n_sent, n_taken;
    uint32_t n_failed;
};

static void turn_to(struct hand_over *h, const uint32_t *n, uint32_t least) {
    pthread_mutex_lock(&h->lock);
    while (*n < least)
        pthread_cond_wait(&h->changed, &h->lock);
    pthread_mutex_unlock(&h->lock);
}

static void turn_done(struct hand_over *h, uint32_t *n, enum sl_status status) {
    pthread_mutex_lock(&h->lock);
    ++*n;
    h->n_failed += status != SL_OK;
    pthread_cond_signal(&h->changed);
    pthread_mutex_unlock(&h->lock);
}

static void *send_values(void *arg) {
    struct hand_over *h = arg;
    for (uint32_t i = 1; i <= SENDS; i++) {
        uint32_t value = i * 3;
        turn_to(h, &h->n_taken, i - 1);
        enum sl_status status = sl_signal_follow(h->from, h->to, h->taken);
        if (!status)
            status = mem_upload(h->from, h->buffer, &value, sizeof value);
        if (!status)
            status = sl_signal_raise(h->from, h->sent);
        turn_done(h, &h->n_sent, status);
    }
    return NULL;
}

static void take_values(struct hand_over *h, uint32_t *out_wrong) {
    void *mine;
    assert_int_equal(mem_alloc(h->to, 4, &mine), SL_OK);
    for (uint32_t i = 1; i <= SENDS; i++) {
        uint32_t got = 0;
        turn_to(h, &h->n_sent, i);
        enum sl_status status = sl_signal_follow(h->to, h->from, h->sent);
        if (!status)
            status = mem_copy_from(h->to, mine, h->from, h->buffer, 4);
        if (!status)
            status = sl_signal_raise(h->to, h->taken);
        turn_done(h, &h->n_taken, status);
        if (i % 5 == 0 && !status && !mem_download(h->to, &got, mine, 4))
            *out_wrong += got != i * 3;
    }
    mem_free(h->to, mine);
}

static void two_gpus(void **state) {
    need_kernels();
    for (uint32_t way = 0; way < 3; way++) { /* direct, through the host, twice the same GPU */
        struct hand_over h = {.n_sent = 0};
        pthread_t sender;
        uint32_t wrong = 0;
        reset(state);
        fake->n_devices = 2;
        fake->no_peer_access = way == 1;
        pthread_mutex_init(&h.lock, NULL);
        pthread_cond_init(&h.changed, NULL);
        assert_int_equal(open_gpu(0, 0, &h.from), SL_OK);
        assert_int_equal(open_gpu(way == 2 ? 0 : 1, 0, &h.to), SL_OK);
        assert_int_equal(sl_device_peer_open(h.to, h.from), SL_OK);
        assert_int_equal(sl_device_peer_open(h.to, h.from), SL_OK); /* once more does no harm */
        assert_int_equal(sl_signal_create(h.from, &h.sent), SL_OK);
        assert_int_equal(sl_signal_create(h.to, &h.taken), SL_OK);
        assert_int_equal(mem_alloc(h.from, 4, &h.buffer), SL_OK);
        assert_int_equal(pthread_create(&sender, NULL, send_values, &h), 0);
        take_values(&h, &wrong);
        pthread_join(sender, NULL);
        assert_int_equal(wrong, 0);
        assert_int_equal(h.n_failed, 0);
        assert_int_equal(fake->n_peer_copies, way == 1 ? SENDS : 0);
        mem_free(h.from, h.buffer);
        sl_signal_free(h.from, &h.sent);
        sl_signal_free(h.to, &h.taken);
        sl_device_close(&h.from);
        sl_device_close(&h.to);
        assert_false(fake->misused);
        assert_int_equal(fake->live_objects, 0);
        assert_int_equal(fake->live_device_bytes, 0);
        pthread_cond_destroy(&h.changed);
        pthread_mutex_destroy(&h.lock);
    }
}

/* Two GPUs, some memory on each, and a signal that the first raises for the second. */
struct pair {
    struct sl_device *a, *b;
    struct sl_signal *s;
    void *on_a, *on_b;
    size_t bytes;
};

static struct pair open_pair(void **state, size_t bytes) {
    struct pair p = {.bytes = bytes};
    reset(state);
    fake->n_devices = 2;
    assert_int_equal(open_gpu(0, 0, &p.a), SL_OK);
    assert_int_equal(open_gpu(1, 0, &p.b), SL_OK);
    assert_int_equal(mem_alloc(p.a, bytes, &p.on_a), SL_OK);
    assert_int_equal(mem_alloc(p.b, bytes, &p.on_b), SL_OK);
    assert_int_equal(sl_signal_create(p.a, &p.s), SL_OK);
    return p;
}

static void close_pair(struct pair *p) {
    mem_free(p->a, p->on_a);
    mem_free(p->b, p->on_b);
    sl_signal_free(p->a, &p->s);
    sl_device_close(&p->a);
    sl_device_close(&p->b);
    assert_false(fake->misused);
    assert_int_equal(fake->live_objects, 0);
}

/* A fault takes one GPU down. The other goes on, but what it waits for of the first never comes: it
 * does not pass and does not fail, until the host releases it or the failure spreads. */
static void peer_faults(void **state) {
    need_kernels();
    for (int spreads = 0; spreads < 2; spreads++) {
        struct pair p = open_pair(state, 4);
        uint32_t back = 0;
        sl_point point;
        fake->fault_device = 0;
        fake->fault_after_ms = 20;
        fake->kernel_fault = CU_ILLEGAL_ADDRESS;
        fill(p.b, p.on_b, 6); /* of the other: no fault */
        assert_int_equal(mem_download(p.b, &back, p.on_b, 4), SL_OK);
        assert_int_equal(back, 6);
        fill(p.a, p.on_a, 5);
        assert_int_equal(sl_signal_raise(p.a, p.s), SL_OK);
        assert_int_equal(sl_signal_follow(p.b, p.a, p.s), SL_OK);
        fill(p.b, p.on_b, 7);
        assert_int_equal(sl_device_mark(p.b, SL_QUEUE_OPS, &point), SL_OK);
        for (int i = 0; i < 100; i++)
            assert_int_equal(sl_device_passed(p.b, SL_QUEUE_OPS, point), SL_AGAIN);
        assert_int_equal(sl_device_sync(p.a), SL_ERR_DEVICE_LOST);
        for (int i = 0; i < 100; i++)
            assert_int_equal(sl_device_passed(p.b, SL_QUEUE_OPS, point), SL_AGAIN);
        fake->faults_spread = spreads;
        if (!spreads)
            sl_signal_release(p.a, p.s);
        assert_int_equal(sl_device_sync(p.b), spreads ? SL_ERR_DEVICE_LOST : SL_OK);
        if (!spreads) {
            assert_int_equal(mem_download(p.b, &back, p.on_b, 4), SL_OK);
            assert_int_equal(back, 7);
        }
        close_pair(&p);
    }
}

/* What a GPU has been given behind a hold waits for the host, who lets it go, as often as it is
 * held; another GPU goes on meanwhile. A GPU whose driver refuses the wait is given up. */
static void held_for_the_host(void **state) {
    need_kernels();
    struct pair p = open_pair(state, 4);
    for (uint32_t round = 0; round < 3; round++) {
        uint32_t back = 0;
        sl_point point;
        fill(p.a, p.on_a, 5);
        assert_int_equal(sl_device_sync(p.a), SL_OK);
        assert_int_equal(sl_signal_hold(p.a, p.s), SL_OK);
        fill(p.a, p.on_a, 6 + round);
        assert_int_equal(sl_device_mark(p.a, SL_QUEUE_OPS, &point), SL_OK);
        for (int i = 0; i < 100; i++)
            assert_int_equal(sl_device_passed(p.a, SL_QUEUE_OPS, point), SL_AGAIN);
        fill(p.b, p.on_b, 9);
        assert_int_equal(mem_download(p.b, &back, p.on_b, 4), SL_OK);
        assert_int_equal(back, 9);
        assert_int_equal(sl_device_passed(p.a, SL_QUEUE_OPS, point), SL_AGAIN);
        sl_signal_release(p.a, p.s);
        assert_int_equal(sl_device_await(p.a, SL_QUEUE_OPS, point), SL_OK);
        assert_int_equal(mem_download(p.a, &back, p.on_a, 4), SL_OK);
        assert_int_equal(back, 6 + round);
    }
    fake->fail_symbol = "cuStreamWaitValue32_v2";
    fake->fail_result = CU_ILLEGAL_ADDRESS;
    assert_int_equal(sl_signal_hold(p.a, p.s), SL_ERR_DEVICE_LOST);
    fake->fail_symbol = NULL;
    assert_int_equal(sl_device_sync(p.b), SL_OK);
    close_pair(&p);
}

/* Each call that several GPUs need fails once: the one that called is given up, or goes on without
 * where that is possible; the other stays in use. */
static void peers_fail(void **state) {
    need_kernels();
    static const struct {
        const char *symbol;
        int result;
        enum sl_status open, copy, raise, follow;
    } cases[] = {
        {"cuDeviceCanAccessPeer", 1, SL_ERR_INVALID, SL_OK, SL_OK, SL_OK},
        {"cuCtxEnablePeerAccess", SL_CU_PEER_ACCESS_UNSUPPORTED, SL_OK, SL_OK, SL_OK, SL_OK},
        {"cuCtxEnablePeerAccess", SL_CU_TOO_MANY_PEERS, SL_OK, SL_OK, SL_OK, SL_OK},
        {"cuCtxEnablePeerAccess", CU_UNKNOWN, SL_ERR_DEVICE_LOST, SL_ERR_DEVICE_LOST, SL_OK,
         SL_ERR_DEVICE_LOST},
        {"cuMemcpyPeerAsync", SL_CU_OUT_OF_MEMORY, SL_OK, SL_ERR_DEVICE_OOM, SL_OK, SL_OK},
        {"cuMemcpyPeerAsync", CU_ILLEGAL_ADDRESS, SL_OK, SL_ERR_DEVICE_LOST, SL_OK,
         SL_ERR_DEVICE_LOST},
        {"cuLaunchKernel", CU_ILLEGAL_ADDRESS, SL_OK, SL_ERR_DEVICE_LOST, SL_OK,
         SL_ERR_DEVICE_LOST},
        {"cuStreamWriteValue32_v2", CU_ILLEGAL_ADDRESS, SL_OK, SL_OK, SL_ERR_DEVICE_LOST, SL_OK},
        {"cuStreamWaitValue32_v2", CU_ILLEGAL_ADDRESS, SL_OK, SL_OK, SL_OK, SL_ERR_DEVICE_LOST},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pair p = open_pair(state, 64);
        struct sl_signal *none = NULL;
        fake->fail_symbol = cases[i].symbol;
        fake->fail_result = cases[i].result;
        assert_int_equal(sl_device_peer_open(p.b, p.a), cases[i].open);
        assert_int_equal(sl_signal_raise(p.a, p.s), cases[i].raise);
        size_t bytes = strstr(cases[i].symbol, "cuMemcpy") ? 63 : 64; /* whole words: a kernel */
        assert_int_equal(mem_copy_from(p.b, p.on_b, p.a, p.on_a, bytes), cases[i].copy);
        assert_int_equal(sl_signal_follow(p.b, p.a, p.s), cases[i].follow);
        bool a_lost = cases[i].raise != SL_OK;
        bool b_lost = cases[i].copy == SL_ERR_DEVICE_LOST || cases[i].follow != SL_OK;
        assert_int_equal(sl_device_sync(p.a), a_lost ? SL_ERR_DEVICE_LOST : SL_OK);
        assert_int_equal(sl_device_sync(p.b), b_lost ? SL_ERR_DEVICE_LOST : SL_OK);
        fake->fail_symbol = "cuStreamWriteValue32_v2";
        assert_true(sl_signal_create(p.a, &none) != SL_OK);
        assert_null(none);
        fake->fail_symbol = NULL;
        close_pair(&p);
    }
}

/* A driver that refuses to write words has no signals, and no device is lost for it. */
static void no_signals(void **state) {
    static const struct {
        int result;
        enum sl_status status, after;
    } cases[] = {{801, SL_ERR_UNSUPPORTED, SL_OK},
                 {CU_ILLEGAL_ADDRESS, SL_ERR_DEVICE_LOST, SL_ERR_DEVICE_LOST}};
    need_kernels();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sl_device *d;
        struct sl_signal *s = NULL;
        reset(state);
        assert_int_equal(open_gpu(0, 0, &d), SL_OK);
        fake->fail_symbol = "cuStreamWriteValue32_v2";
        fake->fail_result = cases[i].result;
        assert_int_equal(sl_signal_create(d, &s), cases[i].status);
        assert_null(s);
        assert_int_equal(((struct sl_gpu *)d)->staging.words_taken, 0);
        assert_int_equal(sl_device_sync(d), cases[i].after);
        sl_device_close(&d);
        assert_false(fake->misused);
    }
}

/* Signals take nothing of the driver's that opening did not; there are so many and no more, and one
 * that is free again begins anew. */
static void many_signals(void **state) {
    struct sl_device *d;
    struct sl_signal *s[SL_GPU_WORDS], *more = NULL;
    need_kernels();
    reset(state);
    assert_int_equal(open_gpu(0, 0, &d), SL_OK);
    int64_t pinned = fake->live_pinned_bytes;
    for (uint32_t i = 0; i < SL_GPU_WORDS; i++)
        assert_int_equal(sl_signal_create(d, &s[i]), SL_OK);
    for (uint32_t i = 0; i < SL_GPU_WORDS; i++) {
        for (uint32_t k = 0; k <= i; k++)
            assert_int_equal(sl_signal_raise(d, s[i]), SL_OK);
        assert_true(sl_gpu_signal_is_out(s[i]));
    }
    assert_int_equal(sl_signal_create(d, &more), SL_ERR_NOMEM);
    assert_null(more);
    sl_signal_release(d, s[7]);
    for (uint32_t i = 0; i < SL_GPU_WORDS; i++) /* each has a word of its own */
        assert_int_equal(sl_gpu_signal_is_out(s[i]), i != 7);
    assert_int_equal(sl_device_sync(d), SL_OK);
    for (uint32_t i = 0; i < SL_GPU_WORDS; i++)
        assert_false(sl_gpu_signal_is_out(s[i]));
    sl_signal_free(d, &s[5]);
    assert_int_equal(sl_signal_create(d, &s[5]), SL_OK);
    assert_false(sl_gpu_signal_is_out(s[5]));
    assert_int_equal(sl_signal_raise(d, s[5]), SL_OK);
    assert_true(sl_gpu_signal_is_out(s[5]));
    assert_int_equal(fake->live_pinned_bytes, pinned);
    for (uint32_t i = 0; i < SL_GPU_WORDS; i++)
        sl_signal_free(d, &s[i]);
    sl_device_close(&d);
    assert_int_equal(fake->live_pinned_bytes, 0);
    assert_false(fake->misused);
}

/* ---- rows handed on by ops ---- */

enum { SEND_CHANNELS = 2, SEND_WORDS = 6, SEND_STRIDE = 8 };

struct sending {
    struct sl_device *a, *b;
    struct sl_graph *hands, *takes;
    struct sl_op_send send;
    struct sl_op_receive receive;
    uint32_t *seqno_a, *seqno_b, *host;
};

static void *new_memory(struct sl_device *d, size_t bytes) {
    static const char zeros[512];
    void *p;
    assert_true(bytes <= sizeof zeros);
    assert_int_equal(mem_alloc(d, bytes, &p), SL_OK);
    assert_int_equal(mem_upload(d, p, zeros, bytes), SL_OK);
    return p;
}

static const size_t send_bytes = SEND_CHANNELS * SEND_STRIDE * sizeof(float);

static void open_sending(void **state, struct sending *h) {
    void *released, *host = aligned_alloc(4096, 4096);
    reset(state);
    fake->n_devices = 2;
    assert_non_null(host);
    memset(host, 0, 4096);
    assert_int_equal(open_gpu(0, 0, &h->a), SL_OK);
    assert_int_equal(open_gpu(1, 0, &h->b), SL_OK);
    assert_false(sl_device_reaches(h->a, h->b));
    assert_int_equal(sl_device_peer_open(h->a, h->b), SL_OK);
    assert_true(sl_device_reaches(h->a, h->b));
    assert_int_equal(mem_map_host(h->b, host, 4096, &released), SL_OK);
    h->host = host;
    h->seqno_a = new_memory(h->a, 8);
    h->seqno_b = new_memory(h->b, 8);
    h->send = (struct sl_op_send){.x = new_memory(h->a, SEND_WORDS * sizeof(float)),
                                  .to = new_memory(h->b, send_bytes),
                                  .raised = new_memory(h->b, SEND_CHANNELS * sizeof(uint32_t)),
                                  .channel = h->seqno_a,
                                  .seqno = h->seqno_a + 1,
                                  .n = SEND_WORDS,
                                  .stride = SEND_STRIDE};
    h->receive = (struct sl_op_receive){.from = h->send.to,
                                        .x = new_memory(h->b, SEND_WORDS * sizeof(float)),
                                        .raised = h->send.raised,
                                        .released = released,
                                        .channel = h->seqno_b,
                                        .seqno = h->seqno_b + 1,
                                        .n = SEND_WORDS,
                                        .stride = SEND_STRIDE};
    h->a->limits.max_tok = h->b->limits.max_tok = 1;
    assert_int_equal(sl_device_record(h->a), SL_OK);
    assert_int_equal(sl_op_send(h->a, &h->send), SL_OK);
    assert_int_equal(sl_device_recorded(h->a, &h->hands), SL_OK);
    assert_int_equal(sl_device_record(h->b), SL_OK);
    assert_int_equal(sl_op_receive(h->b, &h->receive), SL_OK);
    assert_int_equal(sl_device_recorded(h->b, &h->takes), SL_OK);
}

static void close_sending(struct sending *h) {
    sl_graph_free(h->a, &h->hands);
    sl_graph_free(h->b, &h->takes);
    mem_free(h->a, h->seqno_a);
    mem_free(h->a, (void *)(uintptr_t)h->send.x);
    mem_free(h->b, h->seqno_b);
    mem_free(h->b, h->send.to);
    mem_free(h->b, h->send.raised);
    mem_free(h->b, h->receive.x);
    mem_unmap_host(h->b, h->host);
    free(h->host);
    sl_device_close(&h->a);
    sl_device_close(&h->b);
    assert_false(fake->misused);
    assert_int_equal(fake->live_objects, 0);
}

static void upload_seqno(struct sl_device *d, uint32_t *to, uint32_t channel, uint32_t seqno) {
    uint32_t both[2] = {channel, seqno};
    assert_int_equal(mem_upload(d, to, both, sizeof both), SL_OK);
}

static void still_waits(struct sl_device *d, sl_point point) {
    for (int i = 0; i < 100; i++)
        assert_int_equal(sl_device_passed(d, SL_QUEUE_OPS, point), SL_AGAIN);
}

/* The same two graphs for every turn of every channel; who takes is enqueued first, and waits. */
static void sent_in_graphs(void **state) {
    need_kernels();
    struct sending h;
    open_sending(state, &h);
    for (uint32_t i = 0; i < 6; i++) {
        float row[SEND_WORDS], got[SEND_WORDS];
        sl_point point;
        uint32_t channel = i % SEND_CHANNELS, seqno = 1 + i / SEND_CHANNELS;
        for (uint32_t k = 0; k < SEND_WORDS; k++)
            row[k] = (float)(100 * i + k);
        upload_seqno(h.b, h.seqno_b, channel, seqno);
        assert_int_equal(sl_device_replay(h.b, h.takes), SL_OK);
        assert_int_equal(sl_device_mark(h.b, SL_QUEUE_OPS, &point), SL_OK);
        still_waits(h.b, point);
        upload_seqno(h.a, h.seqno_a, channel, seqno);
        assert_int_equal(mem_upload(h.a, (void *)(uintptr_t)h.send.x, row, sizeof row), SL_OK);
        assert_int_equal(sl_device_replay(h.a, h.hands), SL_OK);
        assert_int_equal(mem_download(h.b, got, h.receive.x, sizeof got), SL_OK);
        assert_memory_equal(got, row, sizeof row);
    }
    close_sending(&h);
}

/* A fault of the one that was to hand: the other waits until the host releases it, and stays in
 * use; or fails with it. */
static void the_sender_faults(void **state) {
    need_kernels();
    for (int spreads = 0; spreads < 2; spreads++) {
        struct sending h;
        sl_point point;
        float got[SEND_WORDS];
        open_sending(state, &h);
        upload_seqno(h.a, h.seqno_a, 1, 5);
        upload_seqno(h.b, h.seqno_b, 1, 5);
        fake->fault_device = 0;
        fake->fault_after_ms = 20;
        fake->kernel_fault = CU_ILLEGAL_ADDRESS;
        assert_int_equal(sl_device_replay(h.a, h.hands), SL_OK);
        assert_int_equal(sl_device_replay(h.b, h.takes), SL_OK);
        assert_int_equal(sl_device_mark(h.b, SL_QUEUE_OPS, &point), SL_OK);
        still_waits(h.b, point);
        assert_int_equal(sl_device_sync(h.a), SL_ERR_DEVICE_LOST);
        __atomic_store_n(&h.host[1], 4, __ATOMIC_RELEASE); /* of a turn before */
        still_waits(h.b, point);
        fake->faults_spread = spreads;
        if (!spreads)
            __atomic_store_n(&h.host[1], 5, __ATOMIC_RELEASE);
        assert_int_equal(sl_device_sync(h.b), spreads ? SL_ERR_DEVICE_LOST : SL_OK);
        if (!spreads)
            assert_int_equal(mem_download(h.b, got, h.receive.x, sizeof got), SL_OK);
        close_sending(&h);
    }
}

/* One GPU twice, and GPUs that reach one another through the host alone. */
static void who_does_not_reach(void **state) {
    need_kernels();
    for (int same = 0; same < 2; same++) {
        struct sl_device *a, *b;
        reset(state);
        fake->n_devices = 2;
        fake->no_peer_access = !same;
        assert_int_equal(open_gpu(0, 0, &a), SL_OK);
        assert_int_equal(open_gpu(same ? 0 : 1, 0, &b), SL_OK);
        assert_int_equal(sl_device_peer_open(a, b), SL_OK);
        assert_false(sl_device_reaches(a, b));
        assert_false(sl_device_reaches(a, a));
        assert_int_equal(sl_device_is_same(a, b), same);
        assert_true(sl_device_is_same(b, b));
        sl_device_close(&a);
        sl_device_close(&b);
    }
}

/* ---- copies by way of another ---- */

struct relay_case {
    bool same, no_link, fails;
    enum sl_status open;
};

struct relay {
    struct sl_device *a, *b;
    atomic_bool busy;
    void *on_a, *moved;
    uint8_t *host, *got;
};

enum { RELAY_BYTES = 6 << 20 };

static void open_relay(void **state, const struct relay_case *is, struct relay *r) {
    void *seen;
    reset(state);
    fake->n_devices = 2;
    fake->no_direct_link = is->no_link;
    assert_int_equal(open_gpu(0, 0, &r->a), SL_OK);
    assert_int_equal(open_gpu(is->same ? 0 : 1, 0, &r->b), SL_OK);
    int64_t before = fake->live_device_bytes;
    assert_int_equal(sl_device_relay_open(r->a, r->b, &r->busy), is->open);
    assert_int_equal(fake->live_device_bytes - before, is->open == SL_OK ? SL_RELAY_BYTES : 0);
    r->host = aligned_alloc(4096, RELAY_BYTES);
    r->got = malloc(RELAY_BYTES);
    assert_true(r->host && r->got);
    assert_int_equal(mem_map_host(r->a, r->host, RELAY_BYTES, &seen), SL_OK);
    assert_int_equal(mem_alloc(r->a, RELAY_BYTES, &r->on_a), SL_OK);
    assert_int_equal(mem_alloc(r->a, RELAY_BYTES, &r->moved), SL_OK);
}

/* Also where one of the two has failed: its memory goes with it. */
static void close_faulted(struct relay *r) {
    sl_device_relay_close(r->a);
    sl_device_relay_close(r->a); /* nothing to do */
    mem_free(r->a, r->on_a);
    mem_free(r->a, r->moved);
    mem_unmap_host(r->a, r->host);
    free(r->host);
    free(r->got);
    sl_device_close(&r->a);
    sl_device_close(&r->b);
    assert_false(fake->misused);
    assert_int_equal(fake->live_objects, 0);
}

static void close_relay(struct relay *r) {
    close_faulted(r);
    assert_int_equal(fake->live_device_bytes, 0);
}

/* Up, behind an op that writes the same place, and on to another place while that is under way;
 * what comes of both. n: of calls that the first is enqueued by. */
static void relay_turn(struct relay *r, uint8_t first, size_t bytes, bool busy, uint64_t n) {
    sl_point point;
    void *freed;
    for (size_t i = 0; i < 199; i++)
        r->host[i] = (uint8_t)(i + first);
    for (size_t n_there = 199; n_there < RELAY_BYTES; n_there *= 2) /* over and over */
        memcpy(r->host + n_there, r->host,
               n_there < RELAY_BYTES - n_there ? n_there : RELAY_BYTES - n_there);
    atomic_store(&r->busy, busy);
    fill(r->a, r->on_a, 7); /* later than the copy, unless that waits */
    assert_int_equal(sl_device_mark(r->a, SL_QUEUE_OPS, &point), SL_OK);
    assert_int_equal(sl_device_after(r->a, SL_QUEUE_UP, SL_QUEUE_OPS, point), SL_OK);
    uint64_t queued = fake->n_queued;
    assert_int_equal(mem_copy(r->a, SL_QUEUE_UP, r->on_a, r->host, bytes), SL_OK);
    assert_int_equal(fake->n_queued - queued, n);
    atomic_store(&r->busy, false);
    assert_int_equal(mem_alloc(r->b, 64, &freed), SL_OK);
    queued = fake->n_queued;
    assert_int_equal(mem_copy(r->a, SL_QUEUE_UP, r->moved, r->on_a, bytes), SL_OK);
    assert_int_equal(fake->n_queued - queued, 1); /* within the GPU: by no other */
    mem_free(r->b, freed); /* what is enqueued on the other GPU runs now, if it may */
    assert_int_equal(sl_device_mark(r->a, SL_QUEUE_UP, &point), SL_OK);
    assert_int_equal(sl_device_after(r->a, SL_QUEUE_OPS, SL_QUEUE_UP, point), SL_OK);
    assert_int_equal(mem_download(r->a, r->got, r->on_a, bytes), SL_OK);
    assert_memory_equal(r->got, r->host, bytes);
    assert_int_equal(mem_download(r->a, r->got, r->moved, bytes), SL_OK);
    assert_memory_equal(r->got, r->host, bytes);
}

/* A large copy of the queue up goes half by way of the other GPU, and is in order as any other:
 * behind what was to come first, before what comes later. Small ones, and those while the other is
 * busy, do not. A relay that fails is left, and the copy is made all the same. */
static void relays(void **state) {
    need_kernels();
    static const struct relay_case cases[] = {{false, false, false, SL_OK},
                                              {false, false, true, SL_OK},
                                              {true, false, false, SL_ERR_UNSUPPORTED},
                                              {false, true, false, SL_ERR_UNSUPPORTED}};
    enum { LARGE = RELAY_BYTES - 4096, SMALL = 256 << 10 };
    /* By two ways: its own part, two raises, two waits, and two pieces there and on. */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct relay r = {0};
        open_relay(state, &cases[i], &r);
        uint64_t n = cases[i].open == SL_OK ? 9 : 1;
        relay_turn(&r, 0, LARGE, false, n);
        relay_turn(&r, 1, SMALL, false, 1);
        relay_turn(&r, 2, LARGE, true, 1);
        if (cases[i].fails) { /* halfway, and it is not tried again */
            fake->fail_symbol = "cuStreamWaitValue32_v2";
            fake->fail_result = CU_ILLEGAL_ADDRESS;
            assert_int_equal(mem_copy(r.a, SL_QUEUE_UP, r.on_a, r.host, LARGE), SL_OK);
            fake->fail_symbol = NULL;
        }
        assert_int_equal(((struct sl_gpu *)r.a)->relay.failed, cases[i].fails);
        relay_turn(&r, 3, LARGE, false, cases[i].fails ? 1 : n);
        assert_int_equal(sl_device_sync(r.b), SL_OK);
        close_relay(&r);
    }
}

/* Each call of such a copy is refused once, for want of memory. Then the copy is made all the same,
 * or nothing of it is under way any more when the device has been waited for: whoever tried may use
 * both places again. */
static void relay_refused(void **state) {
    need_kernels();
    static const struct relay_case direct = {false, false, false, SL_OK};
    enum { LEFT = 0xEE };
    uint32_t n_made = 0, n_refused = 0;
    bool all = false;
    for (uint32_t k = 1; !all; k++) {
        struct relay r = {0};
        void *freed;
        open_relay(state, &direct, &r);
        relay_turn(&r, 0, RELAY_BYTES, false, 9);
        fake->fail_result = SL_CU_OUT_OF_MEMORY;
        fake->fail_at = fake->n_calls + k;
        enum sl_status status = mem_copy(r.a, SL_QUEUE_UP, r.on_a, r.host, RELAY_BYTES);
        all = fake->fail_at > fake->n_calls; /* there are no more */
        fake->fail_at = 0;
        assert_true(status == SL_OK || status == SL_ERR_DEVICE_OOM);
        n_made += status == SL_OK;
        n_refused += status != SL_OK;
        assert_int_equal(sl_device_sync(r.a), SL_OK);
        if (status)
            memset(r.host, LEFT, RELAY_BYTES);
        assert_int_equal(mem_alloc(r.b, 64, &freed), SL_OK);
        mem_free(r.b, freed); /* what is enqueued there runs now, if it may */
        assert_int_equal(mem_download(r.a, r.got, r.on_a, RELAY_BYTES), SL_OK);
        if (status)
            assert_null(memchr(r.got, LEFT, RELAY_BYTES));
        else
            assert_memory_equal(r.got, r.host, RELAY_BYTES);
        assert_int_equal(sl_device_sync(r.b), SL_OK);
        close_relay(&r);
    }
    assert_true(n_made > 4 && n_refused > 3);
}

static void break_gpu(int device) {
    fake_cuda_fault_fn *fn = NULL;
    void *found = dlsym(dlopen(driver_path, RTLD_NOW | RTLD_LOCAL), "fake_cuda_fault");
    memcpy(&fn, &found, sizeof fn);
    assert_non_null(fn);
    fn(device, CU_UNKNOWN, -1);
}

/* How a wait for a device may be made: each tells that what it was for is lost. */
static enum sl_status ask_for_point(struct relay *r, sl_point point) {
    enum sl_status status = SL_AGAIN;
    for (int i = 0; i < 2000 && status == SL_AGAIN; i++) { /* some 2 s */
        status = sl_device_passed(r->a, SL_QUEUE_UP, point);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return status;
}
static enum sl_status await_point(struct relay *r, sl_point point) {
    return sl_device_await(r->a, SL_QUEUE_UP, point);
}
static enum sl_status sync_device(struct relay *r, sl_point point) {
    (void)point;
    return sl_device_sync(r->a);
}
static enum sl_status download_it(struct relay *r, sl_point point) {
    enum sl_status status = sl_device_after(r->a, SL_QUEUE_OPS, SL_QUEUE_UP, point);
    return status ? status : mem_download(r->a, r->got, r->on_a, 4);
}

/* The other GPU fails while a copy by way of it is under way: who waits for that goes on, is told
 * and knows whose failure it was; the device takes no more work. */
static void relay_faults(void **state) {
    need_kernels();
    enum sl_status (*const waits[])(struct relay *, sl_point) = {ask_for_point, await_point,
                                                                 sync_device, download_it};
    static const struct relay_case direct = {false, false, false, SL_OK};
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
        struct relay r = {0};
        sl_point point;
        open_relay(state, &direct, &r);
        relay_turn(&r, 0, RELAY_BYTES, false, 9);
        assert_int_equal(mem_copy(r.a, SL_QUEUE_UP, r.on_a, r.host, RELAY_BYTES), SL_OK);
        assert_int_equal(sl_device_mark(r.a, SL_QUEUE_UP, &point), SL_OK);
        break_gpu(1);
        assert_int_equal(sl_device_sync(r.b), SL_ERR_DEVICE_LOST);
        assert_int_equal(waits[i](&r, point), SL_ERR_DEVICE_LOST);
        /* Whoever asks later, too. */
        assert_int_equal(sl_device_passed(r.a, SL_QUEUE_UP, point), SL_ERR_DEVICE_LOST);
        assert_int_equal(sl_device_await(r.a, SL_QUEUE_UP, point), SL_ERR_DEVICE_LOST);
        assert_true(sl_device_relay_lost(r.a));
        assert_false(((struct sl_gpu *)r.a)->lost);
        uint64_t queued = fake->n_queued;
        assert_int_equal(mem_copy(r.a, SL_QUEUE_OPS, r.on_a, r.host, 4), SL_ERR_DEVICE_LOST);
        assert_int_equal(sl_device_mark(r.a, SL_QUEUE_OPS, &point), SL_ERR_DEVICE_LOST);
        assert_int_equal(fake->n_queued, queued);
        assert_int_equal(sl_device_sync(r.a), SL_ERR_DEVICE_LOST);
        close_faulted(&r);
    }
}

/* Nothing by way of the other GPU is under way when that one fails: no harm is done. */
static void relay_faults_idle(void **state) {
    need_kernels();
    static const struct relay_case direct = {false, false, false, SL_OK};
    struct relay r = {0};
    open_relay(state, &direct, &r);
    relay_turn(&r, 0, RELAY_BYTES, false, 9);
    break_gpu(1);
    memset(r.host, 5, RELAY_BYTES);
    assert_int_equal(mem_copy(r.a, SL_QUEUE_UP, r.on_a, r.host, RELAY_BYTES), SL_OK);
    assert_int_equal(sl_device_sync(r.a), SL_OK);
    assert_int_equal(mem_download(r.a, r.got, r.on_a, RELAY_BYTES), SL_OK);
    assert_memory_equal(r.got, r.host, RELAY_BYTES);
    assert_false(sl_device_relay_lost(r.a));
    close_faulted(&r);
}

/* The GPU that the copy is for fails before it has come to it: what was enqueued on the other one
 * waits for that, and is let go when that is seen. */
static void relayed_faults(void **state) {
    need_kernels();
    static const struct relay_case direct = {false, false, false, SL_OK};
    struct relay r = {0};
    void *on_b;
    open_relay(state, &direct, &r);
    assert_int_equal(mem_alloc(r.b, 4, &on_b), SL_OK);
    assert_int_equal(mem_copy(r.a, SL_QUEUE_UP, r.moved, r.host, 4096), SL_OK);
    assert_int_equal(mem_copy(r.a, SL_QUEUE_UP, r.on_a, r.host, RELAY_BYTES), SL_OK);
    break_gpu(0);
    assert_int_equal(sl_device_sync(r.a), SL_ERR_DEVICE_LOST);
    assert_false(sl_device_relay_lost(r.a)); /* its own */
    assert_int_equal(sl_device_sync(r.b), SL_OK);
    mem_free(r.b, on_b); /* waits for all that is there */
    close_faulted(&r);
}

/* Each GPU's copies go by way of the other, and one fails while such copies are under way that
 * nobody waits for. */
static void both_relay(void **state) {
    need_kernels();
    for (int lost = 0; lost < 2; lost++) {
        static const struct relay_case direct = {false, false, false, SL_OK};
        struct relay r = {0};
        atomic_bool busy = false;
        void *on_b, *seen, *host = aligned_alloc(4096, RELAY_BYTES);
        assert_non_null(host);
        open_relay(state, &direct, &r);
        assert_int_equal(sl_device_relay_open(r.b, r.a, &busy), SL_OK);
        assert_int_equal(mem_map_host(r.b, host, RELAY_BYTES, &seen), SL_OK);
        assert_int_equal(mem_alloc(r.b, RELAY_BYTES, &on_b), SL_OK);
        assert_int_equal(mem_copy(r.a, SL_QUEUE_UP, r.on_a, r.host, RELAY_BYTES), SL_OK);
        assert_int_equal(mem_copy(r.b, SL_QUEUE_UP, on_b, host, RELAY_BYTES), SL_OK);
        break_gpu(lost);
        sl_device_relay_end(r.a);
        sl_device_relay_end(r.b);
        sl_device_relay_close(r.a);
        sl_device_relay_close(r.b);
        mem_free(r.b, on_b);
        mem_unmap_host(r.b, host);
        free(host);
        close_faulted(&r);
    }
}

/* A driver that does not write words. */
static void no_relay(void **state) {
    need_kernels();
    struct relay r = {0};
    reset(state);
    fake->n_devices = 2;
    assert_int_equal(open_gpu(0, 0, &r.a), SL_OK);
    assert_int_equal(open_gpu(1, 0, &r.b), SL_OK);
    int64_t objects = fake->live_objects, bytes = fake->live_device_bytes;
    fake->fail_symbol = "cuStreamWriteValue32_v2";
    fake->fail_result = SL_CU_NOT_SUPPORTED;
    assert_int_equal(sl_device_relay_open(r.a, r.b, &r.busy), SL_ERR_UNSUPPORTED);
    assert_int_equal(fake->live_objects, objects);
    assert_int_equal(fake->live_device_bytes, bytes);
    assert_int_equal(sl_device_sync(r.a), SL_OK);
    assert_int_equal(sl_device_sync(r.b), SL_OK);
    sl_device_close(&r.a);
    sl_device_close(&r.b);
    assert_false(fake->misused);
}

int main(int argc, char **argv) {
    (void)argc;
    if (!find_driver(argv[0]))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(two_gpus, reset),
        cmocka_unit_test_setup(peer_faults, reset),
        cmocka_unit_test_setup(held_for_the_host, reset),
        cmocka_unit_test_setup(peers_fail, reset),
        cmocka_unit_test_setup(no_signals, reset),
        cmocka_unit_test_setup(many_signals, reset),
        cmocka_unit_test_setup(sent_in_graphs, reset),
        cmocka_unit_test_setup(the_sender_faults, reset),
        cmocka_unit_test_setup(who_does_not_reach, reset),
        cmocka_unit_test_setup(relays, reset),
        cmocka_unit_test_setup(relay_refused, reset),
        cmocka_unit_test_setup(relay_faults, reset),
        cmocka_unit_test_setup(relay_faults_idle, reset),
        cmocka_unit_test_setup(relayed_faults, reset),
        cmocka_unit_test_setup(both_relay, reset),
        cmocka_unit_test_setup(no_relay, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
