"""What quern serve does with its flags, sockets, keys and signals.

    serve.py QUERN QUERN_TEST ROOT SCRATCH

A flag of serve that no test here, in serve_http.py and in serve_models.py names
fails.
"""

import base64
import hashlib
import json
import math
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

# pylint: disable=wildcard-import,unused-wildcard-import
from serve_lib import *  # noqa
import serve_http  # noqa: F401, for the flags that they show
import serve_models  # noqa: F401

TESTS.clear()


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
        flush["headers"]["x-api-key"] = "k1"
        need("NAME:KEY:admin" in s.ask(flush).body.decode(), "how to get one")
        need(" key=alice " in s.errors() and "ka" not in s.errors(), "log")
        # A new file of keys, and a bad one, which changes nothing.
        for text, told in (("bob:kb\n", None), ("bob\n!:\n", "a name has"),
                           ("", "expected a key, found none")):
            with open(name, "w", encoding="utf-8") as file:
                file.write(text)
            s.process.send_signal(signal.SIGHUP)
            if told:
                s.wait_for(told)
            until = time.monotonic() + 20
            while s.status(get("/v1/models", "kb")) != 200:
                need(time.monotonic() < until, "SIGHUP")
            need(s.status(get("/v1/models", "ka")) == 401, "the old key")
    # The file is empty now: without keys everybody could ask.
    err = run(TINY, "--port", "0", "--api-key-file", name, code=2)[2]
    need("found none" in err, err)
    with Server("--api-key", "k1", "--metrics-open") as s:
        need(s.status(get("/metrics")) == 200, "--metrics-open")


# ---- the page ----

@test("ui")
def the_page():
    with Server("--api-key", "k1") as s:
        a = s.ask(get("/"))
        need(a.status == 200 and
             a.header("content-type") == "text/html; charset=utf-8" and
             a.header("x-content-type-options") == "nosniff" and
             a.header("referrer-policy") == "no-referrer" and
             a.header("cache-control") == "no-cache", a.headers)
        text = a.body.decode()
        policy = a.header("content-security-policy")
        for tag in ("script", "style"):
            [inside] = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.S)
            digest = hashlib.sha256(inside.encode()).digest()
            source = f"{tag}-src 'sha256-{base64.b64encode(digest).decode()}'"
            need(source in policy, policy)
        need(s.ask(get("/?a=b")).body == a.body, "a query")
        [b], c = raw(s, "HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n",
                     method="HEAD")
        need(b.status == 200 and not b.body and
             b.header("content-length") == str(len(a.body)) and
             b.header("content-security-policy") == policy, b.headers)
        c.close()
        # The page is open; what it asks needs the key.
        need(s.status(get("/v1/models")) == 401 and s.status(chat()) == 401,
             "without the key")
        request = chat(key="k1")
        request["headers"] = {**request.get("headers", {}),
                              "Origin": f"http://127.0.0.1:{s.port}"}
        need(s.status(request) == 200, "with it")
        [a], c = raw(s, "POST / HTTP/1.1\r\nHost: localhost\r\n"
                     "Content-Length: 0\r\n\r\n")
        need(a.status == 405 and a.header("allow") == "GET, HEAD, OPTIONS",
             a.headers)
        c.close()
        evil = {**get("/"), "headers": {"Host": "evil.example"}}
        need(s.status(evil) == 403, "Host")
    with Server("--no-ui") as s:
        for method in ("GET", "POST", "HEAD"):
            [a], c = raw(s, f"{method} / HTTP/1.1\r\nHost: localhost\r\n"
                         "Content-Length: 0\r\n\r\n", method=method)
            need(a.status == 404 and a.header("allow") is None,
                 f"--no-ui: {method}: {a.status}")
            need(method == "HEAD" or code_of(a) == "not_found", a.body)
            c.close()
        need(s.status(chat()) == 200, "--no-ui")


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
        need(begun.wait(60), "no stream")
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


def cached_tokens(s, text):
    return s.ask(chat(text)).json()["usage"]["prompt_tokens_details"][
        "cached_tokens"]


@test()
def numbers_add_up():
    """What /metrics and the log count is what answers say."""
    def used(answer):
        u = answer.json()["usage"]
        if "prompt_tokens" in u:
            return (u["prompt_tokens"], u["completion_tokens"],
                    u["prompt_tokens_details"]["cached_tokens"])
        read = u.get("cache_read_input_tokens")
        if read is None:
            read = u["input_tokens_details"]["cached_tokens"]
            return u["input_tokens"], u["output_tokens"], read
        return (u["input_tokens"] + read + u["cache_creation_input_tokens"],
                u["output_tokens"], read)
    user = [{"role": "user", "content": "x"}]
    with Server() as s:
        sums = [0, 0, 0]
        for _ in range(2):
            for request in (
                    chat("word " * 20, 5), chat("word " * 20, 5, n=3),
                    post("/v1/completions", prompt=["a b", "c"], n=2,
                         max_tokens=3),
                    post("/v1/messages", messages=user, max_tokens=3),
                    post("/v1/responses", input="x", max_output_tokens=3)):
                sums = [a + b for a, b in zip(sums, used(s.ask(request)))]
            for request, status in ((chat(max_tokens=0), 400),
                                    (get("/nothing"), 404)):
                need(s.status(request) == status, request)
        found = [metric(s, f"quern_{kind}_tokens_total")
                 for kind in ("prompt", "completion", "cached")]
        need(found == sums, f"{found} are counted, {sums} were said")
        # A request is counted when it is over, which is behind its answer.
        for route, status, outcome, n in (
                ("chat", 200, "ok", 4), ("completions", 200, "ok", 2),
                ("messages", 200, "ok", 2), ("responses", 200, "ok", 2),
                ("chat", 400, "error", 2), ("other", 404, "error", 2)):
            wait_metric(s, f'quern_requests_total{{route="{route}",'
                           f'status="{status}",outcome="{outcome}"}}', n)
        logged = [[int(v) for v in re.findall(f" {kind}=(\\d+) ", s.errors())]
                  for kind in ("prompt", "completion", "cached")]
        need([sum(v) for v in logged] == sums, f"{logged} are logged")


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
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        wide = " avx512f " in file.read()
    if wide:
        copy = path("kept-under-avx512")
        shutil.copytree(folder, copy)
        with Server("--prefix-disk", copy, env={"QUERN_ISA": "avx2"}) as s:
            need(cached_tokens(s, text) == 0, "AVX-512's, under AVX2")
            need(metric(s, "quern_prefix_refused_total") == 1, "not counted")
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


@test("compat")
def as_mlx_lm():
    folder, text = path("profiles"), "word " * 40
    with Server("--prefix-disk", folder) as s:
        need(cached_tokens(s, text) == 0, "an empty folder")
    # What another profile computed is a miss that is counted.
    with Server("--prefix-disk", folder, "--compat", "mlx-lm") as s:
        need(cached_tokens(s, text) == 0, "another profile")
        need(metric(s, "quern_prefix_refused_total") == 1, "not counted")
        need(metric(s, "quern_prefix_misses_total") == 1, "no miss")
        need(cached_tokens(s, text) > 20, "in memory")
        request = chat()
        del request["json"]["temperature"], request["json"]["max_tokens"]
        a = s.ask(request)
        need(a.header("x-quern-seed") is None, "it draws")
        need(a.json() is not None and s.ask(request).json()["choices"] ==
             a.json()["choices"], "it draws")
    with Server("--prefix-disk", folder, "--compat", "mlx-lm") as s:
        need(cached_tokens(s, text) > 20, "it does not survive")


# What mlx_lm.server 0.32.2 answers with the tiny model, asked for nothing but
# log probabilities: ids, their log probabilities, the second likeliest ids.
MLX_CHAT = {
    "text": "\x10\ufffd\x17\ufffdld", "ids": [16, 196, 23, 223, 108, 100],
    "logprobs": [-1.50078, -0.83524, -1.40071, -0.88176, -0.52652, -0.70821],
    "second": [165, 194, 7, 210, 223, 181]}
MLX_TEXT = {"text": "^'S'S'S\ufffd12", "ids": [94, 314, 314, 314, 157, 317],
            "logprobs": [-1.38783, -1.48898, -1.6689, -1.03599, -1.06876,
                         -1.70353]}


@test("compat", "default-max-tokens")
def what_mlx_lm_answers():
    def check(choice, text, expected):
        found = choice["logprobs"]
        need(text == expected["text"] and found["tokens"] == expected["ids"],
             choice)
        need([c["id"] for c in found["content"]] == expected["ids"], choice)
        for a, b, c in zip(found["token_logprobs"], expected["logprobs"],
                           found["content"]):
            need(abs(a - b) < 0.01 and c["logprob"] == a, choice)
    with Server("--compat", "mlx-lm", "--dtype", "f32") as s:
        request = chat("abcabc", max_tokens=6, logprobs=True, top_logprobs=2)
        del request["json"]["temperature"]
        [choice] = s.ask(request).json()["choices"]
        check(choice, choice["message"]["content"], MLX_CHAT)
        need([c["top_logprobs"][1]["id"] for c in
              choice["logprobs"]["content"]] == MLX_CHAT["second"], choice)
        request = post("/v1/completions", prompt="abcabc", max_tokens=6,
                       logprobs=True)
        [choice] = s.ask(request).json()["choices"]
        check(choice, choice["text"], MLX_TEXT)
        request = post("/v1/completions", prompt="abcabc", max_tokens=2,
                       stream=True, stream_options={"include_usage": True})
        names = [json.loads(data)["object"] for _, data, _ in
                 s.ask(request).events[:-1]]
        need(names[-1] == "chat.completion" and
             set(names[:-1]) == {"text_completion"}, names)
    for flags, most in (([], 512), (["--default-max-tokens", "3"], 3)):
        with Server("--compat", "mlx-lm", *flags,
                    model=scripted("x" * 900), program=QUERN_TEST) as s:
            for request in (chat(), post("/v1/completions", prompt="a")):
                request["json"].pop("max_tokens", None)
                usage = s.ask(request).json()["usage"]
                need(usage["completion_tokens"] == most, usage)


def killed_while_it_writes():
    """Files are whole or not there, whenever the end comes."""
    folder = path("killed")
    for i in range(4):
        with Server("--prefix-disk", folder) as s:
            need(metric(s, "quern_prefix_refused_total") == 0, "damaged")
            for k in range(6):
                cached_tokens(s, f"{i} {k} " + "word " * 30)
            # Writing begins 50 ms after the last answer.
            time.sleep(0.045 + 0.015 * i)
            s.end(code=-signal.SIGKILL, how=signal.SIGKILL)
    with Server("--prefix-disk", folder) as s:
        need(not [n for n in os.listdir(folder) if n.endswith(".tmp")], "rests")
        for i in range(4):
            for k in range(6):
                cached_tokens(s, f"{i} {k} " + "word " * 30)
        need(metric(s, "quern_prefix_refused_total") == 0, "damaged")


TESTS.append(killed_while_it_writes)


@test("sse-ping")
def late_requests():
    slow = scripted("x" * 2000, delay_ms=5)
    with Server("--request-timeout", "1s", "--sse-ping", "0", model=slow,
                program=QUERN_TEST) as s:
        a = s.ask(chat(max_tokens=2000))
        need(a.status == 504 and code_of(a) == "timeout", (a.status, a.body))
        for _ in range(20):
            a = s.ask(chat(max_tokens=2000, stream=True))
            if a.status == 200:
                break  # else its second was over before its first token
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
        need(begun.wait(60), "no stream")
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


def family_model(name):
    """A tiny model of a family of tests/vectors/models with the tokenizer and
    template of the tiny one; its weights are drawn."""
    source = os.path.join(ROOT, "tests/vectors/models", name)
    folder = path(f"{name}-{len(os.listdir(SCRATCH))}")
    os.mkdir(folder)
    with open(os.path.join(source, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    config.update(vocab_size=332, max_position_embeddings=4096,
                  eos_token_id=324)
    with open(os.path.join(source, "tensors.json"), encoding="utf-8") as file:
        tensors = json.load(file)["tensors"]
    draw, header, data = random.Random(name), {}, bytearray()
    for tensor, _, shape, rule in tensors:
        shape = [332 if n == 300 else n for n in shape]
        need(rule[0] == "floats", rule)
        begin_at = len(data)
        data += struct.pack(f"<{math.prod(shape)}f", *(
            draw.randrange(-128, 128) * 2.0 ** rule[1] + rule[2]
            for _ in range(math.prod(shape))))
        header[tensor] = {"dtype": "F32", "shape": shape,
                          "data_offsets": [begin_at, len(data)]}
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    with open(os.path.join(folder, "config.json"), "w",
              encoding="utf-8") as file:
        json.dump(config, file)
    for other in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(TINY, other), folder)
    return folder


# As templates that leave thoughts of earlier turns out, and begin an answer
# with them.
THINKING = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content.split('</think>')[-1] }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif %}"""
# Takes no instructions by themselves, and puts them into the first question.
STRICT = """{% if messages[0].role == 'system' %}{% set first = messages[0]\
.content + '\n\n' %}{% set rest = messages[1:] %}{% else %}{% set first = '' \
%}{% set rest = messages %}{% endif %}{% if not rest %}{{ raise_exception(\
'no question') }}{% endif %}{% for m in rest %}<|im_start|>{{ m.role }}
{{ first if loop.first else '' }}{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}""".replace("\\\n", "")


def talk(s, turns, **more):
    roles = ("user", "assistant")
    messages = [{"role": "system", "content": "Speak of ships. " * 6}]
    messages += [{"role": roles[i % 2], "content": text}
                 for i, text in enumerate(turns)]
    request = chat(max_tokens=100, **more)
    request["json"].update(messages=messages)
    a = s.ask(request)
    need(a.status == 200, a.body)
    usage = a.json()["usage"]
    # The tokens of the messages, without what asks for an answer.
    rendered = s.ask({"method": "POST", "path": "/v1/apply-template",
                      "json": {"messages": messages,
                               "add_generation_prompt": False},
                      "headers": {"Content-Type": "application/json"}})
    need(rendered.status == 200, rendered.body)
    counted = s.ask({"method": "POST", "path": "/v1/tokenize",
                     "json": {"content": rendered.json()["prompt"],
                              "add_special": False, "parse_special": True},
                     "headers": {"Content-Type": "application/json"}})
    need(counted.status == 200, counted.body)
    return (usage["prompt_tokens_details"]["cached_tokens"],
            len(counted.json()["tokens"]), a.json()["choices"][0]["message"])


@test("chat-template")
def the_next_turn_has_the_messages_of_this_one():
    """Also where a cache can't go back: windows and recurrent layers."""
    for family in ("gemma3", "qwen3-5"):
        model = family_model(family)
        for template in (THINKING, STRICT):
            name = path("template")
            with open(name, "w", encoding="utf-8") as file:
                file.write(template)
            flags = ("--chat-template", name)
            with Server(*flags, model=model) as s, \
                    Server(*flags, "--prefix-cache", "0", model=model) as bare:
                first = ["Tell me of the old ones. " * 3]
                turns = [first, first + ["They were slow.", "And the new?"],
                         first + ["They were slow.", "And those of war? "],
                         ["Another conversation."]]
                found = [talk(s, t) for t in turns]
                for t, (_, _, message) in list(zip(turns, found))[1:]:
                    need(message == talk(bare, t)[2], f"{family}: {t}")
                sizes = [size for _, size, _ in found]
                cached = [n for n, _, _ in found]
                text = f"{family}: {cached} of {sizes}"
                need(cached[0] == 0, text)
                need(cached[1] >= sizes[0], text)
                # The last message is asked anew: what is before it.
                need(cached[2] > cached[1], text)
                # The instructions alone.
                need(cached[3] > 40, text)


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
    # It goes on for as long as what is looked at meanwhile takes.
    slow = scripted("x" * 200, delay_ms=20)
    with Server("--header-timeout", "1h", model=slow,
                program=QUERN_TEST) as s:
        idle = Connection(s.port, 60)
        begun, out = threading.Event(), []
        c = Connection(s.port, 60)
        c.send(request_bytes(s.port, chat(max_tokens=300, stream=True)))
        thread = threading.Thread(
            target=lambda: out.append(read_until_closed(c, begun)))
        thread.start()
        need(begun.wait(60), "no stream")
        half = Connection(s.port, 60)
        half.send(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n")
        s.process.send_signal(signal.SIGTERM)
        s.wait_for("shutting down")
        try:
            Connection(s.port, 60).close()
            raise Fault("connections are still taken")
        except ConnectionError:
            pass
        idle.send(request_bytes(s.port, chat()))
        a = idle.answer()
        need(a.status == 503 and code_of(a) == "shutting_down", a.body)
        need(a.header("connection") == "close", a.headers)
        thread.join()
        need(out[0].events[-1][1] == b"[DONE]", "the stream is cut")
        s.end(how=None)  # also beside half a request, which could go on
        half.close()
    endless = scripted("x" * 3000, delay_ms=20)
    with Server("--drain", "0s", model=endless, program=QUERN_TEST) as s:
        begun, out = threading.Event(), []
        c = Connection(s.port, 60)
        c.send(request_bytes(s.port, chat(max_tokens=3000, stream=True)))
        thread = threading.Thread(
            target=lambda: out.append(read_until_closed(c, begun)))
        thread.start()
        need(begun.wait(60), "no stream")
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


@test()
def while_it_loads():
    """The address is there first; the model comes when the gate opens."""
    for ends in (False, True):
        gate = path(f"gate-{ends}")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with Server(model=scripted("x", load_gate=gate), program=QUERN_TEST,
                    wait=False, port=port) as s:
            s.port, until = port, time.monotonic() + 60
            while True:
                try:
                    a = s.ask(get("/health"))
                    break
                except ConnectionError:
                    need(time.monotonic() < until, "nobody listens")
                    time.sleep(0.01)
            need(a.status == 503 and a.json()["status"] == "loading" and
                 0 <= a.json()["progress"] <= 1, a.body)
            for request in (chat(), get("/v1/models"), get("/metrics")):
                a = s.ask(request)
                need(a.status == 503 and code_of(a) == "loading" and
                     a.header("retry-after"), a.body)
            if ends:
                s.process.terminate()
                s.wait_for("shutting down")
            with open(gate, "wb"):
                pass
            if ends:
                s.end(how=None)
            else:
                s.wait()
                need(s.status(chat()) == 200, "when it is loaded")


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
        need(f"127.0.0.1:{s.port}: the address can't be had" in err and
             "serving" not in err, err)
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
                                                            "2"],
                  ["--idle-unload", "5m"], ["--default-max-tokens", "257"]):
        run(TINY, "--port", "0", *words, code=2)
    run(TINY, "--check", "--host", "127.0.0.1", "--default-max-tokens", "256",
        code=0)
    run(TINY, "--check", "--ctx", "300", code=2)
    out = run(TINY, "--print-config", "--parallel", "3", code=0)[1]
    need(re.search(r"parallel +3 ", out), out)
    # So much is not there; with --auto-fit less is asked for.
    err = run(TINY, "--check", "--prefix-cache", "1000T", code=5)[2]
    need("prefix cache" in err and "hint: " in err, err)
    run(TINY, "--check", "--prefix-cache", "1000T", "--auto-fit", code=5)
    run(TINY, "--check", "--prefix-cache", "1000T", "--force", code=0)
    err = run(TINY, "--kv-budget", "1000T", "--port", "0", code=5)[2]
    need(re.search("--kv-budget: expected at most .* found ", err), err)


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
    with Server("--max-connections", "1") as s:
        for _ in range(50):  # each behind the end of the one before
            need(s.status(get("/health")) == 200, "one after the other")
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
    for flag in "--log-file", "--log-content":
        err = run(TINY, "--port", "0", flag, "/nowhere/log", code=1)[2]
        need("/nowhere/log: No such file" in err, f"{flag}: {err!r}")
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
def vectors_wait_for_their_turn():
    much = post("/v1/embeddings", input=["word " * 60] * 2048)
    little = post("/v1/embeddings", input="a few words")
    with Server("--pooling", "mean", "--parallel", "1", "--max-queue", "2",
                "--ctx", "256") as s:
        first = Connection(s.port, 60)
        first.send(request_bytes(s.port, much))
        wait_metric(s, "quern_requests_running", 1)
        need(metric(s, "quern_kv_bytes_used") > 0, "no KV is set aside")
        answers = []
        waiting = [threading.Thread(target=lambda r=r: answers.append(
            ask(s.port, r, timeout=60))) for r in (chat(), little)]
        for i, thread in enumerate(waiting):
            thread.start()
            wait_metric(s, "quern_requests_waiting", i + 1)
        a = s.ask(little)
        need(a.status == 503 and code_of(a) == "server_overloaded", a.body)
        need(not answers, "they did not wait")
        first.close()
        for thread in waiting:
            thread.join()
        need([a.status for a in answers] == [200, 200], answers)
        wait_at_rest(s.port, 20)
        # The log knows the order; threads of clients wake up in any.
        done, until = [], time.monotonic() + 60
        while len(done) < 2:
            need(time.monotonic() < until, s.errors())
            done = re.findall("route=(chat|embeddings) status=200 "
                              "(?!.*left=yes)", s.errors())
        need(done == ["chat", "embeddings"], done)
        need(metric(s, "quern_kv_bytes_used") == 0, "KV stays")
        before = metric(s, "quern_prompt_tokens_total")
        usage = s.ask(little).json()["usage"]["prompt_tokens"]
        need(metric(s, "quern_prompt_tokens_total") == before + usage > before,
             "tokens are not counted")
    # Who talks gets on beside much that is to become vectors.
    with Server("--pooling", "mean", "--parallel", "3", "--ctx", "256") as s:
        held = [Connection(s.port, 60) for _ in range(2)]
        for c in held:
            c.send(request_bytes(s.port, much))
        wait_metric(s, "quern_requests_running", 2)
        need(s.status(chat(max_tokens=60)) == 200, "chat")
        need(metric(s, "quern_requests_running") == 2, "they are done")
        for c in held:
            c.close()
        wait_at_rest(s.port, 30)


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


# ---- calls of functions ----

FUNCTION = {"type": "function", "function": {
    "name": "now", "parameters": {"type": "object", "properties": {}}}}
TOOLS = os.path.join(MODELS, "../templates/tools.jinja")


def capabilities(s):
    return s.ask(get("/v1/models")).json()["data"][0]["capabilities"]


@test("tool-format")
def calls_of_functions():
    said = run(TINY, "--port", "0", "--tool-format", "xyz", code=2)[2]
    need("hermes_json" in said, said)
    call = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    tools = ["--chat-template", TOOLS]
    with Server(*tools, model=scripted(call * 2), program=QUERN_TEST) as s:
        need("tools" in capabilities(s), capabilities(s))
        a = s.ask(chat(tools=[FUNCTION], max_tokens=500)).json()
        names = [c["function"]["name"]
                 for c in a["choices"][0]["message"]["tool_calls"]]
        need(names == ["now", "now"] and
             a["choices"][0]["finish_reason"] == "tool_calls", a)
        for stream in (False, True):
            a = s.ask(chat(tools=[FUNCTION], max_tokens=500, stream=stream,
                           parallel_tool_calls=False))
            need(a.body.count(b'"name":"now"') == 1 and
                 b'"tool_calls"' in a.body and b"<tool" not in a.body, a.body)
        # No functions, or none that may be called: what it writes is text.
        for more in ({}, {"tools": [FUNCTION], "tool_choice": "none"}):
            a = s.ask(chat(max_tokens=500, **more)).json()["choices"][0]
            need(a["message"]["content"] == call * 2 and
                 a["finish_reason"] == "stop", a)
        need(metric(s, "quern_tool_parse_failures_total") == 0, "failures")
    bad = '<tool_call>{"name": "other"}</tool_call>'
    with Server(*tools, model=scripted(bad), program=QUERN_TEST) as s:
        a = s.ask(chat(tools=[FUNCTION], max_tokens=500)).json()["choices"][0]
        need(a["message"]["content"] == bad and a["finish_reason"] == "stop", a)
        need(metric(s, "quern_tool_parse_failures_total") == 1, "failures")
    with Server(*tools, "--tool-format", "none", model=scripted(call),
                program=QUERN_TEST) as s:
        need("tools" not in capabilities(s), capabilities(s))
        a = s.ask(chat(tools=[FUNCTION]))
        need(a.status == 400 and a.json()["error"]["param"] == "tools", a.body)
    with Server("--tool-format", "mistral", model=scripted(
            "[TOOL_CALLS]now[ARGS]{}"), program=QUERN_TEST) as s:
        a = s.ask(chat(tools=[FUNCTION], max_tokens=500)).json()["choices"][0]
        need(a["message"]["content"] is None and
             a["finish_reason"] == "tool_calls", a)


# ---- all ----

def main():
    listed = json.loads(subprocess.run(
        [QUERN, "help", "--json"], capture_output=True, check=True,
        env=environment()).stdout)
    flags = next({f["name"] for f in c["flags"]} for c in listed["commands"]
                 if c["name"] == "serve")
    unshown = sorted(flags - SHOWN - SHARED)
    for name in unshown:
        print(f"--{name}: no test shows it")
    return 1 if run_all() or unshown else 0


sys.exit(main())
