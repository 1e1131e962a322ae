#!/usr/bin/env python3
"""Checks real vocabularies against the ids that come with them.

    check_vocabularies.py [--cc CC] FOLDER

FOLDER has NAME.gguf with NAME.gguf.inp, texts between marker lines, and
NAME.gguf.out, a line of ids for each, as the folder `models` of llama.cpp's
sources does (bench/llama_source.sh fetches these).  Files whose splitter quern
refuses are listed and do not count.  Exits with 1 if ids differ.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import compare_tokenizers

MARKER = "\n__ggml_vocab_test__\n"


def check(program, path):
    """The number of texts whose ids differ, or None for a refused file."""
    texts = pathlib.Path(f"{path}.inp").read_bytes().decode().split(MARKER)
    lines = pathlib.Path(f"{path}.out").read_text().split("\n")
    wanted = [" ".join(line.split()) for line in lines]
    records = [b"e 0 %d\n%s" % (len(t.encode()), t.encode()) for t in texts]
    done = subprocess.run([program, str(path)], input=b"".join(records),
                          capture_output=True)
    if done.returncode:
        print(f"{path.name:32} {done.stderr.decode().strip().split(': ', 1)[-1]}")
        return None
    found = done.stdout.decode().splitlines()
    wrong = [t for t, a, b in zip(texts, wanted, found) if a != b]
    print(f"{path.name:32} {len(texts)} texts, {len(wrong)} differ")
    for text in wrong[:3]:
        print(f"  {text!r}")
    return len(wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--cc", default="cc")
    parser.add_argument("folder", type=pathlib.Path)
    args = parser.parse_args()
    files = [f for f in sorted(args.folder.glob("*.gguf"))
             if pathlib.Path(f"{f}.inp").exists()]
    with tempfile.TemporaryDirectory() as scratch:
        program = str(pathlib.Path(scratch) / "tokenize_records")
        compare_tokenizers.build(args.cc, program)
        wrong = [check(program, f) for f in files]
    if not files:
        sys.exit(f"{args.folder}: no vocabularies with texts and ids")
    sys.exit(1 if any(wrong) else 0)


if __name__ == "__main__":
    main()
