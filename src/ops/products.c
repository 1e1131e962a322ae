/* products.c: matrix products with a choice: of matrices, of tiles, of parts;
 * and Hadamard matrices. */
#include "params.h"
#include "scope.h"

#include <math.h>
#include <string.h>

static qn_status product_type(qn_dtype *out, const char *op, const qn_array *a,
                              const qn_array *b)
{
    *out = qn_promote(a->dtype, b->dtype);
    if (!qn_dtype_is_float(*out) && *out != QN_COMPLEX64)
        return qn_fail(QN_E_ARG,
                       "[%s] Floating operands are expected, found %s and %s.",
                       op, qn_dtype_name(a->dtype), qn_dtype_name(b->dtype));
    return QN_OK;
}

static qn_status check_integers(const char *op, const qn_array *x)
{
    if (qn_dtype_is_integer(x->dtype))
        return QN_OK;
    return qn_fail(QN_E_ARG,
                   "[%s] Indices of an integer type are expected, "
                   "found %s.",
                   op, qn_dtype_name(x->dtype));
}

/* Last axes of a and next to last of b. */
static qn_status check_inner(const char *op, const qn_array *a,
                             const qn_array *b)
{
    if (a->shape[a->ndim - 1] == b->shape[b->ndim - 2])
        return QN_OK;
    return qn_fail(QN_E_ARG,
                   "[%s] The last dimension of the first operand must be that "
                   "before the last of the second, found shapes %s and %s.",
                   op, qn_array_shape_text(a).text,
                   qn_array_shape_text(b).text);
}

/* ---- chosen matrices ---- */

qn_array *qn_matrices_in_order(qn_scope *c, const char *op, const qn_array *x)
{
    if (c->status)
        return NULL;
    qn_dims dims = qn_dims_of(x);
    size_t count;
    int n;
    dims.ndim -= 2;
    if (!qn_dims_size(&count, &dims))
        count = SIZE_MAX / 2;
    qn_status status = qn_dim_fit(&n, op, (int64_t)count);
    if (status) {
        qn_scope_fail(c, status);
        return NULL;
    }
    return reshape(c, arange(c, 0, n, 1, QN_UINT32), &dims);
}

qn_status qn_op_gather_mm(qn_array **out, qn_array *a, qn_array *b,
                          qn_array *indices_a, qn_array *indices_b,
                          qn_stream *s)
{
    qn_dtype type;
    qn_status status = product_type(&type, "gather_mm", a, b);
    if (!status && indices_a)
        status = check_integers("gather_mm", indices_a);
    if (!status && indices_b)
        status = check_integers("gather_mm", indices_b);
    if (status)
        return status;
    if (!a->ndim || !b->ndim)
        return qn_fail(QN_E_ARG, "[gather_mm] Operands of at least one "
                                 "dimension are expected.");
    bool row = a->ndim == 1, column = b->ndim == 1;
    qn_scope c;
    qn_scope_begin(&c, s);
    a = cast(&c, a, type);
    b = cast(&c, b, type);
    if (row)
        a = expand(&c, a, 0);
    if (column)
        b = expand(&c, b, 1);
    if (!c.status)
        qn_scope_fail(&c, check_inner("gather_mm", a, b));
    qn_array *lists[2] = {indices_a, indices_b};
    if (!indices_a)
        lists[0] = qn_matrices_in_order(&c, "gather_mm", a);
    if (!indices_b)
        lists[1] = qn_matrices_in_order(&c, "gather_mm", b);
    if (c.status)
        return qn_scope_end(&c, out, NULL);
    qn_dims dims = qn_dims_of(lists[0]), other = qn_dims_of(lists[1]);
    status = qn_dims_broadcast(&dims, "gather_mm", &dims, &other);
    if (!status && dims.ndim > QN_MAX_NDIM - 2)
        status = qn_fail(QN_E_ARG,
                         "[gather_mm] Indices have at most %d dimensions, "
                         "found %d.",
                         QN_MAX_NDIM - 2, dims.ndim);
    qn_scope_fail(&c, status);
    qn_array *inputs[4] = {a, b, broadcast(&c, lists[0], &dims),
                           broadcast(&c, lists[1], &dims)};
    qn_array *made = NULL;
    if (!c.status) {
        dims.dim[dims.ndim++] = a->shape[a->ndim - 2];
        dims.dim[dims.ndim++] = b->shape[b->ndim - 1];
        qn_scope_hold(&c,
                      qn_make(&made, QN_OP_GATHER_MM, s, inputs, 4, NULL, 0,
                              type, dims.dim, dims.ndim),
                      &made);
    }
    if (column)
        made = squeeze(&c, made, -1);
    if (row)
        made = squeeze(&c, made, column ? -1 : -2);
    return qn_scope_end(&c, out, made);
}

/* ---- tiles ---- */

/* x with each tile scaled by the mask's entry; a false entry is a tile of
 * zeros, whatever was there. */
static qn_array *masked(qn_scope *c, qn_array *x, qn_array *mask, int size)
{
    if (!mask || c->status)
        return x;
    int rows = x->shape[x->ndim - 2], columns = x->shape[x->ndim - 1];
    qn_dims tiles = qn_dims_of(x), wide = tiles;
    int down = (int)(((int64_t)rows + size - 1) / size);
    int along = (int)(((int64_t)columns + size - 1) / size);
    /* Leading axes as the mask has them: they may be fewer. */
    qn_dims lead = qn_dims_of(mask);
    tiles = (qn_dims){.ndim = 2, .dim = {down, along}};
    qn_dims ones = lead;
    if (lead.ndim > QN_MAX_NDIM - 4) {
        qn_scope_fail(c, qn_fail(QN_E_ARG,
                                 "[block_masked_mm] Masks have at most %d "
                                 "dimensions, found %d.",
                                 QN_MAX_NDIM - 4, lead.ndim));
        return NULL;
    }
    qn_status status =
        qn_dims_broadcast(&tiles, "block_masked_mm", &ones, &tiles);
    int n = tiles.ndim;
    if (!status && (tiles.dim[n - 2] != down || tiles.dim[n - 1] != along))
        status = qn_fail(QN_E_ARG,
                         "[block_masked_mm] A mask of %d x %d tiles is "
                         "expected for a matrix of shape %s, found shape %s.",
                         down, along, qn_array_shape_text(x).text,
                         qn_array_shape_text(mask).text);
    if (status) {
        qn_scope_fail(c, status);
        return NULL;
    }
    mask = broadcast(c, mask, &tiles);
    /* [..., down, 1, along, 1] to [..., down, size, along, size]. */
    wide = tiles;
    wide.ndim = n + 2;
    wide.dim[n - 2] = down;
    wide.dim[n - 1] = 1;
    wide.dim[n] = along;
    wide.dim[n + 1] = 1;
    mask = reshape(c, mask, &wide);
    wide.dim[n - 1] = wide.dim[n + 1] = size;
    mask = broadcast(c, mask, &wide);
    wide.ndim = n;
    status =
        qn_dim_fit(&wide.dim[n - 2], "block_masked_mm", (int64_t)down * size);
    if (!status)
        status = qn_dim_fit(&wide.dim[n - 1], "block_masked_mm",
                            (int64_t)along * size);
    qn_scope_fail(c, status);
    mask = reshape(c, mask, &wide);
    mask = slice_axis(c, mask, n - 2, 0, rows);
    mask = slice_axis(c, mask, n - 1, 0, columns);
    if (c->status)
        return NULL;
    if (mask->dtype == QN_BOOL)
        return where(c, mask, x, scalar_of(c, 0, x));
    return mul(c, x, cast(c, mask, x->dtype));
}

qn_status qn_op_block_masked_mm(qn_array **out, qn_array *a, qn_array *b,
                                int block_size, qn_array *mask_out,
                                qn_array *mask_a, qn_array *mask_b,
                                qn_stream *s)
{
    if (!mask_out && !mask_a && !mask_b)
        return qn_op_matmul(out, a, b, s);
    if (block_size != 32 && block_size != 64)
        return qn_fail(QN_E_ARG,
                       "[block_masked_mm] Tiles of 32 or 64 rows and columns "
                       "are expected, found %d.",
                       block_size);
    qn_dtype type;
    qn_status status = product_type(&type, "block_masked_mm", a, b);
    if (status)
        return status;
    if (!a->ndim || !b->ndim)
        return qn_fail(QN_E_ARG, "[block_masked_mm] Operands of at least one "
                                 "dimension are expected.");
    bool row = a->ndim == 1, column = b->ndim == 1;
    qn_scope c;
    qn_scope_begin(&c, s);
    a = cast(&c, a, type);
    b = cast(&c, b, type);
    if (row)
        a = expand(&c, a, 0);
    if (column)
        b = expand(&c, b, 1);
    if (!c.status)
        qn_scope_fail(&c, check_inner("block_masked_mm", a, b));
    a = masked(&c, a, mask_a, block_size);
    b = masked(&c, b, mask_b, block_size);
    qn_array *y = c.status ? NULL : matmul(&c, a, b);
    y = masked(&c, y, mask_out, block_size);
    if (column)
        y = squeeze(&c, y, -1);
    if (row)
        y = squeeze(&c, y, column ? -1 : -2);
    return qn_scope_end(&c, out, y);
}

/* ---- parts ---- */

qn_status qn_op_segmented_mm(qn_array **out, qn_array *a, qn_array *b,
                             qn_array *segments, qn_stream *s)
{
    qn_dtype type;
    qn_status status = product_type(&type, "segmented_mm", a, b);
    if (!status)
        status = check_integers("segmented_mm", segments);
    if (status)
        return status;
    if (a->ndim != 2 || b->ndim != 2)
        return qn_fail(QN_E_ARG,
                       "[segmented_mm] Two matrices are expected, found shapes "
                       "%s and %s.",
                       qn_array_shape_text(a).text,
                       qn_array_shape_text(b).text);
    status = check_inner("segmented_mm", a, b);
    if (status)
        return status;
    if (!segments->ndim || segments->shape[segments->ndim - 1] != 2)
        return qn_fail(
            QN_E_ARG,
            "[segmented_mm] Segments of shape (..., 2) are expected, "
            "found %s.",
            qn_array_shape_text(segments).text);
    qn_dims dims = qn_dims_of(segments);
    if (dims.ndim > QN_MAX_NDIM - 1)
        return qn_fail(QN_E_ARG,
                       "[segmented_mm] Segments have at most %d dimensions, "
                       "found %d.",
                       QN_MAX_NDIM - 1, dims.ndim);
    dims.dim[dims.ndim - 1] = a->shape[0];
    dims.dim[dims.ndim++] = b->shape[1];
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *inputs[3] = {cast(&c, a, type), cast(&c, b, type), segments};
    qn_array *made = NULL;
    if (!c.status)
        qn_scope_hold(&c,
                      qn_make(&made, QN_OP_SEGMENTED_MM, s, inputs, 3, NULL, 0,
                              type, dims.dim, dims.ndim),
                      &made);
    return qn_scope_end(&c, out, made);
}

/* ---- Hadamard matrices ---- */

static bool has_hadamard(int n)
{
    static const int sizes[] = {1, 12, 20, 28};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int rest = n % sizes[i] ? 0 : n / sizes[i];
        if (rest && (rest & (rest - 1)) == 0)
            return true;
    }
    return false;
}

qn_status qn_op_hadamard_transform(qn_array **out, qn_array *x,
                                   const float *scale, qn_stream *s)
{
    if (x->dtype == QN_COMPLEX64)
        return qn_fail(QN_E_ARG,
                       "[hadamard_transform] complex64 is not supported.");
    int n = x->ndim ? x->shape[x->ndim - 1] : 1;
    if (!has_hadamard(n))
        return qn_fail(QN_E_ARG,
                       "[hadamard_transform] A length of m * 2^k with m one of "
                       "1, 12, 20, 28 is expected, found %d.",
                       n);
    qn_hadamard_params p;
    memset(&p, 0, sizeof p);
    p.scale = scale ? *scale : (float)(1 / sqrt((double)n));
    qn_dtype type = qn_promote_float(x->dtype);
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *typed = cast(&c, x, type), *made = NULL;
    if (!x->ndim)
        typed = expand(&c, typed, 0);
    if (!c.status)
        qn_scope_hold(&c,
                      qn_make(&made, QN_OP_HADAMARD, s, &typed, 1, &p, sizeof p,
                              type, typed->shape, typed->ndim),
                      &made);
    return qn_scope_end(&c, out, x->ndim ? made : squeeze(&c, made, 0));
}
