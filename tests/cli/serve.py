"""What quern serve does with its flags, sockets, keys and signals.

    serve.py QUERN QUERN_TEST ROOT SCRATCH

QUERN_TEST is the program that plays scripts: answers of known text and pace.
Each test names the flags that it shows; a flag of serve that nobody names fails.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

QUERN, QUERN_TEST, ROOT, SCRATCH = sys.argv[1:]
sys.path.insert(0, os.path.join(ROOT, "tests/run_cases/server"))

# pylint: disable=wrong-import-position
from client import Connection, Fault, ask, chat, get, request_bytes  # noqa
from client import wait_at_rest  # noqa

MODELS = os.path.join(ROOT, "tests/vectors/cases/fixtures/models")
TINY = os.path.join(MODELS, "tiny")
TESTS, SHOWN = [], set()
# Read by the function that loads for all commands, whose effects flags.py
# shows, or of all commands.
SHARED = {"help", "verbose", "config", "progress", "backend", "pull", "threads",
          "dtype", "kv", "max-kv-size", "kv-quant-start", "kv-bits",
          "kv-group-size", "draft-model", "chat-template",
          "lenient-weights", "trust-content"}


def test(*flags):
    def add(function):
        TESTS.append(function)
        SHOWN.update(flags)
        return function
    return add


def need(condition, text):
    if not condition:
        raise Fault(str(text))


def path(name):
    return os.path.join(SCRATCH, name)


def environment(**more):
    kept = {k: v for k, v in os.environ.items()
            if k in ("PATH", "HOME", "TMPDIR") or k.endswith("SAN_OPTIONS")}
    return {**kept, **more}


def run(*words, code=None, program=QUERN, **env):
    done = subprocess.run([program, "serve", *words], env=environment(**env),
                          capture_output=True, timeout=120, check=False,
                          stdin=subprocess.DEVNULL)
    err = done.stderr.decode()
    need(code is None or done.returncode == code,
         f"{words}: {done.returncode}, expected {code}: {err}")
    return done.returncode, done.stdout.decode(), err


def scripted(text, **settings):
    """A model that answers with `text`, a token a character."""
    folder = path(f"scripted-{len(os.listdir(SCRATCH))}")
    shutil.copytree(os.path.join(MODELS, "scripted"), folder)
    name = os.path.join(folder, "config.json")
    os.chmod(name, 0o644)
    with open(name, encoding="utf-8") as file:
        config = json.load(file)
    config.update({"script_ids": list(text.encode()), **settings})
    with open(name, "w", encoding="utf-8") as file:
        json.dump(config, file)
    return folder


class Server:
    """A running server; what it writes goes to files."""

    def __init__(self, *flags, model=TINY, program=QUERN, wait=True, port=0,
                 env=None, preexec=None, fds=()):
        self.log = path(f"log-{len(os.listdir(SCRATCH))}")
        reader, writer = os.pipe()
        with open(self.log, "wb") as err, open(self.log + ".out", "wb") as out:
            self.process = subprocess.Popen(
                [program, "serve", model, "--port", str(port), "--ready-fd",
                 str(writer), *flags], stderr=err, stdout=out,
                pass_fds=[writer, *fds], stdin=subprocess.DEVNULL,
                env=environment(**(env or {})), preexec_fn=preexec)
        os.close(writer)
        self.pipe = os.fdopen(reader)
        self.port = None
        if wait:
            self.wait()

    def wait(self):
        text = self.pipe.read()
        need(text.strip(), f"it does not start: {self.errors()}")
        self.port = int(text)

    def errors(self):
        with open(self.log, encoding="utf-8") as file:
            return file.read()

    def output(self):
        with open(self.log + ".out", encoding="utf-8") as file:
            return file.read()

    def wait_for(self, text, seconds=60):
        until = time.monotonic() + seconds
        while text not in self.errors():
            need(time.monotonic() < until, f"no '{text}': {self.errors()}")
            time.sleep(0.01)

    def end(self, code=0, how=signal.SIGTERM):
        self.pipe.close()
        if self.process.poll() is None and how:
            self.process.send_signal(how)
        try:
            found = self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Fault(f"it does not end: {self.errors()}")
        need(found == code, f"it ends with {found}: {self.errors()}")

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        if self.process.poll() is None:
            if kind:
                self.process.kill()
                self.process.wait()
            else:
                self.end()

    def ask(self, request, **more):
        answer = ask(self.port, request, **more)
        need(answer is not None, f"no answer: {request}")
        return answer

    def status(self, request):
        return self.ask(request).status


def code_of(answer):
    return answer.json()["error"]["code"]


def raw(server, text, count=1, method="POST"):
    """Sends bytes; the answers, and the connection."""
    connection = Connection(server.port, 60)
    connection.send(text if isinstance(text, bytes) else text.encode())
    return [connection.answer(method) for _ in range(count)], connection


# ---- HTTP ----

@test("ctx")
def requests_over_sockets():
    with Server("--ctx", "128", "--max-body", "2000") as s:
        need(s.ask(get("/v1/models")).json()["data"][0]["context_length"]
             == 128, "--ctx")
        # One connection, several requests, also before their answers.
        both = request_bytes(s.port, get("/health")) * 3
        answers, c = raw(s, both, 3)
        need([a.status for a in answers] == [200] * 3, "pipelined")
        need(c.send(both) and c.answer().status == 200, "kept open")
        c.close()
        head = {"method": "HEAD", "path": "/health"}
        answers, c = raw(s, request_bytes(s.port, head) +
                         request_bytes(s.port, get("/health")), 0)
        a, b = c.answer("HEAD"), c.answer()
        need(a.status == b.status == 200 and not a.body and
             a.header("content-length") == str(len(b.body)), "HEAD")
        c.close()
        # HTTP/1.0 closes.
        [a], c = raw(s, "GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")
        need(a.status == 200 and c.closes_within(5), "HTTP/1.0")
        refused_heads(s)
        refused_bodies(s)
        interim(s)


def refused_heads(s):
    host = "Host: localhost\r\n"
    cases = [
        (404, "not_found", f"GET /v1/nothing HTTP/1.1\r\n{host}\r\n"),
        (404, "not_found", f"GET /health/ HTTP/1.1\r\n{host}\r\n"),
        (200, None, f"GET /health?x=1 HTTP/1.1\r\n{host}\r\n"),
        (405, "method_not_allowed", f"PUT /health HTTP/1.1\r\n{host}\r\n"),
        (403, "host_not_allowed",
         "GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n"),
        (403, "origin_not_allowed",
         f"GET /health HTTP/1.1\r\n{host}Origin: http://evil.example\r\n\r\n"),
        (200, None,
         f"GET /health HTTP/1.1\r\n{host}Origin: http://localhost\r\n\r\n"),
        (431, "headers_too_large",
         f"GET /health HTTP/1.1\r\n{host}" + "X-A: b\r\n" * 101 + "\r\n"),
        (400, None, f"GET /health HTTP/1.1\r\n{host}Bad Name: x\r\n\r\n"),
        (400, None, f"GET /health HTTP/1.1\r\n{host}X: a\0b\r\n\r\n"),
        (400, None, f"GET /health HTTP/1.1\r\n{host}X: a\rb\r\n\r\n"),
        (200, None, f"GET /health HTTP/1.1\r\n{host}X: \r\nY:  a \r\n\r\n"),
        (501, "not_supported", f"POST /v1/completions HTTP/1.1\r\n{host}"
         "Transfer-Encoding: gzip\r\n\r\n"),
        (400, "bad_request", f"POST /v1/completions HTTP/1.1\r\n{host}"
         "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"),
        (501, "not_supported", f"POST /v1/models/load HTTP/1.1\r\n{host}"
         "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"),
    ]
    for status, code, text in cases:
        [a], c = raw(s, text, method="GET")
        c.close()
        need(a is not None and a.status == status,
             f"{text!r:.90}: {a and (a.status, a.body)}")
        need(not code or code_of(a) == code, f"{text!r:.60}: {a.body}")
        if status == 405:
            need("GET" in a.header("allow"), "Allow")
    for junk in (b"\x16\x03\x01\x02\x00\x01\x00", b"\r\n\r\nabc\r\n\r\n",
                 b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                 b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A" * 200000):
        c = Connection(s.port, 20)
        c.send(junk)
        c.finish_sending()
        try:
            a = c.answer()
            need(a is None or a.status >= 400, f"{junk[:20]}: {a}")
        except Fault:
            pass  # not even a request
        c.close()
    need(s.status(chat()) == 200, "after junk")


def refused_bodies(s):
    def post(headers, body, **more):
        return {"method": "POST", "path": "/v1/chat/completions",
                "headers": headers, "body_parts": [{"text": body}], **more}
    body = json.dumps(chat()["json"])
    kind = {"Content-Type": "application/json"}
    need(s.status(post({}, body)) == 200, "no type, no origin")
    need(s.status(post({"Content-Type": "application/json; charset=utf-8"},
                       body)) == 200, "parameters")
    for status, headers in (
            (415, {"Content-Type": "text/plain"}),
            (415, {"Content-Type": "application/jsonx"}),
            (415, {**kind, "Content-Encoding": "gzip"}),
            (415, {"Origin": f"http://127.0.0.1:{s.port}"})):
        a = s.ask(post(headers, body))
        need(a.status == status, f"{headers}: {a.status}")
    [a], c = raw(s, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                 "Content-Type: application/json\r\n\r\n")
    need(a.status == 411, f"no length: {a.status}")
    c.close()
    large = '{"prompt":"' + "x" * 3000 + '"}'
    a = s.ask(post(kind, large))
    need(a.status == 413 and code_of(a) == "request_too_large", "--max-body")
    chunk = f"{len(large):x}\r\n{large}\r\n0\r\n\r\n"
    [a], c = raw(s, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                 "Content-Type: application/json\r\n"
                 "Transfer-Encoding: chunked\r\n\r\n" + chunk)
    need(a.status == 413 and c.closes_within(20), "413 in chunks")


SHOWN.add("max-body")


def interim(s):
    body = json.dumps(chat()["json"])
    c = Connection(s.port, 20)
    c.send(("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            "Content-Type: application/json\r\nExpect: 100-continue\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode())
    need(c.answer().status == 100, "100")
    c.send(body.encode())
    need(c.answer().status == 200, "after 100")
    c.close()
    c = Connection(s.port, 20)
    c.send(b"POST /nothing HTTP/1.1\r\nHost: localhost\r\n"
           b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
    need(c.answer().status == 404, "refused before the body")
    c.close()


@test("alias", "strict-model", "default-max-tokens", "strict-fields",
      "allowed-host", "cors-origin", "temperature")
def headers_and_names():
    with Server("--alias", "m", "--strict-model", "--default-max-tokens", "3",
                "--strict-fields", "--allowed-host", "box.lan",
                "--cors-origin", "http://app.example", "--temperature",
                "0") as s:
        request = chat(model="m")
        del request["json"]["temperature"], request["json"]["max_tokens"]
        a = s.ask(request)
        need(a.status == 200 and a.header("x-quern-model") == "m", a.body)
        need(a.json()["usage"]["completion_tokens"] <= 3,
             "--default-max-tokens")
        need(a.header("x-quern-seed") is None, "--temperature 0 draws")
        need(re.fullmatch("req_[0-9a-f]{24}", a.header("x-request-id")), "id")
        a = s.ask(chat(model="other"))
        need(a.status == 404 and code_of(a) == "model_not_found", a.body)
        a = s.ask(chat(model="m", nobody_knows=1))
        need(a.status == 400 and code_of(a) == "unknown_field", a.body)
        need(s.status(get("/v1/models/m")) == 200, "a model")
        need(s.status(get("/v1/models/x")) == 404, "another model")
        request = get("/health")
        request["headers"] = {"Host": "BOX.lan:1", "X-Request-Id": "mine",
                              "Origin": "http://app.example"}
        a = s.ask(request)
        need(a.status == 200 and a.header("x-request-id") == "mine" and
             a.header("access-control-allow-origin") == "http://app.example"
             and a.header("vary") == "Origin", a.headers)
        a = s.ask({**request, "method": "OPTIONS"})
        need(a.status == 204 and "POST" in
             a.header("access-control-allow-methods"), a.headers)


@test("top-k", "top-p", "min-p", "typical-p", "xtc-probability",
      "xtc-threshold", "repetition-penalty", "repetition-context-size",
      "presence-penalty", "presence-context-size", "frequency-penalty",
      "frequency-context-size")
def defaults_of_sampling():
    def contents(*flags):
        with Server(*flags) as s:
            out = []
            for seed in range(4):
                request = chat(max_tokens=24, seed=seed)
                del request["json"]["temperature"]
                out.append(s.ask(request).json()["choices"][0]["message"]
                           ["content"])
            return out
    plain = contents()
    far = ["--repetition-penalty", "5"]
    close = ["--presence-penalty", "2"]
    often = ["--frequency-penalty", "2"]
    xtc = ["--xtc-probability", "1"]
    for base, flags in (
            ([], ["--top-k", "1"]), ([], ["--top-p", "0.1"]),
            ([], ["--min-p", "0.9"]), ([], ["--typical-p", "0.1"]),
            ([], xtc), (xtc, ["--xtc-threshold", "0.2"]),
            ([], far), (far, ["--repetition-context-size", "1"]),
            ([], close), (close, ["--presence-context-size", "1"]),
            ([], often), (often, ["--frequency-context-size", "1"])):
        before = contents(*base) if base else plain
        need(contents(*base, *flags) != before, f"{flags}: no effect")


# ---- keys ----

@test("api-key", "api-key-file", "metrics-open")
def keys_and_rights():
    name = path("keys")
    with open(name, "w", encoding="utf-8") as file:
        file.write("alice:ka\nroot:kr:admin\n")
    os.chmod(name, 0o600)
    with Server("--api-key", "k1", "--api-key-file", name,
                env={"QUERN_API_KEY": "k2"}) as s:
        need(s.status(get("/health")) == 200, "health is open")
        bodies = {s.ask(get("/v1/models", key)).body
                  for key in (None, "wrong", "k", "k11")}
        need(len(bodies) == 1 and b"invalid_api_key" in bodies.pop(), "401")
        for key in ("k1", "k2", "ka", "kr"):
            need(s.status(chat(key=key)) == 200, key)
            a = s.ask({**get("/v1/models"), "headers": {"x-api-key": key}})
            need(a.status == 200, f"x-api-key {key}")
        need(s.status(get("/metrics")) == 401, "metrics")
        a = s.ask(get("/v1/adapters", "ka"))
        need(a.status == 200 and a.json() == {"data": []}, a.body)
        a = s.ask({"method": "DELETE", "path": "/v1/adapters/x",
                   "headers": {"x-api-key": "kr"}})
        need(a.status == 404 and code_of(a) == "adapter_not_found", a.body)
        flush = {"method": "POST", "path": "/v1/cache/flush",
                 "headers": {"Content-Type": "application/json"}, "json": {}}
        for key, status in (("ka", 403), ("k1", 403), ("kr", 200)):
            flush["headers"]["x-api-key"] = key
            a = s.ask(flush)
            need(a.status == status, f"{key}: {a.status}")
        need(set(a.json()) == {"entries", "bytes"}, a.body)
        need(" key=alice " in s.errors() and "ka" not in s.errors(), "log")
        # A new file of keys, and a bad one, which changes nothing.
        for text, old, new in (("bob:kb\n", 401, 200), ("bob\n!:\n", 401, 200)):
            with open(name, "w", encoding="utf-8") as file:
                file.write(text)
            s.process.send_signal(signal.SIGHUP)
            until = time.monotonic() + 20
            while s.status(get("/v1/models", "kb")) != new:
                need(time.monotonic() < until, "SIGHUP")
            need(s.status(get("/v1/models", "ka")) == old, "the old key")
    with Server("--api-key", "k1", "--metrics-open") as s:
        need(s.status(get("/metrics")) == 200, "--metrics-open")


# ---- turns ----

@test("parallel", "max-queue", "queue-timeout")
def turns():
    slow = scripted("x" * 400, delay_ms=20)
    with Server("--parallel", "1", "--max-queue", "1", "--queue-timeout",
                "1s", model=slow, program=QUERN_TEST) as s:
        streams = []
        first = Connection(s.port, 60)
        first.send(request_bytes(s.port, chat(max_tokens=400, stream=True)))
        begun = threading.Event()
        thread = threading.Thread(target=lambda: streams.append(
            read_until_closed(first, begun)))
        thread.start()
        need(begun.wait(30), "no stream")
        late = []
        waiting = threading.Thread(
            target=lambda: late.append(ask(s.port, chat(), timeout=60)))
        waiting.start()
        wait_metric(s, "quern_requests_waiting", 1)
        a = s.ask(chat())
        need(a.status == 503 and code_of(a) == "server_overloaded" and
             1 <= int(a.header("retry-after")) <= 60, (a.status, a.body))
        waiting.join()
        need(late[0].status == 503, f"--queue-timeout: {late[0].status}")
        first.socket.shutdown(socket.SHUT_RDWR)
        thread.join()
        wait_at_rest(s.port, 20)
        metrics = s.ask(get("/metrics")).body.decode()
        need('outcome="cancelled"} 1' in metrics, metrics)
        need('quern_rejected_total{reason="server_overloaded"} 2' in metrics,
             metrics)


def read_until_closed(connection, begun):
    def on_event(event):
        if b'"content":"x' in event[1]:
            begun.set()
    try:
        return connection.answer("POST", on_event)
    except (Fault, OSError):
        return None


def metric(s, name):
    for line in s.ask(get("/metrics")).body.decode().splitlines():
        if line.startswith(name + " "):
            return float(line.split(" ")[1])
    raise Fault(f"no metric {name}")


def wait_metric(s, name, value):
    until = time.monotonic() + 30
    while metric(s, name) != value:
        need(time.monotonic() < until, f"{name} is not {value}")
        time.sleep(0.01)


def cached_tokens(s, text):
    return s.ask(chat(text)).json()["usage"]["prompt_tokens_details"][
        "cached_tokens"]


@test("prefix-disk", "prefix-disk-limit")
def kept_on_the_disk():
    folder, text = path("kept"), "word " * 40
    with Server("--prefix-disk", folder) as s:
        need(os.stat(folder).st_mode & 0o777 == 0o700, "its mode")
        need(cached_tokens(s, text) == 0, "an empty folder")
        run(TINY, "--port", "0", "--prefix-disk", folder, code=2)
    with Server("--prefix-disk", folder, "--prefix-disk-limit", "1G") as s:
        need(metric(s, 'quern_prefix_entries{tier="disk"}') == 1, "entries")
        need(cached_tokens(s, text) > 20, "it does not survive")
    # What other instructions computed is a miss that is counted.
    with Server("--prefix-disk", folder, env={"QUERN_ISA": "scalar"}) as s:
        need(cached_tokens(s, text) == 0, "another instruction set")
        need(metric(s, "quern_prefix_refused_total") == 1, "not counted")
        need(metric(s, "quern_prefix_misses_total") == 1, "no miss")
        flushed = s.ask({"method": "POST", "path": "/v1/cache/flush",
                         "json": {"disk": True}}).json()
        need(flushed["entries"] >= 1 and flushed["bytes"] > 0, flushed)
        need(metric(s, 'quern_prefix_bytes{tier="disk"}') == 0, "flushed")
    os.chmod(folder, 0o755)
    err = run(TINY, "--port", "0", "--prefix-disk", folder, code=2)[2]
    need("0755" in err, err)
    os.chmod(folder, 0o700)
    run(TINY, "--port", "0", "--prefix-disk-limit", "1G", code=2)


def killed_while_it_writes():
    """Files are whole or not there, whenever the end comes."""
    folder = path("killed")
    for i in range(4):
        with Server("--prefix-disk", folder) as s:
            need(metric(s, "quern_prefix_refused_total") == 0, "damaged")
            for k in range(6):
                cached_tokens(s, f"{i} {k} " + "word " * 30)
            time.sleep(0.2 + 0.02 * i)
            s.end(code=-signal.SIGKILL, how=signal.SIGKILL)
    with Server("--prefix-disk", folder) as s:
        need(not [n for n in os.listdir(folder) if n.endswith(".tmp")], "rests")
        for i in range(4):
            for k in range(6):
                cached_tokens(s, f"{i} {k} " + "word " * 30)
        need(metric(s, "quern_prefix_refused_total") == 0, "damaged")


TESTS.append(killed_while_it_writes)


@test("request-timeout", "sse-ping")
def late_requests():
    slow = scripted("x" * 2000, delay_ms=5)
    with Server("--request-timeout", "1s", "--sse-ping", "0", model=slow,
                program=QUERN_TEST) as s:
        a = s.ask(chat(max_tokens=2000))
        need(a.status == 504 and code_of(a) == "timeout", (a.status, a.body))
        a = s.ask(chat(max_tokens=2000, stream=True))
        last = json.loads(a.events[-1][1])
        need(a.status == 200 and last["error"]["code"] == "timeout", last)
        wait_at_rest(s.port, 20)
    silent = scripted("x", delay_ms=1500)
    with Server("--sse-ping", "1s", model=silent, program=QUERN_TEST) as s:
        a = s.ask(chat(stream=True))
        need(b"\n: " in b"\n" + a.body, f"no sign of life: {a.body}")


@test("key-parallel")
def limits_of_keys_and_memory():
    slow = scripted("x" * 400, delay_ms=20)
    with Server("--api-key", "a", "--api-key", "b", "--key-parallel", "1",
                model=slow, program=QUERN_TEST) as s:
        c = Connection(s.port, 60)
        c.send(request_bytes(s.port, chat(max_tokens=400, key="a",
                                          stream=True)))
        begun = threading.Event()
        thread = threading.Thread(target=read_until_closed, args=(c, begun))
        thread.start()
        need(begun.wait(30), "no stream")
        a = s.ask(chat(key="a"))
        need(a.status == 429 and code_of(a) == "rate_limit_exceeded",
             (a.status, a.body))
        need(s.status(chat(max_tokens=1, key="b")) == 200, "another key")
        c.socket.shutdown(socket.SHUT_RDWR)
        thread.join()


def kv_unit():
    """What an answer takes of the KV cache that has up to 128 tokens."""
    with Server(model=scripted("x"), program=QUERN_TEST) as s:
        return 128 * s.ask(get("/v1/fit")).json()["kv_bytes_per_token"]


def begin(s, **more):
    """A request whose answer is read later."""
    c = Connection(s.port, 60)
    c.send(request_bytes(s.port, chat(**more)))
    return c


@test("kv-budget")
def kv_is_set_aside():
    unit, slow = kv_unit(), scripted("x" * 3000, delay_ms=20)
    for rows in (1, 2, 3):
        with Server("--kv-budget", str(rows * unit), "--drain", "0s",
                    model=slow, program=QUERN_TEST) as s:
            need(metric(s, "quern_kv_bytes_limit") == rows * unit, "limit")
            # Four ask, `rows` of them run; who leaves makes room for the next.
            held = [begin(s, max_tokens=60) for _ in range(4)]
            wait_metric(s, "quern_requests_waiting", 4 - rows)
            for left in range(4, 0, -1):
                wait_metric(s, "quern_requests_running", min(rows, left))
                need(metric(s, "quern_kv_bytes_used") ==
                     min(rows, left) * unit, "used")
                held.pop(0).close()
            wait_metric(s, "quern_kv_bytes_used", 0)
            # What can't ever be is told at once, with numbers.
            for more in ({"max_tokens": 128 * rows}, {"n": rows + 1}):
                a = s.ask(chat(**{"max_tokens": 8, **more}))
                need(a.status == 400 and code_of(a) == "kv_budget_exceeded"
                     and f" {rows * unit}" in a.body.decode(), a.body)


@test()
def who_needs_much_is_not_passed():
    unit, slow = kv_unit(), scripted("x" * 3000, delay_ms=50)
    flags = ["--kv-budget", str(3 * unit), "--queue-timeout", "20s"]
    with Server(*flags, model=slow, program=QUERN_TEST) as s:
        first = begin(s, max_tokens=60)
        wait_metric(s, "quern_requests_running", 1)
        big = begin(s, max_tokens=300)
        wait_metric(s, "quern_requests_waiting", 1)
        small = begin(s, max_tokens=60)
        wait_metric(s, "quern_requests_waiting", 2)
        need(metric(s, "quern_kv_bytes_used") == unit, "it was passed")
        first.close()
        wait_metric(s, "quern_requests_waiting", 1)
        need(metric(s, "quern_kv_bytes_used") == 3 * unit, "the big one")
        # One that leaves while it waits lets those behind it begin at once.
        second = begin(s, max_tokens=300)
        wait_metric(s, "quern_requests_waiting", 2)
        small.close()
        wait_metric(s, "quern_requests_waiting", 1)
        big.close()
        wait_metric(s, "quern_requests_waiting", 0)
        need(metric(s, "quern_kv_bytes_used") == 3 * unit, "the second")
        second.close()
        first = begin(s, max_tokens=60)
        wait_metric(s, "quern_kv_bytes_used", unit)
        big = begin(s, max_tokens=300)
        wait_metric(s, "quern_requests_waiting", 1)
        small = begin(s, max_tokens=60)
        wait_metric(s, "quern_requests_waiting", 2)
        big.close()
        wait_metric(s, "quern_requests_running", 2)
        # Two answers to one prompt take twice as much.
        first.close()
        small.close()
        wait_at_rest(s.port, 20)
        two = begin(s, max_tokens=60, n=2)
        wait_metric(s, "quern_kv_bytes_used", 2 * unit)
        two.close()
        wait_metric(s, "quern_kv_bytes_used", 0)
    # However an answer ends, what it had is free for the next.
    broken = scripted("x" * 100, fail_at=5)
    with Server("--kv-budget", str(unit), model=broken,
                program=QUERN_TEST) as s:
        for more in ({"max_tokens": 3}, {"max_tokens": 60},
                     {"max_tokens": 60, "stream": True}):
            s.ask(chat(**more))
        need(metric(s, "quern_kv_bytes_used") == 0, "a failure")


@test()
def kept_prompts_make_nobody_wait():
    """They have bytes of their own, and go when these are full."""
    with Server("--ctx", "256", "--prefix-cache", "70000") as s:
        unit = 128 * s.ask(get("/v1/fit")).json()["kv_bytes_per_token"]
    with Server("--ctx", "256", "--prefix-cache", str(2 * unit),
                "--kv-budget", str(unit), "--max-queue", "0") as s:
        for k in range(6):
            a = s.ask(chat(f"{k} " + "word " * 15))
            need(a.status == 200, (k, a.body))
            need(metric(s, 'quern_prefix_bytes{tier="memory"}') <= 2 * unit,
                 "more than may be kept")
        need(metric(s, 'quern_prefix_evictions_total{tier="memory"}') == 4,
             "nothing goes")
        need(metric(s, "quern_kv_bytes_used") == 0, "rows that are over")


@test("prefix-cache", "shared-cache", "prefill-chunk", "max-step-ms",
      "ngram", "num-draft", "spec-max-rows", "quiet")
def what_is_kept():
    text = "word " * 40
    with Server("--api-key", "a", "--api-key", "b") as s:
        cached = [s.ask(chat(text, key=key)).json()["usage"]
                  ["prompt_tokens_details"]["cached_tokens"]
                  for key in ("a", "a", "b")]
        need(cached[0] == 0 and cached[1] > 20 and cached[2] == 0, cached)
    with Server("--api-key", "a", "--api-key", "b", "--shared-cache",
                "--prefill-chunk", "16", "--max-step-ms", "10", "-q") as s:
        cached = [s.ask(chat(text, key=key)).json()["usage"]
                  ["prompt_tokens_details"]["cached_tokens"]
                  for key in ("a", "b")]
        need(cached[0] == 0 and cached[1] > 20, cached)
        need(s.errors() == "", f"-q: {s.errors()}")
    with Server("--prefix-cache", "0", "--ngram", "--num-draft", "3") as s:
        cached = [s.ask(chat(text)).json()["usage"]["prompt_tokens_details"]
                  ["cached_tokens"] for _ in range(2)]
        need(cached == [0, 0], cached)
        need(s.status(chat(speculative={"enabled": True})) == 200, "drafts")
    with Server("--ngram", "--spec-max-rows", "0") as s:
        a = s.ask(chat(speculative={"enabled": True}))
        need(a.status == 400, f"--spec-max-rows 0: {a.status}")


# ---- life ----

@test("drain")
def signals():
    slow = scripted("x" * 40, delay_ms=20)
    with Server(model=slow, program=QUERN_TEST) as s:
        idle = Connection(s.port, 60)
        begun, out = threading.Event(), []
        c = Connection(s.port, 60)
        c.send(request_bytes(s.port, chat(max_tokens=100, stream=True)))
        thread = threading.Thread(
            target=lambda: out.append(read_until_closed(c, begun)))
        thread.start()
        need(begun.wait(30), "no stream")
        s.process.send_signal(signal.SIGTERM)
        s.wait_for("shutting down")
        idle.send(request_bytes(s.port, chat()))
        a = idle.answer()
        need(a.status == 503 and code_of(a) == "shutting_down", a.body)
        thread.join()
        need(out[0].events[-1][1] == b"[DONE]", "the stream is cut")
        s.end(how=None)
    endless = scripted("x" * 3000, delay_ms=20)
    with Server("--drain", "0s", model=endless, program=QUERN_TEST) as s:
        begun, out = threading.Event(), []
        c = Connection(s.port, 60)
        c.send(request_bytes(s.port, chat(max_tokens=3000, stream=True)))
        thread = threading.Thread(
            target=lambda: out.append(read_until_closed(c, begun)))
        thread.start()
        need(begun.wait(30), "no stream")
        s.end()
        thread.join()
        last = json.loads(out[0].events[-1][1])
        need(last["error"]["code"] == "shutting_down", last)
    with Server(model=endless, program=QUERN_TEST) as s:
        c = Connection(s.port, 60)
        c.send(request_bytes(s.port, chat(max_tokens=3000, stream=True)))
        wait_metric(s, "quern_requests_running", 1)
        s.process.send_signal(signal.SIGINT)
        s.wait_for("shutting down")
        s.end(130, signal.SIGINT)
        c.close()


@test("ready-fd", "port", "json", "check", "print-config", "force",
      "auto-fit")
def starting_and_not():
    with Server("--json") as s:
        ready = json.loads(s.output())
        need(ready["url"] == f"http://127.0.0.1:{s.port}" and
             ready["model"] == "tiny" and ready["ctx"] == 256 and
             ready["parallel"] == 8 and ready["backend"] == "cpu" and
             ready["pid"] == s.process.pid, ready)
        need(f"quern: serving tiny on http://127.0.0.1:{s.port} (ctx 256, "
             "parallel 8, backend cpu)" in s.errors(), s.errors())
        err = run(TINY, "--port", str(s.port), code=1)[2]
        need("can't be had" in err and "serving" not in err, err)
    run("/nowhere/model", "--port", "0", code=3)
    bad = path("bad")
    shutil.copytree(TINY, bad)
    os.chmod(os.path.join(bad, "config.json"), 0o644)
    with open(os.path.join(bad, "config.json"), "w", encoding="utf-8") as f:
        f.write("{}")
    run(bad, "--port", "0", code=4)
    for words in (["--host", "0.0.0.0"], ["--ready-fd", "99"],
                  ["--alias", "a/../b"], ["--cors-origin", "x"],
                  ["--api-key", ""], ["--api-key", "k", "--cors-origin", "*"],
                  ["--port", "70000"], ["--parallel", "0"], ["--num-draft",
                                                            "2"]):
        run(TINY, "--port", "0", *words, code=2)
    run(TINY, "--check", "--host", "127.0.0.1", code=0)
    run(TINY, "--check", "--ctx", "300", code=2)
    out = run(TINY, "--print-config", "--parallel", "3", code=0)[1]
    need(re.search(r"parallel +3 ", out), out)
    # So much is not there; with --auto-fit less is asked for.
    err = run(TINY, "--check", "--prefix-cache", "1000T", code=5)[2]
    need("prefix cache" in err and "hint: " in err, err)
    run(TINY, "--check", "--prefix-cache", "1000T", "--auto-fit", code=5)
    run(TINY, "--check", "--prefix-cache", "1000T", "--force", code=0)
    run(TINY, "--kv-budget", "1000T", "--port", "0", code=5)


@test("host", "allow-unauthenticated", "max-connections")
def addresses():
    name = path("socket")
    with Server("--host", f"unix:{name}", "--host", "127.0.0.1", "--host",
                "127.0.0.2", "--max-connections", "3") as s:
        need(os.stat(name).st_mode & 0o777 == 0o600, "mode")
        with socket.socket(socket.AF_UNIX) as c:
            c.connect(name)
            c.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            need(c.recv(99).startswith(b"HTTP/1.1 200"), "a Unix socket")
        with socket.create_connection(("127.0.0.2", s.port)):
            pass
        held, until = [], time.monotonic() + 20
        while len(held) < 3:  # those above may not be gone yet
            need(time.monotonic() < until, "no connection")
            c = Connection(s.port, 20)
            c.send(request_bytes(s.port, get("/health")))
            a = c.answer()
            if a and a.status == 200:
                held.append(c)
        c = Connection(s.port, 20)
        need(c.answer().status == 503, "--max-connections")
        c.close()
        for c in held:
            c.close()
    need(not os.path.exists(name), "the socket's file stays")
    with Server("--host", "0.0.0.0", "--allow-unauthenticated") as s:
        need(s.status(get("/health")) == 200, "0.0.0.0")


def activation():
    """Sockets and a place for messages, as a service manager has them."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(5)
    notify = path("notify")
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(notify)
    manager.settimeout(60)
    keep = os.dup(listener.fileno())

    def before():
        os.dup2(keep, 3)
        os.set_inheritable(3, True)
        os.environ["LISTEN_PID"] = str(os.getpid())
    # LISTEN_PID is the server's own: a shell knows it and becomes it.
    log = path("activation")
    with open(log, "wb") as err:
        process = subprocess.Popen(
            ["sh", "-c", 'LISTEN_PID=$$ exec "$@"', "sh", QUERN, "serve", TINY,
             "--host", "unix:/never/used"],
            env=environment(LISTEN_FDS="1", NOTIFY_SOCKET=notify), stderr=err,
            preexec_fn=before, close_fds=False, stdin=subprocess.DEVNULL)
    try:
        need(manager.recv(99) == b"READY=1", "READY")
        port = listener.getsockname()[1]
        need(ask(port, get("/health")).status == 200, "a given socket")
        process.terminate()
        need(manager.recv(99) == b"STOPPING=1", "STOPPING")
        need(process.wait(60) == 0, "end")
    finally:
        process.kill()
        process.wait()
        os.close(keep)
        listener.close()
        manager.close()


TESTS.append(activation)


def activation_for_others():
    """Without keys, no socket is taken that others reach."""
    with socket.create_server(("0.0.0.0", 0)) as listener:
        keep = os.dup(listener.fileno())

        def before():
            os.dup2(keep, 3)
            os.set_inheritable(3, True)
        done = subprocess.run(
            ["sh", "-c", 'LISTEN_PID=$$ exec "$@"', "sh", QUERN, "serve", TINY],
            env=environment(LISTEN_FDS="1"), stderr=subprocess.PIPE,
            preexec_fn=before, close_fds=False, stdin=subprocess.DEVNULL,
            timeout=60)
        os.close(keep)
    need(done.returncode == 2, done)
    need(b"--api-key" in done.stderr, done)


TESTS.append(activation_for_others)


@test("header-timeout", "body-timeout", "write-timeout")
def slow_clients():
    wordy = scripted("x" * 4000)
    with Server("--header-timeout", "1s", "--body-timeout", "1s",
                "--write-timeout", "1s", model=wordy,
                program=QUERN_TEST) as s:
        c = Connection(s.port, 30)
        c.send(b"GET /health HT")
        a = None
        try:
            a = c.answer()
        except Fault:
            pass
        need(c.ended and (a is None or a.status == 408), "--header-timeout")
        c = Connection(s.port, 30)
        c.send(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
               b"Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{")
        a = c.answer()
        need(a is not None and a.status == 408 and c.closes_within(20),
             "--body-timeout")
        # A client that does not read its stream of a megabyte.
        c = Connection(s.port, 60)
        c.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(12):
            c.send(request_bytes(s.port, chat(max_tokens=4000, stream=True,
                                              logprobs=True,
                                              top_logprobs=20)))
        until = time.monotonic() + 60
        while 'outcome="cancelled"' not in s.ask(get("/metrics")) \
                .body.decode():
            need(time.monotonic() < until, "--write-timeout")
            time.sleep(0.1)
        c.close()
        wait_at_rest(s.port, 20)


@test("log-format", "log-file", "log-level", "log-content", "trust-proxy",
      "deterministic")
def logs():
    name = path("access.log")
    with Server("--log-format", "json", "--log-file", name) as s:
        need(s.status(chat("a secret")) == 200, "chat")
        request = get("/health")
        request["headers"] = {"X-Request-Id": 'q"uote'}
        s.ask(request)
        until = time.monotonic() + 20
        lines = []
        while len(lines) < 2:
            need(time.monotonic() < until, "no lines")
            with open(name, encoding="utf-8") as file:
                text = file.read()
            lines = [json.loads(line) for line in text.splitlines()]
        need(lines[0]["route"] == "chat" and lines[0]["status"] == 200 and
             lines[0]["prompt"] > 5 and lines[0]["finish"] in
             ("stop", "length"), lines[0])
        need("secret" not in text and lines[1]["id"] == 'q"uote', text)
        os.rename(name, name + ".1")
        s.process.send_signal(signal.SIGHUP)
        until = time.monotonic() + 20
        while not os.path.exists(name):
            need(time.monotonic() < until, "no new log")
            time.sleep(0.01)
    with Server("--log-level", "warn") as s:
        s.ask(get("/health"))
        need("route=" not in s.errors(), s.errors())
    run(TINY, "--port", "0", "--log-file", "/nowhere/log", code=1)
    run(TINY, "--port", "0", "--log-content", "/nowhere/log", code=1)
    name = path("content.log")
    with Server("--trust-proxy", "--log-content", name, "--deterministic",
                env={}) as s:
        request = chat("a secret")
        request["headers"]["X-Forwarded-For"] = "10.1.2.3, 10.0.0.1"
        answer = s.ask(request)
        s.wait_for("peer=10.1.2.3 ")
        need(os.stat(name).st_mode & 0o777 == 0o600, "mode")
        with open(name, encoding="utf-8") as file:
            [line] = [json.loads(text) for text in file]
        need("a secret" in line["request"] and line["answers"][0]["text"] ==
             answer.json()["choices"][0]["message"]["content"], line)


# ---- other protocols ----

def post(where, **body):
    return {"method": "POST", "path": where, "json": body,
            "headers": {"Content-Type": "application/json"}}


@test("pooling")
def vectors():
    body = {"input": ["a", "b"], "encoding_format": "base64"}
    with Server() as s:
        a = s.ask(post("/v1/embeddings", **body))
        need(a.status == 400 and a.json()["error"]["param"] == "model", a.body)
        need("embeddings" not in s.ask(get("/v1/models/tiny")).json()
             ["capabilities"], "it can")
    made = []
    for flags in (["--pooling", "mean"], ["--pooling", "last"]):
        with Server(*flags) as s:
            made.append(s.ask(post("/v1/embeddings", **body)).json()["data"])
            need("embeddings" in s.ask(get("/v1/models/tiny")).json()
                 ["capabilities"], "it can't")
            a = s.ask(post("/v1/embeddings", input=["a", "word " * 400]))
            need(code_of(a) == "context_length_exceeded" and
                 a.json()["error"]["param"] == "input[1]", a.body)
            a = s.ask(post("/v1/embeddings", input="a", instruction="find"))
            need(a.status == 400 and
                 a.json()["error"]["param"] == "instruction", a.body)
    need(made[0] != made[1], "--pooling")


@test()
def breakpoints_of_the_cache():
    """What a pin holds is counted as stored once, and then as read."""
    text = {"type": "text", "text": "remember this well " * 5,
            "cache_control": {"type": "ephemeral"}}

    def usage(s, question, **more):
        a = s.ask(post("/v1/messages", max_tokens=2, system=[text],
                       messages=[{"role": "user", "content": question}],
                       **more))
        need(a.status == 200, a.body)
        u = a.json()["usage"]
        counted = s.ask(post("/v1/messages/count_tokens", system=[text],
                             messages=[{"role": "user", "content": question}]))
        need(sum(u.values()) - u["output_tokens"] ==
             counted.json()["input_tokens"], (u, counted.body))
        return u
    with Server() as s:
        first, second = usage(s, "one"), usage(s, "two")
        need(first["cache_creation_input_tokens"] > 10 and
             not first["cache_read_input_tokens"], first)
        need(second["cache_read_input_tokens"] >=
             first["cache_creation_input_tokens"] and
             not second["cache_creation_input_tokens"], (first, second))
        off = usage(s, "one", cache_prompt=False)
        need(not off["cache_creation_input_tokens"] and
             not off["cache_read_input_tokens"], off)
    with Server("--prefix-cache", "0") as s:
        off = usage(s, "one")
        need(not off["cache_creation_input_tokens"], off)


@test()
def responses_are_kept_for_their_key():
    with Server("--api-key", "k1", "--api-key", "k2") as s:
        def ask_as(key, request):
            request.setdefault("headers", {})["Authorization"] = \
                f"Bearer {key}"
            return s.ask(request)
        a = ask_as("k1", post("/v1/responses", input="one",
                              max_output_tokens=3))
        need(a.status == 200 and a.json()["object"] == "response", a.body)
        where = f"/v1/responses/{a.json()['id']}"
        need(ask_as("k1", get(where)).body == a.body, "it was kept otherwise")
        for key, wanted in (("k2", 404), ("k1", 200)):
            b = ask_as(key, post("/v1/responses", input="two",
                                 max_output_tokens=3,
                                 previous_response_id=a.json()["id"]))
            need(b.status == wanted, b.body)
        need(b.json()["usage"]["input_tokens"] >
             a.json()["usage"]["input_tokens"], b.body)
        gone = ask_as("k2", {**get(where), "method": "DELETE"})
        need(gone.status == 404 and code_of(gone) == "response_not_found",
             gone.body)
        gone = ask_as("k1", {**get(where), "method": "DELETE"})
        need(gone.status == 200 and gone.json()["deleted"] is True, gone.body)
        need(ask_as("k1", get(where)).status == 404, "it is still there")
        a = ask_as("k1", post("/v1/responses", input="one", store=False,
                              max_output_tokens=3))
        need(ask_as("k1", get(f"/v1/responses/{a.json()['id']}")).status ==
             404, "store: false")


# ---- all ----

def main():
    listed = json.loads(subprocess.run(
        [QUERN, "help", "--json"], capture_output=True, check=True,
        env=environment()).stdout)
    flags = next({f["name"] for f in c["flags"]} for c in listed["commands"]
                 if c["name"] == "serve")
    bad = 0
    for name in sorted(flags - SHOWN - SHARED):
        print(f"--{name}: no test shows it")
        bad += 1
    for function in TESTS:
        began = time.monotonic()
        try:
            function()
            print(f"{function.__name__}: {time.monotonic() - began:.1f} s")
        except Exception as error:  # pylint: disable=broad-except
            bad += 1
            print(f"FAILED {function.__name__}: {type(error).__name__} "
                  f"{error}"[:1500])
    return 1 if bad else 0


sys.exit(main())
