/* post.h: the post-processor: the special tokens put around a text.
 *
 * For a single text every kind comes down to ids before and ids after it, so
 * that is what is kept. */
#ifndef QN_TEXT_POST_H
#define QN_TEXT_POST_H

#include "jpath.h"
#include "tokenizer.h"
#include "vocab.h"

/* Appends to `before` and `after` (which the caller frees, also on error).
 * Null gives nothing.  An id that is not in the vocabulary: QN_E_MISMATCH. */
qn_status qn_post_parse(qn_ids *before, qn_ids *after, const qn_json *value,
                        const qn_vocab *vocab, const qn_jpath *at);

#endif
