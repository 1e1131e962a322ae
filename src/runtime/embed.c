/* embed.c: texts to vectors.
 *
 * Texts are computed side by side, as many as make a step's worth of tokens;
 * each has the vector that it has alone.  The vectors of a text's tokens are
 * put together here, in double and in the order of the tokens. */
#include "embed.h"

#include "base/alloc.h"
#include "base/file.h"
#include "kv/engine.h"
#include "runtime.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- what the files say ---- */

static bool is_on(const qn_json *root, const char *key)
{
    bool on = false;
    return qn_json_as_bool(qn_json_get(root, key), &on) && on;
}

static const struct {
    const char *key, *name;
    quern_pooling pooling;
} kinds[] = {
    {"pooling_mode_mean_tokens", "mean", QUERN_POOLING_MEAN},
    {"pooling_mode_cls_token", "cls", QUERN_POOLING_CLS},
    {"pooling_mode_lasttoken", "last", QUERN_POOLING_LAST},
    {"pooling_mode_lasttoken", "lasttoken", QUERN_POOLING_LAST},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

const char *quern_pooling_name(quern_pooling pooling)
{
    for (size_t i = 0; i < KINDS; i++)
        if (kinds[i].pooling == pooling)
            return kinds[i].name;
    return "model";
}

/* Newer files have a name, older ones a flag for each mode. */
static qn_status take_pooling(qn_embedder *out, const qn_json *root,
                              const char *dir)
{
    qn_str name = {"", 0};
    bool named = qn_json_as_str(qn_json_get(root, "pooling_mode"), &name);
    int found = 0, modes = 0;
    for (size_t i = 0; i < KINDS; i++)
        if (named ? qn_str_is(name, kinds[i].name)
                  : is_on(root, kinds[i].key) &&
                        out->pooling != kinds[i].pooling) {
            out->pooling = kinds[i].pooling;
            found++;
        }
    static const char *const others[] = {"pooling_mode_max_tokens",
                                         "pooling_mode_mean_sqrt_len_tokens",
                                         "pooling_mode_weightedmean_tokens"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        modes += !named && is_on(root, others[i]);
    if (found == 1 && !modes)
        return QN_OK;
    qn_status status =
        qn_fail(QN_E_UNSUPPORTED,
                "expected one pooling mode of mean, cls and last token, found "
                "%s",
                found + modes > 1 ? "several" : "another one");
    return qn_fail_where(status, "%s/1_Pooling/config.json", dir);
}

/* The steps of the pipeline: what is neither the model nor pooling nor
 * normalization changes vectors in a way that we don't know. */
static qn_status take_modules(qn_embedder *out, const qn_json *root,
                              const char *dir)
{
    out->normalize = false;
    for (uint32_t i = 0; root->type == QN_JSON_T_ARRAY && i < root->count;
         i++) {
        qn_str type = {"", 0};
        qn_json_as_str(qn_json_get(&root->items[i], "type"), &type);
        const char *dot = memrchr(type.data, '.', type.size);
        qn_str last = type;
        if (dot)
            last = (qn_str){dot + 1, type.size - (size_t)(dot + 1 - type.data)};
        if (qn_str_is(last, "Normalize")) {
            out->normalize = true;
        } else if (!qn_str_is(last, "Transformer") &&
                   !qn_str_is(last, "Pooling")) {
            qn_status status = qn_fail(
                QN_E_UNSUPPORTED,
                "module %u: expected Transformer, Pooling or Normalize, found "
                "'%.*s'",
                (unsigned)i, (int)(type.size < 80 ? type.size : 80), type.data);
            return qn_fail_where(status, "%s/modules.json", dir);
        }
    }
    return QN_OK;
}

static qn_status take_limit(qn_embedder *out, const qn_json *root,
                            const char *dir)
{
    const qn_json *value = qn_json_get(root, "max_seq_length");
    int64_t limit = 0;
    if (!value || value->type == QN_JSON_T_NULL)
        return QN_OK;
    if (qn_json_as_int(value, &limit) && limit >= 1 && limit <= QN_MAX_DIM) {
        out->max_tokens = (int)limit;
        return QN_OK;
    }
    qn_status status =
        qn_fail(QN_E_FORMAT, "max_seq_length: expected 1..%d", QN_MAX_DIM);
    return qn_fail_where(status, "%s/sentence_bert_config.json", dir);
}

/* "Instruct: what to look for\nQuery:" in its parts. */
static void take_prompt(qn_embedder *out, qn_str text)
{
    static const char *const openings[] = {"Instruct: ", "<instruct>"};
    const char *end = memrchr(text.data, '\n', text.size);
    size_t after = end ? text.size - (size_t)(end - text.data) : 0;
    for (size_t i = 0; end && i < sizeof openings / sizeof *openings; i++) {
        size_t before = strlen(openings[i]);
        if (text.size - after < before || after >= sizeof out->query_after ||
            memcmp(text.data, openings[i], before) != 0 ||
            memchr(end, 0, after))
            continue;
        memcpy(out->query_before, openings[i], before + 1);
        memcpy(out->query_after, end, after);
        out->query_after[after] = 0;
    }
}

/* Texts that are put in front of others, by name: the one for queries shows the
 * form of instructions. */
static qn_status take_prompts(qn_embedder *out, const qn_json *root,
                              const char *dir)
{
    const qn_json *prompts = qn_json_get(root, "prompts");
    (void)dir;
    for (uint32_t i = 0;
         prompts && prompts->type == QN_JSON_T_OBJECT && i < prompts->count;
         i++) {
        qn_str text;
        if (qn_json_as_str(&prompts->items[i], &text) && text.size)
            take_prompt(out, text);
    }
    return QN_OK;
}

static const struct {
    const char *name;
    qn_status (*take)(qn_embedder *, const qn_json *, const char *);
} files[] = {
    {"modules.json", take_modules},
    {"1_Pooling/config.json", take_pooling},
    {"sentence_bert_config.json", take_limit},
    {"config_sentence_transformers.json", take_prompts},
};
enum { FILES = sizeof files / sizeof *files };

qn_status qn_embedder_take(qn_embedder *out, const char *name, qn_str text,
                           const char *dir)
{
    qn_json_doc *doc = NULL;
    qn_status status = qn_json_parse(&doc, text, QN_JSON_ALLOW_BOM);
    if (status)
        return qn_fail_where(status, "%s/%s", dir, name);
    for (size_t i = 0; i < FILES && !status; i++)
        if (!strcmp(files[i].name, name))
            status = files[i].take(out, qn_json_root(doc), dir);
    qn_json_doc_free(doc);
    return status;
}

/* A file beside the weights, if it is there. */
static qn_status read_file(qn_embedder *out, const char *dir, const char *name)
{
    enum { LIMIT = 1 << 20 };
    char *path = qn_path_join(dir, name), *text = NULL;
    size_t size = 0;
    if (!path)
        return QN_E_NOMEM;
    qn_status status = QN_OK;
    if (qn_path_exists(path))
        status = qn_file_read(&text, &size, path, LIMIT);
    if (status)
        qn_fail_where(status, "%s", path);
    else if (text)
        status = qn_embedder_take(out, name, (qn_str){text, size}, dir);
    qn_free(text);
    qn_free(path);
    return status;
}

static qn_status read_directory(qn_embedder *out, const char *dir)
{
    qn_status status = QN_OK;
    for (size_t i = 0; i < FILES && !status; i++)
        status = read_file(out, dir, files[i].name);
    return status;
}

static qn_status read_gguf(qn_embedder *out, const qn_gguf *gguf,
                           const char *path)
{
    static const quern_pooling by_number[] = {
        QUERN_POOLING_MODEL, QUERN_POOLING_MEAN, QUERN_POOLING_CLS,
        QUERN_POOLING_LAST};
    qn_str arch = {"", 0};
    char key[96];
    int64_t number = 0;
    if (qn_gguf_get_str(gguf, "general.architecture", &arch))
        return QN_OK;
    snprintf(key, sizeof key, "%.*s.pooling_type",
             (int)(arch.size < 64 ? arch.size : 64), arch.data);
    qn_status status = qn_gguf_get_int(gguf, key, &number);
    if (status == QN_E_NOTFOUND)
        return QN_OK;
    if (!status && (number < 0 || number > 3))
        status = qn_fail(QN_E_UNSUPPORTED,
                         "expected 0 (none), 1 (mean), 2 (cls) or 3 (last), "
                         "found %lld",
                         (long long)number);
    if (status)
        return qn_fail_where(status, "%s: %s", path, key);
    out->pooling = by_number[number];
    return QN_OK;
}

qn_status qn_embedder_read(qn_embedder *out, const qn_weights *weights,
                           const qn_config *config)
{
    const qn_gguf *gguf = qn_weights_gguf(weights);
    *out = (qn_embedder){.normalize = true, .last_id = -1};
    qn_status status = gguf ? read_gguf(out, gguf, qn_weights_path(weights))
                            : read_directory(out, qn_weights_dir(weights));
    bool encoder = qn_family_is_encoder(config->family);
    if (!status && encoder && out->pooling == QUERN_POOLING_MODEL)
        out->pooling = QUERN_POOLING_MEAN;
    if (config->end_count)
        out->last_id = config->end_ids[0];
    return status;
}

/* ---- vectors ---- */

typedef struct piece {
    const int32_t *ids;
    int count;
} piece;

/* One step: `count` texts from the `first` one on. */
typedef struct batch {
    quern_model *m;
    const piece *pieces;
    size_t count;
    quern_pooling pooling;
    bool normalize;
    int width, dim;
    bool (*go_on)(void *data);
    void *data;
    float *out;
    double seconds; /* that it took */
} batch;

static void pool(const batch *b, const float *hidden, int tokens, float *out)
{
    size_t width = (size_t)b->width;
    if (b->pooling == QUERN_POOLING_LAST)
        hidden += (size_t)(tokens - 1) * width;
    int count = b->pooling == QUERN_POOLING_MEAN ? tokens : 1;
    double square = 0;
    for (int i = 0; i < b->dim; i++) {
        double sum = 0;
        for (int t = 0; t < count; t++)
            sum += (double)hidden[(size_t)t * width + (size_t)i];
        out[i] = (float)(sum / count);
        square += (double)out[i] * (double)out[i];
    }
    double norm = b->normalize && square > 0 ? sqrt(square) : 1;
    for (int i = 0; i < b->dim; i++)
        out[i] = (float)((double)out[i] / norm);
}

static qn_status gather(const batch *b, int32_t **ids, qn_kv_rows **rows)
{
    size_t total = 0;
    for (size_t i = 0; i < b->count; i++)
        total += (size_t)b->pieces[i].count;
    *ids = qn_calloc(total, sizeof **ids);
    *rows = qn_calloc(b->count, sizeof **rows);
    if (!*ids || !*rows)
        return QN_E_NOMEM;
    int32_t *to = *ids;
    /* Packed from the first token on, where the model's caches are packed. */
    qn_kv_shape shape = b->m->kv;
    shape.start = 0;
    qn_status status = QN_OK;
    for (size_t i = 0; i < b->count && !status; i++) {
        size_t count = (size_t)b->pieces[i].count;
        memcpy(to, b->pieces[i].ids, count * sizeof *to);
        to += count;
        (*rows)[i].count = (int)count;
        if (!qn_model_is_encoder(b->m->model))
            status = qn_kv_cache_new(&(*rows)[i].cache, &shape);
        if (!status && (*rows)[i].cache)
            qn_kv_cache_admit((*rows)[i].cache, (int)count);
    }
    return status;
}

static qn_status compute(void *data)
{
    batch *b = data;
    double begin = qn_now();
    int32_t *ids = NULL;
    qn_kv_rows *rows = NULL;
    mlx_array hidden = {NULL};
    qn_status status = gather(b, &ids, &rows);
    if (!status)
        status = qn_model_hidden(b->m->model, &hidden, ids, rows, b->count);
    if (!status)
        status = qn_engine(mlx_array_eval(hidden));
    const float *from = status ? NULL : mlx_array_data_float32(hidden);
    for (size_t i = 0; i < b->count && !status; i++) {
        pool(b, from, rows[i].count, b->out + i * (size_t)b->dim);
        from += (size_t)rows[i].count * (size_t)b->width;
    }
    if (hidden.ctx)
        mlx_array_free(hidden);
    for (size_t i = 0; rows && i < b->count; i++)
        qn_kv_cache_free(rows[i].cache);
    qn_free(rows);
    qn_free(ids);
    b->seconds = qn_now() - begin;
    return status;
}

/* Tokens of a step, so that who decodes beside it waits no longer than for a
 * piece of a prompt. */
static int step_tokens(const quern_model *m, double token_seconds)
{
    enum { LEAST = 16, UNKNOWN = 64 };
    double most = m->scheduler.step_seconds;
    int chunk = m->prefill_chunk, tokens = UNKNOWN;
    if (most <= 0)
        return chunk;
    if (token_seconds > 0 && most / token_seconds >= chunk)
        return chunk;
    if (token_seconds > 0)
        tokens = (int)(most / token_seconds);
    tokens = tokens < LEAST ? LEAST : tokens;
    return tokens < chunk ? tokens : chunk;
}

/* Texts in their order, as many in a step as its tokens allow, at least one. */
static qn_status compute_all(batch all)
{
    size_t first = 0;
    double token_seconds = 0;
    qn_status status = QN_OK;
    while (first < all.count && !status) {
        if (all.go_on && !all.go_on(all.data))
            return qn_fail(QN_E_CANCELLED, "cancelled");
        size_t end = first + 1;
        int tokens = all.pieces[first].count;
        int most = step_tokens(all.m, token_seconds);
        while (end < all.count && tokens + all.pieces[end].count <= most)
            tokens += all.pieces[end++].count;
        batch part = all;
        part.pieces += first;
        part.count = end - first;
        part.out += first * (size_t)all.dim;
        status = qn_scheduler_call(&all.m->scheduler, compute, &part);
        token_seconds = part.seconds / tokens;
        first = end;
    }
    return status;
}

/* ---- texts ---- */

static int limit_of(const quern_model *m)
{
    int limit = (int)m->ctx, own = m->embedder.max_tokens;
    return own && own < limit ? own : limit;
}

/* The ids of a query behind its instruction. */
static qn_status encode_query(const quern_model *m,
                              const quern_embed_input *input,
                              const char *instruction, qn_ids *out)
{
    qn_buf text = QN_BUF_INIT;
    qn_buf_add_text(&text, m->embedder.query_before);
    qn_buf_add_text(&text, instruction);
    qn_buf_add_text(&text, m->embedder.query_after);
    qn_buf_add(&text, input->text, input->size);
    qn_status status = qn_buf_status(&text);
    if (!status)
        status = qn_model_encode(m, out, qn_buf_str(&text),
                                 QN_ENCODE_ADD_SPECIAL, NULL);
    qn_buf_free(&text);
    return status;
}

/* The ids of a text, with the token behind it that last-token pooling reads. */
static qn_status encode(const quern_model *m, const quern_embed_input *input,
                        const char *instruction, quern_pooling pooling,
                        qn_ids *out)
{
    qn_status status = QN_OK;
    if (instruction && !input->text)
        status = qn_fail(QN_E_ARG, "instruction: expected texts, found ids");
    else if (instruction)
        status = encode_query(m, input, instruction, out);
    else if (input->text)
        status = qn_model_encode(m, out, (qn_str){input->text, input->size},
                                 QN_ENCODE_ADD_SPECIAL, NULL);
    for (size_t i = 0; !input->text && i < input->id_count && !status; i++)
        status = input->ids[i] >= 0 && input->ids[i] < m->vocab
                     ? qn_ids_add(out, input->ids[i])
                     : qn_fail(QN_E_ARG, "token %zu: expected 0..%d, found %d",
                               i, m->vocab - 1, input->ids[i]);
    int32_t last = m->embedder.last_id;
    bool ended = out->size && out->data[out->size - 1] == last;
    if (!status && input->text && pooling == QUERN_POOLING_LAST && last >= 0 &&
        last < m->vocab && !ended)
        status = qn_ids_add(out, last);
    if (!status && !out->size)
        status = qn_fail(QN_E_ARG, "a text without tokens has no vector");
    return status;
}

/* Cuts what is too long if that is asked for; its last token stays, which ends
 * a text in encoders and is what counts elsewhere. */
static qn_status fit(const quern_model *m, bool cut, qn_ids *ids)
{
    size_t limit = (size_t)limit_of(m);
    if (ids->size <= limit)
        return QN_OK;
    if (!cut)
        return qn_fail(QN_E_UNSUPPORTED, "%zu tokens, but a text may have %zu",
                       ids->size, limit);
    ids->data[limit - 1] = ids->data[ids->size - 1];
    ids->size = limit;
    return QN_OK;
}

void quern_embed_options_init(quern_embed_options *options)
{
    *options = (quern_embed_options){.normalize = -1};
}

static qn_status check(const quern_model *m, const quern_embed_options *o,
                       size_t count)
{
    if (!m->model)
        return qn_fail(QN_E_ARG, "the model was opened for its headers only");
    if ((int)o->pooling < 0 || o->pooling > QUERN_POOLING_LAST)
        return qn_fail(QN_E_ARG, "pooling: expected model, mean, cls or last");
    if (o->pooling == QUERN_POOLING_MODEL &&
        m->embedder.pooling == QUERN_POOLING_MODEL)
        return qn_fail(QN_E_UNSUPPORTED,
                       "the model says nothing of embeddings: name a pooling "
                       "(mean, cls, last)");
    int width = qn_model_config(m->model)->hidden;
    if (o->dim < 0 || o->dim > width)
        return qn_fail(QN_E_ARG, "dim: expected 1..%d, found %d", width,
                       o->dim);
    if (o->instruction && !*m->embedder.query_before)
        return qn_fail(QN_E_UNSUPPORTED,
                       "instruction: the model's files know no form of it");
    if (!count)
        return qn_fail(QN_E_ARG, "there is no text");
    return QN_OK;
}

static qn_status embed(quern_model *m, const quern_embed_input *inputs,
                       size_t count, const quern_embed_options *o,
                       quern_embeddings *out)
{
    int width = qn_model_config(m->model)->hidden;
    batch all = {.m = m,
                 .count = count,
                 .pooling = o->pooling ? o->pooling : m->embedder.pooling,
                 .normalize =
                     o->normalize < 0 ? m->embedder.normalize : o->normalize,
                 .width = width,
                 .go_on = o->go_on,
                 .data = o->data,
                 .dim = o->dim ? o->dim : width};
    qn_ids *ids = qn_calloc(count, sizeof *ids);
    piece *pieces = qn_calloc(count, sizeof *pieces);
    size_t floats;
    if (qn_mul_size(&floats, count, (size_t)all.dim))
        all.out = qn_calloc(floats, sizeof *all.out);
    qn_status status = ids && pieces && all.out ? QN_OK : QN_E_NOMEM;
    int64_t tokens = 0;
    for (size_t i = 0; i < count && !status; i++) {
        status = encode(m, &inputs[i], o->instruction, all.pooling, &ids[i]);
        if (!status)
            status = fit(m, o->truncate, &ids[i]);
        if (status)
            qn_fail_where(status, "text %zu", i);
        pieces[i] = (piece){ids[i].data, (int)ids[i].size};
        tokens += (int64_t)ids[i].size;
    }
    all.pieces = pieces;
    if (!status)
        status = compute_all(all);
    for (size_t i = 0; ids && i < count; i++)
        qn_ids_free(&ids[i]);
    qn_free(ids);
    qn_free(pieces);
    if (status)
        qn_free(all.out);
    else
        *out = (quern_embeddings){all.out, count, (size_t)all.dim, tokens};
    return status;
}

quern_status quern_embed(quern_model *m, const quern_embed_input *inputs,
                         size_t count, const quern_embed_options *options,
                         quern_embeddings *out, quern_error *error)
{
    quern_embed_options defaults;
    quern_embed_options_init(&defaults);
    if (!options)
        options = &defaults;
    qn_status status = check(m, options, count);
    if (!status)
        status = embed(m, inputs, count, options, out);
    return qn_give(error, status);
}

void quern_embeddings_free(quern_embeddings *e)
{
    if (e)
        quern_free(e->data);
    if (e)
        *e = (quern_embeddings){0};
}
