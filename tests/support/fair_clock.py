"""Limits that hold on a busy machine: seconds count for less while more wants to run than there are CPUs."""
import os
import time


def share():
    """What of a CPU each that wants one gets now, whoever asks left out."""
    try:
        with open("/proc/loadavg", encoding="ascii") as f:
            running = int(f.read().split()[3].split("/")[0]) - 1
    except (OSError, ValueError, IndexError):
        return 1
    return min(1, len(os.sched_getaffinity(0)) / max(1, running))


class FairClock:
    """How long something would have taken so far with a CPU of its own, roughly; to be asked often."""

    def __init__(self):
        self.seconds, self.last = 0, time.monotonic()

    def look(self):
        now = time.monotonic()
        self.seconds += (now - self.last) * share()
        self.last = now
        return self.seconds
