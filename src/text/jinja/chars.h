/* chars.h: Python's string operations, taint included.
 *
 * What filters and methods of strings share.  All indices are bytes. */
#ifndef QN_TEXT_JINJA_CHARS_H
#define QN_TEXT_JINJA_CHARS_H

#include "str.h"

typedef enum qn_jcase {
    QN_JCASE_UPPER,
    QN_JCASE_LOWER,
    QN_JCASE_TITLE,   /* every word */
    QN_JCASE_CAPITAL, /* the first character */
    QN_JCASE_SWAP
} qn_jcase;

const qn_jstr *qn_jstr_cased(qn_jrun *run, const qn_jstr *str, qn_jcase how);
/* Python's title filter of Jinja: words end at white space and -({[<. */
const qn_jstr *qn_jstr_titled_words(qn_jrun *run, const qn_jstr *str);

typedef enum qn_jis {
    QN_JIS_LOWER,
    QN_JIS_UPPER,
    QN_JIS_TITLE,
    QN_JIS_ALPHA,
    QN_JIS_ALNUM,
    QN_JIS_DECIMAL,
    QN_JIS_DIGIT,
    QN_JIS_NUMERIC,
    QN_JIS_SPACE,
    QN_JIS_ASCII
} qn_jis;

/* str.islower() and its like. */
bool qn_jstr_is(qn_jrun *run, const qn_jstr *str, qn_jis what);

enum { QN_JSTRIP_LEFT = 1, QN_JSTRIP_RIGHT = 2 };
/* Without the characters of `set` (NULL: white space) at its ends. */
const qn_jstr *qn_jstr_strip(qn_jrun *run, const qn_jstr *str,
                             const qn_jstr *set, unsigned sides);
/* All or the first `count` (< 0: all) occurrences replaced. */
const qn_jstr *qn_jstr_replace(qn_jrun *run, const qn_jstr *str,
                               const qn_jstr *from, const qn_jstr *to,
                               int64_t count);
/* A list of the parts; `separator` NULL: runs of white space.  At most
 * `count` cuts (< 0: all), from the end if `from_right`. */
qn_jval qn_jstr_split(qn_jrun *run, const qn_jstr *str,
                      const qn_jstr *separator, int64_t count, bool from_right);
/* The lines, without their ends unless `keep`. */
qn_jlist qn_jstr_lines(qn_jrun *run, const qn_jstr *str, bool keep);
/* `str` n times. */
const qn_jstr *qn_jstr_repeat(qn_jrun *run, const qn_jstr *str, int64_t n);
/* a + b; markup escapes what is none. */
const qn_jstr *qn_jstr_add(qn_jrun *run, const qn_jstr *a, const qn_jstr *b);
/* str(value) of every item with `separator` between. */
const qn_jstr *qn_jstr_join(qn_jrun *run, const qn_jstr *separator,
                            qn_jlist items);
/* Padded with `fill` (one character; NULL: a blank) to `width` code points,
 * the text at the left, at the right or in the middle. */
const qn_jstr *qn_jstr_ljust(qn_jrun *run, const qn_jstr *str, int64_t width,
                             const qn_jstr *fill);
const qn_jstr *qn_jstr_rjust(qn_jrun *run, const qn_jstr *str, int64_t width,
                             const qn_jstr *fill);
const qn_jstr *qn_jstr_center(qn_jrun *run, const qn_jstr *str, int64_t width,
                              const qn_jstr *fill);

#endif
