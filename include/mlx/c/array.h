/* Arrays: element types, creation from host data, properties, access to the
 * elements.
 *
 * An array has a shape, a dtype and strides, and is either evaluated, with
 * storage, or a node of the graph. Arrays never change; operations make new
 * ones, which may share storage. */
#ifndef MLX_C_ARRAY_H
#define MLX_C_ARRAY_H

#include "mlx/c/half.h"
#include "mlx/c/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* Element types. complex64 is two float32, the real part first. */
typedef enum mlx_dtype_ {
    MLX_BOOL = 0,
    MLX_UINT8 = 1,
    MLX_UINT16 = 2,
    MLX_UINT32 = 3,
    MLX_UINT64 = 4,
    MLX_INT8 = 5,
    MLX_INT16 = 6,
    MLX_INT32 = 7,
    MLX_INT64 = 8,
    MLX_FLOAT16 = 9,
    MLX_FLOAT32 = 10,
    MLX_FLOAT64 = 11,
    MLX_BFLOAT16 = 12,
    MLX_COMPLEX64 = 13
} mlx_dtype;

#if defined(__GNUC__)
__extension__ typedef float _Complex mlx_complex64_t;
#else
typedef float _Complex mlx_complex64_t;
#endif

/* No array, for optional arguments. Each source file has its own; leave it as
 * it is. */
static MLX_C_MAYBE_UNUSED mlx_array mlx_array_empty;

/* --- Creation and assignment ---------------------------------------------- */

/* A handle without an array (NULL ctx), ready to be a result. */
mlx_array mlx_array_new(void);

/* Gives up the caller's reference. */
int mlx_array_free(mlx_array arr);

/* Arrays without dimensions that hold val, of the dtype in the name:
 * mlx_array_new_int makes int32, _float is _float32 and _double is _float64,
 * _complex makes complex64. */
mlx_array mlx_array_new_bool(bool val);
mlx_array mlx_array_new_int(int val);
mlx_array mlx_array_new_float32(float val);
mlx_array mlx_array_new_float(float val);
mlx_array mlx_array_new_float64(double val);
mlx_array mlx_array_new_double(double val);
mlx_array mlx_array_new_complex(float real_val, float imag_val);

/* An array of dim dimensions with the sizes in shape, its elements copied from
 * data, which is in row-major order. */
mlx_array mlx_array_new_data(const void *data, const int *shape, int dim,
                             mlx_dtype dtype);

/* As mlx_array_new_data, but data is handed over: the library may use it in
 * place, and calls dtor once when the storage is no longer needed, possibly on
 * another thread and possibly before this call returns. dtor gets data, or
 * payload in the _payload form. */
mlx_array mlx_array_new_data_managed(void *data, const int *shape, int dim,
                                     mlx_dtype dtype, void (*dtor)(void *));
mlx_array mlx_array_new_data_managed_payload(void *data, const int *shape,
                                             int dim, mlx_dtype dtype,
                                             void *payload,
                                             void (*dtor)(void *));

/* Makes *arr refer to the array of src. */
int mlx_array_set(mlx_array *arr, const mlx_array src);

/* Make *arr what the mlx_array_new function of the same ending would make. */
int mlx_array_set_bool(mlx_array *arr, bool val);
int mlx_array_set_int(mlx_array *arr, int val);
int mlx_array_set_float32(mlx_array *arr, float val);
int mlx_array_set_float(mlx_array *arr, float val);
int mlx_array_set_float64(mlx_array *arr, double val);
int mlx_array_set_double(mlx_array *arr, double val);
int mlx_array_set_complex(mlx_array *arr, float real_val, float imag_val);
int mlx_array_set_data(mlx_array *arr, const void *data, const int *shape,
                       int dim, mlx_dtype dtype);

/* --- Properties: known without evaluation, strides apart ------------------ */

/* Bytes of one element of dtype. */
size_t mlx_dtype_size(mlx_dtype dtype);

/* Bytes of one element, number of elements, bytes of all elements, number of
 * dimensions. */
size_t mlx_array_itemsize(const mlx_array arr);
size_t mlx_array_size(const mlx_array arr);
size_t mlx_array_nbytes(const mlx_array arr);
size_t mlx_array_ndim(const mlx_array arr);

/* The sizes of the dimensions, one int each. Borrowed from arr. */
const int *mlx_array_shape(const mlx_array arr);

/* The strides, one 64-bit count of elements for each dimension; read them as
 * signed, for they may be negative, or 0 where a dimension is broadcast. They
 * are settled once the array is evaluated. Borrowed from arr. */
const size_t *mlx_array_strides(const mlx_array arr);

/* The size of dimension dim; a negative dim counts from the end. */
int mlx_array_dim(const mlx_array arr, int dim);

/* The element type. */
mlx_dtype mlx_array_dtype(const mlx_array arr);

/* Evaluates arr and writes it as text, "array(VALUES, dtype=NAME)", into *str.
 * A dimension longer than 6 is abridged to its first and last 3 entries. */
int mlx_array_tostring(mlx_string *str, const mlx_array arr);

/* --- Evaluation and elements ---------------------------------------------- */

/* Computes arr and waits for it. */
int mlx_array_eval(mlx_array arr);

/* Evaluate arr, which must have exactly one element in any number of
 * dimensions, and store that element in *res. The dtype of arr must be the one
 * named. */
int mlx_array_item_bool(bool *res, const mlx_array arr);
int mlx_array_item_uint8(uint8_t *res, const mlx_array arr);
int mlx_array_item_uint16(uint16_t *res, const mlx_array arr);
int mlx_array_item_uint32(uint32_t *res, const mlx_array arr);
int mlx_array_item_uint64(uint64_t *res, const mlx_array arr);
int mlx_array_item_int8(int8_t *res, const mlx_array arr);
int mlx_array_item_int16(int16_t *res, const mlx_array arr);
int mlx_array_item_int32(int32_t *res, const mlx_array arr);
int mlx_array_item_int64(int64_t *res, const mlx_array arr);
int mlx_array_item_float16(mlx_float16_t *res, const mlx_array arr);
int mlx_array_item_bfloat16(mlx_bfloat16_t *res, const mlx_array arr);
int mlx_array_item_float32(float *res, const mlx_array arr);
int mlx_array_item_float64(double *res, const mlx_array arr);
int mlx_array_item_complex64(mlx_complex64_t *res, const mlx_array arr);

/* The elements of an evaluated array: the address of the one with all indices
 * 0, from which the strides lead to the rest. NULL if arr is not evaluated. The
 * dtype of arr must be the one named. Borrowed from arr. */
const bool *mlx_array_data_bool(const mlx_array arr);
const uint8_t *mlx_array_data_uint8(const mlx_array arr);
const uint16_t *mlx_array_data_uint16(const mlx_array arr);
const uint32_t *mlx_array_data_uint32(const mlx_array arr);
const uint64_t *mlx_array_data_uint64(const mlx_array arr);
const int8_t *mlx_array_data_int8(const mlx_array arr);
const int16_t *mlx_array_data_int16(const mlx_array arr);
const int32_t *mlx_array_data_int32(const mlx_array arr);
const int64_t *mlx_array_data_int64(const mlx_array arr);
const mlx_float16_t *mlx_array_data_float16(const mlx_array arr);
const mlx_bfloat16_t *mlx_array_data_bfloat16(const mlx_array arr);
const float *mlx_array_data_float32(const mlx_array arr);
const double *mlx_array_data_float64(const mlx_array arr);
const mlx_complex64_t *mlx_array_data_complex64(const mlx_array arr);

/* --- State of the storage ------------------------------------------------- */

/* Whether arr is computed, so that its data can be read without waiting. */
int _mlx_array_is_available(bool *res, const mlx_array arr);

/* Waits until arr, whose evaluation has been started, is computed. */
int _mlx_array_wait(const mlx_array arr);

/* Whether the elements of an evaluated array fill one stretch of storage
 * without gaps, in any order; in row-major order; in column-major order. */
int _mlx_array_is_contiguous(bool *res, const mlx_array arr);
int _mlx_array_is_row_contiguous(bool *res, const mlx_array arr);
int _mlx_array_is_col_contiguous(bool *res, const mlx_array arr);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
