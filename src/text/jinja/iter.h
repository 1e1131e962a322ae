/* iter.h: walking over values, lazily as Python's iterators do.
 *
 * An iterator is consumed by whoever asks it, once.  The stages (map,
 * select, unique) pull from another iterator when they are asked. */
#ifndef QN_TEXT_JINJA_ITER_H
#define QN_TEXT_JINJA_ITER_H

#include "call.h"

bool qn_jiterable(qn_jval value);
/* An iterator over any iterable; a value that is none fails the run.  Never
 * NULL: an empty iterator on failure. */
qn_jiter *qn_jiter_new(qn_jrun *run, qn_jval value);
/* The next value; false at the end and when the run has failed. */
bool qn_jiter_next(qn_jiter *it, qn_jval *out);
/* list(value): the items themselves for lists and tuples. */
qn_jlist qn_jlist_of(qn_jrun *run, qn_jval value);

/* reversed(value), for what has an order; else false. */
bool qn_jiter_reversed(qn_jrun *run, qn_jval value, qn_jval *out);
/* The pairs of a dict, as a generator. */
qn_jval qn_jiter_items(qn_jrun *run, qn_jdict *dict, bool tainted);
/* A generator of nothing. */
qn_jval qn_jiter_nothing(qn_jrun *run);

/* The attribute that filters like map and sort look up in each item:
 * "a.b.0", or several of them with commas between. */
typedef struct qn_jpath {
    const qn_jval *parts;
    uint32_t count;
} qn_jpath;

/* From a string or an integer; NONE and MISSING: no parts, the item itself. */
qn_jpath qn_jpath_parse(qn_jrun *run, qn_jval attribute);
/* `fallback` replaces what is undefined on the way, unless MISSING. */
qn_jval qn_jpath_get(qn_jrun *run, const qn_jpath *path, qn_jval item,
                     qn_jval fallback);
/* A string in lower case, anything else as it is: the key of comparisons
 * that ignore case. */
qn_jval qn_jignore_case(qn_jrun *run, qn_jval value);

typedef enum qn_jstage_kind {
    QN_JSTAGE_MAP,    /* the path's value, then the row's result */
    QN_JSTAGE_SELECT, /* items for which the row (or truth) holds */
    QN_JSTAGE_UNIQUE  /* items whose key was not seen before */
} qn_jstage_kind;

typedef struct qn_jstage {
    qn_jstage_kind kind;
    qn_jpath path;
    qn_jval fallback;    /* MAP: for what is undefined; MISSING: nothing */
    const qn_jrow *row;  /* a filter or test; NULL: none */
    qn_jcall call;       /* its further arguments */
    bool negate;         /* SELECT: reject instead */
    bool case_sensitive; /* UNIQUE */
    qn_jdict *seen;      /* UNIQUE */
} qn_jstage;

/* A generator that applies `stage` (copied) to the items of `source`. */
qn_jval qn_jiter_stage(qn_jrun *run, qn_jval source, const qn_jstage *stage);

#endif
