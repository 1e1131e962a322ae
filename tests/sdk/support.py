"""What the tests with OpenAI's and Anthropic's packages share: servers, models
that answer with known texts, and what is expected."""

import json
import os
import shutil
import subprocess

import anthropic
import openai

ASK = [{"role": "user", "content": "Hi"}]
MARKS = ["<think>", "</think>"]


def models(root):
    return os.path.join(root, "tests/vectors/cases/fixtures/models")


def edit(name, change):
    os.chmod(name, 0o644)
    with open(name, encoding="utf-8") as file:
        value = json.load(file)
    change(value)
    with open(name, "w", encoding="utf-8") as file:
        json.dump(value, file)


def scripted(root, folder, text, thoughts=None):
    """A model that answers with `text`, a token a byte; with `thoughts` before
    it where they are given."""
    shutil.copytree(os.path.join(models(root), "scripted"), folder)
    ids = list(text.encode())
    if thoughts is not None:
        ids = [332, *thoughts.encode(), 333, *ids]
        edit(os.path.join(folder, "tokenizer.json"), lambda t: [
            t["added_tokens"].append({
                "id": 332 + i, "content": mark, "special": True,
                "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False}) for i, mark in enumerate(MARKS)])
    edit(os.path.join(folder, "config.json"), lambda c: c.update(
        {"script_ids": ids, "vocab_size": 332 + 2 * (thoughts is not None)}))
    return folder


class Server:
    def __init__(self, program, model, *flags):
        reader, writer = os.pipe()
        self.process = subprocess.Popen(
            [program, "serve", *([model] if model else []), "--port", "0",
             "--ready-fd", str(writer), "-q", *flags], pass_fds=[writer], stdin=subprocess.DEVNULL)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            self.url = f"http://127.0.0.1:{int(pipe.read())}"

    def __enter__(self):
        return self

    def __exit__(self, *rest):
        self.process.terminate()
        assert self.process.wait(timeout=60) == 0

    def openai(self, key="key"):
        return openai.OpenAI(base_url=self.url + "/v1", api_key=key,
                             max_retries=0)

    def anthropic(self, key="key"):
        return anthropic.Anthropic(base_url=self.url, api_key=key,
                                   max_retries=0)


def raises(kind, call, code=None, param=None):
    try:
        call()
    except kind as error:
        if code:
            assert error.code == code, error.code
        if param:
            assert error.param == param, error.param
        return error
    raise AssertionError(f"no {kind.__name__}")
