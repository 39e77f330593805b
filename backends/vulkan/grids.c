/* The grids of the IQ types as kernels read them: int8 values, 8 an entry, 4 of IQ3's. */
#include "backends/iq_codes.h"
#include "backends/vulkan/vulkan_internal.h"

#include <stdlib.h>

struct grid {
    enum sl_dtype dtype;
    const uint16_t *codes;
    uint32_t n, values; /* entries, and values of one */
    int8_t of_code[8];
};

/* A code is its values' indices, the first lowest: 2 bits each of 8, 3 bits each of 4. */
#define GRID(TYPE, CODES, VALUES, ...)                                                             \
    {                                                                                              \
        SL_DTYPE_##TYPE, CODES, sizeof CODES / sizeof *CODES, VALUES, {                            \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
static const struct grid grids[] = {
    GRID(IQ2_XXS, sl_code_iq2xxs, 8, 8, 25, 43),
    GRID(IQ2_XS, sl_code_iq2xs, 8, 8, 25, 43),
    GRID(IQ2_S, sl_code_iq2s, 8, 8, 25, 43),
    GRID(IQ3_XXS, sl_code_iq3xxs, 4, 4, 12, 20, 28, 36, 44, 52, 62),
    GRID(IQ3_S, sl_code_iq3s, 4, 1, 3, 5, 7, 9, 11, 13, 15),
    GRID(IQ1_S, sl_code_iq1, 8, -1, 0, 1),
};
#define N_GRIDS (sizeof grids / sizeof *grids)

static uint32_t grid_bytes(const struct grid *g) {
    return g->n * g->values;
}

enum sl_status sl_vk_grids_init(struct sl_vulkan *v) {
    uint32_t bytes = 0, at = 0;
    for (uint32_t i = 0; i < N_GRIDS; i++)
        bytes += grid_bytes(&grids[i]);
    int8_t *all = malloc(bytes);
    if (!all)
        return SL_ERR_NOMEM;
    for (uint32_t i = 0; i < N_GRIDS; i++) {
        const struct grid *g = &grids[i];
        uint32_t bits = g->values == 8 ? 2 : 3;
        for (uint32_t e = 0; e < grid_bytes(g); e++)
            all[at++] = g->of_code[(uint32_t)g->codes[e / g->values] >> bits * (e % g->values) &
                                   ((1u << bits) - 1)];
    }
    enum sl_status status = sl_vk_memory_alloc(v, bytes, false, &v->grids);
    if (!status) {
        const struct sl_buffer buffer = {.device = &v->base,
                                         .kind = SL_BUFFER_DEVICE,
                                         .bytes = bytes,
                                         .addr = (void *)(uintptr_t)v->grids.addr,
                                         .own = &v->grids};
        status = sl_vk_upload(&v->base, sl_span_all(&buffer), all);
    }
    if (!status)
        status = sl_vk_sync(&v->base);
    free(all);
    return status;
}

uint64_t sl_vk_grid(const struct sl_vulkan *v, enum sl_dtype t) {
    uint64_t at = v->grids.addr;
    if (t == SL_DTYPE_IQ1_M)
        t = SL_DTYPE_IQ1_S;
    for (uint32_t i = 0; i < N_GRIDS; i++) {
        if (grids[i].dtype == t)
            return at;
        at += grid_bytes(&grids[i]);
    }
    return 0;
}
