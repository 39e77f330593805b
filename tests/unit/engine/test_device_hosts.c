/* Plans over several machines: each one's memory is divided over its own stages alone, its speeds
 * are its own, and one machine's plan is what it was. */
#include "tests/unit/engine/fixture.h"

#include "engine/plan/plan_hosts.h"
#include "engine/plan/plan_speed.h"
#include "engine/plan/stage_plan.h"
#include "tests/support/card.h"

#include <math.h>

#define MIB     ((uint64_t)1 << 20)
#define N_LAYER 6u

static struct test_model model;
static struct card_source source;

static int open_all(void **state) {
    (void)state;
    struct sl_synth_config c = tiny_config("qwen3moe");
    c.n_layer = N_LAYER;
    c.n_embd = 256;
    c.n_ff_expert = 512;
    c.n_expert = 64;
    c.n_expert_used = 4;
    open_model(&model, &c);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    close_model(&model);
    return 0;
}

static struct sl_engine_config over(const struct card_config *cards) {
    card_source_init(&source, cards);
    return (struct sl_engine_config){.ctx_tokens = 128,
                                     .parallel = 1,
                                     .queue_max = 1,
                                     .batch_tokens = 8,
                                     .n_threads = 1,
                                     .vram_bytes = 12 * MIB,
                                     .device_source = &source.source};
}

static void put_on(struct sl_engine_config *c, const struct sl_host_config *hosts, uint32_t n,
                   const uint32_t *host_of) {
    c->hosts = hosts;
    c->n_hosts = n;
    memcpy(c->host_of, host_of, source.source.n_devices * sizeof *host_of);
}

static uint64_t rows_of(const struct sl_memory_plan *p, uint32_t host, enum sl_memory_kind kind) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->n_rows; i++)
        sum += p->rows[i].host == host && p->rows[i].kind == kind ? p->rows[i].bytes : 0;
    return sum;
}

/* What holds of every plan over hosts. */
static void check(const struct sl_engine_config *c, const struct sl_stage_plans *plans) {
    const struct sl_memory_plan *w = &plans->whole;
    uint64_t total = 0, budget = 0, least = 0;
    assert_int_equal(w->n_hosts, c->n_hosts);
    for (uint32_t h = 0; h < w->n_hosts; h++) {
        const struct sl_plan_host *host = &w->hosts[h];
        uint64_t ram = 0, pinned = 0, scheduler = 0;
        uint32_t n = 0, n_processes = 0;
        for (uint32_t i = 0; i < plans->n; i++) {
            const struct sl_memory_plan *p = &plans->at[i].plan;
            assert_int_equal(w->stages[i].host, c->host_of[i]);
            assert_int_equal(p->host, c->host_of[i]);
            if (c->host_of[i] != h)
                continue;
            n++;
            ram += p->total_bytes;
            pinned += p->pinned_total_bytes;
            n_processes += p->first_on_host;
            scheduler += p->session_bytes;
            assert_int_equal(p->process_bytes, p->first_on_host ? c->hosts[h].process_bytes : 0);
            assert_int_equal(p->link_bytes, p->first_on_host ? c->hosts[h].link_bytes : 0);
        }
        assert_int_equal(host->n_stages, n);
        assert_int_equal(n_processes, 1);
        assert_int_equal(scheduler != 0, h == c->host_of[0]);
        assert_int_equal(host->ram_budget_bytes, c->hosts[h].ram_bytes);
        assert_int_equal(host->ram_total_bytes, ram);
        assert_int_equal(host->pinned_total_bytes, pinned);
        assert_true(ram <= c->hosts[h].ram_bytes);
        assert_true(!c->hosts[h].pinned_bytes || pinned <= c->hosts[h].pinned_bytes);
        assert_string_equal(host->name, c->hosts[h].name);
        assert_int_equal(rows_of(w, h, SL_MEMORY_HOST) + rows_of(w, h, SL_MEMORY_PINNED), ram);
        assert_int_equal(rows_of(w, h, SL_MEMORY_PINNED), pinned);
        total += ram;
        budget += c->hosts[h].ram_bytes;
        least += host->ram_least_bytes;
    }
    assert_int_equal(w->total_bytes, total);
    assert_int_equal(w->budget_bytes, budget);
    assert_int_equal(w->least_bytes, least);
    assert_null(w->config.hosts);
}

static struct sl_memory_plan plan_of(const struct sl_engine_config *c) {
    struct sl_stage_plans plans;
    assert_ok(sl_stage_plans_open(model.model, c, &plans, &test_err));
    check(c, &plans);
    struct sl_memory_plan w = plans.whole;
    sl_stage_plans_release(&plans);
    assert_int_equal(source.n_open, 0);
    return w;
}

static uint32_t host_slots(const struct sl_memory_plan *p, uint32_t host) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_stages; i++)
        n += p->stages[i].host == host ? p->stages[i].n_slots : 0;
    return n;
}

/* More memory on one machine is more slots there, and changes nothing on the other. */
static void memory_serves_its_own_stages(void **state) {
    (void)state;
    static const uint32_t host_of[] = {0, 1};
    struct sl_host_config hosts[] = {
        {.name = "a", .ram_bytes = 68 * MIB, .process_bytes = 5 * MIB},
        {.name = "b", .ram_bytes = 56 * MIB, .process_bytes = MIB / 2, .link_bytes = MIB / 2}};
    struct sl_engine_config c = over(&(struct card_config){.n_threads = 1, .n_cards = 2});
    c.split = "3,3";
    put_on(&c, hosts, 2, host_of);
    struct sl_memory_plan first = plan_of(&c);
    assert_true(first.stages[0].streaming && first.stages[1].streaming);
    assert_true(first.stages[1].n_slots < first.stages[1].n_experts);
    for (uint32_t h = 0; h < 2; h++) {
        hosts[h].ram_bytes += 4 * MIB;
        struct sl_memory_plan more = plan_of(&c);
        hosts[h].ram_bytes -= 4 * MIB;
        assert_true(host_slots(&more, h) > host_slots(&first, h));
        assert_int_equal(host_slots(&more, 1 - h), host_slots(&first, 1 - h));
        assert_int_equal(more.hosts[1 - h].ram_total_bytes, first.hosts[1 - h].ram_total_bytes);
    }
    /* A machine that has too little is refused by its name, however much the other one has. */
    hosts[0].ram_bytes = 4096 * MIB;
    hosts[1].ram_bytes = first.hosts[1].ram_least_bytes;
    (void)plan_of(&c);
    hosts[1].process_bytes +=
        500 << 10; /* it varies a little: the least that was named still does */
    plan_of(&c);
    hosts[1].process_bytes -= 500 << 10;
    hosts[1].ram_bytes = first.hosts[1].ram_least_bytes - 2 * MIB;
    struct sl_stage_plans plans;
    assert_int_equal(sl_stage_plans_open(model.model, &c, &plans, &test_err), SL_ERR_CONFIG);
    assert_non_null(strstr(test_err.text, "host 'b'"));
    assert_null(strstr(test_err.text, "--ram"));
    assert_true(plans.whole.least_bytes > 0);
    assert_int_equal(source.n_open, 0);
}

/* A machine's stages need not follow one another. */
static void stages_of_a_machine_share_it(void **state) {
    (void)state;
    static const uint32_t host_of[] = {0, 1, 0};
    struct sl_host_config hosts[] = {{.name = "a", .ram_bytes = 68 * MIB, .process_bytes = 5 * MIB},
                                     {.name = "b", .ram_bytes = 512 * MIB}};
    struct sl_engine_config c = over(&(struct card_config){.n_threads = 1, .n_cards = 3});
    c.split = "2,2,2";
    c.vram_bytes = 8 * MIB;
    put_on(&c, hosts, 2, host_of);
    struct sl_memory_plan p = plan_of(&c);
    assert_true(p.stages[0].n_slots < p.stages[0].n_experts);
    assert_true(p.stages[0].n_slots && p.stages[2].n_slots);
    assert_true(p.hosts[1].ram_total_bytes < hosts[1].ram_bytes / 4); /* needs no more */
    hosts[0].pinned_bytes = p.hosts[0].pinned_total_bytes / 2;
    struct sl_memory_plan less = plan_of(&c);
    assert_true(host_slots(&less, 0) < host_slots(&p, 0));
    assert_int_equal(host_slots(&less, 1), host_slots(&p, 1));
    hosts[0].pinned_bytes = 1;
    struct sl_stage_plans plans;
    assert_int_equal(sl_stage_plans_open(model.model, &c, &plans, &test_err), SL_ERR_CONFIG);
    assert_non_null(strstr(test_err.text, "pinned"));
    assert_non_null(strstr(test_err.text, "host a"));
}

/* Budgets, devices and splits at random: what check() asks for, or a refusal that names a machine
 * or sizes. */
static void budgets_are_kept(void **state) {
    (void)state;
    struct sl_rng rng = {20261123};
    uint32_t n_fit = 0, n_refused = 0, n_streamed = 0;
    for (uint32_t round = 0; round < 200; round++) {
        uint32_t n = 2 + sl_rng_below(&rng, 3), host_of[SL_MAX_STAGES];
        uint32_t n_hosts = 2 + sl_rng_below(&rng, n - 1);
        struct sl_host_config hosts[SL_MAX_STAGES] = {0};
        for (uint32_t i = 0; i < n; i++)
            host_of[i] = i < n_hosts ? i : sl_rng_below(&rng, n_hosts);
        for (uint32_t h = 0; h < n_hosts; h++) {
            snprintf(hosts[h].name, sizeof hosts[h].name, "host-%u", h);
            hosts[h].ram_bytes = (30 + sl_rng_below(&rng, 140)) * MIB;
            hosts[h].pinned_bytes = sl_rng_below(&rng, 3) ? 0 : (4 + sl_rng_below(&rng, 20)) * MIB;
            hosts[h].process_bytes = sl_rng_below(&rng, 4) * MIB;
        }
        struct sl_engine_config c = over(&(struct card_config){
            .n_threads = 1, .n_cards = n, .plain = sl_rng_below(&rng, 1u << n)});
        c.vram_bytes = (4 + sl_rng_below(&rng, 30)) * MIB;
        c.cache_ram_bytes = sl_rng_below(&rng, 2) ? SL_CACHE_RAM_AUTO : 0;
        put_on(&c, hosts, n_hosts, host_of);
        struct sl_stage_plans plans;
        enum sl_status status = sl_stage_plans_open(model.model, &c, &plans, &test_err);
        if (status == SL_OK) {
            check(&c, &plans);
            n_streamed += plans.whole.streaming;
            n_fit++;
        } else {
            assert_int_equal(status, SL_ERR_CONFIG);
            n_refused++;
        }
        sl_stage_plans_release(&plans);
        assert_int_equal(source.n_open, 0);
    }
    print_message("%u fit, %u of them with streaming; %u do not\n", n_fit, n_streamed, n_refused);
    assert_true(n_fit > 20 && n_streamed > 10 && n_streamed < n_fit && n_refused > 20);
}

/* Machines that compute in their memory: the larger one gets more layers, and the faster one. */
static void layers_go_by_what_machines_have(void **state) {
    (void)state;
    static const uint32_t host_of[] = {0, 1};
    struct sl_host_config hosts[] = {{.name = "a", .ram_bytes = 128 * MIB},
                                     {.name = "b", .ram_bytes = 128 * MIB}};
    struct sl_engine_config c =
        over(&(struct card_config){.n_threads = 1, .n_cards = 2, .plain = 3});
    put_on(&c, hosts, 2, host_of);
    struct sl_memory_plan alike = plan_of(&c);
    assert_false(alike.streaming);
    hosts[1].ram_bytes = 30 * MIB;
    struct sl_memory_plan small = plan_of(&c);
    assert_true(small.stages[1].n_layer < alike.stages[1].n_layer);
    hosts[1].ram_bytes = 128 * MIB;
    hosts[0].ram_bytes_per_s = 10e9;
    hosts[1].ram_bytes_per_s = 50e9;
    struct sl_memory_plan fast = plan_of(&c);
    assert_true(fast.stages[1].n_layer > alike.stages[1].n_layer);
}

/* ---- speeds ---- */

static bool near(double a, double b) {
    return fabs(a - b) <= 1e-9 * fabs(b);
}

static void each_reads_its_own_disk(void **state) {
    (void)state;
    static const uint32_t host_of[] = {0, 1};
    struct sl_host_config hosts[] = {
        {.name = "a", .ram_bytes = 68 * MIB, .ram_bytes_per_s = 20e9, .disk_bytes_per_s = 4e6},
        {.name = "b", .ram_bytes = 56 * MIB, .ram_bytes_per_s = 80e9, .disk_bytes_per_s = 1e6}};
    struct sl_engine_config c =
        over(&(struct card_config){.n_threads = 1, .n_cards = 2, .plain = 2});
    c.split = "3,3";
    c.experts = SL_EXPERTS_STREAMED;
    put_on(&c, hosts, 2, host_of);
    struct sl_memory_plan p = plan_of(&c);
    struct sl_plan_speed s[SL_MAX_STAGES], whole;
    assert_ok(sl_plan_stage_speeds(model.model, &p, NULL, s, &test_err));
    assert_ok(sl_plan_speed_make(model.model, &p, NULL, &whole, &test_err));
    assert_int_equal(s[0].dense_bytes + s[1].dense_bytes, whole.dense_bytes);
    assert_int_equal(s[0].routed_bytes + s[1].routed_bytes, whole.routed_bytes);
    for (uint32_t i = 0; i < 2; i++) {
        double slots = p.stages[i].n_slots + p.stages[i].n_device_slots;
        double all = p.stages[i].n_experts;
        assert_true(near(s[i].hit_share, slots < all ? slots / all : 1));
    }
    assert_true(s[1].hit_share < 1);

    double several;
    struct sl_ceilings unknown = sl_ceilings_hosts(&p, s, &several); /* the card's speeds */
    assert_true(unknown.causal_tokens_per_s <= 0 && unknown.overlap_tokens_per_s <= 0);
    assert_true(several <= 0);
    p.stages[0].memory_bytes_per_s = 400e9;
    p.stages[0].link_bytes_per_s = 8e9;
    struct sl_ceilings got = sl_ceilings_hosts(&p, s, &several);
    /* By hand. */
    double mem0 =
        ((double)s[0].dense_bytes + s[0].device_share * (double)s[0].routed_bytes) / 400e9;
    double link0 = (1 - s[0].device_share) * (double)s[0].routed_bytes / 8e9;
    double disk0 = (1 - s[0].hit_share) * (double)s[0].routed_bytes / 4e6;
    double mem1 = ((double)s[1].dense_bytes + s[1].hit_share * (double)s[1].routed_bytes) / 80e9;
    double disk1 = (1 - s[1].hit_share) * (double)s[1].routed_bytes / 1e6;
    assert_true(near(got.causal_tokens_per_s, 1 / (mem0 + fmax(link0, disk0) + mem1 + disk1)));
    assert_true(
        near(got.overlap_tokens_per_s, 1 / fmax(fmax(mem0 + mem1, link0), fmax(disk0, disk1))));
    assert_true(near(several, 1 / fmax(fmax(fmax(mem0, mem1), link0), fmax(disk0, disk1))));

    /* The slower disk decides; the other one, which has other experts, does not help it. */
    assert_true(disk1 > disk0);
    p.hosts[0].disk_bytes_per_s *= 100;
    assert_true(
        near(sl_ceilings_hosts(&p, s, &several).overlap_tokens_per_s, got.overlap_tokens_per_s));
    p.hosts[1].disk_bytes_per_s *= 2;
    assert_true(sl_ceilings_hosts(&p, s, &several).overlap_tokens_per_s >
                1.5 * got.overlap_tokens_per_s);
    /* On one machine both stages wait for one disk. */
    p.hosts[0].disk_bytes_per_s = 1e6;
    p.stages[1].host = 0;
    disk0 *= 4;
    double both = sl_ceilings_hosts(&p, s, &several).overlap_tokens_per_s;
    assert_true(near(both, 1 / (disk0 + disk1)));
}

/* ---- the answer, and one machine ---- */

static void hosts_do_not_show_in_the_answer(void **state) {
    (void)state;
    static const uint32_t host_of[] = {0, 1};
    static const struct sl_host_config hosts[] = {{.name = "a", .ram_bytes = 68 * MIB},
                                                  {.name = "b", .ram_bytes = 56 * MIB}};
    struct run *r[2];
    for (uint32_t k = 0; k < 2; k++) {
        struct sl_engine_config c = over(&(struct card_config){.n_threads = 1, .n_cards = 2});
        c.ram_bytes = 512 * MIB;
        if (k)
            put_on(&c, hosts, 2, host_of);
        struct sl_engine *e = new_engine(&model, &c);
        r[k] = new_run(7, 70, model.model->hp.n_vocab, 12);
        submit(e, r[k]);
        wait_run(r[k]);
        sl_engine_destroy(&e);
    }
    assert_int_equal(r[0]->n, 12);
    assert_same_tokens(r[0], r[1]);
    free_run(r[0]);
    free_run(r[1]);
}

static void one_host_is_the_budgets_given(void **state) {
    (void)state;
    static const uint32_t host_of[] = {0, 0};
    for (uint32_t n = 1; n <= 2; n++) {
        struct sl_host_config host = {.ram_bytes = 60 * MIB, .process_bytes = 5 * MIB};
        struct sl_engine_config c = over(&(struct card_config){.n_threads = 1, .n_cards = n});
        struct sl_engine_config plain = c;
        plain.ram_bytes = host.ram_bytes;
        plain.process_bytes = host.process_bytes;
        put_on(&c, &host, 1, host_of);
        struct sl_stage_plans a, b;
        assert_ok(sl_stage_plans_open(model.model, &plain, &a, &test_err));
        sl_stage_plans_release(&a);
        assert_ok(sl_stage_plans_open(model.model, &c, &b, &test_err));
        sl_stage_plans_release(&b);
        const struct sl_memory_plan *p = &a.whole, *q = &b.whole;
        assert_int_equal(p->n_hosts, 1);
        assert_int_equal(p->hosts[0].ram_budget_bytes, 60 * MIB);
        assert_int_equal(p->hosts[0].ram_total_bytes, p->total_bytes);
        assert_int_equal(p->hosts[0].ram_least_bytes, p->least_bytes);
        assert_int_equal(p->total_bytes, q->total_bytes);
        assert_int_equal(p->least_bytes, q->least_bytes);
        assert_int_equal(p->n_slots, q->n_slots);
        assert_int_equal(p->process_bytes, q->process_bytes);
        assert_int_equal(p->n_rows, q->n_rows);
        assert_memory_equal(&p->hosts[0], &q->hosts[0], sizeof p->hosts[0]);
    }
}

static void refused(const struct sl_engine_config *c, const char *why) {
    struct sl_stage_plans plans;
    assert_int_equal(sl_stage_plans_open(model.model, c, &plans, &test_err), SL_ERR_CONFIG);
    if (!strstr(test_err.text, why))
        fail_msg("'%s' does not say '%s'", test_err.text, why);
    assert_int_equal(source.n_open, 0);
}

static void what_cannot_be(void **state) {
    (void)state;
    static const uint32_t both[] = {0, 1}, one[] = {1, 1}, none[] = {0, 2};
    struct sl_host_config hosts[3] = {{.name = "a", .ram_bytes = 512 * MIB},
                                      {.name = "b", .ram_bytes = 512 * MIB},
                                      {.name = "c", .ram_bytes = 512 * MIB}};
    struct sl_engine_config c = over(&(struct card_config){.n_threads = 1, .n_cards = 2});
    put_on(&c, hosts, 2, one);
    refused(&c, "host 'a' has no device");
    put_on(&c, hosts, 2, none);
    refused(&c, "device 1 is of host 2: there are 2");
    put_on(&c, hosts, 3, none);
    refused(&c, "3 hosts for 2 devices");
    put_on(&c, hosts, 2, both);
    hosts[1].ram_bytes = 0;
    refused(&c, "host 'b' has no budget");
    hosts[1].ram_bytes = 512 * MIB;
    hosts[1].disk_bytes_per_s = NAN;
    refused(&c, "host 'b': a speed");
    hosts[1].disk_bytes_per_s = 0;
    memset(hosts[1].name, 'x', sizeof hosts[1].name); /* no end */
    hosts[1].ram_bytes = 1;
    refused(&c, "xxx'");
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_serves_its_own_stages),
        cmocka_unit_test(stages_of_a_machine_share_it),
        cmocka_unit_test(budgets_are_kept),
        cmocka_unit_test(layers_go_by_what_machines_have),
        cmocka_unit_test(each_reads_its_own_disk),
        cmocka_unit_test(hosts_do_not_show_in_the_answer),
        cmocka_unit_test(one_host_is_the_budgets_given),
        cmocka_unit_test(what_cannot_be),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
