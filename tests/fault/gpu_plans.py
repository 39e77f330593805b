#!/usr/bin/env python3
"""Which GPUs the real binary takes, how it divides a model among them, and that several run together, over a driver
without a GPU. Prints TAP.

usage: gpu_plans.py SLUICE MODEL DRIVER

DRIVER is tests/support/fake_cuda.so: four GPUs, of 1 GiB each unless said otherwise."""
import http.client
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

GIVEN = ["--ram-bandwidth", "20", "--disk-bandwidth", "2", "--device-bandwidth", "1000", "--link-bandwidth", "20"]


TROUBLE = "Sanitizer|runtime error| error "


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


class Tests:
    def __init__(self, sluice, model, driver, folder):
        self.sluice, self.model = sluice, model
        os.symlink(driver, os.path.join(folder, "libcuda.so.1"))
        path = os.environ.get("LD_LIBRARY_PATH", "")
        # No Vulkan driver, whatever this machine has: the lists of devices below are whole.
        self.env = dict(os.environ, LD_LIBRARY_PATH=folder + (":" + path if path else ""), FAKE_CUDA_DEVICES="4",
                        VK_DRIVER_FILES="/nonexistent", VK_ICD_FILENAMES="/nonexistent")
        self.n = self.failed = 0
        self.unanswered = []  # requests of the last server, and what became of them

    def memory(self, mib):
        """Of each GPU, from now on."""
        self.env["FAKE_CUDA_MIB"] = mib

    def plan(self, *options, as_json=True):
        argv = [self.sluice, "plan", "-m", self.model, "--heat-file", "off", "-c", "512", *GIVEN, *options]
        r = subprocess.run(argv + (["--json"] if as_json else []), env=self.env, capture_output=True, text=True, timeout=60)
        return r.returncode, json.loads(r.stdout) if as_json and r.stdout else r.stdout, r.stderr

    def heat(self, path, few):
        """As a run leaves it, where layers of `few` use few experts and the others all alike."""
        argv = [self.sluice, "run", "-m", self.model, "--heat-file", path, "--device", "cpu", "--experts", "streamed", "-p", "a",
                "-c", "512", "-q", "-n", "1"]
        subprocess.run(argv, capture_output=True, timeout=120)
        with open(path, "rb") as f:
            image = bytearray(f.read())
        n_layer, n_expert, k = struct.unpack_from("<III", image, 16)
        for layer in range(n_layer):
            rates = [60000 if e < k else 50 for e in range(n_expert)] if layer in few else [65535 * k // n_expert] * n_expert
            struct.pack_into(f"<I{n_expert}H", image, 32 + layer * (4 + 2 * n_expert), 4096, *rates)
        struct.pack_into("<I", image, len(image) - 4, crc32c(image[:-4]))
        with open(path, "wb") as f:
            f.write(image)

    def check(self, name, good, seen=""):
        self.n += 1
        self.failed += not good
        print(f"{'ok' if good else 'not ok'} {self.n} - {name}")
        if not good:
            print("# " + str(seen).replace("\n", "\n# ")[:1500])

    def divided(self, name, options, devices, layers):
        """Devices by ordinal, and layers of each (None: as it likes)."""
        code, p, err = self.plan(*options)
        if code or not p:
            return self.check(name, False, err)
        stages = p["stages"]
        first = 0
        good = [s["device"].split(",")[0].split(": ")[0] for s in stages] == [f"cuda:{d}" for d in devices]
        for i, s in enumerate(stages):
            good = good and s["first_layer"] == first and s["layers"] > 0 and (layers is None or s["layers"] == layers[i])
            good = good and s["vram_total_bytes"] <= s["vram_budget_bytes"]
            first += s["layers"]
        rows = sum(r["bytes"] for r in p["rows"] if r["memory"] == "device")
        good = good and first == self.n_layer and rows == p["vram_total_bytes"] == sum(s["vram_total_bytes"] for s in stages)
        good = good and sum(r["bytes"] for r in p["rows"] if r["memory"] != "device") == p["total_bytes"]
        return self.check(name, good, json.dumps(p, indent=1)) or p

    def runs(self, name, options):
        argv = [self.sluice, "run", "-m", self.model, "--heat-file", "off", "-p", "hi", "-c", "512", "-q", "--temp", "0", "-n", "12"]
        r = subprocess.run(argv + options, env=self.env, capture_output=True, text=True, timeout=120)
        self.check(name, r.returncode == 0 and not re.search(TROUBLE, r.stderr), f"{r.returncode}: {r.stderr[-1200:]}")

    def ask(self, port, i, ended):
        body = {"prompt": f"{i} " + "a river " * 30 * (i % 3), "max_tokens": 20, "temperature": 1}
        try:
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            c.request("POST", "/v1/completions", json.dumps(body))
            r = c.getresponse()
            if r.status == 200 and json.loads(r.read())["usage"]["completion_tokens"] > 0:
                ended.append(i)
        except OSError as e:  # the log says more
            self.unanswered.append((i, repr(e)))

    def in_tiers(self, devices):
        """Options with little more than the least memory on each of the devices."""
        options = ["--device", "cuda:" + devices, "--experts", "streamed"]
        least = self.plan(*options, "--vram", "1MiB")[1]["vram_least_bytes"] // (devices.count(",") + 1)
        return options + ["--vram", str(least + (1 << 20))]

    def serves(self, name, options, n=12):
        """So many requests at once, more than run at once; then it ends as asked."""
        self.unanswered = []
        argv = [self.sluice, "serve", "-m", self.model, "--heat-file", "off", "-c", "512", "--port", "0", "--log-level", "debug"] + options
        with tempfile.TemporaryFile("a+") as log:
            child = subprocess.Popen(argv, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
            said, ended, end = "", [], time.monotonic() + 60
            while "ready after" not in said and child.poll() is None and time.monotonic() < end:
                time.sleep(0.05)
                said = os.pread(log.fileno(), 1 << 24, 0).decode(errors="replace")
            port = re.search(r"listening on http://[^ ]*:(\d+)", said)
            clients = [threading.Thread(target=self.ask, args=(int(port.group(1)), i, ended)) for i in range(n)] if port else []
            for c in clients:
                c.start()
            for c in clients:
                c.join()
            seen = self.ask_metrics(int(port.group(1))) if port else ""
            child.send_signal(signal.SIGTERM)
            try:
                code = child.wait(60)
            except subprocess.TimeoutExpired:
                child.kill()
                code = child.wait()
            said = os.pread(log.fileno(), 1 << 24, 0).decode(errors="replace")
        of_requests = "".join(line for line in said.splitlines(True) if re.search("http|POST|" + TROUBLE, line))
        self.check(name, code == 0 and len(ended) == n and not re.search(TROUBLE, said),
                   f"{code}, {len(ended)} of {n} answers, {self.unanswered}: {of_requests[-1200:]}")
        self.shows(name, seen, said)

    def logs(self, name, options, heat, layers):
        """What serve and bench say of how many layers each has."""
        own = heat + "-own"  # they keep what they see
        for command in (["serve", "--port", "0", "-c", "512"], ["bench", "-v", "-p", "10", "-n", "10", "-r", "1"]):
            argv = [self.sluice, *command, "-m", self.model, *options, "--heat-file", own]
            shutil.copy(heat, own)
            with tempfile.TemporaryFile("a+") as log:
                child = subprocess.Popen(argv, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
                said, end = "", time.monotonic() + 60
                while "memory: total, host" not in said and child.poll() is None and time.monotonic() < end:
                    time.sleep(0.05)
                    said = os.pread(log.fileno(), 1 << 24, 0).decode(errors="replace")
                child.send_signal(signal.SIGTERM)
                child.wait(60)
            got = [int(b) - int(a) + 1 for a, b in re.findall(r"device \d: layers (\d+) to (\d+) on", said)]
            self.check(f"{name}, {command[0]}", got == layers and "by the heat of earlier runs, too" in said, f"{got}: {said[-1500:]}")

    def ask_metrics(self, port):
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        c.request("GET", "/metrics")
        return c.getresponse().read().decode()

    def shows(self, name, metrics, said):
        """Each GPU's part of what is counted, by the names and budgets that the log has."""
        def of(what, labels=""):
            return [(d, float(v)) for d, v in re.findall(
                rf'^sluice_stage_{what}{{stage="\d",device="([^"]+)"{labels}}} (\S+)$', metrics, re.M)]

        def all_of(what):
            return sum(float(v) for v in re.findall(rf"^sluice_{what} (\S+)$", metrics, re.M))

        planned = re.findall(r"memory: device \d: layers .* on (cuda:\d): .*: ([\d.]+) MiB of ([\d.]+) MiB,", said)
        have, most, busy = of("memory_bytes"), of("memory_budget_bytes"), of("busy_seconds_total")
        good = len(planned) > 1 and [d for d, _ in have] == [d for d, _, _ in planned]
        good = good and all(abs(v / 2**20 - float(plan)) <= 1 for (_, v), (_, plan, _) in zip(have, planned))
        good = good and all(abs(v / 2**20 - float(budget)) <= 0.1 for (_, v), (_, _, budget) in zip(most, planned))
        good = good and sum(v for _, v in have) == all_of("device_memory_bytes") and all(v > 0 for _, v in busy)
        good = good and all_of('expert_lookups_total{found="device"}') > 0
        for found in ("device", "host", "coming", "disk"):
            label = f'found="{found}"'
            good = good and sum(v for _, v in of("expert_lookups_total", "," + label)) == all_of(f"expert_lookups_total{{{label}}}")
        self.check(f"... and each is shown: {name}", good, f"{planned} {have} {most} {busy}")

    def refused(self, name, options, says, code=1, logged=0):
        """code 2: an option alone is wrong, and where to read of it follows in a line of its own. logged: lines before it."""
        got, _, err = self.plan(*options, as_json=False)
        self.check(name, got == code and says in err and err.count("\n") == code + logged, f"{got}: {err}")


def known_routing(t, folder):
    """The GPU whose layers use few experts gets more of them, and every command says the same."""
    t.model, n = os.path.join(folder, "skewed.gguf"), 8
    subprocess.run([t.sluice, "synth", "-q", "-o", t.model, "--layers", str(n), "--experts", "64", "--top-k", "8", "--expert-ff", "256",
                    "-t", "Q4_0"], check=True, timeout=60)
    tiers = ["--device", "cuda:0,1", "--experts", "streamed"]
    code, p, err = t.plan(*tiers, "--vram", "1MiB")
    room = tiers + ["--vram", str(p["vram_least_bytes"] // 2 + (8 << 20))]  # of the 27 MiB that half of the experts take
    code, cold, err = t.plan(*room)
    t.check("no heat", code == 0 and cold["split_by_heat"] is False, err or cold)
    for few, more in ((range(n // 2), 0), (range(n // 2, n), 1)):
        file = os.path.join(folder, f"heat{more}")
        known = room + ["--heat-file", file]
        t.heat(file, few)
        code, p, err = t.plan(*known)
        t.check("GPUs of different kinds are divided without heat", code == 0 and not p["split_by_heat"] and
                [s["layers"] for s in p["stages"]] == [s["layers"] for s in cold["stages"]], err or p)
        t.env["FAKE_CUDA_NAME"] = "Fake GPU"
        code, p, err = t.plan(*known)
        got = [s["layers"] for s in p["stages"]] if p else err
        t.check(f"layers {few.start} to {few.stop - 1} use few experts: their GPU has more", code == 0 and p["split_by_heat"] is True
                and got[more] > cold["stages"][more]["layers"], got)
        code, text, err = t.plan(*known, as_json=False)
        t.check("... and people are told", code == 0 and "divided by the heat of earlier runs, too\n" in text, text + err)
        code, p, err = t.plan(*known, "--split", "4,4")
        t.check("... a split that is given stays", code == 0 and not p["split_by_heat"] and p["stages"][0]["layers"] == 4, err or p)
        t.logs("... and it is divided so", room, file, got)
        del t.env["FAKE_CUDA_NAME"]


def kinds(t):
    """GPUs and the CPU divide a model: plans, refusals, and that it runs."""
    def stages(*options):
        code, p, err = t.plan(*options)
        return p, [(s["device"].split(":")[0], s["layers"], s["vram_budget_bytes"] > 0) for s in p["stages"]] if p else err

    half = t.n_layer // 2
    split = ["--split", f"{half},{t.n_layer - half}"]
    for devices, want in (("cuda:0,cpu", [("cuda", half, True), ("cpu", t.n_layer - half, False)]),
                          ("cpu,cuda:2", [("cpu", half, False), ("cuda", t.n_layer - half, True)])):
        p, seen = stages("--device", devices, *split)
        t.check(f"{devices}: each has its layers", seen == want, seen)
        host = sum(r["bytes"] for r in p["rows"] if r["memory"] != "device") if p else 0
        t.check("... and its memory, of the host or its own", p and host == p["total_bytes"] and
                sum(r["bytes"] for r in p["rows"] if r["memory"] == "device") == p["vram_total_bytes"], p)
        t.check("... ceilings, too", p and p["causal_ceiling_ts"] > 0 and p["pipelined_ceiling_ts"] > 0, p)
    p, seen = stages("--device", "cuda:0,1,cpu", "--vram", "300M,400M")
    t.check("sizes of memory are the GPUs'", p and [s["vram_budget_bytes"] >> 20 for s in p["stages"]] == [300, 400, 0], seen)
    p, seen = stages("--device", "cuda:all,cpu")
    t.check("all GPUs and the CPU", p and [d for d, _, _ in seen] == ["cuda"] * 4 + ["cpu"], seen)
    code, text, err = t.plan("--device", "cuda:0,cpu", *split, as_json=False)
    t.check("for people", code == 0 and not err and "of the host's memory" in text and re.search(r"--vram \d+MiB\n", text), text + err)
    t.refused("the CPU twice", ["--device", "cpu,cuda:0,cpu"], "cpu is named twice", 2)
    t.refused("too little for the GPU's part", ["--device", "cuda:0,cpu", *split, "--vram", "2MiB"], "for all of them: --vram ")
    t.refused("too little for the CPU's", ["--device", "cuda:0,cpu", *split, "--ram", "64MiB"], "of the host's memory are needed")
    for devices in ("cuda:0,cpu", "cpu,cuda:1", "cuda:0,1,cpu"):
        t.runs(f"{devices} run", ["--device", devices])
    t.runs("cuda:0,cpu run with experts in slots", ["--device", "cuda:0,cpu", "--experts", "streamed", "--ram", "400MiB"])
    r = subprocess.run([t.sluice, "serve", "--help"], env=t.env, capture_output=True, text=True)
    said = " ".join(r.stdout.split())
    t.check("--help names what this build has",
            re.search(r"cuda:N \(NVIDIA GPUs\), hip:N \(AMD GPUs\), (level_zero:N \(Intel GPUs\), )?(vulkan:N \(GPUs [^)]*\), )?cpu \(the host's CPUs\)", said), r.stdout)


def listed(t):
    """sluice devices."""
    def devices(*options):
        r = subprocess.run([t.sluice, "devices", *options], env=t.env, capture_output=True, text=True, timeout=60)
        return r.returncode, r.stdout, r.stderr

    t.memory("1024,64")
    code, text, err = devices()
    t.check("sluice devices", code == 0 and not err and re.search(r"^cuda:0 +discrete +1024\.0 +\d+\.\d  Fake GPU 0, sm_90$", text, re.M)
            and re.search(r"^cpu +host +", text, re.M) and text.index("cuda:3") < text.index("\ncpu"), text + err)
    code, text, err = devices("--json")
    d = json.loads(text)["devices"] if code == 0 else []
    t.check("... as JSON", [x["id"] for x in d] == ["cuda:0", "cuda:1", "cuda:2", "cuda:3", "cpu"] and
            all(x["usable"] and not x["why_not"] for x in d) and d[1]["memory_bytes"] == 64 << 20 and d[0]["subgroup_width"] == 32 and
            0 < d[0]["free_bytes"] < 1 << 30 and d[0]["shared_bytes"] > 0 and "moe_sum" in d[0]["fused_ops"], text + err)
    t.memory("1024,10")
    code, text, err = devices("--json")
    d = json.loads(text)["devices"] if code == 0 else []
    t.check("one that is full says so, and the others are there", len(d) == 5 and [x["usable"] for x in d] == [True, False, False, False, True]
            and "cuda:1: cannot allocate" in d[1]["why_not"], text + err)
    t.memory("1024")


def one_queue(t, folder):
    """Each GPU runs all that it is given in one queue, so that what waits for another GPU is in the way of everything behind it:
    what is waited for must have been enqueued before, also for copies by way of another GPU."""
    small, t.model = t.model, os.path.join(folder, "large.gguf")
    subprocess.run([t.sluice, "synth", "-q", "-o", t.model, "--layers", "4", "--expert-ff", "832", "--experts", "24", "--top-k", "4"],
                   check=True, timeout=60)
    t.env["FAKE_CUDA_QUEUES"] = "1"
    for devices in ("0,1", "0,1,2,3", "0,1,0,1", "0,0,1,1"):
        t.serves(f"{devices} serve with one queue each", t.in_tiers(devices))
    t.serves("0,1,0,1 serve with one queue each, experts resident", ["--device", "cuda:0,1,0,1"])
    del t.env["FAKE_CUDA_QUEUES"]
    t.model = small


def cards(t):
    """A card that is planned for differs from one that is here by what a context takes of it, and by its name alone."""
    def bare(p):
        rows = [(r["what"], r["bytes"], r["memory"]) for r in p["rows"] if r["what"] not in ("process", "driver", "kernel", "slack", "server")]
        return rows, [{k: v for k, v in s.items() if k not in ("device", "id", "host_bytes")} for s in p["stages"]]
    t.memory("1024")
    for more in ([], ["--experts", "streamed", "--vram", "220MiB"]):
        code, p, err = t.plan("--device", "cuda:0", *more)
        vram = ["--vram", str(p["stages"][0]["vram_budget_bytes"])] if p and not more else []
        planned = t.plan("--card", "2GiB", *more, *vram)
        t.check(f"planned as if there {' '.join(more[:2])}", code == 0 and planned[0] == 0 and
                bare(p) == bare(planned[1]) and p["causal_ceiling_ts"] == planned[1]["causal_ceiling_ts"],
                (err, planned[2], p and bare(p), planned[1] and bare(planned[1])))
    code, p, err = t.plan("--card", "2GiB,3GiB")
    t.check("two cards", code == 0 and [s["layers"] > 0 for s in p["stages"]] == [True, True], err or p)
    code, p, err = t.plan("--card", "2GiB")
    t.check("its context is not free", code == 0 and 900 << 20 < p["stages"][0]["vram_budget_bytes"] < 1100 << 20 and
            "planned GPU of 2.0 GiB" in p["stages"][0]["device"], err or p)
    code, p, err = t.plan("--card", "100MiB")
    t.check("too small a card", code == 1 and p and not p["fits"] and p["vram_least_bytes"] > 16 << 20, err or p)


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory(prefix="sluice-gpus-") as folder:
        t = Tests(*[os.path.abspath(a) for a in sys.argv[1:4]], folder)
        code, p, err = t.plan("--device", "cuda")
        if code:
            print(f"1..0 # SKIP {err.strip()}")
            sys.exit(77)
        t.n_layer = p["stages"][0]["layers"]
        t.divided("one GPU", ["--device", "cuda:2"], [2], [t.n_layer])
        t.divided("all GPUs", ["--device", "cuda:all"], [0, 1, 2, 3], None)
        t.divided("two by name", ["--device", "cuda:3,1"], [3, 1], None)
        t.divided("layers by number", ["--device", "cuda:0,1", "--split", f"1,{t.n_layer - 1}"], [0, 1], [1, t.n_layer - 1])
        t.divided("as many as there are numbers", ["--device", "cuda", "--split", f"2,1,{t.n_layer - 3}"], [0, 1, 2],
                  [2, 1, t.n_layer - 3])
        t.divided("auto is said", ["--device", "cuda:0,1", "--split", "auto"], [0, 1], None)
        p = t.divided("the same one twice", ["--device", "cuda:0,0"], [0, 0], None)
        free = sum(s["vram_budget_bytes"] for s in p["stages"]) if p else 0
        t.check("... whose memory is halved", (300 << 20) < free <= (512 << 20), free)
        p = t.divided("a budget for each", ["--device", "cuda:0,1", "--vram", "300M,400MiB"], [0, 1], None)
        t.check("... as given", p and [s["vram_budget_bytes"] >> 20 for s in p["stages"]] == [300, 400], p)
        p = t.divided("one budget for all", ["--device", "cuda:0,1", "--vram", "300M"], [0, 1], None)
        t.check("... as given", p and [s["vram_budget_bytes"] >> 20 for s in p["stages"]] == [300, 300], p)
        t.check("ceilings", p and p["causal_ceiling_ts"] > 0 and p["pipelined_ceiling_ts"] > 1.5 * p["causal_ceiling_ts"], p)
        t.refused("a split of other layers", ["--device", "cuda:0,1", "--split", "1,1"], "must sum to")
        t.refused("a split for others", ["--device", "cuda:0,1,2", "--split", f"1,{t.n_layer - 1}"], "3 are named", 2)
        t.refused("a split and no GPUs", ["--split", f"1,{t.n_layer - 1}"], "--device cuda:0,1", 2)
        t.refused("a split on the CPU", ["--device", "cpu", "--split", f"1,{t.n_layer - 1}"], "--device cuda:0,1", 2)
        t.refused("no split", ["--device", "cuda:0,1", "--split", "half"], "must be auto", 2)
        t.refused("three budgets for two", ["--device", "cuda:0,1", "--vram", "1G,1G,1G"], "3 sizes of device memory for 2 devices", 2)
        t.refused("a budget that is none", ["--device", "cuda:0,1", "--vram", "1G,"], "--vram is '1G,'", 2)
        t.refused("nothing", ["--vram", "1G,0"], "--vram 0 leaves nothing", 2)
        t.refused("a GPU that is not there", ["--device", "cuda:0,7"], "there are 4 GPUs")
        t.refused("... and which are", ["--device", "cuda:7"], "here are cuda:0, cuda:1, cuda:2, cuda:3, cpu")
        t.refused("no such device", ["--device", "cuda:0;1"], "must be auto", 2)
        t.refused("... and which there are", ["--device", "tpu"], "here are cuda:0, cuda:1, cuda:2, cuda:3, cpu", 2)
        # What is too little says what is not, and that is.
        for split in ("auto", f"1,{t.n_layer - 1}"):
            options = ["--device", "cuda:0,1", "--split", split]
            code, p, err = t.plan(*options, "--vram", "2MiB")
            t.check(f"too little, split {split}", code == 1 and p and not p["fits"] and p["vram_least_bytes"] > 0, err or p)
            each = (p["vram_least_bytes"] // 2,) * 2 if p else (0,)
            if split != "auto" and p:  # said for this split
                each = re.search(r"for all of them: --vram (\d+MiB),(\d+MiB)", p["error"]).groups()
            least = ",".join(str(v) for v in each)
            t.check("... and the least will do", t.plan(*options, "--vram", least)[0] == 0, least)
        code, text, err = t.plan("--device", "cuda:0,1", as_json=False)
        t.check("for people", code == 0 and "layers 0 to" in text and "on cuda:1:" in text and "the process" in text and
                "--vram " in text and "2 x Fake GPU" not in text and "keep all devices busy" in text, text + err)
        t.check("... each with the weights it has", "its layers, embedding\n" in text and "its layers, output\n" in text and
                "every layer" not in text, text)
        code, text, err = t.plan("--vram", "1M", as_json=False)
        t.check("no GPU that fits: on the CPU, and why, said once", code == 0 and err.count("\n") == 1 and
                "computing on the CPU, --vram is not used" in err and "budget of 1.0 MiB of the device's" in err, err)
        t.memory("36,1024")
        t.divided("the first GPU that the model fits, where an earlier one is too small", ["--vram-reserve-mib", "8"], [1], [t.n_layer])
        t.memory("1024")
        code, text, err = t.plan("--device", "cuda:0,1", "--vram", "2G", as_json=False)
        t.check("more than is free, said once of each", code == 0 and err.count("that --vram allows") == 2, err)
        # Of unlike GPUs the one with less memory gets fewer layers, and what it cannot take is said of it.
        unlike = ["--device", "cuda:0,1", "--vram-reserve-mib", "8"]
        for mib, more in (("1024,38", 0), ("38,1024", 1)):
            t.memory(mib)
            p = t.divided(f"GPUs of {mib} MiB", unlike, [0, 1], None)
            t.check("... the larger one has more layers", p and p["stages"][more]["layers"] > p["stages"][1 - more]["layers"], p)
        t.memory("1024,36")
        t.refused("half the layers on one that is too small", unlike + ["--split", f"{t.n_layer // 2},{t.n_layer - t.n_layer // 2}"],
                  "on cuda:1: ")
        t.memory("1024,10")
        t.refused("no room to begin with", unlike, "cuda:1: cannot allocate", logged=2)
        t.memory("1024")
        # The kernels do nothing here, so answers say nothing; threads, copies and waits are the real ones.
        t.runs("two GPUs run", ["--device", "cuda:0,1"])
        t.serves("four GPUs serve", ["--device", "cuda:all"])
        t.serves("two parts of one serve", ["--device", "cuda:0,0"])
        for devices in ("0,1", "0,1,0,1", "0,0,1,1"):
            t.serves(f"{devices} serve, experts in tiers", t.in_tiers(devices))
        t.serves("two parts of each of two serve", ["--device", "cuda:0,1,0,1"])
        kinds(t)
        listed(t)
        cards(t)
        one_queue(t, folder)
        known_routing(t, folder)
        print(f"1..{t.n}")
        sys.exit(1 if t.failed else 0)


main()
