#include "cli/inspect/inspect.h"
#include "common/utf8.h"

#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* JSON text is UTF-8 without NUL here: what is not becomes \xNN. */
static json_t *text_of(struct sl_str s) {
    if (sl_utf8_valid_prefix(s.ptr, s.len) == s.len && !memchr(s.ptr, 0, s.len))
        return json_stringn(s.ptr, s.len);
    size_t size = s.len * 4 + 8;
    char *buf = malloc(size);
    if (!buf)
        return NULL;
    json_t *t = json_string(sl_str_escape(s, buf, size));
    free(buf);
    return t;
}

static json_t *count(uint64_t n) {
    return json_integer((json_int_t)n);
}

static json_t *number_of(const struct sl_gguf_kv *kv, uint64_t i) {
    double v = sl_gguf_array_f64(kv, i);
    switch (kv->elem_type) {
    case SL_GGUF_F32:
    case SL_GGUF_F64:
        return isfinite(v) ? json_real(v) : json_null();
    case SL_GGUF_BOOL:
        return json_boolean(v != 0);
    default:
        return json_integer(sl_gguf_array_i64(kv, i));
    }
}

static json_t *value_of(const struct sl_gguf_kv *kv) {
    struct sl_str s = {kv->data, (size_t)kv->data_bytes};
    if (kv->type == SL_GGUF_STRING)
        return text_of(s);
    if (kv->type != SL_GGUF_ARRAY)
        return number_of(kv, 0);
    json_t *array = json_array();
    struct sl_gguf_str_iter it = {.kv = kv};
    if (kv->elem_type == SL_GGUF_STRING)
        while (sl_gguf_str_next(&it, &s))
            json_array_append_new(array, text_of(s));
    else
        for (uint64_t i = 0; i < kv->n_elems; i++)
            json_array_append_new(array, number_of(kv, i));
    return array;
}

static json_t *files_of(const struct sl_gguf *g) {
    json_t *files = json_array();
    for (uint32_t i = 0; i < sl_gguf_n_files(g); i++) {
        const char *path = sl_gguf_file_path(g, i);
        json_array_append_new(files, json_pack("{s:o, s:o}", "path",
                                               text_of((struct sl_str){path, strlen(path)}),
                                               "size_bytes", count(sl_gguf_file_bytes(g, i))));
    }
    return files;
}

static json_t *types_of(const struct sl_weight_sum *w) {
    json_t *types = json_object();
    for (uint32_t t = 0; t < SL_DTYPE_COUNT; t++)
        if (w->bytes_of[t])
            json_object_set_new(types, sl_dtype_name(t), count(w->bytes_of[t]));
    return types;
}

/* A number of every layer's spec, at this offset: one where all agree, else an array. */
static json_t *of_layers(const struct sl_model *m, size_t offset) {
    json_t *each = json_array();
    uint32_t first = 0;
    bool differ = false;
    for (uint32_t l = 0; l < m->hp.n_layer; l++) {
        uint32_t v;
        memcpy(&v, (const char *)&m->layers[l].spec + offset, sizeof v);
        first = l ? first : v;
        differ |= v != first;
        json_array_append_new(each, count(v));
    }
    if (differ)
        return each;
    json_decref(each);
    return count(first);
}

/* The same, where layers without experts have none of it: `most` if the others agree. */
static json_t *of_routed(const struct sl_model *m, size_t offset, uint32_t most) {
    bool differ = false;
    for (uint32_t l = 0; l < m->hp.n_layer; l++) {
        uint32_t v;
        memcpy(&v, (const char *)&m->layers[l].spec + offset, sizeof v);
        differ |= m->layers[l].spec.ffn == SL_FFN_EXPERTS && v != most;
    }
    return differ ? of_layers(m, offset) : count(most);
}

static json_t *hparams_of(const struct sl_model *m) {
    const struct sl_hparams *hp = &m->hp;
    const struct sl_rope_spec *rope = &hp->rope[0];
    struct sl_experts_spec experts = {.router_scale = 1};
    for (uint32_t l = hp->n_layer; l--;)
        if (m->layers[l].spec.ffn == SL_FFN_EXPERTS)
            experts = m->layers[l].spec.experts;
    json_t *o = json_object();
    const struct {
        const char *name;
        uint32_t v;
    } u[] = {
        {"n_layer", hp->n_layer}, {"n_ctx_train", hp->n_ctx_train},
        {"n_embd", hp->n_embd},   {"n_vocab", hp->n_vocab},
        {"n_rot", rope->n_rot},   {"n_layer_nextn", hp->n_layer_nextn},
    };
    for (size_t i = 0; i < sizeof u / sizeof u[0]; i++)
        json_object_set_new(o, u[i].name, count(u[i].v));
    static const struct {
        const char *name;
        size_t offset;
    } each[] = {
        {"n_head", offsetof(struct sl_layer_spec, attention.n_head)},
        {"n_head_kv", offsetof(struct sl_layer_spec, attention.n_head_kv)},
        {"head_dim_k", offsetof(struct sl_layer_spec, attention.head_dim_k)},
        {"head_dim_v", offsetof(struct sl_layer_spec, attention.head_dim_v)},
        {"window", offsetof(struct sl_layer_spec, attention.window)},
        {"n_delta_head", offsetof(struct sl_layer_spec, delta.n_head)},
        {"n_delta_head_k", offsetof(struct sl_layer_spec, delta.n_head_k)},
        {"delta_head_dim", offsetof(struct sl_layer_spec, delta.head_dim)},
        {"n_latent_head", offsetof(struct sl_layer_spec, latent.n_head)},
        {"n_latent", offsetof(struct sl_layer_spec, latent.n_latent)},
        {"n_lora_q", offsetof(struct sl_layer_spec, latent.n_lora_q)},
        {"latent_head_nope", offsetof(struct sl_layer_spec, latent.n_nope)},
        {"latent_head_dim_v", offsetof(struct sl_layer_spec, latent.head_dim_v)},
        {"n_kda_head", offsetof(struct sl_layer_spec, kda.n_head)},
        {"kda_head_dim", offsetof(struct sl_layer_spec, kda.head_dim)},
        {"n_index_head", offsetof(struct sl_layer_spec, latent.n_index_head)},
        {"index_dim", offsetof(struct sl_layer_spec, latent.index_dim)},
        {"n_index_top", offsetof(struct sl_layer_spec, latent.n_index_top)},
        {"choice_back", offsetof(struct sl_layer_spec, latent.choice_back)},
        {"latent_window", offsetof(struct sl_layer_spec, latent.window)},
        {"block_index_dim", offsetof(struct sl_layer_spec, attention.index_dim)},
        {"index_block", offsetof(struct sl_layer_spec, attention.index_block)},
        {"n_index_blocks", offsetof(struct sl_layer_spec, attention.n_index_top)},
        {"n_ff", offsetof(struct sl_layer_spec, n_ff)},
        {"n_ff_expert", offsetof(struct sl_layer_spec, experts.n_ff)},
        {"n_ff_shared", offsetof(struct sl_layer_spec, experts.n_ff_shared)},
    };
    for (size_t i = 0; i < sizeof each / sizeof each[0]; i++)
        json_object_set_new(o, each[i].name, of_layers(m, each[i].offset));
    json_object_set_new(
        o, "n_expert",
        of_routed(m, offsetof(struct sl_layer_spec, experts.n_expert), hp->n_expert));
    json_object_set_new(
        o, "n_expert_used",
        of_routed(m, offsetof(struct sl_layer_spec, experts.n_used), hp->n_expert_used));
    json_object_set_new(o, "norm_eps", json_real((double)hp->norm_eps));
    json_object_set_new(o, "rope_base", json_real((double)rope->base));
    json_object_set_new(o, "rope_scale", json_real((double)rope->scale));
    json_object_set_new(o, "yarn_factor", json_real((double)rope->yarn_factor));
    json_object_set_new(o, "router_scale", json_real((double)experts.router_scale));
    json_object_set_new(o, "router_normalize", json_boolean(experts.router_normalize));
    json_object_set_new(o, "rope", json_string(rope->kind == SL_ROPE_KIND_NORM ? "norm" : "neox"));
    return o;
}

static json_t *experts_of(const struct sl_inspect *in) {
    json_t *ranges = json_array();
    for (uint32_t l = 0; l < in->n_layer; l++) {
        uint32_t last = sl_inspect_same_until(in, l);
        const struct sl_layer_experts *e = &in->layer[l];
        json_t *o = json_object(), *types = json_object();
        json_object_set_new(o, "first_layer", count(l));
        json_object_set_new(o, "last_layer", count(last));
        json_object_set_new(o, "n_expert", count(e->n_expert));
        json_object_set_new(o, "expert_bytes", count(e->expert_bytes));
        for (uint32_t p = 0; p < SL_EXPERT_PARTS; p++)
            if (e->part[p].there)
                json_object_set_new(types, sl_expert_part_names[p],
                                    json_string(sl_dtype_name((uint32_t)e->part[p].dtype)));
        json_object_set_new(o, "types", types);
        json_array_append_new(ranges, o);
        l = last;
    }
    return ranges;
}

static json_t *token_of(uint32_t id) {
    return id == SL_NO_TOKEN ? json_null() : count(id);
}

static json_t *tokenizer_of(const struct sl_inspect *in) {
    json_t *o = json_object();
    struct sl_err ignored;
    struct sl_str s;
    if (sl_gguf_get_str(in->gguf, "tokenizer.ggml.model", &s, &ignored) == SL_OK)
        json_object_set_new(o, "model", text_of(s));
    if (sl_gguf_get_str(in->gguf, "tokenizer.ggml.pre", &s, &ignored) == SL_OK)
        json_object_set_new(o, "pre", text_of(s));
    json_object_set_new(o, "n_tokens", count(in->n_token));
    json_object_set_new(o, "n_merges", count(in->n_merge));
    json_object_set_new(o, "usable", json_boolean(in->tokenizer != NULL));
    if (in->tokenizer) {
        json_object_set_new(o, "kind", json_string(sl_tokenizer_kind(in->tokenizer)));
        json_object_set_new(o, "bos", token_of(sl_tokenizer_bos(in->tokenizer)));
        json_object_set_new(o, "eos", token_of(sl_tokenizer_eos(in->tokenizer)));
    } else {
        json_object_set_new(o, "error", json_string(in->tokenizer_err.text));
    }
    return o;
}

static json_t *templates_of(const struct sl_gguf *g) {
    static const char prefix[] = "tokenizer.chat_template";
    json_t *o = json_object();
    for (uint64_t i = 0; i < sl_gguf_n_kv(g); i++) {
        const struct sl_gguf_kv *kv = sl_gguf_kv_at(g, i);
        size_t n = sizeof prefix - 1;
        if (kv->type != SL_GGUF_STRING || kv->key.len < n || memcmp(kv->key.ptr, prefix, n) != 0 ||
            (kv->key.len > n && kv->key.ptr[n] != '.'))
            continue;
        char name[96] = "default";
        if (kv->key.len > n + 1)
            sl_str_escape((struct sl_str){kv->key.ptr + n + 1, kv->key.len - n - 1}, name,
                          sizeof name);
        json_object_set_new(o, name, value_of(kv));
    }
    return o;
}

static json_t *tensors_of(const struct sl_gguf *g) {
    json_t *list = json_array();
    for (uint64_t i = 0; i < sl_gguf_n_tensors(g); i++) {
        const struct sl_gguf_tensor *t = sl_gguf_tensor_at(g, i);
        json_t *shape = json_array(), *o = json_object();
        for (uint32_t d = 0; d < t->n_dims; d++)
            json_array_append_new(shape, count(t->ne[d]));
        json_object_set_new(o, "name", text_of(t->name));
        json_object_set_new(o, "type", json_string(sl_dtype_name((uint32_t)t->dtype)));
        json_object_set_new(o, "shape", shape);
        json_object_set_new(o, "size_bytes", count(t->size_bytes));
        json_object_set_new(o, "file", count(t->file));
        json_object_set_new(o, "offset_bytes", count(t->offset_bytes));
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *weights_of(const struct sl_inspect *in) {
    json_t *o = json_object();
    for (uint32_t p = 0; p < SL_PURPOSE_COUNT; p++)
        if (in->of[p].n_tensors)
            json_object_set_new(o, sl_purpose_names[p],
                                json_pack("{s:o, s:o, s:o, s:o}", "tensors",
                                          count(in->of[p].n_tensors), "parameters",
                                          count(in->of[p].n_elems), "bytes", count(in->of[p].bytes),
                                          "types", types_of(&in->of[p])));
    return o;
}

bool sl_inspect_print_json(const struct sl_inspect *in, bool with_kv, bool with_tensors) {
    json_t *o = json_object();
    char fingerprint[24];
    snprintf(fingerprint, sizeof fingerprint, "%016llx",
             (unsigned long long)sl_gguf_fingerprint(in->gguf));
    json_object_set_new(o, "architecture", text_of(in->arch));
    json_object_set_new(o, "name", text_of(in->name));
    json_object_set_new(o, "supported", json_boolean(in->model != NULL));
    if (!in->model)
        json_object_set_new(o, "error", json_string(in->model_err.text));
    json_object_set_new(o, "gguf_version", count(sl_gguf_version(in->gguf)));
    json_object_set_new(o, "fingerprint", json_string(fingerprint));
    json_object_set_new(o, "files", files_of(in->gguf));
    json_object_set_new(o, "n_tensors", count(sl_gguf_n_tensors(in->gguf)));
    json_object_set_new(o, "n_keys", count(sl_gguf_n_kv(in->gguf)));
    if (in->model)
        json_object_set_new(o, "hparams", hparams_of(in->model));
    json_object_set_new(o, "parameters", count(in->total.n_elems));
    json_object_set_new(o, "active_parameters", count(in->active_elems));
    json_object_set_new(o, "weight_bytes", count(in->total.bytes));
    json_object_set_new(o, "weights", weights_of(in));
    json_object_set_new(o, "experts", experts_of(in));
    json_object_set_new(o, "routed_bytes_per_token", count(in->routed_per_token_bytes));
    json_object_set_new(o, "dense_bytes_per_token", count(in->dense_per_token_bytes));
    json_object_set_new(o, "tokenizer", in->n_token ? tokenizer_of(in) : json_null());
    json_object_set_new(o, "chat_templates", templates_of(in->gguf));
    if (with_kv) {
        json_t *kvs = json_object();
        char key[256];
        for (uint64_t i = 0; i < sl_gguf_n_kv(in->gguf); i++) {
            const struct sl_gguf_kv *kv = sl_gguf_kv_at(in->gguf, i);
            json_object_set_new(kvs, sl_str_escape(kv->key, key, sizeof key), value_of(kv));
        }
        json_object_set_new(o, "keys", kvs);
    }
    if (with_tensors)
        json_object_set_new(o, "tensors", tensors_of(in->gguf));
    bool ok = json_dumpf(o, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0 &&
              putchar('\n') != EOF && fflush(stdout) == 0;
    json_decref(o);
    return ok;
}
