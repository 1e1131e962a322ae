"""Matrix products, contractions and convolutions."""

import numpy as np

import arrays
from arrays import Arr, array, pick
from case import Case

FLOATS = ["float32"] * 3 + ["float16", "bfloat16", "float64", "complex64"]
MODES = ["tame", "tame", "tame", "whole", "wide"]


def some(rng, extents, dtype, mode=None):
    return array(rng, extents, dtype, mode or pick(rng, MODES))


def absolute(f):
    """The scale of an ulp: the same sum over magnitudes."""
    def scale(n):
        for name, value in vars(n).items():
            if isinstance(value, np.ndarray):
                setattr(n, name, np.abs(value))
            elif isinstance(value, list) and value and \
                    isinstance(value[0], np.ndarray):
                setattr(n, name, [np.abs(v) for v in value])
        return np.abs(f(n))
    return scale


def product(function, args, peer, ref, **more):
    case = Case("product", function, args, peer, "sum", ref, **more)
    case.scale = absolute(ref) if ref else None
    return case


def dims(rng, count, most=9):
    if rng.random() < 0.08:
        return [int(n) for n in rng.integers(1, 130, count)]
    return [int(n) for n in rng.integers(1, most, count)]


def dtypes(rng):
    one = pick(rng, FLOATS)
    if rng.random() < 0.8:
        return one, one
    return one, pick(rng, FLOATS + ["int32", "bool", "uint8"])


def matmul_shapes(rng):
    m, k, n = dims(rng, 3)
    batch = tuple(int(i) for i in rng.integers(1, 4, int(rng.integers(0, 3))))
    first = tuple(1 if rng.random() < .2 else i for i in batch)
    second = tuple(1 if rng.random() < .2 else i for i in batch)
    if rng.random() < 0.3:
        second = second[1:]
    a, b = first + (m, k), second + (k, n)
    if rng.random() < 0.1:
        a = (k,)
    if rng.random() < 0.1:
        b = (k,)
    if rng.random() < 0.03:
        b = b[:-1] + (b[-1] + 1,) if len(b) > 1 else (k + 1,)
    if rng.random() < 0.04:
        a, b = first + (m, 0), second + (0, n)
    return a, b


def matmul(rng):
    one, two = dtypes(rng)
    first, second = matmul_shapes(rng)
    a, b = some(rng, first, one), some(rng, second, two)
    return product("mlx_matmul", {"a": a, "b": b},
                   lambda m, a: m.matmul(a.a, a.b),
                   lambda n: np.matmul(n.a, n.b))


def addmm(rng):
    one, two = dtypes(rng)
    m_, k, n_ = dims(rng, 3)
    a, b = some(rng, (m_, k), one), some(rng, (k, n_), two)
    c = some(rng, pick(rng, [(m_, n_), (n_,), (1, n_), (m_, 1), ()]), one)
    alpha = float(np.float32(pick(rng, [1.0, 0.5, -2.0])))
    beta = float(pick(rng, [1.0, 0.0, 2.0]))

    def ref(n):
        return abs(alpha) * sign * np.matmul(n.a, n.b) + beta * n.c
    sign = 1 if alpha >= 0 else -1

    def scale(n):
        return abs(alpha) * np.matmul(np.abs(n.a), np.abs(n.b)) + \
            abs(beta) * np.abs(n.c)
    case = product("mlx_addmm", {"c": c, "a": a, "b": b, "alpha": alpha,
                                 "beta": beta},
                   lambda m, a: m.addmm(a.c, a.a, a.b, a.alpha, a.beta), ref)
    case.scale = scale
    return case


def inner(rng):
    """inner, outer, vecdot, tensordot."""
    one, two = dtypes(rng)
    which = int(rng.integers(5))
    k = dims(rng, 1)[0]
    lead = [arrays.shape(rng, 2, 5, empty=0) for _ in range(2)]
    if which == 0:
        a, b = some(rng, lead[0] + (k,), one), some(rng, lead[1] + (k,), two)
        return product("mlx_inner", {"a": a, "b": b},
                       lambda m, a: m.inner(a.a, a.b),
                       lambda n: np.inner(n.a, n.b))
    if which == 1:
        a, b = some(rng, lead[0], one), some(rng, lead[1], two)
        return product("mlx_outer", {"a": a, "b": b},
                       lambda m, a: m.outer(a.a, a.b),
                       lambda n: np.outer(n.a, n.b))
    if which == 2:
        shape = lead[0] + (k,)
        axis = int(rng.integers(-len(shape), len(shape)))
        a, b = some(rng, shape, one), some(rng, shape, two)
        return product("mlx_vecdot", {"a": a, "b": b, "axis": axis},
                       lambda m, a: m.vecdot(a.a, a.b, axis=axis),
                       lambda n: np.sum(np.conj(n.a) * n.b, axis))
    shared = dims(rng, int(rng.integers(0, 3)), 5)
    left, right = dims(rng, int(rng.integers(0, 3)), 5), dims(
        rng, int(rng.integers(0, 3)), 5)
    if which == 3:
        a, b = some(rng, left + shared, one), some(rng, shared + right, two)
        n_axes = len(shared)
        return product("mlx_tensordot_axis",
                       {"a": a, "b": b, "axis": n_axes},
                       lambda m, a: m.tensordot(a.a, a.b, n_axes),
                       lambda n: np.tensordot(n.a, n.b, n_axes))
    order_a = [int(i) for i in rng.permutation(len(left + shared))]
    order_b = [int(i) for i in rng.permutation(len(shared + right))]
    a = some(rng, [(left + shared)[i] for i in order_a], one)
    b = some(rng, [(shared + right)[i] for i in order_b], two)
    axes_a = [order_a.index(len(left) + i) for i in range(len(shared))]
    axes_b = [order_b.index(i) for i in range(len(shared))]
    return product("mlx_tensordot",
                   {"a": a, "b": b, "axes_a": axes_a, "axes_b": axes_b},
                   lambda m, a: m.tensordot(a.a, a.b, [axes_a, axes_b]),
                   lambda n: np.tensordot(n.a, n.b, [axes_a, axes_b]))


SUBSCRIPTS = ["ij,jk->ik", "ij,jk", "bij,bjk->bik", "ij->ji", "ii->i",
              "ii", "ij->", "ij,ij->ij", "i,j->ij", "ij,kj->ik",
              "...ij,...jk->...ik", "ij,jk,kl->il", "ab,bc,cd,da->",
              "bhqd,bhkd->bhqk", "i,i->", "ijk->kij", "ij,j->i",
              "abc,cd,be->ade", "ij,ij,ij->i", "iij->ij", "i...->...",
              "ab,ab->a", "a,b,c->abc"]


def einsum(rng):
    text = pick(rng, SUBSCRIPTS)
    extent = {c: int(rng.integers(1, 6)) for c in "abcdehijklqk"}
    one = pick(rng, FLOATS)
    dots = arrays.shape(rng, 2, 3, empty=0)
    operands = []
    for part in text.split("->")[0].split(","):
        shape = []
        for piece in part.replace("...", ".") :
            shape += list(dots) if piece == "." else [extent[piece]]
        # What overflows on the way depends on the path.
        operands.append(some(rng, shape, one, "tame"
                             if one in arrays.HALVES else None))
    return product("mlx_einsum",
                   {"subscripts": text, "operands": operands},
                   lambda m, a: m.einsum(text, *a.operands),
                   lambda n: np.einsum(text, *n.operands))


def blocks(rng):
    """block_masked_mm, gather_mm, segmented_mm."""
    which = int(rng.integers(3))
    dtype = pick(rng, ["float32"] * 3 + ["float16", "float64"])
    if which == 0:
        size = pick(rng, [32, 64])
        m_, k, n_ = (int(i) for i in rng.integers(1, 130, 3))
        batch = (2,) if rng.random() < 0.3 else ()
        a, b = some(rng, batch + (m_, k), dtype, "tame"), \
            some(rng, batch + (k, n_), dtype, "tame")
        counts = [-(-i // size) for i in (m_, k, n_)]
        masks = {}
        for name, rows, cols in (("mask_out", 0, 2), ("mask_lhs", 0, 1),
                                 ("mask_rhs", 1, 2)):
            masks[name] = None if rng.random() < 0.35 else some(
                rng, batch + (counts[rows], counts[cols]),
                "bool" if rng.random() < 0.6 else dtype, "tame")

        def spread(mask, rows, cols):
            if mask is None:
                return 1.0
            return np.repeat(np.repeat(mask, size, -2), size,
                             -1)[..., :rows, :cols]

        def ref(n):
            x = n.a * spread(n.mask_lhs, m_, k)
            y = n.b * spread(n.mask_rhs, k, n_)
            return np.matmul(x, y) * spread(n.mask_out, m_, n_)
        return product("mlx_block_masked_mm",
                       {"a": a, "b": b, "block_size": size, **masks},
                       lambda m, a: m.block_masked_mm(
                           a.a, a.b, size, a.mask_out, a.mask_lhs,
                           a.mask_rhs), ref)
    m_, k, n_ = dims(rng, 3)
    if which == 1:
        left, right = (int(i) for i in rng.integers(1, 5, 2))
        shape = arrays.shape(rng, 2, 4, empty=0)
        a = some(rng, (left, m_, k), dtype)
        b = some(rng, (right, k, n_), dtype)
        lhs = Arr(rng.integers(0, left, shape), "uint32")
        rhs = Arr(rng.integers(0, right, shape), "uint32")
        return product("mlx_gather_mm",
                       {"a": a, "b": b, "lhs_indices": lhs,
                        "rhs_indices": rhs, "sorted_indices": False},
                       lambda m, a: m.gather_mm(a.a, a.b, a.lhs_indices,
                                                a.rhs_indices),
                       lambda n: np.matmul(n.a[lhs.data], n.b[rhs.data]))
    a, b = some(rng, (m_, k), dtype), some(rng, (k, n_), dtype)
    count = int(rng.integers(1, 5))
    cuts = np.sort(rng.integers(0, k + 1, (count, 2)), -1)

    def ref(n):
        return np.stack([np.matmul(n.a[:, i:j], n.b[i:j])
                         for i, j in cuts])
    return product("mlx_segmented_mm",
                   {"a": a, "b": b, "segments": Arr(cuts, "uint32")},
                   lambda m, a: m.segmented_mm(a.a, a.b, a.segments), ref)


def conv(rng):
    axes = int(rng.integers(1, 4))
    dtype = pick(rng, ["float32"] * 4 + ["float16", "bfloat16", "float64"])
    turned = rng.random() < 0.4
    groups = pick(rng, [1, 1, 1, 2, 3])
    cin, cout = (groups * int(i) for i in rng.integers(1, 5, 2))
    size = [int(i) for i in rng.integers(3, 9 if axes < 3 else 6, axes)]
    kernel = [int(i) for i in rng.integers(1, 4, axes)]
    stride = [int(i) for i in rng.integers(1, 4, axes)]
    padding = [int(i) for i in rng.integers(0, 3, axes)]
    dilation = [int(pick(rng, [1, 1, 2])) for _ in range(axes)]
    extra = [int(rng.integers(0, s)) for s in stride]
    if not turned:
        padding = [max(p, (d * (k - 1) + 2 - n) // 2) for p, d, k, n in
                   zip(padding, dilation, kernel, size)]
    else:
        padding = [min(p, d * (k - 1)) for p, d, k in
                   zip(padding, dilation, kernel)]
    x = some(rng, [int(rng.integers(1, 3))] + size + [cin], dtype)
    # An infinite weight over padding is another matter: differences.md.
    w = some(rng, [cout] + kernel + [cin // groups], dtype,
             pick(rng, ["tame", "whole"]))
    if rng.random() < 0.02:
        w = some(rng, [cout] + kernel + [cin // groups + 1], dtype)
    args = {"input": x, "weight": w, "groups": groups}
    for name, values in (("stride", stride), ("padding", padding),
                         ("dilation", dilation)) + (
                             (("output_padding", extra),) if turned else ()):
        for i, value in enumerate(values):
            args[name if axes == 1 else f"{name}_{i}"] = value
    name = f"conv_transpose{axes}d" if turned else f"conv{axes}d"

    def flat(values):
        return values[0] if axes == 1 else tuple(values)

    def peer(m, a):
        more = {"output_padding": flat(extra)} if turned else {}
        return getattr(m, name)(a.input, a.weight, stride=flat(stride),
                                padding=flat(padding),
                                dilation=flat(dilation), groups=groups,
                                **more)
    ref = conv_ref(axes, stride, padding, dilation, groups,
                   extra if turned else None)
    return Case("conv", f"mlx_{name}", args, peer, "sum", ref,
                scale=absolute(ref))


def conv_ref(axes, stride, padding, dilation, groups, extra):
    """A convolution written down tap by tap in float64."""
    def direct(x, w):
        size, kernel = x.shape[1:-1], w.shape[1:-1]
        if extra is None:
            out = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, p, d, k, s
                   in zip(size, padding, dilation, kernel, stride)]
        else:
            out = [(n - 1) * s - 2 * p + d * (k - 1) + 1 + e
                   for n, p, d, k, s, e in zip(size, padding, dilation,
                                               kernel, stride, extra)]
        result = np.zeros((x.shape[0], *out, w.shape[0]))
        per = w.shape[0] // groups
        depth = x.shape[-1] // groups
        for place in np.ndindex(*size):
            for tap in np.ndindex(*kernel):
                if extra is None:
                    at = [i + p - d * t for i, p, d, t in
                          zip(place, padding, dilation, tap)]
                    if any(i % s for i, s in zip(at, stride)):
                        continue
                    at = [i // s for i, s in zip(at, stride)]
                else:
                    at = [i * s - p + d * t for i, s, p, d, t in
                          zip(place, stride, padding, dilation, tap)]
                if any(i < 0 or i >= n for i, n in zip(at, out)):
                    continue
                for g in range(groups):
                    rows = slice(g * per, (g + 1) * per)
                    part = x[(slice(None), *place,
                              slice(g * depth, (g + 1) * depth))]
                    result[(slice(None), *at, rows)] += \
                        part @ w[(rows, *tap)].T
        return result

    def ref(n):
        return direct(n.input, n.weight)
    return ref


def conv_general(rng):
    """Padding on each side for itself, spread inputs, turned kernels."""
    axes = int(rng.integers(1, 4))
    dtype = pick(rng, ["float32"] * 4 + ["float16", "bfloat16"])
    groups = pick(rng, [1, 1, 2])
    cin, cout = (groups * int(i) for i in rng.integers(1, 4, 2))
    size = [int(i) for i in rng.integers(4, 8 if axes < 3 else 6, axes)]
    kernel = [int(i) for i in rng.integers(1, 4, axes)]
    stride, low, high, dilation, spread = (
        [int(i) for i in rng.integers(a, b, axes)]
        for a, b in ((1, 3), (0, 3), (0, 3), (1, 2), (1, 3)))
    flip = bool(rng.random() < 0.4)
    x = some(rng, [int(rng.integers(1, 3))] + size + [cin], dtype, "tame")
    w = some(rng, [cout] + kernel + [cin // groups], dtype, "tame")
    return Case("conv", "mlx_conv_general",
                {"input": x, "weight": w, "stride": stride,
                 "padding_lo": low, "padding_hi": high,
                 "kernel_dilation": dilation, "input_dilation": spread,
                 "groups": groups, "flip": flip},
                lambda m, a: m.conv_general(
                    a.input, a.weight, stride, (low, high), dilation, spread,
                    groups, flip), "sum")


GROUPS = [(matmul, 4), (addmm, 2), (inner, 3), (einsum, 3), (blocks, 3),
          (conv, 5),
          (conv_general, 2)]
