/* serve.c: a server without sockets (serve.h). */
#include "serve.h"

#include "base/alloc.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_JOBS = 1024, DEFAULT_MAX_TOKENS = 4096, MAX_TEMPLATE = 1 << 20 };

static const struct {
    const char *path;
    const qn_api_protocol *protocol;
} routes[] = {
    {"/v1/chat/completions", &qn_api_chat},
    {"/v1/completions", &qn_api_completions},
};

/* ---- the server ---- */

static const char *flag_value(const qn_json *server, const char *name)
{
    const qn_json *flags = qn_json_get(server, "flags");
    for (uint32_t i = 0; flags && i + 1 < flags->count; i++)
        if (qn_str_is(flags->items[i].text, name))
            return case_keep(flags->items[i + 1].text);
    return NULL;
}

static char *read_template(const qn_json *server, const char *fixtures)
{
    const qn_json *name = qn_json_get(server, "template");
    qn_str text;
    qn_buf path = QN_BUF_INIT;
    char *source = NULL;
    size_t size;
    if (!qn_json_as_str(name, &text))
        return NULL;
    qn_buf_printf(&path, "%s/%.*s", fixtures, (int)text.size, text.data);
    if (qn_file_read(&source, &size, path.data, MAX_TEMPLATE))
        case_fail("case: %s", qn_error_text());
    qn_buf_free(&path);
    return source;
}

bool case_server_open(case_server *out, const char *folder,
                      const qn_json *server, const char *fixtures)
{
    quern_options options;
    quern_error error;
    quern_info info;
    const char *ctx = flag_value(server, "--ctx");
    char *source = read_template(server, fixtures);
    *out = (case_server){0};
    quern_options_init(&options);
    options.ctx = ctx ? strtoll(ctx, NULL, 10) : 0;
    options.chat_template = source;
    bool good = !quern_model_load(&out->model, folder, &options, &error);
    qn_free(source);
    if (!good) {
        case_fail("%s: %s", error.where, error.message);
        return false;
    }
    quern_model_info(out->model, &info);
    out->facts = (qn_api_model){.id = "m",
                                .fingerprint = "quern-0-0",
                                .model = out->model,
                                .ctx = info.ctx,
                                .default_max_tokens = DEFAULT_MAX_TOKENS};
    return true;
}

void case_server_close(case_server *server)
{
    quern_model_free(server->model);
    server->model = NULL;
}

/* ---- what was answered ---- */

void case_reply_free(case_reply *reply)
{
    for (size_t i = 0; i < reply->count; i++)
        qn_json_doc_free(reply->events[i]);
    qn_json_doc_free(reply->doc);
    qn_buf_free(&reply->body);
    free(reply);
}

const qn_json *case_reply_root(const case_reply *reply)
{
    return reply->doc ? qn_json_root(reply->doc) : NULL;
}

const qn_json *case_reply_event(const case_reply *reply, size_t index)
{
    return index < reply->count ? qn_json_root(reply->events[index]) : NULL;
}

/* One event: lines of "data: ", or comments. */
static void read_event(case_reply *reply, qn_str text)
{
    if (text.size && text.data[0] == ':')
        return;
    if (text.size < 6 || memcmp(text.data, "data: ", 6) || reply->done) {
        reply->broken = true;
        return;
    }
    qn_str data = {text.data + 6, text.size - 6};
    qn_json_doc *doc = NULL;
    if (qn_str_is(data, "[DONE]"))
        reply->done = true;
    else if (reply->count == REPLY_EVENTS || qn_json_parse(&doc, data, 0) ||
             qn_json_root(doc)->type != QN_JSON_T_OBJECT)
        reply->broken = true;
    else
        reply->events[reply->count++] = doc;
}

static void read_events(case_reply *reply)
{
    qn_str rest = qn_buf_str(&reply->body);
    while (rest.size) {
        const char *end = rest.data;
        size_t left = rest.size;
        while (left >= 2 && memcmp(end, "\n\n", 2)) {
            end++;
            left--;
        }
        if (left < 2) {
            reply->broken = true;
            return;
        }
        read_event(reply, (qn_str){rest.data, (size_t)(end - rest.data)});
        rest = (qn_str){end + 2, left - 2};
    }
}

static void reply_error(case_reply *reply, const qn_api_error *error,
                        const qn_api_protocol *p)
{
    reply->status = qn_api_code_status(error->code, p->style);
    qn_buf_clear(&reply->body);
    qn_api_error_write(&reply->body, error, p->style, "req_1");
}

/* ---- the work ---- */

typedef struct work {
    const qn_api_protocol *protocol;
    qn_api_call call;
    qn_api_head head;
    quern_job *jobs[MOST_JOBS];
    quern_result results[MOST_JOBS];
    case_reply *reply;
} work;

static bool submit(work *w, quern_model *model, qn_api_error *error)
{
    quern_error cause;
    for (size_t i = 0; i < w->call.count; i++)
        if (quern_submit(&w->jobs[i], model, NULL, &w->call.requests[i],
                         &cause))
            return qn_api_fail_runtime(error, &cause);
    return true;
}

static bool wait_for_all(work *w, qn_api_error *error)
{
    quern_error cause;
    for (size_t i = 0; i < w->call.count; i++)
        if (quern_job_result(w->jobs[i], &w->results[i], &cause))
            return qn_api_fail_runtime(error, &cause);
    w->protocol->answer(&w->reply->body, &w->call, &w->head, w->results);
    return true;
}

/* A request's events after another: the order of a stream's chunks is only
 * given within a choice. */
static bool stream_one(work *w, qn_api_stream *s, size_t index, bool *begun,
                       qn_api_error *error)
{
    quern_event event = {0};
    while (quern_job_next(w->jobs[index], -1, &event)) {
        bool done = event.type == QUERN_EVENT_DONE;
        if (done && event.error->status)
            return qn_api_fail_runtime(error, event.error);
        if (!*begun)
            w->protocol->begin(s, &w->reply->body);
        *begun = true;
        w->protocol->event(s, index, &event, 1, &w->reply->body);
        if (done)
            break;
    }
    return true;
}

static bool stream_all(work *w, qn_api_error *error)
{
    qn_api_stream s = {.call = &w->call, .head = &w->head};
    bool begun = false, good = true;
    for (size_t i = 0; i < w->call.count && good; i++)
        good = stream_one(w, &s, i, &begun, error);
    w->reply->stream = begun;
    if (good)
        w->protocol->end(&s, &w->reply->body);
    else if (begun)
        w->protocol->error(&s, error, &w->reply->body);
    w->protocol->clear(&s);
    return good || begun;
}

static void work_free(work *w)
{
    for (size_t i = 0; i < w->call.count; i++) {
        quern_result_free(&w->results[i]);
        quern_job_free(w->jobs[i]);
    }
    qn_api_call_free(&w->call);
    free(w);
}

void case_send(const case_server *server, const char *path, qn_str body,
               case_reply *out)
{
    static uint64_t number;
    const qn_api_protocol *p = NULL;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (!strcmp(routes[i].path, path))
            p = routes[i].protocol;
    if (!p) {
        case_fail("case: %s is no route here", path);
        return;
    }
    work *w = calloc(1, sizeof *w);
    qn_api_error error = {0};
    number++;
    w->protocol = p;
    w->reply = out;
    w->head = (qn_api_head){.created = 1700000000,
                            .random = {1, number},
                            .seed = number * 1000,
                            .request_id = "req_1",
                            .model = server->facts.id,
                            .fingerprint = server->facts.fingerprint};
    bool good =
        p->parse(&w->call, body, &server->policy, &error) &&
        p->prepare(&w->call, &server->facts, &w->head, &error) &&
        submit(w, server->model, &error) &&
        (w->call.stream ? stream_all(w, &error) : wait_for_all(w, &error));
    out->status = 200;
    if (!good)
        reply_error(out, &error, p);
    work_free(w);
    if (out->stream)
        read_events(out);
    else if (qn_json_parse(&out->doc, qn_buf_str(&out->body), 0))
        case_fail("the answer is no JSON: %s", qn_error_text());
}
