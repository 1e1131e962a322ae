"""Calls that may be wrong: a case of another group with one array changed in
dtype or shape.  Both sides must refuse it, or both accept it and agree on
dtype and shape.
"""

import numpy as np

import arrays
from arrays import Arr, pick
from groups import create, elementwise, fast, linalg, products, quant, \
    reduce, shapes

# Where mlx.core's function is not the C function's (indexing syntax), or an
# index would lead MLX out of its memory.
ELSEWHERE = ("scatter", "gather", "slice", "pad", "full", "as_strided",
             "number_of_elements", "segmented_mm", "take", "put_along_axis")
SOURCES = [function for module in (elementwise, reduce, shapes, products,
                                   linalg, fast, quant, create)
           for function, _ in module.GROUPS]


def changed(rng, arr):
    """The array with another dtype, an axis more or less, an extent more."""
    which = int(rng.integers(5))
    data = arr.data
    if which < 2:
        return Arr(np.ones(arr.shape), pick(rng, arrays.ALL))
    if which == 2 and data.ndim:
        return Arr.stored(np.take(data, 0, -1) if data.shape[-1] else
                          data.reshape(-1), arr.dtype)
    if which == 3 and data.ndim and data.size:
        axis = int(rng.integers(data.ndim))
        return Arr.stored(np.concatenate(
            [data, np.take(data, [0], axis)], axis), arr.dtype)
    return Arr.stored(data[None], arr.dtype)


def broken(rng):
    while True:
        case = pick(rng, SOURCES)(rng)
        found = [name for name, value in case.args.items()
                 if isinstance(value, Arr)]
        if any(word in case.function for word in ELSEWHERE):
            continue
        if found and not case.transform and case.args[found[0]].size < 2000:
            break
    name = pick(rng, found)
    case.args[name] = changed(rng, case.args[name])
    case.group, case.judge, case.check, case.pick = "error", "error", None, \
        None
    return case


GROUPS = [(broken, 8)]
