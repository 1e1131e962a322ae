/* array.c: arrays from host data, their properties, and their elements. */
#include "handles.h"

#include "core/eval.h"

#include "base/alloc.h"

#include <complex.h>
#include <string.h>

/* ---- creation and assignment ---- */

mlx_array mlx_array_new(void)
{
    return (mlx_array){NULL};
}

int mlx_array_free(mlx_array arr)
{
    qn_array_box *box = arr.ctx;
    if (box)
        qn_array_unref(box->array);
    qn_free(box);
    return 0;
}

static qn_status set_scalar(mlx_array *res, const void *value, qn_dtype dtype)
{
    qn_array *array;
    qn_status status = qn_array_from_scalar(&array, value, dtype);
    return status ? status : qn_handle_set_array(res, array);
}

/* mlx_array_new_NAME and mlx_array_set_NAME for a value of one C type. */
#define QN_SCALAR(name, c_type, stored, dtype)                                 \
    mlx_array mlx_array_new_##name(c_type val)                                 \
    {                                                                          \
        mlx_array res = {NULL};                                                \
        stored value = val;                                                    \
        QN_CALL_OR(set_scalar(&res, &value, dtype), res);                      \
        return res;                                                            \
    }                                                                          \
    int mlx_array_set_##name(mlx_array *arr, c_type val)                       \
    {                                                                          \
        stored value = val;                                                    \
        return QN_STORE(set_scalar(arr, &value, dtype));                       \
    }

QN_SCALAR(bool, bool, bool, QN_BOOL)
QN_SCALAR(int, int, int32_t, QN_INT32)
QN_SCALAR(float32, float, float, QN_FLOAT32)
QN_SCALAR(float, float, float, QN_FLOAT32)
QN_SCALAR(float64, double, double, QN_FLOAT64)
QN_SCALAR(double, double, double, QN_FLOAT64)

mlx_array mlx_array_new_complex(float real_val, float imag_val)
{
    mlx_array res = {NULL};
    mlx_array_set_complex(&res, real_val, imag_val);
    return res;
}

int mlx_array_set_complex(mlx_array *arr, float real_val, float imag_val)
{
    float value[2] = {real_val, imag_val};
    return QN_STORE(set_scalar(arr, value, QN_COMPLEX64));
}

static qn_status set_data(mlx_array *res, const void *data, const int *shape,
                          int dim, mlx_dtype dtype)
{
    qn_array *array;
    qn_dtype type;
    qn_status status = qn_capi_dtype(&type, dtype);
    if (!status)
        status = qn_array_from_data(&array, data, shape, dim, type);
    return status ? status : qn_handle_set_array(res, array);
}

mlx_array mlx_array_new_data(const void *data, const int *shape, int dim,
                             mlx_dtype dtype)
{
    mlx_array res = {NULL};
    QN_CALL_OR(set_data(&res, data, shape, dim, dtype), res);
    return res;
}

int mlx_array_set_data(mlx_array *arr, const void *data, const int *shape,
                       int dim, mlx_dtype dtype)
{
    return QN_STORE(set_data(arr, data, shape, dim, dtype));
}

mlx_array mlx_array_new_data_managed(void *data, const int *shape, int dim,
                                     mlx_dtype dtype, void (*dtor)(void *))
{
    return mlx_array_new_data_managed_payload(data, shape, dim, dtype, data,
                                              dtor);
}

mlx_array mlx_array_new_data_managed_payload(void *data, const int *shape,
                                             int dim, mlx_dtype dtype,
                                             void *payload,
                                             void (*dtor)(void *))
{
    mlx_array res = {NULL};
    qn_array *array;
    qn_dtype type;
    if (qn_capi_dtype(&type, dtype)) {
        if (dtor)
            dtor(payload);
        /* The destructor may have failed in something of its own. */
        qn_capi_dtype(&type, dtype);
        QN_REPORT();
        return res;
    }
    QN_CALL_OR(
        qn_array_from_managed(&array, data, shape, dim, type, payload, dtor),
        res);
    QN_CALL_OR(qn_handle_set_array(&res, array), res);
    return res;
}

int mlx_array_set(mlx_array *arr, const mlx_array src)
{
    QN_GET_ARRAY(array, src);
    return QN_STORE_ARRAY(arr, qn_array_ref(array));
}

/* ---- properties ---- */

#define QN_GET_ARRAY_OR(name, handle, failed)                                  \
    QN_GET_OR(const qn_array, name, qn_handle_array(handle), mlx_array, failed)

size_t mlx_dtype_size(mlx_dtype dtype)
{
    qn_dtype type;
    QN_CALL_OR(qn_capi_dtype(&type, dtype), 0);
    return qn_dtype_size(type);
}

size_t mlx_array_itemsize(const mlx_array arr)
{
    QN_GET_ARRAY_OR(a, arr, 0);
    return qn_array_itemsize(a);
}

size_t mlx_array_size(const mlx_array arr)
{
    QN_GET_ARRAY_OR(a, arr, 0);
    return a->size;
}

size_t mlx_array_nbytes(const mlx_array arr)
{
    QN_GET_ARRAY_OR(a, arr, 0);
    return qn_array_nbytes(a);
}

size_t mlx_array_ndim(const mlx_array arr)
{
    QN_GET_ARRAY_OR(a, arr, 0);
    return (size_t)a->ndim;
}

const int *mlx_array_shape(const mlx_array arr)
{
    QN_GET_ARRAY_OR(a, arr, NULL);
    return a->shape;
}

_Static_assert(sizeof(size_t) == sizeof(int64_t), "strides are 64-bit");

const size_t *mlx_array_strides(const mlx_array arr)
{
    QN_GET_ARRAY_OR(a, arr, NULL);
    return (const size_t *)a->strides;
}

int mlx_array_dim(const mlx_array arr, int dim)
{
    QN_GET_ARRAY_OR(a, arr, 0);
    int at = dim < 0 ? dim + a->ndim : dim;
    if (at < 0 || at >= a->ndim) {
        qn_fail(QN_E_ARG, "Invalid axis %d for array with %d dimensions.", dim,
                a->ndim);
        QN_REPORT();
        return 0;
    }
    return a->shape[at];
}

mlx_dtype mlx_array_dtype(const mlx_array arr)
{
    QN_GET_ARRAY_OR(a, arr, MLX_BOOL);
    return (mlx_dtype)a->dtype;
}

/* ---- evaluation and elements ---- */

int mlx_array_eval(mlx_array arr)
{
    QN_GET_ARRAY(array, arr);
    QN_CALL(qn_eval(&array, 1));
    return 0;
}

/* The only element of an array, evaluated. */
static qn_status only_element(const void **out, qn_array *array)
{
    if (array->size != 1)
        return qn_fail(QN_E_ARG,
                       "item can only be called on arrays of size 1, this one "
                       "has %zu elements",
                       array->size);
    qn_status status = qn_eval(&array, 1);
    if (!status)
        *out = qn_array_data(array);
    return status;
}

/* The only element as it lies there; QN_E_ARG unless it has the dtype. */
static qn_status item(void *res, qn_array *array, qn_dtype wanted)
{
    const void *element;
    if (array->dtype != wanted)
        return qn_fail(QN_E_ARG, "item of dtype %s asked of an array of %s",
                       qn_dtype_name(wanted), qn_dtype_name(array->dtype));
    qn_status status = only_element(&element, array);
    if (!status)
        memcpy(res, element, qn_dtype_size(wanted));
    return status;
}

/* The only element of an array of integers or bools, whichever they are. */
static qn_status integer_item(int64_t *res, qn_array *array, qn_dtype wanted)
{
    const void *element;
    qn_status status = only_element(&element, array);
    if (status)
        return status;
    switch (array->dtype) {
#define QN_CASE(dtype, c_type)                                                 \
    case dtype:                                                                \
        *res = (int64_t) * (const c_type *)element;                            \
        return QN_OK;
    case QN_BOOL:
        /* Views and files bring any bytes: all but 0 are true. */
        *res = *(const uint8_t *)element != 0;
        return QN_OK;
        QN_CASE(QN_UINT8, uint8_t)
        QN_CASE(QN_UINT16, uint16_t)
        QN_CASE(QN_UINT32, uint32_t)
        QN_CASE(QN_UINT64, uint64_t)
        QN_CASE(QN_INT8, int8_t)
        QN_CASE(QN_INT16, int16_t)
        QN_CASE(QN_INT32, int32_t)
        QN_CASE(QN_INT64, int64_t)
#undef QN_CASE
    default:
        /* Reports the two dtypes. */
        return item(res, array, wanted);
    }
}

#define QN_DATA(function, c_type)                                              \
    const c_type *function(const mlx_array arr)                                \
    {                                                                          \
        return data(arr);                                                      \
    }
/* `function` names are made here, where `bool` is not yet expanded. */
#define QN_INTEGER(name, c_type, dtype)                                        \
    int mlx_array_item_##name(c_type *res, const mlx_array arr)                \
    {                                                                          \
        QN_GET_ARRAY(array, arr);                                              \
        int64_t value;                                                         \
        QN_CALL(integer_item(&value, array, dtype));                           \
        *res = (c_type)value;                                                  \
        return 0;                                                              \
    }                                                                          \
    QN_DATA(mlx_array_data_##name, c_type)
#define QN_OTHER(name, c_type, dtype)                                          \
    int mlx_array_item_##name(c_type *res, const mlx_array arr)                \
    {                                                                          \
        QN_GET_ARRAY(array, arr);                                              \
        QN_CALL(item(res, array, dtype));                                      \
        return 0;                                                              \
    }                                                                          \
    QN_DATA(mlx_array_data_##name, c_type)

/* Of whatever dtype: programs take the bytes of any array as uint8. */
static const void *data(mlx_array arr)
{
    QN_GET_ARRAY_OR(array, arr, NULL);
    return qn_array_ready(array) ? qn_array_data(array) : NULL;
}

QN_INTEGER(bool, bool, QN_BOOL)
QN_INTEGER(uint8, uint8_t, QN_UINT8)
QN_INTEGER(uint16, uint16_t, QN_UINT16)
QN_INTEGER(uint32, uint32_t, QN_UINT32)
QN_INTEGER(uint64, uint64_t, QN_UINT64)
QN_INTEGER(int8, int8_t, QN_INT8)
QN_INTEGER(int16, int16_t, QN_INT16)
QN_INTEGER(int32, int32_t, QN_INT32)
QN_INTEGER(int64, int64_t, QN_INT64)
QN_OTHER(float16, mlx_float16_t, QN_FLOAT16)
QN_OTHER(bfloat16, mlx_bfloat16_t, QN_BFLOAT16)
QN_OTHER(float32, float, QN_FLOAT32)
QN_OTHER(float64, double, QN_FLOAT64)
QN_OTHER(complex64, mlx_complex64_t, QN_COMPLEX64)

/* ---- state of the storage ---- */

int _mlx_array_is_available(bool *res, const mlx_array arr)
{
    QN_GET_ARRAY(array, arr);
    *res = qn_array_ready(array);
    return 0;
}

int _mlx_array_wait(const mlx_array arr)
{
    QN_GET_ARRAY(array, arr);
    QN_CALL(qn_eval(&array, 1));
    return 0;
}

/* The layout of an array that has one. */
static qn_status laid_out(const qn_array *array)
{
    if (qn_array_ready(array))
        return QN_OK;
    return qn_fail(QN_E_ARG, "an array that is not evaluated has no layout");
}

/* The stretch of storage counts, so repeated dimensions (stride 0) do not. */
static bool fills_a_stretch(const qn_array *array)
{
    qn_array once = *array;
    int shape[QN_MAX_NDIM];
    for (int i = 0; i < array->ndim; i++)
        shape[i] = array->strides[i] ? array->shape[i] : 1;
    once.shape = shape;
    qn_array_update_flags(&once);
    return once.contiguous;
}

int _mlx_array_is_contiguous(bool *res, const mlx_array arr)
{
    QN_GET_ARRAY(array, arr);
    QN_CALL(laid_out(array));
    *res = fills_a_stretch(array);
    return 0;
}

int _mlx_array_is_row_contiguous(bool *res, const mlx_array arr)
{
    QN_GET_ARRAY(array, arr);
    QN_CALL(laid_out(array));
    *res = array->row_contiguous;
    return 0;
}

int _mlx_array_is_col_contiguous(bool *res, const mlx_array arr)
{
    QN_GET_ARRAY(array, arr);
    QN_CALL(laid_out(array));
    *res = array->col_contiguous;
    return 0;
}
