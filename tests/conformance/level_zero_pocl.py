#!/usr/bin/env python3
"""The Level Zero backend, and the real binary with it, over the tests' driver, which runs the kernels' SPIR-V on the CPU by PoCL
(tests/support/ze_driver/ze_test.h). The loader validates parameters. Prints TAP; skipped, with the reason, where the loader,
the driver, PoCL or llvm-spirv are missing.

usage: level_zero_pocl.py SLUICE DRIVER PROGRAM...
       level_zero_pocl.py --env DRIVER

A PROGRAM is one of the conformance tests, with its arguments. --env prints the variables that such a run needs, for `env`."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RUN = ["-q", "-n", "6", "--temp", "0", "-p", "a b", "--heat-file", "off"]
PRODUCTS = ("test_matmul", "test_moe", "test_latent") # whose kernels there are for subgroups too
LOST, DEVICE_OOM, UNBUILT = "0x70000001", "0x70000003", "0x70000004"


def variables(driver):
    """What was compiled is kept beside the driver: of several runs only the first compiles."""
    kept = os.path.join(os.path.dirname(os.path.abspath(driver)), "pocl")
    return {"ZE_ENABLE_ALT_DRIVERS": os.path.abspath(driver), "ZE_TEST_CACHE": os.path.join(kept, "bitcode"), "ZE_TEST_DEVICES": "2",
            "ZE_TEST_EMULATED": os.path.join(ROOT, "build", "level_zero"),
            "POCL_CACHE_DIR": os.path.join(kept, "kernels"), "ZE_ENABLE_VALIDATION_LAYER": "1", "ZE_ENABLE_PARAMETER_VALIDATION": "1"}


def missing(driver):
    """Why nothing can be run, or nothing."""
    libs = subprocess.run(["/sbin/ldconfig", "-p"], stdout=subprocess.PIPE, check=False).stdout.decode()
    if not os.path.exists(driver):
        return "this build has no Level Zero, or no driver for its tests (ocl-icd-opencl-dev)"
    if "libze_loader.so.1 " not in libs:
        return "no libze_loader.so.1 (libze1)"
    if not glob.glob("/etc/OpenCL/vendors/pocl*.icd"):
        return "no PoCL (pocl-opencl-icd)"
    return "" if shutil.which("llvm-spirv-15") else "no llvm-spirv-15"


class Tests:
    def __init__(self, sluice, driver, folder):
        self.sluice, self.folder = sluice, folder
        self.env = dict(os.environ, **variables(driver))
        os.makedirs(self.env["ZE_TEST_CACHE"], exist_ok=True)
        self.model = os.path.join(folder, "model.gguf")
        self.n = self.failed = 0

    def run(self, argv, **env):
        p = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**self.env, **env},
                           timeout=600, check=False)
        return p.returncode, p.stdout.decode("utf-8", "replace"), p.stderr.decode("utf-8", "replace")

    def report(self, name, good, seen=""):
        self.n += 1
        self.failed += not good
        print(f"{'ok' if good else 'not ok'} {self.n} - {name}", flush=True)
        for line in str(seen).splitlines()[-20:] if not good else ():
            print(f"# {line[:400]}", flush=True)

    def devices(self, **env):
        code, out, err = self.run([self.sluice, "devices", "--json"], **env)
        said = json.loads(out) if code == 0 else {"devices": [], "missing": []}
        return [d for d in said["devices"] if d["backend"] == "level_zero"], said, err

    def answer(self, *args, model=None, **env):
        return self.run([self.sluice, "run", "-m", model or self.model, *RUN, *args], **env)

    def fails(self, name, pattern, *args, model=None, **env):
        code, out, err = self.answer(*args, model=model, **env)
        self.report(name, code > 0 and re.search(pattern, err), f"exit {code}\n{out}\n{err}")

    def score(self, *args, model=None, **env):
        ids, out = os.path.join(self.folder, "ids"), os.path.join(self.folder, "out.npy")
        with open(ids, "wb") as f:
            for i in range(40):
                f.write((i * 37 % 300).to_bytes(4, "little"))
        code, _, err = self.run([self.sluice, "score", "-m", model or self.model, "--ids", ids, "--logprobs", out, "--heat-file", "off", *args], **env)
        if code:
            return None, err
        with open(out, "rb") as f:
            return f.read(), err

    def near(self, cpu, here):
        """Whether log-probabilities of a quantised model are within bench/logprobs.py's bar."""
        files = [os.path.join(self.folder, name) for name in ("cpu.npy", "here.npy")]
        for path, what in zip(files, (cpu, here)):
            with open(path, "wb") as f:
                f.write(what)
        return self.run([sys.executable, os.path.join(ROOT, "bench", "logprobs.py"), *files, "quantised"])[0] == 0


def listed(t):
    found, said, err = t.devices()
    d = found[0] if found else {}
    t.report("two devices are listed", [x["id"] for x in found] == ["level_zero:0", "level_zero:1"], err)
    t.report("... with memory, kind, width and largest allocation", d.get("usable") and d["memory_bytes"] == 1 << 30 and
             d["kind"] == "discrete" and d["subgroup_width"] == 16 and d["max_alloc_bytes"] == 256 << 20, found)
    t.report("... and which kernels it has", d["name"].endswith(", dp4a"), found)
    found, said, err = t.devices(ZE_TEST_PLAIN="1")
    t.report("... without dp4a the plain ones", found and found[0]["name"].endswith(", plain"), found)
    found, said, err = t.devices(ZE_TEST_KIND="integrated")
    t.report("an integrated one is listed, and why it is not used", found and not found[0]["usable"] and
             found[0]["kind"] == "integrated" and "integrated GPUs" in found[0]["why_not"], found)
    found, said, err = t.devices(ZE_TEST_DEVICES="0")
    t.report("none, and why", not found and any(m["backend"] == "level_zero" and m["why"] for m in said["missing"]), said)
    code, out, err = t.run([t.sluice, "plan", "-m", t.model, "--device", "auto", "--json"])
    t.report("auto does not look at it", code == 0 and json.loads(out)["device"].startswith("cpu"), out + err)


def placed(t, name, model):
    """The same bits wherever experts and layers are."""
    here, err = t.score("--device", "level_zero:0", "--experts", "resident", model=model)
    cpu, _ = t.score("--device", "cpu", "-t", "2", model=model)
    t.report(f"{name}: the CPU's answers, within the bar", here and cpu and t.near(cpu, here), err)
    least = json.loads(t.run([t.sluice, "plan", "-m", model, "--device", "level_zero:0", "--experts", "streamed", "--vram", "1MiB",
                              "--json"])[1])["vram_least_bytes"]
    for where, args in (("experts in the least memory", ["--device", "level_zero:0", "--experts", "streamed", "--vram", f"{(least >> 20) + 1}MiB"]),
                        ("two stages", ["--device", "level_zero:0,0", "--experts", "resident"]),
                        ("two devices", ["--device", "level_zero:0,1", "--experts", "resident"]),
                        ("slices of 7 rows", ["--device", "level_zero:0", "-b", "7"])):
        there, err = t.score(*args, model=model)
        t.report(f"{name}, {where}: the same bits", here and there == here, err)
    there, err = t.score("--device", "level_zero:0", "--experts", "resident", model=model, ZE_TEST_PLAIN="1")
    t.report(f"{name}, plain kernels: the same bits", here and there == here, err)
    there, err = t.score("--device", "level_zero:0", "-b", "32", model=model, ZE_TEST_MAX_ALLOC_MIB="4", ZE_TEST_COPY_ENGINES="0")
    t.report(f"{name}, allocations of at most 4 MiB, and no copy engines: the same bits", here and there == here, err)


def replayed(t, name, model):
    """Steps as graphs, whole and layer by layer, say what they say without: the first list that is made for one fails, and then none is made."""
    for where, args in (("resident", ["--experts", "resident"]), ("streamed", ["--experts", "streamed", "--vram", "16MiB"])):
        on = ["--device", "level_zero:0", "-n", "24", *args]
        code, out, err = t.answer(*on, model=model)
        without, there, said = t.answer(*on, model=model, ZE_TEST_FAIL=f"zeCommandListCreate:1:{DEVICE_OOM}")
        t.report(f"{name}, {where}: the same answer with graphs and without", code == without == 0 and out and out == there and
                 "keeps no graphs" in said and "keeps no graphs" not in err, f"{code} {without}\n{out}\n{there}\n{err}\n{said}")


def own_kib(pid):
    """Of a process's memory what is its own: not the devices', which their driver shares (RssShmem)."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as f:
            kib = dict(line.split(":", 1) for line in f)
        return int(kib["VmRSS"].split()[0]) - int(kib["RssShmem"].split()[0]), int(kib["RssShmem"].split()[0])
    except (OSError, KeyError):  # it has ended
        return 0, 0


def memory_of(t, model, device):
    """The most memory of its own that a run has, and of the devices', in KiB, looked at every few milliseconds."""
    argv = [t.sluice, "run", "-m", model, *RUN, "--device", device, "--experts", "resident"]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=t.env) as p:
        most, most_there = 0, 0
        while p.poll() is None:
            own, there = own_kib(p.pid)
            most, most_there = max(most, own), max(most_there, there)
            time.sleep(0.005)
        out = p.stdout.read().decode("utf-8", "replace")
    return most, most_there, p.returncode, out


def host_memory(t):
    """Weights are on the cards alone: a model of 64 MiB more takes hardly more of the process's memory than a small one, and two cards
    hardly more than one. A copy in host memory of what is on a card, or of one card's on the other, would show."""
    model, slack = os.path.join(t.folder, "large.gguf"), 32 << 10
    t.run([t.sluice, "synth", "-q", "-o", model, "--layers", "18", "--embd", "1024", "--ff", "2048", "--vocab", "4096", "-t", "Q8_0"])
    memory_of(t, model, "level_zero:0,1")  # compiles kernels, which takes memory of its own
    (small, there0, code0, out0), (one, there1, code1, out1), (two, there2, code2, out2) = \
        (memory_of(t, m, device) for m, device in ((t.model, "level_zero:0"), (model, "level_zero:0"), (model, "level_zero:0,1")))
    seen = f"small {small} KiB and {there0} on the card, one {one} and {there1}, two {two} and {there2}\n{out0}\n{out1}\n{out2}"
    print(f"# memory: {seen.splitlines()[0]}", flush=True)
    t.report("memory: the model is on the cards, with one and with two", code0 == code1 == code2 == 0 and
             min(there1, there2) > there0 + 2 * slack, seen)
    t.report("... and takes within 32 MiB of a small one of the process's own", small and one <= small + slack, seen)
    t.report("... with two cards within 32 MiB of one", one and two <= one + slack, seen)


def failing(t):
    on = ["--device", "level_zero:0", "--experts", "resident"]
    for n in (1, 2):
        t.fails(f"no device memory at allocation {n}", "level_zero:0: .*device memory", *on, ZE_TEST_FAIL=f"zeMemAllocDevice:{n}:{DEVICE_OOM}")
    for call in ("zeCommandListAppendLaunchKernel:9", "zeCommandQueueExecuteCommandLists:2", "zeEventHostSynchronize:2", "zeCommandListAppendMemoryCopy:3"):
        t.fails(f"the device is lost at {call}", r"level_zero:0: .*the device is given up", *on, ZE_TEST_FAIL=f"{call}:{LOST}")
    t.fails("a kernel that does not compile", "does not compile the kernel", *on, ZE_TEST_FAIL=f"zeModuleCreate:2:{UNBUILT}")
    t.fails("no host memory to map", "level_zero:0: the system does not lock", "--device", "level_zero:0", "--experts", "streamed", "--vram",
            "13MiB", ZE_TEST_FAIL="zexDriverImportExternalPointer:1:0x70000002")
    other = os.path.join(t.folder, "other.gguf")
    t.run([t.sluice, "synth", "-q", "-o", other, "--arch", "minimax-m3", "--layers", "4", "--vocab", "320"])
    t.fails("a model with an op that it lacks is refused by name", r"device level_zero:0 has no op '\w+'", *on, model=other)


def main():
    if sys.argv[1:2] == ["--env"] and len(sys.argv) == 3:
        env = variables(sys.argv[2])
        os.makedirs(env["ZE_TEST_CACHE"], exist_ok=True)
        print(" ".join(f"{k}={v}" for k, v in env.items()))
        sys.exit(0)
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sluice, driver = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    why = missing(driver)
    if why:
        print(f"1..0 # SKIP {why}")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="sluice-lz-") as folder:
        t = Tests(sluice, driver, folder)
        t.run([sluice, "synth", "-q", "-o", t.model, "--layers", "2", "--vocab", "320", "-t", "Q8_0"])
        listed(t)
        placed(t, "attention", t.model)
        replayed(t, "attention", t.model)
        delta = os.path.join(folder, "delta.gguf")
        t.run([sluice, "synth", "-q", "-o", delta, "--arch", "qwen35moe", "--layers", "4", "--vocab", "320", "-t", "Q8_0"])
        placed(t, "gated delta nets", delta)
        replayed(t, "gated delta nets", delta)
        host_memory(t)
        failing(t)
        for program in sys.argv[3:]:
            argv = program.split()
            name = os.path.basename(argv[0])
            for plain in ("0", "1") if name in PRODUCTS else ("0",):
                code, out, err = t.run(argv + ["--backend", "level_zero", "--reference", "fast"], ZE_TEST_PLAIN=plain)
                t.report(" ".join([name] + argv[1:] + ["plain"] * int(plain)), code == 0, out + err)
        print(f"1..{t.n}")
    sys.exit(1 if t.failed else 0)


if __name__ == "__main__":
    main()
