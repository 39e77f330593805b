#!/usr/bin/env python3
"""Compares the template interpreter with Jinja2, byte for byte, errors included: the small language
snippets, and generated conversations over every chat template in the given folder. Prints TAP.

usage: run.py [--every N] RENDER_PROGRAM [TEMPLATE_FOLDER]

--every N: everything is rendered, and one in N compared with Jinja2, which takes most of the time: for a sanitizer's build,
which looks for other mistakes. Exits 77 where python3-jinja2 is missing; the templates are a skipped test where their folder is."""
import json
import os
import random
import subprocess
import sys

try:
    import jinja2  # noqa: F401
except ImportError:
    print("python3-jinja2 is not installed")
    sys.exit(77)

import conversations
import mutation
import oracle
import snippets

NOW = 1721995200 + 3661  # 2024-07-26 13:01:01 UTC


class Ours:
    def __init__(self, program):
        self.p = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.last = None

    def render(self, source, variables):
        request = {"vars": variables, "now": NOW}
        if source != self.last:
            request["template"] = self.last = source
        line = json.dumps(request)
        self.p.stdin.write(line.encode() + b"\n")
        self.p.stdin.flush()
        answer = self.p.stdout.readline()
        if not answer:
            sys.exit(f"the program died (exit {self.p.wait()}) on {source[:2000]} with {line[:2000]}")
        answer = json.loads(answer)
        return ("ok", answer["ok"]) if "ok" in answer else ("error", answer["error"])


class Tally:
    def __init__(self):
        self.n = 0
        self.bad = 0

    def line(self, good, name, details=()):
        self.n += 1
        self.bad += not good
        print(f"{'ok' if good else 'not ok'} {self.n} - {name}", flush=True)
        for d in details:
            print("# " + d.replace("\n", "\n# "))


def same_error(want, got):
    """What a template says itself, and what is undefined, must be said in the same words (the end
    of a long one may be cut); other errors are worded differently."""
    kind, _, message = want.partition(": ")
    if kind not in ("TemplateError", "UndefinedError") or "parameter " in message:
        return True
    return message[:300].encode()[:300].decode(errors="ignore") in got


class Some:
    """One in every so many is asked of Jinja2; the others have no wrong answer."""

    def __init__(self, theirs, every):
        self.theirs, self.every, self.n = theirs, every, 0

    def render(self, source, variables):
        self.n += 1
        return self.theirs.render(source, variables) if self.n % self.every == 0 else None


def compare(theirs, ours, source, variables):
    """(None, or a description of the difference; whether it is rightly refused)."""
    want, got = theirs.render(source, variables), ours.render(source, variables)
    refused = (want or got)[0] == "error"
    if not want:
        return None, refused
    if want[0] == got[0] and (same_error(want[1], got[1]) if refused else want[1] == got[1]):
        return None, refused
    return f"expected {want[0]}: {want[1]!r:.600}\n     got {got[0]}: {got[1]!r:.600}", refused


def main():
    every = 1
    if sys.argv[1] == "--every":
        every = int(sys.argv[2])
        del sys.argv[1:3]
    if every > 1:
        print(f"# one in {every} is compared with Jinja2")
    ours, theirs, tally = Ours(sys.argv[1]), Some(oracle.Oracle(NOW), every), Tally()
    for what, todo in (("language", snippets.templates()), ("changes", mutation.SNIPPETS),
                       ("changes at random", mutation.programs(random.Random(7), 600))):
        differences = []
        for source in todo:
            d, _ = compare(theirs, ours, source, snippets.VARS)
            if d:
                differences.append(f"{source!r}\n{d}")
        tally.line(not differences, f"{what}: {len(todo)} snippets, {len(differences)} differ",
                   differences[:40])

    alive = [e for e in snippets.REFUSED
             if ours.render("{{ " + e + " }}", snippets.VARS)[0] != "error"]
    tally.line(not alive, f"bounds: {len(snippets.REFUSED)} refused", alive)

    folder = sys.argv[2] if len(sys.argv) > 2 else ""
    files = sorted(f for f in os.listdir(folder) if f.endswith(".jinja")) if os.path.isdir(folder) else []
    if not files:
        print(f"ok {tally.n + 1} - chat templates # SKIP no folder of templates")
        tally.n += 1
    for name in files:
        with open(os.path.join(folder, name), encoding="utf-8", newline="") as f:
            source = f.read()
        cases = conversations.cases(random.Random(name))
        n = errors = 0
        differences = []
        for label, variables in cases:
            n += 1
            d, refused = compare(theirs, ours, source, variables)
            errors += refused
            if d:
                differences.append(f"{label}: {json.dumps(variables, ensure_ascii=False):.1500}\n{d}")
        good = not differences and errors < n  # a template that never renders proves nothing
        tally.line(good, f"{name}: {n} conversations ({errors} rightly refused), "
                         f"{len(differences)} differ", differences[:3])
    print(f"1..{tally.n}")
    sys.exit(1 if tally.bad else 0)


sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
main()
