/* tokens.c: keys and values of tokens: of all, or of those in a window.
 *
 * The arrays grow by whole steps, so that most tokens are written in place.
 * What lies behind the sequence's end is rubbish that later tokens overwrite.
 * With a window, room is made by dropping blocks that no later token sees
 * (rotating.c): what stays is copied once for every 128 tokens or more. */
#include "base/alloc.h"
#include "engine.h"
#include "kinds.h"

#include <quern/ext.h>

typedef struct tokens_part {
    qn_kv_part part;
    int kv_heads, head_dim, step, limit;
    qn_kv_window window;
    qn_kv_scheme scheme;
    int base; /* tokens that were dropped */
    int capacity;
    bool cloned; /* and not written since: the arrays are another's, too */
    mlx_vector_array arrays; /* no list while capacity is 0 */
} tokens_part;

static void drop_arrays(tokens_part *t)
{
    if (t->arrays.ctx)
        mlx_vector_array_free(t->arrays);
    t->arrays = (mlx_vector_array){NULL};
    t->capacity = 0;
    t->base = 0;
}

static void tokens_reset(qn_kv_part *part, const qn_kv_scheme *scheme)
{
    tokens_part *t = (tokens_part *)part;
    drop_arrays(t);
    t->scheme = *scheme;
}

static void tokens_free(qn_kv_part *part)
{
    drop_arrays((tokens_part *)part);
    qn_free(part);
}

static const qn_kv_scheme *tokens_scheme(const qn_kv_part *part)
{
    return &((const tokens_part *)part)->scheme;
}

static bool tokens_can_trim(const qn_kv_part *part, int offset, int length)
{
    const tokens_part *t = (const tokens_part *)part;
    (void)offset;
    return qn_kv_window_allows(&t->window, length, t->base);
}

static qn_status tokens_arrays(const qn_kv_part *part, mlx_vector_array out)
{
    const tokens_part *t = (const tokens_part *)part;
    if (!t->capacity)
        return QN_OK;
    qn_status status = QN_OK;
    size_t count = mlx_vector_array_size(t->arrays);
    for (size_t i = 0; i < count && !status; i++) {
        mlx_array x = mlx_array_new();
        status = qn_engine(mlx_vector_array_get(&x, t->arrays, i));
        if (!status)
            status = qn_engine(mlx_vector_array_append_value(out, x));
        mlx_array_free(x);
    }
    return status;
}

static qn_kv_part *tokens_clone(const qn_kv_part *part)
{
    tokens_part *t = qn_alloc(sizeof *t);
    if (!t)
        return NULL;
    *t = *(const tokens_part *)part;
    t->cloned = true;
    if (!t->capacity)
        return &t->part;
    t->arrays = mlx_vector_array_new();
    if (!t->arrays.ctx || tokens_arrays(part, t->arrays)) {
        tokens_free(&t->part);
        return NULL;
    }
    return &t->part;
}

/* ---- room ---- */

static quern_kv_form form_of(const tokens_part *t)
{
    return (quern_kv_form){.kv_heads = t->kv_heads,
                           .head_dim = t->head_dim,
                           .dtype = t->scheme.dtype,
                           .bits = t->scheme.bits,
                           .group_size = t->scheme.group,
                           .key_bits = t->scheme.key_bits,
                           .value_bits = t->scheme.value_bits};
}

static void take_arrays(tokens_part *t, mlx_vector_array arrays)
{
    if (t->arrays.ctx)
        mlx_vector_array_free(t->arrays);
    t->arrays = arrays;
}

/* Not past `most`, which the sequence never is. */
static qn_status grow(tokens_part *t, int need, int most, mlx_stream s)
{
    quern_kv_form form = form_of(t);
    int limit = most < t->limit ? most : t->limit;
    int64_t steps = ((int64_t)need + t->step - 1) / t->step;
    int room = steps * t->step < limit ? (int)steps * t->step : limit;
    mlx_vector_array grown = {NULL};
    qn_status status = qn_engine(
        quern_kv_room(&grown, &t->capacity, &form, t->arrays, room, s));
    if (!status)
        take_arrays(t, grown);
    return status;
}

/* Where dropped tokens were. */
static int drop_place(const tokens_part *t)
{
    return t->window.keep ? QN_KV_DROP_UNIT : 0;
}

/* The arrays without the tokens before `base`. */
static qn_status without(const tokens_part *t, mlx_vector_array *out,
                         int *capacity, int base, int need, mlx_stream s)
{
    quern_kv_form form = form_of(t);
    return qn_engine(quern_kv_drop(out, capacity, &form, t->arrays,
                                   drop_place(t), base - t->base, need, s));
}

/* Room for what a window leaves and `count` more: no more than that, and some
 * so that moving is rare. */
static qn_status slide(tokens_part *t, const qn_kv_share *share, mlx_stream s)
{
    int offset = share->offset, count = share->count;
    int base = qn_kv_window_base(&t->window, offset, QN_KV_SLACK);
    base = base > t->base ? base : t->base;
    int need = offset - base + count + qn_kv_window_ahead(&t->window);
    int end = offset - t->base + count;
    bool wide = t->capacity > need + 2 * t->step;
    if (end <= t->capacity && !wide)
        return QN_OK;
    if (base == t->base && !wide)
        return grow(t, end, share->most - t->base, s);
    mlx_vector_array moved = {NULL};
    qn_status status = without(t, &moved, &t->capacity, base, need, s);
    if (status)
        return status;
    take_arrays(t, moved);
    t->base = base;
    return QN_OK;
}

/* Arrays that are another's are copied when they are written: of much that is
 * not needed only the beginning. */
static qn_status shrink(tokens_part *t, int need, mlx_stream s)
{
    mlx_vector_array cut = {NULL};
    qn_status status = without(t, &cut, &t->capacity, t->base, need, s);
    if (!status)
        take_arrays(t, cut);
    return status;
}

/* Makes room, unless the rows are stored already, and says where they go. */
static qn_status open_share(quern_kv_step *out, const qn_kv_share *share,
                            bool stored, mlx_stream s)
{
    tokens_part *t = (tokens_part *)share->part;
    int end = share->offset + share->count;
    int most = share->most < t->limit ? share->most : t->limit;
    if (share->count > most - share->offset)
        return qn_fail(QN_E_NOMEM, "KV cache: %d tokens, room for %d", end,
                       most);
    int need = share->expected < most ? share->expected : most;
    need = need > end ? need : end;
    qn_status status = QN_OK;
    if (stored)
        status = QN_OK;
    else if (t->window.window && t->capacity)
        status = slide(t, share, s);
    else if (end > t->capacity)
        status = grow(t, t->window.window ? end : need, share->most, s);
    else if (t->cloned && (t->capacity - t->step > need ||
                           t->capacity - QN_KV_DROP_UNIT >= share->most))
        status = shrink(t, need, s);
    if (!stored)
        t->cloned = false;
    *out = (quern_kv_step){t->arrays, share->offset - t->base, share->count,
                           t->base};
    return status;
}

static qn_status tokens_attend(const qn_kv_share *shares, size_t count,
                               mlx_array *out, mlx_array q, mlx_array k,
                               mlx_array v, const qn_attention *how,
                               mlx_stream s)
{
    const tokens_part *first = (const tokens_part *)shares->part;
    quern_kv_form form = form_of(first);
    int window = first->window.window;
    quern_kv_options options = {.heads = how->heads,
                                .scale = how->scale,
                                .cap = how->cap,
                                .window = window ? window : how->window,
                                .keep = first->window.keep,
                                .rope_dims = how->rope.dims,
                                .rope_traditional = how->rope.traditional,
                                .rope_base = how->rope.base,
                                .rope_scale = how->rope.scale,
                                .rope_freqs = how->rope.freqs,
                                .sinks = how->sinks};
    quern_kv_step one, *steps = &one;
    if (count > 1)
        steps = qn_calloc(count, sizeof *steps);
    qn_status status = steps ? QN_OK : QN_E_NOMEM;
    for (size_t i = 0; i < count && !status; i++)
        status = open_share(&steps[i], &shares[i], !k.ctx, s);
    if (!status)
        status = qn_engine(
            quern_kv_attention(out, q, k, v, &form, steps, count, &options, s));
    if (count > 1)
        qn_free(steps);
    return status;
}

/* ---- the saved form ---- */

static int tokens_names(const qn_kv_part *part, const char *const **names)
{
    static const char *const turbo[] = {"k_packed", "k_scale", "k_zero",
                                        "v_packed", "v_scale"};
    static const char *const affine[] = {"keys",          "keys.scales",
                                         "keys.biases",   "values",
                                         "values.scales", "values.biases"};
    static const char *const floats[] = {"keys", "values"};
    const qn_kv_scheme *scheme = tokens_scheme(part);
    *names = scheme->key_bits ? turbo : scheme->bits ? affine : floats;
    return scheme->key_bits ? 5 : scheme->bits ? 6 : 2;
}

/* What is saved does not depend on when tokens were dropped. */
static int tokens_saved(const qn_kv_part *part, int length)
{
    const tokens_part *t = (const tokens_part *)part;
    return length - qn_kv_window_base(&t->window, length, 0);
}

static qn_status tokens_read(const qn_kv_part *part, int length,
                             mlx_vector_array *out, mlx_stream s)
{
    const tokens_part *t = (const tokens_part *)part;
    quern_kv_form form = form_of(t);
    int count = tokens_saved(part, length), base = length - count, capacity;
    mlx_vector_array arrays = {NULL};
    qn_status status = QN_OK;
    if (base > t->base)
        status = without(t, &arrays, &capacity, base, count, s);
    if (!status)
        status = qn_engine(quern_kv_read(
            out, &form, arrays.ctx ? arrays : t->arrays, count, s));
    if (arrays.ctx)
        mlx_vector_array_free(arrays);
    return status;
}

/* Takes planes of what is stored, in the present scheme. */
static qn_status put_planes(tokens_part *t, mlx_vector_array planes, int base,
                            mlx_stream s)
{
    quern_kv_form form = form_of(t);
    mlx_vector_array arrays = {NULL};
    int capacity = 0;
    qn_status status =
        qn_engine(quern_kv_write(&arrays, &capacity, &form, planes, s));
    if (status)
        return status;
    drop_arrays(t);
    t->arrays = arrays;
    t->capacity = capacity;
    t->base = base;
    return QN_OK;
}

static qn_status tokens_write(qn_kv_part *part, int length,
                              mlx_vector_array planes, mlx_stream s)
{
    return put_planes((tokens_part *)part, planes,
                      length - tokens_saved(part, length), s);
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
        status = tokens_arrays(part, list);
    if (!status)
        status = qn_engine(mlx_eval(list));
    if (list.ctx)
        mlx_vector_array_free(list);
    return status;
}

static qn_status tokens_convert(qn_kv_part *part, int length,
                                const qn_kv_scheme *scheme, mlx_stream s)
{
    tokens_part *t = (tokens_part *)part;
    mlx_vector_array floats = {NULL}, packed = {NULL};
    quern_kv_form form = form_of(t);
    qn_status status = qn_engine(
        quern_kv_read(&floats, &form, t->arrays, length - t->base, s));
    if (!status)
        status = pack(&packed, floats, scheme, s);
    if (!status) {
        t->scheme = *scheme;
        status = put_planes(t, packed, t->base, s);
    }
    if (floats.ctx)
        mlx_vector_array_free(floats);
    if (packed.ctx)
        mlx_vector_array_free(packed);
    /* The floats go as soon as the codes are there. */
    return status ? status : eval_part(part);
}

static const qn_kv_kind tokens_kind = {
    .attend = tokens_attend,
    .scheme = tokens_scheme,
    .convert = tokens_convert,
    .can_trim = tokens_can_trim,
    .reset = tokens_reset,
    .arrays = tokens_arrays,
    .clone = tokens_clone,
    .names = tokens_names,
    .saved = tokens_saved,
    .read = tokens_read,
    .write = tokens_write,
    .free = tokens_free,
};

qn_kv_part *qn_kv_tokens_new(const qn_kv_layer *layer,
                             const qn_kv_scheme *scheme, int step, int limit)
{
    tokens_part *t = qn_calloc(1, sizeof *t);
    if (!t)
        return NULL;
    *t = (tokens_part){.part.kind = &tokens_kind,
                       .kv_heads = layer->kv_heads,
                       .head_dim = layer->head_dim,
                       .step = step,
                       .limit = limit,
                       .window = {layer->window, layer->keep},
                       .scheme = *scheme};
    return &t->part;
}
