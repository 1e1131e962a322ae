/* stage.h: elements in the form that the loops compute in.
 *
 * Loops see short contiguous blocks.  What is strided, a scalar, or of a half
 * type is first staged in a block on the stack; what already is contiguous is
 * used where it lies.  Three forms:
 *
 *   value  the array's own type, half types as float, bool as uint8_t
 *   wide   the type that sums are formed in: int64_t (bool and integers),
 *          uint64_t (uint64), double (floats), double _Complex (complex64)
 *   key    a uint64_t whose order is the element's: -0 equals 0, and a NaN
 *          is QN_KEY_NAN, after everything else
 *
 * All steps count elements of `dtype`. */
#ifndef QN_BACKEND_REF_STAGE_H
#define QN_BACKEND_REF_STAGE_H

#include "core/array.h"

enum { QN_BLOCK = 256 }; /* elements in a block */

/* A block of any form. */
typedef union qn_block {
    double _Complex align;
    char bytes[QN_BLOCK * sizeof(double _Complex)];
} qn_block;

/* The dtype in whose C type values of `dtype` are computed: float32 for the
 * half types, else the same. */
static inline qn_dtype qn_value_dtype(qn_dtype dtype)
{
    bool half = dtype == QN_FLOAT16 || dtype == QN_BFLOAT16;
    return half ? QN_FLOAT32 : dtype;
}

/* True when `n` values at this step can be used where they lie. */
static inline bool qn_value_direct(qn_dtype dtype, int64_t step)
{
    return step == 1 && qn_value_dtype(dtype) == dtype;
}

/* n values into `block`, of any length. */
void qn_values_load(void *block, qn_dtype dtype, const void *from, int64_t step,
                    size_t n);
void qn_values_store(void *to, qn_dtype dtype, int64_t step, const void *block,
                     size_t n);

typedef enum qn_wide {
    QN_WIDE_INT,
    QN_WIDE_UINT,
    QN_WIDE_FLOAT,
    QN_WIDE_COMPLEX
} qn_wide;

qn_wide qn_wide_of(qn_dtype dtype);
void qn_wide_load(void *block, qn_dtype dtype, const void *from, int64_t step,
                  size_t n);
/* Converts to `dtype`.  Floats become integers by truncation, beyond 64 bits
 * by saturation, and are then cut to the type's width; a NaN becomes 0, but
 * true as bool.  Complex numbers lose their imaginary part.  Rounding happens
 * once, to nearest even. */
void qn_wide_store(void *to, qn_dtype dtype, int64_t step, const void *block,
                   qn_wide wide, size_t n);

/* float values of any real floating dtype (float64 rounds), and back. */
void qn_floats_load(float *block, qn_dtype dtype, const void *from,
                    int64_t step, size_t n);
void qn_floats_store(void *to, qn_dtype dtype, int64_t step, const float *block,
                     size_t n);

#define QN_KEY_NAN UINT64_MAX
void qn_keys_load(uint64_t *keys, qn_dtype dtype, const void *from,
                  int64_t step, size_t n);

/* Element number `offset` of an array's storage. */
static inline void *qn_element(const qn_array *array, int64_t offset)
{
    int64_t bytes = offset * (int64_t)qn_array_itemsize(array);
    return (char *)qn_array_data(array) + bytes;
}

/* An element of any integer type; what int64_t cannot hold saturates. */
int64_t qn_integer_at(qn_dtype dtype, const void *at);

#endif
