/* Layers over several devices: which devices a name means, how layers are divided, and that the
 * plans of all stages together keep to the budgets, whatever those are. */
#include "tests/unit/engine/fixture.h"

#include "model/arch/model_slice.h"
#include "engine/plan/open_device.h"
#include "engine/plan/stage_plan.h"
#include "engine/plan/stage_split.h"
#include "tests/support/card.h"
#include "tests/support/slow_build.h"

#define MIB ((uint64_t)1 << 20)

/* Two size classes, the first of which begins in another layer of a slice. */
static struct sl_synth_config mixed(uint32_t n_layer) {
    struct sl_synth_config c = tiny_config("qwen3moe");
    c.n_layer = n_layer;
    c.n_embd = 256;
    c.n_ff_expert = 256;
    c.n_expert = 16;
    c.n_expert_used = 3;
    c.n_vocab = 4096;
    c.down.n = 2;
    c.down.dtype[0] = SL_DTYPE_Q4_K;
    c.down.dtype[1] = SL_DTYPE_Q8_0;
    return c;
}

static struct card_source source;

static struct sl_engine_config over(uint32_t n_cards, const char *split) {
    card_source_init(&source, &(struct card_config){.n_threads = 1, .n_cards = n_cards});
    return (struct sl_engine_config){.ctx_tokens = 128,
                                     .parallel = 2,
                                     .queue_max = 4,
                                     .batch_tokens = 32,
                                     .n_threads = 1,
                                     .ram_bytes = 1024 * MIB,
                                     .vram_bytes = 1024 * MIB,
                                     .process_bytes = 5 * MIB,
                                     .split = split,
                                     .device_source = &source.source};
}

/* ---- the properties of every set of plans ---- */

static uint64_t rows_of(const struct sl_memory_plan *p, bool device) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->n_rows; i++)
        sum += (p->rows[i].kind == SL_MEMORY_DEVICE) == device ? p->rows[i].bytes : 0;
    return sum;
}

static void check_slots(const struct sl_stage_plan *s) {
    const struct sl_memory_plan *p = &s->plan;
    uint32_t host = 0, device = 0;
    for (uint32_t c = 0; c < p->n_class && p->streaming; c++) {
        assert_true(p->class_slots[c] >= s->model.hp.n_expert_used);
        assert_true(!p->discrete || p->device_class_slots[c] >= s->model.hp.n_expert_used);
        host += p->class_slots[c];
        device += p->device_class_slots[c];
    }
    assert_int_equal(host, p->n_slots);
    assert_int_equal(device, p->n_device_slots);
}

static void check(const struct sl_model *m, const struct sl_engine_config *c,
                  const struct sl_stage_plans *plans) {
    const struct sl_memory_plan *w = &plans->whole;
    uint32_t layer = 0;
    uint64_t ram = 0, vram = 0, weights = 0, kv = 0, experts = 0;
    for (uint32_t i = 0; i < plans->n; i++) {
        const struct sl_stage_plan *s = &plans->at[i];
        const struct sl_memory_plan *p = &s->plan;
        assert_int_equal(s->model.hp.first_layer, layer); /* every layer once */
        assert_true(s->model.hp.n_layer > 0);
        layer += s->model.hp.n_layer;
        assert_int_equal(sl_model_has_input(&s->model), i == 0);
        assert_int_equal(sl_model_has_output(&s->model), i + 1 == plans->n);
        uint64_t budget = c->n_vram ? c->vram_each[i] : c->vram_bytes;
        assert_true(p->vram_total_bytes <= budget);
        assert_true(p->vram_least_bytes <= budget + 2 * MIB); /* rounded up */
        assert_int_equal(rows_of(p, true), p->vram_total_bytes);
        assert_int_equal(rows_of(p, false), p->total_bytes);
        assert_int_equal(p->n_pages, w->n_pages);
        assert_int_equal(p->session_pages, w->session_pages);
        assert_int_equal(p->ram_pages, w->ram_pages);
        assert_int_equal(p->config.parallel, w->config.parallel);
        assert_int_equal(p->config.batch_tokens, w->config.batch_tokens);
        assert_int_equal(p->stage, i);
        assert_int_equal(p->n_stages, plans->n);
        assert_int_equal(w->stages[i].n_layer, s->model.hp.n_layer);
        assert_int_equal(w->stages[i].vram_total_bytes, p->vram_total_bytes);
        assert_true(i == 0 || (!p->process_bytes && !p->session_bytes && !p->prefix_ram_bytes));
        assert_null(p->config.process_rows);
        check_slots(s);
        ram += p->total_bytes;
        vram += p->vram_total_bytes;
        weights += p->weight_bytes;
        kv += p->kv_bytes;
        experts += p->n_experts;
    }
    assert_int_equal(layer, m->hp.n_layer);
    /* Whichever stage is loaded through buffers, the process has them once. */
    assert_int_equal(plans->at[0].plan.load_bytes > 0, w->reads_back);
    assert_true(ram <= c->ram_bytes);
    assert_int_equal(ram, w->total_bytes);
    assert_int_equal(vram, w->vram_total_bytes);
    assert_int_equal(weights, w->weight_bytes);
    assert_int_equal(kv, w->kv_bytes);
    assert_int_equal(experts, w->n_experts);
    assert_int_equal(rows_of(w, true), w->vram_total_bytes);
    assert_int_equal(rows_of(w, false), w->total_bytes);
    assert_int_equal(w->budget_bytes, c->ram_bytes);
}

/* Opens, checks and closes; what does not fit names budgets that do. */
static enum sl_status look(const struct sl_model *m, const struct sl_engine_config *c,
                           struct sl_stage_plans *kept) {
    struct sl_stage_plans plans;
    enum sl_status status = sl_stage_plans_open(m, c, &plans, &test_err);
    if (status == SL_OK)
        check(m, c, &plans);
    else
        assert_null(plans.at);
    *kept = plans;
    sl_stage_plans_release(&plans);
    assert_int_equal(source.n_open, 0);
    return status;
}

static void budgets_are_kept(void **state) {
    (void)state;
    struct sl_rng rng = {20261122};
    const uint32_t n_rounds = BY_BUILD(300, 100, 20);
    uint32_t n_fit = 0, n_streamed = 0, n_refused_device = 0, n_refused_host = 0, n_mixed = 0;
    for (uint32_t n_layer = 2; n_layer <= 7; n_layer += 5) {
        struct sl_synth_config sc = mixed(n_layer);
        struct test_model m;
        open_model(&m, &sc);
        for (uint32_t round = 0; round < n_rounds; round++) {
            uint32_t n = 1 + sl_rng_below(&rng, n_layer < 4 ? n_layer : 4);
            struct sl_engine_config c = over(n, NULL);
            struct sl_stage_plans seen;
            /* Every other time some of them are the CPU itself. */
            uint32_t plain = n > 1 && round % 2 ? sl_rng_below(&rng, 1u << n) : 0;
            uint32_t n_cards = n - (uint32_t)__builtin_popcount(plain);
            source.config.plain = plain;
            c.n_vram = n > 1 ? n : 0;
            source.config.held_bytes = sl_rng_below(&rng, 2) * 3 * MIB;
            for (uint32_t i = 0; i < n; i++)
                c.vram_each[i] = MIB + sl_rng_below(&rng, 24 * MIB / n);
            c.vram_bytes = c.vram_each[0];
            c.ram_bytes = 16 * MIB + sl_rng_below(&rng, 96 * MIB);
            c.experts = sl_rng_below(&rng, 3);
            c.no_overflow = sl_rng_below(&rng, 8) == 0;
            c.cache_ram_bytes = sl_rng_below(&rng, 2) ? SL_CACHE_RAM_AUTO : 0;
            enum sl_status status = look(m.model, &c, &seen);
            if (status == SL_OK) {
                n_fit++;
                n_mixed += plain && n_cards;
                assert_int_equal(seen.whole.discrete, n_cards > 0);
                n_streamed += seen.whole.streaming;
                continue;
            }
            assert_int_equal(status, SL_ERR_CONFIG);
            bool device = strstr(test_err.text, "--vram") != NULL;
            n_refused_device += device;
            n_refused_host += !device && strstr(test_err.text, "--ram") != NULL;
            /* With what it says, and plenty of the other kind, it fits. */
            uint64_t vram = seen.whole.vram_least_bytes, ram = seen.whole.least_bytes;
            if (!device && !strstr(test_err.text, "--ram")) {
                assert_non_null(strstr(test_err.text, "--overflow off"));
                continue;
            }
            assert_true(device ? vram > 0 : ram > 0);
            for (uint32_t i = 0; i < n && device; i++)
                c.vram_each[i] = vram / n_cards;
            c.vram_bytes = c.vram_each[0];
            c.ram_bytes = device ? 1024 * MIB : ram;
            if (look(m.model, &c, &seen) != SL_OK && !strstr(test_err.text, "--overflow off"))
                fail_msg("%u cards, round %u: %s", n, round, test_err.text);
        }
        close_model(&m);
    }
    print_message("%u fit, %u of them streamed, %u over cards and the CPU; refused: %u for a "
                  "device's memory, %u for the host's\n",
                  n_fit, n_streamed, n_mixed, n_refused_device, n_refused_host);
    /* Of a few rounds some kinds are missing. */
    assert_true(SLOW_BUILD ||
                (n_fit > n_rounds / 3 && n_mixed > n_rounds / 15 && n_streamed > n_rounds / 15 &&
                 n_refused_device > n_rounds / 6 && n_refused_host > n_rounds / 15));
}

static void one_device_is_as_ever(void **state) {
    (void)state;
    struct sl_synth_config sc = mixed(5);
    struct test_model m;
    struct sl_stage_plans plans;
    struct sl_memory_plan p;
    open_model(&m, &sc);
    struct sl_engine_config c = over(1, NULL);
    c.experts = SL_EXPERTS_STREAMED;
    c.vram_bytes = 8 * MIB;
    c.ram_bytes = 64 * MIB;
    assert_ok(sl_stage_plans_open(m.model, &c, &plans, &test_err));
    assert_ok(sl_memory_plan_make(m.model, &c, plans.at[0].dev, &p, &test_err));
    assert_int_equal(plans.n, 1);
    assert_ptr_equal(plans.at[0].model.layers, m.model->layers);
    assert_int_equal(p.total_bytes, plans.whole.total_bytes);
    assert_int_equal(p.vram_total_bytes, plans.whole.vram_total_bytes);
    assert_int_equal(p.n_slots, plans.whole.n_slots);
    assert_int_equal(p.n_rows, plans.whole.n_rows);
    for (uint32_t i = 0; i < p.n_rows; i++) {
        assert_int_equal(p.rows[i].bytes, plans.whole.rows[i].bytes);
        assert_int_equal(p.rows[i].stage, 0);
    }
    sl_stage_plans_release(&plans);
    close_model(&m);
}

static void splits_that_are_given(void **state) {
    (void)state;
    struct sl_synth_config sc = mixed(6);
    struct test_model m;
    struct sl_stage_plans plans;
    open_model(&m, &sc);
    struct sl_engine_config c = over(3, "1,4,1");
    assert_ok(sl_stage_plans_open(m.model, &c, &plans, &test_err));
    check(m.model, &c, &plans);
    assert_int_equal(plans.at[1].model.hp.n_layer, 4);
    assert_int_equal(plans.at[2].model.hp.first_layer, 5);
    char name[64];
    sl_stage_plans_device(&plans.whole, name);
    assert_string_equal(name, "3 x the CPU in disguise");
    sl_stage_plans_release(&plans);

    static const struct {
        const char *split, *says;
    } wrong[] = {{"2,4", "for 2 devices"},    {"1,1,1,3", "for 4 devices"},
                 {"1,4,2", "of 7 layers"},    {"6,0,0", "must be auto"},
                 {"", "must be auto"},        {"1,4,", "must be auto"},
                 {"1;5", "must be auto"},     {"-1,4,3", "must be auto"},
                 {" 2,2,2", "must be auto"},  {"1,1,1,1,1,1,1,1,1", "must be auto"},
                 {"99999,1", "must be auto"}, {"4294967297,5", "must be auto"}};
    for (uint32_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        c.split = wrong[i].split;
        assert_int_equal(sl_stage_plans_open(m.model, &c, &plans, &test_err), SL_ERR_CONFIG);
        if (!strstr(test_err.text, wrong[i].says))
            fail_msg("'%s': %s", wrong[i].split, test_err.text);
    }
    /* Too little for one of them: which, and what each needs. */
    c = over(3, "1,4,1");
    c.n_vram = 3;
    c.vram_each[0] = c.vram_each[2] = 512 * MIB;
    c.vram_each[1] = MIB;
    assert_int_equal(sl_stage_plans_open(m.model, &c, &plans, &test_err), SL_ERR_CONFIG);
    assert_non_null(strstr(test_err.text, "layers 1 to 4 of 6"));
    const char *least = strstr(test_err.text, "for all of them: --vram ");
    assert_non_null(least);
    unsigned mib[3];
    assert_int_equal(
        sscanf(least, "for all of them: --vram %uMiB,%uMiB,%uMiB", &mib[0], &mib[1], &mib[2]), 3);
    for (uint32_t i = 0; i < 3; i++)
        c.vram_each[i] = mib[i] * MIB;
    assert_ok(sl_stage_plans_open(m.model, &c, &plans, &test_err));
    sl_stage_plans_release(&plans);
    c.n_vram = 2;
    assert_int_equal(sl_stage_plans_open(m.model, &c, &plans, &test_err), SL_ERR_CONFIG);
    assert_non_null(strstr(test_err.text, "2 sizes of device memory for 3 devices"));
    c = over(7, NULL);
    assert_int_equal(sl_stage_plans_open(m.model, &c, &plans, &test_err), SL_ERR_CONFIG);
    assert_non_null(strstr(test_err.text, "7 devices for a model of 6 layers"));
    close_model(&m);
}

/* ---- which devices ---- */

static void names_of_devices(void **state) {
    (void)state;
    static const struct {
        const char *device;
        uint32_t n_split, n, number[3];
        const char *says;
    } cases[] = {{NULL, 0, 1, {0}, NULL},
                 {"cpu", 0, 1, {0}, NULL},
                 {"cpu:0", 0, 1, {0}, NULL},
                 {"null", 0, 1, {0}, NULL},
                 {"auto", 1, 1, {0}, NULL},
                 {"cuda", 0, 1, {0}, NULL},
                 {"cuda", 3, 3, {0, 1, 2}, NULL},
                 {"cuda:5", 1, 1, {5}, NULL},
                 {"cuda:2,0", 0, 2, {2, 0}, NULL},
                 {"cuda:0,0,0", 3, 3, {0}, NULL},
                 {"cuda:2,cpu", 2, 2, {2, 0}, NULL},
                 {"cpu,cuda:1,2", 3, 3, {0, 1, 2}, NULL},
                 {"cuda,cpu", 2, 2, {0, 0}, NULL},
                 {"cuda:1,cuda:0,cpu", 0, 3, {1, 0, 0}, NULL},
                 {"cpu:all", 0, 1, {0}, NULL},
                 {"cuda:0,1", 3, 0, {0}, "for 3 devices, and 2 are named"},
                 {"cuda:1", 2, 0, {0}, "for 2 devices, and 1 is named"},
                 {"cuda:0,cpu", 3, 0, {0}, "for 3 devices, and 2 are named"},
                 {"auto", 2, 0, {0}, "--device cuda:0,1"},
                 {"cpu", 2, 0, {0}, "--device cuda:0,1"},
                 {"cpu,cpu", 0, 0, {0}, "cpu is named twice"},
                 {"cpu,cuda:0,cpu", 0, 0, {0}, "cpu is named twice"},
                 {"", 0, 0, {0}, "must be auto"},
                 {",", 0, 0, {0}, "must be auto"},
                 {":0", 0, 0, {0}, "must be auto"},
                 {"0", 0, 0, {0}, "must be auto"},
                 {"cpu,1", 0, 0, {0}, "must be auto"},
                 {"cuda,1", 0, 0, {0}, "must be auto"},
                 {"cuda:all,1", 0, 0, {0}, "must be auto"},
                 {"auto,cpu", 0, 0, {0}, "must be auto"},
                 {"cuda:0,auto", 0, 0, {0}, "must be auto"},
                 {"cuda:0 ,cpu", 0, 0, {0}, "must be auto"},
                 {"CUDA:0", 0, 0, {0}, "must be auto"},
                 {"cuda:", 0, 0, {0}, "must be auto"},
                 {"cuda:0,", 0, 0, {0}, "must be auto"},
                 {"cuda:0,,1", 0, 0, {0}, "must be auto"},
                 {"cuda:64", 0, 0, {0}, "must be auto"},
                 {"cuda:99999999999999999999", 0, 0, {0}, "must be auto"},
                 {"cuda:+1", 0, 0, {0}, "must be auto"},
                 {"cuda:alll", 0, 0, {0}, "must be auto"},
                 {"cuda0", 0, 0, {0}, "must be auto"},
                 {"cudax", 0, 0, {0}, "must be auto"},
                 {"cuda:0,1,2,3,4,5,6,7,8", 0, 0, {0}, "must be auto"},
                 {"tpu", 0, 0, {0}, "cuda:all"},
                 {"tpu", 0, 0, {0}, "here are "}};
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sl_engine_config c = {.device = cases[i].device, .split = "as given"};
        struct sl_device_names names;
        enum sl_status status = sl_device_names(&c, 48, cases[i].n_split, &names, &test_err);
        if (status != (cases[i].says ? SL_ERR_CONFIG : SL_OK) ||
            (cases[i].says && !strstr(test_err.text, cases[i].says)))
            fail_msg("'%s': %d, %s", cases[i].device, status, test_err.text);
        if (status != SL_OK)
            continue;
        assert_int_equal(names.n, cases[i].n);
        assert_int_equal(names.any, cases[i].device && strcmp(cases[i].device, "auto") == 0);
        for (uint32_t k = 0; k < names.n && k < 3; k++)
            assert_int_equal(names.at[k].number, cases[i].number[k]);
    }
    /* Sizes of memory are for those that may have some: not for the CPU. */
    struct sl_engine_config c = {.device = "cuda:0,cpu,cuda:1", .n_vram = 2};
    struct sl_device_names names;
    assert_ok(sl_device_names(&c, 48, 0, &names, &test_err));
    c.n_vram = 3;
    assert_int_equal(sl_device_names(&c, 48, 0, &names, &test_err), SL_ERR_CONFIG);
    assert_non_null(strstr(test_err.text, "3 sizes of device memory for 2 devices"));
}

/* ---- choosing ---- */

static uint64_t least_of(const struct sl_split_model *m, const struct sl_split_card *c,
                         uint32_t from, uint32_t to) {
    uint64_t fixed = c->stage_bytes, experts = 0;
    for (uint32_t i = from; i < to; i++) {
        fixed += m->layers[i].fixed_bytes;
        experts += m->layers[i].expert_bytes;
    }
    bool resident = m->experts == SL_EXPERTS_RESIDENT || experts < m->least_slot_bytes;
    return fixed + (resident ? experts : m->least_slot_bytes);
}

/* Every split there is: whether one fits, and the least budget that would do for all cards alike.
 */
static void try_all(const struct sl_split_model *m, const struct sl_split_card *cards, uint32_t n,
                    uint32_t card, uint32_t from, bool fits, uint64_t most, bool *out_any,
                    uint64_t *out_least) {
    if (card == n) {
        if (from == m->n_layer) {
            *out_any |= fits;
            *out_least = most < *out_least ? most : *out_least;
        }
        return;
    }
    for (uint32_t to = from + 1; to <= m->n_layer; to++) {
        if (to < m->n_layer && m->layers[to].joined)
            continue;
        uint64_t least = least_of(m, &cards[card], from, to);
        try_all(m, cards, n, card + 1, to, fits && least <= cards[card].budget_bytes,
                least > most ? least : most, out_any, out_least);
    }
}

static void every_split_was_looked_at(void **state) {
    (void)state;
    struct sl_rng rng = {7};
    const uint32_t n_rounds = BY_BUILD(3000, 1000, 300);
    uint32_t n_fit = 0, n_refused = 0;
    for (uint32_t round = 0; round < n_rounds; round++) {
        struct sl_split_layer layers[7];
        struct sl_split_card cards[4];
        struct sl_split_model m = {.n_layer = 1 + sl_rng_below(&rng, 7),
                                   .layers = layers,
                                   .least_slot_bytes = sl_rng_below(&rng, 60),
                                   .experts = sl_rng_below(&rng, 2) ? SL_EXPERTS_AUTO
                                                                    : SL_EXPERTS_RESIDENT};
        uint32_t n = 1 + sl_rng_below(&rng, m.n_layer < 4 ? m.n_layer : 4);
        for (uint32_t i = 0; i < m.n_layer; i++)
            layers[i] = (struct sl_split_layer){sl_rng_below(&rng, 100), sl_rng_below(&rng, 200),
                                                sl_rng_below(&rng, 100), sl_rng_below(&rng, 20),
                                                i && !sl_rng_below(&rng, 6)};
        for (uint32_t i = 0; i < n; i++)
            cards[i] = (struct sl_split_card){sl_rng_below(&rng, 600), sl_rng_below(&rng, 50),
                                              sl_rng_below(&rng, 3) * 1000};
        struct sl_split split = {0};
        uint64_t least = 0, want_least = UINT64_MAX;
        bool any = false;
        enum sl_status status = sl_split_choose(&m, cards, n, false, &split, &least);
        try_all(&m, cards, n, 0, 0, true, 0, &any, &want_least);
        assert_int_equal(status, any ? SL_OK : SL_ERR_CONFIG);
        n_fit += any;
        n_refused += !any;
        if (!any) {
            assert_int_equal(least, want_least);
            continue;
        }
        uint32_t from = 0;
        assert_int_equal(split.n, n);
        for (uint32_t i = 0; i < n; i++) {
            assert_true(split.n_layer[i] > 0 && !layers[from].joined);
            assert_true(least_of(&m, &cards[i], from, from + split.n_layer[i]) <=
                        cards[i].budget_bytes);
            from += split.n_layer[i];
        }
        assert_int_equal(from, m.n_layer);
    }
    assert_true(n_fit > n_rounds / 10 && n_refused > n_rounds / 10);
}

static struct sl_split chosen(const struct sl_split_model *m, const struct sl_split_card *cards,
                              uint32_t n) {
    struct sl_split split = {0};
    uint64_t least;
    assert_int_equal(sl_split_choose(m, cards, n, false, &split, &least), SL_OK);
    return split;
}

static void what_is_chosen(void **state) {
    (void)state;
    struct sl_split_layer layers[48];
    struct sl_split_model m = {.n_layer = 48, .layers = layers, .least_slot_bytes = 10};
    for (uint32_t i = 0; i < 48; i++)
        layers[i] = (struct sl_split_layer){20, 1000, 20, 50, false};
    struct sl_split_card cards[3] = {{100000, 10, 0}, {100000, 10, 0}, {100000, 10, 0}};
    struct sl_split s = chosen(&m, cards, 2);
    assert_true(s.n_layer[0] == 24 && s.n_layer[1] == 24);
    s = chosen(&m, cards, 3);
    assert_true(s.n_layer[0] == 16 && s.n_layer[1] == 16 && s.n_layer[2] == 16);
    /* An output matrix as heavy as ten layers. */
    layers[47].dense_token_bytes += 700;
    s = chosen(&m, cards, 2);
    assert_int_equal(s.n_layer[0], 29);
    layers[47].dense_token_bytes -= 700;
    /* Twice the speed: twice the layers; with one speed unknown all are alike. */
    cards[0].bytes_per_s = 2000, cards[1].bytes_per_s = 1000;
    assert_int_equal(chosen(&m, cards, 2).n_layer[0], 32);
    cards[1].bytes_per_s = 0;
    assert_int_equal(chosen(&m, cards, 2).n_layer[0], 24);
    /* Layers of 37 MB at 4.5 TB/s take 33 us with all that is to be done, the output's 255 MB 57
     * and reading logits back 15 more: two and a fifth. At 1 TB/s, where reading counts for
     * more, it is 62 and 270: four and a third. */
    struct sl_split_layer real[48];
    struct sl_split_model big = {.n_layer = 48, .layers = real, .least_slot_bytes = 10};
    struct sl_split_card fast[2] = {{UINT64_MAX, 0, 4500000000000}, {UINT64_MAX, 0, 4500000000000}};
    for (uint32_t i = 0; i < 48; i++)
        real[i] = (struct sl_split_layer){0, 0, 37e6 + (i == 47 ? 255e6 : 0), 0, false};
    assert_int_equal(chosen(&big, fast, 2).n_layer[0], 25);
    fast[0].bytes_per_s = fast[1].bytes_per_s = 1000000000000;
    assert_int_equal(chosen(&big, fast, 2).n_layer[0], 26);
    /* Room for all experts of 16 layers on one, of 32 on the other. */
    cards[0].budget_bytes = 16 * 1020 + 10 + 15;
    cards[1].budget_bytes = 32 * 1020 + 10 + 15;
    s = chosen(&m, cards, 2);
    assert_true(s.n_layer[0] == 16 && s.n_layer[1] == 32);
    /* Half of that: each has as many elsewhere as the other. */
    cards[0].budget_bytes /= 2, cards[1].budget_bytes /= 2;
    s = chosen(&m, cards, 2);
    assert_int_equal(s.n_layer[0], 20);
}

static void bigger_cards_get_more(void **state) {
    (void)state;
    struct sl_synth_config sc = mixed(7);
    struct test_model m;
    struct sl_stage_plans plans;
    open_model(&m, &sc);
    struct sl_engine_config c = over(2, NULL);
    c.n_vram = 2;
    c.vram_each[0] = 8 * MIB;
    c.vram_each[1] = 24 * MIB;
    assert_ok(sl_stage_plans_open(m.model, &c, &plans, &test_err));
    check(m.model, &c, &plans);
    assert_true(plans.at[0].model.hp.n_layer < plans.at[1].model.hp.n_layer);
    sl_stage_plans_release(&plans);
    c.vram_each[0] = 24 * MIB;
    c.vram_each[1] = 8 * MIB;
    assert_ok(sl_stage_plans_open(m.model, &c, &plans, &test_err));
    assert_true(plans.at[0].model.hp.n_layer > plans.at[1].model.hp.n_layer);
    sl_stage_plans_release(&plans);
    close_model(&m);
}

/* More pages for the cache than the budget has room for: that is said, not that it is too small. */
static void too_large_a_cache(void **state) {
    (void)state;
    struct sl_synth_config sc = mixed(6);
    struct test_model m;
    struct sl_stage_plans plans;
    open_model(&m, &sc);
    struct sl_engine_config c = over(2, NULL);
    c.ram_bytes = 1024 * MIB;
    c.cache_ram_bytes = 2048 * MIB;
    assert_int_equal(sl_stage_plans_open(m.model, &c, &plans, &test_err), SL_ERR_CONFIG);
    assert_non_null(strstr(test_err.text, "for --cache-ram, not 2048.0: lower that"));
    c.ram_bytes = plans.whole.least_bytes;
    assert_ok(sl_stage_plans_open(m.model, &c, &plans, &test_err));
    sl_stage_plans_release(&plans);
    c.ram_bytes = 1 * MIB;
    assert_int_equal(sl_stage_plans_open(m.model, &c, &plans, &test_err), SL_ERR_CONFIG);
    assert_null(strstr(test_err.text, "--cache-ram"));
    close_model(&m);
}

/* ---- what is planned is what is taken ---- */

/* Three sessions, prompts of several steps. */
static void answer(const struct test_model *m, const struct sl_engine_config *c) {
    struct sl_engine *e = new_engine(m, c);
    struct run *r[3];
    for (uint32_t i = 0; i < 3; i++) {
        r[i] = new_run(i + 1, 20 + 30 * i, m->model->hp.n_vocab, 12);
        r[i]->req.ignore_eog = true;
        submit(e, r[i]);
    }
    for (uint32_t i = 0; i < 3; i++) {
        wait_run(r[i]);
        if (r[i]->result.status != SL_OK)
            fail_msg("session %u: %s", i, r[i]->result.err.text);
        free_run(r[i]);
    }
    sl_engine_destroy(&e);
}

static void cards_hold_what_was_planned(void **state) {
    (void)state;
    static const struct {
        uint32_t n_cards;
        const char *split;
        bool streamed;
        uint32_t resident; /* bits: cards that have room for all of theirs all the same */
        uint32_t n_relays; /* stages whose copies go by way of another's card */
        uint32_t n_chips;  /* pieces of hardware; 0: each card is one */
    } cases[] = {{1, NULL, false, 0, 0, 0},
                 {1, NULL, true, 0, 0, 0},
                 {2, NULL, false, 0, 0, 0},
                 {2, "1,5", true, 0, 2, 0},
                 {2, "5,1", true, 0, 2, 0},
                 {3, "1,4,1", true, 0, 3, 0},
                 {4, NULL, true, 0, 4, 0},
                 {4, NULL, false, 0, 0, 0},
                 {2, "3,3", true, 1, 0, 0},
                 {2, "3,3", true, 2, 0, 0},
                 {3, "2,2,2", true, 2, 2, 0},
                 {3, "2,2,2", true, 5, 0, 0},
                 /* Not of those that share one. */
                 {2, "3,3", true, 0, 0, 1},
                 {3, "2,2,2", true, 0, 0, 2},
                 {4, NULL, true, 0, 0, 2},
                 {4, "1,2,2,1", true, 0, 2, 3}};
    struct sl_synth_config sc = mixed(6);
    struct test_model m;
    sc.n_expert = 64; /* more than a card has room for with the least */
    open_model(&m, &sc);
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sl_engine_config c = over(cases[i].n_cards, cases[i].split);
        struct sl_stage_plans plans;
        source.config.n_chips = cases[i].n_chips;
        c.experts = cases[i].streamed ? SL_EXPERTS_STREAMED : SL_EXPERTS_RESIDENT;
        if (cases[i].streamed) { /* the least, so that experts move */
            c.vram_bytes = MIB;
            assert_int_equal(sl_stage_plans_open(m.model, &c, &plans, &test_err), SL_ERR_CONFIG);
            c.vram_bytes = plans.whole.vram_least_bytes; /* of all: more than any one's */
            assert_ok(sl_stage_plans_open(m.model, &c, &plans, &test_err));
            c.n_vram = plans.n > 1 ? plans.n : 0;
            for (uint32_t k = 0; k < plans.n; k++)
                c.vram_each[k] =
                    cases[i].resident >> k & 1 ? 1024 * MIB : plans.at[k].plan.vram_least_bytes;
            c.vram_bytes = c.vram_each[0];
            c.experts = cases[i].resident ? SL_EXPERTS_AUTO : c.experts;
            sl_stage_plans_release(&plans);
        }
        assert_ok(sl_stage_plans_open(m.model, &c, &plans, &test_err));
        check(m.model, &c, &plans);
        if (cases[i].resident) { /* what it says would do does */
            for (uint32_t k = 0; k < plans.n; k++)
                if (plans.at[k].plan.streaming)
                    c.vram_each[k] = plans.at[k].plan.vram_least_bytes;
            sl_stage_plans_release(&plans);
            assert_ok(sl_stage_plans_open(m.model, &c, &plans, &test_err));
            check(m.model, &c, &plans);
        }
        for (uint32_t k = 0; k < plans.n; k++) {
            bool streamed = cases[i].streamed && !(cases[i].resident >> k & 1);
            assert_int_equal(plans.at[k].plan.streaming, streamed);
        }
        source.stats = (struct card_stats){0};
        answer(&m, &c);
        assert_int_equal(source.stats.n_relays, cases[i].n_relays);
        for (uint32_t k = 0; k < plans.n; k++) {
            const struct sl_memory_plan *p = &plans.at[k].plan;
            uint64_t most = source.stats.most_of[k] + p->scratch_bytes; /* of the CPU behind it */
            if (most > p->vram_total_bytes || most + 64 * 1024 < p->vram_total_bytes)
                fail_msg("case %u, card %u of %u: %llu bytes, planned %llu", i, k, plans.n,
                         (unsigned long long)most, (unsigned long long)p->vram_total_bytes);
        }
        sl_stage_plans_release(&plans);
        assert_int_equal(source.n_open, 0);
        assert_int_equal(source.stats.used_bytes, 0);
        assert_int_equal(source.stats.n_signals, 0);
    }
    close_model(&m);
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_devices),      cmocka_unit_test(every_split_was_looked_at),
        cmocka_unit_test(what_is_chosen),        cmocka_unit_test(one_device_is_as_ever),
        cmocka_unit_test(splits_that_are_given), cmocka_unit_test(bigger_cards_get_more),
        cmocka_unit_test(budgets_are_kept),      cmocka_unit_test(cards_hold_what_was_planned),
        cmocka_unit_test(too_large_a_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
