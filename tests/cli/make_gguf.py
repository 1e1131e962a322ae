"""Writes a model directory of the llama family as a GGUF file.

    make_gguf.py DIRECTORY FILE [KEY=VALUE]...

All tensors are F32.  KEY=VALUE adds a text, or replaces or (empty) removes
what would be written under the key: `general.architecture=foo`.
"""

import json
import os
import struct
import sys

U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5
NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def text(value):
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def value_of(kind, value):
    if kind == STRING:
        return text(value)
    if kind == ARRAY:
        item, items = value
        return struct.pack("<IQ", item, len(items)) + b"".join(
            value_of(item, x) for x in items)
    return struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind],
                       value)


def read_safetensors(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        data = file.read()
    header.pop("__metadata__", None)
    return {name: (t["shape"], data[slice(*t["data_offsets"])])
            for name, t in header.items()}


def interleave(rows, heads):
    """Rows of each head from halves to adjacent pairs, as the format has
    them."""
    size = len(rows) // heads
    return [rows[h * size + (i % 2) * (size // 2) + i // 2]
            for h in range(heads) for i in range(size)]


def main():
    folder, path, *changes = sys.argv[1:]
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as file:
        tokenizer = json.load(file)
    tokens = {i: (t, 1) for t, i in tokenizer["model"]["vocab"].items()}
    for t in tokenizer["added_tokens"]:
        tokens[t["id"]] = (t["content"], 3)
    tokens = [tokens[i] for i in range(len(tokens))]
    merges = [m if isinstance(m, str) else " ".join(m)
              for m in tokenizer["model"]["merges"]]
    with open(os.path.join(folder, "tokenizer_config.json"),
              encoding="utf-8") as file:
        template = json.load(file)["chat_template"]
    keys = {
        "general.architecture": (STRING, "llama"),
        "llama.context_length": (U32, config["max_position_embeddings"]),
        "llama.embedding_length": (U32, config["hidden_size"]),
        "llama.block_count": (U32, config["num_hidden_layers"]),
        "llama.feed_forward_length": (U32, config["intermediate_size"]),
        "llama.attention.head_count": (U32, config["num_attention_heads"]),
        "llama.attention.head_count_kv": (U32, config["num_key_value_heads"]),
        "llama.attention.layer_norm_rms_epsilon": (F32, config["rms_norm_eps"]),
        "llama.rope.freq_base": (F32, config["rope_theta"]),
        "llama.rope.dimension_count": (U32, config["head_dim"]),
        "tokenizer.ggml.model": (STRING, "gpt2"),
        "tokenizer.ggml.pre": (STRING, "gpt-2"),
        "tokenizer.ggml.tokens": (ARRAY, (STRING, [t for t, _ in tokens])),
        "tokenizer.ggml.token_type": (ARRAY, (I32, [k for _, k in tokens])),
        "tokenizer.ggml.merges": (ARRAY, (STRING, merges)),
        "tokenizer.ggml.eos_token_id": (U32, config["eos_token_id"][0]),
        "tokenizer.ggml.add_bos_token": (BOOL, False),
        "tokenizer.chat_template": (STRING, template),
    }
    for change in changes:
        key, value = change.split("=", 1)
        keys[key] = (STRING, value)
        if not value:
            del keys[key]

    infos, data = b"", b""
    count = 0
    weights = read_safetensors(os.path.join(folder, "model.safetensors"))
    for name, (shape, raw) in sorted(weights.items()):
        heads = {"q_proj": config["num_attention_heads"],
                 "k_proj": config["num_key_value_heads"]}.get(
                     name.split(".")[-2])
        if heads:
            width = len(raw) // shape[0]
            rows = [raw[i * width:(i + 1) * width] for i in range(shape[0])]
            raw = b"".join(interleave(rows, heads))
        name = name.replace("model.embed_tokens", "token_embd")
        name = name.replace("lm_head", "output")
        name = name.replace("model.norm", "output_norm")
        name = name.replace("model.layers", "blk")
        for mlx, gguf in NAMES.items():
            name = name.replace("." + mlx + ".", "." + gguf + ".")
        infos += text(name) + struct.pack("<I", len(shape))
        infos += b"".join(struct.pack("<Q", d) for d in reversed(shape))
        infos += struct.pack("<IQ", 0, len(data))
        data += raw + b"\0" * (-len(raw) % 32)
        count += 1
    head = b"GGUF" + struct.pack("<IQQ", 3, count, len(keys))
    for key, (kind, value) in keys.items():
        head += text(key) + struct.pack("<I", kind) + value_of(kind, value)
    head += infos
    with open(path, "wb") as file:
        file.write(head + b"\0" * (-len(head) % 32) + data)


main()
