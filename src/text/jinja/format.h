/* format.h: Python's two ways of formatting, "%s" % values and
 * "{}".format(values). */
#ifndef QN_TEXT_JINJA_FORMAT_H
#define QN_TEXT_JINJA_FORMAT_H

#include "call.h"
#include "str.h"

/* `values`: a tuple of values, a dict for %(name)s, or one value. */
const qn_jstr *qn_jformat(qn_jrun *run, const qn_jstr *format, qn_jval values);

/* str.format with the arguments of `call`. */
const qn_jstr *qn_jformat_fields(const qn_jstr *format, const qn_jcall *call);

#endif
