/* Where experts are decides the speed, never the answer: whole runs with all experts resident,
 * compared bit for bit with runs whose experts pass through slots, over budgets, ways of reading,
 * threads, look-ahead, mirrors, batches, heat, and measurements of the disk in between. Compared
 * are ids, log-probabilities of the chosen and of the likeliest tokens, and every logit of a scored
 * text. */
#include "tests/support/budget.h"
#include "tests/support/quick_dir.h"
#include "tests/support/slow_build.h"

#include "common/crc.h"
#include "common/metrics.h"
#include "engine/engine.h"
#include "engine/schedule/schedule.h"
#include "model/tokenizer/tokenizer.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#define N_RUNS   BY_BUILD(6u, 4u, 4u)
#define N_SCORE  45u
#define N_ANSWER BY_BUILD(16u, 9u, 9u)

static uint64_t total_tokens, total_logits, total_measured;
static uint32_t n_models;

/* ---- models ---- */

struct subject {
    const char *name;
    const char *file; /* one that is there; NULL: made from config */
    const struct sl_synth_config *config;
    bool every; /* every budget with every way of reading, which the other models share out */
    char folder[64], mirror[64], path[128];
    struct sl_model *model;
    const uint32_t *text; /* of the demo: ids of a real text */
    uint32_t n_text;
};

static void copy_file(const char *from, const char *to) {
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    assert_non_null(in);
    assert_non_null(out);
    static char buf[1 << 16];
    for (size_t n; (n = fread(buf, 1, sizeof buf, in)) > 0;)
        assert_int_equal(fwrite(buf, 1, n, out), n);
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

static void empty_folder(const char *path) {
    DIR *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.')
            unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    rmdir(path);
}

/* Makes the model and its copy, in folders of their own. */
static void open_subject(struct subject *s) {
    snprintf(s->folder, sizeof s->folder, "%s/sluice-test-XXXXXX", quick_dir());
    snprintf(s->mirror, sizeof s->mirror, "%s/sluice-test-XXXXXX", quick_dir());
    assert_non_null(mkdtemp(s->folder));
    assert_non_null(mkdtemp(s->mirror));
    if (s->file) {
        snprintf(s->path, sizeof s->path, "%s/m.gguf", s->folder);
        copy_file(s->file, s->path);
    } else if (s->config->n_split > 1) {
        snprintf(s->path, sizeof s->path, "%s/m", s->folder);
        assert_ok(sl_synth_write(s->config, s->path, NULL, NULL, &test_err));
        snprintf(s->path, sizeof s->path, "%s/m-00001-of-%05u.gguf", s->folder, s->config->n_split);
    } else {
        snprintf(s->path, sizeof s->path, "%s/m.gguf", s->folder);
        assert_ok(sl_synth_write(s->config, s->path, NULL, NULL, &test_err));
    }
    assert_ok(sl_model_open(s->path, &s->model, &test_err));
    for (uint32_t i = 0; i < sl_gguf_n_files(s->model->gguf); i++) {
        const char *path = sl_gguf_file_path(s->model->gguf, i);
        char copy[256];
        snprintf(copy, sizeof copy, "%s%s", s->mirror, strrchr(path, '/'));
        copy_file(path, copy);
    }
}

static void close_subject(struct subject *s) {
    sl_model_close(&s->model);
    empty_folder(s->folder);
    empty_folder(s->mirror);
}

/* ---- settings ---- */

enum io { IO_URING, IO_PREAD, IO_BUFFERED };

struct setting {
    bool resident;
    uint32_t percent; /* of the experts that have slots; 0: as few as can be */
    enum io io;
    uint32_t threads, parallel, batch;
    bool no_ahead, mirror, park;
    bool measure;       /* how fast the disk is, before the last text */
    const char *heat;   /* folder */
    bool wait_for_warm; /* begin when the warm-up has read something */
};

struct outcome {
    struct run *run[N_RUNS];
    uint32_t logits_crc[N_SCORE];
};

static const char *describe(const struct setting *s) {
    static const char *const io[] = {"io_uring", "pread", "buffered"};
    static char text[200];
    if (s->resident)
        snprintf(text, sizeof text, "resident, %u threads, %u at once", s->threads, s->parallel);
    else
        snprintf(text, sizeof text,
                 "%u %% of the experts, %s, %u threads, %u at once, batch %u%s%s%s%s%s", s->percent,
                 io[s->io], s->threads, s->parallel, s->batch, s->no_ahead ? "" : ", look-ahead",
                 s->mirror ? ", mirror" : "", s->heat ? ", heat" : "", s->park ? ", parked" : "",
                 s->measure ? ", measured" : "");
    return text;
}

/* The first four are those of a sanitizer's build: the shortest and the longest among them. */
static uint32_t prompt_tokens(uint32_t i) {
    static const uint32_t n[] = {1, 40, 300, 65, 150, 17, 100, 230};
    return n[i];
}

static struct run *make_run(const struct subject *s, uint32_t i) {
    struct run *r = new_run(71 + i, prompt_tokens(i), s->model->hp.n_vocab, N_ANSWER);
    for (uint32_t t = 0; s->n_text && t < prompt_tokens(i); t++)
        r->prompt[t] = s->text[(t + 37 * i) % s->n_text];
    r->req.logprobs = true;
    r->req.n_top_logprobs = SL_MAX_TOP_LOGPROBS;
    r->req.ignore_eog = true;
    if (i % 2) { /* the others are greedy */
        r->req.sampling.temperature = i % 4 == 1 ? 1.2f : 0.7f;
        r->req.sampling.top_k = i % 4 == 1 ? 0 : 40;
        r->req.sampling.repeat_penalty = 1.1f;
        r->req.sampling.repeat_last_n = 64;
        r->req.sampling.seed = i;
    }
    return r;
}

struct scored {
    struct sl_engine *e;
    struct outcome *out;
    uint64_t mirror_bytes, file_bytes;
};

/* On the scheduler's thread, which owns the reader. */
static bool on_logits(void *ctx, uint32_t pos, const float *logits) {
    struct scored *s = ctx;
    s->out->logits_crc[pos] = sl_crc32c(0, logits, s->e->model->hp.n_vocab * sizeof *logits);
    if (s->e->stages->store) {
        const struct sl_reader *r = sl_store_reader(s->e->stages->store);
        s->file_bytes = sl_reader_copy_bytes(r, 0, 0);
        s->mirror_bytes = sl_reader_copy_bytes(r, 0, 1);
    }
    return true;
}

static void wait_for_metric(uint64_t before) {
    for (uint32_t i = 0; i < 12000 && (uint64_t)sl_metric(expert_warmups_total) == before; i++)
        usleep(5000);
    assert_true((uint64_t)sl_metric(expert_warmups_total) > before);
}

/* False when this machine lacks the way of reading. */
static bool run_setting(const struct subject *s, const struct setting *t, struct outcome *out) {
    const char *mirrors[] = {s->mirror};
    struct sl_engine_config c = {.n_threads = t->threads,
                                 .ctx_tokens = 400,
                                 .parallel = t->parallel,
                                 .batch_tokens = t->batch,
                                 .io = t->io == IO_URING   ? SL_EXPERTS_IO_URING
                                       : t->io == IO_PREAD ? SL_EXPERTS_IO_PREAD
                                                           : SL_EXPERTS_IO_AUTO,
                                 .io_buffered = t->io == IO_BUFFERED,
                                 .no_lookahead = t->no_ahead,
                                 .mirrors = mirrors,
                                 .n_mirrors = t->mirror,
                                 .heat_file = t->heat,
                                 .no_warm_up = !t->wait_for_warm};
    uint64_t misses = (uint64_t)sl_metric(expert_misses_total);
    uint64_t warmups = (uint64_t)sl_metric(expert_warmups_total);
    uint32_t n_slots = 0;
    if (t->resident) {
        c.experts = SL_EXPERTS_RESIDENT;
        c.ram_bytes = AMPLE_BYTES;
    } else {
        n_slots = set_budget(s->model, &c, t->percent);
    }
    struct sl_engine *e;
    enum sl_status status = sl_engine_create(s->model, &c, NULL, &e, &test_err);
    if (status == SL_ERR_UNSUPPORTED && t->io == IO_URING) {
        print_message("not compared: %s: %s\n", describe(t), test_err.text);
        return false;
    }
    if (status != SL_OK)
        fail_msg("%s: %s: %s", s->name, describe(t), test_err.text);
    if (t->wait_for_warm)
        wait_for_metric(warmups);
    for (uint32_t i = 0; i < N_RUNS; i++) {
        out->run[i] = make_run(s, i);
        out->run[i]->park_every = t->park ? 5 + i : 0;
        submit(e, out->run[i]);
    }
    for (uint32_t i = 0; i < N_RUNS; i++) {
        struct run *r = out->run[i];
        wait_run(r);
        if (r->result.status != SL_OK || r->n != N_ANSWER)
            fail_msg("%s: %s: %u tokens: %s", s->name, describe(t), r->n, r->result.err.text);
    }
    if (t->measure)
        total_measured += measure_disk(e, 0.02);
    struct scored scored = {.e = e, .out = out};
    assert_ok(sl_engine_score(e, out->run[2]->prompt, N_SCORE, on_logits, &scored, &test_err));
    if (n_slots) {
        assert_true((uint64_t)sl_metric(expert_misses_total) > misses);
        assert_true(scored.file_bytes + scored.mirror_bytes > 0);
    }
    if (t->mirror)
        assert_true(scored.file_bytes > 0 && scored.mirror_bytes > 0);
    sl_engine_destroy(&e);
    return true;
}

static void free_outcome(struct outcome *o) {
    for (uint32_t i = 0; i < N_RUNS; i++)
        free_run(o->run[i]);
}

static void compare(const struct subject *s, const struct setting *t, const struct outcome *want,
                    const struct outcome *have) {
    for (uint32_t i = 0; i < N_RUNS; i++)
        for (uint32_t j = 0; j < N_ANSWER; j++) {
            const struct sl_token *a = &want->run[i]->tokens[j], *b = &have->run[i]->tokens[j];
            bool same = a->id == b->id && a->n_top == b->n_top &&
                        memcmp(&a->logprob, &b->logprob, sizeof a->logprob) == 0;
            for (uint32_t k = 0; same && k < a->n_top; k++)
                same = a->top[k].id == b->top[k].id &&
                       memcmp(&a->top[k].logprob, &b->top[k].logprob, sizeof(float)) == 0;
            if (!same)
                fail_msg("%s: %s: request %u differs at token %u: %u (%.9g), not %u (%.9g)",
                         s->name, describe(t), i, j, b->id, (double)b->logprob, a->id,
                         (double)a->logprob);
            total_tokens++;
        }
    for (uint32_t i = 0; i < N_SCORE; i++)
        if (want->logits_crc[i] != have->logits_crc[i])
            fail_msg("%s: %s: the logits of position %u differ", s->name, describe(t), i);
    total_logits += N_SCORE;
}

static void check(const struct subject *s, const struct setting *t, const struct outcome *want) {
    struct outcome have;
    if (!run_setting(s, t, &have))
        return;
    compare(s, t, want, &have);
    free_outcome(&have);
}

/* The answers must be able to differ: they are neither constant nor all alike. */
static void check_answers(const struct outcome *o) {
    uint32_t distinct = 0, alike = 0;
    for (uint32_t j = 1; j < N_ANSWER; j++)
        distinct += o->run[1]->tokens[j].id != o->run[1]->tokens[j - 1].id;
    for (uint32_t j = 0; j < N_ANSWER; j++)
        alike += o->run[1]->tokens[j].id == o->run[3]->tokens[j].id;
    assert_true(distinct > N_ANSWER / 3);
    assert_true(alike < N_ANSWER);
}

static void compare_all(struct subject *s) {
    static const uint32_t percents[] = {100, 75, 50, 25, 0};
    /* Where all meet all, and fewer elsewhere: these models' steps are short, and more threads than
     * CPUs spend them waiting for one another. */
    static const uint32_t threads[][3] = {{1, 1, 2}, {1, 2, 3}};
    static const uint32_t batches[] = {37, 512, 128};
    open_subject(s);
    struct outcome want;
    struct setting alone = {.resident = true, .threads = 1, .parallel = 1, .batch = 512};
    assert_true(run_setting(s, &alone, &want));
    check_answers(&want);
    check(s,
          &(struct setting){.resident = true, .threads = 2 + s->every, .parallel = 8, .batch = 64},
          &want);

    /* Every budget with every way of reading, or with one by turns of the models; the other choices
     * take turns so that each meets each of them. */
    const uint32_t n = n_models++;
    for (uint32_t b = 0; b < 5; b++)
        for (uint32_t io = 0; io < 3; io++) {
            /* ASan is slow, and looks for other mistakes: one way of reading for each budget, and
             * every other budget by turns of the models. */
            if (UNDER_ASAN ? io != b % 3 || (b + n) % 2 : !s->every && io != (b + n) % 3)
                continue;
            struct setting t = {.percent = percents[b],
                                .io = (enum io)io,
                                .threads = threads[s->every][(b + io) % 3],
                                .parallel = (b + io / 2) % 2 ? 8 : 1,
                                .batch = batches[(s->every ? b + 2 * io : b) % 3],
                                .no_ahead = (b + io) % 2,
                                .mirror = (b / 2 + io) % 2,
                                .park = b % 2 && io == 1,
                                .measure = b % 2};
            check(s, &t, &want);
        }
    if ((UNDER_ASAN || !s->every) && n % 2) { /* the rest with every other model */
        free_outcome(&want);
        close_subject(s);
        return;
    }
    /* Cold, and warm with the heat that it leaves. */
    char heat[] = "/tmp/sluice-test-XXXXXX";
    assert_non_null(mkdtemp(heat));
    struct setting t = {.percent = 50,
                        .io = IO_PREAD,
                        .threads = 1 + s->every,
                        .parallel = 8,
                        .batch = 512,
                        .heat = heat};
    check(s, &t, &want);
    t.wait_for_warm = true;
    /* Warming up leaves a layer's top-k slots to demand: here those are all that half would give.
     */
    const struct sl_hparams *hp = &s->model->hp;
    t.percent = hp->n_expert_used == hp->n_expert ? 100 : 50;
    check(s, &t, &want);
    t.percent = hp->n_expert_used == hp->n_expert ? 75 : 25;
    t.parallel = 1;
    check(s, &t, &want);
    empty_folder(heat);
    free_outcome(&want);
    close_subject(s);
}

/* ---- the models ---- */

static void demo_model(void **state) {
    (void)state;
    static const char text[] =
        "<|im_start|>user\nWhat is 17 plus 25, and which of ten, three and forty is the largest? "
        "Tell me a short story about a river, then count from five to twelve.<|im_end|>\n"
        "<|im_start|>assistant\nSeventeen plus twenty-five is 42. The largest is forty. Once "
        "there was a river that ran past an old mill.<|im_end|>\n<|im_start|>user\nSpell the word "
        "river backwards and name the month after March.<|im_end|>\n";
    struct subject s = {.name = "demo", .file = "demo/demo.gguf", .every = true};
    struct sl_model *m;
    struct sl_tokenizer *tok;
    struct sl_ids ids = {0};
    assert_ok(sl_model_open(s.file, &m, &test_err));
    assert_ok(sl_tokenizer_create(m->gguf, &tok, &test_err));
    assert_ok(sl_tokenizer_encode(tok, text, sizeof text - 1, 0, &ids));
    s.text = ids.ids;
    s.n_text = (uint32_t)ids.n;
    assert_true(s.n_text > 50);
    compare_all(&s);
    sl_ids_release(&ids);
    sl_tokenizer_destroy(&tok);
    sl_model_close(&m);
}

static struct sl_synth_config small(const char *arch) {
    struct sl_synth_config c = sl_synth_default;
    c.arch = arch;
    c.n_layer = 5;
    c.n_embd = 256;
    c.n_head = 4;
    c.n_head_kv = 2;
    c.head_dim = 32;
    c.n_ff_expert = 256;
    c.n_vocab = 640;
    c.n_ctx = 512;
    return c;
}

/* Layers of five sizes of experts. */
static void many_size_classes(void **state) {
    (void)state;
    struct sl_synth_config c = small("qwen3moe");
    c.n_expert = 13;
    c.n_expert_used = 3;
    c.gate = (struct sl_synth_types){{SL_DTYPE_Q4_K, SL_DTYPE_Q6_K, SL_DTYPE_Q4_K}, 3};
    c.up = (struct sl_synth_types){{SL_DTYPE_Q4_K, SL_DTYPE_Q5_K}, 2};
    c.down = (struct sl_synth_types){{SL_DTYPE_Q6_K, SL_DTYPE_Q8_0, SL_DTYPE_IQ4_XS}, 3};
    compare_all(&(struct subject){.name = "size classes", .config = &c, .every = true});
}

static void shared_experts_in_parts(void **state) {
    (void)state;
    struct sl_synth_config c = small("qwen2moe");
    c.n_layer = 4;
    c.n_expert = 10;
    c.n_expert_used = 4;
    c.n_ff_shared = 256;
    c.n_split = 3;
    c.gate = c.up = (struct sl_synth_types){{SL_DTYPE_Q5_0, SL_DTYPE_IQ3_S}, 2};
    c.down = (struct sl_synth_types){{SL_DTYPE_Q4_1, SL_DTYPE_MXFP4}, 2};
    compare_all(&(struct subject){.name = "shared experts, three files", .config = &c});
}

static void one_expert_a_token(void **state) {
    (void)state;
    struct sl_synth_config c = small("llama");
    c.n_layer = 3;
    c.n_expert = 6;
    c.n_expert_used = 1;
    c.gate = c.up = (struct sl_synth_types){{SL_DTYPE_Q2_K, SL_DTYPE_Q3_K}, 2};
    compare_all(&(struct subject){.name = "one expert a token", .config = &c});
}

static void all_experts_a_token(void **state) {
    (void)state;
    struct sl_synth_config c = small("olmoe");
    c.n_layer = 3;
    c.n_ff_expert = 160;
    c.n_expert = c.n_expert_used = 5;
    c.gate = (struct sl_synth_types){{SL_DTYPE_F16, SL_DTYPE_BF16}, 2};
    c.up = (struct sl_synth_types){{SL_DTYPE_Q8_0, SL_DTYPE_F16}, 2};
    compare_all(&(struct subject){.name = "all experts for each token", .config = &c});
}

/* Dense layers before those with experts, pages of two sizes, and rows that use one expert in every
 * second layer and three in the others. */
static void layers_that_differ(void **state) {
    (void)state;
    struct sl_synth_config c = small("ernie4_5-moe");
    c.n_layer_dense = 2;
    c.n_head_kv_odd = 4;
    c.n_expert = 12;
    c.n_expert_used = 3;
    c.n_expert_used_odd = 1;
    c.n_ff_shared = 128;
    compare_all(&(struct subject){.name = "layers that differ", .config = &c});
}

/* Each layer has a number of experts of its own, one between them none; two sizes. */
static void experts_by_layer(void **state) {
    (void)state;
    struct sl_synth_config c = small("qwen3moe");
    static const uint32_t n[] = {8, 16, 8, 0, 4};
    memcpy(c.n_expert_each, n, sizeof n);
    c.n_each = 5;
    c.n_expert = 16;
    c.n_expert_used = 3;
    c.n_ff = 192;
    c.up = (struct sl_synth_types){{SL_DTYPE_Q4_K, SL_DTYPE_Q5_K}, 2};
    compare_all(&(struct subject){.name = "experts by layer", .config = &c});
}

/* Windows in every second layer, shorter than the text; sinks; experts with biases. */
static void windows_and_biases(void **state) {
    (void)state;
    struct sl_synth_config c = small("gpt-oss");
    c.n_layer = 4;
    c.window = 24;
    c.rope_base_window = 10000;
    c.n_expert = 9;
    c.n_expert_used = 4;
    c.gate = c.up = (struct sl_synth_types){{SL_DTYPE_MXFP4, SL_DTYPE_Q8_0}, 2};
    c.down = (struct sl_synth_types){{SL_DTYPE_MXFP4}, 1};
    compare_all(&(struct subject){.name = "windows and biases", .config = &c});
}

/* States in place of keys and values in three layers of four, gates on the fourth's attention. */
static void delta_nets(void **state) {
    (void)state;
    struct sl_synth_config c = small("qwen35moe");
    c.n_expert = 11;
    c.n_expert_used = 3;
    c.n_ff_shared = 128;
    c.n_rot = 16;
    c.n_delta_head = 6;
    c.n_delta_head_k = 3;
    c.delta_dim = 40;
    c.attn = (struct sl_synth_types){{SL_DTYPE_Q4_K, SL_DTYPE_Q8_0}, 2};
    compare_all(&(struct subject){.name = "delta nets", .config = &c, .every = true});
}

/* Short convolutions in three layers of four, the first one dense. */
static void short_convolutions(void **state) {
    (void)state;
    struct sl_synth_config c = small("lfm2moe");
    c.n_layer_dense = 1;
    c.n_expert = 11;
    c.n_expert_used = 3;
    c.n_taps = 3;
    c.attn = (struct sl_synth_types){{SL_DTYPE_Q4_K, SL_DTYPE_Q8_0}, 2};
    compare_all(&(struct subject){.name = "short convolutions", .config = &c});
}

/* Mamba-2 in three layers of four, of two groups. */
static void state_spaces(void **state) {
    (void)state;
    struct sl_synth_config c = small("granitehybrid");
    c.n_expert = 11;
    c.n_expert_used = 3;
    c.n_ff_shared = 128;
    c.n_delta_head = 6;
    c.n_delta_head_k = 2;
    c.delta_dim = 40;
    c.n_state = 24;
    c.attn = (struct sl_synth_types){{SL_DTYPE_Q4_K, SL_DTYPE_Q8_0}, 2};
    compare_all(&(struct subject){.name = "state spaces", .config = &c});
}

/* Mamba-1 in two layers of three. */
static void channel_states(void **state) {
    (void)state;
    struct sl_synth_config c = small("jamba");
    c.n_layer = c.attn_every = 3;
    c.n_expert = 11;
    c.n_expert_used = 3;
    c.n_taps = 3;
    c.delta_dim = 20;
    c.n_state = 24;
    c.attn = (struct sl_synth_types){{SL_DTYPE_Q4_K, SL_DTYPE_Q8_0}, 2};
    compare_all(&(struct subject){.name = "states of channels", .config = &c});
}

/* Kimi Delta Attention in three layers of five, latent attention that is not rotated in the others.
 */
static void channel_deltas(void **state) {
    (void)state;
    struct sl_synth_config c = small("kimi-linear");
    c.n_expert = 11;
    c.n_expert_used = 3;
    c.n_ff_shared = 256;
    c.n_layer_dense = 1;
    c.n_head = 3;
    c.n_head_kv = 1;
    c.head_dim = 48;
    c.n_rot = 32;
    c.head_dim_v = 40;
    c.n_latent = 64;
    c.delta_dim = 40;
    c.attn_every = 3;
    c.attn = (struct sl_synth_types){{SL_DTYPE_Q4_K, SL_DTYPE_Q8_0}, 2};
    compare_all(&(struct subject){.name = "deltas of channels", .config = &c});
}

/* The same with a bound of the decays, and latent attention that is rotated and has gates; experts
 * by groups, with limits of SwiGLU in all layers but the first two. */
static void bound_deltas(void **state) {
    (void)state;
    struct sl_synth_config c = small("bailingmoe3");
    c.n_expert = 12;
    c.n_expert_used = 3;
    c.n_group = 4;
    c.n_group_used = 2;
    c.n_ff_shared = 256;
    c.n_layer_dense = 1;
    c.n_head = 3;
    c.n_head_kv = 1;
    c.head_dim = 48;
    c.n_rot = 32;
    c.head_dim_v = 40;
    c.n_latent = 64;
    c.n_lora_q = 64;
    c.delta_dim = 40;
    c.attn_every = 3;
    c.attn = (struct sl_synth_types){{SL_DTYPE_Q4_K, SL_DTYPE_Q8_0}, 2};
    compare_all(&(struct subject){.name = "bound deltas", .config = &c});
}

/* Residual attention over blocks of two layers, the last of one; gates on latent attention, SiTU,
 * experts that read rows of their own. */
static void kept_streams(void **state) {
    (void)state;
    struct sl_synth_config c = small("kimi-k3");
    c.n_expert = 11;
    c.n_expert_used = 3;
    c.n_expert_latent = 96;
    c.n_ff_shared = 256;
    c.n_layer_dense = 1;
    c.n_head = 3;
    c.n_head_kv = 1;
    c.head_dim = 48;
    c.n_rot = 32;
    c.head_dim_v = 40;
    c.n_latent = 64;
    c.n_lora_q = 64;
    c.delta_dim = 40;
    c.attn_every = 3;
    c.attn = (struct sl_synth_types){{SL_DTYPE_Q4_K, SL_DTYPE_Q8_0}, 2};
    compare_all(&(struct subject){.name = "kept streams", .config = &c});
}

/* Layers of one part, the first and the last without a mixer; experts of two matrices, which read
 * rows of their own. */
static void one_part(void **state) {
    (void)state;
    struct sl_synth_config c = small("nemotron_h_moe");
    c.pattern = "EM*EEE";
    c.n_layer = 6;
    c.n_expert = 11;
    c.n_expert_used = 3;
    c.n_ff_shared = 128;
    c.n_expert_latent = 96;
    c.n_delta_head = 6;
    c.n_delta_head_k = 2;
    c.delta_dim = 40;
    c.n_state = 24;
    c.attn = (struct sl_synth_types){{SL_DTYPE_Q4_K, SL_DTYPE_Q8_0}, 2};
    c.up = (struct sl_synth_types){{SL_DTYPE_Q5_1}, 1};
    c.down = (struct sl_synth_types){{SL_DTYPE_Q6_K}, 1};
    compare_all(&(struct subject){.name = "layers of one part", .config = &c});
}

/* A second set of experts, fewer than a row uses of the first, which stays in memory. */
static void adjugate_experts(void **state) {
    (void)state;
    struct sl_synth_config c = small("grovemoe");
    c.n_expert = 12;
    c.n_expert_used = 5;
    c.n_per_adjugate = 3;
    c.n_ff_adjugate = 96;
    c.attn = (struct sl_synth_types){{SL_DTYPE_Q4_K, SL_DTYPE_Q8_0}, 2};
    compare_all(&(struct subject){.name = "adjugate experts", .config = &c});
}

/* One row a position for all heads, with projections that are quantised; layers of two kinds. */
static void latents(void **state) {
    (void)state;
    struct sl_synth_config c = small("deepseek2");
    c.n_layer_dense = 1;
    c.n_expert = 11;
    c.n_expert_used = 3;
    c.n_ff_shared = 256;
    c.n_head = 5;
    c.n_head_kv = 1;
    c.head_dim = 72;
    c.n_rot = 8;
    c.head_dim_v = 40;
    c.n_latent = 96;
    c.n_lora_q = 64;
    c.router_sigmoid = true;
    c.router_scale = 2.5f;
    c.yarn_factor = 4;
    c.yarn_log_mul = 0.1f;
    c.attn = (struct sl_synth_types){{SL_DTYPE_Q4_0, SL_DTYPE_Q8_0}, 2};
    compare_all(&(struct subject){.name = "latents", .config = &c, .every = true});
}

/* Positions that an indexer chooses, in two layers of five; the others attend to the same. */
static void chosen_positions(void **state) {
    (void)state;
    struct sl_synth_config c = small("glm-dsa");
    c.n_layer_dense = 1;
    c.n_expert = 11;
    c.n_expert_used = 3;
    c.n_ff_shared = 256;
    c.n_head = 5;
    c.n_head_kv = 1;
    c.head_dim = 72;
    c.n_rot = 8;
    c.head_dim_v = 40;
    c.n_latent = 96;
    c.n_lora_q = 64;
    c.n_index_head = 6;
    c.index_dim = 64;
    c.n_index_top = 24;
    c.index_every = 3;
    c.router_sigmoid = true;
    c.attn = (struct sl_synth_types){{SL_DTYPE_Q4_0, SL_DTYPE_Q8_0}, 2};
    compare_all(&(struct subject){.name = "chosen positions", .config = &c});
}

/* Blocks of positions that an indexer chooses for each KV head; a first layer without one. */
static void chosen_blocks(void **state) {
    (void)state;
    struct sl_synth_config c = small("minimax-m3");
    c.n_layer_dense = 1;
    c.n_expert = 11;
    c.n_expert_used = 3;
    c.n_ff_shared = 256;
    c.n_head = 6;
    c.n_head_kv = 3;
    c.head_dim = 48;
    c.n_rot = 16;
    c.index_dim = 40;
    c.index_block = 6;
    c.n_index_top = 4;
    c.n_index_local = 2;
    c.router_scale = 2;
    c.attn = (struct sl_synth_types){{SL_DTYPE_Q4_0, SL_DTYPE_Q8_0}, 2};
    compare_all(&(struct subject){.name = "chosen blocks", .config = &c});
}

/* Latents in two shapes: of a window, and of positions that an indexer chooses, both with gates. */
static void latents_of_windows(void **state) {
    (void)state;
    struct sl_synth_config c = small("dots3note");
    c.n_layer_dense = 1;
    c.n_expert = 11;
    c.n_expert_used = 3;
    c.n_ff_shared = 256;
    c.n_head = 5;
    c.n_head_kv = 1;
    c.head_dim = 72;
    c.n_rot = 8;
    c.head_dim_v = 40;
    c.n_latent = 96;
    c.n_head_window = 3;
    c.head_dim_window = 40;
    c.head_dim_v_window = 24;
    c.n_latent_window = 64;
    c.window = 24;
    c.window_period = 3;
    c.rope_base_window = 10000;
    c.n_lora_q = 64;
    c.n_index_head = 6;
    c.index_dim = 64;
    c.n_index_top = 24;
    c.router_sigmoid = true;
    c.attn = (struct sl_synth_types){{SL_DTYPE_Q4_0, SL_DTYPE_Q8_0}, 2};
    compare_all(&(struct subject){.name = "latents of windows", .config = &c});
}

/* A window and blocks of positions, some chosen; streams between layers; experts by tokens. */
static void compressed(void **state) {
    (void)state;
    struct sl_synth_config c = small("deepseek4");
    c.n_expert = 11;
    c.n_expert_used = 3;
    c.n_ff_shared = 256;
    c.n_head = 6;
    c.head_dim = 64;
    c.n_rot = 16;
    c.n_lora_q = 64;
    c.n_group_out = 3;
    c.n_lora_out = 32;
    c.n_layer_table = 2;
    c.window = 24;
    c.n_index_head = 6;
    c.index_dim = 64;
    c.n_index_top = 10;
    c.attn = (struct sl_synth_types){{SL_DTYPE_Q4_0, SL_DTYPE_Q8_0}, 2};
    compare_all(&(struct subject){.name = "compressed", .config = &c});
}

/* Attention over blocks of mean keys, streams of low rank, rows of n-grams. */
static void pooled(void **state) {
    (void)state;
    struct sl_synth_config c = small("qwen4exp");
    c.n_expert = 11;
    c.n_expert_used = 3;
    c.n_ff_shared = 128;
    c.n_rot = 16;
    c.n_delta_head = 6;
    c.n_delta_head_k = 3;
    c.delta_dim = 40;
    c.n_lora_out = 64;
    c.n_index_head = 5;
    c.index_dim = 48;
    c.n_index_top = 20;
    c.index_block = 4;
    c.attn = (struct sl_synth_types){{SL_DTYPE_Q4_0, SL_DTYPE_Q8_0}, 2};
    compare_all(&(struct subject){.name = "pooled", .config = &c});
}

/* Keys' and values' projections in one matrix; a query from one matrix. */
static void joined_latents(void **state) {
    (void)state;
    struct sl_synth_config c = small("deepseek2");
    c.n_layer = 3;
    c.n_expert = 7;
    c.n_expert_used = 2;
    c.n_ff_shared = 512;
    c.n_head = 3;
    c.n_head_kv = 1;
    c.head_dim = 48;
    c.n_rot = 16;
    c.n_latent = 64;
    c.joined_kv = true;
    compare_all(&(struct subject){.name = "joined latents", .config = &c});
}

/* Embeddings of layers, some of which read the keys and values of others. */
static void layers_with_embeddings(void **state) {
    (void)state;
    struct sl_synth_config c = small("gemma4");
    c.n_layer = 6;
    c.window = 24;
    c.window_period = 2;
    c.rope_base_window = 10000;
    c.n_embd_layer = 32;
    c.n_shared_kv = 3;
    c.n_expert = 9;
    c.n_expert_used = 3;
    compare_all(&(struct subject){.name = "layers with embeddings", .config = &c});
}

/* Heads of two sizes, values that are keys, norms behind parts, a dense part beside the experts. */
static void parts_with_norms(void **state) {
    (void)state;
    struct sl_synth_config c = small("gemma4");
    c.n_layer = 4;
    c.window = 24;
    c.window_period = 2;
    c.head_dim_window = 64;
    c.n_head_kv_window = 4;
    c.rope_base_window = 10000;
    c.logit_softcap = 30;
    c.n_ff = 192;
    c.n_expert = 9;
    c.n_expert_used = 3;
    c.gate = c.up = (struct sl_synth_types){{SL_DTYPE_Q4_K, SL_DTYPE_Q8_0}, 2};
    c.fused_experts = true;
    compare_all(&(struct subject){.name = "parts with norms", .config = &c});
}

/* Routers that read before attention, whose experts are foretold from another input. */
static void routers_first(void **state) {
    (void)state;
    struct sl_synth_config c = small("smallthinker");
    c.n_layer = 3;
    c.window = 24;
    c.n_expert = 9;
    c.n_expert_used = 3;
    compare_all(&(struct subject){.name = "routers first", .config = &c});
}

/* Attention in chunks, weighted inputs of experts, dense layers in between. */
static void chunks(void **state) {
    (void)state;
    struct sl_synth_config c = small("llama4");
    c.n_layer = 4;
    c.chunk = 24;
    c.moe_step = 2;
    c.n_ff = 192;
    c.n_expert = 9;
    c.n_expert_used = 1;
    compare_all(&(struct subject){.name = "chunks", .config = &c});
}

/* Attention and experts read one layer norm; what they give is summed apart. */
static void side_by_side(void **state) {
    (void)state;
    struct sl_synth_config c = small("cohere2moe");
    c.n_layer = 4;
    c.window = 24;
    c.n_layer_dense = 1;
    c.n_expert = 9;
    c.n_expert_used = 3;
    compare_all(&(struct subject){.name = "side by side", .config = &c});
}

static void enough_was_compared(void **state) {
    (void)state;
    print_message("figure: %llu tokens and the logits of %llu positions compared\n",
                  (unsigned long long)total_tokens, (unsigned long long)total_logits);
    assert_true(total_measured >= 4);
    assert_true(UNDER_ASAN || total_tokens >= 10000);
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(demo_model),
        cmocka_unit_test(many_size_classes),
        cmocka_unit_test(shared_experts_in_parts),
        cmocka_unit_test(one_expert_a_token),
        cmocka_unit_test(all_experts_a_token),
        cmocka_unit_test(layers_that_differ),
        cmocka_unit_test(experts_by_layer),
        cmocka_unit_test(windows_and_biases),
        cmocka_unit_test(delta_nets),
        cmocka_unit_test(short_convolutions),
        cmocka_unit_test(state_spaces),
        cmocka_unit_test(channel_states),
        cmocka_unit_test(one_part),
        cmocka_unit_test(adjugate_experts),
        cmocka_unit_test(channel_deltas),
        cmocka_unit_test(bound_deltas),
        cmocka_unit_test(kept_streams),
        cmocka_unit_test(latents),
        cmocka_unit_test(chosen_positions),
        cmocka_unit_test(chosen_blocks),
        cmocka_unit_test(latents_of_windows),
        cmocka_unit_test(compressed),
        cmocka_unit_test(pooled),
        cmocka_unit_test(joined_latents),
        cmocka_unit_test(parts_with_norms),
        cmocka_unit_test(layers_with_embeddings),
        cmocka_unit_test(chunks),
        cmocka_unit_test(routers_first),
        cmocka_unit_test(side_by_side),
        cmocka_unit_test(enough_was_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
