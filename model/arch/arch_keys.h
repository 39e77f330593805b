/* Reading "<arch>.*" keys, inside model/arch. Every failure names the key. */
#ifndef SL_MODEL_ARCH_KEYS_H
#define SL_MODEL_ARCH_KEYS_H

#include "model/gguf/gguf.h"

struct sl_keys {
    const struct sl_gguf *g;
    const char *arch;
    struct sl_err *err;
    uint32_t n_layer; /* 0 until known */
    uint32_t n_nextn; /* of these, behind the others: patterns may leave them out */
    char name[128];   /* of the key last asked for */
};

/* "<arch>.<key>", until the next call. */
const char *sl_keys_name(struct sl_keys *k, const char *key);
/* NULL: absent. */
const struct sl_gguf_kv *sl_keys_find(struct sl_keys *k, const char *key);
enum sl_status sl_keys_fail(struct sl_keys *k, enum sl_status status, const char *key,
                            const char *fmt, ...) SL_PRINTF(4, 5);

/* An integer in [min, max]. Absent: *out is kept, or an error when it is needed. An array with a
 * value for each layer is taken when all agree. */
enum sl_status sl_keys_u32(struct sl_keys *k, const char *key, bool needed, uint32_t min,
                           uint32_t max, uint32_t *out) SL_MUST_CHECK;
/* The same with a value for each layer, [n_layer]: one for all, or an array. */
enum sl_status sl_keys_u32_each(struct sl_keys *k, const char *key, bool needed, uint32_t min,
                                uint32_t max, uint32_t *out) SL_MUST_CHECK;
/* Absent: *out is kept. */
enum sl_status sl_keys_f32(struct sl_keys *k, const char *key, float min, float max,
                           float *out) SL_MUST_CHECK;
/* Of each layer, [n_layer]: one for all, or an array. Absent: out is kept. */
enum sl_status sl_keys_f32_each(struct sl_keys *k, const char *key, float min, float max,
                                float *out) SL_MUST_CHECK;
enum sl_status sl_keys_bool(struct sl_keys *k, const char *key, bool *out) SL_MUST_CHECK;
/* Of each layer, [n_layer]: an array of truth values; or a number n, true but for every n-th layer:
 * 2 alternates, beginning with true; 1 is false everywhere, 0 true. Absent: out is kept. */
enum sl_status sl_keys_pattern(struct sl_keys *k, const char *key, bool *out) SL_MUST_CHECK;

#endif
