"""Machines with links of a given rate, delay and loss between them, on one machine: network namespaces with veth pairs, `tbf` for
the rate, nftables for loss, and a relay for the delay, since not every kernel has netem. Needs root."""
import collections
import os
import shutil
import socket
import subprocess
import sys
import threading
import time

INSIDE = "SLUICE_TEST_INSIDE"


class Unable(Exception):
    """This machine has no such networks."""


def run(*command):
    p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if p.returncode:
        raise Unable(f"{' '.join(command)}: {p.stdout.strip()[:200]}")


def why_not():
    """Why there can be no such links here; None: there can."""
    lacking = [p for p in ("ip", "tc", "nft", "unshare", "nsenter") if not shutil.which(p)]
    if lacking:
        return f"there is no {lacking[0]}"
    if subprocess.run(["unshare", "-n", "true"], stderr=subprocess.DEVNULL).returncode:
        return "namespaces cannot be made here"
    return None


def go_inside():
    """In a network namespace of our own, with all that is started from now on: starts this program again."""
    if not os.environ.get(INSIDE):
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", "-n", sys.executable, *sys.argv])
    run("ip", "link", "set", "lo", "up")


class Machine:
    """A network namespace whose only link leads here."""

    def __init__(self, number):
        self.address, self.here = f"10.8.{number}.2", f"10.8.{number}.1"
        self.link, self.holder = f"to{number}", subprocess.Popen(["unshare", "-n", "sh", "-c", "echo; exec sleep 3600"], stdout=subprocess.PIPE)
        self.holder.stdout.readline()
        try:
            run("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", str(self.holder.pid))
            run("ip", "addr", "add", f"{self.here}/24", "dev", self.link)
            run("ip", "link", "set", self.link, "up")
            self.inside("ip", "link", "set", "lo", "up")
            self.inside("ip", "addr", "add", f"{self.address}/24", "dev", "eth0")
            self.inside("ip", "link", "set", "eth0", "up")
        except Unable:
            self.end()
            raise

    def command(self, *argv):
        return ["nsenter", "-t", str(self.holder.pid), "-n", *argv]

    def inside(self, *argv):
        run(*self.command(*argv))

    def set_rate(self, bits_per_s):
        """Both ways; 0: as fast as it goes."""
        for end, where in ((self.link, run), ("eth0", self.inside)):
            if bits_per_s:
                # What passes at once is what a timer of 250 Hz lets through, and at least one large segment.
                burst = max(bits_per_s // 8 // 250, 128 << 10)
                where("tc", "qdisc", "replace", "dev", end, "root", "tbf", "rate", f"{bits_per_s}bit", "burst", str(burst), "latency", "100ms")
            else:
                subprocess.run(self.command("tc", "qdisc", "del", "dev", end, "root") if end == "eth0" else
                               ["tc", "qdisc", "del", "dev", end, "root"], stderr=subprocess.DEVNULL)

    def set_loss(self, percent):
        """Of the packets that arrive there, and of those that arrive here."""
        for where, end in ((run, self.link), (self.inside, "eth0")):
            where("nft", f"add table ip loss; delete table ip loss; add table ip loss; add chain ip loss in {{ type filter hook input priority 0; }}; "
                  f'add rule ip loss in iifname "{end}" numgen random mod 1000 < {round(10 * percent)} drop')

    def set_up(self, up):
        run("ip", "link", "set", self.link, "up" if up else "down")

    def end(self):
        self.holder.kill()
        self.holder.wait()


class Delay:
    """Passes bytes on to an address, each so many seconds after it came."""

    def __init__(self, to, one_way_s):
        host, port = to.rsplit(":", 1)
        self.to, self.one_way_s = (host, int(port)), one_way_s
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.at = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                a, _ = self.listener.accept()
            except OSError:
                return
            try:
                b = socket.create_connection(self.to, timeout=5)
                b.settimeout(None)
            except OSError:
                a.close()
                continue
            for s in (a, b):
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for x, y in ((a, b), (b, a)):
                waiting = (collections.deque(), threading.Condition())
                threading.Thread(target=self.read, args=(x, *waiting), daemon=True).start()
                threading.Thread(target=self.write, args=(x, y, *waiting), daemon=True).start()

    def read(self, x, queue, news):
        data = b"x"
        while data:
            try:
                data = x.recv(1 << 18)
            except OSError:
                data = b""
            with news:
                queue.append((time.monotonic() + self.one_way_s, data))
                news.notify()

    def write(self, x, y, queue, news):
        data = b"x"
        while data:
            with news:
                while not queue:
                    news.wait()
                due, data = queue.popleft()
            wait = due - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            try:
                y.sendall(data)
            except OSError:
                break
        for s in (x, y):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def end(self):
        self.listener.close()
