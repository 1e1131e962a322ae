/* tokenizer.h: text to token ids and back.
 *
 * One pipeline for tokenizer.json and for GGUF metadata: added tokens ->
 * normalizer -> pre-tokenizer -> model -> post-processor; and ids -> pieces ->
 * decoder.  A component that is not implemented is refused when the
 * tokenizer is loaded (QN_E_UNSUPPORTED with its JSON path), never skipped.
 * A loaded tokenizer is immutable and may be used by several threads. */
#ifndef QN_TEXT_TOKENIZER_H
#define QN_TEXT_TOKENIZER_H

#include "base/buf.h"
#include "base/gguf.h"

typedef struct qn_tokenizer qn_tokenizer;

/* A growing list of ids; zero-initialise, free with qn_ids_free. */
typedef struct qn_ids {
    int32_t *data;
    size_t size, capacity;
} qn_ids;

void qn_ids_free(qn_ids *ids);
qn_status qn_ids_add(qn_ids *ids, int32_t id);

/* `json`: tokenizer.json.  `config`: tokenizer_config.json, or an empty
 * range (add_bos_token, add_eos_token, special token names).  Both are
 * copied as needed.  The caller owns *out (qn_tokenizer_free). */
qn_status qn_tokenizer_from_json(qn_tokenizer **out, qn_bytes json,
                                 qn_bytes config);
/* From the tokenizer.ggml.* keys (runtime specification 3.4). */
qn_status qn_tokenizer_from_gguf(qn_tokenizer **out, const qn_gguf *gguf);
void qn_tokenizer_free(qn_tokenizer *tokenizer);

/* Ids are 0 .. count-1 (the largest id + 1; there may be holes). */
int32_t qn_tokenizer_count(const qn_tokenizer *tokenizer);

enum {
    QN_ENCODE_ADD_SPECIAL = 1,  /* run the post-processor (BOS, EOS) */
    QN_ENCODE_PARSE_SPECIAL = 2 /* special added tokens match in the text */
};

/* Appends the ids of `text`.  `taint` (may be NULL) is a bitmap, bit i for
 * byte i, of bytes that came from outside the template: a special added
 * token that covers a tainted byte is not matched (content taint).  Invalid
 * UTF-8: QN_E_ARG with the offset. */
qn_status qn_tokenizer_encode(const qn_tokenizer *tokenizer, qn_ids *out,
                              qn_str text, unsigned flags,
                              const uint8_t *taint);

/* Appends the text of `ids`, as a whole (leading-space rules apply to its
 * start).  Incomplete characters become U+FFFD.  Unknown id: QN_E_ARG. */
qn_status qn_tokenizer_decode(const qn_tokenizer *tokenizer, qn_buf *out,
                              const int32_t *ids, size_t count,
                              bool skip_special);

/* The bytes of one token as it stands in running text (byte-level and byte
 * fallback tokens give their raw bytes, which may be half a character). */
qn_status qn_tokenizer_token_bytes(const qn_tokenizer *tokenizer, qn_buf *out,
                                   int32_t id);
/* The vocabulary's own spelling; empty for a hole. */
qn_str qn_tokenizer_token_text(const qn_tokenizer *tokenizer, int32_t id);
bool qn_tokenizer_is_special(const qn_tokenizer *tokenizer, int32_t id);
/* The id of a vocabulary entry or added token with this content, or -1. */
int32_t qn_tokenizer_find(const qn_tokenizer *tokenizer, qn_str content);
/* Named ids, -1 where the tokenizer has none. */
int32_t qn_tokenizer_bos(const qn_tokenizer *tokenizer);
int32_t qn_tokenizer_eos(const qn_tokenizer *tokenizer);
int32_t qn_tokenizer_unk(const qn_tokenizer *tokenizer);
int32_t qn_tokenizer_pad(const qn_tokenizer *tokenizer);
/* End-of-generation ids known to the tokenizer itself (GGUF: eos, eot and
 * the control tokens of 3.4; JSON: eos). */
qn_status qn_tokenizer_end_ids(const qn_tokenizer *tokenizer, qn_ids *out);
/* "bpe", "unigram", ...: for `quern show`. */
const char *qn_tokenizer_kind(const qn_tokenizer *tokenizer);

#endif
