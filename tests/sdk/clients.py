"""The packages of OpenAI and Anthropic as clients of quern serve.

    clients.py QUERN_TEST ROOT

QUERN_TEST is the program that plays scripts: answers are known texts.  The
blocks of Python in the pages about clients run, too.
"""

import contextlib
import io
import json
import os
import re
import shutil
import sys
import tempfile
import time

import anthropic
import openai

from support import ASK, Server, models, raises, scripted

QUERN, ROOT = sys.argv[1:]
TINY = os.path.join(models(ROOT), "tiny")
PAGES = ["client-openai.md", "client-anthropic.md"]
TESTS = []


def test(function):
    TESTS.append(function)
    return function


# ---- OpenAI ----

@test
def openai_chat(talk, _tiny):
    c = talk.openai()
    plain = c.chat.completions.create(model="m", messages=ASK, n=2,
                                      max_tokens=50, logprobs=True,
                                      top_logprobs=2)
    assert plain.choices[0].message.content == "Hello, you", plain
    assert plain.choices[1].finish_reason == "stop"
    assert len(plain.choices[0].logprobs.content[0].top_logprobs) == 2
    assert plain.usage.total_tokens == (plain.usage.prompt_tokens +
                                        plain.usage.completion_tokens)
    text, usage = "", None
    for chunk in c.chat.completions.create(
            model="m", messages=ASK, stream=True,
            stream_options={"include_usage": True}):
        usage = chunk.usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
    assert text == "Hello, you" and usage.completion_tokens == 11, (text, usage)
    with c.chat.completions.stream(model="m", messages=ASK) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == "Hello, you"
    cut = c.chat.completions.create(model="m", messages=ASK, stop="you")
    assert cut.choices[0].message.content == "Hello, "


@test
def openai_completions(talk, _tiny):
    c = talk.openai()
    made = c.completions.create(model="m", prompt=["a", "b"], max_tokens=5)
    assert [choice.text for choice in made.choices] == ["Hello", "Hello"]
    streamed = "".join(chunk.choices[0].text for chunk in c.completions.create(
        model="m", prompt="a", max_tokens=5, stream=True))
    assert streamed == "Hello"


@test
def openai_responses(talk, _tiny):
    c = talk.openai()
    first = c.responses.create(model="m", input="Hi", instructions="Be kind.",
                               metadata={"a": "b"})
    assert first.output_text == "Hello, you" and first.status == "completed"
    second = c.responses.create(model="m", input="And?",
                                previous_response_id=first.id)
    assert second.previous_response_id == first.id
    assert c.responses.retrieve(first.id).output_text == "Hello, you"
    types, text = [], ""
    for event in c.responses.create(model="m", input=ASK, stream=True):
        assert event.sequence_number == len(types)
        types.append(event.type)
        if event.type == "response.output_text.delta":
            text += event.delta
    assert text == "Hello, you", text
    assert types[:2] == ["response.created", "response.in_progress"], types
    assert types[-1] == "response.completed", types
    with c.responses.stream(model="m", input="Hi") as stream:
        assert stream.get_final_response().output_text == "Hello, you"
    c.responses.delete(first.id)
    raises(openai.NotFoundError, lambda: c.responses.retrieve(first.id),
           "response_not_found")


@test
def openai_embeddings(_talk, tiny):
    c = tiny.openai()
    # The package asks for base64 and decodes it.
    made = c.embeddings.create(model="m", input=["a", "b"], dimensions=8)
    plain = c.embeddings.create(model="m", input=["a", "b"], dimensions=8,
                                encoding_format="float")
    for x, y in zip(made.data, plain.data):
        assert len(x.embedding) == 8
        assert all(abs(p - q) < 1e-7 for p, q in zip(x.embedding, y.embedding))
    assert abs(sum(v * v for v in made.data[0].embedding) - 1) < 1e-5
    assert made.usage.total_tokens == plain.usage.total_tokens > 0


@test
def openai_errors(talk, tiny):
    c = talk.openai()

    def chat(client=c, **more):
        body = {"model": "m", "messages": ASK, **more}
        return client.chat.completions.create(**body)
    raises(openai.BadRequestError, lambda: chat(temperature=9),
           "out_of_range", "temperature")
    raises(openai.BadRequestError, lambda: chat(tools=[{
        "type": "function", "function": {"name": "f", "parameters": {}}}]),
           param="tools")
    assert chat(tools=[]).choices[0].message.content == "Hello, you"
    error = raises(openai.BadRequestError, lambda: chat(
        client=tiny.openai(), messages=[{"role": "user",
                                         "content": "word " * 400}]),
        "context_length_exceeded", "messages")
    assert error.status_code == 400 and error.request_id.startswith("req_")
    raises(openai.NotFoundError, lambda: c.models.retrieve("none"),
           "model_not_found")
    assert c.models.list().data[0].id == "talk"
    raises(openai.AuthenticationError, lambda: chat(talk.openai("wrong")),
           "invalid_api_key")


# ---- Anthropic ----

@test
def anthropic_messages(talk, _tiny):
    c = talk.anthropic()
    made = c.messages.create(model="m", max_tokens=50, messages=ASK,
                             system="Be kind.", extra_body={"temperature": 0},
                             thinking={"type": "disabled"},
                             metadata={"user_id": "u"})
    assert made.content[0].text == "Hello, you", made
    assert made.stop_reason == "end_turn" and made.usage.output_tokens == 11
    assert made._request_id.startswith("req_")  # pylint: disable=W0212
    cut = c.messages.create(model="m", max_tokens=50, messages=ASK,
                            stop_sequences=["you"])
    assert cut.stop_reason == "stop_sequence" and cut.stop_sequence == "you"
    short = c.messages.create(model="m", max_tokens=3, messages=ASK)
    assert short.stop_reason == "max_tokens"
    assert short.content[0].text == "Hel"
    # What came back is sent back.
    again = c.messages.create(model="m", max_tokens=9, messages=ASK + [
        {"role": "assistant", "content": made.content}, *ASK])
    assert again.usage.input_tokens + again.usage.cache_read_input_tokens > 20


@test
def anthropic_streams(talk, _tiny):
    c = talk.anthropic()
    with c.messages.stream(model="m", max_tokens=50, messages=ASK) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == final.content[0].text == "Hello, you", text
    assert final.stop_reason == "end_turn" and final.usage.output_tokens == 11
    types = [e.type for e in c.messages.create(
        model="m", max_tokens=50, messages=ASK, stream=True)]
    # The package keeps pings to itself.
    assert types[0] == "message_start" and types[-1] == "message_stop", types


@test
def anthropic_counts(talk, _tiny):
    c = talk.anthropic()
    system = [{"type": "text", "text": "Remember this. " * 10,
               "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
    counted = c.messages.count_tokens(model="m", messages=ASK, system=system)
    for _ in range(2):
        used = c.messages.create(model="m", max_tokens=1, messages=ASK,
                                 system=system).usage
        assert counted.input_tokens == (used.input_tokens +
                                        used.cache_creation_input_tokens +
                                        used.cache_read_input_tokens), used
    assert used.cache_read_input_tokens > 100, used


@test
def anthropic_errors(talk, _tiny):
    c = talk.anthropic()

    def ask(client=c, **more):
        body = {"model": "m", "max_tokens": 5, "messages": ASK, **more}
        return client.messages.create(**body)
    error = raises(anthropic.BadRequestError, lambda: ask(
        extra_body={"temperature": 1.5}))
    assert error.body["error"]["type"] == "invalid_request_error", error.body
    raises(anthropic.BadRequestError, lambda: ask(tools=[
        {"name": "f", "input_schema": {"type": "object"}}]))
    ask(tools=[])
    raises(anthropic.BadRequestError, lambda: ask(messages=[
        {"role": "user", "content": [{"type": "image", "source": {
            "type": "url", "url": "http://localhost/x"}}]}]))
    raises(anthropic.AuthenticationError, lambda: ask(talk.anthropic("wrong")))


# ---- calls of functions ----

WEATHER = {"name": "get_weather", "description": "The weather of a city.",
           "parameters": {"type": "object", "properties": {
               "city": {"type": "string"}}, "required": ["city"]}}
CALL = ('Wait.\n<tool_call>\n{"name": "get_weather", "arguments": '
        '{"city": "K\u00f6ln"}}\n</tool_call>')


@contextlib.contextmanager
def caller():
    with tempfile.TemporaryDirectory() as folder:
        model = scripted(ROOT, os.path.join(folder, "calls"), CALL)
        shutil.copy(os.path.join(models(ROOT), "../templates/tools.jinja"),
                    os.path.join(model, "chat_template.jinja"))
        with Server(QUERN, model, "--api-key", "key") as server:
            yield server


def is_whole(call):
    return (call.function.name == "get_weather" and
            json.loads(call.function.arguments) == {"city": "K\u00f6ln"})


@test
def openai_tools(talk, _tiny):
    tools = [{"type": "function", "function": WEATHER}]
    with caller() as server:
        c = server.openai()
        ask = {"model": "m", "messages": ASK, "tools": tools,
               "tool_choice": "auto", "max_tokens": 200}
        first = c.chat.completions.create(**ask).choices[0]
        assert first.finish_reason == "tool_calls", first
        assert first.message.content == "Wait.\n"
        assert is_whole(first.message.tool_calls[0]), first
        with c.chat.completions.stream(**ask) as stream:
            deltas = [e.arguments_delta for e in stream if
                      e.type == "tool_calls.function.arguments.delta"]
            last = stream.get_final_completion().choices[0]
        assert len(deltas) > 5 and is_whole(last.message.tool_calls[0]), deltas
        # The answer goes back, and the model gets it.
        history = ASK + [first.message, {
            "role": "tool", "content": "sunny",
            "tool_call_id": first.message.tool_calls[0].id}]
        again = c.chat.completions.create(
            **{**ask, "messages": history, "n": 2})
        ids = {t.id for a in again.choices for t in a.message.tool_calls}
        assert len(ids) == 2, ids
        assert again.usage.prompt_tokens > 40, again.usage
        raises(openai.BadRequestError, lambda: c.chat.completions.create(
            **{**ask, "tool_choice": "required"}), "unsupported_value",
            "tool_choice")
        raises(openai.BadRequestError, lambda: c.chat.completions.create(
            **{**ask, "messages": history[:1] + history[2:]}), "invalid_tool",
            "messages[1].tool_call_id")
    raises(openai.BadRequestError, lambda: talk.openai().chat.completions
           .create(**ask), "unsupported_value", "tools")


@test
def openai_responses_tools(_talk, _tiny):
    tools = [{"type": "function", "strict": False, **WEATHER}]
    with caller() as server:
        c = server.openai()
        ask = {"model": "m", "input": "Hi", "tools": tools,
               "max_output_tokens": 200}
        first = c.responses.create(**ask)
        kinds = [item.type for item in first.output]
        assert kinds == ["message", "function_call"], first
        call = first.output[1]
        assert json.loads(call.arguments) == {"city": "K\u00f6ln"}, call
        second = c.responses.create(
            **{**ask, "previous_response_id": first.id, "input": [{
                "type": "function_call_output", "call_id": call.call_id,
                "output": "sunny"}]})
        assert second.usage.input_tokens > first.usage.input_tokens + 40
        with c.responses.stream(**ask) as stream:
            types = [event.type for event in stream]
            final = stream.get_final_response()
        assert types.count("response.function_call_arguments.done") == 1, types
        assert json.loads(final.output[1].arguments) == {"city": "K\u00f6ln"}


@test
def anthropic_tools(_talk, _tiny):
    tools = [{"name": WEATHER["name"], "description": WEATHER["description"],
              "input_schema": WEATHER["parameters"],
              "cache_control": {"type": "ephemeral"}}]
    with caller() as server:
        c = server.anthropic()
        ask = {"model": "m", "max_tokens": 200, "tools": tools}
        first = c.messages.create(messages=ASK, **ask)
        assert first.stop_reason == "tool_use", first
        assert [b.type for b in first.content] == ["text", "tool_use"], first
        use = first.content[1]
        assert use.input == {"city": "K\u00f6ln"} and use.id[:6] == "toolu_"
        with c.messages.stream(messages=ASK, **ask) as stream:
            parts = [e.partial_json for e in stream if e.type == "input_json"]
            final = stream.get_final_message()
        assert len(parts) > 5 and final.content[1].input == use.input, parts
        history = ASK + [{"role": "assistant", "content": first.content}, {
            "role": "user", "content": [{
                "type": "tool_result", "tool_use_id": use.id,
                "content": "sunny"}]}]
        again = c.messages.create(messages=history, **ask)
        assert again.usage.cache_read_input_tokens > 0, again.usage
        counted = c.messages.count_tokens(model="m", messages=history,
                                          tools=tools)
        usage = again.usage
        assert counted.input_tokens == (
            usage.input_tokens + usage.cache_read_input_tokens +
            usage.cache_creation_input_tokens), (counted, usage)
        cut = c.messages.create(messages=ASK, **{**ask, "max_tokens": 66})
        assert cut.stop_reason == "max_tokens", cut
        assert cut.content[1].input == {"city": "K"}, cut


# ---- pages ----

def check_page(name, talk):
    """Each block of Python runs and prints what the block behind it shows."""
    with open(os.path.join(ROOT, "docs", name), encoding="utf-8") as file:
        page = file.read()
    blocks = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", page,
                        re.DOTALL)
    assert blocks, f"{name}: no Python"
    os.environ.update({"OPENAI_BASE_URL": talk.url + "/v1",
                       "OPENAI_API_KEY": "key", "ANTHROPIC_BASE_URL": talk.url,
                       "ANTHROPIC_API_KEY": "key"})
    for code, shown in blocks:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(code, {})  # pylint: disable=exec-used
        wanted = ".*".join(map(re.escape, shown.split("...")))
        said = said.getvalue().rstrip("\n") + "\n"
        assert re.fullmatch(wanted, said, re.DOTALL), \
            f"{name}: {code}prints {said}"


@test
def pages(talk, _tiny):
    for name in PAGES:
        check_page(name, talk)
    with caller() as server:
        check_page("tools.md", server)


# ---- several models ----

@test
def several_models(_talk, _tiny):
    with tempfile.TemporaryDirectory() as folder:
        fable = scripted(ROOT, os.path.join(folder, "fable"), "A fox")
        with Server(QUERN, None, "--model", f"tiny={TINY}", "--model",
                    f"fable={fable}", "--alias", "gpt-4o=fable", "--pooling",
                    "mean", "--api-key", "key") as s:
            c, a = s.openai(), s.anthropic()
            assert [m.id for m in c.models.list()] == ["tiny", "fable"]
            assert c.models.retrieve("gpt-4o").state == "unloaded"
            for name in ("fable", "gpt-4o"):
                r = c.chat.completions.create(model=name, messages=ASK)
                assert (r.model, r.choices[0].message.content) == \
                    ("fable", "A fox"), r
            text = "".join(
                chunk.choices[0].delta.content or ""
                for chunk in c.chat.completions.create(
                    model="fable", messages=ASK, stream=True))
            assert text == "A fox", text
            assert len(c.embeddings.create(
                model="tiny", input=["a", "b"]).data) == 2
            r = a.messages.create(model="fable", max_tokens=20, messages=ASK)
            assert (r.model, r.content[0].text) == ("fable", "A fox"), r
            first = c.responses.create(model="tiny", input="x",
                                       max_output_tokens=16)
            # A conversation may go on with another model.
            second = c.responses.create(model="fable", input="y",
                                        previous_response_id=first.id)
            assert second.output_text == "A fox", second
            for call in (
                    lambda: c.chat.completions.create(model="x", messages=ASK),
                    lambda: c.models.retrieve("x")):
                error = raises(openai.NotFoundError, call, "model_not_found",
                               "model")
                assert "'tiny', 'fable'" in str(error), error
            raises(anthropic.NotFoundError, lambda: a.messages.create(
                model="x", max_tokens=1, messages=ASK))
            # Keys of flags are not an administrator's.
            raises(openai.PermissionDeniedError, lambda: c.post(
                "/models/unload", body={"model": "tiny"}, cast_to=object),
                "admin_required")
            assert c.models.retrieve("tiny").state == "loaded"
            r = c.chat.completions.create(model="tiny", messages=ASK,
                                          max_tokens=1,
                                          extra_body={"keep_alive": 0})
            until = time.monotonic() + 30
            while c.models.retrieve("tiny").state != "unloaded":
                assert time.monotonic() < until
                time.sleep(0.01)


# ---- all ----

def main():
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        model = scripted(ROOT, os.path.join(folder, "talk"), "Hello, you")
        with Server(QUERN, model, "--api-key", "key") as talk, \
                Server(QUERN, TINY, "--api-key", "key", "--pooling", "mean") as tiny:
            for function in TESTS:
                began = time.monotonic()
                try:
                    function(talk, tiny)
                    print(f"{function.__name__}: "
                          f"{time.monotonic() - began:.1f} s", flush=True)
                except Exception as error:  # pylint: disable=broad-except
                    bad += 1
                    print(f"FAILED {function.__name__}: "
                          f"{type(error).__name__} {error}"[:1500])
    print(f"openai {openai.__version__}, anthropic {anthropic.__version__}: "
          f"{len(TESTS) - bad} passed, {bad} failed")
    return 1 if bad else 0


sys.exit(main())
