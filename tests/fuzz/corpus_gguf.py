#!/usr/bin/env python3
"""Writes the seeds of fuzz_gguf into tests/fuzz/corpus/gguf: one small model of each architecture,
and files that are wrong in one way each. Run it again after adding an architecture.

MODEL~KEY is MODEL with another value of that key: tests/unit/model/test_corpus.c has it refused by the key's name."""
import os
import struct

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus", "gguf")
U32, F32, BOOL, STR, ARR = 4, 6, 7, 8, 9
I32 = 26  # a type of tensors


def text(s):
    s = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(s)) + s


def kv(key, kind, value):
    if kind == STR:
        data = text(value)
    elif kind == ARR and isinstance(value[0], bool):
        data = struct.pack("<IQ%d?" % len(value), BOOL, len(value), *value)
    elif kind == ARR and isinstance(value[0], int):
        data = struct.pack("<IQ%di" % len(value), 5, len(value), *value)
    elif kind == ARR:  # of strings
        data = struct.pack("<IQ", STR, len(value)) + b"".join(map(text, value))
    else:
        data = struct.pack({U32: "<I", F32: "<f", BOOL: "<?"}[kind], value)
    return text(key) + struct.pack("<I", kind) + data


def gguf(kvs, tensors, version=3):
    """tensors: (name, dims), of F32, or (name, dims, type), of 32 bits."""
    info, data = b"", 0
    for name, dims, *kind in tensors:
        n = 4
        for d in dims:
            n *= d
        info += text(name) + struct.pack("<I", len(dims)) + struct.pack("<%dQ" % len(dims), *dims)
        info += struct.pack("<IQ", kind[0] if kind else 0, data)
        data += -(-n // 32) * 32
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(kvs)) + b"".join(kvs) + info
    return head + bytes(-len(head) % 32 if tensors else 0) + bytes(data)


def delta_layers(arch, moe):
    """Of a model with a delta net, attention with a gate, and one layer that drafts tokens."""
    embd, heads, dim, ff, experts, t = 8, 2, 4, 8, 3, []

    def layer(i, n, *dims):
        t.append(("blk.%d.%s" % (i, n), list(dims)))

    for i in range(3):
        layer(i, "attn_norm.weight", embd)
        layer(i, "post_attention_norm.weight", embd)
        if i:
            for n, dims in (("q.weight", [embd, 2 * heads * dim]), ("k.weight", [embd, dim]), ("v.weight", [embd, dim]),
                            ("output.weight", [heads * dim, embd]), ("q_norm.weight", [dim]), ("k_norm.weight", [dim])):
                layer(i, "attn_" + n, *dims)
        else:
            gates = (("ba", 4),) if arch == "qwen3next" else (("beta", 2), ("alpha", 2))
            for n, dims in (("attn_qkv.weight", [embd, 4 * dim]), ("attn_gate.weight", [embd, 2 * dim]),
                            ("ssm_conv1d.weight", [4, 4 * dim]), ("ssm_dt.bias", [2]), ("ssm_a", [2]),
                            ("ssm_norm.weight", [dim]), ("ssm_out.weight", [2 * dim, embd])):
                layer(i, n, *dims)
            for n, d in gates:
                layer(i, "ssm_%s.weight" % n, embd, d)
        if not moe:
            for n, dims in (("gate", [embd, ff]), ("up", [embd, ff]), ("down", [ff, embd])):
                layer(i, "ffn_%s.weight" % n, *dims)
            continue
        layer(i, "ffn_gate_inp.weight", embd, experts)
        layer(i, "ffn_gate_inp_shexp.weight", embd)
        for n, dims in (("gate", [embd, ff]), ("up", [embd, ff]), ("down", [ff, embd])):
            layer(i, "ffn_%s_exps.weight" % n, *dims, experts)
            layer(i, "ffn_%s_shexp.weight" % n, *dims)
    layer(2, "nextn.eh_proj.weight", 2 * embd, embd)
    return t


def latent_model(joined, arch="deepseek2"):
    """Latent attention in one of its forms, dense and with experts, and a layer that drafts tokens."""
    embd, heads, latent, rot, nope, v, ff, experts = 8, 2, 6, 2, 3, 4, 12, 4
    keys = [kv("general.architecture", STR, arch)]
    for k, n in (("block_count", 3), ("nextn_predict_layers", 1), ("context_length", 64), ("embedding_length", embd),
                 ("feed_forward_length", ff), ("leading_dense_block_count", 1), ("attention.head_count", heads),
                 ("attention.head_count_kv", heads if joined else 1), ("attention.kv_lora_rank", latent),
                 ("attention.key_length", nope + rot if joined else latent + rot),
                 ("attention.value_length", v if joined else latent), ("rope.dimension_count", rot),
                 ("expert_count", experts), ("expert_used_count", 1), ("expert_feed_forward_length", ff),
                 ("expert_shared_count", 2), ("expert_gating_func", 2), ("expert_group_count", 2),
                 ("expert_group_used_count", 1)):
        keys.append(kv(arch + "." + k, U32, n))
    if not joined:
        for k, n in (("q_lora_rank", 5), ("key_length_mla", nope + rot), ("value_length_mla", v)):
            keys.append(kv(arch + ".attention." + k, U32, n))
    note = arch == "dots3note"
    for k, x in (("attention.layer_norm_rms_epsilon", 1e-6), ("rope.scaling.factor", 40.0),
                 ("rope.freq_base_swa", 1e4) if note else ("rope.scaling.yarn_log_multiplier", 0.1), ("expert_weights_scale", 2.5)):
        keys.append(kv(arch + "." + k, F32, x))
    keys.append(kv(arch + ".rope.scaling.type", STR, "yarn"))
    if arch == "mistral4":
        keys += [kv("mistral4.attention.temperature_scale", F32, 0.1),
                 kv("mistral4.attention.temperature_length", U32, 16)]
    indexed = {"deepseek32": (True, True, True), "glm-dsa": (True, False, True),
               "dots3note": (True, False, False)}.get(arch, (False,) * 3)
    if indexed[0]:
        keys += [kv(arch + ".attention.indexer." + k, U32, n) for k, n in (("head_count", 3), ("key_length", 4), ("top_k", 2))]
    if arch == "glm-dsa":
        keys.append(kv("glm-dsa.attention.indexer.types", ARR, [1, 0]))
    if note:
        keys += [kv("dots3note.attention.indexer.types", ARR, [1, 0]),
                 kv("dots3note.attention.sliding_window_pattern", ARR, [False, True])]
        for k, n in (("sliding_window", 8), ("kv_lora_rank_swa", 10), ("key_length_mla_swa", 6), ("value_length_mla_swa", 3),
                     ("key_length_swa", 12), ("value_length_swa", 10)):
            keys.append(kv("dots3note.attention." + k, U32, n))
    keys.append(kv("tokenizer.ggml.tokens", ARR, ["a", "b", "<s>"]))
    t = [("token_embd.weight", [embd, 3]), ("output_norm.weight", [embd])]
    for i in range(3):
        if note and i == 1:  # a layer with a window
            latent, nope, v = 10, 4, 3
        q = heads * (nope + rot)
        names = [("attn_norm", [embd]), ("attn_kv_a_mqa", [embd, latent + rot]), ("attn_kv_a_norm", [latent]),
                 ("attn_output", [heads * v, embd]), ("ffn_norm", [embd])]
        if joined:
            names += [("attn_q", [embd, q]), ("attn_kv_b", [latent, heads * (nope + v)])]
        else:
            names += [("attn_q_a", [embd, 5]), ("attn_q_a_norm", [5]), ("attn_q_b", [5, q]),
                      ("attn_k_b", [nope, latent, heads]), ("attn_v_b", [latent, v, heads])]
        if note:
            names += [("attn_k_norm", [rot]), ("attn_gate", [embd, heads])]
        if indexed[i]:
            names += [("indexer.attn_q_b", [5, 12]), ("indexer.attn_k", [embd, 4]), ("indexer.k_norm", [4]),
                      ("indexer.proj", [embd, 3])]
            t.append(("blk.%d.indexer.k_norm.bias" % i, [4]))
        for n in ("gate", "up", "down"):
            def dims(width):
                return [width, embd] if n == "down" else [embd, width]
            if not i:
                names.append(("ffn_" + n, dims(ff)))
            else:
                names += [("ffn_%s_exps" % n, dims(ff) + [experts]), ("ffn_%s_shexp" % n, dims(2 * ff))]
        if i:
            names.append(("ffn_gate_inp", [embd, experts]))
            t.append(("blk.%d.exp_probs_b.bias" % i, [experts]))
        if i == 2:
            names.append(("nextn.eh_proj", [2 * embd, embd]))
        t += [("blk.%d.%s.weight" % (i, n), d) for n, d in names]
    return gguf(keys, t)


def model(name, version=3, lie=None):
    arch = "llama" if name == "mixtral" else name
    moe = "moe" in name or name in ("mixtral", "gpt-oss", "qwen3next", "gemma4")
    delta = arch in ("qwen3next", "qwen35", "qwen35moe")
    embd, heads, dim, ff, experts = 8, 2, 4, 8, 3
    keys = [kv("general.architecture", STR, arch)]

    def key(k, kind, v):
        keys.append(kv(arch + "." + k, kind, v))

    for k, v in (("block_count", 3 if delta else 1), ("context_length", 64), ("embedding_length", embd),
                 ("attention.head_count", heads), ("attention.head_count_kv", 1),
                 ("feed_forward_length", ff)):
        key(k, U32, v)
    key("attention.layer_norm_rms_epsilon", F32, 1e-6)
    if moe:
        key("expert_count", U32, experts)
        key("expert_used_count", U32, 1)
    if delta:  # a delta net, attention, one that drafts tokens
        for k, v in (("nextn_predict_layers", 1), ("full_attention_interval", 2), ("ssm.conv_kernel", 4),
                     ("ssm.state_size", dim), ("ssm.group_count", 1), ("ssm.time_step_rank", 2),
                     ("ssm.inner_size", 2 * dim)):
            key(k, U32, v)
        if arch != "qwen3next":
            key("rope.dimension_sections", ARR, [1, 1, 0, 0])
        if arch == "qwen35":
            key("attention.recurrent_layers", ARR, [True, False, False])
    if arch in ("qwen2moe", "ernie4_5-moe", "hunyuan-moe") or (delta and moe):
        key("expert_shared_feed_forward_length", U32, ff)
    if arch == "gpt-oss":
        key("attention.sliding_window", U32, 8)
        key("rope.freq_base_swa", F32, 1e4)
    if arch == "gemma4":
        key("attention.sliding_window", U32, 8)
        key("attention.sliding_window_pattern", ARR, [True])
        key("attention.key_length_swa", U32, dim)
        key("attention.value_length_swa", U32, dim)
        key("rope.dimension_count_swa", U32, lie or dim)
        key("rope.freq_base_swa", F32, 1e4)
        key("final_logit_softcapping", F32, 30.0)
        key("embedding_length_per_layer_input", U32, 0)
    if arch == "ernie4_5-moe":
        key("leading_dense_block_count", U32, 0)
        key("attention.sliding_window", U32, 8)
        key("attention.sliding_window_pattern", ARR, [True])
    if arch == "qwen3moe":
        key("rope.scaling.type", STR, "yarn")
        key("rope.scaling.factor", F32, 4.0)
        key("expert_weights_norm", BOOL, True)
    keys.append(kv("tokenizer.ggml.tokens", ARR, ["a", "b", "<s>"]))
    q, k = heads * dim, dim
    t = [("token_embd.weight", [embd, 3]), ("output_norm.weight", [embd])]

    def layer(n, *dims):
        t.append(("blk.0." + n, list(dims)))

    if delta:
        return gguf(keys, t + delta_layers(arch, moe), version)
    for n, dims in (("attn_norm.weight", [embd]), ("attn_q.weight", [embd, q]),
                    ("attn_k.weight", [embd, k]), ("attn_v.weight", [embd, k]),
                    ("attn_output.weight", [q, embd]), ("ffn_norm.weight", [embd])):
        layer(n, *dims)
    if arch in ("qwen3", "qwen3moe", "olmoe", "hunyuan-moe", "gemma4"):
        layer("attn_q_norm.weight", q if arch == "olmoe" else dim)
        layer("attn_k_norm.weight", k if arch == "olmoe" else dim)
    if arch in ("qwen2", "qwen2moe"):
        for n, d in (("q", q), ("k", k), ("v", k)):
            layer("attn_%s.bias" % n, d)
    if arch == "gpt-oss":
        t.remove(("blk.0.ffn_norm.weight", [embd]))
        for n, dims in (("post_attention_norm.weight", [embd]), ("attn_sinks.weight", [heads]),
                        ("attn_output.bias", [embd]), ("ffn_gate_inp.bias", [experts]),
                        ("ffn_gate_exps.bias", [ff, experts]), ("ffn_up_exps.bias", [ff, experts]),
                        ("ffn_down_exps.bias", [embd, experts])):
            layer(n, *dims)
    if arch == "gemma4":
        for n in ("post_attention_norm.weight", "post_ffw_norm.weight", "post_ffw_norm_1.weight",
                  "post_ffw_norm_2.weight", "pre_ffw_norm_2.weight", "ffn_gate_inp.scale"):
            layer(n, embd)
        layer("ffn_down_exps.scale", experts)
        layer("layer_output_scale.weight", 1)
    if not moe or arch == "gemma4":
        layer("ffn_gate.weight", embd, ff)
        layer("ffn_up.weight", embd, ff)
        layer("ffn_down.weight", ff, embd)
    if moe:
        layer("ffn_gate_inp.weight", embd, experts)
        layer("ffn_gate_exps.weight", embd, ff, experts)
        layer("ffn_up_exps.weight", embd, ff, experts)
        layer("ffn_down_exps.weight", ff, embd, experts)
    if arch == "qwen2moe":
        layer("ffn_gate_inp_shexp.weight", embd)
    if arch in ("qwen2moe", "ernie4_5-moe", "hunyuan-moe"):
        layer("ffn_gate_shexp.weight", embd, ff)
        layer("ffn_up_shexp.weight", embd, ff)
        layer("ffn_down_shexp.weight", ff, embd)
    if name in ("llama", "gemma4"):
        t.append(("rope_freqs.weight", [dim // 2]))
    return gguf(keys, t, version)


# Of families with grouped-query attention and experts: the norms of q and k, of heads ("head") or rows ("row");
# the router's bias; the shared expert's width in experts; other names of tensors; more keys.
GROUPED = {
    "glm4moe": dict(norm="head", bias="exp_probs_b.bias", shared=2, ffn_norm="post_attention_norm",
                    keys=[("expert_shared_count", U32, 2), ("expert_gating_func", U32, 2),
                          ("rope.dimension_count", U32, 2), ("rope.dimension_sections", ARR, [1, 0, 0, 0]),
                          ("nextn_predict_layers", U32, 1), ("leading_dense_block_count", U32, 1)]),
    "smallthinker": dict(keys=[("attention.sliding_window", U32, 8), ("expert_gating_func", U32, 2)]),
    "hy_v3": dict(norm="head", bias="exp_probs_b", shared=1, n_dense=1,
                  keys=[("nextn_predict_layers", U32, 1), ("expert_weights_norm", BOOL, True)]),
    "mellum": dict(norm="head", keys=[("attention.sliding_window", U32, 8),
                                      ("attention.sliding_window_pattern", ARR, [True, False])]),
    "granitemoe": dict(keys=[("embedding_scale", F32, 12.0), ("residual_scale", F32, 0.22),
                             ("attention.scale", F32, 0.25), ("logit_scale", F32, 6.0)]),
    "exaone-moe": dict(norm="head", bias="exp_probs_b.bias", shared=1,
                       keys=[("attention.sliding_window", U32, 8), ("nextn_predict_layers", U32, 1),
                             ("attention.sliding_window_pattern", ARR, [True, False]),
                             ("leading_dense_block_count", U32, 1)]),
    "dots1": dict(norm="head", bias="exp_probs_b.bias", shared=1,
                  keys=[("expert_shared_count", U32, 1), ("leading_dense_block_count", U32, 1)]),
    "deepseek": dict(shared=2, keys=[("expert_shared_count", U32, 2), ("leading_dense_block_count", U32, 1)]),
    "bailingmoe": dict(shared=2, keys=[("expert_shared_count", U32, 2), ("expert_weights_norm", BOOL, True)]),
    "bailingmoe2": dict(norm="head", bias="exp_probs_b.bias", shared=2, fused=True,
                        keys=[("expert_shared_count", U32, 2), ("expert_shared_feed_forward_length", U32, 8),
                              ("expert_group_count", U32, 2), ("expert_group_used_count", U32, 1),
                              ("nextn_predict_layers", U32, 1), ("rope.dimension_count", U32, 2)]),
    "minimax-m2": dict(norm="row", bias="exp_probs_b.bias",
                       keys=[("expert_gating_func", U32, 2), ("rope.dimension_count", U32, 2)]),
}


def grouped(arch, **lies):
    """A dense layer, one with experts, and where the family has such one that drafts tokens. lies: other values of
    keys, with _ for a dot or a stroke."""
    f = GROUPED[arch]
    embd, heads, dim, ff, experts = 8, 2, 4, 8, 4
    told = {k: (kind, v) for k, kind, v in f["keys"]}
    n_dense = f.get("n_dense", told.get("leading_dense_block_count", (U32, 0))[1])
    n_layers = 2 + told.get("nextn_predict_layers", (U32, 0))[1]
    for k, v in (("block_count", n_layers), ("context_length", 64), ("embedding_length", embd),
                 ("attention.head_count", heads), ("attention.head_count_kv", 1), ("attention.key_length", dim),
                 ("attention.value_length", dim), ("feed_forward_length", ff), ("expert_count", experts),
                 ("expert_used_count", 1), ("expert_feed_forward_length", ff)):
        told[k] = (U32, v)
    told["attention.layer_norm_rms_epsilon"] = (F32, 1e-6)
    for k in told:
        plain = k.replace(".", "_")
        if plain in lies:
            told[k] = (told[k][0], lies.pop(plain))
    assert not lies, lies
    keys = [kv("general.architecture", STR, arch)] + [kv("%s.%s" % (arch, k), *v) for k, v in told.items()]
    keys.append(kv("tokenizer.ggml.tokens", ARR, ["a", "b", "<s>"]))
    q, k = heads * dim, dim
    t = [("token_embd.weight", [embd, 3]), ("output_norm.weight", [embd])]
    t += [(n, d) for n, d in f.get("tensors", [])]
    for i in range(n_layers):
        names = [("attn_norm.weight", [embd]), ("attn_output.weight", [q, embd]),
                 (f.get("ffn_norm", "ffn_norm") + ".weight", [embd])]
        if f.get("fused"):
            names.append(("attn_qkv.weight", [embd, q + 2 * k]))
        else:
            names += [("attn_q.weight", [embd, q]), ("attn_k.weight", [embd, k]), ("attn_v.weight", [embd, k])]
        if f.get("norm"):
            row = f["norm"] == "row"
            names += [("attn_q_norm.weight", [q if row else dim]), ("attn_k_norm.weight", [k if row else dim])]
        for n in ("gate", "up", "down"):
            def dims(width):
                return [width, embd] if n == "down" else [embd, width]
            if i < n_dense:
                names.append(("ffn_%s.weight" % n, dims(ff)))
                continue
            names.append(("ffn_%s_exps.weight" % n, dims(ff) + [experts]))
            if f.get("shared"):
                names.append(("ffn_%s_shexp.weight" % n, dims(f["shared"] * ff)))
        if i >= n_dense:
            names.append(("ffn_gate_inp.weight", [embd, experts]))
            if f.get("bias"):
                names.append((f["bias"], [experts]))
        names += f.get("layer", [])
        if i >= 2:
            names.append(("nextn.eh_proj.weight", [2 * embd, embd]))
        t += [("blk.%d.%s" % (i, n), d) for n, d in names]
    return gguf(keys, t)


# Grouped-query families with parts of their own: keys, tensors of each layer, with a letter for each dimension.
ATTN = "attn_norm:E attn_q:EQ attn_k:EK attn_v:EK attn_output:QE "
EXPERTS = "ffn_gate_inp:EN ffn_gate_exps:EFN ffn_up_exps:EFN ffn_down_exps:FEN "
SHARED = "ffn_gate_shexp:EF ffn_up_shexp:EF ffn_down_shexp:FE "
WINDOW = "attention.sliding_window=4 "
RMS = "attention.layer_norm_rms_epsilon=0.00001 "
PARTS = {
    "llama4": (RMS + "interleave_moe_layer_step=1 attention.sliding_window=16", ATTN + "ffn_norm:E " + EXPERTS + SHARED),
    "afmoe": (RMS + WINDOW + "expert_shared_count=1", ATTN + EXPERTS + SHARED + "ffn_norm:E attn_gate:EQ attn_q_norm:D "
              "attn_k_norm:D post_attention_norm:E post_ffw_norm:E exp_probs_b.bias:N"),
    "laguna": (RMS + WINDOW + "rope.dimension_count_swa=2", ATTN + EXPERTS + SHARED + "ffn_norm:E attn_gate:EH attn_q_norm:D "
               "attn_k_norm:D exp_probs_b.bias:N"),
    "cohere2moe": (WINDOW + "attention.layer_norm_epsilon=0.00001 logit_scale=0.5 expert_shared_count=1",
                   ATTN + EXPERTS + SHARED),
    "dbrx": ("attention.layer_norm_epsilon=0.00001 attention.clamp_kqv=8.0",
             "attn_norm:E attn_qkv:EJ attn_output:QE attn_output_norm:E " + EXPERTS),
    "grok": (RMS + "embedding_scale=2.0 attn_logit_softcapping=30.0", ATTN + EXPERTS + "ffn_norm:E attn_output_norm:E "
             "layer_output_norm:E ffn_gate:EF ffn_up:EF ffn_down:FE"),
    "minimax-m3": (RMS + "attention.indexer.head_count=1 attention.indexer.key_length=4 attention.indexer.top_k=2 "
                   "attention.indexer.block_size=8 attention.indexer.local_blocks=1 expert_shared_count=1 expert_gating_func=2",
                   ATTN + EXPERTS + SHARED + "ffn_norm:E attn_q_norm:D attn_k_norm:D exp_probs_b.bias:N "
                   "indexer.q_proj.weight:ED indexer.k_proj.weight:ED indexer.q_norm.weight:D indexer.k_norm.weight:D"),
    "mimo2": (RMS + WINDOW + "attention.value_scale=0.5 attention.sliding_window_pattern=[1,0,1,0]",
              ATTN + EXPERTS + "ffn_norm:E attn_sinks:H exp_probs_b.bias:N"),
    "maple": (RMS + WINDOW + "attention.sliding_window_pattern=[1,0,1,0] swiglu_clamp_exp=[0.0,0.5,0.0,7.0]",
              ATTN + EXPERTS + "ffn_norm:E attn_q_norm:D attn_k_norm:D"),
    "grovemoe": (RMS + "expert_chunk_feed_forward_length=4 experts_per_group=3 expert_group_scale=0.05",
                 ATTN + EXPERTS + "ffn_norm:E attn_q_norm:D attn_k_norm:D ffn_gate_chexps:ED1 ffn_up_chexps:ED1 "
                 "ffn_down_chexps:DE1"),
    "phimoe": (RMS + "rope.scaling.original_context_length=16 rope.scaling.attn_factor=1.19", ATTN + EXPERTS +
               "ffn_norm:E attn_norm.bias:E ffn_norm.bias:E attn_q.bias:Q attn_k.bias:K attn_v.bias:K attn_output.bias:E"),
    "mistral3": (RMS + "attention.temperature_scale=0.1 rope.scaling.original_context_length=16",
                 ATTN + EXPERTS + "ffn_norm:E"),
    "qwen3vlmoe": (RMS + "rope.dimension_sections=[1,1,0,0] n_deepstack_layers=3",
                   ATTN + EXPERTS + "ffn_norm:E attn_q_norm:D attn_k_norm:D"),
    "granitehybrid": (RMS + "attention.head_count_kv=[0,1,0,1] logit_scale=6.0 residual_scale=0.5 ssm.conv_kernel=3 "
                      "ssm.inner_size=8 ssm.state_size=4 ssm.time_step_rank=2 ssm.group_count=1",
                      EXPERTS + "attn_norm:E ffn_norm:E"),
    "jamba": (RMS + "attention.head_count_kv=[0,1,0,1] ssm.conv_kernel=3 ssm.inner_size=16 ssm.state_size=3 ssm.time_step_rank=2",
              EXPERTS + "attn_norm:E ffn_norm:E"),
    "nemotron_h": ("attention.head_count_kv=[0,1,0,0] feed_forward_length=[8,0,8,0] attention.layer_norm_epsilon=0.00001 "
                   "ssm.conv_kernel=3 ssm.inner_size=8 ssm.state_size=4 ssm.time_step_rank=2 ssm.group_count=1 "
                   "expert_count=0", "attn_norm:E"),
    "kimi-linear": (RMS + "attention.head_count_kv=[0,1,0,1] attention.kv_lora_rank=6 attention.key_length_mla=5 "
                    "attention.value_length_mla=4 attention.key_length=8 rope.dimension_count=2 leading_dense_block_count=0 "
                    "expert_shared_count=1 expert_gating_func=2 ssm.conv_kernel=3 kda.head_dim=4",
                    "attn_norm:E ffn_norm:E ffn_gate_inp:EN exp_probs_b.bias:N ffn_gate_exps:EFN ffn_up_exps:EFN "
                    "ffn_down_exps:FEN ffn_gate_shexp:EF ffn_up_shexp:EF ffn_down_shexp:FE"),
    "kimi-k3": (RMS + "attention.head_count_kv=[0,1,0,1] attention.kv_lora_rank=6 attention.key_length_mla=5 "
                "attention.value_length_mla=4 attention.key_length=8 rope.dimension_count=2 leading_dense_block_count=0 "
                "expert_shared_count=1 expert_gating_func=2 ssm.conv_kernel=3 kda.head_dim=4 kda.gate_lower_bound=-5.0 "
                "activation.situ_beta=4.0 activation.situ_linear_beta=25.0 attn_res.block_size=2 expert_latent_length=4",
                "attn_norm:E ffn_norm:E attn_res_score:E ffn_res_score:E ffn_gate_inp:EN exp_probs_b.bias:N ffn_gate_exps:KFN "
                "ffn_up_exps:KFN ffn_down_exps:FKN ffn_routed_down:EK ffn_routed_up:KE ffn_routed_norm:K ffn_gate_shexp:EF "
                "ffn_up_shexp:EF ffn_down_shexp:FE"),
    "bailingmoe3": (RMS + "attention.head_count_kv=[0,1,0,1] attention.kv_lora_rank=6 attention.q_lora_rank=4 "
                    "attention.key_length_mla=5 attention.value_length_mla=4 attention.key_length=8 attention.value_length=4 "
                    "rope.dimension_count=2 leading_dense_block_count=0 expert_shared_count=1 expert_gating_func=2 "
                    "ssm.conv_kernel=3 kda.head_dim=4 kda.gate_lower_bound=-5.0 swiglu_clamp_exp=[0.0,0.5,0.0,7.0] "
                    "swiglu_clamp_shexp=3.0",
                    "attn_norm:E ffn_norm:E ffn_gate_inp:EN exp_probs_b.bias:N ffn_gate_exps:EFN ffn_up_exps:EFN "
                    "ffn_down_exps:FEN ffn_gate_shexp:EF ffn_up_shexp:EF ffn_down_shexp:FE"),
    "nemotron_h_moe": (RMS + "attention.head_count_kv=[0,1,0,0] feed_forward_length=[8,0,8,0] moe_latent_size=4 "
                       "attention.layer_norm_epsilon=0.00001 ssm.conv_kernel=3 ssm.inner_size=8 ssm.state_size=4 "
                       "ssm.time_step_rank=2 ssm.group_count=1", "attn_norm:E"),
    "lfm2moe": (RMS + "attention.head_count_kv=[0,1,0,1] shortconv.l_cache=3", EXPERTS + "attn_norm:E ffn_norm:E exp_probs_b.bias:N"),
    "arctic": (RMS, ATTN + EXPERTS + "ffn_norm:E ffn_norm_exps:E ffn_gate:EE ffn_up:EE ffn_down:EE"),
    "step35": (RMS + WINDOW + "attention.sliding_window_pattern=[0,1,1,0] swiglu_clamp_exp=[0.0,0.5,0.0,7.0] "
               "swiglu_clamp_shexp=3.0 expert_shared_feed_forward_length=8",
               ATTN + EXPERTS + SHARED + "ffn_norm:E attn_gate:EH attn_q_norm:D attn_k_norm:D"),
}


# Of these, tensors of layers 1 and 3, and of 0 and 2.
TURNS = {"jamba": ("attn_q:EQ attn_k:EK attn_v:EK attn_output:QE",
                   "ssm_in:ET ssm_conv1d:CJ ssm_conv1d.bias:J ssm_x:JQ ssm_dt:HJ ssm_dt.bias:J ssm_dt_norm:H ssm_b_norm:N "
                   "ssm_c_norm:N ssm_a.:NJ ssm_d.:J ssm_out:JE"),
         "kimi-linear": ("attn_q:EX attn_kv_a_mqa:EE attn_kv_a_norm:L attn_k_b:NLH attn_v_b:LKH attn_output:EE",
                         "attn_q:EE attn_k:EE attn_v:EE attn_output:EE ssm_conv1d_q:C1E ssm_conv1d_k:C1E ssm_conv1d_v:C1E "
                         "ssm_f_a:EK ssm_f_b:KE ssm_beta:EH ssm_a.:1H ssm_dt.bias:E ssm_g_a:EK ssm_g_b:KE ssm_norm:K"),
         "kimi-k3": ("attn_q:EX attn_kv_a_mqa:EE attn_kv_a_norm:L attn_k_b:NLH attn_v_b:LKH attn_gate:EE attn_output:EE",
                     "attn_q:EE attn_k:EE attn_v:EE attn_output:EE ssm_conv1d_q:C1E ssm_conv1d_k:C1E ssm_conv1d_v:C1E "
                     "ssm_f_a:EK ssm_f_b:KE ssm_beta:EH ssm_a.:H ssm_dt.bias:E ssm_g:EE ssm_norm:K"),
         "bailingmoe3": ("attn_q_a:EK attn_q_a_norm:K attn_q_b:KX attn_kv_a_mqa:EE attn_kv_a_norm:L attn_k_b:NLH attn_v_b:LKH "
                         "attn_gate:EH attn_output:EE",
                         "attn_q:EE attn_k:EE attn_v:EE attn_output:EE ssm_conv1d_q:C1E ssm_conv1d_k:C1E ssm_conv1d_v:C1E "
                         "ssm_f_a:EE ssm_beta:EH ssm_a.:1H ssm_dt.bias:E ssm_g_a:EE ssm_norm:K"),
         "granitehybrid": ("attn_q:EQ attn_k:EK attn_v:EK attn_output:QE",
                           "ssm_in:EM ssm_conv1d:CJ ssm_conv1d.bias:J ssm_dt.bias:H ssm_a.:1H ssm_d.:1H ssm_norm:E ssm_out:EE"),
         "lfm2moe": ("attn_q:EQ attn_k:EK attn_v:EK attn_output:QE attn_q_norm:D attn_k_norm:D",
                     "shortconv.in_proj.weight:EI shortconv.conv.weight:CE shortconv.out_proj.weight:EE")}
# Of these, tensors of each layer.
SQUARED = "ffn_gate_inp:EN exp_probs_b.bias:N ffn_up_exps:KFN ffn_down_exps:FKN ffn_latent_down:EK ffn_latent_up:KE"
LAYERS = {"nemotron_h": ("ffn_up:EF ffn_down:FE", TURNS["granitehybrid"][0], "ffn_up:EF ffn_down:FE", TURNS["granitehybrid"][1]),
          "nemotron_h_moe": (SQUARED, TURNS["granitehybrid"][0], SQUARED, TURNS["granitehybrid"][1])}
NORMS = {"lfm2moe": "token_embd_norm.weight"}
# Of these, tensors of no layer.
GLOBALS = {"kimi-k3": "output_res_score.weight:E",
           "phimoe": "output_norm.bias:E output.bias:N rope_factors_long.weight:H rope_factors_short.weight:H"}


def parts_model(arch, lie=""):
    dims = dict(E=8, Q=8, K=4, J=16, H=2, D=4, F=8, N=3, I=24, C=3, M=26, T=32, L=6, X=10, **{"1": 1})
    keys = [kv("general.architecture", STR, arch)]
    common = ("block_count=4 context_length=64 embedding_length=8 attention.head_count=2 attention.head_count_kv=1 "
              "feed_forward_length=8 expert_feed_forward_length=8 expert_count=3 expert_used_count=1 ")
    said = dict(pair.split("=") for pair in (common + PARTS[arch][0] + " " + lie).split())
    for key, value in said.items():
        if value[0] == "[":
            items = value[1:-1].split(",")
            if "." in value:
                data = struct.pack("<IQ%df" % len(items), F32, len(items), *map(float, items))
                keys.append(text(arch + "." + key) + struct.pack("<I", ARR) + data)
            else:
                keys.append(kv(arch + "." + key, ARR, [int(i) for i in items]))
        elif "." in value:
            keys.append(kv(arch + "." + key, F32, float(value)))
        else:
            keys.append(kv(arch + "." + key, U32, int(value)))
    t = [("token_embd.weight", [8, 3]), (NORMS.get(arch, "output_norm.weight"), [8])]
    t += [(name, [dims[c] for c in letters]) for name, letters in (n.split(":") for n in GLOBALS.get(arch, "").split())]
    for layer in range(4):
        turn = LAYERS[arch][layer] if arch in LAYERS else TURNS.get(arch, ("", ""))[layer % 2 == 0]
        for name, letters in (n.split(":") for n in (PARTS[arch][1] + " " + turn).split()):
            t.append(("blk.%d.%s" % (layer, name.rstrip(".") if "." in name else name + ".weight"), [dims[c] for c in letters]))
    return gguf(keys, t)


def compressed_model():
    """deepseek4: layers with blocks of 4 and of 128 positions and without any, the first routed by a table."""
    arch, embd, heads, dim, rot, ff, experts, low, out = "deepseek4", 8, 4, 6, 2, 4, 3, 5, 3
    keys = [kv("general.architecture", STR, arch)]
    for k, v in (("block_count", 3), ("context_length", 64), ("embedding_length", embd), ("attention.head_count", heads),
                 ("attention.head_count_kv", 1), ("attention.key_length", dim), ("attention.value_length", dim),
                 ("rope.dimension_count", rot), ("attention.q_lora_rank", low), ("attention.sliding_window", 8),
                 ("attention.output_group_count", 2), ("attention.output_lora_rank", out), ("expert_count", experts),
                 ("expert_used_count", 2), ("expert_feed_forward_length", ff), ("expert_shared_count", 1),
                 ("expert_gating_func", 4), ("attention.indexer.head_count", 3), ("attention.indexer.key_length", 4),
                 ("attention.indexer.top_k", 2), ("hyper_connection.count", 4), ("hyper_connection.sinkhorn_iterations", 20),
                 ("hash_layer_count", 1), ("embedding_length_out", 4 * embd)):
        keys.append(kv(arch + "." + k, U32, v))
    for k, x in (("attention.layer_norm_rms_epsilon", 1e-6), ("attention.compress_rope_freq_base", 16e4),
                 ("hyper_connection.epsilon", 1e-6), ("swiglu_clamp_exp", 10.0), ("expert_weights_scale", 1.5)):
        keys.append(kv(arch + "." + k, F32, x))
    keys += [kv(arch + ".attention.compress_ratios", ARR, [4, 128, 0]), kv("tokenizer.ggml.tokens", ARR, ["a", "b", "<s>"])]
    t = [("token_embd.weight", [embd, 3]), ("output_norm.weight", [embd]), ("output_hc_fn.weight", [4 * embd, 4]),
         ("output_hc_base.weight", [4]), ("output_hc_scale.weight", [1])]
    for i, ratio in enumerate((4, 128, 0)):
        names = [("attn_norm", [embd]), ("attn_q_a", [embd, low]), ("attn_q_a_norm", [low]), ("attn_q_b", [low, heads * dim]),
                 ("attn_kv", [embd, dim]), ("attn_kv_a_norm", [dim]), ("attn_sinks", [heads]),
                 ("attn_output_a", [heads * dim // 2, 2 * out]), ("attn_output_b", [2 * out, embd]), ("ffn_norm", [embd]),
                 ("ffn_gate_inp", [embd, experts])]
        for part in ("attn", "ffn"):
            names += [("hc_%s_fn" % part, [4 * embd, 24]), ("hc_%s_base" % part, [24]), ("hc_%s_scale" % part, [3])]
        for part, n in (("attn", dim), ("indexer", 4))[:2 if ratio == 4 else 1 if ratio else 0]:
            width = 2 * n if ratio == 4 else n
            names += [("%s_compressor_kv" % part, [embd, width]), ("%s_compressor_gate" % part, [embd, width]),
                      ("%s_compressor_ape" % part, [width, ratio]), ("%s_compressor_norm" % part, [n])]
        if ratio == 4:
            names += [("indexer.attn_q_b", [low, 12]), ("indexer.proj", [embd, 3])]
        for n, d in (("gate", [embd, ff]), ("up", [embd, ff]), ("down", [ff, embd])):
            names += [("ffn_%s_exps" % n, d + [experts]), ("ffn_%s_shexp" % n, d)]
        t += [("blk.%d.%s.weight" % (i, n), d) for n, d in names]
        t.append(("blk.%d.exp_probs_b.bias" % i, [experts]) if i else ("blk.0.ffn_gate_tid2eid.weight", [2, 3], I32))
    return gguf(keys, t)


def low_streams_model():
    """qwen4exp: a delta net behind which n-grams are added, attention over blocks; streams of low rank around both."""
    arch, embd, heads, dim, ff, experts, rank, n = "qwen4exp", 8, 2, 4, 8, 3, 5, 4
    keys = [kv("general.architecture", STR, arch)]
    for k, v in (("block_count", 2), ("context_length", 64), ("embedding_length", embd), ("attention.head_count", heads),
                 ("attention.head_count_kv", 1), ("attention.key_length", dim), ("attention.value_length", dim),
                 ("rope.dimension_count", 2), ("expert_count", experts), ("expert_used_count", 1),
                 ("expert_feed_forward_length", ff), ("expert_shared_feed_forward_length", ff), ("feed_forward_length", ff),
                 ("full_attention_interval", 2), ("ssm.conv_kernel", 4), ("ssm.state_size", dim), ("ssm.group_count", 1),
                 ("ssm.time_step_rank", 2), ("ssm.inner_size", 2 * dim), ("hyper_connection.count", n),
                 ("hyper_connection.low_rank", rank), ("attention.indexer.head_count", 3), ("attention.indexer.key_length", 4),
                 ("attention.indexer.top_k", 16), ("ple.ngram_size", 3), ("ple.heads_per_ngram", 2), ("ple.conv_kernel", 4),
                 ("ple.eos_token_id", 2), ("embedding_length_per_layer_input", 2)):
        keys.append(kv(arch + "." + k, U32, v))
    keys.append(kv(arch + ".attention.layer_norm_rms_epsilon", F32, 1e-6))
    for k, v in (("rope.dimension_sections", [1, 0, 0, 0]), ("attention.compress_ratios", [0, 8]), ("ple.layers", [0]),
                 ("ple.layer_multipliers", [2**30 + 1, 12345, 77]), ("ple.head_offsets", [0, 5, 10, 15]),
                 ("ple.head_vocab_sizes", [5, 5, 4, 5])):
        keys.append(kv(arch + "." + k, ARR, v))
    keys.append(kv("tokenizer.ggml.tokens", ARR, ["a", "b", "<s>"]))
    t = [("token_embd.weight", [embd, 3]), ("per_layer_token_embd.weight", [2, 20])]

    def streams(head, part, inject=True):
        names = [("norm", [n * embd]), ("down", [n * embd, rank]), ("up", [rank, n * embd])]
        names += [("inject", [n * embd, n])] if inject else []
        t.extend(("%s%s_%s.weight" % (head, part, name), d) for name, d in names)

    streams("output_", "hc", False)
    for i in range(2):
        names = [("ffn_gate_inp", [embd, experts]), ("ffn_gate_inp_shexp", [embd])]
        for part, d in (("gate", [embd, ff]), ("up", [embd, ff]), ("down", [ff, embd])):
            names += [("ffn_%s_exps" % part, d + [experts]), ("ffn_%s_shexp" % part, d)]
        if i:
            names += [("attn_q", [embd, 2 * heads * dim]), ("attn_k", [embd, dim]), ("attn_v", [embd, dim]),
                      ("attn_output", [heads * dim, embd]), ("attn_q_norm", [dim]), ("attn_k_norm", [dim]),
                      ("indexer.q_proj", [embd, 12]), ("indexer.k_proj", [embd, 4]), ("indexer.q_norm", [4]),
                      ("indexer.k_norm", [4])]
        else:
            names += [("attn_qkv", [embd, 4 * dim]), ("attn_gate", [embd, 2 * dim]), ("ssm_conv1d", [4, 4 * dim]),
                      ("ssm_norm", [dim]), ("ssm_out", [2 * dim, embd]), ("ssm_beta", [embd, 2]), ("ssm_alpha", [embd, 2]),
                      ("ple_key", [embd, n * embd]), ("ple_value", [embd, embd]), ("ple_norm_key", [n * embd]),
                      ("ple_norm_query", [n * embd]), ("ple_norm_conv", [n * embd]), ("ple_conv1d", [4, n * embd])]
            t.extend([("blk.0.ssm_dt.bias", [2]), ("blk.0.ssm_a", [2])])
        t.extend(("blk.%d.%s.weight" % (i, name), d) for name, d in names)
        streams("blk.%d." % i, "hc_attn")
        streams("blk.%d." % i, "hc_ffn")
    return gguf(keys, t)


def experts_each(have, said=None):
    """A qwen3moe whose layers have so many experts each, 0 of a dense one. said: what the file says instead."""
    arch, embd, heads, dim, ff = "qwen3moe", 8, 2, 4, 8
    keys = [kv("general.architecture", STR, arch)]
    for k, v in (("block_count", len(have)), ("context_length", 64), ("embedding_length", embd),
                 ("attention.head_count", heads), ("attention.head_count_kv", 1), ("attention.key_length", dim),
                 ("attention.value_length", dim), ("feed_forward_length", ff), ("expert_used_count", 1),
                 ("expert_feed_forward_length", ff)):
        keys.append(kv(arch + "." + k, U32, v))
    keys += [kv(arch + ".attention.layer_norm_rms_epsilon", F32, 1e-6), kv(arch + ".expert_count", ARR, said or have)]
    t = [("token_embd.weight", [embd, 3]), ("output_norm.weight", [embd])]
    for i, n in enumerate(have):
        names = [("attn_norm", [embd]), ("ffn_norm", [embd]), ("attn_q", [embd, heads * dim]), ("attn_k", [embd, dim]),
                 ("attn_v", [embd, dim]), ("attn_output", [heads * dim, embd]), ("attn_q_norm", [dim]),
                 ("attn_k_norm", [dim])]
        names += [("ffn_gate_inp", [embd, n])] if n else []
        for part, dims in (("gate", [embd, ff]), ("up", [embd, ff]), ("down", [ff, embd])):
            names.append(("ffn_%s_exps" % part, dims + [n]) if n else ("ffn_%s" % part, dims))
        t += [("blk.%d.%s.weight" % (i, name), d) for name, d in names]
    return gguf(keys, t)


# MODEL~KEY: another value of a key of that model, which its architecture reads or bounds; of an array's first element.
NAN = float("nan")
LIES = {
    "llama": {"attention.head_count_kv": 3},
    "mixtral": {"expert_used_count": 4},
    "olmoe": {"attention.head_count": 2**31},
    "qwen2": {"context_length": 0},
    "qwen2moe": {"expert_shared_feed_forward_length": 2**31},
    "qwen3moe-each": {"expert_count": 2**31 - 1, "expert_used_count": 2},
    "qwen3": {"attention.layer_norm_rms_epsilon": NAN},
    "qwen3moe": {"rope.scaling.factor": 0.5, "expert_count": 2**31},
    "ernie4_5-moe": {"leading_dense_block_count": 2**31},
    "hunyuan-moe": {"expert_used_count": 0},
    "gpt-oss": {"rope.freq_base_swa": -1.0},
    "qwen3next": {"ssm.group_count": 3, "ssm.conv_kernel": 2**31, "ssm.inner_size": 9, "full_attention_interval": 0},
    "qwen35moe": {"ssm.time_step_rank": 0, "rope.dimension_sections": 2**30, "nextn_predict_layers": 3},
    "qwen35": {"ssm.state_size": 2**31},
    "qwen3vlmoe": {"rope.dimension_sections": -1},
    "gemma4": {"embedding_length_per_layer_input": 2**31, "attention.key_length_swa": 0, "final_logit_softcapping": NAN,
               "rope.dimension_count_swa": 3},
    "deepseek2": {"attention.kv_lora_rank": 2**31, "attention.key_length_mla": 2, "attention.key_length": 9,
                  "attention.q_lora_rank": 2**31, "expert_group_count": 3, "expert_group_used_count": 3,
                  "expert_gating_func": 99, "rope.scaling.yarn_log_multiplier": NAN, "attention.head_count_kv": 2,
                  "attention.value_length_mla": 2**31, "expert_weights_scale": NAN, "leading_dense_block_count": 2**31,
                  "expert_feed_forward_length": 2**31},
    "deepseek32": {"attention.indexer.head_count": 2**31, "attention.indexer.key_length": 1, "attention.indexer.top_k": 0,
                   "attention.q_lora_rank": 0},
    "glm-dsa": {"attention.indexer.types": 0, "attention.indexer.key_length": 2**31, "attention.indexer.top_k": 2**31},
    "minimax-m3": {"attention.indexer.head_count": 2, "attention.indexer.key_length": 2, "attention.indexer.top_k": 0,
                   "attention.indexer.block_size": 0, "attention.indexer.local_blocks": 3},
    "dots3note": {"attention.indexer.types": 0, "attention.sliding_window": 0, "attention.kv_lora_rank_swa": 2**31,
                  "attention.key_length_mla_swa": 2, "attention.value_length_mla_swa": 0, "attention.key_length_swa": 9,
                  "attention.value_length_swa": 9, "attention.indexer.key_length": 1, "rope.freq_base_swa": -1.0},
    "deepseek4": {"attention.q_lora_rank": 0, "attention.indexer.head_count": 2**31, "attention.indexer.key_length": 1,
                  "attention.indexer.top_k": 0, "attention.output_group_count": 3, "attention.output_lora_rank": 2**31,
                  "attention.compress_rope_freq_base": -1.0, "attention.compress_ratios": 5, "hyper_connection.count": 3,
                  "hyper_connection.sinkhorn_iterations": 0, "hyper_connection.epsilon": NAN, "hash_layer_count": 4,
                  "swiglu_clamp_exp": NAN, "embedding_length_out": 8, "attention.sliding_window": 0},
    "qwen4exp": {"hyper_connection.count": 1, "hyper_connection.low_rank": 0, "attention.indexer.head_count": 2**31,
                 "attention.indexer.key_length": 1, "attention.indexer.top_k": 0, "ple.ngram_size": 4,
                 "ple.heads_per_ngram": 33, "ple.conv_kernel": 9, "ple.layers": 1, "ple.layer_multipliers": -1,
                 "ple.head_offsets": -1, "ple.head_vocab_sizes": 0, "embedding_length_per_layer_input": 2**31},
    "deepseek2-joined": {"attention.value_length": 2**31, "rope.dimension_count": 2**31, "attention.head_count_kv": 1},
    "mistral4": {"attention.temperature_length": 0, "attention.temperature_scale": -1.0},
    "mistral3": {"attention.temperature_scale": NAN, "rope.scaling.original_context_length": 0},
    "llama4": {"expert_used_count": 2, "interleave_moe_layer_step": 2**31, "attention.sliding_window": 0},
    "afmoe": {"expert_shared_count": 2**31},
    "laguna": {"rope.dimension_count_swa": 3},
    "cohere2moe": {"logit_scale": 0.0, "expert_shared_count": 2**31},
    "dbrx": {"attention.clamp_kqv": NAN, "attention.layer_norm_epsilon": -1.0},
    "grok": {"attn_logit_softcapping": 0.0, "embedding_scale": NAN},
    "mimo2": {"attention.value_scale": -1.0},
    "maple": {"swiglu_clamp_exp": NAN},
    "grovemoe": {"experts_per_group": 2, "expert_chunk_feed_forward_length": 2**31, "expert_group_scale": NAN},
    "phimoe": {"rope.scaling.attn_factor": 4096.0},
    "arctic": {"attention.head_count_kv": 0},
    "step35": {"swiglu_clamp_shexp": -1.0, "swiglu_clamp_exp": NAN},
    "glm4moe": {"expert_shared_count": 2**31, "nextn_predict_layers": 3, "rope.dimension_sections": 2**30,
                "rope.dimension_count": 3},
    "smallthinker": {"expert_gating_func": 99},
    "granitehybrid": {"ssm.state_size": 2**31, "ssm.time_step_rank": 0, "ssm.group_count": 3, "ssm.conv_kernel": 2**31},
    "jamba": {"ssm.state_size": 65, "ssm.time_step_rank": 2**32 - 1, "ssm.conv_kernel": 1, "ssm.inner_size": 2**31},
    "lfm2moe": {"shortconv.l_cache": 2**31 + 1},
    "hy_v3": {"nextn_predict_layers": 2**31},
    "mellum": {"attention.key_length": 0},
    "granitemoe": {"residual_scale": NAN, "logit_scale": 0.0, "attention.scale": -1.0},
    "exaone-moe": {"leading_dense_block_count": 3},
    "dots1": {"expert_shared_count": 0},
    "deepseek": {"leading_dense_block_count": 2**31},
    "bailingmoe": {"expert_shared_count": 2**31},
    "bailingmoe2": {"expert_group_used_count": 0, "expert_group_count": 3, "rope.dimension_count": 3},
    "minimax-m2": {"rope.dimension_count": 6},
    "kimi-linear": {"kda.head_dim": 2**31, "ssm.conv_kernel": 9, "attention.head_count_kv": 2, "expert_shared_count": 2**31,
                    "attention.kv_lora_rank": 2**31, "leading_dense_block_count": 2**31, "rope.dimension_count": 2**31},
    "kimi-k3": {"activation.situ_beta": NAN, "activation.situ_linear_beta": 1e-5,
                "kda.gate_lower_bound": 1.0, "expert_latent_length": 2**31, "kda.head_dim": 2**31, "ssm.conv_kernel": 0},
    "bailingmoe3": {"kda.gate_lower_bound": 0.0, "kda.head_dim": 0, "swiglu_clamp_exp": NAN, "swiglu_clamp_shexp": -1.0,
                    "attention.q_lora_rank": 2**31, "ssm.conv_kernel": 1, "expert_shared_count": 0},
    "nemotron_h": {"feed_forward_length": 2**30, "attention.layer_norm_epsilon": -1.0, "expert_count": 3},
    "nemotron_h_moe": {"moe_latent_size": 2**31, "feed_forward_length": 2**30, "attention.head_count_kv": 3,
                       "ssm.group_count": 3, "expert_used_count": 4},
}


def lied(data, key, value):
    """The file with another value of a number, or of the first in an array."""
    at = data.index(text(key)) + len(text(key))
    kind, = struct.unpack_from("<I", data, at)
    at += 4
    if kind == ARR:
        kind, = struct.unpack_from("<I", data, at)
        at += 12
    new = struct.pack({U32: "<I", F32: "<f", 5: "<i"}[kind], value)
    return data[:at] + new + data[at + len(new):]


def main():
    os.makedirs(OUT, exist_ok=True)
    files = {n: model(n) for n in
             ("llama", "mixtral", "olmoe", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "ernie4_5-moe", "hunyuan-moe",
              "gpt-oss", "qwen3next", "qwen35moe", "qwen35", "gemma4")}
    files["deepseek2"] = latent_model(False)
    files["deepseek2-joined"] = latent_model(True)
    files["mistral4"] = latent_model(False, "mistral4")
    files["deepseek32"] = latent_model(False, "deepseek32")
    files["glm-dsa"] = latent_model(False, "glm-dsa")
    files["dots3note"] = latent_model(False, "dots3note")
    files["deepseek4"] = compressed_model()
    files["qwen4exp"] = low_streams_model()
    files.update((name, parts_model(name)) for name in PARTS)
    files.update((arch + "-nextn", parts_model(arch, "nextn_predict_layers=1")) for arch in ("mimo2", "step35", "cohere2moe"))
    files["step35-clamps-of-two"] = parts_model("step35", "swiglu_clamp_exp=[0.5,0.5]")
    files["maple-limits-of-two"] = parts_model("maple", "swiglu_clamp_exp=[0.5,0.5]")
    files["lfm2moe-taps"] = parts_model("lfm2moe", "shortconv.l_cache=2147483649")
    files["lfm2moe-no-convolution"] = parts_model("lfm2moe", "attention.head_count_kv=[1,1,0,0]")
    files["granitehybrid-groups"] = parts_model("granitehybrid", "ssm.group_count=1048576 ssm.state_size=4096 "
                                                "ssm.time_step_rank=1048576 ssm.inner_size=1048576")
    files["granitehybrid-no-heads"] = parts_model("granitehybrid", "ssm.time_step_rank=0")
    files["nemotron_h_moe-no-part"] = parts_model("nemotron_h_moe", "feed_forward_length=[0,0,0,0]")
    files["nemotron_h_moe-two-parts"] = parts_model("nemotron_h_moe", "attention.head_count_kv=[1,1,1,1]")
    files["nemotron_h_moe-no-experts"] = parts_model("nemotron_h_moe", "expert_count=0")
    files["jamba-states"] = parts_model("jamba", "ssm.state_size=65")
    files["jamba-rank"] = parts_model("jamba", "ssm.time_step_rank=4294967295")
    files["laguna-wide-shared"] = parts_model("laguna", "expert_shared_count=1024 expert_feed_forward_length=1048576")
    each = [4, 2, 0, 1]
    files["qwen3moe-each"] = experts_each(each)
    files["qwen3moe-each-short"] = experts_each(each, said=[4, 2, 0])
    files["qwen3moe-each-lie"] = experts_each(each, said=[4, 3, 0, 1])
    files["gemma4-wide-rotation"] = model("gemma4", lie=2**31)
    for arch in GROUPED:
        files[arch] = grouped(arch)
    files["bailingmoe2-wide"] = grouped("bailingmoe2", expert_shared_count=2**31 + 1,
                                        expert_shared_feed_forward_length=2)
    files["exaone-moe-pattern"] = grouped("exaone-moe", attention_sliding_window_pattern=[True])
    files["llama-v2"] = model("llama", 2)
    files["empty-v3"] = gguf([], [])
    whole = files["qwen3moe"]
    files["cut-in-keys"] = whole[:150]
    files["cut-in-tensors"] = whole[:900]
    files["cut-in-data"] = whole[:-100]
    files["huge-string"] = gguf([text("s") + struct.pack("<IQ", STR, 2**64 - 1)], [])
    files["huge-array"] = gguf([text("a") + struct.pack("<IIQ", ARR, 11, 2**61 + 1)], [])
    files["nested-array"] = gguf([text("a") + struct.pack("<IIQ", ARR, ARR, 1) + bytes(12)], [])
    files["huge-counts"] = b"GGUF" + struct.pack("<IQQ", 3, 2**63, 2**63) + bytes(64)
    info = text("w") + struct.pack("<IQQQIQ", 3, 2**32, 2**32, 4, 0, 0)
    files["wrapping-dims"] = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + info + bytes(64)
    files["duplicate-key"] = gguf([kv("k", U32, 1), kv("k", U32, 2)], [])
    files["duplicate-tensor"] = gguf([], [("w", [4]), ("w", [4])])
    files["typed-keys"] = gguf([kv("a", F32, float("nan")), kv("b", BOOL, True),
                                kv("general.alignment", U32, 64)], [])
    files["split"] = gguf([kv("split.count", U32, 2), kv("split.no", U32, 0)], [])
    for name, lies in LIES.items():
        arch = {"mixtral": "llama", "deepseek2-joined": "deepseek2", "qwen3moe-each": "qwen3moe"}.get(name, name)
        files.update(("%s~%s" % (name, key), lied(files[name], "%s.%s" % (arch, key), v)) for key, v in lies.items())
    for name, data in files.items():
        with open(os.path.join(OUT, name), "wb") as f:
            f.write(data)
    print("%d files, %d bytes" % (len(files), sum(map(len, files.values()))))


main()
