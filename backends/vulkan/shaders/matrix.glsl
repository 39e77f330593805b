/* Cooperative matrices of a subgroup of 32: int8 [16, MAT_K] times [MAT_K, 16], exact in int32, and
 * binary16 [16, 16] times [16, 16] in floats. Written for GL_NV_cooperative_matrix; spirv.c makes
 * VK_KHR_cooperative_matrix's of it.
 *
 * Where DOUBLES is defined they are emulated: no such device has them, and so Mesa's on the CPU
 * tests all but the instructions. */
#ifndef DOUBLES
#extension GL_NV_cooperative_matrix : require
#extension GL_NV_integer_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
/* Numbers of their own, though equal: so the types of the three matrices of a product differ. */
layout(constant_id = 1) const uint MAT_M = 16u;
layout(constant_id = 2) const uint MAT_N = 16u;
layout(constant_id = 3) const uint MAT_K = 32u;
layout(constant_id = 4) const uint MAT_K16 = 16u;
#define mat_a icoopmatNV<8, gl_ScopeSubgroup, MAT_M, MAT_K>
#define mat_b icoopmatNV<8, gl_ScopeSubgroup, MAT_K, MAT_N>
#define mat_c icoopmatNV<32, gl_ScopeSubgroup, MAT_M, MAT_N>
#define half_a fcoopmatNV<16, gl_ScopeSubgroup, MAT_M, MAT_K16>
#define half_b fcoopmatNV<16, gl_ScopeSubgroup, MAT_K16, MAT_N>
#define float_c fcoopmatNV<32, gl_ScopeSubgroup, MAT_M, MAT_N>
#define SUBGROUP gl_SubgroupID
/* From an array of uvec4 in shared memory: the first element, and from row to row (of b: from column
 * to column). */
#define LOAD_A(m, array, at, stride) coopMatLoadNV(m, array, at, stride, false)
#define LOAD_B(m, array, at, stride) coopMatLoadNV(m, array, at, stride, true)
#define LOAD_C(m, array, at, stride) coopMatLoadNV(m, array, at, stride, false)
#define LOAD_HALF_A(m, array, at, stride) coopMatLoadNV(m, array, at, stride, false)
#define LOAD_HALF_COLUMNS(m, array, at, stride) coopMatLoadNV(m, array, at, stride, true)
#define LOAD_HALF_ROWS(m, array, at, stride) coopMatLoadNV(m, array, at, stride, false)
#define STORE_FLOATS(m, array, at, stride) coopMatStoreNV(m, array, at, stride, false)
#define MUL_ADD(a, b, c) coopMatMulAddNV(a, b, c)
#define ELEMENT(m, e) m[e]
#define UNROLL [[unroll]]
#else
#include "dot4.glsl"
#ifndef MAT_K
#define MAT_K 32u
#endif
#define UNITS_K (MAT_K / 16u)
#define SUBGROUP (gl_LocalInvocationID.x / 32u)
/* Lane 2 r + h of a subgroup has row r of c, its columns 8 h to 8 h + 7. */
struct mat_a { ivec4 k[UNITS_K]; };
struct mat_b { ivec4 k[8u * UNITS_K]; };
struct mat_c { int v[8]; };
#define LOAD_A(m, array, at, stride)                                                              \
    [[unroll]] for (uint j_ = 0; j_ < UNITS_K; j_++)                                              \
        m.k[j_] = ivec4(array[(at) + gl_LocalInvocationID.x % 32u / 2u * (stride) + j_])
#define LOAD_B(m, array, at, stride)                                                              \
    [[unroll]] for (uint j_ = 0; j_ < 8u * UNITS_K; j_++)                                         \
        m.k[j_] = ivec4(array[(at) + (gl_LocalInvocationID.x % 2u * 8u + j_ / UNITS_K) * (stride) + \
                              j_ % UNITS_K])
#define LOAD_C(m, array, at, stride)                                                              \
    [[unroll]] for (uint j_ = 0; j_ < 8u; j_++)                                                           \
        m.v[j_] = int(array[(at) + gl_LocalInvocationID.x % 32u / 2u * (stride) +                  \
                            gl_LocalInvocationID.x % 2u * 2u + j_ / 4u][j_ % 4u])
#define ELEMENT(m, e) m.v[e]
/* Of a loop over matrices: an array of them must not be indexed by a variable. Emulated ones would
 * take the compiler minutes; and loops within them must be few, since Mesa's driver ends a shader's
 * loops at 65,535 rounds, all taken together. */
#define UNROLL [[dont_unroll]]
struct half_a { float k[16]; };
struct half_b { float v[16][8]; };
struct float_c { float v[8]; };
/* Halves of 16 bytes. */
void put_halves_(uvec4 w, out float to[8]) {
    [[unroll]] for (uint i = 0; i < 8u; i++)
        to[i] = unpackHalf2x16(w[i / 2u])[i % 2u];
}
#define LOAD_HALF_A(m, array, at, stride)                                                         \
    [[unroll]] for (uint j_ = 0; j_ < 2u; j_++) {                                                 \
        float to_[8];                                                                             \
        put_halves_(array[(at) + gl_LocalInvocationID.x % 32u / 2u * (stride) + j_], to_);         \
        [[unroll]] for (uint i_ = 0; i_ < 8u; i_++)                                               \
            m.k[8u * j_ + i_] = to_[i_];                                                          \
    }
#define LOAD_HALF_COLUMNS(m, array, at, stride)                                                   \
    [[unroll]] for (uint j_ = 0; j_ < 16u; j_++) {                                                \
        float to_[8];                                                                             \
        put_halves_(array[(at) + (gl_LocalInvocationID.x % 2u * 8u + j_ / 2u) * (stride) + j_ % 2u], \
                    to_);                                                                         \
        [[unroll]] for (uint i_ = 0; i_ < 8u; i_++)                                               \
            m.v[j_ % 2u * 8u + i_][j_ / 2u] = to_[i_];                                            \
    }
#define LOAD_HALF_ROWS(m, array, at, stride)                                                      \
    [[unroll]] for (uint j_ = 0; j_ < 16u; j_++) {                                                \
        float to_[8];                                                                             \
        put_halves_(array[(at) + j_ * (stride) + gl_LocalInvocationID.x % 2u], to_);               \
        m.v[j_] = to_;                                                                            \
    }
#define STORE_FLOATS(m, array, at, stride)                                                        \
    [[unroll]] for (uint j_ = 0; j_ < 8u; j_++)                                                   \
        array[(at) + gl_LocalInvocationID.x % 32u / 2u * (stride) +                                \
              gl_LocalInvocationID.x % 2u * 2u + j_ / 4u][j_ % 4u] = floatBitsToUint(m.v[j_])
float_c MUL_ADD(half_a a, half_b b, float_c c) {
    [[unroll]] for (uint k = 0; k < 16u; k++)
        [[unroll]] for (uint j = 0; j < 8u; j++)
            c.v[j] += a.k[k] * b.v[k][j];
    return c;
}
mat_c MUL_ADD(mat_a a, mat_b b, mat_c c) {
    [[unroll]] for (uint j = 0; j < 8u; j++)
        [[unroll]] for (uint k = 0; k < UNITS_K; k++)
            [[unroll]] for (uint i = 0; i < 4u; i++)
                c.v[j] += dot4(a.k[k][i], b.k[UNITS_K * j + k][i]);
    return c;
}
#endif
/* Elements of c that an invocation has. */
#define MAT_ELEMENTS 8u
mat_c no_sum() {
#ifdef DOUBLES
    return mat_c(int[8](0, 0, 0, 0, 0, 0, 0, 0));
#else
    return mat_c(0);
#endif
}
float_c no_floats() {
#ifdef DOUBLES
    return float_c(float[8](0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0));
#else
    return float_c(0.0);
#endif
}
