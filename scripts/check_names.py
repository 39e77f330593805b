#!/usr/bin/env python3
"""Fails where code outside backends/ knows a backend: it is to go by the registry and by capabilities.

usage: check_names.py [ROOT]

In all other folders that mk/layers.mk lists, except common/ (*.c, *.h; comments do not count), there may be
  - no include of a header in a folder of backends/, as of backends/cuda/cuda.h, but of registry/ and ops/;
  - no identifier of a backend, as sl_cuda_open or SL_CPU_C (except those that common/ defines);
  - no string that names the backend of a GPU, or a maker, as a word: "cuda:0", "--device vulkan", "HIP", "NVIDIA";
  - no comparison with a device's name or id (caps.name, caps.id);
  - no string that is, or begins with, an id of the CPU, "cpu" or "cpu:0", or that says --device cpu.
Backends are the folders of backends/ and those that are planned.
Fails also where a string names an architecture as a word: the engine runs kinds of layer, and an architecture's name stands
in its own file, model/arch/arch_*.c. Files that have the same words for another reason are in OTHER_NAMES."""
import os
import re
import sys

ROOMS = ("model", "expert_cache", "streaming", "net", "pull", "engine", "cluster", "server", "cli")
MAKERS = "nvidia|amd|intel|geforce|radeon|apple|qualcomm"
PLANNED = {"hip", "rocm", "level_zero", "vulkan", "metal", "sycl"}
NO_BACKENDS = {"gpu", "kernels", "ops", "registry"}  # folders of backends/ that are none
EVERYDAY = {"cpu", "null"}  # words that mean something else, too
OTHER_NAMES = (  # files, or folders, that may have words which also name an architecture
    "model/synth/", "cli/synth.c", "cli/synth_presets.c",  # write files of each architecture
    "model/tokenizer/pretokenize_table.c", "model/tokenizer/tokenizer.c",  # tokenizers' names
    "model/chat/answer_format.c", "model/chat/answer_formats.c",  # forms of answers
    "server/request/controls.c",  # a value of 'reasoning_format'
)
COMPARES = re.compile(r"\b(?:str(?:n?cmp|n?casecmp|str|casestr)|memcmp|fnmatch)\s*\([^;{}]*\bcaps(?:\.|->)(?:name|id)\b")
# A comment, a string, a character, or as much of a line as holds none of them.
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|[^/"\'\n]+|.', re.S)


def sources(root, room):
    for folder, _, names in sorted(os.walk(os.path.join(root, room))):
        for name in sorted(names):
            if name.endswith((".c", ".h")):
                yield os.path.join(folder, name)


def parts(text):
    """(line, code) and (line, string) of a source: code without strings and comments, line by line, and strings."""
    code, strings, line = {}, [], 1
    for m in TOKEN.finditer(text):
        token = m.group()
        if token[0] == '"' and len(token) > 1:
            strings.append((line, token[1:-1]))
        elif not token.startswith(("//", "/*")) and token[0] != "'":
            code[line] = code.get(line, "") + token.rstrip("\n")
        line += token.count("\n")
    return list(code.items()), strings


def own(root):
    """Identifiers that look like the CPU backend's and are common/'s."""
    found = set()
    for path in sources(root, "common"):
        with open(path, encoding="utf-8") as f:
            found |= set(re.findall(r"\b(?:sl|SL)_\w+", f.read()))
    return found


def faults(root):
    backends = {n for n in os.listdir(os.path.join(root, "backends"))
                if os.path.isdir(os.path.join(root, "backends", n))} - NO_BACKENDS | PLANNED
    gpus = "|".join(sorted(backends - EVERYDAY))
    ident = re.compile(rf"\bsl_(?:{'|'.join(sorted(backends))})_\w+", re.I)
    word = re.compile(rf"(?<![A-Za-z0-9])(?:{gpus}|{MAKERS})(?![A-Za-z])", re.I)
    include = re.compile(r"backends/(?!registry/|ops/)\w+/")
    allowed, n, found = own(root), 0, []
    for room in ROOMS:
        for path in sources(root, room):
            n += 1
            with open(path, encoding="utf-8") as f:
                code, strings = parts(f.read())
            where = os.path.relpath(path, root)
            for line, text in code:
                found += [f"{where}:{line}: {name}" for name in ident.findall(text) if name not in allowed]
            joined = "\n".join(text for _, text in code)
            for m in COMPARES.finditer(joined):
                found.append(f"{where}:{code[joined.count(chr(10), 0, m.start())][0]}: {' '.join(m.group().split())}")
            for line, text in strings:
                if include.match(text) or word.search(text) or re.match(r"cpu(:\d*)?$", text) or "--device cpu" in text:
                    found.append(f'{where}:{line}: "{text}"')
    return n, found


def architectures(root):
    """{name: the file that is for it}"""
    folder, found = os.path.join(root, "model", "arch"), {}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        if name.startswith("arch_") and name.endswith(".c"):
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                found |= {arch: f"model/arch/{name}" for arch in re.findall(r'^ {4}\.name = "([^"]+)",$', f.read(), re.M)}
    return found


def families(root):
    names = architectures(root)
    word, found = re.compile(rf"(?<![\w-])(?:{'|'.join(sorted(map(re.escape, names)))})(?![\w-])"), []
    for room in ("common", "backends", *ROOMS) if names else ():
        for path in sources(root, room):
            where = os.path.relpath(path, root)
            if where.startswith(OTHER_NAMES):
                continue
            with open(path, encoding="utf-8") as f:
                strings = parts(f.read())[1]
            found += [f'{where}:{line}: "{text}"' for line, text in strings
                      if any(names[name] != where for name in word.findall(text))]
    return len(names), found


def main():
    n, found = faults(sys.argv[1] if len(sys.argv) > 1 else ".")
    for fault in found:
        print(f"check-layers: {fault} knows a backend; outside backends/ use the registry (backends/registry/registry.h) and capabilities")
    n_names, named = families(sys.argv[1] if len(sys.argv) > 1 else ".")
    for fault in named:
        print(f"check-layers: {fault} names an architecture; its own file in model/arch/ says what it is, all else goes by kinds of layer")
    if not n or not n_names:
        print("check-layers: no sources found")
    if found or named or not n or not n_names:
        sys.exit(1)
    print(f"check-layers: {n} files outside backends/ name none, and {n_names} architectures are named in their own files")


main()
