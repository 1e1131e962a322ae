/* safetensors.h: the header of a safetensors file, without arrays.
 *
 * Format: 8-byte little-endian header length N (2 <= N <= 100 MB), N bytes
 * of JSON beginning with '{', then the data.  Source: the format's published
 * description; checks as in the runtime specification 1.2: begin <= end <=
 * data size, no overlap, no hole, size = product of shape and element size,
 * no duplicate names (nor NUL in them), known dtype.  Violations are
 * QN_E_FORMAT, an unknown dtype QN_E_UNSUPPORTED. */
#ifndef QN_BASE_SAFETENSORS_H
#define QN_BASE_SAFETENSORS_H

#include "bytes.h"
#include "status.h"

typedef enum qn_st_dtype {
    QN_ST_BOOL,
    QN_ST_U8,
    QN_ST_I8,
    QN_ST_U16,
    QN_ST_I16,
    QN_ST_F16,
    QN_ST_BF16,
    QN_ST_U32,
    QN_ST_I32,
    QN_ST_F32,
    QN_ST_U64,
    QN_ST_I64,
    QN_ST_F64,
    QN_ST_F8_E4M3,
    QN_ST_F8_E5M2,
    QN_ST_F8_E8M0,
    QN_ST_C64
} qn_st_dtype;

typedef struct qn_st_tensor {
    qn_str name;
    qn_st_dtype dtype;
    int ndim;
    const int64_t *shape;
    size_t offset; /* of the data in the file */
    qn_bytes data; /* inside the file; a NULL pointer after qn_st_parse_front */
} qn_st_tensor;

typedef struct qn_st qn_st;

/* Parses the index at the front of `file` (borrowed; it must outlive *out).
 * On success the caller owns *out (qn_st_free); on error it is untouched. */
qn_status qn_st_parse(qn_st **out, qn_bytes file);

/* For a file that is not in memory: the size of its front (the length and the
 * header), by its first 8 bytes and the size of the whole. */
enum { QN_ST_PREFIX = 8 };
qn_status qn_st_front_size(size_t *out, const uint8_t *prefix,
                           size_t file_size);
/* qn_st_parse for the front of a file of `file_size` bytes. */
qn_status qn_st_parse_front(qn_st **out, qn_bytes front, size_t file_size);
void qn_st_free(qn_st *st);
size_t qn_st_count(const qn_st *st);
/* Tensor i in the order of the header. */
const qn_st_tensor *qn_st_at(const qn_st *st, size_t i);
const qn_st_tensor *qn_st_find(const qn_st *st, qn_str name);
size_t qn_st_metadata_count(const qn_st *st);
void qn_st_metadata_at(const qn_st *st, size_t i, qn_str *key, qn_str *value);
const char *qn_st_dtype_name(qn_st_dtype dtype);
size_t qn_st_dtype_size(qn_st_dtype dtype);

#endif
