/* rope.h: the settings of rotary positions, ready for the array library. */
#ifndef QN_MODEL_ROPE_H
#define QN_MODEL_ROPE_H

#include "loader.h"

#include <mlx/c/mlx.h>

typedef struct qn_rope {
    int dims;
    bool traditional;
    float base;
    float scale;     /* of positions */
    mlx_array freqs; /* periods, dims / 2 float32; no array: from base */
    /* What the features of q and k are multiplied with; no array: nothing. */
    mlx_array stretch;
} qn_rope;

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

/* The periods alone: out[i] for pair i, dims / 2 of them.  False when they are
 * base^(2i/dims). */
bool qn_rope_periods(double *out, const qn_rope_config *config);

/* YaRN's attention temperature for a context stretched by `factor`. */
double qn_rope_yarn_mscale(double factor, double m);

#endif
