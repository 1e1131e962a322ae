/* hub.c: the environment's say, and texts. */
#include "hub.h"

#include "base/alloc.h"
#include "base/file.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* $HF_HOME/<name>, else ~/.cache/huggingface/<name>; NULL only when memory is
 * short. */
static char *below_home(const char *name)
{
    const char *home = variable("HF_HOME");
    if (home)
        return qn_path_join(home, name);
    qn_buf path = QN_BUF_INIT;
    home = variable("HOME");
    qn_buf_printf(&path, "%s/.cache/huggingface/%s", home ? home : "", name);
    return qn_buf_take(&path);
}

static qn_status find_root(qn_hub *hub)
{
    const char *root = variable("QUERN_CACHE");
    if (!root)
        root = variable("HF_HUB_CACHE");
    hub->root = root ? qn_strdup(root) : below_home("hub");
    return hub->root ? QN_OK : QN_E_NOMEM;
}

qn_status qn_hub_check_root(const qn_hub *hub)
{
    struct stat info;
    bool there = !stat(hub->root, &info);
    if (there ? S_ISDIR(info.st_mode) : errno != ENOTDIR)
        return QN_OK;
    const char *name = variable("QUERN_CACHE")    ? "QUERN_CACHE"
                       : variable("HF_HUB_CACHE") ? "HF_HUB_CACHE"
                                                  : "HF_HOME";
    return qn_fail(QN_E_ARG, "%s: the model cache %s is no folder", name,
                   hub->root);
}

static qn_status find_endpoint(qn_hub *hub)
{
    const char *text = variable("HF_ENDPOINT");
    if (!text)
        text = "https://huggingface.co";
    if (strncmp(text, "https://", 8) != 0 && strncmp(text, "http://", 7) != 0)
        return qn_fail(QN_E_ARG, "HF_ENDPOINT: expected a URL that begins with "
                                 "https:// or http://");
    for (const char *p = text; *p; p++)
        if ((unsigned char)*p <= ' ' || *p == 0x7f || strchr("?#@", *p))
            return qn_fail(QN_E_ARG,
                           "HF_ENDPOINT: a URL of a host and a path has no "
                           "space and none of ?, # and @");
    size_t size = strlen(text);
    while (size && text[size - 1] == '/')
        size--;
    hub->endpoint = qn_strndup(text, size);
    return hub->endpoint ? QN_OK : QN_E_NOMEM;
}

/* The token becomes a line of a request, which must stay one line. */
static qn_status set_token(qn_hub *hub, const char *text, const char *where)
{
    while (isspace((unsigned char)*text))
        text++;
    size_t size = strlen(text);
    while (size && isspace((unsigned char)text[size - 1]))
        size--;
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)text[i] <= ' ' || (unsigned char)text[i] > '~')
            return qn_fail(QN_E_ARG, "%s: a token has only printable ASCII",
                           where);
    if (!size)
        return QN_OK;
    hub->token = qn_strndup(text, size);
    return hub->token ? QN_OK : QN_E_NOMEM;
}

static qn_status find_token(qn_hub *hub)
{
    enum { LIMIT = 4096 };
    const char *text = variable("HF_TOKEN");
    if (text)
        return set_token(hub, text, "HF_TOKEN");
    const char *path = variable("HF_TOKEN_PATH");
    char *name = path ? qn_strdup(path) : below_home("token"), *read = NULL;
    qn_status status = name ? QN_OK : QN_E_NOMEM;
    /* Anonymous downloads need no readable file. */
    if (!status && qn_path_exists(name) &&
        !qn_file_read(&read, NULL, name, LIMIT))
        status = set_token(hub, read, name);
    qn_free(read);
    qn_free(name);
    return status;
}

static bool is_on(const char *text)
{
    return text && (!strcmp(text, "1") || !strcasecmp(text, "on") ||
                    !strcasecmp(text, "yes") || !strcasecmp(text, "true"));
}

qn_status qn_hub_open(qn_hub *hub)
{
    *hub = (qn_hub){.offline = is_on(variable("HF_HUB_OFFLINE"))};
    return find_root(hub);
}

qn_status qn_hub_open_network(qn_hub *hub)
{
    qn_status status = find_endpoint(hub);
    return status ? status : find_token(hub);
}

void qn_hub_close(qn_hub *hub)
{
    qn_free(hub->root);
    qn_free(hub->endpoint);
    qn_free(hub->token);
    *hub = (qn_hub){0};
}

/* ---- texts ---- */

char *qn_hub_text(qn_arena *arena, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int size = vsnprintf(NULL, 0, fmt, args);
    char *out = size < 0 ? NULL : qn_arena_alloc(arena, (size_t)size + 1);
    if (out)
        vsnprintf(out, (size_t)size + 1, fmt, again);
    va_end(again);
    va_end(args);
    return out;
}

bool qn_has_suffix(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);
    return n >= m && !strcasecmp(name + n - m, suffix);
}
