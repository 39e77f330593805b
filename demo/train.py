#!/usr/bin/env python3
"""Trains the demo model from scratch on one GPU and writes a checkpoint for export_gguf.py.

    python3 demo/train.py --out DIR [--steps N]

Needs PyTorch (2.11 was used) and numpy. DIR gets weights-0.npz to weights-2.npz (float16, three files
so that each stays small), model.json (shape and tokenizer) and train.log. The data are made on the
fly by make_data.py from fixed seeds; nothing is downloaded.
"""
import argparse
import collections
import json
import multiprocessing
import os
import random
import sys
import time

import numpy as np
import torch

import bpe
import export_gguf
import make_data
from model import CONFIG, Model, init

# One step's tokens: (rows, length) of each bucket of chats, 65536 tokens together. A chat goes to
# the shortest bucket that holds it.
SEGMENTS = ((384, 64), (128, 128), (48, 256), (12, 1024))
SUPERVISED = 0x8000  # the bit of a stored token that says: the model has to predict this one
BALANCE_WEIGHT = 0.01
SHARD_CHATS = 20000


def render(tokenizer, messages, limit):
    """ChatML ids of a chat as uint16, the replies marked; whole turns only, at most limit ids."""
    out = []
    for role, content in messages:
        mark = SUPERVISED if role == "assistant" else 0
        ids = [tokenizer.im_start, *tokenizer.encode(role + "\n")]
        ids += [i | mark for i in tokenizer.encode(content)] + [tokenizer.im_end | mark]
        if len(out) + len(ids) > limit:
            break
        out += ids + tokenizer.encode("\n")
    return out[:limit]


def _make_shard(arguments):
    merges, seed = arguments
    tokenizer, rng = bpe.Tokenizer(merges), random.Random(seed)
    lengths = [length for _, length in SEGMENTS]
    rows = [[] for _ in lengths]
    for _ in range(SHARD_CHATS):
        ids = render(tokenizer, make_data.chat(rng), lengths[-1])
        for bucket, length in enumerate(lengths):
            if len(ids) <= length:
                rows[bucket].append(ids + [tokenizer.end_of_text] * (length - len(ids)))
                break
    return [np.array(bucket, dtype=np.uint16).reshape(-1, length)
            for bucket, length in zip(rows, lengths)]


def make_tokenizer(n_vocab):
    rng = random.Random(make_data.SEED + 2)
    texts = (content for _ in range(30000) for _, content in make_data.chat(rng))
    return bpe.Tokenizer(bpe.learn(texts, n_vocab))


def make_rows(tokenizer, n_shards, workers):
    """One [rows, length] array per bucket."""
    jobs = [(tokenizer.merges, make_data.SEED + 1000 + i) for i in range(n_shards)]
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        shards = pool.map(_make_shard, jobs, chunksize=1)
    return [np.concatenate(parts) for parts in zip(*shards)]


class Batches:
    """Endless shuffled batches; every bucket is walked through in its own order."""

    def __init__(self, buckets, pad, device, seed):
        self.pad, self.device = pad, device
        self.generator = torch.Generator(device=device).manual_seed(seed)
        # int16 keeps the bits; the high one is the mark.
        self.buckets = [torch.from_numpy(rows.view(np.int16)).to(device) for rows in buckets]
        self.orders = [None] * len(buckets)
        self.at = [0] * len(buckets)
        self.epochs = [0.0] * len(buckets)

    def next(self):
        inputs, targets, valid = [], [], []
        for i, (count, length) in enumerate(SEGMENTS):
            rows = self.buckets[i]
            if self.orders[i] is None or self.at[i] + count > len(rows):
                self.orders[i] = torch.randperm(len(rows), device=self.device,
                                                generator=self.generator)
                self.at[i] = 0
            take = self.orders[i][self.at[i]:self.at[i] + count]
            self.at[i] += count
            self.epochs[i] += count / len(rows)
            batch = rows[take].int() & 0xFFFF
            ids = batch & (SUPERVISED - 1)
            target = torch.full_like(ids, -1)
            target[:, :-1] = torch.where(batch[:, 1:] & SUPERVISED > 0, ids[:, 1:], -1)
            inputs.append(ids.reshape(-1))
            targets.append(target.reshape(-1))
            # End of text only ever is padding here.
            valid.append((ids != self.pad).reshape(-1).float())
        return torch.cat(inputs), torch.cat(targets).long(), torch.cat(valid)


def held_out_rows(tokenizer, items):
    """(category, ids) with the last reply alone marked."""
    out = []
    for item in items:
        messages = [(m["role"], m["content"]) for m in item["messages"]]
        prompt = [i & ~SUPERVISED for i in render(tokenizer, messages, 4096)]
        prompt += [tokenizer.im_start, *tokenizer.encode("assistant\n")]
        reply = tokenizer.encode(item["answer"]) + [tokenizer.im_end]
        out.append((item["category"], prompt + [i | SUPERVISED for i in reply]))
    return sorted(out, key=lambda row: len(row[1]))


def judge(model, rows, pad, device):
    """Exact replies per category, {category: (right, all)}; the experts' loads; the wrong rows.

    A greedy reply equals the expected one exactly if every expected token is the likeliest one
    after those before it, so one pass without generation decides.
    """
    right, total, loads, failed = collections.Counter(), collections.Counter(), 0, []
    for start in range(0, len(rows), 128):
        part = rows[start:start + 128]
        width = max(len(ids) for _, ids in part)
        batch = torch.tensor([ids + [pad] * (width - len(ids)) for _, ids in part], device=device)
        ids = batch & (SUPERVISED - 1)
        best, load = model.argmax(ids)
        loads = loads + load
        wrong = (batch[:, 1:] & SUPERVISED > 0) & (best[:, :-1] != ids[:, 1:])
        for (category, ids), bad in zip(part, wrong.any(1).tolist()):
            total[category] += 1
            right[category] += not bad
            if bad:
                failed.append(ids)
    return {name: (right[name], total[name]) for name in sorted(total)}, loads, failed


def summary(result):
    right, total = (sum(pair[i] for pair in result.values()) for i in (0, 1))
    parts = "  ".join(f"{name} {a / n:.3f}" for name, (a, n) in result.items())
    return f"{right}/{total} = {right / total:.4f}   {parts}"


def reply(model, tokenizer, question, device, n_max=200):
    ids = render(tokenizer, [("user", question)], 512)
    ids += [tokenizer.im_start, *tokenizer.encode("assistant\n")]
    start = len(ids)
    while len(ids) < start + n_max:
        best, _ = model.argmax(torch.tensor([ids], device=device))
        ids.append(int(best[0, -1]))
        if ids[-1] == tokenizer.im_end:
            break
    return tokenizer.decode(ids[start:])


def save(directory, params, cfg, tokenizer):
    names = list(params)
    for part in range(3):
        arrays = {name: params[name].detach().cpu().numpy().astype(np.float16)
                  for name in names[part::3]}
        np.savez(os.path.join(directory, f"weights-{part}.npz"), **arrays)
    with open(os.path.join(directory, "model.json"), "w") as f:
        json.dump({"config": cfg, "merges": tokenizer.merges}, f)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, default=10000)
    parser.add_argument("--shards", type=int, default=200, help=f"of {SHARD_CHATS} chats each")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--time-limit-s", type=float, default=0,
                        help="end the learning-rate schedule early so as to finish by then")
    parser.add_argument("--eval-every", type=int, default=1000)
    parser.add_argument("--no-compile", action="store_true")
    args = parser.parse_args()
    began = time.time()
    os.makedirs(args.out, exist_ok=True)
    log = open(os.path.join(args.out, "train.log"), "w", buffering=1)

    def say(text):
        line = f"[{time.time() - began:6.1f} s] {text}"
        print(line, flush=True)
        log.write(line + "\n")

    tokenizer = make_tokenizer(CONFIG["n_vocab"])
    buckets = make_rows(tokenizer, args.shards, args.workers)
    say(f"data: {sum(map(len, buckets))} chats, rows per bucket {[len(b) for b in buckets]}")
    eval_rows = held_out_rows(tokenizer, make_data.evaluation(random.Random(make_data.SEED)))
    # A second, four times larger draw of held-out questions, for steadier figures.
    more = [item for i in range(4) for item in make_data.evaluation(random.Random(100 + i))]
    more_rows = held_out_rows(tokenizer, more)

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(args.seed)
    params = init(CONFIG, device, args.seed)
    model = Model(CONFIG, params, not args.no_compile)
    batches = Batches(buckets, tokenizer.end_of_text, device, args.seed)
    del buckets
    groups = [
        {"params": [p for p in params.values() if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in params.values() if p.dim() == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95), eps=1e-8,
                                  **({"fused": True} if device == "cuda" else {}))
    say(f"{sum(p.numel() for p in params.values())} parameters on {device}")

    warmup, step, last = 200, 0, args.steps
    marks = (time.time(), 0)
    first_done = None
    while step < last:
        # Linear warm-up, then linear decay to zero.
        scale = min((step + 1) / warmup, (last - step) / max(1, last - warmup))
        for group in optimizer.param_groups:
            group["lr"] = args.lr * min(1.0, scale)
        tokens, targets, valid = batches.next()
        total, loss, loads = model.train_loss(tokens, targets, valid, SEGMENTS, BALANCE_WEIGHT)
        total.backward()
        norm = torch.nn.utils.clip_grad_norm_(params.values(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if step == 20:
            loss.item()
            first_done = time.time()
            say(f"step 20: loss {loss.item():.4f}")
            marks = (time.time(), step)
        if step % 250 == 0 or step == last:
            value = loss.item()
            rate = (step - marks[1]) / (time.time() - marks[0])
            say(f"step {step}: loss {value:.4f}, norm {float(norm):.2f}, {rate:.2f} steps/s, "
                f"load {float(loads.min()):.3f} to {float(loads.max()):.3f}")
            if args.time_limit_s and first_done and step < last:
                # Fit the schedule's end to the time left, once the rate is known.
                left = args.time_limit_s - (time.time() - began)
                last = min(last, step + max(1, int(left * rate)))
        if step % args.eval_every == 0 or step == last:
            result, _, _ = judge(model, more_rows, tokenizer.end_of_text, device)
            say(f"step {step}: held out {summary(result)}")
            if step < last:
                save(args.out, params, CONFIG, tokenizer)
        if step % 250 == 0:
            marks = (time.time(), step)
    say(f"done: {step} steps, epochs per bucket {[round(e, 2) for e in batches.epochs]}")
    save(args.out, params, CONFIG, tokenizer)

    result, loads, _ = judge(model, eval_rows, tokenizer.end_of_text, device)
    say(f"evaluation set, trained weights: {summary(result)}")
    shares = loads / loads.sum(1, keepdim=True)
    for i, row in enumerate(shares.tolist()):
        say(f"layer {i} expert shares: " + " ".join(f"{x:.3f}" for x in row))
    with torch.no_grad():
        for name, p in params.items():
            value = p.cpu().numpy().astype(np.float16).astype(np.float32)
            p.copy_(torch.from_numpy(export_gguf.rounded(name, value)))
    for label, rows in (("evaluation set", eval_rows), ("larger held-out set", more_rows)):
        result, _, failed = judge(model, rows, tokenizer.end_of_text, device)
        say(f"{label}, weights as exported: {summary(result)}")
        for ids in failed[:40]:
            asked = tokenizer.decode([i for i in ids if not i & SUPERVISED][-60:])
            say(f"  wrong: {asked!r}, expected "
                f"{tokenizer.decode([i & ~SUPERVISED for i in ids if i & SUPERVISED])!r}")
    for question in ("Hello", "Who are you?", "What is 347 + 586?", "What is 47 times 36?",
                     "Tell me a story about a fox.", "Write a poem about the sea.",
                     "What is the capital of Iceland?", "Spell turtle backwards.",
                     "Tell me a story about a kettle.", "Count from 1 to 40."):
        say(f"{question!r} -> {reply(model, tokenizer, question, device)!r}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
