#!/usr/bin/env python3
"""A file of 1 GiB through 50 cuts at random places, with its process killed by turns, until its sum is right.

usage: soak.py SLUICE [SEED]"""
import hashlib
import os
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from repository import Repository  # noqa: E402

SIZE, CUTS, KILLS = 1 << 30, 50, 5


def main():
    sluice = os.path.abspath(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 30)
    rng = random.Random(seed)
    print(f"# seed {seed}")
    data = b"".join(rng.randbytes(1 << 20) for _ in range(SIZE >> 20))
    with tempfile.TemporaryDirectory(prefix="sluice-soak-") as folder, Repository({"M.gguf": data}) as r:
        r.random, r.cuts = rng, CUTS
        words = [sluice, "pull", "own/model", "--dir", folder, "--endpoint", r.url, "--timeout-s", "3600"]  # a busy machine is no cut
        begun, kills = time.monotonic(), 0
        while True:
            child = subprocess.Popen(words, stdout=subprocess.DEVNULL)
            try:
                if child.wait(rng.uniform(0.2, 2) if kills < KILLS else None) != 0:
                    sys.exit(f"not ok 1 - it ended with {child.returncode}")
                break
            except subprocess.TimeoutExpired:
                kills += 1
                child.kill()
                child.wait()
        sent = sum(int(b) - int(a) + 1 for a, b in (q[1][6:].split("-") for q in r.requests if q[1]))
        with open(os.path.join(folder, "M.gguf"), "rb") as f:
            same = hashlib.file_digest(f, "sha256").digest() == hashlib.sha256(data).digest()
        print(f"# {CUTS - r.cuts} cuts, {kills} kills, {len(r.requests)} requests, {sent / SIZE:.2f} times its size asked for, "
              f"{time.monotonic() - begun:.1f} s")
        print(f"{'ok' if same and r.cuts == 0 else 'not ok'} 1 - 1 GiB through {CUTS} cuts")
        print("1..1")
        sys.exit(0 if same and r.cuts == 0 else 1)


main()
