#!/usr/bin/env python3
"""Is --ram a hard limit? Runs the real binary on synthetic streamed models inside a memory cgroup (v1 or v2) of
exactly the budget, without swap: it must not be killed, its resident memory and all that the cgroup cannot take
back must stay within the budget, and its answer must be that of the model all resident. Prints TAP.

usage: test_budget.py SLUICE [--quick] [OPTION...]

OPTIONs are added to every command (--device cuda --vram 40MiB); --quick is one model and fewer budgets."""
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from cgroup import Cgroup, Run, Unavailable  # noqa: E402
from support.fair_clock import FairClock  # noqa: E402

MIB = 1 << 20
# Two size classes, and a model with a shared expert.
MODELS = {
    "mixed": "--layers 8 --embd 512 --heads 8 --kv-heads 2 --experts 32 --top-k 4 --expert-ff 512 --vocab 4096 "
             "-t Q4_K --down Q4_K,Q6_K",
    "shared": "--arch qwen2moe --layers 6 --embd 512 --heads 8 --kv-heads 2 --experts 24 --top-k 4 --expert-ff 512 "
              "--shared-ff 512 --vocab 4096 -t Q8_0",
}
# A table of 68 MiB that is read by row where not everything fits.
TABLES = "--arch gemma4 --experts 0 --top-k 0 --layers 8 --embd 256 --kv-heads 1 --layer-embd 256 --vocab 32768 --tied -t Q4_K"
SMALL = ["-c", "512", "--heat-file", "off"]


class Tests:
    def __init__(self, sluice, folder, options, quick):
        self.sluice, self.folder, self.options, self.quick = sluice, folder, options, quick
        self.n = self.failed = 0

    def report(self, name, problems):
        self.n += 1
        self.failed += bool(problems)
        print(f"{'not ok' if problems else 'ok'} {self.n} - {name}", flush=True)
        for p in problems:
            print(f"# {p}", flush=True)

    def model(self, name):
        return os.path.join(self.folder, name + ".gguf")

    def within(self, run, budget):
        problems = []
        if run.killed:
            problems.append(f"killed for memory; {run.peak_used / MIB:.1f} MiB were seen")
        elif run.code != 0:
            problems.append(f"exit code {run.code}: {run.err[-400:]}")
        for what, n in (("resident", run.peak_rss), ("in the cgroup without page cache", run.peak_used)):
            if n > budget:
                problems.append(f"{n / MIB:.1f} MiB {what}, the budget is {budget / MIB:.1f}")
        return problems

    def run_in(self, budget, argv):
        with Cgroup(budget) as group:
            return Run(group, [self.sluice] + argv + ["--ram", str(budget)] + self.options).finish()

    def roomy(self):
        """The options without a limit on the device's memory."""
        at = self.options.index("--vram") if "--vram" in self.options else len(self.options)
        return self.options[:at] + self.options[at + 2:]

    def plain(self, argv, options=None):
        p = subprocess.run([self.sluice] + argv + (self.options if options is None else options),
                           stdin=subprocess.DEVNULL, capture_output=True, check=False)
        return p.returncode, p.stdout.decode(), p.stderr.decode()

    def least(self, argv):
        """What a refusal names, in bytes."""
        code, _, err = self.plain(argv + ["--ram", "4MiB"])
        m = re.search(r"--ram (\d+)MiB", err)
        assert code == 1 and m, f"exit {code}: {err}"
        return int(m.group(1)) * MIB

    # ---- the commands ----

    def refused(self, name):
        """Too small a budget: refused by its size, before a weight is read."""
        argv = ["run", "-m", self.model(name), "--raw", "-p", "a", "-n", "2"] + SMALL
        least = self.least(argv)
        run = self.run_in(least - 8 * MIB, argv)
        problems = []
        # The program's own part is measured, and its resident pages differ a little from one start to the next.
        named = re.search(r"--ram (\d+)MiB", run.err)
        if run.code != 1 or "too small" not in run.err or not named or abs(int(named.group(1)) - least // MIB) > 1:
            problems.append(f"exit code {run.code}, {least // MIB} MiB named before: {run.err}")
        if run.read_bytes > 3 * MIB and not self.options:  # a GPU's driver reads what it likes
            problems.append(f"{run.read_bytes / MIB:.1f} MiB were read before")
        self.report(f"{name}: run below its least is refused, naming it", problems)

    def shares(self, name):
        """run at the least and at parts of the experts: same answer."""
        argv = ["run", "-m", self.model(name), "--raw", "-q", "--temp", "0", "-n", "40", "-p",
                "the quick brown fox jumps over the lazy dog " * 4] + SMALL
        code, want, err = self.plain(argv + ["--experts", "resident"], self.roomy())
        assert code == 0, err
        least = self.least(argv)
        experts = os.path.getsize(self.model(name))
        for share in (0, 50) if self.quick else (0, 25, 50, 75):
            budget = least + experts * share // 100
            run = self.run_in(budget, argv)
            problems = self.within(run, budget)
            if not problems and run.out != want:
                problems.append("another answer than with all resident")
            where = "the least budget" if share == 0 else f"the least and {share} %"
            self.report(f"{name}: run in {where}, {budget / MIB:.0f} MiB "
                        f"(resident {run.peak_rss / MIB:.0f}, cgroup {run.peak_used / MIB:.0f})", problems)

    def tables(self, name):
        """run with a table that is streamed, in its least budget and with a cache: the answer as with all resident."""
        argv = ["run", "-m", self.model(name), "--raw", "-q", "--temp", "0", "-n", "40", "-p", "a quick fox " * 40] + SMALL
        code, want, err = self.plain(argv + ["--tables", "resident"], self.roomy())
        assert code == 0, err
        least = self.least(argv)
        resident = self.least(argv + ["--tables", "resident"])
        problems = [] if resident - least > 50 * MIB else [f"{least / MIB:.0f} MiB streamed, {resident / MIB:.0f} resident"]
        for more in (0, 24 * MIB):
            run = self.run_in(least + more, argv)
            problems += self.within(run, least + more)
            if not problems and run.out != want:
                problems.append("another answer than with all resident")
            self.report(f"{name}: run in the least budget and {more // MIB} MiB, {(least + more) / MIB:.0f} MiB "
                        f"(resident {run.peak_rss / MIB:.0f}, cgroup {run.peak_used / MIB:.0f})", problems)

    def bench_and_score(self, name):
        bench = ["bench", "-m", self.model(name), "-p", "256", "-n", "32", "-r", "1", "--parallel", "1,4", "--json",
                 "--heat-file", "off"]
        text = os.path.join(self.folder, "text")
        with open(text, "w", encoding="ascii") as f:
            f.write("one two three four five six seven " * 100)  # several times the context
        score = ["score", "-m", self.model(name), "--text", text] + SMALL
        for argv in (bench, score):
            budget = self.least(argv)
            run = self.run_in(budget, argv)
            problems = self.within(run, budget)
            self.report(f"{name}: {argv[0]} in its least budget, {budget / MIB:.0f} MiB "
                        f"(resident {run.peak_rss / MIB:.0f}, cgroup {run.peak_used / MIB:.0f})", problems)

    # ---- the server ----

    def plan(self, argv):
        code, out, err = self.plain(["plan", "--json", "--ram-bandwidth", "50", "--disk-bandwidth", "2"] + argv)
        return code, json.loads(out) if out else {}, err

    def serve(self, name, share, pread=False):
        shape = ["-m", self.model(name), "-c", "1024", "--parallel", "4", "--queue", "32", "--batch", "256",
                 "--heat-file", "off"] + (["--io", "pread"] if pread else [])
        code, said, err = self.plan(shape + ["--ram", "4MiB"])
        assert code == 1 and not said["fits"], err
        budget = said["least_bytes"] + os.path.getsize(self.model(name)) * share // 100
        code, said, err = self.plan(shape + ["--ram", str(budget)])
        problems = []
        if code != 0 or not said["fits"] or said["total_bytes"] > budget or not said["streaming"]:
            problems.append(f"plan does not fit its own least: {said} {err}")
        with Cgroup(budget) as group:
            run = Run(group, [self.sluice, "serve", "--port", "0", "--ram", str(budget)] + shape + self.options)
            try:
                port = self.wait_ready(run)
                problems += self.load(port)
            except AssertionError as e:
                problems.append(str(e))
            if run.child.poll() is None:
                run.child.terminate()
            run.finish()
        problems += self.within(run, budget)
        self.report(f"{name}: serve under load in the least and {share} %{', pread' if pread else ''}, "
                    f"{budget / MIB:.0f} MiB (resident {run.peak_rss / MIB:.0f}, cgroup "
                    f"{run.peak_used / MIB:.0f})", problems)

    @staticmethod
    def wait_ready(run):
        for _ in range(1200):
            text = run.texts.get("err", "")
            m = re.search(r"listening on http://[^ ]*:(\d+)", text)
            if m and "ready after" in text:
                return int(m.group(1))
            assert run.child.poll() is None, f"serve ended: {text[-600:]}"
            time.sleep(0.05)
        raise AssertionError("serve did not become ready")

    def load(self, port):
        """Long and short prompts at once, streams that are dropped, choices, log-probabilities, bodies at and over
        the limit, /tokenize: whatever is refused must be refused by a status."""
        strange, answered = [], []

        def post(path, body, raw=None):
            c = http.client.HTTPConnection("127.0.0.1", port)
            try:
                c.request("POST", path, raw if raw is not None else json.dumps(body),
                          {"Content-Type": "application/json"})
                r = c.getresponse()
                r.read()
                if r.status == 200:
                    answered.append(path)
                elif r.status not in (400, 413, 429, 503):
                    strange.append(f"{path}: {r.status}")
            except (OSError, http.client.HTTPException) as e:
                strange.append(f"{path}: {e!r}")
            finally:
                c.close()

        def drop(body):
            s = socket.create_connection(("127.0.0.1", port))
            text = json.dumps(body).encode()
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
            s.recv(200)
            s.close()

        done = "/v1/completions"
        jobs = []
        for i in range(6):
            jobs.append((post, (done, {"prompt": f"{i} word " * 150, "max_tokens": 24})))
            jobs.append((post, (done, {"prompt": f"short {i}", "max_tokens": 48, "n": 4, "temperature": 1})))
            jobs.append((post, (done, {"prompt": "x", "max_tokens": 32, "logprobs": 5})))
            jobs.append((drop, ({"prompt": f"{i} gone " * 100, "max_tokens": 400, "stream": True},)))
        for _ in range(3):
            jobs.append((post, ("/tokenize", {"content": "many words " * 8000, "with_pieces": True})))
            jobs.append((post, ("/v1/chat/completions",
                                {"messages": [{"role": "user", "content": "hello " * 20}] * 10, "max_tokens": 16})))
            jobs.append((post, (done, None, "{\"prompt\":[" + "1," * 60000 + "1]}")))
            jobs.append((post, (done, None, "[" + "{}," * 80000 + "{}]")))
            jobs.append((post, (done, None, "\"" + "x" * (1 << 20) + "\"")))
        threads = [threading.Thread(target=f, args=a, daemon=True) for f, a in jobs]
        for t in threads:
            t.start()
        clock = FairClock()
        while any(t.is_alive() for t in threads) and clock.look() < 240:
            time.sleep(0.2)
        if any(t.is_alive() for t in threads):
            strange.append("a request found no end")
        before = len(answered)
        post(done, {"prompt": "after all that", "max_tokens": 8})
        if len(answered) == before:
            strange.append("no answer after the load")
        if before < 12:
            strange.append(f"only {before} requests were answered")
        return strange


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    quick = "--quick" in sys.argv
    options = [a for a in sys.argv[2:] if a != "--quick"]
    sluice = os.path.abspath(sys.argv[1])
    try:
        with Cgroup(64 * MIB) as group:
            version = group.version
    except (Unavailable, OSError) as e:
        print(f"no memory cgroup can be made here: {e}")
        sys.exit(77)
    # Not below /tmp: that may be memory, which the cgroup would count.
    with tempfile.TemporaryDirectory(prefix="sluice-budget-", dir=os.environ.get("SLUICE_TEST_DIR")) as folder:
        t = Tests(sluice, folder, options, quick)
        for name, shape in MODELS.items():
            if quick and name != "mixed":
                continue
            subprocess.run([sluice, "synth", "-q", "-o", t.model(name)] + shape.split(), check=True)
            print(f"# cgroup v{version}, {name}: {os.path.getsize(t.model(name)) / MIB:.0f} MiB", flush=True)
            for test in (t.refused, t.shares, t.bench_and_score):
                try:
                    test(name)
                except AssertionError as e:
                    t.report(f"{name}: {test.__name__}", [str(e)])
        if not options:  # a device's own memory is another budget
            subprocess.run([sluice, "synth", "-q", "-o", t.model("tables")] + TABLES.split(), check=True)
            try:
                t.tables("tables")
            except AssertionError as e:
                t.report("tables: run", [str(e)])
        serves = (("mixed", 0, False), ("mixed", 50, False), ("shared", 25, True))
        for name, share, pread in serves[:2] if quick else serves:
            try:
                t.serve(name, share, pread)
            except AssertionError as e:
                t.report(f"{name}: serve", [str(e)])
    print(f"1..{t.n}")
    sys.exit(1 if t.failed else 0)


main()
