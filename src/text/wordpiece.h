/* wordpiece.h: the models that look words up: WordPiece, which cuts a word
 * into the longest tokens from the left, and WordLevel, whose words are
 * tokens. */
#ifndef QN_TEXT_WORDPIECE_H
#define QN_TEXT_WORDPIECE_H

#include "model.h"

typedef struct qn_wordpiece_options {
    int32_t unk;      /* what a word becomes that cannot be cut; -1: none, and
                         such a word is an error */
    qn_str prefix;    /* of the tokens inside a word ("##"); not kept */
    size_t max_chars; /* a longer word is unknown */
    bool words_only;  /* WordLevel: a word is one token */
    bool marks_start; /* GGUF: "▁" begins a word's first token instead of
                         `prefix` its others */
} qn_wordpiece_options;

/* Tokens are the entries of the model's own vocabulary, which must be
 * complete but for added tokens.  The caller owns *out (its free). */
qn_status qn_wordpiece_new(qn_text_model **out, const qn_vocab *vocab,
                           const qn_wordpiece_options *options);

#endif
