/* detok.h: the streaming detokenizer.
 *
 * Feeds ids one at a time and gives back text that is always whole UTF-8 and
 * is never taken back: the pieces joined equal qn_tokenizer_decode of all
 * ids.  A tail that further tokens could change is held: the bytes of an
 * incomplete character (at most 3), characters that a decoder may strip at
 * the end, and, where a vocabulary has <0xNN> tokens, a run of those until it
 * ends, because one bad byte turns all of the run into U+FFFD. */
#ifndef QN_TEXT_DETOK_H
#define QN_TEXT_DETOK_H

#include "tokenizer.h"

typedef struct qn_detok qn_detok;

/* Borrows the tokenizer, which must outlive *out. */
qn_status qn_detok_new(qn_detok **out, const qn_tokenizer *tokenizer,
                       bool skip_special);
void qn_detok_free(qn_detok *detok);
/* Appends what has become certain to `out` (possibly nothing). */
qn_status qn_detok_add(qn_detok *detok, qn_buf *out, int32_t id);
/* Appends the rest; the detokenizer is then as new. */
qn_status qn_detok_finish(qn_detok *detok, qn_buf *out);

#endif
