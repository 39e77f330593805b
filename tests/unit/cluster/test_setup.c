/* What coordinators and workers tell one another before the first step: every field comes out as it
 * went in, and no other bytes do. */
#include "cluster/setup.h"

#include "common/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct sl_rng rng;

/* ---- any message: random values in every field ---- */

static void any_text(char *out, size_t size) {
    size_t n = sl_rng_u64(&rng) % size;
    for (size_t i = 0; i < n; i++)
        out[i] = (char)(' ' + sl_rng_u64(&rng) % 95);
    out[n] = 0;
}

#define STRUCT(name, doc)                                                                          \
    static void any_##name(struct sl_setup_##name *m) {                                            \
        memset(m, 0, sizeof *m);
#define MESSAGE(name, frame, doc) STRUCT(name, doc)
#define U32(field, doc)           m->field = (uint32_t)sl_rng_u64(&rng);
#define U64(field, doc)           m->field = sl_rng_u64(&rng);
#define F64(field, doc)           m->field = (double)sl_rng_u64(&rng) * 0.37;
#define FLAG(field, doc)          m->field = sl_rng_u64(&rng) & 1;
#define TEXT(field, size, doc)    any_text(m->field, size);
#define LIST(of, field, max, doc)                                                                  \
    m->n_##field = sl_rng_u64(&rng) % (max + 1);                                                   \
    for (uint32_t i = 0; i < m->n_##field; i++)                                                    \
        any_##of(&m->field[i]);
#define END }
#include "cluster/setup.def"
#undef STRUCT
#undef MESSAGE
#undef U32
#undef U64
#undef F64
#undef FLAG
#undef TEXT
#undef LIST
#undef END

/* ---- field by field ---- */

#define STRUCT(name, doc)                                                                          \
    static void same_##name(const struct sl_setup_##name *a, const struct sl_setup_##name *b) {
#define MESSAGE(name, frame, doc) STRUCT(name, doc)
#define U32(field, doc)           assert_int_equal(a->field, b->field);
#define U64(field, doc)           assert_int_equal(a->field, b->field);
#define F64(field, doc)           assert_memory_equal(&a->field, &b->field, sizeof a->field);
#define FLAG(field, doc)          assert_int_equal(a->field, b->field);
#define TEXT(field, size, doc)    assert_string_equal(a->field, b->field);
#define LIST(of, field, max, doc)                                                                  \
    assert_int_equal(a->n_##field, b->n_##field);                                                  \
    for (uint32_t i = 0; i < a->n_##field; i++)                                                    \
        same_##of(&a->field[i], &b->field[i]);
#define END }
#include "cluster/setup.def"
#undef STRUCT
#undef MESSAGE
#undef U32
#undef U64
#undef F64
#undef FLAG
#undef TEXT
#undef LIST
#undef END

/* Every message there and back; cut off anywhere, and with a byte too many, it is refused. The
 * bytes lie in a block of just their size, so that reading past it is seen. */
#define STRUCT(name, doc)
#define MESSAGE(name, frame, doc)                                                                  \
    static void test_##name(void **state) {                                                        \
        static struct sl_setup_##name m, back;                                                     \
        static uint8_t bytes[SL_SETUP_MAX_BYTES];                                                  \
        struct sl_err err;                                                                         \
        (void)state;                                                                               \
        for (uint32_t round = 0; round < 20; round++) {                                            \
            any_##name(&m);                                                                        \
            size_t n = sl_setup_put_##name(&m, bytes);                                             \
            assert_int_equal(sl_setup_get_##name(bytes, n, &back, &err), SL_OK);                   \
            same_##name(&m, &back);                                                                \
            assert_int_equal(sl_setup_get_##name(bytes, n + 1, &back, &err), SL_ERR_PROTOCOL);     \
            size_t step = n / 64 + 1;                                                              \
            for (size_t k = 0; k < n; k += step) {                                                 \
                uint8_t *part = malloc(k ? k : 1);                                                 \
                assert_non_null(part);                                                             \
                memcpy(part, bytes, k);                                                            \
                assert_int_equal(sl_setup_get_##name(part, k, &back, &err), SL_ERR_PROTOCOL);      \
                assert_non_null(strstr(err.text, #name));                                          \
                free(part);                                                                        \
            }                                                                                      \
        }                                                                                          \
    }
#define U32(field, doc)
#define U64(field, doc)
#define F64(field, doc)
#define FLAG(field, doc)
#define TEXT(field, size, doc)
#define LIST(of, field, max, doc)
#define END
#include "cluster/setup.def"
#undef MESSAGE

static void lies_are_refused(void **state) {
    (void)state;
    static struct sl_setup_offer offer;
    struct sl_setup_refuse refuse = {.status = 81, .why = "line"}, back;
    uint8_t bytes[SL_SETUP_MAX_BYTES];
    struct sl_err err;
    size_t n = sl_setup_put_refuse(&refuse, bytes);
    bytes[8] = '\n'; /* of the text: nobody writes lines into our log */
    assert_int_equal(sl_setup_get_refuse(bytes, n, &back, &err), SL_OK);
    assert_string_equal(back.why, "?ine");
    memcpy(bytes + 8, "\xb1\xc3\xa9\xe2", 4); /* half a character, a whole one, and half */
    assert_int_equal(sl_setup_get_refuse(bytes, n, &back, &err), SL_OK);
    assert_string_equal(back.why, "?\xc3\xa9?");
    memset(bytes + 4, 0xff, 4); /* its length */
    assert_int_equal(sl_setup_get_refuse(bytes, n, &back, &err), SL_ERR_PROTOCOL);
    assert_non_null(strstr(err.text, "why"));

    memset(&offer, 0, sizeof offer);
    n = sl_setup_put_offer(&offer, bytes);
    bytes[n - 4] = SL_MAX_STAGES + 1; /* devices */
    assert_int_equal(sl_setup_get_offer(bytes, n, &offer, &err), SL_ERR_PROTOCOL);
    assert_non_null(strstr(err.text, "devices"));
    n = sl_setup_put_offer(&offer, bytes);
    static const double bad[] = {-1, 1 / 0.0, -1 / 0.0, 0 / 0.0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        memcpy(bytes + n - 12, &bad[i], 8); /* how fast it reads its memory */
        assert_int_equal(sl_setup_get_offer(bytes, n, &offer, &err), SL_ERR_PROTOCOL);
        assert_non_null(strstr(err.text, "ram_bytes_per_s"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define MESSAGE(name, frame, doc) cmocka_unit_test(test_##name),
#include "cluster/setup.def"
        cmocka_unit_test(lies_are_refused),
    };
    rng = (struct sl_rng){1};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
