#!/usr/bin/env python3
"""Compares the splitters of GGUF files with the Python package `tokenizers`,
which is given the same expressions, on random text.

    compare_splitters.py [--seed N] [--count N] [--cc CC] [NAME...]
    compare_splitters.py --update

Pieces must be equal.  Prints one row for each rule, all or the NAMEs, the
first differences, and exits with 1 if there are any.  Rules without a function
of their own are run by PCRE2, so code points on which its older tables may
differ are left out of their texts.

--update writes tests/vectors/text/splitters.jsonl: some texts for each rule
with the pieces that the package makes, for `make check`.

Needs the packages of scripts/requirements.txt and a C compiler; no part of
`make check`.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

from compare_tokenizers import ALL, ROOT, build, newer_than_14, random_text
from tokenizers import Regex, pre_tokenizers

VECTORS = ROOT / "tests/vectors/text/splitters.jsonl"
# What the expressions of several families turn on.
PARTS = ["１２３", "٣٤٥٦", "1234567", "12345", "the 1000000 ", "漢字かな", "カナ한글ㄱㄴ",
         "ㄅㄆ", "！…“”", "<sentinel:12>", "IMGIMGABCZ", "    ", "  \t", "a.b,c!",
         "HelloWorld", "XMLParser's", "naïve", "ЖжΩω", "เลข", "ク゛", "々〇", "\n\n\n",
         "\r\n", " \n ", "//\n", "$x+=1`~|", "e\u0301t\u0323", "DON'T", "'LL", "don't",
         "x" * 40, " " * 70, "[a](b)", "foo_bar", "C++", "a b c d"]


def rules(program):
    lines = subprocess.run([program, "--rules"], check=True, capture_output=True)
    rows = (line.split("\t") for line in lines.stdout.decode().splitlines())
    return {name: patterns for name, *patterns in rows}


def reference(patterns):
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns])


def pieces(splitter, text):
    return [piece for piece, _ in splitter.pre_tokenize_str(text)]


def text_for(rng, without):
    text = random_text(rng, PARTS, PARTS, without)
    return "".join(c for c in text if c not in without)


def found(program, name, texts):
    records = [b"s %d\n%s" % (len(t.encode()), t.encode()) for t in texts]
    done = subprocess.run([program, "--rule", name], input=b"".join(records),
                          capture_output=True)
    if done.returncode:
        sys.exit(done.stderr.decode(errors="replace"))
    return done.stdout.decode().splitlines()


def compare(program, name, patterns, rng, count, without):
    splitter = reference(patterns)
    texts = [text_for(rng, without) for _ in range(count)]
    wrong = 0
    for text, line in zip(texts, found(program, name, texts)):
        wanted = pieces(splitter, text)
        if line != " ".join(str(len(p.encode())) for p in wanted):
            wrong += 1
            if wrong <= 5:
                print(f"{text!r}\n  wanted {wanted}\n  found  {line}")
    print(f"{name:16} {count} texts, {wrong} differences", flush=True)
    return wrong


def update(program, count=25, longest=50):
    with open(VECTORS, "w") as out:
        for name, patterns in rules(program).items():
            rng, splitter = random.Random(name), reference(patterns)
            without = {c for c in ALL if newer_than_14(c)}
            for _ in range(count):
                text = text_for(rng, without)
                begin = rng.randrange(max(1, len(text) - longest))
                text = text[begin:begin + longest]
                row = {"rule": name, "pieces": pieces(splitter, text)}
                out.write(json.dumps(row, ensure_ascii=False,
                                     separators=(",", ":")) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        program = str(pathlib.Path(scratch) / "tokenize_records")
        build(args.cc, program)
        if args.update:
            update(program)
            return
        known = rules(program)
        without = {c for c in ALL if newer_than_14(c)}
        wrong = sum(compare(program, name, known[name], random.Random(args.seed),
                            args.count, without)
                    for name in args.names or known)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
