"""Each field of each route, by a table of what it may be.

    fields.py QUERN_TEST ROOT

For every row: absent and null are the same, the ends of its range are good, what
lies beyond them and every other type is refused with code and place, and so are
combinations that do not hold.
"""

import json
import os
import sys

from asking import Server, models

QUERN, ROOT = sys.argv[1:]

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
COUNT, EMBED = "/v1/messages/count_tokens", "/v1/embeddings"
TOKENIZE, DETOKENIZE = "/v1/tokenize", "/v1/detokenize"
TEMPLATE = "/v1/apply-template"
USER = {"role": "user", "content": "Hi"}
CALLS = [{"id": "c", "type": "function",
          "function": {"name": "f", "arguments": "{}"}}]
TOOL = {"type": "function", "function": {"name": "f"}}
MAX = 2 ** 63 - 1

# A value of each type; an integer is a number, too.
TYPES = {"bool": True, "int": 3, "number": 1.5, "string": "x", "array": [],
         "object": {}}


class Field:
    """A row: its types (words), values that are good, and refusals: (value,
    code) or (value, code, place within the field)."""

    def __init__(self, name, types, good=(), bad=(), needs=None, required=False,
                 null=True):
        self.name, self.types = name, types.split()
        self.good, self.bad, self.needs = good, bad, needs or {}
        self.required, self.null = required, null

    def wrong_types(self):
        known = set(self.types) | ({"int"} if "number" in self.types else set())
        if "any" in known:
            return []
        return [v for k, v in TYPES.items() if k not in known]


def number(name, low, high, beyond, **more):
    """A row of a number with these ends and values beyond them."""
    return Field(name, "number", [low, high], [(v, "out_of_range")
                                               for v in beyond], **more)


def integer(name, low, high, beyond, **more):
    row = number(name, low, high, beyond, **more)
    row.types = ["int"]
    return row


SAMPLING = [
    number("temperature", 0, 5, [-0.001, 5.001]),
    number("top_p", 5e-324, 1, [0, -1, 1.0001]),
    integer("top_k", -1, 2 ** 31 - 1, [-2, 2 ** 31]),
    number("min_p", 0, 1, [-0.1, 1.1]),
    number("typical_p", 5e-324, 1, [0, 1.1]),
    number("xtc_probability", 0, 1, [-0.1, 1.1]),
    number("xtc_threshold", 0, 0.5, [-0.1, 0.51]),
    number("repetition_penalty", 0, 10, [-0.1, 10.1]),
    number("repeat_penalty", 0, 10, [-0.1, 10.1]),
    integer("repetition_context_size", 0, 2 ** 31 - 1, [-1, 2 ** 31]),
    integer("presence_context_size", 0, 2 ** 31 - 1, [-1, 2 ** 31]),
    integer("frequency_context_size", 0, 2 ** 31 - 1, [-1, 2 ** 31]),
    integer("repeat_last_n", -1, 2 ** 31 - 1, [-2, 2 ** 31]),
    number("presence_penalty", -2, 2, [-2.1, 2.1]),
    number("frequency_penalty", -2, 2, [-2.1, 2.1]),
    integer("seed", 0, MAX, [-1]),
    Field("logit_bias", "object",
          [{}, {"0": -100, "331": 100}, {"5": 0.5}],
          [({"5": 100.1}, "out_of_range", ".5"),
           ({"5": -100.1}, "out_of_range", ".5"),
           ({"5": "1"}, "invalid_type", ".5"),
           ({"5": None}, "invalid_type", ".5"),
           ({"x": 1}, "out_of_range", ".x"),
           ({"-1": 1}, "out_of_range", ".-1"),
           ({"1.0": 1}, "out_of_range", ".1.0"),
           ({"332": 1}, "out_of_range", ".332"),
           ({str(i): 1 for i in range(1025)}, "out_of_range")]),
    Field("stop", "string array", ["x", ["x"] * 16, "y" * 256, "", [], ["é"]],
          [("y" * 257, "out_of_range"),
           ("é" * 129, "out_of_range"), ("a\0", "unsupported_value"),
           (["x"] * 17, "out_of_range"), (["x", ""], "out_of_range", "[1]"),
           (["x", 1], "invalid_type", "[1]"),
           (["x", None], "invalid_type", "[1]")]),
    integer("min_tokens", 0, 4, [-1, 5], needs={"max_tokens": 4}),
    Field("ignore_eos", "bool", [True, False]),
    integer("reasoning_budget", -1, MAX, [-2]),
    Field("speculative", "object",
          [{}, {"enabled": False}, {"num_draft": 0}, {"num_draft": 16},
           {"enabled": None, "num_draft": None}],
          [({"num_draft": 17}, "out_of_range", ".num_draft"),
           ({"num_draft": -1}, "out_of_range", ".num_draft"),
           ({"num_draft": 1.5}, "invalid_type", ".num_draft"),
           ({"enabled": 1}, "invalid_type", ".enabled"),
           ({"enabled": True}, "unsupported_value", ".enabled")]),
]

CALL = [
    Field("model", "string", ["x", ""]),
    Field("stream", "bool", [False]),
    Field("stream_options", "object",
          [{}, {"include_usage": True}, {"include_usage": None}],
          [({"include_usage": 1}, "invalid_type", ".include_usage"),
           ({"include_obfuscation": 1}, "invalid_type",
            ".include_obfuscation")], needs={"stream": True}),
    Field("return_progress", "bool", [True, False], needs={"stream": True}),
    integer("n", 1, 16, [0, -1, 17, 2 ** 32 + 1]),
    Field("cache_salt", "string", ["s", ""], [("a\0", "unsupported_value")]),
    Field("prompt_cache_key", "string", ["s", ""]),
    Field("cache_prompt", "bool", [True, False]),
    Field("user", "string", ["u", ""]),
    Field("keep_alive", "int string", [-1, 0, 60, "5m", "-1", "90", "2h"],
          [(-2, "out_of_range"), ("soon", "out_of_range"),
           ("5x", "out_of_range"), ("", "out_of_range")]),
    Field("metadata", "object", [{}, {"a": "b"}]),
    Field("service_tier", "string", ["auto", "default", "flex"]),
    Field("store", "bool", [True, False]),
    Field("safety_identifier", "string", ["s"]),
    Field("prompt_cache_retention", "string", ["24h"]),
    Field("prompt_cache_options", "object", [{"mode": "implicit"}]),
]

REFUSED = [(v, "unsupported_value") for v in ({"a": 1}, [1], "x", 1, True)]
OPENAI = [
    Field("audio", "any", [], REFUSED),
    Field("prediction", "any", [], REFUSED),
    Field("web_search_options", "any", [], [({}, "unsupported_value")]),
    Field("moderation", "any", [], [({"model": "m"}, "unsupported_value")]),
    Field("modalities", "array", [[], ["text"]],
          [(["audio"], "unsupported_value", "[0]"),
           (["text", "audio"], "unsupported_value", "[1]"),
           ([1], "invalid_type", "[0]")]),
    Field("adapter", "string", ["none"], [("a", "adapter_not_found"),
                                          ("a+b", "adapter_not_found"),
                                          ("", "adapter_not_found")]),
    integer("n_predict", -1, 100, [-2, 0]),
]


def message_bads(message):
    """Refusals of one message, as those of a list."""
    return [([{**USER, **change} if base is None else {**base, **change}], code,
             "[0]" + place) for base, change, code, place in message]


MESSAGE_ROWS = message_bads([
    (None, {"role": 1}, "invalid_type", ".role"),
    (None, {"role": None}, "missing_field", ".role"),
    (None, {"role": "function"}, "unsupported_value", ".role"),
    (None, {"role": ""}, "unsupported_value", ".role"),
    (None, {"content": None}, "missing_field", ".content"),
    (None, {"content": 1}, "invalid_type", ".content"),
    (None, {"content": {}}, "invalid_type", ".content"),
    (None, {"content": ["x"]}, "invalid_type", ".content[0]"),
    (None, {"content": [{}]}, "missing_field", ".content[0].type"),
    (None, {"content": [{"type": "text"}]}, "missing_field",
     ".content[0].text"),
    (None, {"content": [{"type": "text", "text": 1}]}, "invalid_type",
     ".content[0].text"),
    (None, {"content": [{"type": "image_url", "image_url": {"url": "x"}}]},
     "unsupported_content", ".content[0].type"),
    (None, {"content": [{"type": "refusal", "refusal": "x"}]},
     "unsupported_content", ".content[0].type"),
    (None, {"tool_calls": CALLS}, "unsupported_value", ".tool_calls"),
    (None, {"role": "assistant", "content": None}, "missing_field",
     ".content"),
    (None, {"role": "tool"}, "missing_field", ".tool_call_id"),
    (None, {"role": "tool", "tool_call_id": "x"}, "invalid_tool",
     ".tool_call_id"),
    (None, {"name": 1}, "invalid_type", ".name"),
    (None, {"reasoning_content": 1}, "invalid_type", ".reasoning_content"),
    (None, {"function_call": {"name": "f"}}, "unsupported_value",
     ".function_call"),
    ({"role": "assistant"}, {"tool_calls": [{**CALLS[0], "id": None}]},
     "missing_field", ".tool_calls[0].id"),
    ({"role": "assistant"}, {"tool_calls": [{**CALLS[0], "type": "x"}]},
     "unsupported_value", ".tool_calls[0].type"),
    ({"role": "assistant"},
     {"tool_calls": [{**CALLS[0], "function": {"name": "f"}}]},
     "missing_field", ".tool_calls[0].function.arguments"),
    ({"role": "assistant"},
     {"tool_calls": [{**CALLS[0],
                      "function": {"name": "f", "arguments": "[1]"}}]},
     "invalid_tool", ".tool_calls[0].function.arguments"),
    ({"role": "assistant"},
     {"tool_calls": [{**CALLS[0],
                      "function": {"name": "f", "arguments": {}}}]},
     "invalid_type", ".tool_calls[0].function.arguments"),
])

MESSAGE_GOOD = [
    [USER], [{**USER, "content": ""}], [{**USER, "content": []}],
    [{**USER, "content": [{"type": "text", "text": "a", "cache_control": {}}]}],
    [{"role": "developer", "content": "a"}, USER],
    [USER, {"role": "system", "content": [{"type": "text", "text": "a"}]}],
    [USER, {"role": "assistant", "content": "", "refusal": None,
            "tool_calls": [], "audio": None}],
    [USER, {"role": "assistant", "content": [
        {"type": "refusal", "refusal": "no"}], "reasoning_content": "t"}],
    [USER, {"role": "assistant", "content": None, "tool_calls": CALLS},
     {"role": "tool", "tool_call_id": "c", "content": "r"}],
    [USER] * 100,
]


def messages_row(good=(), bad=()):
    return Field("messages", "array", [*MESSAGE_GOOD, *good],
                 [([], "out_of_range"), ([1], "invalid_type", "[0]"),
                  ([None], "invalid_type", "[0]"), ([USER] * 4097, "out_of_range"),
                  *MESSAGE_ROWS, *bad], required=True)


CHAT_ROWS = [
    messages_row(bad=[([{**USER, "content": "x" * 5000}],
                       "context_length_exceeded")]),
    integer("max_completion_tokens", 1, 2000, [0, -1]),
    integer("max_tokens", 1, 2000, [0, -1]),
    Field("max_tokens", "int", [], [(4090, "context_length_exceeded"),
                                    (MAX, "context_length_exceeded")]),
    Field("max_completion_tokens", "int", [],
          [(4090, "context_length_exceeded")]),
    Field("n_predict", "int", [-1], [(4090, "context_length_exceeded")]),
    Field("logprobs", "bool", [True, False]),
    integer("top_logprobs", 0, 20, [-1, 21], needs={"logprobs": True}),
    Field("chat_template_kwargs", "object", [{}, {"a": [1, {"b": None}]}],
          [({"messages": []}, "unsupported_value", ".messages"),
           ({"tools": None}, "unsupported_value", ".tools")]),
    Field("reasoning_effort", "string",
          ["none", "minimal", "low", "medium", "high"],
          [("huge", "unsupported_value"), ("", "unsupported_value"),
           ("Low", "unsupported_value")]),
    Field("verbosity", "string", ["low"]),
    # The model of these requests knows no way to call functions.
    Field("tools", "array", [[]],
          [([1], "invalid_type", "[0]"), ([{}], "missing_field", "[0].type"),
           ([{"type": "x"}], "unsupported_value", "[0].type"),
           ([{**TOOL, "function": {"name": "a b"}}], "invalid_tool",
            "[0].function.name"),
           ([TOOL, TOOL], "invalid_tool", "[1].function.name"),
           ([{**TOOL, "function": {"name": "f", "strict": True}}],
            "unsupported_value", "[0].function.strict"),
           ([{**TOOL, "function": {"name": "f", "parameters": []}}],
            "invalid_type", "[0].function.parameters"),
           ([{**TOOL, "function": {"name": f"f{i}"}} for i in range(257)],
            "out_of_range"), ([TOOL], "unsupported_value")]),
    Field("tool_choice", "string object", [],
          [("auto", "unsupported_value"), ("x", "unsupported_value")]),
    Field("tool_choice", "string object", [],
          [("required", "unsupported_value"), ({}, "missing_field", ".type"),
           ({"type": "function", "function": {"name": "g"}}, "invalid_tool"),
           ({"type": "function", "function": {"name": "f"}},
            "unsupported_value")], needs={"tools": [TOOL]}),
    Field("continue_final_message", "bool", [False], [(True,
                                                       "unsupported_value")]),
    Field("parallel_tool_calls", "bool", [True, False]),
    *OPENAI, *CALL, *SAMPLING,
]
TEXT_ROWS = [
    Field("prompt", "string array",
          ["a", ["a"] * 64, [65], [331], [[65]] * 64],
          [([], "empty_prompt"), ("", "empty_prompt"),
           (["a", ""], "empty_prompt", "[1]"), (["a"] * 65, "out_of_range"),
           ([[65]] * 65, "out_of_range"), (["a", 1], "invalid_type", "[1]"),
           ([1, "a"], "invalid_type", "[1]"), ([[1], 2], "invalid_type", "[1]"),
           ([[1, "a"]], "invalid_type", "[0][1]"), ([1.5], "invalid_type", "[0]"),
           ([True], "invalid_type", "[0]"), ([None], "invalid_type", "[0]"),
           ([65, 332], "out_of_range", "[1]"), ([-1], "out_of_range", "[0]"),
           ([[65], [65, 332]], "out_of_range", "[1][1]"),
           ([[65], []], "empty_prompt", "[1]"),
           ("x" * 5000, "context_length_exceeded"),
           (["x", "x" * 5000], "context_length_exceeded", "[1]")],
          required=True),
    integer("max_tokens", 1, 2000, [-1, 0]),
    integer("max_tokens", 0, 0, [-1], needs={"echo": True}),
    Field("max_tokens", "int", [], [(4096, "context_length_exceeded")]),
    Field("n_predict", "int", [], [(4096, "context_length_exceeded")]),
    integer("best_of", 2, 2, [0, 17, -1], needs={"n": 2}),
    Field("best_of", "int", [1], [(2, "unsupported_value")]),
    Field("echo", "bool", [True, False]),
    Field("suffix", "string", [""], [("x", "unsupported_value")]),
    integer("logprobs", 0, 20, [-1, 21]),
    *OPENAI, *CALL, *SAMPLING,
]
ITEM = {"type": "message", "role": "user", "content": "a"}
RESPONSE_ROWS = [
    Field("input", "string array",
          ["a", "", [ITEM], [USER], [{**ITEM, "content": [
              {"type": "input_text", "text": "a"}]}],
           [ITEM, {"type": "reasoning", "summary": [], "content": None,
                   "encrypted_content": None}, ITEM],
           [ITEM, {"type": "function_call", "call_id": "c", "name": "f",
                   "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "r"}]],
          [([], "out_of_range"), ([1], "invalid_type", "[0]"),
           ([{**ITEM, "role": "x"}], "unsupported_value", "[0].role"),
           ([{**ITEM, "content": None}], "missing_field", "[0].content"),
           ([{"type": "item_reference", "id": "x"}], "unsupported_content",
            "[0].type"),
           ([{**ITEM, "content": [{"type": "input_image", "image_url": "x"}]}],
            "unsupported_content", "[0].content[0].type"),
           ([{"type": "function_call_output", "call_id": "c", "output": "r"}],
            "invalid_tool", "[0].call_id"),
           ([{"type": "function_call", "call_id": "c", "name": "f",
              "arguments": "x"}], "invalid_tool", "[0].arguments"),
           ("x" * 5000, "context_length_exceeded")], required=True),
    Field("instructions", "string", ["a", ""]),
    integer("max_output_tokens", 1, 2000, [0, -1]),
    Field("max_output_tokens", "int", [], [(4090, "context_length_exceeded")]),
    Field("previous_response_id", "string", [], [("x", "response_not_found")]),
    Field("store", "bool", [True, False]),
    Field("metadata", "object", [{}, {"a": "b"}]),
    Field("parallel_tool_calls", "bool", [True, False]),
    Field("text", "object", [{}, {"format": {"type": "text"}},
                             {"format": None, "verbosity": "low"}],
          [({"format": {"type": "x"}}, "unsupported_value", ".format.type"),
           ({"format": {}}, "missing_field", ".format.type"),
           ({"format": "text"}, "invalid_type", ".format")]),
    Field("reasoning", "object", [{}, {"effort": "low", "summary": "auto"}],
          [({"effort": "huge"}, "unsupported_value", ".effort"),
           ({"effort": 1}, "invalid_type", ".effort")]),
    Field("include", "array", [[], ["reasoning.encrypted_content"],
                               ["message.output_text.logprobs"]],
          [(["x"], "unsupported_value", "[0]"), ([1], "invalid_type", "[0]")]),
    integer("top_logprobs", 0, 20, [-1, 21],
            needs={"include": ["message.output_text.logprobs"]}),
    Field("top_logprobs", "int", [0], [(1, "unsupported_value")]),
    Field("truncation", "string", ["disabled"], [("auto", "unsupported_value")]),
    Field("background", "bool", [False], [(True, "unsupported_value")]),
    Field("conversation", "any", [], [("x", "unsupported_value"),
                                      ({"id": "x"}, "unsupported_value")]),
    Field("prompt", "object", [], [({"id": "x"}, "unsupported_value")]),
    Field("stream_options", "object", [{}, {"include_obfuscation": False}],
          [({"include_obfuscation": 1}, "invalid_type",
            ".include_obfuscation")], needs={"stream": True}),
    Field("max_tool_calls", "int", [1]),
    Field("moderation", "any", [], [({"model": "m"}, "unsupported_value")]),
    Field("context_management", "array", [[], [{"type": "compaction"}]]),
    *[f for f in CALL if f.name not in ("stream_options", "return_progress",
                                        "n", "metadata", "store")],
    *[f for f in SAMPLING if f.name != "min_tokens"],
    integer("min_tokens", 0, 4, [-1, 5], needs={"max_output_tokens": 4}),
]
PIN = {"type": "ephemeral"}


def anthropic_rows(count):
    rows = [
        Field("messages", "array",
              [[USER], [USER, USER], [{**USER, "content": []}],
               [{**USER, "content": [{"type": "text", "text": "a",
                                      "cache_control": PIN}]}],
               [USER, {"role": "system", "content": "s"}],
               [USER, {"role": "assistant", "content": "On"}],
               [USER, {"role": "assistant", "content": [
                   {"type": "thinking", "thinking": "t", "signature": "s"},
                   {"type": "redacted_thinking", "data": "x"},
                   {"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "t",
                     "is_error": True}]}]],
              [([], "out_of_range"), ([1], "invalid_type", "[0]"),
               ([USER] * 4097, "out_of_range"),
               ([{**USER, "role": "tool"}], "unsupported_value", "[0].role"),
               ([{"role": "user"}], "missing_field", "[0].content"),
               ([{**USER, "content": 1}], "invalid_type", "[0].content"),
               ([{**USER, "content": [{"type": "image", "source": {}}]}],
                "unsupported_content", "[0].content[0].type"),
               ([{**USER, "content": [{"type": "document", "source": {}}]}],
                "unsupported_content", "[0].content[0].type"),
               ([{**USER, "content": [{"type": "text"}]}], "missing_field",
                "[0].content[0].text"),
               ([{**USER, "content": [{"type": "tool_result",
                                       "tool_use_id": "t"}]}],
                "invalid_tool", "[0].content[0].tool_use_id"),
               ([{**USER, "content": [{"type": "text", "text": "a",
                                       "cache_control": {"type": "x"}}]}],
                "unsupported_value", "[0].content[0].cache_control.type"),
               ([{**USER, "content": [{"type": "text", "text": "a",
                                       "cache_control": {**PIN, "ttl": "1d"}}]}],
                "unsupported_value", "[0].content[0].cache_control.ttl"),
               ([{**USER, "content": 5 * [{"type": "text", "text": "a",
                                           "cache_control": PIN}]}],
                "unsupported_value", "[0].content[4].cache_control")],
              required=True),
        Field("system", "string array",
              ["", "s", [], [{"type": "text", "text": "s",
                              "cache_control": {**PIN, "ttl": "1h"}}]],
              [([{"type": "image"}], "unsupported_content", "[0].type"),
               ([1], "invalid_type", "[0]")]),
        Field("model", "string", ["x"]),
        Field("stop_sequences", "array", [[], ["x"] * 16],
              [(["x"] * 17, "out_of_range"), ([""], "out_of_range", "[0]"),
               ([1], "invalid_type", "[0]")]),
        number("temperature", 0, 1, [-0.01, 1.01]),
        number("top_p", 5e-324, 1, [0, 1.1]),
        integer("top_k", -1, 100, [-2]),
        Field("thinking", "object",
              [{"type": "disabled"}, {"type": "adaptive"},
               {"type": "enabled", "budget_tokens": 1}],
              [({}, "missing_field", ".type"),
               ({"type": 1}, "invalid_type", ".type"),
               ({"type": "x"}, "unsupported_value", ".type"),
               ({"type": "enabled"}, "missing_field", ".budget_tokens"),
               ({"type": "enabled", "budget_tokens": 0}, "out_of_range",
                ".budget_tokens"),
               ({"type": "disabled", "budget_tokens": 5}, "unsupported_value",
                ".budget_tokens")]),
        Field("output_config", "object", [{}, {"effort": "high"},
                                          {"effort": "max"}],
              [({"effort": "huge"}, "unsupported_value", ".effort"),
               ({"effort": 1}, "invalid_type", ".effort")]),
        Field("metadata", "object", [{}, {"user_id": "{\"a\":1}"},
                                     {"user_id": None}],
              [({"user_id": 1}, "invalid_type", ".user_id")]),
        Field("cache_control", "object", [PIN],
              [({"type": "x"}, "unsupported_value", ".type"),
               ({}, "missing_field", ".type")]),
        Field("service_tier", "string", ["auto"]),
        Field("mcp_servers", "array", [[]], [([{}], "unsupported_value")]),
        Field("container", "any", [], [("x", "unsupported_value")]),
        integer("seed", 0, MAX, [-1]),
        Field("cache_prompt", "bool", [True, False]),
        Field("cache_salt", "string", ["s"]),
        Field("keep_alive", "int string", [5], [("x", "out_of_range")]),
    ]
    if count:
        return rows
    return rows + [
        Field("stream", "bool", [False]),
        integer("max_tokens", 1, 2000, [0, -1], required=True),
        Field("max_tokens", "int", [], [(4090, "context_length_exceeded")],
              required=True)]


EMBED_ROWS = [
    Field("input", "string array", ["a", ["a"] * 3, [65], [[65], [66]]],
          [([], "out_of_range"), ("", "empty_prompt"),
           (["a", ""], "empty_prompt", "[1]"),
           ([[65], []], "empty_prompt", "[1]"),
           (["a", 1], "invalid_type", "[1]"), ([1, "a"], "invalid_type", "[1]"),
           ([True], "invalid_type", "[0]"), ([[1.5]], "invalid_type", "[0][0]"),
           ([65, 332], "out_of_range", "[1]"),
           ([[65, -1]], "out_of_range", "[0][1]"),
           (["a"] * 2049, "out_of_range"),
           ("x" * 300, "context_length_exceeded"),
           (["a", "x" * 300], "context_length_exceeded", "[1]")],
          required=True),
    Field("model", "string", ["x"]),
    Field("encoding_format", "string", ["float", "base64"],
          [("x", "unsupported_value"), ("", "unsupported_value")]),
    integer("dimensions", 1, 32, [0, -1, 33]),
    Field("normalize", "bool", [True, False]),
    Field("truncate", "bool", [True, False]),
    Field("instruction", "string", [], [("x", "unsupported_value")]),
    Field("user", "string", ["u"]),
]
TOKENIZE_ROWS = [
    Field("content", "string", ["", "a", "\0é"], required=True),
    *[Field(name, "bool", [True, False])
      for name in ("add_special", "parse_special", "with_pieces")],
    Field("model", "string", ["x"]),
]
DETOKENIZE_ROWS = [
    Field("tokens", "array", [[], [0, 331]],
          [([332], "out_of_range", "[0]"), ([1, -1], "out_of_range", "[1]"),
           (["1"], "invalid_type", "[0]"), ([1.5], "invalid_type", "[0]"),
           ([None], "invalid_type", "[0]"), ([2 ** 40], "out_of_range", "[0]")],
          required=True),
    Field("skip_special", "bool", [True, False]),
    Field("model", "string", ["x"]),
]
TEMPLATE_ROWS = [
    messages_row(),
    Field("chat_template_kwargs", "object", [{"a": 1}],
          [({"messages": 1}, "unsupported_value", ".messages")]),
    Field("add_generation_prompt", "bool", [True, False]),
    Field("continue_final_message", "bool", [False], [(True,
                                                       "unsupported_value")]),
    Field("model", "string", ["x"]),
]

# (route, the smallest body, rows, bodies whose fields do not go together: what
# is refused where)
ROUTES = [
    (CHAT, {"messages": [USER]}, CHAT_ROWS, [
        ({"max_tokens": 4, "max_completion_tokens": 5}, "unsupported_value",
         "max_tokens"),
        ({"max_tokens": 4, "n_predict": 5}, "unsupported_value", "n_predict"),
        ({"repeat_penalty": 1, "repetition_penalty": 2}, "unsupported_value",
         "repeat_penalty"),
        ({"stream_options": {}}, "unsupported_value", "stream_options"),
        ({"stream": False, "stream_options": {"include_usage": True}},
         "unsupported_value", "stream_options"),
        ({"return_progress": True}, "unsupported_value", "return_progress"),
        ({"top_logprobs": 1}, "unsupported_value", "top_logprobs"),
        ({"top_logprobs": 1, "logprobs": False}, "unsupported_value",
         "top_logprobs"),
        ({"min_tokens": 5, "max_tokens": 4}, "out_of_range", "min_tokens"),
        # The first fault in the order of kinds: types, ranges, combinations.
        ({"top_logprobs": 1, "n": 0, "stream": "x"}, "invalid_type", "stream"),
        ({"top_logprobs": 1, "n": 0}, "out_of_range", "n"),
    ]),
    (TEXT, {"prompt": "a"}, TEXT_ROWS, [
        ({"echo": True, "logprobs": 1, "stream": True}, "unsupported_value",
         "stream"),
        ({"best_of": 2}, "unsupported_value", "best_of"),
        ({"suffix": "x", "prompt": [65]}, "unsupported_value", "suffix"),
        ({"stream_options": {}}, "unsupported_value", "stream_options"),
    ]),
    (RESPONSES, {"input": "a"}, RESPONSE_ROWS, [
        ({"stream_options": {}}, "unsupported_value", "stream_options"),
    ]),
    (MESSAGES, {"max_tokens": 4, "messages": [USER]}, anthropic_rows(False), []),
    (COUNT, {"messages": [USER]}, anthropic_rows(True), []),
    (EMBED, {"input": "a"}, EMBED_ROWS, [
        ({"input": [65], "instruction": "x"}, "unsupported_value",
         "instruction"),
    ]),
    (TOKENIZE, {"content": "a"}, TOKENIZE_ROWS, []),
    (DETOKENIZE, {"tokens": [65]}, DETOKENIZE_ROWS, []),
    (TEMPLATE, {"messages": [USER]}, TEMPLATE_ROWS, []),
]
STATUS = {"response_not_found": 404}


class Client(Server):
    def __init__(self, model, *flags):
        super().__init__(QUERN, model, "--default-max-tokens", "4", *flags)
        self.bad = 0

    def fault(self, text):
        self.bad += 1
        print(f"FAILED {text}"[:600])

    def good(self, route, body, row=None):
        status, headers, text = self.post(route, body)
        if status != 200:
            self.fault(f"{route} {json.dumps(body)[:200]}: {status} {text}")
        elif row and row.name in (headers["X-Quern-Ignored"] or "").split(","):
            if row.name not in ("store", "verbosity", "keep_alive", "prompt_cache_options",
                                "reasoning_effort", "thinking",
                                "context_management"):
                self.fault(f"{route}: {row.name} is ignored")
        return text

    def refused(self, route, body, code, param):
        status, _, text = self.post(route, body)
        wanted = STATUS.get(code, 400)
        try:
            error = json.loads(text)["error"] or {}
        except (ValueError, KeyError):
            error = {}
        if route in (MESSAGES, COUNT):
            # The place begins the sentence; there is no code.
            found = error.get("message", "").startswith(param + ": ")
        else:
            found = (error.get("code"), error.get("param")) == (code, param)
        if status != wanted or not found:
            self.fault(f"{route} {json.dumps(body)[:200]}: expected {wanted} "
                       f"{code} at {param}, found {status} {text[:300]}")


def strip(text):
    """An answer without what differs between two of the same request."""
    value = json.loads(text)
    for key in ("id", "created", "created_at", "timings", "usage", "output"):
        value.pop(key, None)
    return value


def check_row(client, route, base, row):
    body = {**base, **row.needs}
    for value in row.good:
        client.good(route, {**body, row.name: value}, row)
    for value in row.wrong_types():
        client.refused(route, {**body, row.name: value}, "invalid_type",
                       row.name)
    for value, code, *place in row.bad:
        client.refused(route, {**body, row.name: value}, code,
                       row.name + "".join(place))
    if row.required:
        client.refused(route, {k: v for k, v in body.items() if k != row.name},
                       "missing_field", row.name)
        client.refused(route, {**body, row.name: None}, "missing_field",
                       row.name)
    elif not row.needs:
        same = {**body, "seed": 1} if route in (CHAT, TEXT, MESSAGES) and \
            row.name != "seed" else body
        absent, null = (client.good(route, b)
                        for b in (same, {**same, row.name: None}))
        if row.name != "seed" and route != RESPONSES and \
                strip(absent) != strip(null):
            client.fault(f"{route}: {row.name} null is not as absent")


def main():
    asked = bad = 0
    for model, flags, routes in [
            ("scripted", ["--ctx", "4096"], ROUTES[:5]),
            ("tiny", ["--pooling", "mean"], ROUTES[5:])]:
        with Client(os.path.join(models(ROOT), model), *flags) as client:
            for route, base, rows, pairs in routes:
                for row in rows:
                    check_row(client, route, base, row)
                for more, code, param in pairs:
                    client.refused(route, {**base, **more}, code, param)
        asked, bad = asked + client.asked, bad + client.bad
    print(f"{asked} requests, {bad} faults")
    return 1 if bad else 0


sys.exit(main())
