/* qn_tq_arrays.h: arrays for tests of the packed KV format through the C API.
 * `stream` and the error handler are those of capi.h. */
#ifndef QN_TEST_SUPPORT_TQ_ARRAYS_H
#define QN_TEST_SUPPORT_TQ_ARRAYS_H

#include "capi/capi.h"

#include "base/f16.h"
#include "base/turboquant.h"

#include "quern/ext.h"

#include <math.h>

static mlx_stream stream;

static inline int tq_setup(void **state)
{
    capi_setup(state);
    stream = mlx_default_cpu_stream_new();
    return 0;
}

static inline int tq_teardown(void **state)
{
    (void)state;
    mlx_stream_free(stream);
    return 0;
}

static inline uint32_t tq_next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 32);
}

/* Nearly normal: the sum of twelve even numbers. */
static inline float tq_normal(uint64_t *seed)
{
    float sum = -6;
    for (int i = 0; i < 12; i++)
        sum += (float)(tq_next(seed) >> 8) * 0x1p-24f;
    return sum;
}

/* [b, h, n, d]: ordinary rows, and rows that are constant, zero, tiny, special
 * or any bits at all, in turn. */
static inline mlx_array tq_random(const int shape[4], uint64_t seed, bool plain,
                                  mlx_dtype dtype)
{
    static const float special[] = {0,    -0.0f,    INFINITY, -INFINITY,
                                    NAN,  1e-45f,   -1e-40f,  3e38f,
                                    1e4f, 65504.0f, 0.5f,     -2};
    int d = shape[3];
    size_t rows = (size_t)shape[0] * (size_t)shape[1] * (size_t)shape[2];
    float *x = malloc(rows * (size_t)d * sizeof *x + 1);
    assert_non_null(x);
    for (size_t i = 0; i < rows * (size_t)d; i++) {
        size_t kind = plain ? 0 : i / (size_t)d % 7;
        uint32_t bits = tq_next(&seed);
        x[i] = tq_normal(&seed);
        if (kind == 1)
            x[i] = 0.5f;
        if (kind == 2)
            x[i] = 0;
        if (kind == 3)
            x[i] *= 1e-6f;
        if (kind == 4)
            x[i] = 3 + 0.02f * x[i];
        if (kind == 5)
            x[i] = special[bits % 12];
        if (kind == 6)
            memcpy(&x[i], &bits, sizeof bits);
    }
    mlx_array wide = mlx_array_new_data(x, shape, 4, MLX_FLOAT32);
    free(x);
    check_ok(mlx_astype(&wide, wide, dtype, stream));
    check_ok(mlx_array_eval(wide));
    return wide;
}

/* Row-major bytes, valid while *held is. */
static inline const uint8_t *tq_bytes(mlx_array *held, mlx_array x)
{
    *held = mlx_array_new();
    check_ok(mlx_contiguous(held, x, false, stream));
    check_ok(mlx_array_eval(*held));
    return mlx_array_data_uint8(*held);
}

static inline bool tq_nan(const uint8_t *p, mlx_dtype dtype)
{
    float x = 0;
    uint16_t h;
    if (dtype == MLX_FLOAT32) {
        memcpy(&x, p, 4);
    } else if (dtype == MLX_FLOAT16) {
        memcpy(&h, p, 2);
        x = qn_f16_to_f32(h);
    }
    return x != x;
}

/* The same shape, dtype and bytes, but any NaN for a NaN of float32 and
 * float16. */
static inline bool tq_same(mlx_array a, mlx_array b)
{
    mlx_array p, q;
    mlx_dtype dtype = mlx_array_dtype(a);
    size_t item = mlx_dtype_size(dtype), size = mlx_array_size(a);
    if (dtype != mlx_array_dtype(b) || mlx_array_ndim(a) != mlx_array_ndim(b) ||
        memcmp(mlx_array_shape(a), mlx_array_shape(b),
               mlx_array_ndim(a) * sizeof(int)))
        return false;
    const uint8_t *x = tq_bytes(&p, a), *y = tq_bytes(&q, b);
    bool same = true;
    for (size_t i = 0; same && i < size; i++, x += item, y += item)
        same = !memcmp(x, y, item) || (tq_nan(x, dtype) && tq_nan(y, dtype));
    mlx_array_free(p);
    mlx_array_free(q);
    return same;
}

#define check_same(a, b) assert_true(tq_same(a, b))

static inline void tq_free(mlx_array *arrays, int n)
{
    while (n--) {
        mlx_array_free(arrays[n]);
        arrays[n] = mlx_array_empty;
    }
}

static inline void tq_unlist(mlx_array out[5], mlx_vector_array planes)
{
    assert_int_equal(mlx_vector_array_size(planes), 5);
    for (size_t i = 0; i < 5; i++) {
        out[i] = mlx_array_new();
        check_ok(mlx_vector_array_get(&out[i], planes, i));
    }
}

static inline size_t tq_active(void)
{
    size_t bytes = 0;
    check_ok(mlx_get_active_memory(&bytes));
    return bytes;
}

#endif
