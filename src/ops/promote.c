/* promote.c: the table of mixed types, and what each class of rows accepts. */
#include "promote.h"

/* clang-format off */
#define B QN_BOOL
#define U8 QN_UINT8
#define U16 QN_UINT16
#define U32 QN_UINT32
#define U64 QN_UINT64
#define I8 QN_INT8
#define I16 QN_INT16
#define I32 QN_INT32
#define I64 QN_INT64
#define H QN_FLOAT16
#define F QN_FLOAT32
#define D QN_FLOAT64
#define BF QN_BFLOAT16
#define C QN_COMPLEX64

/* Rows and columns in the order of qn_dtype; symmetric. */
static const unsigned char table[QN_DTYPE_COUNT][QN_DTYPE_COUNT] = {
    /*        B    U8   U16  U32  U64  I8   I16  I32  I64  H  F  D  BF  C */
    [B]   = {B,   U8,  U16, U32, U64, I8,  I16, I32, I64, H, F, D, BF, C},
    [U8]  = {U8,  U8,  U16, U32, U64, I16, I16, I32, I64, H, F, D, BF, C},
    [U16] = {U16, U16, U16, U32, U64, I32, I32, I32, I64, H, F, D, BF, C},
    [U32] = {U32, U32, U32, U32, U64, I64, I64, I64, I64, H, F, D, BF, C},
    [U64] = {U64, U64, U64, U64, U64, F,   F,   F,   F,   H, F, D, BF, C},
    [I8]  = {I8,  I16, I32, I64, F,   I8,  I16, I32, I64, H, F, D, BF, C},
    [I16] = {I16, I16, I32, I64, F,   I16, I16, I32, I64, H, F, D, BF, C},
    [I32] = {I32, I32, I32, I64, F,   I32, I32, I32, I64, H, F, D, BF, C},
    [I64] = {I64, I64, I64, I64, F,   I64, I64, I64, I64, H, F, D, BF, C},
    [H]   = {H,   H,   H,   H,   H,   H,   H,   H,   H,   H, F, D, F,  C},
    [F]   = {F,   F,   F,   F,   F,   F,   F,   F,   F,   F, F, D, F,  C},
    [D]   = {D,   D,   D,   D,   D,   D,   D,   D,   D,   D, D, D, D,  C},
    [BF]  = {BF,  BF,  BF,  BF,  BF,  BF,  BF,  BF,  BF,  F, F, D, BF, C},
    [C]   = {C,   C,   C,   C,   C,   C,   C,   C,   C,   C, C, C, C,  C},
};
/* clang-format on */

qn_dtype qn_promote(qn_dtype a, qn_dtype b)
{
    return (qn_dtype)table[a][b];
}

qn_status qn_operand_type(qn_dtype *out, const qn_op_info *info, qn_dtype d)
{
    qn_kind kind = qn_dtype_kind(d);
    switch (info->types) {
    case QN_TYPES_NUM:
    case QN_TYPES_ORD:
    case QN_TYPES_ANY:
        *out = d;
        return QN_OK;
    case QN_TYPES_REAL:
        if (kind == QN_KIND_COMPLEX)
            break;
        *out = d;
        return QN_OK;
    case QN_TYPES_FLOAT:
        *out = qn_promote_float(d);
        return QN_OK;
    case QN_TYPES_RFLOAT:
        if (kind == QN_KIND_COMPLEX)
            break;
        *out = qn_promote_float(d);
        return QN_OK;
    case QN_TYPES_BITS:
    case QN_TYPES_INT:
        if (kind == QN_KIND_FLOAT || kind == QN_KIND_COMPLEX)
            return qn_fail(QN_E_ARG,
                           "[%s] Only integers and bool are allowed, but the "
                           "operands have type %s.",
                           info->name, qn_dtype_name(d));
        *out = d == QN_BOOL && info->types == QN_TYPES_INT ? QN_UINT8 : d;
        return QN_OK;
    case QN_TYPES_BOOL:
        *out = QN_BOOL;
        return QN_OK;
    }
    return qn_fail(QN_E_ARG, "[%s] Not supported for %s.", info->name,
                   qn_dtype_name(d));
}
