#!/usr/bin/env python3
"""Decode and prefill speed of Sluice and llama.cpp on one model, alternating in one run.

usage: bench/vs_llama.py [--model FILE] [--rounds N] [--threads N] [--gen N] [--prompt N]
                         [--prefix COMMAND] [--json FILE]

The model defaults to a synthetic qwen3moe of 4.8 GiB (24 layers, 64 experts, top-8, Q4_K gate/up, Q6_K down,
uniform routing), written once to build/bench/bench-5g.gguf. Each round runs llama.cpp, then Sluice, each in a process of its own
with the whole model in RAM; figures are medians over the rounds. Decode starts from an empty context with random
tokens in both. The ceiling is the RAM bandwidth that `sluice bench` measures in the same run over the bytes of
weights that a token touches. Needs `make peer` (the npm package node-llama-cpp) and a quiet machine; --prefix runs before
each measured program, as 'chrt -r 5' where other work cannot be stopped."""
import json
import os
import shlex
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SLUICE = os.path.join(ROOT, "build/release/sluice")
PEER = os.path.join(ROOT, "build/peer/llama_peer")
GGML = os.path.join(ROOT, "tests/peer/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64")


def options():
    o = {"model": None, "rounds": 3, "threads": os.cpu_count(), "gen": 64, "prompt": 512, "json": None, "prefix": ""}
    args = sys.argv[1:]
    while args:
        name = args.pop(0).lstrip("-")
        if name not in o or not args:
            sys.exit(__doc__)
        o[name] = args.pop(0) if name in ("model", "json", "prefix") else int(args.pop(0))
    o["prefix"] = shlex.split(o["prefix"])
    return o


def llama(o):
    out = subprocess.run(o["prefix"] + [PEER, "bench", o["model"], str(o["threads"]), str(o["prompt"]), str(o["gen"]), "1", "1,8"],
                         env=dict(os.environ, GGML_DIR=GGML), stdout=subprocess.PIPE, check=True).stdout
    rows = {}
    for line in out.splitlines():
        r = json.loads(line)
        name = r["test"]
        rows["pp" if name.startswith("pp") else "tg8" if name.endswith("@8") else "tg1"] = r["tps"]
    return rows


def sluice(o):
    out = subprocess.run(o["prefix"] + [SLUICE, "bench", "-m", o["model"], "-t", str(o["threads"]), "-p", str(o["prompt"]),
                          "-n", str(o["gen"]), "-r", "1", "--parallel", "1,8", "--json"],
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    rows = {}
    for r in json.loads(out):
        key = "pp" if not r["n_gen"] else f"tg{r['n_parallel']}"
        rows[key] = r["avg_ts"]
        if "ram_ceiling_ts" in r:
            rows[key + "_ceiling"] = r["ram_ceiling_ts"]
    return rows


def main():
    o = options()
    if not o["model"]:
        o["model"] = os.path.join(ROOT, "build/bench/bench-5g.gguf")
        if not os.path.exists(o["model"]):
            os.makedirs(os.path.dirname(o["model"]), exist_ok=True)
            subprocess.run([SLUICE, "synth", "--preset", "bench-5g", "--skew", "0", "--locality", "0",
                            "--stay", "0", "-o", o["model"]], check=True)
    rounds = []
    for i in range(o["rounds"]):
        rounds.append((llama(o), sluice(o)))
        a, b = rounds[-1]
        print(f"round {i + 1}: llama.cpp {json.dumps(a)}  sluice {json.dumps(b)}", file=sys.stderr, flush=True)

    def med(side, key):
        return statistics.median(r[side][key] for r in rounds)

    print(f"| test ({o['threads']} threads) | llama.cpp t/s | sluice t/s | ratio | RAM ceiling t/s | sluice reaches |")
    print("|---|--:|--:|--:|--:|--:|")
    names = {"pp": f"prefill {o['prompt']}", "tg1": f"decode {o['gen']}, one sequence",
             "tg8": f"decode {o['gen']}, eight sequences"}
    for key, name in names.items():
        a, b = med(0, key), med(1, key)
        ratio = statistics.median(r[1][key] / r[0][key] for r in rounds)
        ceiling = med(1, key + "_ceiling") if key + "_ceiling" in rounds[0][1] else None
        print(f"| {name} | {a:.1f} | {b:.1f} | {ratio:.2f} | "
              + (f"{ceiling:.1f} | {100 * b / ceiling:.0f} % |" if ceiling else "| |"))
    print(f"\neight sequences against our one: {med(1, 'tg8') / med(1, 'tg1'):.2f}")
    if o["json"]:
        with open(o["json"], "w", encoding="utf-8") as f:
            json.dump([{"llama.cpp": a, "sluice": b} for a, b in rounds], f, indent=1)


main()
