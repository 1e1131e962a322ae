/* transpose.h: blocks of elements with rows and columns exchanged.
 *
 * A block is as many rows and columns as a cache line has elements: it reads
 * whole lines and writes whole lines. */
#ifndef QN_CPU_TRANSPOSE_H
#define QN_CPU_TRANSPOSE_H

#include "base/cpu.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { QN_TRANSPOSE_LINE = 64 }; /* bytes */

/* Element j of row i of `from` becomes element i of row j of `to`; rows are
 * to_row and from_row bytes apart.  `stream`: past the caches, where `to` and
 * its rows lie on lines. */
typedef void (*qn_transpose_block)(void *to, int64_t to_row, const void *from,
                                   int64_t from_row, bool stream);

typedef struct qn_transpose_kernel {
    qn_transpose_block block[4]; /* elements of 1, 2, 4, 8 bytes */
    void (*fence)(void);         /* what was streamed is there for others */
} qn_transpose_kernel;

/* The best kernel that this processor has. */
const qn_transpose_kernel *qn_transpose_pick(void);
/* The kernel of one level, NULL when it is not built in or not supported. */
const qn_transpose_kernel *qn_transpose_at(qn_isa isa);

#define QN_TRANSPOSE(isa, name) extern const qn_transpose_kernel name;
#include "kernels.def"
#undef QN_TRANSPOSE

#endif
