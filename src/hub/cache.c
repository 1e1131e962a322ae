/* cache.c: what lies in the cache. */
#include "hub.h"
#include "lock.h"
#include "select.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- names ---- */

char *qn_cache_repo(const qn_hub *hub, const char *id)
{
    qn_buf path = QN_BUF_INIT;
    qn_buf_printf(&path, "%s/models--", hub->root);
    for (const char *p = id; *p; p++)
        qn_buf_add_text(&path, *p == '/' ? "--" : (char[]){*p, '\0'});
    return qn_buf_take(&path);
}

bool qn_cache_id(char *name)
{
    if (strncmp(name, "models--", 8) != 0 || !name[8])
        return false;
    memmove(name, name + 8, strlen(name + 8) + 1);
    char *gap = strstr(name, "--");
    if (gap) {
        *gap = '/';
        memmove(gap + 1, gap + 2, strlen(gap + 2) + 1);
    }
    return true;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

qn_status qn_cache_names(qn_arena *arena, char ***out, size_t *count,
                         const char *path, const char *prefix)
{
    DIR *dir = opendir(path);
    char **list = NULL;
    size_t used = 0, room = 0;
    qn_status status = QN_OK;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 ||
            entry->d_name[0] == '.')
            continue;
        if (used == room) {
            room = room ? room * 2 : 16;
            char **more = qn_arena_alloc(arena, room * sizeof *more);
            if (!more) {
                status = QN_E_NOMEM;
                break;
            }
            if (used)
                memcpy(more, list, used * sizeof *more);
            list = more;
        }
        list[used] = qn_hub_text(arena, "%s", entry->d_name);
        if (!list[used++]) {
            status = QN_E_NOMEM;
            break;
        }
    }
    if (dir)
        closedir(dir);
    if (status)
        return status;
    if (used)
        qsort(list, used, sizeof *list, by_text);
    *out = list;
    *count = used;
    return QN_OK;
}

/* ---- revisions ---- */

/* The first line of refs/<name>; "" when there is none. */
static void read_ref(char out[QN_COMMIT_SIZE], const char *repo,
                     const char *name)
{
    qn_buf path = QN_BUF_INIT;
    char *text = NULL;
    qn_error kept;
    qn_error_save(&kept);
    *out = '\0';
    qn_buf_printf(&path, "%s/refs/%s", repo, name);
    if (!qn_buf_status(&path) && qn_path_exists(path.data) &&
        !qn_file_read(&text, NULL, path.data, QN_COMMIT_SIZE - 1)) {
        size_t size = strcspn(text, "/\r\n ");
        memcpy(out, text, size);
        out[size] = '\0';
    }
    /* It names a folder beside others, and nothing else. */
    if (strstr(out, ".."))
        *out = '\0';
    qn_free(text);
    qn_buf_free(&path);
    qn_error_restore(&kept);
}

/* A snapshot that `revision` begins, or with NULL the only one. */
static qn_status find_snapshot(char out[QN_COMMIT_SIZE], const char *repo,
                               const char *revision, const char *ref)
{
    enum { SHORTEST = 4 };
    qn_arena arena = {0};
    char *path = qn_path_join(repo, "snapshots"), **names = NULL;
    size_t count = 0, found = 0;
    qn_status status = path ? qn_cache_names(&arena, &names, &count, path,
                                             revision ? revision : "")
                            : QN_E_NOMEM;
    for (size_t i = 0; !status && i < count; i++) {
        bool exact = revision && !strcmp(names[i], revision);
        if (strlen(names[i]) >= QN_COMMIT_SIZE ||
            (revision && !exact && strlen(revision) < SHORTEST))
            continue;
        memcpy(out, names[i], strlen(names[i]) + 1);
        found++;
        if (exact) {
            found = 1;
            break;
        }
    }
    if (!status && found != 1)
        status = qn_fail(QN_E_NOTFOUND,
                         "model '%s': revision %s is not in the cache", ref,
                         revision ? revision : "main");
    qn_free(path);
    qn_arena_free(&arena);
    return status;
}

qn_status qn_cache_commit(char out[QN_COMMIT_SIZE], const char *repo,
                          const char *revision, const char *ref)
{
    char named[QN_COMMIT_SIZE];
    read_ref(named, repo, revision ? revision : "main");
    if (*named)
        return find_snapshot(out, repo, named, ref);
    return find_snapshot(out, repo, revision, ref);
}

/* ---- rows ---- */

static char *join(qn_arena *arena, const char *a, const char *b)
{
    return qn_hub_text(arena, "%s/%s", a, b);
}

/* The names below refs/ that lead to the commit, "main, v1"; `below`: the part
 * of the names that is a folder, with a slash. */
static void find_refs(qn_buf *out, qn_arena *arena, const char *repo,
                      const char *below, const char *commit, int depth)
{
    char **names = NULL;
    size_t count = 0;
    const char *dir = qn_hub_text(arena, "%s/refs/%s", repo, below);
    if (!dir || qn_cache_names(arena, &names, &count, dir, ""))
        return;
    for (size_t i = 0; i < count; i++) {
        char found[QN_COMMIT_SIZE];
        const char *name = qn_hub_text(arena, "%s%s", below, names[i]);
        const char *path = join(arena, dir, names[i]);
        const char *folder = qn_hub_text(arena, "%s/", name ? name : "");
        if (!name || !path || !folder)
            return;
        if (qn_path_is_dir(path)) {
            if (depth < 4)
                find_refs(out, arena, repo, folder, commit, depth + 1);
            continue;
        }
        read_ref(found, repo, name);
        if (!strcmp(found, commit))
            qn_buf_printf(out, "%s%s", out->size ? ", " : "", name);
    }
}

/* Every file that the index of a split model names is there. */
static bool shards_are_there(const qn_listing *files, const char *path)
{
    enum { LIMIT = 256 << 20 };
    static const char name[] = "model.safetensors.index.json";
    if (!qn_listing_find(files, qn_str_of(name)))
        return true;
    char *index = qn_path_join(path, name), *text = NULL;
    size_t size;
    qn_json_doc *doc = NULL;
    qn_error kept;
    qn_error_save(&kept);
    bool good = index && !qn_file_read(&text, &size, index, LIMIT) &&
                !qn_json_parse(&doc, (qn_str){text, size}, 0);
    const qn_json *map =
        good ? qn_json_get(qn_json_root(doc), "weight_map") : NULL;
    qn_str last = {"", 0};
    for (uint32_t i = 0; good && map && i < map->count; i++) {
        qn_str shard;
        if (!qn_json_as_str(&map->items[i], &shard) || qn_str_eq(shard, last))
            continue;
        last = shard;
        good = qn_listing_find(files, shard) != NULL;
    }
    qn_error_restore(&kept);
    qn_json_doc_free(doc);
    qn_free(text);
    qn_free(index);
    return good;
}

static bool parts_are_there(const qn_listing *files, const qn_hub_file *first)
{
    int part, parts, found = 0;
    qn_gguf_part(first->name, &part, &parts);
    for (size_t i = 0; i < files->count; i++)
        found += qn_gguf_same(&files->files[i], first);
    return found == parts;
}

bool qn_snapshot_is_complete(const qn_listing *files, const char *path)
{
    bool weights = false;
    for (size_t i = 0; i < files->count; i++) {
        const qn_hub_file *file = &files->files[i];
        int part, parts;
        if (!file->sized)
            return false;
        weights = weights || qn_hub_is_weights(file->name);
        if (qn_gguf_part(file->name, &part, &parts) &&
            !parts_are_there(files, file))
            return false;
    }
    return weights && shards_are_there(files, path);
}

/* When a file of the snapshot was read last, as far as the file system
 * notes. */
static int64_t last_read(qn_arena *arena, const qn_listing *files,
                         const char *path)
{
    int64_t last = 0;
    for (size_t i = 0; i < files->count; i++) {
        struct stat info;
        const char *name = join(arena, path, files->files[i].name);
        if (!name || stat(name, &info))
            continue;
        int64_t when = (int64_t)(info.st_atime > info.st_mtime ? info.st_atime
                                                               : info.st_mtime);
        last = when > last ? when : last;
    }
    return last;
}

static qn_status fill(qn_arena *arena, quern_cached *row, const qn_hub *hub,
                      const char *repo, const char *id, const char *commit)
{
    qn_buf refs = QN_BUF_INIT;
    qn_listing files = {0};
    const char *path =
        *commit ? qn_hub_text(arena, "%s/snapshots/%s", repo, commit) : repo;
    qn_status status = path ? QN_OK : QN_E_NOMEM;
    *row = (quern_cached){.id = id, .revision = commit, .path = path};
    if (!status && *commit) {
        status = qn_listing_of_folder(&files, arena, path);
        find_refs(&refs, arena, repo, "", commit, 0);
    }
    for (size_t i = 0; i < files.count; i++)
        row->bytes += files.files[i].size;
    if (!status)
        status = qn_buf_status(&refs);
    if (!status) {
        row->refs = qn_hub_text(arena, "%s", qn_buf_str(&refs).data);
        row->complete = *commit && qn_snapshot_is_complete(&files, path);
        row->last_use = qn_lock_last_use(hub, id);
        if (!row->last_use)
            row->last_use = last_read(arena, &files, path);
        status = row->refs ? QN_OK : QN_E_NOMEM;
    }
    qn_buf_free(&refs);
    return status;
}

/* The rows of one repository, one for each snapshot, behind the first *count of
 * `rows`, which has room. */
static qn_status add_repo(qn_arena *arena, quern_cached *rows, size_t *count,
                          const qn_hub *hub, const char *name, char **commits,
                          size_t commit_count)
{
    char *id = qn_hub_text(arena, "%s", name);
    char *repo = join(arena, hub->root, name);
    if (!id || !repo)
        return QN_E_NOMEM;
    qn_cache_id(id);
    static char none[] = "";
    char *only[] = {none};
    if (!commit_count) {
        commits = only;
        commit_count = 1;
    }
    for (size_t i = 0; i < commit_count; i++) {
        qn_status status =
            fill(arena, &rows[(*count)++], hub, repo, id, commits[i]);
        if (status)
            return status;
    }
    return QN_OK;
}

qn_status qn_cache_list(qn_arena *arena, quern_cached **out, size_t *count,
                        const qn_hub *hub)
{
    char **names = NULL;
    size_t name_count = 0, room = 0, used = 0;
    qn_status status = qn_hub_check_root(hub);
    if (!status)
        status =
            qn_cache_names(arena, &names, &name_count, hub->root, "models--");
    if (status)
        return status;
    char ***commits = qn_arena_alloc(arena, (name_count + 1) * sizeof *commits);
    size_t *counts = qn_arena_alloc(arena, (name_count + 1) * sizeof *counts);
    if (!commits || !counts)
        return QN_E_NOMEM;
    for (size_t i = 0; i < name_count; i++) {
        const char *dir =
            qn_hub_text(arena, "%s/%s/snapshots", hub->root, names[i]);
        commits[i] = NULL;
        counts[i] = 0;
        status = dir ? qn_cache_names(arena, &commits[i], &counts[i], dir, "")
                     : QN_E_NOMEM;
        if (status)
            return status;
        room += counts[i] ? counts[i] : 1;
    }
    quern_cached *rows = qn_arena_alloc(arena, (room + 1) * sizeof *rows);
    if (!rows)
        return QN_E_NOMEM;
    for (size_t i = 0; i < name_count && !status; i++)
        status =
            add_repo(arena, rows, &used, hub, names[i], commits[i], counts[i]);
    if (status)
        return status;
    *out = rows;
    *count = used;
    return QN_OK;
}
