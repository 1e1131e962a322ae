/* scan.c: running sums, products, maxima, minima, log-sum-exps along an axis.
 *
 * From one element to the next in the array's own type, rounding at each step:
 * what a scan gives does not depend on how it is cut into pieces.  An inclusive
 * scan begins with the first element itself, an exclusive one with the
 * identity, to which the first is then added (0 + -0 is 0).  Each loop reads an
 * element before it writes the one in its place, so the input may be
 * donated. */
#include "loops.h"
#include "stage.h"

#include "backend/common/output.h"
#include "base/f16.h"
#include "ops/params.h"
#include "ops/scalar.h"

#include <float.h>

/* n elements; steps in elements, negative for a reverse scan. */
typedef void (*scan_fn)(size_t n, void *out, int64_t out_step, const void *in,
                        int64_t in_step, bool inclusive);

#define SAME(x) (x)

/* Stored types with their way in and out. */
/* clang-format off */
#define EACH_INTEGER(X, ...)                                                   \
    X(UINT8, u8, uint8_t, uint8_t, SAME, SAME, 0, UINT8_MAX, __VA_ARGS__)      \
    X(UINT16, u16, uint16_t, uint16_t, SAME, SAME, 0, UINT16_MAX, __VA_ARGS__) \
    X(UINT32, u32, uint32_t, uint32_t, SAME, SAME, 0, UINT32_MAX, __VA_ARGS__) \
    X(UINT64, u64, uint64_t, uint64_t, SAME, SAME, 0, UINT64_MAX, __VA_ARGS__) \
    X(INT8, i8, int8_t, int8_t, SAME, SAME, INT8_MIN, INT8_MAX, __VA_ARGS__)   \
    X(INT16, i16, int16_t, int16_t, SAME, SAME, INT16_MIN, INT16_MAX,          \
      __VA_ARGS__)                                                             \
    X(INT32, i32, int32_t, int32_t, SAME, SAME, INT32_MIN, INT32_MAX,          \
      __VA_ARGS__)                                                             \
    X(INT64, i64, int64_t, int64_t, SAME, SAME, INT64_MIN, INT64_MAX,          \
      __VA_ARGS__)
#define EACH_FLOAT(X, ...)                                                     \
    X(FLOAT16, f32, uint16_t, float, qn_f16_to_f32, qn_f32_to_f16, -INFINITY,  \
      INFINITY, __VA_ARGS__)                                                   \
    X(BFLOAT16, f32, uint16_t, float, qn_bf16_to_f32, qn_f32_to_bf16,          \
      -INFINITY, INFINITY, __VA_ARGS__)                                        \
    X(FLOAT32, f32, float, float, SAME, SAME, -INFINITY, INFINITY,             \
      __VA_ARGS__)                                                             \
    X(FLOAT64, f64, double, double, SAME, SAME, -INFINITY, INFINITY,           \
      __VA_ARGS__)
/* The order of complex numbers is that of (real, imaginary). */
#define EACH_COMPLEX(X, ...)                                                   \
    X(COMPLEX64, c64, qn_complex64, qn_complex64, SAME, SAME,                  \
      qn_complex64_of(-INFINITY, -INFINITY),                                   \
      qn_complex64_of(INFINITY, INFINITY), __VA_ARGS__)
#define EACH_COMPLEX_LOG(X, ...)                                               \
    X(COMPLEX64, c64, qn_complex64, qn_complex64, SAME, SAME,                  \
      qn_complex64_of(-INFINITY, 0), qn_complex64_of(INFINITY, 0), __VA_ARGS__)
#define EACH_BOOL(X, ...)                                                      \
    X(BOOL, bool, uint8_t, bool, 0 !=, SAME, false, true, __VA_ARGS__)
#define EACH_NUMBER(X, ...)                                                    \
    EACH_BOOL(X, __VA_ARGS__) EACH_INTEGER(X, __VA_ARGS__)                     \
    EACH_FLOAT(X, __VA_ARGS__) EACH_COMPLEX(X, __VA_ARGS__)

/* operation, element function, identity from (lowest, highest) */
#define LOW(low, high) low
#define HIGH(low, high) high
#define ZERO(low, high) 0
#define UNIT(low, high) 1
#define EACH_SCAN(X)                                                           \
    EACH_NUMBER(X, CUMMAX, max, LOW)                                           \
    EACH_NUMBER(X, CUMMIN, min, HIGH)                                          \
    EACH_NUMBER(X, CUMPROD, mul, UNIT)                                         \
    EACH_NUMBER(X, CUMSUM, add, ZERO)                                          \
    EACH_FLOAT(X, LOGCUMSUMEXP, logaddexp, LOW)                                \
    EACH_COMPLEX_LOG(X, LOGCUMSUMEXP, logaddexp, LOW)
/* clang-format on */

#define LOOP(dtype, S, T, C, load, store, low, high, op, function, identity)   \
    static void op##_##dtype(size_t n, void *out, int64_t out_step,            \
                             const void *in, int64_t in_step, bool inclusive)  \
    {                                                                          \
        const T *from = in;                                                    \
        T *to = out;                                                           \
        C acc = identity(low, high);                                           \
        for (size_t i = 0; i < n; i++) {                                       \
            C x = load(*from);                                                 \
            bool first = inclusive && i == 0;                                  \
            C sum = first ? x : qn_##function##_##S(acc, x);                   \
            T rounded = store(sum);                                            \
            *to = inclusive ? rounded : store(acc);                            \
            acc = load(rounded);                                               \
            from += in_step;                                                   \
            to += out_step;                                                    \
        }                                                                      \
    }
EACH_SCAN(LOOP)

#define ENTRY(dtype, S, T, C, load, store, low, high, op, function, identity)  \
    [QN_SCAN_##op][QN_##dtype] = op##_##dtype,
static const scan_fn scans[QN_SCAN_COUNT][QN_DTYPE_COUNT] = {EACH_SCAN(ENTRY)};

void qn_ref_scan_lines(const qn_node *node, size_t first, size_t count)
{
    const qn_scan_params *p = node->params;
    const qn_array *in = node->inputs[0], *out = node->outputs[0];
    scan_fn scan = scans[qn_op_info_of(node->op)->place][in->dtype];
    qn_lines lines;
    qn_lines_make(&lines, in->shape, in->ndim, p->axis,
                  (const int64_t *[]){out->strides, in->strides}, 2);
    size_t n = (size_t)in->shape[p->axis];
    int64_t out_step = lines.step[0], in_step = lines.step[1];
    int64_t last = p->reverse ? (int64_t)n - 1 : 0;
    qn_walk walk;
    for (qn_walk_start(&walk, &lines.outer, first, count); walk.left;
         qn_walk_next(&walk))
        scan(n, qn_element(out, walk.offsets[0] + last * out_step),
             p->reverse ? -out_step : out_step,
             qn_element(in, walk.offsets[1] + last * in_step),
             p->reverse ? -in_step : in_step, p->inclusive);
}

bool qn_ref_scan_takes(const qn_node *node)
{
    return scans[qn_op_info_of(node->op)->place][node->inputs[0]->dtype] !=
           NULL;
}

qn_status qn_ref_scan(qn_node *node)
{
    const qn_scan_params *p = node->params;
    const qn_array *in = node->inputs[0];
    if (!qn_ref_scan_takes(node))
        return qn_ref_unsupported(node, in->dtype);
    qn_status status = qn_output_reuse(node->outputs[0], node->inputs, 1);
    if (!status && in->size)
        qn_ref_scan_lines(node, 0, in->size / (size_t)in->shape[p->axis]);
    return status;
}
