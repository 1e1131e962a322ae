/* rows.h: operations along the last axis: rows of float32, half types being
 * staged by the caller.
 *
 * Sums over a row are formed in float in ROW_SUMS * VF_LANES partial sums,
 * element i in number i modulo that, which are then added in a fixed order.
 * Functions that take a block of a row work on at most QN_ROWS_BLOCK elements
 * that begin at a multiple of it, so that a long row can be shared among
 * threads and still be added up in one order. */
#ifndef QN_CPU_ROWS_H
#define QN_CPU_ROWS_H

#include "base/cpu.h"
#include "core/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { QN_ROWS_BLOCK = 4096 };

typedef struct qn_rows_kernel {
    /* out may be x.  weight and bias: n floats or NULL.
     * (x * rsqrt(mean(x^2) + eps)) * weight. */
    void (*rms_norm)(float *out, const float *x, size_t n, float eps,
                     const float *weight);
    /* ((x - mean) * rsqrt(mean((x - mean)^2) + eps)) * weight + bias. */
    void (*layer_norm)(float *out, const float *x, size_t n, float eps,
                       const float *weight, const float *bias);
    /* exp(x - max) / sum. */
    void (*softmax)(float *out, const float *x, size_t n);
    /* A block: its largest (smallest) element, NaN if there is one. */
    float (*extreme)(const float *x, size_t n, bool max);
    /* The first element equal to `value`, or the first NaN if it is one; n
     * when there is none. */
    size_t (*find)(const float *x, size_t n, float value);
    /* A block: the sum of exp(x - shift). */
    float (*exp_sum)(const float *x, size_t n, float shift);
    /* Rotary embedding: cosines and sines of position * turn[i]. */
    void (*angles)(float *cosine, float *sine, float position,
                   const float *turn, size_t half);
    /* Turns the pairs (i, i + half), or (2i, 2i + 1) if `neighbours`. out may
     * be x. */
    void (*rotate)(float *out, const float *x, const float *cosine,
                   const float *sine, size_t half, bool neighbours);
    /* n elements of a float type and, in that type, 0 added where bit i % 32
     * of word i / 32 is 1 and -inf where it is 0.  out may be x. */
    void (*mask)(void *out, const void *x, size_t n, const uint32_t *words,
                 qn_dtype type);
} qn_rows_kernel;

/* The best kernel that this processor has. */
const qn_rows_kernel *qn_rows_pick(void);
/* The kernel of one level, NULL when it is not built in or not supported. */
const qn_rows_kernel *qn_rows_at(qn_isa isa);

#define QN_ROWS(isa, name) extern const qn_rows_kernel name;
#include "kernels.def"
#undef QN_ROWS

#endif
