#!/usr/bin/env python3
"""How the program starts when whoever starts it leaves it little: small stacks, little address space, few threads, closed
descriptors; and that a signal to stop ends whatever a start waits for.

usage: start.py SLUICE HANGING_DISK

HANGING_DISK is tests/support/hanging_disk.c as a library.

TAP."""
import fcntl
import os
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = os.path.join(ROOT, "demo", "demo.gguf")
PATIENCE_S = 120  # for what takes a moment: the machine may be busy
KIB, MIB = 1 << 10, 1 << 20
HANGING_DISK = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else ""
INFINITE = resource.RLIM_INFINITY


class Program:
    """The program in the background, with what it says on stderr."""

    def __init__(self, sluice, *args, **popen):
        self.process = subprocess.Popen([sluice, *args], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **popen)
        self.log = ""
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.log += line

    def until(self, pattern):
        """The match in the log, or None when the program ends or takes too long."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            ended = self.process.poll() is not None
            if ended:
                self.reader.join(PATIENCE_S)
            if m := re.search(pattern, self.log):
                return m
            if ended:
                return None
            time.sleep(0.02)
        return None

    def end(self, sig=signal.SIGTERM):
        """The exit code, negative for a signal."""
        if self.process.poll() is None:
            self.process.send_signal(sig)
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
            self.log += f"\nit did not end within {PATIENCE_S} s\n"
        self.reader.join(PATIENCE_S)
        return code


def limits(which, soft, hard):
    return lambda: resource.setrlimit(which, (soft, hard))


def once(sluice, *args, **popen):
    """(exit code, what was said) of a command."""
    p = subprocess.run([sluice, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE_S, **popen)
    return p.returncode, p.stdout


def small_stacks(sluice):
    """A hard limit that is too small is refused; below a larger one the program helps itself. With less than some 32 KiB
    the dynamic loader comes to no end before main, of /bin/true either, depending on the environment and on chance."""
    faults = []
    for kib in (64, 128, 1024):
        limit = limits(resource.RLIMIT_STACK, kib * KIB, kib * KIB)
        code, said = once(sluice, "plan", "-m", MODEL, preexec_fn=limit)
        if code != 1 or f"the stack is limited to {kib} KiB; at least" not in said or "ulimit -s" not in said:
            faults.append(f"limit of {kib} KiB: {code}, {said[-200:]}")
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    for soft in (64 * KIB, 128 * KIB, 2 * MIB, *([INFINITE] if hard == INFINITE else [])):
        code, said = once(sluice, "run", "-m", MODEL, "-p", "What is 2 + 3?", "-n", "16", "--device", "cpu", preexec_fn=limits(resource.RLIMIT_STACK, soft, hard))
        if code or "5" not in said:
            faults.append(f"soft limit of {soft} bytes: {code}, {said[-200:]}")
    return faults


def ask(port):
    body = b'{"messages":[{"role":"user","content":"What is 2 + 3?"}],"max_tokens":8,"temperature":0}'
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/chat/completions", body, PATIENCE_S) as r:
        return r.read().decode()


def threads_of_a_small_stack(sluice):
    """They have stacks of their own size, not of RLIMIT_STACK's."""
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    s = Program(sluice, "serve", "-m", MODEL, "--port", "0", "--device", "cpu", preexec_fn=limits(resource.RLIMIT_STACK, 64 * KIB, hard))
    faults = []
    if s.until("ready after"):
        answer = ask(s.until(r"127\.0\.0\.1:(\d+)")[1])
        faults += [] if "5" in answer else [answer]
    else:
        faults.append("it did not become ready")
    code = s.end()
    return faults + ([f"{code}: {s.log[-500:]}"] if code or faults else [])


def the_last_line(sluice):
    """A start ends with where the server is, what it serves and how fast; with --no-warmup no speed is known."""
    faults = []
    for words, speed in ((["--alias", "one,two"], r", about [\d.]+ tokens/s for one request"), (["--no-warmup"], "")):
        s = Program(sluice, "serve", "-m", MODEL, "--port", "0", "--device", "cpu", "--host", "0.0.0.0", *words)
        line = s.until(r"ready after [\d.]+ s: http://127\.0\.0\.1:(\d+) serves (\w+)(, [^;]*)?; 1024 tokens of context, 4 requests at once, on cpu.*")
        if not line or line[2] != ("one" if speed else "demo") or not re.fullmatch(speed, line[3] or ""):
            faults.append(f"{words}: {s.log[-400:]}")
        elif "5" not in ask(line[1]):
            faults.append("the server is elsewhere")
        s.end()
    return faults


def start_under(sluice, limit, prefix=()):
    """What is wrong with the end of a start that has too little of something; (faults, became ready)."""
    command = [*prefix, sluice]
    s = Program(command[0], *command[1:], "serve", "-m", MODEL, "--port", "0", "--device", "cpu", preexec_fn=limit)
    ready = s.until("ready after") is not None
    code = s.end()
    if code == (0 if ready else 1) and (ready or " error " in s.log):
        return [], ready
    if code == 127 and "error while loading shared libraries" in s.log:
        return [], ready
    return [f"{'ready' if ready else 'not ready'}, {code}: {s.log[-300:]}"], ready


def image_bytes(program):
    """What the kernel maps of it, from its ELF program headers."""
    with open(program, "rb") as f:
        header = f.read(64)
        offset, (size, n) = struct.unpack_from("<Q", header, 32)[0], struct.unpack_from("<HH", header, 54)
        f.seek(offset)
        segments = [struct.unpack("<IIQQQQQQ", f.read(size)[:56]) for _ in range(n)]
    return sum(s[6] for s in segments if s[0] == 1)


def little_address_space(sluice):
    # With less than the program's own image the kernel kills it before its first instruction.
    first = image_bytes(sluice) // MIB + 2
    faults, seen = [], set()
    for mib in (first, *range(first // 16 * 16 + 16, 128, 16), 128, 160, 192, 224, 4096):
        wrong, ready = start_under(sluice, limits(resource.RLIMIT_AS, mib * MIB, mib * MIB))
        faults += [f"{mib} MiB: {w}" for w in wrong]
        seen.add(ready)
    return faults + ([] if seen == {False, True} else ["the limits tried do not tell"])


def few_threads(sluice):
    # The limit counts all of a user's threads, so it is a user of nobody else; root's is not kept.
    uid = str(2000000000 + os.getpid())
    other = ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups"]
    if os.geteuid() != 0 or not shutil.which("setpriv") or subprocess.run([*other, os.path.abspath(sluice), "inspect", MODEL], capture_output=True).returncode:
        return None
    faults, seen = [], set()
    for n in (*range(1, 12), 500):
        wrong, ready = start_under(sluice, limits(resource.RLIMIT_NPROC, n, n), other)
        faults += [f"{n} threads: {w}" for w in wrong]
        seen.add(ready)
    return faults + ([] if seen == {False, True} else ["the limits tried do not tell"])


def closed_descriptors(sluice):
    """What is printed and logged goes into no file that was opened since, and lost output is a failure."""
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        whole, other = os.path.join(folder, "whole.gguf"), os.path.join(folder, "other.gguf")
        synth = ["synth", "--vocab", "300"]
        code, said = once(sluice, *synth, "-o", whole)
        faults += [f"synth: {code}, {said}"] if code else []
        for closed in ((0,), (1,), (2,), (0, 1, 2)):
            command = ["sh", "-c", 'exec "$@" ' + " ".join(f"{fd}>&-" for fd in closed), "-", sluice]
            code = subprocess.run([*command, *synth, "-o", other], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=PATIENCE_S).returncode
            with open(whole, "rb") as a, open(other, "rb") as b:
                if code not in (0, 1) or a.read() != b.read():
                    faults.append(f"without {closed} the file is another one, or {code}")
            os.unlink(other)
        code = subprocess.run(["sh", "-c", 'exec "$@" >&-', "-", sluice, "inspect", whole], stderr=subprocess.DEVNULL, timeout=PATIENCE_S).returncode
        faults += [f"inspect without stdout: {code}"] if code != 1 else []
        # A server without stderr: what it opens first is the model.
        at = os.path.join(folder, "s")
        with subprocess.Popen(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "-", sluice, "serve", "-m", MODEL, "--host", "none", "--unix-socket", at, "--device", "cpu"]) as server:
            end = time.monotonic() + PATIENCE_S
            while once(sluice, "health", "--unix-socket", at)[0] and server.poll() is None and time.monotonic() < end:
                time.sleep(0.05)
            if server.poll() is None:
                has = [os.readlink(f"/proc/{server.pid}/fd/{fd}") for fd in (0, 1, 2)]
                faults += [f"its first descriptors are {has}"] if has != ["/dev/null"] * 3 else []
            server.terminate()
            code = server.wait(PATIENCE_S)
            faults += [f"the server without descriptors: {code}"] if code else []
    return faults


def stopped_while_it_waits(sluice):
    """For the lock of its socket, which another process has: a signal ends that at once, and as it should be."""
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        at = os.path.join(folder, "s")
        with open(at + ".lock", "w", encoding="ascii") as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX)
            for sig in (signal.SIGTERM, signal.SIGINT):
                s = Program(sluice, "serve", "-m", MODEL, "--host", "none", "--unix-socket", at, "--device", "cpu")
                # It waits from when it has the lock open; the wait is five seconds.
                end = time.monotonic() + PATIENCE_S
                while at + ".lock" not in open_files(s.process.pid) and s.process.poll() is None and time.monotonic() < end:
                    time.sleep(0.01)
                code = s.end(sig)
                if code or "stopped before it listened" not in s.log:
                    faults.append(f"{sig.name}: {code}, {s.log[-300:]}")
    return faults


def descriptors(pid):
    try:
        return [f"/proc/{pid}/fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return []


def open_files(pid):
    """What its descriptors lead to; one may be closed while they are read."""
    found = set()
    for fd in descriptors(pid):
        try:
            found.add(os.readlink(fd))
        except OSError:
            pass
    return found


def n_threads(pid):
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0


def stopped_while_a_disk_hangs(sluice):
    """A heat file's disk that does not answer: it is waited for for five seconds, unless a signal says to stop. Stopping is then
    what is logged, not that the disk was given up."""
    with tempfile.TemporaryDirectory() as folder:
        heat = os.path.join(folder, "heat")
        s = Program(sluice, "serve", "-m", MODEL, "--port", "0", "--device", "cpu", "--experts", "streamed", "--heat-file", heat,
                    env={**os.environ, "LD_PRELOAD": HANGING_DISK, "SLUICE_TEST_HANGS": heat})
        end = time.monotonic() + PATIENCE_S
        while not os.path.exists(heat + ".asked") and s.process.poll() is None and time.monotonic() < end:
            time.sleep(0.005)
        asked = os.path.exists(heat + ".asked")
        code = s.end()
        gave_up = "does not answer" in s.log
        return [f"{code}, {'asked' if asked else 'not asked'}: {s.log[-300:]}"] if code or gave_up or not asked else []


def stopped_while_a_name_is_looked_up(sluice):
    """By a resolver that does not answer, in a mount namespace that has it in /etc/resolv.conf."""
    if os.geteuid() != 0 or not shutil.which("unshare") or not os.path.exists("/etc/resolv.conf"):
        return None
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        try:
            silent.bind(("127.0.0.77", 53))
        except OSError:
            return None
        resolv = os.path.join(folder, "resolv.conf")
        with open(resolv, "w", encoding="ascii") as f:
            f.write("nameserver 127.0.0.77\noptions timeout:30 attempts:5\n")
        inside = ["unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc/resolv.conf && exec "$@"', resolv]
        if subprocess.run([*inside, "true"], stderr=subprocess.DEVNULL).returncode:
            return None
        s = Program(*inside, sluice, "serve", "-m", MODEL, "--port", "0", "--device", "cpu", "--host", "sluice.test.invalid.example")
        silent.settimeout(PATIENCE_S)
        try:
            silent.recv(512)  # it has asked, and waits for half a minute now
        except TimeoutError:
            s.end()
            return None  # another kind of resolver
        began = time.monotonic()
        code = s.end()
        took_s = time.monotonic() - began
        return [f"{code} after {took_s:.1f} s: {s.log[-300:]}"] if code != -signal.SIGTERM or took_s > 25 else []


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sluice = os.path.abspath(sys.argv[1])
    tests = [("the last line", the_last_line), ("stacks that are too small", small_stacks), ("threads under a small stack limit", threads_of_a_small_stack), ("little address space", little_address_space),
             ("few threads", few_threads), ("closed descriptors", closed_descriptors), ("a signal while another start has the lock", stopped_while_it_waits),
             ("a signal while a disk hangs", stopped_while_a_disk_hangs), ("a signal while a name is looked up", stopped_while_a_name_is_looked_up)]
    for n, (name, test) in enumerate(tests, 1):
        wrong = test(sluice)
        print(f"{'not ok' if wrong else 'ok'} {n} - {name}{' # SKIP not as root, or not on this machine' if wrong is None else ''}", flush=True)
        for w in wrong or []:
            print("  " + w.replace("\n", "\n  "))
    print(f"1..{len(tests)}")


main()
