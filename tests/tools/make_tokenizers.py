#!/usr/bin/env python3
"""Makes one small tokenizer.json of each kind, trained on the text of this
repository, in the style of the model families that use the kind.

    make_tokenizers.py FOLDER [NAME...]

The files are what compare_tokenizers.py compares with; needs the packages
`tokenizers` and `sentencepiece` (whose normalization rules are the
charsmaps).  No part of `make check`.
"""
import base64
import io
import json
import pathlib
import sys
import tempfile
import unicodedata

import sentencepiece
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models,
                        normalizers, pre_tokenizers, processors, trainers)

ROOT = pathlib.Path(__file__).resolve().parents[2]
OTHER_TEXT = [
    "Der süße Bär aß 12 Äpfel für 3,50 €. Été déjà vu, naïve façade, Ωμέγα.",
    "Привет, как дела? Я читаю книгу о математике и физике.",
    "日本語のテキストを分割します。今日は天気がいいですね。", "中文分词测试，数字１２３和标点。",
    "한국어 문장을 나눕니다. 안녕하세요!", "मैं हिन्दी में लिख रहा हूँ।",
    "أنا أكتب باللغة العربية ١٢٣", "אני כותב בעברית", "ฉันเขียนภาษาไทย",
    "👍🏽 👩‍💻 🎉🎉 café ﬁne ½ Ⅷ ① ™ … “quoted” — dash", "DON'T I'm you're we'll HELLO'S it's",
    "x = foo(bar[1:2]) + 0x1F; // comment\n\tif (a != b) { return; }\r\n",
]
LETTERS = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*"
           r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s|[^\r\n\p{L}\p{N}]?"
           r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s|")
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = (CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES)
QWEN35 = (CONTRACTION + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|"
          r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + SPACES)
SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES
TEKKEN = LETTERS % ("", "") + r"\p{N}|" + SYMBOLS
O200K = (LETTERS % (CONTRACTION + "?", CONTRACTION + "?") + r"\p{N}{1,3}|" +
         SYMBOLS)


def corpus():
    files = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    lines = [line for file in files for line in file.read_text().splitlines()]
    return lines[:3000] + OTHER_TEXT * 20


# ---- byte-level BPE ----

def byte_level(pre, *, special=("<|endoftext|>",), normalizer=None, size=700,
               **options):
    t = Tokenizer(models.BPE(**options))
    t.pre_tokenizer = pre
    if normalizer:
        t.normalizer = normalizer
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(special), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def split(pattern, **options):
    return byte_level(pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
        **options)


def gpt2():
    return byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))


def roberta():
    t = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True),
                   special=["<s>", "<pad>", "</s>", "<unk>"])
    t.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return t


def llama3():
    t = split(LLAMA3, special=["<|begin_of_text|>", "<|eot_id|>"],
              ignore_merges=True)
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing("<|begin_of_text|> $A", None,
                                      [("<|begin_of_text|>", 0)])])
    return t


def qwen2():
    t = split(LLAMA3.replace("{1,3}", ""), normalizer=normalizers.NFC(),
              special=["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    t.add_tokens(["<tool_call>", "</tool_call>"])
    return t


def qwen35():
    return split(QWEN35, normalizer=normalizers.NFC(),
                 special=["<|im_start|>", "<|im_end|>"])


def tekken():
    return split(TEKKEN, special=["<s>", "</s>", "[INST]"], ignore_merges=True)


def o200k():
    return split(O200K, special=["<|start|>", "<|end|>", "<|message|>"])


def smollm():
    return byte_level(pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)]))


def several_splits():
    """In the style of DeepSeek: expressions one after the other."""
    patterns = [r"[\r\n]", r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆ]+",
                r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$",
                r"[一-龥ࠀ-一가-퟿]+"]
    return byte_level(pre_tokenizers.Sequence([
        *[pre_tokenizers.Split(Regex(p), "isolated") for p in patterns],
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
        special=["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"])


def bytes_normalized():
    """Bytes spelled by the normalizer, characters for the model."""
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.ByteLevel()])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=500, show_progress=False, max_token_length=12,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_special_tokens(["<|end|>"])
    return t


# ---- SentencePiece's BPE ----

SPM = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]


def characters_bpe(normalizer, pre, *, strip, words=True, special=SPM, size=900):
    """`words`: no token reaches over the start of a word, as in most models."""
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    t.normalizer = normalizer or normalizers.Sequence([])
    if words:
        t.pre_tokenizer = pre_tokenizers.Metaspace("▁", "never", split=True)
    elif pre:
        t.pre_tokenizer = pre
    t.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, show_progress=False,
        max_token_length=16, limit_alphabet=150))
    # The bytes are no added tokens, but plain entries.
    state = json.loads(t.to_str())
    state["added_tokens"] = [a for a in state["added_tokens"] if a["id"] < 3]
    state["pre_tokenizer"] = None
    t = Tokenizer.from_str(json.dumps(state))
    if pre:
        t.pre_tokenizer = pre
    end = [decoders.Strip(" ", 1, 0)] if strip else []
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "),
                                   decoders.ByteFallback(), decoders.Fuse(), *end])
    t.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", 1)])
    return t


def llama2():
    return characters_bpe(normalizers.Sequence([
        normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None, strip=True)


def mistral():
    return characters_bpe(None, pre_tokenizers.Metaspace("▁", "first", split=False),
                          strip=True, words=False)


def gemma():
    t = characters_bpe(normalizers.Replace(" ", "▁"),
                       pre_tokenizers.Split(" ", "merged_with_previous"), strip=False)
    t.add_tokens([AddedToken("<start_of_turn>", special=True, normalized=False),
                  AddedToken("\n\n", normalized=False)])
    return t


# ---- WordPiece, WordLevel ----

BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def bert(lowercase, strip=None):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    t.train_from_iterator(corpus(), trainers.WordPieceTrainer(
        vocab_size=1100, special_tokens=BERT, show_progress=False))
    return t


def bert_uncased():
    t = bert(True)
    t.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", None, [("[CLS]", 2), ("[SEP]", 3)])
    return t


def bert_cased():
    t = bert(False)
    t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    t.decoder = decoders.WordPiece(cleanup=False)
    return t


def word_level():
    t = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    t.normalizer = normalizers.Sequence([
        normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.train_from_iterator(corpus(), trainers.WordLevelTrainer(
        vocab_size=900, special_tokens=["[UNK]", "[PAD]"], show_progress=False))
    return t


# ---- words with affixes ----

def gpt1():
    t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    t.normalizer = normalizers.BertNormalizer(strip_accents=False)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.BPEDecoder("</w>")
    t.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=900, special_tokens=["<unk>"], end_of_word_suffix="</w>",
        show_progress=False))
    return t


def clip():
    t = Tokenizer(models.BPE(unk_token="<|endoftext|>", end_of_word_suffix="</w>",
                             continuing_subword_prefix=""))
    t.normalizer = normalizers.Sequence([
        normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "),
        normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(
            r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|"
            r"[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=900, special_tokens=["<|startoftext|>", "<|endoftext|>"],
        end_of_word_suffix="</w>", show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.post_processor = processors.RobertaProcessing(
        ("<|endoftext|>", 1), ("<|startoftext|>", 0), trim_offsets=False,
        add_prefix_space=False)
    return t


def classes():
    """Classes inside classes, intersections, scripts and long names."""
    return split(r"\p{Han}+|[\p{L}&&[^\p{Han}\p{Hiragana}]]+|[^\W\d_]+|"
                 r"[\p{Number}[%$]]+|[^\P{Punctuation}&&[^!]]|\s+|.")


def regex_decoder():
    """A decoder that replaces what an expression matches in each token."""
    t = characters_bpe(normalizers.Replace(" ", "▁"), None, strip=False)
    t.decoder = decoders.Sequence([
        decoders.Replace(Regex("[▁_]"), " "), decoders.Replace(Regex("(?<=x)|e+"), "·"),
        decoders.ByteFallback(), decoders.Fuse()])
    return t


def prefixed():
    t = Tokenizer(models.BPE(unk_token="<unk>", continuing_subword_prefix="##"))
    t.normalizer = normalizers.Sequence([
        normalizers.NFD(), normalizers.StripAccents(), normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.Digits(False),
        pre_tokenizers.WhitespaceSplit()])
    t.decoder = decoders.WordPiece()
    t.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=900, special_tokens=["<unk>"], continuing_subword_prefix="##",
        show_progress=False))
    return t


# ---- Unigram ----

def field(message, number):
    """The first length-delimited field `number` of a protobuf message."""
    def varint(at):
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value, at
    at = 0
    while at < len(message):
        key, at = varint(at)
        if key & 7 == 2:
            size, at = varint(at)
            if key >> 3 == number:
                return message[at:at + size]
            at += size
        elif key & 7 == 0:
            at = varint(at)[1]
        else:
            at += 4 if key & 7 == 5 else 8
    return b""


def small_rules(path):
    """Some of NFKC, enough to see that a tree is read as it should be."""
    ranges = [(0xa0, 0x180), (0x2000, 0x2030), (0x2100, 0x2130), (0x2150, 0x2190),
              (0x2460, 0x2480), (0x3000, 0x3010), (0xff01, 0xff60), (0xfb00, 0xfb07)]
    rows = {}
    for begin, end in ranges:
        for code in range(begin, end):
            c = chr(code)
            to = unicodedata.normalize("NFKC", c)
            if to != c:
                rows[c] = to
            parts = unicodedata.normalize("NFD", c)
            if parts != c and unicodedata.normalize("NFC", parts) == c:
                rows[parts] = to
    rows["\n"] = rows["\t"] = " "
    rows["\x7f"] = rows["\u200b"] = ""
    with open(path, "w") as out:
        for key, value in rows.items():
            out.write(" ".join("%X" % ord(c) for c in key) + "\t" +
                      " ".join("%X" % ord(c) for c in value) + "\n")


def charsmap(small):
    """The compiled rules, as SentencePiece writes them into a model."""
    if small not in charsmap.made:
        rules = pathlib.Path(tempfile.gettempdir()) / "quern-rules.tsv"
        options = {"normalization_rule_name": "nmt_nfkc"}
        if small:
            small_rules(rules)
            options = {"normalization_rule_tsv": str(rules)}
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(OTHER_TEXT * 20), model_writer=model,
            vocab_size=250, hard_vocab_limit=False, minloglevel=2, **options)
        rules.unlink(missing_ok=True)
        charsmap.made[small] = field(field(model.getvalue(), 3), 2)
    return charsmap.made[small]


charsmap.made = {}


def unigram(normalizer, pre, *, special, post=None, unk="<unk>", size=1000, **options):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizer
    t.pre_tokenizer = pre
    t.decoder = decoders.Metaspace()
    t.train_from_iterator(corpus(), trainers.UnigramTrainer(
        vocab_size=size, special_tokens=special, unk_token=unk, show_progress=False))
    if options:
        state = json.loads(t.to_str())
        state["model"].update(options)
        have = {piece for piece, _ in state["model"]["vocab"]}
        state["model"]["vocab"] += [[b, -20.0] for b in SPM[3:] if b not in have]
        t = Tokenizer.from_str(json.dumps(state))
    if post:
        t.post_processor = post
    return t


XLMR = ["<s>", "<pad>", "</s>", "<unk>"]


def xlmr(small=False):
    t = unigram(
        normalizers.Sequence([normalizers.Precompiled(charsmap(small)),
                              normalizers.Replace(Regex(" {2,}"), " ")]),
        pre_tokenizers.Metaspace(), special=XLMR,
        post=processors.TemplateProcessing("<s> $A </s>", None,
                                           [("<s>", 0), ("</s>", 2)]))
    t.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    return t


def xlmr_words(small=False):
    """The older form: white space is split off before."""
    return unigram(
        normalizers.Precompiled(charsmap(small)),
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(),
                                 pre_tokenizers.Metaspace()]), special=XLMR)


def t5(small=False):
    t = unigram(
        normalizers.Sequence([normalizers.Precompiled(charsmap(small)),
                              normalizers.Strip(False, True),
                              normalizers.Replace(Regex(" {2,}"), "▁")]),
        pre_tokenizers.Metaspace("▁", "always", split=True),
        special=["<pad>", "</s>", "<unk>"],
        post=processors.TemplateProcessing("$A </s>", None, [("</s>", 1)]))
    t.add_special_tokens([f"<extra_id_{n}>" for n in range(3)])
    return t


def albert(small=False):
    t = unigram(
        normalizers.Sequence([
            normalizers.Replace("``", '"'), normalizers.Replace("''", '"'),
            normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(),
            normalizers.Precompiled(charsmap(small)),
            normalizers.Replace(Regex(" {2,}"), " ")]),
        pre_tokenizers.Metaspace(), special=["<pad>", "<unk>", "[CLS]", "[SEP]"])
    t.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", None, [("[CLS]", 2), ("[SEP]", 3)])
    return t


def unigram_bytes():
    return unigram(
        normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(),
                              normalizers.Replace(Regex(" {2,}"), " ")]),
        pre_tokenizers.Metaspace("▁", "first", split=False),
        special=["<unk>", "<s>"], byte_fallback=True)


KINDS = {f.__name__: f for f in (
    gpt2, roberta, llama3, qwen2, qwen35, tekken, o200k, smollm, several_splits,
    bytes_normalized, llama2, mistral, gemma, bert_uncased, bert_cased, word_level,
    gpt1, clip, classes, regex_decoder, prefixed, xlmr, xlmr_words, t5, albert, unigram_bytes)}
WITH_RULES = {"xlmr", "xlmr_words", "t5", "albert"}


def make(name, small=False):
    """The kind's tokenizer; `small` cuts down its normalization rules."""
    return KINDS[name](small) if name in WITH_RULES else KINDS[name]()


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or KINDS:
        make(name).save(str(folder / f"{name}.json"), pretty=False)
        print(name)


if __name__ == "__main__":
    main()
