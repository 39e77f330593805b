#!/usr/bin/env python3
"""Runs the commands of sluice and curl in the blocks of code that users follow, as they stand there, on the demo model: in a
folder that has what they name, with a repository of its own. Commands that serve are stopped once they are ready. Names that
stand for something (OWNER/NAME, HOST) are replaced, and the ports, by the variables that the program reads.

usage: run.py SLUICE

TAP."""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "pull")]
from check import ROOT, read  # noqa: E402
from commands import Sluice, code_lines, strip_front, words_of  # noqa: E402
from repository import Repository  # noqa: E402

DOCUMENTS = ["README.md", "deploy/tarball/README.md", "docs/OPERATIONS.md", "docs/AGENTS.md", "docs/CLUSTER.md"]
# What is not run here, and where it is.
ELSEWHERE = {"--workers b:7070,c:7070": "tests/cluster"}
PATIENCE_S = 1200
SERVERS = {"serve", "worker"}


def programs(line):
    """(program, subcommand) of each simple command of a line."""
    for words in words_of(line):
        words = strip_front(words)
        if words:
            yield os.path.basename(words[0]), words[1] if len(words) > 1 else ""


class Place:
    """A folder where the commands find what they name."""

    def __init__(self, folder, binary, repository):
        self.folder, self.repository = folder, repository
        for path in ("path/sluice", "build/release/sluice", "bin/sluice"):
            self.link(binary, path)
        for path in ("demo/demo.gguf", "MODEL.gguf", "model.gguf"):
            self.link(os.path.join(ROOT, "demo/demo.gguf"), path)
        with open(os.path.join(folder, "FILE"), "w", encoding="utf-8") as f:
            f.write("2 + 3\n")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("SLUICE_", "HF_")) and not k.lower().endswith("_proxy")}
        self.env.update(HOME=folder, XDG_CACHE_HOME=os.path.join(folder, "cache"), PATH=os.path.join(folder, "path") + ":" + os.environ["PATH"],
                        SLUICE_PORT="0", SLUICE_LISTEN="unix:" + os.path.join(folder, "worker"), SLUICE_HEAT_FILE="off", SLUICE_HF_ENDPOINT=repository.url)

    def link(self, to, path):
        os.makedirs(os.path.dirname(os.path.join(self.folder, path)), exist_ok=True)
        os.symlink(to, os.path.join(self.folder, path))

    def start(self, line, **more):
        line = line.replace("https://HOST/PATH", self.repository.url).replace("OWNER/NAME", "own/model")
        return subprocess.Popen(["sh", "-c", line], cwd=self.folder, env=self.env, text=True, start_new_session=True, **more)

    def answered(self, line):
        """What went wrong."""
        p = self.start(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            out, _ = p.communicate("Hello!\n/bye\n", timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            return "it does not end"
        if p.returncode == 0 and out.strip() or ("doctor" in line and p.returncode == 1 and re.search(r"^ *fail\b", out, re.M)):
            return None  # a machine may lack something: then doctor says so
        if "keygen" in line and p.returncode == 0:
            return None  # into a file
        return f"exit code {p.returncode}: {out[-2000:]}"

    def served(self, line, then=None):
        """Starts it, waits until it is ready, does what comes then with its port, and stops it."""
        log = os.path.join(self.folder, "log")
        with open(log, "w", encoding="utf-8") as f:
            p = self.start("exec " + line, stdin=subprocess.DEVNULL, stdout=f, stderr=f)
        text, fault = "", None
        try:
            for _ in range(PATIENCE_S * 10):
                with open(log, encoding="utf-8") as f:
                    text = f.read()
                try:
                    p.wait(0.1)
                    return f"exit code {p.returncode} at the start: {text[-2000:]}"
                except subprocess.TimeoutExpired:
                    pass
                if re.search(r"\bready\b|\bwaiting for a coordinator\b", text) or ("worker" in line and "listening on" in text):
                    break
            else:
                return f"it is not ready: {text[-2000:]}"
            if then:
                fault = then(re.search(r"listening on http://[^ ]*:(\d+)", text)[1])
            p.terminate()
            return fault or (None if p.wait(PATIENCE_S) == 0 else f"exit code {p.returncode} at the end")
        finally:
            if p.poll() is None:
                os.killpg(p.pid, signal.SIGKILL)
                p.wait()

    def asked(self, line):
        """curl, of a server of ours."""
        def then(port):
            r = subprocess.run(["sh", "-c", line.replace("8080", port)], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            return None if r.returncode == 0 and "data: [DONE]" in r.stdout else f"exit code {r.returncode}: {r.stdout[-1000:]}{r.stderr}"
        return self.served("sluice serve -m MODEL.gguf", then)

    def fault(self, line, commands):
        found = list(programs(line))
        if any(program == "curl" for program, _ in found):
            return self.asked(line)
        if ("sluice", "COMMAND") in found:
            return next(filter(None, (self.answered(line.replace("COMMAND", c)) for c in sorted(commands))), None)
        return self.served(line) if any(p == "sluice" and c in SERVERS for p, c in found) else self.answered(line)


def lines(text):
    return [(n, line) for n, line in code_lines(text) if any(p == "curl" or p == "sluice" and re.fullmatch(r"[A-Za-z-]+", c) for p, c in programs(line))]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    binary = os.path.abspath(sys.argv[1])
    with open(os.path.join(ROOT, "demo/demo.gguf"), "rb") as f:
        model = f.read()
    files = {"MODEL-Q4_K_M.gguf": model, "MODEL.gguf": model, **{f"sub/MODEL-0000{n}-of-00003.gguf": b"GGUF" + bytes([n]) * 1000 for n in (1, 2, 3)}}
    commands, n = Sluice(binary).commands, 0
    with Repository(files) as repository, tempfile.TemporaryDirectory(prefix="sluice-docs-") as folder:
        place = Place(folder, binary, repository)
        wrong = [c for c in ("sluice plan -m NONE.gguf", "sluice serve -m MODEL.gguf --port", "curl -s http://127.0.0.1:8080/none", "true | sluice run -m NONE.gguf -q") if not place.fault(c, commands)]
        n += 1
        print(f"{'not ok' if wrong else 'ok'} {n} - commands that are wrong are found\n", *(f"  {w}\n" for w in wrong), sep="", end="", flush=True)
        for name in DOCUMENTS:
            for number, line in lines(read(ROOT, name)):
                n += 1
                where = next((w for part, w in ELSEWHERE.items() if part in line), "curl is not installed" if "curl" in line and not shutil.which("curl") else None)
                fault = None if where else place.fault(line, commands)
                print(f"{'not ok' if fault else 'ok'} {n} - {name}:{number}: {line.split('  ')[0]}{' # SKIP ' + where if where else ''}", flush=True)
                if fault:
                    print("  " + fault.replace("\n", "\n  "), flush=True)
    print(f"1..{n}")


if __name__ == "__main__":
    main()
