/* oracle.h: what the element of each regular row should be, evaluated again
 * and independently: in long double for reals (which holds every 64-bit
 * integer, so that integers are exact), in double for complex numbers.
 *
 * A row of ops.def without an entry here fails the op test. */
#ifndef QN_TEST_OPS_ORACLE_H
#define QN_TEST_OPS_ORACLE_H

#include "ops/ops.h"

#include <complex.h>

typedef long double real;
typedef double _Complex cplx;

typedef real real_fn(real a, real b, qn_dtype type);
typedef cplx cplx_fn(cplx a, cplx b);

typedef struct oracle {
    real_fn *real;
    cplx_fn *cplx; /* NULL: the row refuses complex64 */
    bool finite;   /* infinities and NaN are left out of the operands */
} oracle;

/* Indexed by op; entries of other families are empty. */
extern const oracle oracles[QN_OP_COUNT];

/* The whole number x as `type` holds it: cut to its width. */
real oracle_wrap(real x, qn_dtype type);
/* Lexicographic order of complex numbers. */
bool oracle_less(cplx a, cplx b);

#endif
