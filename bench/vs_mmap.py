#!/usr/bin/env python3
"""A model larger than memory: Sluice streaming its experts against llama.cpp and ik_llama.cpp by mmap.

usage: bench/vs_mmap.py [--model FILE] [--limit SIZE_MIB] [--rounds N] [--gen N] [--peer-gen N] [--prompt N]
                        [--threads N] [--ik LLAMA_BENCH] [--prefix COMMAND] [--only decode,prefill,resident] [--json FILE]

The model defaults to a synthetic qwen3moe of 4.8 GiB (24 layers, 64 experts, top-8, Q4_K gate/up, Q6_K down, uniform
routing: the case in which no cache helps more than its share), written once to build/bench/bench-5g.gguf.

decode    Each side in a memory cgroup of its own of --limit MiB (default 2048; page cache counted, no swap), the page
          cache dropped before, alternating, --rounds times. Sluice gets the limit itself as --ram. llama.cpp runs with
          its weight repacking off, since with it on it is killed. ik_llama.cpp takes part when --ik or the
          environment's IK_LLAMA_BENCH names its llama-bench.
prefill   Of the same Sluice runs: the time of a prompt against the longer of reading every expert that it touches once,
          at that run's disk bandwidth, and computing it with all experts resident.
resident  The whole model in RAM, no limit: streaming with a slot for every expert against plain resident, alternating.

--prefix runs before each measured program, as 'chrt -r 5' where other work cannot be stopped. Needs root for the
cgroups, and `make peer` for llama.cpp (the npm package node-llama-cpp)."""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys

from cgroup import MemoryCgroup, drop_page_cache

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SLUICE = os.path.join(ROOT, "build/release/sluice")
PEER = os.path.join(ROOT, "build/peer/llama_peer")
GGML = os.path.join(ROOT, "tests/peer/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64")


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model")
    p.add_argument("--limit", type=int, default=2048)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--gen", type=int, default=48)
    p.add_argument("--peer-gen", type=int, default=8)
    p.add_argument("--prompt", type=int, default=512)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--ik", default=os.environ.get("IK_LLAMA_BENCH"))
    p.add_argument("--prefix", type=shlex.split, default=[])
    p.add_argument("--only", default="decode,prefill,resident")
    p.add_argument("--json")
    return p.parse_args()


def say(text):
    print(text, file=sys.stderr, flush=True)


def limited(o, args, env=None):
    """Standard output of a program in a cgroup of the limit, with a cold page cache; None if it was killed."""
    drop_page_cache(o.model)
    group = MemoryCgroup("sluice-vs-mmap", o.limit << 20)
    try:
        r = subprocess.run(o.prefix + group.command(args), env=dict(os.environ, **(env or {})), stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True)
        peak = group.peak_bytes()
    finally:
        group.remove()
    if r.returncode != 0:
        say(f"{os.path.basename(args[0])} ended with {r.returncode} in {o.limit} MiB: {r.stderr.strip()[-300:]}")
        return None, peak
    return r.stdout, peak


def llama(o):
    out, _ = limited(o, [PEER, "bench", o.model, str(o.threads), "0", str(o.peer_gen), "1", "1"],
                     {"GGML_DIR": GGML, "LLAMA_REPACK": "0"})
    for line in (out or "").splitlines():
        return {"decode_ts": json.loads(line)["tps"]}
    return None


def ik(o):
    out, _ = limited(o, [o.ik, "-m", o.model, "-p", "0", "-n", str(o.peer_gen), "-r", "1", "-t", str(o.threads), "-o", "json"])
    return {"decode_ts": json.loads(out[out.index("["):])[0]["avg_ts"]} if out else None


def bench(o, *args):
    return [SLUICE, "bench", "-m", o.model, "-t", str(o.threads), "-p", str(o.prompt), "-n", str(o.gen), "-r", "1",
            "--heat-file", "off", "--json", *args]


def by_kind(text):
    rows = json.loads(text)
    return {"decode" if r["n_gen"] else "prefill": r for r in rows}


def sluice(o, compute_ts):
    args = ["--ram", f"{o.limit}MiB"] + (["--resident-prefill", f"{compute_ts:.3f}"] if compute_ts else [])
    out, peak = limited(o, bench(o, *args))
    return dict(by_kind(out), cgroup_peak_bytes=peak) if out else None


def resident(o, where):
    r = subprocess.run(o.prefix + bench(o, "--experts", where), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if r.returncode != 0:
        sys.exit(f"sluice bench --experts {where}: {r.stderr}")
    return by_kind(r.stdout)


def median(rows):
    return statistics.median(rows)


def streamed_against_resident(o, result):
    rounds = []
    for i in range(o.rounds + 2):
        order = ["resident", "streamed"] if i % 2 == 0 else ["streamed", "resident"]
        r = {where: resident(o, where) for where in order}
        rounds.append({f"{where}_{kind}_ts": r[where][kind]["avg_ts"] for where in r for kind in ("prefill", "decode")})
        say(f"all in RAM, round {i + 1}: {json.dumps(rounds[-1])}")
    result["all_in_ram"] = rounds
    print(f"\nThe whole model in RAM, medians of {len(rounds)} alternating rounds (bar: at most 2 % slower):\n")
    print("| test | plain resident t/s | streaming, a slot for every expert t/s | ratio of each round, median |")
    print("|---|--:|--:|--:|")
    for kind, name in (("prefill", f"prefill {o.prompt}"), ("decode", f"decode {o.gen}")):
        a, b = ([r[f"{w}_{kind}_ts"] for r in rounds] for w in ("resident", "streamed"))
        print(f"| {name} | {median(a):.2f} | {median(b):.2f} | {median([y / x for x, y in zip(a, b)]):.3f} |")


def against_mmap(o, result):
    compute_ts = None
    if "prefill" in o.only:
        compute_ts = resident(o, "resident")["prefill"]["avg_ts"]
        say(f"prefill {o.prompt} with all experts resident: {compute_ts:.1f} t/s")
    sides = {"llama.cpp": llama, "ik_llama.cpp": ik} if "decode" in o.only else {}
    if "llama.cpp" in sides and not os.path.exists(PEER):
        say("llama.cpp takes no part: `make peer` has not been run")
        del sides["llama.cpp"]
    if "ik_llama.cpp" in sides and not o.ik:
        say("ik_llama.cpp takes no part: neither --ik nor IK_LLAMA_BENCH names its llama-bench")
        del sides["ik_llama.cpp"]
    rounds = result["rounds"] = []
    for i in range(o.rounds):
        r = {name: run(o) for name, run in sides.items()}
        r["sluice"] = sluice(o, compute_ts)
        if not r["sluice"]:
            sys.exit("sluice did not finish")
        rounds.append(r)
        d = r["sluice"]["decode"]
        if "disk_bytes_per_s" not in d:
            sys.exit("too few experts have slots for the disk to be measured: raise --limit")
        say(f"round {i + 1}: " + ", ".join(f"{n} {r[n]['decode_ts']:.3f} t/s" for n in sides if r[n])
            + f", sluice {d['avg_ts']:.2f} t/s, causal {d['causal_ceiling_ts']:.2f}, "
              f"disk {d['disk_bytes_per_s'] * 1e-9:.2f} GB/s")
    mine = [r["sluice"]["decode"] for r in rounds]
    print(f"\n{o.limit} MiB for each, page cache counted, {o.threads} threads, medians of {o.rounds} alternating rounds:\n")
    print(f"| decode | t/s | sluice is faster by |\n|---|--:|--:|")
    for name in sides:
        done = [(r[name]["decode_ts"], r["sluice"]["decode"]["avg_ts"]) for r in rounds if r[name]]
        if done:
            print(f"| {name}, mmap | {median([a for a, _ in done]):.3f} | {median([b / a for a, b in done]):.1f} (bar 8, reach 20) |")
        else:
            print(f"| {name}, mmap | killed | |")
    print(f"| sluice | {median([d['avg_ts'] for d in mine]):.2f} | |")
    print("\n| sluice decode, each round | t/s | causal ceiling | reached (bar 85 %) | overlap ceiling | reached | disk GB/s | hits "
          "| read/needed bytes | calls per expert read |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for i, d in enumerate(mine):
        disk = d["disk_bytes_per_s"] * 1e-9
        print(f"| {i + 1} | {d['avg_ts']:.2f} | {d['causal_ceiling_ts']:.2f} | {100 * d['causal_ceiling_reached']:.0f} % | "
              f"{d['overlap_ceiling_ts']:.2f} | {100 * d['overlap_ceiling_reached']:.0f} % | {disk:.2f} | "
              f"{100 * d['expert_hit_share']:.0f} % | {d['read_amplification']:.3f} | {d['syscalls_per_expert']:.2f} |")
    if compute_ts:
        print(f"\n| prefill {o.prompt}, each round | s | reading all it touches s | reading what was not there s | computing, all "
              "resident s | over the longer (bar 1.15) |\n|---|--:|--:|--:|--:|--:|")
        for i, r in enumerate(rounds):
            p = r["sluice"]["prefill"]
            longer = max(p["read_touched_s"], p["compute_resident_s"])
            print(f"| {i + 1} | {p['prefill_s']:.2f} | {p['read_touched_s']:.2f} | {p['read_missing_s']:.2f} | "
                  f"{p['compute_resident_s']:.2f} | {p['prefill_s'] / longer:.2f} |")
    print(f"\nMost charged to sluice's cgroup: {max(r['sluice']['cgroup_peak_bytes'] for r in rounds) / 2**20:.0f} of {o.limit} MiB.")


def main():
    o = options()
    if not MemoryCgroup.possible():
        sys.exit("no memory cgroup can be made here: this takes root and a writable hierarchy")
    if not o.model:
        o.model = os.path.join(ROOT, "build/bench/bench-5g.gguf")
        if not os.path.exists(o.model):
            os.makedirs(os.path.dirname(o.model), exist_ok=True)
            subprocess.run([SLUICE, "synth", "--preset", "bench-5g", "--skew", "0", "--locality", "0", "--stay", "0", "-o",
                            o.model], check=True)
    result = {"options": {k: v for k, v in vars(o).items() if k != "json"}}
    try:
        if "decode" in o.only or "prefill" in o.only:
            against_mmap(o, result)
        if "resident" in o.only:
            streamed_against_resident(o, result)
    finally:
        if o.json:
            with open(o.json, "w", encoding="utf-8") as f:
                json.dump(result, f, indent=1)


main()
