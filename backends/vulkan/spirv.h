/* How kernels compute with floats, stated in their SPIR-V. */
#ifndef SL_BACKENDS_VULKAN_SPIRV_H
#define SL_BACKENDS_VULKAN_SPIRV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a device can be asked for (VkPhysicalDeviceVulkan12Properties, shader...Float32). Without
 * it a driver does as it likes: NVIDIA's flushes denormals, where the definitions keep them. */
struct sl_vk_float_modes {
    bool denormals;    /* kept, in operands and results */
    bool inf_nan_zero; /* infinities, NaN and the sign of zero are as IEEE 754 has them */
    bool nearest_even; /* rounded so */
};

/* Words that a module grows by at most. */
#define SL_VK_SPIRV_ADDED_WORDS 18u

/* Copies a module of one entry point and declares the modes for its 32-bit floats. out has room for
 * n_words + SL_VK_SPIRV_ADDED_WORDS; returns how many it has now, 0 for what is not a module. */
size_t sl_vk_spirv_declare(const uint32_t *words, size_t n_words, struct sl_vk_float_modes modes,
                           uint32_t *out);

/* Copies a module, in which SPV_NV_cooperative_matrix becomes SPV_KHR_cooperative_matrix: glslang
 * writes the latter from version 13 on, and GLSL of the two is all but the same. The three types of
 * a product have to be different, since here, and not there, a type says which of the three it is.
 * A module without such matrices stays as it is. out has room for sl_vk_spirv_khr_words(n_words);
 * returns how many it has now, 0 for what is not such a module, or if there is no memory. */
static inline size_t sl_vk_spirv_khr_words(size_t n_words) {
    return n_words + n_words / 4 + 16;
}
size_t sl_vk_spirv_khr_matrices(const uint32_t *words, size_t n_words, uint32_t *out);

#endif
