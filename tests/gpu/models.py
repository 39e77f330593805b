#!/usr/bin/env python3
"""Small models of every architecture and tensor type on a GPU: its log-probabilities beside the CPU's (bench/logprobs.py has
the bars), and the same bits wherever experts and layers are: in as little memory as will do, in a little more, as two
stages and as four, on two such devices where there are, in slices of 37 rows; scored and generated; generated also with parts of the experts
computed by the CPU lane.

usage: models.py SLUICE [--device DEVICE] [--only TEXT]... [--jobs N] [--positions N]

DEVICE: cuda:0 unless said. N jobs at once (4). Prints TAP; all is skipped where there is no such device."""
import argparse
import array
import concurrent.futures
import filecmp
import json
import os
import random
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(HERE, os.pardir, "peer"))
from cases import CASES, CHOICES, CHOSEN, KL, MOE, REFERENCE  # noqa: E402  (the path must be known first)

VOCAB = 1024
# What a model says whose layers cannot be parted so often: one with an indexer in its first layer alone, or whose last ones share keys.
NO_TWO_STAGES = ("must be where the layer before them is",)
# Heads, latents and blocks as large as the models' own, for which a GPU has other kernels than for those of the small models.
LARGE = [
    ("dots3note q8_0, latents of 512 and 1024", f"--arch dots3note -t Q8_0 {MOE} --layers 3 --dense-layers 1 --heads 3 --head-dim 192 "
     "--rotated 64 --value-dim 128 --latent 512 --q-lora 64 --window 48 --window-heads 2 --window-head-dim 256 --window-value-dim 128 "
     "--window-latent 1024 --window-rope-base 50000 --index-heads 9 --index-dim 128 --index-top 64 --sigmoid", KL),
    ("minimax-m3 q8_0, 16 heads of 128 to a KV head, blocks of 128", f"--arch minimax-m3 -t Q8_0 {MOE} --layers 3 --dense-layers 1 "
     "--heads 16 --kv-heads 1 --head-dim 128 --rotated 64 --shared-ff 128 --index-dim 128 --index-block 128 --index-top 2", KL),
]
PROMPT = "Tell me a story about a river and a mill, at length, and tell it slowly."


class Wrong(Exception):
    pass


class Lacks(Exception):
    """The device says that it has no such op."""


def run(command, **env):
    p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env={**os.environ, **env})
    if p.returncode:
        said = p.stderr.decode(errors="replace")[-300:].strip()
        lacks = re.search(r"device \S+ has no op '\w+'", said)
        raise Lacks(lacks.group()) if lacks else Wrong(f"{' '.join(command[1:])}: exit {p.returncode}: {said}")
    return p.stdout


def least_vram(sluice, model, device, *shape):
    """MiB of the least --vram that holds the model, with contexts of this shape, with its experts elsewhere."""
    p = subprocess.run([sluice, "plan", "-m", model, "--device", device, "--experts", "streamed", "--vram", "1MiB", *shape, "--json"],
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return (json.loads(p.stdout)["vram_least_bytes"] >> 20) + 1


def one(sluice, device, second, options, bar, ids, folder):
    """What the two differ by; raises what is wrong. ids: files of tokens. Where two experts' scores are equal but for
    rounding, a device may choose the other one, at one position in thousands: so what is too far is tried again with
    other tokens. So may an indexer choose another position: such models come with tokens for which no row is so near."""
    model = os.path.join(folder, "model.gguf")
    run([sluice, "synth", "-q", "-o", model, "--vocab", str(VOCAB)] + options.split())

    def score(name, *args, ids=ids[0]):
        out = os.path.join(folder, name + ".npy")
        run([sluice, "score", "-m", model, "--ids", ids, "--logprobs", out, "--heat-file", "off", *args])
        return out

    def answer(*args, **env):
        return run([sluice, "run", "-m", model, "-q", "--temp", "0", "-n", "48", "--heat-file", "off", "-p", PROMPT, *args], **env)

    resident = ["--device", device, "--experts", "resident"]
    here = score("resident", *resident)
    for again, file in enumerate(ids):
        both = [score("cpu", "--device", "cpu", "-t", "2", ids=file), score("again", *resident, ids=file) if again else here]
        p = subprocess.run([sys.executable, os.path.join(ROOT, "bench", "logprobs.py"), *both,
                            "f32" if bar in (True, REFERENCE, CHOICES) else "quantised"],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        far = p.stdout.decode().strip()
        if not p.returncode:
            break
    else:
        raise Wrong(f"too far from the CPU: {far}")
    said = answer(*resident)
    number = device.partition(":")[2] or "0"
    places = {"two stages": ["--device", f"{device},{number}", "--experts", "resident"],
              "slices of 37": resident + ["-b", "37"]}
    layers = re.search(r"--layers (\d+)", options)
    if not layers or int(layers.group(1)) >= 4:
        places["four stages"] = ["--device", ",".join([device, number, number, number]), "--experts", "resident"]
    if second:
        places["two devices"] = ["--device", f"{device},{second}", "--experts", "resident"]
    if "--experts 0" not in options:
        least = least_vram(sluice, model, device)
        for more in (0, 2):
            places[f"{least + more} MiB"] = ["--device", device, "--experts", "streamed", "--vram", f"{least + more}MiB"]
        # Where its experts can be the lane's: a part of them, and all that are not on the device.
        lane = places[f"{least} MiB"] + ["--cpu-lane", "auto"]
        for percent, threads in (40, 2), (100, 1), (60, 7):
            if answer(*lane, "--cpu-lane-threads", str(threads), SLUICE_TEST_LANE_PERCENT=str(percent)) != said:
                raise Wrong(f"answered otherwise: {percent} % by the CPU lane")
    for name, args in places.items():
        try:
            score("other", *args)
        except Wrong as e:  # a model whose layers share what cannot be on two devices
            if name in ("two stages", "four stages", "two devices") and any(text in str(e) for text in NO_TWO_STAGES):
                continue
            raise
        if not filecmp.cmp(here, os.path.join(folder, "other.npy"), shallow=False):
            raise Wrong(f"scored otherwise: {name}")
        if "-b" not in args and answer(*args) != said:
            raise Wrong(f"answered otherwise: {name}")
    return far


def usable_devices(sluice):
    found = json.loads(run([sluice, "devices", "--json"]))
    return [d.get("id") for d in found.get("devices", found) if d.get("usable", True)]


def report(cases, jobs, device, usable, work):
    """Prints TAP of work(case, folder) for each case, whose first member is its name, so many at once. Whether one failed."""
    print(f"1..{len(cases)}", flush=True)
    if device not in usable:
        for i, c in enumerate(cases, 1):
            print(f"ok {i} - {c[0]} # SKIP there is no {device}")
        return False

    def tried(c):
        with tempfile.TemporaryDirectory(prefix="sluice-gpu-") as folder:
            try:
                return True, work(c, folder)
            except Lacks as e:
                return True, f"# SKIP {e}"
            except (Wrong, OSError, ValueError, KeyError) as e:
                return False, str(e)

    failed = False
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for i, (c, (good, text)) in enumerate(zip(cases, pool.map(tried, cases)), 1):
            failed |= not good
            print(f"{'ok' if good else 'not ok'} {i} - {c[0]}{' ' if text.startswith('#') else ': '}{' '.join(text.split())}", flush=True)
    return failed


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("sluice")
    p.add_argument("--device", default="cuda:0")
    p.add_argument("--only", action="append", default=[])
    p.add_argument("--jobs", type=int, default=4)
    p.add_argument("--positions", type=int, default=400)
    o = p.parse_args()
    cases = [c for c in CASES + LARGE if not o.only or any(text in c[0] for text in o.only)]
    sluice = os.path.abspath(o.sluice)
    usable = usable_devices(sluice)
    second = next((i for i in usable if i != o.device and i.partition(":")[0] == o.device.partition(":")[0]), None)
    with tempfile.TemporaryDirectory(prefix="sluice-gpu-") as top:
        def tokens(seed, n):
            path = os.path.join(top, f"ids-{seed}-{n}.bin")
            r = random.Random(seed)
            with open(path, "wb") as f:
                array.array("i", [r.randrange(VOCAB) for _ in range(n)]).tofile(f)
            return path

        usual = [tokens(seed, o.positions) for seed in (3, 4)]
        # The peer's tokens, and some of which no row is near an edge on a GPU either.
        of_indexers = [tokens(seed, min(n, o.positions)) for seed, n in CHOSEN if n > 1] + [tokens(5, o.positions)]

        return report(cases, o.jobs, o.device, usable,
                      lambda c, folder: one(sluice, o.device, second, c[1], c[2], of_indexers if c[3:] == (CHOSEN,) else usual, folder))


if __name__ == "__main__":
    sys.exit(main())
