#!/usr/bin/env python3
"""deploy/slurm/sluice.sbatch in a real Slurm: a controller and two nodes on this machine, with a key and a port of their own.
The job starts and serves; a worker that is killed comes back and a stream goes on; a task that is killed has the job queued again, and it
serves as before; `scancel` ends all of it.

usage: slurm.py SLUICE

Skipped where Slurm (Debian's slurm-wlm and munge) is not installed, or this is not root's shell. TAP."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from support.ports import free_port  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEMO = os.environ.get("SLUICE_TEST_MODEL", os.path.join(ROOT, "demo", "demo.gguf"))
NEEDED = ["munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol"]
CASES = ["starts and serves over two nodes", "a killed worker comes back, and the stream goes on", "a killed task: the job is queued again, and serves as before",
         "ends with the job"]
# Names that are addresses: a job's nodes are reached by name.
NODES = ["127.0.0.2", "127.0.0.3"]


LONG_S = 600


def until(what, ask):
    end = time.monotonic() + LONG_S
    while time.monotonic() < end:
        got = ask()
        if got:
            return got
        time.sleep(0.2)
    raise RuntimeError(f"{what}: not within {LONG_S} s")


class Slurm:
    def __init__(self, folder):
        self.folder, self.children = folder, []
        ctl, *nodes = (free_port() for _ in range(3))
        host = socket.gethostname().split(".")[0]
        munge = os.path.join(folder, "munge")
        os.mkdir(munge, 0o700)
        with open(os.path.join(munge, "key"), "wb") as f:
            os.fchmod(f.fileno(), 0o600)
            f.write(os.urandom(1024))
        self.socket = os.path.join(munge, "s")
        with open(os.path.join(folder, "slurm.conf"), "w") as f:
            f.write(f"""ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctl}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={self.socket}
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
KillWait=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/ctl.pid
SlurmdPidFile={folder}/d-%n.pid
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmctldLogFile={folder}/ctl.log
SlurmdLogFile={folder}/d-%n.log
""")
            for name, port in zip(NODES, nodes):
                f.write(f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={os.cpu_count()}\n")
            f.write(f"PartitionName=all Nodes={','.join(NODES)} Default=YES MaxTime=10\n")
        os.mkdir(os.path.join(folder, "state"))
        self.env = {**os.environ, "SLURM_CONF": os.path.join(folder, "slurm.conf")}
        self.start("munged", "-F", "--force", f"--key-file={munge}/key", f"--socket={self.socket}", f"--pid-file={munge}/pid",
                   f"--log-file={munge}/log", f"--seed-file={munge}/seed")
        until("munged", lambda: os.path.exists(self.socket))
        self.start("slurmctld", "-D", "-c")
        for name in NODES:
            self.start("slurmd", "-D", "-N", name)
        until("two idle nodes", lambda: self.say("sinfo", "-h", "-o", "%D %T").strip() == "2 idle")

    def start(self, *command):
        with open(os.path.join(self.folder, command[0] + ".out"), "ab") as log:
            self.children.append(subprocess.Popen(command, stdout=log, stderr=log, env=self.env))

    def say(self, *command):
        return subprocess.run(command, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout

    def end(self):
        for c in reversed(self.children):
            c.terminate()
        for c in self.children:
            try:
                c.wait(20)
            except subprocess.TimeoutExpired:
                c.kill()


def processes(pattern):
    """Those whose command line fits: their numbers."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if re.match(pattern, f.read().replace(b"\0", b" ").decode(errors="replace")):
                    found.append(int(pid))
        except OSError:
            pass
    return found


def parent(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
        return int(f.read().rsplit(")", 1)[1].split()[1])


def check(sluice, folder, report):
    slurm = Slurm(folder)
    http, port = free_port(), free_port()
    url = f"http://127.0.0.1:{http}"
    worker = rf"{re.escape(sluice)} worker .*:{port}\b"
    try:
        key = os.path.join(folder, "cluster.key")
        with open(key, "wb", opener=lambda p, f: os.open(p, f, 0o600)) as f:
            f.write(subprocess.run([sluice, "keygen"], stdout=subprocess.PIPE, check=True).stdout)
        given = {"SLUICE_PROGRAM": sluice, "SLUICE_MODEL": DEMO, "SLUICE_KEY_FILE": key, "SLUICE_CLUSTER_PORT": str(port),
                 "SLUICE_SERVE_ARGS": f"--device cpu --port {http} --ctx 2048 -t 1",
                 "SLUICE_WORKER_ARGS": "--device cpu -t 1 --no-measure"}
        export = ",".join(["ALL"] + [f"{k}={v}" for k, v in given.items()])
        out = slurm.say("sbatch", "--nodes=2", "--open-mode=append", "--output", os.path.join(folder, "job.log"), "--export", export,
                        os.path.join(ROOT, "deploy", "slurm", "sluice.sbatch"))
        job = re.search(r"Submitted batch job (\d+)", out)
        if not job:
            raise RuntimeError(out)

        def ready():
            try:
                return urllib.request.urlopen(url + "/health", timeout=5).status == 200
            except (urllib.error.URLError, OSError):
                return False

        until("the server", ready)
        body = {"messages": [{"role": "user", "content": "Count from 1 to 200."}], "max_tokens": 300, "temperature": 0,
                "ignore_eos": True, "stream": True}

        def ask(seen):
            r = urllib.request.urlopen(urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode()), timeout=LONG_S)
            for line in r:
                if line.startswith(b"data: {"):
                    seen.append(json.loads(line[6:]))
            return "".join(c["delta"].get("content") or "" for s in seen for c in s.get("choices", []))

        wanted = ask([])
        report(0, "" if wanted else "no answer")

        seen, said = [], []
        t = threading.Thread(target=lambda: said.append(ask(seen)))
        t.start()
        until("some tokens", lambda: len(seen) > 5)
        killed = processes(worker)
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        t.join(LONG_S)
        report(1, "no worker was there to kill" if len(killed) != 1 else "" if said == [wanted] else f"the stream said {said} and not {wanted!r}")

        # The task with its shell, that would start the program again: nothing on its node is left to do so.
        killed = processes(worker)
        for pid in killed:
            os.kill(parent(pid), signal.SIGKILL)
            os.kill(pid, signal.SIGKILL)
        until("the server's end", lambda: not ready())
        until("the job's second start", lambda: "Restarts=1" in slurm.say("scontrol", "show", "job", job.group(1)) and ready())
        again = ask([])
        with open(os.path.join(folder, "job.log"), encoding="utf-8", errors="replace") as f:
            log = f.read()
        report(2, "no worker was there to kill" if len(killed) != 1 else f"it said {again!r} and not {wanted!r}" if again != wanted else
               "" if "the job is queued again" in log else f"the job's log does not say so: {log[-800:]}")

        slurm.say("scancel", job.group(1))
        until("the end of the job", lambda: not slurm.say("squeue", "-h").strip())
        left = until("no process is left", lambda: not processes(worker) and not processes(rf"{re.escape(sluice)} serve .*{http}"))
        report(3, "" if left else "processes are left")
    finally:
        slurm.end()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    lacking = [p for p in NEEDED if not shutil.which(p)]
    why = f"there is no {lacking[0]}" if lacking else "" if os.geteuid() == 0 else "only root may start Slurm"
    print(f"1..{len(CASES)}")
    done = []

    def report(i, wrong):
        done.append(i)
        print(f"{'not ok' if wrong else 'ok'} {i + 1} - {CASES[i]}", flush=True)
        if wrong:
            print(f"# {wrong}")

    if why:
        for i, name in enumerate(CASES, 1):
            print(f"ok {i} - {name} # SKIP {why}")
        return 0
    with tempfile.TemporaryDirectory(prefix="sluice-slurm-") as folder:
        try:
            check(os.path.abspath(sys.argv[1]), folder, report)
        except (RuntimeError, OSError, subprocess.CalledProcessError) as e:
            report(len(done), str(e))
            for name in sorted(os.listdir(folder)):
                if name.endswith((".log", ".out")):
                    with open(os.path.join(folder, name), errors="replace") as f:
                        print("".join(f"# {name}: {line}" for line in f.read().splitlines(True)[-8:]))
            for i in range(len(done), len(CASES)):
                report(i, "did not come to it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
