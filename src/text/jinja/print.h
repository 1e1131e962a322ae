/* print.h: values as text, in the three forms that templates see. */
#ifndef QN_TEXT_JINJA_PRINT_H
#define QN_TEXT_JINJA_PRINT_H

#include "str.h"

/* str(value): what {{ }} writes. */
void qn_jprint(qn_jbuild *b, qn_jval value);
/* repr(value): how it stands inside of a printed list. */
void qn_jrepr(qn_jbuild *b, qn_jval value);
/* The string itself, or str(value) of anything else. */
const qn_jstr *qn_jto_str(qn_jrun *run, qn_jval value);

/* The options of json.dumps. */
typedef struct qn_jjson {
    bool ascii; /* escape what is not ASCII */
    bool sort_keys;
    const qn_jstr *indent;     /* NULL: all on one line */
    const qn_jstr *item, *key; /* separators */
} qn_jjson;

void qn_jto_json(qn_jbuild *b, qn_jval value, const qn_jjson *options);

#endif
