/* filters.h: the filters between log probabilities and the draw.
 *
 * Each works on `lp`, the log probabilities of all ids, and drops an id by
 * setting it to -inf.  None renormalizes; none drops the likeliest id. */
#ifndef QN_RUNTIME_FILTERS_H
#define QN_RUNTIME_FILTERS_H

#include "base/status.h"

#include <stdint.h>

/* Keeps ids where the sum of probabilities in ascending order, the id's own
 * included, is above 1 - p.  Equal ones are added in the order of ids.
 * `scratch` has room for n ids. */
void qn_filter_top_p(float *lp, int32_t n, double p, int32_t *scratch);
/* Keeps lp >= max + ln(p). */
void qn_filter_min_p(float *lp, int32_t n, double p);
/* Keeps the ids whose surprise is nearest to the entropy of what is left,
 * until their probability reaches p. */
void qn_filter_typical(float *lp, int32_t n, double p, int32_t *scratch);
/* Of the ids whose probability among what is left is above `threshold`, keeps
 * the least likely; `exempt` ids stay as they are. */
void qn_filter_xtc(float *lp, int32_t n, double threshold,
                   const int32_t *exempt, size_t exempt_count);
/* Keeps the k likeliest, lowest ids first among equals. */
void qn_filter_top_k(float *lp, int32_t n, int32_t k, int32_t *scratch);

#endif
