#include "engine/plan/open_device.h"

#include "backends/cpu/cpu.h"
#include "backends/cuda/cuda.h"
#include "common/log.h"
#include "engine/plan/memory_budget.h"

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

static enum sl_status unknown_device(const char *name, struct sl_err *err) {
    return sl_fail(err, SL_ERR_CONFIG,
                   "--device is '%s': must be auto, cpu, cuda, cuda:N, cuda:N,M,... (at most "
                   "%u) or cuda:all",
                   name, SL_MAX_STAGES);
}

/* "N" or "N,M,...": which GPUs. */
static enum sl_status parse_ordinals(const char *name, const char *list,
                                     struct sl_device_names *out, struct sl_err *err) {
    while (out->n < SL_MAX_STAGES) {
        char *end = (char *)(uintptr_t)list;
        unsigned long n = *list >= '0' && *list <= '9' ? strtoul(list, &end, 10) : MAX_ORDINAL + 1;
        if (n > MAX_ORDINAL || (*end && *end != ','))
            return unknown_device(name, err);
        out->ordinal[out->n++] = (uint32_t)n;
        if (!*end)
            return SL_OK;
        list = end + 1;
    }
    return unknown_device(name, err);
}

/* All that the driver shows, as far as there are layers for them. */
static enum sl_status all_gpus(uint32_t most, bool told, struct sl_device_names *out,
                               struct sl_err *err) {
    uint32_t n = 0;
    enum sl_status st = sl_cuda_probe(NULL, NULL, 0, &n, err);
    if (n > most && !told)
        sl_warn("%u GPUs are there: the model's layers are divided over the first %u", n, most);
    for (; st == SL_OK && out->n < n && out->n < most; out->n++)
        out->ordinal[out->n] = out->n;
    return st;
}

static enum sl_status check_counts(const struct sl_engine_config *config, uint32_t n,
                                   struct sl_err *err) {
    if (config->n_vram > 1 && config->n_vram != n)
        return sl_fail(err, SL_ERR_CONFIG,
                       "--vram: %u sizes of device memory for %u device%s: give one for all, or "
                       "one for each",
                       config->n_vram, n, n == 1 ? "" : "s");
    return SL_OK;
}

enum sl_status sl_device_names(const struct sl_engine_config *config, uint32_t n_layer,
                               uint32_t n_split, struct sl_device_names *out_names,
                               struct sl_err *err) {
    struct sl_device_names names = {0};
    const char *name = config->device ? config->device : "cpu";
    uint32_t most = n_layer < SL_MAX_STAGES ? n_layer : SL_MAX_STAGES;
    enum sl_status st = SL_OK;
    names.gpu = strncmp(name, "cuda", 4) == 0;
    if (config->device_source) {
        names.gpu = false;
        names.n = config->device_source->n_devices ? config->device_source->n_devices : 1;
    } else if (strcmp(name, "cpu") == 0 || strcmp(name, "auto") == 0) {
        names.n = 1;
    } else if (strcmp(name, "cuda:all") == 0) {
        st = all_gpus(most, config->devices_told, &names, err);
    } else if (strcmp(name, "cuda") == 0) {
        names.n = n_split ? n_split : 1;
        for (uint32_t i = 0; i < names.n; i++)
            names.ordinal[i] = i;
    } else {
        st = strncmp(name, "cuda:", 5) == 0 ? parse_ordinals(name, name + 5, &names, err)
                                            : unknown_device(name, err);
    }
    if (st == SL_OK && names.n > most)
        st = sl_fail(err, SL_ERR_CONFIG, "%u devices for a model of %u layers: at most %u", names.n,
                     n_layer, most);
    if (st == SL_OK && n_split && n_split != names.n)
        st = names.gpu || names.n > 1
                 ? sl_fail(err, SL_ERR_CONFIG,
                           "the split '%s' is for %u devices, and %u %s named: name as many, "
                           "as in --device cuda:0,1",
                           config->split, n_split, names.n, names.n == 1 ? "is" : "are")
                 : sl_fail(err, SL_ERR_CONFIG,
                           "the split '%s' divides layers over %u GPUs: name them, as in "
                           "--device cuda:0,1",
                           config->split, n_split);
    if (st == SL_OK)
        st = check_counts(config, names.n, err);
    if (st == SL_OK)
        *out_names = names;
    return st;
}

/* The i-th of those devices. */
static enum sl_status open_one(const struct sl_engine_config *config,
                               const struct sl_device_names *names, uint32_t i,
                               struct sl_device **out_dev, struct sl_err *err) {
    if (config->device_source)
        return config->device_source->open(config->device_source, i, out_dev, err);
    if (!names->gpu)
        return open_cpu(config, out_dev, err);
    if (config->cpu_isa && *config->cpu_isa)
        return sl_fail(err, SL_ERR_CONFIG, "an instruction set of the CPU is given with device %s",
                       config->device);
    return sl_cuda_open(&(struct sl_cuda_config){.ordinal = names->ordinal[i]}, out_dev, err);
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

/* What is free of a device's own memory, shared by `sharers` of the stages, and the budget of one.
 */
static enum sl_status free_vram(const struct sl_engine_config *config, struct sl_device *dev,
                                uint32_t sharers, uint64_t *in_out_bytes, struct sl_err *err) {
    uint64_t free_bytes = 0, total_bytes = 0, given = *in_out_bytes;
    uint64_t reserve = config->vram_reserve_bytes ? config->vram_reserve_bytes : VRAM_RESERVE_BYTES;
    enum sl_status st = sl_device_memory(dev, &free_bytes, &total_bytes);
    if (st != SL_OK)
        return sl_fail(err, st, "%s does not say how much memory is free: %s", dev->caps.name,
                       sl_status_text(st));
    if (given) {
        if (!config->devices_told && free_bytes && given > free_bytes / sharers)
            sl_warn("%s: %.0f MiB are free of the %.0f that --vram allows", dev->caps.name,
                    (double)(free_bytes / sharers) / 0x1p20, (double)given / 0x1p20);
    } else if (total_bytes) {
        *in_out_bytes = free_bytes > reserve + sharers ? (free_bytes - reserve) / sharers : 1;
        *in_out_bytes += dev->caps.held_bytes; /* planned, and not free any more */
        if (!config->devices_told)
            sl_info("memory: %s has %.1f of %.1f MiB free, %.1f MiB of them stay free "
                    "(--vram-reserve-mib), so its budget is %.1f MiB (--vram sets it)",
                    dev->caps.name, (double)free_bytes / 0x1p20, (double)total_bytes / 0x1p20,
                    (double)reserve / 0x1p20, (double)*in_out_bytes / 0x1p20);
    }
    return SL_OK; /* 0: it does not know */
}

/* What the process holds now; 0 where the system does not say. */
static uint64_t held_bytes(void) {
    struct sl_memory_look look;
    struct sl_err why;
    return sl_memory_look("", &look, &why) == SL_OK ? sl_memory_base_bytes(&look) : 0;
}

/* What opening a device took. The driver keeps most of it when a device is closed, so that the
 * first opening tells; a plan and the engine that follows it open the device again. */
static uint64_t driver_bytes(uint32_t index, uint64_t before, uint64_t after) {
    static _Atomic uint64_t most_of[SL_MAX_STAGES]; /* in the order of opening: the first takes what
                                                       all of them need */
    _Atomic uint64_t *most = &most_of[index];
    uint64_t now = after > before ? after - before : 0, seen = atomic_load(most);
    while (now > seen && !atomic_compare_exchange_weak(most, &seen, now))
        ;
    return now > seen ? now : seen;
}

/* ---- all of them ---- */

static uint32_t sharers_of(const struct sl_device_names *names, uint32_t i) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < names->n; k++)
        n += k == i || (names->gpu && names->ordinal[k] == names->ordinal[i]);
    return n;
}

/* The budgets of devices that are open. */
static enum sl_status find_budgets(const struct sl_engine_config *config,
                                   const struct sl_device_names *names,
                                   struct sl_device *const *dev, struct sl_engine_config *planned,
                                   struct sl_err *err) {
    if (!planned->ram_bytes)
        planned->ram_bytes = free_ram();
    for (uint32_t i = 0; i < names->n; i++) {
        uint64_t *vram = &planned->vram_each[i];
        *vram = config->n_vram > 1    ? config->vram_each[i]
                : config->n_vram == 1 ? config->vram_each[0]
                                      : config->vram_bytes;
        if (sl_device_is_apart(dev[i]) != sl_device_is_apart(dev[0]))
            return sl_fail(err, SL_ERR_UNSUPPORTED,
                           "%s has memory of its own and %s has not: layers are divided over "
                           "devices of one kind",
                           dev[sl_device_is_apart(dev[i]) ? i : 0]->caps.name,
                           dev[sl_device_is_apart(dev[i]) ? 0 : i]->caps.name);
        if (!sl_device_is_apart(dev[i])) {
            if (*vram && !config->devices_told)
                sl_warn("%s computes in the host's memory: --vram is not used", dev[i]->caps.name);
            *vram = 0;
            continue;
        }
        enum sl_status st = free_vram(config, dev[i], sharers_of(names, i), vram, err);
        if (st != SL_OK)
            return st;
    }
    planned->n_vram = names->n;
    planned->vram_bytes = planned->vram_each[0];
    return SL_OK;
}

enum sl_status sl_devices_open(const struct sl_engine_config *config,
                               const struct sl_device_names *names, struct sl_device **out_devices,
                               struct sl_engine_config *out_planned, struct sl_err *err) {
    struct sl_device *dev[SL_MAX_STAGES] = {0};
    struct sl_engine_config planned = *config;
    enum sl_status st = SL_OK;
    for (uint32_t i = 0; i < names->n && st == SL_OK; i++) {
        /* The CPU has no driver, and what a test brings is to take what the test says. */
        uint64_t before = names->gpu ? held_bytes() : 0;
        st = open_one(config, names, i, &dev[i], err);
        if (st == SL_OK && names->gpu)
            planned.driver_bytes += driver_bytes(i, before, held_bytes());
    }
    if (st == SL_OK && names->gpu)
        planned.process_bytes += planned.driver_bytes;
    if (st == SL_OK)
        st = find_budgets(config, names, dev, &planned, err);
    if (st != SL_OK) {
        for (uint32_t i = 0; i < names->n; i++)
            sl_device_close(&dev[i]);
        return st;
    }
    memcpy(out_devices, dev, names->n * sizeof *dev);
    *out_planned = planned;
    return SL_OK;
}
