/* function.c: closures and lists, converted. */
#include "function.h"

#include "backends.h"

#include "base/alloc.h"

qn_status qn_take_arrays(qn_arrays *out, mlx_vector_array made)
{
    const qn_list *list = qn_handle_arrays(made);
    qn_arrays copy = {0};
    qn_status status = qn_arrays_copy(&copy, list->data, list->size);
    mlx_vector_array_free(made);
    if (status)
        qn_arrays_free(&copy);
    else
        *out = copy;
    return status;
}

static qn_status call(const qn_function *self, qn_arrays *out,
                      qn_array *const *inputs, size_t ninputs)
{
    const qn_closure_function *f = (const qn_closure_function *)self;
    qn_list list = qn_list_of(inputs, ninputs);
    mlx_vector_array made = {NULL};
    qn_status status = qn_call_closure(f->closure, &made, &list);
    return status ? status : qn_take_arrays(out, made);
}

static void release(qn_shared_function *self)
{
    qn_closure_function *f = (qn_closure_function *)self;
    qn_closure_unref(f->closure);
    qn_free(f);
}

static qn_shared_function *share(const qn_shared_function *self)
{
    const qn_closure_function *f = (const qn_closure_function *)self;
    qn_closure_function *copy = qn_alloc(sizeof *copy);
    if (!copy)
        return NULL;
    *copy = *f;
    qn_closure_ref(copy->closure);
    return &copy->shared;
}

qn_closure_function qn_function_of(qn_closure *closure)
{
    /* Transformations use the default stream. */
    qn_backends_need();
    return (qn_closure_function){
        {{.call = call}, .share = share, .release = release}, closure};
}

qn_status qn_store_lists(mlx_vector_array *const *res, qn_arrays *lists,
                         int count)
{
    enum { MOST = 2 };
    mlx_vector_array made[MOST] = {{NULL}, {NULL}};
    qn_status status = QN_OK;
    for (int i = 0; i < count; i++) {
        if (!status) {
            status =
                qn_handle_set_arrays(&made[i], lists[i].data, lists[i].count);
            /* The references are taken over in any case. */
            lists[i].count = 0;
        }
        qn_arrays_free(&lists[i]);
    }
    for (int i = 0; i < count; i++)
        if (status)
            mlx_vector_array_free(made[i]);
        else
            qn_handle_move_arrays(res[i], made[i]);
    return status;
}
