/* parse.h: from template text to a syntax tree. */
#ifndef QN_TEXT_JINJA_PARSE_H
#define QN_TEXT_JINJA_PARSE_H

#include "ast.h"
#include "base/arena.h"

/* A name that the template uses. */
typedef struct qn_jsymbol {
    const qn_jstr *name;
    bool read; /* not only assigned */
} qn_jsymbol;

typedef struct qn_jtemplate {
    qn_arena arena;
    qn_jsymbol *symbols;
    uint32_t symbol_count;
    /* The names that statements bind by themselves. */
    uint32_t loop, caller, varargs, kwargs;
    qn_jnodes body;
} qn_jtemplate;

/* The deepest nesting of statements and of expressions, and the longest
 * source. */
enum { QN_JNESTING = 128, QN_JSOURCE_LIMIT = 1 << 20 };

/* Fills *tmpl, whose arena the caller frees, also on failure.  `source` is
 * not needed afterwards.  QN_E_FORMAT: not Jinja, or not UTF-8;
 * QN_E_UNSUPPORTED: a construct this engine has not; both with its line. */
qn_status qn_jparse(qn_jtemplate *tmpl, qn_str source);

#endif
