/* A GGUF file from a stranger: open it, walk all of it, open it as a model. */
#include "model/arch/model.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink; /* keeps the reads alive */

static void walk(const struct sl_gguf *g) {
    struct sl_err err;
    char text[64];
    uint64_t sum = sl_gguf_fingerprint(g);
    for (uint64_t i = 0; i < sl_gguf_n_kv(g); i++) {
        const struct sl_gguf_kv *kv = sl_gguf_kv_at(g, i);
        sum += (unsigned char)sl_str_escape(kv->key, text, sizeof text)[0];
        for (uint64_t j = 0; kv->elem_type != SL_GGUF_STRING && j < kv->n_elems; j++) {
            sum += (uint64_t)sl_gguf_array_i64(kv, j);
            sum += sl_gguf_array_f64(kv, j) > 1.0;
        }
        struct sl_gguf_str_iter it = {.kv = kv};
        for (struct sl_str s; sl_gguf_str_next(&it, &s);)
            for (size_t j = 0; j < s.len; j++)
                sum += (unsigned char)s.ptr[j];
    }
    for (uint64_t i = 0; i < sl_gguf_n_tensors(g); i++) {
        const struct sl_gguf_tensor *t = sl_gguf_tensor_at(g, i);
        if (t->offset_bytes + t->size_bytes > sl_gguf_file_bytes(g, t->file))
            abort();
    }
    uint32_t u;
    float f;
    bool b;
    struct sl_str s;
    if (sl_gguf_get_u32(g, "a", &u, &err) == SL_OK)
        sum += u;
    if (sl_gguf_get_f32(g, "a", &f, &err) == SL_OK)
        sum += f > 0;
    if (sl_gguf_get_bool(g, "a", &b, &err) == SL_OK)
        sum += b;
    if (sl_gguf_get_str(g, "a", &s, &err) == SL_OK)
        sum += s.len;
    sink = sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sl_gguf *g = NULL;
    struct sl_model *m = NULL;
    struct sl_err err = {""};
    if (sl_gguf_open_memory(data, size, &g, &err) != SL_OK) {
        if (!err.text[0])
            abort(); /* an error without a text */
        return 0;
    }
    walk(g);
    if (sl_model_from_gguf(g, &m, &err) != SL_OK) {
        if (!err.text[0])
            abort();
        return 0;
    }
    uint64_t sum = sl_model_fingerprint(m);
    for (uint32_t l = 0; l < m->hp.n_layer; l++)
        sum += sl_model_expert_bytes(m, l);
    sink = sum;
    sl_model_close(&m);
    return 0;
}
