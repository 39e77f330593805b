#!/usr/bin/env python3
"""Which of two programs is faster, on a machine whose own speed varies? They run at once but never together: one is
stopped while the other has its slice of time, so that both get the machine's good and bad moments alike.

usage: slices.py OLD NEW --work "ARGS" [--start "ARGS"] [--rounds 5] [--slice-ms 100] [--fifo] [--json]

--work is what both do, for a minute or so (`bench -m M -p 0 -n 1200 ...`); --start is the same with next to nothing to
do, whose time (loading) is taken off. A time is what a program ran, without the time it was stopped. --fifo runs them
before everything else on the machine (SCHED_FIFO, as root), so that other programs do not count. Each round also runs
OLD a second time, as one of three: how far its two times differ is what this measurement cannot tell.

Prints new/old, the ratio of speeds: above 1, NEW is faster. Both programs' memory must fit three times over."""
import argparse
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import time


def in_slices(commands, slice_s, fifo):
    """Seconds that each ran."""
    running, seconds = {}, [0.0] * len(commands)
    try:
        for i, c in enumerate(commands):
            # start_new_session: a group of its own, which signals reach whole.
            starter = [sys.executable, "-c", FIRST, "1" if fifo else "0", *c]
            running[i] = subprocess.Popen(starter, stdout=subprocess.DEVNULL, start_new_session=True)
            os.waitpid(running[i].pid, os.WUNTRACED)
        while running:
            for i, p in list(running.items()):
                t = time.monotonic()
                os.killpg(p.pid, signal.SIGCONT)
                try:
                    p.wait(slice_s)
                except subprocess.TimeoutExpired:
                    os.killpg(p.pid, signal.SIGSTOP)
                else:
                    del running[i]
                    if p.returncode:
                        sys.exit(f"exit status {p.returncode}: {shlex.join(commands[i])}")
                seconds[i] += time.monotonic() - t
    finally:
        for p in running.values():
            os.killpg(p.pid, signal.SIGKILL)
    return seconds


# Waits to be let go, then becomes the program.
FIRST = """import os, signal, sys
if sys.argv[1] == "1":
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(5))
os.kill(os.getpid(), signal.SIGSTOP)
os.execvp(sys.argv[2], sys.argv[2:])
"""


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("old")
    a.add_argument("new")
    a.add_argument("--work", required=True)
    a.add_argument("--start")
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--slice-ms", type=int, default=100)
    a.add_argument("--fifo", action="store_true")
    a.add_argument("--json", action="store_true")
    a = a.parse_args()
    if a.fifo:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    programs = [("old", a.old), ("new", a.new), ("old again", a.old)]
    ratios = {"new": [], "old again": []}
    for r in range(a.rounds):
        turn = programs[r % 3:] + programs[:r % 3]

        def seconds(args):
            return dict(zip([n for n, _ in turn],
                            in_slices([[p, *shlex.split(args)] for _, p in turn], a.slice_ms / 1000, a.fifo)))

        t = seconds(a.work)
        if a.start:
            start = statistics.mean(seconds(a.start).values())
            t = {n: s - start for n, s in t.items()}
        for n in ratios:
            ratios[n].append(t["old"] / t[n])
        if not a.json:
            print("  ".join(f"{n} {s:.2f} s" for n, s in sorted(t.items())),
                  f"  new/old {ratios['new'][-1]:.3f}, old again/old {ratios['old again'][-1]:.3f}", flush=True)
    result = {n: {"mean": statistics.mean(v), "median": statistics.median(v), "ratios": v} for n, v in ratios.items()}
    if a.json:
        print(json.dumps(result))
        return
    for n, v in result.items():
        print(f"{n}/old: mean {v['mean']:.3f}, median {v['median']:.3f}")


main()
