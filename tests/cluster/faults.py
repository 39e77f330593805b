#!/usr/bin/env python3
"""Faults by chance, one after the other, while clients read streams: a worker is killed, asked to end, or stopped; its link is
cut both ways, one way, or becomes slow; the coordinator is killed. Every answer is what one process gives, or an error that
names the worker; nothing hangs, and no process takes more and more memory.

usage: faults.py SLUICE MODEL [--runs N] [--seed N]

Then a disk that is full, or becomes so, where a worker keeps what it fetches; and both sides in memory cgroups of just their
budgets. Prints a line a run and a summary; exits with 1 where something was wrong."""
import argparse
import ctypes
import os
import random
import re
import signal
import socket
import sys
import tempfile
import threading
import time

import cluster

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "bench"))
from cgroup import MemoryCgroup  # noqa: E402

FAULTS = ["kill", "end", "stop", "cut", "cut there", "cut back", "slow", "kill coordinator"]
TOKENS = 200
CLIENTS = 4


class Relay:
    """Between coordinator and worker: passes bytes on, or not."""

    def __init__(self, folder, to):
        self.path = os.path.join(folder, f"relay-{id(self)}")
        self.at, self.to = "unix:" + self.path, to.removeprefix("unix:")
        self.there = self.back = True
        self.pause = 0.0
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(8)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            a, _ = self.listener.accept()
            b = socket.socket(socket.AF_UNIX)
            try:
                if not (self.there and self.back):
                    raise OSError("cut")
                b.connect(self.to)
            except OSError:
                a.close()
                b.close()
                continue
            threading.Thread(target=self.carry, args=(a, b, "there"), daemon=True).start()
            threading.Thread(target=self.carry, args=(b, a, "back"), daemon=True).start()

    def carry(self, a, b, way):
        """A cut swallows what comes, as a link does whose far end is gone."""
        try:
            while data := a.recv(65536):
                if self.pause:
                    time.sleep(self.pause)
                if getattr(self, way):
                    b.sendall(data)
        except OSError:
            pass
        for s in (a, b):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def heal(self):
        self.there = self.back = True
        self.pause = 0.0


def resident_mib(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1)) // 1024


def most_resident_mib(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        return int(re.search(r"VmHWM:\s+(\d+)", f.read()).group(1)) // 1024


class Soak:
    def __init__(self, t, seed):
        self.t, self.rng = t, random.Random(seed)
        server = cluster.Server(t)
        self.alone = server.many(CLIENTS, TOKENS)
        server.end()
        self.workers = [cluster.Worker(t, t.model, t.socket()) for _ in range(2)]
        self.relays = [Relay(t.folder, w.at) for w in self.workers]
        self.start()

    def start(self):
        self.server = cluster.Server(self.t, *self.relays, options=["--worker-wait", "60"])

    def fault(self, what, i):
        w, r = self.workers[i], self.relays[i]
        if what in ("kill", "end"):
            w.p.send_signal(signal.SIGKILL if what == "kill" else signal.SIGTERM)
            w.p.wait(cluster.LONG)
            time.sleep(self.rng.random())
            self.workers[i] = cluster.Worker(self.t, self.t.model, w.at)
        elif what == "stop":
            w.p.send_signal(signal.SIGSTOP)
            time.sleep(self.rng.random() * 8)
            w.p.send_signal(signal.SIGCONT)
        elif what.startswith("cut"):
            r.there = what == "cut back"
            r.back = what == "cut there"
            time.sleep(self.rng.random() * 8)
            r.heal()
        elif what == "slow":
            r.pause = 0.02
            time.sleep(self.rng.random() * 2)
            r.heal()
        else:
            self.server.p.kill()
            self.server.p.wait(cluster.LONG)

    def run(self, what):
        """What was wrong, or nothing."""
        answers = []
        clients = threading.Thread(target=lambda: answers.extend(self.server.many(CLIENTS, TOKENS)))
        clients.start()
        time.sleep(self.rng.random() * 0.3)
        self.fault(what, self.rng.randrange(2))
        clients.join(cluster.LONG)
        if clients.is_alive():
            return "clients hang"
        if what == "kill coordinator":
            self.start()
            answers = self.server.many(CLIENTS, TOKENS)
        wrong = [a for a, b in zip(answers, self.alone) if a != b and "is lost" not in str(a)]
        if wrong or len(answers) != len(self.alone):
            return f"wrong answers: {wrong} {self.server.text()[-800:]}"
        dead = [w.log for w in self.workers if w.p.poll() is not None]
        return f"{dead} ended" if dead or self.server.p.poll() is not None else ""


class SmallDisk:
    """A file system of so many MiB, seen by this process and its children alone."""

    def __init__(self, folder, mib):
        self.path = os.path.join(folder, f"disk-{mib}")
        os.mkdir(self.path)
        clone_newns = 0x00020000
        libc = ctypes.CDLL(None, use_errno=True)
        made = libc.unshare(clone_newns) == 0 and not os.system("mount --make-rprivate / 2>/dev/null")
        if not made or os.system(f"mount -t tmpfs -o size={mib}m none '{self.path}' 2>/dev/null"):
            raise OSError("a small file system cannot be mounted here")

    def used(self):
        s = os.statvfs(self.path)
        return (s.f_blocks - s.f_bfree) * s.f_frsize

    def fill(self):
        with open(os.path.join(self.path, "filler"), "wb", buffering=0) as f:
            try:
                while True:
                    f.write(bytes(1 << 20))
            except OSError:
                pass

    def clear(self):
        os.remove(os.path.join(self.path, "filler"))

    def remove(self):
        os.system(f"umount '{self.path}'")


def full_disk(t):
    """What was wrong, or nothing; None: it cannot be tried."""
    disks = []
    try:
        return fill_disks(t, disks)
    finally:
        for disk in disks:
            disk.remove()


def fill_disks(t, disks):
    model = t.synth("for a small disk", ["--layers", "8", "--experts", "16", "--expert-ff", "512", "--embd", "512"])
    alone = t.score(model, ["--device", "cpu"])
    part = os.path.getsize(model) >> 20  # of which the worker fetches about half
    try:
        for mib in (part // 4, part):
            disks.append(SmallDisk(t.folder, mib))
    except OSError:
        return None
    small, large = disks
    w = cluster.Worker(t, "cache:" + small.path, t.socket())
    r = t.score(model, ["--device", "cpu", "--workers", w.at, "--key-file", t.key])
    if w.end() or not re.search(r"the layers take .* are free there: give another --model-cache", str(r)):
        return f"a disk that is too small: {r} {w.text()[-800:]}"
    # Others fill it while the worker fetches.
    w = cluster.Worker(t, "cache:" + large.path, t.socket())
    slow, told = Relay(t.folder, w.at), []
    options = ["--device", "cpu", "--key-file", t.key, "--workers"]
    slow.pause = 0.02
    scoring = threading.Thread(target=lambda: told.append(t.score(model, [*options, slow.at])))
    scoring.start()
    until = time.monotonic() + cluster.LONG
    while large.used() < 5 << 20 and scoring.is_alive() and time.monotonic() < until:
        time.sleep(0.01)
    large.fill()
    scoring.join()
    if not re.search("No space left", str(told[0])) or w.p.poll() is not None:
        return f"a disk that becomes full: {told} {w.text()[-800:]}"
    large.clear()
    r = t.score(model, [*options, w.at])
    return "" if r == alone and w.end() == 0 else f"when there is room again: {str(r)[:800]} {w.text()[-800:]}"


def in_budget(t):
    """Streaming on both sides, each in a memory cgroup of its budget. What was wrong, or nothing; None: it cannot be tried."""
    if not MemoryCgroup.possible():
        return None
    model = t.synth("for a budget", ["--layers", "8", "--experts", "32", "--expert-ff", "512", "--embd", "512"])
    alone = t.score(model, ["--device", "cpu"])
    mib = t.least_mib() + 72
    here, there = (MemoryCgroup(f"sluice-cluster-{name}", mib << 20) for name in ("coordinator", "worker"))
    try:
        w = cluster.Worker(t, model, t.socket(), "--ram", f"{mib}MiB", within=there.command([]))
        options = ["--device", "cpu", "--workers", w.at, "--key-file", t.key, "--ram", f"{mib}MiB", "--experts", "streamed"]
        wrong = ""
        for _ in range(3):
            r = t.score(model, options, within=here.command([]))
            wrong = wrong or ("" if r == alone else f"{str(r)[:800]} {w.text()[-800:]}")
        most = most_resident_mib(w.p.pid) if w.p.poll() is None else 0
        kills = here.oom_kills() + there.oom_kills()
        if w.end() or kills or most > mib:
            wrong = wrong or f"{kills} killed for memory, {most} of {mib} MiB {w.text()[-800:]}"
        print(f"     worker {most} MiB resident at most, both in {mib} MiB of a model of {os.path.getsize(model) >> 20}", flush=True)
        return wrong
    finally:
        here.remove()
        there.remove()


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("sluice")
    p.add_argument("model")
    p.add_argument("--runs", type=int, default=40)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    failed, first, rss = 0, None, None
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(cluster.Tests(os.path.abspath(a.sluice), os.path.abspath(a.model), folder), a.seed)
        for i in range(a.runs):
            what = FAULTS[i % len(FAULTS)]
            start = time.monotonic()
            wrong = soak.run(what)
            failed += bool(wrong)
            pids = [soak.server.p.pid] + [w.p.pid for w in soak.workers]
            rss = [resident_mib(pid) for pid in pids] if not wrong else []
            first = first or rss
            print(f"{i + 1:4} {what:17} {time.monotonic() - start:6.1f} s {rss} MiB {wrong}", flush=True)
            if wrong and ("hang" in wrong or "ended" in wrong):
                break
        codes = [soak.server.end()] + [w.end() for w in soak.workers]
        logs = soak.server.text() + "".join(w.text() for w in soak.workers)
        bad = any(codes) or re.search(cluster.TROUBLE, logs)
        for name, part in (("full disk", full_disk), ("memory budgets", in_budget)):
            wrong = part(soak.t)
            failed += bool(wrong)
            print(f"     {name}: {'skipped: needs root, mounts and memory cgroups' if wrong is None else wrong or 'ok'}", flush=True)
        print(f"{a.runs} runs, {failed} wrong; ended with {codes}, memory {first} -> {rss} MiB")
    return 1 if failed or bad else 0


if __name__ == "__main__":
    sys.exit(main())
