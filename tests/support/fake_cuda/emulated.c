/* Kernels that really run, on the CPU (tests/support/simt/simt.h), where the driver is built with
 * FAKE_CUDA_SIMT; without it none does. */
#include "tests/support/fake_cuda/internal.h"

#include <stdlib.h>
#include <string.h>

#ifdef FAKE_CUDA_SIMT
#include "tests/support/simt/simt.h"

#include <sys/mman.h>

#define ALIGNED 256u
#define PAGE    4096u

struct run {
    uint32_t refs; /* a graph and its copies share it */
    const struct simt_kernel *kernel;
    struct simt_dim grid, block;
    size_t smem_bytes;
    _Alignas(16) char args[];
};

static const struct simt_kernel *named(const char *name) {
    for (size_t i = 0; i < simt_n_kernels; i++)
        if (simt_kernels[i].run && strcmp(simt_kernels[i].name, name) == 0)
            return &simt_kernels[i];
    return NULL;
}

bool fake_has_kernel(const char *name) {
    return named(name) != NULL;
}

uint32_t fake_wave_lanes(void) {
    return simt_wave_lanes();
}

struct run *fake_run_of(const struct fake_cuda_launch *l, const void *args) {
    const struct simt_kernel *kernel = named(l->kernel);
    if (kernel->args_bytes != l->args_bytes)
        abort();
    struct run *r = calloc(1, sizeof *r + l->args_bytes);
    if (!r)
        abort();
    *r = (struct run){.kernel = kernel,
                      .grid = {l->grid[0], l->grid[1], l->grid[2]},
                      .block = {l->block[0], l->block[1], l->block[2]},
                      .smem_bytes = l->smem_bytes};
    memcpy(r->args, args, l->args_bytes);
    return r;
}

void fake_run_kernel(const struct run *r) {
    simt_launch(r->kernel, r->grid, r->block, r->smem_bytes, r->args);
}

void fake_hold(struct run *r) {
    if (r)
        r->refs++;
}

void fake_let_go(struct run *r) {
    if (r && !--r->refs)
        free(r);
}

/* Behind an allocation, as far as its alignment lets, and before it, is no memory: a kernel that
 * goes beyond it faults. */
static size_t room_of(size_t bytes) {
    return (bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
}

static size_t mapped_of(size_t bytes) {
    return (bytes + PAGE - 1) / PAGE * PAGE + 2 * PAGE;
}

void *fake_get(size_t bytes) {
    size_t all = mapped_of(bytes);
    char *map = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED || mprotect(map + PAGE, all - 2 * PAGE, PROT_READ | PROT_WRITE) != 0)
        return NULL;
    return map + all - PAGE - room_of(bytes);
}

void fake_put_back(void *host, size_t bytes) {
    size_t all = mapped_of(bytes);
    munmap((char *)host + room_of(bytes) + PAGE - all, all);
}
#else
bool fake_has_kernel(const char *name) {
    (void)name;
    return true;
}

uint32_t fake_wave_lanes(void) {
    return 32;
}

struct run *fake_run_of(const struct fake_cuda_launch *l, const void *args) {
    (void)l;
    (void)args;
    return NULL;
}

void fake_run_kernel(const struct run *r) {
    (void)r;
}

void fake_hold(struct run *r) {
    (void)r;
}

void fake_let_go(struct run *r) {
    (void)r;
}

void *fake_get(size_t bytes) {
    return aligned_alloc(512, (bytes + 511) / 512 * 512);
}

void fake_put_back(void *host, size_t bytes) {
    (void)bytes;
    free(host);
}
#endif
