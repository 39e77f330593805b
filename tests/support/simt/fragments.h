/* Matrix fragments for the CPU, by their published layouts. A shared object's kernels have either
 * these or what backends/kernels/machine_hip.cuh makes of shuffles: of HIP's,
 * SIMT_SHUFFLED_FRAGMENTS has the latter, which take some thirty times as long here. */
#ifndef SL_TESTS_SUPPORT_SIMT_FRAGMENTS_H
#define SL_TESTS_SUPPORT_SIMT_FRAGMENTS_H

/* The value of lane i among those that simt_warp() gave. */
template <class T> static inline T simt_of(const void *all, uint32_t lane) {
    T v;
    memcpy(&v, (const char *)all + lane * SIMT_VALUE_BYTES, sizeof v);
    return v;
}

/* Matrix n of a load: its eight rows of 16 bytes begin where lanes 8 n .. say. */
static inline void simt_ldmatrix(uint32_t *r, uint32_t n, const void *shared, bool turned) {
    const void *all = simt_warp(0xffffffffu, "ldmatrix", &shared, sizeof shared);
    uint32_t lane = simt_lane();
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < 8; k++)
            if (simt_of<uintptr_t>(all, 8 * i + k) % 16)
                simt_fault("ldmatrix: row %u of tile %u does not begin on 16 bytes", k, i);
        if (!turned) {
            memcpy(&r[i], simt_of<const char *>(all, 8 * i + lane / 4) + 4 * (lane % 4), 4);
            continue;
        }
        uint16_t pair[2];
        for (uint32_t k = 0; k < 2; k++)
            memcpy(&pair[k],
                   simt_of<const char *>(all, 8 * i + 2 * (lane % 4) + k) + 2 * (lane / 4), 2);
        r[i] = pair[0] | (uint32_t)pair[1] << 16;
    }
}
static inline void sl_ldmatrix4(uint32_t r[4], const void *shared) {
    simt_ldmatrix(r, 4, shared, false);
}
static inline void sl_ldmatrix4_trans(uint32_t r[4], const void *shared) {
    simt_ldmatrix(r, 4, shared, true);
}
static inline void sl_ldmatrix2(uint32_t r[2], const void *shared) {
    simt_ldmatrix(r, 2, shared, false);
}

/* Fragments of mma.m16n8: a[0] and a[1] are rows lane / 4 and that + 8, the quarter lane % 4 of the
 * first half of k; a[2] and a[3] of the second. b: column lane / 4, the same quarters. */
struct simt_fragments {
    uint32_t a[4], b[2];
};
template <class F>
static inline void simt_mma(const char *what, const struct simt_fragments &mine, const F &each) {
    const void *all = simt_warp(0xffffffffu, what, &mine, sizeof mine);
    uint32_t lane = simt_lane();
    for (uint32_t quarter = 0; quarter < 4; quarter++) {
        uint32_t row = lane / 4, col = 2 * (lane % 4);
        const simt_fragments r = simt_of<simt_fragments>(all, row * 4 + quarter);
        const simt_fragments c[2] = {simt_of<simt_fragments>(all, col * 4 + quarter),
                                     simt_of<simt_fragments>(all, (col + 1) * 4 + quarter)};
        for (uint32_t i = 0; i < 4; i++) {
            each(i, r.a[i / 2], c[i % 2].b[0]);
            each(i, r.a[i / 2 + 2], c[i % 2].b[1]);
        }
    }
}
static inline void sl_mma_k32(int c[4], const uint32_t a[4], const uint32_t b[2]) {
    int sum[4] = {};
    simt_mma("mma of s8", {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}},
             [&](uint32_t i, uint32_t x, uint32_t y) { sum[i] = __dp4a((int)x, (int)y, sum[i]); });
    memcpy(c, sum, sizeof sum);
}
static inline void sl_mma_k16(int c[4], uint32_t a0, uint32_t a1, uint32_t b) {
    const uint32_t a[4] = {a0, a1, 0, 0}, both[2] = {b, 0};
    sl_mma_k32(c, a, both);
}
static inline void sl_mma_u8_k32(int c[4], const uint32_t a[4], const uint32_t b[2]) {
    int sum[4] = {};
    simt_mma("mma of u8", {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}},
             [&](uint32_t i, uint32_t x, uint32_t y) { sum[i] = simt_dp4a_u8(x, y, sum[i]); });
    memcpy(c, sum, sizeof sum);
}
/* The sum of exact products rounded once; GPUs round it otherwise. The four sums side by side: half
 * of the time of all kernels was here. */
static inline void sl_mma_f16(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    typedef double four __attribute__((vector_size(32)));
    const struct simt_fragments mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
    const void *all = simt_warp(0xffffffffu, "mma of f16", &mine, sizeof mine);
    uint32_t row = simt_lane() / 4, col = 2 * (simt_lane() % 4);
    four sum = {c[0], c[1], c[2], c[3]};
    for (uint32_t quarter = 0; quarter < 4; quarter++) {
        simt_fragments r = simt_of<simt_fragments>(all, row * 4 + quarter);
        simt_fragments left = simt_of<simt_fragments>(all, col * 4 + quarter);
        simt_fragments right = simt_of<simt_fragments>(all, (col + 1) * 4 + quarter);
        for (uint32_t k = 0; k < 2; k++)
            for (uint32_t h = 0; h < 2; h++) {
                auto at = [h](uint32_t pair) {
                    return (double)__half2float({(uint16_t)(pair >> 16 * h)});
                };
                double up = at(r.a[2 * k]), down = at(r.a[2 * k + 1]);
                double x = at(left.b[k]), y = at(right.b[k]);
                sum += four{up, up, down, down} * four{x, y, x, y};
            }
    }
    for (int i = 0; i < 4; i++)
        c[i] = (float)sum[i];
}

#endif
