/* sluice bench: prompt and decode speed, beside the ceiling that the machine's RAM sets. */
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/open_engine.h"
#include "cli/ram_bandwidth.h"
#include "common/clock.h"
#include "common/cpus.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/rng.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_REPS     100u
#define MAX_PARALLEL 8u /* entries of --parallel */

struct options {
    const char *model, *parallel, *format, *kv_type, *cpu_isa, *record_routes;
    uint32_t n_prompt, n_gen, reps, threads, batch;
    bool json, no_warmup;
};

/* One line of the table. */
struct test {
    char name[32];
    uint32_t n_prompt, n_gen, parallel;
    double rate[MAX_REPS]; /* tokens/s, all sequences together */
    double step_bytes;     /* weights read per decode step, from the run's own routing */
    double mean, sd;
};

struct bench {
    const struct options *o;
    struct sl_engine *engine;
    const struct sl_model *model;
    uint32_t n_threads;
    double ram_rate; /* bytes/s */
    uint64_t dense_bytes;
    struct test tests[1 + MAX_PARALLEL];
    uint32_t n_tests;
};

/* ---- one sequence ---- */

struct sequence {
    struct sl_token_sink sink; /* first */
    struct sl_gen_request req;
    uint64_t *time_ns; /* [max_tokens] when each token came */
    uint32_t n;
    struct sl_gen_result result;
    struct group *group;
};

struct group {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t n_running;
};

static enum sl_status push(struct sl_token_sink *s, const struct sl_token *token) {
    struct sequence *q = (struct sequence *)s;
    (void)token;
    q->time_ns[q->n++] = sl_now_ns();
    return SL_OK;
}

static void finish(struct sl_token_sink *s, const struct sl_gen_result *result) {
    struct sequence *q = (struct sequence *)s;
    struct group *g = q->group;
    pthread_mutex_lock(&g->lock);
    q->result = *result;
    g->n_running--;
    pthread_cond_signal(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

/* Runs n sequences of random tokens to their end. ids: [n * (n_prompt + n_answer)]. */
static bool run_group(struct bench *b, struct sequence *seq, uint32_t n, const uint32_t *ids,
                      uint32_t n_prompt, uint32_t n_answer) {
    struct group g = {.n_running = n};
    struct sl_err err = {{0}};
    pthread_mutex_init(&g.lock, NULL);
    pthread_cond_init(&g.changed, NULL);
    bool ok = true;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t *own = ids + (size_t)i * (n_prompt + n_answer);
        seq[i].sink = (struct sl_token_sink){push, NULL, finish};
        seq[i].n = 0;
        seq[i].group = &g;
        seq[i].result = (struct sl_gen_result){.reason = SL_FINISH_ERROR};
        seq[i].req = (struct sl_gen_request){.prompt = own,
                                             .n_prompt = n_prompt,
                                             .max_tokens = n_answer,
                                             .forced = own + n_prompt,
                                             .ignore_eog = true,
                                             .sampling = sl_sampling_default,
                                             .sink = &seq[i].sink};
        seq[i].req.sampling.temperature = 0;
        if (sl_engine_submit(b->engine, &seq[i].req, &err) != SL_OK) {
            pthread_mutex_lock(&g.lock);
            g.n_running--;
            pthread_mutex_unlock(&g.lock);
            ok = false;
        }
    }
    pthread_mutex_lock(&g.lock);
    while (g.n_running)
        pthread_cond_wait(&g.changed, &g.lock);
    pthread_mutex_unlock(&g.lock);
    for (uint32_t i = 0; i < n && ok; i++)
        if (seq[i].result.status != SL_OK || seq[i].n != n_answer) {
            ok = false;
            err = seq[i].result.err;
        }
    pthread_cond_destroy(&g.changed);
    pthread_mutex_destroy(&g.lock);
    if (!ok) {
        sl_show_progress("%s", "");
        fprintf(stderr, "sluice bench: a run failed: %s\n", err.text);
    }
    return ok;
}

/* Tokens per second while all sequences were generating. */
static double steady_rate(const struct sequence *seq, uint32_t n, uint32_t n_answer) {
    uint64_t from = 0, to = UINT64_MAX, count = 0;
    for (uint32_t i = 0; i < n; i++) {
        from = seq[i].time_ns[0] > from ? seq[i].time_ns[0] : from;
        to = seq[i].time_ns[n_answer - 1] < to ? seq[i].time_ns[n_answer - 1] : to;
    }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < n_answer; j++)
            count += seq[i].time_ns[j] > from && seq[i].time_ns[j] <= to;
    return to > from ? (double)count / ((double)(to - from) * 1e-9) : 0;
}

static bool run_rep(struct bench *b, struct test *t, struct sequence *seq, uint32_t *ids,
                    struct sl_rng *rng, double *out_rate) {
    /* Decoding n tokens: one comes out of the prompt's only row, n more out of n steps. */
    uint32_t n_prompt = t->n_gen ? 1 : t->n_prompt, n_answer = t->n_gen ? t->n_gen + 1 : 1;
    for (size_t i = 0; i < (size_t)t->parallel * (n_prompt + n_answer); i++)
        ids[i] = sl_rng_below(rng, b->model->hp.n_vocab);
    int64_t steps = sl_metric(steps_total), routed = sl_metric(expert_read_bytes_total);
    if (!run_group(b, seq, t->parallel, ids, n_prompt, n_answer))
        return false;
    steps = sl_metric(steps_total) - steps;
    routed = sl_metric(expert_read_bytes_total) - routed;
    if (t->n_gen) {
        *out_rate = steady_rate(seq, t->parallel, n_answer);
        t->step_bytes = (double)b->dense_bytes + (double)routed / (double)(steps ? steps : 1);
    } else {
        *out_rate = t->n_prompt / ((double)seq[0].result.prefill_ns * 1e-9);
    }
    return true;
}

static bool run_test(struct bench *b, struct test *t) {
    const struct options *o = b->o;
    uint32_t n_answer = t->n_gen + 1, n_ids = (t->n_gen ? 1 : t->n_prompt) + n_answer;
    struct sequence *seq = calloc(t->parallel, sizeof *seq);
    uint32_t *ids = malloc((size_t)t->parallel * n_ids * sizeof *ids);
    uint64_t *times = malloc((size_t)t->parallel * n_answer * sizeof *times);
    bool ok = seq && ids && times;
    if (!ok)
        fprintf(stderr, "sluice bench: out of memory\n");
    for (uint32_t i = 0; ok && i < t->parallel; i++)
        seq[i].time_ns = times + (size_t)i * n_answer;
    struct sl_rng rng = {42};
    if (ok && !o->no_warmup) {
        sl_show_progress("%s: warm-up", t->name);
        double rate;
        struct test warm = *t;
        warm.n_gen = t->n_gen > 8 ? 8 : t->n_gen;
        ok = run_rep(b, &warm, seq, ids, &rng, &rate);
    }
    for (uint32_t r = 0; ok && r < o->reps; r++) {
        sl_show_progress("%s: run %u of %u", t->name, r + 1, o->reps);
        ok = run_rep(b, t, seq, ids, &rng, &t->rate[r]);
    }
    sl_show_progress("%s", "");
    double sum = 0, sq = 0;
    for (uint32_t r = 0; r < o->reps; r++)
        sum += t->rate[r];
    t->mean = sum / o->reps;
    for (uint32_t r = 0; r < o->reps; r++)
        sq += (t->rate[r] - t->mean) * (t->rate[r] - t->mean);
    t->sd = o->reps > 1 ? sqrt(sq / (o->reps - 1)) : 0;
    free(seq);
    free(ids);
    free(times);
    return ok;
}

/* ---- what is known of the model ---- */

/* Weights that every token reads: all but the routed experts and the embedding's other rows. */
static uint64_t dense_bytes(const struct sl_model *m) {
    uint64_t n = m->global[SL_G_OUTPUT]->size_bytes + m->global[SL_G_OUTPUT_NORM]->size_bytes;
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        for (uint32_t r = 0; r < SL_L_COUNT; r++)
            if (m->layers[i].t[r] && r != SL_L_EXPERTS_GATE && r != SL_L_EXPERTS_UP &&
                r != SL_L_EXPERTS_DOWN)
                n += m->layers[i].t[r]->size_bytes;
    return n;
}

static void model_size(const struct sl_model *m, uint64_t *out_bytes, uint64_t *out_params) {
    *out_bytes = *out_params = 0;
    for (uint64_t i = 0; i < sl_gguf_n_tensors(m->gguf); i++) {
        const struct sl_gguf_tensor *t = sl_gguf_tensor_at(m->gguf, i);
        *out_bytes += t->size_bytes;
        *out_params += t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
    }
}

/* "qwen3moe 64x8 Q4_K": architecture, experts, the type that holds most bytes. */
static void model_label(const struct sl_model *m, char *out, size_t n) {
    uint64_t bytes[SL_DTYPE_COUNT] = {0};
    uint32_t best = 0;
    for (uint64_t i = 0; i < sl_gguf_n_tensors(m->gguf); i++) {
        const struct sl_gguf_tensor *t = sl_gguf_tensor_at(m->gguf, i);
        bytes[t->dtype] += t->size_bytes;
        best = bytes[t->dtype] > bytes[best] ? t->dtype : best;
    }
    if (m->hp.n_expert)
        snprintf(out, n, "%s %u of %u %s", sl_model_arch_name(m), m->hp.n_expert_used,
                 m->hp.n_expert, sl_dtype_name(best));
    else
        snprintf(out, n, "%s %s", sl_model_arch_name(m), sl_dtype_name(best));
}

/* ---- output ---- */

/* Tokens/s if the weights of a step were read at the measured RAM rate and nothing else took time.
 */
static double ceiling(const struct bench *b, const struct test *t) {
    return t->n_gen && b->ram_rate > 0 ? b->ram_rate / t->step_bytes * t->parallel : 0;
}

static void print_markdown(const struct bench *b) {
    char label[96], size[32];
    uint64_t bytes, params;
    model_label(b->model, label, sizeof label);
    model_size(b->model, &bytes, &params);
    snprintf(size, sizeof size, "%.2f GiB", (double)bytes / 0x1p30);
    if (bytes < 1u << 30)
        snprintf(size, sizeof size, "%.2f MiB", (double)bytes / 0x1p20);
    printf("| %-30s | %10s | %10s | %-10s | %7s | %15s | %20s | %11s | %7s |\n", "model", "size",
           "params", "backend", "threads", "test", "t/s", "RAM ceiling", "reached");
    printf("| %s | %s: | %s: | %s | %s: | %s: | %s: | %s: | %s: |\n",
           "------------------------------", "---------", "---------", "----------", "------",
           "--------------", "-------------------", "----------", "------");
    for (uint32_t i = 0; i < b->n_tests; i++) {
        const struct test *t = &b->tests[i];
        char count[32], rate[48], top[24] = "", reached[24] = "";
        snprintf(count, sizeof count, params < 1000000000u ? "%.2f M" : "%.2f B",
                 (double)params / (params < 1000000000u ? 1e6 : 1e9));
        snprintf(rate, sizeof rate, "%.2f ± %.2f", t->mean, t->sd);
        if (ceiling(b, t) > 0) {
            snprintf(top, sizeof top, "%.1f", ceiling(b, t));
            snprintf(reached, sizeof reached, "%.1f %%", 100 * t->mean / ceiling(b, t));
        }
        /* ± is two bytes and one column. */
        printf("| %-30s | %10s | %10s | %-10s | %7u | %15s | %21s | %11s | %7s |\n", label, size,
               count, "CPU", b->n_threads, t->name, rate, top, reached);
    }
    struct sl_engine_info info;
    sl_engine_info(b->engine, &info);
    printf("\n%s; RAM read ceiling measured in this run: %.1f GB/s\n", info.device,
           b->ram_rate * 1e-9);
    for (uint32_t i = 0; i < b->n_tests; i++)
        if (b->tests[i].n_gen)
            printf("%s reads %.1f MB of weights per step (dense %.1f, routed %.1f)\n",
                   b->tests[i].name, b->tests[i].step_bytes * 1e-6, (double)b->dense_bytes * 1e-6,
                   (b->tests[i].step_bytes - (double)b->dense_bytes) * 1e-6);
}

static int print_json(const struct bench *b) {
    char label[96];
    uint64_t bytes, params;
    model_label(b->model, label, sizeof label);
    model_size(b->model, &bytes, &params);
    struct sl_engine_info info;
    sl_engine_info(b->engine, &info);
    json_t *list = json_array();
    for (uint32_t i = 0; i < b->n_tests; i++) {
        const struct test *t = &b->tests[i];
        json_t *samples = json_array();
        for (uint32_t r = 0; r < b->o->reps; r++)
            json_array_append_new(samples, json_real(t->rate[r]));
        json_t *j = json_pack(
            "{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:o, s:f}", "test", t->name,
            "model", label, "device", info.device, "model_size_bytes", (json_int_t)bytes,
            "model_n_params", (json_int_t)params, "n_threads", (json_int_t)b->n_threads, "n_prompt",
            (json_int_t)(t->n_gen ? 0 : t->n_prompt), "n_gen", (json_int_t)t->n_gen, "n_parallel",
            (json_int_t)t->parallel, "avg_ts", t->mean, "stddev_ts", t->sd, "samples_ts", samples,
            "ram_read_bytes_per_s", b->ram_rate);
        if (j && t->n_gen) {
            json_object_set_new(j, "weight_bytes_per_step", json_real(t->step_bytes));
            json_object_set_new(j, "dense_bytes_per_step",
                                json_integer((json_int_t)b->dense_bytes));
            if (ceiling(b, t) > 0) {
                json_object_set_new(j, "ram_ceiling_ts", json_real(ceiling(b, t)));
                json_object_set_new(j, "ram_ceiling_reached", json_real(t->mean / ceiling(b, t)));
            }
        }
        json_array_append_new(list, j);
    }
    int rc = json_dumpf(list, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) != 0;
    putchar('\n');
    json_decref(list);
    return rc;
}

/* ---- the command ---- */

/* "1,8" to tests; false after an error message. */
static bool add_decode_tests(struct bench *b) {
    const char *p = b->o->parallel ? b->o->parallel : "1";
    for (uint32_t n = 0; *p; n++) {
        char *end;
        unsigned long v = strtoul(p, &end, 10);
        if (end == p || (*end && *end != ',') || !v || v > 256 || n == MAX_PARALLEL) {
            fprintf(stderr,
                    "sluice bench: --parallel is '%s': must be up to %u numbers from 1 to 256, as "
                    "1,8\n",
                    b->o->parallel, MAX_PARALLEL);
            return false;
        }
        struct test *t = &b->tests[b->n_tests++];
        *t = (struct test){.n_gen = b->o->n_gen, .parallel = (uint32_t)v};
        if (v == 1)
            snprintf(t->name, sizeof t->name, "tg%u", t->n_gen);
        else
            snprintf(t->name, sizeof t->name, "tg%u x%u", t->n_gen, t->parallel);
        p = *end ? end + 1 : end;
    }
    return true;
}

static bool plan_tests(struct bench *b, struct sl_engine_config *config) {
    const struct options *o = b->o;
    if (o->n_prompt) {
        struct test *t = &b->tests[b->n_tests++];
        *t = (struct test){.n_prompt = o->n_prompt, .parallel = 1};
        snprintf(t->name, sizeof t->name, "pp%u", t->n_prompt);
    }
    if (o->n_gen && !add_decode_tests(b))
        return false;
    if (!b->n_tests || !o->reps || o->reps > MAX_REPS) {
        fprintf(stderr, "sluice bench: nothing to measure: -p or -n must be above 0, -r 1 to %u\n",
                MAX_REPS);
        return false;
    }
    config->parallel = 1;
    for (uint32_t i = 0; i < b->n_tests; i++)
        if (b->tests[i].parallel > config->parallel)
            config->parallel = b->tests[i].parallel;
    uint32_t n = o->n_prompt > o->n_gen + 1 ? o->n_prompt : o->n_gen + 1;
    config->ctx_tokens = n + 2;
    config->queue_max = config->parallel;
    return true;
}

int sl_cmd_bench(int argc, char **argv) {
    struct options o = {.n_prompt = 512, .n_gen = 128, .reps = 3};
    struct sl_engine_options memory = SL_ENGINE_OPTIONS_DEFAULT;
    const char *positional = NULL;
    bool verbose = false;
    const struct sl_arg args[] = {
        {SL_ARG_STRING, 'm', "--model", "FILE", &o.model,
         "the GGUF file (also as the only argument)", false},
        {SL_ARG_HEADING, 0, "What to measure", NULL, NULL, NULL, false},
        {SL_ARG_U32, 'p', "--n-prompt", "N", &o.n_prompt,
         "prompt tokens; 0 = no prompt test (default 512)", false},
        {SL_ARG_U32, 'n', "--n-gen", "N", &o.n_gen,
         "generated tokens; 0 = no decode test (default 128)", false},
        {SL_ARG_STRING, 0, "--parallel", "LIST", &o.parallel,
         "sequences that generate at once, one test for each (default 1)", false},
        {SL_ARG_U32, 'r', "--repetitions", "N", &o.reps, "runs of each test (default 3)", false},
        {SL_ARG_FLAG, 0, "--no-warmup", NULL, &o.no_warmup, "no run before the measured ones",
         false},
        {SL_ARG_HEADING, 0, "Output", NULL, NULL, NULL, false},
        {SL_ARG_STRING, 'o', "--output", "FORMAT", &o.format, "md or json (default md)", false},
        {SL_ARG_FLAG, 0, "--json", NULL, &o.json, "the same as -o json", false},
        {SL_ARG_HEADING, 0, "Engine", NULL, NULL, NULL, false},
        {SL_ARG_U32, 't', "--threads", "N", &o.threads, "threads; 0 = all CPUs (default 0)", false},
        {SL_ARG_U32, 'b', "--batch", "N", &o.batch, "rows of one step at most (default 512)",
         false},
        {SL_ARG_STRING, 0, "--kv-type", "TYPE", &o.kv_type, "f16 or q8_0 (default f16)", false},
        {SL_ARG_STRING, 0, "--cpu-isa", "SET", &o.cpu_isa,
         "c, avx2, avx512 or vnni (default: the best)", false},
        {SL_ARG_STRING, 0, "--record-routes", "FILE", &o.record_routes,
         "write which experts each token chose, for `make replay TRACE=FILE`", false},
        {SL_ARG_FLAG, 'v', "--verbose", NULL, &verbose, "log what is loaded", false},
        SL_ENGINE_OPTIONS(&memory),
    };
    const struct sl_command command = {
        .name = "bench",
        .about = "Measures prompt and decode speed.",
        .usage = "sluice bench -m MODEL [-p 512] [-n 128] [options]",
        .notes = "Prompts and answers are random tokens. The ceiling beside a decode rate is what "
                 "reading the\nweights of each step at the RAM rate measured in the same run would "
                 "give; each expert that a\nstep touches counts once, KV is left out.\n",
        .args = args,
        .n_args = SL_COUNTOF(args),
        .positional = "MODEL",
        .out_positional = &positional,
    };
    int rc = sl_args_parse(&command, argc, argv);
    if (rc >= 0)
        return rc;
    o.model = sl_args_model("bench", o.model, positional);
    if (!o.model)
        return 2;
    if (o.format && strcmp(o.format, "md") != 0 && strcmp(o.format, "json") != 0) {
        fprintf(stderr, "sluice bench: --output is '%s': must be md or json\n", o.format);
        return 2;
    }
    o.json = o.json || (o.format && strcmp(o.format, "json") == 0);
    struct bench b = {.o = &o, .n_threads = o.threads ? o.threads : sl_cpus_allowed()};
    struct sl_engine_config config = {.n_threads = o.threads,
                                      .batch_tokens = o.batch,
                                      .cpu_isa = o.cpu_isa,
                                      .record_routes = o.record_routes};
    if (!plan_tests(&b, &config) || !sl_parse_kv_type("bench", o.kv_type, &config.kv_dtype) ||
        !sl_engine_options_apply("bench", &memory, &config))
        return 2;
    sl_log_set_level(verbose ? SL_LOG_DEBUG : SL_LOG_ERROR);
    struct sl_opened opened;
    if (!sl_open_model("bench", o.model, &opened))
        return 1;
    sl_show_progress("measuring how fast RAM can be read");
    b.ram_rate = sl_ram_read_bandwidth(b.n_threads, 1.0);
    sl_show_progress("%s", "");
    if (!sl_start_engine("bench", &config, NULL, &opened)) {
        sl_close_engine(&opened);
        return 1;
    }
    b.engine = opened.engine;
    b.model = opened.model;
    b.dense_bytes = dense_bytes(b.model);
    bool ok = true;
    for (uint32_t i = 0; ok && i < b.n_tests; i++)
        ok = run_test(&b, &b.tests[i]);
    rc = 1;
    if (ok && o.json)
        rc = print_json(&b);
    else if (ok) {
        print_markdown(&b);
        rc = fflush(stdout) != 0;
    }
    sl_close_engine(&opened);
    return rc;
}
