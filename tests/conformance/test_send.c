/* sl_op_send, sl_op_receive: on one device, which sends to its own memory before it receives from
 * it; single ops, and a graph whose replays have channels and sequence numbers of their own. A
 * device that executes at once has neither. */
#include "backends/ops/transfer.h"
#include "tests/conformance/conformance.h"
#include "tests/support/device_memory.h"

#include <stdlib.h>
#include <string.h>

#define N_CHANNELS 3u
#define STRIDE     5000u
#define N_TURNS    5u

static const struct sl_device_limits limits = {.max_tok = 1};

struct send_case {
    const float *x; /* [N_TURNS, n] */
    uint32_t n;
    bool graph;
};

/* Turns may wrap. */
static void seqno_of(uint32_t i, uint32_t out[2]) {
    out[0] = i % N_CHANNELS;
    out[1] = UINT32_MAX - 1 + i;
}

struct both {
    struct sl_op_send send;
    struct sl_op_receive receive;
    void *host; /* a page, mapped */
};

static void make_both(struct sl_device *d, uint32_t n, struct both *out) {
    uint32_t raised[N_CHANNELS], first[2] = {0, UINT32_MAX - 4};
    uint32_t *seqno = conf_put(d, first, sizeof first);
    void *released = NULL;
    for (uint32_t i = 0; i < N_CHANNELS; i++)
        raised[i] = UINT32_MAX - 4;
    out->host = aligned_alloc(4096, 4096);
    assert_non_null(out->host);
    memcpy(out->host, raised, sizeof raised);
    conf_ok(mem_map_host(d, out->host, 4096, &released));
    out->send = (struct sl_op_send){.x = conf_put(d, NULL, n * sizeof(float)),
                                    .to = conf_put(d, NULL, N_CHANNELS * STRIDE * sizeof(float)),
                                    .raised = conf_put(d, raised, sizeof raised),
                                    .channel = seqno,
                                    .seqno = seqno + 1,
                                    .n = n,
                                    .stride = STRIDE};
    out->receive = (struct sl_op_receive){.from = out->send.to,
                                          .x = conf_put(d, NULL, n * sizeof(float)),
                                          .raised = out->send.raised,
                                          .released = released,
                                          .channel = seqno,
                                          .seqno = seqno + 1,
                                          .n = n,
                                          .stride = STRIDE,
                                          .alone = n % 2};
}

static void submit(struct sl_device *d, const struct both *b) {
    conf_ok(sl_op_send(d, &b->send));
    conf_ok(sl_op_receive(d, &b->receive));
}

/* out[i]: what was taken at sequence number i. */
static void run(struct sl_device *d, const void *ctx, void *out) {
    const struct send_case *c = ctx;
    struct sl_graph *graph = NULL;
    struct both b;
    make_both(d, c->n, &b);
    bool can = sl_op_send(d, &b.send) != SL_ERR_UNSUPPORTED;
    if (!can) {
        assert_int_equal(sl_op_receive(d, &b.receive), SL_ERR_UNSUPPORTED);
        memcpy(out, c->x, N_TURNS * c->n * sizeof(float));
    }
    if (can && c->graph && d->caps.graphs) {
        conf_ok(sl_device_record(d));
        submit(d, &b);
        conf_ok(sl_device_recorded(d, &graph));
    }
    for (uint32_t i = 0; i < N_TURNS && can; i++) {
        uint32_t seqno[2];
        seqno_of(i, seqno);
        conf_ok(mem_upload(d, (uint32_t *)(uintptr_t)b.send.channel, seqno, sizeof seqno));
        conf_ok(mem_upload(d, (float *)(uintptr_t)b.send.x, c->x + (size_t)i * c->n,
                           c->n * sizeof(float)));
        if (graph)
            conf_ok(sl_device_replay(d, graph));
        else
            submit(d, &b);
        conf_get(d, (float *)out + (size_t)i * c->n, b.receive.x, c->n * sizeof(float));
    }
    sl_graph_free(d, &graph);
    mem_unmap_host(d, b.host);
    free(b.host);
}

static void handed(void) {
    static const uint32_t sizes[] = {1, 63, 1024, 1025, STRIDE};
    for (size_t i = 0; i < 2 * CONF_COUNT(sizes); i++) {
        uint32_t n = sizes[i / 2];
        struct sl_rng rng = {n};
        struct send_case c = {conf_host(N_TURNS * n * sizeof(float)), n, i % 2};
        conf_fill(&rng, CONF_WIDE, (float *)(uintptr_t)c.x, N_TURNS * n);
        float *y = conf_host(N_TURNS * n * sizeof *y);
        conf_case("handed", run, &c, CONF_F32, N_TURNS * n, y);
        assert_memory_equal(y, c.x, N_TURNS * n * sizeof *y);
    }
}

/* Rows that nobody sends, released by the host: what the channel holds is received. */
static void run_released(struct sl_device *d, const void *ctx, void *out) {
    uint32_t n = *(const uint32_t *)ctx, seqno[2] = {2, 7}, behind[N_CHANNELS] = {6, 6, 6};
    float *channels = conf_host(N_CHANNELS * STRIDE * sizeof *channels);
    struct both b;
    for (uint32_t i = 0; i < N_CHANNELS * STRIDE; i++)
        channels[i] = (float)i;
    make_both(d, n, &b);
    memcpy(out, channels + 2 * STRIDE, n * sizeof(float));
    conf_ok(mem_upload(d, (uint32_t *)(uintptr_t)b.receive.channel, seqno, sizeof seqno));
    conf_ok(mem_upload(d, b.send.raised, behind, sizeof behind));
    conf_ok(mem_upload(d, b.send.to, channels, N_CHANNELS * STRIDE * sizeof *channels));
    memcpy(b.host, behind, sizeof behind);
    enum sl_status status = sl_op_receive(d, &b.receive);
    __atomic_store_n((uint32_t *)b.host + 2, seqno[1], __ATOMIC_RELEASE);
    if (status != SL_ERR_UNSUPPORTED) {
        conf_ok(status);
        conf_get(d, out, b.receive.x, n * sizeof(float));
    }
    mem_unmap_host(d, b.host);
    free(b.host);
}

static void released(void) {
    uint32_t n = 300;
    float *y = conf_host(n * sizeof *y);
    conf_case("released", run_released, &n, CONF_F32, n, y);
    for (uint32_t i = 0; i < n; i++)
        assert_true(y[i] == (float)(2 * STRIDE + i));
}

int main(int argc, char **argv) {
    static const struct conf_test tests[] = {{"handed", handed}, {"released", released}};
    return conf_main(argc, argv, "hand", &limits, tests, CONF_COUNT(tests));
}
