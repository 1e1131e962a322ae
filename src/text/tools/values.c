/* values.c: values that come as texts, by the types of a function's
 * parameters. */
#include "parser.h"

static unsigned type_named(qn_str name)
{
    static const struct {
        const char *name;
        unsigned type;
    } names[] = {
        {"string", QN_MAY_STRING},  {"number", QN_MAY_NUMBER},
        {"integer", QN_MAY_NUMBER}, {"boolean", QN_MAY_BOOL},
        {"null", QN_MAY_NULL},      {"array", QN_MAY_ARRAY},
        {"object", QN_MAY_OBJECT},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (qn_str_is(name, names[i].name))
            return names[i].type;
    return 0;
}

static unsigned type_of(const qn_json *value)
{
    static const unsigned types[] = {
        [QN_JSON_T_NULL] = QN_MAY_NULL,     [QN_JSON_T_BOOL] = QN_MAY_BOOL,
        [QN_JSON_T_NUMBER] = QN_MAY_NUMBER, [QN_JSON_T_STRING] = QN_MAY_STRING,
        [QN_JSON_T_ARRAY] = QN_MAY_ARRAY,   [QN_JSON_T_OBJECT] = QN_MAY_OBJECT};
    return types[value->type];
}

/* 0: it says nothing. */
static unsigned types_of(const qn_json *schema, int depth)
{
    static const char *const unions[] = {"anyOf", "oneOf"};
    const qn_json *type = qn_json_get(schema, "type");
    const qn_json *values = qn_json_get(schema, "enum");
    const qn_json *constant = qn_json_get(schema, "const");
    const qn_json *nullable = qn_json_get(schema, "nullable");
    unsigned types = 0;
    if (type && type->type == QN_JSON_T_STRING)
        types |= type_named(type->text);
    for (uint32_t i = 0;
         type && type->type == QN_JSON_T_ARRAY && i < type->count; i++)
        if (type->items[i].type == QN_JSON_T_STRING)
            types |= type_named(type->items[i].text);
    if (!types && constant)
        types = type_of(constant);
    for (uint32_t i = 0; !type && values && i < values->count; i++)
        types |= type_of(&values->items[i]);
    for (size_t u = 0; u < 2 && !types && depth < 4; u++) {
        const qn_json *parts = qn_json_get(schema, unions[u]);
        for (uint32_t i = 0; parts && i < parts->count; i++) {
            unsigned part = types_of(&parts->items[i], depth + 1);
            types |= part ? part : QN_MAY_ANY;
        }
    }
    if (types && nullable && nullable->boolean)
        types |= QN_MAY_NULL;
    return types;
}

unsigned qn_tool_types(const qn_tool *tool, qn_str key)
{
    const qn_json *schema =
        tool->properties ? qn_json_get_str(tool->properties, key) : NULL;
    unsigned types = schema ? types_of(schema, 0) : 0;
    return types ? types : QN_MAY_ANY;
}

static qn_str trim(qn_str text)
{
    while (text.size && qn_tool_is_space(text.data[0]))
        text = (qn_str){text.data + 1, text.size - 1};
    while (text.size && qn_tool_is_space(text.data[text.size - 1]))
        text.size--;
    return text;
}

/* Words of Python, which models write for JSON's. */
static const char *python_word(qn_str text, unsigned types)
{
    static const struct {
        const char *python, *json;
        unsigned type;
    } words[] = {{"True", "true", QN_MAY_BOOL},
                 {"False", "false", QN_MAY_BOOL},
                 {"None", "null", QN_MAY_NULL}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (types != QN_MAY_ANY && types & words[i].type &&
            qn_str_is(text, words[i].python))
            return words[i].json;
    return NULL;
}

void qn_tool_add_value(qn_tool_parser *p, qn_str text, unsigned types)
{
    qn_str bare = trim(text);
    const char *word = python_word(bare, types);
    qn_json_doc *doc = NULL;
    qn_status status = qn_json_parse(&doc, bare,
                                     QN_JSON_ALLOW_DUPLICATE_KEYS |
                                         QN_JSON_ALLOW_LONE_SURROGATES);
    if (status == QN_E_NOMEM)
        p->arguments.failed = true;
    else if (word)
        qn_buf_add_text(&p->arguments, word);
    else if (!status && type_of(qn_json_root(doc)) & types)
        qn_buf_add_str(&p->arguments, bare);
    else
        qn_json_quote(&p->arguments, text);
    qn_json_doc_free(doc);
}
