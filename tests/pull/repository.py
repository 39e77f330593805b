"""A small repository over HTTP that misbehaves on request: cuts, wrong sums, wrong lengths, redirects, no ranges."""
import hashlib
import http.server
import json
import random
import re
import socket
import threading
import time
import urllib.parse

NEVER_S = 600
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Repository:
    """files: {path: bytes}. The fields below are what goes wrong; tests set them."""

    def __init__(self, files):
        self.files = dict(files)
        self.lock = threading.Lock()
        self.requests = []           # (path, Range, Authorization, Host)
        self.cuts = 0                # so many responses end early, at random
        self.random = random.Random(1)
        self.ranges = True
        self.sums = {}               # path: the sum that the list names instead
        self.lfs = True              # the list has sums
        self.etag = None             # of responses
        self.statuses = []           # answered before anything else, one a request
        self.retry_after = None
        self.redirect = None         # URL that files are redirected to
        self.hold = None             # an Event: bodies stop in the middle until it is set
        self.half = threading.Event()  # a body has stopped in the middle
        self.listing = None          # bytes that are sent instead of the list
        self.total = {}              # path: the length that is told instead
        self.pace = 0                # seconds between blocks
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                outer.answer(self)

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, args=[0.05], daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.hold:
            self.hold.set()
        self.server.shutdown()
        self.server.server_close()

    def list(self):
        entries = [{"rfilename": "README.md", "size": 3}, {"rfilename": "../../etc/x.gguf", "size": 3}, {"rfilename": "a/.hidden.gguf"}]
        for path, data in self.files.items():
            entry = {"rfilename": path, "size": len(data)}
            if self.lfs:
                entry["lfs"] = {"sha256": self.sums.get(path, hashlib.sha256(data).hexdigest()), "size": len(data)}
            entries.append(entry)
        return json.dumps({"sha": COMMIT, "siblings": entries}).encode()

    def send(self, h, status, headers, body=b""):
        h.send_response(status)
        for name, value in headers.items():
            h.send_header(name, value)
        h.send_header("Content-Length", str(len(body)))
        h.end_headers()
        h.wfile.write(body)

    def answer(self, h):
        path = urllib.parse.unquote(urllib.parse.urlsplit(h.path).path)
        with self.lock:
            self.requests.append((path, h.headers.get("Range"), h.headers.get("Authorization"), h.headers.get("Host")))
            status = self.statuses.pop(0) if self.statuses else None
        if status:
            return self.send(h, status, {"Retry-After": self.retry_after} if self.retry_after else {}, b"no")
        if path.startswith("/api/models/"):
            if path != "/api/models/own/model/revision/main":
                return self.send(h, 404, {})
            return self.send(h, 200, {}, self.list() if self.listing is None else self.listing)
        m = re.fullmatch(r"/own/model/resolve/(?:%s|main)/(.*)" % COMMIT, path)
        name = m.group(1) if m else path[1:]
        if name not in self.files:
            return self.send(h, 404, {})
        if self.redirect and not h.path.startswith("/moved/"):
            return self.send(h, 302, {"Location": self.redirect + "/" + urllib.parse.quote(name)})
        return self.send_file(h, name)

    def send_file(self, h, name):
        data = self.files[name]
        total = self.total.get(name, len(data))
        begin, end, status = 0, len(data), 200
        m = re.fullmatch(r"bytes=(\d+)-(\d+)", h.headers.get("Range") or "")
        if m and self.ranges:
            begin, end, status = int(m.group(1)), min(int(m.group(2)) + 1, len(data)), 206
            if begin >= len(data):
                h.send_response(416)
                h.send_header("Content-Range", f"bytes */{len(data)}")
                h.send_header("Content-Length", "0")
                h.end_headers()
                return
        cut = end
        with self.lock:
            if self.cuts and end - begin > 1:
                self.cuts -= 1
                cut = self.random.randrange(begin, min(end, begin + len(data) // 60 + 1))
        h.send_response(status)
        if self.etag:
            h.send_header("ETag", self.etag)
        if status == 206:
            h.send_header("Content-Range", f"bytes {begin}-{end - 1}/{total}")
        h.send_header("Content-Length", str(end - begin if status == 206 else total))
        h.end_headers()
        middle = (begin + end) // 2 if self.hold and end - begin > 1 else cut
        for stop in (min(middle, cut), cut):
            while begin < stop:
                n = min(65536, stop - begin)
                h.wfile.write(memoryview(data)[begin:begin + n])
                begin += n
                if self.pace:
                    time.sleep(self.pace)
            if self.hold and stop < cut:
                self.half.set()
                self.hold.wait(NEVER_S)
        if cut < end or total > len(data):
            h.close_connection = True
            h.connection.shutdown(socket.SHUT_RDWR)
