/* tokenizer_impl.h: what a tokenizer is made of, for those who load it
 * (tokenizer_json.c, tokenizer_gguf.c) and those who run it (tokenizer.c,
 * detok.c). */
#ifndef QN_TEXT_TOKENIZER_IMPL_H
#define QN_TEXT_TOKENIZER_IMPL_H

#include "added.h"
#include "decode.h"
#include "model.h"
#include "normalize.h"
#include "post.h"
#include "pretok.h"
#include "tokenizer.h"
#include "vocab.h"

struct qn_tokenizer {
    qn_vocab vocab;
    qn_added_set raw;          /* added tokens matched on the raw text */
    qn_added_set normalized;   /* and on normalized text */
    qn_normalizer *normalizer; /* NULL: none */
    qn_pretok *pretok;         /* NULL: none */
    qn_text_model *model;
    qn_decoder *decoder;
    qn_ids before, after; /* what ADD_SPECIAL puts around a text */
    int32_t bos, eos, unk, pad;
    qn_ids end_ids;
};

/* An empty tokenizer; the Unicode tables are ready.  NULL on allocation
 * failure. */
qn_tokenizer *qn_tokenizer_new(void);

/* Makes `before` begin with BOS, or not, and `after` end with EOS, or not,
 * whatever they say so far.  Without such a token nothing changes. */
qn_status qn_tokenizer_set_bos(qn_tokenizer *t, bool add);
qn_status qn_tokenizer_set_eos(qn_tokenizer *t, bool add);

#endif
