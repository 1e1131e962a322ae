/* ops_shape.c: C entries of views, slices, joins and rearrangements. */
#include "handles.h"
#include "ops_entry.h"

/* ---- shape ---- */

int mlx_reshape(mlx_array *res, const mlx_array a, const int *shape,
                size_t shape_num, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_reshape(&out, x, shape, shape_num, stream));
}

int mlx_flatten(mlx_array *res, const mlx_array a, int start_axis, int end_axis,
                const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_flatten(&out, x, start_axis, end_axis, stream));
}

int mlx_unflatten(mlx_array *res, const mlx_array a, int axis, const int *shape,
                  size_t shape_num, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_unflatten(&out, x, axis, shape, shape_num, stream));
}

int mlx_squeeze(mlx_array *res, const mlx_array a, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_squeeze(&out, x, NULL, QN_ALL_AXES, stream));
}

int mlx_squeeze_axis(mlx_array *res, const mlx_array a, int axis,
                     const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_squeeze(&out, x, &axis, 1, stream));
}

int mlx_squeeze_axes(mlx_array *res, const mlx_array a, const int *axes,
                     size_t axes_num, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_squeeze(&out, x, axes, axes_num, stream));
}

int mlx_expand_dims(mlx_array *res, const mlx_array a, int axis,
                    const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_expand_dims(&out, x, &axis, 1, stream));
}

int mlx_expand_dims_axes(mlx_array *res, const mlx_array a, const int *axes,
                         size_t axes_num, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_expand_dims(&out, x, axes, axes_num, stream));
}

int mlx_broadcast_to(mlx_array *res, const mlx_array a, const int *shape,
                     size_t shape_num, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_broadcast_to(&out, x, shape, shape_num, stream));
}

/* As many results as inputs. */
static qn_status broadcast_arrays(qn_array ***list, size_t *count,
                                  const qn_list *arrays, qn_stream *stream)
{
    qn_array **made = qn_calloc(arrays->size ? arrays->size : 1, sizeof *made);
    if (!made)
        return QN_E_NOMEM;
    qn_status status =
        qn_op_broadcast_arrays(made, arrays->data, arrays->size, stream);
    if (status) {
        qn_free(made);
        return status;
    }
    *list = made;
    *count = arrays->size;
    return QN_OK;
}

int mlx_broadcast_arrays(mlx_vector_array *res, const mlx_vector_array inputs,
                         const mlx_stream s)
{
    QN_GET_ARRAYS(all, inputs);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OPS(res, broadcast_arrays(&list, &count, all, stream));
}

int mlx_transpose(mlx_array *res, const mlx_array a, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_transpose(&out, x, NULL, QN_ALL_AXES, stream));
}

int mlx_transpose_axes(mlx_array *res, const mlx_array a, const int *axes,
                       size_t axes_num, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_transpose(&out, x, axes, axes_num, stream));
}

int mlx_swapaxes(mlx_array *res, const mlx_array a, int axis1, int axis2,
                 const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_swapaxes(&out, x, axis1, axis2, stream));
}

int mlx_moveaxis(mlx_array *res, const mlx_array a, int source, int destination,
                 const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_moveaxis(&out, x, source, destination, stream));
}

int mlx_contiguous(mlx_array *res, const mlx_array a, bool allow_col_major,
                   const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_contiguous(&out, x, allow_col_major, stream));
}

int mlx_copy(mlx_array *res, const mlx_array a, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_copy(&out, x, stream));
}

int mlx_as_strided(mlx_array *res, const mlx_array a, const int *shape,
                   size_t shape_num, const int64_t *strides, size_t strides_num,
                   size_t offset, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_as_strided(&out, x, shape, shape_num, strides,
                                       strides_num, offset, stream));
}

int mlx_number_of_elements(mlx_array *res, const mlx_array a, const int *axes,
                           size_t axes_num, bool inverted, mlx_dtype dtype,
                           const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_DTYPE(type, dtype);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_number_of_elements(&out, x, axes, axes_num,
                                               inverted, type, stream));
}

/* Without a stream of its own: the default device's default stream. */
static qn_status depends(qn_array ***list, size_t *count, const qn_list *inputs,
                         const qn_list *dependencies)
{
    qn_stream *stream;
    qn_status status = qn_stream_default(&stream, qn_device_default());
    if (status)
        return status;
    qn_array **made = qn_calloc(inputs->size ? inputs->size : 1, sizeof *made);
    if (!made)
        return QN_E_NOMEM;
    status = qn_op_depends(made, inputs->data, inputs->size, dependencies->data,
                           dependencies->size, stream);
    if (status) {
        qn_free(made);
        return status;
    }
    *list = made;
    *count = inputs->size;
    return QN_OK;
}

int mlx_depends(mlx_vector_array *res, const mlx_vector_array inputs,
                const mlx_vector_array dependencies)
{
    QN_GET_ARRAYS(all, inputs);
    QN_GET_ARRAYS(others, dependencies);
    QN_RETURN_OPS(res, depends(&list, &count, all, others));
}

/* ---- slices ---- */

int mlx_slice(mlx_array *res, const mlx_array a, const int *start,
              size_t start_num, const int *stop, size_t stop_num,
              const int *strides, size_t strides_num, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_slice(&out, x, start, start_num, stop, stop_num,
                                  strides, strides_num, stream));
}

int mlx_slice_update(mlx_array *res, const mlx_array src,
                     const mlx_array update, const int *start, size_t start_num,
                     const int *stop, size_t stop_num, const int *strides,
                     size_t strides_num, const mlx_stream s)
{
    QN_GET_ARRAY(x, src);
    QN_GET_ARRAY(change, update);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_slice_update(&out, x, change, start, start_num,
                                         stop, stop_num, strides, strides_num,
                                         QN_COMBINE_SET, stream));
}

int mlx_slice_update_add(mlx_array *res, const mlx_array src,
                         const mlx_array update, const int *start,
                         size_t start_num, const int *stop, size_t stop_num,
                         const int *strides, size_t strides_num,
                         const mlx_stream s)
{
    QN_GET_ARRAY(x, src);
    QN_GET_ARRAY(change, update);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_slice_update(&out, x, change, start, start_num,
                                         stop, stop_num, strides, strides_num,
                                         QN_COMBINE_SUM, stream));
}

int mlx_slice_update_prod(mlx_array *res, const mlx_array src,
                          const mlx_array update, const int *start,
                          size_t start_num, const int *stop, size_t stop_num,
                          const int *strides, size_t strides_num,
                          const mlx_stream s)
{
    QN_GET_ARRAY(x, src);
    QN_GET_ARRAY(change, update);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_slice_update(&out, x, change, start, start_num,
                                         stop, stop_num, strides, strides_num,
                                         QN_COMBINE_PROD, stream));
}

int mlx_slice_update_max(mlx_array *res, const mlx_array src,
                         const mlx_array update, const int *start,
                         size_t start_num, const int *stop, size_t stop_num,
                         const int *strides, size_t strides_num,
                         const mlx_stream s)
{
    QN_GET_ARRAY(x, src);
    QN_GET_ARRAY(change, update);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_slice_update(&out, x, change, start, start_num,
                                         stop, stop_num, strides, strides_num,
                                         QN_COMBINE_MAX, stream));
}

int mlx_slice_update_min(mlx_array *res, const mlx_array src,
                         const mlx_array update, const int *start,
                         size_t start_num, const int *stop, size_t stop_num,
                         const int *strides, size_t strides_num,
                         const mlx_stream s)
{
    QN_GET_ARRAY(x, src);
    QN_GET_ARRAY(change, update);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_slice_update(&out, x, change, start, start_num,
                                         stop, stop_num, strides, strides_num,
                                         QN_COMBINE_MIN, stream));
}

int mlx_slice_dynamic(mlx_array *res, const mlx_array a, const mlx_array start,
                      const int *axes, size_t axes_num, const int *slice_size,
                      size_t slice_size_num, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(corner, start);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_slice_dynamic(&out, x, corner, axes, axes_num,
                                          slice_size, slice_size_num, stream));
}

int mlx_slice_update_dynamic(mlx_array *res, const mlx_array src,
                             const mlx_array update, const mlx_array start,
                             const int *axes, size_t axes_num,
                             const mlx_stream s)
{
    QN_GET_ARRAY(x, src);
    QN_GET_ARRAY(change, update);
    QN_GET_ARRAY(corner, start);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_slice_update_dynamic(&out, x, change, corner, axes,
                                                 axes_num, stream));
}

/* ---- joining and taking apart ---- */

int mlx_concatenate_axis(mlx_array *res, const mlx_vector_array arrays,
                         int axis, const mlx_stream s)
{
    QN_GET_ARRAYS(all, arrays);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res,
                 qn_op_concatenate(&out, all->data, all->size, axis, stream));
}

int mlx_concatenate(mlx_array *res, const mlx_vector_array arrays,
                    const mlx_stream s)
{
    QN_GET_ARRAYS(all, arrays);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_concatenate(&out, all->data, all->size, 0, stream));
}

int mlx_stack_axis(mlx_array *res, const mlx_vector_array arrays, int axis,
                   const mlx_stream s)
{
    QN_GET_ARRAYS(all, arrays);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_stack(&out, all->data, all->size, axis, stream));
}

int mlx_stack(mlx_array *res, const mlx_vector_array arrays, const mlx_stream s)
{
    QN_GET_ARRAYS(all, arrays);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_stack(&out, all->data, all->size, 0, stream));
}

int mlx_split(mlx_vector_array *res, const mlx_array a, int num_splits,
              int axis, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OPS(res, qn_op_split(&list, &count, x, num_splits, axis, stream));
}

int mlx_split_sections(mlx_vector_array *res, const mlx_array a,
                       const int *indices, size_t indices_num, int axis,
                       const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OPS(res, qn_op_split_at(&list, &count, x, indices, indices_num,
                                      axis, stream));
}

int mlx_unstack_axis(mlx_vector_array *res, const mlx_array a, int axis,
                     const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OPS(res, qn_op_unstack(&list, &count, x, axis, stream));
}

int mlx_unstack(mlx_vector_array *res, const mlx_array a, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OPS(res, qn_op_unstack(&list, &count, x, 0, stream));
}

int mlx_pad(mlx_array *res, const mlx_array a, const int *axes, size_t axes_num,
            const int *low_pad_size, size_t low_pad_size_num,
            const int *high_pad_size, size_t high_pad_size_num,
            const mlx_array pad_value, const char *mode, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(value, pad_value);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res,
                 qn_op_pad(&out, x, axes, axes_num, low_pad_size,
                           low_pad_size_num, high_pad_size, high_pad_size_num,
                           value, qn_capi_text(mode), stream));
}

int mlx_pad_symmetric(mlx_array *res, const mlx_array a, int pad_width,
                      const mlx_array pad_value, const char *mode,
                      const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(value, pad_value);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_pad_symmetric(&out, x, pad_width, value,
                                          qn_capi_text(mode), stream));
}

/* ---- rearranging ---- */

/* axis: NULL: over the flattened array. */
static qn_status repeated(qn_array **out, qn_array *x, int repeats,
                          const int *axis, qn_stream *stream)
{
    if (axis)
        return qn_op_repeat(out, x, repeats, *axis, stream);
    qn_array *line = NULL;
    qn_status status = qn_op_flatten(&line, x, 0, -1, stream);
    if (!status)
        status = qn_op_repeat(out, line, repeats, 0, stream);
    qn_array_unref(line);
    return status;
}

int mlx_repeat_axis(mlx_array *res, const mlx_array arr, int repeats, int axis,
                    const mlx_stream s)
{
    QN_GET_ARRAY(x, arr);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, repeated(&out, x, repeats, &axis, stream));
}

int mlx_repeat(mlx_array *res, const mlx_array arr, int repeats,
               const mlx_stream s)
{
    QN_GET_ARRAY(x, arr);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, repeated(&out, x, repeats, NULL, stream));
}

int mlx_tile(mlx_array *res, const mlx_array arr, const int *reps,
             size_t reps_num, const mlx_stream s)
{
    QN_GET_ARRAY(x, arr);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_tile(&out, x, reps, reps_num, stream));
}

/* All shifts are of one axis. */
static qn_status roll_one(qn_array **out, qn_array *x, const int *shifts,
                          size_t nshifts, int axis, qn_stream *stream)
{
    int *axes = qn_reallocarray(NULL, nshifts, sizeof *axes);
    if (!axes)
        return QN_E_NOMEM;
    for (size_t i = 0; i < nshifts; i++)
        axes[i] = axis;
    qn_status status =
        qn_op_roll(out, x, shifts, nshifts, axes, nshifts, stream);
    qn_free(axes);
    return status;
}

int mlx_roll_axis(mlx_array *res, const mlx_array a, const int *shift,
                  size_t shift_num, int axis, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, roll_one(&out, x, shift, shift_num, axis, stream));
}

int mlx_roll_axes(mlx_array *res, const mlx_array a, const int *shift,
                  size_t shift_num, const int *axes, size_t axes_num,
                  const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res,
                 qn_op_roll(&out, x, shift, shift_num, axes, axes_num, stream));
}

int mlx_roll(mlx_array *res, const mlx_array a, const int *shift,
             size_t shift_num, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(
        res, qn_op_roll(&out, x, shift, shift_num, NULL, QN_ALL_AXES, stream));
}

int mlx_flip(mlx_array *res, const mlx_array a, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_flip(&out, x, NULL, QN_ALL_AXES, stream));
}

int mlx_flip_axis(mlx_array *res, const mlx_array a, int axis,
                  const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_flip(&out, x, &axis, 1, stream));
}

int mlx_flip_axes(mlx_array *res, const mlx_array a, const int *axes,
                  size_t axes_num, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_flip(&out, x, axes, axes_num, stream));
}

int mlx_diff(mlx_array *res, const mlx_array a, int n, int axis,
             const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_diff(&out, x, n, axis, stream));
}

int mlx_diagonal(mlx_array *res, const mlx_array a, int offset, int axis1,
                 int axis2, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_diagonal(&out, x, offset, axis1, axis2, stream));
}

int mlx_diag(mlx_array *res, const mlx_array a, int k, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_diag(&out, x, k, stream));
}

int mlx_trace(mlx_array *res, const mlx_array a, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_trace(&out, x, 0, 0, 1, x->dtype, stream));
}

int mlx_trace_axes(mlx_array *res, const mlx_array a, int offset, int axis1,
                   int axis2, mlx_dtype dtype, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_DTYPE(type, dtype);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_trace(&out, x, offset, axis1, axis2, type, stream));
}
