#!/usr/bin/env python3
"""Writes a checkpoint of train.py as a GGUF version 3 file. Needs numpy.

    python3 demo/export_gguf.py --checkpoint DIR --out demo/demo.gguf

Types: expert gate and up projections Q6_K, the other matrices Q8_0, norms and routers F32.
Formats: ggml's block_q8_0 and block_q6_K; the container as ggml's docs/gguf.md describes it.
"""
import argparse
import json
import os
import struct
import sys

import numpy as np

import bpe

ALIGNMENT = 32
TEMPLATE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "chat_template.jinja")

# Tensor types (ggml_type), file type (llama_ftype) and metadata value types of GGUF.
F32, Q8_0, Q6_K = 0, 8, 14
FTYPE_MOSTLY_Q6_K = 18
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9


def tensor_type(name, shape):
    if len(shape) == 1 or "ffn_gate_inp" in name:
        return F32
    if "ffn_gate_exps" in name or "ffn_up_exps" in name:
        return Q6_K
    return Q8_0


def _round(x):
    """To the nearest integer, halves away from zero as C's roundf."""
    return np.trunc(x + np.copysign(np.float32(0.5), x))


def quantise_q8_0(x):
    """x [..., n] f32, n a multiple of 32 -> bytes: per 32 values a f16 scale and 32 int8."""
    blocks = x.reshape(-1, 32)
    scale = (np.abs(blocks).max(1) / 127).astype(np.float16)
    inverse = np.divide(1, scale.astype(np.float32), where=scale > 0,
                        out=np.zeros(len(blocks), np.float32))
    q = np.clip(_round(blocks * inverse[:, None]), -127, 127).astype(np.int8)
    out = np.empty((len(blocks), 34), np.uint8)
    out[:, :2] = scale.astype("<f2").view(np.uint8).reshape(-1, 2)
    out[:, 2:] = q.view(np.uint8)
    return out


def dequantise_q8_0(raw):
    scale = np.ascontiguousarray(raw[:, :2]).view("<f2").astype(np.float32)
    return scale * raw[:, 2:].view(np.int8)


def _best_scales(x):
    """x [m, 16] -> the scale of each row that loses least with 6-bit values in -32..31."""
    peak = np.take_along_axis(x, np.abs(x).argmax(1)[:, None], 1)[:, 0]
    best, best_gain = np.zeros(len(x), np.float32), np.full(len(x), -1, np.float32)
    for candidate in np.arange(-32 - 1.0, -32 + 1.6, 0.2, dtype=np.float32):
        inverse = np.divide(candidate, peak, where=peak != 0, out=np.zeros_like(peak))
        q = np.clip(_round(x * inverse[:, None]), -32, 31)
        dot, norm = (x * q).sum(1), (q * q).sum(1)
        # The least-squares scale for these q is dot / norm; it saves dot^2 / norm of the error.
        safe = np.where(norm > 0, norm, 1)
        gain = dot * dot / safe
        better = gain > best_gain
        best = np.where(better, dot / safe, best)
        best_gain = np.where(better, gain, best_gain)
    return best


def quantise_q6_k(x):
    """x [..., n] f32, n a multiple of 256 -> bytes: per 256 values 128 of low nibbles, 64 of high
    bit pairs, 16 int8 scales and a f16 scale of scales."""
    groups = x.reshape(-1, 16, 16)
    n = len(groups)
    scales = _best_scales(groups.reshape(-1, 16)).reshape(n, 16)
    largest = np.take_along_axis(scales, np.abs(scales).argmax(1)[:, None], 1)[:, 0]
    super_scale = (largest / -128).astype(np.float16)
    d = super_scale.astype(np.float32)
    inverse = np.divide(1, d, where=d != 0, out=np.zeros_like(d))
    sub = np.clip(_round(scales * inverse[:, None]), -128, 127).astype(np.int8)
    step = d[:, None] * sub
    inverse = np.divide(1, step, where=step != 0, out=np.zeros_like(step))
    q = np.clip(_round(groups * inverse[:, :, None]), -32, 31).astype(np.int32) + 32
    # Of every 128 values, value l + 32 j has its low nibble in byte l + 32 (j % 2), half j / 2, and
    # its high pair in byte l, pair j.
    q = q.reshape(n, 2, 4, 32).astype(np.uint8)
    low = (q[:, :, :2] & 15) | (q[:, :, 2:] & 15) << 4
    high = q[:, :, 0] >> 4 | q[:, :, 1] >> 4 << 2 | q[:, :, 2] >> 4 << 4 | q[:, :, 3] >> 4 << 6
    out = np.empty((n, 210), np.uint8)
    out[:, :128] = low.reshape(n, 128)
    out[:, 128:192] = high.reshape(n, 64)
    out[:, 192:208] = sub.view(np.uint8)
    out[:, 208:] = super_scale.astype("<f2").view(np.uint8).reshape(-1, 2)
    return out


def dequantise_q6_k(raw):
    n = len(raw)
    low = raw[:, :128].reshape(n, 2, 2, 32)
    high = raw[:, 128:192].reshape(n, 2, 1, 32)
    pairs = high >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1) & 3
    q = np.concatenate((low & 15, low >> 4), 2) | pairs << 4
    d = np.ascontiguousarray(raw[:, 208:]).view("<f2").astype(np.float32)
    step = d * raw[:, 192:208].view(np.int8)
    return step[:, :, None] * (q.reshape(n, 16, 16).astype(np.float32) - 32)


CODECS = {Q8_0: (quantise_q8_0, dequantise_q8_0), Q6_K: (quantise_q6_k, dequantise_q6_k)}


def encoded(name, x):
    """(type, bytes of the tensor)"""
    kind = tensor_type(name, x.shape)
    if kind == F32:
        return kind, x.astype("<f4").tobytes()
    return kind, CODECS[kind][0](x).tobytes()


def rounded(name, x):
    """x as a reader of the file will see it."""
    kind = tensor_type(name, x.shape)
    if kind == F32:
        return x
    quantise, dequantise = CODECS[kind]
    return dequantise(quantise(x)).reshape(x.shape)


def _string(text):
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(kind, value):
    if kind == STRING:
        return _string(value)
    return struct.pack({UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<?"}[kind], value)


def _entry(key, kind, value):
    return _string(key) + struct.pack("<I", kind) + _value(kind, value)


def _array(key, kind, values):
    return (_string(key) + struct.pack("<IIQ", ARRAY, kind, len(values)) +
            b"".join(_value(kind, value) for value in values))


def metadata(cfg, tokenizer):
    with open(TEMPLATE) as f:
        template = f.read().strip()
    arch = "qwen3moe"
    end = tokenizer.end_of_text
    return [
        _entry("general.architecture", STRING, arch),
        _entry("general.type", STRING, "model"),
        _entry("general.name", STRING, "Sluice demo"),
        _entry("general.license", STRING, "mit"),
        _entry("general.file_type", UINT32, FTYPE_MOSTLY_Q6_K),
        _entry("general.quantization_version", UINT32, 2),
        _entry(f"{arch}.block_count", UINT32, cfg["n_layer"]),
        _entry(f"{arch}.context_length", UINT32, cfg["context_length"]),
        _entry(f"{arch}.embedding_length", UINT32, cfg["n_embd"]),
        # Width of a dense layer, of which this model has none: that of the experts used together.
        _entry(f"{arch}.feed_forward_length", UINT32, cfg["n_ff_expert"] * cfg["n_expert_used"]),
        _entry(f"{arch}.attention.head_count", UINT32, cfg["n_head"]),
        _entry(f"{arch}.attention.head_count_kv", UINT32, cfg["n_head_kv"]),
        _entry(f"{arch}.attention.key_length", UINT32, cfg["head_dim"]),
        _entry(f"{arch}.attention.value_length", UINT32, cfg["head_dim"]),
        _entry(f"{arch}.attention.layer_norm_rms_epsilon", FLOAT32, cfg["rms_eps"]),
        _entry(f"{arch}.rope.freq_base", FLOAT32, cfg["rope_base"]),
        _entry(f"{arch}.expert_count", UINT32, cfg["n_expert"]),
        _entry(f"{arch}.expert_used_count", UINT32, cfg["n_expert_used"]),
        _entry(f"{arch}.expert_feed_forward_length", UINT32, cfg["n_ff_expert"]),
        _entry("tokenizer.ggml.model", STRING, "gpt2"),
        _entry("tokenizer.ggml.pre", STRING, "qwen2"),
        _array("tokenizer.ggml.tokens", STRING, tokenizer.tokens),
        _array("tokenizer.ggml.token_type", INT32,
               [3 if token in bpe.SPECIALS else 1 for token in tokenizer.tokens]),
        _array("tokenizer.ggml.merges", STRING, [f"{a} {b}" for a, b in tokenizer.merges]),
        _entry("tokenizer.ggml.bos_token_id", UINT32, end),
        _entry("tokenizer.ggml.eos_token_id", UINT32, tokenizer.im_end),
        _entry("tokenizer.ggml.padding_token_id", UINT32, end),
        _entry("tokenizer.ggml.add_bos_token", BOOL, False),
        _entry("tokenizer.chat_template", STRING, template),
    ]


def _padding(size):
    return bytes(-size % ALIGNMENT)


def write(path, cfg, tokenizer, params):
    """params: name -> f32 array, outermost axis first, in the order to write. Returns the size."""
    entries = metadata(cfg, tokenizer)
    infos, blobs, offset = [], [], 0
    for name, x in params.items():
        kind, blob = encoded(name, x)
        blob += _padding(len(blob))
        infos.append(_string(name) + struct.pack("<I", x.ndim) +
                     b"".join(struct.pack("<Q", n) for n in reversed(x.shape)) +
                     struct.pack("<IQ", kind, offset))
        blobs.append(blob)
        offset += len(blob)
    head = (b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(entries)) + b"".join(entries) +
            b"".join(infos))
    head += _padding(len(head))
    with open(path, "wb") as f:
        f.write(head)
        f.writelines(blobs)
    return len(head) + offset


def load(directory):
    with open(os.path.join(directory, "model.json")) as f:
        saved = json.load(f)
    params = {}
    for part in range(3):
        with np.load(os.path.join(directory, f"weights-{part}.npz")) as arrays:
            params.update((name, arrays[name].astype(np.float32)) for name in arrays.files)
    tokenizer = bpe.Tokenizer(saved["merges"])
    if len(tokenizer.tokens) != saved["config"]["n_vocab"]:
        raise ValueError(f"{directory}: the tokenizer has {len(tokenizer.tokens)} tokens, the "
                         f"model {saved['config']['n_vocab']}")

    def order(name):
        if name.startswith("blk."):
            return 1, int(name.split(".")[1]), name
        return (0 if name.startswith("token_embd") else 2), 0, name

    return saved["config"], tokenizer, {name: params[name] for name in sorted(params, key=order)}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", required=True, help="the --out directory of train.py")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    cfg, tokenizer, params = load(args.checkpoint)
    size = write(args.out, cfg, tokenizer, params)
    worst = max(float(np.abs(rounded(name, x) - x).max() / np.abs(x).max())
                for name, x in params.items())
    print(f"{args.out}: {size} bytes, {sum(x.size for x in params.values())} parameters, largest "
          f"rounding error {worst:.4f} of its tensor's largest weight")
    return 0


if __name__ == "__main__":
    sys.exit(main())
