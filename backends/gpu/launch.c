/* Kernels: from their images to a launch. */
#include "backends/gpu/gpu_internal.h"
#include "common/log.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* A block may have 48 KiB without the driver being asked first, but what a kernel declares itself
 * counts too: 12 KiB at most so far. Asking costs nothing, so all above this is asked for. */
#define PLAIN_SMEM_BYTES (32u << 10)

static const struct kernel {
    const char *name;
    uint32_t args_bytes;
    enum sl_kernel_family family;
    uint32_t variant;
} kernels[] = {
#define ROW(family, name, variant, args) {#name, sizeof(args), SL_FAMILY_##family, variant},
    SL_KERNELS(ROW)
#undef ROW
};

/* Kernel parameters before compute capability 7.0 and CUDA 12.1 end at 4 KiB. */
#define FITS(family, name, variant, args)                                                          \
    _Static_assert(sizeof(args) <= 4096, "the arguments of " #name " are too large");
SL_KERNELS(FITS)
#undef FITS

static const struct family {
    uint64_t ops;
    uint32_t forms;
    bool typed, wants_cache;
} families[] = {
#define DEVICE                                          UINT64_MAX
#define OP(name)                                        (UINT64_C(1) << SL_OP_##name)
#define FORM(name)                                      (1u << SL_FUSED_##name)
#define ROW(X, name, variants, args, ops, forms, cache) {ops, forms, TYPED_##variants, cache},
#define TYPED_ONE                                       false
#define TYPED_ROWS                                      false
#define TYPED_HEADS                                     false
#define TYPED_STATES                                    false
#define TYPED_PAIRS_32                                  false
#define TYPED_PAIRS_64                                  false
#define TYPED_MMA                                       true
#define TYPED_MMA_Q8_0                                  true
#define TYPED_PAIR                                      true
#define TYPED_F32                                       true
#define TYPED_HEAD                                      true
#define TYPED_Q8_0                                      true
#define TYPED_TYPES                                     true
    SL_KERNEL_FAMILIES(ROW, )
#undef ROW
};

enum sl_kernel sl_kernel_of(enum sl_kernel_family family, uint32_t variant) {
    /* One above the kernel; 0: none. */
    static const uint16_t of[SL_FAMILY_COUNT][SL_DTYPE_COUNT] = {
#define ROW(family, name, variant, args) [SL_FAMILY_##family][variant] = SL_KERNEL_##name + 1,
        SL_KERNELS(ROW)
#undef ROW
    };
    uint32_t found = variant < SL_DTYPE_COUNT ? of[family][variant] : 0;
    return found ? (enum sl_kernel)(found - 1) : SL_KERNEL_COUNT;
}

/* Where a kernel is (kernels.h): in the image with the longest name that its own begins with. */
#define DEFAULT_IMAGE "small"

static uint32_t image_of(const struct sl_gpu_image *images, uint64_t n_images, const char *kernel) {
    uint32_t found = UINT32_MAX;
    size_t most = 0;
    for (uint32_t i = 0; i < n_images; i++) {
        const char *name = images[i].name;
        size_t n = strlen(name);
        bool begins = strncmp(kernel, name, n) == 0 && (!kernel[n] || kernel[n] == '_');
        if (begins && n > most) {
            found = i;
            most = n;
        } else if (!most && strcmp(name, DEFAULT_IMAGE) == 0) {
            found = i;
        }
    }
    return found;
}

static enum sl_status image_error(const struct sl_gpu *c, int result, const char *image,
                                  struct sl_err *err) {
    char text[256];
    sl_gpu_result_text(&c->driver, result, text, sizeof text);
    if (result == SL_CU_OUT_OF_MEMORY)
        return sl_fail(err, SL_ERR_DEVICE_OOM, "%s:%d: no memory for the kernels (%s): %s", c->name,
                       c->ordinal, image, text);
    if (result == SL_CU_NO_BINARY_FOR_GPU || result == SL_CU_INVALID_IMAGE ||
        result == SL_CU_UNSUPPORTED_PTX_VERSION)
        return c->kind->misfit(c, image, text, err);
    return sl_fail(err, SL_ERR_DEVICE_LOST, "%s:%d: the kernels (%s) do not load: %s", c->name,
                   c->ordinal, image, text);
}

/* What becomes of no op by itself. */
static const char *otherwise(enum sl_kernel k) {
    switch (k) {
    case SL_KERNEL_router_groups:
        return ": no op 'router' with groups of experts";
    case SL_KERNEL_router_share:
        return ": no op 'router' with ids that experts share";
    default:
        return ": slower without it";
    }
}

/* A kernel that is not in its image: what cannot be done without it is taken out. */
static enum sl_status miss(struct sl_gpu *c, enum sl_kernel k, const char *image,
                           struct sl_err *err) {
    const struct family *f = &families[kernels[k].family];
    char text[160] = "";
    size_t n = 0;
    if (f->ops == DEVICE)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "%s: the embedded kernels (%s) lack sl_k_%s: the build is incomplete",
                       c->name, image, kernels[k].name);
    for (uint32_t op = 0; op < SL_OP_COUNT; op++) {
        if (!(f->ops >> op & 1))
            continue;
        if (f->typed)
            c->lacks_type[op][kernels[k].variant] = true;
        else
            c->base.caps.lacks_ops |= UINT64_C(1) << op;
        n += (size_t)snprintf(text + n, sizeof text - n, "%s'%s'", n ? " and " : ": no op ",
                              sl_op_name((enum sl_op)op));
    }
    c->lacks_fused |= f->forms;
    sl_warn("%s:%d: the embedded kernels (%s) lack sl_k_%s%s%s%s", c->name, c->ordinal, image,
            kernels[k].name, n ? text : otherwise(k), n && f->typed ? " for weights of type " : "",
            n && f->typed ? sl_dtype_name(kernels[k].variant) : "");
    return SL_OK;
}

enum sl_status sl_gpu_modules_load(struct sl_gpu *c, struct sl_err *err) {
    if (c->kind->make_images)
        SL_TRY(c->kind->make_images(c, &c->made_images, &c->n_made, err));
    const struct sl_gpu_image *images = c->made_images ? c->made_images : c->kind->images;
    uint64_t n_images = c->made_images ? c->n_made : *c->kind->n_images;
    if (n_images > SL_GPU_MAX_IMAGES)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "%s: there are %llu images; the most is %u",
                       c->name, (unsigned long long)n_images, SL_GPU_MAX_IMAGES);
    for (uint32_t i = 0; i < n_images; i++) {
        int result = c->driver.module_load(&c->module[i], images[i].data);
        if (result)
            return image_error(c, result, images[i].name, err);
        c->n_modules = i + 1;
    }
    for (uint32_t k = 0; k < SL_KERNEL_COUNT; k++) {
        uint32_t i = image_of(images, n_images, kernels[k].name);
        const char *image = i < c->n_modules ? images[i].name : DEFAULT_IMAGE;
        char symbol[96];
        snprintf(symbol, sizeof symbol, "sl_k_%s", kernels[k].name);
        int result = i < c->n_modules
                         ? c->driver.module_function(&c->kernel[k], c->module[i], symbol)
                         : SL_CU_NOT_FOUND;
        if (result && result != SL_CU_NOT_FOUND)
            return image_error(c, result, image, err);
        if (result) {
            c->kernel[k] = NULL;
            SL_TRY(miss(c, (enum sl_kernel)k, image, err));
        }
        c->kernel_smem_bytes[k] = 0;
    }
    return SL_OK;
}

void sl_gpu_modules_unload(struct sl_gpu *c) {
    while (c->n_modules)
        c->driver.module_unload(c->module[--c->n_modules]);
    if (c->made_images)
        c->kind->free_images(c->made_images, c->n_made);
    c->made_images = NULL;
}

/* What a kernel must be told before it is launched with so much shared memory. */
static enum sl_status prepare(struct sl_gpu *c, enum sl_kernel kernel, uint32_t smem_bytes) {
    const char *name = kernels[kernel].name;
    uint32_t *has = &c->kernel_smem_bytes[kernel];
    if (!*has) {
        /* Multiprocessors split one memory into cache and shared memory. Blocks of two kernels that
         * want different splits do not run side by side there, so the second would not start early.
         * Only a hint: its result does not matter. */
        if (c->early_start && !families[kernels[kernel].family].wants_cache)
            c->driver.func_set_attribute(c->kernel[kernel], SL_CU_FUNC_SHARED_CARVEOUT, 100);
        *has = PLAIN_SMEM_BYTES;
    }
    if (smem_bytes <= *has)
        return SL_OK;
    if (smem_bytes > c->max_smem_bytes) {
        sl_error("%s:%d: %s needs %u bytes of shared memory; this GPU has %u a block", c->name,
                 c->ordinal, name, smem_bytes, c->max_smem_bytes);
        return SL_ERR_UNSUPPORTED;
    }
    enum sl_status status =
        sl_gpu_check(c,
                     c->driver.func_set_attribute(c->kernel[kernel], SL_CU_FUNC_MAX_DYNAMIC_SHARED,
                                                  (int)smem_bytes),
                     name);
    if (!status)
        *has = smem_bytes;
    return status;
}

enum sl_status sl_gpu_launch(struct sl_gpu *c, enum sl_kernel kernel, struct sl_dim3 grid,
                             struct sl_dim3 block, uint32_t smem_bytes, const void *args,
                             size_t args_bytes) {
    const char *name = kernels[kernel].name;
    assert(args_bytes == kernels[kernel].args_bytes);
    assert(grid.x && grid.y && grid.z && block.x && block.y && block.z);
    SL_TRY(sl_gpu_enter(c));
    if (!c->kernel[kernel]) {
        sl_error("%s:%d: kernel %s is missing", c->name, c->ordinal, name);
        return SL_ERR_UNSUPPORTED;
    }
    SL_TRY(prepare(c, kernel, smem_bytes));
    void *extra[] = {SL_CU_PARAM_POINTER, (void *)(uintptr_t)args, SL_CU_PARAM_SIZE, &args_bytes,
                     SL_CU_PARAM_END};
    int result;
    /* Before it waits for those before it a kernel may read what only uploads write, so it begins
     * after an upload that was a kernel too. */
    bool uploads = kernel == SL_KERNEL_words;
    if (c->early_start && (uploads || !c->uploaded)) {
        struct sl_cu_launch_attribute early = {.id = SL_CU_LAUNCH_PROGRAMMATIC_SERIALIZATION,
                                               .value.flag = 1};
        struct sl_cu_launch_config config = {
            grid.x, grid.y, grid.z, block.x, block.y, block.z, smem_bytes, c->stream, &early, 1,
        };
        result = c->driver.launch_ex(&config, c->kernel[kernel], NULL, extra);
    } else {
        result = c->driver.launch(c->kernel[kernel], grid.x, grid.y, grid.z, block.x, block.y,
                                  block.z, smem_bytes, c->stream, NULL, extra);
    }
    c->base.n_kernels++;
    c->working |= !uploads && kernel != SL_KERNEL_fill;
    c->uploaded &= uploads;
    return sl_gpu_check(c, result, name);
}
