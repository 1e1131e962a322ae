"""What tests of quern serve share: servers, models, requests.

    SCRIPT QUERN QUERN_TEST ROOT SCRATCH

QUERN_TEST is the program that plays scripts: answers of known text and pace.
Each test names the flags that it shows.
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
          "lenient-weights", "trust-content", "device", "tensor-parallel",
          "gguf-dequant"}


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
                [program, "serve", *([model] if model else []), "--port",
                 str(port), "--ready-fd", str(writer), *flags], stderr=err,
                stdout=out,
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


def post(where, **body):
    return {"method": "POST", "path": where, "json": body,
            "headers": {"Content-Type": "application/json"}}


def metric(s, name):
    for line in s.ask(get("/metrics")).body.decode().splitlines():
        if line.startswith(name + " "):
            return float(line.split(" ")[1])
    raise Fault(f"no metric {name}")


def wait_metric(s, name, value):
    """One that may not be there yet."""
    until = time.monotonic() + 60
    line = f"{name} {value:g}".encode()
    while line not in s.ask(get("/metrics")).body.splitlines():
        need(time.monotonic() < until, f"{name} is not {value}")
        time.sleep(0.01)


def read_until_closed(connection, begun):
    def on_event(event):
        if b'"content":"x' in event[1]:
            begun.set()
    try:
        return connection.answer("POST", on_event)
    except (Fault, OSError):
        return None


def run_all():
    """Runs the tests; how many failed."""
    bad = 0
    for function in TESTS:
        began = time.monotonic()
        try:
            function()
            print(f"{function.__name__}: {time.monotonic() - began:.1f} s")
        except Exception as error:  # pylint: disable=broad-except
            bad += 1
            print(f"FAILED {function.__name__}: {type(error).__name__} "
                  f"{error}"[:1500])
    return bad
