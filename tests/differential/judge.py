"""Compares an answer of the engine with MLX's and with a float64 result."""

import numpy as np

import arrays
from arrays import Arr


def same_bits(ours, theirs):
    """Which elements are the same bits, NaN like NaN."""
    if ours.size == 0:
        return np.ones(ours.shape, bool)
    bits = np.dtype(f"uint{8 * ours.data.itemsize}")
    same = np.atleast_1d(ours.data).view(bits) == \
        np.atleast_1d(theirs.data).view(bits)
    if arrays.is_inexact(ours.dtype):
        same |= np.isnan(np.atleast_1d(ours.wide())) & \
            np.isnan(np.atleast_1d(theirs.wide()))
    return same.reshape(ours.shape)


def difference(a, b):
    """|a - b|, 0 where both are the same infinity or NaN, inf where only one
    is finite or a number."""
    with np.errstate(all="ignore"):
        out = np.abs(a - b)
        equal = (a == b) | (np.isnan(a) & np.isnan(b))
        if np.iscomplexobj(a):
            return np.maximum(difference(a.real, b.real),
                              difference(a.imag, b.imag))
    out = np.where(equal, 0.0, out)
    return np.where(np.isnan(out), np.inf, out)


def describe(bad, ours, theirs, truth=None):
    """The first of the places that differ."""
    places = np.argwhere(bad)
    at = tuple(int(i) for i in places[0])
    text = f"{len(places)} of {bad.size} differ, first at {list(at)}: " \
        f"found {ours.wide()[at]!r}, MLX {theirs.wide()[at]!r}"
    if truth is not None:
        text += f", float64 {truth[at]!r}"
    return text


def compare(ours, theirs, judge="exact", truth=None, scale=None, loose=8,
            floor=0):
    """None, or what is wrong with `ours` (both are Arr)."""
    if ours.dtype != theirs.dtype:
        return f"dtype {ours.dtype}, MLX {theirs.dtype}"
    if ours.shape != theirs.shape:
        return f"shape {ours.shape}, MLX {theirs.shape}"
    if judge == "error" or ours.size == 0:
        return None
    same = same_bits(ours, theirs)
    if same.all():
        return None
    dtype = ours.dtype
    if judge == "exact" or not arrays.is_inexact(dtype):
        return describe(~same, ours, theirs)
    a, b = ours.wide(), theirs.wide()
    if judge == "loose" or truth is None:
        finite = np.abs(np.where(np.isfinite(b), b, 0))
        top = max(finite.max(), floor) if scale is None else scale
        good = same | (difference(a, b) <= loose * arrays.ulp(top, dtype))
        return None if good.all() else describe(~good, ours, theirs)

    truth = np.broadcast_to(np.asarray(truth), ours.shape)
    if dtype == "complex64":
        truth = truth.astype(np.complex128)
        magnitude = np.abs(np.where(np.isfinite(truth), truth, 0))
    else:
        truth = truth.astype(np.float64)
        magnitude = np.where(np.isfinite(truth), np.abs(truth), 0)
    # What dtype makes of the truth: an overflow is right.
    rounded = truth if dtype == "complex64" else \
        arrays.round_to(truth, dtype)
    finite = np.isfinite(rounded)
    goal = np.where(finite, truth, rounded)
    mine, peers = difference(a, goal), difference(b, goal)
    slack = 2 * arrays.ulp(magnitude, dtype)
    if dtype == "float64":
        slack = slack * 2  # numpy's own last place
    if judge != "each":
        top = magnitude.max() if scale is None else \
            np.broadcast_to(scale, ours.shape)
        slack = np.maximum(slack, 2 * arrays.ulp(top, dtype))
        # Where roundings add up, one element's error is luck: the measure
        # is the worst of MLX's.
        known = peers[np.isfinite(peers)]
        peers = np.where(np.isfinite(peers), known.max(initial=0), peers)
    good = same | (mine <= peers + slack)
    # Where the truth is not finite, an answer that is NaN or infinite in
    # another way than both is wrong; where MLX is not finite but the truth
    # is, being finite and near is what counts.
    lost = ~np.isfinite(peers)
    good &= same | ~lost | (mine <= slack)
    if judge == "each" and dtype != "complex64":
        zeros = (a == 0) & (b == 0) & (goal == 0)
        sign = np.signbit(a)
        good &= ~zeros | (sign == np.signbit(b)) | (sign == np.signbit(goal))
    if good.all():
        return None
    return describe(~good, ours, theirs, truth)
