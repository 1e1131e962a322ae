/* fft_plan.h: how the CPU backend does a Fourier transform of a length.
 *
 * A `chain` of passes transforms lanes side by side.  A single line of length
 * rows * columns is a matrix: chains down its columns, a factor for each
 * element, chains down its rows (turned into columns), and the result stands
 * transposed, which is its natural order.  A length with a large prime factor
 * is a convolution (Bluestein) made of transforms of a power of two.
 *
 * Factors are computed in double and rounded once. */
#ifndef QN_CPU_FFT_PLAN_H
#define QN_CPU_FFT_PLAN_H

#include "backend/cpu/kernels/fft/fft.h"
#include "base/status.h"

enum { QN_FFT_PASSES = 32 };

typedef struct qn_fft_chain {
    size_t n;
    int npasses;
    qn_fft_lanes_pass passes[QN_FFT_PASSES]; /* without buffers, of one lane */
} qn_fft_chain;

typedef enum qn_fft_way {
    QN_FFT_WAY_LANES,  /* `whole` on several lines at once */
    QN_FFT_WAY_MATRIX, /* a line by itself: `down`, `turn`, `along` */
    QN_FFT_WAY_CHIRP   /* a line by itself: convolved by `inner` */
} qn_fft_way;

typedef struct qn_fft_line_plan qn_fft_line_plan;
struct qn_fft_line_plan {
    size_t n;
    bool alone;
    qn_fft_way way;
    qn_fft_chain whole;
    /* MATRIX: n = rows * columns.  Columns are done in strips of `strip`, rows
     * likewise; turn[k][i] = w^(k i) for row k and column i of a strip, and the
     * strip that begins with column c has the further factors w^(k c). */
    size_t rows, columns, strip;
    qn_fft_chain down, along;
    float *turn[2];
    /* Roots of 1 of order n in two steps: number k is fine[k % FINE] times
     * coarse[k / FINE]. */
    double *fine[2], *coarse[2];
    /* CHIRP: n factors, and inner->n in the frequency domain. */
    qn_fft_line_plan *inner;
    float *chirp[2], *filter[2];
    /* exp(-2 pi i k / (2 n)) for k up to n: for real lines of length 2 n. */
    float *halves[2];
    void *blocks[8]; /* memory of all of these */
    int nblocks;
};

/* A plan for lines of length n.  `alone`: lines are done one by one, else
 * (and when n is too short for that) side by side; n with a large prime factor
 * is always done alone.  `halves` asks for those factors.  To be given back
 * with qn_cpu_fft_plan_done (NULL is fine). */
qn_status qn_cpu_fft_plan(qn_fft_line_plan **out, size_t n, bool alone,
                          bool halves);
void qn_cpu_fft_plan_done(qn_fft_line_plan *plan);

/* w^(k c) for k below rows. */
void qn_cpu_fft_row_factors(const qn_fft_line_plan *plan, float *re, float *im,
                            size_t column);

#endif
