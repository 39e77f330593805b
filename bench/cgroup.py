"""A memory cgroup of a given size, v1 or v2, page cache counted, without swap. Needs root."""
import os
import shutil
import subprocess
import time

V1, V2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"


def _write(path, value):
    with open(path, "w", encoding="ascii") as f:
        f.write(str(value))


def _read(path):
    with open(path, encoding="ascii") as f:
        return f.read()


class MemoryCgroup:
    """command(args) is args run inside; peak_bytes() the most that was charged, page cache included."""

    def __init__(self, name, limit_bytes):
        self.v2 = not os.path.exists(f"{V1}/memory.limit_in_bytes")
        self.path = f"{V2 if self.v2 else V1}/{name}-{os.getpid()}"
        if self.v2:
            # Children get the memory controller only if their parent hands it down.
            try:
                _write(f"{V2}/cgroup.subtree_control", "+memory")
            except OSError:
                pass
        os.makedirs(self.path, exist_ok=True)
        _write(f"{self.path}/{'memory.max' if self.v2 else 'memory.limit_in_bytes'}", limit_bytes)
        swap = f"{self.path}/{'memory.swap.max' if self.v2 else 'memory.memsw.limit_in_bytes'}"
        if os.path.exists(swap):
            _write(swap, 0 if self.v2 else limit_bytes)

    @staticmethod
    def possible():
        try:
            MemoryCgroup("sluice-try", 64 << 20).remove()
            return True
        except OSError:
            return False

    def command(self, args):
        """Joined by the child itself, before it becomes the program: all of its memory is counted."""
        return ["/bin/sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', self.path, *args]

    def _stat(self, *names):
        rows = dict(line.split() for line in _read(f"{self.path}/memory.stat").splitlines())
        return sum(int(rows.get(n, 0)) for n in names)

    def peak_bytes(self):
        for name in ("memory.max_usage_in_bytes", "memory.peak"):
            if os.path.exists(f"{self.path}/{name}"):
                return int(_read(f"{self.path}/{name}"))
        return 0

    def cache_bytes(self):
        return self._stat("file") if self.v2 else self._stat("cache")

    def oom_kills(self):
        text = _read(f"{self.path}/{'memory.events' if self.v2 else 'memory.oom_control'}")
        return int(dict(line.split() for line in text.splitlines()).get("oom_kill", 0))

    def remove(self):
        for _ in range(50):
            try:
                os.rmdir(self.path)
                return
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.1)  # what ran inside is still being taken apart


def drop_page_cache(path):
    """Nothing of the file stays in memory: what is read afterwards comes from the disk."""
    os.sync()
    try:
        _write("/proc/sys/vm/drop_caches", 3)
    except OSError:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def disk_of(path):
    return subprocess.run(["df", "--output=source,fstype", path], stdout=subprocess.PIPE, check=True,
                          text=True).stdout.splitlines()[-1] if shutil.which("df") else "?"
