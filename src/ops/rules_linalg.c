/* rules_linalg.c: gradients of linear algebra, and its operations made again.
 *
 * Where a loop reads one triangle of a symmetric matrix, the gradient is that
 * of the symmetric matrix: spread evenly over both triangles. */
#include "params.h"
#include "rules.h"

/* ---- matrices ---- */

static qn_array *swapped(qn_scope *c, qn_array *x)
{
    qn_array *made = NULL;
    return c->status
               ? NULL
               : qn_scope_hold(c, qn_op_swapaxes(&made, x, -1, -2, c->stream),
                               &made);
}

/* Transposed and conjugated. */
static qn_array *adjoint(qn_scope *c, qn_array *x)
{
    return unary(c, QN_OP_CONJUGATE, swapped(c, x));
}

static qn_array *product(qn_scope *c, qn_array *a, qn_array *b)
{
    return c->status ? NULL : matmul(c, a, b);
}

static qn_array *negative(qn_scope *c, qn_array *x)
{
    return unary(c, QN_OP_NEGATIVE, x);
}

/* The triangle from diagonal k on, k = 0 being the main one. */
static qn_array *upper_of(qn_scope *c, qn_array *x, int k)
{
    qn_array *made = NULL;
    return c->status
               ? NULL
               : qn_scope_hold(c, qn_op_triu(&made, x, k, c->stream), &made);
}

static qn_array *lower_of(qn_scope *c, qn_array *x, int k)
{
    qn_array *made = NULL;
    return c->status
               ? NULL
               : qn_scope_hold(c, qn_op_tril(&made, x, k, c->stream), &made);
}

static qn_array *in_form(qn_scope *c, qn_array *x, qn_matrix_form form)
{
    return form == QN_MATRIX_UPPER   ? upper_of(c, x, 0)
           : form == QN_MATRIX_LOWER ? lower_of(c, x, 0)
                                     : x;
}

static qn_matrix_form turned(qn_matrix_form form)
{
    return form == QN_MATRIX_UPPER   ? QN_MATRIX_LOWER
           : form == QN_MATRIX_LOWER ? QN_MATRIX_UPPER
                                     : form;
}

/* a^-1 b */
static qn_array *solved(qn_scope *c, qn_array *a, qn_array *b,
                        qn_matrix_form form)
{
    qn_array *made = NULL;
    if (c->status)
        return NULL;
    qn_status status =
        form == QN_MATRIX_GENERAL
            ? qn_op_solve(&made, a, b, c->stream)
            : qn_op_solve_triangular(&made, a, b, form == QN_MATRIX_UPPER,
                                     c->stream);
    return qn_scope_hold(c, status, &made);
}

/* a b^-1 */
static qn_array *divided(qn_scope *c, qn_array *a, qn_array *b,
                         qn_matrix_form form)
{
    return swapped(c, solved(c, swapped(c, b), swapped(c, a), turned(form)));
}

/* The identity of the size of x, in its type. */
static qn_array *identity_of(qn_scope *c, const qn_array *x)
{
    qn_array *made = NULL;
    int n = x->shape[x->ndim - 1];
    return c->status
               ? NULL
               : qn_scope_hold(
                     c, qn_op_eye(&made, n, n, 0, x->dtype, c->stream), &made);
}

static void hold_all(qn_scope *c, qn_status status, qn_array **made, int count)
{
    if (status) {
        qn_scope_fail(c, status);
        return;
    }
    for (int i = 0; i < count; i++)
        if (c->status)
            qn_array_unref(made[i]);
        else
            qn_scope_hold(c, QN_OK, &made[i]);
}

/* ---- gradients ---- */

void qn_grad_inv(qn_grad *g)
{
    const qn_form_params *p = g->node->params;
    qn_scope *c = g->c;
    qn_array *turned_back = swapped(c, g->out[0]);
    qn_array *grad =
        product(c, product(c, turned_back, g->cot[0]), turned_back);
    g->grad[0] = in_form(c, negative(c, grad), p->form);
}

void qn_grad_solve(qn_grad *g)
{
    const qn_form_params *p = g->node->params;
    qn_scope *c = g->c;
    qn_array *b = solved(c, swapped(c, g->in[0]), g->cot[0], turned(p->form));
    if (g->wanted[1])
        g->grad[1] = b;
    if (g->wanted[0])
        g->grad[0] = in_form(
            c, negative(c, product(c, b, swapped(c, g->out[0]))), p->form);
}

/* With F = L and G its cotangent: S = F^-T P(F^T G) F^-1, where P keeps the
 * lower triangle and half of the diagonal; the gradient is (S + S^T) / 2. */
void qn_grad_cholesky(qn_grad *g)
{
    const qn_triangle_params *p = g->node->params;
    qn_scope *c = g->c;
    qn_array *factor = p->upper ? swapped(c, g->out[0]) : g->out[0];
    qn_array *cot = p->upper ? swapped(c, g->cot[0]) : g->cot[0];
    qn_array *inner = product(c, swapped(c, factor), cot);
    qn_array *half = scalar_of(c, 0.5, g->out[0]);
    inner = mul(c, half, add(c, lower_of(c, inner, 0), lower_of(c, inner, -1)));
    qn_array *s = solved(c, swapped(c, factor), inner, QN_MATRIX_UPPER);
    s = divided(c, s, factor, QN_MATRIX_LOWER);
    g->grad[0] = mul(c, half, add(c, s, swapped(c, s)));
}

/* Of P A = L U with cotangents G of L and H of U: P^-1 L^-T (lower(L^T G) +
 * upper(H U^T)) U^-T, lower being without the diagonal. */
void qn_grad_lu(qn_grad *g)
{
    qn_scope *c = g->c;
    qn_array *x = g->in[0], *both = g->out[0], *cot = g->cot[0], *made = NULL;
    int n = x->shape[x->ndim - 1];
    if (x->shape[x->ndim - 2] != n) {
        qn_scope_fail(c, qn_fail(QN_E_UNSUPPORTED,
                                 "[lu] Only square matrices have a gradient, "
                                 "found shape %s.",
                                 qn_array_shape_text(x).text));
        return;
    }
    qn_array *lower = add(c, lower_of(c, both, -1), identity_of(c, x));
    qn_array *upper = upper_of(c, both, 0);
    qn_array *inner = add(
        c, lower_of(c, product(c, swapped(c, lower), lower_of(c, cot, -1)), -1),
        upper_of(c, product(c, upper_of(c, cot, 0), swapped(c, upper)), 0));
    qn_array *y = solved(c, swapped(c, lower), inner, QN_MATRIX_UPPER);
    y = divided(c, y, swapped(c, upper), QN_MATRIX_LOWER);
    /* Row i of the input is row rows[i] of the product. */
    qn_array *rows = expand(c, g->out[2], -1);
    if (c->status)
        return;
    qn_dims dims = qn_dims_of(x);
    rows = broadcast(c, rows, &dims);
    if (!c->status)
        g->grad[0] = qn_scope_hold(
            c, qn_op_take_along_axis(&made, y, rows, -2, c->stream), &made);
}

/* V (diag(w) + F * (V^H G)) V^H for cotangents w of the values and G of the
 * vectors, F[i][j] being 1 / (value j - value i), 0 for equal values. */
void qn_grad_eigh(qn_grad *g)
{
    const qn_triangle_params *p = g->node->params;
    qn_scope *c = g->c;
    qn_array *values = g->out[0], *vectors, *x = g->in[0], *made[2];
    if (g->node->noutputs == 2) {
        vectors = g->out[1];
    } else {
        hold_all(c, qn_op_eigh(made, x, p->upper ? "U" : "L", true, c->stream),
                 made, 2);
        if (c->status)
            return;
        vectors = made[1];
    }
    qn_array *inner = mul(c, expand(c, g->cot[0], -1), identity_of(c, values));
    inner = c->status ? NULL : cast(c, inner, x->dtype);
    if (g->node->noutputs == 2) {
        qn_array *apart = sub(c, expand(c, values, -2), expand(c, values, -1));
        qn_array *zero = scalar_of(c, 0, values),
                 *one = scalar_of(c, 1, values);
        qn_array *same = binary(c, QN_OP_EQUAL, apart, zero);
        qn_array *f =
            where(c, same, zero, divide(c, one, where(c, same, one, apart)));
        inner = add(c, inner,
                    mul(c, f, product(c, adjoint(c, vectors), g->cot[1])));
    }
    qn_array *y = product(c, product(c, vectors, inner), adjoint(c, vectors));
    g->grad[0] = mul(c, scalar_of(c, 0.5, x), add(c, y, adjoint(c, y)));
}

/* U diag(s) V^H for a cotangent s of the singular values. */
void qn_grad_svd(qn_grad *g)
{
    qn_scope *c = g->c;
    qn_array *x = g->in[0], *parts[3];
    if (g->node->noutputs != 1) {
        qn_scope_fail(c, qn_fail(QN_E_UNSUPPORTED,
                                 "[svd] Singular vectors have no gradient."));
        return;
    }
    hold_all(c, qn_op_svd(parts, x, true, c->stream), parts, 3);
    int k = g->out[0]->shape[g->out[0]->ndim - 1];
    qn_array *u = slice_axis(c, c->status ? x : parts[0], x->ndim - 1, 0, k);
    qn_array *vt = slice_axis(c, c->status ? x : parts[2], x->ndim - 2, 0, k);
    u = mul(c, u, expand(c, g->cot[0], -2));
    g->grad[0] = product(c, u, vt);
}

/* ---- again ---- */

#define MAKE(call)                                                             \
    do {                                                                       \
        qn_array *made = NULL;                                                 \
        if (!a->c->status)                                                     \
            a->out[0] = qn_scope_hold(a->c, call, &made);                      \
    } while (0)
#define MAKE_SEVERAL(count, call)                                              \
    do {                                                                       \
        qn_array *made[3];                                                     \
        if (a->c->status)                                                      \
            break;                                                             \
        hold_all(a->c, call, made, count);                                     \
        for (int i = 0; i < (count) && !a->c->status; i++)                     \
            a->out[i] = made[i];                                               \
    } while (0)
#define STREAM a->c->stream

void qn_again_cholesky(qn_again *a)
{
    const qn_triangle_params *p = a->node->params;
    MAKE(qn_op_cholesky(&made, a->in[0], p->upper, STREAM));
}

void qn_again_qr(qn_again *a)
{
    MAKE_SEVERAL(2, qn_op_qr(made, a->in[0], STREAM));
}

void qn_again_lu(qn_again *a)
{
    MAKE_SEVERAL(3, qn_op_lu_parts(made, a->in[0], STREAM));
}

void qn_again_svd(qn_again *a)
{
    int count = a->node->noutputs;
    MAKE_SEVERAL(count, qn_op_svd(made, a->in[0], count == 3, STREAM));
}

void qn_again_eig(qn_again *a)
{
    int count = a->node->noutputs;
    MAKE_SEVERAL(count, qn_op_eig(made, a->in[0], count == 2, STREAM));
}

void qn_again_eigh(qn_again *a)
{
    const qn_triangle_params *p = a->node->params;
    int count = a->node->noutputs;
    MAKE_SEVERAL(count, qn_op_eigh(made, a->in[0], p->upper ? "U" : "L",
                                   count == 2, STREAM));
}

void qn_again_inv(qn_again *a)
{
    const qn_form_params *p = a->node->params;
    if (p->form == QN_MATRIX_GENERAL)
        MAKE(qn_op_inv(&made, a->in[0], STREAM));
    else
        MAKE(
            qn_op_tri_inv(&made, a->in[0], p->form == QN_MATRIX_UPPER, STREAM));
}

void qn_again_solve(qn_again *a)
{
    const qn_form_params *p = a->node->params;
    if (p->form == QN_MATRIX_GENERAL)
        MAKE(qn_op_solve(&made, a->in[0], a->in[1], STREAM));
    else
        MAKE(qn_op_solve_triangular(&made, a->in[0], a->in[1],
                                    p->form == QN_MATRIX_UPPER, STREAM));
}
