/* The table of ops, and what the front does with recorded ones: over the device that does nothing,
 * whose ops and forms a test may take away. */
#include "backends/null/null.h"
#include "backends/recorded.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <string.h>

static struct sl_device *d;
static struct sl_backend_ops ops; /* of the device, for a test to change */
static struct sl_err err;
static char calls[512]; /* that the device got, in order */

static int set_up(void **state) {
    (void)state;
    static const struct sl_device_limits limits = {
        .max_tok = 8, .max_n_in = 512, .max_pairs = 64, .max_n_embd = 512, .max_expert = 16};
    calls[0] = 0;
    if (sl_null_open(&d, &err))
        return -1;
    ops = *d->ops;
    d->ops = &ops;
    d->caps.graphs = true;
    return sl_device_configure(d, &limits, &err) ? -1 : 0;
}

static int tear_down(void **state) {
    (void)state;
    sl_device_close(&d);
    return 0;
}

/* One entry for each op, all told apart, none forgotten. */
static void table(void **state) {
    (void)state;
    uint32_t n = 0;
#define SL_OP(name)                                                                                \
    assert_string_equal(sl_op_name(SL_OP_##name), #name);                                          \
    assert_int_equal(SL_OP_##name, n++);                                                           \
    assert_int_equal(sl_device_has_op(d, SL_OP_##name), ops.name != NULL);                         \
    d->caps.lacks_ops = UINT64_C(1) << SL_OP_##name;                                               \
    assert_false(sl_device_has_op(d, SL_OP_##name));                                               \
    d->caps.lacks_ops = 0;
#include "backends/ops.def"
    assert_int_equal(n, SL_OP_COUNT);
    assert_string_equal(sl_op_name(SL_OP_COUNT), "?");
    assert_false(sl_device_has_op(d, SL_OP_COUNT));
    assert_null(ops.send);
    assert_null(ops.receive);
}

static bool no_wide_heads(const struct sl_device *dev, const struct sl_op_need *need) {
    (void)dev;
    return need->head_dim_k <= 256;
}

/* What a device lacks is said with its name, for what, before and when the op is called. */
static void lacking(void **state) {
    (void)state;
    struct sl_op_need need = {
        .op = SL_OP_attention, .dtype = SL_DTYPE_F16, .head_dim_k = 576, .head_dim_v = 576};
    float x[4] = {0}, y[4];
    const struct sl_op_silu_mul op = {x, x, y, 4};
    assert_int_equal(sl_device_need(d, &need, &err), SL_OK);
    ops.supports = no_wide_heads;
    assert_int_equal(sl_device_need(d, &need, &err), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "device null"));
    assert_non_null(strstr(err.text, "has no op 'attention' for head size 576 and KV of type F16"));
    need.head_dim_v = 512;
    assert_int_equal(sl_device_need(d, &need, &err), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "for head sizes 576 and 512"));
    need = (struct sl_op_need){.op = SL_OP_matmul, .dtype = SL_DTYPE_Q4_K};
    assert_int_equal(sl_device_need(d, &need, &err), SL_OK);
    d->caps.weight_dtype[SL_DTYPE_Q4_K] = false;
    assert_int_equal(sl_device_need(d, &need, &err), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "has no op 'matmul' for weights of type Q4_K"));
    need = (struct sl_op_need){.op = SL_OP_silu_mul, .dtype = SL_DTYPE_COUNT};
    assert_int_equal(sl_op_silu_mul(d, &op), SL_OK);
    ops.silu_mul = NULL;
    assert_int_equal(sl_device_need(d, &need, &err), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "has no op 'silu_mul'"));
    assert_int_equal(sl_op_silu_mul(d, &op), SL_ERR_UNSUPPORTED);
}

#define CALLED(name)                                                                               \
    static enum sl_status called_##name(struct sl_device *dev, const struct sl_op_##name *a) {     \
        (void)dev, (void)a;                                                                        \
        strcat(calls, #name " ");                                                                  \
        return SL_OK;                                                                              \
    }
CALLED(rms_norm)
CALLED(matmul)
CALLED(router)
CALLED(silu_mul)

static enum sl_status called_norm_router(struct sl_device *dev,
                                         const struct sl_fused_norm_router *a) {
    (void)dev;
    assert_true(a->logits->x == a->norm->y && a->router->logits == a->logits->out[0].y);
    strcat(calls, "NORM_ROUTER ");
    return SL_OK;
}

static enum sl_status called_norm_matmul(struct sl_device *dev,
                                         const struct sl_fused_norm_matmul *a) {
    (void)dev;
    assert_true(a->matmul->x == a->norm->y);
    strcat(calls, "NORM_MATMUL ");
    return SL_OK;
}

static bool takes_two_rows(const struct sl_device *dev, const struct sl_fused_norm_router *a) {
    (void)dev;
    return a->router->n_tok <= 2;
}

/* A norm, the router's logits and the router, and one op more, replayed: what is called. */
static const char *recorded(uint32_t rows) {
    static float x[8 * 512], y[8 * 512], logits[8 * 16], weights[8 * 2], w[16 * 512];
    static uint32_t ids[8 * 2];
    const struct sl_op_rms_norm norm = {x, NULL, y, rows, 512, 512, 512, 0};
    const struct sl_op_matmul matmul = {
        y, rows, rows, 1, {{{SL_DTYPE_F32, 512, 16, w}, NULL, logits, false}}};
    const struct sl_op_router router = {.logits = logits,
                                        .ids = ids,
                                        .weights = weights,
                                        .n_tok = rows,
                                        .n_expert = 16,
                                        .k = 2,
                                        .scale = 1};
    struct sl_graph *graph = NULL;
    calls[0] = 0;
    assert_int_equal(sl_device_record(d), SL_OK);
    assert_int_equal(sl_op_rms_norm(d, &norm), SL_OK);
    assert_int_equal(sl_op_matmul(d, &matmul), SL_OK);
    assert_int_equal(sl_op_router(d, &router), SL_OK);
    assert_int_equal(sl_op_silu_mul(d, &(struct sl_op_silu_mul){x, x, y, 8}), SL_OK);
    assert_string_equal(calls, "");
    assert_int_equal(sl_device_recorded(d, &graph), SL_OK);
    assert_int_equal(sl_device_replay(d, graph), SL_OK);
    sl_graph_free(d, &graph);
    return calls;
}

/* A form is called where the device has it, allows it and takes the arguments; the first of the
 * list goes before the others. */
static void forms(void **state) {
    (void)state;
    ops.rms_norm = called_rms_norm;
    ops.matmul = called_matmul;
    ops.router = called_router;
    ops.silu_mul = called_silu_mul;
    assert_string_equal(recorded(1), "rms_norm matmul router silu_mul ");
    d->caps.fused_ops = UINT32_MAX >> (32 - SL_FUSED_COUNT); /* there are no entries */
    assert_string_equal(recorded(1), "rms_norm matmul router silu_mul ");
    ops.fused_norm_matmul = called_norm_matmul;
    assert_string_equal(recorded(1), "NORM_MATMUL router silu_mul ");
    ops.fused_norm_router = called_norm_router;
    assert_string_equal(recorded(3), "NORM_ROUTER silu_mul ");
    ops.takes_norm_router = takes_two_rows;
    assert_string_equal(recorded(2), "NORM_ROUTER silu_mul ");
    assert_string_equal(recorded(3), "NORM_MATMUL router silu_mul ");
    d->caps.fused_ops = 1u << SL_FUSED_qkv;
    assert_string_equal(recorded(2), "rms_norm matmul router silu_mul ");
}

/* More kinds than there is room for are counted together; a log begins anew. */
static void tallies(void **state) {
    (void)state;
    static const char *const kinds[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
    enum { N = sizeof kinds / sizeof *kinds };
    float x[4] = {0}, y[4];
    struct sl_graph *graph = NULL;
    uint32_t n, n_ops = 0;
    sl_device_section(d, "nothing is recorded", true);
    assert_int_equal(sl_device_record(d), SL_OK);
    for (int i = 0; i < 2 * N; i++) {
        sl_device_section(d, kinds[i % N], i < N);
        assert_int_equal(sl_op_silu_mul(d, &(struct sl_op_silu_mul){x, x, y, 4}), SL_OK);
    }
    assert_int_equal(sl_device_recorded(d, &graph), SL_OK);
    sl_graph_free(d, &graph);
    const struct sl_tally *t = sl_device_tallies(d, &n);
    assert_int_equal(n, SL_MAX_TALLIES);
    for (uint32_t i = 0; i < n; i++)
        n_ops += t[i].n_ops;
    assert_int_equal(n_ops, 2 * N);
    assert_string_equal(t[1].kind, "a");
    assert_true(t[1].n == 1 && t[1].n_ops == 2 && t[1].n_calls == 2);
    sl_device_log_recorded(d, "a test");
    sl_device_tallies(d, &n);
    assert_int_equal(n, 0);
    /* What is dropped is not counted. */
    assert_int_equal(sl_device_record(d), SL_OK);
    assert_int_equal(sl_op_silu_mul(d, &(struct sl_op_silu_mul){x, x, y, 4}), SL_OK);
    assert_int_equal(sl_device_recorded(d, NULL), SL_OK);
    t = sl_device_tallies(d, &n);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(t[i].n_ops, 0);
}

/* A copy takes its place among the ops; only those on the queue of the ops are kept. */
static void copies(void **state) {
    (void)state;
    struct sl_buffer *b = NULL;
    struct sl_graph *graph = NULL;
    assert_int_equal(sl_device_alloc(d, 24, &b), SL_OK);
    char *from = b->host, *to = from + 8, *up = from + 16;
    memcpy(b->host, "old\0...\0\0......\0\0......\0", 24);
    assert_int_equal(sl_device_record(d), SL_OK);
    assert_int_equal(sl_device_copy(d, SL_QUEUE_OPS, sl_span(b, 8, 8), sl_span(b, 0, 8)), SL_OK);
    assert_int_equal(sl_device_copy(d, SL_QUEUE_UP, sl_span(b, 16, 8), sl_span(b, 0, 8)), SL_OK);
    assert_string_equal(to, "");
    assert_string_equal(up, "old");
    assert_int_equal(sl_device_recorded(d, &graph), SL_OK);
    strcpy(from, "new");
    assert_int_equal(sl_device_replay(d, graph), SL_OK);
    assert_string_equal(to, "new");
    sl_graph_free(d, &graph);
    sl_device_free(d, &b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(table, set_up, tear_down),
        cmocka_unit_test_setup_teardown(lacking, set_up, tear_down),
        cmocka_unit_test_setup_teardown(forms, set_up, tear_down),
        cmocka_unit_test_setup_teardown(tallies, set_up, tear_down),
        cmocka_unit_test_setup_teardown(copies, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
