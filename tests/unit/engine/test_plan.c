/* The memory plan's arithmetic with streamed experts: the least budget, size classes, what grows
 * with what; and the ceilings that follow from a plan. */
#include "tests/unit/engine/fixture.h"

#include "backends/cpu/cpu.h"
#include "common/dtype.h"
#include "engine/plan/memory_plan.h"
#include "engine/plan/plan_speed.h"

#include <math.h>

#define MIB ((uint64_t)1 << 20)

/* Two size classes: types alternate over the layers. */
static struct sl_synth_config mixed(void) {
    struct sl_synth_config c = tiny_config("qwen3moe");
    c.n_layer = 5;
    c.n_embd = 256;
    c.n_ff_expert = 256;
    c.n_expert = 16;
    c.n_expert_used = 3;
    c.down.n = 2;
    c.down.dtype[0] = SL_DTYPE_Q4_K;
    c.down.dtype[1] = SL_DTYPE_Q8_0;
    return c;
}

static struct sl_engine_config streamed(uint64_t ram_bytes) {
    return (struct sl_engine_config){.ctx_tokens = 128,
                                     .parallel = 2,
                                     .queue_max = 4,
                                     .batch_tokens = 32,
                                     .n_threads = 1,
                                     .ram_bytes = ram_bytes,
                                     .process_bytes = 5 * MIB,
                                     .experts = SL_EXPERTS_STREAMED};
}

static uint64_t least_of(const struct sl_model *model, struct sl_engine_config c) {
    struct sl_memory_plan p;
    c.ram_bytes = 1;
    assert_int_equal(sl_memory_plan_make(model, &c, NULL, &p, &test_err), SL_ERR_CONFIG);
    char named[40];
    snprintf(named, sizeof named, "--ram %lluMiB", (unsigned long long)(p.least_bytes / MIB));
    assert_non_null(strstr(test_err.text, named));
    assert_int_equal(p.least_bytes % MIB, 0);
    return p.least_bytes;
}

static void the_least_works_and_less_does_not(void **state) {
    (void)state;
    struct sl_synth_config sc = mixed();
    struct test_model m;
    open_model(&m, &sc);
    struct sl_memory_plan p;
    static const enum sl_experts_where ways[] = {SL_EXPERTS_AUTO, SL_EXPERTS_RESIDENT,
                                                 SL_EXPERTS_STREAMED};
    for (uint32_t i = 0; i < 3; i++) {
        struct sl_engine_config c = streamed(0);
        c.experts = ways[i];
        c.ram_bytes = least_of(m.model, c);
        assert_ok(sl_memory_plan_make(m.model, &c, NULL, &p, &test_err));
        assert_true(p.total_bytes <= c.ram_bytes);
        assert_int_equal(p.least_bytes, c.ram_bytes);
        c.ram_bytes -= 2 * MIB; /* what varies and the rounding are less */
        assert_int_equal(sl_memory_plan_make(m.model, &c, NULL, &p, &test_err), SL_ERR_CONFIG);
    }
    close_model(&m);
}

static void slots_by_class(void **state) {
    (void)state;
    struct sl_synth_config sc = mixed();
    struct test_model m;
    open_model(&m, &sc);
    struct sl_engine_config c = streamed(0);
    uint64_t least = least_of(m.model, c);
    uint32_t before = 0;
    for (uint64_t more = 0; more <= 32 * MIB; more += MIB) {
        struct sl_memory_plan p;
        c.ram_bytes = least + more;
        assert_ok(sl_memory_plan_make(m.model, &c, NULL, &p, &test_err));
        assert_true(p.streaming);
        assert_int_equal(p.n_class, 2);
        uint64_t sum = 0, rows = 0;
        for (uint32_t k = 0; k < p.n_class; k++) {
            assert_true(p.class_slots[k] >= 3); /* top-k: a token's layer always fits */
            sum += p.class_slots[k];
        }
        for (uint32_t i = 0; i < p.n_rows; i++)
            rows += p.rows[i].bytes;
        assert_int_equal(sum, p.n_slots);
        assert_int_equal(rows, p.total_bytes);
        assert_true(p.total_bytes <= c.ram_bytes);
        assert_true(p.n_slots >= before && p.n_slots <= p.n_experts);
        before = p.n_slots;
    }
    assert_int_equal(before, 5 * 16); /* and never more than there are experts */
    close_model(&m);
}

static void every_part_counts(void **state) {
    (void)state;
    struct sl_synth_config sc = mixed();
    struct test_model m;
    open_model(&m, &sc);
    struct sl_engine_config base = streamed(0), c;
    uint64_t least = least_of(m.model, base);
    c = base, c.process_bytes += 64 * MIB;
    assert_true(least_of(m.model, c) >= least + 64 * MIB);
    c = base, c.queue_max = 60000; /* histories of 128 tokens and the session beside each */
    assert_true(least_of(m.model, c) >= least + 60000ull * 128 * 4);
    c = base, c.n_threads = 200;
    assert_true(least_of(m.model, c) >= least + 199ull * 64 * 1024);
    c = base, c.io = SL_EXPERTS_IO_PREAD;
    assert_true(least_of(m.model, c) >= least);
    c = base, c.ctx_tokens = 64 * 1024;
    assert_true(least_of(m.model, c) > least + 64 * MIB);
    close_model(&m);
}

static void rows_of_the_caller(void **state) {
    (void)state;
    struct sl_synth_config sc = mixed();
    struct test_model m;
    open_model(&m, &sc);
    struct sl_plan_row rows[] = {{"server", "for tests", 3 * MIB, SL_MEMORY_HOST, 0, 0},
                                 {"other", "", MIB, SL_MEMORY_HOST, 0, 0}};
    struct sl_engine_config c = streamed(1024 * MIB);
    c.process_rows = rows;
    c.n_process_rows = 2;
    struct sl_memory_plan p;
    assert_ok(sl_memory_plan_make(m.model, &c, NULL, &p, &test_err));
    uint64_t seen = 0;
    for (uint32_t i = 0; i < p.n_rows; i++)
        if (strcmp(p.rows[i].what, "server") == 0 || strcmp(p.rows[i].what, "other") == 0 ||
            strcmp(p.rows[i].what, "process") == 0)
            seen += p.rows[i].bytes;
    assert_int_equal(seen, 5 * MIB); /* 3 and 1 named, the rest as process */
    assert_null(p.config.process_rows);
    close_model(&m);
}

/* What a device took when it was opened counts against its budget. */
static void what_the_device_holds(void **state) {
    (void)state;
    struct sl_synth_config sc = mixed();
    struct test_model m;
    open_model(&m, &sc);
    struct sl_device *d;
    assert_ok(sl_cpu_open(&(struct sl_cpu_config){.n_threads = 1}, &d, &test_err));
    d->caps.host_visible = false; /* as a card is */
    d->caps.kind = SL_DEVICE_DISCRETE;
    struct sl_engine_config c = streamed(1024 * MIB);
    c.vram_bytes = 1024 * MIB;
    struct sl_memory_plan p, q;
    assert_ok(sl_memory_plan_make(m.model, &c, d, &p, &test_err));
    d->caps.held_bytes = 7 * MIB;
    assert_ok(sl_memory_plan_make(m.model, &c, d, &q, &test_err));
    assert_int_equal(q.vram_total_bytes, p.vram_total_bytes + 7 * MIB);
    assert_int_equal(q.total_bytes, p.total_bytes);
    c.vram_bytes = p.vram_least_bytes; /* without it this would do */
    assert_int_equal(sl_memory_plan_make(m.model, &c, d, &q, &test_err), SL_ERR_CONFIG);
    assert_int_equal(q.vram_least_bytes, p.vram_least_bytes + 7 * MIB);
    sl_device_close(&d);
    close_model(&m);
}

static void a_dense_model(void **state) {
    (void)state;
    struct sl_synth_config sc = tiny_config("qwen3");
    struct test_model m;
    open_model(&m, &sc);
    struct sl_engine_config c = streamed(0); /* asked to stream what there is not */
    c.ram_bytes = least_of(m.model, c);
    struct sl_memory_plan p;
    assert_ok(sl_memory_plan_make(m.model, &c, NULL, &p, &test_err));
    assert_false(p.streaming);
    assert_int_equal(p.n_slots, 0);
    struct sl_plan_speed s;
    assert_ok(sl_plan_speed_make(m.model, &p, NULL, &s, &test_err));
    assert_int_equal(s.routed_bytes, 0);
    assert_true(s.hit_share == 1);
    close_model(&m);
}

static void ceilings(void **state) {
    (void)state;
    /* 1 GB dense, 4 GB routed, half of it on disk; 50 and 2 GB/s: 0.06 s and 1 s. */
    struct sl_ceilings c = sl_ceilings(1000000000, 4000000000, 0.5, 50e9, 2e9);
    assert_true(fabs(c.causal_tokens_per_s - 1 / 1.06) < 1e-9);
    assert_true(fabs(c.overlap_tokens_per_s - 1) < 1e-9);
    c = sl_ceilings(1000000000, 4000000000, 1, 50e9, 0); /* no disk needed */
    assert_true(fabs(c.causal_tokens_per_s - 10) < 1e-9);
    c = sl_ceilings(1000000000, 4000000000, 0.9, 50e9, 0); /* not known */
    assert_true(c.causal_tokens_per_s == 0 && c.overlap_tokens_per_s == 0);
}

static void ceilings_of_a_gpu(void **state) {
    (void)state;
    /* 1 GB dense, 4 GB routed: half on the device, a quarter in host memory, a quarter on disk.
     * 1,000, 50 and 2 GB/s: 0.003 s, 0.04 s over the link, 0.5 s of disk. */
    struct sl_plan_speed s = {.dense_bytes = 1000000000,
                              .routed_bytes = 4000000000,
                              .hit_share = 0.75,
                              .device_share = 0.5};
    struct sl_tier_rates r = {1000e9, 50e9, 2e9};
    struct sl_ceilings c = sl_ceilings_discrete(&s, &r);
    assert_true(fabs(c.causal_tokens_per_s - 1 / 0.503) < 1e-9);
    assert_true(fabs(c.overlap_tokens_per_s - 2) < 1e-9);
    s.hit_share = 1; /* nothing on disk: its speed need not be known */
    r.disk = 0;
    c = sl_ceilings_discrete(&s, &r);
    assert_true(fabs(c.causal_tokens_per_s - 1 / 0.043) < 1e-6);
    assert_true(fabs(c.overlap_tokens_per_s - 25) < 1e-9);
    s.device_share = 1; /* nor the link's */
    r.link = 0;
    assert_true(fabs(sl_ceilings_discrete(&s, &r).causal_tokens_per_s - 200) < 1e-6);
    s.device_share = 0.9;
    assert_true(sl_ceilings_discrete(&s, &r).causal_tokens_per_s == 0); /* not known */
    r.link = 50e9, s.hit_share = 0.95;
    assert_true(sl_ceilings_discrete(&s, &r).overlap_tokens_per_s == 0);
}

static void expected_hits(void **state) {
    (void)state;
    struct sl_synth_config sc = tiny_config("qwen3moe");
    struct test_model m;
    open_model(&m, &sc);
    struct sl_engine_config c = streamed(1024 * MIB);
    struct sl_memory_plan p;
    assert_ok(sl_memory_plan_make(m.model, &c, NULL, &p, &test_err));
    p.class_slots[0] = 9; /* of 3 x 6 */
    struct sl_plan_speed s;
    assert_ok(sl_plan_speed_make(m.model, &p, "/nonexistent/heat", &s, &test_err));
    assert_false(s.from_heat);
    assert_true(fabs(s.hit_share - 0.5) < 1e-9);
    assert_true(fabs(s.resident_share - 0.5) < 1e-9);
    assert_true(s.device_share == 0);
    p.device_class_slots[0] = 6;
    assert_ok(sl_plan_speed_make(m.model, &p, NULL, &s, &test_err));
    assert_true(fabs(s.device_share - 6 / 18.0) < 1e-9);
    assert_true(fabs(s.hit_share - 15 / 18.0) < 1e-9);
    const struct sl_gguf_tensor *const *t = m.model->layers[0].t;
    uint64_t one = (t[SL_L_EXPERTS_GATE]->size_bytes + t[SL_L_EXPERTS_UP]->size_bytes +
                    t[SL_L_EXPERTS_DOWN]->size_bytes) /
                   6; /* an expert */
    assert_int_equal(s.routed_bytes, 3 * 2 * one);
    close_model(&m);
}

/* Pages for prefixes: out of what a resident model leaves, and never at the experts' cost. */
static void prefixes_take_what_is_left(void **state) {
    (void)state;
    struct sl_synth_config sc = mixed();
    struct test_model m;
    open_model(&m, &sc);
    struct sl_memory_plan without, p;
    struct sl_engine_config c = streamed(4096 * MIB);
    c.experts = SL_EXPERTS_RESIDENT;
    assert_ok(sl_memory_plan_make(m.model, &c, NULL, &without, &test_err));
    assert_int_equal(without.cache_pages, 0);
    c.cache_ram_bytes = SL_CACHE_RAM_AUTO;
    assert_ok(sl_memory_plan_make(m.model, &c, NULL, &p, &test_err));
    assert_in_range(p.cache_pages, 1, without.n_pages); /* no more than the sessions' */
    assert_int_equal(p.n_pages, without.n_pages + p.cache_pages);
    assert_true(p.total_bytes > without.total_bytes && p.total_bytes <= p.budget_bytes);
    assert_int_equal(p.least_bytes, without.least_bytes);
    for (uint64_t more = 0; more < 4; more++) { /* where little is left it takes little */
        c.ram_bytes = without.least_bytes + more * MIB / 4;
        assert_ok(sl_memory_plan_make(m.model, &c, NULL, &p, &test_err));
        assert_true(p.total_bytes <= p.budget_bytes);
    }
    c.experts = SL_EXPERTS_STREAMED;
    assert_ok(sl_memory_plan_make(m.model, &c, NULL, &p, &test_err));
    assert_int_equal(p.cache_pages, 0);
    c.cache_ram_bytes = 3 * MIB; /* asked for: counted with what must be there */
    c.ram_bytes = least_of(m.model, c);
    assert_ok(sl_memory_plan_make(m.model, &c, NULL, &p, &test_err));
    assert_true(p.cache_pages > 0 && p.cache_pages * p.page_bytes <= 3 * MIB);
    c.cache_ram_bytes = 8192 * MIB; /* too much: that is said, and no other budget is to blame */
    c.ram_bytes = 4096 * MIB;
    assert_int_equal(sl_memory_plan_make(m.model, &c, NULL, &p, &test_err), SL_ERR_CONFIG);
    double leaves = 0, asked = 0, ram = 0;
    assert_int_equal(sscanf(test_err.text,
                            "a budget of 4096.0 MiB leaves at most %lf MiB for --cache-ram, not "
                            "%lf: lower that, or give --ram %lfMiB",
                            &leaves, &asked, &ram),
                     3);
    assert_true(leaves > 1024 && leaves < 4096 && asked == 8192 &&
                ram == (double)(p.least_bytes / MIB));
    c.ram_bytes = p.least_bytes;
    assert_ok(sl_memory_plan_make(m.model, &c, NULL, &p, &test_err));
    least_of(m.model, c); /* says --ram */
    c.cache_ram_bytes = 3 * MIB;
    uint64_t before = p.total_bytes;
    c.ram_bytes = 4096 * MIB;
    c.experts = SL_EXPERTS_RESIDENT;
    assert_ok(sl_memory_plan_make(m.model, &c, NULL, &p, &test_err));
    before = p.total_bytes;
    c.cache_dir = "/tmp/folder";
    assert_ok(sl_memory_plan_make(m.model, &c, NULL, &p, &test_err));
    assert_true(p.prefix_disk_bytes > 0 && p.total_bytes > before + p.prefix_disk_bytes - MIB);
    close_model(&m);
}

/* Names of devices are checked before anything is opened; one that is not there is named. */
static void devices_by_name(void **state) {
    (void)state;
    static const char *const wrong[] = {"",        "gpu",     "cuda:", "cuda:x", "cuda:-1",
                                        "cuda:64", "cuda:1x", "CUDA",  "cpu:64"};
    struct sl_synth_config sc = mixed();
    struct test_model m;
    open_model(&m, &sc);
    struct sl_memory_plan p;
    char name[64];
    struct sl_engine_config c = streamed(256 * MIB);
    for (uint32_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        c.device = wrong[i];
        assert_int_equal(sl_engine_plan(m.model, &c, &p, name, &test_err), SL_ERR_CONFIG);
        assert_non_null(strstr(test_err.text, "auto, cuda, cuda:N"));
    }
    c.device = "cuda:63"; /* no machine has so many */
    assert_int_equal(sl_engine_plan(m.model, &c, &p, name, &test_err), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(test_err.text, "cuda"));
    c.cpu_isa = "c";
    assert_int_equal(sl_engine_plan(m.model, &c, &p, name, &test_err), SL_ERR_CONFIG);
    c.device = "auto"; /* an instruction set means the CPU */
    assert_ok(sl_engine_plan(m.model, &c, &p, name, &test_err));
    assert_int_equal(strncmp(name, "cpu:", 4), 0);
    assert_false(p.discrete);
    close_model(&m);
}

/* A cache of a block type takes only rows of whole blocks; each kind of layer says which it keeps.
 */
static void rows_of_the_cache(void **state) {
    (void)state;
    struct sl_synth_config heads = tiny_config("qwen3moe"), latents = tiny_config("deepseek2");
    heads.head_dim = 48;
    latents.n_latent = 48;
    const struct {
        const struct sl_synth_config *synth;
        const char *says;
    } cases[] = {{&heads, "the keys and values of this model have 48 and 48"},
                 {&latents, "the latents of this model have 48 and 32"}};
    for (uint32_t i = 0; i < 2; i++) {
        struct test_model m;
        struct sl_memory_plan p;
        open_model(&m, cases[i].synth);
        struct sl_engine_config c = streamed(0);
        c.experts = SL_EXPERTS_RESIDENT;
        c.kv_dtype = SL_DTYPE_Q8_0;
        assert_int_equal(sl_memory_plan_make(m.model, &c, NULL, &p, &test_err), SL_ERR_CONFIG);
        assert_non_null(strstr(test_err.text, cases[i].says));
        c.kv_dtype = SL_DTYPE_F16;
        assert_int_equal(sl_memory_plan_make(m.model, &c, NULL, &p, &test_err), SL_OK);
        close_model(&m);
    }
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_works_and_less_does_not),
        cmocka_unit_test(prefixes_take_what_is_left),
        cmocka_unit_test(slots_by_class),
        cmocka_unit_test(every_part_counts),
        cmocka_unit_test(rows_of_the_caller),
        cmocka_unit_test(what_the_device_holds),
        cmocka_unit_test(a_dense_model),
        cmocka_unit_test(ceilings),
        cmocka_unit_test(ceilings_of_a_gpu),
        cmocka_unit_test(expected_hits),
        cmocka_unit_test(devices_by_name),
        cmocka_unit_test(rows_of_the_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
