/* cache.c: the parts of a cache and the step they share.  See cache.h. */
#include "cache.h"

#include "base/alloc.h"
#include "engine.h"
#include "kinds.h"

#include <assert.h>
#include <limits.h>

const qn_kv_layer *qn_kv_layer_of(const qn_kv_shape *shape, int layer)
{
    return shape->layer ? &shape->layer[layer] : &shape->every;
}

const qn_kv_scheme *qn_kv_layer_scheme(const qn_kv_cache *cache, int layer)
{
    return cache->converted ? &qn_kv_layer_of(&cache->shape, layer)->scheme
                            : &cache->floats;
}

qn_status qn_kv_shape_check(const qn_kv_shape *shape)
{
    for (int i = 0; i < shape->layers; i++) {
        const qn_kv_layer *l = qn_kv_layer_of(shape, i);
        if (l->window < 0 || l->keep < 0 || l->keep > QN_KV_MOST_KEPT ||
            (l->keep && !l->window))
            return qn_fail(QN_E_ARG,
                           "KV cache: layer %d: expected a window and at most "
                           "%d tokens to keep beside it, found %d and %d",
                           i, QN_KV_MOST_KEPT, l->window, l->keep);
        if (l->kv_heads && l->recurrence.channels)
            return qn_fail(QN_E_ARG,
                           "KV cache: layer %d has both keys and a state", i);
    }
    return QN_OK;
}

/* The part of layer `layer`, NULL for one that stores nothing; false when
 * memory is out. */
static bool make_part(const qn_kv_cache *cache, int layer, qn_kv_part **out)
{
    const qn_kv_shape *shape = &cache->shape;
    const qn_kv_layer *l = qn_kv_layer_of(shape, layer);
    *out = NULL;
    if (l->kv_heads)
        *out = qn_kv_tokens_new(l, qn_kv_layer_scheme(cache, layer),
                                shape->step, shape->limit);
    else if (l->recurrence.channels)
        *out = qn_kv_recurrent_new(&l->recurrence);
    else
        return true;
    return *out;
}

/* A cache whose parts are not there yet. */
static qn_kv_cache *new_cache(const qn_kv_shape *shape)
{
    qn_kv_cache *cache = qn_calloc(1, sizeof *cache);
    if (!cache)
        return NULL;
    cache->shape = *shape;
    cache->floats.dtype = shape->floats;
    cache->converted = !shape->start;
    cache->admitted = shape->limit;
    cache->parts = qn_calloc((size_t)shape->layers, sizeof(qn_kv_part *));
    if (cache->parts)
        return cache;
    qn_kv_cache_free(cache);
    return NULL;
}

qn_status qn_kv_cache_new(qn_kv_cache **out, const qn_kv_shape *shape)
{
    qn_kv_cache *cache = new_cache(shape);
    if (!cache)
        return QN_E_NOMEM;
    for (; cache->count < shape->layers; cache->count++)
        if (!make_part(cache, cache->count, &cache->parts[cache->count])) {
            qn_kv_cache_free(cache);
            return QN_E_NOMEM;
        }
    *out = cache;
    return QN_OK;
}

qn_status qn_kv_cache_clone(qn_kv_cache **out, const qn_kv_cache *from)
{
    qn_kv_cache *cache = new_cache(&from->shape);
    if (!cache)
        return QN_E_NOMEM;
    cache->length = from->length;
    cache->admitted = from->admitted;
    cache->budget = from->budget;
    cache->converted = from->converted;
    for (; cache->count < from->count; cache->count++) {
        const qn_kv_part *part = from->parts[cache->count];
        if (!part)
            continue;
        cache->parts[cache->count] = part->kind->clone(part);
        if (!cache->parts[cache->count]) {
            qn_kv_cache_free(cache);
            return QN_E_NOMEM;
        }
    }
    *out = cache;
    return QN_OK;
}

void qn_kv_cache_free(qn_kv_cache *cache)
{
    if (!cache)
        return;
    for (int i = 0; i < cache->count; i++)
        if (cache->parts[i])
            cache->parts[i]->kind->free(cache->parts[i]);
    qn_free(cache->parts);
    qn_free(cache);
}

void qn_kv_cache_set_budget(qn_kv_cache *cache, int tokens)
{
    cache->budget = tokens;
}

int qn_kv_cache_budget(const qn_kv_cache *cache)
{
    return cache->budget;
}

int qn_kv_cache_length(const qn_kv_cache *cache)
{
    return cache->length;
}

void qn_kv_cache_expect(qn_kv_cache *cache, int length)
{
    assert(length >= 0 && length <= cache->shape.limit);
    cache->expected = length;
}

void qn_kv_cache_admit(qn_kv_cache *cache, int tokens)
{
    assert(tokens >= 0);
    cache->admitted = tokens < cache->shape.limit ? tokens : cache->shape.limit;
}

qn_status qn_kv_cache_check(const qn_kv_cache *cache, int count)
{
    if (count <= cache->admitted - cache->length)
        return QN_OK;
    return qn_fail(QN_E_NOMEM,
                   "the KV cache has room for %d tokens, asked for %lld",
                   cache->admitted, (long long)cache->length + count);
}

void qn_kv_cache_advance(qn_kv_cache *cache, int count)
{
    assert(count >= 0 && count <= cache->shape.limit - cache->length);
    assert(count <= qn_kv_cache_room(cache));
    cache->length += count;
}

int qn_kv_cache_room(const qn_kv_cache *cache)
{
    return cache->converted ? INT_MAX : cache->shape.start - cache->length;
}

qn_status qn_kv_cache_settle(qn_kv_cache *cache, mlx_stream s)
{
    if (cache->converted || cache->length < cache->shape.start)
        return QN_OK;
    qn_status status = QN_OK;
    cache->converted = true;
    for (int i = 0; i < cache->count && !status; i++) {
        qn_kv_part *part = cache->parts[i];
        const qn_kv_scheme *scheme = qn_kv_layer_scheme(cache, i);
        if (part && part->kind->scheme &&
            !qn_kv_scheme_same(scheme, part->kind->scheme(part)))
            status = part->kind->convert(part, cache->length, scheme, s);
    }
    return status;
}

bool qn_kv_cache_can_trim(const qn_kv_cache *cache, int length)
{
    assert(length >= 0 && length <= cache->length);
    if (!length || length == cache->length)
        return true;
    if (cache->converted && length < cache->shape.start)
        return false;
    for (int i = 0; i < cache->count; i++) {
        const qn_kv_part *part = cache->parts[i];
        if (part && !part->kind->can_trim(part, cache->length, length))
            return false;
    }
    return true;
}

bool qn_kv_cache_trim(qn_kv_cache *cache, int length)
{
    if (!qn_kv_cache_can_trim(cache, length))
        return false;
    if (length)
        cache->length = length;
    else
        qn_kv_cache_reset(cache);
    return true;
}

void qn_kv_cache_restart(qn_kv_cache *cache, bool converted)
{
    cache->converted = converted;
    for (int i = 0; i < cache->count; i++)
        if (cache->parts[i])
            cache->parts[i]->kind->reset(cache->parts[i],
                                         qn_kv_layer_scheme(cache, i));
    cache->length = cache->expected = 0;
}

void qn_kv_cache_reset(qn_kv_cache *cache)
{
    qn_kv_cache_restart(cache, !cache->shape.start);
}

/* Of one token in one layer. */
static size_t token_bytes(const qn_kv_layer *l)
{
    return l->kv_heads ? qn_kv_scheme_bytes(&l->scheme, l->head_dim) *
                             (size_t)l->kv_heads
                       : 0;
}

size_t qn_kv_token_bytes(const qn_kv_shape *shape)
{
    size_t sum = 0;
    for (int i = 0; i < shape->layers; i++)
        sum += token_bytes(qn_kv_layer_of(shape, i));
    return sum;
}

static uint64_t state_bytes(const qn_kv_layer *l)
{
    const qn_kv_recurrence *r = &l->recurrence;
    return sizeof(float) *
           ((uint64_t)r->taps * (uint64_t)r->channels +
            (uint64_t)r->heads * (uint64_t)r->value_dim * (uint64_t)r->key_dim);
}

uint64_t qn_kv_bytes(const qn_kv_shape *shape, int64_t tokens)
{
    uint64_t sum = 0;
    for (int i = 0; i < shape->layers; i++) {
        const qn_kv_layer *l = qn_kv_layer_of(shape, i);
        int64_t most = l->window ? (int64_t)l->window + l->keep : tokens;
        sum += (uint64_t)token_bytes(l) *
               (uint64_t)(tokens < most ? tokens : most);
        sum += state_bytes(l);
    }
    return sum;
}

/* Storage grows by whole steps, but not past the limit, and in whole blocks. */
static int64_t room_for(const qn_kv_shape *shape, const qn_kv_layer *l,
                        int64_t tokens, int chunk)
{
    enum { BLOCK = 128 };
    int64_t step = shape->step > 0 ? shape->step : 1;
    int64_t room = (tokens + step - 1) / step * step;
    int64_t limit = shape->limit > tokens ? shape->limit : tokens;
    room = room < limit ? room : limit;
    room = (room + BLOCK - 1) / BLOCK * BLOCK;
    qn_kv_window window = {l->window, l->keep};
    int64_t most =
        l->window ? qn_kv_window_room(&window, chunk, shape->step) : room;
    return room < most ? room : most;
}

/* Before a cache is converted its tokens may take more than in the end. */
static uint64_t layer_room_bytes(const qn_kv_shape *shape, const qn_kv_layer *l,
                                 int64_t tokens, int chunk)
{
    int64_t early = tokens < shape->start ? tokens : shape->start;
    qn_kv_layer floats = *l;
    floats.scheme = (qn_kv_scheme){.dtype = shape->floats};
    uint64_t before = early ? (uint64_t)token_bytes(&floats) *
                                  (uint64_t)room_for(shape, l, early, chunk)
                            : 0;
    if (tokens < shape->start)
        return before;
    uint64_t after =
        (uint64_t)token_bytes(l) * (uint64_t)room_for(shape, l, tokens, chunk);
    return before > after ? before : after;
}

uint64_t qn_kv_room_bytes(const qn_kv_shape *shape, int64_t tokens, int chunk)
{
    uint64_t sum = 0;
    for (int i = 0; i < shape->layers; i++) {
        const qn_kv_layer *l = qn_kv_layer_of(shape, i);
        if (tokens && l->kv_heads)
            sum += layer_room_bytes(shape, l, tokens, chunk);
        sum += state_bytes(l);
    }
    return sum;
}

qn_status qn_kv_cache_arrays(const qn_kv_cache *cache, mlx_vector_array out)
{
    qn_status status = QN_OK;
    for (int i = 0; i < cache->count && !status; i++)
        if (cache->parts[i])
            status = cache->parts[i]->kind->arrays(cache->parts[i], out);
    return status;
}

qn_status qn_kv_state_get(const qn_kv_cache *cache, int layer, mlx_array *conv,
                          mlx_array *state, mlx_stream s)
{
    assert(qn_kv_layer_of(&cache->shape, layer)->recurrence.channels);
    return qn_kv_recurrent_get(cache->parts[layer], conv, state, s);
}

qn_status qn_kv_state_set(qn_kv_cache *cache, int layer, mlx_array conv,
                          mlx_array state)
{
    assert(qn_kv_layer_of(&cache->shape, layer)->recurrence.channels);
    return qn_kv_recurrent_set(cache->parts[layer], conv, state);
}

int qn_kv_rows_total(const qn_kv_rows *rows, size_t count)
{
    int total = 0;
    for (size_t i = 0; i < count; i++)
        total += rows[i].count;
    return total;
}

/* Rows `first` .. `end` of x [1, R, width], if there is an x. */
static qn_status cut_rows(mlx_array *out, mlx_array x, int first, int end,
                          mlx_stream s)
{
    if (!x.ctx)
        return QN_OK;
    int start[3] = {0, first, 0}, step[3] = {1, 1, 1};
    int stop[3] = {1, end, mlx_array_dim(x, 2)};
    return qn_engine(mlx_slice(out, x, start, 3, stop, 3, step, 3, s));
}

/* Attention of those `shares` alone that follow one another in the step. */
static qn_status attend_run(const qn_kv_share *shares, size_t count, int first,
                            mlx_vector_array outs, const mlx_array qkv[3],
                            const qn_attention *how, mlx_stream s)
{
    mlx_array out = mlx_array_new(), rows[3];
    qn_status status = QN_OK;
    int end = first;
    for (size_t i = 0; i < count; i++)
        end += shares[i].count;
    for (int i = 0; i < 3; i++) {
        rows[i] = mlx_array_new();
        if (!status)
            status = cut_rows(&rows[i], qkv[i], first, end, s);
    }
    if (!status)
        status = shares->part->kind->attend(shares, count, &out, rows[0],
                                            rows[1], rows[2], how, s);
    if (!status)
        status = qn_engine(mlx_vector_array_append_value(outs, out));
    for (int i = 0; i < 3; i++)
        mlx_array_free(rows[i]);
    mlx_array_free(out);
    return status;
}

static bool alike(const qn_kv_share *a, const qn_kv_share *b)
{
    const qn_kv_kind *kind = a->part->kind;
    return kind == b->part->kind &&
           qn_kv_scheme_same(kind->scheme(a->part), kind->scheme(b->part));
}

/* Some sequences are converted and others not yet: stretches of equal ones are
 * computed one after the other. */
static qn_status attend_mixed(const qn_kv_share *shares, size_t count,
                              mlx_array *out, const mlx_array qkv[3],
                              const qn_attention *how, mlx_stream s)
{
    mlx_vector_array outs = mlx_vector_array_new();
    qn_status status = qn_engine_made(outs.ctx);
    int row = 0;
    for (size_t i = 0, end; i < count && !status; i = end) {
        int rows = 0;
        for (end = i; end < count && alike(&shares[i], &shares[end]); end++)
            rows += shares[end].count;
        status = attend_run(shares + i, end - i, row, outs, qkv, how, s);
        row += rows;
    }
    if (!status)
        status = qn_engine(mlx_concatenate_axis(out, outs, 1, s));
    if (outs.ctx)
        mlx_vector_array_free(outs);
    return status;
}

qn_status qn_kv_attend(const qn_kv_rows *rows, size_t count, mlx_array *out,
                       int layer, mlx_array q, mlx_array k, mlx_array v,
                       const qn_attention *how, mlx_stream s)
{
    assert(count);
    qn_kv_share one = {NULL, 0, 0, 0, 0}, *shares = &one;
    if (count > 1)
        shares = qn_calloc(count, sizeof *shares);
    if (!shares)
        return QN_E_NOMEM;
    bool mixed = false;
    for (size_t i = 0; i < count; i++) {
        const qn_kv_cache *cache = rows[i].cache;
        assert(layer >= 0 && layer < cache->count && cache->parts[layer]);
        shares[i] =
            (qn_kv_share){cache->parts[layer], cache->length, rows[i].count,
                          cache->expected, cache->admitted};
        assert(cache->parts[layer]->kind->attend);
        mixed = mixed || !alike(&shares[0], &shares[i]);
    }
    const qn_kv_kind *kind = shares->part->kind;
    qn_status status =
        mixed ? attend_mixed(shares, count, out, (mlx_array[]){q, k, v}, how, s)
              : kind->attend(shares, count, out, q, k, v, how, s);
    if (count > 1)
        qn_free(shares);
    return status;
}
