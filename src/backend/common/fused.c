/* fused.c: registers in blocks.
 *
 * Scratch memory has one block per place of the program, then one per input.
 * An input that lies as the loops want it is read where it is.  The last step
 * writes its output in place if it can; all other outputs are stored when the
 * block's steps are done, so a donated input is read before it is written. */
#include "fused.h"

#include "ops/params.h"
#include "output.h"

#include "core/node.h"

#include <string.h>

enum { BLOCK_BYTES = QN_FUSED_BLOCK * 8 };

static bool is_half(qn_dtype dtype)
{
    return dtype == QN_FLOAT16 || dtype == QN_BFLOAT16;
}

static size_t value_size(qn_dtype dtype)
{
    return is_half(dtype) ? sizeof(float) : qn_dtype_size(dtype);
}

/* ---- opening ---- */

static qn_status bind_loops(qn_fused_job *job)
{
    const qn_fused *p = job->program;
    for (int k = 0; k < p->nsteps; k++) {
        const qn_fused_step *step = &p->steps[k];
        int arity = qn_fused_arity(step->op);
        qn_fused_loop *loop = &job->loops[k];
        *loop = (qn_fused_loop){.op = step->op,
                                .from = qn_fused_type(p, step->args[arity - 1]),
                                .to = step->type};
        if (!job->words->bind(loop))
            return qn_fail(QN_E_UNSUPPORTED, "[%s] no loop for %s",
                           qn_op_info_of(step->op)->name,
                           qn_dtype_name(loop->from));
        for (int i = 0; i < arity && !loop->scalars; i++)
            if (step->args[i] < p->ninputs)
                job->filled[step->args[i]] = true;
    }
    return QN_OK;
}

/* The first output may overwrite an input that dies here. */
static qn_status give_storage(qn_node *node)
{
    qn_array *const *out = node->outputs;
    qn_array *whole[QN_FUSED_INPUTS];
    int n = 0;
    for (int i = 0; i < node->ninputs; i++)
        if (node->inputs[i]->size == out[0]->size)
            whole[n++] = node->inputs[i];
    qn_status status = qn_output_reuse(out[0], whole, n);
    for (int i = 1; i < node->noutputs && !status; i++)
        status = qn_array_alloc(out[i]);
    return status;
}

/* Strides with which an input runs over the output's shape. */
static void stretch(int64_t *strides, const qn_array *in, const qn_array *out)
{
    int missing = out->ndim - in->ndim;
    for (int axis = 0; axis < out->ndim; axis++) {
        int from = axis - missing;
        bool stands = from < 0 || in->shape[from] == 1;
        strides[axis] = stands ? 0 : in->strides[from];
    }
}

qn_status qn_fused_open(qn_fused_job *job, qn_node *node,
                        const qn_fused_words *words)
{
    const qn_fused *p = ((const qn_fused_params *)node->params)->program;
    int64_t room[QN_PLAN_OPERANDS][QN_MAX_NDIM];
    const int64_t *strides[QN_PLAN_OPERANDS];
    *job = (qn_fused_job){.program = p, .words = words};
    qn_status status = bind_loops(job);
    if (!status)
        status = give_storage(node);
    if (status)
        return status;
    const qn_array *out = node->outputs[0];
    int n = 0;
    for (; n < p->noutputs; n++) {
        strides[n] = node->outputs[n]->strides;
        job->out[n] = qn_array_data(node->outputs[n]);
    }
    for (int i = 0; i < p->ninputs; i++) {
        const qn_array *in = node->inputs[i];
        job->base[i] = qn_array_data(in);
        job->operand[i] = -1;
        if (in->size <= 1)
            continue;
        if (n == QN_PLAN_OPERANDS)
            return qn_fail(QN_E_INTERNAL, "[fused] too many operands");
        stretch(room[n], in, out);
        strides[n] = room[n];
        job->operand[i] = n++;
    }
    qn_plan_elementwise_strides(&job->plan, out->shape, out->ndim, strides, n);
    return QN_OK;
}

size_t qn_fused_scratch(const qn_fused *program)
{
    int blocks = program->nplaces + program->ninputs;
    return (size_t)blocks * BLOCK_BYTES;
}

/* ---- running ---- */

/* One thread's registers. */
typedef struct work {
    const qn_fused_job *job;
    char *places, *loads;
    const int64_t *offsets; /* of the present run */
    const void *reg[QN_FUSED_INPUTS + QN_FUSED_STEPS];
    int step[QN_FUSED_INPUTS + QN_FUSED_STEPS]; /* 0: one value for all */
} work;

/* Repeats the value at the front of a block. */
static void fill(void *block, size_t size, size_t n)
{
    char *bytes = block;
    size_t total = n * size;
    for (size_t have = size; have < total; have *= 2)
        memcpy(bytes + have, bytes, have < total - have ? have : total - have);
}

static void load_one(work *w, int i, const char *at)
{
    const qn_fused_job *job = w->job;
    qn_dtype dtype = job->program->types[i];
    char *block = w->loads + (size_t)i * BLOCK_BYTES;
    job->words->load(block, dtype, at, 0, 1);
    if (job->filled[i])
        fill(block, value_size(dtype), QN_FUSED_BLOCK);
    w->reg[i] = block;
    w->step[i] = 0;
}

static int64_t step_of(const qn_fused_job *job, int i)
{
    return job->plan.step[job->operand[i]];
}

static const char *place_of(const work *w, int i, size_t skip)
{
    const qn_fused_job *job = w->job;
    int operand = job->operand[i];
    int64_t element =
        w->offsets[operand] + (int64_t)skip * job->plan.step[operand];
    return job->base[i] +
           element * (int64_t)qn_dtype_size(job->program->types[i]);
}

/* Inputs that stand still in this run. */
static void start_run(work *w)
{
    const qn_fused_job *job = w->job;
    for (int i = 0; i < job->program->ninputs; i++)
        if (job->operand[i] >= 0 && step_of(job, i) == 0)
            load_one(w, i, place_of(w, i, 0));
}

/* Inputs that go on. */
static void load_block(work *w, size_t skip, size_t n)
{
    const qn_fused_job *job = w->job;
    for (int i = 0; i < job->program->ninputs; i++) {
        if (job->operand[i] < 0 || step_of(job, i) == 0)
            continue;
        const char *at = place_of(w, i, skip);
        qn_dtype dtype = job->program->types[i];
        w->step[i] = 1;
        w->reg[i] = at;
        if (step_of(job, i) == 1 && !is_half(dtype))
            continue;
        char *block = w->loads + (size_t)i * BLOCK_BYTES;
        job->words->load(block, dtype, at, step_of(job, i), n);
        w->reg[i] = block;
    }
}

static char *output_at(const work *w, int k, size_t skip)
{
    const qn_fused_job *job = w->job;
    qn_dtype dtype = qn_fused_type(job->program, job->program->outputs[k]);
    int64_t element = w->offsets[k] + (int64_t)skip * job->plan.step[k];
    return job->out[k] + element * (int64_t)qn_dtype_size(dtype);
}

/* The output that a step can write where it belongs, or NULL. */
static char *direct_output(const work *w, int k, size_t skip, int *which)
{
    const qn_fused *p = w->job->program;
    *which = -1;
    if (k != p->nsteps - 1 || is_half(p->steps[k].type))
        return NULL;
    for (int i = 0; i < p->noutputs; i++)
        if (p->outputs[i] == p->ninputs + k && w->job->plan.step[i] == 1) {
            *which = i;
            return output_at(w, i, skip);
        }
    return NULL;
}

static void run_block(work *w, size_t skip, size_t n)
{
    const qn_fused_job *job = w->job;
    const qn_fused *p = job->program;
    int direct = -1;
    load_block(w, skip, n);
    for (int k = 0; k < p->nsteps; k++) {
        const qn_fused_step *step = &p->steps[k];
        const qn_fused_loop *loop = &job->loops[k];
        const void *in[3];
        int steps[3];
        for (int i = 0; i < qn_fused_arity(step->op); i++) {
            in[i] = w->reg[step->args[i]];
            steps[i] = loop->scalars ? w->step[step->args[i]] : 1;
        }
        char *to = direct_output(w, k, skip, &direct);
        if (!to)
            to = w->places + (size_t)step->place * BLOCK_BYTES;
        loop->run(loop, n, to, in, steps);
        w->reg[p->ninputs + k] = to;
        w->step[p->ninputs + k] = 1;
    }
    for (int i = 0; i < p->noutputs; i++)
        if (i != direct)
            job->words->store(output_at(w, i, skip),
                              qn_fused_type(p, p->outputs[i]),
                              job->plan.step[i], w->reg[p->outputs[i]], n);
}

void qn_fused_run(const qn_fused_job *job, size_t begin, size_t end,
                  void *scratch)
{
    const qn_plan *plan = &job->plan;
    if (plan->kind == QN_PLAN_EMPTY || begin >= end)
        return;
    work w = {.job = job, .places = scratch};
    w.loads = w.places + (size_t)job->program->nplaces * BLOCK_BYTES;
    for (int i = 0; i < job->program->ninputs; i++)
        if (job->operand[i] < 0)
            load_one(&w, i, job->base[i]);
    size_t run = begin / plan->run, skip = begin % plan->run;
    qn_walk walk;
    for (qn_walk_start(&walk, plan, run, plan->nruns - run); begin < end;
         qn_walk_next(&walk), skip = 0) {
        size_t left = plan->run - skip;
        size_t stop = left < end - begin ? plan->run : skip + (end - begin);
        begin += stop - skip;
        w.offsets = walk.offsets;
        start_run(&w);
        while (skip < stop) {
            size_t n =
                stop - skip < QN_FUSED_BLOCK ? stop - skip : QN_FUSED_BLOCK;
            run_block(&w, skip, n);
            skip += n;
        }
    }
}
