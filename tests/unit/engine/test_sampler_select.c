/* Cutting off the best candidates against a full sort: ties, keys without end, limits in number and
 * in mass, reached and not. */
#include "tests/unit/engine/fixture.h"

#include "engine/sample/sampler_select.h"

#include <math.h>

#define MAX_N 3000u

static float key[MAX_N], mass[MAX_N];
static uint32_t order[MAX_N];

static int by_key(const void *pa, const void *pb) {
    uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;
    if (key[a] != key[b])
        return key[a] < key[b] ? -1 : 1;
    return (a > b) - (a < b);
}

static void fill(struct sl_rng *rng, uint32_t n, uint32_t kind) {
    for (uint32_t i = 0; i < n; i++) {
        float u = (float)sl_rng_unit(rng);
        key[i] = kind == 0 ? 30 * u : kind == 1 ? floorf(5 * u) : kind == 2 ? 200 * u * u : 0;
        if (kind == 2 && sl_rng_below(rng, 4) == 0)
            key[i] = INFINITY;
        mass[i] = 1 / (float)(1 << sl_rng_below(rng, 10)); /* sums are exact in any order */
        order[i] = i;
    }
    qsort(order, n, sizeof *order, by_key);
}

static void check(struct sl_sampler_space *sp, uint32_t n, const float *by_mass, double limit) {
    struct sl_cut cut;
    uint32_t kept = sl_select_best(sp, key, by_mass, n, limit, &cut), want = 0;
    double sum = 0;
    while (want < n && (!want || sum < limit))
        sum += by_mass ? (double)by_mass[order[want++]] : (want++, 1.0);
    assert_int_equal(kept, want);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(sl_cut_has(cut, key, order[i]), i < want);
}

static void selects(void **state) {
    (void)state;
    static const uint32_t sizes[] = {1, 2, 40, 1000, MAX_N};
    struct sl_sampler_space space;
    struct sl_rng rng = {3};
    assert_int_equal(sl_sampler_space_init(&space, MAX_N), SL_OK);
    for (uint32_t k = 0; k < 4 * 20; k++)
        for (uint32_t j = 0; j < sizeof sizes / sizeof *sizes; j++) {
            uint32_t n = sizes[j];
            double total = 0;
            fill(&rng, n, k % 4);
            for (uint32_t i = 0; i < n; i++)
                total += (double)mass[i];
            check(&space, n, NULL, 1 + sl_rng_below(&rng, n));
            check(&space, n, NULL, n);
            check(&space, n, mass, total * sl_rng_unit(&rng));
            check(&space, n, mass, total);
            check(&space, n, mass, 2 * total); /* not reached */
            check(&space, n, mass, 0);         /* one all the same */
        }
    sl_sampler_space_release(&space);
}

static void sorts(void **state) {
    (void)state;
    struct sl_rng rng = {8};
    for (uint32_t n = 0; n < 300; n += n < 5 ? 1 : 37) {
        uint32_t mine[300];
        fill(&rng, n, n % 4);
        for (uint32_t i = 0; i < n; i++)
            mine[i] = n - 1 - i;
        sl_sort_by_key(key, mine, n);
        assert_memory_equal(mine, order, n * sizeof *mine);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selects),
        cmocka_unit_test(sorts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
