#!/usr/bin/env python3
"""Time to the first token of a long prompt: computed, known in memory, known on disk after a restart.

usage: bench/prefix_ttft.py [--model FILE] [--tokens N] [--rounds N] [--threads N] [--device DEVICE] [--json FILE]

The model defaults to a synthetic qwen3moe of some 1.3 GiB (16 layers, 32 experts, top-4, Q4_K and Q6_K), written once to
build/bench/. Each round: the server starts with an empty --cache-dir; the prompt is asked with cache_prompt false, then
once to be kept, then again (memory); the server is stopped and started, the page cache dropped where that is allowed,
and the prompt is asked again (disk). The first token is taken from the stream. Answers must be equal, log-probabilities
to the last bit. SLUICE in the environment names another program than build/release/sluice."""
import argparse
import http.client
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SLUICE = os.environ.get("SLUICE") or os.path.join(ROOT, "build/release/sluice")


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model")
    p.add_argument("--tokens", type=int, default=4096)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--device", default="cpu")
    p.add_argument("--json")
    return p.parse_args()


def synthetic():
    path = os.path.join(ROOT, "build/bench/prefix.gguf")
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        subprocess.run([SLUICE, "synth", "--layers", "16", "--embd", "1024", "--heads", "16", "--kv-heads", "4",
                        "--experts", "32", "--top-k", "4", "--expert-ff", "768", "--ctx", "8192", "--type", "Q4_K",
                        "--quiet", "--out", path], check=True)
    return path


class Server:
    def __init__(self, model, folder, o):
        args = [SLUICE, "serve", "-m", model, "--port", "0", "--ctx", str(o.tokens + 64), "--parallel", "1",
                "--cache-dir", folder, "--cache-disk", "16GiB", "--device", o.device]
        if o.threads:
            args += ["--threads", str(o.threads)]
        self.process = subprocess.Popen(args, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            m = re.search(r"listening on http://[^ ]*:(\d+)", line)
            if m:
                self.port = int(m.group(1))
            if "ready after" in line:
                break
        else:
            raise SystemExit("the server did not start")

    def ask(self, ids, **more):
        """Seconds until the first token, log-probabilities of the answer, the tokens that were known."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=3600)
        body = {"prompt": ids, "max_tokens": 8, "temperature": 0, "stream": True, "ignore_eos": True, "logprobs": 1,
                "stream_options": {"include_usage": True}, **more}
        start, first, said, known = time.monotonic(), None, [], 0
        c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = c.getresponse()
        if response.status != 200:
            raise SystemExit(response.read().decode())
        for raw in response:
            if not raw.startswith(b"data: {"):
                continue
            event = json.loads(raw[6:])
            if event.get("choices"):
                first = first or time.monotonic() - start
                if event["choices"][0].get("logprobs"):
                    said += event["choices"][0]["logprobs"]["token_logprobs"]
            if event.get("usage"):
                known = event["usage"]["prompt_tokens_details"]["cached_tokens"]
        return first, said, known

    def stop(self):
        self.process.terminate()
        self.process.communicate()


def drop_page_cache():
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w") as f:
            f.write("1")
        return True
    except OSError:
        return False


def main():
    o = options()
    model = o.model or synthetic()
    out = {"computed": [], "memory": [], "disk": []}
    for r in range(o.rounds):
        folder = tempfile.mkdtemp(prefix="sluice-prefix-")
        ids = [(i * 7919 + r * 104729) % 250 + 3 for i in range(o.tokens)]
        s = Server(model, folder, o)
        s.ask(ids[:600], cache_prompt=False)  # warm
        first, want, known = s.ask(ids, cache_prompt=False)
        assert known == 0
        out["computed"].append(first)
        s.ask(ids)
        first, text, known = s.ask(ids)
        assert len(want) == 8 and text == want and known >= o.tokens - 64, (known, text, want)
        out["memory"].append(first)
        s.stop()
        size = sum(f.stat().st_size for f in os.scandir(folder))
        dropped = drop_page_cache()
        s = Server(model, folder, o)
        s.ask(ids[:600], cache_prompt=False)
        first, text, known = s.ask(ids)
        assert len(want) == 8 and text == want and known >= 256, (known, text, want)
        out["disk"].append(first)
        from_disk = known
        s.stop()
        shutil.rmtree(folder)
    base = statistics.median(out["computed"])
    for k, v in out.items():
        print(f"{k:9} {statistics.median(v) * 1e3:9.1f} ms to the first token   {base / statistics.median(v):7.1f} x"
              f"   ({', '.join(f'{x * 1e3:.1f}' for x in v)})")
    print(f"{o.tokens} tokens, {size / 2**20:.1f} MiB of pages, page cache {'dropped' if dropped else 'kept'}, "
          f"{from_disk} tokens from disk")
    if o.json:
        with open(o.json, "w") as f:
            json.dump(out, f)


if __name__ == "__main__":
    main()
