/* simplify.c: what a tape computes twice or for nothing.
 *
 * Slots keep their numbers: a slot that another one stands for is just not
 * used any more. */
#include "tape.h"

#include "base/alloc.h"
#include "base/map.h"
#include "ops/rules.h"

#include <string.h>

typedef struct simplifier {
    qn_tape tape;
    size_t steps_capacity;
    size_t *stands; /* by slot: the one that has its value */
    size_t *table;  /* steps by what they do: index + 1; 0: free */
    size_t table_size;
    bool values; /* only values count */
} simplifier;

/* ---- equal things ---- */

static bool equal_scalars(const qn_array *a, const qn_array *b)
{
    return a->dtype == b->dtype && a->ndim == 0 && b->ndim == 0 &&
           qn_array_ready(a) && qn_array_ready(b) &&
           !memcmp(qn_array_data(a), qn_array_data(b), qn_array_itemsize(a));
}

/* Constants without dimensions that have one value become one.  There are few
 * different ones. */
static void merge_constants(simplifier *s)
{
    enum { LOOKED_AT = 64 };
    const qn_tape *t = &s->tape;
    size_t known[LOOKED_AT], n = 0;
    for (size_t i = 0; i < t->nslots; i++) {
        const qn_array *x = t->values[i];
        if (!x || x->ndim || !qn_array_ready(x))
            continue;
        size_t k = 0;
        while (k < n && !equal_scalars(t->values[known[k]], x))
            k++;
        if (k < n)
            s->stands[i] = known[k];
        else if (n < LOOKED_AT)
            known[n++] = i;
    }
}

static bool same_outputs(const qn_tape_step *a, const qn_tape_step *b)
{
    for (size_t i = 0; i < a->noutputs; i++) {
        const qn_array *x = a->like.data[a->ninputs + i];
        const qn_array *y = b->like.data[b->ninputs + i];
        if (x->dtype != y->dtype || x->ndim != y->ndim ||
            memcmp(x->shape, y->shape, (size_t)x->ndim * sizeof *x->shape))
            return false;
    }
    return true;
}

static bool same_work(const qn_tape_step *a, const qn_tape_step *b)
{
    const qn_node *x = a->node, *y = b->node;
    if (qn_rules_of(x->op)->talks || qn_rules_of(x->op)->apart)
        return false;
    if (x->op != y->op || x->stream != y->stream || a->ninputs != b->ninputs ||
        a->noutputs != b->noutputs || x->params_size != y->params_size)
        return false;
    return !memcmp(a->slots, b->slots, a->ninputs * sizeof *a->slots) &&
           (!x->params_size || !memcmp(x->params, y->params, x->params_size)) &&
           same_outputs(a, b);
}

static size_t hash_of(const qn_tape_step *step)
{
    uint64_t hash = qn_hash(step->slots, step->ninputs * sizeof *step->slots);
    return (size_t)(hash + (uint64_t)step->node->op * 0x9e3779b97f4a7c15u);
}

/* The earlier step that does the same, or `step` itself, which is entered. */
static const qn_tape_step *first_of(simplifier *s, size_t index)
{
    const qn_tape_step *step = &s->tape.steps[index];
    size_t at = hash_of(step) & (s->table_size - 1);
    while (s->table[at]) {
        const qn_tape_step *other = &s->tape.steps[s->table[at] - 1];
        if (same_work(other, step))
            return other;
        at = (at + 1) & (s->table_size - 1);
    }
    s->table[at] = index + 1;
    return step;
}

/* ---- steps that do nothing ---- */

/* The input that is output 0, output i being the i-th after it; -1: none. */
static int identity(const simplifier *s, const qn_tape_step *step)
{
    switch (step->node->op) {
    case QN_OP_STOP_GRADIENT:
        return s->values ? 0 : -1;
    case QN_OP_DEPENDS:
        return step->ninputs == step->noutputs ? 0 : -1;
    case QN_OP_CUSTOM:
        return (int)(step->ninputs - step->noutputs);
    default:
        return -1;
    }
}

static qn_status add_step(simplifier *s, const qn_tape_step *step,
                          size_t *slots)
{
    qn_tape *t = &s->tape;
    size_t n = step->ninputs;
    for (size_t i = 0; i < n; i++)
        slots[i] = s->stands[step->slots[i]];
    for (size_t i = 0; i < step->noutputs; i++)
        slots[n + i] = step->slots[n + i];
    int from = identity(s, step);
    if (from >= 0) {
        for (size_t i = 0; i < step->noutputs; i++)
            s->stands[slots[n + i]] = slots[(size_t)from + i];
        return QN_OK;
    }
    qn_status status = qn_tape_add(t, &s->steps_capacity, step, slots);
    if (status)
        return status;
    const qn_tape_step *first = first_of(s, t->nsteps - 1);
    if (first == &t->steps[t->nsteps - 1])
        return QN_OK;
    for (size_t i = 0; i < step->noutputs; i++)
        s->stands[slots[n + i]] = first->slots[n + i];
    return QN_OK;
}

/* ---- what nobody needs ---- */

qn_status qn_tape_drop_unneeded(qn_tape *t)
{
    bool *needed = qn_calloc(t->nslots, sizeof *needed);
    if (!needed)
        return QN_E_NOMEM;
    for (size_t i = 0; i < t->noutputs; i++)
        needed[t->outputs[i]] = true;
    for (size_t i = t->nsteps; i > 0; i--) {
        const qn_tape_step *step = &t->steps[i - 1];
        bool here = false;
        for (size_t k = 0; k < step->noutputs; k++)
            here |= needed[step->slots[step->ninputs + k]];
        for (size_t k = 0; k < step->ninputs && here; k++)
            needed[step->slots[k]] = true;
    }
    size_t kept = 0;
    for (size_t i = 0; i < t->nsteps; i++) {
        qn_tape_step step = t->steps[i];
        bool here = false;
        for (size_t k = 0; k < step.noutputs; k++)
            here |= needed[step.slots[step.ninputs + k]];
        if (here)
            t->steps[kept++] = step;
        else
            qn_tape_step_free(&step);
    }
    t->nsteps = kept;
    for (size_t i = 0; i < t->nslots; i++)
        if (!needed[i]) {
            qn_array_unref(t->values[i]);
            t->values[i] = NULL;
        }
    qn_free(needed);
    return QN_OK;
}

qn_status qn_tape_start(qn_tape *out, const qn_tape *tape)
{
    qn_tape t = {.ninputs = tape->ninputs,
                 .values = qn_calloc(tape->nslots, sizeof *t.values),
                 .outputs = qn_calloc(tape->noutputs, sizeof *t.outputs)};
    if (!t.values || !t.outputs) {
        qn_tape_free(&t);
        return QN_E_NOMEM;
    }
    t.nslots = tape->nslots;
    t.noutputs = tape->noutputs;
    for (size_t i = 0; i < tape->nslots; i++)
        if (tape->values[i])
            t.values[i] = qn_array_ref(tape->values[i]);
    for (size_t i = 0; i < tape->noutputs; i++)
        t.outputs[i] = tape->outputs[i];
    *out = t;
    return QN_OK;
}

qn_status qn_tape_simplify(qn_tape *out, const qn_tape *tape, bool values)
{
    simplifier s = {.table_size = 64, .values = values};
    while (s.table_size < 2 * tape->nsteps + 2)
        s.table_size *= 2;
    size_t widest = 1;
    for (size_t i = 0; i < tape->nsteps; i++) {
        size_t all = tape->steps[i].ninputs + tape->steps[i].noutputs;
        widest = all > widest ? all : widest;
    }
    s.stands = qn_calloc(tape->nslots, sizeof *s.stands);
    s.table = qn_calloc(s.table_size, sizeof *s.table);
    size_t *slots = qn_calloc(widest, sizeof *slots);
    qn_status status = QN_E_NOMEM;
    if (s.stands && s.table && slots)
        status = qn_tape_start(&s.tape, tape);
    if (!status) {
        for (size_t i = 0; i < tape->nslots; i++)
            s.stands[i] = i;
        merge_constants(&s);
    }
    for (size_t i = 0; i < tape->nsteps && !status; i++)
        status = add_step(&s, &tape->steps[i], slots);
    if (!status) {
        for (size_t i = 0; i < s.tape.noutputs; i++)
            s.tape.outputs[i] = s.stands[s.tape.outputs[i]];
        status = qn_tape_drop_unneeded(&s.tape);
    }
    qn_free(s.stands);
    qn_free(s.table);
    qn_free(slots);
    if (status)
        qn_tape_free(&s.tape);
    else
        *out = s.tape;
    return status;
}

qn_status qn_tape_record(qn_tape *out, const qn_function *fun,
                         const qn_arrays *inputs, bool shapeless)
{
    qn_trace trace;
    qn_tape all;
    qn_status status =
        qn_trace_given(&trace, fun, inputs->data, inputs->count, shapeless);
    if (status)
        return status;
    status = qn_tape_new(&all, &trace, false);
    qn_trace_end(&trace);
    if (status)
        return status;
    status = qn_tape_simplify(out, &all, false);
    qn_tape_free(&all);
    return status;
}
