#!/usr/bin/env python3
"""What a link costs a model over two machines: decode and prefill over links of a given rate and delay, beside what the same split
takes over a link without either, plus bytes over rate, plus round trips. A round trip is what a byte there and back takes over
that link, measured: the relay that delays has threads of its own to wake. All are measured in turns, and the least of all turns
counts: what other work on the machine adds is least in it.

usage: cluster_links.py SLUICE [--turns N] [--model FILE --width N]

Without --model it makes one of width 2048. Needs root, iproute2 and nftables."""
import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "cluster"))
import cluster  # noqa: E402
import links  # noqa: E402

# Little to compute for its width, so that the link shows.
SHAPE = ["--layers", "2", "--embd", "2048", "--heads", "8", "--kv-heads", "1", "--head-dim", "128", "--experts", "8", "--top-k", "2",
         "--expert-ff", "256"]
LINKS = [(10**9, 0), (10**10, 0), (10**9, 0.3), (10**9, 20), (10**10, 0.3), (10**10, 20)]
PROMPT, ANSWER, SLICE = 2048, 100, 512


def measure(sluice, model, at, key):
    """(seconds of a prompt, seconds of a generated token)"""
    argv = [sluice, "bench", "-m", model, "--device", "cpu", "-t", "1", "--workers", at, "--key-file", key, "-p", str(PROMPT), "-n",
            str(ANSWER), "-r", "1", "-b", str(SLICE), "--json"]
    rows = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    rate = {row["test"]: row["avg_ts"] for row in rows}
    return PROMPT / rate[f"pp{PROMPT}"], 1 / rate[f"tg{ANSWER}"]


ECHO = """
import socket
listener = socket.create_server(("", 7071))
while True:
    s, _ = listener.accept()
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := s.recv(1):
        s.sendall(data)
"""


def round_trip(to):
    """Seconds that a byte takes there and back, the least of 100."""
    host, port = to.rsplit(":", 1)
    least = 1.0
    with socket.create_connection((host, int(port)), timeout=5) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(100):
            start = time.monotonic()
            s.sendall(b"x")
            s.recv(1)
            least = min(least, time.monotonic() - start)
    return least


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("sluice")
    p.add_argument("--turns", type=int, default=5)
    p.add_argument("--model")
    p.add_argument("--width", type=int, default=2048)
    a = p.parse_args()
    why = links.why_not()
    if why:
        sys.exit(f"no such links here: {why}")
    links.go_inside()
    sluice = os.path.abspath(a.sluice)
    with tempfile.TemporaryDirectory() as folder:
        t = cluster.Tests(sluice, a.model, folder)
        t.model = os.path.abspath(a.model) if a.model else t.synth("wide", ["--ctx", "4096", *SHAPE])
        width = a.width
        m = links.Machine(0)
        try:
            w = cluster.Worker(t, t.model, f"{m.address}:7070", within=m.command())
            echo, echoes = f"{m.address}:7071", subprocess.Popen(m.command(sys.executable, "-c", ECHO))
            print(f"width {width}: {4 * width} bytes a row; prompts of {PROMPT} tokens in slices of {SLICE}; the least of {a.turns} turns\n")
            print("|       link |      ms | round trip, ms | prompt, s | computed | ratio | a token, ms | computed | ratio |")
            print("|-----------:|--------:|---------------:|----------:|---------:|------:|------------:|---------:|------:|")
            for rate, ms in LINKS:
                turns = []
                for _ in range(a.turns):
                    m.set_rate(0)
                    plain = measure(sluice, t.model, w.at, t.key)
                    m.set_rate(rate)
                    between = links.Delay(w.at, ms / 2000) if ms else w
                    shaped = measure(sluice, t.model, between.at, t.key)
                    m.set_rate(0)
                    plain_trip = round_trip(echo)
                    relay = links.Delay(echo, ms / 2000) if ms else None
                    trip = round_trip(relay.at) - plain_trip if relay else 0
                    if ms:
                        between.end()
                        relay.end()
                    turns.append((*shaped, *plain, trip))
                s0, s1, p0, p1, trip = (min(column) for column in zip(*turns))
                row_s = 4 * width * 8 / rate
                c0, c1 = p0 + PROMPT * row_s + PROMPT / SLICE * trip, p1 + row_s + trip
                print(f"| {rate / 1e9:3.0f} Gbit/s | {ms:7.1f} | {trip * 1e3:14.2f} | {s0:9.2f} | {c0:8.2f} | {s0 / c0:5.2f} | {s1 * 1e3:11.2f} | {c1 * 1e3:8.2f} | {s1 / c1:5.2f} |", flush=True)
            w.end()
            echoes.kill()
        finally:
            m.end()


if __name__ == "__main__":
    main()
