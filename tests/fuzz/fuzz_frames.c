/* What a peer may send before the first step: a frame's head, or one of the set-up messages, chosen
 * by the first byte. What is taken is written again as the same bytes, but for texts, which become
 * one line; that is taken too, and written as the same once more. */
#include "cluster/setup.h"
#include "net/frame.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void head(const uint8_t *data, size_t size) {
    struct sl_frame_head h;
    struct sl_err err;
    uint8_t again[SL_FRAME_HEAD_BYTES];
    if (size < SL_FRAME_HEAD_BYTES || sl_frame_get_head(data, 1, 1 << 20, &h, &err) != SL_OK)
        return;
    if (h.n_bytes > 1 << 20)
        abort();
    sl_frame_put_head(&h, again);
    if (memcmp(again, data, sizeof again) != 0)
        abort();
}

#define STRUCT(name, doc)
#define MESSAGE(name, frame, doc)                                                                  \
    static void take_##name(const uint8_t *data, size_t size) {                                    \
        static struct sl_setup_##name m;                                                           \
        static uint8_t first[SL_SETUP_MAX_BYTES], second[SL_SETUP_MAX_BYTES];                      \
        struct sl_err err;                                                                         \
        if (sl_setup_get_##name(data, size, &m, &err) != SL_OK)                                    \
            return;                                                                                \
        size_t n = sl_setup_put_##name(&m, first);                                                 \
        if (n > size || sl_setup_get_##name(first, n, &m, &err) != SL_OK ||                        \
            sl_setup_put_##name(&m, second) != n || memcmp(first, second, n) != 0)                 \
            abort();                                                                               \
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static void (*const take[])(const uint8_t *, size_t) = {
        head,
#define MESSAGE(name, frame, doc) take_##name,
#include "cluster/setup.def"
    };
    if (size)
        take[data[0] % (sizeof take / sizeof *take)](data + 1, size - 1);
    return 0;
}
