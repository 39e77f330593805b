/* One matrix for each head, times each row's part of that head: what latent attention takes from
 * its queries and outputs to the latents and back. */
#include "backends/kernels/vec.cuh"

/* Elements behind what is multiplied, which are kept as they are. */
__device__ __forceinline__ void keep(const struct sl_karg_head &a, uint32_t head, uint32_t tok,
                                     uint32_t n) {
    for (uint32_t i = threadIdx.x; i < n * a.n_keep; i += blockDim.x) {
        size_t at = (size_t)(tok + i / a.n_keep) * a.n_heads + head;
        a.y[at * a.stride_y + a.n_out + i % a.n_keep] =
            a.x[at * a.stride_x + a.n_in + i % a.n_keep];
    }
}

/* Rows of n_in weights, as matvec does them: the same sums. */
template <int T> __device__ __forceinline__ void head_matmul(const struct sl_karg_head &a) {
    using vec = sl_vec<T>;
    extern __shared__ uint4 shared[];
    __shared__ float carry[SL_VEC_MAX_TOK][32];
    uint32_t head = blockIdx.y, tok = blockIdx.z * a.tok_per_block;
    uint32_t n = min(a.tok_per_block, a.n_tok - tok);
    uint32_t begin = blockIdx.x * a.rows_per_block, end = min(begin + a.rows_per_block, a.n_out);
    uint32_t g0 = begin / vec::GROUP, g1 = (end + vec::GROUP - 1) / vec::GROUP;
    uint32_t row_bytes = vec::row_bytes(a.n_in);
    const uint8_t *w = (const uint8_t *)a.w + head * a.head_bytes;
    auto row = [&](uint32_t group, uint32_t r) {
        return w + (size_t)min(group * vec::GROUP + r, a.n_out - 1) * row_bytes;
    };
    vec v(a.n_in);
    typename vec::item it;
    v.fetch_first(it, g0, g1, row);
    sl_grid_begin();
    const float *x = a.x + ((size_t)tok * a.n_heads + head) * a.stride_x;
    size_t next_x = (size_t)a.n_heads * a.stride_x, next_y = (size_t)a.n_heads * a.stride_y;
    v.load([&](uint32_t t) { return x + t * next_x; }, n, shared);
    if (blockIdx.x == 0)
        keep(a, head, tok, n);
    __syncthreads();
    float *y = a.y + ((size_t)tok * a.n_heads + head) * a.stride_y;
    v.run(
        g0, g1, n, carry, it, row, [](uint32_t, uint32_t t) { return t; },
        [&](uint32_t group, uint32_t t, uint32_t r, float total, bool valid) {
            uint32_t o = group * vec::GROUP + r;
            if (valid && o < end)
                y[t * next_y + o] = total;
        });
}

/* n_in rows of n_out weights: a thread takes a unit of 32 outputs (of one, for float types) through
 * all rows in order. */
template <int T> __device__ __forceinline__ void head_turned(const struct sl_karg_head &a) {
    using quant = sl_quant<T>;
    constexpr uint32_t UNITS = quant::ELEMS / 32;
    uint32_t head = blockIdx.y, tok = blockIdx.z;
    uint32_t n = blockIdx.x * blockDim.x + threadIdx.x;
    if (blockIdx.x == 0)
        keep(a, head, tok, 1);
    if (n >= a.n_out / 32)
        return;
    size_t row_bytes = (size_t)(a.n_out / quant::ELEMS) * quant::BYTES;
    const uint8_t *b = (const uint8_t *)a.w + head * a.head_bytes + n / UNITS * quant::BYTES;
    const float *x = a.x + ((size_t)tok * a.n_heads + head) * a.stride_x;
    float *y = a.y + ((size_t)tok * a.n_heads + head) * a.stride_y + n / UNITS * quant::ELEMS;
    float sum[2][16];
    struct sl_unit u;
#pragma unroll
    for (int j = 0; j < 32; j++)
        sum[j / 16][j % 16] = 0;
    for (uint32_t i = 0; i < a.n_in; i++, b += row_bytes) {
        float d, dmin, by = x[i];
        quant::unit(b, (int)(n % UNITS), u);
        quant::scales(b, d, dmin);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float scale = d * (float)(half ? u.scale_b : u.scale_a);
            float min = dmin * (float)(half ? u.min_b : u.min_a);
#pragma unroll
            for (int j = 0; j < 16; j++) {
                uint32_t q = half ? u.b[j / 4] : u.a[j / 4];
                float w = scale * (float)(int8_t)(q >> (j % 4 * 8));
                if (quant::HAS_MIN)
                    w = w - min;
                sum[half][j] = fmaf(w, by, sum[half][j]);
            }
        }
    }
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int j = 0; j < 16; j++)
            y[(half ? u.group_b : u.group_a) * 16 + j] = sum[half][j];
}
template <int T> __device__ __forceinline__ void head_turned_float(const struct sl_karg_head &a) {
    uint32_t head = blockIdx.y, tok = blockIdx.z;
    uint32_t o = blockIdx.x * blockDim.x + threadIdx.x;
    if (blockIdx.x == 0)
        keep(a, head, tok, 1);
    if (o >= a.n_out)
        return;
    const uint8_t *w = (const uint8_t *)a.w + head * a.head_bytes;
    const float *x = a.x + ((size_t)tok * a.n_heads + head) * a.stride_x;
    float sum = 0;
#pragma unroll 4
    for (uint32_t i = 0; i < a.n_in; i++)
        sum = fmaf(sl_load_float<T>(w, (size_t)i * a.n_out + o), x[i], sum);
    a.y[((size_t)tok * a.n_heads + head) * a.stride_y + o] = sum;
}

#define KERNEL(NAME)                                                                               \
    extern "C" __global__ void __launch_bounds__(SL_VEC_THREADS, SL_MATVEC_BLOCKS)                 \
        sl_k_head_matmul_##NAME(SL_KERNEL_ARGS(sl_karg_head, a)) {                                 \
        head_matmul<SL_DTYPE_##NAME>(a);                                                           \
    }
#define TURNED(NAME, FORM)                                                                         \
    extern "C" __global__ void __launch_bounds__(SL_HEAD_TURNED_THREADS)                           \
        sl_k_head_turned_##NAME(SL_KERNEL_ARGS(sl_karg_head, a)) {                                 \
        sl_grid_begin();                                                                           \
        FORM<SL_DTYPE_##NAME>(a);                                                                  \
    }
#define QUANT(NAME) KERNEL(NAME) TURNED(NAME, head_turned)
#define FLOAT(NAME) KERNEL(NAME) TURNED(NAME, head_turned_float)
SL_QUANT_TYPES(QUANT)
SL_FLOAT_TYPES(FLOAT)
