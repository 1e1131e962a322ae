/* added.h: added tokens and how they are found in text.
 *
 * Two sets: those matched on the raw text, before anything else, and those
 * matched on normalized text (whose contents are normalized the same way).
 * At each place the longest token that may match there is taken. */
#ifndef QN_TEXT_ADDED_H
#define QN_TEXT_ADDED_H

#include "base/bytes.h"
#include "base/status.h"

typedef struct qn_added_token {
    int32_t id;
    bool single_word;    /* not inside a word */
    bool lstrip, rstrip; /* swallows white space on that side */
    bool special;
} qn_added_token;

/* A set of tokens as a tree of bytes.  Zero-initialise. */
typedef struct qn_added_set {
    qn_added_token *tokens;
    size_t count, capacity;
    struct qn_added_node *nodes;
    size_t node_count, node_capacity;
    uint32_t first[256]; /* node of each first byte; 0: none */
    bool any_special;
} qn_added_set;

enum { QN_ADDED_MAX = 4096 }; /* longest content, in bytes */

void qn_added_free(qn_added_set *set);
/* An empty content is ignored; one that is there already is replaced.  Longer
 * than QN_ADDED_MAX: QN_E_UNSUPPORTED. */
qn_status qn_added_add(qn_added_set *set, qn_added_token token, qn_str content);

typedef struct qn_added_match {
    int32_t id;
    size_t begin, end; /* with the white space that was swallowed */
} qn_added_match;

/* The first match in `text` (valid UTF-8) at or after `from`.  Special tokens
 * match only if `special`, and not where `marks` (may be NULL: one byte for
 * each of the text) is non-zero under them. */
bool qn_added_find(const qn_added_set *set, qn_str text, size_t from,
                   bool special, const char *marks, qn_added_match *out);

#endif
