/* arrange.c: composites that rearrange: stack, split, repeat, roll and others.
 *
 * They are made of views, joins and comparisons; none has a kernel. */
#include "params.h"
#include "scope.h"

#include "base/alloc.h"

#include <limits.h>
#include <string.h>

/* ---- joining and taking apart ---- */

qn_status qn_op_stack(qn_array **out, qn_array *const *arrays, size_t count,
                      int axis, qn_stream *s)
{
    if (!count)
        return qn_fail(QN_E_ARG, "[stack] No arrays provided for stacking");
    int at;
    qn_status status = qn_axis_of(&at, "stack", axis, arrays[0]->ndim + 1);
    if (status)
        return status;
    for (size_t i = 1; i < count; i++)
        if (!qn_same_shape(arrays[0], arrays[i]))
            return qn_fail(QN_E_ARG,
                           "[stack] All arrays must have the same shape, found "
                           "%s and %s.",
                           qn_array_shape_text(arrays[0]).text,
                           qn_array_shape_text(arrays[i]).text);
    qn_array **parts = qn_calloc(count, sizeof *parts);
    if (!parts)
        return QN_E_NOMEM;
    for (size_t i = 0; i < count && !status; i++)
        status = qn_op_expand_dims(&parts[i], arrays[i], &at, 1, s);
    if (!status)
        status = qn_op_concatenate(out, parts, count, at, s);
    for (size_t i = 0; i < count; i++)
        qn_array_unref(parts[i]);
    qn_free(parts);
    return status;
}

/* Parts of x along `axis`: part i is cuts[i] .. cuts[i + 1]. */
static qn_status cut(qn_array ***out, size_t *count, qn_array *x, int axis,
                     const int *cuts, size_t parts, qn_stream *s)
{
    qn_array **made = qn_calloc(parts ? parts : 1, sizeof *made);
    if (!made)
        return QN_E_NOMEM;
    qn_status status = QN_OK;
    for (size_t i = 0; i < parts && !status; i++) {
        int start = cuts[i], stop = cuts[i + 1];
        /* Places out of order enclose nothing. */
        status = qn_op_slice_axis(&made[i], x, axis, start,
                                  stop < start ? start : stop, s);
    }
    if (status) {
        for (size_t i = 0; i < parts; i++)
            qn_array_unref(made[i]);
        qn_free(made);
        return status;
    }
    *out = made;
    *count = parts;
    return QN_OK;
}

qn_status qn_op_split_at(qn_array ***out, size_t *count, qn_array *x,
                         const int *places, size_t nplaces, int axis,
                         qn_stream *s)
{
    int at;
    qn_status status = qn_axis_of(&at, "split", axis, x->ndim);
    if (status)
        return status;
    int n = x->shape[at];
    int *cuts = qn_reallocarray(NULL, nplaces + 2, sizeof *cuts);
    if (!cuts)
        return QN_E_NOMEM;
    cuts[0] = 0;
    for (size_t i = 0; i < nplaces; i++) {
        int64_t place = places[i] < 0 ? (int64_t)places[i] + n : places[i];
        cuts[i + 1] = place < 0 ? 0 : place > n ? n : (int)place;
    }
    cuts[nplaces + 1] = n;
    status = cut(out, count, x, at, cuts, nplaces + 1, s);
    qn_free(cuts);
    return status;
}

qn_status qn_op_split(qn_array ***out, size_t *count, qn_array *x, int parts,
                      int axis, qn_stream *s)
{
    int at;
    qn_status status = qn_axis_of(&at, "split", axis, x->ndim);
    if (status)
        return status;
    if (parts <= 0)
        return qn_fail(QN_E_ARG,
                       "[split] The number of splits must be positive, found "
                       "%d.",
                       parts);
    int n = x->shape[at];
    if (n % parts)
        return qn_fail(QN_E_ARG,
                       "[split] Axis %d of shape %s does not divide into %d "
                       "equal parts.",
                       axis, qn_array_shape_text(x).text, parts);
    int *cuts = qn_calloc((size_t)parts + 1, sizeof *cuts);
    if (!cuts)
        return QN_E_NOMEM;
    for (int i = 0; i <= parts; i++)
        cuts[i] = i * (n / parts);
    status = cut(out, count, x, at, cuts, (size_t)parts, s);
    qn_free(cuts);
    return status;
}

qn_status qn_op_unstack(qn_array ***out, size_t *count, qn_array *x, int axis,
                        qn_stream *s)
{
    int at;
    qn_status status = qn_axis_of(&at, "unstack", axis, x->ndim);
    if (status)
        return status;
    qn_array **parts = NULL;
    size_t n = 0;
    if (x->shape[at])
        status = qn_op_split(&parts, &n, x, x->shape[at], at, s);
    else
        status = cut(&parts, &n, x, at, NULL, 0, s);
    if (status)
        return status;
    for (size_t i = 0; i < n; i++) {
        qn_array *flat = NULL;
        if (!status)
            status = qn_op_squeeze(&flat, parts[i], &at, 1, s);
        qn_array_unref(parts[i]);
        parts[i] = flat;
    }
    if (status) {
        for (size_t i = 0; i < n; i++)
            qn_array_unref(parts[i]);
        qn_free(parts);
        return status;
    }
    *out = parts;
    *count = n;
    return QN_OK;
}

/* ---- repeating ---- */

qn_status qn_op_repeat(qn_array **out, qn_array *x, int repeats, int axis,
                       qn_stream *s)
{
    int at;
    qn_status status = qn_axis_of(&at, "repeat", axis, x->ndim);
    if (status)
        return status;
    if (repeats < 0)
        return qn_fail(QN_E_ARG,
                       "[repeat] The number of repeats must not be negative, "
                       "found %d.",
                       repeats);
    if (repeats == 1)
        return qn_same(out, x);
    /* [.., n, ..] -> [.., n, repeats, ..] -> [.., n * repeats, ..] */
    qn_dims flat = qn_dims_of(x), wide = qn_dims_of(x);
    status =
        qn_dim_fit(&flat.dim[at], "repeat", (int64_t)x->shape[at] * repeats);
    if (!status)
        status = qn_dims_insert(&wide, "repeat", at + 1, repeats);
    if (status)
        return status;
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *y = broadcast(&c, expand(&c, x, at + 1), &wide);
    return qn_scope_end(&c, out, reshape(&c, y, &flat));
}

qn_status qn_op_tile(qn_array **out, qn_array *x, const int *reps, size_t nreps,
                     qn_stream *s)
{
    if (nreps > QN_MAX_NDIM / 2 || x->ndim > QN_MAX_NDIM / 2)
        return qn_fail(QN_E_ARG,
                       "[tile] At most %d repetitions and dimensions, found "
                       "%zu and %d.",
                       QN_MAX_NDIM / 2, nreps, x->ndim);
    int ndim = (int)nreps > x->ndim ? (int)nreps : x->ndim;
    /* [n] -> [1, n] -> [rep, n] -> [rep * n], on all axes at once */
    qn_dims thin = {.ndim = 0}, wide = {.ndim = 0}, flat = {.ndim = ndim};
    for (int i = 0; i < ndim; i++) {
        int from_rep = i - (ndim - (int)nreps), from_x = i - (ndim - x->ndim);
        int rep = from_rep < 0 ? 1 : reps[from_rep];
        int n = from_x < 0 ? 1 : x->shape[from_x];
        if (rep < 0)
            return qn_fail(QN_E_ARG,
                           "[tile] Repetitions must not be negative, found "
                           "%d.",
                           rep);
        qn_status status = qn_dim_fit(&flat.dim[i], "tile", (int64_t)rep * n);
        if (status)
            return status;
        if (rep != 1) {
            thin.dim[thin.ndim++] = 1;
            wide.dim[wide.ndim++] = rep;
        }
        thin.dim[thin.ndim++] = n;
        wide.dim[wide.ndim++] = n;
    }
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *y = broadcast(&c, reshape(&c, x, &thin), &wide);
    return qn_scope_end(&c, out, reshape(&c, y, &flat));
}

qn_status qn_op_pad_symmetric(qn_array **out, qn_array *x, int width,
                              qn_array *value, const char *mode, qn_stream *s)
{
    int axes[QN_MAX_NDIM], widths[QN_MAX_NDIM];
    for (int i = 0; i < x->ndim; i++) {
        axes[i] = i;
        widths[i] = width;
    }
    size_t n = (size_t)x->ndim;
    return qn_op_pad(out, x, axes, n, widths, n, widths, n, value, mode, s);
}

/* ---- order ---- */

/* `shift` elements of the end come first. */
static qn_array *rolled(qn_scope *c, qn_array *x, int64_t shift, int axis)
{
    if (c->status || !x->shape[axis])
        return x;
    int n = x->shape[axis];
    int cut_at = (int)((n - shift % n) % n);
    if (!cut_at)
        return x;
    qn_array *parts[2] = {slice_axis(c, x, axis, cut_at, n),
                          slice_axis(c, x, axis, 0, cut_at)};
    return c->status ? NULL : concat(c, parts, 2, axis);
}

qn_status qn_op_roll(qn_array **out, qn_array *x, const int *shifts,
                     size_t nshifts, const int *axes, size_t naxes,
                     qn_stream *s)
{
    qn_scope c;
    qn_scope_begin(&c, s);
    if (naxes == QN_ALL_AXES) {
        int64_t total = 0;
        for (size_t i = 0; i < nshifts; i++)
            total += shifts[i];
        qn_dims dims = qn_dims_of(x);
        qn_array *y = rolled(&c, flatten(&c, x), total, 0);
        return qn_scope_end(&c, out, reshape(&c, y, &dims));
    }
    if (nshifts < naxes)
        return qn_fail(QN_E_ARG,
                       "[roll] At least one shift value per axis is required, "
                       "%zu provided for %zu axes.",
                       nshifts, naxes);
    /* An axis may come several times: its shifts add up. */
    int64_t total[QN_MAX_NDIM] = {0};
    for (size_t i = 0; i < naxes; i++) {
        int axis;
        qn_status status = qn_axis_of(&axis, "roll", axes[i], x->ndim);
        if (status)
            return status;
        total[axis] += shifts[i];
    }
    for (int i = 0; i < QN_MAX_NDIM; i++)
        if (total[i])
            x = rolled(&c, x, total[i], i);
    return qn_scope_end(&c, out, x);
}

qn_status qn_op_flip(qn_array **out, qn_array *x, const int *axes, size_t naxes,
                     qn_stream *s)
{
    int list[QN_MAX_NDIM], start[QN_MAX_NDIM], stop[QN_MAX_NDIM];
    int step[QN_MAX_NDIM];
    for (int i = 0; i < x->ndim; i++) {
        list[i] = i;
        start[i] = 0;
        stop[i] = x->shape[i];
        step[i] = 1;
    }
    size_t n = naxes;
    if (naxes == QN_ALL_AXES) {
        n = (size_t)x->ndim;
    } else {
        qn_status status = qn_axes_of(list, "flip", axes, naxes, x->ndim);
        if (status)
            return status;
    }
    for (size_t i = 0; i < n; i++) {
        int axis = list[i];
        start[axis] = x->shape[axis] - 1;
        stop[axis] = -x->shape[axis] - 1;
        step[axis] = -1;
    }
    n = (size_t)x->ndim;
    return qn_op_slice(out, x, start, n, stop, n, step, n, s);
}

qn_status qn_op_diff(qn_array **out, qn_array *x, int n, int axis, qn_stream *s)
{
    int at;
    qn_status status = qn_axis_of(&at, "diff", axis, x->ndim);
    if (status)
        return status;
    if (n < 0)
        return qn_fail(QN_E_ARG,
                       "[diff] The order n must not be negative, found %d.", n);
    qn_op op = x->dtype == QN_BOOL ? QN_OP_NOT_EQUAL : QN_OP_SUBTRACT;
    int length = x->shape[at];
    qn_scope c;
    qn_scope_begin(&c, s);
    if (n >= length) {
        qn_dims none = qn_dims_of(x);
        none.dim[at] = n ? 0 : length;
        return qn_scope_end(&c, out, n ? full(&c, &none, 0, x->dtype) : x);
    }
    for (; n; n--, length--)
        x = binary(&c, op, slice_axis(&c, x, at, 1, length),
                   slice_axis(&c, x, at, 0, length - 1));
    return qn_scope_end(&c, out, x);
}

/* ---- diagonals ---- */

qn_status qn_op_diagonal(qn_array **out, qn_array *x, int offset, int axis1,
                         int axis2, qn_stream *s)
{
    if (x->ndim < 2)
        return qn_fail(QN_E_ARG,
                       "[diagonal] The array must have at least two "
                       "dimensions, found %d.",
                       x->ndim);
    int list[2];
    qn_status status =
        qn_axes_of(list, "diagonal", (int[]){axis1, axis2}, 2, x->ndim);
    if (status)
        return status;
    /* The two axes last: then a step along the diagonal is one row and one
     * column of the row-major array. */
    int order[QN_MAX_NDIM], kept = 0;
    qn_dims dims = {.ndim = x->ndim - 1};
    for (int i = 0; i < x->ndim; i++)
        if (i != list[0] && i != list[1]) {
            dims.dim[kept] = x->shape[i];
            order[kept++] = i;
        }
    order[kept] = list[0];
    order[kept + 1] = list[1];
    int64_t rows = x->shape[list[0]], columns = x->shape[list[1]];
    int64_t row = offset < 0 ? -(int64_t)offset : 0;
    int64_t column = offset > 0 ? offset : 0;
    int64_t length =
        rows - row < columns - column ? rows - row : columns - column;
    dims.dim[kept] = length > 0 ? (int)length : 0;

    qn_scope c;
    qn_scope_begin(&c, s);
    size_t size;
    if (!qn_dims_size(&size, &dims) || !size)
        return qn_scope_end(&c, out, full(&c, &dims, 0, x->dtype));
    int64_t strides[QN_MAX_NDIM];
    strides[kept] = columns + 1;
    int64_t stride = rows * columns;
    for (int i = kept - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= dims.dim[i];
    }
    qn_array *last = transpose(&c, x, order), *made = NULL;
    if (!c.status)
        qn_scope_hold(&c,
                      qn_op_as_strided(&made, last, dims.dim, (size_t)dims.ndim,
                                       strides, (size_t)dims.ndim,
                                       (size_t)(row * columns + column), s),
                      &made);
    return qn_scope_end(&c, out, made);
}

qn_status qn_op_diag(qn_array **out, qn_array *x, int k, qn_stream *s)
{
    if (x->ndim == 2)
        return qn_op_diagonal(out, x, k, 0, 1, s);
    if (x->ndim != 1)
        return qn_fail(QN_E_ARG,
                       "[diag] The array must have 1 or 2 dimensions, found "
                       "%d.",
                       x->ndim);
    int64_t more = k < 0 ? -(int64_t)k : k;
    int n = x->shape[0], size;
    qn_status status = qn_dim_fit(&size, "diag", n + more);
    if (status)
        return status;
    qn_scope c;
    qn_scope_begin(&c, s);
    /* The vector as the rows' or the columns' values, where the diagonal
     * meets each of them from the first on. */
    qn_dims rest = {.ndim = 1, .dim = {size - n}};
    qn_array *parts[2] = {x, full(&c, &rest, 0, x->dtype)};
    qn_array *line = c.status ? NULL : concat(&c, parts, 2, 0);
    if (k >= 0)
        line = expand(&c, line, 1);
    qn_array *mask = NULL;
    if (!c.status)
        qn_scope_hold(&c, qn_op_eye(&mask, size, size, k, QN_BOOL, s), &mask);
    return qn_scope_end(&c, out, where(&c, mask, line, scalar_of(&c, 0, x)));
}

qn_status qn_op_trace(qn_array **out, qn_array *x, int offset, int axis1,
                      int axis2, qn_dtype dtype, qn_stream *s)
{
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *line = NULL;
    qn_scope_hold(&c, qn_op_diagonal(&line, x, offset, axis1, axis2, s), &line);
    int last = -1;
    return qn_scope_end(
        &c, out, reduce(&c, QN_OP_SUM, cast(&c, line, dtype), &last, 1, false));
}
