#!/usr/bin/env python3
"""The Vulkan backend under Khronos' validation layers, with checks of synchronisation: conformance programs and whole runs
must pass, and the layers must have nothing to say. That they would speak is seen first, on a run that lacks
barriers. Prints TAP; skipped where the layers, a driver or the backend are missing.

usage: vulkan_layers.py SLUICE FAULTY_FOLDER PROGRAM...

FAULTY_FOLDER holds tests/support/faulty_vulkan.c as libvulkan.so.1. The device is Mesa's lavapipe. A PROGRAM is one of the
conformance tests, with its arguments."""
import glob
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "fault"))
from vulkan_faults import find_driver, find_loader, shader_cache  # noqa: E402  (the path must be known first)

LAYER = "VK_LAYER_KHRONOS_validation"
FOLDERS = ("/usr/share/vulkan/explicit_layer.d", "/etc/vulkan/explicit_layer.d", "/usr/local/share/vulkan/explicit_layer.d")
SAID = re.compile(r"^.*(?:Validation (?:Error|Warning)|SYNC-HAZARD).*$", re.M)
RUN = ["-q", "-n", "6", "--temp", "0", "-p", "a b", "--heat-file", "off"]


class Tests:
    def __init__(self, sluice, faulty, folder):
        self.sluice, self.faulty, self.folder = sluice, faulty, folder
        self.n = self.failed = 0

    def run(self, argv, fault=None):
        env = dict(os.environ, VK_INSTANCE_LAYERS=LAYER, VK_LAYER_ENABLES="VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT",
                   VK_DRIVER_FILES=find_driver(), VK_ICD_FILENAMES=find_driver(), XDG_CACHE_HOME=self.folder,
                   MESA_SHADER_CACHE_DIR=shader_cache(self.sluice))
        if fault:
            path = env.get("LD_LIBRARY_PATH", "")
            env.update(LD_LIBRARY_PATH=self.faulty + (":" + path if path else ""), FAULTY_VULKAN=fault, FAULTY_VULKAN_LOADER=find_loader())
        p = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, timeout=600,
                           check=False)
        return p.returncode, p.stdout.decode("utf-8", "replace")

    def report(self, name, good, seen=""):
        self.n += 1
        self.failed += not good
        print(f"{'ok' if good else 'not ok'} {self.n} - {name}", flush=True)
        for line in seen.splitlines()[-20:] if not good else ():
            print(f"# {line[:400]}", flush=True)

    def clean(self, name, argv):
        code, said = self.run(argv)
        found = [m.group() for m in SAID.finditer(said)]
        self.report(f"{name}: the layers are silent", code == 0 and not found, "\n".join(found[:10]) or said)


def missing(sluice):
    """Why nothing can be run, or nothing."""
    if not find_loader() or not find_driver():
        return "lavapipe is not here"
    if not any(LAYER in open(f, encoding="utf-8").read() for d in FOLDERS for f in glob.glob(os.path.join(d, "*.json"))):
        return "the validation layers are not here"
    said = subprocess.run([sluice, "devices"], stdout=subprocess.PIPE, check=False).stdout.decode()
    return "" if re.search(r"^vulkan:\d", said, re.M) else "this build finds no Vulkan device"


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sluice, faulty = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    why = missing(sluice)
    if why:
        print(f"1..0 # SKIP {why}")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="sluice-layers-") as folder:
        t = Tests(sluice, faulty, folder)
        model = os.path.join(folder, "model.gguf")
        subprocess.run([sluice, "synth", "-q", "-o", model, "--layers", "2", "--vocab", "320", "-t", "Q8_0"], check=True)
        run = [sluice, "run", "-m", model, "--device", "vulkan:0"] + RUN
        code, said = t.run(run + ["--experts", "resident"], "twice")
        t.report("the layers find a barrier that is missing", "SYNC-HAZARD" in said, said)
        t.clean("experts resident", run + ["--experts", "resident"])
        t.clean("experts in tiers", run + ["--experts", "streamed", "--vram", "13MiB"])
        t.clean("two stages", [a if a != "vulkan:0" else "vulkan:0,0" for a in run])
        for program in sys.argv[3:]:
            argv = program.split()
            t.clean(" ".join([os.path.basename(argv[0])] + argv[1:]), argv + ["--backend", "vulkan", "--reference", "fast"])
        print(f"1..{t.n}")
    sys.exit(1 if t.failed else 0)


if __name__ == "__main__":
    main()
