/* fused.h: the loops of fused steps, for backends that have none of their own
 * for some. */
#ifndef QN_BACKEND_REF_FUSED_H
#define QN_BACKEND_REF_FUSED_H

#include "backend/common/fused.h"

bool qn_ref_fused_bind(qn_fused_loop *loop);
extern const qn_fused_words qn_ref_fused_words;

#endif
