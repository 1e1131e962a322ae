/* kernel.c: the registry of custom kernels, and the KERNEL node. */
#include "kernel.h"

#include "rules.h"
#include "scope.h"

#include "base/alloc.h"
#include "core/lock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- the registry ---- */

typedef struct registered {
    struct registered *next;
    qn_kernel_entry entry;
    char name[];
} registered;

/* Entries are only added, so one that was found stays. */
static registered *registry;

static registered *find(const char *name)
{
    registered *r = registry;
    while (r && strcmp(r->name, name))
        r = r->next;
    return r;
}

qn_status qn_kernel_register(const char *name, const qn_kernel_entry *entry)
{
    if (!name || !*name || !entry->fn)
        return qn_fail(QN_E_ARG, "[kernel_register] A name and a function are "
                                 "expected.");
    size_t size = strlen(name) + 1;
    registered *made = qn_alloc(sizeof *made + size);
    if (!made)
        return QN_E_NOMEM;
    made->entry = *entry;
    memcpy(made->name, name, size);
    qn_lock(QN_LOCK_KERNELS);
    registered *there = find(name);
    if (!there) {
        made->next = registry;
        registry = made;
    }
    qn_unlock(QN_LOCK_KERNELS);
    if (!there)
        return QN_OK;
    qn_free(made);
    if (there->entry.fn == entry->fn && there->entry.user == entry->user)
        return QN_OK;
    return qn_fail(QN_E_ARG,
                   "[kernel_register] The name '%s' is taken by another "
                   "function.",
                   name);
}

/* ---- names, templates ---- */

static void names_free(qn_names *names)
{
    for (size_t i = 0; i < names->size; i++)
        qn_free(names->data[i]);
    qn_free(names->data);
}

static qn_status names_copy(qn_names *to, const qn_names *from)
{
    to->size = 0;
    to->data = qn_calloc(from->size, sizeof *to->data);
    if (!to->data)
        return QN_E_NOMEM;
    for (; to->size < from->size; to->size++) {
        const char *text = from->data[to->size];
        to->data[to->size] = qn_strdup(text ? text : "");
        if (!to->data[to->size])
            return QN_E_NOMEM;
    }
    return QN_OK;
}

static void templates_free(qn_templates *t)
{
    for (size_t i = 0; i < t->size; i++)
        qn_free(t->data[i].name);
    qn_free(t->data);
}

static qn_status templates_copy(qn_templates *to, const qn_templates *from)
{
    to->size = 0;
    to->data = qn_calloc(from->size, sizeof *to->data);
    if (!to->data)
        return QN_E_NOMEM;
    for (; to->size < from->size; to->size++) {
        to->data[to->size] = from->data[to->size];
        to->data[to->size].name = qn_strdup(from->data[to->size].name);
        if (!to->data[to->size].name)
            return QN_E_NOMEM;
    }
    return QN_OK;
}

static const qn_template *template_of(const qn_templates *t, const char *name)
{
    for (size_t i = 0; i < t->size; i++)
        if (!strcmp(t->data[i].name, name))
            return &t->data[i];
    return NULL;
}

bool qn_template_int(const qn_templates *templates, const char *name, int *v)
{
    const qn_template *t = template_of(templates, name);
    if (!t || t->kind == QN_TEMPLATE_DTYPE)
        return false;
    *v = t->value;
    return true;
}

bool qn_template_dtype(const qn_templates *templates, const char *name,
                       qn_dtype *v)
{
    const qn_template *t = template_of(templates, name);
    if (!t || t->kind != QN_TEMPLATE_DTYPE)
        return false;
    *v = (qn_dtype)t->value;
    return true;
}

/* ---- kernels and launches ---- */

qn_status qn_kernel_new(qn_kernel **out, const qn_kernel *like)
{
    qn_kernel *kernel = qn_calloc(1, sizeof *kernel);
    if (!kernel)
        return QN_E_NOMEM;
    *kernel = *like;
    kernel->inputs = kernel->outputs = (qn_names){NULL, 0};
    kernel->name = qn_strdup(like->name);
    qn_status status = kernel->name ? QN_OK : QN_E_NOMEM;
    if (!status)
        status = names_copy(&kernel->inputs, &like->inputs);
    if (!status)
        status = names_copy(&kernel->outputs, &like->outputs);
    if (status)
        qn_kernel_free(kernel);
    else
        *out = kernel;
    return status;
}

void qn_kernel_free(qn_kernel *kernel)
{
    if (!kernel)
        return;
    names_free(&kernel->inputs);
    names_free(&kernel->outputs);
    qn_free(kernel->name);
    qn_free(kernel);
}

qn_status qn_launch_new(qn_launch **out)
{
    *out = qn_calloc(1, sizeof **out);
    return *out ? QN_OK : QN_E_NOMEM;
}

void qn_launch_free(qn_launch *launch)
{
    if (!launch)
        return;
    templates_free(&launch->templates);
    qn_free(launch->outputs);
    qn_free(launch);
}

qn_status qn_launch_add_output(qn_launch *launch, const int *shape, size_t ndim,
                               qn_dtype dtype)
{
    if (ndim > QN_MAX_NDIM)
        return qn_fail(QN_E_ARG,
                       "[custom_kernel] An output has at most %d dimensions, "
                       "found %zu.",
                       QN_MAX_NDIM, ndim);
    qn_kernel_output *more = qn_reallocarray(
        launch->outputs, launch->noutputs + 1, sizeof *launch->outputs);
    if (!more)
        return QN_E_NOMEM;
    launch->outputs = more;
    qn_kernel_output *o = &more[launch->noutputs++];
    memset(o, 0, sizeof *o);
    o->dtype = dtype;
    o->ndim = (int)ndim;
    if (ndim)
        memcpy(o->shape, shape, ndim * sizeof *shape);
    return QN_OK;
}

qn_status qn_launch_add_template(qn_launch *launch, const char *name,
                                 qn_template_kind kind, int value)
{
    qn_templates *t = &launch->templates;
    for (size_t i = 0; i < t->size; i++)
        if (!strcmp(t->data[i].name, name)) {
            t->data[i].kind = kind;
            t->data[i].value = value;
            return QN_OK;
        }
    qn_template *more = qn_reallocarray(t->data, t->size + 1, sizeof *t->data);
    if (!more)
        return QN_E_NOMEM;
    t->data = more;
    more[t->size] = (qn_template){qn_strdup(name), kind, value};
    if (!more[t->size].name)
        return QN_E_NOMEM;
    t->size++;
    return QN_OK;
}

void qn_kernel_blocks(int blocks[3], int block[3], const int grid[3],
                      const int group[3])
{
    for (int i = 0; i < 3; i++) {
        block[i] = group[i] < grid[i] ? group[i] : grid[i];
        blocks[i] = (grid[i] - 1) / group[i] + 1;
    }
}

/* ---- checks ---- */

static size_t count_of(const char *const *names)
{
    size_t n = 0;
    while (names[n])
        n++;
    return n;
}

static qn_status check_names(const qn_kernel *k, const char *what,
                             const char *const *wanted, const qn_names *found)
{
    if (!wanted)
        return QN_OK;
    if (count_of(wanted) != found->size)
        return qn_fail(QN_E_ARG,
                       "[%s] Kernel '%s' has %zu %ss, found names for %zu.",
                       k->form, k->name, count_of(wanted), what, found->size);
    for (size_t i = 0; i < found->size; i++)
        if (strcmp(wanted[i], found->data[i]))
            return qn_fail(QN_E_ARG,
                           "[%s] Kernel '%s' calls its %s %zu '%s', found "
                           "'%s'.",
                           k->form, k->name, what, i, wanted[i],
                           found->data[i]);
    return QN_OK;
}

static qn_status check_templates(const qn_kernel *k, const char *const *wanted,
                                 const qn_templates *found)
{
    if (!wanted)
        return QN_OK;
    for (size_t i = 0; wanted[i]; i++)
        if (!template_of(found, wanted[i]))
            return qn_fail(QN_E_ARG,
                           "[%s] Kernel '%s' needs the template argument '%s'.",
                           k->form, k->name, wanted[i]);
    for (size_t i = 0; i < found->size; i++) {
        size_t j = 0;
        while (wanted[j] && strcmp(wanted[j], found->data[i].name))
            j++;
        if (!wanted[j])
            return qn_fail(QN_E_ARG,
                           "[%s] Kernel '%s' has no template argument '%s'.",
                           k->form, k->name, found->data[i].name);
    }
    return QN_OK;
}

static qn_status check_counts(const qn_kernel *k, const qn_launch *launch,
                              size_t ninputs)
{
    if (k->atomic_outputs)
        return qn_fail(QN_E_ARG,
                       "[%s] Kernel '%s': atomic outputs are not supported.",
                       k->form, k->name);
    if (!k->outputs.size)
        return qn_fail(QN_E_ARG, "[%s] Kernel '%s' has no outputs.", k->form,
                       k->name);
    if (ninputs != k->inputs.size)
        return qn_fail(QN_E_ARG,
                       "[%s] Kernel '%s': expected %zu inputs, found %zu.",
                       k->form, k->name, k->inputs.size, ninputs);
    if (launch->noutputs != k->outputs.size)
        return qn_fail(QN_E_ARG,
                       "[%s] Kernel '%s': expected %zu outputs, found shapes "
                       "and dtypes of %zu.",
                       k->form, k->name, k->outputs.size, launch->noutputs);
    for (int i = 0; i < 3; i++)
        if (launch->grid[i] < 1 || launch->group[i] < 1)
            return qn_fail(
                QN_E_ARG,
                "[%s] Kernel '%s': grid (%d, %d, %d) and thread group (%d, "
                "%d, %d) must be positive.",
                k->form, k->name, launch->grid[0], launch->grid[1],
                launch->grid[2], launch->group[0], launch->group[1],
                launch->group[2]);
    return QN_OK;
}

static qn_status check(qn_kernel_entry *entry, const qn_kernel *k,
                       const qn_launch *launch, size_t ninputs)
{
    qn_status status = check_counts(k, launch, ninputs);
    if (status)
        return status;
    qn_lock(QN_LOCK_KERNELS);
    const registered *found = find(k->name);
    qn_unlock(QN_LOCK_KERNELS);
    if (launch->verbose)
        fprintf(stderr, "kernel %s: %s\n", k->name,
                found ? "registered" : "not registered");
    if (!found)
        return qn_fail(QN_E_UNSUPPORTED,
                       "[%s] Kernel '%s' is not registered on the cpu backend: "
                       "%s.",
                       k->form, k->name, k->absent);
    *entry = found->entry;
    status = check_names(k, "input", entry->inputs, &k->inputs);
    if (!status)
        status = check_names(k, "output", entry->outputs, &k->outputs);
    if (!status)
        status = check_templates(k, entry->templates, &launch->templates);
    return status;
}

/* ---- the node ---- */

static void call_unref(qn_kernel_call *call)
{
    if (!call ||
        atomic_fetch_sub_explicit(&call->refs, 1, memory_order_acq_rel) != 1)
        return;
    templates_free(&call->templates);
    qn_free(call->name);
    qn_free(call);
}

static void params_free(void *params)
{
    call_unref(((qn_kernel_params *)params)->call);
}

static void params_ref(void *params)
{
    qn_kernel_call *call = ((qn_kernel_params *)params)->call;
    atomic_fetch_add_explicit(&call->refs, 1, memory_order_relaxed);
}

static qn_status call_new(qn_kernel_call **out, const qn_kernel *k,
                          const qn_launch *launch, const qn_kernel_entry *entry)
{
    qn_kernel_call *call = qn_calloc(1, sizeof *call);
    if (!call)
        return QN_E_NOMEM;
    int blocks[3];
    atomic_init(&call->refs, 1);
    call->entry = *entry;
    call->scratch = k->scratch;
    call->has_init = launch->has_init;
    call->init = launch->init;
    memcpy(call->grid, launch->grid, sizeof call->grid);
    qn_kernel_blocks(blocks, call->group, launch->grid, launch->group);
    call->name = qn_strdup(k->name);
    qn_status status = call->name ? QN_OK : QN_E_NOMEM;
    if (!status)
        status = templates_copy(&call->templates, &launch->templates);
    if (status)
        call_unref(call);
    else
        *out = call;
    return status;
}

/* A node for arrays that the caller has made; a reference to `call` goes with
 * it. */
static qn_status attach(qn_kernel_call *call, qn_array *const *inputs,
                        int ninputs, qn_array *const *out, int nout,
                        qn_stream *s)
{
    qn_kernel_params params = {call};
    qn_node_spec spec = {.op = QN_OP_KERNEL,
                         .stream = s,
                         .inputs = inputs,
                         .ninputs = ninputs,
                         .params = &params,
                         .params_size = sizeof params,
                         .params_free = params_free,
                         .params_ref = params_ref};
    return qn_node_attach(&spec, out, nout);
}

static void outputs_free(qn_array **out, size_t n)
{
    while (n)
        qn_array_unref(out[--n]);
}

static qn_status outputs_new(qn_array **out, const qn_launch *launch)
{
    for (size_t i = 0; i < launch->noutputs; i++) {
        const qn_kernel_output *o = &launch->outputs[i];
        qn_status status = qn_array_new(&out[i], o->dtype, o->shape, o->ndim);
        if (!status)
            continue;
        outputs_free(out, i);
        return status;
    }
    return QN_OK;
}

qn_status qn_op_kernel(qn_array **out, const qn_kernel *kernel,
                       const qn_launch *launch, qn_array *const *inputs,
                       size_t ninputs, qn_stream *s)
{
    qn_kernel_entry entry;
    qn_kernel_call *call = NULL;
    qn_status status = check(&entry, kernel, launch, ninputs);
    if (status)
        return status;
    qn_array **in = qn_calloc(ninputs, sizeof *in);
    if (!in)
        return QN_E_NOMEM;
    qn_scope c;
    qn_scope_begin(&c, s);
    for (size_t i = 0; i < ninputs && !c.status; i++) {
        qn_array *made = NULL;
        in[i] =
            !kernel->row_contiguous
                ? inputs[i]
                : qn_scope_hold(
                      &c, qn_op_contiguous(&made, inputs[i], false, s), &made);
    }
    status = c.status;
    if (!status)
        status = call_new(&call, kernel, launch, &entry);
    if (!status)
        status = outputs_new(out, launch);
    if (!status) {
        status = attach(call, in, (int)ninputs, out, (int)launch->noutputs, s);
        if (status)
            outputs_free(out, launch->noutputs);
        else
            call = NULL;
    }
    call_unref(call);
    qn_scope_fail(&c, status);
    qn_array *none;
    qn_scope_end_many(&c, &none, NULL, 0);
    qn_free(in);
    return status;
}

/* ---- rules ---- */

void qn_again_kernel(qn_again *a)
{
    qn_kernel_params params = *(const qn_kernel_params *)a->node->params;
    int n = a->node->noutputs, made = 0;
    if (a->shapeless) {
        qn_scope_fail(a->c,
                      qn_fail(QN_E_UNSUPPORTED,
                              "[kernel] The custom kernel '%s' can't infer its "
                              "outputs' shapes in a shapeless function.",
                              params.call->name));
        return;
    }
    qn_array **out = qn_calloc((size_t)n, sizeof *out);
    qn_status status = out ? a->c->status : QN_E_NOMEM;
    for (; made < n && !status; made++) {
        const qn_array *was = a->was_out[made];
        status = qn_array_new(&out[made], was->dtype, was->shape, was->ndim);
    }
    if (status && made)
        made--;
    if (!status)
        status =
            attach(params.call, a->in, a->node->ninputs, out, n, a->c->stream);
    if (status) {
        outputs_free(out, (size_t)made);
        qn_scope_fail(a->c, status);
    } else {
        params_ref(&params);
        for (int i = 0; i < n; i++)
            a->out[i] = qn_scope_hold(a->c, QN_OK, &out[i]);
    }
    qn_free(out);
}
