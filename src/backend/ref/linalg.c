/* linalg.c: factorisations, eigenvalues and solutions, matrix by matrix.
 *
 * Each matrix of a batch is copied out of its array, column by column and in
 * double, handed to LAPACK (lapack.h), and copied back with one rounding. */
#include "lapack.h"
#include "loops.h"
#include "stage.h"

#include "base/alloc.h"

/* ---- matrices in and out ---- */

/* A batch: the node's arrays, the leading axes of which are walked, and memory
 * for one matrix of each. */
enum { MOST_ARRAYS = 4, MOST_BUFFERS = 5 };
typedef struct batch {
    qn_lapack_job job;
    const qn_array *arrays[MOST_ARRAYS]; /* inputs, then outputs */
    int narrays;
    qn_walk walk;
    qn_plan plan;
    void *buffers[MOST_BUFFERS];
    int nbuffers;
} batch;

static int rows_of(const qn_array *a)
{
    return a->shape[a->ndim - 2];
}

static int columns_of(const qn_array *a)
{
    return a->shape[a->ndim - 1];
}

/* The node's outputs get storage.  `lead` axes count matrices. */
static qn_status batch_begin(batch *b, qn_node *node)
{
    *b = (batch){.narrays = node->ninputs + node->noutputs};
    const int64_t *strides[MOST_ARRAYS];
    qn_status status = QN_OK;
    for (int i = 0; i < node->noutputs && !status; i++)
        status = qn_array_alloc(node->outputs[i]);
    if (!status)
        status = qn_lapack_begin(&b->job, qn_op_info_of(node->op)->name);
    if (status)
        return status;
    for (int i = 0; i < b->narrays; i++) {
        b->arrays[i] = i < node->ninputs ? node->inputs[i]
                                         : node->outputs[i - node->ninputs];
        strides[i] = b->arrays[i]->strides;
    }
    qn_plan_make(&b->plan, b->arrays[0]->shape, b->arrays[0]->ndim - 2, strides,
                 b->narrays);
    qn_plan_points(&b->plan);
    qn_walk_start(&b->walk, &b->plan, 0, b->plan.nruns);
    return QN_OK;
}

/* Memory for an m x n matrix of doubles (complex ones), until batch_end. */
static void *batch_room(batch *b, qn_status *status, int m, int n, bool cplx)
{
    size_t count;
    void *room = NULL;
    if (*status)
        return NULL;
    if (qn_mul_size(&count, (size_t)m, (size_t)n))
        room = qn_calloc(count + 1, (cplx ? 2 : 1) * sizeof(double));
    if (room)
        b->buffers[b->nbuffers++] = room;
    else
        *status = qn_fail(QN_E_NOMEM, "[linalg::%s] a matrix of %d x %d",
                          b->job.op, m, n);
    return room;
}

static qn_status batch_end(batch *b, qn_status status)
{
    for (int i = 0; i < b->nbuffers; i++)
        qn_free(b->buffers[i]);
    qn_lapack_end(&b->job);
    return status;
}

static bool is_complex(const qn_array *a)
{
    return a->dtype == QN_COMPLEX64;
}

static size_t wide_size(const qn_array *a)
{
    return (is_complex(a) ? 2 : 1) * sizeof(double);
}

/* The matrix of array `which` that the walk has come to. */
static void get_matrix(const batch *b, int which, void *to)
{
    const qn_array *a = b->arrays[which];
    size_t m = (size_t)rows_of(a), n = (size_t)columns_of(a);
    int64_t down = a->strides[a->ndim - 2], along = a->strides[a->ndim - 1];
    for (size_t j = 0; j < n; j++)
        qn_wide_load((char *)to + j * m * wide_size(a), a->dtype,
                     qn_element(a, b->walk.offsets[which] + (int64_t)j * along),
                     down, m);
}

/* Rows first.. of `from`, which has `height` rows, as those of the output. */
static void put_matrix(const batch *b, int which, const void *from, int height)
{
    const qn_array *a = b->arrays[which];
    size_t m = (size_t)rows_of(a), n = (size_t)columns_of(a);
    qn_wide wide = qn_wide_of(a->dtype);
    for (size_t j = 0; j < n; j++)
        qn_wide_store(qn_element(a, b->walk.offsets[which] + (int64_t)j),
                      a->dtype, (int64_t)n,
                      (const char *)from + j * (size_t)height * wide_size(a),
                      wide, m);
}

/* Numbers along the last axis of an output. */
static void put_line(const batch *b, int which, const void *from)
{
    const qn_array *a = b->arrays[which];
    qn_wide_store(qn_element(a, b->walk.offsets[which]), a->dtype, 1, from,
                  qn_wide_of(a->dtype), (size_t)columns_of(a));
}

/* ---- one square matrix to another ---- */

static qn_status in_place(qn_node *node,
                          qn_status (*work)(qn_lapack_job *job, double *a,
                                            int n, const void *params))
{
    batch b;
    qn_status status = batch_begin(&b, node);
    if (status)
        return status;
    int n = rows_of(node->inputs[0]);
    double *a = batch_room(&b, &status, n, n, false);
    for (; !status && b.walk.left; qn_walk_next(&b.walk)) {
        get_matrix(&b, 0, a);
        status = work(&b.job, a, n, node->params);
        put_matrix(&b, 1, a, n);
    }
    return batch_end(&b, status);
}

static qn_status cholesky(qn_lapack_job *job, double *a, int n,
                          const void *params)
{
    const qn_triangle_params *p = params;
    return qn_lapack_cholesky(job, a, n, p->upper);
}

qn_status qn_ref_cholesky(qn_node *node)
{
    return in_place(node, cholesky);
}

static qn_status inverse(qn_lapack_job *job, double *a, int n,
                         const void *params)
{
    const qn_form_params *p = params;
    if (p->form == QN_MATRIX_GENERAL)
        return qn_lapack_inverse(job, a, n);
    return qn_lapack_triangular_inverse(job, a, n, p->form == QN_MATRIX_UPPER);
}

qn_status qn_ref_inv(qn_node *node)
{
    return in_place(node, inverse);
}

/* ---- factorisations ---- */

qn_status qn_ref_qr(qn_node *node)
{
    batch b;
    qn_status status = batch_begin(&b, node);
    if (status)
        return status;
    int m = rows_of(node->inputs[0]), n = columns_of(node->inputs[0]);
    size_t k = (size_t)(m < n ? m : n), height = (size_t)m;
    double *a = batch_room(&b, &status, m, n, false);
    double *q = batch_room(&b, &status, m, (int)k, false);
    for (; !status && b.walk.left; qn_walk_next(&b.walk)) {
        get_matrix(&b, 0, a);
        status = qn_lapack_qr(&b.job, a, m, n, q);
        for (size_t j = 0; j < k; j++)
            for (size_t i = j + 1; i < height; i++)
                a[j * height + i] = 0;
        put_matrix(&b, 1, q, m);
        put_matrix(&b, 2, a, m);
    }
    return batch_end(&b, status);
}

/* Where each row of the matrix has gone: row i of the product of the factors
 * is row order[i] of the matrix; rows is the inverse of that. */
static void follow_pivots(uint32_t *rows, uint32_t *order, const int *pivots,
                          size_t m, size_t k)
{
    for (size_t i = 0; i < m; i++)
        order[i] = (uint32_t)i;
    for (size_t i = 0; i < k; i++) {
        uint32_t swap = order[i];
        order[i] = order[pivots[i]];
        order[pivots[i]] = swap;
    }
    for (size_t i = 0; i < m; i++)
        rows[order[i]] = (uint32_t)i;
}

qn_status qn_ref_lu(qn_node *node)
{
    batch b;
    qn_status status = batch_begin(&b, node);
    if (status)
        return status;
    int m = rows_of(node->inputs[0]), n = columns_of(node->inputs[0]);
    size_t k = (size_t)(m < n ? m : n);
    double *a = batch_room(&b, &status, m, n, false);
    int *pivots = batch_room(&b, &status, (int)k, 1, false);
    uint32_t *order = batch_room(&b, &status, m, 1, false);
    for (; !status && b.walk.left; qn_walk_next(&b.walk)) {
        uint32_t *steps = qn_element(b.arrays[2], b.walk.offsets[2]);
        uint32_t *rows = qn_element(b.arrays[3], b.walk.offsets[3]);
        get_matrix(&b, 0, a);
        status = qn_lapack_lu(&b.job, a, m, n, pivots);
        put_matrix(&b, 1, a, m);
        for (size_t i = 0; i < k && !status; i++)
            steps[i] = (uint32_t)pivots[i];
        if (!status)
            follow_pivots(rows, order, pivots, (size_t)m, k);
    }
    return batch_end(&b, status);
}

qn_status qn_ref_svd(qn_node *node)
{
    batch b;
    qn_status status = batch_begin(&b, node);
    if (status)
        return status;
    int m = rows_of(node->inputs[0]), n = columns_of(node->inputs[0]);
    bool cplx = is_complex(node->inputs[0]), all = node->noutputs == 3;
    void *u = NULL, *vt = NULL;
    void *a = batch_room(&b, &status, m, n, cplx);
    double *values = batch_room(&b, &status, m < n ? m : n, 1, false);
    if (all) {
        u = batch_room(&b, &status, m, m, cplx);
        vt = batch_room(&b, &status, n, n, cplx);
    }
    for (; !status && b.walk.left; qn_walk_next(&b.walk)) {
        get_matrix(&b, 0, a);
        status = qn_lapack_svd(&b.job, cplx, a, m, n, values, u, vt);
        put_line(&b, all ? 2 : 1, values);
        if (all) {
            put_matrix(&b, 1, u, m);
            put_matrix(&b, 3, vt, n);
        }
    }
    return batch_end(&b, status);
}

/* ---- eigenvalues ---- */

qn_status qn_ref_eigh(qn_node *node)
{
    const qn_triangle_params *p = node->params;
    batch b;
    qn_status status = batch_begin(&b, node);
    if (status)
        return status;
    int n = rows_of(node->inputs[0]);
    bool cplx = is_complex(node->inputs[0]), vectors = node->noutputs == 2;
    void *a = batch_room(&b, &status, n, n, cplx);
    double *values = batch_room(&b, &status, n, 1, false);
    for (; !status && b.walk.left; qn_walk_next(&b.walk)) {
        get_matrix(&b, 0, a);
        status = qn_lapack_eigh(&b.job, cplx, a, n, p->upper, vectors, values);
        put_line(&b, 1, values);
        if (vectors)
            put_matrix(&b, 2, a, n);
    }
    return batch_end(&b, status);
}

qn_status qn_ref_eig(qn_node *node)
{
    batch b;
    qn_status status = batch_begin(&b, node);
    if (status)
        return status;
    int n = rows_of(node->inputs[0]);
    bool cplx = is_complex(node->inputs[0]);
    double *vectors = NULL;
    void *a = batch_room(&b, &status, n, n, cplx);
    double *values = batch_room(&b, &status, n, 1, true);
    if (node->noutputs == 2)
        vectors = batch_room(&b, &status, n, n, true);
    for (; !status && b.walk.left; qn_walk_next(&b.walk)) {
        get_matrix(&b, 0, a);
        status = qn_lapack_eig(&b.job, cplx, a, n, values, vectors);
        put_line(&b, 1, values);
        if (vectors)
            put_matrix(&b, 2, vectors, n);
    }
    return batch_end(&b, status);
}

/* ---- solutions ---- */

qn_status qn_ref_solve(qn_node *node)
{
    const qn_form_params *p = node->params;
    batch b;
    qn_status status = batch_begin(&b, node);
    if (status)
        return status;
    int n = rows_of(node->inputs[0]), k = columns_of(node->inputs[1]);
    double *a = batch_room(&b, &status, n, n, false);
    double *x = batch_room(&b, &status, n, k, false);
    for (; !status && b.walk.left; qn_walk_next(&b.walk)) {
        get_matrix(&b, 0, a);
        get_matrix(&b, 1, x);
        status = p->form == QN_MATRIX_GENERAL
                     ? qn_lapack_solve(&b.job, a, x, n, k)
                     : qn_lapack_triangular_solve(&b.job, a, x, n, k,
                                                  p->form == QN_MATRIX_UPPER);
        put_matrix(&b, 2, x, n);
    }
    return batch_end(&b, status);
}
