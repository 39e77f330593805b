#!/usr/bin/env python3
"""Runs the public JSON Schema test suite against the schema compiler.

usage: tests/schemas/suite.py PROGRAM SUITE [--open] [--strict] [--refused KEYWORD] [--list]
                              [--least-compiled N] [--least-valid PERCENT]

PROGRAM is build/MODE/tests/schemas/schema_texts, SUITE a checkout of json-schema-org/JSON-Schema-Test-Suite.
Counted are the tests of draft 4 to 2020-12 with those of optional/format. Exits with 1 if an invalid instance was
accepted, or less was compiled or accepted than asked for. Without --strict, uniqueItems is a weaker promise
(docs/STRUCTURED.md): repeated items are counted, and no failure.
"""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys

DRAFTS = ["draft4", "draft6", "draft7", "draft2019-09", "draft2020-12"]
# These say that format is an annotation. Here it is always enforced, as in optional/format.
ANNOTATION = "only an annotation"


def groups(suite, draft):
    folder = suite / "tests" / draft
    for path in sorted(folder.glob("*.json")) + sorted((folder / "optional" / "format").glob("*.json")):
        for group in json.loads(path.read_text(encoding="utf-8")):
            yield path.stem, group


def keyword_of(error):
    m = re.match(r"'?([$\w]+)'?:? ", error)
    return m.group(1) if m else error[:40]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("suite", type=pathlib.Path)
    p.add_argument("--open", action="store_true", help="what a schema does not say is allowed")
    p.add_argument("--strict", action="store_true", help="refuse what cannot be enforced")
    p.add_argument("--refused", help="list the schemas that are refused for this keyword")
    p.add_argument("--least-compiled", type=int, default=0, help="schemas that must compile")
    p.add_argument("--least-valid", type=float, default=0, help="per cent of the valid instances that must be accepted")
    p.add_argument("--list", action="store_true", help="list valid instances that are refused")
    args = p.parse_args()
    program = subprocess.Popen([args.program] + ["open"] * args.open + ["strict"] * args.strict, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               encoding="utf-8")
    total, refused, wrong = collections.Counter(), collections.Counter(), []
    print(f"{'draft':14}{'schemas':>8}{'compiled':>9}{'valid':>7}{'accepted':>9}{'':7}{'invalid':>8}{'accepted':>9}")
    for draft in DRAFTS:
        n = collections.Counter()
        for stem, group in groups(args.suite, draft):
            tests = [t for t in group["tests"] if ANNOTATION not in t["description"]]
            texts = [json.dumps(t["data"], ensure_ascii=False, separators=(",", ":")) for t in tests]
            texts = [t.encode("utf-8", "replace").decode("utf-8") for t in texts]
            line = json.dumps({"schema": group["schema"], "texts": texts})
            program.stdin.write(line + "\n")
            program.stdin.flush()
            answer = json.loads(program.stdout.readline())
            n["schemas"] += 1
            if "error" in answer:
                key = keyword_of(answer["error"])
                refused[key] += 1
                if args.refused in (key, "all"):
                    print(f"  {draft}/{stem}: {group['description']}: {answer['error']}\n    {json.dumps(group['schema'])[:300]}")
                continue
            n["compiled"] += 1
            for t, text, taken in zip(tests, texts, answer["takes"]):
                kind = "valid" if t["valid"] else "invalid"
                n[kind] += 1
                n[kind, taken] += 1
                if taken and not t["valid"] and (args.strict or stem != "uniqueItems"):
                    wrong.append(f"{draft}/{stem}: {group['description']}: {text[:100]}  {json.dumps(group['schema'])[:200]}")
                if args.list and t["valid"] and not taken:
                    print(f"  {draft}/{stem}: {group['description']}: {t['description']}: {text[:100]}  {json.dumps(group['schema'])[:200]}")
        show(draft, n)
        total.update(n)
    show("all", total)
    print("refused for: " + ", ".join(f"{k} {v}" for k, v in refused.most_common()))
    for line in wrong:
        print("accepted, but not valid: " + line)
    program.stdin.close()
    if program.wait():
        return 1
    share = 100 * total["valid", True] / max(total["valid"], 1)
    short = []
    if total["compiled"] < args.least_compiled:
        short.append(f"{total['compiled']} schemas compile; {args.least_compiled} must")
    if share < args.least_valid:
        short.append(f"{share:.1f} % of the valid instances are accepted; {args.least_valid:g} % must be")
    for line in short:
        print(line)
    return 1 if wrong or short else 0


def show(name, n):
    share = 100 * n["valid", True] / max(n["valid"], 1)
    print(f"{name:14}{n['schemas']:8}{n['compiled']:9}{n['valid']:7}{n['valid', True]:9}{share:6.1f}%{n['invalid']:8}"
          f"{n['invalid', True]:9}")


if __name__ == "__main__":
    sys.exit(main())
