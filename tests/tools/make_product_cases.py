#!/usr/bin/env python3
"""make_product_cases.py: writes the case file of products with packed matrices
chosen by indices, and of masks, with the answers of the MLX Python package.

    make_product_cases.py > tests/vectors/cases/products.jsonl

Needs mlx and numpy.  The case format is that of the other case files."""
import json

import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)
rng = np.random.default_rng(4)

NAMES = {
    mx.float32: "float32", mx.float16: "float16", mx.bfloat16: "bfloat16",
    mx.uint32: "uint32", mx.int32: "int32", mx.uint8: "uint8",
    mx.bool_: "bool",
}


def shown(a):
    wide = a.astype(mx.float32) if a.dtype in (mx.float16, mx.bfloat16) else a
    return {"dtype": NAMES[a.dtype], "shape": list(a.shape),
            "data": wide.tolist()}


def case(name, inputs, call, args, result, tol):
    mx.eval(result)
    print(json.dumps({
        "id": "products/" + name, "group": "products",
        "inputs": {k: shown(v) for k, v in inputs.items()},
        "steps": [{"call": call, "args": args, "out": ["r"]}],
        "outputs": ["r"], "expect": [dict(name="r", **shown(result))],
        "tol": tol}, separators=(",", ":")))


def numbers(shape, dtype=mx.float32):
    return mx.array(rng.standard_normal(shape).astype(np.float32)).astype(dtype)


FORMATS = [("affine", g, b) for b, g in
           ((2, 32), (3, 64), (4, 32), (4, 128), (5, 64), (6, 32), (8, 64))]
FORMATS += [("mxfp4", 32, 4), ("mxfp8", 32, 8), ("nvfp4", 16, 4)]


def packed(mode, group, bits, shape, dtype):
    w = numbers(shape, dtype)
    return mx.quantize(w, group_size=group, bits=bits, mode=mode)


def gather():
    for i, (mode, group, bits) in enumerate(FORMATS):
        for transpose in (True, False):
            dtype = mx.bfloat16 if i % 3 == 2 else mx.float32
            columns = max(64, group)
            parts = packed(mode, group, bits, (3, 4, columns), dtype)
            x = numbers((2, 1, columns if transpose else 4), dtype)
            lhs = mx.array([[0], [1]], mx.int32)
            rhs = mx.array([[2, 0, 2]], mx.uint32)
            result = mx.gather_qmm(
                x, *parts, lhs_indices=lhs, rhs_indices=rhs,
                transpose=transpose, group_size=group, bits=bits, mode=mode)
            inputs = {"x": x, "w": parts[0], "s": parts[1], "l": lhs, "i": rhs}
            if len(parts) == 3:
                inputs["b"] = parts[2]
            # MLX adds up in the type of x.
            case(f"gather_qmm/{mode}/{group}/{bits}/{'nt'[transpose]}", inputs,
                 "mlx_gather_qmm",
                 {"x": "$x", "w": "$w", "scales": "$s",
                  "biases": "$b" if len(parts) == 3 else None,
                  "lhs_indices": "$l", "rhs_indices": "$i",
                  "transpose": transpose, "group_size": group, "bits": bits,
                  "mode": mode, "sorted_indices": False},
                 result, {"rel": 4 if dtype == mx.bfloat16 else 16})


def both():
    for mode, group, bits in FORMATS[-3:]:
        parts = packed(mode, group, bits, (5, 64), mx.float32)
        x = numbers((1, 64))
        # With one row MLX's CPU can do it, though without global scales.
        result = mx.qqmm(x, *parts, group_size=group, bits=bits, mode=mode)
        case(f"qqmm/{mode}", {"x": x, "w": parts[0], "s": parts[1]}, "mlx_qqmm",
             {"x": "$x", "w": "$w", "w_scales": "$s", "group_size": group,
              "bits": bits, "mode": mode, "global_scale_x": None,
              "global_scale_w": None}, result, {"rel": 16})
    # The scale of a group is the power of two that is not below its due.
    for mode, group, bits in FORMATS[-3:]:
        top = [6 * 2.0 ** k * f for k in (-3, 0, 5)
               for f in (1, 1.0000002, 1.3, 1.42, 1.9)] + [0]
        w = numbers((len(top), 32)) * 0
        w[:, 3] = mx.array(top)
        w[:, 7] = -0.4 * mx.array(top)
        q, s = mx.quantize(w, group_size=group, bits=bits, mode=mode)
        mx.eval(q, s)
        print(json.dumps({
            "id": f"products/quantize/{mode}", "group": "products",
            "inputs": {"w": shown(w)},
            "steps": [{"call": "mlx_quantize", "args": {
                "w": "$w", "group_size": group, "bits": bits, "mode": mode,
                "global_scale": None}, "out": ["q"]}],
            "outputs": ["q"],
            "expect": [dict(name="q[0]", **shown(q)),
                       dict(name="q[1]", **shown(s))],
            "tol": "exact"}, separators=(",", ":")))


def masks():
    for dtype in (mx.float32, mx.bfloat16, mx.int32, mx.uint8):
        for axes in (1, 2, 3):
            a = mx.arange(24).reshape(2, 3, 4).astype(dtype)
            shape = a.shape[:axes]
            # MLX divides by zero where nothing is replaced.
            mask = mx.array(rng.random(shape) < 0.5).at[0].maximum(True)
            count = int(mask.sum().item())
            src = (mx.arange(count * int(np.prod(a.shape[axes:])))
                   .reshape((count,) + a.shape[axes:]).astype(dtype) + 50)
            result = mx.array(a)
            result[mask] = src
            case(f"masked_scatter/{NAMES[dtype]}/{axes}",
                 {"a": a, "m": mask, "s": src}, "mlx_masked_scatter",
                 {"a": "$a", "mask": "$m", "src": "$s"}, result, "exact")


gather()
both()
masks()
