/* fit.c: GET /v1/fit: what a model would take in memory (server specification,
 * section 10).  Its "body" is the query. */
#include "head.h"
#include "openai.h"

#include <string.h>

enum { MAX_PARALLEL = 1024 };

typedef struct question {
    int64_t context, parallel; /* 0: as the model is loaded */
} question;

static bool keep_name(qn_api_call *call, qn_str query, qn_api_error *error)
{
    qn_buf text = QN_BUF_INIT;
    bool good = true;
    if (qn_query_get(query, "model", &text)) {
        qn_buf_add_char(&text, '\0');
        char *name = qn_arena_alloc(&call->arena, text.size);
        good = !qn_buf_status(&text) && name;
        if (good)
            memcpy(name, text.data, text.size);
        call->model = name;
    }
    qn_buf_free(&text);
    return good || qn_api_fail_memory(error);
}

/* A whole number of the query; false after an error. */
static bool read_number(qn_str query, const char *name, int64_t most,
                        int64_t *out, qn_api_error *error)
{
    qn_buf text = QN_BUF_INIT;
    bool good = true;
    if (qn_query_get(query, name, &text))
        good =
            qn_json_int64(qn_buf_str(&text), out) && *out >= 1 && *out <= most;
    qn_buf_free(&text);
    return good || qn_api_fail(error, QN_API_OUT_OF_RANGE, name,
                               "%s: expected a number from 1 to %lld", name,
                               (long long)most);
}

static bool parse(qn_api_call *call, qn_str query, const qn_api_server *server,
                  qn_api_error *error)
{
    question *asked = qn_arena_alloc(&call->arena, sizeof *asked);
    qn_call_begin(call, server);
    call->kind = QN_API_ANSWERED;
    call->extra = asked;
    if (!asked)
        return qn_api_fail_memory(error);
    *asked = (question){0};
    return keep_name(call, query, error) &&
           read_number(query, "context", INT64_MAX, &asked->context, error) &&
           read_number(query, "parallel", MAX_PARALLEL, &asked->parallel,
                       error);
}

static bool prepare(qn_api_call *call, const qn_api_model *model,
                    const qn_api_head *head, qn_api_error *error)
{
    const question *asked = call->extra;
    quern_info info;
    quern_error cause;
    quern_fit fit;
    char *json;
    (void)head;
    quern_model_info(model->model, &info);
    if (asked->context > info.max_ctx)
        return qn_api_fail(error, QN_API_OUT_OF_RANGE, "context",
                           "context: expected a number from 1 to %lld",
                           (long long)info.max_ctx);
    const quern_fit_options options = {
        .ctx = asked->context ? asked->context : model->ctx,
        .parallel = asked->parallel ? (int)asked->parallel : model->parallel,
        .kv_budget = model->kv_asked,
        .machine = model->machine,
    };
    if (quern_model_fit(&fit, model->model, &options, &cause) ||
        quern_fit_json(&fit, &json, &cause))
        return qn_api_fail_runtime(error, &cause);
    qn_buf_add_text(&call->body, json);
    quern_free(json);
    return qn_buf_status(&call->body) ? qn_api_fail_memory(error) : true;
}

const qn_api_protocol qn_api_fit = {
    .name = "fit",
    .style = QN_API_OPENAI,
    .scope = QN_API_HEADERS,
    .parse = parse,
    .prepare = prepare,
};
