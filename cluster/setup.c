#include "cluster/setup.h"

#include "common/bytes.h"
#include "common/utf8.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- writing: into a buffer that holds the longest message ---- */

struct writer {
    uint8_t *out;
    size_t n;
};

static uint8_t *room_for(struct writer *w, size_t n) {
    assert(w->n + n <= SL_SETUP_MAX_BYTES);
    w->n += n;
    return w->out + w->n - n;
}

static void put_u32(struct writer *w, uint32_t v) {
    sl_put_u32(room_for(w, 4), v);
}

static void put_u64(struct writer *w, uint64_t v) {
    sl_put_u64(room_for(w, 8), v);
}

static void put_f64(struct writer *w, double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_u64(w, bits);
}

static void put_text(struct writer *w, const char *text, size_t size) {
    size_t n = strnlen(text, size - 1);
    put_u32(w, (uint32_t)n);
    memcpy(room_for(w, n), text, n);
}

#define STRUCT(name, text)                                                                         \
    static void put_##name(struct writer *w, const struct sl_setup_##name *m) {
#define MESSAGE(name, frame, text) STRUCT(name, text)
#define U32(field, text)           put_u32(w, m->field);
#define U64(field, text)           put_u64(w, m->field);
#define F64(field, text)           put_f64(w, m->field);
#define FLAG(field, text)          *room_for(w, 1) = m->field;
#define TEXT(field, size, text)    put_text(w, m->field, size);
#define LIST(of, field, max, text)                                                                 \
    put_u32(w, m->n_##field);                                                                      \
    for (uint32_t i = 0; i < m->n_##field; i++)                                                    \
        put_##of(w, &m->field[i]);
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

/* ---- reading ---- */

struct reader {
    const uint8_t *at, *end;
    const char *bad; /* the first field that was wrong */
};

static const uint8_t *take(struct reader *r, size_t n, const char *field) {
    if (r->bad || (size_t)(r->end - r->at) < n) {
        r->bad = r->bad ? r->bad : field;
        return NULL;
    }
    r->at += n;
    return r->at - n;
}

static void check(struct reader *r, bool ok, const char *field) {
    if (!ok && !r->bad)
        r->bad = field;
}

static uint32_t get_u32(struct reader *r, const char *field) {
    const uint8_t *p = take(r, 4, field);
    return p ? sl_get_u32(p) : 0;
}

static uint64_t get_u64(struct reader *r, const char *field) {
    const uint8_t *p = take(r, 8, field);
    return p ? sl_get_u64(p) : 0;
}

static double get_f64(struct reader *r, const char *field) {
    uint64_t bits = get_u64(r, field);
    double v;
    memcpy(&v, &bits, sizeof v);
    check(r, isfinite(v) && v >= 0, field);
    return v;
}

static bool get_flag(struct reader *r, const char *field) {
    const uint8_t *p = take(r, 1, field);
    check(r, !p || *p <= 1, field);
    return p && *p == 1;
}

static void get_text(struct reader *r, char *out, size_t size, const char *field) {
    uint32_t n = get_u32(r, field);
    check(r, n < size, field);
    const uint8_t *p = take(r, n, field);
    out[0] = 0;
    if (!p)
        return;
    sl_utf8_line(out, p, n);
    out[n] = 0;
}

static uint32_t get_count(struct reader *r, uint32_t max, const char *field) {
    uint32_t n = get_u32(r, field);
    check(r, n <= max, field);
    return r->bad ? 0 : n;
}

#define STRUCT(name, text)         static void get_##name(struct reader *r, struct sl_setup_##name *m) {
#define MESSAGE(name, frame, text) STRUCT(name, text)
#define U32(field, text)           m->field = get_u32(r, #field);
#define U64(field, text)           m->field = get_u64(r, #field);
#define F64(field, text)           m->field = get_f64(r, #field);
#define FLAG(field, text)          m->field = get_flag(r, #field);
#define TEXT(field, size, text)    get_text(r, m->field, size, #field);
#define LIST(of, field, max, text)                                                                 \
    m->n_##field = get_count(r, max, #field);                                                      \
    for (uint32_t i = 0; i < m->n_##field; i++)                                                    \
        get_##of(r, &m->field[i]);
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

static enum sl_status ended(const struct reader *r, const char *what, struct sl_err *err) {
    if (r->bad)
        return sl_fail(err, SL_ERR_PROTOCOL, "a '%s' message whose field '%s' is cut off or wrong",
                       what, r->bad);
    return r->at == r->end
               ? SL_OK
               : sl_fail(err, SL_ERR_PROTOCOL, "a '%s' message with more bytes than fields", what);
}

/* ---- both, by message ---- */

#define STRUCT(name, text)
#define MESSAGE(name, frame, text)                                                                 \
    size_t sl_setup_put_##name(const struct sl_setup_##name *m, uint8_t out[SL_SETUP_MAX_BYTES]) { \
        struct writer w = {out, 0};                                                                \
        put_##name(&w, m);                                                                         \
        return w.n;                                                                                \
    }                                                                                              \
    enum sl_status sl_setup_get_##name(const uint8_t *bytes, size_t n,                             \
                                       struct sl_setup_##name *out, struct sl_err *err) {          \
        struct reader r = {bytes, bytes + n, NULL};                                                \
        memset(out, 0, sizeof *out);                                                               \
        get_##name(&r, out);                                                                       \
        return ended(&r, #name, err);                                                              \
    }
#define U32(field, text)
#define U64(field, text)
#define F64(field, text)
#define FLAG(field, text)
#define TEXT(field, size, text)
#define LIST(of, field, max, text)
#define END
#include "cluster/setup.def"
