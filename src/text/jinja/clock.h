/* clock.h: dates as strftime writes them in the C locale. */
#ifndef QN_TEXT_JINJA_CLOCK_H
#define QN_TEXT_JINJA_CLOCK_H

#include "str.h"

#include <time.h>

/* Appends `format` with its % directives replaced.  Unlike the C library's
 * function this one does not depend on the locale of the process and knows
 * Python's %f. */
void qn_jclock_format(qn_jbuild *b, const qn_jstr *format,
                      const struct tm *time, long nanoseconds);

#endif
