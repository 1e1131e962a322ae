/* recurrent.c: the state of a layer that reads a sequence once.
 *
 * It has no tokens, so nothing can be taken back: who may have to go back keeps
 * a clone. */
#include "base/alloc.h"
#include "engine.h"
#include "kinds.h"

enum { ARRAYS = 2 };

typedef struct recurrent_part {
    qn_kv_part part;
    qn_kv_recurrence shape;
    mlx_array array[ARRAYS]; /* none at the beginning of a sequence */
} recurrent_part;

static void drop_arrays(recurrent_part *r)
{
    for (int i = 0; i < ARRAYS; i++) {
        if (r->array[i].ctx)
            mlx_array_free(r->array[i]);
        r->array[i] = (mlx_array){NULL};
    }
}

static void recurrent_reset(qn_kv_part *part, const qn_kv_scheme *scheme)
{
    (void)scheme;
    drop_arrays((recurrent_part *)part);
}

static void recurrent_free(qn_kv_part *part)
{
    drop_arrays((recurrent_part *)part);
    qn_free(part);
}

static bool recurrent_can_trim(const qn_kv_part *part, int offset, int length)
{
    (void)part;
    return offset == length;
}

static qn_status recurrent_arrays(const qn_kv_part *part, mlx_vector_array out)
{
    const recurrent_part *r = (const recurrent_part *)part;
    qn_status status = QN_OK;
    for (int i = 0; i < ARRAYS && r->array[i].ctx && !status; i++)
        status = qn_engine(mlx_vector_array_append_value(out, r->array[i]));
    return status;
}

static qn_kv_part *recurrent_clone(const qn_kv_part *part)
{
    const recurrent_part *from = (const recurrent_part *)part;
    recurrent_part *r = qn_calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->part = from->part;
    r->shape = from->shape;
    if (from->array[0].ctx &&
        qn_kv_recurrent_set(&r->part, from->array[0], from->array[1])) {
        recurrent_free(&r->part);
        return NULL;
    }
    return &r->part;
}

static int dims_of(const qn_kv_recurrence *shape, int i, int dim[3])
{
    if (!i) {
        dim[0] = shape->taps;
        dim[1] = shape->channels;
        return 2;
    }
    dim[0] = shape->heads;
    dim[1] = shape->key_dim;
    dim[2] = shape->value_dim;
    return 3;
}

static qn_status get_one(const recurrent_part *r, int i, mlx_array *out,
                         mlx_stream s)
{
    int dim[3];
    int ndim = dims_of(&r->shape, i, dim);
    *out = (mlx_array){NULL};
    return qn_engine(r->array[i].ctx
                         ? mlx_array_set(out, r->array[i])
                         : mlx_zeros(out, dim, (size_t)ndim, MLX_FLOAT32, s));
}

qn_status qn_kv_recurrent_get(const qn_kv_part *part, mlx_array *conv,
                              mlx_array *state, mlx_stream s)
{
    const recurrent_part *r = (const recurrent_part *)part;
    qn_status status = get_one(r, 0, conv, s);
    if (status)
        return status;
    status = get_one(r, 1, state, s);
    if (status)
        mlx_array_free(*conv);
    return status;
}

qn_status qn_kv_recurrent_set(qn_kv_part *part, mlx_array conv, mlx_array state)
{
    recurrent_part *r = (recurrent_part *)part;
    qn_status status = qn_engine(mlx_array_set(&r->array[0], conv));
    return status ? status : qn_engine(mlx_array_set(&r->array[1], state));
}

/* ---- the saved form ---- */

static int recurrent_names(const qn_kv_part *part, const char *const **names)
{
    static const char *const both[] = {"conv", "state"};
    (void)part;
    *names = both;
    return ARRAYS;
}

static int recurrent_saved(const qn_kv_part *part, int length)
{
    (void)part;
    (void)length;
    return -1;
}

static qn_status recurrent_read(const qn_kv_part *part, int length,
                                mlx_vector_array *out, mlx_stream s)
{
    mlx_array both[ARRAYS];
    (void)length;
    qn_status status = qn_kv_recurrent_get(part, &both[0], &both[1], s);
    if (status)
        return status;
    *out = mlx_vector_array_new_data(both, ARRAYS);
    for (int i = 0; i < ARRAYS; i++)
        mlx_array_free(both[i]);
    return qn_engine_made(out->ctx);
}

static bool fits(mlx_array x, const qn_kv_recurrence *shape, int i)
{
    int dim[3];
    int ndim = dims_of(shape, i, dim);
    bool same =
        mlx_array_dtype(x) == MLX_FLOAT32 && mlx_array_ndim(x) == (size_t)ndim;
    for (int axis = 0; same && axis < ndim; axis++)
        same = mlx_array_dim(x, axis) == dim[axis];
    return same;
}

static qn_status recurrent_write(qn_kv_part *part, int length,
                                 mlx_vector_array planes, mlx_stream s)
{
    recurrent_part *r = (recurrent_part *)part;
    (void)length;
    (void)s;
    qn_status status = QN_OK;
    for (int i = 0; i < ARRAYS && !status; i++) {
        mlx_array x = {NULL};
        status = qn_engine(mlx_vector_array_get(&x, planes, (size_t)i));
        if (!status && !fits(x, &r->shape, i))
            status = qn_fail(QN_E_FORMAT,
                             "saved KV cache: the state of a recurrent layer "
                             "has another shape or type");
        if (!status)
            status = qn_engine(mlx_array_set(&r->array[i], x));
        if (x.ctx)
            mlx_array_free(x);
    }
    return status;
}

static const qn_kv_kind recurrent_kind = {
    .can_trim = recurrent_can_trim,
    .reset = recurrent_reset,
    .arrays = recurrent_arrays,
    .clone = recurrent_clone,
    .names = recurrent_names,
    .saved = recurrent_saved,
    .read = recurrent_read,
    .write = recurrent_write,
    .free = recurrent_free,
};

qn_kv_part *qn_kv_recurrent_new(const qn_kv_recurrence *recurrence)
{
    recurrent_part *r = qn_calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->part.kind = &recurrent_kind;
    r->shape = *recurrence;
    return &r->part;
}
