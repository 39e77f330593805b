#!/usr/bin/env python3
"""A worker whose GPU is lost is a lost worker: requests wait, and go on with the same tokens on a spare, on the same worker when
its GPU can be opened again, or on one that is started anew; else they end with an error that names the worker and the GPU.
Prints TAP.

usage: device.py SLUICE FAULTY_FOLDER DRIVER

FAULTY_FOLDER holds tests/support/faulty_cuda.c as libcuda.so.1, which brings the faults about in the DRIVER behind it: a real one,
or tests/support/fake_cuda.so, whose kernels do nothing. Tokens then follow from seeds and positions alone; that rows are computed
again as they were is what cluster.py shows. Skipped in a build without CUDA."""
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

import cluster

SHAPE = ["--layers", "4", "--vocab", "320", "-t", "Q8_0"]
N, TOKENS = 3, 60


class Devices:
    def __init__(self, t, faulty, driver):
        self.t, self.faulty, self.driver = t, faulty, driver

    def env(self, fault):
        path = os.environ.get("LD_LIBRARY_PATH", "")
        return dict(os.environ, LD_LIBRARY_PATH=self.faulty + (":" + path if path else ""), FAULTY_CUDA=fault,
                    FAULTY_CUDA_DRIVER=self.driver)

    def why_not(self):
        said = subprocess.run([self.t.sluice, "devices", "--json"], env=self.env(f"trap {self.t.path('never')}"), stdout=subprocess.PIPE,
                              check=True).stdout.decode()
        found = [d for d in json.loads(said)["devices"] if d["backend"] == "cuda"]
        return "" if found and found[0]["usable"] else found[0]["why_not"] if found else "there is no GPU"

    def worker(self, fault=None, at=None):
        return cluster.Worker(self.t, self.t.model, at or self.t.socket(), "--device", "cuda:0", "-t", "1", "--vram-reserve-mib", "8",
                              env=self.env(fault or f"trap {self.t.path('never')}"))

    def trigger(self):
        return self.t.path(f"trigger-{self.t.next()}")


class Watch:
    """What /health says while it does not say that all is well."""

    def __init__(self, server):
        self.server, self.said, self.over = server, [], threading.Event()
        self.thread = threading.Thread(target=self.look)
        self.thread.start()

    def look(self):
        while not self.over.is_set():
            code, health = self.server.health()
            if code != 200:
                self.said.append((code, str(health)))
            time.sleep(0.005)

    def end(self):
        self.over.set()
        self.thread.join()
        return self.said


def lose(server, path):
    """Begins clients, has the device fail, and watches /health from then on."""
    clients, answers = server.begin(N, TOKENS)
    watch = Watch(server)
    with open(path, "w", encoding="ascii"):
        pass
    return clients, answers, watch


def told(server, worker, said):
    """/health and the log name the worker and its device."""
    return any(code == 503 and worker.at in text and "cuda:0" in text for code, text in said) and re.search(
        rf"the worker at {re.escape(worker.at)} is lost: .*cuda:0.*requests wait for it", server.text())


def until(true):
    end = time.monotonic() + cluster.LONG
    while not true() and time.monotonic() < end:
        time.sleep(0.02)
    return bool(true())


def same_worker(t, d):
    path = d.trigger()
    w = d.worker(f"trap {path}")
    server = cluster.Server(t, w, options=["--worker-wait", "120"])
    alone = server.many(N, TOKENS)
    clients, answers, watch = lose(server, path)
    clients.join()
    said = watch.end()
    begun = "faulty_cuda: GPU 0: a kernel" in w.text()
    t.check("a worker's GPU is lost and works again: the answers are those without a loss", begun and answers == alone,
            f"{server.text()[-1500:]} {w.text()[-1500:]} {alone} {answers}")
    t.check("/health and the log named the worker and the device", told(server, w, said), f"{said[:3]} {server.text()[-1500:]}")
    t.check("the worker has loaded its layers anew, and has not ended", w.p.poll() is None and "are loaded anew" in w.text() and
            w.text().count("loaded after") == 2 and "still there" not in w.text(), w.text()[-1500:])
    return alone, [server, w]


def spare(t, d, alone):
    path = d.trigger()
    w, other = d.worker(f"gone {path}"), d.worker()
    server = cluster.Server(t, w, options=["--worker-wait", "120", "--spare", other.at])
    clients, answers, watch = lose(server, path)
    clients.join()
    said = watch.end()
    t.check("a worker's GPU is lost for good: a spare goes on with the same tokens", answers == alone and
            f"the spare at {other.at} has the place of {w.at}" in server.text(), f"{server.text()[-1500:]} {alone} {answers}")
    t.check("/health and the log named the worker and its device", told(server, w, said), f"{said[:3]} {server.text()[-1500:]}")
    def has_ended():
        """The coordinator may have tried it again before the spare, or not: then it finds out when somebody asks."""
        if w.p.poll() is None:
            t.score(t.model, ["--device", "cpu", "--workers", w.at, "--key-file", t.key])
        return w.p.poll() is not None

    ended = until(has_ended)
    t.check("the worker whose device cannot be used again ends and says so", ended and w.p.returncode == 1 and
            re.search(r"error +a device has failed and cannot be used again: .*", w.text()), w.text()[-1500:])
    return [server, other]


def started_anew(t, d, alone):
    """As systemd, Slurm and Kubernetes do."""
    path = d.trigger()
    w = d.worker(f"gone {path}")
    server = cluster.Server(t, w, options=["--worker-wait", "120"])
    clients, answers, watch = lose(server, path)
    until(lambda: w.p.poll() is not None)
    w = d.worker(at=w.at)
    clients.join()
    watch.end()
    t.check("one that is started anew goes on with the same tokens", answers == alone, f"{server.text()[-1500:]} {alone} {answers}")
    return [server, w]


def not_back(t, d, alone):
    path = d.trigger()
    w = d.worker(f"gone {path}")
    server = cluster.Server(t, w, options=["--worker-wait", "1"])
    clients, answers, watch = lose(server, path)
    clients.join()
    watch.end()
    errors = [str(a) for a in answers if a not in alone]
    t.check("without one, requests end with an error that names the worker and its device", errors and
            all("503" in e and w.at in e and "cuda:0" in e for e in errors[:N]), f"{answers} {server.text()[-1500:]}")
    code, health = server.health()
    t.check("and /health names it", code == 503 and w.at in str(health), f"{code} {health}")
    until(lambda: w.p.poll() is not None)
    w = d.worker(at=w.at)
    t.check("when it does come, all is well", until(lambda: server.health()[0] == 200) and server.many(N, TOKENS) == alone, server.text()[-1500:])
    return [server, w]


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory(prefix="sluice-device-") as folder:
        t = cluster.Tests(os.path.abspath(sys.argv[1]), None, folder)
        d = Devices(t, os.path.abspath(sys.argv[2]), os.path.abspath(sys.argv[3]))
        why = d.why_not()
        if why:
            print(f"1..0 # SKIP {why}")
            sys.exit(77)
        t.model = t.synth("device", SHAPE)
        alone, left = same_worker(t, d)
        for part in (spare, started_anew, not_back):
            codes = [x.end() for x in left]
            logs = "".join(x.text() for x in left)
            t.check("and those that are left end well", not any(codes) and not re.search(cluster.TROUBLE, logs), f"{codes} {logs[-1500:]}")
            left = part(t, d, alone)
        codes = [x.end() for x in left]
        t.check("and those that are left end well", not any(codes), f"{codes} {left[0].text()[-1500:]}")
        print(f"1..{t.n}")
    return 1 if t.failed else 0


if __name__ == "__main__":
    sys.exit(main())
