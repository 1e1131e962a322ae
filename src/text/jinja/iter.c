/* iter.c: the iterators, one kind for each way of finding the next value. */
#include "iter.h"

#include "chars.h"
#include "run.h"

typedef enum iter_kind {
    OVER_ITEMS,
    OVER_CHARS,
    OVER_RANGE,
    OVER_KEYS,
    OVER_VALUES,
    OVER_PAIRS,
    OVER_STAGE
} iter_kind;

struct qn_jiter {
    qn_jrun *run;
    iter_kind kind;
    bool backwards;
    bool tainted; /* OVER_KEYS ... */
    int depth;    /* stages below this one */
    uint32_t at, count;
    union {
        const qn_jval *items;
        struct {
            const qn_jstr *str;
            size_t offset;
        } chars;
        const qn_jrange *range;
        const qn_jdict *dict;
        struct {
            qn_jiter *source;
            qn_jstage *stage;
        } pull;
    } over;
};

bool qn_jiterable(qn_jval value)
{
    switch ((qn_jkind)value.kind) {
    case QN_J_UNDEFINED:
    case QN_J_STR:
    case QN_J_LIST:
    case QN_J_TUPLE:
    case QN_J_DICT:
    case QN_J_KEYS:
    case QN_J_VALUES:
    case QN_J_ITEMS:
    case QN_J_RANGE:
    case QN_J_ITER:
        return true;
    default:
        return false;
    }
}

static qn_jiter *new_iter(qn_jrun *run, iter_kind kind, uint32_t count)
{
    static qn_jiter nothing; /* of a failed run; never advanced */
    qn_jiter *it = qn_jrun_alloc(run, sizeof *it);
    if (!it)
        return &nothing;
    *it = (qn_jiter){.run = run, .kind = kind, .count = count};
    return it;
}

static qn_jval iter_value(qn_jiter *it)
{
    return (qn_jval){.kind = QN_J_ITER, .as.iter = it};
}

static qn_jiter *dict_iter(qn_jrun *run, iter_kind kind, qn_jval value)
{
    qn_jiter *it = new_iter(run, kind, qn_jdict_count(value.as.dict));
    if (it->run) {
        it->over.dict = value.as.dict;
        it->tainted = value.tainted;
    }
    return it;
}

qn_jiter *qn_jiter_new(qn_jrun *run, qn_jval value)
{
    qn_jiter *it;
    switch ((qn_jkind)value.kind) {
    case QN_J_STR:
        it = new_iter(run, OVER_CHARS, value.as.str->chars);
        if (it->run)
            it->over.chars.str = value.as.str;
        return it;
    case QN_J_LIST:
    case QN_J_TUPLE:
        it = new_iter(run, OVER_ITEMS, value.as.list->count);
        if (it->run)
            it->over.items = value.as.list->items;
        return it;
    case QN_J_DICT:
    case QN_J_KEYS:
        return dict_iter(run, OVER_KEYS, value);
    case QN_J_VALUES:
        return dict_iter(run, OVER_VALUES, value);
    case QN_J_ITEMS:
        return dict_iter(run, OVER_PAIRS, value);
    case QN_J_RANGE:
        it = new_iter(run, OVER_RANGE, value.as.range->count);
        if (it->run)
            it->over.range = value.as.range;
        return it;
    case QN_J_ITER:
        return value.as.iter;
    case QN_J_UNDEFINED:
        return new_iter(run, OVER_ITEMS, 0);
    default:
        qn_jrun_fail(run, "'%s' object is not iterable", qn_jtype(value));
        return new_iter(run, OVER_ITEMS, 0);
    }
}

bool qn_jiter_reversed(qn_jrun *run, qn_jval value, qn_jval *out)
{
    switch ((qn_jkind)value.kind) {
    case QN_J_LIST:
    case QN_J_TUPLE:
    case QN_J_DICT:
    case QN_J_KEYS:
    case QN_J_VALUES:
    case QN_J_ITEMS:
    case QN_J_RANGE: {
        qn_jiter *it = qn_jiter_new(run, value);
        if (it->run)
            it->backwards = true;
        *out = iter_value(it);
        return true;
    }
    default:
        return false;
    }
}

qn_jval qn_jiter_items(qn_jrun *run, qn_jdict *dict, bool tainted)
{
    return iter_value(
        dict_iter(run, OVER_PAIRS, qn_jdict_val(QN_J_ITEMS, dict, tainted)));
}

qn_jval qn_jiter_nothing(qn_jrun *run)
{
    return iter_value(new_iter(run, OVER_ITEMS, 0));
}

qn_jval qn_jiter_stage(qn_jrun *run, qn_jval source, const qn_jstage *stage)
{
    qn_jiter *from = qn_jiter_new(run, source);
    qn_jiter *it = new_iter(run, OVER_STAGE, UINT32_MAX);
    qn_jstage *own = qn_jrun_alloc(run, sizeof *own);
    if (!own)
        return qn_jundefined();
    *own = *stage;
    it->over.pull.source = from;
    it->over.pull.stage = own;
    it->depth = from->depth + 1;
    if (it->depth > QN_JDEPTH)
        qn_jrun_fail(run, "more than %d filters over each other", QN_JDEPTH);
    return iter_value(it);
}

/* The result of the stage's filter or test for one item. */
static qn_jval apply(qn_jiter *it, qn_jval item)
{
    qn_jstage *stage = it->over.pull.stage;
    qn_jcall call = stage->call;
    call.run = it->run;
    call.self = item;
    return qn_jcall_row(
        stage->row, stage->kind == QN_JSTAGE_MAP ? "filter" : "test", &call);
}

static bool next_of_stage(qn_jiter *it, qn_jval *out)
{
    qn_jrun *run = it->run;
    qn_jstage *stage = it->over.pull.stage;
    qn_jval item;
    while (qn_jiter_next(it->over.pull.source, &item)) {
        qn_jval key = qn_jpath_get(run, &stage->path, item, stage->fallback);
        if (stage->kind == QN_JSTAGE_MAP) {
            *out = stage->row ? apply(it, item) : key;
            return qn_jrun_ok(run);
        }
        if (stage->kind == QN_JSTAGE_SELECT) {
            bool chosen = qn_jtruth(stage->row ? apply(it, key) : key);
            if (!qn_jrun_ok(run))
                return false;
            if (chosen == stage->negate)
                continue;
        } else {
            if (!stage->case_sensitive)
                key = qn_jignore_case(run, key);
            if (qn_jdict_get(run, stage->seen, key))
                continue;
            qn_jdict_set(run, stage->seen, key, qn_jnone());
        }
        *out = item;
        return qn_jrun_ok(run);
    }
    return false;
}

static qn_jval next_char(qn_jiter *it)
{
    const qn_jstr *str = it->over.chars.str;
    size_t from = it->over.chars.offset;
    qn_jstr_next(qn_jstr_str(str), &it->over.chars.offset);
    const qn_jstr *one = qn_jstr_sub(it->run, str, from, it->over.chars.offset);
    return qn_jstring(qn_jstr_plain(it->run, one));
}

bool qn_jiter_next(qn_jiter *it, qn_jval *out)
{
    /* The count may be that of characters that are not all there, in texts
     * that are not UTF-8. */
    if (!it->run || !qn_jrun_step(it->run, 1) || it->at >= it->count)
        return false;
    if (it->kind == OVER_STAGE)
        return next_of_stage(it, out);
    uint32_t i = it->backwards ? it->count - 1 - it->at : it->at;
    it->at++;
    switch (it->kind) {
    case OVER_ITEMS:
        *out = it->over.items[i];
        break;
    case OVER_CHARS:
        if (it->over.chars.offset >= it->over.chars.str->size)
            return false;
        *out = next_char(it);
        break;
    case OVER_RANGE:
        *out =
            qn_jint(it->over.range->start + it->over.range->step * (int64_t)i);
        break;
    case OVER_KEYS:
        *out = qn_jdict_key(it->over.dict, i);
        break;
    case OVER_VALUES:
        *out = qn_jdict_value(it->over.dict, i);
        break;
    default:
        *out = qn_jpair(it->run, qn_jdict_key(it->over.dict, i),
                        qn_jdict_value(it->over.dict, i));
        out->tainted = it->tainted;
        break;
    }
    return qn_jrun_ok(it->run);
}

qn_jlist qn_jlist_of(qn_jrun *run, qn_jval value)
{
    if (value.kind == QN_J_LIST || value.kind == QN_J_TUPLE)
        return *value.as.list;
    qn_jvec vec = {0};
    qn_jiter *it = qn_jiter_new(run, value);
    for (qn_jval item; qn_jiter_next(it, &item);)
        qn_jvec_push(run, &vec, item);
    if (!qn_jrun_ok(run))
        return (qn_jlist){0};
    return (qn_jlist){vec.items, vec.count};
}

/* ---- attribute paths ---- */

/* True for a part that is a number; str.isdigit without the exotic ones. */
static bool index_part(qn_str part, int64_t *out)
{
    if (!part.size || part.size > 18)
        return false;
    *out = 0;
    for (size_t i = 0; i < part.size; i++) {
        if (part.data[i] < '0' || part.data[i] > '9')
            return false;
        *out = *out * 10 + (part.data[i] - '0');
    }
    return true;
}

qn_jpath qn_jpath_parse(qn_jrun *run, qn_jval attribute)
{
    qn_jvec parts = {0};
    if (attribute.kind == QN_J_MISSING || attribute.kind == QN_J_NONE)
        return (qn_jpath){0};
    if (attribute.kind != QN_J_STR) {
        qn_jvec_push(run, &parts, attribute);
        return (qn_jpath){parts.items, parts.count};
    }
    const qn_jstr *str = attribute.as.str;
    for (size_t from = 0;;) {
        size_t to = qn_jstr_find(qn_jstr_str(str), QN_STR("."), from);
        size_t end = to == SIZE_MAX ? str->size : to;
        int64_t number;
        const qn_jstr *part = qn_jstr_sub(run, str, from, end);
        qn_jvec_push(run, &parts,
                     index_part(qn_jstr_str(part), &number) ? qn_jint(number)
                                                            : qn_jstring(part));
        if (to == SIZE_MAX || !qn_jrun_ok(run))
            break;
        from = to + 1;
    }
    return (qn_jpath){parts.items, parts.count};
}

qn_jval qn_jpath_get(qn_jrun *run, const qn_jpath *path, qn_jval item,
                     qn_jval fallback)
{
    for (uint32_t i = 0; i < path->count && qn_jrun_ok(run); i++) {
        item = qn_jitem(run, item, path->parts[i]);
        if (item.kind == QN_J_UNDEFINED && fallback.kind != QN_J_MISSING)
            item = fallback;
    }
    return item;
}

qn_jval qn_jignore_case(qn_jrun *run, qn_jval value)
{
    if (value.kind != QN_J_STR)
        return value;
    return qn_jstring(qn_jstr_cased(run, value.as.str, QN_JCASE_LOWER));
}
