#!/usr/bin/env python3
"""Two processes with a GPU each, over TLS on loopback and through a UNIX socket, beside one process with both: the same split of the layers.

usage: cluster_gpus.py SLUICE [--bits [--share-gpu]] [--only NAME] [--speed] [--rounds N] [--model FILE] [--split N,N] [--trace DIR]

--bits: small models of several architectures, eight sessions at once (in turn where prompts round by their cut): every token and
        log-probability is that of the one process; 10,240 tokens.
--speed: qwen3-30b-a3b's shape (written for it without --model; 18 GiB), all experts resident, in turns: one and four sequences of 128
        generated tokens, and a prompt of 2,048.
--share-gpu: --bits on a machine with one GPU, which both processes compute on, beside one process that has all layers there.
Without any, bits and speed. Needs two CUDA GPUs but for --share-gpu. Exit status 1: something failed, 77: there are too few."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "cluster"))
import cluster  # noqa: E402

MODELS = {
    "qwen3moe": ["--arch", "qwen3moe", "-t", "Q4_K", "--down", "Q6_K"],
    "gpt-oss": ["--arch", "gpt-oss", "-t", "MXFP4"],
    "qwen35moe": ["--arch", "qwen35moe", "-t", "Q4_K"],
    "deepseek2": ["--arch", "deepseek2", "-t", "Q8_0", "--shared-ff", "512"],
}
SHAPE = ["--layers", "8", "--experts", "16", "--top-k", "4", "--expert-ff", "512", "--embd", "512"]
SESSIONS, TOKENS = 8, 320
# A delta net's kernels for prompts round by where a prompt is cut, which depends on what else runs: its sessions take turns.
IN_TURN = {"qwen35moe"}


def answers(server, in_turn):
    out = [None] * SESSIONS

    def one(i):
        body = {"prompt": f"{'A river and a stone and a lamp. ' * (2 * i + 1)}Story {i}: ", "max_tokens": TOKENS, "seed": i, "temperature": 1,
                "ignore_eos": True, "logprobs": 3}
        code, found = server.get("/v1/completions", body)
        out[i] = found["choices"][0]["logprobs"] if code == 200 else f"{code}: {found}"

    threads = [threading.Thread(target=one, args=(i,)) for i in range(SESSIONS)]
    for t in threads:
        t.start()
        if in_turn:
            t.join()
    for t in threads:
        t.join()
    return out


def bits(t, only, share):
    second, one = ("cuda:0", ["cuda:0"]) if share else ("cuda:1", ["cuda:0,1", "--split", "4,4"])
    vram = ["--vram", "8GiB"] if share else []
    tokens = 0
    for name, options in MODELS.items():
        if only not in (None, name):
            continue
        t.model = t.synth(name, [*options, *SHAPE])
        serve = ["--parallel", str(SESSIONS), "-c", "1024", "--experts", "resident", *vram]
        server = cluster.Server(t, options=["--device", *one, *serve])
        whole = answers(server, name in IN_TURN)
        ended = [server.end()]
        w = cluster.Worker(t, t.model, "127.0.0.1:0", "--device", second, *vram)
        server = cluster.Server(t, w, options=["--device", "cuda:0", "--split", "4,4", *serve])
        halves = answers(server, name in IN_TURN)
        ended += [server.end(), w.end()]
        good = all(isinstance(a, dict) for a in whole) and whole == halves and not any(ended)
        if not good and all(isinstance(a, dict) for a in whole + halves):
            firsts = [next((i for i, pair in enumerate(zip(a["token_logprobs"], b["token_logprobs"])) if pair[0] != pair[1]), None)
                      for a, b in zip(whole, halves)]
            print(f"# {name}: the first token of each session whose log-probability is another: {firsts}", flush=True)
        tokens += sum(len(a["tokens"]) for a in halves if isinstance(a, dict)) if good else 0
        t.check(f"{name}: two processes, on cuda:0 and {second}, give the bits of one", good, f"{ended} {str(halves)[:600]} {server.text()[-800:]} {w.text()[-800:]}")
    t.check(f"{tokens} tokens were compared", tokens >= 10000 or only)


def measure(sluice, model, trace, *where):
    """Tokens/s: a prompt's, one sequence's, four sequences' together."""
    rate = []
    for asked in (["-p", "2048", "-n", "128"], ["-p", "0", "-n", "128", "--parallel", "4"]):
        argv = [sluice, "bench", "-m", model, "-r", "1", "--experts", "resident", "--heat-file", "off", "--json", *asked, *where]
        if trace:
            argv += ["--trace", f"{trace}-{len(rate)}.json"]
        r = subprocess.run(argv, capture_output=True, text=True, timeout=300)
        if r.returncode:
            raise RuntimeError(r.stderr[-1500:])
        rate += [row["avg_ts"] for row in json.loads(r.stdout)]
    return rate


def speed(t, o):
    model = o.model
    if not model:
        model = t.path("30b.gguf")
        subprocess.run([t.sluice, "synth", "--preset", "qwen3-30b-a3b", "-o", model, "-q"], check=True)
    workers = [cluster.Worker(t, model, at, "--device", "cuda:1", measures=True) for at in ("127.0.0.1:0", t.socket())]
    turns = []
    for i in range(o.rounds):
        turn = [measure(t.sluice, model, o.trace and f"{o.trace}/one", "--device", "cuda:0,1", "--split", o.split)]
        for way, w in zip(("two", "unix"), workers):
            turn.append(measure(t.sluice, model, o.trace and f"{o.trace}/{way}", "--device", "cuda:0", "--workers", w.at, "--key-file", t.key, "--split", o.split))
        turns.append(turn)
        print(f"# round {i + 1}: one process {turn[0]}, two {turn[1]}, through a UNIX socket {turn[2]}", flush=True)
    for w in workers:
        t.check("the worker ends well", w.end() == 0, w.text()[-1500:])
    print("| | one process | two, loopback | ratio (bar 0.95) | two, UNIX socket | ratio |\n|---|--:|--:|--:|--:|--:|")
    for i, name in enumerate(("prompt of 2,048, tokens/s", "one sequence", "four sequences together")):
        rates = [statistics.median(turn[side][i] for turn in turns) for side in range(3)]
        ratios = [statistics.median(turn[side][i] / turn[0][i] for turn in turns) for side in range(3)]
        print(f"| {name} | {rates[0]:.1f} | {rates[1]:.1f} | {ratios[1]:.3f} | {rates[2]:.1f} | {ratios[2]:.3f} |")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("sluice")
    p.add_argument("--bits", action="store_true")
    p.add_argument("--share-gpu", action="store_true")
    p.add_argument("--speed", action="store_true")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--only", help="of the small models this one")
    p.add_argument("--trace", metavar="DIR", help="with --speed: a trace of each side there")
    p.add_argument("--model")
    p.add_argument("--split", default="25,23")
    o = p.parse_args()
    sluice = os.path.abspath(o.sluice)
    found = json.loads(subprocess.run([sluice, "devices", "--json"], capture_output=True, text=True, check=True).stdout)
    last = "cuda:0" if o.share_gpu else "cuda:1"
    if last not in json.dumps(found):
        print(f"there is no {last}")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        t = cluster.Tests(sluice, o.model, folder)
        try:
            if o.bits or o.share_gpu or not o.speed:
                bits(t, o.only, o.share_gpu)
            if o.speed or not (o.bits or o.share_gpu):
                speed(t, o)
        except (RuntimeError, subprocess.SubprocessError, OSError) as e:
            t.check("the comparison", False, repr(e))
        print(f"1..{t.n}")
    return 1 if t.failed else 0


if __name__ == "__main__":
    sys.exit(main())
