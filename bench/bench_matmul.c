/* bench_matmul: how fast weights go through the CPU's product kernels.
 *
 *   one      one input row against matrices that do not fit in any cache: GB/s of weights, and the
 *            share of the RAM-read ceiling that this run measured just before
 *   eight    eight input rows together: rows/s relative to one row
 *   many     512 input rows: GMAC/s
 *   moe      a layer of 64 experts, top-8, 2048 x 768, Q4_K gate and up, Q6_K down: one row
 *            (GB/s of expert weights), eight rows, 512 rows (GMAC/s)
 *
 * Usage: bench_matmul [--isa c|avx2|avx512|vnni] [--threads N] [--types Q4_K,Q6_K,..] [--mib N]
 *                     [--seconds S] [--only one|eight|many|moe]
 * --mib: of weights, 32 at least (default 1024).
 * Machines are seldom quiet: every figure is the best of its repetitions. */
#include "backends/cpu/cpu.h"
#include "backends/ops/matmul.h"
#include "backends/ops/moe.h"
#include "cli/measure/ram_bandwidth.h"
#include "common/clock.h"
#include "common/rng.h"
#include "tests/support/device_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_IN  2048u
#define N_OUT 4096u

struct options {
    enum sl_cpu_isa isa;
    uint32_t n_threads;
    const char *types, *only;
    size_t bytes;
    double seconds;
};

static void check(enum sl_status status, const char *what) {
    if (status == SL_OK)
        return;
    fprintf(stderr, "bench_matmul: %s: %s\n", what, sl_status_text(status));
    exit(1);
}

static float *random_x(struct sl_rng *rng, size_t n) {
    float *x = aligned_alloc(64, (n * 4 + 63) / 64 * 64);
    for (size_t i = 0; x && i < n; i++)
        x[i] = (float)(2 * sl_rng_unit(rng) - 1);
    return x;
}

#define N_IN  2048u
#define N_OUT 4096u

/* Best seconds per call; each call takes the next of n_matrices. */
static double time_matmul(struct sl_device *d, enum sl_dtype t, const uint8_t *data,
                          uint32_t n_matrices, uint32_t n_out, uint32_t n_tok, const float *x,
                          float *y, double seconds) {
    size_t bytes = sl_dtype_row_bytes(t, N_IN) * n_out;
    uint64_t end = sl_now_ns() + (uint64_t)(seconds * 1e9);
    double best = 1e30;
    uint32_t next = 0;
    const uint32_t batch = n_matrices < 16 ? 1 : 16; /* calls per reading of the clock */
    do {
        uint64_t t0 = sl_now_ns();
        for (uint32_t i = 0; i < batch; i++) {
            struct sl_op_matmul op = {.x = x, .n_tok = n_tok, .n_w = 1};
            op.out[0] = (struct sl_matmul_out){
                .w = {t, N_IN, n_out, data + (next++ % n_matrices) * bytes}, .y = y};
            check(sl_op_matmul(d, &op), "matmul");
        }
        double s = (double)(sl_now_ns() - t0) * 1e-9 / batch;
        best = s < best ? s : best;
    } while (sl_now_ns() < end);
    return best;
}

static bool listed(const char *list, const char *name) {
    if (!list)
        return true;
    size_t n = strlen(name);
    for (const char *s = list; (s = strstr(s, name)); s += n)
        if ((s == list || s[-1] == ',') && (s[n] == ',' || s[n] == 0))
            return true;
    return false;
}

static void bench_types(struct sl_device *d, const struct options *o, uint8_t *data, double ceiling,
                        const float *x, float *y) {
    printf("%-8s %9s %6s %9s %6s %10s\n", "type", "one GB/s", "of RAM", "eight x", "", "GMAC/s");
    for (uint32_t t = 0; t < SL_DTYPE_COUNT; t++) {
        const struct sl_dtype_info *info = sl_dtype_info(t);
        if (!info || !listed(o->types, info->name))
            continue;
        size_t bytes = sl_dtype_row_bytes((enum sl_dtype)t, N_IN) * N_OUT;
        uint32_t n = (uint32_t)(o->bytes / bytes);
        if (t == SL_DTYPE_MXFP4) /* exponents near one: denormals would be timed instead */
            for (size_t i = 0; i < o->bytes; i += info->block_bytes)
                data[i] = 120;
        printf("%-8s", info->name);
        fflush(stdout);
        double one = 0;
        if (listed(o->only, "one") || listed(o->only, "eight")) {
            one = time_matmul(d, t, data, n, N_OUT, 1, x, y, o->seconds);
            printf(" %9.2f %5.0f%%", (double)bytes / one * 1e-9,
                   (double)bytes / one * 1e-7 / ceiling);
            fflush(stdout);
        }
        if (listed(o->only, "eight"))
            printf(" %9.2f %6s", 8 * one / time_matmul(d, t, data, n, N_OUT, 8, x, y, o->seconds),
                   "");
        fflush(stdout);
        if (listed(o->only, "many"))
            printf(" %10.1f", 512.0 * N_IN * 512 /
                                  time_matmul(d, t, data, 8, 512, 512, x, y, o->seconds) * 1e-9);
        printf("\n");
    }
}

#define MOE_EMBD   2048u
#define MOE_FF     768u
#define MOE_EXPERT 64u
#define MOE_TOPK   8u

static double time_moe(struct sl_device *d, const uint8_t *data, size_t data_bytes, uint32_t n_tok,
                       const float *x, float *y, double seconds) {
    size_t up = sl_dtype_row_bytes(SL_DTYPE_Q4_K, MOE_EMBD) * MOE_FF;
    size_t down = sl_dtype_row_bytes(SL_DTYPE_Q6_K, MOE_FF) * MOE_EMBD;
    size_t layer = (2 * up + down) * MOE_EXPERT;
    uint32_t n_layers = (uint32_t)(data_bytes / layer);
    struct sl_expert_ref *refs = malloc(n_layers * MOE_EXPERT * sizeof *refs);
    uint32_t *ids = malloc((size_t)n_tok * MOE_TOPK * 4 * 64);
    if (!refs || !ids)
        check(SL_ERR_NOMEM, "moe");
    for (uint32_t l = 0; l < n_layers; l++)
        for (uint32_t e = 0; e < MOE_EXPERT; e++) {
            const uint8_t *p = data + l * layer;
            refs[l * MOE_EXPERT + e] = (struct sl_expert_ref){p + e * up, p + (MOE_EXPERT + e) * up,
                                                              p + 2 * MOE_EXPERT * up + e * down};
        }
    struct sl_rng rng = {3};
    for (uint32_t t = 0; t < n_tok * 64; t++) { /* distinct experts, uniform */
        uint64_t used = 0;
        for (uint32_t i = 0; i < MOE_TOPK;) {
            uint32_t e = sl_rng_below(&rng, MOE_EXPERT);
            if (!(used >> e & 1))
                ids[t * MOE_TOPK + i++] = e;
            used |= 1ull << e;
        }
    }
    double best = 1e30;
    uint64_t end = sl_now_ns() + (uint64_t)(seconds * 1e9);
    uint32_t next = 0, batch = n_tok > 64 ? 1 : n_layers;
    do {
        uint64_t t0 = sl_now_ns();
        for (uint32_t i = 0; i < batch; i++, next++) {
            struct sl_op_moe op = {.x = x,
                                   .ids = ids + (next % 64) * n_tok * MOE_TOPK,
                                   .pair_y = y,
                                   .refs = refs + next % n_layers * MOE_EXPERT,
                                   .gate_dtype = SL_DTYPE_Q4_K,
                                   .up_dtype = SL_DTYPE_Q4_K,
                                   .down_dtype = SL_DTYPE_Q6_K,
                                   .n_tok = n_tok,
                                   .k = MOE_TOPK,
                                   .n_pairs = n_tok * MOE_TOPK,
                                   .n_expert = MOE_EXPERT,
                                   .n_embd = MOE_EMBD,
                                   .n_ff = MOE_FF};
            check(sl_op_moe(d, &op), "moe");
        }
        double s = (double)(sl_now_ns() - t0) * 1e-9 / batch;
        best = s < best ? s : best;
    } while (sl_now_ns() < end);
    free(refs);
    free(ids);
    return best;
}

static void bench_moe(struct sl_device *d, const struct options *o, const uint8_t *data,
                      double ceiling, const float *x, float *y) {
    double expert = (double)(2 * sl_dtype_row_bytes(SL_DTYPE_Q4_K, MOE_EMBD) * MOE_FF +
                             sl_dtype_row_bytes(SL_DTYPE_Q6_K, MOE_FF) * MOE_EMBD);
    double macs = 3.0 * MOE_EMBD * MOE_FF * MOE_TOPK;
    double one = time_moe(d, data, o->bytes, 1, x, y, o->seconds);
    double eight = time_moe(d, data, o->bytes, 8, x, y, o->seconds);
    double many = time_moe(d, data, o->bytes, 512, x, y, 2 * o->seconds);
    double rate = expert * MOE_TOPK / one * 1e-9;
    printf("moe      one %.1f us = %.2f GB/s, %.0f%% of RAM; eight %.2f x; 512 rows %.1f ms = %.1f "
           "GMAC/s\n",
           one * 1e6, rate, rate / ceiling * 100, 8 * one / eight, many * 1e3,
           macs * 512 / many * 1e-9);
}

static bool option(struct options *o, const char *name, const char *value) {
    if (!strcmp(name, "--isa")) {
        for (int i = SL_CPU_C; i < SL_CPU_BEST; i++)
            if (!strcmp(value, sl_cpu_isa_name((enum sl_cpu_isa)i))) {
                o->isa = (enum sl_cpu_isa)i;
                return true;
            }
        return false;
    }
    if (!strcmp(name, "--threads"))
        return (o->n_threads = (uint32_t)atoi(value)) > 0;
    if (!strcmp(name, "--mib"))
        return (o->bytes = (size_t)atoi(value) << 20) >= (size_t)N_IN * N_OUT * sizeof(float);
    if (!strcmp(name, "--seconds"))
        return (o->seconds = atof(value)) > 0;
    if (!strcmp(name, "--types"))
        return (o->types = value) != NULL;
    return !strcmp(name, "--only") && (o->only = value) != NULL;
}

int main(int argc, char **argv) {
    struct options o = {.isa = SL_CPU_BEST, .bytes = (size_t)1 << 30, .seconds = 0.5};
    for (int i = 1; i < argc; i += 2)
        if (i + 1 >= argc || !option(&o, argv[i], argv[i + 1])) {
            fprintf(stderr, "bench_matmul: cannot use \"%s\"; see the head of bench_matmul.c\n",
                    argv[i]);
            return 2;
        }
    struct sl_device *d;
    struct sl_err err;
    if (sl_cpu_open(&(struct sl_cpu_config){o.n_threads, o.isa, 0}, &d, &err)) {
        fprintf(stderr, "bench_matmul: %s\n", err.text);
        return 1;
    }
    const struct sl_device_limits limits = {.max_tok = 512,
                                            .max_n_in = N_IN,
                                            .max_pairs = 512 * MOE_TOPK,
                                            .max_n_embd = MOE_EMBD,
                                            .max_n_ff = MOE_FF,
                                            .max_expert = MOE_EXPERT};
    check(sl_device_configure(d, &limits, NULL), "configure");
    struct sl_rng rng = {1};
    void *data;
    check(mem_alloc(d, o.bytes, &data), "weights");
    /* Half-word pattern 0x2xxx: small positive f16 scales wherever a type has them. */
    for (size_t i = 0; i < o.bytes / 8; i++)
        ((uint64_t *)data)[i] = (sl_rng_u64(&rng) & 0x2fff2fff2fff2fff) | 0x2000200020002000;
    float *x = random_x(&rng, 512 * N_IN), *y = malloc((size_t)512 * MOE_TOPK * MOE_EMBD * 4);
    if (!x || !y)
        check(SL_ERR_NOMEM, "rows");
    uint32_t n_threads = o.n_threads;
    if (!n_threads) {
        const char *s = strrchr(d->caps.name, ',');
        n_threads = s ? (uint32_t)atoi(s + 1) : 1;
    }
    double ceiling = sl_ram_read_bandwidth(n_threads ? n_threads : 1, 2, (uint64_t)1 << 30) * 1e-9;
    printf("%s; RAM read %.2f GB/s, weights of %zu MiB\n", d->caps.name, ceiling, o.bytes >> 20);
    if (listed(o.only, "one") || listed(o.only, "eight") || listed(o.only, "many"))
        bench_types(d, &o, data, ceiling, x, y);
    if (listed(o.only, "moe"))
        bench_moe(d, &o, data, ceiling, x, y);
    mem_free(d, data);
    sl_device_close(&d);
    free(x);
    free(y);
    return 0;
}
