/* quant.c: packed weights.  The formats are in backend/common/quant.h.
 *
 * Products are formed in float from the values of the packed matrix, whatever
 * the dtypes of x, scales and biases, in an order that depends on K alone: a
 * row has the bits that it would have alone. */
#include "loops.h"
#include "stage.h"

#include "backend/common/quant.h"
#include "base/alloc.h"

#include <string.h>

enum { LARGEST_GROUP = 128 };

/* A packed array [..., rows, words] with its scales, read row by row. */
typedef struct packed {
    const qn_quant_params *p;
    const qn_array *w, *scales, *biases; /* biases: NULL for most modes */
    float global;
    size_t columns; /* elements of a row */
    size_t words;   /* of a row */
    uint32_t *row;  /* room for `words` */
} packed;

static float global_scale_of(const qn_node *node)
{
    const qn_quant_params *p = node->params;
    float scale = 0;
    if (p->has_global_scale) {
        const qn_array *g = node->inputs[node->ninputs - 1];
        qn_floats_load(&scale, g->dtype, qn_array_data(g), 1, 1);
    }
    return scale;
}

/* Inputs from `first` on are w, scales and, for affine, biases. */
static qn_status packed_open(packed *out, const qn_node *node, int first)
{
    const qn_quant_params *p = node->params;
    packed m = {.p = p, .w = node->inputs[first]};
    if (p->group_size < 1 || p->group_size > LARGEST_GROUP)
        return qn_fail(QN_E_UNSUPPORTED, "[%s] group size %d",
                       qn_op_info_of(node->op)->name, p->group_size);
    m.scales = node->inputs[first + 1];
    if (p->mode == QN_QUANT_AFFINE)
        m.biases = node->inputs[first + 2];
    m.global = qn_quant_global(global_scale_of(node));
    m.words = (size_t)m.w->shape[m.w->ndim - 1];
    m.columns = m.words * 32 / (size_t)p->bits;
    m.row = qn_calloc(m.words, sizeof *m.row);
    if (!m.row)
        return QN_E_NOMEM;
    *out = m;
    return QN_OK;
}

/* Values of group `g` of a row, from its codes. */
static void group_values(const packed *m, float *values, const uint8_t *codes,
                         size_t g, int64_t scale_at, int64_t bias_at)
{
    size_t n = (size_t)m->p->group_size;
    int64_t by = m->scales->strides[m->scales->ndim - 1];
    const void *at = qn_element(m->scales, scale_at + (int64_t)g * by);
    if (m->p->mode != QN_QUANT_AFFINE) {
        float s = qn_quant_scale(m->p->mode, *(const uint8_t *)at) * m->global;
        qn_quant_values(values, codes, n, m->p->mode);
        for (size_t i = 0; i < n; i++)
            values[i] *= s;
        return;
    }
    float s, b;
    by = m->biases->strides[m->biases->ndim - 1];
    qn_floats_load(&s, m->scales->dtype, at, 1, 1);
    qn_floats_load(&b, m->biases->dtype,
                   qn_element(m->biases, bias_at + (int64_t)g * by), 1, 1);
    for (size_t i = 0; i < n; i++)
        values[i] = (float)codes[i] * s + b;
}

/* A whole row: `at` are the offsets of its first word, scale and bias. */
static void packed_row(const packed *m, float *values, const int64_t *at)
{
    uint8_t codes[LARGEST_GROUP];
    const uint32_t *row = qn_element(m->w, at[0]);
    int64_t step = m->w->strides[m->w->ndim - 1];
    if (step != 1) {
        qn_values_load(m->row, QN_UINT32, row, step, m->words);
        row = m->row;
    }
    size_t group = (size_t)m->p->group_size;
    for (size_t g = 0; g * group < m->columns; g++) {
        qn_quant_unpack(codes, row, g * group, group, m->p->bits);
        group_values(m, values + g * group, codes, g, at[1], at[2]);
    }
}

/* The next row of the same matrix. */
static void packed_next(const packed *m, int64_t *at)
{
    at[0] += m->w->strides[m->w->ndim - 2];
    at[1] += m->scales->strides[m->scales->ndim - 2];
    if (m->biases)
        at[2] += m->biases->strides[m->biases->ndim - 2];
}

qn_status qn_ref_dequantize(qn_node *node)
{
    qn_array *out = node->outputs[0];
    packed m;
    qn_status status = qn_array_alloc(out);
    if (status || !out->size)
        return status;
    status = packed_open(&m, node, 0);
    if (status)
        return status;
    float *values = qn_calloc(m.columns, sizeof *values);
    if (values) {
        qn_lines lines;
        qn_walk walk;
        const qn_array *biases = m.biases ? m.biases : m.scales;
        qn_lines_make(&lines, m.w->shape, m.w->ndim, m.w->ndim - 1,
                      (const int64_t *[]){out->strides, m.w->strides,
                                          m.scales->strides, biases->strides},
                      4);
        for (qn_walk_start(&walk, &lines.outer, 0, lines.outer.nruns);
             walk.left; qn_walk_next(&walk)) {
            packed_row(&m, values, walk.offsets + 1);
            qn_floats_store(qn_element(out, walk.offsets[0]), out->dtype, 1,
                            values, m.columns);
        }
    } else {
        status = QN_E_NOMEM;
    }
    qn_free(values);
    qn_free(m.row);
    return status;
}

/* ---- the product ---- */

typedef struct product {
    packed m;
    size_t rows, n, k;
    float *x;      /* rows * k */
    float *values; /* of one row of the packed matrix */
    float *result; /* rows * n */
    float *part;   /* rows * n, when not transposed */
} product;

/* Row j of the packed matrix makes column j of the result. */
static void multiply_transposed(const product *p, int64_t *at)
{
    for (size_t j = 0; j < p->n; j++, packed_next(&p->m, at)) {
        packed_row(&p->m, p->values, at);
        for (size_t i = 0; i < p->rows; i++)
            p->result[i * p->n + j] =
                qn_ref_dot(p->x + i * p->k, p->values, p->k);
    }
}

/* Row k of the packed matrix goes into every column, times x[k].  Partial
 * sums of SPAN rows keep long sums accurate. */
static void multiply_plain(const product *p, int64_t *at)
{
    enum { SPAN = 256 };
    size_t all = p->rows * p->n;
    memset(p->result, 0, all * sizeof *p->result);
    memset(p->part, 0, all * sizeof *p->part);
    for (size_t k = 0; k < p->k; k++, packed_next(&p->m, at)) {
        packed_row(&p->m, p->values, at);
        for (size_t i = 0; i < p->rows; i++) {
            float x = p->x[i * p->k + k], *part = p->part + i * p->n;
            for (size_t j = 0; j < p->n; j++)
                part[j] += x * p->values[j];
        }
        if ((k + 1) % SPAN && k + 1 < p->k)
            continue;
        for (size_t i = 0; i < all; i++)
            p->result[i] += p->part[i];
        memset(p->part, 0, all * sizeof *p->part);
    }
}

static qn_status product_room(product *p)
{
    size_t xs, results;
    if (!qn_mul_size(&xs, p->rows, p->k) ||
        !qn_mul_size(&results, p->rows, p->n))
        return QN_E_NOMEM;
    p->x = qn_calloc(xs, sizeof *p->x);
    p->values = qn_calloc(p->m.columns, sizeof *p->values);
    p->result = qn_calloc(results, sizeof *p->result);
    p->part = qn_calloc(results, sizeof *p->part);
    return p->x && p->values && p->result && p->part ? QN_OK : QN_E_NOMEM;
}

static void product_free(product *p)
{
    qn_free(p->x);
    qn_free(p->values);
    qn_free(p->result);
    qn_free(p->part);
    qn_free(p->m.row);
}

static void multiply(const product *p, const qn_matmul_plan *plan,
                     const int64_t *offsets, qn_array *out, const qn_array *x)
{
    int64_t at[3] = {offsets[2], offsets[3], offsets[4]};
    for (size_t i = 0; i < p->rows; i++)
        qn_floats_load(p->x + i * p->k, x->dtype,
                       qn_element(x, offsets[1] + (int64_t)i * plan->a_row),
                       x->strides[x->ndim - 1], p->k);
    if (p->m.p->transpose)
        multiply_transposed(p, at);
    else
        multiply_plain(p, at);
    qn_floats_store(qn_element(out, offsets[0]), out->dtype, 1, p->result,
                    p->rows * p->n);
}

qn_status qn_ref_quantized_matmul(qn_node *node)
{
    const qn_array *x = node->inputs[0];
    qn_array *out = node->outputs[0];
    product p = {0};
    qn_matmul_plan plan;
    qn_status status = qn_array_alloc(out);
    if (status || !out->size)
        return status;
    status = packed_open(&p.m, node, 1);
    if (status)
        return status;
    const qn_array *biases = p.m.biases ? p.m.biases : p.m.scales;
    qn_matmul_plan_make(
        &plan, (const qn_array *[]){out, x, p.m.w, p.m.scales, biases}, 5);
    p.rows = plan.m;
    p.n = (size_t)out->shape[out->ndim - 1];
    p.k = (size_t)x->shape[x->ndim - 1];
    status = product_room(&p);
    if (!status) {
        qn_walk walk;
        for (qn_walk_start(&walk, &plan.outer, 0, plan.outer.nruns); walk.left;
             qn_walk_next(&walk))
            multiply(&p, &plan, walk.offsets, out, x);
    }
    product_free(&p);
    return status;
}

/* ---- the product of chosen matrices ---- */

qn_status qn_ref_gather_qmm(qn_node *node)
{
    const qn_array *x = node->inputs[0];
    const qn_array *ix = node->inputs[node->ninputs - 2];
    const qn_array *iw = node->inputs[node->ninputs - 1];
    qn_array *out = node->outputs[0];
    product p = {0};
    qn_status status = qn_array_alloc(out);
    if (!status)
        status = packed_open(&p.m, node, 1);
    if (status)
        return status;
    p.rows = (size_t)x->shape[x->ndim - 2];
    p.n = (size_t)out->shape[out->ndim - 1];
    p.k = (size_t)x->shape[x->ndim - 1];
    status = product_room(&p);
    qn_matmul_plan one = {.m = p.rows, .a_row = x->strides[x->ndim - 2]};
    qn_plan plan;
    qn_walk walk;
    int64_t at[5] = {0};
    qn_plan_make(&plan, ix->shape, ix->ndim,
                 (const int64_t *[]){ix->strides, iw->strides}, 2);
    qn_plan_points(&plan);
    for (qn_walk_start(&walk, &plan, 0, status ? 0 : plan.nruns);
         walk.left && !status; qn_walk_next(&walk)) {
        status = qn_ref_matrix_at(&at[1], "gather_qmm", x, ix, walk.offsets[0]);
        if (!status)
            status = qn_ref_packed_at(at + 2, node, iw, walk.offsets[1]);
        if (!status && out->size)
            multiply(&p, &one, at, out, x);
        at[0] += (int64_t)(p.rows * p.n);
    }
    product_free(&p);
    return status;
}

qn_status qn_ref_packed_at(int64_t at[3], const qn_node *node,
                           const qn_array *indices, int64_t place)
{
    const qn_quant_params *p = node->params;
    qn_status status =
        qn_ref_matrix_at(&at[0], "gather_qmm", node->inputs[1], indices, place);
    if (!status)
        status = qn_ref_matrix_at(&at[1], "gather_qmm", node->inputs[2],
                                  indices, place);
    at[2] = at[1];
    if (!status && p->mode == QN_QUANT_AFFINE)
        status = qn_ref_matrix_at(&at[2], "gather_qmm", node->inputs[3],
                                  indices, place);
    return status;
}

/* ---- packing ---- */

/* Where the parts of one row go. */
typedef struct packed_out {
    uint32_t *row;
    char *scales, *biases;
} packed_out;

static void quantize_row(const qn_node *node, const float *w, uint8_t *codes,
                         size_t n, packed_out to, float global)
{
    const qn_quant_params *p = node->params;
    const qn_array *scales = node->outputs[1];
    size_t group = (size_t)p->group_size, size = qn_array_itemsize(scales);
    for (size_t g = 0; g * group < n; g++) {
        const float *from = w + g * group;
        uint8_t *code = codes + g * group;
        if (p->mode != QN_QUANT_AFFINE) {
            qn_quant_float_group(code, (uint8_t *)to.scales + g, from, group,
                                 p->mode, global);
            continue;
        }
        float scale, bias;
        qn_quant_affine_group(code, &scale, &bias, from, group, p->bits);
        qn_floats_store(to.scales + g * size, scales->dtype, 1, &scale, 1);
        qn_floats_store(to.biases + g * size, scales->dtype, 1, &bias, 1);
    }
    qn_quant_pack(to.row, codes, n, p->bits);
}

qn_status qn_ref_quantize(qn_node *node)
{
    const qn_quant_params *p = node->params;
    const qn_array *w = node->inputs[0];
    qn_status status = QN_OK;
    for (int i = 0; i < node->noutputs && !status; i++)
        status = qn_array_alloc(node->outputs[i]);
    if (status || !w->size)
        return status;
    size_t n = (size_t)w->shape[w->ndim - 1];
    float *row = qn_calloc(n, sizeof *row);
    uint8_t *codes = qn_alloc(n);
    if (!row || !codes) {
        qn_free(row);
        qn_free(codes);
        return QN_E_NOMEM;
    }
    qn_array *scales = node->outputs[1];
    size_t scale_bytes = n / (size_t)p->group_size * qn_array_itemsize(scales);
    packed_out to = {qn_array_data(node->outputs[0]), qn_array_data(scales),
                     NULL};
    if (p->mode == QN_QUANT_AFFINE)
        to.biases = qn_array_data(node->outputs[2]);
    float global = global_scale_of(node);
    qn_lines lines;
    qn_walk walk;
    qn_lines_make(&lines, w->shape, w->ndim, w->ndim - 1,
                  (const int64_t *[]){w->strides}, 1);
    for (qn_walk_start(&walk, &lines.outer, 0, lines.outer.nruns); walk.left;
         qn_walk_next(&walk)) {
        qn_floats_load(row, w->dtype, qn_element(w, walk.offsets[0]),
                       lines.step[0], n);
        quantize_row(node, row, codes, n, to, global);
        to.row += n * (size_t)p->bits / 32;
        to.scales += scale_bytes;
        if (to.biases)
            to.biases += scale_bytes;
    }
    qn_free(row);
    qn_free(codes);
    return QN_OK;
}

/* ---- packing and unpacking at once ---- */

void qn_ref_requantize_lines(const qn_node *node, size_t first, size_t count,
                             float *row)
{
    const qn_quant_params *p = node->params;
    const qn_array *x = node->inputs[0], *out = node->outputs[0];
    size_t n = (size_t)x->shape[x->ndim - 1], group = (size_t)p->group_size;
    float global = global_scale_of(node), factor = qn_quant_global(global);
    qn_lines lines;
    qn_walk walk;
    qn_lines_make(&lines, x->shape, x->ndim, x->ndim - 1,
                  (const int64_t *[]){out->strides, x->strides}, 2);
    for (qn_walk_start(&walk, &lines.outer, first, count); walk.left;
         qn_walk_next(&walk)) {
        qn_floats_load(row, x->dtype, qn_element(x, walk.offsets[1]),
                       lines.step[1], n);
        for (size_t g = 0; g < n; g += group) {
            uint8_t codes[LARGEST_GROUP], scale;
            qn_quant_float_group(codes, &scale, row + g, group, p->mode,
                                 global);
            float s = qn_quant_scale(p->mode, scale) * factor;
            qn_quant_values(row + g, codes, group, p->mode);
            for (size_t i = 0; i < group; i++)
                row[g + i] *= s;
        }
        qn_floats_store(qn_element(out, walk.offsets[0]), out->dtype,
                        lines.step[0], row, n);
    }
}

qn_status qn_ref_requantize(qn_node *node)
{
    qn_array *out = node->outputs[0];
    qn_status status = qn_array_alloc(out);
    if (status || !out->size)
        return status;
    size_t n = (size_t)out->shape[out->ndim - 1];
    float *row = qn_calloc(n, sizeof *row);
    if (!row)
        return QN_E_NOMEM;
    qn_ref_requantize_lines(node, 0, out->size / n, row);
    qn_free(row);
    return QN_OK;
}
