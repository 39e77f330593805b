#!/usr/bin/env python3
"""`sluice pull` and -m hf:... against a server that cuts, lies and redirects. Runs the real binary. Prints TAP.

usage: pull.py SLUICE [TEST ...]"""
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from repository import Repository  # noqa: E402

PATIENCE_S = 300
DEMO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "demo", "demo.gguf")
DATA = random.Random(7).randbytes(5 * 1024 * 1024 + 4321)
SMALL = DATA[:70001]
NAME = "M-Q4_K_M.gguf"


class Case:
    def __init__(self, sluice, folder):
        self.sluice, self.folder, self.out = sluice, folder, os.path.join(folder, "out")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("SLUICE_", "HF_")) and not k.lower().endswith("_proxy")}
        self.env.update(HOME=folder, XDG_CACHE_HOME=os.path.join(folder, "cache"))

    def words(self, r, source, *more):
        return [self.sluice, "pull", source, "--dir", self.out, "--endpoint", r.url, *more]

    def run(self, words, limits=(), **env):
        def limit():
            for what, n in limits:
                resource.setrlimit(what, (n, n))
        return subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=PATIENCE_S, env={**self.env, **env}, preexec_fn=limit, check=False)

    def pull(self, r, source, *more, limits=(), **env):
        return self.run(self.words(r, source, *more), limits, **env)

    def at(self, name):
        return os.path.join(self.out, name)

    def has(self, name, data):
        with open(self.at(name), "rb") as f:
            assert f.read() == data, f"{name} has other bytes"
        assert not [n for n in os.listdir(self.out) if ".part" in n or n.endswith(".new")], os.listdir(self.out)
        with open(self.at(name + ".sha256"), encoding="ascii") as f:
            assert f.read() == f"{hashlib.sha256(data).hexdigest()}  {name}\n"


def good(p):
    assert p.returncode == 0, (p.returncode, p.stderr)
    return p.stdout.strip()


def bad(p, *words, rc=1):
    assert p.returncode == rc, (p.returncode, p.stdout, p.stderr)
    for w in words:
        assert w in p.stderr, (w, p.stderr)


def a_file_in_parts_at_once(t):
    with Repository({NAME: DATA, "mmproj-Q4_K_M.gguf": SMALL}) as r:
        assert good(t.pull(r, "own/model")) == t.at(NAME)
        t.has(NAME, DATA)
        ranges = [q[1] for q in r.requests if q[1]]
        assert len(ranges) == 4 and len(set(ranges)) == 4, r.requests
        # Again: nothing is fetched.
        n = len(r.requests)
        p = t.pull(r, "hf:own/model:Q4_K_M")
        assert good(p) == t.at(NAME) and len(r.requests) == n + 1 and "is here" in p.stderr, p.stderr
        # As one connection.
        os.unlink(t.at(NAME))
        good(t.pull(r, f"own/model:{NAME}", "--connections", "1"))
        t.has(NAME, DATA)


def fifty_cuts(t):
    for connections in ("1", "4"):
        with Repository({NAME: DATA}) as r:
            r.cuts = 50
            good(t.pull(r, "own/model", "--connections", connections))
            assert r.cuts == 0, r.cuts
        t.has(NAME, DATA)
        shutil.rmtree(t.out)


def killed_and_interrupted(t):
    """What is there after SIGINT is not fetched again; after SIGKILL the answer is right all the same."""
    for how, rc in ((signal.SIGINT, 130), (signal.SIGKILL, -9)):
        with Repository({NAME: DATA}) as r:
            r.hold = threading.Event()
            child = subprocess.Popen(t.words(r, "own/model", "--connections", "2"), env=t.env, stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL)
            assert r.half.wait(PATIENCE_S)
            while how == signal.SIGINT and not sent_half(t):
                assert child.poll() is None
            child.send_signal(how)
            assert child.wait(PATIENCE_S) == rc, child.returncode
            assert not os.path.exists(t.at(NAME)) and os.path.exists(t.at(NAME + ".part"))
            r.hold.set()
            r.hold = None
            n = len(r.requests)
            good(t.pull(r, "own/model"))
            t.has(NAME, DATA)
            if how == signal.SIGINT:
                fetched = sum(int(b) - int(a) + 1 for a, b in (q[1][6:].split("-") for q in r.requests[n:] if q[1]))
                assert fetched < len(DATA), (fetched, r.requests[n:])
        shutil.rmtree(t.out)


def sent_half(t):
    """Bytes other than zeros in the middle of what the first connection gets first."""
    try:
        with open(t.at(NAME + ".part"), "rb") as f:
            f.seek(600000)
            return f.read(1000) == DATA[600000:601000]
    except OSError:
        return False


def another_version(t):
    """What is left of one version of a file is not joined to the next; nor does a version change in between."""
    with Repository({NAME: DATA}) as r:
        r.hold = threading.Event()
        child = subprocess.Popen(t.words(r, "own/model"), env=t.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not sent_half(t):
            assert child.poll() is None
        child.send_signal(signal.SIGINT)
        child.wait(PATIENCE_S)
        r.hold.set()
        r.hold = None
        r.files[NAME] = bytes(reversed(DATA))
        good(t.pull(r, "own/model"))
        t.has(NAME, r.files[NAME])
        # A newer one replaces what was pulled, and only that.
        r.files[NAME] = DATA
        good(t.pull(r, "own/model"))
        t.has(NAME, DATA)
        os.unlink(t.at(NAME + ".sha256"))
        with open(t.at(NAME), "wb") as f:
            f.write(b"mine")
        bad(t.pull(r, "own/model"), NAME, "different file")
        with open(t.at(NAME), "rb") as f:
            assert f.read() == b"mine"


def wrong_sums_and_lengths(t):
    with Repository({NAME: DATA}) as r:
        r.sums[NAME] = "0" * 64
        bad(t.pull(r, "own/model"), "SHA-256", "0" * 64)
        assert os.listdir(t.out) == [], os.listdir(t.out)
        r.sums = {}
        r.total[NAME] = len(DATA) + 5
        bad(t.pull(r, "own/model"), "different file")
        assert os.listdir(t.out) == [], os.listdir(t.out)
        r.total = {}
        # Shorter than the list says: 416, or a range that is cut.
        r.files[NAME] = DATA[:1000]
        whole = Repository({NAME: DATA})
        with whole:
            r.listing = whole.list()
        bad(t.pull(r, "own/model"))
        assert not os.path.exists(t.at(NAME))
        r.listing = None
        r.files[NAME] = DATA
        good(t.pull(r, "own/model", "--checksum", hashlib.sha256(DATA).hexdigest().upper()))
        t.has(NAME, DATA)
        bad(t.pull(r, "own/model", "--checksum", "1" * 64, "--dir", t.at("b")), "SHA-256")


def servers_without_ranges(t):
    with Repository({NAME: DATA}) as r:
        r.ranges = False
        good(t.pull(r, "own/model"))
        t.has(NAME, DATA)
        shutil.rmtree(t.out)
        r.cuts = 3
        good(t.pull(r, f"{r.url}/{NAME}"))
        t.has(NAME, DATA)
        shutil.rmtree(t.out)
        r.cuts = 1000  # it gives up, although bytes come every time
        bad(t.pull(r, f"{r.url}/{NAME}", "--retries", "2"))


def redirects(t):
    with Repository({NAME: SMALL}) as other, Repository({NAME: SMALL}) as r:
        r.redirect = other.url
        good(t.pull(r, "own/model", SLUICE_HF_TOKEN="hf_secret"))
        t.has(NAME, SMALL)
        assert all(q[2] == "Bearer hf_secret" for q in r.requests), r.requests
        assert other.requests and all(q[2] is None for q in other.requests), other.requests
        # Round and round, and out of HTTP.
        for target in (r.url, "file:///etc/passwd?"):
            r.redirect = target
            bad(t.pull(r, "own/model", "--dir", t.at("b")))
            assert [n for n in os.listdir(t.at("b")) if n.endswith(".gguf")] == []
        assert len([q for q in r.requests if q[0].endswith(NAME)]) < 40


def tokens(t):
    with Repository({NAME: SMALL}) as r:
        secret = os.path.join(t.folder, "token")
        with open(secret, "w", encoding="ascii") as f:
            f.write("hf_file\n")
        good(t.pull(r, "own/model", "--token-file", secret, HF_TOKEN="hf_env"))
        assert {q[2] for q in r.requests} == {"Bearer hf_file"}, r.requests
        r.requests.clear()
        good(t.pull(r, f"{r.url}/{NAME}", SLUICE_HF_TOKEN="hf_env"))  # no repository: not its business
        assert {q[2] for q in r.requests} == {None}, r.requests
        bad(t.pull(r, "own/model", SLUICE_HF_TOKEN="two words"), "SLUICE_HF_TOKEN")
        bad(t.pull(r, "own/model", "--token-file", t.at("none")), "none")
        bad(t.run([t.sluice, "pull", "own/model", "--dir", t.out, "--endpoint", "http://mirror.invalid"], SLUICE_HF_TOKEN="x"), "over https")
        r.statuses = [401]
        bad(t.pull(r, "own/model"), "401", "--token-file")
        bad(t.pull(r, "own/none"), "404")


def a_server_that_is_busy(t):
    with Repository({NAME: SMALL}) as r:
        r.statuses = [503, 429, 500, 502]
        good(t.pull(r, "own/model"))
        t.has(NAME, SMALL)
        r.statuses = [503] * 9
        bad(t.pull(r, "own/model", "--retries", "1", "--dir", t.at("b")), "503")
    bad(t.pull(r, "own/model", "--retries", "0"), "onnect")


def names_and_parts(t):
    parts = {f"UD/M-Q8_0-0000{i}-of-00003.gguf": DATA[i * 1000:i * 2000 + 9] for i in (1, 2, 3)}
    with Repository({NAME: SMALL, "M-Q5_K_M.gguf": SMALL, "M-IQ4_XS.gguf": SMALL[:50], "x.imatrix.gguf": SMALL, **parts}) as r:
        assert good(t.pull(r, "own/model:q8_0")) == t.at("M-Q8_0-00001-of-00003.gguf")
        for path, data in parts.items():
            t.has(os.path.basename(path), data)
        good(t.pull(r, "own/model:UD/M-Q8_0-00002-of-00003.gguf"))
        bad(t.pull(r, "own/model:Q4_XS"), "no 'Q4_XS'", NAME)
        bad(t.pull(r, "own/model:M"), "names", NAME)
        good(t.pull(r, "own/model"))
        t.has(NAME, SMALL)
        shutil.rmtree(t.out)
        assert good(t.pull(r, f"{r.url}/UD/M-Q8_0-00003-of-00003.gguf?a=b#c")) == t.at("M-Q8_0-00001-of-00003.gguf")
        for path, data in parts.items():
            t.has(os.path.basename(path), data)
        del r.files["UD/M-Q8_0-00002-of-00003.gguf"]
        bad(t.pull(r, "own/model:Q8_0"), "part 2 of 3 is missing")
        del r.files[NAME]
        bad(t.pull(r, "own/model"), "add ':'", "M-Q5_K_M.gguf")
    for source in ("own", "own/../x", "own/model:", "own/model:../x.gguf", "own/model:.x", "../x/y", "http://h", "http://u:p@h/x.gguf", "http://h/",
                   "http://h/%2e%2e", "http://h/a%2fb.gguf", "http://h/a%00b.gguf", "ftp://h/x.gguf", "-/x"):
        bad(t.run([t.sluice, "pull", "--dir", t.out, "--", source]), rc=2)


def lists_that_are_none(t):
    def entry(**f):
        return json.dumps({"siblings": [{"rfilename": NAME, "size": 5, **f}]}).encode()
    with Repository({NAME: SMALL}) as r:
        for listing in (b"", b"[]", b"{", b'{"siblings": 3}', b'{"sha": "../x", "siblings": []}', b'{"siblings": []}', b"[" * 100000, b"\xff", entry(size=-5),
                        entry(size=1 << 60), entry(size="5"), entry(lfs={"sha256": "abc"}), b'{"siblings": [' + b"{}," * 20000 + b"{}]}", b" " * (17 << 20)):
            r.listing = listing
            bad(t.pull(r, "own/model", "--retries", "0"), "sluice pull: ")
            assert os.listdir(t.out) == [], (listing[:60], os.listdir(t.out))


def a_disk_that_is_full(t):
    with Repository({NAME: DATA}) as r:
        bad(t.pull(r, "own/model", limits=[(resource.RLIMIT_FSIZE, 1 << 20)]), "File too large", "make room")
        assert not os.path.exists(t.at(NAME))
        good(t.pull(r, "own/model"))
        t.has(NAME, DATA)
        shutil.rmtree(t.out)
        # Where root can mount one: a disk of 2 MiB.
        os.mkdir(t.out)
        mount = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=2m none "$0" 2>/dev/null || exit 77; exec "$@"', t.out]
        p = t.run([*mount, *t.words(r, "own/model")])
        if p.returncode == 1 and "unshare" not in p.stderr:
            bad(p, "No space left", "make room")
        else:
            print(f"# no disk could be made: {p.returncode}")


def two_at_once(t):
    with Repository({NAME: DATA}) as r:
        r.hold = threading.Event()
        child = subprocess.Popen(t.words(r, "own/model"), env=t.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert r.half.wait(PATIENCE_S)
        bad(t.pull(r, "own/model"), "another process")
        r.hold.set()
        assert child.wait(PATIENCE_S) == 0
        t.has(NAME, DATA)


def foreign_files_stay(t):
    with Repository({NAME: SMALL}) as r:
        os.mkdir(t.out)
        for end, rc in ((".part", 1), (".part.state", 1), ("", 1), (".sha256", 0)):
            with open(t.at(NAME + end), "wb") as f:
                f.write(b"words of mine")
            assert t.pull(r, "own/model").returncode == rc, end
            with open(t.at(NAME + end), "rb") as f:
                assert f.read() == b"words of mine", end
            os.unlink(t.at(NAME + end))
        with open(t.at(NAME), "rb") as f:
            assert f.read() == SMALL
        os.symlink(t.at("victim"), t.at(NAME + ".part"))
        os.unlink(t.at(NAME))
        bad(t.pull(r, "own/model"))
        assert not os.path.exists(t.at("victim"))


def lines_of_json(t):
    with Repository({NAME: SMALL}) as r:
        lines = [json.loads(line) for line in good(t.pull(r, "own/model", "--json")).split("\n")]
        assert [x["event"] for x in lines if x["event"] not in ("moves", "checks")] == ["begins", "done", "model"], lines
        done = lines[-2]
        assert done["sha256"] == hashlib.sha256(SMALL).hexdigest() and done["checked"] is True and done["size_bytes"] == len(SMALL), done
        assert lines[-1]["path"] == t.at(NAME)
        r.lfs = False
        r.etag = '"x"'
        p = t.pull(r, f"{r.url}/{NAME}", "--dir", t.at("b"))
        good(p)
        assert "no sum" in p.stderr, p.stderr


def models_by_source(t):
    """-m hf:..."""
    with open(DEMO, "rb") as f:
        demo = f.read()
    with Repository({"demo-Q8_0.gguf": demo}) as r:
        words = [t.sluice, "tokenize", "-m", "hf:own/model", "--text", "a"]
        want = good(t.run([t.sluice, "tokenize", "-m", DEMO, "--text", "a"]))
        assert good(t.run(words, SLUICE_HF_ENDPOINT=r.url + "/")) == want
        path = os.path.join(t.folder, "cache", "sluice", "models", "own", "model", "demo-Q8_0.gguf")
        assert stat.S_ISREG(os.stat(path).st_mode)
        n = len(r.requests)
        assert good(t.run(words, SLUICE_HF_ENDPOINT=r.url)) == want and len(r.requests) == n
        assert good(t.run([*words[:3], "hf:own/model:Q8_0", *words[4:]], SLUICE_HF_ENDPOINT="http://127.0.0.1:9")) == want
        bad(t.run([*words[:3], "hf:own/model:Q2_K", *words[4:]], SLUICE_HF_ENDPOINT=r.url), "there is no 'Q2_K'")
        bad(t.run([*words[:3], "hf:own", *words[4:]]), "--model is 'hf:own'", rc=2)


def main():
    tests = [a_file_in_parts_at_once, fifty_cuts, killed_and_interrupted, another_version, wrong_sums_and_lengths, servers_without_ranges,
             redirects, tokens, a_server_that_is_busy, names_and_parts, lists_that_are_none, a_disk_that_is_full, two_at_once, foreign_files_stay, lines_of_json,
             models_by_source]
    sluice = os.path.abspath(sys.argv[1])
    chosen = [t for t in tests if len(sys.argv) < 3 or t.__name__ in sys.argv[2:]]
    failed = 0
    for n, test in enumerate(chosen, 1):
        with tempfile.TemporaryDirectory(prefix="sluice-test-") as folder:
            try:
                test(Case(sluice, folder))
                print(f"ok {n} - {test.__name__}", flush=True)
            except Exception as e:  # whatever went wrong, the others are still of interest
                failed += 1
                print(f"not ok {n} - {test.__name__}", flush=True)
                print("# " + f"{type(e).__name__}: {e}".replace("\n", "\n# "), flush=True)
                if os.environ.get("TRACEBACK"):
                    import traceback
                    traceback.print_exc()
    print(f"1..{len(chosen)}")
    return 1 if failed else 0


sys.exit(main())
