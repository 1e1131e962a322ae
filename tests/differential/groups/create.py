"""Arrays from nothing: ranges, grids, windows, fills."""

import numpy as np

import arrays
from arrays import array, pick
from case import Case


def fills(rng):
    shape = list(arrays.shape(rng))
    dtype = pick(rng, arrays.ALL)
    which = int(rng.integers(8))
    if which < 2:
        name = ["zeros", "ones"][which]
        return Case("create", f"mlx_{name}", {"shape": shape, "dtype": dtype},
                    lambda m, a: getattr(m, name)(shape, a.dtype))
    a = array(rng, shape, pick(rng, arrays.ALL), "special")
    if which == 2:
        name = pick(rng, ["zeros_like", "ones_like"])
        return Case("create", f"mlx_{name}", {"a": a},
                    lambda m, a: getattr(m, name)(a.a))
    if which == 3:
        name = pick(rng, ["zeros_like", "ones_like"])
        return Case("create", f"mlx_{name}_dtype", {"a": a, "dtype": dtype},
                    lambda m, a: getattr(m, name)(a.a, a.dtype))
    value = array(rng, [1 if rng.random() < 0.5 else n for n in shape],
                  dtype, "whole")
    if rng.random() < 0.5:
        value = array(rng, (), dtype, "special")
    if which == 4:
        return Case("create", "mlx_full_like",
                    {"a": a, "vals": value, "dtype": dtype},
                    lambda m, a: m.full_like(a.a, a.vals, a.dtype))
    if which < 7:
        return Case("create", "mlx_full",
                    {"shape": shape, "vals": value, "dtype": dtype},
                    lambda m, a: m.full(shape, a.vals, a.dtype))
    n, k = int(rng.integers(0, 7)), int(rng.integers(-4, 5))
    m_ = int(rng.integers(0, 7))
    name = pick(rng, ["eye", "tri", "identity"])
    if name == "identity":
        return Case("create", "mlx_identity", {"n": n, "dtype": dtype},
                    lambda m, a: m.identity(n, a.dtype))
    kind = "type" if name == "tri" else "dtype"
    return Case("create", f"mlx_{name}",
                {"n": n, "m": m_, "k": k, kind: dtype},
                lambda m, a: getattr(m, name)(n, m_, k, getattr(a, kind)))


def ranges(rng):
    dtype = pick(rng, arrays.INTS + arrays.FLOATS)
    if rng.random() < 0.5:
        whole = rng.random() < 0.6 or dtype in arrays.INTS
        start = float(rng.integers(0 if dtype in arrays.UNSIGNED else -20,
                                   20))
        step = float(rng.integers(1, 5))
        if not whole:
            start, step = start + 0.25, step / 8
        stop = start + float(rng.integers(0, 30))
        if rng.random() < 0.2 and dtype not in arrays.UNSIGNED:
            start, stop, step = stop, start, -step
        return Case("create", "mlx_arange",
                    {"start": start, "stop": stop, "step": step,
                     "dtype": dtype},
                    lambda m, a: m.arange(start, stop, step, a.dtype),
                    "each", lambda n: start + step * np.arange(
                        max(0, int(np.ceil((stop - start) / step)))))
    start, stop = float(rng.integers(0, 5)), float(rng.integers(5, 50))
    num = int(rng.integers(0, 40))
    if rng.random() < 0.5:
        return Case("create", "mlx_linspace",
                    {"start": start, "stop": stop, "num": num,
                     "dtype": dtype},
                    lambda m, a: m.linspace(start, stop, num, dtype=a.dtype),
                    "scaled", lambda n: np.linspace(start, stop, num))
    end = bool(rng.random() < 0.5)
    return Case("create", "mlx_linspace_endpoint",
                {"start": start, "stop": stop, "num": num, "endpoint": end,
                 "dtype": dtype},
                lambda m, a: m.linspace(start, stop, num, end, a.dtype),
                "scaled", lambda n: np.linspace(start, stop, num,
                                                endpoint=end))


def windows(rng):
    name = pick(rng, ["bartlett", "blackman", "hamming", "hanning"])
    n = int(rng.integers(0, 60))
    return Case("create", f"mlx_{name}", {"M": n},
                lambda m, a: getattr(m, name)(n), "scaled",
                lambda k: getattr(np, name)(n))


GROUPS = [(fills, 3), (ranges, 3), (windows, 1)]
