/* openai_completions.c: completions of raw texts and tokens (server
 * specification, section 8). */
#include "openai.h"

#include <stdio.h>

enum { MAX_PROMPTS = 64, MAX_TOKENS = 16 };

#define ROW(name, types, read, member, low, high, range)                       \
    QN_FIELD(qn_openai, name, types, read, member, low, high, range)

/* ---- prompts in the body ---- */

/* What one element of a list may be: the kind of the first one. */
static unsigned kind_of(const qn_json *value)
{
    return value->type == QN_JSON_T_STRING  ? QN_STRING
           : value->type == QN_JSON_T_ARRAY ? QN_ARRAY
                                            : QN_INT;
}

static bool list_shape(qn_reading *r, const qn_json *list, unsigned types)
{
    for (uint32_t i = 0; i < list->count; i++) {
        size_t before = qn_enter_index(r, i);
        if (!qn_check_type(r, &list->items[i], types))
            return false;
        if (types == QN_ARRAY && !list_shape(r, &list->items[i], QN_INT))
            return false;
        qn_leave(r, before);
    }
    return true;
}

static bool prompt_shape(qn_reading *r, const qn_field *f, const qn_json *value,
                         void *base)
{
    (void)f;
    (void)base;
    if (value->type != QN_JSON_T_ARRAY || !value->count)
        return true;
    unsigned kind = kind_of(&value->items[0]);
    if (value->items[0].type == QN_JSON_T_ARRAY ||
        value->items[0].type == QN_JSON_T_STRING ||
        value->items[0].type == QN_JSON_T_NUMBER)
        return list_shape(r, value, kind);
    qn_enter_index(r, 0);
    return qn_check_type(r, &value->items[0], QN_STRING | QN_INT | QN_ARRAY);
}

/* How many prompts a value of the right shape has; 0: an empty list. */
static size_t prompt_count(const qn_json *prompt)
{
    if (prompt->type != QN_JSON_T_ARRAY)
        return 1;
    if (prompt->count && kind_of(&prompt->items[0]) == QN_INT)
        return 1;
    return prompt->count;
}

static const qn_json *prompt_at(const qn_json *prompt, size_t index)
{
    bool list = prompt->type == QN_JSON_T_ARRAY && prompt->count &&
                kind_of(&prompt->items[0]) != QN_INT;
    return list ? &prompt->items[index] : prompt;
}

static bool read_prompt(qn_reading *r, const qn_field *f, const qn_json *value,
                        void *base)
{
    size_t count = prompt_count(value);
    if (!count)
        return qn_bad_field(r, QN_API_EMPTY_PROMPT, "the list is empty");
    if (count > MAX_PROMPTS)
        return qn_bad_field(r, QN_API_OUT_OF_RANGE,
                            "expected at most %d prompts, found %zu",
                            MAX_PROMPTS, count);
    return qn_take_json(r, f, value, base);
}

/* ---- other fields ---- */

/* A number asks for log probabilities, also 0. */
static bool read_logprobs(qn_reading *r, const qn_field *f,
                          const qn_json *value, void *base)
{
    (void)base;
    int32_t number = 0;
    qn_field row = *f;
    row.size = sizeof number;
    bool chosen = value->type == QN_JSON_T_BOOL;
    if (!chosen && !qn_take_int(r, &row, value, &number))
        return false;
    r->call->asked.logprobs = !chosen || value->boolean;
    if (!chosen)
        r->call->asked.top_logprobs = number;
    return true;
}

/* mlx-lm's server takes the fields of chat here, too. */
static bool logprobs_shape(qn_reading *r, const qn_field *f,
                           const qn_json *value, void *base)
{
    (void)f;
    (void)base;
    return r->call->server->compat_mlx_lm || qn_check_type(r, value, QN_INT);
}

static bool read_suffix(qn_reading *r, const qn_field *f, const qn_json *value,
                        void *base)
{
    return !value->text.size || qn_take_json(r, f, value, base);
}

static const qn_field completion_fields[] = {
    {"prompt", QN_STRING | QN_ARRAY, read_prompt, offsetof(qn_openai, prompt),
     sizeof(qn_json *), 0, 0, NULL, prompt_shape},
    ROW("max_tokens", QN_INT, qn_take_int, max_tokens, 0, (double)INT64_MAX,
        "0 or more"),
    ROW("best_of", QN_INT, qn_take_int, best_of, 1, 16, "1..16"),
    ROW("echo", QN_BOOL, qn_take_bool, echo, 0, 0, NULL),
    ROW("suffix", QN_STRING, read_suffix, suffix, 0, 0, NULL),
    {"logprobs", QN_INT | QN_BOOL, read_logprobs, 0, 0, 0, 20, "0..20",
     logprobs_shape},
    QN_FIELD_BY("tools", QN_ARRAY, NULL, qn_take_refused_unless_off),
    QN_FIELD_BY("tool_choice", QN_STRING | QN_OBJECT, NULL, qn_take_refused),
    QN_FIELD_BY("parallel_tool_calls", QN_BOOL, NULL, qn_take_nothing),
};

static bool check_completions(qn_reading *r, const qn_openai *asked)
{
    if (asked->best_of && asked->best_of != r->call->n) {
        qn_enter(r, "best_of");
        return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                            "expected %d, which is n: the server returns all "
                            "that it makes",
                            (int)r->call->n);
    }
    if (!asked->max_tokens && !asked->echo) {
        qn_enter(r, "max_tokens");
        return qn_bad_field(r, QN_API_OUT_OF_RANGE,
                            "expected 1 or more, or \"echo\" true");
    }
    r->call->asked.prompt_logprobs = asked->echo && r->call->asked.logprobs;
    if (r->call->asked.prompt_logprobs && r->call->stream) {
        qn_enter(r, "stream");
        return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                            "what is echoed with log probabilities is not "
                            "streamed");
    }
    if (asked->suffix && kind_of(prompt_at(asked->prompt, 0)) != QN_STRING) {
        qn_enter(r, "suffix");
        return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                            "this field is only allowed with prompts that are "
                            "texts");
    }
    return true;
}

static bool parse_completions(qn_api_call *call, qn_str body,
                              const qn_api_server *server, qn_api_error *error)
{
    return qn_openai_parse(call, body, server, completion_fields,
                           sizeof completion_fields / sizeof *completion_fields,
                           "prompt", check_completions, error);
}

/* ---- beside a model ---- */

static bool prompt_of_ids(qn_api_call *call, qn_prompt *out,
                          const qn_json *list, const quern_info *info,
                          const char *path, qn_api_error *error)
{
    *out = (qn_prompt){
        .ids =
            qn_arena_alloc(&call->arena, (list->count + 1) * sizeof *out->ids),
        .count = list->count,
    };
    if (!out->ids)
        return qn_api_fail_memory(error);
    for (uint32_t i = 0; i < list->count; i++) {
        int64_t id = 0;
        if (!qn_take_id(&id, list, i, info->vocab_size, path, error))
            return false;
        out->ids[i] = (int32_t)id;
    }
    return true;
}

/* Tokens around what is to be filled in: of Qwen and CodeGemma, of StarCoder,
 * of SantaCoder, of DeepSeek. */
static const char *const fim_tokens[][3] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
    {"<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "begin\xef\xbd\x9c>",
     "<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "hole\xef\xbd\x9c>",
     "<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "end\xef\xbd\x9c>"},
};

/* Whether a text is one token of its own, whose text it is. */
static bool is_token(const quern_model *model, const char *text)
{
    int32_t *ids;
    size_t count;
    if (quern_tokenize(model, text, strlen(text), QUERN_PARSE_SPECIAL, &ids,
                       &count, NULL))
        return false;
    quern_free(ids);
    return count == 1;
}

static const char *const *find_fim(const quern_model *model)
{
    for (size_t i = 0; i < sizeof fim_tokens / sizeof *fim_tokens; i++)
        if (is_token(model, fim_tokens[i][0]) &&
            is_token(model, fim_tokens[i][1]) &&
            is_token(model, fim_tokens[i][2]))
            return fim_tokens[i];
    return NULL;
}

static bool prompt_around(qn_api_call *call, qn_prompt *out,
                          const quern_model *model, qn_str before, qn_str after,
                          qn_api_error *error)
{
    const char *const *fim = find_fim(model);
    if (!fim)
        return qn_api_fail(error, QN_API_UNSUPPORTED_VALUE, "suffix",
                           "the model has no tokens for filling in");
    qn_buf text = QN_BUF_INIT;
    qn_buf_add_text(&text, fim[0]);
    qn_buf_add_str(&text, before);
    qn_buf_add_text(&text, fim[1]);
    qn_buf_add_str(&text, after);
    qn_buf_add_text(&text, fim[2]);
    bool good = text.failed ? qn_api_fail_memory(error)
                            : qn_prompt_of_text(call, out, model,
                                                qn_buf_str(&text), error);
    qn_buf_free(&text);
    return good;
}

/* The text that is shown of a prompt of ids. */
static bool text_of_ids(qn_api_call *call, qn_str *out, const quern_model *m,
                        const qn_prompt *prompt, qn_api_error *error)
{
    char *text;
    size_t size;
    quern_error cause;
    if (quern_detokenize(m, prompt->ids, prompt->count, false, &text, &size,
                         &cause))
        return qn_api_fail_runtime(error, &cause);
    bool good = qn_arena_copy(&call->arena, out, (qn_str){text, size});
    quern_free(text);
    return good ? true : qn_api_fail_memory(error);
}

static bool prepare_prompt(qn_api_call *call, qn_prompt *out, size_t index,
                           const quern_model *model, const quern_info *info,
                           qn_api_error *error)
{
    qn_openai *asked = call->extra;
    const qn_json *value = prompt_at(asked->prompt, index);
    bool ids = value->type == QN_JSON_T_ARRAY;
    char path[32] = "prompt";
    if (ids && value != asked->prompt)
        snprintf(path, sizeof path, "prompt[%zu]", index);
    bool good = ids ? prompt_of_ids(call, out, value, info, path, error)
                : asked->suffix
                    ? prompt_around(call, out, model, value->text,
                                    asked->suffix->text, error)
                    : qn_prompt_of_text(call, out, model, value->text, error);
    if (!good || !asked->echo)
        return good;
    asked->prompts[index] = value->text;
    return ids ? text_of_ids(call, &asked->prompts[index], model, out, error)
               : true;
}

static bool prepare_completions(qn_api_call *call, const qn_api_model *model,
                                const qn_api_head *head, qn_api_error *error)
{
    qn_openai *asked = call->extra;
    size_t count = prompt_count(asked->prompt);
    quern_info info;
    quern_model_info(model->model, &info);
    qn_prompt *prompts = qn_arena_alloc(&call->arena, count * sizeof *prompts);
    asked->prompts =
        qn_arena_alloc(&call->arena, count * sizeof *asked->prompts);
    if (!prompts || !asked->prompts)
        return qn_api_fail_memory(error);
    for (size_t i = 0; i < count; i++)
        if (!prepare_prompt(call, &prompts[i], i, model->model, &info, error))
            return false;
    const qn_lengths lengths = {
        .prompt = "prompt",
        .list = prompt_at(asked->prompt, 0) != asked->prompt,
        .max_tokens = qn_openai_length_name(call),
        .asked = qn_openai_length(asked),
        .fallback = call->server->compat_mlx_lm ? model->default_max_tokens
                                                : MAX_TOKENS,
    };
    return qn_prepare_requests(call, model, head, prompts, count, &lengths,
                               error);
}

qn_str qn_completions_echo(const qn_api_call *call, size_t index)
{
    const qn_openai *asked = call->extra;
    return asked->echo ? asked->prompts[index / (size_t)call->n]
                       : (qn_str){"", 0};
}

quern_result qn_completions_shown(const qn_api_call *call,
                                  const quern_result *result)
{
    const qn_openai *asked = call->extra;
    quern_result shown = *result;
    if (!asked->max_tokens) {
        shown.size = 0;
        shown.reasoning_size = 0;
        shown.token_count = 0;
        shown.completion_tokens = 0;
        shown.reasoning_tokens = 0;
        shown.finish = QUERN_FINISH_LENGTH;
    }
    return shown;
}

const qn_api_protocol qn_api_completions = {
    .name = "completions",
    .style = QN_API_OPENAI,
    .parse = parse_completions,
    .prepare = prepare_completions,
    .answer = qn_completions_answer,
    .begin = qn_completions_begin,
    .event = qn_openai_event,
    .end = qn_openai_end,
    .error = qn_openai_error,
    .ping = qn_openai_ping,
    .clear = qn_openai_clear,
};
