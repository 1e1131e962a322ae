/* predict.h: what a model will take in memory, from its headers alone. */
#ifndef QN_MODEL_PREDICT_H
#define QN_MODEL_PREDICT_H

#include "config.h"
#include "weights.h"

#include <mlx/c/mlx.h>

typedef struct qn_held {
    uint64_t weights;   /* bytes of all weights, as they will be held */
    uint64_t read;      /* of these, what the step of one token reads */
    bool dense, packed; /* what matrices there are in layers */
    bool dense_head;    /* logits come from a dense one */
    bool dense_beside;  /* inputs of layers do (ple.h) */
    bool panels; /* packed ones are laid out for products in 8-bit integers */
} qn_held;

/* For activations of `dtype`; `panels`: packed matrices are laid out for
 * products in 8-bit integers. */
void qn_predict_weights(qn_held *out, const qn_weights *weights,
                        const qn_config *config, mlx_dtype dtype, bool panels);
/* One step. */
typedef struct qn_step_size {
    int64_t tokens;
    int64_t context; /* tokens that are stored at most */
    int rows;        /* of `tokens`, those with logits */
    mlx_dtype dtype; /* of activations */
    /* As qn_held has them. */
    bool dense, packed, dense_head, dense_beside, panels;
    int64_t
        longest; /* of the texts of an encoder, which attend by themselves */
} qn_step_size;

/* Bytes that the arrays of a step take at most beside weights and caches. */
uint64_t qn_predict_workspace(const qn_config *config,
                              const qn_step_size *step);

#endif
