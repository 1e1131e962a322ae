#!/usr/bin/env python3
"""Writes the files beside it: functions exported by MLX 0.32.2 on the CPU.

For each function NAME.mlxfn, and NAME.safetensors with inputs (in0, in1, ...,
or in0:KEY for a named one) and what MLX gives for them (out0, out1, ...).
Inputs numbered call1.in0 and so on are a second call.
"""
import pathlib

import mlx.core as mx

mx.set_default_device(mx.cpu)
HERE = pathlib.Path(__file__).parent


def values(*shape, seed=0, low=-1.0, high=1.0):
    return mx.random.uniform(low, high, shape, key=mx.random.key(seed))


def save(name, fun, *calls, shapeless=False):
    """Each call is (positional inputs, named inputs); the first is exported, and
    so are the others unless the file is shapeless."""
    path = str(HERE / f"{name}.mlxfn")
    with mx.exporter(path, fun, shapeless=shapeless) as exporter:
        for args, named in calls if not shapeless else calls[:1]:
            exporter(*args, **named)
    tensors = {}
    for k, (args, named) in enumerate(calls):
        prefix = f"call{k}." if k else ""
        for i, x in enumerate(args):
            tensors[f"{prefix}in{i}"] = x
        for i, key in enumerate(sorted(named)):
            tensors[f"{prefix}in{len(args) + i}:{key}"] = named[key]
        for i, y in enumerate(fun(*args, **named)):
            tensors[f"{prefix}out{i}"] = y
    mx.eval(tensors)
    mx.save_safetensors(str(HERE / f"{name}.safetensors"), tensors,
                        {"made by": "make.py"})


x = values(2, 3)
whole = mx.arange(1, 7, dtype=mx.int32).reshape(2, 3)
rows = values(2, 5, seed=1)

save("unary", lambda x: [
    f(0.5 + 0.4 * x) for f in (
        mx.abs, mx.arccos, mx.arcsin, mx.arcsinh, mx.arctan, mx.arctanh,
        mx.ceil, mx.cos, mx.cosh, mx.erf, mx.erfinv, mx.exp, mx.expm1,
        mx.floor, mx.log, mx.log10, mx.log1p, mx.log2, mx.logical_not,
        mx.negative, mx.round, mx.rsqrt, mx.sigmoid, mx.sign, mx.sin, mx.sinh,
        mx.sqrt, mx.square, mx.tan, mx.tanh, mx.stop_gradient, mx.isnan)
] + [mx.arccosh(2 + x), mx.trunc(3 * x)], ([x], {}))
save("binary", lambda x, y: [
    f(x, y) for f in (
        mx.add, mx.arctan2, mx.divide, mx.equal, mx.floor_divide, mx.greater,
        mx.greater_equal, mx.less, mx.less_equal, mx.logaddexp, mx.maximum,
        mx.minimum, mx.multiply, mx.not_equal, mx.remainder, mx.subtract)
] + [mx.power(mx.abs(x), y), mx.where(x > y, x, 1.0),
     mx.array_equal(x, y, equal_nan=True), *mx.divmod(x, y)],
     ([x, values(3, seed=2)], {}))
save("whole", lambda a, b: [
    a & b, a | b, a ^ b, a << b, a >> b, a // b, a % b, a / b, a ** 2,
    mx.logical_and(a, b), mx.logical_or(a, b), mx.view(a, mx.uint32),
    a.astype(mx.float16), mx.bitwise_and(a.astype(mx.uint8), 3)
], ([whole, mx.array([1, 2, 3])], {}))
save("complex", lambda x, y: [
    mx.real(x + 1j * y), mx.imag(mx.exp(x + 1j * y)),
    mx.conjugate(x + 1j * y), mx.abs(x + 1j * y),
], ([x, values(2, 3, seed=3)], {}))
save("reduce", lambda x: [
    mx.sum(x), mx.mean(x, axis=1), mx.var(x, axis=0, keepdims=True),
    mx.prod(x, axis=1), mx.max(x, axis=0), mx.min(x), mx.all(x > 0, axis=1),
    mx.any(x > 0, axis=0), mx.argmax(x, axis=1), mx.argmin(x, axis=0,
                                                           keepdims=True),
    mx.cumsum(x, axis=1), mx.cumprod(x, axis=0, reverse=True),
    mx.cummax(x, axis=1, inclusive=False), mx.cummin(x, axis=1),
    mx.softmax(x, axis=-1), mx.softmax(x, axis=0), mx.logsumexp(x, axis=1),
], ([rows], {}))
save("order", lambda x, s: [
    mx.sort(x), mx.argsort(x, axis=0), mx.partition(x, 0)[:, 0],
    mx.argpartition(x, 0)[:, 0], mx.sort(mx.topk(x, 2)),
    mx.searchsorted(s, x),
], ([rows, mx.array([-0.5, 0.0, 0.5])], {}))
save("shapes", lambda x: [
    mx.reshape(x, (-1, 2)), mx.flatten(x), mx.unflatten(x, 1, (3, 1)),
    mx.expand_dims(x, (0, 3)), mx.squeeze(x[:1], 0), mx.transpose(x),
    mx.broadcast_to(x[0], (2, 2, 3)), mx.as_strided(x, (2, 2), (1, 2), 1),
    mx.concatenate([x, x[:, :1]], axis=1), mx.pad(x, [(1, 0), (0, 2)], constant_values=7.0),
    *mx.split(x, [1, 2], axis=1), mx.tile(x, (2, 1)), mx.repeat(x, 2, 1),
    mx.depends([x], [x + 1])[0],
], ([x], {}))
save("slices", lambda x, at: [
    x[::-1, 1:4:2], x[1:0:-1], x[:, -2], x.at[1:].add(1.0),
    x.at[:, ::2].multiply(2.0), x.at[:1, 1:3].maximum(0.0),
    mx.slice_update(x, mx.zeros((2, 2)), mx.array([0, 2]), (0, 1)),
    mx.slice(x, at, (1,), (2, 2)), mx.slice_update(x, x[:, :1], at, (1,)),
], ([rows, mx.array([2])], {}))
save("indices", lambda x, i: [
    mx.take(x, i, axis=1), x[i[:2] % 2, i[1:]], mx.take_along_axis(x, i[None], 1),
    mx.put_along_axis(x, i[None], mx.array(9.0), 1), x.at[i % 2].add(1.0),
    x.at[i % 2, i].minimum(0.0),
], ([rows, mx.array([0, 3, 1])], {}))
save("products", lambda a, b, c: [
    a @ b, b.T @ b, mx.addmm(c, a, b, 2.0, 3.0), mx.inner(b.T, b.T),
    mx.gather_mm(a, b[None], rhs_indices=mx.array([0, 0])),
    mx.conv1d(a, values(3, 2, 4, seed=9), stride=2, padding=1),
    mx.conv2d(a[:, :, None], values(2, 1, 1, 4, seed=9), groups=1),
    mx.hadamard_transform(a),
    mx.block_masked_mm(mx.ones((32, 32)), mx.ones((32, 32)), 32,
                       mx.array([[True]]))[:2],
], ([values(2, 3, 4, seed=4), values(4, 2, seed=5), values(2, seed=6)], {}))

w = values(32, 64, seed=7)
packed = mx.quantize(w, group_size=32, bits=4)
mx4 = mx.quantize(w, mode="mxfp4")
save("packed", lambda x: [
    mx.quantized_matmul(x, *packed, group_size=32, bits=4),
    mx.quantized_matmul(x, *mx4, mode="mxfp4"),
    mx.quantized_matmul(x[:, :32], *packed, transpose=False, group_size=32,
                        bits=4),
    mx.gather_qmm(x[:, None], *[p[None] for p in packed],
                  rhs_indices=mx.array([0, 0]), group_size=32, bits=4),
    *mx.quantize(x, group_size=32, bits=8),
], ([values(2, 64, seed=8)], {}))
save("attention", lambda x, w: [
    mx.fast.rms_norm(x, w, 1e-5), mx.fast.layer_norm(x, w, None, 1e-5),
    mx.fast.rope(x[None], 4, traditional=False, base=100.0, scale=0.5,
                 offset=3),
    mx.fast.scaled_dot_product_attention(x[None], x[None], x[None], scale=0.5,
                                         mask="causal"),
], ([values(2, 3, 4, seed=10), values(4, seed=11)], {}))
save("random", lambda key: [
    mx.random.split(key, 3), mx.random.uniform(shape=(2, 2), key=key),
    mx.random.randint(0, 100, (4,), key=key),
], ([mx.random.key(5)], {}))
save("fft", lambda x: [
    mx.fft.fft2(x), mx.fft.ifft(x), mx.fft.rfftn(x), mx.fft.irfft(x, n=9),
    mx.fft.irfft2(mx.fft.rfft2(x), s=(2, 5)),
], ([rows], {}))
spd = values(3, 3, seed=12)
save("linalg", lambda a: [
    mx.linalg.cholesky(a, stream=mx.cpu), mx.linalg.inv(a, stream=mx.cpu),
    mx.linalg.eigvalsh(a, stream=mx.cpu), mx.linalg.svd(
        a, compute_uv=False, stream=mx.cpu),
    mx.abs(mx.linalg.qr(a, stream=mx.cpu)[1]),
    mx.linalg.tri_inv(mx.tril(a), stream=mx.cpu),
], ([spd @ spd.T + mx.eye(3)], {}))
save("constants", lambda: [
    mx.arange(1, 10, 2), mx.arange(0.0, 1.0, 0.25), mx.zeros((2, 2)),
    mx.array([1, 2, 3], dtype=mx.int8), mx.array(2.5, dtype=mx.bfloat16),
], ([], {}))
save("named", lambda x, *, bias, scale: [x * scale + bias],
     ([x], {"scale": x, "bias": mx.array(2.0)}))
save("several", lambda x, w=packed[1]: [mx.sum(x), x + w[0, :1]],
     ([x], {}), ([rows], {}), ([mx.array(1.0)], {}))
save("shapeless", lambda x, y: [
    mx.mean(x, axis=1, keepdims=True) - x, mx.softmax(x, axis=-1),
    x.reshape(-1), mx.expand_dims(x, 1), x @ y, mx.var(x),
    mx.flatten(x[:, None], 1, 2), mx.where(x > 0, x, mx.sum(y, axis=1)),
], ([values(2, 3), values(3, 2)], {}), ([values(4, 5), values(5, 3)], {}),
    shapeless=True)


def masked(x, m, v):
    x = x + 0
    x[m] = v
    return [x]


save("masked", masked, ([x, x > 0, values(6, seed=13)], {}))
