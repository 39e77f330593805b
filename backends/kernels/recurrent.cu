/* Convolutions over a sequence's last positions, and the small ops around recurrences. */
#include "backends/kernels/state.cuh"

extern "C" __global__ void __launch_bounds__(256)
    sl_k_recurrent_mul_sigmoid(SL_KERNEL_ARGS(sl_karg_mul_sigmoid, a)) {
    sl_grid_begin();
    size_t r = blockIdx.x;
    uint32_t i = blockIdx.y * blockDim.x + threadIdx.x;
    if (i < a.n)
        a.y[r * a.n + i] *= sl_dev_sigmoid(a.gate[r * a.stride_gate + i]);
}

extern "C" __global__ void __launch_bounds__(128)
    sl_k_recurrent_l2_norm(SL_KERNEL_ARGS(sl_karg_l2_norm, a)) {
    sl_grid_begin();
    uint32_t h = blockIdx.y * 4 + threadIdx.x / SL_WARP, lane = threadIdx.x % SL_WARP;
    if (h >= a.n_heads)
        return;
    float *x = a.x + (size_t)blockIdx.x * a.stride + (size_t)h * a.head_dim;
    float sum = 0;
    for (uint32_t i = lane; i < a.head_dim; i += SL_WARP)
        sum = fmaf(x[i], x[i], sum);
    float inv = 1.0f / sqrtf(sl_warp_sum(sum) + a.eps);
    for (uint32_t i = lane; i < a.head_dim; i += SL_WARP)
        x[i] *= inv;
}

/* ---- convolutions ---- */

/* What goes into the taps, and what becomes of their sum. GATED: the short convolution between two
 * gates, whose rows are b, c and v; else with a SiLU behind it. */
template <bool GATED>
__device__ __forceinline__ float conv_in(const struct sl_karg_conv &a, uint32_t t, uint32_t c) {
    if constexpr (GATED) {
        const float *x = a.x + (size_t)t * 3 * a.n + c;
        return x[0] * x[2 * (size_t)a.n];
    }
    return a.x[(size_t)t * a.n + c];
}
template <bool GATED>
__device__ __forceinline__ float conv_out(const struct sl_karg_conv &a, uint32_t t, uint32_t c,
                                          float sum) {
    if constexpr (GATED)
        return a.x[((size_t)t * 3 + 1) * a.n + c] * sum;
    return sl_dev_silu(sum);
}

/* A row's first n_taps - 1 successors need what the page before it holds, and that page may be the
 * one that is replaced. So all of them, and what is kept of them, are the block's that has a
 * sequence's first row in the call; nobody else reads a page. The first row in each page writes it,
 * with the inputs of the page's last row and those before. */
template <int MAX, bool GATED> __device__ __forceinline__ void conv(const struct sl_karg_conv &a) {
    const struct sl_karg_state &s = a.state;
    uint32_t c = blockIdx.x * SL_CONV_THREADS + threadIdx.x, n_old = a.n_taps - 1;
    uint32_t skip = MAX - a.n_taps; /* the last of MAX taps are used */
    uint32_t begin = blockIdx.y * a.rows, end = begin + a.rows, behind = 0;
    if (c >= a.n)
        return;
    float w[MAX], h[MAX], old[MAX], bias = a.bias ? a.bias[c] : 0.0f;
#pragma unroll
    for (int k = 0; k < MAX; k++) {
        w[k] = (uint32_t)k >= skip ? a.w[(size_t)c * a.n_taps + (uint32_t)k - skip] : 0;
        h[k] = old[k] = 0;
    }
    while (behind < n_old && sl_state_follows(s, begin - behind))
        behind++;
    bool has_h = false;
    for (uint32_t t = begin; t < s.n_tok; t++) {
        if (t > begin)
            behind = sl_state_follows(s, t) ? min(behind + 1, n_old) : 0;
        uint32_t owner = behind < n_old ? t - behind : t;
        if (owner >= end)
            break;
        if (owner < begin)
            continue;
        if (!behind) {
            const float *from = sl_state_before(s, t);
#pragma unroll
            for (int k = 0; k < MAX - 1; k++)
                if ((uint32_t)k >= skip)
                    h[k] = old[k] = from ? from[(size_t)((uint32_t)k - skip) * a.n + c] : 0;
        } else if (!has_h) {
#pragma unroll
            for (int k = 0; k < MAX - 1; k++)
                if ((uint32_t)k >= skip)
                    h[k] = conv_in<GATED>(a, t - n_old + (uint32_t)k - skip, c);
        }
        has_h = true;
        h[MAX - 1] = conv_in<GATED>(a, t, c);
        float sum = bias;
#pragma unroll
        for (int k = 0; k < MAX; k++)
            if ((uint32_t)k >= skip)
                sum = fmaf(h[k], w[k], sum);
        a.y[(size_t)t * a.n + c] = conv_out<GATED>(a, t, c, sum);
        if (!behind || s.slot[t] / SL_STATE_PAGE != s.slot[t - 1] / SL_STATE_PAGE) {
            float *to = sl_state_behind(s, t) + c;
            uint32_t last = sl_state_last_in_page(s, t), first = t - behind;
#pragma unroll
            for (int i = 0; i < MAX - 1; i++) {
                uint32_t back = MAX - 2 - (uint32_t)i;
                float v = 0;
                if ((uint32_t)i < skip)
                    continue;
#pragma unroll
                for (int k = i; k < MAX - 1; k++)
                    if ((uint32_t)k + back + first == MAX - 1 + last)
                        v = old[k];
                if (last >= first + back)
                    v = conv_in<GATED>(a, last - back, c);
                to[(size_t)((uint32_t)i - skip) * a.n] = v;
            }
        }
#pragma unroll
        for (int k = 0; k < MAX - 1; k++)
            h[k] = h[k + 1];
    }
}

#define CONV(NAME, GATED)                                                                          \
    extern "C" __global__ void __launch_bounds__(SL_CONV_THREADS)                                  \
        sl_k_recurrent_##NAME(SL_KERNEL_ARGS(sl_karg_conv, a)) {                                   \
        sl_grid_begin();                                                                           \
        if (a.n_taps <= 4)                                                                         \
            conv<4, GATED>(a);                                                                     \
        else                                                                                       \
            conv<8, GATED>(a);                                                                     \
    }
CONV(conv_silu, false)
CONV(short_conv, true)
