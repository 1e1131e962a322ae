"""Shape operations, pad, tile, roll, repeat, joining and parting."""

import math

import numpy as np

import arrays
from arrays import array, pick
from case import Case
from groups.reduce import one_axis, some_axes


def some(rng, least=0, most=4):
    """An array of any dtype; now and then a large one."""
    extents = arrays.large(rng, 50_000) if rng.random() < 0.03 else \
        arrays.shape(rng, most, least_axes=least)
    return array(rng, extents, pick(rng, arrays.ALL), "special")


def factors(rng, size):
    """A shape of this many elements."""
    out = []
    while size > 1 and len(out) < 4:
        choices = [d for d in range(1, size + 1) if size % d == 0]
        out.append(int(pick(rng, choices)))
        size //= out[-1]
    return out + [size] if size > 1 or not out else out


def reshape(rng):
    a = some(rng)
    if a.size > 4000:
        shape = [a.size]
    elif a.size == 0:
        shape = pick(rng, [[0], [0, 3], [2, 0], [-1], [1]])
    else:
        shape = factors(rng, a.size)
    if rng.random() < 0.2:
        shape[int(rng.integers(len(shape)))] = -1
    if rng.random() < 0.05:
        shape = shape + [2]
    if a.size == 1 and rng.random() < 0.3:
        shape = []
    return Case("shape", "mlx_reshape", {"a": a, "shape": shape},
                lambda m, a: m.reshape(a.a, shape))


def rearrange(rng):
    """transpose, swapaxes, moveaxis, flatten, unflatten, squeeze,
    expand_dims, atleast, flip."""
    a = some(rng)
    n = a.ndim
    which = int(rng.integers(14))
    if which == 0:
        axes = [int(i) for i in rng.permutation(n)]
        axes = [i - n if rng.random() < 0.3 else i for i in axes]
        return Case("shape", "mlx_transpose_axes", {"a": a, "axes": axes},
                    lambda m, a: m.transpose(a.a, axes))
    if which == 1:
        return Case("shape", "mlx_transpose", {"a": a},
                    lambda m, a: m.transpose(a.a))
    i, j = one_axis(rng, n, 0.05), one_axis(rng, n)
    if which == 2:
        return Case("shape", "mlx_swapaxes",
                    {"a": a, "axis1": i, "axis2": j},
                    lambda m, a: m.swapaxes(a.a, i, j))
    if which == 3:
        return Case("shape", "mlx_moveaxis",
                    {"a": a, "source": i, "destination": j},
                    lambda m, a: m.moveaxis(a.a, i, j))
    if which == 4:
        return Case("shape", "mlx_flatten",
                    {"a": a, "start_axis": i, "end_axis": j},
                    lambda m, a: m.flatten(a.a, i, j))
    if which == 5:
        axis = one_axis(rng, n)
        extent = a.shape[axis] if n and -n <= axis < n else 4
        shape = factors(rng, extent) if extent < 4000 else [extent]
        if rng.random() < 0.2:
            shape[0] = -1
        return Case("shape", "mlx_unflatten",
                    {"a": a, "axis": axis, "shape": shape},
                    lambda m, a: m.unflatten(a.a, axis, shape))
    if which in (6, 7):
        extents = [1 if rng.random() < 0.5 else k for k in a.shape]
        b = array(rng, extents, a.dtype, "special")
        ones = [k for k, e in enumerate(extents) if e == 1]
        if which == 6:
            axes = [k for k in ones if rng.random() < 0.7]
            if rng.random() < 0.05:
                axes.append(one_axis(rng, n))
            return Case("shape", "mlx_squeeze_axes", {"a": b, "axes": axes},
                        lambda m, a: m.squeeze(a.a, axes))
        if rng.random() < 0.5 or not ones:
            return Case("shape", "mlx_squeeze", {"a": b},
                        lambda m, a: m.squeeze(a.a))
        axis = pick(rng, ones)
        return Case("shape", "mlx_squeeze_axis", {"a": b, "axis": axis},
                    lambda m, a: m.squeeze(a.a, axis))
    if which == 8:
        axis = int(rng.integers(-n - 2, n + 2))
        return Case("shape", "mlx_expand_dims", {"a": a, "axis": axis},
                    lambda m, a: m.expand_dims(a.a, axis))
    if which == 9:
        axes = some_axes(rng, n + 2)[:2]
        return Case("shape", "mlx_expand_dims_axes", {"a": a, "axes": axes},
                    lambda m, a: m.expand_dims(a.a, axes))
    if which == 10:
        k = int(rng.integers(1, 4))
        return Case("shape", f"mlx_atleast_{k}d", {"a": a},
                    lambda m, a: getattr(m, f"atleast_{k}d")(a.a))
    if which == 11:
        return Case("shape", "mlx_flip", {"a": a}, lambda m, a: m.flip(a.a))
    if which == 12:
        return Case("shape", "mlx_flip_axis", {"a": a, "axis": i},
                    lambda m, a: m.flip(a.a, i))
    axes = some_axes(rng, n)
    return Case("shape", "mlx_flip_axes", {"a": a, "axes": axes},
                lambda m, a: m.flip(a.a, axes))


def broadcast(rng):
    if rng.random() < 0.4:
        from groups.elementwise import pair
        shapes = list(pair(rng)) + [pair(rng)[0]][:int(rng.random() < .1)]
        some_arrays = [array(rng, s, pick(rng, arrays.ALL)) for s in shapes]
        return Case("shape", "mlx_broadcast_arrays", {"inputs": some_arrays},
                    lambda m, a: list(m.broadcast_arrays(*a.inputs)))
    full = arrays.shape(rng, 4, 6)
    own = [1 if rng.random() < 0.4 else n for n in full]
    own = own[int(rng.integers(0, len(own) + 1)):]
    if rng.random() < 0.05:
        full = full + (3,)
    a = array(rng, own, pick(rng, arrays.ALL), "special")
    return Case("shape", "mlx_broadcast_to", {"a": a, "shape": list(full)},
                lambda m, a: m.broadcast_to(a.a, full))


def pad(rng):
    a = some(rng, 1)
    n = a.ndim
    mode = pick(rng, ["constant", "constant", "edge", "reflect"])
    value = array(rng, (), a.dtype if rng.random() < 0.8 else
                  pick(rng, arrays.ALL))
    if rng.random() < 0.25:
        width = int(rng.integers(0, 4))
        return Case("arrange", "mlx_pad_symmetric",
                    {"a": a, "pad_width": width, "pad_value": value,
                     "mode": mode},
                    lambda m, a: m.pad(a.a, width, mode, a.pad_value))
    low = [int(i) for i in rng.integers(0, 4, n)]
    high = [int(i) for i in rng.integers(0, 4, n)]
    if rng.random() < 0.03:
        low[0] = -1
    return Case("arrange", "mlx_pad",
                {"a": a, "axes": list(range(n)), "low_pad_size": low,
                 "high_pad_size": high, "pad_value": value, "mode": mode},
                lambda m, a: m.pad(a.a, list(zip(low, high)), mode,
                                   a.pad_value))


def repeated(rng):
    """tile, repeat, roll."""
    a = some(rng)
    n = a.ndim
    which = int(rng.integers(6))
    if which == 0:
        reps = [int(i) for i in rng.integers(0, 4, int(rng.integers(0, 5)))]
        if rng.random() < 0.7:
            reps = [max(1, r) for r in reps]
        if a.size > 5000:
            reps = reps[:1]
        return Case("arrange", "mlx_tile", {"arr": a, "reps": reps},
                    lambda m, a: m.tile(a.arr, reps))
    k = int(rng.integers(0, 4))
    axis = one_axis(rng, n)
    if which == 1:
        return Case("arrange", "mlx_repeat_axis",
                    {"arr": a, "repeats": k, "axis": axis},
                    lambda m, a: m.repeat(a.arr, k, axis))
    if which == 2:
        return Case("arrange", "mlx_repeat", {"arr": a, "repeats": k},
                    lambda m, a: m.repeat(a.arr, k))
    shift = [int(rng.integers(-9, 10))]
    if which == 3:
        return Case("arrange", "mlx_roll", {"a": a, "shift": shift},
                    lambda m, a: m.roll(a.a, shift[0]))
    if which == 4:
        return Case("arrange", "mlx_roll_axis",
                    {"a": a, "shift": shift, "axis": axis},
                    lambda m, a: m.roll(a.a, shift[0], axis))
    axes = some_axes(rng, n) or [axis]
    shifts = [int(rng.integers(-9, 10)) for _ in axes]
    return Case("arrange", "mlx_roll_axes",
                {"a": a, "shift": shifts, "axes": axes},
                lambda m, a: m.roll(a.a, shifts, axes))


def joined(rng):
    """concatenate, stack, split, unstack, meshgrid."""
    a = some(rng, 1)
    n = a.ndim
    axis = one_axis(rng, n)
    which = int(rng.integers(9))
    if which < 4:
        others = [a]
        for _ in range(int(rng.integers(0, 3))):
            extents = list(a.shape)
            along = 0 if which == 0 else axis
            if which in (0, 1) and -n <= along < n:
                extents[along] = int(rng.integers(0, 4))
            if rng.random() < 0.02:
                extents.append(2)
            others.append(array(rng, extents, a.dtype if rng.random() < 0.6
                                else pick(rng, arrays.ALL)))
        if which == 0:
            return Case("join", "mlx_concatenate", {"arrays": others},
                        lambda m, a: m.concatenate(a.arrays))
        if which == 1:
            return Case("join", "mlx_concatenate_axis",
                        {"arrays": others, "axis": axis},
                        lambda m, a: m.concatenate(a.arrays, axis))
        if which == 2:
            return Case("join", "mlx_stack", {"arrays": others},
                        lambda m, a: m.stack(a.arrays))
        return Case("join", "mlx_stack_axis",
                    {"arrays": others, "axis": axis},
                    lambda m, a: m.stack(a.arrays, axis))
    extent = a.shape[axis] if -n <= axis < n else 3
    if which == 4:
        parts = int(pick(rng, [d for d in range(1, extent + 1)
                               if extent % d == 0 and d < 50] or [1]))
        if rng.random() < 0.05:
            parts += 1
        return Case("join", "mlx_split",
                    {"a": a, "num_splits": parts, "axis": axis},
                    lambda m, a: m.split(a.a, parts, axis))
    if which == 5:
        cuts = sorted(int(i) for i in
                      rng.integers(0, extent + 1, int(rng.integers(0, 4))))
        return Case("join", "mlx_split_sections",
                    {"a": a, "indices": cuts, "axis": axis},
                    lambda m, a: m.split(a.a, cuts, axis))
    if a.size > 4000:
        a = array(rng, arrays.shape(rng, 3, least_axes=1), a.dtype)
        axis = -1
    if which == 6:
        return Case("join", "mlx_unstack", {"a": a},
                    lambda m, a: m.unstack(a.a))
    if which == 7:
        return Case("join", "mlx_unstack_axis", {"a": a, "axis": axis},
                    lambda m, a: m.unstack(a.a, axis=axis))
    inputs = [array(rng, (int(rng.integers(1, 5)),), pick(rng, arrays.ALL))
              for _ in range(int(rng.integers(1, 4)))]
    sparse = bool(rng.random() < 0.5)
    indexing = pick(rng, ["xy", "ij"])
    return Case("join", "mlx_meshgrid",
                {"arrays": inputs, "sparse": sparse, "indexing": indexing},
                lambda m, a: m.meshgrid(*a.arrays, sparse=sparse,
                                        indexing=indexing))


def diagonals(rng):
    """diag, diagonal, trace, tri*, diff, kron, contiguous, as_strided."""
    a = some(rng, 1, 3)
    n = a.ndim
    k = int(rng.integers(-3, 4))
    which = int(rng.integers(10))
    if which == 0:
        b = array(rng, arrays.shape(rng, 2, least_axes=1), a.dtype)
        return Case("diagonal", "mlx_diag", {"a": b, "k": k},
                    lambda m, a: m.diag(a.a, k))
    b = array(rng, arrays.shape(rng, 4, least_axes=2), a.dtype, "special")
    n = b.ndim
    i, j = (int(v) for v in rng.permutation(n)[:2])
    if rng.random() < 0.3:
        i -= n
    if which == 1:
        return Case("diagonal", "mlx_diagonal",
                    {"a": b, "offset": k, "axis1": i, "axis2": j},
                    lambda m, a: m.diagonal(a.a, k, i, j))
    tame = array(rng, b.shape, b.dtype, "whole")
    if which == 2:
        return Case("diagonal", "mlx_trace", {"a": tame},
                    lambda m, a: m.trace(a.a), "loose")
    if which == 3:
        return Case("diagonal", "mlx_trace_axes",
                    {"a": tame, "offset": k, "axis1": i, "axis2": j,
                     "dtype": b.dtype},
                    lambda m, a: m.trace(a.a, k, i, j, a.dtype), "loose")
    if which in (4, 5):
        name = "tril" if which == 4 else "triu"
        return Case("diagonal", f"mlx_{name}", {"x": b, "k": k},
                    lambda m, a: getattr(m, name)(a.x, k))
    if which == 6:
        times = int(rng.integers(0, 4))
        axis = one_axis(rng, n)
        return Case("diagonal", "mlx_diff",
                    {"a": tame, "n": times, "axis": axis},
                    lambda m, a: m.diff(a.a, times, axis))
    if which == 7:
        c = array(rng, arrays.shape(rng, 2, 4), pick(rng, arrays.ALL))
        d = array(rng, arrays.shape(rng, 3, 4), pick(rng, arrays.ALL))
        return Case("diagonal", "mlx_kron", {"a": c, "b": d},
                    lambda m, a: m.kron(a.a, a.b), "each",
                    lambda n: np.kron(n.a, n.b))
    if which == 8:
        column = bool(rng.random() < 0.5)
        return Case("diagonal", "mlx_contiguous",
                    {"a": b, "allow_col_major": column},
                    lambda m, a: m.contiguous(a.a, column))
    size = b.size
    if size < 4:
        b = array(rng, (4, 6), a.dtype)
        size = 24
    offset = int(rng.integers(0, size // 2 + 1))
    left = size - offset
    rows = int(rng.integers(1, 4))
    stride = int(rng.integers(0, max(1, left // rows)))
    columns = int(rng.integers(1, max(2, left - stride * (rows - 1))))
    columns = min(columns, left - stride * (rows - 1))
    return Case("diagonal", "mlx_as_strided",
                {"a": b, "shape": [rows, columns], "strides": [stride, 1],
                 "offset": offset},
                lambda m, a: m.as_strided(a.a, [rows, columns], [stride, 1],
                                          offset))


def counted(rng):
    a = some(rng, 1)
    axes = some_axes(rng, a.ndim)
    inverted = bool(rng.random() < 0.3)
    dtype = pick(rng, ["int32", "float32", "uint8", "int64", "float16"])
    count = math.prod(a.shape[i] for i in axes)

    def peer(m, a):
        value = m.array(float(count)) if not inverted else \
            1.0 / m.array(float(count))
        return value.astype(a.dtype)
    if inverted and (count == 0 or "int" in dtype):
        inverted = False
    return Case("shape", "mlx_number_of_elements",
                {"a": a, "axes": axes, "inverted": inverted, "dtype": dtype},
                peer, "loose", loose=1)


GROUPS = [(reshape, 2), (rearrange, 4), (broadcast, 2), (pad, 2),
          (repeated, 3), (joined, 4), (diagonals, 3), (counted, 1)]
