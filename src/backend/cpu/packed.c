/* packed.c: products with packed matrices, and unpacking. */
#include "packed.h"

#include "backend/common/quant.h"
#include "backend/cpu/kernels/gemm/gemm.h"
#include "base/alloc.h"
#include "pool.h"

#include <string.h>

enum {
    /* Bytes of packed weights in a range of columns. */
    GRAIN_BYTES = 16 * 1024,
    /* Elements of a copy that is not split. */
    GRAIN_COPY = 16 * 1024,
    /* Rows along K that are unpacked at a time. */
    ROWS = 8
};

static const uint8_t *bytes_at(const qn_array *array, int64_t offset)
{
    return (const uint8_t *)qn_array_data(array) +
           offset * (int64_t)qn_array_itemsize(array);
}

/* From row to row, in elements. */
static size_t row_stride(const qn_array *array)
{
    return (size_t)array->strides[array->ndim - 2];
}

/* ---- what there are kernels for ---- */

/* False for a width that has no kernel. */
static bool packed_format(qn_row_format *out, int bits)
{
    static const qn_row_format formats[] = {
        [2] = QN_ROW_Q2, [3] = QN_ROW_Q3, [4] = QN_ROW_Q4,
        [5] = QN_ROW_Q5, [6] = QN_ROW_Q6, [8] = QN_ROW_Q8};
    if (bits < 2 || bits > 8 || bits == 7)
        return false;
    *out = formats[bits];
    return true;
}

/* Rows whose elements are neighbours, going forwards. */
static bool packed_rows(const qn_array *array)
{
    int last = array->ndim - 1;
    return array->ndim >= 2 &&
           (array->strides[last] == 1 || array->shape[last] == 1) &&
           array->strides[last - 1] >= 0;
}

static bool supported(const qn_quant_params *q, qn_array *const *packed,
                      qn_row_format *format)
{
    if (q->has_global_scale || packed[0]->dtype != QN_UINT32 ||
        !packed_rows(packed[0]) || !packed_rows(packed[1]))
        return false;
    if (q->mode != QN_QUANT_AFFINE)
        return packed[1]->dtype == QN_UINT8;
    return packed_format(format, q->bits) && q->group_size >= 16 &&
           q->group_size % 16 == 0 && qn_cpu_narrow_float(packed[1]->dtype) &&
           qn_cpu_narrow_float(packed[2]->dtype) && packed_rows(packed[2]);
}

bool qn_cpu_packed_open(qn_cpu_packed *p, const qn_quant_params *q,
                        qn_array *const *packed, size_t n, size_t k)
{
    memset(p, 0, sizeof *p);
    if (!supported(q, packed, &p->format))
        return false;
    bool affine = q->mode == QN_QUANT_AFFINE;
    bool direct = affine || q->mode == QN_QUANT_MXFP8;
    if (q->mode == QN_QUANT_MXFP8)
        p->format = QN_ROW_E4M3;
    p->q = q;
    p->w = packed[0];
    p->scales = packed[1];
    p->biases = affine ? packed[2] : NULL;
    p->kernel = qn_rowdot_pick();
    p->direct = direct && q->transpose;
    p->n = n;
    p->k = k;
    p->step = q->transpose ? QN_ROWDOT_ROWS : QN_GEMM_COLUMNS;
    /* Unpacked columns are whole groups. */
    if (!q->transpose && p->step < (size_t)q->group_size)
        p->step = (size_t)q->group_size;
    return true;
}

/* ---- unpacking ---- */

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Exponent and fraction go where a float has them; the smallest numbers, whose
 * fraction has no leading 1, are multiples of the first. */
static inline float e4m3(uint32_t code)
{
    uint32_t size = code & 127;
    float value = size < 8 ? (float)size * 0x1p-9f
                           : float_of((size << 20) + (120u << 23));
    return code & 128 ? -value : value;
}

static inline float scale_of(qn_quant_mode mode, uint8_t code)
{
    if (mode == QN_QUANT_NVFP4)
        return e4m3(code);
    return code && code < 255 ? float_of((uint32_t)code << 23)
                              : qn_e8m0_to_f32(code);
}

/* Elements first .. first + count - 1 of the packed row that begins at these
 * elements, all whole groups, in their natural order.  `factors` has room for
 * 2 floats per group. */
static void unpack(const qn_cpu_packed *p, float *dst, const int64_t *at,
                   size_t first, size_t count, float *factors)
{
    const qn_quant_params *q = p->q;
    size_t skip = first / (size_t)q->group_size;
    size_t groups = count / (size_t)q->group_size;
    const uint8_t *w = bytes_at(p->w, at[0]) + first * (size_t)q->bits / 8;
    const uint8_t *scales = bytes_at(p->scales, at[1] + (int64_t)skip);
    if (!p->biases) {
        for (size_t g = 0; g < groups; g++)
            factors[g] = scale_of(q->mode, scales[g]);
        p->kernel->unpack_small(dst, w, factors, count, q->group_size, q->bits);
        return;
    }
    const uint8_t *biases = bytes_at(p->biases, at[2] + (int64_t)skip);
    qn_cpu_widen(factors, scales, groups, p->scales->dtype);
    qn_cpu_widen(factors + groups, biases, groups, p->biases->dtype);
    p->kernel->unpack(dst, w, factors, factors + groups, count, q->group_size,
                      p->format);
}

/* Where a row of the matrix at `at` begins. */
static void row_at(int64_t *to, const qn_cpu_packed *p, const int64_t *at,
                   size_t row)
{
    to[0] = at[0] + (int64_t)(row * row_stride(p->w));
    to[1] = at[1] + (int64_t)(row * row_stride(p->scales));
    to[2] = p->biases ? at[2] + (int64_t)(row * row_stride(p->biases)) : 0;
}

/* ---- a product ---- */

size_t qn_cpu_packed_scratch(const qn_cpu_packed *p)
{
    size_t groups = p->k / (size_t)p->q->group_size + 1;
    if (p->direct)
        return qn_rowdot_scratch(p->k);
    if (p->q->transpose)
        return ROWS * p->k + 2 * groups + qn_rowdot_scratch(p->k);
    return p->step * p->k + 2 * p->step + QN_GEMM_SCRATCH;
}

size_t qn_cpu_packed_grain(const qn_cpu_packed *p, size_t m)
{
    /* Bytes that a column of the result reads. */
    size_t bytes = p->k * (size_t)p->q->bits / 8 + 1;
    size_t columns = m <= 8 ? GRAIN_BYTES / bytes : 0;
    return columns / p->step * p->step + p->step;
}

static void direct_columns(const qn_cpu_packed *p,
                           const qn_cpu_packed_rows *rows, size_t n0, size_t n1,
                           float *scratch)
{
    qn_rowdot dot = {.m = rows->m,
                     .n = p->n,
                     .k = p->k,
                     .x = rows->x,
                     .x_stride = rows->x_stride,
                     .format = p->format,
                     .w = bytes_at(p->w, rows->at[0]),
                     .w_stride = row_stride(p->w) * 4,
                     .group = p->q->group_size,
                     .scale_type = p->scales->dtype,
                     .scales = bytes_at(p->scales, rows->at[1]),
                     .scale_stride = row_stride(p->scales),
                     .out = rows->out,
                     .out_stride = p->n};
    if (p->biases) {
        dot.bias_type = p->biases->dtype;
        dot.biases = bytes_at(p->biases, rows->at[2]);
        dot.bias_stride = row_stride(p->biases);
    }
    p->kernel->run(&dot, n0, n1, scratch);
}

/* Rows of the packed matrix are columns of the result. */
static void unpacked_rows(const qn_cpu_packed *p,
                          const qn_cpu_packed_rows *rows, size_t n0, size_t n1,
                          float *scratch)
{
    float *factors = scratch + ROWS * p->k;
    float *rest = factors + 2 * (p->k / (size_t)p->q->group_size + 1);
    for (size_t n = n0; n < n1; n += ROWS) {
        size_t count = n1 - n < ROWS ? n1 - n : ROWS;
        for (size_t i = 0; i < count; i++) {
            int64_t at[3];
            row_at(at, p, rows->at, n + i);
            unpack(p, scratch + i * p->k, at, 0, p->k, factors);
        }
        qn_rowdot dot = {.m = rows->m,
                         .n = count,
                         .k = p->k,
                         .x = rows->x,
                         .x_stride = rows->x_stride,
                         .format = QN_ROW_F32,
                         .w = (const uint8_t *)scratch,
                         .w_stride = p->k * sizeof(float),
                         .out = rows->out + n,
                         .out_stride = p->n};
        p->kernel->run(&dot, 0, count, rest);
    }
}

/* Rows of the packed matrix run along the result. */
static void unpacked_columns(const qn_cpu_packed *p,
                             const qn_cpu_packed_rows *rows, size_t n0,
                             size_t n1, float *scratch)
{
    float *factors = scratch + p->step * p->k, *rest = factors + 2 * p->step;
    for (size_t n = n0; n < n1; n += p->step) {
        size_t count = n1 - n < p->step ? n1 - n : p->step;
        for (size_t k = 0; k < p->k; k++) {
            int64_t at[3];
            row_at(at, p, rows->at, k);
            unpack(p, scratch + k * count, at, n, count, factors);
        }
        qn_gemm gemm = {.m = rows->m,
                        .n = count,
                        .k = p->k,
                        .a = rows->x,
                        .a_stride = rows->x_stride,
                        .b = scratch,
                        .b_stride = count,
                        .b_type = QN_FLOAT32,
                        .out = rows->out + n,
                        .out_stride = p->n};
        qn_gemm_pick()->run(&gemm, 0, rows->m, 0, count, rest);
    }
}

void qn_cpu_packed_columns(const qn_cpu_packed *p,
                           const qn_cpu_packed_rows *rows, size_t n0, size_t n1,
                           float *scratch)
{
    if (p->direct)
        direct_columns(p, rows, n0, n1, scratch);
    else if (p->q->transpose)
        unpacked_rows(p, rows, n0, n1, scratch);
    else
        unpacked_columns(p, rows, n0, n1, scratch);
}

typedef struct product_job {
    const qn_cpu_packed *p;
    qn_cpu_packed_rows rows;
    char *scratch;
    size_t scratch_stride;
} product_job;

static void run_columns(void *ctx, size_t begin, size_t end, int worker)
{
    const product_job *job = ctx;
    char *scratch = job->scratch + (size_t)worker * job->scratch_stride;
    qn_cpu_packed_columns(job->p, &job->rows, begin, end,
                          (float *)(void *)scratch);
}

static void drop(qn_buffer *buffer)
{
    if (buffer)
        qn_buffer_unref(buffer);
}

/* The rows of `a` times one matrix. */
static qn_status packed_product(product_job *job, const qn_cpu_rows *a,
                                const qn_cpu_result *r)
{
    const qn_cpu_packed *p = job->p;
    qn_cpu_packed_rows *rows = &job->rows;
    qn_buffer *x = NULL, *wide = NULL;
    rows->m = a->m;
    qn_status status =
        qn_cpu_prepare(&rows->x, &rows->x_stride, &x, a,
                       qn_cpu_packed_kernel(p), qn_cpu_packed_format(p));
    if (!status)
        status = qn_cpu_result_floats(&rows->out, &wide, r);
    if (!status) {
        qn_pool_split(run_columns, job, p->n, qn_cpu_packed_grain(p, a->m),
                      p->step);
        qn_cpu_result_finish(r, rows->out);
    }
    drop(x);
    drop(wide);
    return status;
}

qn_status qn_cpu_quantized_matmul(qn_node *node, bool *done)
{
    const qn_quant_params *q = node->params;
    qn_array *x = node->inputs[0], *out = node->outputs[0];
    qn_cpu_packed p;
    if (!out->size || !x->size || x->ndim < 2 ||
        !qn_cpu_narrow_float(x->dtype) || !qn_cpu_narrow_float(out->dtype) ||
        !qn_cpu_packed_open(&p, q, node->inputs + 1,
                            (size_t)out->shape[out->ndim - 1],
                            (size_t)x->shape[x->ndim - 1]))
        return QN_OK;
    product_job job = {.p = &p};
    qn_buffer *scratch;
    qn_status status = qn_cpu_scratch(&scratch, (size_t)qn_pool_threads(),
                                      qn_cpu_packed_scratch(&p) * sizeof(float),
                                      &job.scratch_stride);
    if (status)
        return status;
    job.scratch = scratch->data;
    status = qn_array_alloc(out);
    *done = true;
    const qn_array *biases = p.biases ? p.biases : p.scales;
    qn_matmul_plan plan;
    qn_matmul_plan_make(
        &plan, (const qn_array *const[]){out, x, p.w, p.scales, biases}, 5);
    for (size_t i = 0; i < plan.outer.nruns && !status; i++) {
        int64_t at[QN_PLAN_OPERANDS];
        qn_plan_offsets(&plan.outer, i, at);
        qn_cpu_rows left = qn_cpu_rows_of(x, &plan, at[1]);
        qn_cpu_result r = qn_cpu_result_of(out, &plan, at[0]);
        memcpy(job.rows.at, at + 2, sizeof job.rows.at);
        status = packed_product(&job, &left, &r);
    }
    qn_buffer_unref(scratch);
    return status;
}

/* ---- unpacking ---- */

typedef struct dequantize_job {
    const qn_cpu_packed *p;
    const qn_array *out;
    qn_plan rows;  /* out, w, scales, biases; a point per row */
    char *scratch; /* a row of floats, scales, biases */
    size_t scratch_stride;
} dequantize_job;

static void dequantize_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const dequantize_job *job = ctx;
    const qn_cpu_packed *p = job->p;
    float *row =
        (float *)(void *)(job->scratch + (size_t)worker * job->scratch_stride);
    bool wide = job->out->dtype == QN_FLOAT32;
    qn_walk walk;
    for (qn_walk_start(&walk, &job->rows, begin, end - begin); walk.left;
         qn_walk_next(&walk)) {
        char *out = (char *)qn_array_data(job->out) +
                    walk.offsets[0] * (int64_t)qn_array_itemsize(job->out);
        unpack(p, wide ? (float *)(void *)out : row, walk.offsets + 1, 0, p->k,
               row + p->k);
        if (!wide)
            qn_cpu_narrow(out, row, p->k, job->out->dtype);
    }
}

qn_status qn_cpu_dequantize(qn_node *node, bool *done)
{
    const qn_quant_params *q = node->params;
    qn_array *out = node->outputs[0], *w = node->inputs[0];
    qn_cpu_packed p;
    if (!out->size || !qn_cpu_narrow_float(out->dtype) ||
        !qn_cpu_packed_open(&p, q, node->inputs, 1,
                            (size_t)out->shape[out->ndim - 1]))
        return QN_OK;
    dequantize_job job = {.p = &p, .out = out};
    size_t room = p.k + 2 * (p.k / (size_t)q->group_size);
    qn_buffer *scratch;
    qn_status status =
        qn_cpu_scratch(&scratch, (size_t)qn_pool_threads(),
                       room * sizeof(float), &job.scratch_stride);
    if (status)
        return status;
    job.scratch = scratch->data;
    status = qn_array_alloc(out);
    if (!status) {
        const qn_array *biases = p.biases ? p.biases : p.scales;
        qn_lines lines;
        qn_lines_make(&lines, w->shape, w->ndim, w->ndim - 1,
                      (const int64_t *[]){out->strides, w->strides,
                                          p.scales->strides, biases->strides},
                      4);
        job.rows = lines.outer;
        *done = true;
        qn_pool_split(dequantize_rows, &job, lines.outer.nruns,
                      GRAIN_COPY / p.k + 1, 1);
    }
    qn_buffer_unref(scratch);
    return status;
}
