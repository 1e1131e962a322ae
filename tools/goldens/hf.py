"""Reference: transformers on PyTorch, float32 on the CPU."""

import json
import os

import numpy as np
import torch
from safetensors import safe_open
from safetensors.numpy import save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

torch.manual_seed(0)


def new_config(row):
    if "config_class" in row:
        return row["config_class"](**row["config"])
    return AutoConfig.for_model(row["type"], **row["config"])


def model_class(row):
    return row.get("model_class", AutoModelForCausalLM)


def shapes(folder):
    """Names and shapes of the tensors in a folder's safetensors files."""
    found = {}
    for entry in sorted(os.listdir(folder)):
        if entry.endswith(".safetensors"):
            with safe_open(os.path.join(folder, entry), "np") as f:
                for key in f.keys():
                    found[key] = tuple(f.get_slice(key).get_shape())
    return found


def skeleton(row, folder):
    """Writes a model with weights of no meaning; its names and shapes are what
    a model of this configuration has on disk."""
    config = new_config(row)
    cls = model_class(row)
    make = cls.from_config if hasattr(cls, "from_config") else cls
    model = make(config, **({"attn_implementation": "eager"}
                            if hasattr(cls, "from_config") else {}))
    model.float().save_pretrained(folder)
    with open(os.path.join(folder, "config.json")) as f:
        return shapes(folder), json.load(f)


E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6], np.float32)
E2M1 = np.concatenate([E2M1, -E2M1])


def as_blocks(tensors):
    """Experts [E, in, out] become blocks of 32 codes, two in a byte, with a
    scale each: [E, out, in / 32, 16] and [E, out, in / 32]."""
    for name in [n for n in tensors if n.endswith("_proj")]:
        e, n_in, n_out = tensors.pop(name)[1]
        tensors[name + "_blocks"] = ["U8", [e, n_out, n_in // 32, 16],
                                     ["bytes", 0, 256]]
        tensors[name + "_scales"] = ["U8", [e, n_out, n_in // 32],
                                     ["bytes", 122, 2]]


def from_blocks(arrays):
    """The dense tensors that such blocks stand for."""
    for name in [n for n in arrays if n.endswith("_blocks")]:
        blocks = arrays.pop(name)
        scales = arrays.pop(name[:-len("blocks")] + "scales")
        codes = np.stack([blocks & 15, blocks >> 4], -1)
        values = E2M1[codes].reshape(*scales.shape, 32)
        values = values * np.exp2(scales.astype(np.float32) - 127)[..., None]
        arrays[name[:-len("_blocks")]] = np.ascontiguousarray(
            values.reshape(*scales.shape[:2], -1).swapaxes(1, 2))
    return arrays


def as_words(tensors):
    """The same in words of eight codes, gate and up each for itself."""
    for name in [n for n in tensors if n.endswith("_proj")]:
        e, n_in, n_out = tensors.pop(name)[1]
        stem, last = name.rsplit(".", 1)
        parts = ["gate_proj", "up_proj"] if last == "gate_up_proj" else [last]
        dtype, _, rule = tensors.pop(name + "_bias")
        rows = n_out // len(parts)
        for part in (f"{stem}.{p}" for p in parts):
            tensors[part + ".weight"] = ["U32", [e, rows, n_in // 8],
                                         ["words", 0xFFFFFFFF]]
            tensors[part + ".scales"] = ["U8", [e, rows, n_in // 32],
                                         ["bytes", 122, 2]]
            tensors[part + ".bias"] = [dtype, [e, rows], rule]


def from_words(arrays):
    for name in [n for n in arrays if ".experts." in n and "_proj.w" in n]:
        stem = name[:-len(".weight")]
        words, scales = arrays.pop(name), arrays.pop(stem + ".scales")
        codes = (words[..., None] >> np.arange(0, 32, 4, np.uint32)) & 15
        values = E2M1[codes].reshape(*scales.shape, 32)
        values = values * np.exp2(scales.astype(np.float32) - 127)[..., None]
        arrays[stem] = values.reshape(*scales.shape[:2], -1)
    return join_experts(arrays)


def split_experts(found):
    """Shapes of gate, up and down as [E, out, in], each with a bias."""
    for name in [n for n in found if n.endswith("_proj")]:
        e, n_in, n_out = found.pop(name)
        found.pop(name + "_bias")
        stem, last = name.rsplit(".", 1)
        parts = ["gate_proj", "up_proj"] if last == "gate_up_proj" else [last]
        for part in (f"{stem}.{p}" for p in parts):
            found[part + ".weight"] = (e, n_out // len(parts), n_in)
            found[part + ".bias"] = (e, n_out // len(parts))
    # The converter's name.
    for name in [n for n in found if n.endswith(".sinks")]:
        found[name + ".weight"] = found.pop(name)


def join_experts(arrays):
    """Back to what transformers has."""
    for name in [n for n in arrays if ".experts." in n
                 and n.endswith("_proj.weight")]:
        arrays[name[:-len(".weight")]] = arrays.pop(name)
    for name in [n for n in arrays if n.endswith(".sinks.weight")]:
        arrays[name[:-len(".weight")]] = arrays.pop(name)
    for stem in [n[:-len("gate_proj")] for n in arrays if n.endswith(
            ".experts.gate_proj")]:
        both = [arrays.pop(stem + p) for p in ("gate_proj", "up_proj")]
        e, rows, n_in = both[0].shape
        both = np.stack(both, 2).reshape(e, 2 * rows, n_in)
        arrays[stem + "gate_up_proj"] = both.swapaxes(1, 2)
        bias = [arrays.pop(stem + p + ".bias")
                for p in ("gate_proj", "up_proj")]
        arrays[stem + "gate_up_proj_bias"] = np.stack(bias, 2).reshape(e, -1)
        arrays[stem + "down_proj"] = arrays[stem + "down_proj"].swapaxes(1, 2)
        arrays[stem + "down_proj_bias"] = arrays.pop(stem + "down_proj.bias")
    return arrays


# How experts lie in the files, and what they are.
FORMS = {None: (lambda tensors: None, lambda arrays: arrays),
         True: (as_blocks, from_blocks), "words": (as_words, from_words)}


class Reference:
    def __init__(self, row, folder, tensors):
        """`tensors`: name -> float array, what goes into the files."""
        for entry in os.listdir(folder):
            if entry.endswith((".safetensors", ".safetensors.index.json")):
                os.remove(os.path.join(folder, entry))
        save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()},
                  os.path.join(folder, "model.safetensors"),
                  metadata={"format": "pt"})
        self.model = model_class(row).from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager")
        self.model.eval()
        self.fix_rope(row)

    def fix_rope(self, row):
        """Rotary positions that depend on the length are fixed for a sequence
        when it begins (docs/models.md): for its budget."""
        rope = row["config"].get("rope_parameters") or {}
        if rope.get("rope_type") != "dynamic":
            return
        rotary = self.model.model.rotary_emb
        freqs, _ = ROPE_INIT_FUNCTIONS["dynamic"](
            self.model.config, "cpu", seq_len=row["budget"])
        rotary.inv_freq = freqs
        rotary.rope_type = "default"

    def logits(self, ids):
        with torch.no_grad():
            out = self.model(torch.tensor([ids]), use_cache=False)
        return out.logits[0].float().numpy()

    def hidden(self, ids):
        with torch.no_grad():
            out = self.model(torch.tensor([ids]))
        return out.last_hidden_state[0].float().numpy()
