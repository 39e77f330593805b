#include "cli/inspect/inspect.h"
#include "cli/options/args.h"
#include "cli/options/commands.h"
#include "common/utf8.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Prints text from the file: whole characters, at most max of them; control characters and what is
 * not UTF-8 as \xNN, so that a file cannot write to the terminal what it likes. */
static void put_text(struct sl_str s, size_t max) {
    const unsigned char *p = (const unsigned char *)s.ptr;
    for (size_t i = 0, n = 0; i < s.len; n++) {
        if (n == max) {
            fputs("...", stdout);
            return;
        }
        uint32_t len = sl_utf8_len(p + i, s.len - i), cp = len ? sl_utf8_get(p + i, len) : 0;
        if (len == 0 || cp < 0x20 || (cp >= 0x7f && cp < 0xa0)) {
            if (p[i] == '\n' || p[i] == '\t')
                printf("\\%c", p[i] == '\n' ? 'n' : 't');
            else
                printf("\\x%02x", p[i]);
            i++;
        } else {
            fwrite(p + i, 1, len, stdout);
            i += len;
        }
    }
}

static void label(const char *name) {
    printf("%-16s", name);
}

static const char *params(uint64_t n, char *buf, size_t size) {
    if (n >= 1000000000)
        snprintf(buf, size, "%.2f B", (double)n * 1e-9);
    else if (n >= 1000000)
        snprintf(buf, size, "%.1f M", (double)n * 1e-6);
    else
        snprintf(buf, size, "%.1f K", (double)n * 1e-3);
    return buf;
}

/* The types of a sum, largest first: "Q4_K 9.70 GiB, Q6_K 4.10 GiB". */
static void put_types(const struct sl_weight_sum *w) {
    bool done[SL_DTYPE_COUNT] = {false};
    char buf[16];
    for (uint32_t n = 0;; n++) {
        uint32_t best = SL_DTYPE_COUNT;
        for (uint32_t t = 0; t < SL_DTYPE_COUNT; t++)
            if (!done[t] && w->bytes_of[t] &&
                (best == SL_DTYPE_COUNT || w->bytes_of[t] > w->bytes_of[best]))
                best = t;
        if (best == SL_DTYPE_COUNT)
            return;
        done[best] = true;
        printf("%s%s %s", n ? ", " : "", sl_dtype_name(best),
               sl_format_bytes(w->bytes_of[best], buf));
    }
}

static void print_head(const struct sl_inspect *in) {
    char size[16];
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < sl_gguf_n_files(in->gguf); i++)
        bytes += sl_gguf_file_bytes(in->gguf, i);
    label("file");
    const char *path = sl_gguf_file_path(in->gguf, 0);
    put_text((struct sl_str){path, strlen(path)}, 200);
    printf("\n");
    label("");
    printf("GGUF v%" PRIu32 ", %s", sl_gguf_version(in->gguf), sl_format_bytes(bytes, size));
    if (sl_gguf_n_files(in->gguf) > 1)
        printf(" in %" PRIu32 " files", sl_gguf_n_files(in->gguf));
    printf(", %" PRIu64 " tensors, %" PRIu64 " keys, fingerprint %016" PRIx64 "\n",
           sl_gguf_n_tensors(in->gguf), sl_gguf_n_kv(in->gguf), sl_gguf_fingerprint(in->gguf));
    if (in->name.len) {
        label("name");
        put_text(in->name, 100);
        printf("\n");
    }
    label("architecture");
    if (in->arch.len)
        put_text(in->arch, 64);
    else
        printf("not stated");
    if (in->total.n_tensors == 0)
        printf(" (vocabulary only: no weights)");
    printf("\n");
    if (!in->model && in->total.n_tensors > 0) {
        label("runs");
        printf("no: %s\n", in->model_err.text);
    }
    if (in->total.n_tensors > 0) {
        char a[24], b[24];
        label("parameters");
        printf("%s", params(in->total.n_elems, a, sizeof a));
        if (in->active_elems != in->total.n_elems)
            printf(", %s active per token", params(in->active_elems, b, sizeof b));
        printf(", %.2f bits each\n", (double)in->total.bytes * 8 / (double)in->total.n_elems);
    }
}

/* A number of every layer's spec that has it (is not 0), at this offset: "8", or "2 to 8". */
static const char *of_layers(const struct sl_model *m, size_t offset, char buf[32]) {
    uint32_t min = 0, max = 0;
    for (uint32_t l = 0; l < m->hp.n_layer; l++) {
        uint32_t v;
        memcpy(&v, (const char *)&m->layers[l].spec + offset, sizeof v);
        min = v && (!min || v < min) ? v : min;
        max = v > max ? v : max;
    }
    if (min == max)
        snprintf(buf, 32, "%" PRIu32, max);
    else
        snprintf(buf, 32, "%" PRIu32 " to %" PRIu32, min, max);
    return buf;
}
#define OF_LAYERS(m, member, buf) of_layers(m, offsetof(struct sl_layer_spec, member), buf)

static void print_attention(const struct sl_model *m) {
    char buf[16], n1[32], n2[32], n3[32];
    uint32_t n_windowed = 0, n_attends = 0;
    uint64_t kv_elems = 0;
    const struct sl_layer *first = NULL;
    for (uint32_t l = 0; l < m->hp.n_layer; l++) {
        const struct sl_attention_spec *s = &m->layers[l].spec.attention;
        if (m->layers[l].spec.mixer != SL_MIXER_ATTENTION)
            continue;
        first = first ? first : &m->layers[l];
        n_attends++;
        kv_elems += (uint64_t)s->n_head_kv * (s->head_dim_k + s->head_dim_v);
        n_windowed += s->window > 0;
    }
    if (!first)
        return;
    const struct sl_attention_spec *a = &first->spec.attention;
    label("attention");
    if (n_attends < m->hp.n_layer)
        printf("in %" PRIu32 " layers: ", n_attends);
    printf("%s heads of %s, %s KV heads", OF_LAYERS(m, attention.n_head, n1),
           OF_LAYERS(m, attention.head_dim_k, n2), OF_LAYERS(m, attention.n_head_kv, n3));
    if (a->head_dim_v != a->head_dim_k)
        printf(" (values of %s)", OF_LAYERS(m, attention.head_dim_v, n1));
    if (first->t[SL_L_ATTN_Q_BIAS])
        printf(", q/k/v biases");
    if (a->qk_norm != SL_QK_NORM_NONE)
        printf(", q/k norm %s%s", a->qk_norm == SL_QK_NORM_HEAD ? "per head" : "per row",
               a->norm_after_rope ? " after the rotation" : "");
    if (a->gated)
        printf(", gated output");
    if (n_windowed)
        printf(", window %s", OF_LAYERS(m, attention.window, n1));
    if (n_windowed && n_windowed < m->hp.n_layer)
        printf(" in %" PRIu32 " layers", n_windowed);
    printf("; KV cache %s per token (f16)\n", sl_format_bytes(kv_elems * 2, buf));
}

static void print_delta(const struct sl_model *m) {
    uint32_t n = 0;
    uint64_t bytes = 0;
    char buf[16], n1[32], n2[32], n3[32], n4[32];
    for (uint32_t l = 0; l < m->hp.n_layer; l++) {
        const struct sl_delta_spec *d = &m->layers[l].spec.delta;
        uint64_t conv = (uint64_t)(2 * d->n_head_k + d->n_head) * d->head_dim;
        if (m->layers[l].spec.mixer != SL_MIXER_DELTA)
            continue;
        n++;
        bytes += 4 * ((uint64_t)d->n_head * d->head_dim * d->head_dim + (d->n_taps - 1) * conv);
    }
    if (!n)
        return;
    label("delta net");
    printf("in %" PRIu32 " layers: %s heads of %s, %s key heads, convolution over %s; state %s per "
           "sequence (f32)\n",
           n, OF_LAYERS(m, delta.n_head, n1), OF_LAYERS(m, delta.head_dim, n2),
           OF_LAYERS(m, delta.n_head_k, n3), OF_LAYERS(m, delta.n_taps, n4),
           sl_format_bytes(bytes, buf));
}

static void print_conv(const struct sl_model *m) {
    uint32_t n = 0, n_taps = 0;
    uint64_t bytes = 0;
    char buf[16];
    for (uint32_t l = 0; l < m->hp.n_layer; l++) {
        const struct sl_conv_spec *c = &m->layers[l].spec.conv;
        if (m->layers[l].spec.mixer != SL_MIXER_CONV)
            continue;
        n++;
        n_taps = c->n_taps;
        bytes += 4 * (uint64_t)(c->n_taps - 1) * c->n;
    }
    if (!n)
        return;
    label("convolutions");
    printf("in %" PRIu32 " layers, over %" PRIu32 " positions; state %s per sequence (f32)\n", n,
           n_taps, sl_format_bytes(bytes, buf));
}

static void print_mamba(const struct sl_model *m) {
    uint32_t n = 0;
    uint64_t bytes = 0;
    char buf[16], n1[32], n2[32], n3[32], n4[32], n5[32];
    for (uint32_t l = 0; l < m->hp.n_layer; l++) {
        const struct sl_mamba_spec *s = &m->layers[l].spec.mamba;
        uint64_t inner = (uint64_t)s->n_head * s->head_dim;
        uint64_t conv = inner + 2 * (uint64_t)s->n_group * s->n_state;
        if (m->layers[l].spec.mixer != SL_MIXER_MAMBA)
            continue;
        n++;
        bytes += 4 * (inner * s->n_state + (s->n_taps - 1) * conv);
    }
    if (!n)
        return;
    label("Mamba-2");
    printf("in %" PRIu32 " layers: %s heads of %s, %s groups of %s, convolution over %s; state %s "
           "per sequence (f32)\n",
           n, OF_LAYERS(m, mamba.n_head, n1), OF_LAYERS(m, mamba.head_dim, n2),
           OF_LAYERS(m, mamba.n_group, n3), OF_LAYERS(m, mamba.n_state, n4),
           OF_LAYERS(m, mamba.n_taps, n5), sl_format_bytes(bytes, buf));
}

static void print_mamba1(const struct sl_model *m) {
    uint32_t n = 0;
    uint64_t bytes = 0;
    char buf[16], n1[32], n2[32], n3[32], n4[32];
    for (uint32_t l = 0; l < m->hp.n_layer; l++) {
        const struct sl_mamba1_spec *s = &m->layers[l].spec.mamba1;
        if (m->layers[l].spec.mixer != SL_MIXER_MAMBA1)
            continue;
        n++;
        bytes += 4 * (uint64_t)s->n_inner * (s->n_state + s->n_taps - 1);
    }
    if (!n)
        return;
    label("Mamba-1");
    printf("in %" PRIu32
           " layers: %s channels of %s, time steps by way of %s, convolution over %s; "
           "state %s per sequence (f32)\n",
           n, OF_LAYERS(m, mamba1.n_inner, n1), OF_LAYERS(m, mamba1.n_state, n2),
           OF_LAYERS(m, mamba1.n_rank, n3), OF_LAYERS(m, mamba1.n_taps, n4),
           sl_format_bytes(bytes, buf));
}

static void print_kda(const struct sl_model *m) {
    const struct sl_kda_spec *d = NULL;
    uint32_t n = 0;
    char buf[16];
    for (uint32_t l = 0; l < m->hp.n_layer; l++)
        if (m->layers[l].spec.mixer == SL_MIXER_KDA)
            n++, d = &m->layers[l].spec.kda;
    if (!d)
        return;
    uint64_t inner = (uint64_t)d->n_head * d->head_dim;
    label("KDA");
    printf("in %" PRIu32 " layers: %" PRIu32 " heads of %" PRIu32 ", convolutions over %" PRIu32
           "; state %s per sequence (f32)",
           n, d->n_head, d->head_dim, d->n_taps,
           sl_format_bytes(4 * n * inner * (d->head_dim + 3 * (d->n_taps - 1)), buf));
    if (d->bound < 0)
        printf(", of which a position keeps exp(%g) or more", (double)d->bound);
    printf("\n");
}

static void print_kept(const struct sl_model *m) {
    const struct sl_hparams *hp = &m->hp;
    if (!hp->keep_every)
        return;
    label("streams");
    printf("the residual one, and what it was before each block of %" PRIu32 " layers: %" PRIu32
           " in all, of which each part reads a weighted sum\n",
           hp->keep_every, hp->n_stream);
}

/* One shape for all layers that have it, with a window or without. */
static void print_latents(const struct sl_model *m, bool windowed) {
    const struct sl_latent_spec *c = NULL;
    uint32_t n_attends = 0;
    char buf[16];
    for (uint32_t l = 0; l < m->hp.n_layer; l++) {
        const struct sl_layer_spec *s = &m->layers[l].spec;
        if (s->mixer != SL_MIXER_LATENT || (s->latent.window != 0) != windowed)
            continue;
        c = c ? c : &s->latent;
        n_attends++;
    }
    if (!n_attends)
        return;
    label("latents");
    if (n_attends < m->hp.n_layer)
        printf("in %" PRIu32 " layers: ", n_attends);
    printf("%" PRIu32 " heads of %" PRIu32 " (values of %" PRIu32 ") from rows of %" PRIu32
           " + %" PRIu32,
           c->n_head, c->n_nope + c->n_rot, c->head_dim_v, c->n_latent, c->n_rot);
    if (c->n_lora_q)
        printf(", queries by way of %" PRIu32, c->n_lora_q);
    if (c->gate)
        printf(", a gate of each %s", c->gate == SL_GATE_HEAD ? "head" : "element");
    if (windowed)
        printf(", a window of %" PRIu32, c->window);
    uint64_t bytes = 2 * (uint64_t)n_attends * (c->n_latent + c->n_rot);
    if (c->n_index_top) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < m->hp.n_layer; i++)
            n += sl_latent_chooses(&m->layers[i].spec.latent);
        bytes += 2 * (uint64_t)n * c->index_dim;
        printf(", over %" PRIu32 " positions that indexers of %" PRIu32 " heads of %" PRIu32
               " in %" PRIu32 " layers choose",
               c->n_index_top, c->n_index_head, c->index_dim, n);
    }
    printf("%s; KV cache %s per token%s (f16)\n", c->joined ? ", keys and values joined" : "",
           sl_format_bytes(bytes, buf), windowed ? " of the window" : "");
}

/* One shape for all layers, but for their blocks. */
static void print_compressed(const struct sl_model *m) {
    const struct sl_compressed_spec *c = NULL, *index = NULL;
    uint32_t n_short = 0, n_long = 0, n = 0, n_table = 0;
    uint64_t milli = 0; /* bytes of blocks' rows, of 1000 tokens */
    char buf[16];
    for (uint32_t l = 0; l < m->hp.n_layer; l++) {
        const struct sl_layer_spec *s = &m->layers[l].spec;
        if (s->mixer != SL_MIXER_COMPRESSED)
            continue;
        c = &s->compressed, n++;
        index = c->n_index_top ? c : index;
        n_short += c->ratio && c->n_index_top;
        n_long += c->ratio && !c->n_index_top;
        n_table += s->experts.by_token;
        milli += c->ratio ? 2000 * (uint64_t)(c->head_dim + c->index_dim) / c->ratio : 0;
    }
    if (!n)
        return;
    label("compressed");
    printf("%" PRIu32 " heads of %" PRIu32 ", one row for all; a window of %" PRIu32, c->n_head,
           c->head_dim, c->window);
    if (index)
        printf("; in %" PRIu32 " layers %" PRIu32 " blocks of %" PRIu32 " that indexers of %" PRIu32
               " heads of %" PRIu32 " choose",
               n_short, index->n_index_top, index->ratio, index->n_index_head, index->index_dim);
    if (n_long)
        printf("; in %" PRIu32 " layers all longer blocks", n_long);
    printf("; KV cache %s per token (f16), and the window's\n", sl_format_bytes(milli / 1000, buf));
    label("streams");
    printf("%" PRIu32 " of the residual, mixed in %" PRIu32 " iterations", m->hp.n_stream,
           m->hp.stream_iters);
    if (n_table)
        printf("; in %" PRIu32 " layers a table of tokens chooses experts", n_table);
    printf("\n");
}

/* Streams of low rank, attention over blocks of mean keys, and n-grams. */
static void print_low_streams(const struct sl_model *m) {
    const struct sl_ngram_spec *g = &m->hp.ngram;
    const struct sl_attention_spec *a = NULL;
    uint32_t n = 0;
    for (uint32_t l = 0; l < m->hp.n_layer; l++) {
        const struct sl_layer_spec *s = &m->layers[l].spec;
        bool pooled = s->mixer == SL_MIXER_ATTENTION && s->attention.pool;
        n += pooled;
        a = pooled ? &s->attention : a;
    }
    if (!m->hp.stream_rank)
        return;
    label("streams");
    printf("%" PRIu32 " of the residual, read through gates of rank %" PRIu32 "\n", m->hp.n_stream,
           m->hp.stream_rank);
    if (a) {
        label("blocks");
        printf("in %" PRIu32 " layers %" PRIu32 " blocks of %" PRIu32 " that indexers of %" PRIu32
               " heads of %" PRIu32 " choose by their mean keys\n",
               n, a->n_pool_top, a->pool, a->n_pool_head, a->index_dim);
    }
    if (g->n_head) {
        label("n-grams");
        printf("of up to %" PRIu32 " tokens; %" PRIu32 " rows of %" PRIu32
               " elements a token, of %" PRIu32 "\n",
               g->n_gram, g->n_head, g->dim, g->n_rows);
    }
}

/* Grouped-query attention over blocks that an indexer chooses: one shape for all such layers. */
static void print_blocks(const struct sl_model *m) {
    const struct sl_attention_spec *a = NULL;
    uint32_t n = 0;
    char buf[16];
    for (uint32_t l = 0; l < m->hp.n_layer; l++) {
        const struct sl_attention_spec *own = &m->layers[l].spec.attention;
        a = !a && own->n_index_top ? own : a;
        n += own->n_index_top != 0;
    }
    if (!n)
        return;
    label("indexer");
    printf("in %" PRIu32 " layers each of %" PRIu32 " heads of %" PRIu32 " chooses %" PRIu32
           " blocks of %" PRIu32 " positions; keys %s per token\n",
           n, a->n_head_kv, a->index_dim, a->n_index_top, a->index_block,
           sl_format_bytes(2 * (uint64_t)n * a->index_dim, buf));
}

static void print_rope(const struct sl_model *m) {
    const struct sl_latent_spec *c = &m->layers[0].spec.latent;
    const struct sl_rope_spec *r = &m->hp.rope[0];
    char n1[32];
    if (c->no_rope)
        return;
    if (c->n_latent)
        snprintf(n1, sizeof n1, "%" PRIu32, c->n_nope + c->n_rot);
    else
        OF_LAYERS(m, attention.head_dim_k, n1);
    label("rope");
    printf("%s, %" PRIu32 " of %s dimensions, base %g",
           r->kind == SL_ROPE_KIND_NORM ? "neighbouring pairs" : "half-apart pairs (neox)",
           r->n_rot, n1, (double)r->base);
    if (r->scale != 1.0f)
        printf(", linear scaling by %g", 1.0 / (double)r->scale);
    if (r->yarn_factor > 0)
        printf(", YaRN by %g from %" PRIu32, (double)r->yarn_factor, r->yarn_ctx_orig);
    printf("%s\n", m->global[SL_G_ROPE_FREQS] ? ", frequency divisors" : "");
}

static void print_routing(const struct sl_model *m, uint32_t layer, uint32_t n_routed) {
    const struct sl_hparams *hp = &m->hp;
    const struct sl_layer *l = &m->layers[layer];
    const struct sl_experts_spec *x = &l->spec.experts;
    char n1[32], n2[32], n3[32];
    label("experts");
    printf("%s per layer, %s per token, width %s; %s%s", OF_LAYERS(m, experts.n_expert, n3),
           OF_LAYERS(m, experts.n_used, n2), OF_LAYERS(m, experts.n_ff, n1),
           x->router_kind == SL_ROUTER_KIND_SQRT_SOFTPLUS ? "square root of softplus router"
           : x->router_kind == SL_ROUTER_KIND_SIGMOID     ? "sigmoid router"
           : x->router_softmax_topk                       ? "softmax over the chosen"
                                                          : "softmax router",
           x->router_normalize ? ", renormalised" : "");
    if (x->router_scale != 1.0f)
        printf(", scaled by %g", (double)x->router_scale);
    if (x->n_ff_shared)
        printf("; shared expert of width %s%s", OF_LAYERS(m, experts.n_ff_shared, n1),
               l->t[SL_L_SHARED_ROUTER] ? " behind a sigmoid gate" : "");
    if (x->n_latent)
        printf("; by way of rows of %" PRIu32, x->n_latent);
    if (n_routed < hp->n_layer)
        printf("; in %" PRIu32 " layers, from layer %" PRIu32 " on", n_routed, layer);
    printf("\n");
}

static void print_shapes(const struct sl_model *m) {
    const struct sl_hparams *hp = &m->hp;
    char n1[32];
    label("shape");
    printf("%" PRIu32 " layers, width %" PRIu32 ", vocabulary %" PRIu32 "%s, context %" PRIu32 "\n",
           hp->n_layer, hp->n_embd, hp->n_vocab,
           m->global[SL_G_OUTPUT] == m->global[SL_G_TOKEN_EMBD] ? " (tied output)" : "",
           hp->n_ctx_train);
    print_attention(m);
    print_latents(m, false);
    print_latents(m, true);
    print_compressed(m);
    print_low_streams(m);
    print_blocks(m);
    print_delta(m);
    print_conv(m);
    print_mamba(m);
    print_mamba1(m);
    print_kda(m);
    print_kept(m);
    print_rope(m);
    if (hp->n_layer_nextn) {
        label("nextn (MTP)");
        printf("%" PRIu32 " layers behind these, which draft tokens: left on disk%s\n",
               hp->n_layer_nextn, sl_model_has_drafts(m) ? ", unless --draft uses the first" : "");
    }
    uint32_t n_routed = 0, first = 0;
    for (uint32_t l = hp->n_layer; l--;)
        if (sl_model_layer_is_moe(m, l)) {
            n_routed++;
            first = l;
        }
    bool dense = false;
    for (uint32_t l = 0; l < hp->n_layer; l++)
        dense |= m->layers[l].spec.ffn == SL_FFN_DENSE;
    if (dense) {
        label("dense ffn");
        printf("width %s\n", OF_LAYERS(m, n_ff, n1));
    }
    if (n_routed)
        print_routing(m, first, n_routed);
}

static void print_weights(const struct sl_inspect *in) {
    char buf[16];
    printf("\n%-16s %12s %7s  %s\n", "weights", "bytes", "share", "types");
    for (uint32_t p = 0; p <= SL_PURPOSE_COUNT; p++) {
        const struct sl_weight_sum *w = p < SL_PURPOSE_COUNT ? &in->of[p] : &in->total;
        if (w->n_tensors == 0)
            continue;
        printf("  %-14s %12s %6.1f%%  ", p < SL_PURPOSE_COUNT ? sl_purpose_names[p] : "all",
               sl_format_bytes(w->bytes, buf),
               100.0 * (double)w->bytes / (double)(in->total.bytes ? in->total.bytes : 1));
        put_types(w);
        printf("\n");
    }
}

static void print_experts(const struct sl_inspect *in) {
    char a[16], b[16];
    if (in->of[SL_PURPOSE_EXPERTS].n_tensors == 0)
        return;
    printf("\n%-16s %12s %12s  %s\n", "experts", "one", "layer", "types");
    for (uint32_t l = 0; l < in->n_layer; l++) {
        uint32_t last = sl_inspect_same_until(in, l);
        const struct sl_layer_experts *e = &in->layer[l];
        char range[32];
        if (l == last)
            snprintf(range, sizeof range, "layer %" PRIu32, l);
        else
            snprintf(range, sizeof range, "layers %" PRIu32 "-%" PRIu32, l, last);
        printf("  %-14s ", range);
        if (e->n_expert == 0) {
            printf("%12s %12s  none\n", "-", "-");
        } else {
            printf("%12s %12s ", sl_format_bytes(e->expert_bytes, a),
                   sl_format_bytes(e->expert_bytes * e->n_expert, b));
            for (uint32_t p = 0; p < SL_EXPERT_PARTS; p++)
                if (e->part[p].there)
                    printf(" %s %s", sl_expert_part_names[p],
                           sl_dtype_name((uint32_t)e->part[p].dtype));
            printf("\n");
        }
        l = last;
    }
    printf("\n");
    label("per token");
    printf("%s of routed experts", sl_format_bytes(in->routed_per_token_bytes, a));
    if (in->routed_per_token_bytes)
        printf(" (%.1f%% of them)", 100.0 * (double)in->routed_per_token_bytes /
                                        (double)in->of[SL_PURPOSE_EXPERTS].bytes);
    printf(" and %s of everything else\n", sl_format_bytes(in->dense_per_token_bytes, b));
}

static void print_token(const struct sl_inspect *in, const char *name, uint32_t id) {
    if (id == SL_NO_TOKEN)
        return;
    printf(", %s %" PRIu32 " '", name, id);
    put_text(sl_tokenizer_piece(in->tokenizer, id, true), 40);
    printf("'");
}

static void print_tokenizer(const struct sl_inspect *in) {
    struct sl_err ignored;
    struct sl_str s;
    printf("\n");
    label("tokenizer");
    if (in->n_token == 0) {
        printf("none in this file\n");
        return;
    }
    if (in->tokenizer) {
        printf("%s", sl_tokenizer_kind(in->tokenizer));
    } else {
        if (sl_gguf_get_str(in->gguf, "tokenizer.ggml.model", &s, &ignored) == SL_OK)
            put_text(s, 40);
        else
            printf("unnamed");
        if (sl_gguf_get_str(in->gguf, "tokenizer.ggml.pre", &s, &ignored) == SL_OK) {
            printf("/");
            put_text(s, 40);
        }
    }
    printf(", %" PRIu64 " tokens", in->n_token);
    if (in->n_merge)
        printf(", %" PRIu64 " merges", in->n_merge);
    if (in->tokenizer) {
        print_token(in, "BOS", sl_tokenizer_bos(in->tokenizer));
        print_token(in, "EOS", sl_tokenizer_eos(in->tokenizer));
        printf("\n");
    } else {
        printf("; not usable: %s\n", in->tokenizer_err.text);
    }
}

static const char template_key[] = "tokenizer.chat_template";

static void print_templates(const struct sl_inspect *in) {
    bool any = false;
    for (uint64_t i = 0; i < sl_gguf_n_kv(in->gguf); i++) {
        const struct sl_gguf_kv *kv = sl_gguf_kv_at(in->gguf, i);
        size_t n = sizeof template_key - 1;
        if (kv->type != SL_GGUF_STRING || kv->key.len < n ||
            memcmp(kv->key.ptr, template_key, n) != 0 || (kv->key.len > n && kv->key.ptr[n] != '.'))
            continue;
        label(any ? "" : "chat template");
        any = true;
        if (kv->key.len > n + 1) {
            put_text((struct sl_str){kv->key.ptr + n + 1, kv->key.len - n - 1}, 40);
            printf(": ");
        }
        struct sl_str s = {kv->data, (size_t)kv->data_bytes};
        uint64_t lines = 1;
        for (size_t j = 0; j < s.len; j++)
            lines += s.ptr[j] == '\n';
        printf("%" PRIu64 " bytes, %" PRIu64 " lines, begins \"", kv->data_bytes, lines);
        const char *end = memchr(s.ptr, '\n', s.len);
        if (end)
            s.len = (size_t)(end - s.ptr);
        put_text(s, 60);
        printf("\"\n");
    }
    if (!any) {
        label("chat template");
        printf("none\n");
    }
}

static void print_files(const struct sl_inspect *in) {
    char buf[16];
    if (sl_gguf_n_files(in->gguf) < 2)
        return;
    printf("\nfiles\n");
    for (uint32_t i = 0; i < sl_gguf_n_files(in->gguf); i++) {
        const char *path = sl_gguf_file_path(in->gguf, i);
        printf("  %12s  ", sl_format_bytes(sl_gguf_file_bytes(in->gguf, i), buf));
        put_text((struct sl_str){path, strlen(path)}, 200);
        printf("\n");
    }
}

static void put_number(const struct sl_gguf_kv *kv, uint64_t i) {
    double v = sl_gguf_array_f64(kv, i);
    char text[40];
    int digits = 5;
    if (kv->elem_type == SL_GGUF_F32) {
        do /* the shortest text that reads back as this float */
            snprintf(text, sizeof text, "%.*g", ++digits, v);
        while (digits < 9 && strtof(text, NULL) != (float)v);
        printf("%s", text);
    } else if (kv->elem_type == SL_GGUF_F64)
        printf("%.17g", v);
    else if (kv->elem_type == SL_GGUF_BOOL)
        printf("%s", sl_gguf_array_i64(kv, i) ? "true" : "false");
    else
        printf("%" PRId64, sl_gguf_array_i64(kv, i));
}

static void print_kv(const struct sl_gguf *g, const char *only_prefix) {
    for (uint64_t i = 0; i < sl_gguf_n_kv(g); i++) {
        const struct sl_gguf_kv *kv = sl_gguf_kv_at(g, i);
        size_t n = only_prefix ? strlen(only_prefix) : 0;
        char key[72], type[24];
        if (kv->key.len < n || (n && memcmp(kv->key.ptr, only_prefix, n) != 0))
            continue;
        if (kv->type == SL_GGUF_ARRAY)
            snprintf(type, sizeof type, "%s[%" PRIu64 "]", sl_gguf_type_name(kv->elem_type),
                     kv->n_elems);
        else
            snprintf(type, sizeof type, "%s", sl_gguf_type_name(kv->type));
        printf("  %-44s %-15s ", sl_str_escape(kv->key, key, sizeof key), type);
        struct sl_str s = {kv->data, (size_t)kv->data_bytes};
        struct sl_gguf_str_iter it = {.kv = kv};
        if (kv->type == SL_GGUF_STRING) {
            put_text(s, 72);
        } else if (kv->type != SL_GGUF_ARRAY) {
            put_number(kv, 0);
        } else {
            for (uint64_t j = 0; j < kv->n_elems && j < 6; j++) {
                printf("%s", j ? ", " : "");
                if (sl_gguf_str_next(&it, &s)) {
                    printf("'");
                    put_text(s, 16);
                    printf("'");
                } else {
                    put_number(kv, j);
                }
            }
            printf("%s", kv->n_elems > 6 ? ", ..." : "");
        }
        printf("\n");
    }
}

static void print_tensors(const struct sl_gguf *g) {
    printf("\n%-40s %-8s %-26s %12s %5s %16s\n", "tensors", "type", "shape (innermost first)",
           "bytes", "file", "offset");
    for (uint64_t i = 0; i < sl_gguf_n_tensors(g); i++) {
        const struct sl_gguf_tensor *t = sl_gguf_tensor_at(g, i);
        char name[72], shape[96];
        int n = 0;
        for (uint32_t d = 0; d < t->n_dims; d++)
            n += snprintf(shape + n, sizeof shape - (size_t)n, "%s%" PRIu64, d ? " x " : "",
                          t->ne[d]);
        printf("  %-38s %-8s %-26s %12" PRIu64 " %5" PRIu32 " %16" PRIu64 "\n",
               sl_str_escape(t->name, name, sizeof name), sl_dtype_name((uint32_t)t->dtype), shape,
               t->size_bytes, t->file, t->offset_bytes);
    }
}

static int print_template(const struct sl_inspect *in, const char *name) {
    char key[160];
    struct sl_str s;
    struct sl_err err;
    snprintf(key, sizeof key, "%s%s%s", template_key, name[0] ? "." : "", name);
    enum sl_status status = sl_gguf_get_str(in->gguf, key, &s, &err);
    if (status != SL_OK) {
        if (status == SL_AGAIN)
            fprintf(stderr, "sluice inspect: the file has no key '%s'\n", key);
        else
            fprintf(stderr, "sluice inspect: %s\n", err.text);
        return 1;
    }
    if (!isatty(1)) { /* a pipe gets the bytes as they are */
        fwrite(s.ptr, 1, s.len, stdout);
        return 0;
    }
    while (s.len > 0) {
        const char *end = memchr(s.ptr, '\n', s.len);
        struct sl_str line = {s.ptr, end ? (size_t)(end - s.ptr) : s.len};
        put_text(line, SIZE_MAX);
        printf("\n");
        s.ptr += line.len + (end != NULL);
        s.len -= line.len + (end != NULL);
    }
    return 0;
}

static void print_report(const struct sl_inspect *in) {
    print_head(in);
    if (in->model) {
        print_shapes(in->model);
    } else if (in->arch.len > 0 && in->arch.len < 64) {
        char prefix[72];
        snprintf(prefix, sizeof prefix, "%.*s.", (int)in->arch.len, in->arch.ptr);
        printf("\nhyperparameters\n");
        print_kv(in->gguf, prefix);
    }
    if (in->total.n_tensors > 0) {
        print_weights(in);
        print_experts(in);
    }
    print_tokenizer(in);
    print_templates(in);
    print_files(in);
}

int sl_cmd_inspect(int argc, char **argv) {
    const char *path = NULL, *template_name = NULL;
    bool json = false, kv = false, tensors = false, template = false;
    const struct sl_arg args[] = {
        {SL_ARG_STRING, 'm', "--model", "FILE", &path, "the file, as in other commands", false},
        {SL_ARG_FLAG, 0, "--kv", NULL, &kv, "list every key", false},
        {SL_ARG_FLAG, 0, "--tensors", NULL, &tensors, "list every tensor", false},
        {SL_ARG_FLAG, 0, "--template", NULL, &template, "print the whole chat template", false},
        {SL_ARG_STRING, 0, "--template-name", "NAME", &template_name,
         "print a named template, such as tool_use", false},
        {SL_ARG_FLAG, 0, "--json", NULL, &json,
         "print JSON, with --kv and --tensors including those", false},
    };
    const struct sl_command command = {
        .name = "inspect",
        .about = "Says what a GGUF file holds: architecture, shapes, types, experts, tokenizer, "
                 "template.\nReads only the metadata, so it is quick on a file of any size; of a "
                 "split model, any part will do.",
        .usage = "sluice inspect MODEL.gguf [options]",
        .args = args,
        .n_args = SL_COUNTOF(args),
        .model = &path,
    };
    int rc = sl_args_parse(&command, argc, argv);
    if (rc >= 0)
        return rc;
    static struct sl_inspect in; /* 32 KiB of layers: not for the stack */
    struct sl_err err;
    if (sl_inspect_open(path, &in, &err) != SL_OK) {
        fprintf(stderr, "sluice inspect: %s\n", err.text);
        return 1;
    }
    rc = 0;
    if (template || template_name) {
        rc = print_template(&in, template_name ? template_name : "");
    } else if (json) {
        rc = sl_inspect_print_json(&in, kv, tensors) ? 0 : 1;
    } else {
        print_report(&in);
        if (kv) {
            printf("\nkeys\n");
            print_kv(in.gguf, NULL);
        }
        if (tensors)
            print_tensors(in.gguf);
    }
    sl_inspect_release(&in);
    if (fflush(stdout) != 0) {
        perror("sluice inspect: cannot write");
        rc = 1;
    }
    return rc;
}
