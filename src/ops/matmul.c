/* matmul.c: products of matrices, and what reduces to them. */
#include "params.h"
#include "scope.h"

#include <limits.h>

/* The type of a product of operands of this promoted type. */
static qn_status product_type(const char *op, qn_dtype a, qn_dtype b,
                              qn_dtype *out)
{
    *out = qn_promote(a, b);
    if (!qn_dtype_is_float(*out) && *out != QN_COMPLEX64)
        return qn_fail(QN_E_ARG,
                       "[%s] Only inexact types are supported but %s and %s "
                       "were provided which results in %s, which is not a "
                       "floating point type.",
                       op, qn_dtype_name(a), qn_dtype_name(b),
                       qn_dtype_name(*out));
    return QN_OK;
}

/* Two arrays of at least two dimensions and the product's type. */
static qn_status product(qn_array **out, qn_array *a, qn_array *b, qn_stream *s)
{
    qn_dims batch_a = qn_dims_of(a), batch_b = qn_dims_of(b), dims;
    int m = a->shape[a->ndim - 2], k = a->shape[a->ndim - 1];
    int n = b->shape[b->ndim - 1], rows = b->shape[b->ndim - 2];
    batch_a.ndim -= 2;
    batch_b.ndim -= 2;
    qn_status status = qn_dims_broadcast(&dims, "matmul", &batch_a, &batch_b);
    if (status)
        return status;
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_dims wide = dims;
    wide.dim[wide.ndim++] = m;
    wide.dim[wide.ndim++] = k;
    qn_array *inputs[2] = {broadcast(&c, a, &wide), b};
    /* A single matrix on the right serves every product (params.h). */
    if (b->ndim > 2) {
        wide.dim[wide.ndim - 2] = rows;
        wide.dim[wide.ndim - 1] = n;
        inputs[1] = broadcast(&c, b, &wide);
    }
    dims.dim[dims.ndim++] = m;
    dims.dim[dims.ndim++] = n;
    qn_array *made = NULL;
    if (!c.status)
        qn_scope_hold(&c,
                      qn_make(&made, QN_OP_MATMUL, s, inputs, 2, NULL, 0,
                              a->dtype, dims.dim, dims.ndim),
                      &made);
    return qn_scope_end(&c, out, made);
}

qn_status qn_op_matmul(qn_array **out, qn_array *a, qn_array *b, qn_stream *s)
{
    qn_dtype type;
    qn_status status = product_type("matmul", a->dtype, b->dtype, &type);
    if (status)
        return status;
    if (!a->ndim || !b->ndim)
        return qn_fail(QN_E_ARG, "[matmul] Got 0 dimension input. Inputs must "
                                 "have at least one dimension.");
    /* A line is a row on the left and a column on the right. */
    bool row = a->ndim == 1, column = b->ndim == 1;
    if (a->shape[a->ndim - 1] != b->shape[column ? 0 : b->ndim - 2])
        return qn_fail(QN_E_ARG,
                       "[matmul] Last dimension of first input with shape %s "
                       "must match second to last dimension of second input "
                       "with shape %s.",
                       qn_array_shape_text(a).text,
                       qn_array_shape_text(b).text);
    if (!row && !column && a->dtype == type && b->dtype == type)
        return product(out, a, b, s);
    qn_scope c;
    qn_scope_begin(&c, s);
    a = cast(&c, a, type);
    b = cast(&c, b, type);
    if (row)
        a = expand(&c, a, 0);
    if (column)
        b = expand(&c, b, 1);
    qn_array *made = NULL;
    if (!c.status)
        qn_scope_hold(&c, product(&made, a, b, s), &made);
    if (column)
        made = squeeze(&c, made, -1);
    if (row)
        made = squeeze(&c, made, column ? -1 : -2);
    return qn_scope_end(&c, out, made);
}

qn_status qn_op_addmm(qn_array **out, qn_array *c_in, qn_array *a, qn_array *b,
                      float alpha, float beta, qn_stream *s)
{
    qn_dtype type = qn_promote(c_in->dtype, qn_promote(a->dtype, b->dtype));
    if (!qn_dtype_is_float(type) && type != QN_COMPLEX64)
        return qn_fail(QN_E_ARG,
                       "[addmm] Only floating point types are supported "
                       "but %s, %s and %s were provided which results in %s.",
                       qn_dtype_name(c_in->dtype), qn_dtype_name(a->dtype),
                       qn_dtype_name(b->dtype), qn_dtype_name(type));
    qn_scope c;
    qn_scope_begin(&c, s);
    a = cast(&c, a, type);
    b = cast(&c, b, type);
    qn_array *x = cast(&c, c_in, type);
    /* A half product may overflow before it is scaled: round once, at the
     * end. */
    qn_dtype kept = type;
    if ((type == QN_FLOAT16 || type == QN_BFLOAT16) &&
        (alpha != 1 || beta != 1)) {
        type = QN_FLOAT32;
        a = cast(&c, a, type);
        b = cast(&c, b, type);
        x = cast(&c, x, type);
    }
    qn_array *y = matmul(&c, a, b);
    if (c.status)
        return qn_scope_end(&c, out, NULL);
    qn_dims dims = qn_dims_of(y);
    x = broadcast(&c, x, &dims);
    if (alpha != 1)
        y = mul(&c, y, scalar(&c, alpha, type));
    if (beta != 1)
        x = mul(&c, x, scalar(&c, beta, type));
    return qn_scope_end(&c, out, cast(&c, add(&c, y, x), kept));
}

/* ---- contractions ---- */

/* Axes chosen by a bit each: the others first or last, in order. */
static void order_of(int *order, const qn_array *x, const int *chosen,
                     int count, bool chosen_first)
{
    uint32_t bits = 0;
    for (int i = 0; i < count; i++)
        bits |= UINT32_C(1) << chosen[i];
    int at = chosen_first ? count : 0;
    for (int i = 0; i < x->ndim; i++)
        if (!(bits & UINT32_C(1) << i))
            order[at++] = i;
    for (int i = 0; i < count; i++)
        order[(chosen_first ? 0 : x->ndim - count) + i] = chosen[i];
}

qn_status qn_op_tensordot(qn_array **out, qn_array *a, qn_array *b,
                          const int *axes_a, size_t naxes_a, const int *axes_b,
                          size_t naxes_b, qn_stream *s)
{
    int la[QN_MAX_NDIM], lb[QN_MAX_NDIM], oa[QN_MAX_NDIM], ob[QN_MAX_NDIM];
    if (naxes_a != naxes_b)
        return qn_fail(QN_E_ARG,
                       "[tensordot] The operands must have equally many axes "
                       "to sum over, found %zu and %zu.",
                       naxes_a, naxes_b);
    qn_dtype type;
    qn_status status = product_type("tensordot", a->dtype, b->dtype, &type);
    if (!status)
        status = qn_axes_of(la, "tensordot", axes_a, naxes_a, a->ndim);
    if (!status)
        status = qn_axes_of(lb, "tensordot", axes_b, naxes_b, b->ndim);
    if (status)
        return status;
    int n = (int)naxes_a;
    qn_dims left = {.ndim = 2, .dim = {1, 1}},
            right = {.ndim = 2, .dim = {1, 1}};
    qn_dims dims = {.ndim = 0};
    int64_t rows = 1, columns = 1, inner = 1;
    for (int i = 0; i < n; i++) {
        if (a->shape[la[i]] != b->shape[lb[i]])
            return qn_fail(QN_E_ARG,
                           "[tensordot] Axis %d of shape %s and axis %d of "
                           "shape %s must have the same length.",
                           la[i], qn_array_shape_text(a).text, lb[i],
                           qn_array_shape_text(b).text);
        inner = inner > INT_MAX ? inner : inner * a->shape[la[i]];
    }
    order_of(oa, a, la, n, false);
    order_of(ob, b, lb, n, true);
    if (a->ndim + b->ndim - 2 * n > QN_MAX_NDIM)
        return qn_fail(QN_E_ARG,
                       "[tensordot] The result would have %d dimensions, more "
                       "than %d.",
                       a->ndim + b->ndim - 2 * n, QN_MAX_NDIM);
    for (int i = 0; i < a->ndim - n; i++) {
        dims.dim[dims.ndim++] = a->shape[oa[i]];
        rows = rows > INT_MAX ? rows : rows * a->shape[oa[i]];
    }
    for (int i = n; i < b->ndim; i++) {
        dims.dim[dims.ndim++] = b->shape[ob[i]];
        columns = columns > INT_MAX ? columns : columns * b->shape[ob[i]];
    }
    status = qn_dim_fit(&left.dim[0], "tensordot", rows);
    if (!status)
        status = qn_dim_fit(&left.dim[1], "tensordot", inner);
    if (!status)
        status = qn_dim_fit(&right.dim[1], "tensordot", columns);
    if (status)
        return status;
    right.dim[0] = left.dim[1];
    qn_scope c;
    qn_scope_begin(&c, s);
    a = cast(&c, a, type);
    b = cast(&c, b, type);
    qn_array *y = c.status
                      ? NULL
                      : matmul(&c, reshape(&c, transpose(&c, a, oa), &left),
                               reshape(&c, transpose(&c, b, ob), &right));
    return qn_scope_end(&c, out, reshape(&c, y, &dims));
}

qn_status qn_op_tensordot_axis(qn_array **out, qn_array *a, qn_array *b,
                               int naxes, qn_stream *s)
{
    if (naxes < 0 || naxes > a->ndim || naxes > b->ndim)
        return qn_fail(QN_E_ARG,
                       "[tensordot] The number of axes must be between 0 and "
                       "the numbers of dimensions, %d and %d, found %d.",
                       a->ndim, b->ndim, naxes);
    int la[QN_MAX_NDIM], lb[QN_MAX_NDIM];
    for (int i = 0; i < naxes; i++) {
        la[i] = a->ndim - naxes + i;
        lb[i] = i;
    }
    return qn_op_tensordot(out, a, b, la, (size_t)naxes, lb, (size_t)naxes, s);
}

qn_status qn_op_inner(qn_array **out, qn_array *a, qn_array *b, qn_stream *s)
{
    if (!a->ndim || !b->ndim)
        return qn_op_binary(out, QN_OP_MULTIPLY, a, b, s);
    if (a->shape[a->ndim - 1] != b->shape[b->ndim - 1])
        return qn_fail(QN_E_ARG,
                       "[inner] The last dimensions must have the same length, "
                       "found shapes %s and %s.",
                       qn_array_shape_text(a).text,
                       qn_array_shape_text(b).text);
    int last = -1;
    return qn_op_tensordot(out, a, b, &last, 1, &last, 1, s);
}

qn_status qn_op_outer(qn_array **out, qn_array *a, qn_array *b, qn_stream *s)
{
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *column = expand(&c, flatten(&c, a), 1);
    return qn_scope_end(&c, out, mul(&c, column, flatten(&c, b)));
}

qn_status qn_op_kron(qn_array **out, qn_array *a, qn_array *b, qn_stream *s)
{
    int ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
    if (ndim > QN_MAX_NDIM / 2)
        return qn_fail(QN_E_ARG,
                       "[kron] Operands have at most %d dimensions, found %d.",
                       QN_MAX_NDIM / 2, ndim);
    if (!a->size || !b->size)
        return qn_fail(QN_E_ARG,
                       "[kron] Input arrays cannot be empty, found shapes %s "
                       "and %s.",
                       qn_array_shape_text(a).text,
                       qn_array_shape_text(b).text);
    qn_dims wide_a = {.ndim = 2 * ndim}, wide_b = {.ndim = 2 * ndim};
    qn_dims flat = {.ndim = ndim};
    for (int i = 0; i < ndim; i++) {
        int ia = i - (ndim - a->ndim), ib = i - (ndim - b->ndim);
        int da = ia < 0 ? 1 : a->shape[ia], db = ib < 0 ? 1 : b->shape[ib];
        wide_a.dim[2 * i] = da;
        wide_a.dim[2 * i + 1] = 1;
        wide_b.dim[2 * i] = 1;
        wide_b.dim[2 * i + 1] = db;
        qn_status status = qn_dim_fit(&flat.dim[i], "kron", (int64_t)da * db);
        if (status)
            return status;
    }
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *y = mul(&c, reshape(&c, a, &wide_a), reshape(&c, b, &wide_b));
    return qn_scope_end(&c, out, reshape(&c, y, &flat));
}

qn_status qn_op_vecdot(qn_array **out, qn_array *a, qn_array *b, int axis,
                       qn_stream *s)
{
    int at_a, at_b;
    qn_status status = qn_axis_of(&at_a, "vecdot", axis, a->ndim);
    if (!status)
        status = qn_axis_of(&at_b, "vecdot", axis, b->ndim);
    if (status)
        return status;
    /* Counted from the end, as broadcasting lines axes up. */
    int from_end = at_a - a->ndim;
    if (from_end != at_b - b->ndim || a->shape[at_a] != b->shape[at_b])
        return qn_fail(QN_E_ARG,
                       "[vecdot] Both operands must have the same length along "
                       "axis %d, found shapes %s and %s.",
                       axis, qn_array_shape_text(a).text,
                       qn_array_shape_text(b).text);
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *y = mul(&c, unary(&c, QN_OP_CONJUGATE, a), b);
    return qn_scope_end(&c, out, reduce(&c, QN_OP_SUM, y, &from_end, 1, false));
}
