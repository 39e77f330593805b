#!/usr/bin/env python3
"""scripts/check_names.py finds what it is for, and takes the tree as it is. Prints TAP.

usage: names.py"""
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CHECK = os.path.join(ROOT, "scripts", "check_names.py")
# What the check reads besides the files that it looks at: what common/ names, and architectures.
READS = ("common", os.path.join("model", "arch"))
# (file, what is added to it, what is found: None = nothing)
PLANTED = [
    ("engine/plan/open_device.c", '#include "backends/cuda/cuda.h"', "backends/cuda/cuda.h"),
    ("cli/plan/plan.c", '#include "backends/cpu/cpu.h"', "backends/cpu/cpu.h"),
    ("engine/engine.c", "int x = sl_cuda_open();", "sl_cuda_open"),
    ("engine/engine.c", "int x = SL_CPU_VNNI;", "SL_CPU_VNNI"),
    ("server/observe/about.c", "void *sl_vulkan_thing;", "sl_vulkan_thing"),
    ("cli/bench/bench_report.c", 'int x = !strncmp(name, "cuda:", 5);', '"cuda:"'),
    ("cli/bench/bench_report.c", 'const char *x = "CUDA";', '"CUDA"'),
    ("cli/options/engine_options.h", '#define HELP "as in --device hip:0"', "hip:0"),
    ("engine/stage/stage.c", 'int x = !strcmp(name, "cpu");', '"cpu"'),
    ("engine/stage/stage.c", 'const char *x = "cpu:0";', '"cpu:0"'),
    ("cluster/worker.c", 'const char *x = "give it a GPU with CUDA";', "CUDA"),
    ("model/arch/model.c", 'const char *x = "vulkan:0";', "vulkan:0"),
    ("engine/engine.c", '#include "backends/registry/registry.h"', None),
    ("engine/engine.c", '#include "backends/ops/moe.h"', None),
    ("engine/forward/forward.c", 'int x = !strcmp(arch, "gpt-oss");', '"gpt-oss"'),
    ("backends/backend.c", 'const char *x = "as qwen3next does";', "qwen3next"),
    ("model/arch/arch_layers.c", 'const char *x = "gpt-oss";', '"gpt-oss"'),
    ("model/arch/arch_grok.c", 'const char *x = "gpt-oss", *y = "grok";', '"gpt-oss"'),
    ("server/api/chat.c", 'int x = !strcmp(arch, "qwen3moe");', '"qwen3moe"'),
    ("model/arch/arch_grok.c", 'const char *x = "%s: grok needs more";', None),
    ("engine/forward/forward.c", 'int x = strstr(text, "NVIDIA") != NULL;', "NVIDIA"),
    ("cli/bench/bench.c", 'int x = !strcmp(want, dev->caps.name);', "strcmp(want, dev->caps.name"),
    ("engine/plan/open_device.c", 'int x = strncmp(\n    d.caps.id, want, 4);', "strncmp( d.caps.id"),
    ("engine/engine.c", 'void f(void) { use(d->caps.name); int x = strcmp(a, b); }', None),
    ("engine/forward/forward.c", 'const char *x = "grok-like"; /* "grok" */', None),
    ("cli/run/run.c", 'const char *x = "give --device cpu";', "--device cpu"),
    ("engine/engine.c", "/* as cuda:0 does */", None),
    ("engine/engine.c", '// "cuda"', None),
    ("engine/engine.c", 'const char *x = "computing on the CPU"; /* "cuda" */', None),
    ("engine/engine.c", 'const char *x = "a ship with chips"; void f(void) { sl_cpu_relax(); }', None),
    ("cli/serve/serve.c", 'const char *x = "null", *y = "--cpu-isa";', None),
]
n = failed = 0


def report(name, good, seen):
    global n, failed
    n += 1
    failed += not good
    print(f"{'ok' if good else 'not ok'} {n} - {name}")
    if not good:
        print("# " + seen.replace("\n", "\n# "))


def check(root):
    r = subprocess.run([sys.executable, CHECK, root], capture_output=True, text=True)
    return r.returncode, r.stdout + r.stderr


code, said = check(ROOT)
report("the tree as it is", code == 0 and "name none" in said and " 0 architectures" not in said, said)
with tempfile.TemporaryDirectory(prefix="sluice-layers-") as folder:
    for room in READS:
        shutil.copytree(os.path.join(ROOT, room), os.path.join(folder, room))
    for name in os.listdir(os.path.join(ROOT, "backends")):
        if os.path.isdir(os.path.join(ROOT, "backends", name)):
            os.makedirs(os.path.join(folder, "backends", name))
    for path in {path for path, _, _ in PLANTED}:  # of the other files the tree's own check speaks
        os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
        shutil.copy(os.path.join(ROOT, path), os.path.join(folder, path))
    for path, line, found in PLANTED:
        full = os.path.join(folder, path)
        with open(full, encoding="utf-8") as f:
            before = f.read()
        with open(full, "w", encoding="utf-8") as f:
            f.write(before + line + "\n")
        code, said = check(folder)
        where = f"{path}:{before.count(chr(10)) + 1}:"
        good = code == 0 if found is None else code == 1 and where in said and found in said and said.count("\n") == 1
        report(f"{path}: {line}", good, said)
        with open(full, "w", encoding="utf-8") as f:
            f.write(before)
with tempfile.TemporaryDirectory(prefix="sluice-layers-") as folder:
    os.mkdir(os.path.join(folder, "backends"))
    code, said = check(folder)
    report("no sources are a mistake", code == 1 and "no sources" in said, said)
print(f"1..{n}")
sys.exit(failed > 0)
