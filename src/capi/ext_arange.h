/* ext_arange.h: what tests see of the ranges that are kept. */
#ifndef QN_CAPI_EXT_ARANGE_H
#define QN_CAPI_EXT_ARANGE_H

#include <stddef.h>

typedef struct qn_ranges_state {
    int entries;
    size_t bytes;
    /* Since the process began: requests that found their range, and ranges
     * that were put in. */
    size_t hits, stored;
} qn_ranges_state;

qn_ranges_state qn_ranges_kept(void);

#endif
