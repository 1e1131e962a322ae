/* ref.c: what a model reference stands for.
 *
 * In this order: an existing path; org/name[@revision][:selector] in the
 * cache; a part of the name of exactly one cached model. */
#include "hub.h"
#include "select.h"

#include "base/alloc.h"
#include "base/file.h"

#include <ctype.h>
#include <string.h>

bool qn_ref_is_path(const char *text)
{
    return (*text && strchr("/~", *text)) || !strncmp(text, "./", 2) ||
           !strncmp(text, "../", 3) || !strcmp(text, ".") ||
           !strcmp(text, "..") ||
           (strncmp(text, "hf:", 3) != 0 && !strchr(text, ':') &&
            (qn_has_suffix(text, ".gguf") ||
             qn_has_suffix(text, ".safetensors")));
}

/* What is neither a path nor an id. */
static qn_status check_text(const char *text)
{
    if (!*text)
        return qn_fail(QN_E_ARG, "the model reference is empty");
    if (strstr(text, "://"))
        return qn_fail(QN_E_ARG, "'%s': a URL is not a model reference", text);
    for (const char *p = text; *p; p++)
        if (iscntrl((unsigned char)*p))
            return qn_fail(QN_E_ARG,
                           "'%s': a model reference has no control characters",
                           text);
    if (strstr(text, ".."))
        return qn_fail(QN_E_ARG, "'%s' is not a model reference: it has '..'",
                       text);
    return QN_OK;
}

/* Cuts *text at the first `mark`; what follows goes to *rest. */
static qn_status cut(char *text, char mark, char **rest)
{
    char *at = strchr(text, mark);
    if (!at)
        return QN_OK;
    *at = '\0';
    *rest = qn_strdup(at + 1);
    return *rest ? QN_OK : QN_E_NOMEM;
}

qn_status qn_ref_parse(qn_ref *out, const char *text)
{
    *out = (qn_ref){0};
    qn_status status = check_text(text);
    if (status)
        return status;
    /* "hf:" in front of an id is no part of it. */
    out->id = qn_strdup(text + (strncmp(text, "hf:", 3) ? 0 : 3));
    if (!out->id)
        return QN_E_NOMEM;
    status = cut(out->id, ':', &out->selector);
    if (!status)
        status = cut(out->id, '@', &out->revision);
    if (status)
        return status;
    size_t size = strlen(out->id);
    if (!size || out->id[0] == '/' || out->id[size - 1] == '/' ||
        (out->revision && (!*out->revision || *out->revision == '/')) ||
        (out->selector && (!*out->selector || *out->selector == '/')))
        return qn_fail(QN_E_ARG,
                       "'%s' is not a model reference: expected "
                       "org/name[@revision][:selector]",
                       text);
    return QN_OK;
}

void qn_ref_clear(qn_ref *ref)
{
    qn_free(ref->id);
    qn_free(ref->revision);
    qn_free(ref->selector);
    *ref = (qn_ref){0};
}

bool qn_ref_is_id(const char *id)
{
    const char *name = id;
    int slashes = 0;
    for (const char *p = id; *p; p++) {
        bool first = p == name;
        if (*p == '/') {
            if (first || slashes++)
                return false;
            name = p + 1;
        } else if (!isalnum((unsigned char)*p) && *p != '_' &&
                   (first || (*p != '-' && *p != '.'))) {
            return false;
        }
    }
    /* "--" stands for the slash in names of folders. */
    return *name && strlen(id) <= 96 && !strstr(id, "--") && !strstr(id, "..");
}

/* ---- one cached model ---- */

/* The .gguf file of a snapshot that the selector chooses (NULL: the only one);
 * the first part stands for a split file. */
static qn_status pick_gguf(char **path, const char *snapshot,
                           const char *selector, const char *ref)
{
    qn_arena arena = {0};
    qn_listing files = {0};
    const qn_hub_file *found = NULL;
    qn_buf names = QN_BUF_INIT;
    qn_status status = qn_listing_of_folder(&files, &arena, snapshot);
    if (!status)
        status = qn_pick_gguf(&found, &names, &files, selector);
    if (status == QN_E_NOTFOUND)
        status =
            qn_fail(QN_E_NOTFOUND,
                    "model '%s': nothing in the cache that can be run", ref);
    else if (status == QN_E_ARG)
        status = qn_fail(QN_E_ARG,
                         "model '%s' has several files; choose with "
                         "NAME:PART: %s",
                         ref, names.data);
    if (!status) {
        *path = qn_path_join(snapshot, found->name);
        status = *path ? QN_OK : QN_E_NOMEM;
    }
    qn_buf_free(&names);
    qn_arena_free(&arena);
    return status;
}

/* The model in the folder `repo` of the cache. */
static qn_status open_repo(char **path, const char *repo, const qn_ref *ref,
                           const char *text)
{
    char commit[QN_COMMIT_SIZE], *config = NULL, *folder = NULL;
    qn_buf snapshot = QN_BUF_INIT;
    qn_status status = qn_cache_commit(commit, repo, ref->revision, text);
    if (status)
        return status;
    qn_buf_printf(&snapshot, "%s/snapshots/%s", repo, commit);
    folder = qn_buf_take(&snapshot);
    config = folder ? qn_path_join(folder, "config.json") : NULL;
    if (!config)
        status = QN_E_NOMEM;
    else if (ref->selector || !qn_path_exists(config))
        status = pick_gguf(path, folder, ref->selector, text);
    else
        *path = folder;
    if (*path != folder)
        qn_free(folder);
    qn_free(config);
    return status;
}

/* ---- the cache ---- */

static bool contains(const char *text, const char *part)
{
    return strcasestr(text, part) != NULL;
}

/* The folder of the model called `id`, or of the only one whose id contains
 * it. */
static qn_status find_repo(char **repo, const char *root, const char *id)
{
    qn_arena arena = {0};
    qn_buf names = QN_BUF_INIT;
    char **entries = NULL, *found = NULL;
    size_t count = 0, matches = 0;
    qn_status status =
        qn_cache_names(&arena, &entries, &count, root, "models--");
    for (size_t i = 0; !status && i < count; i++) {
        char *name = qn_hub_text(&arena, "%s", entries[i]);
        if (!name) {
            status = QN_E_NOMEM;
            break;
        }
        qn_cache_id(name);
        bool exact = !strcmp(name, id);
        if (!exact && !contains(name, id))
            continue;
        qn_buf_printf(&names, "%s%s", matches ? ", " : "", name);
        matches++;
        found = entries[i];
        if (exact) {
            matches = 1;
            break;
        }
    }
    if (!status)
        status = qn_buf_status(&names);
    if (!status && !matches)
        status = qn_fail(QN_E_NOTFOUND,
                         "no such file, and no model '%s' in the cache %s", id,
                         root);
    else if (!status && matches > 1)
        status = qn_fail(QN_E_ARG, "'%s' stands for several models: %s", id,
                         names.data);
    if (!status) {
        *repo = qn_path_join(root, found);
        status = *repo ? QN_OK : QN_E_NOMEM;
    }
    qn_buf_free(&names);
    qn_arena_free(&arena);
    return status;
}

qn_status qn_hub_resolve(char **path, const qn_hub *hub, const char *text)
{
    bool id = !strncmp(text, "hf:", 3);
    if (!id && qn_path_exists(text)) {
        *path = qn_strdup(text);
        return *path ? QN_OK : QN_E_NOMEM;
    }
    if (qn_ref_is_path(text)) {
        for (const char *p = text; *p; p++)
            if (iscntrl((unsigned char)*p))
                return check_text(text);
        return strstr(text, "://")
                   ? check_text(text)
                   : qn_fail(QN_E_NOTFOUND, "%s: no such file", text);
    }
    qn_ref ref;
    char *repo = NULL, *found = NULL;
    qn_status status = qn_ref_parse(&ref, text);
    if (!status)
        status = qn_hub_check_root(hub);
    if (!status)
        status = find_repo(&repo, hub->root, ref.id);
    if (!status)
        status = open_repo(&found, repo, &ref, text);
    if (!status)
        *path = found;
    qn_free(repo);
    qn_ref_clear(&ref);
    return status;
}
