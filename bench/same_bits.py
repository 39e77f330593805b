#!/usr/bin/env python3
"""Do two builds give the same bits? For a change that must not show in any answer.

usage: same_bits.py OLD NEW [--device DEVICE] [--only WORD] [--keep DIR]

OLD and NEW are two `sluice` programs. OLD writes small synthetic models of every architecture and of most tensor types
(NEW must write the same bytes), then both compute the same things in every placement that DEVICE has: log-probabilities
of a text in whole and in small batches, a greedy and a drawn answer, and a server's answers to requests that run alone,
again, and together. All must agree byte for byte. With --device cuda, or cuda:0,1, experts are also put in tiers
(--vram, --ram). --only WORD runs the models whose name contains WORD.

Closes with "N passed, N failed". Exit status 1: something differs."""
import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
MOE = "--experts 16 --top-k 4 --expert-ff 256 --layers 5 --vocab 1024"
MODELS = {
    "qwen3moe-q4_k": f"--arch qwen3moe -t Q4_K --down Q6_K,Q4_K --attn Q5_K,Q8_0 {MOE}",
    "qwen3moe-f16": f"--arch qwen3moe -t F16 --embd-type F16 --output-type F16 {MOE}",
    "qwen3moe-iq": f"--arch qwen3moe -t Q8_0 --gate IQ2_XXS,IQ3_S,IQ1_M --up IQ4_XS,IQ2_S --down Q2_K,Q3_K --yarn 4 {MOE}",
    "qwen2moe-q8_0": f"--arch qwen2moe -t Q8_0 {MOE}",
    "qwen2moe-mxfp4": f"--arch qwen2moe -t Q5_0 --gate MXFP4 --up MXFP4 --down Q4_1,Q5_1 {MOE}",
    "olmoe-f32": f"--arch olmoe -t F32 --embd-type F32 --output-type F32 --kv-heads 4 {MOE}",
    "llama-moe-q4_0": f"--arch llama -t Q4_0 --rope-freqs --head-dim 128 {MOE}",
    "llama-dense-bf16": "--arch llama -t BF16 --embd-type BF16 --output-type BF16 --experts 0 --top-k 0 --tied --layers 4",
    "qwen3-dense-q6_k": "--arch qwen3 -t Q6_K --experts 0 --top-k 0 --heads 3 --kv-heads 3 --head-dim 96 --embd 512",
    "qwen2-dense-iq4_nl": "--arch qwen2 -t IQ4_NL --experts 0 --top-k 0 --layers 4",
}
counts = {"passed": 0, "failed": 0}


def note(kind, text):
    counts[kind] += 1
    if kind != "passed":
        print(f"{kind}: {text}", flush=True)


def sha(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def sha_npy(path):
    """Of the numbers: how long the header is does not matter."""
    with open(path, "rb") as f:
        head = f.read(10)
        f.seek(10 + (head[8] | head[9] << 8))
        return hashlib.sha256(f.read()).hexdigest()


def run(args):
    r = subprocess.run(args, capture_output=True, timeout=600)
    return r.returncode, r.stdout, r.stderr.decode(errors="replace").strip()


def computed(sluice, kind, model, text, args, out):
    """The bits that one program gives for one thing: (bits, "") or (None, why not)."""
    if os.path.exists(out):
        os.remove(out)
    if kind == "answers":
        code, _, err = run([sys.executable, os.path.join(HERE, "answers.py"), out, sluice, "-m", model, *args])
        return (sha(out), "") if code == 0 else (None, err)
    if kind == "score":
        code, _, err = run([sluice, "score", "-m", model, "--text", text, "--logprobs", out, *args])
        return (sha_npy(out), "") if code == 0 else (None, err)
    code, stdout, err = run([sluice, "run", "-m", model, "-q", "--raw", "-p", "Once there was a river", "-n", "48", *args])
    return (hashlib.sha256(stdout).hexdigest(), "") if code == 0 else (None, err)


def least(sluice, model, base):
    """(RAM, VRAM) in bytes: the least that will do."""
    code, stdout, err = run([sluice, "plan", "-m", model, "--json", "--ram-bandwidth", "1e10", "--disk-bandwidth", "1e9", *base,
                             "--experts", "streamed"])
    if code != 0:
        sys.exit(f"plan: {err}")
    plan = json.loads(stdout)
    return plan["least_bytes"], plan["vram_least_bytes"]


def placements(old, new, model, device, is_moe):
    """Name -> options: where weights, experts and keys and values are. Budgets are enough for both programs."""
    base = ["--device", device, "--heat-file", "off", "-c", "2048"]
    cases = {"resident": base, "resident, q8_0 KV": base + ["--kv-type", "q8_0"]}
    if device == "cpu":
        cases["one thread"] = base + ["-t", "1"]
        cases["plain C"] = base + ["--cpu-isa", "c"]
    if not is_moe:
        return cases
    cases["streamed"] = base + ["--experts", "streamed"]
    each = [least(sluice, model, base) for sluice in (old, new)]
    ram, vram = max(ram for ram, _ in each) + (24 << 20), max(vram for _, vram in each) + (4 << 20)
    if device == "cpu":
        cases["least memory"] = base + ["--experts", "streamed", "--ram", str(ram)]
    else:
        each = ",".join([str(vram)] * (device.count(",") + 1))
        cases["tiers"] = base + ["--vram", each]
        cases["tiers, and the disk"] = base + ["--vram", each, "--ram", str(ram + (64 << 20))]
    return cases


def main():
    p = argparse.ArgumentParser(add_help=False)
    p.add_argument("old", nargs="?")
    p.add_argument("new", nargs="?")
    p.add_argument("--device", default="cpu")
    p.add_argument("--only", default="")
    p.add_argument("--keep")
    p.add_argument("-h", "--help", action="store_true")
    a = p.parse_args()
    if a.help or not a.new:
        print(__doc__)
        sys.exit(0 if a.help else 2)
    with tempfile.TemporaryDirectory(prefix="same_bits.") as scratch:
        folder = a.keep or scratch
        os.makedirs(folder, exist_ok=True)
        text = os.path.join(folder, "text")
        with open(text, "w", encoding="utf-8") as f:
            f.write(" ".join(f"{n} rivers of {n * n} bends" for n in range(60)))
        for name, spec in MODELS.items():
            if a.only not in name:
                continue
            compare_model(a.old, a.new, name, spec, a.device, folder, text)
    print(f"{counts['passed']} passed, {counts['failed']} failed")
    sys.exit(1 if counts["failed"] else 0)


def compare_model(old, new, name, spec, device, folder, text):
    files = [os.path.join(folder, f"{name}.{side}.gguf") for side in ("old", "new")]
    for sluice, path in zip((old, new), files):
        code, _, err = run([sluice, "synth", "-q", "-o", path, *spec.split()])
        if code != 0:
            sys.exit(f"synth {name}: {err}")
    note("passed" if sha(files[0]) == sha(files[1]) else "failed", f"{name}: the synthetic model itself")
    os.remove(files[1])
    for place, options in placements(old, new, files[0], device, "--experts 0" not in spec).items():
        things = {
            "log-probabilities": ("score", options),
            "log-probabilities, batches of 37": ("score", options + ["-b", "37"]),
            "a greedy answer": ("run", options + ["--temp", "0"]),
            "a drawn answer": ("run", options + ["--temp", "0.8", "--seed", "7"]),
            "a server's answers": ("answers", options + ["--parallel", "4"]),
        }
        for thing, (kind, args) in things.items():
            if place == "plain C" and kind != "score":  # the option is score's
                continue
            label = f"{name}, {place}: {thing}"
            bits = []
            for side, sluice in (("old", old), ("new", new)):
                got, why = computed(sluice, kind, files[0], text, args, os.path.join(folder, f"out.{side}"))
                if got is None:
                    note("failed", f"{label}: the {side} program failed: {why[-300:]}")
                bits.append(got)
            if None not in bits:
                note("passed" if bits[0] == bits[1] else "failed", label)
    os.remove(files[0])


if __name__ == "__main__":
    main()
