/* listing.c: files of a repository, from the hub's JSON or from a folder. */
#include "select.h"

#include "base/alloc.h"
#include "base/json.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_FILES = 10000, LONGEST_NAME = 512, DEEPEST = 8 };

bool qn_hub_name_is_safe(qn_str name)
{
    if (!name.size || name.size > LONGEST_NAME)
        return false;
    size_t begin = 0;
    for (size_t i = 0; i <= name.size; i++) {
        if (i < name.size && name.data[i] != '/') {
            unsigned char c = (unsigned char)name.data[i];
            if (c < ' ' || c == 0x7f || c == '\\')
                return false;
            continue;
        }
        /* A part that is empty or leads upward. */
        qn_str part = {name.data + begin, i - begin};
        if (!part.size || qn_str_is(part, ".") || qn_str_is(part, ".."))
            return false;
        begin = i + 1;
    }
    return true;
}

bool qn_hub_hash_is_good(qn_str hash)
{
    if (hash.size != QN_SHA1_DIGITS && hash.size != QN_SHA256_DIGITS)
        return false;
    for (size_t i = 0; i < hash.size; i++)
        if (!strchr("0123456789abcdef", hash.data[i]) || !hash.data[i])
            return false;
    return true;
}

qn_hub_file *qn_listing_find(const qn_listing *listing, qn_str name)
{
    for (size_t i = 0; i < listing->count; i++)
        if (qn_str_is(name, listing->files[i].name))
            return &listing->files[i];
    return NULL;
}

/* A new file at the end; NULL when memory is out. */
static qn_hub_file *add(qn_listing *out, qn_arena *arena, qn_str name)
{
    if (out->count == out->capacity) {
        size_t capacity = out->capacity ? out->capacity * 2 : 32;
        qn_hub_file *more = qn_arena_alloc(arena, capacity * sizeof *more);
        if (!more)
            return NULL;
        if (out->count)
            memcpy(more, out->files, out->count * sizeof *more);
        out->files = more;
        out->capacity = capacity;
    }
    char *text = qn_hub_text(arena, "%.*s", (int)name.size, name.data);
    if (!text)
        return NULL;
    qn_hub_file *file = &out->files[out->count++];
    *file = (qn_hub_file){.name = text};
    return file;
}

/* ---- JSON ---- */

static void set_size(qn_hub_file *file, const qn_json *value)
{
    int64_t size;
    if (!qn_json_as_int(value, &size) || size < 0)
        return;
    file->size = (uint64_t)size;
    file->sized = true;
}

static void set_hash(qn_hub_file *file, const qn_json *value)
{
    qn_str hash;
    if (!qn_json_as_str(value, &hash))
        return;
    /* The older spelling of large files. */
    if (hash.size > 7 && !memcmp(hash.data, "sha256:", 7))
        hash = (qn_str){hash.data + 7, hash.size - 7};
    if (!qn_hub_hash_is_good(hash))
        return;
    memcpy(file->hash, hash.data, hash.size);
    file->hash[hash.size] = '\0';
}

/* What an entry says: the pointer file of a large one has a size and a digest
 * of its own, and `lfs` has those of the contents. */
static void set_facts(qn_hub_file *file, const qn_json *entry,
                      const char *small_key, const char *large_key)
{
    const qn_json *large = qn_json_get(entry, "lfs");
    set_size(file, qn_json_get(entry, "size"));
    if (large && large->type == QN_JSON_T_OBJECT) {
        set_size(file, qn_json_get(large, "size"));
        set_hash(file, qn_json_get(large, large_key));
    } else {
        set_hash(file, qn_json_get(entry, small_key));
    }
}

static qn_status unsafe_name(qn_str name)
{
    return qn_fail(QN_E_FORMAT,
                   "the hub lists a file named '%.*s': expected a path inside "
                   "the repository",
                   (int)(name.size < 200 ? name.size : 200), name.data);
}

static qn_status read_siblings(qn_listing *out, qn_arena *arena,
                               const qn_json *list)
{
    for (uint32_t i = 0; list && i < list->count; i++) {
        const qn_json *entry = &list->items[i];
        qn_str name;
        if (!qn_json_as_str(qn_json_get(entry, "rfilename"), &name))
            return qn_fail(QN_E_FORMAT, "the hub lists a file without a name");
        if (!qn_hub_name_is_safe(name))
            return unsafe_name(name);
        if (qn_listing_find(out, name))
            continue;
        qn_hub_file *file = add(out, arena, name);
        if (!file)
            return QN_E_NOMEM;
        set_facts(file, entry, "blobId", "sha256");
    }
    return QN_OK;
}

static qn_status read_info(qn_listing *out, qn_arena *arena,
                           const qn_json *root)
{
    qn_str id, commit;
    const qn_json *list = qn_json_get(root, "siblings");
    if (!qn_json_as_str(qn_json_get(root, "sha"), &commit) ||
        commit.size != QN_SHA1_DIGITS || !qn_hub_hash_is_good(commit))
        return qn_fail(QN_E_FORMAT,
                       "the hub's answer has no commit: expected 40 digits "
                       "under 'sha'");
    if (!list || list->type != QN_JSON_T_ARRAY || list->count > MOST_FILES)
        return qn_fail(QN_E_FORMAT, "the hub's answer has no list of files "
                                    "under 'siblings'");
    if (!qn_json_as_str(qn_json_get(root, "id"), &id))
        id = (qn_str){"", 0};
    out->commit = qn_hub_text(arena, "%.*s", (int)commit.size, commit.data);
    out->id =
        qn_hub_text(arena, "%.*s", (int)(id.size < 200 ? id.size : 0), id.data);
    if (!out->commit || !out->id)
        return QN_E_NOMEM;
    return read_siblings(out, arena, list);
}

static qn_status read_tree(qn_listing *out, qn_arena *arena,
                           const qn_json *root)
{
    if (root->type != QN_JSON_T_ARRAY || root->count > MOST_FILES)
        return qn_fail(QN_E_FORMAT,
                       "the hub's answer is no list of files, but %s",
                       qn_json_type_name(root->type));
    for (uint32_t i = 0; i < root->count; i++) {
        const qn_json *entry = &root->items[i];
        qn_str name, type;
        if (!qn_json_as_str(qn_json_get(entry, "type"), &type) ||
            !qn_str_is(type, "file"))
            continue;
        if (!qn_json_as_str(qn_json_get(entry, "path"), &name))
            return qn_fail(QN_E_FORMAT, "the hub lists a file without a path");
        if (!qn_hub_name_is_safe(name))
            return unsafe_name(name);
        qn_hub_file *file = qn_listing_find(out, name);
        if (!file)
            file = add(out, arena, name);
        if (!file)
            return QN_E_NOMEM;
        set_facts(file, entry, "oid", "oid");
    }
    return QN_OK;
}

static qn_status read_json(qn_listing *out, qn_arena *arena, qn_str json,
                           qn_status (*read)(qn_listing *, qn_arena *,
                                             const qn_json *))
{
    qn_json_doc *doc = NULL;
    qn_status status = qn_json_parse(&doc, json, QN_JSON_ALLOW_DUPLICATE_KEYS);
    if (!status)
        status = read(out, arena, qn_json_root(doc));
    qn_json_doc_free(doc);
    return status;
}

qn_status qn_listing_read(qn_listing *out, qn_arena *arena, qn_str json)
{
    return read_json(out, arena, json, read_info);
}

qn_status qn_listing_read_tree(qn_listing *out, qn_arena *arena, qn_str json)
{
    return read_json(out, arena, json, read_tree);
}

/* ---- a folder ---- */

/* `prefix`: the folder's name inside the repository with a slash, or "". */
static qn_status walk(qn_listing *out, qn_arena *arena, const char *path,
                      const char *prefix, int depth)
{
    DIR *dir = opendir(path);
    qn_status status = QN_OK;
    for (struct dirent *entry; dir && !status && (entry = readdir(dir));) {
        if (entry->d_name[0] == '.')
            continue;
        struct stat info;
        char *full = qn_hub_text(arena, "%s/%s", path, entry->d_name);
        char *name = qn_hub_text(arena, "%s%s", prefix, entry->d_name);
        char *below = qn_hub_text(arena, "%s/", name ? name : "");
        if (!full || !name || !below) {
            status = QN_E_NOMEM;
            break;
        }
        bool there = !stat(full, &info);
        if (there && S_ISDIR(info.st_mode)) {
            if (depth < DEEPEST)
                status = walk(out, arena, full, below, depth + 1);
            continue;
        }
        qn_hub_file *file = add(out, arena, qn_str_of(name));
        if (!file)
            status = QN_E_NOMEM;
        else if (there && S_ISREG(info.st_mode)) {
            file->size = (uint64_t)info.st_size;
            file->sized = true;
        }
    }
    if (dir)
        closedir(dir);
    return status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const qn_hub_file *)a)->name,
                  ((const qn_hub_file *)b)->name);
}

qn_status qn_listing_of_folder(qn_listing *out, qn_arena *arena,
                               const char *path)
{
    qn_status status = walk(out, arena, path, "", 0);
    /* Folders list their files in any order. */
    if (!status && out->count)
        qsort(out->files, out->count, sizeof *out->files, by_name);
    return status;
}
