/* ops_index.c: C entries of indexing and of order along an axis. */
#include "handles.h"
#include "ops_entry.h"

/* ---- at indices ---- */

int mlx_gather(mlx_array *res, const mlx_array a,
               const mlx_vector_array indices, const int *axes, size_t axes_num,
               const int *slice_sizes, size_t slice_sizes_num,
               const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAYS(places, indices);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res,
                 qn_op_gather(&out, x, places->data, places->size, axes,
                              axes_num, slice_sizes, slice_sizes_num, stream));
}

int mlx_gather_single(mlx_array *res, const mlx_array a,
                      const mlx_array indices, int axis, const int *slice_sizes,
                      size_t slice_sizes_num, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(places, indices);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_gather(&out, x, &places, 1, &axis, 1, slice_sizes,
                                   slice_sizes_num, stream));
}

int mlx_take_axis(mlx_array *res, const mlx_array a, const mlx_array indices,
                  int axis, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(places, indices);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_take(&out, x, places, axis, stream));
}

static qn_status take_flat(qn_array **out, qn_array *x, qn_array *places,
                           qn_stream *stream)
{
    qn_array *line = NULL;
    qn_status status = qn_op_flatten(&line, x, 0, -1, stream);
    if (!status)
        status = qn_op_take(out, line, places, 0, stream);
    qn_array_unref(line);
    return status;
}

int mlx_take(mlx_array *res, const mlx_array a, const mlx_array indices,
             const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(places, indices);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, take_flat(&out, x, places, stream));
}

int mlx_take_along_axis(mlx_array *res, const mlx_array a,
                        const mlx_array indices, int axis, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(places, indices);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_take_along_axis(&out, x, places, axis, stream));
}

int mlx_put_along_axis(mlx_array *res, const mlx_array a,
                       const mlx_array indices, const mlx_array values,
                       int axis, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(places, indices);
    QN_GET_ARRAY(elements, values);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_scatter_axis(&out, x, places, elements, axis,
                                         QN_COMBINE_SET, stream));
}

int mlx_scatter_add_axis(mlx_array *res, const mlx_array a,
                         const mlx_array indices, const mlx_array values,
                         int axis, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(places, indices);
    QN_GET_ARRAY(elements, values);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_scatter_axis(&out, x, places, elements, axis,
                                         QN_COMBINE_SUM, stream));
}

int mlx_scatter(mlx_array *res, const mlx_array a,
                const mlx_vector_array indices, const mlx_array updates,
                const int *axes, size_t axes_num, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAYS(places, indices);
    QN_GET_ARRAY(changes, updates);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res,
                 qn_op_scatter(&out, x, places->data, places->size, changes,
                               axes, axes_num, QN_COMBINE_SET, stream));
}

int mlx_scatter_single(mlx_array *res, const mlx_array a,
                       const mlx_array indices, const mlx_array updates,
                       int axis, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(places, indices);
    QN_GET_ARRAY(changes, updates);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_scatter(&out, x, &places, 1, changes, &axis, 1,
                                    QN_COMBINE_SET, stream));
}

int mlx_scatter_add(mlx_array *res, const mlx_array a,
                    const mlx_vector_array indices, const mlx_array updates,
                    const int *axes, size_t axes_num, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAYS(places, indices);
    QN_GET_ARRAY(changes, updates);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res,
                 qn_op_scatter(&out, x, places->data, places->size, changes,
                               axes, axes_num, QN_COMBINE_SUM, stream));
}

int mlx_scatter_add_single(mlx_array *res, const mlx_array a,
                           const mlx_array indices, const mlx_array updates,
                           int axis, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(places, indices);
    QN_GET_ARRAY(changes, updates);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_scatter(&out, x, &places, 1, changes, &axis, 1,
                                    QN_COMBINE_SUM, stream));
}

int mlx_scatter_max(mlx_array *res, const mlx_array a,
                    const mlx_vector_array indices, const mlx_array updates,
                    const int *axes, size_t axes_num, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAYS(places, indices);
    QN_GET_ARRAY(changes, updates);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res,
                 qn_op_scatter(&out, x, places->data, places->size, changes,
                               axes, axes_num, QN_COMBINE_MAX, stream));
}

int mlx_scatter_max_single(mlx_array *res, const mlx_array a,
                           const mlx_array indices, const mlx_array updates,
                           int axis, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(places, indices);
    QN_GET_ARRAY(changes, updates);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_scatter(&out, x, &places, 1, changes, &axis, 1,
                                    QN_COMBINE_MAX, stream));
}

int mlx_scatter_min(mlx_array *res, const mlx_array a,
                    const mlx_vector_array indices, const mlx_array updates,
                    const int *axes, size_t axes_num, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAYS(places, indices);
    QN_GET_ARRAY(changes, updates);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res,
                 qn_op_scatter(&out, x, places->data, places->size, changes,
                               axes, axes_num, QN_COMBINE_MIN, stream));
}

int mlx_scatter_min_single(mlx_array *res, const mlx_array a,
                           const mlx_array indices, const mlx_array updates,
                           int axis, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(places, indices);
    QN_GET_ARRAY(changes, updates);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_scatter(&out, x, &places, 1, changes, &axis, 1,
                                    QN_COMBINE_MIN, stream));
}

int mlx_scatter_prod(mlx_array *res, const mlx_array a,
                     const mlx_vector_array indices, const mlx_array updates,
                     const int *axes, size_t axes_num, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAYS(places, indices);
    QN_GET_ARRAY(changes, updates);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res,
                 qn_op_scatter(&out, x, places->data, places->size, changes,
                               axes, axes_num, QN_COMBINE_PROD, stream));
}

int mlx_scatter_prod_single(mlx_array *res, const mlx_array a,
                            const mlx_array indices, const mlx_array updates,
                            int axis, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(places, indices);
    QN_GET_ARRAY(changes, updates);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_scatter(&out, x, &places, 1, changes, &axis, 1,
                                    QN_COMBINE_PROD, stream));
}

/* ---- extrema ---- */

int mlx_argmax_axis(mlx_array *res, const mlx_array a, int axis, bool keepdims,
                    const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_arg_reduce(&out, x, true, axis, keepdims, stream));
}

int mlx_argmax(mlx_array *res, const mlx_array a, bool keepdims,
               const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_arg_reduce_all(&out, x, true, keepdims, stream));
}

int mlx_argmin_axis(mlx_array *res, const mlx_array a, int axis, bool keepdims,
                    const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_arg_reduce(&out, x, false, axis, keepdims, stream));
}

int mlx_argmin(mlx_array *res, const mlx_array a, bool keepdims,
               const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_arg_reduce_all(&out, x, false, keepdims, stream));
}

/* ---- order: without an axis, of the flattened array ---- */

static int sorted(mlx_array *res, qn_op op, mlx_array a, const int *axis,
                  mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    if (axis)
        QN_RETURN_OP(res, qn_op_sort(&out, op, x, *axis, stream));
    qn_array *line, *out = NULL;
    QN_CALL(qn_op_flatten(&line, x, 0, -1, stream));
    qn_status status = qn_op_sort(&out, op, line, 0, stream);
    qn_array_unref(line);
    QN_CALL(status);
    return QN_STORE_ARRAY(res, out);
}

int mlx_sort_axis(mlx_array *res, const mlx_array a, int axis,
                  const mlx_stream s)
{
    return sorted(res, QN_OP_SORT, a, &axis, s);
}

int mlx_sort(mlx_array *res, const mlx_array a, const mlx_stream s)
{
    return sorted(res, QN_OP_SORT, a, NULL, s);
}

int mlx_argsort_axis(mlx_array *res, const mlx_array a, int axis,
                     const mlx_stream s)
{
    return sorted(res, QN_OP_ARGSORT, a, &axis, s);
}

int mlx_argsort(mlx_array *res, const mlx_array a, const mlx_stream s)
{
    return sorted(res, QN_OP_ARGSORT, a, NULL, s);
}

static int parted(mlx_array *res, qn_op op, mlx_array a, int kth,
                  const int *axis, mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    if (axis)
        QN_RETURN_OP(res, qn_op_partition(&out, op, x, kth, *axis, stream));
    qn_array *line, *out = NULL;
    QN_CALL(qn_op_flatten(&line, x, 0, -1, stream));
    qn_status status = qn_op_partition(&out, op, line, kth, 0, stream);
    qn_array_unref(line);
    QN_CALL(status);
    return QN_STORE_ARRAY(res, out);
}

int mlx_partition_axis(mlx_array *res, const mlx_array a, int kth, int axis,
                       const mlx_stream s)
{
    return parted(res, QN_OP_PARTITION, a, kth, &axis, s);
}

int mlx_partition(mlx_array *res, const mlx_array a, int kth,
                  const mlx_stream s)
{
    return parted(res, QN_OP_PARTITION, a, kth, NULL, s);
}

int mlx_argpartition_axis(mlx_array *res, const mlx_array a, int kth, int axis,
                          const mlx_stream s)
{
    return parted(res, QN_OP_ARGPARTITION, a, kth, &axis, s);
}

int mlx_argpartition(mlx_array *res, const mlx_array a, int kth,
                     const mlx_stream s)
{
    return parted(res, QN_OP_ARGPARTITION, a, kth, NULL, s);
}

static qn_status topk_flat(qn_array **out, qn_array *x, int k,
                           qn_stream *stream)
{
    qn_array *line = NULL;
    qn_status status = qn_op_flatten(&line, x, 0, -1, stream);
    if (!status)
        status = qn_op_topk(out, line, k, 0, stream);
    qn_array_unref(line);
    return status;
}

int mlx_topk_axis(mlx_array *res, const mlx_array a, int k, int axis,
                  const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_topk(&out, x, k, axis, stream));
}

int mlx_topk(mlx_array *res, const mlx_array a, int k, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, topk_flat(&out, x, k, stream));
}

int mlx_searchsorted(mlx_array *res, const mlx_array sorted_sequence,
                     const mlx_array values, const char *side,
                     const mlx_stream s)
{
    QN_GET_ARRAY(sequence, sorted_sequence);
    QN_GET_ARRAY(x, values);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(
        res, qn_op_searchsorted(&out, sequence, x, qn_capi_text(side), stream));
}

int mlx_masked_scatter(mlx_array *res, const mlx_array a, const mlx_array mask,
                       const mlx_array src, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(where, mask);
    QN_GET_ARRAY(values, src);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_masked_scatter(&out, x, where, values, stream));
}
