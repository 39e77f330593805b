#!/usr/bin/env python3
"""Fails where code above backends/ knows a backend: it is to go by the registry and by capabilities.

usage: check_names.py [ROOT]

In engine/, server/ and cli/ (*.c, *.h; comments do not count) there may be
  - no include of a header in a folder of backends/, as of backends/cuda/cuda.h;
  - no identifier of a backend, as sl_cuda_open or SL_CPU_C (except those that common/ defines);
  - no string that names the backend of a GPU as a word, as "cuda:0", "--device vulkan" or "HIP";
  - no string that is, or begins with, an id of the CPU, "cpu" or "cpu:0", or that says --device cpu.
Backends are the folders of backends/ and those that are planned."""
import os
import re
import sys

ROOMS = ("engine", "server", "cli")
PLANNED = {"hip", "rocm", "level_zero", "vulkan", "metal", "sycl"}
NO_BACKENDS = {"kernels"}  # folders of backends/ that are none
EVERYDAY = {"cpu", "null"}  # words that mean something else, too
# A comment, a string, a character, or one character of anything else.
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|.', re.S)


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
    word = re.compile(rf"(?<![A-Za-z0-9])(?:{gpus})(?![A-Za-z])", re.I)
    include = re.compile(r"backends/\w+/")
    allowed, n, found = own(root), 0, []
    for room in ROOMS:
        for path in sources(root, room):
            n += 1
            with open(path, encoding="utf-8") as f:
                code, strings = parts(f.read())
            where = os.path.relpath(path, root)
            for line, text in code:
                found += [f"{where}:{line}: {name}" for name in ident.findall(text) if name not in allowed]
            for line, text in strings:
                if include.match(text) or word.search(text) or re.match(r"cpu(:\d*)?$", text) or "--device cpu" in text:
                    found.append(f'{where}:{line}: "{text}"')
    return n, found


def main():
    n, found = faults(sys.argv[1] if len(sys.argv) > 1 else ".")
    for fault in found:
        print(f"check-layers: {fault} names a backend; above backends/ use the registry (backends/registry.h) and capabilities")
    if not n:
        print("check-layers: no sources found")
    if found or not n:
        sys.exit(1)
    print(f"check-layers: {n} files above backends/ name none")


main()
