/* ext_forms.h: functions of quern/ext.h in both forms: the engine's, and the
 * fallback made of mlx_* calls, which the build compiles into these tests under
 * names with fallback_. */
#ifndef QN_TEST_CAPI_EXT_FORMS_H
#define QN_TEST_CAPI_EXT_FORMS_H

#include "quern/ext.h"

#include <stdlib.h>

int fallback_materialize(mlx_array *res, const mlx_array x, const mlx_stream s);
int fallback_arange(mlx_array *res, double start, double stop, double step,
                    mlx_dtype dtype, const mlx_stream s);
int fallback_arange_cache_clear(void);
int fallback_quantized_matmul_rows(mlx_array *res, const mlx_array x,
                                   const mlx_array w, const mlx_array scales,
                                   const mlx_array biases, int group_size,
                                   int bits, const char *mode,
                                   const mlx_stream s);
int fallback_apply_token_bitmask(mlx_array *res, const mlx_array logits,
                                 const int32_t *words, size_t n_words,
                                 const mlx_stream s);
int fallback_apply_token_bitmask_rows(mlx_array *res, const mlx_array logits,
                                      const int32_t *const *words,
                                      size_t n_rows, size_t words_per_row,
                                      const mlx_stream s);
int fallback_normalized_argmax(mlx_array *res, const mlx_array logits,
                               const mlx_stream s);

typedef struct ext_form {
    const char *name;
    int (*materialize)(mlx_array *, mlx_array, mlx_stream);
    int (*arange)(mlx_array *, double, double, double, mlx_dtype, mlx_stream);
    int (*arange_cache_clear)(void);
    int (*rows)(mlx_array *, mlx_array, mlx_array, mlx_array, mlx_array, int,
                int, const char *, mlx_stream);
    int (*mask)(mlx_array *, mlx_array, const int32_t *, size_t, mlx_stream);
    int (*mask_rows)(mlx_array *, mlx_array, const int32_t *const *, size_t,
                     size_t, mlx_stream);
    int (*argmax)(mlx_array *, mlx_array, mlx_stream);
} ext_form;

enum { EXT_FORMS = 2 };
static const ext_form ext_forms[EXT_FORMS] = {
    {"engine", quern_materialize, quern_arange, quern_arange_cache_clear,
     quern_quantized_matmul_rows, quern_apply_token_bitmask,
     quern_apply_token_bitmask_rows, quern_normalized_argmax},
    {"fallback", fallback_materialize, fallback_arange,
     fallback_arange_cache_clear, fallback_quantized_matmul_rows,
     fallback_apply_token_bitmask, fallback_apply_token_bitmask_rows,
     fallback_normalized_argmax}};

/* ---- for tests of both ---- */

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
