/* test_sim [--brief | --checks | TRACE...]: decoding and prompts in virtual time beside the
 * analytic ceilings, in tables; TAP.
 *
 * Ceilings of a step (one pass through all layers), from the run's own hit share:
 *   T_mem = (dense bytes + touched expert bytes that were in slots) / memory bandwidth
 *   T_ssd = the other touched bytes / disk bandwidth
 *   causal ceiling 1 / (T_mem + T_ssd), overlap ceiling 1 / max(T_mem, T_ssd)
 * They know neither the drive's latency, nor that what was read must be computed too, nor that
 * layers have unlike needs. "can" is the share of the ceiling that the best possible schedule comes
 * to, which does know all this (struct sim_result, bound_ns); above 100 where computing hits hides
 * reads. "of it" is how much of that best schedule the code reaches: nothing beats 100.
 *
 * --brief: a few cases, for builds that check every access. --checks: without the column that no
 * check is about, looking ahead within the token. TRACE: recorded routes, as made by
 * --record-routes, with experts of 3 MiB. */
#include "tests/sim/sim.h"

#include "engine/experts/expert_fetch.h"
#include "expert_cache/trace_synth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Least percent of the best possible schedule, everywhere. */
#define BAR_BEST_CAUSAL 97.0
#define BAR_BEST_AHEAD  92.0
/* Least percent of the ceilings where these can be reached. */
#define BAR_CAUSAL  97.0
#define BAR_OVERLAP 95.0
#define CAN_REACH   97.5
/* A prompt's time over the longer of reading and computing, and bytes read over bytes used: where
 * the subject drifts, and of texts of one subject each by turns, which touch three fifths. */
#define BAR_PROMPT      1.15
#define BAR_PROMPT_READ 1.06
#define BAR_TEXT        1.17
#define BAR_TEXT_READ   1.35
/* Look-ahead by predictions must not cost more than this of the speed without. */
#define BAR_PREDICTION 98.0
/* ... and predictions of several layers, mostly right, must gain so much. */
#define BAR_FAR 103.0

/* System calls of an expert read, where a layer reads so many: one call a layer, and a little. */
#define BAR_SYSCALLS 0.25
#define CALLS_READS  4.4

static const struct sim_shape qwen3 = {"qwen3-30b, 2.5 MiB",       48,        128, 8,
                                       {{884736, 884736, 884736}}, 12u << 20, 0,   250u << 20};
static const struct sim_shape olmoe = {
    "olmoe, 3.4 MiB", 16, 64, 8, {{1179648, 1179648, 1179648}}, 10u << 20, 0, 60u << 20};
static const struct sim_shape small = {"small, 0.4 MiB",           24,       64,       6,
                                       {{150000, 150000, 150000}}, 4u << 20, 1u << 20, 40u << 20};
static const struct sim_shape mixed = {"two sizes, 2.5 and 2.9 MiB",
                                       24,
                                       64,
                                       8,
                                       {{884736, 884736, 884736}, {884736, 884736, 1290240}},
                                       8u << 20,
                                       4u << 20,
                                       90u << 20};
static const struct sim_shape mixtral = {
    "mixtral, 95 MiB", 32, 8, 2, {{33030144, 33030144, 33030144}}, 24u << 20, 0, 70u << 20};

static const struct sim_machine ideal = {"no latency, 2.5 GB/s", 2500000000u, 0,     0,
                                         75000000000u,           5000,        0.0118};
static const struct sim_machine nvme = {"5 GB/s, 0.09 ms", 5000000000u, 90000, 64,
                                        75000000000u,      5000,        0.0118};
static const struct sim_machine sata = {"0.5 GB/s, 0.15 ms", 500000000u, 150000, 32,
                                        40000000000u,        5000,       0.0118};
static const struct sim_machine cloud = {"2.5 GB/s, 0.5 ms", 2500000000u, 500000, 128,
                                         75000000000u,       5000,        0.0118};
static const struct sim_machine gpu = {
    "5 GB/s, 0.09 ms; memory 4.5 TB/s", 5000000000u, 90000, 64, 4500000000000u, 8000, 0.0001};

/* A layer takes 170 us where a device computes some of its experts and has others copied up. */
static const struct sim_machine tiers = {
    "2 GB/s, 0.15 ms; 170 us a layer", 2000000000u, 150000, 64, 200000000000u, 5000, 0.0001};

static int n_tests, n_failed;
static bool checks_alone;

static void check(bool ok, const char *what) {
    printf("%s %d - %s\n", ok ? "ok" : "not ok", ++n_tests, what);
    fflush(stdout);
    n_failed += !ok;
}

static void die(const char *what, const char *text) {
    fprintf(stderr, "test_sim: %s: %s\n", what, text);
    exit(1);
}

static double max(double a, double b) {
    return a > b ? a : b;
}

static double min(double a, double b) {
    return a < b ? a : b;
}

static void open_synth(const struct sl_trace_synth *c, struct replay_trace *out_trace) {
    struct sl_err err = {""};
    size_t size = sl_trace_synth_bytes(c);
    uint8_t *image = malloc(size);
    if (!image)
        die("made-up trace", "out of memory");
    if (sl_trace_synth(c, image, &err) != SL_OK ||
        replay_open(image, size, out_trace, &err) != SL_OK)
        die("made-up trace", err.text);
    free(image);
}

/* ---- decoding ---- */

struct score {
    double syscalls; /* an expert read, by one sequence whose layers read enough; 0: they do not */
    double causal, can_causal, best_causal, overlap, can_overlap, best_overlap;
};

static double over(double a, double b) {
    return 100 * a / b;
}

/* One line of the table. */
static struct score decode_line(struct sim_run run) {
    struct sim_result c, q, l;
    uint32_t slots[2];
    double share = sim_slots(run.shape, run.share, slots);
    run.phase = SL_PHASE_DECODE;
    run.ahead = SIM_CAUSAL;
    sim_run(&run, &c);
    struct score s = {.causal = over(c.mem_ns + c.disk_ns, c.step_ns),
                      .can_causal = over(c.mem_ns + c.disk_ns, c.bound_ns),
                      .best_causal = over(c.bound_ns, c.step_ns),
                      .best_overlap = 100};
    if (run.trace->steps[run.trace->n_steps - 1].n_rows == 1 &&
        c.reads >= CALLS_READS * run.shape->n_layer)
        s.syscalls = c.syscalls / c.reads;
    printf("# %5.1f%% %5.1f %8.2f %7.1f %6.1f %6.1f ", 100 * share, 100 * c.hit_share,
           c.step_ns / 1e6, s.causal, s.can_causal, s.best_causal);
    if (run.share == 0) { /* no slot is ever free to read ahead into */
        printf("|     -\n");
        return s;
    }
    run.ahead = SIM_PERFECT;
    sim_run(&run, &q);
    if (!checks_alone) {
        run.ahead = SIM_LAYER;
        sim_run(&run, &l);
    }
    double ceiling = max(q.mem_ns, q.disk_ns);
    s.overlap = over(ceiling, q.step_ns);
    s.can_overlap = over(ceiling, q.bound_ns);
    s.best_overlap = over(q.bound_ns, q.step_ns);
    printf("| %5.1f %8.2f %7.1f %6.1f %6.1f |", 100 * q.hit_share, q.step_ns / 1e6, s.overlap,
           s.can_overlap, s.best_overlap);
    if (checks_alone)
        printf("\n");
    else
        printf(" %7.1f\n", over(max(l.mem_ns, l.disk_ns), l.step_ns));
    return s;
}

static uint32_t n_overlap_reached, n_causal_reached, n_syscalls;
static double most_syscalls;

static void decode(const char *kind, const struct sim_shape *shape,
                   const struct sim_machine *machine, const struct replay_trace *t,
                   uint32_t batch) {
    static const double shares[] = {0, 0.1, 0.25, 0.5, 0.75};
    printf("#\n# %s; %s; %s; batch of %u\n"
           "#             no look-ahead: causal ceiling    | perfect: overlap ceiling            | "
           "in the token\n"
           "# slots    hit  ms/step reached    can  of it |   hit  ms/step reached    can  of it | "
           "reached\n",
           shape->name, machine->name, kind, batch);
    double causal = 1000, overlap = 1000, best_causal = 1000, best_overlap = 1000;
    uint32_t n_can = 0, n_can_causal = 0;
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        struct score s = decode_line(
            (struct sim_run){.shape = shape, .machine = machine, .trace = t, .share = shares[i]});
        if (s.can_causal >= CAN_REACH) {
            n_can_causal++;
            causal = min(causal, s.causal);
        }
        best_causal = min(best_causal, s.best_causal);
        n_syscalls += s.syscalls > 0;
        most_syscalls = max(most_syscalls, s.syscalls);
        best_overlap = min(best_overlap, s.best_overlap);
        if (s.can_overlap >= CAN_REACH) {
            n_can++;
            overlap = min(overlap, s.overlap);
        }
    }
    n_overlap_reached += n_can;
    n_causal_reached += n_can_causal;
    char what[256];
    snprintf(what, sizeof what, "%s; %s; %s; %u: least %.1f %% of the best schedule (bar %.0f)",
             shape->name, machine->name, kind, batch, best_causal, BAR_BEST_CAUSAL);
    check(best_causal >= BAR_BEST_CAUSAL, what);
    snprintf(what, sizeof what, "... looking ahead: least %.1f %% of the best (bar %.0f)",
             best_overlap, BAR_BEST_AHEAD);
    check(best_overlap >= BAR_BEST_AHEAD, what);
    if (n_can_causal) {
        snprintf(what, sizeof what,
                 "... causal ceiling, the %u budgets at which it can be reached: least %.1f %% "
                 "(bar %.0f)",
                 n_can_causal, causal, BAR_CAUSAL);
        check(causal >= BAR_CAUSAL, what);
    }
    if (n_can) {
        snprintf(what, sizeof what,
                 "... overlap ceiling, the %u budgets at which it can be reached: least %.1f %% "
                 "(bar %.0f)",
                 n_can, overlap, BAR_OVERLAP);
        check(overlap >= BAR_OVERLAP, what);
    }
}

static void decode_synth(enum sl_trace_kind kind, const char *name, const struct sim_shape *shape,
                         const struct sim_machine *const *machines, uint32_t n_machines,
                         uint32_t n_tokens) {
    for (uint32_t batch = 1; batch <= 8; batch += 7) {
        struct replay_trace t;
        open_synth(&(struct sl_trace_synth){.kind = kind,
                                            .n_layer = shape->n_layer,
                                            .n_expert = shape->n_expert,
                                            .k = shape->k,
                                            .n_sequences = batch,
                                            .n_tokens = n_tokens,
                                            .topic_tokens = 30,
                                            .seed = 3},
                   &t);
        for (uint32_t i = 0; i < n_machines; i++)
            decode(name, shape, machines[i], &t, batch);
        replay_close(&t);
    }
}

/* ---- look-ahead that predictions ---- */

static void open_sequence(const struct sim_shape *shape, uint32_t n_tokens, uint64_t seed,
                          struct replay_trace *out) {
    open_synth(&(struct sl_trace_synth){.kind = SL_TRACE_LOCALITY,
                                        .n_layer = shape->n_layer,
                                        .n_expert = shape->n_expert,
                                        .k = shape->k,
                                        .n_sequences = 1,
                                        .n_tokens = n_tokens,
                                        .seed = seed},
               out);
}

static void predictions(const struct sim_shape *shape, const struct sim_machine *machine,
                        uint32_t n_tokens) {
    static const double rights[] = {0.95, 0.8, 0.6, 0.3, 0};
    static const double shares[] = {0.1, 0.25, 0.5, 0.75};
    struct replay_trace t;
    open_sequence(shape, n_tokens, 5, &t);
    printf("#\n# %s; %s; speed with the next layer predicted, percent of the speed without, by the "
           "share of right predictions\n# slots ",
           shape->name, machine->name);
    for (size_t j = 0; j < sizeof rights / sizeof *rights; j++)
        printf("%7.0f%%", 100 * rights[j]);
    printf("\n");
    double least = 1000, most = 0;
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        struct sim_run run = {.shape = shape,
                              .machine = machine,
                              .trace = &t,
                              .share = shares[i],
                              .phase = SL_PHASE_DECODE};
        struct sim_result without, with;
        sim_run(&run, &without);
        run.ahead = SIM_PREDICTION;
        printf("# %4.0f%%", 100 * shares[i]);
        for (size_t j = 0; j < sizeof rights / sizeof *rights; j++) {
            run.right = rights[j];
            sim_run(&run, &with);
            double speed = over(without.step_ns, with.step_ns);
            least = min(least, speed);
            most = max(most, speed);
            printf("%8.1f", speed);
        }
        printf("\n");
    }
    char what[160];
    snprintf(what, sizeof what, "predictions, %s; %s: least %.1f %% (bar %.0f), most %.1f %%",
             shape->name, machine->name, least, BAR_PREDICTION, most);
    check(least >= BAR_PREDICTION && most > 100, what);
    replay_close(&t);
}

/* Several layers predicted at once: the disk works while layers pass that miss nothing. Bad
 * predictions are not followed, and where the disk is never idle nothing is gained. */
static void far_predictions(const struct sim_shape *shape, const struct sim_machine *machine,
                            uint32_t n_tokens) {
    static const double rights[] = {1, 0.9, 0.6, 0}, shares[] = {0.1, 0.25, 0.5, 0.75};
    struct replay_trace t;
    open_sequence(shape, n_tokens, 6, &t);
    printf(
        "#\n# %s; %s; layers up to %u ahead predicted, by the share of right ones among the surest "
        "of the next layer\n# slots surest  speed  ceiling  without   read  early   used  "
        "from disk / used\n",
        shape->name, machine->name, SL_FETCH_REACH);
    double half = 0, least = 1000;
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        struct sim_run run = {.shape = shape,
                              .machine = machine,
                              .trace = &t,
                              .share = shares[i],
                              .phase = SL_PHASE_DECODE};
        struct sim_result without, with;
        sim_run(&run, &without);
        run.ahead = SIM_FAR;
        for (size_t j = 0; j < sizeof rights / sizeof *rights; j++) {
            run.right = rights[j];
            sim_run(&run, &with);
            double speed = over(without.step_ns, with.step_ns);
            half = shares[i] == 0.5 && j == 0 ? speed : half;
            least = min(least, speed);
            printf("# %4.0f%% %5.0f%% %6.1f %8.1f %8.1f %6.1f %6.1f %6.1f %17.3f\n",
                   100 * shares[i], 100 * rights[j], speed,
                   over(with.mem_ns + with.disk_ns, with.step_ns),
                   over(without.mem_ns + without.disk_ns, without.step_ns), without.reads,
                   with.read_ahead, with.used_ahead, with.amplification);
        }
    }
    char what[200];
    snprintf(
        what, sizeof what,
        "layers ahead predicted, %s; %s: half in slots, mostly right %.1f %% (bar %.0f), least "
        "of all %.1f %% (bar %.0f)",
        shape->name, machine->name, half, BAR_FAR, least, BAR_PREDICTION);
    check(half >= BAR_FAR && least >= BAR_PREDICTION, what);
    replay_close(&t);
}

/* ---- prompts ---- */

static void prompts(enum sl_trace_kind kind, const struct sim_shape *shape,
                    const struct sim_machine *const *machines, uint32_t n_machines,
                    uint32_t n_chunks) {
    static const double shares[] = {0, 0.1, 0.25, 0.5, 0.75};
    bool text = kind == SL_TRACE_TEXT;
    double bar = text ? BAR_TEXT : BAR_PROMPT, bar_read = text ? BAR_TEXT_READ : BAR_PROMPT_READ;
    struct replay_trace t;
    /* Chunks of 512 rows, a token between two of them. */
    open_synth(&(struct sl_trace_synth){.kind = kind,
                                        .n_layer = shape->n_layer,
                                        .n_expert = shape->n_expert,
                                        .k = shape->k,
                                        .n_sequences = text ? 2 : 1,
                                        .n_tokens = n_chunks,
                                        .prefill_tokens = 512,
                                        .turn_tokens = 1,
                                        .seed = 4},
               &t);
    for (uint32_t m = 0; m < n_machines; m++) {
        printf("#\n# %s; %s; prompts in chunks of 512%s\n"
               "# slots    hit  ms/chunk  reading computing    time over max  from disk / used\n",
               shape->name, machines[m]->name, text ? ", two texts by turns" : "");
        double worst = 0, amplification = 0;
        for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
            struct sim_run run = {.shape = shape,
                                  .machine = machines[m],
                                  .trace = &t,
                                  .share = shares[i],
                                  .ahead = SIM_PROMPT,
                                  .phase = SL_PHASE_PREFILL};
            struct sim_result r;
            uint32_t slots[2];
            sim_run(&run, &r);
            /* With the least slots nothing can be read before its layer has begun. */
            double before = shares[i] > 0 ? 0 : r.dense_ns;
            double ratio = r.step_ns / max(before + r.disk_ns, r.all_mem_ns);
            printf("# %5.1f%% %5.1f %9.1f %8.1f %9.1f %16.3f %17.3f\n",
                   100 * sim_slots(shape, shares[i], slots), 100 * r.hit_share, r.step_ns / 1e6,
                   r.disk_ns / 1e6, r.all_mem_ns / 1e6, ratio, r.amplification);
            worst = max(worst, ratio);
            amplification = max(amplification, r.amplification);
        }
        char what[200];
        snprintf(what, sizeof what,
                 "prompts%s, %s; %s: at most %.3f of the longer of the two (bar %.2f)",
                 text ? " of one subject" : "", shape->name, machines[m]->name, worst, bar);
        check(worst <= bar, what);
        /* Predictions from heat may read what no row of the chunk needs; blocks are read whole. */
        snprintf(what, sizeof what, "... read at most %.3f of what was used (bar %.2f)",
                 amplification, bar_read);
        check(amplification <= bar_read, what);
    }
    replay_close(&t);
}

/* ---- all ---- */

static void run_all(void) {
    static const struct sim_machine *const every[] = {&nvme, &ideal, &sata, &cloud, &gpu};
    static const struct sim_machine *const two[] = {&nvme, &cloud};
    decode_synth(SL_TRACE_LOCALITY, "locality", &qwen3, every, 5, 40);
    decode_synth(SL_TRACE_LOCALITY, "locality", &olmoe, every, 5, 100);
    decode_synth(SL_TRACE_LOCALITY, "locality", &mixed, every, 3, 80);
    decode_synth(SL_TRACE_LOCALITY, "locality", &mixtral, two, 2, 80);
    decode_synth(SL_TRACE_LOCALITY, "locality", &small, two, 2, 80);
    decode_synth(SL_TRACE_UNIFORM, "uniform", &olmoe, every, 1, 80);
    decode_synth(SL_TRACE_SKEWED, "skewed", &olmoe, every, 1, 80);
    decode_synth(SL_TRACE_DRIFT, "drift", &olmoe, every, 1, 80);
    char what[160];
    snprintf(what, sizeof what, "runs in which the causal ceiling could be reached: %u",
             n_causal_reached);
    check(n_causal_reached >= 100, what);
    snprintf(what, sizeof what, "runs in which the overlap ceiling could be reached: %u",
             n_overlap_reached);
    check(n_overlap_reached >= 60, what);
    snprintf(what, sizeof what,
             "%u runs of one sequence whose layers read %.1f experts or more: at most %.3f system "
             "calls an expert (bar %.2f)",
             n_syscalls, CALLS_READS, most_syscalls, BAR_SYSCALLS);
    check(n_syscalls >= 10 && most_syscalls <= BAR_SYSCALLS, what);
    predictions(&olmoe, &nvme, 300);
    predictions(&mixed, &cloud, 300);
    far_predictions(&qwen3, &tiers, 120);
    prompts(SL_TRACE_LOCALITY, &qwen3, every, 5, 4);
    prompts(SL_TRACE_LOCALITY, &mixed, every, 5, 6);
    prompts(SL_TRACE_LOCALITY, &mixtral, two, 2, 6);
    prompts(SL_TRACE_LOCALITY, &small, two, 2, 6);
    prompts(SL_TRACE_TEXT, &qwen3, every, 5, 4);
    prompts(SL_TRACE_TEXT, &olmoe, every, 5, 6);
}

static void run_brief(void) {
    static const struct sim_machine *const one[] = {&nvme};
    decode_synth(SL_TRACE_LOCALITY, "locality", &mixed, one, 1, 40);
    far_predictions(&qwen3, &tiers, 120);
    prompts(SL_TRACE_LOCALITY, &mixed, one, 1, 3);
    prompts(SL_TRACE_TEXT, &olmoe, one, 1, 4);
}

static void run_file(const char *path) {
    static const struct sim_machine *const machines[] = {&nvme, &ideal, &cloud};
    struct sl_err err = {""};
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END) != 0 || ftell(f) < 0)
        die(path, "cannot be opened");
    size_t size = (size_t)ftell(f);
    rewind(f);
    uint8_t *image = malloc(size ? size : 1);
    if (!image || fread(image, 1, size, f) != size)
        die(path, "cannot be read");
    fclose(f);
    struct replay_trace t;
    if (replay_open(image, size, &t, &err) != SL_OK)
        die(path, err.text);
    free(image);
    struct sim_shape shape = olmoe;
    shape.name = path;
    shape.n_layer = t.shape.n_layer;
    shape.n_expert = t.shape.n_expert;
    shape.k = t.shape.k;
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++)
        decode("recorded", &shape, machines[i], &t, 1);
    replay_close(&t);
}

int main(int argc, char **argv) {
    bool brief = argc == 2 && !strcmp(argv[1], "--brief");
    checks_alone = brief || (argc == 2 && !strcmp(argv[1], "--checks"));
    if (brief)
        run_brief();
    else if (argc == 1 || checks_alone)
        run_all();
    for (int i = 1; i < argc && !checks_alone; i++)
        run_file(argv[i]);
    printf("1..%d\n", n_tests);
    return n_failed ? 1 : 0;
}
