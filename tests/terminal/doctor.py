#!/usr/bin/env python3
"""sluice doctor where something is refused, and sluice version.

usage: doctor.py SLUICE

TAP."""
import ctypes
import json
import os
import re
import resource
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from terminal import NEVER_S, Tap, Terminal, plain  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEMO = os.path.join(ROOT, "demo", "demo.gguf")
NAMES = {"io_uring", "seccomp", "memlock", "huge pages", "memory", "cgroup memory", "open files", "device", "model", "O_DIRECT", "disk"}
LIBC = ctypes.CDLL(None, use_errno=True)


def refuse_io_uring():
    """A filter of system calls as a container has one, on x86-64. Source: seccomp(2)."""
    program = [(0x20, 0, 0, 0), (0x15, 0, 1, 425), (0x06, 0, 0, 0x00050000 | 1), (0x06, 0, 0, 0x7fff0000)]  # io_uring_setup: EPERM
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    filters = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(program), ctypes.addressof(code)))
    if LIBC.prctl(38, 1, 0, 0, 0) or LIBC.prctl(22, 2, ctypes.byref(filters), 0, 0):
        os._exit(99)


def little_lock():
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (1 << 20, 1 << 20))
    if os.getuid() == 0:  # root may lock what it likes
        os.setgid(65534)
        os.setuid(65534)


class Doctor(Tap):
    def __init__(self, sluice, folder):
        self._sluice, self._folder = sluice, folder

    def _ask(self, *words, code=0, **popen):
        p = subprocess.run([self._sluice, "doctor", *words], capture_output=True, text=True, timeout=NEVER_S, check=False, **popen)
        assert p.returncode == code and not p.stderr, f"exit code {p.returncode}: {p.stderr}"
        return p.stdout

    def _findings(self, *words, **more):
        said = json.loads(self._ask("--json", *words, **more))
        counts = {h: sum(f["health"] == h for f in said["findings"]) for h in ("ok", "warn", "fail")}
        assert (said["ok"], said["warnings"], said["failures"]) == tuple(counts.values()), said
        assert all((f["advice"] is None) == (f["health"] == "ok") for f in said["findings"]), said
        return {f["name"]: f for f in said["findings"]}

    def all_is_looked_at(self):
        found = self._findings(DEMO)
        assert set(found) == NAMES, set(found) ^ NAMES
        assert found["model"]["health"] == "ok" and "in 1 file" in found["model"]["text"], found
        text = self._ask(DEMO)
        assert all(len(line) <= 80 for line in text.splitlines()), text
        assert re.search(r"^\d+ ok, \d+ warnings?, 0 failures$", text, re.M), text

    def the_speed_of_a_disk(self):
        path = os.path.join(self._folder, "m.gguf")
        subprocess.run([self._sluice, "synth", "-q", "-o", path, "--layers", "8", "--experts", "64"], check=True, timeout=NEVER_S)
        found = self._findings("-m", path)
        assert re.fullmatch(r"reads \d+\.\d\d GB/s, one expert of \d+\.\d MiB in \d+\.\d\d ms", found["disk"]["text"]), found

    def a_folder(self):
        with tempfile.TemporaryDirectory(dir=self._folder) as empty:
            found = self._findings(empty)
            assert "not measured" in found["disk"]["text"] and "model" not in found and not os.listdir(empty), found

    def what_is_not_there(self):
        assert self._findings("/no/such", code=1)["model"]["health"] == "fail"
        with tempfile.NamedTemporaryFile(suffix=".gguf") as f:
            f.write(b"no model")
            f.flush()
            assert self._findings(f.name, code=1)["model"]["health"] == "fail"

    def a_system_that_refuses_io_uring(self):
        if os.uname().machine != "x86_64":
            return
        found = self._findings(self._folder, preexec_fn=refuse_io_uring)
        assert found["io_uring"]["health"] == "warn" and found["seccomp"]["health"] == "warn", found
        assert "seccomp.json" in found["seccomp"]["advice"], found

    def a_limit_on_locked_memory(self):
        found = self._findings("/", preexec_fn=little_lock)
        assert found["memlock"]["health"] == "warn" and "1.00 MiB" in found["memlock"]["text"], found

    def colours_on_a_terminal(self):
        for env, wanted in (({}, True), ({"NO_COLOR": "1"}, False)):
            t = Terminal([self._sluice, "doctor", self._folder], {**{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, "TERM": "xterm", **env})
            assert t.end() == 0
            assert (b"\x1b[32mok" in t.shown) == wanted and b"io_uring" in plain(t.shown), t.shown

    def the_version(self):
        said = {subprocess.run([self._sluice, *w], capture_output=True, text=True, check=True).stdout for w in (["version"], ["--version"], ["-V"])}
        assert len(said) == 1 and re.fullmatch(r"sluice \d+\.\d+\.\d+\n", said.pop())
        assert subprocess.run([self._sluice, "version", "x"], capture_output=True, check=False).returncode == 2


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory(prefix="sluice-doctor-") as folder:
        os.chmod(folder, 0o755)
        Doctor(os.path.abspath(sys.argv[1]), folder).run()


main()
