/* scan.h: running sums, products and extremes of many lines side by side.
 *
 * Each line goes from one element to the next in the array's own type, rounding
 * at each step, as one alone would: lanes are lines, so the bits are those of
 * the reference.  An inclusive scan begins with the first element itself, an
 * exclusive one with the identity.  Of equal extremes the later one stays, and
 * a NaN stays. */
#ifndef QN_CPU_SCAN_H
#define QN_CPU_SCAN_H

#include "base/cpu.h"
#include "core/dtype.h"
#include "ops/ops.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { QN_SCAN_COLUMNS = 512, QN_SCAN_LINES = 16 };

typedef struct qn_scan_loop {
    /* Down n columns, at most QN_SCAN_COLUMNS: a row is n neighbouring
     * elements, the next one `step` elements on (or back).  Each element is
     * read before it is written. */
    void (*columns)(void *out, int64_t out_step, const void *in,
                    int64_t in_step, size_t n, size_t rows, bool inclusive);
    /* Along `count` lines of n neighbouring elements, at most QN_SCAN_LINES, to
     * the right or to the left.  NULL: there is no such loop. */
    void (*lines)(void *const *out, const void *const *in, size_t count,
                  size_t n, bool reverse, bool inclusive);
} qn_scan_loop;

typedef struct qn_scan_kernel {
    qn_scan_loop loops[QN_SCAN_COUNT][QN_DTYPE_COUNT];
} qn_scan_kernel;

/* The best kernel that this processor has. */
const qn_scan_kernel *qn_scan_pick(void);
/* The kernel of one level, NULL when it is not built in or not supported. */
const qn_scan_kernel *qn_scan_at(qn_isa isa);

#define QN_SCAN_KERNEL(isa, name) extern const qn_scan_kernel name;
#include "kernels.def"
#undef QN_SCAN_KERNEL

#endif
