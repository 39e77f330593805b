#!/usr/bin/env python3
"""Log-probabilities of a small F32 model in double precision, for cases in which Sluice and llama.cpp
are further apart than the bar. Needs numpy. Knows deepseek2, deepseek32, glm-dsa, gemma4 without embeddings of
layers, grok, llama, minimax-m3, and qwen4exp.

Where an indexer chooses positions, rounding decides in a row now and then which of two positions with nearly the same
score is the last one. The numbers of such rows are printed: an engine may differ from the reference there.

usage: reference.py MODEL IDS OUT.npy [ROUNDING ...]

Nothing is rounded unless it says so. ROUNDING is where an engine keeps 16-bit floats:
  latents  the cached row that latent attention shares among heads (Sluice); keys and values of minimax-m3 and
           qwen4exp (both)
  heads    every head's cached key and value (llama.cpp; of other attention both)
  queries  queries, where keys are 16-bit (llama.cpp)
  index    keys of an indexer (both)
  gelu     what goes into GELU and what it gives (llama.cpp's table)"""
import struct
import sys

import numpy as np

# Two scores of an indexer that are nearer than this, in shares of the row's largest, are ranked by rounding.
EDGE = 1e-5
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


class Model:
    """Keys without the architecture's prefix, and F32 tensors in rows [..., n_out, n_in]."""

    def __init__(self, path):
        self.data = open(path, "rb").read()
        self.at = 4
        _, n_tensors, n_keys = self.take("I"), self.take("Q"), self.take("Q")
        keys = {}
        for _ in range(n_keys):
            name = self.text()
            keys[name] = self.value(self.take("I"))
        self.arch = keys["general.architecture"]
        self.keys = {k.removeprefix(self.arch + "."): v for k, v in keys.items()}
        infos = []
        for _ in range(n_tensors):
            name = self.text()
            dims = [self.take("Q") for _ in range(self.take("I"))]
            if self.take("I") != 0:
                raise ValueError(f"{name} is not F32")
            infos.append((name, dims, self.take("Q")))
        start = -(-self.at // 32) * 32
        self.tensors = {
            name: np.frombuffer(self.data, "<f4", int(np.prod(dims)), start + at).reshape(dims[::-1]).astype(float)
            for name, dims, at in infos}

    def take(self, kind):
        v = struct.unpack_from("<" + kind, self.data, self.at)[0]
        self.at += struct.calcsize("<" + kind)
        return v

    def text(self):
        n = self.take("Q")
        self.at += n
        return self.data[self.at - n:self.at].decode(errors="replace")

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            kind, n = self.take("I"), self.take("Q")
            return [self.value(kind) for _ in range(n)]
        return self.take(SCALARS[kind])

    def __getitem__(self, key):
        return self.keys[key]

    def get(self, key, otherwise):
        return self.keys.get(key, otherwise)

    def layer(self, i, name, otherwise=None):
        return self.tensors.get(f"blk.{i}.{name}", otherwise)


def half(x):
    return x.astype(np.float16).astype(float)


def norm(x, w=1.0, eps=1e-6):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * w


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * x * (1 + 0.044715 * x * x)))


def rotate(x, angles, amplitude, adjacent):
    """x [..., n_rot], angles [positions, n_rot / 2]; x's first axis is the position."""
    n = x.shape[-1] // 2
    angles = angles.reshape(angles.shape[:1] + (1,) * (x.ndim - 2) + angles.shape[1:])
    c, s = np.cos(angles) * amplitude, np.sin(angles) * amplitude
    a, b = (x[..., 0::2], x[..., 1::2]) if adjacent else (x[..., :n], x[..., n:])
    y = np.empty_like(x)
    one, two = (slice(0, None, 2), slice(1, None, 2)) if adjacent else (slice(0, n), slice(n, None))
    y[..., one], y[..., two] = a * c - b * s, a * s + b * c
    return y


def frequencies(m, n_rot, base, divisors=1.0):
    """Of pairs of elements, with YaRN where the file has it, and YaRN's factor."""
    f = base ** (-np.arange(0, n_rot, 2) / n_rot) / divisors
    if m.get("rope.scaling.type", "none") != "yarn":
        return f, 1.0
    factor, ctx = m["rope.scaling.factor"], m["rope.scaling.original_context_length"]

    def pair(turns):
        return n_rot * np.log(ctx / (turns * 2 * np.pi)) / (2 * np.log(base))

    low, high = max(0, np.floor(pair(32))), min(n_rot - 1, np.ceil(pair(1)))
    keep = 1 - np.clip((np.arange(n_rot // 2) - low) / max(0.001, high - low), 0, 1)
    return f / factor * (1 - keep) + f * keep, factor


def hadamard(x):
    """Of blocks of the largest power of two that divides a row."""
    dim = x.shape[-1]
    n = dim & -dim
    h = np.ones((1, 1))
    while len(h) < n:
        h = np.block([[h, h], [h, -h]])
    return (x.reshape(x.shape[:-1] + (dim // n, n)) @ h / np.sqrt(n)).reshape(x.shape)


def attend(q, k, v, scale, window=0, cap=0, chosen=True):
    """q [rows, heads, dim], k and v [rows, key heads, ...]: causal; chosen [rows, rows]: the positions that a row sees."""
    rows, heads = q.shape[:2]
    k, v = (np.repeat(x, heads // x.shape[1], axis=1) for x in (k, v))
    scores = np.einsum("rhd,shd->hrs", q, k) * scale
    if cap:
        scores = cap * np.tanh(scores / cap)
    back = np.arange(rows)[:, None] - np.arange(rows)[None, :]
    seen = (back >= 0) & (back < window if window else True) & chosen
    return np.einsum("hrs,shd->rhd", softmax(np.where(seen, scores, -np.inf)), v)


class Reference:
    def __init__(self, model, rounding):
        self.m, self.rounding = model, set(rounding)
        self.eps = model["attention.layer_norm_rms_epsilon"]
        self.chosen = True  # what the last indexer chose
        self.at_edge = set()  # rows in which rounding may decide a choice

    def rounded(self, where, x):
        return half(x) if where in self.rounding else x

    def norm(self, x, w=1.0):
        return norm(x, w, self.eps)

    def gelu(self, x):
        return self.rounded("gelu", gelu(self.rounded("gelu", x)))

    def glu(self, i, x, which, act, expert=None):
        def w(part):
            t = self.m.layer(i, f"ffn_{part}{which}.weight")
            return t if expert is None else t[expert]

        return (act(x @ w("gate").T) * (x @ w("up").T)) @ w("down").T

    def experts(self, i, x, logits, act, normalize, scale=None, sigmoid=False):
        """The sum of each row's experts; scale: of each expert."""
        scores = 1 / (1 + np.exp(-logits)) if sigmoid else softmax(logits)
        choice = scores + self.m.layer(i, "exp_probs_b.bias", 0.0)
        k = self.m["expert_used_count"]
        y = np.zeros_like(x)
        for row, best in enumerate(np.argsort(-choice, axis=-1, kind="stable")[:, :k]):
            w = scores[row, best]
            w = (w / w.sum() if normalize else w) * self.m.get("expert_weights_scale", 1.0)
            for e, share in zip(best, w):
                y[row] += share * (scale[e] if scale is not None else 1) * self.glu(i, x[row], "_exps", act, e)
        return y

    def choose(self, i, x, low, angles, amplitude, adjacent):
        """Which positions each row attends to [rows, rows]."""
        m, rows, n_rot = self.m, len(x), 2 * angles.shape[1]
        heads, dim, top = (m["attention.indexer." + key] for key in ("head_count", "key_length", "top_k"))
        q = (low @ m.layer(i, "indexer.attn_q_b.weight").T).reshape(rows, heads, dim)
        k = x @ m.layer(i, "indexer.attn_k.weight").T
        k = norm(k - k.mean(axis=-1, keepdims=True), m.layer(i, "indexer.k_norm.weight")) + m.layer(i, "indexer.k_norm.bias")
        q, k = (np.concatenate([rotate(y[..., :n_rot], angles, amplitude, adjacent), y[..., n_rot:]], axis=-1) for y in (q, k))
        q, k = hadamard(q), self.rounded("index", hadamard(k))
        scores = np.einsum("rhs,rh->rs", np.maximum(np.einsum("rhd,sd->rhs", q, k), 0), x @ m.layer(i, "indexer.proj.weight").T)
        chosen = np.zeros((rows, rows), bool)
        for row in range(rows):
            order = np.argsort(-scores[row, :row + 1], kind="stable")
            chosen[row, order[:top]] = True
            if row + 1 > top:
                last, next_one = scores[row, order[top - 1:top + 1]]
                if 0 < last - next_one < EDGE * np.abs(scores[row, :row + 1]).max():  # equal: the lower position
                    self.at_edge.add(row)
        return chosen

    def deepseek2_attention(self, i, x, indexer_adjacent=None):
        m, heads, rows = self.m, self.m["attention.head_count"], len(x)
        rot, latent = m["rope.dimension_count"], m["attention.kv_lora_rank"]
        joined = m.layer(i, "attn_kv_b.weight")
        tail = "" if joined is not None else "_mla"
        dim, dim_v = m["attention.key_length" + tail], m["attention.value_length" + tail]
        nope = dim - rot
        f, factor = frequencies(m, rot, m["rope.freq_base"])
        mul = m.get("rope.scaling.yarn_log_multiplier", 0.0)
        # cos and sin have YaRN's usual amplitude where no multiplier is stated.
        usual = 1 + 0.1 * np.log(factor)
        amplitude = 1.0 if mul > 0 else usual
        scale = (1 + mul * np.log(factor)) ** 2 * (1.0 if mul > 0 else usual ** 2) / np.sqrt(dim)
        angles = np.arange(rows)[:, None] * f
        if m.layer(i, "attn_q.weight") is not None:
            q = x @ m.layer(i, "attn_q.weight").T
        else:
            low = self.norm(x @ m.layer(i, "attn_q_a.weight").T, m.layer(i, "attn_q_a_norm.weight"))
            q = low @ m.layer(i, "attn_q_b.weight").T
        q = q.reshape(rows, heads, dim)
        q = np.concatenate([q[..., :nope], rotate(q[..., nope:], angles, amplitude, True)], axis=-1)
        if m.layer(i, "indexer.proj.weight") is not None:
            self.chosen = self.choose(i, x, low, angles, amplitude, indexer_adjacent)
        row = x @ m.layer(i, "attn_kv_a_mqa.weight").T
        c = self.rounded("latents", self.norm(row[:, :latent], m.layer(i, "attn_kv_a_norm.weight")))
        k_rot = self.rounded("latents", rotate(row[:, None, latent:], angles, amplitude, True))
        if joined is not None:
            both = joined.reshape(heads, nope + dim_v, latent)
            w_k, w_v = both[:, :nope], both[:, nope:]
        else:
            w_k, w_v = m.layer(i, "attn_k_b.weight").transpose(0, 2, 1), m.layer(i, "attn_v_b.weight")
        k = np.concatenate([np.einsum("rc,hnc->rhn", c, w_k), np.repeat(k_rot, heads, axis=1)], axis=-1)
        v = np.einsum("rc,hvc->rhv", c, w_v)
        k, v, q = self.rounded("heads", k), self.rounded("heads", v), self.rounded("queries", q)
        return attend(q, k, v, scale, chosen=self.chosen).reshape(rows, -1) @ m.layer(i, "attn_output.weight").T

    def deepseek2(self, i, x, indexer_adjacent=None):
        m = self.m
        x = x + self.deepseek2_attention(i, self.norm(x, m.layer(i, "attn_norm.weight")), indexer_adjacent)
        h = self.norm(x, m.layer(i, "ffn_norm.weight"))
        if i < m.get("leading_dense_block_count", 0):
            return x + self.glu(i, h, "", silu)
        y = self.experts(i, h, h @ m.layer(i, "ffn_gate_inp.weight").T, silu, m.get("expert_weights_norm", False),
                         sigmoid=m.get("expert_gating_func", 1) == 2)
        return x + y + self.glu(i, h, "_shexp", silu)

    def deepseek32(self, i, x):
        return self.deepseek2(i, x, indexer_adjacent=False)

    def glm_dsa(self, i, x):
        return self.deepseek2(i, x, indexer_adjacent=True)

    def grouped_attention(self, i, x, heads_kv, dim, angles, scale, window=0, cap=0, normed=False, adjacent=False):
        m, heads, rows = self.m, self.m["attention.head_count"], len(x)

        def heads_of(name, n):
            return (x @ m.layer(i, f"attn_{name}.weight").T).reshape(rows, n, dim)

        q, k = heads_of("q", heads), heads_of("k", heads_kv)
        v = k if m.layer(i, "attn_v.weight") is None else heads_of("v", heads_kv)
        if normed:
            q, k = self.norm(q, m.layer(i, "attn_q_norm.weight")), self.norm(k, m.layer(i, "attn_k_norm.weight"))
            v = self.norm(v)
        n = 2 * angles.shape[1]
        q, k = (np.concatenate([rotate(y[..., :n], angles, 1.0, adjacent), y[..., n:]], axis=-1) for y in (q, k))
        k, v, q = self.rounded("heads", k), self.rounded("heads", v), self.rounded("queries", q)
        return attend(q, k, v, scale, window, cap).reshape(rows, -1) @ m.layer(i, "attn_output.weight").T

    def llama(self, i, x):
        m, heads = self.m, self.m["attention.head_count"]
        dim = m.get("attention.key_length", m["embedding_length"] // heads)
        f, _ = frequencies(m, dim, m["rope.freq_base"], m.tensors.get("rope_freqs.weight", 1.0))
        x = x + self.grouped_attention(i, self.norm(x, m.layer(i, "attn_norm.weight")), m["attention.head_count_kv"], dim,
                                       np.arange(len(x))[:, None] * f, 1 / np.sqrt(dim), adjacent=True)
        h = self.norm(x, m.layer(i, "ffn_norm.weight"))
        if m.layer(i, "ffn_gate_inp.weight") is None:
            return x + self.glu(i, h, "", silu)
        return x + self.experts(i, h, h @ m.layer(i, "ffn_gate_inp.weight").T, silu, True)

    def blocks(self, i, x, angles):
        """Which positions each row attends to with each key head [heads, rows, rows]: blocks that an indexer chooses."""
        m, rows, n = self.m, len(x), 2 * angles.shape[1]
        heads, dim, top, size, local = (m["attention.indexer." + key] for key in (
            "head_count", "key_length", "top_k", "block_size", "local_blocks"))

        def of(name, n_heads):
            y = (x @ m.layer(i, f"indexer.{name}_proj.weight").T).reshape(rows, n_heads, dim)
            y = self.norm(y, m.layer(i, f"indexer.{name}_norm.weight"))
            return np.concatenate([rotate(y[..., :n], angles, 1.0, False), y[..., n:]], axis=-1)

        scores = np.einsum("rhd,sd->hrs", of("q", heads), self.rounded("index", of("k", 1))[:, 0])
        chosen = np.zeros((heads, rows, rows), bool)
        for head in range(heads):
            for row in range(rows):
                own = row // size
                best = [scores[head, row, b * size:min((b + 1) * size, row + 1)].max() for b in range(own + 1)]
                best = [np.inf if b > own - local else score for b, score in enumerate(best)]
                order = np.argsort(-np.array(best), kind="stable")
                for b in order[:top]:
                    chosen[head, row, b * size:(b + 1) * size] = True
                if len(order) > top:
                    last, next_one = best[order[top - 1]], best[order[top]]
                    if last - next_one < EDGE * np.abs(scores[head, row, :row + 1]).max():
                        self.at_edge.add(row)
        return chosen

    def minimax_m3(self, i, x):
        m, rows, heads = self.m, len(x), self.m["attention.head_count"]
        dim, heads_kv, n = m["attention.key_length"], m["attention.head_count_kv"], m["rope.dimension_count"]
        f, _ = frequencies(m, n, m["rope.freq_base"])
        angles = np.arange(rows)[:, None] * f
        h = self.norm(x, m.layer(i, "attn_norm.weight"))
        q, k, v = ((h @ m.layer(i, f"attn_{name}.weight").T).reshape(rows, -1, dim) for name in "qkv")
        q, k = self.norm(q, m.layer(i, "attn_q_norm.weight")), self.norm(k, m.layer(i, "attn_k_norm.weight"))
        q, k = (np.concatenate([rotate(y[..., :n], angles, 1.0, False), y[..., n:]], axis=-1) for y in (q, k))
        k, v = self.rounded("latents", k), self.rounded("latents", v)
        dense = i < m["leading_dense_block_count"]
        chosen = True if dense else np.repeat(self.blocks(i, h, angles), heads // heads_kv, axis=0)
        y = attend(q, k, v, 1 / np.sqrt(dim), chosen=chosen)
        x = x + y.reshape(rows, -1) @ m.layer(i, "attn_output.weight").T
        h = self.norm(x, m.layer(i, "ffn_norm.weight"))

        def part(h, which, expert=None):
            up, gate, down = (m.layer(i, f"ffn_{name}{which}.weight") for name in ("up", "gate", "down"))
            if expert is not None:
                up, gate, down = up[expert], gate[expert], down[expert]
            gate = np.minimum(h @ gate.T, 7)
            return (gate / (1 + np.exp(-1.702 * gate)) * (np.clip(h @ up.T, -7, 7) + 1)) @ down.T

        if dense:
            return x + part(h, "")
        scores = 1 / (1 + np.exp(-(h @ m.layer(i, "ffn_gate_inp.weight").T)))
        choice = scores + m.layer(i, "exp_probs_b.bias")
        y = part(h, "_shexp")
        for row, best in enumerate(np.argsort(-choice, axis=-1, kind="stable")[:, :m["expert_used_count"]]):
            w = scores[row, best]
            for e, share in zip(best, w / w.sum() * m.get("expert_weights_scale", 1.0)):
                y[row] += share * part(h[row], "_exps", e)
        return x + y

    def read_streams(self, x, norm, down, up):
        """What a part reads of the streams [rows, streams, n], and these, normed, as one row."""
        rows, n_stream, n = x.shape
        h = self.norm(x).reshape(rows, -1) * norm
        gate = silu(h @ down.T / n_stream) @ up.T
        return (h / (1 + np.exp(-gate))).reshape(x.shape).mean(axis=1), h

    def pooled(self, i, x, angles):
        """Which positions each row attends to [rows, rows]: blocks by their mean keys, and what is no block yet."""
        m, rows, n = self.m, len(x), 2 * angles.shape[1]
        heads, dim, top = (m["attention.indexer." + key] for key in ("head_count", "key_length", "top_k"))
        size = m["attention.compress_ratios"][i]
        q = self.norm((x @ m.layer(i, "indexer.q_proj.weight").T).reshape(rows, heads, dim), m.layer(i, "indexer.q_norm.weight"))
        k = (x @ m.layer(i, "indexer.k_proj.weight").T)[:rows // size * size].reshape(-1, size, dim).mean(axis=1)
        k = self.norm(k, m.layer(i, "indexer.k_norm.weight"))
        q = np.concatenate([rotate(q[..., :n], angles, 1.0, False), q[..., n:]], axis=-1)
        k = self.rounded("index", np.concatenate([rotate(k[..., :n], angles[::size][:len(k)], 1.0, False), k[..., n:]], axis=-1))
        scores = np.maximum(np.einsum("rhd,bd->rhb", q, k), 0).sum(axis=1)
        chosen = np.zeros((rows, rows), bool)
        for row in range(rows):
            whole, n_top = (row + 1) // size, top // size
            order = np.argsort(-scores[row, :whole], kind="stable")
            for b in order[:n_top]:
                chosen[row, b * size:(b + 1) * size] = True
            chosen[row, whole * size:row + 1] = True
            if whole > n_top:
                last, next_one = scores[row, order[n_top - 1:n_top + 1]]
                if 0 < last - next_one < EDGE * np.abs(scores[row, :whole]).max():
                    self.at_edge.add(row)
        return chosen

    def gated_attention(self, i, x):
        m, rows, heads = self.m, len(x), self.m["attention.head_count"]
        dim, n = m["attention.key_length"], m["rope.dimension_count"]
        f, _ = frequencies(m, n, m["rope.freq_base"])
        angles = np.arange(rows)[:, None] * f
        both = (x @ m.layer(i, "attn_q.weight").T).reshape(rows, heads, 2 * dim)
        k, v = ((x @ m.layer(i, f"attn_{name}.weight").T).reshape(rows, -1, dim) for name in "kv")
        q, k = self.norm(both[..., :dim], m.layer(i, "attn_q_norm.weight")), self.norm(k, m.layer(i, "attn_k_norm.weight"))
        q, k = (np.concatenate([rotate(y[..., :n], angles, 1.0, False), y[..., n:]], axis=-1) for y in (q, k))
        k, v = self.rounded("latents", k), self.rounded("latents", v)
        y = attend(q, k, v, 1 / np.sqrt(dim), chosen=self.pooled(i, x, angles))
        return (y / (1 + np.exp(-both[..., dim:]))).reshape(rows, -1) @ m.layer(i, "attn_output.weight").T

    def convolved(self, x, w, step=1):
        """x [rows, n] over taps [n, taps], `step` positions apart."""
        y, taps = np.zeros_like(x), w.shape[-1]
        for t in range(taps):
            back = (taps - 1 - t) * step
            y[back:] += x[:len(x) - back] * w[:, t]
        return silu(y)

    def delta_net(self, i, x):
        m, rows, dim = self.m, len(x), self.m["ssm.state_size"]
        heads, heads_k = m["ssm.time_step_rank"], m["ssm.group_count"]
        y = self.convolved(x @ m.layer(i, "attn_qkv.weight").T, m.layer(i, "ssm_conv1d.weight"))
        q, k, v = np.split(y.reshape(rows, -1, dim), [heads_k, 2 * heads_k], axis=1)
        q, k = (np.tile(z / np.sqrt((z * z).sum(axis=-1, keepdims=True) + self.eps), (1, heads // heads_k, 1)) for z in (q, k))
        beta = 1 / (1 + np.exp(-(x @ m.layer(i, "ssm_beta.weight").T)))
        alpha = np.log1p(np.exp(x @ m.layer(i, "ssm_alpha.weight").T + m.layer(i, "ssm_dt.bias")))
        decay, state, out = np.exp(alpha * m.layer(i, "ssm_a")), np.zeros((heads, dim, dim)), np.empty_like(v)
        for r in range(rows):
            state *= decay[r][:, None, None]
            d = (v[r] - np.einsum("hij,hi->hj", state, k[r])) * beta[r][:, None]
            state += k[r][:, :, None] * d[:, None, :]
            out[r] = np.einsum("hij,hi->hj", state, q[r]) / np.sqrt(dim)
        gate = 1 / (1 + np.exp(-(x @ m.layer(i, "attn_gate.weight").T)))
        out = self.norm(out, m.layer(i, "ssm_norm.weight")).reshape(rows, -1) * gate
        return out @ m.layer(i, "ssm_out.weight").T

    def ngrams(self, i, x, ids):
        """What embeddings of n-grams add to streams x."""
        m, (rows, n_stream, n) = self.m, x.shape
        eos, per, sizes = m["ple.eos_token_id"], m["ple.heads_per_ngram"], m["ple.head_vocab_sizes"]
        table, e = m.tensors["per_layer_token_embd.weight"], np.empty((rows, n))
        for r in range(rows):
            context, cut = [int(ids[r])], False
            for back in range(1, m["ple.ngram_size"]):
                cut = cut or r < back or ids[r - back] == eos
                context.append(eos if cut else int(ids[r - back]))
            chosen, mixed = [], context[0] * m["ple.layer_multipliers"][0]
            for back in range(1, len(context)):
                mixed ^= context[back] * m["ple.layer_multipliers"][back]
                for h in range((back - 1) * per, back * per):
                    chosen.append((mixed & (1 << 64) - 1) % sizes[h] + m["ple.head_offsets"][h])
            e[r] = table[chosen].reshape(-1)

        def normed(y, name):
            return self.norm(y) * m.layer(i, f"ple_norm_{name}.weight").reshape(n_stream, n)

        key = normed((e @ m.layer(i, "ple_key.weight").T).reshape(x.shape), "key")
        s = (key * normed(x, "query")).sum(axis=-1, keepdims=True) / np.sqrt(n)
        gate = 1 / (1 + np.exp(-np.sign(s) * np.sqrt(np.maximum(np.abs(s), 1e-6))))
        gated = (e @ m.layer(i, "ple_value.weight").T)[:, None, :] * gate
        y = self.convolved(normed(gated, "conv").reshape(rows, -1), m.layer(i, "ple_conv1d.weight"), m["ple.ngram_size"])
        return x + gated + y.reshape(x.shape)

    def qwen4exp(self, i, x):
        m = self.m
        if i in m.get("ple.layers", []):
            x = self.ngrams(i, x, self.ids)

        def inject(x, y, h, part):
            w = 2 / (1 + np.exp(-(h @ m.layer(i, f"hc_{part}_inject.weight").T) / x.shape[1]))
            return x + y[:, None, :] * w[:, :, None]

        def of(part):
            return self.read_streams(x, *(m.layer(i, f"hc_{part}_{name}.weight") for name in ("norm", "down", "up")))

        y, h = of("attn")
        attends = m.layer(i, "attn_q.weight") is not None
        x = inject(x, self.gated_attention(i, y) if attends else self.delta_net(i, y), h, "attn")
        y, h = of("ffn")
        shared = self.glu(i, y, "_shexp", silu) / (1 + np.exp(-(y @ m.layer(i, "ffn_gate_inp_shexp.weight").reshape(-1, 1))))
        return inject(x, shared + self.experts(i, y, y @ m.layer(i, "ffn_gate_inp.weight").T, silu, True), h, "ffn")

    def gemma4(self, i, x):
        m = self.m
        near = m["attention.sliding_window_pattern"][i]
        tail = "_swa" if near else ""
        dim, heads_kv = m["attention.key_length" + tail], m["attention.head_count_kv"]
        heads_kv = heads_kv[i] if isinstance(heads_kv, list) else heads_kv
        n_rot = min(dim, m.get("rope.dimension_count" + tail, dim))
        f, _ = frequencies(m, n_rot, m["rope.freq_base" + tail], 1.0 if near else m.tensors["rope_freqs.weight"])
        y = self.grouped_attention(i, self.norm(x, m.layer(i, "attn_norm.weight")), heads_kv, dim,
                                   np.arange(len(x))[:, None] * f, 1.0, m["attention.sliding_window"] if near else 0,
                                   normed=True)
        x = x + self.norm(y, m.layer(i, "post_attention_norm.weight"))
        y = self.glu(i, self.norm(x, m.layer(i, "ffn_norm.weight")), "", self.gelu)
        if m.layer(i, "ffn_gate_inp.weight") is not None:
            logits = (self.norm(x) / np.sqrt(x.shape[1]) * m.layer(i, "ffn_gate_inp.scale")) \
                @ m.layer(i, "ffn_gate_inp.weight").T
            moe = self.experts(i, self.norm(x, m.layer(i, "pre_ffw_norm_2.weight")), logits, self.gelu, True,
                               m.layer(i, "ffn_down_exps.scale"))
            y = self.norm(y, m.layer(i, "post_ffw_norm_1.weight"))
            y = y + self.norm(moe, m.layer(i, "post_ffw_norm_2.weight"))
        x = x + self.norm(y, m.layer(i, "post_ffw_norm.weight"))
        return x * m.layer(i, "layer_output_scale.weight", 1.0)

    def grok(self, i, x):
        m, dim = self.m, self.m["attention.key_length"]
        f, _ = frequencies(m, dim, m["rope.freq_base"])
        y = self.grouped_attention(i, self.norm(x, m.layer(i, "attn_norm.weight")), m["attention.head_count_kv"], dim,
                                   np.arange(len(x))[:, None] * f, m.get("attention.output_scale", 0.08838834764831845),
                                   cap=m.get("attn_logit_softcapping", 30.0))
        x = x + self.norm(y, m.layer(i, "attn_output_norm.weight"))
        h = self.norm(x, m.layer(i, "ffn_norm.weight"))
        y = self.experts(i, h, h @ m.layer(i, "ffn_gate_inp.weight").T, self.gelu, True)
        if m.layer(i, "ffn_up.weight") is not None:
            y = (y + self.glu(i, h, "", self.gelu)) * np.sqrt(0.5)
        post = m.layer(i, "layer_output_norm.weight")
        return x + self.norm(y, m.layer(i, "post_ffw_norm.weight") if post is None else post)

    def log_probabilities(self, ids):
        m = self.m
        scales = {"gemma4": (np.sqrt(m["embedding_length"]), 1.0), "grok": (78.38367176906169, 0.5773502691896257)}
        embd, logit = scales.get(m.arch, (1.0, 1.0))
        x = m.tensors["token_embd.weight"][ids] * m.get("embedding_scale", embd)
        self.ids, low = ids, "output_hc_up.weight" in m.tensors
        if low:
            x = np.repeat(x[:, None, :], m["hyper_connection.count"], axis=1)
        for i in range(m["block_count"] - m.get("nextn_predict_layers", 0)):
            x = getattr(self, m.arch.replace("-", "_"))(i, x)
        head = m.tensors.get("output.weight", m.tensors["token_embd.weight"])
        x = self.read_streams(x, *(m.tensors[f"output_hc_{name}.weight"] for name in ("norm", "down", "up")))[0] if low else \
            self.norm(x, m.tensors["output_norm.weight"])
        y = x @ head.T * m.get("logit_scale", logit)
        cap = m.get("final_logit_softcapping", 0.0)
        if cap:
            y = cap * np.tanh(y / cap)
        y -= y.max(axis=-1, keepdims=True)
        return y - np.log(np.exp(y).sum(axis=-1, keepdims=True))


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    ids = np.fromfile(sys.argv[2], "<i4")
    reference = Reference(Model(sys.argv[1]), sys.argv[4:])
    np.save(sys.argv[3], reference.log_probabilities(ids).astype("<f4"))
    print(*sorted(reference.at_edge))


main()
