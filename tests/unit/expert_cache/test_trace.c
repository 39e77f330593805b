/* Router traces: the format, its lies, and the generator. */
#include "common/crc.h"
#include "common/rng.h"
#include "common/bytes.h"
#include "expert_cache/trace.h"
#include "expert_cache/trace_synth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct image {
    struct sl_trace_shape shape;
    size_t size;
    uint8_t data[4096];
};

static void begin(struct image *im, uint32_t n_layer, uint32_t n_expert, uint32_t k) {
    struct sl_err err = {""};
    im->shape = (struct sl_trace_shape){0xfeed, n_layer, n_expert, k};
    assert_int_equal(sl_trace_write_header(&im->shape, im->data, &err), SL_OK);
    im->size = SL_TRACE_HEADER_BYTES;
}

static void put(struct image *im, const struct sl_trace_record *r) {
    assert_true(im->size + SL_TRACE_RECORD_BYTES <= sizeof im->data);
    size_t n = sl_trace_write(&im->shape, r, im->data + im->size);
    assert_int_equal(n, sl_trace_record_bytes(&im->shape));
    im->size += n;
}

static struct sl_trace_record record(struct sl_rng *rng, const struct sl_trace_shape *s,
                                     uint16_t layer, bool first) {
    struct sl_trace_record r = {.sequence = (uint32_t)sl_rng_u64(rng),
                                .position_tokens = (uint32_t)sl_rng_u64(rng),
                                .layer = layer,
                                .first_of_step = first,
                                .phase = sl_rng_below(rng, 2) ? SL_PHASE_PREFILL : SL_PHASE_DECODE};
    uint32_t from = sl_rng_below(rng, s->n_expert);
    for (uint32_t i = 0; i < s->k; i++)
        r.ids[i] = (uint16_t)((from + i) % s->n_expert);
    return r;
}

/* Reads all of it from memory of exactly its size; the first error ends it. */
static enum sl_status read_all(const uint8_t *data, size_t size, uint64_t *out_n,
                               struct sl_err *err) {
    uint8_t *exact = malloc(size ? size : 1);
    memcpy(exact, data, size);
    struct sl_trace_reader r;
    struct sl_trace_record rec;
    bool end = false;
    *out_n = 0;
    enum sl_status status = sl_trace_open(&r, exact, size, err);
    while (status == SL_OK) {
        status = sl_trace_next(&r, &rec, &end, err);
        if (status != SL_OK || end)
            break;
        ++*out_n;
        assert_true(rec.layer < r.shape.n_layer);
        for (uint32_t i = 0; i < r.shape.k; i++)
            assert_true(rec.ids[i] < r.shape.n_expert);
    }
    free(exact);
    return status;
}

static void round_trip(void **state) {
    (void)state;
    static const uint32_t shapes[][3] = {
        {1, 1, 1}, {48, 128, 8}, {61, 256, 8}, {3, 257, 2}, {1024, 4096, 64}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        struct sl_rng rng = {s + 1};
        struct image im;
        struct sl_trace_record in[24];
        begin(&im, shapes[s][0], shapes[s][1], shapes[s][2]);
        assert_int_equal(sl_trace_record_bytes(&im.shape),
                         10 + im.shape.k * (im.shape.n_expert > 256 ? 2 : 1));
        for (uint32_t i = 0; i < 24; i++) {
            uint16_t layer = (uint16_t)(i / 3 * 131 % im.shape.n_layer);
            in[i] = record(&rng, &im.shape, layer, i % 3 == 0);
            put(&im, &in[i]);
        }
        struct sl_trace_reader r;
        struct sl_err err = {""};
        struct sl_trace_record rec;
        bool end;
        assert_int_equal(sl_trace_open(&r, im.data, im.size, &err), SL_OK);
        assert_int_equal(r.n_records, 24);
        assert_int_equal(r.shape.fingerprint, 0xfeed);
        assert_int_equal(r.shape.n_layer, im.shape.n_layer);
        assert_int_equal(r.shape.n_expert, im.shape.n_expert);
        assert_int_equal(r.shape.k, im.shape.k);
        for (uint32_t i = 0; i < 24; i++) {
            assert_int_equal(sl_trace_next(&r, &rec, &end, &err), SL_OK);
            assert_false(end);
            assert_int_equal(rec.sequence, in[i].sequence);
            assert_int_equal(rec.position_tokens, in[i].position_tokens);
            assert_int_equal(rec.layer, in[i].layer);
            assert_int_equal(rec.first_of_step, in[i].first_of_step);
            assert_int_equal(rec.phase, in[i].phase);
            assert_memory_equal(rec.ids, in[i].ids, im.shape.k * sizeof *rec.ids);
        }
        assert_int_equal(sl_trace_next(&r, &rec, &end, &err), SL_OK);
        assert_true(end);
    }
}

static void expect_refused(const struct image *im, enum sl_status want, const char *word) {
    struct sl_err err = {""};
    uint64_t n;
    enum sl_status status = read_all(im->data, im->size, &n, &err);
    if (status != want || !strstr(err.text, word))
        fail_msg("status %d, want %d with '%s': %s", status, want, word, err.text);
}

static void sign(struct image *im) {
    sl_put_u32(im->data + 28, sl_crc32c(0, im->data, 28));
}

static void refuses_lies(void **state) {
    (void)state;
    struct image good, im;
    struct sl_rng rng = {9};
    begin(&good, 4, 300, 2);
    for (uint16_t i = 0; i < 6; i++) {
        struct sl_trace_record r = record(&rng, &good.shape, (uint16_t)(i / 2), i % 2 == 0);
        put(&good, &r);
    }
    uint64_t n;
    struct sl_err err = {""};
    assert_int_equal(read_all(good.data, good.size, &n, &err), SL_OK);
    assert_int_equal(n, 6);

    for (im = good; im.size > 0;) { /* cut anywhere */
        im.size--;
        if (im.size < 32)
            expect_refused(&im, SL_ERR_CORRUPT, "not a router trace");
        else if ((im.size - 32) % 14)
            expect_refused(&im, SL_ERR_CORRUPT, "cut short");
    }
    for (size_t at = 0; at < 32; at++) { /* any damage of the header */
        im = good;
        im.data[at] ^= 0x10;
        expect_refused(&im, at == 7 ? SL_ERR_INVALID : SL_ERR_CORRUPT,
                       at < 7    ? "SLTRACE"
                       : at == 7 ? "version"
                                 : "checksum");
    }
    static const uint16_t shapes[][3] = {{0, 8, 2}, {1025, 8, 2}, {4, 0, 2},   {4, 4097, 2},
                                         {4, 8, 0}, {4, 8, 9},    {4, 300, 65}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        im = good;
        for (int j = 0; j < 3; j++)
            sl_put_u16(im.data + 16 + 2 * j, shapes[i][j]);
        sign(&im);
        expect_refused(&im, SL_ERR_CORRUPT, "out of range");
        struct sl_trace_shape s = {0, shapes[i][0], shapes[i][1], shapes[i][2]};
        assert_int_equal(sl_trace_write_header(&s, im.data, &err), SL_ERR_INVALID);
    }
    uint8_t *third = NULL;
    im = good;
    third = im.data + 32 + 2 * 14;
    sl_put_u16(third + 8, 4 | 0x4000);
    expect_refused(&im, SL_ERR_CORRUPT, "record 2: layer 4 of 4");
    sl_put_u16(third + 8, 1 | 0x2000 | 0x4000);
    expect_refused(&im, SL_ERR_CORRUPT, "record 2: unknown flags");
    sl_put_u16(third + 8, 1);
    expect_refused(&im, SL_ERR_CORRUPT, "record 2: layer 1 does not continue");
    im = good;
    sl_put_u16(third + 10, 300);
    expect_refused(&im, SL_ERR_CORRUPT, "record 2: expert 300 of 300");
    im = good;
    memcpy(third + 12, third + 10, 2);
    expect_refused(&im, SL_ERR_CORRUPT, "record 2: expert");
    im = good;
    sl_put_u16(im.data + 40, 0); /* a file that starts inside a step */
    expect_refused(&im, SL_ERR_CORRUPT, "record 0");
}

static void random_damage(void **state) {
    (void)state;
    struct sl_rng rng = {77};
    struct image good, im;
    begin(&good, 4, 16, 3);
    for (uint16_t i = 0; i < 40; i++) {
        struct sl_trace_record r = record(&rng, &good.shape, (uint16_t)(i / 2 % 4), i % 2 == 0);
        put(&good, &r);
    }
    uint32_t n_refused = 0;
    for (uint32_t round = 0; round < 20000; round++) {
        im = good;
        for (uint32_t i = 1 + sl_rng_below(&rng, 4); i-- > 0;)
            im.data[sl_rng_below(&rng, (uint32_t)im.size)] = (uint8_t)sl_rng_u64(&rng);
        if (round % 2)
            sign(&im);
        if (round % 3 == 0)
            im.size = sl_rng_below(&rng, (uint32_t)im.size + 1);
        struct sl_err err = {""};
        uint64_t n;
        if (read_all(im.data, im.size, &n, &err) != SL_OK) {
            assert_true(err.text[0] != 0);
            n_refused++;
        }
    }
    assert_true(n_refused > 1000 && n_refused < 20000);
}

/* ---- the generator ---- */

static void synth_is_seeded(void **state) {
    (void)state;
    for (int kind = 0; kind < SL_TRACE_KINDS; kind++) {
        struct sl_trace_synth c = {kind, 3, 20, 4, 2, 30, 5, 10, 7, 42};
        size_t size = sl_trace_synth_bytes(&c);
        uint8_t *a = malloc(size), *b = malloc(size);
        struct sl_err err = {""};
        assert_int_equal(sl_trace_synth(&c, a, &err), SL_OK);
        assert_int_equal(sl_trace_synth(&c, b, &err), SL_OK);
        assert_memory_equal(a, b, size);
        c.seed++;
        assert_int_equal(sl_trace_synth(&c, b, &err), SL_OK);
        assert_memory_not_equal(a, b, size);
        /* Valid, complete, positions without gaps, prefill where it was asked for. */
        struct sl_trace_reader r;
        struct sl_trace_record rec;
        bool end;
        uint32_t next[2][3] = {{0}}, n_prefill = 0;
        assert_int_equal(sl_trace_open(&r, a, size, &err), SL_OK);
        assert_int_equal(r.n_records, 3 * 2 * (30 + 3 * 5));
        for (;;) {
            assert_int_equal(sl_trace_next(&r, &rec, &end, &err), SL_OK);
            if (end)
                break;
            assert_int_equal(rec.position_tokens, next[rec.sequence][rec.layer]++);
            n_prefill += rec.phase == SL_PHASE_PREFILL;
        }
        assert_int_equal(n_prefill, 3 * 2 * 3 * 5);
        free(a);
        free(b);
    }
    struct sl_trace_synth none = {SL_TRACE_UNIFORM, 3, 20, 4, 0, 30, 0, 0, 0, 1};
    uint8_t out[64];
    struct sl_err err = {""};
    assert_int_equal(sl_trace_synth(&none, out, &err), SL_ERR_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(refuses_lies),
        cmocka_unit_test(random_damage),
        cmocka_unit_test(synth_is_seeded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
