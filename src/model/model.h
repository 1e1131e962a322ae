/* model.h: a loaded model, whatever its family. */
#ifndef QN_MODEL_MODEL_H
#define QN_MODEL_MODEL_H

#include "config.h"
#include "kv/cache.h"
#include "loader.h"

typedef struct qn_model qn_model;

typedef struct qn_model_options {
    mlx_dtype dtype; /* of activations */
    bool int8; /* products with packed weights in 8-bit integers, if possible */
    mlx_stream stream;
    bool lenient; /* leftover tensors are a warning */
    /* Names, types and shapes are checked, and arrays have no values of their
     * own: takes next to no memory, and computes nothing that means anything.
     */
    bool hollow;
    qn_warn_fn warn; /* may be NULL */
    void *warn_data;
    qn_watch_fn watch; /* see qn_loader; may be NULL */
    void *watch_data;
} qn_model_options;

/* Sums over the weights of a model. */
typedef struct qn_model_sums {
    uint64_t parameters, bytes;
    char form[32]; /* the most common one */
    bool tied;
} qn_model_sums;

/* QN_OK when a family has the name; else QN_E_UNSUPPORTED with the names there
 * are, and the nearest one by the tensors of `weights` (may be NULL). */
qn_status qn_model_check_family(const qn_weights *weights, qn_str type);
/* QN_OK when the family of `config` is supported and accepts it. */
qn_status qn_model_check(const qn_weights *weights, const qn_config *config);

/* Changes `config`, which has just been read, so that the model is computed as
 * mlx-lm does where that differs from the authors' programs: the profile of
 * that name (docs/from-mlx-lm.md). */
void qn_model_as_mlx_lm(qn_config *config);

/* Loads the weights of `weights` (needed only during the call).  `config` is
 * taken over on success and left to the caller on failure.  The caller owns
 * *out (qn_model_free). */
qn_status qn_model_load(qn_model **out, qn_weights *weights, qn_config *config,
                        const qn_model_options *options);
void qn_model_free(qn_model *model);

/* Equal for two lengths exactly when sequences that are to reach them
 * (qn_kv_cache_set_budget) are computed alike: tokens that were stored under
 * one number serve under no other. */
int qn_model_rope_choice(const qn_model *model, int budget);

const qn_config *qn_model_config(const qn_model *model);
const qn_model_sums *qn_model_totals(const qn_model *model);

/* Builds the graph of the next tokens of `count` sequences, whose `ids` follow
 * one another, and moves the caches' lengths on.  *logits, if not NULL, becomes
 * a float32 array [1, T, vocab], or [1, W, vocab] for the wanted tokens at the
 * end of each, that the caller owns.  Nothing is evaluated: do that before the
 * next call, either of the logits or of the caches' arrays.  On failure the
 * caches must be reset. */
qn_status qn_model_forward(const qn_model *model, mlx_array *logits,
                           const int32_t *ids, const qn_kv_rows *rows,
                           size_t count, bool last_only);

/* Whether the family of that name is one of encoders. */
bool qn_family_is_encoder(const char *type);
/* Whether the model is an encoder: it has no logits, and needs no caches. */
bool qn_model_is_encoder(const qn_model *model);
/* Builds the graph of what logits would be made of: *out becomes a float32
 * array [1, T, hidden] that the caller owns.  Otherwise as qn_model_forward;
 * encoders look at the counts of `rows` alone.  QN_E_UNSUPPORTED where the
 * family does not have it. */
qn_status qn_model_hidden(const qn_model *model, mlx_array *out,
                          const int32_t *ids, const qn_kv_rows *rows,
                          size_t count);

#endif
