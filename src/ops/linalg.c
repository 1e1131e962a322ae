/* linalg.c: linear algebra on the matrices in the last two axes.
 *
 * Factorisations are primitives of float32 and float64 (some of complex64);
 * norms, determinants and the pseudo-inverse are made of them. */
#include "params.h"
#include "scope.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The name that messages begin with. */
typedef struct full_name {
    char text[48];
} full_name;
static full_name linalg(const char *op)
{
    full_name name;
    snprintf(name.text, sizeof name.text, "linalg::%s", op);
    return name;
}

static qn_status check_matrix(const char *op, const qn_array *x, bool square,
                              bool complex)
{
    if (x->dtype != QN_FLOAT32 && x->dtype != QN_FLOAT64 &&
        !(complex && x->dtype == QN_COMPLEX64))
        return qn_fail(
            QN_E_ARG, "[linalg::%s] Matrices of %s are expected, found %s.", op,
            complex ? "float32, float64 or complex64" : "float32 or float64",
            qn_dtype_name(x->dtype));
    if (x->ndim < 2)
        return qn_fail(QN_E_ARG,
                       "[linalg::%s] At least two dimensions are expected, "
                       "found %d.",
                       op, x->ndim);
    if (square && x->shape[x->ndim - 1] != x->shape[x->ndim - 2])
        return qn_fail(QN_E_ARG,
                       "[linalg::%s] A square matrix is expected, found shape "
                       "%s.",
                       op, qn_array_shape_text(x).text);
    return QN_OK;
}

/* ---- nodes ---- */

/* One output of a factorisation: its type and its last dimensions; rows is
 * negative where there is just one. */
typedef struct factor {
    qn_dtype dtype;
    int rows, columns;
} factor;

static qn_status factorise(qn_array **out, qn_op op, qn_array *x,
                           const void *params, size_t params_size,
                           const factor *factors, int count, qn_stream *s)
{
    qn_array *made[3] = {NULL, NULL, NULL};
    qn_status status = QN_OK;
    for (int i = 0; i < count && !status; i++) {
        qn_dims dims = qn_dims_of(x);
        dims.ndim -= 2;
        if (factors[i].rows >= 0)
            dims.dim[dims.ndim++] = factors[i].rows;
        dims.dim[dims.ndim++] = factors[i].columns;
        status = qn_array_new(&made[i], factors[i].dtype, dims.dim, dims.ndim);
    }
    qn_node_spec spec = {.op = op,
                         .stream = s,
                         .inputs = &x,
                         .ninputs = 1,
                         .params = params,
                         .params_size = params_size};
    if (!status)
        status = qn_node_attach(&spec, made, count);
    for (int i = 0; i < count; i++)
        if (status)
            qn_array_unref(made[i]);
        else
            out[i] = made[i];
    return status;
}

static int rows_of(const qn_array *x)
{
    return x->shape[x->ndim - 2];
}

static int columns_of(const qn_array *x)
{
    return x->shape[x->ndim - 1];
}

static int rank_of(const qn_array *x)
{
    return rows_of(x) < columns_of(x) ? rows_of(x) : columns_of(x);
}

static qn_dtype real_part(qn_dtype d)
{
    return d == QN_COMPLEX64 ? QN_FLOAT32 : d;
}

qn_status qn_op_cholesky(qn_array **out, qn_array *x, bool upper, qn_stream *s)
{
    qn_triangle_params p = {.upper = upper};
    qn_status status = check_matrix("cholesky", x, true, false);
    if (status)
        return status;
    return qn_make(out, QN_OP_CHOLESKY, s, &x, 1, &p, sizeof p, x->dtype,
                   x->shape, x->ndim);
}

qn_status qn_op_qr(qn_array **out, qn_array *x, qn_stream *s)
{
    qn_status status = check_matrix("qr", x, false, false);
    if (status)
        return status;
    int k = rank_of(x);
    factor factors[] = {{x->dtype, rows_of(x), k},
                        {x->dtype, k, columns_of(x)}};
    return factorise(out, QN_OP_QR, x, NULL, 0, factors, 2, s);
}

qn_status qn_op_svd(qn_array **out, qn_array *x, bool vectors, qn_stream *s)
{
    qn_status status = check_matrix("svd", x, false, true);
    if (status)
        return status;
    int m = rows_of(x), n = columns_of(x);
    factor values = {real_part(x->dtype), -1, rank_of(x)};
    factor factors[] = {{x->dtype, m, m}, values, {x->dtype, n, n}};
    return vectors ? factorise(out, QN_OP_SVD, x, NULL, 0, factors, 3, s)
                   : factorise(out, QN_OP_SVD, x, NULL, 0, &values, 1, s);
}

qn_status qn_op_lu_parts(qn_array **out, qn_array *x, qn_stream *s)
{
    factor factors[] = {{x->dtype, rows_of(x), columns_of(x)},
                        {QN_UINT32, -1, rank_of(x)},
                        {QN_UINT32, -1, rows_of(x)}};
    return factorise(out, QN_OP_LU, x, NULL, 0, factors, 3, s);
}

qn_status qn_op_lu_factor(qn_array **out, qn_array *x, qn_stream *s)
{
    qn_array *parts[3];
    qn_status status = check_matrix("lu_factor", x, false, false);
    if (!status)
        status = qn_op_lu_parts(parts, x, s);
    if (status)
        return status;
    out[0] = parts[0];
    out[1] = parts[1];
    qn_array_unref(parts[2]);
    return QN_OK;
}

static qn_array *triangle(qn_scope *c, qn_array *x, bool upper, int k)
{
    qn_array *made = NULL;
    if (c->status)
        return NULL;
    return qn_scope_hold(c,
                         upper ? qn_op_triu(&made, x, k, c->stream)
                               : qn_op_tril(&made, x, k, c->stream),
                         &made);
}

qn_status qn_op_lu(qn_array **out, qn_array *x, qn_stream *s)
{
    qn_array *parts[3];
    qn_status status = check_matrix("lu", x, false, false);
    if (!status)
        status = qn_op_lu_parts(parts, x, s);
    if (status)
        return status;
    int m = rows_of(x), k = rank_of(x);
    qn_scope c;
    qn_scope_begin(&c, s);
    for (int i = 0; i < 3; i++)
        if (c.status)
            qn_array_unref(parts[i]);
        else
            qn_scope_hold(&c, QN_OK, &parts[i]);
    qn_array *lower = NULL, *upper = NULL, *one = NULL;
    if (!c.status) {
        lower = slice_axis(&c, parts[0], x->ndim - 1, 0, k);
        upper = slice_axis(&c, parts[0], x->ndim - 2, 0, k);
        if (!c.status)
            qn_scope_hold(&c, qn_op_eye(&one, m, k, 0, x->dtype, s), &one);
    }
    lower = add(&c, triangle(&c, lower, false, -1), one);
    upper = triangle(&c, upper, true, 0);
    return qn_scope_end_many(&c, out, (qn_array *[]){parts[2], lower, upper},
                             3);
}

/* ---- eigenvalues ---- */

qn_status qn_op_eig(qn_array **out, qn_array *x, bool vectors, qn_stream *s)
{
    qn_status status = check_matrix(vectors ? "eig" : "eigvals", x, true, true);
    if (status)
        return status;
    int n = rows_of(x);
    factor factors[] = {{QN_COMPLEX64, -1, n}, {QN_COMPLEX64, n, n}};
    return factorise(out, QN_OP_EIG, x, NULL, 0, factors, vectors ? 2 : 1, s);
}

qn_status qn_op_eigh(qn_array **out, qn_array *x, const char *triangle_read,
                     bool vectors, qn_stream *s)
{
    const char *op = vectors ? "eigh" : "eigvalsh";
    bool upper = !strcmp(triangle_read, "U");
    if (!upper && strcmp(triangle_read, "L") != 0)
        return qn_fail(QN_E_ARG,
                       "[linalg::%s] UPLO is expected to be \"L\" or \"U\", "
                       "found \"%.20s\".",
                       op, triangle_read);
    qn_triangle_params p = {.upper = upper};
    qn_status status = check_matrix(op, x, true, true);
    if (status)
        return status;
    int n = rows_of(x);
    factor factors[] = {{real_part(x->dtype), -1, n}, {x->dtype, n, n}};
    return factorise(out, QN_OP_EIGH, x, &p, sizeof p, factors, vectors ? 2 : 1,
                     s);
}

/* ---- inverses and solutions ---- */

static qn_status invert(qn_array **out, const char *op, qn_array *x,
                        qn_matrix_form form, qn_stream *s)
{
    qn_form_params p = {.form = form};
    qn_status status = check_matrix(op, x, true, false);
    if (status)
        return status;
    return qn_make(out, QN_OP_INV, s, &x, 1, &p, sizeof p, x->dtype, x->shape,
                   x->ndim);
}

qn_status qn_op_inv(qn_array **out, qn_array *x, qn_stream *s)
{
    return invert(out, "inv", x, QN_MATRIX_GENERAL, s);
}

qn_status qn_op_tri_inv(qn_array **out, qn_array *x, bool upper, qn_stream *s)
{
    return invert(out, "tri_inv", x, upper ? QN_MATRIX_UPPER : QN_MATRIX_LOWER,
                  s);
}

static qn_array *swap_last(qn_scope *c, qn_array *x)
{
    qn_array *made = NULL;
    if (c->status)
        return NULL;
    return qn_scope_hold(c, qn_op_swapaxes(&made, x, -1, -2, c->stream), &made);
}

qn_status qn_op_cholesky_inv(qn_array **out, qn_array *x, bool upper,
                             qn_stream *s)
{
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *made = NULL;
    qn_array *inverse =
        qn_scope_hold(&c,
                      invert(&made, "cholesky_inv", x,
                             upper ? QN_MATRIX_UPPER : QN_MATRIX_LOWER, s),
                      &made);
    qn_array *turned = swap_last(&c, inverse);
    qn_array *y = c.status ? NULL
                  : upper  ? matmul(&c, inverse, turned)
                           : matmul(&c, turned, inverse);
    return qn_scope_end(&c, out, y);
}

/* Matrices a and b of one type, their leading axes broadcast. */
static qn_array *solved(qn_scope *c, const char *op, qn_array *a, qn_array *b,
                        qn_matrix_form form)
{
    qn_form_params p = {.form = form};
    if (c->status)
        return NULL;
    qn_dims lead = qn_dims_of(a), wide = qn_dims_of(b);
    lead.ndim -= 2;
    wide.ndim -= 2;
    qn_status status = qn_dims_broadcast(&lead, op, &lead, &wide);
    if (status) {
        qn_scope_fail(c, status);
        return NULL;
    }
    qn_dims dims_a = lead, dims_b = lead;
    dims_a.dim[dims_a.ndim++] = rows_of(a);
    dims_a.dim[dims_a.ndim++] = columns_of(a);
    dims_b.dim[dims_b.ndim++] = rows_of(b);
    dims_b.dim[dims_b.ndim++] = columns_of(b);
    qn_array *inputs[2] = {broadcast(c, a, &dims_a), broadcast(c, b, &dims_b)};
    qn_array *made = NULL;
    if (c->status)
        return NULL;
    return qn_scope_hold(c,
                         qn_make(&made, QN_OP_SOLVE, c->stream, inputs, 2, &p,
                                 sizeof p, a->dtype, dims_b.dim, dims_b.ndim),
                         &made);
}

static qn_status solve(qn_array **out, const char *op, qn_array *a, qn_array *b,
                       qn_matrix_form form, qn_stream *s)
{
    qn_dtype type = qn_promote(a->dtype, b->dtype);
    full_name name = linalg(op);
    if (type != QN_FLOAT32 && type != QN_FLOAT64)
        return qn_fail(QN_E_ARG,
                       "[%s] The operands' common type is expected to be "
                       "float32 or float64, found %s (%s and %s).",
                       name.text, qn_dtype_name(type), qn_dtype_name(a->dtype),
                       qn_dtype_name(b->dtype));
    if (a->ndim < 2 || rows_of(a) != columns_of(a))
        return qn_fail(QN_E_ARG,
                       "[%s] The first operand is expected to be a square "
                       "matrix, found shape %s.",
                       name.text, qn_array_shape_text(a).text);
    bool vector = b->ndim == 1;
    if (!b->ndim || b->shape[vector ? 0 : b->ndim - 2] != columns_of(a))
        return qn_fail(QN_E_ARG,
                       "[%s] The second operand is expected to have as many "
                       "rows as the first, found shapes %s and %s.",
                       name.text, qn_array_shape_text(a).text,
                       qn_array_shape_text(b).text);
    qn_scope c;
    qn_scope_begin(&c, s);
    a = cast(&c, a, type);
    b = cast(&c, b, type);
    if (vector)
        b = expand(&c, b, 1);
    qn_array *x = solved(&c, name.text, a, b, form);
    if (vector)
        x = squeeze(&c, x, -1);
    return qn_scope_end(&c, out, x);
}

qn_status qn_op_solve(qn_array **out, qn_array *a, qn_array *b, qn_stream *s)
{
    return solve(out, "solve", a, b, QN_MATRIX_GENERAL, s);
}

qn_status qn_op_solve_triangular(qn_array **out, qn_array *a, qn_array *b,
                                 bool upper, qn_stream *s)
{
    return solve(out, "solve_triangular", a, b,
                 upper ? QN_MATRIX_UPPER : QN_MATRIX_LOWER, s);
}

qn_status qn_op_pinv(qn_array **out, qn_array *x, qn_stream *s)
{
    qn_status status = check_matrix("pinv", x, false, false);
    if (status)
        return status;
    qn_scope c;
    qn_scope_begin(&c, s);
    int m = rows_of(x), n = columns_of(x), k = rank_of(x), last = -1;
    if (!k) {
        qn_dims dims = qn_dims_of(x);
        dims.dim[dims.ndim - 2] = n;
        dims.dim[dims.ndim - 1] = m;
        return qn_scope_end(&c, out, full(&c, &dims, 0, x->dtype));
    }
    qn_array *parts[3];
    status = qn_op_svd(parts, x, true, s);
    if (status)
        return status;
    for (int i = 0; i < 3; i++)
        if (c.status)
            qn_array_unref(parts[i]);
        else
            qn_scope_hold(&c, QN_OK, &parts[i]);
    if (c.status)
        return qn_scope_end(&c, out, NULL);
    /* Singular values that rounding alone could have made count as zero. */
    double unit = x->dtype == QN_FLOAT64 ? 0x1p-52 : 0x1p-23;
    double share = 10 * unit * (m > n ? m : n);
    qn_array *values = parts[1];
    qn_array *least = mul(&c, reduce(&c, QN_OP_MAX, values, &last, 1, true),
                          scalar(&c, share, x->dtype));
    qn_array *kept = binary(&c, QN_OP_GREATER, values, least);
    qn_array *one = scalar(&c, 1, x->dtype), *zero = scalar(&c, 0, x->dtype);
    /* No division by the values that are left out. */
    qn_array *factors =
        where(&c, kept, divide(&c, one, where(&c, kept, values, one)), zero);
    qn_array *u = swap_last(&c, slice_axis(&c, parts[0], x->ndim - 1, 0, k));
    qn_array *v = swap_last(&c, slice_axis(&c, parts[2], x->ndim - 2, 0, k));
    v = mul(&c, v, expand(&c, factors, -2));
    return qn_scope_end(&c, out, c.status ? NULL : matmul(&c, v, u));
}

/* ---- determinants ---- */

/* The diagonal of U and the sign of the exchanges (+1, -1) of x's type. */
static qn_status diagonalise(qn_scope *c, const char *op, qn_array *x,
                             qn_array **diagonal, qn_array **sign)
{
    qn_array *parts[3], *made = NULL;
    int last = -1;
    qn_status status = check_matrix(op, x, true, false);
    if (!status)
        status = qn_op_lu_parts(parts, x, c->stream);
    if (status)
        return status;
    for (int i = 0; i < 3; i++)
        if (c->status)
            qn_array_unref(parts[i]);
        else
            qn_scope_hold(c, QN_OK, &parts[i]);
    if (c->status)
        return c->status;
    *diagonal = qn_scope_hold(
        c, qn_op_diagonal(&made, parts[0], 0, -2, -1, c->stream), &made);
    qn_array *steps = arange(c, 0, rows_of(x), 1, QN_UINT32);
    qn_array *exchanges =
        cast(c, binary(c, QN_OP_NOT_EQUAL, parts[1], steps), QN_INT32);
    qn_array *count = reduce(c, QN_OP_SUM, exchanges, &last, 1, false);
    qn_array *odd = binary(c, QN_OP_BITWISE_AND, count, scalar(c, 1, QN_INT32));
    *sign = cast(c, sub(c, scalar(c, 1, QN_INT32), add(c, odd, odd)), x->dtype);
    return c->status;
}

/* The type to factor in: half types, integers and bool as float32. */
static qn_status determinant_type(qn_dtype *out, const char *op,
                                  const qn_array *x)
{
    if (x->dtype == QN_COMPLEX64)
        return qn_fail(QN_E_ARG, "[linalg::%s] complex64 is not supported.",
                       op);
    *out = x->dtype == QN_FLOAT64 ? QN_FLOAT64 : QN_FLOAT32;
    return QN_OK;
}

qn_status qn_op_det(qn_array **out, qn_array *x, qn_stream *s)
{
    qn_dtype type, result = qn_promote_float(x->dtype);
    qn_status status = determinant_type(&type, "det", x);
    if (status)
        return status;
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *diagonal = NULL, *sign = NULL, *typed = cast(&c, x, type);
    int last = -1;
    if (!c.status)
        qn_scope_fail(&c, diagonalise(&c, "det", typed, &diagonal, &sign));
    qn_array *y = reduce(&c, QN_OP_PROD, diagonal, &last, 1, false);
    return qn_scope_end(&c, out, cast(&c, mul(&c, y, sign), result));
}

qn_status qn_op_slogdet(qn_array **out, qn_array *x, qn_stream *s)
{
    qn_dtype type, result = qn_promote_float(x->dtype);
    qn_status status = determinant_type(&type, "slogdet", x);
    if (status)
        return status;
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *diagonal = NULL, *sign = NULL, *typed = cast(&c, x, type);
    int last = -1;
    if (!c.status)
        qn_scope_fail(&c, diagonalise(&c, "slogdet", typed, &diagonal, &sign));
    qn_array *signs = reduce(&c, QN_OP_PROD, unary(&c, QN_OP_SIGN, diagonal),
                             &last, 1, false);
    qn_array *size = unary(&c, QN_OP_LOG, unary(&c, QN_OP_ABS, diagonal));
    size = reduce(&c, QN_OP_SUM, size, &last, 1, false);
    /* Of a singular matrix 0, not -0. */
    signs = add(&c, mul(&c, signs, sign), scalar(&c, 0, type));
    qn_array *both[2] = {cast(&c, signs, result), cast(&c, size, result)};
    return qn_scope_end_many(&c, out, both, 2);
}

/* ---- norms ---- */

static qn_array *power(qn_scope *c, qn_array *x, double exponent)
{
    return binary(c, QN_OP_POWER, x, scalar_of(c, exponent, x));
}

/* The root of the sum of the squares of floats or complex numbers. */
static qn_array *l2_norm(qn_scope *c, qn_array *x, const int *axes,
                         size_t naxes, bool keepdims)
{
    if (!c->status && x->dtype == QN_COMPLEX64)
        x = add(c, unary(c, QN_OP_SQUARE, unary(c, QN_OP_REAL, x)),
                unary(c, QN_OP_SQUARE, unary(c, QN_OP_IMAG, x)));
    else
        x = unary(c, QN_OP_SQUARE, x);
    return unary(c, QN_OP_SQRT, reduce(c, QN_OP_SUM, x, axes, naxes, keepdims));
}

static qn_array *vector_norm(qn_scope *c, qn_array *x, double ord,
                             const int *axes, size_t naxes, bool keepdims)
{
    if (ord == 2)
        return l2_norm(c, x, axes, naxes, keepdims);
    if (ord == 0) {
        qn_array *some = cast(c, cast(c, x, QN_BOOL), QN_FLOAT32);
        return reduce(c, QN_OP_SUM, some, axes, naxes, keepdims);
    }
    x = unary(c, QN_OP_ABS, x);
    if (isinf(ord))
        return reduce(c, ord > 0 ? QN_OP_MAX : QN_OP_MIN, x, axes, naxes,
                      keepdims);
    if (ord == 1)
        return reduce(c, QN_OP_SUM, x, axes, naxes, keepdims);
    x = reduce(c, QN_OP_SUM, power(c, x, ord), axes, naxes, keepdims);
    return power(c, x, 1 / ord);
}

/* Singular values along the last axis, the two axes of the matrices gone; with
 * `keepdims` they are put back as the last ones do it below. */
static qn_array *singular_values(qn_scope *c, qn_array *x, const int *axes)
{
    int order[QN_MAX_NDIM], kept = 0;
    qn_array *made = NULL;
    if (c->status)
        return NULL;
    for (int i = 0; i < x->ndim; i++)
        if (i != axes[0] && i != axes[1])
            order[kept++] = i;
    order[kept] = axes[0];
    order[kept + 1] = axes[1];
    qn_array *last = transpose(c, x, order);
    return c->status ? NULL
                     : qn_scope_hold(
                           c, qn_op_svd(&made, last, false, c->stream), &made);
}

/* Over the last axis of `values`, which stands for the two of `axes`. */
static qn_array *over_values(qn_scope *c, qn_op op, qn_array *values,
                             const int *axes, bool keepdims)
{
    int last = -1;
    qn_array *y = reduce(c, op, values, &last, 1, false), *made = NULL;
    if (!keepdims || c->status)
        return y;
    return qn_scope_hold(c, qn_op_expand_dims(&made, y, axes, 2, c->stream),
                         &made);
}

static qn_array *matrix_norm(qn_scope *c, qn_array *x, double ord,
                             const int *axes, bool keepdims)
{
    double size = fabs(ord);
    qn_op best = ord > 0 ? QN_OP_MAX : QN_OP_MIN;
    if (size == 2)
        return over_values(c, best, singular_values(c, x, axes), axes,
                           keepdims);
    if (size != 1 && !isinf(size)) {
        qn_scope_fail(c, qn_fail(QN_E_ARG,
                                 "[linalg::norm] Matrices have no norm of "
                                 "order %g.",
                                 ord));
        return NULL;
    }
    /* Sums of columns run along the first axis, sums of rows along the
     * second. */
    int along = size == 1 ? axes[0] : axes[1];
    int across = size == 1 ? axes[1] : axes[0];
    x = unary(c, QN_OP_ABS, x);
    x = reduce(c, QN_OP_SUM, x, &along, 1, true);
    x = reduce(c, best, x, &across, 1, true);
    if (keepdims || c->status)
        return x;
    qn_array *made = NULL;
    return qn_scope_hold(c, qn_op_squeeze(&made, x, axes, 2, c->stream), &made);
}

/* The axes of a norm; all of them must be `at_most` or fewer. */
static qn_status norm_axes(int *list, int *count, const qn_array *x,
                           const int *axes, size_t naxes)
{
    if (naxes == QN_ALL_AXES) {
        for (int i = 0; i < x->ndim; i++)
            list[i] = i;
        *count = x->ndim;
        return QN_OK;
    }
    qn_status status = qn_axes_of(list, "linalg::norm", axes, naxes, x->ndim);
    *count = (int)naxes;
    return status;
}

qn_status qn_op_norm(qn_array **out, qn_array *x, double ord, const int *axes,
                     size_t naxes, bool keepdims, qn_stream *s)
{
    int list[QN_MAX_NDIM], count;
    qn_status status = norm_axes(list, &count, x, axes, naxes);
    if (status)
        return status;
    if (count != 1 && count != 2)
        return qn_fail(QN_E_ARG,
                       "[linalg::norm] A norm of an order is over one axis or "
                       "two, found %d.",
                       count);
    qn_dtype type = qn_promote_float(x->dtype);
    qn_scope c;
    qn_scope_begin(&c, s);
    x = cast(&c, x, type);
    qn_array *y = NULL;
    if (!c.status)
        y = count == 1 ? vector_norm(&c, x, ord, list, 1, keepdims)
                       : matrix_norm(&c, x, ord, list, keepdims);
    /* As MLX: the Euclidean norm of complex numbers is real, the others keep
     * the type. */
    if (type == QN_COMPLEX64 && count == 1 && ord == 2)
        type = QN_FLOAT32;
    return qn_scope_end(&c, out, cast(&c, y, type));
}

qn_status qn_op_norm_matrix(qn_array **out, qn_array *x, const char *ord,
                            const int *axes, size_t naxes, bool keepdims,
                            qn_stream *s)
{
    int list[QN_MAX_NDIM], count;
    qn_status status = norm_axes(list, &count, x, axes, naxes);
    if (status)
        return status;
    if (count != 2)
        return qn_fail(QN_E_ARG,
                       "[linalg::norm] The norm \"%.20s\" is over two axes, "
                       "found %d.",
                       ord, count);
    bool nuclear = !strcmp(ord, "nuc");
    if (!nuclear && strcmp(ord, "fro") != 0 && strcmp(ord, "f") != 0)
        return qn_fail(QN_E_ARG,
                       "[linalg::norm] The norms of matrices by name are "
                       "\"fro\", \"f\" and \"nuc\", found \"%.20s\".",
                       ord);
    qn_scope c;
    qn_scope_begin(&c, s);
    x = cast(&c, x, qn_promote_float(x->dtype));
    qn_array *y = nuclear
                      ? over_values(&c, QN_OP_SUM, singular_values(&c, x, list),
                                    list, keepdims)
                      : l2_norm(&c, x, list, 2, keepdims);
    return qn_scope_end(&c, out, y);
}

qn_status qn_op_norm_l2(qn_array **out, qn_array *x, const int *axes,
                        size_t naxes, bool keepdims, qn_stream *s)
{
    int list[QN_MAX_NDIM], count;
    qn_status status = norm_axes(list, &count, x, axes, naxes);
    if (status)
        return status;
    qn_scope c;
    qn_scope_begin(&c, s);
    x = cast(&c, x, qn_promote_float(x->dtype));
    return qn_scope_end(&c, out, l2_norm(&c, x, list, (size_t)count, keepdims));
}

/* ---- products of vectors ---- */

/* Component i along `axis`, or NULL for the third of two. */
static qn_array *component(qn_scope *c, qn_array *x, int axis, int i)
{
    if (c->status || i >= x->shape[axis])
        return NULL;
    return slice_axis(c, x, axis, i, i + 1);
}

/* a * b - d * e, where a NULL is zero. */
static qn_array *minor(qn_scope *c, qn_array *a, qn_array *b, qn_array *d,
                       qn_array *e)
{
    qn_array *first = a && b ? mul(c, a, b) : NULL;
    qn_array *second = d && e ? mul(c, d, e) : NULL;
    if (first && second)
        return sub(c, first, second);
    return second ? sub(c, scalar_of(c, 0, second), second) : first;
}

qn_status qn_op_cross(qn_array **out, qn_array *a, qn_array *b, int axis,
                      qn_stream *s)
{
    int at[2];
    qn_array *in[2] = {a, b};
    for (int i = 0; i < 2; i++) {
        qn_status status =
            qn_axis_of(&at[i], "linalg::cross", axis, in[i]->ndim);
        if (status)
            return status;
        int size = in[i]->shape[at[i]];
        if (size != 2 && size != 3)
            return qn_fail(QN_E_ARG,
                           "[linalg::cross] Vectors of 2 or 3 elements are "
                           "expected along axis %d, found shape %s.",
                           axis, qn_array_shape_text(in[i]).text);
    }
    /* Broadcasting lines axes up from the end. */
    int from_end = at[0] - a->ndim;
    if (from_end != at[1] - b->ndim)
        return qn_fail(QN_E_ARG,
                       "[linalg::cross] Axis %d is not the same one in shapes "
                       "%s and %s.",
                       axis, qn_array_shape_text(a).text,
                       qn_array_shape_text(b).text);
    qn_dims dims = qn_dims_of(a), other = qn_dims_of(b);
    dims.dim[at[0]] = other.dim[at[1]] = 1;
    qn_status status = qn_dims_broadcast(&dims, "linalg::cross", &dims, &other);
    if (status)
        return status;
    qn_dtype type = qn_promote(a->dtype, b->dtype);
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *part[2][3], *sums[3];
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            part[i][j] = component(&c, cast(&c, in[i], type), at[i], j);
    for (int i = 0; i < 3; i++) {
        int j = (i + 1) % 3, k = (i + 2) % 3;
        sums[i] = c.status ? NULL
                           : minor(&c, part[0][j], part[1][k], part[0][k],
                                   part[1][j]);
        sums[i] =
            sums[i] ? broadcast(&c, sums[i], &dims) : full(&c, &dims, 0, type);
    }
    qn_array *y = c.status ? NULL : concat(&c, sums, 3, from_end + dims.ndim);
    return qn_scope_end(&c, out, y);
}
