"""Runs a case against `quern serve` (cases of kinds server-*, stop, toolcall,
schema-answer, and the programs of kind load that talk to a server).

    run.py PROGRAM MODEL CASE PIECES

MODEL is the prepared directory, CASE a file with the case's JSON, PIECES how
many tokens its script has.  Prints a line for each thing that is wrong.
"""

import json
import os
import subprocess
import sys
import threading
import time
import traceback

import load
from client import (SLOWER, BadCase, Connection, Fault, ask, chat,
                    request_bytes)
from rules import RULES, Said, check_answer, need

KEYS = {
    "server": {"model", "config_patch", "template", "script", "flags"},
    "request": {"method", "path", "headers", "json", "body_b64", "body_parts",
                "raw_b64", "raw_parts", "continue_b64", "after_send", "close"},
    "expect": {"status", "responses", "closed", "within_ms", "interim",
               "headers", "error_shape", "body_contains", "json", "answer",
               "rules", "any_of"},
}


def check_keys(name, value):
    if set(value) - KEYS[name]:
        raise BadCase(f"case: {name} has {sorted(set(value) - KEYS[name])}")


# ---- the server ----

def environment():
    """A server built with AddressSanitizer gives back what it frees soon, so
    that its memory can be measured."""
    options = [os.environ.get("ASAN_OPTIONS", ""), "quarantine_size_mb=4",
               "thread_local_quarantine_size_kb=64"]
    return dict(os.environ, ASAN_OPTIONS=":".join(filter(None, options)))


class Server:
    def __init__(self, program, model, flags, more=()):
        reader, writer = os.pipe()
        self.process = subprocess.Popen(
            [program, "serve", model, "--host", "127.0.0.1", "--port", "0",
             "--ready-fd", str(writer), "-q", *flags, *more],
            pass_fds=[writer], stdin=subprocess.DEVNULL, env=environment())
        os.close(writer)
        with os.fdopen(reader) as pipe:
            text = pipe.read()
        if not text.strip():
            raise Fault(f"the server does not start: {self.process.wait()}")
        self.port = int(text)
        self.key = None
        if "--api-key" in flags:
            self.key = flags[flags.index("--api-key") + 1]

    def resident(self):
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def watched(self):
        """By ThreadSanitizer, whose notes on memory grow with its use."""
        with open(f"/proc/{self.process.pid}/maps", encoding="utf-8") as f:
            return "libtsan" in f.read()

    def check_alive(self):
        """It lives, and answers a plain request within 5 s."""
        need(self.process.poll() is None,
             f"the server has ended: {self.process.returncode}")
        answer = ask(self.port, chat(key=self.key), timeout=5 * SLOWER)
        need(answer is not None and answer.status == 200,
             "afterwards a plain request gets "
             f"{answer and (answer.status, answer.body[:200])}")

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
        code = self.process.wait(timeout=60)
        need(code == 0, f"the server ends with {code}")


# ---- a request and what comes of it ----

class Trial:
    """A request, its answer, and the same one plain and streamed."""

    def __init__(self, server, case, model, pieces):
        self.server, self.port, self.key = server, server.port, server.key
        self.case, self.model, self.pieces = case, model, pieces
        self.request, self.expect = case["request"], case["expect"]
        self.kept, self.answer, self.answers = {}, None, []
        self.connection = self.meanwhile = None
        self.sent = self.stream_sent = 0
        self.interim = None
        self.ended_empty = False

    def body(self):
        return json.loads(request_bytes(self.port, self.request, self.pieces)
                          .split(b"\r\n\r\n", 1)[1])

    def variant(self, stream):
        body = {k: v for k, v in self.body().items()
                if k not in ("stream", "stream_options")}
        if stream:
            body["stream"] = True
        return {**self.request, "json": body}

    def with_stream(self, stream):
        own = bool(self.body().get("stream")) if "json" in self.request \
            else False
        if own == stream and self.answer is not None:
            return self.answer
        if stream not in self.kept:
            self.stream_sent = time.monotonic()
            answer = ask(self.port, self.variant(stream), self.pieces)
            if answer is None:
                raise Fault("no answer to the second request")
            self.kept[stream] = answer
        return self.kept[stream]

    def plain(self):
        return self.with_stream(False)

    def streamed(self):
        return self.with_stream(True)

    # -- sending --

    def ask_meanwhile(self):
        try:
            answer = ask(self.port, chat(key=self.key), timeout=5 * SLOWER)
            self.meanwhile = (answer is not None and answer.status == 200) \
                or f"{answer and answer.status}"
        except (Fault, OSError) as error:
            self.meanwhile = str(error)

    def names_rule(self, name):
        rules = self.expect.get("rules", [])
        return any((r if isinstance(r, str) else r.get("rule")) == name
                   for r in rules)

    def send(self):
        request = self.request
        limit = self.case.get("limits", {}).get("seconds", 60) * SLOWER
        self.connection = Connection(self.port, limit)
        self.connection.send(request_bytes(self.port, request, self.pieces))
        self.sent = self.stream_sent = time.monotonic()
        if request.get("after_send") == "fin":
            self.connection.finish_sending()
        other = None
        if self.names_rule("served-meanwhile"):
            other = threading.Thread(target=self.ask_meanwhile)
            other.start()
        if "close" in request:
            self.leave(request["close"])
        else:
            self.receive()
        if other:
            other.join()

    def leave(self, close):
        class Left(Exception):
            pass

        def on_event(event):
            data = event[1]
            if data != b"[DONE]" and any(
                    (c.get("delta") or {}).get("content") or c.get("text")
                    for c in json.loads(data).get("choices") or []):
                raise Left
        if "after_ms" in close:
            time.sleep(close["after_ms"] / 1000)
        else:
            try:
                self.connection.answer("POST", on_event)
                raise Fault("the stream ended before its client could leave")
            except Left:
                pass
        self.connection.close()

    def receive(self):
        method = self.request.get("method", "POST")
        count = self.expect.get("responses", 1)
        while len(self.answers) < count:
            answer = self.connection.answer(method)
            if answer is not None and 100 <= answer.status < 200:
                self.interim = answer
                if "continue_b64" in self.request:
                    self.connection.send(request_bytes(
                        self.port,
                        {"raw_b64": self.request["continue_b64"]}))
                    self.sent = time.monotonic()
                continue
            if answer is None:
                self.ended_empty = self.connection.ended
                break
            self.answers.append(answer)
        self.answer = self.answers[0] if self.answers else None

    # -- checking --

    def check(self, expect):
        """All that one alternative says."""
        check_keys("expect", expect)
        if expect.get("closed"):
            need(self.ended_empty and not self.answers,
                 "closed: an answer came" if self.answers
                 else "closed: the connection stays open")
        if "within_ms" in expect:
            late = (self.answer.at if self.answer else time.monotonic()) \
                - self.sent
            need(late * 1000 <= expect["within_ms"] * SLOWER,
                 f"within_ms: {late * 1000:.0f}")
        if "interim" in expect:
            self.check_interim(expect["interim"])
        if "status" in expect:
            self.check_status(expect)
        for answer in self.answers:
            self.check_parts(expect, answer)
        for rule in expect.get("rules", []):
            self.check_rule(rule)
        if "any_of" in expect:
            self.check_any(expect["any_of"])

    def check_status(self, expect):
        count = expect.get("responses", 1)
        need(len(self.answers) == count,
             f"{count} answers expected, found {len(self.answers)}")
        for answer in self.answers:
            need(answer.status in expect["status"],
                 f"status: expected {expect['status']}, found "
                 f"{answer.status} {answer.body[:300]!r}")

    def check_interim(self, wanted):
        if wanted is None:
            need(self.interim is None, "interim: one came")
            return
        need(self.interim is not None and
             self.interim.status == wanted["status"], "interim: none came")

    def check_parts(self, expect, answer):
        for name, wanted in expect.get("headers", {}).items():
            value = answer.header(name)
            need(value is not None, f"header {name}: there is none")
            if "contains" in wanted:
                need(wanted["contains"] in value, f"header {name}: {value}")
        if "error_shape" in expect:
            check_error(expect["error_shape"], answer)
        if "body_contains" in expect:
            need(expect["body_contains"].encode() in answer.body,
                 f"body_contains: {answer.body[:300]!r}")
        for path, wanted in expect.get("json", {}).items():
            check_path(answer.json(), path, wanted)

    def check_rule(self, rule):
        name = rule if isinstance(rule, str) else rule.get("rule")
        parameters = {} if isinstance(rule, str) else \
            {k: v for k, v in rule.items() if k != "rule"}
        if name not in RULES:
            raise BadCase(f"case: no rule {name}")
        function, wanted = RULES[name]
        if set(parameters) != wanted:
            raise BadCase(f"case: {name} takes {sorted(wanted)}")
        function(self, **parameters)

    def check_any(self, alternatives):
        faults = []
        for one in alternatives:
            try:
                self.check(one)
                if "answer" in one:
                    self.check_answers(one["answer"])
                return
            except BadCase:
                raise
            except (Fault, KeyError, TypeError, ValueError,
                    IndexError) as fault:
                faults.append(str(fault))
        raise Fault("any_of: " + " | ".join(faults))

    def check_answers(self, wanted):
        check_answer(Said(self.plain()), wanted)
        if self.case["kind"] in ("stop", "toolcall"):
            check_answer(Said(self.streamed()), wanted)

    def check_stream(self):
        """Whatever a case is about: its stream, joined, is its plain answer."""
        if not self.answer or self.answer.status != 200 or "json" not in \
                self.request or not self.request["path"].endswith("completions"):
            return
        asked = [self.variant(stream) for stream in (False, True)]
        for one in asked:
            one["json"].setdefault("seed", 1)
        # Parts of a stream alone.
        asked[0]["json"].pop("return_progress", None)
        a, b = (ask(self.port, one, self.pieces) for one in asked)
        need(a and b and b.status == 200, f"stream: {b and b.body[:200]!r}")
        if a.status != 200:
            last = json.loads(b.events[-1][1])
            need(last.get("error") == a.json()["error"],
                 f"stream: {last!r:.200}, and plain {a.body[:200]!r}")
            return
        for i in range(len(a.json()["choices"])):
            plain, joined = Said(a, i).all(), Said(b, i).all()
            need(plain == joined,
                 f"stream: {joined!r:.300}, and plain {plain!r:.300}")


def check_error(shape, answer):
    body = answer.json()
    error = body.get("error")
    good = (isinstance(error, dict) and isinstance(error.get("type"), str) and
            isinstance(error.get("message"), str) and error["message"])
    if shape == "anthropic":
        good = good and body.get("type") == "error"
    elif shape != "openai":
        raise BadCase(f"case: error_shape {shape}")
    need(good, f"error_shape {shape}: {answer.body[:300]!r}")


MISSING = object()


def at_path(value, path):
    for key in path.split("."):
        if isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        elif isinstance(value, dict) and key in value:
            value = value[key]
        else:
            return MISSING
    return value


def check_path(body, path, wanted):
    found = at_path(body, path)
    (how, value), = wanted.items()
    if how == "eq":
        good = found == value and isinstance(found, bool) == \
            isinstance(value, bool)
    elif how == "in":
        good = found in value
    elif how == "len":
        good = isinstance(found, list) and len(found) == value
    elif how == "max":
        good = isinstance(found, (int, float)) and found <= value
    elif how == "field":
        good = found is MISSING or found is None or (
            isinstance(found, str) and
            (found == value or found.startswith((value + ".", value + "["))))
    else:
        raise BadCase(f"case: json has {how}")
    need(good, f"{path}: expected {wanted}, found "
         f"{'nothing' if found is MISSING else repr(found)[:200]}")


# ---- the case ----

def run_request(server, case, model, pieces):
    for name in ("server", "request"):
        check_keys(name, case[name])
    trial = Trial(server, case, model, pieces)
    try:
        trial.send()
        expect = {k: v for k, v in trial.expect.items() if k != "answer"}
        check_keys("expect", trial.expect)
        trial.check(expect)
        if "answer" in trial.expect:
            trial.check_answers(trial.expect["answer"])
        trial.check_stream()
    finally:
        if trial.connection:
            trial.connection.close()


def main(program, model, path, pieces):
    with open(path, encoding="utf-8") as file:
        case = json.load(file)
    flags = case["server"].get("flags", [])
    server = Server(program, model, flags)
    try:
        if case["kind"] == "load":
            load.run(server, case, lambda: Server(program, model, flags,
                                                  ["--prefix-cache", "0"]))
        else:
            run_request(server, case, model, int(pieces))
        server.check_alive()
    finally:
        server.stop()


try:
    main(*sys.argv[1:])
except Fault as fault:
    print(str(fault).replace("\n", " "))
except Exception:  # pylint: disable=broad-except
    print(" ".join(traceback.format_exc().split("\n")[-4:]))
