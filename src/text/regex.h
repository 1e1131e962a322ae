/* regex.h: the general matcher, for expressions that no splitter was written
 * for.
 *
 * PCRE2 with UTF and Unicode properties; the expression is rewritten first
 * where its meaning there differs from that of tokenizer files (see regex.c).
 * A compiled expression is immutable; what a search needs to write is in a
 * qn_regex_run of its own. */
#ifndef QN_TEXT_REGEX_H
#define QN_TEXT_REGEX_H

#include "base/bytes.h"
#include "base/status.h"

typedef struct qn_regex qn_regex;
typedef struct qn_regex_run qn_regex_run;

/* QN_E_UNSUPPORTED for what the matcher does not know or cannot compile. */
qn_status qn_regex_new(qn_regex **out, qn_str pattern);
void qn_regex_free(qn_regex *regex);

/* A series of searches in text of `bytes` bytes altogether, which may take 1e6
 * steps of backtracking for each started 64 KiB.  Borrows the expression. */
qn_status qn_regex_run_new(qn_regex_run **out, const qn_regex *regex,
                           size_t bytes);
void qn_regex_run_free(qn_regex_run *run);

/* The first match in `text` (valid UTF-8) at or after `from`; *found says
 * whether there is one.  A match may be empty.  QN_E_UNSUPPORTED when the steps
 * are used up. */
qn_status qn_regex_find(qn_regex_run *run, qn_str text, size_t from,
                        bool *found, size_t *begin, size_t *end);

/* One match after the other: zero-initialise.  An empty one right behind
 * another match is none. */
typedef struct qn_regex_scan {
    size_t from, last_end;
    bool any;
} qn_regex_scan;

qn_status qn_regex_next(qn_regex_run *run, qn_str text, qn_regex_scan *scan,
                        bool *found, size_t *begin, size_t *end);

#endif
