/* tq_cache.c: a layer's cache in the packed KV format, made of mlx_* calls and
 * quern_tq_*: the same over our engine and over another library.
 *
 * Planes are values: storing makes new ones, in place where nobody else holds
 * the old, so whatever was handed out stays as it was.  Everything that can
 * fail is done before the cache changes. */
#include "tq_cache.h"

#include "base/alloc.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Capacity grows in steps of so many tokens. */
enum { STEP_TOKENS = 256 };

int tq_report(void)
{
    _mlx_error(__FILE__, __LINE__, "%s", qn_error_text());
    return 1;
}

/* ---- planes ---- */

const char *const tq_plane_names[TQ_PLANES] = {"k_packed", "k_scale", "k_zero",
                                               "v_packed", "v_scale"};

tq_plane tq_plane_of(const quern_tq_cache *c, int i, int tokens)
{
    int kb = c->options.key_bits, vb = c->options.value_bits, d = c->head_dim;
    tq_plane p = {{c->batch, c->heads, tokens, d / QN_TQ_GROUP}, MLX_FLOAT16};
    if (i == 0 || i == 3) {
        p.shape[3] = qn_tq_packed(d, i ? vb : kb);
        p.dtype = !i && kb == 8 ? MLX_INT8 : MLX_UINT8;
    }
    return p;
}

mlx_array tq_cut(steps *s, mlx_array x, int first, int end, int begin, int stop)
{
    mlx_array y;
    int from[4] = {first, 0, begin, 0}, step[4] = {1, 1, 1, 1};
    int to_end[4] = {end, 0, stop, 0};
    for (int axis = 1; !s->failed && axis < 4; axis += 2)
        to_end[axis] = mlx_array_dim(x, axis);
    STEP(s, y, mlx_slice(to, x, from, 4, to_end, 4, step, 4, s->stream));
    return y;
}

mlx_array tq_zeros(steps *s, const tq_plane *plane)
{
    mlx_array y;
    STEP(s, y, mlx_zeros(to, plane->shape, 4, plane->dtype, s->stream));
    return y;
}

mlx_array tq_behind(steps *s, mlx_array a, mlx_array b)
{
    mlx_array y, pair[2] = {a, b};
    mlx_vector_array both = mlx_vector_array_new_data(pair, 2);
    STEP(s, y, mlx_concatenate_axis(to, both, 2, s->stream));
    mlx_vector_array_free(both);
    return y;
}

static mlx_array put(steps *s, mlx_array plane, mlx_array rows, int begin,
                     int end)
{
    mlx_array y;
    int from[4] = {0, 0, begin, 0}, stop[4] = {0}, step[4] = {1, 1, 1, 1};
    for (int axis = 0; !s->failed && axis < 4; axis++)
        stop[axis] = axis == 2 ? end : mlx_array_dim(plane, axis);
    STEP(s, y,
         mlx_slice_update(to, plane, rows, from, 4, stop, 4, step, 4,
                          s->stream));
    return y;
}

static qn_status check_field(const char *op, const char *plane,
                             const char *field, int expected, int found)
{
    if (expected == found)
        return QN_OK;
    return qn_fail(QN_E_ARG, "[%s] %s: expected %s %d, found %d.", op, plane,
                   field, expected, found);
}

static const char *dtype_name(mlx_dtype dtype)
{
    return dtype == MLX_INT8      ? "int8"
           : dtype == MLX_UINT8   ? "uint8"
           : dtype == MLX_FLOAT16 ? "float16"
                                  : "another";
}

qn_status tq_check_planes(const char *op, quern_tq_cache *c,
                          const tq_plane planes[TQ_PLANES])
{
    static const char *const axes[] = {"batch", "kv heads", "tokens", "width"};
    c->batch = planes[0].shape[0];
    c->heads = planes[0].shape[1];
    c->capacity = planes[0].shape[2];
    if (c->batch < 1 || c->heads < 1 || c->capacity < 1)
        return qn_fail(QN_E_ARG, "[%s] k_packed: expected tokens, found none.",
                       op);
    for (int i = 0; i < TQ_PLANES; i++) {
        tq_plane wanted = tq_plane_of(c, i, c->capacity);
        if (planes[i].dtype != wanted.dtype)
            return qn_fail(QN_E_ARG,
                           "[%s] %s: expected dtype %s, found %s (number %d).",
                           op, tq_plane_names[i], dtype_name(wanted.dtype),
                           dtype_name(planes[i].dtype), (int)planes[i].dtype);
        for (int axis = 0; axis < 4; axis++)
            if (check_field(op, tq_plane_names[i], axes[axis],
                            wanted.shape[axis], planes[i].shape[axis]))
                return QN_E_ARG;
    }
    return QN_OK;
}

/* ---- life ---- */

static qn_status check_options(const char *op, const quern_tq_options *options)
{
    qn_status status = qn_tq_check_key_bits(op, options->key_bits);
    return status ? status : qn_tq_check_value_bits(op, options->value_bits);
}

static qn_status cache_new(quern_tq_cache **out,
                           const quern_tq_options *options)
{
    quern_tq_cache *c = qn_calloc(1, sizeof *c);
    if (!c)
        return QN_E_NOMEM;
    c->options = *options;
    snprintf(c->signature, sizeof c->signature, "kv:turboquant:%d:%d",
             options->key_bits, options->value_bits);
    snprintf(c->key, sizeof c->key, "turbo-k%dv%d", options->key_bits,
             options->value_bits);
    *out = c;
    return QN_OK;
}

int quern_tq_cache_new(quern_tq_cache **res, const quern_tq_options *options)
{
    TQ_CHECK(check_options("tq_cache_new", options));
    TQ_CHECK(cache_new(res, options));
    return 0;
}

qn_status tq_cache_like(quern_tq_cache **out, const quern_tq_cache *c)
{
    qn_status status = cache_new(out, &c->options);
    if (!status) {
        (*out)->head_dim = c->head_dim;
        (*out)->batch = c->batch;
        (*out)->heads = c->heads;
        (*out)->reusable = c->reusable;
    }
    return status;
}

void tq_cache_put(quern_tq_cache *c, mlx_array made[TQ_PLANES])
{
    for (int i = 0; i < TQ_PLANES; i++) {
        mlx_array_free(c->planes[i]);
        c->planes[i] = made[i];
        made[i] = mlx_array_empty;
    }
}

void quern_tq_cache_reset(quern_tq_cache *cache)
{
    mlx_array none[TQ_PLANES] = {{NULL}};
    tq_cache_put(cache, none);
    qn_free(cache->valid);
    cache->valid = NULL;
    cache->head_dim = cache->batch = cache->heads = 0;
    cache->offset = cache->capacity = cache->reusable = 0;
}

void quern_tq_cache_free(quern_tq_cache *cache)
{
    if (!cache)
        return;
    quern_tq_cache_reset(cache);
    qn_free(cache);
}

int quern_tq_cache_clone(quern_tq_cache **res, const quern_tq_cache *cache)
{
    quern_tq_cache *made;
    TQ_CHECK(tq_cache_like(&made, cache));
    made->offset = cache->offset;
    made->capacity = cache->capacity;
    int failed = 0;
    for (int i = 0; !failed && i < TQ_PLANES; i++)
        if (cache->planes[i].ctx)
            failed = mlx_array_set(&made->planes[i], cache->planes[i]);
    if (!failed && cache->valid) {
        size_t n = (size_t)cache->batch;
        made->valid = qn_calloc(n, sizeof *made->valid);
        failed = made->valid ? 0 : tq_report();
        if (!failed)
            memcpy(made->valid, cache->valid, n * sizeof *made->valid);
    }
    if (failed)
        quern_tq_cache_free(made);
    else
        *res = made;
    return failed;
}

/* ---- storing ---- */

static qn_status check_append(const quern_tq_cache *c, mlx_array keys,
                              mlx_array values)
{
    const char *op = "tq_cache_append";
    const int *shape = mlx_array_shape(keys);
    qn_status status =
        qn_tq_check_pair(op, shape, mlx_array_ndim(keys),
                         mlx_array_shape(values), mlx_array_ndim(values));
    if (!status)
        status = qn_tq_check_dim(op, shape[3]);
    if (status)
        return status;
    /* Lengths are ints, also that which storage grows to. */
    int64_t end = (int64_t)c->offset + shape[2];
    if (end > c->capacity)
        end += (int64_t)c->capacity + STEP_TOKENS;
    if (shape[0] < 1 || shape[1] < 1 || shape[2] < 1 || end > INT_MAX)
        return qn_fail(QN_E_ARG,
                       "[%s] Expected tokens, found [%d, %d, %d, %d] after %d.",
                       op, shape[0], shape[1], shape[2], shape[3], c->offset);
    if (c->head_dim && (shape[0] != c->batch || shape[1] != c->heads ||
                        shape[3] != c->head_dim))
        return qn_fail(QN_E_ARG,
                       "[%s] batch, kv heads and head_dim are (%d, %d, %d), "
                       "those of the cache (%d, %d, %d).",
                       op, shape[0], shape[1], shape[3], c->batch, c->heads,
                       c->head_dim);
    return QN_OK;
}

/* Plane i with room for n more tokens than `offset`. */
static mlx_array grown(steps *s, const quern_tq_cache *c, int i, int grow)
{
    tq_plane plane = tq_plane_of(c, i, grow);
    mlx_array old = c->planes[i], fresh_one = tq_zeros(s, &plane);
    if (!old.ctx)
        return fresh_one;
    if (c->offset % STEP_TOKENS)
        old = tq_cut(s, old, 0, c->batch, 0, c->offset);
    return tq_behind(s, old, fresh_one);
}

/* Tokens that storage grows by for n more; 0: there is room. */
static int growth(const quern_tq_cache *c, int n)
{
    if (n <= c->capacity - c->offset)
        return 0;
    return (n + STEP_TOKENS - 1) / STEP_TOKENS * STEP_TOKENS;
}

/* Puts rows of the five planes behind what is there: the last step, which is
 * done for all planes or none. */
static int store(quern_tq_cache *c, const quern_tq_cache *shape,
                 mlx_vector_array rows, int n, mlx_stream stream)
{
    mlx_array made[TQ_PLANES] = {{NULL}};
    int grow = growth(c, n), failed = 0;
    for (int i = 0; !failed && i < TQ_PLANES; i++) {
        steps s = {.stream = stream};
        mlx_array plane = grow ? grown(&s, shape, i, grow) : c->planes[i];
        mlx_array row = element(&s, rows, (size_t)i);
        plane = put(&s, plane, row, c->offset, c->offset + n);
        failed = s.failed || mlx_array_set(&made[i], plane);
        finish(&s);
    }
    if (failed) {
        for (int i = 0; i < TQ_PLANES; i++)
            mlx_array_free(made[i]);
        return 1;
    }
    tq_cache_put(c, made);
    if (grow)
        c->capacity =
            (c->offset % STEP_TOKENS ? c->offset : c->capacity) + grow;
    c->offset += n;
    for (int i = 0; c->valid && i < c->batch; i++)
        c->valid[i] += n;
    c->head_dim = shape->head_dim;
    c->batch = shape->batch;
    c->heads = shape->heads;
    return 0;
}

int quern_tq_cache_append(quern_tq_cache *cache, const mlx_array keys,
                          const mlx_array values, const mlx_stream s)
{
    TQ_CHECK(check_append(cache, keys, values));
    const int *shape = mlx_array_shape(keys);
    quern_tq_cache known = *cache; /* with the shape that it will have */
    known.batch = shape[0];
    known.heads = shape[1];
    known.head_dim = shape[3];
    mlx_vector_array rows = mlx_vector_array_new();
    int n = shape[2];
    int failed =
        quern_tq_encode(&rows, keys, values, cache->options.key_bits,
                        cache->options.value_bits, cache->options.guard, s) ||
        store(cache, &known, rows, n, s);
    mlx_vector_array_free(rows);
    return failed;
}

/* ---- reading ---- */

/* The five planes cut to what is valid, for a list. */
static int windows(mlx_vector_array *res, const quern_tq_cache *c, mlx_stream s)
{
    steps steps_of = {.stream = s};
    mlx_array list[TQ_PLANES];
    for (int i = 0; i < TQ_PLANES; i++)
        list[i] = tq_cut(&steps_of, c->planes[i], 0, c->batch, 0, c->offset);
    int failed =
        steps_of.failed || mlx_vector_array_set_data(res, list, TQ_PLANES);
    finish(&steps_of);
    return failed;
}

/* Keys and values of the planes, one plane after the other. */
static int decode_separately(mlx_array *keys, mlx_array *values,
                             const quern_tq_cache *c, mlx_vector_array planes,
                             bool defer, mlx_stream stream)
{
    steps s = {.stream = stream};
    mlx_array p[TQ_PLANES], k, v, k_codes, v_codes;
    for (size_t i = 0; i < TQ_PLANES; i++)
        p[i] = element(&s, planes, i);
    STEP(&s, k_codes,
         quern_tq_unpack(to, p[0], c->options.key_bits, c->head_dim, stream));
    STEP(&s, v_codes,
         quern_tq_unpack(to, p[3], c->options.value_bits, c->head_dim, stream));
    STEP(&s, k, quern_tq_decode_keys(to, k_codes, p[1], p[2], stream));
    STEP(&s, v,
         quern_tq_decode_values(to, v_codes, p[4], c->options.value_bits, defer,
                                stream));
    int failed = s.failed || mlx_array_set(keys, k) || mlx_array_set(values, v);
    finish(&s);
    return failed;
}

static int decode_at_once(bool *accepted, mlx_array *keys, mlx_array *values,
                          const quern_tq_cache *c, mlx_vector_array planes,
                          bool defer, mlx_stream stream)
{
    steps s = {.stream = stream};
    const quern_tq_options *o = &c->options;
    mlx_array table, signs, k = mlx_array_new(), v = mlx_array_new();
    STEP(&s, table, quern_tq_centroids(to, o->value_bits));
    STEP(&s, signs, quern_tq_signs(to, c->head_dim));
    int failed = s.failed;
    if (!failed)
        failed =
            defer ? quern_tq_try_joint_decode(accepted, &k, &v, planes, table,
                                              o->key_bits, o->value_bits,
                                              c->head_dim, true, stream)
                  : quern_tq_try_fused_eager(accepted, &k, &v, planes, table,
                                             signs, o->key_bits, o->value_bits,
                                             c->head_dim, stream);
    if (!failed && *accepted)
        failed = mlx_array_set(keys, k) || mlx_array_set(values, v);
    mlx_array_free(k);
    mlx_array_free(v);
    finish(&s);
    return failed;
}

static qn_status check_filled(const char *op, const quern_tq_cache *c)
{
    if (c->offset)
        return QN_OK;
    return qn_fail(QN_E_ARG, "[%s] The cache is empty.", op);
}

int quern_tq_cache_fetch(mlx_array *keys, mlx_array *values, bool *v_rotated,
                         const quern_tq_cache *cache, bool defer,
                         const mlx_stream s)
{
    TQ_CHECK(check_filled("tq_cache_fetch", cache));
    mlx_vector_array planes = mlx_vector_array_new();
    bool accepted = false;
    int failed = windows(&planes, cache, s);
    if (!failed && !cache->options.plane_by_plane)
        failed =
            decode_at_once(&accepted, keys, values, cache, planes, defer, s);
    if (!failed && !accepted)
        failed = decode_separately(keys, values, cache, planes, defer, s);
    mlx_vector_array_free(planes);
    if (!failed)
        *v_rotated = defer;
    return failed;
}

int quern_tq_cache_append_and_fetch(mlx_array *k, mlx_array *v, bool *v_rotated,
                                    quern_tq_cache *cache, const mlx_array keys,
                                    const mlx_array values, bool defer,
                                    const mlx_stream s)
{
    return quern_tq_cache_append(cache, keys, values, s) ||
           quern_tq_cache_fetch(k, v, v_rotated, cache, defer, s);
}

int quern_tq_cache_trim(int *dropped, quern_tq_cache *cache, int n)
{
    if (n < 0) {
        qn_fail(QN_E_ARG,
                "[tq_cache_trim] Expected 0 tokens or more, found "
                "%d.",
                n);
        return tq_report();
    }
    if (n > cache->offset)
        n = cache->offset;
    cache->offset -= n;
    for (int i = 0; cache->valid && i < cache->batch; i++)
        cache->valid[i] = cache->valid[i] > n ? cache->valid[i] - n : 0;
    *dropped = n;
    return 0;
}

int quern_tq_cache_state(mlx_vector_array *res, const quern_tq_cache *cache,
                         const mlx_stream s)
{
    if (cache->planes[0].ctx && cache->offset)
        return windows(res, cache, s);
    return mlx_vector_array_set_data(res, NULL, 0);
}

/* ---- from what there is ---- */

static qn_status read_planes(tq_plane out[TQ_PLANES], mlx_vector_array planes)
{
    const char *op = "tq_cache_restore";
    size_t count = mlx_vector_array_size(planes);
    if (count != TQ_PLANES)
        return qn_fail(QN_E_ARG, "[%s] planes: expected %d, found %zu.", op,
                       (int)TQ_PLANES, count);
    qn_status status = QN_OK;
    for (size_t i = 0; !status && i < TQ_PLANES; i++) {
        mlx_array x = mlx_array_new();
        if (mlx_vector_array_get(&x, planes, i))
            status = qn_fail(QN_E_ARG, "[%s] %s: can't be read.", op,
                             tq_plane_names[i]);
        else
            status = check_field(op, tq_plane_names[i], "rank", 4,
                                 (int)mlx_array_ndim(x));
        if (!status) {
            memcpy(out[i].shape, mlx_array_shape(x), sizeof out[i].shape);
            out[i].dtype = mlx_array_dtype(x);
        }
        mlx_array_free(x);
    }
    return status;
}

int quern_tq_cache_restore(quern_tq_cache **res,
                           const quern_tq_options *options,
                           const mlx_vector_array planes, int offset,
                           int head_dim)
{
    const char *op = "tq_cache_restore";
    tq_plane found[TQ_PLANES];
    quern_tq_cache *made;
    TQ_CHECK(check_options(op, options));
    TQ_CHECK(qn_tq_check_dim(op, head_dim));
    TQ_CHECK(read_planes(found, planes));
    TQ_CHECK(cache_new(&made, options));
    made->head_dim = head_dim;
    qn_status status = tq_check_planes(op, made, found);
    if (!status && (offset < 0 || offset > made->capacity))
        status =
            qn_fail(QN_E_ARG, "[%s] offset: expected 0 to %d tokens, found %d.",
                    op, made->capacity, offset);
    int failed = status ? tq_report() : 0;
    for (size_t i = 0; !failed && i < TQ_PLANES; i++)
        failed = mlx_vector_array_get(&made->planes[i], planes, i);
    made->offset = offset;
    if (failed)
        quern_tq_cache_free(made);
    else
        *res = made;
    return failed;
}

static bool has_elements(mlx_array x)
{
    return x.ctx && mlx_array_size(x);
}

int quern_tq_cache_from_plain(quern_tq_cache **res,
                              const quern_tq_options *options, mlx_array *keys,
                              mlx_array *values, bool late, const mlx_stream s)
{
    quern_tq_cache *made;
    TQ_CHECK(check_options("tq_cache_from_plain", options));
    if (has_elements(*keys) != has_elements(*values)) {
        qn_fail(QN_E_ARG, "[tq_cache_from_plain] Expected keys and values, "
                          "found only one of them.");
        return tq_report();
    }
    TQ_CHECK(cache_new(&made, options));
    mlx_vector_array planes = mlx_vector_array_new();
    int failed = 0;
    if (has_elements(*keys)) {
        failed = quern_tq_encode(&planes, *keys, *values, options->key_bits,
                                 options->value_bits, options->guard, s) ||
                 mlx_eval(planes);
        for (size_t i = 0; !failed && i < TQ_PLANES; i++)
            failed = mlx_vector_array_get(&made->planes[i], planes, i);
        if (!failed) {
            const int *shape = mlx_array_shape(*keys);
            made->batch = shape[0];
            made->heads = shape[1];
            made->offset = made->capacity = shape[2];
            made->head_dim = shape[3];
            made->reusable = late ? shape[2] : 0;
        }
    }
    mlx_vector_array_free(planes);
    if (failed) {
        quern_tq_cache_free(made);
        return 1;
    }
    /* The source goes, so that only one layer is held twice. */
    mlx_array_free(*keys);
    mlx_array_free(*values);
    *keys = *values = mlx_array_empty;
    *res = made;
    return 0;
}

/* ---- what it is ---- */

void quern_tq_cache_info_get(quern_tq_info *info, const quern_tq_cache *cache)
{
    memset(info, 0, sizeof *info);
    info->options = cache->options;
    info->head_dim = cache->head_dim;
    info->batch = cache->batch;
    info->kv_heads = cache->heads;
    info->offset = cache->offset;
    info->capacity = cache->capacity;
    info->minimum_reusable_offset = cache->reusable;
    info->signature = cache->signature;
    info->key = cache->key;
    for (int i = 0; i < TQ_PLANES; i++)
        if (cache->planes[i].ctx)
            info->bytes += mlx_array_nbytes(cache->planes[i]);
    if (cache->capacity)
        info->bytes_per_token = (double)info->bytes / cache->capacity;
}

int tq_valid(const quern_tq_cache *c, int row)
{
    return c->valid ? c->valid[row] : c->offset;
}

int quern_tq_cache_row_offset(const quern_tq_cache *cache, int row)
{
    return row >= 0 && row < cache->batch ? tq_valid(cache, row) : 0;
}
