/* ext_panel.c: products in 8-bit integers. */
#include "handles.h"
#include "ops_entry.h"

#include "backend/cpu/cpu.h"
#include "core/eval.h"
#include "ops/kernel.h"
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

/* ---- experts ---- */

static qn_status check_experts(const qn_array *x, const qn_array *panels,
                               const qn_array *ids, const qn_panel_params *p,
                               int experts, quern_panel_gate gate)
{
    static const char op[] = "panel_experts";
    bool good = p->count >= 1 && p->count <= QN_PANEL_PARTS && experts > 0 &&
                p->cols > 0 && p->cols % QN_PANEL_STEP == 0;
    size_t all = 0;
    for (int i = 0; i < p->count && good; i++) {
        good = p->rows[i] > 0 && p->rows[i] % experts == 0 &&
               p->rows[i] / experts % QN_PANEL_ROWS == 0;
        all += qn_panel_count(p->rows[i]);
    }
    if (!good || (gate && (p->count != 2 || p->rows[0] != p->rows[1])))
        return qn_fail(QN_E_ARG,
                       "[%s] Expected 1 to 3 matrices (2 alike with a gate) "
                       "with a multiple of %d rows for each of %d experts.",
                       op, QN_PANEL_ROWS, experts);
    if (panels->dtype != QN_UINT8 ||
        panels->size != all * qn_panel_bytes(&p->form, (size_t)p->cols))
        return qn_fail(QN_E_ARG,
                       "[%s] Expected the panels of the form, found %zu bytes.",
                       op, panels->size);
    if (ids->ndim != 2 || ids->dtype != QN_INT32 || x->ndim != 3 ||
        x->shape[0] != ids->shape[0] || x->shape[2] != p->cols ||
        (x->shape[1] != 1 && x->shape[1] != ids->shape[1]))
        return qn_fail(QN_E_ARG,
                       "[%s] Expected int32 ids [T, n] and x [T, 1 or n, %d].",
                       op, p->cols);
    if (x->dtype != QN_FLOAT32 && x->dtype != QN_FLOAT16 &&
        x->dtype != QN_BFLOAT16)
        return qn_fail(QN_E_ARG,
                       "[%s] Expected float32, float16 or bfloat16, found %s.",
                       op, qn_dtype_name(x->dtype));
    return QN_OK;
}

/* A launch of the kernel in backend/cpu/experts.c. */
static qn_status launch_experts(qn_array **out, qn_array *x, qn_array *panels,
                                qn_array *ids, const qn_panel_params *p,
                                int experts, quern_panel_gate gate,
                                qn_stream *s)
{
    static char names[][8] = {"x", "panels", "ids", "a", "b", "c"};
    char *in[] = {names[0], names[1], names[2]};
    char *made[] = {names[3], names[4], names[5]};
    static char bits[] = "BITS", group[] = "GROUP", biased[] = "BIASED",
                zero[] = "ZERO", scaling[] = "SCALING", table[] = "TABLE",
                count[] = "EXPERTS", gated[] = "GATE", scale[] = "SCALE";
    const qn_panel_form *f = &p->form;
    qn_template args[] = {
        {bits, QN_TEMPLATE_INT, f->bits},
        {group, QN_TEMPLATE_INT, f->group},
        {biased, QN_TEMPLATE_INT, f->biased},
        {zero, QN_TEMPLATE_INT, f->zero},
        {scaling, QN_TEMPLATE_INT, (int)f->scaling},
        {table, QN_TEMPLATE_INT, (int)f->table},
        {count, QN_TEMPLATE_INT, experts},
        {gated, QN_TEMPLATE_INT, (int)gate},
        {scale, QN_TEMPLATE_DTYPE, (int)f->scale_type},
    };
    qn_kernel_output outputs[QN_PANEL_PARTS];
    size_t results = gate ? 1 : (size_t)p->count;
    for (size_t i = 0; i < results; i++)
        outputs[i] = (qn_kernel_output){
            x->dtype, 3, {ids->shape[0], ids->shape[1], p->rows[i] / experts}};
    qn_launch launch = {.outputs = outputs,
                        .noutputs = results,
                        .grid = {1, 1, 1},
                        .group = {1, 1, 1},
                        .templates = {args, sizeof args / sizeof *args}};
    static char name[] = "quern_panel_experts";
    qn_kernel kernel = {.form = "panel_experts",
                        .absent = "no such kernel",
                        .name = name,
                        .inputs = {in, 3},
                        .outputs = {made, results},
                        .row_contiguous = true,
                        .scratch = (size_t)p->cols * sizeof(float)};
    return qn_op_kernel(out, &kernel, &launch, (qn_array *[]){x, panels, ids},
                        3, s);
}

int quern_panel_experts(mlx_vector_array *res, const mlx_array x,
                        const mlx_array panels, const quern_panel_form *form,
                        int experts, const mlx_array ids, quern_panel_gate gate,
                        const mlx_stream s)
{
    QN_GET_ARRAY(left, x);
    QN_GET_ARRAY(right, panels);
    QN_GET_ARRAY(which, ids);
    QN_GET_STREAM(stream, s);
    qn_panel_params p;
    qn_array *made[QN_PANEL_PARTS];
    QN_CALL(read_params(&p, form));
    QN_CALL(check_experts(left, right, which, &p, experts, gate));
    QN_CALL(
        launch_experts(made, left, right, which, &p, experts, gate, stream));
    return QN_STORE_ARRAYS(res, made, gate ? 1 : (size_t)p.count);
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

size_t quern_panel_workspace(const quern_panel_form *form, int rows)
{
    qn_panel_form read;
    if (read_form(&read, form) || form->cols < 1 || rows < 1)
        return 0;
    return qn_cpu_panel_room(&read, (size_t)rows, (size_t)form->cols);
}
