#!/usr/bin/env python3
"""Writes the synthetic models that the benches measure, and prints their paths.

    models.py [--dir FOLDER] [--only NAME,...] [--again] [--list]

The shape is that of Llama-3.2-1B: hidden 2048, 16 layers, 32 query and 8 key
heads of 64, feed-forward 8192, vocabulary 128256, one matrix for embedding
and output.  Every matrix of a file has the file's type:

    q4_0 q4_1 q8_0 q4_k q6_k    FOLDER/NAME.gguf
    mlx-4bit-g64                a directory: affine, 4 bits, groups of 64

Weights are random, of mean 0 and deviation 0.02, so that activations stay
finite; the same bytes each time.  Q4_0, Q4_1 and Q8_0 are normal numbers
quantized by the package gguf, which has no quantizer for the others: their
codes are random and their scales chosen.  Layouts are those of gguf 0.19.0
(gguf/quants.py) and of MLX 0.32.2's affine mode.

The vocabulary is the demo model's (scripts/fetch-model.sh), with tokens that
no text yields behind it.

Files are written a piece of a matrix at a time and take their name when
complete; one that exists is left alone without --again.  FOLDER is
~/.cache/quern/bench-models.  Runs in the environment of scripts/venv.sh.
Exit codes: 0; 2 usage; those of fetch-model.sh.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD = 2048, 16, 32, 8, 64
FFN, VOCABULARY, CONTEXT = 8192, 128256, 8192
ROPE_BASE, EPSILON = 500000.0, 1e-5
DEVIATION = 0.02
PIECE = 1 << 23  # elements made at a time
# Of the integers 0 to 15, and of -32 to 31, each as likely as the others.
DEVIATION_OF_4_BITS, DEVIATION_OF_6_BITS = 4.61, 18.47

GGUF_NAMES = ["q4_0", "q4_1", "q8_0", "q4_k", "q6_k"]
MLX_NAME = "mlx-4bit-g64"
GROUP = 64


def matrices(embedding, layer, names):
    """(name, rows, columns) of each matrix, in the order of the file."""
    yield embedding, VOCABULARY, HIDDEN
    shapes = [(HEADS * HEAD, HIDDEN), (KV_HEADS * HEAD, HIDDEN),
              (KV_HEADS * HEAD, HIDDEN), (HIDDEN, HEADS * HEAD),
              (FFN, HIDDEN), (FFN, HIDDEN), (HIDDEN, FFN)]
    for i in range(LAYERS):
        for name, shape in zip(names, shapes):
            yield layer.format(i) + name + ".weight", *shape


def norms(layer, names, last):
    for i in range(LAYERS):
        for name in names:
            yield layer.format(i) + name + ".weight"
    yield last


# ---- blocks ----


def half(values):
    """Float16 values as two bytes each."""
    return np.ascontiguousarray(values, "<f2").view(np.uint8)


def q4_k_blocks(rng, count):
    """Blocks of 256: d, dmin, eight 6-bit scales and minima in 12 bytes,
    codes.  With each minimum equal to its scale and dmin = 7.5 d the mean is
    0; scales are 32 to 63."""
    scales = rng.integers(32, 64, (count, 8), np.uint8)
    d = np.full((count, 1), DEVIATION / (47.5 * DEVIATION_OF_4_BITS))
    low, high = scales[:, :4], scales[:, 4:]
    first = low | (high >> 4) << 6
    third = (high & 15) | (high & 15) << 4
    codes = rng.integers(0, 256, (count, 128), np.uint8)
    return np.concatenate(
        [half(d), half(7.5 * d), first, first, third, codes], axis=1)


def q6_k_blocks(rng, count):
    """Blocks of 256: low four bits of the codes, high two, sixteen 8-bit
    scales (here 32 to 63, of either sign), d.  A code means itself - 32."""
    codes = rng.integers(0, 256, (count, 192), np.uint8)
    scales = rng.integers(32, 64, (count, 16), np.int8) \
        * rng.choice(np.array([-1, 1], np.int8), (count, 16))
    d = np.full((count, 1), DEVIATION / (47.5 * DEVIATION_OF_6_BITS))
    return np.concatenate([codes, scales.view(np.uint8), half(d)], axis=1)


BLOCKS = {"q4_k": q4_k_blocks, "q6_k": q6_k_blocks}


def packed_rows(name, kind, rng, rows, columns):
    """`rows` rows of random weights as the bytes of a GGUF file."""
    from gguf import quants
    if name in BLOCKS:
        return BLOCKS[name](rng, rows * columns // 256).reshape(rows, -1)
    values = rng.standard_normal((rows, columns), np.float32)
    values *= np.float32(DEVIATION)
    return quants.quantize(values, kind)


# ---- the tokenizer ----


def padding(first):
    return [f"<|unused_{i}|>" for i in range(first, VOCABULARY)]


class Tokenizer:
    def __init__(self, model):
        from gguf import GGUFReader
        fields = GGUFReader(model).fields

        def field(name):
            return fields["tokenizer." + name].contents()
        self.tokens = field("ggml.tokens")
        self.types = field("ggml.token_type")
        self.merges = field("ggml.merges")
        self.pre = field("ggml.pre")
        self.template = field("chat_template")
        self.ids = {name: field(f"ggml.{name}_token_id")
                    for name in ("bos", "eos", "unknown", "padding")}
        self.special = [i for i, t in enumerate(self.types) if t == 3]

    def gguf(self, writer):
        unused = padding(len(self.tokens))
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(self.pre)
        writer.add_token_list(self.tokens + unused)
        # 5: never read from text, never written.
        writer.add_token_types(self.types + [5] * len(unused))
        writer.add_token_merges(self.merges)
        writer.add_bos_token_id(self.ids["bos"])
        writer.add_eos_token_id(self.ids["eos"])
        writer.add_unk_token_id(self.ids["unknown"])
        writer.add_pad_token_id(self.ids["padding"])
        writer.add_add_bos_token(False)
        writer.add_add_space_prefix(False)
        writer.add_chat_template(self.template)

    def json(self):
        """As tokenizer.json, for the splitter `smollm`: digits alone, then
        the pattern of GPT-2."""
        if self.pre != "smollm":
            sys.exit(f"models: splitter '{self.pre}', expected 'smollm'")
        added = [{"id": i, "content": self.tokens[i], "single_word": False,
                  "lstrip": False, "rstrip": False, "normalized": False,
                  "special": True} for i in self.special]
        every = self.tokens + padding(len(self.tokens))
        byte_level = {"type": "ByteLevel", "add_prefix_space": False,
                      "trim_offsets": True, "use_regex": True}
        return {
            "version": "1.0", "truncation": None, "padding": None,
            "added_tokens": added, "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Digits", "individual_digits": True}, byte_level]},
            "post_processor": None, "decoder": byte_level,
            "model": {
                "type": "BPE", "dropout": None, "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None, "fuse_unk": False,
                "byte_fallback": False, "ignore_merges": False,
                "vocab": {t: i for i, t in enumerate(every)},
                "merges": self.merges}}


# ---- GGUF ----

GGUF_MATRICES = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate",
                 "ffn_up", "ffn_down"]


def describe(writer, kind):
    from gguf import LlamaFileType
    file_type = {"Q4_K": "MOSTLY_Q4_K_S"}.get(kind.name, "MOSTLY_" + kind.name)
    writer.add_name("quern bench 1B")
    writer.add_file_type(LlamaFileType[file_type])
    writer.add_quantization_version(2)
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HEAD)
    writer.add_rope_freq_base(ROPE_BASE)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_vocab_size(VOCABULARY)


class Pieces:
    """A matrix that is made while it is written: what GGUFWriter asks of a
    tensor."""

    def __init__(self, nbytes, rows, columns, make):
        self.nbytes, self.rows, self.make = nbytes, rows, make
        self.step = max(1, PIECE // columns)

    def tofile(self, file):
        for done in range(0, self.rows, self.step):
            self.make(min(self.step, self.rows - done)).tofile(file)


def write_gguf(name, path, tokenizer):
    import gguf
    kind = gguf.GGMLQuantizationType[name.upper()]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "llama")
    describe(writer, kind)
    tokenizer.gguf(writer)
    todo = []
    for tensor, rows, columns in matrices("token_embd.weight", "blk.{}.",
                                          GGUF_MATRICES):
        nbytes = rows * columns // elements * size
        writer.add_tensor_info(tensor, (rows, columns), np.dtype("f4"),
                               nbytes, kind)
        todo.append(Pieces(nbytes, rows, columns, lambda n, c=columns:
                           packed_rows(name, kind, rng, n, c)))
    for tensor in norms("blk.{}.", ["attn_norm", "ffn_norm"],
                        "output_norm.weight"):
        one = np.ones(HIDDEN, "<f4")
        writer.add_tensor_info(tensor, one.shape, one.dtype, one.nbytes)
        todo.append(one)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in todo:
        writer.write_tensor_data(tensor)
    writer.close()


# ---- MLX ----

MLX_MATRICES = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
                "mlp.down_proj"]


def mlx_tensors():
    """(name, dtype, shape, maker of rows) in the order of the file."""
    rng = np.random.default_rng(1)
    scale = DEVIATION / DEVIATION_OF_4_BITS

    def codes(rows, columns):
        return rng.integers(0, 1 << 32, (rows, columns // 8), np.uint32)

    def scales(rows, columns):
        # Of either sign and between 2/3 and 4/3 of the mean, as real ones.
        size = rng.uniform(2 / 3, 4 / 3, (rows, columns // GROUP)) * scale
        sign = rng.choice([-1.0, 1.0], size.shape)
        return (size * sign).astype("<f2")

    for name, rows, columns in matrices(
            "model.embed_tokens.weight", "model.layers.{}.", MLX_MATRICES):
        base = name.removesuffix(".weight")
        yield name, "U32", rows, columns // 8, lambda n, c=columns: codes(n, c)
        kept = []  # the biases follow from the scales
        yield (base + ".scales", "F16", rows, columns // GROUP,
               lambda n, c=columns, k=kept: k.append(scales(n, c)) or k[-1])
        yield (base + ".biases", "F16", rows, columns // GROUP,
               lambda n, k=kept: (k.pop(0).astype("f4") * -7.5).astype("<f2"))
    for name in norms("model.layers.{}.",
                      ["input_layernorm", "post_attention_layernorm"],
                      "model.norm.weight"):
        yield name, "F16", 1, HIDDEN, lambda n: np.ones(HIDDEN * n, "<f2")


def write_safetensors(path):
    header, at = {"__metadata__": {"format": "mlx"}}, 0
    todo = list(mlx_tensors())
    for name, dtype, rows, columns, _ in todo:
        size = rows * columns * (4 if dtype == "U32" else 2)
        shape = [columns] if rows == 1 else [rows, columns]
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, _, rows, columns, make in todo:
            step = max(1, PIECE // 8 // columns)
            for done in range(0, rows, step):
                make(min(step, rows - done)).tofile(file)


def mlx_config(ids):
    packing = {"group_size": GROUP, "bits": 4, "mode": "affine"}
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD, "intermediate_size": FFN,
        "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT,
        "rope_theta": ROPE_BASE, "rms_norm_eps": EPSILON,
        "hidden_act": "silu", "attention_bias": False, "mlp_bias": False,
        "tie_word_embeddings": True, "torch_dtype": "float16",
        "bos_token_id": ids["bos"], "eos_token_id": ids["eos"],
        "quantization": packing, "quantization_config": packing}


def write_mlx(folder, tokenizer):
    os.mkdir(folder)

    def save(name, value):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(value, file, ensure_ascii=False, indent=1)
    save("config.json", mlx_config(tokenizer.ids))
    save("tokenizer.json", tokenizer.json())
    save("tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokenizer.tokens[tokenizer.ids["bos"]],
        "eos_token": tokenizer.tokens[tokenizer.ids["eos"]],
        "chat_template": tokenizer.template})
    write_safetensors(os.path.join(folder, "model.safetensors"))


# ---- the folder ----


def cache_folder():
    cache = os.environ.get("XDG_CACHE_HOME") or \
        os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(cache, "quern", "bench-models")


def path_of(folder, name):
    return os.path.join(folder, name if name == MLX_NAME else name + ".gguf")


def remove(path):
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.remove(path)


def make(folder, name, tokenizer):
    path = path_of(folder, name)
    part = f"{path}.part{os.getpid()}"
    print(f"models: writing {path}", file=sys.stderr)
    try:
        if name == MLX_NAME:
            write_mlx(part, tokenizer)
        else:
            write_gguf(name, part, tokenizer)
        remove(path)
        os.rename(part, path)
    finally:
        remove(part)


def demo_model():
    script = os.path.join(HERE, "..", "scripts", "fetch-model.sh")
    done = subprocess.run([script], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout.strip()


def main():
    names = GGUF_NAMES + [MLX_NAME]
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0],
        epilog="names: " + " ".join(names))
    parser.add_argument("--dir", default=cache_folder())
    parser.add_argument("--only", default=",".join(names), metavar="NAME,...")
    parser.add_argument("--again", action="store_true",
                        help="write also what exists")
    parser.add_argument("--list", action="store_true",
                        help="print the paths, write nothing")
    args = parser.parse_args()
    wanted = [name.lower() for name in args.only.split(",")]
    for name in wanted:
        if name not in names:
            parser.error(f"--only: no model '{name}' ({', '.join(names)})")
    tokenizer = None
    for name in wanted:
        path = path_of(args.dir, name)
        if not args.list and (args.again or not os.path.exists(path)):
            tokenizer = tokenizer or Tokenizer(demo_model())
            os.makedirs(args.dir, exist_ok=True)
            make(args.dir, name, tokenizer)
        print(path)


if __name__ == "__main__":
    main()
