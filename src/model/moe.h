/* moe.h: an MLP of experts, of which each token takes a few.
 *
 * A router gives each expert a number for each token; the experts with the
 * largest ones (of equal ones those that come first) are computed and summed up
 * by weights that follow from these numbers.  The matrices of all experts lie
 * below one another in one, [experts * rows, cols], so that a product is one
 * operation whoever was chosen. */
#ifndef QN_MODEL_MOE_H
#define QN_MODEL_MOE_H

#include "nn.h"

/* What differs between files. */
typedef struct moe_form {
    const char *block; /* "mlp": what all names below a layer begin with */
    /* Names of an expert's matrices where each expert has tensors of its own;
     * stacked ones are switch_mlp.gate_proj and so on everywhere. */
    const char *gate, *up, *down;
    /* A shared expert's part is weighed by a gate of its own. */
    bool shared_gate;
    /* Other names in model directories than "gate" for the router and
     * "switch_mlp" for stacked experts. */
    const char *router, *stacked;
    bool biases; /* of the router and of experts */
    /* (clamp(up, -7, 7) + 1) * g * sigmoid(1.702 g), where g is min(gate, 7),
     * instead of silu(gate) * up. */
    bool clamped;
    /* Loads the experts of a layer where the files have them in a form of the
     * family's own, and says whether they do; NULL: there is none. */
    qn_status (*load)(qn_loader *loader, int layer, bool *done, qn_matrix *gate,
                      qn_matrix *up, qn_matrix *down);
} moe_form;

typedef struct nn_moe nn_moe;

/* The experts of layer `layer`, by config->moe.  What is missing is noted.  The
 * caller owns *out (nn_moe_free). */
qn_status nn_moe_load(nn_moe **out, qn_loader *loader, const moe_form *form,
                      int layer);
void nn_moe_free(nn_moe *moe);

/* x [1, T, hidden], float32, normed -> the same. */
mlx_array nn_moe_apply(nn *c, const nn_moe *moe, mlx_array x);

/* ---- the parts ---- */

/* Loads a matrix for each of `count` experts, of `rows` each, as one of
 * spec->rows = count * rows: from the tensor MODULE with `stacked`, the name of
 * its module, if there is one; else from those of each expert, whose modules
 * are `single`, a format for its number.  They are laid out unless
 * spec->grouped says that the caller does it. */
qn_status nn_load_experts(qn_loader *loader, qn_matrix *out,
                          const qn_matrix_spec *spec, int count,
                          const char *stacked, const char *single);

/* The `used` experts with the largest of scores [1, T, experts]: int32 ids
 * [T, used], and their scores [T, used]. */
void nn_choose(nn *c, mlx_array scores, int used, mlx_array *ids,
               mlx_array *chosen);

/* x [T, n, 1, cols], where n is 1 or the number of experts that a token has,
 * times the matrices ids [T, used], and their biases: [T, used, 1, rows]. */
mlx_array nn_experts(nn *c, const qn_matrix *w, int count, mlx_array x,
                     mlx_array ids);

#endif
