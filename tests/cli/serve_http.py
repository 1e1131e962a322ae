"""How quern serve speaks HTTP: what it takes, refuses and waits for.

    serve_http.py QUERN QUERN_TEST ROOT SCRATCH
"""

import json
import socket
import sys
import threading
import time

# pylint: disable=wildcard-import,unused-wildcard-import
from serve_lib import *  # noqa

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
        # HTTP/1.0 closes, whatever it asks for.
        for more in ("", "Host: localhost\r\n", "Connection: keep-alive\r\n"):
            [a], c = raw(s, f"GET /health HTTP/1.0\r\n{more}\r\n")
            need(a.status == 200 and c.closes_within(20), "HTTP/1.0")
        refusals_in_a_row(s)
        refused_heads(s)
        refused_bodies(s)
        interim(s)


def refusals_in_a_row(s):
    """A refusal ends a connection only where what follows is a guess."""
    requests = [({"method": "GET", "path": "/nope"}, 404),
                ({"method": "PUT", "path": "/health"}, 405),
                (chat(), 200), (get("/v1/models/nope"), 404),
                ({"method": "OPTIONS", "path": "/health"}, 204),
                (chat(max_tokens=0), 400), (get("/health"), 200)]
    answers, c = raw(s, b"".join(request_bytes(s.port, r)
                                 for r, _ in requests), 0)
    for r, status in requests:
        a = c.answer(r["method"])
        need(a is not None and a.status == status, f"{r}: {a and a.status}")
    c.close()
    for text, status in (("", 411), ("Content-Length: 1\r\nContent-Length: 2"
                                     "\r\n", 400)):
        [a], c = raw(s, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                     f"Content-Type: application/json\r\n{text}\r\n"
                     "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        need(a.status == status and c.closes_within(20), f"{status} goes on")


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
        (400, "bad_request", "GET /health HTTP/1.1\r\n\r\n"),
        (400, "bad_request", f"GET /health HTTP/1.1\r\n{host}{host}\r\n"),
        (400, "bad_request", f"GET /health HTTP/1.1\r\n{host}"
         "Host: evil.example\r\n\r\n"),
        (400, "bad_request", f"GET /hea\0lth HTTP/1.1\r\n{host}\r\n"),
        (400, "bad_request", f"GET /hea lth HTTP/1.1\r\n{host}\r\n"),
        (413, "request_too_large", f"POST /v1/completions HTTP/1.1\r\n{host}"
         "Content-Type: application/json\r\n"
         f"Content-Length: {2**64 - 1}\r\n\r\n"),
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


def whole(s, text, finish=False):
    """All that comes back until the connection ends."""
    c = Connection(s.port, 60)
    c.send(text.encode("latin-1"))
    if finish:
        c.finish_sending()
    c.need(lambda: False)
    c.close()
    return c.buffer


@test()
def what_the_library_decides():
    """The list in docs/server.md, in its order."""
    host = "Host: localhost\r\n"
    closes = host + "Connection: close\r\n"
    post = (f"POST /v1/tokenize HTTP/1.1\r\n{closes}"
            "Content-Type: application/json\r\n")
    with Server("--header-timeout", "1s") as s:
        for status, text in (
                # Folded lines, lines without CR, headers without a name.
                (200, f"GET /health HTTP/1.1\r\n{closes}X: a\r\n b\r\n\r\n"),
                (200, f"GET /health HTTP/1.1\n{closes}\n"),
                (200, post + "Transfer-Encoding: chunked\r\n\r\n"
                 '11\n{"content": "ab"}\n0\n\n'),
                (200, f"GET /health HTTP/1.1\r\n{closes}: x\r\n\r\n"),
                # Replies of its own.
                (400, "GET /health\r\n\r\n"),
                (400, f"GET /health HTTP/3\r\n{host}\r\n"),
                (505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
                (505, f"GET /health HTTP/2.0\r\n{host}\r\n"),
                (400, f"GET /health HTTP/1.1\r\n{host}nocolon\r\n\r\n"),
                (414, f"GET /{'a' * 200000} HTTP/1.1\r\n{host}\r\n"),
                (431, f"GET / HTTP/1.1\r\n{host}X: {'a' * 200000}\r\n\r\n"),
                (400, post + "Content-Length: 1, 1\r\n\r\n"),
                (400, post + "Content-Length: -1\r\n\r\n"),
                (413, post + f"Content-Length: {2**64}\r\n\r\n"),
                (400, post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
                (413, post + "Transfer-Encoding: chunked\r\n\r\n"
                 f"{2**64:x}\r\n")):
            found = whole(s, text)
            need(found.startswith(f"HTTP/1.1 {status} ".encode()),
                 f"{text[:60]!r}: {found[:200]}")
        # No reply: a first line that is none, or that does not come.
        for text in ("GET\t/health\tHTTP/1.1\r\n\r\n", "nonsense\r\n\r\n",
                     "GET /hea", ""):
            need(whole(s, text) == b"", f"{text!r} is answered")
        # Nobody hears what is said to a request that is cut.
        for text in ("GET /hea", f"GET /health HTTP/1.1\r\n{host}",
                     post + "Content-Length: 9\r\n\r\n{"):
            found = whole(s, text, True)
            need(not found or found.startswith(b"HTTP/1.1 400 "), found)
        need(s.status(get("/health")) == 200, "after all of them")


def requests_total(s, **labels):
    """How many requests are counted with all of the labels."""
    out = 0
    for line in s.ask(get("/metrics")).body.decode().splitlines():
        if line.startswith("quern_requests_total{") and all(
                f'{k}="{v}"' in line for k, v in labels.items()):
            out += int(line.rsplit(" ", 1)[1])
    return out


@test("request-timeout")
def refusals_that_go_past_the_library():
    """They have the shape of their route, and are counted and logged."""
    with Server("--request-timeout", "1s", "--max-body", "100") as s:
        for path_of, route in (("chat/completions", "chat"),
                               ("messages", "messages")):
            head = (f"POST /v1/{path_of} HTTP/1.1\r\nHost: localhost\r\n"
                    "Content-Type: application/json\r\nX-Request-Id: mine\r\n")
            for status, text in (
                    (413, "Transfer-Encoding: chunked\r\n\r\n80\r\n" +
                     "x" * 0x80 + "\r\n0\r\n\r\n"),
                    # The body comes, but takes too long.
                    (504, "Content-Length: 9\r\n\r\n{")):
                [a], c = raw(s, head + text)
                need(a.status == status and c.closes_within(20), text)
                need(a.header("x-request-id") == "mine", a.headers)
                need((a.json().get("request_id") == "mine") ==
                     (route == "messages"), a.body)
                s.wait_for(f"route={route} status={status} ")
                need(requests_total(s, route=route, status=status,
                                    outcome="error") == 1, "not counted")


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


if __name__ == "__main__":
    sys.exit(1 if run_all() else 0)
