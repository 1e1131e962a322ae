"""A client of raw sockets: requests as a case spells them, answers as they come.

Nothing here is lenient: what is not framed as HTTP/1.1 wants it is a Fault.
"""

import base64
import json
import os
import select
import socket
import time


# Bounds of cases are for a machine that does nothing else.
SLOWER = float(os.environ.get("QUERN_CASES_SLOWER", "1"))


class Fault(Exception):
    """The case fails; the text says what was expected and found."""


class BadCase(Fault):
    """The case uses what the page about cases does not define."""


# ---- values of cases ----

def expand(value):
    """{"$repeat": [unit, n]} anywhere becomes the text."""
    if isinstance(value, dict):
        if set(value) == {"$repeat"}:
            unit, n = value["$repeat"]
            return unit * n
        return {k: expand(v) for k, v in value.items()}
    if isinstance(value, list):
        return [expand(v) for v in value]
    return value


def join_parts(parts):
    out = b""
    for part in parts:
        if set(part) == {"text"}:
            out += part["text"].encode()
        elif set(part) == {"b64"}:
            out += base64.b64decode(part["b64"])
        elif set(part) == {"$repeat"}:
            out += expand(part).encode()
        else:
            raise BadCase(f"case: a part with {sorted(part)}")
    return out


# ---- answers ----

class Answer:
    def __init__(self, status, headers, body, framing, at):
        self.status, self.headers, self.body = status, headers, body
        self.framing = framing  # "length", "chunked", "close", "none"
        self.at = at  # when its last byte came
        self.events = []  # (name, data, when)
        self.cut = False  # the connection ended inside of the body

    def header(self, name):
        values = [v for k, v in self.headers if k.lower() == name.lower()]
        return ", ".join(values) if values else None

    def json(self):
        try:
            return json.loads(self.body.decode())
        except ValueError as error:
            raise Fault(f"the body is no JSON: {error}: {self.body[:200]!r}")


class Connection:
    def __init__(self, port, timeout=60):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer, self.ended = b"", False
        self.deadline = time.monotonic() + timeout

    def close(self):
        self.socket.close()

    def send(self, data):
        """True when all of it could be sent."""
        try:
            self.socket.sendall(data)
            return True
        except OSError:
            return False

    def finish_sending(self):
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def fill(self):
        """More bytes, or the end; False at the deadline."""
        if self.ended:
            return True
        left = self.deadline - time.monotonic()
        if left <= 0 or not select.select([self.socket], [], [], left)[0]:
            return False
        try:
            data = self.socket.recv(1 << 16)
        except OSError:
            data = b""
        self.buffer += data
        self.ended = not data
        return True

    def need(self, done):
        """Reads until done() is true; False when that can't be."""
        while not done():
            if self.ended or not self.fill():
                return False
        return True

    def line(self):
        if not self.need(lambda: b"\r\n" in self.buffer):
            return None
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line.decode("latin-1")

    def take(self, size):
        if not self.need(lambda: len(self.buffer) >= size):
            return None
        out, self.buffer = self.buffer[:size], self.buffer[size:]
        return out

    def closes_within(self, seconds):
        """Whether the end comes, without another byte."""
        self.deadline = time.monotonic() + seconds
        while not self.ended and not self.buffer:
            if not self.fill():
                return False
        return not self.buffer

    def head(self):
        status = self.line()
        if status is None:
            return None
        words = status.split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1."):
            raise Fault(f"no status line: {status!r}")
        headers = []
        while True:
            line = self.line()
            if line is None:
                raise Fault("the headers of an answer are cut")
            if not line:
                return int(words[1]), headers
            name, _, value = line.partition(":")
            headers.append((name, value.strip()))

    def answer(self, method="POST", on_event=None):
        """The next answer, or None when the connection ends without one."""
        head = self.head()
        if head is None:
            if self.buffer:
                raise Fault(f"an answer is cut: {self.buffer[:100]!r}")
            return None
        status, headers = head
        answer = Answer(status, headers, b"", "none", 0)
        stream = Events(answer, on_event)
        lengths = [v for k, v in headers if k.lower() == "content-length"]
        coding = answer.header("transfer-encoding")
        if method == "HEAD" or status == 204 or 100 <= status < 200:
            pass
        elif coding == "chunked" and not lengths:
            answer.framing = "chunked"
            self.chunks(answer, stream)
        elif len(lengths) == 1 and coding is None:
            answer.framing = "length"
            body = self.take(int(lengths[0]))
            if body is None:
                answer.cut = True
                body, self.buffer = self.buffer, b""
            stream.add(body)
        else:
            answer.framing = "close"
            self.need(lambda: False)
            stream.add(self.buffer)
            self.buffer = b""
        answer.at = time.monotonic()
        return answer

    def chunks(self, answer, stream):
        while True:
            line = self.line()
            if line is None:
                answer.cut = True
                return
            size = int(line.split(";")[0], 16)
            data = self.take(size + 2) if size else b"\r\n"
            if data is None:
                answer.cut = True
                return
            stream.add(data[:-2])
            if not size:
                while True:
                    line = self.line()
                    if line is None:
                        answer.cut = True
                    if not line:
                        return


class Events:
    """Server-sent events out of a body, with the time of each."""

    def __init__(self, answer, on_event):
        self.answer, self.on_event = answer, on_event
        self.rest = b""

    def add(self, data):
        self.answer.body += data
        kind = self.answer.header("content-type") or ""
        if not kind.startswith("text/event-stream"):
            return
        self.rest += data
        while b"\n\n" in self.rest:
            block, self.rest = self.rest.split(b"\n\n", 1)
            name, parts = None, []
            for line in block.split(b"\n"):
                if line.startswith(b"event:"):
                    name = line[6:].strip().decode()
                elif line.startswith(b"data:"):
                    parts.append(line[5:].removeprefix(b" "))
            if parts:
                event = (name, b"\n".join(parts), time.monotonic())
                self.answer.events.append(event)
                if self.on_event:
                    self.on_event(event)


# ---- requests ----

def request_bytes(port, request, pieces=0):
    """The bytes of a request of a case."""
    if "raw_b64" in request:
        return base64.b64decode(request["raw_b64"])
    if "raw_parts" in request:
        return join_parts(request["raw_parts"])
    body = None
    if "json" in request:
        value = expand(request["json"])
        limit = value.get("max_tokens") if isinstance(value, dict) else None
        if isinstance(limit, dict) and "$pieces" in limit:
            value = {**value, "max_tokens": pieces + limit["$pieces"]}
        body = json.dumps(value).encode()
    elif "body_b64" in request:
        body = base64.b64decode(request["body_b64"])
    elif "body_parts" in request:
        body = join_parts(request["body_parts"])
    lines = [f"{request['method']} {request['path']} HTTP/1.1"]
    headers = {"Host": f"127.0.0.1:{port}", **request.get("headers", {})}
    if body is not None and not any(k.lower() in ("content-length",
                                                  "transfer-encoding")
                                    for k in headers):
        headers["Content-Length"] = str(len(body))
    lines += [f"{k}: {v}" for k, v in headers.items()]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b"")


def ask(port, request, pieces=0, timeout=60, on_event=None):
    """Sends a request on a connection of its own; the answer or None."""
    connection = Connection(port, timeout)
    try:
        connection.send(request_bytes(port, request, pieces))
        return connection.answer(request.get("method", "POST"), on_event)
    finally:
        connection.close()


def chat(message="Hello", max_tokens=2, key=None, stream=False, **more):
    """The plain chat request of the page about cases."""
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    body = {"messages": [{"role": "user", "content": message}],
            "max_tokens": max_tokens, "temperature": 0, **more}
    if stream:
        body["stream"] = True
    return {"method": "POST", "path": "/v1/chat/completions",
            "headers": headers, "json": body}


def get(path, key=None):
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return {"method": "GET", "path": path, "headers": headers}


def at_rest(port, key=None):
    """Whether /metrics shows nothing running and nothing waiting."""
    answer = ask(port, get("/metrics", key), timeout=10)
    total = 0.0
    for line in (answer.body if answer else b"").decode().splitlines():
        name = line.split("{")[0].split(" ")[0]
        if name in ("quern_requests_running", "quern_requests_waiting"):
            total += float(line.rsplit(" ", 1)[1])
    return answer is not None and answer.status == 200 and total == 0


def wait_at_rest(port, seconds, key=None):
    until = time.monotonic() + seconds
    while not at_rest(port, key):
        if time.monotonic() > until:
            raise Fault(f"work-stops: requests after {seconds} s")
        time.sleep(0.02)
