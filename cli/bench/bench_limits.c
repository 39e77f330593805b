/* The machine's ceilings: bytes that the runs touched, divided by bandwidths measured in the same
 * run. */
#include "cli/bench/bench.h"

#include "engine/plan/memory_plan.h"

#include <math.h>

/* Of one measurement of the disk. */
#define DISK_SECONDS 0.5

void sl_bench_disk_rate(struct sl_bench *b, struct sl_bench_disk *disk) {
    double rate;
    if (sl_engine_disk_speed(b->engine, DISK_SECONDS, &rate, &b->disk_why) != SL_OK)
        return;
    disk->least = disk->n ? fmin(disk->least, rate) : rate;
    disk->most = fmax(disk->most, rate);
    disk->sum += rate;
    disk->n++;
}

void sl_bench_limits(const struct sl_bench *b, const struct sl_bench_test *t,
                     struct sl_bench_limits *out) {
    const struct sl_bench_counts *c = &t->counts;
    *out = (struct sl_bench_limits){0};
    double n = t->n_gen ? (double)c->steps : (double)t->n_reps;
    if (n == 0)
        return;
    double disk = t->disk.n ? t->disk.sum / t->disk.n : 0, touched = (double)c->expert_bytes / n;
    /* What was read ahead and in time counts as found on disk: that is where it was. */
    double expert = c->experts ? (double)c->expert_bytes / (double)c->experts : 0;
    double from_disk = ((double)c->missed_bytes + (double)c->prefetch_used * expert) / n;
    out->disk_bytes = from_disk < touched ? from_disk : touched;
    out->step_bytes = (double)b->dense_bytes + touched;
    bool discrete = b->info.discrete;
    uint64_t asked = c->hits + c->host_hits + c->late + c->misses;
    out->link_bytes = discrete && asked ? touched * (double)(asked - c->hits) / (double)asked : 0;
    double memory = discrete ? b->device.memory : b->ram_rate;
    /* What the CPU computes alongside the device does not pass the link. */
    double link = b->device.link + (b->info.lane ? b->ram_rate : 0);
    bool disk_known = (out->disk_bytes == 0 || disk > 0) && (!discrete || b->device.link > 0);
    if (discrete && b->device.link > 0)
        out->link_s = out->link_bytes / link;
    if (disk > 0) {
        out->disk_s = out->disk_bytes / disk;
        out->touched_s = touched / disk;
    }
    if (!t->n_gen) {
        if (b->o->resident_prefill > 0)
            out->compute_s = t->n_prompt / (double)b->o->resident_prefill;
        double s = fmax(fmax(out->disk_s, out->link_s), out->compute_s);
        if (disk_known && s > 0)
            out->causal_rate = out->overlap_rate = t->n_prompt / s;
        return;
    }
    if (memory <= 0 || !disk_known)
        return;
    out->mem_s = (out->step_bytes - (discrete ? out->link_bytes : out->disk_bytes)) / memory;
    double reading_s = fmax(out->link_s, out->disk_s);
    out->causal_rate = t->parallel / (out->mem_s + reading_s);
    out->overlap_rate = t->parallel / fmax(out->mem_s, reading_s);
    /* Several devices each work on a step of their own; they share one disk. */
    double lanes = fmin(t->parallel, b->info.n_stages), most = t->parallel / (lanes * out->disk_s);
    if (out->disk_s > 0 && lanes > 1) {
        out->causal_rate = fmin(out->causal_rate, most);
        out->overlap_rate = fmin(out->overlap_rate, most);
    }
}
