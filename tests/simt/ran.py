#!/usr/bin/env python3
"""Which kernels did no emulated run reach? Those are skipped tests. Prints TAP.

usage: ran.py LIBSIMT RAN

RAN has the names of those that ran, a line each, as SIMT_RAN made the runs write them."""
import ctypes
import sys

class Kernel(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("run", ctypes.c_void_p), ("args_bytes", ctypes.c_size_t)]


def main():
    lib = ctypes.CDLL(sys.argv[1])
    n = ctypes.c_size_t.in_dll(lib, "simt_n_kernels").value
    kernels = [(k.name.decode(), bool(k.run)) for k in (Kernel * n).in_dll(lib, "simt_kernels")]
    with open(sys.argv[2]) as f:
        ran = set(f.read().split())
    print(f"1..{n}")
    for i, (name, there) in enumerate(kernels, 1):
        if not there:
            print(f"ok {i} - {name} # SKIP the sources have no such kernel")
        elif name in ran:
            print(f"ok {i} - {name}")
        else:
            print(f"ok {i} - {name} # SKIP no op of the conformance reached it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
