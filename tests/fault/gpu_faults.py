#!/usr/bin/env python3
"""A GPU that is lost or full while the real binary works on it, or on it and another: what clients, /health, the log and
the exit say of it, and that nothing hangs. Prints TAP.

usage: gpu_faults.py [--backend hip] SLUICE MODEL FAULTY_FOLDER DRIVER [OPTION...]

FAULTY_FOLDER holds tests/support/faulty_cuda.c as libcuda.so.1, which brings the faults about in the DRIVER behind it:
the real one, or tests/support/fake_cuda.so, whose kernels do nothing. The kernels that fault, and the memory that runs
out, are then real, or that one's; it shows two GPUs. Where a driver shows one, what wants two is skipped. OPTIONs are
added to every command. --backend hip: it is libamdhip64.so.6, and the DRIVER ROCm's runtime or fake_hip.so."""
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support.fair_clock import FairClock  # noqa: E402

PATIENCE_S = 20  # as ENDS_S, of fair_clock.py
ENDS_S = 8  # from SIGTERM to the exit, when there is nothing to finish
FINISHES_S = 30  # what the server gives the answers that it finishes
NO_ANSWER_S = 120  # of real time: that of a socket, or of a command that should have ended
N_CLIENTS = 4
COPYING_ATTEMPTS = 8
PLAN = ["plan", "--ram-bandwidth", "1", "--disk-bandwidth", "1"]  # unmeasured
RUN = ["run", "-q", "-n", "8", "--temp", "0", "-p", "a", "--heat-file", "off"]
STREAMED = ["--experts", "streamed"]  # with the least --vram, found out
FAKES = ("fake_cuda.so", "fake_hip.so")


def shorten(log):
    """Errors and what the driver in between said, and the end."""
    lines = [line for line in log.splitlines() if "info  memory" not in line and "POST /v1" not in line]
    return "\n".join(lines[-25:])


class Server:
    """A server whose driver fails once `trigger` exists."""

    def __init__(self, t, fault, options, env=()):
        self.trigger = os.path.join(t.folder, "trigger")
        self.clear()
        self.errors, self.ended, self.chunks, self.clients = [], 0, 0, []
        self.prompt, self.n_tokens = t.prompt, t.n_tokens
        self.log = tempfile.TemporaryFile("a+", dir=t.folder)  # appended to, wherever it is read
        self.child = subprocess.Popen([t.sluice, "serve", "-m", t.model, "--port", "0", "-c", "512", "--heat-file", "off"] +
                                      options, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.log,
                                      env=dict(t.env(f"{fault} {self.trigger}"), **dict(env)))

    def clear(self):
        if os.path.exists(self.trigger):
            os.unlink(self.trigger)

    def fail_now(self):
        with open(self.trigger, "w", encoding="ascii"):
            pass

    def said(self):
        return os.pread(self.log.fileno(), 1 << 24, 0).decode(errors="replace")

    def get(self, path, body=None, timeout=NO_ANSWER_S):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        c.request("POST" if body else "GET", path, json.dumps(body) if body else None)
        r = c.getresponse()
        return r.status, r.read().decode("utf-8", "replace")

    def wait(self, until, what, seconds=PATIENCE_S):
        clock = FairClock()
        while clock.look() < seconds:
            if until():
                return
            time.sleep(0.02)
        raise AssertionError(f"{what}: not within {seconds} s")

    def listening(self):
        m = re.search(r"listening on http://[^ ]*:(\d+)", self.said())
        if m:
            self.port = int(m.group(1))
        return m or self.child.poll() is not None

    def loaded(self):
        """Until it is ready, or has failed."""
        self.wait(self.listening, "listening")
        self.wait(self.settled, "loading", 60)

    def settled(self):
        try:
            return "loading" not in self.get("/health")[1]
        except OSError:  # it may be about to end
            time.sleep(0.2)
            return self.child.poll() is not None

    def client(self, stop):
        """Streams answers until one ends with an error."""
        while not stop.is_set():
            try:
                c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=NO_ANSWER_S)
                c.request("POST", "/v1/completions", json.dumps({"prompt": self.prompt,
                                                                 "stream": True, "max_tokens": self.n_tokens, "temperature": 1}))
                r = c.getresponse()
                text = ""
                for line in iter(r.readline, b""):
                    text = line.decode("utf-8", "replace").strip() or text
                    self.chunks += line.startswith(b"data:")
                if '"error"' in text:
                    self.errors.append(f"{r.status} {text}")
                    return
                if text != "data: [DONE]":
                    self.errors.append(f"an answer that just stops: {r.status} {text}")
                    return
                self.ended += 1
            except OSError as e:
                self.errors.append(f"no answer: {e}")
                return

    def load(self):
        self.stop = threading.Event()
        self.clients = [threading.Thread(target=self.client, args=(self.stop,), daemon=True) for _ in range(N_CLIENTS)]
        for c in self.clients:
            c.start()
        self.wait(lambda: self.chunks > 40 or self.errors, "the first tokens")

    def end(self, finishes=0):
        """What is wrong with how it ends; finishes: seconds that it may take for answers."""
        clock, patience = FairClock(), PATIENCE_S + finishes
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
        while self.child.poll() is None and clock.look() < patience:
            time.sleep(0.02)
        self.seconds = clock.look()
        code = self.child.poll()
        if code is None:
            self.child.kill()
            self.child.wait()
            return [f"no end within {patience} s of SIGTERM"]
        problems = [] if code in (0, 1) else [f"it ended with {code}"]
        if self.seconds > ENDS_S + finishes:
            problems.append(f"it ended {self.seconds:.1f} s after SIGTERM")
        if re.search("Sanitizer|runtime error|assert", self.said()):
            problems.append("its log has a sanitizer's report or an assertion")
        return problems


class Tests:
    """Of a backend, behind a driver that fails."""
    backend, faulty_name = "cuda", "faulty_cuda"
    idle = "trap"  # where nothing is to fail: its file never comes
    took = "faulty_cuda: took"  # what it says when there is no memory any more
    prompt, n_tokens = "Tell me a story about a river. " * 4, 64  # of an answer

    def __init__(self, sluice, model, faulty, driver, options, folder):
        self.sluice, self.model, self.faulty, self.driver = sluice, model, faulty, driver
        self.options, self.folder = options, folder
        self.n = self.failed = 0

    def env(self, fault):
        path = os.environ.get("LD_LIBRARY_PATH", "")
        return dict(os.environ, LD_LIBRARY_PATH=self.faulty + (":" + path if path else ""), FAULTY_CUDA=fault,
                    FAULTY_CUDA_DRIVER=self.driver, FAKE_CUDA_DEVICES=os.environ.get("FAKE_CUDA_DEVICES", "2"))

    def tells(self, fault):
        """What the driver in between says of it."""
        return " is gone" if fault == "gone" else ": a kernel"

    def report(self, name, problems, log=""):
        self.n += 1
        self.failed += bool(problems)
        print(f"{'not ok' if problems else 'ok'} {self.n} - {name}", flush=True)
        for p in problems:
            print(f"# {p}", flush=True)
        if problems:
            print("\n".join("# | " + line for line in shorten(log).splitlines()), flush=True)

    def run(self, argv, fault=""):
        p = subprocess.run([self.sluice] + argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           env=self.env(fault), timeout=NO_ANSWER_S, check=False)
        return p.returncode, p.stdout.decode("utf-8", "replace"), p.stderr.decode("utf-8", "replace")

    def missing(self, devices):
        """Why they cannot be tested, or nothing."""
        code, _, err = self.run(PLAN + ["-m", self.model] + self.on(devices))
        said = err.strip().splitlines()[-1] if code else ""
        if said and not re.search(rf": {self.backend}:\d+: |there (is|are) |: {self.backend}: this build ", said):
            sys.exit(said)
        return said

    def on(self, devices):
        return ["--device", devices] + self.options

    def streamed(self, devices):
        """Options with which experts go up and down between the tiers."""
        _, out, _ = self.run(PLAN + ["-m", self.model, "-c", "512", "--vram", "1MiB", "--json"] + STREAMED + self.on(devices))
        least = json.loads(out)["vram_least_bytes"] // (1 + devices.count(","))
        return STREAMED + ["--vram", f"{(least >> 20) + 2}MiB"] + self.on(devices)

    def lost(self, s, gpu):
        """What a server that has just lost a GPU says wrong."""
        s.wait(lambda: len(s.errors) == N_CLIENTS, "an error for every client")
        problems = [f"a client was told: {e[:300]}" for e in s.errors if "device lost" not in e or gpu not in e]
        s.wait(lambda: "device" in s.get("/health")[1], "/health naming the device")
        for what, got in (("/health", s.get("/health")), ("a new request", s.get("/v1/completions", {"prompt": "a"}))):
            named = set(re.findall(rf"{self.backend}:\d+", got[1]))
            if got[0] != 503 or "device lost" not in got[1] or not named or not all(gpu in n for n in named):
                problems.append(f"{what}: {got[0]} {got[1][:300]}")
        status, metrics = s.get("/metrics")
        if status != 200 or "\nsluice_failed 1\n" not in metrics:
            problems.append(f"/metrics: {status}, and sluice_failed is not 1")
        return problems

    def faulted(self, name, fault, options, gpu=0, at_start=False, **fake):
        """A kernel faults, or the GPU is gone: every answer ends with an error, /health says it, the exit is clean.
        fake: environment of a fake driver."""
        s = Server(self, f"{fault}:{gpu}", options, fake)
        problems = []
        told = f"{self.faulty_name}: GPU {gpu}" + self.tells(fault)
        given_up = rf"{self.backend}:{gpu}: .*the device is given up"
        try:
            if at_start:  # it is not ready then, and does not stay
                s.fail_now()
                s.wait(lambda: s.child.poll() is not None, "the end of the start", 60)
                if s.child.returncode != 1 or f"error {self.backend}:{gpu}: " not in s.said():
                    problems.append(f"the start ended with {s.child.returncode}")
            else:
                s.loaded()
                s.load()
                s.fail_now()
                problems += self.lost(s, f"{self.backend}:" if "FAKE_CUDA_LOST" in fake else f"{self.backend}:{gpu}")
            if told not in s.said() or not re.search(given_up, s.said()):
                problems.append(f"the log does not say that '{told}' and '{given_up}'")
        except (AssertionError, OSError) as e:
            problems.append(str(e))
        problems += s.end()
        self.report(f"{name} (ended in {s.seconds:.1f} s)", problems, s.said())

    def copying(self, name, options, gpu, waits, **fake):
        """A GPU is lost by way of which experts come to another: the other goes on, and what it computes fails. The lost
        GPU's own stage may find out first, while the other computes: whether it was waiting is a matter of luck, so
        there are several attempts, each of which must be without fault."""
        for _ in range(COPYING_ATTEMPTS):
            s = Server(self, "trap", options, dict(fake, FAKE_CUDA_LOST=f"copying:{gpu}"))
            problems, waited = [], False
            try:
                s.loaded()
                s.load()
                problems += self.lost(s, f"{self.backend}:{gpu}")
                waited = f"{self.backend}:{waits} waits for what was to come by way of it" in s.said()
                if not waited and not re.search(rf"{self.backend}:{gpu}: .*the device is given up", s.said()):
                    problems.append(f"the log does not say that {self.backend}:{gpu} is given up")
            except (AssertionError, OSError) as e:
                problems.append(str(e))
            problems += s.end()
            if waited or problems:
                break
        if not waited and not problems:
            problems.append(f"{self.backend}:{waits} did not wait in any of {COPYING_ATTEMPTS} attempts")
        self.report(f"{name} (ended in {s.seconds:.1f} s)", problems, s.said())

    def stopped(self, name, options, gpu=0):
        """SIGTERM while a kernel runs that will fault, and others wait for it: no answer can end, the server does."""
        s = Server(self, f"late:{gpu}", options)
        problems = []
        try:
            s.loaded()
            s.load()
            s.fail_now()
            s.wait(lambda: f"{self.faulty_name}: GPU {gpu}" in s.said(), "the kernel's start")
        except (AssertionError, OSError) as e:
            problems.append(str(e))
        problems += s.end()
        for c in s.clients:
            c.join(NO_ANSWER_S)
        if not s.errors:
            problems.append("no client was told")
        self.report(f"{name} (ended in {s.seconds:.1f} s)", problems, s.said())

    def command(self, name, options, gpu=0, fault="trap"):
        """A kernel faults under sluice run: it says so, and where."""
        trigger = os.path.join(self.folder, "begun")
        with open(trigger, "w", encoding="ascii"):
            code, _, err = self.run(RUN + ["-m", self.model] + options, f"{fault}:{gpu} {trigger}")
        said = [line for line in err.splitlines() if line.startswith("sluice run: ")]
        good = code == 1 and len(said) == 1 and "device lost" in said[0] and f"{self.backend}:{gpu}: " in said[0]
        self.report(name, [] if good else [f"exit code {code}"], err)

    def planned(self, name, options):
        """What is allocated of the device is what the plan says, and within --vram."""
        s = Server(self, self.idle, options)
        problems = []
        try:
            s.loaded()
            s.load()
            metrics = s.get("/metrics")[1]
            m = re.search(r"^sluice_device_memory_bytes (\S+)", metrics, re.M)
            said = re.search(r"total, device +([0-9.]+) MiB of ([0-9.]+)", s.said())
            held, plan, budget = float(m.group(1)) / (1 << 20), float(said.group(1)), float(said.group(2))
            name += f" ({held:.1f} MiB, planned {plan:.1f} of {budget:.1f})"
            if not plan - 1 < held < plan + 0.1 or plan > budget:
                problems.append("that is not so")
            of_stage = dict(re.findall(r'^sluice_stage_memory_bytes\{stage="(\d+)".*\} (\S+)', metrics, re.M))
            for stage, part in re.findall(r"memory: device (\d+): layers .*?([0-9.]+) MiB of ", s.said()):
                held = float(of_stage[stage]) / (1 << 20)
                if not float(part) - 1 < held < float(part) + 0.1:
                    problems.append(f"stage {stage} holds {held:.1f} MiB, planned {part}")
            s.stop.set()
        except (AssertionError, OSError) as e:
            problems.append(str(e))
        problems += s.end(FINISHES_S)
        self.report(name, problems, s.said())

    def full(self, name, options, gpu=0):
        """All memory is gone while it serves: all was taken before, so answers go on."""
        s = Server(self, f"full:{gpu}", options)
        problems = []
        try:
            s.loaded()
            if s.child.poll() is None:
                s.load()
                s.fail_now()
                s.wait(lambda: self.took in s.said(), "the memory being taken")
                before = s.ended
                s.wait(lambda: s.ended >= before + N_CLIENTS or s.errors, "answers", 60)
                s.stop.set()
                for c in s.clients:
                    c.join(NO_ANSWER_S)
                health = s.get("/health")
                if s.errors or health[0] != 200:
                    problems.append(f"/health: {health[0]} {health[1][:200]}; clients: {s.errors[:2]}")
            else:
                problems.append(f"the server ended with {s.child.returncode}")
        except (AssertionError, OSError) as e:
            problems.append(str(e))
        problems += s.end()
        self.report(f"{name} (ended in {s.seconds:.1f} s)", problems, s.said())

    def allocations(self, name, options, gpu=0, step=1):
        """Each allocation of a start (each step-th) finds no memory: refused, naming what there was no memory for, and
        where."""
        problems = []
        argv = RUN + ["-m", self.model] + options
        want = self.run(argv)
        refused = 0
        for n in range(1, 200, step):
            code, out, err = self.run(argv, f"full-alloc:{gpu} {n}")
            if self.took not in err:
                break
            last = err.strip().splitlines()[-1]
            if code == 1 and re.search("no memory|cannot allocate|out of device memory", last) and f"{self.backend}:{gpu}" in last:
                refused += 1
            elif code != 0 or out != want[1]:  # what is left may do for a small one
                problems.append(f"allocation {n}: exit code {code}: {last[:300]}")
        if want[0] or not refused or n + step >= 200:
            problems.append(f"exit code {want[0]} without a fault, {refused} of {n - 1} refused: {want[2][-300:]}")
        self.report(f"{name}: {n - 1} allocations, {refused} refused", problems)


class HipTests(Tests):
    """The same through ROCm's runtime."""
    backend, faulty_name = "hip", "faulty_hip"
    took = "faulty_hip: took"


def one(t):
    resident, tiers = t.on(t.backend), t.streamed(t.backend)
    t.planned("device memory is what was planned, experts resident", resident)
    t.planned("device memory is what was planned, experts in tiers", tiers)
    t.faulted("a kernel traps among answers, experts resident", "trap", resident)
    t.faulted("a kernel traps among answers, experts in tiers", "trap", tiers)
    t.faulted("a kernel writes to address 0 among answers", "illegal", tiers)
    t.faulted("the GPU is gone among answers", "gone", resident)
    t.faulted("the first kernel traps", "trap", resident, at_start=True)
    t.faulted("a kernel runs long and traps where two stages have one GPU", "late", t.on(f"{t.backend}:0,0"))
    t.full("memory runs out among answers, experts resident", resident)
    t.full("memory runs out among answers, experts in tiers", tiers)
    t.allocations("experts resident", resident)
    t.allocations("experts in tiers", tiers)


def two(t):
    resident, tiers = t.on(f"{t.backend}:0,1"), t.streamed(f"{t.backend}:0,1")
    t.planned("two GPUs: device memory is what was planned, experts in tiers", tiers)
    for gpu, which in enumerate(("the first", "the second")):
        t.faulted(f"two GPUs: a kernel traps on {which}, experts resident", "trap", resident, gpu)
        t.faulted(f"two GPUs: a kernel writes to address 0 on {which}, experts in tiers", "illegal", tiers, gpu)
        # So that whoever waits for what that GPU computes does so when it is lost.
        t.faulted(f"two GPUs: a kernel runs long and traps on {which}, experts resident", "late", resident, gpu)
        t.faulted(f"two GPUs: a kernel runs long and traps on {which}, experts in tiers", "late", tiers, gpu)
        t.faulted(f"two GPUs: {which} is gone among answers", "gone", resident, gpu)
        t.faulted(f"two GPUs: the first kernel on {which} traps", "trap", tiers, gpu, at_start=True)
        t.full(f"two GPUs: memory runs out on {which} among answers", tiers, gpu)
        t.command(f"two GPUs: the first kernel on {which} traps under sluice run", resident, gpu)
    t.stopped("two GPUs: SIGTERM while a kernel runs on the first that will trap", resident)
    if os.path.basename(t.driver) in FAKES:
        t.faulted("two GPUs: a kernel runs long and traps on the first, and takes along who waits for it", "late", resident,
                  FAKE_CUDA_LOST="spread")
        t.faulted("two GPUs that cannot read each other: a kernel runs long and traps on the first", "late", resident,
                  FAKE_CUDA_PEERS="0")
        relayed(t)
    t.allocations("two GPUs, the second full, experts resident", resident, 1)
    t.allocations("two GPUs, the second full, experts in tiers", tiers, 1)
    four(t)


def relayed(t):
    """Experts large enough to be copied by way of the other GPU."""
    small, t.model = t.model, os.path.join(t.folder, "large.gguf")
    subprocess.run([t.sluice, "synth", "-q", "-o", t.model, "--layers", "4", "--expert-ff", "832", "--experts", "24", "--top-k",
                    "4"], check=True)
    tiers = t.streamed(f"{t.backend}:0,1")
    for gpu, which in enumerate(("the first", "the second")):
        t.copying(f"two GPUs: {which} is lost while it copies to the other", tiers + ["--no-warmup"], gpu, 1 - gpu)
    os.environ["FAKE_CUDA_DEVICES"] = "4"
    tiers = t.streamed(f"{t.backend}:0,1,2,3")
    for gpu in (0, 2):
        t.copying(f"four GPUs: GPU {gpu} is lost while it copies to the one before", tiers + ["--no-warmup"], gpu, (gpu + 3) % 4)
    del os.environ["FAKE_CUDA_DEVICES"]
    t.model = small


def four(t):
    """Each GPU has two stages: what one of them waits for may be in the way of the other's."""
    os.environ.setdefault("FAKE_CUDA_MIB", "256")
    for devices in (f"{t.backend}:0,1,0,1", f"{t.backend}:0,0,1,1"):
        resident, tiers = t.on(devices), t.streamed(devices)
        t.planned(f"four stages on {devices}: device memory is what was planned, experts in tiers", tiers)
        for gpu, which in enumerate(("the first", "the second")):
            t.faulted(f"four stages on {devices}: a kernel runs long and traps on {which}, experts in tiers", "late", tiers, gpu)
        if os.path.basename(t.driver) in FAKES:
            t.faulted(f"four stages on {devices}: the second is gone among answers, experts in tiers", "gone", tiers, 1)
            t.faulted(f"four stages on {devices}, all of a GPU in one queue: a kernel runs long and traps on the first", "late", tiers,
                      FAKE_CUDA_QUEUES="1")
            t.stopped(f"four stages on {devices}: SIGTERM while a kernel runs on the first that will trap", resident)


def main():
    argv, tests = sys.argv[1:], Tests
    if argv[:2] == ["--backend", "hip"]:
        argv, tests = argv[2:], HipTests
    if len(argv) < 4:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory(prefix="sluice-gpu-") as folder:
        t = tests(*[os.path.abspath(a) for a in argv[:4]], argv[4:], folder)
        why = t.missing(t.backend)
        if why:
            print(f"1..0 # SKIP {why}")
            sys.exit(77)
        one(t)
        why = t.missing(f"{t.backend}:0,1")
        if why:
            t.report(f"two GPUs # SKIP {why}", [])
        else:
            two(t)
        print(f"1..{t.n}")
        sys.exit(1 if t.failed else 0)


if __name__ == "__main__":
    main()
