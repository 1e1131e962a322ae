/* nn.h: the blocks that models are built of, as steps of a scope.
 *
 * A scope owns every array that is made in it and keeps the first error; after
 * one, further steps do nothing and give arrays without content.  So a forward
 * pass reads as its formula and checks once, in nn_end.
 *
 *     nn c;
 *     nn_begin(&c, stream);
 *     mlx_array y = nn_keep(&c, nn_linear(&c, &w->up, x));
 *     qn_status status = nn_end(&c);
 *
 * End the scope before evaluating: a live handle pins its buffer, and caches
 * are then copied instead of written in place. */
#ifndef QN_MODEL_NN_H
#define QN_MODEL_NN_H

#include "kv/cache.h"
#include "loader.h"
#include "rope.h"

typedef struct nn {
    mlx_stream stream;
    qn_status status;
    mlx_array *owned;
    size_t count, capacity;
} nn;

void nn_begin(nn *c, mlx_stream stream);
/* Frees what the scope owns and returns the first error. */
qn_status nn_end(nn *c);
/* Takes the result of a step over, whether or not it succeeded (rc 0). */
mlx_array nn_own(nn *c, mlx_array x, int rc);
/* The rest of a function that is one step: `call` fills `res`, unless an error
 * came before. */
#define NN_STEP(c, call)                                                       \
    do {                                                                       \
        mlx_array res = {NULL};                                                \
        if ((c)->status)                                                       \
            return res;                                                        \
        int rc = call;                                                         \
        return nn_own(c, res, rc);                                             \
    } while (0)
/* A further reference to `x` that outlives the scope; the caller owns it.  No
 * array after an error. */
mlx_array nn_keep(nn *c, mlx_array x);
/* Frees an array that a model owns, or none. */
void nn_drop(mlx_array x);

/* Takes an array over that was made elsewhere; without content it is an error
 * of the array library. */
mlx_array nn_adopt(nn *c, mlx_array x);

mlx_array nn_add(nn *c, mlx_array a, mlx_array b);
mlx_array nn_mul(nn *c, mlx_array a, mlx_array b);
/* x * sigmoid(x) */
mlx_array nn_silu(nn *c, mlx_array x);
mlx_array nn_sigmoid(nn *c, mlx_array x);
mlx_array nn_tanh(nn *c, mlx_array x);
/* x * (1 + erf(x / sqrt(2))) / 2 */
mlx_array nn_gelu(nn *c, mlx_array x);
/* x * (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 */
mlx_array nn_gelu_tanh(nn *c, mlx_array x);
/* cap * tanh(x / cap); x for a cap of 0 */
mlx_array nn_cap(nn *c, mlx_array x, double cap);
/* A number as an array without axes. */
mlx_array nn_number(nn *c, double value, mlx_dtype dtype);
/* x * factor, the factor rounded to the dtype of x. */
mlx_array nn_scale(nn *c, mlx_array x, double factor);
mlx_array nn_astype(nn *c, mlx_array x, mlx_dtype dtype);
/* x * rsqrt(mean(x^2) + eps) * weight */
mlx_array nn_rms_norm(nn *c, mlx_array x, mlx_array weight, double eps);
/* (x - mean(x)) * rsqrt(variance(x) + eps) * weight + bias */
mlx_array nn_layer_norm(nn *c, mlx_array x, mlx_array weight, mlx_array bias,
                        double eps);

/* rms_norm for each head of x [1, T, heads * dim], in the dtype of x; no array
 * as the weight: 1. */
mlx_array nn_head_norm(nn *c, mlx_array x, mlx_array weight, int dim,
                       double eps);

/* x w^T + bias, in the dtype of x.  A dense matrix is multiplied in its own
 * dtype. */
mlx_array nn_linear(nn *c, const qn_matrix *w, mlx_array x);

/* x w^T + bias + residual, in the dtype of the residual. */
mlx_array nn_linear_add(nn *c, const qn_matrix *w, mlx_array x,
                        mlx_array residual);

/* Up to 3 weights that are multiplied with the same x, in one step where they
 * are packed alike. */
enum { NN_GROUP = 3 };
typedef struct nn_group {
    const qn_matrix *w[NN_GROUP]; /* borrowed */
    int count;
    qn_panels panels; /* of all of them, or none */
    bool fused;
    mlx_vector_array words, scales, biases; /* if fused */
} nn_group;

/* The matrices, loaded as `grouped`, must outlive the group.  The caller owns
 * *out (nn_group_clear). */
qn_status nn_group_make(qn_loader *loader, nn_group *out, qn_matrix *const *w,
                        int count);
void nn_group_clear(nn_group *group);

/* A norm that comes before products: nn_rms_norm(x, weight, eps), or x where
 * there is no weight, which they take, and give their results, in `dtype`. */
typedef struct nn_norm {
    mlx_array weight;
    double eps;
    mlx_dtype dtype;
} nn_norm;

/* out[i] is norm(x) w[i]^T + bias; x itself where the norm has no weight. */
void nn_linears(nn *c, mlx_array *out, const nn_group *group, mlx_array x,
                nn_norm norm);
typedef enum nn_gate { NN_SILU, NN_GELU, NN_GELU_EXACT } nn_gate;
/* gate(first) * second of a group of two. */
mlx_array nn_gated(nn *c, const nn_group *group, mlx_array x, nn_norm norm,
                   nn_gate gate);

/* What the values x [rows, cols] are, in float32, once they were packed. */
mlx_array nn_rounded(nn *c, mlx_array x, const qn_quant *form);

/* Rows of w for int32 ids [1, T], as [1, T, cols] of `dtype`. */
mlx_array nn_embed(nn *c, const qn_matrix *w, mlx_array ids, mlx_dtype dtype);

/* What is computed: the next tokens of several sequences, one after the other.
 * T is how many there are in all. */
typedef struct nn_rows {
    const qn_kv_rows *rows;
    size_t count;
} nn_rows;

/* x [..., n] -> [..., to - from]. */
mlx_array nn_slice_last(nn *c, mlx_array x, int from, int to);
/* Arrays one behind the other along the last axis. */
mlx_array nn_join_last(nn *c, const mlx_array *parts, size_t count);
/* x [m, n] turned around, row-major. */
mlx_array nn_rows_first(nn *c, mlx_array x);
mlx_array nn_reshape(nn *c, mlx_array x, const int *shape, size_t ndim);
/* Over the last axis, with float32 sums. */
mlx_array nn_softmax(nn *c, mlx_array x);

/* q [1, T, heads * dim], k and v [1, T, kv_heads * dim] -> [1, T, heads * dim]:
 * q and k are turned as `rope` says, k and v stored, and all attended to.
 * Without k and v, over what the layer stored before in this step. */
mlx_array nn_attend(nn *c, nn_rows rows, int layer, mlx_array q, mlx_array k,
                    mlx_array v, const qn_rope *rope, const qn_attention *how);
/* Attention of encoders: every token sees all of its sequence, and nothing is
 * stored.  q, k and v are [1, T, heads * dim]. */
mlx_array nn_attend_all(nn *c, nn_rows rows, mlx_array q, mlx_array k,
                        mlx_array v, int dim, double scale);
/* The number of each token in its sequence, from `first` on: int32 [1, T]. */
mlx_array nn_positions(nn *c, nn_rows rows, int first);
/* [1, T, n] -> [1, W, n]: of each sequence the positions at the end that are
 * wanted (qn_kv_rows), W in all. */
mlx_array nn_last(nn *c, mlx_array x, nn_rows rows);

#endif
