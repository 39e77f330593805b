#!/usr/bin/env python3
"""Peers that mean harm: without the key (silence, garbage, handshakes that are cut, recorded ones that are sent again, a listener
where a worker was), and with it (frames and messages that lie). Memory, descriptors, time and log lines stay bounded, nothing
crashes, and others are served all the while. Prints TAP.

usage: hostile.py SLUICE MODEL [--lies N] [--seed N] [--only PART]

--lies N sends so many changed copies of a recorded session to a worker, and a tenth as many to a coordinator."""
import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

import cluster
import relay

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from support.ports import free_port  # noqa: E402

HEAD = struct.Struct("<4sHHIIQQ")
NAMES = "HELLO OFFER LOAD PROGRESS READY REFUSE CALL ANSWER CANCEL HEARTBEAT HEARTBEAT_ANSWER MODEL FETCH PIECE".split()
TYPE = {name: i + 1 for i, name in enumerate(NAMES)}
SILENT = 1000


def frame(kind, payload=b"", number=1, epoch=1, length=None, magic=b"SLCE", version=1, zero=0):
    return HEAD.pack(magic, version, TYPE.get(kind, kind), epoch, zero, number, len(payload) if length is None else length) + payload


def text(s, length=None):
    return struct.pack("<I", len(s) if length is None else length) + s.encode()


def hello(program, role=1, messages=3, name="liar", more=b"\0"):
    return struct.pack("<II", role, messages) + text(program) + text(name) + more


def stage(at=1, device=0, first=2, n=2, ram=1 << 30, vram=0):
    return struct.pack("<IIIIQQQB", at, device, first, n, ram, 0, vram, 0)


def load(content, stages=(), n=None, n_stages=2, n_layer=4, ctx=512, parallel=1, batch=64, queue=16, cache=0, kv=1, experts=0):
    tables, table_cache = 0, 0
    body = struct.pack("<QIIIIIIQIIIQ", content, n_stages, n_layer, ctx, parallel, batch, queue, cache, kv, experts, tables, table_cache)
    body += b"\0\0\0\0"
    return body + struct.pack("<IIII", 9, 9, 0, 0) + struct.pack("<I", len(stages) if n is None else n) + b"".join(stages)


def layers_of(sluice, model):
    r = subprocess.run([sluice, "inspect", "-m", model, "--json"], capture_output=True, text=True, check=True)
    return json.loads(r.stdout)["hparams"]["n_layer"]


def version_of(sluice):
    return subprocess.run([sluice, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]


def frames_of(data):
    """The frames of a stream: (type, epoch, payload)."""
    out = []
    while len(data) >= HEAD.size:
        _, _, kind, epoch, _, _, n = HEAD.unpack_from(data)
        out.append((kind, epoch, data[HEAD.size:HEAD.size + n]))
        data = data[HEAD.size + n:]
    return out


def resident_kib(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))


class Recorder(relay.Relay):
    """Passes a connection on, and keeps what went each way."""

    def __init__(self, family, at, to):
        self.sent, self.received = bytearray(), bytearray()
        super().__init__(at, to, family)

    def pass_on(self, parts, way):
        kept = self.sent if way == "there" else self.received
        for data in parts:
            kept += data
            yield data

    def ended(self, a, b):
        """What b has yet to say is kept too."""
        try:
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass


class Impostor(relay.Relay):
    """Where a worker is: passes connections on to it, or, while it hangs, says what that said at first, then takes what it is to load and
    gives no sign but heartbeats."""

    def __init__(self, path, to):
        self.at, self.hangs = "unix:" + path, False
        self.first, self.loads = bytearray(), 0
        super().__init__(path, to.removeprefix("unix:"))

    def takes(self, a):
        if self.hangs:
            threading.Thread(target=self.hang, args=(a,), daemon=True).start()
            return False
        return True

    def pass_on(self, parts, way):
        for data in parts:
            if way == "back" and len(self.first) < 4096:
                self.first += data
            yield data

    def hang(self, s):
        number, data = 0, b""
        s.settimeout(0.2)
        try:
            for kind, epoch, payload in frames_of(bytes(self.first))[:2]:  # HELLO, OFFER
                number += 1
                s.sendall(frame(kind, payload, number=number, epoch=epoch))
            while self.hangs:
                try:
                    part = s.recv(65536)
                except socket.timeout:
                    continue
                if not part:
                    break
                data += part
                while len(data) >= HEAD.size and len(data) >= HEAD.size + HEAD.unpack_from(data)[6]:
                    kind, n = HEAD.unpack_from(data)[2], HEAD.unpack_from(data)[6]
                    payload, data = data[HEAD.size:HEAD.size + n], data[HEAD.size + n:]
                    self.loads += kind == TYPE["LOAD"]
                    if kind == TYPE["HEARTBEAT"]:
                        number += 1
                        s.sendall(frame("HEARTBEAT_ANSWER", payload + struct.pack("<Q", time.monotonic_ns()), number=number))
        except OSError:
            pass
        s.close()


def wait_until(true):
    """Whether it became so in time."""
    until = time.monotonic() + cluster.LONG
    while not true() and time.monotonic() < until:
        time.sleep(0.02)
    return bool(true())


def swallow(s, seconds):
    """Reads until the other side closes or the time is over: whether it closed."""
    s.settimeout(seconds)
    try:
        while s.recv(65536):
            pass
        return True
    except socket.timeout:
        return False
    except OSError:
        return True


class Hostile:
    def __init__(self, t, lies, seed):
        self.t, self.n_lies, self.rng = t, lies, random.Random(seed)
        self.more_kib = (1 << 20) if t.sanitized else 16384  # that a process may grow by
        self.alone = t.score(t.model, ["--device", "cpu"])
        self.n_serves = 0

    def serves(self, w, key=True):
        self.n_serves += 1
        r = self.t.score(self.t.model, ["--device", "cpu", "--workers", w.at, *(["--key-file", self.t.key] if key else ["--plain"])])
        return r == self.alone or str(r)[:800]

    def is_free(self, w):
        return w.p.poll() is not None or w.health()["state"] == "waiting"

    # ---- who has no key, at a worker ----

    def one_by_one(self, w, to, kinds):
        """Each kind of stranger alone: the worker ends the connection, with a log line at most."""
        stayed, lines = [], []
        for name, data, ends in kinds:
            had = len(w.text())
            with socket.create_connection(to, timeout=60) as s:
                try:
                    s.sendall(data)
                    if ends:
                        s.shutdown(socket.SHUT_WR)
                except OSError:
                    pass
                if not swallow(s, cluster.LONG):
                    stayed.append(name)
            # The listener's thread logs before it closes.
            told = w.text()[had:].splitlines()
            if len(told) > 1 or told and "was refused" not in told[0]:
                lines.append((name, told))
        self.t.check(f"{len(kinds)} kinds of strangers, one after the other: each is left, with a log line at most", not stayed and not lines, f"{stayed} {lines}")

    def crowd(self, w, to, name, kinds, before):
        """A thousand of these at once, more until three coordinators have been served among them."""
        held, answers, had, began = [], [], w.text().count("was refused"), time.monotonic()
        serving = threading.Thread(target=lambda: answers.extend(self.serves(w) for _ in range(3)))
        serving.start()
        most_fds = most_kib = n = 0
        until = time.monotonic() + cluster.LONG
        while (n < SILENT or serving.is_alive()) and time.monotonic() < until:
            _, data, ends = kinds[n % len(kinds)]
            s = socket.create_connection(to, timeout=60)
            try:
                s.sendall(data)
                if ends:
                    s.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            held.append(s)
            if len(held) > 2 * SILENT:  # else a slow worker is served among more than there may be open files
                held.pop(0).close()
            n += 1
            if n % 50 == 0:
                most_fds = max(most_fds, len(os.listdir(f"/proc/{w.p.pid}/fd")))
                most_kib = max(most_kib, resident_kib(w.p.pid))
        serving.join()
        lines, seconds = w.text().count("was refused") - had, time.monotonic() - began
        self.t.check(f"{name}: three coordinators are served meanwhile", answers == [True] * 3 and n >= SILENT, f"{n} {answers}")
        self.t.check("few log lines, descriptors and little memory are spent on them", lines <= seconds + 2 and most_fds < 128 and most_kib < before + self.more_kib,
                     f"{n} came in {seconds:.1f} s: {lines} lines, {most_fds} descriptors, {before} -> {most_kib} KiB")
        for s in held:
            s.close()

    def strangers(self):
        t = self.t
        w = cluster.Worker(t, t.model, "127.0.0.1:0")
        host, port = w.at.rsplit(":", 1)
        to = (host, int(port))
        # A session with the key, recorded on its way.
        tape = Recorder(socket.AF_INET, ("127.0.0.1", 0), to)
        r = t.score(t.model, ["--device", "cpu", "--workers", f"127.0.0.1:{tape.listener.getsockname()[1]}", "--key-file", t.key])
        t.check("a session by way of a recorder", r == self.alone, str(r)[:500])
        w.wait_for("waiting for a coordinator")  # its last word on that one
        hello = bytes(tape.sent[:5 + int.from_bytes(tape.sent[3:5], "big")])
        kinds = [("silence", b"", False), ("silence, then its end", b"", True), ("a recorded session", bytes(tape.sent), False), ("half of one", bytes(tape.sent[:len(tape.sent) // 2]), True),
                 ("a recorded hello", hello, False), ("the head of a record", hello[:5], False), ("a cut hello", hello[:50], False), ("one cut at its end", hello[:-1], True),
                 ("a record of 65535 bytes", b"\x16\x03\x01\xff\xff" + bytes(70000), False), ("a frame", frame("HELLO", b"x" * 64), False),
                 ("a frame of 2^63 bytes", frame("HELLO", length=1 << 63), False), ("noise", os.urandom(3000), False), ("zeros", b"\0" * 5000, False)]
        self.one_by_one(w, to, kinds)
        before = resident_kib(w.p.pid)
        for name, crowd in ((f"{SILENT} connections that say nothing", kinds[:1]), ("strangers that say nothing, garbage, half a handshake or a recorded one", kinds)):
            self.crowd(w, to, name, crowd, before)
        replayed = socket.create_connection(to, timeout=60)
        replayed.sendall(bytes(tape.sent))
        t.check("a recorded session that is sent again ends at the handshake", swallow(replayed, 60) and "serving" not in w.text().split(
            "was refused")[-1].replace("serving vm", ""), w.text()[-800:])
        replayed.close()
        t.check("and the worker ends well", w.end() == 0 and not re.search(cluster.TROUBLE, w.text()), w.text()[-1500:])

    def strangers_take_the_descriptors(self):
        """More silent connections than the worker may have descriptors: it does not spin, and others get in when they are gone."""
        t = self.t
        w = cluster.Worker(t, t.model, "127.0.0.1:0")
        first = self.serves(w)
        w.wait_for("waiting for a coordinator")  # by then it has closed all of that one's
        have = len(os.listdir(f"/proc/{w.p.pid}/fd"))
        soft = have + 32
        resource.prlimit(w.p.pid, resource.RLIMIT_NOFILE, (soft, soft))
        host, port = w.at.rsplit(":", 1)
        held = [socket.create_connection((host, int(port)), timeout=60) for _ in range(60)]

        def computed():
            with open(f"/proc/{w.p.pid}/stat", encoding="utf-8") as f:
                return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")

        before = computed()
        time.sleep(3)
        took = computed() - before
        t.check("strangers that take all descriptors cost no time", took < 0.5, f"{took} s of 3, {have} descriptors before")
        for s in held:
            s.close()
        wait_until(lambda: len(os.listdir(f"/proc/{w.p.pid}/fd")) == have)
        served = self.serves(w)
        t.check("and a coordinator is served after them", first is True and served is True, f"{first} {served}")
        t.check("and the worker ends well", w.end() == 0 and not re.search(cluster.TROUBLE, w.text()), w.text()[-1500:])

    # ---- a listener where a worker was ----

    def stolen_listener(self):
        t = self.t
        listener = socket.create_server(("127.0.0.1", 0))
        got, ways = [], [b"", b"HTTP/1.1 200 OK\r\n\r\n", b"\x16\x03\x03\x00\x7a\x02" + os.urandom(0x79), frame("HELLO", b"x" * 40), b"\x15\x03\x03\x00\x02\x02\x28"]

        def serve():
            for what in ways:
                s, _ = listener.accept()
                s.sendall(what)
                s.settimeout(cluster.LONG)  # the coordinator waits for less, and closes
                data = b""
                try:
                    while part := s.recv(65536):
                        data += part
                except OSError:
                    pass
                got.append(data)
                s.close()

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        errors = []
        for _ in ways:
            began = time.monotonic()
            r = t.score(t.model, ["--device", "cpu", "--workers", f"127.0.0.1:{listener.getsockname()[1]}", "--key-file", t.key, "--worker-wait", "1"])
            errors.append((str(r)[-300:], time.monotonic() - began))
        server.join(cluster.LONG)  # it may not have run since the last program ended
        listener.close()
        refused = all("sluice score: " in e for e, _ in errors)
        t.check("a listener without the key is refused, in one line", refused and len(got) == len(ways) and all(len(e.strip().splitlines()) == 1 for e, _ in errors), errors)

        def records(data):
            kinds = set()
            while len(data) >= 5:
                kinds.add(data[0])
                data = data[5 + int.from_bytes(data[3:5], "big"):]
            return kinds

        t.check("and has seen the beginning of a handshake, no more", got and all(g and records(g) <= {0x14, 0x15, 0x16} for g in got), [g[:80] for g in got])

        self.thief_in_a_lost_workers_place(ways)

    def thief_in_a_lost_workers_place(self, ways):
        """A server's worker is killed, and somebody without the key listens where it was, until it is back."""
        t, n = self.t, 0
        w = cluster.Worker(t, t.model, f"127.0.0.1:{free_port()}")  # which it has again after the thief
        server = cluster.Server(t, w, options=["--worker-wait", str(cluster.LONG)])
        alone = server.complete("A river ", 100)
        asking, answers = threading.Thread(target=lambda: answers.append(server.complete("A river ", 100))), []
        w.end(signal.SIGKILL)
        host, port = w.at.rsplit(":", 1)
        had = len(server.text())
        with socket.create_server((host, int(port))) as thief:
            thief.settimeout(cluster.LONG)
            while n < 2 * len(ways):
                with thief.accept()[0] as s:
                    try:
                        s.sendall(ways[n % len(ways)])
                    except OSError:
                        pass
                    swallow(s, 1)
                n += 1
                if n == 1:
                    asking.start()
        # The line about the answer before may come after it.
        told = [line for line in server.text()[had:].splitlines() if "POST /v1/" not in line]
        w = cluster.Worker(t, t.model, w.at)
        if asking.ident:
            asking.join()
        back = wait_until(lambda: f"the worker at {w.at} is back" in server.text())
        # A request that came meanwhile was told to come again.
        again = server.complete("A river ", 100)
        t.check(f"{n} times a thief in a lost worker's place: the log has the loss, and when it is back all is well", len(told) <= 1 and back and again == alone and
                (answers[:1] == [alone] or "503" in str(answers)), f"{told} {answers} {again} {alone} {server.text()[-800:]}")
        codes = [server.end(), w.end()]
        t.check("and both end well", codes == [0, 0] and not re.search(cluster.TROUBLE, server.text() + w.text()), f"{codes} {server.text()[-800:]}")

    # ---- who has the key, and lies ----

    def keyed(self, w, key, data):
        """Sends data as somebody with the key: what came back until the worker closed, or None: it did not."""
        p = subprocess.Popen(["openssl", "s_client", "-connect", w.at, "-tls1_3", "-psk", key, "-psk_identity", "sluice", "-quiet"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            p.stdin.write(data)
            p.stdin.flush()
        except OSError:
            pass
        kept = []
        reading = threading.Thread(target=lambda: kept.append(p.stdout.read()))
        reading.start()
        reading.join(cluster.LONG)
        closed = not reading.is_alive()
        p.kill()
        p.wait()
        reading.join()
        return kept[0] if closed else None

    def liars_with_the_key(self):
        t = self.t
        if not shutil.which("openssl"):
            t.n += 1
            print(f"ok {t.n} - somebody with the key lies # SKIP there is no openssl")
            return
        with open(t.key, encoding="ascii") as f:
            key = f.read().strip().split(":")[1]
        w = cluster.Worker(t, t.model, "127.0.0.1:0", "--http", "127.0.0.1:0")
        version = version_of(t.sluice)
        # What it says of itself is read before the lies are made: some are about a model that it has.
        content = struct.unpack_from("<Q", frames_of(self.keyed(w, key, frame("HELLO", hello(version)) + frame(99, number=2)))[1][2])[0]
        good, layers = frame("HELLO", hello(version)), layers_of(t.sluice, t.model)
        wait_until(lambda: self.is_free(w))

        def ask(**what):
            return good + frame("LOAD", load(content, **{"stages": [stage()], "n_layer": layers, **what}), number=2)

        lies = {
            "another magic": frame("HELLO", hello(version), magic=b"SLCF"), "another version": frame("HELLO", hello(version), version=2),
            "type 0": frame(0, hello(version)), "type 99": frame(99, hello(version)), "what must be zero": frame("HELLO", hello(version), zero=1),
            "2^63 bytes": frame("HELLO", length=1 << 63), "a byte too many": frame("HELLO", bytes(1025)), "64 GiB of an answer": frame("ANSWER", length=1 << 36),
            "a later number": frame("HELLO", hello(version), number=2), "the same frame again": good + good,
            "no role": frame("HELLO", hello(version, role=7)), "a worker": frame("HELLO", hello(version, role=2)),
            "another program": frame("HELLO", hello("0.0.1")),
            "a name of 4 GiB": frame("HELLO", struct.pack("<II", 1, 3) + text(version) + struct.pack("<I", 0xFFFFFFFF) + b"x"),
            "a flag of 2": frame("HELLO", hello(version, more=b"\2")), "more than all": frame("HELLO", hello(version, more=b"\0\0")),
            "no hello": frame("LOAD", load(content)), "two hellos": good + frame("HELLO", hello(version), number=2),
            "a call before its stage": good + frame("CALL", bytes(40), number=2),
            "a piece unasked": good + frame("PIECE", bytes(40), number=2), "a model unasked": good + frame("MODEL", bytes(40), number=2),
            "an answer": good + frame("ANSWER", bytes(40), number=2), "a heartbeat of no time": good + frame("HEARTBEAT", b"", number=2),
            "an answer to no heartbeat": good + frame("HEARTBEAT_ANSWER", struct.pack("<QQ", 1 << 63, 0), number=2),
            "a refusal without a word": good + frame("REFUSE", b"", number=2), "a refusal": good + frame("REFUSE", struct.pack("<I", 81) + text("no\n" * 99), number=2),
            "another model": good + frame("LOAD", load(content ^ 1, [stage()], n_layer=layers), number=2),
            "no stages": ask(stages=[]), "9 stages": ask(stages=[stage()] * 9), "4 milliard stages": ask(n=0xFFFFFFFF),
            "more stages than devices": ask(stages=[stage(), stage(2)], n_stages=3), "a stage of none": ask(n_stages=1),
            "another device": ask(stages=[stage(device=7)]),
            "4 milliard sessions": ask(parallel=0xFFFFFFFF), "4 milliard tokens": ask(ctx=0xFFFFFFFF), "4 milliard rows": ask(batch=0xFFFFFFFF),
            "4 milliard waiting": ask(queue=0xFFFFFFFF), "no sessions": ask(parallel=0), "a cache of 2^64": ask(cache=(1 << 64) - 1),
            "keys of type 99": ask(kv=99), "experts nowhere": ask(experts=99),
            "layers that are not": ask(stages=[stage(first=0xFFFFFFFF)]), "no layers": ask(stages=[stage(n=0)]),
            "memory of 2^64": ask(stages=[stage(ram=(1 << 64) - 1)]), "a plan of its own": ask(),
        }
        before, stayed, lines = resident_kib(w.p.pid), [], []
        for name, data in lies.items():
            had, began = len(w.text()), time.monotonic()
            answer = self.keyed(w, key, data)
            left = wait_until(lambda: self.is_free(w))  # whatever it has to say of that one it has said
            if answer is None or not left or w.p.poll() is not None:
                stayed.append((name, time.monotonic() - began))
            told = w.text()[had:].splitlines()
            if len(told) != 1:
                lines.append((name, told))
        t.check(f"{len(lies)} lies of somebody with the key end the connection", not stayed and w.p.poll() is None, f"{stayed} {w.text()[-800:]}")
        t.check("with one log line each", not lines, lines)
        served = self.serves(w)
        t.check("and others are served", served is True and resident_kib(w.p.pid) < before + self.more_kib + 49152, f"{served} {before} -> {resident_kib(w.p.pid)} KiB")
        t.check("and the worker ends well", w.end() == 0 and not re.search(cluster.TROUBLE, w.text()), w.text()[-1500:])

    def liars_to_one_without_a_copy(self):
        """A worker that fetches is told of another model when it loads one, and of models that nobody has."""
        t = self.t
        w = cluster.Worker(t, "cache:" + t.path("fetched"), t.socket(), "--ram", "1G", "--http", "127.0.0.1:0", key=False)
        between = t.path("fetching")
        tape = Recorder(socket.AF_UNIX, between, w.at.removeprefix("unix:"))
        r = t.score(t.model, ["--device", "cpu", "--workers", "unix:" + between, "--plain"])
        t.check("a worker without a copy serves", r == self.alone, str(r)[:500])
        sent = {kind: payload for kind, _, payload in reversed(frames_of(bytes(tape.sent)))}
        hello_, model, layers = (bytearray(sent[TYPE[k]]) for k in ("HELLO", "MODEL", "LOAD"))
        layers[28:32] = struct.pack("<I", struct.unpack_from("<I", layers, 28)[0] + 1)  # a longer queue: they are loaded anew
        another = bytes([model[0] ^ 1]) + model[1:]
        files = [struct.pack("<QQ", 7, 8) + text("big.gguf") + struct.pack("<I", n) + struct.pack("<QQ", size, 64) * n for n, size in ((1, 1 << 51), (32, 1 << 51), (1, (1 << 64) - 1), (0, 0))]
        before, bad = resident_kib(w.p.pid), []
        for name, data, says in [("another model while layers are loaded", frame("LOAD", layers, number=3) + frame("MODEL", another, number=4), "out of turn")] + [
                (f"files {i}", frame("MODEL", m, number=2), "a model with") for i, m in enumerate(files)]:
            wait_until(lambda: self.is_free(w))
            had = len(w.text())
            with socket.socket(socket.AF_UNIX) as s:
                s.connect(w.at.removeprefix("unix:"))
                s.sendall(frame("HELLO", hello_))
                if says == "out of turn":
                    s.sendall(frame("MODEL", model, number=2))
                    data_in = b""
                    s.settimeout(cluster.LONG)
                    while not any(kind == TYPE["OFFER"] for kind, _, _ in frames_of(data_in)):
                        data_in += s.recv(65536)
                s.sendall(data)
                closed = swallow(s, cluster.LONG)
            if not closed or says not in w.text()[had:]:
                bad.append((name, closed, w.text()[had:]))
        t.check("lies about models end the connection", not bad and w.p.poll() is None, bad)
        listed = sum(os.path.getsize(os.path.join(d, f)) for d, _, names in os.walk(t.path("fetched")) for f in names if f == "pieces")
        now = resident_kib(w.p.pid)
        t.check("and take neither memory nor disk", listed < 4096 and now < before + self.more_kib + 49152, f"{listed} {before} -> {now} KiB")
        wait_until(lambda: self.is_free(w))
        served = self.serves(w, key=False)
        t.check("and others are served", served is True, served)
        t.check("and the worker ends well", w.end() == 0 and not re.search(cluster.TROUBLE, w.text()), w.text()[-1500:])

    # ---- recorded sessions with lies in them; without encryption, so that they can be changed ----

    def changed(self, frames):
        """A stream of these frames, one of them changed, with the numbers and lengths that it needs to be looked into."""
        out, rng = [], self.rng
        at = rng.randrange(len(frames))
        for i, (kind, epoch, payload) in enumerate(frames):
            if i == at:
                way, data = rng.randrange(7), bytearray(payload)
                if way == 0 and data:
                    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
                elif way == 1 and len(data) >= 4:
                    k = rng.randrange(min(len(data) - 3, 200))
                    data[k:k + 4] = rng.choice([b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\x80", b"\x01\0\0\0"])
                elif way == 2:
                    del data[rng.randrange(len(data) + 1):]
                elif way == 3:
                    data += os.urandom(rng.randrange(1, 64))
                elif way == 4:
                    kind = rng.randrange(1, len(NAMES) + 1)
                elif way == 5:
                    out.append((kind, epoch, payload))
                else:
                    epoch ^= 1 << rng.randrange(32)
                payload = bytes(data)
            out.append((kind, epoch, payload))
        return [frame(kind, payload, number=i + 1, epoch=epoch) for i, (kind, epoch, payload) in enumerate(out)]

    def listen(self, s, ready, closed):
        """Sets ready when READY has come, closed when the worker has closed."""
        data = b""
        try:
            while part := s.recv(65536):
                data += part
                while len(data) >= HEAD.size and len(data) >= HEAD.size + HEAD.unpack_from(data)[6]:
                    if HEAD.unpack_from(data)[2] == TYPE["READY"]:
                        ready.set()
                    data = data[HEAD.size + HEAD.unpack_from(data)[6]:]
        except OSError:
            pass
        closed.set()

    def changed_sessions(self):
        t = self.t
        w = cluster.Worker(t, t.model, t.socket(), key=False)
        between = t.path("recorded")
        tape = Recorder(socket.AF_UNIX, between, w.at.removeprefix("unix:"))
        r = t.score(t.model, ["--device", "cpu", "--workers", "unix:" + between, "--plain"])
        t.check("a session without encryption is recorded", r == self.alone and len(tape.sent) > 10000, str(r)[:500])
        sent, received = frames_of(bytes(tape.sent)), frames_of(bytes(tape.received))
        before, stayed, served_before = resident_kib(w.p.pid), 0, self.n_serves
        for _ in range(self.n_lies):
            s = socket.socket(socket.AF_UNIX)
            s.connect(w.at.removeprefix("unix:"))
            ready, closed = threading.Event(), threading.Event()
            reading = threading.Thread(target=self.listen, args=(s, ready, closed), daemon=True)
            reading.start()
            try:
                frames = self.changed(sent)
                for data in frames:
                    # Hardly any comes before the layers are there: that alone would be the lie.
                    if HEAD.unpack_from(data)[2] == TYPE["CALL"] and self.rng.random() < 0.99:
                        while not ready.wait(0.01) and not closed.is_set():
                            pass
                    s.sendall(data)
                s.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            reading.join(cluster.LONG)
            stayed += reading.is_alive()
            s.close()
            if w.p.poll() is not None:
                break
        served = self.serves(w, key=False) if w.p.poll() is None else f"ended with {w.p.poll()}"
        until = time.monotonic() + cluster.LONG
        while served is not True and "another coordinator" in str(served) and time.monotonic() < until:
            served = self.serves(w, key=False)
        t.check(f"{self.n_lies} changed sessions: the worker lives and serves others", served is True and not stayed, f"{served} {stayed} {w.text()[-1500:]}")
        # That a session begins and ends is said of any; what else is said of one is one line.
        lines = sum(bool(re.search(r"^\S+ (?:warn|error) |is gone|was refused", line)) for line in w.text().splitlines())
        sessions = 1 + self.n_lies + self.n_serves - served_before
        t.check("and its log has a line of each at most, beside what it says of any session", lines <= sessions, f"{lines} of {sessions}: {w.text()[-3000:]}")
        if w.p.poll() is None:
            now = resident_kib(w.p.pid)
            t.check("and has not grown", now < before + self.more_kib, f"{before} -> {now} KiB")
        t.check("and ends well", w.end() == 0 and not re.search(cluster.TROUBLE, w.text()), w.text()[-1500:])
        self.never_reads(sent)
        self.lying_worker(received)

    # ---- who is alive, and does not do what it should ----

    def hangs_while_loading(self):
        """A worker that is to load its layers again hangs, with its heartbeats: another one that is lost meanwhile is loaded all the same."""
        t = self.t
        w, v = (cluster.Worker(t, t.model, t.socket(), key=False) for _ in range(2))
        impostor = Impostor(t.path("impostor"), w.at)
        server = cluster.Server(t, impostor, v, key=False, options=["--worker-wait", "1"])
        alone = server.complete("A river ", 24)
        impostor.hangs = True
        w.end(signal.SIGKILL)
        hung = wait_until(lambda: impostor.loads)
        v.end(signal.SIGKILL)
        v = cluster.Worker(t, t.model, v.at, key=False)
        back = wait_until(lambda: f"the worker at {v.at} is back" in server.text())
        t.check("a worker that hangs while it loads keeps nobody from the others", hung and back and impostor.loads == 1, f"{hung} {impostor.loads} {server.text()[-1500:]}")
        code, health = server.health()
        t.check("and /health names it", code == 503 and impostor.at in str(health), f"{code} {health}")
        w = cluster.Worker(t, t.model, w.at, key=False)
        impostor.hangs = False
        well = wait_until(lambda: server.health()[0] == 200)
        again = server.complete("A river ", 24)
        t.check("when it has gone and come back, answers are as before", well and again == alone, f"{again} {alone} {server.text()[-1500:]}")
        logs = server.text() + w.text() + v.text()
        t.check("and all end well", [server.end(), w.end(), v.end()] == [0, 0, 0] and not re.search(cluster.TROUBLE, logs), logs[-1500:])

    def ask_and_not_read(self, w, setup, calls):
        """Calls, each when the one before has been answered, and none of the answers is read, until the worker closes: how many."""
        told, number, n = len(w.text()), 0, 0

        def send(kind, epoch, payload):
            nonlocal number
            number += 1
            s.sendall(frame(kind, payload, number=number, epoch=epoch))

        def answered():
            m = w.metrics()
            return int(m["sluice_coordinator_sent_bytes"]) + int(m["sluice_coordinator_queued_bytes"])

        def open_yet():
            return "the connection ends" not in w.text()[told:] and "is gone" not in w.text()[told:] and time.monotonic() < until

        until = time.monotonic() + cluster.LONG
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(w.at.removeprefix("unix:"))
            try:
                for each in setup:
                    send(*each)
                wait_until(lambda: "serving " in w.text()[told:])
                while open_yet():
                    had, beat = answered(), time.monotonic()
                    send(*calls[n % len(calls)])
                    n += 1
                    while answered() < had + 300 and open_yet():  # an answer; heartbeats are 40 and 48 bytes
                        if time.monotonic() > beat + 2:
                            beat = time.monotonic()
                            send("HEARTBEAT", 0, bytes(8))
                        time.sleep(0.002)
            except OSError:
                pass  # it has closed
            swallow(s, 60)
        return n

    def never_reads(self, sent):
        """A coordinator that asks and takes no answer: the worker ends the connection when no more answers find room, and says so."""
        t = self.t
        w = cluster.Worker(t, t.model, t.socket(), "--http", "127.0.0.1:0", key=False)
        before, n = resident_kib(w.p.pid), []
        setup = [f for f in sent if f[0] in (TYPE["HELLO"], TYPE["LOAD"])]
        calls = [f for f in sent if f[0] == TYPE["CALL"]]
        # What comes too early is a lie of its own, and ends the connection with another word: then once more.
        while len(n) < 5 and not re.search(r"an answer of \d+ bytes cannot be sent to .*: the connection ends", w.text()):
            n.append(self.ask_and_not_read(w, setup, calls))
        t.check("a coordinator that reads no answers is left, and named", "the connection ends" in w.text() and w.p.poll() is None, f"{n} calls {w.text()[-1500:]}")
        served, until = self.serves(w, key=False), time.monotonic() + cluster.LONG
        while "another coordinator" in str(served) and time.monotonic() < until:
            served = self.serves(w, key=False)
        t.check("and the next one is served", served is True and resident_kib(w.p.pid) < before + self.more_kib + 49152, f"{served} {w.text()[-800:]}")
        t.check("and all ends well", w.end() == 0 and not re.search(cluster.TROUBLE, w.text()), w.text()[-1500:])

    def lying_worker(self, received):
        """A worker's recorded answers, one of them changed, to a coordinator that asks the same: it ends, and says why."""
        t, path = self.t, self.t.path("false-worker")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(4)
        streams = [b"".join(self.changed(received)) for _ in range(max(1, self.n_lies // 10))]

        def serve():
            for data in streams:
                s, _ = listener.accept()
                try:
                    s.sendall(data)
                    swallow(s, 60)
                except OSError:
                    pass
                s.close()

        threading.Thread(target=serve, daemon=True).start()
        bad = []
        for _ in streams:
            began = time.monotonic()
            r = t.score(t.model, ["--device", "cpu", "--workers", "unix:" + path, "--plain", "--worker-wait", "1"])
            # Rows that were changed within what rows may be cannot be told from others.
            if not isinstance(r, bytes) and ("sluice score: " not in r or len(r.strip().splitlines()) != 1 or re.search(cluster.TROUBLE, r)) or time.monotonic() - began > cluster.LONG:
                bad.append((str(r)[-600:], time.monotonic() - began))
        listener.close()
        t.check(f"{len(streams)} workers that lie: the coordinator ends with an error", not bad, bad[:3])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("sluice")
    p.add_argument("model")
    p.add_argument("--lies", type=int, default=100)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only", help="the name of one part, as in the source")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        t = cluster.Tests(os.path.abspath(a.sluice), os.path.abspath(a.model), folder)
        h = Hostile(t, a.lies, a.seed)
        for part in (h.strangers, h.strangers_take_the_descriptors, h.stolen_listener, h.liars_with_the_key, h.liars_to_one_without_a_copy, h.changed_sessions, h.hangs_while_loading):
            if a.only and part.__name__ != a.only:
                continue
            try:
                part()
            except (RuntimeError, subprocess.SubprocessError, OSError) as e:
                t.check(part.__name__, False, repr(e))
        print(f"1..{t.n}")
    return 1 if t.failed else 0


if __name__ == "__main__":
    sys.exit(main())
