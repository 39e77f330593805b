#include "tests/support/fake_cuda/internal.h"

#include <stdlib.h>
#include <string.h>

struct CUmod_st {
    int unused;
};
struct CUfunc_st {
    char name[64];
    struct CUfunc_st *next;
    int smem_bytes;
};

FILE *fake_trace;
static struct CUfunc_st *functions;

void fake_forget_functions(void) {
    while (functions) {
        struct CUfunc_st *f = functions;
        functions = f->next;
        free(f);
    }
}

int cuModuleLoadData(struct CUmod_st **module, const void *image);
int cuModuleLoadData(struct CUmod_st **module, const void *image) {
    static const unsigned char fatbin[4] = {0x50, 0xed, 0x55, 0xba};
    ENTER_CONTEXT("cuModuleLoadData");
    if (fake.module_result)
        return fake.module_result;
    if (memcmp(image, fatbin, sizeof fatbin) != 0 && memcmp(image, "\177ELF", 4) != 0)
        return SL_CU_INVALID_IMAGE;
    if (!(*module = calloc(1, sizeof **module)))
        abort();
    fake.live_objects++;
    return 0;
}

int cuModuleUnload(struct CUmod_st *module);
int cuModuleUnload(struct CUmod_st *module) {
    LOCKED;
    fake.n_calls++;
    free(module);
    fake.live_objects--;
    return 0;
}

int cuModuleGetFunction(struct CUfunc_st **function, struct CUmod_st *module, const char *name);
int cuModuleGetFunction(struct CUfunc_st **function, struct CUmod_st *module, const char *name) {
    ENTER_CONTEXT("cuModuleGetFunction");
    if (!module)
        return fake_wrong();
    if ((fake.missing_kernel && strcmp(fake.missing_kernel, name) == 0) || !fake_has_kernel(name))
        return SL_CU_NOT_FOUND;
    struct CUfunc_st *f = calloc(1, sizeof *f);
    if (!f)
        abort();
    snprintf(f->name, sizeof f->name, "%s", name);
    f->smem_bytes = (48 - 8) << 10; /* the kernels declare some themselves */
    f->next = functions;
    functions = f;
    *function = f;
    return 0;
}

int cuFuncSetAttribute(struct CUfunc_st *function, int attribute, int value);
int cuFuncSetAttribute(struct CUfunc_st *function, int attribute, int value) {
    ENTER_CONTEXT("cuFuncSetAttribute");
    if (attribute == SL_CU_FUNC_SHARED_CARVEOUT)
        return value >= -1 && value <= 100 ? 0 : SL_CU_INVALID_VALUE;
    if (attribute != SL_CU_FUNC_MAX_DYNAMIC_SHARED || value > DEVICE_SHARED)
        return SL_CU_INVALID_VALUE;
    function->smem_bytes = value;
    return 0;
}

/* As struct sl_karg_fill. */
struct fill_args {
    uint64_t dst, n;
    uint32_t value;
};

/* As struct sl_karg_words. */
struct words_args {
    uint64_t src, dst;
    uint32_t n;
};

/* A bad address in a kernel: seen by whoever waits, and by all after that. */
static struct operation checked(bool right, struct operation o) {
    return right ? o : (struct operation){.kind = OTHER, .fault = ILLEGAL};
}

static struct operation copy_words(const void *args) {
    struct words_args a;
    memcpy(&a, args, sizeof a);
    size_t bytes = a.n * sizeof(uint32_t);
    char *from = fake_device_range(a.src, bytes), *to = fake_device_range(a.dst, bytes);
    return checked(from && to,
                   (struct operation){.kind = COPY, .dst = to, .src = from, .bytes = bytes});
}

static struct operation fill(const void *args) {
    struct fill_args a;
    memcpy(&a, args, sizeof a);
    char *to = fake_device_range(a.dst, a.n * 4);
    return checked(to,
                   (struct operation){.kind = FILL, .dst = to, .bytes = a.n * 4, .value = a.value});
}

/* As struct sl_karg_send and struct sl_karg_receive. */
struct send_args {
    uint64_t x, to, raised, channel, seqno;
    uint32_t n, stride;
};
struct receive_args {
    uint64_t from, x, raised, released, channel, seqno;
    uint32_t n, stride, alone;
};

/* Each needs what it uses of channel 0. */
static struct operation transfer(struct operation o) {
    return checked(
        o.dst && o.src && o.raised && o.channel && o.seqno && (o.released || o.kind == SEND), o);
}

static uint32_t *word_at(uint64_t addr) {
    return (uint32_t *)(void *)fake_device_range(addr, sizeof(uint32_t));
}

static struct operation send(const void *args) {
    struct send_args a;
    memcpy(&a, args, sizeof a);
    size_t bytes = a.n * sizeof(float);
    return transfer((struct operation){.kind = SEND,
                                       .dst = fake_device_range(a.to, bytes),
                                       .src = fake_device_range(a.x, bytes),
                                       .bytes = bytes,
                                       .raised = word_at(a.raised),
                                       .channel = word_at(a.channel),
                                       .seqno = word_at(a.seqno),
                                       .stride = a.stride});
}

static struct operation receive(const void *args) {
    struct receive_args a;
    memcpy(&a, args, sizeof a);
    size_t bytes = a.n * sizeof(float);
    return transfer((struct operation){.kind = RECEIVE,
                                       .dst = fake_device_range(a.x, bytes),
                                       .src = fake_device_range(a.from, bytes),
                                       .bytes = bytes,
                                       .raised = word_at(a.raised),
                                       .released = word_at(a.released),
                                       .channel = word_at(a.channel),
                                       .seqno = word_at(a.seqno),
                                       .stride = a.stride});
}

static struct operation kernel(const char *name, const void *args) {
    if (strcmp(name, "sl_k_words") == 0)
        return copy_words(args);
    if (strcmp(name, "sl_k_send") == 0)
        return send(args);
    if (strcmp(name, "sl_k_receive") == 0)
        return receive(args);
    if (strcmp(name, "sl_k_fill") == 0)
        return fill(args);
    return (struct operation){.kind = OTHER};
}

/* A word of arguments: an address by its allocation, so that two runs can be compared. */
static void trace_word(uint64_t word) {
    for (const struct memory *m = fake_memories; m; m = m->next) {
        uint64_t base = (uint64_t)(uintptr_t)m->host + ADDRESS_BIAS;
        if (word >= base && word - base < m->bytes) {
            fprintf(fake_trace, " m%u+%llx", m->number, (unsigned long long)(word - base));
            return;
        }
    }
    fprintf(fake_trace, " %llx", (unsigned long long)word);
}

static void trace_launch(const struct fake_cuda_launch *l, const char *args, bool captured) {
    fprintf(fake_trace, "%s%s %u,%u,%u %u,%u,%u %u:", captured ? "" : "now ", l->kernel, l->grid[0],
            l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2], l->smem_bytes);
    for (size_t i = 0; i < l->args_bytes; i += sizeof(uint64_t)) {
        uint64_t word = 0;
        memcpy(&word, args + i, l->args_bytes - i < sizeof word ? l->args_bytes - i : sizeof word);
        trace_word(word);
    }
    fputc('\n', fake_trace);
    fflush(fake_trace);
}

int cuLaunchKernel(struct CUfunc_st *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned smem_bytes,
                   struct CUstream_st *stream, void **params, void **extra);
int cuLaunchKernel(struct CUfunc_st *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned smem_bytes,
                   struct CUstream_st *stream, void **params, void **extra) {
    ENTER_STREAM("cuLaunchKernel", stream);
    if (!function || !stream || params || !extra || extra[0] != SL_CU_PARAM_POINTER ||
        extra[2] != SL_CU_PARAM_SIZE || extra[4] != SL_CU_PARAM_END)
        return fake_wrong();
    if (!grid_x || !grid_y || !grid_z || (uint64_t)block_x * block_y * block_z > 1024 ||
        (!block_x || !block_y || !block_z) || (int)smem_bytes > function->smem_bytes)
        return SL_CU_INVALID_VALUE;
    struct fake_cuda_launch *l = &fake.launch[fake.n_launches++ % FAKE_CUDA_MAX_LAUNCHES];
    *l = (struct fake_cuda_launch){.grid = {grid_x, grid_y, grid_z},
                                   .block = {block_x, block_y, block_z},
                                   .smem_bytes = smem_bytes};
    snprintf(l->kernel, sizeof l->kernel, "%s", function->name);
    memcpy(&l->args_bytes, extra[3], sizeof l->args_bytes);
    memcpy(l->args, extra[1], l->args_bytes < sizeof l->args ? l->args_bytes : sizeof l->args);
    if (fake_trace)
        trace_launch(l, extra[1], stream->capture != NULL);
    struct operation o = kernel(function->name, extra[1]);
    o.run = fake_run_of(l, extra[1]);
    return fake_enqueue(stream, o);
}

int cuLaunchKernelEx(const struct sl_cu_launch_config *config, struct CUfunc_st *function,
                     void **params, void **extra);
int cuLaunchKernelEx(const struct sl_cu_launch_config *config, struct CUfunc_st *function,
                     void **params, void **extra) {
    if (config->n_attributes != 1 ||
        config->attributes->id != SL_CU_LAUNCH_PROGRAMMATIC_SERIALIZATION ||
        config->attributes->value.flag != 1)
        return fake_wrong();
    LOCKED;
    uint64_t at = fake.n_launches;
    int result = cuLaunchKernel(function, config->grid_x, config->grid_y, config->grid_z,
                                config->block_x, config->block_y, config->block_z,
                                config->smem_bytes, config->stream, params, extra);
    if (fake.n_launches > at)
        fake.launch[at % FAKE_CUDA_MAX_LAUNCHES].early = true;
    return result;
}
