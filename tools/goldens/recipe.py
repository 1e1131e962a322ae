"""Weights that a file of a few kilobytes stands for.

A tensor is a name and a rule; its elements are numbers made of a hash of the
name and the element's place, so that tests make the same weights without the
megabytes in the repository.  tests/support/recipe.h has the same rules in C:

    floats E O          (h - 128) * 2^E + O, h the hash's top 8 bits: exact in
                        float32, bfloat16 and float16
    words M             the hash, masked
    scales E            (64 + the hash's top 6 bits) * 2^E
    biases NAME Z       -Z times the element of the tensor NAME
    bytes B N           B + hash % N
    turned N            1 for the first N elements, 1e30 for the others
    blocks SIZE FIXED   bytes of the hash, but for FIXED: a list of
                        [offset, "f16", E], a number as in `scales`, and
                        [offset, "byte", B, N], a byte as in `bytes`
"""

import math

import numpy as np


def hashes(name, salt, count):
    seed = 2166136261
    for byte in name.encode():
        seed = ((seed ^ byte) * 16777619) & 0xFFFFFFFF
    seed ^= (salt * 0x9E3779B1) & 0xFFFFFFFF
    x = np.arange(count, dtype=np.uint64) * 0x9E3779B9 + seed
    x = (x & 0xFFFFFFFF).astype(np.uint32)
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x85EBCA6B)
    x ^= x >> np.uint32(13)
    x *= np.uint32(0xC2B2AE35)
    x ^= x >> np.uint32(16)
    return x


def _blocks(name, salt, shape, rule):
    _, size, fixed = rule
    count = math.prod(shape) // size
    data = (hashes(name, salt, count * size) >> 24).astype(np.uint8)
    data = data.reshape(count, size)
    for i, fix in enumerate(fixed):
        h = hashes(f"{name}#{i}", salt, count)
        at, kind = fix[:2]
        if kind == "f16":
            values = ((64 + (h >> 26)) * 2.0 ** fix[2]).astype(np.float16)
            data[:, at:at + 2] = values.view(np.uint8).reshape(count, 2)
        else:
            data[:, at] = fix[2] + h % fix[3]
    return data.reshape(shape)


def make(name, salt, shape, rule, tensors=None):
    """The elements as a numpy array: float32, uint32 or uint8."""
    kind = rule[0]
    if kind == "blocks":
        return _blocks(name, salt, shape, rule)
    if kind == "biases":
        other = tensors[rule[1]]
        values = -rule[2] * make(rule[1], salt, other[0], other[1])
        return values.astype(np.float32)
    h = hashes(name, salt, math.prod(shape))
    if kind == "floats":
        values = ((h >> 24).astype(np.float64) - 128) * 2.0 ** rule[1] + rule[2]
        values = values.astype(np.float32)
    elif kind == "words":
        values = h & np.uint32(rule[1])
    elif kind == "scales":
        values = ((64 + (h >> 26)) * 2.0 ** rule[1]).astype(np.float32)
    elif kind == "bytes":
        values = (rule[1] + h % np.uint32(rule[2])).astype(np.uint8)
    elif kind == "turned":
        values = np.full(h.size, 1e30, np.float32)
        values[:rule[1]] = 1
    else:
        raise ValueError(kind)
    return values.reshape(shape)


def exponent(fan_in, gain=1.0):
    """So that a row of `fan_in` weights gives outputs of about `gain`."""
    return round(math.log2(gain / (74 * math.sqrt(fan_in))))


def rule_for(name, shape, overrides=()):
    """What a weight of this name is made by; `overrides` are (part of a name,
    rule), the first that fits."""
    for part, rule in overrides:
        if part in name:
            return list(rule)
    if "embed" in name or "lm_head" in name or "token_embd" in name \
            or name == "output.weight":
        return ["floats", -7, 0]
    if len(shape) == 1:
        if "norm" in name and name.endswith("weight"):
            return ["floats", -7, 1]
        return ["floats", -8, 0]
    return ["floats", exponent(shape[-1]), 0]
