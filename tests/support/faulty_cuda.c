/* A CUDA driver that fails when told to: a shared object named libcuda.so.1 that stands between a
 * program and a real driver, so that real faults of a real GPU can be had from a program that
 * knows nothing of it (tests/fault/gpu_faults.py).
 *
 *   LD_LIBRARY_PATH=folder of it   the program opens it in the driver's place
 *   FAULTY_CUDA_DRIVER=/path       the real one
 *   FAULTY_CUDA="trap FILE"        once FILE exists, the next submission is a kernel that traps
 *               "illegal FILE"     one that writes to address 0
 *               "late FILE"        one that traps after LATE_MS, when others wait for it
 *               "full FILE"        all memory that is free is taken before the next submission
 *               "full-alloc N"     likewise before the N-th allocation, from 1
 *               "gone FILE"        every call fails as if the GPU had fallen off its bus
 *               "trap:1 FILE"      (any of these) on the second GPU, whatever the others do
 * With FAULTY_HIP it is ROCm's runtime, libamdhip64.so.6, in front of a real one of ROCm 6 or later
 * (faulty_hip.h), by the same environment.
 *
 * It says on stderr when it does so, once. Submissions are launches, also those that are captured,
 * and replays of graphs. Kernels of its own come as PTX, which the driver compiles, or as
 * HIP's source. Over the fake driver (fake_cuda.h) faults of kernels are that one's, so that the
 * scripts run without a GPU. */
#include "tests/support/fake_cuda.h"

#include "backends/gpu/driver.h"
#ifdef FAULTY_HIP
#include "tests/support/faulty_hip.h"
#endif

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef __x86_64__
#error "the jumps below are those of x86-64"
#endif

#define LATE_MS     300
#define MAX_DEVICES 16
#define ANY         (-1)
#define IS_GONE     999 /* CUDA_ERROR_UNKNOWN, and HIP's */

#ifdef FAULTY_HIP
#define NAME         "faulty_hip"
#define FUNCTIONS(X) HIP_FUNCTIONS(X)
#else
#define NAME         "faulty_cuda"
#define FUNCTIONS(X) SL_CU_FUNCTIONS(X) SL_CU_NEWER_FUNCTIONS(X)
#endif

/* Every symbol is a jump to where its pointer shows: the real driver, or one of ours. Where a GPU
 * may be gone it first asks for that, with all that functions take in registers kept. */
#define JUMP(field, symbol, args)                                                                  \
    __asm__(".globl " symbol "\n.type " symbol ", @function\n" symbol ":\n"                        \
            "cmpl $0, faulty_may_go(%rip)\n je 1f\n"                                               \
            "push %rdi\n push %rsi\n push %rdx\n push %rcx\n push %r8\n push %r9\n"                \
            "sub $8, %rsp\n mov %rdi, %rsi\n lea faulty_to_" #field "(%rip), %rdi\n"               \
            "call faulty_gone\n"                                                                   \
            "add $8, %rsp\n pop %r9\n pop %r8\n pop %rcx\n pop %rdx\n pop %rsi\n pop %rdi\n"       \
            "test %eax, %eax\n jne 2f\n"                                                           \
            "1: jmp *faulty_to_" #field "(%rip)\n2: ret\n");                                       \
    __attribute__((visibility("hidden"), used)) void *faulty_to_##field;
FUNCTIONS(JUMP)
extern __attribute__((visibility("hidden"))) int faulty_may_go;
int faulty_may_go;
__attribute__((visibility("hidden"))) int faulty_gone(void *const *to, void *first);

enum { TRAP, ILLEGAL, LATE, FULL, FULL_ALLOC, GONE, NONE };
static const char *const names[NONE] = {"trap", "illegal", "late", "full", "full-alloc", "gone"};
static const char *const kernel_names[] = {"trapping", "writing", "late"};
static const char *const kernel_does[] = {"traps", "writes to address 0", "traps when it ends"};

static struct {
    void *lib;
#define FIELD(field, symbol, args) int(*field) args;
    FUNCTIONS(FIELD)
#undef FIELD
} real;
static atomic_int fault = NONE;
static int at_device = ANY;
static const char *trigger; /* a file */
static unsigned long at_alloc;
static atomic_ulong n_allocs;
static struct CUfunc_st *kernels[MAX_DEVICES][3];
static _Thread_local int device = ANY; /* whose context is current */
static fake_cuda_fault_fn *fake_fault; /* NULL: the driver is a real one */

#ifndef FAULTY_HIP
static struct CUctx_st *contexts[MAX_DEVICES];
static const char ptx[] =
    ".version 6.3\n.target sm_75\n.address_size 64\n"
    ".visible .entry trapping() { trap; ret; }\n"
    ".visible .entry writing() {\n"
    ".reg .u64 %a; .reg .u32 %v;\n"
    "mov.u64 %a, 0; mov.u32 %v, 1; st.global.u32 [%a], %v; ret; }\n"
    ".visible .entry late() {\n"
    ".reg .u64 %from, %now; .reg .pred %early;\n"
    "mov.u64 %from, %globaltimer;\n"
    "again: mov.u64 %now, %globaltimer; sub.u64 %now, %now, %from;\n"
    "setp.lt.u64 %early, %now, 300000000; @%early bra again; trap; ret; }\n"; /* LATE_MS */
#endif

static void fatal(const char *what, const char *more) {
    fprintf(stderr, NAME ": %s: %s\n", what, more);
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
    fprintf(stderr, NAME ": took %zu MiB of %zu that were free, %zu bytes are left\n", taken >> 20,
            free_bytes >> 20, left);
}

static bool is_here(void) {
    return device != ANY && (at_device == ANY || at_device == device);
}

static int mem_alloc(uint64_t *addr, size_t bytes) {
    if (fault == FULL_ALLOC && is_here() && atomic_fetch_add(&n_allocs, 1) + 1 == at_alloc) {
        fprintf(stderr, NAME ": allocation %lu, %zu bytes\n", at_alloc, bytes);
        fill();
    }
    return real.mem_alloc(addr, bytes);
}

#ifdef FAULTY_HIP
static int ctx_set_current(int of) {
    int result = real.ctx_set_current(of);
    if (of >= MAX_DEVICES)
        fatal("more GPUs than", "MAX_DEVICES");
    if (result == SL_CU_OK)
        device = of;
    return result;
}

/* Kernels that fault, for the current GPU. */
static const void *own_image(void) {
    char properties[HIP_PROPERTIES_BYTES] __attribute__((aligned(16)));
    if (real.device_properties(properties, device) != SL_CU_OK)
        fatal("the runtime does not say", "what a GPU is");
    return hip_compile(real.lib, properties + HIP_ARCH_AT);
}
#else
/* Modules end with their context, and a device is opened more than once. */
static int ctx_retain(struct CUctx_st **ctx, int of) {
    if (of < 0 || of >= MAX_DEVICES)
        fatal("more GPUs than", "MAX_DEVICES");
    memset(kernels[of], 0, sizeof kernels[of]);
    int result = real.ctx_retain(ctx, of);
    contexts[of] = result == SL_CU_OK ? *ctx : NULL;
    return result;
}

static int ctx_set_current(struct CUctx_st *ctx) {
    int result = real.ctx_set_current(ctx);
    if (result != SL_CU_OK)
        return result;
    device = ANY;
    for (int i = 0; ctx && i < MAX_DEVICES; i++)
        if (contexts[i] == ctx)
            device = i;
    return result;
}

static const void *own_image(void) {
    return ptx;
}
#endif

/* With a context's first module, when nothing is being captured. */
static int module_load(struct CUmod_st **module, const void *image) {
    struct CUmod_st *own;
    int result = real.module_load(module, image);
    if (result != SL_CU_OK || fake_fault || fault > LATE || !is_here() || kernels[device][0])
        return result;
    const void *code = own_image();
    if (!code || real.module_load(&own, code) != SL_CU_OK)
        fatal("the driver does not take", "kernels that fault");
    for (int i = TRAP; i <= LATE; i++)
        if (real.module_function(&kernels[device][i], own, kernel_names[i]) != SL_CU_OK)
            fatal("the driver does not find", kernel_names[i]);
    return result;
}

/* Once. */
static bool is_due(int what) {
    return is_here() && access(trigger, F_OK) == 0 &&
           atomic_compare_exchange_strong(&fault, &what, NONE);
}

/* Before each submission to that stream. */
static void submission(struct CUstream_st *stream) {
    int what = fault, result = 0;
    if (what > FULL || !is_due(what))
        return;
    if (what == FULL) {
        fill();
        return;
    }
    if (fake_fault)
        fake_fault(device, what == ILLEGAL ? 700 : 719, what == LATE ? LATE_MS : 0);
    else
        result = real.launch(kernels[device][what], 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
    fprintf(stderr, NAME ": GPU %d: a kernel that %s\n", device, kernel_does[what]);
    if (result != SL_CU_OK)
        fatal("it was not taken", "see CUresult");
}

/* Nobody gets what was recorded on a GPU that is gone. */
static void drop_recording(struct CUstream_st *stream) {
    struct CUgraph_st *recorded = NULL;
    if (real.capture_end(stream, &recorded) == SL_CU_OK && recorded)
        real.graph_destroy(recorded);
}

/* Whether the GPU that a call is for is gone, and what the call then gives. What frees does so all
 * the same, so that nothing but the program's own mistakes leaks. */
int faulty_gone(void *const *to, void *first) {
    void *const *const frees[] = {&faulty_to_stream_destroy, &faulty_to_event_destroy,
                                  &faulty_to_graph_destroy,  &faulty_to_graph_exec_destroy,
                                  &faulty_to_module_unload,  &faulty_to_host_free};
    static atomic_bool said;
    bool ours = to != &faulty_to_error_name && to != &faulty_to_error_string &&
                to != &faulty_to_ctx_set_current;
    if (!ours || !is_here() || access(trigger, F_OK) != 0)
        return 0;
    if (!atomic_exchange(&said, true)) {
        fprintf(stderr, NAME ": GPU %d is gone\n", device);
        if (fake_fault)
            fake_fault(device, IS_GONE, -1);
    }
    if (to == &faulty_to_capture_end)
        drop_recording(first);
    for (size_t i = 0; i < sizeof frees / sizeof *frees; i++)
        if (to == frees[i]) {
            int (*release)(void *what);
            memcpy(&release, to, sizeof release);
            release(first);
        }
    return IS_GONE;
}

static int launch(struct CUfunc_st *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                  unsigned block_x, unsigned block_y, unsigned block_z, unsigned smem_bytes,
                  struct CUstream_st *stream, void **params, void **extra) {
    submission(stream);
    return real.launch(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, smem_bytes,
                       stream, params, extra);
}

#ifndef FAULTY_HIP
static int launch_ex(const struct sl_cu_launch_config *config, struct CUfunc_st *function,
                     void **params, void **extra) {
    submission(config->stream);
    return real.launch_ex(config, function, params, extra);
}
#endif

static int graph_launch(struct CUgraphExec_st *exec, struct CUstream_st *stream) {
    submission(stream);
    return real.graph_launch(exec, stream);
}

static void parse(void) {
    const char *text = getenv("FAULTY_CUDA"), *space = text ? strchr(text, ' ') : NULL;
    size_t n = text ? strcspn(text, ": ") : 0;
    if (!n)
        return;
    for (int i = 0; i < NONE; i++)
        if (strlen(names[i]) == n && strncmp(text, names[i], n) == 0)
            fault = i;
    if (fault == NONE || !space)
        fatal("FAULTY_CUDA is not understood", text);
    if (text[n] == ':')
        at_device = atoi(text + n + 1);
    trigger = space + 1;
    if (fault == FULL_ALLOC)
        at_alloc = strtoul(trigger, NULL, 10);
    faulty_may_go = fault == GONE;
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
    FUNCTIONS(FIND)
#undef FIND
    SET(mem_alloc);
    SET(ctx_set_current);
    SET(module_load);
    SET(launch);
    SET(graph_launch);
#ifndef FAULTY_HIP
    SET(ctx_retain);
    SET(launch_ex);
#endif
    parse();
    fake_cuda_reset_fn *begin = NULL;
    void *found[] = {dlsym(real.lib, "fake_cuda_reset"), dlsym(real.lib, "fake_cuda_fault")};
    memcpy(&begin, &found[0], sizeof begin);
    memcpy(&fake_fault, &found[1], sizeof fake_fault);
    if (!fake_fault)
        return;
    setenv("FAKE_CUDA_MIB", "128", false); /* that is soon full */
    begin()->zeroed = true;
}
