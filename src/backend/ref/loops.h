/* loops.h: what the files of the reference backend share: the loop of each
 * operation, and the tables of loops that ops.def expands to. */
#ifndef QN_BACKEND_REF_LOOPS_H
#define QN_BACKEND_REF_LOOPS_H

#include "core/node.h"
#include "ops/ops.h"
#include "ops/params.h"

#include "backend/common/plan.h"

/* ---- one function per family, and one per primitive: qn_ref_<name> ---- */

qn_status qn_ref_unary(qn_node *node);
qn_status qn_ref_binary(qn_node *node);
qn_status qn_ref_reduce(qn_node *node);
qn_status qn_ref_scan(qn_node *node);
#define QN_PRIM(id, name, ...) qn_status qn_ref_##name(qn_node *node);
#include "ops/ops.def"

/* ---- element by element ---- */

/* n values (stage.h) in, n values out, all contiguous.  `out` may be the
 * same place as an input. */
typedef void (*qn_ref_kernel)(size_t n, void *out, const void *const *in);

/* Makes the output of `node` from its first `ninputs` inputs, which have the
 * output's shape: storage (donated where that is right), plan, staging. */
qn_status qn_ref_map(qn_node *node, qn_ref_kernel kernel, int ninputs);
/* The same with the output's storage given. arrays: output, inputs. */
void qn_ref_map_arrays(const qn_array *const *arrays, int n,
                       qn_ref_kernel kernel);

/* The loop of an operation on operands of this dtype; NULL: none. */
qn_ref_kernel qn_ref_unary_kernel(qn_op op, qn_dtype dtype);
/* Of a choice between values of this dtype. */
qn_ref_kernel qn_ref_where_kernel(qn_dtype dtype);
qn_ref_kernel qn_ref_binary_kernel(qn_op op, qn_dtype dtype);
/* One run of it: out = a op b, all of `dtype`, which is also the result's. */
typedef struct qn_ref_run_operand {
    void *at;
    int64_t step;
} qn_ref_run_operand;
void qn_ref_map_run(qn_ref_kernel kernel, qn_dtype dtype, size_t n,
                    qn_ref_run_operand out, qn_ref_run_operand a,
                    qn_ref_run_operand b);

/* ---- copies ---- */

/* Row-major elements of `source` to the row-major `target` (qn_copy_fn). */
qn_status qn_ref_copy_to(qn_array *target, const qn_array *source);
/* n elements of `size` bytes; steps in elements. */
void qn_ref_copy_run(void *to, int64_t to_step, const void *from,
                     int64_t from_step, size_t n, size_t size);

/* Elements of a common shape, wherever they lie. */
typedef struct qn_ref_window {
    void *at; /* the first element */
    const int64_t *strides;
} qn_ref_window;
/* to = from, or to = to op from, in row-major order. */
void qn_ref_combine_window(qn_combine combine, qn_dtype dtype, qn_ref_window to,
                           qn_ref_window from, const int *shape, int ndim);
/* One run of that. */
void qn_ref_combine_run(qn_combine combine, qn_dtype dtype, size_t n,
                        qn_ref_run_operand to, qn_ref_run_operand from);
/* `out` becomes what `source` is, over its storage where that can be donated:
 * for operations that replace some elements. */
qn_status qn_ref_start_from(qn_array *out, qn_array *source);

/* ---- ranges ---- */

/* The elements of an ARANGE node, row-major, into storage that is there. */
void qn_ref_fill_range(qn_array *out, const qn_arange_params *p);

/* ---- sums ---- */

/* Sum of a[i] * b[i] in float: partial sums in lanes and blocks, in an order
 * that depends on n alone. */
float qn_ref_dot(const float *a, const float *b, size_t n);

/* Where the matrix of x is that element number `place` of `indices` names
 * (GATHER_MM, GATHER_QMM); QN_E_ARG for one outside. */
qn_status qn_ref_matrix_at(int64_t *out, const char *op, const qn_array *x,
                           const qn_array *indices, int64_t place);

/* The same for the packed matrix, its scales and its biases (at the scales'
 * place where there are none) of a GATHER_QMM node. */
qn_status qn_ref_packed_at(int64_t at[3], const qn_node *node,
                           const qn_array *indices, int64_t place);

/* Rows first .. first + count - 1 of a REQUANTIZE node whose output has its
 * storage; `row` has room for one. */
void qn_ref_requantize_lines(const qn_node *node, size_t first, size_t count,
                             float *row);

/* The places of a segment (SEGMENTED_MM), whose first number is element
 * `place` of `segments` and whose second is `step` behind: *end is *first where
 * it holds nothing.  QN_E_ARG for one that leaves 0 .. most. */
qn_status qn_ref_segment(int64_t *first, int64_t *end, const qn_array *segments,
                         int64_t place, int64_t step, int64_t most);

/* ---- scans ---- */

/* Whether there is a loop for the node's type. */
bool qn_ref_scan_takes(const qn_node *node);
/* Lines first .. first + count - 1 of a scan whose output has its storage and
 * whose axis is not empty. */
void qn_ref_scan_lines(const qn_node *node, size_t first, size_t count);

/* ---- Hadamard matrices ---- */

/* Lines first .. first + count - 1 of a HADAMARD node whose output has its
 * storage; `line` has room for one, as doubles. */
void qn_ref_hadamard_lines(const qn_node *node, size_t first, size_t count,
                           void *line);

/* ---- custom kernels ---- */

/* Runs the function of a KERNEL node: storage for the outputs, their first
 * values, the call.  `scratch` is the calling thread's; `parallel` as in
 * ops/kernel.h. */
qn_status qn_ref_kernel_run(
    qn_node *node, void *scratch,
    void (*parallel)(void *ctx, size_t n,
                     void (*fn)(void *arg, size_t i, void *scratch), void *arg),
    void *ctx);

/* Refuses a dtype that `node` has no loop for. */
qn_status qn_ref_unsupported(const qn_node *node, qn_dtype dtype);

/* ---- types of loops ---- */

/* M(dtype, stored type, type of x, type of the real part, ...) for each type
 * of a class of ops.def.  Half types use the loops of float32.  Bool is in
 * every class that has integers. */
/* clang-format off */
#define QN_EACH_BOOL(M, ...)                                                   \
    M(BOOL, uint8_t, bool, uint8_t, __VA_ARGS__)
#define QN_EACH_INT(M, ...)                                                    \
    M(UINT8, uint8_t, uint8_t, uint8_t, __VA_ARGS__)                           \
    M(UINT16, uint16_t, uint16_t, uint16_t, __VA_ARGS__)                       \
    M(UINT32, uint32_t, uint32_t, uint32_t, __VA_ARGS__)                       \
    M(UINT64, uint64_t, uint64_t, uint64_t, __VA_ARGS__)                       \
    M(INT8, int8_t, int8_t, int8_t, __VA_ARGS__)                               \
    M(INT16, int16_t, int16_t, int16_t, __VA_ARGS__)                           \
    M(INT32, int32_t, int32_t, int32_t, __VA_ARGS__)                           \
    M(INT64, int64_t, int64_t, int64_t, __VA_ARGS__)
#define QN_EACH_RFLOAT(M, ...)                                                 \
    M(FLOAT32, float, float, float, __VA_ARGS__)                               \
    M(FLOAT64, double, double, double, __VA_ARGS__)
#define QN_EACH_COMPLEX(M, ...)                                                \
    M(COMPLEX64, qn_complex64, qn_complex64, float, __VA_ARGS__)
#define QN_EACH_BITS(M, ...)                                                   \
    QN_EACH_BOOL(M, __VA_ARGS__) QN_EACH_INT(M, __VA_ARGS__)
#define QN_EACH_FLOAT(M, ...)                                                  \
    QN_EACH_RFLOAT(M, __VA_ARGS__) QN_EACH_COMPLEX(M, __VA_ARGS__)
#define QN_EACH_REAL(M, ...)                                                   \
    QN_EACH_BITS(M, __VA_ARGS__) QN_EACH_RFLOAT(M, __VA_ARGS__)
#define QN_EACH_NUM(M, ...)                                                    \
    QN_EACH_REAL(M, __VA_ARGS__) QN_EACH_COMPLEX(M, __VA_ARGS__)
#define QN_EACH_ORD QN_EACH_NUM
#define QN_EACH_ANY QN_EACH_NUM
/* clang-format on */

/* The stored type of a result column of ops.def. */
#define QN_STORED_SAME(S, P) S
#define QN_STORED_BOOL(S, P) uint8_t
#define QN_STORED_REALPART(S, P) P

#endif
