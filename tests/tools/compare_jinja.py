#!/usr/bin/env python3
"""Keeps tests/vectors/text/jinja.jsonl and chat.jsonl true to Jinja2.

Each line is {"template", "vars"} with what Jinja2 makes of it: "text", or
"error" with its message.  Lines with "differs" say why this engine gives
something else; their "text" or "error" is ours and is left alone.

chat.jsonl has what each template of text/chat, written in the style of a model
family, makes of each set of variables in text/chat/sets.json.

    compare_jinja.py            check every line; exit 1 when one is stale
    compare_jinja.py --update   write what Jinja2 says into the file

Needs jinja2 (3.1.6) and is no part of `make check`: the file is.  The
environment is that of chat templates: sandboxed, immutable, trim_blocks and
lstrip_blocks on, loop controls, the generation tag, and tojson as json.dumps.
"""

import json
import pathlib
import sys

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

VECTORS = pathlib.Path(__file__).parent.parent / "vectors/text/jinja.jsonl"
CHAT = VECTORS.parent / "chat"


class Generation(Extension):
    """{% generation %}: marks text, and renders it as it is."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_render")
        return nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def tojson(value, ensure_ascii=False, indent=None, separators=None,
           sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent,
                      separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise TemplateError(message)


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True,
        extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


def render(env, case):
    try:
        text = env.from_string(case["template"]).render(**case["vars"])
    except Exception as error:  # whatever Python raises is the expectation
        return {"error": str(error)}
    return {"text": text}


def chat_lines(env):
    """What chat.jsonl should be."""
    sets = json.loads((CHAT / "sets.json").read_text(encoding="utf-8"))
    for path in sorted(CHAT.glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        for name, variables in sets.items():
            row = {"template": path.stem, "set": name}
            try:
                row["text"] = env.from_string(source).render(**variables)
            except Exception as error:
                row["error"] = str(error)
                # Python's own sentences are not ours to repeat.
                row["own"] = type(error) is TemplateError
            yield json.dumps(row, ensure_ascii=False) + "\n"


def check_chat(env, update):
    wanted = list(chat_lines(env))
    path = CHAT.with_suffix(".jsonl")
    if update:
        path.write_text("".join(wanted), encoding="utf-8")
        return 0
    found = path.read_text(encoding="utf-8").splitlines(True)
    stale = sum(a != b for a, b in zip(wanted, found))
    stale += abs(len(wanted) - len(found))
    print(f"{len(wanted)} renderings of chat templates, {stale} stale")
    return stale


def main():
    env = environment()
    stale_chat = check_chat(env, "--update" in sys.argv[1:])
    lines, stale = [], 0
    for number, line in enumerate(VECTORS.open(encoding="utf-8"), 1):
        case = json.loads(line)
        if "differs" not in case:
            expected = render(env, case)
            found = {k: case.pop(k) for k in ("text", "error") if k in case}
            if found != expected:
                stale += 1
                print(f"line {number}: {case['template']!r}\n"
                      f"  the file says {found}\n  jinja2 says {expected}")
            case.update(expected)
        lines.append(json.dumps(case, ensure_ascii=False) + "\n")
    if "--update" in sys.argv[1:]:
        VECTORS.write_text("".join(lines), encoding="utf-8")
        return 0
    print(f"{len(lines)} templates, {stale} stale")
    return stale + stale_chat > 0


if __name__ == "__main__":
    sys.exit(main())
