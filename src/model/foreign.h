/* foreign.h: weights that other programs packed (runtime specification 2).
 *
 * Modules of AWQ, GPTQ and compressed-tensors files become the words, scales
 * and biases that this runtime knows: the same codes in another order, in
 * groups along the rows.  No value changes: scales and biases are float32 where
 * the product of a zero point and a scale needs more than they had. */
#ifndef QN_MODEL_FOREIGN_H
#define QN_MODEL_FOREIGN_H

#include "quant.h"
#include "weights.h"

/* Adds P.weight, P.scales and P.biases for each module P that is packed as
 * `table` says (nothing for a table of our own).  QN_E_UNSUPPORTED for what the
 * method has beyond that: other widths, an order of rows that follows their
 * activity. */
qn_status qn_foreign_adopt(qn_weights *weights, const qn_quant_table *table);

#endif
