#!/usr/bin/env python3
"""llama.cpp's server tests against this server: its own test files, unchanged, with the programs and options translated.

usage: server_tests.py BINARY LLAMA_CPP [pytest's arguments]
  LLAMA_CPP is a source tree of llama.cpp: after `make peer`, `git -C build/peer/src checkout HEAD -- tools/server/tests` puts
  its tests into build/peer/src. SLUICE_TEST_MODEL names the model (default: a synthetic one).

Development only. Needs Debian's python3-pytest and python3-requests (scripts/install_deps.sh peer), so run it with
/usr/bin/python3 if another python3 comes first. The tests were written for other models: what a model says is not compared
(match_regex), and tests that load models of their own are skipped. The official Python client is replaced by one of a few
lines where it is not installed. docs/API.md lists what does not pass, and why: those tests are expected to fail. Any other
failure, a listed test that passes, and a count other than the document's make the run fail.
"""
import os
import re
import shlex
import subprocess
import sys
import tempfile
import types

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
FLAGS = {"--ctx-size": "--ctx", "--parallel": "--parallel", "--batch-size": "--batch", "--alias": "--alias", "--api-key": "--api-key",
         "--port": "--port", "--host": "--host", "--threads": "--threads"}
MODELS_OF_THEIR_OWN = ("--model-draft", "--mmproj-url", "--lora", "--models-dir", "--models-preset", "--chat-template",
                       "--chat-template-file", "--reranking")
# Programs, settings and endpoints that this server does not have: whole files of tests.
NOT_HERE = {"test_mcp_servers.py", "test_router.py", "test_proxy.py", "test_lora.py", "test_rerank.py", "test_slot_save.py",
            "test_sleep.py", "test_speculative.py", "test_tools_builtin.py", "test_vision_api.py", "test_compat_gcp.py",
            "test_ctx_shift.py", "test_kv_keep_only_active.py", "test_stream.py"}


SECTION = "### llama.cpp's server tests"


def expected(text):
    """What docs/API.md says: [(file, test, reason)] of the tests that do not pass, how many there are, how many pass. A test is
    named in full, with or without its parameters, or by its beginning and a *."""
    section = text.partition(SECTION)[2].partition("\n## ")[0]
    rows = []
    for tests, reason in re.findall(r"^\| (.*`.*) \| (.*) \|$", section, re.M):
        file = None
        for name in re.findall(r"`([^`]+)`", tests):
            if name.endswith(".py"):
                file = name
            else:
                rows.append((file, name, reason))
    counts = re.search(r"of\s+(\d+)\s+tests\b.*?\b(\d+)\s+pass\b", section, re.S)
    return rows, int(counts[1]), int(counts[2])


def is_named(row, file, test):
    name = row[1]
    return row[0] == file and (test == name or test.startswith(name + "[") or (name.endswith("*") and test.startswith(name[:-1])))


def translate(words):
    """llama-server's command line as this program's; exits with 64 for what needs a model of its own."""
    given, out = {}, []
    it = iter(words)
    for word in it:
        if word in MODELS_OF_THEIR_OWN:
            sys.exit(64)
        if word.startswith("--") and word in FLAGS:
            given[word] = next(it)
    ctx, parallel = int(given.get("--ctx-size", 0)), int(given.get("--parallel", 1))
    if ctx:
        given["--ctx-size"] = str(ctx if "--kv-unified" in words else max(ctx // parallel, 32))
    for name, value in given.items():
        for one in value.split(",") if name == "--host" else [value]:
            out += [FLAGS[name], one]
    return out


class Shown(dict):
    """A JSON object as the official client shows it: members as attributes, absent ones as None."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self.get(name)


def shown(v):
    if isinstance(v, dict):
        if v.get("object") == "response":  # which the client puts together
            parts = [p for o in v["output"] for p in o.get("content") or [] if p["type"] == "output_text"]
            v = {**v, "output_text": "".join(p["text"] for p in parts)}
        return Shown({k: shown(x) for k, x in v.items()})
    return [shown(x) for x in v] if isinstance(v, list) else v


def openai_module():
    """As much of the official Python client as the tests use."""
    import json
    import requests

    class Client:
        def __init__(self, api_key=None, base_url="", **_):
            self.base, self.key = base_url.rstrip("/"), api_key
            of = lambda path: types.SimpleNamespace(create=lambda **body: self.post(path, body))
            self.completions, self.embeddings, self.responses = of("/completions"), of("/embeddings"), of("/responses")
            self.chat = types.SimpleNamespace(completions=of("/chat/completions"))
            self.models = types.SimpleNamespace(list=lambda: shown(requests.get(self.base + "/models", timeout=60).json()))

        def post(self, path, body):
            body = {**body, **body.pop("extra_body", {})}
            r = requests.post(self.base + path, json=body, stream=bool(body.get("stream")), timeout=600,
                              headers={"Authorization": f"Bearer {self.key}"} if self.key else {})
            if r.status_code != 200:
                raise RuntimeError(f"Error code: {r.status_code} - {r.text}")
            return self.events(r) if body.get("stream") else shown(r.json())

        @staticmethod
        def events(r):
            for line in r.iter_lines():
                if line.startswith(b"data: ") and line != b"data: [DONE]":
                    yield shown(json.loads(line[6:]))

    module = types.ModuleType("openai")
    module.OpenAI = Client
    return module


def stand_ins():
    """Modules that the tests import and that need not be installed."""
    for name, members in {"wget": {}, "filelock": {"FileLock": None}}.items():
        try:
            __import__(name)
        except ImportError:
            sys.modules[name] = types.ModuleType(name)
            for member, value in members.items():
                setattr(sys.modules[name], member, value)
    try:
        __import__("openai")
    except ImportError:
        sys.modules["openai"] = openai_module()


class Plugin:
    def __init__(self, rows, whole, n_all, n_pass):
        self.rows, self.whole, self.counts = rows, whole, (n_all, n_pass)
        self.passed, self.failed, self.seen = set(), set(), {}

    def pytest_collection_modifyitems(self, config, items):
        import pytest
        kept = [i for i in items if os.path.basename(str(i.fspath)) not in NOT_HERE]
        config.hook.pytest_deselected(items=[i for i in items if i not in kept])
        items[:] = kept
        slow = pytest.mark.skip(reason="loads a model of its own")
        for i in items:
            if i.get_closest_marker("slow"):
                i.add_marker(slow)
            for n, row in enumerate(self.rows):
                if is_named(row, os.path.basename(str(i.fspath)), i.name):
                    i.add_marker(pytest.mark.xfail(reason=row[2], strict=False))
                    self.seen.setdefault(n, set()).add(i.nodeid)

    def pytest_runtest_logreport(self, report):
        if report.outcome == "passed":
            if report.when == "call":
                self.passed.add(report.nodeid)
        elif report.outcome == "failed" or hasattr(report, "wasxfail"):
            self.failed.add(report.nodeid)

    def faults(self):
        """What docs/API.md says that was not so."""
        out = [f"{self.rows[n][0]}: {self.rows[n][1]} passes, but is listed" for n in range(len(self.rows)) if not self.seen.get(n, set()) & self.failed]
        counts = len(self.passed | self.failed), len(self.passed - self.failed)
        out += [] if counts == self.counts else ["of {} tests {} passed, but {} and {} are told".format(*counts, *self.counts)]
        return out if self.whole else []

    def pytest_runtest_makereport(self, item, call):
        """A server that needs a model of its own was not started: skipped."""
        import pytest
        if call.excinfo and "return code 64" in str(call.excinfo.value):
            call.excinfo = pytest.ExceptionInfo.from_exc_info(_skip_info())


def _skip_info():
    import pytest
    try:
        pytest.skip("loads a model of its own")
    except BaseException:  # pytest's own kind, which is no Exception
        return sys.exc_info()


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    binary, llama = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    tests = os.path.join(llama, "tools/server/tests")
    os.environ["SLUICE_BIN"] = binary
    os.environ.setdefault("PORT", "18080")
    sys.dont_write_bytecode = True
    sys.path.insert(0, tests)
    try:
        import pytest
        stand_ins()
        import utils
    except ImportError as e:
        sys.exit(f"server_tests: {e}: scripts/install_deps.sh peer installs it for /usr/bin/python3")
    utils.ServerProcess.start.__defaults__ = (600,)  # a start under load may take more than a minute
    utils.match_regex = lambda regex, text: isinstance(text, str)
    utils.ServerPreset.load_all = staticmethod(lambda: None)
    sys.modules["filelock"].FileLock = lambda path: __import__("contextlib").nullcontext()
    with open(os.path.join(ROOT, "docs/API.md"), encoding="utf-8") as f:
        rows, n_all, n_pass = expected(f.read())
    plugin = Plugin(rows, not sys.argv[3:], n_all, n_pass)
    with tempfile.TemporaryDirectory() as folder:  # this very interpreter, whatever PATH says
        if "SLUICE_TEST_MODEL" not in os.environ:
            os.environ["SLUICE_TEST_MODEL"] = os.path.join(folder, "model.gguf")
            subprocess.run([binary, "synth", "-o", os.environ["SLUICE_TEST_MODEL"], "--quiet"], check=True)
        start = os.path.join(folder, "llama-server")
        with open(start, "w", encoding="utf-8") as f:
            f.write(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(os.path.abspath(__file__))} "$@"\n')
        os.chmod(start, 0o700)
        os.environ["LLAMA_SERVER_BIN_PATH"] = start
        rc = pytest.main(["--rootdir", tests, "-c", "/dev/null", "-p", "no:cacheprovider", "-q", os.path.join(tests, "unit"), *sys.argv[3:]],
                         plugins=[plugin])
        faults = plugin.faults()
        for fault in faults:
            print(f"docs/API.md: {fault}")
        return rc or bool(faults)


if __name__ == "__main__":
    if "SLUICE_BIN" in os.environ and len(sys.argv) > 1 and sys.argv[1].startswith("--"):
        model = os.environ.get("SLUICE_TEST_MODEL", os.path.join(ROOT, "demo/demo.gguf"))
        program = os.environ["SLUICE_BIN"]
        os.execv(program, [program, "serve", "-m", model, "--any-model-name", *translate(sys.argv[1:]), "--log-level", "warn"])
    sys.exit(main())
