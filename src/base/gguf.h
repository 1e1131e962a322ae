/* gguf.h: the header of a GGUF file (versions 2 and 3, little-endian),
 * without arrays.  Source: the format's published specification; limits and
 * checks as in the runtime specification 3: tensor and key counts <= 1e6,
 * strings <= 64 MiB, no arrays in arrays, at most 4 dimensions, alignment a
 * power of two >= 8, booleans 0 or 1, no duplicate keys or tensor names and no
 * NUL in them, rows of whole blocks, every tensor inside the file and on the
 * alignment.  Violations are QN_E_FORMAT; other versions, tensor types that
 * are not in the table and arrays in arrays are QN_E_UNSUPPORTED. */
#ifndef QN_BASE_GGUF_H
#define QN_BASE_GGUF_H

#include "bytes.h"
#include "status.h"

typedef enum qn_gguf_value_type {
    QN_GGUF_U8,
    QN_GGUF_I8,
    QN_GGUF_U16,
    QN_GGUF_I16,
    QN_GGUF_U32,
    QN_GGUF_I32,
    QN_GGUF_F32,
    QN_GGUF_BOOL,
    QN_GGUF_STRING,
    QN_GGUF_ARRAY,
    QN_GGUF_U64,
    QN_GGUF_I64,
    QN_GGUF_F64
} qn_gguf_value_type;

/* Tensor types: id, block bytes, block elements (the numbers of the format). */
#define QN_GGUF_TYPES(X)                                                       \
    X(F32, 0, 4, 1)                                                            \
    X(F16, 1, 2, 1)                                                            \
    X(Q4_0, 2, 18, 32)                                                         \
    X(Q4_1, 3, 20, 32)                                                         \
    X(Q5_0, 6, 22, 32)                                                         \
    X(Q5_1, 7, 24, 32)                                                         \
    X(Q8_0, 8, 34, 32)                                                         \
    X(Q8_1, 9, 36, 32)                                                         \
    X(Q2_K, 10, 84, 256)                                                       \
    X(Q3_K, 11, 110, 256)                                                      \
    X(Q4_K, 12, 144, 256)                                                      \
    X(Q5_K, 13, 176, 256)                                                      \
    X(Q6_K, 14, 210, 256)                                                      \
    X(Q8_K, 15, 292, 256)                                                      \
    X(IQ2_XXS, 16, 66, 256)                                                    \
    X(IQ2_XS, 17, 74, 256)                                                     \
    X(IQ3_XXS, 18, 98, 256)                                                    \
    X(IQ1_S, 19, 50, 256)                                                      \
    X(IQ4_NL, 20, 18, 32)                                                      \
    X(IQ3_S, 21, 110, 256)                                                     \
    X(IQ2_S, 22, 82, 256)                                                      \
    X(IQ4_XS, 23, 136, 256)                                                    \
    X(I8, 24, 1, 1)                                                            \
    X(I16, 25, 2, 1)                                                           \
    X(I32, 26, 4, 1)                                                           \
    X(I64, 27, 8, 1)                                                           \
    X(F64, 28, 8, 1)                                                           \
    X(IQ1_M, 29, 56, 256)                                                      \
    X(BF16, 30, 2, 1)                                                          \
    X(TQ1_0, 34, 54, 256)                                                      \
    X(TQ2_0, 35, 66, 256)                                                      \
    X(MXFP4, 39, 17, 32)

typedef enum qn_gguf_type {
#define QN_X(name, id, bytes, elements) QN_GGUF_##name##_T = id,
    QN_GGUF_TYPES(QN_X)
#undef QN_X
} qn_gguf_type;

typedef struct qn_gguf_value {
    qn_gguf_value_type type;
    union {
        uint64_t u64; /* U8 U16 U32 U64 BOOL */
        int64_t i64;  /* I8 I16 I32 I64 */
        double f64;   /* F32 F64 */
        qn_str str;
        struct {
            qn_gguf_value_type item; /* never ARRAY */
            size_t count;
            /* Numbers: the packed little-endian items.  Strings: use
             * qn_gguf_array_str. */
            const uint8_t *data;
            const qn_str *strs;
        } array;
    } as;
} qn_gguf_value;

typedef struct qn_gguf_tensor {
    qn_str name;
    qn_gguf_type type;
    int ndim;         /* 0..4 */
    uint64_t dims[4]; /* fastest first, as in the file; unused ones are 1 */
    uint64_t elements;
    qn_bytes data; /* inside the file; size follows from type and dims */
} qn_gguf_tensor;

typedef struct qn_gguf qn_gguf;

/* Parses the front of `file` (borrowed; it must outlive *out).  On success
 * the caller owns *out (qn_gguf_free); on error it is untouched. */
qn_status qn_gguf_parse(qn_gguf **out, qn_bytes file);
void qn_gguf_free(qn_gguf *gguf);
/* For a file that comes piece by piece: bytes of its front that have to be
 * there before more can be said.  At most front.size when the header is whole,
 * or wrong, which qn_gguf_parse tells. */
uint64_t qn_gguf_front_need(qn_bytes front);
int qn_gguf_version(const qn_gguf *gguf);

size_t qn_gguf_key_count(const qn_gguf *gguf);
qn_str qn_gguf_key_at(const qn_gguf *gguf, size_t i);
const qn_gguf_value *qn_gguf_value_at(const qn_gguf *gguf, size_t i);
/* NULL when absent. */
const qn_gguf_value *qn_gguf_get(const qn_gguf *gguf, const char *key);

/* Typed reads.  Absent: QN_E_NOTFOUND without touching *out; another type or
 * out of range: QN_E_FORMAT naming key, expected and found.  Any integer type
 * serves for an integer, and any number for a float. */
qn_status qn_gguf_get_int(const qn_gguf *gguf, const char *key, int64_t *out);
qn_status qn_gguf_get_float(const qn_gguf *gguf, const char *key, double *out);
qn_status qn_gguf_get_bool(const qn_gguf *gguf, const char *key, bool *out);
qn_status qn_gguf_get_str(const qn_gguf *gguf, const char *key, qn_str *out);
/* Item i (below the count) of an array of numbers as a double, of integers or
 * booleans as an integer (a U64 above INT64_MAX wraps), of strings. */
double qn_gguf_array_float(const qn_gguf_value *array, size_t i);
int64_t qn_gguf_array_int(const qn_gguf_value *array, size_t i);
qn_str qn_gguf_array_str(const qn_gguf_value *array, size_t i);

size_t qn_gguf_tensor_count(const qn_gguf *gguf);
const qn_gguf_tensor *qn_gguf_tensor_at(const qn_gguf *gguf, size_t i);
const qn_gguf_tensor *qn_gguf_find(const qn_gguf *gguf, qn_str name);
/* "Q4_1"; NULL for an id that is not in the table. */
const char *qn_gguf_type_name(int type);
/* Bytes and elements of a block; false for an unknown id. */
bool qn_gguf_type_block(int type, size_t *bytes, size_t *elements);

#endif
