/* panel.c: panels and products with them, by the formula of
 * backend/cpu/kernels/panel/panel.h: the bits are the kernels', but for norms
 * and gates. */
#include "loops.h"
#include "stage.h"

#include "backend/common/panel.h"
#include "backend/common/quant.h"
#include "base/alloc.h"
#include "base/gguf.h"

#include <math.h>
#include <string.h>

/* ---- packing ---- */

/* Rows first .. first + count of input x in one piece at `to`. */
static void load_rows(char *to, const qn_array *x, size_t first, size_t count)
{
    size_t item = qn_array_itemsize(x), row = (size_t)x->shape[1] * item;
    for (size_t r = 0; r < count; r++)
        qn_ref_copy_run(to + r * row, 1,
                        qn_element(x, (int64_t)(first + r) * x->strides[0]),
                        x->strides[1], (size_t)x->shape[1], item);
}

/* The panels of one matrix, from `to` on. */
static void pack(uint8_t *to, const qn_panel_params *p, int matrix,
                 qn_array *const *in, char *room)
{
    size_t k = (size_t)p->cols, rows = (size_t)p->rows[matrix];
    size_t word_row = k * (size_t)p->form.bits / 8;
    size_t row = k / (size_t)p->form.group * qn_panel_item(&p->form);
    qn_panel_source source = {.k = k,
                              .words = room,
                              .word_step = (int64_t)word_row,
                              .scale_step = (int64_t)row,
                              .bias_step = (int64_t)row};
    char *scales = room + QN_PANEL_ROWS * word_row;
    char *biases = scales + QN_PANEL_ROWS * row;
    source.scales = scales;
    source.biases = biases;
    for (size_t r = 0; r < rows; r += QN_PANEL_ROWS) {
        size_t n = rows - r < QN_PANEL_ROWS ? rows - r : QN_PANEL_ROWS;
        source.rows = n;
        load_rows(room, in[0], r, n);
        load_rows(scales, in[1], r, n);
        if (p->form.biased)
            load_rows(biases, in[2], r, n);
        qn_panel_pack(to, &p->form, &source);
        to += qn_panel_bytes(&p->form, k);
    }
}

qn_status qn_ref_panel_pack(qn_node *node)
{
    const qn_panel_params *p = node->params;
    size_t k = (size_t)p->cols;
    int inputs = p->form.biased ? 3 : 2;
    /* Words of 8 bits and two factors of 4 bytes for each 16 at the most. */
    char *room = qn_calloc(QN_PANEL_ROWS, 2 * k);
    qn_status status = room ? qn_array_alloc(node->outputs[0]) : QN_E_NOMEM;
    uint8_t *to = status ? NULL : qn_array_data(node->outputs[0]);
    for (int i = 0; i < p->count && !status; i++) {
        pack(to, p, i, node->inputs + i * inputs, room);
        to += qn_panel_count(p->rows[i]) * qn_panel_bytes(&p->form, k);
    }
    qn_free(room);
    return status;
}

qn_status qn_ref_panel_blocks(qn_node *node)
{
    const qn_panel_blocks_params *p = node->params;
    size_t k = (size_t)p->w.cols, bytes, elements;
    qn_status status = qn_array_alloc(node->outputs[0]);
    if (status || !qn_gguf_type_block(p->type, &bytes, &elements))
        return status;
    uint8_t *to = qn_array_data(node->outputs[0]);
    bytes *= k / elements;
    for (int i = 0; i < p->w.count; i++) {
        const uint32_t *from = p->from[i].source_row;
        size_t rows = (size_t)p->w.rows[i];
        for (size_t r = 0; r < rows; r += QN_PANEL_ROWS) {
            const uint8_t *data[QN_PANEL_ROWS];
            size_t n = rows - r < QN_PANEL_ROWS ? rows - r : QN_PANEL_ROWS;
            for (size_t j = 0; j < n; j++)
                data[j] =
                    p->from[i].data + (from ? from[r + j] : r + j) * bytes;
            qn_panel_pack_blocks(to, &p->w.form, p->type, data, n, k);
            to += qn_panel_bytes(&p->w.form, k);
        }
        if (p->done)
            p->done(p->ctx, p->from[i].data, rows * bytes);
    }
    return QN_OK;
}

/* A product reads panels from end to end. */
static qn_status check_whole(const qn_node *node, const qn_array *panels)
{
    if (panels->row_contiguous)
        return QN_OK;
    return qn_fail(QN_E_ARG,
                   "[%s] Expected panels in one piece, as packing "
                   "made them, found a view.",
                   qn_op_info_of(node->op)->name);
}

/* ---- rows of panels ---- */

/* A row of w, unpacked, with factors as floats. */
typedef struct w_row {
    size_t k, groups;
    uint8_t *codes; /* or values of a table */
    float *scales, *biases;
} w_row;

static qn_status w_row_new(w_row *row, const qn_panel_params *p)
{
    row->k = (size_t)p->cols;
    row->groups = row->k / (size_t)p->form.group;
    row->codes = qn_calloc(row->k, 1);
    row->scales = qn_calloc(row->groups, sizeof(float));
    row->biases = qn_calloc(row->groups, sizeof(float));
    return row->codes && row->scales && row->biases ? QN_OK : QN_E_NOMEM;
}

static void w_row_free(w_row *row)
{
    qn_free(row->codes);
    qn_free(row->scales);
    qn_free(row->biases);
}

static void w_row_load(w_row *row, const qn_panel_params *p,
                       const uint8_t *panels, size_t at)
{
    qn_panel_unpack(row->codes, row->scales, row->biases,
                    panels +
                        at / QN_PANEL_ROWS * qn_panel_bytes(&p->form, row->k),
                    &p->form, row->k, at % QN_PANEL_ROWS);
}

qn_status qn_ref_panel_rows(qn_node *node)
{
    const qn_panel_params *p = node->params;
    const qn_array *ids = node->inputs[1];
    qn_array *out = node->outputs[0];
    w_row row = {0};
    qn_status status = check_whole(node, node->inputs[0]);
    if (!status)
        status = qn_array_alloc(out);
    if (!status)
        status = w_row_new(&row, p);
    float *values = qn_calloc((size_t)p->cols, sizeof *values);
    int32_t *list = qn_calloc(ids->size, sizeof *list);
    if (!status && (!values || !list))
        status = QN_E_NOMEM;
    if (!status) {
        qn_plan plan;
        qn_walk walk;
        int64_t strides[QN_MAX_NDIM];
        qn_row_strides(strides, ids->shape, ids->ndim);
        qn_plan_make(&plan, ids->shape, ids->ndim,
                     (const int64_t *[]){strides, ids->strides}, 2);
        for (qn_walk_start(&walk, &plan, 0, plan.nruns); walk.left;
             qn_walk_next(&walk))
            qn_ref_copy_run(list + walk.offsets[0], plan.step[0],
                            qn_element(ids, walk.offsets[1]), plan.step[1],
                            plan.run, sizeof *list);
    }
    for (size_t i = 0; i < ids->size && !status; i++) {
        int64_t id = list[i];
        if (ids->dtype == QN_UINT32)
            id = (int64_t)(uint32_t)list[i];
        if (id < 0 && ids->dtype == QN_INT32)
            id += p->rows[0];
        if (id < 0 || id >= p->rows[0]) {
            status = qn_fail(QN_E_ARG,
                             "[panel_rows] Expected an index from 0 to %d, "
                             "found %lld.",
                             p->rows[0] - 1, (long long)id);
            break;
        }
        w_row_load(&row, p, qn_array_data(node->inputs[0]), (size_t)id);
        for (size_t e = 0; e < row.k; e++) {
            size_t g = e / (size_t)p->form.group;
            values[e] =
                p->form.biased
                    ? (float)row.codes[e] * row.scales[g] + row.biases[g]
                    : (float)((int)row.codes[e] - p->form.zero) * row.scales[g];
        }
        qn_floats_store(qn_element(out, (int64_t)(i * row.k)), out->dtype, 1,
                        values, row.k);
    }
    qn_free(values);
    qn_free(list);
    w_row_free(&row);
    return status;
}

/* ---- products ---- */

typedef struct x_row {
    float *values;
    int *q;
    float *d; /* for each step */
} x_row;

static void norm(float *x, size_t k, const float *weight, float eps)
{
    double square = 0;
    for (size_t i = 0; i < k; i++)
        square += (double)x[i] * (double)x[i];
    double factor = 1 / sqrt(square / (double)k + (double)eps);
    for (size_t i = 0; i < k; i++)
        x[i] = (float)((double)x[i] * factor * (double)weight[i]);
}

static void quantize(x_row *x, size_t k, const qn_panel_form *form)
{
    const float most = qn_panel_top(form);
    for (size_t e = 0; e < k; e += QN_PANEL_STEP) {
        const float *v = x->values + e;
        float top = 0;
        bool finite = true;
        for (size_t i = 0; i < QN_PANEL_STEP; i++) {
            finite &= isfinite(v[i]) != 0;
            top = fmaxf(top, fabsf(v[i]));
        }
        bool some = finite && top >= QN_PANEL_TINY;
        x->d[e / QN_PANEL_STEP] = !finite ? NAN : some ? top / most : 0.0f;
        for (size_t i = 0; i < QN_PANEL_STEP; i++)
            x->q[e + i] = some ? (int)rintf(v[i] * (most / top)) : 0;
    }
}

static float dot(const x_row *x, const w_row *w, const qn_panel_form *f)
{
    float acc = 0;
    size_t unit = qn_panel_unit(f);
    for (size_t e = 0; e < w->k; e += unit) {
        int sum = 0, plain = 0;
        for (size_t i = e; i < e + unit; i++) {
            sum += (f->biased ? w->codes[i] : w->codes[i] - f->zero) * x->q[i];
            plain += x->q[i];
        }
        size_t g = e / (size_t)f->group;
        float d = x->d[e / QN_PANEL_STEP], factor = w->scales[g] * d;
        acc = fmaf((float)sum, factor, acc);
        if (f->biased)
            acc = fmaf(w->biases[g], d * (float)plain, acc);
    }
    return acc;
}

/* Row `row` of x, as it goes into the products. */
static void x_row_load(x_row *x, const qn_node *node, const float *weight,
                       int64_t offset)
{
    const qn_panel_matmul_params *p = node->params;
    const qn_array *in = node->inputs[0];
    size_t k = (size_t)p->w.cols;
    qn_floats_load(x->values, in->dtype, qn_element(in, offset),
                   in->strides[in->ndim - 1], k);
    if (weight)
        norm(x->values, k, weight, p->eps);
    quantize(x, k, &p->w.form);
}

/* All products of a row of x: parts[i] has rows[i] numbers. */
static void multiply(float *parts[QN_PANEL_PARTS], const x_row *x, w_row *w,
                     const qn_panel_params *p, const uint8_t *panels)
{
    size_t first = 0;
    for (int i = 0; i < p->count; i++) {
        for (size_t n = 0; n < (size_t)p->rows[i]; n++) {
            w_row_load(w, p, panels, first + n);
            parts[i][n] = dot(x, w, &p->form);
        }
        first += qn_panel_count(p->rows[i]) * QN_PANEL_ROWS;
    }
}

static void gate(float *x, const float *up, int n, qn_panel_gate kind)
{
    for (int i = 0; i < n; i++) {
        double g = (double)x[i], u = g;
        if (kind == QN_GATE_GELU)
            u = 2 * sqrt(2 / acos(-1.0)) * (g + 0.044715 * g * g * g);
        x[i] = (float)(g / (1 + exp(-u)) * (double)up[i]);
    }
}

static void add_residual(float *x, const qn_array *residual, int64_t offset,
                         int n)
{
    for (int i = 0; i < n; i++) {
        float r;
        qn_floats_load(
            &r, residual->dtype,
            qn_element(residual,
                       offset + i * residual->strides[residual->ndim - 1]),
            1, 1);
        x[i] = r + x[i];
    }
}

qn_status qn_ref_panel_matmul(qn_node *node)
{
    const qn_panel_matmul_params *p = node->params;
    const qn_array *x = node->inputs[0];
    const qn_array *residual =
        p->has_residual ? node->inputs[2 + p->has_norm] : x;
    size_t k = (size_t)p->w.cols;
    w_row w = {0};
    x_row row = {.values = qn_calloc(k, sizeof(float)),
                 .q = qn_calloc(k, sizeof(int)),
                 .d = qn_calloc(k / QN_PANEL_STEP, sizeof(float))};
    float *weight = qn_calloc(k, sizeof *weight), *parts[QN_PANEL_PARTS] = {0};
    qn_status status = check_whole(node, node->inputs[1]);
    if (!status)
        status = w_row_new(&w, &p->w);
    for (int i = 0; i < p->w.count && !status; i++) {
        parts[i] = qn_calloc((size_t)p->w.rows[i], sizeof(float));
        status = parts[i] ? QN_OK : QN_E_NOMEM;
    }
    for (int i = 0; i < node->noutputs && !status; i++)
        status = qn_array_alloc(node->outputs[i]);
    if (!status && (!row.values || !row.q || !row.d || !weight))
        status = QN_E_NOMEM;
    if (status)
        goto done;
    if (p->has_norm) {
        const qn_array *given = node->inputs[2];
        qn_floats_load(weight, given->dtype, qn_array_data(given),
                       given->strides[0], k);
    }
    qn_lines lines;
    qn_walk walk;
    qn_lines_make(&lines, x->shape, x->ndim, x->ndim - 1,
                  (const int64_t *[]){x->strides, residual->strides}, 2);
    int64_t at = 0;
    for (qn_walk_start(&walk, &lines.outer, 0, lines.outer.nruns); walk.left;
         qn_walk_next(&walk), at++) {
        x_row_load(&row, node, p->has_norm ? weight : NULL, walk.offsets[0]);
        multiply(parts, &row, &w, &p->w, qn_array_data(node->inputs[1]));
        if (p->gate)
            gate(parts[0], parts[1], p->w.rows[0], p->gate);
        if (p->has_residual)
            add_residual(parts[0], residual, walk.offsets[1], p->w.rows[0]);
        for (int i = 0; i < node->noutputs; i++)
            qn_floats_store(qn_element(node->outputs[i], at * p->w.rows[i]),
                            x->dtype, 1, parts[i], (size_t)p->w.rows[i]);
    }
done:
    for (int i = 0; i < QN_PANEL_PARTS; i++)
        qn_free(parts[i]);
    qn_free(row.values);
    qn_free(row.q);
    qn_free(row.d);
    qn_free(weight);
    w_row_free(&w);
    return status;
}
