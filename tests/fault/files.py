#!/usr/bin/env python3
"""What the program may write and what it must leave alone, and what it does where the system lets it write or open no
more. Runs the real binary. Prints TAP.

usage: files.py SLUICE"""
import http.client
import json
import os
import re
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time

PATIENCE_S = 120
WORDS = b"my own words\n"


def read(path):
    with open(path, "rb") as f:
        return f.read()


def write(path, content):
    with open(path, "wb") as f:
        f.write(content)


class Case:
    """A folder of a test's own."""

    def __init__(self, sluice, model):
        self.sluice, self.folder = sluice, tempfile.mkdtemp(prefix="sluice-test-")
        self.model = self.at("model.gguf")
        shutil.copy(model, self.model)

    def at(self, name):
        return os.path.join(self.folder, name)

    def file(self, name, content=WORDS):
        write(self.at(name), content)
        return self.at(name)

    def run(self, *words, limits=(), **more):
        def limit():
            for what, n in limits:
                resource.setrlimit(what, (n, n))
        return subprocess.run([self.sluice, *words], stdin=subprocess.DEVNULL, stdout=more.pop("stdout", subprocess.PIPE),
                              stderr=subprocess.PIPE, timeout=PATIENCE_S, preexec_fn=limit, check=False, **more)

    def answer(self, *options, **more):
        return self.run("run", "-m", self.model, "--device", "cpu", "-c", "256", "-q", "-n", "6", "--temp", "0", "-p", "a",
                        *options, **more)


class Server:
    """sluice serve on a free port, until `with` ends."""

    def __init__(self, case, *options, limits=()):
        def limit():
            for what, n in limits:
                resource.setrlimit(what, (n, n))
        self.log = tempfile.TemporaryFile("a+")
        self.child = subprocess.Popen([case.sluice, "serve", "-m", case.model, "--port", "0", "--device", "cpu", "-c", "512",
                                       *options], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.log,
                                      preexec_fn=limit)

    def said(self):
        return os.pread(self.log.fileno(), 1 << 24, 0).decode(errors="replace")

    def until(self, pattern):
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            m = re.search(pattern, self.said())
            if m:
                return m
            if self.child.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError(f"no {pattern} in:\n{self.said()}")

    def __enter__(self):
        self.port = int(self.until(r"listening on http://127.0.0.1:(\d+)").group(1))
        self.until("ready after")
        return self

    def __exit__(self, *_):
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        self.log.close()

    def ask(self, prompt, n=6):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        c.request("POST", "/v1/completions", json.dumps({"prompt": prompt, "max_tokens": n, "temperature": 0}),
                  {"Content-Type": "application/json"})
        r = c.getresponse()
        body = json.loads(r.read())
        c.close()
        assert r.status == 200, body
        return body

    def metric(self, name):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        c.request("GET", "/metrics")
        text = c.getresponse().read().decode()
        c.close()
        return float(re.search(rf"^{name} (\S+)$", text, re.M).group(1))

    def end(self):
        self.child.send_signal(signal.SIGTERM)
        return self.child.wait(PATIENCE_S)


STREAMED = ["--experts", "streamed"]


def expect_refused(r, target, path, before):
    assert r.returncode in (1, 2), (r.returncode, r.stderr)
    assert target.encode() in r.stderr or path.encode() in r.stderr, r.stderr
    assert read(path) == before, f"{path} was changed"


def foreign_files_stay(t):
    """Whatever names them."""
    victims = {"victim.gguf": read(t.model), "letter.txt": WORDS, "server.key": b"-----BEGIN PRIVATE KEY-----\n",
               "other.npy": b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (9, 9), }"}
    text = t.file("input", b"some text to score")
    for name, before in victims.items():
        path = t.file(name, before)
        link = t.at("link-to-" + name)
        os.symlink(path, link)
        hard = t.at("hard-" + name)
        os.link(path, hard)
        for target in (path, link, hard):
            for option in ("--trace", "--record-routes", "--heat-file"):
                r = t.answer(*STREAMED, option, target)
                expect_refused(r, target, path, before)
            r = t.run("score", "-m", t.model, "--device", "cpu", "--text", text, "--logprobs", target)
            expect_refused(r, target, path, before)
            r = t.run("tokenize", "-m", t.model, "--text", "a", "--ids-out", target)
            expect_refused(r, target, path, before)
            if name != "victim.gguf":  # which is synthetic
                r = t.run("synth", "-q", "--vocab", "300", "-o", target)
                expect_refused(r, target, path, before)
            assert os.path.islink(link) and os.stat(hard).st_ino == os.stat(path).st_ino


def parts_and_mirrors_stay(t):
    r = t.run("synth", "-q", "--vocab", "300", "--split", "2", "-o", t.at("m"))
    assert r.returncode == 0, r.stderr
    parts = [t.at(f"m-0000{i}-of-00002.gguf") for i in (1, 2)]
    os.mkdir(t.at("copy"))
    copies = [shutil.copy(p, t.at("copy")) for p in parts]
    before = [read(p) for p in parts]
    for target in parts + copies:
        for option in ("--trace", "--record-routes", "--heat-file"):
            r = t.run("run", "-m", parts[0], "--device", "cpu", "-q", "-n", "2", "-p", "a", *STREAMED, "--mirror",
                      t.at("copy"), option, target)
            assert r.returncode in (1, 2), r.stderr
    assert [read(p) for p in parts] == before and [read(p) for p in copies] == before


def ours_are_replaced(t):
    """A second run of the same command line works, and its output is whole."""
    text = t.file("input", b"some text to score")
    for _ in range(2):
        r = t.answer(*STREAMED, "--trace", t.at("trace.json"), "--record-routes", t.at("routes"), "--heat-file", t.at("heat"))
        assert r.returncode == 0, r.stderr
        json.loads(read(t.at("trace.json")))
        assert read(t.at("routes")).startswith(b"SLTRACE") and read(t.at("heat")).startswith(b"SLHEAT")
        r = t.run("score", "-m", t.model, "--device", "cpu", "--text", text, "--logprobs", t.at("l.npy"))
        assert r.returncode == 0, r.stderr
        head = read(t.at("l.npy"))
        assert head[:8] == b"\x93NUMPY\x01\x00" and (len(head) - 10 - int.from_bytes(head[8:10], "little")) % 1200 == 0
        for words in ("abc", "a"):
            r = t.run("tokenize", "-m", t.model, "--text", words, "--ids-out", t.at("ids"))
            assert r.returncode == 0, r.stderr
        r = t.run("synth", "-q", "--vocab", "300", "--split", "2", "-o", t.at("s"))
        assert r.returncode == 0, r.stderr
    assert not [n for n in os.listdir(t.folder) if ".sluice-" in n or n.endswith(".tmp")]


def pipes_and_devices(t):
    """Are written to as they are, and not replaced."""
    ours, theirs = os.pipe()
    r = t.answer("--trace", f"/dev/fd/{theirs}", pass_fds=[theirs])
    os.close(theirs)
    assert r.returncode == 0, r.stderr
    with open(ours, "rb") as f:
        json.loads(f.read())  # some 20 KB: the pipe holds it all
    before = os.stat("/dev/null")
    for option in ("--trace", "--record-routes"):
        r = t.answer(option, "/dev/null")
        assert r.returncode == 0, r.stderr
    # A write that fails does not cost the device's name.
    full = t.at("full")
    os.symlink("/dev/full", full)
    r = t.run("score", "-m", t.model, "--device", "cpu", "--text", t.file("input", b"text"), "--logprobs", full)
    assert r.returncode == 1 and b"No space left" in r.stderr, r.stderr
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode) and os.stat("/dev/null").st_ino == before.st_ino
    assert os.path.islink(full) and stat.S_ISCHR(os.stat("/dev/full").st_mode)
    os.mkfifo(t.at("fifo"))
    r = t.answer("--trace", t.at("fifo"))
    assert r.returncode == 1 and b"nobody reads" in r.stderr, r.stderr
    r = t.answer(*STREAMED, "--heat-file", t.at("fifo"))
    assert r.returncode == 1 and b"not a regular file" in r.stderr, r.stderr
    r = t.answer(*STREAMED, "--heat-file", "/dev/null")
    assert r.returncode == 1 and b"not a regular file" in r.stderr, r.stderr


def standard_output_that_is_full(t):
    with open("/dev/full", "wb") as full:
        for words in (["plan", "-m", t.model, "--device", "cpu", "--ram-bandwidth", "1", "--disk-bandwidth", "1"],
                      ["inspect", t.model], ["inspect", "--json", t.model],
                      ["score", "-m", t.model, "--device", "cpu", "--json", "--text", t.file("input", b"text")],
                      ["tokenize", "-m", t.model, "--text", "a"], ["--version"], ["help"]):
            r = t.run(*words, stdout=full)
            assert r.returncode == 1 and b"No space left" in r.stderr, (words, r.returncode, r.stderr)


def a_limit_on_file_sizes(t):
    """Ends nothing: what cannot be written is missing, and said."""
    limits = [(resource.RLIMIT_FSIZE, 100)]
    plain = t.answer(*STREAMED)
    r = t.answer(*STREAMED, "--trace", t.at("trace"), limits=limits)
    assert r.returncode == 1 and b"File too large" in r.stderr, (r.returncode, r.stderr)
    r = t.answer(*STREAMED, "--record-routes", t.at("routes"), "--heat-file", t.at("heat"), limits=limits)
    assert r.returncode == 0 and r.stdout == plain.stdout, (r.returncode, r.stderr)
    assert b"recording of routes ends" in r.stderr or b"recorded routes are not complete" in r.stderr, r.stderr
    assert len(read(t.at("routes"))) == 32 + 5 * 12  # a header and whole records, of two experts each
    assert b"the heat file cannot be written" in r.stderr and not os.path.exists(t.at("heat")), r.stderr
    assert not [n for n in os.listdir(t.folder) if ".sluice-" in n]
    r = t.run("score", "-m", t.model, "--device", "cpu", "--text", t.file("input", b"text"), "--logprobs", t.at("l.npy"),
              limits=limits)
    assert r.returncode == 1 and b"File too large" in r.stderr and not os.path.exists(t.at("l.npy")), r.stderr
    r = t.run("tokenize", "-m", t.model, "--text", "a" * 200, "--ids-out", t.at("ids"), limits=limits)
    assert r.returncode == 1 and b"File too large" in r.stderr and not os.path.exists(t.at("ids")), r.stderr
    r = t.run("synth", "-q", "--vocab", "300", "-o", t.at("s.gguf"), limits=limits)
    assert r.returncode == 1 and b"File too large" in r.stderr and not os.path.exists(t.at("s.gguf")), r.stderr


def a_server_with_a_limit_on_file_sizes(t):
    """Answers, with a trace that ends and a cache that cannot be written."""
    with Server(t, *STREAMED, "--heat-file", t.at("heat"), "--cache-dir", t.at("cache"), "--trace", t.at("trace"),
                limits=[(resource.RLIMIT_FSIZE, 3000)]) as s:
        first = s.ask("words and words " * 10)
        s.until("cannot be written to: File too large")
        assert s.ask("words and words " * 10)["choices"] == first["choices"]
        assert s.end() == 0, s.said()
        assert "the trace ends here" in s.said(), s.said()
    json.loads(read(t.at("trace")))
    assert sorted(os.listdir(t.at("cache"))) == ["key", "lock"]


def cache_folders_of_others(t):
    os.mkdir(t.at("home"))
    for name in ("notes.txt", "draft.tmp", "key"):
        path = t.file(os.path.join("home", name))
        for command in (["serve", "--port", "0"], ["plan"]):
            r = t.run(*command, "-m", t.model, "--device", "cpu", "--cache-dir", t.at("home"))
            assert r.returncode == 1 and b"not a prefix cache" in r.stderr, (command, r.stderr)
            assert os.listdir(t.at("home")) == [name] and read(path) == WORDS
        os.unlink(path)


def few_descriptors(t):
    """Connections wait before the server's own work lacks a descriptor; blocks stay."""
    options = ["--heat-file", t.at("heat"), "--cache-dir", t.at("cache"), *STREAMED]
    prompt = "words and words " * 20
    with Server(t, *options) as s:
        s.ask(prompt)
        end = time.monotonic() + PATIENCE_S
        while s.metric("sluice_prefix_disk_blocks") < 3 and time.monotonic() < end:
            time.sleep(0.1)
        assert s.end() == 0
    before = {n: os.stat(os.path.join(t.at("cache"), n)).st_ino for n in os.listdir(t.at("cache"))}
    assert len(before) >= 5, before
    held = []
    with Server(t, *options, limits=[(resource.RLIMIT_NOFILE, 128)]) as s:
        most = int(s.until(r"at most (\d+) connections at once").group(1))
        assert 4 <= most < 64, most
        for _ in range(200):
            c = socket.socket()
            c.setblocking(False)
            c.connect_ex(("127.0.0.1", s.port))
            held.append(c)
        path = f"/proc/{s.child.pid}/fd"
        end = time.monotonic() + PATIENCE_S
        while len(os.listdir(path)) < most and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(0.5)
        assert len(os.listdir(path)) <= 128 - 32, len(os.listdir(path))
        for c in held[8:]:
            c.close()
        again = s.ask(prompt)
        assert again["usage"]["prompt_tokens_details"]["cached_tokens"] >= 128, again
        assert s.metric("sluice_prefix_disk_bad_total") == 0
        for c in held:
            c.close()
        assert s.end() == 0, s.said()
        assert "Too many open files" not in s.said(), s.said()
    now = {n: os.stat(os.path.join(t.at("cache"), n)).st_ino for n in os.listdir(t.at("cache"))}
    assert all(now.get(n) == i for n, i in before.items()), (before, now)
    r = t.run("serve", "-m", t.model, "--device", "cpu", "--port", "0", limits=[(resource.RLIMIT_NOFILE, 40)])
    assert r.returncode == 1 and b"raise the limit" in r.stderr, (r.returncode, r.stderr)


def a_draft_layer_that_lacks_a_tensor(t):
    """The rest of the file is whole: --draft auto serves without drafts and says so, --draft 1 is refused."""
    subprocess.run([t.sluice, "synth", "-q", "--arch", "glm4moe", "--layers", "3", "--vocab", "300", "--nextn", "1", "-o", t.model], check=True)
    data = read(t.model)
    assert data.count(b"blk.3.nextn.eh_proj.weight") == 1
    write(t.model, data.replace(b"blk.3.nextn.eh_proj.weight", b"blk.3.nextn.eh_proj.height"))
    without = t.answer()
    r = t.answer("--draft", "auto")
    assert r.returncode == 0 and r.stdout == without.stdout and r.stdout, (r.returncode, r.stdout, r.stderr)
    r = t.run("bench", "-v", "-m", t.model, "--device", "cpu", "-p", "4", "-n", "2", "-r", "1", "--draft", "auto")
    assert r.returncode == 0 and b"no tokens are drafted" in r.stderr, (r.returncode, r.stderr)
    r = t.answer("--draft", "1")
    assert r.returncode == 1 and b"nextn.eh_proj" in r.stderr and b"leave --draft out" in r.stderr, (r.returncode, r.stderr)


def main():
    sluice = os.path.abspath(sys.argv[1])
    tests = [foreign_files_stay, parts_and_mirrors_stay, ours_are_replaced, pipes_and_devices, standard_output_that_is_full,
             a_limit_on_file_sizes, a_server_with_a_limit_on_file_sizes, cache_folders_of_others, few_descriptors,
             a_draft_layer_that_lacks_a_tensor]
    chosen = [t for t in tests if len(sys.argv) < 3 or t.__name__ in sys.argv[2:]]
    failed = 0
    with tempfile.TemporaryDirectory(prefix="sluice-test-") as folder:
        model = os.path.join(folder, "model.gguf")
        subprocess.run([sluice, "synth", "-q", "--vocab", "300", "-o", model], check=True)
        for n, test in enumerate(chosen, 1):
            t = Case(sluice, model)
            try:
                test(t)
                print(f"ok {n} - {test.__name__}", flush=True)
            except Exception as e:  # whatever went wrong, the others are still of interest
                failed += 1
                print(f"not ok {n} - {test.__name__}", flush=True)
                print("# " + f"{type(e).__name__}: {e}".replace("\n", "\n# "), flush=True)
                if os.environ.get("TRACEBACK"):
                    import traceback
                    traceback.print_exc()
            finally:
                shutil.rmtree(t.folder, ignore_errors=True)
    print(f"1..{len(chosen)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
