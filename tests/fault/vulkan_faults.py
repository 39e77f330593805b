#!/usr/bin/env python3
"""A Vulkan device that is lost, gone, full or slow while the real binary works on it, or on it and another: what clients,
/health, the log and the exit say of it, and that nothing hangs. Prints TAP.

usage: vulkan_faults.py SLUICE FAULTY_FOLDER [OPTION...]

FAULTY_FOLDER holds tests/support/faulty_vulkan.c as libvulkan.so.1, which brings the faults about in front of the real
loader. The device is Mesa's lavapipe, which computes on the CPU; listed twice, it is two. Skipped where it is not, or in a
build without Vulkan. OPTIONs are added to every command."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gpu_faults  # noqa: E402  (the path must be known first)

DRIVERS = ("/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d")


def find_loader():
    """The real libvulkan.so.1, or nothing."""
    p = subprocess.run(["/sbin/ldconfig", "-p"], stdout=subprocess.PIPE, check=False)
    m = re.search(r"libvulkan\.so\.1 .*=> (\S+)", p.stdout.decode())
    return m and m.group(1)


def find_driver():
    """lavapipe's description, or nothing."""
    for folder in DRIVERS:
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            if name.startswith("lvp_icd"):
                return os.path.join(folder, name)
    return None


def shader_cache(sluice):
    """Where lavapipe keeps what it has compiled, by the code that it was made of: beside the program, so that of several runs
    only the first compiles. What sluice itself keeps goes elsewhere."""
    return os.path.join(os.path.dirname(sluice), "tests", "lavapipe")


class Tests(gpu_faults.Tests):
    backend, faulty_name = "vulkan", "faulty_vulkan"
    idle, took = "lost", "its memory is full"
    prompt, n_tokens = "A river. ", 24  # lavapipe computes slowly, prompts above all
    said = {"lost": ": the device is lost", "late": ": a submission does not end", "gone": ": is gone"}

    def __init__(self, sluice, faulty, options, folder):
        super().__init__(sluice, os.path.join(folder, "model.gguf"), faulty, None, options, folder)
        self.loader, icd = find_loader(), find_driver()
        # Each opens the driver again under another name: the loader drops what it has seen.
        self.icds = []
        for i in range(2 if icd else 0):
            self.icds.append(os.path.join(folder, f"lvp{i}.json"))
            shutil.copy(icd, self.icds[-1])

    def env(self, fault):
        path = os.environ.get("LD_LIBRARY_PATH", "")
        return dict(os.environ, LD_LIBRARY_PATH=self.faulty + (":" + path if path else ""), FAULTY_VULKAN=fault,
                    FAULTY_VULKAN_LOADER=self.loader, VK_DRIVER_FILES=":".join(self.icds),
                    VK_ICD_FILENAMES=":".join(self.icds), XDG_CACHE_HOME=self.folder,
                    MESA_SHADER_CACHE_DIR=shader_cache(self.sluice))

    def tells(self, fault):
        return self.said[fault]

    def synth(self):
        subprocess.run([self.sluice, "synth", "-q", "-o", self.model, "--layers", "2", "--vocab", "320", "-t", "Q8_0",
                        "--embd", "64", "--heads", "2", "--kv-heads", "1", "--head-dim", "32", "--experts", "8", "--expert-ff", "64"], check=True)

    def slow(self, options):
        """Waits that time out again and again: the same answer."""
        want, got = self.run(gpu_faults.RUN + ["-m", self.model] + options), None
        got = self.run(gpu_faults.RUN + ["-m", self.model] + options, "slow")
        good = want[0] == 0 == got[0] and want[1] == got[1] and "waits time out" in got[2]
        self.report("waits time out again and again: the same answer", [] if good else [f"{want[:2]} and {got[:2]}"], got[2])

    def old(self):
        """A driver that is too old is named, and so is why."""
        code, out, err = self.run(["devices", "--json"], "old")
        found = [d for d in json.loads(out)["devices"] if d["backend"] == "vulkan"] if not code else []
        good = found and all(not d["usable"] and "Vulkan 1.2; 1.3 is the least" in d["why_not"] for d in found)
        self.report("a driver of Vulkan 1.2 is refused", [] if good else [out[-300:] + err[-300:]])


def test(t):
    t.synth()
    resident, tiers = t.on("vulkan:0"), t.streamed("vulkan:0")
    t.old()
    t.slow(tiers)
    t.planned("device memory is what was planned, experts resident", resident)
    t.planned("device memory is what was planned, experts in tiers", tiers)
    t.faulted("the device is lost among answers, experts in tiers", "lost", tiers)
    t.faulted("the device is gone among answers, experts resident", "gone", resident)
    t.faulted("the device is lost at the start", "lost", resident, at_start=True)
    t.faulted("a submission does not end, two stages on one device", "late", t.on("vulkan:0,0"))
    t.full("memory runs out among answers, experts in tiers", tiers)
    t.allocations("experts in tiers", tiers, step=2)
    resident, tiers = t.on("vulkan:0,1"), t.streamed("vulkan:0,1")
    t.faulted("two devices: a submission on the second does not end, experts in tiers", "late", tiers, 1)
    t.faulted("two devices: the first is gone among answers", "gone", resident, 0)
    t.command("two devices: the second is lost under sluice run", resident, 1, "lost")


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory(prefix="sluice-vulkan-") as folder:
        t = Tests(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3:], folder)
        why = "libvulkan.so.1 is not here" if not t.loader else "lavapipe is not here" if not t.icds else ""
        if not why:
            said = t.run(["devices"])
            if said[0]:  # no reason to skip anything
                sys.exit(f"sluice devices ends with {said[0]}: {said[2][-500:]}")
            m = re.search(r"^vulkan +none: (.*)", said[1], re.M)
            why = m.group(1) if m else "" if "vulkan:1" in said[1] else "this build lists no Vulkan devices"
        if why:
            print(f"1..0 # SKIP {why}")
            sys.exit(77)
        test(t)
        print(f"1..{t.n}")
        sys.exit(1 if t.failed else 0)


if __name__ == "__main__":
    main()
