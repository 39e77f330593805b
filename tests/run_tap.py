#!/usr/bin/env python3
"""Runs test programs that print TAP and ends in 'N passed, N failed, N skipped'.

usage: run_tap.py [--summary FILE] [--timeout SECONDS] [--jobs N] COMMAND...

Each COMMAND is a program, or a quoted command line. cmocka programs are asked for TAP through
CMOCKA_MESSAGE_OUTPUT. A program that exits with 77 and prints no test is one skipped test; one that
exits with another code without a failed test, cannot be started, or runs over its time, is one failed
test. Its time is counted as support/fair_clock.py does, so that a busy machine does not make it fail.
With --summary the counts are added to FILE as a line, so that several calls can be summed, and what
failed, in short, to FILE.failed, so that a long run can close with it. With
--jobs N commands run side by side; each is still reported in one piece, in the order given."""
import os
import re
import select
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from support.fair_clock import FairClock


def read_until(child, out, ends):
    """Reads to the end of its output, or until ends() says so; whether it got to the end."""
    pipe = child.stdout.fileno()
    while not ends():
        if select.select([pipe], [], [], 1)[0]:
            part = os.read(pipe, 1 << 16)
            if not part:
                return True
            out.append(part)
    return False


def ended(child):
    """Whether it has, and then the CPU seconds of it and of its children that it waited for."""
    pid, status, used = os.wait4(child.pid, os.WNOHANG)
    if not pid:
        return None
    child.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime


def output_of(child, timeout):
    """All that it writes, whether it ended in time, and its CPU seconds."""
    clock, out, cpu = FairClock(), [], None
    in_time = read_until(child, out, lambda: clock.look() >= timeout)
    while in_time and (cpu := ended(child)) is None:  # most often it ends with its output
        time.sleep(0.005)
        in_time = clock.look() < timeout
    if cpu is None:
        child.kill()
        last = time.monotonic() + 5  # a child of its own may live on and hold the pipe
        read_until(child, out, lambda: time.monotonic() > last)
        while (cpu := ended(child)) is None:
            time.sleep(0.005)
    return b"".join(out), in_time, cpu


def in_short(out, most=30):
    """The failed tests of an output with what was said right before and after each; its end if it names none."""
    lines = [line[:300] for line in out.splitlines() if line.strip()]
    near = {k for i, line in enumerate(lines) if line.startswith("not ok") for k in range(i - 3, i + 6)}
    return [line for i, line in enumerate(lines) if i in near][:most] or lines[-most:]


def run(command, timeout):
    """What a command counted, the report on it, and what failed, in short."""
    report = []
    env = dict(os.environ, CMOCKA_MESSAGE_OUTPUT="TAP")
    start = time.monotonic()
    try:
        child = subprocess.Popen(shlex.split(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, env=env)
    except (OSError, ValueError) as e:
        said = f"FAIL {command}: cannot be started: {e}"
        return (0, 1, 0), said, said
    with child:
        out, in_time, cpu = output_of(child, timeout)
    code, out = child.returncode, out.decode("utf-8", "replace")
    if not in_time:
        code, out = -1, out + f"\ntimed out after {timeout} s\n"
    passed = failed = skipped = 0
    figures = []  # what a program prints as "figure: ..." is shown also when all is well
    said = ""  # what the running test said last: cmocka gives a skipped test's name, never its reason
    for line in out.splitlines():
        m = re.match(r"(not ok|ok)\b(.*)", line)
        if not m:
            if re.match(r"(?!\d+\.\.)[^\s#]", line):
                said = line.strip()
            if line.startswith("figure: "):
                figures.append(line[8:])
            continue
        if re.search(r"#\s*skip", m.group(2), re.I):
            skipped += 1
            what = m.group(2).strip()
            if said and re.match(r"\d+ # SKIP", what):
                what += f" ({said})"
            report.append(f"  skipped: {command}: {what}")
        elif m.group(1) == "ok":
            passed += 1
        else:
            failed += 1
        said = ""
    if code == 77 and passed + failed + skipped == 0:
        skipped = 1
        report.append(f"  skipped: {command}: {out.strip()}")
    elif code not in (0, 77) and failed == 0:
        failed = 1
    elif passed + failed + skipped == 0:
        failed = 1
        out += "\nthe program ran no test\n"
    name = command if len(command) < 100 else command[:97] + "..."
    report.append(f"{'FAIL' if failed else 'ok  '} {name}: {passed} passed, {failed} failed, {skipped} skipped "
                  f"({time.monotonic() - start:.1f} s, CPU {cpu:.1f} s)")
    report += [f"     {figure}" for figure in figures]
    if not failed:
        return (passed, failed, skipped), "\n".join(report), ""
    short = "\n     ".join([f"FAIL {command} (exit {code})"] + in_short(out))
    return (passed, failed, skipped), "\n".join(report + [out]), short


def main():
    args = sys.argv[1:]
    summary, timeout, jobs = None, 600, 1
    while args and args[0].startswith("--"):
        if args[0] == "--summary":
            summary = args[1]
        elif args[0] == "--timeout":
            timeout = float(args[1])
        elif args[0] == "--jobs":
            jobs = int(args[1])
        else:
            sys.exit(__doc__)
        args = args[2:]
    total, failures = [0, 0, 0], []
    with ThreadPoolExecutor(jobs) as pool:
        for counts, report, failure in pool.map(lambda command: run(command, timeout), args):
            print(report, flush=True)
            total = [a + b for a, b in zip(total, counts)]
            failures += [failure] if failure else []
    if summary:
        with open(summary, "a", encoding="utf-8") as f:
            f.write("%d %d %d\n" % tuple(total))
        if failures:
            with open(summary + ".failed", "a", encoding="utf-8") as f:
                f.write("\n".join(failures) + "\n")
    else:
        print("%d passed, %d failed, %d skipped" % tuple(total))
    sys.exit(1 if total[1] or not sum(total) else 0)


main()
