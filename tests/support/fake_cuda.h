/* A CUDA driver for tests, in a shared object of its own (build/MODE/tests/support/fake_cuda.so):
 * the driver's symbols over host memory.
 *
 * It is lazy where a GPU is late: copies and kernels are queued, and run only when somebody waits
 * for them, so that staging memory which is reused too early shows as wrong bytes. Each stream has
 * a queue of its own; a stream that waits for an event runs the other one that far. Device
 * addresses, those of mapped host memory too, are such that following one on the host faults, and
 * every address is checked: also whose memory it is, and that a stream is used in its own context.
 * Any thread may call.
 *
 * A fault takes down its device's context and no other. What other contexts wait for of it never
 * comes: who waits for them then waits for good, as may happen with GPUs. Asking for an event does
 * not run anything, unless it is asked for again and again.
 *
 * A program that opens it as libcuda.so.1 finds FAKE_CUDA_DEVICES (environment) GPUs, one unless
 * that is set, of FAKE_CUDA_MIB each ("1024,64": the second, and those that follow, have less);
 * with FAKE_CUDA_LOST=spread faults_spread is set, with FAKE_CUDA_LOST=copying:1 the second is lost
 * in its first copy to another, with FAKE_CUDA_PEERS=0 no_peer_access, with FAKE_CUDA_QUEUES
 * n_queues is set, with FAKE_CUDA_NAME all have that name. With FAKE_CUDA_TRACE=FILE each launch is
 * written there, a line each: "now" unless it is captured, kernel, grid, block, shared memory and
 * arguments, addresses by the number of their allocation. */
#ifndef SL_TESTS_SUPPORT_FAKE_CUDA_H
#define SL_TESTS_SUPPORT_FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKE_CUDA_MAX_DEVICES  4
#define FAKE_CUDA_MAX_LAUNCHES 64

struct fake_cuda_launch {
    char kernel[64];
    uint32_t grid[3], block[3], smem_bytes;
    bool early; /* may start while the one before it runs */
    size_t args_bytes;
    unsigned char args[256]; /* the first of them */
};

struct fake_cuda {
    /* Set by tests. */
    int n_devices;
    int cc[FAKE_CUDA_MAX_DEVICES]; /* 90 for 9.0 */
    bool integrated[FAKE_CUDA_MAX_DEVICES];
    bool cannot_map;     /* devices do not read host memory */
    bool no_peer_access; /* nor one another's */
    bool no_direct_link; /* or only over PCIe */
    bool no_memory_rate; /* nobody knows how fast their memory is */
    size_t memory_bytes[FAKE_CUDA_MAX_DEVICES];
    int n_queues;               /* that all streams of a context go through, in turn, where what
                                   waits is in the way of what comes after; 0: each its own */
    bool zeroed;                /* memory begins as zeros, and so no kernel's result is wild */
    int init_result;            /* of cuInit */
    int module_result;          /* of cuModuleLoadData */
    const char *missing_kernel; /* cuModuleGetFunction does not find it */
    uint64_t fail_at;           /* the number of the call that fails, from 1; 0 = none */
    const char *fail_symbol;    /* or: the first call of this function */
    int fail_result;
    bool sticky;      /* every later call in this context fails alike, as after a kernel's fault */
    int kernel_fault; /* the next kernel to run fails with this, seen by who waits for it */
    int fault_device; /* or the next one there; -1: anywhere */
    int fault_after_ms; /* so long it runs before */
    bool faults_spread; /* to the contexts that wait for one that has failed */
    bool copies_fault;  /* it is no kernel that fails, but the next copy to another device */

    /* Read by tests. */
    uint64_t n_calls, n_waits, n_to_device, n_queued;
    uint64_t n_mapped; /* pieces of host memory registered */
    uint64_t n_peer_copies;
    int64_t live_device_bytes, live_pinned_bytes, live_mapped_bytes;
    int64_t live_objects; /* all but memory */
    uint64_t n_launches;
    struct fake_cuda_launch launch[FAKE_CUDA_MAX_LAUNCHES]; /* the latest, from 0 */
    bool misused; /* an address or handle that is none of ours, or no current context */
};

/* Found by dlsym: forgets everything, and returns the state that the symbols work on. */
typedef struct fake_cuda *fake_cuda_reset_fn(void);
struct fake_cuda *fake_cuda_reset(void);
/* Sets kernel_fault, fault_device and fault_after_ms while any thread may call; with after_ms below
 * 0 the device fails now, and nothing that is queued on it runs. */
typedef void fake_cuda_fault_fn(int device, int result, int after_ms);
void fake_cuda_fault(int device, int result, int after_ms);

#endif
