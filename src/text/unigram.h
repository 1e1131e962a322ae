/* unigram.h: the model that cuts a word into the tokens with the highest sum
 * of scores. */
#ifndef QN_TEXT_UNIGRAM_H
#define QN_TEXT_UNIGRAM_H

#include "model.h"

typedef struct qn_unigram qn_unigram;

typedef struct qn_unigram_options {
    int32_t unk; /* -1: an unknown character is an error */
    bool byte_fallback;
    bool narrow; /* sums are floats, as SentencePiece's are */
} qn_unigram_options;

/* `scores` has one for each id of the vocabulary, which must be complete but
 * for added tokens; NaN for tokens that text is never cut into; copied.  The
 * caller owns *out (its free). */
qn_status qn_unigram_new(qn_text_model **out, const qn_vocab *vocab,
                         const double *scores,
                         const qn_unigram_options *options);

#endif
