"""Quantization: packing, unpacking, products with packed matrices."""

import numpy as np

import arrays
from arrays import Arr, array, pick
from case import Case

MODES = {"mxfp4": (32, 4), "mxfp8": (32, 8), "nvfp4": (16, 4)}
BITS = [2, 3, 4, 5, 6, 8]


def packing(rng):
    """A mode with its group and width, now and then a wrong one."""
    if rng.random() < 0.6:
        group, bits = int(pick(rng, [32, 64, 128])), int(pick(rng, BITS))
        mode = "affine"
    else:
        mode = pick(rng, list(MODES))
        group, bits = MODES[mode]
    if rng.random() < 0.03:
        bits = int(pick(rng, [1, 7, 9, 4]))
    if rng.random() < 0.02:
        group = 48
    return mode, group, bits


def codes_near(bits):
    """Scales within 2 ulp, and a few codes a step away: a value on the edge
    between two codes may fall either way."""
    def check(case, ours, theirs):
        if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
            return None
        if ours.dtype != "uint32":
            return None
        a, b = unpack(ours.data, bits), unpack(theirs.data, bits)
        off = np.abs(a.astype(int) - b.astype(int))
        if off.max(initial=0) > 1 and case.args["mode"] == "affine":
            return f"codes {off.max()} steps apart"
        # A few beside an edge, however small the array.
        if (off > 0).sum() > max(3, 0.02 * off.size):
            return f"{(off > 0).mean():.3f} of the codes differ"
        return "equal"
    return check


def unpack(words, bits):
    """Codes of rows of little-endian bit streams."""
    stream = np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little")
    codes = stream.reshape(*words.shape[:-1], -1, bits)
    return np.packbits(codes, axis=-1, bitorder="little")[..., 0]


def quantize(rng):
    mode, group, bits = packing(rng)
    dtype = pick(rng, ["float32"] * 2 + ["float16", "bfloat16"])
    rows = tuple(int(i) for i in rng.integers(1, 6, int(rng.integers(1, 3))))
    columns = group * int(rng.integers(1, 4))
    if rng.random() < 0.04:
        columns += 8
    w = array(rng, rows + (columns,), dtype,
              pick(rng, ["tame", "tame", "unit", "whole"]))
    if mode == "nvfp4":
        # Whole numbers lie between two codes once they are scaled.
        w = array(rng, rows + (columns,), dtype, "tame")
    scale = None
    if mode == "nvfp4" and rng.random() < 0.4:
        scale = Arr(np.array(float(np.abs(w.wide()).max()) or 1.0),
                    "float32")
    default = mode == "affine" and group == 64 and bits == 4 and \
        rng.random() < 0.5
    return Case("quant", "mlx_quantize",
                {"w": w, "group_size": None if default else group,
                 "bits": None if default else bits, "mode": mode,
                 "global_scale": scale},
                lambda m, a: m.quantize(a.w, a.group_size, a.bits, mode,
                                        a.global_scale), "loose",
                check=codes_near(bits), loose=4)


def packed(rng, rows, columns, mode, group, bits, dtype):
    """Drawn codes, scales and biases (None)."""
    words = rng.integers(0, 2 ** 32, rows + (columns * bits // 32,),
                         dtype=np.uint32)
    shape = rows + (columns // group,)
    if mode == "affine":
        return Arr(words, "uint32"), \
            Arr(rng.standard_normal(shape) * 0.05, dtype), \
            Arr(rng.standard_normal(shape) * 0.3, dtype)
    low, high = (40, 70) if mode == "nvfp4" else (120, 130)
    return Arr(words, "uint32"), \
        Arr(rng.integers(low, high, shape), "uint8"), None


def dequantize(rng):
    mode, group, bits = packing(rng)
    dtype = pick(rng, ["float32", "float16", "bfloat16"])
    rows = tuple(int(i) for i in rng.integers(1, 6, int(rng.integers(1, 3))))
    columns = group * int(rng.integers(1, 4))
    w, scales, biases = packed(rng, rows, columns, mode, group, bits, dtype)
    to = dtype if rng.random() < 0.5 else None
    return Case("quant", "mlx_dequantize",
                {"w": w, "scales": scales, "biases": biases,
                 "group_size": group, "bits": bits, "mode": mode,
                 "global_scale": None, "dtype": to},
                lambda m, a: m.dequantize(a.w, a.scales, a.biases, group,
                                          bits, mode, dtype=a.dtype),
                "each", expand(mode, group, bits), cast=False)


E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6])
E2M1 = np.concatenate([E2M1, -E2M1])


def e4m3(code):
    code = code.astype(int)
    exponent, rest = (code >> 3) & 15, code & 7
    value = np.where(exponent == 0, rest * 2.0 ** -9,
                     (8 + rest) * 2.0 ** (exponent - 10.0))
    return np.where(code & 128, -value, value)


def expand(mode, group, bits):
    """Values of packed codes in float64."""
    def values(w, scales, biases):
        codes = unpack(np.ascontiguousarray(w).astype(np.uint32), bits)
        if mode == "affine":
            q = codes.astype(np.float64)
            return q * np.repeat(scales, group, -1) + \
                np.repeat(biases, group, -1)
        s = e4m3(scales) if mode == "nvfp4" else \
            2.0 ** (scales.astype(np.float64) - 127)
        q = e4m3(codes) if bits == 8 else E2M1[codes]
        return q * np.repeat(s, group, -1)

    def ref(n):
        return values(n.w, n.scales, n.biases)
    ref.values = values
    return ref


def matmul(rng):
    mode, group, bits = packing(rng)
    dtype = pick(rng, ["float32"] * 2 + ["float16", "bfloat16"])
    turned = bool(rng.random() < 0.6)
    inner = group * int(rng.integers(1, 4))
    outer = int(rng.integers(1, 9)) * (8 if rng.random() < 0.3 else 1)
    if not turned:
        inner, outer = int(rng.integers(1, 20)), inner
    m_ = int(rng.integers(1, 6))
    batch = (2,) if rng.random() < 0.15 else ()
    x = array(rng, batch + (m_, inner), dtype, "tame")
    rows = (outer,) if turned else (inner,)
    columns = inner if turned else outer
    w, scales, biases = packed(rng, rows, columns, mode, group, bits, dtype)
    args = {"x": x, "w": w, "scales": scales, "biases": biases,
            "transpose": turned, "group_size": group, "bits": bits,
            "mode": mode}
    values = expand(mode, group, bits).values

    def ref(n):
        v = values(n.w, n.scales, n.biases)
        return np.matmul(n.x, np.swapaxes(v, -1, -2) if turned else v)

    def scale(n):
        v = np.abs(values(n.w, n.scales, n.biases))
        return np.matmul(np.abs(n.x), np.swapaxes(v, -1, -2)
                         if turned else v)
    return Case("quant", "mlx_quantized_matmul", args,
                lambda m, a: m.quantized_matmul(
                    a.x, a.w, a.scales, a.biases, turned, group, bits, mode),
                "sum", ref, scale=scale, cast=False)


def gather_qmm(rng):
    mode, group, bits = packing(rng)
    dtype = pick(rng, ["float32"] * 2 + ["float16", "bfloat16"])
    turned = bool(rng.random() < 0.6)
    inner = group * int(rng.integers(1, 4))
    outer = int(rng.integers(1, 9))
    if not turned:
        inner, outer = int(rng.integers(1, 20)), inner
    experts, left = (int(i) for i in rng.integers(1, 5, 2))
    x = array(rng, (left, int(rng.integers(1, 4)), inner), dtype, "tame")
    rows = (experts, outer if turned else inner)
    columns = inner if turned else outer
    w, scales, biases = packed(rng, rows, columns, mode, group, bits, dtype)
    shape = arrays.shape(rng, 2, 4, empty=0)
    lhs = Arr(rng.integers(0, left, shape), "uint32")
    rhs = Arr(rng.integers(0, experts, shape), "uint32")
    args = {"x": x, "w": w, "scales": scales, "biases": biases,
            "lhs_indices": lhs, "rhs_indices": rhs, "transpose": turned,
            "group_size": group, "bits": bits, "mode": mode,
            "sorted_indices": False}
    values = expand(mode, group, bits).values

    def ref(n, f=np.asarray):
        v = f(values(n.w, n.scales, n.biases))
        v = np.swapaxes(v, -1, -2) if turned else v
        return np.matmul(f(n.x)[n.lhs_indices], v[n.rhs_indices])
    return Case("quant", "mlx_gather_qmm", args,
                lambda m, a: m.gather_qmm(
                    a.x, a.w, a.scales, a.biases, a.lhs_indices,
                    a.rhs_indices, turned, group, bits, mode),
                "sum", ref, scale=lambda n: ref(n, np.abs), cast=False)


def hadamard(rng):
    dtype = pick(rng, ["float32"] * 2 + ["float16", "bfloat16"])
    n = int(pick(rng, [1, 2, 4, 8, 16, 32, 128, 12, 24, 20, 40, 28, 56, 11]))
    x = array(rng, arrays.shape(rng, 2, 4) + (n,), dtype,
              pick(rng, ["tame", "whole"]))
    scale = None if rng.random() < 0.6 else 0.25
    return Case("quant", "mlx_hadamard_transform", {"a": x, "scale": scale},
                lambda m, a: m.hadamard_transform(a.a, a.scale), "scaled",
                None)


GROUPS = [(quantize, 3), (dequantize, 2), (matmul, 3), (gather_qmm, 1),
          (hadamard, 1)]
