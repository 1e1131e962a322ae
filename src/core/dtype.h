/* dtype.h: element types, with the numbers of the MLX C API. */
#ifndef QN_CORE_DTYPE_H
#define QN_CORE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>

typedef enum qn_kind {
    QN_KIND_BOOL,
    QN_KIND_UINT,
    QN_KIND_INT,
    QN_KIND_FLOAT,
    QN_KIND_COMPLEX
} qn_kind;

/* id, name, bytes, kind; in MLX's order (mlx_dtype has the same numbers).
 * Half types are 16-bit storage. */
#define QN_DTYPES(X)                                                           \
    X(BOOL, "bool", 1, BOOL)                                                   \
    X(UINT8, "uint8", 1, UINT)                                                 \
    X(UINT16, "uint16", 2, UINT)                                               \
    X(UINT32, "uint32", 4, UINT)                                               \
    X(UINT64, "uint64", 8, UINT)                                               \
    X(INT8, "int8", 1, INT)                                                    \
    X(INT16, "int16", 2, INT)                                                  \
    X(INT32, "int32", 4, INT)                                                  \
    X(INT64, "int64", 8, INT)                                                  \
    X(FLOAT16, "float16", 2, FLOAT)                                            \
    X(FLOAT32, "float32", 4, FLOAT)                                            \
    X(FLOAT64, "float64", 8, FLOAT)                                            \
    X(BFLOAT16, "bfloat16", 2, FLOAT)                                          \
    X(COMPLEX64, "complex64", 8, COMPLEX)

typedef enum qn_dtype {
#define QN_X(id, name, bytes, kind) QN_##id,
    QN_DTYPES(QN_X)
#undef QN_X
        QN_DTYPE_COUNT
} qn_dtype;

size_t qn_dtype_size(qn_dtype dtype);
const char *qn_dtype_name(qn_dtype dtype);
qn_kind qn_dtype_kind(qn_dtype dtype);
static inline bool qn_dtype_is_float(qn_dtype d)
{
    return qn_dtype_kind(d) == QN_KIND_FLOAT;
}
static inline bool qn_dtype_is_integer(qn_dtype d)
{
    return qn_dtype_kind(d) == QN_KIND_INT || qn_dtype_kind(d) == QN_KIND_UINT;
}

#endif
