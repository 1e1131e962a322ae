/* ask.c: see ask.h. */
#include "ask.h"

#include "base/alloc.h"
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* ---- patience ---- */

double qn_patience_delay(int attempt, const qn_reply *reply)
{
    /* A server may ask for more than anybody wants to wait. */
    enum { LONGEST = 300 };
    if (reply->retry_after > 0)
        return reply->retry_after < LONGEST ? (double)reply->retry_after
                                            : LONGEST;
    double delay = 0.5;
    for (int i = 1; i < attempt && delay < 30; i++)
        delay *= 2;
    /* Those that failed together do not come back together. */
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return delay * (1 + (double)(now.tv_nsec % 1000) / 4000);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static qn_status tick(const qn_patience *p)
{
    return p->tick ? p->tick(p->data) : QN_OK;
}

static qn_status wait_for(const qn_patience *p, double delay)
{
    double until = seconds() + delay;
    qn_status status = QN_OK;
    while (!status && seconds() < until) {
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
        status = tick(p);
    }
    return status;
}

qn_status qn_ask_run(qn_http *http, qn_transfer *t, const qn_patience *p,
                     qn_status (*again)(void *data))
{
    for (int attempt = 1;; attempt++) {
        qn_transfer *done = NULL;
        qn_status status = again ? again(t->data) : QN_OK;
        if (!status)
            status = qn_http_start(http, t);
        while (!status && !done) {
            status = qn_http_wait(http, 50, &done);
            if (!status && !done)
                status = tick(p);
        }
        if (status) {
            qn_http_stop(http, t);
            return status;
        }
        if (!t->status || !t->may_pass || attempt > p->retries)
            return QN_OK;
        if (p->note)
            p->note(p->data, t->error.text);
        status = wait_for(p, qn_patience_delay(attempt, &t->reply));
        if (status)
            return status;
    }
}

/* ---- small answers ---- */

enum { MOST_ANSWER = 64 << 20 };

static qn_status keep_answer(void *data, const void *bytes, size_t size)
{
    qn_buf *out = data;
    if (size > MOST_ANSWER - out->size)
        return qn_fail(QN_E_FORMAT, "the hub's answer is longer than %d MiB",
                       MOST_ANSWER >> 20);
    qn_buf_add(out, bytes, size);
    return qn_buf_status(out);
}

static qn_status begin_again(void *data)
{
    qn_buf_clear(data);
    return QN_OK;
}

/* GET into `out`; *t has the transfer's end. */
static qn_status get(qn_buf *out, qn_transfer *t, qn_http *http,
                     const qn_buf *url, const qn_patience *p)
{
    qn_status status = qn_buf_status(url);
    *t = (qn_transfer){.url = url->data, .add = keep_answer, .data = out};
    if (!status)
        status = qn_ask_run(http, t, p, begin_again);
    return status;
}

static qn_status failed(const qn_transfer *t)
{
    qn_error_restore(&t->error);
    return t->status;
}

qn_status qn_ask_explain(const qn_transfer *t, const qn_hub *hub,
                         const char *id, const char *what)
{
    size_t size;
    const char *host = qn_url_host(hub->endpoint, &size);
    if (t->status == QN_E_NOTFOUND)
        return qn_fail(QN_E_NOTFOUND, "%.*s has no %s", (int)size, host, what);
    if (t->status == QN_E_DENIED)
        return qn_fail(QN_E_DENIED,
                       "%.*s refuses '%s' (%d): %s; its licence may need "
                       "accepting at %s/%s%s",
                       (int)size, host, id, t->reply.code,
                       hub->token ? "the token that was sent is not enough"
                                  : "no token was sent (HF_TOKEN)",
                       hub->endpoint, id,
                       t->reply.code == 401 && !hub->token
                           ? ", or there is no such model"
                           : "");
    return failed(t);
}

/* ---- listings ---- */

/* Adds what the tree says, page by page; a hub without trees is no error. */
static qn_status read_trees(qn_listing *out, qn_arena *arena, qn_http *http,
                            const qn_hub *hub, const char *id,
                            const qn_patience *p)
{
    enum { MOST_PAGES = 100 };
    qn_buf url = QN_BUF_INIT, answer = QN_BUF_INIT;
    qn_transfer t = {0};
    qn_status status = QN_OK;
    qn_buf_printf(&url, "%s/api/models/%s/tree/%s?recursive=true",
                  hub->endpoint, id, out->commit);
    for (int page = 0; !status && url.size && page < MOST_PAGES; page++) {
        status = get(&answer, &t, http, &url, p);
        if (!status && t.status == QN_E_NOTFOUND)
            break;
        if (!status && t.status)
            status = failed(&t);
        if (!status)
            status = qn_listing_read_tree(out, arena, qn_buf_str(&answer));
        qn_buf_clear(&url);
        qn_buf_add_text(&url, t.reply.next);
    }
    qn_buf_free(&url);
    qn_buf_free(&answer);
    return status;
}

static bool says_all(const qn_listing *listing)
{
    for (size_t i = 0; i < listing->count; i++)
        if (!listing->files[i].sized || !listing->files[i].hash[0])
            return false;
    return true;
}

static qn_status explain_listing(const qn_transfer *t, const qn_hub *hub,
                                 const char *id, const char *revision)
{
    char what[512];
    bool other = revision && strcmp(revision, "main") != 0;
    snprintf(what, sizeof what,
             other ? "model '%s' with a revision '%s'" : "model '%s'", id,
             revision);
    return qn_ask_explain(t, hub, id, what);
}

qn_status qn_ask_listing(qn_listing *out, qn_arena *arena, qn_http *http,
                         const qn_hub *hub, const char *id,
                         const char *revision, const qn_patience *p)
{
    qn_buf url = QN_BUF_INIT, answer = QN_BUF_INIT;
    qn_transfer t = {0};
    qn_buf_printf(&url, "%s/api/models/%s/revision/", hub->endpoint, id);
    qn_url_add(&url, revision, "");
    qn_buf_add_text(&url, "?blobs=true");
    qn_status status = get(&answer, &t, http, &url, p);
    if (!status && t.status)
        status = explain_listing(&t, hub, id, revision);
    if (!status)
        status = qn_listing_read(out, arena, qn_buf_str(&answer));
    /* A model that was renamed answers under its new name. */
    if (!status && !qn_ref_is_id(out->id))
        out->id = qn_hub_text(arena, "%s", id);
    if (!status && !out->id)
        status = QN_E_NOMEM;
    qn_buf_free(&url);
    qn_buf_free(&answer);
    if (!status && !says_all(out))
        status = read_trees(out, arena, http, hub, id, p);
    return status;
}

void qn_ask_url(qn_buf *url, const qn_hub *hub, const qn_listing *listing,
                const char *name)
{
    qn_buf_printf(url, "%s/%s/resolve/%s/", hub->endpoint, listing->id,
                  listing->commit);
    qn_url_add(url, name, "/");
}

qn_status qn_ask_file(qn_hub_file *file, qn_http *http, const qn_hub *hub,
                      const qn_listing *listing, const qn_patience *p)
{
    qn_buf url = QN_BUF_INIT;
    qn_ask_url(&url, hub, listing, file->name);
    qn_status status = qn_buf_status(&url);
    qn_transfer t = {.url = url.data, .head_only = true};
    if (!status)
        status = qn_ask_run(http, &t, p, NULL);
    if (!status && t.status)
        status = qn_ask_explain(&t, hub, listing->id, file->name);
    qn_buf_free(&url);
    if (status)
        return status;
    const qn_reply *r = &t.reply;
    qn_str etag = qn_str_of(r->linked_etag[0] ? r->linked_etag : r->etag);
    if (!file->sized && (r->has_linked_size || r->has_length)) {
        file->size = r->has_linked_size ? r->linked_size : r->length;
        file->sized = true;
    }
    if (!file->hash[0] && qn_hub_hash_is_good(etag))
        memcpy(file->hash, etag.data, etag.size + 1);
    if (!file->sized || !file->hash[0])
        return qn_fail(QN_E_NETWORK,
                       "the hub tells neither in its list nor in an ETag which "
                       "%s '%s' has",
                       file->sized ? "digest" : "size", file->name);
    return QN_OK;
}

/* ---- searches ---- */

static void read_remote(quern_remote *row, qn_arena *arena,
                        const qn_json *entry)
{
    qn_str text;
    int64_t number;
    if (qn_json_as_str(qn_json_get(entry, "id"), &text) && text.size < 200)
        row->id = qn_hub_text(arena, "%.*s", (int)text.size, text.data);
    if (!qn_json_as_str(qn_json_get(entry, "lastModified"), &text) ||
        text.size < 10)
        text = (qn_str){"", 0};
    row->modified = qn_hub_text(arena, "%.*s", text.size ? 10 : 0, text.data);
    if (qn_json_as_int(qn_json_get(entry, "downloads"), &number) && number > 0)
        row->downloads = (uint64_t)number;
    if (qn_json_as_int(qn_json_get(entry, "likes"), &number) && number > 0)
        row->likes = (uint64_t)number;
}

qn_status qn_remote_read(qn_arena *arena, quern_remote **out, size_t *count,
                         qn_str json)
{
    qn_json_doc *doc = NULL;
    qn_status status = qn_json_parse(&doc, json, QN_JSON_ALLOW_DUPLICATE_KEYS);
    const qn_json *root = status ? NULL : qn_json_root(doc);
    if (!status && root->type != QN_JSON_T_ARRAY)
        status = qn_fail(QN_E_FORMAT,
                         "the hub's answer is no list of models, but %s",
                         qn_json_type_name(root->type));
    quern_remote *rows = NULL;
    size_t used = 0;
    if (!status &&
        !(rows = qn_arena_alloc(arena, (root->count + 1) * sizeof *rows)))
        status = QN_E_NOMEM;
    for (uint32_t i = 0; !status && i < root->count; i++) {
        rows[used] = (quern_remote){0};
        read_remote(&rows[used], arena, &root->items[i]);
        used += rows[used].id && rows[used].modified;
    }
    qn_json_doc_free(doc);
    if (status)
        return status;
    *out = rows;
    *count = used;
    return QN_OK;
}

qn_status qn_hub_search(qn_arena *arena, quern_remote **out, size_t *count,
                        const qn_hub *hub, const char *query, int limit)
{
    qn_buf url = QN_BUF_INIT, answer = QN_BUF_INIT;
    qn_transfer t = {0};
    qn_patience patience = {.retries = 2};
    qn_http *http = NULL;
    if (hub->offline)
        return qn_fail(QN_E_NETWORK, "HF_HUB_OFFLINE forbids to ask the hub");
    qn_status status = qn_http_open(&http, hub);
    qn_buf_printf(&url, "%s/api/models?search=", hub->endpoint);
    qn_url_add(&url, query, "");
    qn_buf_printf(&url, "&limit=%d&sort=downloads&direction=-1", limit);
    if (!status)
        status = get(&answer, &t, http, &url, &patience);
    if (!status && t.status)
        status = qn_ask_explain(&t, hub, query, "search for models");
    if (!status)
        status = qn_remote_read(arena, out, count, qn_buf_str(&answer));
    qn_http_close(http);
    qn_buf_free(&url);
    qn_buf_free(&answer);
    return status;
}
