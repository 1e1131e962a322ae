/* arrays.h: arrays of random numbers, and their comparison to the bit. */
#ifndef QN_TEST_CAPI_ARRAYS_H
#define QN_TEST_CAPI_ARRAYS_H

#include "capi.h"

#include <stdlib.h>

static mlx_stream stream;

static inline size_t active_bytes(void)
{
    size_t bytes = 0;
    check_ok(mlx_get_active_memory(&bytes));
    return bytes;
}

/* Row-major elements of `x`, evaluated; *held keeps them. */
static inline const void *elements_of(mlx_array *held, mlx_array x)
{
    *held = mlx_array_new();
    check_ok(mlx_contiguous(held, x, false, stream));
    check_ok(mlx_array_eval(*held));
    return mlx_array_data_uint8(*held);
}

/* One shape, one type, the same bytes. */
static inline void check_same(mlx_array a, mlx_array b)
{
    mlx_array x, y;
    assert_int_equal(mlx_array_dtype(a), mlx_array_dtype(b));
    assert_int_equal(mlx_array_ndim(a), mlx_array_ndim(b));
    for (size_t i = 0; i < mlx_array_ndim(a); i++)
        assert_int_equal(mlx_array_dim(a, (int)i), mlx_array_dim(b, (int)i));
    const void *left = elements_of(&x, a), *right = elements_of(&y, b);
    if (mlx_array_nbytes(x))
        assert_memory_equal(left, right, mlx_array_nbytes(x));
    mlx_array_free(x);
    mlx_array_free(y);
}

/* Numbers between -2 and 2 in a type. */
static inline mlx_array random_array(const int *shape, int ndim,
                                     mlx_dtype dtype, uint32_t seed)
{
    size_t size = 1;
    for (int i = 0; i < ndim; i++)
        size *= (size_t)shape[i];
    float *values = malloc((size + 1) * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < size; i++) {
        seed = seed * 1664525U + 1013904223U;
        values[i] = (float)(seed >> 8) / 4194304.0F - 2;
    }
    mlx_array x = mlx_array_new_data(values, shape, ndim, MLX_FLOAT32);
    free(values);
    check_ok(mlx_astype(&x, x, dtype, stream));
    check_ok(mlx_array_eval(x));
    return x;
}

#endif
