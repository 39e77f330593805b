#!/usr/bin/env python3
"""What a server answers, for comparison byte by byte: greedy answers with the log-probabilities of 20 tokens each.

usage: answers.py OUT.json SLUICE ARGS...     starts `SLUICE serve ARGS` on a free port, asks, ends it

One request alone, the same again (its prompt is known by then), and four at once of different lengths. Without
--heat-file the next run would start where this one ended; it is off. Exit status 1: the server did not start, or a
request failed; what it said goes to stderr. No dependencies."""
import http.client
import json
import re
import subprocess
import sys
import threading
import time

N_TOKENS = 48


def ask(port, n_words):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    prompt = " ".join(str(n * n_words) for n in range(n_words))
    c.request("POST", "/v1/completions", json.dumps({"model": "m", "prompt": prompt, "max_tokens": N_TOKENS,
                                                     "temperature": 0, "logprobs": 20}))
    r = c.getresponse()
    body = r.read()
    if r.status != 200:
        raise RuntimeError(f"{r.status}: {body[:300]!r}")
    answer = json.loads(body)
    return {"choices": answer["choices"], "prompt_tokens": answer["usage"]["prompt_tokens"]}


def wait_ready(port):
    """GET /health says 503 while the model is loading."""
    for _ in range(1200):
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        c.request("GET", "/health")
        if c.getresponse().status == 200:
            return
        time.sleep(0.1)
    raise RuntimeError("the server does not become ready")


def ask_all(port):
    wait_ready(port)
    answers = {"alone": ask(port, 200), "again": ask(port, 200)}
    failures = []

    def one(n_words):
        try:
            answers[f"of {n_words}"] = ask(port, n_words)
        except Exception as e:
            failures.append(e)

    threads = [threading.Thread(target=one, args=(n,)) for n in (3, 17, 90, 230)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise failures[0]
    return answers


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    out, sluice = sys.argv[1:3]
    server = subprocess.Popen([sluice, "serve", "--alias", "m", "--port", "0", "--heat-file", "off", *sys.argv[3:]],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = []
    try:
        for line in server.stdout:
            said.append(line)
            at = re.search(r"listening on http://[^ ]*:(\d+)", line)
            if at:
                break
        else:
            sys.exit("the server did not start: " + "".join(said[-5:]))
        threading.Thread(target=lambda: said.extend(server.stdout), daemon=True).start()
        try:
            answers = ask_all(int(at.group(1)))
        except Exception as e:
            sys.exit(f"{e}\n" + "".join(said[-5:]))
        with open(out, "w") as f:
            json.dump(answers, f, indent=1, sort_keys=True)
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()


main()
