"""Arrays as both sides are given them, and the numbers that go in.

An Arr is a value in numpy (logical, row-major) together with the way it is to
lie in memory: plain, transposed, every other element of a larger one,
reversed, broadcast from an extent of 1.  Both sides rebuild that layout from a
plain buffer with their own views.  bfloat16, which numpy lacks, is kept as its
16 bits.
"""

import numpy as np

NUMBERS = {
    "bool": 0, "uint8": 1, "uint16": 2, "uint32": 3, "uint64": 4,
    "int8": 5, "int16": 6, "int32": 7, "int64": 8, "float16": 9,
    "float32": 10, "float64": 11, "bfloat16": 12, "complex64": 13,
}
NAMES = {number: name for name, number in NUMBERS.items()}
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
SIGNED = ["int8", "int16", "int32", "int64"]
INTS = UNSIGNED + SIGNED
HALVES = ["float16", "bfloat16"]
FLOATS = ["float32", "float16", "bfloat16", "float64"]
ALL = ["bool"] + INTS + FLOATS + ["complex64"]
REAL = ["bool"] + INTS + FLOATS

# Bits of the significand, and the exponent of the smallest denormal.
SIGNIFICAND = {"float16": (11, -24), "bfloat16": (8, -133),
               "float32": (24, -149), "float64": (53, -1074),
               "complex64": (24, -149)}
LARGEST = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38,
           "float32": 3.4028234663852886e38, "float64": 1.7976931348623157e308}


def storage(dtype):
    """The numpy type that holds an element's bits."""
    if dtype == "bfloat16":
        return np.dtype("uint16")
    return np.dtype("bool" if dtype == "bool" else dtype)


def is_float(dtype):
    return dtype in SIGNIFICAND and dtype != "complex64"


def is_inexact(dtype):
    return dtype in SIGNIFICAND


def to_bfloat16(values):
    """float64 to the bits of bfloat16, rounded once, to even."""
    values = np.asarray(values, np.float64)
    with np.errstate(all="ignore"):
        rounded = round_to(values, "bfloat16").astype(np.float32)
    return (rounded.view(np.uint32) >> 16).astype(np.uint16)


def from_bfloat16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def round_to(values, dtype):
    """float64 values rounded once to what dtype can hold, as float64."""
    values = np.asarray(values, np.float64)
    if dtype == "float64":
        return values
    with np.errstate(all="ignore"):
        unit = ulp(values, dtype)
        scaled = np.where(np.isfinite(values), np.rint(values / unit) * unit,
                          values)
        over = np.abs(scaled) > LARGEST[dtype]
        return np.where(over & np.isfinite(values),
                        np.copysign(np.inf, values),
                        np.copysign(scaled, values))


def ulp(values, dtype):
    """The spacing of dtype at each (float64) value."""
    bits, lowest = SIGNIFICAND[dtype]
    magnitude = np.abs(np.asarray(values, np.float64))
    limit = LARGEST["float32" if dtype == "complex64" else dtype]
    finite = np.where(np.isfinite(magnitude), np.minimum(magnitude, limit),
                      limit)
    exponent = np.frexp(finite)[1]
    exponent = np.maximum(np.where(finite == 0, -10000, exponent) - bits,
                          lowest)
    return np.ldexp(1.0, exponent)


def widen(data, dtype):
    """Stored elements as numpy numbers: floats as float64, complex as
    complex128, the others as they are."""
    if dtype == "bfloat16":
        return from_bfloat16(data).astype(np.float64)
    if dtype == "complex64":
        return data.astype(np.complex128)
    if is_float(dtype):
        return data.astype(np.float64)
    return data


def narrow(values, dtype):
    """Numbers as stored elements of dtype."""
    values = np.asarray(values)
    with np.errstate(all="ignore"):
        if dtype == "bfloat16":
            return to_bfloat16(values.real.astype(np.float64))
        if dtype in INTS and values.dtype.kind == "f":
            info = np.iinfo(dtype)
            clean = np.nan_to_num(values, nan=0)
            clean = np.clip(clean, float(info.min), float(info.max) * 0.999)
            return clean.astype(dtype)
        if dtype != "complex64" and values.dtype.kind == "c":
            values = values.real
        return values.astype(storage(dtype))


class Arr:
    """One array argument: `data` (stored elements), `dtype`, `layout`."""

    def __init__(self, values, dtype, layout=()):
        self.dtype = dtype
        self.data = np.array(narrow(values, dtype), order="C")
        self.layout = list(layout)

    @classmethod
    def stored(cls, data, dtype, layout=()):
        out = cls.__new__(cls)
        out.dtype, out.layout = dtype, list(layout)
        out.data = np.array(data, order="C")
        return out

    @property
    def shape(self):
        return self.data.shape

    @property
    def ndim(self):
        return self.data.ndim

    @property
    def size(self):
        return self.data.size

    def wide(self):
        return widen(self.data, self.dtype)

    def cast(self, dtype):
        """The same values in another dtype, in the same layout."""
        return Arr(self.wide(), dtype, self.layout)

    def base(self):
        """The buffer to hand over, and the views that lead from it to the
        logical array: ("perm", axes), ("slice", start, stop, stride),
        ("broadcast", shape)."""
        data, views = self.data, []
        # Later layouts lie further from the buffer, so peel from the end.
        for kind, axis in reversed(self.layout):
            shape = data.shape
            if kind == "perm":
                views.append(("perm", tuple(np.argsort(axis))))
                data = np.ascontiguousarray(np.transpose(data, axis))
            elif kind == "step":
                wide = list(shape)
                wide[axis] = 2 * shape[axis] + 1
                out = np.zeros(wide, data.dtype)
                at = [slice(None)] * len(shape)
                at[axis] = slice(1, None, 2)
                out[tuple(at)] = data
                start = [0] * len(shape)
                stride = [1] * len(shape)
                start[axis], stride[axis] = 1, 2
                views.append(("slice", start, wide, stride))
                data = out
            elif kind == "offset":
                wide = list(shape)
                wide[axis] = shape[axis] + 3
                out = np.zeros(wide, data.dtype)
                at = [slice(None)] * len(shape)
                at[axis] = slice(2, 2 + shape[axis])
                out[tuple(at)] = data
                start = [0] * len(shape)
                stop = list(shape)
                start[axis], stop[axis] = 2, 2 + shape[axis]
                views.append(("slice", start, stop, [1] * len(shape)))
                data = out
            elif kind == "reverse":
                start = [0] * len(shape)
                stop = list(shape)
                stride = [1] * len(shape)
                start[axis] = shape[axis] - 1
                stop[axis], stride[axis] = -shape[axis] - 1, -1
                views.append(("slice", start, stop, stride))
                data = np.flip(data, axis)
            elif kind == "broadcast":
                at = [slice(None)] * len(shape)
                at[axis] = slice(0, 1)
                views.append(("broadcast", shape))
                data = data[tuple(at)]
        return np.array(data, order="C"), list(reversed(views))

    def __repr__(self):
        text = f"{self.dtype}{list(self.shape)}"
        if self.layout:
            text += " " + "+".join(f"{kind}({axis})"
                                   for kind, axis in self.layout)
        if self.size <= 32:
            text += f" {self.wide().tolist()}"
        return text


# --- what is drawn ---------------------------------------------------------

def shape(rng, most_axes=4, largest=7, empty=0.04, least_axes=0):
    """A small shape: 0-d, 1-d ... with an extent of 0 now and then."""
    axes = int(rng.integers(least_axes, most_axes + 1))
    out = [int(rng.integers(1, largest + 1)) for _ in range(axes)]
    if axes and rng.random() < empty:
        out[int(rng.integers(axes))] = 0
    return tuple(out)


def large(rng, cells=200_000):
    """A shape of one to three axes with up to about `cells` elements."""
    axes = int(rng.integers(1, 4))
    total = int(10 ** rng.uniform(3, np.log10(cells)))
    out = []
    for left in range(axes, 1, -1):
        extent = int(max(1, round(total ** (1 / left) *
                                  rng.uniform(0.3, 2))))
        out.append(extent)
        total = max(1, total // extent)
    out.append(total)
    rng.shuffle(out)
    return tuple(int(n) for n in out)


def layout(rng, extents, chance=0.4):
    """A way to lie in memory for an array of this shape."""
    axes = len(extents)
    if not axes or rng.random() > chance or 0 in extents:
        return []
    kinds = ["step", "reverse", "offset"]
    if axes > 1:
        kinds += ["perm", "perm"]
    out = []
    for _ in range(1 + (rng.random() < 0.25)):
        kind = kinds[int(rng.integers(len(kinds)))]
        if kind == "perm":
            out.append(("perm", tuple(int(i) for i in rng.permutation(axes))))
        else:
            out.append((kind, int(rng.integers(axes))))
    return out


def floats(rng, extents, dtype, mode):
    """float64 values in a manner: tame, wide, unit, positive, whole, special.
    """
    n = int(np.prod(extents)) if extents else 1
    if mode == "tame":
        out = rng.standard_normal(n)
    elif mode == "unit":
        out = rng.uniform(-1, 1, n)
    elif mode == "positive":
        out = np.abs(rng.standard_normal(n)) + 0.01
    elif mode == "whole":
        out = rng.integers(-6, 7, n).astype(np.float64)
    elif mode == "wide":
        out = rng.standard_normal(n) * 10.0 ** rng.uniform(-6, 5, n)
    else:
        bits, lowest = SIGNIFICAND[dtype]
        top = LARGEST["float32" if dtype == "complex64" else dtype]
        pool = np.array([0.0, -0.0, 1, -1, 2, 0.5, -0.5, 3, -7, 10, 100,
                         np.inf, -np.inf, np.nan, top, -top, top / 2,
                         2.0 ** lowest, -(2.0 ** lowest), 3 * 2.0 ** lowest,
                         2.0 ** (lowest + bits - 1),
                         2.0 ** (lowest + bits + 3), 2.0 ** -bits,
                         1 + 2.0 ** (1 - bits), 1 - 2.0 ** -bits, 1.5, 2.5,
                         -2.5, 88.7, -88.7, 1e4, 3e9, 710.0, -745.0, 0.1])
        out = pool[rng.integers(0, len(pool), n)]
        some = rng.random(n) < 0.3
        out = np.where(some, rng.standard_normal(n), out)
    return out.reshape(extents)


def integers(rng, extents, dtype, mode):
    info = np.iinfo(dtype)
    n = int(np.prod(extents)) if extents else 1
    if mode in ("special", "wide"):
        small = rng.integers(max(info.min, -8), 9, n).astype(dtype)
        ends = np.array([info.min, info.max, info.max - 1, 0, 1,
                         max(info.min, -1) if info.min else info.max // 2],
                        dtype=dtype)
        picked = ends[rng.integers(0, len(ends), n)]
        whole = rng.integers(info.min, info.max, n, dtype=dtype,
                             endpoint=True)
        which = rng.random(n)
        out = np.where(which < 0.4, small,
                       np.where(which < 0.7, picked, whole))
    elif mode == "positive":
        out = rng.integers(1, 12, n).astype(dtype)
    else:
        out = rng.integers(max(info.min, -9), 10, n).astype(dtype)
    return out.reshape(extents)


def values(rng, extents, dtype, mode="tame"):
    """Stored elements of dtype."""
    if dtype == "bool":
        return rng.random(extents) < 0.5 if extents else \
            np.array(rng.random() < 0.5)
    if dtype in INTS:
        return integers(rng, extents, dtype, mode)
    if dtype == "complex64":
        with np.errstate(all="ignore"):
            real = floats(rng, extents, dtype, mode).astype(np.float32)
            imag = floats(rng, extents, dtype, mode).astype(np.float32)
            out = np.empty(real.shape, np.complex64)
            out.real, out.imag = real, imag
        return out
    return narrow(floats(rng, extents, dtype, mode), dtype)


def array(rng, extents, dtype, mode="tame", strided=0.4):
    """An Arr of this shape and dtype with drawn values and layout."""
    data = values(rng, tuple(extents), dtype, mode)
    how = layout(rng, extents, strided)
    if not how and strided and len(extents) and 0 not in extents and \
            rng.random() < 0.06:
        axis = int(rng.integers(len(extents)))
        data = np.repeat(np.take(data, [0], axis), extents[axis], axis)
        how = [("broadcast", axis)]
    return Arr.stored(data, dtype, how)


def pick(rng, things):
    return things[int(rng.integers(len(things)))]
