/* split.h: the splitters of the well-known byte-level families, by hand.
 *
 * A rule stands for one or several regular expressions that are applied one
 * after the other (each splits the pieces of the one before into matches and
 * what lies between).  Rules with a `next` function have been written out:
 * their expressions match every character, so the function only has to say
 * how long the piece at a position is.  tests/text/test_split.c compares them
 * with the expressions. */
#ifndef QN_TEXT_SPLIT_H
#define QN_TEXT_SPLIT_H

#include "base/bytes.h"

/* Length of the piece at p (p < end; valid UTF-8), at least 1. */
typedef size_t (*qn_split_next)(const char *p, const char *end);

enum { QN_SPLIT_PATTERNS = 6 };

typedef struct qn_split_rule {
    const char *name;                        /* its own or its first user's */
    const char *patterns[QN_SPLIT_PATTERNS]; /* unused ones are NULL */
    qn_split_next next;                      /* NULL: only the expressions */
} qn_split_rule;

/* NULL when there is no such rule. */
const qn_split_rule *qn_split_rule_named(qn_str name);
/* The rule written out for this one expression, or NULL. */
const qn_split_rule *qn_split_rule_for(qn_str pattern);

/* What a name in tokenizer.ggml.pre stands for. */
typedef struct qn_splitter {
    const char *name, *rule_name;
    bool ignore_merges; /* a word that is a token is that token */
    bool add_bos;       /* where the file does not say */
} qn_splitter;

/* NULL when there is no such name. */
const qn_splitter *qn_splitter_named(qn_str name);
/* All of them, for tests. */
const qn_splitter *qn_splitters(size_t *count);

/* All rules, for tests. */
const qn_split_rule *qn_split_rules(size_t *count);

#endif
