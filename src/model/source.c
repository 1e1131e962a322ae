/* source.c: see source.h. */
#include "source.h"

#include <math.h>
#include <stdio.h>

enum { KEY_SIZE = 192 };

const qn_json *qn_source_json(const qn_source *s, const char *key)
{
    if (s->gguf || !key)
        return NULL;
    const qn_json *value = qn_json_get(s->text, key);
    if (!value)
        value = qn_json_get(s->root, key);
    /* null means the same as absent. */
    return value && value->type != QN_JSON_T_NULL ? value : NULL;
}

static const char *metadata_key(char out[KEY_SIZE], const qn_source *s,
                                const char *tail)
{
    snprintf(out, KEY_SIZE, "%s.%s", s->arch, tail ? tail : "");
    return out;
}

static const qn_gguf_value *metadata(const qn_source *s, const char *tail)
{
    char key[KEY_SIZE];
    return s->gguf && tail ? qn_gguf_get(s->gguf, metadata_key(key, s, tail))
                           : NULL;
}

bool qn_source_has(const qn_source *s, const char *json, const char *gguf)
{
    return qn_source_json(s, json) || metadata(s, gguf);
}

/* ---- errors ---- */

void qn_source_fail(qn_source *s, qn_status status, const char *json,
                    const char *gguf)
{
    char key[KEY_SIZE];
    if (s->status || !status)
        return;
    if (s->gguf)
        s->status = qn_fail_where(status, "%s: %s", s->path,
                                  metadata_key(key, s, gguf ? gguf : ""));
    else
        s->status =
            qn_fail_where(status, "%s: $.%s", s->path, json ? json : "");
}

void qn_source_missing(qn_source *s, const char *json, const char *gguf)
{
    char key[KEY_SIZE];
    if (s->status)
        return;
    qn_status status =
        s->gguf ? qn_fail(QN_E_FORMAT, "key %s is missing",
                          metadata_key(key, s, gguf ? gguf : json))
                : qn_fail(QN_E_FORMAT, "%s is missing", json ? json : gguf);
    qn_source_fail(s, status, json ? json : gguf, gguf ? gguf : json);
}

void qn_source_wrong(qn_source *s, const char *json, const char *expected,
                     const qn_json *found)
{
    if (s->status)
        return;
    bool number = found->type == QN_JSON_T_NUMBER;
    qn_source_fail(s,
                   qn_fail(QN_E_FORMAT, "%s: expected %s, found %s%s%.*s", json,
                           expected, qn_json_type_name(found->type),
                           number ? " " : "",
                           number ? (int)found->text.size : 0,
                           number ? found->text.data : ""),
                   json, NULL);
}

static void out_of_bounds(qn_source *s, const char *json, const char *gguf,
                          int low, int high, int64_t found)
{
    char key[KEY_SIZE];
    if (s->status)
        return;
    const char *name = s->gguf ? metadata_key(key, s, gguf) : json;
    qn_source_fail(s,
                   qn_fail(QN_E_FORMAT, "%s: expected %d..%d, found %lld", name,
                           low, high, (long long)found),
                   json, gguf);
}

/* ---- one value ---- */

static void json_int(qn_source *s, int *out, const char *key,
                     const qn_json *value, int low, int high)
{
    int64_t n;
    if (!qn_json_as_int(value, &n))
        qn_source_wrong(s, key, "an integer", value);
    else if (n < low || n > high)
        out_of_bounds(s, key, NULL, low, high, n);
    else
        *out = (int)n;
}

void qn_read_int(qn_source *s, int *out, const char *json, const char *gguf,
                 int low, int high)
{
    if (s->status || !qn_source_has(s, json, gguf))
        return;
    if (!s->gguf) {
        json_int(s, out, json, qn_source_json(s, json), low, high);
        return;
    }
    char key[KEY_SIZE];
    int64_t n;
    qn_status status = qn_gguf_get_int(s->gguf, metadata_key(key, s, gguf), &n);
    if (status)
        qn_source_fail(s, status, json, gguf);
    else if (n < low || n > high)
        out_of_bounds(s, json, gguf, low, high, n);
    else
        *out = (int)n;
}

void qn_need_int(qn_source *s, int *out, const char *json, const char *gguf,
                 int low, int high)
{
    if (qn_source_has(s, json, gguf))
        qn_read_int(s, out, json, gguf, low, high);
    else
        qn_source_missing(s, json, gguf);
}

static void json_real(qn_source *s, double *out, const char *key,
                      const qn_json *value)
{
    double x;
    if (!qn_json_as_double(value, &x) || !isfinite(x))
        qn_source_wrong(s, key, "a number", value);
    else
        *out = x;
}

void qn_read_real(qn_source *s, double *out, const char *json, const char *gguf)
{
    if (s->status || !qn_source_has(s, json, gguf))
        return;
    if (!s->gguf) {
        json_real(s, out, json, qn_source_json(s, json));
        return;
    }
    char key[KEY_SIZE];
    double x;
    qn_status status =
        qn_gguf_get_float(s->gguf, metadata_key(key, s, gguf), &x);
    if (!status && !isfinite(x))
        status =
            qn_fail(QN_E_FORMAT, "%s: expected a number, found %g", key, x);
    if (status)
        qn_source_fail(s, status, json, gguf);
    else
        *out = x;
}

void qn_need_real(qn_source *s, double *out, const char *json, const char *gguf)
{
    if (qn_source_has(s, json, gguf))
        qn_read_real(s, out, json, gguf);
    else
        qn_source_missing(s, json, gguf);
}

void qn_read_member(qn_source *s, double *out, const qn_json *object,
                    const char *key)
{
    const qn_json *value = qn_json_get(object, key);
    if (!s->status && value && value->type != QN_JSON_T_NULL)
        json_real(s, out, key, value);
}

void qn_read_bool(qn_source *s, bool *out, const char *json, const char *gguf)
{
    if (s->status || !qn_source_has(s, json, gguf))
        return;
    char key[KEY_SIZE];
    if (s->gguf)
        qn_source_fail(
            s, qn_gguf_get_bool(s->gguf, metadata_key(key, s, gguf), out), json,
            gguf);
    else if (!qn_json_as_bool(qn_source_json(s, json), out))
        qn_source_wrong(s, json, "true or false", qn_source_json(s, json));
}

void qn_read_text(qn_source *s, char *out, size_t size, const char *json,
                  const char *gguf)
{
    if (s->status || !qn_source_has(s, json, gguf))
        return;
    char key[KEY_SIZE];
    qn_str text = {"", 0};
    if (s->gguf)
        qn_source_fail(
            s, qn_gguf_get_str(s->gguf, metadata_key(key, s, gguf), &text),
            json, gguf);
    else if (!qn_json_as_str(qn_source_json(s, json), &text))
        qn_source_wrong(s, json, "a string", qn_source_json(s, json));
    if (s->status)
        return;
    if (text.size >= size || memchr(text.data, '\0', text.size)) {
        qn_source_fail(s,
                       qn_fail(QN_E_UNSUPPORTED, "%s: a text of %zu bytes",
                               s->gguf ? key : json, text.size),
                       json, gguf);
        return;
    }
    memcpy(out, text.data, text.size);
    out[text.size] = '\0';
}

/* ---- lists ---- */

static void json_list(qn_source *s, int *out, int capacity, int *count,
                      const char *key, const qn_json *list, int low, int high)
{
    if (list->count > (uint32_t)capacity) {
        qn_source_fail(s,
                       qn_fail(QN_E_FORMAT,
                               "%s: expected a list of up to %d, found %u", key,
                               capacity, list->count),
                       key, NULL);
        return;
    }
    for (uint32_t i = 0; i < list->count && !s->status; i++)
        json_int(s, &out[i], key, &list->items[i], low, high);
    *count = (int)list->count;
}

static void metadata_list(qn_source *s, int *out, int capacity, int *count,
                          const char *tail, int low, int high)
{
    char key[KEY_SIZE];
    const qn_gguf_value *list = metadata(s, tail);
    qn_gguf_value_type item = list->as.array.item;
    size_t n = list->as.array.count;
    if (item == QN_GGUF_STRING || item == QN_GGUF_F32 || item == QN_GGUF_F64 ||
        n > (size_t)capacity) {
        qn_source_fail(s,
                       qn_fail(QN_E_FORMAT,
                               "%s: expected up to %d integers, found %zu "
                               "items",
                               metadata_key(key, s, tail), capacity, n),
                       NULL, tail);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        int64_t value = qn_gguf_array_int(list, i);
        if (value < low || value > high) {
            out_of_bounds(s, NULL, tail, low, high, value);
            return;
        }
        out[i] = (int)value;
    }
    *count = (int)n;
}

static bool is_list(const qn_source *s, const char *json, const char *gguf)
{
    const qn_json *value = qn_source_json(s, json);
    const qn_gguf_value *data = metadata(s, gguf);
    return (value && value->type == QN_JSON_T_ARRAY) ||
           (data && data->type == QN_GGUF_ARRAY);
}

void qn_read_list(qn_source *s, int *out, int capacity, int *count,
                  const char *json, const char *gguf, int low, int high)
{
    *count = -1;
    if (s->status || !qn_source_has(s, json, gguf))
        return;
    if (!is_list(s, json, gguf)) {
        qn_status status = qn_fail(QN_E_FORMAT, "expected a list of integers");
        qn_source_fail(s, status, json, gguf);
    } else if (s->gguf) {
        metadata_list(s, out, capacity, count, gguf, low, high);
    } else {
        json_list(s, out, capacity, count, json, qn_source_json(s, json), low,
                  high);
    }
}

void qn_read_ints(qn_source *s, int *out, int count, const char *json,
                  const char *gguf, int low, int high)
{
    if (s->status || !qn_source_has(s, json, gguf))
        return;
    if (!is_list(s, json, gguf)) {
        int value = 0;
        qn_read_int(s, &value, json, gguf, low, high);
        for (int i = 0; i < count && !s->status; i++)
            out[i] = value;
        return;
    }
    int found;
    qn_read_list(s, out, count, &found, json, gguf, low, high);
    if (s->status || found == count)
        return;
    char key[KEY_SIZE];
    qn_source_fail(s,
                   qn_fail(QN_E_FORMAT, "%s: expected %d entries, found %d",
                           s->gguf ? metadata_key(key, s, gguf) : json, count,
                           found),
                   json, gguf);
}
