/* ops.c: the C entries of regular families, made by including ops.def.
 *
 * mlx/c/ops.h declares them, so a row with the wrong name does not compile. */
#include "handles.h"
#include "ops_entry.h"

static int unary(mlx_array *res, qn_op op, mlx_array a, mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_unary(&out, op, x, stream));
}

static int binary(mlx_array *res, qn_op op, mlx_array a, mlx_array b,
                  mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(y, b);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_binary(&out, op, x, y, stream));
}

static int reduce(mlx_array *res, qn_op op, mlx_array a, const int *axes,
                  size_t naxes, bool keepdims, mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_reduce(&out, op, x, axes, naxes, keepdims, stream));
}

/* axis: NULL: over the flattened array. */
static qn_status scanned(qn_array **out, qn_op op, qn_array *x, const int *axis,
                         bool reverse, bool inclusive, qn_stream *stream)
{
    if (axis)
        return qn_op_scan(out, op, x, *axis, reverse, inclusive, stream);
    qn_array *line = NULL;
    qn_status status = qn_op_flatten(&line, x, 0, -1, stream);
    if (!status)
        status = qn_op_scan(out, op, line, 0, reverse, inclusive, stream);
    qn_array_unref(line);
    return status;
}

/* dtype: NULL: the operand's own. */
static int scan(mlx_array *res, qn_op op, mlx_array a, const int *axis,
                bool reverse, bool inclusive, const mlx_dtype *dtype,
                mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    qn_dtype type = x->dtype;
    if (dtype)
        QN_CALL(qn_capi_dtype(&type, *dtype));
    qn_array *typed, *out = NULL;
    QN_CALL(qn_op_astype(&typed, x, type, stream));
    qn_status status =
        scanned(&out, op, typed, axis, reverse, inclusive, stream);
    qn_array_unref(typed);
    QN_CALL(status);
    return QN_STORE_ARRAY(res, out);
}

static int simple(mlx_array *res, mlx_array a, mlx_stream s,
                  qn_status (*build)(qn_array **, qn_array *, qn_stream *))
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, build(&out, x, stream));
}

static int paired(mlx_array *res, mlx_array a, mlx_array b, mlx_stream s,
                  qn_status (*build)(qn_array **, qn_array *, qn_array *,
                                     qn_stream *))
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(y, b);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, build(&out, x, y, stream));
}

static int over_axes(mlx_array *res, mlx_array a, const int *axes, size_t naxes,
                     bool keepdims, mlx_stream s,
                     qn_status (*build)(qn_array **, qn_array *, const int *,
                                        size_t, bool, qn_stream *))
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, build(&out, x, axes, naxes, keepdims, stream));
}

/* clang-format off */

#define QN_ENTRY_UNARY(name)                                                   \
    int mlx_##name(mlx_array *res, const mlx_array a, const mlx_stream s)      \
    {                                                                          \
        return simple(res, a, s, qn_op_##name);                                \
    }
#define QN_ENTRY_BINARY(name)                                                  \
    int mlx_##name(mlx_array *res, const mlx_array a, const mlx_array b,       \
                   const mlx_stream s)                                         \
    {                                                                          \
        return paired(res, a, b, s, qn_op_##name);                             \
    }
#define QN_ENTRY_AXES(name)                                                    \
    int mlx_##name(mlx_array *res, const mlx_array a, bool keepdims,           \
                   const mlx_stream s)                                         \
    {                                                                          \
        return over_axes(res, a, NULL, QN_ALL_AXES, keepdims, s,               \
                         qn_op_##name);                                        \
    }                                                                          \
    int mlx_##name##_axis(mlx_array *res, const mlx_array a, int axis,         \
                          bool keepdims, const mlx_stream s)                   \
    {                                                                          \
        return over_axes(res, a, &axis, 1, keepdims, s, qn_op_##name);         \
    }                                                                          \
    int mlx_##name##_axes(mlx_array *res, const mlx_array a, const int *axes,  \
                          size_t axes_num, bool keepdims, const mlx_stream s)  \
    {                                                                          \
        return over_axes(res, a, axes, axes_num, keepdims, s, qn_op_##name);   \
    }
#define QN_ENTRY_HAND(name)

#define QN_UNARY(id, name, ...)                                                \
    int mlx_##name(mlx_array *res, const mlx_array a, const mlx_stream s)      \
    {                                                                          \
        return unary(res, QN_OP_##id, a, s);                                   \
    }
#define QN_UNARY_HAND(...)
#define QN_BINARY(id, name, ...)                                               \
    int mlx_##name(mlx_array *res, const mlx_array a, const mlx_array b,       \
                   const mlx_stream s)                                         \
    {                                                                          \
        return binary(res, QN_OP_##id, a, b, s);                               \
    }
#define QN_REDUCE(id, name, ...)                                               \
    int mlx_##name(mlx_array *res, const mlx_array a, bool keepdims,           \
                   const mlx_stream s)                                         \
    {                                                                          \
        return reduce(res, QN_OP_##id, a, NULL, QN_ALL_AXES, keepdims, s);     \
    }                                                                          \
    int mlx_##name##_axis(mlx_array *res, const mlx_array a, int axis,         \
                          bool keepdims, const mlx_stream s)                   \
    {                                                                          \
        return reduce(res, QN_OP_##id, a, &axis, 1, keepdims, s);              \
    }                                                                          \
    int mlx_##name##_axes(mlx_array *res, const mlx_array a, const int *axes,  \
                          size_t axes_num, bool keepdims, const mlx_stream s)  \
    {                                                                          \
        return reduce(res, QN_OP_##id, a, axes, axes_num, keepdims, s);        \
    }
#define QN_SCAN(id, name, ...)                                                 \
    int mlx_##name(mlx_array *res, const mlx_array a, bool reverse,            \
                   bool inclusive, const mlx_stream s)                         \
    {                                                                          \
        return scan(res, QN_OP_##id, a, NULL, reverse, inclusive, NULL, s);    \
    }                                                                          \
    int mlx_##name##_axis(mlx_array *res, const mlx_array a, int axis,         \
                          bool reverse, bool inclusive, const mlx_stream s)    \
    {                                                                          \
        return scan(res, QN_OP_##id, a, &axis, reverse, inclusive, NULL, s);   \
    }
#define QN_SCAN_TYPED(id, name, ...)                                           \
    int mlx_##name(mlx_array *res, const mlx_array a, bool reverse,            \
                   bool inclusive, mlx_optional_dtype dtype,                   \
                   const mlx_stream s)                                         \
    {                                                                          \
        return scan(res, QN_OP_##id, a, NULL, reverse, inclusive,              \
                    dtype.has_value ? &dtype.value : NULL, s);                 \
    }                                                                          \
    int mlx_##name##_axis(mlx_array *res, const mlx_array a, int axis,         \
                          bool reverse, bool inclusive,                        \
                          mlx_optional_dtype dtype, const mlx_stream s)        \
    {                                                                          \
        return scan(res, QN_OP_##id, a, &axis, reverse, inclusive,             \
                    dtype.has_value ? &dtype.value : NULL, s);                 \
    }
#define QN_COMPOSITE(name, form, file, doc) QN_ENTRY_##form(name)
#include "ops/ops.def"
