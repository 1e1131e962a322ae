/* fuse.c: elementwise steps that read and write the same elements, as one.
 *
 * Groups grow from a last step backwards, over steps of its shape and stream
 * that its members take their operands from.  A group runs where its last step
 * stood.  A member whose result others need as well makes that an output, if
 * all of those come after the last step: so no order is ever turned round. */
#include "tape.h"

#include "ops/fused.h"
#include "ops/params.h"
#include "slots.h"

#include "base/alloc.h"

#include <string.h>

typedef struct producer {
    size_t step;  /* that makes the slot; QN_NO_SLOT: none */
    size_t users; /* first entry of the slot's users, in `users` */
    size_t nusers;
} producer;

typedef struct fuser {
    const qn_tape *tape;
    bool shapeless;
    producer *slots;
    size_t *users;   /* steps */
    bool *is_output; /* by slot, of the tape */
    size_t *group;   /* by step: number of its last step; QN_NO_SLOT: none */
} fuser;

/* A group in the making. */
typedef struct group {
    size_t last;                    /* step */
    size_t members[QN_FUSED_STEPS]; /* descending */
    int nmembers;
} group;

static const qn_array *result_of(const qn_tape_step *step)
{
    return step->like.data[step->ninputs];
}

static bool can_fuse(const qn_tape_step *step)
{
    return !step->program && qn_fused_arity(step->node->op) > 0 &&
           result_of(step)->size > 0;
}

static bool same_place(const qn_tape_step *a, const qn_tape_step *b)
{
    const qn_array *x = result_of(a), *y = result_of(b);
    return a->node->stream == b->node->stream && x->ndim == y->ndim &&
           !memcmp(x->shape, y->shape, (size_t)x->ndim * sizeof *x->shape);
}

/* ---- who uses what ---- */

static qn_status index_users(fuser *f)
{
    const qn_tape *t = f->tape;
    size_t total = 0;
    for (size_t i = 0; i < t->nsteps; i++)
        total += t->steps[i].ninputs;
    f->slots = qn_calloc(t->nslots, sizeof *f->slots);
    f->users = qn_calloc(total, sizeof *f->users);
    f->is_output = qn_calloc(t->nslots, sizeof *f->is_output);
    f->group = qn_calloc(t->nsteps, sizeof *f->group);
    if (!f->slots || !f->users || !f->is_output || !f->group)
        return QN_E_NOMEM;
    for (size_t i = 0; i < t->nslots; i++)
        f->slots[i].step = QN_NO_SLOT;
    for (size_t i = 0; i < t->noutputs; i++)
        f->is_output[t->outputs[i]] = true;
    for (size_t i = 0; i < t->nsteps; i++) {
        const qn_tape_step *step = &t->steps[i];
        f->group[i] = QN_NO_SLOT;
        for (size_t k = 0; k < step->ninputs; k++)
            f->slots[step->slots[k]].nusers++;
        for (size_t k = 0; k < step->noutputs; k++)
            f->slots[step->slots[step->ninputs + k]].step = i;
    }
    size_t at = 0;
    for (size_t i = 0; i < t->nslots; i++) {
        f->slots[i].users = at;
        at += f->slots[i].nusers;
        f->slots[i].nusers = 0;
    }
    for (size_t i = 0; i < t->nsteps; i++)
        for (size_t k = 0; k < t->steps[i].ninputs; k++) {
            producer *p = &f->slots[t->steps[i].slots[k]];
            f->users[p->users + p->nusers++] = i;
        }
    return QN_OK;
}

/* What a member reads: the source of a broadcast, which fused steps do
 * themselves. */
static size_t source_of(const fuser *f, size_t slot)
{
    size_t step = f->slots[slot].step;
    if (step == QN_NO_SLOT)
        return slot;
    const qn_tape_step *s = &f->tape->steps[step];
    if (s->program || s->node->op != QN_OP_BROADCAST)
        return slot;
    const qn_broadcast_params *p = s->node->params;
    /* A shape that the program gave stays what it is. */
    return f->shapeless && !p->derived ? slot : s->slots[0];
}

/* ---- one group ---- */

/* A group as a program in the making. */
typedef struct draft {
    qn_fused program;
    size_t inputs[QN_FUSED_INPUTS]; /* slots */
    const qn_array *like[QN_FUSED_INPUTS];
    size_t outputs[QN_FUSED_OUTPUTS];
} draft;

static bool is_member(const group *g, size_t step)
{
    for (int i = 0; i < g->nmembers; i++)
        if (g->members[i] == step)
            return true;
    return false;
}

/* Whether the result is needed outside of the group.  *late: all such users
 * come after the group's place. */
static bool used_outside(const fuser *f, const group *g, size_t slot,
                         bool *late)
{
    bool outside = f->is_output[slot];
    const producer *p = &f->slots[slot];
    *late = true;
    for (size_t i = 0; i < p->nusers; i++) {
        size_t user = f->users[p->users + i];
        if (is_member(g, user))
            continue;
        outside = true;
        *late &= user > g->last;
    }
    return outside;
}

/* The register of a slot; -1: no room. */
static int reg_of(draft *d, const fuser *f, const group *g, size_t slot,
                  const qn_array *like)
{
    size_t step = f->slots[slot].step;
    if (step != QN_NO_SLOT && is_member(g, step)) {
        /* Members are in descending order, steps in ascending. */
        for (int i = 0; i < g->nmembers; i++)
            if (g->members[i] == step)
                return QN_FUSED_INPUTS + (g->nmembers - 1 - i);
    }
    size_t from = source_of(f, slot);
    if (from != slot)
        like = f->tape->steps[step].like.data[0];
    for (int i = 0; i < d->program.ninputs; i++)
        if (d->inputs[i] == from)
            return i;
    if (d->program.ninputs == QN_FUSED_INPUTS)
        return -1;
    d->inputs[d->program.ninputs] = from;
    d->like[d->program.ninputs] = like;
    d->program.types[d->program.ninputs] = like->dtype;
    return d->program.ninputs++;
}

/* Registers of steps come after those of inputs. */
static void number_registers(qn_fused *p)
{
    int shift = QN_FUSED_INPUTS - p->ninputs;
    for (int k = 0; k < p->nsteps; k++)
        for (int i = 0; i < qn_fused_arity(p->steps[k].op); i++)
            if (p->steps[k].args[i] >= QN_FUSED_INPUTS)
                p->steps[k].args[i] -= shift;
    for (int i = 0; i < p->noutputs; i++)
        p->outputs[i] -= shift;
}

/* Writes the group's program; false when it does not fit. */
static bool write_draft(draft *d, const fuser *f, const group *g)
{
    memset(d, 0, sizeof *d);
    qn_fused *p = &d->program;
    for (int i = g->nmembers - 1; i >= 0; i--) {
        const qn_tape_step *step = &f->tape->steps[g->members[i]];
        qn_fused_step *to = &p->steps[p->nsteps++];
        to->op = step->node->op;
        to->type = result_of(step)->dtype;
        for (size_t k = 0; k < step->ninputs; k++) {
            to->args[k] = reg_of(d, f, g, step->slots[k], step->like.data[k]);
            if (to->args[k] < 0)
                return false;
        }
        bool late;
        size_t slot = step->slots[step->ninputs];
        if (!used_outside(f, g, slot, &late))
            continue;
        if (!late || p->noutputs == QN_FUSED_OUTPUTS)
            return false;
        d->outputs[p->noutputs] = slot;
        p->outputs[p->noutputs++] = QN_FUSED_INPUTS + p->nsteps - 1;
    }
    /* In a shapeless graph several outputs may turn out to differ in shape. */
    if (f->shapeless && p->noutputs > 1)
        return false;
    int large = p->noutputs;
    for (int i = 0; i < p->ninputs; i++)
        large += d->like[i]->size > 1 || f->shapeless;
    number_registers(p);
    return large <= QN_FUSED_LARGE;
}

/* In a shapeless graph a broadcast follows the other operands of the step that
 * reads it; a step with one operand needs it made. */
static bool reads_stretched(const fuser *f, const qn_tape_step *step)
{
    if (!f->shapeless || step->ninputs > 1)
        return false;
    return source_of(f, step->slots[0]) != step->slots[0];
}

/* The latest step that could join: it makes an operand of a member. */
static size_t next_candidate(const fuser *f, const group *g,
                             const bool *refused)
{
    size_t best = QN_NO_SLOT;
    for (int i = 0; i < g->nmembers; i++) {
        const qn_tape_step *step = &f->tape->steps[g->members[i]];
        for (size_t k = 0; k < step->ninputs; k++) {
            size_t from = f->slots[step->slots[k]].step;
            if (from == QN_NO_SLOT || refused[from] ||
                f->group[from] != QN_NO_SLOT || is_member(g, from) ||
                !can_fuse(&f->tape->steps[from]) ||
                reads_stretched(f, &f->tape->steps[from]) ||
                !same_place(&f->tape->steps[from], &f->tape->steps[g->last]))
                continue;
            if (best == QN_NO_SLOT || from > best)
                best = from;
        }
    }
    return best;
}

/* Puts a step in, members staying in descending order. */
static void put_member(group *g, size_t step)
{
    int at = g->nmembers++;
    while (at > 0 && g->members[at - 1] < step) {
        g->members[at] = g->members[at - 1];
        at--;
    }
    g->members[at] = step;
}

static void take_member(group *g, size_t step)
{
    int to = 0;
    for (int i = 0; i < g->nmembers; i++)
        if (g->members[i] != step)
            g->members[to++] = g->members[i];
    g->nmembers = to;
}

static void grow_group(const fuser *f, group *g, bool *refused)
{
    size_t joining;
    draft d;
    while (g->nmembers < QN_FUSED_STEPS &&
           (joining = next_candidate(f, g, refused)) != QN_NO_SLOT) {
        put_member(g, joining);
        if (write_draft(&d, f, g))
            continue;
        take_member(g, joining);
        refused[joining] = true;
    }
}

static qn_status find_groups(fuser *f)
{
    size_t n = f->tape->nsteps;
    bool *refused = qn_calloc(n, sizeof *refused);
    if (!refused)
        return QN_E_NOMEM;
    for (size_t i = n; i > 0; i--) {
        const qn_tape_step *step = &f->tape->steps[i - 1];
        if (f->group[i - 1] != QN_NO_SLOT || !can_fuse(step) ||
            reads_stretched(f, step))
            continue;
        group g = {.last = i - 1, .members = {i - 1}, .nmembers = 1};
        memset(refused, 0, n * sizeof *refused);
        grow_group(f, &g, refused);
        for (int k = 0; k < g.nmembers && g.nmembers > 1; k++)
            f->group[g.members[k]] = g.last;
    }
    qn_free(refused);
    return QN_OK;
}

/* ---- the new tape ---- */

static void collect(const fuser *f, group *g, size_t last)
{
    *g = (group){.last = last};
    for (size_t i = last + 1; i > 0; i--)
        if (f->group[i - 1] == last)
            g->members[g->nmembers++] = i - 1;
}

static qn_status add_group(const fuser *f, qn_tape *out, size_t *capacity,
                           size_t last)
{
    group g;
    draft d;
    collect(f, &g, last);
    write_draft(&d, f, &g);
    qn_fused *program;
    qn_status status = qn_fused_new(&program, &d.program);
    if (status)
        return status;
    size_t n = (size_t)d.program.ninputs, m = (size_t)d.program.noutputs;
    size_t slots[QN_FUSED_INPUTS + QN_FUSED_OUTPUTS];
    memcpy(slots, d.inputs, n * sizeof *slots);
    memcpy(slots + n, d.outputs, m * sizeof *slots);
    qn_array *like =
        f->tape->steps[last].like.data[f->tape->steps[last].ninputs];
    qn_tape_step step = {.node = f->tape->steps[last].node,
                         .like = {&like, 1},
                         .program = program,
                         .ninputs = n,
                         .noutputs = m};
    status = qn_tape_add(out, capacity, &step, slots);
    qn_fused_unref(program);
    return status;
}

qn_status qn_tape_fuse(qn_tape *out, const qn_tape *tape, bool shapeless)
{
    fuser f = {.tape = tape, .shapeless = shapeless};
    qn_tape made = {0};
    size_t capacity = 0;
    qn_status status = index_users(&f);
    if (!status)
        status = find_groups(&f);
    if (!status)
        status = qn_tape_start(&made, tape);
    for (size_t i = 0; i < tape->nsteps && !status; i++) {
        if (f.group[i] == QN_NO_SLOT)
            status = qn_tape_add(&made, &capacity, &tape->steps[i],
                                 tape->steps[i].slots);
        else if (f.group[i] == i)
            status = add_group(&f, &made, &capacity, i);
    }
    if (!status)
        status = qn_tape_drop_unneeded(&made);
    qn_free(f.slots);
    qn_free(f.users);
    qn_free(f.is_output);
    qn_free(f.group);
    if (status)
        qn_tape_free(&made);
    else
        *out = made;
    return status;
}
