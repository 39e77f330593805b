#!/usr/bin/env python3
"""Writes the fixed corpus of fuzz_stages: sound messages within its limits, and ones with a lie in them.

usage: corpus_stages.py DIR"""
import os
import struct
import sys

# As fuzz_stages.c has them, and what every answer carries (struct sl_stage_counts, sl_activity_sums).
ROW, EMBD, VOCAB, BLOCKS, PAGE, TAIL, HEAT = 8, 4, 70, 2, 48, 16, 28
COUNTS, SUMS = 15, 24
STEP, LOGITS, READ_PAGE, WRITE_PAGE, EXPERTS, HEAT_OF, DISK, HELLO, HIDDEN = 3, 4, 5, 6, 7, 8, 10, 0, 13


def u32(*v):
    return struct.pack(f"<{len(v)}I", *v)


def u64(*v):
    return struct.pack(f"<{len(v)}Q", *v)


def head(kind, what):
    return struct.pack("<HHIQH", 3, kind, 0, 77, what)


def ask(what, fields=b"", first=0):
    return bytes([first, 0]) + head(0, what) + fields


def answer(which, what, fields=b"", status=0):
    return bytes([1, which]) + head(1, what) + u32(status & 0xFFFFFFFF) + u32(2) + b"ok\0\0" + u64(*[0] * (COUNTS + SUMS)) + fields


def rows(fields):
    return bytes([4, 0]) + head(3, STEP) + fields


def step_ahead(n_failed=0, n_out=4, sent=0):
    """A step of generated rows alone, which follow."""
    n = 4
    pos = [30 + i for i in range(n)]
    out = u32(1, n, n, n_out, n_failed) + bytes([0, 1, 0, sent, 1]) + u32(*range(n)) + u32(*pos) + u32(*[8] * n) + u32(*[4] * n)
    out += u32(*[i % 2 for i in range(n)]) + u32(*[p + 1 for p in pos]) + u32(*range(n_out)) + bytes(4 * n_out)
    out += bytes(i < n_failed for i in range(n)) + u32(1, 3, 1, 2) + u32(0, 0) + u32(2, 3, 3) + u32(0, 0)
    return out + bytes(sent * 4 * n * ROW)


def step(n_rows=4, pages=((1, 3, 1, 2), (0, 0)), slot=8, sent=1, micro_batch=1):
    n = n_rows
    pos = [30 + i for i in range(n)]
    out = u32(micro_batch, n, 2, 2, 1) + bytes([0, 1, 0, sent, 0]) + u32(*range(n)) + u32(*pos) + u32(*[slot] * n) + u32(*[4] * n)
    out += u32(*[i % 2 for i in range(n)]) + u32(*[p + 1 for p in pos]) + u32(0, 1) + struct.pack("<2f", 0.5, 1.5)
    out += bytes(i == 2 for i in range(n)) + b"".join(u32(*p) for p in pages) + u32(2, 3, 3) + u32(0, 0)
    return out + (struct.pack(f"<{n * ROW}f", *range(n * ROW)) if sent else b"")


LOGITS_OF = u32(2) + b"\1\1\1\0\0" + bytes(4 * 2 * VOCAB) + bytes(2 * 4 * 2 * BLOCKS)
STEP_ANSWER = u32(2) + b"\1" + u64(5, 9) + b"\0\0\1\1" + LOGITS_OF + bytes(4 * 4 * ROW)
HELLO_ANSWER = u64(1, 2) + u32(3) + b"cpu" + b"\1\1\0" + u64(1, 2) + u32(0, 4, 8, 4, 70, 3, 2, 5) + u64(48, 16, 28)

FILES = {
    "step": ask(STEP, step()),
    "step-none": ask(STEP, step(sent=0)),
    "step-ahead": ask(STEP, step_ahead()),
    "step-ahead-failed": ask(STEP, step_ahead(n_failed=1)),
    "step-ahead-out": ask(STEP, step_ahead(n_out=3)),
    "step-ahead-sent": ask(STEP, step_ahead(sent=1)),
    "rows": rows(b"\1" + bytes(4 * 4 * ROW)),
    "rows-none": rows(b"\0"),
    "rows-few": rows(b"\1" + bytes(4 * 3 * ROW)),
    "rows-more": rows(b"\0" + bytes(4)),
    "step-slot": ask(STEP, step(slot=9 * 64)),
    "step-pages": ask(STEP, step(pages=((1, 3, 1, 9), (0, 0)))),
    "step-range": ask(STEP, step(pages=((3, 1), (0, 5)))),
    "step-batch": ask(STEP, step(micro_batch=2)),
    "step-length": ask(STEP, step(), 2),
    "logits": ask(LOGITS, u32(1, 0, 3)),
    "hidden": ask(HIDDEN, u32(0, 1, 2)),
    "read-page": ask(READ_PAGE, u32(8, 4) + b"\1"),
    "read-none": ask(READ_PAGE, u32(0xFFFFFFFF, 0xFFFFFFFF) + b"\0"),
    "write-page": ask(WRITE_PAGE, u32(8, 4) + b"\1" + bytes(PAGE + TAIL)),
    "write-short": ask(WRITE_PAGE, u32(8, 4) + b"\1" + bytes(PAGE)),
    "experts": ask(EXPERTS),
    "heat": ask(HEAT_OF),
    "disk": ask(DISK, struct.pack("<d", 0.3)),
    "disk-nan": ask(DISK, struct.pack("<d", float("nan"))),
    "cancel": bytes([0, 0]) + head(2, 0),
    "answer-step": answer(0, STEP, STEP_ANSWER),
    "answer-step-largest": answer(0, STEP, u32(1) + b"\0" + u64(5, 9) + b"\0\0\1\0" + u32(2) + b"\0\0\0\0\1" + u32(1, 0x40000000, 3, 0, 0, 63)),
    "answer-step-largest-block": answer(0, STEP, u32(1) + b"\0" + u64(5, 9) + b"\0\0\1\0" + u32(2) + b"\0\0\0\0\1" + u32(2, 0, 3, 0, 0, 63)),
    "answer-step-failed": answer(0, STEP, u32(1) + b"\0" + u64(5, 9) + b"\0\0\1\0" + u32(0) + bytes(5), -5),
    "answer-step-more": answer(0, STEP, STEP_ANSWER.replace(u32(2) + b"\1\1\1\0\0", u32(4) + b"\1\1\1\1\0")),
    "answer-logits": answer(1, LOGITS, bytes(4 * 2 * VOCAB)),
    "answer-hidden": answer(2, HIDDEN, bytes(4 * 2 * EMBD)),
    "answer-page": answer(3, READ_PAGE, bytes(PAGE + TAIL)),
    "answer-written": answer(4, WRITE_PAGE),
    "answer-experts": answer(5, EXPERTS, bytes(10)),
    "answer-heat": answer(6, HEAT_OF, bytes(HEAT)),
    "answer-disk": answer(7, DISK, struct.pack("<d", 2e9)),
    "answer-disk-inf": answer(7, DISK, struct.pack("<d", float("inf"))),
    "answer-hello": answer(8, HELLO, HELLO_ANSWER),
    "answer-status": answer(6, HEAT_OF, b"", -200),
}

for name, data in FILES.items():
    with open(os.path.join(sys.argv[1], name), "wb") as f:
        f.write(data)
