/* ext_kernel.c: functions of programs in the registry of custom kernels. */
#include "handles.h"

#include "backends.h"
#include "base/alloc.h"
#include "ops/kernel.h"

#include "quern/ext.h"

#include <stdio.h>
#include <string.h>

static int template_int(const void *templates, const char *name, int *v)
{
    return name && qn_template_int(templates, name, v) ? 0 : 1;
}

static int template_dtype(const void *templates, const char *name, mlx_dtype *v)
{
    qn_dtype type;
    if (!name || !qn_template_dtype(templates, name, &type))
        return 1;
    *v = (mlx_dtype)type;
    return 0;
}

static quern_view view_of(const qn_kernel_view *v)
{
    return (quern_view){.data = v->data,
                        .dtype = (mlx_dtype)v->dtype,
                        .ndim = v->ndim,
                        .shape = v->shape,
                        .strides = v->strides};
}

/* `user` holds the function. */
static int call_program(const qn_kernel_args *args, const void *user)
{
    quern_kernel_fn fn;
    memcpy(&fn, &user, sizeof fn);
    quern_view *views = qn_calloc(args->nin + args->nout, sizeof *views);
    if (!views) {
        snprintf(args->error, args->error_cap, "out of memory");
        return 1;
    }
    for (size_t i = 0; i < args->nin; i++)
        views[i] = view_of(&args->in[i]);
    for (size_t i = 0; i < args->nout; i++)
        views[args->nin + i] = view_of(&args->out[i]);
    quern_kernel_args given = {.n_in = args->nin,
                               .n_out = args->nout,
                               .in = views,
                               .out = views + args->nin,
                               .grid = args->grid,
                               .group = args->group,
                               .template_int = template_int,
                               .template_dtype = template_dtype,
                               .templates = args->templates,
                               .scratch = args->scratch,
                               .parallel = args->parallel,
                               .ctx = args->ctx,
                               .error = args->error,
                               .error_cap = args->error_cap};
    int code = fn(&given);
    qn_free(views);
    return code;
}

int quern_kernel_register(const char *name, quern_kernel_fn fn)
{
    qn_kernel_entry entry = {.fn = fn ? call_program : NULL};
    _Static_assert(sizeof fn == sizeof entry.user, "functions are pointers");
    memcpy(&entry.user, &fn, sizeof fn);
    /* quern's own names come first. */
    qn_backends_need();
    QN_CALL(qn_kernel_register(name, &entry));
    return 0;
}
