/* pages.c: see pages.h. */
#include "pages.h"

#include "base/alloc.h"
#include "engine.h"
#include "kinds.h"

#include <quern/ext.h>

#include <assert.h>

/* The planes of up to QN_KV_PAGE tokens in every layer that has all of its
 * tokens, one layer after the other. */
typedef struct page {
    int users, count; /* tokens */
    mlx_vector_array planes;
} page;

struct qn_kv_pages {
    int length, count;
    bool converted;
    page **page;
    /* What is kept as it was at the end: planes of the other layers. */
    mlx_vector_array rest;
    bool whole; /* there is such a thing */
};

static void drop_list(mlx_vector_array *list)
{
    if (list->ctx)
        mlx_vector_array_free(*list);
    *list = (mlx_vector_array){NULL};
}

static void drop_page(page *p)
{
    if (!p || --p->users)
        return;
    drop_list(&p->planes);
    qn_free(p);
}

void qn_kv_pages_free(qn_kv_pages *pages)
{
    if (!pages)
        return;
    for (int i = 0; pages->page && i < pages->count; i++)
        drop_page(pages->page[i]);
    drop_list(&pages->rest);
    qn_free(pages->page);
    qn_free(pages);
}

int qn_kv_pages_length(const qn_kv_pages *pages)
{
    return pages->length;
}

bool qn_kv_pages_has(const qn_kv_pages *pages, int length)
{
    return length == pages->length ||
           (length >= 0 && length < pages->length && !pages->whole);
}

/* Whether a layer's planes have all tokens, however many there are. */
static bool has_all(const qn_kv_part *part)
{
    enum { MANY = 1 << 30 };
    return part->kind->saved(part, MANY) == MANY;
}

/* ---- taking ---- */

/* Tokens first .. end of a plane [1, heads, count, n], in storage of its own.
 */
static qn_status cut(mlx_array *out, mlx_array plane, int first, int end,
                     mlx_stream s)
{
    int stop[4] = {1, mlx_array_dim(plane, 1), end, mlx_array_dim(plane, 3)};
    mlx_array part = mlx_array_new();
    qn_status status =
        qn_engine(mlx_slice(&part, plane, (int[]){0, 0, first, 0}, 4, stop, 4,
                            (int[]){1, 1, 1, 1}, 4, s));
    if (!status)
        status = qn_engine(quern_materialize(out, part, s));
    mlx_array_free(part);
    return status;
}

static qn_status append_cut(mlx_vector_array to, mlx_array plane, int first,
                            int end, mlx_stream s)
{
    mlx_array part = mlx_array_new();
    qn_status status = cut(&part, plane, first, end, s);
    if (!status)
        status = qn_engine(mlx_vector_array_append_value(to, part));
    mlx_array_free(part);
    return status;
}

/* The pages from number `from` on, without planes. */
static qn_status make_pages(qn_kv_pages *pages, int from)
{
    for (int i = from; i < pages->count; i++) {
        page *p = qn_calloc(1, sizeof *p);
        if (!p)
            return QN_E_NOMEM;
        int left = pages->length - i * QN_KV_PAGE;
        p->users = 1;
        p->count = left < QN_KV_PAGE ? left : QN_KV_PAGE;
        pages->page[i] = p;
        p->planes = mlx_vector_array_new();
        qn_status status = qn_engine_made(p->planes.ctx);
        if (status)
            return status;
    }
    return QN_OK;
}

/* The planes of a layer into pages from number `from` on, or to the rest. */
static qn_status take_layer(qn_kv_pages *pages, const qn_kv_part *part,
                            int from, mlx_stream s)
{
    const char *const *names;
    mlx_vector_array planes = {NULL};
    int count = part->kind->names(part, &names);
    bool all = has_all(part);
    qn_status status = part->kind->read(part, pages->length, &planes, s);
    for (int i = 0; i < count && !status; i++) {
        mlx_array plane = mlx_array_new();
        status = qn_engine(mlx_vector_array_get(&plane, planes, (size_t)i));
        if (!status && !all)
            status =
                qn_engine(mlx_vector_array_append_value(pages->rest, plane));
        for (int p = from; p < pages->count && all && !status; p++)
            status = append_cut(pages->page[p]->planes, plane, p * QN_KV_PAGE,
                                p * QN_KV_PAGE + pages->page[p]->count, s);
        mlx_array_free(plane);
    }
    if (planes.ctx)
        mlx_vector_array_free(planes);
    return status;
}

/* After each layer, so that the planes of one at a time are there twice. */
static qn_status eval_all(const qn_kv_pages *pages, int from)
{
    qn_status status = qn_engine(mlx_eval(pages->rest));
    for (int p = from; p < pages->count && !status; p++)
        status = qn_engine(mlx_eval(pages->page[p]->planes));
    return status;
}

static qn_status take_all(qn_kv_pages *pages, const qn_kv_cache *cache,
                          int from, mlx_stream s)
{
    qn_status status = QN_OK;
    for (int i = 0; i < cache->count && !status; i++) {
        const qn_kv_part *part = cache->parts[i];
        if (!part)
            continue;
        pages->whole = pages->whole || !has_all(part);
        status = take_layer(pages, part, from, s);
        if (!status)
            status = eval_all(pages, from);
    }
    return status;
}

qn_status qn_kv_pages_take(qn_kv_pages **out, const qn_kv_cache *cache,
                           const qn_kv_pages *base, int shared, mlx_stream s)
{
    qn_kv_pages *pages = qn_calloc(1, sizeof *pages);
    if (!pages)
        return QN_E_NOMEM;
    int length = pages->length = cache->length;
    assert(shared >= 0 && (!shared || base) && shared <= length);
    /* Floats and codes of the same tokens are different pages. */
    if (!base || base->converted != cache->converted)
        shared = 0;
    int same = shared / QN_KV_PAGE;
    pages->converted = cache->converted;
    pages->page = qn_calloc((size_t)(length / QN_KV_PAGE + 1), sizeof(page *));
    pages->rest = mlx_vector_array_new();
    qn_status status = pages->page ? QN_OK : QN_E_NOMEM;
    if (!status)
        status = qn_engine_made(pages->rest.ctx);
    if (!status)
        pages->count = (length + QN_KV_PAGE - 1) / QN_KV_PAGE;
    for (int i = 0; i < same && !status; i++) {
        pages->page[i] = base->page[i];
        pages->page[i]->users++;
    }
    if (!status)
        status = make_pages(pages, same);
    if (!status)
        status = take_all(pages, cache, same, s);
    if (status)
        qn_kv_pages_free(pages);
    else
        *out = pages;
    return status;
}

/* ---- giving ---- */

/* Plane `at` of the first `length` tokens, put together. */
static qn_status join(const qn_kv_pages *pages, size_t at, int length,
                      mlx_vector_array to, mlx_stream s)
{
    mlx_vector_array parts = mlx_vector_array_new();
    mlx_array whole = mlx_array_new();
    qn_status status = qn_engine_made(parts.ctx);
    for (int i = 0; i * QN_KV_PAGE < length && !status; i++) {
        const page *p = pages->page[i];
        int left = length - i * QN_KV_PAGE;
        mlx_array plane = mlx_array_new();
        status = qn_engine(mlx_vector_array_get(&plane, p->planes, at));
        if (!status)
            status =
                left < p->count
                    ? append_cut(parts, plane, 0, left, s)
                    : qn_engine(mlx_vector_array_append_value(parts, plane));
        mlx_array_free(plane);
    }
    if (!status)
        status = qn_engine(mlx_concatenate_axis(&whole, parts, 2, s));
    if (!status)
        status = qn_engine(mlx_vector_array_append_value(to, whole));
    mlx_array_free(whole);
    if (parts.ctx)
        mlx_vector_array_free(parts);
    return status;
}

/* Where the next layer's planes are among those of pages, and of the rest. */
typedef struct place {
    size_t paged, rest;
} place;

static qn_status give_layer(const qn_kv_pages *pages, int length,
                            qn_kv_part *part, place *at, mlx_stream s)
{
    const char *const *names;
    int count = part->kind->names(part, &names);
    bool all = has_all(part);
    mlx_vector_array planes = mlx_vector_array_new();
    qn_status status = qn_engine_made(planes.ctx);
    for (int i = 0; i < count && !status; i++) {
        mlx_array plane = mlx_array_new();
        if (all)
            status = join(pages, at->paged++, length, planes, s);
        else
            status = qn_engine(
                mlx_vector_array_get(&plane, pages->rest, at->rest++));
        if (!status && !all)
            status = qn_engine(mlx_vector_array_append_value(planes, plane));
        mlx_array_free(plane);
    }
    if (!status)
        status = part->kind->write(part, length, planes, s);
    if (planes.ctx)
        mlx_vector_array_free(planes);
    return status;
}

static qn_status eval_part(const qn_kv_part *part)
{
    mlx_vector_array list = mlx_vector_array_new();
    qn_status status = qn_engine_made(list.ctx);
    if (!status)
        status = part->kind->arrays(part, list);
    if (!status)
        status = qn_engine(mlx_eval(list));
    if (list.ctx)
        mlx_vector_array_free(list);
    return status;
}

qn_status qn_kv_pages_give(const qn_kv_pages *pages, int length,
                           qn_kv_cache *cache, mlx_stream s)
{
    assert(!cache->length);
    if (!qn_kv_pages_has(pages, length) ||
        (pages->converted && length < cache->shape.start))
        return qn_fail(QN_E_UNSUPPORTED,
                       "%d of %d tokens can't be taken from a kept sequence",
                       length, pages->length);
    qn_status status = qn_kv_cache_check(cache, length);
    if (!status && length)
        qn_kv_cache_restart(cache, pages->converted);
    place at = {0, 0};
    for (int i = 0; i < cache->count && length && !status; i++) {
        if (!cache->parts[i])
            continue;
        status = give_layer(pages, length, cache->parts[i], &at, s);
        if (!status)
            status = eval_part(cache->parts[i]);
    }
    if (status)
        qn_kv_cache_reset(cache);
    else
        cache->length = length;
    return status;
}

/* ---- sizes ---- */

static size_t list_bytes(mlx_vector_array list)
{
    size_t sum = 0;
    for (size_t i = 0; i < mlx_vector_array_size(list); i++) {
        mlx_array x = mlx_array_new();
        if (!mlx_vector_array_get(&x, list, i))
            sum += mlx_array_nbytes(x);
        mlx_array_free(x);
    }
    return sum;
}

size_t qn_kv_pages_bytes(const qn_kv_pages *pages)
{
    size_t sum = list_bytes(pages->rest);
    for (int i = 0; i < pages->count; i++)
        if (pages->page[i]->users == 1)
            sum += list_bytes(pages->page[i]->planes);
    return sum;
}
