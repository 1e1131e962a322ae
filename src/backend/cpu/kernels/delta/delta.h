/* delta.h: one head of a gated delta net over the rows of a sequence.
 *
 * Row t of q, k and v is silu of a causal convolution over the last `taps` rows
 * of x, channel by channel; q and k are divided by their lengths, q also by
 * sqrt(key_dim).  Then, with the head's matrix S [key_dim, value_dim],
 *
 *     S = decay S;  d = beta (v - k S);  S = S + k^T d;  out = q S
 *
 * Lanes are elements of v, so every sum over key_dim is a chain of
 * multiply-adds in ascending order: rows come one after the other, and have the
 * same bits however a sequence was cut. */
#ifndef QN_CPU_DELTA_H
#define QN_CPU_DELTA_H

#include "base/cpu.h"

#include <stddef.h>

typedef struct qn_delta {
    size_t rows, taps, key_heads, value_heads, key_dim, value_dim;
    size_t channels;     /* (2 key_heads) key_dim + value_heads value_dim */
    const float *x;      /* [rows, channels]: q, k, v */
    const float *tail;   /* [taps - 1, channels]: the rows before */
    const float *filter; /* [taps, channels] */
    const float *decay, *beta; /* of this head: [rows] */
    const float *before; /* the head's matrix before the rows; not `state` */
    float *state;        /* and behind them */
    float *out;          /* [rows, value_heads, value_dim] */
} qn_delta;

/* Floats of memory for a head, aligned to 64 bytes. */
static inline size_t qn_delta_room(size_t key_dim, size_t value_dim)
{
    return 2 * ((key_dim + 15) / 16 * 16) + (value_dim + 15) / 16 * 16;
}

typedef void (*qn_delta_fn)(const qn_delta *job, size_t head, float *room);

/* The best kernel that this processor has. */
qn_delta_fn qn_delta_pick(void);

#define QN_DELTA(isa, name)                                                    \
    void name(const qn_delta *job, size_t head, float *room);
#include "kernels.def"
#undef QN_DELTA

#endif
