#!/usr/bin/env python3
"""What Intel's offline compiler (ocloc, Debian's intel-opencl-icd) makes of the Level Zero backend's kernels: every SPIR-V module of
FOLDER for every TARGET. Without a card this is all that can be known of the machine code: that there is some, that none
needs memory of a thread's own (spilled registers, arrays that are none), that products by subgroups have dp4a where the target has
it, run 16 lanes wide, and meet at no barrier. Prints TAP; skipped where ocloc is not installed.

usage: level_zero_ocloc.py FOLDER [--show PART_OF_A_NAME]

What was found is kept in FOLDER/ocloc.json, by the module's hash and the compiler's version: only changed modules are compiled again.
--show prints it for some modules."""
import ctypes
import glob
import hashlib
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile

TARGETS = ("skl", "tgllp", "adls", "dg1", "dg2")
HAVE_DP4A = TARGETS[1:]
SUBGROUPS = re.compile(r"^(matmul|moe|head)_quant_(one|few)\.")
FORMAT = 1  # of what is kept


def invoke(lib, argv, name, data):
    """Runs ocloc in this process; its status and the files that it wrote."""
    args = (ctypes.c_char_p * len(argv))(*[a.encode() for a in argv])
    n, datas = ctypes.c_uint32(), ctypes.POINTER(ctypes.c_void_p)()
    lengths, names = ctypes.POINTER(ctypes.c_uint64)(), ctypes.POINTER(ctypes.c_char_p)()
    code = lib.oclocInvoke(len(argv), args, 1, (ctypes.c_char_p * 1)(data), (ctypes.c_uint64 * 1)(len(data)),
                           (ctypes.c_char_p * 1)(name.encode()), 0, None, None, None, ctypes.byref(n), ctypes.byref(datas),
                           ctypes.byref(lengths), ctypes.byref(names))
    files = {names[i].decode(): ctypes.string_at(datas[i], lengths[i]) for i in range(n.value)}
    lib.oclocFreeOutput(ctypes.byref(n), ctypes.byref(datas), ctypes.byref(lengths), ctypes.byref(names))
    return code, files


def kernel_part(info, kernel):
    """What the binary says of a kernel, of .ze_info."""
    for part in re.split(r"\n  - name: +", info.split("\nkernels_misc_info:")[0])[1:]:
        if part.split("\n")[0].strip() == kernel:
            return part
    return ""


def number(part, key):
    found = re.search(rf"\b{key}: +(\d+)", part)
    return int(found.group(1)) if found else 0


def examine(job):
    """Facts of one module for one target."""
    path, target = job
    lib = examine.lib = getattr(examine, "lib", None) or ctypes.CDLL("libocloc.so")
    kernel = os.path.basename(path).split(".")[0]
    with open(path, "rb") as f:
        spirv = f.read()
    code, out = invoke(lib, ["ocloc", "compile", "-q", "-spirv_input", "-file", "k.spv", "-device", target, "--format", "zebin", "-output",
                             "k", "-output_no_suffix"], "k.spv", spirv)
    if code or "k" not in out:
        return {"error": out.get("stdout.log", b"").decode("utf-8", "replace")[-400:] or f"status {code}"}
    code, out = invoke(lib, ["ocloc", "disasm", "-file", "k", "-device", target, "-dump", "d"], "k", out["k"])
    part = kernel_part(out.get("d/.ze_info", b"").decode("utf-8", "replace"), kernel)
    asm = out.get(f"d/.text.{kernel}.asm", b"").decode("utf-8", "replace")
    own = part.split("per_thread_memory_buffers:")[1] if "per_thread_memory_buffers:" in part else ""
    return {"error": "" if part and asm else "the binary cannot be read", "simd": number(part, "simd_size"), "own_bytes": number(own, "size"),
            "barriers": number(part, "barrier_count"), "local_bytes": number(part, "slm_size"), "dp4a": len(re.findall(r"\bdp4a ", asm)),
            "instructions": len(re.findall(r"\|M\d", asm))}


class Facts:
    def __init__(self, folder):
        self.path = os.path.join(folder, "ocloc.json")
        self.version = f"{FORMAT} " + subprocess.run(["ocloc", "query", "OCL_DRIVER_VERSION"], cwd=tempfile.gettempdir(), check=False,
                                                     stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.decode("utf-8", "replace").strip()
        self.version += "".join(f" {os.path.getsize(p)}" for p in glob.glob("/usr/lib/*/libigc.so.1.*"))
        try:
            with open(self.path, encoding="utf-8") as f:
                kept = json.load(f)
            self.kept = kept["facts"] if kept["version"] == self.version else {}
        except (OSError, ValueError, KeyError):
            self.kept = {}

    def of(self, paths):
        """{(name, target): facts}"""
        key = {}
        for path in paths:
            with open(path, "rb") as f:
                key[path] = hashlib.sha256(f.read()).hexdigest()
        jobs = [(p, t) for p in paths for t in TARGETS if f"{key[p]} {t}" not in self.kept]
        if jobs:
            with multiprocessing.get_context("spawn").Pool(min(4, os.cpu_count() or 1)) as pool:
                for (path, target), facts in zip(jobs, pool.imap(examine, jobs, 8)):
                    self.kept[f"{key[path]} {target}"] = facts
        used = {f"{key[p]} {t}": self.kept[f"{key[p]} {t}"] for p in paths for t in TARGETS}
        with open(self.path + ".new", "w", encoding="utf-8") as f:
            json.dump({"version": self.version, "facts": used}, f)
        os.replace(self.path + ".new", self.path)
        return {(os.path.basename(p)[:-4], t): used[f"{key[p]} {t}"] for p in paths for t in TARGETS}


class Report:
    def __init__(self):
        self.n = self.failed = 0

    def say(self, name, wrong):
        self.n += 1
        self.failed += bool(wrong)
        print(f"{'not ok' if wrong else 'ok'} {self.n} - {name}", flush=True)
        for line in wrong[:20]:
            print(f"# {line[:300]}")


def check(r, facts):
    names = sorted({name for name, _ in facts})
    subs = [n for n in names if SUBGROUPS.match(n)]
    good = {k: f for k, f in facts.items() if not f["error"]}
    for t in TARGETS:
        r.say(f"{t}: {len(names)} modules compile", [f"{n}: {facts[n, t]['error']}" for n in names if facts[n, t]["error"]])
        there = [n for n in names if (n, t) in good]
        if t != "skl":  # integrated, and without dp4a: what is by subgroups is not for it
            r.say(f"{t}: no kernel has memory of a thread's own",
                  [f"{n}: {good[n, t]['own_bytes']} bytes" for n in there if good[n, t]["own_bytes"]])
        r.say(f"{t}: {len(subs)} products by subgroups, of 16", [] if len(subs) == 100 else ["there are to be 100"] +
              [f"{n}: {good[n, t]['simd']}" for n in subs if (n, t) in good and good[n, t]["simd"] != 16])
        r.say(f"{t}: ... without barriers or local memory", [f"{n}: {good[n, t]}" for n in subs if (n, t) in good and
                                                               (good[n, t]["barriers"] or good[n, t]["local_bytes"])])
        least = 8 if t in HAVE_DP4A else 0  # a piece of 32
        r.say(f"{t}: ... {'by' if least else 'without'} dp4a", [f"{n}: {good[n, t]['dp4a']}" for n in subs if (n, t) in good and
                                                               (good[n, t]["dp4a"] < least or not least and good[n, t]["dp4a"])])


def main():
    show = sys.argv[3] if sys.argv[2:3] == ["--show"] and len(sys.argv) == 4 else None
    if len(sys.argv) != 2 and show is None:
        sys.exit(__doc__)
    paths = sorted(glob.glob(os.path.join(sys.argv[1], "*.spv")))
    iga = glob.glob("/usr/lib/*/libiga64.so.1")
    why = "no modules: this build has no Level Zero" if not paths else "no ocloc (intel-opencl-icd)" if not shutil.which("ocloc") else \
        "no libiga64.so.1, by which ocloc disassembles (libigc1)" if not iga else ""
    if why:
        print(f"1..0 # SKIP {why}")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="sluice-ocloc-") as folder:
        # ocloc opens it by the name that only a development package would give it.
        os.symlink(iga[0], os.path.join(folder, "libiga64.so"))
        os.environ["LD_LIBRARY_PATH"] = ":".join(filter(None, [folder, os.environ.get("LD_LIBRARY_PATH", "")]))
        facts = Facts(sys.argv[1]).of(paths)
    if show is not None:
        for (name, target), f in sorted(facts.items()):
            if show in name:
                print(name, target, json.dumps(f))
        return
    r = Report()
    check(r, facts)
    print(f"1..{r.n}")
    sys.exit(1 if r.failed else 0)


if __name__ == "__main__":
    main()
