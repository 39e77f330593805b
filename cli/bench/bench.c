/* sluice bench: prompt and decode speed, beside what the machine's memory and disk would allow. */
#include "cli/options/args.h"
#include "cli/bench/bench.h"
#include "cli/options/commands.h"
#include "cli/options/engine_options.h"
#include "cli/measure/ram_bandwidth.h"
#include "common/clock.h"
#include "common/cpus.h"
#include "common/log.h"
#include "common/metrics.h"
#include "engine/plan/plan_speed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* The longest that tests wait for background reading to fill the slots. */
#define FILL_NS 60000000000u
/* Of a test: what is generated fits the context with those around it. */
#define MAX_TOKENS (SL_MAX_CTX_TOKENS - 3)

/* "1,8" to tests; false after an error message. */
static bool add_decode_tests(struct sl_bench *b) {
    const char *p = b->o->parallel ? b->o->parallel : "1";
    for (uint32_t n = 0; p; n++) {
        char *end = NULL;
        unsigned long v = *p >= '0' && *p <= '9' ? strtoul(p, &end, 10) : 0;
        if (!v || (*end && *end != ',') || v > 256 || n == SL_BENCH_MAX_PARALLEL) {
            sl_usage_error("bench",
                           "--parallel is '%s': must be up to %u numbers from 1 to 256, as 1,8",
                           b->o->parallel, SL_BENCH_MAX_PARALLEL);
            return false;
        }
        struct sl_bench_test *t = &b->tests[b->n_tests++];
        *t = (struct sl_bench_test){
            .n_gen = b->o->n_gen, .depth = b->o->depth, .parallel = (uint32_t)v};
        int at = snprintf(t->name, sizeof t->name, "tg%u", t->n_gen);
        if (t->depth)
            at += snprintf(t->name + at, sizeof t->name - (size_t)at, " @%u", t->depth);
        if (v > 1)
            snprintf(t->name + at, sizeof t->name - (size_t)at, " x%u", t->parallel);
        p = *end ? end + 1 : NULL;
    }
    return true;
}

static bool plan_tests(struct sl_bench *b, struct sl_engine_config *config) {
    const struct sl_bench_options *o = b->o;
    if (o->n_prompt) {
        struct sl_bench_test *t = &b->tests[b->n_tests++];
        *t = (struct sl_bench_test){.n_prompt = o->n_prompt, .parallel = 1};
        snprintf(t->name, sizeof t->name, "pp%u", t->n_prompt);
    }
    if (o->n_gen && o->depth > MAX_TOKENS - o->n_gen) {
        sl_usage_error("bench", "--depth %u and --n-gen %u are more than a context has: at most %u",
                       o->depth, o->n_gen, MAX_TOKENS);
        return false;
    }
    if (o->n_gen && !add_decode_tests(b))
        return false;
    if (!b->n_tests) {
        sl_usage_error("bench", "nothing to measure: --n-prompt or --n-gen must be above 0");
        return false;
    }
    config->parallel = 1;
    for (uint32_t i = 0; i < b->n_tests; i++)
        if (b->tests[i].parallel > config->parallel)
            config->parallel = b->tests[i].parallel;
    uint32_t n_decode = o->n_gen ? o->depth + o->n_gen + 1 : 0;
    uint32_t n = o->n_prompt > n_decode ? o->n_prompt : n_decode;
    config->ctx_tokens = n + 2;
    config->queue_max = config->parallel;
    return true;
}

/* Background reading would distort what is measured. */
static void wait_filled(void) {
    uint64_t until = sl_now_ns() + FILL_NS;
    struct timespec pause = {0, 5000000};
    if (sl_metric(expert_warmups_left))
        sl_show_progress("filling the slots");
    while (sl_metric(expert_warmups_left) && sl_now_ns() < until)
        nanosleep(&pause, NULL);
    sl_show_progress("%s", "");
}

static uint64_t peak_rss(void) {
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (uint64_t)u.ru_maxrss << 10 : 0;
}

/* Everything between opening the model and closing it. */
static bool measure(struct sl_bench *b, const struct sl_engine_options *memory,
                    const struct sl_engine_config *config, struct sl_opened *opened) {
    if (!sl_start_engine("bench", memory, config, NULL, opened))
        return false;
    b->engine = opened->engine;
    sl_engine_info(b->engine, &b->info);
    wait_filled();
    bool ok = true;
    for (uint32_t i = 0; ok && i < b->n_tests; i++)
        ok = sl_bench_run(b, &b->tests[i]);
    struct sl_engine_memory planned;
    sl_engine_memory(b->engine, &planned);
    b->budget_bytes = planned.budget_bytes;
    b->rss_bytes = peak_rss();          /* before measuring RAM adds to it */
    sl_engine_destroy(&opened->engine); /* its memory is needed to measure */
    b->engine = NULL;
    if (ok) {
        sl_show_progress("measuring how fast RAM can be read");
        b->ram_rate =
            sl_ram_read_bandwidth(b->n_threads, 1.0, sl_process_memory_room(config->ram_bytes));
        sl_show_progress("%s", "");
    }
    if (ok && b->info.discrete) {
        sl_show_progress("measuring the device's memory and its link");
        sl_stages_bandwidth(&b->info, b->ram_rate, &b->device, &b->device_why);
        sl_show_progress("%s", "");
    }
    return ok;
}

/* Once the arguments have been read; the exit code. */
static int bench(const struct sl_bench_options *o, struct sl_engine_options *memory, bool verbose) {
    struct sl_bench b = {.o = o, .n_threads = o->threads ? o->threads : sl_cpus_allowed()};
    struct sl_engine_config config = {.n_threads = o->threads,
                                      .batch_tokens = o->batch,
                                      .cpu_isa = o->cpu_isa,
                                      .trace_file = o->trace,
                                      .record_routes = o->record_routes};
    if (!plan_tests(&b, &config) || !sl_engine_options_apply("bench", memory, &config))
        return 2;
    /* Random tokens are not what a draft layer proposes, unless how often it is right is forced. */
    b.own_answers = o->own_answers || (config.draft_tokens && !config.draft_forced);
    if (!memory->heat_file)
        config.heat_file = NULL; /* random tokens say nothing about what is hot */
    sl_log_set_level(verbose ? SL_LOG_DEBUG : SL_LOG_ERROR);
    struct sl_opened opened;
    if (!sl_open_model("bench", o->model, &opened))
        return 1;
    b.model = opened.model;
    b.dense_bytes = sl_dense_token_bytes(b.model);
    int rc = 1;
    if (measure(&b, memory, &config, &opened)) {
        if (o->json) {
            rc = sl_bench_print_json(&b);
        } else {
            sl_bench_print(&b);
            rc = fflush(stdout) != 0;
        }
    }
    sl_close_engine(&opened);
    return rc;
}

int sl_cmd_bench(int argc, char **argv) {
    struct sl_bench_options o = {.n_prompt = 512, .n_gen = 128, .reps = 3};
    struct sl_engine_options memory = SL_ENGINE_OPTIONS_DEFAULT;
    bool verbose = false;
    const struct sl_arg args[] = {
        {SL_ARG_STRING, 'm', "--model", "FILE", &o.model,
         "the GGUF file (also as the only argument)", false},
        {SL_ARG_HEADING, 0, "What to measure", NULL, NULL, NULL, false},
        {SL_ARG_U32, 'p', "--n-prompt", "N", &o.n_prompt,
         "prompt tokens; 0 = no prompt test (default 512)", false},
        {SL_ARG_U32, 'n', "--n-gen", "N", &o.n_gen,
         "generated tokens; 0 = no decode test (default 128)", false},
        {SL_ARG_U32, 'd', "--depth", "N", &o.depth,
         "tokens already in each sequence when generation starts (default 0)", false},
        {SL_ARG_STRING, 0, "--parallel", "LIST", &o.parallel,
         "numbers of sequences that generate at once, one test for each (default 1)", false},
        {SL_ARG_U32, 'r', "--repetitions", "N", &o.reps, "runs of each test (default 3)", false},
        {SL_ARG_F32, 0, "--resident-prefill", "RATE", &o.resident_prefill,
         "tokens/s of the same prompt with all experts resident, if known: sets the\n"
         "computing side of the prompt's ceiling",
         false},
        {SL_ARG_FLAG, 0, "--no-warmup", NULL, &o.no_warmup, "skip the run before the measured ones",
         false},
        {SL_ARG_FLAG, 0, "--own-answers", NULL, &o.own_answers,
         "generate what the model chooses, not random tokens; always so with --draft", false},
        {SL_ARG_HEADING, 0, "Output", NULL, NULL, NULL, false},
        {SL_ARG_STRING, 'o', "--output", "FORMAT", &o.format, "md or json (default md)", false},
        {SL_ARG_FLAG, 0, "--json", NULL, &o.json, "the same as -o json", false},
        {SL_ARG_HEADING, 0, "Engine", NULL, NULL, NULL, false},
        {SL_ARG_U32, 't', "--threads", "N", &o.threads, "threads; 0 = all CPUs (default 0)", false},
        {SL_ARG_U32, 'b', "--batch", "N", &o.batch, "maximum rows of one step (default 512)",
         false},
        {SL_ARG_STRING, 0, "--cpu-isa", "SET", &o.cpu_isa,
         "c, avx2, avx512 or vnni (default: the best)", false},
        {SL_ARG_OUTPUT, 0, "--trace", "FILE", &o.trace,
         "write a timeline of up to 256 MiB for Perfetto\n"
         "(ui.perfetto.dev) or chrome://tracing; replaces an earlier trace, no other file",
         false},
        {SL_ARG_OUTPUT, 0, "--record-routes", "FILE", &o.record_routes,
         "record which experts each token chose, for `make replay TRACE=FILE`", false},
        {SL_ARG_FLAG, 'v', "--verbose", NULL, &verbose, "log what is loaded", false},
        SL_ENGINE_OPTIONS(&memory),
    };
    static const struct sl_arg_limit limits[] = {
        SL_ENGINE_LIMITS,
        {"--n-prompt", 0, MAX_TOKENS, NULL},
        {"--n-gen", 0, MAX_TOKENS, NULL},
        {"--depth", 0, MAX_TOKENS, NULL},
        {"--repetitions", 1, SL_BENCH_MAX_REPS, NULL},
        {"--resident-prefill", SL_ARG_ABOVE_0, INFINITY, NULL},
    };
    const struct sl_command command = {
        .name = "bench",
        .about = "Measures prompt and decode speed.",
        .usage = "sluice bench -m MODEL [-p 512] [-n 128] [options]",
        .notes =
            "Prompts and answers are random tokens. The two ceilings beside each rate come from "
            "the same run: from the weights that its steps used (each expert once a step; KV is "
            "left out), from where its experts were found, and from the rates of RAM and disk "
            "measured around its runs (the disk's by reading experts again into the slots that "
            "they are in). causal: a read starts only once the router has chosen, 1 / (memory time "
            "+ disk time). overlap: perfect look-ahead, 1 / the longer of the two. On a GPU the "
            "memory is the GPU's own; the time that other experts take on its link counts if it is "
            "longer than the disk's. For a prompt: reading what was not in memory, or computing it "
            "with all experts in memory (--resident-prefill), whichever takes longer. No heat is "
            "recorded, and --split auto uses none, unless --heat-file says where it is.\n",
        .args = args,
        .n_args = SL_COUNTOF(args),
        .help_of = sl_engine_options_help,
        .limits = limits,
        .n_limits = SL_COUNTOF(limits),
        .model = &o.model,
    };
    int rc = sl_args_parse(&command, argc, argv);
    if (rc >= 0)
        return rc;
    if (o.format && strcmp(o.format, "md") != 0 && strcmp(o.format, "json") != 0)
        return sl_usage_error("bench", "--output is '%s': must be md or json", o.format);
    o.json = o.json || (o.format && strcmp(o.format, "json") == 0);
    return bench(&o, &memory, verbose);
}
