#!/usr/bin/env python3
"""What `make` does with and without HIP's compiler: WITH_HIP=1 fails without it and says what is missing, auto and 0 build
all but the kernels and say that they are left out. Prints TAP. Builds in a folder of its own.

usage: hip_build.py"""
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OBJECTS = ["backends/hip/images.o", "backends/hip/sources.o", "backends/hip/hip.o"]


def make(folder, *args, dry=False):
    """Exit code, and all that it said."""
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "WITH_HIP", "HIPCC", "HIP_ARCHS")}
    p = subprocess.run(["make", "--no-print-directory", "WITH_CUDA=0", f"B={folder}", *(["-n"] if dry else []), *args], cwd=ROOT, env=env,
                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return p.returncode, p.stdout.decode("utf-8", "replace")


def number(path, symbol):
    """The 64-bit number that an object has at a symbol of its .rodata."""
    said = subprocess.run(["nm", path], stdout=subprocess.PIPE, check=True).stdout.decode()
    at = next(int(line.split()[0], 16) for line in said.splitlines() if line.endswith(f" {symbol}"))
    with tempfile.NamedTemporaryFile() as f:
        subprocess.run(["objcopy", "-O", "binary", "--only-section=.rodata", path, f.name], check=True)
        return int.from_bytes(f.read()[at:at + 8], "little")


def must_fail(folder):
    code, said = make(folder, "WITH_HIP=1", "HIPCC=", dry=True)
    wanted = "WITH_HIP=1, but there is no hipcc on PATH or in /opt/rocm/bin; give HIPCC=/path/to/hipcc"
    return [] if code and wanted in said else [f"exit code {code}: {said[-300:]}"]


def leaves_out(folder, args, says):
    code, said = make(folder, *args, *[f"{folder}/{o}" for o in OBJECTS])
    if code or says not in said:
        return [f"exit code {code}, not '{says}': {said[-300:]}"]
    counts = [number(os.path.join(folder, OBJECTS[0]), "sl_hip_n_images"),
              number(os.path.join(folder, OBJECTS[1]), "sl_hip_n_sources")]
    return [] if counts == [0, 0] else [f"images and sources: {counts}"]


def broken(folder):
    """A hipcc that cannot compile ends the build, and what it said is shown."""
    hipcc = os.path.join(folder, "hipcc")
    with open(hipcc, "w", encoding="ascii") as f:
        f.write("#!/bin/sh\necho 'cannot find ROCm device library' >&2\nexit 1\n")
    os.chmod(hipcc, 0o755)
    code, said = make(folder, "WITH_HIP=1", f"HIPCC={hipcc}", "HIP_ARCHS=gfx000", f"HIP_DIR={folder}/code", f"{folder}/{OBJECTS[0]}")
    return [] if code and "cannot find ROCm device library" in said else [f"exit code {code}: {said[-300:]}"]


def whole(folder):
    """Sources come along with the code: a hipcc that writes something, which nobody runs."""
    hipcc = os.path.join(folder, "hipcc")
    with open(hipcc, "w", encoding="ascii") as f:
        f.write('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho code >"$2"\n')
    os.chmod(hipcc, 0o755)
    code, said = make(folder, "WITH_HIP=1", f"HIPCC={hipcc}", "HIP_ARCHS=gfx000", f"HIP_DIR={folder}/code",
                      *[f"{folder}/{o}" for o in OBJECTS])
    if code or "without HIP" in said:
        return [f"exit code {code}: {said[-300:]}"]
    n = len([name for name in os.listdir(os.path.join(ROOT, "backends", "kernels")) if name.endswith(".cu")])
    counts = [number(os.path.join(folder, OBJECTS[0]), "sl_hip_n_images"),
              number(os.path.join(folder, OBJECTS[1]), "sl_hip_n_sources")]
    return [] if counts == [n, n] else [f"{n} sources, but images and sources: {counts}"]


def main():
    tests = [
        ("WITH_HIP=1 without hipcc fails, and says what to do", must_fail),
        ("without hipcc all else is built, and make says so",
         lambda f: leaves_out(f, ["WITH_HIP=auto", "HIPCC="], "no hipcc: built without HIP kernels")),
        ("with WITH_HIP=0 as well", lambda f: leaves_out(f, ["WITH_HIP=0", "HIPCC=/bin/false"], "WITH_HIP=0: built without HIP kernels")),
        ("a hipcc that cannot compile ends the build", broken),
        ("with a hipcc, code and sources of each kernel file are embedded", whole),
    ]
    failed = 0
    for i, (name, test) in enumerate(tests):
        with tempfile.TemporaryDirectory(prefix="sluice-hip-build-") as folder:
            problems = test(folder)
        failed += bool(problems)
        print(f"{'not ok' if problems else 'ok'} {i + 1} - {name}")
        for p in problems:
            print("\n".join("# " + line for line in p.splitlines()))
    print(f"1..{len(tests)}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
