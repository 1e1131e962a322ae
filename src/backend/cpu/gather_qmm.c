/* gather_qmm.c: products with packed matrices chosen by indices: the experts of
 * a mixture.
 *
 * The choices are sorted by matrix, so that each matrix is read once for all
 * rows that meet it.  Their rows of x are prepared behind one another, threads
 * share ranges of columns of all matrices together, and rows of the result go
 * to their places.  A row has the bits of its own product, whatever rows go
 * with it. */
#include "packed.h"

#include "backend/ref/loops.h"
#include "backend/ref/stage.h"
#include "base/alloc.h"
#include "pool.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* Floats of prepared rows and results that are held at a time. */
    HELD = 8 * 1024 * 1024,
    /* Elements of a copy that is not split. */
    GRAIN_COPY = 16 * 1024,
    /* Tasks per thread: matrices have different numbers of rows. */
    TASKS = 8
};

/* Where the matrices of a product are, and which result it is. */
typedef struct choice {
    int64_t x, at[3];
    size_t place;
} choice;

static bool same_matrix(const choice *a, const choice *b)
{
    return !memcmp(a->at, b->at, sizeof a->at);
}

static int by_matrix(const void *x, const void *y)
{
    const choice *a = x, *b = y;
    for (int i = 0; i < 3; i++)
        if (a->at[i] != b->at[i])
            return a->at[i] < b->at[i] ? -1 : 1;
    return a->place < b->place ? -1 : 1;
}

/* In the order of matrices. */
static qn_status read_choices(choice *choices, size_t count,
                              const qn_node *node)
{
    const qn_array *ix = node->inputs[node->ninputs - 2];
    const qn_array *iw = node->inputs[node->ninputs - 1];
    qn_plan plan;
    qn_walk walk;
    size_t place = 0;
    bool sorted = true;
    qn_plan_make(&plan, ix->shape, ix->ndim,
                 (const int64_t *[]){ix->strides, iw->strides}, 2);
    qn_plan_points(&plan);
    for (qn_walk_start(&walk, &plan, 0, plan.nruns); walk.left;
         qn_walk_next(&walk)) {
        choice *c = &choices[place];
        c->place = place++;
        qn_status status = qn_ref_matrix_at(
            &c->x, "gather_qmm", node->inputs[0], ix, walk.offsets[0]);
        if (!status)
            status = qn_ref_packed_at(c->at, node, iw, walk.offsets[1]);
        if (status)
            return status;
        sorted = sorted && (c == choices || by_matrix(c - 1, c) < 0);
    }
    if (!sorted)
        qsort(choices, count, sizeof *choices, by_matrix);
    return QN_OK;
}

/* Some choices, in the order of matrices, that are computed together. */
typedef struct batch {
    qn_cpu_packed p;
    const qn_array *x, *out;
    size_t m; /* rows of a choice */
    const choice *choices;
    size_t count;
    float *rows, *results; /* [count * m, stride], [count * m, n] */
    size_t stride;
    qn_cpu_packed_rows *groups; /* choices of one matrix */
    size_t ngroups;
    size_t width, ranges; /* columns of a task, tasks of a group */
    char *scratch;
    size_t scratch_stride;
} batch;

static void prepare_rows(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    const batch *b = ctx;
    const qn_array *x = b->x;
    for (size_t i = begin; i < end; i++) {
        qn_cpu_rows rows = {.data = qn_element(x, b->choices[i / b->m].x),
                            .type = x->dtype,
                            .m = b->m,
                            .k = b->p.k,
                            .row = x->strides[x->ndim - 2],
                            .step = b->p.k == 1 ? 1 : x->strides[x->ndim - 1]};
        qn_cpu_prepare_row(b->rows + i * b->stride, b->stride, &rows, i % b->m,
                           qn_cpu_packed_kernel(&b->p),
                           qn_cpu_packed_format(&b->p));
    }
}

static void run_task(void *ctx, size_t index, int worker)
{
    const batch *b = ctx;
    size_t first = index % b->ranges * b->width;
    size_t end = b->p.n - first < b->width ? b->p.n : first + b->width;
    char *scratch = b->scratch + (size_t)worker * b->scratch_stride;
    qn_cpu_packed_columns(&b->p, &b->groups[index / b->ranges], first, end,
                          (float *)(void *)scratch);
}

static void place_rows(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    const batch *b = ctx;
    size_t n = b->p.n, row = n * qn_array_itemsize(b->out);
    for (size_t i = begin; i < end; i++) {
        size_t place = b->choices[i / b->m].place * b->m + i % b->m;
        qn_cpu_narrow((char *)qn_array_data(b->out) + place * row,
                      b->results + i * n, n, b->out->dtype);
    }
}

static void find_groups(batch *b)
{
    b->ngroups = 0;
    for (size_t i = 0; i < b->count; i++) {
        qn_cpu_packed_rows *g = &b->groups[b->ngroups];
        if (i && same_matrix(&b->choices[i - 1], &b->choices[i])) {
            g[-1].m += b->m;
            continue;
        }
        b->ngroups++;
        g->m = b->m;
        g->x = b->rows + i * b->m * b->stride;
        g->x_stride = b->stride;
        g->out = b->results + i * b->m * b->p.n;
        memcpy(g->at, b->choices[i].at, sizeof g->at);
    }
}

static void run_batch(batch *b)
{
    size_t rows = b->count * b->m, n = b->p.n;
    qn_pool_split(prepare_rows, b, rows, GRAIN_COPY / b->stride + 1, 1);
    find_groups(b);
    size_t tasks = (size_t)qn_pool_threads() * TASKS;
    size_t each = (tasks + b->ngroups - 1) / b->ngroups;
    size_t grain = qn_cpu_packed_grain(&b->p, rows / b->ngroups);
    b->width = (n / each + b->p.step) / b->p.step * b->p.step;
    if (b->width < grain)
        b->width = grain;
    b->ranges = (n + b->width - 1) / b->width;
    qn_pool_run(run_task, b, b->ngroups * b->ranges);
    qn_pool_split(place_rows, b, rows, GRAIN_COPY / n + 1, 1);
}

static void drop(qn_buffer *buffer)
{
    if (buffer)
        qn_buffer_unref(buffer);
}

/* Memory for `most` choices. */
static qn_status make_room(batch *b, qn_buffer *held[4], size_t most)
{
    size_t rows, x, results;
    if (!qn_mul_size(&rows, most, b->m * sizeof(float)) ||
        !qn_mul_size(&x, rows, b->stride) ||
        !qn_mul_size(&results, rows, b->p.n))
        return qn_fail(QN_E_NOMEM, "[gather_qmm] %zu choices", most);
    qn_status status = qn_buffer_new(&held[0], x);
    if (!status)
        status = qn_buffer_new(&held[1], results);
    if (!status)
        status = qn_buffer_new(&held[2], most * sizeof *b->groups);
    if (!status)
        status = qn_cpu_scratch(&held[3], (size_t)qn_pool_threads(),
                                qn_cpu_packed_scratch(&b->p) * sizeof(float),
                                &b->scratch_stride);
    if (status)
        return status;
    b->rows = held[0]->data;
    b->results = held[1]->data;
    b->groups = held[2]->data;
    b->scratch = held[3]->data;
    return QN_OK;
}

static qn_status run_choices(batch *b, const choice *choices, size_t count)
{
    qn_buffer *held[4] = {NULL};
    size_t most = HELD / b->m / (b->stride + b->p.n) + 1;
    if (most > count)
        most = count;
    qn_status status = make_room(b, held, most);
    for (size_t i = 0; i < count && !status; i += most) {
        b->choices = choices + i;
        b->count = count - i < most ? count - i : most;
        run_batch(b);
    }
    for (int i = 0; i < 4; i++)
        drop(held[i]);
    return status;
}

qn_status qn_cpu_gather_qmm(qn_node *node, bool *done)
{
    const qn_quant_params *q = node->params;
    const qn_array *x = node->inputs[0];
    qn_array *out = node->outputs[0];
    /* Without elements there may still be an index outside: the reference. */
    if (!out->size || !x->size || !qn_cpu_narrow_float(x->dtype) ||
        !qn_cpu_narrow_float(out->dtype))
        return QN_OK;
    batch b = {.x = x, .out = out, .m = (size_t)x->shape[x->ndim - 2]};
    if (!qn_cpu_packed_open(&b.p, q, node->inputs + 1,
                            (size_t)out->shape[out->ndim - 1],
                            (size_t)x->shape[x->ndim - 1]))
        return QN_OK;
    b.stride = q->transpose ? qn_rowdot_padded(b.p.k) : b.p.k;
    size_t count = out->size / (b.m * b.p.n);
    choice *choices = qn_calloc(count, sizeof *choices);
    if (!choices)
        return QN_E_NOMEM;
    qn_status status = read_choices(choices, count, node);
    if (!status)
        status = qn_array_alloc(out);
    *done = true;
    if (!status)
        status = run_choices(&b, choices, count);
    qn_free(choices);
    return status;
}

/* ---- packing and unpacking at once ---- */

typedef struct requantize_job {
    const qn_node *node;
    char *rooms;
    size_t stride;
} requantize_job;

static void requantize_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const requantize_job *job = ctx;
    void *row = job->rooms + (size_t)worker * job->stride;
    qn_ref_requantize_lines(job->node, begin, end - begin, row);
}

qn_status qn_cpu_requantize(qn_node *node, bool *done)
{
    qn_array *out = node->outputs[0];
    if (!out->size)
        return QN_OK;
    size_t n = (size_t)out->shape[out->ndim - 1];
    requantize_job job = {.node = node};
    qn_buffer *rooms;
    qn_status status = qn_cpu_scratch(&rooms, (size_t)qn_pool_threads(),
                                      n * sizeof(float), &job.stride);
    if (status)
        return status;
    status = qn_array_alloc(out);
    if (!status) {
        *done = true;
        job.rooms = rooms->data;
        qn_pool_split(requantize_rows, &job, out->size / n,
                      GRAIN_COPY / n / 8 + 1, 1);
    }
    qn_buffer_unref(rooms);
    return status;
}
