"""Slices, static and dynamic; gather and scatter; take and put; masks."""

import math

import numpy as np

import arrays
from arrays import Arr, array, pick
from case import Case
from groups.reduce import one_axis

INDEX = ["int32", "uint32", "int64", "int8", "uint8", "int16", "uint64"]


def slices(rng, shape, clean=False):
    """Starts, stops, strides and Python's slices of the same meaning."""
    start, stop, stride = [], [], []
    for n in shape:
        step = int(pick(rng, [1, 1, 1, 2, 3, -1, -2]))
        if clean:
            a = int(rng.integers(0, n + 1))
            b = int(rng.integers(a, n + 1))
            step = abs(step)
        else:
            a = int(rng.integers(-n - 2, n + 3))
            b = int(rng.integers(-n - 2, n + 3))
        start.append(a)
        stop.append(b)
        stride.append(step)
    return start, stop, stride


def expected(shape, start, stop, stride):
    """The shape of numpy's slice."""
    return np.zeros(shape, bool)[tuple(
        slice(*s) for s in zip(start, stop, stride))].shape


def slice_(rng):
    a = array(rng, arrays.shape(rng), pick(rng, arrays.ALL), "special")
    start, stop, stride = slices(rng, a.shape)
    at = tuple(slice(*s) for s in zip(start, stop, stride))
    return Case("slice", "mlx_slice",
                {"a": a, "start": start, "stop": stop, "strides": stride},
                lambda m, a: a.a[at])


def slice_update(rng):
    dtype = pick(rng, arrays.ALL)
    a = array(rng, arrays.shape(rng, largest=6), dtype, "whole")
    start, stop, stride = slices(rng, a.shape, rng.random() < 0.6)
    part = expected(a.shape, start, stop, stride)
    if rng.random() < 0.3:
        part = tuple(1 if rng.random() < 0.4 else n for n in part)
    if rng.random() < 0.2 and part:
        part = part[1:]
    b = array(rng, part, dtype if rng.random() < 0.7 else
              pick(rng, arrays.ALL), "whole")
    at = tuple(slice(*s) for s in zip(start, stop, stride))
    how = pick(rng, ["", "_add", "_max", "_min", "_prod"])
    args = {"src": a, "update": b, "start": start, "stop": stop,
            "strides": stride}

    def peer(m, a):
        if not how:
            out = m.array(a.src)
            out[at] = a.update.astype(out.dtype)
            return out
        name = {"_add": "add", "_max": "maximum", "_min": "minimum",
                "_prod": "multiply"}[how]
        return getattr(a.src.at[at], name)(a.update.astype(a.src.dtype))
    return Case("slice", f"mlx_slice_update{how}", args, peer, "loose",
                loose=2)


def dynamic(rng):
    """slice_dynamic, slice_update_dynamic."""
    dtype = pick(rng, arrays.ALL)
    a = array(rng, arrays.shape(rng, least_axes=1, empty=0), dtype, "special")
    n = a.ndim
    axes = [int(i) for i in rng.permutation(n)[:int(rng.integers(1, n + 1))]]
    size = [int(rng.integers(1, k + 1)) for k in a.shape]
    start = [int(rng.integers(0, a.shape[i] - size[i] + 1)) for i in axes]
    # Axes without a start begin at 0.
    kind = pick(rng, INDEX[:4])
    begin = Arr(np.array(start), kind)
    signed = [i - n if rng.random() < 0.3 else i for i in axes]
    if rng.random() < 0.5:
        return Case("slice", "mlx_slice_dynamic",
                    {"a": a, "start": begin, "axes": signed,
                     "slice_size": size},
                    lambda m, a: m.slice(a.a, a.start, signed, size))
    b = array(rng, size, dtype if rng.random() < 0.7 else
              pick(rng, arrays.REAL), "whole")
    return Case("slice", "mlx_slice_update_dynamic",
                {"src": a, "update": b, "start": begin, "axes": signed},
                lambda m, a: m.slice_update(a.src, a.update, a.start, signed))


def indices(rng, extents, n, dtype=None):
    dtype = dtype or pick(rng, INDEX)
    low = -n if dtype in arrays.SIGNED and rng.random() < 0.5 else 0
    top = min(n, np.iinfo(dtype).max)
    low = max(low, -128 if dtype == "int8" else -2 ** 15)
    data = rng.integers(low, max(top, 1), extents)
    return Arr(data, dtype, arrays.layout(rng, extents))


def take(rng):
    a = array(rng, arrays.shape(rng, least_axes=1, empty=0),
              pick(rng, arrays.ALL), "special")
    shape = arrays.shape(rng, 3, 5)
    which = int(rng.integers(3))
    if which == 0:
        i = indices(rng, shape, a.size)
        return Case("index", "mlx_take", {"a": a, "indices": i},
                    lambda m, a: m.take(a.a, a.indices))
    axis = int(rng.integers(-a.ndim, a.ndim))
    if which == 1:
        i = indices(rng, shape, a.shape[axis])
        return Case("index", "mlx_take_axis",
                    {"a": a, "indices": i, "axis": axis},
                    lambda m, a: m.take(a.a, a.indices, axis))
    extents = list(a.shape)
    extents[axis] = int(rng.integers(0, 6))
    if rng.random() < 0.2:
        other = int(rng.integers(a.ndim))
        if other != axis % a.ndim:
            extents[other] = 1
    i = indices(rng, extents, a.shape[axis])
    return Case("index", "mlx_take_along_axis",
                {"a": a, "indices": i, "axis": axis},
                lambda m, a: m.take_along_axis(a.a, a.indices, axis))


def put(rng):
    """put_along_axis, scatter_add_axis."""
    dtype = pick(rng, arrays.ALL)
    a = array(rng, arrays.shape(rng, least_axes=1, empty=0), dtype, "whole")
    axis = int(rng.integers(-a.ndim, a.ndim))
    extents = list(a.shape)
    add = rng.random() < 0.4
    n = a.shape[axis]
    if add:
        extents[axis] = int(rng.integers(1, 6))
        i = indices(rng, extents, n)
    else:
        # One value for each place: which of two wins is nobody's promise.
        extents[axis] = int(rng.integers(1, n + 1))
        order = np.argsort(rng.random(a.shape), axis)
        i = Arr(np.take(order, range(extents[axis]), axis),
                pick(rng, ["int32", "uint32", "int64"]))
    v = array(rng, extents, dtype if rng.random() < 0.7 else
              pick(rng, arrays.REAL), "whole")
    args = {"a": a, "indices": i, "values": v, "axis": axis}
    if not add:
        return Case("index", "mlx_put_along_axis", args,
                    lambda m, a: m.put_along_axis(a.a, a.indices,
                                                  a.values, axis))

    def peer(m, a):
        at = list(m.meshgrid(*[m.arange(k) for k in extents],
                             indexing="ij"))
        at[axis] = a.indices.astype(m.int32)
        return a.a.at[tuple(at)].add(a.values.astype(a.a.dtype))
    return Case("index", "mlx_scatter_add_axis", args, peer, "loose",
                loose=4)


def gather(rng):
    """gather over some axes, single; scatter and its kinds likewise."""
    dtype = pick(rng, arrays.ALL)
    a = array(rng, arrays.shape(rng, least_axes=1, empty=0), dtype, "whole")
    n = a.ndim
    count = int(rng.integers(1, n + 1))
    axes = sorted(int(i) for i in rng.permutation(n)[:count])
    shape = arrays.shape(rng, 2, 4, empty=0)
    kind = pick(rng, INDEX)
    single = rng.random() < 0.4
    if single:
        axes = axes[:1]
    index = [indices(rng, shape, a.shape[i], kind) for i in axes]
    if rng.random() < 0.5:
        size = [1 if i in axes else k for i, k in enumerate(a.shape)]
        at = [slice(None)] * n

        def peer(m, a):
            # Leading index axes, then the slice with its extents of 1.
            given = a.indices if isinstance(a.indices, list) else [a.indices]
            out = a.a
            rest = [i for i in range(n) if i not in axes]
            out = m.transpose(out, axes + rest)
            out = out[tuple(i.astype(m.int32) if i.dtype != m.uint32
                            else i for i in given)]
            return out.reshape(list(shape) + size)
        del at
        if single:
            return Case("index", "mlx_gather_single",
                        {"a": a, "indices": index[0], "axis": axes[0],
                         "slice_sizes": size}, peer)
        return Case("index", "mlx_gather",
                    {"a": a, "indices": index, "axes": axes,
                     "slice_sizes": size}, peer)
    how = pick(rng, ["", "_add", "_max", "_min", "_prod"])
    size = [1 if i in axes else k for i, k in enumerate(a.shape)]
    if not how:
        # Distinct places only.
        places = rng.permutation(a.shape[axes[0]])[:math.prod(shape)]
        shape = (len(places),)
        index = [Arr(places if k == 0 else rng.integers(
            0, a.shape[i], len(places)), "int32")
            for k, i in enumerate(axes)]
    v = array(rng, list(shape) + size, dtype, "whole")
    if how == "_prod":
        v = array(rng, list(shape) + size, dtype, "positive")
    rest = [k for i, k in enumerate(a.shape) if i not in axes]

    def peer_scatter(m, a):
        given = a.indices if isinstance(a.indices, list) else [a.indices]
        order = axes + [i for i in range(n) if i not in axes]
        out = m.transpose(a.a, order)
        given = tuple(i.astype(m.int32) for i in given)
        updates = a.updates.reshape(list(shape) + rest)
        if how:
            name = {"_add": "add", "_max": "maximum", "_min": "minimum",
                    "_prod": "multiply"}[how]
            out = getattr(out.at[given], name)(updates)
        else:
            out = m.array(out)
            out[given] = updates
        return m.transpose(out, [int(i) for i in np.argsort(order)])
    if single:
        return Case("index", f"mlx_scatter{how}_single",
                    {"a": a, "indices": index[0], "updates": v,
                     "axis": axes[0]}, peer_scatter, "loose", loose=8)
    return Case("index", f"mlx_scatter{how}",
                {"a": a, "indices": index, "updates": v, "axes": axes},
                peer_scatter, "loose", loose=8)


def masked(rng):
    dtype = pick(rng, arrays.ALL)
    a = array(rng, arrays.shape(rng, least_axes=1), dtype, "special")
    mask = array(rng, a.shape if rng.random() < 0.7 else a.shape[:1], "bool")
    count = int(np.broadcast_to(
        mask.data.reshape(mask.shape + (1,) * (a.ndim - mask.ndim)),
        a.shape).sum())
    src = array(rng, (max(count, 1) + int(rng.integers(0, 3)),), dtype,
                "special")

    def peer(m, a):
        out = m.array(a.a)
        out[a.mask] = a.src[:count] if count else a.src[:0]
        return out
    if count == 0:
        def peer(m, a):  # noqa: F811
            return m.array(a.a)
    if mask.ndim != a.ndim:
        # mlx.core spreads such a mask; the C function wants it spread.
        spread = np.broadcast_to(mask.data.reshape(
            mask.shape + (1,) * (a.ndim - 1)), a.shape)
        mask = Arr(spread, "bool")
    return Case("index", "mlx_masked_scatter",
                {"a": a, "mask": mask, "src": src}, peer)


def axis_errors(rng):
    """Calls that are wrong in one way."""
    a = array(rng, (3, 4), "float32")
    axis = one_axis(rng, 2, 1)
    f = pick(rng, ["take_axis", "take_along_axis", "take_float"])
    i = Arr(np.zeros((3, 1)), "float32" if f == "take_float" else "int32")
    if f == "take_along_axis":
        return Case("error", "mlx_take_along_axis",
                    {"a": a, "indices": i, "axis": axis},
                    lambda m, a: m.take_along_axis(a.a, a.indices, axis))
    return Case("error", "mlx_take_axis",
                {"a": a, "indices": i, "axis": axis},
                lambda m, a: m.take(a.a, a.indices, axis))


GROUPS = [(slice_, 3), (slice_update, 3), (dynamic, 2), (take, 3), (put, 2),
          (gather, 4), (masked, 1), (axis_errors, 1)]
