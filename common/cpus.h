/* The number of CPUs we may use, and the pause in a polling loop. */
#ifndef SL_COMMON_CPUS_H
#define SL_COMMON_CPUS_H

#include <sched.h>
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

/* Call between two reads of memory that another thread or device will write. */
static inline void sl_cpu_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
