#!/usr/bin/env python3
"""Whatever deploy/monitoring and the documentation ask of /metrics is there, with the labels they use.

usage: check.py SLUICE

Starts the server on the demo model (or SLUICE_TEST_MODEL), asks it something, takes its /metrics, and looks
up every metric, label and label value of every expression: the Grafana dashboard's, the alerts', and the
names in docs/OBSERVABILITY.md. Each alert must have unit tests in which it fires and in which it is silent. With
promtool at hand (Debian's package prometheus; make test-alerts installs it) it parses the expressions and runs those
tests. TAP."""
import contextlib
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MONITORING = os.path.join(ROOT, "deploy", "monitoring")
# What Prometheus adds to every series of a target, and the one series that is its own.
TARGET_LABELS = {"job", "instance"}
OF_PROMETHEUS = {"up"}
WORDS = {"by", "without", "on", "ignoring", "group_left", "group_right", "and", "or", "unless", "bool", "offset",
         "inf", "nan", "sum", "min", "max", "avg", "count", "stddev", "topk", "bottomk", "quantile"}
TOKEN = re.compile(r"""(?P<space>\s+)|(?P<string>"(?:[^"\\]|\\.)*")|(?P<range>\[[^\]]*\])|
                       (?P<name>[A-Za-z_:][A-Za-z0-9_:]*)|(?P<number>[0-9][0-9.eE]*[smhdwy]?)|
                       (?P<op>=~|!~|!=|==|>=|<=|[-+*/%^<>=(){},])""", re.X)


def tokens(expr):
    at = 0
    while at < len(expr):
        m = TOKEN.match(expr, at)
        if not m:
            raise ValueError(f"cannot be read from '{expr[at:at + 20]}' on")
        at = m.end()
        if m.lastgroup != "space":
            yield m.lastgroup, m.group()


def asked(expr):
    """[(metric, [(label, operator, value)])] and the labels of groupings."""
    t = list(tokens(expr)) + [("end", "")] * 3
    depth, found, grouped, i = 0, [], set(), 0
    while t[i][0] != "end":
        kind, text = t[i]
        depth += (text == "(") - (text == ")")
        if depth < 0:
            raise ValueError("a ) too many")
        if kind == "name" and text.lower() in WORDS:
            if t[i + 1][1] == "(" and text in ("by", "without", "on", "ignoring"):
                i += 2
                while t[i][1] != ")":
                    if t[i][0] == "end":
                        raise ValueError("a list of labels has no end")
                    if t[i][0] == "name" and text in ("by", "on"):
                        grouped.add(t[i][1])
                    i += 1
        elif kind == "name" and t[i + 1][1] != "(":
            matchers = []
            if t[i + 1][1] == "{":
                i += 2
                while t[i][1] != "}":
                    if t[i][0] == "end":
                        raise ValueError("a list of matchers has no end")
                    if t[i][0] == "name":
                        matchers.append((t[i][1], t[i + 1][1], json.loads(t[i + 2][1])))
                        i += 2
                    i += 1
            found.append((text, matchers))
        i += 1
    if depth:
        raise ValueError("a ( too many")
    return found, grouped


def parse_metrics(text):
    """{name: [{label: value}]}"""
    series = {}
    for line in text.splitlines():
        m = re.match(r"([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})? [-+0-9.eEINFNan]+$", line)
        if line.startswith("#") or not line:
            continue
        if not m:
            raise ValueError(f"/metrics has a line that Prometheus could not read: {line}")
        series.setdefault(m.group(1), []).append(dict(re.findall(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"', m.group(2) or "")))
    return series


def problems(expr, series):
    plain = expr.replace("$__rate_interval", "1m").replace("$instance", ".*")
    try:
        found, grouped = asked(plain)
    except ValueError as e:
        return [str(e)]
    out, labels = [], set(TARGET_LABELS)
    for name, matchers in found:
        if name in OF_PROMETHEUS:
            continue
        if name not in series:
            out.append(f"there is no metric {name}")
            continue
        for s in series[name]:
            labels |= set(s)
        for label, op, value in matchers:
            if label in TARGET_LABELS:
                continue
            fits = {"=": lambda v: v == value, "=~": lambda v: re.fullmatch(value, v)}.get(op, lambda v: True)
            if not any(label in s and fits(s[label]) for s in series[name]):
                out.append(f"{name} has no {label}{op}\"{value}\"")
    out += [f"nothing in it has a label {g}" for g in sorted(grouped - labels)]
    return out


def dashboard_expressions(path):
    with open(path, encoding="utf-8") as f:
        board = json.load(f)
    ids = [p["id"] for p in board["panels"]]
    assert len(ids) == len(set(ids)), "two panels have one id"
    for p in board["panels"]:
        assert p["gridPos"]["x"] + p["gridPos"]["w"] <= 24, p["title"]
        for t in p.get("targets", []):
            yield f"{p['title']} ({t['refId']})", t["expr"]
    for v in board["templating"]["list"]:
        m = re.match(r"label_values\((\w+), (\w+)\)", v.get("definition", ""))
        if m:
            yield f"variable {v['name']}", m.group(1)


def alert_expressions(path):
    with open(path, encoding="utf-8") as f:
        for m in re.finditer(r"- alert: (\S+)\n\s+expr: (.*)", f.read()):
            yield m.group(1), m.group(2)


def documented(path):
    """Each name in the document as an expression; labels as they are written there."""
    with open(path, encoding="utf-8") as f:
        for m in sorted(set(re.findall(r"(?:sluice|process)_[a-z_]+(?:\{[a-z]+=(?:\"[^\"]*\")?\})?", f.read()))):
            yield m, re.sub(r"\{([a-z]+)=\}", r'{\1=~".*"}', m)


def promtool(expressions):
    tool = shutil.which("promtool")
    if not tool:
        return None
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as f:
        json.dump({"groups": [{"name": "check", "rules": [
            {"record": f"check:{i}", "expr": e.replace("$__rate_interval", "1m").replace("$instance", ".*")}
            for i, e in enumerate(expressions)]}]}, f)
        f.flush()
        p = subprocess.run([tool, "check", "rules", f.name], capture_output=True, text=True)
    return p.stdout + p.stderr if p.returncode else ""


def untested_alerts(alerts, tests):
    """Alerts without a test that has them fire, or without one that has them silent."""
    with open(tests, encoding="utf-8") as f:
        text = f.read()
    fires = set(re.findall(r"alertname: (\S+)\n\s+exp_alerts:\n", text))
    silent = set(re.findall(r"alertname: (\S+)\n\s+exp_alerts: \[\]\n", text))
    return [f"{name} has no test in which it {what}" for name, _ in alert_expressions(alerts)
            for what, names in (("fires", fires), ("is silent", silent)) if name not in names]


def alert_tests(tests):
    tool = shutil.which("promtool")
    if not tool:
        return None
    p = subprocess.run([tool, "test", "rules", tests], capture_output=True, text=True)
    return p.stdout + p.stderr if p.returncode else ""


def fill_queue(url, body):
    """Asks until somebody is refused: that status is counted from then on."""
    refused = threading.Event()

    def ask():
        try:
            urllib.request.urlopen(url, body).read()
        except urllib.error.HTTPError as e:
            if e.code == 429:
                refused.set()

    for _ in range(20):
        clients = [threading.Thread(target=ask) for _ in range(16)]
        for c in clients:
            c.start()
        for c in clients:
            c.join()
        if refused.is_set():
            return
    sys.exit("320 requests did not fill a queue of one")


def started(child, log, pattern, ready):
    """What the pattern finds in a program's log once ready(it) is true."""
    for _ in range(1200):
        m = re.search(pattern, os.pread(log.fileno(), 1 << 24, 0).decode(errors="replace"))
        try:
            if m and ready(m.group(1)):
                return m.group(1)
        except OSError:
            pass
        if child.poll() is not None:
            break
        time.sleep(0.1)
    sys.exit(f"{' '.join(child.args[:2])} did not become ready:\n" + os.pread(log.fileno(), 1 << 24, 0).decode(errors="replace")[-2000:])


def live_metrics(sluice):
    model = os.environ.get("SLUICE_TEST_MODEL", os.path.join(ROOT, "demo", "demo.gguf"))
    with contextlib.ExitStack() as both:
        def start(*args):
            log = both.enter_context(tempfile.TemporaryFile("a+"))
            child = subprocess.Popen([sluice, *args], stdout=subprocess.DEVNULL, stderr=log)
            both.callback(child.wait, 60)
            both.callback(child.terminate)
            return child, log

        # A worker, since there are metrics of it; experts streamed: what only streaming counts is counted.
        worker, log = start("worker", "-m", model, "--listen", "127.0.0.1:0", "--plain", "--heat-file", "off", "--http", "127.0.0.1:0")
        at = started(worker, log, r"listening on (\S+) for", bool)
        own = started(worker, log, r"are at (http://\S+)", bool)
        url = started(*start("serve", "-m", model, "--port", "0", "--ctx", "256", "--experts", "streamed", "--parallel", "1",
                             "--queue", "1", "--workers", at, "--plain"), r"listening on (http://\S*:\d+)",
                      lambda url: urllib.request.urlopen(url + "/health").status == 200)
        body = json.dumps({"messages": [{"role": "user", "content": "What is 1 + 1?"}], "max_tokens": 5}).encode()
        urllib.request.urlopen(url + "/v1/chat/completions", body).read()
        fill_queue(url + "/v1/chat/completions", body)
        return [urllib.request.urlopen(u + "/metrics").read().decode() for u in (url, own)]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    series = {}
    for text in live_metrics(sys.argv[1]):
        for name, found in parse_metrics(text).items():
            series.setdefault(name, []).extend(found)
    n = 0

    def report(name, wrong, skip=""):
        nonlocal n
        n += 1
        print(f"{'not ok' if wrong else 'ok'} {n} - {name}{' # SKIP ' + skip if skip else ''}")
        for w in wrong:
            print(f"  {w}")

    # The check itself can fail.
    bad = ["sluice_none", 'sluice_expert_lookups_total{found="nowhere"}', "sum by (color) (sluice_requests_total)", "rate(sluice_requests_total[1m]",
           'sluice_requests_total{instance="x"']
    report("the check finds what is wrong", [f"{b} passed" for b in bad if not problems(b, series)])
    every = []
    boards = glob.glob(os.path.join(MONITORING, "grafana", "dashboards", "*.json"))
    report("there is a dashboard", [] if boards else ["none"])
    sources = [(os.path.basename(b), dashboard_expressions(b)) for b in boards]
    sources.append(("alerts.yml", alert_expressions(os.path.join(MONITORING, "alerts.yml"))))
    sources.append(("OBSERVABILITY.md", documented(os.path.join(ROOT, "docs", "OBSERVABILITY.md"))))
    for source, expressions in sources:
        expressions = list(expressions)
        known = series
        if source == "OBSERVABILITY.md":  # speaks of a histogram by its name alone
            known = {**series, **{s[:-7]: [{}] for s in series if s.endswith("_bucket")}}
        wrong = [f"{name}: {e}: {w}" for name, e in expressions for w in problems(e, known)]
        report(f"{source}: {len(expressions)} expressions", wrong if expressions else ["none was found"])
        if source != "OBSERVABILITY.md":
            every += [e for _, e in expressions]
    said = promtool(every)
    no_tool = "" if said is not None else "there is no promtool"
    report("promtool reads them", [said] if said else [], no_tool)
    alerts, tests = os.path.join(MONITORING, "alerts.yml"), os.path.join(ROOT, "tests", "monitoring", "alerts_test.yml")
    report("every alert is tested", untested_alerts(alerts, tests))
    said = alert_tests(tests)
    report("alerts fire and are silent when they should", [said] if said else [], no_tool)
    print(f"1..{n}")


main()
