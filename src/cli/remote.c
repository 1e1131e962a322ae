/* remote.c: see remote.h. */
#include "remote.h"

#include "base/alloc.h"
#include "base/json.h"
#include "cli.h"
#include "sse.h"

/* The checks are macros, which the members of a structure are not. */
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER_LIMIT = 64 << 20 };

#define FUNCTIONS(X)                                                           \
    X(curl_global_init)                                                        \
    X(curl_easy_init)                                                          \
    X(curl_easy_cleanup)                                                       \
    X(curl_easy_setopt)                                                        \
    X(curl_easy_getinfo)                                                       \
    X(curl_easy_perform)                                                       \
    X(curl_easy_strerror)                                                      \
    X(curl_slist_append)                                                       \
    X(curl_slist_free_all)

struct qn_remote {
#define X(name) __typeof__(name) *name;
    FUNCTIONS(X)
#undef X
    CURL *easy;
    struct curl_slist *headers;
    char *url;
    const char *model;
};

/* ---- the library ---- */

void *qn_remote_library(void)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4",
                                        "libcurl.4.dylib", "libcurl.dylib"};
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

qn_status qn_remote_no_library(void)
{
    return qn_fail(QN_E_UNSUPPORTED,
                   "servers need libcurl, which is not installed");
}

static qn_status load(qn_remote *r)
{
    void *library = qn_remote_library();
    bool good = library != NULL;
#define X(name)                                                                \
    if (good)                                                                  \
        good = (*(void **)&r->name = dlsym(library, #name)) != NULL;
    FUNCTIONS(X)
#undef X
    if (!good)
        return qn_remote_no_library();
    r->curl_global_init(CURL_GLOBAL_DEFAULT);
    r->easy = r->curl_easy_init();
    return r->easy ? QN_OK : QN_E_NOMEM;
}

typedef struct curl_slist *(*append_fn)(struct curl_slist *, const char *);

static qn_status add_header(struct curl_slist **headers, append_fn append,
                            const char *line)
{
    struct curl_slist *more = append(*headers, line);
    if (!more)
        return QN_E_NOMEM;
    *headers = more;
    return QN_OK;
}

qn_status qn_remote_headers(struct curl_slist **headers, append_fn append)
{
    const char *key = getenv("QUERN_API_KEY");
    qn_status status =
        add_header(headers, append, "Content-Type: application/json");
    if (status || !key || !*key)
        return status;
    qn_buf line = QN_BUF_INIT;
    qn_buf_printf(&line, "Authorization: Bearer %s", key);
    status = qn_buf_status(&line);
    if (!status)
        status = add_header(headers, append, line.data);
    qn_buf_free(&line);
    return status;
}

qn_status qn_remote_url(char **out, const char *url)
{
    size_t size = strlen(url);
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
        return qn_fail(QN_E_ARG,
                       "--server %s: expected http://... or https://...", url);
    while (size && url[size - 1] == '/')
        size--;
    bool version = size > 3 && !memcmp(url + size - 3, "/v1", 3);
    qn_buf text = QN_BUF_INIT;
    qn_buf_add(&text, url, size);
    qn_buf_add_text(&text,
                    version ? "/chat/completions" : "/v1/chat/completions");
    *out = qn_buf_take(&text);
    return *out ? QN_OK : QN_E_NOMEM;
}

qn_status qn_remote_new(qn_remote **out, const char *url, const char *model)
{
    qn_remote *r = qn_calloc(1, sizeof *r);
    if (!r)
        return QN_E_NOMEM;
    r->model = model;
    qn_status status = qn_remote_url(&r->url, url);
    if (!status)
        status = load(r);
    if (!status)
        status = qn_remote_headers(&r->headers, r->curl_slist_append);
    if (status)
        qn_remote_free(r);
    else
        *out = r;
    return status;
}

void qn_remote_free(qn_remote *r)
{
    if (!r)
        return;
    if (r->headers)
        r->curl_slist_free_all(r->headers);
    if (r->easy)
        r->curl_easy_cleanup(r->easy);
    qn_free(r->url);
    qn_free(r);
}

/* ---- the request ---- */

static void write_setting(qn_json_writer *w, int flag, const qn_arg *arg)
{
    bool real = flag != QN_FLAG_TOP_K && flag != QN_FLAG_SEED &&
                flag != QN_FLAG_MAX_TOKENS && flag != QN_FLAG_MIN_TOKENS &&
                flag != QN_FLAG_REPETITION_SIZE &&
                flag != QN_FLAG_PRESENCE_SIZE && flag != QN_FLAG_FREQUENCY_SIZE;
    qn_json_write_key(w, qn_args_name(flag));
    if (real)
        qn_json_write_double(w, arg->real);
    else
        qn_json_write_int(w, arg->whole);
}

static qn_status write_body(qn_buf *out, const char *model, const qn_talk *talk,
                            const qn_arg *flags)
{
    qn_buf messages = QN_BUF_INIT;
    qn_json_doc *doc = NULL;
    qn_json_writer w;
    qn_status status = qn_talk_json(talk, &messages);
    if (!status)
        status = qn_json_parse(&doc, qn_buf_str(&messages), 0);
    qn_json_write_begin(&w, out);
    qn_json_write_object(&w);
    qn_json_write_key(&w, "model");
    qn_json_write_text(&w, model);
    qn_json_write_key(&w, "stream");
    qn_json_write_bool(&w, true);
    if (!status) {
        qn_json_write_key(&w, "messages");
        qn_json_write_value(&w, qn_json_root(doc));
    }
    for (const int *f = qn_talk_flags; *f >= 0; f++) {
        const qn_arg *own = &talk->settings.flag[*f];
        if (own->given || flags[*f].given)
            write_setting(&w, *f, own->given ? own : &flags[*f]);
    }
    if (flags[QN_FLAG_IGNORE_EOS].given) {
        qn_json_write_key(&w, "ignore_eos");
        qn_json_write_bool(&w, flags[QN_FLAG_IGNORE_EOS].on);
    }
    if (flags[QN_FLAG_THINK].given) {
        qn_json_write_key(&w, "chat_template_kwargs");
        qn_json_write_object(&w);
        qn_json_write_key(&w, "enable_thinking");
        qn_json_write_bool(&w, flags[QN_FLAG_THINK].on);
        qn_json_write_object_end(&w);
    }
    const qn_arg *stop = &flags[QN_FLAG_STOP];
    if (stop->given) {
        qn_json_write_key(&w, "stop");
        qn_json_write_array(&w);
        for (size_t i = 0; i < stop->list_count; i++)
            qn_json_write_text(&w, stop->list[i]);
        qn_json_write_array_end(&w);
    }
    qn_json_write_object_end(&w);
    qn_json_doc_free(doc);
    qn_buf_free(&messages);
    return status ? status : qn_buf_status(out);
}

/* ---- the answer ---- */

typedef struct answer {
    qn_remote *remote;
    qn_buf line; /* of the stream, until it is whole; or an error's body */
    qn_buf text, thought;
    quern_event_fn on_event;
    void *data;
    quern_finish finish;
    bool stopped; /* by the callback */
    qn_status status;
} answer;

static void take_text(answer *a, quern_event_type type, qn_str text)
{
    qn_buf *to = type == QUERN_EVENT_TEXT ? &a->text : &a->thought;
    if (!text.size)
        return;
    size_t from = to->size;
    qn_buf_add_str(to, text);
    a->status = qn_buf_status(to);
    if (a->status)
        return;
    quern_event event = {
        .type = type, .text = to->data + from, .size = text.size};
    a->stopped = a->on_event && !a->on_event(a->data, &event);
}

static bool take_event(void *data, qn_str event)
{
    answer *a = data;
    qn_delta d;
    a->status = qn_delta_read(&d, event);
    if (a->status)
        return false;
    if (d.refused) {
        qn_str words =
            d.error.size ? d.error : QN_STR("an error without words");
        a->status = qn_fail(QN_E_IO, "the server says: %.*s", (int)words.size,
                            words.data);
    }
    if (!a->status)
        take_text(a, QUERN_EVENT_REASONING, d.thought);
    if (!a->stopped && !a->status)
        take_text(a, QUERN_EVENT_TEXT, d.text);
    if (d.finished)
        a->finish = qn_str_is(d.finish, "length") ? QUERN_FINISH_LENGTH
                                                  : QUERN_FINISH_STOP;
    qn_json_doc_free(d.doc);
    return !a->status && !a->stopped;
}

static long http_status(qn_remote *r)
{
    long code = 0;
    r->curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &code);
    return code;
}

static size_t on_data(char *data, size_t one, size_t size, void *user)
{
    answer *a = user;
    (void)one;
    if (a->line.size + a->text.size + size > ANSWER_LIMIT)
        return 0;
    if (http_status(a->remote) != 200) {
        qn_buf_add(&a->line, data, size);
        return size;
    }
    bool more = qn_sse_add(&a->line, data, size, take_event, a);
    if (more)
        a->status = qn_buf_status(&a->line);
    return more && !a->status ? size : 0;
}

static int on_progress(void *data, curl_off_t a, curl_off_t b, curl_off_t c,
                       curl_off_t d)
{
    (void)data;
    (void)a;
    (void)b;
    (void)c;
    (void)d;
    return qn_cli_interrupted();
}

/* What a body that is no stream says. */
static qn_status refused(answer *a, long code)
{
    qn_json_doc *doc = NULL;
    qn_str words = {"", 0};
    if (!qn_json_parse(&doc, qn_buf_str(&a->line), 0))
        qn_json_as_str(
            qn_json_get(qn_json_get(qn_json_root(doc), "error"), "message"),
            &words);
    qn_status status =
        qn_fail(QN_E_IO, "the server answers %ld%s%.*s", code,
                words.size ? ": " : "", (int)words.size, words.data);
    qn_json_doc_free(doc);
    return status;
}

static qn_status perform(answer *a, const qn_buf *body)
{
    qn_remote *r = a->remote;
    __typeof__(r->curl_easy_setopt) set = r->curl_easy_setopt;
    set(r->easy, CURLOPT_URL, r->url);
    set(r->easy, CURLOPT_HTTPHEADER, r->headers);
    set(r->easy, CURLOPT_POSTFIELDS, body->data);
    set(r->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->size);
    set(r->easy, CURLOPT_WRITEFUNCTION, on_data);
    set(r->easy, CURLOPT_WRITEDATA, a);
    set(r->easy, CURLOPT_XFERINFOFUNCTION, on_progress);
    set(r->easy, CURLOPT_NOPROGRESS, 0L);
    set(r->easy, CURLOPT_NOSIGNAL, 1L);
    set(r->easy, CURLOPT_CONNECTTIMEOUT, 15L);
    CURLcode code = r->curl_easy_perform(r->easy);
    if (a->status)
        return a->status;
    if (a->stopped || qn_cli_interrupted())
        return qn_fail(QN_E_CANCELLED, "cancelled");
    if (code == CURLE_WRITE_ERROR)
        return qn_fail(QN_E_IO, "the server's answer is too long");
    if (code)
        return qn_fail_where(
            qn_fail(QN_E_NETWORK, "%s", r->curl_easy_strerror(code)), "%s",
            r->url);
    long status = http_status(r);
    if (status != 200)
        return refused(a, status);
    qn_sse_finish(&a->line, take_event, a);
    return a->status ? a->status : qn_buf_status(&a->line);
}

qn_status qn_remote_ask(qn_remote *remote, const qn_talk *talk,
                        const qn_arg *flags, quern_event_fn on_event,
                        void *data, quern_result *result)
{
    answer a = {.remote = remote, .on_event = on_event, .data = data};
    qn_buf body = QN_BUF_INIT;
    double began = qn_cli_now();
    *result = (quern_result){.stop = -1, .end_id = -1};
    qn_status status = write_body(&body, remote->model, talk, flags);
    if (!status)
        status = perform(&a, &body);
    if (status == QN_E_CANCELLED)
        a.finish = QUERN_FINISH_CANCELLED;
    result->finish = a.finish;
    result->decode_seconds = qn_cli_now() - began;
    result->size = a.text.size;
    result->reasoning_size = a.thought.size;
    result->text = qn_buf_take(&a.text);
    result->reasoning = qn_buf_take(&a.thought);
    qn_buf_free(&a.line);
    qn_buf_free(&body);
    return status;
}
