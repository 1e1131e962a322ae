"""Elementwise operations over all dtype pairs."""

import math

import numpy as np

import arrays
from arrays import array, pick
from case import Case

MODES = ["tame", "wide", "special", "special", "whole", "unit", "positive"]


def erf(x):
    return np.vectorize(math.erf, otypes=[float])(x) if x.size else x


def erfinv(y):
    """Newton's method from Giles' approximation; tails by erfc."""
    y = np.asarray(y, np.float64)
    out = np.empty(y.shape)
    for i, v in np.ndenumerate(y):
        a = abs(v)
        if not a < 1:
            out[i] = math.copysign(math.inf, v) if a == 1 else math.nan
            continue
        if a == 0:
            out[i] = v
            continue
        w = -math.log((1 - a) * (1 + a))
        t = 2 / (math.pi * 0.147) - w / 2
        x = math.sqrt(max(math.sqrt(t * t + w / 0.147) - t, 0))
        for _ in range(6):
            wrong = math.erf(x) - a if a < 0.5 else \
                (1 - a) - math.erfc(x)
            step = wrong / (2 / math.sqrt(math.pi) * math.exp(-x * x))
            x -= step / (1 + x * step)
        out[i] = math.copysign(x, v)
    return out


def sigmoid(x):
    if np.iscomplexobj(x):
        return 1 / (1 + np.exp(-x))
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e / (1 + e), 1 / (1 + e))


def sign(x):
    if np.iscomplexobj(x):
        size = np.abs(x)
        return np.where(size == 0, x, x / np.where(size == 0, 1, size))
    return np.where(np.isnan(x), 0, np.sign(x))


UNARY = {
    "abs": np.abs, "arccos": np.arccos, "arccosh": np.arccosh,
    "arcsin": np.arcsin, "arcsinh": np.arcsinh, "arctan": np.arctan,
    "arctanh": np.arctanh, "ceil": np.ceil, "cos": np.cos,
    "cosh": np.cosh, "degrees": np.degrees, "erf": erf, "erfinv": erfinv,
    "exp": np.exp, "expm1": np.expm1, "floor": np.floor, "log": np.log,
    "log10": np.log10, "log1p": np.log1p, "log2": np.log2,
    "negative": np.negative, "radians": np.radians,
    "reciprocal": lambda x: 1 / x, "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": sigmoid, "sign": sign, "sin": np.sin, "sinh": np.sinh,
    "sqrt": np.sqrt, "square": np.square, "tan": np.tan, "tanh": np.tanh,
    "trunc": np.trunc, "conjugate": np.conj, "real": np.real,
    "imag": np.imag, "positive": np.positive, "bitwise_invert": None,
    "logical_not": None, "isfinite": None, "isinf": None, "isnan": None,
    "isneginf": None, "isposinf": None, "copy": None,
    "stop_gradient": None,
}
COMPLEX_ONLY = ("real", "imag", "conjugate")
# mlx.core has no function of this name that takes an array alone.
PEERS = {"copy": lambda m, a: m.array(a.a)}


def unary(rng):
    name = pick(rng, list(UNARY))
    dtype = pick(rng, arrays.ALL + arrays.FLOATS * 3)
    if name in COMPLEX_ONLY and rng.random() < 0.5:
        dtype = "complex64"
    mode = pick(rng, MODES)
    if dtype == "complex64" and mode == "special" and rng.random() < 0.8:
        mode = "tame"
    if name in ("arccos", "arcsin", "arctanh", "erfinv") and \
            rng.random() < 0.6:
        mode = "unit"
    extents = arrays.large(rng) if rng.random() < 0.04 else arrays.shape(rng)
    if name == "erfinv" and math.prod(extents) > 3000:
        extents = extents[:1]
    ref = UNARY[name]
    return Case("unary", f"mlx_{name}",
                {"a": array(rng, extents, dtype, mode)},
                PEERS.get(name, lambda m, a: getattr(m, name)(a.a)),
                "each" if ref else "exact", ref and (lambda n: ref(n.a)))


def rounding(rng):
    dtype = pick(rng, arrays.ALL)
    decimals = int(rng.integers(-2, 4)) if rng.random() < 0.6 else 0
    extents = arrays.shape(rng)
    mode = pick(rng, ["tame", "whole", "special"])
    scale = 10.0 ** decimals

    def ref(n):
        if decimals == 0:
            return np.round(n.a)
        return np.round(n.a * scale) / scale
    return Case("unary", "mlx_round",
                {"a": array(rng, extents, dtype, mode),
                 "decimals": decimals},
                lambda m, a: m.round(a.a, a.decimals), "loose", ref,
                loose=1)


def logaddexp(a, b):
    if np.iscomplexobj(a) or np.iscomplexobj(b):
        first = (a.real > b.real) | ((a.real == b.real) & (a.imag > b.imag))
        big, small = np.where(first, a, b), np.where(first, b, a)
        return big + np.log1p(np.exp(small - big))
    return np.logaddexp(a, b)


BINARY = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply,
    "divide": np.divide, "power": np.power, "maximum": np.maximum,
    "minimum": np.minimum, "remainder": np.mod,
    "floor_divide": np.floor_divide, "arctan2": np.arctan2,
    "logaddexp": logaddexp, "equal": None, "not_equal": None,
    "greater": None, "greater_equal": None, "less": None,
    "less_equal": None, "logical_and": None, "logical_or": None,
    "logical_xor": None, "bitwise_and": None, "bitwise_or": None,
    "bitwise_xor": None, "left_shift": None, "right_shift": None,
}


def pair(rng):
    """Two shapes that broadcast, or now and then do not."""
    full = arrays.shape(rng, 4, 6)
    if rng.random() < 0.03:
        return full, arrays.shape(rng, 4, 6)
    both = []
    for _ in range(2):
        own = list(full)
        if rng.random() < 0.4:
            own = [1 if rng.random() < 0.3 else n for n in own]
        if rng.random() < 0.25:
            own = own[int(rng.integers(0, len(own) + 1)):]
        both.append(tuple(own))
    return tuple(both)


def binary_arrays(rng, name, same=0.3):
    first, second = pair(rng)
    if rng.random() < 0.03:
        first = second = arrays.large(rng)
    one = pick(rng, arrays.ALL)
    other = one if rng.random() < same else pick(rng, arrays.ALL)
    mode = pick(rng, MODES)
    if "complex64" in (one, other) and mode == "special":
        mode = "tame"
    a = array(rng, first, one, mode)
    b = array(rng, second, other, mode)
    if name in ("floor_divide", "remainder", "divmod"):
        # An integer zero ends MLX's process; few of those are enough.
        if rng.random() < 0.98 and b.dtype in ["bool"] + arrays.INTS:
            b.data[b.data == 0] = 1
    if name in ("left_shift", "right_shift"):
        b.data = np.abs(b.data.astype(np.float64)).astype(np.int64) % 8 \
            if b.dtype in arrays.INTS else b.data
        b.data = np.asarray(b.data).astype(arrays.storage(b.dtype))
    if name == "power" and b.dtype in arrays.INTS:
        low = -1 if a.dtype not in ["bool"] + arrays.INTS else 0
        b.data = np.asarray(np.clip(b.data.astype(np.float64), low, 5)) \
            .astype(arrays.storage(b.dtype))
    return a, b


def binary(rng):
    name = pick(rng, list(BINARY))
    a, b = binary_arrays(rng, name)
    ref = BINARY[name]
    if name == "logaddexp":
        # The larger operand and a logarithm may nearly cancel.
        def scale(n):
            larger = np.maximum(np.abs(n.a), np.abs(n.b))
            return np.where(np.isfinite(larger), larger, 0)
        return Case("binary", "mlx_logaddexp", {"a": a, "b": b},
                    lambda m, a: m.logaddexp(a.a, a.b), "sum",
                    lambda n: ref(n.a, n.b), scale=scale)
    return Case("binary", f"mlx_{name}", {"a": a, "b": b},
                lambda m, a: getattr(m, name)(a.a, a.b),
                "each" if ref else "exact",
                ref and (lambda n: ref(n.a, n.b)))


def divmod_(rng):
    a, b = binary_arrays(rng, "divmod")
    return Case("binary", "mlx_divmod", {"a": a, "b": b},
                lambda m, a: m.divmod(a.a, a.b), "each",
                lambda n: [np.floor_divide(n.a, n.b), np.mod(n.a, n.b)])


def ternary(rng):
    """where, clip."""
    extents = arrays.shape(rng)
    one, other = pick(rng, arrays.ALL), pick(rng, arrays.ALL)
    mode = pick(rng, MODES)
    if "complex64" in (one, other):
        mode = "tame"

    def some():
        return tuple(1 if rng.random() < 0.2 else n for n in extents)
    if rng.random() < 0.5:
        kind = "bool" if rng.random() < 0.8 else pick(rng, arrays.ALL)
        return Case("ternary", "mlx_where",
                    {"condition": array(rng, some(), kind),
                     "x": array(rng, some(), one, mode),
                     "y": array(rng, some(), other, mode)},
                    lambda m, a: m.where(a.condition, a.x, a.y))
    low = array(rng, some(), other) if rng.random() < 0.8 else None
    high = array(rng, some(), pick(rng, [one, other])) \
        if rng.random() < 0.8 else None
    return Case("ternary", "mlx_clip",
                {"a": array(rng, extents, one, mode), "a_min": low,
                 "a_max": high},
                lambda m, a: m.clip(a.a, a.a_min, a.a_max))


def tests(rng):
    """isclose, allclose, array_equal, nan_to_num."""
    extents = arrays.shape(rng)
    one, other = pick(rng, arrays.ALL), pick(rng, arrays.ALL)
    mode = pick(rng, ["whole", "special", "tame"])
    if "complex64" in (one, other):
        mode = "whole"
    a = array(rng, extents, one, mode)
    if rng.random() < 0.5:
        b = a.cast(other)
        if b.data.size and rng.random() < 0.5:
            b.data.flat[0] = 1
    else:
        b = array(rng, extents, other, mode)
    which = pick(rng, ["isclose", "allclose", "array_equal", "nan_to_num"])
    nan = bool(rng.random() < 0.5)
    if which == "nan_to_num":
        limits = rng.random() < 0.5
        return Case("ternary", "mlx_nan_to_num",
                    {"a": a, "nan": 2.5 if limits else 0.0,
                     "posinf": 100.0 if limits else None,
                     "neginf": -7.0 if limits else None},
                    lambda m, a: m.nan_to_num(a.a, a.nan, a.posinf, a.neginf))
    args = {"a": a, "b": b, "equal_nan": nan}
    if which == "array_equal":
        return Case("ternary", "mlx_array_equal", args,
                    lambda m, a: m.array_equal(
                        a.a, a.b, equal_nan=a.equal_nan))
    args.update(rtol=pick(rng, [1e-5, 0.1]), atol=pick(rng, [1e-8, 0.5]))
    return Case("ternary", f"mlx_{which}", args,
                lambda m, a: getattr(m, which)(
                    a.a, a.b, rtol=a.rtol, atol=a.atol,
                    equal_nan=a.equal_nan))


def convert(rng):
    """astype over all pairs, view."""
    extents = arrays.shape(rng)
    dtype, to = pick(rng, arrays.ALL), pick(rng, arrays.ALL)
    mode = pick(rng, MODES)
    a = array(rng, extents, dtype, mode)
    if rng.random() < 0.25:
        return Case("convert", "mlx_view", {"a": a, "dtype": to},
                    lambda m, a: m.view(a.a, a.dtype))
    if arrays.is_inexact(dtype) and to in arrays.INTS:
        # Out of range is undefined in MLX: see docs/differences.md.
        top = float(np.iinfo(to).max)
        values = np.nan_to_num(a.wide(), nan=0, posinf=1, neginf=0).real
        values = np.clip(values, float(np.iinfo(to).min), top / 1.01)
        a = arrays.Arr(np.trunc(values * 8) / 8, dtype, a.layout)
        if np.any(np.abs(a.wide()) > top) or \
                np.any(a.wide().real < np.iinfo(to).min):
            a = arrays.Arr(a.wide() * 0, dtype, a.layout)
    return Case("convert", "mlx_astype", {"a": a, "dtype": to},
                lambda m, a: m.astype(a.a, a.dtype))


def fp8(rng):
    extents = arrays.shape(rng)
    if rng.random() < 0.5:
        return Case("fp8", "mlx_from_fp8",
                    {"x": array(rng, extents, "uint8", "wide"),
                     "dtype": pick(rng, ["float32", "float16", "bfloat16"])},
                    lambda m, a: m.from_fp8(a.x, a.dtype))
    dtype = pick(rng, ["float32", "float16", "bfloat16"])
    a = array(rng, extents, dtype, pick(rng, ["tame", "wide", "whole",
                                              "unit"]))
    return Case("fp8", "mlx_to_fp8", {"x": a}, lambda m, a: m.to_fp8(a.x))


GROUPS = [(unary, 6), (rounding, 1), (binary, 8), (divmod_, 1), (ternary, 2),
          (tests, 2), (convert, 3), (fp8, 1)]
