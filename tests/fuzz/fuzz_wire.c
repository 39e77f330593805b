/* What libmicrohttpd gets to read of what strangers send: the same however it is cut into pieces,
 * never more than the input but for a bad request's end, and canonical: it passes unchanged. */
#include "server/wire/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct passed {
    char *text;
    size_t n;
    struct sl_wire w;
};

static void pass(const char *in, size_t len, size_t piece, size_t cap, struct passed *p) {
    char buf[SL_WIRE_FEED_MAX];
    size_t room = 2 * len + SL_WIRE_SPILL_MAX;
    *p = (struct passed){.text = malloc(room)};
    while (p->text && (len || p->w.n_spill)) {
        size_t n = sl_wire_drain(&p->w, buf, cap), take = piece < len ? piece : len;
        if (take > cap - n)
            take = cap - n;
        n += sl_wire_feed(&p->w, in, take, buf + n, cap - n);
        in += take;
        len -= take;
        if (n > room - p->n)
            abort();
        memcpy(p->text + p->n, buf, n);
        p->n += n;
    }
}

static void must_equal(const struct passed *a, const struct passed *b) {
    if (a->n != b->n || memcmp(a->text, b->text, a->n) != 0 || a->w.n_requests != b->w.n_requests) {
        fprintf(stderr, "%.*s\n--- is not\n%.*s\n", (int)a->n, a->text, (int)b->n, b->text);
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct passed whole, other;
    const char *in = (const char *)data;
    size_t piece = size ? data[size - 1] % 61u + 1 : 1, cap = size ? data[0] % 61u + 1 : 1;
    pass(in, size, SL_WIRE_FEED_MAX, SL_WIRE_FEED_MAX, &whole);
    pass(in, size, piece, cap, &other);
    if (whole.text && other.text) {
        must_equal(&other, &whole);
        if (other.w.bad_request != whole.w.bad_request)
            abort();
    }
    free(other.text);
    pass(whole.text, whole.n, SL_WIRE_FEED_MAX, SL_WIRE_FEED_MAX, &other);
    if (whole.text && other.text) {
        must_equal(&other, &whole);
        if (other.w.bad)
            abort();
    }
    free(other.text);
    free(whole.text);
    return 0;
}
