/* session.c: one sequence: its tokens, its cache, and the last logits.
 *
 * A prompt is computed in chunks; cancellation is tested before each.  When a
 * computation fails the cache is lost with it, and the sequence is empty. */
#include "runtime.h"

#include "base/alloc.h"
#include "kv/engine.h"

#include <math.h>
#include <string.h>

static void drop_logits(quern_session *s)
{
    if (s->logits.ctx)
        mlx_array_free(s->logits);
    s->logits = (mlx_array){NULL};
}

quern_status quern_session_new(quern_session **out, quern_model *model,
                               quern_error *error)
{
    if (!model->model)
        return qn_give(
            error,
            qn_fail(QN_E_ARG, "the model was opened for its headers only"));
    quern_session *s = qn_calloc(1, sizeof *s);
    if (!s)
        return qn_give(error, QN_E_NOMEM);
    s->model = model;
    atomic_init(&s->cancelled, false);
    qn_status status = qn_kv_cache_new(&s->cache, &model->kv);
    if (status)
        quern_session_free(s);
    else
        *out = s;
    return qn_give(error, status);
}

void quern_session_free(quern_session *s)
{
    if (!s)
        return;
    drop_logits(s);
    qn_kv_cache_free(s->cache);
    qn_ids_free(&s->ids);
    qn_free(s);
}

void quern_session_cancel(quern_session *s)
{
    atomic_store(&s->cancelled, true);
}

void quern_session_reset(quern_session *s)
{
    drop_logits(s);
    qn_kv_cache_reset(s->cache);
    s->ids.size = 0;
}

qn_status qn_session_keep(quern_session *s, size_t length)
{
    if (length > s->ids.size)
        return qn_fail(QN_E_ARG, "length: expected 0..%zu, found %zu",
                       s->ids.size, length);
    if (length == s->ids.size)
        return QN_OK;
    drop_logits(s);
    if (!qn_kv_cache_trim(s->cache, (int)length))
        return qn_fail(QN_E_UNSUPPORTED,
                       "the cache can't forget tokens from %zu on", length);
    s->ids.size = length;
    return QN_OK;
}

quern_status quern_session_trim(quern_session *s, size_t length,
                                quern_error *error)
{
    return qn_give(error, qn_session_keep(s, length));
}

size_t quern_session_length(const quern_session *s)
{
    return s->ids.size;
}

const int32_t *quern_session_ids(const quern_session *s)
{
    return s->ids.data;
}

/* ---- computing ---- */

/* Steps that follow the logits in the same evaluation. */
static qn_status add_pick(const quern_model *m, mlx_array logits, mlx_array *id,
                          mlx_array *top)
{
    qn_status status =
        qn_engine(mlx_argmax_axis(id, logits, -1, false, m->stream));
    /* The maximum is NaN when any logit is. */
    return status ? status : qn_engine(mlx_max(top, logits, false, m->stream));
}

static qn_status read_pick(qn_pick *pick, mlx_array id, mlx_array top)
{
    uint32_t value = 0;
    qn_status status = qn_engine(mlx_array_item_uint32(&value, id));
    if (!status)
        status = qn_engine(mlx_array_item_float32(&pick->logit, top));
    pick->id = (int32_t)value;
    return status;
}

/* Evaluates the state of the cache without any output. */
static qn_status eval_cache(const qn_kv_cache *cache)
{
    mlx_vector_array list = mlx_vector_array_new();
    qn_status status = qn_engine_made(list.ctx);
    if (status)
        return status;
    status = qn_kv_cache_arrays(cache, list);
    if (!status)
        status = qn_engine(mlx_eval(list));
    mlx_vector_array_free(list);
    return status;
}

static qn_status compute_locked(quern_session *s, const int32_t *ids, int count,
                                bool last, qn_pick *pick)
{
    const quern_model *m = s->model;
    qn_kv_rows rows = {s->cache, count};
    if (!last) {
        qn_status status =
            qn_model_forward(m->model, NULL, ids, &rows, 1, true);
        return status ? status : eval_cache(s->cache);
    }
    mlx_array out[3] = {{NULL}, {NULL}, {NULL}};
    size_t outputs = pick ? 3 : 1;
    qn_status status = qn_model_forward(m->model, &out[0], ids, &rows, 1, true);
    if (!status && pick)
        status = add_pick(m, out[0], &out[1], &out[2]);
    if (!status)
        status = qn_engine_eval(out, outputs);
    if (!status && pick)
        status = read_pick(pick, out[1], out[2]);
    if (status && out[0].ctx)
        mlx_array_free(out[0]);
    else
        s->logits = out[0];
    for (size_t i = 1; i < 3; i++)
        if (out[i].ctx)
            mlx_array_free(out[i]);
    return status;
}

/* One chunk; the last one of an append gives logits. */
static qn_status compute(quern_session *s, const int32_t *ids, int count,
                         bool last, qn_pick *pick)
{
    drop_logits(s);
    pthread_mutex_lock(&s->model->lock);
    qn_status status = compute_locked(s, ids, count, last, pick);
    pthread_mutex_unlock(&s->model->lock);
    for (int i = 0; i < count && !status; i++)
        status = qn_ids_add(&s->ids, ids[i]);
    if (status) {
        qn_error error;
        qn_error_save(&error);
        quern_session_reset(s);
        qn_error_restore(&error);
    }
    return status;
}

static qn_status check_ids(const quern_session *s, const int32_t *ids,
                           size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= s->model->vocab)
            return qn_fail(QN_E_ARG, "token %zu: expected 0..%d, found %d", i,
                           s->model->vocab - 1, ids[i]);
    size_t room = (size_t)s->model->ctx - s->ids.size;
    if (count > room)
        return qn_fail(QN_E_UNSUPPORTED,
                       "%zu tokens do not fit the context of %lld",
                       s->ids.size + count, (long long)s->model->ctx);
    return QN_OK;
}

static bool take_cancel(quern_session *s)
{
    return atomic_exchange(&s->cancelled, false);
}

qn_status qn_session_append(quern_session *s, const int32_t *ids, size_t count,
                            qn_pick *pick, qn_progress_fn progress, void *data)
{
    qn_status status = check_ids(s, ids, count);
    size_t chunk = (size_t)s->model->prefill_chunk;
    for (size_t done = 0; done < count && !status;) {
        size_t left = count - done, now = left < chunk ? left : chunk;
        if (take_cancel(s))
            return qn_fail(QN_E_CANCELLED, "cancelled");
        bool last = now == left;
        status = compute(s, ids + done, (int)now, last, last ? pick : NULL);
        done += now;
        if (!status && progress && !progress(data, done))
            return qn_fail(QN_E_CANCELLED, "cancelled");
    }
    return status;
}

qn_status qn_session_last(quern_session *s, const float **out)
{
    if (!s->logits.ctx)
        return qn_fail(QN_E_ARG, "no logits: the sequence is empty or was "
                                 "trimmed since the last feed");
    *out = mlx_array_data_float32(s->logits);
    return qn_engine_made(*out);
}

quern_status quern_session_feed(quern_session *s, const int32_t *ids,
                                size_t count, quern_error *error)
{
    return qn_give(error, qn_session_append(s, ids, count, NULL, NULL, NULL));
}

quern_status quern_session_logits(quern_session *s, float *out,
                                  quern_error *error)
{
    const float *logits = NULL;
    qn_status status = qn_session_last(s, &logits);
    if (!status)
        memcpy(out, logits, (size_t)s->model->vocab * sizeof *out);
    return qn_give(error, status);
}

quern_status quern_session_log_probs(quern_session *s, float *out,
                                     quern_error *error)
{
    const float *logits = NULL;
    qn_status status = qn_session_last(s, &logits);
    if (status)
        return qn_give(error, status);
    float top = -INFINITY;
    double sum = 0;
    for (int32_t i = 0; i < s->model->vocab; i++)
        top = logits[i] > top ? logits[i] : top;
    for (int32_t i = 0; i < s->model->vocab; i++)
        sum += exp((double)logits[i] - top);
    double norm = top + log(sum);
    for (int32_t i = 0; i < s->model->vocab; i++)
        out[i] = (float)(logits[i] - norm);
    return qn_give(error, QN_OK);
}

void quern_memory(size_t *active, size_t *peak, size_t *cached)
{
    size_t ignored;
    mlx_get_active_memory(active ? active : &ignored);
    mlx_get_peak_memory(peak ? peak : &ignored);
    mlx_get_cache_memory(cached ? cached : &ignored);
}

void quern_memory_reset_peak(void)
{
    mlx_reset_peak_memory();
}
