#!/usr/bin/env python3
"""Do the checks of the graph find what they are there for? A small tree with two rooms is made, kept clean, then given
calls upwards, circles, an include that is not allowed, and a room that nobody has named.

usage: check.py

TAP. Needs a C compiler and nm."""
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CLEAN = {
    "house/low/low.h": "int low_get(void);\n",
    "house/low/low.c": '#include "house/low/low.h"\nint low_get(void) { return 1; }\n',
    "house/high/high.h": "int high_get(void);\n",
    "house/high/high.c": '#include "house/high/high.h"\n#include "house/low/low.h"\n'
                         "int high_get(void) { return low_get() + 1; }\n",
}
GRAPH = ["house/low:", "house/high: house/low"]
BACK = {
    "house/low/low.c": "int back(void);\nint low_get(void);\nint low_get(void) { return back(); }\n",
    "house/low/back.c": "int low_get(void);\nint back(void);\nint back(void) { return low_get(); }\n",
}
FOLDERS = ["--folders", "house:", "street: house", "yard: street"]
USES_HIGH = "int high_get(void);\nint street(void);\nint street(void) { return high_get(); }\n"
YARD_USES_HIGH = "int high_get(void);\nint yard(void);\nint yard(void) { return high_get(); }\n"
USES_STREET = "int street(void);\nint low_get(void);\nint low_get(void) { return street(); }\n"
CASES = [
    ("a clean tree passes", {}, GRAPH, None),
    ("a call upwards", {"house/low/low.c": "int high_get(void);\nint low_get(void);\nint low_get(void) { return high_get(); }\n"},
     GRAPH, "low.o calls high_get of house/high"),
    ("an include upwards", {"house/low/low.c": '#include "house/high/high.h"\nint low_get(void);\nint low_get(void) { return 1; }\n'},
     GRAPH, "includes house/high/high.h"),
    ("a circle in the graph itself", {}, ["house/low: house/high", "house/high: house/low"], "a circle"),
    ("a circle of calls among the files of a room", BACK, GRAPH + ["--no-circles", "house/low"],
     "house/low has a circle of calls: back.c -> low.c -> back.c"),
    ("... which may be where nobody forbids it", BACK, GRAPH + ["--no-circles", "house/high"], None),
    ("a call from file to file is none", {"house/low/other.c": "int low_get(void);\nint other(void);\nint other(void) { return low_get(); }\n"},
     GRAPH + ["--no-circles", "house/low", "house/high"], None),
    ("a room without circles that is not in the graph", {}, GRAPH + ["--no-circles", "house/attic"], "is not in the graph"),
    ("a room that is not in the graph", {"house/attic/attic.c": "int attic;\n"}, GRAPH, "house/attic holds sources"),
    ("... nor one within a room", {"house/low/box/box.c": "int box;\n"}, GRAPH, "house/low/box holds sources"),
    ("a call from folder to folder", {"street/street.c": USES_HIGH}, GRAPH + FOLDERS, None),
    ("... and upwards, without an include", {"street/street.c": "int street(void);\nint street(void) { return 1; }\n",
                                            "house/low/low.c": USES_STREET}, GRAPH + FOLDERS,
     "low.o calls street of street, but house may use only"),
    ("... to a folder that is not allowed", {"yard/yard.c": YARD_USES_HIGH}, GRAPH + FOLDERS,
     "yard.o calls high_get of house/high, but yard may use only: street"),
    ("a circle of folders in the graph itself", {}, GRAPH + ["--folders", "house: street", "street: house"], "a circle"),
]


def run(changes, graph):
    with tempfile.TemporaryDirectory(prefix="rooms.") as root:
        for path, text in {**CLEAN, **changes}.items():
            full = os.path.join(root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as f:
                f.write(text)
        for path in {**CLEAN, **changes}:
            if path.endswith(".c"):
                full = os.path.join(root, path)
                out = os.path.join(root, "build", path[:-2] + ".o")
                os.makedirs(os.path.dirname(out), exist_ok=True)
                subprocess.run(["gcc", "-I", root, "-c", "-o", out, full], check=True)
        return subprocess.run([sys.executable, os.path.join(ROOT, "scripts/check_rooms.py"), root, os.path.join(root, "build"), *graph],
                              capture_output=True, text=True)


print(f"1..{len(CASES)}")
failed = 0
for i, (what, changes, graph, want) in enumerate(CASES, 1):
    r = run(changes, graph)
    good = r.returncode == 0 if want is None else r.returncode == 1 and want in r.stdout
    failed += not good
    print(f"{'ok' if good else 'not ok'} {i} - {what}")
    if not good:
        print("# " + (r.stdout + r.stderr).strip().replace("\n", "\n# "))
sys.exit(1 if failed else 0)
