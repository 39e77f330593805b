#include "cli/options/args.h"
#include "cli/options/args_env.h"
#include "cli/options/commands.h"
#include "cli/synth_presets.h"
#include "common/clock.h"
#include "common/limits.h"
#include "model/synth/synth.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* "Q4_K" or "Q4_K,Q6_K": layer i takes entry i % n. */
static bool parse_types(const char *option, const char *text, struct sl_synth_types *out) {
    struct sl_synth_types types = {.n = 0};
    while (*text) {
        char name[16];
        size_t len = strcspn(text, ",");
        snprintf(name, sizeof name, "%.*s", (int)(len < 15 ? len : 15), text);
        enum sl_dtype t = sl_dtype_from_name(name);
        if (t == SL_DTYPE_COUNT || types.n == SL_SYNTH_MAX_TYPES) {
            char known[512] = "";
            for (uint32_t i = 0; i < SL_DTYPE_COUNT; i++)
                if (sl_dtype_info(i))
                    snprintf(known + strlen(known), sizeof known - strlen(known), " %s",
                             sl_dtype_name(i));
            sl_usage_error("synth",
                           "%s: '%s' is not a tensor type (known:%s), or there are more than %u",
                           option, name, known, SL_SYNTH_MAX_TYPES);
            return false;
        }
        types.dtype[types.n++] = t;
        text += len;
        text += *text == ',';
    }
    *out = types;
    return types.n > 0;
}

/* "8,16,0": layer i takes entry i % n. */
static bool parse_each(const char *text, struct sl_synth_config *c) {
    c->n_each = c->n_expert = 0;
    do {
        char *end;
        errno = 0;
        unsigned long n = strtoul(text, &end, 10);
        if (*text < '0' || *text > '9' || errno || n > SL_MAX_EXPERTS || (*end && *end != ',') ||
            (*end && !end[1]) || c->n_each == SL_SYNTH_MAX_EACH) {
            sl_usage_error("synth",
                           "--experts-each: must be up to %u numbers from 0 to %u, as 8,16,0",
                           SL_SYNTH_MAX_EACH, SL_MAX_EXPERTS);
            return false;
        }
        c->n_expert_each[c->n_each++] = (uint32_t)n;
        c->n_expert = n > c->n_expert ? (uint32_t)n : c->n_expert;
        text = *end ? end + 1 : end;
    } while (*text);
    return true;
}

struct progress {
    uint64_t start_ns, last_ns;
    bool quiet;
};

static bool report(void *ctx, uint64_t done, uint64_t total) {
    struct progress *p = ctx;
    uint64_t now = sl_now_ns();
    if (p->quiet || (now - p->last_ns < 200000000 && done < total))
        return true;
    p->last_ns = now;
    char a[16], b[16], c[16];
    double s = (double)(now - p->start_ns) * 1e-9;
    fprintf(stderr, "\r%s of %s, %s/s   ", sl_format_bytes(done, a), sl_format_bytes(total, b),
            sl_format_bytes((uint64_t)((double)done / (s > 0 ? s : 1)), c));
    return true;
}

/* Those with a gated delta net; false: not one of them. */
static bool apply_delta(const char *name, struct sl_synth_config *c) {
    static const struct {
        const char *name, *arch;
        uint32_t n_layer, n_expert, n_expert_used, n_embd, n_head, n_ff_expert, n_delta_head;
        uint32_t n_vocab;
        float rope_base;
    } shapes[] = {
        {"qwen3.5-35b-a3b", "qwen35moe", 40, 256, 8, 2048, 16, 512, 32, 248320, 1e7f},
        {"qwen3.5-122b-a10b", "qwen35moe", 48, 256, 8, 3072, 32, 1024, 64, 248320, 1e7f},
        {"qwen3-next-80b", "qwen3next", 48, 512, 10, 2048, 16, 512, 32, 151936, 1e7f},
    };
    for (size_t i = 0; i < SL_COUNTOF(shapes); i++) {
        if (strcmp(name, shapes[i].name) != 0)
            continue;
        c->arch = shapes[i].arch;
        c->n_layer = shapes[i].n_layer;
        c->n_expert = shapes[i].n_expert;
        c->n_expert_used = shapes[i].n_expert_used;
        c->n_embd = shapes[i].n_embd;
        c->n_head = shapes[i].n_head;
        c->n_head_kv = 2;
        c->head_dim = 256;
        c->n_rot = 64;
        c->n_ff_expert = c->n_ff_shared = shapes[i].n_ff_expert;
        c->n_delta_head = shapes[i].n_delta_head;
        c->n_delta_head_k = 16;
        c->delta_dim = 128;
        c->n_vocab = shapes[i].n_vocab;
        c->n_ctx = 262144;
        c->rope_base = shapes[i].rope_base;
        c->attn = c->ffn = c->gate = c->up = (struct sl_synth_types){{SL_DTYPE_Q4_K}, 1};
        c->down = (struct sl_synth_types){{SL_DTYPE_Q6_K}, 1};
        return true;
    }
    return false;
}

/* Those with latent attention; false: not one of them. */
static bool apply_latent(const char *name, struct sl_synth_config *c) {
    static const struct {
        const char *name;
        uint32_t n_layer, n_dense, n_embd, n_head, n_lora_q, head_dim, head_dim_v;
        uint32_t n_expert, n_expert_used, n_ff_expert, n_ff, n_vocab, n_ctx, n_nextn, n_group;
        float rope_base, yarn_factor, router_scale;
        const char *arch; /* NULL: deepseek2 */
        uint32_t n_index_head, delta_dim;
    } shapes[] = {
        {"deepseek-v3", 61,     3,      7168, 128, 1536, 192, 128,  256,  8, 2048,
         18432,         129280, 163840, 0,    8,   1e4f, 40,  2.5f, NULL, 0, 0},
        {"kimi-k2", 61,     1,      7168, 64, 1536, 192, 128,    384,  8, 2048,
         18432,     163840, 131072, 0,    0,  5e4f, 32,  2.827f, NULL, 0, 0},
        {"glm-4.7-flash", 47,     1,      2048, 20, 768,  256, 256,  64,   4, 1536,
         10240,           154880, 202752, 1,    0,  1e6f, 0,   1.8f, NULL, 0, 0},
        {"deepseek-v3.2", 61,     3,      7168, 128, 1536, 192, 128,  256,          8,  2048,
         18432,           129280, 163840, 0,    8,   1e4f, 40,  2.5f, "deepseek32", 64, 0},
        {"glm-5.2", 78,     3,       6144, 64, 2048, 256, 256,  256,       8,  2048,
         12288,     154880, 1048576, 1,    0,  1e6f, 0,   2.5f, "glm-dsa", 32, 0},
        {"kimi-linear-48b-a3b",
         27,
         1,
         2304,
         32,
         0,
         192,
         128,
         256,
         8,
         1024,
         9216,
         163840,
         1048576,
         0,
         0,
         1e4f,
         0,
         2.446f,
         "kimi-linear",
         0,
         128},
        {"kimi-k3", 93,     1,       7168, 96, 1536, 192, 128,  896,       16, 3072,
         33792,     163840, 1048576, 0,    0,  1e4f, 0,   2.5f, "kimi-k3", 0,  128},
        {"ling-3.0-tiny", 24,     1, 1536, 16,   256, 192,  128,           128, 8,  512, 4608,
         157184,          131072, 0, 8,    6e6f, 0,   2.5f, "bailingmoe3", 0,   128},
    };
    for (size_t i = 0; i < SL_COUNTOF(shapes); i++) {
        if (strcmp(name, shapes[i].name) != 0)
            continue;
        c->arch = shapes[i].arch ? shapes[i].arch : "deepseek2";
        c->n_layer = shapes[i].n_layer;
        c->n_layer_dense = shapes[i].n_dense;
        c->n_embd = shapes[i].n_embd;
        c->n_head = shapes[i].n_head;
        c->n_head_kv = 1;
        c->n_lora_q = shapes[i].n_lora_q;
        c->n_latent = 512;
        c->n_rot = 64;
        c->head_dim = shapes[i].head_dim;
        c->head_dim_v = shapes[i].head_dim_v;
        c->n_expert = shapes[i].n_expert;
        c->n_expert_used = shapes[i].n_expert_used;
        c->n_ff_expert = c->n_ff_shared = shapes[i].n_ff_expert;
        if (strcmp(c->arch, "kimi-k3") == 0) {
            c->n_ff_shared *= 2;
            c->n_expert_latent = 3584;
            c->keep_every = 12;
        }
        c->n_ff = shapes[i].n_ff;
        c->n_vocab = shapes[i].n_vocab;
        c->n_ctx = shapes[i].n_ctx;
        c->n_nextn = shapes[i].n_nextn;
        c->n_group = shapes[i].n_group;
        c->n_group_used = c->n_group / 2;
        c->n_index_head = shapes[i].n_index_head ? shapes[i].n_index_head : c->n_index_head;
        c->index_dim = 128;
        c->delta_dim = shapes[i].delta_dim ? shapes[i].delta_dim : c->delta_dim;
        c->n_index_top = 2048;
        c->rope_base = shapes[i].rope_base;
        c->yarn_factor = shapes[i].yarn_factor;
        c->yarn_log_mul = c->yarn_factor > 0 ? 0.1f : 0;
        c->router_sigmoid = true;
        c->router_scale = shapes[i].router_scale;
        c->attn = c->ffn = c->gate = c->up = (struct sl_synth_types){{SL_DTYPE_Q4_K}, 1};
        c->down = (struct sl_synth_types){{SL_DTYPE_Q6_K}, 1};
        return true;
    }
    return false;
}

#define PRESETS                                                                                    \
    "bench-5g, qwen3-30b-a3b, mixtral-8x7b, gpt-oss-20b, gpt-oss-120b, qwen3.5-35b-a3b, "          \
    "qwen3.5-122b-a10b, qwen3-next-80b, qwen3.8-flash-next, deepseek-v3, deepseek-v3.2, "          \
    "deepseek-v4-flash, kimi-linear-48b-a3b, kimi-k2, kimi-k3, glm-4.5-air, glm-4.7-flash, "       \
    "glm-5.2, minimax-m2, minimax-m3, gemma4-26b, llama4-scout, nemotron-3-nano, "                 \
    "lfm2-8b-a1b, granite-4-h-small, jamba-mini or ling-3.0-tiny"

/* Shapes of well-known models; type mixes as their Q4_K_M files have. */
static bool apply_preset(const char *name, struct sl_synth_config *c) {
    const struct sl_synth_types q4 = {{SL_DTYPE_Q4_K}, 1}, q6 = {{SL_DTYPE_Q6_K}, 1};
    if (strcmp(name, "qwen3-30b-a3b") == 0 || strcmp(name, "bench-5g") == 0) {
        bool small = strcmp(name, "bench-5g") == 0;
        c->arch = "qwen3moe";
        c->n_layer = small ? 24 : 48;
        c->n_expert = small ? 64 : 128;
        c->n_embd = 2048;
        c->n_head = 32;
        c->n_head_kv = 4;
        c->head_dim = 128;
        c->n_ff = 6144;
        c->n_ff_expert = 768;
        c->n_expert_used = 8;
        c->n_vocab = small ? 32000 : 151936;
        c->n_ctx = 32768;
        c->attn = c->ffn = c->gate = c->up = q4;
        c->down = q6;
        return true;
    }
    if (strcmp(name, "mixtral-8x7b") == 0 || strcmp(name, "mixtral") == 0) {
        c->arch = "llama";
        c->n_layer = 32;
        c->n_expert = 8;
        c->n_embd = 4096;
        c->n_head = 32;
        c->n_head_kv = 8;
        c->head_dim = 128;
        c->n_ff_expert = c->n_ff = 14336;
        c->n_expert_used = 2;
        c->n_vocab = 32000;
        c->n_ctx = 32768;
        c->attn = c->ffn = c->gate = c->up = q4;
        c->down = q6;
        return true;
    }
    if (strcmp(name, "gpt-oss-20b") == 0 || strcmp(name, "gpt-oss-120b") == 0) {
        bool small = strcmp(name, "gpt-oss-20b") == 0;
        c->arch = "gpt-oss";
        c->n_layer = small ? 24 : 36;
        c->n_expert = small ? 32 : 128;
        c->n_embd = c->n_ff = c->n_ff_expert = 2880;
        c->n_head = 64;
        c->n_head_kv = 8;
        c->head_dim = 64;
        c->n_expert_used = 4;
        c->n_vocab = 201088;
        c->n_ctx = 131072;
        c->window = 128;
        c->rope_base = 150000;
        c->yarn_factor = 32;
        c->gate = c->up = c->down = (struct sl_synth_types){{SL_DTYPE_MXFP4}, 1};
        return true;
    }
    if (strcmp(name, "gemma4-26b") == 0) {
        c->arch = "gemma4";
        c->n_layer = 30;
        c->n_expert = 128;
        c->n_expert_used = 8;
        c->n_embd = 2816;
        c->n_head = 16;
        c->n_head_kv = 2;
        c->n_head_kv_window = 8;
        c->head_dim = 512;
        c->head_dim_window = 256;
        c->n_ff = 2112;
        c->n_ff_expert = 704;
        c->n_vocab = 262144;
        c->n_ctx = 262144;
        c->window = 1024;
        c->window_period = 6;
        c->rope_base = 1e6f;
        c->rope_base_window = 10000;
        c->logit_softcap = 30;
        c->tied = true;
        c->attn = c->ffn = c->gate = c->up = q4;
        c->down = (struct sl_synth_types){{SL_DTYPE_Q8_0}, 1}; /* rows of 704 are no K blocks */
        return true;
    }
    if (strcmp(name, "llama4-scout") == 0) {
        c->arch = "llama4";
        c->n_layer = 48;
        c->n_expert = 16;
        c->n_expert_used = 1;
        c->n_embd = 5120;
        c->n_head = 40;
        c->n_head_kv = 8;
        c->head_dim = 128;
        c->n_ff = 16384;
        c->n_ff_expert = 8192;
        c->n_vocab = 202048;
        c->n_ctx = 10485760;
        c->rope_base = 500000;
        c->attn = c->ffn = c->gate = c->up = q4;
        c->down = q6;
        return true;
    }
    if (apply_delta(name, c) || apply_latent(name, c) || sl_synth_preset(name, c))
        return true;
    sl_usage_error("synth", "--preset: '%s' is not one of " PRESETS, name);
    return false;
}

/* What was given; the table writes here. One command runs at a time. */
static struct given {
    struct sl_synth_config c;
    const char *path, *preset;
    const char *type, *attn, *ffn, *gate, *up, *down, *embd, *output, *each;
    bool quiet;
} given;

static const struct sl_arg args[] = {
    {SL_ARG_OUTPUT, 'o', "--out", "FILE", &given.path, "the file to write", true},
    {SL_ARG_STRING, 0, "--preset", "NAME", &given.preset, "start from " PRESETS, false},
    {SL_ARG_U64, 0, "--seed", "N", &given.c.seed, "the same seed gives the same bytes (default 1)",
     false},
    {SL_ARG_U32, 0, "--split", "N", &given.c.n_split, "write N files; --out is then their prefix",
     false},
    {SL_ARG_FLAG, 0, "--headers-only", NULL, &given.c.headers_only,
     "leave tensors as holes, which take no space: for inspect and plan", false},
    {SL_ARG_FLAG, 'q', "--quiet", NULL, &given.quiet, "no progress", false},
    {SL_ARG_HEADING, 0, "Shape", NULL, NULL, NULL, false},
    {SL_ARG_STRING, 0, "--arch", "NAME", &given.c.arch, NULL, false},
    {SL_ARG_U32, 0, "--layers", "N", &given.c.n_layer, "layers (default 4)", false},
    {SL_ARG_U32, 0, "--embd", "N", &given.c.n_embd, "width of the hidden state (default 256)",
     false},
    {SL_ARG_U32, 0, "--heads", "N", &given.c.n_head, "query heads (default 4)", false},
    {SL_ARG_U32, 0, "--kv-heads", "N", &given.c.n_head_kv, "key and value heads (default 2)",
     false},
    {SL_ARG_U32, 0, "--odd-kv-heads", "N", &given.c.n_head_kv_odd,
     "key and value heads of layers 1, 3, 5, ... (default: as the others)", false},
    {SL_ARG_U32, 0, "--head-dim", "N", &given.c.head_dim, "elements per head (default 64)", false},
    {SL_ARG_U32, 0, "--ff", "N", &given.c.n_ff, "dense feed-forward width (default 512)", false},
    {SL_ARG_U32, 0, "--experts", "N", &given.c.n_expert,
     "experts per layer; 0 with llama = dense (default 8)", false},
    {SL_ARG_STRING, 0, "--experts-each", "LIST", &given.each,
     "experts of each layer, as 8,16,0: repeated over the layers; 0 = dense", false},
    {SL_ARG_U32, 0, "--top-k", "N", &given.c.n_expert_used, "experts per token (default 2)", false},
    {SL_ARG_U32, 0, "--odd-top-k", "N", &given.c.n_expert_used_odd,
     "experts per token in layers 1, 3, 5, ... (default: as in the others)", false},
    {SL_ARG_U32, 0, "--groups", "N", &given.c.n_group, "groups that experts are in (default none)",
     false},
    {SL_ARG_U32, 0, "--groups-used", "N", &given.c.n_group_used,
     "groups that a token's experts are chosen from", false},
    {SL_ARG_U32, 0, "--expert-ff", "N", &given.c.n_ff_expert, "width of an expert (default 128)",
     false},
    {SL_ARG_U32, 0, "--moe-step", "N", &given.c.moe_step,
     "every N-th layer has experts (llama4; default: all)", false},
    {SL_ARG_STRING, 0, "--pattern", "TEXT", &given.c.pattern,
     "of each layer its one part, from the start again where it ends: M Mamba-2, * attention, E a "
     "feed-forward part (nemotron_h_moe; default ME*E)",
     false},
    {SL_ARG_U32, 0, "--adjugate-ff", "N", &given.c.n_ff_adjugate,
     "width of an adjugate expert (grovemoe; default 64)", false},
    {SL_ARG_U32, 0, "--per-adjugate", "N", &given.c.n_per_adjugate,
     "experts that share one (grovemoe; default 2)", false},
    {SL_ARG_U32, 0, "--expert-latent", "N", &given.c.n_expert_latent,
     "elements of the rows that experts read (nemotron_h_moe, kimi-k3; default: the hidden "
     "state's)",
     false},
    {SL_ARG_U32, 0, "--keep-every", "N", &given.c.keep_every,
     "layers of a block of residual attention, 0 for none (kimi-k3; default 2)", false},
    {SL_ARG_U32, 0, "--temper", "N", &given.c.temper,
     "queries grow with every N positions (deepseek2, mistral4; default: they do not)", false},
    {SL_ARG_U32, 0, "--chunk", "N", &given.c.chunk,
     "positions in a chunk of attention (llama4; default: none stated, which means 8192)", false},
    {SL_ARG_FLAG, 0, "--beside", NULL, &given.c.with_dense,
     "a dense part beside the experts (grok)", false},
    {SL_ARG_FLAG, 0, "--fused-qkv", NULL, &given.c.fused_qkv, "q, k and v are one matrix", false},
    {SL_ARG_FLAG, 0, "--fused-experts", NULL, &given.c.fused_experts,
     "gate and up of experts are one tensor", false},
    {SL_ARG_U32, 0, "--shared-ff", "N", &given.c.n_ff_shared,
     "width of the shared expert, where the architecture has one (default 256)", false},
    {SL_ARG_U32, 0, "--dense-layers", "N", &given.c.n_layer_dense,
     "first layers without experts (ernie4_5-moe; default 0)", false},
    {SL_ARG_U32, 0, "--vocab", "N", &given.c.n_vocab, "tokens (default 1024)", false},
    {SL_ARG_U32, 0, "--ctx", "N", &given.c.n_ctx,
     "context length stated in the file (default 4096)", false},
    {SL_ARG_FLAG, 0, "--tied", NULL, &given.c.tied, "the embedding is the output matrix", false},
    {SL_ARG_FLAG, 0, "--rope-freqs", NULL, &given.c.rope_freqs, "Llama 3.1 frequency divisors",
     false},
    {SL_ARG_F32, 0, "--yarn", "F", &given.c.yarn_factor, "YaRN scaling by F", false},
    {SL_ARG_F32, 0, "--rope-base", "F", &given.c.rope_base, "RoPE's base (default 1e6)", false},
    {SL_ARG_U32, 0, "--window", "N", &given.c.window,
     "positions that layers with a window read (gpt-oss; default 128)", false},
    {SL_ARG_F32, 0, "--window-rope-base", "F", &given.c.rope_base_window,
     "RoPE's base in such layers (default: as in the others)", false},
    {SL_ARG_U32, 0, "--window-period", "N", &given.c.window_period,
     "every N-th layer has no window (gemma4; default 6)", false},
    {SL_ARG_U32, 0, "--window-head-dim", "N", &given.c.head_dim_window,
     "elements per head of layers with a window (gemma4; default: as in the others)", false},
    {SL_ARG_U32, 0, "--layer-embd", "N", &given.c.n_embd_layer,
     "gemma4: elements of each layer's own embedding of a token (default none)", false},
    {SL_ARG_U32, 0, "--shared-kv", "N", &given.c.n_shared_kv,
     "gemma4: the last N layers read another's keys and values (default none)", false},
    {SL_ARG_U32, 0, "--window-kv-heads", "N", &given.c.n_head_kv_window,
     "key and value heads of such layers (gemma4; default: as in the others)", false},
    {SL_ARG_U32, 0, "--window-heads", "N", &given.c.n_head_window,
     "query heads of such layers (laguna; default: as in the others)", false},
    {SL_ARG_U32, 0, "--window-rotated", "N", &given.c.n_rot_window,
     "elements of a head that they rotate (laguna; default: as in the others)", false},
    {SL_ARG_FLAG, 0, "--gate-heads", NULL, &given.c.gate_heads,
     "attention's gate is of each head, not each element (laguna)", false},
    {SL_ARG_F32, 0, "--softcap", "F", &given.c.logit_softcap,
     "soft cap of the logits (gemma4; default: none)", false},
    {SL_ARG_U32, 0, "--rotated", "N", &given.c.n_rot,
     "elements of a head that RoPE rotates (default: all)", false},
    {SL_ARG_FLAG, 0, "--sections", NULL, &given.c.sections, "multi-section RoPE (glm4moe)", false},
    {SL_ARG_FLAG, 0, "--qkv-bias", NULL, &given.c.qkv_bias, "q, k and v have biases (glm4moe)",
     false},
    {SL_ARG_FLAG, 0, "--no-qk-norm", NULL, &given.c.no_qk_norm, "q and k are not normed (glm4moe)",
     false},
    {SL_ARG_HEADING, 0, "Recurrent layers (delta nets, short convolutions, Mamba)", NULL, NULL,
     NULL, false},
    {SL_ARG_U32, 0, "--attn-every", "N", &given.c.attn_every,
     "every N-th layer has attention, the others one of these (default 4)", false},
    {SL_ARG_U32, 0, "--delta-heads", "N", &given.c.n_delta_head, "its heads (default 4)", false},
    {SL_ARG_U32, 0, "--delta-key-heads", "N", &given.c.n_delta_head_k,
     "those of its keys; groups of Mamba (default 2)", false},
    {SL_ARG_U32, 0, "--state-dim", "N", &given.c.n_state, "rows of a state of Mamba (default 32)",
     false},
    {SL_ARG_FLAG, 0, "--no-rope", NULL, &given.c.no_rope,
     "attention is not rotated (granitehybrid)", false},
    {SL_ARG_U32, 0, "--delta-dim", "N", &given.c.delta_dim, "elements of each (default 32)", false},
    {SL_ARG_U32, 0, "--taps", "N", &given.c.n_taps,
     "positions that the convolution reads (default 4)", false},
    {SL_ARG_HEADING, 0, "Latent attention (deepseek2, deepseek32, glm-dsa)", NULL, NULL, NULL,
     false},
    {SL_ARG_U32, 0, "--q-lora", "N", &given.c.n_lora_q,
     "rank of the query's projection (default 0: one matrix; with an indexer 64)", false},
    {SL_ARG_U32, 0, "--latent", "N", &given.c.n_latent, "elements of a latent (default 64)", false},
    {SL_ARG_U32, 0, "--value-dim", "N", &given.c.head_dim_v,
     "elements of a head's value (default 64)", false},
    {SL_ARG_U32, 0, "--out-groups", "N", &given.c.n_group_out,
     "groups of heads with an output matrix each (deepseek4; default 2)", false},
    {SL_ARG_U32, 0, "--out-lora", "N", &given.c.n_lora_out,
     "rank of such a matrix, or of hyper-connections (deepseek4, qwen4exp; default 32)", false},
    {SL_ARG_U32, 0, "--ngram-heads", "N", &given.c.n_ngram_head,
     "heads of each n-gram (qwen4exp; default 2)", false},
    {SL_ARG_U32, 0, "--ngram-rows", "N", &given.c.n_ngram_rows,
     "rows of the table for each head (qwen4exp; default 251)", false},
    {SL_ARG_U32, 0, "--table-layers", "N", &given.c.n_layer_table,
     "first layers whose experts a table of tokens says (deepseek4; default 1)", false},
    {SL_ARG_U32, 0, "--index-heads", "N", &given.c.n_index_head,
     "heads of the indexer (deepseek32, glm-dsa; default 4)", false},
    {SL_ARG_U32, 0, "--index-dim", "N", &given.c.index_dim, "elements of each (default 64)", false},
    {SL_ARG_U32, 0, "--index-top", "N", &given.c.n_index_top,
     "positions that it chooses (default 64)", false},
    {SL_ARG_U32, 0, "--index-every", "N", &given.c.index_every,
     "every N-th layer has an indexer, from the first on (glm-dsa; default: all)", false},
    {SL_ARG_U32, 0, "--index-block", "N", &given.c.index_block,
     "positions of a block, which it then chooses (minimax-m3, qwen4exp; default 16)", false},
    {SL_ARG_U32, 0, "--index-local", "N", &given.c.n_index_local,
     "last blocks of a row that are always among them (minimax-m3; default 1)", false},
    {SL_ARG_U32, 0, "--window-latent", "N", &given.c.n_latent_window,
     "elements of a latent in layers with a window (dots3note; default: as the others)", false},
    {SL_ARG_U32, 0, "--window-value-dim", "N", &given.c.head_dim_v_window,
     "elements of a head's value there (dots3note; default: as the others)", false},
    {SL_ARG_FLAG, 0, "--joined-kv", NULL, &given.c.joined_kv,
     "one matrix for keys and values, as in older files", false},
    {SL_ARG_FLAG, 0, "--sigmoid", NULL, &given.c.router_sigmoid,
     "the router takes sigmoids, with a bias for the choice", false},
    {SL_ARG_F32, 0, "--router-scale", "F", &given.c.router_scale,
     "scale of the experts' weights (default: none)", false},
    {SL_ARG_F32, 0, "--yarn-multiplier", "F", &given.c.yarn_log_mul,
     "rope.scaling.yarn_log_multiplier (default: none)", false},
    {SL_ARG_U32, 0, "--nextn", "N", &given.c.n_nextn,
     "layers behind the last that draft tokens (default 0)", false},
    {SL_ARG_U32, 0, "--nextn-right", "N", &given.c.nextn_right,
     "of 100 tokens these know the successor of so many (default 0: they are random)", false},
    {SL_ARG_HEADING, 0, "Tensor types (a list such as Q4_K,Q6_K alternates over layers)", NULL,
     NULL, NULL, false},
    {SL_ARG_STRING, 't', "--type", "TYPE", &given.type,
     "attention, feed-forward and experts (default Q8_0)", false},
    {SL_ARG_STRING, 0, "--attn", "TYPE", &given.attn, "attention", false},
    {SL_ARG_STRING, 0, "--ffn", "TYPE", &given.ffn, "dense and shared feed-forward", false},
    {SL_ARG_STRING, 0, "--gate", "TYPE", &given.gate, "experts' gate", false},
    {SL_ARG_STRING, 0, "--up", "TYPE", &given.up, "experts' up", false},
    {SL_ARG_STRING, 0, "--down", "TYPE", &given.down, "experts' down", false},
    {SL_ARG_STRING, 0, "--embd-type", "TYPE", &given.embd, "token embedding (default Q8_0)", false},
    {SL_ARG_STRING, 0, "--output-type", "TYPE", &given.output, "output matrix (default Q8_0)",
     false},
    {SL_ARG_HEADING, 0, "Routing (defaults match Qwen3-30B-A3B)", NULL, NULL, NULL, false},
    {SL_ARG_F32, 0, "--skew", "X", &given.c.skew, "spread of the experts' popularity; 0 = uniform",
     false},
    {SL_ARG_F32, 0, "--locality", "X", &given.c.locality,
     "0..1: how alike the experts of neighbouring tokens are", false},
    {SL_ARG_F32, 0, "--stay", "X", &given.c.stay,
     "0..1: chance that a generated token stays in its neighbourhood", false},
};

/* "--arch": the architectures by name. */
static const char *help_of(const char *option) {
    static char text[2048];
    (void)option;
    text[0] = 0;
    for (uint32_t i = 0; sl_synth_arch_at(i); i++) {
        size_t n = strlen(text);
        const char *is_default =
            strcmp(sl_synth_arch_at(i), sl_synth_default.arch) ? "" : " (default)";
        snprintf(text + n, sizeof text - n, "%s%s%s", i ? ", " : "", sl_synth_arch_at(i),
                 is_default);
    }
    return text;
}

static const struct sl_command command = {
    .name = "synth",
    .about = "Writes a synthetic model: random weights of sound scale, any shape and type mix, "
             "routing\nlike a real model's. For benchmarks and tests.",
    .usage = "sluice synth -o FILE [--preset NAME] [options]",
    .notes = "Examples, of 4.7 GiB and of 13 MiB on disk:\n"
             "  sluice synth --preset bench-5g -o bench.gguf\n"
             "  sluice synth --preset kimi-k2 --headers-only -o shape.gguf\n",
    .args = args,
    .n_args = SL_COUNTOF(args),
    .help_of = help_of,
};

/* A preset sets what other options then change, so it is looked for first. */
static const char *find_preset(int argc, char **argv) {
    const char *preset = sl_args_variable_value("SLUICE_PRESET");
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--preset") == 0 && i + 1 < argc)
            preset = argv[i + 1];
        else if (strncmp(argv[i], "--preset=", 9) == 0)
            preset = argv[i] + 9;
    }
    return preset;
}

/* False: a message is out. */
static bool read_types(struct sl_synth_config *c) {
    const struct {
        const char *option, *text;
        struct sl_synth_types *out;
    } groups[] = {
        {"--type", given.type, &c->attn}, {"--type", given.type, &c->ffn},
        {"--type", given.type, &c->gate}, {"--type", given.type, &c->up},
        {"--type", given.type, &c->down}, {"--attn", given.attn, &c->attn},
        {"--ffn", given.ffn, &c->ffn},    {"--gate", given.gate, &c->gate},
        {"--up", given.up, &c->up},       {"--down", given.down, &c->down},
    };
    for (uint32_t i = 0; i < SL_COUNTOF(groups); i++)
        if (groups[i].text && !parse_types(groups[i].option, groups[i].text, groups[i].out))
            return false;
    struct sl_synth_types one;
    if (given.embd) {
        if (!parse_types("--embd-type", given.embd, &one))
            return false;
        c->embd = one.dtype[0];
    }
    if (given.output) {
        if (!parse_types("--output-type", given.output, &one))
            return false;
        c->output = one.dtype[0];
    }
    return true;
}

int sl_cmd_synth(int argc, char **argv) {
    struct sl_synth_config *c = &given.c;
    given = (struct given){.c = sl_synth_default};
    const char *preset = find_preset(argc, argv);
    if (preset && !apply_preset(preset, c))
        return 2;
    int rc = sl_args_parse(&command, argc, argv);
    if (rc >= 0)
        return rc;
    if (!read_types(c) || (given.each && !parse_each(given.each, c)))
        return 2;

    struct sl_err err;
    struct progress p = {.start_ns = sl_now_ns(), .quiet = given.quiet || !isatty(2)};
    enum sl_status status = sl_synth_write(c, given.path, report, &p, &err);
    if (!p.quiet)
        fputc('\n', stderr);
    if (status == SL_ERR_CONFIG)
        return sl_usage_error("synth", "%s", err.text);
    if (status)
        fprintf(stderr, "sluice synth: %s%s\n", status == SL_ERR_IO ? "--out " : "", err.text);
    return status ? 1 : 0;
}
