"""Prompt caches as mlx-lm saves them, and what it says behind them.

    caches.py ROOT

Writes tests/vectors/kv/mlx-*.safetensors and mlx.json: for each the model, the
tokens in the cache, those that follow, and the likeliest ones behind these."""

import json
import os
import sys

import mlx.core as mx
from mlx_lm.models import cache as caches
from mlx_lm.utils import load_model
from pathlib import Path

root = Path(sys.argv[1])
models = root / "tests/vectors/cases/fixtures/models"
out = root / "tests/vectors/kv"
mx.set_default_device(mx.cpu)

IDS = [104, 101, 108, 108, 111, 32, 116, 104, 101, 114, 101]  # of every model
NEXT = [97, 98, 99]
COUNT = 12


def rotating(model, size):
    return [caches.RotatingKVCache(max_size=size, keep=4)
            for _ in model.layers]


def quantized(model, bits):
    return [caches.QuantizedKVCache(group_size=64, bits=bits)
            for _ in model.layers]


ROWS = [
    ("mlx-plain", "tiny", lambda m: caches.make_prompt_cache(m)),
    ("mlx-affine8", "tiny_h64", lambda m: quantized(m, 8)),
    ("mlx-affine4", "tiny_h64", lambda m: quantized(m, 4)),
    ("mlx-rotating", "tiny", lambda m: rotating(m, 64)),
    ("mlx-turned", "tiny", lambda m: rotating(m, 8)),
    ("mlx-mixed", "tiny", lambda m: [caches.KVCache(), rotating(m, 64)[1]]),
]

rows = {}
for name, folder, make in ROWS:
    model, _ = load_model(models / folder)
    cache = make(model)
    mx.eval(model(mx.array([IDS]), cache=cache))
    caches.save_prompt_cache(str(out / f"{name}.safetensors"), cache,
                             {"model": folder})
    ids = list(NEXT)
    logits = model(mx.array([ids]), cache=cache)
    tokens, margins = [], []
    for _ in range(COUNT):
        last = logits[0, -1]
        best = mx.sort(last)[-2:].tolist()
        margins.append(best[1] - best[0])
        tokens.append(mx.argmax(last).item())
        logits = model(mx.array([[tokens[-1]]]), cache=cache)
    rows[name] = {"model": folder, "ids": IDS, "next": NEXT, "tokens": tokens,
                  "classes": [type(c).__name__ for c in cache]}
    print(name, tokens, min(margins))
with open(out / "mlx.json", "w", encoding="utf-8") as file:
    json.dump(rows, file, indent=1)
    file.write("\n")
print(sorted(os.listdir(out)))
