/* formats.c: the table of formats, and a request's functions. */
#include "base/alloc.h"
#include "parser.h"
#include "text/find.h"

/* ---- formats ---- */

#define ANY(...)                                                               \
    {                                                                          \
        __VA_ARGS__                                                            \
    }
#define ALL(...)                                                               \
    {                                                                          \
        __VA_ARGS__                                                            \
    }
#define BEGINS(...)                                                            \
    {                                                                          \
        __VA_ARGS__                                                            \
    }
#define TOKENS(...)                                                            \
    {                                                                          \
        __VA_ARGS__                                                            \
    }
#define QN_TOOL_FORMAT(name, found, begins, tokens, ...)                       \
    {name, found, begins, tokens, __VA_ARGS__},

static const qn_tool_format formats[] = {
#include "formats.def"
};

enum { FORMATS = sizeof formats / sizeof *formats };

const qn_tool_format *qn_tool_format_named(const char *name)
{
    for (size_t i = 0; i < FORMATS; i++)
        if (!strcmp(formats[i].name, name))
            return &formats[i];
    return NULL;
}

static bool has_pair(const char *const pair[2], qn_str source)
{
    for (int i = 0; i < 2 && pair[i]; i++)
        if (!qn_find(source, qn_str_of(pair[i])))
            return false;
    return pair[0] != NULL;
}

const qn_tool_format *qn_tool_format_of(qn_str source)
{
    for (size_t i = 0; i < FORMATS; i++)
        for (size_t j = 0; j < QN_TOOL_FOUND; j++)
            if (has_pair(formats[i].found[j], source))
                return &formats[i];
    return NULL;
}

const char *qn_tool_format_name(const qn_tool_format *format)
{
    return format->name;
}

void qn_tool_format_list(qn_buf *out)
{
    for (size_t i = 0; i < FORMATS; i++)
        qn_buf_printf(out, "%s%s", i ? ", " : "", formats[i].name);
}

size_t qn_tool_format_id_size(const qn_tool_format *format)
{
    return format->id_size;
}

bool qn_tool_format_has_mark(const qn_tool_format *format, qn_str token)
{
    for (size_t i = 0; i < QN_TOOL_MARKS && format->marks[i]; i++)
        if (qn_str_is(token, format->marks[i]))
            return true;
    return false;
}

/* ---- functions ---- */

bool qn_tool_name_valid(qn_str name)
{
    static const char others[] = "_.-";
    for (size_t i = 0; i < name.size; i++) {
        char c = name.data[i];
        bool letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
        if (!letter && !(c >= '0' && c <= '9') && !(c && strchr(others, c)))
            return false;
    }
    return name.size && name.size <= QN_TOOL_NAME_SIZE;
}

static const qn_json *object_of(const qn_json *value, const char *key)
{
    const qn_json *found = qn_json_get(value, key);
    return found && found->type == QN_JSON_T_OBJECT ? found : NULL;
}

static qn_status read_tool(qn_tools *tools, const qn_json *item)
{
    const qn_json *function = object_of(item, "function");
    const qn_json *name = qn_json_get(function, "name");
    size_t i = tools->count;
    if (!name || name->type != QN_JSON_T_STRING)
        return qn_fail(QN_E_ARG,
                       "tool %zu: expected {\"type\": \"function\", "
                       "\"function\": {\"name\": ...}}",
                       i);
    if (!qn_tool_name_valid(name->text))
        return qn_fail(QN_E_ARG,
                       "tool %zu: expected a name of 1..%d letters, digits, "
                       "'_', '.' and '-'",
                       i, QN_TOOL_NAME_SIZE);
    for (size_t j = 0; j < i; j++)
        if (qn_str_eq(tools->items[j].name, name->text))
            return qn_fail(QN_E_ARG, "tools %zu and %zu have one name", j, i);
    tools->items[tools->count++] = (qn_tool){
        .name = name->text,
        .properties =
            object_of(object_of(function, "parameters"), "properties"),
    };
    return QN_OK;
}

qn_status qn_tools_parse(qn_tools **out, qn_str json)
{
    qn_tools *tools = qn_calloc(1, sizeof *tools);
    if (!tools)
        return QN_E_NOMEM;
    qn_status status = qn_json_parse(&tools->doc, json, 0);
    const qn_json *root = status ? NULL : qn_json_root(tools->doc);
    if (status == QN_E_FORMAT)
        status = QN_E_ARG; /* the caller's text, not a file */
    else if (!status && root->type != QN_JSON_T_ARRAY)
        status = qn_fail(QN_E_ARG, "expected an array, found %s",
                         qn_json_type_name(root->type));
    else if (!status && root->count > QN_MOST_TOOLS)
        status = qn_fail(QN_E_ARG, "expected at most %d, found %u",
                         QN_MOST_TOOLS, (unsigned)root->count);
    for (uint32_t i = 0; !status && i < root->count; i++)
        status = read_tool(tools, &root->items[i]);
    if (status) {
        qn_tools_free(tools);
        return qn_fail_where(status, "tools");
    }
    *out = tools;
    return QN_OK;
}

void qn_tools_free(qn_tools *tools)
{
    if (tools)
        qn_json_doc_free(tools->doc);
    qn_free(tools);
}

size_t qn_tools_count(const qn_tools *tools)
{
    return tools->count;
}
