/* map.c: operations on each element by itself: unary, binary, comparison,
 * selection, conversion.
 *
 * The plan (backend/common) is cut into ranges of elements that threads
 * share.  Inside a run, operands that the kernels can read where they lie are
 * handed over as they are; half types and strided operands are staged in
 * blocks on the stack.
 *
 * What float32 has no vector form of, and all other types, go through the
 * loops of ops.def (kernels/loops).  A large fresh output is written around
 * the caches: it would push everything else out, and each of its lines would
 * be read before it is overwritten. */
#include "cpu.h"

#include "backend/common/output.h"
#include "backend/common/plan.h"
#include "backend/cpu/kernels/casts/casts.h"
#include "backend/cpu/kernels/loops/loops.h"
#include "backend/cpu/kernels/map/map.h"
#include "backend/ref/stage.h"
#include "ops/ops.h"
#include "pool.h"

#include <string.h>

enum {
    BLOCK = 512,   /* elements staged at a time */
    GRAIN = 16384, /* copies' worth of work that is not split */
    /* What an element costs where a function of libm computes it. */
    SLOW_WORK = 16,
    MAX_INPUTS = 3
};

typedef struct operand {
    char *base; /* element 0 of the plan */
    qn_dtype dtype;
    int64_t step;
} operand;

typedef struct map_job map_job;
/* n elements of a run; at[0] is the output. */
typedef void (*map_piece)(const map_job *job, char *const *at, size_t n);

struct map_job {
    map_piece piece;
    const qn_map_kernel *kernel;
    qn_op op;
    int ninputs;
    bool scalars;       /* the kernel takes operands that stand still */
    bool stream;        /* the output goes around the caches */
    qn_ref_kernel loop; /* of plain_piece */
    qn_plan plan;
    operand ops[MAX_INPUTS + 1];
};

/* A block of any element size. */
typedef union block {
    _Alignas(64) float floats[BLOCK];
    uint64_t any[BLOCK];
} block;

static void convert(void *to, qn_dtype to_type, const void *from,
                    qn_dtype from_type, size_t n)
{
    qn_map_pick()->convert[qn_map_type(from_type)][qn_map_type(to_type)](
        to, from, n);
}

void qn_cpu_widen(float *dst, const void *src, size_t count, qn_dtype type)
{
    convert(dst, QN_FLOAT32, src, type, count);
}

void qn_cpu_narrow(void *dst, const float *src, size_t count, qn_dtype type)
{
    convert(dst, type, src, QN_FLOAT32, count);
}

/* Sizes spelled out become plain loads and stores. */
#define GATHER(size)                                                           \
    for (size_t i = 0; i < n; i++)                                             \
    memcpy((char *)to + i * (size),                                            \
           (const char *)from + (int64_t)i * step * (size), size)

static void gather(void *to, const void *from, int64_t step, size_t n,
                   size_t size)
{
    switch (size) {
    case 1:
        GATHER(1);
        break;
    case 2:
        GATHER(2);
        break;
    case 4:
        GATHER(4);
        break;
    default:
        GATHER(8);
        break;
    }
}

/* True when a kernel can read the operand where it lies. */
static bool direct(const map_job *job, const operand *o)
{
    return o->step == 1 || (o->step == 0 && job->scalars);
}

/* n elements as they are stored, contiguous or one for all. */
static const void *as_stored(const map_job *job, const operand *o,
                             const char *at, size_t n, block *space)
{
    if (direct(job, o))
        return at;
    gather(space, at, o->step, n, qn_dtype_size(o->dtype));
    return space;
}

/* The same as floats. */
static const float *as_floats(const map_job *job, const operand *o,
                              const char *at, size_t n, block *space)
{
    block together;
    const void *from = at;
    if (o->dtype == QN_FLOAT32)
        return as_stored(job, o, at, n, space);
    if (!direct(job, o)) {
        gather(&together, at, o->step, n, qn_dtype_size(o->dtype));
        from = &together;
    } else if (o->step == 0) {
        n = 1;
    }
    job->kernel->convert[qn_map_type(o->dtype)][QN_MAP_F32](space, from, n);
    return space->floats;
}

static bool stands(const operand *o)
{
    return o->step == 0;
}

static void unary_piece(const map_job *job, char *const *at, size_t n)
{
    const operand *o = job->ops;
    qn_map_unary run = job->kernel->unary[job->op];
    block in, out;
    if (o->dtype == QN_FLOAT32) {
        run((float *)(void *)at[0], as_floats(job, &o[1], at[1], n, &in), n);
        return;
    }
    run(out.floats, as_floats(job, &o[1], at[1], n, &in), n);
    qn_cpu_narrow(at[0], out.floats, n, o->dtype);
}

static void binary_piece(const map_job *job, char *const *at, size_t n)
{
    const operand *o = job->ops;
    qn_map_binary run = job->kernel->binary[job->op];
    block left, right, out;
    const float *a = as_floats(job, &o[1], at[1], n, &left);
    const float *b = as_floats(job, &o[2], at[2], n, &right);
    if (o->dtype == QN_FLOAT32) {
        run((float *)(void *)at[0], a, b, n, !stands(&o[1]), !stands(&o[2]));
        return;
    }
    run(out.floats, a, b, n, !stands(&o[1]), !stands(&o[2]));
    qn_cpu_narrow(at[0], out.floats, n, o->dtype);
}

static void compare_piece(const map_job *job, char *const *at, size_t n)
{
    const operand *o = job->ops;
    block left, right;
    const float *a = as_floats(job, &o[1], at[1], n, &left);
    const float *b = as_floats(job, &o[2], at[2], n, &right);
    job->kernel->compare[job->op]((uint8_t *)at[0], a, b, n, !stands(&o[1]),
                                  !stands(&o[2]));
}

/* The loops of ops.def: whole operands, half types as floats. */
static void plain_piece(const map_job *job, char *const *at, size_t n)
{
    const operand *o = job->ops;
    block in[MAX_INPUTS], out;
    const void *from[MAX_INPUTS];
    for (int i = 0; i < job->ninputs; i++) {
        const operand *input = &o[i + 1];
        bool half = qn_value_dtype(input->dtype) != input->dtype;
        from[i] = half ? as_floats(job, input, at[i + 1], n, &in[i])
                       : as_stored(job, input, at[i + 1], n, &in[i]);
    }
    if (qn_value_dtype(o->dtype) == o->dtype) {
        job->loop(n, at[0], from);
        return;
    }
    job->loop(n, &out, from);
    qn_cpu_narrow(at[0], out.floats, n, o->dtype);
}

static void convert_piece(const map_job *job, char *const *at, size_t n)
{
    const operand *o = job->ops;
    block in;
    const void *from = as_stored(job, &o[1], at[1], n, &in);
    convert(at[0], o[0].dtype, from, o[1].dtype, n);
}

static void select_piece(const map_job *job, char *const *at, size_t n)
{
    const operand *o = job->ops;
    block condition, yes, no;
    size_t size = qn_dtype_size(o->dtype);
    int power = size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : 3;
    const uint8_t *c = as_stored(job, &o[1], at[1], n, &condition);
    if (stands(&o[1])) {
        memset(&condition, *c, n);
        c = (const uint8_t *)&condition;
    }
    const void *x = as_stored(job, &o[2], at[2], n, &yes);
    const void *y = as_stored(job, &o[3], at[3], n, &no);
    job->kernel->select[power](at[0], c, x, y, n, !stands(&o[2]),
                               !stands(&o[3]));
}

/* True when a whole run can be one piece. */
static bool unstaged(const map_job *job)
{
    /* A condition that stands is spread over a block. */
    if (job->piece == select_piece && stands(&job->ops[1]))
        return false;
    for (int i = 0; i <= job->ninputs; i++) {
        const operand *o = &job->ops[i];
        bool half = o->dtype == QN_FLOAT16 || o->dtype == QN_BFLOAT16;
        if (half && job->piece != convert_piece && job->piece != select_piece)
            return false;
        if (!direct(job, o))
            return false;
    }
    return true;
}

static void run_piece(const map_job *job, char **at, size_t n)
{
    block out;
    char *to = at[0];
    if (!job->stream) {
        job->piece(job, at, n);
        return;
    }
    at[0] = (char *)&out;
    job->piece(job, at, n);
    job->kernel->stream(to, &out, n * qn_dtype_size(job->ops[0].dtype));
}

/* Elements begin .. end in the order of the plan. */
static void run_range(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    const map_job *job = ctx;
    const qn_plan *plan = &job->plan;
    size_t most = unstaged(job) && !job->stream ? plan->run : BLOCK;
    size_t run = begin / plan->run, skip = begin % plan->run;
    qn_walk walk;
    for (qn_walk_start(&walk, plan, run, plan->nruns - run); begin < end;
         qn_walk_next(&walk), skip = 0) {
        size_t stop =
            plan->run - skip < end - begin ? plan->run : skip + (end - begin);
        begin += stop - skip;
        while (skip < stop) {
            size_t n = stop - skip < most ? stop - skip : most;
            char *at[MAX_INPUTS + 1];
            for (int i = 0; i <= job->ninputs; i++) {
                const operand *o = &job->ops[i];
                int64_t element = walk.offsets[i] + (int64_t)skip * o->step;
                at[i] = o->base + element * (int64_t)qn_dtype_size(o->dtype);
            }
            run_piece(job, at, n);
            skip += n;
        }
    }
    if (job->stream)
        job->kernel->fence();
}

/* Output and inputs from `first` on have one shape; storage is given. */
static void run_job(map_job *job, qn_node *node, int work)
{
    const qn_array *arrays[MAX_INPUTS + 1] = {node->outputs[0]};
    for (int i = 0; i < job->ninputs; i++)
        arrays[i + 1] = node->inputs[i];
    qn_plan_elementwise(&job->plan, arrays, job->ninputs + 1);
    if (job->plan.kind == QN_PLAN_EMPTY)
        return;
    job->stream =
        job->plan.step[0] == 1 && qn_array_nbytes(arrays[0]) >= QN_CPU_STREAM;
    for (int i = 0; i <= job->ninputs; i++) {
        job->ops[i] = (operand){qn_array_data(arrays[i]), arrays[i]->dtype,
                                job->plan.step[i]};
        /* What is read anyway is in the caches. */
        if (i && job->ops[i].base == job->ops[0].base)
            job->stream = false;
    }
    qn_pool_split(run_range, job, job->plan.size,
                  GRAIN / (size_t)(work > 0 ? work : 1), 64);
}

static bool is_float(qn_dtype dtype)
{
    return qn_map_type(dtype) >= 0;
}

/* Gives the output storage and runs the job. */
static qn_status run_node(qn_node *node, map_job job, int work, bool *done)
{
    qn_status status =
        qn_output_reuse(node->outputs[0], node->inputs, job.ninputs);
    if (status)
        return status;
    *done = true;
    job.kernel = qn_map_pick();
    job.op = node->op;
    run_job(&job, node, work);
    return QN_OK;
}

/* What an element of a loop of ops.def costs beside a copy. */
static int work_of(qn_op op, qn_dtype dtype)
{
    (void)op;
    qn_kind kind = qn_dtype_kind(dtype);
    return kind == QN_KIND_FLOAT || kind == QN_KIND_COMPLEX ? SLOW_WORK : 2;
}

static qn_status run_loop(qn_node *node, qn_ref_kernel loop, int ninputs,
                          bool *done)
{
    if (!loop)
        return QN_OK;
    return run_node(
        node, (map_job){.piece = plain_piece, .loop = loop, .ninputs = ninputs},
        work_of(node->op, node->inputs[0]->dtype), done);
}

qn_status qn_cpu_unary(qn_node *node, bool *done)
{
    qn_dtype dtype = node->inputs[0]->dtype;
    if (is_float(dtype) && node->outputs[0]->dtype == dtype &&
        qn_map_pick()->unary[node->op])
        return run_node(node, (map_job){.piece = unary_piece, .ninputs = 1},
                        qn_map_work(node->op), done);
    return run_loop(node, qn_loops_unary(node->op, dtype), 1, done);
}

qn_status qn_cpu_binary(qn_node *node, bool *done)
{
    const qn_map_kernel *kernel = qn_map_pick();
    qn_dtype dtype = node->inputs[0]->dtype;
    map_job job = {.ninputs = 2, .scalars = true};
    if (is_float(dtype) && kernel->binary[node->op]) {
        job.piece = binary_piece;
        return run_node(node, job, qn_map_work(node->op), done);
    }
    if (is_float(dtype) && kernel->compare[node->op]) {
        job.piece = compare_piece;
        return run_node(node, job, 1, done);
    }
    return run_loop(node, qn_loops_binary(node->op, dtype), 2, done);
}

qn_status qn_cpu_where(qn_node *node, bool *done)
{
    map_job job = {.piece = select_piece, .ninputs = 3, .scalars = true};
    /* Of 64-bit elements only those of one number: complex64 is not aligned
     * for them. */
    if (node->outputs[0]->dtype == QN_COMPLEX64)
        job = (map_job){.piece = plain_piece,
                        .loop = qn_ref_where_kernel(QN_COMPLEX64),
                        .ninputs = 3};
    return run_node(node, job, 1, done);
}

qn_status qn_cpu_astype(qn_node *node, bool *done)
{
    map_job job = {.piece = convert_piece, .ninputs = 1};
    qn_dtype from = node->inputs[0]->dtype, to = node->outputs[0]->dtype;
    if (!is_float(from) || !is_float(to)) {
        job.piece = plain_piece;
        job.loop = qn_casts_pick(from, to);
    }
    return run_node(node, job, 1, done);
}
