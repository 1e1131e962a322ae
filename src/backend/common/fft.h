/* fft.h: how a discrete Fourier transform of a length is done.
 *
 * A length whose prime factors are small is a chain of passes (Stockham's
 * order: no bit reversal, every pass reads one buffer and writes another).
 * Any other length becomes a convolution with a chirp (Bluestein), made of
 * transforms whose length is a power of two.
 *
 * Several transforms run side by side as `lanes`: element j of lane l is
 * number j * lanes + l.  Real and imaginary parts are separate arrays of
 * doubles; handing them over in the other order makes the inverse transform.
 * A plan is only read while transforms run, by any number of threads. */
#ifndef QN_BACKEND_COMMON_FFT_H
#define QN_BACKEND_COMMON_FFT_H

#include "base/status.h"

#include <stdint.h>

/* One pass over buffers of lanes * length elements.  For q below m and r below
 * s, radix elements x[r + s (q + m k)] become, by a transform of that length,
 * radix elements y[r + s (radix q + j)], each times its factor: number
 * (j - 1) m + q of w[0] (real parts) and w[1]; none for j = 0. */
typedef struct qn_fft_pass {
    int radix;
    size_t m, s;
    const double *w[2];
    const double *x[2];
    double *y[2];
} qn_fft_pass;
typedef void (*qn_fft_pass_fn)(const qn_fft_pass *pass);

/* Radixes are 2, 3, 4, 5 and odd ones up to this. */
enum { QN_FFT_MAX_RADIX = 13, QN_FFT_MAX_PASSES = 40 };

typedef struct qn_fft_plan {
    size_t n;
    size_t length; /* elements of a buffer: n, or what Bluestein needs */
    int npasses;
    qn_fft_pass passes[QN_FFT_MAX_PASSES]; /* without buffers, s of one lane */
    double *memory;
    /* Bluestein: n factors, and length ones in the frequency domain. */
    double *chirp[2], *filter[2];
} qn_fft_plan;

/* n is at least 1.  The caller frees the plan (qn_fft_plan_free), also after
 * an error. */
qn_status qn_fft_plan_make(qn_fft_plan *plan, size_t n, qn_fft_pass_fn run);
void qn_fft_plan_free(qn_fft_plan *plan);

/* Transforms what is in x, n * lanes elements, and returns where the result is:
 * x or y.  Both have room for length * lanes elements. */
double *const *qn_fft_run(const qn_fft_plan *plan, qn_fft_pass_fn run,
                          double *const *x, double *const *y, size_t lanes);

/* exp(-2 pi i k / n), accurate to the last place of a double. */
void qn_fft_root(double *re, double *im, uint64_t k, uint64_t n);
/* exp(-2 pi i k / n) for k below count, as two arrays; k may exceed n. */
void qn_fft_roots(double *re, double *im, size_t n, size_t count);

#endif
