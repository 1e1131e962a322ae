#!/usr/bin/env python3
"""Compares this tokenizer with the Python package `tokenizers` on random text.

    compare_tokenizers.py [--seed N] [--count N] [--cc CC] FILE...
    compare_tokenizers.py [--seed N] [--count N] [--cc CC] --kinds [NAME...]
    compare_tokenizers.py --update [NAME...]

Each FILE is a tokenizer.json; with --kinds they are those that
make_tokenizers.py makes, all or the NAMEs.  Texts are random mixtures of what
tokenizers turn on (white space, contractions, digits, marks, added tokens,
vocabulary entries, long words, any code point of any plane), ids are those of
texts or random.  Encoding, decoding and streaming must agree.  Prints one row
for each file, the first differences, and exits with 1 if there are any.

Code points are those of Unicode 16.  Some components of the package have
older tables of their own (accents, punctuation, normal forms); for files
that use them, the code points on which these differ are left out, and the
row says how many they are.

--update writes tests/vectors/text/tokenizers: a small file of each kind, or of
the NAMEs, and some texts with what the package makes of them, for `make check`.

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
import unicodedata

import make_tokenizers
import unicodedata2
from tokenizers import Tokenizer, normalizers, pre_tokenizers

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


# ---- what the package's tables say ----

def differing(mine, theirs):
    return {c for c in ALL if mine(c) != theirs(c)}


def category_is(*wanted):
    return lambda c: unicodedata2.category(c).startswith(wanted)


def drops(normalizer):
    return lambda c: normalizer.normalize_str(f"a{c}b") == "ab"


def newer_than_14(c):
    return unicodedata.category(c) == "Cn"


def older_tables(name):
    """Code points on which a component does not follow Unicode 16."""
    if name not in older_tables.known:
        older_tables.known[name] = OLDER[name]()
    return older_tables.known[name]


older_tables.known = {}
ALL = [c for c in map(chr, range(0x110000))
       if unicodedata2.category(c) not in ("Cn", "Cs")]
ASCII_SYMBOLS = set("$+<=>^`|~")


def accents():
    bert = normalizers.BertNormalizer(
        clean_text=False, handle_chinese_chars=False, strip_accents=True,
        lowercase=False)
    return (differing(category_is("Mn"), drops(bert)) |
            differing(category_is("M"), drops(normalizers.StripAccents())) |
            {c for c in ALL if newer_than_14(c)})


def punctuation():
    cut = pre_tokenizers.Punctuation()
    is_punctuation = category_is("P")
    return differing(
        lambda c: is_punctuation(c) or c in ASCII_SYMBOLS,
        lambda c: len(cut.pre_tokenize_str(f"a{c}b")) == 3)


def normal_forms():
    found = accents()
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        package = getattr(normalizers, form)()
        found |= differing(lambda c: unicodedata2.normalize(form, c),
                           package.normalize_str)
    return found


def controls():
    bert = normalizers.BertNormalizer(
        handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return differing(
        lambda c: c not in "\t\n\r" and
        (unicodedata2.category(c)[0] == "C" or c in "\0\ufffd"), drops(bert))


OLDER = {"BertNormalizer": lambda: accents() | controls() | normal_forms(),
         "StripAccents": accents, "Punctuation": punctuation,
         "BertPreTokenizer": punctuation,
         **{form: normal_forms for form in ("NFC", "NFD", "NFKC", "NFKD")}}


def left_out(path):
    """The code points that texts for this file do not have."""
    names = set()

    def walk(value):
        if isinstance(value, dict):
            names.add(value.get("type"))
            value = [v for k, v in value.items() if k not in ("vocab", "merges")]
        for item in value if isinstance(value, list) else []:
            walk(item)
    walk(json.loads(pathlib.Path(path).read_text()))
    return left_out_of(names)


def left_out_of(names):
    """The same for components of these types."""
    return set().union(*(older_tables(n) for n in names if n in OLDER))


# ---- texts ----

def any_character(rng, without):
    """Planes and scripts alike: half of the time from the first one."""
    while True:
        c = rng.choice(ALL[:64000] if rng.random() < .5 else ALL)
        if c not in without:
            return c


def long_word(rng):
    kind = rng.random()
    if kind < .4:
        return rng.choice(ASCII + OTHERS) * rng.randrange(30, 300)
    letters = "abcdefghijklmnop" if kind < .7 else OTHERS
    return "".join(rng.choice(letters) for _ in range(rng.randrange(20, 200)))


def random_text(rng, added, vocab, without=frozenset()):
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
        elif kind < .925:
            parts.append(long_word(rng))
        else:
            parts.append(any_character(rng, without))
    return "".join(c for c in "".join(parts) if c not in without)


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
    without = left_out(path)
    texts = [random_text(rng, added, vocab, without) for _ in range(count)]
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
    print(f"{pathlib.Path(path).stem:18} {count} texts, {count} lists of ids, "
          f"{wrong} differences"
          + (f" ({len(without)} code points left out)" if without else ""),
          flush=True)
    return wrong


# ---- what is kept for `make check` ----

def update_vectors(names, count=300, longest=60):
    folder = ROOT / "tests/vectors/text/tokenizers"
    folder.mkdir(exist_ok=True)
    for name in names:
        path = folder / f"{name}.json"
        make_tokenizers.make(name, small=True).save(str(path), pretty=False)
        theirs = Tokenizer.from_file(str(path))
        rng = random.Random(name)
        added = [token["content"]
                 for token in json.loads(path.read_text())["added_tokens"]]
        vocab = sorted(theirs.get_vocab())
        without = left_out(path)
        with open(folder / f"{name}.jsonl", "w") as out:
            for _ in range(count):
                text = random_text(rng, added, vocab, without)
                begin = rng.randrange(max(1, len(text) - longest))
                text = text[begin:begin + longest]
                ids = theirs.encode(text).ids
                shown = theirs.decode(ids, skip_special_tokens=False)
                plain = theirs.decode(ids, skip_special_tokens=True)
                row = {"text": text, "ids": ids}
                if shown != text:
                    row["decoded"] = shown
                if plain != shown:
                    row["plain"] = plain
                out.write(json.dumps(row, ensure_ascii=False,
                                     separators=(",", ":")) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--kinds", action="store_true")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("files", nargs="*", metavar="FILE")
    args = parser.parse_args()
    if args.update:
        update_vectors(args.files or make_tokenizers.KINDS)
        return
    with tempfile.TemporaryDirectory() as scratch:
        files = args.files
        if args.kinds:
            files = []
            for name in args.files or make_tokenizers.KINDS:
                files.append(f"{scratch}/{name}.json")
                make_tokenizers.make(name).save(files[-1], pretty=False)
        program = str(pathlib.Path(scratch) / "tokenize_records")
        build(args.cc, program)
        wrong = sum(compare(program, path, random.Random(args.seed), args.count)
                    for path in files)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
