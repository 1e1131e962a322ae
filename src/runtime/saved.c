/* saved.c: sessions on disk, in the saved form of their caches (kv/file.h),
 * with what must be equal for a continuation to be the same. */
#include "runtime.h"

#include "base/alloc.h"
#include "base/digest.h"
#include "kv/file.h"
#include "kv/import.h"

#include <stdio.h>

/* ---- the digest of a model ---- */

static void add_text(qn_digest *digest, const char *text)
{
    qn_digest_add(digest, text, strlen(text) + 1);
}

/* The shape of a tensor and some of its bytes, from its first to its last:
 * enough to tell models from one another, without reading them as a whole. */
static void add_weight(qn_digest *digest, qn_weights *weights,
                       const qn_weight *w)
{
    enum { SAMPLE = 64, SAMPLES = 16 };
    size_t size = w->data.size, part = size < SAMPLE ? size : SAMPLE;
    add_text(digest, w->name);
    add_text(digest, qn_weight_type_name(weights, w));
    qn_digest_add(digest, w->shape, (size_t)w->ndim * sizeof *w->shape);
    qn_digest_add(digest, &size, sizeof size);
    for (size_t i = 0; i < SAMPLES; i++)
        qn_digest_add(digest, w->data.data + (size - part) / (SAMPLES - 1) * i,
                      part);
    qn_digest_add(digest, w->data.data + size - part, part);
    /* A page that is touched brings its neighbours along. */
    if (!w->owned)
        qn_file_dont_need(w->file,
                          (size_t)(w->data.data - qn_file_bytes(w->file).data),
                          size);
}

void qn_model_digest(char out[QN_DIGEST_SIZE], qn_weights *weights,
                     const qn_config *c)
{
    qn_digest digest;
    char text[256];
    qn_digest_begin(&digest, QN_SHA256);
    add_text(&digest, c->family);
    snprintf(text, sizeof text, "%d %d %d %d %d %d %d %.17g %d %.17g %.17g",
             c->hidden, c->layers, c->heads, c->kv_heads, c->head_dim,
             c->vocab_size, c->sliding_window, c->norm_eps, (int)c->rope.type,
             c->rope.base, c->rope.factor);
    add_text(&digest, text);
    for (size_t i = 0; i < qn_weights_count(weights); i++)
        add_weight(&digest, weights, qn_weights_at(weights, i));
    qn_digest_end(&digest, out);
}

/* ---- files ---- */

enum { FACTS = QN_MODEL_FACTS };

/* No release has had adapters yet, so there is one value for it; a file that
 * says otherwise is of another one. */
void qn_model_facts(const quern_model *m, struct qn_kv_fact *facts)
{
    facts[0] = (qn_kv_fact){"model", m->digest, false};
    facts[1] = (qn_kv_fact){"adapter", "", false};
    facts[2] = (qn_kv_fact){"dtype", m->compute, true};
    facts[3] = (qn_kv_fact){"compat", m->compat, true};
}

/* What the model's thread is asked for. */
typedef struct work {
    quern_session *session;
    const char *path;
} work;

static qn_status save(void *data)
{
    const work *w = data;
    quern_session *s = w->session;
    qn_kv_fact facts[FACTS];
    if (s->unknown)
        return qn_fail(QN_E_UNSUPPORTED,
                       "a session that began with a prompt cache of mlx-lm, "
                       "whose tokens are not known, can't be saved");
    qn_model_facts(s->model, facts);
    return qn_kv_cache_save(s->cache, w->path, s->ids.data, facts, FACTS,
                            s->model->stream);
}

/* What mlx-lm has saved: its tokens are not known. */
static qn_status import(quern_session *s, const char *path)
{
    qn_status status = qn_kv_import(s->cache, path, s->model->stream);
    size_t count = status ? 0 : (size_t)qn_kv_cache_length(s->cache);
    for (size_t i = 0; i < count && !status; i++)
        status = qn_ids_add(&s->ids, QN_UNKNOWN_ID);
    if (status)
        quern_session_reset(s);
    else
        s->unknown = count;
    return status;
}

static qn_status load(void *data)
{
    const work *w = data;
    quern_session *s = w->session;
    qn_kv_fact facts[FACTS];
    int32_t *ids = NULL;
    bool foreign = false;
    qn_model_facts(s->model, facts);
    quern_session_reset(s);
    qn_status status = qn_kv_import_check(&foreign, w->path, s->model->stream);
    if (status || foreign)
        return status ? status : import(s, w->path);
    status = qn_kv_cache_load(s->cache, w->path, &ids, facts, FACTS,
                              s->model->stream);
    if (status)
        return status;
    size_t count = (size_t)qn_kv_cache_length(s->cache);
    for (size_t i = 0; i < count && !status; i++)
        if (ids[i] >= s->model->vocab)
            status = qn_fail_where(
                qn_fail(QN_E_FORMAT,
                        "saved session: token %zu: expected 0..%d, found %d", i,
                        s->model->vocab - 1, ids[i]),
                "%s", w->path);
    if (status) {
        qn_free(ids);
        qn_kv_cache_reset(s->cache);
        return status;
    }
    qn_ids_free(&s->ids);
    s->ids = (qn_ids){.data = ids, .size = count, .capacity = count};
    return QN_OK;
}

static quern_status with_session(quern_session *s, const char *path,
                                 qn_status (*act)(void *data),
                                 quern_error *error)
{
    work w = {s, path};
    qn_status status = qn_session_take(s);
    if (status)
        return qn_give(error, status);
    status = qn_scheduler_call(&s->model->scheduler, act, &w);
    qn_session_give_back(s);
    return qn_give(error, status);
}

quern_status quern_session_save(quern_session *session, const char *path,
                                quern_error *error)
{
    return with_session(session, path, save, error);
}

quern_status quern_session_load(quern_session *session, const char *path,
                                quern_error *error)
{
    return with_session(session, path, load, error);
}
