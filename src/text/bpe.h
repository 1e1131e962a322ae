/* bpe.h: byte-pair encoding, over bytes (byte-level vocabularies) or over
 * characters (vocabularies made from SentencePiece models). */
#ifndef QN_TEXT_BPE_H
#define QN_TEXT_BPE_H

#include "model.h"

/* The 256 characters by which byte-level vocabularies spell bytes. */
/* UTF-8 of the byte's character; returns its length, 1 or 2. */
int qn_bytelevel_spell(uint8_t byte, char out[2]);
/* Appends the bytes that `spelling` stands for; false, with nothing
 * appended, when it has a character that spells no byte. */
bool qn_bytelevel_unspell(qn_buf *out, qn_str spelling);

typedef struct qn_bpe_options {
    bool byte_level;    /* words are bytes, the vocabulary spells them */
    bool byte_fallback; /* unknown characters become <0xNN> tokens */
    bool fuse_unk;      /* a run of unknown characters is one unknown token */
    bool ignore_merges; /* a word that is a token is that token */
    int32_t unk;        /* -1: unknown characters are dropped */
    qn_str prefix;      /* of every symbol of a word but the first; copied */
    qn_str suffix;      /* of a word's last symbol; copied */
} qn_bpe_options;

typedef struct qn_bpe qn_bpe;

/* The vocabulary must be complete but for added tokens. */
qn_status qn_bpe_new(qn_bpe **out, const qn_vocab *vocab,
                     const qn_bpe_options *options);
/* The next merge, in order of rank.  QN_E_FORMAT when one of the two tokens or
 * their union is not in the vocabulary. */
qn_status qn_bpe_add_merge(qn_bpe *bpe, const qn_vocab *vocab, qn_str left,
                           qn_str right);
/* "a b": the two tokens of a merge written as one text. */
qn_status qn_bpe_add_merge_line(qn_bpe *bpe, const qn_vocab *vocab,
                                qn_str line);
/* After the last merge. */
qn_status qn_bpe_finish(qn_bpe *bpe);
void qn_bpe_free(qn_bpe *bpe);
/* The same object as a model; qn_text_model's free frees it. */
qn_text_model *qn_bpe_model(qn_bpe *bpe);

#endif
