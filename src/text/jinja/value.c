/* value.c: making, comparing and hashing values, and the dict. */
#include "value.h"

#include "base/map.h"
#include "iter.h"
#include "number.h"
#include "run.h"

#include <math.h>

/* ---- making values ---- */

static qn_jval undefined(qn_jrun *run, qn_jundef what, const qn_jval *name)
{
    struct {
        qn_jundef undef;
        qn_jval name;
    } *made = qn_jrun_alloc(run, sizeof *made);
    if (!made)
        return qn_jundefined();
    made->undef = what;
    if (name) {
        made->name = *name;
        made->undef.name = &made->name;
    }
    return (qn_jval){.kind = QN_J_UNDEFINED, .as.undefined = &made->undef};
}

qn_jval qn_jundefined_name(qn_jrun *run, const qn_jstr *name)
{
    qn_jval value = qn_jstring(name);
    return undefined(run, (qn_jundef){0}, &value);
}

qn_jval qn_jundefined_in(qn_jrun *run, qn_jval object, qn_jval name)
{
    const char *type;
    switch (object.kind) {
    case QN_J_NONE:
        type = "None";
        break;
#define QN_X(name_, text)                                                      \
    case QN_J_##name_:                                                         \
        type = text " object";                                                 \
        break;
        QN_X(BOOL, "bool")
        QN_X(INT, "int")
        QN_X(BIGINT, "int")
        QN_X(FLOAT, "float")
        QN_X(STR, "str")
        QN_X(LIST, "list")
        QN_X(TUPLE, "tuple")
        QN_X(DICT, "dict")
        QN_X(RANGE, "range")
        QN_X(ITER, "generator")
        QN_X(NAMESPACE, "jinja2.utils.Namespace")
        QN_X(MACRO, "jinja2.runtime.Macro")
        QN_X(LOOP, "jinja2.runtime.LoopContext")
#undef QN_X
    default:
        type = "object";
        break;
    }
    return undefined(run, (qn_jundef){.object = type}, &name);
}

qn_jval qn_jundefined_hint(qn_jrun *run, const char *hint)
{
    return undefined(run, (qn_jundef){.hint = hint}, NULL);
}

qn_jval qn_jseq(qn_jrun *run, qn_jkind kind, const qn_jval *items,
                uint32_t count)
{
    qn_jlist *list = qn_jrun_alloc(run, sizeof *list);
    if (!list)
        return qn_jundefined();
    *list = (qn_jlist){items, count};
    return (qn_jval){.kind = (uint8_t)kind, .as.list = list};
}

qn_jval qn_jpair(qn_jrun *run, qn_jval first, qn_jval second)
{
    qn_jval *items = qn_jrun_array(run, 2, sizeof *items);
    if (!items)
        return qn_jundefined();
    items[0] = first;
    items[1] = second;
    return qn_jseq(run, QN_J_TUPLE, items, 2);
}

void qn_jvec_push(qn_jrun *run, qn_jvec *vec, qn_jval value)
{
    if (vec->count == vec->capacity) {
        uint32_t capacity = vec->capacity ? vec->capacity * 2 : 8;
        qn_jval *items = qn_jrun_array(run, capacity, sizeof *items);
        if (!items)
            return;
        if (vec->count)
            memcpy(items, vec->items, vec->count * sizeof *items);
        vec->items = items;
        vec->capacity = capacity;
    }
    vec->items[vec->count++] = value;
}

static qn_jval number_from_json(qn_jrun *run, qn_str spelling)
{
    int64_t integer;
    double real;
    if (qn_json_int64(spelling, &integer))
        return qn_jint(integer);
    if (qn_jnumber_is_decimal(spelling))
        return (qn_jval){.kind = QN_J_BIGINT,
                         .as.str = qn_jstr_make(run, spelling, false)};
    if (!qn_jnumber_real(spelling, &real))
        return qn_jrun_fail(run, "a variable holds a malformed number");
    return qn_jreal(real);
}

static qn_jval from_json(qn_jrun *run, const qn_json *json, bool tainted,
                         int depth)
{
    qn_jval value = qn_jnone();
    if (depth > QN_JDEPTH)
        return qn_jrun_fail(run, "a variable is nested deeper than %d levels",
                            QN_JDEPTH);
    if (!qn_jrun_step(run, 1))
        return qn_jundefined();
    switch (json->type) {
    case QN_JSON_T_NULL:
        break;
    case QN_JSON_T_BOOL:
        value = qn_jbool(json->boolean);
        break;
    case QN_JSON_T_NUMBER:
        value = number_from_json(run, json->text);
        break;
    case QN_JSON_T_STRING:
        return qn_jstring(qn_jstr_make(run, json->text, tainted));
    case QN_JSON_T_ARRAY: {
        qn_jval *items = qn_jrun_array(run, json->count, sizeof *items);
        for (uint32_t i = 0; items && i < json->count && qn_jrun_ok(run); i++)
            items[i] = from_json(run, &json->items[i], tainted, depth + 1);
        value = qn_jseq(run, QN_J_LIST, items, json->count);
        break;
    }
    case QN_JSON_T_OBJECT: {
        qn_jdict *dict = qn_jdict_new(run);
        for (uint32_t i = 0; i < json->count && qn_jrun_ok(run); i++)
            qn_jdict_set(run, dict,
                         qn_jstring(qn_jstr_make(run, json->keys[i], tainted)),
                         from_json(run, &json->items[i], tainted, depth + 1));
        value = qn_jdict_val(QN_J_DICT, dict, tainted);
        break;
    }
    }
    value.tainted = tainted;
    return value;
}

qn_jval qn_jval_from_json(qn_jrun *run, const qn_json *json, bool tainted)
{
    return from_json(run, json, tainted, 1);
}

/* ---- looking at values ---- */

const char *qn_jtype(qn_jval value)
{
    static const char *const names[] = {
#define QN_X(name, type) type,
        QN_JKIND_LIST(QN_X)
#undef QN_X
    };
    return names[value.kind];
}

bool qn_jtruth(qn_jval value)
{
    switch ((qn_jkind)value.kind) {
    case QN_J_MISSING:
    case QN_J_UNDEFINED:
    case QN_J_NONE:
        return false;
    case QN_J_BOOL:
        return value.as.boolean;
    case QN_J_INT:
        return value.as.integer != 0;
    case QN_J_FLOAT:
        return value.as.real != 0;
    case QN_J_STR:
        return value.as.str->size != 0;
    case QN_J_LIST:
    case QN_J_TUPLE:
        return value.as.list->count != 0;
    case QN_J_DICT:
    case QN_J_KEYS:
    case QN_J_VALUES:
    case QN_J_ITEMS:
        return qn_jdict_count(value.as.dict) != 0;
    case QN_J_RANGE:
        return value.as.range->count != 0;
    case QN_J_BIGINT:
    case QN_J_ITER:
    case QN_J_NAMESPACE:
    case QN_J_MACRO:
    case QN_J_FUNCTION:
    case QN_J_METHOD:
    case QN_J_LOOP:
        return true;
    }
    return true;
}

bool qn_jas_int(qn_jval value, int64_t *out)
{
    if (value.kind == QN_J_BOOL)
        *out = value.as.boolean;
    else if (value.kind == QN_J_INT)
        *out = value.as.integer;
    else
        return false;
    return true;
}

bool qn_jas_real(qn_jval value, double *out)
{
    int64_t integer;
    if (value.kind == QN_J_FLOAT)
        *out = value.as.real;
    else if (qn_jas_int(value, &integer))
        *out = (double)integer;
    else if (value.kind == QN_J_BIGINT)
        return qn_jnumber_real(qn_jstr_str(value.as.str), out);
    else
        return false;
    return true;
}

bool qn_jlength(qn_jrun *run, qn_jval value, int64_t *out)
{
    switch ((qn_jkind)value.kind) {
    case QN_J_UNDEFINED:
        *out = 0;
        return true;
    case QN_J_STR:
        *out = value.as.str->chars;
        return true;
    case QN_J_LIST:
    case QN_J_TUPLE:
        *out = value.as.list->count;
        return true;
    case QN_J_DICT:
    case QN_J_KEYS:
    case QN_J_VALUES:
    case QN_J_ITEMS:
        *out = qn_jdict_count(value.as.dict);
        return true;
    case QN_J_RANGE:
        *out = value.as.range->count;
        return true;
    case QN_J_LOOP: {
        qn_jval length =
            qn_jloop_attribute(run, value.as.loop, QN_STR("length"));
        *out = 0;
        return qn_jas_int(length, out) || !qn_jrun_ok(run);
    }
    default:
        return false;
    }
}

/* ---- equality and order ---- */

static bool is_number(qn_jval value)
{
    return value.kind == QN_J_BOOL || value.kind == QN_J_INT ||
           value.kind == QN_J_BIGINT || value.kind == QN_J_FLOAT;
}

/* True for a real number that is an integer of 64 bits. */
static bool integral(double real, int64_t *out)
{
    if (!(real >= -0x1p63 && real < 0x1p63) || real != floor(real))
        return false;
    *out = (int64_t)real;
    return true;
}

static int sign_of(int a, int b)
{
    return (a > b) - (a < b);
}

/* The order of an integer and a real that is none of 64 bits. */
static int order_int_real(int64_t integer, double real)
{
    if (isnan(real))
        return 2;
    if (real >= 0x1p63)
        return -1;
    if (real < -0x1p63)
        return 1;
    return integer <= (int64_t)floor(real) ? -1 : 1;
}

/* The order of two numbers, exact between integers and reals; 2: a NaN. */
static int order_numbers(qn_jval a, qn_jval b)
{
    int64_t x, y;
    double u, v;
    bool int_a = qn_jas_int(a, &x), int_b = qn_jas_int(b, &y);
    if (!int_a && a.kind == QN_J_FLOAT)
        int_a = integral(a.as.real, &x);
    if (!int_b && b.kind == QN_J_FLOAT)
        int_b = integral(b.as.real, &y);
    if (int_a && int_b)
        return (x > y) - (x < y);
    if (int_a && b.kind == QN_J_FLOAT)
        return order_int_real(x, b.as.real);
    if (int_b && a.kind == QN_J_FLOAT) {
        int order = order_int_real(y, a.as.real);
        return order == 2 ? 2 : -order;
    }
    if (a.kind == QN_J_BIGINT && b.kind == QN_J_BIGINT) {
        qn_str s = qn_jstr_str(a.as.str), t = qn_jstr_str(b.as.str);
        bool minus_s = s.data[0] == '-', minus_t = t.data[0] == '-';
        if (minus_s != minus_t)
            return minus_s ? -1 : 1;
        int order = s.size != t.size ? (s.size > t.size ? 1 : -1)
                                     : memcmp(s.data, t.data, s.size);
        order = sign_of(order, 0);
        return minus_s ? -order : order;
    }
    if (!qn_jas_real(a, &u) || !qn_jas_real(b, &v) || isnan(u) || isnan(v))
        return 2;
    return (u > v) - (u < v);
}

static bool too_deep(qn_jrun *run, int depth)
{
    if (depth <= QN_JDEPTH)
        return false;
    qn_jrun_fail(run, "a value is nested deeper than %d levels", QN_JDEPTH);
    return true;
}

static bool equal(qn_jrun *run, qn_jval a, qn_jval b, int depth);

static bool equal_lists(qn_jrun *run, const qn_jlist *a, const qn_jlist *b,
                        int depth)
{
    if (a->count != b->count)
        return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (!equal(run, a->items[i], b->items[i], depth + 1))
            return false;
    return true;
}

static bool equal_dicts(qn_jrun *run, const qn_jdict *a, const qn_jdict *b,
                        int depth)
{
    if (qn_jdict_count(a) != qn_jdict_count(b))
        return false;
    for (uint32_t i = 0; i < qn_jdict_count(a); i++) {
        const qn_jval *other = qn_jdict_get(run, b, qn_jdict_key(a, i));
        if (!other || !equal(run, qn_jdict_value(a, i), *other, depth + 1))
            return false;
    }
    return true;
}

static bool equal_ranges(const qn_jrange *a, const qn_jrange *b)
{
    return a->count == b->count &&
           (!a->count ||
            (a->start == b->start && (a->count == 1 || a->step == b->step)));
}

static bool equal(qn_jrun *run, qn_jval a, qn_jval b, int depth)
{
    if (!qn_jrun_step(run, 1) || too_deep(run, depth))
        return false;
    if (is_number(a) && is_number(b))
        return order_numbers(a, b) == 0;
    if (a.kind != b.kind)
        return false;
    switch ((qn_jkind)a.kind) {
    case QN_J_UNDEFINED:
    case QN_J_NONE:
        return true;
    case QN_J_STR:
        return a.as.str->size == b.as.str->size &&
               qn_jrun_bytes(run, a.as.str->size) &&
               qn_str_eq(qn_jstr_str(a.as.str), qn_jstr_str(b.as.str));
    case QN_J_LIST:
    case QN_J_TUPLE:
        return equal_lists(run, a.as.list, b.as.list, depth);
    case QN_J_DICT:
        return equal_dicts(run, a.as.dict, b.as.dict, depth);
    case QN_J_RANGE:
        return equal_ranges(a.as.range, b.as.range);
    case QN_J_METHOD:
    case QN_J_FUNCTION:
    case QN_J_MACRO:
    case QN_J_LOOP:
    case QN_J_ITER:
    case QN_J_NAMESPACE:
    case QN_J_KEYS:
    case QN_J_VALUES:
    case QN_J_ITEMS:
        return a.as.dict == b.as.dict; /* the same pointer, whatever to */
    default:
        return false;
    }
}

bool qn_jequal(qn_jrun *run, qn_jval a, qn_jval b)
{
    return equal(run, a, b, 1);
}

static int order(qn_jrun *run, const char *op, qn_jval a, qn_jval b, int depth)
{
    if (!qn_jrun_step(run, 1) || too_deep(run, depth))
        return 0;
    if (a.kind == QN_J_UNDEFINED || b.kind == QN_J_UNDEFINED) {
        qn_jrun_undefined(run, a.kind == QN_J_UNDEFINED ? a : b);
        return 0;
    }
    if (is_number(a) && is_number(b))
        return order_numbers(a, b);
    if (a.kind == QN_J_STR && b.kind == QN_J_STR) {
        /* The order of UTF-8 bytes is that of the code points. */
        const qn_jstr *s = a.as.str, *t = b.as.str;
        size_t n = s->size < t->size ? s->size : t->size;
        qn_jrun_bytes(run, n);
        int first = n ? memcmp(s->data, t->data, n) : 0;
        if (first)
            return first > 0 ? 1 : -1;
        return (s->size > t->size) - (s->size < t->size);
    }
    if (a.kind == b.kind && (a.kind == QN_J_LIST || a.kind == QN_J_TUPLE)) {
        const qn_jlist *s = a.as.list, *t = b.as.list;
        uint32_t n = s->count < t->count ? s->count : t->count;
        for (uint32_t i = 0; i < n && qn_jrun_ok(run); i++)
            if (!equal(run, s->items[i], t->items[i], depth + 1))
                return order(run, op, s->items[i], t->items[i], depth + 1);
        return (s->count > t->count) - (s->count < t->count);
    }
    qn_jrun_fail(run, "'%s' not supported between instances of '%s' and '%s'",
                 op, qn_jtype(a), qn_jtype(b));
    return 0;
}

int qn_jorder(qn_jrun *run, const char *op, qn_jval a, qn_jval b)
{
    return order(run, op, a, b, 1);
}

bool qn_jsort(qn_jrun *run, uint32_t *sorted, const qn_jval *keys,
              uint32_t count, bool backwards)
{
    uint32_t *from = sorted, *to = qn_jrun_array(run, count, sizeof *to);
    for (uint32_t i = 0; to && i < count; i++)
        from[i] = i;
    /* Merges runs of doubling width; an item of the right run goes first
     * only if it is strictly smaller. */
    for (uint64_t width = 1; to && width < count; width *= 2) {
        for (uint64_t start = 0; start < count; start += 2 * width) {
            uint64_t left = start, middle = start + width;
            uint64_t end = middle + width, at = start;
            middle = middle < count ? middle : count;
            end = end < count ? end : count;
            uint64_t right = middle;
            while (at < end) {
                bool take_right = left == middle;
                if (!take_right && right < end)
                    take_right = backwards
                                     ? qn_jorder(run, "<", keys[from[left]],
                                                 keys[from[right]]) == -1
                                     : qn_jorder(run, "<", keys[from[right]],
                                                 keys[from[left]]) == -1;
                to[at++] = take_right ? from[right++] : from[left++];
            }
            if (!qn_jrun_ok(run))
                return false;
        }
        uint32_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != sorted && count)
        memcpy(sorted, from, count * sizeof *from);
    return qn_jrun_ok(run);
}

static bool range_contains(qn_jrun *run, const qn_jrange *range, qn_jval item)
{
    int64_t x;
    if (item.kind == QN_J_FLOAT ? !integral(item.as.real, &x)
                                : !qn_jas_int(item, &x))
        return false;
    for (uint32_t i = 0; i < range->count && qn_jrun_step(run, 1); i++)
        if (range->start + range->step * (int64_t)i == x)
            return true;
    return false;
}

bool qn_jcontains(qn_jrun *run, qn_jval container, qn_jval item)
{
    switch ((qn_jkind)container.kind) {
    case QN_J_STR:
        if (item.kind != QN_J_STR) {
            qn_jrun_fail(run,
                         "'in <string>' requires string as left operand, "
                         "not %s",
                         qn_jtype(item));
            return false;
        }
        return qn_jrun_bytes(run, container.as.str->size) &&
               qn_jstr_find(qn_jstr_str(container.as.str),
                            qn_jstr_str(item.as.str), 0) != SIZE_MAX;
    case QN_J_DICT:
    case QN_J_KEYS:
        return qn_jdict_get(run, container.as.dict, item) != NULL;
    case QN_J_RANGE:
        return range_contains(run, container.as.range, item);
    default:
        break;
    }
    if (!qn_jiterable(container)) {
        qn_jrun_fail(run, "argument of type '%s' is not iterable",
                     qn_jtype(container));
        return false;
    }
    qn_jiter *it = qn_jiter_new(run, container);
    for (qn_jval each; qn_jiter_next(it, &each);)
        if (qn_jequal(run, each, item))
            return true;
    return false;
}

/* ---- dicts ---- */

typedef struct dict_entry {
    qn_jval key, value;
    uint64_t hash;
} dict_entry;

/* Entries in insertion order.  From INDEXED entries on, `index` is an open
 * hash table of entry numbers + 1, twice as large as the entries' room. */
struct qn_jdict {
    dict_entry *entries;
    uint32_t count, capacity;
    uint32_t *index;
};

enum { INDEXED = 16 };

static uint64_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdULL;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ULL;
    return x ^ x >> 33;
}

/* Equal values have equal hashes. */
static uint64_t hash_value(qn_jrun *run, qn_jval value, int depth)
{
    int64_t integer;
    if (!qn_jrun_step(run, 1) || too_deep(run, depth))
        return 0;
    if (qn_jas_int(value, &integer))
        return qn_hash(&integer, sizeof integer);
    switch ((qn_jkind)value.kind) {
    case QN_J_FLOAT:
        if (integral(value.as.real, &integer))
            return qn_hash(&integer, sizeof integer);
        return qn_hash(&value.as.real, sizeof value.as.real);
    case QN_J_STR:
        qn_jrun_bytes(run, value.as.str->size);
        return qn_hash(value.as.str->data, value.as.str->size);
    case QN_J_TUPLE: {
        uint64_t hash = value.as.list->count;
        for (uint32_t i = 0; i < value.as.list->count && qn_jrun_ok(run); i++)
            hash =
                mix(hash) ^ hash_value(run, value.as.list->items[i], depth + 1);
        return hash;
    }
    case QN_J_LIST:
    case QN_J_DICT:
        qn_jrun_fail(run, "unhashable type: '%s'", qn_jtype(value));
        return 0;
    default: /* kinds whose values are few: the comparison decides */
        return value.kind;
    }
}

bool qn_jhashable(qn_jval value)
{
    if (value.kind == QN_J_TUPLE)
        for (uint32_t i = 0; i < value.as.list->count; i++)
            if (value.as.list->items[i].kind == QN_J_TUPLE ||
                !qn_jhashable(value.as.list->items[i]))
                return false;
    return value.kind != QN_J_LIST && value.kind != QN_J_DICT;
}

qn_jdict *qn_jdict_new(qn_jrun *run)
{
    /* A failed run still gets something to point at. */
    static qn_jdict nothing;
    qn_jdict *dict = qn_jrun_alloc(run, sizeof *dict);
    if (!dict)
        return &nothing;
    *dict = (qn_jdict){0};
    return dict;
}

uint32_t qn_jdict_count(const qn_jdict *dict)
{
    return dict->count;
}

qn_jval qn_jdict_key(const qn_jdict *dict, uint32_t i)
{
    return dict->entries[i].key;
}

qn_jval qn_jdict_value(const qn_jdict *dict, uint32_t i)
{
    return dict->entries[i].value;
}

qn_jval qn_jdict_val(qn_jkind kind, qn_jdict *dict, bool tainted)
{
    return (qn_jval){
        .kind = (uint8_t)kind, .tainted = tainted, .as.dict = dict};
}

static dict_entry *find_entry(qn_jrun *run, const qn_jdict *dict, qn_jval key,
                              uint64_t hash)
{
    if (!dict->index) {
        for (uint32_t i = 0; i < dict->count; i++)
            if (dict->entries[i].hash == hash &&
                qn_jequal(run, dict->entries[i].key, key))
                return &dict->entries[i];
        return NULL;
    }
    uint32_t mask = dict->capacity * 2 - 1;
    for (uint32_t slot = (uint32_t)hash & mask; dict->index[slot];
         slot = (slot + 1) & mask) {
        dict_entry *e = &dict->entries[dict->index[slot] - 1];
        if (e->hash == hash && qn_jequal(run, e->key, key))
            return e;
    }
    return NULL;
}

static void index_entry(qn_jdict *dict, uint32_t i)
{
    uint32_t mask = dict->capacity * 2 - 1;
    uint32_t slot = (uint32_t)dict->entries[i].hash & mask;
    while (dict->index[slot])
        slot = (slot + 1) & mask;
    dict->index[slot] = i + 1;
}

/* Doubles the room; false when memory is out. */
static bool grow_dict(qn_jrun *run, qn_jdict *dict)
{
    uint32_t capacity = dict->capacity ? dict->capacity * 2 : 4;
    dict_entry *entries = qn_jrun_array(run, capacity, sizeof *entries);
    uint32_t *index = NULL;
    if (capacity >= INDEXED)
        index = qn_jrun_array(run, (size_t)capacity * 2, sizeof *index);
    if (!entries || (capacity >= INDEXED && !index))
        return false;
    if (dict->count)
        memcpy(entries, dict->entries, dict->count * sizeof *entries);
    dict->entries = entries;
    dict->index = index;
    dict->capacity = capacity;
    if (index) {
        memset(index, 0, (size_t)capacity * 2 * sizeof *index);
        for (uint32_t i = 0; i < dict->count; i++)
            index_entry(dict, i);
    }
    return true;
}

void qn_jdict_set(qn_jrun *run, qn_jdict *dict, qn_jval key, qn_jval value)
{
    uint64_t hash = hash_value(run, key, 1);
    if (!qn_jrun_ok(run))
        return;
    dict_entry *known = find_entry(run, dict, key, hash);
    if (known) {
        known->value = value;
        return;
    }
    if (dict->count == dict->capacity && !grow_dict(run, dict))
        return;
    dict->entries[dict->count] =
        (dict_entry){.key = key, .value = value, .hash = hash};
    dict->count++;
    if (dict->index)
        index_entry(dict, dict->count - 1);
}

const qn_jval *qn_jdict_get(qn_jrun *run, const qn_jdict *dict, qn_jval key)
{
    uint64_t hash = hash_value(run, key, 1);
    if (!qn_jrun_ok(run))
        return NULL;
    dict_entry *known = find_entry(run, dict, key, hash);
    return known ? &known->value : NULL;
}

const qn_jval *qn_jdict_get_str(qn_jrun *run, const qn_jdict *dict, qn_str key)
{
    qn_jstr str = {.data = key.data, .size = (uint32_t)key.size};
    return qn_jdict_get(run, dict, qn_jstring(&str));
}
