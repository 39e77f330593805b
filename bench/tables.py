#!/usr/bin/env python3
"""Tables resident against tables that are read by row: prefill and decode of one model, by turns.

    bench/tables.py MODEL.gguf [--turns 3] [--sluice build/release/sluice] [options of sluice bench]

Every turn runs `sluice bench` twice: tables resident, and streamed with a cache of 1 MiB. Tokens are random, so nearly no
row is found in it: text, and the cache that a plan has by default, find more. Ratios are of the turns' medians within this
run. For what the disk gives by itself, run build/release/bench/bench_rows on the same file as well."""
import argparse
import json
import statistics
import subprocess

WAYS = {"resident": ["--tables", "resident"], "streamed": ["--tables", "streamed", "--table-cache", "1MiB"]}


def measure(o, way):
    argv = [o.sluice, "bench", "-m", o.model, "--json", "-r", "1", *WAYS[way], *o.options]
    out = subprocess.run(argv, check=True, stdout=subprocess.PIPE).stdout
    return {t["test"]: t["avg_ts"] for t in json.loads(out)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--turns", type=int, default=3)
    p.add_argument("--sluice", default="build/release/sluice")
    o, o.options = p.parse_known_args()
    seen = {way: [] for way in WAYS}
    for turn in range(o.turns):
        for way in WAYS:
            seen[way].append(measure(o, way))
            print(f"turn {turn}, {way}: " + ", ".join(f"{t} {v:.2f}/s" for t, v in seen[way][-1].items()), flush=True)
    for test in seen["resident"][0]:
        median = {way: statistics.median(x[test] for x in seen[way]) for way in WAYS}
        print(f"{test}: " + ", ".join(f"{way} {v:.2f}/s ({median['resident'] / v:.3f} x the time)" for way, v in median.items()))


if __name__ == "__main__":
    main()
