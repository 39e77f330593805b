#!/usr/bin/env python3
"""Writes the fixed corpus of fuzz_handshake: how both sides of a real connection began, whole, cut and changed.

usage: corpus_handshake.py SLUICE MODEL DIR"""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cluster"))
import cluster  # noqa: E402
import hostile  # noqa: E402

sluice, model, out = sys.argv[1:]
with tempfile.TemporaryDirectory() as folder:
    t = cluster.Tests(os.path.abspath(sluice), os.path.abspath(model), folder)
    w = cluster.Worker(t, t.model, t.socket())
    tape = hostile.Recorder(hostile.socket.AF_UNIX, t.path("between"), w.at.removeprefix("unix:"))
    subprocess.run([t.sluice, "plan", "-m", t.model, "--device", "cpu", "--workers", "unix:" + t.path("between"), "--key-file", t.key],
                   stdout=subprocess.DEVNULL, check=True)
    w.end()
# 0: to a listener, 1: to who connected; then the size of the pieces, 0: all at once.
sides = {"coordinator": (b"\0", bytes(tape.sent[:1500])), "worker": (b"\1", bytes(tape.received[:1500]))}
for name, (side, data) in sides.items():
    changed = bytearray(data)
    changed[43] ^= 0xff
    for how, bytes_ in (("whole", b"\0" + data), ("pieces", b"\7" + data), ("cut", b"\0" + data[:100]), ("changed", b"\0" + bytes(changed)),
                        ("long", b"\0" + data[:3] + b"\xff\xff" + data[5:])):
        with open(os.path.join(out, f"{name}-{how}"), "wb") as f:
            f.write(side + bytes_)
with open(os.path.join(out, "frame"), "wb") as f:
    f.write(b"\0\0" + hostile.frame("HELLO", length=1 << 63))
