#!/usr/bin/env python3
"""What deploy/ starts, started: the image's health check against its ENTRYPOINT with other ports, TLS and keys; and nginx
with deploy/nginx/sluice.conf in front of a server that runs with the users, groups, modes and options that the unit, its
drop-in and the group's file say.

usage: serving.py SLUICE

Users and groups are numbers, so none is made; what systemd does to start the unit is done by setpriv. TAP."""
import json
import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from support.ports import free_port  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = os.path.join(ROOT, "demo", "demo.gguf")
PATIENCE_S = 120  # the machine may be busy
SOCKET = "/run/sluice/http.sock"
# A user as DynamicUser= makes them (61184 to 65519), and what sysusers could give the group; unused here.
DYNAMIC, WEB_GROUP, STRANGER = 65000, 64000, 63000


def read(*path):
    with open(os.path.join(ROOT, "deploy", *path), encoding="utf-8") as f:
        return f.read()


def until(true):
    end = time.monotonic() + PATIENCE_S
    while not (done := true()) and time.monotonic() < end:
        time.sleep(0.05)
    return done


def run(*command):
    """(exit code, what was said)"""
    p = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE_S)
    return p.returncode, p.stdout


def status(url, body=None):
    """The HTTP status, or None where nobody answers."""
    try:
        with urllib.request.urlopen(url, body, PATIENCE_S) as r:
            return r.status
    except urllib.error.HTTPError as e:
        return e.code
    except OSError:
        return None


def end(process):
    if process.poll() is None:
        process.terminate()
    try:
        return process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


# ---- the image ----


def health_check(sluice):
    """ENTRYPOINT and HEALTHCHECK of the Containerfile, with the program and a folder of this machine."""
    text = re.sub(r"\\\n", " ", read("container", "Containerfile"))
    entry = json.loads(re.search(r"^ENTRYPOINT (\[.*\])", text, re.M)[1])
    check = json.loads(re.search(r"^HEALTHCHECK .*CMD (\[.*\])", text, re.M)[1])
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        here = {"/usr/bin/sluice": sluice, SOCKET: os.path.join(folder, "http.sock")}
        entry, check = ([here.get(word, word) for word in words] for words in (entry, check))
        keys, cert, key = (os.path.join(folder, name) for name in ("keys", "cert.pem", "key.pem"))
        with open(keys, "w", encoding="ascii") as f:
            f.write("a-key\n")
        made = run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2", "-keyout", key, "-out", cert)
        faults += [f"openssl: {made[1]}"] if made[0] else []
        if run(*check)[0] != 1:
            faults.append("healthy before it was started")
        kinds = [("as it is", []), ("another port and keys", ["--port", str(free_port()), "--api-key-file", keys]),
                 ("TLS", ["--port", str(free_port()), "--tls-cert", cert, "--tls-key", key, "--api-key-file", keys]), ("no address", ["--host", "none"])]
        for name, more in kinds:
            words = [w for w in entry if w not in ("--host", "0.0.0.0")] if "--host" in more else [*entry]
            if "--port" not in more:
                words += ["--port", "0"]  # the image's may be taken here
            server = subprocess.Popen([*words, "-m", MODEL, "--device", "cpu", *more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if not until(lambda: server.poll() is not None or run(*check)[0] == 0) or server.poll() is not None:
                faults.append(f"{name}: never healthy: {run(*check)}")
            elif name == "as it is":
                server.send_signal(19)  # SIGSTOP: alive, and no use to anybody
                code, said = run(*check, "--timeout-s", "1")
                faults += [f"healthy while it hangs: {said}"] if code != 1 else []
                server.send_signal(18)
            code = end(server)
            faults += [f"{name}: ended with {code}"] if code else []
        with socket.socket(socket.AF_UNIX) as other:  # not HTTP
            other.bind(here[SOCKET])
            other.listen()
            probe = subprocess.Popen(check, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            client, _ = other.accept()
            client.sendall(b"220 mail.example ESMTP\r\n")
            client.close()
            said = probe.communicate(timeout=PATIENCE_S)[0]
            faults += [f"healthy without HTTP: {said}"] if probe.returncode != 1 else []
    return faults


# ---- nginx ----


def as_user(uid, gid, *groups):
    return ["setpriv", "--reuid", str(uid), "--regid", str(gid), *(["--groups", ",".join(map(str, groups))] if groups else ["--clear-groups"]), "--"]


def setting(name, *texts):
    """The last one, as with drop-ins."""
    found = [m for text in texts for m in re.findall(rf"^{name}=(.*)$", text, re.M)]
    return found[-1] if found else None


def nginx_conf(folder, sock, port):
    """deploy/nginx/sluice.conf with the UNIX socket in place of its servers, in the least that goes around it."""
    text = read("nginx", "sluice.conf")
    text, n = re.subn(r"^    server [\d.:]+ .*;\n", "", text, flags=re.M)
    text, m = re.subn(rf"^    # (server unix:){re.escape(SOCKET)}", rf"    \g<1>{sock}", text, flags=re.M)
    text, l = re.subn(r"^    listen 127\.0\.0\.1:8080;", f"    listen 127.0.0.1:{port};", text, flags=re.M)
    assert n >= 1 and m == 1 and l == 1, "deploy/nginx/sluice.conf is not what this test knows"
    temp = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    at = os.path.join(folder, "nginx.conf")
    with open(at, "w", encoding="utf-8") as f:
        f.write(f"daemon off; pid {folder}/pid; error_log {folder}/error.log; events {{}} http {{ access_log off; {temp}\n{text}\n}}\n")
    return at


def behind_nginx(sluice, dropin, groups, folder):
    """The status of /health, of a conversation by way of nginx, and of a stranger's attempt on the socket."""
    unit = read("systemd", "sluice.service")
    told = re.search(r"--host none --unix-socket.*", read("systemd", "behind-nginx.conf"))[0].split()
    web = pwd.getpwnam("www-data")
    gid = WEB_GROUP if setting("Group", dropin) == "sluice-web" else DYNAMIC
    runtime, own = os.path.join(folder, "run"), os.path.join(folder, "nginx")
    os.mkdir(runtime)
    os.chown(runtime, DYNAMIC, gid)
    os.chmod(runtime, int(setting("RuntimeDirectoryMode", unit, dropin) or "0755", 8))
    os.mkdir(own)
    os.chown(own, web.pw_uid, web.pw_gid)
    sock, port = os.path.join(runtime, "http.sock"), free_port()
    umask = setting("UMask", unit)
    server = subprocess.Popen([*as_user(DYNAMIC, gid), "sh", "-c", f'umask {umask}; exec "$@"', "-", sluice, "serve", "--model", MODEL, "--device", "cpu",
                               *[sock if w == SOCKET else w for w in told]], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    nginx = None
    try:
        healthy = until(lambda: server.poll() is not None or run(sluice, "health", "--unix-socket", sock)[0] == 0)
        assert healthy and server.poll() is None, server.stderr.read() if server.poll() is not None else "it is not healthy"
        nginx = subprocess.Popen([*as_user(web.pw_uid, web.pw_gid, *groups), "nginx", "-p", own, "-e", f"{own}/error.log", "-c", nginx_conf(own, sock, port)],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        url = f"http://127.0.0.1:{port}"
        assert until(lambda: nginx.poll() is not None or status(url + "/health")) and nginx.poll() is None, open(f"{own}/error.log", encoding="utf-8").read()
        body = b'{"messages":[{"role":"user","content":"What is 2 + 3?"}],"max_tokens":8,"temperature":0}'
        stranger = run(*as_user(STRANGER, STRANGER), sluice, "health", "--unix-socket", sock)
        return status(url + "/health"), status(url + "/v1/chat/completions", body), status(url + "/metrics"), stranger[0]
    finally:
        if nginx:
            end(nginx)
        end(server)
        server.stderr.close()


def nginx_in_front(sluice):
    if os.geteuid() != 0 or not shutil.which("nginx") or not shutil.which("setpriv") or run(*as_user(STRANGER, STRANGER), "sh", "-c", 'exec "$@"', "-", os.path.abspath(sluice), "inspect", MODEL)[0]:
        return None
    faults = []
    dropin, groups = read("systemd", "behind-nginx.conf"), read("systemd", "sluice-web.conf")
    if not re.search(r"^g sluice-web ", groups, re.M) or not re.search(r"^m www-data sluice-web$", groups, re.M):
        faults.append("sluice-web.conf does not make the group with nginx's user in it")
    # Without the drop-in the mode alone must not help, or this test finds nothing.
    for name, text, of_nginx, wanted in (("with behind-nginx.conf", dropin, [WEB_GROUP], (200, 200, 404, 1)), ("without it", "", [WEB_GROUP], (502, 502, 404, 1)),
                                         ("without nginx in the group", dropin, [], (502, 502, 404, 1))):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            try:
                got = behind_nginx(sluice, text, of_nginx, folder)
            except AssertionError as e:
                got = str(e)
            faults += [f"{name}: {got}, not {wanted}"] if got != wanted else []
    return faults


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    tests = [("HEALTHCHECK, whatever port, TLS and keys", health_check), ("nginx in front of the unit's socket", nginx_in_front)]
    for n, (name, test) in enumerate(tests, 1):
        wrong = test(os.path.abspath(sys.argv[1]))
        print(f"{'not ok' if wrong else 'ok'} {n} - {name}{' # SKIP it needs root, nginx, and a checkout that everybody may read' if wrong is None else ''}", flush=True)
        for w in wrong or []:
            print("  " + w.replace("\n", "\n  "))
    print(f"1..{len(tests)}")


main()
