#include "tests/support/fake_cuda/internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LAUNCH_FAILED 719
#define COPY_LASTS_MS 300
#define PAUSE_NS      200000

struct fake_cuda fake;
struct CUctx_st fake_contexts[FAKE_CUDA_MAX_DEVICES];
_Thread_local struct CUctx_st *fake_current;
int fake_stuck;

/* Any thread may call, as with the real one: one call at a time. */
static pthread_mutex_t big_lock = PTHREAD_MUTEX_INITIALIZER;
static __thread unsigned lock_depth; /* symbols call one another */

int fake_lock(void) {
    if (!lock_depth++)
        pthread_mutex_lock(&big_lock);
    return 0;
}

void fake_unlock(const int *guard) {
    (void)guard;
    if (!--lock_depth)
        pthread_mutex_unlock(&big_lock);
}

void fake_pause_unlocked(void) {
    unsigned depth = lock_depth;
    lock_depth = 0;
    pthread_mutex_unlock(&big_lock);
    nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    pthread_mutex_lock(&big_lock);
    lock_depth = depth;
}

static void clear(void) {
    fake_forget_memory();
    fake_forget_functions();
    fake_forget_streams();
    fake_stuck = 0;
    fake_current = NULL;
    memset(fake_contexts, 0, sizeof fake_contexts);
}

struct fake_cuda *fake_cuda_reset(void) {
    clear();
    const char *devices = getenv("FAKE_CUDA_DEVICES"), *lost = getenv("FAKE_CUDA_LOST"),
               *mib = getenv("FAKE_CUDA_MIB");
    const char *peers = getenv("FAKE_CUDA_PEERS");
    const char *queues = getenv("FAKE_CUDA_QUEUES");
    int n = devices ? atoi(devices) : 1;
    fake = (struct fake_cuda){.n_queues = queues ? atoi(queues) : 0,
                              .n_devices = n < FAKE_CUDA_MAX_DEVICES ? n : FAKE_CUDA_MAX_DEVICES,
                              .no_peer_access = peers && strcmp(peers, "0") == 0,
                              .fault_device = -1,
                              .faults_spread = lost && strcmp(lost, "spread") == 0};
    if (lost && strncmp(lost, "copying:", 8) == 0) {
        fake.copies_fault = true;
        fake.fault_device = atoi(lost + 8);
        fake.fault_after_ms = COPY_LASTS_MS;
        fake.kernel_fault = LAUNCH_FAILED;
    }
    for (int i = 0; i < FAKE_CUDA_MAX_DEVICES; i++) {
        fake.cc[i] = 90;
        fake.memory_bytes[i] = (size_t)(mib ? strtoul(mib, NULL, 10) : 1024) << 20;
        const char *comma = mib ? strchr(mib, ',') : NULL;
        mib = comma ? comma + 1 : mib; /* the last one is that of all that follow */
    }
    return &fake;
}

void fake_cuda_fault(int device, int result, int after_ms) {
    LOCKED;
    if (after_ms < 0) {
        fake_contexts[device].stuck = result;
        return;
    }
    fake.fault_device = device;
    fake.fault_after_ms = after_ms;
    fake.kernel_fault = result;
}

/* Opened as the real one would be, by a program that knows nothing of it. */
__attribute__((constructor)) static void stand_alone(void) {
    const char *path = getenv("FAKE_CUDA_TRACE");
    fake_trace = path ? fopen(path, "w") : NULL;
    fake_cuda_reset();
    fake.zeroed = getenv("FAKE_CUDA_DEVICES") != NULL;
}

int fake_enter(const char *symbol) {
    fake.n_calls++;
    if (fake_stuck)
        return fake_stuck;
    bool now =
        fake.fail_at == fake.n_calls || (fake.fail_symbol && strcmp(fake.fail_symbol, symbol) == 0);
    if (!now)
        return 0;
    fake.fail_symbol = NULL;
    if (fake.sticky)
        *(fake_current ? &fake_current->stuck : &fake_stuck) = fake.fail_result;
    return fake.fail_result;
}

int fake_wrong(void) {
    fake.misused = true;
    return SL_CU_INVALID_VALUE;
}
