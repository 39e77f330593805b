/* Where the plan puts tables that steps read by row, what it says of that, and that its budgets are
 * exact. */
#include "tests/unit/engine/fixture.h"

#include "backends/cpu/cpu.h"
#include "engine/plan/memory_plan.h"
#include "engine/tables/table_store.h"

#define AMPLE_BYTES ((uint64_t)1 << 50)
#define MIB         ((uint64_t)1 << 20)

static struct sl_device *device;

static int open_cpu(void **state) {
    (void)state;
    return sl_cpu_open(&(struct sl_cpu_config){.n_threads = 1, .isa = SL_CPU_BEST}, &device,
                       &test_err) == SL_OK
               ? 0
               : -1;
}

static int close_cpu(void **state) {
    (void)state;
    sl_device_close(&device);
    return 0;
}

/* Layers' embeddings of 68 MiB, with experts or without. */
static struct sl_synth_config with_table(bool experts) {
    struct sl_synth_config c = tiny_config("gemma4");
    c.n_layer = 4;
    c.n_embd_layer = 1024;
    c.n_vocab = 16384;
    c.embd = SL_DTYPE_Q8_0;
    c.tied = true;
    c.n_ff_expert = 2048;
    if (!experts)
        c.n_expert = c.n_expert_used = 0;
    return c;
}

static struct sl_engine_config config(uint64_t ram_bytes, enum sl_tables_where where) {
    return (struct sl_engine_config){.n_threads = 1,
                                     .ctx_tokens = 256,
                                     .parallel = 2,
                                     .batch_tokens = 32,
                                     .ram_bytes = ram_bytes,
                                     .tables = where};
}

static enum sl_status plan(const struct test_model *m, const struct sl_engine_config *c,
                           struct sl_memory_plan *out) {
    return sl_memory_plan_make(m->model, c, device, out, &test_err);
}

static const struct sl_plan_row *row_of(const struct sl_memory_plan *p, const char *what) {
    for (uint32_t i = 0; i < p->n_rows; i++)
        if (strcmp(p->rows[i].what, what) == 0)
            return &p->rows[i];
    return NULL;
}

static void check_sums(const struct sl_memory_plan *p) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->n_rows; i++)
        sum += p->rows[i].bytes;
    assert_int_equal(sum, p->total_bytes);
    assert_true(p->total_bytes <= p->budget_bytes);
}

static void resident_where_all_fits(void **state) {
    (void)state;
    struct test_model m;
    struct sl_synth_config sc = with_table(false);
    open_model(&m, &sc);
    uint64_t table = m.model->global[SL_G_LAYER_EMBD]->size_bytes;
    struct sl_engine_config c = config(AMPLE_BYTES, SL_TABLES_AUTO);
    struct sl_memory_plan p, whole;
    assert_ok(plan(&m, &c, &whole));
    check_sums(&whole);
    assert_int_equal(whole.streamed_tables, 0);
    assert_int_equal(row_of(&whole, "tables")->bytes, table);
    assert_non_null(strstr(row_of(&whole, "tables")->detail, "all fits"));
    assert_null(row_of(&whole, "streamed tables"));
    /* The least budget is that of the streamed table, and does. */
    assert_true(whole.least_bytes + table / 2 < whole.total_bytes);
    for (uint64_t more = 0; more < 90 * MIB; more += 8 * MIB) {
        c = config(whole.least_bytes + more, SL_TABLES_AUTO);
        assert_ok(plan(&m, &c, &p));
        check_sums(&p);
        assert_int_equal(p.least_bytes, whole.least_bytes);
        if (!p.streamed_tables)
            continue; /* it fits again */
        assert_int_equal(p.streamed_tables, 1u << SL_TABLE_LAYERS);
        assert_non_null(strstr(row_of(&p, "streamed tables")->detail, "do not fit"));
        assert_null(row_of(&p, "tables"));
        assert_true(p.table_cache_bytes <= table && p.table_bytes > p.table_cache_bytes);
    }
    assert_int_equal(p.streamed_tables, 0);
    c = config(whole.least_bytes - MIB, SL_TABLES_AUTO);
    assert_int_equal(plan(&m, &c, &p), SL_ERR_CONFIG);
    assert_int_equal(p.least_bytes, whole.least_bytes);
    c = config(whole.least_bytes, SL_TABLES_RESIDENT);
    assert_int_equal(plan(&m, &c, &p), SL_ERR_CONFIG);
    assert_true(p.least_bytes > whole.least_bytes + table / 2);
    close_model(&m);
}

/* Where experts are streamed, their slots get what the table would take. */
static void experts_come_first(void **state) {
    (void)state;
    struct test_model m;
    struct sl_synth_config sc = with_table(true);
    open_model(&m, &sc);
    struct sl_engine_config c = config(AMPLE_BYTES, SL_TABLES_RESIDENT);
    struct sl_memory_plan p;
    c.experts = SL_EXPERTS_STREAMED;
    assert_ok(plan(&m, &c, &p));
    assert_int_equal(p.streamed_tables, 0);
    uint64_t least = p.least_bytes;
    c.ram_bytes = least;
    assert_ok(plan(&m, &c, &p));
    assert_int_equal(p.streamed_tables, 0);
    uint32_t few = p.n_slots;
    c.tables = SL_TABLES_AUTO;
    assert_ok(plan(&m, &c, &p));
    check_sums(&p);
    assert_true(p.streaming);
    assert_int_equal(p.streamed_tables, 1u << SL_TABLE_LAYERS);
    assert_true(p.n_slots > few);
    assert_non_null(strstr(row_of(&p, "streamed tables")->detail, "experts get"));
    close_model(&m);
}

/* As large as it was given; the tokens' embeddings too, where they are not the output. */
static void as_it_was_asked_for(void **state) {
    (void)state;
    struct test_model m;
    struct sl_synth_config sc = with_table(false);
    sc.tied = false;
    open_model(&m, &sc);
    struct sl_engine_config c = config(AMPLE_BYTES, SL_TABLES_STREAMED);
    struct sl_memory_plan none, p;
    uint32_t both = 0;
    for (uint32_t i = 0; i < SL_TABLES; i++)
        both += sl_table_row_bytes(m.model, (enum sl_table_id)i);
    c.table_cache_bytes = 1;
    assert_ok(plan(&m, &c, &none));
    assert_int_equal(none.streamed_tables, 1u << SL_TABLE_LAYERS | 1u << SL_TABLE_TOKENS);
    assert_int_equal(none.table_rows, 0);
    c.table_cache_bytes = 1000 * (uint64_t)both + 17;
    assert_ok(plan(&m, &c, &p));
    check_sums(&p);
    assert_int_equal(p.table_rows, 1000);
    assert_true(p.table_bytes > none.table_bytes + 1000 * (uint64_t)both);
    assert_true(p.table_bytes < none.table_bytes + 1100 * (uint64_t)both);
    close_model(&m);
    sc.tied = true;
    open_model(&m, &sc);
    assert_ok(plan(&m, &c, &p));
    assert_int_equal(p.streamed_tables, 1u << SL_TABLE_LAYERS);
    close_model(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resident_where_all_fits),
        cmocka_unit_test(experts_come_first),
        cmocka_unit_test(as_it_was_asked_for),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
