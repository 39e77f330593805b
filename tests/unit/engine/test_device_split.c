/* Dividing layers by what earlier runs' routing says of them: a pure function of it that nothing in
 * a heat file can upset, and plans that go by it where it matters and nowhere else. */
#include "tests/unit/engine/fixture.h"

#include "engine/heat/heat_store.h"
#include "engine/plan/stage_plan.h"
#include "engine/plan/stage_split.h"
#include "tests/support/card.h"

#include <float.h>
#include <math.h>

#define MIB       ((uint64_t)1 << 20)
#define MOST      48u
#define N_EXPERT  64u
#define N_CLASSES 3u

/* ---- the part of the routing that has room ---- */

struct routing {
    struct sl_split_routing r;
    const float *uses[MOST];
    uint32_t n_expert[MOST];
    uint8_t size_class[MOST];
    double bytes[MOST];
    float of[MOST][N_EXPERT];
};

static void init_routing(struct routing *t, uint32_t n_layer) {
    memset(t, 0, sizeof *t);
    t->r = (struct sl_split_routing){.n_layer = n_layer,
                                     .n_expert = t->n_expert,
                                     .uses = t->uses,
                                     .size_class = t->size_class,
                                     .routed_token_bytes = t->bytes};
    for (uint32_t i = 0; i < n_layer; i++) {
        t->uses[i] = t->of[i];
        t->n_expert[i] = N_EXPERT;
        t->bytes[i] = 1000;
    }
}

/* Every expert half as used as the one before it, down to a floor; `steep` 0: all alike. */
static void skew(struct routing *t, uint32_t layer, double steep) {
    for (uint32_t e = 0; e < N_EXPERT; e++)
        t->of[layer][e] = (float)(0.5 * pow(2, -steep * e) + 1e-4 * (steep > 0));
}

static struct sl_split_heat *heat_of(const struct routing *t) {
    struct sl_split_heat *heat = NULL;
    assert_int_equal(sl_split_heat_create(&t->r, &heat), SL_OK);
    return heat;
}

struct expert {
    double use, bytes;
};

static int most_used_first(const void *a, const void *b) {
    double x = ((const struct expert *)a)->use, y = ((const struct expert *)b)->use;
    return (x < y) - (x > y);
}

/* The same by sorting. */
static double sorted_hits(const struct routing *t, uint32_t from, uint32_t to, double share) {
    static struct expert all[MOST * N_EXPERT];
    double hit = 0, sum = 0;
    for (uint32_t c = 0; c < N_CLASSES; c++) {
        size_t n = 0;
        for (uint32_t i = from; i < to; i++) {
            double uses = 0;
            for (uint32_t e = 0; e < N_EXPERT; e++)
                uses += (double)t->of[i][e];
            for (uint32_t e = 0; e < N_EXPERT && t->size_class[i] == c; e++) {
                double part = (double)t->of[i][e] / uses;
                all[n++] = (struct expert){part, part * t->bytes[i]};
            }
        }
        qsort(all, n, sizeof *all, most_used_first);
        double left = share * (double)n;
        for (size_t k = 0; k < n; k++) {
            hit += all[k].bytes * (left < 0 ? 0 : left < 1 ? left : 1);
            sum += all[k].bytes;
            left -= 1;
        }
    }
    return hit / sum;
}

static void hits_are_those_of_the_most_used(void **state) {
    (void)state;
    struct sl_rng rng = {20261122};
    static struct routing t;
    double worst = 0;
    for (uint32_t round = 0; round < 40; round++) {
        init_routing(&t, 2 + sl_rng_below(&rng, MOST - 2));
        for (uint32_t i = 0; i < t.r.n_layer; i++) {
            skew(&t, i, sl_rng_below(&rng, 100) * 0.01);
            t.size_class[i] = (uint8_t)sl_rng_below(&rng, N_CLASSES);
            t.bytes[i] = 100 * (1 + t.size_class[i]);
        }
        struct sl_split_heat *heat = heat_of(&t);
        assert_non_null(heat);
        for (uint32_t k = 0; k < 50; k++) {
            uint32_t from = sl_rng_below(&rng, t.r.n_layer);
            uint32_t to = from + 1 + sl_rng_below(&rng, t.r.n_layer - from);
            double share = sl_rng_below(&rng, 1001) * 0.001;
            double got = sl_split_heat_hits(heat, from, to, share);
            double off = fabs(got - sorted_hits(&t, from, to, share));
            worst = off > worst ? off : worst;
            assert_true(sl_split_heat_hits(heat, from, to, 0) <= 1e-9);
            assert_true(sl_split_heat_hits(heat, from, to, 1) >= 1 - 1e-9);
        }
        sl_split_heat_destroy(&heat);
    }
    print_message("off by %.4f at most\n", worst);
    assert_true(worst < 0.01); /* levels are a factor of 1.19 wide */
}

/* Layers whose experts are alike, whatever the unit, and files of zeros say nothing. */
static void alike_is_as_unknown(void **state) {
    (void)state;
    static struct routing t;
    init_routing(&t, 7);
    assert_null(heat_of(&t)); /* cold: all are zero */
    for (uint32_t i = 0; i < 7; i++)
        for (uint32_t e = 0; e < N_EXPERT; e++)
            t.of[i][e] = 0.1f / (float)(i + 3);
    assert_null(heat_of(&t));
    memset(t.uses, 0, sizeof t.uses);
    assert_null(heat_of(&t));
    /* One layer of seven is known, and another has no experts: the others are alike. */
    init_routing(&t, 7);
    skew(&t, 3, 0.5);
    t.uses[5] = NULL;
    t.bytes[5] = 0;
    struct sl_split_heat *heat = heat_of(&t);
    assert_non_null(heat);
    assert_true(fabs(sl_split_heat_hits(heat, 0, 3, 0.3) - 0.3) < 1e-9);
    assert_true(sl_split_heat_hits(heat, 3, 4, 0.3) > 0.9);
    assert_true(fabs(sl_split_heat_hits(heat, 5, 6, 0.3) - 0.3) < 1e-9);
    sl_split_heat_destroy(&heat);
}

/* Whatever the numbers are: a part between 0 and 1 that grows with the room. */
static void nothing_upsets_it(void **state) {
    (void)state;
    static const float odd[] = {NAN,    -NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, FLT_MIN,
                                1e-44f, 0,    -0.0f,    -1,        1,       3e38f,    1e-30f};
    const uint32_t n_odd = sizeof odd / sizeof *odd;
    struct sl_rng rng = {5};
    static struct routing t;
    for (uint32_t round = 0; round < 300; round++) {
        init_routing(&t, 1 + sl_rng_below(&rng, 6));
        for (uint32_t i = 0; i < t.r.n_layer; i++) {
            uint32_t only = sl_rng_below(&rng, 3) ? n_odd : sl_rng_below(&rng, n_odd);
            t.size_class[i] = (uint8_t)sl_rng_below(&rng, SL_SLAB_CLASSES);
            for (uint32_t e = 0; e < N_EXPERT; e++)
                t.of[i][e] = odd[only < n_odd ? only : sl_rng_below(&rng, n_odd)];
        }
        struct sl_split_heat *heat = heat_of(&t);
        for (uint32_t from = 0; heat && from < t.r.n_layer; from++)
            for (uint32_t to = from + 1; to <= t.r.n_layer; to++) {
                double before = 0;
                for (uint32_t share = 0; share <= 20; share++) {
                    double part = sl_split_heat_hits(heat, from, to, share * 0.05);
                    assert_true(part >= before - 1e-9 && part <= 1);
                    before = part;
                }
            }
        sl_split_heat_destroy(&heat);
    }
}

/* ---- what is chosen ---- */

/* 48 equal layers over two equal cards, with room for a quarter of the experts. */
static struct sl_split chosen(const struct sl_split_heat *heat, uint32_t n_layer, uint32_t n) {
    struct sl_split_layer layers[MOST];
    struct sl_split_card cards[SL_MAX_STAGES] = {{0}};
    struct sl_split_model m = {
        .n_layer = n_layer, .layers = layers, .least_slot_bytes = 1000, .heat = heat};
    for (uint32_t i = 0; i < n_layer; i++)
        layers[i] = (struct sl_split_layer){2000, 10000, 2000, 1000, false};
    for (uint32_t i = 0; i < n; i++)
        cards[i] = (struct sl_split_card){n_layer * (2000 + 2500) / n + 1000, 0, 0};
    struct sl_split split = {0};
    uint64_t least;
    assert_int_equal(sl_split_choose(&m, cards, n, false, &split, &least), SL_OK);
    assert_true(sl_split_lacks_room(&m, cards, &split));
    for (uint32_t i = 0; i < n; i++)
        cards[i].budget_bytes = n_layer * 12000;
    assert_false(sl_split_lacks_room(&m, cards, &split));
    return split;
}

static void layers_that_miss_more_are_fewer(void **state) {
    (void)state;
    static struct routing t;
    assert_int_equal(chosen(NULL, 48, 2).n_layer[0], 24);
    for (uint32_t first = 0; first < 2; first++) {
        init_routing(&t, 48);
        for (uint32_t i = 0; i < 48; i++)
            skew(&t, i, i / 24 == first ? 0.05 : 0);
        struct sl_split_heat *heat = heat_of(&t);
        struct sl_split s = chosen(heat, 48, 2);
        print_message("the %s half is skewed: %u + %u\n", first ? "second" : "first", s.n_layer[0],
                      s.n_layer[1]);
        assert_true(s.n_layer[first] >= 26 && s.n_layer[first] <= 40);
        assert_int_equal(s.n_layer[0] + s.n_layer[1], 48);
        sl_split_heat_destroy(&heat);
    }
    /* Skewed alike everywhere: as without, over any number of cards. */
    init_routing(&t, 48);
    for (uint32_t i = 0; i < 48; i++)
        skew(&t, i, 0.05);
    struct sl_split_heat *heat = heat_of(&t);
    for (uint32_t n = 2; n <= 8; n *= 2) {
        struct sl_split s = chosen(heat, 48, n);
        for (uint32_t i = 0; i < n; i++)
            assert_int_equal(s.n_layer[i], 48 / n);
    }
    sl_split_heat_destroy(&heat);
}

/* ---- plans ---- */

#define N_LAYER 8u

static struct card_source source;
static struct test_model model;
static char path[64];

static int open_all(void **state) {
    (void)state;
    struct sl_synth_config c = tiny_config("qwen3moe");
    c.n_layer = N_LAYER;
    c.n_embd = 256;
    c.n_ff_expert = 256;
    c.n_expert = N_EXPERT;
    c.n_expert_used = 4;
    snprintf(path, sizeof path, "/tmp/sluice-split-%ld", (long)getpid());
    unlink(path);
    open_model(&model, &c);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    unlink(path);
    close_model(&model);
    return 0;
}

/* As a run would have left it: the first half of the layers uses few experts, the other all alike;
 * or the other way round. */
static void write_heat(bool second, uint64_t fingerprint) {
    struct sl_heat_config shape = {N_LAYER, N_EXPERT, 4, NULL, fingerprint};
    struct sl_heat *heat;
    struct sl_heat_store *store;
    unlink(path);
    assert_ok(sl_heat_create(&shape, &heat, &test_err));
    assert_ok(sl_heat_store_open(path, heat, &store, &test_err));
    for (uint32_t tick = 0; tick < 2048; tick++)
        for (uint32_t l = 0; l < N_LAYER; l++) {
            bool skewed = (l >= N_LAYER / 2) == second;
            uint16_t first = (uint16_t)(tick * 4 % (skewed ? 8 : N_EXPERT));
            uint16_t ids[4] = {first, (uint16_t)(first + 1), (uint16_t)(first + 2),
                               (uint16_t)(first + 3)};
            sl_heat_route(heat, l, ids, 1, 4, SL_PHASE_DECODE);
        }
    sl_heat_store_save_now(store);
    sl_heat_store_close(&store);
    sl_heat_destroy(&heat);
}

static struct sl_engine_config over(const char *split) {
    card_source_init(&source, &(struct card_config){.n_threads = 1, .n_cards = 2});
    return (struct sl_engine_config){.ctx_tokens = 128,
                                     .parallel = 1,
                                     .queue_max = 1,
                                     .batch_tokens = 8,
                                     .n_threads = 1,
                                     .ram_bytes = 1024 * MIB,
                                     .vram_bytes = 24 * MIB,
                                     .process_bytes = 5 * MIB,
                                     .split = split,
                                     .heat_file = path,
                                     .device_source = &source.source};
}

/* Layers of the first card; whether the plan says that heat had a part in it. */
static uint32_t first_of(const struct sl_engine_config *c, bool *out_by_heat) {
    struct sl_stage_plans plans;
    assert_ok(sl_stage_plans_open(model.model, c, &plans, &test_err));
    uint32_t n = plans.at[0].model.hp.n_layer;
    assert_int_equal(plans.n, 2);
    assert_int_equal(n + plans.at[1].model.hp.n_layer, N_LAYER);
    *out_by_heat = plans.whole.split_by_heat;
    sl_stage_plans_release(&plans);
    return n;
}

static void plans_go_by_the_heat_file(void **state) {
    (void)state;
    bool by_heat;
    struct sl_engine_config c = over(NULL);
    uint32_t without = first_of(&c, &by_heat); /* there is no file */
    assert_false(by_heat);
    assert_int_not_equal(access(path, F_OK), 0);
    uint64_t fingerprint = sl_model_fingerprint(model.model);
    write_heat(false, fingerprint);
    assert_true(first_of(&c, &by_heat) > without && by_heat);
    write_heat(true, fingerprint);
    assert_true(first_of(&c, &by_heat) < without && by_heat);
    /* The engine goes by the plan, and takes the heat from the same file. */
    struct sl_memory_plan p;
    struct sl_engine_info info;
    assert_ok(sl_engine_plan(model.model, &c, &p, NULL, &test_err));
    struct sl_engine *e = new_engine(&model, &c);
    sl_engine_info(e, &info);
    assert_int_equal(info.stages[0].n_layer, p.stages[0].n_layer);
    assert_true(p.split_by_heat && info.stages[0].n_layer < without);
    sl_engine_destroy(&e);
    /* Where it does not matter it is not asked. */
    c.vram_bytes = 512 * MIB;
    assert_true(first_of(&c, &by_heat) == without && !by_heat);
    c = over("4,4");
    assert_true(first_of(&c, &by_heat) == 4 && !by_heat);
    c = over(NULL);
    c.heat_file = NULL;
    assert_true(first_of(&c, &by_heat) == without && !by_heat);
    /* Of another model; cut short; garbage; a folder without one; a folder with one. */
    c = over(NULL);
    write_heat(true, fingerprint + 1);
    assert_true(first_of(&c, &by_heat) == without && !by_heat);
    write_heat(true, fingerprint);
    assert_int_equal(truncate(path, 500), 0);
    assert_true(first_of(&c, &by_heat) == without && !by_heat);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs("not a heat file, whatever its name is", f);
    fclose(f);
    assert_true(first_of(&c, &by_heat) == without && !by_heat);
    c.heat_file = "/proc/self/fdinfo/";
    assert_true(first_of(&c, &by_heat) == without && !by_heat);
    assert_int_equal(source.n_open, 0);
}

/* Cards of two kinds: the second one's arithmetic is its own. */
static enum sl_status open_other(const struct sl_device_source *s, uint32_t index,
                                 struct sl_device **out_device, struct sl_err *err) {
    (void)s;
    enum sl_status status = source.source.open(&source.source, index, out_device, err);
    if (status == SL_OK)
        (*out_device)->caps.arithmetic += index;
    return status;
}

/* There the split shows in the answers and in the names of kept prefixes. */
static void not_where_bits_depend_on_it(void **state) {
    (void)state;
    static const struct sl_device_source unlike = {.open = open_other, .n_devices = 2};
    bool by_heat;
    struct sl_engine_config c = over(NULL);
    write_heat(false, sl_model_fingerprint(model.model));
    uint32_t with = first_of(&c, &by_heat);
    assert_true(by_heat);
    c.device_source = &unlike;
    assert_true(first_of(&c, &by_heat) < with && !by_heat);
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hits_are_those_of_the_most_used),
        cmocka_unit_test(alike_is_as_unknown),
        cmocka_unit_test(nothing_upsets_it),
        cmocka_unit_test(layers_that_miss_more_are_fewer),
        cmocka_unit_test(plans_go_by_the_heat_file),
        cmocka_unit_test(not_where_bits_depend_on_it),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
