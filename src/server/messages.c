/* messages.c: conversations, from a client's body to a template's variables.
 *
 * What no rule here knows of a message (a `name`, whatever a template reads)
 * goes to the template as it is. */
#include "messages.h"

#include "base/map.h"

enum { MAX_MESSAGES = 4096 };

/* A text that stands for JSON comes from a model: what it repeats is its own
 * affair. */
enum {
    ARGUMENT_FLAGS =
        QN_JSON_ALLOW_DUPLICATE_KEYS | QN_JSON_ALLOW_LONE_SURROGATES
};

/* ---- types ---- */

static bool is_text(const qn_json *value, const char *text)
{
    return value && value->type == QN_JSON_T_STRING &&
           qn_str_is(value->text, text);
}

/* What is said in a part beside its text reaches nobody. */
static const qn_field part_rows[] = {
    QN_FIELD_BY("type", QN_STRING, NULL, qn_take_nothing),
    QN_FIELD_BY("text", QN_STRING, NULL, qn_take_nothing),
    QN_FIELD_BY("refusal", QN_STRING, NULL, qn_take_nothing),
};

static const qn_table part_table = {
    part_rows, sizeof part_rows / sizeof *part_rows, NULL, NULL};

static bool part_shape(qn_reading *r, const qn_json *part)
{
    if (!qn_check_type(r, part, QN_OBJECT))
        return false;
    const qn_json *type = qn_field_typed(r, part, "type", QN_STRING);
    if (!type)
        return false;
    bool text = is_text(type, "text");
    if (!text && !is_text(type, "refusal"))
        return true; /* refused by its type */
    return qn_field_typed(r, part, text ? "text" : "refusal", QN_STRING) &&
           qn_fields_known(r, part, &part_table, 1);
}

/* Runs a step over the elements of an array. */
static bool each(qn_reading *r, const qn_json *array,
                 bool (*step)(qn_reading *r, const qn_json *element))
{
    for (uint32_t i = 0; i < array->count; i++) {
        size_t before = qn_enter_index(r, i);
        if (!step(r, &array->items[i]))
            return false;
        qn_leave(r, before);
    }
    return true;
}

static bool content_shape(qn_reading *r, const qn_field *f,
                          const qn_json *value, void *base)
{
    (void)f;
    (void)base;
    return value->type != QN_JSON_T_ARRAY || each(r, value, part_shape);
}

static bool call_shape(qn_reading *r, const qn_json *call)
{
    if (!qn_check_type(r, call, QN_OBJECT) ||
        !qn_field_typed(r, call, "id", QN_STRING))
        return false;
    if (qn_field_get(call, "type") &&
        !qn_field_typed(r, call, "type", QN_STRING))
        return false;
    const qn_json *function = qn_field_typed(r, call, "function", QN_OBJECT);
    if (!function)
        return false;
    size_t before = qn_enter(r, "function");
    bool good = qn_field_typed(r, function, "name", QN_STRING) &&
                qn_field_typed(r, function, "arguments", QN_STRING);
    if (good)
        qn_leave(r, before);
    return good;
}

static bool calls_shape(qn_reading *r, const qn_field *f, const qn_json *value,
                        void *base)
{
    (void)f;
    (void)base;
    return each(r, value, call_shape);
}

static const qn_field message_rows[] = {
    QN_FIELD_BY("role", QN_STRING, NULL, qn_take_nothing),
    QN_FIELD_BY("content", QN_STRING | QN_ARRAY, content_shape,
                qn_take_nothing),
    QN_FIELD_BY("name", QN_STRING, NULL, qn_take_nothing),
    QN_FIELD_BY("tool_calls", QN_ARRAY, calls_shape, qn_take_nothing),
    QN_FIELD_BY("tool_call_id", QN_STRING, NULL, qn_take_nothing),
    QN_FIELD_BY("reasoning_content", QN_STRING, NULL, qn_take_nothing),
    QN_FIELD_BY("reasoning", QN_STRING, NULL, qn_take_nothing),
    QN_FIELD_BY("refusal", QN_STRING, NULL, qn_take_nothing),
    QN_FIELD_BY("function_call", QN_OBJECT, NULL, qn_take_refused),
};

static const qn_table message_table = {
    message_rows, sizeof message_rows / sizeof *message_rows, NULL, NULL};

static bool message_shape(qn_reading *r, const qn_json *message)
{
    return qn_check_type(r, message, QN_OBJECT) &&
           qn_field_required(r, message, "role") &&
           qn_fields_shape(r, message, &message_table, 1);
}

bool qn_messages_shape(qn_reading *r, const qn_field *f, const qn_json *value,
                       void *base)
{
    (void)f;
    (void)base;
    return each(r, value, message_shape);
}

/* ---- values ---- */

typedef enum role { SYSTEM, USER, ASSISTANT, TOOL } role;

static bool read_role(qn_reading *r, const qn_json *message, role *out)
{
    static const struct {
        const char *name;
        role role;
    } roles[] = {{"system", SYSTEM},
                 {"developer", SYSTEM},
                 {"user", USER},
                 {"assistant", ASSISTANT},
                 {"tool", TOOL}};
    const qn_json *value = qn_json_get(message, "role");
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (is_text(value, roles[i].name)) {
            *out = roles[i].role;
            return true;
        }
    qn_enter(r, "role");
    return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                        "expected system, developer, user, assistant or tool, "
                        "found \"%.*s\"",
                        value->text.size < 40 ? (int)value->text.size : 40,
                        value->text.data);
}

/* Texts are all that the server reads. */
static bool check_part(qn_reading *r, const qn_json *part, role who)
{
    const qn_json *type = qn_json_get(part, "type");
    if (is_text(type, "text") || (who == ASSISTANT && is_text(type, "refusal")))
        return true;
    qn_enter(r, "type");
    return qn_bad_field(
        r, QN_API_UNSUPPORTED_CONTENT, "expected \"text\", found \"%.*s\"",
        type->text.size < 40 ? (int)type->text.size : 40, type->text.data);
}

static bool check_content(qn_reading *r, const qn_json *message, role who)
{
    const qn_json *content = qn_field_get(message, "content");
    const qn_json *calls = qn_field_get(message, "tool_calls");
    bool called = who == ASSISTANT && calls && calls->count;
    if (!content && !called)
        return qn_field_required(r, message, "content") != NULL;
    if (!content || content->type != QN_JSON_T_ARRAY)
        return true;
    size_t before = qn_enter(r, "content");
    for (uint32_t i = 0; i < content->count; i++) {
        size_t outside = qn_enter_index(r, i);
        if (!check_part(r, &content->items[i], who))
            return false;
        qn_leave(r, outside);
    }
    qn_leave(r, before);
    return true;
}

/* The document of a call's arguments: an object. */
static qn_status parse_arguments(qn_json_doc **doc, qn_str text)
{
    qn_status status = qn_json_parse(doc, text, ARGUMENT_FLAGS);
    if (status || qn_json_root(*doc)->type == QN_JSON_T_OBJECT)
        return status;
    qn_json_doc_free(*doc);
    *doc = NULL;
    return qn_fail(QN_E_FORMAT, "expected an object");
}

static bool check_call(qn_reading *r, const qn_json *call, qn_map *ids)
{
    const qn_json *type = qn_field_get(call, "type");
    const qn_json *function = qn_json_get(call, "function");
    if (type && !is_text(type, "function")) {
        qn_enter(r, "type");
        return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                            "expected \"function\"");
    }
    qn_json_doc *doc = NULL;
    qn_status status =
        parse_arguments(&doc, qn_json_get(function, "arguments")->text);
    qn_json_doc_free(doc);
    if (status == QN_E_NOMEM)
        return qn_reading_no_memory(r);
    if (status) {
        qn_enter(r, "function");
        qn_enter(r, "arguments");
        return qn_bad_field(r, QN_API_INVALID_TOOL,
                            "expected a text that is a JSON object");
    }
    if (!qn_map_put(ids, qn_json_get(call, "id")->text, NULL))
        return qn_reading_no_memory(r);
    return true;
}

static bool check_calls(qn_reading *r, const qn_json *message, role who,
                        qn_map *ids)
{
    const qn_json *calls = qn_field_get(message, "tool_calls");
    if (!calls || !calls->count)
        return true;
    size_t before = qn_enter(r, "tool_calls");
    if (who != ASSISTANT)
        return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                            "only messages of the assistant have calls");
    for (uint32_t i = 0; i < calls->count; i++) {
        size_t outside = qn_enter_index(r, i);
        if (!check_call(r, &calls->items[i], ids))
            return false;
        qn_leave(r, outside);
    }
    qn_leave(r, before);
    return true;
}

static bool check_result(qn_reading *r, const qn_json *message, qn_map *ids)
{
    const qn_json *id = qn_field_required(r, message, "tool_call_id");
    if (!id || qn_map_get(ids, id->text))
        return id != NULL;
    qn_enter(r, "tool_call_id");
    return qn_bad_field(r, QN_API_INVALID_TOOL,
                        "no earlier message has a call of this id");
}

static bool check_message(qn_reading *r, const qn_json *message, qn_map *ids)
{
    role who = USER;
    return qn_fields_values(r, message, &message_table, 1) &&
           read_role(r, message, &who) && check_content(r, message, who) &&
           check_calls(r, message, who, ids) &&
           (who != TOOL || check_result(r, message, ids));
}

bool qn_messages_check(qn_reading *r, const qn_field *f, const qn_json *value,
                       void *base)
{
    if (!value->count || value->count > MAX_MESSAGES)
        return qn_bad_field(r, QN_API_OUT_OF_RANGE,
                            "expected 1..%d messages, found %u", MAX_MESSAGES,
                            (unsigned)value->count);
    qn_map *ids = qn_map_new(16);
    bool good = ids ? true : qn_reading_no_memory(r);
    for (uint32_t i = 0; i < value->count && good; i++) {
        size_t before = qn_enter_index(r, i);
        good = check_message(r, &value->items[i], ids);
        if (good)
            qn_leave(r, before);
    }
    qn_map_free(ids, NULL);
    return good && qn_take_json(r, f, value, base);
}

bool qn_messages_continue(const qn_json *messages)
{
    const qn_json *last = &messages->items[messages->count - 1];
    const qn_json *calls = qn_field_get(last, "tool_calls");
    return is_text(qn_json_get(last, "role"), "assistant") &&
           !(calls && calls->count);
}

/* ---- for the template ---- */

static const qn_json *part_text(const qn_json *part)
{
    const qn_json *text = qn_json_get(part, "text");
    return is_text(qn_json_get(part, "type"), "text")
               ? text
               : qn_json_get(part, "refusal");
}

static void write_joined(qn_json_writer *w, const qn_json *parts)
{
    qn_buf text = QN_BUF_INIT;
    for (uint32_t i = 0; i < parts->count; i++)
        qn_buf_add_str(&text, part_text(&parts->items[i])->text);
    if (text.failed)
        w->out->failed = true;
    qn_json_write_str(w, qn_buf_str(&text));
    qn_buf_free(&text);
}

static void write_parts(qn_json_writer *w, const qn_json *parts)
{
    qn_json_write_array(w);
    for (uint32_t i = 0; i < parts->count; i++) {
        qn_json_write_object(w);
        qn_json_write_key(w, "type");
        qn_json_write_text(w, "text");
        qn_json_write_key(w, "text");
        qn_json_write_str(w, part_text(&parts->items[i])->text);
        qn_json_write_object_end(w);
    }
    qn_json_write_array_end(w);
}

static void write_content(qn_json_writer *w, const qn_json *content, bool lists)
{
    if (!content)
        qn_json_write_text(w, "");
    else if (content->type != QN_JSON_T_ARRAY)
        qn_json_write_value(w, content);
    else if (lists)
        write_parts(w, content);
    else
        write_joined(w, content);
}

/* A text that was parsed before: it only fails for want of memory. */
static void write_arguments(qn_json_writer *w, qn_str text)
{
    qn_json_doc *doc = NULL;
    if (!parse_arguments(&doc, text)) {
        qn_json_write_value(w, qn_json_root(doc));
    } else {
        w->out->failed = true;
        qn_json_write_null(w);
    }
    qn_json_doc_free(doc);
}

static void write_function(qn_json_writer *w, const qn_json *function)
{
    qn_json_write_object(w);
    for (uint32_t i = 0; i < function->count; i++) {
        qn_json_write_key_str(w, function->keys[i]);
        if (qn_str_is(function->keys[i], "arguments"))
            write_arguments(w, function->items[i].text);
        else
            qn_json_write_value(w, &function->items[i]);
    }
    qn_json_write_object_end(w);
}

static void write_call(qn_json_writer *w, const qn_json *call)
{
    qn_json_write_object(w);
    if (!qn_field_get(call, "type")) {
        qn_json_write_key(w, "type");
        qn_json_write_text(w, "function");
    }
    for (uint32_t i = 0; i < call->count; i++) {
        const qn_json *value = &call->items[i];
        if (value->type == QN_JSON_T_NULL)
            continue;
        qn_json_write_key_str(w, call->keys[i]);
        if (qn_str_is(call->keys[i], "function"))
            write_function(w, value);
        else
            qn_json_write_value(w, value);
    }
    qn_json_write_object_end(w);
}

static void write_member(qn_json_writer *w, const qn_json *message, qn_str key,
                         const qn_json *value, bool lists)
{
    bool alias = qn_str_is(key, "reasoning");
    if (alias && qn_field_get(message, "reasoning_content"))
        return;
    qn_json_write_key_str(w, alias ? QN_STR("reasoning_content") : key);
    if (qn_str_is(key, "role") && is_text(value, "developer")) {
        qn_json_write_text(w, "system");
    } else if (qn_str_is(key, "content")) {
        write_content(w, value, lists);
    } else if (qn_str_is(key, "tool_calls")) {
        qn_json_write_array(w);
        for (uint32_t i = 0; i < value->count; i++)
            write_call(w, &value->items[i]);
        qn_json_write_array_end(w);
    } else {
        qn_json_write_value(w, value);
    }
}

static void write_message(qn_json_writer *w, const qn_json *message, bool lists)
{
    qn_json_write_object(w);
    for (uint32_t i = 0; i < message->count; i++) {
        const qn_json *value = &message->items[i];
        bool empty = qn_str_is(message->keys[i], "tool_calls") && !value->count;
        if (value->type != QN_JSON_T_NULL && !empty)
            write_member(w, message, message->keys[i], value, lists);
    }
    if (!qn_field_get(message, "content")) { /* calls alone */
        qn_json_write_key(w, "content");
        qn_json_write_text(w, "");
    }
    qn_json_write_object_end(w);
}

void qn_messages_write(qn_buf *out, const qn_json *messages, bool lists)
{
    qn_json_writer w;
    qn_json_write_begin(&w, out);
    qn_json_write_array(&w);
    for (uint32_t i = 0; i < messages->count; i++)
        write_message(&w, &messages->items[i], lists);
    qn_json_write_array_end(&w);
}

bool qn_template_reads_lists(const char *source)
{
    static const char *const loops[] = {
        "in message.content",      "in message['content']",
        "in message[\"content\"]", "in content",
        "in msg.content",          "in msg['content']"};
    for (size_t i = 0; source && i < sizeof loops / sizeof *loops; i++) {
        for (const char *at = source; (at = strstr(at, loops[i])); at++) {
            /* "'x' in content" and "not in" look into a text: a loop has
             * "for NAME" before it. */
            const char *from = at - source > 40 ? at - 40 : source;
            for (const char *p = from; p + 4 <= at; p++)
                if (!memcmp(p, "for ", 4) && !memchr(p, '%', (size_t)(at - p)))
                    return true;
        }
    }
    return false;
}
