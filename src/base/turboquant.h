/* turboquant.h: the packed KV format "TurboQuant", one head vector at a time.
 *
 * A key is stored as an affine code in groups along the head; a value is
 * rotated (fixed signs, then a Walsh-Hadamard transform), divided by the root
 * mean square of its group and stored as the number of its cell in a codebook.
 * Here are the constants of the format and the plain form of every step, which
 * kernels of any instruction set must equal bit for bit.
 *
 * Arithmetic is float32, one rounding for each operation, in the order that is
 * written down here and in turboquant.c.  Codes are a byte each until they are
 * packed; those of 8-bit keys are signed, -127 to 127, all others count from
 * 0.  Scales and zero points are float16 bits, one for each group; every NaN
 * among them is 0x7E00.
 *
 * Facts: the format and its tables are those of mlx-bun 0.3.0, the transform is
 * that of MLX 0.32.2, the idea is TurboQuant (arXiv 2504.19874). */
#ifndef QN_BASE_TURBOQUANT_H
#define QN_BASE_TURBOQUANT_H

#include "f16.h"
#include "status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    QN_TQ_GROUP = 32, /* elements of a group in caches */
    QN_TQ_MAX_DIM = 512,
    QN_TQ_MAX_GROUPS = QN_TQ_MAX_DIM / QN_TQ_GROUP
};

/* What the format has.  Head dimensions 64, 128, 256, 512; keys of 2, 4, 5, 8
 * bits; values of 2, 3, 4, 5, 8; groups of 32 and 64. */
bool qn_tq_has_dim(int d);
bool qn_tq_has_key_bits(int bits);
bool qn_tq_has_value_bits(int bits);
bool qn_tq_has_group(int group);

/* For messages. */
#define QN_TQ_DIMS "64, 128, 256 or 512"
#define QN_TQ_KEY_BITS "2, 4, 5 or 8"
#define QN_TQ_VALUE_BITS "2, 3, 4, 5 or 8"

/* QN_E_ARG, in a message that begins with [op], for what it has not.  A group
 * must also divide the head. */
qn_status qn_tq_check_dim(const char *op, int d);
qn_status qn_tq_check_key_bits(const char *op, int bits);
qn_status qn_tq_check_value_bits(const char *op, int bits);
qn_status qn_tq_check_group(const char *op, int d, int group);
/* Keys and values must be [B, H, N, D], both. */
qn_status qn_tq_check_pair(const char *op, const int *keys, size_t key_ndim,
                           const int *values, size_t value_ndim);

/* Bytes of d codes. */
static inline int qn_tq_packed(int d, int bits)
{
    return d * bits / 8;
}

/* Tables; the argument must be one that the format has.  Signs: d / 32 words,
 * bit b of word w is 1 where element 32 w + b is negated.  2^bits centroids
 * ascend; boundary i lies between centroids i and i + 1. */
const uint32_t *qn_tq_signs(int d);
const float *qn_tq_centroids(int bits);
const float *qn_tq_boundaries(int bits);

/* 1 / sqrt(d), what the transform multiplies by at its end. */
float qn_tq_norm(int d);

/* y = transform(x * signs), and its inverse y = transform(x) * signs, of d
 * floats.  y may be x. */
void qn_tq_rotate(float *y, const float *x, int d);
void qn_tq_unrotate(float *y, const float *x, int d);

/* d codes, d / group scales and zero points of the key x.  With `guard`, a
 * finite group that its pair can't represent (a scale that rounds to 0, a zero
 * point beyond float16) is stored as its midpoint; others are the same. */
void qn_tq_encode_key(uint8_t *codes, uint16_t *scale, uint16_t *zero,
                      const float *x, int d, int bits, int group, bool guard);

/* d codes and d / group scales of the value x (in the model's basis). */
void qn_tq_encode_value(uint8_t *codes, uint16_t *scale, const float *x, int d,
                        int bits, int group);

/* (code + zero) * scale; a cache hands out this, rounded to bfloat16. */
void qn_tq_decode_key(float *y, const uint8_t *codes, const float *scale,
                      const float *zero, int d, int bits, int group);

/* centroid * scale: the value, still rotated.  Eager decoding unrotates these
 * floats and rounds to bfloat16; deferred decoding rounds them as they are. */
void qn_tq_decode_value(float *y, const uint8_t *codes, const float *scale,
                        int d, int bits, int group);

/* Codes as a stream of bits, the low bits of each, lowest first: d codes are
 * qn_tq_packed(d, bits) bytes.  d is a multiple of 8. */
void qn_tq_pack(uint8_t *out, const uint8_t *codes, int d, int bits);
void qn_tq_unpack(uint8_t *codes, const uint8_t *packed, int d, int bits);

/* ---- for kernels: steps that are done once for a group ---- */

/* Added to a divisor: the float next to 1e-8. */
#define QN_TQ_EPSILON 1e-8f

static inline uint16_t qn_tq_half(float value)
{
    return value != value ? 0x7e00 : qn_f32_to_f16(value);
}

/* Signs as d numbers, 1 or -1. */
void qn_tq_sign_floats(float *out, int d);

/* What a group of a key is coded with: code = rint(x / divide - zero), 0 for a
 * NaN, within least and most. */
typedef struct qn_tq_grid {
    float low, high;     /* of its elements; NaN if one of them is */
    float scale, divide; /* the step, and the step plus epsilon */
    float zero;
    float least, most;
} qn_tq_grid;

qn_tq_grid qn_tq_grid_of(float low, float high, int bits);
/* Stores scale and zero point.  True where `guard` has made the group its
 * midpoint: then the codes are stored, too. */
bool qn_tq_grid_store(uint16_t *scale, uint16_t *zero, uint8_t *codes,
                      const qn_tq_grid *g, int group, bool guard);

#endif
