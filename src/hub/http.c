/* http.c: see http.h. */
#include "http.h"

#include "base/alloc.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The checks of argument types are macros around the real functions. */
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

/* ---- the library ---- */

#define CALLS(X)                                                               \
    X(curl_global_init)                                                        \
    X(curl_easy_init)                                                          \
    X(curl_easy_cleanup)                                                       \
    X(curl_easy_setopt)                                                        \
    X(curl_easy_getinfo)                                                       \
    X(curl_easy_strerror)                                                      \
    X(curl_multi_init)                                                         \
    X(curl_multi_cleanup)                                                      \
    X(curl_multi_add_handle)                                                   \
    X(curl_multi_remove_handle)                                                \
    X(curl_multi_perform)                                                      \
    X(curl_multi_poll)                                                         \
    X(curl_multi_info_read)                                                    \
    X(curl_slist_append)                                                       \
    X(curl_slist_free_all)

typedef struct library {
#define X(name) __typeof__(name) *name;
    CALLS(X)
#undef X
} library;

struct qn_http {
    library curl;
    const qn_hub *hub;
    CURLM *multi;
    qn_transfer *running[64];
    int count;
};

static qn_status load(library *out)
{
    static const char *const names[] = {
#if defined(__APPLE__)
        "libcurl.4.dylib",
        "libcurl.dylib",
#else
        "libcurl.so.4",
        "libcurl-gnutls.so.4",
#endif
    };
    /* It stays: it has threads and exit handlers of its own. */
    void *handle = NULL;
    for (size_t i = 0; !handle && i < sizeof names / sizeof *names; i++)
        handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return qn_fail(QN_E_UNSUPPORTED,
                       "downloads need libcurl, which is not installed (%s)",
                       names[0]);
#define X(name)                                                                \
    {                                                                          \
        void *symbol = dlsym(handle, #name);                                   \
        if (!symbol)                                                           \
            return qn_fail(QN_E_UNSUPPORTED,                                   \
                           "downloads need a libcurl from 2020 or later: "     \
                           "this one has no " #name);                          \
        memcpy(&out->name, &symbol, sizeof symbol);                            \
    }
    CALLS(X)
#undef X
    if (out->curl_global_init(CURL_GLOBAL_DEFAULT))
        return qn_fail(QN_E_INTERNAL, "libcurl can't be set up");
    return QN_OK;
}

qn_status qn_http_open(qn_http **out, const qn_hub *hub)
{
    qn_http *h = qn_calloc(1, sizeof *h);
    if (!h)
        return QN_E_NOMEM;
    h->hub = hub;
    qn_status status = load(&h->curl);
    if (!status && !(h->multi = h->curl.curl_multi_init()))
        status = qn_fail(QN_E_NOMEM, "out of memory");
    if (status)
        qn_free(h);
    else
        *out = h;
    return status;
}

void qn_http_close(qn_http *h)
{
    if (!h)
        return;
    while (h->count)
        qn_http_stop(h, h->running[0]);
    h->curl.curl_multi_cleanup(h->multi);
    qn_free(h);
}

/* ---- URLs ---- */

void qn_url_add(qn_buf *url, const char *text, const char *keep)
{
    for (const char *p = text; *p; p++)
        if (isalnum((unsigned char)*p) || strchr("-._~", *p) ||
            strchr(keep, *p))
            qn_buf_add_char(url, *p);
        else
            qn_buf_printf(url, "%%%02X", (unsigned char)*p);
}

const char *qn_url_host(const char *url, size_t *size)
{
    const char *host = strstr(url, "://");
    host = host ? host + 3 : url;
    *size = strcspn(host, "/?#");
    return host;
}

static bool is_endpoint(const qn_http *h, const char *url)
{
    size_t size = strlen(h->hub->endpoint);
    return !strncmp(url, h->hub->endpoint, size) &&
           (!url[size] || url[size] == '/' || url[size] == '?');
}

static size_t on_header(char *line, size_t one, size_t size, void *data)
{
    qn_transfer *t = data;
    (void)one;
    qn_reply_line(&t->reply, line, size);
    return size;
}

/* ---- the body ---- */

static bool is_good(const qn_transfer *t)
{
    return t->reply.code == 200 || t->reply.code == 206;
}

static bool keep_error(qn_transfer *t, qn_status status)
{
    if (!status)
        return true;
    t->status = status;
    t->failed = true;
    qn_error_save(&t->error);
    return false;
}

static bool begin_body(qn_transfer *t)
{
    if (t->begun || !t->begin)
        return true;
    t->begun = true;
    return keep_error(t, t->begin(t->data, &t->reply));
}

static size_t on_body(char *bytes, size_t one, size_t size, void *data)
{
    enum { MOST_WASTE = 1 << 20 };
    qn_transfer *t = data;
    (void)one;
    if (!is_good(t)) {
        t->waste += size;
        return t->waste > MOST_WASTE ? 0 : size;
    }
    if (!begin_body(t) || !keep_error(t, t->add(t->data, bytes, size)))
        return 0;
    return size;
}

/* ---- requests ---- */

static bool add_line(qn_http *h, struct curl_slist **list, const char *line)
{
    struct curl_slist *more = h->curl.curl_slist_append(*list, line);
    if (more)
        *list = more;
    return more != NULL;
}

static bool set_headers(qn_http *h, qn_transfer *t)
{
    struct curl_slist *list = NULL;
    qn_buf line = QN_BUF_INIT;
    bool good = true;
    if (t->with_token && h->hub->token) {
        qn_buf_printf(&line, "Authorization: Bearer %s", h->hub->token);
        good = !qn_buf_status(&line) && add_line(h, &list, line.data);
        qn_buf_clear(&line);
    }
    if (good && (t->from || t->until)) {
        qn_buf_printf(&line, "Range: bytes=%llu-", (unsigned long long)t->from);
        if (t->until)
            qn_buf_printf(&line, "%llu", (unsigned long long)t->until - 1);
        good = !qn_buf_status(&line) && add_line(h, &list, line.data);
    }
    qn_buf_free(&line);
    h->curl.curl_slist_free_all(t->headers);
    t->headers = list;
    h->curl.curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, list);
    return good;
}

/* Seconds without a byte after which a connection counts as dead. */
static long patience(void)
{
#ifdef QUERN_TEST_BUILD
    const char *text = getenv("QUERN_TEST_STALL");
    if (text && atol(text) > 0)
        return atol(text);
#endif
    return 30;
}

static void set_options(qn_http *h, qn_transfer *t)
{
    const char *certificates = getenv("SSL_CERT_FILE");
    __typeof__(h->curl.curl_easy_setopt) set = h->curl.curl_easy_setopt;
    set(t->easy, CURLOPT_PRIVATE, t);
    set(t->easy, CURLOPT_NOSIGNAL, 1L);
    set(t->easy, CURLOPT_USERAGENT, "quern/" QUERN_VERSION);
    set(t->easy, CURLOPT_CONNECTTIMEOUT, patience());
    set(t->easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(t->easy, CURLOPT_LOW_SPEED_TIME, patience());
    set(t->easy, CURLOPT_ERRORBUFFER, t->detail);
    set(t->easy, CURLOPT_HEADERFUNCTION, on_header);
    set(t->easy, CURLOPT_HEADERDATA, t);
    set(t->easy, CURLOPT_WRITEFUNCTION, on_body);
    set(t->easy, CURLOPT_WRITEDATA, t);
    set(t->easy, CURLOPT_BUFFERSIZE, 256L << 10);
    if (t->head_only)
        set(t->easy, CURLOPT_NOBODY, 1L);
    if (certificates && *certificates)
        set(t->easy, CURLOPT_CAINFO, certificates);
}

/* Sends the request to t->at. */
static qn_status send_request(qn_http *h, qn_transfer *t)
{
    t->waste = 0;
    t->detail[0] = '\0';
    if (!set_headers(h, t) ||
        h->curl.curl_easy_setopt(t->easy, CURLOPT_URL, t->at) ||
        h->curl.curl_multi_add_handle(h->multi, t->easy))
        return qn_fail(QN_E_NOMEM, "out of memory");
    return QN_OK;
}

static void clear(qn_http *h, qn_transfer *t)
{
    h->curl.curl_slist_free_all(t->headers);
    if (t->easy)
        h->curl.curl_easy_cleanup(t->easy);
    qn_free(t->at);
    t->easy = t->headers = NULL;
    t->at = NULL;
}

qn_status qn_http_start(qn_http *h, qn_transfer *t)
{
    if (h->count == (int)(sizeof h->running / sizeof *h->running))
        return qn_fail(QN_E_INTERNAL, "too many transfers at a time");
    bool safe = !strncmp(t->url, "https://", 8);
    if (!safe && (strncmp(t->url, "http://", 7) != 0 ||
                  !strncmp(h->hub->endpoint, "https://", 8)))
        return qn_fail(QN_E_NETWORK, "the hub points to an address that is not "
                                     "https");
    t->reply = (qn_reply){0};
    t->status = QN_OK;
    t->may_pass = t->begun = t->failed = false;
    t->hops = 0;
    t->with_token = is_endpoint(h, t->url);
    t->headers = NULL;
    t->at = qn_strdup(t->url);
    t->easy = t->at ? h->curl.curl_easy_init() : NULL;
    qn_status status = QN_E_NOMEM;
    if (t->easy) {
        set_options(h, t);
        status = send_request(h, t);
    } else {
        qn_fail(QN_E_NOMEM, "out of memory");
    }
    if (status)
        clear(h, t);
    else
        h->running[h->count++] = t;
    return status;
}

static void forget(qn_http *h, qn_transfer *t)
{
    for (int i = 0; i < h->count; i++)
        if (h->running[i] == t)
            h->running[i] = h->running[--h->count];
    clear(h, t);
}

void qn_http_stop(qn_http *h, qn_transfer *t)
{
    if (!t->easy)
        return;
    h->curl.curl_multi_remove_handle(h->multi, t->easy);
    forget(h, t);
}

/* ---- what became of it ---- */

static bool is_redirect(int code)
{
    return code == 301 || code == 302 || code == 303 || code == 307 ||
           code == 308;
}

/* Goes where the answer points; false when the transfer has ended. */
static bool follow(qn_http *h, qn_transfer *t)
{
    enum { MOST_HOPS = 10 };
    char *url = NULL;
    h->curl.curl_easy_getinfo(t->easy, CURLINFO_REDIRECT_URL, &url);
    size_t size;
    const char *host = qn_url_host(t->at, &size);
    qn_status status = QN_OK;
    bool safe = !strncmp(t->at, "https://", 8);
    if (!url || t->hops++ == MOST_HOPS)
        status = qn_fail(QN_E_NETWORK, "%.*s: redirects lead nowhere",
                         (int)size, host);
    else if (strncmp(url, "https://", 8) != 0 &&
             (safe || strncmp(url, "http://", 7) != 0))
        status =
            qn_fail(QN_E_NETWORK, "%.*s redirects to something else than %s",
                    (int)size, host, safe ? "https" : "http or https");
    char *at = status ? NULL : qn_strdup(url);
    if (!status && !at)
        status = QN_E_NOMEM;
    if (status)
        return keep_error(t, status);
    /* A path on the same host is the host's own doing; any other address gets
     * no token, whatever it is. */
    t->with_token = t->with_token && t->reply.location[0] == '/' &&
                    t->reply.location[1] != '/';
    t->reply.redirected = true;
    qn_free(t->at);
    t->at = at;
    return keep_error(t, send_request(h, t));
}

static bool is_tls(CURLcode code)
{
    return code == CURLE_PEER_FAILED_VERIFICATION ||
           code == CURLE_SSL_CONNECT_ERROR || code == CURLE_SSL_CERTPROBLEM ||
           code == CURLE_SSL_CIPHER || code == CURLE_SSL_CACERT_BADFILE ||
           code == CURLE_SSL_ISSUER_ERROR || code == CURLE_SSL_CRL_BADFILE ||
           code == CURLE_SSL_PINNEDPUBKEYNOTMATCH ||
           code == CURLE_SSL_INVALIDCERTSTATUS ||
           code == CURLE_SSL_ENGINE_NOTFOUND ||
           code == CURLE_SSL_ENGINE_SETFAILED;
}

static qn_status judge_connection(qn_http *h, qn_transfer *t, CURLcode code)
{
    size_t size;
    const char *host = qn_url_host(t->at, &size);
    const char *why = *t->detail ? t->detail : h->curl.curl_easy_strerror(code);
    t->may_pass = !is_tls(code) && code != CURLE_URL_MALFORMAT &&
                  code != CURLE_OUT_OF_MEMORY &&
                  code != CURLE_UNSUPPORTED_PROTOCOL;
    if (code == CURLE_OUT_OF_MEMORY)
        return qn_fail(QN_E_NOMEM, "out of memory");
    return qn_fail(QN_E_NETWORK, "%.*s: %s%s", (int)size, host,
                   is_tls(code) ? "TLS: " : "", why);
}

static qn_status judge_answer(qn_http *h, qn_transfer *t)
{
    int code = t->reply.code;
    curl_off_t after = 0;
    h->curl.curl_easy_getinfo(t->easy, CURLINFO_RETRY_AFTER, &after);
    t->reply.retry_after = (long)after;
    t->may_pass = code == 408 || code == 429 || code >= 500;
    size_t size;
    const char *host = qn_url_host(t->at, &size);
    qn_status status = code == 401 || code == 403   ? QN_E_DENIED
                       : code == 404 || code == 410 ? QN_E_NOTFOUND
                                                    : QN_E_NETWORK;
    return qn_fail(status, "%.*s answers %d%s%s%s", (int)size, host, code,
                   *t->reply.error_code ? " (" : "", t->reply.error_code,
                   *t->reply.error_code ? ")" : "");
}

/* False while it goes on. */
static bool finish(qn_http *h, qn_transfer *t, CURLcode code)
{
    if (t->failed)
        return true;
    /* An error's body that was cut off is no failure of its own. */
    if (code && t->reply.code < 400)
        return !keep_error(t, judge_connection(h, t, code));
    if (is_redirect(t->reply.code))
        return !follow(h, t);
    if (!is_good(t))
        return !keep_error(t, judge_answer(h, t));
    begin_body(t); /* of no bytes */
    return true;
}

qn_status qn_http_wait(qn_http *h, int ms, qn_transfer **done)
{
    int still, left;
    *done = NULL;
    if (h->curl.curl_multi_perform(h->multi, &still))
        return qn_fail(QN_E_INTERNAL, "libcurl can't go on");
    CURLMsg *message = h->curl.curl_multi_info_read(h->multi, &left);
    if (!message && ms > 0) {
        h->curl.curl_multi_poll(h->multi, NULL, 0, ms, NULL);
        h->curl.curl_multi_perform(h->multi, &still);
        message = h->curl.curl_multi_info_read(h->multi, &left);
    }
    if (!message || message->msg != CURLMSG_DONE)
        return QN_OK;
    CURLcode code = message->data.result;
    CURL *easy = message->easy_handle;
    char *private = NULL;
    h->curl.curl_easy_getinfo(easy, CURLINFO_PRIVATE, &private);
    qn_transfer *t = (qn_transfer *)(void *)private;
    h->curl.curl_multi_remove_handle(h->multi, easy);
    if (!finish(h, t, code))
        return QN_OK;
    forget(h, t);
    *done = t;
    return QN_OK;
}
