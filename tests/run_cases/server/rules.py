"""The rules of the page about cases, each a function of a Trial (run.py).

`t.answer` is the case's answer, `t.plain()` and `t.streamed()` the same request
without and with a stream; each is asked once.
"""

import base64
import json
import threading
import time

from client import (SLOWER, BadCase, Connection, Fault, ask, chat,
                    request_bytes, wait_at_rest)

RULES = {}


def rule(name, *parameters):
    def add(function):
        RULES[name] = (function, set(parameters))
        return function
    return add


def need(condition, text):
    if not condition:
        raise Fault(text)


# ---- what an answer says ----

def chunks_of(answer):
    out = []
    for _, data, _ in answer.events:
        if data != b"[DONE]":
            try:
                out.append(json.loads(data))
            except ValueError:
                raise Fault(f"an event is no JSON: {data[:100]!r}")
    return out


def deltas_of(answer, index=0):
    for chunk in chunks_of(answer):
        for choice in chunk.get("choices") or []:
            if choice.get("index", 0) == index:
                yield choice


class Said:
    """Content, reasoning, calls and the finish reason of a choice."""

    def __init__(self, answer, index=0):
        self.content = self.reasoning = ""
        self.finish, self.calls = None, []
        if answer.events:
            self.join(answer, index)
        else:
            self.read(answer.json(), index)

    def read(self, body, index):
        if "choices" in body:
            choice = body["choices"][index]
            message = choice.get("message", choice)
            self.content = (message.get("content") or message.get("text")
                            or "")
            self.reasoning = message.get("reasoning_content") or ""
            self.finish = choice.get("finish_reason")
            self.calls = [{"id": c["id"], "type": c["type"],
                           "name": c["function"]["name"],
                           "arguments": c["function"]["arguments"]}
                          for c in message.get("tool_calls") or []]
        elif "content" in body:
            self.content = "".join(b.get("text", "") for b in body["content"]
                                   if b.get("type") == "text")
            self.finish = body.get("stop_reason")

    def join(self, answer, index):
        calls = {}
        for choice in deltas_of(answer, index):
            delta = choice.get("delta", choice)
            self.content += delta.get("content") or choice.get("text") or ""
            self.reasoning += delta.get("reasoning_content") or ""
            self.finish = choice.get("finish_reason") or self.finish
            for call in delta.get("tool_calls") or []:
                kept = calls.setdefault(call["index"],
                                        {"id": None, "type": None,
                                         "name": None, "arguments": ""})
                function = call.get("function") or {}
                kept["id"] = call.get("id") or kept["id"]
                kept["type"] = call.get("type") or kept["type"]
                kept["name"] = function.get("name") or kept["name"]
                kept["arguments"] += function.get("arguments") or ""
        self.calls = [calls[i] for i in sorted(calls)]

    def all(self):
        return (self.content, self.reasoning, self.finish,
                [(c["name"], c["arguments"]) for c in self.calls])


def check_answer(said, wanted):
    known = {"content", "reasoning", "finish_reason", "tool_calls"}
    if set(wanted) - known:
        raise BadCase(f"case: answer has {sorted(set(wanted) - known)}")
    for key, found in (("content", said.content), ("finish_reason",
                       said.finish), ("reasoning", said.reasoning)):
        if key in wanted:
            need((wanted[key] or "") == (found or ""),
                 f"{key}: expected {wanted[key]!r}, found {found!r}")
    if "tool_calls" not in wanted:
        return
    calls = wanted["tool_calls"]
    need(len(calls) == len(said.calls), f"{len(calls)} calls expected, found "
         f"{said.calls}")
    need(len({c["id"] for c in said.calls}) == len(calls), "ids are shared")
    for call, found in zip(calls, said.calls):
        need(found["type"] == "function" and found["id"], f"call: {found}")
        need(found["name"] == call["name"], f"name: {found['name']}")
        if "arguments" in call:
            need(json.loads(found["arguments"]) == call["arguments"],
                 f"arguments: {found['arguments']}")
        if "arguments_prefix_of" in call:
            need(call["arguments_prefix_of"].startswith(found["arguments"]),
                 f"arguments: {found['arguments']}")


def usage_of(answer):
    if not answer.events:
        return answer.json().get("usage")
    for chunk in reversed(chunks_of(answer)):
        if chunk.get("usage"):
            return chunk["usage"]
    return None


# ---- HTTP ----

@rule("framed")
def framed(t):
    a = t.answer
    lengths = [v for k, v in a.headers if k.lower() == "content-length"]
    if a.status == 204 and not a.body:
        return
    need((a.framing == "length" and int(lengths[0]) == len(a.body)) or
         a.framing == "chunked", f"framed: {a.headers}")
    need(not a.cut, "framed: the body is cut")


@rule("closes-after-answer")
def closes_after_answer(t):
    need(t.connection.closes_within(2 * SLOWER), "closes-after-answer: it stays open")


@rule("served-meanwhile")
def served_meanwhile(t):
    need(t.meanwhile is True, f"served-meanwhile: {t.meanwhile}")


@rule("work-stops", "within_ms")
def work_stops(t, within_ms):
    wait_at_rest(t.port, within_ms * SLOWER / 1000, t.key)


# ---- streams ----

@rule("sse-content-type")
def sse_content_type(t):
    kind = (t.answer.header("content-type") or "").split(";")[0].strip()
    need(kind == "text/event-stream", f"sse-content-type: {kind}")


@rule("events-are-json")
def events_are_json(t):
    for _, data, _ in t.streamed().events:
        text = data.decode("utf-8")  # raises where it is none
        need(text == "[DONE]" or isinstance(json.loads(text), dict),
             f"events-are-json: {text[:80]}")


@rule("ends-with-done")
def ends_with_done(t):
    events = [d for _, d, _ in t.streamed().events]
    need(events and events[-1] == b"[DONE]" and
         events.count(b"[DONE]") == 1, "ends-with-done: it does not")


@rule("no-done")
def no_done(t):
    need(all(d != b"[DONE]" for _, d, _ in t.streamed().events), "no-done")


@rule("one-choice-per-chunk")
def one_choice_per_chunk(t):
    for chunk in chunks_of(t.streamed()):
        need(len(chunk["choices"]) == 1, f"one-choice-per-chunk: {chunk}")


@rule("same-chunk-head")
def same_chunk_head(t):
    heads = {(c["id"], c["created"], c["object"])
             for c in chunks_of(t.streamed())}
    need(len(heads) == 1 and
         next(iter(heads))[2] == "chat.completion.chunk",
         f"same-chunk-head: {heads}")


@rule("first-chunk-role")
def first_chunk_role(t):
    first = chunks_of(t.streamed())[0]
    need(first["choices"][0]["delta"].get("role") == "assistant",
         f"first-chunk-role: {first}")


@rule("one-finish-reason")
def one_finish_reason(t):
    given = [c.get("finish_reason") for c in deltas_of(t.streamed())]
    need(given and given[-1] and not any(given[:-1]),
         f"one-finish-reason: {given}")


@rule("no-finish-reason", "value")
def no_finish_reason(t, value):
    for choice in deltas_of(t.streamed()):
        need(choice.get("finish_reason") != value, f"no-finish-reason {value}")


@rule("no-usage")
def no_usage(t):
    for chunk in chunks_of(t.streamed()):
        need(chunk.get("usage") is None, f"no-usage: {chunk}")


@rule("usage-chunk-last")
def usage_chunk_last(t):
    chunks = chunks_of(t.streamed())
    last = chunks[-1]
    need(last["choices"] == [] and
         all(isinstance(last["usage"][k], int) for k in
             ("prompt_tokens", "completion_tokens", "total_tokens")),
         f"usage-chunk-last: {last}")
    need(all(c.get("usage") is None for c in chunks[:-1]),
         "usage-chunk-last: usage before the last chunk")


@rule("usage-total-is-sum")
def usage_total_is_sum(t):
    u = usage_of(t.answer)
    need(u and u["total_tokens"] ==
         u["prompt_tokens"] + u["completion_tokens"], f"usage: {u}")


@rule("usage-equals-plain")
def usage_equals_plain(t):
    keys = ("prompt_tokens", "completion_tokens", "total_tokens")
    a, b = usage_of(t.streamed()), usage_of(t.plain())
    need(all(a[k] == b[k] for k in keys), f"usage: {a} streamed, {b} plain")


@rule("stream-equals-plain")
def stream_equals_plain(t):
    a, b = Said(t.streamed()).all(), Said(t.plain()).all()
    need(a == b, f"stream-equals-plain: {a!r:.300} and {b!r:.300}")


@rule("first-content-early", "share")
def first_content_early(t, share):
    answer = t.streamed()
    for _, data, when in answer.events:
        if data != b"[DONE]" and any(
                (c.get("delta") or {}).get("content") or c.get("text")
                for c in json.loads(data).get("choices") or []):
            found = (when - t.stream_sent) / (answer.at - t.stream_sent)
            need(found < share, f"first-content-early: after {found:.2f}")
            return
    raise Fault("first-content-early: no content")


@rule("error-event-last")
def error_event_last(t):
    events = [d for _, d, _ in t.streamed().events]
    last = json.loads(events[-1]) if events else {}
    need(isinstance(last.get("error"), dict) and
         isinstance(last["error"].get("message"), str),
         f"error-event-last: {events[-1:]}")
    need(b"[DONE]" not in events, "error-event-last: [DONE]")


@rule("no-stop-prefix-leak")
def no_stop_prefix_leak(t):
    wanted = (t.expect.get("answer") or {}).get("content") or ""
    content = ""
    for choice in deltas_of(t.streamed()):
        content += (choice.get("delta", choice).get("content") or
                    choice.get("text") or "")
        need(wanted.startswith(content),
             f"no-stop-prefix-leak: {content!r} is none of {wanted!r}")


@rule("no-empty-delta")
def no_empty_delta(t):
    for choice in deltas_of(t.streamed()):
        need(choice.get("delta") or choice.get("finish_reason"),
             "no-empty-delta: there is one")


# ---- tools ----

def call_pieces(t):
    for choice in deltas_of(t.streamed()):
        yield from (choice.get("delta") or {}).get("tool_calls") or []


@rule("tool-index-counts")
def tool_index_counts(t):
    seen = 0
    for piece in call_pieces(t):
        index = piece.get("index")
        need(isinstance(index, int) and 0 <= index <= seen,
             f"tool-index-counts: {piece}")
        seen = max(seen, index + 1)


@rule("tool-head-once")
def tool_head_once(t):
    seen = set()
    for piece in call_pieces(t):
        name = (piece.get("function") or {}).get("name")
        given = [piece.get("id"), piece.get("type"), name]
        if piece["index"] in seen:
            need(given == [None, None, None], f"tool-head-once: {piece}")
        else:
            need(piece.get("id") and piece.get("type") == "function" and name,
                 f"tool-head-once: {piece}")
        seen.add(piece["index"])


@rule("tool-arguments-join")
def tool_arguments_join(t):
    for piece in call_pieces(t):
        text = (piece.get("function") or {}).get("arguments", "")
        need(isinstance(text, str), f"tool-arguments-join: {piece}")
    a = [c["arguments"] for c in Said(t.streamed()).calls]
    b = [c["arguments"] for c in Said(t.plain()).calls]
    need(a == b, f"tool-arguments-join: {a} and {b}")


@rule("no-tool-markup")
def no_tool_markup(t):
    for answer in (t.plain(), t.streamed()):
        need("<tool_call>" not in Said(answer).content and
             "</tool_call>" not in Said(answer).content, "no-tool-markup")


# ---- content ----

@rule("content-is-json")
def content_is_json(t):
    need(isinstance(json.loads(Said(t.answer).content), dict),
         "content-is-json")


@rule("whitespace-run-at-most", "bytes")
def whitespace_run_at_most(t, bytes):  # pylint: disable=redefined-builtin
    run = best = 0
    for c in Said(t.answer).content:
        run = run + 1 if c in " \t\n\r" else 0
        best = max(best, run)
    need(best <= bytes, f"whitespace-run-at-most: {best}")


@rule("choices-differ")
def choices_differ(t):
    need(Said(t.answer, 0).content != Said(t.answer, 1).content,
         "choices-differ: they are equal")


@rule("usage-covers-choices")
def usage_covers_choices(t):
    choices = t.answer.json()["choices"]
    m, c = t.body()["max_tokens"], len(choices)
    ended = sum(x["finish_reason"] == "length" for x in choices)
    found = usage_of(t.answer)["completion_tokens"]
    need(ended * m + (c - ended) <= found <= c * m,
         f"usage-covers-choices: {found}")


def content_with(t, **fields):
    body = {**t.body(), **fields}
    body = {k: v for k, v in body.items() if v != "__leave_out__"}
    answer = ask(t.port, {**t.request, "json": body}, t.pieces)
    need(answer and answer.status == 200, f"{fields}: no answer")
    return Said(answer).content


@rule("seed-repeats", "parallel")
def seed_repeats(t, parallel):
    found = [content_with(t), content_with(t)]
    others = [threading.Thread(target=content_with, args=(t,),
                               kwargs={"max_tokens": 64, "seed": 1000 + i})
              for i in range(parallel)]
    for other in others:
        other.start()
    found.append(content_with(t))
    for other in others:
        other.join()
    need(len(set(found)) == 1, f"seed-repeats: {found}")


@rule("other-seed-differs", "seed")
def other_seed_differs(t, seed):
    need(content_with(t, seed=seed) != Said(t.answer).content,
         "other-seed-differs: it does not")


@rule("no-seed-differs")
def no_seed_differs(t):
    a, b = (content_with(t, seed="__leave_out__") for _ in range(2))
    need(a != b, "no-seed-differs: equal")


@rule("same-prompt-tokens", "json")
def same_prompt_tokens(t, json):  # pylint: disable=redefined-outer-name
    other = ask(t.port, {**t.request, "json": json}, t.pieces)
    a, b = usage_of(t.answer), usage_of(other)
    need(a["prompt_tokens"] == b["prompt_tokens"],
         f"same-prompt-tokens: {a} and {b}")


@rule("same-token-count", "token", "messages")
def same_token_count(t, token, messages):
    with open(t.model + "/tokenizer.json", encoding="utf-8") as file:
        added = json.load(file)["added_tokens"]
    ids = [x["id"] for x in added if x["content"] == token]
    need(len(ids) == 1, f"case: no added token {token}")
    counts = []
    for some in (t.body()["messages"], messages):
        answer = ask(t.port, {**t.request, "path": "/v1/apply-template",
                              "json": {"messages": some}})
        need(answer.status == 200, f"apply-template: {answer.status}")
        counts.append(answer.json()["tokens"].count(ids[0]))
    need(counts[0] == counts[1], f"same-token-count: {counts}")


@rule("variant-status", "set", "status")
def variant_status(t, set, status):  # pylint: disable=redefined-builtin
    answer = ask(t.port, {**t.request, "json": {**t.body(), **set}}, t.pieces)
    need(answer and answer.status in status,
         f"variant-status: {set}: {answer and answer.status}")


# ---- log probabilities ----

def entries_of(answer):
    if not answer.events:
        return answer.json()["choices"][0]["logprobs"]["content"]
    out = []
    for choice in deltas_of(answer):
        out += (choice.get("logprobs") or {}).get("content") or []
    return out


def finish_of(answer):
    return Said(answer).finish


@rule("logprobs-per-token")
def logprobs_per_token(t):
    n, m = len(entries_of(t.answer)), usage_of(t.answer)["completion_tokens"]
    need(n == m or (n == m - 1 and finish_of(t.answer) != "length"),
         f"logprobs-per-token: {n} of {m}")


def is_entry(e):
    bytes_good = e.get("bytes") is None or (
        isinstance(e["bytes"], list) and
        all(isinstance(b, int) and 0 <= b < 256 for b in e["bytes"]))
    return isinstance(e.get("token"), str) and e["logprob"] <= 0 and bytes_good


@rule("logprobs-shape", "top")
def logprobs_shape(t, top):
    for e in entries_of(t.answer):
        need(is_entry(e) and len(e["top_logprobs"]) == top and
             all(is_entry(x) for x in e["top_logprobs"]),
             f"logprobs-shape: {e}")


@rule("top-logprobs-sorted")
def top_logprobs_sorted(t):
    for e in entries_of(t.answer):
        values = [x["logprob"] for x in e["top_logprobs"]]
        need(values == sorted(values, reverse=True), f"sorted: {values}")
        for x in e["top_logprobs"]:
            need((x["token"], x["bytes"]) != (e["token"], e["bytes"]) or
                 abs(x["logprob"] - e["logprob"]) <= 1e-6, f"sorted: {e}")


@rule("top-logprobs-mass")
def top_logprobs_mass(t):
    for e in entries_of(t.answer):
        mass = sum(2.718281828459045 ** x["logprob"]
                   for x in e["top_logprobs"])
        need(mass <= 1.0001, f"top-logprobs-mass: {mass}")


@rule("logprob-bytes-join")
def logprob_bytes_join(t):
    entries, content = entries_of(t.answer), Said(t.answer).content
    texts = []
    for some in (entries, entries[:-1]):
        data = b"".join(bytes(e["bytes"] or []) for e in some)
        texts.append(data.decode("utf-8", "replace"))
        if finish_of(t.answer) != "stop":
            break
    need(content in texts, f"logprob-bytes-join: {texts} and {content!r}")


@rule("token-text-without", "text")
def token_text_without(t, text):
    for e in entries_of(t.answer):
        need(text not in e["token"], f"token-text-without: {e['token']!r}")


@rule("logprobs-on-content")
def logprobs_on_content(t):
    for choice in deltas_of(t.streamed()):
        if choice["delta"].get("content"):
            need((choice.get("logprobs") or {}).get("content"),
                 f"logprobs-on-content: {choice}")


@rule("stream-logprobs-equal-plain")
def stream_logprobs_equal_plain(t):
    a, b = entries_of(t.streamed()), entries_of(t.plain())
    need(len(a) == len(b), f"{len(a)} streamed, {len(b)} plain")
    for x, y in zip(a, b):
        need(x["token"] == y["token"] and x["bytes"] == y["bytes"] and
             abs(x["logprob"] - y["logprob"]) <= 1e-4, f"{x} and {y}")


@rule("legacy-logprobs-shape")
def legacy_logprobs_shape(t):
    p = t.answer.json()["choices"][0]["logprobs"]
    keys = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    need(len({len(p[k]) for k in keys}) == 1 and p["tokens"], f"legacy: {p}")
    need(all(isinstance(x, str) for x in p["tokens"]) and
         all(x is None or isinstance(x, (int, float))
             for x in p["token_logprobs"]) and
         all(x is None or isinstance(x, dict) for x in p["top_logprobs"]) and
         all(isinstance(x, int) for x in p["text_offset"]), f"legacy: {p}")


# ---- Anthropic ----

def blocks(t):
    return [(n, json.loads(d)) for n, d, _ in t.streamed().events
            if json.loads(d)["type"] != "ping"]


@rule("anthropic-event-order")
def anthropic_event_order(t):
    names = [d["type"] for _, d in blocks(t)]
    need(names[:1] == ["message_start"] and
         names[-2:] == ["message_delta", "message_stop"], f"order: {names}")
    inside = False
    for name in names[1:-2]:
        wanted = ({"content_block_delta", "content_block_stop"} if inside
                  else {"content_block_start"})
        need(name in wanted, f"order: {names}")
        inside = name != "content_block_stop"
    need(not inside, f"order: {names}")


@rule("anthropic-event-names")
def anthropic_event_names(t):
    for name, data, _ in t.streamed().events:
        need(name == json.loads(data)["type"], f"names: {name} {data}")


@rule("anthropic-message-start")
def anthropic_message_start(t):
    m = next(d for _, d in blocks(t) if d["type"] == "message_start")
    m = m["message"]
    need(m["id"] and m["type"] == "message" and m["role"] == "assistant" and
         "model" in m and m["content"] == [] and m["stop_reason"] is None and
         isinstance(m["usage"]["input_tokens"], int), f"start: {m}")


@rule("anthropic-block-indexes")
def anthropic_block_indexes(t):
    opened, count = None, 0
    for _, d in blocks(t):
        if d["type"] == "content_block_start":
            need(d["index"] == count, f"indexes: {d}")
            opened, count = d["index"], count + 1
        elif d["type"].startswith("content_block"):
            need(d["index"] == opened, f"indexes: {d}")


@rule("anthropic-message-delta")
def anthropic_message_delta(t):
    d = next(d for _, d in blocks(t) if d["type"] == "message_delta")
    need(isinstance(d["delta"]["stop_reason"], str) and
         isinstance(d["usage"]["output_tokens"], int), f"delta: {d}")


@rule("anthropic-stop-reason", "value")
def anthropic_stop_reason(t, value):
    if t.answer.events:
        d = next(d for _, d in blocks(t) if d["type"] == "message_delta")
        found = d["delta"]["stop_reason"]
    else:
        found = t.answer.json()["stop_reason"]
    need(found == value, f"anthropic-stop-reason: {found}")


@rule("anthropic-tool-block", "name", "input")
def anthropic_tool_block(t, name, input):  # pylint: disable=redefined-builtin
    starts = [d for _, d in blocks(t) if d["type"] == "content_block_start"
              and d["content_block"]["type"] == "tool_use"]
    need(len(starts) == 1, f"tool-block: {starts}")
    block = starts[0]["content_block"]
    text = "".join(d["delta"].get("partial_json", "") for _, d in blocks(t)
                   if d["type"] == "content_block_delta" and
                   d["index"] == starts[0]["index"])
    need(block["id"] and block["name"] == name and block["input"] == {} and
         json.loads(text) == input, f"tool-block: {block} {text}")


@rule("count-equals-usage", "max_tokens")
def count_equals_usage(t, max_tokens):
    answer = ask(t.port, {**t.request, "path": "/v1/messages",
                          "json": {**t.body(), "max_tokens": max_tokens}})
    u = answer.json()["usage"]
    total = u["input_tokens"] + (u.get("cache_creation_input_tokens") or 0) \
        + (u.get("cache_read_input_tokens") or 0)
    need(total == t.answer.json()["input_tokens"],
         f"count-equals-usage: {u} and {t.answer.json()}")
