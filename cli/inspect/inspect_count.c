#include "cli/inspect/inspect.h"

#include <stdio.h>
#include <string.h>

const char *const sl_purpose_names[SL_PURPOSE_COUNT] = {
    [SL_PURPOSE_EMBEDDING] = "embedding",
    [SL_PURPOSE_OUTPUT] = "output",
    [SL_PURPOSE_ATTENTION] = "attention",
    [SL_PURPOSE_FFN] = "dense ffn",
    [SL_PURPOSE_ROUTER] = "router",
    [SL_PURPOSE_SHARED] = "shared experts",
    [SL_PURPOSE_EXPERTS] = "routed experts",
    [SL_PURPOSE_ADJUGATE] = "adjugate",
    [SL_PURPOSE_NORM] = "norms",
    [SL_PURPOSE_OTHER] = "other",
    [SL_PURPOSE_NEXTN] = "nextn (MTP)",
    [SL_PURPOSE_MEDIA] = "vision, audio",
};
const char *const sl_expert_part_names[SL_EXPERT_PARTS] = {"gate", "up", "down", "gate_up"};

const char *sl_gguf_type_name(enum sl_gguf_type type) {
    static const char *const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
    return (size_t)type < sizeof names / sizeof names[0] ? names[type] : "unknown";
}

static bool has(const char *name, const char *part) {
    return strstr(name, part) != NULL;
}

/* Names as in ggml docs/gguf.md, "Standardized tensor names". */
static enum sl_purpose purpose_of(const char *name) {
    if (sl_model_is_media((struct sl_str){name, strlen(name)}))
        return SL_PURPOSE_MEDIA;
    if (strncmp(name, "token_embd.", 11) == 0)
        return SL_PURPOSE_EMBEDDING;
    if (strncmp(name, "output.", 7) == 0)
        return SL_PURPOSE_OUTPUT;
    if (has(name, "_exps."))
        return SL_PURPOSE_EXPERTS;
    if (has(name, "_chexps."))
        return SL_PURPOSE_ADJUGATE;
    if (has(name, "_shexp"))
        return SL_PURPOSE_SHARED;
    if (has(name, "ffn_gate_inp") || has(name, "exp_probs") || has(name, "tid2eid"))
        return SL_PURPOSE_ROUTER;
    if (has(name, "norm"))
        return SL_PURPOSE_NORM;
    if (has(name, "hc_")) /* before attn and ffn, of which it is a part each */
        return SL_PURPOSE_OTHER;
    if (has(name, "indexer") || has(name, "attn") || has(name, "ssm_") || has(name, "shortconv"))
        return SL_PURPOSE_ATTENTION;
    return has(name, "ffn") ? SL_PURPOSE_FFN : SL_PURPOSE_OTHER;
}

static void count_expert(struct sl_layer_experts *l, const char *rest,
                         const struct sl_gguf_tensor *t) {
    for (uint32_t p = 0; p < SL_EXPERT_PARTS; p++) {
        char want[32];
        snprintf(want, sizeof want, "ffn_%s_exps.weight", sl_expert_part_names[p]);
        if (strcmp(rest, want) != 0 || t->ne[2] == 0)
            continue;
        l->n_expert = t->ne[2];
        l->expert_bytes += t->size_bytes / t->ne[2];
        l->part[p].there = true;
        l->part[p].dtype = t->dtype;
    }
}

static void count_tensor(struct sl_inspect *in, const struct sl_gguf_tensor *t) {
    char
        name[80]; /* a name has at most 64 bytes; one with a NUL in it counts as what precedes it */
    unsigned layer;
    int end = 0;
    uint64_t n = t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
    snprintf(name, sizeof name, "%.*s", (int)t->name.len, t->name.ptr);
    bool in_layer = sscanf(name, "blk.%5u.%n", &layer, &end) == 1 && end > 0;
    bool nextn = in_layer && layer >= in->nextn_layer;
    struct sl_weight_sum *sums[] = {&in->of[nextn ? SL_PURPOSE_NEXTN : purpose_of(name)],
                                    &in->total};
    for (int i = 0; i < 2; i++) {
        sums[i]->n_tensors++;
        sums[i]->n_elems += n;
        sums[i]->bytes += t->size_bytes;
        sums[i]->bytes_of[t->dtype] += t->size_bytes;
    }
    if (strncmp(name, "per_layer_token_embd.", 21) == 0) {
        in->table_elems += n;
        in->table_bytes += t->size_bytes;
    }
    if (in_layer && !nextn && layer < SL_MAX_LAYERS) {
        if (layer >= in->n_layer)
            in->n_layer = layer + 1;
        count_expert(&in->layer[layer], name + end, t);
        if (purpose_of(name) == SL_PURPOSE_EXPERTS)
            in->layer[layer].n_elems += n;
    }
}

/* One number, or one for each layer. */
static void read_used(struct sl_inspect *in, const char *key) {
    const struct sl_gguf_kv *kv = sl_gguf_kv_find(in->gguf, key);
    if (!kv || kv->type == SL_GGUF_STRING ||
        (kv->type == SL_GGUF_ARRAY && kv->elem_type == SL_GGUF_STRING))
        return;
    uint64_t n = kv->type == SL_GGUF_ARRAY ? kv->n_elems : SL_MAX_LAYERS;
    for (uint32_t l = 0; l < SL_MAX_LAYERS && l < n; l++) {
        int64_t used = sl_gguf_array_i64(kv, kv->type == SL_GGUF_ARRAY ? l : 0);
        in->layer[l].n_used = used > 0 ? (uint64_t)used : 0;
    }
}

static void read_keys(struct sl_inspect *in) {
    struct sl_err ignored; /* a key of a wrong type is the model's business: its error says so */
    in->nextn_layer = UINT32_MAX;
    char key[128];
    if (sl_gguf_get_str(in->gguf, "general.architecture", &in->arch, &ignored) != SL_OK)
        in->arch = (struct sl_str){"", 0};
    if (sl_gguf_get_str(in->gguf, "general.name", &in->name, &ignored) != SL_OK)
        in->name = (struct sl_str){"", 0};
    if (in->arch.len > 0 && in->arch.len < 64) {
        snprintf(key, sizeof key, "%.*s.expert_used_count", (int)in->arch.len, in->arch.ptr);
        read_used(in, key);
        uint32_t n_layer, n_nextn;
        snprintf(key, sizeof key, "%.*s.block_count", (int)in->arch.len, in->arch.ptr);
        bool known = sl_gguf_get_u32(in->gguf, key, &n_layer, &ignored) == SL_OK;
        snprintf(key, sizeof key, "%.*s.nextn_predict_layers", (int)in->arch.len, in->arch.ptr);
        known = known && sl_gguf_get_u32(in->gguf, key, &n_nextn, &ignored) == SL_OK;
        if (known && n_nextn && n_nextn < n_layer)
            in->nextn_layer = n_layer - n_nextn;
    }
    const struct sl_gguf_kv *kv = sl_gguf_kv_find(in->gguf, "tokenizer.ggml.tokens");
    in->n_token = kv && kv->type == SL_GGUF_ARRAY ? kv->n_elems : 0;
    kv = sl_gguf_kv_find(in->gguf, "tokenizer.ggml.merges");
    in->n_merge = kv && kv->type == SL_GGUF_ARRAY ? kv->n_elems : 0;
}

enum sl_status sl_inspect_open(const char *path, struct sl_inspect *out, struct sl_err *err) {
    struct sl_inspect *in = out;
    memset(in, 0, sizeof *in);
    SL_TRY(sl_gguf_open(path, &in->gguf, err));
    read_keys(in);
    for (uint64_t i = 0; i < sl_gguf_n_tensors(in->gguf); i++)
        count_tensor(in, sl_gguf_tensor_at(in->gguf, i));
    in->active_elems = in->total.n_elems - in->of[SL_PURPOSE_NEXTN].n_elems -
                       in->of[SL_PURPOSE_MEDIA].n_elems - in->table_elems;
    for (uint32_t l = 0; l < in->n_layer; l++) {
        const struct sl_layer_experts *x = &in->layer[l];
        uint64_t k = x->n_used < x->n_expert ? x->n_used : x->n_expert;
        in->routed_per_token_bytes += x->expert_bytes * k;
        if (x->n_expert)
            in->active_elems -= x->n_elems / x->n_expert * (x->n_expert - k);
    }
    in->dense_per_token_bytes = in->total.bytes - in->of[SL_PURPOSE_EXPERTS].bytes -
                                in->of[SL_PURPOSE_NEXTN].bytes - in->of[SL_PURPOSE_MEDIA].bytes -
                                in->table_bytes;
    if (in->of[SL_PURPOSE_OUTPUT].n_tensors > 0) /* else the embedding is the output matrix too */
        in->dense_per_token_bytes -= in->of[SL_PURPOSE_EMBEDDING].bytes;

    /* The model takes a GGUF of its own over: it must not take ours. */
    in->model_err.text[0] = in->tokenizer_err.text[0] = 0;
    if (sl_model_open(path, &in->model, &in->model_err) != SL_OK)
        in->model = NULL;
    if (in->n_token && sl_tokenizer_create(in->gguf, &in->tokenizer, &in->tokenizer_err) != SL_OK)
        in->tokenizer = NULL;
    return SL_OK;
}

void sl_inspect_release(struct sl_inspect *in) {
    sl_tokenizer_destroy(&in->tokenizer);
    sl_model_close(&in->model);
    sl_gguf_close(&in->gguf);
}

uint32_t sl_inspect_same_until(const struct sl_inspect *in, uint32_t first) {
    const struct sl_layer_experts *a = &in->layer[first];
    uint32_t last = first;
    for (; last + 1 < in->n_layer; last++) {
        const struct sl_layer_experts *b = &in->layer[last + 1];
        bool same = a->n_expert == b->n_expert && a->expert_bytes == b->expert_bytes;
        for (uint32_t p = 0; p < SL_EXPERT_PARTS; p++)
            same = same && a->part[p].there == b->part[p].there &&
                   a->part[p].dtype == b->part[p].dtype;
        if (!same)
            break;
    }
    return last;
}
