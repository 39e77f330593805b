#!/usr/bin/env python3
"""Who is refused, by name, at both ends: the coordinator's error and the worker's log both say what is wrong and what would do.
Prints TAP.

usage: refusals.py SLUICE MODEL [--only PART]"""
import argparse
import json
import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

import cluster
import hostile
from hostile import HEAD, TYPE, frame, frames_of, hello, load, stage, wait_until


def read_text(payload, at):
    n = struct.unpack_from("<I", payload, at)[0]
    return payload[at + 4:at + 4 + n].decode()


def refusal(data):
    """What the REFUSE among these frames says; None: there is none."""
    said = [read_text(payload, 4) for kind, _, payload in frames_of(data) if kind == TYPE["REFUSE"]]
    return said[0] if said else None


def read_to_end(s):
    data = b""
    s.settimeout(cluster.LONG)
    try:
        while part := s.recv(65536):
            data += part
    except OSError:
        pass
    return data


BUSY = "serves another coordinator"


class Refusals:
    def __init__(self, t):
        self.t = t
        self.version = hostile.version_of(t.sluice)

    def when_free(self, worker, ask, said):
        """(what ask() gives, where the worker's log was before): asked again while the worker has not yet left who was there before."""
        until = time.monotonic() + cluster.LONG
        while True:
            had = len(worker.text())
            got = ask()
            if BUSY not in said(got) or time.monotonic() > until:
                return got, had
            time.sleep(0.05)

    def run(self, worker, options, model=None, key=True):
        keyed = ["--key-file", self.t.key] if key is True else ["--key-file", key] if key else ["--plain"]
        argv = [self.t.sluice, "run", "-m", model or self.t.model, "-p", "hi", "-n", "2", "-q", "--device", "cpu", "-t", "1"]
        return subprocess.run([*argv, "--workers", worker.at, *keyed, *options], capture_output=True, text=True, timeout=cluster.LONG)

    def refused(self, name, worker, here, there, options=(), **how):
        """A coordinator is refused, or refuses: what its error says, and what the worker's log does."""
        r, had = self.when_free(worker, lambda: self.run(worker, options, **how), lambda r: "" if BUSY in here else r.stderr)
        said = wait_until(lambda: all(re.search(p, worker.text()[had:]) for p in there))
        lines = worker.text()[had:].splitlines()
        good = r.returncode == 1 and all(re.search(p, r.stderr) for p in here) and said and len(lines) == 1 and worker.p.poll() is None
        self.t.check(name, good and not re.search(cluster.TROUBLE, r.stderr), f"{r.returncode}: {r.stderr[-1200:]}\nworker: {lines}")
        return r.stderr

    def end(self, *workers):
        codes = [w.end() for w in workers]
        logs = "".join(w.text() for w in workers)
        self.t.check("and all end well", not any(codes) and not re.search(cluster.TROUBLE, logs), f"{codes} {logs[-1500:]}")

    # ---- what is another's ----

    def models(self):
        t = self.t
        other, changed = t.synth("another model", ["--layers", "3"]), t.path("changed.gguf")
        with open(t.model, "rb") as f, open(changed, "wb") as g:
            data = bytearray(f.read())
            data[len(data) // 17 * 9 + 100] ^= 1
            g.write(data)
        own = re.escape(os.path.basename(t.model))
        w, v = cluster.Worker(t, other, t.socket()), cluster.Worker(t, changed, t.socket())
        names = ["another model", r"another-model\.gguf", own]
        self.refused("another model: both files are named at both ends", w, names, names)
        names[1] = r"changed\.gguf"
        self.refused("the same shape with other weights: likewise", v, names, names)
        self.end(w, v)

    def keys(self):
        t = self.t
        w, v = cluster.Worker(t, t.model, t.socket()), cluster.Worker(t, t.model, t.socket(), key=False)
        another = [re.escape(w.at) + ".*another key"]
        self.refused("another key: both ends say so", w, another, ["refused: .*another key"], key=t.new_key("key2"))
        w.end()
        w = cluster.Worker(t, t.model, t.socket())
        self.refused("no encryption where it is asked for", w, [re.escape(w.at) + ".*(no frame|closed|lost)"], ["refused: .*another key"], key=None)
        self.refused("encryption where there is none", v, [re.escape(v.at) + ".*another key"], ["no frame"])
        self.end(w, v)
        none = cluster.Worker(t, t.model, t.socket())
        alone = [("no key", [none.at], "sluice keygen"), ("plain text over a network", ["192.0.2.1:7070", "--plain"], "not on this machine"),
                 ("no address", ["here", "--key-file", t.key], "HOST:PORT"),
                 ("a key that others may read", [none.at, "--key-file", t.new_key("key3", 0o644)], "chmod 600")]
        for name, workers, pattern in alone:
            argv = [t.sluice, "run", "-m", t.model, "-p", "hi", "-n", "2", "-q", "--device", "cpu", "--workers", *workers]
            r = subprocess.run(argv, capture_output=True, text=True, timeout=cluster.LONG)
            t.check(f"{name}, before anybody is asked", r.returncode == 1 and re.search(pattern, r.stderr), f"{r.returncode}: {r.stderr[-800:]}")
        self.end(none)

    # ---- versions ----

    def versions(self):
        """Whoever has another version here is this program's peer in a few frames: there is one version at hand."""
        t, own = self.t, re.escape(self.version)
        w = cluster.Worker(t, t.model, t.socket(), key=False)
        for what, pattern in (({"program": "99.1"}, rf"version 99\.1 \(messages \d\), and the worker is {own} \(messages \d\): install the same on both"),
                              ({"messages": 7}, rf"version {own} \(messages 7\), and the worker is {own} \(messages \d\): install the same on both")):
            data = frame("HELLO", hello(**{"program": self.version, **what}))
            said, had = self.when_free(w, lambda: self.tell(w, data), lambda s: s or "")
            logged = wait_until(lambda: re.search(pattern, w.text()[had:]))
            t.check(f"a coordinator with another version ({', '.join(what)}): a worker names both, to it and in the log", re.search(pattern, said or "") and logged,
                    f"{said} {w.text()[had:]}")
            got, error = self.answer(frame("HELLO", hello(**{"program": self.version, "role": 2, **what})))
            pattern = pattern.replace("the worker is", "the coordinator is")
            t.check("a worker with it: so does a coordinator, with the worker's address", re.search(pattern, error) and "false-worker" in error and
                    re.search(pattern, refusal(got) or ""), f"{error} {refusal(got)}")
        _, had = self.when_free(w, lambda: self.tell(w, frame("HELLO", hello(self.version), version=7)), lambda s: s or "")
        pattern = "a frame of version 7: this program reads version 1"
        logged = wait_until(lambda: re.search(pattern, w.text()[had:]))
        _, error = self.answer(frame("HELLO", hello(self.version, role=2), version=7))
        t.check("other frames: each end names the version that came and its own", logged and re.search(pattern, error) and "false-worker" in error,
                f"{error} {w.text()[had:]}")
        self.end(w)

    def tell(self, w, data):
        """Sends frames to a worker without encryption: what it refuses them with."""
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(w.at.removeprefix("unix:"))
            s.sendall(data)
            return refusal(read_to_end(s))

    def answer(self, data):
        """A worker without encryption that says this to a coordinator: (what came, the coordinator's error)."""
        path, got = self.t.path(f"false-worker-{self.t.next()}"), []
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(1)
            listener.settimeout(cluster.LONG)

            def serve():
                try:
                    s, _ = listener.accept()
                except OSError:  # nobody has come
                    return
                with s:
                    s.sendall(data)
                    got.append(read_to_end(s))

            serving = threading.Thread(target=serve)
            serving.start()
            argv = [self.t.sluice, "run", "-m", self.t.model, "-p", "hi", "-q", "--device", "cpu", "-t", "1", "--workers", "unix:" + path, "--plain", "--worker-wait", "1"]
            r = subprocess.run(argv, capture_output=True, text=True, timeout=cluster.LONG)
            if not got:  # it has not got as far as that, or has
                wait_until(lambda: got or not serving.is_alive())
            listener.shutdown(socket.SHUT_RDWR)
            serving.join()
        return got[0] if got else b"", r.stderr

    # ---- what does not go together ----

    def splits(self):
        t = self.t
        layers = hostile.layers_of(t.sluice, t.model)
        w = cluster.Worker(t, t.model, t.socket())
        for split, pattern in (("1,1", f"--split 1,1 is of 2 layers, and the model has {layers}"), (f"1,{layers - 2},1", "for 3 devices, and 2 are"),
                               (f"{layers + 1}", "--split"), (f"0,{layers - 1}", f"the model has {layers}")):
            self.refused(f"--split {split} at both ends", w, [pattern], [pattern], ["--split", split])
        self.end(w)

    def kv_types(self):
        t = self.t
        odd = t.synth("odd heads", ["--layers", "4", "--head-dim", "48"])
        w = cluster.Worker(t, odd, t.socket())
        pattern = [r"KV type Q8_0 needs rows of whole blocks of 32 elements, the keys and values of this model have 48 and 48: use KV type f16"]
        self.refused("a KV type that the model's heads cannot have, at both ends", w, pattern, pattern, ["--kv-type", "q8_0"], model=odd)
        r, _ = self.when_free(w, lambda: self.run(w, ["--kv-type", "f16"], model=odd), lambda r: r.stderr)
        t.check("with the one that is named it runs", r.returncode == 0, r.stderr)
        self.end(w)

    def asked(self, w, content, layers, pattern, name, **what):
        """A LOAD that a coordinator of ours would not send: the worker says what of it cannot be, to the other side and to its log."""
        data = frame("HELLO", hello(self.version)) + frame("LOAD", load(content, [stage()], n_layer=layers, **what), number=2)
        said, had = self.when_free(w, lambda: self.tell(w, data), lambda s: s or "")
        logged = wait_until(lambda: re.search(pattern, w.text()[had:]))
        self.t.check(f"asked for {name}, a worker says so to both", re.search(pattern, said or "") and logged and len(w.text()[had:].splitlines()) == 1,
                     f"{said} {w.text()[had:]}")

    def loads(self):
        t = self.t
        w = cluster.Worker(t, t.model, t.socket(), key=False)
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(w.at.removeprefix("unix:"))
            s.sendall(frame("HELLO", hello(self.version)) + frame(99, number=2))
            content = struct.unpack_from("<Q", frames_of(read_to_end(s))[1][2])[0]
        layers = hostile.layers_of(t.sluice, t.model)
        for pattern, name, what in (
                (r"KV type 99: .* knows none", "a KV type that there is not", {"kv": 99}),
                (r"KV of type Q4_K", "keys of a type for weights", {"kv": 12}),
                (r"a context of 0 tokens", "no context", {"ctx": 0}),
                (r"context of 4294967295 tokens: must be 2 to 16777216", "a context of 2^32", {"ctx": 0xFFFFFFFF}),
                (r"4294967295 parallel sessions: at most \d+", "2^32 sessions", {"parallel": 0xFFFFFFFF}),
                (r"batch of 4294967295 tokens: at most \d+", "2^32 rows", {"batch": 0xFFFFFFFF}),
                (r"1 of 1 stages that cannot be asked for here", "all stages", {"n_stages": 1}),
                (r"the model here is '.*demo", "another model", {"content": content ^ 1}),
                (r"the plans differ: ", "another plan", {})):
            self.asked(w, what.pop("content", content), layers, pattern, name, **what)
        self.end(w)

    # ---- a worker with another backend ----

    def another_backend(self):
        """A coordinator plans for a worker's GPU that it has not: the tokens are those of the same split in one process, and what that GPU
        cannot compute is refused by name. Here a GPU is one that Vulkan shows, in software too."""
        t, cases = self.t, ("the tokens are those of the same split in one process", "an op that the worker's device lacks, at both ends", "and all end well")
        found = subprocess.run([t.sluice, "devices", "--json"], capture_output=True, text=True, check=True).stdout
        if not any(d["backend"] == "vulkan" and d["usable"] for d in json.loads(found)["devices"]):
            for case in cases:
                t.n += 1
                print(f"ok {t.n} - {case} # SKIP no device that Vulkan shows can be used")
            return
        layers = hostile.layers_of(t.sluice, t.model)
        split = ["--split", f"{layers - 1},1"]
        indexed = t.synth("an indexer", cluster.SHAPES["an indexer"])
        w, v = (cluster.Worker(t, model, t.socket(), "--device", "vulkan:0", "-t", "1") for model in (t.model, indexed))
        two_steps = {"n": 80}  # a GPU in software is slow
        alone = t.score(t.model, ["--device", "cpu,vulkan:0", *split], **two_steps)
        together = t.score(t.model, ["--device", "cpu", "--workers", w.at, "--key-file", t.key, *split], **two_steps)
        t.check(cases[0], isinstance(alone, bytes) and alone == together, f"{cluster.brief(alone)} {cluster.brief(together)} {w.text()[-600:]}")
        pattern = ["device vulkan:0 has no op '[a-z_]+'"]
        self.refused(cases[1], v, [*pattern, re.escape(v.at)], pattern, model=indexed)
        self.end(w, v)

    # ---- memory ----

    def least(self, name, worker, again, options, here=()):
        """A refusal for want of memory names the least that would do, at both ends; and that does. Under sanitizers, whose own memory differs
        by a MiB and more from one process to the next, a little beyond it does."""
        pattern = [r"at least (\d+) MiB", *here]
        text = self.refused(name, worker, pattern, pattern, options)
        found = re.search(r"at least (\d+) MiB", text)
        worker.end()
        if not found:
            return
        mib = int(found.group(1)) + (4 if self.t.sanitized else 0)
        w, more = again(mib)
        r = self.run(w, [*options, *more])
        self.t.check(f"and {mib} MiB are enough", r.returncode == 0, f"{r.stderr[-800:]} {w.text()[-800:]}")
        self.end(w)

    def memory(self):
        t = self.t
        few = t.least_mib() + 2

        def worker(mib):
            return cluster.Worker(t, t.model, t.socket(), "--ram", f"{mib}MiB"), []

        for name, options in (("", []), (", with a split that is given", ["--split", "1,7"]), (", all layers", ["--split", "0,8"]),
                              (", experts from disk", ["--experts", "streamed"])):
            w = worker(few)[0]
            self.least("a worker with too little memory" + name, w, worker, options, [f"a budget of {few}.0 MiB", re.escape(w.at)])
        w = worker(few + 64)[0]
        self.least("a context for which it has too little", w, worker, ["-c", "100000"], [re.escape(w.at), "smaller context"])
        w = cluster.Worker(t, t.model, t.socket())
        self.least("a coordinator with too little", w, lambda mib: (cluster.Worker(t, t.model, t.socket()), ["--ram", f"{mib}MiB"]), ["--ram", f"{few}MiB"],
                   [f"a budget of {few}.0 MiB"])

    def parting(self):
        """Who comes while a worker parts from the one before is served, not told that it serves another: here that one has been refused, and
        has not closed its end yet."""
        t = self.t
        w = cluster.Worker(t, t.model, t.socket(), key=False)
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(w.at.removeprefix("unix:"))
            s.settimeout(cluster.LONG)
            s.sendall(frame("HELLO", hello(self.version)) + frame("LOAD", load(1, [stage()], n_layer=hostile.layers_of(t.sluice, t.model)), number=2))
            data = b""
            while refusal(data) is None:
                data += s.recv(65536)
            r = self.run(w, [], key=None)
        t.check("who comes while another is parted from is served", r.returncode == 0 and BUSY not in w.text(), f"{r.stderr[-800:]} {w.text()[-800:]}")
        self.end(w)

    def busy(self):
        t = self.t
        w = cluster.Worker(t, t.model, t.socket())
        server = cluster.Server(t, w)
        w.wait_for("serving ")  # which it says behind what lets the other go on
        self.refused("a worker that serves another coordinator", w, [BUSY], ["was refused: .*" + BUSY])
        code = server.end()
        t.check("which ends well", code == 0, server.text()[-800:])
        self.end(w)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("sluice")
    p.add_argument("model")
    p.add_argument("--only", help="the name of one part, as in the source")
    a = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="sluice-refusals-") as folder:
        t = cluster.Tests(os.path.abspath(a.sluice), os.path.abspath(a.model), folder)
        r = Refusals(t)
        for part in (r.models, r.keys, r.versions, r.splits, r.kv_types, r.loads, r.another_backend, r.memory, r.parting, r.busy):
            if a.only and part.__name__ != a.only:
                continue
            try:
                part()
            except (RuntimeError, subprocess.SubprocessError, OSError, IndexError, struct.error) as e:
                t.check(part.__name__, False, repr(e))
        print(f"1..{t.n}")
    return 1 if t.failed else 0


if __name__ == "__main__":
    sys.exit(main())
