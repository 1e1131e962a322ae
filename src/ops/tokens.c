/* tokens.c: what samplers do with the logits of a whole vocabulary. */
#include "rules.h"

#include <limits.h>
#include <math.h>

static bool is_small_float(qn_dtype type)
{
    return type == QN_FLOAT32 || type == QN_FLOAT16 || type == QN_BFLOAT16;
}

/* ---- token bitmask ---- */

static qn_status check_logits(const qn_array *logits)
{
    static const char op[] = "token_bitmask";
    if (!logits->ndim || !logits->size || logits->size > INT_MAX)
        return qn_fail(QN_E_ARG,
                       "[%s] Expected logits of 1 to %d elements with an axis "
                       "of tokens, found the shape %s.",
                       op, INT_MAX, qn_array_shape_text(logits).text);
    if (!is_small_float(logits->dtype))
        return qn_fail(QN_E_ARG,
                       "[%s] Expected logits of float32, float16 or bfloat16, "
                       "found %s.",
                       op, qn_dtype_name(logits->dtype));
    return QN_OK;
}

qn_status qn_op_token_bitmask(qn_array **out, qn_array *logits, qn_array *words,
                              qn_array *open, qn_stream *s)
{
    qn_status status = check_logits(logits);
    if (status)
        return status;
    int last = logits->ndim - 1;
    size_t masks = (size_t)words->shape[0];
    size_t rows = logits->size / (size_t)logits->shape[last];
    size_t entries = last ? (size_t)logits->shape[0] : 1;
    if (masks != 1 && masks != rows && masks != entries)
        return qn_fail(QN_E_ARG,
                       "[apply_token_bitmask] Expected a mask for each row of "
                       "logits of shape %s, found %zu.",
                       qn_array_shape_text(logits).text, masks);
    qn_array *inputs[] = {logits, words, open};
    return qn_make(out, QN_OP_TOKEN_BITMASK, s, inputs, open ? 3 : 2, NULL, 0,
                   logits->dtype, logits->shape, logits->ndim);
}

void qn_again_token_bitmask(qn_again *a)
{
    qn_array *made = NULL;
    qn_array *open = a->node->ninputs > 2 ? a->in[2] : NULL;
    if (!a->c->status)
        a->out[0] = qn_scope_hold(
            a->c,
            qn_op_token_bitmask(&made, a->in[0], a->in[1], open, a->c->stream),
            &made);
}

/* ---- normalized argmax ---- */

/* Of logits and their log-sum-exps, [..., V] and [..., 1] of one small float
 * type. */
static qn_status argmax_of(qn_array **out, qn_array *logits, qn_array *lse,
                           qn_stream *s)
{
    qn_array *inputs[] = {logits, lse};
    return qn_make(out, QN_OP_NORMALIZED_ARGMAX, s, inputs, 2, NULL, 0,
                   QN_UINT32, logits->shape, logits->ndim - 1);
}

/* The same by ordinary operations, for other types. */
static qn_array *composed(qn_scope *c, qn_array *logits, qn_array *lse)
{
    qn_array *score = sub(c, logits, lse), *made = NULL;
    qn_array *number = binary(c, QN_OP_EQUAL, score, score);
    if (c->status)
        return NULL;
    if (score->dtype != QN_COMPLEX64)
        score = where(c, number, score, scalar_of(c, -INFINITY, score));
    if (c->status)
        return NULL;
    return qn_scope_hold(
        c,
        qn_op_arg_reduce(&made, score, true, score->ndim - 1, false, c->stream),
        &made);
}

qn_status qn_op_normalized_argmax(qn_array **out, qn_array *logits,
                                  qn_stream *s)
{
    if (!logits->ndim || !logits->size)
        return qn_fail(QN_E_ARG,
                       "[normalized_argmax] Expected logits with an axis of "
                       "tokens, found the shape %s.",
                       qn_array_shape_text(logits).text);
    int axis = -1;
    qn_array *lse = NULL, *made = NULL, *y;
    qn_scope c;
    qn_scope_begin(&c, s);
    logits = cast(&c, logits, qn_promote_float(logits->dtype));
    if (!c.status)
        qn_scope_hold(&c, qn_op_logsumexp(&lse, logits, &axis, 1, true, s),
                      &lse);
    if (!c.status && is_small_float(logits->dtype))
        y = qn_scope_hold(&c, argmax_of(&made, logits, lse, s), &made);
    else
        y = c.status ? NULL : composed(&c, logits, lse);
    return qn_scope_end(&c, out, y);
}

void qn_again_normalized_argmax(qn_again *a)
{
    qn_array *made = NULL;
    if (!a->c->status)
        a->out[0] = qn_scope_hold(
            a->c, argmax_of(&made, a->in[0], a->in[1], a->c->stream), &made);
}
