/* model.c: finding the family and running it.  See model.h. */
#include "model.h"

#include "base/alloc.h"
#include "family.h"
#include "kv/engine.h"

#include <stdio.h>

struct qn_model {
    qn_config config;
    const qn_family *family;
    void *state;
    mlx_dtype dtype;
    mlx_stream stream;
    qn_model_sums sums;
};

/* How many modules of the family's layers the files have, in hundredths. */
static int likeness(const qn_family *family, const qn_weights *weights)
{
    int count = 0, found = 0;
    for (const char *const *m = family->modules; *m; m++, count++) {
        char name[128];
        snprintf(name, sizeof name, "model.layers.0.%s.weight", *m);
        found += qn_weights_find(weights, name) != NULL;
    }
    return 100 * found / count;
}

static qn_status unknown_family(const qn_weights *weights, qn_str type)
{
    qn_buf list = QN_BUF_INIT;
    int best = 0;
    const char *nearest = NULL;
    const qn_family *family;
    const char *name;
    for (size_t i = 0; (family = qn_family_at(i, &name)); i++) {
        qn_buf_printf(&list, "%s%s", i ? ", " : "", name);
        int like = weights ? likeness(family, weights) : 0;
        if (like > best) {
            best = like;
            nearest = name;
        }
    }
    qn_status status = qn_buf_status(&list);
    if (!status)
        status = qn_fail(
            QN_E_UNSUPPORTED, "model type '%.*s' is not supported (%s are)%s%s",
            (int)(type.size < 64 ? type.size : 64), type.data, list.data,
            nearest ? "; by its tensors it is nearest to " : "",
            nearest ? nearest : "");
    qn_buf_free(&list);
    return weights ? qn_fail_where(status, "%s", qn_weights_path(weights))
                   : status;
}

qn_status qn_model_check_family(const qn_weights *weights, qn_str type)
{
    return qn_family_find(type) ? QN_OK : unknown_family(weights, type);
}

static qn_status load_state(qn_model *model, qn_weights *weights,
                            const qn_model_options *options)
{
    qn_loader loader = {
        .weights = weights,
        .config = &model->config,
        .dtype = options->dtype,
        .int8 = options->int8,
        .hollow = options->hollow,
        .stream = options->stream,
        .warn = options->warn,
        .warn_data = options->warn_data,
        .watch = options->watch,
        .watch_data = options->watch_data,
    };
    qn_status status = model->family->load(&model->state, &loader);
    if (!status)
        status =
            qn_loader_finish(&loader, model->family->ignored, options->lenient);
    if (!status) {
        qn_model_sums *sums = &model->sums;
        sums->parameters = loader.parameters;
        sums->bytes = loader.bytes;
        sums->tied = model->family->tied(model->state);
        snprintf(sums->form, sizeof sums->form, "%s", qn_loader_form(&loader));
    }
    qn_loader_clear(&loader);
    return status;
}

void qn_model_as_mlx_lm(qn_config *config)
{
    const qn_family *family = qn_family_find(qn_str_of(config->family));
    config->rope.always_long = true;
    config->local_rope.always_long = true;
    if (family && family->as_mlx_lm)
        family->as_mlx_lm(config);
}

qn_status qn_model_check(const qn_weights *weights, const qn_config *config)
{
    qn_str type = qn_str_of(config->family);
    qn_status status = qn_model_check_family(weights, type);
    if (status)
        return status;
    const qn_family *family = qn_family_find(type);
    status = family->check ? family->check(config) : QN_OK;
    return status ? qn_fail_where(status, "%s", qn_weights_path(weights))
                  : QN_OK;
}

qn_status qn_model_load(qn_model **out, qn_weights *weights, qn_config *config,
                        const qn_model_options *options)
{
    qn_status status = qn_model_check(weights, config);
    if (status)
        return status;
    qn_model *model = qn_calloc(1, sizeof *model);
    if (!model)
        return QN_E_NOMEM;
    model->family = qn_family_find(qn_str_of(config->family));
    model->config = *config;
    model->dtype = options->dtype;
    model->stream = options->stream;
    status = load_state(model, weights, options);
    if (status) {
        /* The configuration goes back, overrides marked as used and all. */
        *config = model->config;
        model->config = (qn_config){0};
        qn_model_free(model);
        return status;
    }
    *config = (qn_config){0};
    *out = model;
    return QN_OK;
}

void qn_model_free(qn_model *model)
{
    if (!model)
        return;
    if (model->state)
        model->family->free(model->state);
    qn_config_clear(&model->config);
    qn_free(model);
}

int qn_model_rope_choice(const qn_model *model, int budget)
{
    return qn_rope_choice(&model->config.rope, budget);
}

const qn_config *qn_model_config(const qn_model *model)
{
    return &model->config;
}

const qn_model_sums *qn_model_totals(const qn_model *model)
{
    return &model->sums;
}

bool qn_family_is_encoder(const char *type)
{
    const qn_family *family = qn_family_find(qn_str_of(type));
    return family && family->encoder;
}

bool qn_model_is_encoder(const qn_model *model)
{
    return model->family->encoder;
}

/* Logits, or what they are made of. */
static mlx_array build(const qn_model *model, nn *c, mlx_array ids,
                       nn_rows rows, bool hidden, bool last_only)
{
    const qn_family *family = model->family;
    return hidden ? family->hidden(model->state, c, ids, rows)
                  : family->forward(model->state, c, ids, rows, last_only);
}

/* *result, if not NULL, becomes what is computed. */
static qn_status run(const qn_model *model, mlx_array *result,
                     const int32_t *ids, nn_rows rows, bool hidden,
                     bool last_only)
{
    int total = qn_kv_rows_total(rows.rows, rows.count);
    mlx_array input = mlx_array_new_data(ids, (int[]){1, total}, 2, MLX_INT32);
    qn_status status = qn_engine_made(input.ctx);
    if (status)
        return status;
    nn c;
    nn_begin(&c, model->stream);
    mlx_array out = build(model, &c, input, rows, hidden, last_only);
    mlx_array kept = {NULL};
    if (result)
        kept = nn_keep(&c, nn_astype(&c, out, MLX_FLOAT32));
    mlx_array_free(input);
    status = nn_end(&c);
    if (status) {
        if (kept.ctx)
            mlx_array_free(kept);
        return status;
    }
    if (result)
        *result = kept;
    for (size_t i = 0; i < rows.count && !model->family->encoder; i++)
        qn_kv_cache_advance(rows.rows[i].cache, rows.rows[i].count);
    return QN_OK;
}

qn_status qn_model_forward(const qn_model *model, mlx_array *logits,
                           const int32_t *ids, const qn_kv_rows *rows,
                           size_t count, bool last_only)
{
    return run(model, logits, ids, (nn_rows){rows, count}, false, last_only);
}

qn_status qn_model_hidden(const qn_model *model, mlx_array *out,
                          const int32_t *ids, const qn_kv_rows *rows,
                          size_t count)
{
    if (!model->family->hidden)
        return qn_fail(QN_E_UNSUPPORTED, "%s has no embeddings of texts",
                       model->config.family);
    return run(model, out, ids, (nn_rows){rows, count}, true, false);
}
