/* stage.c: conversions between stored elements and what loops compute in.
 * One small loop per stored type and form. */
#include "stage.h"

#include "base/f16.h"
#include "ops/scalar.h"

/* X(dtype, stored type, wide type) of every type that is its own value. */
#define EACH_INTEGER(X)                                                        \
    X(UINT8, uint8_t, int64_t)                                                 \
    X(UINT16, uint16_t, int64_t)                                               \
    X(UINT32, uint32_t, int64_t)                                               \
    X(UINT64, uint64_t, uint64_t)                                              \
    X(INT8, int8_t, int64_t)                                                   \
    X(INT16, int16_t, int64_t)                                                 \
    X(INT32, int32_t, int64_t)                                                 \
    X(INT64, int64_t, int64_t)

/* Of any type: complex64 is only aligned to its parts. */
typedef struct eight_bytes {
    uint32_t parts[2];
} eight_bytes;

/* `value` is computed for each p, the place of an element. */
#define FOR_EACH(T, C, value)                                                  \
    do {                                                                       \
        const T *p = from;                                                     \
        C *block_ = block;                                                     \
        for (size_t i = 0; i < n; i++, p += step)                              \
            block_[i] = (value);                                               \
    } while (0)

/* A contiguous loop of its own is one that compilers vectorise. */
#define LOAD_VALUES(T, C, value)                                               \
    do {                                                                       \
        if (step == 1) {                                                       \
            const T *all = from;                                               \
            C *block_ = block;                                                 \
            for (size_t i = 0; i < n; i++) {                                   \
                const T *p = all + i;                                          \
                block_[i] = (value);                                           \
            }                                                                  \
        } else                                                                 \
            FOR_EACH(T, C, value);                                             \
    } while (0)

void qn_values_load(void *block, qn_dtype dtype, const void *from, int64_t step,
                    size_t n)
{
    if (dtype == QN_FLOAT16) {
        LOAD_VALUES(uint16_t, float, qn_f16_to_f32(*p));
        return;
    }
    if (dtype == QN_BFLOAT16) {
        LOAD_VALUES(uint16_t, float, qn_bf16_to_f32(*p));
        return;
    }
    size_t size = qn_dtype_size(dtype);
    if (step == 1) {
        memcpy(block, from, n * size);
        return;
    }
    switch (size) {
    case 1:
        FOR_EACH(uint8_t, uint8_t, *p);
        break;
    case 2:
        FOR_EACH(uint16_t, uint16_t, *p);
        break;
    case 4:
        FOR_EACH(uint32_t, uint32_t, *p);
        break;
    default:
        FOR_EACH(eight_bytes, eight_bytes, *p);
        break;
    }
}

#define STORE(T, C, value)                                                     \
    do {                                                                       \
        const C *x = block;                                                    \
        T *p = to;                                                             \
        for (size_t i = 0; i < n; i++, x++, p += step)                         \
            *p = (value);                                                      \
    } while (0)

void qn_values_store(void *to, qn_dtype dtype, int64_t step, const void *block,
                     size_t n)
{
    if (dtype == QN_FLOAT16) {
        STORE(uint16_t, float, qn_f32_to_f16(*x));
        return;
    }
    if (dtype == QN_BFLOAT16) {
        STORE(uint16_t, float, qn_f32_to_bf16(*x));
        return;
    }
    size_t size = qn_dtype_size(dtype);
    if (step == 1) {
        memcpy(to, block, n * size);
        return;
    }
    switch (size) {
    case 1:
        STORE(uint8_t, uint8_t, *x);
        break;
    case 2:
        STORE(uint16_t, uint16_t, *x);
        break;
    case 4:
        STORE(uint32_t, uint32_t, *x);
        break;
    default:
        STORE(eight_bytes, eight_bytes, *x);
        break;
    }
}

qn_wide qn_wide_of(qn_dtype dtype)
{
    switch (qn_dtype_kind(dtype)) {
    case QN_KIND_FLOAT:
        return QN_WIDE_FLOAT;
    case QN_KIND_COMPLEX:
        return QN_WIDE_COMPLEX;
    default:
        return dtype == QN_UINT64 ? QN_WIDE_UINT : QN_WIDE_INT;
    }
}

void qn_wide_load(void *block, qn_dtype dtype, const void *from, int64_t step,
                  size_t n)
{
    switch (dtype) {
#define X(id, T, W)                                                            \
    case QN_##id:                                                              \
        FOR_EACH(T, W, *p);                                                    \
        break;
        EACH_INTEGER(X)
        X(FLOAT32, float, double)
        X(FLOAT64, double, double)
        X(COMPLEX64, qn_complex64, double _Complex)
#undef X
    case QN_BOOL:
        FOR_EACH(uint8_t, int64_t, *p != 0);
        break;
    case QN_FLOAT16:
        FOR_EACH(uint16_t, double, qn_f16_to_f32(*p));
        break;
    case QN_BFLOAT16:
        FOR_EACH(uint16_t, double, qn_bf16_to_f32(*p));
        break;
    case QN_DTYPE_COUNT:
        break;
    }
}

/* A float from which rounding to a shorter type gives what rounding `x` itself
 * would: where it is not exact, its last bit is set (rounding to odd). */
static float odd_float(double x)
{
    float near = (float)x;
    if ((double)near == x || isnan(x) || isinf(near))
        return near;
    uint32_t bits = qn_float_bits(near);
    if (fabs((double)near) > fabs(x))
        bits--; /* towards zero */
    return qn_bits_float(bits | 1);
}

/* Likewise for integers that double cannot hold. */
static double odd_double(uint64_t size, bool negative)
{
    if (size >> 53)
        size = (size & ~(uint64_t)0x7ff) | ((size & 0x7ff) != 0) << 11;
    return negative ? -(double)size : (double)size;
}

static float odd_float_of_int(int64_t x)
{
    uint64_t size = x < 0 ? 0 - (uint64_t)x : (uint64_t)x;
    return odd_float(odd_double(size, x < 0));
}

static int64_t int_of_float(double x)
{
    if (!(x > -0x1p63))
        return isnan(x) ? 0 : INT64_MIN;
    return x < 0x1p63 ? (int64_t)x : INT64_MAX;
}

static uint64_t uint_of_float(double x)
{
    if (x >= 0x1p64)
        return UINT64_MAX;
    return x >= 0x1p63 ? (uint64_t)x : (uint64_t)int_of_float(x);
}

static void store_int(void *to, qn_dtype dtype, int64_t step, const void *block,
                      size_t n)
{
    switch (dtype) {
#define X(id, T, W)                                                            \
    case QN_##id:                                                              \
        STORE(T, int64_t, (T)*x);                                              \
        break;
        EACH_INTEGER(X)
        X(FLOAT32, float, double)
        X(FLOAT64, double, double)
#undef X
    case QN_BOOL:
        STORE(uint8_t, int64_t, *x != 0);
        break;
    case QN_FLOAT16:
        STORE(uint16_t, int64_t, qn_f32_to_f16(odd_float_of_int(*x)));
        break;
    case QN_BFLOAT16:
        STORE(uint16_t, int64_t, qn_f32_to_bf16(odd_float_of_int(*x)));
        break;
    case QN_COMPLEX64:
        STORE(qn_complex64, int64_t, qn_complex64_of((float)*x, 0));
        break;
    case QN_DTYPE_COUNT:
        break;
    }
}

static void store_uint(void *to, qn_dtype dtype, int64_t step,
                       const void *block, size_t n)
{
    switch (dtype) {
#define X(id, T, W)                                                            \
    case QN_##id:                                                              \
        STORE(T, uint64_t, (T)*x);                                             \
        break;
        EACH_INTEGER(X)
        X(FLOAT32, float, double)
        X(FLOAT64, double, double)
#undef X
    case QN_BOOL:
        STORE(uint8_t, uint64_t, *x != 0);
        break;
    case QN_FLOAT16:
        STORE(uint16_t, uint64_t,
              qn_f32_to_f16(odd_float(odd_double(*x, false))));
        break;
    case QN_BFLOAT16:
        STORE(uint16_t, uint64_t,
              qn_f32_to_bf16(odd_float(odd_double(*x, false))));
        break;
    case QN_COMPLEX64:
        STORE(qn_complex64, uint64_t, qn_complex64_of((float)*x, 0));
        break;
    case QN_DTYPE_COUNT:
        break;
    }
}

static void store_float(void *to, qn_dtype dtype, int64_t step,
                        const void *block, size_t n)
{
    switch (dtype) {
#define X(id, T, W)                                                            \
    case QN_##id:                                                              \
        STORE(T, double, (T)INT_FROM_##id(*x));                                \
        break;
#define INT_FROM_UINT8 int_of_float
#define INT_FROM_UINT16 int_of_float
#define INT_FROM_UINT32 int_of_float
#define INT_FROM_UINT64 uint_of_float
#define INT_FROM_INT8 int_of_float
#define INT_FROM_INT16 int_of_float
#define INT_FROM_INT32 int_of_float
#define INT_FROM_INT64 int_of_float
        EACH_INTEGER(X)
#undef X
    case QN_BOOL:
        STORE(uint8_t, double, *x != 0);
        break;
    case QN_FLOAT16:
        STORE(uint16_t, double, qn_f32_to_f16(odd_float(*x)));
        break;
    case QN_BFLOAT16:
        STORE(uint16_t, double, qn_f32_to_bf16(odd_float(*x)));
        break;
    case QN_FLOAT32:
        STORE(float, double, (float)*x);
        break;
    case QN_FLOAT64:
        STORE(double, double, *x);
        break;
    case QN_COMPLEX64:
        STORE(qn_complex64, double, qn_complex64_of((float)*x, 0));
        break;
    case QN_DTYPE_COUNT:
        break;
    }
}

static void store_complex(void *to, qn_dtype dtype, int64_t step,
                          const void *block, size_t n)
{
    if (dtype == QN_COMPLEX64) {
        STORE(qn_complex64, double _Complex, (qn_complex64)*x);
        return;
    }
    if (dtype == QN_BOOL) {
        STORE(uint8_t, double _Complex, *x != 0);
        return;
    }
    const double _Complex *from = block;
    for (size_t i = 0; i < n; i++) {
        double re = creal(from[i]);
        store_float(to, dtype, 1, &re, 1);
        to = (char *)to + step * (int64_t)qn_dtype_size(dtype);
    }
}

void qn_wide_store(void *to, qn_dtype dtype, int64_t step, const void *block,
                   qn_wide wide, size_t n)
{
    switch (wide) {
    case QN_WIDE_INT:
        store_int(to, dtype, step, block, n);
        break;
    case QN_WIDE_UINT:
        store_uint(to, dtype, step, block, n);
        break;
    case QN_WIDE_FLOAT:
        store_float(to, dtype, step, block, n);
        break;
    case QN_WIDE_COMPLEX:
        store_complex(to, dtype, step, block, n);
        break;
    }
}

void qn_floats_load(float *block, qn_dtype dtype, const void *from,
                    int64_t step, size_t n)
{
    if (dtype == QN_FLOAT64)
        FOR_EACH(double, float, (float)*p);
    else
        qn_values_load(block, dtype, from, step, n);
}

void qn_floats_store(void *to, qn_dtype dtype, int64_t step, const float *block,
                     size_t n)
{
    if (dtype == QN_FLOAT64)
        STORE(double, float, *x);
    else
        qn_values_store(to, dtype, step, block, n);
}

/* Negative floats in reverse, then the positive ones. */
static uint64_t key_of_float(float x)
{
    if (isnan(x))
        return QN_KEY_NAN;
    uint32_t bits = qn_float_bits(x + 0.0f); /* -0 becomes 0 */
    return bits >> 31 ? (uint32_t)~bits : bits | 0x80000000u;
}

static uint64_t key_of_double(double x)
{
    if (isnan(x))
        return QN_KEY_NAN;
    uint64_t bits;
    x += 0.0;
    memcpy(&bits, &x, sizeof bits);
    return bits >> 63 ? ~bits : bits | (uint64_t)1 << 63;
}

static uint64_t key_of_complex(qn_complex64 x)
{
    if (qn_isnan_c64(x))
        return QN_KEY_NAN;
    return key_of_float(crealf(x)) << 32 | key_of_float(cimagf(x));
}

void qn_keys_load(uint64_t *keys, qn_dtype dtype, const void *from,
                  int64_t step, size_t n)
{
    uint64_t *block = keys;
    const uint64_t flip = (uint64_t)1 << 63;
    switch (dtype) {
    case QN_FLOAT16:
        FOR_EACH(uint16_t, uint64_t, key_of_float(qn_f16_to_f32(*p)));
        break;
    case QN_BFLOAT16:
        FOR_EACH(uint16_t, uint64_t, key_of_float(qn_bf16_to_f32(*p)));
        break;
    case QN_FLOAT32:
        FOR_EACH(float, uint64_t, key_of_float(*p));
        break;
    case QN_FLOAT64:
        FOR_EACH(double, uint64_t, key_of_double(*p));
        break;
    case QN_COMPLEX64:
        FOR_EACH(qn_complex64, uint64_t, key_of_complex(*p));
        break;
    case QN_UINT64:
        FOR_EACH(uint64_t, uint64_t, *p);
        break;
    default:
        qn_wide_load(keys, dtype, from, step, n);
        for (size_t i = 0; i < n; i++)
            keys[i] ^= flip;
        break;
    }
}

int64_t qn_integer_at(qn_dtype dtype, const void *at)
{
    if (dtype == QN_UINT64) {
        uint64_t value;
        memcpy(&value, at, sizeof value);
        return value > INT64_MAX ? INT64_MAX : (int64_t)value;
    }
    qn_block block;
    int64_t value;
    qn_wide_load(&block, dtype, at, 1, 1);
    memcpy(&value, &block, sizeof value);
    return value;
}
