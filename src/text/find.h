/* find.h: a byte string inside another. */
#ifndef QN_TEXT_FIND_H
#define QN_TEXT_FIND_H

#include "base/bytes.h"

/* The first place of `part` (not empty) in `text`, or NULL. */
static inline const char *qn_find(qn_str text, qn_str part)
{
    const char *p = text.data, *end = p + text.size;
    while ((size_t)(end - p) >= part.size) {
        p = memchr(p, part.data[0], (size_t)(end - p) - part.size + 1);
        if (!p || !memcmp(p, part.data, part.size))
            return p;
        p++;
    }
    return NULL;
}

#endif
