/* A CUDA driver that fails when told to: a shared object named libcuda.so.1 that stands between a
 * program and a real driver, so that real faults of a real GPU can be had from a program that
 * knows nothing of it (bench/h200_faults.py).
 *
 *   LD_LIBRARY_PATH=folder of it   the program opens it in the driver's place
 *   FAULTY_CUDA_DRIVER=/path       the real one
 *   FAULTY_CUDA="trap FILE"        once FILE exists, the next submission is a kernel that traps
 *               "illegal FILE"     one that writes to address 0
 *               "full FILE"        all memory that is free is taken before the next submission
 *               "full-alloc N"     likewise before the N-th allocation, from 1
 * It says on stderr when it does so, once. Submissions are launches, also those that are captured,
 * and replays of graphs. Kernels of its own come as PTX, which the driver compiles. Over the fake
 * driver (fake_cuda.h) faults of kernels are that one's, so that the scripts run without a GPU. */
#include "tests/support/fake_cuda.h"

#include "backends/cuda/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef __x86_64__
#error "the jumps below are those of x86-64"
#endif

/* Every symbol is a jump to where its pointer shows: the real driver, or one of ours. */
#define JUMP(field, symbol, args)                                                                  \
    __asm__(".globl " symbol "\n.type " symbol ", @function\n" symbol ": jmp *faulty_to_" #field   \
            "(%rip)\n");                                                                           \
    __attribute__((visibility("hidden"), used)) void *faulty_to_##field;
SL_CU_FUNCTIONS(JUMP)
SL_CU_NEWER_FUNCTIONS(JUMP)

static struct sl_cuda_driver real;
static enum { NONE, TRAP, ILLEGAL, FULL, FULL_ALLOC } fault;
static const char *trigger; /* a file */
static unsigned long at_alloc, n_allocs;
static struct CUfunc_st *kernels[2];
static struct fake_cuda *fake;

static const char ptx[] = ".version 6.3\n.target sm_75\n.address_size 64\n"
                          ".visible .entry trapping() { trap; ret; }\n"
                          ".visible .entry writing() {\n"
                          ".reg .u64 %a; .reg .u32 %v;\n"
                          "mov.u64 %a, 0; mov.u32 %v, 1; st.global.u32 [%a], %v; ret; }\n";

static void fatal(const char *what, const char *more) {
    fprintf(stderr, "faulty_cuda: %s: %s\n", what, more);
    _exit(99);
}

/* Pieces that only shrink, so that what is left is less than the smallest allocation takes. */
static void fill(void) {
    size_t free_bytes = 0, total_bytes = 0, taken = 0, left = 0;
    real.mem_info(&free_bytes, &total_bytes);
    for (size_t bytes = free_bytes; bytes >= 4096;) {
        uint64_t addr;
        if (real.mem_alloc(&addr, bytes) == SL_CU_OK)
            taken += bytes;
        else
            bytes /= 2;
    }
    real.mem_info(&left, &total_bytes);
    fprintf(stderr, "faulty_cuda: took %zu MiB of %zu that were free, %zu bytes are left\n",
            taken >> 20, free_bytes >> 20, left);
}

static int mem_alloc(uint64_t *addr, size_t bytes) {
    if (fault == FULL_ALLOC && ++n_allocs == at_alloc) {
        fprintf(stderr, "faulty_cuda: allocation %lu, %zu bytes\n", n_allocs, bytes);
        fill();
    }
    return real.mem_alloc(addr, bytes);
}

/* Modules end with their context, and a device is opened more than once. */
static int ctx_retain(struct CUctx_st **ctx, int device) {
    kernels[0] = kernels[1] = NULL;
    return real.ctx_retain(ctx, device);
}

/* With a context's first module, when nothing is being captured. */
static int module_load(struct CUmod_st **module, const void *image) {
    struct CUmod_st *own;
    int result = real.module_load(module, image);
    if (result != SL_CU_OK || kernels[0] || fake || (fault != TRAP && fault != ILLEGAL))
        return result;
    if (real.module_load(&own, ptx) != SL_CU_OK ||
        real.module_function(&kernels[0], own, "trapping") != SL_CU_OK ||
        real.module_function(&kernels[1], own, "writing") != SL_CU_OK)
        fatal("the driver does not take", "PTX");
    return result;
}

/* Before each submission to that stream. */
static void submission(struct CUstream_st *stream) {
    if (fault == NONE || fault == FULL_ALLOC || access(trigger, F_OK) != 0)
        return;
    if (fault == FULL) {
        fill();
    } else {
        int result = 0;
        if (fake)
            fake->kernel_fault = fault == TRAP ? 719 : 700;
        else
            result =
                real.launch(kernels[fault == ILLEGAL], 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
        fprintf(stderr, "faulty_cuda: a kernel that %s\n",
                fault == TRAP ? "traps" : "writes to address 0");
        if (result != SL_CU_OK)
            fatal("it was not taken", "see CUresult");
    }
    fault = NONE;
}

static int launch(struct CUfunc_st *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                  unsigned block_x, unsigned block_y, unsigned block_z, unsigned smem_bytes,
                  struct CUstream_st *stream, void **params, void **extra) {
    submission(stream);
    return real.launch(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, smem_bytes,
                       stream, params, extra);
}

static int launch_ex(const struct sl_cu_launch_config *config, struct CUfunc_st *function,
                     void **params, void **extra) {
    submission(config->stream);
    return real.launch_ex(config, function, params, extra);
}

static int graph_launch(struct CUgraphExec_st *exec, struct CUstream_st *stream) {
    submission(stream);
    return real.graph_launch(exec, stream);
}

static void parse(void) {
    static const char *const names[] = {"trap ", "illegal ", "full ", "full-alloc "};
    const char *text = getenv("FAULTY_CUDA");
    if (!text || !*text)
        return;
    for (int i = 0; i < 4; i++)
        if (strncmp(text, names[i], strlen(names[i])) == 0) {
            fault = TRAP + (unsigned)i;
            trigger = text + strlen(names[i]);
        }
    if (fault == NONE)
        fatal("FAULTY_CUDA is not understood", text);
    if (fault == FULL_ALLOC)
        at_alloc = strtoul(trigger, NULL, 10);
}

#define SET(field)                                                                                 \
    do {                                                                                           \
        const __typeof__(real.field) own = field; /* its bytes, as driver.c copies them */         \
        memcpy(&faulty_to_##field, &own, sizeof own);                                              \
    } while (0)

__attribute__((constructor)) static void open_real(void) {
    const char *path = getenv("FAULTY_CUDA_DRIVER");
    if (!path)
        fatal("FAULTY_CUDA_DRIVER is not set", "it names the real driver");
    real.lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!real.lib)
        fatal("no driver", dlerror());
#define FIND(field, symbol, args)                                                                  \
    do {                                                                                           \
        faulty_to_##field = dlsym(real.lib, symbol);                                               \
        memcpy(&real.field, &faulty_to_##field, sizeof real.field);                                \
        if (!faulty_to_##field)                                                                    \
            fatal("the driver lacks", symbol);                                                     \
    } while (0);
    SL_CU_FUNCTIONS(FIND)
    SL_CU_NEWER_FUNCTIONS(FIND)
#undef FIND
    SET(mem_alloc);
    SET(ctx_retain);
    SET(module_load);
    SET(launch);
    SET(launch_ex);
    SET(graph_launch);
    parse();
    fake_cuda_reset_fn *begin = NULL;
    void *found = dlsym(real.lib, "fake_cuda_reset");
    memcpy(&begin, &found, sizeof begin);
    if (begin)
        fake = begin(), fake->zeroed = true, fake->memory_bytes = 128u << 20;
}
