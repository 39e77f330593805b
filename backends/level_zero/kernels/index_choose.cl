/* The choice, a group for each row. The lowest key that is chosen is found digit by digit, from the
 * highest, by counting among the keys that have the digits found so far. Then each work-item writes
 * what is chosen of a run of positions, after what the work-items before it write. */
#include "common.clh"
#define THREADS    64u
#define DIGIT_BITS 8u
#define DIGITS     256u

/* Ascending as scores do: a NaN is below all, and zeros of both signs are one. */
static uint key_of(float score) {
    if (is_nan(score))
        return 0u;
    uint bits = as_uint(score + 0.0f);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

GROUP(64) kernel void index_choose(const struct sl_lz_index a) {
    local uint count[DIGITS], larger[THREADS], equal[THREADS];
    uint r = (uint)group(), l = item();
    if (r >= a.n_rows)
        return;
    uint len = U32S(a.row_len)[a.row0 + r];
    global uint *chosen = U32S(a.chosen) + (ulong)(a.row0 + r) * a.n_top;
    global const float *scores = F32S(a.scores) + (ulong)r * a.max_pages * 64u;
    if (len <= a.n_top) {
        for (uint j = l; j < len; j += THREADS)
            chosen[j] = j;
        return;
    }
    uint least = 0u, known = 0u, above = 0u; /* known: a mask of the digits found so far */
    for (uint pass = 0; pass < 32u / DIGIT_BITS; pass++) {
        uint shift = 32u - (pass + 1u) * DIGIT_BITS, digit = DIGITS - 1u;
        for (uint i = l; i < DIGITS; i += THREADS)
            count[i] = 0u;
        BARRIER();
        for (uint j = l; j < len; j += THREADS) {
            uint key = key_of(scores[j]);
            if ((key & known) == least)
                atomic_inc(&count[key >> shift & (DIGITS - 1u)]);
        }
        BARRIER();
        while (above + count[digit] < a.n_top)
            above += count[digit--];
        least |= digit << shift;
        known |= (DIGITS - 1u) << shift;
        BARRIER();
    }

    uint each = (len + THREADS - 1u) / THREADS, from = min(l * each, len);
    uint end = min(from + each, len), equals = a.n_top - above, n_larger = 0u, n_equal = 0u;
    for (uint j = from; j < end; j++) {
        uint key = key_of(scores[j]);
        n_larger += key > least;
        n_equal += key == least;
    }
    larger[l] = n_larger;
    equal[l] = n_equal;
    BARRIER();
    n_larger = n_equal = 0u;
    for (uint i = 0; i < l; i++) {
        n_larger += larger[i];
        n_equal += equal[i];
    }
    for (uint j = from; j < end; j++) {
        uint key = key_of(scores[j]);
        if (key > least || (key == least && n_equal < equals))
            chosen[n_larger + min(n_equal, equals)] = j;
        n_larger += key > least;
        n_equal += key == least;
    }
}
