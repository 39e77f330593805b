/* A model over several cards: what passes through the stages beside steps (KV pages that are known,
 * heat, the map of experts, recorded routes), and requests that leave while steps are under way. */
#include "tests/support/card.h"
#include "tests/support/hello.h"
#include "tests/unit/engine/fixture.h"

#include "common/clock.h"
#include "common/metrics.h"
#include "engine/engine.h"
#include "engine/schedule/schedule.h"
#include "engine/forward/forward_internal.h"
#include "engine/plan/memory_plan.h"
#include "expert_cache/heat.h"

#include <sys/stat.h>

#define LAYERS  4u
#define EXPERTS 6u
#define N_RUNS  6u

static struct test_model model;
static struct card_source source;

static int setup(void **state) {
    (void)state;
    struct sl_synth_config c = tiny_config("qwen3moe");
    c.n_layer = LAYERS;
    open_model(&model, &c);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    close_model(&model);
    return 0;
}

static struct sl_engine_config over(const char *split, uint32_t n_cards) {
    card_source_init(&source, &(struct card_config){.n_threads = 1, .n_cards = n_cards});
    return (struct sl_engine_config){.n_threads = 1,
                                     .ctx_tokens = 400,
                                     .parallel = 4,
                                     .batch_tokens = 48,
                                     .queue_max = 16,
                                     .ram_bytes = (uint64_t)1 << 34,
                                     .vram_bytes = (uint64_t)1 << 34,
                                     .io = SL_EXPERTS_IO_PREAD,
                                     .experts = SL_EXPERTS_STREAMED,
                                     .device_source = &source.source,
                                     .split = n_cards > 1 ? split : NULL};
}

static struct run *ask(struct sl_engine *e, uint32_t seed, uint32_t n_prompt, uint32_t n_answer) {
    struct run *r = new_run(seed, n_prompt, model.model->hp.n_vocab, n_answer);
    r->req.logprobs = r->req.ignore_eog = true;
    submit(e, r);
    return r;
}

static struct run *answer(struct sl_engine *e, uint32_t seed, uint32_t n_prompt) {
    struct run *r = ask(e, seed, n_prompt, 20);
    wait_run(r);
    assert_int_equal(r->result.status, SL_OK);
    return r;
}

/* Pages that are known are taken, from the devices and from the host, and the answer stays: over
 * two cards, over a card and the CPU, and the other way round. */
static void known_pages(void **state) {
    (void)state;
    struct run *first = NULL;
    for (uint32_t plain = 0; plain < 3; plain++) {
        struct sl_engine_config c = over("1,3", 2);
        source.config.plain = plain;
        c.cache_ram_bytes = 4u << 20;
        c.parallel = 1;
        struct sl_engine *e = new_engine(&model, &c);
        struct run *cold = answer(e, 1, 200), *again = answer(e, 1, 200);
        assert_true(again->result.n_cached >= 128);
        assert_same_tokens(cold, again);
        free_run(again);
        int64_t from_ram = sl_metric(prefix_ram_hit_tokens_total);
        for (uint32_t i = 2; i < 6; i++) /* push it out of the devices' memory */
            free_run(answer(e, i, 300));
        again = answer(e, 1, 200);
        assert_true(sl_metric(prefix_ram_hit_tokens_total) > from_ram);
        assert_same_tokens(cold, again);
        free_run(again);
        if (first) {
            assert_same_tokens(first, cold);
            free_run(cold);
        } else {
            first = cold;
        }
        sl_engine_destroy(&e);
        assert_int_equal(source.stats.used_bytes, 0);
    }
    free_run(first);
}

/* Pages of generated rows are shared only if every device gives the same bits for them as for a
 * prompt's: one that does not decides for all. */
static void one_stage_whose_rows_differ(void **state) {
    (void)state;
    for (uint32_t unlike = 0; unlike < 3; unlike++) {
        struct sl_engine_config c = over("1,3", 2);
        source.config.plain = 2;
        struct sl_engine *e = new_engine(&model, &c);
        if (unlike < 2)
            set_rows_alike(e, unlike, false);
        struct run *first = ask(e, 8, 150, 120);
        wait_run(first);
        assert_int_equal(first->result.status, SL_OK);
        struct run *next = new_run(8, 280, model.model->hp.n_vocab, 4);
        for (uint32_t i = 0; i < first->n; i++)
            next->prompt[150 + i] = first->tokens[i].id;
        submit(e, next);
        wait_run(next);
        assert_int_equal(next->result.n_cached, unlike < 2 ? 128 : 256);
        free_run(next);
        free_run(first);
        sl_engine_destroy(&e);
    }
}

/* Of experts that are resident the map shows each where its own device computes. */
static void map_of_two_kinds(void **state) {
    (void)state;
    for (uint32_t plain = 1; plain < 3; plain++) {
        struct sl_engine_config c = over("1,3", 2);
        uint8_t cells[LAYERS * EXPERTS * 4];
        bool right = false;
        source.config.plain = plain;
        c.experts = SL_EXPERTS_RESIDENT;
        struct sl_engine *e = new_engine(&model, &c);
        const struct sl_expert_map_shape *shape = sl_engine_expert_shape(e);
        assert_true(shape->n_layer * shape->n_expert <= sizeof cells);
        for (uint32_t tries = 0; tries < 4000 && !right; tries++) {
            sl_engine_expert_cells(e, cells);
            right = true;
            for (uint32_t i = 0; i < shape->n_layer * shape->n_expert; i++) {
                uint32_t stage = shape->model_layer[i / shape->n_expert] > 0;
                enum sl_tier want = plain >> stage & 1 ? SL_TIER_HOST : SL_TIER_DEVICE;
                right &= sl_expert_cell_tier(cells[i]) == want;
            }
            if (!right)
                usleep(5000);
        }
        assert_true(right);
        sl_engine_destroy(&e);
    }
}

/* Whoever leaves in the middle of a step changes nothing for the others, and leaves no page. */
static void leaving_in_flight(void **state) {
    (void)state;
    struct sl_engine_config c = over("1,1,2", 3);
    struct sl_engine *e = new_engine(&model, &c);
    struct run *want[N_RUNS];
    for (uint32_t i = 0; i < N_RUNS; i++)
        want[i] = answer(e, 50 + i, 30 + 40 * i);
    for (uint32_t round = 0; round < 8; round++) {
        struct run *run[N_RUNS], *gone[4];
        for (uint32_t i = 0; i < N_RUNS; i++) {
            run[i] = new_run(50 + i, 30 + 40 * i, model.model->hp.n_vocab, 20);
            run[i]->req.logprobs = run[i]->req.ignore_eog = true;
            run[i]->req.no_cache = round % 2;
            submit(e, run[i]);
            if (i < 4)
                gone[i] = ask(e, 90 + 4 * round + i, 60 + 70 * i, 100);
        }
        for (uint32_t i = 0; i < 4; i++) {
            usleep(500 * round + 300 * i);
            sl_engine_cancel(e, &gone[i]->req);
        }
        for (uint32_t i = 0; i < 4; i++) {
            wait_run(gone[i]);
            assert_true(gone[i]->result.reason == SL_FINISH_CANCELED ||
                        gone[i]->result.status == SL_OK);
            free_run(gone[i]);
        }
        for (uint32_t i = 0; i < N_RUNS; i++) {
            wait_run(run[i]);
            assert_same_tokens(want[i], run[i]);
            free_run(run[i]);
        }
    }
    for (uint32_t i = 0; i < N_RUNS; i++)
        free_run(want[i]);
    assert_int_equal(sl_metric(kv_pages_used), 0);
    struct run *late = ask(e, 7, 300, 90); /* destroy comes in the middle of it */
    sl_engine_destroy(&e);
    assert_int_equal(late->n_finish, 1);
    free_run(late);
    assert_int_equal(source.stats.used_bytes, 0);
    assert_int_equal(source.n_open, 0);
}

static void slowly(void) {
    usleep(20000);
}

/* What is learned of a prompt whose slices were under way together: each takes longer than it
 * costs, since it waits for those before it where a stage is slow. With one card it is the same. */
static void what_a_prompt_costs(void **state) {
    (void)state;
    for (uint32_t n_cards = 1; n_cards <= 3; n_cards += 2) {
        struct sl_engine_config c = over("1,2,1", n_cards);
        c.experts = SL_EXPERTS_RESIDENT;
        source.config.late_card = n_cards > 1 ? 2 : 1;
        source.config.come_late = slowly;
        struct sl_engine *e = new_engine(&model, &c);
        free_run(answer(e, 3, 370));
        double cost = sl_pace_row_cost_ns(&e->pace), took = e->pace.prompt_row_ns;
        assert_true(cost > 0 && took > 0);
        if (n_cards > 1)
            assert_true(cost < 0.8 * took);
        sl_engine_destroy(&e);
    }
}

/* The least that each card must have, to a few KiB: not for all experts by far. */
static uint64_t fewest_slots(const struct sl_engine_config *config) {
    static struct sl_memory_plan plan;
    struct sl_engine_config c = *config;
    uint64_t low = 0, high = (uint64_t)64 << 20;
    while (high - low > 4096) {
        c.vram_bytes = low + (high - low) / 2;
        if (sl_engine_plan(model.model, &c, &plan, NULL, &test_err) == SL_OK)
            high = c.vram_bytes;
        else
            low = c.vram_bytes;
    }
    return high;
}

/* What each stage shows of itself adds up to what is counted of all, and to what the cards gave. */
static void stages_are_shown(void **state) {
    (void)state;
    enum { STAGES = 3, SUMS = 7 };
    struct sl_engine_config c = over("1,2,1", STAGES);
    c.no_warm_up = true;
    c.vram_bytes = fewest_slots(&c);
    int64_t before[SUMS + 1], sums[SUMS + 1] = {0};
#define ALL_COUNTED                                                                                \
    {sl_metric(expert_hits_total),     sl_metric(expert_host_hits_total),                          \
     sl_metric(expert_late_total),     sl_metric(expert_misses_total),                             \
     sl_metric(link_up_bytes_total),   sl_metric(link_down_bytes_total),                           \
     sl_metric(link_read_bytes_total), sl_metric(steps_total)}
    memcpy(before, (int64_t[])ALL_COUNTED, sizeof before);
    uint64_t began = sl_now_ns();
    struct sl_engine *e = new_engine(&model, &c);
    struct run *runs[N_RUNS];
    for (uint32_t i = 0; i < N_RUNS; i++)
        runs[i] = ask(e, 20 + i, 30 + 20 * i, 30);
    for (uint32_t i = 0; i < N_RUNS; i++) {
        wait_run(runs[i]);
        assert_int_equal(runs[i]->result.status, SL_OK);
        free_run(runs[i]);
    }
    uint64_t wall = sl_now_ns() - began, bytes = 0;
    struct sl_engine_info info;
    sl_engine_info(e, &info);
    assert_int_equal(info.n_stages, STAGES);
    for (uint32_t i = 0; i < STAGES; i++) {
        const struct sl_stage_metrics *m = sl_engine_stage_metrics(e, i);
        const struct sl_engine_stage *s = &info.stages[i];
        assert_int_equal(m->layers, s->n_layer);
        assert_int_equal(m->memory_budget_bytes, s->vram_budget_bytes);
        assert_int_equal(s->vram_budget_bytes, c.vram_bytes);
        assert_true(m->memory_bytes > 0 && m->memory_bytes <= m->memory_budget_bytes);
        assert_int_equal(m->memory_bytes, source.stats.most_of[i]); /* nothing was given back */
        assert_true(m->device_slots > 0 && m->host_slots > 0);
        assert_int_equal(m->device_slots, s->n_device_slots);
        assert_int_equal(m->host_slots, s->n_slots);
        assert_true(m->busy_ns_total > 0 && (uint64_t)m->busy_ns_total <= wall);
        assert_true(m->stall_ns_total >= 0 && m->stall_ns_total <= m->busy_ns_total);
        assert_true(m->expert_misses_total > 0 && m->link_up_bytes_total > 0);
        const int64_t own[SUMS] = {m->expert_hits_total,    m->expert_host_hits_total,
                                   m->expert_late_total,    m->expert_misses_total,
                                   m->link_up_bytes_total,  m->link_down_bytes_total,
                                   m->link_read_bytes_total};
        for (uint32_t k = 0; k < SUMS; k++)
            sums[k] += own[k];
        assert_int_equal(m->steps_total, sl_metric(steps_total) - before[SUMS]);
        bytes += (uint64_t)m->memory_bytes;
    }
    const int64_t all[SUMS + 1] = ALL_COUNTED;
#undef ALL_COUNTED
    for (uint32_t k = 0; k < SUMS; k++)
        assert_int_equal(sums[k], all[k] - before[k]);
    assert_int_equal(bytes, source.stats.used_bytes);
    assert_true(sums[0] > 100 && sums[1] > 100);
    sl_engine_destroy(&e);
}

/* One heat file, whatever the split; and the map shows the experts of all stages. */
static void heat_and_map(void **state) {
    (void)state;
    char path[64];
    snprintf(path, sizeof path, "/tmp/sluice-heat-%ld", (long)getpid());
    unlink(path);
    struct sl_engine_config c = over("1,3", 2);
    c.heat_file = path;
    struct sl_engine *e = new_engine(&model, &c);
    free_run(answer(e, 3, 100));
    uint8_t cells[LAYERS * EXPERTS];
    uint32_t n_hot[2] = {0};
    for (uint32_t tries = 0; tries < 30000 && !(n_hot[0] && n_hot[1]); tries++, usleep(2000)) {
        sl_engine_expert_cells(e, cells);
        for (uint32_t i = 0; i < LAYERS * EXPERTS; i++)
            n_hot[i >= EXPERTS] += sl_expert_cell_tier(cells[i]) == SL_TIER_DEVICE;
    }
    assert_true(n_hot[0] && n_hot[1]);
    sl_engine_destroy(&e);

    struct sl_heat_config shape = {LAYERS, EXPERTS, 2, NULL, sl_model_fingerprint(model.model)};
    struct sl_heat *heat, *fresh;
    uint8_t image[4096];
    assert_true(sl_heat_image_bytes(&shape) <= sizeof image);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(image, 1, sizeof image, f);
    fclose(f);
    assert_ok(sl_heat_create(&shape, &heat, &test_err));
    assert_ok(sl_heat_create(&shape, &fresh, &test_err));
    assert_ok(sl_heat_import(heat, image, n, &test_err));
    for (uint32_t l = 0; l < LAYERS; l++) { /* every layer has learned */
        const float *p = sl_heat_layer(heat, l), *was = sl_heat_layer(fresh, l);
        assert_true(memcmp(p, was, EXPERTS * sizeof *p) != 0);
    }
    sl_heat_destroy(&heat);
    sl_heat_destroy(&fresh);

    /* Another split begins with it, and one card too. */
    for (uint32_t n_cards = 1; n_cards <= 4; n_cards += 3) {
        c = over("1,1,1,1", n_cards);
        c.heat_file = path;
        e = new_engine(&model, &c);
        for (uint32_t i = 0; i < e->n_stages; i++) {
            const struct sl_heat *own = sl_fetch_heat(sl_stage_fetch(&e->stages[i]));
            uint8_t again[4096];
            if (n_cards == 1) {
                sl_heat_export(own, again);
                assert_memory_equal(again, image, n);
            } else {
                assert_int_equal(sl_heat_config(own)->n_layer, 1);
            }
        }
        sl_engine_destroy(&e);
    }
    unlink(path);
}

static size_t record(const char *split, uint32_t n_cards, char *out, size_t size) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/sluice-routes-%ld", (long)getpid());
    struct sl_engine_config c = over(split, n_cards);
    c.record_routes = path;
    struct sl_engine *e = new_engine(&model, &c);
    free_run(answer(e, 3, 100));
    sl_engine_destroy(&e);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(out, 1, size, f);
    fclose(f);
    unlink(path);
    return n;
}

/* What is recorded is what one card records, to the byte. */
static void recorded_routes(void **state) {
    (void)state;
    static char one[1 << 17], two[1 << 17];
    size_t n = record(NULL, 1, one, sizeof one);
    assert_true(n > 1000 && n < sizeof one);
    assert_int_equal(record("3,1", 2, two, sizeof two), n);
    assert_memory_equal(one, two, n);
}

/* A recording has one number of experts a row. */
static void routes_of_layers_that_differ(void **state) {
    (void)state;
    struct sl_synth_config sc = tiny_config("qwen3moe");
    sc.n_expert_used_odd = 1;
    struct test_model m;
    open_model(&m, &sc);
    struct sl_engine_config c = {.ctx_tokens = 64, .parallel = 1, .record_routes = "/dev/null"};
    struct sl_engine *e;
    assert_int_equal(sl_engine_create(m.model, &c, NULL, &e, &test_err), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(test_err.text, "1 experts in layer 1 and 2 in others"));
    close_model(&m);
}

/* Longer than the scheduler waits, with nothing to do, before it has the heat saved. */
static bool be_slow(struct sl_pipeline_item *p, uint32_t stage, struct sl_stage_call *c) {
    (void)p;
    (void)c;
    if (stage == 0)
        usleep(1400000);
    return false;
}

/* The heat is saved when nothing runs, while a stage that has been at something else for long comes
 * to its end: it says so before it does its part of saving. */
static void heat_behind_a_slow_stage(void **state) {
    (void)state;
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "/tmp/sluice-heat-%ld", (long)getpid());
    unlink(path);
    struct sl_engine_config c = over("1,3", 2);
    c.heat_file = path;
    c.no_warm_up = true;
    struct sl_engine *e = new_engine(&model, &c);
    free_run(answer(e, 3, 20));
    usleep(50000); /* for the stages' last reads */
    struct sl_stage_call calls[2];
    struct sl_pipeline_item slow = {.ask = be_slow, .calls = calls};
    sl_pipeline_send(e->pipeline, &slow);
    sl_pipeline_wait(e->pipeline, &slow);
    for (uint32_t tries = 0; tries < 6000 && stat(path, &st) != 0; tries++)
        usleep(10000);
    assert_int_equal(stat(path, &st), 0);
    free_run(answer(e, 3, 20));
    sl_engine_destroy(&e);
    unlink(path);
}

#ifndef STAGES_BEHIND_BYTES /* what two neighbours do without messages */
/* Sending a generated row is refused when the next card waits for it already: that step's
 * row is lost, nothing waits for the signal any more, and the next answer is what it would be. */
static void refused_hand_over(void **state) {
    (void)state;
    for (uint32_t at = 1; at <= 9; at += 4) {
        struct sl_engine_config c = over("1,2,1", 3);
        source.config.fail_card = 2;
        source.config.refuse_peer = at;
        source.config.no_sends = true; /* rows are copied, not sent */
        struct sl_engine *e = new_engine(&model, &c);
        struct run *r = ask(e, 5, 30, 20);
        wait_run(r);
        assert_int_equal(r->result.status, SL_ERR_DEVICE_OOM);
        assert_int_equal(r->result.n_predicted, at - 1);
        free_run(r);
        if (at == 5) {
            struct run *plain = answer(e, 5, 30);
            source.config.refuse_peer = 0;
            struct run *again = answer(e, 5, 30);
            assert_same_tokens(plain, again);
            free_run(plain);
            free_run(again);
        }
        sl_engine_destroy(&e);
        assert_int_equal(source.stats.used_bytes, 0);
        assert_int_equal(source.stats.n_signals, 0);
    }
}

/* Rows are sent by ops to cards that have one stage alone: on another one the stage that waits
 * could hold up the stage it waits for. */
static void cards_with_two_stages(void **state) {
    (void)state;
    for (uint32_t n_chips = 2; n_chips <= 3; n_chips++) {
        struct sl_engine_config c = over("1,2,1", 3);
        source.config.n_chips = n_chips; /* 2: the last card is the first one again */
        struct sl_engine *e = new_engine(&model, &c);
        assert_ptr_equal(e->stages[0].forward->next, e->stages[1].forward);
        assert_ptr_equal(e->stages[1].forward->next, n_chips == 3 ? e->stages[2].forward : NULL);
        free_run(answer(e, 2, 30));
        sl_engine_destroy(&e);
    }
}

#endif

/* A stage in the middle that keeps no graphs goes on only when it has ended; those around it need
 * not know. */
static void one_without_graphs(void **state) {
    (void)state;
    struct sl_engine_config c = over("1,1,1,1", 4);
    struct sl_engine *e = new_engine(&model, &c);
    struct run *all = answer(e, 8, 60);
    e->stages[1].forward->no_graphs = true; /* nothing is under way */
    struct run *fewer = answer(e, 8, 60);
    assert_same_tokens(all, fewer);
    free_run(all);
    free_run(fewer);
    sl_engine_destroy(&e);
    assert_int_equal(source.n_open, 0);
}

/* Of so many experts a row that what early routers choose for three rows can be told at once, and
 * for four not all: steps of either kind keep their graphs when steps of the other come between. */
static void graphs_by_rows(void **state) {
    (void)state;
    struct sl_synth_config sc = tiny_config("qwen3moe");
    struct test_model many;
    struct sl_memory_plan least;
    sc.n_layer = LAYERS;
    sc.n_expert = 64;
    sc.n_expert_used = 48;
    open_model(&many, &sc);
    struct sl_engine_config c = over(NULL, 1);
    source.config.mailbox = true;
    c.ram_bytes = c.vram_bytes = 1;
    assert_int_equal(sl_engine_plan(many.model, &c, &least, NULL, &test_err), SL_ERR_CONFIG);
    c.ram_bytes = least.least_bytes; /* so that all steps read from disk, and prediction */
    c.vram_bytes = least.vram_least_bytes;
    struct sl_engine *e = new_engine(&many, &c);
    bool kept = false;
    for (uint32_t round = 0; round < 8 && !kept; round++) {
        uint64_t before = source.stats.n_graphs;
        struct run *r[4];
        for (uint32_t i = 0; i < 4; i++) {
            r[i] = new_run(i + 1, 20, many.model->hp.n_vocab, i ? 24 : 12);
            r[i]->req.ignore_eog = true;
            submit(e, r[i]);
        }
        for (uint32_t i = 0; i < 4; i++) {
            wait_run(r[i]);
            assert_int_equal(r[i]->result.status, SL_OK);
            free_run(r[i]);
        }
        const struct sl_forward *f = e->stages[0].forward;
        kept = f->graphs_prediction[0][2] > f->graphs_prediction[0][3] &&
               source.stats.n_graphs == before;
    }
    assert_true(kept);
    sl_engine_destroy(&e);
    close_model(&many);
}

#ifndef STAGES_BEHIND_BYTES /* a step goes on early between neighbours alone */
static struct sl_engine *two_stages;
static atomic_bool is_late;
static _Atomic uint32_t n_late; /* steps whose end the second saw first */
static int64_t busy_of_prompt;  /* the second's */

/* The first stage's thread comes to a step's end when the second has counted its own part. */
static void after_the_second(void) {
    const struct sl_stage_metrics *first = sl_engine_stage_metrics(two_stages, 0),
                                  *second = sl_engine_stage_metrics(two_stages, 1);
    bool counted = false;
    for (uint32_t ms = 0; atomic_load(&is_late) && !counted && ms < 20000; ms++) {
        usleep(1000);
        counted = second->steps_total > first->steps_total;
    }
    n_late += counted;
}

static void late_from_now(struct run *r) {
    if (r->n == 1)
        busy_of_prompt = sl_engine_stage_metrics(two_stages, 1)->busy_ns_total;
    atomic_store(&is_late, true);
}

/* One sequence is at one stage at a time, also where the next one waits for it by itself and has
 * ended before the thread of the first has seen that its own part has: all is counted there. */
static void busy_one_after_another(void **state) {
    (void)state;
    struct sl_engine_config c = over("3,1", 2);
    c.experts = SL_EXPERTS_RESIDENT;
    source.config.late_card = 1;
    source.config.come_late = after_the_second;
    struct sl_engine *e = two_stages = new_engine(&model, &c);
    struct run *r = new_run(4, 30, model.model->hp.n_vocab, 20);
    r->req.ignore_eog = true;
    r->on_token = late_from_now;
    uint64_t began = sl_now_ns();
    submit(e, r);
    wait_run(r);
    int64_t wall = (int64_t)(sl_now_ns() - began);
    atomic_store(&is_late, false);
    assert_int_equal(r->result.status, SL_OK);
    assert_int_equal(n_late, 20 - 1);
    int64_t first = sl_engine_stage_metrics(e, 0)->busy_ns_total,
            second = sl_engine_stage_metrics(e, 1)->busy_ns_total;
    assert_true(busy_of_prompt > 0);
    assert_int_equal(second, busy_of_prompt);
    assert_true(first > 0 && first + second <= wall);
    free_run(r);
    sl_engine_destroy(&e);
}

#endif

/* What a step that failed had asked for is counted with it, not with the next one. */
static void failed_steps_are_counted(void **state) {
    (void)state;
    uint64_t n_failed = 0, n_missed = 0;
    for (uint32_t at = 1; at < 40; at += 6) {
        struct sl_engine_config c = over(NULL, 1);
        c.no_warm_up = true;
        c.vram_bytes = fewest_slots(&c);
        source.config.refuse = at;
        struct sl_engine *e = new_engine(&model, &c);
        struct run *r = ask(e, 5, 30, 3);
        wait_run(r);
        n_failed += r->result.status == SL_ERR_DEVICE_OOM;
        const struct sl_fetch_stats *found = sl_fetch_stats(sl_stage_fetch(&e->stages[0]));
        const struct sl_stage_metrics *shown = sl_engine_stage_metrics(e, 0);
        n_missed += r->result.status != SL_OK ? found->misses : 0;
        assert_int_equal(shown->expert_misses_total, found->misses);
        assert_int_equal(shown->expert_hits_total + shown->expert_host_hits_total, found->hits);
        free_run(r);
        sl_engine_destroy(&e);
    }
    assert_true(n_failed >= 5 && n_missed > 0);
}

int main(void) {
    alarm(240); /* what hangs is a failure */
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_pages),
        cmocka_unit_test(one_stage_whose_rows_differ),
        cmocka_unit_test(map_of_two_kinds),
        cmocka_unit_test(leaving_in_flight),
        cmocka_unit_test(heat_and_map),
        cmocka_unit_test(heat_behind_a_slow_stage),
        cmocka_unit_test(recorded_routes),
        cmocka_unit_test(routes_of_layers_that_differ),
        cmocka_unit_test(stages_are_shown),
        cmocka_unit_test(what_a_prompt_costs),
#ifndef STAGES_BEHIND_BYTES
        cmocka_unit_test(refused_hand_over),
        cmocka_unit_test(cards_with_two_stages),
#endif
        cmocka_unit_test(one_without_graphs),
        cmocka_unit_test(graphs_by_rows),
#ifndef STAGES_BEHIND_BYTES
        cmocka_unit_test(busy_one_after_another),
#endif
        cmocka_unit_test(failed_steps_are_counted),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
