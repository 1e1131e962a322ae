/* casts.h: conversions between element types, as the reference makes them
 * (backend/ref/stage.h, qn_wide_store).  Half types are values: as an operand
 * float, as a result the float that rounds to what the operand itself would
 * round to (their own conversions from and to float32 are those of `map`). */
#ifndef QN_CPU_CASTS_H
#define QN_CPU_CASTS_H

#include "backend/ref/loops.h"
#include "base/cpu.h"

typedef struct qn_casts_kernel {
    /* [from][to]; NULL for half types as operands. */
    qn_ref_kernel cast[QN_DTYPE_COUNT][QN_DTYPE_COUNT];
} qn_casts_kernel;

/* The best loop that this processor has. */
qn_ref_kernel qn_casts_pick(qn_dtype from, qn_dtype to);
/* The loops of one level, NULL when it is not built in or not supported. */
const qn_casts_kernel *qn_casts_at(qn_isa isa);

#define QN_CASTS(isa, name) extern const qn_casts_kernel name;
#include "kernels.def"
#undef QN_CASTS

#endif
