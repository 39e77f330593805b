/* The layout of a module: Khronos, SPIR-V Specification, 2.3 and 2.4. Capabilities come first, and
 * execution modes right behind the entry points. */
#include "backends/vulkan/spirv.h"

#include <string.h>

#define MAGIC             0x07230203u
#define HEADER_WORDS      5u
#define OP_ENTRY_POINT    15u
#define OP_EXECUTION_MODE 16u
#define OP_CAPABILITY     17u
#define FLOAT_BITS        32u

size_t sl_vk_spirv_declare(const uint32_t *words, size_t n_words, struct sl_vk_float_modes modes,
                           uint32_t *out) {
    const struct {
        bool wanted;
        uint32_t mode, capability;
    } all[] = {{modes.denormals, 4459, 4464},     /* DenormPreserve */
               {modes.inf_nan_zero, 4461, 4466},  /* SignedZeroInfNanPreserve */
               {modes.nearest_even, 4462, 4467}}; /* RoundingModeRTE */
    const size_t n_all = sizeof all / sizeof *all;
    size_t n = HEADER_WORDS;
    if (n_words < HEADER_WORDS || words[0] != MAGIC)
        return 0;
    memcpy(out, words, HEADER_WORDS * sizeof *words);
    for (size_t i = 0; i < n_all; i++)
        if (all[i].wanted) {
            out[n++] = 2u << 16 | OP_CAPABILITY;
            out[n++] = all[i].capability;
        }
    for (size_t at = HEADER_WORDS; at < n_words;) {
        uint32_t op = words[at] & 0xffff, length = words[at] >> 16;
        if (!length || length > n_words - at)
            return 0;
        memcpy(out + n, words + at, length * sizeof *words);
        n += length;
        for (size_t i = 0; op == OP_ENTRY_POINT && length > 2 && i < n_all; i++)
            if (all[i].wanted) {
                out[n++] = 4u << 16 | OP_EXECUTION_MODE;
                out[n++] = words[at + 2];
                out[n++] = all[i].mode;
                out[n++] = FLOAT_BITS;
            }
        at += length;
    }
    return n;
}
