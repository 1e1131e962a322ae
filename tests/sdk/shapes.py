"""Answers and streams, held to the types of OpenAI's and Anthropic's packages.

    shapes.py QUERN_TEST ROOT

Whatever a request asks: what comes has all members that the package's type
wants, none that neither it nor quern's documentation knows, and a stream put
together is the plain answer.  QUERN_TEST is the program that plays scripts.
"""

import copy
import functools
import json
import os
import random
import shutil
import sys
import tempfile
import typing
import urllib.error
import urllib.request

import jiter
import pydantic
from anthropic.types import (Message, MessageTokensCount,
                             RawMessageStreamEvent)
from anthropic.types.message_create_params import MessageCreateParamsBase
from anthropic.types.message_count_tokens_params import \
    MessageCountTokensParams
from openai.types import (Completion, CreateEmbeddingResponse, Model,
                          completion_create_params, embedding_create_params)
from openai.types.chat import (ChatCompletion, ChatCompletionChunk,
                               completion_create_params as chat_params)
from openai.types.responses import (Response, ResponseStreamEvent,
                                    response_create_params)

from support import ASK, Server, models, scripted

QUERN, ROOT = sys.argv[1:]
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
# quern's own, by the class that has them (docs/openai.md, docs/server.md).
OWN = {
    "ChatCompletion": {"timings"},
    "ChatCompletionChunk": {"timings", "prompt_progress"},
    "Completion": {"timings"},
    "ChatCompletionMessage": {"reasoning_content"},
    "ChoiceDelta": {"reasoning_content"},
    "CompletionChoice": {"reasoning_content"},
    "Response": {"store"},  # OpenAI's own answers have it, too
    # In an item they are known, in the event about it they are not.
    "Logprob": {"bytes"}, "LogprobTopLogprob": {"bytes"},
    "Model": {"context_length", "architecture", "quantization", "size_bytes",
              "capabilities", "state"},
}
TESTS = []


def test(function):
    TESTS.append(function)
    return function


# ---- types ----

def known(value, where=""):
    """No object has a member that its type does not know."""
    if isinstance(value, pydantic.BaseModel):
        name = type(value).__name__
        extra = set(value.model_extra or {}) - OWN.get(name, set())
        assert not extra, f"{where}: {name} has no {sorted(extra)}"
        for key in type(value).model_fields:
            known(getattr(value, key), f"{where}.{key}")
    elif isinstance(value, list):
        for i, element in enumerate(value):
            known(element, f"{where}[{i}]")


@functools.cache
def adapter(kind):
    return pydantic.TypeAdapter(kind)


def typed(kind, data):
    """`data`, which is of this type and spelled as the type spells it."""
    known(adapter(kind).validate_python(data, strict=True))
    return data


# ---- requests ----

def post(server, path, body, status=200):
    request = urllib.request.Request(
        server.url + path, json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer key"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert status == 200, f"{body}: 200, expected {status}"
            return answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        text = error.read()
        assert error.code == status, f"{body}: {error.code} {text}"
        return error.headers, text


def get(server, path, status=200):
    request = urllib.request.Request(
        server.url + path, headers={"Authorization": "Bearer key"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert status == 200, f"{path}: 200, expected {status}"
            return answer.read()
    except urllib.error.HTTPError as error:
        assert error.code == status, f"{path}: {error.code}"
        return error.read()


def plain(server, path, kind, body):
    return typed(kind, json.loads(post(server, path, body)[1]))


def typed_chunk(kind, data):
    """The type for completions has no null for a reason that is yet to come,
    which OpenAI's own chunks have."""
    chunk = json.loads(data)
    if kind is Completion:
        filled = copy.deepcopy(chunk)
        for choice in filled["choices"]:
            choice["finish_reason"] = choice["finish_reason"] or "stop"
        typed(kind, filled)
        return chunk
    return typed(kind, chunk)


def events(server, path, body):
    """(name, data) of each event; comments are left out."""
    headers, text = post(server, path, {**body, "stream": True})
    assert headers["Content-Type"] == "text/event-stream", headers
    assert headers["Cache-Control"] == "no-cache", headers
    out = []
    text = text.decode()
    assert text.endswith("\n\n")
    for block in text[:-2].split("\n\n"):
        name, data = None, None
        for line in block.split("\n"):
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                data = line[6:]
            else:
                assert line.startswith(":"), line
        if data is not None:
            out.append((name, data))
    return out


def joined(parts):
    """Lists of several objects, one after another."""
    out = None
    for part in parts:
        if out is None:
            out = copy.deepcopy(part)
        elif part is not None:
            for key in out:
                out[key] = out[key] + part[key]
    return out


# ---- chat and completions ----

def check_usage(chunks, body):
    wanted = body.get("stream_options") or {}
    if not wanted.get("include_usage"):
        assert all("usage" not in c for c in chunks)
        return None
    *others, last = chunks
    assert all(c["usage"] is None for c in others)
    assert last["choices"] == []
    return last["usage"]


def check_progress(chunks, body):
    found = [c["prompt_progress"] for c in chunks if "prompt_progress" in c]
    assert bool(found) == body.get("return_progress", False)
    for p in found:
        assert set(p) == {"total", "cached", "processed", "time_ms"}
    if found:
        assert found[-1]["processed"] == found[-1]["total"]


def openai_chunks(server, path, kind, body):
    *found, end = events(server, path, body)
    assert end == (None, "[DONE]"), end
    chunks = [typed_chunk(kind, data) for name, data in found]
    for key in ("id", "created", "model", "object", "system_fingerprint"):
        assert len({c[key] for c in chunks}) == 1, key
    check_progress(chunks, body)
    return chunks


def add_call(calls, delta):
    """A call comes with its name, then as pieces of its arguments."""
    delta, = delta
    index = delta.pop("index")
    if index == len(calls):
        assert delta["function"]["arguments"] == "", delta
        calls.append(copy.deepcopy(delta))
    else:
        assert index == len(calls) - 1 and set(delta) == {"function"}
        (key, piece), = delta["function"].items()
        assert key == "arguments" and piece
        calls[index]["function"]["arguments"] += piece


def without_ids(choices):
    for choice in choices:
        for call in choice.get("message", {}).get("tool_calls", []):
            assert call.pop("id").startswith("call_")
    return choices


def stream_chat(server, body):
    chunks = openai_chunks(server, CHAT, ChatCompletionChunk, body)
    choices = {}
    for chunk in chunks:
        assert len(chunk["choices"]) <= 1
        for c in chunk["choices"]:
            choices.setdefault(c["index"], []).append(c)
    out = []
    for index, (first, *parts, last) in sorted(choices.items()):
        assert first["delta"] == {"role": "assistant", "content": ""}
        assert last["delta"] == {} and last["finish_reason"]
        message = {"role": "assistant", "content": "", "refusal": None}
        for part in parts:
            assert part["finish_reason"] is None
            (key, text), = part["delta"].items()
            assert text
            if key == "tool_calls":
                add_call(message.setdefault(key, []), text)
            else:
                message[key] = message.get(key, "") + text
        if not message["content"] and "tool_calls" in message:
            message["content"] = None
        out.append({"index": index, "message": message,
                    "logprobs": joined(p["logprobs"]
                                       for p in [first, *parts, last]
                                       if p["logprobs"]),
                    "finish_reason": last["finish_reason"]})
    return out, check_usage(chunks, body)


def stream_text(server, body):
    chunks = openai_chunks(server, TEXT, Completion, body)
    choices = {}
    for chunk in chunks:
        for c in chunk["choices"]:
            choices.setdefault(c["index"], []).append(c)
    out = []
    for index, parts in sorted(choices.items()):
        made = {"index": index, "text": "".join(p["text"] for p in parts),
                "logprobs": joined(p["logprobs"] for p in parts
                                   if p["logprobs"]),
                "finish_reason": parts[-1]["finish_reason"]}
        thoughts = "".join(p.get("reasoning_content", "") for p in parts)
        if thoughts:
            made["reasoning_content"] = thoughts
        assert all(p["finish_reason"] is None for p in parts[:-1])
        out.append(made)
    return out, check_usage(chunks, body)


def check_openai(server, path, kind, stream, body):
    body = {**body, "cache_prompt": False}
    streamed_only = ("stream_options", "return_progress")
    whole = plain(server, path, kind, {k: v for k, v in body.items()
                                       if k not in streamed_only})
    choices, usage = stream(server, body)
    without_ids(choices)
    without_ids(whole["choices"])
    assert choices == whole["choices"], (body, choices, whole["choices"])
    if usage:
        assert usage == whole["usage"], (usage, whole["usage"])
    return whole


# ---- responses ----

RESPONSE_ORDER = {
    "reasoning": ["response.output_item.added",
                  "response.reasoning_summary_part.added",
                  "response.reasoning_summary_text.delta",
                  "response.reasoning_summary_text.done",
                  "response.reasoning_summary_part.done",
                  "response.output_item.done"],
    "message": ["response.output_item.added", "response.content_part.added",
                "response.output_text.delta", "response.output_text.done",
                "response.content_part.done", "response.output_item.done"],
    "function_call": ["response.output_item.added", None,
                      "response.function_call_arguments.delta",
                      "response.function_call_arguments.done", None,
                      "response.output_item.done"],
}


def check_item(item, found):
    """The events of one item, in their order and of the same text."""
    order = RESPONSE_ORDER[item["type"]]
    assert [t for t in (e["type"] for e in found) if t != order[2]] == \
        [t for t in order[:2] + order[3:] if t], found
    assert all(e["output_index"] == found[0]["output_index"] for e in found)
    assert all(e.get("item_id", item["id"]) == item["id"] for e in found)
    assert found[-1]["item"] == item and found[0]["item"]["id"] == item["id"]
    deltas = [e for e in found if e["type"] == order[2]]
    text = "".join(e["delta"] for e in deltas)
    if item["type"] == "function_call":
        assert item["arguments"] == text == found[-2]["arguments"]
        assert item["call_id"] == found[0]["item"]["call_id"]
        assert found[0]["item"]["arguments"] == ""
        return
    parts = item["content" if item["type"] == "message" else "summary"]
    assert [p["text"] for p in parts] == [text], (parts, text)
    assert found[-2]["part"] == parts[0] and found[-3]["text"] == text
    if item["type"] == "message":
        # Tokens behind the last text are in the whole alone.
        logprobs = sum((e["logprobs"] for e in deltas), [])
        assert parts[0]["logprobs"][:len(logprobs)] == logprobs
        assert found[-3]["logprobs"] == parts[0]["logprobs"]


def nameless(response):
    """A response without what differs between two of the same request."""
    out = copy.deepcopy(response)
    for item in [out, *out["output"]]:
        item.pop("id")
        item.pop("call_id", None)
    out.pop("created_at")
    return out


def check_stored(server, body, response):
    """A response is kept as it was given, unless it is not to be."""
    path = f"{RESPONSES}/{response['id']}"
    if body.get("store", True):
        assert json.loads(get(server, path)) == response
    else:
        get(server, path, 404)


def check_response(server, body):
    body = {"input": "Hi", "cache_prompt": False, "seed": 1, **body}
    whole = plain(server, RESPONSES, Response, body)
    found = []
    for name, data in events(server, RESPONSES, body):
        event = typed(ResponseStreamEvent, json.loads(data))
        assert event["type"] == name and event["sequence_number"] == len(found)
        found.append(event)
    types = [e["type"] for e in found]
    assert types[:2] == ["response.created", "response.in_progress"], types
    assert types[-1] == f"response.{whole['status']}", types
    last = found[-1]["response"]
    check_stored(server, body, whole)
    check_stored(server, body, last)
    assert nameless(last) == nameless(whole), (last, whole)
    for e in found[:2]:
        assert e["response"]["output"] == [] and e["response"]["id"] == last["id"]
        assert e["response"]["status"] == "in_progress"
    middle = found[2:-1]
    for index, item in enumerate(last["output"]):
        check_item(item, [e for e in middle if e["output_index"] == index])
    assert [e["output_index"] for e in middle] == \
        sorted(e["output_index"] for e in middle)
    return whole


# ---- messages ----

def check_message(server, body):
    body = {"max_tokens": 200, "messages": ASK, "cache_prompt": False,
            "seed": 1, **body}
    whole = plain(server, MESSAGES, Message, body)
    blocks, message, open_block, pieces = [], None, None, ""
    for name, data in events(server, MESSAGES, body):
        event = json.loads(data)
        assert event["type"] == name
        if name == "ping":
            assert message is not None
            continue
        typed(RawMessageStreamEvent, event)
        if name == "message_start":
            assert message is None
            message = event["message"]
        elif name == "content_block_start":
            assert open_block is None and event["index"] == len(blocks)
            open_block = event["content_block"]
            blocks.append(open_block)
        elif name == "content_block_delta":
            assert event["index"] == len(blocks) - 1 and open_block
            delta = dict(event["delta"])
            key = delta.pop("type").removesuffix("_delta")
            if key == "input_json":
                pieces += delta["partial_json"]
            else:
                open_block[key] += delta[key]
        elif name == "content_block_stop":
            assert open_block and event["index"] == len(blocks) - 1
            if open_block["type"] == "tool_use":
                assert open_block["input"] == {}
                # A call may be cut; the plain answer closes it.
                open_block["input"] = jiter.from_json(
                    pieces.encode(), partial_mode="trailing-strings")
            pieces = ""
            open_block = None
        elif name == "message_delta":
            assert open_block is None
            message.update(event["delta"])
            message["usage"].update(event["usage"])
    assert name == "message_stop"
    message["content"] = blocks
    for m in (message, whole):
        m.pop("id")
        for block in m["content"]:
            if block["type"] == "tool_use":
                assert block.pop("id").startswith("toolu_")
            if "signature" in block:
                assert block.pop("signature").startswith("sig_")
    assert message == whole, (message, whole)
    return whole


# ---- what is asked ----

SAMPLED = [{}, {"temperature": 0}, {"seed": 3, "top_k": 5}, {"max_tokens": 4},
           {"stop": "you"}, {"stop": ["zz", "o, "]}, {"max_tokens": 1}]


@test
def chat(server):
    for body in [*SAMPLED,
                 {"n": 3, "seed": 5},
                 {"logprobs": True}, {"logprobs": True, "top_logprobs": 3},
                 {"logprobs": True, "n": 2, "max_tokens": 5, "seed": 5},
                 {"stream_options": {"include_usage": True}},
                 {"stream_options": {"include_usage": True}, "n": 2,
                  "return_progress": True, "logprobs": True},
                 {"return_progress": True},
                 {"messages": ASK + [{"role": "assistant", "content": "So"}],
                  "continue_final_message": True}]:
        whole = check_openai(server, CHAT, ChatCompletion, stream_chat,
                             {"messages": ASK, "seed": 1, **body})
        assert len(whole["choices"]) == body.get("n", 1)


@test
def completions(server):
    for body in [*SAMPLED, {"n": 2, "best_of": 2, "seed": 5}, {"logprobs": 0},
                 {"logprobs": 3}, {"echo": True}, {"echo": True, "max_tokens": 0},
                 {"prompt": ["a", "b"], "n": 2, "seed": 5},
                 {"prompt": [65, 66]}, {"prompt": [[65], [66, 67]]},
                 {"prompt": [[65], [66]], "echo": True,
                  "stream_options": {"include_usage": True}}]:
        check_openai(server, TEXT, Completion, stream_text,
                     {"prompt": "Once", "max_tokens": 60, "seed": 1, **body})
    # The type has no null for a first token, which OpenAI's answers have.
    made = json.loads(post(server, TEXT, {
        "prompt": "Once", "echo": True, "logprobs": 2, "max_tokens": 2})[1])
    found = made["choices"][0]["logprobs"]
    assert found["token_logprobs"][0] is None, found
    assert found["top_logprobs"][0] is None, found
    found["token_logprobs"][0], found["top_logprobs"][0] = 0.0, {}
    typed(Completion, made)


@test
def responses(server):
    for body in [{}, {"temperature": 0, "max_output_tokens": 4},
                 {"max_output_tokens": 1}, {"stop": "you"},
                 {"instructions": "Be kind.", "metadata": {"a": "b"}},
                 {"store": False, "user": "u", "safety_identifier": "s",
                  "service_tier": "auto", "prompt_cache_key": "k"},
                 {"input": ASK}, {"parallel_tool_calls": False},
                 {"reasoning": {"effort": "low", "summary": "auto"}},
                 {"text": {"format": {"type": "text"}, "verbosity": "low"}},
                 {"include": ["message.output_text.logprobs"],
                  "top_logprobs": 2},
                 {"include": ["message.output_text.logprobs"],
                  "max_output_tokens": 3},
                 # Half a character is the thought that the budget leaves.
                 {"include": ["message.output_text.logprobs"],
                  "reasoning_budget": 13}]:
        check_response(server, body)
    first = check_response(server, {"instructions": "One."})
    for _ in range(1 if server.tiny else 3):  # its context is short
        first = check_response(server, {"previous_response_id": first["id"]})


@test
def messages(server):
    for body in [{}, {"max_tokens": 4}, {"max_tokens": 1},
                 {"stop_sequences": ["you"]}, {"temperature": 0, "top_k": 1},
                 {"system": [{"type": "text", "text": "Be kind.",
                              "cache_control": {"type": "ephemeral"}}]},
                 {"thinking": {"type": "disabled"}},
                 {"thinking": {"type": "enabled", "budget_tokens": 3}},
                 {"thinking": {"type": "adaptive"}},
                 {"messages": ASK + [{"role": "assistant", "content": "So"}]}]:
        check_message(server, body)
    plain(server, MESSAGES + "/count_tokens", MessageTokensCount,
          {"messages": ASK})


SAMPLING = {
    "temperature": [0, 0.5, 2], "top_p": [0.5, 1], "top_k": [1, 5, 50],
    "min_p": [0, 0.1], "seed": [1, 2, 3], "min_tokens": [0, 1],
    "stop": ["e", ["o", "you"], "日", " ", "👍"], "ignore_eos": [True, False],
    "repetition_penalty": [1.1, 2], "frequency_penalty": [-1, 1],
    "reasoning_budget": [0, 1, 4, 13], "typical_p": [0.5],
    "xtc_probability": [0.5],
    # Much of it is parts of characters.
    "logit_bias": [{"65": 5}, {"324": 10}, {"226": 5, "130": 5},
                   {"240": 6, "159": 6, "145": 6, "141": 6}],
}
CHAT_MORE = {
    "n": [2, 3], "logprobs": [True], "return_progress": [True],
    "stream_options": [{"include_usage": True}], "max_tokens": [1, 3, 8]}
TEXT_MORE = {
    "n": [2], "logprobs": [0, 2], "max_tokens": [1, 3, 8],
    "prompt": [["a", "日本"], [[65], [230, 151]]]}
RESPONSE_MORE = {
    "include": [["message.output_text.logprobs"]], "instructions": ["Be."],
    "max_output_tokens": [1, 4, 8]}
MESSAGE_MORE = {
    "temperature": [0, 0.5], "top_k": [3], "seed": [3], "max_tokens": [1, 4, 8],
    "stop_sequences": [["e"], ["日", "you"]], "system": ["S"],
    "thinking": [{"type": "enabled", "budget_tokens": 2}]}


@test
def mixtures(server):
    """Fields together, by chance; the same ones in every run."""
    drawn = random.Random(server.name)

    def some(*tables):
        return {key: drawn.choice(values) for table in tables
                for key, values in table.items() if drawn.random() < 0.3}
    for _ in range(10):
        common = {"seed": 7, "max_tokens": 30}
        check_openai(server, CHAT, ChatCompletion, stream_chat,
                     {"messages": ASK, **common, **some(SAMPLING, CHAT_MORE)})
        check_openai(server, TEXT, Completion, stream_text,
                     {"prompt": "a", **common, **some(SAMPLING, TEXT_MORE)})
        check_response(server, {"max_output_tokens": 30,
                                **some(SAMPLING, RESPONSE_MORE)})
        check_message(server, {"max_tokens": 30, **some(MESSAGE_MORE)})


@test
def others(server):
    for model in json.loads(get(server, "/v1/models"))["data"]:
        typed(Model, model)


# What the server has no meaning for: listed as ignored, as all that it does not
# know.
NOT_KNOWN = {
    RESPONSES: {"access_programs", "background_options", "image"},
    MESSAGES: {"diagnostics", "inference_geo", "speed", "user_profile_id",
               "workspace_id"},
    MESSAGES + "/count_tokens": {"speed", "user_profile_id", "workspace_id"},
}


@test
def fields(server):
    """Which fields of the packages the server does not know is known."""
    for path, kind, body in [
            (CHAT, chat_params.CompletionCreateParamsBase, {"messages": ASK}),
            (TEXT, completion_create_params.CompletionCreateParamsBase,
             {"prompt": "a"}),
            (RESPONSES, response_create_params.ResponseCreateParamsBase,
             {"input": "a"}),
            ("/v1/embeddings", embedding_create_params.EmbeddingCreateParams,
             {"input": "a"}),
            (MESSAGES, MessageCreateParamsBase,
             {"max_tokens": 1, "messages": ASK}),
            (MESSAGES + "/count_tokens", MessageCountTokensParams,
             {"messages": ASK})]:
        names = set(typing.get_type_hints(kind)) - set(body)
        headers = [ask_any(server, path, {**body, name: {}})[0]
                   for name in names - {"stream"}]
        unknown = {name for found in headers
                   for name in (found["X-Quern-Ignored"] or "").split(",")}
        assert unknown - {""} == NOT_KNOWN.get(path, set()), (path, unknown)


def ask_any(server, path, body):
    request = urllib.request.Request(
        server.url + path, json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer key"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.headers, error.read()


def embeddings(server):
    for body in [{"input": "a"}, {"input": ["a", "b"]}, {"input": [65, 66]},
                 {"input": [[65], [66]], "dimensions": 4}]:
        plain(server, "/v1/embeddings", CreateEmbeddingResponse, body)


WEATHER = {"name": "get_weather", "description": "The weather of a city."}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


WANTED = [{"city": "Oslo"}, {}]


def caller(folder):
    """Says something, calls a function twice, and says something else."""
    call = '<tool_call>{"name": "get_weather", "arguments": %s}</tool_call>'
    scripted(ROOT, folder, "So" + call % '{"city": "Oslo"}' + call % "{}" +
             "Ok")
    shutil.copy(os.path.join(models(ROOT), "../templates/tools.jinja"),
                os.path.join(folder, "chat_template.jinja"))
    return folder


def tools(server):
    """Answers with calls, whole, in part, and one at a time."""
    for more in [{}, {"max_tokens": 20}, {"max_tokens": 60}, {"logprobs": True},
                 {"n": 2}, {"parallel_tool_calls": False},
                 {"tool_choice": "none"},
                 {"stream_options": {"include_usage": True}}]:
        whole = check_openai(server, CHAT, ChatCompletion, stream_chat, {
            "messages": ASK, "max_tokens": 300, "seed": 1, "tools": [
                {"type": "function",
                 "function": {**WEATHER, "parameters": SCHEMA}}], **more})
        choice = whole["choices"][0]
        if "n" in more:
            assert [json.loads(c["function"]["arguments"])
                    for c in choice["message"]["tool_calls"]] == WANTED, whole
            assert choice["finish_reason"] == "tool_calls", whole
    for more in [{}, {"max_output_tokens": 20}, {"max_output_tokens": 60},
                 {"include": ["message.output_text.logprobs"]},
                 {"parallel_tool_calls": False}, {"tool_choice": "none"}]:
        whole = check_response(server, {
            "max_output_tokens": 300, "tool_choice": "auto", "tools": [
                {"type": "function", "strict": False, **WEATHER,
                 "parameters": SCHEMA}], **more})
        if not more:
            assert [json.loads(i["arguments"]) for i in whole["output"]
                    if i["type"] == "function_call"] == WANTED, whole
    for more in [{}, {"max_tokens": 20}, {"max_tokens": 60},
                 {"tool_choice": {"type": "none"}},
                 {"tool_choice": {"type": "auto",
                                  "disable_parallel_tool_use": True}}]:
        whole = check_message(server, {
            "max_tokens": 300, "tools": [{**WEATHER, "input_schema": SCHEMA}],
            **more})
        if not more:
            assert [b["input"] for b in whole["content"]
                    if b["type"] == "tool_use"] == WANTED, whole
            assert whole["stop_reason"] == "tool_use", whole


def sent_back(server):
    """What the packages make of an answer is good for the next request, also
    where no unknown field is."""
    o, a = server.openai(), server.anthropic()
    made = o.chat.completions.create(model="m", messages=ASK)
    message = made.choices[0].message
    for form in (message, message.model_dump(),
                 message.model_dump(exclude_none=True)):
        o.chat.completions.create(model="m", messages=[*ASK, form, *ASK])
    output = o.responses.create(model="m", input="Hi", include=[
        "message.output_text.logprobs"]).output
    for items in (output, [i.model_dump() for i in output],
                  [i.model_dump(exclude_none=True) for i in output]):
        o.responses.create(model="m", input=[*ASK, *items, *ASK])
    content = a.messages.create(model="m", max_tokens=60, messages=ASK).content
    for blocks in (content, [b.model_dump() for b in content]):
        turns = [*ASK, {"role": "assistant", "content": blocks}, *ASK]
        a.messages.create(model="m", max_tokens=5, messages=turns)
        a.messages.count_tokens(model="m", messages=turns)


# ---- all ----

def main():
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        made = {
            "talk": scripted(ROOT, os.path.join(folder, "talk"), "Hello, you"),
            # Characters come in parts of up to four tokens.
            "signs": scripted(ROOT, os.path.join(folder, "signs"),
                              "日本語 👍🏽 \u0000\u001f\u2028 é\"\\ you"),
            "thinks": scripted(ROOT, os.path.join(folder, "thinks"),
                               "Hello, you", "Let me see: 思考"),
            "calls": caller(os.path.join(folder, "calls")),
            "tiny": os.path.join(models(ROOT), "tiny"),
        }
        for name, model in made.items():
            flags = ["--pooling", "mean"] if name == "tiny" else []
            with Server(QUERN, model, "--api-key", "key", "--default-max-tokens",
                        "60", *flags) as server:
                server.name, server.tiny = name, name == "tiny"
                more = {"tiny": [embeddings], "calls": [tools]}.get(name, [])
                for function in TESTS + more:
                    try:
                        function(server)
                    except Exception as error:  # pylint: disable=broad-except
                        bad += 1
                        print(f"FAILED {name}: {function.__name__}: "
                              f"{type(error).__name__} {error}"[:1500])
        with Server(QUERN, made["thinks"], "--strict-fields") as server:
            sent_back(server)
    print(f"{bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
