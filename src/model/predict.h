/* predict.h: what a model will take in memory, from its headers alone. */
#ifndef QN_MODEL_PREDICT_H
#define QN_MODEL_PREDICT_H

#include "config.h"
#include "weights.h"

#include <mlx/c/mlx.h>

typedef struct qn_held {
    uint64_t weights; /* bytes of all weights, as they will be held */
    uint64_t read;    /* of these, what the step of one token reads */
} qn_held;

/* For activations of `dtype`; `panels`: packed matrices are laid out for
 * products in 8-bit integers. */
void qn_predict_weights(qn_held *out, const qn_weights *weights,
                        const qn_config *config, mlx_dtype dtype, bool panels);
/* Bytes that the arrays of a step of `tokens` tokens take at most beside
 * weights and caches, `rows` of them with logits, on so many threads. */
uint64_t qn_predict_workspace(const qn_config *config, int64_t tokens, int rows,
                              int threads);

#endif
