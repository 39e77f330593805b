#!/usr/bin/env python3
"""Compares Sluice's log-probabilities with llama.cpp's at every position, over synthetic models of every
architecture and tensor type. Prints TAP.

usage: run.py SLUICE LLAMA_PEER [--only TEXT]... [--jobs N]

N cases at once (1), each with its share of the CPUs.

Bars. F32 weights: |difference| <= 1e-2 for every token with log p above -12, and the same argmax wherever
llama.cpp's best two differ by more than 0.02. Quantised weights: mean KL divergence over positions <= 5e-3,
and no bias: the mean difference at llama.cpp's best token within 0.01 plus three standard errors. (Both
engines quantise activations, each in its own way, so quantised results differ a little everywhere.)

Where llama.cpp is off as it runs by default, the F32 bars hold for two other comparisons: with a reference in double
precision (reference.py), and with llama.cpp whose attention sums in single precision.

Where an indexer chooses positions, rounding decides in a row now and then which of two with nearly the same score is the
last one, and such a row's log-probabilities are others; so may be a choice of a later row. CHOICES compares with
reference.py, which names the rows that are so near: no other row is over the F32 bar before the first of them that is,
and two in a hundred behind it.

Each prompt is also computed in slices of seven tokens and one by one, which must give the same bits."""
import argparse
import array
import concurrent.futures
import filecmp
import math
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile

from cases import CASES, CHOICES, REFERENCE

PROMPTS = [(1, 1), (2, 33), (3, 320)]  # seed, tokens
VOCAB = 1024
HERE = os.path.dirname(os.path.abspath(__file__))
SLICES = (7, 1)  # rows of a prompt that are computed at once, beside all of them: the same bits


def read_npy(path):
    with open(path, "rb") as f:
        head = f.read(10)
        if head[:6] != b"\x93NUMPY":
            raise ValueError(f"{path}: not a .npy file")
        f.read(head[8] | head[9] << 8)
        a = array.array("f")
        a.frombytes(f.read())
    return a


def python_with_numpy():
    """The distribution's, or the one that runs this; None: neither has it."""
    for python in "/usr/bin/python3", sys.executable:
        try:
            if subprocess.run([python, "-c", "import numpy"], stderr=subprocess.DEVNULL).returncode == 0:
                return python
        except OSError:
            pass
    return None


PYTHON = python_with_numpy()


def compare(ours, theirs, bar):
    if len(ours) != len(theirs) or not len(ours) or len(ours) % VOCAB:
        return f"sizes differ: {len(ours)} and {len(theirs)}", ""
    n = len(ours) // VOCAB
    worst = kl_sum = kl_max = 0.0
    wrong = 0
    diffs = []
    for p in range(n):
        a, b = ours[p * VOCAB:(p + 1) * VOCAB], theirs[p * VOCAB:(p + 1) * VOCAB]
        if not all(map(math.isfinite, a)):
            return f"position {p}: not finite", ""
        kl = 0.0
        best = max(range(VOCAB), key=b.__getitem__)
        second = max(b[t] for t in range(VOCAB) if t != best)
        if b[best] - second > 0.02 and max(range(VOCAB), key=a.__getitem__) != best:
            wrong += 1
        diffs.append(a[best] - b[best])
        for x, y in zip(a, b):
            if y > -12:
                worst = max(worst, abs(x - y))
            kl += math.exp(y) * (y - x)
        kl_sum += kl
        kl_max = max(kl_max, kl)
    bias = sum(diffs) / n
    sd = math.sqrt(sum((d - bias) ** 2 for d in diffs) / n)
    text = (f"{n} positions, max |dlogp| {worst:.2e}, mean KL {kl_sum / n:.2e}, max KL {kl_max:.2e}, "
            f"bias {bias:+.1e}, other argmax {wrong}")
    if bar is True:
        return ("" if worst <= 1e-2 and not wrong else "over the bar", text)
    ok = kl_sum / n <= bar and abs(bias) <= 0.01 + 3 * sd / math.sqrt(n)
    return ("" if ok else "over the bar", text)


class Failed(RuntimeError):
    def __init__(self, command, p):
        super().__init__(f"{' '.join(command[:2])}: exit {p.returncode}: {p.stderr.decode()[-400:]}")
        self.aborted = p.returncode == -signal.SIGABRT


def run(command, **kw):
    p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw)
    if p.returncode:
        raise Failed(command, p)
    return p.stdout.decode()


def peer_logits(peer, model, ids, out, **env):
    """With AMX llama.cpp ends its process where a batch of quantised matrices, as those of latent attention's heads, has an
    input that is not contiguous: it then gets no layout of its own for weights."""
    command, env = [peer, "logits", model, ids, out, "2"], dict(os.environ, **env)
    try:
        run(command, env=env)
    except Failed as e:
        if not e.aborted:
            raise
        run(command, env=dict(env, LLAMA_REPACK="0"))


def against_reference(ours, model, ids, peer, tmp):
    """What is wrong, and the comparison with double precision."""
    exact, plain = (os.path.join(tmp, name + ".npy") for name in ("exact", "plain"))
    run([PYTHON, os.path.join(HERE, "reference.py"), model, ids, exact])
    peer_logits(peer, model, ids, plain, LLAMA_FLASH="0")
    problem, text = compare(ours, read_npy(exact), True)
    other, _ = compare(ours, read_npy(plain), True)
    return problem or other and "llama.cpp without flash attention: " + other, "to double precision: " + text


def choices(ours, model, ids, tmp):
    """What is wrong, and the comparison with double precision, row by row."""
    path = os.path.join(tmp, "exact.npy")
    near = {int(n) for n in run([PYTHON, os.path.join(HERE, "reference.py"), model, ids, path, "index", "latents"]).split()}
    exact = read_npy(path)
    if len(ours) != len(exact):
        return f"sizes differ: {len(ours)} and {len(exact)}", ""
    n = len(exact) // VOCAB
    worst = [max(abs(x - y) for x, y in zip(ours[r * VOCAB:(r + 1) * VOCAB], exact[r * VOCAB:(r + 1) * VOCAB]) if y > -12)
             for r in range(n)]
    over = [r for r in range(n) if not worst[r] <= 1e-2]
    first = min((r for r in over if r in near), default=n)
    before, behind = ([r for r in over if r not in near and (r < first) == early] for early in (True, False))
    text = (f"{n} positions, {len(near)} where rounding may decide; |dlogp| over 1e-2 in {len(over)}, of which "
            f"{len(before) + len(behind)} are others; median of the rows' max {sorted(worst)[n // 2]:.1e}")
    if before or len(behind) > n / 50:
        return f"over the bar: rows {(before + behind)[:10]}", text
    return "", text


def one(sluice, peer, options, bar, prompts, tmp):
    model = os.path.join(tmp, "model.gguf")
    run([sluice, "synth", "-q", "-o", model, "--vocab", str(VOCAB)] + options.split())
    ours, theirs = array.array("f"), array.array("f")
    for seed, n in prompts:
        ids = os.path.join(tmp, "ids.bin")
        r = random.Random(seed)
        with open(ids, "wb") as f:
            array.array("i", [r.randrange(VOCAB) for _ in range(n)]).tofile(f)
        a, b, c = (os.path.join(tmp, name + ".npy") for name in "abc")
        run([sluice, "score", "-m", model, "--ids", ids, "--logprobs", a])
        if bar != CHOICES:
            peer_logits(peer, model, ids, b)
        for rows in SLICES if n > 1 else ():
            run([sluice, "score", "-m", model, "--ids", ids, "--logprobs", c, "-b", str(rows)])
            if not filecmp.cmp(a, c, shallow=False):
                return f"in slices of {rows} the log-probabilities are others", ""
        if bar == CHOICES:
            problem, text = choices(read_npy(a), model, ids, tmp)
            if problem:
                return problem, text
            continue
        ours.extend(read_npy(a))
        theirs.extend(read_npy(b))
        if bar == REFERENCE:
            problem, text = against_reference(read_npy(a), model, ids, peer, tmp)
            if problem:
                return problem, text
    os.unlink(model)
    if bar == CHOICES:
        return "", "to double precision: " + text
    if bar == REFERENCE:
        return "", f"{text}; llama.cpp: {compare(ours, theirs, True)[1]}"
    return compare(ours, theirs, bar)


def take_cpus(number, jobs):
    """Keeps the calling process, one of so many that compute cases, on its share of the CPUs."""
    cpus = sorted(os.sched_getaffinity(0))
    with number.get_lock():
        i = number.value
        number.value += 1
    if jobs <= len(cpus):
        os.sched_setaffinity(0, cpus[i * len(cpus) // jobs:(i + 1) * len(cpus) // jobs])


def tried(sluice, peer, case):
    """What is wrong, the comparison, and why there is none."""
    _, options, bar, *prompts = case
    if bar in (REFERENCE, CHOICES) and not PYTHON:
        return "", "", "python3-numpy is not installed"
    with tempfile.TemporaryDirectory(prefix="sluice-peer-") as tmp:
        try:
            return *one(sluice, peer, options, bar, prompts[0] if prompts else PROMPTS, tmp), ""
        except (RuntimeError, ValueError) as e:
            return str(e), "", ""


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("sluice")
    p.add_argument("peer")
    p.add_argument("--only", action="append", default=[])
    p.add_argument("--jobs", type=int, default=1)
    o = p.parse_args()
    cases = [c for c in CASES if not o.only or any(text in c[0] for text in o.only)]
    print(f"1..{len(cases)}", flush=True)
    failed = 0
    with concurrent.futures.ProcessPoolExecutor(o.jobs, initializer=take_cpus, initargs=(multiprocessing.Value("i", 0), o.jobs)) as pool:
        running = [pool.submit(tried, o.sluice, o.peer, c) for c in cases]
        for i, (case, result) in enumerate(zip(cases, running), 1):
            problem, text, skipped = result.result()
            failed += bool(problem)
            what = f" # SKIP {skipped}" if skipped else f": {text} {problem}".rstrip()
            print(f"{'not ok' if problem else 'ok'} {i} - {case[0]}{what}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
