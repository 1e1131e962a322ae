"""The exception of OpenAI's and Anthropic's packages for each status, before
an answer and in the middle of one.

    errors.py QUERN_TEST ROOT
"""

import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import anthropic
import openai
from anthropic.types.shared import ErrorResponse
from openai.types.shared import ErrorObject

from support import ASK, Server, edit, raises, scripted

QUERN, ROOT = sys.argv[1:]
TESTS = []


def test(function):
    TESTS.append(function)
    return function


def model(folder, name, **settings):
    path = scripted(ROOT, os.path.join(folder, name), "Hello, you")
    edit(os.path.join(path, "config.json"), lambda c: c.update(settings))
    return path


def chat(client, **more):
    return client.chat.completions.create(model="m", messages=ASK, **more)


def message(client, **more):
    return client.messages.create(model="m", messages=ASK,
                                  **{"max_tokens": 50, **more})


def status(error, expected, kind=None):
    """The exception of this status, and a body as the package's types say."""
    assert error.status_code == expected, error
    if isinstance(error, openai.APIError):
        ErrorObject.model_validate(error.body, strict=True)
    elif kind and expected != 413:  # the package has no type for that one
        ErrorResponse.model_validate(error.body, strict=True)
        assert error.request_id == error.body["request_id"], error.body
    if kind:
        assert error.body["error"]["type"] == kind, error.body
    assert error.response.headers["X-Request-Id"].startswith("req_")


@test
def what_is_asked_wrongly(folder):
    keys = os.path.join(folder, "keys")
    with open(keys, "w", encoding="utf-8") as file:
        file.write("one:user\ntwo:boss:admin\n")
    os.chmod(keys, 0o600)
    with Server(QUERN, model(folder, "wrong"), "--api-key-file", keys,
                "--max-body", "4K", "--strict-model") as s:
        o, a = s.openai("user"), s.anthropic("user")
        large = [{"role": "user", "content": "x" * 5000}]
        absent = {"model": "none", "messages": ASK}
        for call, o_kind, a_kind, code in [
                (lambda c: c.post("/v1/cache/flush" if c is a
                                  else "/cache/flush", cast_to=object, body={}),
                 openai.PermissionDeniedError, anthropic.PermissionDeniedError,
                 403),
                (lambda c: c.get("/v1/messages" if c is a
                                 else "/chat/completions", cast_to=object),
                 openai.APIStatusError, anthropic.APIStatusError, 405),
                (lambda c: c.post("/none", cast_to=object, body={}),
                 openai.NotFoundError, anthropic.NotFoundError, 404)]:
            status(raises(o_kind, lambda: call(o)), code)
            status(raises(a_kind, lambda: call(a)), code)
        status(raises(openai.AuthenticationError, lambda: chat(s.openai("x"))),
               401)
        status(raises(anthropic.AuthenticationError,
                      lambda: message(s.anthropic("x"))), 401,
               "authentication_error")
        status(raises(openai.NotFoundError,
                      lambda: o.chat.completions.create(**absent),
                      "model_not_found", "model"), 404)
        status(raises(anthropic.NotFoundError, lambda: a.messages.create(
            max_tokens=1, **absent)), 404, "not_found_error")
        status(raises(openai.BadRequestError, lambda: chat(o, n=0),
                      "out_of_range", "n"), 400)
        status(raises(anthropic.BadRequestError,
                      lambda: message(a, max_tokens=0)), 400,
               "invalid_request_error")
        status(raises(openai.APIStatusError,
                      lambda: o.chat.completions.create(model="m",
                                                        messages=large),
                      "request_too_large"), 413)
        status(raises(anthropic.APIStatusError,
                      lambda: a.messages.create(model="m", max_tokens=1,
                                                messages=large)), 413,
               "request_too_large")
        status(raises(openai.APIStatusError, lambda: chat(
            o, extra_headers={"Content-Type": "text/plain"}),
            "unsupported_media_type"), 415)
        status(raises(openai.InternalServerError, lambda: o.post(
            "/models/load", cast_to=object, body={"model": "m"},
            options={"headers": {"Authorization": "Bearer boss"}}),
            "not_supported"), 501)


@test
def too_much_at_once(folder):
    slow = model(folder, "slow", delay_ms=100, script_ids=[65] * 2000)
    with Server(QUERN, slow, "--api-key", "a", "--key-parallel", "1") as s:
        with chat(s.openai("a"), stream=True) as held:
            next(iter(held))
            status(raises(openai.RateLimitError, lambda: chat(s.openai("a")),
                          "rate_limit_exceeded"), 429)
            status(raises(anthropic.RateLimitError,
                          lambda: message(s.anthropic("a"))), 429,
                   "rate_limit_error")
    with Server(QUERN, slow, "--parallel", "1", "--max-queue", "0") as s:
        with chat(s.openai(), stream=True) as held:
            next(iter(held))
            one = raises(openai.InternalServerError, lambda: chat(s.openai()),
                         "server_overloaded")
            status(one, 503)
            other = raises(anthropic.InternalServerError,
                           lambda: message(s.anthropic()))
            status(other, 529, "overloaded_error")
            for error in (one, other):
                after = error.response.headers["Retry-After"]
                assert 1 <= int(after) <= 60, after


def broken(stream, kind):
    """The text before the exception that ends a stream, and that."""
    found = []
    try:
        for event in stream:
            found.append(event)
    except kind as error:
        return found, error
    raise AssertionError(f"the stream ends well: {found[-1]}")


@test
def what_breaks(folder):
    with Server(QUERN, model(folder, "breaks", fail_at=3)) as s:
        o, a = s.openai(), s.anthropic()
        status(raises(openai.InternalServerError, lambda: chat(o)), 500)
        status(raises(openai.InternalServerError, lambda: chat(o, n=2)), 500)
        status(raises(openai.InternalServerError,
                      lambda: o.responses.create(model="m", input="a")), 500)
        status(raises(anthropic.InternalServerError, lambda: message(a)), 500,
               "api_error")
        chunks, error = broken(chat(o, stream=True), openai.APIError)
        assert error.code == "internal", error
        assert "".join(c.choices[0].delta.content or "" for c in chunks) in \
            "Hello", chunks
        _, error = broken(message(a, stream=True), anthropic.APIStatusError)
        assert error.body["error"]["type"] == "api_error", error.body
        events = list(o.responses.create(model="m", input="a", stream=True))
        assert events[-1].type == "response.failed", events[-1]
        assert events[-1].response.status == "failed"
        assert events[-1].response.error.message, events[-1]


@test
def what_takes_too_long(folder):
    slow = model(folder, "late", delay_ms=50, script_ids=[65] * 2000)
    with Server(QUERN, slow, "--request-timeout", "2s") as s, \
            ThreadPoolExecutor() as together:
        o, a = s.openai(), s.anthropic()
        waits = [together.submit(call) for call in (
            lambda: raises(openai.InternalServerError, lambda: chat(o),
                           "timeout"),
            lambda: raises(anthropic.InternalServerError, lambda: message(a)))]
        chunks, error = broken(chat(o, stream=True), openai.APIError)
        assert error.code == "timeout" and len(chunks) > 1, error
        status(waits[0].result(), 504)
        status(waits[1].result(), 504, "api_error")


def main():
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for function in TESTS:
            try:
                function(folder)
            except Exception as error:  # pylint: disable=broad-except
                bad += 1
                print(f"FAILED {function.__name__} "
                      f"({error.__traceback__.tb_next.tb_lineno}): "
                      f"{type(error).__name__} {error}"[:800])
    print(f"{len(TESTS)} tests, {bad} failed")
    return 1 if bad else 0


sys.exit(main())
