/* depthwise.h: out[c] = sum over taps t of x[t][c] * w[t][c]: a convolution
 * whose channels do not mix, at one place.  Taps are added in ascending order,
 * each with one fused multiply-add. */
#ifndef QN_CPU_DEPTHWISE_H
#define QN_CPU_DEPTHWISE_H

#include "base/cpu.h"

#include <stddef.h>

typedef struct qn_depthwise {
    size_t channels, taps;
    const float *const *x; /* one line per tap; NULL: zeros */
    const float *w;        /* [taps, channels] */
    float *out;
} qn_depthwise;

typedef void (*qn_depthwise_fn)(const qn_depthwise *job);

/* The best kernel that this processor has. */
qn_depthwise_fn qn_depthwise_pick(void);

#define QN_DEPTHWISE(isa, name) void name(const qn_depthwise *job);
#include "kernels.def"
#undef QN_DEPTHWISE

#endif
