/* print.c: str(), repr() and json.dumps, each a walk over the value. */
#include "print.h"

#include "call.h"
#include "number.h"
#include "run.h"
#include "unicode.h"

#include <math.h>
#include <stdio.h>

static void print(qn_jbuild *b, qn_jval value, bool quoted, int depth);

/* ---- repr ---- */

static void add_escape(qn_jbuild *b, uint32_t code, bool tainted)
{
    char text[16];
    if (code == '\n' || code == '\r' || code == '\t')
        snprintf(text, sizeof text, "\\%c",
                 code == '\n'   ? 'n'
                 : code == '\r' ? 'r'
                                : 't');
    else if (code < 0x100)
        snprintf(text, sizeof text, "\\x%02x", (unsigned)code);
    else if (code < 0x10000)
        snprintf(text, sizeof text, "\\u%04x", (unsigned)code);
    else
        snprintf(text, sizeof text, "\\U%08x", (unsigned)code);
    qn_jbuild_text(b, text, tainted);
}

/* In single quotes, or in double ones when that avoids escapes. */
static void repr_str(qn_jbuild *b, const qn_jstr *str)
{
    bool single = str->size && memchr(str->data, '\'', str->size);
    bool twice = str->size && memchr(str->data, '"', str->size);
    char quote = single && !twice ? '"' : '\'';
    qn_jrun_chars(b->run, str->size);
    if (str->markup)
        qn_jbuild_text(b, "Markup(", false);
    qn_jbuild_add(b, (qn_str){&quote, 1}, false);
    size_t done = 0;
    for (size_t at = 0; at < str->size && qn_jrun_ok(b->run);) {
        size_t from = at;
        uint32_t code = qn_jstr_next(qn_jstr_str(str), &at);
        bool escaped = code == '\\' || code == (unsigned char)quote;
        if (!escaped && qn_junicode_printable(code))
            continue;
        qn_jbuild_slice(b, str, done, from);
        if (escaped) {
            qn_jbuild_text(b, "\\", qn_jstr_tainted_at(str, from));
            qn_jbuild_slice(b, str, from, at);
        } else {
            add_escape(b, code, qn_jstr_tainted_at(str, from));
        }
        done = at;
    }
    qn_jbuild_slice(b, str, done, str->size);
    qn_jbuild_add(b, (qn_str){&quote, 1}, false);
    if (str->markup)
        qn_jbuild_text(b, ")", false);
}

static void print_real(qn_jbuild *b, qn_jval value)
{
    char text[QN_JNUMBER_TEXT];
    if (!qn_jrun_step(b->run, 64))
        return;
    int n = qn_jnumber_print(text, value.as.real);
    qn_jbuild_add(b, (qn_str){text, (size_t)n}, value.tainted);
}

static void print_int(qn_jbuild *b, qn_jval value)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%lld", (long long)value.as.integer);
    qn_jbuild_add(b, (qn_str){text, (size_t)n}, value.tainted);
}

static void print_list(qn_jbuild *b, qn_jval value, const char *open,
                       const char *close, int depth)
{
    const qn_jlist *list = value.as.list;
    qn_jbuild_text(b, open, value.tainted);
    for (uint32_t i = 0; i < list->count && qn_jrun_ok(b->run); i++) {
        if (i)
            qn_jbuild_text(b, ", ", value.tainted);
        print(b, list->items[i], true, depth + 1);
    }
    if (value.kind == QN_J_TUPLE && list->count == 1)
        qn_jbuild_text(b, ",", value.tainted);
    qn_jbuild_text(b, close, value.tainted);
}

/* {'a': 1}, or the keys, values or pairs alone. */
static void print_dict(qn_jbuild *b, qn_jval value, int depth)
{
    const qn_jdict *dict = value.as.dict;
    bool t = value.tainted;
    const char *open = "{", *close = "}";
    bool pairs = value.kind == QN_J_ITEMS;
    if (value.kind != QN_J_DICT && value.kind != QN_J_NAMESPACE) {
        qn_jbuild_text(b, qn_jtype(value), t);
        open = "([";
        close = "])";
    }
    qn_jbuild_text(b, open, t);
    for (uint32_t i = 0; i < qn_jdict_count(dict) && qn_jrun_ok(b->run); i++) {
        if (i)
            qn_jbuild_text(b, ", ", t);
        if (pairs)
            qn_jbuild_text(b, "(", t);
        if (value.kind != QN_J_VALUES)
            print(b, qn_jdict_key(dict, i), true, depth + 1);
        if (value.kind != QN_J_VALUES && value.kind != QN_J_KEYS)
            qn_jbuild_text(b, pairs ? ", " : ": ", t);
        if (value.kind != QN_J_KEYS)
            print(b, qn_jdict_value(dict, i), true, depth + 1);
        if (pairs)
            qn_jbuild_text(b, ")", t);
    }
    qn_jbuild_text(b, close, t);
}

static void print_range(qn_jbuild *b, const qn_jrange *range)
{
    char text[96];
    int n = snprintf(text, sizeof text, "range(%lld, %lld",
                     (long long)range->start, (long long)range->stop);
    if (range->step != 1)
        n += snprintf(text + n, sizeof text - (size_t)n, ", %lld",
                      (long long)range->step);
    snprintf(text + n, sizeof text - (size_t)n, ")");
    qn_jbuild_text(b, text, false);
}

static void print_macro(qn_jbuild *b, const qn_jmacro *macro)
{
    qn_jbuild_text(b, "<Macro ", false);
    if (macro->def->name)
        repr_str(b, macro->def->name);
    else
        qn_jbuild_text(b, "anonymous", false);
    qn_jbuild_text(b, ">", false);
}

static void print_loop(qn_jbuild *b, qn_jloop *loop)
{
    qn_jval index = qn_jloop_attribute(b->run, loop, QN_STR("index"));
    qn_jval length = qn_jloop_attribute(b->run, loop, QN_STR("length"));
    qn_jbuild_text(b, "<LoopContext ", false);
    print(b, index, true, 1);
    qn_jbuild_text(b, "/", false);
    print(b, length, true, 1);
    qn_jbuild_text(b, ">", false);
}

/* str(value), or repr(value) if `quoted`. */
static void print(qn_jbuild *b, qn_jval value, bool quoted, int depth)
{
    if (!qn_jrun_step(b->run, 1))
        return;
    if (depth > QN_JDEPTH) {
        qn_jrun_fail(b->run, "a value is nested deeper than %d levels",
                     QN_JDEPTH);
        return;
    }
    switch ((qn_jkind)value.kind) {
    case QN_J_MISSING:
        break;
    case QN_J_UNDEFINED:
        if (quoted)
            qn_jbuild_text(b, "Undefined", false);
        break;
    case QN_J_NONE:
        qn_jbuild_text(b, "None", value.tainted);
        break;
    case QN_J_BOOL:
        qn_jbuild_text(b, value.as.boolean ? "True" : "False", value.tainted);
        break;
    case QN_J_INT:
        print_int(b, value);
        break;
    case QN_J_BIGINT:
        qn_jbuild_add(b, qn_jstr_str(value.as.str), value.tainted);
        break;
    case QN_J_FLOAT:
        print_real(b, value);
        break;
    case QN_J_STR:
        if (quoted)
            repr_str(b, value.as.str);
        else
            qn_jbuild_str(b, value.as.str);
        break;
    case QN_J_LIST:
        print_list(b, value, "[", "]", depth);
        break;
    case QN_J_TUPLE:
        print_list(b, value, "(", ")", depth);
        break;
    case QN_J_DICT:
    case QN_J_KEYS:
    case QN_J_VALUES:
    case QN_J_ITEMS:
        print_dict(b, value, depth);
        break;
    case QN_J_RANGE:
        print_range(b, value.as.range);
        break;
    case QN_J_NAMESPACE:
        qn_jbuild_text(b, "<Namespace ", false);
        print_dict(b, value, depth);
        qn_jbuild_text(b, ">", false);
        break;
    case QN_J_MACRO:
        print_macro(b, value.as.macro);
        break;
    case QN_J_LOOP:
        print_loop(b, value.as.loop);
        break;
    case QN_J_ITER: /* Python adds an address to these */
        qn_jbuild_text(b, "<generator object>", false);
        break;
    case QN_J_FUNCTION:
        qn_jbuild_text(b, "<function ", false);
        qn_jbuild_text(b, value.as.function->name, false);
        qn_jbuild_text(b, ">", false);
        break;
    case QN_J_METHOD:
        qn_jbuild_text(b, "<built-in method ", false);
        qn_jbuild_text(b, value.as.method->row->name, false);
        qn_jbuild_text(b, " of ", false);
        qn_jbuild_text(b, qn_jtype(value.as.method->object), false);
        qn_jbuild_text(b, " object>", false);
        break;
    }
}

void qn_jprint(qn_jbuild *b, qn_jval value)
{
    print(b, value, false, 1);
}

void qn_jrepr(qn_jbuild *b, qn_jval value)
{
    print(b, value, true, 1);
}

const qn_jstr *qn_jto_str(qn_jrun *run, qn_jval value)
{
    if (value.kind == QN_J_STR)
        return value.as.str;
    qn_jbuild b = qn_jbuild_new(run);
    qn_jprint(&b, value);
    return qn_jbuild_done(&b);
}

/* ---- JSON ---- */

static void json_escape(qn_jbuild *b, uint32_t code, bool tainted)
{
    static const char letters[] = "\"\\\n\r\t\b\f";
    static const char names[] = "\"\\nrtbf";
    char text[16];
    const char *letter =
        code && code < 0x80 ? strchr(letters, (int)code) : NULL;
    if (letter)
        snprintf(text, sizeof text, "\\%c", names[letter - letters]);
    else if (code < 0x10000)
        snprintf(text, sizeof text, "\\u%04x", (unsigned)code);
    else
        snprintf(text, sizeof text, "\\u%04x\\u%04x",
                 (unsigned)(0xd800 + ((code - 0x10000) >> 10)),
                 (unsigned)(0xdc00 + ((code - 0x10000) & 0x3ff)));
    qn_jbuild_text(b, text, tainted);
}

static void json_str(qn_jbuild *b, const qn_jstr *str, bool tainted,
                     const qn_jjson *options)
{
    qn_jrun_chars(b->run, str->size / 4);
    qn_jbuild_text(b, "\"", tainted);
    size_t done = 0;
    for (size_t at = 0; at < str->size && qn_jrun_ok(b->run);) {
        size_t from = at;
        uint32_t code = qn_jstr_next(qn_jstr_str(str), &at);
        if (code >= ' ' && code != '"' && code != '\\' &&
            (code < 0x7f || !options->ascii))
            continue;
        qn_jbuild_slice(b, str, done, from);
        json_escape(b, code, qn_jstr_tainted_at(str, from));
        done = at;
    }
    qn_jbuild_slice(b, str, done, str->size);
    qn_jbuild_text(b, "\"", tainted);
}

static void json_real(qn_jbuild *b, qn_jval value)
{
    double real = value.as.real;
    if (isnan(real))
        qn_jbuild_text(b, "NaN", value.tainted);
    else if (isinf(real))
        qn_jbuild_text(b, real < 0 ? "-Infinity" : "Infinity", value.tainted);
    else
        print_real(b, value);
}

static void json_newline(qn_jbuild *b, const qn_jjson *options, int level)
{
    if (!options->indent)
        return;
    qn_jbuild_text(b, "\n", false);
    for (int i = 0; i < level; i++)
        qn_jbuild_str(b, options->indent);
}

/* A separator of a tainted list or dict is as tainted as its brackets. */
static void json_separator(qn_jbuild *b, const qn_jstr *text, bool tainted)
{
    if (tainted)
        qn_jbuild_add(b, qn_jstr_str(text), true);
    else
        qn_jbuild_str(b, text);
}

static void json(qn_jbuild *b, qn_jval value, const qn_jjson *o, int depth);

static void json_list(qn_jbuild *b, qn_jval value, const qn_jjson *o, int depth)
{
    const qn_jlist *list = value.as.list;
    qn_jbuild_text(b, "[", value.tainted);
    for (uint32_t i = 0; i < list->count && qn_jrun_ok(b->run); i++) {
        if (i)
            json_separator(b, o->item, value.tainted);
        json_newline(b, o, depth);
        json(b, list->items[i], o, depth + 1);
    }
    if (list->count)
        json_newline(b, o, depth - 1);
    qn_jbuild_text(b, "]", value.tainted);
}

/* A key: scalars become text. */
static void json_key(qn_jbuild *b, qn_jval key, bool tainted, const qn_jjson *o)
{
    switch ((qn_jkind)key.kind) {
    case QN_J_STR:
        json_str(b, key.as.str, tainted, o);
        return;
    case QN_J_NONE:
    case QN_J_BOOL:
    case QN_J_INT:
    case QN_J_BIGINT:
    case QN_J_FLOAT:
        qn_jbuild_text(b, "\"", tainted);
        json(b, key, o, 1);
        qn_jbuild_text(b, "\"", tainted);
        return;
    default:
        qn_jrun_fail(b->run,
                     "keys must be str, int, float, bool or None, not %s",
                     qn_jtype(key));
    }
}

/* The entries of a dict in the order of their keys. */
static uint32_t *sorted_keys(qn_jrun *run, const qn_jdict *dict)
{
    uint32_t count = qn_jdict_count(dict);
    uint32_t *order = qn_jrun_array(run, count, sizeof *order);
    qn_jval *keys = qn_jrun_array(run, count, sizeof *keys);
    if (!order || !keys)
        return NULL;
    for (uint32_t i = 0; i < count; i++)
        keys[i] = qn_jdict_key(dict, i);
    return qn_jsort(run, order, keys, count, false) ? order : NULL;
}

static void json_dict(qn_jbuild *b, qn_jval value, const qn_jjson *o, int depth)
{
    const qn_jdict *dict = value.as.dict;
    uint32_t count = qn_jdict_count(dict);
    uint32_t *order = NULL;
    if (o->sort_keys && count && !(order = sorted_keys(b->run, dict)))
        return;
    qn_jbuild_text(b, "{", value.tainted);
    for (uint32_t i = 0; i < count && qn_jrun_ok(b->run); i++) {
        uint32_t entry = order ? order[i] : i;
        if (i)
            json_separator(b, o->item, value.tainted);
        json_newline(b, o, depth);
        json_key(b, qn_jdict_key(dict, entry), value.tainted, o);
        json_separator(b, o->key, value.tainted);
        json(b, qn_jdict_value(dict, entry), o, depth + 1);
    }
    if (count)
        json_newline(b, o, depth - 1);
    qn_jbuild_text(b, "}", value.tainted);
}

/* `depth` counts from 1 and is the level of indentation inside. */
static void json(qn_jbuild *b, qn_jval value, const qn_jjson *o, int depth)
{
    if (!qn_jrun_step(b->run, 1))
        return;
    if (depth > QN_JDEPTH) {
        qn_jrun_fail(b->run, "a value is nested deeper than %d levels",
                     QN_JDEPTH);
        return;
    }
    switch ((qn_jkind)value.kind) {
    case QN_J_NONE:
        qn_jbuild_text(b, "null", value.tainted);
        break;
    case QN_J_BOOL:
        qn_jbuild_text(b, value.as.boolean ? "true" : "false", value.tainted);
        break;
    case QN_J_INT:
    case QN_J_BIGINT:
        qn_jprint(b, value);
        break;
    case QN_J_FLOAT:
        json_real(b, value);
        break;
    case QN_J_STR:
        json_str(b, value.as.str, value.as.str->span_count > 0, o);
        break;
    case QN_J_LIST:
    case QN_J_TUPLE:
        json_list(b, value, o, depth);
        break;
    case QN_J_DICT:
        json_dict(b, value, o, depth);
        break;
    default:
        qn_jrun_fail(b->run, "Object of type %s is not JSON serializable",
                     qn_jtype(value));
        break;
    }
}

void qn_jto_json(qn_jbuild *b, qn_jval value, const qn_jjson *options)
{
    json(b, value, options, 1);
}
