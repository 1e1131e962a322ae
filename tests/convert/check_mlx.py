"""Holds `quern quantize` and `quern convert --dequantize` to MLX, bit for bit.

  check_mlx.py QUERN TINY FOLDER

Models whose weights are drawn with edge cases (zeros, constant groups, one sign
only, tiny and huge values), in each type, are packed in each mode, width and
group; every tensor must have the bytes that mlx.core.quantize gives.  Unpacked
again, values are those of mlx.core.dequantize in float32, rounded once (with
scales in float16 MLX rounds twice).
"""

import json
import pathlib
import shutil
import subprocess
import sys

import mlx.core as mx
import numpy as np

quern, tiny, folder = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
mx.set_default_device(mx.cpu)
HIDDEN, WIDE, VOCAB = 128, 256, 332


def weights(dtype, seed):
    rng = np.random.default_rng(seed)

    def matrix(rows, cols):
        w = rng.standard_normal((rows, cols)).astype(np.float32)
        w[0] = 0
        w[1] = 0.25
        w[2] = np.abs(w[2])
        w[3] = -np.abs(w[3])
        # MLX divides subnormal halves in half precision.
        w[4] *= 1e-6 if dtype != mx.float16 else 1e-3
        w[5] *= 1e3
        w[6, ::2] = 0
        w[7] = np.round(w[7])
        w[8, :32] = np.linspace(-1, 1, 32)
        return mx.array(w).astype(dtype)

    out = {"model.embed_tokens.weight": matrix(VOCAB, HIDDEN),
           "model.norm.weight": mx.ones((HIDDEN,), dtype)}
    for i in range(2):
        p = f"model.layers.{i}."
        for name, rows, cols in (("self_attn.q_proj", HIDDEN, HIDDEN),
                                 ("self_attn.k_proj", 64, HIDDEN),
                                 ("self_attn.v_proj", 64, HIDDEN),
                                 ("self_attn.o_proj", HIDDEN, HIDDEN),
                                 ("mlp.gate_proj", WIDE, HIDDEN),
                                 ("mlp.up_proj", WIDE, HIDDEN),
                                 ("mlp.down_proj", HIDDEN, WIDE)):
            out[p + name + ".weight"] = matrix(rows, cols)
        out[p + "input_layernorm.weight"] = mx.ones((HIDDEN,), dtype)
        out[p + "post_attention_layernorm.weight"] = mx.ones((HIDDEN,), dtype)
    return out


def write(path, tensors):
    shutil.copytree(tiny, path)
    path.chmod(0o755)
    for file in path.iterdir():
        file.chmod(0o644)
    config = json.loads((path / "config.json").read_text())
    config.update(hidden_size=HIDDEN, intermediate_size=WIDE, head_dim=32,
                  num_attention_heads=4, num_key_value_heads=2, vocab_size=VOCAB)
    (path / "config.json").write_text(json.dumps(config))
    mx.save_safetensors(str(path / "model.safetensors"), tensors)


def run(*words):
    subprocess.run([quern, *map(str, words)], check=True, stdout=subprocess.DEVNULL)


def same(a, b):
    return (a.dtype == b.dtype and a.shape == b.shape and
            bool(mx.array_equal(a.view(mx.uint8), b.view(mx.uint8))))


TRIPLES = [("affine", b, g) for b in (2, 3, 4, 5, 6, 8) for g in (32, 64, 128)]
SOME = [t for t in TRIPLES if t[2] == 64][::2]
TRIPLES += [("mxfp4", 4, 32), ("mxfp8", 8, 32), ("nvfp4", 4, 16)]
compared = 0
for number, dtype in enumerate((mx.float32, mx.float16, mx.bfloat16)):
    tensors = weights(dtype, number)
    source = folder / f"source{number}"
    write(source, tensors)
    for mode, bits, group in TRIPLES if number == 0 else SOME + TRIPLES[-3:]:
        packed, plain = folder / "packed", folder / "plain"
        run("quantize", source, packed, "--mode", mode, "--bits", bits,
            "--group-size", group, "--overwrite")
        run("convert", packed, plain, "--dequantize", "--overwrite")
        got = mx.load(str(packed / "model.safetensors"))
        back = mx.load(str(plain / "model.safetensors"))
        for name, w in tensors.items():
            if w.ndim == 1:
                assert same(got[name], w), name
                continue
            parts = mx.quantize(w, group_size=group, bits=bits, mode=mode)
            wide = [p.astype(mx.float32) if p.dtype == dtype else p for p in parts]
            values = mx.dequantize(*wide, group_size=group, bits=bits, mode=mode)
            values = values.astype(dtype if mode == "affine" else mx.bfloat16)
            stem = name.removesuffix("weight")
            names = [stem + s for s in ("weight", "scales", "biases")]
            for part, expected in zip(names, parts):
                assert same(got[part], expected), (part, mode, bits, group, dtype)
                compared += 1
            assert len(parts) == 3 or names[2] not in got
            assert same(back[name], values), (name, mode, bits, group, dtype)
print(f"{compared} packed tensors are those of MLX {mx.__version__}")
