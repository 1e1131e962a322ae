/* calls.c: see calls.h. */
#include "calls.h"

#include "base/alloc.h"

qn_status qn_calls_init(qn_calls *c, const qn_tool_format *format,
                        const char *tools, bool single, qn_tool_take take,
                        void *data)
{
    if (!format) {
        qn_status status =
            qn_fail(QN_E_UNSUPPORTED,
                    "tools: the model's chat template shows no known "
                    "way of calling functions; tool_format names one");
        return qn_fail_where(status, "tools");
    }
    c->single = single;
    qn_status status = qn_tools_parse(&c->tools, qn_str_of(tools));
    if (status || !qn_tools_count(c->tools))
        return status;
    return qn_tool_parser_new(&c->parser, format, c->tools, take, data);
}

void qn_calls_clear(qn_calls *c)
{
    qn_tool_parser_free(c->parser);
    qn_tools_free(c->tools);
    for (size_t i = 0; i < c->count; i++)
        qn_buf_free(&c->items[i].arguments);
    qn_free(c->items);
    *c = (qn_calls){0};
}

qn_status qn_calls_begin(qn_calls *c, qn_str name, size_t text_before)
{
    if (c->count == c->capacity) {
        size_t capacity = c->capacity ? 2 * c->capacity : 4;
        qn_call *grown = qn_reallocarray(c->items, capacity, sizeof *grown);
        if (!grown)
            return QN_E_NOMEM;
        c->items = grown;
        c->capacity = capacity;
    }
    qn_call *call = &c->items[c->count++];
    *call = (qn_call){.text_before = text_before};
    size_t size = name.size < QN_TOOL_NAME_SIZE ? name.size : QN_TOOL_NAME_SIZE;
    memcpy(call->name, name.data, size);
    return QN_OK;
}

qn_status qn_calls_add(qn_calls *c, qn_str arguments)
{
    qn_buf *buf = &c->items[c->count - 1].arguments;
    qn_buf_add_str(buf, arguments);
    return qn_buf_status(buf);
}

void qn_calls_end(qn_calls *c, bool whole)
{
    c->items[c->count - 1].whole = whole;
    c->over = c->over || (c->single && whole);
}

bool qn_calls_any_whole(const qn_calls *c)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->items[i].whole)
            return true;
    return false;
}

/* With the NUL that a qn_str need not have. */
static bool copy_text(qn_arena *arena, const char **out, qn_str text)
{
    char *copy = qn_arena_alloc(arena, text.size + 1);
    if (!copy)
        return false;
    memcpy(copy, text.data, text.size);
    copy[text.size] = '\0';
    *out = copy;
    return true;
}

qn_status qn_calls_hand_over(const qn_calls *c, qn_arena *arena,
                             quern_result *result)
{
    quern_call *calls = qn_calloc(c->count, sizeof *calls);
    bool good = calls || !c->count;
    for (size_t i = 0; i < c->count && good; i++) {
        const qn_call *call = &c->items[i];
        calls[i].size = call->arguments.size;
        calls[i].whole = call->whole;
        calls[i].text_before = call->text_before;
        good =
            copy_text(arena, &calls[i].name, qn_str_of(call->name)) &&
            copy_text(arena, &calls[i].arguments, qn_buf_str(&call->arguments));
    }
    if (!good) {
        qn_free(calls);
        return QN_E_NOMEM;
    }
    result->calls = calls;
    result->call_count = c->count;
    if (c->parser)
        result->call_failures = (int64_t)qn_tool_parser_failures(c->parser);
    return QN_OK;
}
