#!/usr/bin/env python3
"""The files under deploy/ against what they are for, as far as it can be told without the programs that read them.

usage: check.py SLUICE

The Containerfile keeps the usual rules, builds with the packages that scripts/install_deps.sh names, and its image
has the libraries that the program is linked with; the seccomp profile names system calls that there are, and those
without which the image does not start or is never healthy; nobody but this machine reaches what nginx's and compose's files
open, and no password is a default; the unit's, nginx's and the completion's own checkers find nothing; man pages have all
that --help has.
TAP."""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

try:
    import yaml
except ImportError:
    yaml = None

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEPLOY = os.path.join(ROOT, "deploy")


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as f:
        return f.read()


def instructions(text):
    """[(NAME, the rest)], with lines joined and comments dropped."""
    joined, out = "", []
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        joined += line.rstrip()
        if joined.endswith("\\"):
            joined = joined[:-1] + " "
            continue
        name, _, rest = joined.partition(" ")
        out.append((name, rest.strip()))
        joined = ""
    return out


def installed(run):
    """Packages of an apt-get install, or None."""
    m = re.search(r"apt-get install (.*?)(?:&&|$)", run)
    return [w for w in shlex.split(m.group(1)) if not w.startswith("-")] if m else None


def containerfile_faults(text):
    faults, steps = [], instructions(text)
    last = max((i for i, (name, _) in enumerate(steps) if name == "FROM"), default=-1)
    stages = set()
    for name, rest in steps:
        if name == "FROM":
            image, *alias = re.split(r"\s+AS\s+", rest, flags=re.I)
            if image not in stages and (":" not in image or image.endswith(":latest")):
                faults.append(f"FROM {image} has no tag")
            stages.update(alias)
        if name == "ADD":
            faults.append("ADD where COPY does")
        if name == "WORKDIR" and not rest.startswith("/"):
            faults.append(f"WORKDIR {rest} is not absolute")
        if name == "HEALTHCHECK" and not re.search(r"CMD \[.*\]$", rest):
            faults.append(f"{name} is not in exec form, so it would need a shell")
        if name in ("ENTRYPOINT",) and not rest.startswith("["):
            faults.append(f"{name} is not in exec form, so it would not get SIGTERM")
        if name == "RUN" and "apt-get install" in rest:
            for part in ("apt-get update &&", "-y", "--no-install-recommends", "rm -rf /var/lib/apt/lists/*"):
                if part not in rest:
                    faults.append(f"RUN apt-get install without '{part}'")
        if name == "RUN" and re.search(r"\bsudo\b|\bcurl\b[^|]*\|", rest):
            faults.append(f"RUN {rest}")
    final = steps[last + 1:]
    users = [rest for name, rest in final if name == "USER"]
    if not users or not re.fullmatch(r"[1-9]\d*(:\d+)?", users[-1]):
        faults.append("the image's USER is not a number other than 0")  # a name cannot be checked by a cluster
    names = [name for name, _ in final]
    for one in ("ENTRYPOINT", "HEALTHCHECK"):
        if names.count(one) != 1:
            faults.append(f"there are {names.count(one)} {one}")
    return faults


def package_faults(text, sluice):
    runs = [installed(rest) for name, rest in instructions(text) if name == "RUN"]
    build, image = [set(p) for p in runs if p]
    want = set(re.search(r'^build="(.*)"', read("scripts", "install_deps.sh"), re.M).group(1).split())
    faults = [f"the build lacks {p}" for p in sorted(want - build)]
    faults += [f"the build has {p}, which scripts/install_deps.sh does not name" for p in sorted(build - want)]
    linked = subprocess.run(["readelf", "-d", sluice], capture_output=True, text=True, check=True).stdout
    libs = set(re.findall(r"\(NEEDED\).*\[(lib[a-z0-9_-]+)\.so", linked)) - {"libc", "libm", "libpthread"}
    for lib in sorted(libs - {"libasan", "libubsan", "libtsan", "libgcc_s"}):
        lib = {"libcurl-gnutls": "libcurl3-gnutls"}.get(lib, lib)  # named for another library's version
        if not any(p.startswith(lib) for p in image):
            faults.append(f"the image lacks {lib}")
    return faults


def last_image_faults(text, cuda):
    """The images that come out differ in what the container toolkit is told, and nothing else."""
    def last(t):
        steps = instructions(t)
        return steps[max(i for i, (name, _) in enumerate(steps) if name == "FROM"):]

    return [f"only one of the files has: {name} {rest}" for name, rest in set(last(text)) ^ set(last(cuda)) if not rest.startswith("NVIDIA_VISIBLE_DEVICES=")]


def profile_faults(profile):
    faults, allowed = [], set()
    if profile["defaultAction"] != "SCMP_ACT_ERRNO":
        faults.append("what is not named is not refused")
    for rule in profile["syscalls"]:
        if rule["action"] == "SCMP_ACT_ALLOW":
            allowed |= set(rule["names"])
    numbers = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"
    if os.path.exists(numbers):
        with open(numbers, encoding="ascii") as f:
            known = set(re.findall(r"#define __NR_(\w+)", f.read()))
        faults += [f"there is no system call {n}" for n in sorted(allowed - known)]
    # To start as the image's user under one runtime or the other, the program's start and health check, and reading.
    needed = {"umask", "connect", "sendto", "recvfrom", "poll", "prlimit64", "setuid", "setgid", "setgroups", "setresuid", "setresgid", "capset", "execve", "vfork", "clone", "clone3", "wait4", "io_uring_setup", "io_uring_enter",
              "io_uring_register", "accept4", "flock", "fdatasync", "renameat2", "madvise"}
    faults += [f"{n} is refused" for n in sorted(needed - allowed)]
    never = {"ptrace", "mount", "umount2", "bpf", "init_module", "kexec_load", "reboot", "setns", "unshare", "pivot_root", "process_vm_writev", "userfaultfd", "keyctl"}
    faults += [f"{n} is allowed" for n in sorted(never & allowed)]
    return faults


def said_by(tool, *args):
    """What a checker has against a file; None without the checker."""
    if not shutil.which(tool):
        return None
    p = subprocess.run([tool, *args], capture_output=True, text=True)
    return [] if p.returncode == 0 else [(p.stdout + p.stderr).strip()]


def unit_faults(text, sluice, dropin=""):
    """systemd wants the program to be where the unit says. What it only warns of counts as well."""
    if not shutil.which("systemd-analyze"):
        return None
    with tempfile.TemporaryDirectory() as folder:
        unit = os.path.join(folder, "sluice.service")
        with open(unit, "w", encoding="utf-8") as f:
            f.write(text.replace("/usr/bin/sluice", os.path.abspath(sluice)))
        os.mkdir(unit + ".d")
        with open(os.path.join(unit + ".d", "dropin.conf"), "w", encoding="utf-8") as f:
            f.write(dropin)
        p = subprocess.run(["systemd-analyze", "verify", "--man=no", "sluice.service"], capture_output=True, text=True, env={**os.environ, "SYSTEMD_UNIT_PATH": folder + ":"})
        return [line for line in (p.stdout + p.stderr).splitlines() if "sluice" in line]


def unit_rules(text):
    """What systemd does not ask for."""
    return [f"the unit lacks {line}" for line in ("LimitCORE=0", "DynamicUser=yes", "UMask=0077", "NoNewPrivileges=yes", "CapabilityBoundingSet=") if line not in text.split("\n")]


LOOPBACK = r"(127\.0\.0\.1|\[::1\])"


def nginx_rules(text):
    """It is open to this machine alone: the servers behind it need have no keys."""
    listens = re.findall(r"^\s*listen\s+([^;]*);", text, re.M)
    return ([] if listens else ["nothing listens"]) + [f"nginx listens on {at}" for at in listens if not re.match(LOOPBACK + r":\d+$", at)]


def nginx_faults(text):
    nginx = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
    with tempfile.TemporaryDirectory() as folder:
        conf = os.path.join(folder, "nginx.conf")
        with open(conf, "w", encoding="utf-8") as f:
            f.write(f"pid {folder}/pid; error_log stderr; events {{}} http {{ access_log off; {text} }}\n")
        return said_by(nginx, "-t", "-q", "-e", "stderr", "-c", conf) if nginx else None


def compose_faults(text):
    services = dict(re.findall(r"^  (\w+):\n((?:    .*\n)+)", text, re.M))
    ports = [p for body in services.values() for p in re.findall(r"\"([^\"]+)\"", "".join(re.findall(r"^ +ports: (\[.*\])$", body, re.M)))]
    faults = [f"port {p} is open to others" for p in ports if not re.match(LOOPBACK + ":", p)]
    if len(services) != 3 or len(ports) != 2 or text.count("ports:") != 2:
        faults.append(f"{', '.join(services)} with ports {ports}: not what this check knows")
    if not re.search(r"^ +GF_SECURITY_ADMIN_PASSWORD: \$\{GRAFANA_ADMIN_PASSWORD:\?[^}]+\}$", text, re.M):
        faults.append("Grafana's admin has a password that is known, or may be empty")
    return faults + [f"{name} lacks {what}" for name, body in services.items() for what in ("no-new-privileges:true", "cap_drop: [ALL]", "networks:") if what not in body]


def containers(value):
    """(pod's spec, container) of every container below."""
    if isinstance(value, dict):
        for c in value.get("containers", []):
            yield value, c
        for v in value.values():
            yield from containers(v)
    elif isinstance(value, list):
        for v in value:
            yield from containers(v)


def manifest_faults(text, sluice):
    """None: there is no Python yaml."""
    if yaml is None:
        return None
    faults, n = [], 0
    for pod, c in (found for d in yaml.safe_load_all(text) for found in containers(d)):
        n += 1
        command, *args = c["args"]
        known = {word for line in said(sluice, command, "--list-options").splitlines() for word in line.split("\t")[:1]}
        faults += [f"{command} has no option {a}" for a in args if a.startswith("--") and a not in known]
        security = c["securityContext"]
        if security["allowPrivilegeEscalation"] or not security["readOnlyRootFilesystem"] or security["capabilities"] != {"drop": ["ALL"]}:
            faults.append(f"{command} may do more than it must")
        if not pod["securityContext"]["runAsNonRoot"] or pod["automountServiceAccountToken"] or "seccompProfile" not in pod["securityContext"]:
            faults.append(f"{command}'s pod may do more than it must")
        if not any(e["name"] == "SLUICE_CLUSTER_KEY" and "secretKeyRef" in e["valueFrom"] for e in c["env"]):
            faults.append(f"{command} has no key from a Secret")
        if {m["name"] for m in c["volumeMounts"]} - {v["name"] for v in pod["volumes"]}:
            faults.append(f"{command} mounts what is no volume")
        ports = {p["name"] for p in c["ports"]}
        for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
            of = c.get(probe, {})
            if of and (of.get("httpGet") or of.get("tcpSocket"))["port"] not in ports:
                faults.append(f"{command}: {probe} asks a port that has no name")
        given, most = args[args.index("--ram") + 1], c["resources"]["limits"]["memory"]
        if int(given.removesuffix("GiB")) >= int(most.removesuffix("Gi")):
            faults.append(f"{command}: --ram {given} leaves nothing of {most}")
    return faults if n else ["no container was found"]


# The fields of LeaderWorkerSet's API, v1, whose schema nobody packages: of the set, and of its template.
LWS = {"replicas", "leaderWorkerTemplate", "rolloutStrategy", "startupPolicy", "networkConfig"}
LWS_TEMPLATE = {"leaderTemplate", "workerTemplate", "size", "restartPolicy", "subGroupPolicy", "volumeClaimTemplates", "persistentVolumeClaimRetentionPolicy"}
LWS_RESTARTS = {"Default", "RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None"}
VERSIONS = {"Service": "v1", "StatefulSet": "apps/v1", "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1"}


def structure_faults(text):
    """Whether the documents fit one another, as no schema says. None: there is no Python yaml."""
    if yaml is None:
        return None
    documents, faults, pods = list(yaml.safe_load_all(text)), [], []
    services = {d["metadata"]["name"]: d["spec"] for d in documents if d["kind"] == "Service"}
    for d in documents:
        name, spec = d["metadata"]["name"], d["spec"]
        if VERSIONS.get(d["kind"]) != d["apiVersion"]:
            faults.append(f"{d['apiVersion']} {d['kind']}: a version that is not served")
        if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name):
            faults.append(f"{name} is no name")
        if d["kind"] == "StatefulSet":
            labels = spec["template"]["metadata"]["labels"]
            pods.append(spec["template"])
            if spec["selector"]["matchLabels"].items() - labels.items():
                faults.append(f"{name} does not select its own pods")
            own = services.get(spec["serviceName"])
            if own is None or own["selector"].items() - labels.items():
                faults.append(f"{name} has no service of its pods")
            elif own.get("clusterIP") != "None" and f"{name}-0.{spec['serviceName']}" in text:
                faults.append(f"{name}'s pods are asked for by name, and have none: their service is not headless")
        if d["kind"] == "LeaderWorkerSet":
            t = spec["leaderWorkerTemplate"]
            pods += [t["leaderTemplate"], t["workerTemplate"]]
            faults += [f"{name} has no field {f}" for f in (set(spec) - LWS) | (set(t) - LWS_TEMPLATE)]
            if not isinstance(t["size"], int) or t["size"] < 2 or t["restartPolicy"] not in LWS_RESTARTS:
                faults.append(f"{name}: size or restartPolicy is not what may be")
    for name, spec in services.items():
        theirs = [p for p in pods if not spec["selector"].items() - p["metadata"]["labels"].items()]
        named = {port["name"]: port["containerPort"] for p in theirs for c in p["spec"]["containers"] for port in c["ports"]}
        for port in spec["ports"]:
            to = port.get("targetPort", port["port"])
            if to not in named and to not in named.values():
                faults.append(f"{name}: no pod that it selects has port {to}")
    for p in pods:
        mounted = {m["mountPath"] for c in p["spec"]["containers"] for m in c["volumeMounts"]}
        for c in p["spec"]["containers"]:
            paths = [a for a in c["args"] if a.startswith("/")]
            faults += [f"{c['args'][0]}: {path} is on no volume" for path in paths if not any(path.startswith(m + "/") for m in mounted)]
    return faults


def schema_faults(text):
    """By Kubernetes' published schemas. None: they are not here."""
    if yaml is None or not shutil.which("node"):
        return None
    p = subprocess.run(["node", os.path.join(ROOT, "tests", "deploy", "manifests.mjs")], input=json.dumps(list(yaml.safe_load_all(text))), capture_output=True, text=True)
    return None if p.returncode == 77 else json.loads(p.stdout) if not p.returncode else [p.stderr.strip()]


def said(*command):
    return subprocess.run(command, capture_output=True, text=True).stdout


def man_faults(program, folder):
    """Of the pages: every option of --help with its text, a name that is no more than a phrase, and nothing that man warns of."""
    faults = []
    subprocess.run([os.path.join(DEPLOY, "man", "make_man.py"), os.path.abspath(program), folder], check=True)
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8") as f:
            page = f.read().replace("\\-", "-")
        what = re.search(r"^\.SH NAME\n(.*)\n\.SH SYNOPSIS$", page, re.M)
        if not what or len(what.group(1)) > 90 or not re.search(r"^\.SH DESCRIPTION\n(\.PP\n)?[A-Z]", page, re.M):
            faults.append(f"{name}: NAME or DESCRIPTION is not what the help begins with")
        command = name.removesuffix(".1").partition("-")[2]
        text = subprocess.run([program, *filter(None, [command]), "--help"], capture_output=True, text=True, check=True).stdout
        wanted = re.findall(r"^ {2,6}(?:-\w, )?(--[a-z-]+)", text, re.M) if command else []
        told = re.findall(r"^\.TP\n\\fB(?:-\w, )?(--[a-z-]+)(?: \S+)?\\fR\n[^.\n]", page, re.M)
        if told != wanted:
            faults.append(f"{name}: not an option with its text: {' '.join(sorted(set(wanted) ^ set(told))) or 'their order'}")
        variables = [f"SLUICE_{w[2:].upper().replace('-', '_')}" for w in wanted if w not in ("--help", "--api-key")]
        if re.findall(r"^\.TP\n\\fB(SLUICE_[A-Z_]+)\\fR$", page, re.M) != variables:
            faults.append(f"{name}: ENVIRONMENT does not name the variables of its options")
        if shutil.which("man"):
            p = subprocess.run(["man", "--warnings", "-l", os.path.join(folder, name)], capture_output=True, text=True)
            faults += [f"{name}: {p.stderr.strip()}"] if p.returncode or p.stderr.strip() else []
    return faults


def completed(words, program):
    """What sluice.bash offers for the last of the words, as bash has cut them."""
    script = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _sluice; echo "${COMPREPLY[*]}"'
    return subprocess.run(["bash", "-c", script, "-", os.path.join(DEPLOY, "completion", "sluice.bash"), os.path.abspath(program), *words],
                          capture_output=True, text=True).stdout.strip()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    n = 0

    def report(name, wrong):
        nonlocal n
        n += 1
        print(f"{'not ok' if wrong else 'ok'} {n} - {name}{' # SKIP its checker is not here' if wrong is None else ''}")
        for w in wrong or []:
            print(f"  {w}")

    unit = read("deploy", "systemd", "sluice.service")
    text, profile = read("deploy", "container", "Containerfile"), json.loads(read("deploy", "container", "seccomp.json"))
    # The checks can fail.
    bad = [re.sub(r'CMD \["/usr/bin/sluice", "health".*', "CMD sluice health", text), "FROM debian\n" + text, text.replace("USER 10001", "USER sluice"), text.replace("USER 10001", ""), text.replace(" --no-install-recommends", "", 1),
           text.replace("COPY . .", "ADD . ."), text.replace('ENTRYPOINT ["/usr/bin/sluice", ', 'ENTRYPOINT /usr/bin/sluice ["')]
    passed = [f"case {i} passed" for i, b in enumerate(bad) if not containerfile_faults(b)]
    passed += [f"without {p} it passed" for p in ("libjansson4", "liburing-dev") if not package_faults(text.replace(f" {p}", ""), sys.argv[1])]
    passed += [] if last_image_faults(text, text.replace("USER 10001", "USER 10002")) else ["another image passed"]
    less = json.loads(json.dumps(profile).replace('"vfork"', '"vfrok"'))
    passed += [] if len(profile_faults(less)) >= 1 else ["a misspelt call passed"]
    passed += [] if unit_faults(unit.replace("RestartSec=", "RestartSecs="), sys.argv[1]) != [] else ["a misspelt setting passed"]
    dropin = read("deploy", "systemd", "behind-nginx.conf")
    passed += [] if unit_faults(unit, sys.argv[1], dropin.replace("Group=", "Groups=")) != [] else ["a misspelt setting of a drop-in passed"]
    nginx, compose = read("deploy", "nginx", "sluice.conf"), read("deploy", "monitoring", "docker-compose.yml")
    passed += [f"listen {at} passed" for at in ("8080", "0.0.0.0:8080", "[::]:8080", "*:80") if not nginx_rules(nginx.replace("listen 127.0.0.1:8080", f"listen {at}"))]
    bad = [compose.replace('"127.0.0.1:3000', '"3000'), compose.replace(":?choose one: GRAFANA_ADMIN_PASSWORD=...", ":-admin"), compose.replace("GF_SECURITY_", "GF_"),
           compose.replace("cap_drop: [ALL]", "", 1), compose.replace("networks: [figures]", "", 1)]
    passed += [f"compose case {i} passed" for i, b in enumerate(bad) if not compose_faults(b)]
    passed += [] if unit_rules(unit.replace("LimitCORE=0", "")) else ["a unit that writes core files passed"]
    report("the checks find what is wrong", passed)
    report("Containerfile", containerfile_faults(text))
    report("its packages", package_faults(text, sys.argv[1]))
    cuda = read("deploy", "container", "Containerfile.cuda")
    report("Containerfile.cuda", containerfile_faults(cuda) + package_faults(cuda, sys.argv[1]) + last_image_faults(text, cuda))
    report("seccomp.json", profile_faults(profile))
    report("sluice.service", unit_faults(unit, sys.argv[1]))
    worker = read("deploy", "systemd", "sluice-worker.service")
    report("sluice-worker.service", unit_faults(worker, sys.argv[1]))
    report("what the worker keeps from others", unit_rules(worker))
    report("behind-nginx.conf", unit_faults(unit, sys.argv[1], dropin))
    report("sluice-web.conf", said_by("systemd-sysusers", "--dry-run", os.path.join(DEPLOY, "systemd", "sluice-web.conf")))
    report("what it keeps from others", unit_rules(unit))
    report("nginx/sluice.conf", nginx_faults(nginx))
    report("who reaches it", nginx_rules(nginx))
    report("docker-compose.yml", compose_faults(compose))
    for name in ("leaderworkerset.yaml", "statefulset.yaml"):
        manifest = read("deploy", "kubernetes", name)
        report(f"kubernetes/{name}", manifest_faults(manifest, sys.argv[1]))
        bad = [manifest.replace("--worker-wait", "--worker-waits"), manifest.replace("drop: [ALL]", "drop: []"), manifest.replace("28GiB", "30GiB"),
               manifest.replace("runAsNonRoot: true", "runAsNonRoot: false"), manifest.replace("name: SLUICE_CLUSTER_KEY", "name: KEY")]
        report("what is wrong in it is found", None if yaml is None else [f"case {i} passed" for i, b in enumerate(bad) if not manifest_faults(b, sys.argv[1])])
        report("its parts fit one another", structure_faults(manifest))
        selected = "role: leader" if "LeaderWorkerSet\nmetadata" in manifest else "role: worker"
        bad = [manifest.replace(selected, "role: none", 1), manifest.replace("mountPath: /models", "mountPath: /model"), manifest.replace("name: http, containerPort", "name: htpp, containerPort"),
               manifest.replace("kind: Service", "kind: Sevrice"),
               *([manifest.replace("restartPolicy: None", "restartPolicy: Never"), manifest.replace("replicas: 1", "replica: 1")] if selected == "role: leader" else
                 [manifest.replace("clusterIP: None", "type: ClusterIP"), manifest.replace("serviceName: ", "serviceName: a")])]
        report("what does not is found", None if yaml is None else [f"case {i} passed" for i, b in enumerate(bad) if b == manifest or not structure_faults(b)])
        report("Kubernetes' published schemas", schema_faults(manifest))
        bad = [manifest.replace("containerPort: 7070", 'containerPort: "7070"'), manifest.replace("readOnlyRootFilesystem", "readonlyRootFilesystem"), manifest.replace("image: ", "imgae: "),
               manifest.replace("periodSeconds: 5", "periodSeconds: often"), manifest.replace("name: cache, mountPath", "nmae: cache, mountPath")]
        report("what is wrong by them is found", None if schema_faults(manifest) is None else [f"case {i} passed" for i, b in enumerate(bad) if not schema_faults(b)])
    report("slurm/sluice.sbatch", said_by("bash", "-n", os.path.join(DEPLOY, "slurm", "sluice.sbatch")))
    report("sluice.bash", said_by("bash", "-n", os.path.join(DEPLOY, "completion", "sluice.bash")))
    asked = [(["pl"], "plan"), (["plan", "--spl"], "--split"), (["serve", "--device", "c"], "cuda cuda:all cpu"), (["run", "--device", "cuda", ":"], "all"),
             (["run", "--device", "cuda", ":", "a"], "all"), (["serve", "--kv-type", "q"], "q8_0")]
    report("what it completes", [f"{words}: {got!r}, not {wanted!r}" for words, wanted in asked if (got := completed(words, sys.argv[1])) != wanted])
    with tempfile.TemporaryDirectory() as folder:
        report("man pages", man_faults(sys.argv[1], folder))
    report("make_dist.sh, check_image.sh, install_deps.sh", sum((said_by("sh", "-n", os.path.join(ROOT, "scripts", s)) or [] for s in ("make_dist.sh", "check_image.sh", "install_deps.sh")), []))
    print(f"1..{n}")


main()
