/* hub.c: the model cache and downloads, behind quern.h.
 *
 * Each list of the header owns an arena; everything else is done in src/hub. */
#include "runtime.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "hub/hub.h"
#include "hub/lock.h"
#include "model/model.h"

#include <stdio.h>
#include <string.h>

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

qn_status qn_model_path(char **path, const char *ref)
{
    qn_hub hub;
    qn_status status = qn_hub_open(&hub);
    if (!status)
        status = qn_hub_resolve(path, &hub, ref);
    qn_hub_close(&hub);
    return status;
}

qn_status qn_model_heads(char **path, char **folder, const char *ref)
{
    qn_hub hub = {0};
    qn_status status = qn_hub_open(&hub);
    if (!status)
        status = qn_hub_open_network(&hub);
    if (!status)
        status = qn_hub_heads(path, folder, &hub, ref);
    qn_hub_close(&hub);
    return status;
}

qn_status qn_model_drop_heads(char **folder, const char *ref, qn_status status)
{
    qn_error error;
    size_t size = strlen(*folder);
    qn_error_save(&error);
    /* Where it was is of no use to anybody. */
    if (status && !strncmp(error.where, *folder, size)) {
        char where[sizeof error.where];
        snprintf(where, sizeof where, "%s%s", ref, error.where + size);
        memcpy(error.where, where, sizeof where);
        qn_error_restore(&error);
    }
    qn_hub_remove_heads(*folder);
    qn_free(*folder);
    *folder = NULL;
    return status;
}

quern_status quern_resolve(char **path, const char *ref, quern_error *error)
{
    return qn_give(error, qn_model_path(path, ref));
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
    qn_arena *arena = NULL;
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
    qn_arena *arena = NULL;
    quern_gc_item *items = NULL;
    *list = (quern_gc_list){0};
    qn_status status = begin(&hub, &arena);
    if (!status)
        status = qn_hub_check_root(&hub);
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

/* ---- downloads ---- */

/* The small files are there and the weights are not: a model of a family that
 * nobody can run is not worth the wait. */
static qn_status check_family(const char *path)
{
    enum { LIMIT = 16 << 20 };
    char *name = qn_path_join(path, "config.json"), *text = NULL;
    size_t size = 0;
    qn_json_doc *doc = NULL;
    qn_str type;
    qn_status status = name ? QN_OK : QN_E_NOMEM;
    if (!status && qn_path_exists(name)) {
        status = qn_file_read(&text, &size, name, LIMIT);
        if (!status)
            status =
                qn_json_parse(&doc, (qn_str){text, size}, QN_JSON_ALLOW_BOM);
    }
    const qn_json *root = doc ? qn_json_root(doc) : NULL;
    if (!status && qn_json_as_str(qn_json_get(root, "model_type"), &type))
        status = qn_model_check_family(NULL, type);
    if (status)
        status = qn_fail_where(status, "config.json");
    qn_json_doc_free(doc);
    qn_free(text);
    qn_free(name);
    return status;
}

void quern_get_options_init(quern_get_options *options)
{
    *options = (quern_get_options){.jobs = 4, .retries = 5};
}

static qn_status check_get(const quern_get_options *options)
{
    if (options->jobs < 1 || options->jobs > 32)
        return qn_fail(QN_E_ARG, "jobs: expected 1 to 32, found %d",
                       options->jobs);
    if (options->retries < 0 || options->retries > 100)
        return qn_fail(QN_E_ARG, "retries: expected 0 to 100, found %d",
                       options->retries);
    return QN_OK;
}

quern_status quern_get(quern_get_result *result, const char *ref,
                       const quern_get_options *options, quern_error *error)
{
    qn_hub hub = {0};
    qn_arena *arena = NULL;
    quern_get_options defaults;
    quern_get_options_init(&defaults);
    if (!options)
        options = &defaults;
    *result = (quern_get_result){0};
    qn_status status = check_get(options);
    if (!status)
        status = begin(&hub, &arena);
    if (!status && !options->dir)
        status = qn_hub_check_root(&hub);
    if (!status)
        status = qn_hub_open_network(&hub);
    if (!status)
        status = qn_hub_get(arena, result, &hub, ref, options, check_family);
    result->owned = arena;
    qn_hub_close(&hub);
    return qn_give(error, status);
}

void quern_get_result_free(quern_get_result *result)
{
    free_owned(result->owned);
    *result = (quern_get_result){0};
}

quern_status quern_hub_search(quern_remote_list *list, const char *query,
                              int limit, quern_error *error)
{
    qn_hub hub = {0};
    qn_arena *arena = NULL;
    quern_remote *items = NULL;
    *list = (quern_remote_list){0};
    qn_status status =
        limit < 1 || limit > 1000
            ? qn_fail(QN_E_ARG, "limit: expected 1 to 1000, found %d", limit)
            : begin(&hub, &arena);
    if (!status)
        status = qn_hub_open_network(&hub);
    if (!status)
        status = qn_hub_search(arena, &items, &list->count, &hub, query, limit);
    list->items = items;
    list->owned = arena;
    qn_hub_close(&hub);
    return qn_give(error, status);
}

void quern_remote_list_free(quern_remote_list *list)
{
    free_owned(list->owned);
    *list = (quern_remote_list){0};
}
