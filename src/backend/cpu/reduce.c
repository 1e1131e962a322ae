/* reduce.c: reductions over any axes, on all threads.
 *
 * What is to be reduced falls into pieces by its shape and layout alone: whole
 * outputs where there are many, else parts of about PIECE elements, whose
 * accumulators are joined in order.  Threads share the pieces, so the bits
 * never depend on the threads.
 *
 * The reduced axes are taken from the longest stride to the shortest, whatever
 * their order in the shape: memory is read forwards.  Elements that lie apart,
 * in the reduced axes and in the kept ones, are copied together first. */
#include "cpu.h"

#include "backend/common/plan.h"
#include "backend/cpu/kernels/reduce/reduce.h"
#include "backend/ref/stage.h"
#include "base/alloc.h"
#include "ops/params.h"
#include "pool.h"

#include <stdlib.h>

enum {
    PIECE = 64 * 1024, /* elements of an output that are reduced together */
    ENOUGH = 64,       /* whole outputs, or blocks of them: not cut further */
    GRAIN = 16 * 1024, /* elements that are not shared among threads */
    COLUMNS = 1024,    /* outputs that are reduced side by side */
    BATCH = 64,        /* outputs that are stored together */
    NARROW = 128,      /* outputs that are too few for whole vectors */
    STAGED = 2048,     /* elements copied together at a time */
    WIDEST = 16        /* bytes of an accumulator */
};

typedef struct reduce_job reduce_job;
struct reduce_job {
    const qn_reduce_loop *loop;
    qn_reduce_kind kind;
    const char *in;
    qn_dtype in_type;
    int64_t item;
    qn_array *out;
    qn_wide wide; /* of accumulators that are wide (stage.h) */
    bool is_wide;
    /* Outputs in order, operands output and input; then what makes one. */
    qn_plan kept, reduced;
    size_t pieces; /* of an output, or of a block of columns */
    size_t piece;  /* runs (COLUMNS: elements) of the reduced axes in one */
    size_t parts;  /* a run falls into so many: 1 unless piece is 1 */
    size_t blocks; /* COLUMNS: blocks in a run of outputs */
    size_t width;  /* accumulators of a piece */
    char *results; /* [output or block, piece, width]; NULL: one piece */
};

/* Rounds n accumulators to the elements of the output from number `at` on. */
static void store(const reduce_job *job, size_t at, const void *acc, size_t n)
{
    qn_dtype type = job->out->dtype;
    void *to = qn_element(job->out, (int64_t)at);
    if (job->is_wide)
        qn_wide_store(to, type, 1, acc, job->wide, n);
    else
        qn_values_store(to, type, 1, acc, n);
}

/* ---- rows: neighbours are reduced ---- */

/* acc[o] takes in elements first .. first + n - 1 of a run of each of `count`
 * outputs, which are `step` apart; `at` is where the first one's run begins. */
static void take_run(const reduce_job *job, char *acc, int64_t at, size_t first,
                     size_t n, size_t count, int64_t step)
{
    int64_t along = job->reduced.step[0];
    const char *from = job->in + (at + (int64_t)first * along) * job->item;
    if (job->kind == QN_REDUCE_ROWS) {
        job->loop->rows(acc, from, n, count, step);
        return;
    }
    double staged[STAGED];
    for (size_t o = 0; o < count; o++) {
        const char *run = from + (int64_t)o * step * job->item;
        for (size_t i = 0; i < n; i += STAGED) {
            size_t part = n - i < STAGED ? n - i : STAGED;
            qn_values_load(staged, job->in_type,
                           run + (int64_t)i * along * job->item, along, part);
            job->loop->rows(acc + o * job->loop->size, staged, part, 1, 0);
        }
    }
}

/* Whole outputs begin .. end - 1. */
static void run_outputs(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    const reduce_job *job = ctx;
    const qn_plan *kept = &job->kept, *reduced = &job->reduced;
    double acc[BATCH * WIDEST / sizeof(double)];
    qn_walk outer, inner;
    size_t run = begin / kept->run, skip = begin % kept->run;
    size_t runs = (end - 1) / kept->run + 1 - run;
    for (qn_walk_start(&outer, kept, run, runs); begin < end;
         qn_walk_next(&outer), skip = 0)
        while (skip < kept->run && begin < end) {
            size_t count = kept->run - skip;
            count = count < end - begin ? count : end - begin;
            count = count < BATCH ? count : BATCH;
            int64_t at = outer.offsets[1] + (int64_t)skip * kept->step[1];
            job->loop->start(acc, count);
            for (qn_walk_start(&inner, reduced, 0, reduced->nruns); inner.left;
                 qn_walk_next(&inner))
                take_run(job, (char *)acc, at + inner.offsets[0], 0,
                         reduced->run, count, kept->step[1]);
            store(job, begin, acc, count);
            begin += count;
            skip += count;
        }
}

/* Pieces begin .. end - 1 of all outputs. */
static void run_pieces(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    const reduce_job *job = ctx;
    const qn_plan *reduced = &job->reduced;
    for (size_t i = begin; i < end; i++) {
        int64_t output[QN_PLAN_OPERANDS];
        size_t o = i / job->pieces, piece = i % job->pieces;
        char *acc = job->results + i * job->loop->size;
        qn_plan_offsets(&job->kept, o / job->kept.run, output);
        int64_t at =
            output[1] + (int64_t)(o % job->kept.run) * job->kept.step[1];
        size_t first = piece / job->parts * job->piece;
        size_t runs = reduced->nruns - first;
        runs = runs < job->piece ? runs : job->piece;
        size_t from = piece % job->parts * PIECE, n = reduced->run - from;
        n = job->parts > 1 && n > PIECE ? PIECE : n;
        qn_walk inner;
        job->loop->start(acc, 1);
        for (qn_walk_start(&inner, reduced, first, runs); inner.left;
             qn_walk_next(&inner))
            take_run(job, acc, at + inner.offsets[0], from, n, 1, 0);
    }
}

/* ---- columns: neighbours are kept ---- */

/* Of *rows rows that follow one another without gaps, as many as fill lines of
 * NARROW elements or fewer, each line a row of its own; *rows becomes what is
 * left.  Returns how many elements were taken. */
static int64_t take_narrow(const reduce_job *job, char *acc, int64_t at,
                           size_t n, size_t *rows)
{
    double lines[NARROW * WIDEST / sizeof(double)];
    size_t group = NARROW / n, width = group * n, count = *rows / group;
    if (count < 2)
        return 0;
    job->loop->start(lines, width);
    job->loop->columns(lines, job->in + at * job->item, width, count,
                       (int64_t)width);
    for (size_t g = 0; g < group; g++)
        job->loop->join(acc, (char *)lines + g * n * job->loop->size, n);
    *rows -= count * group;
    return (int64_t)(count * width);
}

/* acc[i] takes in elements first .. last - 1 of the reduced axes. */
static void take_columns(const reduce_job *job, char *acc, int64_t at, size_t n,
                         size_t first, size_t last)
{
    const qn_plan *reduced = &job->reduced;
    size_t run = first / reduced->run, skip = first % reduced->run;
    qn_walk inner;
    for (qn_walk_start(&inner, reduced, run, reduced->nruns - run);
         first < last; qn_walk_next(&inner), skip = 0) {
        size_t rows = reduced->run - skip;
        rows = rows < last - first ? rows : last - first;
        int64_t from = at + inner.offsets[0] + (int64_t)skip * reduced->step[0];
        first += rows;
        if (reduced->step[0] == (int64_t)n && n <= NARROW)
            from += take_narrow(job, acc, from, n, &rows);
        job->loop->columns(acc, job->in + from * job->item, n, rows,
                           reduced->step[0]);
    }
}

/* Pieces begin .. end - 1 of all blocks of columns. */
static void run_columns(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    const reduce_job *job = ctx;
    double space[COLUMNS * WIDEST / sizeof(double)];
    for (size_t i = begin; i < end; i++) {
        int64_t output[QN_PLAN_OPERANDS];
        size_t b = i / job->pieces, piece = i % job->pieces;
        size_t run = b / job->blocks, column = b % job->blocks * COLUMNS;
        size_t n = job->kept.run - column;
        n = n < COLUMNS ? n : COLUMNS;
        size_t first = piece * job->piece, left = job->reduced.size - first;
        char *acc = (char *)space;
        if (job->results)
            acc = job->results + i * job->width * job->loop->size;
        qn_plan_offsets(&job->kept, run, output);
        job->loop->start(acc, n);
        take_columns(job, acc, output[1] + (int64_t)column, n, first,
                     first + (left < job->piece ? left : job->piece));
        if (!job->results)
            store(job, run * job->kept.run + column, acc, n);
    }
}

/* ---- both ---- */

/* Joins the pieces of each output (block), in order. */
static void join_pieces(const reduce_job *job, size_t count)
{
    size_t bytes = job->width * job->loop->size;
    for (size_t i = 0; i < count; i++) {
        char *acc = job->results + i * job->pieces * bytes;
        size_t at = i, n = 1;
        if (job->kind == QN_REDUCE_COLUMNS) {
            size_t column = i % job->blocks * COLUMNS;
            at = i / job->blocks * job->kept.run + column;
            n = job->kept.run - column;
            n = n < COLUMNS ? n : COLUMNS;
        }
        for (size_t p = 1; p < job->pieces; p++)
            job->loop->join(acc, acc + p * bytes, n);
        store(job, at, acc, n);
    }
}

static qn_status new_results(reduce_job *job, qn_buffer **held, size_t count)
{
    size_t bytes;
    if (!qn_mul_size(&bytes, count, job->pieces) ||
        !qn_mul_size(&bytes, bytes, job->width * job->loop->size))
        return qn_fail(QN_E_NOMEM, "cpu: results of %zu pieces", count);
    qn_status status = qn_buffer_new(held, bytes);
    if (!status)
        job->results = (*held)->data;
    return status;
}

static qn_status reduce_columns(reduce_job *job)
{
    const qn_plan *kept = &job->kept, *reduced = &job->reduced;
    job->blocks = (kept->run + COLUMNS - 1) / COLUMNS;
    job->width = kept->run < COLUMNS ? kept->run : COLUMNS;
    size_t count = kept->nruns * job->blocks;
    job->piece = reduced->size;
    if (count < ENOUGH && reduced->size > PIECE / job->width)
        job->piece = PIECE / job->width;
    job->pieces = (reduced->size + job->piece - 1) / job->piece;
    qn_buffer *held = NULL;
    if (job->pieces > 1) {
        qn_status status = new_results(job, &held, count);
        if (status)
            return status;
    }
    qn_pool_split(run_columns, job, count * job->pieces,
                  GRAIN / (job->width * job->piece) + 1, 1);
    if (held) {
        join_pieces(job, count);
        qn_buffer_unref(held);
    }
    return QN_OK;
}

static qn_status reduce_rows(reduce_job *job)
{
    const qn_plan *kept = &job->kept, *reduced = &job->reduced;
    job->width = 1;
    if (kept->size >= ENOUGH || reduced->size <= PIECE) {
        qn_pool_split(run_outputs, job, kept->size, GRAIN / reduced->size + 1,
                      1);
        return QN_OK;
    }
    job->piece = reduced->run < PIECE ? PIECE / reduced->run : 1;
    job->parts = (reduced->run + PIECE - 1) / PIECE;
    job->pieces = (reduced->nruns + job->piece - 1) / job->piece * job->parts;
    qn_buffer *held;
    qn_status status = new_results(job, &held, kept->size);
    if (status)
        return status;
    qn_pool_split(run_pieces, job, kept->size * job->pieces, 1, 1);
    join_pieces(job, kept->size);
    qn_buffer_unref(held);
    return QN_OK;
}

/* Axes from the longest stride to the shortest; those that stand still come
 * first, as the elements of the others are neighbours. */
static void sort_axes(int *shape, int64_t *strides, int n)
{
    for (int i = 1; i < n; i++) {
        int length = shape[i], at = i;
        int64_t stride = strides[i];
        for (; at > 0 && (!stride || (strides[at - 1] &&
                                      llabs(strides[at - 1]) < llabs(stride)));
             at--) {
            shape[at] = shape[at - 1];
            strides[at] = strides[at - 1];
        }
        shape[at] = length;
        strides[at] = stride;
    }
}

static void plan_axes(reduce_job *job, const qn_array *in,
                      const qn_reduce_params *p)
{
    int kept[QN_MAX_NDIM] = {0}, reduced[QN_MAX_NDIM] = {0};
    int nkept = 0, nreduced = 0;
    int64_t from[QN_MAX_NDIM], over[QN_MAX_NDIM], to[QN_MAX_NDIM];
    for (int axis = 0; axis < in->ndim; axis++) {
        if (nreduced < p->naxes && p->axes[nreduced] == axis) {
            over[nreduced] = in->strides[axis];
            reduced[nreduced++] = in->shape[axis];
        } else {
            from[nkept] = in->strides[axis];
            kept[nkept++] = in->shape[axis];
        }
    }
    sort_axes(reduced, over, nreduced);
    qn_row_strides(to, kept, nkept);
    qn_plan_make(&job->kept, kept, nkept, (const int64_t *[]){to, from}, 2);
    qn_plan_make(&job->reduced, reduced, nreduced, (const int64_t *[]){over},
                 1);
    bool neighbours = job->kept.run > 1 && job->kept.step[1] == 1;
    bool together = job->reduced.size == 1 || job->reduced.step[0] == 1;
    job->kind = together     ? QN_REDUCE_ROWS
                : neighbours ? QN_REDUCE_COLUMNS
                             : QN_REDUCE_STRIDED;
}

/* Whether accumulators of `loop` become elements of the output. */
static bool plan_store(reduce_job *job, qn_op op)
{
    qn_kind kind = qn_dtype_kind(job->in_type);
    qn_dtype out = job->out->dtype;
    job->is_wide = (op == QN_OP_SUM || op == QN_OP_PROD) &&
                   (kind == QN_KIND_FLOAT || kind == QN_KIND_COMPLEX);
    job->wide = kind == QN_KIND_COMPLEX ? QN_WIDE_COMPLEX : QN_WIDE_FLOAT;
    if (job->is_wide)
        return qn_dtype_kind(out) == kind;
    return qn_dtype_size(qn_value_dtype(out)) == job->loop->size &&
           (qn_dtype_kind(out) == QN_KIND_FLOAT) == (kind == QN_KIND_FLOAT);
}

qn_status qn_cpu_reduce(qn_node *node, bool *done)
{
    const qn_array *in = node->inputs[0];
    reduce_job job = {.in_type = in->dtype, .out = node->outputs[0]};
    if (!in->size)
        return QN_OK;
    plan_axes(&job, in, node->params);
    const qn_reduce_kernel *kernel = qn_reduce_pick();
    bool staged = job.kind == QN_REDUCE_STRIDED;
    job.loop = &kernel->loops[qn_op_info_of(node->op)->place]
                             [staged ? qn_value_dtype(in->dtype) : in->dtype];
    if (!job.loop->size || !plan_store(&job, node->op))
        return QN_OK;
    qn_status status = qn_array_alloc(job.out);
    if (status)
        return status;
    *done = true;
    job.in = qn_array_data(in);
    job.item = (int64_t)qn_array_itemsize(in);
    return job.kind == QN_REDUCE_COLUMNS ? reduce_columns(&job)
                                         : reduce_rows(&job);
}
