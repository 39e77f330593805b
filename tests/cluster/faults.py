#!/usr/bin/env python3
"""Faults by chance, one after the other, while clients read streams: a worker is killed, asked to end, stopped, or gone for good;
its link is cut both ways, one way, or becomes slow; the coordinator is killed; a worker's disk becomes full while it fetches. Every
stream has the tokens of one process from its first to its last, or up to an error that names the worker and comes in time; nothing
hangs, and no process takes more and more memory. Where memory cgroups can be made, each process runs in one of just its budget.

usage: faults.py SLUICE MODEL [--runs N | --each N] [--only KIND,KIND] [--seed N]

--runs N makes so many in all, --each N so many of each kind. Then both sides stream in memory cgroups of just their budgets,
and a worker in one loads other plans.
Prints a line a run and a summary; exits with 1 where something was wrong."""
import argparse
import ctypes
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time

import cluster
import relay

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "bench"))
from cgroup import MemoryCgroup  # noqa: E402

FAULTS = ["kill", "end", "gone", "stop", "cut", "cut there", "cut back", "slow", "kill coordinator", "full disk"]
TOKENS = 200
CLIENTS = 4
# Running requests wait so long for a worker; that it is gone is noticed after five seconds at the latest.
WAIT_S = 10
NOTICED_S = 5
# What a machine with other work may add: loading layers, computing sessions again.
SLACK_S = 4 * cluster.LONG


class Relay(relay.Relay):
    """Between coordinator and worker: passes bytes on, or not."""

    def __init__(self, folder, to):
        path = os.path.join(folder, f"relay-{id(self)}")
        self.at = "unix:" + path
        self.heal()
        super().__init__(path, to.removeprefix("unix:"))

    def takes(self, a):
        if not (self.there and self.back):
            a.close()
        return self.there and self.back

    def pass_on(self, parts, way):
        """A cut swallows what comes, as a link does whose far end is gone."""
        for data in parts:
            if self.pause:
                time.sleep(self.pause)
            if getattr(self, way):
                yield data

    def heal(self):
        self.there = self.back = True
        self.pause = 0.0


def resident_mib(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1)) // 1024


def most_resident_mib(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        return int(re.search(r"VmHWM:\s+(\d+)", f.read()).group(1)) // 1024


def may_confine(t):
    """Sanitizers take memory that no plan knows of."""
    return not t.sanitized and MemoryCgroup.possible()


class Soak:
    """Two workers behind relays, and a coordinator with clients."""

    def __init__(self, t, seed):
        self.t, self.rng = t, random.Random(seed)
        server = cluster.Server(t)
        self.alone = self.ask(server)
        server.end()
        self.longest_s, self.n_errors = 0.0, 0
        self.groups, self.budget = [], []
        if may_confine(t):
            mib = t.least_mib() + 96
            self.budget = ["--ram", f"{mib}MiB"]
            self.groups = [MemoryCgroup(f"sluice-faults-{i}", mib << 20) for i in range(3)]
        self.workers = [self.worker(i, t.socket()) for i in range(2)]
        self.relays = [Relay(t.folder, w.at) for w in self.workers]
        self.start()

    def within(self, i):
        return self.groups[i].command([]) if self.groups else ()

    def worker(self, i, at):
        return cluster.Worker(self.t, self.t.model, at, *self.budget, within=self.within(i))

    def start(self):
        self.server = cluster.Server(self.t, *self.relays, options=["--worker-wait", str(WAIT_S), *self.budget], within=self.within(2))
        if self.server.p.poll() is not None:
            raise RuntimeError(f"the coordinator does not start: {self.server.text()[-800:]}")

    def ask(self, server):
        """Streams to all clients at once, and beside them vectors and log-probabilities: [(what came, error)]."""
        answers = [None] * (CLIENTS + 1)

        def one(i):
            answers[i] = server.stream(f"Story {i}: " + "a river and a stone " * (3 * i), TOKENS, i)

        def tell():
            try:
                answers[CLIENTS] = (server.told(), None)
            except (OSError, cluster.http.client.HTTPException) as e:  # the coordinator is gone
                answers[CLIENTS] = (None, f"no end: {e!r}")

        threads = [threading.Thread(target=one, args=(i,)) for i in range(CLIENTS)] + [threading.Thread(target=tell)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        return answers

    def fault(self, what, i):
        w, r = self.workers[i], self.relays[i]
        if what in ("kill", "end", "gone"):
            w.p.send_signal(signal.SIGTERM if what == "end" else signal.SIGKILL)
            w.p.wait(cluster.LONG)
            if what != "gone":  # else it comes back when the clients have heard
                time.sleep(self.rng.random())
                self.workers[i] = self.worker(i, w.at)
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

    def wrong_of(self, what, answers):
        """What is wrong with answers: each is the whole, or a beginning of it and an error that names who is lost."""
        def may_be(error):
            # One that comes while the worker is away is refused with what the last try to reach it said.
            return "is lost" in str(error) or "peer_lost" in str(error) or (error and what == "kill coordinator")

        for (got, error), (whole, _) in zip(answers, self.alone):
            if not error and got == whole:
                continue
            self.n_errors += 1
            if isinstance(whole, str):
                good = whole.startswith(got) and may_be(error)
            else:
                good = got is None and may_be(error) or got and all(g == w or may_be(g) for g, w in zip(got, whole))
            if not good:
                return f"wrong: {str(got)[:600]} {error!r}, not {str(whole)[:600]}; {self.server.text()[-800:]}"
        return ""

    def run(self, what):
        """What was wrong, or nothing."""
        answers = []
        clients = threading.Thread(target=lambda: answers.extend(self.ask(self.server)))
        clients.start()
        time.sleep(self.rng.random() * 0.3)
        began, i = time.monotonic(), self.rng.randrange(2)
        self.fault(what, i)
        clients.join(SLACK_S)
        took = time.monotonic() - began
        if clients.is_alive():
            return "clients hang"
        self.longest_s = max(self.longest_s, took)
        wrong = self.wrong_of(what, answers)
        if took > 8 + NOTICED_S + WAIT_S + SLACK_S:
            wrong = wrong or f"an end after {took:.0f} s"
        if what == "gone":
            self.workers[i] = self.worker(i, self.workers[i].at)
        if what == "kill coordinator":
            self.start()
        until = time.monotonic() + cluster.LONG
        while self.server.health()[0] != 200 and self.server.p.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        if what in ("kill coordinator", "gone") and not wrong:
            again = self.ask(self.server)
            wrong = "" if again == self.alone else f"wrong afterwards: {again} {self.server.text()[-800:]}"
        dead = [p for p in [self.server] + self.workers if p.p.poll() is not None]
        return wrong or "; ".join(f"ended with {p.p.returncode}: {p.text()[-800:]}" for p in dead)

    def memory(self):
        """MiB resident now of coordinator and workers."""
        return [resident_mib(p) for p in [self.server.p.pid] + [w.p.pid for w in self.workers]]

    def end(self):
        """What was wrong at the end, or nothing."""
        codes = [self.server.end()] + [w.end() for w in self.workers]
        logs = self.server.text() + "".join(w.text() for w in self.workers)
        kills = sum(g.oom_kills() for g in self.groups)
        for g in self.groups:
            g.remove()
        trouble = re.search(cluster.TROUBLE, logs)
        return "" if not any(codes) and not kills and not trouble else f"ended with {codes}, {kills} killed for memory {logs[-800:]}"


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

    def size(self):
        s = os.statvfs(self.path)
        return s.f_blocks * s.f_frsize

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


class FullDisks:
    """A disk that becomes full at some moment while a worker fetches its layers."""

    def __init__(self, t, seed):
        self.t, self.rng = t, random.Random(seed)
        self.model = t.synth("for a small disk", ["--layers", "8", "--experts", "16", "--expert-ff", "512", "--embd", "512"])
        self.alone = t.score(self.model, ["--device", "cpu"])
        self.disks, part = [], os.path.getsize(self.model) >> 20  # of which the worker fetches about half
        self.options = ["--device", "cpu", "--key-file", t.key, "--workers"]
        self.n_full = 0
        try:
            for mib in (part // 4, part):
                self.disks.append(SmallDisk(t.folder, mib))
        except OSError:
            self.end()
            raise

    def too_small(self):
        w = cluster.Worker(self.t, "cache:" + self.disks[0].path, self.t.socket())
        r = self.t.score(self.model, [*self.options, w.at])
        good = w.end() == 0 and re.search(r"the layers take .* are free there: give another --model-cache", str(r))
        return "" if good else f"a disk that is too small: {r} {w.text()[-800:]}"

    def run(self, what):
        """Others fill it: the start is refused and says so, or everything was there. With room again it goes on."""
        disk = self.disks[1]
        for name in os.listdir(disk.path):
            shutil.rmtree(os.path.join(disk.path, name))
        w = cluster.Worker(self.t, "cache:" + disk.path, self.t.socket())
        try:
            return self.fill_while(w, disk)
        finally:
            w.end()  # in any case: what it has open of removed files takes room

    def fill_while(self, w, disk):
        slow, told = Relay(self.t.folder, w.at), []
        slow.pause = 0.005
        scoring = threading.Thread(target=lambda: told.append(self.t.score(self.model, [*self.options, slow.at])))
        scoring.start()
        fill_at = self.rng.random() * disk.size() * 0.5
        until = time.monotonic() + cluster.LONG
        while disk.used() < fill_at and scoring.is_alive() and time.monotonic() < until:
            time.sleep(0.002)
        disk.fill()
        scoring.join()
        disk.clear()
        full = re.search("No space left|are free there", str(told[0]))
        self.n_full += bool(full)
        if (not full and told[0] != self.alone) or w.p.poll() is not None:
            return f"a disk that becomes full: {told} {w.text()[-800:]}"
        r = "is lost: "
        while "is lost: " in str(r) and time.monotonic() < until:  # of a machine with other work
            r = self.t.score(self.model, [*self.options, w.at])
        return "" if r == self.alone and w.end() == 0 else f"when there is room again: {str(r)[:800]} {w.text()[-800:]}"

    def end(self):
        for disk in self.disks:
            disk.remove()


def in_budget(t):
    """Streaming on both sides, each in a memory cgroup of its budget. What was wrong, or nothing; None: it cannot be tried."""
    if not may_confine(t):
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


def soak(t, kinds, runs, seed):
    """Runs faults of these kinds in turn: how many were wrong."""
    failed, first, last = 0, None, None
    s = Soak(t, seed)
    for i in range(runs):
        what = kinds[i % len(kinds)]
        start = time.monotonic()
        wrong = s.run(what)
        failed += bool(wrong)
        if not wrong:
            last = s.memory()
            first = first or last
        print(f"{i + 1:4} {what:17} {time.monotonic() - start:6.1f} s {last} MiB {wrong}", flush=True)
        if wrong and ("hang" in wrong or "ended" in wrong):
            break
    wrong = s.end()
    print(f"{runs} runs of {', '.join(kinds)}: {failed} wrong; {s.n_errors} streams ended with the error that they may, the last "
          f"{s.longest_s:.1f} s after its fault; memory {first} -> {last} MiB{f' of {s.budget[1]} each' if s.budget else ''} {wrong}", flush=True)
    return failed + bool(wrong)


def full_disks(t, runs, seed):
    """The same of disks; None: they cannot be mounted here."""
    try:
        disks = FullDisks(t, seed)
    except OSError:
        print("     full disk: skipped: needs root and mounts", flush=True)
        return 0
    failed = 0
    try:
        for i in range(runs + 1):
            wrong = disks.run("full disk") if i else disks.too_small()
            failed += bool(wrong)
            print(f"{i:4} {'full disk' if i else 'too small a disk':17} {wrong}", flush=True)
        print(f"{runs} runs of full disk: {failed} wrong; {disks.n_full} starts were refused", flush=True)
    finally:
        disks.end()
    return failed


def other_plans(t):
    """Each coordinator brings another plan, so that a worker frees its slots and fills new ones, in a memory cgroup of its budget. The
    slots are much more than what is left beside them: both at once are too much. What was wrong, or nothing; None: it cannot be tried."""
    if not may_confine(t):
        return None
    model = t.synth("for other plans", ["--layers", "8", "--experts", "32", "--top-k", "4", "--embd", "1024", "--expert-ff", "1408", "-t", "Q8_0"])
    mib = t.least_mib() + 590
    there = MemoryCgroup("sluice-cluster-plans", mib << 20)
    try:
        w = cluster.Worker(t, model, t.socket(), "--ram", f"{mib}MiB", within=there.command([]))
        answers = [t.score(model, ["--device", "cpu", "--workers", w.at, "--key-file", t.key, "--experts", "streamed", "--split", "0,auto", "-b", b])
                   for b in ("64", "96", "48")]
        n_loads = len(re.findall("loaded after", w.text()))
        alive, most, kills = w.p.poll() is None, there.peak_bytes() >> 20, there.oom_kills()
        good = w.end() == 0 and alive and not kills and n_loads == 3 and isinstance(answers[0], bytes) and answers.count(answers[0]) == 3
        print(f"     {n_loads} loads, {most} of {mib} MiB charged at most, of a model of {os.path.getsize(model) >> 20}", flush=True)
        return "" if good else f"{kills} killed for memory {[a[-200:] for a in answers if isinstance(a, str)]} {w.text()[-800:]}"
    finally:
        there.remove()
        os.remove(model)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("sluice")
    p.add_argument("model")
    p.add_argument("--runs", type=int, default=40)
    p.add_argument("--each", type=int)
    p.add_argument("--only", default=",".join(FAULTS))
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    kinds = a.only.split(",")
    if set(kinds) - set(FAULTS):
        sys.exit(f"faults are: {', '.join(FAULTS)}")
    streams = [k for k in kinds if k != "full disk"]
    with tempfile.TemporaryDirectory() as folder:
        t = cluster.Tests(os.path.abspath(a.sluice), os.path.abspath(a.model), folder)
        n = a.each or -(-a.runs // len(kinds))
        failed = soak(t, streams, n * len(streams), a.seed) if streams else 0
        if "full disk" in kinds:
            failed += full_disks(t, n, a.seed)
        if len(kinds) == len(FAULTS):
            wrong = in_budget(t)
            failed += bool(wrong)
            print(f"     memory budgets: {'skipped: needs root and memory cgroups, and no sanitizer' if wrong is None else wrong or 'ok'}")
            wrong = other_plans(t)
            failed += bool(wrong)
            print(f"     other plans, one after the other: {'skipped: likewise' if wrong is None else wrong or 'ok'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
