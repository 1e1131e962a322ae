"""Reference: mlx-lm on MLX's CPU backend, float32; and the packed form of
model directories, whose words and scales are made by rules, too."""

import json
import os

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.utils import _get_classes, load_model, quantize_model

import numpy as np
from pathlib import Path

mx.set_default_device(mx.cpu)

_gather_qmm = mx.gather_qmm


def gather_qmm(*args, global_scale=None, **more):
    """mlx-lm names an argument that this version of MLX does not have."""
    assert global_scale is None
    return _gather_qmm(*args, **more)


mx.gather_qmm = gather_qmm

DTYPES = {mx.float32: "F32", mx.float16: "F16", mx.bfloat16: "BF16",
          mx.uint32: "U32", mx.uint8: "U8"}


def rules_of_packed(name, mode, bits):
    """For MODULE.weight, .scales and .biases of a packed module: elements of
    about 0.15, which is right for rows of 64."""
    if name.endswith(".weight"):
        # Bytes of mxfp8 below 2, so that none is no number.
        return ["words", 0xBFBFBFBF if mode == "mxfp8" else 0xFFFFFFFF]
    if name.endswith(".biases"):
        return ["biases", name[:-len("biases")] + "scales", 2 ** (bits - 1)]
    if mode == "affine":
        return ["scales", -7 - bits]
    if mode == "nvfp4":
        return ["bytes", 0x14, 12]  # E4M3: 0.05 to 0.15
    return ["bytes", 123 if mode == "mxfp4" else 124, 2]  # E8M0


def shapes(folder):
    """Of a model that has no weights yet: name -> shape."""
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    model_class, args_class = _get_classes(config)
    model = model_class(args_class.from_dict(config))
    return {k: tuple(v.shape) for k, v in tree_flatten(model.parameters())}


def packed(folder, row):
    """The tensors of the packed model: name -> (shape, dtype, rule or None).
    `folder` holds a model that mlx-lm can load; its config.json gets the
    quantization."""
    model, config = load_model(Path(folder), lazy=True)
    q = row["quant"]
    predicate = row.get("predicate")
    mode = q.get("mode", "affine")
    model, config = quantize_model(
        model, config, q.get("group_size"), q.get("bits"), mode=mode,
        quant_predicate=predicate)
    found = {}
    flat = dict(tree_flatten(model.parameters()))
    for name, value in flat.items():
        module = name.rsplit(".", 1)[0]
        settings = config["quantization"].get(module, config["quantization"])
        rule = None
        if module + ".scales" in flat and not name.endswith(".bias"):
            rule = rules_of_packed(name, settings.get("mode", "affine"),
                                   settings["bits"])
        dtype = DTYPES[value.dtype]
        if dtype in ("F16", "BF16"):
            dtype = "F32"
        found[name] = (tuple(value.shape), dtype, rule)
    config.pop("quantization_config", None)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)
    return found


class Reference:
    def __init__(self, row, folder, tensors):
        for entry in os.listdir(folder):
            if entry.endswith((".safetensors", ".safetensors.index.json")):
                os.remove(os.path.join(folder, entry))
        mx.save_safetensors(os.path.join(folder, "model.safetensors"),
                            {k: mx.array(v) for k, v in tensors.items()},
                            metadata={"format": "mlx"})
        # A tied MiniCPM gets a head that mlx-lm then has no place for.
        self.model, _ = load_model(Path(folder),
                                   strict=row.get("strict", True))

    def logits(self, ids):
        out = self.model(mx.array([ids]))
        return np.array(out[0].astype(mx.float32))
