/* full.c: the plain kind: K and V of every token.
 *
 * The arrays grow by whole steps, so that most tokens are written in place.
 * What lies behind the sequence's end is rubbish that later tokens
 * overwrite. */
#include "base/alloc.h"
#include "engine.h"
#include "kinds.h"

#include <quern/ext.h>

typedef struct full_part {
    qn_kv_part part;
    qn_kv_shape shape;
    int capacity;
    mlx_vector_array arrays; /* no list while capacity is 0 */
} full_part;

static void full_reset(qn_kv_part *part)
{
    full_part *full = (full_part *)part;
    if (full->arrays.ctx)
        mlx_vector_array_free(full->arrays);
    full->arrays = (mlx_vector_array){NULL};
    full->capacity = 0;
}

static void full_free(qn_kv_part *part)
{
    full_reset(part);
    qn_free(part);
}

static bool full_trim(qn_kv_part *part, int offset, int length)
{
    /* The cache's length alone says what counts. */
    (void)part;
    (void)offset;
    (void)length;
    return true;
}

static qn_status full_arrays(const qn_kv_part *part, mlx_vector_array out)
{
    const full_part *full = (const full_part *)part;
    if (!full->capacity)
        return QN_OK;
    qn_status status = QN_OK;
    size_t count = mlx_vector_array_size(full->arrays);
    for (size_t i = 0; i < count && !status; i++) {
        mlx_array x = mlx_array_new();
        status = qn_engine(mlx_vector_array_get(&x, full->arrays, i));
        if (!status)
            status = qn_engine(mlx_vector_array_append_value(out, x));
        mlx_array_free(x);
    }
    return status;
}

static quern_kv_form form_of(const qn_kv_shape *shape)
{
    return (quern_kv_form){.kv_heads = shape->kv_heads,
                           .head_dim = shape->head_dim,
                           .dtype = shape->dtype,
                           .bits = shape->bits,
                           .group_size = shape->group};
}

static qn_status grow(full_part *full, int need, mlx_stream s)
{
    const qn_kv_shape *shape = &full->shape;
    quern_kv_form form = form_of(shape);
    int room = need > shape->limit - shape->step
                   ? shape->limit
                   : (need + shape->step - 1) / shape->step * shape->step;
    mlx_vector_array grown = {NULL};
    qn_status status = qn_engine(
        quern_kv_room(&grown, &full->capacity, &form, full->arrays, room, s));
    if (status)
        return status;
    if (full->arrays.ctx)
        mlx_vector_array_free(full->arrays);
    full->arrays = grown;
    return QN_OK;
}

/* Makes room, and says where the rows go. */
static qn_status open_share(quern_kv_step *out, const qn_kv_share *share,
                            mlx_stream s)
{
    full_part *full = (full_part *)share->part;
    const qn_kv_shape *shape = &full->shape;
    int end = share->offset + share->count;
    if (share->count > shape->limit - share->offset)
        return qn_fail(QN_E_INTERNAL, "KV cache: %d tokens, room for %d", end,
                       shape->limit);
    int need = share->expected > end ? share->expected : end;
    qn_status status = end > full->capacity ? grow(full, need, s) : QN_OK;
    *out = (quern_kv_step){full->arrays, share->offset, share->count};
    return status;
}

static qn_status full_attend(const qn_kv_share *shares, size_t count,
                             mlx_array *out, mlx_array q, mlx_array k,
                             mlx_array v, const qn_attention *how, mlx_stream s)
{
    quern_kv_form form = form_of(&((const full_part *)shares->part)->shape);
    quern_kv_options options = {.heads = how->heads,
                                .scale = how->scale,
                                .window = how->window,
                                .rope_dims = how->rope.dims,
                                .rope_traditional = how->rope.traditional,
                                .rope_base = how->rope.base,
                                .rope_scale = how->rope.scale,
                                .rope_freqs = how->rope.freqs};
    quern_kv_step one, *steps = &one;
    if (count > 1)
        steps = qn_calloc(count, sizeof *steps);
    qn_status status = steps ? QN_OK : QN_E_NOMEM;
    for (size_t i = 0; i < count && !status; i++)
        status = open_share(&steps[i], &shares[i], s);
    if (!status)
        status = qn_engine(
            quern_kv_attention(out, q, k, v, &form, steps, count, &options, s));
    if (count > 1)
        qn_free(steps);
    return status;
}

static const qn_kv_kind full_kind = {
    .name = "full",
    .attend = full_attend,
    .trim = full_trim,
    .reset = full_reset,
    .arrays = full_arrays,
    .free = full_free,
};

qn_kv_part *qn_kv_full_new(const qn_kv_shape *shape)
{
    full_part *full = qn_calloc(1, sizeof *full);
    if (!full)
        return NULL;
    full->part.kind = &full_kind;
    full->shape = *shape;
    return &full->part;
}
