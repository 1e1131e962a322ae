/* turbo.h: the packed KV format (base/turboquant.h), one head vector at a time.
 *
 * Every instruction set gives the bytes of the plain functions there; only the
 * payload of a NaN may differ.  Vectors lie together in memory.
 *
 * What bounds them (bench/kv.c, two cores of a Xeon with AVX-512).  Decoding:
 * memory; a token and head of 128 elements, k8v3, is 200 bytes read and 512
 * written, past the caches where there are many, and both kernels together keep
 * up with 17 GB/s.  With the rotation undone, arithmetic: log2(d) butterflies,
 * those within a vector a shuffle and a fused product each, at 70 to 80 % of
 * that rate.  Encoding: divisions, one for each element of keys and of values,
 * about 1000 million elements a second; values of 8 bits half of that, by their
 * search of 8 gathers that wait for one another. */
#ifndef QN_CPU_TURBO_H
#define QN_CPU_TURBO_H

#include "base/cpu.h"
#include "base/turboquant.h"

typedef struct qn_turbo_kernel {
    /* As qn_tq_rotate and qn_tq_unrotate, with signs as floats
     * (qn_tq_sign_floats).  y may be x.  Where `half` is not NULL the result
     * is rounded to bfloat16 there, and y has anything. */
    void (*rotate)(float *y, const float *x, const float *signs, int d);
    void (*unrotate)(float *y, uint16_t *half, const float *x,
                     const float *signs, int d);
    /* As qn_tq_encode_key and qn_tq_encode_value. */
    void (*encode_key)(uint8_t *codes, uint16_t *scale, uint16_t *zero,
                       const float *x, int d, int bits, int group, bool guard);
    void (*encode_value)(uint8_t *codes, uint16_t *scale, const float *x,
                         const float *signs, int d, int bits, int group);
    /* As qn_tq_decode_key, of packed codes and rounded to bfloat16. */
    void (*decode_key)(uint16_t *y, const uint8_t *packed, const float *scale,
                       const float *zero, int d, int bits, int group);
    /* As qn_tq_decode_value, of packed codes: floats or, where `half` is not
     * NULL, rounded to bfloat16 there.  The table of centroids is readable for
     * 32 floats. */
    void (*decode_value)(float *y, uint16_t *half, const uint8_t *packed,
                         const float *scale, const float *table, int d,
                         int bits, int group);
    /* Copies a multiple of 64 bytes to a place aligned to that, past the
     * caches; fence() after the last. */
    void (*stream)(void *to, const void *from, int bytes);
    void (*fence)(void);
} qn_turbo_kernel;

/* The best kernel that this processor has. */
const qn_turbo_kernel *qn_turbo_pick(void);
/* The kernel of one level, NULL when it is not built in or not supported. */
const qn_turbo_kernel *qn_turbo_at(qn_isa isa);

#define QN_TURBO(isa, name) extern const qn_turbo_kernel name;
#include "kernels.def"
#undef QN_TURBO

#endif
