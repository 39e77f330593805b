#include "engine/open_device.h"

#include "backends/cpu/cpu.h"
#include "backends/cuda/cuda.h"
#include "common/log.h"
#include "engine/memory_budget.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Of a card's memory, left to others and to what the driver takes later: graphs, modules that are
 * loaded at their first use. */
#define VRAM_RESERVE_BYTES ((uint64_t)512 << 20)
#define MAX_ORDINAL        63u

/* ---- opening ---- */

static enum sl_status open_cpu(const struct sl_engine_config *config, struct sl_device **out_dev,
                               struct sl_err *err) {
    struct sl_cpu_config c = {.n_threads = config->n_threads, .isa = SL_CPU_BEST};
    if (config->cpu_isa && *config->cpu_isa) {
        uint32_t i = SL_CPU_C;
        while (i < SL_CPU_BEST && strcmp(config->cpu_isa, sl_cpu_isa_name((enum sl_cpu_isa)i)) != 0)
            i++;
        if (i == SL_CPU_BEST)
            return sl_fail(err, SL_ERR_CONFIG,
                           "instruction set '%s' is unknown: c, avx2, avx512 or vnni",
                           config->cpu_isa);
        c.isa = (enum sl_cpu_isa)i;
    }
    return sl_cpu_open(&c, out_dev, err);
}

/* "cuda" or "cuda:N"; false for anything else. */
static bool parse_cuda(const char *name, uint32_t *out_ordinal) {
    if (strncmp(name, "cuda", 4) != 0)
        return false;
    *out_ordinal = 0;
    if (!name[4])
        return true;
    char *end;
    unsigned long n = name[4] == ':' && name[5] >= '0' && name[5] <= '9'
                          ? strtoul(name + 5, &end, 10)
                          : (end = (char *)name, MAX_ORDINAL + 1ul);
    *out_ordinal = (uint32_t)n;
    return !*end && n <= MAX_ORDINAL;
}

/* The device of that name; not "auto". */
static enum sl_status open_named(const struct sl_engine_config *config, const char *name,
                                 struct sl_device **out_dev, struct sl_err *err) {
    uint32_t ordinal;
    if (config->device_source)
        return config->device_source->open(config->device_source, 0, out_dev, err);
    if (!name || strcmp(name, "cpu") == 0)
        return open_cpu(config, out_dev, err);
    if (!parse_cuda(name, &ordinal))
        return sl_fail(err, SL_ERR_CONFIG,
                       "device '%s' is unknown: must be auto, cpu, cuda or cuda:N", name);
    if (config->cpu_isa && *config->cpu_isa)
        return sl_fail(err, SL_ERR_CONFIG, "an instruction set of the CPU is given with device %s",
                       name);
    return sl_cuda_open(&(struct sl_cuda_config){.ordinal = ordinal}, out_dev, err);
}

/* ---- budgets ---- */

/* What a process that was given no budget may take. */
static uint64_t free_ram(void) {
    struct sl_memory_look look;
    struct sl_memory_budget b;
    struct sl_err why;
    if (sl_memory_look("", &look, &why) != SL_OK) {
        sl_warn("%s; planning with all of the machine's memory", why.text);
        return 0;
    }
    sl_memory_budget(&look, &b);
    sl_info("memory: %.1f MiB are free%s%s, %.1f MiB of them stay free, so the budget is %.1f MiB "
            "(--ram sets it)",
            (double)b.free_bytes / 0x1p20, b.by_cgroup ? " by " : "",
            b.by_cgroup ? look.limit_path : "", (double)b.reserve_bytes / 0x1p20,
            (double)b.budget_bytes / 0x1p20);
    return b.budget_bytes;
}

static enum sl_status free_vram(const struct sl_engine_config *config, struct sl_device *dev,
                                uint64_t *out_bytes, struct sl_err *err) {
    uint64_t free_bytes = 0, total_bytes = 0;
    uint64_t reserve = config->vram_reserve_bytes ? config->vram_reserve_bytes : VRAM_RESERVE_BYTES;
    enum sl_status st = sl_device_memory(dev, &free_bytes, &total_bytes);
    if (st != SL_OK)
        return sl_fail(err, st, "%s does not say how much memory is free: %s", dev->caps.name,
                       sl_status_text(st));
    *out_bytes = free_bytes > reserve ? free_bytes - reserve : 1;
    if (config->vram_bytes) {
        *out_bytes = config->vram_bytes;
        if (free_bytes && config->vram_bytes > free_bytes)
            sl_warn("%s: %.0f MiB are free of the %.0f that --vram allows", dev->caps.name,
                    (double)free_bytes / 0x1p20, (double)config->vram_bytes / 0x1p20);
    } else if (total_bytes) {
        sl_info("memory: %s has %.1f of %.1f MiB free, %.1f MiB of them stay free "
                "(--vram-reserve-mib), so its budget is %.1f MiB (--vram sets it)",
                dev->caps.name, (double)free_bytes / 0x1p20, (double)total_bytes / 0x1p20,
                (double)reserve / 0x1p20, (double)*out_bytes / 0x1p20);
    } else {
        *out_bytes = 0; /* it does not know */
    }
    return SL_OK;
}

/* What the process holds now; 0 where the system does not say. */
static uint64_t held_bytes(void) {
    struct sl_memory_look look;
    struct sl_err why;
    return sl_memory_look("", &look, &why) == SL_OK ? sl_memory_base_bytes(&look) : 0;
}

/* What opening a device took. The driver keeps most of it when a device is closed, so that the
 * first opening tells; a plan and the engine that follows it open the device again. */
static uint64_t driver_bytes(uint64_t before, uint64_t after) {
    static _Atomic uint64_t most;
    uint64_t now = after > before ? after - before : 0, seen = atomic_load(&most);
    while (now > seen && !atomic_compare_exchange_weak(&most, &seen, now))
        ;
    return now > seen ? now : seen;
}

/* ---- opening and planning ---- */

static enum sl_status open_and_plan(const struct sl_model *model,
                                    const struct sl_engine_config *config, const char *name,
                                    struct sl_device **out_dev, struct sl_memory_plan *out_plan,
                                    struct sl_err *err) {
    struct sl_device *dev = NULL;
    struct sl_engine_config planned = *config;
    /* The CPU has no driver, and what a test brings is to take what the test says. */
    bool driver = !config->device_source && name && strcmp(name, "cpu") != 0;
    uint64_t before = driver ? held_bytes() : 0;
    enum sl_status st = open_named(config, name, &dev, err);
    if (st != SL_OK)
        return st;
    if (driver) {
        planned.driver_bytes = driver_bytes(before, held_bytes());
        planned.process_bytes += planned.driver_bytes;
    }
    if (!planned.ram_bytes)
        planned.ram_bytes = free_ram();
    if (!dev->caps.host_visible && !dev->caps.integrated)
        st = free_vram(config, dev, &planned.vram_bytes, err);
    else if (config->vram_bytes)
        sl_warn("%s computes in the host's memory: --vram is not used", dev->caps.name);
    if (st == SL_OK)
        st = sl_memory_plan_make(model, &planned, dev, out_plan, err);
    if (st != SL_OK)
        sl_device_close(&dev);
    *out_dev = dev;
    return st;
}

enum sl_status sl_engine_open_device(const struct sl_model *model,
                                     const struct sl_engine_config *config,
                                     struct sl_device **out_dev, struct sl_memory_plan *out_plan,
                                     struct sl_err *err) {
    const char *name = config->device;
    out_plan->least_bytes = out_plan->vram_least_bytes = 0;
    if (!name || strcmp(name, "auto") != 0 || config->device_source)
        return open_and_plan(model, config, name, out_dev, out_plan, err);
    bool isa = config->cpu_isa && *config->cpu_isa;
    struct sl_err why;
    if (!isa) {
        if (open_and_plan(model, config, "cuda", out_dev, out_plan, &why) == SL_OK) {
            sl_info("computing on %s: it was found and the model fits (--device sets it)",
                    (*out_dev)->caps.name);
            return SL_OK;
        }
        sl_info("computing on the CPU (--device sets it): %s", why.text);
    }
    out_plan->least_bytes = out_plan->vram_least_bytes = 0;
    return open_and_plan(model, config, "cpu", out_dev, out_plan, err);
}
