/* fft.h: the steps that Fourier transforms are made of, in float.
 *
 * Real and imaginary parts lie in separate planes: rows of lanes, `pitch`
 * floats apart, a multiple of QN_FFT_LANES.  A transform runs down the rows,
 * for all lanes at once; handing the planes over in the other order makes it
 * the inverse. */
#ifndef QN_CPU_FFT_H
#define QN_CPU_FFT_H

#include "base/cpu.h"

#include <stddef.h>
#include <stdint.h>

enum {
    QN_FFT_LANES = 16, /* a multiple of every kernel's vectors */
    QN_FFT_RADIX = 13  /* radixes: 2, 3, 4, 5, 8 and odd ones up to this */
};

/* One pass (as in backend/common/fft.h).  For q below m and r below s, radix
 * elements x[r + x_step (q + m k)] become, by a transform of that length, radix
 * elements y[r + s (radix q + j)], each times its factor: number (j - 1) m + q
 * of w; none for j = 0.  s is a multiple of QN_FFT_LANES. */
typedef struct qn_fft_lanes_pass {
    int radix;
    size_t m, s, x_step;
    const float *w[2];
    const float *x[2];
    float *y[2];
} qn_fft_lanes_pass;

/* Complex numbers in memory: number i of row k is at re[k * row + i * step]
 * and at the same place of im. */
typedef struct qn_fft_view {
    float *re, *im; /* NULL: zeros, or nowhere */
    size_t step;
    int64_t row;
} qn_fft_view;

typedef struct qn_fft_planes {
    float *re, *im;
    size_t pitch;
} qn_fft_planes;

/* What transposing multiplies with: number i of row k by row[k] (if there are
 * such) and by number i of row k of `turn`. */
typedef struct qn_fft_turn {
    const float *row[2];
    const float *turn[2];
    size_t pitch;
} qn_fft_turn;

typedef struct qn_fft_kernel {
    void (*pass)(const qn_fft_lanes_pass *pass);
    /* `width` numbers of each row; the rest up to a multiple of
     * QN_FFT_LANES becomes 0. */
    void (*load)(const qn_fft_planes *to, const qn_fft_view *from, size_t rows,
                 size_t width);
    void (*store)(const qn_fft_view *to, const qn_fft_planes *from, size_t rows,
                  size_t width, float scale);
    /* Rows become lanes; to->pitch is at least `rows` rounded up, and the
     * lanes beyond `rows` become 0.  turn may be NULL. */
    void (*transpose)(const qn_fft_planes *to, const qn_fft_planes *from,
                      size_t rows, size_t width, const qn_fft_turn *turn);
    /* The spectrum of a real line of length 2 n, numbers 0 to n, from the
     * transform of its pairs, n numbers; w[k] = exp(-2 pi i k / (2 n)).  And
     * the way back, which leaves out a factor 1 / 2; the imaginary parts of the
     * first and the last number stand for nothing. */
    void (*split)(float *const *to, float *const *from, const float *const *w,
                  size_t n);
    void (*merge)(float *const *to, float *const *from, const float *const *w,
                  size_t n);
    /* n numbers of a plane times factors: to = from * w. */
    void (*multiply)(float *const *to, float *const *from,
                     const float *const *w, size_t n);
} qn_fft_kernel;

/* The best kernel that this processor has. */
const qn_fft_kernel *qn_fft_pick(void);

#define QN_FFT(isa, name) extern const qn_fft_kernel name;
#include "kernels.def"
#undef QN_FFT

#endif
