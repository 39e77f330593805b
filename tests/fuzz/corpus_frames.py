#!/usr/bin/env python3
"""Writes the fixed corpus of fuzz_frames: sound messages, and ones with a lie in them.

usage: corpus_frames.py DIR"""
import os
import struct
import sys


def u32(v):
    return struct.pack("<I", v)


def u64(v):
    return struct.pack("<Q", v)


def text(s):
    return u32(len(s)) + s.encode()


def f64(v):
    return struct.pack("<d", v)


DEVICE = text("cpu") + text("cpu") + text("a CPU of 8 threads") + text("cpu") + u64(32 << 30) + u64(0) + f64(0) + f64(0) + u32(8)
STAGE = u32(1) + u32(0) + u32(4) + u32(4) + u64(1 << 30) + u64(0) + u64(0) + b"\1"
LOAD = u64(7) + u32(2) + u32(8) + u32(512) + u32(3) + u32(64) + u32(256) + u64(0) + u32(1) + u32(0) + b"\0\0\0\0" + u32(8) + u32(24)
LOAD += u32(0) + u32(0)
READY = text("cpu") + b"\1\1\0" + u64(1) + u64(2) + b"".join(map(u32, (4, 4, 256, 256, 2560, 16, 4, 16))) + u64(4096) + u64(0) + u64(0)

FILES = {
    "head": b"\0" + b"SLCE" + struct.pack("<HHIIQQ", 1, 7, 3, 0, 1, 1000),
    "head-long": b"\0" + b"SLCE" + struct.pack("<HHIIQQ", 1, 7, 3, 0, 1, 1 << 63),
    "hello": b"\1" + u32(2) + u32(1) + text("0.9.0") + text("house") + b"\0",
    "hello-lines": b"\1" + u32(2) + u32(1) + text("0.9.0\n") + text("ho\x1buse") + b"\1",
    "model": b"\2" + u64(7) + u64(8) + text("m.gguf") + u32(2) + u64(1 << 40) + u64(4096) + u64(5) + u64(6),
    "model-many": b"\2" + u64(7) + u64(8) + text("m.gguf") + u32(33) + u64(1) * 66,
    "fetch": b"\3" + u32(1) + u64(1 << 22) + u32(1 << 22),
    "offer": b"\4" + u64(7) + text("m.gguf") + u64(2 << 30) + u64(0) + u64(14 << 20) + f64(2e9) + f64(5e10) + u32(1) + DEVICE,
    "offer-many": b"\4" + u64(7) + text("m.gguf") + u64(2 << 30) + u64(0) + u64(0) + f64(-1) + f64(5e10) + u32(9) + DEVICE * 9,
    "load": b"\5" + LOAD + u32(1) + STAGE,
    "load-cut": b"\5" + LOAD + u32(2) + STAGE,
    "progress": b"\6" + u64(3) + u64(5),
    "ready": b"\7" + u32(1) + READY,
    "refuse": b"\x08" + u32(81) + text("no"),
    "refuse-long": b"\x08" + u32(81) + u32(0xFFFFFFFF) + b"no",
}

for name, data in FILES.items():
    with open(os.path.join(sys.argv[1], name), "wb") as f:
        f.write(data)
