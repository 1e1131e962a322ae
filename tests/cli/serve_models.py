"""What quern serve does with several models.

    serve_models.py QUERN QUERN_TEST ROOT SCRATCH

Memory is made scarce by --prefix-cache:
what it may take counts for each model, so with more than half of what can be
used there is room for one.
"""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

# pylint: disable=wildcard-import,unused-wildcard-import
from serve_lib import *  # noqa

TESTS.clear()


class Many(Server):
    """A server with several models: flags alone say which."""

    def __init__(self, *flags, **more):
        super().__init__(*flags, model=None, **more)

    def states(self):
        listed = self.ask(get("/v1/models")).json()["data"]
        return {m["id"]: m["state"] for m in listed}

    def wait_state(self, name, state):
        until = time.monotonic() + 60
        while self.states()[name] != state:
            need(time.monotonic() < until, f"{name} is never {state}")
            time.sleep(0.01)

    def metric(self, name, model):
        start = f'quern_{name}{{model="{model}"'
        for line in self.ask(get("/metrics")).body.decode().splitlines():
            if line.startswith(start):
                return float(line.rsplit(" ", 1)[1])
        raise Fault(f"no metric {name} of {model}")

    def wait_metric(self, name, model, value):
        until = time.monotonic() + 60
        while self.metric(name, model) != value:
            need(time.monotonic() < until, f"{name} of {model} is not {value}")
            time.sleep(0.01)

    def load(self, name, **more):
        return self.ask(post("/v1/models/load", model=name, **more))

    def unload(self, name, **more):
        return self.ask(post("/v1/models/unload", model=name, **more))


class Stream:
    """A stream that has begun, and is read by a thread."""

    def __init__(self, server, model, tokens):
        self.connection = Connection(server.port, 60)
        self.connection.send(request_bytes(server.port, chat(
            model=model, max_tokens=tokens, stream=True)))
        self.out, begun = [], threading.Event()
        self.thread = threading.Thread(target=lambda: self.out.append(
            read_until_closed(self.connection, begun)))
        self.thread.start()
        need(begun.wait(60), "no stream")

    def leave(self):
        self.connection.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join()

    def events(self):
        self.thread.join()
        return self.out[0].events


class Later:
    """A request that is answered in its own time."""

    def __init__(self, server, request):
        self.out = []
        self.thread = threading.Thread(
            target=lambda: self.out.append(server.ask(request)))
        self.thread.start()

    def answer(self):
        self.thread.join()
        need(self.out, "no answer")
        return self.out[0]


def usable():
    done = subprocess.run([QUERN, "fit", TINY, "--json"], capture_output=True,
                          env=environment(), check=False)
    return json.loads(done.stdout)["machine"]["usable_bytes"]


def scarce(share):
    """Flags by which every model takes this share of the memory, which other
    programs make more and less meanwhile: with 0.72 one has room and two have
    not while it does not grow by a third or shrink by a quarter; with 0.41 two
    have while it stays within a fifth."""
    return ["--prefix-cache", str(int(usable() * share))]


def words(answer):
    need(answer.status == 200, (answer.status, answer.body))
    return answer.json()["choices"][0]["message"]["content"]


# ---- choosing ----

@test("model", "alias", "strict-model", "json")
def every_route_goes_to_the_model_that_is_named():
    fable = scripted("fable " * 20)
    with Many("--model", f"a={TINY}", "--model", f"b={fable}", "--alias",
              "gpt=b", "--json", "--strict-model", program=QUERN_TEST) as s:
        ready = json.loads(s.output())
        need(ready["models"] == ["a", "b"] and "ctx" not in ready, ready)
        need("serving 2 models" in s.errors(), s.errors())
        need(s.states() == {"a": "unloaded", "b": "unloaded"}, s.states())
        need(s.ask(get("/health")).json() == {"status": "ok"}, "health")
        listed = s.ask(get("/v1/models/a")).json()
        need(listed["context_length"] == 256 and listed["size_bytes"] > 0 and
             "chat" in listed["capabilities"] and
             listed["architecture"] == "llama", listed)
        need(s.metric("model_loaded", "a") == 0, "loaded before it is asked")
        a = s.ask(chat(model="gpt", max_tokens=5))
        need(words(a) == "fable" and a.header("x-quern-model") == "b" and
             a.json()["model"] == "b", a.body)
        need(s.states() == {"a": "unloaded", "b": "loaded"}, s.states())
        need(s.metric("completion_tokens_total", "b") == 5 and
             s.metric("completion_tokens_total", "a") == 0, "counts")
        for request in (
                chat(model="a"),
                post("/v1/completions", model="a", prompt="x", max_tokens=1),
                post("/v1/messages", model="a", max_tokens=1, messages=[
                    {"role": "user", "content": "x"}]),
                post("/v1/messages/count_tokens", model="a", messages=[
                    {"role": "user", "content": "x"}]),
                post("/v1/responses", model="a", input="x",
                     max_output_tokens=1),
                post("/v1/tokenize", model="a", content="x"),
                post("/v1/detokenize", model="a", tokens=[65]),
                post("/v1/apply-template", model="a", messages=[
                    {"role": "user", "content": "x"}])):
            a = s.ask(request)
            need(a.status == 200 and a.header("x-quern-model") == "a",
                 (request, a.status, a.body))
        a = s.ask(post("/v1/embeddings", model="a", input="x"))
        need(a.status == 400 and a.json()["error"]["param"] == "model", a.body)
        need(s.states() == {"a": "loaded", "b": "loaded"}, s.states())
        for request in (chat(model="x"), get("/v1/models/x"),
                        get("/v1/fit?model=x"),
                        post("/v1/models/load", model="x")):
            a = s.ask(request)
            need(a.status == 404 and code_of(a) == "model_not_found" and
                 "'a', 'b'" in a.json()["error"]["message"], a.body)
        a = s.ask(chat())
        need(a.status == 400 and code_of(a) == "missing_field" and
             a.json()["error"]["param"] == "model", a.body)
        s.wait_for("route=chat status=200 model=b ")
        text = s.ask(get("/metrics")).body.decode()
        need('quern_requests_total{route="chat",status="200",outcome="ok",'
             'model="b"} 1' in text, text)


@test()
def the_bytes_are_those_of_a_server_with_that_model_alone():
    names = ["tiny", "tiny-gguf"]
    names = [n for n in names if os.path.exists(os.path.join(MODELS, n))]
    request = chat("tell me more", max_tokens=20, seed=7, temperature=1)
    alone = []
    for name in names:
        with Server(model=os.path.join(MODELS, name)) as s:
            alone.append(words(s.ask(request)))
    flags = [f"--model={n}={os.path.join(MODELS, n)}" for n in names]
    with Many(*flags) as s:
        later = [Later(s, chat("tell me more", max_tokens=20, seed=7,
                               temperature=1, model=n))
                 for n in names * 3]
        need([words(x.answer()) for x in later] == alone * 3, "other bytes")


@test()
def fit_is_asked_without_loading():
    with Many("--model", f"a={TINY}", "--model", f"b={TINY}") as s:
        a = s.ask(get("/v1/fit?model=b&context=128&parallel=2"))
        need(a.status == 200 and a.json()["context"] == 128 and
             a.json()["parallel"] == 2 and a.json()["fits"], a.body)
        need(s.states()["b"] == "unloaded", "it was loaded")
        s.load("b")
        need(s.ask(get("/v1/fit?model=b&context=128&parallel=2")).json()
             ["required_bytes"] == a.json()["required_bytes"], "other numbers")
        for query in ("context=0", "context=257", "parallel=1025",
                      "parallel=x"):
            for name in ("a", "b"):
                a = s.ask(get(f"/v1/fit?model={name}&{query}"))
                need(a.status == 400 and code_of(a) == "out_of_range",
                     (query, a.body))
        need(s.status(get("/v1/fit")) == 400, "no model is named")


# ---- loading and unloading ----

@test()
def models_are_loaded_and_unloaded_when_asked_to():
    slow = scripted("x" * 4000, delay_ms=5)
    with Many("--model", f"a={TINY}", "--model", f"slow={slow}",
              program=QUERN_TEST) as s:
        for _ in range(2):
            a = s.load("a")
            need(a.status == 200 and a.json()["id"] == "a" and
                 a.json()["state"] == "loaded", a.body)
        for _ in range(2):
            a = s.unload("a")
            need(a.status == 200 and a.json()["state"] == "unloaded", a.body)
        # Counts do not begin anew.
        s.ask(chat(model="a", max_tokens=2))
        s.unload("a")
        s.ask(chat(model="a", max_tokens=2))
        need(s.metric("completion_tokens_total", "a") == 4, "counts")
        steps = s.metric("step_seconds_count", "a")
        s.unload("a")
        need(s.metric("step_seconds_count", "a") == steps > 0, "steps")
        stream = Stream(s, "slow", 4000)
        a = s.unload("slow")
        need(a.status == 409 and code_of(a) == "model_busy", a.body)
        a = s.load("slow", context=64)
        need(a.status == 409 and code_of(a) == "model_busy", a.body)
        a = s.unload("slow", force=True)
        need(a.status == 200 and a.json()["state"] == "unloaded", a.body)
        last = json.loads(stream.events()[-1][1])
        need(last["error"]["code"] == "shutting_down", last)
        need(s.status(chat(model="slow")) == 200, "it can't be used again")
        for request, status in (
                (post("/v1/models/load"), 400),
                (post("/v1/models/load", model=1), 400),
                (post("/v1/models/load", model="a", context="8"), 400),
                (post("/v1/models/load", model="a", context=0), 400),
                (post("/v1/models/load", model="a", context=257), 400),
                (post("/v1/models/unload", model="a", force=1), 400),
                (get("/v1/models/load"), 405)):
            need(s.ask(request).status == status, request)
        a = s.ask({"method": "POST", "path": "/v1/models/load",
                   "body_parts": [{"text": "{"}],
                   "headers": {"Content-Type": "application/json"}})
        need(a.status == 400 and code_of(a) == "invalid_json", a.body)


def open_gate(name):
    with open(name, "wb"):
        pass


@test()
def while_one_is_loaded():
    gates = [path(f"gate-many-{i}") for i in range(3)]
    flags = [f"--model={n}={scripted('x', load_gate=g)}"
             for n, g in zip("abc", gates)]
    with Many(*flags, "--model", f"tiny={TINY}", program=QUERN_TEST) as s:
        need(s.status(chat(model="tiny")) == 200, "tiny")
        c = Connection(s.port, 60)
        c.send(request_bytes(s.port, chat(model="a")))
        s.wait_state("a", "loading")
        # Others go on, and the next one waits until this one is loaded.
        need(s.status(chat(model="tiny")) == 200, "others wait")
        need(s.status(get("/health")) == 200, "health")
        next_one = Later(s, chat(model="b"))
        s.wait_metric("requests_waiting", "b", 1)
        need(s.states()["b"] == "unloaded", "two at a time")
        c.close()
        s.wait_metric("requests_waiting", "a", 0)
        need('outcome="cancelled",model="a"} 1' in
             s.ask(get("/metrics")).body.decode(), "it was not noticed")
        late = Later(s, chat(model="a"))
        s.wait_metric("requests_waiting", "a", 1)
        need(s.unload("a").status == 409, "somebody waits")
        gone = Later(s, post("/v1/models/unload", model="a", force=True))
        a = late.answer()
        need(a.status == 503 and code_of(a) == "shutting_down", a.body)
        open_gate(gates[0])
        open_gate(gates[1])
        need(gone.answer().json()["state"] == "unloaded", "force")
        need(words(next_one.answer()) == "x", "b")
        need(s.states()["a"] == "unloaded", s.states())
        # Forgetting all waits for what is being loaded.
        waits = Later(s, chat(model="c"))
        s.wait_state("c", "loading")
        forget = Later(s, post("/v1/cache/flush"))
        open_gate(gates[2])
        need(forget.answer().status == 200, "flush")
        need(words(waits.answer()) == "x", "c")
    with Many("--model", "a=" + scripted("x", load_gate=path("gate-end")),
              program=QUERN_TEST) as s:
        waits = Later(s, chat(model="a"))
        s.wait_state("a", "loading")
        s.process.send_signal(signal.SIGTERM)
        a = waits.answer()
        need(a.status == 503 and code_of(a) == "shutting_down", a.body)
        open_gate(path("gate-end"))
        s.end(how=None)


@test()
def a_context_is_for_one_load():
    with Many("--model", f"a={TINY}") as s:
        for context in (64, 64, 128):
            need(s.load("a", context=context).json()["context_length"] ==
                 context, context)
        a = s.ask(chat("word " * 200, model="a"))
        need(code_of(a) == "context_length_exceeded", a.body)
        need(s.load("a").json()["context_length"] == 128, "any will do")
        s.unload("a")
        need(s.load("a").json()["context_length"] == 256, "the usual one")


@test()
def administrators_alone_load_and_unload():
    name = path("admin-keys")
    with open(name, "w", encoding="utf-8") as file:
        file.write("user:ku\nroot:kr:admin\n")
    os.chmod(name, 0o600)
    with Many("--model", f"a={TINY}", "--api-key-file", name) as s:
        for route in ("load", "unload"):
            for key, status in ((None, 401), ("ku", 403), ("kr", 200)):
                request = post(f"/v1/models/{route}", model="a")
                if key:
                    request["headers"]["x-api-key"] = key
                need(s.status(request) == status, (route, key))
        need(s.status(chat(model="a", key="ku")) == 200, "a user's request")


@test()
def what_can_not_be_loaded_is_tried_again():
    folder = path("models-bad")
    os.mkdir(folder)
    for name in ("good", "late", "never"):
        shutil.copytree(TINY, os.path.join(folder, name))
    weights = os.path.join(folder, "late", "model.safetensors")
    config = os.path.join(folder, "never", "config.json")
    for name in (weights, config):
        os.chmod(name, 0o644)
        shutil.copy(name, name + ".kept")
    os.truncate(config, 10)
    with Many("--models-dir", folder) as s:
        need(s.states() == {"good": "unloaded", "late": "unloaded",
                            "never": "failed"}, s.states())
        need("never can't be loaded: " in s.errors(), s.errors())
        os.truncate(weights, 100)
        for name in ("late", "never"):
            for request in (chat(model=name),
                            post("/v1/models/load", model=name)):
                a = s.ask(request)
                need(a.status == 500 and code_of(a) == "model_load_failed" and
                     SCRATCH not in a.body.decode(), a.body)
            need(s.states()[name] == "failed", s.states())
            a = s.unload(name)
            need(a.status == 200 and a.json()["state"] == "unloaded", a.body)
        for name in (weights, config):
            os.replace(name + ".kept", name)
        for name in ("late", "never", "good"):
            a = s.ask(chat(model=name))
            need(a.status == 200, (name, a.body))
        need(set(s.states().values()) == {"loaded"}, s.states())


# ---- memory ----

@test()
def the_one_that_was_not_used_for_longest_goes():
    flags = [f"--model={n}={TINY}" for n in "abc"]
    with Many(*flags, *scarce(0.41)) as s:
        for name in "aba":
            need(s.status(chat(model=name)) == 200, name)
        need(s.status(chat(model="c")) == 200, "c")
        need(s.states() == {"a": "loaded", "b": "unloaded", "c": "loaded"},
             s.states())
        need(s.load("b").status == 200, "b")
        need(s.states() == {"a": "unloaded", "b": "loaded", "c": "loaded"},
             s.states())
    with Many(*flags, *scarce(0.41), "--force") as s:
        for name in "abc":
            need(s.status(chat(model=name)) == 200, name)
        need(set(s.states().values()) == {"loaded"}, "--force")


@test()
def nobody_goes_who_has_requests():
    slow = scripted("x" * 300, delay_ms=10)
    with Many("--model", f"slow={slow}", "--model", f"b={TINY}",
              *scarce(0.72), program=QUERN_TEST) as s:
        stream = Stream(s, "slow", 300)
        waits = Later(s, chat(model="b"))
        s.wait_metric("requests_waiting", "b", 1)
        # Who comes later for the one that is to go waits behind it.
        behind = Later(s, chat(model="slow", max_tokens=1))
        s.wait_metric("requests_waiting", "slow", 1)
        need(s.states()["slow"] == "loaded", s.states())
        need(words(waits.answer()) is not None, "b")
        text = "".join(json.loads(e[1])["choices"][0]["delta"].get(
            "content", "") for e in stream.events()[:-1])
        need(text == "x" * 300, f"{len(text)} of 300")
        need(words(behind.answer()) == "x", "behind")
        need(s.states() == {"slow": "loaded", "b": "unloaded"}, s.states())
        wait_at_rest(s.port, 20)


@test()
def who_waits_for_a_model_may_leave_or_wait_too_long():
    slow = scripted("x" * 4000, delay_ms=5)
    with Many("--model", f"slow={slow}", "--model", f"b={TINY}",
              *scarce(0.72), "--queue-timeout", "1s", "--max-queue", "1",
              program=QUERN_TEST) as s:
        stream = Stream(s, "slow", 4000)
        c = Connection(s.port, 60)
        c.send(request_bytes(s.port, chat(model="b")))
        s.wait_metric("requests_waiting", "b", 1)
        c.close()
        s.wait_metric("requests_waiting", "b", 0)
        need('outcome="cancelled",model="b"} 1' in
             s.ask(get("/metrics")).body.decode(), "it was not noticed")
        # It is in nobody's way any more.
        need(s.status(chat(model="slow", max_tokens=1)) == 200, "slow")
        late = Later(s, chat(model="b"))
        s.wait_metric("requests_waiting", "b", 1)
        a = s.ask(chat(model="b"))
        need(a.status == 503 and code_of(a) == "server_overloaded" and
             int(a.header("retry-after")) >= 1, a.body)
        a = late.answer()
        need(a.status == 503 and code_of(a) == "server_overloaded", a.body)
        need(s.states() == {"slow": "loaded", "b": "unloaded"}, s.states())
        stream.leave()
        need(s.status(chat(model="b")) == 200, "b")


@test()
def what_can_never_fit_says_so():
    folder = path("models-large")
    os.mkdir(folder)
    shutil.copytree(TINY, os.path.join(folder, "a"))
    with Many("--models-dir", folder, "--prefix-cache", "1000T") as s:
        a = s.load("a")
        need(a.status == 503 and code_of(a) == "insufficient_memory" and
             "1000.0 TiB" in a.json()["error"]["message"], a.body)
        a = s.ask(chat(model="a"))
        need(a.status == 503 and code_of(a) == "insufficient_memory", a.body)
        a = s.ask(get("/v1/fit?model=a"))
        need(a.status == 200 and not a.json()["fits"], a.body)
    run("--model", f"a={TINY}", "--prefix-cache", "1000T", "--port", "0",
        code=5)


@test()
def vectors_of_several_models():
    flags = [f"--model={n}={TINY}" for n in "ab"]
    body = {"input": ["one", "two words"], "encoding_format": "base64"}
    with Many(*flags, "--pooling", "mean", *scarce(0.72)) as s:
        made = [Later(s, post("/v1/embeddings", model=n, **body))
                for n in "abab"]
        made = [m.answer() for m in made]
        need([m.json()["model"] for m in made] == list("abab"), made)
        need(len({json.dumps(m.json()["data"]) for m in made}) == 1, "vectors")
        need(s.metric("prompt_tokens_total", "a") ==
             s.metric("prompt_tokens_total", "b") > 0, "counts")
        a = s.ask(post("/v1/embeddings", model="c", **body))
        need(a.status == 404, a.body)


@test()
def loads_leave_nothing_behind():
    sanitized = any(k.endswith("SAN_OPTIONS") for k in os.environ) or \
        "/asan" in QUERN or "/tsan" in QUERN
    with Many("--model", f"a={TINY}", "--model", f"b={TINY}",
              *scarce(0.72)) as s:
        def rounds(n):
            for i in range(n):
                need(s.status(chat(model="ab"[i % 2])) == 200, i)
            for name in "ab":
                s.unload(name)
            s.ask(post("/v1/cache/flush"))
            return metric(s, "quern_resident_bytes")
        before = rounds(10)
        after = rounds(40)
        need(sanitized or after < before + (4 << 20), (before, after))


@test()
def many_clients_of_many_models():
    """Whatever comes and goes, answers are those of a model alone."""
    names = {"a": "tiny", "b": "tiny_q4", "c": "tiny_h64"}
    prompts = ["tell me", "go on " * 5]
    flags = [f"--model={n}={os.path.join(MODELS, m)}"
             for n, m in names.items()]

    def request(name, prompt, stream):
        return chat(prompt, model=name, max_tokens=12, stream=stream)

    def text_of(answer):
        if not answer.events:
            return words(answer)
        return "".join(json.loads(e[1])["choices"][0]["delta"].get(
            "content") or "" for e in answer.events[:-1])
    alone = {}
    with Many(*flags) as s:
        for name in names:
            for prompt in prompts:
                alone[name, prompt] = words(s.ask(request(name, prompt,
                                                          False)))
    faults, done = [], []

    def client(s, number):
        draw = random.Random(number)
        for _ in range(12):
            name, prompt = draw.choice("abc"), draw.choice(prompts)
            kind = draw.randrange(8)
            try:
                if kind == 0:
                    need(s.load(name).status == 200, "load")
                elif kind == 1:
                    need(s.unload(name).status in (200, 409), "unload")
                elif kind == 2:
                    c = Connection(s.port, 60)
                    c.send(request_bytes(s.port, request(name, prompt, True)))
                    c.close()
                elif kind == 3:
                    need(s.status(post("/v1/cache/flush")) == 200, "flush")
                else:
                    a = s.ask(request(name, prompt, kind == 4))
                    need(a.status == 200, (a.status, a.body))
                    need(text_of(a) == alone[name, prompt], a.body)
                    done.append(name)
            except Exception as error:  # pylint: disable=broad-except
                faults.append(f"{kind} {name}: {error}")
    with Many(*flags, *scarce(0.41), "--max-queue", "100") as s:
        threads = [threading.Thread(target=client, args=(s, i))
                   for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        need(not faults, faults[:3])
        wait_at_rest(s.port, 30)
        need(sum(v == "loaded" for v in s.states().values()) <= 2, s.states())
        need(sum(s.metric("ttft_seconds_count", n) for n in names) >=
             len(done) > 30, done)


# ---- time ----

@test("idle-unload")
def idle_models_are_unloaded():
    with Many("--model", f"a={TINY}", "--model", f"b={TINY}",
              "--idle-unload", "1s") as s:
        need(s.status(chat(model="a", keep_alive=-1)) == 200, "a")
        need(s.status(chat(model="b")) == 200, "b")
        s.wait_state("b", "unloaded")
        need(s.states()["a"] == "loaded", "it was to stay")
        need(s.status(chat(model="a")) == 200, "a")
        s.wait_state("a", "unloaded")
        s.load("b")
        s.wait_state("b", "unloaded")
        # Also when nobody is connected.
        need(s.status(chat(model="a")) == 200, "a")
        time.sleep(4)
        need(s.states()["a"] == "unloaded", "nobody looked")
    with Many("--model", f"a={TINY}") as s:
        a = s.ask(chat(model="a", keep_alive=0))
        need(a.status == 200 and a.header("x-quern-ignored") is None, a.body)
        s.wait_state("a", "unloaded")
        for value in ("5m", 300, "-1"):
            need(s.status(chat(model="a", keep_alive=value)) == 200, value)
        need(s.states()["a"] == "loaded", "it stays")
        for value in (-2, "x", ""):
            need(s.status(chat(model="a", keep_alive=value)) == 400, value)
    with Server() as s:
        a = s.ask(chat(keep_alive="5m"))
        need(a.status == 200 and a.header("x-quern-ignored") == "keep_alive",
             a.headers)


@test()
def the_end_waits_for_requests_of_all_models():
    a, b = scripted("x" * 60, delay_ms=20), scripted("x" * 60, delay_ms=20)
    with Many("--model", f"a={a}", "--model", f"b={b}", "--model", f"c={TINY}",
              *scarce(0.41), program=QUERN_TEST) as s:
        streams = [Stream(s, name, 60) for name in "ab"]
        waits = Later(s, chat(model="c"))
        s.wait_metric("requests_waiting", "c", 1)
        s.process.send_signal(signal.SIGTERM)
        late = waits.answer()
        need(late.status == 503 and code_of(late) == "shutting_down",
             late.body)
        for stream in streams:
            events = stream.events()
            text = "".join(json.loads(e[1])["choices"][0]["delta"].get(
                "content", "") for e in events[:-1])
            need(events[-1][1] == b"[DONE]" and text == "x" * 60, text)
        s.end(how=None)


# ---- prompts that are kept ----

@test()
def each_model_keeps_its_prompts():
    folder, text = path("kept-many"), "word " * 40
    flags = ["--model", f"a={TINY}", "--model", f"b={TINY}", "--prefix-disk",
             folder]

    def cached(s, name):
        return s.ask(chat(text, model=name)).json()["usage"][
            "prompt_tokens_details"]["cached_tokens"]

    def flush(s, **more):
        a = s.ask(post("/v1/cache/flush", **more))
        need(a.status == 200, a.body)
        return a.json()
    with Many(*flags) as s:
        need(flush(s) == {"entries": 0, "bytes": 0}, "nothing is loaded")
        need([cached(s, n) for n in "aabb"][::2] == [0, 0], "others' prompts")
        need(cached(s, "a") > 20 and cached(s, "b") > 20, "not kept")
        done = flush(s)
        need(done["entries"] == 2 and done["bytes"] > 0, done)
        # Unloading writes them, too.
        cached(s, "a")
        s.unload("a")
        need(cached(s, "a") > 20, "gone with the model")
        cached(s, "b")
    need(os.stat(folder).st_mode & 0o777 == 0o700, "mode")
    with Many(*flags) as s:
        need(cached(s, "a") > 20 and cached(s, "b") > 20, "the next server")
        s.unload("b")
        need(flush(s, disk=True)["entries"] >= 3, "files of one unloaded, too")
        need(cached(s, "a") == 0 and cached(s, "b") == 0, "flushed")
    os.chmod(folder, 0o755)
    err = run(*flags, "--port", "0", code=2)[2]
    need("0755" in err, err)


# ---- starting ----

@test("models-dir")
def folders_of_models():
    folder = path("models")
    os.mkdir(folder)
    run("--models-dir", folder, "--port", "0", code=2)
    shutil.copytree(TINY, os.path.join(folder, "one"))
    os.mkdir(os.path.join(folder, "empty"))
    os.mkdir(os.path.join(folder, ".hidden"))
    gguf = next((os.path.join(r, n) for r, _, names in os.walk(
        os.path.join(MODELS, "..", "..", "..")) for n in sorted(names)
        if n.endswith(".gguf")), None)
    wanted = {"one", "three"}
    if gguf:
        shutil.copy(gguf, os.path.join(folder, "two.gguf"))
        shutil.copy(gguf, os.path.join(folder, "mmproj-two.gguf"))
        shutil.copy(gguf, os.path.join(folder, "big-00002-of-00002.gguf"))
        wanted.add("two")
    with Many("--models-dir", folder, "--model", f"three={TINY}") as s:
        need(set(s.states()) == wanted, s.states())
        need(s.status(chat(model="one")) == 200, "one")
        need(s.status(chat(model="three")) == 200, "three")
    run("--models-dir", folder, "--model", f"one={TINY}", code=2)
    run("--models-dir", "/nowhere", "--port", "0", code=3)


@test()
def what_is_said_of_a_model_is_the_same_when_it_is_loaded():
    packed, file = path("packed"), path("packed.gguf")
    for line in (["quantize", TINY, packed, "--group-size", "32"],
                 ["convert", packed, file, "--to", "gguf"]):
        subprocess.run([QUERN, *line, "-q"], env=environment(), check=True,
                       timeout=120, stdin=subprocess.DEVNULL)
    with Many("--model", f"a={file}", "--model", f"b={TINY}") as s:
        for name in "a", "b":
            before = s.ask(get(f"/v1/models/{name}")).json()
            s.load(name)
            after = s.ask(get(f"/v1/models/{name}")).json()
            need(before.pop("state") == "unloaded" and
                 after.pop("state") == "loaded" and before == after,
                 f"{before} and then {after}")


@test()
def flags_that_say_which():
    with Many("--model", TINY) as s:
        need(s.ask(get("/v1/models")).json()["data"][0]["id"] == "tiny",
             "mlx-lm's --model PATH")
        need(s.status(post("/v1/models/load", model="tiny")) == 501, "one")
    two = ["--model", f"a={TINY}", "--model", f"b={TINY}"]
    for flags in ([TINY, *two], [TINY, "--models-dir", MODELS],
                  ["--model", f"a={TINY}", "--model", f"a={TINY}"],
                  [*two, "--alias", "x"], [*two, "--alias", "x=c"],
                  [*two, "--alias", "a=b"], [*two, "--alias", "x=a", "--alias",
                                             "x=b"],
                  ["--model", f"a b={TINY}"], ["--model", f"={TINY}"],
                  ["--model", "a="], ["--model", f"a/../b={TINY}"],
                  [*two, "--alias", "a/../x=b"],
                  [TINY, "--alias", "x", "--alias", "y"],
                  [TINY, "--idle-unload", "5m"]):
        run(*flags, "--port", "0", code=2)
    for flags, code in (([f"--model=b={TINY}"], 0),
                        (["--model=b=/nowhere/at/all"], 3)):
        run("--model", f"a={TINY}", *flags, "--check", code=code)
    out = run(*two, "--print-config", code=0)[1]
    need(f"a={TINY}" in out and f"b={TINY}" in out, out)
    run("--model", f"a={TINY}", "--model", "b=/nowhere/at/all", "--port", "0",
        code=3)


if __name__ == "__main__":
    sys.exit(1 if run_all() else 0)
