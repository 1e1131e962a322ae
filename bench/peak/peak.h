/* peak.h: what one core can do at most: multiply-adds on registers, of floats
 * and of 8-bit integers, and reading memory with whole vectors. */
#ifndef QN_BENCH_PEAK_H
#define QN_BENCH_PEAK_H

#include "base/cpu.h"

#include <stddef.h>

typedef struct peak {
    /* Does 24 * rounds vector multiply-adds; returns how many floating-point
     * operations that were.  *out keeps the compiler from dropping them. */
    double (*fma)(size_t rounds, float *out);
    /* Does 24 * rounds products of vectors of bytes, summed up as 32-bit
     * integers; returns how many multiply-adds that were.  NULL: the level has
     * no vectors.  out[0] and out[1] are what is multiplied. */
    double (*dot8)(size_t rounds, int out[2]);
    /* The sum of n floats, n a multiple of 64. */
    float (*read)(const float *x, size_t n);
} peak;

extern const peak peak_none, peak_avx2, peak_avxvnni, peak_avx512, peak_vnni,
    peak_neon, peak_neondot;

/* That of a level; of the best one here. */
const peak *peak_at(qn_isa isa);
const peak *peak_best(void);

#endif
