/* rope.h: the settings of rotary positions, ready for the array library. */
#ifndef QN_MODEL_ROPE_H
#define QN_MODEL_ROPE_H

#include "kv/cache.h"
#include "loader.h"

#include <mlx/c/mlx.h>

/* Settings may depend on the length that a sequence is to reach
 * (qn_kv_cache_budget); they are the same for all of it. */
typedef struct qn_rope {
    int dims;
    bool traditional;
    float base;
    float scale;     /* of positions */
    mlx_array freqs; /* periods, dims / 2 float32; no array: from base */
    /* What the features of q and k are multiplied with; no array: nothing. */
    mlx_array stretch;
    /* Sequences longer than `original` (0: none) have these periods, or a base
     * that follows from their length and `factor`. */
    double original, factor;
    mlx_array long_freqs;
} qn_rope;

/* A number that two lengths have in common exactly when sequences of them turn
 * alike: short ones have 0. */
int qn_rope_choice(const qn_rope_config *config, int budget);
/* The settings for a sequence that is to have `budget` tokens. */
qn_kv_rope qn_rope_for(const qn_rope *rope, int budget);

/* For heads of `head_dim` features of type `dtype`.  `factors` (dims / 2 of
 * them, or NULL) divide the inverse frequencies on top of what the
 * configuration says (rope_freqs of GGUF files).  The caller owns *out
 * (qn_rope_clear). */
qn_status qn_rope_make(qn_rope *out, const qn_rope_config *config,
                       const float *factors, int head_dim, mlx_dtype dtype,
                       mlx_stream stream);
void qn_rope_clear(qn_rope *rope);

/* Those of a model by its configuration, and by the factors that a GGUF file
 * has as tensors.  *local stays empty where no layer has it.  The caller owns
 * both. */
qn_status qn_rope_load(qn_rope *out, qn_rope *local, qn_loader *loader);

/* The periods alone: out[i] for pair i, dims / 2 of them; `longer`: for
 * sequences longer than original_positions.  False when they are
 * base^(2i/dims). */
bool qn_rope_periods(double *out, const qn_rope_config *config, bool longer);

/* YaRN's attention temperature for a context stretched by `factor`. */
double qn_rope_yarn_mscale(double factor, double m);

#endif
