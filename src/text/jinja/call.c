/* call.c: matching arguments with parameters, and looking things up in
 * values as Jinja does. */
#include "call.h"

#include "print.h"
#include "run.h"

#include <stdio.h>

/* ---- rows ---- */

/* The parameter `i` of a row's list; empty behind the last. */
static qn_str parameter(const char *list, uint32_t i)
{
    for (;; i--) {
        size_t size = strcspn(list, " ");
        if (!i || !size)
            return (qn_str){list, size};
        list += size;
        list += *list == ' ';
    }
}

static void match_keyword(const qn_jrow *row, const char *what, qn_jcall *call,
                          uint32_t k)
{
    qn_str name = qn_jstr_str(call->names[k]);
    int shown = name.size > 60 ? 60 : (int)name.size;
    for (uint32_t i = 0; i < QN_JPARAMETERS; i++) {
        qn_str known = parameter(row->parameters, i);
        if (!known.size)
            break;
        if (!qn_str_eq(known, name))
            continue;
        if (call->arg[i].kind != QN_J_MISSING)
            qn_jrun_fail(call->run,
                         "%s '%s' got multiple values for argument '%.*s'",
                         what, row->name, shown, name.data);
        call->arg[i] = call->keywords[k];
        return;
    }
    qn_jrun_fail(call->run, "%s '%s' got an unexpected keyword argument '%.*s'",
                 what, row->name, shown, name.data);
}

qn_jval qn_jcall_row(const qn_jrow *row, const char *what, qn_jcall *call)
{
    qn_jrun *run = call->run;
    if (!qn_jrun_step(run, 1))
        return qn_jundefined();
    if (!row->fn)
        return qn_jrun_unsupported(run, "the %s '%.60s'", what, row->name);
    if (row->parameters[0] != '*') {
        for (uint32_t i = 0; i < QN_JPARAMETERS; i++)
            call->arg[i] = qn_jmissing();
        for (uint32_t i = 0; i < call->positional_count; i++) {
            if (i == QN_JPARAMETERS || !parameter(row->parameters, i).size)
                return qn_jrun_fail(run, "%s '%s' takes at most %u arguments",
                                    what, row->name, i);
            call->arg[i] = call->positional[i];
        }
        for (uint32_t k = 0; k < call->keyword_count; k++)
            match_keyword(row, what, call, k);
        for (uint32_t i = 0; i < row->required; i++) {
            qn_str name = parameter(row->parameters, i);
            if (call->arg[i].kind == QN_J_MISSING)
                qn_jrun_fail(run, "%s '%s' misses its argument '%.*s'", what,
                             row->name, (int)name.size, name.data);
        }
    }
    if (!qn_jrun_ok(run))
        return qn_jundefined();
    qn_jval result = row->fn(call);
    return qn_jrun_ok(run) ? result : qn_jundefined();
}

qn_jval qn_jcall_value(qn_jval callee, qn_jcall *call)
{
    qn_jrun *run = call->run;
    if (!qn_jrun_ok(run))
        return qn_jundefined();
    switch ((qn_jkind)callee.kind) {
    case QN_J_FUNCTION:
        return qn_jcall_row(callee.as.function, "function", call);
    case QN_J_METHOD:
        call->self = callee.as.method->object;
        return qn_jcall_row(callee.as.method->row, "method", call);
    case QN_J_MACRO:
        return qn_jrun_macro(run, callee.as.macro, call);
    case QN_J_LOOP:
        if (call->positional_count != 1 || call->keyword_count)
            return qn_jrun_fail(run, "loop() takes one argument");
        return qn_jrun_recurse(run, callee.as.loop, call->positional[0]);
    case QN_J_UNDEFINED:
        return qn_jrun_undefined(run, callee);
    default:
        return qn_jrun_fail(run, "'%s' object is not callable",
                            qn_jtype(callee));
    }
}

/* ---- arguments ---- */

bool qn_jarg_bool(const qn_jcall *call, int i, bool fallback)
{
    qn_jval arg = call->arg[i];
    return arg.kind == QN_J_MISSING ? fallback : qn_jtruth(arg);
}

int64_t qn_jarg_int(const qn_jcall *call, int i, int64_t fallback)
{
    qn_jval arg = call->arg[i];
    int64_t value;
    if (arg.kind == QN_J_MISSING || arg.kind == QN_J_NONE)
        return fallback;
    if (qn_jas_int(arg, &value))
        return value;
    if (arg.kind == QN_J_UNDEFINED)
        qn_jrun_undefined(call->run, arg);
    else
        qn_jrun_fail(call->run,
                     "'%s' object cannot be interpreted as an integer",
                     qn_jtype(arg));
    return fallback;
}

const qn_jstr *qn_jarg_str(const qn_jcall *call, int i, const char *fallback)
{
    qn_jval arg = call->arg[i];
    if (arg.kind == QN_J_STR)
        return arg.as.str;
    if (arg.kind == QN_J_MISSING && fallback)
        return qn_jstr_text(call->run, fallback);
    if (arg.kind == QN_J_UNDEFINED)
        qn_jrun_undefined(call->run, arg);
    else
        qn_jrun_fail(call->run, "expected a string, found %s", qn_jtype(arg));
    return &qn_jstr_empty;
}

/* ---- attributes and items ---- */

static qn_jval unsafe(qn_jrun *run, qn_jval object, const qn_jstr *name)
{
    enum { ROOM = 160 };
    char *text = qn_jrun_alloc(run, ROOM);
    if (!text)
        return qn_jundefined();
    snprintf(text, ROOM, "access to attribute '%.*s' of '%s' object is unsafe.",
             name->size > 60 ? 60 : (int)name->size, name->data,
             qn_jtype(object));
    return qn_jundefined_hint(run, text);
}

/* Python's own names, which its sandbox hides. */
static bool is_internal(const qn_jstr *name)
{
    return name->size > 2 && name->data[0] == '_' && name->data[1] == '_';
}

/* What getattr(object, name) finds; MISSING when there is nothing. */
static qn_jval own_attribute(qn_jrun *run, qn_jval object, const qn_jstr *name)
{
    qn_str text = qn_jstr_str(name);
    if (object.kind == QN_J_NAMESPACE) {
        const qn_jval *found = qn_jdict_get_str(run, object.as.dict, text);
        return found ? *found : qn_jmissing();
    }
    if (object.kind == QN_J_LOOP)
        return qn_jloop_attribute(run, object.as.loop, text);
    if (object.kind == QN_J_MACRO && qn_str_is(text, "name"))
        return object.as.macro->def->name
                   ? qn_jstring(object.as.macro->def->name)
                   : qn_jnone();
    const qn_jmethod_row *known = qn_jmethod_find(object.kind, text);
    if (!known)
        return qn_jmissing();
    if (known->use == QN_JMETHOD_CHANGES)
        return unsafe(run, object, name);
    qn_jmethod *method = qn_jrun_alloc(run, sizeof *method);
    if (!method)
        return qn_jundefined();
    *method = (qn_jmethod){object, &known->row};
    return (qn_jval){.kind = QN_J_METHOD, .as.method = method};
}

qn_jval qn_jattribute(qn_jrun *run, qn_jval object, const qn_jstr *name)
{
    if (object.kind == QN_J_UNDEFINED)
        return qn_jrun_undefined(run, object);
    if (is_internal(name))
        return unsafe(run, object, name);
    qn_jval found = own_attribute(run, object, name);
    if (found.kind != QN_J_MISSING)
        return found;
    if (object.kind == QN_J_DICT) {
        const qn_jval *value =
            qn_jdict_get(run, object.as.dict, qn_jstring(name));
        if (value)
            return *value;
    }
    return qn_jundefined_in(run, object, qn_jstring(name));
}

/* object[index] for what has numbered items; MISSING where there is none. */
static qn_jval numbered(qn_jrun *run, qn_jval object, int64_t index)
{
    int64_t length;
    const qn_jrange *range;
    if (object.kind == QN_J_DICT || !qn_jlength(run, object, &length))
        return qn_jmissing();
    if (index < 0)
        index += length;
    if (index < 0 || index >= length)
        return qn_jmissing();
    switch ((qn_jkind)object.kind) {
    case QN_J_LIST:
    case QN_J_TUPLE:
        return object.as.list->items[index];
    case QN_J_RANGE:
        range = object.as.range;
        return qn_jint(range->start + range->step * index);
    case QN_J_STR: {
        const qn_jstr *str = object.as.str;
        qn_jrun_bytes(run, str->chars == str->size ? 0 : str->size);
        size_t from = qn_jstr_offset(str, (size_t)index), to = from;
        if (from >= str->size)
            return qn_jmissing();
        qn_jstr_next(qn_jstr_str(str), &to);
        return qn_jstring(qn_jstr_sub(run, str, from, to));
    }
    default:
        return qn_jmissing();
    }
}

qn_jval qn_jitem(qn_jrun *run, qn_jval object, qn_jval key)
{
    int64_t index;
    if (object.kind == QN_J_UNDEFINED)
        return qn_jrun_undefined(run, object);
    if (object.kind == QN_J_DICT && qn_jhashable(key)) {
        const qn_jval *value = qn_jdict_get(run, object.as.dict, key);
        if (value)
            return *value;
    }
    if (qn_jas_int(key, &index)) {
        qn_jval item = numbered(run, object, index);
        if (item.kind != QN_J_MISSING)
            return item;
    }
    if (key.kind == QN_J_STR) {
        if (is_internal(key.as.str))
            return unsafe(run, object, key.as.str);
        qn_jval found = own_attribute(run, object, key.as.str);
        if (found.kind != QN_J_MISSING)
            return found;
    }
    return qn_jundefined_in(run, object, key);
}

/* ---- slices ---- */

typedef struct slice {
    int64_t start, step, count;
} slice;

/* A bound as Python clips it to 0 .. length, or -1 .. length-1 for negative
 * steps. */
static int64_t clip_bound(int64_t bound, int64_t length, bool backwards)
{
    int64_t low = backwards ? -1 : 0;
    int64_t high = backwards ? length - 1 : length;
    if (bound < 0)
        bound = bound < -length ? low : bound + length;
    return bound > high ? high : bound;
}

static bool is_bound(qn_jval value)
{
    int64_t integer;
    return value.kind == QN_J_NONE || qn_jas_int(value, &integer);
}

/* False has failed the run. */
static bool resolve_slice(qn_jrun *run, slice *out, int64_t length,
                          qn_jval start, qn_jval stop, qn_jval step)
{
    int64_t from = 0, to = 0, by = 1;
    if ((step.kind != QN_J_NONE && !qn_jas_int(step, &by)) ||
        !is_bound(start) || !is_bound(stop)) {
        qn_jrun_fail(run, "slice indices must be integers or None or have an "
                          "__index__ method");
        return false;
    }
    if (by == 0) {
        qn_jrun_fail(run, "slice step cannot be zero");
        return false;
    }
    if (by < -INT64_MAX)
        by = -INT64_MAX;
    bool back = by < 0;
    if (start.kind == QN_J_NONE)
        from = back ? length - 1 : 0;
    else if (qn_jas_int(start, &from))
        from = clip_bound(from, length, back);
    if (stop.kind == QN_J_NONE)
        to = back ? -1 : length;
    else if (qn_jas_int(stop, &to))
        to = clip_bound(to, length, back);
    int64_t count = 0;
    if (back && to < from)
        count = (from - to - 1) / -by + 1;
    else if (!back && from < to)
        count = (to - from - 1) / by + 1;
    *out = (slice){from, by, count};
    return true;
}

static qn_jval slice_str(qn_jrun *run, const qn_jstr *str, slice s)
{
    qn_jrun_bytes(run, str->size);
    if (s.step == 1 || s.count <= 1) {
        size_t from = qn_jstr_offset(str, (size_t)s.start);
        qn_str rest = {str->data + from, str->size - from};
        qn_jstr tail = {.data = rest.data,
                        .size = (uint32_t)rest.size,
                        .chars = str->chars == str->size ? (uint32_t)rest.size
                                                         : UINT32_MAX};
        size_t size = s.count ? qn_jstr_offset(&tail, (size_t)s.count) : 0;
        return qn_jstring(qn_jstr_sub(run, str, from, from + size));
    }
    /* Where each character starts, and the end. */
    uint32_t *starts =
        qn_jrun_array(run, (size_t)str->chars + 1, sizeof *starts);
    if (!starts)
        return qn_jundefined();
    uint32_t count = 0;
    for (size_t at = 0; at < str->size && count < str->chars;) {
        starts[count++] = (uint32_t)at;
        qn_jstr_next(qn_jstr_str(str), &at);
    }
    starts[count] = str->size;
    qn_jbuild b = qn_jbuild_new(run);
    b.markup = str->markup;
    for (int64_t i = 0; i < s.count && qn_jrun_ok(run); i++) {
        int64_t at = s.start + i * s.step;
        if (at < count)
            qn_jbuild_slice(&b, str, starts[at], starts[at + 1]);
    }
    return qn_jstring(qn_jbuild_done(&b));
}

static qn_jval slice_list(qn_jrun *run, qn_jval list, slice s)
{
    if (!s.count)
        return (qn_jval){.kind = list.kind,
                         .tainted = list.tainted,
                         .as = qn_jseq(run, list.kind, NULL, 0).as};
    qn_jval *items = qn_jrun_array(run, (size_t)s.count, sizeof *items);
    if (!items || !qn_jrun_step(run, (uint64_t)s.count))
        return qn_jundefined();
    for (int64_t i = 0; i < s.count; i++)
        items[i] = list.as.list->items[s.start + i * s.step];
    qn_jval result = qn_jseq(run, list.kind, items, (uint32_t)s.count);
    result.tainted = list.tainted;
    return result;
}

static qn_jval slice_range(qn_jrun *run, const qn_jrange *range, slice s)
{
    qn_jrange *part = qn_jrun_alloc(run, sizeof *part);
    if (!part)
        return qn_jundefined();
    /* Bounds of empty ranges may wrap; nothing is counted from them. */
    uint64_t step =
        (uint64_t)range->step * (s.count > 1 ? (uint64_t)s.step : 1);
    uint64_t start =
        (uint64_t)range->start + (uint64_t)range->step * (uint64_t)s.start;
    part->start = (int64_t)start;
    part->step = (int64_t)step;
    part->stop = (int64_t)(start + step * (uint64_t)s.count);
    part->count = (uint32_t)s.count;
    return (qn_jval){.kind = QN_J_RANGE, .as.range = part};
}

qn_jval qn_jslice(qn_jrun *run, qn_jval object, qn_jval start, qn_jval stop,
                  qn_jval step)
{
    int64_t length;
    slice s;
    if (object.kind == QN_J_UNDEFINED)
        return qn_jrun_undefined(run, object);
    bool sliceable = object.kind == QN_J_STR || object.kind == QN_J_LIST ||
                     object.kind == QN_J_TUPLE || object.kind == QN_J_RANGE;
    if (!sliceable)
        return object.kind == QN_J_DICT
                   ? qn_jrun_fail(run, "unhashable type: 'slice'")
                   : qn_jrun_fail(run, "'%s' object is not subscriptable",
                                  qn_jtype(object));
    if (!qn_jlength(run, object, &length) ||
        !resolve_slice(run, &s, length, start, stop, step))
        return qn_jundefined();
    if (object.kind == QN_J_STR)
        return slice_str(run, object.as.str, s);
    if (object.kind == QN_J_RANGE)
        return slice_range(run, object.as.range, s);
    return slice_list(run, object, s);
}
