/* describe.h: what a model's headers say, without its weights. */
#ifndef QN_MODEL_DESCRIBE_H
#define QN_MODEL_DESCRIBE_H

#include "config.h"
#include "model.h"
#include "weights.h"

/* Adds up parameters and bytes as they lie in the files; the form is the
 * files' own name of the type that most parameters have.  The configuration
 * must belong to a supported family (QN_E_UNSUPPORTED). */
qn_status qn_model_describe(qn_model_sums *out, const qn_weights *weights,
                            qn_config *config);

#endif
