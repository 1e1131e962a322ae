/* format.h: Python's printf-style formatting, "%s" % values. */
#ifndef QN_TEXT_JINJA_FORMAT_H
#define QN_TEXT_JINJA_FORMAT_H

#include "str.h"

/* `values`: a tuple of values, a dict for %(name)s, or one value. */
const qn_jstr *qn_jformat(qn_jrun *run, const qn_jstr *format, qn_jval values);

#endif
