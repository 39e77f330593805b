/* Blocks of positions that become one row each. A block of threads has a row of the step: it keeps
 * what later rows will want, and makes the block's row where its own completes one. What rows of
 * the same step have kept it takes from where they had it, so that no row waits for another. Bits
 * are those of the CPU's definition. */
#include "backends/kernels/blocks.cuh"
#include "backends/kernels/compress.h"
#include "backends/kernels/quantize.cuh"

#define PAGE    64u
#define AT_ONCE 64u /* positions whose places are in shared memory */

/* Where a position's values and gates are; ape: what is still to be added to the gates, or NULL. */
struct source {
    const float *kv, *gate, *ape;
};

struct row {
    const struct sl_karg_compress &a;
    uint32_t t, seq, len, width;

    __device__ __forceinline__ row(const struct sl_karg_compress &args, uint32_t of)
        : a(args), t(of), seq(args.row_seq[of]), len(args.row_len[of]),
          width(args.overlap ? 2 * args.n : args.n) {}

    __device__ __forceinline__ float *kept(size_t page, uint32_t at) const {
        return (float *)((uint8_t *)a.kept + page * a.kept_bytes) + (size_t)at * 2 * width;
    }
    __device__ __forceinline__ const float *place(uint32_t pos) const {
        return a.ape + (size_t)(pos % a.of.ratio) * width;
    }

    __device__ __forceinline__ void keep() const {
        float *to = kept(a.slot[t] / PAGE, a.slot[t] % PAGE);
        const float *kv = a.kv + (size_t)t * width, *gate = a.gate + (size_t)t * width,
                    *ape = place(len - 1);
        for (uint32_t i = threadIdx.x; i < width; i += blockDim.x) {
            to[i] = kv[i];
            to[width + i] = gate[i] + ape[i];
        }
    }

    /* Of position pos, which is not behind the row's; first: its elements from this one on. */
    __device__ __forceinline__ struct source find(uint32_t pos, uint32_t first) const {
        uint32_t back = len - 1 - pos;
        struct source s;
        if (back <= t && a.row_seq[t - back] == seq) { /* rows of a sequence are adjacent */
            size_t at = (size_t)(t - back) * width + first;
            s.kv = a.kv + at, s.gate = a.gate + at, s.ape = place(pos) + first;
            return s;
        }
        uint32_t page = a.kept_table[(size_t)seq * a.max_pages + pos / PAGE];
        s.kv = kept(page, pos % PAGE) + first, s.gate = s.kv + width, s.ape = NULL;
        return s;
    }
};

/* Calls use(i, gate, value) for element c of the positions that the row's block is made of, in
 * their order; all threads come. */
template <class USE>
__device__ __forceinline__ void walk(const struct row &r, uint32_t c, struct source *places,
                                     USE use) {
    const struct sl_karg_compress &a = r.a;
    uint32_t own = r.len - a.of.ratio, n_back = a.overlap ? 2 * a.of.ratio : a.of.ratio;
    for (uint32_t p = r.len > n_back ? r.len - n_back : 0; p < r.len; p += AT_ONCE) {
        uint32_t n = min(AT_ONCE, r.len - p);
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
            places[i] = r.find(p + i, a.overlap && p + i >= own ? a.n : 0);
        __syncthreads();
        if (c >= a.n)
            continue;
#pragma unroll 4
        for (uint32_t i = 0; i < n; i++) {
            struct source s = places[i];
            use(s.ape ? s.gate[c] + s.ape[c] : s.gate[c], s.kv[c]);
        }
    }
}

/* The row's block to v. */
__device__ __forceinline__ void pool(const struct row &r, struct source *places, float *v) {
    for (uint32_t first = 0; first < r.a.n; first += blockDim.x) {
        uint32_t c = first + threadIdx.x;
        float max = -INFINITY, sum = 0, y = 0;
        walk(r, c, places, [&](float gate, float) { max = gate > max ? gate : max; });
        walk(r, c, places, [&](float gate, float value) {
            float e = sl_dev_exp(gate - max);
            sum += e;
            y = fmaf(e, value, y);
        });
        if (c < r.a.n)
            v[c] = y / sum;
    }
    __syncthreads();
}

/* As sl_op_rms_norm on the CPU: 16 sums of every 16th, then of the halves. */
__device__ __forceinline__ void norm(const struct sl_karg_compress &a, float *inverse, float *v) {
    uint32_t lane = threadIdx.x;
    if (lane < SL_WARP) {
        float part = 0;
        for (uint32_t i = lane; lane < 16 && i < a.n; i += 16)
            part = fmaf(v[i], v[i], part);
#pragma unroll
        for (int m = 8; m; m /= 2)
            part += sl_shfl_xor(part, m);
        if (lane == 0)
            *inverse = 1.0f / sqrtf(part / (float)a.n + a.eps);
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < a.n; i += blockDim.x)
        v[i] = v[i] * *inverse * a.norm[i];
    __syncthreads();
}

__device__ __forceinline__ void rotate(const struct sl_karg_compress &a, uint32_t pos, float *x) {
    for (uint32_t i = threadIdx.x; i < a.n_freq; i += blockDim.x) {
        double s, c;
        sincos((double)pos * (double)a.inv_freq[i], &s, &c);
        float by_cos = (float)(c * (double)a.mscale), by_sin = (float)(s * (double)a.mscale);
        float u = x[2 * i], w = x[2 * i + 1];
        x[2 * i] = fmaf(u, by_cos, -(w * by_sin));
        x[2 * i + 1] = fmaf(u, by_sin, w * by_cos);
    }
    __syncthreads();
}

/* Hadamard matrices of `spread` elements, one after another. */
__device__ __forceinline__ void spread(const struct sl_karg_compress &a, float *v) {
    for (uint32_t step = 1; step < a.spread; step *= 2) {
        for (uint32_t p = threadIdx.x; p < a.n / 2; p += blockDim.x) {
            uint32_t i = (p & ~(step - 1)) * 2 + (p & (step - 1));
            float u = v[i], w = v[i + step];
            v[i] = u + w;
            v[i + step] = u - w;
        }
        __syncthreads();
    }
    for (uint32_t i = threadIdx.x; i < a.n; i += blockDim.x)
        v[i] *= a.by;
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(SL_COMPRESS_MAX_THREADS)
    sl_k_compress(SL_KERNEL_ARGS(sl_karg_compress, a)) {
    extern __shared__ float shared[];
    __shared__ struct source places[AT_ONCE];
    __shared__ float inverse;
    sl_grid_begin();
    float *v = shared;
    struct row r(a, blockIdx.x);
    r.keep();
    if (r.len % a.of.ratio)
        return;
    pool(r, places, v);
    norm(a, &inverse, v);
    uint32_t block = r.len / a.of.ratio - 1, at, page = sl_block_at(a.of, block, at);
    rotate(a, block * a.of.ratio, v + a.n - 2 * a.n_freq);
    if (a.spread)
        spread(a, v);
    uint32_t row_bytes = a.q8 ? a.n / 32 * 34 : a.n * 2;
    uint8_t *out =
        (uint8_t *)a.out + a.out_table[(size_t)r.seq * a.max_pages + page] * a.out_page_bytes;
    sl_kv_write_head(v, out + (size_t)at * row_bytes, a.n, a.q8, threadIdx.x, blockDim.x);
}
