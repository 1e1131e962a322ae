/* gc.c: what of the cache can go, and its removal.
 *
 * Only folders called models--* inside the cache are looked at, and no link is
 * followed: a link of a snapshot says by its text which file of blobs/ it
 * needs.  A model that somebody fetches or has loaded is left alone (lock.h),
 * so the plan and the removal of one model happen under both of its locks. */
#include "hub.h"
#include "lock.h"

#include "base/alloc.h"
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { DEEPEST = 16 };

typedef struct blob {
    const char *name;
    uint64_t size;
    bool kept; /* a snapshot that stays needs it */
    bool counted;
} blob;

typedef struct plan {
    qn_arena *arena;
    const qn_hub *hub;
    const quern_gc_options *options;
    quern_gc_item *items;
    size_t count, room;
    qn_status status; /* the first failure of a removal */
    qn_error error;
    /* of the model at hand */
    const char *id, *repo;
    bool in_use;
    blob *blobs;
    size_t blob_count;
} plan;

static char *join(const plan *p, const char *a, const char *b)
{
    return qn_hub_text(p->arena, "%s/%s", a, b);
}

static bool is_real_dir(const char *path)
{
    struct stat info;
    return path && !lstat(path, &info) && S_ISDIR(info.st_mode);
}

/* ---- walking ---- */

/* Calls `visit` for each entry below `path` that is no folder, and then for
 * each folder, without following links; false stops. */
static bool walk(plan *p, const char *path, int depth,
                 bool (*visit)(plan *p, const char *path,
                               const struct stat *info))
{
    DIR *dir = opendir(path);
    bool good = dir != NULL;
    for (struct dirent *entry; good && (entry = readdir(dir));) {
        struct stat info;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        const char *name = join(p, path, entry->d_name);
        if (!name || lstat(name, &info)) {
            good = false;
        } else {
            if (S_ISDIR(info.st_mode))
                good = depth < DEEPEST && walk(p, name, depth + 1, visit);
            good = good && visit(p, name, &info);
        }
    }
    if (dir)
        closedir(dir);
    return good;
}

static bool remove_entry(plan *p, const char *path, const struct stat *info)
{
    (void)p;
    return !(S_ISDIR(info->st_mode) ? rmdir(path) : unlink(path));
}

/* Removes the file, or the folder with all that is in it. */
static void remove_path(plan *p, const char *path)
{
    struct stat info;
    if (lstat(path, &info))
        return;
    bool good = !S_ISDIR(info.st_mode) || walk(p, path, 0, remove_entry);
    if ((!good || !remove_entry(p, path, &info)) && !p->status) {
        p->status =
            qn_fail(QN_E_IO, "cannot remove %s: %s", path, strerror(errno));
        qn_error_save(&p->error);
    }
}

/* ---- sizes ---- */

static uint64_t size_on_disk(const struct stat *info)
{
    return S_ISREG(info->st_mode) ? (uint64_t)info->st_size : 0;
}

static bool add_size(plan *p, const char *path, const struct stat *info)
{
    (void)path;
    p->items[p->count - 1].bytes += size_on_disk(info);
    return true;
}

static blob *find_blob(plan *p, const char *name)
{
    for (size_t i = 0; i < p->blob_count; i++)
        if (!strcmp(p->blobs[i].name, name))
            return &p->blobs[i];
    return NULL;
}

/* The file of blobs/ that a link of a snapshot leads to, or NULL. */
static blob *blob_of_link(plan *p, const char *path, const struct stat *info)
{
    static const char folder[] = "/blobs/";
    char text[1024];
    ssize_t size =
        S_ISLNK(info->st_mode) ? readlink(path, text, sizeof text - 1) : -1;
    if (size < 0)
        return NULL;
    text[size] = '\0';
    char *name = NULL;
    for (char *at = text; (at = strstr(at, folder));)
        name = at += sizeof folder - 1;
    return name ? find_blob(p, name) : NULL;
}

static bool keep_blob(plan *p, const char *path, const struct stat *info)
{
    blob *b = blob_of_link(p, path, info);
    if (b)
        b->kept = true;
    return true;
}

/* What goes with a snapshot: its own files, and blobs that nothing else
 * needs. */
static bool count_blob(plan *p, const char *path, const struct stat *info)
{
    blob *b = blob_of_link(p, path, info);
    add_size(p, path, info);
    if (b && !b->kept && !b->counted) {
        p->items[p->count - 1].bytes += b->size;
        b->counted = true;
    }
    return true;
}

static qn_status read_blobs(plan *p)
{
    char **names = NULL;
    const char *dir = join(p, p->repo, "blobs");
    p->blob_count = 0;
    if (!is_real_dir(dir))
        return dir ? QN_OK : QN_E_NOMEM;
    qn_status status =
        qn_cache_names(p->arena, &names, &p->blob_count, dir, "");
    if (status)
        return status;
    p->blobs = qn_arena_alloc(p->arena, (p->blob_count + 1) * sizeof *p->blobs);
    if (!p->blobs)
        return QN_E_NOMEM;
    for (size_t i = 0; i < p->blob_count; i++) {
        struct stat info;
        const char *path = join(p, dir, names[i]);
        if (!path)
            return QN_E_NOMEM;
        p->blobs[i] = (blob){.name = names[i]};
        if (!lstat(path, &info))
            p->blobs[i].size = size_on_disk(&info);
    }
    return QN_OK;
}

/* ---- items ---- */

static qn_status add_item(plan *p, const char *what, const char *path)
{
    if (!what || !path)
        return QN_E_NOMEM;
    if (p->count == p->room) {
        p->room = p->room ? p->room * 2 : 16;
        quern_gc_item *more = qn_arena_alloc(p->arena, p->room * sizeof *more);
        if (!more)
            return QN_E_NOMEM;
        if (p->count)
            memcpy(more, p->items, p->count * sizeof *more);
        p->items = more;
    }
    p->items[p->count++] = (quern_gc_item){
        .id = p->id, .what = what, .path = path, .in_use = p->in_use};
    return QN_OK;
}

static void finish_item(plan *p)
{
    quern_gc_item *item = &p->items[p->count - 1];
    if (p->options->dry_run || item->in_use)
        return;
    qn_status before = p->status;
    remove_path(p, item->path);
    item->removed = p->status == before;
}

static qn_status plan_model(plan *p)
{
    qn_status status = add_item(p, "model", p->repo);
    if (status)
        return status;
    walk(p, p->repo, 0, add_size);
    finish_item(p);
    return QN_OK;
}

/* Whether a row of this model's is one to keep: a name leads to it, or no name
 * leads anywhere (somebody asked for a commit). */
static bool stays(const quern_cached *rows, size_t count,
                  const quern_cached *row)
{
    bool named = false;
    for (size_t i = 0; i < count; i++)
        named = named || *rows[i].refs;
    return !named || *row->refs;
}

static qn_status plan_snapshots(plan *p, const quern_cached *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (*rows[i].revision && stays(rows, count, &rows[i]))
            walk(p, rows[i].path, 0, keep_blob);
    for (size_t i = 0; i < count; i++) {
        if (!*rows[i].revision || stays(rows, count, &rows[i]))
            continue;
        qn_status status = add_item(
            p, qn_hub_text(p->arena, "snapshot %.12s", rows[i].revision),
            rows[i].path);
        if (status)
            return status;
        walk(p, rows[i].path, 0, count_blob);
        finish_item(p);
    }
    return QN_OK;
}

static qn_status plan_blobs(plan *p)
{
    for (size_t i = 0; i < p->blob_count; i++) {
        const blob *b = &p->blobs[i];
        if (b->kept)
            continue;
        const char *path =
            qn_hub_text(p->arena, "%s/blobs/%s", p->repo, b->name);
        /* Those of a snapshot are counted there, and go with it. */
        if (b->counted && path) {
            if (!p->options->dry_run && !p->in_use)
                remove_path(p, path);
            continue;
        }
        const char *kind =
            qn_has_suffix(b->name, ".incomplete") ? "partial file" : "file";
        qn_status status =
            add_item(p, qn_hub_text(p->arena, "%s %.12s", kind, b->name), path);
        if (status)
            return status;
        p->items[p->count - 1].bytes = b->size;
        finish_item(p);
    }
    return QN_OK;
}

static bool is_kept(const plan *p)
{
    for (size_t i = 0; i < p->options->keep_count; i++)
        if (strcasestr(p->id, p->options->keep[i]))
            return true;
    return false;
}

/* `rows`: those of one model. */
static qn_status plan_locked(plan *p, const quern_cached *rows, size_t count)
{
    const quern_gc_options *o = p->options;
    int64_t last = 0;
    for (size_t i = 0; i < count; i++)
        last = rows[i].last_use > last ? rows[i].last_use : last;
    /* Of a model without files nobody knows when it was used; it is not old. */
    if (o->older_than >= 0 && last &&
        difftime(time(NULL), (time_t)last) > o->older_than)
        return plan_model(p);
    if (!o->unreferenced && o->older_than >= 0)
        return QN_OK;
    qn_status status = read_blobs(p);
    if (!status)
        status = plan_snapshots(p, rows, count);
    return status ? status : plan_blobs(p);
}

static qn_status plan_repo(plan *p, const quern_cached *rows, size_t count)
{
    int change = -1, use = -1;
    p->id = rows->id;
    char *repo = qn_cache_repo(p->hub, p->id);
    p->repo = repo ? qn_hub_text(p->arena, "%s", repo) : NULL;
    qn_free(repo);
    if (!p->repo)
        return QN_E_NOMEM;
    qn_status status = QN_OK;
    if (!is_kept(p) && is_real_dir(p->repo)) {
        status = qn_lock_try(&change, p->hub, p->id, QN_LOCK_CHANGE);
        if (!status)
            status = qn_lock_try(&use, p->hub, p->id, QN_LOCK_USE);
        p->in_use = !status && (change < 0 || use < 0);
        /* Where nothing can be written one may still look. */
        if (status == QN_E_IO && p->options->dry_run)
            status = QN_OK;
        if (!status)
            status = plan_locked(p, rows, count);
    }
    qn_lock_drop(use);
    qn_lock_drop(change);
    return status;
}

qn_status qn_cache_gc(qn_arena *arena, quern_gc_item **out, size_t *count,
                      const qn_hub *hub, const quern_gc_options *options)
{
    quern_cached *rows = NULL;
    size_t row_count = 0;
    plan p = {.arena = arena, .hub = hub, .options = options};
    qn_status status = qn_cache_list(arena, &rows, &row_count, hub);
    for (size_t i = 0, n; !status && i < row_count; i += n) {
        for (n = 1; i + n < row_count && !strcmp(rows[i].id, rows[i + n].id);)
            n++;
        status = plan_repo(&p, rows + i, n);
    }
    *out = p.items;
    *count = p.count;
    if (!status && p.status) {
        qn_error_restore(&p.error);
        status = p.status;
    }
    return status;
}
