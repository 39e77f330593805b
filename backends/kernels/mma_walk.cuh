/* The way of a warp through the items of its tiles, for the products of a few rows on tensor cores
 * (mma_vec.cuh, mma_q8.cuh): which item is multiplied, and which is copied meanwhile. */
#ifndef SL_BACKENDS_KERNELS_MMA_WALK_CUH
#define SL_BACKENDS_KERNELS_MMA_WALK_CUH

#include "backends/kernels/device.cuh"

/* 2^s warps share a tile of `items` items: each takes every 2^s-th, in `steps` steps, and the sums
 * are one warp's, another one's for each tile. Copies are SL_MMA_AHEAD items further. */
struct sl_mma_walk {
    uint32_t s, steps, at_once, slots; /* at_once: tiles that the block's warps take at once */
    uint32_t tile, step, slot, turn;   /* turn: whose the sums are */
    uint32_t ahead_tile, ahead_step, ahead_slot;

    __device__ __forceinline__ sl_mma_walk(uint32_t items, uint32_t log_split, uint32_t first_tile,
                                           uint32_t n_slots)
        : s(log_split), steps((items + (1u << s) - 1) >> s), at_once(SL_MATVEC_WARPS >> s),
          slots(n_slots), tile(first_tile), step(0), slot(0), turn(0) {
        static_assert(SL_MMA_AHEAD == 2, "what is on its way at the start");
        ahead_tile = tile + (steps == 1 ? 2 * at_once : steps == 2 ? at_once : 0);
        ahead_step = steps > 2 ? 2 : 0;
        ahead_slot = SL_MMA_AHEAD == slots ? 0 : SL_MMA_AHEAD;
    }
    /* To the next item of the tile; true: it was the last one, then next_tile(). */
    __device__ __forceinline__ bool next(void) {
        slot = slot + 1 == slots ? 0 : slot + 1;
        ahead_slot = ahead_slot + 1 == slots ? 0 : ahead_slot + 1;
        if (++ahead_step == steps)
            ahead_step = 0, ahead_tile += at_once;
        return ++step == steps;
    }
    __device__ __forceinline__ void next_tile(void) {
        step = 0, tile += at_once;
        turn = (turn + 1) & ((1u << s) - 1);
    }
};

#endif
