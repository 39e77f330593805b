/* Heads of frames: what is written is read again, and nothing else. */
#include "net/frame.h"

#include "common/bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct sl_frame_head sound = {SL_FRAME_CALL, 7, 41, 1000};

static enum sl_status get(const uint8_t *bytes, struct sl_frame_head *out, struct sl_err *err) {
    return sl_frame_get_head(bytes, 41, 4096, out, err);
}

static void what_is_written_is_read(void **state) {
    (void)state;
    uint8_t bytes[SL_FRAME_HEAD_BYTES];
    struct sl_frame_head h;
    struct sl_err err;
    sl_frame_put_head(&sound, bytes);
    assert_int_equal(get(bytes, &h, &err), SL_OK);
    assert_int_equal(h.type, sound.type);
    assert_int_equal(h.epoch, sound.epoch);
    assert_int_equal(h.seqno, sound.seqno);
    assert_int_equal(h.n_bytes, sound.n_bytes);
}

/* One field at a time. */
static void what_is_wrong_is_refused(void **state) {
    (void)state;
    static const struct {
        size_t at;
        uint64_t value;
        size_t bytes;
        const char *says;
    } lies[] = {
        {0, 0x20544547, 4, "no frame"},
        {4, 2, 2, "version 2"},
        {6, 0, 2, "type 0"},
        {6, SL_FRAME_TYPES, 2, "type"},
        {12, 1, 4, "type"},
        {16, 40, 8, "came twice"},
        {16, 42, 8, "is lost"},
        {16, UINT64_MAX, 8, "41 should be"},
        {24, 4097, 8, "at most 4096"},
        {24, (uint64_t)1 << 63, 8, "at most 4096"},
        {24, UINT64_MAX, 8, "at most 4096"},
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        uint8_t bytes[SL_FRAME_HEAD_BYTES];
        struct sl_frame_head h;
        struct sl_err err = {{0}};
        sl_frame_put_head(&sound, bytes);
        for (size_t k = 0; k < lies[i].bytes; k++)
            bytes[lies[i].at + k] = (uint8_t)(lies[i].value >> 8 * k);
        assert_int_equal(get(bytes, &h, &err), SL_ERR_PROTOCOL);
        if (!strstr(err.text, lies[i].says))
            fail_msg("lie %zu: '%s' does not say '%s'", i, err.text, lies[i].says);
    }
}

/* Each type's own bound holds beside the link's. */
static void types_are_bounded(void **state) {
    (void)state;
    for (uint32_t t = SL_FRAME_NONE + 1; t < SL_FRAME_TYPES; t++) {
        struct sl_frame_head h = {(uint16_t)t, 0, 1, 0};
        uint8_t bytes[SL_FRAME_HEAD_BYTES];
        struct sl_err err;
        uint64_t most = sl_frame_max_payload(t, 1 << 20);
        assert_true(most <= 1 << 20);
        assert_string_not_equal(sl_frame_name(t), "?");
        for (uint32_t over = 0; over < 2; over++) {
            h.n_bytes = most + over;
            sl_frame_put_head(&h, bytes);
            assert_int_equal(sl_frame_get_head(bytes, 1, 1 << 20, &h, &err),
                             over ? SL_ERR_PROTOCOL : SL_OK);
        }
    }
    assert_int_equal(sl_frame_max_payload(SL_FRAME_HEARTBEAT, 1 << 20), 8);
    assert_string_equal(sl_frame_name(SL_FRAME_TYPES), "?");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(what_is_wrong_is_refused),
        cmocka_unit_test(types_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
