/* Kernels: from the embedded SPIR-V to a launch. */
#include "backends/vulkan/modules.h"
#include "backends/vulkan/times.h"
#include "backends/vulkan/vulkan_internal.h"
#include "common/crc.h"
#include "common/log.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Workgroups of one dimension of a dispatch: what every driver allows. */
#define MAX_GROUPS 65535u

static const char *const names[] = {
#define NAME(name) #name,
    SL_VK_KERNELS(NAME)
#undef NAME
};

const char *sl_vk_kernel_name(enum sl_vk_kernel kernel) {
    return names[kernel];
}

#define FITS(name) _Static_assert(sizeof(struct sl_vk_##name) <= SL_VK_ARGS_BYTES, #name);
FITS(probe)
FITS(embed)
FITS(rms_norm)
FITS(quantize)
FITS(matmul)
FITS(norm_quantize)
FITS(float_row)
FITS(qkv)
FITS(rope_table)
FITS(rope)
FITS(kv_write)
FITS(attention)
FITS(attention_join)
FITS(join_quantize)
FITS(router)
FITS(moe)
FITS(moe_up)
FITS(moe_down)
FITS(moe_group)
FITS(moe_tile)
FITS(moe_combine)
FITS(glu)
FITS(add_gated)
FITS(gather_rows)
FITS(block_max)
FITS(mul_sigmoid)
FITS(l2_norm)
FITS(conv_silu)
FITS(delta_rule)
FITS(head)
FITS(keep)
FITS(scale)
FITS(gate_heads)
FITS(temper)
FITS(center)
FITS(clamp)
FITS(bias)
FITS(gelu_rows)
#undef FITS

/* The module of a kernel, in the form that suits the device's fma. */
static const struct sl_vulkan_module *module_of(enum sl_vk_kernel kernel, bool fused_fma) {
    char name[48];
    snprintf(name, sizeof name, "%s%s", names[kernel], fused_fma ? "" : "_doubles");
    for (uint64_t i = 0; i < sl_vulkan_n_modules; i++)
        if (strcmp(sl_vulkan_modules[i].name, name) == 0)
            return &sl_vulkan_modules[i];
    return NULL;
}

static uint32_t kernels_crc(void) {
    uint32_t crc = 0;
    for (uint64_t i = 0; i < sl_vulkan_n_modules; i++)
        crc = sl_crc32c(crc, sl_vulkan_modules[i].words, sl_vulkan_modules[i].bytes);
    return crc;
}

static enum sl_status open_cache(struct sl_vulkan *v) {
    size_t bytes = 0;
    v->info.cache_key.kernels_crc = kernels_crc();
    sl_vk_cache_find(&v->info.cache_key, &v->cache_file);
    void *data = sl_vk_cache_read(&v->cache_file, &v->info.cache_key, &bytes);
    const VkPipelineCacheCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO,
                                            .initialDataSize = data ? bytes : 0,
                                            .pInitialData = data};
    enum sl_status status = sl_vk_check(
        v, v->vk.CreatePipelineCache(v->device, &info, NULL, &v->cache), "creating a cache");
    free(data);
    sl_debug("vulkan:%u: %zu bytes of compiled kernels read", v->number, status ? 0 : bytes);
    return status;
}

/* What was compiled in this process goes to disk. */
static void keep_cache(struct sl_vulkan *v) {
    size_t bytes = 0;
    if (!v->n_compiled || v->lost || !*v->cache_file.path ||
        v->vk.GetPipelineCacheData(v->device, v->cache, &bytes, NULL) || !bytes)
        return;
    void *data = malloc(bytes);
    if (data && v->vk.GetPipelineCacheData(v->device, v->cache, &bytes, data) == VK_SUCCESS)
        sl_code_file_write(&v->cache_file, data, bytes);
    free(data);
}

enum sl_status sl_vk_pipelines_init(struct sl_vulkan *v) {
    const VkPushConstantRange range = {.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT,
                                       .size = SL_VK_ARGS_BYTES};
    const VkPipelineLayoutCreateInfo layout = {.sType =
                                                   VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                               .pushConstantRangeCount = 1,
                                               .pPushConstantRanges = &range};
    SL_TRY(sl_vk_check(v, v->vk.CreatePipelineLayout(v->device, &layout, NULL, &v->layout),
                       "creating a pipeline layout"));
    return open_cache(v);
}

static enum sl_status load(struct sl_vulkan *v, enum sl_vk_kernel kernel) {
    const struct sl_vulkan_module *m = module_of(kernel, v->fused_fma);
    if (!m) {
        sl_error("vulkan: the embedded kernels lack %s: the build is incomplete", names[kernel]);
        return SL_ERR_UNSUPPORTED;
    }
    size_t n_words = m->bytes / sizeof(uint32_t), room = sl_vk_spirv_khr_words(n_words);
    uint32_t *words = malloc((2 * room + SL_VK_SPIRV_ADDED_WORDS) * sizeof *words);
    if (!words)
        return SL_ERR_NOMEM;
    uint32_t *khr = words + room + SL_VK_SPIRV_ADDED_WORDS;
    n_words = sl_vk_spirv_khr_matrices(m->words, n_words, khr);
    n_words = sl_vk_spirv_declare(khr, n_words, v->info.float_modes, words);
    const VkShaderModuleCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                           .codeSize = n_words * sizeof *words,
                                           .pCode = words};
    assert(n_words);
    enum sl_status status = sl_vk_check(
        v, v->vk.CreateShaderModule(v->device, &info, NULL, &v->module[kernel]), names[kernel]);
    free(words);
    return status;
}

void sl_vk_pipelines_release(struct sl_vulkan *v) {
    if (v->cache)
        keep_cache(v);
    for (uint32_t k = 0; k < SL_VK_KERNEL_COUNT; k++) {
        for (uint32_t i = 0; i < SL_DTYPE_COUNT; i++)
            if (v->pipeline[k][i])
                v->vk.DestroyPipeline(v->device, v->pipeline[k][i], NULL);
        if (v->module[k])
            v->vk.DestroyShaderModule(v->device, v->module[k], NULL);
    }
    if (v->cache)
        v->vk.DestroyPipelineCache(v->device, v->cache, NULL);
    if (v->layout)
        v->vk.DestroyPipelineLayout(v->device, v->layout, NULL);
}

static bool has_matrices(const struct sl_vulkan *v, enum sl_vk_kernel kernel) {
    return v->fused_fma && (kernel == SL_VK_matmul_matrix || kernel == SL_VK_moe_matrix ||
                            kernel == SL_VK_attention_prompt);
}

/* The constants of shaders/common.glsl and matrix.glsl. */
static enum sl_status make(struct sl_vulkan *v, enum sl_vk_kernel kernel, uint32_t variant) {
    const uint32_t values[] = {variant, v->info.matrix_k};
    const VkSpecializationMapEntry entries[] = {{0, 0, sizeof *values},
                                                {3, sizeof *values, sizeof *values}};
    const bool matrices = has_matrices(v, kernel);
    const VkSpecializationInfo constants = {.mapEntryCount = matrices ? 2 : 1,
                                            .pMapEntries = entries,
                                            .dataSize = sizeof values,
                                            .pData = values};
    const VkPipelineShaderStageRequiredSubgroupSizeCreateInfo subgroup = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO,
        .requiredSubgroupSize = SL_VK_MATRIX_SUBGROUP};
    if (!v->module[kernel])
        SL_TRY(load(v, kernel));
    const VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .pNext = matrices ? &subgroup : NULL,
                  .flags =
                      matrices ? VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT : 0,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = v->module[kernel],
                  .pName = "main",
                  .pSpecializationInfo = &constants},
        .layout = v->layout};
    v->n_compiled++;
    return sl_vk_check(v,
                       v->vk.CreateComputePipelines(v->device, v->cache, 1, &info, NULL,
                                                    &v->pipeline[kernel][variant]),
                       names[kernel]);
}

void sl_vk_leave(struct sl_vulkan *v, uint64_t x, uint32_t n_rows, uint32_t n,
                 const uint64_t at[2]) {
    v->left.x = x;
    v->left.n_rows = n_rows;
    v->left.n = n;
    v->left.at[0] = at[0];
    v->left.at[1] = at[1];
    v->left.n_kernels = v->base.n_kernels;
}

uint64_t sl_vk_left_at(const struct sl_vulkan *v, bool block32, uint64_t x, uint32_t n_rows,
                       uint32_t n) {
    bool there = v->left.x == x && v->left.n_rows == n_rows && v->left.n == n &&
                 v->left.n_kernels == v->base.n_kernels;
    return there ? v->left.at[block32] : 0;
}

enum sl_status sl_vk_launch(struct sl_vulkan *v, enum sl_vk_kernel kernel, uint32_t variant,
                            uint64_t n_groups, const void *args, size_t args_bytes) {
    assert(args_bytes <= SL_VK_ARGS_BYTES && variant < SL_DTYPE_COUNT && n_groups);
    VkCommandBuffer commands;
    SL_TRY(sl_vk_commands(v, SL_QUEUE_OPS, true, &commands));
    if (!v->pipeline[kernel][variant])
        SL_TRY(make(v, kernel, variant));
    /* Kernels number their workgroups over both dimensions and leave those that are too many. */
    uint64_t y = sl_div_up(n_groups, MAX_GROUPS), x = sl_div_up(n_groups, (uint32_t)y);
    if (y > MAX_GROUPS) {
        sl_error("vulkan:%u: %s: %llu workgroups", v->number, names[kernel],
                 (unsigned long long)n_groups);
        return SL_ERR_INVALID;
    }
    v->vk.CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, v->pipeline[kernel][variant]);
    v->vk.CmdPushConstants(commands, v->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                           (uint32_t)args_bytes, args);
    if (v->times)
        sl_vk_times_begin(v, commands);
    v->vk.CmdDispatch(commands, (uint32_t)x, (uint32_t)y, 1);
    v->base.n_kernels++;
    return v->times ? sl_vk_times_end(v, commands, kernel, variant) : SL_OK;
}
