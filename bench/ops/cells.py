"""What is measured: one cell is one operation on one kind of array.

Each cell tells how much it moves or computes at least, which bandwidth of the
machine it is held to, and how each engine does it.  Arrays that a cell streams
through are larger than the caches.
"""

import ctypes
import functools

import numpy as np

from engines import OptionalInt

BOOL = ctypes.c_bool
FLOAT = ctypes.c_float
LENGTH = ctypes.c_size_t


class Cell:
    """`make(engines)` returns a function per engine; each computes its result
    and returns it evaluated.  The wanted share of `meter` is a check
    if `checked`.  Results of engines in `unlike` are not compared."""

    def __init__(self, group, name, make, read=0, written=0, flops=0,
                 meter=None, checked=False, tolerance=1e-4, unlike=()):
        self.group, self.name, self.make = group, name, make
        self.bytes, self.flops = read + written, flops
        self.meter, self.checked = meter, checked
        self.tolerance, self.unlike = tolerance, unlike


def rng():
    return np.random.default_rng(5)


@functools.lru_cache(maxsize=6)
def floats(*shape, low=-1.0, high=1.0):
    return rng().uniform(low, high, shape).astype(np.float32)


@functools.lru_cache(maxsize=2)
def integers(*shape, top=1 << 20):
    return rng().integers(-top, top, shape, dtype=np.int32)


def three(e, inputs, dtypes, quern, mlx, torch):
    """Functions of the same inputs in each engine's own arrays."""
    def bind(engine, work):
        if engine is None:
            return None
        arrays = [engine.array(x, d) for x, d in zip(inputs, dtypes)]
        return lambda: engine.ready(work(engine, *arrays))
    return {"quern": bind(e["quern"], quern), "mlx": bind(e["mlx"], mlx),
            "torch": bind(e["torch"], torch)}


SIZE = {"float32": 4, "float16": 2, "bfloat16": 2, "int32": 4, "int8": 1,
        "bool": 1, "uint8": 1, "int64": 8, "complex64": 8}
WHOLE = (4096, 4096)
COUNT = WHOLE[0] * WHOLE[1]


# ---- element by element ----

def elementwise(name, op, inputs, dtypes, mlx, torch, out=None, group=None,
                bound=True, **more):
    def make(e):
        arrays = [x() for x in inputs]
        return three(e, arrays, dtypes, lambda q, *a: q.op(op, *a), mlx, torch)
    read = sum(COUNT * SIZE[d] for x, d in zip(inputs, dtypes)
               if x not in (row, scalar))
    written = COUNT * SIZE[out or dtypes[-1]]
    meter = "copy" if len(inputs) == 1 or read <= written else "add"
    return Cell(group or "elementwise", name, make, read, written,
                meter=meter, checked=bound, **more)


def whole():
    return floats(*WHOLE)


def other():
    return np.roll(whole(), 5, 0)


def positive():
    return floats(*WHOLE, low=0.01, high=10.0)


def wide():
    return floats(*WHOLE, low=-10.0, high=10.0)


def row():
    return floats(WHOLE[1])


def scalar():
    return np.float32(1.5).reshape(())


def whole_int():
    return integers(*WHOLE)


def other_int():
    return np.roll(whole_int(), 5, 0)


def condition():
    return floats(*WHOLE) < 0


def binary_cells():
    two = [whole, other]
    for dtype in ("float32", "bfloat16", "float16"):
        yield elementwise("add " + dtype, "add", two, [dtype] * 2,
                          lambda m, a, b: m.mx.add(a, b),
                          lambda t, a, b: t.torch.add(a, b))
    f, i = ["float32"] * 2, ["int32"] * 2
    yield elementwise("multiply float32, scalar", "multiply",
                      [whole, scalar], f, lambda m, a, b: a * b,
                      lambda t, a, b: a * b)
    yield elementwise("add float32, row", "add", [whole, row], f,
                      lambda m, a, b: a + b, lambda t, a, b: a + b)
    yield elementwise("divide float32", "divide", [whole, positive], f,
                      lambda m, a, b: a / b, lambda t, a, b: a / b)
    yield elementwise("maximum float32", "maximum", two, f,
                      lambda m, a, b: m.mx.maximum(a, b),
                      lambda t, a, b: t.torch.maximum(a, b))
    yield elementwise("add int32", "add", [whole_int, other_int], i,
                      lambda m, a, b: a + b, lambda t, a, b: a + b)
    yield elementwise("bitwise_and int32", "bitwise_and",
                      [whole_int, other_int], i,
                      lambda m, a, b: a & b, lambda t, a, b: a & b)
    yield elementwise("less float32", "less", two, f,
                      lambda m, a, b: a < b, lambda t, a, b: a < b, "bool")
    yield elementwise("equal int32", "equal", [whole_int, other_int], i,
                      lambda m, a, b: a == b, lambda t, a, b: a == b, "bool")


def unary_cells():
    for op, torch in (("abs", "abs"), ("negative", "neg"),
                      ("square", "square"), ("floor", "floor")):
        yield elementwise(
            op + " float32", op, [whole], ["float32"],
            lambda m, a, op=op: getattr(m.mx, op)(a),
            lambda t, a, torch=torch: getattr(t.torch, torch)(a))
    yield elementwise("sqrt float32", "sqrt", [positive], ["float32"],
                      lambda m, a: m.mx.sqrt(a), lambda t, a: t.torch.sqrt(a))
    yield elementwise("abs int32", "abs", [whole_int], ["int32"],
                      lambda m, a: m.mx.abs(a), lambda t, a: t.torch.abs(a))


def cast(source, target):
    def make(e):
        numbers = {"bool": 0, "int32": 7, "float16": 9, "float32": 10,
                   "bfloat16": 12, "int8": 5}
        x = whole_int() if source == "int32" else floats(*WHOLE, high=100.0)
        return three(e, [x], [source],
                     lambda q, a: q.op("astype", a, numbers[target]),
                     lambda m, a: a.astype(m.type(target)),
                     lambda t, a: a.to(getattr(t.torch, target)))
    return Cell("elementwise", "%s to %s" % (source, target), make,
                COUNT * SIZE[source], COUNT * SIZE[target], meter="copy",
                checked=True)


def where():
    def make(e):
        return three(e, [condition(), whole(), other()], [None] * 3,
                     lambda q, c, a, b: q.op("where", c, a, b),
                     lambda m, c, a, b: m.mx.where(c, a, b),
                     lambda t, c, a, b: t.torch.where(c, a, b))
    return Cell("elementwise", "where float32", make, COUNT * 9, COUNT * 4,
                meter="add", checked=True)


def function_cells():
    """Functions cost more than memory does; their share is shown."""
    for op, torch, source in (
            ("log", "log", positive), ("log2", "log2", positive),
            ("log1p", "log1p", positive), ("expm1", "expm1", whole),
            ("sin", "sin", wide), ("cos", "cos", wide), ("tan", "tan", wide),
            ("tanh", "tanh", wide), ("sigmoid", "sigmoid", wide),
            ("erf", "erf", wide), ("arctan", "arctan", wide),
            ("arcsin", "arcsin", whole)):
        yield elementwise(
            op + " float32", op, [source], ["float32"],
            lambda m, a, op=op: getattr(m.mx, op)(a),
            lambda t, a, torch=torch: getattr(t.torch, torch)(a),
            group="functions", bound=False)
    yield elementwise("power float32", "power", [positive, whole],
                      ["float32"] * 2, lambda m, a, b: m.mx.power(a, b),
                      lambda t, a, b: t.torch.pow(a, b), group="functions",
                      bound=False)
    for dtype in ("float32", "bfloat16", "float16"):
        yield elementwise("exp " + dtype, "exp", [whole], [dtype],
                          lambda m, a: m.mx.exp(a),
                          lambda t, a: t.torch.exp(a), group="exp",
                          bound=False, tolerance=1e-2)


# ---- reductions and what goes along an axis ----

def reduced(name, quern, mlx, torch, dtype="float32", group="reductions",
            **more):
    def make(e):
        return three(e, [whole()], [dtype], quern, mlx, torch)
    options = {"meter": "read", "checked": group == "reductions",
               "tolerance": 1e-2}
    options.update(more)
    return Cell(group, name, make, COUNT * SIZE[dtype], 0, **options)


def reduction_cells():
    for axis in (0, 1):
        yield reduced("sum float32, axis %d" % axis,
                      lambda q, a, k=axis: q.op("sum_axis", a, k, BOOL(False)),
                      lambda m, a, k=axis: a.sum(k),
                      lambda t, a, k=axis: a.sum(k))
        yield reduced("max float32, axis %d" % axis,
                      lambda q, a, k=axis: q.op("max_axis", a, k, BOOL(False)),
                      lambda m, a, k=axis: a.max(k),
                      lambda t, a, k=axis: a.amax(k))
    yield reduced("sum float32, all",
                  lambda q, a: q.op("sum", a, BOOL(False)),
                  lambda m, a: a.sum(), lambda t, a: a.sum())
    yield reduced("max float32, all",
                  lambda q, a: q.op("max", a, BOOL(False)),
                  lambda m, a: a.max(), lambda t, a: a.max())
    yield reduced("sum bfloat16, axis 1",
                  lambda q, a: q.op("sum_axis", a, 1, BOOL(False)),
                  lambda m, a: a.sum(1), lambda t, a: a.sum(1),
                  dtype="bfloat16", tolerance=0.3,
                  unlike=("mlx",))  # which adds up in bfloat16
    for axis in (0, 1):
        yield reduced("argmax float32, axis %d" % axis,
                      lambda q, a, k=axis: q.op("argmax_axis", a, k,
                                                BOOL(False)),
                      lambda m, a, k=axis: m.mx.argmax(a, k),
                      lambda t, a, k=axis: a.argmax(k), group="argmax",
                      )
    yield reduced("argmax float32, all",
                  lambda q, a: q.op("argmax", a, BOOL(False)),
                  lambda m, a: m.mx.argmax(a), lambda t, a: a.argmax(),
                  group="argmax")


def softmax(rows, columns):
    def make(e):
        return three(e, [floats(rows, columns, low=-5.0, high=5.0)], [None],
                     lambda q, a: q.op("softmax_axis", a, 1, BOOL(False)),
                     lambda m, a: m.mx.softmax(a, 1),
                     lambda t, a: t.torch.softmax(a, 1))
    return Cell("softmax", "softmax float32, %d x %d" % (rows, columns), make,
                rows * columns * 4, rows * columns * 4, meter="copy")


def sorted_cells():
    for shape in ((1 << 20,), (4096, 1024)):
        for dtype in ("float32", "int32"):
            def make(e, shape=shape, dtype=dtype):
                x = floats(*shape) if dtype == "float32" else integers(*shape)
                return three(e, [x], [None],
                             lambda q, a: q.op("sort_axis", a, -1),
                             lambda m, a: m.mx.sort(a, -1),
                             lambda t, a: t.torch.sort(a, -1)[0])
            size = int(np.prod(shape)) * 4
            yield Cell("sort", "sort %s, %s" % (
                dtype, " x ".join(map(str, shape))), make, size, size,
                )


def cumsum_cells():
    for axis in (0, 1):
        def make(e, k=axis):
            return three(e, [whole()], [None],
                         lambda q, a: q.op("cumsum_axis", a, k, BOOL(False),
                                           BOOL(True), OptionalInt()),
                         lambda m, a: m.mx.cumsum(a, k),
                         lambda t, a: a.cumsum(k))
        yield Cell("cumsum", "cumsum float32, axis %d" % axis, make,
                   COUNT * 4, COUNT * 4, meter="copy", tolerance=1e-2)


# ---- moving ----

def gather_cells():
    def rows(e):
        table = floats(32768, 1024)
        at = rng().integers(0, 32768, 16384, dtype=np.int32)
        return three(e, [table, at], [None] * 2,
                     lambda q, a, i: q.op("take_axis", a, i, 0),
                     lambda m, a, i: m.mx.take(a, i, 0),
                     lambda t, a, i: t.torch.index_select(a, 0, i))
    yield Cell("gather", "take rows float32", rows, 16384 * 4100,
               16384 * 4096, meter="copy")

    def elements(e):
        table = floats(1 << 20)
        at = rng().integers(0, 1 << 20, 1 << 22, dtype=np.int32)
        return three(e, [table, at], [None] * 2,
                     lambda q, a, i: q.op("take", a, i),
                     lambda m, a, i: m.mx.take(a, i),
                     lambda t, a, i: t.torch.index_select(a, 0, i))
    yield Cell("gather", "take elements float32", elements, 4 << 22, 4 << 22,
               meter="copy")

    def along(e):
        at = rng().integers(0, 4096, (4096, 1024), dtype=np.int64)
        quern = three(e, [whole(), at.astype(np.int32)], [None] * 2,
                      lambda q, a, i: q.op("take_along_axis", a, i, 1),
                      lambda m, a, i: m.mx.take_along_axis(a, i, 1),
                      lambda t, a, i: None)
        if e["torch"]:
            a, i = e["torch"].array(whole()), e["torch"].array(at)
            quern["torch"] = lambda: e["torch"].torch.gather(a, 1, i)
        return quern
    yield Cell("gather", "take along axis 1 float32", along, 4096 * 1024 * 4,
               4096 * 1024 * 4, meter="copy")


def axes(*order):
    return (ctypes.c_int * len(order))(*order), LENGTH(len(order))


def copy_cells():
    def permuted(shape, order, dtype):
        def make(e):
            return three(
                e, [floats(*shape)], [dtype],
                lambda q, a: q.op("contiguous", q.op("transpose_axes", a,
                                                     *axes(*order)),
                                  BOOL(False)),
                lambda m, a: m.mx.contiguous(m.mx.transpose(a, order)),
                lambda t, a: a.permute(order).contiguous())
        size = int(np.prod(shape)) * SIZE[dtype]
        return Cell("copies", "transposed copy %s, %s" % (
            dtype, " x ".join(map(str, shape))), make, size, size,
            meter="copy", checked=True)
    yield permuted(WHOLE, (1, 0), "float32")
    yield permuted(WHOLE, (1, 0), "bfloat16")
    yield permuted((4000, 4000), (1, 0), "float32")
    yield permuted((8, 2048, 16, 64), (0, 2, 1, 3), "float32")
    yield permuted((64, 512, 512), (2, 0, 1), "float32")

    def slices(e):
        start, stop, step = axes(0, 1024), axes(4096, 3072), axes(1, 1)
        return three(e, [whole()], [None],
                     lambda q, a: q.op("contiguous",
                                       q.op("slice", a, *start, *stop, *step),
                                       BOOL(False)),
                     lambda m, a: m.mx.contiguous(a[:, 1024:3072]),
                     lambda t, a: a[:, 1024:3072].contiguous())
    yield Cell("copies", "copy of a slice float32", slices, COUNT * 2,
               COUNT * 2, meter="copy", checked=True)

    def joined(e):
        lists = {}

        def quern(q, a, b):
            if not lists:
                lists["ab"] = q.list(a, b)
            return q.op("concatenate_axis", lists["ab"], 1)
        return three(e, [whole(), other()], [None] * 2, quern,
                     lambda m, a, b: m.mx.concatenate([a, b], 1),
                     lambda t, a, b: t.torch.cat([a, b], 1))
    yield Cell("copies", "concatenate float32, axis 1", joined, COUNT * 8,
               COUNT * 8, meter="copy", checked=True)


# ---- products ----

def matmul_cells():
    for dtype in ("float32", "bfloat16"):
        for n in (512, 1024, 2048):
            def make(e, n=n, dtype=dtype):
                return three(e, [floats(n, n), floats(n, n).T.copy()],
                             [dtype] * 2,
                             lambda q, a, b: q.op("matmul", a, b),
                             lambda m, a, b: a @ b, lambda t, a, b: a @ b)
            yield Cell("matmul", "matmul %s, %d" % (dtype, n), make,
                       flops=2 * n ** 3,
                       tolerance=1e-3 if dtype == "float32" else 1.0)


def conv_cells():
    for batch, side, inner, outer in ((8, 56, 64, 64), (8, 28, 128, 128),
                                      (1, 224, 3, 64)):
        kernel = 7 if inner == 3 else 3
        stride = 2 if inner == 3 else 1

        def make(e, b=batch, h=side, i=inner, o=outer, k=kernel, s=stride):
            x, w = floats(b, h, h, i), floats(o, k, k, i)
            p = k // 2
            made = three(
                e, [x, w], [None] * 2,
                lambda q, a, c: q.op("conv2d", a, c, s, s, p, p, 1, 1, 1),
                lambda m, a, c: m.mx.conv2d(a, c, s, p), lambda t, a, c: None)
            if e["torch"]:
                # Channels first, as its users have it.
                t = e["torch"]
                a = t.array(x.transpose(0, 3, 1, 2))
                c = t.array(w.transpose(0, 3, 1, 2))
                made["torch"] = lambda: t.torch.nn.functional.conv2d(
                    a, c, None, s, p).permute(0, 2, 3, 1)
            return made
        out = (side + stride - 1) // stride
        yield Cell("conv2d", "conv2d %d x %d x %d x %d to %d, %d x %d" % (
            batch, side, side, inner, outer, kernel, kernel), make,
            flops=2.0 * batch * out * out * outer * inner * kernel ** 2,
            tolerance=1e-2)


def fft_cells():
    for shape in ((64, 1024), (1 << 20,), (512, 1000)):
        def make(e, shape=shape):
            x = (floats(*shape) + 1j * floats(*shape)).astype(np.complex64)
            n = shape[-1]
            return three(e, [x], [None],
                         lambda q, a: q.op("fft_fft", a, n, -1, 0),
                         lambda m, a: m.mx.fft.fft(a),
                         lambda t, a: t.torch.fft.fft(a))
        count = int(np.prod(shape))
        yield Cell("fft", "fft complex64, %s" % " x ".join(map(str, shape)),
                   make, flops=5.0 * count * np.log2(shape[-1]),
                   tolerance=1e-1)


def quantized_cells():
    for rows in (1, 32):
        def make(e, rows=rows, n=4096, k=4096, group=64):
            x, w = floats(rows, k), floats(n, k)
            made = {"quern": None, "mlx": None, "torch": None}
            q, m, t = e["quern"], e["mlx"], e["torch"]
            if q:
                g, bits = OptionalInt(group, True), OptionalInt(4, True)
                packed, scales, biases = map(q.ready, q.many(
                    "quantize", q.array(w), g, bits, b"affine", None))
                xq = q.array(x)
                made["quern"] = lambda: q.ready(q.op(
                    "quantized_matmul", xq, packed, scales, biases, BOOL(True),
                    g, bits, b"affine"))
            if m:
                parts = m.mx.quantize(m.mx.array(w), group, 4)
                xm = m.array(x)
                made["mlx"] = lambda: m.ready(m.mx.quantized_matmul(
                    xm, *parts, True, group, 4))
            if t and q:
                made["torch"] = torch_int4(t, q.numpy(packed),
                                           q.numpy(scales), q.numpy(biases),
                                           x, group)
            return made
        yield Cell("quantized", "4-bit matmul, %d x 4096 x 4096" % rows, make,
                   read=4096 * 4096 // 2 + 4096 * 64 * 8, flops=2 * rows * 4096
                   * 4096 if rows > 1 else 0, meter="read", tolerance=1.0)


def torch_int4(t, packed, scales, biases, x, group):
    """The same codes in torch's layout; it computes in bfloat16 and centres
    codes on 8."""
    codes = np.stack([(packed >> (4 * i)) & 15 for i in range(8)], -1)
    codes = codes.reshape(packed.shape[0], -1).astype(np.int32)
    weight = t.torch._convert_weight_to_int4pack_for_cpu(
        t.torch.from_numpy(codes), 2)
    both = np.stack([scales.T, biases.T + 8 * scales.T], -1)
    both = t.torch.from_numpy(np.ascontiguousarray(both)).bfloat16()
    xt = t.array(x, "bfloat16")
    return lambda: t.torch._weight_int4pack_mm_for_cpu(xt, weight, group, both)


def attention_cells():
    for heads, queries, keys, width in ((16, 512, 512, 64), (32, 1, 4096, 128)):
        def make(e, h=heads, n=queries, k=keys, d=width):
            q, kk, v = (floats(1, h, n, d), floats(1, h, k, d),
                        floats(1, h, k, d, low=0))
            scale = d ** -0.5
            return three(
                e, [q, kk, v], [None] * 3,
                lambda e, a, b, c: e.op("fast_scaled_dot_product_attention", a,
                                        b, c, FLOAT(scale), b"", None, None,
                                        BOOL(False)),
                lambda m, a, b, c: m.mx.fast.scaled_dot_product_attention(
                    a, b, c, scale=scale),
                lambda t, a, b, c:
                t.torch.nn.functional.scaled_dot_product_attention(a, b, c))
        yield Cell("attention", "attention float32, %d heads, %d x %d x %d" % (
            heads, queries, keys, width), make,
            read=heads * keys * width * 8 if queries == 1 else 0,
            flops=4 * heads * queries * keys * width if queries > 1 else 0,
            meter="read" if queries == 1 else None, tolerance=1e-3)


def all_cells():
    yield from binary_cells()
    yield from unary_cells()
    yield where()
    for pair in (("float32", "bfloat16"), ("bfloat16", "float32"),
                 ("float32", "float16"), ("int32", "float32"),
                 ("float32", "int32"), ("float32", "int8"),
                 ("int32", "bool")):
        yield cast(*pair)
    yield from function_cells()
    yield from reduction_cells()
    yield softmax(4096, 4096)
    yield softmax(65536, 128)
    yield from sorted_cells()
    yield from cumsum_cells()
    yield from gather_cells()
    yield from copy_cells()
    yield from matmul_cells()
    yield from conv_cells()
    yield from fft_cells()
    yield from quantized_cells()
    yield from attention_cells()
