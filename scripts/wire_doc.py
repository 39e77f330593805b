#!/usr/bin/env python3
"""Writes the tables of docs/WIRE.md from net/frame.def, cluster/setup.def and engine/stage/stage_message.def, between the lines that say so.

usage: wire_doc.py [--check]

--check: writes nothing, and fails if the tables are not as they should be."""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DOC = os.path.join(ROOT, "docs", "WIRE.md")
FORMS = {"U32": "u32", "U64": "u64", "F64": "f64", "FLAG": "u8"}
ARRAYS = {"BYTES": "bytes", "U32S": "u32", "F32S": "f32", "U64S": "u64"}


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as f:
        return f.read()


def entries(text):
    """(macro, arguments) of every line of a table; strings lose their quotes, and arguments that are products stay whole."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    for macro, inside in re.findall(r'^([A-Z_0-9]+)(?:\(((?:[^()"]|"(?:[^"\\]|\\.)*")*)\))?$', text, re.M):
        words = re.findall(r'"((?:[^"\\]|\\.)*)"|([^,\s"][^,"]*)', inside)
        yield macro, [(a.replace('\\"', '"') if a else b) for a, b in words]


def frames():
    lines = ["| type | name | most bytes | payload |", "|--:|---|--:|---|"]
    for i, (_, (name, most, text)) in enumerate(entries(read("net/frame.def")), 1):
        lines.append(f"| {i} | {name} | {most if most != '0' else 'as agreed'} | {text} |")
    return lines


def setup():
    lines = []
    for macro, words in entries(read("cluster/setup.def")):
        if macro in ("STRUCT", "MESSAGE"):
            title = f"`{words[0]}`, in a list" if macro == "STRUCT" else f"`{words[1]}`"
            lines += ["", f"**{title}**: {words[-1]}", "", "| field | form | |", "|---|---|---|"]
        elif macro == "TEXT":
            lines.append(f"| {words[0]} | text, less than {words[1]} bytes | {words[2]} |")
        elif macro == "LIST":
            lines.append(f"| {words[1]} | u32 count, at most {words[2].replace('SL_MAX_STAGES', '8')}, then each `{words[0]}` | {words[3]} |")
        elif macro in FORMS:
            lines.append(f"| {words[0]} | {FORMS[macro]} | {words[1]} |")
    return lines[1:]


def calls():
    lines = []
    for macro, words in entries(read("engine/stage/stage_message.def")):
        text = words[-1] if words else ""
        count = words[1].replace("*", "×") if len(words) == 3 else ""
        if macro in ("ASK", "ANSWER", "BEGIN"):
            title = "Every answer begins with" if macro == "BEGIN" else f"{'Request' if macro == 'ASK' else 'Answer'} {words[1]}, `{words[2]}`"
            lines += ["", f"**{title}**: {text or 'nothing more.'}", ""]
            head = True
        elif macro != "END" and head:
            lines += ["| field | form | |", "|---|---|---|"]
            head = False
        if macro in FORMS:
            lines.append(f"| {words[0]} | {FORMS[macro]} | {text} |")
        elif macro == "TEXT":
            lines.append(f"| {words[0]} | text, less than {words[1]} bytes | {text} |")
        elif macro in ARRAYS:
            lines.append(f"| {words[0]} | {ARRAYS[macro]}, {count} | {text} |")
        elif macro == "PAGES":
            lines.append(f"| {words[0]} | {count} times: u32 first, u32 end, u32 for each of [first, end) | {text} |")
    return re.sub(r"\n\n\n+", "\n\n", "\n".join(lines[1:])).split("\n")


def main():
    before = text = read("docs/WIRE.md")
    for name, lines in (("frames", frames()), ("set-up", setup()), ("calls", calls())):
        text = re.sub(rf"(<!-- {name}: [^\n]*-->\n).*?(<!-- end -->)", lambda m: m.group(1) + "\n".join(lines) + "\n" + m.group(2), text, flags=re.S)
    if "--check" in sys.argv:
        if text != before:
            print("docs/WIRE.md differs from the tables: scripts/wire_doc.py writes it")
        return text != before
    with open(DOC, "w", encoding="utf-8") as f:
        f.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
