/* panel.c: packed matrices as panels (panel.h), products with them. */
#include "panel.h"

#include "params.h"
#include "rules.h"
#include "scope.h"

#include "base/gguf.h"
#include "base/gguf_blocks.h"

#include <string.h>

/* ---- forms ---- */

const uint8_t *qn_panel_table_of(const qn_panel_form *form)
{
    /* qn_gguf_fp4_codes and qn_gguf_iq4_codes, moved up. */
    static const uint8_t tables[][16] = {
        [QN_PANEL_E2M1] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6,
                           4, 0},
        [QN_PANEL_IQ4] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166,
                          181, 197, 217, 241}};
    return form->table == QN_PANEL_CODES ? NULL : tables[form->table];
}

bool qn_panel_form_of(qn_panel_form *out, int type)
{
    static const struct {
        int type;
        qn_panel_form form;
    } rows[] = {
#define QN_X(type, bits, group, zero, scaling, table)                          \
    {QN_GGUF_##type##_T,                                                       \
     {bits, group, (zero) < 0, (zero) < 0 ? 0 : (zero), QN_FLOAT16,            \
      QN_PANEL_##scaling, QN_PANEL_##table}},
        /* clang-format off */
        QN_X(Q4_0,   4, 32,   8, FLOATS,  CODES)
        QN_X(Q4_1,   4, 32,  -1, FLOATS,  CODES)
        QN_X(Q5_0,   5, 32,  16, FLOATS,  CODES)
        QN_X(Q5_1,   5, 32,  -1, FLOATS,  CODES)
        QN_X(Q8_0,   8, 32, 128, FLOATS,  CODES)
        QN_X(Q2_K,   2, 16,  -1, NIBBLES, CODES)
        QN_X(Q3_K,   3, 16,   4, NESTED,  CODES)
        QN_X(Q4_K,   4, 32,  -1, NESTED,  CODES)
        QN_X(Q5_K,   5, 32,  -1, NESTED,  CODES)
        QN_X(Q6_K,   6, 16,  32, NESTED,  CODES)
        QN_X(IQ4_NL, 4, 32, 128, FLOATS,  IQ4)
        QN_X(IQ4_XS, 4, 32, 128, NESTED,  IQ4)
        QN_X(MXFP4,  4, 32,  12, E8M0,    E2M1)
    /* clang-format on */
#undef QN_X
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].type == type) {
            *out = rows[i].form;
            return true;
        }
    return false;
}

static qn_status check_form(const char *op, const qn_panel_form *f)
{
    bool bits = f->bits >= 2 && f->bits <= 8 && f->bits != 7;
    bool group =
        f->group == 16 || f->group == 32 || f->group == 64 || f->group == 128;
    if (!bits || !group)
        return qn_fail(QN_E_ARG,
                       "[%s] Expected 2, 3, 4, 5, 6 or 8 bits in groups of 16, "
                       "32, 64 or 128, found %d bits in groups of %d.",
                       op, f->bits, f->group);
    int most = f->table == QN_PANEL_CODES ? (1 << f->bits) - 1 : 255;
    if (!f->biased && (f->zero < 0 || f->zero > most))
        return qn_fail(QN_E_ARG, "[%s] Expected a zero from 0 to %d, found %d.",
                       op, most, f->zero);
    bool bytes = f->scaling == QN_PANEL_E8M0 || f->scaling == QN_PANEL_E4M3;
    if ((f->table != QN_PANEL_CODES && f->bits != 4) || (bytes && f->biased) ||
        (f->scaling == QN_PANEL_NIBBLES && !f->biased) ||
        (f->table == QN_PANEL_IQ4 && f->group < QN_PANEL_STEP))
        return qn_fail(QN_E_ARG,
                       "[%s] Expected 4 bits for a table, no biases for scales "
                       "of one byte, and biases for scales of one nibble.",
                       op);
    if (f->scale_type != QN_FLOAT32 && f->scale_type != QN_FLOAT16 &&
        f->scale_type != QN_BFLOAT16)
        return qn_fail(QN_E_ARG,
                       "[%s] Expected scales of type float32, float16 or "
                       "bfloat16, found %s.",
                       op, qn_dtype_name(f->scale_type));
    return QN_OK;
}

/* Panels of all matrices together. */
static size_t all_panels(const qn_panel_params *p)
{
    size_t n = 0;
    for (int i = 0; i < p->count; i++)
        n += qn_panel_count(p->rows[i]);
    return n;
}

static qn_status check_params(const char *op, const qn_panel_params *p)
{
    qn_status status = check_form(op, &p->form);
    if (status)
        return status;
    if (p->count < 1 || p->count > QN_PANEL_PARTS)
        return qn_fail(QN_E_ARG, "[%s] Expected 1 to %d matrices, found %d.",
                       op, QN_PANEL_PARTS, p->count);
    for (int i = 0; i < p->count; i++)
        if (p->rows[i] < 1)
            return qn_fail(QN_E_ARG,
                           "[%s] Expected matrices with rows, found %d.", op,
                           p->rows[i]);
    if (p->cols < 1 || p->cols % QN_PANEL_STEP || p->cols % p->form.group)
        return qn_fail(QN_E_ARG,
                       "[%s] Expected columns in multiples of %d and of the "
                       "group size %d, found %d.",
                       op, QN_PANEL_STEP, p->form.group, p->cols);
    return QN_OK;
}

static qn_status check_panels(const char *op, const qn_panel_params *p,
                              const qn_array *panels)
{
    qn_status status = check_params(op, p);
    if (status)
        return status;
    size_t bytes = qn_panel_bytes(&p->form, (size_t)p->cols);
    if (panels->dtype != QN_UINT8 || panels->ndim != 2 ||
        (size_t)panels->shape[0] != all_panels(p) ||
        (size_t)panels->shape[1] != bytes)
        return qn_fail(QN_E_ARG,
                       "[%s] Expected panels of type uint8 and shape "
                       "(%zu,%zu), found %s %s.",
                       op, all_panels(p), bytes, qn_dtype_name(panels->dtype),
                       qn_array_shape_text(panels).text);
    return QN_OK;
}

/* ---- packing ---- */

/* The type of the arrays that scales and biases come in. */
static qn_dtype factor_type(const qn_panel_form *f)
{
    return f->scaling == QN_PANEL_FLOATS ? f->scale_type : QN_UINT8;
}

static qn_status check_factors(const qn_panel_params *p, int i,
                               const qn_array *x, const char *what)
{
    if (x->dtype != factor_type(&p->form) || x->ndim != 2 ||
        x->shape[0] != p->rows[i] || x->shape[1] != p->cols / p->form.group)
        return qn_fail(QN_E_ARG,
                       "[panel_pack] Expected %s of type %s and shape (%d,%d), "
                       "found %s %s.",
                       what, qn_dtype_name(factor_type(&p->form)), p->rows[i],
                       p->cols / p->form.group, qn_dtype_name(x->dtype),
                       qn_array_shape_text(x).text);
    return QN_OK;
}

/* Fills p and the list of inputs. */
static qn_status pack_inputs(qn_panel_params *p, qn_array **inputs, int *n,
                             qn_array *const *w, qn_array *const *scales,
                             qn_array *const *biases)
{
    for (int i = 0; i < p->count; i++) {
        if (w[i]->dtype != QN_UINT32 || w[i]->ndim != 2)
            return qn_fail(QN_E_ARG,
                           "[panel_pack] Expected a packed matrix of type "
                           "uint32 and two dimensions, found %s %s.",
                           qn_dtype_name(w[i]->dtype),
                           qn_array_shape_text(w[i]).text);
        int64_t bits = (int64_t)w[i]->shape[1] * 32;
        p->rows[i] = w[i]->shape[0];
        if (bits % p->form.bits || (i && bits / p->form.bits != p->cols))
            return qn_fail(QN_E_ARG,
                           "[panel_pack] Expected rows of one length in codes "
                           "of %d bits, found %s.",
                           p->form.bits, qn_array_shape_text(w[i]).text);
        qn_status status =
            qn_dim_fit(&p->cols, "panel_pack", bits / p->form.bits);
        if (!status)
            status = check_params("panel_pack",
                                  &(qn_panel_params){.form = p->form,
                                                     .count = 1,
                                                     .cols = p->cols,
                                                     .rows = {p->rows[i]}});
        if (!status)
            status = check_factors(p, i, scales[i], "scales");
        if (!status && p->form.biased)
            status = check_factors(p, i, biases[i], "biases");
        if (status)
            return status;
        inputs[(*n)++] = w[i];
        inputs[(*n)++] = scales[i];
        if (p->form.biased)
            inputs[(*n)++] = biases[i];
    }
    return QN_OK;
}

/* The shape of all panels. */
static qn_status panels_shape(int shape[2], const qn_panel_params *p)
{
    qn_status status =
        qn_dim_fit(&shape[0], "panel_pack", (int64_t)all_panels(p));
    return status
               ? status
               : qn_dim_fit(&shape[1], "panel_pack",
                            (int64_t)qn_panel_bytes(&p->form, (size_t)p->cols));
}

qn_status qn_op_panel_pack(qn_array **out, const qn_panel_form *form,
                           size_t count, qn_array *const *w,
                           qn_array *const *scales, qn_array *const *biases,
                           qn_stream *s)
{
    qn_panel_params p;
    qn_array *inputs[3 * QN_PANEL_PARTS];
    int n = 0, shape[2];
    memset(&p, 0, sizeof p); /* padding, too: params are compared */
    p.form = *form;
    qn_status status = check_form("panel_pack", form);
    if (!status && (count < 1 || count > QN_PANEL_PARTS))
        status = qn_fail(QN_E_ARG,
                         "[panel_pack] Expected 1 to %d matrices, found %zu.",
                         QN_PANEL_PARTS, count);
    if (!status && qn_panel_nested(form))
        status = qn_fail(QN_E_ARG, "[panel_pack] Expected scales of their own "
                                   "for each group, found nested ones.");
    if (status)
        return status;
    p.count = (int)count;
    status = pack_inputs(&p, inputs, &n, w, scales, biases);
    if (!status)
        status = panels_shape(shape, &p);
    if (status)
        return status;
    return qn_make(out, QN_OP_PANEL_PACK, s, inputs, n, &p, sizeof p, QN_UINT8,
                   shape, 2);
}

qn_status qn_op_panel_blocks(qn_array **out, const qn_panel_blocks_params *p,
                             qn_stream *s)
{
    qn_panel_blocks_params made;
    size_t bytes, elements;
    int shape[2];
    memset(&made, 0, sizeof made);
    memcpy(&made, p, sizeof made);
    if (!qn_panel_form_of(&made.w.form, p->type) ||
        !qn_gguf_type_block(p->type, &bytes, &elements))
        return qn_fail(QN_E_ARG,
                       "[panel_pack] Expected a type of blocks that has "
                       "panels, found number %d.",
                       p->type);
    qn_status status = check_params("panel_pack", &made.w);
    if (!status && (size_t)p->w.cols % elements)
        status = qn_fail(QN_E_ARG,
                         "[panel_pack] Expected rows of whole blocks of %zu "
                         "elements, found %d.",
                         elements, p->w.cols);
    if (!status)
        status = panels_shape(shape, &made.w);
    if (status)
        return status;
    return qn_make(out, QN_OP_PANEL_BLOCKS, s, NULL, 0, &made, sizeof made,
                   QN_UINT8, shape, 2);
}

/* ---- products ---- */

static qn_status check_product(const qn_panel_matmul_params *p,
                               const qn_array *x, const qn_array *norm)
{
    if (!qn_dtype_is_float(x->dtype) || x->dtype == QN_FLOAT64 || !x->ndim ||
        x->shape[x->ndim - 1] != p->w.cols)
        return qn_fail(QN_E_ARG,
                       "[panel_matmul] Expected x of type float32, float16 or "
                       "bfloat16 with rows of %d, found %s %s.",
                       p->w.cols, qn_dtype_name(x->dtype),
                       qn_array_shape_text(x).text);
    if (norm && (norm->dtype != x->dtype || norm->ndim != 1 ||
                 norm->shape[0] != p->w.cols))
        return qn_fail(QN_E_ARG,
                       "[panel_matmul] Expected a norm's weight of type %s and "
                       "shape (%d), found %s %s.",
                       qn_dtype_name(x->dtype), p->w.cols,
                       qn_dtype_name(norm->dtype),
                       qn_array_shape_text(norm).text);
    if ((int)p->gate < QN_GATE_NONE || p->gate > QN_GATE_GELU)
        return qn_fail(QN_E_ARG,
                       "[panel_matmul] Expected a gate of 0 to %d, found %d.",
                       QN_GATE_GELU, (int)p->gate);
    if (p->gate && (p->w.count != 2 || p->w.rows[0] != p->w.rows[1]))
        return qn_fail(QN_E_ARG, "[panel_matmul] Expected two matrices of as "
                                 "many rows for a gate.");
    return QN_OK;
}

static qn_status check_residual(const qn_panel_matmul_params *p,
                                const qn_array *x, const qn_array *residual)
{
    bool fits = (p->w.count == 1 || p->gate) && residual->dtype == x->dtype &&
                residual->ndim == x->ndim &&
                residual->shape[x->ndim - 1] == p->w.rows[0];
    for (int i = 0; fits && i < x->ndim - 1; i++)
        fits = residual->shape[i] == x->shape[i];
    if (!fits)
        return qn_fail(QN_E_ARG,
                       "[panel_matmul] Expected a residual of the one result's "
                       "type and shape, found %s %s.",
                       qn_dtype_name(residual->dtype),
                       qn_array_shape_text(residual).text);
    return QN_OK;
}

qn_status qn_op_panel_matmul(qn_array **out, qn_array *x, qn_array *panels,
                             qn_array *norm, qn_array *residual,
                             const qn_panel_matmul_params *given, qn_stream *s)
{
    qn_panel_matmul_params p;
    qn_array *inputs[4] = {x, panels}, *made[QN_PANEL_PARTS] = {NULL};
    int n = 2;
    memcpy(&p, given, sizeof p);
    p.has_norm = norm != NULL;
    p.has_residual = residual != NULL;
    qn_status status = check_panels("panel_matmul", &p.w, panels);
    if (!status)
        status = check_product(&p, x, norm);
    if (!status && residual)
        status = check_residual(&p, x, residual);
    if (norm)
        inputs[n++] = norm;
    if (residual)
        inputs[n++] = residual;
    qn_dims dims = qn_dims_of(x);
    int count = p.gate ? 1 : p.w.count;
    for (int i = 0; i < count && !status; i++) {
        dims.dim[x->ndim - 1] = p.w.rows[i];
        status = qn_array_new(&made[i], x->dtype, dims.dim, dims.ndim);
    }
    qn_node_spec spec = {.op = QN_OP_PANEL_MATMUL,
                         .stream = s,
                         .inputs = inputs,
                         .ninputs = n,
                         .params = &p,
                         .params_size = sizeof p};
    if (!status)
        status = qn_node_attach(&spec, made, count);
    for (int i = 0; i < count; i++) {
        if (status)
            qn_array_unref(made[i]);
        else
            out[i] = made[i];
    }
    return status;
}

qn_status qn_op_panel_rows(qn_array **out, qn_array *panels, qn_array *ids,
                           const qn_panel_params *p, qn_dtype dtype,
                           qn_stream *s)
{
    qn_status status = check_panels("panel_rows", p, panels);
    if (!status && p->count != 1)
        status = qn_fail(
            QN_E_ARG, "[panel_rows] Expected one matrix, found %d.", p->count);
    if (!status && ids->dtype != QN_INT32 && ids->dtype != QN_UINT32)
        status = qn_fail(QN_E_ARG,
                         "[panel_rows] Expected ids of type int32 or uint32, "
                         "found %s.",
                         qn_dtype_name(ids->dtype));
    if (!status && dtype != QN_FLOAT32 && dtype != QN_FLOAT16 &&
        dtype != QN_BFLOAT16)
        status = qn_fail(QN_E_ARG,
                         "[panel_rows] Expected a result of type float32, "
                         "float16 or bfloat16, asked for %s.",
                         qn_dtype_name(dtype));
    qn_dims dims = qn_dims_of(ids);
    if (!status)
        status = qn_dims_insert(&dims, "panel_rows", ids->ndim, p->cols);
    if (status)
        return status;
    return qn_make(out, QN_OP_PANEL_ROWS, s, (qn_array *[]){panels, ids}, 2, p,
                   sizeof *p, dtype, dims.dim, dims.ndim);
}

/* ---- rules ---- */

void qn_again_panel_pack(qn_again *a)
{
    const qn_panel_params *p = a->node->params;
    qn_array *w[QN_PANEL_PARTS], *scales[QN_PANEL_PARTS],
        *biases[QN_PANEL_PARTS] = {NULL}, *made = NULL;
    int step = p->form.biased ? 3 : 2;
    for (int i = 0; i < p->count; i++) {
        w[i] = a->in[i * step];
        scales[i] = a->in[i * step + 1];
        if (p->form.biased)
            biases[i] = a->in[i * step + 2];
    }
    if (!a->c->status)
        a->out[0] =
            qn_scope_hold(a->c,
                          qn_op_panel_pack(&made, &p->form, (size_t)p->count, w,
                                           scales, biases, a->c->stream),
                          &made);
}

void qn_again_panel_matmul(qn_again *a)
{
    const qn_panel_matmul_params *p = a->node->params;
    qn_array *made[QN_PANEL_PARTS] = {NULL};
    qn_array *norm = p->has_norm ? a->in[2] : NULL;
    qn_array *residual = p->has_residual ? a->in[2 + p->has_norm] : NULL;
    if (a->c->status)
        return;
    qn_status status = qn_op_panel_matmul(made, a->in[0], a->in[1], norm,
                                          residual, p, a->c->stream);
    if (status)
        qn_scope_fail(a->c, status);
    for (int i = 0; i < a->node->noutputs && !status; i++)
        a->out[i] = qn_scope_hold(a->c, QN_OK, &made[i]);
}

void qn_again_panel_rows(qn_again *a)
{
    const qn_panel_params *p = a->node->params;
    qn_array *made = NULL;
    if (!a->c->status)
        a->out[0] =
            qn_scope_hold(a->c,
                          qn_op_panel_rows(&made, a->in[0], a->in[1], p,
                                           a->was_out[0]->dtype, a->c->stream),
                          &made);
}
