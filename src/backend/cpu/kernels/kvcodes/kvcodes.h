/* kvcodes.h: the two products of attention with packed keys and values.
 *
 * ops/params.h (qn_kv_form) says how codes lie: keys in words whose lanes are
 * tokens, values in words whose lanes are elements, in blocks of 128 tokens.
 * Neither is unpacked to memory: a pair of key codes is shifted and masked out
 * of its word where it meets a query, a value's code goes from its word through
 * a table in a register.
 *
 * Scores.  A query (already multiplied by the scale of attention) is rounded
 * to 16-bit integers, with one scale for each group of the keys: d = max |x| /
 * 32767, q = x * (32767 / max |x|), to the nearest, halves to even; all zero
 * where max |x| is below QN_KVCODES_TINY; a group with an infinity or a NaN has
 * d = NaN.  Products of q with codes are exact sums, below 2^30, in int32.  Of
 * a token and a group, with `sum` that of code * q:
 *
 *   turbo   acc = fma(fma(zero, sum of q, float(sum)), scale * d, acc)
 *   affine  acc = fma(float(sum), scale * d, acc), and then
 *           acc = fma(bias, d * sum of q, acc)
 *
 * group by group in ascending order, from 0.  So a score is the same on every
 * processor, and for any rows beside it.
 *
 * Values.  The value of an element is fma(code, scale, bias), or table[code] *
 * scale; sums are one chain of multiply-adds over ascending tokens for each
 * element, as those of kernels/tile.h are.
 *
 * What bounds it (one core of a Sapphire Rapids class processor, AVX-512 with
 * VNNI, one query, group of 3, D 64, blocks from the third-level cache).  A
 * token takes 2.4 to 2.8 ns for scores with 8-bit keys: 8 products of 16-bit
 * pairs and 3 instructions to unpack, for 4 elements of 16 tokens and 3 rows;
 * 4.9 ns for sums of 3-bit values, of which each 16 take a shift, a look-up, a
 * product with the scale and 3 multiply-adds, and 5.8 ns for affine ones of 8
 * bits (a mask and a conversion instead of the look-up).  The rest of attention
 * (exponentials, merging chunks) adds 1.5 ns.  So 100 bytes of k8v3 take some 9
 * ns, less than memory needs to give a core the 256 bytes of f16 (15 to 25 ns),
 * and a step is bound by these instructions, not by memory.  Values of 8 bits
 * of turbo caches wait for 4 gathers a token, 14 ns.  Without asking for the
 * next block early everything takes twice as long.
 *
 * What rounding q costs: at most half of d for each element, so a score is off
 * by at most the sum over groups of 2^-16 max |q| sum |k|. */
#ifndef QN_CPU_KVCODES_H
#define QN_CPU_KVCODES_H

#include "base/cpu.h"
#include "core/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { QN_KVCODES_BLOCK = 128, QN_KVCODES_STEP = 32 };
#define QN_KVCODES_TINY 0x1p-100f

/* The keys or the values of a head, from the first token of a block on. */
typedef struct qn_kvcodes {
    int bits;    /* affine: 4, 8; keys: 2, 4, 5, 8; values: 2, 3, 4, 5, 8 */
    bool affine; /* else turbo */
    size_t d, group;
    qn_dtype type; /* of the factors */
    const uint32_t *words;
    const void *factors[2]; /* scales; biases or zero points */
} qn_kvcodes;

/* The same from `blocks` blocks further on. */
static inline qn_kvcodes qn_kvcodes_after(qn_kvcodes c, size_t blocks)
{
    size_t factors = c.d / c.group * QN_KVCODES_BLOCK;
    c.words += blocks * c.d * (size_t)c.bits * (QN_KVCODES_BLOCK / 32);
    for (int i = 0; i < 2; i++)
        if (c.factors[i])
            c.factors[i] = (const char *)c.factors[i] +
                           blocks * factors * qn_dtype_size(c.type);
    return c;
}

/* A query in integers: d of 16 bits, then for each group d, sum of q (affine:
 * d * sum of q) as floats, and as int32 what sums of products begin with, which
 * takes the flipped top bits of signed codes off.  In int32: */
static inline size_t qn_kvcodes_query(const qn_kvcodes *keys)
{
    return (keys->d / 2 + 3 * (keys->d / keys->group) + 15) / 16 * 16;
}

/* Floats of memory for the factors of a block. */
static inline size_t qn_kvcodes_room(const qn_kvcodes *c)
{
    return 2 * (c->d / c->group) * QN_KVCODES_BLOCK;
}

/* Rows have QN_KVCODES_BLOCK scores or weights each; `count` tokens of the
 * block count.  `room` is qn_kvcodes_room floats. */
typedef struct qn_kvcodes_kernel {
    /* d floats to a query. */
    void (*query)(int32_t *to, const qn_kvcodes *keys, const float *x);
    /* Scores of `rows` queries; behind `count`, up to a whole vector or two,
     * anything. */
    void (*scores)(float *scores, size_t rows, const int32_t *queries,
                   const qn_kvcodes *keys, size_t count, float *room);
    /* Sums of weighted values, d for each row. */
    void (*sums)(float *sums, size_t stride, size_t rows, const float *weights,
                 const qn_kvcodes *values, size_t count, float *room);
    /* The values themselves: a row for each token. */
    void (*expand)(float *to, size_t stride, const qn_kvcodes *values,
                   size_t count, float *room);
} qn_kvcodes_kernel;

const qn_kvcodes_kernel *qn_kvcodes_pick(void);
/* The kernel of one level, NULL when it is not built in or not supported. */
const qn_kvcodes_kernel *qn_kvcodes_at(qn_isa isa);

#define QN_KVCODES(isa, name) extern const qn_kvcodes_kernel name;
#include "kernels.def"
#undef QN_KVCODES

#endif
