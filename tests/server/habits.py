"""What programs that are known to talk to local servers send.

    habits.py QUERN_TEST ROOT

Each row is a request in the manner of one program, and which of its fields the
server lists as ignored; or the field that it refuses.  Sources: the programs'
issues about llama-server, vLLM, LM Studio and LiteLLM.
"""

import json
import os
import sys
import tempfile

from asking import Server, scripted

QUERN, ROOT = sys.argv[1:]
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
USER = {"role": "user", "content": "Hi"}


def text(words, **more):
    return {"type": "text", "text": words, **more}


def part(words, kind="input_text"):
    return {"type": kind, "text": words}


TOOL = {"name": "run", "description": "Runs.", "parameters": {
    "type": "object", "properties": {"command": {"type": "string"}},
    "required": ["command"], "additionalProperties": False}}
CALL = {"id": "call_1", "type": "function",
        "function": {"name": "run", "arguments": "{\"command\":\"ls\"}"}}
PIN = {"cache_control": {"type": "ephemeral"}}

# (program, route, body, ignored fields); an answer with a status other than 200
# has (status, field) instead of the list.
ROWS = [
    # Everything that a serializer with nulls writes.
    ("OpenAI SDK for .NET", CHAT, {
        "messages": [USER], "model": "m", "stream_options": None,
        "max_tokens": None, "max_completion_tokens": None, "stop": None,
        "temperature": None, "top_p": None, "n": None, "seed": None,
        "tools": None, "tool_choice": None, "parallel_tool_calls": None,
        "response_format": None, "logit_bias": None, "logprobs": None,
        "top_logprobs": None, "user": None, "functions": None,
        "function_call": None, "reasoning_effort": None, "modalities": None,
        "audio": None, "prediction": None, "metadata": None, "store": None,
        "service_tier": None, "web_search_options": None, "stream": None}, []),
    ("Open WebUI", CHAT, {
        "stream": True, "model": "m", "messages": [
            {"role": "system", "content": "Be kind."}, USER],
        "stream_options": {"include_usage": True},
        "metadata": {"task": "title_generation", "chat_id": "c"}}, []),
    ("Open WebUI, with options of Ollama", CHAT, {
        "messages": [USER], "num_ctx": 4096, "keep_alive": "5m",
        "options": {"num_predict": 5}, "think": False},
     ["keep_alive", "num_ctx", "options", "think"]),
    ("Continue", CHAT, {
        "messages": [{"role": "user", "content": [text("a"), text("b")]}],
        "model": "m", "max_tokens": 2048, "stream": True, "stop": None}, []),
    ("Continue, completion at the cursor", TEXT, {
        "prompt": "<fim_prefix>a", "max_tokens": 64, "temperature": 0.01,
        "stream": True, "stop": ["\n\n", "<|endoftext|>", "/src/",
                                 "#- coding: utf-8", "```"]}, []),
    ("aider", CHAT, {
        "model": "m", "temperature": 0, "stream": True, "messages": [
            {"role": "system", "content": [text("Act as.", **PIN)]},
            {"role": "user", "content": "I"},
            {"role": "assistant", "content": "Ok."},
            {"role": "user", "content": [text("Hi ", **PIN)]}]},
     ["messages[0].content[0].cache_control",
      "messages[3].content[0].cache_control"]),
    ("LangChain", CHAT, {
        "model": "m", "temperature": 0.7, "n": 1, "stream": False, "messages": [
            {"role": "system", "content": "s"}, USER,
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": "a  \n"}]},
     []),
    ("Vercel AI SDK", CHAT, {
        "model": "m", "messages": [
            {"role": "user", "content": [text("Hi")]},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_1",
             "content": "{\"type\":\"text\"}"}],
        "stream": True, "stream_options": {"include_usage": True},
        "tool_choice": "auto", "tools": [{"type": "function",
                                          "function": TOOL}]}, []),
    ("opencode", CHAT, {
        "model": "m", "max_tokens": 100, "messages": [
            {"role": "system", "content": "a"},
            {"role": "system", "content": "b"}, USER,
            {"role": "assistant", "content": [text("x")],
             "reasoning_content": "t"}, USER],
        "reasoning_effort": "medium", "stream": True}, ["reasoning_effort"]),
    ("LiteLLM", CHAT, {
        "model": "m", "messages": [USER], "user": "u", "extra_body": {},
        "safety_identifier": "s", "service_tier": "auto",
        "prompt_cache_key": "k", "prompt_cache_retention": "24h",
        "verbosity": "low", "top_k": 40, "min_p": 0.05, "stream": True,
        "stream_options": {"include_usage": True,
                           "include_obfuscation": False}},
     ["extra_body", "verbosity"]),
    ("vLLM's clients", CHAT, {
        "messages": [USER], "add_generation_prompt": True,
        "continue_final_message": False, "skip_special_tokens": True,
        "chat_template_kwargs": {"enable_thinking": False},
        "include_reasoning": True, "echo": False},
     ["add_generation_prompt", "echo", "include_reasoning",
      "skip_special_tokens"]),
    ("llama.cpp's page", CHAT, {
        "messages": [USER], "stream": True, "cache_prompt": True,
        "samplers": "edkypmxt", "temperature": 0.8, "dynatemp_range": 0,
        "dynatemp_exponent": 1, "top_k": 40, "top_p": 0.95, "min_p": 0.05,
        "typical_p": 1, "xtc_probability": 0, "xtc_threshold": 0.1,
        "repeat_last_n": 64, "repeat_penalty": 1, "presence_penalty": 0,
        "frequency_penalty": 0, "dry_multiplier": 0, "dry_base": 1.75,
        "dry_allowed_length": 2, "dry_penalty_last_n": -1, "max_tokens": 20,
        "timings_per_token": False, "return_progress": True}, None),
    ("lm-evaluation-harness", TEXT, {
        "prompt": [[72, 105, 33], [72, 105]], "model": "m", "temperature": 0,
        "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True}, []),
    ("a program with pictures", CHAT, {"messages": [
        {"role": "user", "content": [text("What?"), {
            "type": "image_url", "image_url": {"url": "data:image/png,x"}}]}]},
     (400, "messages[0].content[1].type")),
    ("Codex CLI", RESPONSES, {
        "model": "m", "instructions": "You are.", "input": [
            {"type": "message", "role": "developer", "content": [part("d")]},
            {"type": "message", "role": "user", "content": [part("u")]},
            {"type": "reasoning", "summary": [part("t", "summary_text")],
             "content": None, "encrypted_content": None},
            {"type": "function_call", "name": "run", "arguments": "{}",
             "call_id": "c"},
            {"type": "function_call_output", "call_id": "c",
             "output": "Exit code: 0\n"},
            {"type": "message", "role": "assistant",
             "content": [part("Done.", "output_text")]},
            {"role": "user", "content": [part("u")]}],
        "tools": [], "tool_choice": "auto", "parallel_tool_calls": False,
        "reasoning": {"effort": "medium", "summary": "auto"}, "store": False,
        "stream": True, "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "0199", "text": {"verbosity": "medium"},
        "service_tier": "priority", "client_metadata": {"a": "b"}},
     ["client_metadata", "include[0]", "reasoning.effort", "text.verbosity"]),
    ("OpenAI's agents", RESPONSES, {
        "model": "m", "input": [{"role": "user", "content": "Hi"}],
        "include": [], "tools": [], "truncation": None, "metadata": None,
        "previous_response_id": None, "conversation": None, "prompt": None,
        "max_output_tokens": None, "top_logprobs": None, "background": False,
        "tool_choice": "none", "stream": False}, []),
    ("a program that wants its prompt cut", RESPONSES, {
        "input": "a", "truncation": "auto"}, (400, "truncation")),
    ("Claude Code", MESSAGES + "?beta=true", {
        "model": "claude", "max_tokens": 100, "temperature": 1, "stream": True,
        "metadata": {"user_id": "{\"device_id\":\"d\",\"session_id\":\"s\"}"},
        "system": [text("x-header: v"), text("You are.", **PIN),
                   text("And you are.", cache_control={"type": "ephemeral",
                                                       "ttl": "1h"})],
        "messages": [
            {"role": "user", "content": [text("<reminder/>"),
                                         text("Hi", **PIN)]},
            {"role": "system", "content": "Agents: none."},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "t", "signature": ""},
                {"type": "tool_use", "id": "toolu_1", "name": "run",
                 "input": {"command": "ls"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1",
                 "content": [text("a")], "is_error": False},
                text("go on", **PIN)]}],
        "tools": [{"name": "run", "description": "Runs.",
                   "input_schema": TOOL["parameters"]}],
        "thinking": {"type": "adaptive"}, "output_config": {"effort": "xhigh"},
        "context_management": {"edits": [{"type": "clear"}]}},
     ["context_management", "output_config.effort", "thinking"]),
    ("Claude Code, counting", MESSAGES + "/count_tokens?beta=true", {
        "model": "claude", "messages": [{"role": "user", "content": "foo"}],
        "tools": [{"name": "run", "input_schema": TOOL["parameters"]}],
        "thinking": {"type": "enabled", "budget_tokens": 1024}}, ["thinking"]),
    ("Anthropic's package, beta", MESSAGES + "?beta=true", {
        "max_tokens": 5, "messages": [USER], "betas": ["a-2025"],
        "service_tier": "standard_only", "stop_sequences": [], "tools": []},
     ["betas"]),
]
HEADERS = {"anthropic-version": "2023-06-01", "anthropic-beta": "a,b,c",
           "x-api-key": "none", "x-stainless-lang": "js", "x-app": "cli",
           "user-agent": "test", "Authorization": "Bearer none"}


def check(server, name, route, body, expected):
    server.http.request("POST", route, json.dumps(body),
                        {"Content-Type": "application/json; charset=utf-8",
                         **HEADERS})
    answer = server.http.getresponse()
    data = answer.read()
    if isinstance(expected, tuple):
        status, field = expected
        assert (answer.status, json.loads(data)["error"]["param"]) == \
            expected, f"{status} {field}: {answer.status} {data[:300]}"
        return
    assert answer.status == 200, f"{answer.status} {data[:300]}"
    ignored = sorted(filter(None, (answer.headers["X-Quern-Ignored"] or "")
                            .split(",")))
    assert expected is None or ignored == sorted(expected), ignored
    kind = "text/event-stream" if body.get("stream") else "application/json"
    assert answer.headers["Content-Type"] == kind, answer.headers


def around(server):
    """What such programs ask besides."""
    for method, path, status in [
            ("GET", "/v1/models", 200), ("HEAD", "/v1/models", 200),
            ("GET", "/v1/models?client_version=0.1", 200),
            ("GET", "/v1/models/talk", 200), ("GET", "/health", 200),
            ("OPTIONS", "/v1/chat/completions", 204), ("HEAD", "/", 200),
            ("GET", "/api/tags", 404), ("GET", "/props", 404),
            ("POST", "/api/show", 404), ("GET", "/v1/chat/completions", 405),
            ("POST", "/api/event_logging/batch", 404)]:
        server.http.request(method, path, headers=HEADERS,
                            body="{}" if method == "POST" else None)
        answer = server.http.getresponse()
        data = answer.read()
        assert answer.status == status, (method, path, answer.status, data)
        if status in (404, 405):
            json.loads(data)


def main():
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        model = scripted(ROOT, os.path.join(folder, "talk"), b"Hello, you")
        with Server(QUERN, model, "--tool-format", "hermes_json") as server:
            for name, route, body, expected in ROWS:
                try:
                    check(server, name, route, body, expected)
                except Exception as error:  # pylint: disable=broad-except
                    bad += 1
                    print(f"FAILED {name}: {type(error).__name__} {error}")
            around(server)
    print(f"{len(ROWS)} requests, {bad} failed")
    return 1 if bad else 0


sys.exit(main())
