"""The programs of kind load that talk to a server, and their rules."""

import statistics
import threading
import time

from client import SLOWER, BadCase, Connection, Fault, ask, chat, get
from client import request_bytes, wait_at_rest
from rules import Said, need


def chat_of(k, distinct):
    i = k % distinct
    text = ("word " * 100 if i % 4 == 0 else "") + \
        f"Repeat the word W{i}" + " please" * (i % 8)
    return chat(text, 8 + i % 8, stream=k % 2 == 1)


class Watcher(threading.Thread):
    """Asks for the models all the time."""

    def __init__(self, server, every):
        super().__init__()
        self.server, self.every = server, every
        self.stopping, self.worst, self.faults = False, 0.0, []

    def run(self):
        while not self.stopping:
            began = time.monotonic()
            answer = ask(self.server.port, get("/v1/models", self.server.key))
            self.worst = max(self.worst, time.monotonic() - began)
            if answer is None or answer.status != 200:
                self.faults.append(answer and answer.status)
            time.sleep(self.every)

    def stop(self):
        self.stopping = True
        self.join()


class Record:
    """What a program leaves for the rules."""

    def __init__(self):
        self.answers = {}  # request -> Said, or what came instead
        self.resident = {}
        self.times, self.last = [], 0.0
        self.watcher = None


def take(record, port, k, request):
    try:
        answer = ask(port, request, timeout=120)
        whole = answer is not None and answer.status == 200 and not answer.cut
        if whole and request["json"].get("stream"):
            whole = answer.events[-1][1] == b"[DONE]"
        record.answers[k] = Said(answer) if whole else \
            f"{answer and (answer.status, answer.body[-200:])}"
    except (Fault, OSError) as error:
        record.answers[k] = str(error)


def parallel_chats(server, record, parallel, requests, distinct):
    lock, state = threading.Lock(), {"next": 0}

    def work():
        while True:
            with lock:
                k = state["next"]
                state["next"] += 1
            if k >= requests:
                return
            take(record, server.port, k, chat_of(k, distinct))
    threads = [threading.Thread(target=work) for _ in range(parallel)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def note_resident(server, record, k, last):
    if k in record.resident_wanted or k == last:
        time.sleep(0.2)
        record.resident[k] = server.resident()


def sequential_chats(server, record, requests):
    for k in range(1, requests + 1):
        take(record, server.port, k, chat(f"W{k} says hello", 8))
        note_resident(server, record, k, requests)


def aborted_streams(server, record, requests):
    for k in range(1, requests + 1):
        text = "".join(f"W{k}x{j} " for j in range(200))
        connection = Connection(server.port, 60)
        seen = []

        class Left(Exception):
            pass

        def on_event(event):
            seen.append(event)
            if b'"content":"' in event[1] and b'"content":""' not in event[1]:
                raise Left
        connection.send(request_bytes(server.port,
                                      chat(text, 2000, stream=True)))
        try:
            answer = connection.answer("POST", on_event)
            need(answer is not None and answer.status == 200,
                 f"request {k}: {answer and (answer.status, answer.body)}")
        except Left:
            pass
        connection.close()
        note_resident(server, record, k, requests)


def cancel_storm(server, record, parallel, seconds, timeout_ms, poll_ms):
    plain = chat("Hello", 64)

    def timed():
        began = time.monotonic()
        answer = ask(server.port, plain, timeout=120)
        need(answer is not None and answer.status == 200, "no answer")
        return time.monotonic() - began
    record.times = [timed() for _ in range(3)]
    until = time.monotonic() + seconds

    def client():
        while time.monotonic() < until:
            connection = Connection(server.port, 60)
            connection.send(request_bytes(server.port, plain))
            time.sleep(timeout_ms / 1000)
            connection.close()
    watcher = Watcher(server, poll_ms / 1000)
    watcher.start()
    threads = [threading.Thread(target=client) for _ in range(parallel)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    watcher.stop()
    record.watcher = watcher
    record.last = timed()


PROGRAMS = {
    "parallel-chats": (parallel_chats, {"parallel", "requests", "distinct"}),
    "sequential-chats": (sequential_chats, {"requests"}),
    "aborted-streams": (aborted_streams, {"requests"}),
    "cancel-storm": (cancel_storm,
                     {"parallel", "seconds", "timeout_ms", "poll_ms"}),
}


# ---- rules ----

def all_answered(record, _server, _case, _again):
    for k, said in record.answers.items():
        need(isinstance(said, Said), f"all-answered: request {k}: {said}")


def models_within(record, _server, _case, _again, ms):
    w = record.watcher
    need(not w.faults, f"models-within: {w.faults[:3]}")
    need(w.worst * 1000 <= ms * SLOWER, f"models-within: {w.worst * 1000:.0f} ms")


def answers_equal_alone(record, _server, case, again):
    program = case["input"]
    other = again()
    try:
        for k in range(program["requests"]):
            alone = Record()
            take(alone, other.port, k, chat_of(k, program["distinct"]))
            a, b = record.answers[k], alone.answers[k]
            need(isinstance(a, Said) and isinstance(b, Said) and
                 (a.content, a.finish) == (b.content, b.finish),
                 f"answers-equal-alone: request {k}")
    finally:
        other.stop()


def rss_flat(record, server, _case, _again, percent, or_mb, **ends):
    if server.watched():
        return
    before, after = record.resident[ends["from"]], record.resident[ends["to"]]
    allowed = max(before * percent / 100, or_mb * 1e6)
    need(after - before <= allowed,
         f"rss-flat: {before / 1e6:.1f} MB, then {after / 1e6:.1f} MB")


def work_stops(_record, server, _case, _again, within_ms):
    wait_at_rest(server.port, within_ms * SLOWER / 1000, server.key)


def normal_time_after(record, _server, _case, _again, factor, plus_ms):
    most = factor * statistics.median(record.times) + plus_ms * SLOWER / 1000
    need(record.last <= most,
         f"normal-time-after: {record.last:.3f} s, expected {most:.3f}")


RULES = {
    "all-answered": (all_answered, set()),
    "models-within": (models_within, {"ms"}),
    "answers-equal-alone": (answers_equal_alone, set()),
    "rss-flat": (rss_flat, {"from", "to", "percent", "or_mb"}),
    "work-stops": (work_stops, {"within_ms"}),
    "normal-time-after": (normal_time_after, {"factor", "plus_ms"}),
}


def run(server, case, again):
    parameters = dict(case["input"])
    name = parameters.pop("program")
    if name not in PROGRAMS or set(parameters) != PROGRAMS[name][1]:
        raise BadCase(f"case: program {name} with {sorted(parameters)}")
    rules = []
    for rule in case["expect"]["rules"]:
        rule = {"rule": rule} if isinstance(rule, str) else dict(rule)
        which = rule.pop("rule")
        if which not in RULES or set(rule) != RULES[which][1]:
            raise BadCase(f"case: rule {which} with {sorted(rule)}")
        rules.append((RULES[which][0], rule))
    record = Record()
    record.resident_wanted = {v for _, r in rules
                              for k, v in r.items() if k in ("from", "to")}
    watched = name == "parallel-chats" and any(
        f is models_within for f, _ in rules)
    if watched:
        record.watcher = Watcher(server, 0.1)
        record.watcher.start()
    try:
        PROGRAMS[name][0](server, record, **parameters)
    finally:
        if watched:
            record.watcher.stop()
    for function, rule in rules:
        function(record, server, case, again, **rule)
