"""Linear algebra and Fourier transforms.

Decompositions are not unique (signs, phases, the order of equal values), so
what is compared is what they determine: see `pick` of each.
"""

import math

import numpy as np

import arrays
from arrays import Arr, array, pick
from case import Case
from groups.reduce import one_axis

DTYPES = ["float32", "float32", "float64"]


def batch(rng):
    return arrays.shape(rng, 2, 3, empty=0)


def side(rng):
    return int(rng.integers(1, 7)) if rng.random() < 0.9 else 24


def steady(rng, lead, n, dtype, kind="any"):
    """A well-conditioned matrix."""
    x = rng.standard_normal(lead + (n, n))
    if kind == "positive":
        x = x @ np.swapaxes(x, -1, -2) + n * np.eye(n)
    elif kind == "symmetric":
        x = x + np.swapaxes(x, -1, -2)
    else:
        x = x + 2 * n ** 0.5 * np.eye(n)
    return Arr(x, dtype, arrays.layout(rng, x.shape, 0.3))


def conditioned(ref):
    """The scale of an ulp: the answer's largest magnitude, times how much
    the matrix magnifies a rounding of its elements."""
    def scale(n):
        out = ref(n)
        out = out[-1] if isinstance(out, list) else out
        return np.abs(out).max() * np.linalg.cond(n.a).max()
    return scale


def solved(rng):
    """inv, cholesky and kin, solve: matrices that are theirs alone."""
    case = solved_case(rng)
    case.scale = conditioned(case.ref)
    return case


def solved_case(rng):
    dtype, n, lead = pick(rng, DTYPES), side(rng), batch(rng)
    which = pick(rng, ["inv", "tri_inv", "cholesky", "cholesky_inv", "solve",
                       "solve_triangular", "pinv", "det", "slogdet"])
    upper = bool(rng.random() < 0.5)
    kind = "positive" if which.startswith("cholesky") else "any"
    a = steady(rng, lead, n, dtype, kind)
    swap = np.swapaxes
    triangle = np.triu if upper else np.tril
    loose = 2000
    if which == "inv":
        return Case("linalg", "mlx_linalg_inv", {"a": a},
                    lambda m, a: m.linalg.inv(a.a), "scaled",
                    lambda n: np.linalg.inv(n.a))
    if which == "pinv":
        # The inverse of the square of a condition number is not asked for.
        tall = Arr(a.wide()[..., :max(1, n - 1)], dtype)
        return Case("linalg", "mlx_linalg_pinv", {"a": tall},
                    lambda m, a: m.linalg.pinv(a.a), "scaled",
                    lambda n: np.linalg.pinv(n.a))
    if which in ("det", "slogdet"):
        if which == "det":
            return Case("linalg", "mlx_linalg_det", {"a": a},
                        lambda m, a: m.linalg.det(a.a), "scaled",
                        lambda n: np.linalg.det(n.a))
        return Case("linalg", "mlx_linalg_slogdet", {"a": a},
                    lambda m, a: m.linalg.slogdet(a.a), "scaled",
                    lambda n: list(np.linalg.slogdet(n.a)))
    if which == "cholesky":
        def ref(n):
            out = np.linalg.cholesky(n.a)
            return swap(out, -1, -2) if upper else out
        return Case("linalg", "mlx_linalg_cholesky", {"a": a, "upper": upper},
                    lambda m, a: m.linalg.cholesky(a.a, upper), "scaled", ref)
    if which == "cholesky_inv":
        factor = np.linalg.cholesky(a.wide())
        f = Arr(swap(factor, -1, -2) if upper else factor, dtype)

        def inverse(n):
            return np.linalg.inv(swap(n.a, -1, -2) @ n.a if upper else
                                 n.a @ swap(n.a, -1, -2))
        return Case("linalg", "mlx_linalg_cholesky_inv",
                    {"a": f, "upper": upper},
                    lambda m, a: m.linalg.cholesky_inv(a.a, upper), "scaled",
                    inverse, loose=loose)
    if which == "tri_inv":
        t = Arr(triangle(a.wide()), dtype, a.layout)
        return Case("linalg", "mlx_linalg_tri_inv", {"a": t, "upper": upper},
                    lambda m, a: m.linalg.tri_inv(a.a, upper), "scaled",
                    lambda n: np.linalg.inv(n.a))
    columns = (n, int(rng.integers(1, 4))) if rng.random() < 0.7 or lead \
        else (n,)
    b = array(rng, lead + columns, dtype)
    if which == "solve":
        def ref(n):
            vector = n.b.ndim == 1
            out = np.linalg.solve(n.a, n.b[:, None] if vector else n.b)
            return out[:, 0] if vector else out
        return Case("linalg", "mlx_linalg_solve", {"a": a, "b": b},
                    lambda m, a: m.linalg.solve(a.a, a.b), "scaled", ref)
    t = Arr(triangle(a.wide()), dtype, a.layout)
    return Case("linalg", "mlx_linalg_solve_triangular",
                {"a": t, "b": b, "upper": upper},
                lambda m, a: m.linalg.solve_triangular(a.a, a.b,
                                                       upper=upper),
                "scaled", lambda n: np.linalg.solve(
                    n.a, n.b[:, None] if n.b.ndim == 1 else n.b)
                .reshape(n.b.shape))


def decomposed(rng):
    """qr, svd, eigh, eig, lu: what the parts multiply to, and the values."""
    dtype, n, lead = pick(rng, DTYPES), side(rng), batch(rng)
    which = pick(rng, ["qr", "svd", "svdvals", "eigh", "eigvalsh", "eig",
                       "eigvals", "lu", "lu_factor"])
    swap = np.swapaxes
    loose = 400.0 * n

    def wide(answers):
        return [x.wide() for x in answers]

    def arrs(case, *values):
        return [Arr(np.asarray(v), "complex64" if np.iscomplexobj(v) else
                    dtype) for v in values]
    if which in ("qr", "svd", "svdvals"):
        rows = int(rng.integers(1, 7))
        a = array(rng, lead + (rows, n), dtype, strided=0.3)
        if which == "qr":
            def qr(case, out):
                q, r = wide(out)
                return arrs(case, q @ r, swap(q, -1, -2) @ q, np.abs(r))
            return Case("linalg", "mlx_linalg_qr", {"a": a},
                        lambda m, a: m.linalg.qr(a.a), "loose", None,
                        loose, pick=qr)
        full = which == "svd"

        def svd(case, out):
            if len(out) == 1:
                return out
            u, s, vt = wide(out)
            k = s.shape[-1]
            return arrs(case, (u[..., :k] * s[..., None, :]) @ vt[..., :k, :],
                        s, swap(u, -1, -2) @ u, vt @ swap(vt, -1, -2))
        return Case("linalg", "mlx_linalg_svd", {"a": a, "compute_uv": full},
                    lambda m, a: m.linalg.svd(a.a, full), "loose", None,
                    loose, pick=svd)
    if which in ("eigh", "eigvalsh"):
        a = steady(rng, lead, n, dtype, "symmetric")
        side_ = pick(rng, ["L", "U"])

        def eigh(case, out):
            if len(out) == 1:
                return out
            w, v = wide(out)
            return arrs(case, w, (v * w[..., None, :]) @ swap(v, -1, -2),
                        swap(v, -1, -2) @ v)
        return Case("linalg", f"mlx_linalg_{which}", {"a": a, "UPLO": side_},
                    lambda m, a: getattr(m.linalg, which)(a.a, side_),
                    "loose", None, loose, pick=eigh)
    if which in ("eig", "eigvals"):
        a = steady(rng, lead, n, "float32")

        def eig(case, out):
            w = out[0].wide()
            order = np.lexsort((w.imag.round(3), w.real.round(3)))
            kept = [np.take_along_axis(w, order, -1)]
            if len(out) > 1:
                v = out[1].wide()
                kept.append((v * w[..., None, :]) @ np.linalg.inv(v))
            return arrs(case, *kept)
        return Case("linalg", f"mlx_linalg_{which}", {"a": a},
                    lambda m, a: getattr(m.linalg, which)(a.a), "loose",
                    None, 8000, pick=eig)
    a = steady(rng, lead, n, dtype)
    return Case("linalg", f"mlx_linalg_{which}", {"a": a},
                lambda m, a: getattr(m.linalg, which)(a.a), "loose", None,
                loose)


def measured(rng):
    """norm in its forms, cross."""
    dtype = pick(rng, DTYPES + ["float16", "bfloat16", "complex64"])
    which = int(rng.integers(4))
    keep = bool(rng.random() < 0.5)
    if which == 0:
        shape = list(arrays.shape(rng, 3, 4, empty=0, least_axes=1))
        axis = one_axis(rng, len(shape))
        if -len(shape) <= axis < len(shape):
            shape[axis] = int(pick(rng, [2, 3, 3, 3, 4]))
        real = "float32" if dtype == "complex64" else dtype
        return Case("linalg", "mlx_linalg_cross",
                    {"a": array(rng, shape, real),
                     "b": array(rng, shape, real), "axis": axis},
                    lambda m, a: m.linalg.cross(a.a, a.b, axis), "loose",
                    loose=4)
    a = array(rng, arrays.shape(rng, 3, 6, empty=0, least_axes=1), dtype)
    n = a.ndim
    axes = None
    if rng.random() < 0.8:
        count = int(rng.integers(1, min(n, 2) + 1))
        axes = [int(i) for i in rng.permutation(n)[:count]]
    over = axes if axes is None else list(axes)
    if which == 1:
        return Case("linalg", "mlx_linalg_norm_l2",
                    {"a": a, "axis": axes, "keepdims": keep},
                    lambda m, a: m.linalg.norm(a.a, axis=over,
                                               keepdims=keep), "scaled",
                    lambda n: np.sqrt(np.sum(
                        np.abs(n.a) ** 2, axis=None if axes is None else
                        tuple(axes), keepdims=keep)))
    if which == 2:
        order = pick(rng, ["fro", "nuc", "f", "none"])
        if dtype in arrays.HALVES + ["complex64"]:
            order = "fro"
        return Case("linalg", "mlx_linalg_norm_matrix",
                    {"a": a, "ord": order, "axis": axes, "keepdims": keep},
                    lambda m, a: m.linalg.norm(a.a, order, over, keep),
                    "loose", loose=16, floor=1)
    order = float(pick(rng, [0, 1, 2, 3, -1, -2, math.inf, -math.inf, 0.5]))
    if dtype in arrays.HALVES + ["complex64"] and abs(order) == 2:
        order = 1.0
    return Case("linalg", "mlx_linalg_norm",
                {"a": a, "ord": order, "axis": axes, "keepdims": keep},
                lambda m, a: m.linalg.norm(a.a, order, over, keep), "loose",
                loose=32, floor=1)


LENGTHS = list(range(1, 20)) + [31, 32, 49, 60, 64, 81, 97, 100, 128, 121,
                                1009, 1024]


def fft(rng):
    name = pick(rng, ["fft", "ifft", "rfft", "irfft"])

    def number(x):
        return x.real + 0.0 if name == "rfft" else x + 0.0
    dtype = pick(rng, ["float32", "complex64", "complex64", "float16",
                       "int32", "bfloat16", "float64", "bool"])
    norm = pick(rng, ["backward", "ortho", "forward"])
    # An inverse divides where a transform does not.
    factor = norm if name in ("fft", "rfft") else \
        {"backward": "forward", "forward": "backward"}.get(norm, norm)
    form = pick(rng, ["", "", "2", "n"])
    if form == "":
        shape = arrays.shape(rng, 2, 4, empty=0) + (pick(rng, LENGTHS),)
        axis = -1
        if rng.random() < 0.3:
            axis = int(rng.integers(len(shape)))
        n = shape[axis] if rng.random() < 0.5 else int(pick(rng, LENGTHS))
        a = array(rng, shape, dtype)
        if rng.random() < 0.03:
            n = pick(rng, [0, -1])
        return Case("fft", f"mlx_fft_{name}",
                    {"a": a, "n": n, "axis": axis, "norm": norm},
                    lambda m, a: getattr(m.fft, name)(a.a, n, axis, norm),
                    "sum",
                    lambda k: getattr(np.fft, name)(number(k.a), n, axis,
                                                    norm),
                    scale=lambda k: np.abs(np.fft.fft(
                        np.abs(k.a), n, axis, factor)).max())
    shape = arrays.shape(rng, 3, 9, empty=0, least_axes=2)
    a = array(rng, shape, dtype)
    ndim = len(shape)
    axes = [int(i) for i in rng.permutation(ndim)[:2]] if form == "2" else \
        [int(i) for i in
         rng.permutation(ndim)[:int(rng.integers(1, ndim + 1))]]
    sizes = [shape[i] if rng.random() < 0.6 else int(rng.integers(1, 12))
             for i in axes]
    if name == "irfft" and rng.random() < 0.5:
        sizes[-1] = 2 * (shape[axes[-1]] - 1) or 1
    full = f"{name}{form}"
    return Case("fft", f"mlx_fft_{full}",
                {"a": a, "n": sizes, "axes": axes, "norm": norm},
                lambda m, a: getattr(m.fft, full)(a.a, sizes, axes, norm),
                "sum",
                lambda k: getattr(np.fft, full)(number(k.a), sizes,
                                                    axes, norm),
                scale=lambda k: np.abs(np.fft.fftn(
                    np.abs(k.a), sizes, axes, factor)).max())


def frequencies(rng):
    which = int(rng.integers(4))
    if which < 2:
        name = ["fftfreq", "rfftfreq"][which]
        n, d = int(rng.integers(1, 40)), float(pick(rng, [1, 0.5, 0.1, 3]))
        return Case("fft", f"mlx_fft_{name}", {"n": n, "d": d},
                    lambda m, a: getattr(m.fft, name)(n, d), "each",
                    lambda k: getattr(np.fft, name)(n, d))
    name = ["fftshift", "ifftshift"][which - 2]
    a = array(rng, arrays.shape(rng, 3), pick(rng, arrays.ALL), "special")
    axes = [int(i) for i in rng.permutation(a.ndim)] \
        [:int(rng.integers(0, a.ndim + 1))]
    return Case("fft", f"mlx_fft_{name}", {"a": a, "axes": axes},
                lambda m, a: getattr(m.fft, name)(a.a, axes))


GROUPS = [(solved, 3), (decomposed, 3), (measured, 3), (fft, 4),
          (frequencies, 1)]
