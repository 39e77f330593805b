/* Slots for routed experts: how many of each size class fit what the budgets leave. */
#include "engine/plan/memory_plan_internal.h"

#include "engine/experts/expert_fetch.h"
#include "engine/experts/expert_store.h"
#include "engine/experts/expert_tiers.h"
#include "engine/reads/model_files.h"
#include "expert_cache/expert_cache.h"

/* The host's slots beyond the experts that have none on the device, in layers' top-k: experts pass
 * through them on their way up, and those that go down need room before others have left. */
#define SPARE_TOP_K 4u

/* Of each class as many as a row uses of a layer. */
static uint32_t least_slots(const struct sl_expert_layout *l) {
    uint32_t n = 0;
    for (uint32_t c = 0; c < l->n_class; c++)
        n += l->classes[c].k;
    return n;
}

/* ---- the device's ---- */

static enum sl_status refuse_device(const struct sl_memory_plan *p, uint32_t n_least,
                                    uint64_t least, struct sl_err *err) {
    return sl_fail(
        err, SL_ERR_CONFIG,
        "a budget of %.1f MiB of the device's memory is too small: at least %.0f MiB are "
        "needed (dense weights %.1f, KV cache %.1f, activations %.1f, scratch %.1f, %u "
        "slots for experts %.1f): --vram %.0fMiB; less with a smaller context, fewer "
        "sessions or a smaller batch",
        (double)p->vram_budget_bytes / 0x1p20, (double)p->vram_least_bytes / 0x1p20,
        (double)p->weight_bytes / 0x1p20, (double)p->kv_bytes / 0x1p20,
        (double)p->activation_bytes / 0x1p20, (double)p->scratch_bytes / 0x1p20, n_least,
        (double)least / 0x1p20, (double)p->vram_least_bytes / 0x1p20);
}

/* Of the device's memory, what comes with slots for experts: also the room in which the copies of
 * one other stage may stop over. */
static uint64_t slot_overhead_bytes(const struct sl_expert_layout *l,
                                    const struct sl_memory_plan *p) {
    return sl_tiers_device_bytes(l, p->config.batch_tokens) + (p->relays ? SL_RELAY_BYTES : 0);
}

static enum sl_status device_slots(const struct sl_expert_layout *l, struct sl_memory_plan *p,
                                   struct sl_err *err) {
    struct sl_cache_class classes[SL_SLAB_CLASSES];
    uint64_t least = 0, fixed = sl_plan_fixed_device_bytes(p) + slot_overhead_bytes(l, p);
    for (uint32_t c = 0; c < l->n_class; c++) {
        classes[c] = (struct sl_cache_class){.n_expert = l->classes[c].n_expert,
                                             .k = l->classes[c].k,
                                             .slot_bytes = l->classes[c].slot.slot_bytes};
        least += classes[c].slot_bytes * l->classes[c].k;
    }
    p->vram_least_bytes = sl_plan_name_least(fixed + least);
    if (p->vram_budget_bytes < fixed + least)
        return refuse_device(p, least_slots(l), least, err);
    enum sl_status status = sl_cache_split(classes, l->n_class, p->vram_budget_bytes - fixed,
                                           p->device_class_slots, err);
    p->n_device_slots = 0;
    p->device_slot_bytes = slot_overhead_bytes(l, p);
    for (uint32_t c = 0; c < l->n_class && status == SL_OK; c++) {
        p->n_device_slots += p->device_class_slots[c];
        p->device_slot_bytes += (uint64_t)p->device_class_slots[c] * l->classes[c].slot.slot_bytes;
    }
    return status;
}

/* ---- the host's ---- */

/* Experts of a class that slots of the host may be of use to. */
static uint32_t host_experts(const struct sl_expert_layout *l, const struct sl_memory_plan *p,
                             uint32_t class) {
    uint32_t n = l->classes[class].n_expert;
    uint32_t above = p->device_class_slots[class], spare = SPARE_TOP_K * l->classes[class].k;
    return above > spare ? n - above + spare : n;
}

static enum sl_status refuse_host(const struct sl_memory_plan *p, uint32_t n_least, uint64_t least,
                                  struct sl_err *err) {
    uint64_t weights = p->discrete ? 0 : p->weight_bytes, kv = p->discrete ? 0 : p->kv_bytes;
    return sl_fail(err, SL_ERR_CONFIG,
                   "a budget of %.1f MiB is too small: at least %.0f MiB are needed (dense "
                   "weights %.1f, KV cache %.1f, %u slots for experts %.1f, the process %.1f, "
                   "the rest %.1f): --ram %.0fMiB; less with a smaller context, fewer sessions "
                   "or a smaller batch%s",
                   (double)p->budget_bytes / 0x1p20, (double)p->least_bytes / 0x1p20,
                   (double)weights / 0x1p20, (double)kv / 0x1p20, n_least, (double)least / 0x1p20,
                   (double)p->process_bytes / 0x1p20,
                   (double)(p->least_bytes - weights - kv - least - p->process_bytes) / 0x1p20,
                   (double)p->least_bytes / 0x1p20,
                   p->cache_pages || p->ram_pages ? ", or without --cache-ram" : "");
}

enum sl_status sl_plan_refuse_pinned(const struct sl_memory_plan *p, uint64_t least_bytes,
                                     struct sl_err *err) {
    return sl_fail(err, SL_ERR_CONFIG,
                   "a bound of %.1f MiB for pinned memory is too small: at least %.0f MiB of the "
                   "host's have to be pinned for the device",
                   (double)p->pinned_budget_bytes / 0x1p20,
                   (double)sl_plan_name_least(least_bytes) / 0x1p20);
}

/* What the budgets leave for slots; those that a device reads are pinned. */
static uint64_t room_for_slots(const struct sl_memory_plan *p, uint64_t others) {
    uint64_t room = p->budget_bytes - others, pinned = p->pinned_budget_bytes - p->pinned_bytes;
    return p->reads_back && pinned < room ? pinned : room;
}

enum sl_status sl_plan_slots(const struct sl_expert_layout *l, struct sl_memory_plan *p,
                             struct sl_err *err) {
    struct sl_reader_config queue = sl_model_reader_config(&p->config);
    uint32_t rows = p->config.batch_tokens;
    size_t table = sl_fetch_bytes(l, 1, rows) - sl_fetch_bytes(l, 0, rows);
    struct sl_cache_class classes[SL_SLAB_CLASSES];
    uint64_t base = sl_fetch_bytes(l, 0, rows) + sl_reader_size_bytes(&queue) + SL_HUGE_PAGE_BYTES;
    struct sl_err device_err;
    enum sl_status device_status = p->discrete ? device_slots(l, p, &device_err) : SL_OK;
    if (p->reads_back)
        base += sl_tiers_host_bytes(l, p->n_device_slots, rows);
    if (p->reads_back && !p->discrete)
        base += sl_tiers_device_bytes(l, rows);
    uint64_t least = 0;
    for (uint32_t c = 0; c < l->n_class; c++) {
        uint64_t slot = l->classes[c].slot.slot_bytes;
        classes[c] =
            (struct sl_cache_class){.n_expert = host_experts(l, p, c),
                                    .k = l->classes[c].k,
                                    .slot_bytes = slot + table + slot / SL_REGISTERED_SHARE + 1};
        least += classes[c].slot_bytes * l->classes[c].k;
    }
    uint64_t others = sl_plan_fixed_bytes(p) + base;
    p->needed_bytes = others + least;
    p->least_bytes = sl_plan_name_least(p->needed_bytes);
    if (device_status != SL_OK) {
        *err = device_err;
        return device_status;
    }
    if (p->budget_bytes < p->needed_bytes)
        return refuse_host(p, least_slots(l), least, err);
    p->pinned_least_bytes = p->reads_back ? p->pinned_bytes + least : 0;
    if (p->pinned_budget_bytes < p->pinned_least_bytes)
        return sl_plan_refuse_pinned(p, p->pinned_least_bytes, err);
    SL_TRY(sl_cache_split(classes, l->n_class, room_for_slots(p, others), p->class_slots, err));
    p->n_slots = 0;
    for (uint32_t c = 0; c < l->n_class; c++) {
        p->n_slots += p->class_slots[c];
        p->slot_bytes += (uint64_t)p->class_slots[c] * l->classes[c].slot.slot_bytes;
    }
    p->stream_bytes = base + table * p->n_slots;
    p->kernel_bytes += p->slot_bytes / SL_REGISTERED_SHARE;
    return SL_OK;
}
