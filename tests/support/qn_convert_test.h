/* qn_convert_test.h: a converted model beside its source: the logits of a text
 * of both. */
#ifndef QN_CONVERT_TEST_H
#define QN_CONVERT_TEST_H

#include "support/recipe.h"

#include "kv/engine.h"
#include "model/family.h"
#include "model/model.h"

#include <quern/quern.h>

enum { QN_PROBE_TOKENS = 70 };

static inline void probe_config(qn_config *out, const qn_weights *weights,
                                const char *path)
{
    if (qn_weights_gguf(weights)) {
        check_status(qn_config_from_gguf(out, qn_weights_gguf(weights), path),
                     QN_OK);
        return;
    }
    char *name = qn_path_join(path, "config.json"), *text;
    size_t size;
    check_status(qn_file_read(&text, &size, name, 1 << 20), QN_OK);
    check_status(qn_config_from_json(out, (qn_str){text, size}, name), QN_OK);
    qn_free(text);
    qn_free(name);
}

/* float32 logits [QN_PROBE_TOKENS, *vocab] of a fixed text; free with qn_free.
 */
static inline float *probe_logits(const char *path, int *vocab)
{
    qn_weights *weights;
    qn_config config = {0};
    qn_model *model;
    qn_kv_cache *cache;
    int32_t ids[QN_PROBE_TOKENS];
    mlx_array logits = {NULL};
    check_status(qn_engine_start(), QN_OK);
    check_status(qn_weights_open(&weights, path), QN_OK);
    probe_config(&config, weights, path);
    mlx_stream stream = mlx_default_cpu_stream_new();
    qn_model_options options = {.dtype = MLX_FLOAT32, .stream = stream};
    check_status(qn_model_load(&model, weights, &config, &options), QN_OK);
    qn_weights_free(weights);
    const qn_config *c = qn_model_config(model);
    qn_kv_layer *layers = qn_calloc((size_t)c->layers, sizeof *layers);
    assert_non_null(layers);
    for (int i = 0; i < c->layers; i++) {
        qn_family_cache(c, i, &layers[i]);
        layers[i].scheme.dtype = MLX_FLOAT32;
    }
    qn_kv_shape shape = {.layers = c->layers,
                         .layer = layers,
                         .floats = MLX_FLOAT32,
                         .step = 16,
                         .limit = 256};
    check_status(qn_kv_cache_new(&cache, &shape), QN_OK);
    for (int i = 0; i < QN_PROBE_TOKENS; i++)
        ids[i] = (i * i * 31 + i * 7 + 5) % c->vocab_size;
    qn_kv_rows rows = {.cache = cache, .count = QN_PROBE_TOKENS};
    check_status(qn_model_forward(model, &logits, ids, &rows, 1, false), QN_OK);
    check_status(qn_engine(mlx_array_eval(logits)), QN_OK);
    size_t size = mlx_array_nbytes(logits);
    float *out = qn_alloc(size);
    assert_non_null(out);
    memcpy(out, mlx_array_data_float32(logits), size);
    *vocab = c->vocab_size;
    mlx_array_free(logits);
    qn_kv_cache_free(cache);
    qn_model_free(model);
    qn_free(layers);
    mlx_stream_free(stream);
    return out;
}

/* The largest difference of their logits. */
static inline double probe_difference(const char *one, const char *other)
{
    int vocab, other_vocab;
    float *a = probe_logits(one, &vocab),
          *b = probe_logits(other, &other_vocab);
    double worst = 0;
    assert_int_equal(vocab, other_vocab);
    for (int i = 0; i < QN_PROBE_TOKENS * vocab; i++) {
        double off = fabs((double)a[i] - b[i]);
        if (!(off <= worst))
            worst = off;
    }
    qn_free(a);
    qn_free(b);
    return worst;
}

static inline void check_converts(const char *source, const char *destination,
                                  const quern_convert_options *options)
{
    quern_error error;
    quern_status status =
        quern_convert(source, destination, options, NULL, &error);
    if (status)
        fail_msg("%s: %s", error.where, error.message);
}

#endif
