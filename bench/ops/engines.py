"""The three engines behind one interface: arrays from numpy, results back.

quern is reached through its C ABI with ctypes; a call costs about a
microsecond, the cells of cells.py some hundred times that or more.
"""

import ctypes
import os

import numpy as np

NAMES = ("quern", "mlx", "torch")

_DTYPES = {"bool": 0, "uint8": 1, "uint16": 2, "uint32": 3, "uint64": 4,
           "int8": 5, "int16": 6, "int32": 7, "int64": 8, "float16": 9,
           "float32": 10, "float64": 11, "bfloat16": 12, "complex64": 13}


class OptionalInt(ctypes.Structure):
    """mlx_optional_int and mlx_optional_dtype."""

    _fields_ = [("value", ctypes.c_int), ("has_value", ctypes.c_bool)]


class Array:
    """A handle of quern's, freed with the object."""

    __slots__ = ("ctx", "lib")

    def __init__(self, lib, ctx):
        self.lib, self.ctx = lib, ctx

    def __del__(self):
        self.lib.mlx_array_free(self.ctx)


class Quern:
    def __init__(self, library, threads):
        self.lib = lib = ctypes.CDLL(library)
        lib.mlx_array_new_data.restype = ctypes.c_void_p
        lib.mlx_array_shape.restype = ctypes.POINTER(ctypes.c_int)
        lib.mlx_array_ndim.restype = ctypes.c_size_t
        lib.mlx_array_size.restype = ctypes.c_size_t
        lib.mlx_array_data_uint8.restype = ctypes.c_void_p
        lib.mlx_default_cpu_stream_new.restype = ctypes.c_void_p
        lib.mlx_vector_array_new.restype = ctypes.c_void_p
        lib.mlx_vector_array_size.restype = ctypes.c_size_t
        self._data = lib.mlx_array_data_uint8
        self.stream = ctypes.c_void_p(lib.mlx_default_cpu_stream_new())
        if lib.quern_set_threads(threads):
            raise RuntimeError("quern: cannot set threads")

    def array(self, x, dtype=None):
        """From numpy; dtype converts, for types that numpy lacks."""
        x = np.ascontiguousarray(x)
        shape = (ctypes.c_int * x.ndim)(*x.shape)
        ctx = self.lib.mlx_array_new_data(
            ctypes.c_void_p(x.ctypes.data), shape, x.ndim,
            _DTYPES[x.dtype.name])
        made = Array(self.lib, ctypes.c_void_p(ctx))
        if dtype and dtype != x.dtype.name:
            made = self.ready(self.op("astype", made, _DTYPES[dtype]))
        return made

    def op(self, name, *args):
        """mlx_<name>(&res, args..., stream): pending."""
        res = ctypes.c_void_p()
        plain = [a.ctx if isinstance(a, Array) else a for a in args]
        if getattr(self.lib, "mlx_" + name)(ctypes.byref(res), *plain,
                                            self.stream):
            raise RuntimeError("quern: mlx_%s failed" % name)
        return Array(self.lib, res)

    def many(self, name, *args):
        """The same for a function with a list of results."""
        res = ctypes.c_void_p(self.lib.mlx_vector_array_new())
        plain = [a.ctx if isinstance(a, Array) else a for a in args]
        if getattr(self.lib, "mlx_" + name)(ctypes.byref(res), *plain,
                                            self.stream):
            raise RuntimeError("quern: mlx_%s failed" % name)
        out = []
        for i in range(self.lib.mlx_vector_array_size(res)):
            each = ctypes.c_void_p()
            self.lib.mlx_vector_array_get(ctypes.byref(each), res,
                                          ctypes.c_size_t(i))
            out.append(Array(self.lib, each))
        self.lib.mlx_vector_array_free(res)
        return out

    def list(self, *arrays):
        """A mlx_vector_array; it lives as long as the process."""
        made = ctypes.c_void_p(self.lib.mlx_vector_array_new())
        for a in arrays:
            self.lib.mlx_vector_array_append_value(made, a.ctx)
        return made

    def ready(self, a):
        if self.lib.mlx_array_eval(a.ctx):
            raise RuntimeError("quern: evaluation failed")
        return a

    def numpy(self, a):
        """A copy; half types as float32."""
        dtype = self.lib.mlx_array_dtype(a.ctx)
        if dtype in (_DTYPES["bfloat16"], _DTYPES["float16"]):
            a, dtype = self.op("astype", a, _DTYPES["float32"]), 10
        a = self.ready(self.op("contiguous", a, ctypes.c_bool(False)))
        name = [n for n, k in _DTYPES.items() if k == dtype][0]
        ndim = self.lib.mlx_array_ndim(a.ctx)
        shape = tuple(self.lib.mlx_array_shape(a.ctx)[i] for i in range(ndim))
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(name).itemsize
        text = ctypes.string_at(self._data(a.ctx), size)
        return np.frombuffer(text, dtype=name).reshape(shape)


class Mlx:
    def __init__(self):
        import mlx.core as mx
        self.mx = mx
        mx.set_default_device(mx.cpu)

    def type(self, name):
        return getattr(self.mx, "bool_" if name == "bool" else name)

    def array(self, x, dtype=None):
        a = self.mx.array(x)
        if dtype:
            a = a.astype(self.type(dtype))
        self.mx.eval(a)
        return a

    def ready(self, a):
        self.mx.eval(a)
        return a

    def numpy(self, a):
        if a.dtype in (self.mx.bfloat16, self.mx.float16):
            a = a.astype(self.mx.float32)
        return np.array(a)


class Torch:
    def __init__(self, threads):
        # Nothing here uses a GPU; where one is, its libraries stay asleep.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        import torch
        self.torch = torch
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)

    def array(self, x, dtype=None):
        a = self.torch.from_numpy(np.array(x, order="C"))
        return a.to(getattr(self.torch, dtype)) if dtype else a

    def ready(self, a):
        return a

    def numpy(self, a):
        if a.dtype in (self.torch.bfloat16, self.torch.float16):
            a = a.float()
        return a.resolve_conj().contiguous().numpy()
