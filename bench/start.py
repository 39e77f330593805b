#!/usr/bin/env python3
"""From start to ready: how long `sluice serve` takes to answer, beside what reading its file takes.

    bench/start.py MODEL.gguf [--rounds 5] [--sluice build/release/sluice] [options of sluice serve]

Every round reads the whole file past the page cache, eight reads of 4 MiB at once, then starts the server until GET /health says
that it is ready; before each the file is dropped from the page cache. The ratio of the two is what counts: 1 means that nothing
but reading takes time, where all of the file is read (all resident, no layers for drafts). Medians over the rounds."""
import argparse
import json
import mmap
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "support"))
from ports import free_port  # noqa: E402

READ, READERS = 4 << 20, 8


def drop(path):
    fd = os.open(path, os.O_RDONLY)
    os.fdatasync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def read_whole(path):
    """Seconds."""
    drop(path)
    fd, size, lock, at = os.open(path, os.O_RDONLY | os.O_DIRECT), os.path.getsize(path), threading.Lock(), [0]

    def reader():
        buffer = mmap.mmap(-1, READ)
        while True:
            with lock:
                begin = at[0]
                at[0] += READ
            if begin >= size:
                return
            os.preadv(fd, [buffer], begin)

    threads = [threading.Thread(target=reader) for _ in range(READERS)]
    start = time.monotonic()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    os.close(fd)
    return time.monotonic() - start


def until_ready(o):
    """Seconds."""
    drop(o.model)
    port = free_port()
    start = time.monotonic()
    server = subprocess.Popen([o.sluice, "serve", "-m", o.model, "--port", str(port), "--heat-file", "off", *o.options],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    said = []
    drain = threading.Thread(target=lambda: said.extend(server.stderr), daemon=True)
    drain.start()
    try:
        while True:
            if server.poll() is not None:
                drain.join(1)
                sys.exit(f"the server ended with {server.returncode}: {''.join(said)[-800:]}")
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as r:
                    if r.status == 200 and json.load(r).get("status") == "ok":
                        return time.monotonic() - start
            except OSError: # not there yet, or 503
                pass
            time.sleep(0.01)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--sluice", default="build/release/sluice")
    o, o.options = p.parse_known_args()
    size = os.path.getsize(o.model)
    reads, starts = [], []
    for i in range(o.rounds):
        reads.append(read_whole(o.model))
        starts.append(until_ready(o))
        print(f"round {i + 1}: read in {reads[-1]:.2f} s ({size / reads[-1] / 1e9:.2f} GB/s), ready after {starts[-1]:.2f} s, "
              f"{starts[-1] / reads[-1]:.2f} times", flush=True)
    print(f"{size / 1e9:.2f} GB: read in {statistics.median(reads):.2f} s, ready after {statistics.median(starts):.2f} s, "
          f"median of the ratios {statistics.median(s / r for s, r in zip(starts, reads)):.2f}")


if __name__ == "__main__":
    main()
