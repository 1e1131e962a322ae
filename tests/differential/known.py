"""Disagreements that docs/differences.md explains.

Each rule names a row of that page by the beginning of its first column (a
row that is gone makes the test fail) and says, as narrowly as it can, which
cases it covers.  A rule sees the case and the text of the disagreement.
"""

import pathlib
import re

import numpy as np

import arrays

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "differences.md"
WHOLE = ["bool"] + arrays.INTS
RULES = []


def rule(row):
    """Registers a rule for this row of the page."""
    def keep(function):
        RULES.append((row, function))
        return function
    return keep


def rows():
    """The first column of every table row of the page."""
    text = PAGE.read_text(encoding="utf-8")
    return [line.split(" | ")[0].removeprefix("| ")
            for line in text.splitlines() if line.startswith("| ")]


def check_rows():
    """Fails if a rule's row is not on the page."""
    there = rows()
    for row, _ in RULES:
        if not any(name.startswith(row) for name in there):
            raise SystemExit(f"known.py: docs/differences.md has no row "
                             f"that begins with '{row}'")


def reason(case, wrong):
    """The row that explains this disagreement, or None."""
    for row, covers in RULES:
        if covers(case, wrong):
            return row
    return None


def inputs(case):
    return [arr for _, arr in case.arrays()]


def has_nan(case):
    return any(np.isnan(x.wide()).any() for x in inputs(case)
               if arrays.is_inexact(x.dtype) and x.size)


def is_(case, *names):
    return re.fullmatch("mlx_(" + "|".join(names) + ")", case.function)


@rule("`argmax`, `argmin` over NaN")
def _(case, wrong):
    return is_(case, "argmax.*", "argmin.*") and has_nan(case) and \
        "differ" in wrong and right(case)


def right(case):
    """Nothing more is known of the answer: the unit tests hold it."""
    return True


@rule("`argmax` with `keepdims` of a 0-d array")
def _(case, wrong):
    return is_(case, "argmax", "argmin") and "MLX refuses" in wrong and \
        case.args["a"].ndim == 0


@rule("`logsumexp`, `logcumsumexp` of integers")
def _(case, wrong):
    return is_(case, "logsumexp.*", "logcumsumexp.*") and \
        case.args["a"].dtype in WHOLE


@rule("`softmax` of integers")
def _(case, wrong):
    return is_(case, "softmax.*") and case.args["a"].dtype in WHOLE and \
        "dtype float32, MLX" in wrong


@rule("`all`, `prod` of nothing")
def _(case, wrong):
    return is_(case, "(all|prod).*") and case.args["a"].size == 0


@rule("`cummax`, `cummin` over NaN in half types")
def _(case, wrong):
    return is_(case, "cummax.*", "cummin.*") and has_nan(case) and \
        case.args["a"].dtype in arrays.HALVES and "found np.float64(nan)" \
        in wrong


@rule("`round` to places")
def _(case, wrong):
    return is_(case, "round") and case.args["decimals"] != 0 and \
        (case.args["a"].dtype in WHOLE + ["float64"] + arrays.HALVES or
         "inf" in wrong)


@rule("`bitwise_xor` of bool")
def _(case, wrong):
    return is_(case, "bitwise_xor") and \
        set(case.dtypes()) == {"bool"} and "differ, first" in wrong


@rule("`isclose`, `allclose` of integers")
def _(case, wrong):
    """Also an integer that the common type makes infinite."""
    return is_(case, "isclose", "allclose") and (
        set(case.dtypes()) <= set(WHOLE) or
        set(case.dtypes()) & set(WHOLE) and "float16" in case.dtypes())


@rule("`nan_to_num` of float64 without limits")
def _(case, wrong):
    return is_(case, "nan_to_num") and case.args["a"].dtype == "float64" \
        and "MLX refuses" in wrong


@rule("`pad` in mode `edge` along an empty axis")
def _(case, wrong):
    return is_(case, "pad.*") and case.args["mode"] == "edge" and \
        case.args["a"].size == 0 and wrong.startswith("refused")


@rule("`median` over no axes")
def _(case, wrong):
    return is_(case, "median_axes") and not case.args["axes"] and \
        "MLX refuses" in wrong


@rule("`gather_mm`, `block_masked_mm` of half types and float64")
def _(case, wrong):
    return is_(case, "gather_mm", "block_masked_mm", "segmented_mm") and \
        "MLX refuses" in wrong and "Currently only supports float32" in wrong


@rule("convolution of float64; with complex weights")
def _(case, wrong):
    return is_(case, "conv.*") and (
        "MLX refuses" in wrong and "float64" in case.dtypes() or
        wrong.startswith("refused") and "complex64" in case.dtypes())


@rule("convolution in groups over three axes")
def _(case, wrong):
    return is_(case, "conv.*") and "MLX refuses" in wrong and \
        case.args["groups"] > 1 and case.args["input"].ndim >= 5


@rule("`view` of an array that is not contiguous")
def _(case, wrong):
    return is_(case, "view") and case.args["a"].layout and "differ" in wrong


@rule("complex64 as a condition")
def _(case, wrong):
    """astype to bool, logical operations, where, any and all."""
    return "complex64" in case.dtypes() and is_(
        case, "logical_.*", "astype", "where", "any.*", "all.*",
        "count_nonzero.*") and "differ, first" in wrong


@rule("convolution with an infinite weight")
def _(case, wrong):
    return is_(case, "conv.*") and \
        not np.isfinite(case.args["weight"].wide()).all()


@rule("`linspace` in integer types")
def _(case, wrong):
    return is_(case, "linspace.*") and case.args["dtype"] in arrays.INTS


@rule("`softmax` of an empty array")
def _(case, wrong):
    return is_(case, "softmax.*") and case.args["a"].size == 0 and \
        wrong.startswith("refused")


@rule("transforms that MLX lacks")
def _(case, wrong):
    return bool(case.transform) and "MLX refuses" in wrong


@rule("gradient of a convolution that reads less than its input")
def _(case, wrong):
    return is_(case, "conv.*") and bool(case.transform) and \
        case.transform[0] == "vjp" and ": shape" in wrong


@rule("transforms of `pad` in mode `reflect`")
def _(case, wrong):
    return is_(case, "pad.*") and bool(case.transform) and \
        case.args["mode"] == "reflect" and (
            1 in case.args["a"].shape or case.transform[0] == "vmap")


@rule("`vmap` of a convolution in groups over its weight")
def _(case, wrong):
    return is_(case, "conv.*") and bool(case.transform) and \
        case.transform[:2] == ("vmap", ["weight"]) and \
        case.args["groups"] > 1


@rule("`vmap` of a pair of different ranks")
def _(case, wrong):
    return bool(case.transform) and case.transform[0] == "vmap" and \
        ": shape" in wrong and len({x.ndim for x in inputs(case)}) > 1


@rule("forward mode of `addmm`, of `divmod`")
def _(case, wrong):
    return bool(case.transform) and case.transform[0] == "jvp" and \
        is_(case, "addmm", "divmod") and "differ, first" in wrong


@rule("gradient of `rope`, traditional over two dimensions")
def _(case, wrong):
    return bool(case.transform) and is_(case, "fast_rope.*") and \
        case.args["traditional"] and case.args["dims"] == 2


@rule("`hadamard_transform` of an empty array")
def _(case, wrong):
    return is_(case, "hadamard_transform") and case.args["a"].size == 0


@rule("packed formats: groups and widths outside the list")
def _(case, wrong):
    return is_(case, "(gather_)?quantized_matmul", "gather_qmm",
               "dequantize") and wrong.startswith("refused") and (
        case.args["bits"] not in (2, 3, 4, 5, 6, 8) or
        case.args["group_size"] not in (32, 64, 128) or
        case.args["mode"] != "affine")


@rule("nvfp4 of rows that are not a multiple of 32 long")
def _(case, wrong):
    return is_(case, "quantize", "dequantize") and \
        case.args["mode"] == "nvfp4" and "[reshape] Cannot reshape" in wrong


@rule("`cross` of two components, an operand reversed")
def _(case, wrong):
    return is_(case, "linalg_cross") and any(
        kind == "reverse" for x in inputs(case) for kind, _ in x.layout)


@rule("`hadamard_transform` of float64; of complex64; of integers")
def _(case, wrong):
    return is_(case, "hadamard_transform") and \
        case.dtypes()[0] not in ("float32", "float16", "bfloat16")


@rule("matrix that is not positive definite in `cholesky`")
def _(case, wrong):
    return is_(case, "linalg_cholesky") and wrong.startswith("refused") and \
        "not positive definite" in wrong


@rule("`solve` with leading axes to broadcast")
def _(case, wrong):
    return is_(case, "linalg_solve.*") and "MLX refuses" in wrong


@rule("types and shapes that MLX refuses on a CPU")
def _(case, wrong):
    """What works here beyond MLX: a float64 result where MLX stops at
    float32, and what can be promoted."""
    return "MLX refuses" in wrong and case.group == "error" and is_(
        case, "linalg_.*", "quantize", "quantized_matmul",
        "block_masked_mm", "dequantize")


@rule("packed formats: scales and biases of integer types, of other shapes")
def _(case, wrong):
    return wrong.startswith("refused") and is_(
        case, "quantized_matmul", "dequantize", "gather_qmm") and (
        "must be of real floating types" in wrong or
        "do not match with" in wrong or
        "should have the same shape" in wrong)


@rule("`vecdot`, `cross` over different ranks")
def _(case, wrong):
    return is_(case, "vecdot", "linalg_cross") and "refuse" in wrong and \
        case.args["a"].ndim != case.args["b"].ndim


@rule("`addmm` of complex64, a `c` larger than the product")
def _(case, wrong):
    return is_(case, "addmm") and wrong.startswith("refused") and \
        "complex64" in case.dtypes()


@rule("nvfp4 of half types with a global scale")
def _(case, wrong):
    return is_(case, "quantize") and case.args["mode"] == "nvfp4" and \
        case.args["global_scale"] is not None and \
        case.args["w"].dtype in arrays.HALVES


@rule("`as_strided` of an array that is not row contiguous")
def _(case, wrong):
    return is_(case, "as_strided") and "MLX refuses" in wrong and \
        bool(case.args["a"].layout)


@rule("a kernel that is too large for its input")
def _(case, wrong):
    return is_(case, "conv.*") and wrong.startswith("refused") and \
        "fewer than the" in wrong
