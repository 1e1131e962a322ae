/* compile.c: compiled functions and caches of recorded graphs. */
#include "function.h"

#include "transform/compile.h"

#include "quern/ext.h"

#include "base/alloc.h"

#include <string.h>

typedef struct compiled {
    qn_closure *fun;
    uintptr_t id;
    bool owns_id; /* nobody else uses it */
    bool shapeless;
    atomic_size_t traces;
    size_t nconstants;
    uint64_t constants[];
} compiled;

static void compiled_free(void *payload)
{
    compiled *c = payload;
    if (c->owns_id)
        qn_compile_forget(c->id);
    qn_closure_unref(c->fun);
    qn_free(c);
}

static int compiled_call(mlx_vector_array *res, const mlx_vector_array in,
                         void *payload)
{
    compiled *c = payload;
    const qn_list *inputs = qn_handle_arrays(in);
    qn_closure_function f = qn_function_of(c->fun);
    qn_compiled call = {.fun = &f.shared.function,
                        .id = c->id,
                        .shapeless = c->shapeless,
                        .constants = c->constants,
                        .nconstants = c->nconstants,
                        .traces = &c->traces};
    qn_arrays outputs;
    qn_status status =
        qn_compiled_call(&outputs, &call, inputs->data, inputs->size);
    return (int)(status ? status : qn_store_lists(&res, &outputs, 1));
}

static int compile(mlx_closure *res, mlx_closure fun, bool owns_id,
                   uintptr_t id, bool shapeless, const uint64_t *constants,
                   size_t nconstants)
{
    QN_GET_CLOSURE(f, fun, mlx_closure);
    QN_GET_COUNT(count, nconstants);
    compiled *c = qn_alloc(sizeof *c + (size_t)count * sizeof *constants);
    if (!c)
        return QN_REPORT();
    *c = (compiled){.fun = qn_closure_ref(f),
                    .id = id,
                    .owns_id = owns_id,
                    .shapeless = shapeless,
                    .nconstants = nconstants};
    atomic_init(&c->traces, 0);
    if (count)
        memcpy(c->constants, constants, nconstants * sizeof *constants);
    mlx_closure made = {NULL};
    QN_CALL(qn_closure_new_own(&made.ctx, (void (*)(void))compiled_call, c,
                               compiled_free));
    QN_MOVE_CLOSURE(res, made, mlx_closure);
    return 0;
}

int mlx_compile(mlx_closure *res, const mlx_closure fun, bool shapeless)
{
    return compile(res, fun, true, qn_compile_new_id(), shapeless, NULL, 0);
}

int mlx_detail_compile(mlx_closure *res, const mlx_closure fun,
                       uintptr_t fun_id, bool shapeless,
                       const uint64_t *constants, size_t constants_num)
{
    return compile(res, fun, false, fun_id, shapeless, constants,
                   constants_num);
}

bool quern_in_shapeless_trace(void)
{
    return qn_record_shapeless();
}

size_t quern_closure_trace_count(const mlx_closure cls)
{
    QN_GET_OR(qn_closure, f, qn_handle_closure(cls.ctx), mlx_closure, 0);
    compiled *c = qn_closure_payload(f, (void (*)(void))compiled_call);
    return c ? atomic_load(&c->traces) : 0;
}

/* ---- modes ---- */

int mlx_set_compile_mode(mlx_compile_mode mode)
{
    if ((unsigned)mode > MLX_COMPILE_MODE_ENABLED) {
        qn_fail(QN_E_ARG, "[set_compile_mode] There is no mode %d.", (int)mode);
        return QN_REPORT();
    }
    qn_compile_set_mode((qn_compile_mode)mode);
    return 0;
}

int mlx_disable_compile(void)
{
    qn_compile_set_mode(QN_COMPILE_DISABLED);
    return 0;
}

int mlx_enable_compile(void)
{
    qn_compile_set_mode(QN_COMPILE_ENABLED);
    return 0;
}

/* ---- caches ---- */

typedef struct cache_box {
    qn_compile_cache *cache;
} cache_box;

static qn_compile_cache *handle_cache(mlx_compile_cache handle)
{
    return handle.ctx ? ((const cache_box *)handle.ctx)->cache : NULL;
}

mlx_compile_cache mlx_compile_cache_new(void)
{
    return (mlx_compile_cache){NULL};
}

int mlx_compile_cache_free(mlx_compile_cache cache)
{
    qn_compile_cache_unref(handle_cache(cache));
    qn_free(cache.ctx);
    return 0;
}

int mlx_detail_compile_cache(mlx_compile_cache *res)
{
    qn_compile_cache *cache;
    QN_CALL(qn_compile_cache_here(&cache));
    cache_box *box = res->ctx;
    if (!box) {
        box = qn_calloc(1, sizeof *box);
        if (!box) {
            qn_compile_cache_unref(cache);
            return QN_REPORT();
        }
        res->ctx = box;
    }
    qn_compile_cache_unref(box->cache);
    box->cache = cache;
    return 0;
}

int mlx_detail_compile_clear_cache(mlx_compile_cache cache)
{
    QN_GET_OR(qn_compile_cache, c, handle_cache(cache), mlx_compile_cache, 1);
    qn_compile_cache_clear(c);
    return 0;
}

int mlx_detail_compile_erase(mlx_compile_cache cache, uintptr_t fun_id)
{
    QN_GET_OR(qn_compile_cache, c, handle_cache(cache), mlx_compile_cache, 1);
    qn_compile_cache_erase(c, fun_id);
    return 0;
}
