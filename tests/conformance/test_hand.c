/* sl_op_hand, sl_op_take: on one device, which hands to its own memory before it takes from there;
 * single ops, and a graph whose replays have lanes and turns of their own. A device that executes
 * at once has neither. */
#include "tests/conformance/conformance.h"
#include "tests/support/device_memory.h"

#include <stdlib.h>
#include <string.h>

#define N_LANES 3u
#define STRIDE  5000u
#define N_TURNS 5u

static const struct sl_device_limits limits = {.max_tok = 1};

struct hand_case {
    const float *x; /* [N_TURNS, n] */
    uint32_t n;
    bool graph;
};

/* Turns may wrap. */
static void turn_of(uint32_t i, uint32_t out[2]) {
    out[0] = i % N_LANES;
    out[1] = UINT32_MAX - 1 + i;
}

struct both {
    struct sl_op_hand hand;
    struct sl_op_take take;
    void *host; /* a page, mapped */
};

static void make_both(struct sl_device *d, uint32_t n, struct both *out) {
    uint32_t raised[N_LANES], first[2] = {0, UINT32_MAX - 4};
    uint32_t *turn = conf_put(d, first, sizeof first);
    void *released = NULL;
    for (uint32_t i = 0; i < N_LANES; i++)
        raised[i] = UINT32_MAX - 4;
    out->host = aligned_alloc(4096, 4096);
    assert_non_null(out->host);
    memcpy(out->host, raised, sizeof raised);
    conf_ok(mem_map_host(d, out->host, 4096, &released));
    out->hand = (struct sl_op_hand){.x = conf_put(d, NULL, n * sizeof(float)),
                                    .to = conf_put(d, NULL, N_LANES * STRIDE * sizeof(float)),
                                    .raised = conf_put(d, raised, sizeof raised),
                                    .lane = turn,
                                    .turn = turn + 1,
                                    .n = n,
                                    .stride = STRIDE};
    out->take = (struct sl_op_take){.from = out->hand.to,
                                    .x = conf_put(d, NULL, n * sizeof(float)),
                                    .raised = out->hand.raised,
                                    .released = released,
                                    .lane = turn,
                                    .turn = turn + 1,
                                    .n = n,
                                    .stride = STRIDE,
                                    .alone = n % 2};
}

static void submit(struct sl_device *d, const struct both *b) {
    conf_ok(sl_op_hand(d, &b->hand));
    conf_ok(sl_op_take(d, &b->take));
}

/* out[i]: what was taken at turn i. */
static void run(struct sl_device *d, const void *ctx, void *out) {
    const struct hand_case *c = ctx;
    struct sl_graph *graph = NULL;
    struct both b;
    make_both(d, c->n, &b);
    bool can = sl_op_hand(d, &b.hand) != SL_ERR_UNSUPPORTED;
    if (!can) {
        assert_int_equal(sl_op_take(d, &b.take), SL_ERR_UNSUPPORTED);
        memcpy(out, c->x, N_TURNS * c->n * sizeof(float));
    }
    if (can && c->graph && d->caps.graphs) {
        conf_ok(sl_device_record(d));
        submit(d, &b);
        conf_ok(sl_device_recorded(d, &graph));
    }
    for (uint32_t i = 0; i < N_TURNS && can; i++) {
        uint32_t turn[2];
        turn_of(i, turn);
        conf_ok(mem_upload(d, (uint32_t *)(uintptr_t)b.hand.lane, turn, sizeof turn));
        conf_ok(mem_upload(d, (float *)(uintptr_t)b.hand.x, c->x + (size_t)i * c->n,
                           c->n * sizeof(float)));
        if (graph)
            conf_ok(sl_device_replay(d, graph));
        else
            submit(d, &b);
        conf_get(d, (float *)out + (size_t)i * c->n, b.take.x, c->n * sizeof(float));
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
        struct hand_case c = {conf_host(N_TURNS * n * sizeof(float)), n, i % 2};
        conf_fill(&rng, CONF_WIDE, (float *)(uintptr_t)c.x, N_TURNS * n);
        float *y = conf_host(N_TURNS * n * sizeof *y);
        conf_case("handed", run, &c, CONF_F32, N_TURNS * n, y);
        assert_memory_equal(y, c.x, N_TURNS * n * sizeof *y);
    }
}

/* Rows that nobody hands, released by the host: what lies in the lane is taken. */
static void run_released(struct sl_device *d, const void *ctx, void *out) {
    uint32_t n = *(const uint32_t *)ctx, turn[2] = {2, 7}, behind[N_LANES] = {6, 6, 6};
    float *lanes = conf_host(N_LANES * STRIDE * sizeof *lanes);
    struct both b;
    for (uint32_t i = 0; i < N_LANES * STRIDE; i++)
        lanes[i] = (float)i;
    make_both(d, n, &b);
    memcpy(out, lanes + 2 * STRIDE, n * sizeof(float));
    conf_ok(mem_upload(d, (uint32_t *)(uintptr_t)b.take.lane, turn, sizeof turn));
    conf_ok(mem_upload(d, b.hand.raised, behind, sizeof behind));
    conf_ok(mem_upload(d, b.hand.to, lanes, N_LANES * STRIDE * sizeof *lanes));
    memcpy(b.host, behind, sizeof behind);
    enum sl_status status = sl_op_take(d, &b.take);
    __atomic_store_n((uint32_t *)b.host + 2, turn[1], __ATOMIC_RELEASE);
    if (status != SL_ERR_UNSUPPORTED) {
        conf_ok(status);
        conf_get(d, out, b.take.x, n * sizeof(float));
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
