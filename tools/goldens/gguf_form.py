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


def shifted(found, config, by=1):
    """Norms of which files have the sum 1 + weight."""
    return {n: x - np.float32(by) if "norm" in n.rsplit(".", 2)[-2] else x
            for n, x in found.items()}


def tiled(x, axis, config, width):
    """Heads of values from the order of their heads of keys, [k, v / k], to
    [v / k, k]; `untiled` is the inverse."""
    k = config["linear_num_key_heads"]
    each = config["linear_num_value_heads"] // k
    return swapped(x, axis, k, each, width)


def untiled(x, axis, config, width):
    k = config["linear_num_key_heads"]
    each = config["linear_num_value_heads"] // k
    return swapped(x, axis, each, k, width)


def swapped(x, axis, a, b, width):
    shape = x.shape
    x = x.reshape(*shape[:axis], a, b, width, *shape[axis + 1:])
    return x.swapaxes(axis, axis + 1).reshape(shape)


def net_sizes(config):
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    return keys, (config["linear_num_value_heads"]
                  * config["linear_value_head_dim"])


def hybrid_there(found, config):
    """Qwen3-Next and Qwen3.5: names and shapes as the converter has them."""
    keys, values = net_sizes(config)
    for name in list(found):
        shape = found[name]
        if name.endswith("conv1d.weight"):
            found[name] = (shape[0], shape[2])
        elif name.endswith(".dt_bias"):
            found[name[:-len("dt_bias")] + "dt_proj.bias"] = found.pop(name)
        elif name.endswith("in_proj_qkvz.weight"):
            stem = found.pop(name) and name[:-len("qkvz.weight")]
            found[stem + "qkv.weight"] = (2 * keys + values, shape[1])
            found[stem + "z.weight"] = (values, shape[1])


def hybrid_back(row, found, config):
    """What these stand for in transformers."""
    keys, _ = net_sizes(config)
    heads = config["linear_num_key_heads"]
    wide = config["linear_value_head_dim"]
    out = {}
    for name, x in found.items():
        last = name.rsplit("linear_attn.", 1)[-1]
        if "norm.weight" in name and last != "norm.weight":
            x = x - np.float32(1)
        if row["tiled"] and last != name:
            if last in ("in_proj_qkv.weight", "conv1d.weight"):
                x = np.concatenate([x[:2 * keys], untiled(
                    x[2 * keys:], 0, config, wide)])
            elif last == "in_proj_z.weight":
                x = untiled(x, 0, config, wide)
            elif last == "out_proj.weight":
                x = untiled(x, 1, config, wide)
            elif last in ("in_proj_a.weight", "in_proj_b.weight", "A_log",
                          "dt_proj.bias"):
                x = untiled(x, 0, config, 1)
        if last == "A_log":
            x = np.log(-x)
        elif last == "dt_proj.bias":
            name = name[:-len("dt_proj.bias")] + "dt_bias"
        elif last == "conv1d.weight":
            x = x[:, None]
        out[name] = x
    if row["tiled"]:
        return out
    for name in [n for n in out if n.endswith("in_proj_qkv.weight")]:
        qkv, z = out.pop(name), out.pop(name.replace("_qkv", "_z"))
        parts = [qkv[:keys], qkv[keys:2 * keys], qkv[2 * keys:], z]
        parts = [x.reshape(heads, -1, x.shape[-1]) for x in parts]
        out[name.replace("_qkv", "_qkvz")] = np.concatenate(
            parts, 1).reshape(-1, qkv.shape[-1])
    return out


def streams_there(found, config):
    """Gemma 3n: the matrices of its streams in one tensor, its table of words
    as long as the vocabulary."""
    for name in [n for n in found if "altup_un" in n or "altup_proj" in n]:
        stem, number, _ = name.rsplit(".", 2)
        shape = found.pop(name)
        found[stem + ".weight"] = (int(number) + 1, *shape)
    for name in [n for n in found if n.endswith("_scale")]:
        found[name + ".weight"] = found.pop(name)
    for name in [n for n in found if "embed_tokens_per_layer" in n]:
        found[name] = (config["vocab_size"], found[name][1])


def streams_back(row, found, config):
    for name in [n for n in found if "altup_un" in n or "altup_proj" in n]:
        for i, x in enumerate(found.pop(name)):
            found[name.replace(".weight", f".{i}.weight")] = x
    for name in [n for n in found if n.endswith("_scale.weight")]:
        found[name[:-len(".weight")]] = found.pop(name)
    for name in [n for n in found if "embed_tokens_per_layer" in n]:
        found[name] = found[name][:config["vocab_size_per_layer_input"]]
    return found


def scalars_there(found, config):
    """Gemma 4: scalars and scales as the converter names them."""
    for name in [n for n in found if n.endswith("layer_scalar") or (
            ".experts." in n and not n.endswith(".weight"))]:
        found[name + ".weight"] = found.pop(name)


def scalars_back(row, found, config):
    for name in [n for n in found if n.endswith("layer_scalar.weight") or (
            ".experts." in n and n.endswith(".weight"))]:
        found[name[:-len(".weight")]] = found.pop(name)
    return found


def plan(row, found, config):
    """GGUF name -> [shape, {expert or None: name in transformers}]."""
    names = Names(row, config["num_hidden_layers"])
    tensors = {}
    for name, shape in sorted(found.items()):
        to, expert = row.get("names", {}).get(name.split(".", 3)[-1]), None
        if to:
            to = f"blk.{name.split('.')[2]}.{to}"
        else:
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
    rope = config.get("rope_parameters") or {}
    rope = rope.get("full_attention", rope)
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(config["hidden_size"])
    w.add_block_count(config["num_hidden_layers"])
    w.add_feed_forward_length(row.get("feed_forward")
                              or config["intermediate_size"])
    w.add_head_count(heads)
    if "num_key_value_heads" in config:
        w.add_head_count_kv(row.get("kv_heads")
                            or config["num_key_value_heads"])
    if rope and "rope.dimension_count" not in row["keys"]:
        w.add_rope_dimension_count(
            int(dim * rope.get("partial_rotary_factor", 1)))
    if rope:
        w.add_rope_freq_base(rope["rope_theta"])
    if dim * heads != config["hidden_size"] and (
            "attention.key_length" not in row["keys"]):
        w.add_key_length(dim)
        w.add_value_length(dim)
    if "norm_epsilon" in config or "layer_norm_eps" in config:
        w.add_layer_norm_eps(config.get("norm_epsilon")
                             or config["layer_norm_eps"])
    else:
        w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    experts = config.get("num_local_experts") or config.get("num_experts")
    used = config.get("num_experts_per_tok") or config.get("top_k_experts")
    if experts:
        w.add_expert_count(experts)
        w.add_expert_used_count(used)
    for key, method in (("moe_intermediate_size",
                         w.add_expert_feed_forward_length),
                        ("shared_expert_intermediate_size",
                         w.add_expert_shared_feed_forward_length)):
        if config.get(key):
            method(config[key])
    for key, (kind, value) in row["keys"].items():
        name = key if key.startswith("tokenizer.") else f"{arch}.{key}"
        getattr(w, "add_" + kind)(name, value)
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
    for name in [n for n in found if any(d in n for d in row.get("drop", ()))]:
        del found[name]
    if "there" in row:
        row["there"](found, config)
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
        if "back" in row:
            back = row["back"](row, back, config)
        return hf.Reference(row, folder, hf.join_experts(back)
                            if row.get("split") else back)

    return config, stored, bytes_, reference
