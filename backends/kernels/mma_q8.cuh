/* A few input rows (at most eight) times Q8_0 weights on the integer tensor cores: what mma_vec.cuh
 * is for the types of 256 elements. The bits are those of vec.cuh and gemm.cuh: a block of 32 is
 * one mma, exact, and blocks join the float sum one after the other in ascending order.
 *
 * An item is eight blocks, 272 bytes, of SL_MMA_TILE weight rows, which begin on 16 bytes: it lies
 * in shared memory as in the file. A warp copies its next items while it multiplies one. Eight
 * joins an item are much, and so, where there are tiles for all warps, each has tiles of its own
 * and joins right away (2^0 warps share a tile). Else 2^s warps share one, take its items in turn,
 * and leave what they come to in the items' own bytes for the one that joins them all.
 *
 * Lane l has rows l / 4 and l / 4 + 8 of the tile and columns (input rows) 2 * (l % 4) and + 1, as
 * sl_mma_k32 gives them. Columns that there are no rows for are computed from what lies there and
 * never looked at. */
#ifndef SL_BACKENDS_KERNELS_MMA_Q8_CUH
#define SL_BACKENDS_KERNELS_MMA_Q8_CUH

#include "backends/kernels/mma_walk.cuh"

/* Input rows in shared memory, quantised for types of 32 elements. Rows of q lie 16 bytes more than
 * a multiple of 128 apart, so that ldmatrix meets every bank once. */
struct sl_mma_in32 {
    float *d;  /* [n_in / 64][8 rows][2] */
    int8_t *q; /* [rows][stride] */
    uint32_t stride, n_in;

    __device__ __forceinline__ sl_mma_in32(void *shared, uint32_t n)
        : stride(n + SL_MMA_IN32_PAD), n_in(n) {
        d = (float *)shared;
        q = (int8_t *)shared + n;
    }
    /* n rows from `row` on, by the whole block. Ends with a wait for this thread's copies; then a
     * barrier. */
    __device__ __forceinline__ void copy(const struct sl_karg_qx &from, size_t row,
                                         uint32_t n) const {
        for (uint32_t col = 0; col < n; col++) {
            const int8_t *of = from.q + (row + col) * n_in;
            for (uint32_t i = threadIdx.x; i < n_in / 16; i += SL_MATVEC_WARPS * SL_WARP)
                sl_copy16(q + col * stride + i * 16, of + i * 16, true);
            const float2 *scales = (const float2 *)(from.d + (row + col) * (n_in / 32));
            for (uint32_t i = threadIdx.x; i < n_in / 64; i += SL_MATVEC_WARPS * SL_WARP)
                *(float2 *)(d + (i * 8 + col) * 2) = scales[i];
        }
        sl_copy_wait();
    }
};

struct sl_mma_q8 {
    static constexpr uint32_t GROUP = SL_MMA_STRIDE_Q8_0; /* bytes of eight blocks */
    static constexpr uint32_t SLOT = SL_MMA_TILE * GROUP, PIECES = GROUP / 16;
    static constexpr uint32_t COPIES =
        (SLOT / 16 + SL_WARP - 1) / SL_WARP; /* of 16 bytes, a lane */
    /* What waits for its turn: sums [8 blocks][32 lanes][4] f32, scales [rows][8 blocks] f16. */
    static constexpr uint32_t SCALES = 8 * SL_WARP * 16;
    static_assert(GROUP % 16 == 0 && SCALES + SL_MMA_TILE * 16 <= SLOT, "terms wait in a slot");

    uint8_t *ring; /* this warp's items */
    uint32_t ring_at;
    const uint8_t *w;             /* the matrix */
    uint32_t from[COPIES];        /* where this lane's pieces of an item are */
    uint32_t n_groups, row_bytes; /* of a weight row */
    uint32_t n_out, tile, end;    /* this warp's tiles: [tile, end), every (WARPS >> s)-th */
    uint32_t s, share, team;      /* 2^s warps share a tile */
    uint32_t slots, ring_bytes;   /* of a warp */

    /* The first row of tile t: the last tile reaches back to have all its rows. */
    __device__ __forceinline__ uint32_t first_row(uint32_t t) const {
        return min(t * SL_MMA_TILE, n_out - SL_MMA_TILE);
    }
    /* Tiles [first_tile, first_tile + n_tiles) as far as the n_rows >= SL_MMA_TILE rows of
     * `weights` go, with n elements each. The first copies are on their way then. */
    __device__ __forceinline__ void begin(void *shared, uint32_t n_slots, uint32_t log_split,
                                          const uint8_t *weights, uint32_t n, uint32_t n_rows,
                                          uint32_t first_tile, uint32_t n_tiles) {
        uint32_t warp = threadIdx.x / SL_WARP, lane = threadIdx.x % SL_WARP;
        slots = n_slots, ring_bytes = slots * SLOT;
        ring = (uint8_t *)shared + warp * ring_bytes;
        ring_at = sl_shared_address(ring);
        w = weights, n_groups = n / 256, row_bytes = n_groups * GROUP, n_out = n_rows;
        s = log_split, share = warp & ((1u << s) - 1), team = warp >> s;
        tile = first_tile + team;
        end = min(first_tile + n_tiles, (n_out + SL_MMA_TILE - 1) / SL_MMA_TILE);
#pragma unroll
        for (uint32_t j = 0; j < COPIES; j++) {
            uint32_t i = j * SL_WARP + lane;
            from[j] = i / PIECES * row_bytes + i % PIECES * 16;
        }
        fetch(tile, 0, 0);
        bool one = n_groups <= 1u << s; /* a tile is one step */
        fetch(one ? tile + (SL_MATVEC_WARPS >> s) : tile, one ? 0 : 1, 1);
        static_assert(SL_MMA_AHEAD == 2, "what is on its way then");
    }
    /* Group `step` of this warp's in tile t. */
    __device__ __forceinline__ void fetch(uint32_t t, uint32_t step, uint32_t slot) const {
        uint32_t g = (step << s) + share, lane = threadIdx.x % SL_WARP;
        if (t < end && g < n_groups) {
            uintptr_t p = (uintptr_t)w + (size_t)first_row(t) * row_bytes + g * GROUP;
            uint32_t to = ring_at + slot * SLOT + lane * 16;
#pragma unroll
            for (uint32_t j = 0; j < COPIES; j++)
                if ((j + 1) * SL_WARP <= SLOT / 16 || lane < SLOT / 16 % SL_WARP)
                    sl_copy16_at(to + j * 512, p + from[j]);
        }
        sl_copy_commit();
    }
    /* Two neighbouring blocks, the pair-th of an item: block 0 begins 2 bytes into a word with its
     * elements, block 1 with a word. */
    struct pair {
        int sum[2][4];
        float d[2][2]; /* of block, row */
    };
    __device__ __forceinline__ static void multiply(const uint8_t *slot, const int8_t *q,
                                                    uint32_t i, struct pair &out) {
        uint32_t lane = threadIdx.x % SL_WARP, part = lane % 4, a[2][4], b[4];
        sl_ldmatrix4(b, q + i * 64);
#pragma unroll
        for (uint32_t r = 0; r < 2; r++) {
            const uint32_t *v = (const uint32_t *)(slot + (lane / 4 + r * 8) * GROUP) + i * 17;
#pragma unroll
            for (uint32_t k = 0; k < 2; k++) { /* elements 16 k + 4 part .. + 3 */
                a[0][k * 2 + r] = sl_perm(v[part + k * 4], v[part + k * 4 + 1], 0x5432);
                a[1][k * 2 + r] = v[9 + part + k * 4];
            }
            out.d[0][r] = sl_f16(v[0] & 0xffff), out.d[1][r] = sl_f16(v[8] >> 16);
        }
        const uint32_t low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
        sl_mma_k32(out.sum[0], a[0], low);
        sl_mma_k32(out.sum[1], a[1], high);
    }
    /* Where this lane gives ldmatrix group g of the input: rows as columns, 16 elements each. */
    __device__ __forceinline__ static const int8_t *input(const struct sl_mma_in32 &in, uint32_t n,
                                                          uint32_t g) {
        uint32_t lane = threadIdx.x % SL_WARP;
        return in.q + min(lane % 8, n - 1) * in.stride + g * 256 + lane / 8 * 16;
    }
    /* Scales of this lane's columns for pair i of group g: column 0's of both blocks, column 1's.
     */
    __device__ __forceinline__ static float4 scales(const struct sl_mma_in32 &in, uint32_t g,
                                                    uint32_t i) {
        return *(const float4 *)(in.d + (g * 4 + i) * 16 + threadIdx.x % 4 * 4);
    }
    /* The definition's join of one block. */
    __device__ __forceinline__ static void join(const float (&dw)[2], float dx0, float dx1,
                                                const float (&sum)[4], float (&total)[4]) {
#pragma unroll
        for (int c = 0; c < 4; c++)
            total[c] = fmaf(dw[c / 2] * (c % 2 ? dx1 : dx0), sum[c], total[c]);
    }
    /* An item, joined at once. */
    __device__ __forceinline__ static void whole(const uint8_t *slot, const struct sl_mma_in32 &in,
                                                 uint32_t n, uint32_t g, float (&total)[4]) {
        const int8_t *q = input(in, n, g);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            struct pair v;
            multiply(slot, q, i, v);
            float4 dx = scales(in, g, i);
#pragma unroll
            for (int b = 0; b < 2; b++) {
                const float sum[4] = {(float)v.sum[b][0], (float)v.sum[b][1], (float)v.sum[b][2],
                                      (float)v.sum[b][3]};
                join(v.d[b], b ? dx.y : dx.x, b ? dx.w : dx.z, sum, total);
            }
        }
    }
    /* An item, to its slot. */
    __device__ __forceinline__ static void leave(uint8_t *slot, const struct sl_mma_in32 &in,
                                                 uint32_t n, uint32_t g) {
        uint32_t lane = threadIdx.x % SL_WARP, d[4];
        const int8_t *q = input(in, n, g);
        struct pair v[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            multiply(slot, q, i, v[i]);
            d[i] = *(const uint16_t *)(slot + lane / 2 * GROUP + (lane % 2 * 4 + i) * 34);
        }
        __syncwarp();
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) {
            const int(&sum)[4] = v[i / 2].sum[i % 2];
            *(float4 *)(slot + (i * SL_WARP + lane) * 16) =
                make_float4((float)sum[0], (float)sum[1], (float)sum[2], (float)sum[3]);
        }
        *(uint2 *)(slot + SCALES + lane * 8) = make_uint2(d[0] | d[1] << 16, d[2] | d[3] << 16);
    }
    /* Group g, which another warp has left. */
    __device__ __forceinline__ static void take(const uint8_t *slot, const struct sl_mma_in32 &in,
                                                uint32_t g, float (&total)[4]) {
        uint32_t lane = threadIdx.x % SL_WARP, d[2][4];
#pragma unroll
        for (uint32_t r = 0; r < 2; r++) {
            uint4 v = *(const uint4 *)(slot + SCALES + (lane / 4 + r * 8) * 16);
            d[r][0] = v.x, d[r][1] = v.y, d[r][2] = v.z, d[r][3] = v.w;
        }
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) {
            float4 v = *(const float4 *)(slot + (i * SL_WARP + lane) * 16),
                   dx = scales(in, g, i / 2);
            const float sum[4] = {v.x, v.y, v.z, v.w};
            const float dw[2] = {sl_f16(d[0][i / 2] >> (i % 2 * 16) & 0xffff),
                                 sl_f16(d[1][i / 2] >> (i % 2 * 16) & 0xffff)};
            join(dw, i % 2 ? dx.y : dx.x, i % 2 ? dx.w : dx.z, sum, total);
        }
    }
    /* All that begin() named; input rows in.q[0..n), 1 <= n <= 8. out(first row, rows of the tile
     * before that are another's, total) by whole warps. */
    template <bool SHARED, class OUT>
    __device__ __forceinline__ void run(const struct sl_mma_in32 &in, uint32_t n, OUT out) {
        struct sl_mma_walk walk(n_groups, s, tile, slots);
        float total[4] = {0, 0, 0, 0};
        while (walk.tile < end) {
            uint32_t g = (walk.step << s) + share;
            uint8_t *mine = ring + walk.slot * SLOT;
            sl_copy_wait_but_one();
            __syncwarp();
            if (!SHARED)
                whole(mine, in, n, g, total);
            else if (g < n_groups)
                leave(mine, in, n, g);
            if (SHARED)
                sl_meet(1 + team, SL_WARP << s);
            else
                __syncwarp();
            /* Into this item's slot, or, where terms wait in it, into that of the item before: who
             * joined those has met the others since. */
            fetch(walk.ahead_tile, walk.ahead_step, walk.ahead_slot);
            if (SHARED && share == walk.turn) {
                const uint8_t *first = mine - share * ring_bytes;
                uint32_t left = min(n_groups - (walk.step << s), 1u << s);
                for (uint32_t i = 0; i < left; i++)
                    take(first + i * ring_bytes, in, (walk.step << s) + i, total);
            }
            if (!walk.next())
                continue;
            if (!SHARED || share == walk.turn) {
                uint32_t row = first_row(walk.tile);
                out(row, walk.tile * SL_MMA_TILE - row, total);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    total[i] = 0;
            }
            walk.next_tile();
        }
    }
};

#endif
