#include "cli/synth_presets.h"

#include "cli/options/args.h"

#include <string.h>

bool sl_synth_preset(const char *name, struct sl_synth_config *c) {
    static const struct {
        const char *name, *arch;
        uint32_t n_layer, n_layer_dense, n_embd, n_head, n_head_kv, head_dim, n_rot;
        uint32_t n_expert, n_expert_used, n_ff_expert, n_ff_shared, n_ff, n_vocab, n_ctx, n_nextn;
        uint32_t index_dim, n_index_top, index_block;
        uint32_t n_taps, n_state, n_delta_head, n_delta_head_k, delta_dim, attn_every, moe_step;
        float rope_base, router_scale;
        uint32_t n_ngram_head, n_ngram_rows;
        uint32_t n_lora_q, n_group_out, n_lora_out, n_layer_table, window, n_index_head;
        float yarn_factor;
        const char *pattern;
        bool qkv_bias, no_qk_norm, tied, no_rope;
    } shapes[] = {
        {.name = "glm-4.5-air",
         .arch = "glm4moe",
         .n_layer = 46,
         .n_layer_dense = 1,
         .n_embd = 4096,
         .n_head = 96,
         .n_head_kv = 8,
         .head_dim = 128,
         .n_rot = 64,
         .n_expert = 128,
         .n_expert_used = 8,
         .n_ff_expert = 1408,
         .n_ff_shared = 1408,
         .n_ff = 10944,
         .n_vocab = 151552,
         .n_ctx = 131072,
         .n_nextn = 1,
         .rope_base = 1e6f,
         .router_scale = 1,
         .qkv_bias = true,
         .no_qk_norm = true},
        {.name = "deepseek-v4-flash",
         .arch = "deepseek4",
         .n_layer = 43,
         .n_embd = 4096,
         .n_head = 64,
         .n_head_kv = 1,
         .head_dim = 512,
         .n_rot = 64,
         .n_expert = 256,
         .n_expert_used = 6,
         .n_ff_expert = 2048,
         .n_ff_shared = 2048,
         .n_ff = 2048,
         .n_vocab = 129280,
         .n_ctx = 1048576,
         .index_dim = 128,
         .n_index_head = 64,
         .n_index_top = 512,
         .n_lora_q = 1024,
         .n_group_out = 8,
         .n_lora_out = 1024,
         .n_layer_table = 3,
         .window = 128,
         .yarn_factor = 16,
         .rope_base = 10000,
         .router_scale = 1.5f},
        {.name = "qwen3.8-flash-next",
         .arch = "qwen4exp",
         .n_layer = 48,
         .n_embd = 2560,
         .n_head = 24,
         .n_head_kv = 2,
         .head_dim = 256,
         .n_rot = 64,
         .n_expert = 512,
         .n_expert_used = 10,
         .n_ff_expert = 640,
         .n_ff_shared = 640,
         .n_ff = 640,
         .n_vocab = 248320,
         .n_ctx = 262144,
         .n_taps = 4,
         .attn_every = 4,
         .n_delta_head = 48,
         .n_delta_head_k = 16,
         .delta_dim = 128,
         .index_dim = 128,
         .n_index_head = 4,
         .n_index_top = 2048,
         .index_block = 4,
         .n_lora_out = 320,
         .n_ngram_head = 8,
         .n_ngram_rows = 20000096,
         .rope_base = 1e7f},
        {.name = "minimax-m2",
         .arch = "minimax-m2",
         .n_layer = 62,
         .n_embd = 3072,
         .n_head = 48,
         .n_head_kv = 8,
         .head_dim = 128,
         .n_rot = 64,
         .n_expert = 256,
         .n_expert_used = 8,
         .n_ff_expert = 1536,
         .n_ff = 1536,
         .n_vocab = 200064,
         .n_ctx = 196608,
         .rope_base = 5e6f},
        {.name = "minimax-m3",
         .arch = "minimax-m3",
         .n_layer = 60,
         .n_layer_dense = 3,
         .n_embd = 6144,
         .n_head = 64,
         .n_head_kv = 4,
         .head_dim = 128,
         .n_rot = 64,
         .n_expert = 128,
         .n_expert_used = 4,
         .n_ff_expert = 3072,
         .n_ff_shared = 3072,
         .n_ff = 12288,
         .n_vocab = 200064,
         .n_ctx = 524288,
         .index_dim = 128,
         .n_index_top = 16,
         .index_block = 128,
         .rope_base = 5e6f,
         .router_scale = 2},
        /* A quarter of its layers have attention, if not each fourth. */
        {.name = "lfm2-8b-a1b",
         .arch = "lfm2moe",
         .n_layer = 24,
         .n_layer_dense = 2,
         .n_embd = 2048,
         .n_head = 32,
         .n_head_kv = 8,
         .head_dim = 64,
         .n_expert = 32,
         .n_expert_used = 4,
         .n_ff_expert = 1792,
         .n_ff = 7168,
         .n_vocab = 65536,
         .n_ctx = 128000,
         .n_taps = 3,
         .attn_every = 4,
         .rope_base = 1e6f,
         .tied = true},
        {.name = "jamba-mini",
         .arch = "jamba",
         .n_layer = 32,
         .n_embd = 4096,
         .n_head = 32,
         .n_head_kv = 8,
         .head_dim = 128,
         .n_expert = 16,
         .n_expert_used = 2,
         .n_ff_expert = 14336,
         .n_ff = 14336,
         .n_vocab = 65536,
         .n_ctx = 262144,
         .n_taps = 4,
         .n_state = 16,
         .n_delta_head = 1,
         .n_delta_head_k = 1,
         .delta_dim = 256,
         .attn_every = 8,
         .moe_step = 2,
         .rope_base = 10000},
        {.name = "granite-4-h-small",
         .arch = "granitehybrid",
         .n_layer = 40,
         .n_embd = 4096,
         .n_head = 32,
         .n_head_kv = 8,
         .head_dim = 128,
         .n_expert = 72,
         .n_expert_used = 10,
         .n_ff_expert = 768,
         .n_ff_shared = 1536,
         .n_ff = 768,
         .n_vocab = 100352,
         .n_ctx = 131072,
         .n_taps = 4,
         .n_state = 128,
         .n_delta_head = 128,
         .n_delta_head_k = 1,
         .delta_dim = 64,
         .attn_every = 10,
         .rope_base = 10000,
         .tied = true,
         .no_rope = true},
        {.name = "nemotron-3-nano",
         .arch = "nemotron_h_moe",
         .n_layer = 52,
         .n_embd = 2688,
         .n_head = 32,
         .n_head_kv = 2,
         .head_dim = 128,
         .n_expert = 128,
         .n_expert_used = 6,
         .n_ff_expert = 1856,
         .n_ff_shared = 3712,
         .n_ff = 1856,
         .n_vocab = 131072,
         .n_ctx = 1048576,
         .n_taps = 4,
         .n_state = 128,
         .n_delta_head = 64,
         .n_delta_head_k = 8,
         .delta_dim = 64,
         .attn_every = 4,
         .rope_base = 10000,
         .router_scale = 2.5f,
         .pattern = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"},
    };
    for (size_t i = 0; i < SL_COUNTOF(shapes); i++) {
        if (strcmp(name, shapes[i].name) != 0)
            continue;
        c->arch = shapes[i].arch;
        c->n_layer = shapes[i].n_layer;
        c->n_layer_dense = shapes[i].n_layer_dense;
        c->n_embd = shapes[i].n_embd;
        c->n_head = shapes[i].n_head;
        c->n_head_kv = shapes[i].n_head_kv;
        c->head_dim = shapes[i].head_dim;
        c->n_rot = shapes[i].n_rot;
        c->n_expert = shapes[i].n_expert;
        c->n_expert_used = shapes[i].n_expert_used;
        c->n_ff_expert = shapes[i].n_ff_expert;
        c->n_ff_shared = shapes[i].n_ff_shared;
        c->n_ff = shapes[i].n_ff;
        c->n_vocab = shapes[i].n_vocab;
        c->n_ctx = shapes[i].n_ctx;
        c->n_nextn = shapes[i].n_nextn;
        c->tied = shapes[i].tied;
        if (shapes[i].index_block) {
            c->index_dim = shapes[i].index_dim;
            c->n_index_top = shapes[i].n_index_top;
            c->index_block = shapes[i].index_block;
        }
        if (shapes[i].n_ngram_head) {
            c->n_index_head = shapes[i].n_index_head;
            c->n_lora_out = shapes[i].n_lora_out;
            c->n_ngram_head = shapes[i].n_ngram_head;
            c->n_ngram_rows = shapes[i].n_ngram_rows;
            c->n_delta_head = shapes[i].n_delta_head;
            c->n_delta_head_k = shapes[i].n_delta_head_k;
            c->delta_dim = shapes[i].delta_dim;
        }
        if (shapes[i].n_group_out) {
            c->index_dim = shapes[i].index_dim;
            c->n_index_head = shapes[i].n_index_head;
            c->n_index_top = shapes[i].n_index_top;
            c->n_lora_q = shapes[i].n_lora_q;
            c->n_group_out = shapes[i].n_group_out;
            c->n_lora_out = shapes[i].n_lora_out;
            c->n_layer_table = shapes[i].n_layer_table;
            c->window = shapes[i].window;
            c->yarn_factor = shapes[i].yarn_factor;
        }
        if (shapes[i].n_taps) {
            c->n_taps = shapes[i].n_taps;
            c->attn_every = shapes[i].attn_every;
        }
        if (shapes[i].n_state) {
            c->n_state = shapes[i].n_state;
            c->n_delta_head = shapes[i].n_delta_head;
            c->n_delta_head_k = shapes[i].n_delta_head_k;
            c->delta_dim = shapes[i].delta_dim;
            c->no_rope = shapes[i].no_rope;
            c->moe_step = shapes[i].moe_step;
        }
        c->pattern = shapes[i].pattern;
        c->rope_base = shapes[i].rope_base;
        c->router_scale = shapes[i].router_scale;
        c->qkv_bias = shapes[i].qkv_bias;
        c->no_qk_norm = shapes[i].no_qk_norm;
        c->attn = c->ffn = c->gate = c->up = (struct sl_synth_types){{SL_DTYPE_Q4_K}, 1};
        c->down = (struct sl_synth_types){{SL_DTYPE_Q6_K}, 1};
        return true;
    }
    return false;
}
