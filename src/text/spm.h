/* spm.h: SentencePiece's byte-pair encoding: no list of merges, but tokens
 * with scores. */
#ifndef QN_TEXT_SPM_H
#define QN_TEXT_SPM_H

#include "model.h"

/* Adjacent pieces merge, the pair first whose union has the highest score
 * (leftmost of equals), as long as some union is a token.  Characters that
 * are in no token become tokens <0xNN>, or `unk` (one for a run of them; -1:
 * they are dropped).  `scores` has one for each id, NaN for tokens that text
 * never merges to; copied.  The caller owns *out (its free). */
qn_status qn_spm_new(qn_text_model **out, const qn_vocab *vocab,
                     const float *scores, int32_t unk);

#endif
