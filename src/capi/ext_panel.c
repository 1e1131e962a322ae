/* ext_panel.c: products in 8-bit integers. */
#include "handles.h"
#include "ops_entry.h"

#include "core/eval.h"
#include "ops/params.h"
#include "quern/ext.h"

#include <string.h>

_Static_assert((int)QUERN_PANEL_E4M3 == (int)QN_PANEL_E4M3 &&
                   (int)QUERN_PANEL_NIBBLES == (int)QN_PANEL_NIBBLES &&
                   (int)QUERN_PANEL_IQ4 == (int)QN_PANEL_IQ4,
               "the numbers of ext.h and ops/panel.h");

/* What the caller says of panels, as the operations take it. */
static qn_status read_form(qn_panel_form *out, const quern_panel_form *form)
{
    if ((unsigned)form->scaling > QUERN_PANEL_E4M3 ||
        (unsigned)form->table > QUERN_PANEL_IQ4)
        return qn_fail(QN_E_ARG,
                       "[panels] Expected a scaling from 0 to %d and a table "
                       "from 0 to %d, found %d and %d.",
                       QUERN_PANEL_E4M3, QUERN_PANEL_IQ4, (int)form->scaling,
                       (int)form->table);
    *out = (qn_panel_form){.bits = form->bits,
                           .group = form->group_size,
                           .biased = form->zero < 0,
                           .zero = form->zero < 0 ? 0 : form->zero,
                           .scaling = (qn_panel_scaling)form->scaling,
                           .table = (qn_panel_table)form->table};
    return qn_capi_dtype(&out->scale_type, form->scale_dtype);
}

static quern_panel_form form_of(const qn_panel_params *p)
{
    const qn_panel_form *f = &p->form;
    quern_panel_form form = {.group_size = f->group,
                             .bits = f->bits,
                             .zero = f->biased ? -1 : f->zero,
                             .scale_dtype = (mlx_dtype)f->scale_type,
                             .scaling = (quern_panel_scaling)f->scaling,
                             .table = (quern_panel_table)f->table,
                             .cols = p->cols,
                             .count = p->count};
    memcpy(form.rows, p->rows, sizeof form.rows);
    return form;
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
    quern_panel_form made = form_of(out->node->params);
    if (QN_STORE_ARRAY(res, out))
        return 1;
    *form = made;
    return 0;
}

int quern_panel_pack_blocks(mlx_array *res, quern_panel_form *form, int type,
                            int cols, const quern_panel_blocks *w, int count,
                            void (*done)(void *ctx, const void *data,
                                         size_t size),
                            void *ctx, const mlx_stream s)
{
    QN_GET_STREAM(stream, s);
    qn_panel_blocks_params p;
    qn_array *out;
    memset(&p, 0, sizeof p);
    p.type = type;
    p.w.cols = cols;
    p.w.count = count;
    p.done = done;
    p.ctx = ctx;
    for (int i = 0; i < count && i < QN_PANEL_PARTS; i++) {
        p.w.rows[i] = w[i].rows;
        p.from[i].data = w[i].data;
        p.from[i].source_row = w[i].source_row;
    }
    QN_CALL(qn_op_panel_blocks(&out, &p, stream));
    quern_panel_form made =
        form_of(&((const qn_panel_blocks_params *)out->node->params)->w);
    /* Before anybody else has the array: it points at what is borrowed. */
    qn_status status = qn_eval(&out, 1);
    if (status) {
        qn_array_unref(out);
        return QN_REPORT();
    }
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
        p.gate = (qn_panel_gate)steps->gate;
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
