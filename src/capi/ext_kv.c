/* ext_kv.c: attention over caches of keys and values. */
#include "handles.h"
#include "ops_entry.h"

#include "backend/cpu/cpu.h"
#include "base/turboquant.h"
#include "quern/ext.h"

#include <limits.h>
#include <string.h>

static qn_status read_form(qn_kv_form *out, const quern_kv_form *form)
{
    memset(out, 0, sizeof *out);
    out->kv_heads = form->kv_heads;
    out->head_dim = form->head_dim;
    if (form->key_bits || form->value_bits) {
        out->key_bits = form->key_bits;
        out->value_bits = form->value_bits;
        out->group = QN_TQ_GROUP;
        out->dtype = QN_FLOAT16;
        return QN_OK;
    }
    out->bits = form->bits;
    out->group = form->bits ? form->group_size : 0;
    return qn_capi_dtype(&out->dtype, form->dtype);
}

static qn_status check_arrays(const qn_list *list, const qn_kv_form *form,
                              const char *what)
{
    size_t expected = (size_t)qn_kv_parts(form);
    if (list && list->size == expected)
        return QN_OK;
    return qn_fail(QN_E_ARG, "[%s] Expected a cache of %zu arrays, found %zu.",
                   what, expected, list ? list->size : 0);
}

static qn_status check_need(const char *what, int need)
{
    if (need >= 0 && need <= INT_MAX - QN_KV_BLOCK)
        return QN_OK;
    return qn_fail(QN_E_ARG, "[%s] Expected room for tokens, found %d.", what,
                   need);
}

int quern_kv_room(mlx_vector_array *res, int *capacity,
                  const quern_kv_form *form, const mlx_vector_array old,
                  int need, const mlx_stream s)
{
    QN_GET_STREAM(stream, s);
    const qn_list *before = qn_handle_arrays(old);
    qn_kv_form read;
    qn_array *made[QN_KV_PARTS];
    QN_CALL(read_form(&read, form));
    if (before)
        QN_CALL(check_arrays(before, &read, "kv_room"));
    QN_CALL(check_need("kv_room", need));
    int rounded = (need + QN_KV_BLOCK - 1) / QN_KV_BLOCK * QN_KV_BLOCK;
    QN_CALL(qn_op_kv_room(made, &read, before ? before->data : NULL, &rounded,
                          stream));
    if (QN_STORE_ARRAYS(res, made, (size_t)qn_kv_parts(&read)))
        return 1;
    *capacity = rounded;
    return 0;
}

int quern_kv_drop(mlx_vector_array *res, int *capacity,
                  const quern_kv_form *form, const mlx_vector_array old,
                  int first, int count, int need, const mlx_stream s)
{
    QN_GET_STREAM(stream, s);
    const qn_list *before = qn_handle_arrays(old);
    qn_kv_form read;
    qn_array *made[QN_KV_PARTS];
    QN_CALL(read_form(&read, form));
    QN_CALL(check_arrays(before, &read, "kv_drop"));
    QN_CALL(check_need("kv_drop", need));
    int rounded = (need + QN_KV_BLOCK - 1) / QN_KV_BLOCK * QN_KV_BLOCK;
    QN_CALL(qn_op_kv_drop(made, &read, before->data, first, count, rounded,
                          stream));
    if (QN_STORE_ARRAYS(res, made, (size_t)qn_kv_parts(&read)))
        return 1;
    *capacity = rounded;
    return 0;
}

int quern_kv_read(mlx_vector_array *res, const quern_kv_form *form,
                  const mlx_vector_array cache, int count, const mlx_stream s)
{
    QN_GET_STREAM(stream, s);
    const qn_list *list = qn_handle_arrays(cache);
    qn_kv_form read;
    qn_array *made[QN_KV_PARTS];
    QN_CALL(read_form(&read, form));
    QN_CALL(check_arrays(list, &read, "kv_read"));
    QN_CALL(qn_op_kv_read(made, &read, list->data, count, stream));
    return QN_STORE_ARRAYS(res, made, (size_t)qn_kv_parts(&read));
}

int quern_kv_write(mlx_vector_array *res, int *capacity,
                   const quern_kv_form *form, const mlx_vector_array planes,
                   const mlx_stream s)
{
    QN_GET_STREAM(stream, s);
    const qn_list *list = qn_handle_arrays(planes);
    qn_kv_form read;
    qn_array *made[QN_KV_PARTS];
    int room = 0;
    QN_CALL(read_form(&read, form));
    QN_CALL(check_arrays(list, &read, "kv_write"));
    QN_CALL(qn_op_kv_write(made, &read, list->data, &room, stream));
    if (QN_STORE_ARRAYS(res, made, (size_t)qn_kv_parts(&read)))
        return 1;
    *capacity = room;
    return 0;
}

/* Everything that is passed on, in memory of its own. */
typedef struct request {
    qn_kv_params *p;
    qn_array **caches, **made;
    size_t arrays;
} request;

static void drop_request(request *r)
{
    qn_free(r->p);
    qn_free(r->caches);
    qn_free(r->made);
}

static qn_status read_request(request *r, const quern_kv_form *form,
                              const quern_kv_step *steps, size_t count,
                              const quern_kv_options *o)
{
    enum { MOST = 1 << 16 };
    if (count < 1 || count > MOST)
        return qn_fail(QN_E_ARG,
                       "[kv_attention] Expected 1 to %d sequences, found %zu.",
                       MOST, count);
    r->p = qn_calloc(1, sizeof *r->p + count * sizeof *r->p->steps);
    if (!r->p)
        return QN_E_NOMEM;
    qn_status status = read_form(&r->p->form, form);
    if (status)
        return status;
    size_t parts = (size_t)qn_kv_parts(&r->p->form);
    r->arrays = count * parts;
    r->caches = qn_calloc(r->arrays, sizeof *r->caches);
    r->made = qn_calloc(r->arrays + 1, sizeof *r->made);
    if (!r->caches || !r->made)
        return QN_E_NOMEM;
    r->p->heads = o->heads;
    r->p->scale = o->scale;
    r->p->cap = o->cap;
    r->p->window = o->window;
    r->p->keep = o->keep;
    r->p->dims = o->rope_dims;
    r->p->traditional = o->rope_traditional;
    r->p->base = o->rope_base;
    r->p->rope_scale = o->rope_scale;
    r->p->count = (int)count;
    for (size_t i = 0; i < count && !status; i++) {
        const qn_list *list = qn_handle_arrays(steps[i].cache);
        status = check_arrays(list, &r->p->form, "kv_attention");
        if (!status)
            memcpy(r->caches + i * parts, list->data,
                   parts * sizeof *r->caches);
        r->p->steps[i] =
            (qn_kv_step){steps[i].offset, steps[i].count, steps[i].skipped};
    }
    return status;
}

/* Puts the caches after the step where those before it are. */
static void store_caches(const request *r, const quern_kv_step *steps)
{
    qn_array **from = r->made + 1;
    for (int i = 0; i < r->p->count; i++) {
        qn_list *list = qn_handle_arrays(steps[i].cache);
        for (size_t j = 0; j < list->size; j++) {
            qn_array_unref(list->data[j]);
            list->data[j] = *from++;
        }
    }
}

int quern_kv_attention(mlx_array *res, const mlx_array q, const mlx_array k,
                       const mlx_array v, const quern_kv_form *form,
                       const quern_kv_step *steps, size_t count,
                       const quern_kv_options *options, const mlx_stream s)
{
    QN_GET_ARRAY(queries, q);
    QN_GET_STREAM(stream, s);
    qn_array *keys = qn_handle_array(k), *values = qn_handle_array(v);
    request r = {.p = NULL};
    qn_status status = read_request(&r, form, steps, count, options);
    if (!status && !keys != !values)
        status = qn_fail(QN_E_ARG, "[kv_attention] Expected k and v, or "
                                   "neither.");
    if (!status)
        r.p->stored = !keys;
    if (!status)
        status = qn_op_kv_attention(
            r.made, queries, keys, values, qn_handle_array(options->rope_freqs),
            qn_handle_array(options->sinks), r.caches, r.p, stream);
    if (!status) {
        status = qn_handle_set_array(res, r.made[0]);
        for (size_t i = 1; status && keys && i <= r.arrays; i++)
            qn_array_unref(r.made[i]);
    }
    if (!status && keys)
        store_caches(&r, steps);
    drop_request(&r);
    return QN_STORE(status);
}

size_t quern_kv_workspace(const quern_kv_form *form, mlx_dtype dtype, int heads,
                          int rope_dims, int rows, int keys)
{
    qn_kv_form read;
    qn_dtype type;
    if (read_form(&read, form) || qn_capi_dtype(&type, dtype) ||
        read.kv_heads < 1 || heads < read.kv_heads || read.head_dim < 1 ||
        rope_dims < 0 || rows < 1 || keys < 1)
        return 0;
    size_t room =
        qn_cpu_kv_room(&read, heads, rope_dims, (size_t)rows, (size_t)keys);
    if (rope_dims)
        room += (size_t)rows * (size_t)heads * (size_t)read.head_dim *
                qn_dtype_size(type);
    return room;
}
