#include "model/arch/arch_keys.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

const char *sl_keys_name(struct sl_keys *k, const char *key) {
    snprintf(k->name, sizeof k->name, "%s.%s", k->arch, key);
    return k->name;
}

const struct sl_gguf_kv *sl_keys_find(struct sl_keys *k, const char *key) {
    return sl_gguf_kv_find(k->g, sl_keys_name(k, key));
}

enum sl_status sl_keys_fail(struct sl_keys *k, enum sl_status status, const char *key,
                            const char *fmt, ...) {
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const struct sl_gguf_kv *kv = sl_keys_find(k, key);
    if (kv)
        return sl_gguf_kv_fail(k->g, kv, status, k->err, "%s", text);
    return sl_fail(k->err, status, "%.160s: key '%s': %s", sl_gguf_file_path(k->g, 0), k->name,
                   text);
}

/* NULL and SL_OK: absent, and not needed. */
static enum sl_status look_up(struct sl_keys *k, const char *key, bool needed,
                              const struct sl_gguf_kv **out_kv) {
    *out_kv = sl_keys_find(k, key);
    return *out_kv || !needed ? SL_OK
                              : sl_fail(k->err, SL_ERR_CORRUPT, "%.160s: key '%s' is missing",
                                        sl_gguf_file_path(k->g, 0), k->name);
}

/* One value for each layer? Of a type that sl_gguf_array_i64 reads. */
static enum sl_status check_array(struct sl_keys *k, const char *key, const struct sl_gguf_kv *kv,
                                  bool truth) {
    if (kv->elem_type == SL_GGUF_STRING || kv->elem_type == SL_GGUF_F32 ||
        kv->elem_type == SL_GGUF_F64 || (kv->elem_type == SL_GGUF_BOOL && !truth))
        return sl_keys_fail(k, SL_ERR_CORRUPT, key, truth ? "not truth values" : "not integers");
    if (truth && k->n_nextn && kv->n_elems == k->n_layer - k->n_nextn)
        return SL_OK;
    if (kv->n_elems == 0 || (k->n_layer && kv->n_elems != k->n_layer))
        return sl_keys_fail(k, SL_ERR_CORRUPT, key, "%" PRIu64 " values for %" PRIu32 " layers",
                            kv->n_elems, k->n_layer);
    return SL_OK;
}

enum sl_status sl_keys_u32(struct sl_keys *k, const char *key, bool needed, uint32_t min,
                           uint32_t max, uint32_t *out) {
    const struct sl_gguf_kv *kv;
    SL_TRY(look_up(k, key, needed, &kv));
    if (!kv)
        return SL_OK;
    uint32_t v;
    if (kv->type == SL_GGUF_ARRAY) {
        SL_TRY(check_array(k, key, kv, false));
        int64_t first = sl_gguf_array_i64(kv, 0);
        for (uint64_t i = 1; i < kv->n_elems; i++)
            if (sl_gguf_array_i64(kv, i) != first)
                return sl_keys_fail(k, SL_ERR_UNSUPPORTED, key,
                                    "differs between layers (%" PRId64 " in layer 0, %" PRId64
                                    " in layer %" PRIu64 "), which is not supported",
                                    first, sl_gguf_array_i64(kv, i), i);
        if (first < 0 || first > UINT32_MAX)
            return sl_keys_fail(k, SL_ERR_CORRUPT, key, "%" PRId64 " is out of range", first);
        v = (uint32_t)first;
    } else {
        SL_TRY(sl_gguf_get_u32(k->g, k->name, &v, k->err));
    }
    if (v < min || v > max)
        return sl_keys_fail(k, SL_ERR_CORRUPT, key,
                            "%" PRIu32 " is out of range, %" PRIu32 " to %" PRIu32 " are allowed",
                            v, min, max);
    *out = v;
    return SL_OK;
}

enum sl_status sl_keys_u32_each(struct sl_keys *k, const char *key, bool needed, uint32_t min,
                                uint32_t max, uint32_t *out) {
    const struct sl_gguf_kv *kv;
    SL_TRY(look_up(k, key, needed, &kv));
    if (!kv)
        return SL_OK;
    if (kv->type != SL_GGUF_ARRAY) {
        SL_TRY(sl_keys_u32(k, key, needed, min, max, &out[0]));
        for (uint32_t l = 1; l < k->n_layer; l++)
            out[l] = out[0];
        return SL_OK;
    }
    SL_TRY(check_array(k, key, kv, false));
    for (uint32_t l = 0; l < k->n_layer; l++) {
        int64_t v = sl_gguf_array_i64(kv, l);
        if (v < min || v > max)
            return sl_keys_fail(k, SL_ERR_CORRUPT, key,
                                "%" PRId64 " of layer %" PRIu32 " is out of range, %" PRIu32
                                " to %" PRIu32 " are allowed",
                                v, l, min, max);
        out[l] = (uint32_t)v;
    }
    return SL_OK;
}

enum sl_status sl_keys_f32(struct sl_keys *k, const char *key, float min, float max, float *out) {
    float v;
    enum sl_status status = sl_gguf_get_f32(k->g, sl_keys_name(k, key), &v, k->err);
    if (status == SL_AGAIN)
        return SL_OK;
    if (status != SL_OK)
        return status;
    if (!(v >= min && v <= max))
        return sl_keys_fail(k, SL_ERR_CORRUPT, key, "%g is out of range, %g to %g are allowed",
                            (double)v, (double)min, (double)max);
    *out = v;
    return SL_OK;
}

enum sl_status sl_keys_f32_each(struct sl_keys *k, const char *key, float min, float max,
                                float *out) {
    const struct sl_gguf_kv *kv = sl_keys_find(k, key);
    if (!kv)
        return SL_OK;
    if (kv->type != SL_GGUF_ARRAY) {
        SL_TRY(sl_keys_f32(k, key, min, max, &out[0]));
        for (uint32_t l = 1; l < k->n_layer; l++)
            out[l] = out[0];
        return SL_OK;
    }
    if (kv->elem_type != SL_GGUF_F32 && kv->elem_type != SL_GGUF_F64)
        return sl_keys_fail(k, SL_ERR_CORRUPT, key, "not floats");
    if (kv->n_elems != k->n_layer)
        return sl_keys_fail(k, SL_ERR_CORRUPT, key, "%" PRIu64 " values for %" PRIu32 " layers",
                            kv->n_elems, k->n_layer);
    for (uint32_t l = 0; l < k->n_layer; l++) {
        double v = sl_gguf_array_f64(kv, l);
        if (!(v >= (double)min && v <= (double)max))
            return sl_keys_fail(k, SL_ERR_CORRUPT, key,
                                "%g of layer %" PRIu32 " is out of range, %g to %g are allowed", v,
                                l, (double)min, (double)max);
        out[l] = (float)v;
    }
    return SL_OK;
}

enum sl_status sl_keys_bool(struct sl_keys *k, const char *key, bool *out) {
    enum sl_status status = sl_gguf_get_bool(k->g, sl_keys_name(k, key), out, k->err);
    return status == SL_AGAIN ? SL_OK : status;
}

enum sl_status sl_keys_pattern(struct sl_keys *k, const char *key, bool *out) {
    const struct sl_gguf_kv *kv = sl_keys_find(k, key);
    if (!kv)
        return SL_OK;
    if (kv->type == SL_GGUF_ARRAY) {
        SL_TRY(check_array(k, key, kv, true));
        for (uint32_t l = 0; l < kv->n_elems; l++)
            out[l] = sl_gguf_array_i64(kv, l) != 0;
        return SL_OK;
    }
    uint32_t n = 0;
    SL_TRY(sl_keys_u32(k, key, true, 0, UINT32_MAX, &n));
    for (uint32_t l = 0; l < k->n_layer; l++)
        out[l] = n == 0 || l % n < n - 1;
    return SL_OK;
}
