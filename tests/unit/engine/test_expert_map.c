/* Where the experts are, as people are shown it: against the caches themselves, and of an engine
 * that runs while somebody looks. */
#include "tests/unit/engine/fixture.h"

#include "engine/engine.h"
#include "engine/schedule/schedule.h"

#include <math.h>

#define LAYERS  3u
#define EXPERTS 6u

static struct sl_expert_id id_of(uint32_t layer, uint32_t expert) {
    return (struct sl_expert_id){(uint16_t)layer, (uint16_t)expert};
}

static struct sl_cache *new_cache(struct sl_heat *heat, uint32_t n_slots) {
    struct sl_cache *c;
    assert_ok(sl_cache_create(
        &(struct sl_cache_config){.heat = heat, .n_class = 1, .class_slots = &n_slots}, &c,
        &test_err));
    return c;
}

/* Begins to read an expert, and ends when it is asked to. */
static void fill(struct sl_cache *c, struct sl_expert_id id, bool end) {
    struct sl_lease lease;
    struct sl_fill fills;
    uint32_t n_fills;
    assert_ok(sl_cache_acquire(c, &id, 1, 1, &lease, &fills, &n_fills));
    assert_int_equal(n_fills, 1);
    if (end)
        sl_cache_filled(c, lease, SL_OK, 2);
    sl_cache_release(c, &lease, 1);
}

static void shows_tiers_and_heat(void **state) {
    (void)state;
    struct sl_synth_config sc = tiny_config("qwen3moe");
    struct test_model m;
    open_model(&m, &sc);
    struct sl_heat *heat;
    assert_ok(
        sl_heat_create(&(struct sl_heat_config){LAYERS, EXPERTS, 2, NULL, 1}, &heat, &test_err));
    struct sl_cache *host = new_cache(heat, 8), *device = new_cache(heat, 4);
    fill(host, id_of(0, 1), true);
    fill(host, id_of(2, 5), true);
    fill(host, id_of(1, 3), false); /* still on its way: on disk, to all who look */
    fill(device, id_of(2, 5), true);
    fill(device, id_of(1, 0), true);
    static const uint16_t used[] = {4, 1};
    for (uint32_t i = 0; i < 50; i++)
        sl_heat_route(heat, 1, used, 1, 2, SL_PHASE_DECODE);

    struct sl_expert_map *map;
    assert_ok(sl_expert_map_create(m.model, SL_TIER_DEVICE, false, 1, &map, &test_err));
    const struct sl_expert_map_shape *shape = sl_expert_map_shape(map);
    assert_int_equal(shape->n_layer, LAYERS);
    assert_int_equal(shape->n_expert, EXPERTS);
    assert_int_equal(shape->k, 2);
    assert_int_equal(shape->model_layer[2], 2);
    assert_true(shape->has_heat);
    const struct sl_expert_map_tier tiers[] = {{SL_TIER_HOST, host}, {SL_TIER_DEVICE, device}};
    static const struct sl_expert_map_part all = {0, 0, LAYERS};
    sl_expert_map_look(LAYERS, EXPERTS, heat, tiers, 2, sl_expert_map_ask(map, &all));
    sl_expert_map_publish(map, &all, 77);
    assert_false(sl_expert_map_asked(map, 0));

    uint8_t cells[LAYERS * EXPERTS];
    assert_int_equal(sl_expert_map_read(map, cells), 77);
    assert_true(sl_expert_map_asked(map, 0));
    for (uint32_t l = 0; l < LAYERS; l++)
        for (uint32_t x = 0; x < EXPERTS; x++) {
            enum sl_tier want = SL_TIER_DISK;
            if (l == 0 && x == 1)
                want = SL_TIER_HOST;
            if ((l == 2 && x == 5) || (l == 1 && x == 0))
                want = SL_TIER_DEVICE;
            uint8_t cell = cells[l * EXPERTS + x];
            assert_int_equal(sl_expert_cell_tier(cell), want);
            double p = sl_heat_probability(heat, id_of(l, x));
            double shown = sl_expert_cell_heat(cell) / 63.0;
            assert_true(shown * 63 <= 63 && (shown - sqrt(p)) * (shown - sqrt(p)) < 1e-4);
        }
    assert_true(sl_expert_cell_heat(cells[EXPERTS + 4]) >
                sl_expert_cell_heat(cells[EXPERTS + 2]) + 20);

    sl_expert_map_destroy(&map);
    sl_cache_destroy(&host);
    sl_cache_destroy(&device);
    sl_heat_destroy(&heat);
    close_model(&m);
}

/* Layers of 6, 2 and 4 experts: each as long as it is, and nothing of experts that there are not.
 */
static void shows_layers_that_differ(void **state) {
    (void)state;
    struct sl_synth_config sc = tiny_config("qwen3moe");
    sc.n_each = LAYERS;
    for (uint32_t l = 0; l < LAYERS; l++)
        sc.n_expert_each[l] = (const uint32_t[LAYERS]){6, 2, 4}[l];
    sc.n_expert = 6;
    struct test_model m;
    open_model(&m, &sc);
    static const struct sl_heat_layer layers[] = {{6, 2}, {2, 2}, {4, 2}};
    struct sl_heat *heat;
    assert_ok(sl_heat_create(
        &(struct sl_heat_config){
            .n_layer = LAYERS, .n_expert = EXPERTS, .k = 2, .layers = layers, .fingerprint = 1},
        &heat, &test_err));
    struct sl_cache *host = new_cache(heat, 8);
    fill(host, id_of(1, 1), true);
    fill(host, id_of(2, 3), true);
    struct sl_expert_map *map;
    assert_ok(sl_expert_map_create(m.model, SL_TIER_HOST, false, 1, &map, &test_err));
    const struct sl_expert_map_shape *shape = sl_expert_map_shape(map);
    assert_int_equal(shape->n_expert, EXPERTS);
    const struct sl_expert_map_tier tier = {SL_TIER_HOST, host};
    static const struct sl_expert_map_part all = {0, 0, LAYERS};
    sl_expert_map_look(LAYERS, EXPERTS, heat, &tier, 1, sl_expert_map_ask(map, &all));
    sl_expert_map_publish(map, &all, 5);
    uint8_t cells[LAYERS * EXPERTS];
    sl_expert_map_read(map, cells);
    for (uint32_t l = 0; l < LAYERS; l++) {
        assert_int_equal(shape->layer_n_expert[l], layers[l].n_expert);
        for (uint32_t x = 0; x < EXPERTS; x++) {
            bool there = (l == 1 && x == 1) || (l == 2 && x == 3);
            assert_int_equal(sl_expert_cell_tier(cells[l * EXPERTS + x]),
                             there ? SL_TIER_HOST : SL_TIER_DISK);
            assert_true((sl_expert_cell_heat(cells[l * EXPERTS + x]) > 0) ==
                        (x < layers[l].n_expert));
        }
    }
    sl_expert_map_destroy(&map);
    sl_cache_destroy(&host);
    sl_heat_destroy(&heat);
    close_model(&m);
}

/* Asks, and waits until the engine has looked. */
static void look(struct sl_engine *e, uint8_t *cells) {
    uint64_t start = sl_now_ns();
    while (sl_engine_expert_cells(e, cells) < start) {
        assert_true(sl_now_ns() - start < 20000000000u);
        usleep(500);
    }
}

static uint32_t count(const uint8_t *cells, uint32_t n, enum sl_tier tier) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += sl_expert_cell_tier(cells[i]) == tier;
    return sum;
}

static struct sl_engine *small_engine(const struct test_model *m, enum sl_experts_where experts) {
    struct sl_engine_config c = {.n_threads = 2,
                                 .ctx_tokens = 512,
                                 .parallel = 2,
                                 .batch_tokens = 64,
                                 .experts = experts,
                                 .no_warm_up = true};
    return new_engine(m, &c);
}

static void generate(struct sl_engine *e, uint32_t seed, uint32_t n) {
    struct run *r = new_run(seed, 12, 512, n);
    submit(e, r);
    wait_run(r);
    assert_int_equal(r->result.status, SL_OK);
    free_run(r);
}

static void shows_an_engine(void **state) {
    (void)state;
    struct sl_synth_config sc = tiny_config("qwen3moe");
    struct test_model m;
    open_model(&m, &sc);
    struct sl_engine *e = small_engine(&m, SL_EXPERTS_STREAMED);
    uint8_t cells[LAYERS * EXPERTS];
    look(e, cells);
    assert_int_equal(count(cells, sizeof cells, SL_TIER_DISK), sizeof cells);
    generate(e, 1, 40);
    look(e, cells);
    assert_int_equal(sl_engine_expert_shape(e)->computing, SL_TIER_HOST);
    struct sl_cache_usage u; /* the engine is idle and will look no more: nothing else runs */
    while (sl_expert_map_asked(e->map, 0))
        usleep(500);
    pthread_mutex_lock(&e->lock);
    sl_cache_usage(sl_fetch_cache(sl_store_fetch(e->stages->store)), &u);
    pthread_mutex_unlock(&e->lock);
    assert_true(u.ready > 0);
    assert_int_equal(count(cells, sizeof cells, SL_TIER_HOST), u.ready);
    assert_int_equal(count(cells, sizeof cells, SL_TIER_DEVICE), 0);
    uint32_t hottest = 0;
    for (uint32_t i = 0; i < sizeof cells; i++)
        hottest = sl_expert_cell_heat(cells[i]) > hottest ? sl_expert_cell_heat(cells[i]) : hottest;
    assert_true(hottest > 20 && hottest <= 63);
    sl_engine_destroy(&e);
    close_model(&m);
}

static void looks_only_when_asked(void **state) {
    (void)state;
    struct sl_synth_config sc = tiny_config("qwen3moe");
    struct test_model m;
    open_model(&m, &sc);
    struct sl_engine *e = small_engine(&m, SL_EXPERTS_STREAMED);
    uint8_t cells[LAYERS * EXPERTS];
    look(e, cells);
    while (sl_expert_map_asked(e->map, 0))
        usleep(500);
    uint64_t start = sl_now_ns();
    generate(e, 1, 20);
    assert_true(sl_engine_expert_cells(e, cells) < start);
    sl_engine_destroy(&e);
    close_model(&m);
}

static void shows_what_is_resident(void **state) {
    (void)state;
    struct test_model m;
    struct sl_synth_config sc = tiny_config("qwen3moe");
    open_model(&m, &sc);
    struct sl_engine *e = small_engine(&m, SL_EXPERTS_RESIDENT);
    uint8_t cells[LAYERS * EXPERTS];
    generate(e, 1, 4);
    look(e, cells);
    assert_int_equal(count(cells, sizeof cells, SL_TIER_HOST), sizeof cells);
    assert_false(sl_engine_expert_shape(e)->has_heat);
    sl_engine_destroy(&e);
    close_model(&m);

    sc = tiny_config("qwen3"); /* no experts at all */
    open_model(&m, &sc);
    e = small_engine(&m, SL_EXPERTS_AUTO);
    look(e, cells);
    assert_int_equal(sl_engine_expert_shape(e)->n_layer, 0);
    sl_engine_destroy(&e);
    close_model(&m);
}

struct watcher {
    struct sl_engine *engine;
    atomic_bool stop;
    uint32_t n;
};

static void *watch(void *arg) {
    struct watcher *w = arg;
    uint8_t cells[LAYERS * EXPERTS];
    for (; !atomic_load(&w->stop); w->n++) {
        sl_engine_expert_cells(w->engine, cells);
        if (count(cells, sizeof cells, SL_TIER_DEVICE))
            abort();
        usleep(200);
    }
    return NULL;
}

/* The same answer, watched or not; two who watch do not disturb each other. */
static void watching_changes_nothing(void **state) {
    (void)state;
    struct sl_synth_config sc = tiny_config("qwen3moe");
    struct test_model m;
    open_model(&m, &sc);
    struct run *r[2];
    for (uint32_t i = 0; i < 2; i++) {
        struct sl_engine *e = small_engine(&m, SL_EXPERTS_STREAMED);
        struct watcher w[2] = {{.engine = e}, {.engine = e}};
        pthread_t threads[2];
        for (uint32_t t = 0; i && t < 2; t++)
            assert_int_equal(pthread_create(&threads[t], NULL, watch, &w[t]), 0);
        r[i] = new_run(5, 100, 512, 60);
        submit(e, r[i]);
        wait_run(r[i]);
        for (uint32_t t = 0; i && t < 2; t++) {
            atomic_store(&w[t].stop, true);
            pthread_join(threads[t], NULL);
            assert_true(w[t].n > 0);
        }
        sl_engine_destroy(&e);
    }
    assert_same_tokens(r[0], r[1]);
    free_run(r[0]);
    free_run(r[1]);
    close_model(&m);
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shows_tiers_and_heat),   cmocka_unit_test(shows_layers_that_differ),
        cmocka_unit_test(shows_an_engine),        cmocka_unit_test(looks_only_when_asked),
        cmocka_unit_test(shows_what_is_resident), cmocka_unit_test(watching_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
