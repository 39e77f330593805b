#!/usr/bin/env python3
"""README's table of models: what each would do on two machines that need not be here. Every row is made from a file whose
tensors are holes (`sluice synth --headers-only`) and from what `sluice plan` says of it.

usage: model_table.py SLUICE [--check]

--check: writes nothing, prints TAP, and fails where a row is not as it should be."""
import json
import math
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
README = os.path.join(ROOT, "README.md")
# Name, preset; the presets have the tensor types of the usual files (Q4_K_M and alike).
MODELS = [("Qwen3-30B-A3B", "qwen3-30b-a3b"), ("Qwen3.5-35B-A3B", "qwen3.5-35b-a3b"), ("GLM-4.7-Flash", "glm-4.7-flash"),
          ("Gemma-4-26B-A4B", "gemma4-26b"), ("gpt-oss-20b", "gpt-oss-20b"), ("Nemotron-3-Nano", "nemotron-3-nano"),
          ("Mixtral-8x7B", "mixtral"), ("Kimi-Linear-48B-A3B", "kimi-linear-48b-a3b"), ("Qwen3-Next-80B-A3B", "qwen3-next-80b"),
          ("GLM-4.5-Air", "glm-4.5-air"), ("gpt-oss-120b", "gpt-oss-120b"), ("Llama-4-Scout", "llama4-scout"), ("Qwen3.5-122B-A10B", "qwen3.5-122b-a10b"),
          ("MiniMax-M2", "minimax-m2"),
          ("DeepSeek-V4-Flash", "deepseek-v4-flash"), ("MiniMax-M3", "minimax-m3"), ("DeepSeek-V3", "deepseek-v3"), ("DeepSeek-V3.2", "deepseek-v3.2"),
          ("GLM-5.2", "glm-5.2"), ("Kimi-K2", "kimi-k2")]
MACHINES = [["--card", "24GiB", "--ram", "64GiB", "--disk-bandwidth", "6", "--link-bandwidth", "25"],
            ["--card", "12GiB", "--ram", "32GiB", "--disk-bandwidth", "3", "--link-bandwidth", "12"]]
ALWAYS = ["--device-bandwidth", "900", "--ram-bandwidth", "60", "--parallel", "1", "--ctx", "8192", "--heat-file", "off", "--json"]


def plan(sluice, path, machine):
    r = subprocess.run([sluice, "plan", "-m", path, *machine, *ALWAYS], capture_output=True, text=True)
    return json.loads(r.stdout) if r.stdout else {"fits": False, "error": r.stderr}


def where(p):
    stage = p["stages"][0]
    if not stage["experts"] or not p["streaming"]:
        return "all on the card"
    card = stage["device_slots"] / stage["experts"]
    ram = min(stage["slots"] / stage["experts"], 1 - card)
    parts = [(card, "card"), (ram, "RAM"), (1 - card - ram, "disk")]
    return ", ".join(f"{100 * share:.0f} % {name}" for share, name in parts if share >= 0.005)


def speed(tokens):
    return f"{tokens:.0f}" if tokens >= 10 else f"{tokens:.1f}"


def cells(p):
    if not p["fits"]:
        least = p.get("vram_least_bytes", 0)
        return ["too little memory" if not least else f"needs {least / 2**30:.1f} GiB of VRAM", ""]
    return [where(p), speed(p["causal_ceiling_ts"])]


def inspected(sluice, path):
    """What is wrong with what `sluice inspect` says of the file, or with the file."""
    r = subprocess.run([sluice, "inspect", path, "--json"], capture_output=True, text=True)
    if r.returncode or not json.loads(r.stdout)["supported"]:
        return f"inspect: exit {r.returncode}: {r.stderr.strip()[:200] or 'it does not run'}"
    taken = os.stat(path).st_blocks * 512
    return f"it takes {taken >> 20} MiB of the disk" if taken > 64 << 20 else ""


def rows(sluice, models):
    """Name, row of the table, and what is wrong with the file it was made from."""
    for name, preset in models:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "m.gguf")
            subprocess.run([sluice, "synth", "-o", path, "--preset", preset, "--headers-only", "-q"], check=True)
            plans = [plan(sluice, path, m) for m in MACHINES]
            size, fault = os.path.getsize(path) / 2**30, inspected(sluice, path)
        most = plans[0]
        # RAM up to the next half: the program's own size, which differs from build to build, is part of it.
        least = f"{most['vram_least_bytes'] / 2**30:.1f} + {math.ceil(most['least_bytes'] / 2**29) / 2:.1f}"
        yield name, f"| {name} | {size:.0f} | {least} | " + " | ".join(cells(plans[0]) + cells(plans[1])) + " |", fault


def alike(made, written):
    """The same, or with last digits that are one more or less."""
    number = r"\d+(?:\.\d)?"
    pairs = zip(re.findall(number, made), re.findall(number, written))
    return re.split(number, made) == re.split(number, written) and all(abs(float(a) - float(b)) < (0.11 if "." in a else 1.1) for a, b in pairs)


def is_row(made, written):
    """Shares of experts, and speeds, depend a little on the program's own size, which differs from build to build."""
    made, written = made.split(" | "), written.split(" | ")
    return len(made) == len(written) and made[:3] == written[:3] and all(map(alike, made[3:], written[3:]))


HEAD = ["| model | file, GiB | least VRAM + RAM, GiB | 24 GB card, 64 GB RAM, 6 GB/s: experts | tokens/s | 12 GB, 32 GB, 3 GB/s: experts | tokens/s |",
        "|---|--:|--:|---|--:|---|--:|"]


def main():
    sluice = os.path.abspath(sys.argv[1])
    with open(README, encoding="utf-8") as f:
        text = f.read()
    made = list(rows(sluice, MODELS))
    if "--check" not in sys.argv:
        table = "\n".join(HEAD + [line for _, line, _ in made])
        text = re.sub(r"(<!-- models: [^\n]*-->\n).*?(<!-- end -->)", lambda m: m.group(1) + table + "\n" + m.group(2), text, flags=re.S)
        with open(README, "w", encoding="utf-8") as f:
            f.write(text)
        return 0
    lines = re.search(r"<!-- models: [^\n]*-->\n(.*?)<!-- end -->", text, re.S)[1].splitlines()
    written, failed = lines[len(HEAD):], 0
    for i, (name, line, fault) in enumerate(made, 1):
        found = next((other for other in written if is_row(line, other)), None)
        if found:
            written.remove(found)
        good = found and not fault
        failed += not good
        print(f"{'ok' if good else 'not ok'} {i} - {name} in the table of models")
        if not good:
            print(f"# {fault or 'scripts/model_table.py makes it'}\n# {line}")
    good = not written and lines[:len(HEAD)] == HEAD
    print(f"{'ok' if good else 'not ok'} {len(made) + 1} - the table of models has no other rows")
    for line in written if not good else ():
        print(f"# {line}")
    print(f"1..{len(made) + 1}")
    return failed > 0 or not good


if __name__ == "__main__":
    sys.exit(main())
