"""Reductions, scans, arg-reductions, the sort family, softmax and kin."""

import math

import numpy as np

import arrays
from arrays import array, pick
from case import Case

MODES = ["tame", "tame", "wide", "special", "whole", "positive"]


def some_axes(rng, ndim):
    count = int(rng.integers(0, ndim + 1))
    axes = [int(i) for i in rng.permutation(ndim)[:count]]
    return [i - ndim if rng.random() < 0.3 else i for i in axes]


def one_axis(rng, ndim, wrong=0.02):
    if rng.random() < wrong or not ndim:
        return int(rng.integers(-ndim - 1, ndim + 1))
    return int(rng.integers(-ndim, ndim))


def extents_of(rng, ndim_least=0):
    if rng.random() < 0.06:
        return arrays.large(rng)
    if rng.random() < 0.15:
        return tuple(int(n) for n in rng.integers(1, 90, 2))
    return arrays.shape(rng, least_axes=ndim_least)


def np_axes(axes):
    return None if axes is None else tuple(axes) if isinstance(axes, list) \
        else axes


REDUCE = ["sum", "prod", "mean", "max", "min", "all", "any", "var", "std",
          "logsumexp", "count_nonzero", "median"]


def logsumexp(a, axis, keepdims):
    with np.errstate(all="ignore"):
        top = np.max(a, axis=axis, keepdims=True)
        top = np.where(np.isfinite(top), top, 0)
        out = np.log(np.sum(np.exp(a - top), axis=axis, keepdims=True)) + top
    return out if keepdims else np.squeeze(out, axis=axis)


def reduce(rng):
    name = pick(rng, REDUCE)
    dtype = pick(rng, arrays.ALL + arrays.FLOATS * 2)
    extents = extents_of(rng)
    mode = pick(rng, MODES)
    # What overflows on the way depends on the order of the factors.
    if name == "prod" and mode in ("wide", "special"):
        mode = "unit"
    if dtype == "complex64":
        mode = "unit" if name == "prod" else "tame"
    a = array(rng, extents, dtype, mode)
    form = pick(rng, ["", "_axis", "_axes"])
    keepdims = bool(rng.random() < 0.5)
    args = {"a": a, "keepdims": keepdims}
    axis = None
    if form == "_axis":
        axis = args["axis"] = one_axis(rng, len(extents))
    elif form == "_axes":
        axis = args["axes"] = some_axes(rng, len(extents))
    more = {}
    if name in ("var", "std"):
        args["ddof"] = more["ddof"] = int(rng.integers(0, 3))

    def peer(m, a):
        return getattr(m, name)(a.a, axis=axis, keepdims=keepdims, **more)

    over = np_axes(axis)
    refs = {"sum": np.sum, "prod": np.prod, "mean": np.mean, "max": np.max,
            "min": np.min}
    ref, scale = None, None
    if name in refs:
        def ref(n):
            return refs[name](n.a, axis=over, keepdims=keepdims)
    elif name == "logsumexp" and dtype != "complex64":
        def ref(n):
            return logsumexp(n.a, over, keepdims)
    elif name in ("var", "std"):
        def ref(n):
            return getattr(np, name)(n.a, axis=over, keepdims=keepdims,
                                     **more)
    judge = "scaled" if name in ("var", "std") else "each"
    if name in ("var", "std") and dtype == "float64":
        # No wider type to add up in: roundings walk at random.
        def scale(n):
            out = ref(n)
            count = max(1, n.a.size // max(1, out.size))
            return np.abs(out) * max(1, count ** 0.5 / 4)
    if name in ("sum", "mean"):
        judge = "sum"

        def scale(n):
            return refs[name](np.abs(n.a), axis=over, keepdims=keepdims)
    elif name == "prod":
        def scale(n):
            out = np.prod(np.abs(n.a), axis=over, keepdims=keepdims)
            count = max(1, n.a.size // max(1, out.size))
            return out * max(1, count / 8)
        judge = "sum"
    elif name == "logsumexp":
        judge = "scaled"
    case = Case("reduce", f"mlx_{name}{form}", args, peer, judge, ref)
    case.scale = scale
    return case


def scan(rng):
    name = pick(rng, ["cumsum", "cumprod", "cummax", "cummin",
                      "logcumsumexp"])
    dtype = pick(rng, arrays.ALL + arrays.FLOATS * 2)
    extents = extents_of(rng)
    mode = pick(rng, MODES)
    if name == "cumprod" and mode in ("wide", "special"):
        mode = "unit"
    if dtype == "complex64":
        mode = "tame"
    a = array(rng, extents, dtype, mode)
    reverse, inclusive = bool(rng.random() < .5), bool(rng.random() < .6)
    args = {"a": a, "reverse": reverse, "inclusive": inclusive}
    form = pick(rng, ["", "_axis"])
    axis, more = None, {}
    if form:
        axis = args["axis"] = one_axis(rng, len(extents))
    if name in ("cumsum", "cumprod"):
        args["dtype"] = pick(rng, arrays.ALL) if rng.random() < 0.3 else None
        if args["dtype"]:
            more["dtype"] = args["dtype"]
            if args["dtype"] in arrays.INTS and arrays.is_inexact(dtype):
                # Out of an integer's range is undefined in MLX.
                a.data = arrays.values(rng, extents, "uint8", "positive") \
                    .astype(a.data.dtype)
                a.layout = [x for x in a.layout if x[0] != "broadcast"]

    def peer(m, a):
        extra = {"dtype": a.dtype} if more else {}
        return getattr(m, name)(a.a, axis=axis, reverse=reverse,
                                inclusive=inclusive, **extra)

    def run(f, start):
        def go(n):
            x = np.asarray(n.a)
            x, at = (x.reshape(-1), 0) if axis is None else (x, axis)
            x = np.flip(x, at) if reverse else x
            y = f(x, at)
            if not inclusive:
                first = np.full_like(np.take(y, [0], at), start)
                y = np.concatenate(
                    [first, np.delete(y, -1, at)], at)
            return np.flip(y, at) if reverse else y
        return go

    def logcumsumexp(x, at):
        return np.logaddexp.accumulate(x, at)
    ref = scale = None
    if math.prod(extents) and extents and (more or dtype != "complex64"):
        f, start = {"cumsum": (np.cumsum, 0), "cumprod": (np.cumprod, 1),
                    "logcumsumexp": (logcumsumexp, -np.inf),
                    "cummin": (np.minimum.accumulate, np.inf),
                    "cummax": (np.maximum.accumulate, -np.inf),
                    }.get(name, (None, 0))
        if f:
            ref = run(f, start)
            if name in ("cumsum", "cumprod"):
                def scale(n):
                    n.a = np.abs(n.a)
                    out = ref(n)
                    return out * (out.shape[axis or 0] / 4 + 1)
    case = Case("scan", f"mlx_{name}{form}", args, peer,
                "each" if name in ("cummax", "cummin") else "sum", ref)
    case.scale = scale
    return case


def arg_reduce(rng):
    name = pick(rng, ["argmax", "argmin"])
    dtype = pick(rng, arrays.REAL)
    extents = extents_of(rng)
    form = pick(rng, ["", "_axis"])
    keepdims = bool(rng.random() < 0.5)
    a = array(rng, extents, dtype, pick(rng, MODES))
    args = {"a": a, "keepdims": keepdims}
    axis = None
    if form:
        axis = args["axis"] = one_axis(rng, len(extents))

    def ref(n):
        f = {"argmax": np.argmax, "argmin": np.argmin}[name]
        out = f(n.a, axis=axis, keepdims=keepdims)
        return np.asarray(out).astype(np.uint32)
    return Case("arg-reduce", f"mlx_{name}{form}", args,
                lambda m, a: getattr(m, name)(a.a, axis=axis,
                                              keepdims=keepdims),
                "exact", ref)


def ordered(rng, name, dtype, extents):
    """Values for a sort: no NaN mostly, many equal ones."""
    mode = pick(rng, ["tame", "whole", "wide", "special"])
    return array(rng, extents, dtype, mode)


def sort(rng):
    name = pick(rng, ["sort", "argsort"])
    dtype = pick(rng, arrays.REAL)
    extents = extents_of(rng)
    if rng.random() < 0.95:
        extents = tuple(n or 1 for n in extents)
    a = ordered(rng, name, dtype, extents)
    form = pick(rng, ["", "_axis"])
    args = {"a": a}
    axis = None
    if form:
        axis = args["axis"] = one_axis(rng, len(extents))
    return Case("sort", f"mlx_{name}{form}", args,
                lambda m, a: getattr(m, name)(a.a, axis=axis),
                check=permutation(axis) if name == "argsort" else None)


def permutation(axis):
    """argsort among equals may differ: then the values must be equal."""
    def check(case, ours, theirs):
        x = case.args["a"].wide()
        x, at = (x.reshape(-1), 0) if axis is None else (x, axis)
        if ours.shape != x.shape or ours.dtype != "uint32":
            return None
        i, j = (y.data.astype(np.int64) for y in (ours, theirs))
        one, two = np.take_along_axis(x, i, at), np.take_along_axis(x, j, at)
        if not np.array_equal(one, two, equal_nan=x.dtype.kind == "f"):
            return "the indices give other values than MLX's"
        if not np.array_equal(np.sort(i, at), np.sort(j, at)):
            return "not a permutation"
        return "equal"
    return check


def partition(rng):
    name = pick(rng, ["partition", "argpartition", "topk"])
    dtype = pick(rng, arrays.REAL)
    extents = tuple(n or 1 for n in extents_of(rng, 1))
    mode = pick(rng, ["tame", "whole", "wide"])
    a = array(rng, extents, dtype, mode)
    form = pick(rng, ["", "_axis"])
    args = {"a": a}
    axis = None
    if form:
        axis = args["axis"] = one_axis(rng, len(extents))
    try:
        length = math.prod(extents) if axis is None else extents[axis]
    except IndexError:
        length = 3
    if name == "topk":
        k = args["k"] = int(rng.integers(0, length + 2))
    else:
        k = args["kth"] = int(rng.integers(-length - 1, length + 1)) \
            if rng.random() < 0.2 else int(rng.integers(0, length))

    def check(case, ours, theirs):
        """Each side of the kth has the same values; topk as a set."""
        x = case.args["a"].wide()
        x, at = (x.reshape(-1), 0) if axis is None else (x, axis)
        one, two = ours.wide(), theirs.wide()
        if name == "argpartition":
            if ours.dtype != theirs.dtype or ours.shape != x.shape:
                return None
            i = one.astype(np.int64)
            if not np.array_equal(np.sort(i, at), np.sort(
                    two.astype(np.int64), at)):
                return "not a permutation"
            one = np.take_along_axis(x, i, at)
            two = np.take_along_axis(x, two.astype(np.int64), at)
        if one.shape != two.shape or ours.dtype != theirs.dtype:
            return None
        if name == "topk":
            parts = [slice(None)]
        else:
            split = k % x.shape[at]
            parts = [slice(0, split), slice(split, split + 1),
                     slice(split + 1, None)]
        for part in parts:
            cut = [slice(None)] * one.ndim
            cut[at] = part
            if not np.array_equal(np.sort(one[tuple(cut)], at),
                                  np.sort(two[tuple(cut)], at)):
                return "other values than MLX's on one side of the kth"
        return "equal"
    return Case("sort", f"mlx_{name}{form}", args,
                lambda m, a: getattr(m, name)(a.a, k, axis=axis),
                check=check)


def searchsorted(rng):
    dtype = pick(rng, arrays.REAL)
    other = dtype if rng.random() < 0.7 else pick(rng, arrays.REAL)
    n = int(rng.integers(0, 30))
    mode = pick(rng, ["tame", "whole", "wide"])
    data = np.sort(array(rng, (n,), dtype, mode).wide())
    a = arrays.Arr(data, dtype, arrays.layout(rng, (n,)))
    side = pick(rng, ["left", "right", "left", "right", "middle"])
    return Case("sort", "mlx_searchsorted",
                {"sorted_sequence": a,
                 "values": array(rng, arrays.shape(rng), other, mode),
                 "side": side},
                lambda m, a: m.searchsorted(a.sorted_sequence, a.values,
                                            side=side))


def softmax(rng):
    dtype = pick(rng, arrays.FLOATS * 3 + ["bool", "int32", "uint8"])
    extents = extents_of(rng)
    a = array(rng, extents, dtype, pick(rng, ["tame", "tame", "wide",
                                              "whole", "special"]))
    form = pick(rng, ["", "_axis", "_axes"])
    precise = bool(rng.random() < 0.5)
    args = {"a": a, "precise": precise}
    axis = None
    if form == "_axis":
        axis = args["axis"] = one_axis(rng, len(extents))
    elif form == "_axes":
        axis = args["axes"] = some_axes(rng, len(extents))

    def ref(n):
        over = np_axes(axis)
        with np.errstate(all="ignore"):
            e = np.exp(n.a - np.max(n.a, axis=over, keepdims=True))
            return e / np.sum(e, axis=over, keepdims=True)
    return Case("softmax", f"mlx_softmax{form}", args,
                lambda m, a: m.softmax(a.a, axis=axis, precise=precise),
                "scaled", ref)


GROUPS = [(reduce, 6), (scan, 4), (arg_reduce, 2), (sort, 2), (partition, 2),
          (searchsorted, 1), (softmax, 2)]
