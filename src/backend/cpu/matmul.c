/* matmul.c: matrix products of dense matrices; packed.c has the packed ones.
 *
 * A right side stored along K (the transposed view of a linear layer's
 * weight) goes to the rowdot kernels; one
 * stored along N to the gemm kernels; any other is copied into rows along K
 * first.  The left side becomes float32 rows as its kernel wants them, then
 * threads share the columns (the rows where columns are few).  Where the
 * processor multiplies bfloat16, two sides of that type stay as they are
 * (kernels/bfdot).
 *
 * Each output element is one sum in an order that depends on K, the format
 * and the layout of the right side alone: not on the other rows, nor on the
 * threads. */
#include "matmul.h"

#include "backend/common/plan.h"
#include "backend/cpu/kernels/bfdot/bfdot.h"
#include "backend/cpu/kernels/gemm/gemm.h"
#include "base/alloc.h"
#include "pool.h"

#include <string.h>

enum {
    /* Bytes of weights in a range of columns: about a microsecond's worth. */
    GRAIN_BYTES = 16 * 1024,
    /* Elements of a copy that is not split. */
    GRAIN_COPY = 16 * 1024,
    BLOCK = 256 /* elements converted at a time */
};

/* Memory for count * each floats. */
static qn_status new_floats(qn_buffer **out, size_t count, size_t each)
{
    size_t bytes;
    if (!qn_mul_size(&bytes, count, each) ||
        !qn_mul_size(&bytes, bytes, sizeof(float)))
        return qn_fail(QN_E_NOMEM, "cpu: %zu x %zu floats", count, each);
    return qn_buffer_new(out, bytes);
}

/* ---- the left side ---- */

/* Element i of a row, counted in elements from its beginning. */
static const char *left_at(const qn_cpu_rows *a, size_t row, size_t i)
{
    int64_t at = (int64_t)row * a->row + (int64_t)i * a->step;
    return (const char *)a->data + at * (int64_t)qn_dtype_size(a->type);
}

/* n elements of a row from `first` on, as floats. */
static void left_floats(const qn_cpu_rows *a, size_t row, size_t first,
                        size_t n, float *dst)
{
    size_t item = qn_dtype_size(a->type);
    if (a->step == 1) {
        qn_cpu_widen(dst, left_at(a, row, first), n, a->type);
        return;
    }
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t count = n - i < BLOCK ? n - i : BLOCK;
        float together[BLOCK];
        for (size_t j = 0; j < count; j++)
            memcpy((char *)together + j * item, left_at(a, row, first + i + j),
                   item);
        qn_cpu_widen(dst + i, together, count, a->type);
    }
}

typedef struct prepare_job {
    const qn_cpu_rows *a;
    const qn_rowdot_kernel *kernel; /* NULL: plain rows */
    qn_row_format format;
    float *dst;
    size_t stride;
} prepare_job;

void qn_cpu_prepare_row(float *dst, size_t padded, const qn_cpu_rows *a,
                        size_t row, const qn_rowdot_kernel *kernel,
                        qn_row_format format)
{
    if (!kernel || kernel->natural(format)) {
        left_floats(a, row, 0, a->k, dst);
    } else if (a->type == QN_FLOAT32 && a->step == 1) {
        kernel->prepare(dst, (const void *)left_at(a, row, 0), a->k, format);
    } else {
        for (size_t i = 0; i < a->k; i += BLOCK) {
            size_t n = a->k - i < BLOCK ? a->k - i : BLOCK;
            float block[BLOCK];
            left_floats(a, row, i, n, block);
            kernel->prepare(dst + i, block, n, format);
        }
    }
    memset(dst + a->k, 0, (padded - a->k) * sizeof *dst);
}

static void prepare_rows(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    const prepare_job *job = ctx;
    for (size_t m = begin; m < end; m++)
        qn_cpu_prepare_row(job->dst + m * job->stride, job->stride, job->a, m,
                           job->kernel, job->format);
}

qn_status qn_cpu_prepare(const float **x, size_t *stride, qn_buffer **held,
                         const qn_cpu_rows *a, const qn_rowdot_kernel *kernel,
                         qn_row_format format)
{
    size_t padded = kernel ? qn_rowdot_padded(a->k) : a->k;
    if (a->type == QN_FLOAT32 && a->step == 1 && a->row >= 0 &&
        padded == a->k && (!kernel || kernel->natural(format))) {
        *x = (const void *)a->data;
        *stride = (size_t)a->row;
        return QN_OK;
    }
    qn_status status = new_floats(held, a->m, padded);
    if (status)
        return status;
    prepare_job job = {.a = a,
                       .kernel = kernel,
                       .format = format,
                       .dst = (*held)->data,
                       .stride = padded};
    qn_pool_split(prepare_rows, &job, a->m, GRAIN_COPY / padded + 1, 1);
    *x = (*held)->data;
    *stride = padded;
    return QN_OK;
}

/* ---- the result ---- */

qn_status qn_cpu_result_floats(float **out, qn_buffer **held,
                               const qn_cpu_result *r)
{
    if (r->type == QN_FLOAT32) {
        *out = (float *)(void *)r->data;
        return QN_OK;
    }
    qn_status status = new_floats(held, r->size, 1);
    if (!status)
        *out = (*held)->data;
    return status;
}

typedef struct narrow_job {
    const qn_cpu_result *r;
    const float *from;
} narrow_job;

static void narrow_range(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    const narrow_job *job = ctx;
    size_t item = qn_dtype_size(job->r->type);
    qn_cpu_narrow(job->r->data + begin * item, job->from + begin, end - begin,
                  job->r->type);
}

void qn_cpu_result_finish(const qn_cpu_result *r, const float *from)
{
    narrow_job job = {r, from};
    if (r->type != QN_FLOAT32)
        qn_pool_split(narrow_range, &job, r->size, GRAIN_COPY, 64);
}

static void drop(qn_buffer *buffer)
{
    if (buffer)
        qn_buffer_unref(buffer);
}

/* ---- rows times rows ---- */

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

qn_status qn_cpu_rowdot(qn_rowdot dot, const qn_cpu_rows *a,
                        const qn_cpu_result *r)
{
    const qn_rowdot_kernel *kernel = qn_rowdot_pick();
    qn_buffer *x = NULL, *wide = NULL, *scratch = NULL;
    columns_job job = {.kernel = kernel, .dot = &dot};
    dot.m = a->m;
    dot.out_stride = dot.n;
    qn_status status =
        qn_cpu_prepare(&dot.x, &dot.x_stride, &x, a, kernel, dot.format);
    if (!status)
        status = qn_cpu_result_floats(&dot.out, &wide, r);
    if (!status)
        status = qn_cpu_scratch(&scratch, (size_t)qn_pool_threads(),
                                qn_rowdot_scratch(dot.k) * sizeof(float),
                                &job.scratch_stride);
    if (!status) {
        size_t grain = QN_ROWDOT_ROWS;
        size_t row_bytes = dot.w_stride ? dot.w_stride : 1;
        job.scratch = scratch->data;
        if (a->m <= 8 && GRAIN_BYTES / row_bytes > grain)
            grain = GRAIN_BYTES / row_bytes;
        qn_pool_split(run_columns, &job, dot.n, grain, QN_ROWDOT_ROWS);
        qn_cpu_result_finish(r, dot.out);
    }
    drop(x);
    drop(wide);
    drop(scratch);
    return status;
}

/* ---- rows times columns ---- */

typedef struct gemm_job {
    const qn_gemm_kernel *kernel;
    qn_gemm gemm;
    char *scratch;
    size_t scratch_stride;
} gemm_job;

static void *gemm_scratch(const gemm_job *job, int worker)
{
    return job->scratch + (size_t)worker * job->scratch_stride;
}

static void gemm_columns(void *ctx, size_t begin, size_t end, int worker)
{
    const gemm_job *job = ctx;
    job->kernel->run(&job->gemm, 0, job->gemm.m, begin, end,
                     gemm_scratch(job, worker));
}

static void gemm_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const gemm_job *job = ctx;
    job->kernel->run(&job->gemm, begin, end, 0, job->gemm.n,
                     gemm_scratch(job, worker));
}

/* `gemm` has k, n and b. */
static qn_status gemm_product(qn_gemm gemm, const qn_cpu_rows *a,
                              const qn_cpu_result *r)
{
    qn_buffer *x = NULL, *wide = NULL, *scratch = NULL;
    gemm_job job = {.kernel = qn_gemm_pick(), .gemm = gemm};
    qn_gemm *g = &job.gemm;
    size_t threads = (size_t)qn_pool_threads();
    g->m = a->m;
    g->out_stride = g->n;
    qn_status status =
        qn_cpu_prepare(&g->a, &g->a_stride, &x, a, NULL, QN_ROW_F32);
    if (!status)
        status = qn_cpu_result_floats(&g->out, &wide, r);
    if (!status)
        status =
            qn_cpu_scratch(&scratch, threads, QN_GEMM_SCRATCH * sizeof(float),
                           &job.scratch_stride);
    if (!status) {
        job.scratch = scratch->data;
        size_t column = g->k * qn_dtype_size(g->b_type);
        size_t grain = g->m <= 8 ? GRAIN_BYTES / column + 1 : QN_GEMM_COLUMNS;
        if (g->n < 2 * threads * QN_GEMM_COLUMNS && g->m > g->n)
            qn_pool_split(gemm_rows, &job, g->m, 4 * QN_GEMM_ROWS,
                          QN_GEMM_ROWS);
        else
            qn_pool_split(gemm_columns, &job, g->n, grain, QN_GEMM_COLUMNS);
        qn_cpu_result_finish(r, g->out);
    }
    drop(x);
    drop(wide);
    drop(scratch);
    return status;
}

/* ---- bfloat16 with bfloat16 ---- */

typedef struct half_job {
    const qn_bfdot_kernel *kernel;
    qn_bfdot dot;
    char *scratch;
    size_t scratch_stride;
} half_job;

static void half_run(const half_job *job, size_t m0, size_t m1, size_t n0,
                     size_t n1, int worker)
{
    char *scratch = job->scratch + (size_t)worker * job->scratch_stride;
    job->kernel->run(&job->dot, m0, m1, n0, n1, (float *)(void *)scratch);
}

static void half_columns(void *ctx, size_t begin, size_t end, int worker)
{
    const half_job *job = ctx;
    half_run(job, 0, job->dot.m, begin, end, worker);
}

static void half_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const half_job *job = ctx;
    half_run(job, begin, end, 0, job->dot.n, worker);
}

typedef struct gather_job {
    const qn_cpu_rows *a;
    uint16_t *dst;
} gather_job;

static void gather_rows(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    const gather_job *job = ctx;
    for (size_t m = begin; m < end; m++)
        for (size_t k = 0; k < job->a->k; k++)
            memcpy(job->dst + m * job->a->k + k, left_at(job->a, m, k),
                   sizeof *job->dst);
}

/* Rows of neighbours: where they lie, or in *held (NULL before). */
static qn_status half_rows_of(qn_bfdot *dot, qn_buffer **held,
                              const qn_cpu_rows *a)
{
    dot->m = a->m;
    if (a->step == 1 && a->row >= 0) {
        dot->x = a->data;
        dot->x_stride = (size_t)a->row;
        return QN_OK;
    }
    size_t count;
    if (!qn_mul_size(&count, a->m, a->k) ||
        !qn_mul_size(&count, count, sizeof *dot->x))
        return qn_fail(QN_E_NOMEM, "cpu: %zu x %zu elements", a->m, a->k);
    qn_status status = qn_buffer_new(held, count);
    if (status)
        return status;
    gather_job job = {a, (*held)->data};
    qn_pool_split(gather_rows, &job, a->m, GRAIN_COPY / a->k + 1, 1);
    dot->x = (*held)->data;
    dot->x_stride = a->k;
    return QN_OK;
}

/* `dot` has k, n and everything about w. */
static qn_status half_product(const qn_bfdot_kernel *kernel, qn_bfdot dot,
                              const qn_cpu_rows *a, const qn_cpu_result *r)
{
    qn_buffer *x = NULL, *wide = NULL, *scratch = NULL;
    half_job job = {.kernel = kernel, .dot = dot};
    size_t threads = (size_t)qn_pool_threads();
    job.dot.out_stride = dot.n;
    qn_status status = half_rows_of(&job.dot, &x, a);
    if (!status)
        status = qn_cpu_result_floats(&job.dot.out, &wide, r);
    if (!status)
        status =
            qn_cpu_scratch(&scratch, threads, kernel->scratch * sizeof(float),
                           &job.scratch_stride);
    if (!status) {
        job.scratch = scratch->data;
        size_t m = a->m, grain = GRAIN_BYTES / (2 * dot.k) + 1;
        if (m > 8)
            grain = QN_BFDOT_COLUMNS;
        if (dot.n < 2 * threads * QN_BFDOT_COLUMNS && m > dot.n)
            qn_pool_split(half_rows, &job, m, 2 * QN_BFDOT_ROWS, QN_BFDOT_ROWS);
        else
            qn_pool_split(half_columns, &job, dot.n, grain,
                          m > 8 ? QN_BFDOT_COLUMNS : QN_BFDOT_COLUMNS / 4);
        qn_cpu_result_finish(r, job.dot.out);
    }
    drop(x);
    drop(wide);
    drop(scratch);
    return status;
}

/* ---- a right side in neither order: copied into rows along K ---- */

typedef struct transpose_job {
    char *dst;
    const char *src;
    int64_t k_stride, n_stride; /* elements */
    size_t k, item;
} transpose_job;

static void transpose_columns(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    const transpose_job *job = ctx;
    int64_t item = (int64_t)job->item;
    for (size_t n = begin; n < end; n++)
        for (size_t k = 0; k < job->k; k++)
            memcpy(job->dst + (n * job->k + k) * job->item,
                   job->src + ((int64_t)k * job->k_stride +
                               (int64_t)n * job->n_stride) *
                                  item,
                   job->item);
}

static qn_row_format dense_format(qn_dtype type)
{
    return type == QN_FLOAT32   ? QN_ROW_F32
           : type == QN_FLOAT16 ? QN_ROW_F16
                                : QN_ROW_BF16;
}

/* The right side as rows along K, which the caller gives up. */
static qn_status transposed(qn_buffer **out, const qn_array *b,
                            const char *data, size_t n, size_t k)
{
    size_t count, item = qn_array_itemsize(b);
    if (!qn_mul_size(&count, n, k) || !qn_mul_size(&count, count, item))
        return qn_fail(QN_E_NOMEM, "cpu: a matrix of %zu x %zu", n, k);
    qn_status status = qn_buffer_new(out, count);
    if (status)
        return status;
    transpose_job job = {.dst = (*out)->data,
                         .src = data,
                         .k_stride = b->strides[b->ndim - 2],
                         .n_stride = b->strides[b->ndim - 1],
                         .k = k,
                         .item = item};
    qn_pool_split(transpose_columns, &job, n, GRAIN_COPY / k + 1, 1);
    return QN_OK;
}

static qn_status dense_product(const qn_cpu_rows *a, const qn_array *b,
                               const char *data, const qn_cpu_result *r)
{
    int64_t k_stride = b->strides[b->ndim - 2];
    int64_t n_stride = b->strides[b->ndim - 1];
    size_t n = (size_t)b->shape[b->ndim - 1], item = qn_array_itemsize(b);
    bool along_k = (k_stride == 1 || a->k == 1) && n_stride > 0;
    bool along_n = !along_k && (n_stride == 1 || n == 1) && k_stride >= 0;
    qn_buffer *copy = NULL;
    if (!along_k && !along_n) {
        qn_status status = transposed(&copy, b, data, n, a->k);
        if (status)
            return status;
        data = copy->data;
        n_stride = (int64_t)a->k;
    }
    const qn_bfdot_kernel *half = NULL;
    if (a->type == QN_BFLOAT16 && b->dtype == QN_BFLOAT16)
        half = qn_bfdot_pick();
    qn_status status;
    size_t stride = (size_t)(along_n ? k_stride : n_stride);
    if (half) {
        qn_bfdot dot = {.n = n,
                        .k = a->k,
                        .w = (const uint16_t *)(const void *)data,
                        .w_stride = stride,
                        .along_k = !along_n};
        status = half_product(half, dot, a, r);
    } else if (along_n) {
        qn_gemm gemm = {.n = n,
                        .k = a->k,
                        .b = data,
                        .b_stride = stride,
                        .b_type = b->dtype};
        status = gemm_product(gemm, a, r);
    } else {
        qn_rowdot dot = {.n = n,
                         .k = a->k,
                         .format = dense_format(b->dtype),
                         .w = (const uint8_t *)data,
                         .w_stride = stride * item};
        status = qn_cpu_rowdot(dot, a, r);
    }
    drop(copy);
    return status;
}

size_t qn_cpu_product_room(size_t m, size_t k, size_t n, qn_dtype type)
{
    size_t threads = (size_t)qn_pool_threads();
    const qn_bfdot_kernel *half = type == QN_BFLOAT16 ? qn_bfdot_pick() : NULL;
    size_t floats = threads * (half ? half->scratch : qn_rowdot_scratch(k));
    size_t padded = half ? k : qn_rowdot_padded(k);
    /* Rows that can't be read as they lie, and results that are no floats. */
    if (!half && (type != QN_FLOAT32 || padded != k))
        floats += m * padded;
    if (type != QN_FLOAT32)
        floats += m * n;
    return floats * sizeof(float);
}

/* ---- nodes ---- */

qn_cpu_rows qn_cpu_rows_of(const qn_array *a, const qn_matmul_plan *plan,
                           int64_t offset)
{
    return (qn_cpu_rows){
        .data =
            (char *)qn_array_data(a) + offset * (int64_t)qn_array_itemsize(a),
        .row = plan->a_row,
        .step = a->shape[a->ndim - 1] == 1 ? 1 : a->strides[a->ndim - 1],
        .type = a->dtype,
        .m = plan->m,
        .k = (size_t)a->shape[a->ndim - 1]};
}

qn_cpu_result qn_cpu_result_of(const qn_array *out, const qn_matmul_plan *plan,
                               int64_t offset)
{
    return (qn_cpu_result){.data = (char *)qn_array_data(out) +
                                   offset * (int64_t)qn_array_itemsize(out),
                           .type = out->dtype,
                           .size = plan->m * (size_t)out->shape[out->ndim - 1]};
}

qn_status qn_cpu_product(const qn_cpu_rows *a, const qn_array *b,
                         const void *matrix, void *out, qn_dtype out_type)
{
    qn_cpu_rows left = {.data = a->data,
                        .row = a->row,
                        .step = a->k == 1 ? 1 : a->step,
                        .type = a->type,
                        .m = a->m,
                        .k = a->k};
    qn_cpu_result r = {.data = out,
                       .type = out_type,
                       .size = a->m * (size_t)b->shape[b->ndim - 1]};
    return dense_product(&left, b, matrix, &r);
}

qn_status qn_cpu_matmul(qn_node *node, bool *done)
{
    qn_array *a = node->inputs[0], *b = node->inputs[1];
    qn_array *out = node->outputs[0];
    if (!qn_cpu_narrow_float(a->dtype) || !qn_cpu_narrow_float(b->dtype) ||
        !qn_cpu_narrow_float(out->dtype) || !out->size || !a->size ||
        a->ndim < 2 || b->ndim < 2)
        return QN_OK;
    qn_status status = qn_array_alloc(out);
    if (status)
        return status;
    *done = true;
    qn_matmul_plan plan;
    qn_matmul_plan_make(&plan, (const qn_array *const[]){out, a, b}, 3);
    for (size_t i = 0; i < plan.outer.nruns; i++) {
        int64_t at[QN_PLAN_OPERANDS];
        qn_plan_offsets(&plan.outer, i, at);
        qn_cpu_rows left = qn_cpu_rows_of(a, &plan, at[1]);
        qn_cpu_result r = qn_cpu_result_of(out, &plan, at[0]);
        const char *right =
            (char *)qn_array_data(b) + at[2] * (int64_t)qn_array_itemsize(b);
        status = dense_product(&left, b, right, &r);
        if (status)
            return status;
    }
    return QN_OK;
}
