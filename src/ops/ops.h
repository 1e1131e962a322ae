/* ops.h: op numbers, the info table, and the builders.
 *
 * A builder checks arguments, promotes and broadcasts operands, and adds
 * nodes; it touches no element.  Outputs come first; inputs are borrowed; on
 * success the caller owns *out, on error it is untouched and qn_fail has
 * recorded a sentence that begins with the op's name in brackets. */
#ifndef QN_OPS_OPS_H
#define QN_OPS_OPS_H

#include "core/node.h"

typedef enum qn_op {
#define QN_UNARY(id, ...) QN_OP_##id,
#define QN_BINARY(id, ...) QN_OP_##id,
#define QN_REDUCE(id, ...) QN_OP_##id,
#define QN_SCAN(id, ...) QN_OP_##id,
#define QN_PRIM(id, ...) QN_OP_##id,
#include "ops.def"
    QN_OP_COUNT
} qn_op;

typedef enum qn_op_family {
    QN_FAMILY_UNARY,
    QN_FAMILY_BINARY,
    QN_FAMILY_REDUCE,
    QN_FAMILY_SCAN,
    QN_FAMILY_PRIM
} qn_op_family;

typedef enum qn_op_types {
    QN_TYPES_NUM,
    QN_TYPES_ORD,
    QN_TYPES_REAL,
    QN_TYPES_FLOAT,
    QN_TYPES_RFLOAT,
    QN_TYPES_BITS,
    QN_TYPES_INT,
    QN_TYPES_BOOL,
    QN_TYPES_ANY
} qn_op_types;

typedef enum qn_op_result {
    QN_RESULT_SAME,
    QN_RESULT_BOOL,
    QN_RESULT_REALPART
} qn_op_result;

typedef struct qn_op_info {
    const char *id;   /* "ADD" */
    const char *name; /* "add" */
    qn_op_family family;
    qn_op_types types; /* regular families */
    qn_op_result result;
    int inputs; /* -1: any number */
    const char *doc;
} qn_op_info;

/* Entry `op` of the table, 0 <= op < QN_OP_COUNT. */
const qn_op_info *qn_op_info_of(int op);

/* ---- regular families ---- */

qn_status qn_op_unary(qn_array **out, qn_op op, qn_array *x, qn_stream *s);
qn_status qn_op_binary(qn_array **out, qn_op op, qn_array *a, qn_array *b,
                       qn_stream *s);
/* axes: naxes distinct axes, negative ones count from the end; NULL: all. */
qn_status qn_op_reduce(qn_array **out, qn_op op, qn_array *x, const int *axes,
                       int naxes, bool keepdims, qn_stream *s);
qn_status qn_op_scan(qn_array **out, qn_op op, qn_array *x, int axis,
                     bool reverse, bool inclusive, qn_stream *s);

#endif
