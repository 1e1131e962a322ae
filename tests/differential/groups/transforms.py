"""vjp, jvp and vmap of cases of the other groups, through C closures."""

import numpy as np

import arrays
from arrays import Arr, array, pick
from case import Case
from engine import Refused

UNARY = ["abs", "arctan", "cos", "cosh", "erf", "exp", "expm1", "log1p",
         "negative", "sigmoid", "sin", "sinh", "square", "tan", "tanh",
         "sqrt", "log", "rsqrt", "reciprocal"]
BINARY = ["add", "subtract", "multiply", "divide", "maximum", "minimum",
          "logaddexp", "arctan2", "power"]


def base(rng):
    """A case with real float arguments, and the names of those that are
    differentiated."""
    dtype = pick(rng, ["float32"] * 3 + ["float64", "float16"])
    which = int(rng.integers(11))
    shape = arrays.shape(rng, 3, 5, empty=0)
    if which < 2:
        name = pick(rng, UNARY)
        return Case("transform", f"mlx_{name}",
                    {"a": array(rng, shape, dtype, "positive")},
                    lambda m, a: getattr(m, name)(a.a)), ["a"]
    if which < 4:
        name = pick(rng, BINARY)
        from groups.elementwise import pair
        one, two = pair(rng)
        return Case("transform", f"mlx_{name}",
                    {"a": array(rng, one, dtype, "positive"),
                     "b": array(rng, two, dtype, "positive")},
                    lambda m, a: getattr(m, name)(a.a, a.b)), ["a", "b"]
    shape = arrays.shape(rng, 3, 5, empty=0, least_axes=2)
    x = array(rng, shape, dtype, "positive")
    axis = int(rng.integers(-len(shape), len(shape)))
    if which == 4:
        name = pick(rng, ["sum", "mean", "max", "min", "logsumexp", "prod",
                          "var"])
        more = {"ddof": 0} if name == "var" else {}
        return Case("transform", f"mlx_{name}_axis",
                    {"a": x, "axis": axis, "keepdims": False, **more},
                    lambda m, a: getattr(m, name)(a.a, axis)), ["a"]
    if which == 5:
        k, n = int(rng.integers(1, 6)), int(rng.integers(1, 6))
        m_ = int(rng.integers(1, 6))
        return Case("transform", "mlx_matmul",
                    {"a": array(rng, (m_, k), dtype),
                     "b": array(rng, (k, n), dtype)},
                    lambda m, a: m.matmul(a.a, a.b)), ["a", "b"]
    if which == 6:
        return Case("transform", "mlx_softmax_axis",
                    {"a": x, "axis": axis, "precise": False},
                    lambda m, a: m.softmax(a.a, axis)), ["a"]
    if which == 7:
        name = pick(rng, ["cumsum", "cummax", "cumprod", "logcumsumexp"])
        more = {"dtype": None} if name in ("cumsum", "cumprod") else {}
        return Case("transform", f"mlx_{name}_axis",
                    {"a": x, "axis": axis, "reverse": False,
                     "inclusive": True, **more},
                    lambda m, a: getattr(m, name)(a.a, axis)), ["a"]
    if which == 8:
        order = [int(i) for i in rng.permutation(len(shape))]
        return Case("transform", "mlx_transpose_axes",
                    {"a": x, "axes": order},
                    lambda m, a: m.transpose(a.a, order)), ["a"]
    if which == 9:
        eps = 1e-5
        w = array(rng, (shape[-1],), dtype)
        return Case("transform", "mlx_fast_rms_norm",
                    {"x": x, "weight": w, "eps": eps},
                    lambda m, a: m.fast.rms_norm(a.x, a.weight, eps)), \
            ["x", "weight"]
    i = Arr(rng.integers(0, shape[axis], (3,)), "int32")
    return Case("transform", "mlx_take_axis",
                {"a": x, "indices": i, "axis": axis},
                lambda m, a: m.take(a.a, a.indices, axis)), ["a"]


def differentiated(rng):
    case, names = base(rng)
    kind = pick(rng, ["vjp", "jvp", "vmap", "vjp"])
    if kind == "vmap":
        axes = {}
        names = [n for n in names]
        size = int(rng.integers(1, 4))
        for name in names:
            arr = case.args[name]
            if name != names[0] and rng.random() < 0.3:
                axes[name] = -1
                continue
            at = int(rng.integers(0, arr.ndim + 1))
            axes[name] = at
            extents = list(arr.shape)
            extents.insert(at, size)
            case.args[name] = array(rng, extents, arr.dtype, "positive")
        case.transform = ("vmap", names, axes)
    else:
        case.transform = (kind, names, int(rng.integers(2 ** 31)))
    case.judge, case.loose = "loose", 64
    if case.args[names[0]].dtype == "float64":
        # MLX's float64 is as good as float32 in places.
        case.loose = 2 ** 34
    case.floor = 400 if "norm" in case.function else 1
    return case


# Of these a transform is another matter: random keys, packed codes, and
# indexing, where mlx.core's call is not the C function's.
APART = ("random", "quant", "scatter", "gather", "slice", "full", "fp8",
         "as_strided", "number_of_elements", "masked", "arange", "view",
         "put_along", "round", "array_equal", "hadamard", "eig", "svd", "qr",
         "linalg_lu", "pinv", "fft", "cholesky", "norm_matrix", "linalg_norm",
         "contiguous", "atleast", "meshgrid", "partition", "topk",
         "allclose", "argsort")


def any_case(rng):
    """vjp, jvp or vmap of a case of any other group, over one array of tame
    floats."""
    from groups import elementwise, fast, indexing, linalg, products, reduce, \
        shapes
    sources = [function for module in (elementwise, reduce, shapes, products,
                                       linalg, fast, indexing)
               for function, _ in module.GROUPS]
    while True:
        case = pick(rng, sources)(rng)
        if any(word in case.function for word in APART):
            continue
        # At a pole MLX's tan of float64 has few digits, and 0 to a power
        # has a slope that is a matter of taste.
        if case.function in ("mlx_tan", "mlx_power"):
            continue
        every = [arr for _, arr in case.arrays()]
        names = [name for name, value in case.args.items()
                 if isinstance(value, Arr) and value.size and
                 # MLX writes outside of its memory there.
                 name != "pad_value" and
                 value.dtype in ("float32", "float64") and value.size < 3000]
        if not names or any(arr.dtype in arrays.HALVES + ["complex64"]
                            for arr in every):
            continue
        if all(np.isfinite(arr.wide()).all() and
               np.abs(arr.wide()).max(initial=0) < 100
               for arr in every if arrays.is_float(arr.dtype)):
            break
    name = pick(rng, names)
    arr = case.args[name]
    kind = pick(rng, ["vjp", "jvp", "vmap", "vjp"])
    if kind == "vmap":
        size = int(rng.integers(1, 4))
        at = int(rng.integers(0, arr.ndim + 1))
        data = np.stack([arr.data] + [rng.permutation(arr.data.reshape(-1))
                                      .reshape(arr.shape)
                                      for _ in range(size - 1)], at)
        if "linalg" in case.function:
            data = np.stack([arr.data] * size, at)
        case.args[name] = Arr.stored(data, arr.dtype)
        case.transform = ("vmap", [name], {name: at})
    else:
        case.transform = (kind, [name], int(rng.integers(2 ** 31)))
    case.group, case.judge, case.check, case.pick = "transform", "loose", \
        None, None
    case.loose, case.floor = 256, 1
    if "norm" in case.function:
        # A row of nearly equal numbers magnifies each rounding.
        case.floor = 400
    if "float64" in [x.dtype for x in every]:
        case.loose = 2 ** 34
    return case


def like(rng, shape, dtype):
    return Arr(rng.standard_normal(shape), dtype)


def engine(library, case, args):
    kind, names, more = case.transform
    primals = [library.array(args[name]) for name in names]
    rest = {k: v for k, v in args.items() if k not in names}

    def body(handles):
        return library.call(case.function, **dict(zip(names, handles)),
                            **rest)
    if kind == "vmap":
        return library.vmap(body, primals, [more[n] for n in names], [0])
    rng = np.random.default_rng(more)
    if kind == "jvp":
        if not arrays.is_float(library.read(
                library.call(case.function, **args)[0]).dtype):
            raise Refused("no slope")
        tangents = [like(rng, args[n].shape, args[n].dtype) for n in names]
        return library.transform("mlx_jvp", body, primals, tangents)
    results = library.call(case.function, **args)
    if len(results) != 1:
        raise Refused("several results")
    plain = library.read(results[0])
    if not arrays.is_float(plain.dtype):
        raise Refused("no slope")
    return library.transform("mlx_vjp", body, primals,
                             [like(rng, plain.shape, plain.dtype)])


def peer(mx, side, case, args):
    kind, names, more = case.transform
    primals = [side.array(args[name]) for name in names]

    def body(*given):
        every = side.Given({k: v for k, v in args.items()
                            if k not in names})
        for name, value in zip(names, given):
            setattr(every, name, value)
        return case.peer(mx, every)
    if kind == "vmap":
        axes = tuple(None if more[n] < 0 else more[n] for n in names)
        return mx.vmap(body, axes, 0)(*primals)
    rng = np.random.default_rng(more)
    if kind == "jvp":
        tangents = [side.array(like(rng, args[n].shape, args[n].dtype))
                    for n in names]
        values, grads = mx.jvp(body, primals, tangents)
        if not arrays.is_float(side.NAMES[values[0].dtype]):
            raise ValueError("no slope")
        return list(values) + list(grads)
    shape = body(*primals)
    if isinstance(shape, (list, tuple)):
        raise ValueError("several results")
    if not arrays.is_float(side.NAMES[shape.dtype]):
        raise ValueError("no slope")
    cotangent = side.array(like(rng, tuple(shape.shape),
                                side.NAMES[shape.dtype]))
    values, grads = mx.vjp(body, primals, [cotangent])
    return list(values) + list(grads)


GROUPS = [(differentiated, 4), (any_case, 6)]
