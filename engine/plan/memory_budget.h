/* How much memory is free now, and how much of it a process may use.
 *
 * Free is the least of MemAvailable and of what every memory cgroup above the process, of both
 * hierarchies, still allows: memory.max and memory.high (v2), memory.limit_in_bytes (v1), each less
 * what is used and cannot be reclaimed (page cache can). Source: the kernel's Documentation,
 * admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst; proc(5). */
#ifndef SL_ENGINE_MEMORY_BUDGET_H
#define SL_ENGINE_MEMORY_BUDGET_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

#define SL_NO_MEMORY_LIMIT UINT64_MAX

struct sl_memory_look {
    uint64_t available_bytes;   /* of the machine */
    uint64_t limit_bytes;       /* of the tightest cgroup; SL_NO_MEMORY_LIMIT: none */
    uint64_t limit_free_bytes;  /* what it still allows */
    char limit_path[256];       /* its file */
    uint64_t anonymous_bytes;   /* of this process: heap, stacks, everything private */
    uint64_t mapped_file_bytes; /* of this process: program and libraries, resident or not */
};

/* root: "" for the machine; for tests a folder that holds a fake proc/ and the mount points that
 * its proc/self/mountinfo names. SL_ERR_UNSUPPORTED: proc does not say what is free. */
enum sl_status sl_memory_look(const char *root, struct sl_memory_look *out_look,
                              struct sl_err *err) SL_MUST_CHECK;

/* What the process holds already, and may hold of program and libraries. */
static inline uint64_t sl_memory_base_bytes(const struct sl_memory_look *look) {
    return look->anonymous_bytes + look->mapped_file_bytes;
}

struct sl_memory_budget {
    uint64_t free_bytes;    /* not counting what the process already holds */
    uint64_t reserve_bytes; /* left to others: 512 MiB or 5 % of it, whichever is more, but at most
                               a quarter */
    uint64_t budget_bytes;  /* for the whole process */
    bool by_cgroup;         /* a cgroup allows less than the machine has */
};

/* The default budget of a process. */
void sl_memory_budget(const struct sl_memory_look *look, struct sl_memory_budget *out_budget);

#endif
