"""fast.h: norms, rope, attention, cross entropy."""

import numpy as np

import arrays
from arrays import Arr, array, pick
from case import Case

DTYPES = ["float32"] * 2 + ["float16", "bfloat16", "float64"]


def norms(rng):
    dtype = pick(rng, DTYPES)
    width = int(pick(rng, [1, 2, 5, 8, 33, 64, 200]))
    x = array(rng, arrays.shape(rng, 3, 5) + (width,), dtype,
              pick(rng, ["tame", "tame", "whole", "unit"]))
    other = dtype if rng.random() < 0.8 else pick(rng, DTYPES[:-1])
    eps = float(np.float32(pick(rng, [1e-5, 1e-3, 1e-6])))

    def some():
        return None if rng.random() < 0.3 else array(rng, (width,), other)
    if rng.random() < 0.5:
        def rms(n):
            y = n.x / np.sqrt(np.mean(n.x ** 2, -1, keepdims=True) + eps)
            return y if n.weight is None else y * n.weight
        return Case("fast", "mlx_fast_rms_norm",
                    {"x": x, "weight": some(), "eps": eps},
                    lambda m, a: m.fast.rms_norm(a.x, a.weight, eps),
                    "scaled", rms)

    def layer(n):
        mean = np.mean(n.x, -1, keepdims=True)
        y = (n.x - mean) / np.sqrt(np.var(n.x, -1, keepdims=True) + eps)
        y = y if n.weight is None else y * n.weight
        return y if n.bias is None else y + n.bias
    return Case("fast", "mlx_fast_layer_norm",
                {"x": x, "weight": some(), "bias": some(), "eps": eps},
                lambda m, a: m.fast.layer_norm(a.x, a.weight, a.bias, eps),
                "scaled", layer)


def rope(rng):
    dtype = pick(rng, DTYPES[:-1])
    half = int(rng.integers(1, 9))
    dims = 2 * half
    width = dims + (2 * int(rng.integers(0, 4)) if rng.random() < .3 else 0)
    rows = int(rng.integers(1, 4))
    middle = () if rng.random() < 0.3 else (int(rng.integers(1, 4)),)
    length = int(rng.integers(1, 9))
    x = array(rng, (rows,) + middle + (length, width), dtype)
    traditional = bool(rng.random() < 0.5)
    freqs, base = None, float(pick(rng, [10000.0, 100.0, 500000.0]))
    if rng.random() < 0.3:
        freqs, base = Arr(rng.uniform(1, 100, half), "float32"), None
    scale = float(np.float32(pick(rng, [1.0, 0.5, 2.0])))
    start = int(pick(rng, [0, 1, 37, 500]))
    if rng.random() < 0.03:
        dims += 1

    def ref(n):
        t = np.arange(length) * 1.0
        begin = np.asarray(n.offset, np.float64).reshape(-1, 1) \
            if not isinstance(n.offset, int) else np.array([[n.offset]])
        p = (t[None] + begin) * scale
        k = np.arange(half)
        w = base ** (-k / half) if freqs is None else 1 / freqs.wide()
        angle = p[..., None] * w
        angle = angle.reshape((angle.shape[0],) + (1,) * len(middle) +
                              angle.shape[1:])
        cos, sin = np.cos(angle), np.sin(angle)
        y = n.x.copy()
        a, b = (slice(0, dims, 2), slice(1, dims, 2)) if traditional else \
            (slice(0, half), slice(half, dims))
        x1, x2 = n.x[..., a], n.x[..., b]
        y[..., a], y[..., b] = x1 * cos - x2 * sin, x1 * sin + x2 * cos
        return y
    args = {"x": x, "dims": dims, "traditional": traditional, "base": base,
            "scale": scale, "offset": start, "freqs": freqs}

    def peer(m, a):
        return m.fast.rope(a.x, dims, traditional=traditional, base=base,
                           scale=scale, offset=a.offset, freqs=a.freqs)
    # An angle is a float32 product: its own rounding grows with it.
    angle = (start + length) * scale * (1.0 if freqs is None else 1.0)

    def bound(n):
        return np.abs(n.x).max() * (1 + angle if dtype == "float32" else 1)
    if rng.random() < 0.4:
        offsets = rng.integers(0, 40, rows if rng.random() < .5 else ())
        args["offset"] = Arr(np.asarray(offsets), "int32")
        return Case("fast", "mlx_fast_rope_dynamic", args, peer, "scaled",
                    ref, cast=False, scale=lambda n: np.abs(n.x).max() * (
                        1 + 50 * scale if dtype == "float32" else 1))
    return Case("fast", "mlx_fast_rope", args, peer, "scaled", ref,
                cast=False, scale=bound)


def attention(rng):
    dtype = pick(rng, DTYPES[:-1])
    rows, pairs = (int(i) for i in rng.integers(1, 3, 2))
    heads = pairs * int(pick(rng, [1, 1, 2, 4]))
    lq, lk = (int(i) for i in rng.integers(1, 12, 2))
    if rng.random() < 0.1:
        lq, lk = 33, 70
    d = int(pick(rng, [4, 8, 16, 64, 5]))
    dv = d if rng.random() < 0.8 else int(pick(rng, [4, 12]))
    q = array(rng, (rows, heads, lq, d), dtype)
    k = array(rng, (rows, pairs, lk, d), dtype)
    v = array(rng, (rows, pairs, lk, dv), dtype)
    scale = float(np.float32(d ** -0.5))
    mode = pick(rng, ["", "", "causal", "array", "array"])
    if mode == "causal" and lq > lk:
        lq_keep = lk
        q = array(rng, (rows, heads, lq_keep, d), dtype)
        lq = lq_keep
    mask = sinks = None
    if mode == "array":
        shape = pick(rng, [(lq, lk), (1, 1, lq, lk), (rows, heads, lq, lk),
                           (rows, 1, 1, lk), (1, heads, lq, lk)])
        if rng.random() < 0.5:
            mask = array(rng, shape, "bool")
            mask.data[..., 0] = True
            if mask.layout and mask.layout[0][0] == "broadcast":
                mask.layout = []
        else:
            mask = array(rng, shape, dtype)
    if rng.random() < 0.15:
        sinks = array(rng, (heads,), dtype)

    def ref(n):
        repeat = heads // pairs
        kk, vv = np.repeat(n.keys, repeat, 1), np.repeat(n.values, repeat, 1)
        s = scale * (n.queries @ np.swapaxes(kk, -1, -2))
        if mode == "causal":
            i, j = np.ogrid[:lq, :lk]
            s = np.where(j <= i + lk - lq, s, -np.inf)
        elif mask is not None:
            s = np.where(n.mask_arr, s, -np.inf) \
                if n.mask_arr.dtype == bool else s + n.mask_arr
        top = s.max(-1, keepdims=True)
        if n.sinks is not None:
            sink = n.sinks.reshape(1, -1, 1, 1)
            top = np.maximum(top, sink)
        e = np.exp(s - top)
        total = e.sum(-1, keepdims=True)
        if n.sinks is not None:
            total = total + np.exp(sink - top)
        return (e / total) @ vv
    args = {"queries": q, "keys": k, "values": v, "scale": scale,
            "mask_mode": mode, "mask_arr": mask, "sinks": sinks,
            "force_fused": False}
    if rng.random() < 0.03:
        args["keys"] = array(rng, (rows, pairs, lk, d + 1), dtype)
    return Case("fast", "mlx_fast_scaled_dot_product_attention", args,
                lambda m, a: m.fast.scaled_dot_product_attention(
                    a.queries, a.keys, a.values, scale=scale,
                    mask=a.mask_arr if a.mask_arr is not None else
                    mode or None, sinks=a.sinks),
                "scaled", ref, cast=False,
                scale=lambda n: np.abs(n.values).max() * 8)


def cross_entropy(rng):
    dtype = pick(rng, DTYPES[:-1])
    n = int(rng.integers(1, 40))
    lead = arrays.shape(rng, 2, 5, empty=0)
    x = array(rng, lead + (n,), dtype)
    t = Arr(rng.integers(0, n, lead), pick(rng, ["int32", "uint32"]),
            arrays.layout(rng, lead))

    def ref(n):
        top = n.logits.max(-1, keepdims=True)
        total = np.log(np.exp(n.logits - top).sum(-1)) + top[..., 0]
        return total - np.take_along_axis(
            n.logits, n.targets[..., None].astype(int), -1)[..., 0]
    return Case("fast", "mlx_fast_cross_entropy",
                {"logits": x, "targets": t},
                lambda m, a: m.fast.cross_entropy(a.logits, a.targets),
                "scaled", ref, cast=False,
                scale=lambda n: np.abs(n.logits).max() + 4)


GROUPS = [(norms, 2), (rope, 2), (attention, 3), (cross_entropy, 1)]
