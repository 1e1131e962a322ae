/* mlxfn.h: the bytes of a file of exported functions, and its primitives.
 *
 * The format is that of MLX 0.32.2 (mlx/export.cpp, and files that it wrote):
 * values one after the other, little-endian, without padding; a list is its
 * length (uint64) and its items; bool is a byte; an enumeration an int32; a
 * text is a list of bytes; a shape a list of int32; a dtype its number (int32,
 * as in core/dtype.h) and its size in bytes (uint8).
 *
 *   text     version of the writer       int32  number of functions
 *   bool     shapeless                   text   metadata
 *   each function:
 *     list of texts    keywords; their inputs are the last ones
 *     list of uint64   ids of the inputs
 *     list of arrays   shape and dtype of each input
 *     list of uint64   ids of the outputs
 *     uint64           number of entries, each:
 *       uint64 id      bool is it computed?
 *       computed:      list of uint64, ids of the inputs; stream: int32 index,
 *                      int32 device type (0 CPU, 1 GPU), int32 device index;
 *                      text, name of the primitive; its state (mlxfn.def);
 *                      uint64 number of further outputs; if 0: shape, dtype;
 *                      else for all outputs a list each of ids, shapes, dtypes
 *       else:          bool is it a constant? if one whose id comes for the
 *                      first time in the file: shape, dtype, elements in
 *                      row-major order; else nothing: it is an input, or known
 */
#ifndef QN_TRANSFORM_MLXFN_H
#define QN_TRANSFORM_MLXFN_H

#include "core/array.h"
#include "core/stream.h"
#include "ops/scope.h"

#include "base/buf.h"

#define QN_MLXFN_VERSION "0.32.2"

/* ---- primitives ---- */

typedef enum qn_mlxfn_prim {
#define QN_MLXFN(name, state, least, most, read, op) QN_MLXFN_##name,
#include "mlxfn.def"
    QN_MLXFN_COUNT
} qn_mlxfn_prim;

/* Places where an array is split may be more than its dimensions. */
enum { QN_MLXFN_FIELDS = 7, QN_MLXFN_LIST = 256 };

/* One member of a state: a number, a real number, or a list. */
typedef struct qn_mlxfn_field {
    int64_t i; /* b i z D */
    double d;  /* f d */
    int count; /* I L Z s */
    int64_t list[QN_MLXFN_LIST];
} qn_mlxfn_field;

typedef struct qn_mlxfn_info {
    const char *name, *state;
    int least, most; /* inputs; most may be -1: any number */
    int op;
} qn_mlxfn_info;

const qn_mlxfn_info *qn_mlxfn_info_of(qn_mlxfn_prim prim);
/* QN_MLXFN_COUNT when there is none. */
qn_mlxfn_prim qn_mlxfn_find(qn_str name);

/* ---- writing; failures stay in the buffer ---- */

void qn_mlxfn_put_u64(qn_buf *buf, uint64_t value);
void qn_mlxfn_put_i32(qn_buf *buf, int32_t value);
void qn_mlxfn_put_bool(qn_buf *buf, bool value);
void qn_mlxfn_put_text(qn_buf *buf, qn_str text);
void qn_mlxfn_put_dtype(qn_buf *buf, qn_dtype dtype);
void qn_mlxfn_put_shape(qn_buf *buf, const int *shape, int ndim);
void qn_mlxfn_put_stream(qn_buf *buf, const qn_stream *stream);
void qn_mlxfn_put_state(qn_buf *buf, qn_mlxfn_prim prim,
                        const qn_mlxfn_field *fields);

/* ---- reading ---- */

/* A place in a file's bytes.  After the first failure, which is recorded, all
 * that is read is 0 and empty. */
typedef struct qn_mlxfn_reader {
    qn_bytes bytes;
    size_t at;
    qn_status status;
} qn_mlxfn_reader;

typedef struct qn_mlxfn_type {
    qn_dtype dtype;
    qn_dims dims;
} qn_mlxfn_type;

/* Records a failure at the present place, unless there is one already. */
void qn_mlxfn_refuse(qn_mlxfn_reader *r, const char *expected);
uint64_t qn_mlxfn_u64(qn_mlxfn_reader *r);
int32_t qn_mlxfn_i32(qn_mlxfn_reader *r);
bool qn_mlxfn_bool(qn_mlxfn_reader *r);
qn_str qn_mlxfn_text(qn_mlxfn_reader *r);
qn_dtype qn_mlxfn_dtype(qn_mlxfn_reader *r);
void qn_mlxfn_shape(qn_mlxfn_reader *r, qn_dims *out);
/* The length of a list whose items take at least `least` bytes each: the file
 * has room for them. */
size_t qn_mlxfn_length(qn_mlxfn_reader *r, size_t least);
/* The calling thread's default stream of the device that is named; an error
 * where there is no such device. */
qn_stream *qn_mlxfn_stream(qn_mlxfn_reader *r);
void qn_mlxfn_state(qn_mlxfn_reader *r, qn_mlxfn_prim prim,
                    qn_mlxfn_field *fields);
/* The next `size` bytes. */
const uint8_t *qn_mlxfn_skip(qn_mlxfn_reader *r, size_t size);

/* ---- what primitives mean ---- */

/* A primitive read from a file, to be built. */
typedef struct qn_mlxfn_made {
    qn_scope *c;
    qn_mlxfn_prim prim;
    const qn_mlxfn_field *f; /* its state */
    qn_array *const *in;
    size_t nin;
    const qn_mlxfn_type *like; /* what the file says of the outputs */
    size_t nout;
    qn_array **out; /* held by the scope */
} qn_mlxfn_made;

/* Builds the primitive; the builders check the inputs.  Its outputs are of the
 * types and shapes that the file says. */
void qn_mlxfn_build(qn_mlxfn_made *made);

#endif
