#!/usr/bin/env python3
"""The start commands of deploy/kubernetes/ as pods would run them: each in a network namespace of its own, with the names and the
variables that Kubernetes gives. The leader becomes ready, answers, and gives the tokens of one process alone.

usage: kubernetes.py SLUICE

Skipped where namespaces cannot be made, or Python's yaml or iproute2 is not there. TAP."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

try:
    import yaml
except ImportError:
    yaml = None

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FILES = ["leaderworkerset.yaml", "statefulset.yaml"]
DEMO = os.environ.get("SLUICE_TEST_MODEL", os.path.join(ROOT, "demo", "demo.gguf"))
INSIDE = "SLUICE_TEST_INSIDE"
SKIP = "# SKIP "


def template(document):
    return document["spec"]["leaderWorkerTemplate"] if document["kind"] == "LeaderWorkerSet" else document["spec"]


def pods(documents):
    """(name as others know it, container, variables) of each pod, the leader first."""
    out = []
    for d in documents:
        name = d["metadata"]["name"]
        if d["kind"] == "LeaderWorkerSet":
            t, leader = template(d), f"{name}-0.{name}.default"
            for i in range(t["size"]):
                spec = t["workerTemplate" if i else "leaderTemplate"]["spec"]
                at = f"{name}-0-{i}.{name}.default" if i else leader
                out.append((at, spec["containers"][0], {"LWS_LEADER_ADDRESS": leader, "LWS_GROUP_SIZE": str(t["size"]), "LWS_WORKER_INDEX": str(i)}))
        elif d["kind"] == "StatefulSet":
            for i in range(d["spec"]["replicas"]):
                out.append((f"{name}-{i}.{d['spec']['serviceName']}", template(d)["template"]["spec"]["containers"][0], {}))
    return sorted(out, key=lambda p: p[1]["args"][0] != "serve")


class Unable(Exception):
    """This machine has no such networks."""


def set_up(*command):
    p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if p.returncode:
        raise Unable(f"{' '.join(command)}: {p.stdout.strip()[:200]}")


def ip(*args, inside=None):
    set_up(*(["nsenter", "-t", str(inside), "-n"] if inside else []), "ip", *args)


def ask(url, body=None):
    with urllib.request.urlopen(url, body and json.dumps(body).encode(), timeout=60) as r:
        return r.read()


def until_ready(url, child, log):
    for _ in range(600):
        try:
            ask(url + "/health")
            return
        except (urllib.error.URLError, OSError):
            if child.poll() is not None:
                break
            time.sleep(0.2)
    with open(log, errors="replace") as f:
        raise RuntimeError(f"{url} did not become ready: {f.read()[-800:]}")


QUESTION = {"messages": [{"role": "user", "content": "What is 7 plus 5?"}], "max_tokens": 24, "temperature": 0}


def answer(url):
    return json.loads(ask(url + "/v1/chat/completions", QUESTION))["choices"][0]["message"]["content"]


def one(sluice, file, folder):
    """In namespaces of our own already. What is wrong."""
    with open(os.path.join(ROOT, "deploy", "kubernetes", file), encoding="utf-8") as f:
        found = pods([d for d in yaml.safe_load_all(f) if d])
    key = subprocess.run([sluice, "keygen"], stdout=subprocess.PIPE, check=True, text=True).stdout.strip()
    ip("link", "add", "pods", "type", "bridge")
    ip("addr", "add", "10.9.0.1/24", "dev", "pods")
    ip("link", "set", "pods", "up")
    ip("link", "set", "lo", "up")
    hosts, children, holders = os.path.join(folder, "hosts"), [], []
    with open(hosts, "w") as f:
        f.write("127.0.0.1 localhost\n" + "".join(f"10.9.0.{i + 2} {name}\n" for i, (name, _, _) in enumerate(found)))
    set_up("mount", "--bind", hosts, "/etc/hosts")
    try:
        for i, (name, container, variables) in enumerate(found):
            holder = subprocess.Popen(["unshare", "-n", "sh", "-c", "echo; exec sleep 600"], stdout=subprocess.PIPE)
            holder.stdout.readline()
            holders.append(holder)
            ip("link", "add", f"pod{i}", "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
            ip("link", "set", f"pod{i}", "master", "pods", "up")
            ip("link", "set", "lo", "up", inside=holder.pid)
            ip("addr", "add", f"10.9.0.{i + 2}/24", "dev", "eth0", inside=holder.pid)
            ip("link", "set", "eth0", "up", inside=holder.pid)
            paths = {"/models/model.gguf": DEMO, "/var/cache/sluice/layers": os.path.join(folder, f"layers-{i}")}
            argv = [sluice if a == "/usr/bin/sluice" else paths.get(a, a) for a in container["command"] + container["args"]]
            # The manifest's memory is a large machine's; little of it is taken.
            argv = ["1GiB" if re.fullmatch(r"\d+GiB", a) else a for a in argv]
            env = {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": os.path.join(folder, f"cache-{i}"), **variables}
            for v in container["env"]:
                assert v["valueFrom"]["secretKeyRef"]["key"] == "cluster.key", v
                env[v["name"]] = key
            log = os.path.join(folder, f"pod-{i}.log")
            with open(log, "wb") as f:
                children.append(subprocess.Popen(["nsenter", "-t", str(holder.pid), "-n", *argv], env=env, stdout=f, stderr=f))
        url = "http://10.9.0.2:8080"
        until_ready(url, children[0], os.path.join(folder, "pod-0.log"))
        for i, (name, container, _) in enumerate(found):
            ports = {p["name"]: p["containerPort"] for p in container["ports"]}
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                get = container[probe].get("httpGet")
                if get and urllib.request.urlopen(f"http://10.9.0.{i + 2}:{ports[get['port']]}{get['path']}", timeout=30).status != 200:
                    return f"{name}: its {probe} fails"
        said = answer(url)
        for c in children:
            c.send_signal(signal.SIGTERM)
        codes = [c.wait(30) for c in children]
        alone = subprocess.Popen([sluice, "serve", "-m", DEMO, "--device", "cpu", "--port", "8081", "-t", "1"],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        children.append(alone)
        until_ready("http://127.0.0.1:8081", alone, os.devnull)
        wanted = answer("http://127.0.0.1:8081")
        if said != wanted:
            return f"answered {said!r}, and one process alone {wanted!r}"
        if any(codes):
            return f"SIGTERM ended the pods with {codes}"
        for i in range(1, len(found)):
            with open(os.path.join(folder, f"pod-{i}.log"), errors="replace") as f:
                if "serving" not in f.read():
                    return f"{found[i][0]} served nobody"
        return "" if len(found) > 1 else "there are no workers"
    finally:
        for c in children + holders:
            c.kill()
            c.wait()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sluice = os.path.abspath(sys.argv[1])
    if os.environ.get(INSIDE):
        with tempfile.TemporaryDirectory(prefix="sluice-pods-") as folder:
            try:
                wrong = one(sluice, os.environ[INSIDE], folder)
            except Unable as e:
                wrong = f"{SKIP}{e}"
            except (RuntimeError, OSError, subprocess.SubprocessError, KeyError) as e:
                wrong = f"{type(e).__name__}: {e}"
        print(wrong)
        return 0
    print(f"1..{len(FILES)}")
    lacking = [p for p in ("ip", "unshare", "nsenter") if not shutil.which(p)]
    why = "there is no Python yaml" if yaml is None else f"there is no {lacking[0]}" if lacking else ""
    if not why and subprocess.run(["unshare", "-n", "-m", "true"], stderr=subprocess.DEVNULL).returncode:
        why = "namespaces cannot be made here"
    for i, file in enumerate(FILES, 1):
        if why:
            print(f"ok {i} - {file} # SKIP {why}")
            continue
        p = subprocess.run(["unshare", "-n", "-m", sys.executable, __file__, sluice], env={**os.environ, INSIDE: file},
                           stdout=subprocess.PIPE, text=True)
        wrong = p.stdout.strip() or (f"exit {p.returncode}" if p.returncode else "")
        if wrong.startswith(SKIP):
            print(f"ok {i} - {file} {wrong}", flush=True)
        else:
            print(f"{'not ok' if wrong else 'ok'} {i} - {file}{': ' + wrong if wrong else ''}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
