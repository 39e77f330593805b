"""The demo model in PyTorch: qwen3moe as Hugging Face and llama.cpp define it, for training.

The parameters live in one flat dict under the names and shapes (outermost first) they have in the
GGUF file. Tokens are one flat axis N; only the attention sees chats, as (rows, length) segments of
that axis, so every other operation has the same shape in every step.

All experts are computed for all tokens and the unselected ones weighted by zero: at 16 experts of
this size one dense product is faster than gathering rows.
"""
import math

import torch
import torch.nn.functional as F

CONFIG = {
    "n_vocab": 2560,
    "n_layer": 8,
    "n_embd": 256,
    "n_head": 6,
    "n_head_kv": 2,
    "head_dim": 64,
    "n_expert": 16,
    "n_expert_used": 4,
    "n_ff_expert": 128,
    "context_length": 1024,
    "rms_eps": 1e-6,
    "rope_base": 10000.0,
}


def shapes(cfg):
    """Name -> shape of every parameter, in the order of the GGUF file."""
    e, d = cfg["n_embd"], cfg["head_dim"]
    n, ff = cfg["n_expert"], cfg["n_ff_expert"]
    out = {"token_embd.weight": (cfg["n_vocab"], e)}
    for i in range(cfg["n_layer"]):
        for name, shape in (
                ("attn_norm", (e,)), ("attn_q", (cfg["n_head"] * d, e)),
                ("attn_k", (cfg["n_head_kv"] * d, e)), ("attn_v", (cfg["n_head_kv"] * d, e)),
                ("attn_q_norm", (d,)), ("attn_k_norm", (d,)),
                ("attn_output", (e, cfg["n_head"] * d)), ("ffn_norm", (e,)),
                ("ffn_gate_inp", (n, e)), ("ffn_gate_exps", (n, ff, e)),
                ("ffn_up_exps", (n, ff, e)), ("ffn_down_exps", (n, e, ff))):
            out[f"blk.{i}.{name}.weight"] = shape
    out["output_norm.weight"] = (e,)
    out["output.weight"] = (cfg["n_vocab"], e)
    return out


def init(cfg, device, seed):
    generator = torch.Generator().manual_seed(seed)
    params = {}
    for name, shape in shapes(cfg).items():
        if len(shape) == 1:
            value = torch.ones(shape)
        else:
            scale = 0.02 if name.startswith(("token_embd", "output")) else 0.6 / shape[-1] ** 0.5
            if "attn_output" in name or "ffn_down" in name:
                scale /= math.sqrt(2 * cfg["n_layer"])
            value = torch.randn(shape, generator=generator) * scale
        params[name] = value.to(device).requires_grad_(True)
    return params


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rotate(x, cos, sin):
    """NEOX rope: the first half of a head is paired with the second."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def linear(x, weight):
    return F.linear(x.bfloat16(), weight.bfloat16())


def before_attention(x, cos, sin, eps, head_dim, norm, wq, wk, wv, q_norm, k_norm):
    """x [N, embd] f32 -> q [N, n_head, head_dim], k and v [N, n_head_kv, head_dim], bf16."""
    h = rms_norm(x, norm, eps).bfloat16()
    n = x.shape[0]
    q = rms_norm(linear(h, wq).view(n, -1, head_dim).float(), q_norm, eps)
    k = rms_norm(linear(h, wk).view(n, -1, head_dim).float(), k_norm, eps)
    v = linear(h, wv).view(n, -1, head_dim)
    return rotate(q, cos, sin).bfloat16(), rotate(k, cos, sin).bfloat16(), v


def after_attention(x, attended, valid, eps, n_used, wo, norm, router, gate, up, down):
    """Rest of a layer. Returns x, the load-balancing loss, and the share of picks per expert.

    valid [N] is 0 at padding, which must not count as load.
    """
    x = x + linear(attended, wo).float()
    h = rms_norm(x, norm, eps)
    n_expert, n_ff, n_embd = gate.shape
    probs = F.softmax(F.linear(h, router), dim=-1)
    top, index = torch.topk(probs, n_used, dim=-1)
    top = top / top.sum(-1, keepdim=True)
    weights = torch.zeros_like(probs).scatter(-1, index, top)
    h = h.bfloat16()
    hidden = F.silu(linear(h, gate.reshape(-1, n_embd))) * linear(h, up.reshape(-1, n_embd))
    hidden = hidden.view(-1, n_expert, n_ff) * weights.bfloat16().unsqueeze(-1)
    out = linear(hidden.view(-1, n_expert * n_ff), down.permute(1, 0, 2).reshape(n_embd, -1))
    count = valid.sum()
    load = ((weights > 0).float() * valid.unsqueeze(-1)).sum(0) / (count * n_used)
    importance = (probs * valid.unsqueeze(-1)).sum(0) / count
    return x + out.float(), n_expert * (load * importance).sum(), load


def head_loss(x, targets, eps, norm, output):
    """Sum of the cross entropy over targets other than -1, and their number."""
    logits = linear(rms_norm(x, norm, eps), output).float()
    loss = F.cross_entropy(logits, targets, ignore_index=-1, reduction="sum")
    return loss, (targets >= 0).sum()


def head_argmax(x, eps, norm, output):
    return linear(rms_norm(x, norm, eps), output).float().argmax(-1)


def attend(q, k, v, segments):
    """Causal attention inside every row of every (rows, length) segment of the token axis."""
    out, at = [], 0
    groups = q.shape[1] // k.shape[1]
    for rows, length in segments:
        part = slice(at, at + rows * length)
        at += rows * length
        heads = [t[part].view(rows, length, t.shape[1], t.shape[2]).transpose(1, 2)
                 for t in (q, k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1))]
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        out.append(mixed.transpose(1, 2).reshape(rows * length, -1))
    return torch.cat(out)


class Model:
    def __init__(self, cfg, params, use_compile):
        self.cfg, self.params = cfg, params
        wrap = torch.compile if use_compile else lambda function: function
        self.before, self.after = wrap(before_attention), wrap(after_attention)
        self.loss = wrap(head_loss)
        self._angles = {}

    def angles(self, segments, device):
        """cos and sin [N, 1, head_dim / 2] of every token's position in its row."""
        if segments not in self._angles:
            half = self.cfg["head_dim"] // 2
            position = torch.cat([torch.arange(length).repeat(rows) for rows, length in segments])
            frequency = self.cfg["rope_base"] ** (-torch.arange(half).double() / half)
            angle = (position.double()[:, None] * frequency[None, :]).unsqueeze(1)
            self._angles[segments] = tuple(t.float().to(device) for t in (angle.cos(), angle.sin()))
        return self._angles[segments]

    def hidden(self, tokens, valid, segments, fast=True):
        """tokens [N] -> x [N, embd], mean load-balancing loss, loads [n_layer, n_expert]."""
        p, cfg = self.params, self.cfg
        before = self.before if fast else before_attention
        after = self.after if fast else after_attention
        cos, sin = self.angles(segments, tokens.device)
        x = F.embedding(tokens, p["token_embd.weight"])
        balance, loads = 0.0, []
        for i in range(cfg["n_layer"]):
            w = {name: p[f"blk.{i}.{name}.weight"] for name in (
                "attn_norm", "attn_q", "attn_k", "attn_v", "attn_q_norm", "attn_k_norm",
                "attn_output", "ffn_norm", "ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps",
                "ffn_down_exps")}
            q, k, v = before(x, cos, sin, cfg["rms_eps"], cfg["head_dim"], w["attn_norm"],
                             w["attn_q"], w["attn_k"], w["attn_v"], w["attn_q_norm"],
                             w["attn_k_norm"])
            x, layer_balance, load = after(
                x, attend(q, k, v, segments), valid, cfg["rms_eps"], cfg["n_expert_used"],
                w["attn_output"], w["ffn_norm"], w["ffn_gate_inp"], w["ffn_gate_exps"],
                w["ffn_up_exps"], w["ffn_down_exps"])
            balance = balance + layer_balance / cfg["n_layer"]
            loads.append(load.detach())
        return x, balance, torch.stack(loads)

    def train_loss(self, tokens, targets, valid, segments, balance_weight):
        x, balance, loads = self.hidden(tokens, valid, segments)
        loss, count = self.loss(x, targets, self.cfg["rms_eps"], self.params["output_norm.weight"],
                                self.params["output.weight"])
        mean = loss / count
        return mean + balance_weight * balance, mean.detach(), loads

    @torch.no_grad()
    def argmax(self, rows):
        """rows [B, T] of tokens -> the likeliest next token at every position, [B, T]."""
        tokens = rows.reshape(-1)
        valid = torch.ones(tokens.shape, device=tokens.device)
        x, _, loads = self.hidden(tokens, valid, (tuple(rows.shape),), fast=False)
        best = head_argmax(x, self.cfg["rms_eps"], self.params["output_norm.weight"],
                           self.params["output.weight"])
        return best.view(rows.shape), loads
