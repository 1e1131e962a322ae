/* marks.h: words of text in which "▁" stands for spaces.
 *
 * In most vocabularies no token has a mark behind another character: then no
 * merge reaches across such a place, and the words between can be merged one
 * by one, with the same result as the whole text and much faster. */
#ifndef QN_TEXT_MARKS_H
#define QN_TEXT_MARKS_H

#include "base/bytes.h"

enum { QN_MARK_SIZE = 3 };
#define QN_MARK "\xe2\x96\x81"

static inline bool qn_is_mark(const char *p, const char *end)
{
    return end - p >= QN_MARK_SIZE && !memcmp(p, QN_MARK, QN_MARK_SIZE);
}

/* Length of the marks at p and what follows, up to the next mark. */
static inline size_t qn_marked_word(const char *p, const char *end)
{
    const char *q = p;
    while (qn_is_mark(q, end))
        q += QN_MARK_SIZE;
    while (q < end && (q = memchr(q, QN_MARK[0], (size_t)(end - q)))) {
        if (qn_is_mark(q, end))
            return (size_t)(q - p);
        q++;
    }
    return (size_t)(end - p);
}

/* True when a mark stands behind another character. */
static inline bool qn_crosses_words(qn_str token)
{
    return qn_marked_word(token.data, token.data + token.size) < token.size;
}

#endif
