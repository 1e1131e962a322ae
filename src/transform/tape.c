/* tape.c: from a recording to steps, and from steps to a graph. */
#include "tape.h"

#include "ops/fused.h"
#include "ops/params.h"
#include "ops/rules.h"
#include "slots.h"

#include "base/alloc.h"

#include <string.h>

/* A result of constants alone is kept rather than made again if it is this
 * small, in elements: large ones would stay in memory for good. */
enum { KEPT_CONSTANT = 4096 };

/* ---- making ---- */

void qn_tape_step_free(qn_tape_step *step)
{
    qn_arrays_free(&step->like);
    qn_fused_unref(step->program);
    qn_free(step->slots);
    qn_node_unref(step->node, 1);
}

void qn_tape_free(qn_tape *tape)
{
    for (size_t i = 0; i < tape->nsteps; i++)
        qn_tape_step_free(&tape->steps[i]);
    for (size_t i = 0; i < tape->nslots && tape->values; i++)
        qn_array_unref(tape->values[i]);
    qn_free(tape->values);
    qn_free(tape->steps);
    qn_free(tape->outputs);
    *tape = (qn_tape){0};
}

qn_status qn_tape_add(qn_tape *tape, size_t *capacity, const qn_tape_step *step,
                      const size_t *slots)
{
    if (tape->nsteps == *capacity) {
        size_t more = *capacity ? 2 * *capacity : 32;
        void *grown = qn_reallocarray(tape->steps, more, sizeof *tape->steps);
        if (!grown)
            return QN_E_NOMEM;
        tape->steps = grown;
        *capacity = more;
    }
    size_t count = step->ninputs + step->noutputs;
    qn_tape_step copy = *step;
    copy.slots = qn_calloc(count, sizeof *copy.slots);
    if (!copy.slots)
        return QN_E_NOMEM;
    memcpy(copy.slots, slots, count * sizeof *slots);
    qn_status status =
        qn_arrays_copy(&copy.like, step->like.data, step->like.count);
    if (status) {
        qn_free(copy.slots);
        return status;
    }
    if (copy.program)
        qn_fused_ref(copy.program);
    qn_node_ref(copy.node);
    tape->steps[tape->nsteps++] = copy;
    return QN_OK;
}

/* A tape in the making. */
typedef struct maker {
    qn_tape tape;
    size_t steps_capacity, slots_capacity;
    qn_slots slots; /* arrays: their slot */
    bool *varies;   /* by slot */
} maker;

static qn_status add_slot(maker *m, const qn_array *array, qn_array *constant,
                          bool varies)
{
    qn_tape *t = &m->tape;
    if (t->nslots == m->slots_capacity) {
        size_t more = m->slots_capacity ? 2 * m->slots_capacity : 64;
        void *values = qn_reallocarray(t->values, more, sizeof *t->values);
        if (!values)
            return QN_E_NOMEM;
        t->values = values;
        void *marks = qn_reallocarray(m->varies, more, sizeof *m->varies);
        if (!marks)
            return QN_E_NOMEM;
        m->varies = marks;
        m->slots_capacity = more;
    }
    t->values[t->nslots] = constant ? qn_array_ref(constant) : NULL;
    m->varies[t->nslots] = varies;
    return qn_slots_put(&m->slots, array, t->nslots++);
}

/* The slot of an array; one from outside becomes a constant. */
static qn_status slot_of(maker *m, size_t *out, qn_array *array)
{
    *out = qn_slots_find(&m->slots, array);
    if (*out != QN_NO_SLOT)
        return QN_OK;
    qn_status status = add_slot(m, array, array, false);
    *out = m->tape.nslots - 1;
    return status;
}

/* Marks the entries that the outputs need. */
static qn_status find_needed(bool *needed, const qn_trace *trace, bool all)
{
    qn_slots wanted = {0};
    qn_status status = QN_OK;
    size_t first = trace->record.first, end = trace->record.end;
    for (size_t i = 0; i < trace->outputs.count && !status; i++)
        status = qn_slots_put(&wanted, trace->outputs.data[i], 0);
    for (size_t i = end; i > first && !status; i--) {
        qn_record_entry e = qn_record_at(i - 1);
        bool *here = &needed[i - 1 - first];
        *here = all;
        for (int k = 0; k < e.node->noutputs && !*here; k++)
            *here = qn_slots_find(&wanted, e.outputs[k]) != QN_NO_SLOT;
        for (int k = 0; k < e.node->ninputs && *here && !status; k++)
            status = qn_slots_put(&wanted, e.inputs[k], 0);
    }
    qn_slots_free(&wanted);
    return status;
}

/* Whether an entry's results become constants. */
static bool is_constant(const qn_record_entry *e, bool varies)
{
    if (varies || qn_rules_of(e->node->op)->talks)
        return false;
    if (!qn_node_copyable(e->node))
        return true;
    /* Costs nothing, and is part of the step that reads it. */
    if (e->node->op == QN_OP_BROADCAST)
        return false;
    for (int i = 0; i < e->node->noutputs; i++)
        if (e->outputs[i]->size > KEPT_CONSTANT)
            return false;
    return true;
}

static qn_status add_entry(maker *m, const qn_record_entry *e, size_t *slots)
{
    size_t ninputs = (size_t)e->node->ninputs;
    size_t noutputs = (size_t)e->node->noutputs;
    bool varies = false;
    qn_status status = QN_OK;
    for (size_t i = 0; i < ninputs && !status; i++) {
        status = slot_of(m, &slots[i], e->inputs[i]);
        varies = varies || (!status && m->varies[slots[i]]);
    }
    bool constant = is_constant(e, varies);
    if (varies && !qn_node_copyable(e->node))
        return qn_fail(QN_E_UNSUPPORTED,
                       "[compile] %s can't be part of a compiled function.",
                       qn_op_info_of(e->node->op)->name);
    for (size_t i = 0; i < noutputs && !status; i++) {
        slots[ninputs + i] = m->tape.nslots;
        status =
            add_slot(m, e->outputs[i], constant ? e->outputs[i] : NULL, varies);
    }
    if (status || constant)
        return status;
    /* Inputs and outputs lie one after the other. */
    qn_tape_step step = {.node = e->node,
                         .like = {e->inputs, ninputs + noutputs},
                         .ninputs = ninputs,
                         .noutputs = noutputs};
    return qn_tape_add(&m->tape, &m->steps_capacity, &step, slots);
}

/* The largest number of arrays of an entry. */
static size_t most_arrays(const qn_record *record)
{
    size_t most = 0;
    for (size_t i = record->first; i < record->end; i++) {
        const qn_node *node = qn_record_at(i).node;
        size_t all = (size_t)node->ninputs + (size_t)node->noutputs;
        most = all > most ? all : most;
    }
    return most;
}

static qn_status add_outputs(maker *m, const qn_arrays *outputs)
{
    qn_tape *t = &m->tape;
    qn_status status = QN_OK;
    t->outputs = qn_calloc(outputs->count, sizeof *t->outputs);
    if (!t->outputs)
        return QN_E_NOMEM;
    t->noutputs = outputs->count;
    for (size_t i = 0; i < outputs->count && !status; i++)
        status = slot_of(m, &t->outputs[i], outputs->data[i]);
    return status;
}

qn_status qn_tape_new(qn_tape *out, const qn_trace *trace, bool all)
{
    maker m = {0};
    const qn_record *record = &trace->record;
    bool *needed = qn_calloc(record->end - record->first, sizeof *needed);
    size_t *room = qn_calloc(most_arrays(record), sizeof *room);
    qn_status status = needed && room ? QN_OK : QN_E_NOMEM;
    if (!status)
        status = find_needed(needed, trace, all);
    m.tape.ninputs = trace->inputs.count;
    for (size_t i = 0; i < trace->inputs.count && !status; i++)
        status = add_slot(&m, trace->inputs.data[i], NULL, true);
    for (size_t i = record->first; i < record->end && !status; i++)
        if (needed[i - record->first]) {
            qn_record_entry e = qn_record_at(i);
            status = add_entry(&m, &e, room);
        }
    if (!status)
        status = add_outputs(&m, &trace->outputs);
    qn_slots_free(&m.slots);
    qn_free(m.varies);
    qn_free(needed);
    qn_free(room);
    if (status)
        qn_tape_free(&m.tape);
    else
        *out = m.tape;
    return status;
}

/* ---- running ---- */

/* What a run knows of a slot. */
typedef struct value {
    qn_array *array; /* held */
    /* A derived broadcast that has not been made: of `array`, by the step. */
    const qn_tape_step *stretch;
} value;

typedef struct run {
    const qn_tape *tape;
    value *values;
    qn_array **room; /* inputs and outputs of the step at work */
} run;

static void store(run *r, size_t slot, qn_array *array)
{
    qn_array_unref(r->values[slot].array);
    r->values[slot] = (value){array, NULL};
}

static qn_status run_plain(run *r, const qn_tape_step *step)
{
    qn_array **in = r->room, **out = in + step->ninputs;
    for (size_t i = 0; i < step->ninputs; i++)
        in[i] = r->values[step->slots[i]].array;
    qn_status status = step->program
                           ? qn_op_fused(out, step->program, in,
                                         step->like.data[0], step->node->stream)
                           : qn_node_again(out, step->node, in,
                                           step->like.data + step->ninputs);
    for (size_t i = 0; i < step->noutputs && !status; i++)
        store(r, step->slots[step->ninputs + i], out[i]);
    return status;
}

/* ---- running on other shapes ---- */

static qn_status apply_rule(run *r, const qn_tape_step *step, qn_array **in,
                            qn_array **out)
{
    (void)r;
    qn_scope c;
    qn_scope_begin(&c, step->node->stream);
    qn_again a = {.c = &c,
                  .node = step->node,
                  .was_in = step->like.data,
                  .was_out = step->like.data + step->ninputs,
                  .in = in,
                  .shapeless = true,
                  .out = out};
    qn_rules_of(step->node->op)->again(&a);
    for (size_t i = 0; i < step->noutputs && !c.status; i++) {
        const qn_array *was = a.was_out[i];
        if (out[i]->dtype != was->dtype || out[i]->ndim != was->ndim)
            qn_scope_fail(&c, qn_fail(QN_E_INTERNAL,
                                      "[%s] Another result than at first.",
                                      qn_op_info_of(step->node->op)->name));
    }
    return qn_scope_end_many(&c, out, out, (int)step->noutputs);
}

/* The value of a slot as an array: a broadcast that was put off is made. */
static qn_status made_value(run *r, size_t slot)
{
    value *v = &r->values[slot];
    if (!v->stretch)
        return QN_OK;
    qn_array *in = v->array, *out = NULL;
    qn_status status = apply_rule(r, v->stretch, &in, &out);
    if (!status)
        store(r, slot, out);
    return status;
}

static bool derived_broadcast(const qn_tape_step *step)
{
    const qn_broadcast_params *p = step->node->params;
    return step->node->op == QN_OP_BROADCAST && !step->program && p &&
           p->derived;
}

static qn_status run_shapeless(run *r, const qn_tape_step *step)
{
    qn_array **in = r->room, **out = in + step->ninputs;
    qn_status status = QN_OK;
    /* Operations that bring operands to a common shape get them as they were
     * before that; for others a broadcast is made now. */
    bool stretches = step->program || qn_rules_of(step->node->op)->broadcasts;
    for (size_t i = 0; i < step->ninputs && !status; i++) {
        if (!stretches)
            status = made_value(r, step->slots[i]);
        in[i] = r->values[step->slots[i]].array;
    }
    if (status)
        return status;
    if (derived_broadcast(step)) {
        size_t slot = step->slots[step->ninputs];
        store(r, slot, qn_array_ref(in[0]));
        r->values[slot].stretch = step;
        return QN_OK;
    }
    status = step->program
                 ? qn_op_fused(out, step->program, in, NULL, step->node->stream)
                 : apply_rule(r, step, in, out);
    for (size_t i = 0; i < step->noutputs && !status; i++)
        store(r, step->slots[step->ninputs + i], out[i]);
    return status;
}

static size_t most_slots(const qn_tape *tape)
{
    size_t most = 1;
    for (size_t i = 0; i < tape->nsteps; i++) {
        size_t all = tape->steps[i].ninputs + tape->steps[i].noutputs;
        most = all > most ? all : most;
    }
    return most;
}

qn_status qn_tape_run(qn_arrays *out, const qn_tape *tape,
                      qn_array *const *inputs, bool shapeless)
{
    run r = {.tape = tape,
             .values = qn_calloc(tape->nslots, sizeof(value)),
             .room = qn_calloc(most_slots(tape), sizeof(qn_array *))};
    qn_arrays made = {0};
    qn_status status = r.values && r.room ? QN_OK : QN_E_NOMEM;
    if (!status)
        status = qn_arrays_new(&made, tape->noutputs);
    for (size_t i = 0; i < tape->nslots && r.values; i++) {
        qn_array *known = i < tape->ninputs ? inputs[i] : tape->values[i];
        r.values[i].array = known ? qn_array_ref(known) : NULL;
    }
    for (size_t i = 0; i < tape->nsteps && !status; i++)
        status = shapeless ? run_shapeless(&r, &tape->steps[i])
                           : run_plain(&r, &tape->steps[i]);
    for (size_t i = 0; i < tape->noutputs && !status; i++) {
        if (shapeless)
            status = made_value(&r, tape->outputs[i]);
        if (!status)
            made.data[i] = qn_array_ref(r.values[tape->outputs[i]].array);
    }
    for (size_t i = 0; i < tape->nslots && r.values; i++)
        qn_array_unref(r.values[i].array);
    qn_free(r.values);
    qn_free(r.room);
    if (status)
        qn_arrays_free(&made);
    else
        *out = made;
    return status;
}
