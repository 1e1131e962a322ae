/* responses_items.c: the items of a response's input as messages for a
 * template. */
#include "responses.h"

#include "base/map.h"

enum { MAX_ITEMS = 4096 };

static bool is_text(const qn_json *value, const char *text)
{
    return value && value->type == QN_JSON_T_STRING &&
           qn_str_is(value->text, text);
}

/* ---- types ---- */

typedef enum item_kind { MESSAGE, CALL, OUTPUT, REASONING, OTHER } item_kind;

static item_kind kind_of(const qn_json *item)
{
    static const char *const names[] = {"message", "function_call",
                                        "function_call_output", "reasoning"};
    const qn_json *type = qn_field_get(item, "type");
    for (int i = 0; type && i < OTHER; i++)
        if (is_text(type, names[i]))
            return (item_kind)i;
    return type ? OTHER : MESSAGE;
}

#define ROW(name, types, shape) QN_FIELD_BY(name, types, shape, qn_take_nothing)

static const qn_field part_rows[] = {
    ROW("type", QN_STRING, NULL),
    ROW("text", QN_STRING, NULL),
    ROW("refusal", QN_STRING, NULL),
    /* Of answers that are sent back. */
    ROW("annotations", QN_ARRAY, NULL),
    ROW("logprobs", QN_ARRAY, NULL),
};
static const qn_table part_table = {
    part_rows, sizeof part_rows / sizeof *part_rows, NULL, NULL};

/* What is no text is refused later, whatever it has. */
static bool is_textual(const qn_json *part)
{
    return qn_field_get(part, "text") || qn_field_get(part, "refusal");
}

static bool parts_shape(qn_reading *r, const qn_field *f, const qn_json *value,
                        void *base)
{
    (void)f;
    (void)base;
    for (uint32_t i = 0; value->type == QN_JSON_T_ARRAY && i < value->count;
         i++) {
        size_t before = qn_enter_index(r, i);
        const qn_json *part = &value->items[i];
        if (!qn_check_type(r, part, QN_OBJECT) ||
            !qn_field_typed(r, part, "type", QN_STRING))
            return false;
        if ((is_textual(part) && !qn_fields_known(r, part, &part_table, 1)) ||
            !qn_fields_shape(r, part, &part_table, 1))
            return false;
        qn_leave(r, before);
    }
    return true;
}

static const qn_field item_rows[] = {
    ROW("type", QN_STRING, NULL),
    ROW("id", QN_STRING, NULL),
    ROW("status", QN_STRING, NULL),
    ROW("role", QN_STRING, NULL),
    ROW("content", QN_STRING | QN_ARRAY, parts_shape),
    ROW("phase", QN_STRING, NULL),
    ROW("call_id", QN_STRING, NULL),
    ROW("name", QN_STRING, NULL),
    ROW("arguments", QN_STRING, NULL),
    ROW("output", QN_STRING | QN_ARRAY, parts_shape),
    ROW("summary", QN_ARRAY, parts_shape),
    ROW("encrypted_content", QN_STRING, NULL),
};
static const qn_table item_table = {
    item_rows, sizeof item_rows / sizeof *item_rows, NULL, NULL};

static bool item_shape(qn_reading *r, const qn_json *item)
{
    static const char *const required[][3] = {{"role", "content"},
                                              {"call_id", "name", "arguments"},
                                              {"call_id", "output"},
                                              {"summary"},
                                              {NULL}};
    if (!qn_check_type(r, item, QN_OBJECT) ||
        !qn_fields_shape(r, item, &item_table, 1))
        return false;
    item_kind kind = kind_of(item);
    for (int i = 0; i < 3 && required[kind][i]; i++)
        if (!qn_field_required(r, item, required[kind][i]))
            return false;
    return kind == OTHER || qn_fields_known(r, item, &item_table, 1);
}

bool qn_items_shape(qn_reading *r, const qn_field *f, const qn_json *value,
                    void *base)
{
    (void)f;
    (void)base;
    for (uint32_t i = 0; value->type == QN_JSON_T_ARRAY && i < value->count;
         i++) {
        size_t before = qn_enter_index(r, i);
        if (!item_shape(r, &value->items[i]))
            return false;
        qn_leave(r, before);
    }
    return true;
}

/* ---- messages ---- */

/* The parts of an assistant's turn come as items of their own and are one
 * message. */
typedef struct turn {
    bool open;
    qn_buf thoughts, text, calls;
} turn;

typedef struct builder {
    qn_reading *r;
    qn_buf *out;
    turn turn;
    qn_map *ids; /* of calls */
} builder;

static void comma(qn_buf *out)
{
    if (out->size)
        qn_buf_add_char(out, ',');
}

static void end_turn(builder *b)
{
    turn *t = &b->turn;
    if (t->open) {
        comma(b->out);
        qn_buf_add_text(b->out, "{\"role\":\"assistant\"");
        if (t->thoughts.size) {
            qn_buf_add_text(b->out, ",\"reasoning_content\":");
            qn_json_quote(b->out, qn_buf_str(&t->thoughts));
        }
        qn_buf_add_text(b->out, ",\"content\":");
        qn_json_quote(b->out, qn_buf_str(&t->text));
        if (t->calls.size) {
            qn_buf_add_text(b->out, ",\"tool_calls\":[");
            qn_buf_add_str(b->out, qn_buf_str(&t->calls));
            qn_buf_add_char(b->out, ']');
        }
        qn_buf_add_char(b->out, '}');
    }
    if (t->thoughts.failed || t->text.failed || t->calls.failed)
        b->out->failed = true;
    qn_buf_clear(&t->thoughts);
    qn_buf_clear(&t->text);
    qn_buf_clear(&t->calls);
    t->open = false;
}

/* The texts of a content, whose parts are of one of two types. */
static bool add_texts(builder *b, const qn_json *value, const char *type,
                      const char *other, qn_buf *out)
{
    qn_reading *r = b->r;
    if (value->type == QN_JSON_T_STRING) {
        qn_buf_add_str(out, value->text);
        return true;
    }
    for (uint32_t i = 0; i < value->count; i++) {
        size_t before = qn_enter_index(r, i);
        const qn_json *part = &value->items[i];
        const qn_json *found = qn_json_get(part, "type");
        if (is_text(found, "refusal") && !strcmp(other, "refusal")) {
            const qn_json *refusal =
                qn_field_typed(r, part, "refusal", QN_STRING);
            if (!refusal)
                return false;
            qn_buf_add_str(out, refusal->text);
        } else if (is_text(found, type) || is_text(found, other)) {
            if (!qn_field_required(r, part, "text"))
                return false;
            qn_buf_add_str(out, qn_json_get(part, "text")->text);
        } else {
            qn_enter(r, "type");
            return qn_bad_field(r, QN_API_UNSUPPORTED_CONTENT,
                                "expected \"%s\", found \"%.*s\"", type,
                                found->text.size < 40 ? (int)found->text.size
                                                      : 40,
                                found->text.data);
        }
        qn_leave(r, before);
    }
    return true;
}

static void add_message(builder *b, const char *role, const qn_buf *text)
{
    comma(b->out);
    qn_buf_printf(b->out, "{\"role\":\"%s\",\"content\":", role);
    qn_json_quote(b->out, qn_buf_str(text));
    qn_buf_add_char(b->out, '}');
    if (text->failed)
        b->out->failed = true;
}

static bool take_assistant(builder *b, const qn_json *content)
{
    turn *t = &b->turn;
    /* A further message is a turn of its own. */
    if (t->text.size || t->calls.size)
        end_turn(b);
    t->open = true;
    return add_texts(b, content, "output_text", "refusal", &t->text);
}

static bool take_message(builder *b, const qn_json *item)
{
    qn_reading *r = b->r;
    const qn_json *role = qn_json_get(item, "role");
    const qn_json *content = qn_json_get(item, "content");
    bool user = is_text(role, "user");
    bool system = is_text(role, "system") || is_text(role, "developer");
    bool assistant = is_text(role, "assistant");
    if (!user && !system && !assistant) {
        qn_enter(r, "role");
        return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                            "expected system, developer, user or assistant");
    }
    size_t before = qn_enter(r, "content");
    bool good = true;
    if (assistant) {
        good = take_assistant(b, content);
    } else {
        qn_buf text = QN_BUF_INIT;
        end_turn(b);
        good = add_texts(b, content, "input_text", "text", &text);
        if (good)
            add_message(b, user ? "user" : "system", &text);
        qn_buf_free(&text);
    }
    if (good)
        qn_leave(r, before);
    return good;
}

static bool take_reasoning(builder *b, const qn_json *item)
{
    qn_reading *r = b->r;
    const qn_json *content = qn_field_get(item, "content");
    if (b->turn.text.size || b->turn.calls.size)
        end_turn(b);
    b->turn.open = true;
    /* All of it, where there is more than a summary. */
    bool whole = content && content->count;
    size_t before = qn_enter(r, whole ? "content" : "summary");
    if (!add_texts(b, whole ? content : qn_json_get(item, "summary"),
                   whole ? "reasoning_text" : "summary_text", "text",
                   &b->turn.thoughts))
        return false;
    qn_leave(r, before);
    return true;
}

static bool take_call(builder *b, const qn_json *item)
{
    qn_reading *r = b->r;
    qn_json_doc *doc = NULL;
    qn_buf *out = &b->turn.calls;
    qn_status status = qn_json_parse(&doc, qn_json_get(item, "arguments")->text,
                                     QN_JSON_ALLOW_DUPLICATE_KEYS |
                                         QN_JSON_ALLOW_LONE_SURROGATES);
    if (status == QN_E_NOMEM)
        return qn_reading_no_memory(r);
    if (status || qn_json_root(doc)->type != QN_JSON_T_OBJECT) {
        qn_json_doc_free(doc);
        qn_enter(r, "arguments");
        return qn_bad_field(r, QN_API_INVALID_TOOL,
                            "expected a text that is a JSON object");
    }
    qn_json_writer w;
    b->turn.open = true;
    comma(out);
    qn_buf_add_text(out, "{\"id\":");
    qn_json_quote(out, qn_json_get(item, "call_id")->text);
    qn_buf_add_text(out, ",\"type\":\"function\",\"function\":{\"name\":");
    qn_json_quote(out, qn_json_get(item, "name")->text);
    qn_buf_add_text(out, ",\"arguments\":");
    qn_json_write_begin(&w, out);
    qn_json_write_value(&w, qn_json_root(doc));
    qn_buf_add_text(out, "}}");
    qn_json_doc_free(doc);
    return qn_map_put(b->ids, qn_json_get(item, "call_id")->text, NULL)
               ? true
               : qn_reading_no_memory(r);
}

static bool take_output(builder *b, const qn_json *item)
{
    qn_reading *r = b->r;
    const qn_json *id = qn_json_get(item, "call_id");
    qn_buf text = QN_BUF_INIT;
    if (!qn_map_get(b->ids, id->text)) {
        qn_enter(r, "call_id");
        return qn_bad_field(r, QN_API_INVALID_TOOL,
                            "no earlier item is a call of this id");
    }
    end_turn(b);
    size_t before = qn_enter(r, "output");
    bool good =
        add_texts(b, qn_json_get(item, "output"), "input_text", "text", &text);
    if (good) {
        comma(b->out);
        qn_buf_add_text(b->out, "{\"role\":\"tool\",\"tool_call_id\":");
        qn_json_quote(b->out, id->text);
        qn_buf_add_text(b->out, ",\"content\":");
        qn_json_quote(b->out, qn_buf_str(&text));
        qn_buf_add_char(b->out, '}');
        if (text.failed)
            b->out->failed = true;
        qn_leave(r, before);
    }
    qn_buf_free(&text);
    return good;
}

static bool take_item(builder *b, const qn_json *item)
{
    qn_reading *r = b->r;
    switch (kind_of(item)) {
    case MESSAGE:
        return take_message(b, item);
    case CALL:
        return take_call(b, item);
    case OUTPUT:
        return take_output(b, item);
    case REASONING:
        return take_reasoning(b, item);
    case OTHER:
        break;
    }
    qn_enter(r, "type");
    return qn_bad_field(r, QN_API_UNSUPPORTED_CONTENT,
                        "expected message, function_call, "
                        "function_call_output or reasoning");
}

/* The calls of earlier responses can be answered, too. */
static bool learn_calls(builder *b)
{
    qn_buf list = QN_BUF_INIT;
    qn_json_doc *doc = NULL;
    qn_buf_printf(&list, "[%s]", b->out->size ? b->out->data : "");
    bool good = !list.failed && !qn_json_parse(&doc, qn_buf_str(&list), 0);
    const qn_json *root = good ? qn_json_root(doc) : NULL;
    for (uint32_t i = 0; root && i < root->count && good; i++) {
        const qn_json *calls = qn_json_get(&root->items[i], "tool_calls");
        for (uint32_t j = 0; calls && j < calls->count && good; j++)
            good = qn_map_put(b->ids, qn_json_get(&calls->items[j], "id")->text,
                              NULL) != NULL;
    }
    qn_json_doc_free(doc);
    qn_buf_free(&list);
    return good ? true : qn_reading_no_memory(b->r);
}

static bool read_items(builder *b, const qn_json *input)
{
    qn_reading *r = b->r;
    if (input->type == QN_JSON_T_STRING) {
        comma(b->out);
        qn_buf_add_text(b->out, "{\"role\":\"user\",\"content\":");
        qn_json_quote(b->out, input->text);
        qn_buf_add_char(b->out, '}');
        return true;
    }
    if (!input->count || input->count > MAX_ITEMS)
        return qn_bad_field(r, QN_API_OUT_OF_RANGE,
                            "expected 1..%d items, found %u", MAX_ITEMS,
                            (unsigned)input->count);
    for (uint32_t i = 0; i < input->count; i++) {
        size_t before = qn_enter_index(r, i);
        if (!take_item(b, &input->items[i]))
            return false;
        qn_leave(r, before);
    }
    end_turn(b);
    return true;
}

bool qn_items_read(qn_reading *r, const qn_json *input, qn_buf *messages)
{
    builder b = {.r = r, .out = messages, .ids = qn_map_new(16)};
    size_t before = qn_enter(r, "input");
    bool good = b.ids ? learn_calls(&b) && read_items(&b, input)
                      : qn_reading_no_memory(r);
    if (good && messages->failed)
        good = qn_reading_no_memory(r);
    if (good)
        qn_leave(r, before);
    qn_map_free(b.ids, NULL);
    qn_buf_free(&b.turn.thoughts);
    qn_buf_free(&b.turn.text);
    qn_buf_free(&b.turn.calls);
    return good;
}
