/* ple.h: inputs that each layer has of its own, of Gemma 3n and Gemma 4.
 *
 * Of each token a second table has a narrow vector for every layer, to which a
 * projection of its embedding is added.  Behind its MLP a layer adds
 * norm(project(gelu(gate(x)) * input)). */
#ifndef QN_MODEL_PLE_H
#define QN_MODEL_PLE_H

#include "nn.h"

typedef struct ple {
    int width, layers, vocab; /* width 0: there are none */
    double eps, projection_scale, table_scale;
    qn_matrix table, projection;
    mlx_array norm;
} ple;

typedef struct ple_layer {
    qn_matrix gate, projection;
    mlx_array norm;
} ple_layer;

/* What both families require: an activation, no biases, a cap of logits (0:
 * none) and a table of at most QN_MAX_DIM columns.  `family` is for errors. */
qn_status ple_check(const qn_config *config, const char *family, double cap,
                    int width);

/* The table of `vocab` rows, for all layers.  The caller owns *out
 * (ple_clear), also after an error. */
qn_status ple_load(ple *out, qn_loader *loader, int width, int vocab);
void ple_clear(ple *p);
qn_status ple_layer_load(ple_layer *out, qn_loader *loader, int width,
                         int layer);
void ple_layer_clear(ple_layer *layer);

/* [1, T, layers * width] of the ids and their embeddings x. */
mlx_array ple_inputs(nn *c, const ple *p, mlx_array ids, mlx_array x);
/* What layer `layer` adds, of x [1, T, hidden] in `dtype`; float32. */
mlx_array ple_apply(nn *c, const ple *p, const ple_layer *w, int layer,
                    mlx_array x, mlx_array inputs, mlx_dtype dtype);

/* sqrt(n) in the type that the authors' weights have, bfloat16. */
double ple_root(int n);

#endif
