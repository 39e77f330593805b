#!/usr/bin/env python3
"""What bash, zsh and fish complete, in the shells themselves; and that the words they offer are those that the program takes.

usage: complete.py SLUICE

TAP. A shell that is not here is skipped."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from terminal import NEVER_S, Tap, Terminal, plain  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPTS = os.path.join(ROOT, "deploy", "completion")
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("SLUICE_", "LC_"))}
# A line as it is typed, and all that may stand for its last word; None: an option that stands alone, so anything does.
LINES = [
    ("sluice doct", {"doctor"}), ("sluice --ver", {"--version"}),
    ("sluice plan --spl", {"--split"}), ("sluice serve --api", {"--api-key", "--api-key-file"}), ("sluice run --hi", {"--history"}),
    ("sluice serve --kv-type ", {"f16", "q8_0"}), ("sluice serve --draft a", {"auto"}), ("sluice serve --log-level w", {"warn"}), ("sluice run --io p", {"pread", "pread-buffered"}),
    ("sluice serve --cpu-isa av", {"avx2", "avx512"}), ("sluice run --think m", {"minimal", "medium", "max"}),
    ("sluice run -m m", {"model.gguf", "models/"}), ("sluice inspect m", {"model.gguf", "models/"}), ("sluice serve --cache-dir m", {"models/"}),
    ("sluice serve --tls-cert m", {"model.gguf", "models/", "message.txt"}), ("sluice run --history o", {"off", "other"}), ("sluice serve --any", {"--any-model-name"}),
]
EQUALS = ("sluice serve --experts=s", {"--experts=streamed"})


def missing(shell):
    if shutil.which(shell):
        return False
    print(f"  # {shell} is not here: not tried")
    return True


class Complete(Tap):
    def __init__(self, sluice, folder):
        self._folder = folder
        self._env = {**CLEAN, "LANG": "C.UTF-8", "HOME": os.path.join(folder, "home"), "TERM": "xterm", "PATH": os.path.join(folder, "bin") + ":" + os.environ["PATH"]}
        self._env.pop("XDG_CONFIG_HOME", None)
        for name in ("bin", "home", "work", "work/models"):
            os.mkdir(os.path.join(folder, name))
        os.symlink(sluice, os.path.join(folder, "bin", "sluice"))
        for name in ("model.gguf", "message.txt", "other"):
            with open(os.path.join(folder, "work", name), "w", encoding="ascii"):
                pass

    def _run(self, *argv):
        p = subprocess.run(argv, capture_output=True, text=True, timeout=NEVER_S, check=False, env=self._env, cwd=os.path.join(self._folder, "work"))
        return p.returncode, p.stdout, p.stderr

    def _options(self, command):
        code, out, err = self._run("sluice", command, "--list-options")
        assert code == 0 and not err, err
        rows = [line.split("\t") for line in out.splitlines()]
        assert all(len(r) == 5 and all(r) for r in rows), out
        return rows

    def _commands(self):
        code, out, _ = self._run("sluice", "--list-commands")
        assert code == 0
        return [line.split("\t")[0] for line in out.splitlines()]

    def the_tables_have_what_the_help_has(self):
        for c in self._commands():
            _, text, _ = self._run("sluice", c, "--help")
            listed = [r[0] for r in self._options(c)]
            assert listed == re.findall(r"^ {2,6}(?:-\w, )?(--[a-z-]+)", text, re.M), (c, listed)
            assert {r[2] for r in self._options(c)} <= {"none", "model", "file", "folder", "word", "text"}

    def every_word_is_taken_and_no_other(self):
        """By commands that then find no model: an error at work (1), where a word that is wrong is one of usage (2)."""
        n = 0
        for c in ("serve", "run", "plan", "bench", "score"):
            rest = ["--text", "/dev/null"] if c == "score" else []
            for name, _, what, words, _ in self._options(c):
                if what != "word" or name == "--device":  # which depends on the drivers here
                    continue
                for word in words.split():
                    code, _, err = self._run("sluice", c, "-m", "/no/such", *rest, name, word)
                    assert code == 1 and "/no/such" in err, (c, name, word, code, err)
                    n += 1
                if name != "--split":
                    code, _, err = self._run("sluice", c, "-m", "/no/such", *rest, name, "none-such")
                    assert code == 2 and name in err, (c, name, err)
        assert n > 50, n

    def _check(self, offered):
        for line, wanted in LINES:
            got = offered(line)
            assert got == wanted, f"{line!r}: {sorted(got)}, not {sorted(wanted)}"

    def bash(self):
        # As bash does it: files that are folders get their slash by the option `filenames`, which -o gives to Readline.
        script = ('source "$1"; line=$2; COMP_WORDS=($line); [[ $line == *" " ]] && COMP_WORDS+=(""); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _sluice; '
                  'for w in "${COMPREPLY[@]}"; do [[ -d $w ]] && w+=/; echo "$w"; done')

        def offered(line):
            code, out, err = self._run("bash", "--norc", "-c", script, "-", os.path.join(SCRIPTS, "sluice.bash"), line)
            assert code == 0 and not err, err
            return set(out.split())
        self._check(offered)
        assert offered("sluice serve --experts = s") == {"streamed"}, "bash cuts words at the equals sign"

    def fish(self):
        if missing("fish"):
            return

        def offered(line):
            code, out, err = self._run("fish", "--no-config", "-c", f"source {SCRIPTS}/sluice.fish; complete -C '{line}'")
            assert code == 0 and not err, err
            return {row.split("\t")[0] for row in out.splitlines()}
        # Whatever does not end in .gguf comes behind, as everywhere in fish.
        for line, wanted in [*LINES, EQUALS]:
            got = offered(line)
            if "-m m" in line or "inspect" in line:
                got -= {"message.txt"}
            assert got == wanted, f"{line!r}: {sorted(got)}, not {sorted(wanted)}"
        _, out, _ = self._run("fish", "--no-config", "-c", f"source {SCRIPTS}/sluice.fish; complete -C 'sluice doct'")
        assert out.startswith("doctor\tsay what slows"), out

    def zsh(self):
        if missing("zsh"):
            return
        # A shell on a terminal: a single match is inserted by Tab, several are listed by Ctrl-D.
        setup = (f"cd {self._folder}/work; fpath=({SCRIPTS} $fpath); autoload -Uz compinit; compinit -u -D; unsetopt beep; "
                 "PROMPT='> '; LISTMAX=1000; echo READ''Y\r")
        t = Terminal(["zsh", "-f", "-i"], self._env)
        try:
            t.say(setup.encode())
            ready = rb"\x1b\[\?2004h"  # its line editor has the terminal: before that Ctrl-D is no key
            t.until(rb"READY")
            t.until(ready)
            for n, (line, wanted) in enumerate([*LINES, EQUALS]):
                one = len(wanted) == 1
                t.say(line.encode() + (b"\t" if one else b"\x04"))
                words = [line[:line.rindex(" ") + 1] + min(wanted)] if one else wanted
                while not all(w.encode() in plain(t.shown[t.at:]) for w in words):
                    assert t.more(), t.shown[t.at:]
                t.say(f"\x15echo DO''NE{n}\r".encode())  # the line is dropped
                shown = plain(t.until(f"DONE{n}\\b".encode()))
                t.until(ready)
                others = {w for _, more in LINES for w in more} - wanted
                listed = set(shown[shown.index(b"\n") + 1:].decode().split("echo")[0].split()) if not one else set()
                assert not listed & others - set(line.split()), (line, listed)
            t.say(b"exit\r")
            t.end()
        finally:
            t.kill()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sluice = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="sluice-complete-") as folder:
        Complete(sluice, folder).run()


main()
