/* The number of CPUs we may use, and the pause in a polling loop. */
#ifndef SL_COMMON_CPUS_H
#define SL_COMMON_CPUS_H

#include "common/clock.h"

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

/* CPUs that this process may run on; at least 1. */
static inline uint32_t sl_cpus_allowed(void) {
    cpu_set_t set;
    /* The call fails if the kernel knows more CPUs than the set has room for. */
    long n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                         : sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : (uint32_t)n;
}

/* Where there are CPUs to spare, threads look so long for what comes next before they sleep: longer
 * than other stages take for a generated row, since waking up costs as much as a hand-over. */
#define SL_LOOK_OUT_NS 10000000u
/* Such threads of a process with so many stages: theirs, their links', and the scheduler's. */
static inline bool sl_cpus_spare(uint32_t n_busy, uint32_t n_stages) {
    return sl_cpus_allowed() >= n_busy + 2 * n_stages + 2;
}

/* Call between two reads of memory that another thread or device will write. */
static inline void sl_cpu_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Returns when ready says so, or after SL_LOOK_OUT_NS. */
static inline void sl_look_out(bool (*ready)(const void *what), const void *what) {
    uint64_t start = sl_now_ns();
    while (sl_now_ns() - start < SL_LOOK_OUT_NS)
        for (uint32_t i = 0; i < 64; i++) { /* reading the clock takes longer than looking */
            if (ready(what))
                return;
            sl_cpu_relax();
        }
}

#endif
