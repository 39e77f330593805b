#!/usr/bin/env python3
"""What HIP's compiler made of the kernels: that each is there, and how many keep variables in memory that is not theirs alone
on the card (scratch), which is slow. Prints TAP.

usage: hip_code.py ASSEMBLY..."""
import re
import sys


def main():
    print(f"1..{len(sys.argv) - 1}")
    failed = 0
    for i, path in enumerate(sys.argv[1:], 1):
        with open(path, encoding="utf-8") as f:
            text = f.read()
        names = set(re.findall(r"^\s*\.amdhsa_kernel (\w+)$", text, re.M))
        scratch = [int(n) for n in re.findall(r"^\s*\.amdhsa_private_segment_fixed_size (\d+)$", text, re.M)]
        good = bool(names) and len(scratch) == len(names)
        failed += not good
        slow = sum(n > 0 for n in scratch)
        print(f"{'ok' if good else 'not ok'} {i} - {path}: {len(names)} kernels, {slow} with scratch, "
              f"{max(scratch, default=0)} bytes a lane at most")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
