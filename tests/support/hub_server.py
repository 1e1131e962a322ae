#!/usr/bin/env python3
"""hub_server.py STATE: a model hub on loopback ports that misbehaves on demand.

STATE is a folder.  The server reads STATE/control.json at every request, so a
test changes its manners by writing that file, and writes:
  STATE/url       the endpoint, once it listens
  STATE/requests  a line of JSON for each request: port ("hub", "cdn"), method,
                  path, range, token

Keys of control.json (all but the first two may be left out):
  root, repo      the folder with the files; "org/name"
  version         "a", or "b": the last byte of the weights differs
  commit          of the version, else 40 times its letter
  weights         the name of the large file, else model.safetensors
  range           honour, ignore, 416, wrong (another range than asked)
  close_after     the connection ends after so many bytes of the weights
  stall_after     nothing comes after so many bytes
  flip            bit 0 of this byte of the weights is sent flipped
  pace_ms         wait after each 1,000 bytes of the weights
  hold_at         nothing comes after so many bytes before STATE/go is there
  length          Content-Length of the weights, whatever they are; its body
                  has that many bytes
  etag            ETag of the weights, whatever they are
  sizes           false: the listing has neither sizes nor digests
  tree            false: there is no tree
  redirect        "cdn": files lie on the second port; "path": on another path
                  of the hub; "loop"; "file": redirects to a file: URL
  token           files and listings need this token; the code is 401
  status          list of [part of the path, code, times, Retry-After or null,
                  X-Error-Code or null]: answers so many times with the code
  search          the reply to a search

With a second argument, a file with a certificate and its key, the hub speaks
TLS (the second port does not).
"""
import hashlib
import http.server
import json
import os
import socket
import ssl
import sys
import threading
import time
from urllib.parse import unquote, urlparse

STATE = sys.argv[1]
LOCK = threading.Lock()
ANSWERED = {}


def hold():
    """Until a test says go; a minute at most, so that nothing stays for ever."""
    until = time.monotonic() + 60
    while (not os.path.exists(os.path.join(STATE, "go")) and
           time.monotonic() < until):
        time.sleep(0.02)


def control():
    for _ in range(50):
        try:
            with open(os.path.join(STATE, "control.json"), encoding="utf-8") as f:
                return json.load(f)
        except (FileNotFoundError, json.JSONDecodeError):
            time.sleep(0.02)
    return {}


def commit_of(c):
    return c.get("commit") or c.get("version", "a") * 40


def weights_name(c):
    return c.get("weights", "model.safetensors")


def names(c):
    out = []
    for folder, _, files in os.walk(c["root"]):
        for name in files:
            path = os.path.join(folder, name)
            out.append(os.path.relpath(path, c["root"]))
    return sorted(out)


def contents(c, name):
    path = os.path.join(c["root"], name)
    if not os.path.isfile(path) or ".." in name:
        return None
    with open(path, "rb") as f:
        data = f.read()
    if name == weights_name(c) and c.get("version", "a") == "b":
        data = data[:-1] + bytes([data[-1] ^ 1])
    return data


def is_large(c, name):
    return name.endswith((".safetensors", ".gguf"))


def git_digest(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def digest(c, name, data):
    return hashlib.sha256(data).hexdigest() if is_large(c, name) else git_digest(data)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def note(self):
        line = {
            "port": self.server.role,
            "method": self.command,
            "path": self.path,
            "range": self.headers.get("Range"),
            "token": self.headers.get("Authorization"),
        }
        with LOCK, open(os.path.join(STATE, "requests"), "a", encoding="utf-8") as f:
            f.write(json.dumps(line) + "\n")

    def answer(self, code, body=b"", headers=()):
        self.send_response(code)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def answer_json(self, value, headers=()):
        self.answer(200, json.dumps(value).encode(),
                    [("Content-Type", "application/json"), *headers])

    def forced(self, c):
        for part, code, times, after, error in c.get("status", []):
            if part not in self.path:
                continue
            with LOCK:
                used = ANSWERED.get((part, code), 0)
                if used >= times:
                    continue
                ANSWERED[(part, code)] = used + 1
            headers = [("Retry-After", str(after))] if after is not None else []
            if error:
                headers.append(("X-Error-Code", error))
            self.answer(code, b"no", headers)
            return True
        return False

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        self.note()
        c = control()
        path = unquote(urlparse(self.path).path)
        try:
            self.route(c, path)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def route(self, c, path):
        if self.forced(c):
            return
        if self.server.role == "cdn" or path.startswith("/moved/"):
            self.file(c, path.split("/", 2)[2], True)
            return
        token = c.get("token")
        if token and self.headers.get("Authorization") != "Bearer " + token:
            self.answer(401, b"no", [("X-Error-Code", "GatedRepo")])
            return
        api = "/api/models/" + c["repo"]
        revisions = ("main", commit_of(c))
        if path == "/api/models":
            self.answer_json(c.get("search", []))
        elif path == api or (path.startswith(api + "/revision/")
                             and path[len(api + "/revision/"):] in revisions):
            self.info(c)
        elif path in [api + "/tree/" + r for r in revisions] and c.get("tree", True):
            self.tree(c)
        else:
            for revision in revisions:
                start = "/%s/resolve/%s/" % (c["repo"], revision)
                if path.startswith(start):
                    self.resolve(c, path[len(start):])
                    return
            self.answer(404, b"no")

    def info(self, c):
        files = []
        for name in names(c):
            data = contents(c, name)
            entry = {"rfilename": name}
            if c.get("sizes", True):
                entry["size"] = len(data)
                if is_large(c, name):
                    entry["lfs"] = {"sha256": digest(c, name, data), "size": len(data)}
                    entry["blobId"] = "0" * 40
                elif c.get("blobs", True):
                    entry["blobId"] = digest(c, name, data)
            files.append(entry)
        files += c.get("extra", [])
        self.answer_json({"id": c["repo"], "sha": commit_of(c), "siblings": files})

    def tree(self, c):
        files = []
        for name in names(c):
            data = contents(c, name)
            entry = {"type": "file", "path": name, "size": len(data),
                     "oid": git_digest(data)}
            if is_large(c, name):
                entry["lfs"] = {"oid": digest(c, name, data), "size": len(data)}
            files.append(entry)
        # Two pages.
        half = len(files) // 2
        if "page=2" in self.path:
            self.answer_json(files[half:])
        else:
            link = "<http://%s%s&page=2>; rel=\"next\"" % (self.headers["Host"], self.path)
            self.answer_json(files[:half], [("Link", link)])

    def resolve(self, c, name):
        where = c.get("redirect")
        if not where or contents(c, name) is None:
            self.file(c, name, False)
            return
        data = contents(c, name)
        host = self.headers["Host"].rsplit(":", 1)[0]
        target = {
            "cdn": "http://%s:%d/x/%s" % (host, self.server.cdn_port, name),
            "path": "/moved/" + name,
            "loop": self.path,
            "file": "file:///etc/passwd",
        }[where]
        self.answer(302, b"", [
            ("Location", target),
            ("X-Linked-Etag", '"%s"' % digest(c, name, data)),
            ("X-Linked-Size", str(len(data))),
            ("X-Repo-Commit", commit_of(c)),
        ])

    def file(self, c, name, moved):
        data = contents(c, name)
        if data is None:
            self.answer(404, b"no", [("X-Error-Code", "EntryNotFound")])
            return
        weights = name == weights_name(c)
        etag = '"%s"' % digest(c, name, data)
        if weights and "etag" in c:
            etag = '"%s"' % c["etag"]
        headers = [("ETag", '"md5-of-a-store"' if moved else etag),
                   ("Accept-Ranges", "bytes"), ("X-Repo-Commit", commit_of(c))]
        if not moved:
            headers.append(("X-Linked-Etag", etag))
            headers.append(("X-Linked-Size", str(len(data))))
        if self.command == "HEAD":
            self.send_response(200)
            for key, value in headers:
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            return
        begin = self.range_begin(c, weights, len(data))
        if begin is None:
            self.answer(416, b"", headers + [("Content-Range", "bytes */%d" % len(data))])
            return
        if weights and "flip" in c:
            data = bytearray(data)
            data[c["flip"]] ^= 1
            data = bytes(data)
        code = 200
        if self.headers.get("Range") and self.headers["Range"].startswith("bytes=") and (
                not weights or c.get("range", "honour") != "ignore"):
            code = 206
            end = self.range_end(len(data))
            headers.append(("Content-Range", "bytes %d-%d/%d"
                            % (begin, end - 1, len(data))))
        else:
            begin, end = 0, len(data)
        self.send(c, code, headers, data[begin:end], weights)

    def range_end(self, size):
        last = self.headers["Range"][6:].split("-")[1]
        return min(int(last) + 1, size) if last else size

    def range_begin(self, c, weights, size):
        text = self.headers.get("Range") or ""
        if not text.startswith("bytes="):
            return 0
        begin = int(text[6:].split("-")[0])
        kind = c.get("range", "honour") if weights else "honour"
        if kind == "416" and begin >= size or kind == "416always":
            return None
        if kind == "wrong":
            return max(0, begin - 7)
        return min(begin, size)

    def send(self, c, code, headers, body, weights):
        length = len(body)
        if weights and "length" in c:
            length = c["length"]
            body = (body + bytes(max(0, length - len(body))))[:length]
        self.send_response(code)
        for key, value in headers:
            self.send_header(key, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if not weights:
            self.wfile.write(body)
            return
        end = min([len(body), c.get("close_after", len(body)),
                   c.get("stall_after", len(body))])
        begin = min(c.get("hold_at", 0), end)
        if begin:
            self.wfile.write(body[:begin])
            self.wfile.flush()
            hold()
        pace = c.get("pace_ms", 0) / 1000
        step = 1000 if pace else 1 << 16
        for at in range(begin, end, step):
            self.wfile.write(body[at:min(at + step, end)])
            self.wfile.flush()
            if pace:
                time.sleep(pace)
        if "stall_after" in c and end < len(body):
            time.sleep(c.get("stall_s", 20))
        if end < len(body):
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        pass


def main():
    cdn = Server(("127.0.0.1", 0), Handler)
    cdn.role = "cdn"
    hub = Server(("127.0.0.1", 0), Handler)
    hub.role = "hub"
    hub.cdn_port = cdn.server_address[1]
    scheme = "http"
    if len(sys.argv) > 2:
        scheme = "https"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[2])
        hub.socket = context.wrap_socket(hub.socket, server_side=True)
    threading.Thread(target=cdn.serve_forever, daemon=True).start()
    url = os.path.join(STATE, "url")
    with open(url + ".new", "w", encoding="utf-8") as f:
        f.write(scheme + "://127.0.0.1:%d" % hub.server_address[1])
    os.rename(url + ".new", url)
    hub.serve_forever()


main()
