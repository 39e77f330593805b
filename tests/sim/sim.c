#include "tests/sim/sim.h"

#include "backends/backend_table.h"
#include "backends/ops/moe.h"
#include "common/rng.h"
#include "engine/experts/expert_fetch.h"
#include "streaming/fake.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define N_EMBD 32u /* of the ops' arguments only: time goes by bytes */

static void die(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "sim: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    exit(1);
}

static void *array(size_t n, size_t each) {
    void *p = calloc(n ? n : 1, each);
    if (!p)
        die("out of memory");
    return p;
}

struct sim {
    const struct sim_run *run;
    struct sl_fake_clock clock;
    struct sl_expert_layout layout;
    struct sl_slots slots;
    struct sl_slab slab; /* addresses only: a fake file without data writes nothing */
    struct sl_reader *reader;
    struct sl_fetch *fetch;
    /* the layer that runs */
    uint32_t layer, max_rows;
    uint32_t *ids, *next_ids;
    uint8_t *failed;
    uint32_t *pair_done; /* [max_rows * k] step in which it was computed */
    uint32_t step, first_measured;
    uint8_t *in_call; /* [n_expert] */
    float *x;
    struct sl_rng rng;
};

static void compute(struct sim *s, double ns) {
    s->clock.now_ns += (uint64_t)(ns + 0.5);
}

static double mem_ns(const struct sim *s, double bytes) {
    return bytes * 1e9 / (double)s->run->machine->mem_bytes_per_s;
}

/* ---- the device ---- */

struct sim_device {
    struct sl_device base;
    struct sim *sim;
};

static double max(double a, double b) {
    return a > b ? a : b;
}

static enum sl_status sim_moe(struct sl_device *d, const struct sl_op_moe *a) {
    struct sim *s = ((struct sim_device *)d)->sim;
    const struct sim_machine *m = s->run->machine;
    double expert = (double)s->layout.layers[s->layer].expert_bytes;
    uint32_t n_distinct = 0, n_prompt = 0;
    memset(s->in_call, 0, s->layout.n_expert);
    for (uint32_t i = 0; i < a->n_pairs; i++) {
        uint32_t p = a->pairs ? a->pairs[i] : i, e = a->ids[p];
        if (s->pair_done[p] == s->step)
            die("pair %u of layer %u is computed twice", p, s->layer);
        s->pair_done[p] = s->step;
        n_prompt += p / a->k >= a->n_decode;
        if (s->in_call[e])
            continue;
        s->in_call[e] = 1;
        n_distinct++;
        struct sl_expert_id id = {(uint16_t)s->layer, (uint16_t)e};
        if (!sl_cache_is_ready(sl_fetch_cache(s->fetch), id))
            die("expert %u of layer %u is computed before it is there", e, s->layer);
        const uint8_t *gate = a->refs[e].gate;
        if (gate < s->slab.base || gate >= s->slab.base + s->slab.size_bytes)
            die("expert %u of layer %u is not in a slot", e, s->layer);
    }
    uint64_t start_ns = s->clock.now_ns;
    if (a->overlap)
        a->overlap(a->overlap_ctx);
    uint64_t overlap_ns = s->clock.now_ns - start_ns;
    s->clock.now_ns = start_ns;
    compute(s, max(mem_ns(s, n_distinct * expert), n_prompt * expert * m->row_byte_ns) +
                   (double)m->call_ns);
    if (s->clock.now_ns - start_ns < overlap_ns)
        s->clock.now_ns = start_ns + overlap_ns;
    return SL_OK;
}

static enum sl_status sim_configure(struct sl_device *d, const struct sl_device_limits *limits) {
    (void)d;
    (void)limits;
    return SL_OK;
}

static const struct sl_backend_ops sim_ops = {
    .name = "simulated", .configure = sim_configure, .moe = sim_moe};

static void device_init(struct sim_device *d, struct sim *s) {
    struct sl_err err;
    *d = (struct sim_device){.base = {.ops = &sim_ops}, .sim = s};
    d->base.caps.host_visible = true;
    d->base.caps.overlap = true;
    d->base.caps.weight_dtype[SL_DTYPE_F32] = true;
    const struct sl_device_limits limits = {.max_tok = s->max_rows,
                                            .max_n_in = N_EMBD,
                                            .max_pairs = s->max_rows * s->layout.k,
                                            .max_n_embd = N_EMBD,
                                            .max_n_ff = N_EMBD,
                                            .max_expert = s->layout.n_expert,
                                            .max_heads = 1,
                                            .max_head_dim = N_EMBD};
    if (sl_device_configure(&d->base, &limits, &err) != SL_OK)
        die("%s", err.text);
}

/* ---- setting up ---- */

static uint32_t kind_of(const struct sim_shape *shape, uint32_t layer) {
    return shape->extent_bytes[1][0] && layer % 3 == 2;
}

static uint64_t expert_bytes(const struct sim_shape *shape, uint32_t kind) {
    const uint32_t *x = shape->extent_bytes[kind];
    return (uint64_t)x[0] + x[1] + x[2];
}

static uint64_t make_layout(const struct sim_shape *shape, struct sl_expert_layout *l) {
    struct sl_err err;
    *l = (struct sl_expert_layout){.n_layer = shape->n_layer,
                                   .n_expert = shape->n_expert,
                                   .k = shape->k,
                                   .n_class = shape->extent_bytes[1][0] ? 2 : 1};
    l->layers = array(l->n_layer, sizeof *l->layers);
    l->layer_class = array(l->n_layer, 1);
    for (uint32_t c = 0; c < l->n_class; c++)
        if (sl_slot_layout_init(&l->classes[c].slot, shape->extent_bytes[c], 3, 1, &err) != SL_OK)
            die("%s", err.text);
    uint64_t at = 1000032; /* as in a GGUF file: aligned to 32 bytes only */
    for (uint32_t i = 0; i < l->n_layer; i++) {
        uint32_t c = kind_of(shape, i);
        struct sl_routed_layer *r = &l->layers[i];
        *r = (struct sl_routed_layer){.model_layer = i,
                                      .size_class = c,
                                      .n_expert = l->n_expert,
                                      .k = l->k,
                                      .expert_bytes = expert_bytes(shape, c)};
        for (uint32_t x = 0; x < 3; x++) {
            r->extent[x].offset_bytes = at;
            r->extent[x].size_bytes = shape->extent_bytes[c][x];
            at += (uint64_t)l->n_expert * r->extent[x].size_bytes;
        }
        at += shape->layer_bytes;
        l->layer_class[i] = (uint8_t)c;
        l->classes[c].n_layer++;
        l->classes[c].n_expert += l->n_expert;
        l->classes[c].k = l->k;
        l->n_all += l->n_expert;
        l->total_bytes += r->expert_bytes * l->n_expert;
        l->token_bytes += r->expert_bytes * r->k;
    }
    return at + 4096;
}

double sim_slots(const struct sim_shape *shape, double share, uint32_t out_slots[2]) {
    uint32_t n[2] = {0, 0}, slots = 0;
    for (uint32_t i = 0; i < shape->n_layer; i++)
        n[kind_of(shape, i)] += shape->n_expert;
    for (uint32_t c = 0; c < 2; c++) {
        out_slots[c] = (uint32_t)((double)n[c] * share);
        if (n[c] && out_slots[c] < shape->k)
            out_slots[c] = shape->k;
        slots += out_slots[c];
    }
    return (double)slots / (double)(n[0] + n[1]);
}

static uint64_t now(void *clock) {
    return ((struct sl_fake_clock *)clock)->now_ns;
}

static void open_sim(struct sim *s, const struct sim_run *run) {
    const struct sim_machine *m = run->machine;
    struct sl_err err;
    *s = (struct sim){.run = run, .clock.now_ns = 1};
    uint64_t file_bytes = make_layout(run->shape, &s->layout);
    uint32_t class_slots[2], slot_bytes[2];
    sim_slots(run->shape, run->share, class_slots);
    for (uint32_t c = 0; c < s->layout.n_class; c++)
        slot_bytes[c] = s->layout.classes[c].slot.slot_bytes;
    s->slab.size_bytes = sl_slots_size_bytes(slot_bytes, class_slots, s->layout.n_class);
    s->slab.base = mmap(NULL, s->slab.size_bytes, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (s->slab.base == MAP_FAILED)
        die("no room for %zu bytes of addresses", s->slab.size_bytes);
    if (sl_slots_init(&s->slots, &s->slab, 0, slot_bytes, class_slots, s->layout.n_class, &err) !=
        SL_OK)
        die("%s", err.text);
    const struct sl_fake_config fake = {.clock = &s->clock,
                                        .reader.slab = &s->slab,
                                        .drive[0] = {.bytes_per_s = m->disk_bytes_per_s,
                                                     .latency_ns = m->latency_ns,
                                                     .drive_depth = m->drive_depth}};
    uint32_t file;
    if (sl_fake_open(&fake, &s->reader, &err) != SL_OK ||
        sl_fake_add_file(s->reader, SL_READER_FILES, NULL, file_bytes, &file, &err) != SL_OK)
        die("%s", err.text);
    for (uint32_t i = 0; i < run->trace->n_steps; i++)
        if (run->trace->steps[i].n_rows > s->max_rows)
            s->max_rows = run->trace->steps[i].n_rows;
    if (sl_fetch_create(&(struct sl_fetch_config){.layout = &s->layout,
                                                  .slots = &s->slots,
                                                  .reader = s->reader,
                                                  .max_rows = s->max_rows,
                                                  .no_lookahead = run->ahead == SIM_CAUSAL,
                                                  .now_ns = now,
                                                  .clock = &s->clock},
                        &s->fetch, &err) != SL_OK)
        die("%s", err.text);
    size_t n_pairs = (size_t)s->max_rows * s->layout.k;
    s->ids = array(n_pairs, sizeof *s->ids);
    s->next_ids = array(n_pairs, sizeof *s->next_ids);
    s->pair_done = array(n_pairs, sizeof *s->pair_done);
    s->failed = array(s->max_rows, 1);
    s->in_call = array(s->layout.n_expert, 1);
    s->x = array(n_pairs * N_EMBD, sizeof *s->x);
}

static void close_sim(struct sim *s) {
    sl_cache_check(sl_fetch_cache(s->fetch));
    sl_fetch_quit(s->fetch);
    struct sl_cache_usage u;
    sl_cache_usage(sl_fetch_cache(s->fetch), &u);
    if (u.pinned || u.loading)
        die("%u slots are still leased and %u being filled at the end", u.pinned, u.loading);
    sl_fetch_destroy(&s->fetch);
    sl_reader_close(&s->reader);
    munmap(s->slab.base, s->slab.size_bytes);
    sl_expert_layout_release(&s->layout);
    free(s->ids);
    free(s->next_ids);
    free(s->pair_done);
    free(s->failed);
    free(s->in_call);
    free(s->x);
}

/* ---- running ---- */

static double dense_ns(const struct sim *s, double bytes, uint32_t n_prompt) {
    return max(mem_ns(s, bytes), bytes * n_prompt * s->run->machine->row_byte_ns);
}

static void copy_ids(const struct replay_trace *t, uint32_t step, uint32_t *out) {
    const struct replay_step *s = &t->steps[step];
    for (uint32_t i = 0; i < s->n_rows * t->shape.k; i++)
        out[i] = t->ids[s->rows_at + i];
}

/* Most wrong predictions are no strays: what another token chose in that layer. */
static uint32_t wrong_id(struct sim *s, uint32_t i) {
    const struct replay_trace *t = s->run->trace;
    if (sl_rng_unit(&s->rng) < 0.1)
        return sl_rng_below(&s->rng, t->shape.n_expert);
    uint32_t back = (1 + sl_rng_below(&s->rng, 16)) * t->shape.n_layer;
    const struct replay_step *other = &t->steps[i >= back ? i - back : i];
    return t->ids[other->rows_at + sl_rng_below(&s->rng, other->n_rows * t->shape.k)];
}

/* What forward_graphs.c tells of the layers to come. Of measured routers the k-th choice is right
 * half as often as the first at a distance of 4 layers, two thirds at 1. */
static void look_far(struct sim *s, uint32_t i) {
    const struct replay_trace *t = s->run->trace;
    uint32_t k = t->shape.k, n = sl_fetch_predictions(s->fetch, t->steps[i].n_rows);
    for (uint32_t which = 0; which < n; which++) {
        uint32_t d = sl_fetch_prediction_ahead[which];
        if (i + d >= t->n_steps || t->steps[i + d].layer != s->layer + d ||
            t->steps[i + d].phase != SL_PHASE_DECODE)
            return;
        const struct replay_step *next = &t->steps[i + d];
        copy_ids(t, i + d, s->next_ids);
        for (uint32_t j = 0; j < next->n_rows * k; j++) {
            double rank = (double)(j % k + 1) / k;
            double right = s->run->right * (1 - (0.3 + 0.05 * d) * rank * rank);
            if (sl_rng_unit(&s->rng) >= right)
                s->next_ids[j] = wrong_id(s, i + d);
        }
        sl_fetch_predict(s->fetch, which, next->layer, s->next_ids, next->n_rows * k);
    }
}

/* What forward.c tells of the next layer before it runs this one. */
static void look_ahead(struct sim *s, uint32_t i) {
    const struct replay_trace *t = s->run->trace;
    if (s->run->ahead == SIM_FAR && t->steps[i].phase == SL_PHASE_DECODE) {
        look_far(s, i);
        return;
    }
    if (s->run->ahead < SIM_PREDICTION || i + 1 == t->n_steps ||
        t->steps[i].phase != SL_PHASE_DECODE || t->steps[i + 1].phase != SL_PHASE_DECODE)
        return;
    const struct replay_step *next = &t->steps[i + 1];
    if (s->run->ahead == SIM_LAYER && next->layer != s->layer + 1)
        return;
    copy_ids(t, i + 1, s->next_ids);
    if (s->run->ahead == SIM_PREDICTION) {
        if (next->layer != s->layer + 1 || !sl_fetch_wants_ahead(s->fetch))
            return;
        for (uint32_t j = 0; j < next->n_rows * t->shape.k; j++)
            if (sl_rng_unit(&s->rng) >= s->run->right)
                s->next_ids[j] = sl_rng_below(&s->rng, t->shape.n_expert);
    }
    sl_fetch_ahead(s->fetch, next->layer, s->next_ids, next->n_rows * t->shape.k);
}

/* Sums over the measured steps. */
struct sums {
    double time_ns, dense_ns, touched_ns, touched_bytes, used_bytes, disk_bytes, bound_ns;
    uint64_t n_steps, read_ahead, used_ahead, calls, reads, syscalls;
};

/* The least time in which anybody could have run the layers so far, given what each of them had to
 * read: a layer's reads start when its ids are known, one after the other, and an expert can be
 * computed when it is there. */
struct bound {
    double now_ns, disk_free_ns, known_ns; /* since when this layer's ids are known */
};

static void bound_layer(const struct sim *s, struct bound *b, double n_read, double shared_ns,
                        double touched_ns) {
    const struct sim_machine *m = s->run->machine;
    double expert = (double)s->layout.layers[s->layer].expert_bytes;
    double blocks = expert + 3 * 4096; /* what O_DIRECT must read for it */
    double known = s->run->ahead == SIM_CAUSAL || (s->run->ahead <= SIM_LAYER && s->layer == 0)
                       ? b->now_ns
                       : b->known_ns;
    b->known_ns = b->now_ns; /* the next layer's */
    double end = b->now_ns + shared_ns + touched_ns + (double)m->call_ns;
    if (n_read > 0) {
        double start = max(known + (double)m->latency_ns, b->disk_free_ns);
        b->disk_free_ns = start + n_read * blocks * 1e9 / (double)m->disk_bytes_per_s;
        end = max(end, b->disk_free_ns + mem_ns(s, expert) + (double)m->call_ns);
    }
    b->now_ns = end;
}

static void run_layer(struct sim *s, struct sim_device *dev, uint32_t i, struct bound *bound,
                      struct sums *sum) {
    const struct replay_trace *t = s->run->trace;
    const struct sim_shape *shape = s->run->shape;
    const struct sim_machine *m = s->run->machine;
    const struct replay_step *st = &t->steps[i];
    uint32_t n_decode = st->phase == SL_PHASE_DECODE ? st->n_rows : 0;
    uint32_t n_prompt = st->n_rows - n_decode, n_pairs = st->n_rows * shape->k;
    uint64_t start_ns = s->clock.now_ns;
    double bound_start = bound->now_ns;
    const struct sl_fetch_stats *fs = sl_fetch_stats(s->fetch);
    struct sl_fetch_stats before = *fs;
    struct sl_reader_stats disk_before, disk;
    sl_reader_get_stats(s->reader, &disk_before);

    s->layer = st->layer;
    s->step = i + 1;
    double dense = (double)shape->layer_bytes;
    compute(s, dense_ns(s, dense * 0.4, n_prompt)); /* q, k, v */
    sl_fetch_poll(s->fetch);
    compute(s, dense_ns(s, dense * 0.2, n_prompt)); /* attention */
    sl_fetch_poll(s->fetch);
    compute(s, dense_ns(s, dense * 0.4, n_prompt)); /* its output, the router */

    copy_ids(t, i, s->ids);
    memset(s->failed, 0, st->n_rows);
    sl_fetch_begin(s->fetch, st->layer,
                   &(struct sl_fetch_rows){s->ids, st->n_rows, n_decode, s->failed, n_prompt});
    look_ahead(s, i);
    double shared = dense_ns(s, (double)shape->shared_bytes, n_prompt);
    compute(s, shared);
    struct sl_op_moe op = {.x = s->x,
                           .ids = s->ids,
                           .pair_y = s->x,
                           .gate_dtype = SL_DTYPE_F32,
                           .up_dtype = SL_DTYPE_F32,
                           .down_dtype = SL_DTYPE_F32,
                           .n_tok = st->n_rows,
                           .n_decode = n_decode,
                           .k = shape->k,
                           .n_expert = shape->n_expert,
                           .n_embd = N_EMBD,
                           .n_ff = N_EMBD};
    uint32_t n_failed;
    struct sl_err err;
    if (sl_fetch_run(s->fetch, &dev->base, &op, NULL, &n_failed, &err) != SL_OK || n_failed)
        die("layer %u: %s", st->layer, err.text);
    for (uint32_t p = 0; p < n_pairs; p++)
        if (s->pair_done[p] != s->step)
            die("pair %u of layer %u was never computed", p, st->layer);

    double expert = (double)s->layout.layers[st->layer].expert_bytes;
    double touched = st->n_distinct * expert;
    double n_read =
        (double)(fs->misses - before.misses) + (double)(fs->ahead_used - before.ahead_used);
    double touched_ns = max(mem_ns(s, touched), n_prompt ? n_pairs * expert * m->row_byte_ns : 0);
    double out = 0;
    bound->now_ns += dense_ns(s, dense, n_prompt);
    bound_layer(s, bound, n_read, shared, touched_ns);
    if (st->layer + 1U == shape->n_layer) {
        out = mem_ns(s, (double)shape->output_bytes);
        compute(s, out);
        bound->now_ns += out;
    }
    if (st->phase != s->run->phase || i < s->first_measured)
        return;
    sl_reader_get_stats(s->reader, &disk);
    sum->n_steps += st->layer == 0;
    sum->time_ns += (double)(s->clock.now_ns - start_ns);
    sum->dense_ns += dense_ns(s, dense, n_prompt) + shared + out;
    sum->touched_ns += touched_ns;
    sum->touched_bytes += touched;
    sum->used_bytes += n_read * expert;
    sum->disk_bytes += (double)(disk.read_bytes - disk_before.read_bytes);
    sum->bound_ns += bound->now_ns - bound_start;
    sum->read_ahead += fs->ahead_read - before.ahead_read;
    sum->used_ahead += fs->ahead_used - before.ahead_used;
    sum->calls += fs->calls - before.calls;
    sum->reads += disk.reads - disk_before.reads;
    sum->syscalls += disk.syscalls - disk_before.syscalls;
}

void sim_run(const struct sim_run *run, struct sim_result *out_result) {
    const struct replay_trace *t = run->trace;
    if (t->shape.n_layer != run->shape->n_layer || t->shape.n_expert != run->shape->n_expert ||
        t->shape.k != run->shape->k)
        die("the trace is not of the shape %s", run->shape->name);
    struct sim s;
    struct sim_device dev;
    open_sim(&s, run);
    device_init(&dev, &s);
    /* The cache is warm when measuring begins, with a step's first layer. */
    s.first_measured = t->measure_from;
    while (t->steps[s.first_measured].layer != 0)
        s.first_measured++;
    struct sums sum = {0};
    struct bound bound = {0};
    for (uint32_t i = 0; i < t->n_steps; i++)
        run_layer(&s, &dev, i, &bound, &sum);
    if (!sum.n_steps)
        die("nothing to measure");
    double n = (double)sum.n_steps, disk_s = 1e9 / (double)run->machine->disk_bytes_per_s / n;
    double miss_share = sum.used_bytes / sum.touched_bytes;
    *out_result = (struct sim_result){
        .n_steps = sum.n_steps,
        .step_ns = sum.time_ns / n,
        .hit_share = 1 - miss_share,
        .disk_ns = sum.used_bytes * disk_s,
        .mem_ns = (sum.dense_ns + sum.touched_ns * (1 - miss_share)) / n,
        .dense_ns = sum.dense_ns / n,
        .all_mem_ns = (sum.dense_ns + sum.touched_ns) / n,
        .touched_read_ns = sum.touched_bytes * disk_s,
        .bound_ns = sum.bound_ns / n,
        .amplification = sum.used_bytes > 0 ? sum.disk_bytes / sum.used_bytes : 1,
        .read_ahead = (double)sum.read_ahead / n,
        .used_ahead = (double)sum.used_ahead / n,
        .calls = (double)sum.calls / n,
        .reads = (double)sum.reads / n,
        .syscalls = (double)sum.syscalls / n,
    };
    close_sim(&s);
}
