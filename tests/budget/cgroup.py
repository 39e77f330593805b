"""A memory cgroup of version 1 or 2, whichever this machine lets us make, for one command at a time."""
import os
import subprocess
import threading
import time


class Unavailable(Exception):
    """No memory cgroup can be made here; the text says why."""


def read(path):
    with open(path, encoding="ascii") as f:
        return f.read()


def fields(path):
    return {k: int(v) for k, v in (line.split()[:2] for line in read(path).splitlines() if line)}


def write(path, text):
    with open(path, "w", encoding="ascii") as f:
        f.write(str(text))


def parents():
    """Folders where a cgroup with a memory limit may be made: (version, folder), nearest first."""
    own = {}
    for line in read("/proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            own[2] = path
        elif "memory" in controllers.split(","):
            own[1] = path
    for line in read("/proc/self/mountinfo").splitlines():
        left, right = line.split(" - ", 1)
        root, mount = left.split()[3:5]
        kind, _, options = right.split(" ", 2)
        version = 2 if kind == "cgroup2" else 1 if kind == "cgroup" and "memory" in options.split(",") else 0
        if version not in own:
            continue
        below = own[version]
        if root != "/" and below.startswith(root):
            below = below[len(root):]
        for folder in (mount + (below if ".." not in below else ""), mount):
            yield version, folder.rstrip("/")


class Cgroup:
    """A cgroup that holds `limit` bytes, without swap. Use with `with`."""

    def __init__(self, limit):
        self.limit = limit
        why = ["no memory cgroup is mounted"]
        for version, parent in parents():
            path = f"{parent}/sluice-budget-{os.getpid()}-{time.monotonic_ns()}"
            try:
                if version == 2 and "memory" not in read(f"{parent}/cgroup.subtree_control").split():
                    write(f"{parent}/cgroup.subtree_control", "+memory")
                os.mkdir(path)
            except OSError as e:
                why.append(f"v{version} in {parent}: {e.strerror}")
                continue
            try:
                self.version, self.path = version, path
                self.set_limit()
                return
            except OSError as e:
                os.rmdir(path)
                why.append(f"v{version} in {parent}: {e.strerror}")
        raise Unavailable("; ".join(why))

    def set_limit(self):
        if self.version == 2:
            write(f"{self.path}/memory.max", self.limit)
            if os.path.exists(f"{self.path}/memory.swap.max"):
                write(f"{self.path}/memory.swap.max", 0)
            return
        write(f"{self.path}/memory.limit_in_bytes", self.limit)
        if os.path.exists(f"{self.path}/memory.memsw.limit_in_bytes"):
            write(f"{self.path}/memory.memsw.limit_in_bytes", self.limit)
        write(f"{self.path}/memory.swappiness", 0)

    def used(self):
        """Bytes that the kernel cannot take back: all but page cache, the kernel's own included."""
        stat = fields(f"{self.path}/memory.stat")
        if self.version == 2:
            cache = stat["inactive_file"] + stat["active_file"] + stat.get("slab_reclaimable", 0)
            return int(read(f"{self.path}/memory.current")) - cache
        cache = stat["total_inactive_file"] + stat["total_active_file"]
        return int(read(f"{self.path}/memory.usage_in_bytes")) - cache

    def peak_with_cache(self):
        name = "memory.peak" if self.version == 2 else "memory.max_usage_in_bytes"
        return int(read(f"{self.path}/{name}")) if os.path.exists(f"{self.path}/{name}") else 0

    def kills(self):
        name = "memory.events" if self.version == 2 else "memory.oom_control"
        return fields(f"{self.path}/{name}").get("oom_kill", 0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for _ in range(100):
            try:
                os.rmdir(self.path)
                return
            except OSError:
                time.sleep(0.02)


class Run:
    """A command inside a cgroup. After finish(): code, out, err, peak_rss, peak_used, read_bytes, killed."""

    def __init__(self, group, argv, env=None):
        self.group = group
        self.peak_used = self.peak_rss = 0
        procs = f"{group.path}/cgroup.procs"
        # The shell joins the cgroup and becomes the command: a child of ours between fork and exec counts as
        # this interpreter's memory, which would be the command's high-water mark.
        self.child = subprocess.Popen(["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', procs] + argv,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      env=env)
        self.texts = {}
        self.readers = [threading.Thread(target=self.collect, args=(n, p), daemon=True)
                        for n, p in (("out", self.child.stdout), ("err", self.child.stderr))]
        self.ended = threading.Event()
        self.sampler = threading.Thread(target=self.sample, daemon=True)
        for t in self.readers + [self.sampler]:
            t.start()

    def collect(self, name, pipe):
        self.texts[name] = ""
        for chunk in iter(lambda: os.read(pipe.fileno(), 65536), b""):
            self.texts[name] += chunk.decode("utf-8", "replace")

    def look(self):
        try:
            self.peak_used = max(self.peak_used, self.group.used())
            for line in read(f"/proc/{self.child.pid}/status").splitlines():
                if line.startswith("VmHWM:"):
                    self.peak_rss = max(self.peak_rss, int(line.split()[1]) * 1024)
        except OSError:
            pass

    def sample(self):
        while not self.ended.wait(0.005):
            self.look()

    def finish(self, timeout=120):
        """Waits for the end, and reads what the zombie still tells."""
        until = time.monotonic() + timeout
        while os.waitid(os.P_PID, self.child.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            if time.monotonic() > until:
                self.child.kill()
                raise AssertionError(f"no end after {timeout} s: {self.texts.get('err', '')[-500:]}")
            time.sleep(0.005)
        self.ended.set()
        self.sampler.join()
        io = {k: int(v) for k, v in (l.split(": ") for l in read(f"/proc/{self.child.pid}/io").splitlines())}
        self.read_bytes = io["rchar"]
        self.child.wait()
        for t in self.readers:
            t.join()
        self.child.stdout.close()
        self.child.stderr.close()
        self.code, self.out, self.err = self.child.returncode, self.texts["out"], self.texts["err"]
        self.killed = self.group.kills() > 0 or self.code in (-9, 137)
        return self
