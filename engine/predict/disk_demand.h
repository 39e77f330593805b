/* Does enough come from disk for experts of layers beyond the next to be predicted? When at least
 * one expert a token does, and until it is less than half of one, counted over some tokens: to
 * change is to record the graphs of steps anew. One thread; nothing is allocated. */
#ifndef SL_ENGINE_DISK_DEMAND_H
#define SL_ENGINE_DISK_DEMAND_H

#include <stdbool.h>
#include <stdint.h>

/* Written by disk_demand.c alone. */
struct sl_disk_demand {
    bool enough;
    uint32_t tokens, reads; /* since it was judged last */
    uint64_t seen_reads;
};

/* Enough, until something is known. */
void sl_disk_demand_init(struct sl_disk_demand *d);
/* A layer begins; n_reads: all experts that were read since the start. counts: the layer is of
 * generated rows; else what was read since the last one does not count. first: the first of a
 * token. True: it was judged anew. */
bool sl_disk_demand_layer(struct sl_disk_demand *d, uint64_t n_reads, bool counts, bool first);

#endif
