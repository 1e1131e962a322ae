"""A server for a test, and one connection to it."""

import http.client
import json
import os
import shutil
import subprocess


def models(root):
    return os.path.join(root, "tests/vectors/cases/fixtures/models")


def edit(name, change):
    os.chmod(name, 0o644)
    with open(name, encoding="utf-8") as file:
        value = json.load(file)
    change(value)
    with open(name, "w", encoding="utf-8") as file:
        json.dump(value, file)


def scripted(root, folder, ids, added=()):
    """A model that answers with tokens (a byte's id is the byte); the texts
    that are added are tokens from 332 on."""
    shutil.copytree(os.path.join(models(root), "scripted"), folder)
    edit(os.path.join(folder, "tokenizer.json"), lambda t: [
        t["added_tokens"].append({
            "id": 332 + i, "content": text, "special": True,
            "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False}) for i, text in enumerate(added)])
    edit(os.path.join(folder, "config.json"), lambda c: c.update(
        {"script_ids": list(ids), "vocab_size": 332 + len(added)}))
    return folder


class Server:
    def __init__(self, program, model, *flags):
        reader, writer = os.pipe()
        self.process = subprocess.Popen(
            [program, "serve", model, "--port", "0", "--ready-fd", str(writer),
             "-q", *flags], pass_fds=[writer], stdin=subprocess.DEVNULL)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            self.http = http.client.HTTPConnection("127.0.0.1",
                                                   int(pipe.read()), timeout=60)
        self.asked = 0

    def __enter__(self):
        return self

    def __exit__(self, *rest):
        self.http.close()
        self.process.terminate()
        assert self.process.wait(timeout=60) == 0

    def post(self, route, body):
        """Status, headers and body of the answer."""
        self.asked += 1
        self.http.request("POST", route, json.dumps(body),
                          {"Content-Type": "application/json"})
        answer = self.http.getresponse()
        return answer.status, answer.headers, answer.read()

    def ask(self, route, **body):
        """The answer's value; whatever was asked has to be good."""
        status, _, text = self.post(route, body)
        assert status == 200, f"{route} {body}: {status} {text}"
        return json.loads(text)
