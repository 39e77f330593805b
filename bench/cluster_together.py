#!/usr/bin/env python3
"""Faster together: a model larger than one machine's memory, over one, two and three machines. Here each machine is a process in a
memory cgroup of its own (page cache counted, no swap), with TLS over loopback between them. All of them share this computer's
CPUs and its disk.

usage: bench/cluster_together.py [--sluice FILE] [--model FILE] [--limit MIB] [--machines 1,2,3] [--rounds N] [--gen N] [--prompt N]
                                 [--threads N] [--resident N,N] [--prefix COMMAND] [--json FILE]

The model defaults to that of bench/vs_mmap.py: a synthetic qwen3moe of 4.8 GiB with uniform routing, written once to
build/bench/bench-5g.gguf. A round runs each number of machines once, with a cold page cache, and the figures are medians of rounds.
--threads (1) is what each process computes with: machines have CPUs of their own, so more machines compute a prompt faster as long as
this computer has a CPU for each; with one sequence they compute by turns in any case. --resident says how many machines are told to
have all experts resident, since they all fit (3). --prefix runs before each measured program, as
'chrt -f 10' where other work cannot be stopped. Needs root for the cgroups."""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile

from cgroup import MemoryCgroup, disk_of, drop_page_cache

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "cluster"))
import cluster  # noqa: E402

# (machines, decode at least, prefill at least): times one machine's.
BARS = {2: (2.0, 1.2), 3: (4.0, None)}


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--sluice", default=os.path.join(ROOT, "build/release/sluice"))
    p.add_argument("--model")
    p.add_argument("--limit", type=int, default=2048)
    p.add_argument("--machines", type=lambda s: [int(n) for n in s.split(",")], default=[1, 2, 3])
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--gen", type=int, default=48)
    p.add_argument("--prompt", type=int, default=512)
    p.add_argument("--batch", type=int, default=0, help="rows of a step at most; 0 = the program's own")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--resident", type=lambda s: [int(n) for n in s.split(",") if n], default=[3])
    p.add_argument("--prefix", type=shlex.split, default=[])
    p.add_argument("--json")
    return p.parse_args()


def measure(o, t, n):
    """A prompt and an answer over n machines: what bench says of both, and the most that each cgroup was charged."""
    groups = [MemoryCgroup(f"sluice-together-{i}", o.limit << 20) for i in range(n)]
    workers = []
    try:
        drop_page_cache(o.model)
        for g in groups[1:]:
            workers.append(cluster.Worker(t, o.model, "127.0.0.1:0", "--ram", f"{o.limit}MiB", "-t", str(o.threads), measures=True,
                                          within=[*o.prefix, *g.command([])]))
        argv = [o.sluice, "bench", "-m", o.model, "--device", "cpu", "-t", str(o.threads), "-p", str(o.prompt), "-n", str(o.gen), "-r", "1",
                "--heat-file", "off", "--json", "--ram", f"{o.limit}MiB"]
        if o.batch:
            argv += ["-b", str(o.batch)]
        if n in o.resident:
            argv += ["--experts", "resident"]
        if workers:
            argv += ["--workers", ",".join(w.at for w in workers), "--key-file", t.key]
        r = subprocess.run([*o.prefix, *groups[0].command(argv)], capture_output=True, text=True)
        if r.returncode:
            killed = f"killed for memory in {o.limit} MiB; " if r.returncode in (-9, 137) else ""
            sys.exit(f"{n} machines: {killed}{r.stderr[-800:]}")
        rows = {"decode" if row["n_gen"] else "prefill": row for row in json.loads(r.stdout)}
        return {**rows, "peaks_mib": [g.peak_bytes() >> 20 for g in groups]}
    finally:
        for w in workers:
            w.end()
        for g in groups:
            g.remove()


def main():
    o = options()
    if not MemoryCgroup.possible():
        sys.exit("no memory cgroup can be made here: this takes root and a writable hierarchy")
    o.sluice = os.path.abspath(o.sluice)
    if not o.model:
        o.model = os.path.join(ROOT, "build/bench/bench-5g.gguf")
        if not os.path.exists(o.model):
            os.makedirs(os.path.dirname(o.model), exist_ok=True)
            subprocess.run([o.sluice, "synth", "--preset", "bench-5g", "--skew", "0", "--locality", "0", "--stay", "0", "-o", o.model], check=True)
    o.model = os.path.abspath(o.model)
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        t = cluster.Tests(o.sluice, o.model, folder)
        for i in range(o.rounds):
            rounds.append({n: measure(o, t, n) for n in (o.machines if i % 2 == 0 else o.machines[::-1])})
            print(f"round {i + 1}: " + ", ".join(f"{n}: {r['prefill']['avg_ts']:.1f} and {r['decode']['avg_ts']:.2f} t/s" for n, r in
                                                sorted(rounds[-1].items())), file=sys.stderr, flush=True)
    if o.json:
        with open(o.json, "w", encoding="utf-8") as f:
            json.dump({"options": {k: v for k, v in vars(o).items() if k != "json"}, "rounds": rounds}, f, indent=1)
    first = o.machines[0]

    def median(n, kind, what):
        found = [r[n][kind][what] for r in rounds if what in r[n][kind]]
        return statistics.median(found) if found else None

    def ratio(n, kind):
        return statistics.median(r[n][kind]["avg_ts"] / r[first][kind]["avg_ts"] for r in rounds)

    def shown(x, form):
        return "–" if x is None else format(x, form)

    print(f"{os.path.getsize(o.model) / 2**30:.2f} GiB, {o.limit} MiB for each machine, {o.threads} compute thread(s) each on {os.cpu_count()} CPUs, "
          f"disk {disk_of(o.model)}; medians of {o.rounds} alternating rounds\n")
    print(f"| machines | prefill {o.prompt}, t/s | times {first} | bar | decode {o.gen}, t/s | times {first} | bar | hits of decode | disk, GB/s | charged at most, MiB |")
    print("|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for n in o.machines:
        decode, prefill = BARS.get(n, (None, None)) if first == 1 else (None, None)
        hits, disk = median(n, "decode", "expert_hit_share"), median(n, "decode", "disk_bytes_per_s")
        print(f"| {n} | {median(n, 'prefill', 'avg_ts'):.1f} | {ratio(n, 'prefill'):.2f} | {shown(prefill, '.1f')} | {median(n, 'decode', 'avg_ts'):.2f} | "
              f"{ratio(n, 'decode'):.2f} | {shown(decode, '.1f')} | {'all' if n in o.resident else shown(hits and 100 * hits, '.0f') + ' %'} | {shown(disk and disk * 1e-9, '.2f')} | "
              f"{max(max(r[n]['peaks_mib']) for r in rounds)} |")


if __name__ == "__main__":
    main()
