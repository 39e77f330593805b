/* The prefix tree alone: what it finds, what it gives up, and that it keeps count. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/rng.h"
#include "engine/prefix/prefix_tree.h"

#include <stdlib.h>
#include <string.h>

#define N_PAGES 24u
#define PAGE    SL_KV_PAGE_TOKENS

static struct sl_prefix_tree *new_tree(uint32_t n_pages) {
    struct sl_prefix_tree *t;
    struct sl_err err;
    assert_int_equal(sl_prefix_tree_create(n_pages, (struct sl_hash128){1, 2},
                                           (struct sl_hash128){3, 4}, &t, &err),
                     SL_OK);
    return t;
}

static const uint32_t *text(uint32_t seed) {
    static uint32_t ids[4][PAGE];
    static uint32_t turn;
    uint32_t *out = ids[turn++ % 4];
    for (uint32_t i = 0; i < PAGE; i++)
        out[i] = seed * 1000 + i;
    return out;
}

static void finds_by_the_whole_path(void **state) {
    (void)state;
    struct sl_prefix_tree *t = new_tree(N_PAGES);
    assert_int_equal(sl_prefix_find(t, SL_PREFIX_ROOT, text(1)), SL_KV_NO_PAGE);
    sl_prefix_add(t, 5, SL_PREFIX_ROOT, text(1));
    sl_prefix_add(t, 6, 5, text(2));
    sl_prefix_add(t, 7, SL_PREFIX_ROOT, text(3));
    sl_prefix_add(t, 8, 7, text(2)); /* the same ids after others are another text */
    assert_int_equal(sl_prefix_find(t, SL_PREFIX_ROOT, text(1)), 5);
    assert_int_equal(sl_prefix_find(t, 5, text(2)), 6);
    assert_int_equal(sl_prefix_find(t, 7, text(2)), 8);
    assert_int_equal(sl_prefix_find(t, SL_PREFIX_ROOT, text(2)), SL_KV_NO_PAGE);
    assert_int_equal(sl_prefix_find(t, 6, text(2)), SL_KV_NO_PAGE);
    struct sl_hash128 a = sl_prefix_key(t, 6), b = sl_prefix_key(t, 8);
    assert_memory_not_equal(&a, &b, sizeof a);
    b = sl_prefix_extend(t, sl_prefix_key(t, 5), text(2));
    assert_memory_equal(&a, &b, sizeof a);
    uint32_t near[PAGE];
    memcpy(near, text(1), sizeof near);
    near[PAGE - 1]++;
    assert_int_equal(sl_prefix_find(t, SL_PREFIX_ROOT, near), SL_KV_NO_PAGE);
    assert_int_equal(sl_prefix_parent(t, 6), 5);
    assert_true(sl_prefix_has(t, 6) && !sl_prefix_has(t, 9));
    assert_memory_equal(sl_prefix_ids(t, 6), text(2), sizeof near);
    sl_prefix_tree_destroy(&t);
}

static void gives_up_leaves_in_the_order_of_their_last_use(void **state) {
    (void)state;
    struct sl_prefix_tree *t = new_tree(N_PAGES);
    sl_prefix_add(t, 0, SL_PREFIX_ROOT, text(1));
    sl_prefix_add(t, 1, 0, text(2));
    sl_prefix_add(t, 2, 1, text(3));
    sl_prefix_add(t, 3, SL_PREFIX_ROOT, text(4));
    assert_int_equal(sl_prefix_evict(t), SL_KV_NO_PAGE);
    sl_prefix_release(t, 2);
    sl_prefix_release(t, 1);
    sl_prefix_release(t, 0);
    sl_prefix_release(t, 3);
    assert_int_equal(sl_prefix_n_idle(t), 4);
    sl_prefix_use(t, 0); /* the first two are read again */
    sl_prefix_use(t, 1);
    sl_prefix_release(t, 1);
    sl_prefix_release(t, 0);
    static const uint32_t order[4] = {2, 3, 1, 0};
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(sl_prefix_evict(t), order[i]);
        assert_int_equal(sl_prefix_n_nodes(t), 3 - i);
    }
    assert_int_equal(sl_prefix_evict(t), SL_KV_NO_PAGE);
    assert_int_equal(sl_prefix_find(t, SL_PREFIX_ROOT, text(1)), SL_KV_NO_PAGE);
    sl_prefix_add(t, 2, SL_PREFIX_ROOT, text(1)); /* pages serve again */
    assert_int_equal(sl_prefix_find(t, SL_PREFIX_ROOT, text(1)), 2);
    sl_prefix_tree_destroy(&t);
}

/* Readers walk random paths, hold and leave them; the tree must agree with a list of all paths. */
static void random_paths(void **state) {
    (void)state;
    struct sl_prefix_tree *t = new_tree(N_PAGES);
    struct {
        uint32_t node[4], n;
    } held[5] = {{{0}, 0}};
    bool taken[N_PAGES] = {false};
    struct sl_rng rng = {7};
    for (uint32_t round = 0; round < 20000; round++) {
        uint32_t who = sl_rng_below(&rng, 5);
        for (uint32_t i = held[who].n; i > 0; i--)
            sl_prefix_release(t, held[who].node[i - 1]);
        held[who].n = 0;
        uint32_t depth = sl_rng_below(&rng, 5), parent = SL_PREFIX_ROOT;
        for (uint32_t d = 0; d < depth; d++) {
            const uint32_t *ids = text(sl_rng_below(&rng, 3));
            uint32_t node = sl_prefix_find(t, parent, ids);
            if (node != SL_KV_NO_PAGE) {
                assert_int_equal(sl_prefix_parent(t, node), parent);
                assert_memory_equal(sl_prefix_ids(t, node), ids, PAGE * sizeof *ids);
                sl_prefix_use(t, node);
            } else {
                for (node = 0; node < N_PAGES && taken[node]; node++)
                    ;
                if (node == N_PAGES)
                    node = sl_prefix_evict(t);
                assert_true(node < N_PAGES && !sl_prefix_has(t, node));
                taken[node] = true;
                sl_prefix_add(t, node, parent, ids);
            }
            parent = held[who].node[held[who].n++] = node;
        }
        bool used[N_PAGES] = {false};
        uint32_t n_used = 0;
        for (uint32_t i = 0; i < 5; i++)
            for (uint32_t d = 0; d < held[i].n; d++) {
                assert_true(sl_prefix_has(t, held[i].node[d]));
                n_used += !used[held[i].node[d]];
                used[held[i].node[d]] = true;
            }
        assert_int_equal(sl_prefix_n_nodes(t) - sl_prefix_n_idle(t), n_used);
    }
    sl_prefix_tree_destroy(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_by_the_whole_path),
        cmocka_unit_test(gives_up_leaves_in_the_order_of_their_last_use),
        cmocka_unit_test(random_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
