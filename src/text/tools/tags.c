/* tags.c: calls that look like XML.
 *
 *   <function=F><parameter=P>V</parameter></function>
 *
 * Values are texts, whose types the function's schema says.  What can only be a
 * string is passed on while it comes; of others the end is awaited. */
#include "parser.h"

enum {
    CALL, /* before a function's name */
    NAME,
    NEXT, /* a parameter, or the end */
    KEY,
    VALUE,
    TYPE,
    STRING, /* to the value's end */
    OTHER,  /* the same of a value of another type */
    CDATA,  /* to the end of a section inside of it */
    CDATA_OTHER,
    CDATA_END,
    AFTER /* a call */
};

enum { MOST_NAME = 256, MOST_VALUE = 1 << 24 };

static const char cdata[] = "<![CDATA[", cdata_end[] = "]]>";

static qn_step begin(qn_tool_parser *p)
{
    const char *call = p->format->tags->call;
    /* The tag itself may have been what the call began with. */
    if (!call || (p->open >= 0 && !strcmp(p->format->opens[p->open], call)))
        return qn_tool_go(p, QN_STEP_ON, NAME);
    return qn_tool_go(p, qn_tool_word_after_space(p, call), NAME);
}

/* A name without a tag of its own ends where the next tag begins. */
static qn_step bare_name(qn_tool_parser *p)
{
    qn_str left = qn_tool_left(p);
    const char *end = left.size ? memchr(left.data, '<', left.size) : NULL;
    size_t size = end ? (size_t)(end - left.data) : left.size;
    if (size > MOST_NAME)
        return QN_STEP_FAULT;
    if (!end)
        return QN_STEP_MORE;
    qn_buf_add(&p->name, left.data, size);
    if (!qn_tool_known(p)) {
        qn_buf_clear(&p->name);
        return QN_STEP_FAULT;
    }
    p->pos += size;
    return qn_tool_go(p, QN_STEP_ON, NEXT);
}

static qn_step name(qn_tool_parser *p)
{
    if (!p->format->tags->call)
        return bare_name(p);
    size_t before = p->pos;
    qn_step step = qn_tool_until(p, &p->name, ">", MOST_NAME);
    if (step != QN_STEP_ON || qn_tool_known(p))
        return qn_tool_go(p, step, NEXT);
    p->pos = before;
    return QN_STEP_FAULT;
}

static qn_step next(qn_tool_parser *p)
{
    const qn_tag_words *w = p->format->tags;
    qn_buf_clear(&p->key);
    qn_step key = qn_tool_word_after_space(p, w->key);
    if (key == QN_STEP_ON) {
        qn_tool_announce(p);
        p->state = KEY;
        return key;
    }
    qn_step end = qn_tool_word_after_space(p, w->call_end);
    if (end == QN_STEP_ON) {
        if (p->has_arguments)
            qn_buf_add_char(&p->arguments, '}');
        qn_tool_end(p);
        p->state = AFTER;
        return end;
    }
    return key == QN_STEP_MORE || end == QN_STEP_MORE ? QN_STEP_MORE
                                                      : QN_STEP_FAULT;
}

static qn_step key(qn_tool_parser *p)
{
    const qn_tag_words *w = p->format->tags;
    qn_step step = qn_tool_until(p, &p->key, w->key_end, MOST_NAME);
    if (step != QN_STEP_ON)
        return step;
    qn_str text = qn_buf_str(&p->key);
    bool quoted = text.size > 1 && qn_tool_in("\"'", text.data[0]) &&
                  text.data[text.size - 1] == text.data[0];
    if (quoted)
        text = (qn_str){text.data + 1, text.size - 2};
    p->types = qn_tool_types(p->tool, text);
    qn_tool_add_key(p, text);
    return qn_tool_go(p, step, w->value ? VALUE : TYPE);
}

/* A value's first line end is not its own. */
static qn_step type(qn_tool_parser *p)
{
    qn_str left = qn_tool_left(p);
    if (!left.size)
        return QN_STEP_MORE;
    qn_step section =
        p->format->cdata ? qn_tool_word_after_space(p, cdata) : QN_STEP_FAULT;
    if (section == QN_STEP_MORE)
        return section;
    p->pos += section == QN_STEP_FAULT && left.data[0] == '\n';
    bool string = p->types == QN_MAY_STRING;
    if (string)
        qn_buf_add_char(&p->arguments, '"');
    if (section == QN_STEP_ON)
        return qn_tool_go(p, QN_STEP_ON, string ? CDATA : CDATA_OTHER);
    return qn_tool_go(p, QN_STEP_ON, string ? STRING : OTHER);
}

static qn_step string(qn_tool_parser *p)
{
    qn_step step = qn_tool_string(p, p->format->tags->value_end, true);
    if (step == QN_STEP_ON)
        qn_buf_add_char(&p->arguments, '"');
    return qn_tool_go(p, step, NEXT);
}

static qn_step section(qn_tool_parser *p)
{
    qn_step step = qn_tool_string(p, cdata_end, false);
    if (step == QN_STEP_ON)
        qn_buf_add_char(&p->arguments, '"');
    return qn_tool_go(p, step, CDATA_END);
}

static qn_step other(qn_tool_parser *p)
{
    bool in_section = p->state == CDATA_OTHER;
    qn_buf_clear(&p->value);
    qn_step step = qn_tool_until(
        p, &p->value, in_section ? cdata_end : p->format->tags->value_end,
        MOST_VALUE);
    if (step != QN_STEP_ON)
        return step;
    qn_str text = qn_buf_str(&p->value);
    if (!in_section && text.size && text.data[text.size - 1] == '\n')
        text.size--;
    qn_tool_add_value(p, text, p->types);
    return qn_tool_go(p, step, in_section ? CDATA_END : NEXT);
}

/* The end of all calls, or another one. */
static qn_step after(qn_tool_parser *p)
{
    const qn_tag_words *w = p->format->tags;
    qn_step end = QN_STEP_FAULT, call = QN_STEP_FAULT;
    if (w->section_end)
        end = qn_tool_word_after_space(p, w->section_end);
    if (end == QN_STEP_ON) {
        qn_tool_settle(p);
        return QN_STEP_OVER;
    }
    if (w->section_end)
        call = qn_tool_try_word(p, w->call);
    if (call == QN_STEP_ON)
        return qn_tool_go(p, call, NAME);
    return end == QN_STEP_MORE || call == QN_STEP_MORE ? QN_STEP_MORE
                                                       : QN_STEP_OVER;
}

qn_step qn_step_tags(qn_tool_parser *p)
{
    const qn_tag_words *w = p->format->tags;
    switch (p->state) {
    case CALL:
        return begin(p);
    case NAME:
        return name(p);
    case NEXT:
        return next(p);
    case KEY:
        return key(p);
    case VALUE:
        return qn_tool_go(p, qn_tool_word_after_space(p, w->value), TYPE);
    case TYPE:
        return type(p);
    case STRING:
        return string(p);
    case CDATA:
        return section(p);
    case CDATA_END:
        return qn_tool_go(p, qn_tool_word_after_space(p, w->value_end), NEXT);
    case OTHER:
    case CDATA_OTHER:
        return other(p);
    default:
        return after(p);
    }
}
