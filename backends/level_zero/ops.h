/* The ops that have kernels. */
#ifndef SL_BACKENDS_LEVEL_ZERO_OPS_H
#define SL_BACKENDS_LEVEL_ZERO_OPS_H

#include "backends/level_zero/level_zero_internal.h"

/* Of caps what follows from the kernels. */
void sl_lz_ops_caps(struct sl_device_caps *caps);
uint64_t sl_lz_scratch_bytes(const struct sl_device *d, const struct sl_device_limits *limits);
bool sl_lz_supports(const struct sl_device *d, const struct sl_op_need *need);

_Static_assert(SL_LZ_QX_BYTES == SL_QX_BYTES, "the scratch of products");

/* Groups of a kernel that goes element by element. */
static inline uint64_t sl_lz_elems(uint64_t n) {
    return sl_div_up(n, SL_LZ_ELEMS);
}

/* Which kernel a product with quantised weights has, and the rows of weights and of input of a
 * group of it. */
struct sl_lz_product {
    enum sl_lz_kernel kernel;
    uint32_t rows, tok;
};
static inline struct sl_lz_product sl_lz_product(const struct sl_level_zero *z, enum sl_dtype t,
                                                 uint32_t n_tok, enum sl_lz_kernel by_float,
                                                 enum sl_lz_kernel plain, enum sl_lz_kernel one,
                                                 enum sl_lz_kernel few) {
    const bool together = z->info.subgroups && sl_lz_has_kernel(one, t);
    if (together && n_tok == 1)
        return (struct sl_lz_product){one, SL_LZ_ONE_ROWS, 1};
    return (struct sl_lz_product){sl_is_float(t) ? by_float
                                  : together     ? few
                                                 : plain,
                                  SL_LZ_PRODUCT_ROWS, SL_LZ_PRODUCT_TOK};
}

/* Quantises n_rows rows of n elements at x, stride elements apart, for products with type t. */
enum sl_status sl_lz_quantize(struct sl_level_zero *z, enum sl_dtype t, uint64_t x, uint32_t n_rows,
                              uint32_t n, uint32_t stride, uint64_t y) SL_MUST_CHECK;
/* y = act(gate) * up, element by element; enum sl_activation. */
enum sl_status sl_lz_glu(struct sl_level_zero *z, uint64_t gate, uint64_t up, uint64_t y,
                         uint64_t n, uint32_t activation, float limit) SL_MUST_CHECK;

#define SL_LZ_OPS(X)                                                                               \
    X(embed)                                                                                       \
    X(rms_norm)                                                                                    \
    X(matmul)                                                                                      \
    X(rope_table)                                                                                  \
    X(rope)                                                                                        \
    X(kv_write)                                                                                    \
    X(attention)                                                                                   \
    X(router)                                                                                      \
    X(moe)                                                                                         \
    X(moe_combine)                                                                                 \
    X(silu_mul)                                                                                    \
    X(gelu_mul)                                                                                    \
    X(limited_glu)                                                                                 \
    X(relu_squared)                                                                                \
    X(add_gated)                                                                                   \
    X(gather_rows)                                                                                 \
    X(block_max)                                                                                   \
    X(head_matmul)                                                                                 \
    X(latent_write)                                                                                \
    X(latent_attention)                                                                            \
    X(hadamard)                                                                                    \
    X(index_choose)                                                                                \
    X(chosen_attention)                                                                            \
    X(mul_sigmoid)                                                                                 \
    X(l2_norm)                                                                                     \
    X(conv_silu)                                                                                   \
    X(short_conv)                                                                                  \
    X(delta_rule)                                                                                  \
    X(channel_delta)                                                                               \
    X(state_scan)                                                                                  \
    X(channel_scan)                                                                                \
    X(scale)                                                                                       \
    X(gate_heads)                                                                                  \
    X(temper)                                                                                      \
    X(center)                                                                                      \
    X(clamp)                                                                                       \
    X(bias)                                                                                        \
    X(gelu_rows)

#define DECLARE(name)                                                                              \
    enum sl_status sl_lz_op_##name(struct sl_device *d, const struct sl_op_##name *a);
SL_LZ_OPS(DECLARE)
#undef DECLARE

#endif
