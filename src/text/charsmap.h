/* charsmap.h: the compiled normalization rules of SentencePiece models.
 *
 * The layout, all little-endian: 4 bytes, the size of the tree; the tree, a
 * double array of 32-bit units as the library darts-clone writes it; the
 * replacements, each ended by a zero byte.  The tree's values are offsets of
 * replacements. */
#ifndef QN_TEXT_CHARSMAP_H
#define QN_TEXT_CHARSMAP_H

#include "base/bytes.h"
#include "base/status.h"

typedef struct qn_charsmap qn_charsmap;

/* Copies `blob`.  A size that does not fit, or replacements that are not
 * valid UTF-8: QN_E_FORMAT.  The caller owns *out (qn_charsmap_free). */
qn_status qn_charsmap_new(qn_charsmap **out, qn_bytes blob);
void qn_charsmap_free(qn_charsmap *map);

/* The replacement of the shortest key that `chunk` begins with; false when
 * there is none.  *out lives as long as the map. */
bool qn_charsmap_find(const qn_charsmap *map, qn_str chunk, qn_str *out);
/* The same for the longest key, whose length becomes *used. */
bool qn_charsmap_longest(const qn_charsmap *map, qn_str chunk, qn_str *out,
                         size_t *used);

#endif
