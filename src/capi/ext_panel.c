/* ext_panel.c: products in 8-bit integers. */
#include "handles.h"
#include "ops_entry.h"

#include "quern/ext.h"

#include <string.h>

/* What the caller says of panels, as the operations take it. */
static qn_status read_form(qn_panel_form *out, const quern_panel_form *form)
{
    *out = (qn_panel_form){.bits = form->bits,
                           .group = form->group_size,
                           .biased = form->zero < 0,
                           .zero = form->zero < 0 ? 0 : form->zero};
    return qn_capi_dtype(&out->scale_type, form->scale_dtype);
}

static qn_status read_params(qn_panel_params *out, const quern_panel_form *form)
{
    memset(out, 0, sizeof *out);
    out->count = form->count;
    out->cols = form->cols;
    memcpy(out->rows, form->rows, sizeof out->rows);
    return read_form(&out->form, form);
}

bool quern_panel_available(void)
{
    return true;
}

int quern_panel_pack(mlx_array *res, quern_panel_form *form,
                     const mlx_vector_array w, const mlx_vector_array scales,
                     const mlx_vector_array biases, const mlx_stream s)
{
    QN_GET_ARRAYS(matrices, w);
    QN_GET_ARRAYS(factors, scales);
    QN_GET_STREAM(stream, s);
    const qn_list *shifts = qn_handle_arrays(biases);
    qn_panel_form read;
    qn_array *out;
    QN_CALL(read_form(&read, form));
    if (factors->size != matrices->size ||
        (read.biased && (!shifts || shifts->size != matrices->size))) {
        qn_fail(QN_E_ARG,
                "[panel_pack] Expected scales and biases for each of %zu "
                "matrices, found %zu and %zu.",
                matrices->size, factors->size, shifts ? shifts->size : 0);
        return QN_REPORT();
    }
    QN_CALL(qn_op_panel_pack(&out, &read, matrices->size, matrices->data,
                             factors->data, read.biased ? shifts->data : NULL,
                             stream));
    const qn_panel_params *p = out->node->params;
    quern_panel_form made = *form;
    made.cols = p->cols;
    made.count = p->count;
    memcpy(made.rows, p->rows, sizeof made.rows);
    if (QN_STORE_ARRAY(res, out))
        return 1;
    *form = made;
    return 0;
}

int quern_panel_matmul(mlx_vector_array *res, const mlx_array x,
                       const mlx_array panels, const quern_panel_form *form,
                       const quern_panel_steps *steps, const mlx_stream s)
{
    QN_GET_ARRAY(left, x);
    QN_GET_ARRAY(right, panels);
    QN_GET_STREAM(stream, s);
    qn_panel_matmul_params p;
    qn_array *made[QN_PANEL_PARTS], *norm = NULL, *residual = NULL;
    memset(&p, 0, sizeof p);
    if (steps) {
        norm = qn_handle_array(steps->norm);
        residual = qn_handle_array(steps->residual);
        p.eps = steps->eps;
        p.gate = steps->gate;
    }
    QN_CALL(read_params(&p.w, form));
    QN_CALL(qn_op_panel_matmul(made, left, right, norm, residual, &p, stream));
    return QN_STORE_ARRAYS(res, made, p.gate ? 1 : (size_t)p.w.count);
}

int quern_panel_rows(mlx_array *res, const mlx_array panels,
                     const quern_panel_form *form, const mlx_array ids,
                     mlx_dtype dtype, const mlx_stream s)
{
    QN_GET_ARRAY(from, panels);
    QN_GET_ARRAY(which, ids);
    QN_GET_STREAM(stream, s);
    qn_panel_params p;
    qn_dtype type;
    QN_CALL(read_params(&p, form));
    QN_CALL(qn_capi_dtype(&type, dtype));
    QN_RETURN_OP(res, qn_op_panel_rows(&out, from, which, &p, type, stream));
}
