"""random.h: with the same key, the exact bits."""

import numpy as np

import arrays
from arrays import Arr, array, pick
from case import Case

FLOATS = ["float32", "float32", "float16", "bfloat16"]


def key(rng):
    return Arr(rng.integers(0, 2 ** 32, 2), "uint32")


def bits(rng):
    which = int(rng.integers(4))
    if which == 0:
        seed = int(rng.integers(0, 2 ** 63))
        return Case("random", "mlx_random_key", {"seed": seed},
                    lambda m, a: m.random.key(seed))
    if which == 1:
        num = int(rng.integers(1, 6))
        return Case("random", "mlx_random_split_num",
                    {"key": key(rng), "num": num},
                    lambda m, a: m.random.split(a.key, num))
    if which == 2:
        return Case("random", "mlx_random_split", {"key": key(rng)},
                    lambda m, a: list(m.random.split(a.key)))
    dtype, width = pick(rng, [("uint8", 1), ("uint16", 2), ("uint32", 4)])
    # mlx.core has no `bits`: randint's source is uniform's; compare through
    # bernoulli elsewhere, and here through permutation's sort keys.
    n = int(rng.integers(1, 200))
    del dtype, width
    return Case("random", "mlx_random_permutation_arange",
                {"x": n, "key": key(rng)},
                lambda m, a: m.random.permutation(n, key=a.key))


def uniform(rng):
    shape = list(arrays.shape(rng, 3, 9))
    dtype = pick(rng, FLOATS)
    low, high = Arr(np.array(pick(rng, [0.0, -1.0, 2.5])), dtype), \
        Arr(np.array(pick(rng, [1.0, 3.0, 100.0])), dtype)
    return Case("random", "mlx_random_uniform",
                {"low": low, "high": high, "shape": shape, "dtype": dtype,
                 "key": key(rng)},
                lambda m, a: m.random.uniform(a.low, a.high, shape, a.dtype,
                                              a.key))


def normal(rng):
    shape = list(arrays.shape(rng, 3, 9))
    dtype = pick(rng, FLOATS)
    which = int(rng.integers(5))
    loc, scale = float(pick(rng, [0.0, 2.0])), float(pick(rng, [1.0, 0.5]))
    args = {"shape": shape, "dtype": dtype, "key": key(rng)}
    if which == 0:
        return Case("random", "mlx_random_normal",
                    {**args, "loc": loc, "scale": scale},
                    lambda m, a: m.random.normal(shape, a.dtype, loc, scale,
                                                 a.key), "loose", loose=8, floor=1)
    if which == 1:
        return Case("random", "mlx_random_gumbel", args,
                    lambda m, a: m.random.gumbel(shape, a.dtype, a.key),
                    "loose", loose=8, floor=1)
    if which == 2:
        return Case("random", "mlx_random_laplace",
                    {**args, "loc": loc, "scale": scale},
                    lambda m, a: m.random.laplace(shape, a.dtype, loc, scale,
                                                  a.key), "loose", loose=8, floor=1)
    if which == 3:
        low = Arr(np.array(pick(rng, [-1.0, 0.0, -3.0])), dtype)
        high = Arr(np.array(pick(rng, [1.0, 0.5, 2.0])), dtype)
        return Case("random", "mlx_random_truncated_normal",
                    {**args, "lower": low, "upper": high},
                    lambda m, a: m.random.truncated_normal(
                        a.lower, a.upper, shape, a.dtype, a.key), "loose",
                    loose=64, floor=1)
    return Case("random", "mlx_random_normal_broadcast",
                {**args, "loc": Arr(np.array(loc), dtype),
                 "scale": Arr(np.array(scale), dtype)},
                lambda m, a: m.random.normal(shape, a.dtype, a.loc, a.scale,
                                             a.key), "loose", loose=8, floor=1)


def chosen(rng):
    """randint, bernoulli, permutation, categorical."""
    shape = list(arrays.shape(rng, 3, 9))
    which = int(rng.integers(6))
    if which == 0:
        dtype = pick(rng, ["int32", "uint8", "int64", "uint32", "int16"])
        low = Arr(np.array(int(rng.integers(0, 5))), "int32")
        high = Arr(np.array(int(rng.integers(6, 100))), "int32")
        return Case("random", "mlx_random_randint",
                    {"low": low, "high": high, "shape": shape,
                     "dtype": dtype, "key": key(rng)},
                    lambda m, a: m.random.randint(a.low, a.high, shape,
                                                  a.dtype, a.key))
    if which == 1:
        p = Arr(np.array(pick(rng, [0.0, 0.3, 0.5, 1.0])), "float32")
        return Case("random", "mlx_random_bernoulli",
                    {"p": p, "shape": shape, "key": key(rng)},
                    lambda m, a: m.random.bernoulli(a.p, shape, a.key))
    if which == 2:
        x = array(rng, arrays.shape(rng, 3, 7, empty=0, least_axes=1),
                  pick(rng, arrays.ALL))
        axis = int(rng.integers(-x.ndim, x.ndim))
        return Case("random", "mlx_random_permutation",
                    {"x": x, "axis": axis, "key": key(rng)},
                    lambda m, a: m.random.permutation(a.x, axis, a.key))
    logits = array(rng, arrays.shape(rng, 2, 6, empty=0, least_axes=1),
                   "float32")
    axis = int(rng.integers(-logits.ndim, logits.ndim))
    args = {"logits": logits, "axis": axis, "key": key(rng)}
    if which == 3:
        return Case("random", "mlx_random_categorical", args,
                    lambda m, a: m.random.categorical(a.logits, axis,
                                                      key=a.key))
    if which == 4:
        n = int(rng.integers(1, 6))
        return Case("random", "mlx_random_categorical_num_samples",
                    {"logits_": logits, "axis": axis, "num_samples": n,
                     "key": args["key"]},
                    lambda m, a: m.random.categorical(
                        a.logits_, axis, num_samples=n, key=a.key))
    rest = list(logits.shape)
    del rest[axis]
    shape = [int(rng.integers(1, 4))] + rest
    return Case("random", "mlx_random_categorical_shape",
                {**args, "shape": shape},
                lambda m, a: m.random.categorical(a.logits, axis, shape,
                                                  key=a.key))


GROUPS = [(bits, 2), (uniform, 2), (normal, 3), (chosen, 3)]
