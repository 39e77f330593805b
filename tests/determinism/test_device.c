/* Where experts are decides the speed, never the answer, on a device with memory of its own too:
 * whole runs on a card (tests/support/card.h), compared bit for bit with plain runs on the CPU,
 * over budgets of the card's and the host's memory. */
#include "tests/support/card.h"
#include "tests/support/slow_build.h"
#include "tests/unit/engine/fixture.h"

#include "common/crc.h"
#include "common/metrics.h"
#include "engine/engine.h"
#include "engine/schedule/schedule.h"
#include "engine/experts/expert_tiers.h"

#include <math.h>

#define AMPLE_BYTES ((uint64_t)1 << 50)
#define N_RUNS      8u
#define N_ANSWER    12u
#define N_SCORE     40u

/* Some layers' tensors, and the largest thing that has to be in one piece: activations. */
#define FEW_BYTES ((uint64_t)1 << 20)

/* Stages that are reached by messages alone take nothing from one another's devices. */
#ifdef STAGES_BEHIND_BYTES
static const bool behind_bytes = true;
#else
static const bool behind_bytes = false;
#endif

struct setting {
    bool cpu;
    enum sl_experts_where where;
    uint32_t device_percent, host_percent; /* of the experts with slots; 0: the least */
    uint32_t parallel, batch;
    struct card_config card;
    bool warm;
    bool measure;      /* how fast the disk is, between two of the runs and before the text */
    const char *split; /* over card.n_cards of them */
    uint32_t lane;     /* card.lane: percent of the experts in host memory that the CPU gets; 0 = as
                          it finds best */
    bool greedy;       /* all of the requests, and without log-probabilities */
};

/* Of a token's row with its maxima. */
#define ROW_BYTES(n) (((n) + SL_VOCAB_BLOCKS(n)) * sizeof(float))

struct outcome {
    struct run *run[N_RUNS];
    uint32_t logits_crc[N_SCORE];
    uint64_t steps;
    struct card_stats card;
    struct sl_tiers_stats tiers;
    uint64_t predictions; /* experts that went up because an early router named them */
    uint64_t predicted[SL_FETCH_PREDICTIONS], right[SL_FETCH_PREDICTIONS]; /* of those on disk */
    uint32_t n_slots, n_device_slots, n_experts, n_stages;
    uint32_t n_measured;
};

static const char *describe(const struct setting *s) {
    static char text[160];
    snprintf(text, sizeof text, "%s%s%s, device %u %%, host %u %%, %u at once, batch %u%s%s%s%s%s",
             s->cpu ? "CPU" : "card ", s->split ? s->split : "",
             s->where == SL_EXPERTS_RESIDENT ? ", resident" : "", s->device_percent,
             s->host_percent, s->parallel, s->batch, s->card.eager_copies ? ", eager copies" : "",
             s->card.mailbox ? ", mailbox" : "", s->card.no_placed ? ", nothing placed" : "",
             s->card.integrated ? ", integrated" : "", s->card.plain ? ", with the CPU" : "");
    return text;
}

/* ---- budgets ---- */

/* d NULL: of the devices that the configuration names. */
static enum sl_status plan(const struct sl_model *m, const struct sl_engine_config *c,
                           struct sl_device *d, struct sl_memory_plan *p) {
    return d ? sl_memory_plan_make(m, c, d, p, &test_err)
             : sl_engine_plan(m, c, p, NULL, &test_err);
}

/* The smallest budget at *bytes for which there are slots enough; others as they are. */
static void smallest(const struct sl_model *m, struct sl_engine_config *c, struct sl_device *d,
                     uint64_t *bytes, bool device, uint32_t percent) {
    struct sl_memory_plan p;
    *bytes = AMPLE_BYTES;
    assert_ok(plan(m, c, d, &p));
    uint64_t too_small = 0, enough = 2 * (p.total_bytes + p.vram_total_bytes);
    while (enough - too_small > 1) {
        *bytes = too_small + (enough - too_small) / 2;
        bool fits = plan(m, c, d, &p) == SL_OK;
        uint32_t n = device ? p.n_device_slots : p.n_slots;
        *((fits && (uint64_t)n * 100 >= (uint64_t)p.n_experts * percent) ? &enough : &too_small) =
            *bytes;
    }
    *bytes = enough;
}

static void set_budgets(const struct sl_model *m, struct sl_engine_config *c,
                        struct card_source *source, const struct setting *s) {
    struct sl_device *d = NULL;
    c->ram_bytes = c->vram_bytes = AMPLE_BYTES;
    c->experts = s->where;
    c->split = s->split;
    if (s->where == SL_EXPERTS_RESIDENT)
        return;
    if (!s->split)
        assert_ok(source->source.open(&source->source, 0, &d, &test_err));
    /* The host's slots are as many as the device's leave of use: at most. */
    if (!s->card.integrated)
        smallest(m, c, d, &c->vram_bytes, true, s->device_percent);
    struct sl_memory_plan p;
    c->ram_bytes = AMPLE_BYTES;
    assert_ok(plan(m, c, d, &p));
    uint32_t most = 100 * p.n_slots / p.n_experts;
    smallest(m, c, d, &c->ram_bytes, false, s->host_percent < most ? s->host_percent : most);
    if (d)
        sl_device_close(&d);
}

/* ---- runs ---- */

static struct run *make_run(const struct sl_model *m, uint32_t i, bool greedy) {
    static const uint32_t n_prompt[N_RUNS] = {1, 40, 150, 65, 90, 17, 3, 130};
    struct run *r = new_run(71 + i, n_prompt[i], m->hp.n_vocab, N_ANSWER);
    static const struct sl_logit_bias bias[] = {{3, 2.5f}, {641, -INFINITY}};
    r->req.ignore_eog = true;
    if (greedy)
        return r;
    r->req.logprobs = i % 2 == 0 || i == 3;
    r->req.n_top_logprobs = r->req.logprobs ? 5 : 0;
    /* Some of what the sampler does with the maxima that a card has found, and with the sums: in
     * one step each row's are at another temperature. */
    struct sl_sampling *s = &r->req.sampling;
    if (i % 2) {
        s->temperature = 0.5f + 0.2f * (float)i;
        s->seed = i;
    }
    s->top_k = i == 3 ? 20 : 0;
    s->top_p = i == 5 ? 0.9f : 1;
    s->repeat_penalty = i == 4 || i == 6 ? 1.4f : 1;
    s->repeat_last_n = i == 4 ? 2 : UINT32_MAX; /* few changes, and many */
    s->logit_bias = bias;
    s->n_logit_bias = i == 7 ? 2 : 0;
    return r;
}

struct scored {
    const struct sl_model *m;
    struct outcome *out;
};

static bool on_logits(void *ctx, uint32_t pos, const float *logits) {
    struct scored *s = ctx;
    s->out->logits_crc[pos] = sl_crc32c(0, logits, s->m->hp.n_vocab * sizeof *logits);
    return true;
}

static void add_tiers(const struct sl_stage_local *s, struct sl_tiers_stats *sum) {
    const struct sl_tiers *t = s->store ? sl_fetch_tiers(sl_stage_fetch(s)) : NULL;
    if (!t)
        return;
    const struct sl_tiers_stats *own = sl_tiers_stats(t);
    sum->device_hits += own->device_hits;
    sum->host_hits += own->host_hits;
    sum->promotions += own->promotions;
    sum->demotions += own->demotions;
    sum->up_bytes += own->up_bytes;
    sum->down_bytes += own->down_bytes;
    sum->in_place_bytes += own->in_place_bytes;
    sum->early += own->early;
    sum->early_used += own->early_used;
}

static void run_setting(const struct sl_model *m, const struct setting *s, struct outcome *out) {
    struct card_source source;
    card_source_init(&source, &s->card);
    struct sl_engine_config c = {.n_threads = s->card.lane ? 2 : 1,
                                 .ctx_tokens = 200,
                                 .parallel = s->parallel,
                                 .batch_tokens = s->batch,
                                 .io = SL_EXPERTS_IO_PREAD,
                                 .no_warm_up = !s->warm,
                                 .lane_forced = s->lane != 0,
                                 .lane_percent = s->lane,
                                 .device_source = s->cpu ? NULL : &source.source};
    memset(out, 0, sizeof *out);
    if (s->cpu)
        c.ram_bytes = AMPLE_BYTES;
    else
        set_budgets(m, &c, &source, s);
    source.stats = (struct card_stats){0};
    uint64_t promotions = (uint64_t)sl_metric(expert_promotions_total);
    uint64_t predicted = (uint64_t)sl_metric(expert_predicted_total);
    struct sl_engine *e;
    enum sl_status status = sl_engine_create(m, &c, NULL, &e, &test_err);
    if (status != SL_OK)
        fail_msg("%s: %s", describe(s), test_err.text);
    for (uint32_t i = 0; s->warm && i < 2000; i++) {
        if ((uint64_t)sl_metric(expert_promotions_total) >= promotions + e->plan.n_device_slots)
            break;
        usleep(5000);
    }
    for (uint32_t i = 0; i < N_RUNS; i++) {
        out->run[i] = make_run(m, i, s->greedy);
        if (!s->measure || i + 1 < N_RUNS)
            submit(e, out->run[i]);
    }
    for (uint32_t i = 0; i < N_RUNS; i++) {
        if (s->measure && i + 1 == N_RUNS) {
            out->n_measured += measure_disk(e, 0.01);
            submit(e, out->run[i]);
        }
        wait_run(out->run[i]);
        if (out->run[i]->result.status != SL_OK || out->run[i]->n != N_ANSWER)
            fail_msg("%s: %s", describe(s), out->run[i]->result.err.text);
    }
    if (s->measure)
        out->n_measured += measure_disk(e, 0.01);
    struct scored scored = {m, out};
    assert_ok(sl_engine_score(e, out->run[2]->prompt, N_SCORE, on_logits, &scored, &test_err));
    out->card = source.stats;
    out->predictions = (uint64_t)sl_metric(expert_predicted_total) - predicted;
    out->n_slots = e->plan.n_slots;
    out->n_device_slots = e->plan.n_device_slots;
    out->n_experts = e->plan.n_experts;
    out->n_stages = e->n_stages;
    for (uint32_t i = 0; i < e->n_stages; i++) {
        add_tiers(&e->stages[i], &out->tiers);
        for (uint32_t w = 0; w < SL_FETCH_PREDICTIONS && e->stages[i].store; w++) {
            const struct sl_fetch_stats *f = sl_fetch_stats(sl_stage_fetch(&e->stages[i]));
            out->predicted[w] += f->predicted[w];
            out->right[w] += f->predicted_right[w];
        }
    }
    sl_engine_destroy(&e);
    assert_int_equal(source.n_open, 0);
    assert_int_equal(source.stats.used_bytes, 0);
}

static void free_outcome(struct outcome *o) {
    for (uint32_t i = 0; i < N_RUNS; i++)
        free_run(o->run[i]);
}

/* What it took is left in have for the caller. */
static void check(const struct sl_model *m, const struct setting *s, const struct outcome *want,
                  struct outcome *have) {
    run_setting(m, s, have);
    for (uint32_t i = 0; i < N_RUNS; i++)
        for (uint32_t j = 0; j < N_ANSWER; j++) {
            const struct sl_token *a = &want->run[i]->tokens[j], *b = &have->run[i]->tokens[j];
            if (a->id != b->id || memcmp(&a->logprob, &b->logprob, sizeof a->logprob) != 0)
                fail_msg("%s: request %u differs at token %u: %u (%.9g), not %u (%.9g)",
                         describe(s), i, j, b->id, (double)b->logprob, a->id, (double)a->logprob);
            assert_int_equal(a->n_top, want->run[i]->req.n_top_logprobs);
            assert_int_equal(b->n_top, a->n_top);
            assert_memory_equal(a->top, b->top, a->n_top * sizeof *a->top);
        }
    /* A card that has the last layers has looked at each row that was sampled from, and at none
     * that was scored. */
    bool cpu_last = s->card.n_cards && s->card.plain >> (s->card.n_cards - 1) & 1;
    assert_int_equal(have->card.n_maxima, cpu_last ? 0 : N_RUNS * N_ANSWER);
    for (uint32_t i = 0; i < N_SCORE; i++)
        if (want->logits_crc[i] != have->logits_crc[i])
            fail_msg("%s: the logits of position %u differ", describe(s), i);
    free_outcome(have);
}

static struct sl_synth_config small(const char *arch) {
    struct sl_synth_config c = sl_synth_default;
    c.arch = arch;
    c.n_layer = 4;
    c.n_embd = 256;
    c.n_head = 4;
    c.n_head_kv = 2;
    c.head_dim = 32;
    c.n_ff_expert = 256;
    c.n_vocab = 650; /* the last block is short */
    c.n_ctx = 512;
    c.n_expert = 13;
    c.n_expert_used = 3;
    c.n_expert_used_odd = 2;
    c.gate = (struct sl_synth_types){{SL_DTYPE_Q4_K, SL_DTYPE_Q6_K}, 2};
    c.up = (struct sl_synth_types){{SL_DTYPE_Q4_K}, 1};
    c.down = (struct sl_synth_types){{SL_DTYPE_Q6_K, SL_DTYPE_Q8_0}, 2};
    return c;
}

static struct test_model model;
static struct outcome want;

static int open_subject(void **state) {
    (void)state;
    struct sl_synth_config c = small("qwen3moe");
    open_model(&model, &c);
    run_setting(model.model, &(struct setting){.cpu = true, .parallel = 1, .batch = 64}, &want);
    uint32_t distinct = 0;
    for (uint32_t j = 1; j < N_ANSWER; j++)
        distinct += want.run[1]->tokens[j].id != want.run[1]->tokens[j - 1].id;
    assert_true(distinct > N_ANSWER / 3);
    return 0;
}

static int close_subject(void **state) {
    (void)state;
    free_outcome(&want);
    close_model(&model);
    return 0;
}

static void all_resident(void **state) {
    (void)state;
    struct outcome have;
    for (uint32_t i = 0; i < 4; i++) {
        struct setting s = {.where = SL_EXPERTS_RESIDENT,
                            .parallel = i ? 8 : 1,
                            .batch = i ? 37 : 128,
                            .card = {.no_graphs = i == 2, .no_fused = i == 3}};
        check(model.model, &s, &want, &have);
        assert_int_equal(have.n_device_slots, 0);
        if (s.card.no_graphs)
            assert_int_equal(have.card.n_replays, 0);
        else
            assert_true(have.card.n_replays > 8 && have.card.n_graphs <= s.parallel);
        assert_true((have.card.n_fused > 0) == !(s.card.no_graphs || s.card.no_fused));
    }
}

/* Of steps whose requests all take the largest logit no logits come back. */
static void greedy(void **state) {
    (void)state;
    struct outcome plain, have;
    uint32_t n_vocab = model.model->hp.n_vocab;
    run_setting(model.model,
                &(struct setting){.cpu = true, .parallel = 2, .batch = 64, .greedy = true}, &plain);
    for (uint32_t i = 0; i < 4; i++) {
        struct setting s = {.where = i % 2 ? SL_EXPERTS_STREAMED : SL_EXPERTS_RESIDENT,
                            .device_percent = 50,
                            .host_percent = 50,
                            .parallel = i < 2 ? 1 : 8,
                            .batch = i < 2 ? 128 : 37,
                            .card = {.no_graphs = i == 3, .mailbox = i == 1},
                            .greedy = true};
        check(model.model, &s, &plain, &have);
        uint64_t scored = N_SCORE * n_vocab * sizeof(float);
        assert_true(have.card.back_bytes < scored + N_RUNS * N_ANSWER * ROW_BYTES(n_vocab));
    }
    free_outcome(&plain);
    check(model.model, &(struct setting){.where = SL_EXPERTS_RESIDENT, .parallel = 1, .batch = 64},
          &want, &have);
    assert_true(have.card.back_bytes > N_RUNS * N_ANSWER * ROW_BYTES(n_vocab));
    struct setting two = {.where = SL_EXPERTS_RESIDENT,
                          .parallel = 8,
                          .batch = 64,
                          .card = {.n_threads = 1, .n_cards = 2},
                          .split = "2,2",
                          .greedy = true};
    run_setting(model.model,
                &(struct setting){.cpu = true, .parallel = 1, .batch = 64, .greedy = true}, &plain);
    check(model.model, &two, &plain, &have);
    free_outcome(&plain);
}

/* Shared experts, a dense first part of the path, and every other kind of layer: on one card, and
 * divided over two and four. */
static void other_shapes(void **state) {
    (void)state;
    static const char *const archs[] = {
        "qwen2moe",       "llama",       "qwen3",     "qwen3next",     "deepseek2",    "gemma4",
        "llama4",         "afmoe",       "arctic",    "cohere2moe",    "smallthinker", "step35",
        "maple",          "phimoe",      "lfm2moe",   "granitehybrid", "jamba",        "deepseek32",
        "nemotron_h_moe", "kimi-linear", "grovemoe",  "bailingmoe3",   "minimax-m3",   "dots3note",
        "deepseek4",      "gemma4",      "qwen35moe", "gpt-oss",       "mimo2",        "laguna",
        "glm-dsa",        "mistral4",    "gemma4",    "kimi-k3",       "qwen4exp"};
    static const struct setting settings[] = {
        {.where = SL_EXPERTS_STREAMED,
         .device_percent = 40,
         .host_percent = 40,
         .parallel = 8,
         .batch = 64},
        {.where = SL_EXPERTS_STREAMED,
         .host_percent = 100,
         .parallel = 1,
         .batch = 64,
         .card.mailbox = true},
    };
    static const struct setting over[] = {
        {.where = SL_EXPERTS_RESIDENT,
         .parallel = 8,
         .batch = 37,
         .card = {.n_threads = 1, .n_cards = 2},
         .split = "1,3"},
        {.where = SL_EXPERTS_STREAMED,
         .device_percent = 40,
         .host_percent = 60,
         .parallel = 3,
         .batch = 64,
         .card = {.n_threads = 1, .n_cards = 4},
         .split = "1,1,1,1"},
    };
    for (uint32_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        struct sl_synth_config c = small(archs[i]);
        struct test_model m;
        struct outcome plain, have;
        if (i == 0)
            c.n_ff_shared = 256;
        if (i == 4)
            c.n_ff_shared = c.n_ff_expert;
        if (i == 5)
            c.window_period = 2, c.window = 24, c.head_dim_window = 64, c.logit_softcap = 30;
        if (i == 6)
            c.n_expert_used = 1, c.n_expert_used_odd = 0;
        if (i == 2)
            c.n_expert = c.n_expert_used = c.n_expert_used_odd = 0, c.n_ff = 256;
        if (i == 17)
            c.n_ff_shared = c.n_ff_expert, c.n_lora_q = 64, c.n_index_top = 20;
        if (i >= 22 && i < 25) /* of deepseek4 blocks, of which a prompt has more */
            c.n_ff_shared = c.n_ff_expert, c.n_index_top = i == 22 ? 3 : 20, c.index_block = 7;
        if (i == 20)
            c.n_expert = 12, c.n_per_adjugate = 3, c.n_ff_adjugate = 96;
        if (i == 25) /* embeddings of layers, the last of which read keys of others */
            c.n_layer = 8, c.window_period = 2, c.window = 24, c.n_embd_layer = 32,
            c.n_shared_kv = 2, c.tied = true;
        if (i == 32) /* whose ends are within blocks */
            c.n_embd_layer = 40;
        if (i >= 27 && i < 30)
            c.window = 24;
        if (i == 28)
            c.head_dim_v = 24;
        if (i == 33)
            c.n_ff_shared = c.n_ff_expert, c.n_expert_latent = 96;
        if (i == 30 || i == 31)
            c.n_ff_shared = c.n_ff_expert, c.n_lora_q = 64;
        if (i == 30) /* each second layer attends to what the one before it chose */
            c.n_index_top = 20, c.index_every = 2;
        if (i == 34) /* the layer with n-grams is on another device than the tokens' embeddings */
            c.n_index_top = 16, c.index_block = 4;
        open_model(&m, &c);
        run_setting(m.model, &(struct setting){.cpu = true, .parallel = 2, .batch = 64}, &plain);
        /* One card's messages do not tell where its experts are: these take turns there. */
        uint32_t turn = behind_bytes ? i % 3 : 3;
        if (turn >= 2 || i == 2)
            check(m.model,
                  &(struct setting){.where = SL_EXPERTS_RESIDENT, .parallel = 8, .batch = 64},
                  &plain, &have);
        for (uint32_t k = 0; k < 2 && i != 2; k++)
            if (turn == k || turn == 3)
                check(m.model, &settings[k], &plain, &have);
        for (uint32_t k = i % BY_BUILD(1, 2, 2); k < 2; k += BY_BUILD(1, 2, 2)) {
            struct setting s = over[k];
            if (i == 25) /* layers that read another's keys are on its device */
                s.split = k ? "1,1,2,4" : "3,5";
            if (i == 2)
                s.where = SL_EXPERTS_RESIDENT;
            if (i == 30) {
                s.split = "2,2";
                s.card.n_cards = 2;
            }
            check(m.model, &s, &plain, &have);
            assert_int_equal(have.n_stages, s.card.n_cards);
        }
        free_outcome(&plain);
        close_model(&m);
    }
}

/* Layers of 4, 13 and 7 experts and a dense one: resident, in tiers, predicted, some on the CPU,
 * and over cards that each have other layers. */
static void experts_by_layer(void **state) {
    (void)state;
    struct sl_synth_config c = small("qwen3moe");
    static const uint32_t n[] = {4, 13, 0, 7};
    static const struct {
        const char *split;
        uint32_t n_cards, device_percent, host_percent, parallel;
        bool mailbox, lane, warm;
    } over[] = {
        {NULL, 0, 101, 0, 8, false, false, false},     {NULL, 0, 50, 50, 1, true, false, true},
        {NULL, 0, 25, 30, 8, false, false, false},     {NULL, 0, 0, 35, 1, true, false, false},
        {NULL, 0, 25, 100, 8, false, true, false},     {NULL, 0, 100, 100, 1, false, false, true},
        {"2,2", 2, 101, 0, 3, false, false, false},    {"1,3", 2, 50, 50, 8, false, false, true},
        {"1,1,1,1", 4, 40, 60, 1, false, false, false}};
    memcpy(c.n_expert_each, n, sizeof n);
    c.n_each = 4;
    c.n_ff = 256;
    struct test_model m;
    struct outcome plain, have;
    open_model(&m, &c);
    run_setting(m.model, &(struct setting){.cpu = true, .parallel = 2, .batch = 64}, &plain);
    for (uint32_t i = 0; i < sizeof over / sizeof over[0]; i++) {
        bool resident = over[i].device_percent > 100;
        struct setting s = {.where = resident ? SL_EXPERTS_RESIDENT : SL_EXPERTS_STREAMED,
                            .device_percent = over[i].device_percent,
                            .host_percent = over[i].host_percent,
                            .parallel = over[i].parallel,
                            .batch = i % 2 ? 64 : 37,
                            .card = {.n_threads = over[i].split ? 1 : 0,
                                     .n_cards = over[i].n_cards,
                                     .mailbox = over[i].mailbox,
                                     .lane = over[i].lane,
                                     .no_placed = i == 2},
                            .lane = over[i].lane ? 50 : 0,
                            .warm = over[i].warm,
                            .split = over[i].split};
        check(m.model, &s, &plain, &have);
        assert_int_equal(have.n_experts, 4 + 13 + 7);
        if (over[i].device_percent == 100) {
            assert_int_equal(have.tiers.demotions, 0);
            assert_true(have.tiers.promotions <= have.n_experts);
        }
    }
    free_outcome(&plain);
    close_model(&m);
}

static uint64_t lane_experts(void) {
    return (uint64_t)sl_metric(lane_experts_total);
}

/* The CPU computes none, some or all of the experts that the card lacks. */
static void lane(void **state) {
    (void)state;
    static const uint32_t shares[] = {25, 50, 100, 0};
    uint64_t some = 0;
    for (uint32_t i = 0; i < 12; i++) {
        struct setting s = {.where = SL_EXPERTS_STREAMED,
                            .device_percent = i % 3 ? 25 : 0,
                            .host_percent = i % 2 ? 100 : 30,
                            .parallel = i % 4 < 2 ? 1 : 8,
                            .batch = i % 3 ? 64 : 150,
                            .card = {.lane = true,
                                     .eager_copies = i % 2,
                                     .no_graphs = i == 5,
                                     .no_placed = i == 7,
                                     .mailbox = i % 3 == 1},
                            .lane = shares[i / 3],
                            .warm = i == 4};
        struct outcome have;
        uint64_t before = lane_experts();
        check(model.model, &s, &want, &have);
        uint64_t n = lane_experts() - before;
        some += n;
        assert_true(n > 0 || !s.lane);
        if (s.lane == 100 && s.device_percent) {
            uint64_t up_bytes = have.tiers.up_bytes;
            s.card.lane = false;
            check(model.model, &s, &want, &have);
            assert_true(up_bytes < have.tiers.up_bytes);
        }
    }
    print_message("%llu experts were computed by the CPU\n", (unsigned long long)some);
}

/* With shared experts, weights on inputs, rows of their own before a norm; and over two cards. */
static void lane_shapes(void **state) {
    (void)state;
    static const char *const archs[] = {"qwen2moe", "deepseek2",    "gemma4",
                                        "llama4",   "smallthinker", "gpt-oss"};
    for (uint32_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        struct sl_synth_config c = small(archs[i]);
        struct test_model m;
        struct outcome plain, have;
        if (i == 0)
            c.n_ff_shared = 256;
        if (i == 1)
            c.n_ff_shared = c.n_ff_expert;
        if (i == 2)
            c.window_period = 2, c.window = 24, c.head_dim_window = 64, c.logit_softcap = 30;
        if (i == 3)
            c.n_expert_used = 1, c.n_expert_used_odd = 0;
        open_model(&m, &c);
        run_setting(m.model, &(struct setting){.cpu = true, .parallel = 2, .batch = 64}, &plain);
        for (uint32_t k = 0; k < 2; k++) {
            struct setting s = {.where = SL_EXPERTS_STREAMED,
                                .device_percent = 20,
                                .host_percent = 100,
                                .parallel = k ? 8 : 1,
                                .batch = 64,
                                .card = {.lane = true, .mailbox = k},
                                .lane = k ? 100 : 60};
            uint64_t before = lane_experts();
            check(m.model, &s, &plain, &have);
            assert_true(lane_experts() > before);
        }
        free_outcome(&plain);
        close_model(&m);
    }
    struct outcome have;
    struct setting two = {.where = SL_EXPERTS_STREAMED,
                          .device_percent = 25,
                          .host_percent = 100,
                          .parallel = 8,
                          .batch = 64,
                          .card = {.n_threads = 1, .n_cards = 2, .lane = true},
                          .split = "2,2",
                          .lane = 50};
    uint64_t before = lane_experts();
    check(model.model, &two, &want, &have);
    assert_true(lane_experts() > before);
}

static void tiers(void **state) {
    (void)state;
    static const uint32_t percents[] = {100, 75, 50, 25, 0};
    uint64_t early = 0, early_used = 0, predictions = 0, measured = 0;
    for (uint32_t d = 0; d < 5; d++)
        for (uint32_t h = 0; h < 5; h += 2) {
            struct setting s = {.where = SL_EXPERTS_STREAMED,
                                .device_percent = percents[d],
                                .host_percent = percents[h],
                                .parallel = (d + h / 2) % 2 ? 8 : 1,
                                .batch = (d + h) % 3 ? 64 : 150,
                                .card = {.eager_copies = (d / 2 + h / 2) % 2,
                                         .no_graphs = d == 3 && h == 2,
                                         .no_placed = d == 2,
                                         .mailbox = (d + h / 2) % 3 == 0},
                                .warm = d < 2 && h < 3,
                                .measure = d % 2};
            struct outcome have;
            check(model.model, &s, &want, &have);
            assert_true(have.n_device_slots * 100 >= have.n_experts * percents[d]);
            assert_true(have.tiers.promotions > 0);
            assert_true(have.tiers.device_hits > 0 || percents[d] == 100);
            assert_true(have.card.up_bytes == have.tiers.up_bytes);
            assert_true(have.card.down_bytes == have.tiers.down_bytes);
            assert_true(s.card.no_graphs == (have.card.n_replays == 0));
            early += have.tiers.early;
            early_used += have.tiers.early_used;
            predictions += s.card.mailbox && s.parallel == 1 ? have.predictions : 0;
            measured += have.n_measured;
            if (percents[d] == 100)
                assert_int_equal(have.tiers.demotions, 0);
            if (percents[d] == 100 && s.warm)
                assert_int_equal(have.tiers.promotions, have.n_experts);
        }
    /* What was copied early was right and wrong, of prompts and of predictions. */
    assert_true(early_used > 0 && early_used < early);
    assert_true(predictions > 0);
    assert_true(measured >= 4);
}

/* Early routers of one sequence name experts that are on disk, of the next layer more often than
 * chance would, and of the one after it; answers stay. */
static void predictions_from_disk(void **state) {
    (void)state;
    struct outcome have;
    const struct setting s = {.where = SL_EXPERTS_STREAMED,
                              .host_percent = 35,
                              .parallel = 1,
                              .batch = 64,
                              .card.mailbox = true};
    check(model.model, &s, &want, &have);
    assert_true(have.right[0] * 13 > have.predicted[0] * 3);
    assert_true(have.predicted[0] > 10 && have.predicted[1] > 10 && have.right[1] > 0);
}

static void integrated(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct outcome have;
        struct setting s = {.where = i ? SL_EXPERTS_STREAMED : SL_EXPERTS_RESIDENT,
                            .host_percent = 50,
                            .parallel = 8,
                            .batch = 64,
                            .card = {.integrated = true},
                            .measure = true};
        check(model.model, &s, &want, &have);
        assert_int_equal(have.card.up_bytes, 0);
        assert_int_equal(have.n_device_slots, 0);
        assert_int_equal(have.n_measured, i ? 2 : 0);
    }
}

/* The layers over several cards, with several steps under way. */
static void stages(void **state) {
    (void)state;
    static const struct {
        const char *split;
        uint32_t n, device_percent, host_percent;
    } over[] = {{"2,2", 2, 101, 0}, {"1,3", 2, 50, 50},  {"1,1,1,1", 4, 101, 0},
                {"3,1", 2, 100, 0}, {"1,2,1", 3, 25, 0}, {"1,1,1,1", 4, 60, 100},
                {"2,2", 2, 0, 100}};
    uint32_t measured = 0;
    for (uint32_t i = 0; i < sizeof over / sizeof over[0]; i++)
        for (uint32_t parallel = BY_BUILD(1, 3, 3); parallel <= 8;
             parallel += parallel == 1 ? 2 : 5) {
            struct outcome have;
            struct setting s = {.where = over[i].device_percent > 100 ? SL_EXPERTS_RESIDENT
                                                                      : SL_EXPERTS_STREAMED,
                                .device_percent = over[i].device_percent,
                                .host_percent = over[i].host_percent,
                                .parallel = parallel,
                                .batch = parallel == 3 ? 29 : 64,
                                .card = {.n_threads = 1,
                                         .n_cards = over[i].n,
                                         .eager_copies = i % 2,
                                         .no_peers = parallel == 8 && i % 3 == 0,
                                         .no_sends = parallel == 3 && i % 2},
                                .measure = parallel == 3,
                                .split = over[i].split};
            check(model.model, &s, &want, &have);
            measured += have.n_measured;
            assert_int_equal(have.n_stages, over[i].n);
            assert_true(have.card.n_replays > 0);
            bool copies = !behind_bytes && !s.card.no_peers;
            assert_true(copies == (have.card.n_peer_copies > 0));
            assert_true((copies && !s.card.no_sends) == (have.card.n_receives > 0));
        }
    assert_true(measured >= 2);
}

/* Weights, KV and experts in many buffers, hosts' slots among them; and a card that knows its
 * memory and the host's by the host's own addresses. */
static void buffers(void **state) {
    (void)state;
    static const struct {
        const char *split;
        bool integrated;
        uint32_t device_percent, host_percent;
    } over[] = {{NULL, false, 101, 0},
                {NULL, false, 50, 50},
                {NULL, false, 0, 100},
                {NULL, true, 0, 50},
                {"2,2", false, 50, 50}};
    for (uint32_t i = 0; i < sizeof over / sizeof over[0]; i++) {
        uint64_t n_allocs[2], n_maps[2];
        for (uint32_t few = 0; few < 2; few++) {
            struct outcome have;
            struct setting s = {.where = over[i].device_percent > 100 ? SL_EXPERTS_RESIDENT
                                                                      : SL_EXPERTS_STREAMED,
                                .device_percent = over[i].device_percent,
                                .host_percent = over[i].host_percent,
                                .parallel = i % 2 ? 1 : 8,
                                .batch = 64,
                                .card = {.n_threads = 1,
                                         .n_cards = over[i].split ? 2 : 1,
                                         .integrated = over[i].integrated,
                                         .mailbox = i == 1,
                                         .same_addresses = few,
                                         .max_alloc_bytes = few ? FEW_BYTES : 0},
                                .split = over[i].split};
            check(model.model, &s, &want, &have);
            n_allocs[few] = have.card.n_allocs;
            n_maps[few] = have.card.n_maps;
        }
        bool resident = over[i].device_percent > 100;
        /* With the least slots for experts two more: weights and KV take more than one each. */
        assert_true(over[i].integrated || n_allocs[1] >= n_allocs[0] + 2);
        assert_true(resident ? n_maps[1] == n_maps[0] : n_maps[1] > n_maps[0]);
    }
}

/* Dense weights that take more than one of the card's largest buffers, which has 64 MiB. */
static void large(void **state) {
    (void)state;
    struct sl_synth_config c = small("qwen3moe");
    struct test_model m;
    struct outcome plain, have;
    c.n_layer = 2;
    c.n_vocab = 60000;
    c.embd = c.output = SL_DTYPE_F32;
    open_model(&m, &c);
    run_setting(m.model, &(struct setting){.cpu = true, .parallel = 4, .batch = 64}, &plain);
    check(m.model, &(struct setting){.where = SL_EXPERTS_RESIDENT, .parallel = 4, .batch = 64},
          &plain, &have);
    assert_true(have.card.most_bytes > CARD_MAX_ALLOC_BYTES * 3 / 2);
    check(m.model,
          &(struct setting){.where = SL_EXPERTS_STREAMED,
                            .device_percent = 50,
                            .host_percent = 50,
                            .parallel = 4,
                            .batch = 64},
          &plain, &have);
    check(m.model,
          &(struct setting){.where = SL_EXPERTS_RESIDENT,
                            .parallel = 4,
                            .batch = 64,
                            .card = {.n_cards = 2},
                            .split = "1,1"},
          &plain, &have);
    free_outcome(&plain);
    close_model(&m);
}

/* Devices of different kinds, which hand rows over by way of the host's memory: cards and the CPU.
 */
static void kinds(void **state) {
    (void)state;
    static const struct {
        const char *split;
        uint32_t n, plain, device_percent, host_percent;
    } over[] = {{"2,2", 2, 2, 101, 0}, {"2,2", 2, 1, 101, 0},   {"1,3", 2, 2, 50, 50},
                {"3,1", 2, 1, 50, 50}, {"1,2,1", 3, 2, 25, 30}, {"1,1,1,1", 4, 5, 101, 0},
                {"1,2,1", 3, 5, 0, 60}};
    for (uint32_t i = 0; i < sizeof over / sizeof over[0]; i++)
        for (uint32_t parallel = BY_BUILD(1, 8, 8); parallel <= 8; parallel += 7) {
            struct outcome have;
            struct setting s = {.where = over[i].device_percent > 100 ? SL_EXPERTS_RESIDENT
                                                                      : SL_EXPERTS_STREAMED,
                                .device_percent = over[i].device_percent,
                                .host_percent = over[i].host_percent,
                                .parallel = parallel,
                                .batch = parallel == 8 ? 29 : 64,
                                .card = {.n_threads = 1 + i % 2,
                                         .n_cards = over[i].n,
                                         .plain = over[i].plain,
                                         .eager_copies = i % 2},
                                .split = over[i].split};
            check(model.model, &s, &want, &have);
            assert_int_equal(have.n_stages, over[i].n);
            assert_true(have.card.n_ops > 0 && have.card.n_replays > 0);
            assert_int_equal(have.card.n_receives, 0);
            if (!have.card.n_relays) /* which two cards may have beside the CPU */
                assert_int_equal(have.card.n_peer_copies, 0);
        }
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffers),
        cmocka_unit_test(large),
        cmocka_unit_test(kinds),
        cmocka_unit_test(all_resident),
        cmocka_unit_test(greedy),
        cmocka_unit_test(tiers),
        cmocka_unit_test(lane),
        cmocka_unit_test(lane_shapes),
        cmocka_unit_test(predictions_from_disk),
        cmocka_unit_test(integrated),
        cmocka_unit_test(stages),
        cmocka_unit_test(other_shapes),
        cmocka_unit_test(experts_by_layer),
    };
    return cmocka_run_group_tests(tests, open_subject, close_subject);
}
