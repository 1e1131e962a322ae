/* scan.c: running combinations along an axis. */
#include "params.h"
#include "scope.h"

qn_status qn_op_scan(qn_array **out, qn_op op, qn_array *x, int axis,
                     bool reverse, bool inclusive, qn_stream *s)
{
    const qn_op_info *info = qn_op_info_of(op);
    qn_scan_params params = {.reverse = reverse, .inclusive = inclusive};
    qn_dtype operand;
    qn_status status = qn_operand_type(&operand, info, x->dtype);
    if (!status)
        status = qn_axis_of(&params.axis, info->name, axis, x->ndim);
    if (status)
        return status;
    /* Alone among the scans, sums of bool count. */
    if (op == QN_OP_CUMSUM && operand == QN_BOOL)
        operand = QN_INT32;
    qn_array *typed = NULL;
    status = qn_op_astype(&typed, x, operand, s);
    if (!status)
        status = qn_make(out, op, s, &typed, 1, &params, sizeof params, operand,
                         x->shape, x->ndim);
    qn_array_unref(typed);
    return status;
}
