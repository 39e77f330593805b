#!/usr/bin/env python3
"""The commands that the documents show, in blocks of code and in the middle of text: those of sluice have a subcommand that is
there, with options that its --help lists and values where these take one; those of make, targets and variables that the
makefiles have; scripts are there and can be run, and know their options; programs below build/ have a source.

usage: commands.py SLUICE

TAP."""
import glob
import os
import re
import shlex
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from check import ROOT, make_targets, makefiles, read  # noqa: E402

DOCUMENTS = ["*.md", "docs/*.md", "deploy/**/*.md", "demo/*.md"]
OURS = r"(?:\S*/)?sluice|make|(?:scripts|bench|tests|build)/\S+"
# What may stand in front of a command.
RUNNERS = {"sudo", "nice", "nohup", "exec", "env", "time"}
INTERPRETERS = {"python3", "sh", "bash", "node"}


def code_lines(text):
    """(number, line) of the blocks of code; lines that end in a backslash are joined to the next."""
    fenced, held, first = False, "", 0
    for n, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or re.match(r" {4,}\S", line):
            line = held + line.strip()
            first = first if held else n
            held = line[:-1] + " " if line.endswith("\\") else ""
            if not held:
                yield first, line


def inline_commands(text):
    """(number, command) of `sluice serve -m FILE`; a name alone is no command."""
    plain = re.sub(r"^```.*?^```", lambda m: "\n" * m[0].count("\n"), text, flags=re.M | re.S)
    for n, line in enumerate(plain.split("\n"), 1):
        if not re.match(r" {4,}\S", line):
            yield from ((n, c) for c in re.findall(r"`([^`]+)`", line) if re.match(rf"(?:{OURS}) \S", c))


def words_of(line):
    """The simple commands of a line of a shell, each as its words. What stands behind a # is a comment."""
    lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    commands = [[]]
    try:
        for word in lexer:
            if word and not word.strip("();<>|&"):
                commands.append([])
            else:
                commands[-1].append(word)
    except ValueError:  # a quote without its end: no line of a shell
        return []
    return [c for c in commands if c]


def strip_front(words):
    while words and (words[0] in RUNNERS or re.fullmatch(r"[A-Z_][A-Z0-9_]*=.*", words[0])):
        words = words[1:]
    return words


class Sluice:
    """What `sluice --help` and the subcommands' own say."""

    def __init__(self, binary):
        self._binary, self._options = binary, {}
        self.commands = set(re.findall(r"^  ([a-z]+) {2,}\S", self._help(), re.M))

    def _help(self, *words):
        return subprocess.run([self._binary, *words, "--help"], capture_output=True, text=True, check=True).stdout

    def options(self, command):
        """From each name of an option to whether it takes a value."""
        if command not in self._options:
            found = re.findall(r"^ {2,6}(?:(-\w), )?(--[\w-]+)(?: (\S+))?(?: {2,}|$)", self._help(command), re.M)
            self._options[command] = {name: bool(value) for short, long, value in found for name in (short, long) if name}
        return self._options[command]

    def faults(self, words):
        if not words or words[0] in ("--version", "--help", "-h", "COMMAND"):
            return []
        command, rest = words[0], words[1:]
        if command not in self.commands:
            return [f"sluice has no command {command!r}"]
        options, out, value_of = self.options(command), [], None
        for word in rest:
            if value_of and (not word.startswith("-") or re.fullmatch(r"-\d*", word)):
                value_of = None
                continue
            if value_of:
                out.append(f"sluice {command}: {value_of} needs a value")
            name, _, given = word.partition("=")
            value_of = None
            if not word.startswith("-") or word == "-":
                continue
            if name not in options:
                out.append(f"sluice {command} has no option {name}")
            elif options[name] and not given:
                value_of = name
        return out + ([f"sluice {command}: {value_of} needs a value"] if value_of else [])


def make_faults(words, rules):
    targets, out = make_targets(rules), []
    for word in words:
        variable = re.fullmatch(r"([A-Z_][A-Z0-9_]*)=.*", word)
        if variable:
            out += [] if re.search(rf"\b{variable[1]}\b", rules) else [f"no makefile has the variable {variable[1]}"]
        elif not word.startswith("-") and word not in targets:
            out.append(f"make has no target {word}")
    return out


def script_faults(words, root, run_by):
    path, out = words[0], []
    file = os.path.join(root, path)
    if not os.path.isfile(file):
        return [f"there is no {path}"]
    text = read(root, path)
    if not run_by and not (os.access(file, os.X_OK) and text.startswith("#!")):
        out.append(f"{path} cannot be run: it is not executable, or does not begin with #!")
    return out + [f"{path} has no option {o}" for o in (w.partition("=")[0] for w in words[1:]) if re.fullmatch(r"--[a-z][\w-]*", o) and o not in text]


def built_faults(path, root):
    """build/MODE/FOLDER/NAME is made from FOLDER/NAME.c, build/peer/NAME from tests/peer/NAME.c*."""
    parts = path.split("/")
    inner = "/".join(["tests", *parts[1:]] if parts[1] == "peer" else parts[2:])
    made = [f for end in (".c", ".cc", ".cpp", "*.c") for f in glob.glob(os.path.join(root, inner + end))]
    return [] if made or path.endswith("*") else [f"{path} has no source {inner}.c"]


def command_faults(words, sluice, rules, root):
    words = strip_front(words)
    run_by = bool(words) and words[0] in INTERPRETERS
    words = words[1:] if run_by else words
    if not words:
        return None
    first = words[0]
    if len(words) > 1 and words[1] == "=":  # a setting of some file
        return None
    if re.fullmatch(r"(?:\S*/)?sluice", first) and not run_by:
        return sluice.faults(words[1:])
    if first == "make" and not run_by:
        return make_faults(words[1:], rules)
    if re.match(r"(?:scripts|bench|tests)/", first):
        return script_faults(words, root, run_by)
    if re.match(r"build/[\w-]+/", first):
        return built_faults(first, root)
    return None


def document_faults(name, text, sluice, rules, root):
    """The faults, and how many commands were looked at."""
    faults, n_seen = [], 0
    for n, line in [*code_lines(text), *inline_commands(text)]:
        for words in words_of(line):
            found = command_faults(words, sluice, rules, root)
            n_seen += found is not None
            faults += [f"{name}:{n}: {f}" for f in found or []]
    return faults, n_seen


def planted(sluice):
    """The checks on documents that are wrong in one point each, or right."""
    rules = "MODE ?= release\n.PHONY: all\nall:\n"
    cases = [("    sluice serve -m F --no-such-option 1", 1), ("    sluice serve -m F --port 1 --alias a,b", 0), ("    sluice serve -m", 1), ("    sluice serve --port --alias a", 1),
             ("    sluice dance -m F", 1), ("    build/release/sluice run -m F -p 'a # b' -z  # --not-this", 1), ("    X=1 sudo bin/sluice plan -m F --card=24GiB --ram 2G", 0),
             ("```\nsluice serve \\\n  -m F \\\n  --prot 1\n```", 1), ("```toml\nsluice = \"--nothing\"\n```", 0), ("    umask 077; sluice keygen --what > k", 1), ("    echo a | sluice run -m F -q && sluice", 0),
             ("see `sluice serve --none` and `sluice`", 1), ("`sluice run -m F -f -`", 0), ("    sluice --version", 0), ("    sluice COMMAND --help", 0),
             ("    make all MODE=asan -j2", 0), ("    make none", 1), ("    make all MOOD=asan", 1), ("    make -j\"$(nproc)\"", 0),
             ("    scripts/run.sh --fast", 0), ("    scripts/run.sh --slow", 1), ("    scripts/none.sh", 1), ("    scripts/plain.py", 1), ("    python3 scripts/plain.py", 0), ("    python3 scripts/none.py", 1),
             ("    build/release/bench/bench_a 5", 0), ("    build/release/bench/bench_b", 1), ("    curl -N localhost", 0), ("a sentence about make none", 0)]
    out = []
    with tempfile.TemporaryDirectory() as root:
        for path, text, mode in (("scripts/run.sh", "#!/bin/sh\n# --fast", 0o755), ("scripts/plain.py", "#!/usr/bin/env python3", 0o644), ("bench/bench_a.c", "", 0o644)):
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                f.write(text)
            os.chmod(os.path.join(root, path), mode)
        for text, wanted in cases:
            got, _ = document_faults("README.md", text, sluice, rules, root)
            out += [] if len(got) == wanted else [f"{text!r}: {got}"]
    return out


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sluice, rules = Sluice(os.path.abspath(sys.argv[1])), makefiles(ROOT)[0]
    checks, n_all = [("the checks find what is wrong", planted(sluice))], 0
    for name in sorted({os.path.relpath(p, ROOT) for pattern in DOCUMENTS for p in glob.glob(os.path.join(ROOT, pattern), recursive=True)}):
        faults, n = document_faults(name, read(ROOT, name), sluice, rules, ROOT)
        n_all += n
        if n:
            checks.append((f"{name}: {n} command{'s' if n > 1 else ''}", faults))
    checks.append(("there are commands to look at", [] if n_all >= 50 else [f"only {n_all} were found"]))
    for n, (name, faults) in enumerate(checks, 1):
        print(f"{'not ok' if faults else 'ok'} {n} - {name}")
        for fault in faults:
            print(f"  {fault}")
    print(f"1..{len(checks)}")
    sys.exit(any(faults for _, faults in checks))


if __name__ == "__main__":
    main()
