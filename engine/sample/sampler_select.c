#include "engine/sample/sampler_select.h"

#include <math.h>
#include <string.h>

static inline bool before(const float *key, uint32_t a, uint32_t b) {
    return key[a] < key[b] || (key[a] == key[b] && a < b);
}

static void sift_down(const float *key, uint32_t *order, uint32_t root, uint32_t n) {
    uint32_t v = order[root];
    for (uint32_t child; (child = 2 * root + 1) < n; root = child) {
        if (child + 1 < n && before(key, order[child], order[child + 1]))
            child++;
        if (!before(key, v, order[child]))
            break;
        order[root] = order[child];
    }
    order[root] = v;
}

/* Heapsort, since one crowded bucket must not be slow. */
void sl_sort_by_key(const float *key, uint32_t *order, uint32_t n) {
    for (uint32_t i = n / 2; i-- > 0;)
        sift_down(key, order, i, n);
    for (uint32_t end = n; end-- > 1;) {
        uint32_t top = order[0];
        order[0] = order[end];
        order[end] = top;
        sift_down(key, order, 0, end);
    }
}

/* scale 0: all keys are alike, and in one bucket. */
static inline uint32_t bucket_of(float key, float scale) {
    float b = key * scale;
    b = b < 0 ? 0 : b; /* only beside maxima that are no logit's */
    if (!(scale > 0))
        return 0;
    return b < (float)(SL_SAMPLER_BUCKETS - 1) ? (uint32_t)b : SL_SAMPLER_BUCKETS - 1;
}

/* Buckets to a unit of the key. */
static float find_scale(const float *key, uint32_t n) {
    float range = 0;
    for (uint32_t i = 0; i < n; i++) {
        float k = key[i] < 64.0f ? key[i] : 64.0f; /* beyond lies nothing worth fine buckets */
        range = k > range ? k : range;
    }
    return range > 0 ? (float)(SL_SAMPLER_BUCKETS - 1) / range : 0;
}

static void fill_buckets(struct sl_sampler_space *sp, const float *key, const float *mass,
                         uint32_t n, float scale) {
    memset(sp->bucket_n, 0, SL_SAMPLER_BUCKETS * sizeof *sp->bucket_n);
    if (mass)
        memset(sp->bucket_mass, 0, SL_SAMPLER_BUCKETS * sizeof *sp->bucket_mass);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t b = bucket_of(key[i], scale);
        sp->bucket_n[b]++;
        if (mass)
            sp->bucket_mass[b] += (double)mass[i];
    }
}

/* The bucket in which the limit falls; how many candidates there are before it, and what they come
 * to. */
static uint32_t find_edge(const struct sl_sampler_space *sp, bool by_mass, double limit,
                          uint32_t *out_n, double *out_sum) {
    uint32_t edge = 0, n = 0;
    double sum = 0;
    for (; edge + 1 < SL_SAMPLER_BUCKETS; edge++) {
        double part = by_mass ? sp->bucket_mass[edge] : (double)sp->bucket_n[edge];
        if (sum + part >= limit && sp->bucket_n[edge])
            break;
        sum += part;
        n += sp->bucket_n[edge];
    }
    *out_n = n;
    *out_sum = sum;
    return edge;
}

/* Puts the candidates of a bucket into order[]; returns how many. */
static uint32_t sort_bucket(struct sl_sampler_space *sp, const float *key, uint32_t n, float scale,
                            uint32_t bucket) {
    uint32_t n_in = 0;
    for (uint32_t i = 0; i < n; i++) {
        sp->order[n_in] = i;
        n_in += bucket_of(key[i], scale) == bucket;
    }
    sl_sort_by_key(key, sp->order, n_in);
    return n_in;
}

/* One pass counts candidates in fine buckets of the key; the bucket in which the limit falls is the
 * only one that is sorted. */
uint32_t sl_select_best(struct sl_sampler_space *sp, const float *key, const float *mass,
                        uint32_t n, double limit, struct sl_cut *out_cut) {
    float scale = find_scale(key, n);
    uint32_t kept;
    double sum;
    fill_buckets(sp, key, mass, n, scale);
    uint32_t edge = find_edge(sp, mass != NULL, limit, &kept, &sum);
    uint32_t n_edge = sort_bucket(sp, key, n, scale, edge);
    *out_cut = (struct sl_cut){INFINITY, UINT32_MAX}; /* all: the last bucket may be empty */
    for (uint32_t j = 0; j < n_edge && (sum < limit || !kept); j++) {
        uint32_t i = sp->order[j];
        sum += mass ? (double)mass[i] : 1;
        *out_cut = (struct sl_cut){key[i], i};
        kept++;
    }
    return kept;
}
