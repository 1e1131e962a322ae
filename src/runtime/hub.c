/* hub.c: the model cache and downloads, behind quern.h.
 *
 * Each list of the header owns an arena; everything else is done in src/hub. */
#include "runtime.h"

#include "base/alloc.h"
#include "hub/hub.h"
#include "hub/lock.h"

/* A new arena in *owned. */
static qn_status begin(qn_hub *hub, qn_arena **arena)
{
    *arena = qn_calloc(1, sizeof **arena);
    return *arena ? qn_hub_open(hub) : QN_E_NOMEM;
}

static void free_owned(void *owned)
{
    qn_arena *arena = owned;
    if (arena)
        qn_arena_free(arena);
    qn_free(arena);
}

qn_status qn_resolve(char **path, const char *ref)
{
    qn_hub hub;
    qn_status status = qn_hub_open(&hub);
    if (!status)
        status = qn_hub_resolve(path, &hub, ref);
    qn_hub_close(&hub);
    return status;
}

quern_status quern_resolve(char **path, const char *ref, quern_error *error)
{
    return qn_give(error, qn_resolve(path, ref));
}

int qn_use_begin(const char *path)
{
    qn_hub hub;
    int fd = qn_hub_open(&hub) ? -1 : qn_lock_use(&hub, path);
    qn_hub_close(&hub);
    return fd;
}

void qn_use_end(int fd)
{
    qn_lock_drop(fd);
}

quern_status quern_cache_list(quern_cached_list *list, quern_error *error)
{
    qn_hub hub = {0};
    qn_arena *arena;
    quern_cached *items = NULL;
    *list = (quern_cached_list){0};
    qn_status status = begin(&hub, &arena);
    if (!status)
        status = qn_cache_list(arena, &items, &list->count, &hub);
    list->items = items;
    list->owned = arena;
    qn_hub_close(&hub);
    return qn_give(error, status);
}

void quern_cached_list_free(quern_cached_list *list)
{
    free_owned(list->owned);
    *list = (quern_cached_list){0};
}

void quern_gc_options_init(quern_gc_options *options)
{
    *options = (quern_gc_options){.older_than = -1};
}

quern_status quern_cache_gc(quern_gc_list *list,
                            const quern_gc_options *options, quern_error *error)
{
    qn_hub hub = {0};
    qn_arena *arena;
    quern_gc_item *items = NULL;
    *list = (quern_gc_list){0};
    qn_status status = begin(&hub, &arena);
    if (!status)
        status = qn_cache_gc(arena, &items, &list->count, &hub, options);
    list->items = items;
    list->owned = arena;
    qn_hub_close(&hub);
    return qn_give(error, status);
}

void quern_gc_list_free(quern_gc_list *list)
{
    free_owned(list->owned);
    *list = (quern_gc_list){0};
}
