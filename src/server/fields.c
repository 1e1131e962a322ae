/* fields.c: reads objects by tables of their fields. */
#include "fields.h"

#include "base/utf8.h"

#include <math.h>
#include <stdio.h>

/* Limits of the server specification, section 2; the depth is base's own. */
enum { MAX_VALUES = 1000000, MAX_IGNORED = 1024 };

/* ---- where we are ---- */

static void append_path(qn_reading *r, const char *text, size_t size)
{
    size_t room = sizeof r->path - 1;
    size_t at = r->depth < room ? r->depth : room;
    size_t part = size < room - at ? size : room - at;
    memcpy(r->path + at, text, part);
    r->path[at + part] = 0;
    r->depth += size;
}

size_t qn_enter_str(qn_reading *r, qn_str key)
{
    size_t before = r->depth;
    if (before)
        append_path(r, ".", 1);
    append_path(r, key.data, key.size);
    return before;
}

size_t qn_enter(qn_reading *r, const char *key)
{
    return qn_enter_str(r, qn_str_of(key));
}

size_t qn_enter_index(qn_reading *r, size_t index)
{
    char text[32];
    size_t before = r->depth;
    int size = snprintf(text, sizeof text, "[%zu]", index);
    append_path(r, text, (size_t)size);
    return before;
}

void qn_leave(qn_reading *r, size_t depth)
{
    r->depth = depth;
    if (depth < sizeof r->path)
        r->path[depth] = 0;
}

bool qn_bad_field(qn_reading *r, qn_api_code code, const char *fmt, ...)
{
    char message[QN_API_MESSAGE_SIZE];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    return qn_api_fail(r->error, code, r->path, "%s", message);
}

bool qn_reading_no_memory(qn_reading *r)
{
    return qn_api_fail_memory(r->error);
}

/* ---- types ---- */

static unsigned type_of(const qn_json *value)
{
    int64_t integer;
    switch (value->type) {
    case QN_JSON_T_BOOL:
        return QN_BOOL;
    case QN_JSON_T_NUMBER:
        return qn_json_as_int(value, &integer) ? QN_INT | QN_NUMBER : QN_NUMBER;
    case QN_JSON_T_STRING:
        return QN_STRING;
    case QN_JSON_T_ARRAY:
        return QN_ARRAY;
    case QN_JSON_T_OBJECT:
        return QN_OBJECT;
    case QN_JSON_T_NULL:
        break;
    }
    return 0;
}

/* "a string or an array" */
static const char *type_words(char out[96], unsigned types)
{
    static const struct {
        unsigned type;
        const char *words;
    } names[] = {{QN_BOOL, "true or false"}, {QN_INT, "an integer"},
                 {QN_NUMBER, "a number"},    {QN_STRING, "a string"},
                 {QN_ARRAY, "an array"},     {QN_OBJECT, "an object"}};
    size_t size = 0;
    out[0] = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (types & names[i].type)
            size += (size_t)snprintf(out + size, 96 - size, "%s%s",
                                     size ? " or " : "", names[i].words);
    return out;
}

bool qn_check_type(qn_reading *r, const qn_json *value, unsigned types)
{
    char words[96];
    if (type_of(value) & types)
        return true;
    bool fraction =
        value->type == QN_JSON_T_NUMBER && types & QN_INT; /* 1.0, too */
    return qn_bad_field(r, QN_API_INVALID_TYPE, "expected %s, found %s",
                        type_words(words, types),
                        fraction ? "a number with a fraction or exponent"
                                 : qn_json_type_name(value->type));
}

/* ---- objects ---- */

static const qn_field *find(const qn_table *tables, size_t count, qn_str key,
                            const qn_table **table)
{
    /* Bodies may have a million keys: most names differ in the first byte. */
    char first = key.size ? key.data[0] : 0;
    for (size_t t = 0; t < count; t++)
        for (size_t i = 0; i < tables[t].count; i++) {
            const qn_field *f = &tables[t].rows[i];
            if (f->name[0] == first && qn_str_is(key, f->name)) {
                *table = &tables[t];
                return f;
            }
        }
    return NULL;
}

bool qn_fields_known(qn_reading *r, const qn_json *object,
                     const qn_table *tables, size_t count)
{
    const qn_table *table;
    for (uint32_t i = 0; i < object->count; i++) {
        if (find(tables, count, object->keys[i], &table))
            continue;
        size_t before = qn_enter_str(r, object->keys[i]);
        if (r->call->server->strict_fields)
            return qn_bad_field(r, QN_API_UNKNOWN_FIELD,
                                "the server knows no such field");
        qn_ignored_add(&r->call->ignored, qn_str_of(r->path));
        qn_leave(r, before);
    }
    return true;
}

bool qn_fields_shape(qn_reading *r, const qn_json *object,
                     const qn_table *tables, size_t count)
{
    const qn_table *table;
    for (uint32_t i = 0; i < object->count; i++) {
        const qn_json *value = &object->items[i];
        const qn_field *f = find(tables, count, object->keys[i], &table);
        if (!f || value->type == QN_JSON_T_NULL)
            continue;
        size_t before = qn_enter(r, f->name);
        if (!qn_check_type(r, value, f->types) ||
            (f->shape && !f->shape(r, f, value, table->base)))
            return false;
        qn_leave(r, before);
    }
    return true;
}

bool qn_fields_values(qn_reading *r, const qn_json *object,
                      const qn_table *tables, size_t count)
{
    const qn_table *table;
    for (uint32_t i = 0; i < object->count; i++) {
        const qn_json *value = &object->items[i];
        const qn_field *f = find(tables, count, object->keys[i], &table);
        if (!f || value->type == QN_JSON_T_NULL)
            continue;
        size_t before = qn_enter(r, f->name);
        if (!f->read(r, f, value, table->base))
            return false;
        if (table->given)
            *table->given |= UINT64_C(1) << (f - table->rows);
        qn_leave(r, before);
    }
    return true;
}

const qn_json *qn_field_get(const qn_json *object, const char *key)
{
    const qn_json *value = qn_json_get(object, key);
    return value && value->type != QN_JSON_T_NULL ? value : NULL;
}

const qn_json *qn_field_required(qn_reading *r, const qn_json *object,
                                 const char *key)
{
    const qn_json *value = qn_field_get(object, key);
    if (!value) {
        qn_enter(r, key);
        qn_bad_field(r, QN_API_MISSING_FIELD, "this field is required");
    }
    return value;
}

const qn_json *qn_field_typed(qn_reading *r, const qn_json *object,
                              const char *key, unsigned types)
{
    const qn_json *value = qn_field_required(r, object, key);
    if (!value)
        return NULL;
    size_t before = qn_enter(r, key);
    if (!qn_check_type(r, value, types))
        return NULL;
    qn_leave(r, before);
    return value;
}

bool qn_take_body(qn_reading *r, qn_str body)
{
    qn_status status = qn_json_parse_limited(&r->call->doc, body,
                                             QN_JSON_NUMBERS_FIT, MAX_VALUES);
    if (status == QN_E_NOMEM)
        return qn_reading_no_memory(r);
    if (status)
        return qn_api_fail(r->error, QN_API_INVALID_JSON, NULL, "%s",
                           qn_error_text());
    const qn_json *root = qn_json_root(r->call->doc);
    if (root->type != QN_JSON_T_OBJECT)
        return qn_api_fail(r->error, QN_API_INVALID_JSON, NULL,
                           "JSON byte %u: expected an object, found %s",
                           (unsigned)root->offset,
                           qn_json_type_name(root->type));
    return true;
}

/* ---- values ---- */

static bool out_of_range(qn_reading *r, const qn_field *f, qn_str found)
{
    int shown = found.size < 40 ? (int)found.size : 40;
    return qn_bad_field(r, QN_API_OUT_OF_RANGE, "expected %s, found %.*s",
                        f->range, shown, found.data);
}

bool qn_take_bool(qn_reading *r, const qn_field *f, const qn_json *value,
                  void *base)
{
    (void)r;
    memcpy((char *)base + f->to, &value->boolean, sizeof value->boolean);
    return true;
}

bool qn_take_int(qn_reading *r, const qn_field *f, const qn_json *value,
                 void *base)
{
    int64_t number = 0;
    qn_json_as_int(value, &number);
    bool fits = f->size == sizeof number ||
                (number >= INT32_MIN && number <= INT32_MAX);
    if (!fits ||
        (f->range && ((double)number < f->low || (double)number > f->high)))
        return out_of_range(r, f, value->text);
    int32_t small = (int32_t)number;
    memcpy((char *)base + f->to,
           f->size == sizeof number ? (void *)&number : (void *)&small,
           f->size);
    return true;
}

bool qn_take_double(qn_reading *r, const qn_field *f, const qn_json *value,
                    void *base)
{
    double number = 0;
    qn_json_as_double(value, &number);
    if (!(number >= f->low && number <= f->high))
        return out_of_range(r, f, value->text);
    memcpy((char *)base + f->to, &number, sizeof number);
    return true;
}

bool qn_keep_text(qn_reading *r, const char **out, qn_str text)
{
    if (text.size && memchr(text.data, 0, text.size))
        return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                            "a NUL character is not supported here");
    char *kept = qn_arena_alloc(&r->call->arena, text.size + 1);
    if (!kept)
        return qn_reading_no_memory(r);
    memcpy(kept, text.data, text.size);
    kept[text.size] = 0;
    *out = kept;
    return true;
}

bool qn_take_text(qn_reading *r, const qn_field *f, const qn_json *value,
                  void *base)
{
    const char *text;
    if (f->range && ((double)value->text.size < f->low ||
                     (double)value->text.size > f->high))
        return qn_bad_field(r, QN_API_OUT_OF_RANGE,
                            "expected %s, found %zu bytes", f->range,
                            value->text.size);
    if (!qn_keep_text(r, &text, value->text))
        return false;
    memcpy((char *)base + f->to, &text, sizeof text);
    return true;
}

bool qn_take_json(qn_reading *r, const qn_field *f, const qn_json *value,
                  void *base)
{
    (void)r;
    memcpy((char *)base + f->to, &value, sizeof value);
    return true;
}

bool qn_take_nothing(qn_reading *r, const qn_field *f, const qn_json *value,
                     void *base)
{
    (void)r;
    (void)f;
    (void)value;
    (void)base;
    return true;
}

/* 0, false, "" and empty containers ask for nothing. */
static bool is_off(const qn_json *value)
{
    double number = 0;
    switch (value->type) {
    case QN_JSON_T_BOOL:
        return !value->boolean;
    case QN_JSON_T_NUMBER:
        return qn_json_as_double(value, &number) && number == 0;
    case QN_JSON_T_STRING:
        return !value->text.size;
    case QN_JSON_T_ARRAY:
    case QN_JSON_T_OBJECT:
        return !value->count;
    case QN_JSON_T_NULL:
        break;
    }
    return true;
}

bool qn_take_ignored(qn_reading *r, const qn_field *f, const qn_json *value,
                     void *base)
{
    (void)f;
    (void)base;
    if (!is_off(value))
        qn_ignored_add(&r->call->ignored, qn_str_of(r->path));
    return true;
}

bool qn_take_refused(qn_reading *r, const qn_field *f, const qn_json *value,
                     void *base)
{
    (void)f;
    (void)value;
    (void)base;
    return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                        "this server does not support the field");
}

bool qn_take_refused_unless_off(qn_reading *r, const qn_field *f,
                                const qn_json *value, void *base)
{
    return is_off(value) || qn_take_refused(r, f, value, base);
}

void qn_ignored_add(qn_buf *ignored, qn_str name)
{
    if (ignored->size + name.size > MAX_IGNORED)
        return;
    if (ignored->size)
        qn_buf_add_char(ignored, ',');
    for (size_t i = 0; i < name.size; i++) {
        char c = name.data[i];
        qn_buf_add_char(ignored, c > ' ' && c < 0x7f && c != ',' ? c : '?');
    }
}
