"""Calls of functions in each format, as tests/text/test_tools.c replays them.

    make_tool_calls.py tests/vectors/text/tools.jsonl

Writes a line of JSON for each text: its format, and the calls that it has.
Needs mlx-lm (scripts/venv.sh --goldens); where that has a parser for the format, it
has to find the same calls.  Arguments are random, from a fixed seed.
"""

import importlib
import json
import random
import re
import sys

PARSERS = {"minimax_m2": "minimax_m2", "gemma4": "gemma4",
           "function_gemma": "function_gemma", "longcat": "longcat",
           "glm": "glm47", "pythonic": "pythonic", "qwen_xml": "qwen3_coder",
           "kimi_k2": "kimi_k2", "mistral": "mistral",
           "hermes_json": "json_tools", "minicpm_xml": "minicpm5"}
TYPES = {"path": "string", "text": "string", "count": "integer",
         "ratio": "number", "flag": "boolean", "list": "array",
         "deep": "object"}
TOOLS = [{"type": "function", "function": {
    "name": "edit", "parameters": {"type": "object", "properties": {
        k: {"type": t} for k, t in TYPES.items()}}}},
         {"type": "function", "function": {"name": "now", "parameters": {
             "type": "object", "properties": {}}}}]
WORDS = ["a", "Zürich", "日本", "😀", "x < y", "{b: 1}", "[2]", "\"q\"", "'s'",
         "\\n", "C:\\dir", "a\nb", "\tc\td", "<b>i</b>", "&amp;", "1, 2", "k=v",
         "null", "f(x)", "</", "}", "a:b", "100%", "\u2028", "--", "\\u00e9"]
RANDOM = random.Random(8)


def text():
    return RANDOM.choice(["", " "]).join(
        RANDOM.choice(WORDS) for _ in range(RANDOM.randint(1, 6))).strip()


def value(kind, depth=0):
    if kind == "string":
        return text()
    if kind == "integer":
        return RANDOM.choice([0, 7, -12, 2 ** 40])
    if kind == "number":
        return RANDOM.choice([0.5, -3.25, 1e-7, 12])
    if kind == "boolean":
        return RANDOM.random() < 0.5
    kinds = ["string", "integer", "number", "boolean"]
    if depth < 2:
        kinds += ["array", "object"]
    parts = [value(RANDOM.choice(kinds), depth + 1)
             for _ in range(RANDOM.randint(0, 3))]
    if kind == "array":
        return parts
    return {f"k{i}": part for i, part in enumerate(parts)}


def call(kinds):
    if RANDOM.random() < 0.15:
        return {"name": "now", "arguments": {}}
    keys = [k for k in kinds if RANDOM.random() < 0.7]
    return {"name": "edit", "arguments": {k: value(TYPES[k]) for k in keys}}


# ---- how each format writes them ----

def bare(v):
    return v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)


def gemma(v, quote):
    if isinstance(v, str):
        return quote + v + quote
    if isinstance(v, dict):
        return "{" + ",".join(f"{k}:{gemma(x, quote)}"
                              for k, x in v.items()) + "}"
    if isinstance(v, list):
        return "[" + ",".join(gemma(x, quote) for x in v) + "]"
    return json.dumps(v)


def tags(c, head, param, end, foot, wrap=bare):
    out = head % c["name"]
    for k, v in c["arguments"].items():
        out += param % k + wrap(v) + end
    return out + foot


def cdata(v):
    v = bare(v)
    return f"<![CDATA[{v}]]>" if re.search("[<&\n]", v) else v


def write(name, calls):
    dumped = [(c["name"], json.dumps(c["arguments"], ensure_ascii=False))
              for c in calls]
    if name == "minimax_m2":
        return "<minimax:tool_call>\n" + "\n".join(
            tags(c, '<invoke name="%s">\n', '<parameter name="%s">',
                 "</parameter>\n", "</invoke>") for c in calls) + \
            "\n</minimax:tool_call>"
    if name == "gemma4":
        return "".join(f"<|tool_call>call:{c['name']}"
                       f"{gemma(c['arguments'], '<|' + chr(34) + '|>')}"
                       "<tool_call|>" for c in calls)
    if name == "function_gemma":
        return "".join(f"<start_function_call>call:{c['name']}"
                       f"{gemma(c['arguments'], '<escape>')}"
                       "<end_function_call>" for c in calls)
    if name in ("glm", "longcat"):
        pre = "longcat_" if name == "longcat" else ""
        return "\n".join(
            tags(c, f"<{pre}tool_call>%s\n", f"<{pre}arg_key>%s</{pre}arg_key>"
                 f"\n<{pre}arg_value>", f"</{pre}arg_value>\n",
                 f"</{pre}tool_call>") for c in calls)
    if name == "pythonic":
        return "<|tool_call_start|>[" + ", ".join(
            c["name"] + "(" + ", ".join(
                f"{k}={v!r}" for k, v in c["arguments"].items()) + ")"
            for c in calls) + "]<|tool_call_end|>"
    if name == "qwen_xml":
        return "\n".join(
            tags(c, "<tool_call>\n<function=%s>\n", "<parameter=%s>\n",
                 "\n</parameter>\n", "</function>\n</tool_call>")
            for c in calls)
    if name == "minicpm_xml":
        return "".join(tags(c, '<function name="%s">', '<param name="%s">',
                            "</param>", "</function>", cdata) for c in calls)
    if name == "kimi_k2":
        return "<|tool_calls_section_begin|>" + "".join(
            f"<|tool_call_begin|>functions.{n}:{i}<|tool_call_argument_begin|>"
            f"{a}<|tool_call_end|>" for i, (n, a) in enumerate(dumped)) + \
            "<|tool_calls_section_end|>"
    if name == "mistral" and RANDOM.random() < 0.5:
        return "[TOOL_CALLS] " + json.dumps(calls)
    if name == "mistral":
        return "".join(f"[TOOL_CALLS]{n}[ARGS]{a}" for n, a in dumped)
    if name == "hermes_json":
        return "\n".join("<tool_call>\n" + json.dumps(c) + "\n</tool_call>"
                         for c in calls)
    if name == "llama3_json":
        return "; ".join(f'{{"name": "{n}", "parameters": {a}}}'
                         for n, a in dumped)
    return "".join(f"<|channel|>commentary to=functions.{n} <|constrain|>json"
                   f"<|message|>{a}<|call|>" for n, a in dumped)


# ---- what mlx-lm makes of it ----

def read(module, name, said):
    start, end = module.tool_call_start, module.tool_call_end
    found = []
    for part in said.split(start)[1:]:
        if end:
            part = part[:part.rindex(end)]
        if name == "mistral" and part.startswith(" "):
            part = part[1:]
        got = module.parse_tool_call(part, TOOLS)
        found += got if isinstance(got, list) else [got]
    return [{"name": c["name"], "arguments": c["arguments"]} for c in found]


def spoils(name, calls):
    """What the format, or mlx-lm's reader of it, can't have in an argument."""
    if name == "function_gemma":  # flat, and it reads up to the first brace
        return "}" in "".join(str(v) for c in calls
                              for v in c["arguments"].values())
    if name == "longcat":  # it wants arguments
        return not all(c["arguments"] for c in calls)
    if name == "qwen_xml":  # it takes the text for null
        return any(v == "null" for c in calls
                   for v in c["arguments"].values())
    return False


def main():
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        for name in [*PARSERS, "llama3_json", "harmony"]:
            module = None
            if name in PARSERS:
                module = importlib.import_module(
                    "mlx_lm.tool_parsers." + PARSERS[name])
            flat = name == "function_gemma"
            kinds = [k for k in TYPES if not flat or k not in ("list", "deep")]
            made = 0
            while made < 6:
                calls = [call(kinds) for _ in range(RANDOM.randint(1, 3))]
                if spoils(name, calls):
                    continue
                said = write(name, calls)
                if module:
                    found = read(module, name, said)
                    assert found == calls, (name, said, found, calls)
                out.write(json.dumps({"format": name, "text": said,
                                      "calls": calls}) + "\n")
                made += 1


main()
