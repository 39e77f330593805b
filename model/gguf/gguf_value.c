/* The values of keys: numbers of any type, strings, arrays. That they are whole was checked when
 * the file was opened (gguf_parse.c). */
#include "model/gguf/gguf_internal.h"

#include <endian.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- elements ---- */

#define LOAD(T, conv, bits)                                                                        \
    do {                                                                                           \
        uint##bits##_t u_;                                                                         \
        T v_;                                                                                      \
        memcpy(&u_, p + i * sizeof u_, sizeof u_);                                                 \
        u_ = conv(u_);                                                                             \
        memcpy(&v_, &u_, sizeof v_);                                                               \
        return (RESULT)v_;                                                                         \
    } while (0)

double sl_gguf_elem_f64(enum sl_gguf_type type, const void *data, uint64_t i) {
#define RESULT double
    const uint8_t *p = data;
    switch (type) {
    case SL_GGUF_F32:
        LOAD(float, le32toh, 32);
    case SL_GGUF_F64:
        LOAD(double, le64toh, 64);
    case SL_GGUF_U64:
        LOAD(uint64_t, le64toh, 64);
    default:
        return (double)sl_gguf_elem_i64(type, data, i);
    }
#undef RESULT
}

static int64_t clamp_i64(double v) {
    if (isnan(v))
        return 0;
    if (v >= 0x1p63)
        return INT64_MAX;
    return v < -0x1p63 ? INT64_MIN : (int64_t)v;
}

int64_t sl_gguf_elem_i64(enum sl_gguf_type type, const void *data, uint64_t i) {
#define RESULT int64_t
    const uint8_t *p = data;
    switch (type) {
    case SL_GGUF_U8:
    case SL_GGUF_BOOL:
        return p[i];
    case SL_GGUF_I8:
        return (int8_t)p[i];
    case SL_GGUF_U16:
        LOAD(uint16_t, le16toh, 16);
    case SL_GGUF_I16:
        LOAD(int16_t, le16toh, 16);
    case SL_GGUF_U32:
        LOAD(uint32_t, le32toh, 32);
    case SL_GGUF_I32:
        LOAD(int32_t, le32toh, 32);
    case SL_GGUF_I64:
        LOAD(int64_t, le64toh, 64);
    case SL_GGUF_U64: {
        uint64_t u;
        memcpy(&u, p + i * 8, 8);
        u = le64toh(u);
        return u > INT64_MAX ? INT64_MAX : (int64_t)u;
    }
    case SL_GGUF_F32:
    case SL_GGUF_F64:
        return clamp_i64(sl_gguf_elem_f64(type, data, i));
    case SL_GGUF_STRING:
    case SL_GGUF_ARRAY:
        break;
    }
    return 0;
#undef RESULT
}

/* ---- keys ---- */

#define ONE(type) (1u << (type))
#define INTEGERS                                                                                   \
    (ONE(SL_GGUF_U8) | ONE(SL_GGUF_I8) | ONE(SL_GGUF_U16) | ONE(SL_GGUF_I16) | ONE(SL_GGUF_U32) |  \
     ONE(SL_GGUF_I32) | ONE(SL_GGUF_U64) | ONE(SL_GGUF_I64))
#define FLOATS (ONE(SL_GGUF_F32) | ONE(SL_GGUF_F64))

/* A key whose value is of one of these types. */
static enum sl_status find(const struct sl_gguf *g, const char *key, uint32_t types,
                           const char *kind, const struct sl_gguf_kv **out_kv, struct sl_err *err) {
    const struct sl_gguf_kv *kv = sl_gguf_kv_find(g, key);
    if (!kv)
        return SL_AGAIN;
    if (!(types & ONE(kv->type)))
        return sl_gguf_kv_fail(g, kv, SL_ERR_CORRUPT, err, "not %s", kind);
    *out_kv = kv;
    return SL_OK;
}

enum sl_status sl_gguf_get_u32(const struct sl_gguf *g, const char *key, uint32_t *out,
                               struct sl_err *err) {
    const struct sl_gguf_kv *kv = NULL;
    SL_TRY(find(g, key, INTEGERS, "an integer", &kv, err));
    int64_t v = sl_gguf_elem_i64(kv->type, kv->data, 0);
    if (v < 0 || v > UINT32_MAX)
        return sl_gguf_kv_fail(g, kv, SL_ERR_CORRUPT, err, "%" PRId64 " is out of range", v);
    *out = (uint32_t)v;
    return SL_OK;
}

enum sl_status sl_gguf_get_f32(const struct sl_gguf *g, const char *key, float *out,
                               struct sl_err *err) {
    const struct sl_gguf_kv *kv = NULL;
    SL_TRY(find(g, key, FLOATS, "a floating-point number", &kv, err));
    double v = sl_gguf_elem_f64(kv->type, kv->data, 0);
    if (!isfinite(v) || fabs(v) > (double)__FLT_MAX__)
        return sl_gguf_kv_fail(g, kv, SL_ERR_CORRUPT, err, "%g is not a finite float", v);
    *out = (float)v;
    return SL_OK;
}

enum sl_status sl_gguf_get_bool(const struct sl_gguf *g, const char *key, bool *out,
                                struct sl_err *err) {
    const struct sl_gguf_kv *kv = NULL;
    enum sl_status status = find(g, key, ONE(SL_GGUF_BOOL), "a boolean", &kv, err);
    if (status == SL_OK)
        *out = *(const uint8_t *)kv->data != 0;
    return status;
}

enum sl_status sl_gguf_get_str(const struct sl_gguf *g, const char *key, struct sl_str *out,
                               struct sl_err *err) {
    const struct sl_gguf_kv *kv = NULL;
    enum sl_status status = find(g, key, ONE(SL_GGUF_STRING), "a string", &kv, err);
    if (status == SL_OK)
        *out = (struct sl_str){kv->data, (size_t)kv->data_bytes};
    return status;
}

bool sl_gguf_str_next(struct sl_gguf_str_iter *it, struct sl_str *out) {
    const struct sl_gguf_kv *kv = it->kv;
    if (kv->type != SL_GGUF_ARRAY || kv->elem_type != SL_GGUF_STRING || it->index >= kv->n_elems)
        return false;
    const uint8_t *p = (const uint8_t *)kv->data + it->offset_bytes;
    uint64_t len; /* checked when the file was opened */
    memcpy(&len, p, 8);
    len = le64toh(len);
    out->ptr = (const char *)p + 8;
    out->len = (size_t)len;
    it->offset_bytes += 8 + len;
    it->index++;
    return true;
}

double sl_gguf_array_f64(const struct sl_gguf_kv *kv, uint64_t i) {
    return sl_gguf_elem_f64(kv->elem_type, kv->data, i);
}

int64_t sl_gguf_array_i64(const struct sl_gguf_kv *kv, uint64_t i) {
    return sl_gguf_elem_i64(kv->elem_type, kv->data, i);
}
