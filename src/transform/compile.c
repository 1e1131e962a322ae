/* compile.c: signatures, caches, and calls by recorded graphs.
 *
 * A graph in a cache is counted: it can be erased by another thread while its
 * own thread runs it.  QN_LOCK_COMPILE guards the lists; graphs are made and
 * given up outside of it, for that runs other people's code. */
#include "compile.h"

#include "core/lock.h"
#include "core/threadend.h"
#include "ops/dims.h"
#include "tape.h"

#include "base/alloc.h"

#include <stddef.h>
#include <string.h>

static _Atomic qn_compile_mode mode = QN_COMPILE_ENABLED;

void qn_compile_set_mode(qn_compile_mode chosen)
{
    atomic_store(&mode, chosen);
}

uintptr_t qn_compile_new_id(void)
{
    /* Beside the addresses that others use as numbers: odd. */
    static atomic_uintptr_t last;
    return atomic_fetch_add(&last, 2) + 1;
}

/* ---- signatures ---- */

typedef struct shape {
    qn_dtype dtype;
    int ndim;
    int *dim;
} shape;

typedef struct signature {
    uintptr_t id;
    bool shapeless;
    qn_stream *stream;
    size_t nconstants, ninputs;
    uint64_t *constants;
    shape *inputs;
} signature;

static bool matches(const signature *s, const qn_compiled *c,
                    qn_array *const *inputs, size_t ninputs, qn_stream *stream)
{
    if (s->id != c->id || s->shapeless != c->shapeless || s->stream != stream ||
        s->ninputs != ninputs || s->nconstants != c->nconstants)
        return false;
    for (size_t i = 0; i < s->nconstants; i++)
        if (s->constants[i] != c->constants[i])
            return false;
    for (size_t i = 0; i < ninputs; i++) {
        const shape *a = &s->inputs[i];
        const qn_array *b = inputs[i];
        if (a->dtype != b->dtype || a->ndim != b->ndim)
            return false;
        for (int k = 0; k < a->ndim && !s->shapeless; k++)
            if (a->dim[k] != b->shape[k])
                return false;
    }
    return true;
}

static void signature_free(signature *s)
{
    for (size_t i = 0; i < s->ninputs && s->inputs; i++)
        qn_free(s->inputs[i].dim);
    qn_free(s->inputs);
    qn_free(s->constants);
}

static qn_status signature_new(signature *out, const qn_compiled *c,
                               qn_array *const *inputs, size_t ninputs,
                               qn_stream *stream)
{
    signature s = {.id = c->id,
                   .shapeless = c->shapeless,
                   .stream = stream,
                   .nconstants = c->nconstants,
                   .ninputs = ninputs,
                   .constants = qn_calloc(c->nconstants, sizeof(uint64_t)),
                   .inputs = qn_calloc(ninputs, sizeof(shape))};
    bool good = s.constants && s.inputs;
    if (good && c->nconstants)
        memcpy(s.constants, c->constants, c->nconstants * sizeof(uint64_t));
    for (size_t i = 0; i < ninputs && good; i++) {
        const qn_array *x = inputs[i];
        int *dim = qn_calloc((size_t)x->ndim, sizeof *dim);
        s.inputs[i] = (shape){x->dtype, x->ndim, dim};
        good = dim != NULL;
        for (int k = 0; k < x->ndim && good; k++)
            dim[k] = x->shape[k];
    }
    if (!good) {
        signature_free(&s);
        return QN_E_NOMEM;
    }
    *out = s;
    return QN_OK;
}

/* ---- graphs ---- */

typedef struct graph {
    atomic_uint refs;
    struct graph *next;
    signature key;
    /* As recorded, without duplicates, with fused steps. */
    qn_tape plain, simple, fused;
} graph;

static void graph_unref(graph *g)
{
    if (!g || atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) != 1)
        return;
    signature_free(&g->key);
    qn_tape_free(&g->plain);
    qn_tape_free(&g->simple);
    qn_tape_free(&g->fused);
    qn_free(g);
}

/* Gives up a list of graphs that is in no cache any more. */
static void graphs_unref(graph *list)
{
    while (list) {
        graph *next = list->next;
        graph_unref(list);
        list = next;
    }
}

/* ---- caches ---- */

struct qn_compile_cache {
    atomic_uint refs;
    graph *graphs; /* latest first */
    qn_thread_end end;
    qn_compile_cache *next, *prev; /* of all threads' */
};

static qn_compile_cache *caches; /* under QN_LOCK_COMPILE */
static _Thread_local qn_compile_cache *here;

void qn_compile_cache_unref(qn_compile_cache *cache)
{
    if (cache &&
        atomic_fetch_sub_explicit(&cache->refs, 1, memory_order_acq_rel) == 1)
        qn_free(cache);
}

static void thread_ends(qn_thread_end *item)
{
    qn_compile_cache *cache =
        (qn_compile_cache *)((char *)item - offsetof(qn_compile_cache, end));
    qn_lock(QN_LOCK_COMPILE);
    graph *list = cache->graphs;
    cache->graphs = NULL;
    if (cache->prev)
        cache->prev->next = cache->next;
    else
        caches = cache->next;
    if (cache->next)
        cache->next->prev = cache->prev;
    qn_unlock(QN_LOCK_COMPILE);
    here = NULL;
    graphs_unref(list);
    qn_compile_cache_unref(cache);
}

static qn_status own_cache(qn_compile_cache **out)
{
    if (!here) {
        qn_compile_cache *cache = qn_calloc(1, sizeof *cache);
        if (!cache)
            return QN_E_NOMEM;
        atomic_init(&cache->refs, 1); /* the thread's */
        cache->end.run = thread_ends;
        qn_status status = qn_at_thread_end(&cache->end);
        if (status) {
            qn_free(cache);
            return status;
        }
        qn_lock(QN_LOCK_COMPILE);
        cache->next = caches;
        if (caches)
            caches->prev = cache;
        caches = cache;
        qn_unlock(QN_LOCK_COMPILE);
        here = cache;
    }
    *out = here;
    return QN_OK;
}

qn_status qn_compile_cache_here(qn_compile_cache **out)
{
    qn_status status = own_cache(out);
    if (!status)
        atomic_fetch_add_explicit(&(*out)->refs, 1, memory_order_relaxed);
    return status;
}

/* Takes the graphs of a function, or all, off a list, under the lock. */
static graph *take(graph **list, bool all, uintptr_t id, graph *taken)
{
    while (*list) {
        graph *g = *list;
        if (all || g->key.id == id) {
            *list = g->next;
            g->next = taken;
            taken = g;
        } else {
            list = &g->next;
        }
    }
    return taken;
}

void qn_compile_cache_clear(qn_compile_cache *cache)
{
    qn_lock(QN_LOCK_COMPILE);
    graph *taken = take(&cache->graphs, true, 0, NULL);
    qn_unlock(QN_LOCK_COMPILE);
    graphs_unref(taken);
}

void qn_compile_cache_erase(qn_compile_cache *cache, uintptr_t id)
{
    qn_lock(QN_LOCK_COMPILE);
    graph *taken = take(&cache->graphs, false, id, NULL);
    qn_unlock(QN_LOCK_COMPILE);
    graphs_unref(taken);
}

void qn_compile_forget(uintptr_t id)
{
    graph *taken = NULL;
    qn_lock(QN_LOCK_COMPILE);
    for (qn_compile_cache *c = caches; c; c = c->next)
        taken = take(&c->graphs, false, id, taken);
    qn_unlock(QN_LOCK_COMPILE);
    graphs_unref(taken);
}

/* A new reference, or NULL. */
static graph *find(qn_compile_cache *cache, const qn_compiled *c,
                   qn_array *const *inputs, size_t ninputs, qn_stream *stream)
{
    qn_lock(QN_LOCK_COMPILE);
    graph *g = cache->graphs;
    while (g && !matches(&g->key, c, inputs, ninputs, stream))
        g = g->next;
    if (g)
        atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
    qn_unlock(QN_LOCK_COMPILE);
    return g;
}

static void keep(qn_compile_cache *cache, graph *g)
{
    atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
    qn_lock(QN_LOCK_COMPILE);
    g->next = cache->graphs;
    cache->graphs = g;
    qn_unlock(QN_LOCK_COMPILE);
}

/* ---- recording ---- */

static qn_status make_tapes(graph *g, const qn_trace *trace)
{
    qn_status status = qn_tape_new(&g->plain, trace, true);
    if (!status)
        status = qn_tape_new(&g->simple, trace, false);
    if (status)
        return status;
    qn_tape needed = g->simple;
    status = qn_tape_simplify(&g->simple, &needed, true);
    if (status)
        return status; /* g->simple is still `needed` */
    qn_tape_free(&needed);
    return qn_tape_fuse(&g->fused, &g->simple, g->key.shapeless);
}

/* Calls the function with placeholders. */
static qn_status record(graph *g, const qn_compiled *c, qn_array *const *inputs,
                        size_t ninputs)
{
    qn_trace trace;
    atomic_fetch_add(c->traces, 1);
    qn_status status =
        qn_trace_like(&trace, c->fun, inputs, ninputs, c->shapeless);
    if (!status) {
        status = make_tapes(g, &trace);
        qn_trace_end(&trace);
    }
    return status;
}

static qn_status graph_new(graph **out, const qn_compiled *c,
                           qn_array *const *inputs, size_t ninputs,
                           qn_stream *stream)
{
    graph *g = qn_calloc(1, sizeof *g);
    if (!g)
        return QN_E_NOMEM;
    atomic_init(&g->refs, 1);
    qn_status status = signature_new(&g->key, c, inputs, ninputs, stream);
    if (!status)
        status = record(g, c, inputs, ninputs);
    if (status)
        graph_unref(g);
    else
        *out = g;
    return status;
}

/* The tape for a call: somebody who listens wants to see every operation, with
 * its rules. */
static const qn_tape *tape_for(const graph *g, qn_compile_mode chosen)
{
    if (chosen == QN_COMPILE_NO_SIMPLIFY || qn_record_listening())
        return &g->plain;
    return chosen == QN_COMPILE_NO_FUSE ? &g->simple : &g->fused;
}

qn_status qn_compiled_call(qn_arrays *out, const qn_compiled *c,
                           qn_array *const *inputs, size_t ninputs)
{
    qn_compile_mode chosen = atomic_load(&mode);
    if (chosen == QN_COMPILE_DISABLED)
        return c->fun->call(c->fun, out, inputs, ninputs);
    qn_compile_cache *cache;
    qn_stream *stream;
    qn_status status = own_cache(&cache);
    if (!status)
        status = qn_stream_default(&stream, qn_device_default());
    if (status)
        return status;
    graph *g = find(cache, c, inputs, ninputs, stream);
    bool fresh = !g;
    if (fresh)
        status = graph_new(&g, c, inputs, ninputs, stream);
    if (status)
        return status;
    status = qn_tape_run(out, tape_for(g, chosen), inputs, c->shapeless);
    /* A graph that can't be run is not kept. */
    if (fresh && !status)
        keep(cache, g);
    graph_unref(g);
    return status;
}
