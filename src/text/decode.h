/* decode.h: the decoder: from the spellings of tokens to text.
 *
 * A list of steps, each a small machine that takes tokens one by one and
 * hands on what is certain; so decoding at once and decoding as a stream are
 * the same thing.  What a step holds back, it hands on at the end. */
#ifndef QN_TEXT_DECODE_H
#define QN_TEXT_DECODE_H

#include "base/buf.h"
#include "jpath.h"

typedef struct qn_decoder qn_decoder;

/* Null joins tokens by spaces, as the format's own library does. */
qn_status qn_decoder_parse(qn_decoder **out, const qn_json *value,
                           const qn_jpath *at);
/* The decoder of byte-level vocabularies. */
qn_status qn_decoder_byte_level(qn_decoder **out);
/* The decoder of WordPiece vocabularies in GGUF files: "▁" begins a word. */
qn_status qn_decoder_marked_words(qn_decoder **out);
void qn_decoder_free(qn_decoder *decoder);

/* The bytes of one token inside a text: what each step makes of it when
 * nothing is before it, nothing is held back and nothing is cut. */
qn_status qn_decoder_token_bytes(const qn_decoder *decoder, qn_buf *out,
                                 qn_str token);

/* One text being decoded. */
typedef struct qn_decode_run qn_decode_run;

/* Borrows the decoder. */
qn_status qn_decode_run_new(qn_decode_run **out, const qn_decoder *decoder);
void qn_decode_run_free(qn_decode_run *run);
/* Appends what has become certain to `out`. */
qn_status qn_decode_add(qn_decode_run *run, qn_buf *out, qn_str token);
/* Appends the rest; the run is then as new. */
qn_status qn_decode_finish(qn_decode_run *run, qn_buf *out);

#endif
