/* The CPU as a device: opening, memory, and the op table. */
#include "backends/cpu/cpu_internal.h"

#include "backends/cpu/host/memory.h"
#include "backends/immediate.h"
#include "backends/planned.h"
#include "common/cpus.h"
#include "common/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint32_t default_threads(void) {
    uint32_t n = sl_cpus_allowed();
    return n < SL_CPU_MAX_THREADS ? n : SL_CPU_MAX_THREADS;
}

static enum sl_status cpu_buffer_alloc(struct sl_device *d, struct sl_buffer *buffer) {
    (void)d;
    enum sl_status status = sl_cpu_alloc(buffer->bytes, &buffer->addr);
    buffer->host = buffer->addr;
    return status;
}

static void cpu_buffer_free(struct sl_device *d, struct sl_buffer *buffer) {
    (void)d;
    sl_cpu_free(buffer->addr, buffer->bytes);
}

static enum sl_status cpu_upload(struct sl_device *d, struct sl_span dst, const void *src) {
    (void)d;
    memcpy(sl_span_host(dst), src, dst.bytes);
    return SL_OK;
}

static enum sl_status cpu_download(struct sl_device *d, void *dst, struct sl_span src) {
    (void)d;
    memcpy(dst, sl_span_host(src), src.bytes);
    return SL_OK;
}

static enum sl_status cpu_sync(struct sl_device *d) {
    (void)d;
    return SL_OK;
}

static void cpu_wake(struct sl_device *d) {
    sl_pool_wake(((struct sl_cpu *)d)->pool);
}

static enum sl_status cpu_memory(struct sl_device *d, uint64_t *out_free, uint64_t *out_total) {
    long pages = sysconf(_SC_AVPHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    *out_free = pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : 0;
    *out_total = d->caps.memory_bytes;
    return SL_OK;
}

static uint64_t cpu_scratch_bytes(const struct sl_device *d,
                                  const struct sl_device_limits *limits) {
    uint32_t n = ((const struct sl_cpu *)d)->n_threads;
    uint64_t need[] = {sl_cpu_matmul_scratch_bytes(limits, n), sl_cpu_moe_scratch_bytes(limits, n),
                       sl_cpu_attention_scratch_bytes(limits, n),
                       sl_cpu_head_matmul_scratch_bytes(limits, n),
                       sl_cpu_index_scratch_bytes(limits, n)};
    uint64_t most = 0;
    for (size_t i = 0; i < sizeof need / sizeof need[0]; i++)
        most = need[i] > most ? need[i] : most;
    return most;
}

static enum sl_status cpu_configure(struct sl_device *d, const struct sl_device_limits *limits) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    if (limits->max_head_dim > SL_CPU_MAX_HEAD_DIM) {
        sl_error("cpu: heads of %u elements; the most is %u", limits->max_head_dim,
                 SL_CPU_MAX_HEAD_DIM);
        return SL_ERR_UNSUPPORTED;
    }
    uint64_t bytes = cpu_scratch_bytes(d, limits);
    void *scratch = NULL;
    if (bytes)
        SL_TRY(sl_cpu_alloc(bytes, &scratch));
    if (cpu->scratch)
        sl_cpu_free(cpu->scratch, cpu->scratch_bytes);
    cpu->scratch = scratch;
    cpu->scratch_bytes = bytes;
    return SL_OK;
}

static void cpu_close(struct sl_device *d) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    if (cpu->scratch)
        sl_cpu_free(cpu->scratch, cpu->scratch_bytes);
    sl_pool_destroy(&cpu->pool);
    free(cpu);
}

static bool cpu_supports(const struct sl_device *d, const struct sl_op_need *need) {
    (void)d;
    return need->head_dim_k <= SL_CPU_MAX_HEAD_DIM && need->head_dim_v <= SL_CPU_MAX_HEAD_DIM;
}

static const struct sl_backend_ops cpu_ops = {
    .name = "cpu",
    .close = cpu_close,
    .configure = cpu_configure,
    .scratch_bytes = cpu_scratch_bytes,
    .alloc = cpu_buffer_alloc,
    .free = cpu_buffer_free,
    .upload = cpu_upload,
    .download = cpu_download,
    .sync = cpu_sync,
    .wake = cpu_wake,
    .memory = cpu_memory,
    .supports = cpu_supports,
    SL_IMMEDIATE_QUEUES,
    SL_IMMEDIATE_FUSED,
#define SL_OP(name) .name = sl_cpu_##name,
#define SL_OP_BETWEEN(name)
#include "backends/ops.def"
};

static void fill_kernels(struct sl_cpu_kernels *k, enum sl_cpu_isa isa) {
    sl_cpu_norm_init(k);
    sl_cpu_rope_init(k);
    sl_cpu_kv_init(k);
    sl_cpu_elementwise_init(k);
    sl_cpu_attention_init(k);
    sl_cpu_recurrent_init(k);
#if defined(__x86_64__)
    if (isa >= SL_CPU_AVX2) {
        sl_cpu_elementwise_init_avx2(k);
        sl_cpu_attention_init_avx2(k);
        sl_cpu_recurrent_init_avx2(k);
    }
    if (isa >= SL_CPU_AVX512) {
        sl_cpu_elementwise_init_avx512(k);
        sl_cpu_attention_init_avx512(k);
        sl_cpu_recurrent_init_avx512(k);
    }
#else
    (void)isa;
#endif
}

static uint64_t host_memory(void) {
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : 0;
}

static void write_model(enum sl_cpu_isa isa, uint32_t n_threads,
                        char out_model[SL_DEVICE_NAME_BYTES]) {
    char brand[64], tail[32];
    static const char *const isa_text[] = {"plain C", "avx2", "avx512", "avx512+vnni"};
    sl_cpu_brand(brand, sizeof brand);
    snprintf(tail, sizeof tail, ", %s, %u thread%s", isa_text[isa], n_threads,
             n_threads == 1 ? "" : "s");
    /* A long brand gives way to what follows it. */
    int room = (int)SL_DEVICE_NAME_BYTES - 6 - (int)strlen(tail);
    snprintf(out_model, SL_DEVICE_NAME_BYTES, "%.*s%s", room, brand, tail);
}

static void fill_caps(struct sl_device_caps *caps, enum sl_cpu_isa isa, uint32_t n_threads) {
    write_model(isa, n_threads, caps->model);
    sl_device_caps_set_id(caps, cpu_ops.name, 0, true);
    snprintf(caps->arithmetic_id, sizeof caps->arithmetic_id, "%s", cpu_ops.name);
    caps->kind = SL_DEVICE_HOST;
    caps->host_visible = caps->mapped_host = true;
    caps->rows_alike = true;
    caps->moe_bias = caps->swiglu_clamped = caps->router_groups = true;
    caps->geglu = caps->extra_args = caps->sigmoid_topk = caps->router_share = true;
    caps->latent_window = true;
    caps->swiglu_limited = caps->swiglu_cut = caps->reglu = caps->relu_squared = true;
    caps->situ = true;
    caps->arithmetic = SL_CPU_ARITHMETIC;
    caps->overlap = n_threads > 1;
    caps->memory_bytes = host_memory();
    for (uint32_t t = 0; t < SL_DTYPE_COUNT; t++)
        caps->weight_dtype[t] = sl_dtype_info(t) != NULL;
    caps->kv_dtype[SL_DTYPE_F16] = caps->kv_dtype[SL_DTYPE_Q8_0] = true;
}

enum sl_status sl_cpu_open(const struct sl_cpu_config *config, struct sl_device **out_device,
                           struct sl_err *err) {
    enum sl_cpu_isa best = sl_cpu_best_isa();
    enum sl_cpu_isa isa = config->isa == SL_CPU_BEST ? best : config->isa;
    if ((unsigned)isa > SL_CPU_VNNI)
        return sl_fail(err, SL_ERR_INVALID, "cpu: instruction set number %u is none of ours",
                       (unsigned)isa);
    if (isa > best)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "cpu: this machine has no %s; the best it has is %s", sl_cpu_isa_name(isa),
                       sl_cpu_isa_name(best));
    uint32_t n_threads = config->n_threads ? config->n_threads : default_threads();
    if (n_threads > SL_CPU_MAX_THREADS)
        return sl_fail(err, SL_ERR_INVALID, "cpu: %u threads asked for; the most is %u", n_threads,
                       SL_CPU_MAX_THREADS);

    struct sl_cpu *cpu = calloc(1, sizeof *cpu);
    if (!cpu)
        return sl_fail(err, SL_ERR_NOMEM, "cpu: out of memory");
    cpu->base.ops = &cpu_ops;
    cpu->isa = isa;
    cpu->n_threads = n_threads;
    fill_kernels(&cpu->k, isa);
    fill_caps(&cpu->base.caps, isa, n_threads);
    enum sl_status status = sl_pool_create(n_threads, &cpu->pool);
    if (status) {
        free(cpu);
        return sl_fail(err, status, "cpu: cannot start %u threads; try fewer", n_threads);
    }
    sl_pool_stay_awake(cpu->pool, config->awake_ns);
    *out_device = &cpu->base;
    return SL_OK;
}

struct rows_job {
    void (*fn)(void *ctx, uint32_t begin, uint32_t end);
    void *ctx;
    struct sl_pool *pool;
    uint32_t n_rows, chunk_rows, n_chunks;
};

static void rows_thread(void *ctx, uint32_t thread, uint32_t n_threads) {
    (void)thread, (void)n_threads;
    const struct rows_job *j = ctx;
    for (uint32_t c; (c = sl_pool_next(j->pool, j->n_chunks)) != UINT32_MAX;) {
        uint32_t begin = c * j->chunk_rows;
        uint32_t end = j->n_rows - begin < j->chunk_rows ? j->n_rows : begin + j->chunk_rows;
        j->fn(j->ctx, begin, end);
    }
}

void sl_cpu_for_rows(struct sl_cpu *cpu, uint32_t n_rows, size_t row_cost,
                     void (*fn)(void *ctx, uint32_t begin, uint32_t end), void *ctx) {
    /* Waking the others costs about a microsecond: some 10,000 elements of a cheap kernel. */
    const size_t worth = 16384;
    uint32_t n_threads = sl_pool_n_threads(cpu->pool);
    if (n_threads == 1 || n_rows < 2 || row_cost * n_rows < worth) {
        if (n_rows)
            fn(ctx, 0, n_rows);
        return;
    }
    size_t chunk = (n_rows + 4 * (size_t)n_threads - 1) / (4 * (size_t)n_threads);
    size_t least = row_cost ? worth / 4 / row_cost + 1 : n_rows;
    if (chunk < least)
        chunk = least < n_rows ? least : n_rows;
    struct rows_job j = {
        fn, ctx, cpu->pool, n_rows, (uint32_t)chunk, (uint32_t)((n_rows + chunk - 1) / chunk)};
    sl_pool_run(cpu->pool, rows_thread, &j);
}

/* ---- the registry's entry ---- */

static enum sl_status enumerate(struct sl_device_found *out, uint32_t max, uint32_t *out_n,
                                struct sl_err *err) {
    (void)err;
    if (max) {
        *out = (struct sl_device_found){.kind = SL_DEVICE_HOST, .memory_bytes = host_memory()};
        sl_device_ref_id((struct sl_device_ref){&sl_cpu_backend, 0}, out->id);
        write_model(sl_cpu_best_isa(), default_threads(), out->model);
    }
    *out_n = 1;
    return SL_OK;
}

static enum sl_status open_number(const struct sl_device_options *options, uint32_t number,
                                  struct sl_device **out_device, struct sl_err *err) {
    struct sl_cpu_config c = {
        .n_threads = options->n_threads, .isa = SL_CPU_BEST, .awake_ns = options->awake_ns};
    if (number)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "cpu:%u: all CPUs are one device, cpu", number);
    if (options->cpu_isa && *options->cpu_isa) {
        uint32_t i = 0;
        while (sl_cpu_isa_names[i] && strcmp(options->cpu_isa, sl_cpu_isa_names[i]) != 0)
            i++;
        if (!sl_cpu_isa_names[i])
            return sl_fail(err, SL_ERR_CONFIG,
                           "instruction set '%.40s' is unknown: c, avx2, avx512 or vnni",
                           options->cpu_isa);
        c.isa = (enum sl_cpu_isa)i;
    }
    return sl_cpu_open(&c, out_device, err);
}

/* ---- a CPU that need not be here ---- */

struct planned {
    struct sl_cpu cpu; /* without threads */
    struct sl_backend_ops ops;
};

/* All instruction sets need the same memory and give the same bits. */
static enum sl_status open_planned(const struct sl_device_offer *offer, uint32_t number,
                                   struct sl_device **out_device, struct sl_err *err) {
    struct planned *p = calloc(1, sizeof *p);
    (void)number;
    if (!p)
        return sl_fail(err, SL_ERR_NOMEM, "cpu: out of memory");
    p->ops = sl_planned_ops(&cpu_ops);
    struct sl_device *d = &p->cpu.base;
    d->ops = &p->ops;
    p->cpu.n_threads = offer->n_threads ? offer->n_threads : default_threads();
    fill_caps(&d->caps, SL_CPU_C, p->cpu.n_threads);
    snprintf(d->caps.model, sizeof d->caps.model, "a planned CPU of %u threads", p->cpu.n_threads);
    sl_device_caps_set_id(&d->caps, cpu_ops.name, 0, true);
    if (offer->memory_bytes)
        d->caps.memory_bytes = offer->memory_bytes;
    d->caps.lacks_ops = offer->lacks_ops;
    *out_device = d;
    return SL_OK;
}

const struct sl_backend sl_cpu_backend = {.name = "cpu",
                                          .devices = "the host's CPUs",
                                          .isas = sl_cpu_isa_names,
                                          .kind = SL_DEVICE_HOST,
                                          .enumerate = enumerate,
                                          .open = open_number,
                                          .planned = open_planned};
