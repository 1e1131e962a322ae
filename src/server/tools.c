/* tools.c: see tools.h. */
#include "tools.h"

#include "base/map.h"

enum { MOST_TOOLS = 256, MOST_NAME = 64 };

/* ---- the functions ---- */

/* Where a protocol has the parts of a function. */
typedef struct qn_tool_spelling {
    const char *inside; /* the object with the rest; NULL: the element itself */
    const char *type;   /* the only one that there is */
    bool needs_type;
    const char *parameters;
    bool needs_parameters;
} spelling;

static const spelling chat = {"function", "function", true, "parameters",
                              false};
static const spelling flat = {NULL, "function", true, "parameters", false};
static const spelling anthropic = {NULL, "custom", false, "input_schema", true};

static const qn_json *function_of(const qn_json *tool, const spelling *s)
{
    return s->inside ? qn_json_get(tool, s->inside) : tool;
}

static bool member_shape(qn_reading *r, const qn_json *object, const char *key,
                         unsigned types)
{
    const qn_json *value = qn_field_get(object, key);
    size_t before = qn_enter(r, key);
    if (value && !qn_check_type(r, value, types))
        return false;
    qn_leave(r, before);
    return true;
}

/* A type that is not ours has parts of its own, and is refused later. */
static bool is_ours(const qn_json *tool, const spelling *s)
{
    const qn_json *type = qn_field_get(tool, "type");
    return type ? qn_str_is(type->text, s->type) : !s->needs_type;
}

static bool function_shape(qn_reading *r, const qn_json *function,
                           const spelling *s)
{
    return qn_field_typed(r, function, "name", QN_STRING) &&
           member_shape(r, function, "description", QN_STRING) &&
           member_shape(r, function, "strict", QN_BOOL) &&
           (!s->needs_parameters ||
            qn_field_required(r, function, s->parameters)) &&
           member_shape(r, function, s->parameters, QN_OBJECT);
}

static bool tool_shape(qn_reading *r, const qn_json *tool, const spelling *s)
{
    if (!qn_check_type(r, tool, QN_OBJECT) ||
        !member_shape(r, tool, "type", QN_STRING) ||
        (s->needs_type && !qn_field_required(r, tool, "type")))
        return false;
    if (!is_ours(tool, s))
        return true;
    if (!s->inside)
        return function_shape(r, tool, s);
    const qn_json *function = qn_field_typed(r, tool, s->inside, QN_OBJECT);
    if (!function)
        return false;
    size_t before = qn_enter(r, s->inside);
    if (!function_shape(r, function, s))
        return false;
    qn_leave(r, before);
    return true;
}

static bool tools_shape(qn_reading *r, const qn_json *value, const spelling *s)
{
    for (uint32_t i = 0; i < value->count; i++) {
        size_t before = qn_enter_index(r, i);
        if (!tool_shape(r, &value->items[i], s))
            return false;
        qn_leave(r, before);
    }
    return true;
}

static bool name_is_good(qn_str name)
{
    for (size_t i = 0; i < name.size; i++) {
        char c = name.data[i];
        bool letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
        if (!letter && !(c >= '0' && c <= '9') && !(c && strchr("_.-", c)))
            return false;
    }
    return name.size && name.size <= MOST_NAME;
}

static bool check_function(qn_reading *r, const qn_json *function,
                           qn_map *names)
{
    const qn_json *strict = qn_field_get(function, "strict");
    qn_str name = qn_json_get(function, "name")->text;
    size_t before = qn_enter(r, "name");
    bool is_new;
    if (!name_is_good(name))
        return qn_bad_field(r, QN_API_INVALID_TOOL,
                            "expected 1..%d letters, digits, \"_\", \".\" and "
                            "\"-\"",
                            MOST_NAME);
    if (!qn_map_put(names, name, &is_new))
        return qn_reading_no_memory(r);
    if (!is_new)
        return qn_bad_field(r, QN_API_INVALID_TOOL,
                            "another function has this name");
    qn_leave(r, before);
    if (!strict || !strict->boolean)
        return true;
    qn_enter(r, "strict");
    return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                        "this server can't hold a model to a schema yet");
}

static bool check_tool(qn_reading *r, const qn_json *tool, const spelling *s,
                       qn_map *names)
{
    if (!is_ours(tool, s)) {
        qn_str type = qn_json_get(tool, "type")->text;
        qn_enter(r, "type");
        return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                            "expected \"%s\", found \"%.*s\"", s->type,
                            type.size < 40 ? (int)type.size : 40, type.data);
    }
    size_t before = r->depth;
    if (s->inside)
        qn_enter(r, s->inside);
    if (!check_function(r, function_of(tool, s), names))
        return false;
    qn_leave(r, before);
    return true;
}

static bool take_tools(qn_reading *r, const qn_json *value, const spelling *s)
{
    qn_asked_tools *asked = &r->call->tools;
    if (value->count > MOST_TOOLS)
        return qn_bad_field(r, QN_API_OUT_OF_RANGE,
                            "expected at most %d, found %u", MOST_TOOLS,
                            (unsigned)value->count);
    qn_map *names = qn_map_new(16);
    bool good = names ? true : qn_reading_no_memory(r);
    for (uint32_t i = 0; i < value->count && good; i++) {
        size_t before = qn_enter_index(r, i);
        good = check_tool(r, &value->items[i], s, names);
        if (good)
            qn_leave(r, before);
    }
    qn_map_free(names, NULL);
    asked->list = value->count ? value : NULL;
    asked->spelling = s;
    return good;
}

#define STEPS(name, words)                                                     \
    bool qn_##name##_tools_shape(qn_reading *r, const qn_field *f,             \
                                 const qn_json *value, void *base)             \
    {                                                                          \
        (void)f;                                                               \
        (void)base;                                                            \
        return tools_shape(r, value, &(words));                                \
    }                                                                          \
    bool qn_take_##name##_tools(qn_reading *r, const qn_field *f,              \
                                const qn_json *value, void *base)              \
    {                                                                          \
        (void)f;                                                               \
        (void)base;                                                            \
        return take_tools(r, value, &(words));                                 \
    }
STEPS(chat, chat)
STEPS(flat, flat)
STEPS(anthropic, anthropic)

/* ---- the choice ---- */

static bool set_choice(qn_reading *r, qn_str kind, const char *must,
                       const char *one)
{
    qn_asked_tools *asked = &r->call->tools;
    if (qn_str_is(kind, "none"))
        asked->choice = QN_CHOICE_NONE;
    else if (qn_str_is(kind, "auto"))
        asked->choice = QN_CHOICE_AUTO;
    else if (qn_str_is(kind, must))
        asked->choice = QN_CHOICE_REQUIRED;
    else if (one && qn_str_is(kind, one))
        asked->choice = QN_CHOICE_NAMED;
    else
        return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                            "expected none, auto, %s or a function", must);
    return true;
}

/* The name is in the object, or in the one below "function". */
static bool set_name(qn_reading *r, const qn_json *choice)
{
    const qn_json *inside = qn_field_get(choice, "function");
    if (inside) {
        qn_enter(r, "function");
        if (!qn_check_type(r, inside, QN_OBJECT))
            return false;
        choice = inside;
    }
    const qn_json *name = qn_field_typed(r, choice, "name", QN_STRING);
    if (name)
        r->call->tools.name = name->text;
    return name != NULL;
}

bool qn_take_tool_choice(qn_reading *r, const qn_field *f, const qn_json *value,
                         void *base)
{
    (void)f;
    (void)base;
    if (value->type == QN_JSON_T_STRING)
        return set_choice(r, value->text, "required", NULL);
    const qn_json *type = qn_field_typed(r, value, "type", QN_STRING);
    if (!type)
        return false;
    if (!qn_str_is(type->text, "function")) {
        qn_enter(r, "type");
        return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                            "expected \"function\"");
    }
    r->call->tools.choice = QN_CHOICE_NAMED;
    return set_name(r, value);
}

bool qn_take_anthropic_choice(qn_reading *r, const qn_field *f,
                              const qn_json *value, void *base)
{
    (void)f;
    (void)base;
    const qn_json *type = qn_field_typed(r, value, "type", QN_STRING);
    const qn_json *single = qn_field_get(value, "disable_parallel_tool_use");
    if (!type)
        return false;
    size_t before = qn_enter(r, "disable_parallel_tool_use");
    if (single && !qn_check_type(r, single, QN_BOOL))
        return false;
    qn_leave(r, before);
    r->call->tools.single = single && single->boolean;
    qn_enter(r, "type");
    if (!set_choice(r, type->text, "any", "tool"))
        return false;
    qn_leave(r, before);
    return r->call->tools.choice != QN_CHOICE_NAMED || set_name(r, value);
}

bool qn_take_parallel_calls(qn_reading *r, const qn_field *f,
                            const qn_json *value, void *base)
{
    (void)f;
    (void)base;
    r->call->tools.single = !value->boolean;
    return true;
}

static bool has_function(const qn_asked_tools *asked, qn_str name)
{
    for (uint32_t i = 0; i < asked->list->count; i++) {
        const qn_json *tool = &asked->list->items[i];
        if (qn_str_eq(
                qn_json_get(function_of(tool, asked->spelling), "name")->text,
                name))
            return true;
    }
    return false;
}

bool qn_tools_check(qn_reading *r)
{
    const qn_asked_tools *asked = &r->call->tools;
    if (asked->choice == QN_CHOICE_UNSAID)
        return true;
    size_t before = qn_enter(r, "tool_choice");
    if (!asked->list)
        return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                            "this field is only allowed with \"tools\"");
    if (asked->choice == QN_CHOICE_NAMED && !has_function(asked, asked->name))
        return qn_bad_field(r, QN_API_INVALID_TOOL,
                            "\"tools\" has no function of this name");
    if (asked->choice > QN_CHOICE_AUTO)
        return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                            "this server can't make a model call a function "
                            "yet: expected none or auto");
    qn_leave(r, before);
    return true;
}

/* ---- for the template ---- */

static void write_function(qn_json_writer *w, const qn_json *function,
                           const spelling *s)
{
    static const char *const dropped[] = {"strict", "cache_control"};
    const qn_json *parameters = qn_field_get(function, s->parameters);
    qn_json_write_object(w);
    for (uint32_t i = 0; i < function->count; i++) {
        const qn_json *value = &function->items[i];
        qn_str key = function->keys[i];
        if (value->type == QN_JSON_T_NULL || qn_str_is(key, dropped[0]) ||
            qn_str_is(key, dropped[1]) ||
            (!s->inside && qn_str_is(key, "type")))
            continue;
        qn_json_write_key_str(
            w, qn_str_is(key, s->parameters) ? QN_STR("parameters") : key);
        qn_json_write_value(w, value);
    }
    if (!parameters) {
        qn_json_write_key(w, "parameters");
        qn_json_write_raw(w, QN_STR("{\"type\":\"object\",\"properties\":{}}"));
    }
    qn_json_write_object_end(w);
}

static void write_tool(qn_json_writer *w, const qn_json *function,
                       const spelling *s)
{
    qn_json_write_object(w);
    qn_json_pair_text(w, "type", "function");
    qn_json_write_key(w, "function");
    if (function)
        write_function(w, function, s);
    else
        qn_json_write_raw(w, QN_STR("{\"name\":\"-\",\"parameters\":{}}"));
    qn_json_write_object_end(w);
}

static void write_tools(qn_buf *out, const qn_json *tools, uint32_t count,
                        bool one_more, const spelling *s)
{
    qn_json_writer w;
    qn_json_write_begin(&w, out);
    qn_json_write_array(&w);
    for (uint32_t i = 0; i < count; i++)
        write_tool(&w, function_of(&tools->items[i], s), s);
    if (one_more)
        write_tool(&w, NULL, s);
    qn_json_write_array_end(&w);
}

void qn_chat_tools_write(qn_buf *out, const qn_json *tools)
{
    write_tools(out, tools, tools->count, false, &chat);
}

void qn_tools_write_first(qn_buf *out, const qn_asked_tools *asked,
                          uint32_t count)
{
    write_tools(out, asked->list, count, true, asked->spelling);
}

bool qn_tools_prepare(qn_api_call *call, const quern_model *model,
                      qn_api_error *error)
{
    qn_asked_tools *asked = &call->tools;
    quern_info info;
    qn_buf out = QN_BUF_INIT;
    qn_str copy = {0};
    if (!asked->list || asked->choice == QN_CHOICE_NONE)
        return true;
    quern_model_info(model, &info);
    if (!info.tool_format)
        return qn_api_fail(error, QN_API_UNSUPPORTED_VALUE, "tools",
                           "the model's chat template shows no known way of "
                           "calling functions (see --tool-format)");
    write_tools(&out, asked->list, asked->list->count, false, asked->spelling);
    qn_buf_add_char(&out, '\0');
    bool good =
        !out.failed && qn_arena_copy(&call->arena, &copy, qn_buf_str(&out));
    qn_buf_free(&out);
    asked->json = copy.data;
    return good ? true : qn_api_fail_memory(error);
}

/* ---- answers ---- */

void qn_call_id(char out[QN_API_ID_SIZE], const qn_api_head *head,
                const char *prefix, size_t answer, size_t index)
{
    /* Apart from the ids of other parts, which count from 1. */
    qn_api_id(out, head, prefix,
              ((uint64_t)answer + 1) << 32 | ((uint64_t)index + 1));
}

/* Where in a text that breaks off its values are whole. */
typedef struct closing {
    uint8_t levels[QN_JSON_MAX_DEPTH]; /* what closes them */
    int depth;
    size_t whole;             /* bytes that only want what closes them */
    bool string, escape, key; /* in a string; behind '\\'; it is a key */
    bool value;               /* a value comes next, no key */
    bool scalar;              /* in a number or a word */
} closing;

static void close_value(closing *c, size_t end)
{
    c->whole = end;
    c->value = false;
}

static void take_string_byte(closing *c, char byte, size_t at)
{
    if (c->escape)
        c->escape = false;
    else if (byte == '\\')
        c->escape = true;
    else if (byte == '"') {
        c->string = false;
        if (!c->key)
            close_value(c, at + 1);
    }
}

static void take_byte(closing *c, char byte, size_t at)
{
    bool object = c->depth && c->levels[c->depth - 1] == '}';
    if (c->string) {
        take_string_byte(c, byte, at);
        return;
    }
    if (c->scalar && strchr(",]} \n\t\r", byte)) {
        c->scalar = false;
        close_value(c, at);
    }
    if (byte == '"') {
        c->string = true;
        c->key = object && !c->value;
    } else if ((byte == '{' || byte == '[') && c->depth < QN_JSON_MAX_DEPTH) {
        c->levels[c->depth++] = byte == '{' ? '}' : ']';
        close_value(c, at + 1);
    } else if ((byte == '}' || byte == ']') && c->depth) {
        c->depth--;
        close_value(c, at + 1);
    } else if (byte == ':') {
        c->value = true;
    } else if (byte > ' ' && byte != ',') {
        c->scalar = true;
    }
}

/* The bytes of a string that breaks off which say whole characters: not half
 * an escape, and no half of a pair. */
static size_t whole_string(qn_str text, size_t from)
{
    size_t good = from;
    for (size_t i = from; i < text.size;) {
        size_t n = text.data[i] != '\\'                           ? 1
                   : i + 1 < text.size && text.data[i + 1] == 'u' ? 6
                                                                  : 2;
        if (n > text.size - i)
            break;
        i += n;
        bool high = n == 6 && (text.data[i - 4] | 0x20) == 'd' &&
                    strchr("89abAB", text.data[i - 3]);
        good = high ? good : i;
    }
    return good;
}

void qn_arguments_close(qn_buf *out, qn_str text)
{
    closing c = {0};
    size_t opened = 0;
    for (size_t i = 0; i < text.size; i++) {
        bool before = c.string;
        take_byte(&c, text.data[i], i);
        if (c.string && !before)
            opened = i + 1;
    }
    if (!c.whole) {
        qn_buf_add_text(out, "{}");
        return;
    }
    bool open = c.string && !c.key;
    qn_buf_add(out, text.data, open ? whole_string(text, opened) : c.whole);
    if (open)
        qn_buf_add_char(out, '"');
    while (c.depth)
        qn_buf_add_char(out, (char)c.levels[--c.depth]);
}
