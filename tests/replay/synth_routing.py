#!/usr/bin/env python3
"""Do synthetic models route like a real one? Generates text with one, records its routes, replays them through
an LRU, and compares with Qwen3-30B-A3B: an LRU of 19 % of the experts hits 74 %, of 38 % hits 89 %, and 45 % of a
token's experts were used by the token before. Prints TAP.

usage: synth_routing.py SLUICE REPLAY"""
import os
import re
import subprocess
import sys
import tempfile

SHAPE = "--layers 12 --embd 512 --heads 8 --kv-heads 2 --experts 128 --top-k 8 --expert-ff 64 --vocab 8192"
SLACK = 4  # points: a small model of 2,500 tokens is not the large one


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sluice, replay = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="sluice-routing-") as tmp:
        model, trace = os.path.join(tmp, "model.gguf"), os.path.join(tmp, "trace")
        subprocess.run([sluice, "synth", "-q", "-o", model] + SHAPE.split(), check=True)
        subprocess.run([sluice, "run", model, "--raw", "-q", "-p", "the quick brown fox", "-n", "2500", "--temp", "1",
                        "--top-p", "1", "--seed", "3", "-c", "4096", "--record-routes", trace],
                       check=True, stdout=subprocess.DEVNULL)
        out = subprocess.run([replay, trace], check=False, stdout=subprocess.PIPE).stdout.decode()
    repeats = re.search(r"(\d+) % of a step's experts ran in the step before", out)
    rows = {}
    for line in out.splitlines():
        m = re.match(r"#\s+\d+\s+([\d.]+)%\s+([\d.]+)\s+([\d.]+)", line)
        if m:
            rows[float(m.group(1))] = float(m.group(3))
    if not repeats or not rows:
        print("not ok 1 - the replay printed no table")
        sys.exit(1)
    checks = [("experts used by the token before", float(repeats.group(1)), 45)]
    for share, want in ((19, 74), (38, 89)):
        nearest = min(rows, key=lambda s: abs(s - share))
        checks.append((f"LRU of {nearest:.0f} % of the experts", rows[nearest], want))
    print(f"1..{len(checks)}")
    bad = 0
    for i, (name, got, want) in enumerate(checks, 1):
        ok = abs(got - want) <= SLACK
        bad += not ok
        print(f"{'ok' if ok else 'not ok'} {i} - {name}: {got:.1f} %, the real model {want} %")
    sys.exit(1 if bad else 0)


main()
