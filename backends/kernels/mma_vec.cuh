/* A few input rows (at most eight) times many weight rows on the integer tensor cores: what decode
 * is made of, for the types that most weights have. The bits are those of vec.cuh and gemm.cuh:
 * integer sums of a block of 256 are exact however they are made, and blocks join the float sum one
 * after the other in ascending order.
 *
 * A tile is SL_MMA_TILE weight rows; an item is one block of 256 of a tile. A warp copies an item
 * to shared memory as it lies in the file, two items ahead of the one that it multiplies, and
 * unpacks it to matrix fragments: lane l has rows l / 4 and l / 4 + 8 of the tile, and of each 16
 * or 32 elements the part l % 4. Input rows are the columns of the other matrix; columns that there
 * are no rows for are computed from what lies there and never looked at. With long rows several
 * warps share a tile.
 *
 * Results as in device.cuh's sl_mma_k32: total[0], total[1] are columns 2 * (l % 4) and + 1 of row
 * l / 4; total[2], total[3] the same of row l / 4 + 8.
 * Blocks may have any address; what is read stays within the aligned 16 bytes that hold their
 * bytes. */
#ifndef SL_BACKENDS_KERNELS_MMA_VEC_CUH
#define SL_BACKENDS_KERNELS_MMA_VEC_CUH

#include "backends/kernels/mma_frag.cuh"
#include "backends/kernels/mma_walk.cuh"

template <int T> struct sl_mma_vec {
    using frag = sl_frag<T>;
    static constexpr uint32_t SLOT = SL_MMA_TILE * frag::STRIDE, PIECES = frag::STRIDE / 16;
    /* A warp copies whole rows at a time: a lane a piece of 16 bytes. */
    static constexpr uint32_t AT_ONCE = SL_WARP / PIECES, HALF = SL_MMA_TILE / 2;
    /* The last piece that a block can reach into; does if it begins further in than MARGIN. */
    static constexpr uint32_t LAST = (frag::BYTES + 15) / 16, MARGIN = LAST * 16 - frag::BYTES;
    static_assert(frag::STRIDE % 16 == 0 && LAST < PIECES, "room for a block that lies anywhere");

    uint8_t *ring;                /* this warp's items */
    uint32_t ring_at;             /* the same, as the copies want it */
    uintptr_t src[2];             /* this lane's first pieces of the halves of tile 0, block 0 */
    uint32_t at[2];               /* low bits of the addresses of the lane's rows there */
    uint32_t n_blocks, tile, end; /* this warp's tiles: [tile, end), every (WARPS >> s)-th */
    uint32_t s, share, team;      /* 2^s warps share a tile */
    uint32_t slots, ring_bytes;   /* of a warp */
    uint32_t row_bytes;
    size_t tile_bytes;
    bool aligned, whole, edge; /* whole: the lane's piece is always copied; edge: it is the last */

    /* log2 of how many warps share a tile. */
    __device__ __forceinline__ static uint32_t split(uint32_t n_blocks) {
        return n_blocks >= 8 ? 3 : n_blocks >= 4 ? 2 : 0;
    }
    /* This warp's first tile where a block's warps begin with tile 0. */
    __device__ __forceinline__ static uint32_t first(uint32_t log_split) {
        return threadIdx.x / SL_WARP >> log_split;
    }
    /* What a block computes: n_tiles tiles of tile_rows weight rows each from first_tile on, as far
     * as the n_out rows go; a row has `blocks` blocks of 256. */
    struct tiles {
        uint32_t rows, n_blocks, begin, end, log_split;
        size_t row_bytes;

        __device__ __forceinline__ tiles(uint32_t blocks, uint32_t n_out, uint32_t tile_rows,
                                         uint32_t first_tile, uint32_t n_tiles) {
            rows = tile_rows, n_blocks = blocks;
            begin = first_tile, end = min(begin + n_tiles, n_out / rows);
            row_bytes = (size_t)n_blocks * frag::BYTES;
            log_split = split(n_blocks);
        }
    };
    /* Rows r and 8 + r of tile t are at w0 and w1 + (t * of.rows + r) * of.row_bytes. The first
     * copies are on their way then. */
    __device__ __forceinline__ void begin(void *shared, uint32_t n_slots, const uint8_t *w0,
                                          const uint8_t *w1, const struct tiles &of) {
        begin_warp(shared, n_slots, w0, w1, of.row_bytes * of.rows, of.n_blocks, of.log_split,
                   of.begin + first(of.log_split), of.end);
    }
    /* The same, with this warp's own tiles of `bytes` bytes. */
    __device__ __forceinline__ void begin_warp(void *shared, uint32_t n_slots, const uint8_t *w0,
                                               const uint8_t *w1, size_t bytes, uint32_t blocks,
                                               uint32_t log_split, uint32_t first_tile,
                                               uint32_t end_tile) {
        uint32_t warp = threadIdx.x / SL_WARP, lane = threadIdx.x % SL_WARP, piece = lane % PIECES;
        slots = n_slots, ring_bytes = slots * SLOT;
        ring = (uint8_t *)shared + warp * ring_bytes;
        ring_at = sl_shared_address(ring);
        n_blocks = blocks, s = log_split, tile_bytes = bytes, row_bytes = blocks * frag::BYTES;
        share = warp & ((1u << s) - 1), team = warp >> s;
        tile = first_tile, end = end_tile;
        size_t skip = (size_t)(lane / PIECES) * row_bytes + piece * 16;
        src[0] = (uintptr_t)w0 + skip, src[1] = (uintptr_t)w1 + skip;
        at[0] = (uint32_t)(uintptr_t)w0 + lane / 4 * row_bytes;
        at[1] = (uint32_t)(uintptr_t)w1 + lane / 4 * row_bytes;
        uint32_t low = (uint32_t)((uintptr_t)w0 | (uintptr_t)w1);
        aligned = frag::BYTES % 16 == 0 && low % 16 == 0;
        whole = lane < AT_ONCE * PIECES && piece < LAST;
        edge = lane < AT_ONCE * PIECES && piece == LAST && !aligned &&
               (frag::BYTES % 2 || MARGIN < 14 || low % 2);
        fetch(tile, 0, 0);
        bool one = blocks <= 1u << s; /* a tile is one step */
        fetch(one ? tile + (SL_MATVEC_WARPS >> s) : tile, one ? 0 : 1, 1);
        static_assert(SL_MMA_AHEAD == 2, "what is on its way then");
    }
    /* Block `step` of this warp's in tile t. */
    __device__ __forceinline__ void fetch(uint32_t t, uint32_t step, uint32_t slot) const {
        uint32_t kb = (step << s) + share, lane = threadIdx.x % SL_WARP;
        if (t < end && kb < n_blocks) {
            size_t delta = t * tile_bytes + kb * frag::BYTES;
            uint32_t to = ring_at + slot * SLOT + lane * 16;
            if (whole) {
#pragma unroll
                for (uint32_t h = 0; h < 2; h++) {
                    uintptr_t p = src[h] + delta;
#pragma unroll
                    for (uint32_t j = 0; j < HALF / AT_ONCE; j++, p += AT_ONCE * row_bytes)
                        sl_copy16_at(to + (h * HALF + j * AT_ONCE) * frag::STRIDE,
                                     p & ~(uintptr_t)15);
                    if (HALF % AT_ONCE && lane < HALF % AT_ONCE * PIECES)
                        sl_copy16_at(to + (h * HALF + HALF / AT_ONCE * AT_ONCE) * frag::STRIDE,
                                     p & ~(uintptr_t)15);
                }
            } else if (edge) {
#pragma unroll 1
                for (uint32_t r = lane / PIECES; r < SL_MMA_TILE; r += AT_ONCE) {
                    uintptr_t p = (r < HALF ? src[0] : src[1] - HALF * row_bytes) + delta +
                                  (r - lane / PIECES) * row_bytes;
                    if ((p & 15) > MARGIN)
                        sl_copy16_at(to + (r - lane / PIECES) * frag::STRIDE, p & ~(uintptr_t)15);
                }
            }
        }
        sl_copy_commit();
    }
    /* What an item adds to a sum, as it waits for its turn in the slot that the item was in. */
    static constexpr int TERMS = frag::HAS_MIN ? 4 : 2;
    __device__ __forceinline__ static void add(float &total, const float (&v)[TERMS]) {
        total = fmaf(v[0], v[1], total);
        if (frag::HAS_MIN)
            total = fmaf(v[TERMS - 2], v[TERMS - 1], total);
    }
    __device__ __forceinline__ static void store(uint8_t *slot, int i, const float (&v)[TERMS]) {
        uint8_t *to = slot + ((uint32_t)i * 32 + threadIdx.x % SL_WARP) * TERMS * 4;
        if (TERMS == 4)
            *(float4 *)to = make_float4(v[0], v[1], v[TERMS - 2], v[TERMS - 1]);
        else
            *(float2 *)to = make_float2(v[0], v[1]);
    }
    __device__ __forceinline__ static void load(const uint8_t *slot, int i, float (&v)[TERMS]) {
        const uint8_t *from = slot + ((uint32_t)i * 32 + threadIdx.x % SL_WARP) * TERMS * 4;
        if (TERMS == 4) {
            float4 f = *(const float4 *)from;
            v[0] = f.x, v[1] = f.y, v[TERMS - 2] = f.z, v[TERMS - 1] = f.w;
        } else {
            float2 f = *(const float2 *)from;
            v[0] = f.x, v[1] = f.y;
        }
    }
    static_assert(4 * SL_WARP * TERMS * 4 <= SLOT, "terms wait in a slot");

    /* Moves each row of an item to where its slot begins, for types that are read in whole words.
     */
    __device__ __forceinline__ void straighten(uint8_t *slot) const {
        uint32_t lane = threadIdx.x % SL_WARP;
#pragma unroll 1
        for (uint32_t r = 0; r < SL_MMA_TILE; r++) {
            uint32_t low = r < 8 ? at[0] : at[1], v[2], w[1];
            uint32_t into = (uint32_t)sl_shfl((int)low, (int)(r % 8 * 4)) & 15;
            uint8_t *row = slot + r * frag::STRIDE;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                uint32_t word = min(lane + SL_WARP * (uint32_t)i, frag::BYTES / 4 - 1);
                sl_smem_words<1>(row + (into & 12) + word * 4, into % 4 * 8, w);
                v[i] = w[0];
            }
            __syncwarp();
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (lane + SL_WARP * (uint32_t)i < frag::BYTES / 4)
                    *(uint32_t *)(row + (lane + SL_WARP * (uint32_t)i) * 4) = v[i];
            __syncwarp();
        }
    }
    template <bool ONE>
    __device__ __forceinline__ void multiply(const uint8_t *slot, uint32_t t, uint32_t kb,
                                             const struct sl_mma_in &in, uint32_t n,
                                             float (&v)[4][TERMS]) const {
        uint32_t lane = threadIdx.x % SL_WARP,
                 delta = (uint32_t)(t * tile_bytes) + kb * frag::BYTES;
        const uint8_t *rows[2];
        uint32_t shift[2];
#pragma unroll
        for (uint32_t r = 0; r < 2; r++) {
            uint32_t into = frag::BYTES % 16 == 0 ? 0 : (at[r] + delta) & 15;
            rows[r] = slot + (lane / 4 + r * 8) * frag::STRIDE + (into & 12);
            shift[r] = into % 4 * 8;
        }
        struct sl_mma_sums sums;
        frag::template dot<ONE>(rows, shift, in, kb, min(lane / 4, n - 1), sums);
        float2 dx = *(const float2 *)(in.d + kb * 8 + lane % 4 * 2);
#pragma unroll
        for (int i = 0; i < 4; i += ONE ? 2 : 1) {
            float d = i % 2 ? dx.y : dx.x;
            v[i][0] = sums.d[i / 2] * d, v[i][1] = (float)sums.sum[i];
            if (frag::HAS_MIN) {
                v[i][TERMS - 2] = -(sums.dmin[i / 2] * d);
                v[i][TERMS - 1] = (float)sums.min[i];
            }
        }
    }
    /* Terms of WARPS warps join the sums, of columns 0, STEP, ...: all are read before the first is
     * used. */
    template <uint32_t WARPS, int STEP>
    __device__ __forceinline__ void join(const uint8_t *from, float (&total)[4]) const {
        float f[WARPS][4][TERMS];
#pragma unroll
        for (uint32_t w = 0; w < WARPS; w++)
#pragma unroll
            for (int i = 0; i < 4; i += STEP)
                load(from + w * ring_bytes, i, f[w][i]);
#pragma unroll
        for (uint32_t w = 0; w < WARPS; w++)
#pragma unroll
            for (int i = 0; i < 4; i += STEP)
                add(total[i], f[w][i]);
    }
    template <int STEP>
    __device__ __forceinline__ void join_all(const uint8_t *from, uint32_t left,
                                             float (&total)[4]) const {
        constexpr uint32_t N = 2 * STEP;
        for (; left >= N; left -= N, from += N * ring_bytes)
            join<N, STEP>(from, total);
        for (; left; left--, from += ring_bytes)
            join<1, STEP>(from, total);
    }
    /* The warps that share a tile meet. */
    __device__ __forceinline__ void meet(void) const {
        sl_meet(1 + team, SL_WARP << s);
    }

    /* All that begin() named; input rows in.q[0..n), 1 <= n <= 8. out(tile, total) by
     * whole warps. */
    template <class OUT>
    __device__ __forceinline__ void run(const struct sl_mma_in &in, uint32_t n, OUT out) {
        struct sl_mma_walk walk(n_blocks, s, tile, slots);
        float total[4] = {0, 0, 0, 0};
        while (walk.tile < end) {
            uint32_t kb = (walk.step << s) + share;
            uint8_t *mine = ring + walk.slot * SLOT;
            float v[4][TERMS];
            sl_copy_wait_but_one();
            __syncwarp();
            if (kb < n_blocks) {
                if (frag::BYTES % 16 == 0 && !aligned)
                    straighten(mine);
                if (n == 1)
                    multiply<true>(mine, walk.tile, kb, in, n, v);
                else
                    multiply<false>(mine, walk.tile, kb, in, n, v);
            }
            __syncwarp();
            if (s) {
                if (kb < n_blocks) {
                    store(mine, 0, v[0]);
                    store(mine, 2, v[2]);
                    if (n > 1) {
                        store(mine, 1, v[1]);
                        store(mine, 3, v[3]);
                    }
                }
                meet();
            }
            /* Into this item's slot, or, where terms wait in it, into that of the item before: who
             * joined those has met the others since. */
            fetch(walk.ahead_tile, walk.ahead_step, walk.ahead_slot);
            if (!s) {
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (i % 2 == 0 || n > 1)
                        add(total[i], v[i]);
            } else if (share == walk.turn) {
                uint32_t left = min(n_blocks - (walk.step << s), 1u << s);
                const uint8_t *from = mine - share * ring_bytes;
                if (n == 1)
                    join_all<2>(from, left, total);
                else
                    join_all<1>(from, left, total);
            }
            if (walk.next()) {
                if (!s || share == walk.turn) {
                    out(walk.tile, total);
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        total[i] = 0;
                }
                walk.next_tile();
            }
        }
    }
};

#endif
