#!/usr/bin/env python3
"""A server on a GPU answers eight requests at once as each alone, and a text that it knows as one that is new. It is killed in
the middle of an answer, and the next one finds its texts on disk: for each architecture the answer is then the one that was
computed, with its experts resident and in as little memory as will do.

usage: restarts.py SLUICE [--device DEVICE] [--only TEXT]... [--jobs N]

DEVICE: cuda:0 unless said. N jobs at once (4). Prints TAP; all is skipped where there is no such device."""
import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "peer"))
from cases import CASES  # noqa: E402  (the path must be known first)
from models import VOCAB, Lacks, Wrong, least_vram, report, run, usable_devices  # noqa: E402

PROMPT = "A river and a stone and a lamp stand in the way of a mill. " * 30
# The first F32 case of each architecture.
FIRST = {re.split(r"[ ,]", c[0])[0]: c for c in reversed(CASES) if " f32" in c[0]}
PAGE = 64
LONG = 300
MATES = 8
SHAPE = ["-c", "2048", "--parallel", str(MATES)]


class Server:
    """sluice serve, whose texts are kept in a folder, until `with` ends it as a power cut would."""

    def __init__(self, sluice, model, folder, where):
        self.log = os.path.join(folder, "serve.log")
        with open(self.log, "w") as log:
            self.p = subprocess.Popen([sluice, "serve", "-m", model, "--port", "0", *SHAPE, "--heat-file", "off",
                                       "--cache-dir", os.path.join(folder, "texts"), "--cache-disk", "64MiB", *where],
                                      stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def __enter__(self):
        until = time.monotonic() + LONG
        while time.monotonic() < until and self.p.poll() is None:
            with open(self.log) as f:
                found = re.search(r"http://127\.0\.0\.1:(\d+)", f.read())
            if found:
                self.url = found.group()
                try:
                    self.get("/health")
                    return self
                except OSError:  # not ready yet
                    pass
            time.sleep(0.05)
        self.__exit__()
        with open(self.log) as f:
            said = f.read()[-300:].strip()
        lacks = re.search(r"device \S+ has no op '\w+'", said)
        raise Lacks(lacks.group()) if lacks else Wrong(f"serve does not start: {said}")

    def __exit__(self, *_):
        self.p.kill()
        self.p.wait()

    def get(self, path, body=None):
        request = urllib.request.Request(self.url + path, body and json.dumps(body).encode(), {"Content-Type": "application/json"})
        return urllib.request.urlopen(request, timeout=LONG)

    def on_disk(self):
        with self.get("/metrics") as r:
            return int(re.search(rb"^sluice_prefix_disk_blocks (\d+)", r.read(), re.M)[1])

    def answer(self, **more):
        """(what was said, and how likely, tokens of the prompt, how many of them were not computed)."""
        with self.get("/v1/completions", {"prompt": PROMPT, "max_tokens": 40, "temperature": 0, "ignore_eos": True, "logprobs": 5, **more}) as r:
            said = json.loads(r.read())
        usage = said["usage"]
        return said["choices"], usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]

    def mates(self):
        """Which of eight requests were answered otherwise beside the others than alone."""
        def ask(i):
            return self.answer(prompt=PROMPT[7 * i:40 + 150 * i], max_tokens=30 - i, cache_prompt=False)[0]
        alone = [ask(i) for i in range(MATES)]
        with concurrent.futures.ThreadPoolExecutor(MATES) as pool:
            return [i for i, said in enumerate(pool.map(ask, range(MATES))) if said != alone[i]]


def one(sluice, device, options, folder):
    """What was found again; raises what is wrong."""
    model = os.path.join(folder, "model.gguf")
    run([sluice, "synth", "-q", "-o", model, "--vocab", str(VOCAB)] + options.split())
    seen = []
    for name in ("resident", "from disk"):
        where = ["--device", device, "--experts", "resident"]
        if name == "from disk":
            if "--experts 0" in options or device == "cpu":
                continue
            where[3:] = ["streamed", "--vram", f"{least_vram(sluice, model, device, *SHAPE) + 2}MiB"]
        with tempfile.TemporaryDirectory(dir=folder) as own:
            with Server(sluice, model, own, where) as s:
                computed, n_prompt, cached = s.answer(cache_prompt=False)
                if cached:
                    raise Wrong(f"{name}: {cached} tokens were cached of a text that asked for none")
                others = s.mates()
                if others:
                    raise Wrong(f"{name}: requests {others} of {MATES} at once are answered otherwise than alone")
                s.answer()
                said, _, cached = s.answer()
                if said != computed:
                    raise Wrong(f"{name}: answered otherwise with {cached} tokens from memory")
                if cached < PAGE:
                    raise Wrong(f"{name}: {cached} tokens were found in memory")
                with s.get("/v1/completions", {"prompt": PROMPT, "max_tokens": 1200, "temperature": 0, "ignore_eos": True, "stream": True}) as r:
                    r.readline()
                    until = time.monotonic() + LONG
                    while s.on_disk() < n_prompt // PAGE:  # a state is with the last page of a slice
                        if time.monotonic() > until:
                            raise Wrong(f"{name}: {s.on_disk()} pages came to the disk")
                        time.sleep(0.05)
                    s.p.kill()
            with Server(sluice, model, own, where) as s:
                said, _, cached = s.answer()
            if said != computed:
                raise Wrong(f"{name}: answered otherwise with {cached} tokens from disk")
            if cached < PAGE:
                raise Wrong(f"{name}: {cached} tokens were found")
            seen.append(f"{name} {cached} tokens")
    return ", ".join(seen)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("sluice")
    p.add_argument("--device", default="cuda:0")
    p.add_argument("--only", action="append", default=[])
    p.add_argument("--jobs", type=int, default=4)
    o = p.parse_args()
    sluice = os.path.abspath(o.sluice)
    cases = [(name, c[1]) for name, c in sorted(FIRST.items()) if not o.only or any(text in name for text in o.only)]
    return report(cases, o.jobs, o.device, usable_devices(sluice), lambda c, folder: one(sluice, o.device, c[1], folder))


if __name__ == "__main__":
    sys.exit(main())
