#!/usr/bin/env python3
"""Clients of a chat server (OpenAI's API) that stream answers, and how long
that took.  Needs nothing but Python, so that one program measures all servers.

    openai_load.py URL [--clients N] [--requests N] [--max-tokens N]
                   [--prompt-words N] [--shared-prefix-words N] [--seed TEXT]
                   [--model NAME] [--json]

Each client is a thread with a connection that it keeps.  Printed are the time
to the first token and between tokens (milliseconds: the middle one and the
95th of 100), tokens per second of all clients together, and how many requests
failed; tokens are those of `usage` where the server sends it, else pieces of
content.  Prompts are words at random, other ones for each client, request and
--seed: a server that keeps prompts knows none of them but for the prefix.

Exit codes: 0; 1 a request failed; 2 usage."""

import argparse
import http.client
import json
import random
import statistics
import sys
import threading
import time
from urllib.parse import urlparse

WORDS = ("anchor basket candle dusk engine feather garden harbor island "
         "jacket kettle lantern meadow needle orchard pebble quarry river "
         "saddle timber umbrella valley willow yarn").split()
TIMEOUT = 600


def words(count, seed):
    chosen = random.Random(seed)
    return " ".join(chosen.choice(WORDS) for _ in range(count))


class Answer:
    """When a request began and its pieces came; what was counted."""

    def __init__(self, began):
        self.began, self.stamps = began, []
        self.prompt_tokens = self.tokens = 0

    def first(self):
        return self.stamps[0] - self.began

    def whole(self):
        return self.stamps[-1] - self.began

    def gaps(self):
        return [b - a for a, b in zip(self.stamps, self.stamps[1:])]


def send(connection, path, body):
    """The response's head.  A server may have closed a connection that was
    idle, which a client notices when it writes: that is no failure."""
    for last in (False, True):
        try:
            connection.request("POST", path, json.dumps(body),
                               {"Content-Type": "application/json"})
            return connection.getresponse()
        except (http.client.RemoteDisconnected, ConnectionResetError,
                BrokenPipeError):
            connection.close()
            if last:
                raise


def lines_at_the_end(connection, path, body):
    """The lines of a response, taken from the socket and looked at when all has
    come: for a token http.client takes twice as much of a processor as
    quern serve."""
    connection.connect()
    connection.putrequest("POST", path)
    data = json.dumps(body).encode()
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", str(len(data)))
    connection.putheader("Connection", "close")
    connection.endheaders(data)
    got = bytearray()
    while piece := connection.sock.recv(1 << 16):
        got += piece
    connection.close()
    return bytes(got).splitlines()


def ask_light(connection, path, body):
    """One answer of which only the end's time is known."""
    began = time.perf_counter()
    lines = lines_at_the_end(connection, path, body)
    ended = time.perf_counter()
    if not lines or b" 200 " not in lines[0]:
        raise RuntimeError(f"HTTP: {lines[:1]!r}")
    return read_answer(lines, began, lambda: ended)


def ask(connection, path, body):
    """Streams one answer; RuntimeError where it is none."""
    began = time.perf_counter()
    response = send(connection, path, body)
    if response.status != 200:
        raise RuntimeError(f"HTTP {response.status}: {response.read(300)!r}")
    answer = read_answer(iter(response.readline, b""), began,
                         time.perf_counter)
    response.read()  # the end, so that the connection is free again
    return answer


def read_answer(lines, began, clock):
    """The answer of a stream's lines; RuntimeError where it is cut."""
    answer, done = Answer(began), False
    for line in lines:
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            done = True
            continue
        event = json.loads(data)
        usage = event.get("usage") or {}
        answer.tokens = usage.get("completion_tokens", answer.tokens)
        answer.prompt_tokens = usage.get("prompt_tokens",
                                         answer.prompt_tokens)
        for choice in event.get("choices", []):
            if choice.get("delta", {}).get("content"):
                answer.stamps.append(clock())
    if not done or not answer.stamps:
        raise RuntimeError("the stream ended without content or [DONE]")
    answer.tokens = answer.tokens or len(answer.stamps)
    return answer


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] \
        if ordered else float("nan")


class Load:
    """So many clients with so many requests each; `more` are further fields
    of each request.  `light` clients take next to nothing of the processors."""

    def __init__(self, url, clients=1, requests=4, max_tokens=64,
                 prompt_words=40, prefix_words=0, seed="", model="default",
                 more=None, light=False):
        self.url, self.clients, self.requests = urlparse(url), clients, requests
        self.prompt_words, self.seed = prompt_words, seed
        self.prefix = words(prefix_words, "prefix")
        self.ask = ask_light if light else ask
        self.fields = {"model": model, "stream": True, "temperature": 0,
                       "max_tokens": max_tokens,
                       "stream_options": {"include_usage": True},
                       **(more or {})}
        self.answers, self.errors = [], []
        self.lock, self.seconds = threading.Lock(), 0.0

    def body(self, client, number):
        text = words(self.prompt_words, f"{self.seed}/{client}/{number}")
        messages = [{"role": "user", "content":
                     text + ". Write a long story with these words."}]
        if self.prefix:
            messages.insert(0, {"role": "system", "content": self.prefix})
        return {**self.fields, "messages": messages}

    def connect(self):
        return http.client.HTTPConnection(
            self.url.hostname, self.url.port or 80, timeout=TIMEOUT)

    def client(self, client):
        connection = self.connect()
        path = self.url.path.rstrip("/") + "/v1/chat/completions"
        for number in range(self.requests):
            try:
                answer = self.ask(connection, path,
                                  self.body(client, number))
                with self.lock:
                    self.answers.append(answer)
            except (OSError, RuntimeError, ValueError,
                    http.client.HTTPException) as problem:
                with self.lock:
                    self.errors.append(repr(problem))
                connection.close()
                connection = self.connect()
        connection.close()

    def run(self):
        threads = [threading.Thread(target=self.client, args=(i,))
                   for i in range(self.clients)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.seconds = time.perf_counter() - began
        return self

    def summary(self):
        firsts = [1e3 * a.first() for a in self.answers]
        gaps = [1e3 * gap for a in self.answers for gap in a.gaps()]
        tokens = sum(a.tokens for a in self.answers)
        return {"clients": self.clients, "requests_ok": len(self.answers),
                "requests_failed": len(self.errors),
                "ttft_ms_p50": percentile(firsts, .5),
                "ttft_ms_p95": percentile(firsts, .95),
                "gap_ms_p50": percentile(gaps, .5),
                "gap_ms_p95": percentile(gaps, .95),
                "request_s_median": statistics.median(
                    a.whole() for a in self.answers) if self.answers else 0,
                "prompt_tokens": sum(a.prompt_tokens for a in self.answers),
                "tokens": tokens, "tokens_per_s": tokens / self.seconds,
                "seconds": self.seconds}


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("url", metavar="URL")
    p.add_argument("--clients", type=int, default=1)
    p.add_argument("--requests", type=int, default=4, help="of each client")
    p.add_argument("--max-tokens", type=int, default=64)
    p.add_argument("--prompt-words", type=int, default=40)
    p.add_argument("--shared-prefix-words", type=int, default=0)
    p.add_argument("--seed", default="")
    p.add_argument("--model", default="default")
    p.add_argument("--json", action="store_true")
    a = p.parse_args()
    load = Load(a.url, a.clients, a.requests, a.max_tokens, a.prompt_words,
                a.shared_prefix_words, a.seed, a.model).run()
    out = {name: round(value, 2) for name, value in load.summary().items()}
    print(json.dumps(out) if a.json else
          "\n".join(f"{name:18}{value}" for name, value in out.items()))
    for error in load.errors[:5]:
        print("openai_load:", error, file=sys.stderr)
    sys.exit(1 if load.errors else 0)


if __name__ == "__main__":
    main()
