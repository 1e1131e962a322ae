/* anthropic_blocks.c: Anthropic's conversations, from a client's body to the
 * messages of a template. */
#include "anthropic.h"

#include "base/map.h"

enum { MAX_MESSAGES = 4096 };

/* ---- breakpoints of the cache ---- */

typedef struct cache_control {
    const qn_json *type, *ttl;
} cache_control;

static const qn_field cache_rows[] = {
    QN_FIELD(cache_control, "type", QN_STRING, qn_take_json, type, 0, 0, NULL),
    QN_FIELD(cache_control, "ttl", QN_STRING, qn_take_json, ttl, 0, 0, NULL),
};

static qn_table cache_table(cache_control *into)
{
    return (qn_table){cache_rows, sizeof cache_rows / sizeof *cache_rows, into,
                      NULL};
}

bool qn_cache_control_shape(qn_reading *r, const qn_field *f,
                            const qn_json *value, void *base)
{
    (void)f;
    (void)base;
    qn_table table = cache_table(NULL);
    return qn_field_required(r, value, "type") &&
           qn_fields_known(r, value, &table, 1) &&
           qn_fields_shape(r, value, &table, 1);
}

static bool read_ttl(qn_reading *r, const qn_json *ttl, int64_t *seconds)
{
    *seconds = 300;
    if (!ttl || qn_str_is(ttl->text, "5m"))
        return true;
    *seconds = 3600;
    if (qn_str_is(ttl->text, "1h"))
        return true;
    qn_enter(r, "ttl");
    return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                        "expected \"5m\" or \"1h\"");
}

bool qn_take_cache_control(qn_reading *r, const qn_field *f,
                           const qn_json *value, void *base)
{
    cache_control c = {0};
    qn_table table = cache_table(&c);
    int64_t seconds;
    if (!qn_fields_values(r, value, &table, 1))
        return false;
    if (!qn_str_is(c.type->text, "ephemeral")) {
        qn_enter(r, "type");
        return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                            "expected \"ephemeral\"");
    }
    if (!read_ttl(r, c.ttl, &seconds))
        return false;
    memcpy((char *)base + f->to, &seconds, sizeof seconds);
    return true;
}

/* ---- types ---- */

/* What a block's rows leave. */
typedef struct block_parts {
    int64_t pin_seconds;
    const qn_json *content;
} block_parts;

#define TYPE QN_FIELD_BY("type", QN_STRING, NULL, qn_take_nothing)
#define CACHE_CONTROL                                                          \
    {                                                                          \
        "cache_control", QN_OBJECT, qn_take_cache_control,                     \
            offsetof(block_parts, pin_seconds), sizeof(int64_t), 0, 0, NULL,   \
            qn_cache_control_shape                                             \
    }

static const qn_field text_rows[] = {
    TYPE,
    QN_FIELD_BY("text", QN_STRING, NULL, qn_take_nothing),
    /* Of answers that are sent back. */
    QN_FIELD_BY("citations", QN_ARRAY, NULL, qn_take_nothing),
    CACHE_CONTROL,
};
static const qn_field thinking_rows[] = {
    TYPE,
    QN_FIELD_BY("thinking", QN_STRING, NULL, qn_take_nothing),
    QN_FIELD_BY("signature", QN_STRING, NULL, qn_take_nothing),
    QN_FIELD_BY("cache_control", QN_OBJECT, NULL, qn_take_refused),
};
static const qn_field redacted_rows[] = {
    TYPE,
    QN_FIELD_BY("data", QN_STRING, NULL, qn_take_nothing),
};
static const qn_field use_rows[] = {
    TYPE,
    QN_FIELD_BY("id", QN_STRING, NULL, qn_take_nothing),
    QN_FIELD_BY("name", QN_STRING, NULL, qn_take_nothing),
    QN_FIELD_BY("input", QN_OBJECT, NULL, qn_take_nothing),
    QN_FIELD_BY("caller", QN_OBJECT, NULL, qn_take_nothing),
    CACHE_CONTROL,
};

static bool result_shape(qn_reading *r, const qn_field *f, const qn_json *value,
                         void *base);

static const qn_field result_rows[] = {
    TYPE,
    QN_FIELD_BY("tool_use_id", QN_STRING, NULL, qn_take_nothing),
    {"content", QN_STRING | QN_ARRAY, qn_take_json,
     offsetof(block_parts, content), sizeof(qn_json *), 0, 0, NULL,
     result_shape},
    QN_FIELD_BY("is_error", QN_BOOL, NULL, qn_take_nothing),
    CACHE_CONTROL,
};

#define ROWS(rows) rows, sizeof(rows) / sizeof *(rows)

/* Bits of roles. */
enum { BY_SYSTEM = 1, BY_USER = 2, BY_ASSISTANT = 4 };

typedef struct block_type {
    const char *name;
    qn_block_kind kind;
    unsigned roles;
    const qn_field *rows;
    size_t row_count;
    const char *required[4];
} block_type;

static const block_type types[] = {
    {"text",
     QN_BLOCK_TEXT,
     BY_SYSTEM | BY_USER | BY_ASSISTANT,
     ROWS(text_rows),
     {"text"}},
    {"thinking",
     QN_BLOCK_THINKING,
     BY_ASSISTANT,
     ROWS(thinking_rows),
     {"thinking"}},
    {"redacted_thinking",
     QN_BLOCK_DROPPED,
     BY_ASSISTANT,
     ROWS(redacted_rows),
     {NULL}},
    {"tool_use",
     QN_BLOCK_TOOL_USE,
     BY_ASSISTANT,
     ROWS(use_rows),
     {"id", "name", "input"}},
    {"tool_result",
     QN_BLOCK_TOOL_RESULT,
     BY_USER,
     ROWS(result_rows),
     {"tool_use_id"}},
};

static const block_type *type_of_block(const qn_json *block)
{
    qn_str name = qn_json_get(block, "type")->text;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (qn_str_is(name, types[i].name))
            return &types[i];
    return NULL;
}

static qn_table block_table(const block_type *type, block_parts *into)
{
    return (qn_table){type->rows, type->row_count, into, NULL};
}

static bool block_shape(qn_reading *r, const qn_json *block)
{
    if (!qn_check_type(r, block, QN_OBJECT) ||
        !qn_field_typed(r, block, "type", QN_STRING))
        return false;
    const block_type *type = type_of_block(block);
    if (!type) /* refused with the values */
        return true;
    for (size_t i = 0; i < 4 && type->required[i]; i++)
        if (!qn_field_required(r, block, type->required[i]))
            return false;
    qn_table table = block_table(type, NULL);
    return qn_fields_known(r, block, &table, 1) &&
           qn_fields_shape(r, block, &table, 1);
}

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

bool qn_system_shape(qn_reading *r, const qn_field *f, const qn_json *value,
                     void *base)
{
    (void)f;
    (void)base;
    return value->type != QN_JSON_T_ARRAY || each(r, value, block_shape);
}

static bool result_shape(qn_reading *r, const qn_field *f, const qn_json *value,
                         void *base)
{
    return qn_system_shape(r, f, value, base);
}

static const qn_field message_rows[] = {
    QN_FIELD_BY("role", QN_STRING, NULL, qn_take_nothing),
    QN_FIELD_BY("content", QN_STRING | QN_ARRAY, qn_system_shape,
                qn_take_nothing),
};

static bool message_shape(qn_reading *r, const qn_json *message)
{
    static const qn_table table = {
        message_rows, sizeof message_rows / sizeof *message_rows, NULL, NULL};
    return qn_check_type(r, message, QN_OBJECT) &&
           qn_field_required(r, message, "role") &&
           qn_field_required(r, message, "content") &&
           qn_fields_known(r, message, &table, 1) &&
           qn_fields_shape(r, message, &table, 1);
}

bool qn_blocks_shape(qn_reading *r, const qn_field *f, const qn_json *value,
                     void *base)
{
    (void)f;
    (void)base;
    return each(r, value, message_shape);
}

/* ---- values ---- */

typedef struct collector {
    qn_reading *r;
    qn_anthropic *a;
    qn_map *uses; /* id -> the tool_use block */
    size_t pins;
    qn_block_role role;
    bool first; /* the next block is its message's first */
} collector;

static qn_block *add_block(collector *c, qn_block_kind kind, qn_str text)
{
    qn_block *b = &c->a->blocks[c->a->block_count++];
    *b = (qn_block){
        .kind = kind, .role = c->role, .first = c->first, .text = text};
    c->first = false;
    return b;
}

static bool refuse_type(collector *c, const qn_json *block, const char *wanted)
{
    qn_str found = qn_json_get(block, "type")->text;
    qn_enter(c->r, "type");
    return qn_bad_field(c->r, QN_API_UNSUPPORTED_CONTENT,
                        "expected %s, found \"%.*s\"", wanted,
                        found.size < 40 ? (int)found.size : 40, found.data);
}

static bool count_pin(collector *c, int64_t *pin, int64_t seconds)
{
    if (!seconds)
        return true;
    *pin = seconds > *pin ? seconds : *pin;
    if (++c->pins <= QN_MOST_PINS)
        return true;
    qn_enter(c->r, "cache_control");
    return qn_bad_field(c->r, QN_API_UNSUPPORTED_VALUE,
                        "expected at most %d of these in a request",
                        QN_MOST_PINS);
}

/* The texts in a tool's result. */
static bool read_inner(collector *c, const qn_json *content, int64_t *pin)
{
    qn_reading *r = c->r;
    if (!content || content->type != QN_JSON_T_ARRAY)
        return true;
    size_t before = qn_enter(r, "content");
    for (uint32_t i = 0; i < content->count; i++) {
        size_t outside = qn_enter_index(r, i);
        const qn_json *block = &content->items[i];
        const block_type *type = type_of_block(block);
        if (!type || type->kind != QN_BLOCK_TEXT)
            return refuse_type(c, block, "\"text\"");
        block_parts parts = {0};
        qn_table table = block_table(type, &parts);
        if (!qn_fields_values(r, block, &table, 1) ||
            !count_pin(c, pin, parts.pin_seconds))
            return false;
        qn_leave(r, outside);
    }
    qn_leave(r, before);
    return true;
}

static bool read_use(collector *c, const qn_json *block, qn_block *b)
{
    b->value = block;
    qn_map_value *slot =
        qn_map_put(c->uses, qn_json_get(block, "id")->text, NULL);
    if (!slot)
        return qn_reading_no_memory(c->r);
    slot->ptr = (void *)block;
    return true;
}

static bool read_result(collector *c, const qn_json *block,
                        const block_parts *parts, qn_block *b)
{
    b->value = block;
    const qn_map_value *slot =
        qn_map_get(c->uses, qn_json_get(block, "tool_use_id")->text);
    if (!slot) {
        qn_enter(c->r, "tool_use_id");
        return qn_bad_field(c->r, QN_API_INVALID_TOOL,
                            "no earlier message has a tool_use of this id");
    }
    b->use = slot->ptr;
    return read_inner(c, parts->content, &b->pin_seconds);
}

static bool read_block(collector *c, const qn_json *block)
{
    const block_type *type = type_of_block(block);
    if (!type || !(type->roles >> c->role & 1))
        return refuse_type(c, block,
                           c->role == QN_FROM_SYSTEM ? "\"text\""
                           : c->role == QN_FROM_USER
                               ? "\"text\" or \"tool_result\""
                               : "\"text\", \"tool_use\" or \"thinking\"");
    block_parts parts = {0};
    qn_table table = block_table(type, &parts);
    if (!qn_fields_values(c->r, block, &table, 1))
        return false;
    qn_str text = {0};
    if (type->kind == QN_BLOCK_TEXT || type->kind == QN_BLOCK_THINKING)
        text = qn_json_get(block, type->name)->text;
    qn_block *b = add_block(c, type->kind, text);
    if (type->kind == QN_BLOCK_TOOL_USE && !read_use(c, block, b))
        return false;
    if (type->kind == QN_BLOCK_TOOL_RESULT && !read_result(c, block, &parts, b))
        return false;
    return count_pin(c, &b->pin_seconds, parts.pin_seconds);
}

static bool read_content(collector *c, const qn_json *content)
{
    c->first = true;
    if (content->type == QN_JSON_T_STRING)
        add_block(c, QN_BLOCK_TEXT, content->text);
    else if (!content->count)
        add_block(c, QN_BLOCK_TEXT, (qn_str){"", 0});
    for (uint32_t i = 0; content->type == QN_JSON_T_ARRAY && i < content->count;
         i++) {
        size_t before = qn_enter_index(c->r, i);
        if (!read_block(c, &content->items[i]))
            return false;
        qn_leave(c->r, before);
    }
    return true;
}

static bool read_message(collector *c, const qn_json *message)
{
    qn_reading *r = c->r;
    qn_str role = qn_json_get(message, "role")->text;
    if (qn_str_is(role, "user")) {
        c->role = QN_FROM_USER;
    } else if (qn_str_is(role, "system")) { /* from here on */
        c->role = QN_FROM_SYSTEM;
    } else if (qn_str_is(role, "assistant")) {
        c->role = QN_FROM_ASSISTANT;
    } else {
        qn_enter(r, "role");
        return qn_bad_field(
            r, QN_API_UNSUPPORTED_VALUE,
            "expected user, assistant or system, found \"%.*s\"",
            role.size < 40 ? (int)role.size : 40, role.data);
    }
    size_t before = qn_enter(r, "content");
    if (!read_content(c, qn_json_get(message, "content")))
        return false;
    qn_leave(r, before);
    return true;
}

static bool read_all(collector *c)
{
    qn_reading *r = c->r;
    const qn_json *messages = c->a->messages;
    size_t before = qn_enter(r, "system");
    c->role = QN_FROM_SYSTEM;
    if (c->a->system && !read_content(c, c->a->system))
        return false;
    qn_leave(r, before);
    before = qn_enter(r, "messages");
    if (!messages->count || messages->count > MAX_MESSAGES)
        return qn_bad_field(r, QN_API_OUT_OF_RANGE,
                            "expected 1..%d messages, found %u", MAX_MESSAGES,
                            (unsigned)messages->count);
    for (uint32_t i = 0; i < messages->count; i++) {
        size_t outside = qn_enter_index(r, i);
        if (!read_message(c, &messages->items[i]))
            return false;
        qn_leave(r, outside);
    }
    qn_leave(r, before);
    return count_pin(c, &c->a->blocks[c->a->block_count - 1].pin_seconds,
                     c->a->pin_seconds);
}

/* As many blocks as there can be. */
static size_t room_for(const qn_anthropic *a)
{
    size_t room = 1 + (a->system ? a->system->count : 0);
    for (uint32_t i = 0; i < a->messages->count; i++)
        room += 1 + qn_json_get(&a->messages->items[i], "content")->count;
    return room;
}

bool qn_blocks_read(qn_reading *r, qn_anthropic *a)
{
    collector c = {.r = r, .a = a, .pins = a->tool_pin_count};
    a->blocks =
        qn_arena_alloc(&r->call->arena, room_for(a) * sizeof *a->blocks);
    c.uses = qn_map_new(16);
    bool good = a->blocks && c.uses ? read_all(&c) : qn_reading_no_memory(r);
    qn_map_free(c.uses, NULL);
    a->pins = c.pins;
    return good;
}

/* ---- for the template ---- */

static void write_text_part(qn_json_writer *w, qn_str text)
{
    qn_json_write_object(w);
    qn_json_write_key(w, "type");
    qn_json_write_text(w, "text");
    qn_json_write_key(w, "text");
    qn_json_write_str(w, text);
    qn_json_write_object_end(w);
}

/* Texts of what were two messages are two paragraphs. */
#define BETWEEN_MESSAGES QN_STR("\n\n")

/* The blocks of one kind among some, as one text. */
static void write_joined(qn_json_writer *w, const qn_block *blocks,
                         size_t count, qn_block_kind kind)
{
    qn_buf text = QN_BUF_INIT;
    bool apart = false;
    for (size_t i = 0; i < count; i++) {
        apart = apart || (blocks[i].first && text.size);
        if (blocks[i].kind != kind)
            continue;
        if (apart)
            qn_buf_add_str(&text, BETWEEN_MESSAGES);
        qn_buf_add_str(&text, blocks[i].text);
        apart = false;
    }
    if (text.failed)
        w->out->failed = true;
    qn_json_write_str(w, qn_buf_str(&text));
    qn_buf_free(&text);
}

static void write_list(qn_json_writer *w, const qn_block *blocks, size_t count)
{
    bool any = false, apart = false;
    qn_json_write_array(w);
    for (size_t i = 0; i < count; i++) {
        apart = apart || (blocks[i].first && any);
        if (blocks[i].kind != QN_BLOCK_TEXT)
            continue;
        if (apart)
            write_text_part(w, BETWEEN_MESSAGES);
        write_text_part(w, blocks[i].text);
        any = true;
        apart = false;
    }
    qn_json_write_array_end(w);
}

static void write_role(qn_json_writer *w, const char *role)
{
    qn_json_write_object(w);
    qn_json_write_key(w, "role");
    qn_json_write_text(w, role);
}

/* A message of the texts among some blocks. */
static void write_texts(qn_json_writer *w, const char *role,
                        const qn_block *blocks, size_t count, bool lists)
{
    write_role(w, role);
    qn_json_write_key(w, "content");
    if (lists && count > 1)
        write_list(w, blocks, count);
    else
        write_joined(w, blocks, count, QN_BLOCK_TEXT);
    qn_json_write_object_end(w);
}

/* A template has no word for is_error: a result that has no text either has to
 * say so. */
static void write_result_text(qn_json_writer *w, const qn_json *block)
{
    const qn_json *content = qn_field_get(block, "content");
    const qn_json *is_error = qn_field_get(block, "is_error");
    qn_buf text = QN_BUF_INIT;
    if (content && content->type == QN_JSON_T_STRING)
        qn_buf_add_str(&text, content->text);
    for (uint32_t i = 0;
         content && content->type == QN_JSON_T_ARRAY && i < content->count; i++)
        qn_buf_add_str(&text, qn_json_get(&content->items[i], "text")->text);
    if (!text.size && is_error && is_error->boolean)
        qn_buf_add_text(&text, "Error");
    if (text.failed)
        w->out->failed = true;
    qn_json_write_str(w, qn_buf_str(&text));
    qn_buf_free(&text);
}

static void write_result(qn_json_writer *w, const qn_block *b)
{
    write_role(w, "tool");
    qn_json_write_key(w, "tool_call_id");
    qn_json_write_value(w, qn_json_get(b->value, "tool_use_id"));
    qn_json_write_key(w, "name");
    qn_json_write_value(w, qn_json_get(b->use, "name"));
    qn_json_write_key(w, "content");
    write_result_text(w, b->value);
    qn_json_write_object_end(w);
}

static void write_user(qn_json_writer *w, const qn_block *blocks, size_t count,
                       bool lists)
{
    size_t from = 0;
    for (size_t i = 0; i <= count; i++) {
        bool result = i < count && blocks[i].kind == QN_BLOCK_TOOL_RESULT;
        if (i < count && !result)
            continue;
        if (i > from)
            write_texts(w, "user", blocks + from, i - from, lists);
        if (result)
            write_result(w, &blocks[i]);
        from = i + 1;
    }
}

static void write_call(qn_json_writer *w, const qn_json *use)
{
    qn_json_write_object(w);
    qn_json_write_key(w, "id");
    qn_json_write_value(w, qn_json_get(use, "id"));
    qn_json_write_key(w, "type");
    qn_json_write_text(w, "function");
    qn_json_write_key(w, "function");
    qn_json_write_object(w);
    qn_json_write_key(w, "name");
    qn_json_write_value(w, qn_json_get(use, "name"));
    qn_json_write_key(w, "arguments");
    qn_json_write_value(w, qn_json_get(use, "input"));
    qn_json_write_object_end(w);
    qn_json_write_object_end(w);
}

static size_t count_kind(const qn_block *blocks, size_t count,
                         qn_block_kind kind)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        found += blocks[i].kind == kind;
    return found;
}

static void write_assistant(qn_json_writer *w, const qn_block *blocks,
                            size_t count, bool lists)
{
    size_t texts = count_kind(blocks, count, QN_BLOCK_TEXT);
    write_role(w, "assistant");
    if (count_kind(blocks, count, QN_BLOCK_THINKING)) {
        qn_json_write_key(w, "reasoning_content");
        write_joined(w, blocks, count, QN_BLOCK_THINKING);
    }
    qn_json_write_key(w, "content");
    if (lists && texts > 1)
        write_list(w, blocks, count);
    else
        write_joined(w, blocks, count, QN_BLOCK_TEXT);
    if (count_kind(blocks, count, QN_BLOCK_TOOL_USE)) {
        qn_json_write_key(w, "tool_calls");
        qn_json_write_array(w);
        for (size_t i = 0; i < count; i++)
            if (blocks[i].kind == QN_BLOCK_TOOL_USE)
                write_call(w, blocks[i].value);
        qn_json_write_array_end(w);
    }
    qn_json_write_object_end(w);
}

void qn_blocks_write(qn_buf *out, const qn_block *blocks, size_t count,
                     bool lists)
{
    qn_json_writer w;
    qn_json_write_begin(&w, out);
    qn_json_write_array(&w);
    for (size_t i = 0, n; i < count; i += n) {
        for (n = 1; i + n < count && blocks[i + n].role == blocks[i].role; n++)
            ;
        if (blocks[i].role == QN_FROM_SYSTEM)
            write_texts(&w, "system", blocks + i, n, lists);
        else if (blocks[i].role == QN_FROM_USER)
            write_user(&w, blocks + i, n, lists);
        else
            write_assistant(&w, blocks + i, n, lists);
    }
    qn_json_write_array_end(&w);
}
