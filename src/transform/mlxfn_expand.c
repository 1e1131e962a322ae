/* mlxfn_expand.c: small functions over builders, each for an operation that a
 * file of exported functions has no name for. */
#include "mlxfn_expand.h"

#include "ops/params.h"
#include "ops/quant.h"

#define EXPANSION(name) static void expand_##name(qn_mlxfn_expansion *e)

EXPANSION(trunc)
{
    qn_scope *c = e->c;
    qn_array *x = e->in[0];
    qn_array *below = binary(c, QN_OP_LESS, x, scalar_of(c, 0, x));
    e->out = where(c, below, unary(c, QN_OP_CEIL, x), unary(c, QN_OP_FLOOR, x));
}

/* There only complex numbers have parts. */
EXPANSION(real_itself)
{
    qn_array *made = NULL;
    if (!e->c->status)
        e->out = qn_scope_hold(e->c, qn_op_copy(&made, e->in[0], e->c->stream),
                               &made);
}

EXPANSION(imag_of_real)
{
    qn_array *made = NULL;
    if (!e->c->status)
        e->out = qn_scope_hold(
            e->c, qn_op_zeros_like(&made, e->in[0], e->c->stream), &made);
}

EXPANSION(floor_divide)
{
    e->out = unary(e->c, QN_OP_FLOOR, divide(e->c, e->in[0], e->in[1]));
}

EXPANSION(logical_xor)
{
    e->out = binary(e->c, QN_OP_NOT_EQUAL, e->in[0], e->in[1]);
}

EXPANSION(bitwise_invert)
{
    qn_scope *c = e->c;
    qn_array *x = e->in[0], *ones = NULL;
    uint64_t bits = UINT64_MAX;
    if (x->dtype == QN_BOOL) {
        e->out = unary(c, QN_OP_LOGICAL_NOT, x);
        return;
    }
    if (!c->status)
        qn_scope_hold(c, qn_array_from_scalar(&ones, &bits, x->dtype), &ones);
    e->out = binary(c, QN_OP_BITWISE_XOR, x, ones);
}

/* Packed and unpacked. */
EXPANSION(requantize)
{
    qn_scope *c = e->c;
    const qn_quant_params *p = e->node->params;
    const char *mode = qn_packed_mode_name(p->mode);
    qn_array *global = p->has_global_scale ? e->in[1] : NULL;
    qn_array *packed[3] = {NULL}, *made = NULL;
    qn_dtype type = QN_FLOAT32;
    size_t count = 0;
    if (c->status)
        return;
    qn_status status = qn_op_quantize(packed, &count, e->in[0], &p->group_size,
                                      &p->bits, mode, global, c->stream);
    if (status)
        qn_scope_fail(c, status);
    for (size_t i = 0; i < count && !status; i++)
        qn_scope_hold(c, QN_OK, &packed[i]);
    if (!c->status)
        e->out = qn_scope_hold(c,
                               qn_op_dequantize(&made, packed[0], packed[1],
                                                NULL, &p->group_size, &p->bits,
                                                mode, global, &type, c->stream),
                               &made);
}

/* With one axis between the batch and the rows. */
EXPANSION(rope)
{
    qn_scope *c = e->c;
    qn_array *x = e->in[0], *made = NULL;
    const qn_rope_params *p = e->node->params;
    qn_dims four = qn_dims_of(x), was = four;
    int64_t middle = 1;
    for (int i = 1; i < x->ndim - 2; i++)
        middle *= x->shape[i];
    four.ndim = 4;
    four.dim[1] = (int)middle;
    four.dim[2] = x->shape[x->ndim - 2];
    four.dim[3] = x->shape[x->ndim - 1];
    x = reshape(c, x, &four);
    if (!c->status)
        qn_scope_hold(
            c,
            qn_op_rope(&made, x, p->dims, p->traditional,
                       p->has_freqs ? NULL : &p->base, p->scale, p->offset,
                       p->has_offset_array ? e->in[1] : NULL,
                       p->has_freqs ? e->in[1 + p->has_offset_array] : NULL,
                       c->stream),
            &made);
    e->out = reshape(c, made, &was);
}

/* The factor that MLX's primitive has. */
static double own_scale(const qn_fft_params *p, const qn_dims *in,
                        const qn_dims *out)
{
    bool forward = p->form == QN_FFT_FORWARD || p->form == QN_FFT_REAL;
    const qn_dims *lengths = p->form == QN_FFT_TO_REAL ? out : in;
    return forward ? 1 : 1 / (double)lengths->dim[p->axis];
}

EXPANSION(fft)
{
    qn_scope *c = e->c;
    const qn_fft_params *p = e->node->params;
    qn_dims in = qn_dims_of(e->in[0]), out = qn_dims_of(e->was_out[0]);
    double own = own_scale(p, &in, &out);
    int length = (p->form == QN_FFT_TO_REAL ? out : in).dim[p->axis];
    qn_array *y = NULL;
    if (!c->status)
        qn_scope_hold(c,
                      qn_op_fft_axis(&y, e->in[0], p->axis, p->form, own,
                                     length, c->stream),
                      &y);
    if (!c->status)
        e->out = mul(c, y, scalar_of(c, p->scale / own, y));
}

/* ---- which ---- */

qn_mlxfn_expand qn_mlxfn_expansion_of(const qn_node *node,
                                      qn_array *const *was_in,
                                      qn_array *const *was_out)
{
    if (!node->ninputs)
        return NULL;
    const qn_fft_params *fft = node->params;
    qn_dims in = qn_dims_of(was_in[0]), out = qn_dims_of(was_out[0]);
    bool complex = was_in[0]->dtype == QN_COMPLEX64;
    switch (node->op) {
    case QN_OP_REAL:
    case QN_OP_CONJUGATE:
        return complex ? NULL : expand_real_itself;
    case QN_OP_IMAG:
        return complex ? NULL : expand_imag_of_real;
    case QN_OP_TRUNC:
        return expand_trunc;
    case QN_OP_FLOOR_DIVIDE:
        return qn_dtype_is_float(was_out[0]->dtype) ? expand_floor_divide
                                                    : NULL;
    case QN_OP_LOGICAL_XOR:
        return expand_logical_xor;
    case QN_OP_BITWISE_INVERT:
        return expand_bitwise_invert;
    case QN_OP_REQUANTIZE:
        return expand_requantize;
    case QN_OP_ROPE:
        return in.ndim != 4 ? expand_rope : NULL;
    case QN_OP_FFT:
        return fft->scale != own_scale(fft, &in, &out) ? expand_fft : NULL;
    default:
        return NULL;
    }
}
