/* array.c: making, sharing and describing arrays.
 *
 * An array is one block: the struct, then its strides, then its shape. */
#include "array.h"

#include "base/alloc.h"
#include "node.h"

#include <assert.h>
#include <string.h>

/* ---- making ---- */

/* Counts the elements; QN_E_ARG for a shape that can't be. */
static qn_status count_elements(size_t *size, qn_dtype dtype, const int *shape,
                                int ndim)
{
    if (ndim < 0 || ndim > QN_MAX_NDIM)
        return qn_fail(QN_E_ARG,
                       "[array] expected at most %d dimensions, found %d",
                       QN_MAX_NDIM, ndim);
    bool fits = true, empty = false;
    size_t total = 1, bytes;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0)
            return qn_fail(QN_E_ARG, "[array] dimension %d is negative: %d", i,
                           shape[i]);
        empty = empty || !shape[i];
        fits = fits && qn_mul_size(&total, total, (size_t)shape[i]);
    }
    /* However large the others, a dimension of 0 leaves nothing. */
    if (empty)
        total = 0;
    else if (!fits || !qn_mul_size(&bytes, total, qn_dtype_size(dtype)) ||
             bytes > INT64_MAX)
        return qn_fail(QN_E_ARG, "[array] the shape has too many elements");
    *size = total;
    return QN_OK;
}

qn_status qn_array_new(qn_array **out, qn_dtype dtype, const int *shape,
                       int ndim)
{
    size_t size;
    qn_status status = count_elements(&size, dtype, shape, ndim);
    if (status)
        return status;
    size_t dims = (size_t)ndim;
    qn_array *a =
        qn_alloc(sizeof *a + dims * (sizeof *a->strides + sizeof *a->shape));
    if (!a)
        return QN_E_NOMEM;
    atomic_init(&a->refs, 1);
    atomic_init(&a->state, QN_PENDING);
    a->dtype = dtype;
    a->ndim = ndim;
    a->size = size;
    a->node = NULL;
    a->output = 0;
    a->contiguous = a->row_contiguous = a->col_contiguous = false;
    a->buffer = NULL;
    a->offset = 0;
    a->strides = (int64_t *)(a + 1);
    a->shape = (int *)(a->strides + dims);
    if (dims)
        memcpy(a->shape, shape, dims * sizeof *shape);
    qn_row_strides(a->strides, a->shape, ndim);
    *out = a;
    return QN_OK;
}

void qn_array_set_ready(qn_array *array)
{
    assert(array->buffer && !array->node);
    atomic_store_explicit(&array->state, QN_READY, memory_order_release);
}

/* Elements that are not there can't be read. */
static qn_status need_data(const void *data, size_t size)
{
    if (data || !size)
        return QN_OK;
    return qn_fail(QN_E_ARG,
                   "[array] expected the data of %zu elements, "
                   "found NULL",
                   size);
}

qn_status qn_array_from_data(qn_array **out, const void *data, const int *shape,
                             int ndim, qn_dtype dtype)
{
    qn_array *a;
    qn_status status = qn_array_new(&a, dtype, shape, ndim);
    if (status)
        return status;
    status = need_data(data, a->size);
    if (!status)
        status = qn_array_alloc(a);
    if (status) {
        qn_array_delete(a);
        return status;
    }
    if (a->size)
        memcpy(a->buffer->data, data, qn_array_nbytes(a));
    qn_array_set_ready(a);
    *out = a;
    return QN_OK;
}

qn_status qn_array_from_scalar(qn_array **out, const void *value,
                               qn_dtype dtype)
{
    return qn_array_from_data(out, value, NULL, 0, dtype);
}

/* Runs a destructor in the middle of a call, whose recorded error stays. */
static void give_back(void *payload, void (*dtor)(void *))
{
    if (!dtor)
        return;
    qn_error error;
    qn_error_save(&error);
    dtor(payload);
    qn_error_restore(&error);
}

qn_status qn_array_from_managed(qn_array **out, void *data, const int *shape,
                                int ndim, qn_dtype dtype, void *payload,
                                void (*dtor)(void *))
{
    if ((uintptr_t)data % qn_dtype_size(dtype)) {
        qn_status status = qn_array_from_data(out, data, shape, ndim, dtype);
        give_back(payload, dtor);
        return status;
    }
    qn_array *a = NULL;
    qn_status status = qn_array_new(&a, dtype, shape, ndim);
    if (!status)
        status = need_data(data, a->size);
    if (status) {
        give_back(payload, dtor);
        if (a)
            qn_array_delete(a);
        return status;
    }
    status = qn_buffer_new_external(&a->buffer, data, qn_array_nbytes(a),
                                    payload, dtor);
    if (status) {
        qn_array_delete(a);
        return status;
    }
    qn_array_update_flags(a);
    qn_array_set_ready(a);
    *out = a;
    return QN_OK;
}

/* ---- sharing ---- */

qn_array *qn_array_ref(qn_array *array)
{
    atomic_fetch_add_explicit(&array->refs, 1, memory_order_relaxed);
    return array;
}

void qn_array_unref(qn_array *array)
{
    if (!array)
        return;
    qn_node *node = qn_array_drop(array);
    if (node)
        qn_node_unref(node, 1);
}

qn_node *qn_array_drop(qn_array *array)
{
    if (atomic_fetch_sub_explicit(&array->refs, 1, memory_order_acq_rel) != 1)
        return NULL;
    /* An evaluation on another thread may be about to make it READY: whichever
     * changes the state first decides who frees the array. */
    qn_array_state state = QN_PENDING;
    if (!qn_array_ready(array) && array->node &&
        atomic_compare_exchange_strong_explicit(&array->state, &state, QN_GHOST,
                                                memory_order_acq_rel,
                                                memory_order_acquire))
        return array->node;
    qn_array_delete(array);
    return NULL;
}

void qn_array_delete(qn_array *array)
{
    qn_buffer_unref(array->buffer);
    qn_free(array);
}

bool qn_array_donatable(const qn_array *array)
{
    return atomic_load_explicit(&array->refs, memory_order_acquire) == 1 &&
           qn_array_ready(array) && !array->buffer->external &&
           qn_buffer_unique(array->buffer);
}

/* ---- layout ---- */

static qn_status lay_out(qn_array *array, qn_status status)
{
    if (status)
        return status;
    array->offset = 0;
    qn_row_strides(array->strides, array->shape, array->ndim);
    qn_array_update_flags(array);
    return QN_OK;
}

qn_status qn_array_alloc(qn_array *array)
{
    return lay_out(array,
                   qn_buffer_new(&array->buffer, qn_array_nbytes(array)));
}

qn_status qn_array_alloc_exact(qn_array *array)
{
    return lay_out(array,
                   qn_buffer_new_exact(&array->buffer, qn_array_nbytes(array)));
}

qn_status qn_array_alloc_lasting(qn_array *array)
{
    return lay_out(
        array, qn_buffer_new_lasting(&array->buffer, qn_array_nbytes(array)));
}

void qn_array_set_view(qn_array *array, const qn_array *source,
                       const int64_t *strides, size_t offset)
{
    array->buffer = qn_buffer_ref(source->buffer);
    array->offset = offset;
    if (array->ndim)
        memcpy(array->strides, strides, (size_t)array->ndim * sizeof *strides);
    qn_array_update_flags(array);
}

void qn_array_share(qn_array *array, const qn_array *source)
{
    array->buffer = qn_buffer_ref(source->buffer);
    array->offset = source->offset;
    if (array->ndim)
        memcpy(array->strides, source->strides,
               (size_t)array->ndim * sizeof *array->strides);
    array->contiguous = source->contiguous;
    array->row_contiguous = source->row_contiguous;
    array->col_contiguous = source->col_contiguous;
}

void qn_row_strides(int64_t *strides, const int *shape, int ndim)
{
    /* Unsigned: beside a dimension of 0 the product may wrap, and nobody then
     * follows the strides. */
    uint64_t stride = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        strides[i] = (int64_t)stride;
        stride *= (uint64_t)shape[i];
    }
}

/* True when the dimensions, taken in some order, nest without gaps. */
static bool nests(const qn_array *a)
{
    uint32_t left = 0;
    for (int i = 0; i < a->ndim; i++)
        if (a->shape[i] > 1)
            left |= (uint32_t)1 << i;
    for (uint64_t stride = 1; left;) {
        int i = 0;
        while (i < a->ndim &&
               !(left >> i & 1 && (uint64_t)a->strides[i] == stride))
            i++;
        if (i == a->ndim)
            return false;
        left &= ~((uint32_t)1 << i);
        stride *= (uint64_t)a->shape[i];
    }
    return true;
}

void qn_array_update_flags(qn_array *array)
{
    bool row = true, col = true;
    if (array->size) {
        uint64_t stride = 1;
        for (int i = array->ndim - 1; i >= 0 && row; i--) {
            row = array->shape[i] == 1 || (uint64_t)array->strides[i] == stride;
            stride *= (uint64_t)array->shape[i];
        }
        stride = 1;
        for (int i = 0; i < array->ndim && col; i++) {
            col = array->shape[i] == 1 || (uint64_t)array->strides[i] == stride;
            stride *= (uint64_t)array->shape[i];
        }
    }
    array->row_contiguous = row;
    array->col_contiguous = col;
    array->contiguous = row || col || nests(array);
}
