#!/usr/bin/env python3
"""--help of every command: its width, its colours; and the variables of every option that it lists.

usage: help.py SLUICE

TAP."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from terminal import NEVER_S, Tap, Terminal, plain  # noqa: E402

SECRETS = {"--api-key"}
OPTION = re.compile(r"^ {2,6}(?:-\w, )?(--[a-z-]+)(?: (\S+))?(?:  |$)", re.M)
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}


class Help(Tap):
    def __init__(self, sluice):
        self._sluice = sluice
        self._commands = re.findall(r"^  ([a-z]+)  +\S", self._text(), re.M)
        assert len(self._commands) > 10, self._commands

    def _text(self, *words):
        return subprocess.run([self._sluice, *words, "--help"], capture_output=True, text=True, check=True, timeout=NEVER_S, env=CLEAN).stdout

    def _run(self, *words, **env):
        p = subprocess.run([self._sluice, *words], capture_output=True, text=True, check=False, timeout=NEVER_S, env={**CLEAN, **env})
        return p.returncode, p.stdout + p.stderr

    def eighty_columns(self):
        wide = [(c, line) for c in [None, *self._commands] for line in self._text(*filter(None, [c])).splitlines() if len(line) > 80]
        assert not wide, wide

    def every_option_has_a_text(self):
        for c in self._commands:
            text = self._text(c)
            assert "  -h, --help " in text and re.search(rf"\nusage: .*sluice {c}\b", text), text
            for name, _ in OPTION.findall(text):
                assert re.search(rf"{name}( \S+)?(\s{{2,}})\S", text), (c, name)

    def every_option_has_a_variable(self):
        """A switch or a number that is none is refused by the variable's name; a text is as if it had been given."""
        n = 0
        for c in self._commands:
            for name, value in OPTION.findall(self._text(c)):
                variable = "SLUICE_" + name[2:].upper().replace("-", "_")
                if name == "--help":
                    continue
                kinds = {"N", "PORT", "TOKENS", "MIB", "MS", "S", "X"}
                if value and (value not in kinds or name == "--text"):
                    continue
                if name in SECRETS:
                    continue
                code, said = self._run(c, **{variable: "nonsense"})
                assert code == 2 and f"{variable} is 'nonsense': must be " in said, (c, variable, said)
                assert f"try 'sluice {c} --help'" in said.lower(), said
                n += 1
        assert n > 100, n

    def variables_give_way_to_the_command_line(self):
        code, said = self._run("inspect", "/no/such/one", SLUICE_MODEL="/no/such/two")
        assert code == 1 and "/no/such/one" in said and "/no/such/two" not in said, said
        code, said = self._run("inspect", SLUICE_MODEL="/no/such/two")
        assert code == 1 and "/no/such/two" in said, said
        code, said = self._run("run", "-m", "/no/such/one", "--ctx", "64", SLUICE_CTX="nonsense")
        assert code == 1 and "/no/such/one" in said, said
        code, said = self._run("serve", "-m", "/no/such/one", SLUICE_PORT="tcp://10.0.0.1:80")
        assert code == 1 and "/no/such/one" in said, said
        code, said = self._run("synth", "-q", "-o", "/dev/null/x", SLUICE_PRESET="none-such")
        assert code == 2 and "none-such" in said, said

    def one_variable_suits_a_server_and_its_health_check(self):
        for c in ("serve", "health"):
            code, said = self._run(c, *(["-m", "/no/such"] if c == "serve" else []), SLUICE_TIMEOUT_S="31536000", SLUICE_UNIX_SOCKET="/no/such")
            assert code == 1 and "/no/such" in said, said

    def no_secret_is_taken_from_a_variable(self):
        for name in SECRETS:
            assert name in self._text("serve")
            # A key with a space would be refused.
            code, said = self._run("serve", "-m", "/no/such", **{"SLUICE_" + name[2:].upper().replace("-", "_"): "no key"})
            assert code == 1 and "no key" not in said, said
            assert f"{name} has none" in " ".join(self._text("serve").split())

    def variables_are_in_the_help_and_not_in_those_without_options(self):
        for c in self._commands:
            text = " ".join(self._text(c).split())
            has = len(OPTION.findall(self._text(c))) > 1
            assert ("can also be set by environment variables: SLUICE_" in text) == has, (c, text)

    def headings_are_bold_where_wanted(self):
        for env, wanted in (({}, True), ({"NO_COLOR": "1"}, False)):
            t = Terminal([self._sluice, "serve", "--help"], {**CLEAN, "TERM": "xterm", "NO_COLOR": "", **env})
            assert t.end() == 0 and (b"\x1b[1mEngine" in t.shown) == wanted and b"\nEngine\n" in plain(t.shown), t.shown[:400]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    Help(os.path.abspath(sys.argv[1])).run()


main()
