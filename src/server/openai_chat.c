/* openai_chat.c: chat completions, from a body to requests (server
 * specification, section 4). */
#include "messages.h"
#include "openai.h"
#include "tools.h"

#define NUM_MAX ((double)INT64_MAX)

#define ROW(name, types, read, member, low, high, range)                       \
    QN_FIELD(qn_openai, name, types, read, member, low, high, range)

enum { TO_THE_END = -2 }; /* of qn_openai.max_tokens */

/* ---- rows of both routes ---- */

/* llama-server's: -1 is as much as the context holds. */
static bool read_n_predict(qn_reading *r, const qn_field *f,
                           const qn_json *value, void *base)
{
    int64_t number = 0;
    qn_json_as_int(value, &number);
    if (number != -1)
        return qn_take_int(r, f, value, base);
    ((qn_openai *)base)->max_tokens = TO_THE_END;
    return true;
}

static bool format_shape(qn_reading *r, const qn_field *f, const qn_json *value,
                         void *base)
{
    (void)f;
    (void)base;
    return qn_field_typed(r, value, "type", QN_STRING) != NULL;
}

static bool read_format(qn_reading *r, const qn_field *f, const qn_json *value,
                        void *base)
{
    (void)f;
    (void)base;
    if (qn_str_is(qn_json_get(value, "type")->text, "text"))
        return true;
    qn_enter(r, "type");
    return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                        "this server writes \"text\" only");
}

static bool read_adapter(qn_reading *r, const qn_field *f, const qn_json *value,
                         void *base)
{
    (void)f;
    (void)base;
    if (qn_str_is(value->text, "none"))
        return true;
    return qn_bad_field(r, QN_API_UNKNOWN_ADAPTER,
                        "the server has no adapter of this name");
}

static bool read_modalities(qn_reading *r, const qn_field *f,
                            const qn_json *value, void *base)
{
    (void)f;
    (void)base;
    for (uint32_t i = 0; i < value->count; i++) {
        size_t before = qn_enter_index(r, i);
        if (!qn_str_is(value->items[i].text, "text"))
            return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                                "this server writes \"text\" only");
        qn_leave(r, before);
    }
    return true;
}

const qn_field qn_openai_fields[] = {
    ROW("n_predict", QN_INT, read_n_predict, max_tokens, 1, NUM_MAX,
        "-1, or 1 or more"),
    QN_FIELD_BY("response_format", QN_OBJECT, format_shape, read_format),
    QN_FIELD_BY("adapter", QN_STRING, NULL, read_adapter),
    QN_FIELD_BY("modalities", QN_ARRAY, qn_shape_texts, read_modalities),
    QN_FIELD_BY("audio", QN_ANY, NULL, qn_take_refused),
    QN_FIELD_BY("prediction", QN_ANY, NULL, qn_take_refused),
    QN_FIELD_BY("web_search_options", QN_ANY, NULL, qn_take_refused),
    QN_FIELD_BY("moderation", QN_ANY, NULL, qn_take_refused),
    QN_FIELD_BY("functions", QN_ARRAY, NULL, qn_take_refused_unless_off),
    QN_FIELD_BY("function_call", QN_STRING | QN_OBJECT, NULL, qn_take_refused),
    QN_FIELD_BY("guided_json", QN_ANY, NULL, qn_take_refused),
    QN_FIELD_BY("guided_regex", QN_ANY, NULL, qn_take_refused),
    QN_FIELD_BY("guided_choice", QN_ANY, NULL, qn_take_refused),
    QN_FIELD_BY("guided_grammar", QN_ANY, NULL, qn_take_refused),
    QN_FIELD_BY("structured_outputs", QN_ANY, NULL, qn_take_refused),
    QN_FIELD_BY("grammar", QN_ANY, NULL, qn_take_refused_unless_off),
    QN_FIELD_BY("json_schema", QN_ANY, NULL, qn_take_refused),
};
const size_t qn_openai_field_count =
    sizeof qn_openai_fields / sizeof *qn_openai_fields;

bool qn_openai_parse(qn_api_call *call, qn_str body,
                     const qn_api_server *server, const qn_field *own,
                     size_t own_count, const char *required,
                     bool (*check)(qn_reading *r, const qn_openai *asked),
                     qn_api_error *error)
{
    qn_reading r = {.call = call, .error = error};
    qn_call_begin(call, server);
    qn_openai *asked = qn_arena_alloc(&call->arena, sizeof *asked);
    if (!asked)
        return qn_reading_no_memory(&r);
    *asked = (qn_openai){.max_tokens = -1};
    call->extra = asked;
    const qn_table tables[] = {
        {own, own_count, asked, NULL},
        {qn_openai_fields, qn_openai_field_count, asked, NULL},
        {qn_call_fields, qn_call_field_count, call, NULL},
        {qn_request_fields, qn_request_field_count, call, &call->given},
        {qn_foreign_fields, qn_foreign_field_count, NULL, NULL},
    };
    enum { TABLES = sizeof tables / sizeof *tables };
    if (!qn_take_body(&r, body))
        return false;
    const qn_json *root = qn_json_root(call->doc);
    return qn_field_required(&r, root, required) &&
           qn_fields_known(&r, root, tables, TABLES) &&
           qn_fields_shape(&r, root, tables, TABLES) &&
           qn_fields_values(&r, root, tables, TABLES) &&
           qn_check_aliases(&r, root, tables, TABLES) && check(&r, asked) &&
           qn_call_check(&r);
}

/* The runtime makes at least one token, which is not shown when none is asked
 * for. */
int64_t qn_openai_length(const qn_openai *asked)
{
    if (asked->max_tokens < 0)
        return asked->max_tokens == TO_THE_END ? -1 : 0;
    return asked->max_tokens ? asked->max_tokens : 1;
}

const char *qn_openai_length_name(const qn_api_call *call)
{
    static const char *const names[] = {"max_completion_tokens", "max_tokens",
                                        "n_predict"};
    const qn_json *body = qn_json_root(call->doc);
    size_t i = 0;
    while (i < 2 && !qn_field_get(body, names[i]))
        i++;
    return names[i];
}

/* ---- chat ---- */

static bool read_logprobs(qn_reading *r, const qn_field *f,
                          const qn_json *value, void *base)
{
    (void)f;
    (void)base;
    r->call->asked.logprobs = value->boolean;
    return true;
}

static bool read_top_logprobs(qn_reading *r, const qn_field *f,
                              const qn_json *value, void *base)
{
    (void)base;
    int32_t number;
    qn_field row = *f;
    row.size = sizeof number;
    if (!qn_take_int(r, &row, value, &number))
        return false;
    r->call->asked.top_logprobs = number;
    return true;
}

bool qn_take_variables(qn_reading *r, const qn_field *f, const qn_json *value,
                       void *base)
{
    static const char *const taken[] = {"messages", "tools"};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (qn_json_get(value, taken[i])) {
            qn_enter(r, taken[i]);
            return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                                "this variable of the template is the "
                                "request's own");
        }
    return qn_take_json(r, f, value, base);
}

static bool read_effort(qn_reading *r, const qn_field *f, const qn_json *value,
                        void *base)
{
    static const char *const efforts[] = {"none", "minimal", "low", "medium",
                                          "high"};
    (void)f;
    for (size_t i = 0; i < sizeof efforts / sizeof *efforts; i++)
        if (qn_str_is(value->text, efforts[i])) {
            ((qn_openai *)base)->effort = efforts[i];
            return true;
        }
    return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                        "expected none, minimal, low, medium or high");
}

static const qn_field chat_fields[] = {
    {"messages", QN_ARRAY, qn_messages_check, offsetof(qn_openai, messages),
     sizeof(qn_json *), 0, 0, NULL, qn_messages_shape},
    ROW("max_completion_tokens", QN_INT, qn_take_int, max_tokens, 1, NUM_MAX,
        "1 or more"),
    ROW("max_tokens", QN_INT, qn_take_int, max_tokens, 1, NUM_MAX, "1 or more"),
    QN_FIELD_BY("logprobs", QN_BOOL, NULL, read_logprobs),
    {"top_logprobs", QN_INT, read_top_logprobs, 0, 0, 0, 20, "0..20", NULL},
    {"chat_template_kwargs", QN_OBJECT, qn_take_variables,
     offsetof(qn_openai, variables), sizeof(qn_json *), 0, 0, NULL, NULL},
    QN_FIELD_BY("reasoning_effort", QN_STRING, NULL, read_effort),
    QN_FIELD_BY("verbosity", QN_STRING, NULL, qn_take_ignored),
    QN_FIELD_BY("tools", QN_ARRAY, qn_chat_tools_shape, qn_take_chat_tools),
    QN_FIELD_BY("tool_choice", QN_STRING | QN_OBJECT, NULL,
                qn_take_tool_choice),
    QN_FIELD_BY("parallel_tool_calls", QN_BOOL, NULL, qn_take_parallel_calls),
    ROW("continue_final_message", QN_BOOL, qn_take_bool, continue_final, 0, 0,
        NULL),
};

static bool check_chat(qn_reading *r, const qn_openai *asked)
{
    const quern_request *q = &r->call->asked;
    if (q->top_logprobs && !q->logprobs) {
        qn_enter(r, "top_logprobs");
        return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                            "this field is only allowed when \"logprobs\" is "
                            "true");
    }
    if (asked->continue_final && !qn_messages_continue(asked->messages)) {
        qn_enter(r, "continue_final_message");
        return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                            "the last message is no text of the assistant");
    }
    return qn_tools_check(r);
}

static bool parse_chat(qn_api_call *call, qn_str body,
                       const qn_api_server *server, qn_api_error *error)
{
    return qn_openai_parse(call, body, server, chat_fields,
                           sizeof chat_fields / sizeof *chat_fields, "messages",
                           check_chat, error);
}

/* ---- beside a model ---- */

/* The template's variables: the body's, and what reasoning_effort means.  A
 * template that knows nothing of reasoning has no use for it. */
static void write_variables(qn_buf *out, qn_api_call *call,
                            const qn_openai *asked, const char *source)
{
    const char *effort = asked->effort;
    const qn_json *given = asked->variables;
    bool thinks = source && (strstr(source, "enable_thinking") ||
                             strstr(source, "reasoning_effort"));
    if (effort && !thinks) {
        qn_ignored_add(&call->ignored, QN_STR("reasoning_effort"));
        effort = NULL;
    }
    qn_json_writer w;
    qn_json_write_begin(&w, out);
    qn_json_write_object(&w);
    for (uint32_t i = 0; given && i < given->count; i++) {
        qn_str key = given->keys[i];
        if (effort && qn_str_is(key, "reasoning_effort"))
            continue;
        if (effort && !strcmp(effort, "none") &&
            qn_str_is(key, "enable_thinking"))
            continue;
        qn_json_write_key_str(&w, key);
        qn_json_write_value(&w, &given->items[i]);
    }
    if (effort && !strcmp(effort, "none")) {
        qn_json_write_key(&w, "enable_thinking");
        qn_json_write_bool(&w, false);
    }
    if (effort) {
        qn_json_write_key(&w, "reasoning_effort");
        qn_json_write_text(&w, effort);
    }
    qn_json_write_object_end(&w);
}

static bool prepare_chat(qn_api_call *call, const qn_api_model *model,
                         const qn_api_head *head, qn_api_error *error)
{
    const qn_openai *asked = call->extra;
    qn_buf messages = QN_BUF_INIT, variables = QN_BUF_INIT;
    quern_info info;
    quern_model_info(model->model, &info);
    /* A text that is continued is one. */
    qn_messages_write(&messages, asked->messages,
                      !asked->continue_final &&
                          qn_template_reads_lists(info.chat_template));
    write_variables(&variables, call, asked, info.chat_template);
    qn_prompt prompt;
    bool good = qn_tools_prepare(call, model->model, error);
    if (good && (messages.failed || variables.failed || call->ignored.failed))
        good = qn_api_fail_memory(error);
    if (good) {
        quern_chat chat = {
            .messages = messages.data,
            .tools = call->tools.json,
            .variables = variables.data,
            .add_generation_prompt = !asked->continue_final,
            .continue_final_message = asked->continue_final,
        };
        good = qn_prompt_of_chat(call, &prompt, model->model, &chat, error);
    }
    qn_buf_free(&messages);
    qn_buf_free(&variables);
    const qn_lengths lengths = {
        .prompt = "messages",
        .max_tokens = qn_openai_length_name(call),
        .asked = qn_openai_length(asked),
        .fallback = model->default_max_tokens,
    };
    return good &&
           qn_prepare_requests(call, model, head, &prompt, 1, &lengths, error);
}

const qn_api_protocol qn_api_chat = {
    .name = "chat",
    .style = QN_API_OPENAI,
    .parse = parse_chat,
    .prepare = prepare_chat,
    .answer = qn_chat_answer,
    .begin = qn_chat_begin,
    .event = qn_openai_event,
    .end = qn_openai_end,
    .error = qn_openai_error,
    .ping = qn_openai_ping,
    .clear = qn_openai_clear,
};
