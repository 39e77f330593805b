#!/usr/bin/env python3
"""More than ten thousand generated tokens over 2, 3 and 5 processes, with 1, 3 and 8 sessions at once, experts resident, partly in memory
and nearly all on disk, with prefixes found again, and a text that is scored: every token and every log-probability is that of one process
with everything in memory. Prompts, seeds and models are always the same. Prints TAP, and a line for each part.

usage: ten_thousand.py SLUICE [--tokens N]

--tokens N: so many for each number of sessions (384); fewer make a quick look, which does not end well."""
import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

import cluster

SPLITS, SESSIONS = (2, 3, 5), (1, 3, 8)
MODEL = ["--layers", "6", "--experts", "32", "--top-k", "4", "--expert-ff", "512", "--embd", "512", "--ctx", "2048"]
EXPERTS_MIB = 86  # of all layers
OPTIONS = ["-c", "1024", "--parallel", "8"]
# How much memory each process has: all that it wants, or this share of its experts beyond the least with which it starts.
PLACEMENTS = {"resident": None, "tiers": 0.5, "disk": 0.0}
SHARED = "A river and a stone and a lamp, and what they said to one another. " * 3


def budgeted(options):
    return "--ram" in options


class Comparison:
    def __init__(self, t, tokens):
        self.t, self.tokens, self.n_tokens = t, tokens, 0
        self.model = t.synth("six layers", MODEL)
        t.model, self.demo = self.model, t.model
        self.least_mib = t.least_mib()

    def ask(self, server, n):
        """n prompts at once: of each the tokens that came and the log-probabilities of what could have, or an error."""
        answers = [None] * n

        def one(i):
            body = {"prompt": f"{SHARED}Story {i}: ", "max_tokens": self.tokens // n, "seed": 1000 * n + i, "temperature": 1, "ignore_eos": True,
                    "logprobs": 3}
            code, found = server.get("/v1/completions", body)
            answers[i] = found["choices"][0]["logprobs"] if code == 200 else f"{code}: {found}"

        threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        return answers

    def all_of(self, server):
        """[(what, answers)] of every number of sessions, and once more, when prefixes are known."""
        out = [(f"{n} sessions", self.ask(server, n)) for n in SESSIONS]
        before = server.metrics()["sluice_prefix_hit_tokens_total"]
        out.append(("prefixes found again", self.ask(server, 3)))
        self.hits = int(server.metrics()["sluice_prefix_hit_tokens_total"]) - int(before)
        return out

    def alone(self):
        server = cluster.Server(self.t, options=[*OPTIONS, "--experts", "resident"])
        self.whole = self.all_of(server)
        code = server.end()
        self.scored = self.t.score(self.model, ["--device", "cpu", "--experts", "resident"])
        good = code == 0 and isinstance(self.scored, bytes) and all(isinstance(a, dict) for _, answers in self.whole for a in answers)
        self.t.check("one process answers", good, f"{code} {str(self.whole)[:1500]} {server.text()[-800:]}")
        return good

    def lookups(self, server):
        """Experts that were asked for by where they were found, of all stages."""
        found = {}
        for name, value in server.metrics().items():
            where = re.match(r'sluice_stage_expert_lookups_total\{.*found="(\w+)"', name)
            if where:
                found[where.group(1)] = found.get(where.group(1), 0) + int(value)
        return found

    def start(self, n, share):
        """(server, workers, the options of memory): with budgets that are found by asking for less than would do."""
        t, least, mib = self.t, {}, {}
        for _ in range(4 * n):
            budgets = [] if share is None else [["--ram", f"{mib.get(i, self.least_mib)}MiB"] for i in range(n)]
            workers = [cluster.Worker(t, self.model, t.socket(), *(budgets[i] if budgets else ())) for i in range(1, n)]
            options = ["--experts", "resident"] if share is None else ["--experts", "streamed", *budgets[0]]
            server = cluster.Server(t, *workers, options=[*OPTIONS, *options])
            if server.p.poll() is None:
                return server, workers, options
            for w in workers:
                w.end()
            said = re.search(r"too small for host '([^']+)'.*: at least (\d+) MiB", server.text())
            if not said:
                break
            i = 0 if said.group(1) == "here" else 1 + [w.at for w in workers].index(said.group(1))
            least[i] = int(said.group(2)) + 1
            mib[i] = least[i] + int(share * EXPERTS_MIB / n)
        raise RuntimeError(f"{n} processes do not start: {server.text()[-800:]}")

    def together(self, name, share, n):
        began, t = time.monotonic(), self.t
        server, workers, options = self.start(n, share)
        got, wrong, tokens = self.all_of(server), [], 0
        for (what, whole), (_, answers) in zip(self.whole, got):
            for i, (a, b) in enumerate(zip(whole, answers)):
                if a == b:
                    tokens += len(b["tokens"])
                else:
                    at = next((k for k, pair in enumerate(zip(a["tokens"], b["tokens"])) if pair[0] != pair[1]), "?") if isinstance(b, dict) else b
                    wrong.append(f"{what}, the {i + 1}.: differs at {at}")
        found = self.lookups(server)
        code = server.end()
        where = ",".join(w.at for w in workers)
        scored = t.score(self.model, ["--device", "cpu", "--workers", where, "--key-file", t.key, *options])
        codes = [w.end() for w in workers]
        logs = server.text() + "".join(w.text() for w in workers)
        t.check(f"{name}, {n} processes: every token and log-probability is that of one", not wrong and self.hits > 0, f"{wrong} {self.hits} {logs[-1500:]}")
        t.check(f"{name}, {n} processes: so is what is said of a text", scored == self.scored, str(scored)[:800])
        streams = found.get("disk", 0) > 100 if budgeted(options) else found.get("disk") == 0
        t.check(f"{name}, {n} processes: experts come from where they should, and all end well", streams and code == 0 and not any(codes) and
                not re.search(cluster.TROUBLE, logs), f"{found} {code} {codes} {logs[-1500:]}")
        self.n_tokens += tokens
        print(f"# {name}, {n} processes: {tokens} tokens, {self.hits} of prompts found again, experts {found}, {time.monotonic() - began:.0f} s", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("sluice")
    p.add_argument("--tokens", type=int, default=384)
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        t = cluster.Tests(os.path.abspath(a.sluice), os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../demo/demo.gguf"), folder)
        try:
            c = Comparison(t, a.tokens)
            if c.alone():
                for name, share in PLACEMENTS.items():
                    for n in SPLITS:
                        c.together(name, share, n)
                t.check(f"{c.n_tokens} tokens were compared", c.n_tokens >= 10000)
        except (RuntimeError, subprocess.SubprocessError, OSError) as e:
            t.check("the comparison", False, repr(e))
        print(f"1..{t.n}")
    return 1 if t.failed else 0


if __name__ == "__main__":
    sys.exit(main())
