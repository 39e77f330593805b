#include "engine/plan/open_device.h"

#include "common/log.h"
#include "engine/plan/memory_budget.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(SL_MAX_STAGES == SL_DEVICE_LIST_MAX, "every list of devices is a list of stages");

/* Of a card's memory, left to others and to what the driver takes later: graphs, modules that are
 * loaded at their first use. */
#define VRAM_RESERVE_BYTES ((uint64_t)512 << 20)

static bool is_host(struct sl_device_ref ref) {
    return ref.backend && ref.backend->kind == SL_DEVICE_HOST;
}
/* Does opening it start a driver? The CPU has none, and what a test brings is to take what the test
 * says. */
static bool has_driver(struct sl_device_ref ref) {
    return ref.backend && ref.backend->kind != SL_DEVICE_HOST;
}

/* What the process holds now; 0 where the system does not say. */
static uint64_t held_bytes(void) {
    struct sl_memory_look look;
    struct sl_err why;
    return sl_memory_look("", &look, &why) == SL_OK ? sl_memory_base_bytes(&look) : 0;
}

/* Notes what something took; gives the most that it ever did. A driver keeps most of what it takes
 * when a device is closed, so that the first time tells. */
static uint64_t note_most(_Atomic uint64_t *most, uint64_t before, uint64_t after) {
    uint64_t now = after > before ? after - before : 0, seen = atomic_load(most);
    while (now > seen && !atomic_compare_exchange_weak(most, &seen, now))
        ;
    return now > seen ? now : seen;
}

static _Atomic uint64_t looking_took_bytes;

enum sl_status sl_devices_look(const struct sl_backend *backend, struct sl_device_found *out_found,
                               uint32_t max_found, uint32_t *out_n, struct sl_err *err) {
    uint64_t before = held_bytes();
    enum sl_status status = backend->enumerate(out_found, max_found, out_n, err);
    if (status == SL_OK)
        note_most(&looking_took_bytes, before, held_bytes());
    return status;
}

/* ---- names ---- */

static enum sl_status push(struct sl_device_names *names, struct sl_device_ref ref,
                           struct sl_err *err) {
    if (names->n == SL_MAX_STAGES)
        return sl_fail(err, SL_ERR_CONFIG, "more than %u devices are named", SL_MAX_STAGES);
    for (uint32_t i = 0; i < names->n && is_host(ref); i++)
        if (is_host(names->at[i]))
            return sl_fail(err, SL_ERR_CONFIG,
                           "%s is named twice: it is one device, which computes with all of "
                           "--threads",
                           ref.backend->name);
    names->at[names->n++] = ref;
    return SL_OK;
}

/* All that can be used, as far as there are layers for them. */
static enum sl_status push_all(const struct sl_backend *backend, uint32_t most, bool logged,
                               struct sl_device_names *names, struct sl_err *err) {
    struct sl_device_found *found = calloc(SL_DEVICE_MAX_NUMBER + 1, sizeof *found);
    uint32_t n = 0, n_usable = 0, first = names->n;
    if (!found)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for a list of devices");
    enum sl_status status = sl_devices_look(backend, found, SL_DEVICE_MAX_NUMBER + 1, &n, err);
    for (uint32_t i = 0; status == SL_OK && i < n && i <= SL_DEVICE_MAX_NUMBER; i++) {
        const char *why_not = found[i].why_not.text;
        if (*why_not && !logged)
            sl_warn("%s is not used: %s", found[i].id, why_not);
        bool usable = !*why_not && !found[i].software;
        n_usable += usable;
        if (usable && names->n < most)
            status = push(names, (struct sl_device_ref){backend, i}, err);
    }
    if (status == SL_OK && !n_usable)
        status = sl_fail(err, SL_ERR_UNSUPPORTED, "%s",
                         n && found[0].why_not.text[0] ? found[0].why_not.text
                         : n ? "only software devices are there: name them by number"
                             : "there is no such device");
    if (status == SL_OK && n_usable > names->n - first && !logged)
        sl_warn("%u %s are there: the model's layers are divided over the first %u", n_usable,
                backend->devices, names->n - first);
    free(found);
    return status;
}

static enum sl_status push_item(const struct sl_engine_config *config,
                                const struct sl_device_item *item, uint32_t n_first, uint32_t most,
                                struct sl_device_names *names, struct sl_err *err) {
    struct sl_device_ref ref = item->ref;
    enum sl_status status = SL_OK;
    switch (item->which) {
    case SL_DEVICE_ALL:
        return push_all(ref.backend, most, config->devices_logged, names, err);
    case SL_DEVICE_NUMBER:
        return push(names, ref, err);
    case SL_DEVICE_FIRST:
        for (ref.number = 0; ref.number < n_first && status == SL_OK; ref.number++)
            status = push(names, ref, err);
        return status;
    }
    return sl_fail(err, SL_ERR_INVALID, "a device of kind %d", (int)item->which);
}

/* With one device that is named without a number, as many of its backend's as the split has parts.
 */
static enum sl_status push_list(const struct sl_engine_config *config,
                                const struct sl_device_list *list, uint32_t n_split, uint32_t most,
                                struct sl_device_names *names, struct sl_err *err) {
    uint32_t n_first = list->n == 1 && n_split && !is_host(list->at[0].ref) ? n_split : 1;
    enum sl_status status = SL_OK;
    for (uint32_t i = 0; i < list->n && status == SL_OK; i++)
        status = push_item(config, &list->at[i], n_first, most, names, err);
    return status;
}

static uint32_t count_cards(const struct sl_device_names *names) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < names->n_local; i++)
        n += !is_host(names->at[i]);
    return n;
}

static enum sl_status check_split(const struct sl_engine_config *config,
                                  const struct sl_device_names *names, uint32_t n_split,
                                  struct sl_err *err) {
    char example[SL_DEVICE_NAME_BYTES];
    if (!n_split || n_split == names->n)
        return SL_OK;
    sl_registry_example(example, sizeof example);
    if (names->n > 1 || has_driver(names->at[0]))
        return sl_fail(err, SL_ERR_CONFIG,
                       "the split '%s' is for %u devices, and %u %s named: name as many, "
                       "as in --device %s",
                       config->split, n_split, names->n, names->n == 1 ? "is" : "are", example);
    return sl_fail(err, SL_ERR_CONFIG,
                   "the split '%s' divides layers over %u devices: name them, as in --device %s",
                   config->split, n_split, example);
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
    struct sl_device_list list = {0};
    uint32_t most = n_layer < SL_MAX_STAGES ? n_layer : SL_MAX_STAGES;
    enum sl_status status = SL_OK;
    if (!config->device_source && config->device)
        status = sl_device_list_parse(config->device, &list, err);
    if (status == SL_OK)
        status = push_list(config, &list, n_split, most, &names, err);
    if (config->device_source) {
        names.n = config->device_source->n_devices ? config->device_source->n_devices : 1;
    } else if (!list.n) {
        names.any = list.any;
        names.n = 1;
        names.at[0] = (struct sl_device_ref){sl_backend_of_host(), 0};
    }
    names.n_local = names.n;
    names.n += config->remote ? config->remote->n : 0;
    if (status == SL_OK && names.n > most)
        status = sl_fail(err, SL_ERR_CONFIG, "%u devices for a model of %u layers: at most %u",
                         names.n, n_layer, most);
    if (status == SL_OK)
        status = check_split(config, &names, n_split, err);
    if (status == SL_OK)
        status = check_counts(config, count_cards(&names) ? count_cards(&names) : 1, err);
    if (status == SL_OK)
        *out_names = names;
    return status;
}

/* ---- opening ---- */

/* Adds to a refusal which devices there are. */
static void say_what_is_there(struct sl_err *err) {
    char here[160];
    size_t n = strlen(err->text);
    sl_registry_list(here, sizeof here);
    if (n + 16 < sizeof err->text)
        snprintf(err->text + n, sizeof err->text - n, "; here are %s", here);
}

static enum sl_status check_isa(const struct sl_engine_config *config,
                                const struct sl_device_names *names, struct sl_err *err) {
    bool host = !config->cpu_isa || !*config->cpu_isa || config->device_source;
    for (uint32_t i = 0; i < names->n; i++)
        host |= is_host(names->at[i]);
    return host ? SL_OK
                : sl_fail(err, SL_ERR_CONFIG,
                          "an instruction set of the CPU is given with device %s", config->device);
}

/* The i-th of those devices. */
static enum sl_status open_one(const struct sl_engine_config *config,
                               const struct sl_device_names *names, uint32_t i,
                               struct sl_device **out_dev, struct sl_err *err) {
    const struct sl_device_options options = {.n_threads = config->n_threads,
                                              .cpu_isa = config->cpu_isa};
    if (i >= names->n_local)
        return config->remote->open_planned(config->remote, i - names->n_local, out_dev, err);
    if (!names->at[i].backend)
        return config->device_source->open(config->device_source, i, out_dev, err);
    enum sl_status status = sl_registry_open(names->at[i], &options, out_dev, err);
    if (status == SL_ERR_UNSUPPORTED && has_driver(names->at[i]) && !names->any)
        say_what_is_there(err);
    return status;
}

/* ---- budgets ---- */

/* What a process that was given no budget may take. */
static uint64_t free_ram(bool logged) {
    struct sl_memory_look look;
    struct sl_memory_budget b;
    struct sl_err why;
    if (sl_memory_look("", &look, &why) != SL_OK) {
        sl_warn("%s; planning with all of the machine's memory", why.text);
        return 0;
    }
    sl_memory_budget(&look, &b);
    sl_log(logged ? SL_LOG_DEBUG : SL_LOG_INFO,
           "memory: %.1f MiB are free%s%s, %.1f MiB of them stay free, so the budget is %.1f MiB "
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
    enum sl_status status = sl_device_memory(dev, &free_bytes, &total_bytes);
    if (status != SL_OK)
        return sl_fail(err, status, "%s does not say how much memory is free: %s", dev->caps.name,
                       sl_status_text(status));
    if (given) {
        if (!config->devices_logged && free_bytes && given > free_bytes / sharers)
            sl_warn("%s: %.0f MiB are free of the %.0f that --vram allows", dev->caps.name,
                    (double)(free_bytes / sharers) / 0x1p20, (double)given / 0x1p20);
    } else if (total_bytes) {
        *in_out_bytes = free_bytes > reserve + sharers ? (free_bytes - reserve) / sharers : 1;
        *in_out_bytes += dev->caps.held_bytes; /* planned, and not free any more */
        if (!config->devices_logged)
            sl_info("memory: %s has %.1f of %.1f MiB free, %.1f MiB of them stay free "
                    "(--vram-reserve-mib), so its budget is %.1f MiB (--vram sets it)",
                    dev->caps.name, (double)free_bytes / 0x1p20, (double)total_bytes / 0x1p20,
                    (double)reserve / 0x1p20, (double)*in_out_bytes / 0x1p20);
    }
    return SL_OK; /* 0: it does not know */
}

/* What opening a device took; a plan and the engine that follows it open the device again. */
static uint64_t driver_bytes(uint32_t index, uint64_t before, uint64_t after) {
    static _Atomic uint64_t most_of[SL_MAX_STAGES]; /* in the order of opening: the first takes what
                                                       all of them need */
    return note_most(&most_of[index], before, after);
}

/* ---- all of them ---- */

static uint32_t sharers_of(const struct sl_device_names *names, uint32_t i) {
    const struct sl_device_ref *ref = &names->at[i];
    uint32_t n = 0;
    for (uint32_t k = 0; k < names->n; k++)
        n += k == i || (ref->backend && names->at[k].backend == ref->backend &&
                        names->at[k].number == ref->number);
    return n;
}

/* What --vram says of the card-th of the devices that are not the host. */
static uint64_t given_vram(const struct sl_engine_config *config, uint32_t card) {
    return config->n_vram > 1    ? config->vram_each[card]
           : config->n_vram == 1 ? config->vram_each[0]
                                 : config->vram_bytes;
}

/* The budgets of devices that are open. */
static enum sl_status find_budgets(const struct sl_engine_config *config,
                                   const struct sl_device_names *names,
                                   struct sl_device *const *dev, struct sl_engine_config *planned,
                                   struct sl_err *err) {
    bool any_discrete = false;
    uint32_t card = 0;
    if (!planned->ram_bytes && !planned->n_hosts)
        planned->ram_bytes = free_ram(config->devices_logged);
    for (uint32_t i = 0; i < names->n_local; i++)
        any_discrete |= sl_device_is_discrete(dev[i]);
    for (uint32_t i = 0; i < names->n; i++) {
        if (i >= names->n_local) {
            planned->vram_each[i] = config->remote->vram_bytes[i - names->n_local];
            continue;
        }
        bool host = is_host(names->at[i]);
        uint64_t vram = host && any_discrete ? 0 : given_vram(config, card);
        card += !host;
        planned->vram_each[i] = vram;
        if (!sl_device_is_discrete(dev[i])) {
            if (vram && !config->devices_logged)
                sl_warn("%s computes in the host's memory: --vram is not used", dev[i]->caps.name);
            planned->vram_each[i] = 0;
            continue;
        }
        SL_TRY(free_vram(config, dev[i], sharers_of(names, i), &planned->vram_each[i], err));
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
    enum sl_status status = check_isa(config, names, err);
    if (status == SL_OK && !config->device_source)
        planned.driver_bytes += atomic_load(&looking_took_bytes);
    for (uint32_t i = 0; i < names->n && status == SL_OK; i++) {
        bool driver = has_driver(names->at[i]);
        uint64_t before = driver ? held_bytes() : 0;
        status = open_one(config, names, i, &dev[i], err);
        if (status == SL_OK && driver)
            planned.driver_bytes += driver_bytes(i, before, held_bytes());
    }
    if (status == SL_OK)
        planned.process_bytes += planned.driver_bytes;
    if (status == SL_OK)
        status = find_budgets(config, names, dev, &planned, err);
    if (status != SL_OK) {
        for (uint32_t i = 0; i < names->n; i++)
            sl_device_close(&dev[i]);
        return status;
    }
    memcpy(out_devices, dev, names->n * sizeof *dev);
    *out_planned = planned;
    return SL_OK;
}
