/* Finished responses in memory: the bound, who finds what, which goes first. */
#include "server/exchange/response_store.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static char *text_of(char c, size_t n) {
    char *p = calloc(1, n + 1);
    memset(p, c, n);
    return p;
}

static void put(struct sl_response_store *s, uint32_t owner, const char *id, const char *previous,
                size_t bytes) {
    struct sl_stored_response r = {strdup(id), previous ? strdup(previous) : NULL, strdup("[]"),
                                   text_of('r', bytes)};
    sl_response_store_put(s, owner, &r);
    assert_null(r.id); /* taken over */
    assert_null(r.response);
}

static bool has(struct sl_response_store *s, uint32_t owner, const char *id) {
    struct sl_stored_response r;
    enum sl_status status = sl_response_store_get(s, owner, id, &r);
    if (status != SL_OK) {
        assert_int_equal(status, SL_AGAIN);
        return false;
    }
    assert_string_equal(r.id, id);
    assert_string_equal(r.input, "[]");
    sl_stored_response_release(&r);
    return true;
}

static void keeps_to_owners(void **state) {
    (void)state;
    struct sl_response_store *s = sl_response_store_create(1 << 20);
    put(s, 1, "a", NULL, 10);
    put(s, 2, "b", "a", 10);
    assert_true(has(s, 1, "a") && has(s, 2, "b"));
    assert_false(has(s, 2, "a") || has(s, 0, "a") || has(s, 1, "b") || has(s, 1, "c"));
    assert_false(sl_response_store_delete(s, 2, "a"));
    assert_true(has(s, 1, "a"));
    struct sl_stored_response r;
    assert_int_equal(sl_response_store_get(s, 2, "b", &r), SL_OK);
    assert_string_equal(r.previous, "a");
    assert_string_equal(r.response, "rrrrrrrrrr");
    sl_stored_response_release(&r);
    assert_true(sl_response_store_delete(s, 1, "a"));
    assert_false(sl_response_store_delete(s, 1, "a"));
    assert_false(has(s, 1, "a"));
    uint64_t n, bytes;
    sl_response_store_use(s, &n, &bytes);
    assert_int_equal(n, 1);
    assert_true(sl_response_store_delete(s, 2, "b"));
    sl_response_store_use(s, &n, &bytes);
    assert_true(n == 0 && bytes == 0);
    sl_response_store_destroy(&s);
    assert_null(s);
}

static void drops_the_oldest(void **state) {
    (void)state;
    struct sl_response_store *s = sl_response_store_create(10000);
    char id[16];
    uint64_t n, bytes;
    for (int i = 0; i < 3; i++) {
        snprintf(id, sizeof id, "r%d", i);
        put(s, 0, id, NULL, 3000);
    }
    assert_true(has(s, 0, "r0")); /* a use, so r1 goes first */
    put(s, 0, "r3", NULL, 3000);
    assert_false(has(s, 0, "r1"));
    assert_true(has(s, 0, "r0") && has(s, 0, "r2") && has(s, 0, "r3"));
    put(s, 0, "r4", NULL, 9000);
    sl_response_store_use(s, &n, &bytes);
    assert_true(n == 1 && bytes <= 10000 && has(s, 0, "r4"));
    put(s, 0, "r5", NULL, 10001); /* never: the others stay */
    assert_true(has(s, 0, "r4") && !has(s, 0, "r5"));
    assert_true(sl_response_store_takes(s, 5000));
    assert_false(sl_response_store_takes(s, 5001));
    sl_response_store_destroy(&s);
    sl_response_store_destroy(&s);
}

static void *work(void *arg) {
    struct sl_response_store *s = arg;
    char id[32];
    for (int i = 0; i < 300; i++) {
        snprintf(id, sizeof id, "%p-%d", (void *)&id, i);
        put(s, 0, id, NULL, 100 + (size_t)i);
        (void)has(s, 0, id); /* another may have needed the room */
        if (i % 3 == 0)
            sl_response_store_delete(s, 0, id);
    }
    return NULL;
}

static void takes_threads(void **state) {
    (void)state;
    struct sl_response_store *s = sl_response_store_create(8000);
    pthread_t t[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&t[i], NULL, work, s), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(t[i], NULL);
    uint64_t n, bytes;
    sl_response_store_use(s, &n, &bytes);
    assert_true(n > 0 && bytes <= 8000);
    sl_response_store_destroy(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_to_owners),
        cmocka_unit_test(drops_the_oldest),
        cmocka_unit_test(takes_threads),
    };
    return cmocka_run_group_tests_name("response_store", tests, NULL, NULL);
}
