/* filters.c: the functions behind filters.def.
 *
 * A filter gets its input as call->self and its arguments in the order of
 * its row's parameters.  Those that give generators only set up the stage
 * (iter.h). */
#include "call.h"
#include "chars.h"
#include "format.h"
#include "iter.h"
#include "number.h"
#include "print.h"
#include "run.h"

#include <math.h>

static qn_jval string(const qn_jstr *str)
{
    return qn_jstring(str);
}

/* ---- text ---- */

static qn_jval cased(const qn_jcall *call, qn_jcase how)
{
    const qn_jstr *text = qn_jto_str(call->run, call->self);
    return string(qn_jstr_cased(call->run, text, how));
}

static qn_jval filter_upper(const qn_jcall *call)
{
    return cased(call, QN_JCASE_UPPER);
}

static qn_jval filter_lower(const qn_jcall *call)
{
    return cased(call, QN_JCASE_LOWER);
}

static qn_jval filter_capitalize(const qn_jcall *call)
{
    return cased(call, QN_JCASE_CAPITAL);
}

static qn_jval filter_title(const qn_jcall *call)
{
    const qn_jstr *text = qn_jto_str(call->run, call->self);
    return string(qn_jstr_titled_words(call->run, text));
}

static qn_jval filter_string(const qn_jcall *call)
{
    return string(qn_jto_str(call->run, call->self));
}

static qn_jval filter_safe(const qn_jcall *call)
{
    qn_jbuild b = qn_jbuild_new(call->run);
    b.markup = true;
    qn_jprint(&b, call->self);
    return string(qn_jbuild_done(&b));
}

static qn_jval escaped(const qn_jcall *call, const qn_jstr *text)
{
    qn_jbuild b = qn_jbuild_new(call->run);
    b.markup = true;
    qn_jbuild_escaped(&b, text);
    return string(qn_jbuild_done(&b));
}

static qn_jval filter_escape(const qn_jcall *call)
{
    return escaped(call, qn_jto_str(call->run, call->self));
}

static qn_jval filter_forceescape(const qn_jcall *call)
{
    const qn_jstr *text = qn_jto_str(call->run, call->self);
    return escaped(call, qn_jstr_plain(call->run, text));
}

static qn_jval filter_trim(const qn_jcall *call)
{
    bool given =
        call->arg[0].kind != QN_J_MISSING && call->arg[0].kind != QN_J_NONE;
    const qn_jstr *set = given ? qn_jarg_str(call, 0, NULL) : NULL;
    return string(qn_jstr_strip(call->run, qn_jto_str(call->run, call->self),
                                set, QN_JSTRIP_LEFT | QN_JSTRIP_RIGHT));
}

static qn_jval filter_replace(const qn_jcall *call)
{
    qn_jrun *run = call->run;
    const qn_jstr *text = qn_jstr_plain(run, qn_jto_str(run, call->self));
    return string(qn_jstr_replace(run, text, qn_jto_str(run, call->arg[0]),
                                  qn_jto_str(run, call->arg[1]),
                                  qn_jarg_int(call, 2, -1)));
}

static qn_jval filter_center(const qn_jcall *call)
{
    const qn_jstr *text = qn_jto_str(call->run, call->self);
    return string(
        qn_jstr_center(call->run, text, qn_jarg_int(call, 0, 80), NULL));
}

static qn_jval filter_format(const qn_jcall *call)
{
    qn_jrun *run = call->run;
    const qn_jstr *text = qn_jto_str(run, call->self);
    if (call->positional_count && call->keyword_count)
        return qn_jrun_fail(run, "can't handle positional and keyword "
                                 "arguments at the same time");
    if (!call->keyword_count)
        return string(qn_jformat(run, text,
                                 qn_jseq(run, QN_J_TUPLE, call->positional,
                                         call->positional_count)));
    qn_jdict *dict = qn_jdict_new(run);
    for (uint32_t i = 0; i < call->keyword_count; i++)
        qn_jdict_set(run, dict, string(call->names[i]), call->keywords[i]);
    return string(qn_jformat(run, text, qn_jdict_val(QN_J_DICT, dict, false)));
}

/* Lines after the first get the indentation; empty ones only if `blank`. */
static qn_jval filter_indent(const qn_jcall *call)
{
    qn_jrun *run = call->run;
    bool first = qn_jarg_bool(call, 1, false);
    bool blank = qn_jarg_bool(call, 2, false);
    if (call->self.kind == QN_J_UNDEFINED)
        return qn_jrun_undefined(run, call->self);
    if (call->self.kind != QN_J_STR)
        return qn_jrun_fail(run,
                            "unsupported operand type(s) for +=: '%s' and "
                            "'str'",
                            qn_jtype(call->self));
    const qn_jstr *margin = call->arg[0].kind == QN_J_STR
                                ? call->arg[0].as.str
                                : qn_jstr_repeat(run, qn_jstr_text(run, " "),
                                                 qn_jarg_int(call, 0, 4));
    /* A newline behind the text makes its last line one, even if empty. */
    const qn_jstr *text = qn_jstr_add(
        run, qn_jstr_plain(run, call->self.as.str), qn_jstr_text(run, "\n"));
    qn_jlist lines = qn_jstr_lines(run, text, false);
    qn_jbuild b = qn_jbuild_new(run);
    b.markup = call->self.as.str->markup;
    for (uint32_t i = 0; i < lines.count && qn_jrun_step(run, 1); i++) {
        const qn_jstr *line = lines.items[i].as.str;
        if (i)
            qn_jbuild_text(&b, "\n", false);
        if (i ? blank || line->size : first)
            qn_jbuild_str(&b, margin);
        qn_jbuild_str(&b, line);
    }
    return string(qn_jbuild_done(&b));
}

/* ---- numbers ---- */

static qn_jval filter_abs(const qn_jcall *call)
{
    qn_jval value = call->self;
    int64_t integer;
    if (qn_jas_int(value, &integer))
        return qn_jnegate(call->run, value, integer < 0);
    if (value.kind == QN_J_FLOAT)
        return qn_jnegate(call->run, value, signbit(value.as.real));
    if (value.kind == QN_J_BIGINT)
        return qn_jrun_unsupported(call->run, "integers beyond 64 bits");
    return qn_jrun_fail(call->run, "bad operand type for abs(): '%s'",
                        qn_jtype(value));
}

static qn_jval with_taint(qn_jval value, qn_jval origin)
{
    value.tainted = origin.tainted ||
                    (origin.kind == QN_J_STR && origin.as.str->span_count > 0);
    return value;
}

static qn_jval real_to_int(const qn_jcall *call, double real)
{
    if (!isfinite(real))
        return call->arg[0].kind == QN_J_MISSING ? qn_jint(0) : call->arg[0];
    return with_taint(qn_jnumber_truncate(call->run, real), call->self);
}

static qn_jval filter_int(const qn_jcall *call)
{
    qn_jval value = call->self;
    int64_t integer, base = qn_jarg_int(call, 1, 10);
    double real;
    if (qn_jas_int(value, &integer))
        return with_taint(qn_jint(integer), value);
    if (value.kind == QN_J_BIGINT)
        return value;
    if (value.kind == QN_J_FLOAT)
        return isinf(value.as.real)
                   ? qn_jnumber_truncate(call->run, value.as.real)
                   : real_to_int(call, value.as.real);
    if (value.kind == QN_J_UNDEFINED)
        return qn_jrun_undefined(call->run, value);
    if (value.kind == QN_J_STR) {
        qn_str text = qn_jstr_str(value.as.str);
        qn_jrun_bytes(call->run, text.size);
        if (base >= 0 && base <= 36 &&
            qn_jnumber_int(text, (int)base, &integer))
            return with_taint(qn_jint(integer), value);
        if (qn_jnumber_real(text, &real))
            return real_to_int(call, real);
    }
    return call->arg[0].kind == QN_J_MISSING ? qn_jint(0) : call->arg[0];
}

static qn_jval filter_float(const qn_jcall *call)
{
    qn_jval value = call->self;
    double real;
    if (qn_jas_real(value, &real))
        return with_taint(qn_jreal(real), value);
    if (value.kind == QN_J_UNDEFINED)
        return qn_jrun_undefined(call->run, value);
    if (value.kind == QN_J_STR) {
        qn_jrun_bytes(call->run, value.as.str->size);
        if (qn_jnumber_real(qn_jstr_str(value.as.str), &real))
            return with_taint(qn_jreal(real), value);
    }
    return call->arg[0].kind == QN_J_MISSING ? qn_jreal(0) : call->arg[0];
}

/* An integer to tens, hundreds ..., halves to even. */
static int64_t round_int(int64_t value, int64_t digits)
{
    int64_t unit = 1;
    for (; digits < 0 && unit <= INT64_MAX / 10; digits++)
        unit *= 10;
    if (digits < 0)
        return 0;
    int64_t rest = value % unit, down = value - rest;
    if (rest < 0) {
        rest += unit;
        down = down < INT64_MIN + unit ? INT64_MIN : down - unit;
    }
    bool up =
        rest > unit - rest || (rest == unit - rest && (down / unit) % 2 != 0);
    return up && down <= INT64_MAX - unit ? down + unit : down;
}

static qn_jval filter_round(const qn_jcall *call)
{
    qn_jrun *run = call->run;
    int64_t integer, digits = qn_jarg_int(call, 0, 0);
    double real;
    qn_str method = qn_jstr_str(qn_jarg_str(call, 1, "common"));
    bool ceiling = qn_str_is(method, "ceil");
    if (!ceiling && !qn_str_is(method, "common") && !qn_str_is(method, "floor"))
        return qn_jrun_fail(run, "method must be common, ceil or floor");
    if (call->self.kind == QN_J_UNDEFINED)
        return qn_jrun_undefined(run, call->self);
    if (!qn_jas_real(call->self, &real))
        return qn_jrun_fail(run, "type %s doesn't define __round__ method",
                            qn_jtype(call->self));
    if (digits > 400 || digits < -400)
        digits = digits > 0 ? 400 : -400;
    if (!qn_str_is(method, "common")) {
        double scale = pow(10, (double)digits);
        double scaled = real * scale;
        real = (ceiling ? ceil(scaled) : floor(scaled)) / scale;
        return with_taint(qn_jreal(real), call->self);
    }
    if (call->self.kind == QN_J_BIGINT)
        return digits >= 0
                   ? call->self
                   : qn_jrun_unsupported(run, "integers beyond 64 bits");
    if (qn_jas_int(call->self, &integer))
        return with_taint(
            qn_jint(digits >= 0 ? integer : round_int(integer, digits)),
            call->self);
    qn_jrun_step(run, 64);
    return with_taint(qn_jreal(qn_jnumber_round(real, (int)digits)),
                      call->self);
}

/* ---- any value ---- */

static qn_jval filter_default(const qn_jcall *call)
{
    bool undefined = call->self.kind == QN_J_UNDEFINED;
    bool boolean = qn_jarg_bool(call, 1, false);
    if (!undefined && !(boolean && !qn_jtruth(call->self)))
        return call->self;
    return call->arg[0].kind == QN_J_MISSING ? string(&qn_jstr_empty)
                                             : call->arg[0];
}

static qn_jval filter_length(const qn_jcall *call)
{
    int64_t length;
    if (qn_jlength(call->run, call->self, &length))
        return qn_jint(length);
    return qn_jrun_fail(call->run, "object of type '%s' has no len()",
                        qn_jtype(call->self));
}

/* The separators that json.dumps takes: a pair of strings, or None. */
static void json_separators(const qn_jcall *call, qn_jjson *options)
{
    qn_jrun *run = call->run;
    qn_jval given = call->arg[2];
    options->item = qn_jstr_text(run, options->indent ? "," : ", ");
    options->key = qn_jstr_text(run, ": ");
    if (given.kind == QN_J_MISSING || given.kind == QN_J_NONE)
        return;
    qn_jlist pair = qn_jlist_of(run, given);
    if (pair.count != 2 || pair.items[0].kind != QN_J_STR ||
        pair.items[1].kind != QN_J_STR) {
        qn_jrun_fail(run, "tojson: separators must be a pair of strings");
        return;
    }
    options->item = pair.items[0].as.str;
    options->key = pair.items[1].as.str;
}

static qn_jval filter_tojson(const qn_jcall *call)
{
    qn_jrun *run = call->run;
    qn_jval indent = call->arg[1];
    qn_jjson options = {.ascii = qn_jarg_bool(call, 0, false),
                        .sort_keys = qn_jarg_bool(call, 3, false)};
    if (indent.kind == QN_J_STR)
        options.indent = indent.as.str;
    else if (indent.kind != QN_J_MISSING && indent.kind != QN_J_NONE)
        options.indent = qn_jstr_repeat(run, qn_jstr_text(run, " "),
                                        qn_jarg_int(call, 1, 0));
    json_separators(call, &options);
    qn_jbuild b = qn_jbuild_new(run);
    qn_jto_json(&b, call->self, &options);
    return string(qn_jbuild_done(&b));
}

/* ---- sequences ---- */

static qn_jval filter_first(const qn_jcall *call)
{
    qn_jval first;
    if (qn_jiter_next(qn_jiter_new(call->run, call->self), &first))
        return first;
    return qn_jundefined_hint(call->run, "No first item, sequence was empty.");
}

static qn_jval filter_last(const qn_jcall *call)
{
    qn_jrun *run = call->run;
    qn_jval reversed, last;
    if (call->self.kind == QN_J_STR && call->self.as.str->size)
        return qn_jitem(run, call->self, qn_jint(-1));
    if (call->self.kind != QN_J_STR && call->self.kind != QN_J_UNDEFINED) {
        if (!qn_jiter_reversed(run, call->self, &reversed))
            return qn_jrun_fail(run, "'%s' object is not reversible",
                                qn_jtype(call->self));
        if (qn_jrun_ok(run) && qn_jiter_next(reversed.as.iter, &last))
            return last;
    }
    return qn_jundefined_hint(run, "No last item, sequence was empty.");
}

static qn_jval list_value(qn_jrun *run, qn_jlist list, qn_jval origin)
{
    qn_jval value = qn_jseq(run, QN_J_LIST, list.items, list.count);
    value.tainted = origin.tainted;
    return value;
}

static qn_jval filter_list(const qn_jcall *call)
{
    return list_value(call->run, qn_jlist_of(call->run, call->self),
                      call->self);
}

static qn_jval filter_reverse(const qn_jcall *call)
{
    qn_jrun *run = call->run;
    qn_jval reversed;
    if (call->self.kind == QN_J_STR)
        return qn_jslice(run, call->self, qn_jnone(), qn_jnone(), qn_jint(-1));
    if (qn_jiter_reversed(run, call->self, &reversed))
        return reversed;
    if (!qn_jiterable(call->self))
        return qn_jrun_fail(run, "argument must be iterable");
    qn_jval list = filter_list(call);
    if (!qn_jrun_ok(run))
        return list;
    return qn_jslice(run, list, qn_jnone(), qn_jnone(), qn_jint(-1));
}

static qn_jval filter_items(const qn_jcall *call)
{
    if (call->self.kind == QN_J_UNDEFINED)
        return qn_jiter_nothing(call->run);
    if (call->self.kind != QN_J_DICT)
        return qn_jrun_fail(call->run,
                            "Can only get item pairs from a mapping.");
    return qn_jiter_items(call->run, call->self.as.dict, call->self.tainted);
}

static qn_jval filter_join(const qn_jcall *call)
{
    qn_jrun *run = call->run;
    qn_jval separator = call->arg[0];
    qn_jlist items = qn_jlist_of(run, call->self);
    qn_jpath path = qn_jpath_parse(run, call->arg[1]);
    if (path.count) {
        qn_jvec found = {0};
        for (uint32_t i = 0; i < items.count && qn_jrun_step(run, 1); i++)
            qn_jvec_push(
                run, &found,
                qn_jpath_get(run, &path, items.items[i], qn_jmissing()));
        items = (qn_jlist){found.items, found.count};
    }
    const qn_jstr *between = separator.kind == QN_J_MISSING
                                 ? &qn_jstr_empty
                                 : qn_jto_str(run, separator);
    return string(qn_jstr_join(run, between, items));
}

static qn_jval filter_sum(const qn_jcall *call)
{
    qn_jrun *run = call->run;
    qn_jval sum = call->arg[1].kind == QN_J_MISSING ? qn_jint(0) : call->arg[1];
    qn_jpath path = qn_jpath_parse(run, call->arg[0]);
    if (sum.kind == QN_J_STR)
        return qn_jrun_fail(run, "sum() can't sum strings [use ''.join(seq) "
                                 "instead]");
    qn_jiter *it = qn_jiter_new(run, call->self);
    for (qn_jval item; qn_jiter_next(it, &item);)
        sum = qn_jbinary(run, QN_JOP_ADD, sum,
                         qn_jpath_get(run, &path, item, qn_jmissing()));
    return sum;
}

/* The value that an item is sorted by: a list of its attributes, since equal
 * ones then need no order (none, undefined). */
static qn_jval sort_key(qn_jrun *run, const qn_jpath *paths, uint32_t count,
                        qn_jval item, bool case_sensitive)
{
    qn_jval *parts = qn_jrun_array(run, count, sizeof *parts);
    if (!parts)
        return qn_jundefined();
    for (uint32_t i = 0; i < count; i++) {
        parts[i] = qn_jpath_get(run, &paths[i], item, qn_jmissing());
        if (!case_sensitive)
            parts[i] = qn_jignore_case(run, parts[i]);
    }
    return qn_jseq(run, QN_J_LIST, parts, count);
}

/* `items` in the order of `keys`. */
static qn_jval in_order(qn_jrun *run, const qn_jval *items, const qn_jval *keys,
                        uint32_t count, bool backwards, bool tainted)
{
    uint32_t *order = qn_jrun_array(run, count, sizeof *order);
    qn_jval *sorted = qn_jrun_array(run, count, sizeof *sorted);
    if (!order || !sorted || !qn_jsort(run, order, keys, count, backwards))
        return qn_jundefined();
    for (uint32_t i = 0; i < count; i++)
        sorted[i] = items[order[i]];
    qn_jval list = qn_jseq(run, QN_J_LIST, sorted, count);
    list.tainted = tainted;
    return list;
}

static qn_jval filter_sort(const qn_jcall *call)
{
    qn_jrun *run = call->run;
    bool case_sensitive = qn_jarg_bool(call, 1, false);
    qn_jlist items = qn_jlist_of(run, call->self);
    qn_jval names = qn_jundefined(), attribute = call->arg[2];
    uint32_t count = 1;
    if (attribute.kind == QN_J_STR) {
        names = qn_jstr_split(run, attribute.as.str, qn_jstr_text(run, ","), -1,
                              false);
        count = qn_jrun_ok(run) ? names.as.list->count : 0;
    }
    qn_jpath *paths = qn_jrun_array(run, count, sizeof *paths);
    qn_jval *keys = qn_jrun_array(run, items.count, sizeof *keys);
    if (!paths || !keys)
        return qn_jundefined();
    for (uint32_t i = 0; i < count; i++)
        paths[i] = qn_jpath_parse(
            run, names.kind == QN_J_LIST ? names.as.list->items[i] : attribute);
    for (uint32_t i = 0; i < items.count && qn_jrun_step(run, 1); i++)
        keys[i] = sort_key(run, paths, count, items.items[i], case_sensitive);
    if (!qn_jrun_ok(run))
        return qn_jundefined();
    return in_order(run, items.items, keys, items.count,
                    qn_jarg_bool(call, 0, false), call->self.tainted);
}

static qn_jval filter_dictsort(const qn_jcall *call)
{
    qn_jrun *run = call->run;
    bool case_sensitive = qn_jarg_bool(call, 0, false);
    qn_str by = qn_jstr_str(qn_jarg_str(call, 1, "key"));
    bool by_value = qn_str_is(by, "value");
    if (call->self.kind == QN_J_UNDEFINED)
        return qn_jrun_undefined(run, call->self);
    if (call->self.kind != QN_J_DICT)
        return qn_jrun_fail(run, "'%s' object has no attribute 'items'",
                            qn_jtype(call->self));
    if (!by_value && !qn_str_is(by, "key"))
        return qn_jrun_fail(run,
                            "You can only sort by either \"key\" or \"value\"");
    const qn_jdict *dict = call->self.as.dict;
    uint32_t count = qn_jdict_count(dict);
    qn_jval *pairs = qn_jrun_array(run, count, sizeof *pairs);
    qn_jval *keys = qn_jrun_array(run, count, sizeof *keys);
    if (!pairs || !keys)
        return qn_jundefined();
    for (uint32_t i = 0; i < count && qn_jrun_step(run, 1); i++) {
        pairs[i] =
            qn_jpair(run, qn_jdict_key(dict, i), qn_jdict_value(dict, i));
        pairs[i].tainted = call->self.tainted;
        keys[i] = by_value ? qn_jdict_value(dict, i) : qn_jdict_key(dict, i);
        if (!case_sensitive)
            keys[i] = qn_jignore_case(run, keys[i]);
    }
    if (!qn_jrun_ok(run))
        return qn_jundefined();
    return in_order(run, pairs, keys, count, qn_jarg_bool(call, 2, false),
                    call->self.tainted);
}

/* The smallest (sign -1) or largest (1) item; the first among equals. */
static qn_jval extreme(const qn_jcall *call, int sign)
{
    qn_jrun *run = call->run;
    bool case_sensitive = qn_jarg_bool(call, 0, false);
    qn_jpath path = qn_jpath_parse(run, call->arg[1]);
    qn_jiter *it = qn_jiter_new(run, call->self);
    qn_jval best = qn_jundefined(), best_key = best;
    bool any = false;
    for (qn_jval item; qn_jiter_next(it, &item); any = true) {
        qn_jval key = qn_jpath_get(run, &path, item, qn_jmissing());
        if (!case_sensitive)
            key = qn_jignore_case(run, key);
        if (any && qn_jorder(run, sign < 0 ? "<" : ">", key, best_key) != sign)
            continue;
        best = item;
        best_key = key;
    }
    if (!any)
        return qn_jundefined_hint(run,
                                  "No aggregated item, sequence was empty.");
    return best;
}

static qn_jval filter_min(const qn_jcall *call)
{
    return extreme(call, -1);
}

static qn_jval filter_max(const qn_jcall *call)
{
    return extreme(call, 1);
}

/* ---- generators ---- */

static qn_jval filter_unique(const qn_jcall *call)
{
    qn_jstage stage = {.kind = QN_JSTAGE_UNIQUE,
                       .case_sensitive = qn_jarg_bool(call, 0, false),
                       .path = qn_jpath_parse(call->run, call->arg[1]),
                       .seen = qn_jdict_new(call->run)};
    return qn_jiter_stage(call->run, call->self, &stage);
}

/* Makes positional argument `at` the name of the stage's filter or test and
 * gives it the arguments behind. */
static void take_row(const qn_jcall *call, qn_jstage *stage, uint32_t at,
                     const char *what, const qn_jrow *(*find)(qn_str name))
{
    qn_jval name = call->positional[at];
    if (name.kind != QN_J_STR) {
        qn_jrun_fail(call->run, "expected the name of a %s, found %s", what,
                     qn_jtype(name));
        return;
    }
    qn_str text = qn_jstr_str(name.as.str);
    stage->row = find(text);
    if (!stage->row)
        qn_jrun_unsupported(call->run, "the %s '%.*s'", what,
                            text.size > 60 ? 60 : (int)text.size, text.data);
    stage->call = *call;
    stage->call.positional += at + 1;
    stage->call.positional_count -= at + 1;
}

static qn_jval filter_map(const qn_jcall *call)
{
    qn_jrun *run = call->run;
    qn_jstage stage = {.kind = QN_JSTAGE_MAP, .fallback = qn_jmissing()};
    if (!qn_jtruth(call->self))
        return qn_jiter_nothing(run);
    if (call->positional_count) {
        take_row(call, &stage, 0, "filter", qn_jfilter_find);
        return qn_jiter_stage(run, call->self, &stage);
    }
    bool found = false;
    for (uint32_t i = 0; i < call->keyword_count; i++) {
        qn_str name = qn_jstr_str(call->names[i]);
        if (qn_str_is(name, "attribute")) {
            stage.path = qn_jpath_parse(run, call->keywords[i]);
            found = true;
        } else if (qn_str_is(name, "default")) {
            if (call->keywords[i].kind != QN_J_NONE)
                stage.fallback = call->keywords[i];
        } else {
            return qn_jrun_fail(run, "Unexpected keyword argument '%.*s'",
                                name.size > 60 ? 60 : (int)name.size,
                                name.data);
        }
    }
    if (!found)
        return qn_jrun_fail(run, "map requires a filter argument");
    return qn_jiter_stage(run, call->self, &stage);
}

static qn_jval selected(const qn_jcall *call, bool by_attribute, bool negate)
{
    qn_jrun *run = call->run;
    qn_jstage stage = {
        .kind = QN_JSTAGE_SELECT, .fallback = qn_jmissing(), .negate = negate};
    uint32_t at = 0;
    if (!qn_jtruth(call->self))
        return qn_jiter_nothing(run);
    if (by_attribute) {
        if (!call->positional_count)
            return qn_jrun_fail(run, "Missing parameter for attribute name");
        stage.path = qn_jpath_parse(run, call->positional[at++]);
    }
    if (at < call->positional_count)
        take_row(call, &stage, at, "test", qn_jtest_find);
    return qn_jiter_stage(run, call->self, &stage);
}

static qn_jval filter_select(const qn_jcall *call)
{
    return selected(call, false, false);
}

static qn_jval filter_reject(const qn_jcall *call)
{
    return selected(call, false, true);
}

static qn_jval filter_selectattr(const qn_jcall *call)
{
    return selected(call, true, false);
}

static qn_jval filter_rejectattr(const qn_jcall *call)
{
    return selected(call, true, true);
}

static const qn_jrow rows[] = {
#define QN_FILTER(name, fn, required, parameters)                              \
    {name, fn, required, parameters},
#include "filters.def"
#undef QN_FILTER
};

const qn_jrow *qn_jfilter_find(qn_str name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (qn_str_is(name, rows[i].name))
            return &rows[i];
    return NULL;
}
