/* ref.c: what a model reference stands for.
 *
 * In this order: an existing path; org/name[@revision][:selector] in the
 * model cache; a part of the name of exactly one cached model.  The cache has
 * the layout of the Hugging Face hub client
 * (models--org--name/{refs,snapshots}), so that models which other tools
 * fetched are found. */
#include "cli.h"

#include "base/alloc.h"
#include "base/file.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* $QUERN_CACHE, else $HF_HUB_CACHE, else $HF_HOME/hub, else
 * ~/.cache/huggingface/hub; NULL only when memory is short. */
static char *cache_root(void)
{
    const char *root = getenv("QUERN_CACHE");
    if (!root || !*root)
        root = getenv("HF_HUB_CACHE");
    if (root && *root)
        return qn_strdup(root);
    root = getenv("HF_HOME");
    if (root && *root)
        return qn_path_join(root, "hub");
    root = getenv("HOME");
    return qn_path_join(root ? root : "/", ".cache/huggingface/hub");
}

/* "hf:" in front of an id is no part of it. */
static const char *id_part(const char *ref)
{
    return strncmp(ref, "hf:", 3) ? ref : ref + 3;
}

/* An id names folders of the cache, and must not lead out of it. */
static qn_status check_name(const char *ref)
{
    const char *id = id_part(ref);
    if (!*id || strchr("@:/", *id) || strstr(id, ".."))
        return qn_fail(QN_E_ARG, "'%s' is not a model reference", ref);
    return QN_OK;
}

/* What is neither a path nor an id. */
static qn_status check_text(const char *ref)
{
    if (!*ref)
        return qn_fail(QN_E_ARG, "the model reference is empty");
    if (strstr(ref, "://"))
        return qn_fail(QN_E_ARG, "'%s': a URL is not a model reference", ref);
    for (const char *p = ref; *p; p++)
        if (iscntrl((unsigned char)*p))
            return qn_fail(QN_E_ARG,
                           "'%s': a model reference has no control characters",
                           ref);
    return QN_OK;
}

/* ---- one cached model ---- */

/* The commit that refs/<revision> names, or the revision itself. */
static qn_status read_commit(char commit[128], const char *repo,
                             const char *revision)
{
    qn_buf name = QN_BUF_INIT;
    qn_buf_printf(&name, "%s/refs/%s", repo, revision);
    qn_status status = qn_buf_status(&name);
    if (!status && qn_path_exists(name.data)) {
        char *text = NULL;
        size_t size;
        status = qn_file_read(&text, &size, name.data, 120);
        if (!status)
            snprintf(commit, 128, "%.*s", (int)strcspn(text, "/\r\n "), text);
        qn_free(text);
    } else if (!status) {
        snprintf(commit, 128, "%s", revision);
    }
    qn_buf_free(&name);
    return status;
}

static bool has_suffix(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);
    return n >= m && !strcasecmp(name + n - m, suffix);
}

static bool contains(const char *text, const char *part)
{
    return !*part || strcasestr(text, part);
}

/* The .gguf file of a snapshot whose name contains `selector`; the first part
 * stands for a split file. */
static qn_status pick_gguf(char **path, const char *snapshot,
                           const char *selector, const char *ref)
{
    DIR *dir = opendir(snapshot);
    if (!dir)
        return qn_fail(QN_E_NOTFOUND, "model '%s' has no files in the cache",
                       ref);
    qn_buf names = QN_BUF_INIT;
    char *found = NULL;
    int count = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        const char *name = entry->d_name;
        const char *part = strstr(name, "-of-");
        bool later = part && !strstr(name, "-00001-of-");
        if (!has_suffix(name, ".gguf") || later || !contains(name, selector))
            continue;
        count++;
        qn_buf_printf(&names, "%s%s", count > 1 ? ", " : "", name);
        if (count == 1)
            found = qn_path_join(snapshot, name);
    }
    closedir(dir);
    qn_status status = qn_buf_status(&names);
    if (!status && !count)
        status =
            qn_fail(QN_E_NOTFOUND,
                    "model '%s': nothing in the cache that can be run", ref);
    else if (!status && count > 1)
        status = qn_fail(QN_E_ARG,
                         "model '%s' has several files; choose with "
                         "NAME:PART: %s",
                         ref, names.data);
    else if (!status && !found)
        status = QN_E_NOMEM;
    qn_buf_free(&names);
    if (status)
        qn_free(found);
    else
        *path = found;
    return status;
}

/* The model in the folder `repo` of the cache. */
static qn_status open_repo(char **path, const char *repo, const char *revision,
                           const char *selector, const char *ref)
{
    char commit[128] = "";
    qn_buf snapshot = QN_BUF_INIT;
    char *config = NULL;
    qn_status status = read_commit(commit, repo, revision);
    if (status)
        goto done;
    qn_buf_printf(&snapshot, "%s/snapshots/%s", repo, commit);
    status = qn_buf_status(&snapshot);
    if (status)
        goto done;
    if (!qn_path_is_dir(snapshot.data)) {
        status = qn_fail(QN_E_NOTFOUND,
                         "model '%s': revision %s is not in "
                         "the cache",
                         ref, revision);
        goto done;
    }
    config = qn_path_join(snapshot.data, "config.json");
    if (!config) {
        status = QN_E_NOMEM;
        goto done;
    }
    if (!*selector && qn_path_exists(config)) {
        *path = qn_buf_take(&snapshot);
        status = *path ? QN_OK : QN_E_NOMEM;
    } else {
        status = pick_gguf(path, snapshot.data, selector, ref);
    }
done:
    qn_free(config);
    qn_buf_free(&snapshot);
    return status;
}

/* ---- the cache ---- */

/* "models--org--name" to "org/name" in place; false for other entries. */
static bool id_of(char *name)
{
    if (strncmp(name, "models--", 8))
        return false;
    memmove(name, name + 8, strlen(name + 8) + 1);
    char *gap = strstr(name, "--");
    if (gap) {
        *gap = '/';
        memmove(gap + 1, gap + 2, strlen(gap + 2) + 1);
    }
    return true;
}

/* The folder of the model called `id`, or of the only one whose id contains
 * it. */
static qn_status find_repo(char **repo, const char *root, const char *id)
{
    DIR *dir = opendir(root);
    if (!dir)
        return qn_fail(QN_E_NOTFOUND,
                       "no such file, and no model '%s' in the cache %s", id,
                       root);
    qn_buf names = QN_BUF_INIT;
    char *found = NULL;
    int matches = 0;
    bool exact = false, short_of_memory = false;
    for (struct dirent *entry; !exact && (entry = readdir(dir));) {
        char *name = qn_strdup(entry->d_name);
        if (!name) {
            short_of_memory = true;
            break;
        }
        exact = id_of(name) && !strcmp(name, id);
        if (exact || (strncmp(entry->d_name, "models--", 8) == 0 &&
                      contains(name, id))) {
            matches++;
            qn_buf_printf(&names, "%s%s", matches > 1 ? ", " : "", name);
            qn_free(found);
            found = qn_path_join(root, entry->d_name);
            short_of_memory = !found;
        }
        qn_free(name);
    }
    closedir(dir);
    qn_status status = qn_buf_status(&names);
    if (short_of_memory)
        status = QN_E_NOMEM;
    else if (!status && !matches)
        status = qn_fail(QN_E_NOTFOUND,
                         "no such file, and no model '%s' in the cache %s", id,
                         root);
    else if (!status && matches > 1 && !exact)
        status = qn_fail(QN_E_ARG, "'%s' stands for several models: %s", id,
                         names.data);
    qn_buf_free(&names);
    if (status)
        qn_free(found);
    else
        *repo = found;
    return status;
}

static qn_status from_cache(char **path, const char *ref)
{
    char *id = qn_strdup(ref), *root = cache_root(), *repo = NULL;
    qn_status status = id && root ? QN_OK : QN_E_NOMEM;
    if (!status) {
        const char *revision = "main", *selector = "";
        char *colon = strrchr(id, ':');
        if (colon) {
            *colon = '\0';
            selector = colon + 1;
        }
        char *at = strchr(id, '@');
        if (at) {
            *at = '\0';
            revision = at + 1;
        }
        status = find_repo(&repo, root, id);
        if (!status)
            status = open_repo(path, repo, revision, selector, ref);
    }
    qn_free(id);
    qn_free(root);
    qn_free(repo);
    return status;
}

qn_status qn_ref_resolve(char **path, const char *ref)
{
    bool id = id_part(ref) != ref;
    if (!id && qn_path_exists(ref)) {
        *path = qn_strdup(ref);
        return *path ? QN_OK : QN_E_NOMEM;
    }
    qn_status status = check_text(ref);
    if (status)
        return status;
    /* What can only be a path is not looked up. */
    if (!id && (strchr("/~", ref[0]) || !strncmp(ref, "./", 2) ||
                !strncmp(ref, "../", 3) || has_suffix(ref, ".gguf") ||
                has_suffix(ref, ".safetensors")))
        return qn_fail(QN_E_NOTFOUND, "%s: no such file", ref);
    status = check_name(ref);
    return status ? status : from_cache(path, id_part(ref));
}
