/* peak.h: what one core can do at most: multiply-adds on registers, and reading
 * memory with whole vectors. */
#ifndef QN_BENCH_PEAK_H
#define QN_BENCH_PEAK_H

#include <stddef.h>

typedef struct peak {
    /* Does 24 * rounds vector multiply-adds; returns how many floating-point
     * operations that were.  *out keeps the compiler from dropping them. */
    double (*fma)(size_t rounds, float *out);
    /* The sum of n floats, n a multiple of 64. */
    float (*read)(const float *x, size_t n);
} peak;

extern const peak peak_none, peak_avx2, peak_avx512, peak_neon;

#endif
