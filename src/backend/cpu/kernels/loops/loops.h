/* loops.h: the loops of ops.def again, compiled for each instruction set, for
 * the types that those of `map` are not for: integers, bool, float64, and what
 * float32 has no vector form of.  They compute what the reference's do, bit by
 * bit: the expressions are the same. */
#ifndef QN_CPU_LOOPS_H
#define QN_CPU_LOOPS_H

#include "backend/ref/loops.h"
#include "base/cpu.h"

typedef struct qn_loops_kernel {
    /* By the operands' dtype; NULL where the reference's will do. */
    qn_ref_kernel unary[QN_UNARY_COUNT][QN_DTYPE_COUNT];
    qn_ref_kernel binary[QN_BINARY_COUNT][QN_DTYPE_COUNT];
} qn_loops_kernel;

/* The best loop of an operation that this processor has, the reference's
 * included; NULL: none.  Half types have the loops of float32. */
qn_ref_kernel qn_loops_unary(qn_op op, qn_dtype dtype);
qn_ref_kernel qn_loops_binary(qn_op op, qn_dtype dtype);
/* The loops of one level, NULL when it is not built in or not supported. */
const qn_loops_kernel *qn_loops_at(qn_isa isa);

#define QN_LOOPS(isa, name) extern const qn_loops_kernel name;
#include "kernels.def"
#undef QN_LOOPS

#endif
