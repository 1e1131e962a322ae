"""quern serve under load: honest requests are all answered, whatever others do,
and each has the bytes that it has alone.

    serve_load.py QUERN ROOT SCRATCH [full]

Requests of many kinds go to a server one at a time, and then to another one many
at a time, in another order, with prompts that are kept, guesses, clients that
leave, clients that do not read, sockets that are half open, and garbage.  `full`:
256 connections and 2,000 requests.
"""

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time

QUERN, ROOT, SCRATCH = sys.argv[1:4]
FULL = "full" in sys.argv[4:]
sys.path.insert(0, os.path.join(ROOT, "tests/run_cases/server"))

# pylint: disable=wrong-import-position
from client import Connection, Fault, ask, chat, get, request_bytes  # noqa
from client import wait_at_rest  # noqa

MODELS = os.path.join(ROOT, "tests/vectors/cases/fixtures/models")
CONNECTIONS, REQUESTS = (256, 2000) if FULL else (24, 200)
KINDS = 200


def roomy_model(of="tiny"):
    """A tiny model with a context for the longest prompt."""
    folder = os.path.join(SCRATCH, f"roomy-{of}")
    if not os.path.exists(folder):
        shutil.copytree(os.path.join(MODELS, of), folder)
        name = os.path.join(folder, "config.json")
        with open(name, encoding="utf-8") as file:
            config = json.load(file)
        os.chmod(name, 0o644)
        with open(name, "w", encoding="utf-8") as file:
            json.dump({**config, "max_position_embeddings": 2048}, file)
    return folder


class Server:
    def __init__(self, *flags, of="tiny"):
        reader, writer = os.pipe()
        self.process = subprocess.Popen(
            [QUERN, "serve", roomy_model(of), "--port", "0", "--ready-fd", str(writer),
             "--log-level", "warn", "--max-queue", "1000", *flags],
            pass_fds=[writer], stdin=subprocess.DEVNULL)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            self.port = int(pipe.read())

    def resident(self):
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def end(self):
        self.process.terminate()
        code = self.process.wait(timeout=120)
        if code:
            raise Fault(f"the server ends with {code}")


def request_of(k):
    """The k-th of the different requests."""
    r = random.Random(k)
    words = ["tell", "me", "about", "whales", "and", "seven", "old", "ships"]
    text = " ".join(r.choices(words, k=r.randint(1, 30)))
    if k % 3 == 0:
        text = "once upon a time there was a shared beginning. " * 3 + text
    more = {"temperature": r.choice([0, 0.7, 1.5]), "seed": k}
    if k % 4 == 1:
        more.update(logprobs=True, top_logprobs=r.randint(0, 5))
    if k % 5 == 2:
        more.update(n=2)
    if k % 5 == 3:
        more.update(stop=["a", "th"])
    if k % 7 == 4:
        more.update(presence_penalty=1.5, frequency_penalty=0.5)
    if k % 7 == 5:
        more.update(logit_bias={"97": -100, "98": 5}, top_k=20)
    if k % 7 == 6:
        more.update(repetition_penalty=1.3)
    if k % 11 == 6:
        more.update(min_tokens=4, top_p=0.8)
    return chat(text, r.randint(4, 24), stream=k % 2 == 1, **more)


def essence(answer):
    """What of an answer does not depend on when it was made."""
    if answer is None or answer.status != 200 or answer.cut:
        return f"{answer and (answer.status, answer.body[-300:])}"
    if not answer.events:
        choices = answer.json()["choices"]
        return json.dumps(choices, sort_keys=True)
    if answer.events[-1][1] != b"[DONE]":
        return f"cut: {answer.events[-1]}"
    out = {}
    for _, data, _ in answer.events[:-1]:
        for c in json.loads(data)["choices"]:
            kept = out.setdefault(c["index"], ["", None, []])
            kept[0] += c["delta"].get("content") or ""
            kept[1] = c["finish_reason"] or kept[1]
            kept[2] += (c.get("logprobs") or {}).get("content") or []
    return json.dumps(out, sort_keys=True)


def alone(server, kinds):
    return {k: essence(ask(server.port, request_of(k), timeout=120))
            for k in kinds}


# ---- bad clients ----

def leave(port, k, r):
    """Goes away at some point of a request or its answer."""
    data = request_bytes(port, request_of(k))
    c = Connection(port, 60)
    c.send(data[:r.randint(1, len(data))] if r.random() < 0.3 else data)
    if r.random() < 0.5:
        c.socket.settimeout(0.2)
        try:
            c.socket.recv(r.randint(1, 400))
        except OSError:
            pass
    if r.random() < 0.3:
        c.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                            b"\1\0\0\0\0\0\0\0")  # a reset
    c.close()


def babble(port, r):
    c = Connection(port, 10)
    c.send(bytes(r.randrange(256) for _ in range(r.randint(1, 3000))))
    c.close()


def be_bad(port, stop, seed):
    r = random.Random(seed)
    held = []
    while not stop.is_set():
        which = r.random()
        try:
            if which < 0.6:
                leave(port, r.randrange(KINDS), r)
            elif which < 0.8:
                babble(port, r)
            else:
                # Half a request, or a stream that nobody reads.
                c = Connection(port, 60)
                data = request_bytes(port, chat("x", 60, stream=True))
                c.send(data if r.random() < 0.5 else data[:60])
                held.append(c)
                if len(held) > 4:
                    held.pop(0).close()
        except OSError:
            pass
        time.sleep(0.002)
    for c in held:
        c.close()


# ---- the test ----

def together(server, expected, order, connections=CONNECTIONS, bad=None):
    lock, faults = threading.Lock(), []
    left = list(order)

    def work():
        while True:
            with lock:
                if not left or len(faults) > 5:
                    return
                k = left.pop()
            try:
                found = essence(ask(server.port, request_of(k), timeout=300))
            except (Fault, OSError) as error:
                found = str(error)
            if found != expected[k]:
                with lock:
                    faults.append(f"request {k}: {found[:300]} and alone "
                                  f"{expected[k][:300]}")
    stop = threading.Event()
    bad = [threading.Thread(target=be_bad, args=(server.port, stop, i))
           for i in range(connections // 8 if bad is None else bad)]
    good = [threading.Thread(target=work)
            for _ in range(connections - len(bad))]
    for thread in bad + good:
        thread.start()
    for thread in good:
        thread.join()
    stop.set()
    for thread in bad:
        thread.join()
    return faults


def numbers(server):
    out = {}
    for line in ask(server.port, get("/metrics")).body.decode().splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            out[name] = float(value)
    return out


def flush(server):
    request = {"method": "POST", "path": "/v1/cache/flush",
               "headers": {"Content-Type": "application/json"}, "json": {}}
    if ask(server.port, request).status != 200:
        raise Fault("flush")


def check_metrics(server, honest):
    m = numbers(server)
    if m["quern_kv_bytes_used"] or m['quern_prefix_bytes{tier="memory"}']:
        raise Fault(f"something stays: {m}")
    good = m['quern_requests_total{route="chat",status="200",outcome="ok"}']
    if good < honest:
        raise Fault(f"{good} chats of {honest} are counted")
    total = sum(v for k, v in m.items()
                if k.startswith("quern_requests_total{"))
    if m["quern_request_seconds_count"] != total:
        raise Fault(f"{total} requests, but "
                    f"{m['quern_request_seconds_count']} times")
    if m["quern_connections"] != 1:
        raise Fault(f"{m['quern_connections']} connections stay")


def ask_until(port, ending, stop, seed, faults, counts):
    """Asks on and on.  Every answer is whole, or a refusal; who comes late may
    find nobody."""
    r = random.Random(seed)
    while not stop.is_set():
        late = ending.is_set()
        try:
            a = ask(port, request_of(r.randrange(KINDS)), timeout=120)
        except ConnectionError:
            counts["gone"] += 1
            time.sleep(0.01)
            continue
        except Fault as error:
            faults.append(str(error))
            continue
        if a is None and late:
            counts["gone"] += 1
        elif a is not None and a.status == 503:
            counts["refused"] += 1
        elif essence(a).startswith(("[", "{")):
            counts["whole"] += 1
        else:
            faults.append(essence(a)[:300])


def end_under_load(expected):
    """SIGTERM beside clients that go on asking: what runs ends well."""
    server = Server()
    ending, stop, faults = threading.Event(), threading.Event(), []
    counts = {"whole": 0, "refused": 0, "gone": 0}
    clients = [threading.Thread(target=ask_until, args=(
        server.port, ending, stop, i, faults, counts)) for i in range(CONNECTIONS)]
    for thread in clients:
        thread.start()
    while counts["whole"] < expected and not faults:
        time.sleep(0.01)
    ending.set()
    server.end()
    stop.set()
    for thread in clients:
        thread.join()
    print(f"the end under load: {counts}, faults {faults[:3]}")
    return not faults


def expect(server, kinds):
    expected = alone(server, kinds)
    server.end()
    for k, text in expected.items():
        if not text.startswith(("[", "{")):
            raise Fault(f"request {k} alone: {text}")
    return expected


def eight_at_a_time():
    """Each request has the bytes that it has alone, without a cache and without
    guesses: eight at a time in another order, twice, with prompts that are kept
    and guesses, of n-grams and of a small model, also where keys and values are
    packed and where caches can't go back."""
    kinds, faults = range(KINDS), []
    for of, flags, guesses in (
            ("tiny_h64", ["--kv", "affine8"],
             ["--draft-model", roomy_model("tiny_h64"), "--num-draft", "3"]),
            ("tiny_h64", ["--kv", "turbo:k8v3"], ["--ngram"]),
            ("tiny", ["--max-kv-size", "64"], ["--ngram"])):
        expected = expect(Server(*flags, "--prefix-cache", "0", "--parallel",
                                 "1", of=of), kinds)
        server = Server(*flags, *guesses, "--prefix-cache", "16M",
                        "--spec-max-rows", "8", of=of)
        order = list(kinds) * 2
        random.Random(2).shuffle(order)
        faults += [f"{flags}: {fault}" for fault in
                   together(server, expected, order, 8, 0)]
        m = numbers(server)
        for name in ("quern_cached_tokens_total", "quern_spec_drafted_total",
                     "quern_spec_accepted_total"):
            if m[name] < 100:
                faults.append(f"{flags}: {name} is {m[name]}")
        server.end()
    return faults


def main():
    kinds = range(KINDS)
    faults = eight_at_a_time()
    order = [i % KINDS for i in range(REQUESTS)]
    random.Random(1).shuffle(order)
    first = Server("--prefix-cache", "0", "--parallel", "1")
    expected = expect(first, kinds)
    server = Server("--prefix-cache", "256K", "--ngram", "--max-connections",
                    "2000")
    # What is allocated once is there before the first look.
    warm = together(server, expected, order[:100])
    wait_at_rest(server.port, 60)
    flush(server)
    time.sleep(0.2)
    before = server.resident()
    faults += warm + together(server, expected, order)
    for fault in faults[:5]:
        print(fault)
    wait_at_rest(server.port, 60)
    flush(server)
    time.sleep(0.5)
    after = server.resident()
    check_metrics(server, len(order))
    server.end()
    ended = end_under_load(REQUESTS // 10)
    print(f"{len(order)} requests, {len(faults)} not as alone; resident "
          f"{before / 1e6:.1f} MB, then {after / 1e6:.1f} MB")
    # The sanitizers keep what is freed.
    if after > before + 5e6 and "SANITIZED" not in os.environ:
        print("memory does not come back to within 5 MB")
        return 1
    return 1 if faults or not ended else 0


sys.exit(main())
