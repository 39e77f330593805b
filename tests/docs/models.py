#!/usr/bin/env python3
"""docs/MODELS.md against the program: what its first table lists is known, what its second lists is refused with a message that
names it, the program knows nothing else, and no architecture with experts that llama.cpp v0.5.0 knows is in neither. The
column about GPUs is what a plan for a small model of each says. README.md lists the same architectures.

usage: models.py SLUICE

TAP."""
import glob
import os
import re
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Source: llama.cpp v0.5.0, the names of src/llama-arch.cpp whose graph has experts.
WITH_EXPERTS = """afmoe arctic bailingmoe bailingmoe2 bailingmoe3 cohere2moe dbrx deepseek deepseek2 deepseek2-ocr deepseek32 deepseek4 dflash
dots1 dots3note ernie4_5-moe exaone-moe gemma4 glm-dsa glm4moe gpt-oss granite granite_swa granitehybrid granitemoe
graniteswitch grok grovemoe hunyuan-moe hy_v3 hy_v4 jamba kimi-k3 kimi-linear laguna lfm2moe llada-moe llama llama-embed
llama4 maple mellum mimo2 minicpm minimax-01 minimax-m2 minimax-m3 mistral3 mistral4 nemotron_h_moe nomic-bert-moe olmoe
phimoe qwen2moe qwen35moe qwen3moe qwen3next qwen3vlmoe qwen4exp refact rnd1 smallthinker step35""".split()


def names_in(text):
    """Those of the first column of tables."""
    cells = re.findall(r"^\|([^|]*)\|", text, re.M)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def names_in_source():
    """Those that the program knows: each struct sl_arch names one."""
    names = []
    for path in sorted(glob.glob(os.path.join(ROOT, "model", "arch", "arch_*.c"))):
        with open(path, encoding="utf-8") as f:
            names += re.findall(r'^    \.name = "([^"]+)",$', f.read(), re.M)
    return names


def header_only(path, architecture):
    def text(s):
        return struct.pack("<Q", len(s)) + s.encode()
    with open(path, "wb") as f:
        f.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("general.architecture") + struct.pack("<I", 8) + text(architecture))


def gpu_column(text):
    """What the last column says of each architecture."""
    rows = re.findall(r"^\|([^|]*)\|.*\| (yes|not tried|no) \|$", text, re.M)
    return {name: said for cell, said in rows for name in re.findall(r"`([^`]+)`", cell)}


def gpu_faults(sluice, text, folder):
    faults, path = [], os.path.join(folder, "gpu.gguf")
    given = ["--ram", "4GiB", "--disk-bandwidth", "1", "--link-bandwidth", "1", "--device-bandwidth", "1", "--ram-bandwidth", "1"]
    for name, said in gpu_column(text).items():
        dense = name in ("qwen2", "qwen3", "qwen35", "nemotron_h")
        more = ["--experts", "0", "--top-k", "0"] if dense else ["--top-k", "1"]
        if subprocess.run([sluice, "synth", "-o", path, "--arch", name, "-q", *more], capture_output=True).returncode:
            faults.append(f"{name}: synth makes no model of it")
            continue
        r = subprocess.run([sluice, "plan", "-m", path, "--card", "24GiB", "--heat-file", "off", *given], capture_output=True, text=True)
        lacks = "has no op" in r.stderr or "can be computed" in r.stderr
        if (r.returncode == 0) != (said != "no") or (said == "no" and not lacks):
            faults.append(f"docs/MODELS.md: {name} on a GPU: '{said}', and plan says: {r.stderr.strip()[:160] or 'it runs'}")
    return faults + [f"docs/MODELS.md: {n} has no column about GPUs" for n in names_in(text) if n not in gpu_column(text)]


def reasons(text):
    """Of each architecture that is refused, what is missing."""
    rows = re.findall(r"^\|([^|]*)\|([^|]*)\|([^|]*)\|$", text, re.M)
    return {name: why.strip() for cell, _, why in rows for name in re.findall(r"`([^`]+)`", cell)}


def main():
    sluice = sys.argv[1]
    with open(os.path.join(ROOT, "docs", "MODELS.md"), encoding="utf-8") as f:
        first, heading, second = f.read().partition("## Not read")
    opens, refused = names_in(first), names_in(second)
    faults = [] if heading and opens and refused else ["docs/MODELS.md: there are not both tables"]
    faults += [f"docs/MODELS.md: {n} is there twice" for n in set(opens + refused) if (opens + refused).count(n) > 1]
    faults += [f"docs/MODELS.md: {n} is in no table" for n in WITH_EXPERTS if n not in opens + refused]
    faults += [f"docs/MODELS.md: what {n} lacks is not said" for n in refused if not reasons(second).get(n)]
    known = names_in_source()
    faults += [] if len(known) > 40 else [f"model/arch: {len(known)} names of architectures were found"]
    with tempfile.TemporaryDirectory(prefix="sluice-models-") as folder:
        path = os.path.join(folder, "model.gguf")
        for name in sorted(set(opens + refused + WITH_EXPERTS)):
            header_only(path, name)
            run = subprocess.run([sluice, "plan", "-m", path], capture_output=True, text=True)
            not_known = f"architecture '{name}' is not supported: docs/MODELS.md lists " in run.stderr
            # The header alone of one that is known says that there are no weights.
            if run.returncode != 1 or not (not_known or "holds a vocabulary and no weights" in run.stderr):
                faults.append(f"{name}: exit {run.returncode}: {run.stderr.strip()[:200]}")
            elif not_known and name in opens:
                faults.append(f"docs/MODELS.md: {name} is refused: it belongs in the second table")
            elif not not_known and name in refused:
                faults.append(f"docs/MODELS.md: {name} is known: it belongs in the first table")
        faults += gpu_faults(sluice, first, folder)
    faults += [f"docs/MODELS.md: {n} is known, and in no table" for n in known if n not in opens]
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as f:
        told = re.findall(r"`([^`]+)`", re.search(r"^- Architectures, .*?(?=^- )", f.read(), re.M | re.S)[0])
    faults += [f"README.md: {n} is in one list of architectures only, there or in docs/MODELS.md" for n in sorted(set(told) ^ set(opens))]
    print("1..1")
    print(f"{'not ok' if faults else 'ok'} 1 - docs/MODELS.md: {len(opens)} architectures open, {len(refused)} do not")
    for fault in faults:
        print("#", fault)
    sys.exit(1 if faults else 0)


main()
