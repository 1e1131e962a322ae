/* get.c: fetching the files of a model.
 *
 * The order: what the hub lists, what of it a load needs, what is there
 * already, whether the rest fits on the disk; then, under the lock of the
 * model, the small files, a look at them, and the weights.  A file takes its
 * name when its digest is right, and refs/<revision> is written when all files
 * are there, so that whatever ends the process leaves nothing wrong behind. */
#include "ask.h"
#include "fetch.h"
#include "lock.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/units.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

/* Free bytes that a download leaves on the disk. */
static const uint64_t reserve = 1 << 30;

/* A file that is to come. */
typedef struct item {
    struct get *get;
    const qn_hub_file *file;
    qn_fetch fetch;
    qn_transfer transfer;
    char *url;
    const char *link; /* its name in the snapshot, or where it lies plainly */
    bool cached, running, finished;
    int attempts;
    bool plain;       /* no Range: the server could not */
    bool stale;       /* what is there is of another file */
    uint64_t advance; /* where the last count of attempts began */
    double not_before;
} item;

typedef struct get {
    qn_arena *arena;
    const qn_hub *hub;
    const quern_get_options *options;
    quern_get_result *result;
    qn_hub_check check;
    qn_ref ref;
    const char *revision;
    qn_patience patience;
    qn_http *http;
    qn_listing listing;
    char *repo;         /* the model's folder of the cache */
    const char *folder; /* where the files get their names */
    item *items;
    size_t count;
    int lock;
    quern_get_progress progress;
    uint64_t come; /* bytes from the network */
} get;

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- to the caller ---- */

static qn_status tick(void *data)
{
    get *g = data;
    if (!g->options->progress ||
        g->options->progress(g->options->data, &g->progress))
        return QN_OK;
    return qn_fail(QN_E_CANCELLED, "stopped; what has come is kept");
}

static void say(void *data, const char *text)
{
    get *g = data;
    char line[QN_ERROR_SIZE + 32];
    snprintf(line, sizeof line, "trying again: %s", text);
    if (g->options->log)
        g->options->log(g->options->data, QUERN_LOG_INFO, line);
}

static void count_bytes(get *g)
{
    uint64_t done = 0;
    for (size_t i = 0; i < g->count; i++)
        done += g->items[i].cached || g->items[i].finished
                    ? g->items[i].file->size
                    : g->items[i].fetch.done;
    g->progress.done = done;
}

static qn_status tell(get *g, const item *it, bool done)
{
    g->progress.file = it->file->name;
    g->progress.file_done = done;
    count_bytes(g);
    qn_status status = tick(g);
    g->progress.file_done = false;
    return status;
}

/* ---- the plan ---- */

static qn_status find_candidates(get *g, const bool *marks)
{
    quern_get_file *list =
        qn_arena_alloc(g->arena, (g->listing.count + 1) * sizeof *list);
    if (!list)
        return QN_E_NOMEM;
    size_t count = 0;
    for (size_t i = 0; i < g->listing.count; i++) {
        if (!marks[i])
            continue;
        list[count] = (quern_get_file){.name = g->listing.files[i].name};
        for (size_t k = 0; k < g->listing.count; k++)
            if (qn_gguf_same(&g->listing.files[k], &g->listing.files[i]))
                list[count].size += g->listing.files[k].size;
        count++;
    }
    g->result->candidates = list;
    g->result->candidate_count = count;
    return QN_OK;
}

/* The chosen ones come first in `marks`. */
static qn_status choose(get *g, bool *marks)
{
    const quern_get_options *o = g->options;
    bool *candidates = marks + g->listing.count;
    qn_selection selection = {
        .selector = o->quant ? o->quant : g->ref.selector,
        .include = o->include,
        .include_count = o->include_count,
        .exclude = o->exclude,
        .exclude_count = o->exclude_count,
    };
    qn_status status = qn_select(marks, candidates, &g->listing, &selection);
    if (status != QN_E_ARG)
        return status;
    status = find_candidates(g, candidates);
    return status ? status
                  : qn_fail(QN_E_ARG,
                            "'%s' has %zu models; choose one with --quant or "
                            "%s:NAME",
                            g->ref.id, g->result->candidate_count, g->ref.id);
}

static const char *join(get *g, const char *a, const char *b)
{
    return qn_hub_text(g->arena, "%s/%s", a, b);
}

static qn_status plan_item(get *g, item *it, qn_hub_file *file)
{
    const quern_get_options *o = g->options;
    qn_buf url = QN_BUF_INIT;
    *it = (item){.get = g, .file = file};
    it->link = join(g, g->folder, file->name);
    qn_ask_url(&url, g->hub, &g->listing, file->name);
    it->url =
        qn_buf_status(&url) ? NULL : qn_hub_text(g->arena, "%s", url.data);
    qn_buf_free(&url);
    it->fetch = (qn_fetch){
        .name = file->name,
        .size = file->size,
        .hash = file->hash,
        .verify = !o->no_verify,
        .tick = tick,
        .tick_data = g,
        .fd = -1,
    };
    it->fetch.partial = o->dir
                            ? qn_hub_text(g->arena, "%s/.quern/%s.incomplete",
                                          o->dir, file->hash)
                            : qn_hub_text(g->arena, "%s/blobs/%s.incomplete",
                                          g->repo, file->hash);
    it->fetch.target =
        o->dir ? it->link
               : qn_hub_text(g->arena, "%s/blobs/%s", g->repo, file->hash);
    if (!it->link || !it->url || !it->fetch.partial || !it->fetch.target)
        return QN_E_NOMEM;
    return QN_OK;
}

static bool is_weights(const item *it)
{
    return qn_hub_is_weights(it->file->name);
}

static int small_first(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (is_weights(x) != is_weights(y))
        return is_weights(x) - is_weights(y);
    return strcmp(x->file->name, y->file->name);
}

static qn_status plan(get *g)
{
    bool *marks = qn_arena_alloc(g->arena, 2 * g->listing.count + 1);
    qn_status status = marks ? choose(g, marks) : QN_E_NOMEM;
    if (status)
        return status;
    g->items =
        qn_arena_alloc(g->arena, (g->listing.count + 1) * sizeof *g->items);
    if (!g->items)
        return QN_E_NOMEM;
    for (size_t i = 0; !status && i < g->listing.count; i++) {
        qn_hub_file *file = &g->listing.files[i];
        if (!marks[i])
            continue;
        if (!file->sized || !file->hash[0])
            status =
                qn_ask_file(file, g->http, g->hub, &g->listing, &g->patience);
        if (!status)
            status = plan_item(g, &g->items[g->count++], file);
    }
    if (!status)
        qsort(g->items, g->count, sizeof *g->items, small_first);
    return status;
}

/* What is there.  A file of the cache has the name of its digest and its whole
 * size; one in a folder of the user's is whatever it is, and is hashed. */
static qn_status look(get *g)
{
    for (size_t i = 0; i < g->count; i++) {
        item *it = &g->items[i];
        struct stat info;
        if (g->options->dir) {
            it->cached = qn_fetch_is_there(&it->fetch, it->link);
        } else {
            qn_fetch unread = it->fetch;
            unread.verify = false;
            it->cached = qn_fetch_is_there(&unread, it->fetch.target) ||
                         qn_fetch_is_there(&unread, it->link);
        }
        if (!it->cached && !stat(it->fetch.partial, &info) &&
            (uint64_t)info.st_size <= it->file->size)
            it->fetch.done = (uint64_t)info.st_size;
        qn_status status = tick(g);
        if (status)
            return status;
    }
    return QN_OK;
}

static qn_status fill_result(get *g)
{
    quern_get_result *r = g->result;
    quern_get_file *files =
        qn_arena_alloc(g->arena, (g->count + 1) * sizeof *files);
    const char *main_file = NULL;
    r->bytes = r->bytes_cached = 0;
    r->repo = qn_hub_text(g->arena, "%s", g->ref.id);
    r->revision = g->listing.commit;
    if (!files || !r->repo)
        return QN_E_NOMEM;
    for (size_t i = 0; i < g->count; i++) {
        const item *it = &g->items[i];
        files[i] = (quern_get_file){it->file->name, it->file->size, it->cached};
        r->bytes += it->file->size;
        r->bytes_cached += it->cached ? it->file->size : 0;
        if (!main_file && qn_gguf_is_model(it->file->name))
            main_file = it->link;
    }
    r->files = files;
    r->file_count = g->count;
    r->path = main_file ? main_file : g->folder;
    g->progress.total = r->bytes;
    return QN_OK;
}

/* ---- the disk ---- */

/* Free bytes where `path` is, or will be. */
static bool free_bytes(const char *path, uint64_t *out)
{
    struct statvfs info;
    char *at = qn_strdup(path);
    bool good = false;
    while (at && !(good = !statvfs(at, &info))) {
        char *slash = strrchr(at, '/');
        if (!slash || slash == at) {
            good = !statvfs(slash ? "/" : ".", &info);
            break;
        }
        *slash = '\0';
    }
    qn_free(at);
    if (good)
        *out = (uint64_t)info.f_bavail * info.f_frsize;
    return good;
}

static bool disk_is_ample(void)
{
#ifdef QUERN_TEST_BUILD
    return getenv("QUERN_TEST_DISK_FULL_AT") != NULL;
#else
    return false;
#endif
}

static qn_status check_space(get *g)
{
    char need[QN_SIZE_TEXT], there[QN_SIZE_TEXT], most[QN_SIZE_TEXT];
    const char *path = g->options->dir ? g->options->dir : g->hub->root;
    uint64_t missing = 0;
    for (size_t i = 0; i < g->count; i++)
        if (!g->items[i].cached)
            missing += g->items[i].file->size - g->items[i].fetch.done;
    bool known = free_bytes(path, &g->result->disk_free);
    if (g->options->max_size && missing > g->options->max_size)
        return qn_fail(QN_E_SPACE, "expected at most %s to fetch, found %s",
                       qn_size_text(most, g->options->max_size),
                       qn_size_text(need, missing));
    if (!missing || !known || disk_is_ample() ||
        (g->result->disk_free >= reserve &&
         missing <= g->result->disk_free - reserve))
        return QN_OK;
    return qn_fail(QN_E_SPACE,
                   "the disk of %s has not enough space: %s and 1 GiB in "
                   "reserve are needed, %s are free",
                   path, qn_size_text(need, missing),
                   qn_size_text(there, g->result->disk_free));
}

/* ---- the lock ---- */

static qn_status lock(get *g)
{
    const struct timespec nap = {.tv_nsec = 50000000};
    const char *path =
        g->options->dir ? join(g, g->options->dir, ".quern/lock") : NULL;
    if (g->options->dir && !path)
        return QN_E_NOMEM;
    for (;;) {
        qn_status status =
            path ? qn_lock_file(&g->lock, path)
                 : qn_lock_try(&g->lock, g->hub, g->ref.id, QN_LOCK_CHANGE);
        if (status || g->lock >= 0) {
            g->progress.waiting = false;
            return status;
        }
        if (g->options->no_wait)
            return qn_fail(QN_E_IO, "another process fetches '%s'", g->ref.id);
        g->progress.waiting = true;
        nanosleep(&nap, NULL);
        status = tick(g);
        if (status)
            return status;
    }
}

/* ---- names in the snapshot ---- */

static qn_status copy_file(const char *from, const char *to)
{
    qn_file *file = NULL;
    qn_status status = qn_file_map(&file, from);
    if (!status) {
        qn_bytes bytes = qn_file_bytes(file);
        status = qn_file_write_atomic(to, bytes.data, bytes.size);
    }
    qn_file_unref(file);
    return status;
}

static bool make_link(const char *target, const char *path)
{
#ifdef QUERN_TEST_BUILD
    if (getenv("QUERN_TEST_NO_LINKS")) {
        errno = EPERM;
        return false;
    }
#endif
    return !symlink(target, path);
}

/* A link "../../blobs/<digest>"; a copy where the file system has no links. */
static qn_status name_file(get *g, const item *it)
{
    if (g->options->dir || qn_path_exists(it->link))
        return QN_OK;
    qn_buf target = QN_BUF_INIT;
    for (const char *p = it->file->name; (p = strchr(p, '/')); p++)
        qn_buf_add_text(&target, "../");
    qn_buf_printf(&target, "../../blobs/%s", it->file->hash);
    qn_status status = qn_buf_status(&target);
    if (!status)
        status = qn_make_parents(it->link);
    if (!status) {
        unlink(it->link); /* one that led nowhere */
        if (!make_link(target.data, it->link))
            status = errno == ENOSPC ? qn_fail(QN_E_SPACE,
                                               "no space left on the disk for "
                                               "%s",
                                               it->link)
                                     : copy_file(it->fetch.target, it->link);
    }
    qn_buf_free(&target);
    return status;
}

static qn_status write_ref(get *g)
{
    if (g->options->dir || !strcmp(g->revision, g->listing.commit))
        return QN_OK;
    const char *path =
        qn_hub_text(g->arena, "%s/refs/%s", g->repo, g->revision);
    if (!path)
        return QN_E_NOMEM;
    qn_status status = qn_make_parents(path);
    return status ? status
                  : qn_file_write_atomic(path, g->listing.commit,
                                         strlen(g->listing.commit));
}

/* ---- transfers ---- */

static qn_status size_differs(const item *it, uint64_t found)
{
    return qn_fail(QN_E_INTEGRITY,
                   "%s: expected %llu bytes, the server announces %llu",
                   it->file->name, (unsigned long long)it->file->size,
                   (unsigned long long)found);
}

/* An ETag that is a digest, and another one than the listing's. */
static bool is_another(const item *it, const qn_reply *r)
{
    const char *etag = r->linked_etag[0] ? r->linked_etag
                       : r->redirected   ? ""
                                         : r->etag;
    return qn_hub_hash_is_good(qn_str_of(etag)) &&
           strlen(etag) == strlen(it->file->hash) &&
           strcmp(etag, it->file->hash) != 0;
}

static qn_status begin_item(void *data, const qn_reply *r)
{
    item *it = data;
    if (is_another(it, r)) {
        it->stale = it->fetch.done > 0;
        return qn_fail(QN_E_INTEGRITY,
                       "%s: expected the digest %s, the server has %s",
                       it->file->name, it->file->hash,
                       r->linked_etag[0] ? r->linked_etag : r->etag);
    }
    if (r->code == 206) {
        it->plain = !r->has_range || r->from != it->fetch.done;
        if (it->plain)
            return qn_fail(QN_E_NETWORK,
                           "%s: the server sends another range than was asked",
                           it->file->name);
        return r->has_total && r->total != it->file->size
                   ? size_differs(it, r->total)
                   : QN_OK;
    }
    if (r->has_length && r->length != it->file->size)
        return size_differs(it, r->length);
    /* The whole file although a part was asked for. */
    return it->fetch.done ? qn_fetch_restart(&it->fetch) : QN_OK;
}

static qn_status add_bytes(void *data, const void *bytes, size_t size)
{
    item *it = data;
    it->get->come += size;
    return qn_fetch_add(&it->fetch, bytes, size);
}

static qn_status start_item(get *g, item *it)
{
    qn_status status = QN_OK;
    if (it->fetch.fd < 0)
        status = qn_fetch_open(&it->fetch);
    if (!status && it->plain && it->fetch.done)
        status = qn_fetch_restart(&it->fetch);
    /* All bytes are there: of a process that was stopped behind the last. */
    if (status || it->fetch.done == it->file->size)
        return status;
    it->transfer = (qn_transfer){
        .url = it->url,
        .from = it->fetch.done,
        .begin = begin_item,
        .add = add_bytes,
        .data = it,
    };
    it->running = true;
    return qn_http_start(g->http, &it->transfer);
}

static qn_status finish_item(get *g, item *it)
{
    qn_status status = qn_fetch_finish(&it->fetch);
    if (!status)
        status = name_file(g, it);
    if (status)
        return status;
    it->finished = true;
    return tell(g, it, true);
}

/* A failed try; QN_OK when there is another one. */
static qn_status try_again(get *g, item *it)
{
    qn_transfer *t = &it->transfer;
    const uint64_t headway = 1 << 20;
    bool from_start =
        it->stale || it->plain || (t->reply.code == 416 && it->fetch.done > 0);
    if (it->fetch.done >= it->advance + headway) {
        it->advance = it->fetch.done;
        it->attempts = 0;
    }
    /* What is there is useless: once more without it, at once. */
    if (from_start && !it->attempts && it->fetch.fd >= 0) {
        it->stale = false;
        it->attempts++;
        return qn_fetch_restart(&it->fetch);
    }
    if (t->may_pass && it->attempts < g->options->retries) {
        it->attempts++;
        it->not_before = seconds() + qn_patience_delay(it->attempts, &t->reply);
        say(g, t->error.text);
        return QN_OK;
    }
    if (t->status == QN_E_NOTFOUND || t->status == QN_E_DENIED)
        return qn_ask_explain(t, g->hub, g->ref.id, it->file->name);
    qn_error_restore(&t->error);
    return t->status;
}

static qn_status end_transfer(get *g, item *it)
{
    qn_transfer *t = &it->transfer;
    it->running = false;
    if (!t->status && it->fetch.done < it->file->size) {
        t->may_pass = true;
        t->status = qn_fail(QN_E_NETWORK,
                            "%s: the connection ended after %llu of %llu bytes",
                            it->file->name, (unsigned long long)it->fetch.done,
                            (unsigned long long)it->file->size);
        qn_error_save(&t->error);
    }
    return t->status ? try_again(g, it) : finish_item(g, it);
}

/* Starts what may run now; *left is the number of files that are not done. */
static qn_status start_items(get *g, item *items, size_t count, size_t *left)
{
    size_t running = 0;
    *left = 0;
    for (size_t i = 0; i < count; i++)
        running += items[i].running;
    for (size_t i = 0; i < count; i++) {
        item *it = &items[i];
        if (it->cached || it->finished)
            continue;
        ++*left;
        if (it->running || running >= (size_t)g->options->jobs ||
            it->not_before > seconds())
            continue;
        qn_status status = tell(g, it, false);
        if (!status)
            status = start_item(g, it);
        if (!status && !it->running)
            status = finish_item(g, it);
        if (status)
            return status;
        running += it->running;
    }
    return QN_OK;
}

/* Fetches those of the files that are missing. */
static qn_status fetch_items(get *g, item *items, size_t count)
{
    size_t left = 0;
    qn_status status = start_items(g, items, count, &left);
    while (!status && left) {
        qn_transfer *done = NULL;
        status = qn_http_wait(g->http, 50, &done);
        if (!status && done)
            status = end_transfer(g, done->data);
        count_bytes(g);
        if (!status)
            status = tick(g);
        if (!status)
            status = start_items(g, items, count, &left);
    }
    qn_error kept;
    qn_error_save(&kept);
    for (size_t i = 0; i < count; i++) {
        qn_http_stop(g->http, &items[i].transfer);
        qn_fetch_close(&items[i].fetch);
    }
    qn_error_restore(&kept);
    return status;
}

/* ---- all of it ---- */

static qn_status name_cached(get *g)
{
    for (size_t i = 0; i < g->count; i++) {
        qn_status status =
            g->items[i].cached ? name_file(g, &g->items[i]) : QN_OK;
        if (status)
            return status;
    }
    return QN_OK;
}

static qn_status make_folders(get *g)
{
    qn_status status = QN_OK;
    for (size_t i = 0; !status && i < g->count; i++) {
        status = qn_make_parents(g->items[i].fetch.partial);
        if (!status)
            status = qn_make_parents(g->items[i].fetch.target);
    }
    return status;
}

/* Under the lock. */
static qn_status fetch_all(get *g)
{
    size_t small = 0;
    /* Whoever had the lock before has perhaps fetched it all. */
    qn_status status = look(g);
    if (!status)
        status = fill_result(g);
    if (!status)
        status = check_space(g);
    if (!status)
        status = make_folders(g);
    if (!status)
        status = name_cached(g);
    while (small < g->count && !is_weights(&g->items[small]))
        small++;
    if (!status)
        status = fetch_items(g, g->items, small);
    if (!status && g->check && !g->options->include_count)
        status = g->check(g->result->path);
    if (!status)
        status = fetch_items(g, g->items + small, g->count - small);
    return status ? status : write_ref(g);
}

/* What the cache has must do. */
static qn_status find_cached(get *g)
{
    char commit[QN_COMMIT_SIZE], *path = NULL;
    const char *revision =
        g->options->revision ? g->options->revision : g->ref.revision;
    qn_status status = qn_cache_commit(commit, g->repo, revision, g->ref.id);
    if (!status) {
        g->listing.commit = qn_hub_text(g->arena, "%s", commit);
        g->folder = qn_hub_text(g->arena, "%s/snapshots/%s", g->repo, commit);
        status = g->folder && g->listing.commit ? QN_OK : QN_E_NOMEM;
    }
    if (!status)
        status = qn_listing_of_folder(&g->listing, g->arena, g->folder);
    bool whole = !status && qn_snapshot_is_complete(&g->listing, g->folder);
    if (status == QN_E_NOMEM)
        return status;
    if (!whole)
        return qn_fail(
            QN_E_NETWORK,
            "'%s' is not wholly in the cache, and it is forbidden to "
            "ask the hub (%s)",
            g->ref.id, g->options->offline ? "--offline" : "HF_HUB_OFFLINE");
    const char *selector =
        g->options->quant ? g->options->quant : g->ref.selector;
    qn_buf text = QN_BUF_INIT;
    qn_buf_printf(&text, "hf:%s@%s%s%s", g->ref.id, commit, selector ? ":" : "",
                  selector ? selector : "");
    status = qn_buf_status(&text);
    if (!status)
        status = qn_hub_resolve(&path, g->hub, text.data);
    qn_buf_free(&text);
    if (status)
        return status;
    g->items =
        qn_arena_alloc(g->arena, (g->listing.count + 1) * sizeof *g->items);
    if (!g->items)
        status = QN_E_NOMEM;
    for (size_t i = 0; !status && i < g->listing.count; i++) {
        item *it = &g->items[g->count++];
        *it = (item){.get = g, .file = &g->listing.files[i], .cached = true};
        it->link = join(g, g->folder, it->file->name);
        it->fetch.fd = -1;
        status = it->link ? QN_OK : QN_E_NOMEM;
    }
    if (!status)
        status = fill_result(g);
    if (!status) {
        g->result->path = qn_hub_text(g->arena, "%s", path);
        status = g->result->path ? QN_OK : QN_E_NOMEM;
        free_bytes(g->hub->root, &g->result->disk_free);
    }
    qn_free(path);
    return status;
}

static qn_status ask(get *g)
{
    qn_status status = qn_http_open(&g->http, g->hub);
    if (!status)
        status = qn_ask_listing(&g->listing, g->arena, g->http, g->hub,
                                g->ref.id, g->revision, &g->patience);
    if (status)
        return status;
    g->folder = g->options->dir ? g->options->dir
                                : qn_hub_text(g->arena, "%s/snapshots/%s",
                                              g->repo, g->listing.commit);
    if (!g->folder)
        return QN_E_NOMEM;
    status = plan(g);
    if (!status)
        status = look(g);
    if (!status)
        status = fill_result(g);
    if (!status)
        status = check_space(g);
    if (status || g->options->dry_run)
        return status;
    status = lock(g);
    return status ? status : fetch_all(g);
}

static qn_status begin(get *g, const char *ref)
{
    if (qn_ref_is_path(ref) || !*ref)
        return qn_fail(QN_E_ARG, "'%s' is a path: expected org/name", ref);
    qn_status status = qn_ref_parse(&g->ref, ref);
    if (status)
        return status;
    if (!qn_ref_is_id(g->ref.id))
        return qn_fail(QN_E_ARG,
                       "'%s' is no name of a model: expected org/name of "
                       "letters, digits, '.', '_' and '-'",
                       g->ref.id);
    if (g->options->revision && g->ref.revision)
        return qn_fail(QN_E_ARG, "--revision %s and '%s' exclude each other",
                       g->options->revision, ref);
    if (g->options->quant && g->ref.selector)
        return qn_fail(QN_E_ARG, "--quant %s and '%s' exclude each other",
                       g->options->quant, ref);
    g->revision = g->options->revision ? g->options->revision
                  : g->ref.revision    ? g->ref.revision
                                       : "main";
    if (!qn_hub_name_is_safe(qn_str_of(g->revision)))
        return qn_fail(QN_E_ARG, "--revision %s: no name of a revision",
                       g->revision);
    g->repo = qn_cache_repo(g->hub, g->ref.id);
    return g->repo ? QN_OK : QN_E_NOMEM;
}

qn_status qn_hub_get(qn_arena *arena, quern_get_result *result,
                     const qn_hub *hub, const char *ref,
                     const quern_get_options *options, qn_hub_check check)
{
    get g = {
        .arena = arena,
        .hub = hub,
        .options = options,
        .result = result,
        .check = check,
        .patience = {.retries = options->retries, .tick = tick, .note = say},
        .lock = -1,
        .progress = {.file = ""},
    };
    double start = seconds();
    g.patience.data = &g;
    qn_status status = begin(&g, ref);
    if (!status)
        status = options->offline || hub->offline ? find_cached(&g) : ask(&g);
    result->bytes_downloaded = g.come;
    result->seconds = seconds() - start;
    qn_http_close(g.http);
    qn_lock_drop(g.lock);
    qn_free(g.repo);
    qn_ref_clear(&g.ref);
    return status;
}
