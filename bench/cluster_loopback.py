#!/usr/bin/env python3
"""Two processes with a model's layers between them, over TLS on this machine's loopback, beside one process that has them all:
decode and prefill, in turns, each the best of its turns; what the hand-overs add to a token; and what a hand-over takes, by the
times in a trace: half of what a step's rows need there and back beyond its computing. All compute with one thread.
With one sequence the two processes work by turns, so decode should be the same but for the hand-overs; slices of a prompt
pass through both at once, so prefill may be up to twice as fast.

usage: cluster_loopback.py SLUICE [--turns N] [--model FILE] [--json]

Without --model it makes one of 0.7 GiB whose rows are 8 KiB. Needs two CPUs."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "cluster"))
import cluster  # noqa: E402

SHAPE = ["--layers", "8", "--embd", "2048", "--heads", "16", "--kv-heads", "4", "--head-dim", "128", "--experts", "32", "--top-k", "4",
         "--expert-ff", "768", "--ctx", "4096", "-t", "Q4_K"]
PROMPT, ANSWER, SLICE = 512, 64, 128


def measure(sluice, model, *where):
    """Tokens/s of a prompt and of an answer."""
    argv = [sluice, "bench", "-m", model, "-p", str(PROMPT), "-n", str(ANSWER), "-r", "1", "-b", str(SLICE), "--experts", "resident",
            "--heat-file", "off", "-t", "1", "--json", *where]
    rows = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    rate = {row["test"]: row["avg_ts"] for row in rows}
    return rate[f"pp{PROMPT}"], rate[f"tg{ANSWER}"]


def hops(sluice, model, folder, *where):
    """Microseconds of a hop, a token's rows and what goes with them: (the median, what one in twenty is above)."""
    path = os.path.join(folder, "trace.json")
    argv = [sluice, "bench", "-m", model, "-p", "0", "-n", str(4 * ANSWER), "-r", "1", "--experts", "resident", "--heat-file", "off", "-t", "1",
            "--trace", path, *where]
    subprocess.run(argv, capture_output=True, check=True)
    with open(path, encoding="utf-8") as f:
        events = json.load(f)["traceEvents"]
    took = sorted((e["args"]["to there, us"] + e["args"]["back, us"]) / 2 for e in events
                  if e["name"] == "step" and e["pid"] != 1 and e["args"]["rows"] == 1)
    return took[len(took) // 2], took[len(took) * 19 // 20]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("sluice")
    p.add_argument("--turns", type=int, default=5)
    p.add_argument("--model")
    p.add_argument("--split", default="4,4")
    p.add_argument("--json", action="store_true")
    a = p.parse_args()
    sluice = os.path.abspath(a.sluice)
    with tempfile.TemporaryDirectory() as folder:
        t = cluster.Tests(sluice, a.model, folder)
        model = os.path.abspath(a.model) if a.model else t.synth("halves", SHAPE)
        w = cluster.Worker(t, model, "127.0.0.1:0")
        turns = []
        for _ in range(a.turns):
            one = measure(sluice, model, "--device", "cpu")
            two = measure(sluice, model, "--device", "cpu", "--workers", w.at, "--key-file", t.key, "--split", a.split)
            turns.append((*one, *two))
        p50, p95 = hops(sluice, model, folder, "--device", "cpu", "--workers", w.at, "--key-file", t.key, "--split", a.split)
        w.end()
    p1, d1, p2, d2 = (max(column) for column in zip(*turns))
    result = {"one_process": {"prefill_ts": p1, "decode_ts": d1}, "two_processes": {"prefill_ts": p2, "decode_ts": d2},
              "prefill_ratio": p2 / p1, "decode_ratio": d2 / d1, "added_us_a_token": (1 / d2 - 1 / d1) * 1e6, "hop_us": {"p50": p50, "p95": p95}, "turns": turns}
    if a.json:
        print(json.dumps(result, indent=2))
        return
    print("|               | one process | two | ratio |\n|---|--:|--:|--:|")
    print(f"| prefill {PROMPT}, tokens/s | {p1:.1f} | {p2:.1f} | {p2 / p1:.3f} |")
    print(f"| decode, tokens/s | {d1:.2f} | {d2:.2f} | {d2 / d1:.3f} |")
    print(f"\nA token of two processes takes {result['added_us_a_token']:.0f} us more: two hand-overs.")
    print(f"A hop of one row: {p50:.0f} us in the median, one in twenty takes more than {p95:.0f}.")


if __name__ == "__main__":
    main()
