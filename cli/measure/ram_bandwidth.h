/* How fast this machine's threads can read RAM: the ceiling on decode speed on a CPU. */
#ifndef SL_CLI_RAM_BANDWIDTH_H
#define SL_CLI_RAM_BANDWIDTH_H

#include <stdint.h>

/* Bytes per second that n_threads read together from a hugepage-backed buffer far larger than the
 * caches: the best of repeated passes over about `seconds`. The buffer has 1 GiB, or 256 MiB if
 * max_bytes or the machine allow no more. 0 if there is no memory for it. */
double sl_ram_read_bandwidth(uint32_t n_threads, double seconds, uint64_t max_bytes);

#endif
