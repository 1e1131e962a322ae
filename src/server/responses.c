/* responses.c: OpenAI's Responses, from a body to a request (server
 * specification, section 8). */
#include "responses.h"
#include "responses_store.h"
#include "tools.h"

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))
#define NUM_MAX ((double)INT64_MAX)

#define ROW(name, types, read, member, low, high, range)                       \
    QN_FIELD(qn_asked_response, name, types, read, member, low, high, range)
#define CALL_ROW(name, types) QN_FIELD_BY(name, types, NULL, qn_take_call_field)

/* ---- objects of the body ---- */

static bool read_format(qn_reading *r, const qn_field *f, const qn_json *value,
                        void *base)
{
    (void)f;
    (void)base;
    const qn_json *type = qn_field_typed(r, value, "type", QN_STRING);
    if (!type || qn_str_is(type->text, "text"))
        return type != NULL;
    qn_enter(r, "type");
    return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                        "this server writes \"text\" only");
}

static const qn_field text_rows[] = {
    QN_FIELD_BY("format", QN_OBJECT, NULL, read_format),
    QN_FIELD_BY("verbosity", QN_STRING, NULL, qn_take_ignored),
};
static const qn_field reasoning_rows[] = {
    ROW("effort", QN_STRING, qn_take_json, effort, 0, 0, NULL),
    /* What there is of thoughts is shown in any case. */
    QN_FIELD_BY("summary", QN_STRING, NULL, qn_take_nothing),
    QN_FIELD_BY("generate_summary", QN_STRING, NULL, qn_take_nothing),
};
static const qn_field stream_rows[] = {
    QN_FIELD_BY("include_obfuscation", QN_BOOL, NULL, qn_take_ignored),
};

static qn_table part_table(const qn_field *f, void *base)
{
    if (!strcmp(f->name, "text"))
        return (qn_table){text_rows, COUNT(text_rows), base, NULL};
    if (!strcmp(f->name, "reasoning"))
        return (qn_table){reasoning_rows, COUNT(reasoning_rows), base, NULL};
    return (qn_table){stream_rows, COUNT(stream_rows), base, NULL};
}

static bool part_shape(qn_reading *r, const qn_field *f, const qn_json *value,
                       void *base)
{
    qn_table table = part_table(f, base);
    return qn_fields_known(r, value, &table, 1) &&
           qn_fields_shape(r, value, &table, 1);
}

static bool read_part(qn_reading *r, const qn_field *f, const qn_json *value,
                      void *base)
{
    qn_table table = part_table(f, base);
    return qn_fields_values(r, value, &table, 1);
}

static bool read_include(qn_reading *r, const qn_field *f, const qn_json *value,
                         void *base)
{
    (void)f;
    (void)base;
    for (uint32_t i = 0; i < value->count; i++) {
        size_t before = qn_enter_index(r, i);
        qn_str what = value->items[i].text;
        if (qn_str_is(what, "message.output_text.logprobs"))
            r->call->asked.logprobs = true;
        else if (qn_str_is(what, "reasoning.encrypted_content"))
            qn_ignored_add(&r->call->ignored, qn_str_of(r->path));
        else
            return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                                "the server has nothing of that kind");
        qn_leave(r, before);
    }
    return true;
}

static bool read_top_logprobs(qn_reading *r, const qn_field *f,
                              const qn_json *value, void *base)
{
    (void)base;
    int32_t number = 0;
    qn_field row = *f;
    row.to = 0;
    row.size = sizeof number;
    if (!qn_take_int(r, &row, value, &number))
        return false;
    r->call->asked.top_logprobs = number;
    return true;
}

static bool read_truncation(qn_reading *r, const qn_field *f,
                            const qn_json *value, void *base)
{
    (void)f;
    (void)base;
    return qn_str_is(value->text, "disabled") ||
           qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                        "expected \"disabled\": no prompt is cut");
}

static bool check_effort(qn_reading *r, const qn_json *effort)
{
    static const char *const efforts[] = {"none", "minimal", "low", "medium",
                                          "high"};
    if (!effort)
        return true;
    for (size_t i = 0; i < sizeof efforts / sizeof *efforts; i++)
        if (qn_str_is(effort->text, efforts[i]))
            return true;
    qn_enter(r, "reasoning");
    qn_enter(r, "effort");
    return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                        "expected none, minimal, low, medium or high");
}

static bool read_tools(qn_reading *r, const qn_field *f, const qn_json *value,
                       void *base)
{
    return qn_take_json(r, f, value, base) &&
           qn_take_flat_tools(r, f, value, base);
}

static bool read_choice(qn_reading *r, const qn_field *f, const qn_json *value,
                        void *base)
{
    return qn_take_json(r, f, value, base) &&
           qn_take_tool_choice(r, f, value, base);
}

static const qn_field rows[] = {
    CALL_ROW("model", QN_STRING),
    CALL_ROW("stream", QN_BOOL),
    {"input", QN_STRING | QN_ARRAY, qn_take_json,
     offsetof(qn_asked_response, input), sizeof(qn_json *), 0, 0, NULL,
     qn_items_shape},
    ROW("instructions", QN_STRING, qn_take_text, instructions, 0, 0, NULL),
    ROW("max_output_tokens", QN_INT, qn_take_int, max_tokens, 1, NUM_MAX,
        "1 or more"),
    ROW("previous_response_id", QN_STRING, qn_take_text, previous, 0, 0, NULL),
    ROW("store", QN_BOOL, qn_take_bool, store, 0, 0, NULL),
    ROW("metadata", QN_OBJECT, qn_take_json, metadata, 0, 0, NULL),
    QN_FIELD_BY("parallel_tool_calls", QN_BOOL, NULL, qn_take_parallel_calls),
    QN_FIELD_BY("text", QN_OBJECT, part_shape, read_part),
    QN_FIELD_BY("reasoning", QN_OBJECT, part_shape, read_part),
    QN_FIELD_BY("stream_options", QN_OBJECT, part_shape, read_part),
    QN_FIELD_BY("include", QN_ARRAY, qn_shape_texts, read_include),
    {"top_logprobs", QN_INT, read_top_logprobs, 0, 0, 0, 20, "0..20", NULL},
    QN_FIELD_BY("truncation", QN_STRING, NULL, read_truncation),
    QN_FIELD_BY("background", QN_BOOL, NULL, qn_take_refused_unless_off),
    QN_FIELD_BY("conversation", QN_ANY, NULL, qn_take_refused),
    QN_FIELD_BY("prompt", QN_OBJECT, NULL, qn_take_refused),
    {"tools", QN_ARRAY, read_tools, offsetof(qn_asked_response, tools),
     sizeof(qn_json *), 0, 0, NULL, qn_flat_tools_shape},
    ROW("tool_choice", QN_STRING | QN_OBJECT, read_choice, tool_choice, 0, 0,
        NULL),
    QN_FIELD_BY("max_tool_calls", QN_INT, NULL, qn_take_nothing),
    QN_FIELD_BY("grammar", QN_ANY, NULL, qn_take_refused_unless_off),
    QN_FIELD_BY("json_schema", QN_ANY, NULL, qn_take_refused),
    QN_FIELD_BY("moderation", QN_ANY, NULL, qn_take_refused),
    QN_FIELD_BY("context_management", QN_ARRAY, NULL, qn_take_ignored),
    CALL_ROW("service_tier", QN_STRING),
    CALL_ROW("safety_identifier", QN_STRING),
    CALL_ROW("prompt_cache_retention", QN_STRING),
    CALL_ROW("prompt_cache_options", QN_OBJECT),
    CALL_ROW("user", QN_STRING),
    CALL_ROW("prompt_cache_key", QN_STRING),
    CALL_ROW("cache_salt", QN_STRING),
    CALL_ROW("cache_prompt", QN_BOOL),
    CALL_ROW("keep_alive", QN_INT | QN_STRING),
};

static bool parse(qn_api_call *call, qn_str body, const qn_api_server *server,
                  qn_api_error *error)
{
    qn_reading r = {.call = call, .error = error};
    qn_call_begin(call, server);
    qn_asked_response *a = qn_arena_alloc(&call->arena, sizeof *a);
    if (!a)
        return qn_api_fail_memory(error);
    *a = (qn_asked_response){.store = true};
    call->extra = a;
    const qn_table tables[] = {
        {rows, COUNT(rows), a, NULL},
        {qn_request_fields, qn_request_field_count, call, &call->given},
        {qn_foreign_fields, qn_foreign_field_count, NULL, NULL},
    };
    enum { TABLES = sizeof tables / sizeof *tables };
    if (!qn_take_body(&r, body))
        return false;
    const qn_json *root = qn_json_root(call->doc);
    if (!qn_field_required(&r, root, "input") ||
        !qn_fields_known(&r, root, tables, TABLES) ||
        !qn_fields_shape(&r, root, tables, TABLES) ||
        !qn_fields_values(&r, root, tables, TABLES) ||
        !qn_check_aliases(&r, root, tables, TABLES) ||
        !check_effort(&r, a->effort))
        return false;
    if (call->asked.top_logprobs && !call->asked.logprobs) {
        qn_enter(&r, "top_logprobs");
        return qn_bad_field(&r, QN_API_UNSUPPORTED_VALUE,
                            "this field is only allowed when \"include\" has "
                            "\"message.output_text.logprobs\"");
    }
    /* Clients say so with an empty list, too, and no call is what they get. */
    if (!call->tools.list && call->tools.choice <= QN_CHOICE_AUTO)
        call->tools.choice = QN_CHOICE_UNSAID;
    return qn_tools_check(&r) && qn_call_check(&r);
}

/* ---- beside a model ---- */

/* The messages that came before, of the response that is gone on with. */
static bool take_previous(const qn_api_call *call, const qn_api_head *head,
                          qn_buf *messages, qn_api_error *error)
{
    const qn_asked_response *a = call->extra;
    qn_responses *store = call->server->responses;
    if (!a->previous)
        return true;
    if (!store || !qn_responses_get(store, head->space ? head->space : "",
                                    a->previous, head->created, NULL, messages))
        return qn_api_fail(error, QN_API_RESPONSE_NOT_FOUND,
                           "previous_response_id",
                           "there is no such response (any more)");
    return messages->failed ? qn_api_fail_memory(error) : true;
}

static bool take_messages(qn_api_call *call, const qn_api_head *head,
                          qn_buf *all, qn_api_error *error)
{
    qn_asked_response *a = call->extra;
    qn_reading r = {.call = call, .error = error};
    qn_buf own = QN_BUF_INIT;
    bool good = take_previous(call, head, &own, error) &&
                qn_items_read(&r, a->input, &own);
    if (good && !qn_arena_copy(&call->arena, &a->messages, qn_buf_str(&own)))
        good = qn_api_fail_memory(error);
    qn_buf_add_char(all, '[');
    if (a->instructions) {
        qn_buf_add_text(all, "{\"role\":\"system\",\"content\":");
        qn_json_quote(all, qn_str_of(a->instructions));
        qn_buf_add_text(all, "},");
    }
    qn_buf_add_str(all, qn_buf_str(&own));
    qn_buf_add_char(all, ']');
    qn_buf_free(&own);
    return good && all->failed ? qn_api_fail_memory(error) : good;
}

/* Variables of a template that knows of reasoning; else "". */
static void write_variables(qn_buf *out, qn_api_call *call, const char *source)
{
    const qn_json *effort = ((qn_asked_response *)call->extra)->effort;
    bool switched = source && strstr(source, "enable_thinking");
    bool graded = source && strstr(source, "reasoning_effort");
    if (!effort)
        return;
    if (!switched && !graded) {
        qn_ignored_add(&call->ignored, QN_STR("reasoning.effort"));
        return;
    }
    qn_buf_add_text(out, "{\"reasoning_effort\":");
    qn_json_quote(out, effort->text);
    if (qn_str_is(effort->text, "none"))
        qn_buf_add_text(out, ",\"enable_thinking\":false");
    qn_buf_add_char(out, '}');
}

static bool prepare(qn_api_call *call, const qn_api_model *model,
                    const qn_api_head *head, qn_api_error *error)
{
    const qn_asked_response *a = call->extra;
    qn_buf messages = QN_BUF_INIT, variables = QN_BUF_INIT;
    quern_info info;
    qn_prompt prompt;
    quern_model_info(model->model, &info);
    write_variables(&variables, call, info.chat_template);
    bool good = take_messages(call, head, &messages, error) &&
                qn_tools_prepare(call, model->model, error);
    if (good && (variables.failed || call->ignored.failed))
        good = qn_api_fail_memory(error);
    if (good) {
        const quern_chat chat = {.messages = messages.data,
                                 .tools = call->tools.json,
                                 .variables = variables.data,
                                 .add_generation_prompt = true};
        good = qn_prompt_of_chat(call, &prompt, model->model, &chat, error);
    }
    qn_buf_free(&messages);
    qn_buf_free(&variables);
    const qn_lengths lengths = {.prompt = "input",
                                .max_tokens = "max_output_tokens",
                                .asked = a->max_tokens,
                                .fallback = model->default_max_tokens};
    return good &&
           qn_prepare_requests(call, model, head, &prompt, 1, &lengths, error);
}

const qn_api_protocol qn_api_responses = {
    .name = "responses",
    .style = QN_API_OPENAI,
    .parse = parse,
    .prepare = prepare,
    .answer = qn_response_answer,
    .begin = qn_response_begin,
    .event = qn_response_event,
    .end = qn_response_end,
    .error = qn_response_error,
    .ping = qn_openai_ping,
    .clear = qn_response_clear,
};
