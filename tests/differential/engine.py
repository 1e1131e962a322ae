"""The C side: libmlxc.so by ctypes, called by the names of its parameters.

Signatures come from tests/vectors/abi/functions.tsv.  An error that the
library reports becomes the exception Refused with its message.
"""

import ctypes as C
import pathlib

import numpy as np

import arrays
from arrays import Arr

TABLE = pathlib.Path(__file__).resolve().parent.parent / "vectors" / "abi" / \
    "functions.tsv"


class Refused(Exception):
    """The library answered with an error."""


class Handle(C.Structure):
    _fields_ = [("ctx", C.c_void_p)]


class OptionalInt(C.Structure):
    _fields_ = [("value", C.c_int), ("has_value", C.c_bool)]


class OptionalFloat(C.Structure):
    _fields_ = [("value", C.c_float), ("has_value", C.c_bool)]


CLOSURE = C.CFUNCTYPE(C.c_int, C.POINTER(Handle), C.c_void_p, C.c_void_p)
ERROR = C.CFUNCTYPE(None, C.c_char_p, C.c_void_p)
SCALARS = {"int": C.c_int, "bool": C.c_bool, "float": C.c_float,
           "double": C.c_double, "size_t": C.c_size_t,
           "uint64_t": C.c_uint64, "mlx_dtype": C.c_int,
           "mlx_fft_norm": C.c_int, "uintptr_t": C.c_size_t,
           "const char*": C.c_char_p, "mlx_optional_int": OptionalInt,
           "mlx_optional_float": OptionalFloat,
           "mlx_optional_dtype": OptionalInt}
NORMS = {"backward": 0, "ortho": 1, "forward": 2}


def read_table():
    """Function name to [(type, parameter name), ...]."""
    table = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        columns = line.split("\t")
        if len(columns) > 3 and ("(*" in columns[3] or "..." in columns[3]):
            continue
        params = []
        for text in (columns[3].split(",") if len(columns) > 3 else []):
            text = text.strip().rstrip("?")
            if text:
                kind, name = text.rsplit(" ", 1)
                params.append((kind.strip(), name))
        table[columns[1]] = params
    return table


class Engine:
    """One loaded library and its CPU stream."""

    def __init__(self, path):
        self.lib = C.CDLL(str(path))
        self.table = read_table()
        self.message = None
        self.live = []
        self.handler = ERROR(self.on_error)
        self.lib.mlx_set_error_handler.restype = None
        self.lib.mlx_set_error_handler(self.handler, None, None)
        for name in ("mlx_default_cpu_stream_new", "mlx_array_new_data",
                     "mlx_vector_array_new", "mlx_closure_new_func_payload"):
            getattr(self.lib, name).restype = Handle
        for name in ("mlx_array_data_uint8", "mlx_array_shape"):
            getattr(self.lib, name).restype = C.c_void_p
        for name in ("mlx_array_ndim", "mlx_array_size", "mlx_array_nbytes",
                     "mlx_vector_array_size"):
            getattr(self.lib, name).restype = C.c_size_t
        self.stream = self.lib.mlx_default_cpu_stream_new()

    def on_error(self, message, _data):
        self.message = message.decode("utf-8", "replace")

    def check(self, code, what):
        if code != 0:
            message, self.message = self.message, None
            raise Refused(f"{what}: {message or code}")

    # -- handles

    def array(self, arr):
        """A handle of an Arr, in its layout."""
        if arr is None:
            return Handle()
        if isinstance(arr, Handle):
            return arr
        data, views = arr.base()
        extents = (C.c_int * data.ndim)(*data.shape)
        out = self.lib.mlx_array_new_data(
            C.c_void_p(data.ctypes.data), extents, C.c_int(data.ndim),
            C.c_int(arrays.NUMBERS[arr.dtype]))
        if not out.ctx:
            self.check(1, "mlx_array_new_data")
        self.live.append(out)
        for view in views:
            if view[0] == "perm":
                out = self.call("mlx_transpose_axes", a=out, axes=view[1])[0]
            elif view[0] == "slice":
                out = self.call("mlx_slice", a=out, start=view[1],
                                stop=view[2], strides=view[3])[0]
            else:
                out = self.call("mlx_broadcast_to", a=out, shape=view[1])[0]
        return out

    def vector(self, items):
        out = self.lib.mlx_vector_array_new()
        for item in items:
            self.lib.mlx_vector_array_append_value(out, self.array(item))
        return out

    def elements(self, vector):
        """The arrays of a vector, as handles; the vector is freed."""
        out = []
        for i in range(self.lib.mlx_vector_array_size(vector)):
            item = Handle()
            self.check(self.lib.mlx_vector_array_get(
                C.byref(item), vector, C.c_size_t(i)), "mlx_vector_array_get")
            self.live.append(item)
            out.append(item)
        self.lib.mlx_vector_array_free(vector)
        return out

    def free(self):
        """Frees every array that was made since the last call."""
        for handle in self.live:
            self.lib.mlx_array_free(handle)
        self.live = []

    # -- calls

    def call(self, function, **given):
        """Calls a function by parameter names; answers its arrays."""
        args, results, vectors = [], [], []
        params = self.table[function]
        skip = False
        for i, (kind, name) in enumerate(params):
            if skip:
                skip = False
                continue
            if kind == "mlx_array*":
                results.append(Handle())
                args.append(C.byref(results[-1]))
            elif kind == "mlx_vector_array*":
                results.append(Handle())
                vectors.append(len(results) - 1)
                args.append(C.byref(results[-1]))
            elif kind == "const mlx_stream":
                args.append(self.stream)
            elif kind == "const mlx_array":
                args.append(self.array(given.pop(name, None)))
            elif kind == "const mlx_vector_array":
                args.append(self.vector(given.pop(name)))
                vectors.append(args[-1])
            elif kind in ("const int*", "const int64_t*"):
                cell = C.c_int if kind == "const int*" else C.c_int64
                numbers = given.pop(name, None)
                if numbers is None:
                    args += [None, C.c_size_t(0)]
                else:
                    args += [(cell * len(numbers))(*numbers),
                             C.c_size_t(len(numbers))]
                skip = True
            else:
                args.append(self.scalar(kind, given.pop(name)))
        assert not given, f"{function} has no {sorted(given)}"
        code = getattr(self.lib, function)(*args)
        for vector in vectors:
            if isinstance(vector, Handle):
                self.lib.mlx_vector_array_free(vector)
        self.check(code, function)
        out = []
        for i, result in enumerate(results):
            if i in vectors:
                out += self.elements(result)
            else:
                self.live.append(result)
                out.append(result)
        return out

    def scalar(self, kind, value):
        if kind == "mlx_optional_dtype":
            return OptionalInt(0, False) if value is None else \
                OptionalInt(arrays.NUMBERS[value], True)
        if kind == "mlx_optional_int":
            return OptionalInt(value or 0, value is not None)
        if kind == "mlx_optional_float":
            return OptionalFloat(value or 0, value is not None)
        if kind == "mlx_dtype":
            return C.c_int(arrays.NUMBERS[value])
        if kind == "mlx_fft_norm":
            return C.c_int(NORMS[value])
        if kind == "const char*":
            return None if value is None else C.c_char_p(value.encode())
        return SCALARS[kind](value)

    def read(self, handle):
        """Evaluates; the stored elements as an Arr."""
        plain = self.call("mlx_contiguous", a=handle, allow_col_major=False)[0]
        self.check(self.lib.mlx_array_eval(plain), "mlx_array_eval")
        dtype = arrays.NAMES[self.lib.mlx_array_dtype(plain)]
        axes = self.lib.mlx_array_ndim(plain)
        size = self.lib.mlx_array_nbytes(plain)
        extents = ()
        if axes:
            at = self.lib.mlx_array_shape(plain)
            extents = tuple((C.c_int * axes).from_address(at))
        data = b""
        if size:
            data = C.string_at(self.lib.mlx_array_data_uint8(plain), size)
        return Arr.stored(np.frombuffer(data, arrays.storage(dtype))
                          .reshape(extents), dtype)

    # -- transforms

    def closure(self, body):
        """A mlx_closure around a Python function of handles.  Keep both of
        what comes back alive while it is used."""
        def run(result, inputs, _payload):
            try:
                outputs = body(self.borrow(Handle(inputs)))
                vector = self.vector(outputs)
                code = self.lib.mlx_vector_array_set(result, vector)
                self.lib.mlx_vector_array_free(vector)
                return code
            except Refused as error:
                self.inner = str(error)
                return 1
        function = CLOSURE(run)
        self.inner = None
        return self.lib.mlx_closure_new_func_payload(function, None,
                                                     None), function

    def borrow(self, vector):
        out = []
        for i in range(self.lib.mlx_vector_array_size(vector)):
            item = Handle()
            self.lib.mlx_vector_array_get(C.byref(item), vector,
                                          C.c_size_t(i))
            self.live.append(item)
            out.append(item)
        return out

    def transform(self, function, body, *lists):
        """mlx_vjp or mlx_jvp of a function of handles: both vectors."""
        closure, keep = self.closure(body)
        first, second = Handle(), Handle()
        vectors = [self.vector(items) for items in lists]
        code = getattr(self.lib, function)(C.byref(first), C.byref(second),
                                           closure, *vectors)
        for vector in vectors:
            self.lib.mlx_vector_array_free(vector)
        self.lib.mlx_closure_free(closure)
        del keep
        self.check(code, function)
        return self.elements(first) + self.elements(second)

    def vmap(self, body, inputs, in_axes, out_axes):
        closure, keep = self.closure(body)
        traced, outputs, result = Handle(), Handle(), Handle()
        given = self.vector(inputs)
        axes = (C.c_int * len(in_axes))(*in_axes)
        code = self.lib.mlx_detail_vmap_trace(
            C.byref(traced), C.byref(outputs), closure, given, axes,
            C.c_size_t(len(in_axes)))
        self.lib.mlx_closure_free(closure)
        del keep
        if code == 0:
            out_axes = out_axes * self.lib.mlx_vector_array_size(outputs)
            to = (C.c_int * len(out_axes))(*out_axes)
            code = self.lib.mlx_detail_vmap_replace(
                C.byref(result), given, traced, outputs, axes,
                C.c_size_t(len(in_axes)), to, C.c_size_t(len(out_axes)))
            self.lib.mlx_vector_array_free(traced)
            self.lib.mlx_vector_array_free(outputs)
        self.lib.mlx_vector_array_free(given)
        self.check(code, "vmap")
        return self.elements(result)
