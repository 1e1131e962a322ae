/* anthropic.c: Anthropic's Messages and count_tokens, from a body to a request
 * (server specification, section 8). */
#include "anthropic.h"
#include "messages.h"
#include "tools.h"

#include "base/alloc.h"

#include <stdlib.h>

#define NUM_MAX ((double)INT64_MAX)

#define ROW(name, types, read, member, low, high, range)                       \
    QN_FIELD(qn_anthropic, name, types, read, member, low, high, range)

/* ---- thinking ---- */

typedef struct thinking {
    const qn_json *type;
    int64_t budget;
} thinking;

static const qn_field thinking_rows[] = {
    QN_FIELD(thinking, "type", QN_STRING, qn_take_json, type, 0, 0, NULL),
    QN_FIELD(thinking, "budget_tokens", QN_INT, qn_take_int, budget, 1, NUM_MAX,
             "1 or more"),
};

static qn_table thinking_table(thinking *into)
{
    return (qn_table){thinking_rows,
                      sizeof thinking_rows / sizeof *thinking_rows, into, NULL};
}

static bool thinking_shape(qn_reading *r, const qn_field *f,
                           const qn_json *value, void *base)
{
    (void)f;
    (void)base;
    qn_table table = thinking_table(NULL);
    return qn_field_required(r, value, "type") &&
           qn_fields_known(r, value, &table, 1) &&
           qn_fields_shape(r, value, &table, 1);
}

static void set_budget(qn_api_call *call, int64_t tokens)
{
    call->asked.reasoning_budget = tokens;
    for (size_t i = 0; i < qn_request_field_count; i++)
        if (!strcmp(qn_request_fields[i].name, "reasoning_budget"))
            call->given |= UINT64_C(1) << i;
}

static bool read_thinking(qn_reading *r, const qn_field *f,
                          const qn_json *value, void *base)
{
    (void)f;
    qn_anthropic *a = base;
    thinking t = {0};
    qn_table table = thinking_table(&t);
    if (!qn_fields_values(r, value, &table, 1))
        return false;
    bool enabled = qn_str_is(t.type->text, "enabled");
    if (enabled && !t.budget)
        return qn_field_required(r, value, "budget_tokens") != NULL;
    if (!enabled && t.budget) {
        qn_enter(r, "budget_tokens");
        return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                            "this field is only allowed when \"type\" is "
                            "\"enabled\"");
    }
    if (enabled) {
        a->thinking = QN_THINKING_ON;
        set_budget(r->call, t.budget);
    } else if (qn_str_is(t.type->text, "adaptive")) {
        a->thinking = QN_THINKING_ON;
    } else if (qn_str_is(t.type->text, "disabled")) {
        /* Also what a template's variable can't keep a model from. */
        a->thinking = QN_THINKING_OFF;
        set_budget(r->call, 0);
    } else {
        qn_enter(r, "type");
        return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                            "expected enabled, disabled or adaptive");
    }
    return true;
}

static bool read_effort(qn_reading *r, const qn_field *f, const qn_json *value,
                        void *base)
{
    static const char *const efforts[] = {"low", "medium", "high", "xhigh",
                                          "max"};
    (void)f;
    for (size_t i = 0; i < sizeof efforts / sizeof *efforts; i++)
        if (qn_str_is(value->text, efforts[i])) {
            ((qn_anthropic *)base)->effort = efforts[i];
            return true;
        }
    return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                        "expected low, medium, high, xhigh or max");
}

static const qn_field output_rows[] = {
    QN_FIELD_BY("effort", QN_STRING, NULL, read_effort),
    QN_FIELD_BY("format", QN_OBJECT, NULL, qn_take_refused),
};

static qn_table output_table(void *base)
{
    return (qn_table){output_rows, sizeof output_rows / sizeof *output_rows,
                      base, NULL};
}

static bool output_shape(qn_reading *r, const qn_field *f, const qn_json *value,
                         void *base)
{
    (void)f;
    qn_table table = output_table(base);
    return qn_fields_known(r, value, &table, 1) &&
           qn_fields_shape(r, value, &table, 1);
}

static bool read_output(qn_reading *r, const qn_field *f, const qn_json *value,
                        void *base)
{
    (void)f;
    qn_table table = output_table(base);
    return qn_fields_values(r, value, &table, 1);
}

/* ---- other fields ---- */

static const qn_field metadata_rows[] = {
    QN_FIELD(qn_api_call, "user_id", QN_STRING, qn_take_text, user, 0, 0, NULL),
};

static bool metadata_shape(qn_reading *r, const qn_field *f,
                           const qn_json *value, void *base)
{
    (void)f;
    qn_table table = {metadata_rows, 1, base, NULL};
    return qn_fields_known(r, value, &table, 1) &&
           qn_fields_shape(r, value, &table, 1);
}

static bool read_metadata(qn_reading *r, const qn_field *f,
                          const qn_json *value, void *base)
{
    (void)f;
    (void)base;
    qn_table table = {metadata_rows, 1, r->call, NULL};
    return qn_fields_values(r, value, &table, 1);
}

static bool read_stops(qn_reading *r, const qn_field *f, const qn_json *value,
                       void *base)
{
    (void)base;
    return qn_take_stops(r, f, value, r->call);
}

/* ---- tools ---- */

static const qn_field tool_pin_row = {"cache_control",
                                      QN_OBJECT,
                                      qn_take_cache_control,
                                      offsetof(qn_tool_pin, seconds),
                                      sizeof(int64_t),
                                      0,
                                      0,
                                      NULL,
                                      qn_cache_control_shape};

static bool tools_shape(qn_reading *r, const qn_field *f, const qn_json *value,
                        void *base)
{
    const qn_table table = {&tool_pin_row, 1, NULL, NULL};
    if (!qn_anthropic_tools_shape(r, f, value, base))
        return false;
    for (uint32_t i = 0; i < value->count; i++) {
        size_t before = qn_enter_index(r, i);
        if (!qn_fields_shape(r, &value->items[i], &table, 1))
            return false;
        qn_leave(r, before);
    }
    return true;
}

static bool read_tools(qn_reading *r, const qn_field *f, const qn_json *value,
                       void *base)
{
    qn_anthropic *a = base;
    if (!qn_take_anthropic_tools(r, f, value, base))
        return false;
    for (uint32_t i = 0; i < value->count; i++) {
        qn_tool_pin pin = {.tool = i};
        const qn_table table = {&tool_pin_row, 1, &pin, NULL};
        size_t before = qn_enter_index(r, i);
        if (!qn_fields_values(r, &value->items[i], &table, 1))
            return false;
        if (pin.seconds && a->tool_pin_count == QN_MOST_PINS) {
            qn_enter(r, tool_pin_row.name);
            return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                                "expected at most %d of these in a request",
                                QN_MOST_PINS);
        }
        if (pin.seconds)
            a->tool_pins[a->tool_pin_count++] = pin;
        qn_leave(r, before);
    }
    return true;
}

#define CALL_ROW(name, types) QN_FIELD_BY(name, types, NULL, qn_take_call_field)

static const qn_field rows[] = {
    CALL_ROW("model", QN_STRING),
    CALL_ROW("stream", QN_BOOL),
    ROW("max_tokens", QN_INT, qn_take_int, max_tokens, 1, NUM_MAX, "1 or more"),
    {"messages", QN_ARRAY, qn_take_json, offsetof(qn_anthropic, messages),
     sizeof(qn_json *), 0, 0, NULL, qn_blocks_shape},
    {"system", QN_STRING | QN_ARRAY, qn_take_json,
     offsetof(qn_anthropic, system), sizeof(qn_json *), 0, 0, NULL,
     qn_system_shape},
    {"cache_control", QN_OBJECT, qn_take_cache_control,
     offsetof(qn_anthropic, pin_seconds), sizeof(int64_t), 0, 0, NULL,
     qn_cache_control_shape},
    QN_FIELD_BY("stop_sequences", QN_ARRAY, qn_shape_texts, read_stops),
    {"temperature", QN_NUMBER, qn_take_request_field, 0, 0, 0, 1, "0..1", NULL},
    QN_FIELD_BY("top_p", QN_NUMBER, NULL, qn_take_request_field),
    QN_FIELD_BY("top_k", QN_INT, NULL, qn_take_request_field),
    QN_FIELD_BY("thinking", QN_OBJECT, thinking_shape, read_thinking),
    QN_FIELD_BY("output_config", QN_OBJECT, output_shape, read_output),
    QN_FIELD_BY("metadata", QN_OBJECT, metadata_shape, read_metadata),
    QN_FIELD_BY("service_tier", QN_STRING, NULL, qn_take_nothing),
    QN_FIELD_BY("tools", QN_ARRAY, tools_shape, read_tools),
    QN_FIELD_BY("tool_choice", QN_OBJECT, NULL, qn_take_anthropic_choice),
    QN_FIELD_BY("output_format", QN_OBJECT, NULL, qn_take_refused),
    QN_FIELD_BY("mcp_servers", QN_ARRAY, NULL, qn_take_refused_unless_off),
    QN_FIELD_BY("container", QN_ANY, NULL, qn_take_refused_unless_off),
    QN_FIELD_BY("grammar", QN_ANY, NULL, qn_take_refused_unless_off),
    QN_FIELD_BY("json_schema", QN_ANY, NULL, qn_take_refused),
    /* quern's own. */
    QN_FIELD_BY("seed", QN_INT, NULL, qn_take_request_field),
    CALL_ROW("cache_prompt", QN_BOOL),
    CALL_ROW("cache_salt", QN_STRING),
    CALL_ROW("keep_alive", QN_INT | QN_STRING),
};

/* ---- parsing ---- */

/* An answer that has begun can only go on as a text. */
static bool check_prefill(qn_reading *r, const qn_anthropic *a)
{
    const qn_block *last = &a->blocks[a->block_count - 1];
    if (last->role != QN_FROM_ASSISTANT)
        return true;
    for (size_t i = a->block_count;
         i-- && a->blocks[i].role == QN_FROM_ASSISTANT;)
        if (a->blocks[i].kind == QN_BLOCK_TOOL_USE) {
            qn_enter(r, "messages");
            return qn_bad_field(r, QN_API_INVALID_TOOL,
                                "the last message has a tool_use, of which the "
                                "tool_result is missing");
        }
    return true;
}

static bool parse(qn_api_call *call, qn_str body, const qn_api_server *server,
                  bool count_only, qn_api_error *error)
{
    qn_reading r = {.call = call, .error = error};
    qn_call_begin(call, server);
    qn_anthropic *a = qn_arena_alloc(&call->arena, sizeof *a);
    if (!a)
        return qn_api_fail_memory(error);
    *a = (qn_anthropic){0};
    call->extra = a;
    const qn_table tables[] = {
        {rows, sizeof rows / sizeof *rows, a, NULL},
        {qn_foreign_fields, qn_foreign_field_count, NULL, NULL},
    };
    if (!qn_take_body(&r, body))
        return false;
    const qn_json *root = qn_json_root(call->doc);
    return (count_only || qn_field_required(&r, root, "max_tokens")) &&
           qn_field_required(&r, root, "messages") &&
           qn_fields_known(&r, root, tables, 2) &&
           qn_fields_shape(&r, root, tables, 2) &&
           qn_fields_values(&r, root, tables, 2) && qn_blocks_read(&r, a) &&
           check_prefill(&r, a) && qn_tools_check(&r) && qn_call_check(&r);
}

static bool parse_messages(qn_api_call *call, qn_str body,
                           const qn_api_server *server, qn_api_error *error)
{
    return parse(call, body, server, false, error);
}

static bool parse_count(qn_api_call *call, qn_str body,
                        const qn_api_server *server, qn_api_error *error)
{
    return parse(call, body, server, true, error);
}

/* ---- beside a model ---- */

static bool mentions(const char *source, const char *name)
{
    return source && strstr(source, name);
}

/* The template's variables; what it has no use for is told. */
static void write_variables(qn_buf *out, qn_api_call *call, const char *source)
{
    const qn_anthropic *a = call->extra;
    bool switched = mentions(source, "enable_thinking");
    bool graded = mentions(source, "reasoning_effort");
    bool thinks = switched || graded || mentions(source, "<think>") ||
                  mentions(source, "<|channel|>");
    qn_json_writer w;
    qn_json_write_begin(&w, out);
    qn_json_write_object(&w);
    if (a->thinking != QN_THINKING_UNSAID && switched) {
        qn_json_write_key(&w, "enable_thinking");
        qn_json_write_bool(&w, a->thinking == QN_THINKING_ON);
    }
    if (a->thinking == QN_THINKING_ON && !thinks)
        qn_ignored_add(&call->ignored, QN_STR("thinking"));
    if (a->effort && graded) {
        qn_json_write_key(&w, "reasoning_effort");
        qn_json_write_text(&w, a->effort);
    } else if (a->effort) {
        qn_ignored_add(&call->ignored, QN_STR("output_config.effort"));
    }
    qn_json_write_object_end(&w);
}

/* What turns blocks into tokens. */
typedef struct renderer {
    qn_api_call *call;
    const quern_model *model;
    qn_buf variables;
    bool lists, prefill;
} renderer;

/* A template that grades its thoughts knows three grades. */
static bool check_effort(const qn_anthropic *a, const char *source,
                         qn_api_error *error)
{
    bool more =
        a->effort && (!strcmp(a->effort, "xhigh") || !strcmp(a->effort, "max"));
    return !more || !mentions(source, "reasoning_effort") ||
           qn_api_fail(error, QN_API_UNSUPPORTED_VALUE, "output_config.effort",
                       "this model has low, medium and high");
}

static bool begin_render(renderer *re, qn_api_call *call,
                         const qn_api_model *model, qn_api_error *error)
{
    const qn_anthropic *a = call->extra;
    quern_info info;
    quern_model_info(model->model, &info);
    bool prefill = a->blocks[a->block_count - 1].role == QN_FROM_ASSISTANT;
    *re = (renderer){.call = call,
                     .model = model->model,
                     .prefill = prefill,
                     /* A text that is continued is one. */
                     .lists = !prefill &&
                              qn_template_reads_lists(info.chat_template)};
    if (!check_effort(a, info.chat_template, error))
        return false;
    write_variables(&re->variables, call, info.chat_template);
    return re->variables.failed || call->ignored.failed
               ? qn_api_fail_memory(error)
               : qn_tools_prepare(call, model->model, error);
}

static bool render_all(renderer *re, qn_prompt *out, qn_api_error *error)
{
    const qn_anthropic *a = re->call->extra;
    qn_buf messages = QN_BUF_INIT;
    qn_blocks_write(&messages, a->blocks, a->block_count, re->lists);
    quern_chat chat = {.messages = messages.data,
                       .tools = re->call->tools.json,
                       .variables = re->variables.data,
                       .add_generation_prompt = !re->prefill,
                       .continue_final_message = re->prefill};
    bool good = messages.failed
                    ? qn_api_fail_memory(error)
                    : qn_prompt_of_chat(re->call, out, re->model, &chat, error);
    qn_buf_free(&messages);
    return good;
}

/* ---- pins ---- */

/* Of the prompt's tokens, how many another conversation begins with; 0: the
 * template refuses it. */
static size_t common_tokens(renderer *re, const qn_buf *messages,
                            const char *tools, const qn_prompt *prompt)
{
    int32_t *ids = NULL;
    size_t count = 0, same = 0;
    quern_chat chat = {.messages = messages->data,
                       .tools = tools,
                       .variables = re->variables.data};
    if (!messages->failed &&
        !quern_render_ids(re->model, &chat, &ids, &count, NULL))
        while (same < count && same < prompt->count &&
               ids[same] == prompt->ids[same])
            same++;
    quern_free(ids);
    return same;
}

/* The same for the blocks up to one; `asks` puts an empty question behind it.
 */
static size_t common_with_blocks(renderer *re, size_t blocks, bool asks,
                                 const qn_prompt *prompt)
{
    const qn_anthropic *a = re->call->extra;
    qn_block *part = qn_alloc((blocks + 1) * sizeof *part);
    qn_buf messages = QN_BUF_INIT;
    if (!part)
        return 0;
    memcpy(part, a->blocks, blocks * sizeof *part);
    part[blocks] = (qn_block){.role = QN_FROM_USER, .first = true};
    qn_blocks_write(&messages, part, blocks + asks, re->lists);
    size_t same = common_tokens(re, &messages, re->call->tools.json, prompt);
    qn_buf_free(&messages);
    qn_free(part);
    return same;
}

/* The same for the tools up to one. */
static size_t common_with_tools(renderer *re, uint32_t tools,
                                const qn_prompt *prompt)
{
    const qn_anthropic *a = re->call->extra;
    qn_buf messages = QN_BUF_INIT, first = QN_BUF_INIT;
    if (!re->call->tools.json) /* none are shown */
        return 0;
    qn_blocks_write(&messages, a->blocks, a->block_count, re->lists);
    qn_tools_write_first(&first, &re->call->tools, tools);
    size_t same =
        first.failed ? 0 : common_tokens(re, &messages, first.data, prompt);
    qn_buf_free(&messages);
    qn_buf_free(&first);
    return same;
}

static int by_tokens(const void *a, const void *b)
{
    const quern_checkpoint *x = a, *y = b;
    return (x->tokens > y->tokens) - (x->tokens < y->tokens);
}

/* The pins of tools and blocks beside the `found` marks that are there, in
 * ascending order; those at one place are one.  *pinned: how far the last pin
 * goes. */
static size_t find_pins(renderer *re, const qn_prompt *prompt,
                        quern_checkpoint *out, size_t found, size_t *pinned)
{
    const qn_anthropic *a = re->call->extra;
    size_t kept = 0;
    for (size_t i = 0; i < a->tool_pin_count; i++) {
        const qn_tool_pin *pin = &a->tool_pins[i];
        size_t n = common_with_tools(re, pin->tool + 1, prompt);
        if (n)
            out[found++] = (quern_checkpoint){n, pin->seconds};
        *pinned = n > *pinned ? n : *pinned;
    }
    for (size_t i = 0; i < a->block_count; i++) {
        if (!a->blocks[i].pin_seconds)
            continue;
        size_t n = common_with_blocks(re, i + 1, false, prompt);
        if (!n)
            n = common_with_blocks(re, i + 1, true, prompt);
        if (n)
            out[found++] = (quern_checkpoint){n, a->blocks[i].pin_seconds};
        *pinned = n > *pinned ? n : *pinned;
    }
    if (found)
        qsort(out, found, sizeof *out, by_tokens);
    for (size_t i = 0; i < found; i++) {
        if (kept && out[kept - 1].tokens == out[i].tokens) {
            if (out[i].pin_seconds > out[kept - 1].pin_seconds)
                out[kept - 1].pin_seconds = out[i].pin_seconds;
        } else {
            out[kept++] = out[i];
        }
    }
    return kept;
}

static bool add_pins(renderer *re, const qn_prompt *prompt, qn_api_error *error)
{
    qn_api_call *call = re->call;
    qn_anthropic *a = call->extra;
    quern_request *request = call->requests;
    quern_prefix_stats kept;
    quern_model_prefixes((quern_model *)re->model, &kept);
    if (!a->pins || call->no_cache || !kept.limit)
        return true;
    size_t marks = request->checkpoint_count, pinned = 0;
    quern_checkpoint *pins =
        qn_arena_alloc(&call->arena, (marks + a->pins) * sizeof *pins);
    if (!pins)
        return qn_api_fail_memory(error);
    if (marks)
        memcpy(pins, request->checkpoints, marks * sizeof *pins);
    request->checkpoints = pins;
    request->checkpoint_count = find_pins(re, prompt, pins, marks, &pinned);
    a->pinned_tokens = (int64_t)pinned;
    return true;
}

static bool prepare_messages(qn_api_call *call, const qn_api_model *model,
                             const qn_api_head *head, qn_api_error *error)
{
    const qn_anthropic *a = call->extra;
    const qn_lengths lengths = {.prompt = "messages",
                                .max_tokens = "max_tokens",
                                .asked = a->max_tokens};
    renderer re;
    qn_prompt prompt;
    bool good =
        begin_render(&re, call, model, error) &&
        render_all(&re, &prompt, error) &&
        qn_prepare_requests(call, model, head, &prompt, 1, &lengths, error) &&
        add_pins(&re, &prompt, error);
    qn_buf_free(&re.variables);
    return good;
}

static bool prepare_count(qn_api_call *call, const qn_api_model *model,
                          const qn_api_head *head, qn_api_error *error)
{
    (void)head;
    renderer re;
    qn_prompt prompt;
    bool good = begin_render(&re, call, model, error) &&
                render_all(&re, &prompt, error);
    qn_buf_free(&re.variables);
    if (!good)
        return false;
    call->kind = QN_API_ANSWERED;
    qn_buf_printf(&call->body, "{\"input_tokens\":%zu}", prompt.count);
    return call->body.failed ? qn_api_fail_memory(error) : true;
}

const qn_api_protocol qn_api_messages = {
    .name = "messages",
    .style = QN_API_ANTHROPIC,
    .parse = parse_messages,
    .prepare = prepare_messages,
    .answer = qn_messages_answer,
    .begin = qn_messages_begin,
    .event = qn_messages_event,
    .end = qn_messages_end,
    .error = qn_messages_error,
    .ping = qn_messages_ping,
    .clear = qn_messages_clear,
};

const qn_api_protocol qn_api_count_tokens = {
    .name = "count_tokens",
    .style = QN_API_ANTHROPIC,
    .parse = parse_count,
    .prepare = prepare_count,
};
