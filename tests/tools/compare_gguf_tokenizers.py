#!/usr/bin/env python3
"""Compares the tokenizers that GGUF files describe with their originals.

    compare_gguf_tokenizers.py [--seed N] [--count N] [--cc CC] [NAME...]
    compare_gguf_tokenizers.py --update

Each kind of `tokenizer.ggml.model` is written with the package `gguf` from a
small trained model: `llama` and `t5` from SentencePiece, whose own ids are the
reference; `bert`, `gemma4` and `gpt2` from a tokenizer.json of the package
`tokenizers`.  Encoding, decoding and streaming must agree on random texts
(see compare_tokenizers.py).  Exits with 1 if something differs.

--update writes a small file of each kind and some texts into
tests/vectors/text/gguf, for `make check`.

Needs the packages of scripts/requirements.txt and a C compiler.
"""
import argparse
import io
import json
import pathlib
import random
import sys
import tempfile

import compare_tokenizers
import gguf
import make_tokenizers
import sentencepiece

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests/vectors/text/gguf"


# ---- SentencePiece ----

def train(small, **options):
    model = io.BytesIO()
    rules = pathlib.Path(tempfile.gettempdir()) / "quern-rules.tsv"
    if options.pop("rules", False):
        if small:
            make_tokenizers.small_rules(rules)
            options["normalization_rule_tsv"] = str(rules)
        else:
            options["normalization_rule_name"] = "nmt_nfkc"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(make_tokenizers.corpus()), model_writer=model,
        hard_vocab_limit=False, minloglevel=2, character_coverage=.995, **options)
    rules.unlink(missing_ok=True)
    return model.getvalue()


class Sentences:
    """A SentencePiece model as reference."""

    def __init__(self, name, model, bos, eos):
        self.model = model
        self.name, self.bos, self.eos = name, bos, eos
        self.p = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.vocab = [self.p.id_to_piece(i).replace("▁", " ")
                      for i in range(self.p.vocab_size())]
        self.added = [p for i, p in enumerate(self.vocab) if self.kind(i) == 4]

    def kind(self, i):
        p = self.p
        return (gguf.TokenType.UNKNOWN if p.is_unknown(i) else
                gguf.TokenType.CONTROL if p.is_control(i) else
                gguf.TokenType.BYTE if p.is_byte(i) else
                gguf.TokenType.USER_DEFINED
                if self.vocab[i].startswith("<user") else gguf.TokenType.NORMAL)

    def write(self, path, prefix):
        w = gguf.GGUFWriter(path, "llama")
        ids = range(self.p.vocab_size())
        w.add_tokenizer_model(self.name)
        w.add_token_list([self.p.id_to_piece(i).encode() for i in ids])
        w.add_token_scores([self.p.get_score(i) for i in ids])
        w.add_token_types([self.kind(i) for i in ids])
        w.add_unk_token_id(self.p.unk_id())
        w.add_bos_token_id(self.p.bos_id())
        w.add_eos_token_id(self.p.eos_id())
        w.add_add_space_prefix(prefix)
        charsmap = make_tokenizers.field(make_tokenizers.field(self.model, 3), 2)
        if charsmap:
            w.add_precompiled_charsmap(charsmap)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.close()

    def encode(self, text):
        return self.p.encode(text, add_bos=self.bos, add_eos=self.eos)

    def decode(self, ids):
        """None where it shows unknown tokens, which GGUF says are special."""
        return None if self.p.unk_id() in ids else self.p.decode(ids)

    def usable(self, text):
        """Where SentencePiece itself is the measure: no NUL, and nothing that
        looks like a token that only it or only GGUF finds in text."""
        return "\0" not in text and not any(
            piece in text for i, piece in enumerate(self.vocab) if self.kind(i) in (2, 3))


def llama(path, small=False):
    s = Sentences("llama", train(
        small, model_type="bpe", vocab_size=700, byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False,
        user_defined_symbols=["<user_1>", "<user>"]), True, False)
    s.write(path, True)
    return s


def gemma(path, small=False):
    s = Sentences("llama", train(
        small, model_type="bpe", vocab_size=700, byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False,
        add_dummy_prefix=False, user_defined_symbols=["<user_1>"]), True, False)
    s.write(path, False)
    return s


def t5(path, small=False):
    s = Sentences("t5", train(small, model_type="unigram", vocab_size=800,
                              rules=True), False, True)
    s.write(path, True)
    return s


# ---- tokenizer.json ----

class Package:
    """A tokenizer of the package `tokenizers` as reference."""

    def __init__(self, name):
        self.t = make_tokenizers.make(name)
        self.state = json.loads(self.t.to_str())
        self.vocab = sorted(self.t.get_vocab())
        self.added = [a["content"] for a in self.state["added_tokens"]]
        self.special = {a["id"] for a in self.state["added_tokens"] if a["special"]}

    def write(self, path, model, pre=None, spell=lambda piece: piece, **ids):
        w = gguf.GGUFWriter(path, "llama")
        pieces = sorted(self.t.get_vocab().items(), key=lambda item: item[1])
        assert [i for _, i in pieces] == list(range(len(pieces)))
        added = {a["id"] for a in self.state["added_tokens"]}
        w.add_tokenizer_model(model)
        if pre:
            w.add_tokenizer_pre(pre)
        w.add_token_list([(p if i in added else spell(p)).encode() for p, i in pieces])
        w.add_token_types([
            gguf.TokenType.CONTROL if i in self.special else
            gguf.TokenType.USER_DEFINED if i in added else
            gguf.TokenType.BYTE if p.startswith("<0x") and len(p) == 6
            else gguf.TokenType.NORMAL for p, i in pieces])
        if "merges" in self.state["model"]:
            w.add_token_merges([" ".join(m) for m in self.state["model"]["merges"]])
        for key, value in ids.items():
            w.add_uint32(f"tokenizer.ggml.{key}", value)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.close()

    def encode(self, text):
        return self.t.encode(text).ids

    def decode(self, ids):
        return self.t.decode(ids, skip_special_tokens=True)

    def usable(self, text):
        return True


def bert(path, small=False):
    p = Package("bert_uncased")
    p.write(path, "bert", unk_token_id=1, cls_token_id=2, sep_token_id=3,
            pad_token_id=0, spell=lambda piece: piece[2:] if piece.startswith("##")
            else "▁" + piece)
    # "▁##" and what "##" leaves are the same entry; texts have no such words.
    p.usable = lambda text: "#" not in text and "▁" not in text
    return p


def gemma4(path, small=False):
    p = Package("gemma")
    p.write(path, "gemma4", unk_token_id=0, bos_token_id=1, eos_token_id=2)
    return p


def byte_level(name, pre, **ids):
    def make(path, small=False):
        p = Package(name)
        p.t.normalizer = None  # GGUF files cannot name one
        p.write(path, "gpt2", pre, **ids)
        return p
    return make


KINDS = {"llama": llama, "gemma": gemma, "t5": t5, "bert": bert, "gemma4": gemma4,
         "gpt-2": byte_level("gpt2", "gpt-2"),
         "smollm": byte_level("smollm", "smollm"),
         "llama-bpe": byte_level("llama3", "llama-bpe", bos_token_id=0),
         "qwen2": byte_level("qwen2", "qwen2"),
         "qwen35": byte_level("qwen35", "qwen35"),
         "tekken": byte_level("tekken", "tekken"),
         "gpt-4o": byte_level("o200k", "gpt-4o")}


OLDER_TABLES = {"bert": {"BertNormalizer", "BertPreTokenizer"}}


def texts_of(reference, rng, count, path):
    without = compare_tokenizers.left_out_of(OLDER_TABLES.get(path.stem, set()))
    texts = []
    while len(texts) < count:
        text = compare_tokenizers.random_text(rng, reference.added,
                                              reference.vocab, without)
        if reference.usable(text):
            texts.append(text)
    return texts


def compare(program, path, reference, rng, count):
    texts = texts_of(reference, rng, count, path)
    records = [b"e 3 %d\n%s" % (len(t.encode()), t.encode()) for t in texts]
    wrong, lists = 0, []
    for text, line in zip(texts, compare_tokenizers.ask(program, path, records)):
        wanted = reference.encode(text)
        lists.append(wanted)
        if line != " ".join(map(str, wanted)):
            wrong += 1
            if wrong <= 5:
                print(f"encode {text!r}\n  wanted {wanted}\n  found  {line}")
    records = [b"d 1 %d %s\n" % (len(ids), " ".join(map(str, ids)).encode())
               for ids in lists]
    for ids, line in zip(lists, compare_tokenizers.ask(program, path, records)):
        text = reference.decode(ids)
        if text is not None and line != f"{text.encode().hex()} 1":
            wrong += 1
            if wrong <= 5:
                print(f"decode {ids}\n  wanted {text!r}\n  found  "
                      f"{bytes.fromhex(line.split()[0] if ' ' in line else '')}")
    print(f"{path.stem:12} {count} texts, {wrong} differences", flush=True)
    return wrong


def update(count=200, longest=60):
    FOLDER.mkdir(exist_ok=True)
    for name, make in KINDS.items():
        path = FOLDER / f"{name}.gguf"
        reference = make(path, True)
        rng = random.Random(name)
        with open(FOLDER / f"{name}.jsonl", "w") as out:
            for text in texts_of(reference, rng, count, path):
                begin = rng.randrange(max(1, len(text) - longest))
                text = text[begin:begin + longest]
                if not reference.usable(text):
                    continue
                ids = reference.encode(text)
                row = {"text": text, "ids": ids}
                plain = reference.decode(ids)
                if plain is None:
                    row["no_plain"] = True
                elif plain != text:
                    row["plain"] = plain
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
    if args.update:
        update()
        return
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        program = str(pathlib.Path(scratch) / "tokenize_records")
        compare_tokenizers.build(args.cc, program)
        for name in args.names or KINDS:
            path = pathlib.Path(scratch) / f"{name}.gguf"
            reference = KINDS[name](path)
            wrong += compare(program, path, reference, random.Random(args.seed),
                             args.count)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
