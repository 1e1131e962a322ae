/* export.c: functions written to files and read from them. */
#include "backends.h"
#include "function.h"

#include "transform/import.h"

#include "base/alloc.h"

/* ---- inputs ---- */

static void let_go(void *array)
{
    qn_array_unref(array);
}

/* The entries of a map, in the order of their names, which are followed by a
 * zero.  Free with qn_free. */
static qn_status named_of(qn_named **out, size_t *count, const qn_map *map)
{
    *count = qn_map_size(map);
    *out = qn_calloc(*count, sizeof **out);
    if (!*out)
        return QN_E_NOMEM;
    for (size_t i = 0; i < *count; i++) {
        qn_str key = qn_map_key_at(map, i);
        key.size--;
        (*out)[i] = (qn_named){key, qn_map_value_at(map, i)->ptr};
    }
    qn_named_sort(*out, *count);
    return QN_OK;
}

/* ---- what is exported ---- */

/* A closure as a function of the positional inputs and then the named ones: it
 * gets those as a map, or, if it knows no names, not at all. */
typedef struct exported {
    qn_function base;
    qn_closure *closure;
    bool names;
    size_t nargs;
    const qn_named *named; /* for the keys */
    size_t nnamed;
} exported;

static qn_status map_of(mlx_map_string_to_array *out, const exported *f,
                        qn_array *const *values)
{
    qn_map *map = qn_map_new(f->nnamed);
    bool added;
    if (!map)
        return QN_E_NOMEM;
    for (size_t i = 0; i < f->nnamed; i++) {
        qn_str key = f->named[i].key;
        key.size++; /* the zero after it */
        qn_map_value *value = qn_map_put(map, key, &added);
        if (!value) {
            qn_map_free(map, let_go);
            return QN_E_NOMEM;
        }
        value->ptr = qn_array_ref(values[i]);
    }
    return qn_handle_set_map(out, map);
}

static qn_status call_exported(const qn_function *self, qn_arrays *out,
                               qn_array *const *inputs, size_t ninputs)
{
    const exported *f = (const exported *)self;
    qn_list list = qn_list_of(inputs, f->nargs);
    mlx_vector_array made = {NULL};
    mlx_map_string_to_array map = {NULL};
    (void)ninputs;
    if (!f->names) {
        qn_status called = qn_call_closure(f->closure, &made, &list);
        return called ? called : qn_take_arrays(out, made);
    }
    qn_status status = map_of(&map, f, inputs + f->nargs);
    if (status)
        return status;
    status = qn_call_closure_kwargs(f->closure, &made, &list, map);
    mlx_map_string_to_array_free(map);
    return status ? status : qn_take_arrays(out, made);
}

static qn_status export_call(qn_exporter *e, qn_closure *closure, bool names,
                             const qn_list *args, const qn_map *map)
{
    qn_named *named = NULL;
    size_t count = 0;
    qn_status status = map ? named_of(&named, &count, map) : QN_OK;
    exported f = {{call_exported}, closure, names, args->size, named, count};
    /* Recordings use the default stream. */
    (void)qn_function_of(closure);
    if (!status)
        status =
            qn_exporter_add(e, &f.base, args->data, args->size, named, count);
    qn_free(named);
    return status;
}

static qn_status export_once(const char *file, qn_closure *closure, bool names,
                             const qn_list *args, const qn_map *map,
                             bool shapeless)
{
    qn_exporter *e;
    qn_status status = qn_exporter_new(&e, file, shapeless);
    if (status)
        return status;
    status = export_call(e, closure, names, args, map);
    qn_exporter_free(e);
    return status;
}

/* Declares `name` as the map of a handle. */
#define GET_MAP(name, handle)                                                  \
    QN_GET_OR(const qn_map, name, qn_handle_array_map(handle),                 \
              mlx_map_string_to_array, 1)

int mlx_export_function(const char *file, const mlx_closure fun,
                        const mlx_vector_array args, bool shapeless)
{
    QN_GET_CLOSURE(closure, fun, mlx_closure);
    QN_GET_ARRAYS(in, args);
    QN_CALL(export_once(file, closure, false, in, NULL, shapeless));
    return 0;
}

int mlx_export_function_kwargs(const char *file, const mlx_closure_kwargs fun,
                               const mlx_vector_array args,
                               const mlx_map_string_to_array kwargs,
                               bool shapeless)
{
    QN_GET_CLOSURE(closure, fun, mlx_closure_kwargs);
    QN_GET_ARRAYS(in, args);
    GET_MAP(map, kwargs);
    QN_CALL(export_once(file, closure, true, in, map, shapeless));
    return 0;
}

/* ---- several recordings ---- */

typedef struct exporter_box {
    qn_exporter *exporter;
    qn_closure *closure;
} exporter_box;

mlx_function_exporter mlx_function_exporter_new(const char *file,
                                                const mlx_closure fun,
                                                bool shapeless)
{
    mlx_function_exporter none = {NULL};
    QN_GET_OR(qn_closure, closure, qn_handle_closure(fun.ctx), mlx_closure,
              none);
    exporter_box *box = qn_calloc(1, sizeof *box);
    qn_status status =
        box ? qn_exporter_new(&box->exporter, file, shapeless) : QN_E_NOMEM;
    /* An empty file, so that one that can't be written is known now. */
    if (!status)
        status = qn_exporter_write(box->exporter);
    if (status) {
        if (box)
            qn_exporter_free(box->exporter);
        qn_free(box);
        QN_REPORT();
        return none;
    }
    box->closure = qn_closure_ref(closure);
    return (mlx_function_exporter){box};
}

int mlx_function_exporter_free(mlx_function_exporter xfunc)
{
    exporter_box *box = xfunc.ctx;
    if (box) {
        qn_exporter_free(box->exporter);
        qn_closure_unref(box->closure);
    }
    qn_free(box);
    return 0;
}

int mlx_function_exporter_apply(const mlx_function_exporter xfunc,
                                const mlx_vector_array args)
{
    QN_GET_OR(const exporter_box, box, xfunc.ctx, mlx_function_exporter, 1);
    QN_GET_ARRAYS(in, args);
    QN_CALL(export_call(box->exporter, box->closure, false, in, NULL));
    return 0;
}

int mlx_function_exporter_apply_kwargs(const mlx_function_exporter xfunc,
                                       const mlx_vector_array args,
                                       const mlx_map_string_to_array kwargs)
{
    QN_GET_OR(const exporter_box, box, xfunc.ctx, mlx_function_exporter, 1);
    QN_GET_ARRAYS(in, args);
    GET_MAP(map, kwargs);
    QN_CALL(export_call(box->exporter, box->closure, false, in, map));
    return 0;
}

/* ---- reading ---- */

typedef struct imported_box {
    qn_imported *function;
} imported_box;

mlx_imported_function mlx_imported_function_new(const char *file)
{
    mlx_imported_function none = {NULL};
    imported_box *box = qn_calloc(1, sizeof *box);
    qn_backends_need();
    if (!box || qn_imported_new(&box->function, file)) {
        qn_free(box);
        QN_REPORT();
        return none;
    }
    return (mlx_imported_function){box};
}

int mlx_imported_function_free(mlx_imported_function xfunc)
{
    imported_box *box = xfunc.ctx;
    if (box)
        qn_imported_free(box->function);
    qn_free(box);
    return 0;
}

static int apply(mlx_vector_array *res, mlx_imported_function xfunc,
                 mlx_vector_array args, const qn_map *map)
{
    QN_GET_OR(const imported_box, box, xfunc.ctx, mlx_imported_function, 1);
    QN_GET_ARRAYS(in, args);
    qn_named *named = NULL;
    size_t count = 0;
    qn_arrays outputs;
    if (map)
        QN_CALL(named_of(&named, &count, map));
    qn_status status = qn_imported_call(&outputs, box->function, in->data,
                                        in->size, named, count);
    qn_free(named);
    QN_CALL(status);
    QN_CALL(qn_store_lists(&res, &outputs, 1));
    return 0;
}

int mlx_imported_function_apply(mlx_vector_array *res,
                                const mlx_imported_function xfunc,
                                const mlx_vector_array args)
{
    return apply(res, xfunc, args, NULL);
}

int mlx_imported_function_apply_kwargs(mlx_vector_array *res,
                                       const mlx_imported_function xfunc,
                                       const mlx_vector_array args,
                                       const mlx_map_string_to_array kwargs)
{
    GET_MAP(map, kwargs);
    return apply(res, xfunc, args, map);
}
