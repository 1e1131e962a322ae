"""The MLX side: mlx.core, given the same arrays in the same layouts."""

import mlx.core as mx
import numpy as np

import arrays
from arrays import Arr

DTYPES = {name: getattr(mx, "bool_" if name == "bool" else name)
          for name in arrays.NUMBERS}
NAMES = {value: key for key, value in DTYPES.items()}
mx.set_default_device(mx.cpu)


class Given:
    """A case's arguments as attributes: arrays as mx.array, dtypes as
    mx.Dtype, the rest as they are."""

    def __init__(self, args):
        for name, value in args.items():
            setattr(self, name, convert(value))


def convert(value):
    if isinstance(value, Arr):
        return array(value)
    if isinstance(value, list) and value and isinstance(value[0], Arr):
        return [array(item) for item in value]
    if isinstance(value, str) and value in DTYPES:
        return DTYPES[value]
    return value


def plain(data, dtype):
    """An mx.array of these stored elements."""
    data = np.array(data, order="C")
    if dtype == "bfloat16":
        out = mx.array(data).view(mx.bfloat16)
    elif dtype == "float64":
        out = mx.array(data, dtype=mx.float64)
    else:
        out = mx.array(data)
    if data.ndim == 0 and out.dtype != DTYPES[dtype]:
        out = out.astype(DTYPES[dtype])
    return out.reshape(data.shape)


def array(arr):
    data, views = arr.base()
    out = plain(data, arr.dtype)
    for view in views:
        if view[0] == "perm":
            out = mx.transpose(out, view[1])
        elif view[0] == "slice":
            at = []
            for start, stop, stride in zip(*view[1:]):
                # -n - 1 is "before the first" for the C function, not here.
                at.append(slice(start, None if stride < 0 else stop, stride))
            out = out[tuple(at)]
        else:
            out = mx.broadcast_to(out, view[1])
    return out


def read(out):
    """Evaluates; the stored elements as an Arr."""
    dtype = NAMES[out.dtype]
    out = mx.contiguous(out)
    mx.eval(out)
    if dtype == "bfloat16":
        out = out.view(mx.uint16)
    return Arr.stored(np.array(out), dtype)
