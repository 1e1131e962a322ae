/* handles.c: boxes, and the results put into them. */
#include "handles.h"

#include "base/alloc.h"

#include <limits.h>
#include <string.h>

qn_status qn_capi_dtype(qn_dtype *out, mlx_dtype dtype)
{
    if ((unsigned)dtype >= QN_DTYPE_COUNT)
        return qn_fail(QN_E_ARG, "[dtype] there is no dtype with the number %d",
                       (int)dtype);
    *out = (qn_dtype)dtype;
    return QN_OK;
}

qn_status qn_capi_count(int *out, size_t count)
{
    if (count > INT_MAX)
        return qn_fail(QN_E_ARG, "expected at most %d items, found %zu",
                       INT_MAX, count);
    *out = (int)count;
    return QN_OK;
}

/* ---- arrays ---- */

static qn_status need_box(mlx_array *handle)
{
    if (handle->ctx)
        return QN_OK;
    qn_array_box *box = qn_alloc(sizeof *box);
    if (!box)
        return QN_E_NOMEM;
    box->array = NULL;
    handle->ctx = box;
    return QN_OK;
}

static void fill_box(mlx_array handle, qn_array *array)
{
    qn_array_box *box = handle.ctx;
    qn_array *before = box->array;
    box->array = array;
    qn_array_unref(before);
}

qn_status qn_handle_set_array(mlx_array *res, qn_array *array)
{
    qn_status status = need_box(res);
    if (status) {
        qn_array_unref(array);
        return status;
    }
    fill_box(*res, array);
    return QN_OK;
}

qn_status qn_handle_set_each(mlx_array *const *res, qn_array *const *arrays,
                             int count)
{
    qn_status status = QN_OK;
    int boxed = 0;
    for (; boxed < count && !status; boxed++)
        status = need_box(res[boxed]);
    if (!status) {
        for (int i = 0; i < count; i++)
            fill_box(*res[i], arrays[i]);
        return QN_OK;
    }
    for (int i = 0; i < count; i++) {
        /* Boxes made just now are still empty. */
        qn_array_box *box = res[i]->ctx;
        if (i < boxed && box && !box->array) {
            qn_free(box);
            res[i]->ctx = NULL;
        }
        qn_array_unref(arrays[i]);
    }
    return status;
}

/* ---- the rest ---- */

qn_status qn_handle_set_stream(mlx_stream *res, qn_stream *stream)
{
    qn_stream_box *box = res->ctx;
    if (!box) {
        box = qn_alloc(sizeof *box);
        if (!box)
            return QN_E_NOMEM;
        res->ctx = box;
    }
    box->stream = stream;
    return QN_OK;
}
