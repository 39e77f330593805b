/* The sizes of prompt slices over several stages, on machines where a slice of n rows takes
 * fixed + n * row at each stage. */
#include "engine/schedule/prompt_slices.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct machine {
    uint32_t n_stages;
    double fixed_ns, row_ns;
};

/* A prompt alone; returns the rows of its slices. */
static uint32_t run(struct sl_prompt_slices *p, const struct machine *m, uint32_t n) {
    uint32_t slice = sl_prompt_slices_rows(p, n), size = slice;
    for (uint32_t done = 0; done < n; done += size) {
        assert_int_equal(sl_prompt_slices_rows(p, n - done), slice); /* one size all along */
        size = n - done < slice ? n - done : slice;
        double stage_ns = m->fixed_ns + size * m->row_ns;
        sl_prompt_slices_learn(p, size, (uint64_t)(stage_ns * (done ? 1 : m->n_stages)));
    }
    sl_prompt_slices_end(p);
    return slice;
}

/* The size that most of the last of many prompts had. */
static uint32_t settled(struct sl_prompt_slices *p, const struct machine *m, uint32_t n) {
    uint32_t rows = 0, held = 0;
    for (uint32_t i = 0; i < 1000; i++)
        run(p, m, n);
    for (uint32_t i = 0; i < 40; i++) {
        uint32_t r = run(p, m, n);
        held = r == rows ? held + 1 : held ? held - 1 : 1;
        rows = held == 1 && r != rows ? r : rows;
    }
    return rows;
}

static void one_stage_takes_batches(void **state) {
    (void)state;
    struct sl_prompt_slices p;
    sl_prompt_slices_init(&p, 512, 1);
    const struct machine m = {1, 1e6, 1e6};
    for (uint32_t i = 0; i < 40; i++)
        assert_int_equal(run(&p, &m, 2048), 512);
}

static void rows_alone_cost(void **state) {
    (void)state;
    struct sl_prompt_slices p;
    sl_prompt_slices_init(&p, 512, 2);
    const struct machine m = {2, 0, 1e6};
    assert_int_equal(run(&p, &m, 512), 128); /* nothing is known */
    assert_int_equal(settled(&p, &m, 512), 128);
}

static void slices_cost_more_than_their_rows(void **state) {
    (void)state;
    struct sl_prompt_slices p;
    sl_prompt_slices_init(&p, 512, 2);
    const struct machine reads = {2, 2000e6, 1e6}; /* much is read for each */
    assert_int_equal(settled(&p, &reads, 512), 512);
    const struct machine all_there = {2, 0, 1e6}; /* now it is in memory */
    assert_int_equal(settled(&p, &all_there, 512), 128);
    assert_int_equal(settled(&p, &reads, 512), 512);
}

static void a_long_prompt_gains_less(void **state) {
    (void)state;
    struct sl_prompt_slices p;
    sl_prompt_slices_init(&p, 512, 2);
    const struct machine m = {2, 100e6, 1e6};
    assert_int_equal(settled(&p, &m, 512), 256); /* 2 x 612, 3 x 356, 5 x 228 */
    assert_int_equal(settled(&p, &m, 32768), 512);
}

static void short_prompts_tell_nothing(void **state) {
    (void)state;
    struct sl_prompt_slices p;
    sl_prompt_slices_init(&p, 512, 3);
    const struct machine m = {3, 0, 1e6};
    for (uint32_t i = 0; i < 40; i++)
        assert_int_equal(run(&p, &m, 100), 128);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(p.row_ns[i] == 0);
    sl_prompt_slices_end(&p); /* nothing is under way */
    sl_prompt_slices_learn(&p, 512, 1000);
    assert_true(!p.running && p.n_runs == 0);
}

static void small_batches_have_fewer_sizes(void **state) {
    (void)state;
    const struct machine m = {2, 0, 1e6};
    struct sl_prompt_slices p;
    sl_prompt_slices_init(&p, 64, 2);
    assert_int_equal(run(&p, &m, 512), 32);
    sl_prompt_slices_init(&p, 63, 2);
    assert_int_equal(run(&p, &m, 512), 63);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_stage_takes_batches),
        cmocka_unit_test(rows_alone_cost),
        cmocka_unit_test(slices_cost_more_than_their_rows),
        cmocka_unit_test(a_long_prompt_gains_less),
        cmocka_unit_test(short_prompts_tell_nothing),
        cmocka_unit_test(small_batches_have_fewer_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
