#!/usr/bin/env python3
"""How far apart two files of log-probabilities are (sluice score --logprobs), and whether that is within the bar.

usage: logprobs.py DEFINITION.npy OTHER.npy [f32 | quantised]

DEFINITION is the CPU's. Without a bar the exit status is 0; with one it is 1 beyond it.
f32        weights that are floats, f16 KV: no log-probability above -12 is off by more than 2e-3, and the likeliest token
           is the same wherever the best two are more than 0.02 apart
quantised  the mean over positions of KL(DEFINITION || OTHER) is at most 1e-2 nats
tests/determinism/test_spread.c shows why these: where activations are quantised, one rounding in the last place of a
sum already gives a mean KL of 3e-3 and single log-probabilities off by 2; weights that are floats show arithmetic that
is worse than the definition's. No dependencies."""
import array
import ast
import math
import sys

LIKELY = -12.0
F32_MAX_DIFFERENCE, CLEARLY_BEST = 2e-3, 0.02
QUANTISED_MEAN_KL = 1e-2


def read_npy(path):
    with open(path, "rb") as f:
        head = f.read(10)
        if head[:6] != b"\x93NUMPY":
            sys.exit(f"{path}: not a .npy file")
        info = ast.literal_eval(f.read(head[8] | head[9] << 8).decode())
        a = array.array("f")
        a.frombytes(f.read())
    n, width = info["shape"]
    if info["descr"] != "<f4" or len(a) != n * width:
        sys.exit(f"{path}: not float32 [positions, vocabulary]")
    return a, n, width


def main():
    if len(sys.argv) not in (3, 4) or sys.argv[3:] not in ([], ["f32"], ["quantised"]):
        sys.exit(__doc__)
    (a, n, width), (b, n_b, width_b) = read_npy(sys.argv[1]), read_npy(sys.argv[2])
    if (n, width) != (n_b, width_b) or not n:
        sys.exit(f"sizes differ: [{n}, {width}] and [{n_b}, {width_b}]")
    bar = sys.argv[3] if len(sys.argv) == 4 else ""
    kls, total, worst, worst_likely, other, clearly_other = [], 0.0, 0.0, 0.0, 0, 0
    for at in range(0, n * width, width):
        x, y = a[at:at + width], b[at:at + width]
        if not all(map(math.isfinite, x)) or not all(map(math.isfinite, y)):
            print(f"  position {at // width}: not finite")
            return 1
        off = [abs(u - v) for u, v in zip(x, y)]
        total += sum(off)
        worst = max(worst, max(off))
        worst_likely = max(worst_likely, max(d for d, u in zip(off, x) if u > LIKELY))
        kls.append(sum(math.exp(u) * (u - v) for u, v in zip(x, y) if u > -80))
        best = sorted(x)[-2:]
        if x.index(best[1]) != y.index(max(y)):
            other += 1
            clearly_other += best[1] - best[0] > CLEARLY_BEST
    mean_kl = sum(kls) / n
    print(f"  {n} positions x {width}: mean KL {mean_kl:.1e}, worst {max(kls):.1e}; a log-probability by {total / n / width:.1e} "
          f"in the mean, {worst:.1e} at most, {worst_likely:.1e} where likely; another best token at {other}"
          f"{'; the same bits' if a == b else ''}")
    if bar == "f32" and (worst_likely > F32_MAX_DIFFERENCE or clearly_other):
        print(f"  beyond the bar: {F32_MAX_DIFFERENCE} where likely, and no clear best token may be another ({clearly_other} are)")
        return 1
    if bar == "quantised" and not mean_kl <= QUANTISED_MEAN_KL:
        print(f"  beyond the bar: a mean KL of {QUANTISED_MEAN_KL}")
        return 1
    return 0


sys.exit(main())
