#!/usr/bin/env python3
"""Soak: a streaming server under ASan, in a memory cgroup, on a disk that fails, with clients that misbehave.

usage: tests/soak/soak.py [--seconds N] [--server BINARY] [--limit-mib N] [--ram SIZE] [--io KIND] [--seed N]
                          [--clients N] [--json FILE]

The server is build/asan/tests/soak/sluice (`make soak` builds it): the real one, linked with faults.c, which spoils
reads. Its model (written to build/soak/model.gguf when missing) is larger than --ram. First a server on a healthy
disk answers each prompt once; then, for --seconds (default 1800), clients ask for the same answers whole and streamed,
stop in mid-stream, vanish without a word, read a byte at a time, send what is malformed, and scrape /metrics.

It fails when: an answer differs from the healthy one; a status or an error is not ours to report (allowed: 400 and
413 for what is malformed, and, for what needs a place that cannot be read, an error that says so); memory, threads or
descriptors grow; the server dies, is killed, hangs or does not end with 0 on SIGTERM; a sanitizer reports."""
import argparse
import collections
import http.client
import json
import os
import random
import re
import signal
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))
from cgroup import MemoryCgroup  # noqa: E402

PROMPTS = ["Tell me a story.", "a", "What is 2 + 2?", "x y z " * 20, "The quick brown fox jumps over the lazy dog. " * 12,
           "0123456789" * 60]


class Failed(Exception):
    pass


class Server:
    def __init__(self, o, faults, log_path):
        args = [o.server, "serve", "-m", o.model, "--port", "0", "--alias", "soak", "--ctx", "2048", "--parallel", "4",
                "--ram", o.ram, "--max-body-mib", "1", "--buffer-tokens", "16", "--timeout-s", "20", "--stall-s", "20"]
        args += ["--io", o.io] if o.io else []
        # What is freed is kept for a while to find late uses: a stated, small while, or it would look like growth.
        env = dict(os.environ, SOAK_FAULTS=str(faults), ASAN_OPTIONS="quarantine_size_mb=1:thread_local_quarantine_size_kb=16:detect_leaks=1",
                   XDG_CACHE_HOME=os.path.join(ROOT, "build/soak/cache"))
        self.group = MemoryCgroup("sluice-soak", o.limit_mib << 20)
        self.log_path = log_path
        self.log = open(log_path, "wb")
        self.child = subprocess.Popen(self.group.command(args), stderr=self.log, stdout=subprocess.DEVNULL, env=env)
        until = time.time() + 180
        self.port = None
        while time.time() < until and self.child.poll() is None:
            m = re.search(r"listening on http://[^ ]*:(\d+)", self.text())
            if m:
                self.port = int(m.group(1))
                try:
                    if self.get("/health")[0] == 200:
                        return
                except OSError:
                    pass
            time.sleep(0.2)
        self.kill()
        raise Failed("the server did not become ready:\n" + self.text()[-4000:])

    def text(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def get(self, path):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            c.request("GET", path)
            r = c.getresponse()
            return r.status, r.read().decode()
        finally:
            c.close()

    def post(self, path, body):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            c.request("POST", path, body if isinstance(body, (str, bytes)) else json.dumps(body))
            r = c.getresponse()
            return r.status, r.read().decode("utf-8", "replace")
        finally:
            c.close()

    def metric(self, name):
        m = re.search(rf"^{re.escape(name)} (\S+)$", self.get("/metrics")[1], re.M)
        if not m:
            raise Failed(f"the server has no metric {name}")
        return float(m.group(1))

    def usage(self):
        with open(f"/proc/{self.child.pid}/status", encoding="ascii") as f:
            rows = dict(line.split(":", 1) for line in f)
        return {"rss": int(rows["VmRSS"].split()[0]) << 10, "peak": int(rows["VmHWM"].split()[0]) << 10,
                "threads": int(rows["Threads"]), "fds": len(os.listdir(f"/proc/{self.child.pid}/fd"))}

    def stop(self):
        """Ends it as an operator would."""
        self.child.send_signal(signal.SIGTERM)
        try:
            code = self.child.wait(120)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failed("the server did not end within 120 s of SIGTERM")
        self.group.remove()
        self.log.close()
        if code != 0:
            raise Failed(f"the server ended with {code}:\n{self.text()[-6000:]}")
        found = re.search(r"(ERROR: \w+Sanitizer|runtime error:).*", self.text())
        if found:
            raise Failed(f"{found.group(0)}, see {self.log_path}")

    def kill(self):
        self.child.kill()
        self.child.wait()
        self.group.remove()


def body(i, stream=False, n=24):
    """Request i of the fixed ones: by turns greedy and seeded."""
    sampling = {"temperature": 0} if i % 2 == 0 else {"temperature": 0.9, "top_p": 0.9, "seed": i}
    return {"prompt": PROMPTS[i % len(PROMPTS)], "max_tokens": n, "stream": stream, **sampling}


OURS = re.compile(r"cannot read \d+ bytes")  # what the failing disk is to be answered with


class Soak:
    def __init__(self, o, server, answers):
        self.o, self.server, self.answers = o, server, answers
        self.until = time.time() + o.seconds
        self.count, self.lock, self.wrong = collections.Counter(), threading.Lock(), []

    def note(self, what):
        with self.lock:
            self.count[what] += 1

    def fail(self, what):
        with self.lock:
            self.count["WRONG"] += 1
            if len(self.wrong) < 20:
                self.wrong.append(what)

    def check_error(self, text):
        if OURS.search(text):
            self.note("answered with the disk's failure")
        else:
            self.fail("an error that is not ours: " + text[:400])

    def whole(self, rng):
        i = rng.randrange(len(self.answers))
        status, text = self.server.post("/v1/completions", body(i))
        if status != 200:
            return self.check_error(f"{status} {text}")
        got = json.loads(text)["choices"][0]["text"]
        if got != self.answers[i]:
            return self.fail(f"request {i}: {got!r} instead of {self.answers[i]!r}")
        self.note("whole answers, right")

    def open_stream(self, payload):
        s = socket.create_connection(("127.0.0.1", self.server.port), timeout=300)
        data = json.dumps(payload).encode()
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(data)
                  + data)
        return s

    def streamed(self, rng):
        i = rng.randrange(len(self.answers))
        c = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=300)
        got = ""
        try:
            c.request("POST", "/v1/completions", json.dumps(body(i, stream=True)))
            r = c.getresponse()
            if r.status != 200:
                return self.check_error(f"{r.status} {r.read().decode()}")
            for line in r.read().decode().split("\n"):
                if line.startswith("data: ") and line != "data: [DONE]":
                    event = json.loads(line[6:])
                    if "error" in event:
                        if not self.answers[i].startswith(got):
                            self.fail(f"request {i}: {got!r} before its error, instead of {self.answers[i]!r}")
                        return self.check_error(line)
                    got += "".join(x["text"] for x in event.get("choices", []))
        finally:
            c.close()
        if got != self.answers[i]:
            return self.fail(f"request {i}, streamed: {got!r} instead of {self.answers[i]!r}")
        self.note("streamed answers, right")

    def canceled(self, rng):
        s = self.open_stream(body(rng.randrange(len(self.answers)), stream=True, n=400))
        for _ in range(rng.randrange(1, 6)):
            if not s.recv(256):
                break
        s.close()
        self.note("closed in mid-stream")

    def vanished(self, rng):
        s = self.open_stream(body(rng.randrange(len(self.answers)), stream=rng.random() < 0.5, n=400))
        time.sleep(rng.random())
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()  # a reset
        self.note("vanished")

    def slow(self, rng):
        s = self.open_stream(body(rng.randrange(len(self.answers)), stream=True, n=200))
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        until = time.time() + 4
        while time.time() < until and s.recv(1):
            time.sleep(0.02)
        s.close()
        self.note("read slowly, then closed")

    def half(self, rng):
        """A request that ends in the middle."""
        s = socket.create_connection(("127.0.0.1", self.server.port), timeout=60)
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n\r\n{\"prompt\": "[:rng.randrange(5, 80)])
        s.close()
        self.note("half a request")

    def malformed(self, rng):
        what, allowed = rng.choice([('{"prompt":', 400), ('[' * 50000, 400), ({"prompt": "a", "max_tokens": "many"}, 400),
                                    ({"prompt": "a", "temperature": -3}, 400), ("x" * (1 << 21), 413),
                                    ({"messages": 5}, 400)])
        try:
            status, text = self.server.post("/v1/completions", what)
        except (ConnectionError, BrokenPipeError):
            return self.note("malformed, connection closed while it was sent") if allowed == 413 else self.fail(f"no answer to {what!r}"[:200])
        if status != allowed:
            return self.fail(f"{str(what)[:80]} was answered with {status} {text[:200]}")
        self.note("malformed, refused")

    def look(self, rng):
        path = rng.choice(["/metrics", "/health", "/v1/models", "/props"])
        status, text = self.server.get(path)
        if status != 200:
            return self.fail(f"{path}: {status} {text[:200]}")
        self.note("looked at /metrics and others")

    def long_prompt(self, rng):
        words = " ".join(str(rng.randrange(10)) for _ in range(rng.randrange(100, 450)))
        status, text = self.server.post("/v1/completions", {"prompt": words, "max_tokens": 4, "temperature": 0})
        if status != 200:
            return self.check_error(f"{status} {text}")
        self.note("long prompts")

    def client(self, seed):
        rng = random.Random(seed)
        kinds = [self.whole] * 5 + [self.streamed] * 5 + [self.canceled] * 4 + [self.vanished] * 4 + [self.slow, self.half]
        kinds += [self.malformed] * 2 + [self.look] * 2 + [self.long_prompt] * 2
        while time.time() < self.until and self.server.child.poll() is None:
            kind = rng.choice(kinds)
            try:
                kind(rng)
            except Exception as e:  # whatever it is, the run must say so and go on
                if self.server.child.poll() is None:
                    self.fail(f"{kind.__name__}: {type(e).__name__}: {e}")

    def run(self):
        threads = [threading.Thread(target=self.client, args=(self.o.seed * 1000 + i,)) for i in range(self.o.clients)]
        for t in threads:
            t.start()
        start, samples, shown = time.time(), [], 0
        while any(t.is_alive() for t in threads):
            time.sleep(1)
            if self.server.child.poll() is not None:
                break
            samples.append((time.time() - start, self.server.usage()))
            if time.time() - shown > 60:
                shown = time.time()
                u = samples[-1][1]
                print(f"{samples[-1][0]:6.0f} s: RSS {u['rss'] / 2**20:.1f} MiB, {u['threads']} threads, {u['fds']} "
                      f"descriptors, {sum(self.count.values())} requests, {self.count['WRONG']} wrong", flush=True)
        for t in threads:
            t.join()
        return samples


def judge(samples, wrong):
    """Growth between the second fifth of the run and the last."""
    n = len(samples)
    early, late = samples[n // 5:2 * n // 5], samples[4 * n // 5:]
    out = {}
    for key in ("rss", "threads", "fds"):
        a, b = (statistics.median(u[key] for _, u in part) for part in (early, late))
        out[key] = [a, b]
    out["rss_peak"] = samples[-1][1]["peak"]
    if out["rss"][1] > out["rss"][0] + (4 << 20):
        wrong.append(f"memory grew from {out['rss'][0] / 2**20:.1f} to {out['rss'][1] / 2**20:.1f} MiB")
    if out["threads"][1] > out["threads"][0] or out["fds"][1] > out["fds"][0] + 2:
        wrong.append(f"threads or descriptors grew: {out['threads']}, {out['fds']}")
    return out


def settle(server, wrong):
    """Nobody asks any more: sessions must end by themselves, and the next request must work."""
    until = time.time() + 60
    while time.time() < until and server.metric("sluice_sessions_running"):
        time.sleep(0.2)
    if server.metric("sluice_sessions_running"):
        wrong.append("requests go on though nobody is there")
    for _ in range(20):  # the disk goes on failing
        if server.post("/v1/completions", body(0))[0] == 200:
            return
    wrong.append("no request works at the end")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seconds", type=float, default=1800)
    p.add_argument("--server", default=os.path.join(ROOT, "build/asan/tests/soak/sluice"))
    p.add_argument("--model", default=os.path.join(ROOT, "build/soak/model.gguf"))
    p.add_argument("--limit-mib", type=int, default=1024)
    p.add_argument("--ram", default="384MiB")
    p.add_argument("--io")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--clients", type=int, default=6)
    p.add_argument("--json")
    o = p.parse_args()
    os.makedirs(os.path.join(ROOT, "build/soak"), exist_ok=True)
    if not MemoryCgroup.possible():
        print("SKIP: no memory cgroup can be made here (it takes root and a writable hierarchy)")
        sys.exit(77)
    if not os.path.exists(o.model):
        subprocess.run([o.server, "synth", "--layers", "6", "--embd", "512", "--heads", "8", "--kv-heads", "2", "--head-dim",
                        "64", "--experts", "128", "--top-k", "2", "--expert-ff", "1024", "--vocab", "1024", "--type", "Q4_K",
                        "--down", "Q6_K", "--skew", "0", "--locality", "0", "--stay", "0", "-q", "-o", o.model], check=True)
    wrong = []
    try:
        server = Server(o, 0, os.path.join(ROOT, "build/soak/healthy.log"))
        answers = []
        for i in range(2 * len(PROMPTS)):
            status, text = server.post("/v1/completions", body(i))
            if status != 200:
                raise Failed(f"a healthy disk, and {status} {text}")
            answers.append(json.loads(text)["choices"][0]["text"])
        server.stop()
        server = Server(o, o.seed, os.path.join(ROOT, "build/soak/soak.log"))
        soak = Soak(o, server, answers)
        samples = soak.run()
        wrong += soak.wrong
        if server.child.poll() is not None:
            raise Failed(f"the server ended with {server.child.returncode} in mid-run:\n{server.text()[-6000:]}")
        settle(server, wrong)
        disk = {name: server.metric(f"sluice_{name}") for name in
                ("disk_reads_total", "disk_reads_failed_total", "disk_errors_total", "disk_retries_total",
                 "predicted_tokens_total",
                 *(f'expert_lookups_total{{found="{where}"}}' for where in ("device", "coming", "disk")))}
        peak = server.group.peak_bytes()
        out = judge(samples, wrong)
        server.stop()
    except Failed as e:
        print(f"FAILED: {e}")
        sys.exit(1)
    result = {"seconds": o.seconds, "limit_mib": o.limit_mib, "ram": o.ram, "requests": dict(sorted(soak.count.items())),
              "growth": out, "cgroup_peak_bytes": peak, "disk": disk, "wrong": wrong}
    print(json.dumps(result, indent=1))
    if o.json:
        with open(o.json, "w", encoding="utf-8") as f:
            json.dump(result, f, indent=1)
    sys.exit(1 if wrong else 0)


main()
