/* What a plan takes besides slots, and whether that fits. */
#include "engine/plan/memory_plan_internal.h"

/* What the process holds when it is asked varies by some pages from run to run. */
#define VARIES_BYTES ((uint64_t)512 << 10)
#define MIB          ((uint64_t)1 << 20)

/* What the device's side takes, wherever its memory is. */
static uint64_t computing_bytes(const struct sl_memory_plan *p) {
    return p->weight_bytes + p->kv_bytes + p->activation_bytes + p->scratch_bytes;
}

uint64_t sl_plan_fixed_device_bytes(const struct sl_memory_plan *p) {
    return p->discrete ? computing_bytes(p) : 0;
}

uint64_t sl_plan_fixed_bytes(const struct sl_memory_plan *p) {
    return (p->discrete ? 0 : computing_bytes(p)) + p->host_bytes + p->pinned_bytes +
           p->load_bytes + p->table_bytes + p->process_bytes + p->link_bytes + p->session_bytes +
           p->thread_bytes + p->slack_bytes + p->kernel_bytes;
}

bool sl_plan_fits_device(const struct sl_memory_plan *p) {
    return sl_plan_fixed_device_bytes(p) <= p->vram_budget_bytes;
}

uint64_t sl_plan_name_least(uint64_t bytes) {
    return (bytes + VARIES_BYTES + MIB - 1) / MIB * MIB;
}
