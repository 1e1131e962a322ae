/* fused.c: programs, and the node that runs one. */
#include "fused.h"

#include "dims.h"
#include "params.h"

#include "base/alloc.h"

#include <string.h>

int qn_fused_arity(int op)
{
    switch (qn_op_info_of(op)->family) {
    case QN_FAMILY_UNARY:
        return 1;
    case QN_FAMILY_BINARY:
        return 2;
    default:
        return op == QN_OP_SELECT ? 3 : op == QN_OP_ASTYPE ? 1 : 0;
    }
}

/* A register's last reader, by step; outputs are read after all of them. */
static void find_ends(const qn_fused *p, int *ends)
{
    for (int k = 0; k < p->nsteps; k++) {
        ends[k] = k;
        for (int i = 0; i < qn_fused_arity(p->steps[k].op); i++) {
            int from = p->steps[k].args[i] - p->ninputs;
            if (from >= 0)
                ends[from] = k;
        }
    }
    for (int i = 0; i < p->noutputs; i++)
        ends[p->outputs[i] - p->ninputs] = p->nsteps;
}

static void assign_places(qn_fused *p)
{
    int ends[QN_FUSED_STEPS], owner[QN_FUSED_STEPS];
    find_ends(p, ends);
    p->nplaces = 0;
    for (int k = 0; k < p->nsteps; k++) {
        int at = 0;
        while (at < p->nplaces) {
            int before = owner[at];
            bool free =
                ends[before] < k || (ends[before] == k &&
                                     p->steps[before].type == p->steps[k].type);
            if (free)
                break;
            at++;
        }
        if (at == p->nplaces)
            p->nplaces++;
        owner[at] = k;
        p->steps[k].place = at;
    }
}

qn_status qn_fused_new(qn_fused **out, const qn_fused *like)
{
    qn_fused *p = qn_alloc(sizeof *p);
    if (!p)
        return QN_E_NOMEM;
    memcpy(p, like, sizeof *p);
    atomic_init(&p->refs, 1);
    assign_places(p);
    *out = p;
    return QN_OK;
}

qn_fused *qn_fused_ref(qn_fused *program)
{
    atomic_fetch_add_explicit(&program->refs, 1, memory_order_relaxed);
    return program;
}

void qn_fused_unref(qn_fused *program)
{
    if (program &&
        atomic_fetch_sub_explicit(&program->refs, 1, memory_order_acq_rel) == 1)
        qn_free(program);
}

/* ---- the node ---- */

static void params_free(void *params)
{
    qn_fused_unref(((qn_fused_params *)params)->program);
}

static void params_ref(void *params)
{
    qn_fused_ref(((qn_fused_params *)params)->program);
}

/* The operation that first takes an input, for messages. */
static const char *reader_of(const qn_fused *p, int input)
{
    for (int k = 0; k < p->nsteps; k++)
        for (int i = 0; i < qn_fused_arity(p->steps[k].op); i++)
            if (p->steps[k].args[i] == input)
                return qn_op_info_of(p->steps[k].op)->name;
    return "fused";
}

qn_status qn_op_fused(qn_array **out, qn_fused *program,
                      qn_array *const *inputs, const qn_array *like,
                      qn_stream *s)
{
    qn_fused_params params = {.program = program};
    qn_node_spec spec = {.op = QN_OP_FUSED,
                         .stream = s,
                         .inputs = inputs,
                         .ninputs = program->ninputs,
                         .params = &params,
                         .params_size = sizeof params,
                         .params_free = params_free,
                         .params_ref = params_ref};
    qn_dims dims = {.ndim = 0};
    qn_status status = QN_OK;
    if (like)
        dims = qn_dims_of(like);
    for (int i = 0; i < program->ninputs && !status && !like; i++) {
        qn_dims have = qn_dims_of(inputs[i]);
        status = qn_dims_broadcast(&dims, reader_of(program, i), &dims, &have);
    }
    int made = 0;
    while (made < program->noutputs && !status) {
        qn_dtype type = qn_fused_type(program, program->outputs[made]);
        status = qn_array_new(&out[made], type, dims.dim, dims.ndim);
        made += !status;
    }
    if (!status)
        status = qn_node_attach(&spec, out, program->noutputs);
    if (!status)
        qn_fused_ref(program);
    else
        while (made)
            qn_array_unref(out[--made]);
    return status;
}
