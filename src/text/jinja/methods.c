/* methods.c: the functions behind methods.def; call->self is the object. */
#include "call.h"
#include "chars.h"
#include "format.h"
#include "iter.h"
#include "run.h"

static const qn_jstr *self(const qn_jcall *call)
{
    return call->self.as.str;
}

/* An argument that may be left out or None. */
static const qn_jstr *optional_str(const qn_jcall *call, int i)
{
    if (call->arg[i].kind == QN_J_MISSING || call->arg[i].kind == QN_J_NONE)
        return NULL;
    return qn_jarg_str(call, i, NULL);
}

/* ---- str: case and classes ---- */

#define QN_STR_CASED(name, how)                                                \
    static qn_jval str_##name(const qn_jcall *call)                            \
    {                                                                          \
        return qn_jstring(qn_jstr_cased(call->run, self(call), how));          \
    }
QN_STR_CASED(upper, QN_JCASE_UPPER)
QN_STR_CASED(lower, QN_JCASE_LOWER)
QN_STR_CASED(title, QN_JCASE_TITLE)
QN_STR_CASED(capitalize, QN_JCASE_CAPITAL)
QN_STR_CASED(swapcase, QN_JCASE_SWAP)

#define QN_STR_IS(name, what)                                                  \
    static qn_jval str_##name(const qn_jcall *call)                            \
    {                                                                          \
        return qn_jbool(qn_jstr_is(call->run, self(call), what));              \
    }
QN_STR_IS(isalnum, QN_JIS_ALNUM)
QN_STR_IS(isalpha, QN_JIS_ALPHA)
QN_STR_IS(isascii, QN_JIS_ASCII)
QN_STR_IS(isdecimal, QN_JIS_DECIMAL)
QN_STR_IS(isdigit, QN_JIS_DIGIT)
QN_STR_IS(islower, QN_JIS_LOWER)
QN_STR_IS(isnumeric, QN_JIS_NUMERIC)
QN_STR_IS(isspace, QN_JIS_SPACE)
QN_STR_IS(istitle, QN_JIS_TITLE)
QN_STR_IS(isupper, QN_JIS_UPPER)

/* ---- str: stripping, padding, splitting ---- */

static qn_jval stripped(const qn_jcall *call, unsigned sides)
{
    return qn_jstring(
        qn_jstr_strip(call->run, self(call), optional_str(call, 0), sides));
}

static qn_jval str_strip(const qn_jcall *call)
{
    return stripped(call, QN_JSTRIP_LEFT | QN_JSTRIP_RIGHT);
}

static qn_jval str_lstrip(const qn_jcall *call)
{
    return stripped(call, QN_JSTRIP_LEFT);
}

static qn_jval str_rstrip(const qn_jcall *call)
{
    return stripped(call, QN_JSTRIP_RIGHT);
}

#define QN_STR_PADDED(name)                                                    \
    static qn_jval str_##name(const qn_jcall *call)                            \
    {                                                                          \
        return qn_jstring(qn_jstr_##name(call->run, self(call),                \
                                         qn_jarg_int(call, 0, 0),              \
                                         optional_str(call, 1)));              \
    }
QN_STR_PADDED(ljust)
QN_STR_PADDED(rjust)
QN_STR_PADDED(center)

/* Zeros between the sign and the rest. */
static qn_jval str_zfill(const qn_jcall *call)
{
    qn_jrun *run = call->run;
    const qn_jstr *str = self(call);
    int64_t width = qn_jarg_int(call, 0, 0);
    bool sign = str->size && (str->data[0] == '-' || str->data[0] == '+');
    const qn_jstr *front = qn_jstr_sub(run, str, 0, sign);
    const qn_jstr *rest = qn_jstr_sub(run, str, sign, str->size);
    rest = qn_jstr_rjust(run, rest, width - sign, qn_jstr_text(run, "0"));
    return qn_jstring(qn_jstr_add(run, front, rest));
}

static qn_jval str_split(const qn_jcall *call)
{
    return qn_jstr_split(call->run, self(call), optional_str(call, 0),
                         qn_jarg_int(call, 1, -1), false);
}

static qn_jval str_rsplit(const qn_jcall *call)
{
    return qn_jstr_split(call->run, self(call), optional_str(call, 0),
                         qn_jarg_int(call, 1, -1), true);
}

static qn_jval str_splitlines(const qn_jcall *call)
{
    qn_jlist lines =
        qn_jstr_lines(call->run, self(call), qn_jarg_bool(call, 0, false));
    return qn_jseq(call->run, QN_J_LIST, lines.items, lines.count);
}

/* ---- str: searching ---- */

typedef struct window {
    size_t from, to; /* bytes */
    bool valid;      /* start is not behind the end of the text */
} window;

/* The part of the text that `start` and `end` (arguments 1 and 2) leave. */
static window search_window(const qn_jcall *call)
{
    const qn_jstr *str = self(call);
    int64_t length = str->chars;
    int64_t from = qn_jarg_int(call, 1, 0);
    int64_t to = qn_jarg_int(call, 2, length);
    qn_jrun_bytes(call->run, str->size);
    if (from < 0)
        from = from < -length ? 0 : from + length;
    if (to < 0)
        to = to < -length ? 0 : to + length;
    if (to > length)
        to = length;
    if (from > to)
        return (window){.valid = false};
    return (window){qn_jstr_offset(str, (size_t)from),
                    qn_jstr_offset(str, (size_t)to), true};
}

/* The byte offset of the first or last occurrence in the window. */
static size_t search(const qn_jcall *call, window w, const qn_jstr *needle,
                     bool last)
{
    const qn_jstr *str = self(call);
    if (!w.valid || !qn_jrun_ok(call->run) || needle->size > w.to - w.from)
        return SIZE_MAX;
    if (!last)
        return qn_jstr_find((qn_str){str->data, w.to}, qn_jstr_str(needle),
                            w.from);
    for (size_t at = w.to - needle->size;; at--) {
        if (!memcmp(str->data + at, needle->data, needle->size))
            return at;
        if (at == w.from || !qn_jrun_bytes(call->run, needle->size))
            return SIZE_MAX;
    }
}

static qn_jval position(const qn_jcall *call, bool last, bool must)
{
    const qn_jstr *needle = qn_jarg_str(call, 0, NULL);
    size_t at = search(call, search_window(call), needle, last);
    if (at != SIZE_MAX)
        return qn_jint((int64_t)qn_jstr_index(self(call), at));
    return must ? qn_jrun_fail(call->run, "substring not found") : qn_jint(-1);
}

static qn_jval str_find(const qn_jcall *call)
{
    return position(call, false, false);
}

static qn_jval str_rfind(const qn_jcall *call)
{
    return position(call, true, false);
}

static qn_jval str_index(const qn_jcall *call)
{
    return position(call, false, true);
}

static qn_jval str_rindex(const qn_jcall *call)
{
    return position(call, true, true);
}

static qn_jval str_count(const qn_jcall *call)
{
    const qn_jstr *needle = qn_jarg_str(call, 0, NULL), *str = self(call);
    window w = search_window(call);
    int64_t count = 0;
    if (!w.valid)
        return qn_jint(0);
    if (!needle->size)
        return qn_jint((int64_t)qn_jstr_count(
                           (qn_str){str->data + w.from, w.to - w.from}) +
                       1);
    while (qn_jrun_step(call->run, 1)) {
        size_t at = search(call, w, needle, false);
        if (at == SIZE_MAX)
            break;
        w.from = at + needle->size;
        count++;
    }
    return qn_jint(count);
}

static bool matches_end(const qn_jcall *call, window w, const qn_jstr *affix,
                        bool at_start)
{
    if (!w.valid || affix->size > w.to - w.from ||
        !qn_jrun_bytes(call->run, affix->size))
        return false;
    size_t at = at_start ? w.from : w.to - affix->size;
    return !affix->size ||
           !memcmp(self(call)->data + at, affix->data, affix->size);
}

/* startswith and endswith take one text or a tuple of them. */
static qn_jval has_affix(const qn_jcall *call, bool at_start)
{
    window w = search_window(call);
    if (call->arg[0].kind != QN_J_TUPLE)
        return qn_jbool(
            matches_end(call, w, qn_jarg_str(call, 0, NULL), at_start));
    const qn_jlist *affixes = call->arg[0].as.list;
    for (uint32_t i = 0; i < affixes->count && qn_jrun_ok(call->run); i++) {
        if (affixes->items[i].kind != QN_J_STR)
            return qn_jrun_fail(call->run,
                                "tuple for %s must only contain str, not %s",
                                at_start ? "startswith" : "endswith",
                                qn_jtype(affixes->items[i]));
        if (matches_end(call, w, affixes->items[i].as.str, at_start))
            return qn_jbool(true);
    }
    return qn_jbool(false);
}

static qn_jval str_startswith(const qn_jcall *call)
{
    return has_affix(call, true);
}

static qn_jval str_endswith(const qn_jcall *call)
{
    return has_affix(call, false);
}

static qn_jval remove_affix(const qn_jcall *call, bool at_start)
{
    const qn_jstr *affix = qn_jarg_str(call, 0, NULL), *str = self(call);
    window all = {0, str->size, true};
    if (!matches_end(call, all, affix, at_start))
        return call->self;
    return qn_jstring(
        qn_jstr_sub(call->run, str, at_start ? affix->size : 0,
                    at_start ? str->size : str->size - affix->size));
}

static qn_jval str_removeprefix(const qn_jcall *call)
{
    return remove_affix(call, true);
}

static qn_jval str_removesuffix(const qn_jcall *call)
{
    return remove_affix(call, false);
}

/* Before, separator, behind; without one, two of them are empty. */
static qn_jval parted(const qn_jcall *call, bool last)
{
    qn_jrun *run = call->run;
    const qn_jstr *separator = qn_jarg_str(call, 0, NULL), *str = self(call);
    qn_jval *parts = qn_jrun_array(run, 3, sizeof *parts);
    if (!parts)
        return qn_jundefined();
    if (!separator->size)
        return qn_jrun_fail(run, "empty separator");
    qn_jrun_bytes(run, str->size);
    size_t at = search(call, (window){0, str->size, true}, separator, last);
    parts[0] = parts[1] = parts[2] = qn_jstring(&qn_jstr_empty);
    if (at == SIZE_MAX) {
        parts[last ? 2 : 0] = call->self;
    } else {
        size_t behind = at + separator->size;
        parts[0] = qn_jstring(qn_jstr_sub(run, str, 0, at));
        parts[1] = qn_jstring(qn_jstr_sub(run, str, at, behind));
        parts[2] = qn_jstring(qn_jstr_sub(run, str, behind, str->size));
    }
    return qn_jseq(run, QN_J_TUPLE, parts, 3);
}

static qn_jval str_partition(const qn_jcall *call)
{
    return parted(call, false);
}

static qn_jval str_rpartition(const qn_jcall *call)
{
    return parted(call, true);
}

/* ---- str: making others ---- */

static qn_jval str_replace(const qn_jcall *call)
{
    return qn_jstring(
        qn_jstr_replace(call->run, self(call), qn_jarg_str(call, 0, NULL),
                        qn_jarg_str(call, 1, NULL), qn_jarg_int(call, 2, -1)));
}

/* Unlike the filter this one takes only strings. */
static qn_jval str_join(const qn_jcall *call)
{
    qn_jrun *run = call->run;
    qn_jlist items = qn_jlist_of(run, call->arg[0]);
    bool markup = self(call)->markup;
    qn_jbuild b = qn_jbuild_new(run);
    b.markup = markup;
    for (uint32_t i = 0; i < items.count && qn_jrun_step(run, 1); i++) {
        if (items.items[i].kind != QN_J_STR)
            return qn_jrun_fail(run,
                                "sequence item %u: expected str instance, "
                                "%s found",
                                i, qn_jtype(items.items[i]));
        if (i)
            qn_jbuild_str(&b, self(call));
        if (markup)
            qn_jbuild_escaped(&b, items.items[i].as.str);
        else
            qn_jbuild_str(&b, items.items[i].as.str);
    }
    return qn_jstring(qn_jbuild_done(&b));
}

static qn_jval str_format(const qn_jcall *call)
{
    return qn_jstring(qn_jformat_fields(self(call), call));
}

/* ---- dict ---- */

static qn_jval dict_get(const qn_jcall *call)
{
    const qn_jval *found =
        qn_jdict_get(call->run, call->self.as.dict, call->arg[0]);
    if (found)
        return *found;
    return call->arg[1].kind == QN_J_MISSING ? qn_jnone() : call->arg[1];
}

static qn_jval dict_keys(const qn_jcall *call)
{
    return qn_jdict_val(QN_J_KEYS, call->self.as.dict, call->self.tainted);
}

static qn_jval dict_values(const qn_jcall *call)
{
    return qn_jdict_val(QN_J_VALUES, call->self.as.dict, call->self.tainted);
}

static qn_jval dict_items(const qn_jcall *call)
{
    return qn_jdict_val(QN_J_ITEMS, call->self.as.dict, call->self.tainted);
}

/* Nothing can change either, so the copy is the same. */
static qn_jval dict_copy(const qn_jcall *call)
{
    return call->self;
}

/* ---- list, tuple and range ---- */

static qn_jval list_copy(const qn_jcall *call)
{
    return call->self;
}

static qn_jval list_count(const qn_jcall *call)
{
    qn_jlist list = qn_jlist_of(call->run, call->self);
    int64_t count = 0;
    for (uint32_t i = 0; i < list.count && qn_jrun_ok(call->run); i++)
        count += qn_jequal(call->run, list.items[i], call->arg[0]);
    return qn_jint(count);
}

static qn_jval list_index(const qn_jcall *call)
{
    qn_jlist list = qn_jlist_of(call->run, call->self);
    int64_t count = list.count;
    int64_t from = qn_jarg_int(call, 1, 0), to = qn_jarg_int(call, 2, count);
    if (from < 0)
        from = from < -count ? 0 : from + count;
    if (to < 0)
        to = to < -count ? 0 : to + count;
    for (int64_t i = from; i < to && i < count && qn_jrun_ok(call->run); i++)
        if (qn_jequal(call->run, list.items[i], call->arg[0]))
            return qn_jint(i);
    return qn_jrun_fail(call->run, "the value is not in the %s",
                        qn_jtype(call->self));
}

static const qn_jmethod_row rows[] = {
#define QN_METHOD(kind, name, fn, required, parameters)                        \
    {QN_J_##kind, QN_JMETHOD_OK, {name, fn, required, parameters}},
#define QN_METHOD_CHANGES(kind, name)                                          \
    {QN_J_##kind, QN_JMETHOD_CHANGES, {name, NULL, 0, "*"}},
#define QN_METHOD_LACKING(kind, name)                                          \
    {QN_J_##kind, QN_JMETHOD_LACKING, {name, NULL, 0, "*"}},
#include "methods.def"
#undef QN_METHOD
#undef QN_METHOD_CHANGES
#undef QN_METHOD_LACKING
};

const qn_jmethod_row *qn_jmethod_find(qn_jkind kind, qn_str name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].kind == kind && qn_str_is(name, rows[i].row.name))
            return &rows[i];
    return NULL;
}
