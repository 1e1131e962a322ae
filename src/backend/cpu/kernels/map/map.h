/* map.h: operations on each element by itself, in float, and conversions
 * from and to the half types.
 *
 * Operands are contiguous, or one element that stands for all (step 0).  The
 * output may be the same place as an operand that steps and has its element
 * size.  An element's bits do not depend on its place. */
#ifndef QN_CPU_MAP_H
#define QN_CPU_MAP_H

#include "base/cpu.h"
#include "core/dtype.h"
#include "ops/ops.h"

#include <stddef.h>
#include <stdint.h>

enum { QN_MAP_F32, QN_MAP_F16, QN_MAP_BF16, QN_MAP_TYPES };

/* The index of a dtype in the tables, -1 for those without. */
static inline int qn_map_type(qn_dtype dtype)
{
    return dtype == QN_FLOAT32    ? QN_MAP_F32
           : dtype == QN_FLOAT16  ? QN_MAP_F16
           : dtype == QN_BFLOAT16 ? QN_MAP_BF16
                                  : -1;
}

typedef void (*qn_map_unary)(float *out, const float *x, size_t n);
/* Steps are 0 or 1. */
typedef void (*qn_map_binary)(float *out, const float *a, const float *b,
                              size_t n, int a_step, int b_step);
typedef void (*qn_map_compare)(uint8_t *out, const float *a, const float *b,
                               size_t n, int a_step, int b_step);
typedef void (*qn_map_convert)(void *out, const void *x, size_t n);
typedef void (*qn_map_select)(void *out, const uint8_t *condition,
                              const void *x, const void *y, size_t n,
                              int x_step, int y_step);

typedef struct qn_map_kernel {
    /* NULL where there is none. */
    qn_map_unary unary[QN_OP_COUNT];
    qn_map_binary binary[QN_OP_COUNT];
    qn_map_compare compare[QN_OP_COUNT];
    qn_map_convert convert[QN_MAP_TYPES][QN_MAP_TYPES]; /* [from][to] */
    qn_map_select select[4]; /* elements of 1, 2, 4, 8 bytes */
    /* Copies past the caches; done for other threads once `fence` returns.  Any
     * alignment of `out`; `in` is in the caches. */
    void (*stream)(void *out, const void *in, size_t bytes);
    void (*fence)(void);
} qn_map_kernel;

/* What an element of an operation costs beside a copy; 0: no kernel. */
int qn_map_work(qn_op op);

/* The best kernel that this processor has. */
const qn_map_kernel *qn_map_pick(void);
/* The kernel of one level, NULL when it is not built in or not supported. */
const qn_map_kernel *qn_map_at(qn_isa isa);

#define QN_MAP(isa, name) extern const qn_map_kernel name;
#include "kernels.def"
#undef QN_MAP

#endif
