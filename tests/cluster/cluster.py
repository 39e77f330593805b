#!/usr/bin/env python3
"""Layers over several processes: the same bits as one, and what is left when somebody goes. (Who is refused: refusals.py.)
Prints TAP.

usage: cluster.py SLUICE MODEL

MODEL is a small model with a chat template. Everything runs on this machine, over UNIX sockets and loopback."""
import http.client
import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import types
import urllib.error
import urllib.request

import relay

TROUBLE = "Sanitizer|runtime error"


def is_built_with(path, *names):
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as f:
        program = f.read()
    return any(name in program for name in names)


# Long enough on a machine with other work; TSan makes the program some 20 times slower.
LONG = int(os.environ.get("CLUSTER_LONG", "240")) * (5 if any(is_built_with(a, b"__tsan_init") for a in sys.argv[1:2]) else 1)

# More than a few pages of keys and values.
LONG_PROMPT = "a river and a stone and a lamp " * 30

# Of plans: what this machine would be measured for.
GIVEN = ["--disk-bandwidth", "1", "--ram-bandwidth", "10"]

# Experts that do not all find room in a small worker.
MANY = ["--layers", "6", "--experts", "32", "--expert-ff", "256", "--embd", "512"]

SHAPES = {
    "windows and sinks": ["--arch", "gpt-oss", "--layers", "6", "--experts", "8", "--top-k", "2"],
    "delta nets": ["--arch", "qwen35moe", "--layers", "8"],
    "Mamba-2": ["--arch", "granitehybrid", "--layers", "5"],
    "Kimi Delta Attention": ["--arch", "kimi-linear", "--layers", "5", "--shared-ff", "128"],
    "decays with a bound": ["--arch", "bailingmoe3", "--layers", "5", "--shared-ff", "128"],
    "residual attention": ["--arch", "kimi-k3", "--layers", "5", "--shared-ff", "128", "--expert-latent", "64"],
    "n-grams": ["--arch", "qwen4exp", "--layers", "5", "--index-top", "16", "--index-block", "4"],
    "layers of one part": ["--arch", "nemotron_h_moe", "--layers", "6", "--pattern", "EM*E"],
    "short convolutions": ["--arch", "lfm2moe", "--layers", "5"],
    "latent attention": ["--arch", "deepseek2", "--layers", "5"],
    "compressed attention": ["--arch", "deepseek4", "--layers", "5", "--q-lora", "64", "--index-top", "12", "--table-layers", "3"],
    "embeddings of layers": ["--arch", "gemma4", "--layers", "8", "--experts", "0", "--top-k", "0", "--layer-embd", "64", "--shared-kv", "3",
                             "--window", "64", "--window-period", "3", "--tied"],
    "an indexer": ["--arch", "deepseek32", "--layers", "5", "--q-lora", "64", "--index-top", "48"],
}

# One for each way that a state is written into messages; a sanitizer finds nothing more in the others.
SHAPES_SANITIZED = ("windows and sinks", "delta nets", "compressed attention")


def brief(scored):
    """What score() returned, for people: of millions of bytes, how many."""
    return scored[:600] if isinstance(scored, str) else f"{len(scored)} bytes"


def figures(text):
    """{"name{labels}": "value"} of metrics."""
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))


class Worker:
    """A worker in a process of its own."""

    def __init__(self, t, model, at, *options, key=True, measures=False, within=(), env=None):
        self.log = os.path.join(t.folder, f"worker-{t.next()}.log")
        keyed = ["--key-file", t.key] if key else ["--plain"]
        cache = model.removeprefix("cache:") if model.startswith("cache:") else None  # "cache:": where it is by default
        copy = ["-m", model] if cache is None else ["--model-cache", cache] if cache else []
        device = [] if "--device" in options else ["--device", "cpu", "-t", "1"]
        argv = [*within, t.sluice, "worker", *copy, "--listen", at, *device, *keyed, *options]
        if "--heat-file" not in options:
            argv += ["--heat-file", "off"]
        if not measures:
            argv.append("--no-measure")
        self.p = subprocess.Popen(argv, stderr=open(self.log, "w"), stdout=subprocess.DEVNULL, env=env)
        self.at = self.wait_for(r"listening on (\S+) for").group(1)

    def text(self):
        with open(self.log) as f:
            return f.read()

    def wait_for(self, pattern):
        until = time.monotonic() + LONG
        while time.monotonic() < until:
            found = re.search(pattern, self.text())
            if found:
                return found
            if self.p.poll() is not None:
                break
            time.sleep(0.02)
        raise RuntimeError(f"a worker did not say '{pattern}': {self.text()[-1500:]}")

    def page(self, path):
        """One of its own pages (--http)."""
        url = self.wait_for(r"are at (http://\S+)").group(1)
        with urllib.request.urlopen(url + path, timeout=LONG) as r:
            return r.read().decode()

    def health(self):
        return json.loads(self.page("/health"))

    def metrics(self):
        return figures(self.page("/metrics"))

    def end(self, sig=signal.SIGTERM):
        """How it ended; what sanitizers say is in its log."""
        if self.p.poll() is None:
            self.p.send_signal(sig)
        try:
            return self.p.wait(LONG)
        except subprocess.TimeoutExpired:
            self.p.kill()
            return self.p.wait()


class Tests:
    def __init__(self, sluice, model, folder):
        self.sluice, self.model, self.folder = sluice, model, folder
        self.n = self.failed = self.numbers = 0
        # Sanitizers keep what is freed for a while.
        self.sanitized = is_built_with(sluice, b"__asan_init", b"__tsan_init")
        self.key = self.new_key("key")
        self.answers = None

    def next(self):
        self.numbers += 1
        return self.numbers

    def path(self, name):
        return os.path.join(self.folder, name)

    def new_key(self, name, mode=0o600):
        text = subprocess.run([self.sluice, "keygen"], capture_output=True, text=True, check=True).stdout
        fd = os.open(self.path(name), os.O_WRONLY | os.O_CREAT, 0o600)
        with os.fdopen(fd, "w") as f:
            f.write(text)
        os.chmod(self.path(name), mode)
        return self.path(name)

    def socket(self):
        return "unix:" + self.path(f"s{self.next()}")

    def check(self, name, good, seen=""):
        self.n += 1
        self.failed += not good
        print(f"{'ok' if good else 'not ok'} {self.n} - {name}", flush=True)
        if not good:
            print("# " + str(seen).replace("\n", "\n# ")[:4000], flush=True)

    def synth(self, name, options):
        path = self.path(name.replace(" ", "-") + ".gguf")
        subprocess.run([self.sluice, "synth", "-o", path, "-q", "--ctx", "1024", *options], check=True, timeout=LONG)
        return path

    def score(self, model, options, within=(), most=256, n=300):
        """The log-probabilities of a text of n tokens below most as bytes, or what was wrong."""
        ids, out = self.path("ids"), self.path("out.npy")
        with open(ids, "wb") as f:
            f.write(struct.pack(f"<{n}i", *((i * 7919 + 13) % most for i in range(n))))
        if os.path.exists(out):
            os.remove(out)
        argv = [*within, self.sluice, "score", "-m", model, "--ids", ids, "--logprobs", out, "-t", "1", "--heat-file", "off", "-b", "64"]
        r = subprocess.run(argv + options, capture_output=True, text=True, timeout=LONG)
        if r.returncode or re.search(TROUBLE, r.stderr):
            return r.stderr
        with open(out, "rb") as f:
            return f.read()

    def least_mib(self):
        """The least budget that a worker starts with; sanitizers have a share in it."""
        try:
            Worker(self, self.model, self.socket(), "--ram", "1MiB").end()
        except RuntimeError as e:
            return int(float(re.search(r"the process alone takes ([\d.]+) MiB", str(e)).group(1))) + 1
        raise RuntimeError("a worker starts with 1 MiB")

    def alone_and_together(self, name, model, n, worker_options=(), options=(), split=(), more=0):
        """One process, and n of them."""
        alone = self.score(model, ["--device", "cpu", *options])
        workers = [Worker(self, model, self.socket(), *worker_options) for _ in range(n - 1)]
        where = ",".join(w.at for w in workers)
        asked = ["--device", "cpu", "--workers", where, "--key-file", self.key, *options, *split]
        together = self.score(model, asked)
        for _ in range(more):  # the next coordinators find the layers loaded
            together = self.score(model, asked) if together == alone else together
        ended = [w.end() for w in workers]
        logs = "".join(w.text() for w in workers)
        good = isinstance(alone, bytes) and alone == together and not any(ended) and not re.search(TROUBLE, logs)
        self.check(f"{name}: {n} processes give the bits of one", good, f"{brief(alone)} {brief(together)} {ended} {logs[-1000:]}")

    def alone(self):
        """What one process answers to many(4, 200) and to a long prompt."""
        if not self.answers:
            server = Server(self)
            self.answers = [server.many(4, 200), server.complete(LONG_PROMPT, 24)]
            server.end()
        return self.answers

    # ---- who is refused ----

    def refused(self, name, options, *patterns):
        argv = [self.sluice, "run", "-m", self.model, "-p", "hi", "-n", "2", "-q", "--device", "cpu", "-t", "1"]
        r = subprocess.run(argv + list(options), capture_output=True, text=True, timeout=LONG)
        good = r.returncode == 1 and all(re.search(p, r.stderr) for p in patterns) and not re.search(TROUBLE, r.stderr)
        self.check(name, good, f"{r.returncode}: {r.stderr[-1500:]}")

    def strangers(self):
        """Who has no key gets nowhere, and is in nobody's way."""
        w = Worker(self, self.model, "127.0.0.1:0")
        host, port = w.at.rsplit(":", 1)
        held = []
        for i in range(200):
            s = socket.create_connection((host, int(port)), timeout=30)
            if i % 3 == 1:
                s.sendall(b"GET / HTTP/1.1\r\n\r\n")
            elif i % 3 == 2:
                s.sendall(b"\x16\x03\x03" + b"\xff" * 200)
            held.append(s)
        r = self.score(self.model, ["--device", "cpu", "--workers", w.at, "--key-file", self.key])
        lines = w.text().count("was refused")
        self.check("200 strangers are in nobody's way", isinstance(r, bytes) and lines <= 20, f"{lines} {brief(r)}")
        for s in held:
            s.close()
        self.check("and the worker ends well", w.end() == 0 and not re.search(TROUBLE, w.text()), w.text()[-1500:])


class Server:
    """A coordinator that serves HTTP."""

    def __init__(self, t, *workers, options=(), within=(), key=True):
        self.port = 0
        self.log = os.path.join(t.folder, f"server-{t.next()}.log")
        keyed = ["--key-file", t.key] if key else ["--plain"]
        together = ["--workers", ",".join(w.at for w in workers), *keyed] if workers else []
        device = [] if "--device" in options else ["--device", "cpu", "-t", "1"]
        argv = [*within, t.sluice, "serve", "-m", t.model, *device, "--port", "0", "--heat-file", "off",
                "--parallel", "3", "-c", "512", *together, *options]
        self.p = subprocess.Popen(argv, stderr=open(self.log, "w"), stdout=subprocess.DEVNULL)
        until = time.monotonic() + LONG
        while not self.ready() and time.monotonic() < until and self.p.poll() is None:
            time.sleep(0.05)

    def ready(self):
        found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", self.text())
        self.port = int(found.group(1)) if found else 0
        return found and self.health()[0] == 200

    def text(self):
        with open(self.log) as f:
            return f.read()

    def get(self, path, body=None):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode() if body else None,
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=LONG) as r:
                return r.status, json.loads(r.read())
        except urllib.error.HTTPError as e:
            return e.code, json.loads(e.read())
        except OSError as e:
            return 0, str(e)

    def health(self):
        return self.get("/health")

    def turned_away(self):
        """(status, Retry-After) of a request that is new."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/completions", json.dumps({"prompt": "a", "max_tokens": 1}).encode(),
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=LONG) as r:
                return r.status, r.headers["Retry-After"]
        except urllib.error.HTTPError as e:
            return e.code, e.headers["Retry-After"]

    def metrics(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=LONG) as r:
            return figures(r.read().decode())

    def complete(self, prompt, n, seed=1):
        """The text of an answer, or its error."""
        code, body = self.get("/v1/completions", {"prompt": prompt, "max_tokens": n, "seed": seed, "temperature": 1,
                                                  "ignore_eos": True})
        return body["choices"][0]["text"] if code == 200 else f"{code}: {body}"

    def stream(self, prompt, n, seed=1, lines=None):
        """(the text that came, the error that ended it or None): an answer as it is written; lines: each that comes, too."""
        body = {"prompt": prompt, "max_tokens": n, "seed": seed, "temperature": 1, "ignore_eos": True, "stream": True}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        text, ended = "", False
        try:
            with urllib.request.urlopen(request, timeout=LONG) as r:
                for line in r:
                    if lines is not None:
                        lines.append(line)
                    if line.startswith(b"data: [DONE]"):
                        ended = True
                    elif line.startswith(b"data: "):
                        event = json.loads(line[6:])
                        if "error" in event:
                            return text, event["error"]["message"]
                        text += "".join(c["text"] for c in event["choices"])
        except urllib.error.HTTPError as e:
            return text, f"{e.code}: {e.read().decode()}"
        except (OSError, http.client.HTTPException) as e:
            return text, f"no end: {e!r}"
        return text, None if ended else "no end: the server closed the connection"

    def told(self):
        """What is made of each row of a prompt: vectors of texts, and how likely its tokens were."""
        text, out = "a river and a stone " * 20, [None, None]

        def vectors():
            code, body = self.get("/v1/embeddings", {"input": [text, "a stone"], "encoding_format": "base64"})
            out[0] = [d["embedding"] for d in body["data"]] if code == 200 else f"{code}: {body}"

        other = threading.Thread(target=vectors)
        other.start()
        code, echo = self.get("/v1/completions", {"prompt": text, "echo": True, "logprobs": 2, "max_tokens": 3, "temperature": 0})
        out[1] = echo["choices"][0]["logprobs"] if code == 200 else f"{code}: {echo}"
        other.join()
        return tuple(out)

    def accepted(self):
        return int(self.metrics()["sluice_requests_total"])

    def many(self, n, tokens):
        """Answers to n prompts at once, and beside them what told() gives."""
        answers = [None] * n

        def one(i):
            answers[i] = self.complete(f"Story {i}: " + "a river and a stone " * (3 * i), tokens, i)

        def tell():
            answers[n] = self.told()

        answers.append(None)
        threads = [threading.Thread(target=one, args=(i,)) for i in range(n)] + [threading.Thread(target=tell)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        return answers

    def begin(self, n, tokens):
        """The same on a thread, and the list where the answers will be, once the server has all of these requests: one that
        comes while a worker is lost is refused."""
        answers, before, until = [], self.accepted(), time.monotonic() + LONG
        clients = threading.Thread(target=lambda: answers.extend(self.many(n, tokens)))
        clients.start()
        while self.accepted() < before + n + 3 and clients.is_alive() and time.monotonic() < until:
            time.sleep(0.002)
        return clients, answers

    def end(self):
        if self.p.poll() is None:
            self.p.send_signal(signal.SIGTERM)
        try:
            return self.p.wait(LONG)
        except subprocess.TimeoutExpired:
            self.p.kill()
            return self.p.wait()


def planning(t):
    """A plan of two machines, with what the other has measured."""
    w = Worker(t, t.model, t.socket(), "--ram", "1GiB", measures=True)
    argv = [t.sluice, "plan", "-m", t.model, "--device", "cpu", "--workers", w.at, "--key-file", t.key, "--json", "--ram", "1GiB",
            *GIVEN]
    r = subprocess.run(argv, capture_output=True, text=True, timeout=LONG)
    plan = json.loads(r.stdout) if r.stdout else {}
    hosts = plan.get("hosts", [])
    good = len(hosts) == 2 and hosts[1]["name"] == w.at and hosts[1]["ram_bytes_per_s"] > 0
    t.check("a plan has both machines", good and all(s["layers"] for s in plan["stages"]), f"{r.stderr[-500:]} {hosts}")
    # Each end of TLS alone has two buffers of four records.
    links = [(r["host"], r["bytes"]) for r in plan.get("rows", []) if r["what"] == "links"]
    t.check("and the memory of the link at both ends", [h for h, n in links] == [0, 1] and all(8 * 16384 < n < 1 << 28 for h, n in links), links)
    least = [hosts[0]["least_bytes"] >> 20] if good else [0]
    argv[argv.index("1GiB")] = f"{least[0] + (4 if t.sanitized else 0)}MiB"
    r = subprocess.run(argv, capture_output=True, text=True, timeout=LONG)
    least.append((json.loads(r.stdout)["hosts"][0]["least_bytes"] if r.stdout else 0) >> 20)
    t.check("the least of this machine that it names is enough, and is the least with that too", abs(least[0] - least[1]) <= 8,
            f"{r.stderr[-500:]} {least}")
    argv[argv.index("--ram") + 1] = "1GiB"
    workers = [w] + [Worker(t, t.model, t.socket()) for _ in range(4)]
    for n, columns in ((3, [[1, 2, 3, 4]]), (5, [[1, 2, 3, 4], [5, 6]])):
        argv[argv.index("--workers") + 1] = ",".join(w.at for w in workers[:n])
        r = subprocess.run([a for a in argv if a != "--json"], capture_output=True, text=True, timeout=LONG)
        heads = [[int(i) for i in re.findall(r"machine (\d)", line)] for line in r.stdout.splitlines() if line.startswith("memory, MiB")]
        table = r.stdout[r.stdout.find("memory, MiB"):r.stdout.find(" sessions of ")].splitlines()
        named = all(f"machine {i + 2} is {w.at}\n" in r.stdout for i, w in enumerate(workers[:n]))
        ranges = re.findall(r"\d+ to \d+|\d+", " ".join(re.findall("^layers (.*)", r.stdout, re.M)))
        t.check(f"as text it is a table with a column for each of {n + 1} machines, four beside each other", heads == columns and named and
                len(ranges) == n + 1 and table and max(map(len, table)) <= 80, f"{heads} {ranges} {r.stdout} {r.stderr[-500:]}")
    t.check("and those that were asked end well", [w.end() for w in workers] == [0] * 5)


def waits(server, workers):
    """[(calls, seconds)] of each."""
    shown = server.metrics()
    return [(int(shown[f'sluice_worker_calls_total{{worker="{w.at}"}}']), float(shown[f'sluice_worker_wait_seconds_total{{worker="{w.at}"}}']))
            for w in workers]


def serving(t):
    """Sessions side by side, twice, so that the second time finds prefixes."""
    server = Server(t)
    alone = [server.many(5, 24), server.many(5, 24)]
    server.end()
    workers = [Worker(t, t.model, t.socket(), "--http", "127.0.0.1:0") for _ in range(2)]
    waiting = workers[0].health()
    server = Server(t, *workers)
    together = [server.many(5, 24), server.many(5, 24)]
    pages = [(w.health(), w.metrics()) for w in workers]
    code = server.end()
    same = alone[0] == together[0] and alone[1] == together[1]
    t.check("answers of 5 clients at once are those of one process", same and code == 0, f"{code} {alone} {together}")
    vectors, scored = alone[0][5]
    t.check("so are vectors and log-probabilities of prompts", len(vectors) == 2 and scored["token_logprobs"][1] < 0 and
            len(scored["tokens"]) > 80, f"{vectors} {scored}")
    again = Server(t, *workers)
    shown = again.metrics()
    seen = [shown.get(f'sluice_worker_up{{worker="{w.at}"}}') for w in workers]
    t.check("/metrics has each worker", seen == ["1", "1"], shown)
    before, began = waits(again, workers), time.monotonic()
    again.complete("Story", 8)
    took, after = time.monotonic() - began, waits(again, workers)
    t.check("and how often and how long it was waited for", all(calls + 4 <= c and 0 <= wait < w <= wait + took for (calls, wait), (c, w) in
                                                               zip(before, after)), f"{before} {after} {took}")
    link = [[int(shown[f'sluice_worker_{what}_bytes{{worker="{w.at}"}}']) for what in ("sent", "received", "queued")] for w in workers]
    shown = again.metrics()
    more = [[int(shown[f'sluice_worker_{what}_bytes{{worker="{w.at}"}}']) for what in ("sent", "received", "queued")] for w in workers]
    t.check("and what its link has carried", all(b[0] > a[0] + 1000 and b[1] > a[1] + 1000 and 0 <= b[2] < 1 << 20 for a, b in zip(link, more)),
            f"{link} {more}")
    t.check("a worker's own /health says that it waits", waiting == {**waiting, "status": "ok", "state": "waiting", "stages": []}, waiting)
    first = [0] + [h["stages"][0]["first_layer"] for h, _ in pages]
    layers = [h["stages"][0]["layers"] for h, _ in pages]
    good = all(h["state"] == "serving" and h["stages"][0]["stage"] == i + 2 and m['sluice_worker_state{state="serving"}'] == "1" and
               m["sluice_coordinator_connections_total"] == "1" and int(m["sluice_coordinator_received_bytes"]) > 1000 and
               m[f'sluice_stage_layers{{stage="{i + 2}",device="cpu"}}'] == str(layers[i]) and
               int(m[f'sluice_stage_steps_total{{stage="{i + 2}",device="cpu"}}']) > 20 and
               int(m["process_resident_memory_bytes"]) > 0 for i, (h, m) in enumerate(pages))
    t.check("its /health and /metrics say what it serves", good and first[1] + layers[0] == first[2] > first[1] > 0, pages)
    third = again.many(5, 24)
    kept = all("still there" in w.text() for w in workers)
    t.check("the next coordinator finds the layers loaded", third == alone[0] and kept, f"{third}")
    again.end()
    t.check("and all end well", [w.end() for w in workers] == [0, 0] and
            not re.search(TROUBLE, server.text() + again.text() + "".join(w.text() for w in workers)), again.text()[-1500:])


def trace(t):
    """A trace has a lane for each machine, on the coordinator's clock, whatever the others' clocks show."""
    later = ["unshare", "--time", "--monotonic", "100000", "--fork", "--kill-child=TERM"]
    others = not subprocess.run([*later, "true"], stderr=subprocess.DEVNULL).returncode
    workers = [Worker(t, t.model, t.socket()), Worker(t, t.model, t.socket(), within=later if others else ())]
    path = t.path("trace.json")
    server = Server(t, *workers, options=["--trace", path])
    server.many(3, 40)
    code = server.end()
    with open(path, encoding="utf-8") as f:
        events = json.load(f)["traceEvents"]
    lanes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    steps = {pid: [e for e in events if e["ph"] == "X" and e["name"] == "step" and e["pid"] == pid] for pid in lanes}
    t.check("a trace has a lane for each machine", sorted(lanes.values()) == sorted(["sluice"] + [w.at[:63] for w in workers]) and code == 0 and
            all(len(s) > 40 for s in steps.values()), f"{lanes} { {p: len(s) for p, s in steps.items()} }")
    # On one clock a step is there after it was sent and back before it has come, but for half a round trip, and nowhere near as far off
    # as the other's clock is.
    first = sorted(e["ts"] + e["dur"] for e in steps[1])
    last = max(first) + 1e6 * LONG
    slack = max(max(abs(e["args"][k]) for e in s for k in ("to there, us", "back, us")) for p, s in steps.items() if p != 1)
    near = all(first[0] - slack <= e["ts"] <= last for p, s in steps.items() if p != 1 for e in s)
    passed = all(e["args"]["to there, us"] > -slack and e["args"]["back, us"] > -slack for p, s in steps.items() if p != 1 for e in s)
    t.check("on one clock" if others else "on one clock # SKIP no time namespaces here: the clocks were the same", near and passed and slack < 1e6 * LONG,
            f"{slack} {first[:2]} {[s[:1] for s in steps.values()]}")
    if others:  # what unshare has started; it ends with it
        with open(f"/proc/{workers[1].p.pid}/task/{workers[1].p.pid}/children", encoding="ascii") as f:
            os.kill(int(f.read().split()[0]), signal.SIGTERM)
        workers[1].p.wait(LONG)
    t.check("and all end well", [w.end() for w in workers] == [0, 0], workers[1].text()[-800:])


def no_layers(t):
    """A coordinator that has none of the layers."""
    none = ["--split", "0,auto"]
    t.alone_and_together("a coordinator without layers", t.model, 3, split=none)
    t.alone_and_together("the same, with states", t.synth("states", SHAPES["delta nets"]), 2, split=none)
    t.alone_and_together("the same, with embeddings of layers", t.synth("embeddings", SHAPES["embeddings of layers"]), 2, split=none)
    kept = ["--cache-dir", t.path("kept"), "--cache-ram", "1MiB"]
    workers = [Worker(t, t.model, t.socket()) for _ in range(2)]
    server = Server(t, *workers, options=none + kept)
    together = [server.many(4, 200), server.complete(LONG_PROMPT, 24)]
    layers = [d["layers"] for d in server.get("/props")[1]["devices"]]
    code = server.end()
    t.check("it serves what one process does", together == t.alone() and code == 0 and layers[0] == 0 < min(layers[1:]), f"{layers} {together}")
    server = Server(t, *workers, options=none + kept)
    again = server.complete(LONG_PROMPT, 24)
    hits = int(server.metrics()["sluice_prefix_disk_hit_tokens_total"])
    t.check("also with prefixes from its disk", again == together[1] and hits >= 64, f"{hits} {again} {together[1]}")
    codes = [server.end()] + [w.end() for w in workers]
    t.check("and all end well", codes == [0, 0, 0] and not re.search(TROUBLE, server.text()), server.text()[-1500:])
    w = Worker(t, t.model, t.socket())
    argv = [t.sluice, "plan", "-m", t.model, "--device", "cpu", "--workers", w.at, "--key-file", t.key, "--json", "--ram", "1GiB", *GIVEN, *none]
    plan = json.loads(subprocess.run(argv, capture_output=True, text=True, timeout=LONG).stdout or "{}")
    here, there = plan["hosts"]
    t.check("its plan is small", plan["stages"][0]["layers"] == 0 and sum(s["layers"] for s in plan["stages"]) == plan["stages"][1]["layers"] and
            w.end() == 0, plan)


def heat(t):
    """A worker that is started anew begins with the experts that were hot."""
    folder = t.path("heat")
    options = ["--ram", f"{t.least_mib() + 72}MiB", "--heat-file", folder, "--log-level", "debug"]
    taken, texts = [], []
    for _ in range(2):
        w = Worker(t, t.model, t.socket(), *options)
        server = Server(t, w, options=["--experts", "streamed"])
        texts.append(server.many(2, 24))
        code = server.end()
        taken.append((code, w.end(), "heat of an earlier run taken over" in w.text()))
        t.check("a worker keeps what was hot" if len(taken) == 1 else "and takes it over when it is started anew",
                taken[-1] == (0, 0, len(taken) == 2) and len(os.listdir(folder)) == 1 and not re.search(TROUBLE, w.text()),
                f"{taken} {os.listdir(folder)} {w.text()[-1500:]}")
    t.check("with the same answers", texts[0] == texts[1], texts)
    cut = open(os.path.join(folder, os.listdir(folder)[0]), "r+b")
    with cut:
        cut.truncate(100)
    w = Worker(t, t.model, t.socket(), *options)
    server = Server(t, w, options=["--experts", "streamed"])
    t.check("a damaged file of heat costs nothing but heat", server.many(2, 24) == texts[0] and "starting cold" in w.text(), w.text()[-1500:])
    t.check("and all end well", [server.end(), w.end()] == [0, 0], w.text()[-1500:])


def fetching(t):
    """Workers without a copy of the model: they fetch what they need, once, and go on where they were cut."""
    big = t.synth("fetched", ["--layers", "8", "--experts", "16", "--expert-ff", "512", "--embd", "512"])
    caches = ["cache:" + t.path(f"cache{i}") for i in range(2)]
    alone = t.score(big, ["--device", "cpu"])
    workers = [Worker(t, c, t.socket()) for c in caches]
    options = ["--device", "cpu", "--workers", ",".join(w.at for w in workers), "--key-file", t.key]
    together = t.score(big, options)
    t.check("workers without the model give the bits of one process", isinstance(alone, bytes) and alone == together,
            f"{brief(together)} {workers[0].text()[-600:]}")
    held = [sum(os.stat(os.path.join(root, f)).st_blocks * 512 for root, _, files in os.walk(c[6:]) for f in files) for c in caches]
    size = os.path.getsize(big)
    t.check("each has fetched its part alone", all(0 < h < 0.75 * size for h in held), f"{held} of {size}")
    for w in workers:
        w.end()
    # Where layers have embeddings of their own, with what those are made of, resident and by row.
    small = t.synth("embeddings fetched", SHAPES["embeddings of layers"] + ["--vocab", "40000", "--layer-embd", "96"])
    words = {"most": 40000, "n": 70}  # from all over the table; each has 40000 log-probabilities
    alone_small = t.score(small, ["--device", "cpu"], **words)
    for name, where, cache in (("resident", [], "cache2"), ("by row", ["--tables", "streamed"], "cache2"), ("by row from the start",
                               ["--tables", "streamed"], "cache3")):
        w = Worker(t, "cache:" + t.path(cache), t.socket())
        together = t.score(small, ["--device", "cpu", "--workers", w.at, "--key-file", t.key, "--split", "2,6", *where], **words)
        t.check(f"also a table of layers' embeddings, {name}", isinstance(alone_small, bytes) and alone_small == together and w.end() == 0,
                f"{brief(together)} {w.text()[-600:]}")
    # Without a word about it.
    plain = Worker(t, "cache:", t.socket(), env=dict(os.environ, XDG_CACHE_HOME=t.path("user")))
    kept = t.path("user/sluice/layers")
    together = t.score(big, ["--device", "cpu", "--workers", plain.at, "--key-file", t.key])
    t.check("by default into the user's cache folder", together == alone and plain.end() == 0 and f"is fetched to {kept}" in plain.text() and
            any(f.endswith(".gguf") for _, _, files in os.walk(kept) for f in files), f"{brief(together)} {plain.text()[-600:]}")
    # Cut in the middle: what was there stays.
    import shutil
    shutil.rmtree(caches[0][6:])
    cut = Worker(t, caches[0], t.socket())
    other = Worker(t, caches[1], t.socket())
    options = ["--device", "cpu", "--workers", f"{cut.at},{other.at}", "--key-file", t.key]
    scoring = threading.Thread(target=t.score, args=(big, options))
    scoring.start()
    until = time.monotonic() + LONG
    while not os.path.isdir(caches[0][6:]) and time.monotonic() < until:
        time.sleep(0.001)
    cut.end(signal.SIGKILL)
    scoring.join()
    again = Worker(t, caches[0], t.socket())
    options = ["--device", "cpu", "--workers", f"{again.at},{other.at}", "--key-file", t.key, "--experts", "streamed"]
    r = t.score(big, options)
    t.check("after a cut the rest is fetched", r == alone, f"{brief(r)} {again.p.poll()} {again.text()[-700:]}")
    # A damaged copy of a header is found.
    again.end()
    for root, _, files in os.walk(caches[0][6:]):
        for f in files:
            if f.endswith(".gguf"):
                with open(os.path.join(root, f), "r+b") as g:
                    g.seek(40)
                    g.write(b"\xff")
    bad = Worker(t, caches[0], t.socket())
    t.model, model = big, t.model
    t.refused("a damaged copy is refused", ["--workers", bad.at, "--key-file", t.key], "remove the folder|GGUF|key|lost|byte")
    t.model = model
    logs = "".join(w.text() for w in workers + [plain, cut, other, again, bad])
    codes = [bad.end(), other.end()]
    trouble = re.search(TROUBLE, logs)
    t.check("and all end well", codes == [0, 0] and not trouble, f"{codes} {logs[trouble.start():][:3000] if trouble else ''}")


def lost_between(t, server, worker):
    """A worker is killed and comes back while nothing is asked: what is known of prefixes is not used any more."""
    alone = t.alone()[1]
    before = server.complete(LONG_PROMPT, 24)
    n_back = server.text().count(f"the worker at {worker.at} is back")
    worker.end(signal.SIGKILL)
    worker = Worker(t, t.model, worker.at)
    until = time.monotonic() + LONG
    while server.text().count(f"the worker at {worker.at} is back") == n_back and time.monotonic() < until:
        time.sleep(0.02)
    after = server.complete(LONG_PROMPT, 24)
    t.check("a worker is killed and comes back between two requests: the answers are those of one process",
            [before, after] == [alone, alone], f"{server.text()[-1500:]} {alone} {before} {after}")
    return worker


def paused(t, server, worker):
    """While a worker is away a stream's client sees signs of life, what needs no worker is answered, and the log says what has changed, once."""
    alone, lines, got = server.complete("A river ", 250), [], []
    reading = threading.Thread(target=lambda: got.append(server.stream("A river ", 250, lines=lines)))
    reading.start()
    until = time.monotonic() + LONG

    def wait_for(true):
        while not true() and time.monotonic() < until:
            time.sleep(0.002)

    wait_for(lambda: sum(line.startswith(b"data: ") for line in lines) > 3)
    had = len(server.text())
    worker.p.send_signal(signal.SIGSTOP)
    wait_for(lambda: server.health()[0] == 503)
    n_lines = len(lines)
    wait_for(lambda: any(line.startswith(b": ") for line in lines[n_lines:]))
    code, tokens = server.get("/tokenize", {"content": "a river"})
    codes = [code] + [server.get(path)[0] for path in ("/v1/models", "/props", "/slots")]
    away = not got
    worker.p.send_signal(signal.SIGCONT)
    reading.join()
    t.check("a stream that waits for a worker has comments meanwhile, then the tokens that it would have had", away and got == [(alone, None)] and
            any(line.startswith(b": ") for line in lines[n_lines:]), f"{away} {got} {alone} {lines[n_lines:][:9]}")
    t.check("what needs no worker is answered meanwhile", codes == [200] * 4 and tokens["tokens"], f"{codes} {tokens}")
    wait_for(lambda: f"the worker at {worker.at} is back" in server.text()[had:])
    told = [line for line in server.text()[had:].splitlines() if worker.at in line]
    t.check("the log has a line for the loss and one for the return", len(told) == 2 and "is lost" in told[0] and "is back" in told[1], told)


def losses(t):
    """A worker is killed or stopped while clients wait: their answers go on as if nothing had been."""
    alone = t.alone()[0]
    first, second = Worker(t, t.model, t.socket()), Worker(t, t.model, t.socket())
    server = Server(t, first, second, options=["--worker-wait", "60"])
    for how, sig, n in (("killed", signal.SIGKILL, 4), ("asked to end", signal.SIGTERM, 4), ("asked to end while one waits", signal.SIGTERM, 1),
                        ("stopped", signal.SIGSTOP, 4)):
        told = server.text().count("requests wait for it")
        clients, together = server.begin(n, 200)
        second.p.send_signal(sig)
        until = time.monotonic() + LONG
        while server.health()[0] == 200 and time.monotonic() < until:
            time.sleep(0.02)
        code, health = server.health()
        if sig == signal.SIGSTOP:  # it is away until we say so
            # A request that comes before the scheduler has heard of the loss waits with the others, and we with it.
            while server.text().count("requests wait for it") == told and time.monotonic() < until:
                time.sleep(0.02)
            away = server.turned_away()
            t.check("a new request is told to come again", away[0] == 503 and int(away[1] or 0) > 0, away)
            second.p.send_signal(signal.SIGCONT)
        else:
            second.p.wait(LONG)
            second = Worker(t, t.model, second.at)
        clients.join()
        t.check(f"a worker is {how}: the answers are those of one process", together == alone[:n] + alone[4:],
                f"{code} {health} {server.text()[-1500:]} {alone} {together}")
        t.check("and /health said which", code == 503 and second.at in str(health), f"{code} {health}")
    paused(t, server, second)
    second = lost_between(t, server, second)
    second.end(signal.SIGKILL)
    server.end()
    second = Worker(t, t.model, t.socket())
    server = Server(t, first, second, options=["--worker-wait", "1"])
    second.end(signal.SIGKILL)
    errors = server.many(2, 24)
    t.check("one that does not come back is an error that names it", all("503" in str(e) and second.at in str(e) for e in errors), errors)
    second = Worker(t, t.model, second.at)
    until = time.monotonic() + LONG
    while server.health()[0] != 200 and time.monotonic() < until:
        time.sleep(0.05)
    again = server.many(4, 200)
    t.check("and when it does later, all is well", again == alone, f"{again} {server.text()[-1500:]}")
    code = server.end()
    logs = server.text() + first.text() + second.text()
    t.check("and all end well", code == 0 and [first.end(), second.end()] == [0, 0] and not re.search(TROUBLE, logs), logs[-1500:])


class Cutter(relay.Relay):
    """Between a coordinator and a worker, without encryption: while there are cuts left, it ends the connection at each step that is asked
    for, before the worker has it."""

    STEP = 3  # of a request's head: docs/WIRE.md

    def __init__(self, path, to):
        self.at = "unix:" + path
        self.cuts = self.n_cut = 0
        super().__init__(path, to.removeprefix("unix:"))

    def is_cut(self, kind, payload):
        if kind != 7 or struct.unpack_from("<H", payload, 4 + 16)[0] != self.STEP or not self.cuts:
            return False
        self.cuts -= 1
        self.n_cut += 1
        return True

    def pass_on(self, parts, way):
        data = b""
        for part in parts:
            if way == "back":
                yield part
                continue
            data += part
            while len(data) >= 32 and len(data) >= 32 + struct.unpack_from("<Q", data, 24)[0]:
                n = 32 + struct.unpack_from("<Q", data, 24)[0]
                if self.is_cut(struct.unpack_from("<H", data, 6)[0], data[32:n]):
                    return
                yield data[:n]
                data = data[n:]


def interrupted(t):
    """A request is there each time that a worker is lost, and has no token between: four times it goes on, the fifth is its last."""
    w = Worker(t, t.model, t.socket(), key=False)
    cutter = Cutter(t.path("cutter"), w.at)
    server = Server(t, cutter, key=False, options=["--worker-wait", str(LONG)])
    prompts = ["A river ", "A stone and a lamp "]
    alone = [server.complete(p, 250) for p in prompts]
    for cuts in (4, 5):
        got = [None, None]

        def whole():
            got[1] = server.complete(prompts[1], 250)

        def streamed():
            got[0] = server.stream(prompts[0], 250)

        before, clients = server.metrics(), [threading.Thread(target=f) for f in (streamed, whole)]
        for each in clients:
            each.start()

        def both_run():
            now = server.metrics()
            made = int(now["sluice_predicted_tokens_total"]) - int(before["sluice_predicted_tokens_total"])
            return now["sluice_sessions_running"] == "2" and made > 8

        until = time.monotonic() + LONG
        while not both_run() and any(c.is_alive() for c in clients) and time.monotonic() < until:
            time.sleep(0.001)
        had, cutter.cuts = cutter.n_cut, cuts
        for each in clients:
            each.join()
        n, cutter.cuts = cutter.n_cut - had, 0
        if cuts == 4:
            t.check("a request that is interrupted four times goes on with the tokens it would have had", n == 4 and got == [(alone[0], None), alone[1]],
                    f"{n} {got} {alone} {server.text()[-1500:]}")
            continue
        text, error = got[0]
        why = "interrupted 5 times without a new token"
        t.check("the fifth time a stream ends with an error that says so and names the worker, behind the tokens it had", n == 5 and error and why in error and
                cutter.at in error and text and alone[0].startswith(text) and text != alone[0], f"{n} {got} {alone} {server.text()[-1500:]}")
        t.check("and an answer that is awaited whole is a 503", got[1].startswith("503") and why in got[1] and "peer_lost" in got[1], f"{got[1]}")
    until = time.monotonic() + LONG
    while server.health()[0] != 200 and time.monotonic() < until:
        time.sleep(0.02)
    t.check("what is asked next is answered as ever", [server.complete(p, 250) for p in prompts] == alone, server.text()[-1500:])
    codes = [server.end(), w.end()]
    t.check("and all end well", codes == [0, 0] and not re.search(TROUBLE, server.text() + w.text()), f"{codes} {server.text()[-1500:]}")


def stalls(t):
    """A worker does nothing for a while, and the steps of all the others come together before it: they wait there."""
    wide = t.synth("wide", ["--layers", "6", "--heads", "1", "--kv-heads", "1", "--experts", "4", "--expert-ff", "64", "--embd", "1024", "--ctx", "4096"])
    t.model, model = wide, t.model
    workers = [Worker(t, wide, t.socket()) for _ in range(5)]
    server = Server(t, *workers, options=["-c", "4096"])
    t.model = model

    def ask(answers):
        prompts = ["".join("abcdefgh "[(k * 7 + i) % 9] for k in range(3900)) for i in range(3)]
        asking = [threading.Thread(target=lambda p=p: answers.append(server.complete(p, 8))) for p in prompts]
        for each in asking:
            each.start()
        return asking

    stalled, smooth = [], []
    workers[-1].p.send_signal(signal.SIGSTOP)
    asking = ask(stalled)
    time.sleep(2)
    workers[-1].p.send_signal(signal.SIGCONT)
    for each in asking:
        each.join()
    for each in ask(smooth):
        each.join()
    t.check("a worker that stalls is waited for by five others", sorted(stalled) == sorted(smooth) and "not be sent" not in server.text(),
            f"{stalled} {smooth} {server.text()[-1500:]}")
    code = server.end()
    logs = server.text() + "".join(w.text() for w in workers)
    t.check("and all end well", [code] + [w.end() for w in workers] == [0] * 6 and not re.search(TROUBLE, logs), logs[-1500:])


class Resets(relay.Relay):
    """Between a coordinator and a worker: resets the first connections, each when so many bytes have come back from the worker."""

    def __init__(self, to, points):
        host, port = to.rsplit(":", 1)
        self.points, self.n_reset = iter(points), 0
        super().__init__(("127.0.0.1", 0), (host, int(port)), socket.AF_INET)
        self.at = "127.0.0.1:%d" % self.listener.getsockname()[1]

    def takes(self, a):
        most = next(self.points, None)
        if most is not None:
            threading.Thread(target=self.reset, args=(a, most), daemon=True).start()
        return most is None

    def reset(self, a, most):
        n, b = 0, socket.create_connection(self.to)
        try:
            while n < most:
                for s in select.select([a, b], [], [])[0]:
                    data = s.recv(most - n if s is b else 65536)
                    (a if s is b else b).sendall(data)
                    n += len(data) if s is b else 0
                    if not data:
                        most = n
        except OSError:  # one of them has gone
            pass
        self.n_reset += 1
        a.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        a.close()
        b.close()


def cut_handshakes(t):
    """A connection that is reset in the handshake, or right behind it, is a lost one, and a start tries again; another key is not."""
    w = Worker(t, t.model, "127.0.0.1:0")
    alone = t.score(t.model, ["--device", "cpu"])
    points = [0, 1, 5, 100, 200, 260, 300, 400]  # the handshake is about 264 bytes; the worker's words follow
    between = Resets(w.at, points)
    wait = ["--device", "cpu", "--key-file", t.key, "--worker-wait"]
    r = t.score(t.model, [*wait, str(LONG), "--workers", between.at])
    t.check(f"a start goes on after {len(points)} connections that are reset, in the handshake and behind it", isinstance(r, bytes) and r == alone and
            between.n_reset == len(points), f"{between.n_reset} {str(r)[:800]} {w.text()[-800:]}")
    for most in (0, 100, 300):
        between = Resets(w.at, [most] * 1000)
        r = t.score(t.model, [*wait, "1", "--workers", between.at])
        t.check(f"where each is reset after {most} bytes, it ends with what happened, after more than one try", between.n_reset > 1 and between.at in str(r) and
                re.search("reset by peer|Broken pipe|closed the connection", str(r)) and "key" not in str(r), f"{between.n_reset} {r}")
    t.refused("another key is refused at once, however long a start would wait", ["--workers", w.at, "--key-file", t.new_key("another key"), "--worker-wait", "86400"],
              re.escape(w.at) + ".*another key")
    t.check("and the worker ends well", w.end() == 0 and not re.search(TROUBLE, w.text()), w.text()[-1500:])


def spares_at_the_start(t):
    """A worker that is not there within --worker-wait: a spare has its place from the start."""
    alone = t.score(t.model, ["--device", "cpu"])
    first, spare, other = Worker(t, t.model, t.socket()), Worker(t, t.model, t.socket()), Worker(t, t.synth("for another", ["--layers", "3"]), t.socket())
    absent = [t.socket(), t.socket()]
    server = Server(t, first, types.SimpleNamespace(at=absent[0]), options=["--worker-wait", "1", "--spare", f"{other.at},{spare.at}"])
    place = [line for line in server.text().splitlines() if "has the place of" in line]
    t.check("a worker is absent at the start: a spare has its place, and the log says so in one line", len(place) == 1 and
            f"the spare at {spare.at} has the place of {absent[0]}" in place[0] and server.health()[0] == 200, server.text()[-1500:])
    t.check("one that cannot have it is named", f"{other.at} cannot take the place of {absent[0]}" in server.text() and "another model" in server.text(),
            server.text()[-1500:])
    together = server.many(4, 200)
    t.check("the answers are those of one process", together == t.alone()[0], f"{together} {server.text()[-800:]}")
    # From then on the absent one is a spare.
    late = Worker(t, t.model, absent[0])
    clients, together = server.begin(4, 200)
    spare.end(signal.SIGKILL)
    clients.join()
    t.check("when it comes, it is a spare itself", together == t.alone()[0] and f"the spare at {late.at} has the place of {spare.at}" in server.text(),
            f"{together} {server.text()[-1500:]}")
    codes = [server.end(), first.end(), late.end(), other.end()]
    t.check("and those that are left end well", not any(codes) and not re.search(TROUBLE, server.text() + first.text() + late.text()), f"{codes} {server.text()[-800:]}")
    first, spare = Worker(t, t.model, t.socket()), Worker(t, t.model, t.socket())
    options = ["--device", "cpu", "--key-file", t.key, "--worker-wait", "1", "--spare", spare.at, "--workers"]
    absent = [t.socket(), t.socket()]
    r = t.score(t.model, [*options, f"{absent[0]},{first.at},{absent[1]}"])
    t.check("two are absent and there is one spare: the error names the one that is missing", absent[1] in str(r) and absent[0] not in str(r) and
            "no spare can take its place" in str(r), r)
    wait_for_end = time.monotonic() + LONG
    r = t.score(t.model, [*options, f"{absent[0]},{first.at}"])
    while "another coordinator" in str(r) and time.monotonic() < wait_for_end:  # they have not yet left the one before
        r = t.score(t.model, [*options, f"{absent[0]},{first.at}"])
    t.check("with one absent it is as in one process", isinstance(r, bytes) and r == alone, str(r)[:800])
    codes = [first.end(), spare.end()]
    t.check("and all end well", codes == [0, 0] and not re.search(TROUBLE, first.text() + spare.text()), f"{codes} {spare.text()[-800:]}")


def spares(t):
    """A worker is killed and stays away: a spare has its layers, and answers go on. Then the spare is killed, and the first one,
    which is a spare by now, comes back."""
    alone = t.alone()[0]
    small = Worker(t, t.model, t.socket(), "--ram", f"{t.least_mib() + 2}MiB")  # it starts, but has no room for layers
    first, spare, worker = Worker(t, t.model, t.socket()), Worker(t, t.model, t.socket()), Worker(t, t.model, t.socket())
    server = Server(t, first, worker, options=["--worker-wait", "60", "--spare", f"{small.at},{spare.at}"])
    logs = ""
    for lost, comes in ((worker, None), (spare, worker)):
        clients, together = server.begin(4, 200)
        lost.p.send_signal(signal.SIGKILL)
        lost.p.wait(LONG)
        if comes:
            logs += worker.text()
            worker = Worker(t, t.model, worker.at)
        clients.join()
        t.check(f"{'the spare' if comes else 'a worker'} is lost: the answers are those of one process", together == alone,
                f"{server.text()[-1500:]} {alone} {together}")
        place, until = f"the spare at {(comes or spare).at} has the place of {lost.at}", time.monotonic() + LONG
        while place not in server.text() and time.monotonic() < until:
            time.sleep(0.02)
        t.check("and the log says who is where", place in server.text() and f"{small.at} cannot take the place" in server.text(),
                server.text()[-1500:])
    metrics = server.metrics()
    t.check("and /metrics too", metrics.get(f'sluice_worker_up{{worker="{worker.at}"}}') == "1", str(metrics)[:2000])
    code = server.end()
    logs += server.text() + first.text() + worker.text()
    t.check("and those that are left end well", code == 0 and [first.end(), worker.end(), small.end()] == [0, 0, 0] and
            not re.search(TROUBLE, logs), logs[-1500:])


def main():
    sluice, model = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    only = sys.argv[3:]
    with tempfile.TemporaryDirectory() as folder:
        t = Tests(sluice, model, folder)
        parts = {
            "bits": lambda: (t.alone_and_together("resident", model, 2), t.alone_and_together("resident", model, 3),
                             t.alone_and_together("keys and values in Q8_0", model, 2, options=["--kv-type", "q8_0"])),
            "streamed": lambda: (t.alone_and_together("experts from disk", model, 5, ["--ram", f"{t.least_mib() + 72}MiB"],
                                                     ["--experts", "streamed"]),
                                 t.alone_and_together("more experts than slots, for one coordinator after the other", t.synth("many experts", MANY), 2,
                                                      ["--ram", f"{t.least_mib() + 40}MiB"], ["--experts", "streamed"], more=2)),
            "shapes": lambda: [t.alone_and_together(name, t.synth(name, o), 3) for name, o in SHAPES.items()
                               if not t.sanitized or name in SHAPES_SANITIZED],
            "planning": lambda: planning(t),
            "serving": lambda: serving(t),
            "heat": lambda: heat(t),
            "trace": lambda: trace(t),
            "no layers": lambda: no_layers(t),
            "fetching": lambda: fetching(t),
            "losses": lambda: losses(t),
            "interrupted": lambda: interrupted(t),
            "stalls": lambda: stalls(t),
            "spares": lambda: spares(t),
            "spares at the start": lambda: spares_at_the_start(t),
            "cut handshakes": lambda: cut_handshakes(t),
            "strangers": t.strangers,
        }
        for name, part in parts.items():
            if not only or name in only:
                try:
                    part()
                except (RuntimeError, subprocess.SubprocessError, OSError) as e:
                    t.check(name, False, e)
        print(f"1..{t.n}")
    return 1 if t.failed else 0


if __name__ == "__main__":
    sys.exit(main())
