/* The results, as a table or as JSON. */
#include "cli/bench/bench.h"

#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

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

static double ratio(uint64_t a, uint64_t b) {
    return b ? (double)a / (double)b : 0;
}

/* "CUDA", or "CUDA+CPU" where devices of several backends have layers: what ids begin with. */
static const char *backend(const struct sl_bench *b) {
    static char text[8 * SL_MAX_STAGES * 2];
    size_t n = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < b->info.n_stages; i++) {
        char name[16];
        size_t len = strcspn(b->info.stages[i].id, ":");
        for (size_t k = 0; k < len && k + 1 < sizeof name; k++)
            name[k] = (char)toupper((unsigned char)b->info.stages[i].id[k]);
        name[len < sizeof name ? len : sizeof name - 1] = 0;
        if (strstr(text, name) == NULL && n < sizeof text)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", n ? "+" : "", name);
    }
    return text;
}

/* ---- the table ---- */

static void print_row(const struct sl_bench *b, const struct sl_bench_test *t, const char *label,
                      const char *size, const char *count) {
    char rate[48], causal[24] = "", causal_part[24] = "", overlap[24] = "", overlap_part[24] = "";
    struct sl_bench_limits l;
    sl_bench_limits(b, t, &l);
    snprintf(rate, sizeof rate, "%.2f ± %.2f", t->mean, t->sd);
    if (l.causal_rate > 0) {
        snprintf(causal, sizeof causal, "%.1f", l.causal_rate);
        snprintf(causal_part, sizeof causal_part, "%.1f %%", 100 * t->mean / l.causal_rate);
        snprintf(overlap, sizeof overlap, "%.1f", l.overlap_rate);
        snprintf(overlap_part, sizeof overlap_part, "%.1f %%", 100 * t->mean / l.overlap_rate);
    }
    /* ± is two bytes and one column. */
    printf("| %-30s | %10s | %10s | %-7s | %7u | %12s | %17s | %8s | %7s | %8s | %7s |\n", label,
           size, count, backend(b), b->n_threads, t->name, rate, causal, causal_part, overlap,
           overlap_part);
}

static void print_table(const struct sl_bench *b) {
    char label[96], size[32], count[32];
    uint64_t bytes, params;
    model_label(b->model, label, sizeof label);
    model_size(b->model, &bytes, &params);
    snprintf(size, sizeof size, "%.2f GiB", (double)bytes / 0x1p30);
    if (bytes < 1u << 30)
        snprintf(size, sizeof size, "%.2f MiB", (double)bytes / 0x1p20);
    snprintf(count, sizeof count, params < 1000000000u ? "%.2f M" : "%.2f B",
             (double)params / (params < 1000000000u ? 1e6 : 1e9));
    printf("| %-30s | %10s | %10s | %-7s | %7s | %12s | %16s | %8s | %7s | %8s | %7s |\n", "model",
           "size", "params", "backend", "threads", "test", "t/s", "causal", "reached", "overlap",
           "reached");
    printf("| %s | %s: | %s: | %s | %s: | %s: | %s: | %s: | %s: | %s: | %s: |\n",
           "------------------------------", "---------", "---------", "-------", "------",
           "-----------", "---------------", "-------", "------", "-------", "------");
    for (uint32_t i = 0; i < b->n_tests; i++)
        print_row(b, &b->tests[i], label, size, count);
}

static void print_memory(const struct sl_bench *b, const struct sl_bench_test *t) {
    struct sl_bench_limits l;
    sl_bench_limits(b, t, &l);
    if (t->n_gen)
        printf("%s reads %.1f MB of weights per step (dense %.1f, routed %.1f)\n", t->name,
               l.step_bytes * 1e-6, (double)b->dense_bytes * 1e-6,
               (l.step_bytes - (double)b->dense_bytes) * 1e-6);
}

/* Where experts were, and what crossed the link. */
static void print_tiers(const struct sl_bench_test *t) {
    const struct sl_bench_counts *c = &t->counts;
    uint64_t asked = c->hits + c->host_hits + c->late + c->misses;
    uint64_t tokens = sl_bench_tokens(t);
    printf("%s tiers: %.1f %% on the device, %.1f %% in host memory, %.1f %% on disk; a token read "
           "%.2f MB in place, took %.2f MB up and %.2f MB down (%" PRIu64 " experts up, %" PRIu64
           " down; %" PRIu64 " copied early, %" PRIu64 " of them wanted)\n",
           t->name, 100 * ratio(c->hits, asked), 100 * ratio(c->host_hits, asked),
           100 * ratio(c->late + c->misses, asked), ratio(c->link_read_bytes, tokens) * 1e-6,
           ratio(c->link_up_bytes, tokens) * 1e-6, ratio(c->link_down_bytes, tokens) * 1e-6,
           c->promotions, c->demotions, c->early, c->early_used);
    if (c->lane_experts)
        printf("%s CPU lane: %.1f %% of the experts in host memory were computed there, at %.1f "
               "GB/s\n",
               t->name, 100 * ratio(c->lane_experts, c->host_hits),
               ratio(c->lane_bytes, c->lane_ns));
}

static void print_drafts(const struct sl_bench_test *t) {
    const struct sl_bench_counts *c = &t->counts;
    if (c->drafts)
        printf("%s drafts: %" PRIu64 " verified, %.1f %% right; the layer that drafts took %.1f %% "
               "of the time\n",
               t->name, c->drafts, 100 * ratio(c->drafts_accepted, c->drafts),
               100 * ratio(c->draft_ns, c->step_ns));
}

static void print_experts(const struct sl_bench *b, const struct sl_bench_test *t) {
    const struct sl_bench_counts *c = &t->counts;
    uint64_t asked = c->hits + c->host_hits + c->late + c->misses;
    uint64_t tokens = sl_bench_tokens(t);
    uint64_t stall = c->stall_demand_ns + c->stall_late_ns + c->stall_slot_ns;
    struct sl_bench_limits l;
    sl_bench_limits(b, t, &l);
    printf("%s experts: %.1f %% found in slots (%.1f %% read ahead in time), %.1f %% coming, "
           "%.1f %% on disk; %" PRIu64 " evicted\n",
           t->name, 100 * ratio(c->hits + c->host_hits, asked),
           100 * ratio(c->prefetch_used, asked), 100 * ratio(c->late, asked),
           100 * ratio(c->misses, asked), c->evictions);
    printf("%s disk: %.2f MB a token, amplification %.4f, %.2f requests and %.3f system calls an "
           "expert, %.2f GB/s while busy with %.0f requests in flight\n",
           t->name, ratio(c->disk_read_bytes, tokens) * 1e-6,
           ratio(c->disk_read_bytes, c->disk_needed_bytes), ratio(c->disk_requests, c->disk_reads),
           ratio(c->disk_syscalls, c->disk_reads), ratio(c->disk_read_bytes, c->disk_busy_ns),
           ratio(c->disk_flight_ns, c->disk_busy_ns));
    if (t->disk.n)
        printf("%s disk: %.2f GB/s with its queue full, measured around the runs (%.2f to %.2f)\n",
               t->name, t->disk.sum / t->disk.n * 1e-9, t->disk.least * 1e-9, t->disk.most * 1e-9);
    else if (l.disk_bytes > 0)
        printf("%s: no ceilings: the disk was not measured: %s\n", t->name, b->disk_why.text);
    printf("%s stalled %.1f %% of the time (demand %.1f, late %.1f, slot %.1f)\n", t->name,
           100 * ratio(stall, c->step_ns), 100 * ratio(c->stall_demand_ns, c->step_ns),
           100 * ratio(c->stall_late_ns, c->step_ns), 100 * ratio(c->stall_slot_ns, c->step_ns));
    if (!t->n_gen && l.disk_s > 0) {
        printf(
            "%s took %.3f s: reading what was on disk takes %.3f s, reading every touched expert "
            "%.3f s",
            t->name, t->n_prompt / t->mean, l.disk_s, l.touched_s);
        if (l.compute_s > 0)
            printf(", computing with all resident %.3f s", l.compute_s);
        printf("\n");
    }
}

void sl_bench_print(const struct sl_bench *b) {
    print_table(b);
    printf("\n%s; RAM read rate measured in this run: %.1f GB/s\n", b->info.device,
           b->ram_rate * 1e-9);
    if (b->info.discrete && b->device.memory > 0)
        printf("the device's memory, measured in this run: %.0f GB/s; from the host to it %.1f "
               "GB/s\n",
               b->device.memory * 1e-9, b->device.link * 1e-9);
    else if (b->info.discrete)
        printf("no ceilings: %s\n", b->device_why.text);
    for (uint32_t i = 0; i < b->n_tests; i++)
        print_memory(b, &b->tests[i]);
    for (uint32_t i = 0; i < b->n_tests; i++)
        print_drafts(&b->tests[i]);
    if (b->info.streaming) {
        printf("experts are streamed: %u slots for %u (%.1f %%)\n", b->info.n_slots,
               b->info.n_experts, 100.0 * b->info.n_slots / b->info.n_experts);
        if (b->info.discrete)
            printf("of them on the device: %u slots (%.1f %%)\n", b->info.n_device_slots,
                   100.0 * b->info.n_device_slots / b->info.n_experts);
        for (uint32_t i = 0; i < b->n_tests; i++) {
            print_experts(b, &b->tests[i]);
            if (b->info.discrete)
                print_tiers(&b->tests[i]);
        }
    }
    printf("most memory resident: %.1f MiB, of a budget of %.1f MiB\n",
           (double)b->rss_bytes / 0x1p20, (double)b->budget_bytes / 0x1p20);
}

/* ---- JSON ---- */

static void put(json_t *j, const char *name, double x) {
    json_object_set_new(j, name, json_real(x));
}

static void put_n(json_t *j, const char *name, uint64_t n) {
    json_object_set_new(j, name, json_integer((json_int_t)n));
}

static void put_limits(const struct sl_bench *b, const struct sl_bench_test *t, json_t *j) {
    struct sl_bench_limits l;
    sl_bench_limits(b, t, &l);
    if (t->n_gen) {
        put(j, "weight_bytes_per_step", l.step_bytes);
        put_n(j, "dense_bytes_per_step", b->dense_bytes);
        if (b->ram_rate > 0 && !b->info.discrete) {
            double ram = b->ram_rate / l.step_bytes * t->parallel;
            put(j, "ram_ceiling_ts", ram);
            put(j, "ram_ceiling_reached", t->mean / ram);
        }
    }
    put(j, "disk_bytes_per_step", l.disk_bytes);
    put(j, "memory_s_per_step", l.mem_s);
    put(j, "disk_s_per_step", l.disk_s);
    if (b->info.discrete) {
        put(j, "link_bytes_per_step", l.link_bytes);
        put(j, "link_s_per_step", l.link_s);
        put(j, "device_bytes_per_s", b->device.memory);
        put(j, "link_bytes_per_s", b->device.link);
    }
    if (l.causal_rate > 0) {
        put(j, "causal_ceiling_ts", l.causal_rate);
        put(j, "causal_ceiling_reached", t->mean / l.causal_rate);
        put(j, "overlap_ceiling_ts", l.overlap_rate);
        put(j, "overlap_ceiling_reached", t->mean / l.overlap_rate);
    }
    if (!t->n_gen) {
        put(j, "prefill_s", t->n_prompt / t->mean);
        put(j, "read_missing_s", l.disk_s);
        put(j, "read_touched_s", l.touched_s);
        if (l.compute_s > 0)
            put(j, "compute_resident_s", l.compute_s);
    }
}

static void put_experts(const struct sl_bench *b, const struct sl_bench_test *t, json_t *j) {
    const struct sl_bench_counts *c = &t->counts;
    uint64_t asked = c->hits + c->host_hits + c->late + c->misses;
    uint64_t tokens = sl_bench_tokens(t);
    put_n(j, "expert_hits", c->hits);
    put_n(j, "expert_host_hits", c->host_hits);
    put_n(j, "expert_promotions", c->promotions);
    put_n(j, "expert_demotions", c->demotions);
    put_n(j, "expert_early", c->early);
    put_n(j, "expert_early_used", c->early_used);
    put_n(j, "lane_experts", c->lane_experts);
    put_n(j, "lane_bytes", c->lane_bytes);
    put_n(j, "lane_ns", c->lane_ns);
    put_n(j, "link_up_bytes", c->link_up_bytes);
    put_n(j, "link_down_bytes", c->link_down_bytes);
    put_n(j, "link_read_bytes", c->link_read_bytes);
    put_n(j, "device_slots", b->info.n_device_slots);
    put_n(j, "expert_late", c->late);
    put_n(j, "expert_misses", c->misses);
    put_n(j, "expert_prefetch_used", c->prefetch_used);
    put_n(j, "expert_evictions", c->evictions);
    put(j, "expert_hit_share", ratio(c->hits + c->host_hits, asked));
    put_n(j, "slots", b->info.n_slots);
    put_n(j, "experts", b->info.n_experts);
    put(j, "disk_bytes_per_token", ratio(c->disk_read_bytes, tokens));
    put(j, "read_amplification", ratio(c->disk_read_bytes, c->disk_needed_bytes));
    put(j, "requests_per_expert", ratio(c->disk_requests, c->disk_reads));
    put(j, "syscalls_per_expert", ratio(c->disk_syscalls, c->disk_reads));
    put(j, "disk_busy_bytes_per_s", 1e9 * ratio(c->disk_read_bytes, c->disk_busy_ns));
    put(j, "disk_mean_depth", ratio(c->disk_flight_ns, c->disk_busy_ns));
    put(j, "stall_share_demand", ratio(c->stall_demand_ns, c->step_ns));
    put(j, "stall_share_late", ratio(c->stall_late_ns, c->step_ns));
    put(j, "stall_share_slot", ratio(c->stall_slot_ns, c->step_ns));
    if (t->disk.n) {
        put(j, "disk_bytes_per_s", t->disk.sum / t->disk.n);
        put(j, "disk_least_bytes_per_s", t->disk.least);
        put(j, "disk_most_bytes_per_s", t->disk.most);
    }
}

int sl_bench_print_json(const struct sl_bench *b) {
    char label[96];
    uint64_t bytes, params;
    model_label(b->model, label, sizeof label);
    model_size(b->model, &bytes, &params);
    json_t *list = json_array();
    for (uint32_t i = 0; i < b->n_tests; i++) {
        const struct sl_bench_test *t = &b->tests[i];
        json_t *samples = json_array();
        for (uint32_t r = 0; r < t->n_reps; r++)
            json_array_append_new(samples, json_real(t->rate[r]));
        json_t *j = json_pack(
            "{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:o, s:f, s:b, s:I, s:I}",
            "test", t->name, "model", label, "device", b->info.device, "model_size_bytes",
            (json_int_t)bytes, "model_n_params", (json_int_t)params, "n_threads",
            (json_int_t)b->n_threads, "n_prompt", (json_int_t)(t->n_gen ? 0 : t->n_prompt), "n_gen",
            (json_int_t)t->n_gen, "n_depth", (json_int_t)t->depth, "n_parallel",
            (json_int_t)t->parallel, "avg_ts", t->mean, "stddev_ts", t->sd, "samples_ts", samples,
            "ram_read_bytes_per_s", b->ram_rate, "streamed", (int)b->info.streaming,
            "peak_rss_bytes", (json_int_t)b->rss_bytes, "budget_bytes",
            (json_int_t)b->budget_bytes);
        if (j)
            put_limits(b, t, j);
        if (j && b->model->hp.n_draft) {
            put_n(j, "drafts", t->counts.drafts);
            put_n(j, "drafts_accepted", t->counts.drafts_accepted);
            put_n(j, "draft_ns", t->counts.draft_ns);
        }
        if (j && b->info.streaming)
            put_experts(b, t, j);
        json_array_append_new(list, j);
    }
    int rc = json_dumpf(list, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) != 0;
    putchar('\n');
    json_decref(list);
    return rc;
}
