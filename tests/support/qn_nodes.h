/* qn_nodes.h: arrays and single nodes made by hand, for tests of backends.
 *
 * Builders are passed by: a test states a node's inputs, constants and output
 * as the builder would, and evaluates it with the backend that it registered.
 * Values are given and read as double, whatever the dtype. */
#ifndef QN_TEST_SUPPORT_NODES_H
#define QN_TEST_SUPPORT_NODES_H

#include "qn_test.h"

#include "base/f16.h"
#include "core/eval.h"
#include "ops/ops.h"
#include "ops/params.h"

#include <math.h>

/* A shape and its length: SHAPE(2, 3). */
#define SHAPE(...)                                                             \
    (int[]){__VA_ARGS__}, (int)(sizeof(int[]){__VA_ARGS__} / sizeof(int))
#define SCALAR NULL, 0
#define VALUES(...)                                                            \
    (double[])                                                                 \
    {                                                                          \
        __VA_ARGS__                                                            \
    }

static inline void element_put(void *at, qn_dtype dtype, double value)
{
    switch (dtype) {
    case QN_BOOL:
        *(uint8_t *)at = value != 0;
        break;
    case QN_UINT8:
        *(uint8_t *)at = (uint8_t)value;
        break;
    case QN_UINT16:
        *(uint16_t *)at = (uint16_t)value;
        break;
    case QN_UINT32:
        *(uint32_t *)at = (uint32_t)value;
        break;
    case QN_UINT64:
        *(uint64_t *)at = (uint64_t)value;
        break;
    case QN_INT8:
        *(int8_t *)at = (int8_t)value;
        break;
    case QN_INT16:
        *(int16_t *)at = (int16_t)value;
        break;
    case QN_INT32:
        *(int32_t *)at = (int32_t)value;
        break;
    case QN_INT64:
        *(int64_t *)at = (int64_t)value;
        break;
    case QN_FLOAT16:
        *(uint16_t *)at = qn_f32_to_f16((float)value);
        break;
    case QN_BFLOAT16:
        *(uint16_t *)at = qn_f32_to_bf16((float)value);
        break;
    case QN_FLOAT32:
        *(float *)at = (float)value;
        break;
    case QN_FLOAT64:
        *(double *)at = value;
        break;
    default:
        ((float *)at)[0] = (float)value;
        ((float *)at)[1] = 0;
        break;
    }
}

static inline double element_get(const void *at, qn_dtype dtype)
{
    switch (dtype) {
    case QN_BOOL:
    case QN_UINT8:
        return *(const uint8_t *)at;
    case QN_UINT16:
        return *(const uint16_t *)at;
    case QN_UINT32:
        return *(const uint32_t *)at;
    case QN_UINT64:
        return (double)*(const uint64_t *)at;
    case QN_INT8:
        return *(const int8_t *)at;
    case QN_INT16:
        return *(const int16_t *)at;
    case QN_INT32:
        return *(const int32_t *)at;
    case QN_INT64:
        return (double)*(const int64_t *)at;
    case QN_FLOAT16:
        return (double)qn_f16_to_f32(*(const uint16_t *)at);
    case QN_BFLOAT16:
        return (double)qn_bf16_to_f32(*(const uint16_t *)at);
    case QN_FLOAT64:
        return *(const double *)at;
    default: /* float32; the real part of complex64 */
        return (double)*(const float *)at;
    }
}

/* A READY row-major array; NULL values: zeros. */
static inline qn_array *array_of(qn_dtype dtype, const double *values,
                                 const int *shape, int ndim)
{
    qn_array *a;
    size_t size = 1, each = qn_dtype_size(dtype);
    for (int i = 0; i < ndim; i++)
        size *= (size_t)shape[i];
    char *data = calloc(size ? size : 1, each);
    assert_non_null(data);
    for (size_t i = 0; i < size && values; i++)
        element_put(data + i * each, dtype, values[i]);
    check_status(qn_array_from_data(&a, data, shape, ndim, dtype), QN_OK);
    free(data);
    return a;
}

/* Element number i of a READY array in row-major order. */
static inline void *place_of(const qn_array *a, size_t i)
{
    int64_t offset = 0;
    for (int axis = a->ndim - 1; axis >= 0; axis--) {
        offset += (int64_t)(i % (size_t)a->shape[axis]) * a->strides[axis];
        i /= (size_t)a->shape[axis];
    }
    return (char *)qn_array_data(a) + offset * (int64_t)qn_array_itemsize(a);
}

static inline double item(const qn_array *a, size_t i)
{
    return element_get(place_of(a, i), a->dtype);
}

/* The same elements seen with other strides; keeps `a` alive by its buffer. */
static inline qn_array *view_of(const qn_array *a, const int *shape, int ndim,
                                const int64_t *strides, size_t first)
{
    qn_array *view;
    check_status(qn_array_new(&view, a->dtype, shape, ndim), QN_OK);
    qn_array_set_view(view, a, strides,
                      a->offset + first * qn_array_itemsize(a));
    qn_array_set_ready(view);
    return view;
}

/* `a` with its storage permuted: the same values, not row-contiguous where it
 * has two dimensions longer than 1.  Takes `a` over. */
static inline qn_array *strided(qn_array *a)
{
    int64_t strides[QN_MAX_NDIM], step = 2;
    for (int axis = 0; axis < a->ndim; axis++) {
        strides[axis] = step;
        step *= a->shape[axis];
    }
    size_t each = qn_array_itemsize(a);
    int all[] = {(int)(step ? step : 1)};
    qn_array *room = array_of(a->dtype, NULL, all, 1);
    qn_array *view = view_of(room, a->shape, a->ndim, strides, 0);
    for (size_t i = 0; i < a->size; i++)
        memcpy(place_of(view, i), place_of(a, i), each);
    qn_array_unref(room);
    qn_array_unref(a);
    return view;
}

static inline qn_stream *test_stream(void)
{
    qn_stream *stream;
    check_status(qn_stream_default(&stream, (qn_device){QN_DEVICE_CPU, 0}),
                 QN_OK);
    return stream;
}

/* A node of the registered CPU backend, evaluated: *out is READY on QN_OK. */
static inline qn_status apply_status(qn_array **out, int op, const void *params,
                                     size_t params_size, qn_dtype dtype,
                                     const int *shape, int ndim, int ninputs,
                                     qn_array *const *inputs)
{
    qn_node_spec spec = {.op = op,
                         .stream = test_stream(),
                         .inputs = inputs,
                         .ninputs = ninputs,
                         .params = params,
                         .params_size = params_size};
    qn_status status = qn_node_new(out, &spec, dtype, shape, ndim);
    if (status)
        return status;
    status = qn_eval(out, 1);
    if (status)
        qn_array_unref(*out);
    return status;
}

/* As apply_status, and fails unless that succeeds. INPUTS(a, b) counts. */
#define INPUTS(...)                                                            \
    (int)(sizeof(qn_array *[]){__VA_ARGS__} / sizeof(qn_array *)),             \
        (qn_array *[])                                                         \
    {                                                                          \
        __VA_ARGS__                                                            \
    }

static inline qn_array *apply(int op, const void *params, size_t params_size,
                              qn_dtype dtype, const int *shape, int ndim,
                              int ninputs, qn_array *const *inputs)
{
    qn_array *out;
    check_status(apply_status(&out, op, params, params_size, dtype, shape, ndim,
                              ninputs, inputs),
                 QN_OK);
    return out;
}

/* Equal, NaN to NaN, and the sign of zero too. */
static inline bool same_value(double a, double b)
{
    return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

#define check_items(a, ...)                                                    \
    check_items_at(a, VALUES(__VA_ARGS__),                                     \
                   sizeof(VALUES(__VA_ARGS__)) / sizeof(double), __FILE__,     \
                   __LINE__)

/* The elements are exactly these.  Gives `a` up. */
static inline void check_items_at(qn_array *a, const double *expected, size_t n,
                                  const char *file, int line)
{
    if (a->size != n) {
        print_error("expected %zu elements, found %zu\n", n, a->size);
        _fail(file, line);
    }
    for (size_t i = 0; i < n; i++)
        if (!same_value(item(a, i), expected[i])) {
            print_error("element %zu: expected %.17g, found %.17g\n", i,
                        expected[i], item(a, i));
            _fail(file, line);
        }
    qn_array_unref(a);
}

/* Numbers in [-1, 1) from a seed, the same everywhere. */
static inline double test_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(*seed >> 11) / 0x1p52 - 1;
}

/* An array of such numbers, rounded to the dtype, times `scale`. */
static inline qn_array *random_array(qn_dtype dtype, double scale,
                                     uint64_t seed, const int *shape, int ndim)
{
    qn_array *a = array_of(dtype, NULL, shape, ndim);
    for (size_t i = 0; i < a->size; i++)
        element_put(place_of(a, i), dtype, scale * test_random(&seed));
    return a;
}

#endif
