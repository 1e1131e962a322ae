/* request.c: requests to a model, plain and streamed, through the library's own
 * entry (cases/README.md: before there is a server). */
#include "case.h"

#include "base/alloc.h"
#include "base/file.h"

#include <quern/quern.h>

#include <stdlib.h>
#include <string.h>

/* ---- the request ---- */

enum { MOST_STOPS = 64 };

static const char *stops[MOST_STOPS];

/* `stop`: null, a text, or a list of texts. */
static void read_stops(quern_request *r, const qn_json *value)
{
    qn_str text;
    r->stops = stops;
    if (qn_json_as_str(value, &text))
        stops[r->stop_count++] = case_keep(text);
    for (uint32_t i = 0;
         value && value->type == QN_JSON_T_ARRAY && i < value->count; i++)
        if (qn_json_as_str(&value->items[i], &text) &&
            r->stop_count < MOST_STOPS)
            stops[r->stop_count++] = case_keep(text);
}

static const char *messages_of(const qn_json *body)
{
    qn_buf text = QN_BUF_INIT;
    qn_json_writer w;
    qn_json_write_begin(&w, &text);
    qn_json_write_value(&w, qn_json_get(body, "messages"));
    const char *kept = case_keep(qn_buf_str(&text));
    qn_buf_free(&text);
    return kept;
}

static void read_request(quern_request *r, const qn_json *body, int64_t length)
{
    int64_t more = 0;
    const qn_json *max = qn_json_get(body, "max_tokens");
    r->chat.messages = messages_of(body);
    if (qn_json_as_int(qn_json_get(max, "$pieces"), &more))
        r->max_tokens = length + more;
    else
        qn_json_as_int(max, &r->max_tokens);
    qn_json_as_double(qn_json_get(body, "temperature"),
                      &r->sampling.temperature);
    read_stops(r, qn_json_get(body, "stop"));
}

/* ---- the answers ---- */

typedef struct answer {
    qn_buf content, reasoning;
    const char *finish;
} answer;

static void free_answer(answer *a)
{
    qn_buf_free(&a->content);
    qn_buf_free(&a->reasoning);
}

/* What the rules say about each event. */
typedef struct watch {
    answer *answer;
    qn_str expected; /* content; NULL data: no rule */
} watch;

static bool on_event(void *data, const quern_event *event)
{
    watch *w = data;
    qn_buf *content = &w->answer->content;
    if (event->type == QUERN_EVENT_REASONING)
        qn_buf_add(&w->answer->reasoning, event->text, event->size);
    if (event->type != QUERN_EVENT_TEXT)
        return true;
    qn_buf_add(content, event->text, event->size);
    if (w->expected.data &&
        (content->size > w->expected.size ||
         memcmp(qn_buf_str(content).data, w->expected.data, content->size)))
        case_fail("streamed \"%.*s\", which is no beginning of \"%.*s\"",
                  (int)content->size, qn_buf_str(content).data,
                  (int)w->expected.size, w->expected.data);
    return true;
}

static void check_text(const char *what, qn_str found, const qn_json *wanted)
{
    qn_str text = {"", 0};
    if (!wanted)
        return;
    qn_json_as_str(wanted, &text);
    if (text.size != found.size || memcmp(text.data, found.data, text.size))
        case_fail("%s: expected \"%.*s\", found \"%.*s\"", what, (int)text.size,
                  text.data, (int)found.size, found.data);
}

static void check_answer(const answer *a, const qn_json *wanted)
{
    check_text("content", qn_buf_str(&a->content),
               qn_json_get(wanted, "content"));
    check_text("reasoning", qn_buf_str(&a->reasoning),
               qn_json_get(wanted, "reasoning"));
    check_text("finish_reason", qn_str_of(a->finish),
               qn_json_get(wanted, "finish_reason"));
}

static bool same(const qn_buf *a, const qn_buf *b)
{
    return a->size == b->size &&
           !memcmp(qn_buf_str(a).data, qn_buf_str(b).data, a->size);
}

static const qn_json *rule(const qn_json *expect, const char *name)
{
    const qn_json *rules = qn_json_get(expect, "rules");
    for (uint32_t i = 0; rules && i < rules->count; i++)
        if (qn_str_is(rules->items[i].text, name))
            return &rules->items[i];
    return NULL;
}

/* Every rule of the case must be one that is checked here. */
static void check_rule_names(const qn_json *expect)
{
    static const char *const known[] = {"stream-equals-plain",
                                        "no-stop-prefix-leak"};
    const qn_json *rules = qn_json_get(expect, "rules");
    for (uint32_t i = 0; rules && i < rules->count; i++) {
        bool found = false;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            found |= qn_str_is(rules->items[i].text, known[k]);
        if (!found)
            case_fail("case: rule %u is not known here", i);
    }
}

/* ---- the case ---- */

/* Status 200 or 400 is one of those that the case allows. */
static void check_status(const qn_json *expect, int64_t found)
{
    const qn_json *list = qn_json_get(expect, "status");
    for (uint32_t i = 0; list && i < list->count; i++) {
        int64_t status = 0;
        if (qn_json_as_int(&list->items[i], &status) && status == found)
            return;
    }
    case_fail("status: %lld is not among those expected", (long long)found);
}

static void ask(quern_model *model, const quern_request *request,
                const qn_json *expect)
{
    quern_error error;
    quern_session *session = NULL;
    quern_result result;
    answer plain = {.finish = ""}, streamed = {.finish = ""};
    const qn_json *wanted = qn_json_get(expect, "answer");
    watch w = {.answer = &streamed};
    if (rule(expect, "no-stop-prefix-leak"))
        qn_json_as_str(qn_json_get(wanted, "content"), &w.expected);
    if (quern_session_new(&session, model, &error)) {
        case_fail("%s", error.message);
        return;
    }
    quern_status status =
        quern_generate(session, request, NULL, NULL, &result, &error);
    qn_buf_add(&plain.content, result.text, result.size);
    qn_buf_add(&plain.reasoning, result.reasoning, result.reasoning_size);
    plain.finish = quern_finish_name(result.finish);
    quern_result_free(&result);
    if (status && status != QUERN_E_ARG)
        case_fail("%s: %s", error.where, error.message);
    check_status(expect, status ? 400 : 200);
    if (!status) {
        check_answer(&plain, wanted);
        quern_session_reset(session);
        if (quern_generate(session, request, on_event, &w, &result, &error))
            case_fail("streamed: %s", error.message);
        streamed.finish = quern_finish_name(result.finish);
        quern_result_free(&result);
        check_answer(&streamed, wanted);
        if (rule(expect, "stream-equals-plain") &&
            (!same(&plain.content, &streamed.content) ||
             !same(&plain.reasoning, &streamed.reasoning)))
            case_fail("streamed and plain answers differ");
    }
    free_answer(&plain);
    free_answer(&streamed);
    quern_session_free(session);
}

static void run_once(const qn_json *c, const case_context *context,
                     uint32_t which)
{
    const qn_json *server = qn_json_get(c, "server");
    const qn_json *script = qn_json_get(server, "script");
    const qn_json *body = qn_json_get(qn_json_get(c, "request"), "json");
    char name[32];
    snprintf(name, sizeof name, "model-%u", which);
    char *folder = qn_path_join(context->scratch, name);
    qn_buf source = QN_BUF_INIT;
    qn_buf_printf(&source, "%s/fixtures/%s", context->folder,
                  case_keep(case_text(server, "model")));
    int64_t length = 0;
    bool good = folder && case_copy_folder(source.data, folder) &&
                case_patch_config(folder, qn_json_get(server, "config_patch"));
    if (!good)
        case_fail("case: the model can't be prepared");
    if (good && script)
        case_write_script(folder, script, which, &length);
    quern_model *model = NULL;
    quern_error error;
    if (good && length >= 0) {
        if (quern_model_load(&model, folder, NULL, &error)) {
            case_fail("%s: %s", error.where, error.message);
        } else {
            quern_request request;
            quern_request_init(&request, model);
            read_request(&request, body, length);
            ask(model, &request, qn_json_get(c, "expect"));
        }
    }
    quern_model_free(model);
    qn_buf_free(&source);
    qn_free(folder);
}

void run_request_case(const qn_json *c, const case_context *context)
{
    const qn_json *sizes = qn_json_get(
        qn_json_get(qn_json_get(c, "server"), "script"), "piece_size");
    bool list = sizes && sizes->type == QN_JSON_T_ARRAY;
    check_rule_names(qn_json_get(c, "expect"));
    for (uint32_t i = 0; i < (list ? sizes->count : 1); i++)
        run_once(c, context, i);
}
