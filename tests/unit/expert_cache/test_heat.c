/* Heat: what it learns, what it forgets, and its file, which may come from anyone. */
#include "common/crc.h"
#include "common/rng.h"
#include "common/bytes.h"
#include "expert_cache/heat_internal.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct sl_heat_config shape = {
    .n_layer = 4, .n_expert = 16, .k = 2, .fingerprint = UINT64_C(0x1122334455667788)};

static struct sl_heat *create(const struct sl_heat_config *c) {
    struct sl_err err = {""};
    struct sl_heat *h = NULL;
    if (sl_heat_create(c, &h, &err) != SL_OK)
        fail_msg("%s", err.text);
    return h;
}

static float p_of(const struct sl_heat *h, uint16_t layer, uint16_t expert) {
    return sl_heat_probability(h, (struct sl_expert_id){layer, expert});
}

static void check_range(const struct sl_heat *h) {
    const struct sl_heat_config *c = sl_heat_config(h);
    for (uint16_t l = 0; l < c->n_layer; l++)
        for (uint16_t e = 0; e < c->n_expert; e++)
            assert_true(p_of(h, l, e) > 0 && p_of(h, l, e) <= 1);
}

/* ---- learning ---- */

/* Independent draws with known probabilities: the estimates must come close to them. */
static void learns_frequencies(void **state) {
    (void)state;
    struct sl_heat *h = create(&shape);
    struct sl_rng rng = {7};
    double sum[3] = {0};
    const uint32_t n = 6000, from = 3000;
    for (uint32_t t = 0; t < n; t++) {
        for (uint16_t l = 0; l < 4; l++) {
            uint16_t ids[2];
            ids[0] = sl_rng_unit(&rng) < 0.8 ? 3 : 4;        /* 3: 80 %, 4: 20 % */
            ids[1] = (uint16_t)(6 + sl_rng_below(&rng, 10)); /* 10 % each */
            sl_heat_route(h, l, ids, 1, 2, SL_PHASE_DECODE);
        }
        for (int i = 0; i < 3 && t >= from; i++)
            sum[i] += p_of(h, 2, (uint16_t[]){3, 4, 9}[i]) / (n - from);
    }
    check_range(h);
    assert_true(fabs(sum[0] - 0.8) < 0.03);
    assert_true(fabs(sum[1] - 0.2) < 0.03);
    assert_true(fabs(sum[2] - 0.1) < 0.02);
    assert_true(p_of(h, 2, 0) < 0.02); /* never used */
    sl_heat_destroy(&h);
}

/* Uses that come in runs of 20 tokens, all experts alike in the long run: what was used by the last
 * token is nearly sure, the rest are not. */
static void learns_runs(void **state) {
    (void)state;
    struct sl_heat_config c = {.n_layer = 1, .n_expert = 16, .k = 1};
    struct sl_heat *h = create(&c);
    double running = 0, others = 0;
    uint32_t n = 0;
    for (uint32_t t = 0; t < 4000; t++) {
        uint16_t e = (uint16_t)(t / 20 * 7 % 16);
        sl_heat_route(h, 0, &e, 1, 1, SL_PHASE_DECODE);
        if (t < 2000)
            continue;
        running += p_of(h, 0, e);
        others += p_of(h, 0, (uint16_t)((e + 5) % 16));
        n++;
    }
    assert_true(running / n > 0.85 && running / n < 0.97); /* one use in 20 is a run's last */
    assert_true(others / n < 0.02);
    sl_heat_destroy(&h);
}

static void follows_a_change(void **state) {
    (void)state;
    struct sl_heat_config c = {.n_layer = 1, .n_expert = 16, .k = 1};
    struct sl_heat *h = create(&c);
    uint16_t e = 2;
    for (uint32_t t = 0; t < 3000; t++)
        sl_heat_route(h, 0, &e, 1, 1, SL_PHASE_DECODE);
    e = 9;
    for (uint32_t t = 0; t < 400; t++)
        sl_heat_route(h, 0, &e, 1, 1, SL_PHASE_DECODE);
    assert_true(p_of(h, 0, 9) > 0.9);
    assert_true(p_of(h, 0, 2) < 0.1);
    sl_heat_destroy(&h);
}

/* The rows of a batch are one tick: two of the same expert count once. */
static void batch_is_one_tick(void **state) {
    (void)state;
    struct sl_heat *a = create(&shape), *b = create(&shape);
    size_t size = sl_heat_image_bytes(&shape);
    uint8_t *x = malloc(size), *y = malloc(size);
    uint16_t twice[] = {1, 2, 2, 3, 1, 3}, once[] = {1, 2, 3};
    sl_heat_route(a, 1, twice, 3, 2, SL_PHASE_DECODE);
    sl_heat_route(b, 1, once, 1, 3, SL_PHASE_DECODE);
    sl_heat_export(a, x);
    sl_heat_export(b, y);
    assert_memory_equal(x, y, size);
    free(x);
    free(y);
    sl_heat_destroy(&a);
    sl_heat_destroy(&b);
}

/* A prompt in one call leaves the counts that the same rows leave one by one (up to what averaging
 * from an empty start rounds), and teaches nothing about what follows a token. */
static void prefill_counts_rows(void **state) {
    (void)state;
    struct sl_heat_config c = {.n_layer = 1, .n_expert = 16, .k = 2};
    struct sl_heat *a = create(&c), *b = create(&c);
    struct sl_rng rng = {3};
    uint16_t warm[2] = {14, 15};
    for (uint32_t t = 0; t < 1000; t++) { /* past the empty start */
        sl_heat_route(a, 0, warm, 1, 2, SL_PHASE_DECODE);
        sl_heat_route(b, 0, warm, 1, 2, SL_PHASE_DECODE);
    }
    uint16_t rows[64][2];
    for (uint32_t r = 0; r < 64; r++) {
        rows[r][0] = (uint16_t)(sl_rng_below(&rng, 3));
        rows[r][1] = (uint16_t)(3 + sl_rng_below(&rng, 8));
    }
    sl_heat_route(a, 0, &rows[0][0], 64, 2, SL_PHASE_PREFILL);
    for (uint32_t r = 0; r < 64; r++)
        sl_heat_route(b, 0, rows[r], 1, 2, SL_PHASE_PREFILL);
    uint8_t x[256], y[256];
    assert_true(sl_heat_image_bytes(&c) <= sizeof x);
    sl_heat_export(a, x);
    sl_heat_export(b, y);
    assert_int_equal(sl_get_u32(x + 32), 1064);
    assert_int_equal(sl_get_u32(y + 32), 1064);
    for (uint32_t e = 0; e < 16; e++)
        assert_in_range(sl_get_u16(x + 36 + 2 * e) + 2u - sl_get_u16(y + 36 + 2 * e), 0, 4);
    for (uint16_t e = 0; e < 16; e++)
        assert_true(fabsf(p_of(a, 0, e) - p_of(b, 0, e)) < 1e-3f);
    sl_heat_route(a, 0, &rows[0][0], 0, 2, SL_PHASE_PREFILL); /* no rows, no tick */
    sl_heat_export(a, y);
    assert_memory_equal(x, y, sl_heat_image_bytes(&c));
    sl_heat_destroy(&a);
    sl_heat_destroy(&b);
}

static void long_idle_stays_finite(void **state) {
    (void)state;
    struct sl_heat_config c = {.n_layer = 1, .n_expert = 4, .k = 1};
    struct sl_heat *h = create(&c);
    uint16_t e = 1;
    for (uint32_t t = 0; t < 200000; t++)
        sl_heat_route(h, 0, &e, 1, 1, SL_PHASE_DECODE);
    check_range(h);
    e = 2;
    sl_heat_route(h, 0, &e, 1, 1, SL_PHASE_DECODE);
    check_range(h);
    sl_heat_destroy(&h);
}

/* A layer's time starts again before it would run over; what was counted stays. */
static void time_runs_over(void **state) {
    (void)state;
    struct sl_heat_config c = {.n_layer = 2, .n_expert = 8, .k = 1};
    struct sl_heat *h = create(&c);
    uint16_t e = 3;
    for (uint32_t t = 0; t < 500; t++)
        sl_heat_route(h, 1, &e, 1, 1, SL_PHASE_DECODE);
    h->last[8 + 3] = h->tick[1] = UINT32_MAX - 501;
    for (uint32_t t = 0; t < 1000; t++) {
        sl_heat_route(h, 1, &e, 1, 1, SL_PHASE_DECODE);
        check_range(h);
        assert_true(p_of(h, 1, 3) > 0.5f);
    }
    assert_true(h->tick[1] < 1000);
    sl_heat_destroy(&h);
}

static void position_and_version(void **state) {
    (void)state;
    struct sl_heat *h = create(&shape);
    assert_int_equal(sl_heat_position(h), 3);
    uint32_t before[4];
    for (uint32_t l = 0; l < 4; l++)
        before[l] = sl_heat_version(h, l);
    uint16_t ids[2] = {0, 1};
    sl_heat_route(h, 2, ids, 1, 2, SL_PHASE_DECODE);
    assert_int_equal(sl_heat_position(h), 2);
    for (uint32_t l = 0; l < 4; l++)
        assert_int_equal(sl_heat_version(h, l) != before[l], l == 2);
    sl_heat_destroy(&h);
}

/* ---- the hottest ---- */

static void hottest_first(void **state) {
    (void)state;
    struct sl_heat *h = create(&shape);
    struct sl_rng rng = {11};
    for (uint32_t t = 0; t < 500; t++) {
        for (uint16_t l = 0; l < 4; l++) {
            uint16_t a = (uint16_t)sl_rng_below(&rng, 1 + sl_rng_below(&rng, 16));
            uint16_t ids[2] = {a, (uint16_t)((a + 1 + sl_rng_below(&rng, 15)) % 16)};
            sl_heat_route(h, l, ids, 1, 2, SL_PHASE_DECODE);
        }
    }
    uint8_t *image = malloc(sl_heat_image_bytes(&shape));
    sl_heat_export(h, image);
    struct sl_expert_id ids[80];
    for (uint32_t n = 0; n <= 80; n += 5) {
        uint32_t got = sl_heat_hottest(h, n, ids);
        assert_int_equal(got, n < 64 ? n : 64);
        bool seen[4][16] = {{false}};
        uint32_t last = 65536;
        for (uint32_t i = 0; i < got; i++) {
            assert_false(seen[ids[i].layer][ids[i].expert]);
            seen[ids[i].layer][ids[i].expert] = true;
            uint32_t rate = sl_get_u16(image + 32 + ids[i].layer * 36 + 4 + 2 * ids[i].expert);
            assert_true(rate <= last);
            last = rate;
        }
        for (uint32_t i = 0; i < 64 && got; i++) /* none that was left out is hotter */
            if (!seen[i / 16][i % 16])
                assert_true(sl_get_u16(image + 32 + i / 16 * 36 + 4 + 2 * (i % 16)) <= last);
    }
    free(image);
    sl_heat_destroy(&h);
}

static void a_share_of_every_layer_while_nothing_is_known(void **state) {
    (void)state;
    struct sl_heat *h = create(&shape);
    struct sl_expert_id ids[22];
    uint32_t of_layer[4] = {0};
    assert_int_equal(sl_heat_hottest(h, 22, ids), 22);
    for (uint32_t i = 0; i < 22; i++)
        of_layer[ids[i].layer]++;
    for (uint32_t l = 0; l < 4; l++)
        assert_int_equal(of_layer[l], l < 2 ? 6 : 5);
    sl_heat_destroy(&h);
}

/* ---- the file ---- */

static uint8_t *used_image(size_t *out_size) {
    struct sl_heat *h = create(&shape);
    for (uint32_t t = 0; t < 300; t++)
        for (uint16_t l = 0; l < 4; l++)
            sl_heat_route(h, l, (uint16_t[]){(uint16_t)(t % 3), (uint16_t)(4 + t % 7)}, 1, 2,
                          SL_PHASE_DECODE);
    *out_size = sl_heat_image_bytes(&shape);
    uint8_t *image = malloc(*out_size);
    sl_heat_export(h, image);
    sl_heat_destroy(&h);
    return image;
}

static void survives_a_restart(void **state) {
    (void)state;
    size_t size;
    uint8_t *image = used_image(&size), *again = malloc(size);
    struct sl_err err = {""};
    struct sl_heat *h = create(&shape);
    assert_int_equal(sl_heat_import(h, image, size, &err), SL_OK);
    check_range(h);
    struct sl_expert_id hot[3];
    assert_int_equal(sl_heat_hottest(h, 3, hot), 3);
    for (int i = 0; i < 3; i++)
        assert_true(hot[i].expert < 3);
    assert_true(p_of(h, 0, 1) > 2 * p_of(h, 0, 5));
    assert_true(p_of(h, 0, 5) > 2 * p_of(h, 0, 15));
    sl_heat_export(h, again); /* and once more: within one unit of rounding */
    for (uint32_t l = 0; l < 4; l++) {
        assert_int_equal(sl_get_u32(again + 32 + l * 36), 300);
        for (uint32_t e = 0; e < 16; e++) {
            int x = sl_get_u16(image + 32 + l * 36 + 4 + 2 * e);
            assert_true(abs(x - sl_get_u16(again + 32 + l * 36 + 4 + 2 * e)) <= 1);
        }
    }
    sl_heat_destroy(&h);
    free(image);
    free(again);
}

static void expect_refused(const uint8_t *image, size_t size, enum sl_status want,
                           const char *word) {
    struct sl_err err = {""};
    struct sl_heat *h = create(&shape);
    uint8_t *exact = malloc(size ? size : 1), *before = malloc(sl_heat_image_bytes(&shape)),
            *after = malloc(sl_heat_image_bytes(&shape));
    memcpy(exact, image, size);
    sl_heat_export(h, before);
    enum sl_status status = sl_heat_import(h, exact, size, &err);
    if (status != want || !strstr(err.text, word))
        fail_msg("status %d, want %d with '%s': %s", status, want, word, err.text);
    sl_heat_export(h, after);
    assert_memory_equal(before, after, sl_heat_image_bytes(&shape));
    free(exact);
    free(before);
    free(after);
    sl_heat_destroy(&h);
}

static void refuses_what_is_not_its_file(void **state) {
    (void)state;
    size_t size;
    uint8_t *image = used_image(&size);
    for (size_t cut = 0; cut < size; cut++) {
        if (cut < 36)
            expect_refused(image, cut, SL_ERR_CORRUPT, "not a heat file");
        else
            expect_refused(image, cut, SL_ERR_CORRUPT, "bytes; it should have");
    }
    for (size_t at = 0; at < size; at++) { /* any one bit */
        image[at] ^= (uint8_t)(1u << at % 8);
        expect_refused(image, size,
                       at < 6    ? SL_ERR_CORRUPT
                       : at < 28 ? SL_ERR_INVALID
                                 : SL_ERR_CORRUPT,
                       "heat file");
        image[at] ^= (uint8_t)(1u << at % 8);
    }
    static const struct {
        size_t at;
        const char *word;
    } fields[] = {
        {6, "version"}, {8, "another model"}, {16, "layers"}, {20, "experts"}, {24, "per token"}};
    for (size_t i = 0; i < 5; i++) { /* with a right checksum too */
        image[fields[i].at]++;
        sl_put_u32(image + size - 4, sl_crc32c(0, image, size - 4));
        expect_refused(image, size, SL_ERR_INVALID, fields[i].word);
        image[fields[i].at]--;
    }
    free(image);
}

/* Whatever numbers an image with a right checksum holds, the heat that took it over works on. */
static void any_rates_will_do(void **state) {
    (void)state;
    size_t size;
    uint8_t *image = used_image(&size);
    struct sl_rng rng = {5};
    struct sl_err err = {""};
    for (int round = 0; round < 50; round++) {
        for (size_t at = 32; at < size - 4; at++)
            image[at] = round == 0 ? 0 : round == 1 ? 0xff : (uint8_t)sl_rng_u64(&rng);
        sl_put_u32(image + size - 4, sl_crc32c(0, image, size - 4));
        struct sl_heat *h = create(&shape);
        assert_int_equal(sl_heat_import(h, image, size, &err), SL_OK);
        for (uint32_t t = 0; t < 20; t++) {
            check_range(h);
            for (uint16_t l = 0; l < 4; l++)
                sl_heat_route(h, l, (uint16_t[]){1, 2}, 1, 2, SL_PHASE_DECODE);
        }
        sl_heat_destroy(&h);
    }
    free(image);
}

/* Layers of 16, 4 and 7 experts: those that a layer does not have are in no list and in no table,
 * and the image says 0 of them, whatever a reader finds there. */
static void layers_of_their_own(void **state) {
    (void)state;
    static const struct sl_heat_layer layers[] = {{16, 3}, {4, 1}, {7, 2}};
    const struct sl_heat_config c = {.n_layer = 3, .n_expert = 16, .k = 3, .layers = layers};
    struct sl_heat *h = create(&c), *again = create(&c);
    for (uint16_t l = 0; l < 3; l++) /* all alike, at the mean of their layer */
        for (uint16_t e = 1; e < layers[l].n_expert; e++)
            assert_true(p_of(h, l, e) == p_of(h, l, 0));
    assert_true(p_of(h, 2, 0) > p_of(h, 0, 0));
    struct sl_rng rng = {5};
    for (uint32_t t = 0; t < 300; t++)
        for (uint16_t l = 0; l < 3; l++) {
            uint16_t first = (uint16_t)sl_rng_below(&rng, layers[l].n_expert), ids[3];
            for (uint16_t j = 0; j < layers[l].k; j++)
                ids[j] = (uint16_t)((first + j) % layers[l].n_expert);
            sl_heat_route(h, l, ids, 1, layers[l].k, t % 3 ? SL_PHASE_DECODE : SL_PHASE_PREFILL);
        }
    for (uint16_t l = 0; l < 3; l++) {
        const float *rates = sl_heat_rates(h, l);
        double sum = 0;
        for (uint16_t e = 0; e < layers[l].n_expert; e++) {
            assert_true(p_of(h, l, e) > 0 && p_of(h, l, e) <= 1);
            sum += (double)rates[e];
        }
        assert_true(fabs(sum - layers[l].k) < 0.01); /* a tick uses k */
    }
    struct sl_expert_id ids[48];
    bool seen[3][16] = {{false}};
    assert_int_equal(sl_heat_hottest(h, 48, ids), 16 + 4 + 7);
    for (uint32_t i = 0; i < 27; i++) {
        assert_true(ids[i].expert < layers[ids[i].layer].n_expert);
        assert_false(seen[ids[i].layer][ids[i].expert]);
        seen[ids[i].layer][ids[i].expert] = true;
    }
    size_t n = sl_heat_image_bytes(&c);
    uint8_t *image = malloc(n), *second = malloc(n);
    struct sl_err err = {""};
    assert_true(image && second);
    sl_heat_export(h, image);
    const uint8_t *layer1 = image + 32 + sl_heat_layer_bytes(h);
    for (uint32_t e = 0; e < 16; e++)
        assert_true((sl_get_u16(layer1 + 4 + 2 * e) == 0) == (e >= 4));
    memcpy(second, image, n);
    memset(second + (layer1 - image) + 4 + 2 * 4, 0xee, 2 * 12); /* rates of no expert */
    sl_put_u32(second + n - 4, sl_crc32c(0, second, n - 4));
    assert_int_equal(sl_heat_import(again, second, n, &err), SL_OK);
    sl_heat_export(again, second);
    assert_memory_equal(image, second, n);
    struct sl_heat *part = create(
        &(struct sl_heat_config){.n_layer = 2, .n_expert = 16, .k = 3, .layers = layers + 1});
    sl_heat_take_layers(part, 0, h, 1, 2);
    for (uint16_t e = 0; e < 7; e++)
        assert_true(sl_heat_rates(part, 1)[e] == sl_heat_rates(h, 2)[e]);
    free(image);
    free(second);
    sl_heat_destroy(&part);
    sl_heat_destroy(&again);
    sl_heat_destroy(&h);
    static const struct sl_heat_layer bad[][1] = {{{0, 1}}, {{9, 1}}, {{8, 0}}, {{2, 3}}, {{8, 4}}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct sl_heat_config one = {.n_layer = 1, .n_expert = 8, .k = 3, .layers = bad[i]};
        assert_int_equal(sl_heat_create(&one, &h, &err), SL_ERR_INVALID);
    }
}

static void refuses_bad_shapes(void **state) {
    (void)state;
    static const struct sl_heat_config bad[] = {{0, 8, 2, NULL, 0}, {1025, 8, 2, NULL, 0},
                                                {4, 0, 1, NULL, 0}, {4, 4097, 2, NULL, 0},
                                                {4, 8, 0, NULL, 0}, {4, 8, 9, NULL, 0}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sl_heat *h = NULL;
        struct sl_err err = {""};
        assert_int_equal(sl_heat_create(&bad[i], &h, &err), SL_ERR_INVALID);
        assert_null(h);
        assert_non_null(strstr(err.text, "limits"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learns_frequencies),
        cmocka_unit_test(learns_runs),
        cmocka_unit_test(follows_a_change),
        cmocka_unit_test(batch_is_one_tick),
        cmocka_unit_test(prefill_counts_rows),
        cmocka_unit_test(long_idle_stays_finite),
        cmocka_unit_test(time_runs_over),
        cmocka_unit_test(position_and_version),
        cmocka_unit_test(hottest_first),
        cmocka_unit_test(a_share_of_every_layer_while_nothing_is_known),
        cmocka_unit_test(survives_a_restart),
        cmocka_unit_test(refuses_what_is_not_its_file),
        cmocka_unit_test(any_rates_will_do),
        cmocka_unit_test(layers_of_their_own),
        cmocka_unit_test(refuses_bad_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
