/* signature.c: kinds of inputs, compared and described. */
#include "signature.h"

#include "ops/dims.h"

#include "base/alloc.h"

#include <stdlib.h>

static int compare_keys(const void *a, const void *b)
{
    qn_str x = ((const qn_named *)a)->key, y = ((const qn_named *)b)->key;
    size_t n = x.size < y.size ? x.size : y.size;
    int order = n ? memcmp(x.data, y.data, n) : 0;
    return order ? order : (x.size > y.size) - (x.size < y.size);
}

void qn_named_sort(qn_named *named, size_t count)
{
    if (count)
        qsort(named, count, sizeof *named, compare_keys);
}

qn_status qn_signature_keys(qn_signature *s, const qn_str *keys, size_t nkeys)
{
    s->keys = qn_calloc(nkeys, sizeof *s->keys);
    if (!s->keys)
        return QN_E_NOMEM;
    for (size_t i = 0; i < nkeys; i++) {
        char *copy = qn_alloc(keys[i].size + 1);
        if (!copy)
            return QN_E_NOMEM;
        if (keys[i].size)
            memcpy(copy, keys[i].data, keys[i].size);
        s->keys[s->nkeys++] = (qn_str){copy, keys[i].size};
    }
    return QN_OK;
}

void qn_signature_free(qn_signature *s)
{
    for (size_t i = 0; i < s->nkeys; i++)
        qn_free((char *)(uintptr_t)s->keys[i].data);
    qn_free(s->keys);
    qn_arrays_free(&s->inputs);
    *s = (qn_signature){0};
}

qn_status qn_signature_new(qn_signature *out, qn_array *const *args,
                           size_t nargs, const qn_named *named, size_t nnamed)
{
    qn_signature s = {0};
    qn_str *keys = qn_calloc(nnamed, sizeof *keys);
    qn_status status =
        keys ? qn_arrays_new(&s.inputs, nargs + nnamed) : QN_E_NOMEM;
    for (size_t i = 0; i < nnamed && !status; i++)
        keys[i] = named[i].key;
    if (!status)
        status = qn_signature_keys(&s, keys, nnamed);
    for (size_t i = 0; i < nargs + nnamed && !status; i++) {
        const qn_array *x = i < nargs ? args[i] : named[i - nargs].value;
        status = qn_array_new(&s.inputs.data[i], x->dtype, x->shape, x->ndim);
    }
    qn_free(keys);
    if (status)
        qn_signature_free(&s);
    else
        *out = s;
    return status;
}

bool qn_signature_fits(const qn_signature *s, bool shapeless,
                       qn_array *const *args, size_t nargs,
                       const qn_named *named, size_t nnamed)
{
    if (s->inputs.count != nargs + nnamed || s->nkeys != nnamed)
        return false;
    for (size_t i = 0; i < nnamed; i++)
        if (!qn_str_eq(s->keys[i], named[i].key))
            return false;
    for (size_t i = 0; i < nargs + nnamed; i++) {
        const qn_array *a = s->inputs.data[i];
        const qn_array *b = i < nargs ? args[i] : named[i - nargs].value;
        if (a->dtype != b->dtype || a->ndim != b->ndim ||
            (!shapeless && !qn_same_shape(a, b)))
            return false;
    }
    return true;
}

static void describe(qn_buf *buf, const char *indent, size_t i, size_t nargs,
                     qn_str key, const qn_array *x)
{
    if (i < nargs)
        qn_buf_printf(buf, "%s%zu: ", indent, i + 1);
    else
        qn_buf_printf(buf, "%s\"%.*s\": ", indent,
                      (int)(key.size < 64 ? key.size : 64), key.data);
    qn_buf_printf(buf, "%s %s\n", qn_array_shape_text(x).text,
                  qn_dtype_name(x->dtype));
}

void qn_signature_text(qn_buf *buf, const char *indent, qn_array *const *args,
                       size_t nargs, const qn_named *named, size_t nnamed)
{
    qn_buf_printf(buf, "%zu positional inputs and %zu keyword inputs:\n", nargs,
                  nnamed);
    for (size_t i = 0; i < nargs + nnamed; i++)
        describe(buf, indent, i, nargs,
                 i < nargs ? (qn_str){0} : named[i - nargs].key,
                 i < nargs ? args[i] : named[i - nargs].value);
}

void qn_signature_describe(qn_buf *buf, const char *indent,
                           const qn_signature *s)
{
    size_t nargs = s->inputs.count - s->nkeys;
    qn_buf_printf(buf, "%zu positional inputs and %zu keyword inputs:\n", nargs,
                  s->nkeys);
    for (size_t i = 0; i < s->inputs.count; i++)
        describe(buf, indent, i, nargs,
                 i < nargs ? (qn_str){0} : s->keys[i - nargs],
                 s->inputs.data[i]);
}
