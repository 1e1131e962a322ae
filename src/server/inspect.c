/* inspect.c: texts, tokens and prompts as the model sees them: tokenize,
 * detokenize and apply-template (server specification, section 3). */
#include "base/utf8.h"
#include "messages.h"
#include "openai.h"
#include "tools.h"

/* The fields of all three; call->extra. */
typedef struct inspection {
    const qn_json *content, *tokens, *messages, *tools, *variables;
    bool add_special, parse_special, with_pieces, skip_special;
    bool add_generation_prompt, continue_final;
} inspection;

#define ROW(name, types, read, member)                                         \
    QN_FIELD(inspection, name, types, read, member, 0, 0, NULL)
#define MODEL_ROW QN_FIELD_BY("model", QN_STRING, NULL, qn_take_call_field)

static bool parse(qn_api_call *call, qn_str body, const qn_api_server *server,
                  const qn_field *rows, size_t count, const char *required,
                  qn_api_error *error)
{
    qn_reading r = {.call = call, .error = error};
    qn_call_begin(call, server);
    call->kind = QN_API_ANSWERED;
    inspection *asked = qn_arena_alloc(&call->arena, sizeof *asked);
    if (!asked)
        return qn_api_fail_memory(error);
    *asked = (inspection){.parse_special = true, .add_generation_prompt = true};
    call->extra = asked;
    const qn_table table = {rows, count, asked, NULL};
    if (!qn_take_body(&r, body))
        return false;
    const qn_json *root = qn_json_root(call->doc);
    if (!qn_field_required(&r, root, required) ||
        !qn_fields_known(&r, root, &table, 1) ||
        !qn_fields_shape(&r, root, &table, 1) ||
        !qn_fields_values(&r, root, &table, 1) || !qn_call_check(&r))
        return false;
    if (!asked->continue_final || qn_messages_continue(asked->messages))
        return true;
    qn_enter(&r, "continue_final_message");
    return qn_bad_field(&r, QN_API_UNSUPPORTED_VALUE,
                        "the last message is no text of the assistant");
}

static void write_ids(qn_json_writer *w, const int32_t *ids, size_t count)
{
    qn_json_write_key(w, "tokens");
    qn_json_write_array(w);
    for (size_t i = 0; i < count; i++)
        qn_json_write_int(w, ids[i]);
    qn_json_write_array_end(w);
}

static bool finish(qn_api_call *call, qn_api_error *error)
{
    return call->body.failed ? qn_api_fail_memory(error) : true;
}

/* ---- tokenize ---- */

static const qn_field tokenize_rows[] = {
    MODEL_ROW,
    ROW("content", QN_STRING, qn_take_json, content),
    ROW("add_special", QN_BOOL, qn_take_bool, add_special),
    ROW("parse_special", QN_BOOL, qn_take_bool, parse_special),
    ROW("with_pieces", QN_BOOL, qn_take_bool, with_pieces),
};

static bool parse_tokenize(qn_api_call *call, qn_str body,
                           const qn_api_server *server, qn_api_error *error)
{
    return parse(call, body, server, tokenize_rows,
                 sizeof tokenize_rows / sizeof *tokenize_rows, "content",
                 error);
}

/* A token may be a part of a character: its bytes are numbers then. */
static void write_piece(qn_json_writer *w, qn_str bytes)
{
    if (qn_utf8_valid(bytes, NULL)) {
        qn_json_write_str(w, bytes);
        return;
    }
    qn_json_write_array(w);
    for (size_t i = 0; i < bytes.size; i++)
        qn_json_write_int(w, (uint8_t)bytes.data[i]);
    qn_json_write_array_end(w);
}

static bool write_pieces(qn_json_writer *w, const quern_model *model,
                         const int32_t *ids, size_t count, qn_api_error *error)
{
    quern_error cause;
    qn_json_write_key(w, "tokens");
    qn_json_write_array(w);
    for (size_t i = 0; i < count; i++) {
        char *bytes;
        size_t size;
        if (quern_token_bytes(model, ids[i], &bytes, &size, &cause))
            return qn_api_fail_runtime(error, &cause);
        qn_json_write_object(w);
        qn_json_write_key(w, "id");
        qn_json_write_int(w, ids[i]);
        qn_json_write_key(w, "piece");
        write_piece(w, (qn_str){bytes, size});
        qn_json_write_object_end(w);
        quern_free(bytes);
    }
    qn_json_write_array_end(w);
    return true;
}

static bool prepare_tokenize(qn_api_call *call, const qn_api_model *model,
                             const qn_api_head *head, qn_api_error *error)
{
    const inspection *asked = call->extra;
    qn_str text = asked->content->text;
    unsigned flags = (asked->add_special ? QUERN_ADD_SPECIAL : 0U) |
                     (asked->parse_special ? QUERN_PARSE_SPECIAL : 0U);
    int32_t *ids;
    size_t count;
    quern_error cause;
    qn_json_writer w;
    bool good = true;
    (void)head;
    if (quern_tokenize(model->model, text.data, text.size, flags, &ids, &count,
                       &cause))
        return qn_api_fail_runtime(error, &cause);
    qn_json_write_begin(&w, &call->body);
    qn_json_write_object(&w);
    if (asked->with_pieces)
        good = write_pieces(&w, model->model, ids, count, error);
    else
        write_ids(&w, ids, count);
    qn_json_write_object_end(&w);
    quern_free(ids);
    return good && finish(call, error);
}

const qn_api_protocol qn_api_tokenize = {
    .name = "tokenize",
    .style = QN_API_OPENAI,
    .parse = parse_tokenize,
    .prepare = prepare_tokenize,
};

/* ---- detokenize ---- */

static bool tokens_shape(qn_reading *r, const qn_field *f, const qn_json *value,
                         void *base)
{
    (void)f;
    (void)base;
    for (uint32_t i = 0; i < value->count; i++) {
        size_t before = qn_enter_index(r, i);
        if (!qn_check_type(r, &value->items[i], QN_INT))
            return false;
        qn_leave(r, before);
    }
    return true;
}

static const qn_field detokenize_rows[] = {
    MODEL_ROW,
    {"tokens", QN_ARRAY, qn_take_json, offsetof(inspection, tokens),
     sizeof(qn_json *), 0, 0, NULL, tokens_shape},
    ROW("skip_special", QN_BOOL, qn_take_bool, skip_special),
};

static bool parse_detokenize(qn_api_call *call, qn_str body,
                             const qn_api_server *server, qn_api_error *error)
{
    return parse(call, body, server, detokenize_rows,
                 sizeof detokenize_rows / sizeof *detokenize_rows, "tokens",
                 error);
}

static bool take_ids(qn_api_call *call, int32_t **out, const qn_json *list,
                     const quern_model *model, qn_api_error *error)
{
    quern_info info;
    quern_model_info(model, &info);
    *out = qn_arena_alloc(&call->arena, (list->count + 1) * sizeof **out);
    if (!*out)
        return qn_api_fail_memory(error);
    for (uint32_t i = 0; i < list->count; i++) {
        int64_t id;
        if (!qn_take_id(&id, list, i, info.token_count, "tokens", error))
            return false;
        (*out)[i] = (int32_t)id;
    }
    return true;
}

static bool prepare_detokenize(qn_api_call *call, const qn_api_model *model,
                               const qn_api_head *head, qn_api_error *error)
{
    const inspection *asked = call->extra;
    int32_t *ids;
    char *text;
    size_t size;
    quern_error cause;
    qn_json_writer w;
    (void)head;
    if (!take_ids(call, &ids, asked->tokens, model->model, error))
        return false;
    if (quern_detokenize(model->model, ids, asked->tokens->count,
                         asked->skip_special, &text, &size, &cause))
        return qn_api_fail_runtime(error, &cause);
    qn_json_write_begin(&w, &call->body);
    qn_json_write_object(&w);
    qn_json_write_key(&w, "content");
    qn_json_write_str(&w, (qn_str){text, size});
    qn_json_write_object_end(&w);
    quern_free(text);
    return finish(call, error);
}

const qn_api_protocol qn_api_detokenize = {
    .name = "detokenize",
    .style = QN_API_OPENAI,
    .parse = parse_detokenize,
    .prepare = prepare_detokenize,
};

/* ---- apply-template ---- */

static bool tools_shape(qn_reading *r, const qn_field *f, const qn_json *value,
                        void *base)
{
    (void)f;
    (void)base;
    for (uint32_t i = 0; i < value->count; i++) {
        size_t before = qn_enter_index(r, i);
        if (!qn_check_type(r, &value->items[i], QN_OBJECT))
            return false;
        qn_leave(r, before);
    }
    return true;
}

static const qn_field template_rows[] = {
    MODEL_ROW,
    {"messages", QN_ARRAY, qn_messages_check, offsetof(inspection, messages),
     sizeof(qn_json *), 0, 0, NULL, qn_messages_shape},
    {"tools", QN_ARRAY, qn_take_json, offsetof(inspection, tools),
     sizeof(qn_json *), 0, 0, NULL, tools_shape},
    {"chat_template_kwargs", QN_OBJECT, qn_take_variables,
     offsetof(inspection, variables), sizeof(qn_json *), 0, 0, NULL, NULL},
    ROW("add_generation_prompt", QN_BOOL, qn_take_bool, add_generation_prompt),
    ROW("continue_final_message", QN_BOOL, qn_take_bool, continue_final),
};

static bool parse_template(qn_api_call *call, qn_str body,
                           const qn_api_server *server, qn_api_error *error)
{
    return parse(call, body, server, template_rows,
                 sizeof template_rows / sizeof *template_rows, "messages",
                 error);
}

static void write_tree(qn_buf *out, const qn_json *value)
{
    qn_json_writer w;
    qn_json_write_begin(&w, out);
    qn_json_write_value(&w, value);
}

/* As a chat would show them, where they are functions. */
static void write_tools(qn_buf *out, const qn_json *tools)
{
    bool functions = true;
    for (uint32_t i = 0; i < tools->count; i++) {
        const qn_json *function = qn_json_get(&tools->items[i], "function");
        functions = functions && function && function->type == QN_JSON_T_OBJECT;
    }
    if (functions)
        qn_chat_tools_write(out, tools);
    else
        write_tree(out, tools);
}

static bool write_prompt(qn_api_call *call, const qn_api_model *model,
                         const quern_chat *chat, qn_api_error *error)
{
    char *text;
    size_t size;
    qn_prompt prompt;
    quern_error cause;
    qn_json_writer w;
    /* What is wrong with the messages shows here. */
    if (!qn_prompt_of_chat(call, &prompt, model->model, chat, error))
        return false;
    if (quern_render(model->model, chat, &text, &size, &cause))
        return qn_api_fail_runtime(error, &cause);
    qn_json_write_begin(&w, &call->body);
    qn_json_write_object(&w);
    qn_json_write_key(&w, "prompt");
    qn_json_write_str(&w, (qn_str){text, size});
    write_ids(&w, prompt.ids, prompt.count);
    qn_json_write_object_end(&w);
    quern_free(text);
    return finish(call, error);
}

static bool prepare_template(qn_api_call *call, const qn_api_model *model,
                             const qn_api_head *head, qn_api_error *error)
{
    const inspection *asked = call->extra;
    qn_buf messages = QN_BUF_INIT, tools = QN_BUF_INIT, variables = QN_BUF_INIT;
    quern_info info;
    (void)head;
    quern_model_info(model->model, &info);
    qn_messages_write(&messages, asked->messages,
                      !asked->continue_final &&
                          qn_template_reads_lists(info.chat_template));
    if (asked->tools && asked->tools->count)
        write_tools(&tools, asked->tools);
    if (asked->variables)
        write_tree(&variables, asked->variables);
    const quern_chat chat = {
        .messages = messages.data,
        .tools = tools.data,
        .variables = variables.data,
        .add_generation_prompt =
            asked->add_generation_prompt && !asked->continue_final,
        .continue_final_message = asked->continue_final,
    };
    bool good = messages.failed || tools.failed || variables.failed
                    ? qn_api_fail_memory(error)
                    : write_prompt(call, model, &chat, error);
    qn_buf_free(&messages);
    qn_buf_free(&tools);
    qn_buf_free(&variables);
    return good;
}

const qn_api_protocol qn_api_apply_template = {
    .name = "apply_template",
    .style = QN_API_OPENAI,
    .parse = parse_template,
    .prepare = prepare_template,
};
