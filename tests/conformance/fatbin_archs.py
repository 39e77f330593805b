#!/usr/bin/env python3
"""Has each fatbin machine code for exactly these GPUs, and PTX of the newest for those to come? Prints TAP.

usage: fatbin_archs.py "75 80 90" FATBIN...

The container (cuobjdump -lelf -lptx prints the same): a header of 16 bytes, then entries, each a kind (1 PTX, 2 ELF), the
length of its header at 4 and of what follows at 8, and the architecture at 28. Little-endian."""
import os
import struct
import sys


def entries(data):
    """(kind, architecture) of each entry."""
    magic, _, header, size = struct.unpack_from("<IHHQ", data)
    if magic != 0xBA55ED50 or header + size > len(data):
        raise ValueError("not a fatbin")
    at, end = header, header + size
    while at < end:
        kind, _, head, payload = struct.unpack_from("<HHIQ", data, at)
        if head < 32 or at + head + payload > end:
            raise ValueError(f"an entry at {at} goes beyond the end")
        yield kind, struct.unpack_from("<I", data, at + 28)[0]
        at += head + payload


def main():
    if len(sys.argv) < 3:
        print("1..0 # SKIP built without nvcc: there are no kernels")
        sys.exit(77)
    want = [int(a) for a in sys.argv[1].split()]
    failed = 0
    for n, path in enumerate(sys.argv[2:], 1):
        try:
            with open(path, "rb") as f:
                have = list(entries(f.read()))
            code = sorted(arch for kind, arch in have if kind == 2)
            ptx = [arch for kind, arch in have if kind == 1]
            problem = "" if code == sorted(want) and ptx == [want[-1]] else f"machine code {code}, PTX {ptx}"
        except (ValueError, struct.error) as e:
            problem = str(e)
        failed += bool(problem)
        print(f"{'not ok' if problem else 'ok'} {n} - {os.path.basename(path)} is for sm {sys.argv[1]}, PTX {want[-1]}")
        if problem:
            print(f"# {problem}")
    print(f"1..{len(sys.argv) - 2}")
    sys.exit(1 if failed else 0)


main()
