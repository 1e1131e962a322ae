/* promote.h: result types of mixed operands.
 *
 * Bool yields to every type.  Among integers of one signedness the wider
 * wins; unsigned with signed gives a signed type that holds both, or float32
 * when there is none (uint64).  A float wins over integers and bool; float16
 * and bfloat16 meet in float32; float64 wins over all reals and complex64
 * over everything.  Arrays without dimensions count like any other. */
#ifndef QN_OPS_PROMOTE_H
#define QN_OPS_PROMOTE_H

#include "ops.h"

qn_dtype qn_promote(qn_dtype a, qn_dtype b);

/* `d` if it is a float or complex, else float32. */
static inline qn_dtype qn_promote_float(qn_dtype d)
{
    return d == QN_COMPLEX64 || qn_dtype_is_float(d) ? d : QN_FLOAT32;
}

/* The type in which a regular op computes on operands of promoted type `d`
 * (the `types` column of ops.def).  QN_E_ARG when the op refuses it. */
qn_status qn_operand_type(qn_dtype *out, const qn_op_info *info, qn_dtype d);

/* The type of the op's result for operands of type `operand`. */
static inline qn_dtype qn_result_type(const qn_op_info *info, qn_dtype operand)
{
    switch (info->result) {
    case QN_RESULT_BOOL:
        return QN_BOOL;
    case QN_RESULT_REALPART:
        return operand == QN_COMPLEX64 ? QN_FLOAT32 : operand;
    case QN_RESULT_SAME:
        break;
    }
    return operand;
}

#endif
