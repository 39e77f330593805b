#!/usr/bin/env python3
"""Tokens/s that clients get over HTTP as streams, beside what `sluice bench` generates with as many rows.

    bench/http_clients.py MODEL.gguf [--clients 1,8,16,32] [--tokens 400] [--rounds 3] [--sluice build/release/sluice] [options]

The options are those of both `sluice serve` and `sluice bench`, as --device cuda:0. Clients are processes that ask at the same moment
for a completion of so many tokens, greedy, then with temperature 0.8 and top_p 0.95, then with temperature 0.8 and top_k 20; a synthetic
model's logits are flat, which is the worst case for top_p. A rate is all tokens but each stream's first over the time from
the first of any to the last of all. Medians over the rounds; ratios to `sluice bench`, and of the other ways to greedy."""
import argparse
import http.client
import json
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "support"))
from ports import free_port  # noqa: E402

WAYS = {"greedy": {"temperature": 0}, "top_p 0.95": {"temperature": 0.8, "top_p": 0.95}, "top_k 20": {"temperature": 0.8, "top_k": 20}}


def client(port, i, tokens, way, at, out):
    """Puts (first, last) seconds, or what went wrong."""
    body = {"prompt": f"Story {i}:", "max_tokens": tokens, "stream": True, "ignore_eos": True, "seed": i, **WAYS[way]}
    conn = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    at.wait()
    conn.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = conn.getresponse()
    if answer.status != 200:
        out.put(f"{answer.status}: {answer.read()[:300]}")
        return
    text, first = answer.read1(), time.monotonic()
    while more := answer.read1():
        text += more
    last = time.monotonic()
    finish = b'"finish_reason":"length"' in text.replace(b": ", b":")
    out.put((first, last) if finish and b"[DONE]" in text else f"ended early: {text[-300:]}")


def rate(port, n, tokens, way):
    at, out = multiprocessing.Barrier(n), multiprocessing.Queue()
    clients = [multiprocessing.Process(target=client, args=(port, i, tokens, way, at, out)) for i in range(n)]
    for c in clients:
        c.start()
    times = [out.get(timeout=180) for _ in clients]
    for c in clients:
        c.join()
    for t in times:
        if isinstance(t, str):
            sys.exit(f"a client: {t}")
    return n * (tokens - 1) / (max(t[1] for t in times) - min(t[0] for t in times))


def bench(o, counts):
    argv = [o.sluice, "bench", "-m", o.model, "-p", "0", "-n", str(o.tokens), "-r", "1", "--heat-file", "off", "--json",
            "--parallel", ",".join(map(str, counts)), *o.options]
    out = subprocess.run(argv, check=True, stdout=subprocess.PIPE).stdout
    return dict(zip(counts, (t["avg_ts"] for t in json.loads(out))))


def serve(o, port, most):
    server = subprocess.Popen([o.sluice, "serve", "-m", o.model, "--port", str(port), "--parallel", str(most), "-c", str(o.tokens + 100),
                               "--heat-file", "off", "--log-level", "warn", *o.options])
    while server.poll() is None:
        try:
            conn = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            conn.request("GET", "/health")
            if conn.getresponse().status == 200:
                return server
        except OSError: # not there yet
            pass
        time.sleep(0.1)
    sys.exit(f"the server ended with {server.returncode}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--clients", default="1,8,16,32")
    p.add_argument("--tokens", type=int, default=400)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--sluice", default="build/release/sluice")
    o, o.options = p.parse_known_args()
    counts = [int(n) for n in o.clients.split(",")]
    seen = {(way, n): [] for way in WAYS for n in counts}
    alone = [bench(o, counts)]
    port = free_port()
    server = serve(o, port, max(counts))
    try:
        for i in range(o.rounds):
            for way, n in seen:
                seen[way, n].append(rate(port, n, o.tokens, way))
            print(f"round {i + 1}: " + ", ".join(f"{way} x {n} {r[-1]:.0f}" for (way, n), r in seen.items()), flush=True)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()
    alone.append(bench(o, counts))
    print("| clients | bench, before and after | " + " | ".join(f"{way}, tokens/s" for way in WAYS) + " | greedy / bench | " +
          " | ".join(f"{way} / greedy" for way in list(WAYS)[1:]) + " |")
    print("|--:|--:" + "|--:" * (2 * len(WAYS)) + "|")
    for n in counts:
        got = [statistics.median(seen[way, n]) for way in WAYS]
        both = [a[n] for a in alone]
        print(f"| {n} | {both[0]:.0f}, {both[1]:.0f} | " + " | ".join(f"{g:.0f}" for g in got) + f" | {got[0] / statistics.mean(both):.3f} | " +
              " | ".join(f"{g / got[0]:.3f}" for g in got[1:]) + " |")


if __name__ == "__main__":
    main()
