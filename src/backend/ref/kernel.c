/* kernel.c: launches of custom kernels. */
#include "loops.h"
#include "stage.h"

#include "base/alloc.h"
#include "ops/kernel.h"

#include <string.h>

/* Every element of an output. */
static void fill(const qn_array *out, float value)
{
    double block[QN_BLOCK];
    size_t item = qn_array_itemsize(out);
    for (size_t i = 0; i < QN_BLOCK; i++)
        block[i] = (double)value;
    for (size_t i = 0; i < out->size; i += QN_BLOCK) {
        size_t n = out->size - i < QN_BLOCK ? out->size - i : QN_BLOCK;
        qn_wide_store((char *)qn_array_data(out) + i * item, out->dtype, 1,
                      block, QN_WIDE_FLOAT, n);
    }
}

static qn_kernel_view view_of(const qn_array *array)
{
    return (qn_kernel_view){.data = qn_array_data(array),
                            .dtype = array->dtype,
                            .ndim = array->ndim,
                            .shape = array->shape,
                            .strides = array->strides};
}

qn_status qn_ref_kernel_run(qn_node *node, void *scratch,
                            void (*parallel)(void *, size_t,
                                             void (*)(void *, size_t, void *),
                                             void *),
                            void *ctx)
{
    const qn_kernel_call *call = ((const qn_kernel_params *)node->params)->call;
    size_t nin = (size_t)node->ninputs, nout = (size_t)node->noutputs;
    char error[512] = "";
    qn_status status = QN_OK;
    qn_kernel_view *views = qn_calloc(nin + nout, sizeof *views);
    if (!views)
        return QN_E_NOMEM;
    for (size_t i = 0; i < nin; i++)
        views[i] = view_of(node->inputs[i]);
    for (size_t i = 0; i < nout && !status; i++) {
        qn_array *out = node->outputs[i];
        status = qn_array_alloc(out);
        if (status)
            break;
        views[nin + i] = view_of(out);
        if (call->has_init)
            fill(out, call->init);
    }
    qn_kernel_args args = {.nin = nin,
                           .nout = nout,
                           .in = views,
                           .out = views + nin,
                           .grid = call->grid,
                           .group = call->group,
                           .templates = &call->templates,
                           .scratch = scratch,
                           .parallel = parallel,
                           .ctx = ctx,
                           .error = error,
                           .error_cap = sizeof error};
    if (!status && call->entry.fn(&args, call->entry.user)) {
        error[sizeof error - 1] = '\0';
        status = qn_fail(QN_E_ARG, "[custom_kernel] %s: %s", call->name,
                         *error ? error : "failed without a message");
    }
    qn_free(views);
    return status;
}

static void one_by_one(void *ctx, size_t n, void (*fn)(void *, size_t, void *),
                       void *arg)
{
    for (size_t i = 0; i < n; i++)
        fn(arg, i, ctx);
}

qn_status qn_ref_custom_kernel(qn_node *node)
{
    const qn_kernel_call *call = ((const qn_kernel_params *)node->params)->call;
    void *scratch = qn_alloc_aligned(64, call->scratch ? call->scratch : 1);
    if (!scratch)
        return QN_E_NOMEM;
    qn_status status = qn_ref_kernel_run(node, scratch, one_by_one, scratch);
    qn_free(scratch);
    return status;
}
