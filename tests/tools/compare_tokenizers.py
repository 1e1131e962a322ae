#!/usr/bin/env python3
"""Compares this tokenizer with the Python package `tokenizers` on random text.

    compare_tokenizers.py [--seed N] [--count N] [--cc CC] FILE...

Each FILE is a tokenizer.json.  Texts are random mixtures of what tokenizers
turn on (white space, contractions, digits, marks, added tokens, vocabulary
entries, any code point), ids are those of texts or random.  Encoding,
decoding and streaming must agree.  Prints the first differences and exits
with 1 if there are any.

Code points that only one side's version of Unicode knows are expected to
differ: texts with code points that unicodedata does not know are not made.
Needs the package and a C compiler; no part of `make check`.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
ASCII = "".join(map(chr, range(33, 127)))
SPACES = " \t\n\r\v\f\u00a0\u1680\u2003\u2028\u202f\u3000\u0085\u180e\u200b\ufeff"
OTHERS = ("éüßñçÄÖ中文日本語한국어абвгдαβγאבأب١٢²½Ⅷ①ſKİıΣς👍🏽👩\u200d💻▁ĠĊ"
          "\u0301\u0308\u0323\u0327ﬁ\u1112\u1161\u11ab")
WORDS = ["'s", "'T", "'RE", "'ll", "'ſ", " the", " Hello", "world", "  ", "\n\n",
         "\r\n", "1234", "don't", "I'm", "HELLO", "<s>", "</s>", "<0x41>"]


def build(cc, out):
    sources = [str(ROOT / "tests/tools/tokenize_records.c")]
    for room in ("base", "text"):
        sources += map(str, sorted((ROOT / "src" / room).rglob("*.c")))
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "libutf8proc", "libpcre2-8"],
        check=True, capture_output=True, text=True).stdout.split()
    subprocess.run([cc, "-std=c11", "-D_GNU_SOURCE", '-DQUERN_VERSION="0"',
                    "-O2", f"-I{ROOT / 'src'}", "-o", out, *sources, *flags,
                    "-lpthread", "-lm"], check=True)


def any_character(rng):
    while True:
        c = chr(rng.randrange(0x110000))
        if unicodedata.category(c) not in ("Cn", "Cs"):
            return c


def random_text(rng, added, vocab):
    parts = []
    for _ in range(rng.choice([1, 2, 3, 5, 8, 20, 60])):
        kind = rng.random()
        if kind < .3:
            parts.append(rng.choice(ASCII) * rng.choice([1, 1, 1, 2, 5]))
        elif kind < .5:
            parts.append(rng.choice(SPACES) * rng.choice([1, 1, 2, 3]))
        elif kind < .6:
            parts.append(rng.choice(OTHERS))
        elif kind < .75:
            parts.append(rng.choice(WORDS))
        elif kind < .85 and added:
            parts.append(rng.choice(added))
        elif kind < .92:
            parts.append(rng.choice(vocab))
        else:
            parts.append(any_character(rng))
    return "".join(parts)


def ask(program, path, records):
    done = subprocess.run([program, path], input=b"".join(records),
                          capture_output=True)
    if done.returncode:
        sys.exit(done.stderr.decode(errors="replace"))
    return done.stdout.decode().splitlines()


def compare(program, path, rng, count):
    theirs = Tokenizer.from_file(path)
    added = [token["content"]
             for token in json.loads(pathlib.Path(path).read_text())["added_tokens"]]
    vocab = sorted(theirs.get_vocab())
    texts = [random_text(rng, added, vocab) for _ in range(count)]
    # 3: add special tokens and match them in the text, as the package does.
    records = [b"e 3 %d\n%s" % (len(t.encode()), t.encode()) for t in texts]
    wrong = 0
    for text, line in zip(texts, ask(program, path, records)):
        wanted = " ".join(map(str, theirs.encode(text).ids))
        if line != wanted:
            wrong += 1
            if wrong <= 5:
                print(f"encode {text!r}\n  wanted {wanted}\n  found  {line}")

    known = [i for i in range(max(theirs.get_vocab().values()) + 1)
             if theirs.id_to_token(i) is not None]
    lists = []
    for text in texts:
        size = rng.choice([0, 1, 2, 3, 5, 10, 30])
        ids = rng.choice([theirs.encode(text).ids[:200],
                          [rng.choice(known) for _ in range(size)],
                          [rng.choice(known[:300]) for _ in range(size)]])
        lists.append((rng.random() < .5, ids))
    records = [b"d %d %d %s\n" % (skip, len(ids), " ".join(map(str, ids)).encode())
               for skip, ids in lists]
    for (skip, ids), line in zip(lists, ask(program, path, records)):
        text = theirs.decode(ids, skip_special_tokens=skip)
        if line != f"{text.encode().hex()} 1":
            wrong += 1
            if wrong <= 5:
                print(f"decode {ids}, skip {skip}\n  wanted {text!r}\n  found  {line}")
    print(f"{path}: {2 * count} comparisons, {wrong} differences")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--cc", default="cc")
    parser.add_argument("files", nargs="+", metavar="FILE")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        program = str(pathlib.Path(scratch) / "tokenize_records")
        build(args.cc, program)
        wrong = sum(compare(program, path, random.Random(args.seed), args.count)
                    for path in args.files)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
