#!/usr/bin/env python3
"""HIP's runtime over NVIDIA's driver (tests/support/hip_nvidia/) exports what backends/hip/ looks for, and nothing else of
HIP's. Prints TAP.

usage: hip_nvidia_symbols.py LIBRARY"""
import glob
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Of a device's properties the older form, which the newer one stands for.
OTHER_FORMS = {"hipGetDeviceProperties"}


def main():
    asked = set()
    for path in glob.glob(os.path.join(ROOT, "backends/hip/*.c")):
        with open(path, encoding="utf-8") as f:
            asked |= set(re.findall(r'"(hip(?:rtc)?[A-Z]\w+)"', f.read()))
    said = subprocess.run(["nm", "-D", "--defined-only", sys.argv[1]], stdout=subprocess.PIPE, check=True).stdout.decode()
    has = {line.split()[-1] for line in said.splitlines()}
    has = {name for name in has if name.startswith("hip")}
    print("1..2")
    ok = True
    for i, (what, wrong) in enumerate([("it has all that is looked for", sorted(asked - has - OTHER_FORMS) or ([] if len(asked) > 40 else ["few are asked for"])),
                                       ("and nothing else of HIP's", sorted(has - asked))]):
        ok &= not wrong
        print(f"{'not ' if wrong else ''}ok {i + 1} - {what}{': ' + ' '.join(wrong) if wrong else ''}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
