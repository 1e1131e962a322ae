"""GGUF files: their headers are written by the gguf package, with the keys and
tensor names that llama.cpp's converter gives them; what is in them is turned
back into a transformers model, which is the reference."""

import json
import math
import os

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T

import recipe

# Bytes of a block and which of them are no noise: elements of about 0.06 to
# 0.12.
BLOCKS = {
    T.Q4_0: (18, [[0, "f16", -13]]),
    T.Q8_0: (34, [[0, "f16", -16]]),
    T.Q4_K: (144, [[0, "f16", -19], [2, "f16", -16]]),
    T.Q6_K: (210, [[208, "f16", -21]]),
    T.IQ4_NL: (18, [[0, "f16", -17]]),
    T.MXFP4: (17, [[0, "byte", 121, 2]]),
}
PLAIN = {T.F32: "F32", T.F16: "F16", T.BF16: "BF16"}


def paired(x, heads):
    """Rows of each head from [2, d/2] to [d/2, 2], as the converter does for
    llama; its inverse is `unpaired`."""
    return (x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:])
            .swapaxes(1, 2).reshape(x.shape))


def unpaired(x, heads):
    return (x.reshape(heads, x.shape[0] // heads // 2, 2, *x.shape[1:])
            .swapaxes(1, 2).reshape(x.shape))


class Names:
    def __init__(self, row, layers):
        arch = {v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}[row["arch"]]
        self.map = gguf.get_tensor_name_map(arch, layers)

    def of(self, name):
        """The GGUF name, and None or the expert that a tensor belongs to."""
        parts = name.split(".")
        expert = None
        if "experts" in parts:
            at = parts.index("experts")
            if parts[at + 1].isdigit():
                expert = int(parts.pop(at + 1))
        found = self.map.get_name(".".join(parts), (".weight", ".bias"))
        if not found and "block_sparse_moe" in parts:
            # The converter's own name for the stack.
            stack = f"layers.{parts[2]}.feed_forward.experts.{parts[-2]}"
            found = self.map.get_name(stack + ".weight", (".weight",))
        assert found, name
        return found, expert


def plan(row, found, config):
    """GGUF name -> [shape, {expert or None: name in transformers}]."""
    names = Names(row, config["num_hidden_layers"])
    tensors = {}
    for name, shape in sorted(found.items()):
        to, expert = names.of(name)
        if config.get("tie_word_embeddings") and name == "lm_head.weight":
            continue
        entry = tensors.setdefault(to, [shape, {}])
        entry[1][expert] = name
    for entry in tensors.values():
        if None not in entry[1]:
            entry[0] = (len(entry[1]), *entry[0])
    return tensors


def type_of(row, name, shape):
    if len(shape) == 1 or "gate_inp" in name or name.endswith(".bias"):
        return T.F32
    for part, kind in row.get("types", {}).items():
        if part in name:
            return T[kind]
    return T[row.get("type_of_all", "F16")]


def rules(row, tensors):
    """GGUF name -> [dtype, stored shape, rule], and its type."""
    out, types = {}, {}
    for name, (shape, _) in tensors.items():
        kind = types[name] = type_of(row, name, shape)
        if kind in BLOCKS:
            size, fixed = BLOCKS[kind]
            elements = gguf.GGML_QUANT_SIZES[kind][0]
            assert shape[-1] % elements == 0, (name, shape)
            stored = (*shape[:-1], shape[-1] // elements * size)
            out[name] = [kind.name, list(stored), ["blocks", size, fixed]]
        else:
            out[name] = [PLAIN[kind], list(shape),
                         recipe.rule_for(name, shape, row.get("rules", ()))]
    return out, types


def header(row, config, tensors, stored, types):
    arch = row["arch"]
    path = os.path.join(row["folder"], "header.gguf")
    w = gguf.GGUFWriter(path, arch)
    heads = config["num_attention_heads"]
    dim = config.get("head_dim") or config["hidden_size"] // heads
    rope = config["rope_parameters"]
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(config["hidden_size"])
    w.add_block_count(config["num_hidden_layers"])
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_head_count(heads)
    w.add_head_count_kv(config["num_key_value_heads"])
    w.add_rope_freq_base(rope["rope_theta"])
    w.add_rope_dimension_count(
        int(dim * rope.get("partial_rotary_factor", 1)))
    if dim * heads != config["hidden_size"]:
        w.add_key_length(dim)
        w.add_value_length(dim)
    if "norm_epsilon" in config:
        w.add_layer_norm_eps(config["norm_epsilon"])
    else:
        w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    experts = config.get("num_local_experts") or config.get("num_experts")
    if experts:
        w.add_expert_count(experts)
        w.add_expert_used_count(config["num_experts_per_tok"])
    for key, method in (("moe_intermediate_size",
                         w.add_expert_feed_forward_length),
                        ("shared_expert_intermediate_size",
                         w.add_expert_shared_feed_forward_length)):
        if key in config:
            method(config[key])
    for key, (kind, value) in row.get("keys", {}).items():
        getattr(w, "add_" + kind)(f"{arch}.{key}", value)
    w.add_tokenizer_model("gpt2")
    w.add_token_list([str(i) for i in range(config["vocab_size"])])
    w.add_tokenizer_pre("gpt-2")
    w.add_token_merges(["1 2"])
    for name, (dtype, shape, _) in stored.items():
        plain = types[name] in PLAIN
        w.add_tensor_info(
            name, shape, np.dtype(np.float32 if plain else np.uint8),
            math.prod(shape) * (gguf.GGML_QUANT_SIZES[types[name]][1]
                                if plain else 1),
            raw_dtype=types[name])
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_ti_data_to_file()
    w.close()
    with open(path, "rb") as f:
        return f.read()


def turned_back(row, config, tensors, types, made):
    """What transformers calls it -> float array."""
    heads = {"q_proj": config["num_attention_heads"],
             "k_proj": config["num_key_value_heads"]}
    out = {}
    for name, (shape, parts) in tensors.items():
        x = made[name]
        if types[name] in BLOCKS:
            x = gguf.quants.dequantize(x.reshape(-1, x.shape[-1]), types[name])
        x = x.reshape(shape).astype(np.float32)
        for expert, to in parts.items():
            y = x if expert is None else x[expert]
            for part, count in heads.items():
                if row.get("paired") and part in to:
                    y = unpaired(y, count)
            out[to] = np.ascontiguousarray(y)
    return out


def make(row, folder, arrays):
    import hf
    found, config = hf.skeleton(row, folder)
    if row.get("split"):
        hf.split_experts(found)
    row["folder"] = folder
    tensors = plan(row, found, config)
    stored, types = rules(row, tensors)
    for name, (shape, rule) in row.get("more", {}).items():
        stored[name], types[name] = ["F32", list(shape), rule], T.F32
    bytes_ = header(row, config, tensors, stored, types)
    os.remove(os.path.join(folder, "header.gguf"))

    def reference(salt):
        made = arrays(stored, salt)
        if "patch" in row:
            path = os.path.join(folder, "config.json")
            with open(path) as f:
                changed = json.load(f)
            row["patch"](changed, made)
            with open(path, "w") as f:
                json.dump(changed, f)
        back = turned_back(row, config, tensors, types, made)
        return hf.Reference(row, folder, hf.join_experts(back)
                            if row.get("split") else back)

    return config, stored, bytes_, reference
