#!/usr/bin/env python3
"""Asks `quern fit` what the models of src/cli/offers.def take.

    make_offers.py [--quern PROGRAM] [--check]

Writes the headers of each model's files, as its config.json and quantization
make them (the weights are a hole in the file), and prints the rows of the
table: the reference, and the MiB that the model takes with a context of 8,192
tokens.  --check compares with the table instead, and exits with 1 where a row
is more than 3 % off.  No part of `make check`.
"""
import argparse
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = ROOT / "src/cli/offers.def"
TINY = ROOT / "tests/vectors/cases/fixtures/models/tiny"
CONTEXT = 8192


def qwen3(hidden, layers, heads, kv, ffn, tied, **more):
    return {"model_type": "qwen3", "hidden_size": hidden, "num_hidden_layers": layers,
            "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": 128,
            "intermediate_size": ffn, "vocab_size": 151936, "rope_theta": 1000000,
            "rms_norm_eps": 1e-6, "max_position_embeddings": 40960,
            "tie_word_embeddings": tied, **more}


def llama(hidden, layers, heads, kv, dim, ffn, vocab=128256):
    return {"model_type": "llama", "hidden_size": hidden, "num_hidden_layers": layers,
            "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": dim,
            "intermediate_size": ffn, "vocab_size": vocab, "rope_theta": 500000,
            "rms_norm_eps": 1e-5, "max_position_embeddings": 131072,
            "tie_word_embeddings": True}


# The largest first, as the table has them; bits 0: bfloat16.
MODELS = {
    "mlx-community/Qwen3-30B-A3B-4bit": (4, qwen3(
        2048, 48, 32, 4, 6144, False, model_type="qwen3_moe", num_experts=128,
        num_experts_per_tok=8, moe_intermediate_size=768, norm_topk_prob=True,
        decoder_sparse_step=1, mlp_only_layers=[])),
    "mlx-community/Qwen3-8B-4bit": (4, qwen3(4096, 36, 32, 8, 12288, False)),
    "mlx-community/Qwen3-4B-4bit": (4, qwen3(2560, 36, 32, 8, 9728, True)),
    "mlx-community/Llama-3.2-3B-Instruct-4bit": (4, llama(3072, 28, 24, 8, 128, 8192)),
    "mlx-community/Qwen3-1.7B-4bit": (4, qwen3(2048, 28, 16, 8, 6144, True)),
    "mlx-community/Qwen3-0.6B-4bit": (4, qwen3(1024, 28, 16, 8, 3072, True)),
    "mlx-community/Llama-3.2-1B-Instruct-4bit": (4, llama(2048, 16, 32, 8, 64, 8192)),
    "mlx-community/SmolLM2-135M-Instruct": (0, llama(576, 30, 9, 3, 64, 1536, 49152)),
}


def tensors(bits, c):
    """(name, dtype, shape) of everything."""
    def matrix(name, *shape):
        if not bits:
            return [(f"{name}.weight", "BF16", shape)]
        *rows, width = shape
        groups = (*rows, width // 64)
        return [(f"{name}.weight", "U32", (*rows, width * bits // 32)),
                (f"{name}.scales", "BF16", groups), (f"{name}.biases", "BF16", groups)]

    h, dim = c["hidden_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * dim, c["num_key_value_heads"] * dim
    yield from matrix("model.embed_tokens", c["vocab_size"], h)
    if not c["tie_word_embeddings"]:
        yield from matrix("lm_head", c["vocab_size"], h)
    yield "model.norm.weight", "BF16", (h,)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}"
        yield f"{p}.input_layernorm.weight", "BF16", (h,)
        yield f"{p}.post_attention_layernorm.weight", "BF16", (h,)
        for name, out in (("q", q), ("k", kv), ("v", kv)):
            yield from matrix(f"{p}.self_attn.{name}_proj", out, h)
        yield from matrix(f"{p}.self_attn.o_proj", h, q)
        if c["model_type"].startswith("qwen3"):
            yield f"{p}.self_attn.q_norm.weight", "BF16", (dim,)
            yield f"{p}.self_attn.k_norm.weight", "BF16", (dim,)
        lead, size, place = (), c["intermediate_size"], f"{p}.mlp"
        if "num_experts" in c:
            lead, size = (c["num_experts"],), c["moe_intermediate_size"]
            yield from matrix(f"{p}.mlp.gate", c["num_experts"], h)
            place = f"{p}.mlp.switch_mlp"
        for name, shape in (("gate", (size, h)), ("up", (size, h)), ("down", (h, size))):
            yield from matrix(f"{place}.{name}_proj", *lead, *shape)


def write(folder, bits, config):
    if bits:
        config = {**config, "quantization": {"group_size": 64, "bits": bits}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_bytes((TINY / "tokenizer.json").read_bytes())
    header, at = {}, 0
    for name, dtype, shape in tensors(bits, config):
        size = 4 if dtype == "U32" else 2
        for n in shape:
            size *= n
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        out.truncate(8 + len(text) + at)


def measure(quern, bits, config):
    with tempfile.TemporaryDirectory() as scratch:
        write(pathlib.Path(scratch), bits, config)
        done = subprocess.run(
            [quern, "fit", scratch, "--ctx", str(CONTEXT), "--cached", "--json",
             "--memory", "1000G"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    model = json.loads(done.stdout)["models"][0]
    return model["fit"]["required_bytes"] / 2**20


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quern", default=str(ROOT / "build/quern"))
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    rows = re.findall(r'QN_OFFER\("([^"]+)",\s*(\d+)\)', TABLE.read_text())
    wrong = [ref for ref, _ in rows] != list(MODELS)
    for ref, (bits, config) in MODELS.items():
        mib = measure(args.quern, bits, config)
        have = dict(rows).get(ref)
        off = not have or abs(mib / int(have) - 1) > .03
        wrong |= off
        if not args.check:
            print(f'QN_OFFER("{ref}", {mib:.0f})')
        elif off:
            print(f"{ref}: the table has {have}, fit says {mib:.0f}")
    sys.exit(1 if args.check and wrong else 0)


if __name__ == "__main__":
    main()
