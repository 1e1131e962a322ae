/* session.c: one sequence: its tokens, its cache, and the last logits.
 *
 * Sequences are computed side by side where there are several (scheduler.c),
 * with one evaluation; each has the logits that it has alone.  When a
 * computation fails the caches are lost with it, and its sequences are
 * empty. */
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
    if (qn_model_is_encoder(model->model))
        return qn_give(error, qn_fail(QN_E_UNSUPPORTED,
                                      "%s makes vectors of texts, and no text",
                                      qn_model_config(model->model)->family));
    quern_session *s = qn_calloc(1, sizeof *s);
    if (!s)
        return qn_give(error, QN_E_NOMEM);
    s->model = model;
    atomic_init(&s->cancelled, false);
    atomic_init(&s->busy, false);
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
    s->unknown = 0;
}

bool qn_session_aim(quern_session *s, int64_t tokens)
{
    const quern_model *m = s->model;
    int budget = (int)(tokens < m->ctx ? tokens : m->ctx);
    int before = qn_kv_cache_budget(s->cache);
    bool alike = qn_model_rope_choice(m->model, before) ==
                 qn_model_rope_choice(m->model, budget);
    bool kept = alike || !s->ids.size;
    if (!kept)
        quern_session_reset(s);
    if (!s->ids.size)
        qn_kv_cache_set_budget(s->cache, budget);
    return kept;
}

qn_status qn_session_keep(quern_session *s, size_t length)
{
    if (length > s->ids.size)
        return qn_fail(QN_E_ARG, "length: expected 0..%zu, found %zu",
                       s->ids.size, length);
    if (length == s->ids.size)
        return QN_OK;
    if (!qn_kv_cache_trim(s->cache, (int)length))
        return qn_fail(QN_E_UNSUPPORTED,
                       "the cache can't forget tokens from %zu on", length);
    drop_logits(s);
    s->ids.size = length;
    s->unknown = s->unknown < length ? s->unknown : length;
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

/* Steps that follow the logits in the same evaluation: of each row, the place
 * of the largest one and its value. */
static qn_status add_picks(const quern_model *m, mlx_array logits,
                           mlx_array *ids, mlx_array *tops)
{
    qn_status status =
        qn_engine(mlx_argmax_axis(ids, logits, -1, false, m->stream));
    /* The maximum is NaN when any logit is. */
    return status ? status
                  : qn_engine(mlx_max_axis(tops, logits, -1, false, m->stream));
}

/* Rows of the logits that a sequence has: one where none is wanted, too. */
static size_t rows_of(const qn_feed *feed)
{
    return feed->wanted > 1 ? (size_t)feed->wanted : 1;
}

static qn_status read_picks(const qn_feed *feeds, size_t count, mlx_array ids,
                            mlx_array tops)
{
    const uint32_t *id = mlx_array_data_uint32(ids);
    const float *top = mlx_array_data_float32(tops);
    qn_status status = qn_engine_made(id);
    if (!status)
        status = qn_engine_made(top);
    for (size_t i = 0; i < count && !status; i++) {
        size_t rows = rows_of(&feeds[i]);
        for (size_t r = 0; feeds[i].picks && r < rows; r++)
            feeds[i].picks[r] = (qn_pick){(int32_t)id[r], top[r]};
        id += rows;
        top += rows;
    }
    return status;
}

/* Evaluates the state of the caches without any output. */
static qn_status eval_caches(const qn_feed *feeds, size_t count)
{
    mlx_vector_array list = mlx_vector_array_new();
    qn_status status = qn_engine_made(list.ctx);
    for (size_t i = 0; i < count && !status; i++)
        status = qn_kv_cache_arrays(feeds[i].session->cache, list);
    if (!status)
        status = qn_engine(mlx_eval(list));
    if (list.ctx)
        mlx_vector_array_free(list);
    return status;
}

/* Gives each session that asked its row of the logits. */
static qn_status hand_out(const qn_feed *feeds, size_t count, mlx_array logits)
{
    qn_status status = QN_OK;
    size_t row = 0;
    for (size_t i = 0; i < count && !status; i++) {
        quern_session *s = feeds[i].session;
        if (feeds[i].wanted) {
            status = qn_engine(mlx_array_set(&s->logits, logits));
            s->logits_row = row;
            s->logits_count = (size_t)feeds[i].wanted;
        }
        row += rows_of(&feeds[i]);
    }
    return status;
}

static qn_status compute_last(const qn_feed *feeds, size_t count,
                              const int32_t *ids, const qn_kv_rows *rows)
{
    const quern_model *m = feeds->session->model;
    mlx_array out[3] = {{NULL}, {NULL}, {NULL}};
    size_t outputs = 1;
    for (size_t i = 0; i < count; i++)
        outputs = feeds[i].picks ? 3 : outputs;
    qn_status status =
        qn_model_forward(m->model, &out[0], ids, rows, count, true);
    if (!status && outputs > 1)
        status = add_picks(m, out[0], &out[1], &out[2]);
    if (!status)
        status = qn_engine_eval(out, outputs);
    if (!status && outputs > 1)
        status = read_picks(feeds, count, out[1], out[2]);
    if (!status)
        status = hand_out(feeds, count, out[0]);
    for (size_t i = 0; i < 3; i++)
        if (out[i].ctx)
            mlx_array_free(out[i]);
    return status;
}

static qn_status compute(const qn_feed *feeds, size_t count, const int32_t *ids,
                         const qn_kv_rows *rows)
{
    for (size_t i = 0; i < count; i++)
        if (feeds[i].wanted)
            return compute_last(feeds, count, ids, rows);
    const quern_model *m = feeds->session->model;
    qn_status status = qn_model_forward(m->model, NULL, ids, rows, count, true);
    return status ? status : eval_caches(feeds, count);
}

/* The ids of all feeds, one after the other, and whose they are. */
static qn_status gather(const qn_feed *feeds, size_t count, int32_t **ids,
                        qn_kv_rows **rows)
{
    size_t total = 0;
    for (size_t i = 0; i < count; i++)
        total += (size_t)feeds[i].count;
    *ids = qn_calloc(total, sizeof **ids);
    *rows = qn_calloc(count, sizeof **rows);
    if (!*ids || !*rows)
        return QN_E_NOMEM;
    int32_t *to = *ids;
    for (size_t i = 0; i < count; i++) {
        memcpy(to, feeds[i].ids, (size_t)feeds[i].count * sizeof *to);
        to += feeds[i].count;
        (*rows)[i] = (qn_kv_rows){.cache = feeds[i].session->cache,
                                  .count = feeds[i].count,
                                  .wanted = feeds[i].wanted,
                                  .answered = feeds[i].answered};
    }
    return QN_OK;
}

static qn_status note_ids(const qn_feed *feed)
{
    qn_status status = QN_OK;
    for (int i = 0; i < feed->count && !status; i++)
        status = qn_ids_add(&feed->session->ids, feed->ids[i]);
    return status;
}

qn_status qn_sessions_compute(const qn_feed *feeds, size_t count)
{
    int32_t *ids = NULL;
    qn_kv_rows *rows = NULL;
    for (size_t i = 0; i < count; i++)
        drop_logits(feeds[i].session);
    qn_status status = gather(feeds, count, &ids, &rows);
    for (size_t i = 0; i < count && !status; i++)
        status = qn_kv_cache_settle(feeds[i].session->cache,
                                    feeds->session->model->stream);
    if (!status)
        status = compute(feeds, count, ids, rows);
    qn_free(ids);
    qn_free(rows);
    for (size_t i = 0; i < count && !status; i++)
        status = note_ids(&feeds[i]);
    if (status) {
        qn_error error;
        qn_error_save(&error);
        for (size_t i = 0; i < count; i++)
            quern_session_reset(feeds[i].session);
        qn_error_restore(&error);
    }
    return status;
}

qn_status qn_session_check(const quern_session *s, const int32_t *ids,
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

size_t qn_session_room(const quern_session *s)
{
    /* None: the cache is converted before the next step. */
    int room = qn_kv_cache_room(s->cache);
    return room > 0 ? (size_t)room : SIZE_MAX;
}

bool qn_session_take_cancel(quern_session *s)
{
    return atomic_exchange(&s->cancelled, false);
}

qn_status qn_session_take(quern_session *s)
{
    return atomic_exchange(&s->busy, true)
               ? qn_fail(QN_E_ARG, "the session is in use by another call")
               : QN_OK;
}

void qn_session_give_back(quern_session *s)
{
    atomic_store(&s->busy, false);
}

qn_status qn_session_last(quern_session *s, size_t back, const float **out)
{
    if (!s->logits.ctx || back >= s->logits_count)
        return qn_fail(QN_E_ARG, "no logits: the sequence is empty or was "
                                 "trimmed since the last feed");
    const float *rows = mlx_array_data_float32(s->logits);
    qn_status status = qn_engine_made(rows);
    size_t row = s->logits_row + s->logits_count - 1 - back;
    if (!status)
        *out = rows + row * (size_t)s->model->vocab;
    return status;
}

quern_status quern_session_logits(quern_session *s, float *out,
                                  quern_error *error)
{
    const float *logits = NULL;
    qn_status status = qn_session_last(s, 0, &logits);
    if (!status)
        memcpy(out, logits, (size_t)s->model->vocab * sizeof *out);
    return qn_give(error, status);
}

quern_status quern_session_log_probs(quern_session *s, float *out,
                                     quern_error *error)
{
    const float *logits = NULL;
    qn_status status = qn_session_last(s, 0, &logits);
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
