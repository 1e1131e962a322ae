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
