#include "engine/predict/disk_demand.h"

#define COUNT_TOKENS 32u

void sl_disk_demand_init(struct sl_disk_demand *d) {
    *d = (struct sl_disk_demand){.enough = true};
}

bool sl_disk_demand_layer(struct sl_disk_demand *d, uint64_t n_reads, bool counts, bool first) {
    uint32_t n = (uint32_t)(n_reads - d->seen_reads);
    d->seen_reads = n_reads;
    if (!counts)
        return false; /* what prompts read */
    d->reads += n;
    if (!first || ++d->tokens < COUNT_TOKENS)
        return false;
    d->enough = d->reads >= (d->enough ? d->tokens / 2 : d->tokens);
    d->tokens = d->reads = 0;
    return true;
}
