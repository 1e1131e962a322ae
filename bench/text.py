#!/usr/bin/env python3
"""Tokenizers beside the Python package `tokenizers`, one thread each.

    text.py --build BUILD --model DEMO.gguf [--only NAME]

Rows: the demo model's own vocabulary as a tokenizer.json of 3.5 MB (loading,
encoding, a word of 1 MiB), and small trained ones of the other kinds
(encoding).  The text is mixed: prose, source, several scripts.  Exits with 1
where a row misses its limit: encoding 5 times the package's rate, loading in
a quarter of its time, the word within a second.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import gguf
from tokenizers import Tokenizer, decoders, pre_tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/tools"))
import make_tokenizers

TEXT_BYTES = 2_000_000
SMALL_KINDS = ("bert_uncased", "xlmr", "llama2", "o200k")


def mixed_text():
    """Half prose, a third source, the rest other scripts; always the same."""
    prose = [f.read_text() for f in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]]
    source = [f.read_text() for f in sorted((ROOT / "src/text").glob("*.c"))]
    other = "\n".join(make_tokenizers.OTHER_TEXT) * 20
    parts, size = [], 0
    while size < TEXT_BYTES:
        for piece in ("".join(prose)[:200000], "".join(source)[:130000], other):
            parts.append(piece)
            size += len(piece.encode())
    return "".join(parts)


def demo_tokenizer(model, path):
    """tokenizer.json of the demo model, from its GGUF file."""
    keys = gguf.GGUFReader(model).fields

    def texts(key):
        field = keys[f"tokenizer.ggml.{key}"]
        return [bytes(field.parts[i]).decode() for i in field.data]
    tokens, merges = texts("tokens"), texts("merges")
    types = [int(keys["tokenizer.ggml.token_type"].parts[i][0])
             for i in keys["tokenizer.ggml.token_type"].data]
    t = Tokenizer.from_str(json.dumps({
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [
            {"id": i, "content": token, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False, "special": True}
            for i, token in enumerate(tokens) if types[i] == 3],
        "normalizer": None, "pre_tokenizer": None, "post_processor": None,
        "decoder": None,
        "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(tokens)},
                  "merges": [m.split(" ") for m in merges]}}))
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    t.save(str(path), pretty=True)


def best(times, call):
    found = 1e9
    for _ in range(times):
        start = time.perf_counter()
        result = call()
        found = min(found, time.perf_counter() - start)
    return found, result


def row(name, path, text, program, loading):
    size = len(text.encode())
    text_file = path.with_suffix(".txt")
    text_file.write_text(text)
    lines = subprocess.run([program, str(path), str(text_file)], check=True,
                           capture_output=True, text=True).stdout.splitlines()
    ours = {key: float(value) for key, value in map(str.split, lines)}
    load, theirs = best(3, lambda: Tokenizer.from_file(str(path)))
    # In pieces, as a program would: the package slows down on one long text.
    pieces = [text[i:i + 20000] for i in range(0, len(text), 20000)]
    encode, _ = best(1, lambda: [theirs.encode(p, add_special_tokens=False) for p in pieces])
    rate = encode / ours["encode_s"]
    missed = rate < 5
    print(f"{name:14} encode {size / ours['encode_s'] / 1e6:7.1f} MB/s  "
          f"tokenizers {size / encode / 1e6:5.2f}  ratio {rate:5.1f} (5)", end="")
    if loading:
        part = ours["load_s"] / load
        missed |= part > .25 or ours["word_s"] > 1
        print(f"   load {path.stat().st_size / 1e6:.1f} MB {ours['load_s'] * 1e3:.1f} ms"
              f"  tokenizers {load * 1e3:.0f}  ratio {part:.2f} (0.25)"
              f"   1 MiB word {ours['word_s']:.2f} s (1)", end="")
    print("   MISSED" if missed else "", flush=True)
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--model", required=True)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    program = str(pathlib.Path(args.build) / "quern-bench-text")
    text, missed = mixed_text(), False
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("demo", *SMALL_KINDS):
            if args.only not in name:
                continue
            path = pathlib.Path(scratch) / f"{name}.json"
            if name == "demo":
                demo_tokenizer(args.model, path)
            else:
                make_tokenizers.make(name).save(str(path), pretty=False)
            missed |= row(name, path, text, program, name == "demo")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
