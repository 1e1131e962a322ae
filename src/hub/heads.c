/* heads.c: what a model of the hub would take, without its weights.
 *
 * Of each file as much is fetched, by ranges, as its header is long; a server
 * that sends all of it is stopped.  The front lies in a file that is as long as
 * the whole one and takes no room on the disk behind it, so whoever reads
 * headers finds them as they will be. */
#include "ask.h"
#include "lock.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/gguf.h"
#include "base/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    FIRST = 64 << 10, /* bytes that are asked for at first */
    MOST_FRONT = 512 << 20,
    MOST_SMALL = 16 << 20 /* of a file that is fetched whole */
};

typedef struct heads {
    const qn_hub *hub;
    qn_arena arena;
    qn_ref ref;
    qn_listing listing;
    qn_http *http;
    qn_patience patience;
    char *folder;
} heads;

/* A file as far as it has come. */
typedef struct front {
    const qn_hub_file *file;
    qn_transfer transfer;
    qn_buf bytes;
    uint64_t need; /* bytes without which more can't be said */
    /* A walk begins at the front again, so one for each piece that comes would
     * take the square of its length. */
    uint64_t next_look;
    bool stopped; /* what there is is enough */
} front;

/* ---- one file ---- */

static bool is_small(const char *name)
{
    return qn_has_suffix(name, ".json");
}

/* Says what is needed of a file by what there is of it. */
static qn_status look(front *f)
{
    qn_bytes bytes = {(const uint8_t *)f->bytes.data, f->bytes.size};
    size_t size = 0;
    qn_status status = QN_OK;
    if (is_small(f->file->name)) {
        f->need = f->file->size;
    } else if (qn_has_suffix(f->file->name, ".gguf")) {
        f->need = qn_gguf_front_need(bytes);
    } else if (bytes.size < QN_ST_PREFIX) {
        f->need = QN_ST_PREFIX;
    } else {
        status = qn_st_front_size(&size, bytes.data, (size_t)f->file->size);
        f->need = size;
    }
    f->next_look = bytes.size + bytes.size / 8;
    uint64_t most = is_small(f->file->name) ? MOST_SMALL : MOST_FRONT;
    if (!status && f->need > f->file->size)
        status = qn_fail(QN_E_FORMAT,
                         "the header does not end before the file does");
    if (!status && f->need > most)
        status = qn_fail(QN_E_FORMAT,
                         "expected at most %llu bytes in front of the data, "
                         "found %llu",
                         (unsigned long long)most, (unsigned long long)f->need);
    return status;
}

static bool is_enough(const front *f)
{
    return f->bytes.size >= f->need;
}

static qn_status begin_front(void *data, const qn_reply *reply)
{
    front *f = data;
    if (reply->code != 206)
        qn_buf_clear(&f->bytes); /* all of it, whatever was asked for */
    else if (!reply->has_range || reply->from != f->bytes.size)
        return qn_fail(QN_E_NETWORK,
                       "the server sends another range than was asked");
    return QN_OK;
}

static qn_status add_front(void *data, const void *bytes, size_t size)
{
    front *f = data;
    if (size > f->file->size - f->bytes.size)
        return qn_fail(QN_E_INTEGRITY, "expected %llu bytes, but more come",
                       (unsigned long long)f->file->size);
    qn_buf_add(&f->bytes, bytes, size);
    qn_status status = qn_buf_status(&f->bytes);
    if (status || !is_enough(f) || f->bytes.size < f->next_look)
        return status;
    status = look(f);
    if (status || !is_enough(f))
        return status;
    f->stopped = true;
    return qn_fail(QN_E_CANCELLED, "that is enough");
}

/* What a try before has left stays. */
static qn_status go_on(void *data)
{
    front *f = data;
    uint64_t wanted = 2 * (uint64_t)f->bytes.size;
    wanted = wanted > f->need ? wanted : f->need;
    wanted = wanted > FIRST ? wanted : FIRST;
    f->transfer.from = f->bytes.size;
    f->transfer.until = wanted < f->file->size ? wanted : f->file->size;
    return QN_OK;
}

static qn_status fetch_front(heads *h, front *f)
{
    qn_buf url = QN_BUF_INIT;
    qn_ask_url(&url, h->hub, &h->listing, f->file->name);
    qn_status status = qn_buf_status(&url);
    if (!status)
        status = look(f);
    while (!status && !is_enough(f)) {
        size_t before = f->bytes.size;
        qn_transfer *t = &f->transfer;
        *t = (qn_transfer){
            .url = url.data, .begin = begin_front, .add = add_front, .data = f};
        status = qn_ask_run(h->http, t, &h->patience, go_on);
        if (status || f->stopped)
            break;
        bool came = f->bytes.size > before;
        if (came && is_enough(f))
            status = look(f);
        if (status || is_enough(f))
            break;
        if (t->status && !(t->may_pass && came))
            status = qn_ask_explain(t, h->hub, h->listing.id, f->file->name);
        else if (!came)
            status = qn_fail(QN_E_NETWORK,
                             "the connection ended after %zu of %llu bytes",
                             before, (unsigned long long)f->file->size);
    }
    qn_buf_free(&url);
    return status;
}

/* ---- the folder ---- */

static qn_status make_folder(heads *h)
{
    const char *parent = getenv("TMPDIR");
    qn_buf path = QN_BUF_INIT;
    qn_buf_printf(&path, "%s/quern-heads-XXXXXX",
                  parent && *parent ? parent : "/tmp");
    qn_status status = qn_buf_status(&path);
    char *made = status ? NULL : qn_buf_take(&path);
    if (made && mkdtemp(made)) {
        h->folder = made;
        return QN_OK;
    }
    if (made)
        status = qn_fail(QN_E_IO, "cannot make %s: %s", made, strerror(errno));
    qn_buf_free(&path);
    qn_free(made);
    return status;
}

static void remove_all(const char *path, int depth)
{
    enum { DEEPEST = 32 };
    DIR *dir = depth < DEEPEST ? opendir(path) : NULL;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char *name = NULL;
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            name = qn_path_join(path, e->d_name);
        if (name && unlink(name))
            remove_all(name, depth + 1);
        qn_free(name);
    }
    if (dir)
        closedir(dir);
    rmdir(path);
}

void qn_hub_remove_heads(const char *folder)
{
    qn_error kept;
    if (!folder)
        return;
    qn_error_save(&kept);
    remove_all(folder, 0);
    qn_error_restore(&kept);
}

static qn_status put_front(const heads *h, const front *f)
{
    char *path = qn_path_join(h->folder, f->file->name);
    qn_status status = path ? qn_make_parents(path) : QN_E_NOMEM;
    if (!status)
        status = qn_file_write_atomic(path, f->bytes.data, f->bytes.size);
    if (!status && truncate(path, (off_t)f->file->size))
        status = qn_fail(QN_E_IO, "cannot make %s: %s", path, strerror(errno));
    qn_free(path);
    return status;
}

/* ---- all of them ---- */

/* Of what a load needs, what says how large things are. */
static bool is_wanted(const char *name)
{
    return qn_hub_is_weights(name) || !strcmp(name, "config.json") ||
           !strcmp(name, "kv_config.json") ||
           qn_has_suffix(name, ".safetensors.index.json");
}

static qn_status fetch_file(heads *h, qn_hub_file *file)
{
    front f = {.file = file};
    qn_status status = QN_OK;
    if (!file->sized)
        status = qn_ask_file(file, h->http, h->hub, &h->listing, &h->patience);
    if (!status)
        status = fetch_front(h, &f);
    if (!status)
        status = put_front(h, &f);
    qn_buf_free(&f.bytes);
    return status ? qn_fail_where(status, "%s", file->name) : QN_OK;
}

static qn_status fetch_files(heads *h, const bool *chosen)
{
    qn_status status = make_folder(h);
    for (size_t i = 0; !status && i < h->listing.count; i++)
        if (chosen[i] && is_wanted(h->listing.files[i].name))
            status = fetch_file(h, &h->listing.files[i]);
    return status;
}

/* The folder, or the first GGUF file of those chosen if there is nothing
 * else. */
static qn_status find_path(char **path, const heads *h, const bool *chosen)
{
    const char *gguf = NULL;
    for (size_t i = 0; i < h->listing.count; i++) {
        const char *name = h->listing.files[i].name;
        if (chosen[i] && !gguf && qn_gguf_is_model(name))
            gguf = name;
        if (chosen[i] && qn_has_suffix(name, ".safetensors")) {
            gguf = NULL;
            break;
        }
    }
    *path = gguf ? qn_path_join(h->folder, gguf) : qn_strdup(h->folder);
    return *path ? QN_OK : QN_E_NOMEM;
}

static qn_status ask(heads *h, const char *ref)
{
    if (h->hub->offline)
        return qn_fail(QN_E_NETWORK, "HF_HUB_OFFLINE forbids to ask the hub");
    qn_status status = qn_ref_parse(&h->ref, ref);
    const char *revision = h->ref.revision ? h->ref.revision : "main";
    if (!status &&
        (!qn_ref_is_id(h->ref.id) || !qn_hub_name_is_safe(qn_str_of(revision))))
        status =
            qn_fail(QN_E_ARG, "'%s' is no name of a model of the hub", ref);
    if (!status)
        status = qn_http_open(&h->http, h->hub);
    if (!status)
        status = qn_ask_listing(&h->listing, &h->arena, h->http, h->hub,
                                h->ref.id, revision, &h->patience);
    return status;
}

qn_status qn_hub_heads(char **path, char **folder, const qn_hub *hub,
                       const char *ref)
{
    heads h = {.hub = hub, .patience = {.retries = 2}};
    bool *chosen = NULL;
    qn_status status = ask(&h, ref);
    if (!status &&
        !(chosen = qn_calloc(2 * h.listing.count + 1, sizeof *chosen)))
        status = QN_E_NOMEM;
    if (!status) {
        qn_selection selection = {.selector = h.ref.selector};
        status =
            qn_select(chosen, chosen + h.listing.count, &h.listing, &selection);
    }
    if (!status)
        status = fetch_files(&h, chosen);
    if (!status)
        status = find_path(path, &h, chosen);
    if (status) {
        qn_hub_remove_heads(h.folder);
        qn_free(h.folder);
    } else {
        *folder = h.folder;
    }
    qn_free(chosen);
    qn_http_close(h.http);
    qn_arena_free(&h.arena);
    qn_ref_clear(&h.ref);
    return status;
}
