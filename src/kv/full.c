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
    qn_kv_scheme scheme;
    int capacity;
    mlx_vector_array arrays; /* no list while capacity is 0 */
} full_part;

static void drop_arrays(full_part *full)
{
    if (full->arrays.ctx)
        mlx_vector_array_free(full->arrays);
    full->arrays = (mlx_vector_array){NULL};
    full->capacity = 0;
}

static void full_reset(qn_kv_part *part, const qn_kv_scheme *scheme)
{
    full_part *full = (full_part *)part;
    drop_arrays(full);
    full->scheme = *scheme;
}

static void full_free(qn_kv_part *part)
{
    drop_arrays((full_part *)part);
    qn_free(part);
}

static const qn_kv_scheme *full_scheme(const qn_kv_part *part)
{
    return &((const full_part *)part)->scheme;
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

static quern_kv_form form_of(const qn_kv_shape *shape,
                             const qn_kv_scheme *scheme)
{
    return (quern_kv_form){.kv_heads = shape->kv_heads,
                           .head_dim = shape->head_dim,
                           .dtype = scheme->dtype,
                           .bits = scheme->bits,
                           .group_size = scheme->group,
                           .key_bits = scheme->key_bits,
                           .value_bits = scheme->value_bits};
}

static qn_status grow(full_part *full, int need, mlx_stream s)
{
    const qn_kv_shape *shape = &full->shape;
    quern_kv_form form = form_of(shape, &full->scheme);
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
    const full_part *first = (const full_part *)shares->part;
    quern_kv_form form = form_of(&first->shape, &first->scheme);
    quern_kv_options options = {.heads = how->heads,
                                .scale = how->scale,
                                .cap = how->cap,
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

static qn_status full_read(const qn_kv_part *part, int length,
                           mlx_vector_array *out, mlx_stream s)
{
    const full_part *full = (const full_part *)part;
    quern_kv_form form = form_of(&full->shape, &full->scheme);
    return qn_engine(quern_kv_read(out, &form, full->arrays, length, s));
}

static qn_status full_write(qn_kv_part *part, mlx_vector_array planes,
                            mlx_stream s)
{
    full_part *full = (full_part *)part;
    quern_kv_form form = form_of(&full->shape, &full->scheme);
    mlx_vector_array arrays = {NULL};
    int capacity = 0;
    qn_status status =
        qn_engine(quern_kv_write(&arrays, &capacity, &form, planes, s));
    if (status)
        return status;
    drop_arrays(full);
    full->arrays = arrays;
    full->capacity = capacity;
    return QN_OK;
}

/* ---- from floats to codes ---- */

/* Appends what mlx_quantize makes of x. */
static qn_status quantize(mlx_vector_array out, mlx_array x,
                          const qn_kv_scheme *scheme, mlx_stream s)
{
    mlx_array scaled = mlx_array_new();
    mlx_vector_array parts = mlx_vector_array_new();
    qn_status status = qn_engine(mlx_astype(&scaled, x, scheme->dtype, s));
    if (!status)
        status = qn_engine(mlx_quantize(&parts, scaled,
                                        (mlx_optional_int){scheme->group, true},
                                        (mlx_optional_int){scheme->bits, true},
                                        "affine", (mlx_array){NULL}, s));
    for (size_t i = 0; i < 3 && !status; i++) {
        mlx_array part = mlx_array_new();
        status = qn_engine(mlx_vector_array_get(&part, parts, i));
        if (!status)
            status = qn_engine(mlx_vector_array_append_value(out, part));
        mlx_array_free(part);
    }
    mlx_vector_array_free(parts);
    mlx_array_free(scaled);
    return status;
}

static qn_status pack(mlx_vector_array *out, mlx_vector_array floats,
                      const qn_kv_scheme *scheme, mlx_stream s)
{
    mlx_array kv[2] = {mlx_array_new(), mlx_array_new()};
    qn_status status = QN_OK;
    for (size_t i = 0; i < 2 && !status; i++)
        status = qn_engine(mlx_vector_array_get(&kv[i], floats, i));
    if (!status && scheme->key_bits) {
        status = qn_engine(quern_tq_encode(out, kv[0], kv[1], scheme->key_bits,
                                           scheme->value_bits, true, s));
    } else if (!status) {
        *out = mlx_vector_array_new();
        status = qn_engine_made(out->ctx);
        for (int i = 0; i < 2 && !status; i++)
            status = quantize(*out, kv[i], scheme, s);
    }
    for (int i = 0; i < 2; i++)
        mlx_array_free(kv[i]);
    return status;
}

static qn_status eval_part(const qn_kv_part *part)
{
    mlx_vector_array list = mlx_vector_array_new();
    qn_status status = qn_engine_made(list.ctx);
    if (!status)
        status = full_arrays(part, list);
    if (!status)
        status = qn_engine(mlx_eval(list));
    if (list.ctx)
        mlx_vector_array_free(list);
    return status;
}

static qn_status full_convert(qn_kv_part *part, int length,
                              const qn_kv_scheme *scheme, mlx_stream s)
{
    full_part *full = (full_part *)part;
    mlx_vector_array floats = {NULL}, packed = {NULL};
    qn_status status = full_read(part, length, &floats, s);
    if (!status)
        status = pack(&packed, floats, scheme, s);
    if (!status) {
        full->scheme = *scheme;
        status = full_write(part, packed, s);
    }
    if (floats.ctx)
        mlx_vector_array_free(floats);
    if (packed.ctx)
        mlx_vector_array_free(packed);
    /* The floats go as soon as the codes are there. */
    return status ? status : eval_part(part);
}

static const qn_kv_kind full_kind = {
    .name = "full",
    .attend = full_attend,
    .scheme = full_scheme,
    .convert = full_convert,
    .trim = full_trim,
    .reset = full_reset,
    .arrays = full_arrays,
    .read = full_read,
    .write = full_write,
    .free = full_free,
};

qn_kv_part *qn_kv_full_new(const qn_kv_shape *shape, const qn_kv_scheme *scheme)
{
    full_part *full = qn_calloc(1, sizeof *full);
    if (!full)
        return NULL;
    full->part.kind = &full_kind;
    full->shape = *shape;
    full->scheme = *scheme;
    return &full->part;
}
