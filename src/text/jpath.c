/* jpath.c: paths and typed reads. */
#include "jpath.h"

enum { PATH_LEVELS = 16 };

static void write_path(qn_buf *out, const qn_jpath *at)
{
    /* Deeper levels are cut: what remains still finds the place. */
    const qn_jpath *levels[PATH_LEVELS];
    int count = 0;
    for (; at && count < PATH_LEVELS; at = at->up)
        levels[count++] = at;
    for (int i = count; i-- > 0;) {
        if (levels[i]->key)
            qn_buf_printf(out, "%s%s", i == count - 1 ? "" : ".",
                          levels[i]->key);
        else
            qn_buf_printf(out, "[%zu]", levels[i]->index);
    }
}

qn_status qn_jpath_where(const qn_jpath *at, qn_status code)
{
    qn_buf path = QN_BUF_INIT;
    write_path(&path, at);
    if (!path.failed)
        qn_fail_where(code, "tokenizer.json: %s", qn_buf_str(&path).data);
    qn_buf_free(&path);
    return code;
}

qn_status qn_jpath_fail(const qn_jpath *at, qn_status code, const char *fmt,
                        ...)
{
    qn_buf text = QN_BUF_INIT;
    va_list args;
    va_start(args, fmt);
    qn_buf_vprintf(&text, fmt, args);
    va_end(args);
    if (text.failed) {
        qn_buf_free(&text);
        return QN_E_NOMEM;
    }
    qn_fail(code, "%s", qn_buf_str(&text).data);
    qn_buf_free(&text);
    return qn_jpath_where(at, code);
}

/* The member if it is there and not null, else NULL. */
static const qn_json *member(const qn_json *object, const char *key)
{
    const qn_json *value = qn_json_get(object, key);
    return value && value->type != QN_JSON_T_NULL ? value : NULL;
}

static qn_status wrong_type(const qn_jpath *at, const char *key,
                            const char *expected, const qn_json *found)
{
    return qn_jpath_fail(QN_JPATH_KEY(at, key), QN_E_FORMAT,
                         "expected %s, found %s", expected,
                         found ? qn_json_type_name(found->type) : "nothing");
}

qn_status qn_jpath_reader_failed(const qn_json_reader *reader)
{
    qn_status status = qn_json_status(reader);
    qn_fail_where(status, "tokenizer.json");
    return status;
}

qn_status qn_jpath_bool(const qn_jpath *at, const qn_json *object,
                        const char *key, bool *out)
{
    const qn_json *value = member(object, key);
    if (value && !qn_json_as_bool(value, out))
        return wrong_type(at, key, "true or false", value);
    return QN_OK;
}

qn_status qn_jpath_str(const qn_jpath *at, const qn_json *object,
                       const char *key, qn_str *out)
{
    const qn_json *value = member(object, key);
    if (value && !qn_json_as_str(value, out))
        return wrong_type(at, key, "a string", value);
    return QN_OK;
}

qn_status qn_jpath_int(const qn_jpath *at, const qn_json *object,
                       const char *key, int64_t *out)
{
    const qn_json *value = member(object, key);
    if (value && !qn_json_as_int(value, out))
        return wrong_type(at, key, "an integer", value);
    return QN_OK;
}

qn_status qn_jpath_need_str(const qn_jpath *at, const qn_json *object,
                            const char *key, qn_str *out)
{
    const qn_json *value = member(object, key);
    if (!qn_json_as_str(value, out))
        return wrong_type(at, key, "a string", value);
    return QN_OK;
}

qn_status qn_jpath_need_array(const qn_jpath *at, const qn_json *object,
                              const char *key, const qn_json **out)
{
    const qn_json *value = member(object, key);
    if (!value || value->type != QN_JSON_T_ARRAY)
        return wrong_type(at, key, "an array", value);
    *out = value;
    return QN_OK;
}

qn_status qn_jpath_type(const qn_jpath *at, const qn_json *value, qn_str *out)
{
    if (value->type != QN_JSON_T_OBJECT)
        return qn_jpath_fail(at, QN_E_FORMAT, "expected an object, found %s",
                             qn_json_type_name(value->type));
    return qn_jpath_need_str(at, value, "type", out);
}
