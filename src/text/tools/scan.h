/* scan.h: one JSON value that comes in pieces.
 *
 * It is checked byte by byte, without being kept, so that it can be passed on
 * while it is written.  One thing is repaired: control characters in strings,
 * which models write as they are, become escapes. */
#ifndef QN_TEXT_TOOLS_SCAN_H
#define QN_TEXT_TOOLS_SCAN_H

#include "base/json.h"

typedef struct qn_scan {
    uint8_t state;
    uint8_t left; /* hex digits, or letters of a word */
    const char *word;
    int depth;
    uint8_t objects[QN_JSON_MAX_DEPTH / 8]; /* bit: this level is an object */
    bool key;                               /* the string is one */
} qn_scan;

typedef enum qn_scanned {
    QN_SCAN_MORE, /* all of the text is taken, and the value goes on */
    QN_SCAN_DONE, /* the value ends behind the bytes that are taken */
    QN_SCAN_BAD   /* the next byte can't be */
} qn_scanned;

/* A zeroed scan is at the beginning of a value. */
qn_scanned qn_scan_feed(qn_scan *scan, qn_buf *out, qn_str text, size_t *used);

#endif
