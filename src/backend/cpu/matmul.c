/* matmul.c: matrix products, dense and packed, over the rowdot kernels.
 *
 * Both are brought to one form, out = x w^T with the rows of w contiguous
 * along K: a packed matrix with `transpose` is stored so, and so is the
 * transposed view of a linear layer's weight.  A dense right side that is
 * contiguous along N is transposed into memory of ours first.  x is prepared
 * once (float32, padded, in the order of the format), columns are then
 * shared among the threads.
 *
 * Each output element is one sum in an order that depends on K and the format
 * alone. */
#include "cpu.h"

#include "backend/common/plan.h"
#include "kernels/rowdot/rowdot.h"
#include "ops/params.h"
#include "pool.h"

#include <string.h>

/* Bytes of packed weights below which a range of columns is not split. */
enum { GRAIN_BYTES = 48 * 1024 };

typedef struct columns_job {
    const qn_rowdot_kernel *kernel;
    const qn_rowdot *dot;
    char *scratch;
    size_t scratch_stride;
} columns_job;

static void run_columns(void *ctx, size_t begin, size_t end, int worker)
{
    const columns_job *job = ctx;
    void *scratch = job->scratch + (size_t)worker * job->scratch_stride;
    job->kernel->run(job->dot, begin, end, scratch);
}

typedef struct prepare_job {
    const qn_rowdot_kernel *kernel;
    qn_row_format format;
    float *dst;
    size_t padded, k;
    const char *src;
    int64_t src_stride; /* bytes */
    qn_dtype type;
} prepare_job;

static void prepare_rows(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    const prepare_job *job = ctx;
    for (size_t m = begin; m < end; m++) {
        float *dst = job->dst + m * job->padded;
        const char *src = job->src + (int64_t)m * job->src_stride;
        if (job->type == QN_FLOAT32) {
            job->kernel->prepare(dst, (const float *)(const void *)src, job->k,
                                 job->format);
            continue;
        }
        /* The row of the output serves as the place for the widened one when
         * the order is natural; else a block at a time goes through the stack.
         */
        if (job->kernel->natural(job->format)) {
            qn_cpu_widen(dst, src, job->k, job->type);
            memset(dst + job->k, 0, (job->padded - job->k) * sizeof *dst);
            continue;
        }
        float block[256];
        for (size_t i = 0; i < job->k; i += 256) {
            size_t n = job->k - i < 256 ? job->k - i : 256;
            qn_cpu_widen(block, src + i * 2, n, job->type);
            job->kernel->prepare(dst + i, block, n, job->format);
        }
    }
}

/* One product: fills in x, out and the shape, and runs it. */
typedef struct product {
    qn_rowdot dot; /* k, n and everything about w */
    const char *a;
    int64_t a_row; /* elements */
    qn_dtype a_type, out_type;
    size_t m;
    char *out; /* [m, n] */
} product;

static qn_status multiply(const product *p)
{
    const qn_rowdot_kernel *kernel = qn_rowdot_pick();
    qn_rowdot dot = p->dot;
    size_t padded = qn_rowdot_padded(dot.k), item = qn_dtype_size(p->a_type);
    qn_buffer *x = NULL, *wide = NULL, *scratch = NULL;
    qn_status status;
    dot.m = p->m;
    bool as_is = p->a_type == QN_FLOAT32 && padded == dot.k &&
                 kernel->natural(dot.format) && p->a_row > 0;
    if (as_is) {
        dot.x = (const float *)(const void *)p->a;
        dot.x_stride = (size_t)p->a_row;
    } else {
        status = qn_buffer_new(&x, p->m * padded * sizeof(float));
        if (status)
            goto done;
        prepare_job job = {.kernel = kernel,
                           .format = dot.format,
                           .dst = x->data,
                           .padded = padded,
                           .k = dot.k,
                           .src = p->a,
                           .src_stride = p->a_row * (int64_t)item,
                           .type = p->a_type};
        qn_pool_split(prepare_rows, &job, p->m, 64, 1);
        dot.x = x->data;
        dot.x_stride = padded;
    }
    if (p->out_type == QN_FLOAT32) {
        dot.out = (float *)(void *)p->out;
    } else {
        status = qn_buffer_new(&wide, p->m * dot.n * sizeof(float));
        if (status)
            goto done;
        dot.out = wide->data;
    }
    dot.out_stride = dot.n;
    columns_job job = {.kernel = kernel, .dot = &dot};
    status = qn_cpu_scratch(&scratch, (size_t)qn_pool_threads(),
                            qn_rowdot_scratch(dot.k) * sizeof(float),
                            &job.scratch_stride);
    if (status)
        goto done;
    job.scratch = scratch->data;
    size_t grain = QN_ROWDOT_ROWS;
    size_t row_bytes = dot.w_stride ? dot.w_stride : 1;
    if (p->m < 8 && GRAIN_BYTES / row_bytes > grain)
        grain = GRAIN_BYTES / row_bytes / QN_ROWDOT_ROWS * QN_ROWDOT_ROWS;
    qn_pool_split(run_columns, &job, dot.n, grain, QN_ROWDOT_ROWS);
    if (wide)
        qn_cpu_narrow(p->out, wide->data, p->m * dot.n, p->out_type);
    status = QN_OK;
done:
    if (x)
        qn_buffer_unref(x);
    if (wide)
        qn_buffer_unref(wide);
    if (scratch)
        qn_buffer_unref(scratch);
    return status;
}

static bool narrow_float(qn_dtype type)
{
    return type == QN_FLOAT32 || type == QN_FLOAT16 || type == QN_BFLOAT16;
}

/* [k, n] with contiguous rows to [n, padded] floats, a block of columns at a
 * time. */
typedef struct transpose_job {
    float *dst;
    const char *src;
    int64_t k_stride, n_stride; /* elements */
    size_t k, padded;
    qn_dtype type;
} transpose_job;

static float element(const char *p, int64_t i, qn_dtype type)
{
    float value;
    qn_cpu_widen(&value, p + i * (int64_t)qn_dtype_size(type), 1, type);
    return value;
}

static void transpose_columns(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    const transpose_job *job = ctx;
    enum { TILE = 16 };
    for (size_t n0 = begin; n0 < end; n0 += TILE) {
        size_t n1 = end - n0 < TILE ? end : n0 + TILE;
        for (size_t k = 0; k < job->k; k++) {
            int64_t row = (int64_t)k * job->k_stride;
            if (job->type == QN_FLOAT32) {
                const float *src = (const float *)(const void *)job->src + row;
                for (size_t n = n0; n < n1; n++)
                    job->dst[n * job->padded + k] =
                        src[(int64_t)n * job->n_stride];
            } else {
                for (size_t n = n0; n < n1; n++)
                    job->dst[n * job->padded + k] = element(
                        job->src, row + (int64_t)n * job->n_stride, job->type);
            }
        }
        for (size_t n = n0; n < n1; n++)
            memset(job->dst + n * job->padded + job->k, 0,
                   (job->padded - job->k) * sizeof(float));
    }
}

/* Sets up w of `dot` from the right side b [k, n] at `data`. */
static qn_status dense_weights(qn_rowdot *dot, qn_buffer **held,
                               const qn_array *b, const char *data)
{
    int64_t k_stride = b->strides[b->ndim - 2];
    int64_t n_stride = b->strides[b->ndim - 1];
    size_t item = qn_array_itemsize(b);
    if ((k_stride == 1 || dot->k == 1) && n_stride > 0) {
        dot->format = b->dtype == QN_FLOAT32   ? QN_ROW_F32
                      : b->dtype == QN_FLOAT16 ? QN_ROW_F16
                                               : QN_ROW_BF16;
        dot->w = (const uint8_t *)data;
        dot->w_stride = (size_t)n_stride * item;
        return QN_OK;
    }
    size_t padded = qn_rowdot_padded(dot->k);
    qn_status status = qn_buffer_new(held, dot->n * padded * sizeof(float));
    if (status)
        return status;
    transpose_job job = {.dst = (*held)->data,
                         .src = data,
                         .k_stride = k_stride,
                         .n_stride = n_stride,
                         .k = dot->k,
                         .padded = padded,
                         .type = b->dtype};
    qn_pool_split(transpose_columns, &job, dot->n, 64, 16);
    dot->format = QN_ROW_F32;
    dot->w = (*held)->data;
    dot->w_stride = padded * sizeof(float);
    return QN_OK;
}

/* The rows of a must be contiguous along K for the kernels. */
static bool rows_contiguous(const qn_array *a)
{
    return a->ndim >= 2 &&
           (a->strides[a->ndim - 1] == 1 || a->shape[a->ndim - 1] == 1);
}

qn_status qn_cpu_matmul(qn_node *node, bool *done)
{
    qn_array *a = node->inputs[0], *b = node->inputs[1];
    qn_array *out = node->outputs[0];
    if (!narrow_float(a->dtype) || !out->size || !a->size ||
        !rows_contiguous(a))
        return QN_OK;
    qn_status status = qn_array_alloc(out);
    if (status)
        return status;
    *done = true;
    qn_matmul_plan plan;
    qn_matmul_plan_make(&plan, (const qn_array *const[]){out, a, b}, 3);
    size_t item = qn_array_itemsize(a);
    for (size_t i = 0; i < plan.outer.nruns; i++) {
        int64_t offsets[QN_PLAN_OPERANDS];
        qn_plan_offsets(&plan.outer, i, offsets);
        product p = {.dot = {.n = (size_t)out->shape[out->ndim - 1],
                             .k = (size_t)a->shape[a->ndim - 1]},
                     .a = (char *)qn_array_data(a) + offsets[1] * (int64_t)item,
                     .a_row = plan.a_row,
                     .a_type = a->dtype,
                     .out_type = out->dtype,
                     .m = plan.m,
                     .out = (char *)qn_array_data(out) +
                            offsets[0] * (int64_t)item};
        qn_buffer *held = NULL;
        const char *right =
            (char *)qn_array_data(b) + offsets[2] * (int64_t)item;
        status = dense_weights(&p.dot, &held, b, right);
        if (!status)
            status = multiply(&p);
        if (held)
            qn_buffer_unref(held);
        if (status)
            return status;
    }
    return QN_OK;
}

static qn_row_format packed_format(int bits)
{
    switch (bits) {
    case 2:
        return QN_ROW_Q2;
    case 3:
        return QN_ROW_Q3;
    case 4:
        return QN_ROW_Q4;
    case 5:
        return QN_ROW_Q5;
    case 6:
        return QN_ROW_Q6;
    default:
        return QN_ROW_Q8;
    }
}

qn_status qn_cpu_quantized_matmul(qn_node *node, bool *done)
{
    const qn_quant_params *q = node->params;
    qn_array *x = node->inputs[0], *w = node->inputs[1];
    qn_array *out = node->outputs[0];
    if (q->mode != QN_QUANT_AFFINE || !q->transpose || q->has_global_scale ||
        node->ninputs != 4 || !out->size || !x->size)
        return QN_OK;
    qn_array *scales = node->inputs[2], *biases = node->inputs[3];
    if (!narrow_float(x->dtype) || !narrow_float(out->dtype) ||
        !narrow_float(scales->dtype) || !narrow_float(biases->dtype) ||
        !rows_contiguous(x) || !rows_contiguous(w) ||
        !rows_contiguous(scales) || !rows_contiguous(biases))
        return QN_OK;
    int last = w->ndim - 2;
    if (w->strides[last] < 0 || scales->strides[last] < 0 ||
        biases->strides[last] < 0)
        return QN_OK;
    qn_status status = qn_array_alloc(out);
    if (status)
        return status;
    *done = true;
    qn_matmul_plan plan;
    qn_matmul_plan_make(
        &plan, (const qn_array *const[]){out, x, w, scales, biases}, 5);
    for (size_t i = 0; i < plan.outer.nruns; i++) {
        int64_t at[QN_PLAN_OPERANDS];
        qn_plan_offsets(&plan.outer, i, at);
        product p = {
            .dot = {.n = (size_t)out->shape[out->ndim - 1],
                    .k = (size_t)x->shape[x->ndim - 1],
                    .format = packed_format(q->bits),
                    .w = (const uint8_t *)qn_array_data(w) + at[2] * 4,
                    .w_stride = (size_t)w->strides[last] * 4,
                    .group = q->group_size,
                    .scale_type = scales->dtype,
                    .bias_type = biases->dtype,
                    .scales = (const uint8_t *)qn_array_data(scales) +
                              at[3] * (int64_t)qn_array_itemsize(scales),
                    .biases = (const uint8_t *)qn_array_data(biases) +
                              at[4] * (int64_t)qn_array_itemsize(biases),
                    .scale_stride = (size_t)scales->strides[last],
                    .bias_stride = (size_t)biases->strides[last]},
            .a = (char *)qn_array_data(x) +
                 at[1] * (int64_t)qn_array_itemsize(x),
            .a_row = plan.a_row,
            .a_type = x->dtype,
            .out_type = out->dtype,
            .m = plan.m,
            .out = (char *)qn_array_data(out) +
                   at[0] * (int64_t)qn_array_itemsize(out)};
        status = multiply(&p);
        if (status)
            return status;
    }
    return QN_OK;
}
