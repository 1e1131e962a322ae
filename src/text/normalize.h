/* normalize.h: the normalizer: a list of steps, each text -> text.
 *
 * Along with the text go its marks, one byte for each byte of text, when the
 * caller needs to know which parts came from marked input (content taint): a
 * byte made from several is marked if any of them was. */
#ifndef QN_TEXT_NORMALIZE_H
#define QN_TEXT_NORMALIZE_H

#include "base/buf.h"
#include "jpath.h"

typedef struct qn_normalizer qn_normalizer;

/* Null gives no steps (*out = NULL). */
qn_status qn_normalizer_parse(qn_normalizer **out, const qn_json *value,
                              const qn_jpath *at);
/* A SentencePiece model's: its charsmap, if there is one, whose longest keys
 * are replaced wherever they begin; then the steps of `value`, which may be
 * NULL.  Nothing of either gives no steps (*out = NULL). */
qn_status qn_normalizer_from_charsmap(qn_normalizer **out, qn_bytes charsmap,
                                      const qn_json *value, const qn_jpath *at);
void qn_normalizer_free(qn_normalizer *normalizer);

typedef struct qn_norm_text {
    qn_buf text;
    qn_buf marks;
    bool marked; /* `marks` is kept */
    /* What the input begins with is gone without anything in its place. */
    bool cut_start;
} qn_norm_text;

void qn_norm_text_free(qn_norm_text *text);

/* Replaces the contents of *out by the normal form of `text` (valid UTF-8).
 * `marks` may be NULL. */
qn_status qn_normalizer_run(const qn_normalizer *normalizer, qn_norm_text *out,
                            qn_str text, const char *marks);

#endif
